"""Choose the plan for an answer, by the sizes of chunks and by the tasks that make them.

For all elements there are four plans; `lane_plans` has those along some axes:

- *counts*: elements of one or two bytes. Each chunk counts all its values, or adds up their
  weights: one load;
- *guess*: all chunks are in memory. A sample guesses the brackets, and one read proves them;
- *resident*: all chunks are CuPy arrays in the memory of one device, or tasks make them there and
  they fit `cache-limit`. One task reads them in place, as if they were one array. Elements with
  weights are copied together;
- *bracket*: two loads, with a bracket between them. If the first load has cached enough of a chunk,
  the chunk is not loaded again: see `keeping`. If there are so many chunks that their cuts exceed
  `root-limit` in one task, the cuts are narrowed on the way there.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from html import escape
from typing import Any, TypeVar

from dask.utils import format_bytes

from dask_gpuselect.engine import graphs, pilot, settings
from dask_gpuselect.engine.counting import gathered_bytes, takes_counts
from dask_gpuselect.engine.keeping import Keeping, why_twice
from dask_gpuselect.engine.questions import Question
from dask_gpuselect.engine.reads import Reads
from dask_gpuselect.engine.resident import device_limit, fit_one_device
from dask_gpuselect.engine.source import DaskArray, Source, aligned, largest_chunk
from dask_gpuselect.maths import weights
from dask_gpuselect.maths.exact_sums import sums_bytes
from dask_gpuselect.maths.expected import MOST_CHECKED
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.sizes import (
    CANDIDATE_COPIES,
    PIVOT_BYTES,
    PIVOT_WORK,
    TWO_COUNTS,
    Narrowing,
    fit_one_place,
    pilot_share,
    pivot_count,
    plan_narrowing,
    share_of_one_place,
)

AnyPlan = TypeVar("AnyPlan", bound="Plan")

BOUNDS_OF_COUNTS, BOUNDS_OF_WEIGHTS = (24, 17), (48, 33)
"""Bytes of `maths.expected.Expected` for a chunk, and for each end of a bracket in a chunk."""

OF_CHUNK = 24
"""Bytes of the counts of `maths.cuts.Cuts` for a chunk."""

OF_SUMS = 24
"""Bytes of two exact sums of weights, of three digits; weights far apart need more digits."""

GUESSED_ENDS = 34
"""Most ends of a guess for each range: quantiles have 18, and the five ranges of `mad` 170."""


@dataclass(frozen=True, repr=False)
class Plan:
    """The plan by which an answer is computed: its name, reads and memory.

    `explain` makes it. ``print(plan)`` shows it in one line, and ``plan.table()`` as a table.

    Parameters
    ----------
    name : str
        Name of the plan, which is a part of the names of the tasks: see `explain`.
    loads : int
        The same as `reads`.
    task_bytes : int
        Most bytes of chunks in one task, or of a block of the answer along an axis if that is
        larger, without scratch; -1 if chunk sizes are unknown.
    gathered_bytes : int
        Bytes of the partial results that one task aggregates: an estimate for all elements, and a
        maximum along an axis. -1 if unknown.
    cached_bytes : int
        Bytes that the first reads in a process may cache, so that a chunk need not be read again.
    root_bytes : int
        Estimated peak memory of the task that aggregates; 0 if unknown.
    waiting_bytes : int
        Bytes of partial results that wait on all workers together, if they are too many for one
        task.
    why : str
        Reason for the number of reads: why every chunk is read a second time if nothing is cached,
        or why one read is enough if values are counted.
    n_chunks : int
        Number of chunks of the array; -1 if unknown.
    is_in_memory : bool
        True if `explain` has found all chunks in memory.
    shuffle : str
        How often a dask shuffle that makes the chunks runs, and where it stores data; "" if there
        is none.
    disk_bytes : int
        Most bytes on disk at any time; 0 if nothing is written.
    advice : str
        What to set or to rechunk so that each chunk is read once; "" if there is no such advice.
    ends_early : bool
        True if the answer may be found after any read, as by a strategy.
    may_end : bool
        True if the answer may need no last read.
    """

    name: str
    loads: int
    task_bytes: int
    gathered_bytes: int
    cached_bytes: int = field(default=0, kw_only=True)
    root_bytes: int = field(default=0, kw_only=True)
    waiting_bytes: int = field(default=0, kw_only=True)
    why: str = field(default="", kw_only=True, compare=False)
    n_chunks: int = field(default=-1, kw_only=True, compare=False)
    is_in_memory: bool = field(default=False, kw_only=True, compare=False)
    shuffle: str = field(default="", kw_only=True, compare=False)
    disk_bytes: int = field(default=0, kw_only=True)
    advice: str = field(default="", kw_only=True, compare=False)
    ends_early: bool = field(default=False, kw_only=True, compare=False)
    may_end: bool = field(default=False, kw_only=True, compare=False)

    @property
    def reads(self) -> int:
        """Number of reads of every chunk, at most. Chunks in memory are read in place."""
        return self.loads

    def __str__(self) -> str:
        gathered = "no partial results"
        if self.gathered_bytes:
            gathered = f"{_shown_bytes(self.gathered_bytes)} of partial results in one task"
        parts = [
            f"{self.name}: reads each chunk {self._loads_in_words()}",
            f"{_shown_bytes(self.task_bytes)} of chunks per task",
            gathered,
        ]
        if self.waiting_bytes:
            parts.append(f"{format_bytes(self.waiting_bytes)} waiting on all workers")
        if self.cached_bytes:
            parts.append(f"caches at most {format_bytes(self.cached_bytes)} per process")
        if self.shuffle:
            parts.append(f"the shuffle runs {self.shuffle}")
        return "; ".join(parts)

    def __repr__(self) -> str:
        return f"<plan {self}>"

    @property
    def _least_loads(self) -> int:
        if self.ends_early:
            return 1
        return self.loads - bool(self.cached_bytes) - self.may_end

    def _loads_in_words(self) -> str:
        if self.ends_early:
            return f"at most {self.loads} times"
        loads, least = _times_in_words(self.loads), self._least_loads
        if least < self.loads:
            word = "or" if least == self.loads - 1 else "to"
            loads = f"{_times_in_words(least)} {word} {loads}"
        is_explained = self.why and not self.cached_bytes
        return f"{loads}, because {self.why}" if is_explained else loads

    @property
    def rows(self) -> dict[str, str]:
        """The plan as the rows of a table: names and descriptions."""
        rows = {
            "plan": self.name,
            "reads of each chunk": self._loads_in_words(),
            "chunks per task": _shown_bytes(self.task_bytes),
            "partial results in one task": _shown_bytes(self.gathered_bytes),
        }
        if self.shuffle:
            rows["shuffle runs"] = self.shuffle
        if self.cached_bytes:
            rows["cached per process"] = f"{format_bytes(self.cached_bytes)} at most"
        if self.n_chunks >= 0:
            most = self.n_chunks * self.loads
            is_most = self._least_loads < self.loads
            rows["reads of all chunks"] = f"{most:,}{' at most' if is_most else ''}"
        if not self.is_in_memory:  # where loads take no time
            least = self._least_loads
            often = f"{least} to {self.loads}" if least < self.loads else f"{least}"
            rows["time"] = f"about {often} × x.sum(), if reading dominates"
        if self.may_end:
            rows["last read"] = "only if the reads before it leave too much open"
        return rows

    def table(self) -> str:
        """Return the rows as text, one in each line."""
        width = max(map(len, self.rows))
        return "\n".join(f"{name:{width}}  {text}" for name, text in self.rows.items())

    def _repr_html_(self) -> str:
        return html_table(self.rows)


def html_table(rows: Mapping[str, str]) -> str:
    """Return a table for notebooks that has a row for each name with its text."""
    each = (f"<tr><th>{escape(name)}</th><td>{escape(rows[name])}</td></tr>" for name in rows)
    return f"<table>{''.join(each)}</table>"


def _shown_bytes(n: int) -> str:
    return "an unknown number of bytes" if n < 0 else format_bytes(n)


def _times_in_words(n: int) -> str:
    """Return "once", "twice" or "n times"."""
    return {1: "once", 2: "twice"}.get(n, f"{n} times")


# --- The plan that runs ---------------------------------------------------------------------------

_take: ContextVar[Callable[[Plan], Any] | None] = ContextVar("take", default=None)
"""Function that takes the plan of a call that is explained; None where calls answer."""


class Explained(BaseException):  # noqa: N818 -- no error, and nothing may catch it as one
    """The plan of a call, which ends it before its graph is made."""


def _end(plan: Plan) -> None:
    raise Explained(plan)


def explained(call: Callable[[], Any]) -> Plan | None:
    """Return the plan that a call chooses, and end the call there; None if it chooses none."""
    with _taking(_end):
        try:
            call()
        except Explained as end:
            plan: Plan = end.args[0]
            return plan
    return None


def choose(plan: AnyPlan) -> AnyPlan:
    """Return the plan that is about to run; a call that is explained ends here."""
    take = _take.get()
    if take is not None:
        take(plan)
    return plan


@contextmanager
def adjusted(adjust: Callable[[Plan], Plan]) -> Iterator[None]:
    """Adjust the plan of a call that is explained, if it is chosen inside."""
    take = _take.get()
    with _taking(take and (lambda plan: take(adjust(plan)))):
        yield


@contextmanager
def as_one() -> Iterator[None]:
    """Join the plans that are chosen inside, one after the other, if the call is explained."""
    take, plans = _take.get(), list[Plan]()
    with _taking(take and plans.append):
        yield
    if take is not None and plans:
        at_most = [each.name for each in fields(Plan) if each.name.endswith("_bytes")]
        most = {name: max(getattr(plan, name) for plan in plans) for name in at_most}
        take(replace(plans[0], loads=sum(plan.loads for plan in plans), **most))


@contextmanager
def _taking(take: Callable[[Plan], Any] | None) -> Iterator[None]:
    token = _take.set(take)
    try:
        yield
    finally:
        _take.reset(token)


def known_bytes(n: float) -> int:
    """Convert a number of bytes to an integer: -1 for NaN, which stands for unknown sizes."""
    return -1 if math.isnan(n) else int(n)


@dataclass(frozen=True, repr=False)
class ElementPlan(Plan):
    """The plan for a question about all elements.

    Parameters
    ----------
    share : int
        Number of wanted ranks for each pivot of the first load.
    narrowing : Narrowing or None
        How cuts are narrowed on their way to one task, if they are too many.
    keeping : Keeping or None
        How the first load caches what the second would ask for; None if each chunk takes two loads.
        It is the same for arrays that are loaded together.
    """

    share: int = field(default=1, kw_only=True, compare=False)
    narrowing: Narrowing | None = field(default=None, kw_only=True, compare=False)
    keeping: Keeping | None = field(default=None, kw_only=True, compare=False)


def plan_each(
    arrays: Sequence[DaskArray], questions: Sequence[Question]
) -> list[tuple[list[int], list[ElementPlan]]]:
    """Plan questions about all elements of several arrays.

    Return the positions of the arrays that are loaded together, with the plans of these.
    """
    pairs = list(zip(map(Source.of, arrays), questions, strict=True))
    alone = [[i] for i, pair in enumerate(pairs) if is_resident(*pair)]
    others = [i for i in range(len(pairs)) if [i] not in alone]
    together = [[others[i] for i in places] for places in aligned([arrays[i] for i in others])]

    def plans(places: list[int]) -> list[ElementPlan]:
        some = [arrays[i] for i in places], [questions[i] for i in places]
        if places in alone or stays_on_device(*some):
            return [_plan_resident(*pairs[i]) for i in places]
        return plan_loads(*some)

    return [(places, plans(places)) for places in (*alone, *together)]


def plan_loads(arrays: Sequence[DaskArray], questions: Sequence[Question]) -> list[ElementPlan]:
    """Plan a task for each chunk of arrays that are loaded together.

    If the values of all arrays can be counted, this takes one load.
    """
    pairs = list(zip(map(Source.of, arrays), questions, strict=True))
    if all(takes_counts(*pair) for pair in pairs):
        return [_plan_one_load(x) for x, _ in pairs]
    narrowings = [narrowing_of(*pair, among=len(pairs)) for pair in pairs]
    reads = Reads(*(x for x, _ in pairs))
    why, keeping = why_twice(reads, questions), None
    if not why:
        keeping = Keeping.of(reads, [each.groups for each in narrowings if each])
    return [
        _plan_guess(*pair)
        if pair[0].is_in_memory and pilot.is_worth(pair[0].size, pair[0].npartitions, pair[1])
        else _plan_two_loads(*pair, narrowing, keeping, why)
        for pair, narrowing in zip(pairs, narrowings, strict=True)
    ]


def plan_rest(x: DaskArray, question: Question) -> ElementPlan:
    """Plan two loads for what a strategy leaves, which cache nothing."""
    x = Source.of(x)
    return _plan_two_loads(x, question, narrowing_of(x, question))


def _plan_resident(x: Source, question: Question) -> ElementPlan:
    n_bytes = _guessed_bytes(x, question)
    if question.measures.weights:
        n_bytes = known_bytes(_copied_bytes(x, question))
    in_task = _chunk_bytes(x) if x.is_in_memory else known_bytes(x.size * x.element_bytes())
    return ElementPlan("resident", 1, in_task, n_bytes, share=share_of_one_task(x, question))


COUNTED = "values are few, and all are counted"


def _plan_one_load(x: Source) -> ElementPlan:
    gathered = gathered_bytes(x, largest_chunk(x))
    return ElementPlan("counts", 1, _chunk_bytes(x), gathered, why=COUNTED)


def _plan_guess(x: Source, question: Question) -> ElementPlan:
    """Plan a pilot. If it is right, the tasks of two loads return at once."""
    sampled = pilot.size_of_sample(x)
    n_ends = min(GUESSED_ENDS * question.n_ranges, sampled)
    counts = (graphs.most_merged(x) + 1) * n_ends * TWO_COUNTS  # and the brackets
    n_bytes = int(max(sampled * x.dtype.itemsize, _guessed_bytes(x, question) + counts))
    return ElementPlan("guess", 1, _chunk_bytes(x), n_bytes, share=question.costs.share)


def _plan_two_loads(
    x: Source,
    question: Question,
    narrowing: Narrowing | None,
    keeping: Keeping | None = None,
    why: str = "",
) -> ElementPlan:
    gathered, work, waiting = _at_root(x, question, narrowing)
    return ElementPlan(
        "bracket",
        2 + (question.third is not None),
        _chunk_bytes(x),
        gathered,
        cached_bytes=0 if keeping is None else keeping.limits.n_bytes,
        root_bytes=work,
        waiting_bytes=waiting,
        why=why,
        share=question.costs.share if narrowing is None else narrowing.share,
        narrowing=narrowing,
        keeping=keeping,
        may_end=question.third is not None,
    )


def plan_once(x: DaskArray) -> Plan:
    """Plan one load, of one chunk at a time, that leaves next to nothing to gather."""
    return described(Plan("once", 1, _chunk_bytes(Source.of(x)), 0), x)


def described(plan: AnyPlan, x: DaskArray) -> AnyPlan:
    """Add to a plan how many chunks there are, and whether they are in memory."""
    return replace(plan, n_chunks=x.npartitions, is_in_memory=Source.of(x).is_in_memory)


def _chunk_bytes(x: Source) -> int:
    return known_bytes(largest_chunk(x) * x.element_bytes())


def _guessed_bytes(x: DaskArray, question: Question) -> int:
    """Return the bytes of the candidates of a guess."""
    n_ranges = max(question.n_ranges, question.n_answers)
    share = min(n_ranges * pilot_share(pilot.size_of_sample(x)), 1)
    return known_bytes(share * x.nbytes)


def is_resident(x: DaskArray, question: Question) -> bool:
    """Return whether one task can answer, because one device holds all chunks in its memory.

    With a task for each chunk, each would wait for the host: quartiles of 2^30 float32 in 8 chunks
    took 35 ms on an H100, of which kernels ran for 6 ms.
    """
    x = Source.of(x)
    return x.is_on_one_device and share_of_one_task(x, question) > 0


def share_of_one_task(x: DaskArray, question: Question) -> int:
    """Return the share of the pivots of a task that answers about all chunks on one device.

    0 if no task can: with more pivots than `root-limit`, or with weights and more bytes to copy
    than both that limit and `device_limit`.
    """
    if question.measures.weights:  # elements and weights are copied together
        fits = _copied_bytes(x, question) <= settings.n_bytes("root-limit")
        fits = fits or x.size * Source.of(x).element_bytes() <= device_limit()
        return question.costs.share if fits else 0
    about, limit, itemsize = _for_root(x, question)
    return share_of_one_place(*about, question.n_ranges, question.costs.share, itemsize, limit)


def stays_on_device(arrays: Sequence[DaskArray], questions: Sequence[Question]) -> bool:
    """Return whether chunks that tasks make on a device stay there until one task has answered."""
    if not fit_one_device(arrays):
        return False
    # Counting takes one load, too.
    pairs = zip(arrays, questions, strict=True)
    return all(share_of_one_task(*each) and not takes_counts(*each) for each in pairs)


def _copied_bytes(x: DaskArray, question: Question) -> float:
    return _root_bytes(x, question)[-1] * float(x.size)


def _root_bytes(x: DaskArray, question: Question) -> tuple[int, int, int]:
    """Return the bytes of a pivot as it comes, of the work for it, and of a candidate.

    See `sizes.PIVOT_WORK`.
    """
    itemsize = selection_dtype(x.dtype).itemsize
    if question.measures.weights:
        return weights.PIVOT_BYTES, weights.PIVOT_WORK, itemsize + weights.WEIGHT_BYTES
    return PIVOT_BYTES, PIVOT_WORK, itemsize


def _at_root(x: DaskArray, question: Question, narrowing: Narrowing | None) -> tuple[int, int, int]:
    """Return the bytes of partial results in one task, of its peak, and of what waits on workers.

    They are -1, 0 and 0 if unknown.
    """
    if math.isnan(x.size):
        return -1, 0, 0
    for_pivot, pivot_work, for_candidate = _root_bytes(x, question)
    if narrowing is not None:
        times = for_pivot / PIVOT_BYTES
        size = graphs.size_of_groups(x.npartitions, narrowing.groups)
        pivots = pivot_count(math.ceil(largest_chunk(x)), narrowing.share)
        of_group = (for_pivot * pivots + OF_CHUNK) * min(size, x.npartitions)
        gathered = max(int(narrowing.gathered * times), of_group)
        work = narrowing.work * pivot_work // PIVOT_WORK
        return gathered + _state_bytes(x, question), work, int(narrowing.waiting * times)
    pivots = 0
    for alike in itertools.product(*(Counter(sizes).items() for sizes in x.chunks)):
        size, n = math.prod(size for size, _ in alike), math.prod(n for _, n in alike)
        pivots += n * pivot_count(size, question.costs.share)
    candidates = min(question.costs.candidates(pivots), x.size)
    second = _state_bytes(x, question, pivots) + for_candidate * candidates
    work = max(pivot_work * pivots, CANDIDATE_COPIES * for_candidate * candidates)
    return max(for_pivot * pivots + OF_CHUNK * x.npartitions, second), work, 0


def _state_bytes(x: DaskArray, question: Question, pivots: float = math.inf) -> int:
    """Return the bytes of the brackets that a later load is given, and of its counts and sums.

    They are those in one task, with the bounds of the counts of every chunk. There are so many
    pivots in all.
    """
    weighs = question.measures.weights
    of_slot, of_end = BOUNDS_OF_WEIGHTS if weighs else BOUNDS_OF_COUNTS
    # Weighted elements have pivots at even steps of the weight, too.
    n_ends = int(min(2 * question.n_ranges, pivots * (1 + weighs)))
    n_checked = min(n_ends, max(MOST_CHECKED // max(x.npartitions, 1), 1))
    # The brackets have bounds for every chunk, also for empty ones.
    bounds = x.npartitions * (of_slot + n_checked * of_end)
    of_tally = TWO_COUNTS + OF_SUMS * weighs
    tallies = (graphs.most_merged(x) + 1) * n_ends * of_tally  # and the brackets
    is_summed = question.measures.sums is not None
    return int(bounds + tallies + is_summed * graphs.most_merged(x) * bytes_of_sums(x))


def bytes_of_sums(x: DaskArray) -> int:
    """Bound the bytes of the exact sums of a slot: of elements and squares, and of their weights.

    A product has the digits of both factors.
    """
    return sums_bytes(selection_dtype(x.dtype)) + 4 * bytes_of_weight(x)


def bytes_of_weight(x: DaskArray) -> int:
    """Bound the bytes of an exact sum of weights; 0 without weights."""
    weights = (each.dtype for each in Source.of(x).companions if each.name == "weights")
    return sum(sums_bytes(selection_dtype(dtype)) // 4 for dtype in weights)


def _for_root(
    x: DaskArray, question: Question, among: int = 1
) -> tuple[tuple[int, int], int, float]:
    """Return the number and size of chunks, `root-limit` and the bytes of a candidate.

    Bytes are in units of the work for a pivot: of pivots with more columns so many fewer fit.
    """
    _, work, for_candidate = _root_bytes(x, question)
    limit = settings.n_bytes("root-limit") * PIVOT_WORK // (work * among)
    size = x.size / max(x.npartitions, 1)
    if math.isnan(size):
        size = settings.chunk_bytes() / selection_dtype(x.dtype).itemsize
    return (x.npartitions, math.ceil(size)), limit, for_candidate * PIVOT_WORK / work


def narrowing_of(x: DaskArray, question: Question, *, among: int = 1) -> Narrowing | None:
    """Return how the cuts of all chunks are narrowed before one task takes them; None if they fit.

    The limit is shared by `among` arrays that are loaded together, because one task takes the cuts
    of all.

    Chunks of unknown sizes are assumed to have dask's configured ``array.chunk-size``.

    Raises
    ------
    ValueError
        If `root-limit` is set to what is no size.
    """
    about, limit, itemsize = _for_root(x, question, among)
    n_pivots = about[0] * pivot_count(about[1], question.costs.share)
    candidates = min(question.costs.candidates(n_pivots), math.prod(about))
    fits = fit_one_place(*about, question.costs.share, limit)
    if fits and CANDIDATE_COPIES * itemsize * candidates <= limit:
        return None  # returns early: counting a million ranges takes long
    return plan_narrowing(
        *about,
        question.n_ranges,
        question.costs.share,
        itemsize,
        limit,
        is_known_large=True,
        halves=1 + question.measures.weights,
        can_divide=among == 1 and question.costs.stretch is not None,
    )
