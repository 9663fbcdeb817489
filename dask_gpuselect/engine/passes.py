"""The dask graph: two loads of a source with a bracket between them.

::

    source ──copy──> cuts ──merge──> bracket ─┐
       │               └──────────────┐       │
       └────copy, waits for bracket──>candidates ──merge──> answer

Each line is a layer of one task a chunk or fewer. The cuts do not depend on what is asked, so
several questions about one array share them by key; each second load also takes the cuts of its
own chunk, and so proves on the spot that the chunk has not changed.

Where all chunks are in memory, a pilot goes ahead: a sample guesses the brackets, and one read
counts whether they hold. The tasks of the two loads then return at once, and run only on a miss.
"""

from __future__ import annotations

import itertools
import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import dask.array as da
import numpy as np
from dask._task_spec import List, Task, TaskRef
from dask.array.utils import meta_from_array
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.utils import format_bytes
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.engine import threads
from dask_gpuselect.engine.graphs import (
    Finish,
    Reads,
    each_chunk,
    each_if_needed,
    extended,
    reduced,
    reduced_together,
)
from dask_gpuselect.engine.marks import NO_MARKS, InGrid, Marks, Seen, check_same, joined, marks_of
from dask_gpuselect.engine.source import aligned, is_in_memory, private_copy
from dask_gpuselect.engine.threads import threads_for
from dask_gpuselect.maths.cuts import (
    Brackets,
    ChunksChangedError,
    Cuts,
    IntArray,
    RanksOf,
    Tally,
    check_unchanged,
    most_candidates,
)
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.sizes import PILOT_SIZE, pilot_room, pivot_count

# Of a plain array one element in so many (as a power of two) is sampled, but at least so many: of
# 2^22 float64, 2^15 gave the median in 9 ms and 2^18 in 23; of 2^26, 95 and 80.
PILOT_SHIFT = 7
LEAST_PILOT = 1 << 14
# Elements a chunk from which on a pilot is worth the two tasks more that it adds for each chunk.
PILOT_WORTH = 4 * PILOT_SIZE
# Elements up to which the candidates of a pilot fit in one place.
PILOT_MOST = 1 << 28
PILOT_SHARE = 0.009  # of all elements are candidates, for each quantile
GUESSED = 0.2  # of all elements may be candidates of a box in one array


class Bracketing(Protocol):
    """Where to look for what is asked of an array. Deterministically tokenizable, and picklable."""

    def bracket(self, cuts: Cuts) -> Brackets:
        """What the second load gathers, by the cuts of all chunks."""


class Guessing(Bracketing, Protocol):
    """The same of data in memory too."""

    def guess(self, ordered: Any, rate: float) -> Brackets:
        """What to gather in the only read of data in memory, by a sorted sample, on any device,
        that has this share of all elements."""

    def settle(self, guess: Brackets, tally: Tally) -> Any:
        """What is found there. None, or `ChunksChangedError`, if that is not all that is needed."""


class Question(Guessing, Protocol):
    """What is asked of an array: order statistics, and an answer that is an array."""

    @property
    def share(self) -> int:
        """See `strategies.pivot_count`."""

    def ranks(self, n: int) -> tuple[IntArray, IntArray]:
        """The first and last rank of each wanted bracket, among `n` valid elements; none if `n` is
        0."""

    def ranks_of_sample(self, n: int) -> RanksOf:
        """The same of a sample of `n` elements, by its size, which may be `n`. Hashable, and equal
        for equal questions."""

    def answer(self, brackets: Brackets, tally: Tally) -> np.ndarray[Any, Any]:
        """The answer, of the promised dtype, one-dimensional, on the host.

        Raises `ChunksChangedError` if the brackets do not hold all that is needed.
        """


@dataclass(frozen=True)
class Plan:
    """How an answer is computed.

    Parameters
    ----------
    name : str
        Part of the names of the layers.
    loads : int
        Of every chunk; those in memory are read in place.
    task_bytes : int
        Of the chunks that one task takes at most, without scratch; -1 if their sizes are unknown.
    gathered_bytes : int
        Of the reports that come to one place: for all elements about, along an axis at most. -1 if
        unknown.
    """

    name: str
    loads: int
    task_bytes: int
    gathered_bytes: int

    def __str__(self) -> str:
        task, gathered = (
            "an unknown number of bytes" if n < 0 else format_bytes(n)
            for n in (self.task_bytes, self.gathered_bytes)
        )
        loads = "one load" if self.loads == 1 else f"{self.loads} loads"
        return f"{self.name}: {loads}; chunks of {task} a task; reports of {gathered} in one place"


def known_bytes(n: float) -> int:
    """-1 where sizes are not known."""
    return -1 if math.isnan(n) else int(n)


def plan(x: da.Array, question: Question, n_answers: int) -> Plan:
    """How `ask` would compute so many answers."""
    sizes = [math.prod(chunk) for chunk in itertools.product(*x.chunks)]
    chunk_bytes = known_bytes(max(sizes, default=0) * x.dtype.itemsize)
    if is_in_memory(x) and is_worth_a_pilot(x.size, x.npartitions, question):
        return Plan("guess", 1, chunk_bytes, int(PILOT_SHARE * n_answers * x.nbytes))
    if chunk_bytes < 0:
        return Plan("bracket", 2, -1, -1)
    pivots = sum(pivot_count(size, question.share) for size in sizes)
    candidates = pivots * -(-n_answers // question.share)
    return Plan("bracket", 2, chunk_bytes, max(40 * pivots, candidates * x.dtype.itemsize))


def ask(
    x: da.Array, question: Question, label: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> da.Array:
    """The lazy answer to a question about all elements of a dask array, in two loads.

    Parameters
    ----------
    x : dask array
        Chunks of any number and size, known or not, NumPy or CuPy.
    question : Question
        What to find.
    label : str
        For the names of the layers: ``<label>-bracket``, ``<label>-candidates``, ``<label>``.
    shape, dtype
        Of the answer, which has a single chunk of the kind of `x`'s.

    Returns
    -------
    dask array
        Nothing is computed yet.

    Notes
    -----
    Each chunk is loaded twice; data in memory is used in place, and read once but for a sample. At
    the root, memory is 40 bytes a pivot, and an element a candidate: about sqrt(elements) of both
    for each chunk and quantile.
    """
    meta = meta_from_array(x._meta, ndim=len(shape), dtype=dtype)
    is_quick = is_in_memory(x) and is_worth_a_pilot(x.size, x.npartitions, question)
    pilot = _pilot(x, question, label)[1] if is_quick else None
    bracket, tally = loads(x, question, question.share, label, pilot)
    return _answer(tally, bracket, pilot, question, label, shape, meta)


def loads(
    x: da.Array, question: Bracketing, share: int, label: str, pilot: da.Array | None = None
) -> tuple[da.Array, da.Array]:
    """The two loads: the brackets of a question, and the tally of every chunk there."""
    first = _first_load(x, share, pilot)
    bracket = _bracket(first, question, label)
    return bracket, _tally(x, first, bracket, label)


class Follower(Guessing, Protocol):
    """A question that may need a third load, with any object for an answer."""

    @property
    def share(self) -> int:
        """See `strategies.pivot_count`."""

    @property
    def wants_sums(self) -> bool:
        """Whether the first load, or the only one of data in memory, sums the elements too."""

    @property
    def third(self) -> str | None:
        """What the third load is for, in the names of its layers; None if there is never one."""

    def look(self, brackets: Brackets, tally: Tally) -> Any:
        """What that says. Raises `ChunksChangedError` if it is not what the first load proved."""

    def more(self, brackets: Brackets, found: Any) -> Brackets | None:
        """What a further load gathers, or None."""

    def finish(
        self, found: Any, more: Brackets | None, tally: Tally | None, sums: Moments | None
    ) -> Any:
        """The answer, any object, from what was found, a third load if there was one, and the sums
        if they are wanted."""


def ask_more(
    arrays: Sequence[da.Array], questions: Sequence[Follower], label: str
) -> list[da.Array]:
    """The lazy answer about each of some arrays, an object: in two loads, and a third where the
    question wants it.

    Arrays of which chunk i is made of the same chunks of what they share are loaded together: what
    they have in common is loaded once for all of them, and of no more than one chunk at a time. The
    others, such as ``x[::-1]`` beside ``x``, take loads of their own: no order of the chunks suits
    both.

    Returns an array without dimensions, of an object, for each.
    """
    each = list(zip(arrays, questions, strict=True))
    distinct = list({(x.name, question): (x, question) for x, question in each}.values())
    answers: dict[tuple[str, Follower], da.Array] = {}
    for places in aligned([x for x, _ in distinct]):
        group = [distinct[place] for place in places]
        for (x, question), answer in zip(group, _ask_group(group, label), strict=True):
            answers[x.name, question] = answer
    return [answers[x.name, question] for x, question in each]


def _ask_group(asked: Sequence[tuple[da.Array, Follower]], label: str) -> list[da.Array]:
    """The answers about arrays that are loaded together."""
    names = sorted({x.name for x, _ in asked})
    among = tokenize(names) if len(names) > 1 else None
    firsts = [_ask_first(x, question, label, among) for x, question in asked]
    brackets = _all_brackets(firsts, label, among)
    turn = _after_all(brackets, label) if among else None
    arrays = [x for x, _ in asked]
    measure = _tally_chunk if _is_proven(firsts) else _seen_tally
    tallies = [
        _tally(each.x, each.first, bracket, label, turn, arrays, measure)
        for each, bracket in zip(firsts, brackets, strict=True)
    ]
    found = _all_found(firsts, brackets, tallies, label)
    if _is_proven(firsts):
        return found
    return [
        _answer_after_third(first, each, label) for first, each in zip(firsts, found, strict=True)
    ]


def together(arrays: Sequence[da.Array]) -> HighLevelGraph:
    """The graph of them all."""
    return HighLevelGraph.merge(*(array.dask for array in arrays))


@dataclass(frozen=True)
class _Asked:
    """What is asked of one array, as far as its first load."""

    x: da.Array
    question: Follower
    settled: da.Array | None
    first: da.Array
    sums: da.Array | None


def _ask_first(x: da.Array, question: Follower, label: str, among: str | None) -> _Asked:
    guess, settled = None, None
    if is_in_memory(x) and is_worth_a_pilot(x.size, x.npartitions, question):
        guess, settled = _pilot(x, question, label)
    with_sums = question.wants_sums and guess is None
    first = _first_load(x, question.share, settled, among, with_sums=with_sums)
    sums = None
    if guess is not None and question.wants_sums:
        sums = _sums_at_guess(x, guess, label)
    elif with_sums:
        name = f"{label}-sums-{tokenize(first.name)}"
        sums = reduced(first, CUTS_MERGE, _merge_first, _take_sums, name)
    return _Asked(x, question, settled, first, sums)


def _all_brackets(asked: Sequence[_Asked], label: str, among: str | None) -> list[da.Array]:
    """The brackets of every question, by what the first loads report of all chunks."""
    return reduced_together(
        [each.first for each in asked],
        CUTS_MERGE,
        _merge_first,
        [
            Finish(
                _find_brackets,
                f"{label}-bracket-{tokenize(each.first.name, each.question, among)}",
                {"question": each.question},
            )
            for each in asked
        ],
    )


def _sums_at_guess(x: da.Array, guess: da.Array, label: str) -> da.Array:
    """The sums of all elements of an array in memory, about the ends of a guess."""
    name = f"{label}-sums-{tokenize(guess.name)}"
    sums = each_chunk(_sums_by_guess, name, [x], [guess], dtype=x.dtype)
    return reduced(sums, f"{label}-sums-merge", _merged_sums, _merged_sums, f"{name}-all")


def _sums_by_guess(chunk: Any, guess: Brackets, *, dtype: np.dtype[Any]) -> Seen:
    # Chunks in memory stay what they are.
    return Seen(kernels.moments(chunk, guess.ends, dtype), NO_MARKS)


def _merged_sums(parts: list[Seen]) -> Seen:
    return Seen.merge(Moments.merge, parts)


def _after_all(brackets: Sequence[da.Array], label: str) -> da.Array:
    """A task that waits for the brackets of all arrays."""
    names = sorted({bracket.name for bracket in brackets})
    name = f"{label}-turn-{tokenize(names)}"
    layer = MaterializedLayer(
        {(name,): Task((name,), _nothing, List(*(TaskRef((n,)) for n in names)))}
    )
    graph = HighLevelGraph.merge(*(bracket.dask for bracket in brackets))
    return da.Array(extended(graph, name, layer, set(names)), name, (), meta=np.empty((), object))


def _nothing(parts: list[Any]) -> None:
    del parts


def _all_found(
    asked: Sequence[_Asked], brackets: Sequence[da.Array], tallies: Sequence[da.Array], label: str
) -> list[da.Array]:
    """What the second loads say: the answers to questions without a third load."""
    is_last = _is_proven(asked)
    finishes = []
    for each, bracket, tally in zip(asked, brackets, tallies, strict=True):
        arguments = {
            "brackets": TaskRef((bracket.name,)),
            "settled": None if each.settled is None else TaskRef((each.settled.name,)),
            "question": each.question,
            "meta": each.x._meta,
        }
        name = f"{label}-{'' if is_last else 'look-'}{tokenize(tally.name, each.question)}"
        finishes.append(Finish(_look_and_finish if is_last else _look_at_seen, name, arguments))
    merge = merge_or_none if is_last else _merged_seen
    return reduced_together(tallies, f"{label}-candidates-merge", merge, finishes)


def _is_proven(asked: Sequence[_Asked]) -> bool:
    """Whether the questions, all of one kind, have no third load: what the second alone says needs
    no marks, for its counts prove it."""
    return all(each.question.third is None for each in asked)


def _answer_after_third(asked: _Asked, found: da.Array, label: str) -> da.Array:
    third = _third_load(asked, found, f"{label}-{asked.question.third}")
    return reduced(
        third,
        f"{label}-{asked.question.third}-merge",
        _merged_seen,
        _finish_more,
        f"{label}-{tokenize(third.name)}",
        found=TaskRef((found.name,)),
        sums=None if asked.sums is None else TaskRef((asked.sums.name,)),
        question=asked.question,
        numblocks=asked.x.numblocks,
    )


def _look_at_seen(parts: list[Seen], **about: Any) -> tuple[Any, Brackets | None, Marks]:
    """The same, and the marks of the chunks that the load has seen."""
    found, more = _look([part.value for part in parts], **about)
    return found, more, joined(part.marks for part in parts)


def _look(
    parts: list[Tally | None],
    brackets: Brackets | None,
    settled: Any,
    question: Follower,
    meta: Any,
) -> tuple[Any, Brackets | None]:
    tally = _merged_or_none(parts, meta)
    if brackets is None or tally is None:
        return settled, None
    found = question.look(brackets, tally)
    return found, question.more(brackets, found)


def _look_and_finish(
    parts: list[Tally | None],
    brackets: Brackets | None,
    settled: Any,
    question: Follower,
    meta: Any,
) -> Any:
    found, more = _look(parts, brackets, settled, question, meta)
    return question.finish(found, more, None, None)


def _finish_more(
    parts: list[Seen],
    found: tuple[Any, Brackets | None, Marks],
    sums: Seen | None,
    question: Follower,
    numblocks: tuple[int, ...],
) -> Any:
    last = _merged_seen(parts)
    looked, more, marks = found
    tables = [NO_MARKS if sums is None else sums.marks, marks, last.marks]
    known, *others = [table for table in tables if len(table)] or [NO_MARKS]
    for other in others:
        check_same(known, other, InGrid(numblocks))
    return question.finish(looked, more, last.value, None if sums is None else sums.value)


def _third_load(asked: _Asked, found: da.Array, label: str) -> da.Array:
    """The tally of every chunk at further brackets if there are any: else nothing is read. Its
    graph has that of the sums too."""
    x = asked.x
    name = f"{label}-{tokenize(x.name, found.name)}"
    third = each_if_needed(_tally_if_needed, name, Reads(x), [asked.first], [found], x.dtype)
    if asked.sums is None:
        return third
    graph = HighLevelGraph.merge(third.dask, asked.sums.dask)
    return da.Array(graph, name, third.chunks, meta=third._meta)


def _tally_if_needed(
    read: Callable[[], Any],
    block: tuple[int, ...],
    first: FirstLoad | None,
    state: tuple[Any, Brackets | None, Marks],
    dtype: np.dtype[Any],
) -> Seen:
    brackets = state[1]
    if brackets is None or first is None:
        return Seen(None, NO_MARKS)
    return _seen_tally(read(), first, brackets, block, dtype=dtype)


def ask_now(values: Any, dtype: np.dtype[Any], question: Question) -> np.ndarray[Any, Any]:
    """The answer to a question about an array in memory, by the same steps without a graph."""
    guess = _guess_now(values, dtype, question)
    settled: np.ndarray[Any, Any] | None = None
    if guess is not None:
        settled = _settled(*guess, question)
    if settled is not None:
        return settled
    cuts = kernels.cuts(values, dtype, question.share)
    brackets = question.bracket(cuts)
    return question.answer(brackets, checked_tally(values, cuts, brackets, (), dtype))


def ask_more_now(values: Any, dtype: np.dtype[Any], question: Follower) -> Any:
    """The same about an array in memory, without a graph; of a large NumPy array by threads."""
    size = math.prod(values.shape)
    n_threads = threads_for(values, size, "elements")
    if n_threads > 1:
        return _ask_threads(values, question, n_threads)
    if question.share == 1 and size >= PILOT_WORTH:
        guess = question.guess(*kernels.sorted_sample(values, dtype, PILOT_SIZE))
        tally = kernels.tally_in_place(values, dtype, guess, pilot_room(GUESSED, size))
        found = _settled(guess, tally, question)
        if found is not None:
            sums = _sums_now(values, guess.ends, dtype, question)
            return question.finish(found, None, None, sums)
    cuts = kernels.cuts(values, dtype, question.share)
    sums = _sums_now(values, cuts.pivots, dtype, question)
    brackets = question.bracket(cuts)
    found = question.look(brackets, checked_tally(values, cuts, brackets, (), dtype))
    more = question.more(brackets, found)
    tally = None if more is None else checked_tally(values, cuts, more, (), dtype)
    return question.finish(found, more, tally, sums)


def _sums_now(
    values: Any, near: NDArray[Any], dtype: np.dtype[Any], question: Follower
) -> Moments | None:
    return kernels.moments(values, near, dtype) if question.wants_sums else None


def _ask_threads(values: NDArray[Any], question: Follower, n_threads: int) -> Any:
    """The same in pieces that threads take."""
    (answer,) = ask_more([in_pieces(values, n_threads)], [question], "now")
    return by_threads(answer, n_threads)


def in_pieces(values: NDArray[Any], n_threads: int) -> da.Array:
    """A NumPy array in views that so many threads may share."""
    flat = values.ravel(order="K")
    pieces = np.array_split(flat, max(min(4 * n_threads, flat.size // PILOT_WORTH), 1))
    # Not by da.from_array, which makes a copy. A name for this call alone: nothing that keeps
    # results by their keys may take one array's for another's.
    name = f"pieces-{uuid.uuid4().hex}"
    held = {(name, i): piece for i, piece in enumerate(pieces)}
    return da.Array(held, name, (tuple(map(len, pieces)),), meta=flat[:0])


def by_threads(answer: da.Array, n_threads: int) -> Any:
    """The object that a task gives."""
    return threads.computed(answer.dask, [(answer.name,)], n_threads)[0]


# --- Data in memory: a guess from a sample ------------------------------------------------------


def _guess_now(
    values: Any, dtype: np.dtype[Any], question: Question
) -> tuple[Brackets, Tally | None] | None:
    """Brackets and the tally there, for an array that is small, or worth a pilot."""
    size = math.prod(values.shape)
    if kernels.is_best_whole(values):
        return kernels.whole(values, dtype, question.ranks_of_sample(size))
    if question.share == 1 and size >= PILOT_WORTH:
        sampled = min(PILOT_SIZE, max(size >> PILOT_SHIFT, LEAST_PILOT))
        return kernels.pilot(values, dtype, sampled, question.ranks_of_sample(size))
    return None


def is_worth_a_pilot(size: float, n_chunks: int, question: Question | Follower) -> bool:
    """Whether candidates are few, and chunks in memory are large enough that a read saved counts,
    and not too large."""
    return question.share == 1 and PILOT_WORTH * n_chunks <= size <= PILOT_MOST


def _pilot(x: da.Array, question: Guessing, label: str) -> tuple[da.Array, da.Array]:
    """One task for the guess, and one for what was found there, or None if it missed."""
    rate = PILOT_SIZE / x.size
    name = f"quantile-sample-{tokenize(x.name, x.dtype, rate)}"
    sample = each_chunk(kernels.sample, name, [x], dtype=x.dtype, rate=rate)
    guess = reduced(
        sample,
        "quantile-sample-merge",
        _concatenate,
        _guess_brackets,
        f"{label}-guess-{tokenize(name, question)}",
        question=question,
        rate=rate,
    )
    name = f"{label}-guess-candidates-{tokenize(guess.name)}"
    tally = each_chunk(_tally_guess, name, [x], [guess], dtype=x.dtype)
    settled = reduced(
        tally,
        f"{label}-guess-merge",
        merge_or_none,
        _settle,
        f"{label}-settled-{tokenize(name)}",
        guess=TaskRef((guess.name,)),
        question=question,
        meta=x._meta,
    )
    return guess, settled


def _guess_brackets(parts: list[NDArray[Any]], question: Guessing, rate: float) -> Brackets:
    return question.guess(np.sort(_concatenate(parts)), rate)


def _tally_guess(chunk: Any, guess: Brackets, *, dtype: np.dtype[Any]) -> Tally | None:
    # Sorted data has all candidates in a chunk or two, so a chunk may be all candidates.
    return kernels.tally(chunk, dtype, guess, most=math.prod(chunk.shape))


def merge_or_none(parts: list[Tally | None]) -> Tally | None:
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    # Of one, the candidates may be on a device, where NumPy cannot join them.
    return found[0] if len(found) == 1 else Tally.merge(found)


def _settle(parts: list[Tally | None], guess: Brackets, question: Guessing, meta: Any) -> Any:
    return _settled(guess, _merged_or_none(parts, meta), question)


def _settled(guess: Brackets, tally: Tally | None, question: Guessing) -> Any:
    if tally is None:
        return None
    try:
        return question.settle(guess, tally)
    except ChunksChangedError:  # the brackets do not hold: a miss
        return None


def _merged_or_none(parts: list[Tally | None], meta: Any) -> Tally | None:
    """All together, where they are selected fastest."""
    found = [part for part in parts if part is not None]
    return kernels.merged(found, meta) if len(found) == len(parts) else None


def _concatenate(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts)


# --- Load 1 -------------------------------------------------------------------------------------


CUTS_MERGE = "quantile-cuts-merge"


@dataclass(frozen=True)
class FirstLoad:
    """What the first load reports of a chunk, or of several together.

    Parameters
    ----------
    cuts : Cuts
        See there.
    sums : Seen or None
        The `Moments` of all elements, where the question wants them, with the marks of the chunks.
    """

    cuts: Cuts
    sums: Seen | None = None


def _first_load(
    x: da.Array,
    share: int,
    pilot: da.Array | None,
    among: str | None = None,
    *,
    with_sums: bool = False,
) -> da.Array:
    """What the first load reports: an array of one `FirstLoad` a chunk, in the chunks' own grid.

    None for each chunk if the pilot, where there is one, has the answer. Questions about one array
    share these tasks, unless one wants sums and the other does not.
    """
    # A seed of its own for each array: were the copies of x and of x - median(x) the same, x would
    # stay in memory until its median is known. And one for tasks with sums: dask fuses a copy into
    # the one task that reads it, and could not if two did, so that the same key would stand for
    # another task in another graph.
    seed = f"load 1 of {among or x.name}{' with sums' if with_sums else ''}"
    source = private_copy(x, seed)
    arguments: dict[str, Any] = {"dtype": x.dtype, "share": share, "with_sums": with_sums}
    if pilot is None:
        name = f"quantile-cuts-{tokenize(source.name, arguments)}"
        return each_chunk(_measure, name, [source], **arguments)
    name = f"quantile-cuts-{tokenize(source.name, arguments, pilot.name)}"
    return each_chunk(_measure_unless, name, [source], [pilot], **arguments)


def _measure(chunk: Any, *, dtype: np.dtype[Any], share: int, with_sums: bool) -> FirstLoad:
    cuts = kernels.cuts(chunk, dtype, share)
    if not with_sums:
        return FirstLoad(cuts)
    return FirstLoad(cuts, Seen(kernels.moments(chunk, cuts.pivots, dtype), marks_of([chunk])))


def _measure_unless(chunk: Any, settled: Any, **arguments: Any) -> FirstLoad | None:
    return _measure(chunk, **arguments) if settled is None else None


def _bracket(first: da.Array, question: Bracketing, label: str) -> da.Array:
    """One task: the brackets of all ranks that the question needs."""
    name = f"{label}-bracket-{tokenize(first.name, question)}"
    return reduced(first, CUTS_MERGE, _merge_first, _find_brackets, name, question=question)


def merge_cuts(parts: list[Cuts | None]) -> Cuts | None:
    found = [part for part in parts if part is not None]
    return Cuts.merge(found) if found else None


def _merge_first(parts: list[FirstLoad | None]) -> FirstLoad | None:
    found = [part for part in parts if part is not None]
    if not found:
        return None
    sums = [part.sums for part in found if part.sums is not None]
    return FirstLoad(
        Cuts.merge([part.cuts for part in found]), _merged_sums(sums) if sums else None
    )


def _find_brackets(parts: list[FirstLoad | None], question: Bracketing) -> Brackets | None:
    first = _merge_first(parts)
    return None if first is None else question.bracket(first.cuts)  # a pilot has the answer


def _take_sums(parts: list[FirstLoad | None]) -> Seen | None:
    first = _merge_first(parts)
    return None if first is None else first.sums


# --- Load 2 -------------------------------------------------------------------------------------


def _tally(
    x: da.Array,
    first: da.Array,
    bracket: da.Array,
    label: str,
    turn: da.Array | None = None,
    among: Sequence[da.Array] = (),
    measure: Callable[..., Any] | None = None,
) -> da.Array:
    """The tally of every chunk at the brackets, checked against the chunk's own cuts. Its load
    waits for the brackets, or for those of all arrays that it is `among`."""
    measure = measure or _tally_chunk
    turn = bracket if turn is None else turn
    seed = f"load 2 after {turn.name}"
    source = private_copy(x, seed, after=(turn.name,), after_layer=turn.name, among=among)
    if turn is not bracket:  # whose layer the copy's graph is to have
        graph = HighLevelGraph.merge(source.dask, turn.dask)
        source = da.Array(graph, source.name, source.chunks, meta=source._meta)
    name = f"{label}-candidates-{tokenize(source.name, bracket.name)}"
    return each_chunk(measure, name, [source, first], [bracket], block_ids=True, dtype=x.dtype)


def _tally_chunk(
    chunk: Any,
    first: FirstLoad | None,
    brackets: Brackets | None,
    block: tuple[int, ...],
    *,
    dtype: np.dtype[Any],
) -> Tally | None:
    if first is None or brackets is None:
        return None  # a pilot has the answer
    return checked_tally(chunk, first.cuts, brackets, block, dtype)


def _seen_tally(
    chunk: Any,
    first: FirstLoad | None,
    brackets: Brackets | None,
    block: tuple[int, ...],
    *,
    dtype: np.dtype[Any],
) -> Seen:
    tally = _tally_chunk(chunk, first, brackets, block, dtype=dtype)
    return Seen(tally, NO_MARKS if tally is None else marks_of([chunk]))


def _merged_seen(parts: list[Seen]) -> Seen:
    return Seen.merge(merge_or_none, parts)


def checked_tally(
    chunk: Any, cuts: Cuts, brackets: Brackets, block: tuple[int, ...], dtype: np.dtype[Any]
) -> Tally:
    tally = kernels.tally(chunk, dtype, brackets, most_candidates(cuts, brackets))
    return check_unchanged(cuts, tally, brackets, chunk=str(tuple(map(int, block))))


def _answer(
    tally: da.Array,
    bracket: da.Array,
    pilot: da.Array | None,
    question: Question,
    label: str,
    shape: tuple[int, ...],
    meta: Any,
) -> da.Array:
    name = f"{label}-{tokenize(tally.name, question, shape)}"
    arguments = {
        "brackets": TaskRef((bracket.name,)),
        "settled": None if pilot is None else TaskRef((pilot.name,)),
        "question": question,
        "shape": shape,
        "meta": meta,
    }
    key = (name, *(0 for _ in shape))
    merge_name = f"{label}-candidates-merge"
    last = reduced(tally, merge_name, merge_or_none, _finish, name, key, **arguments)
    return da.Array(last.dask, name, tuple((size,) for size in shape), meta=meta)


def _finish(
    parts: list[Tally | None],
    brackets: Brackets | None,
    settled: np.ndarray[Any, Any] | None,
    question: Question,
    shape: tuple[int, ...],
    meta: Any,
) -> Any:
    answer = settled
    found = [part for part in parts if part is not None]
    if brackets is not None and found:
        answer = question.answer(brackets, kernels.merged(found, meta))
    assert answer is not None  # one of the two plans has been carried out
    return in_kind(answer, shape, meta)


def in_kind(answer: NDArray[Any], shape: tuple[int, ...], meta: Any) -> Any:
    """An answer found on the host, of the kind of `meta`."""
    answer = answer.reshape(shape)
    if not isinstance(meta, np.ndarray):
        return np.asarray(answer, like=meta)
    return answer[()]  # a scalar where the shape is (), as from dask's own reductions
