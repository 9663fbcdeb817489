"""The graph of two loads of which the first keeps what the second would ask.

::

    source ──copy──> reports ──> groups ──cuts──> merge ──> bracket
                                   │ │                        │
                                   │ └─guesses─> merge ─> decided
                                   │                          │
                                   └──────> answered <── second loads
                                               │
                                             merge ──> answer

A report has the cuts of a chunk and, as soon as those before it let guess the bracket, the elements
that are inside the guess: see `boards`. When the bracket is proven, it is decided which guesses
cover it. The second load of a chunk reads it only if its guess does not, by a task that holds what
it takes to read: see `reads`.

A task that answers waits for the bracket and, apart from that, for what was kept of its chunks:
`dask.order` takes time in proportion to the number of such tasks times that of chunks. So chunks
are in groups, of which there are at most `GROUPS`.

The chunks of a group are not neighbours: groups are spread over the grid, so that the first ones
tell something of all of it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.engine import graphs, settings
from dask_gpuselect.engine.boards import Kept, Limits, board, held_tally
from dask_gpuselect.engine.marks import NO_MARKS, marks_of
from dask_gpuselect.engine.questions import Question
from dask_gpuselect.engine.reads import Place, Reader, Reads, Unread, each_if_needed
from dask_gpuselect.engine.reports import (
    Gathered,
    Proven,
    gathered,
    merge_cuts,
    sums_of,
    who_sums,
)
from dask_gpuselect.engine.source import (
    DaskArray,
    Key,
    List,
    Task,
    TaskRef,
    extended,
    merged,
    private_copy,
)
from dask_gpuselect.kernels.companions import values_of
from dask_gpuselect.maths.chunk_order import ChunkOrder
from dask_gpuselect.maths.cuts import Arrays, Brackets, Cuts, Tally
from dask_gpuselect.maths.kept import covers, tally_by
from dask_gpuselect.maths.seen import Guess
from dask_gpuselect.quiet import quietly

logger = logging.getLogger("dask_gpuselect")

# With fewer chunks most are loaded before there is a guess.
FEW_CHUNKS = 8
GROUPS = 128
MOST_PARTS = 1 << 12
# A guess may hold so many times what it lets expect.
ROOM = 2.0
LEAST_ROOM = 1 << 12  # elements


@dataclass(frozen=True)
class Keeping:
    """How the chunks of some arrays are loaded together, and kept.

    Parameters
    ----------
    reads : Reads
        Of the arrays.
    limits : Limits
    annotations : mapping
        Of the tasks that read.
    n_groups : int
        Of chunks, at most.
    """

    reads: Reads
    limits: Limits
    annotations: Mapping[str, Any]
    n_groups: int

    @classmethod
    def of(cls, reads: Reads, n_groups: Sequence[int]) -> Keeping:
        """Keep by the limits of dask's config, in the largest of these numbers of groups."""
        return cls(reads, limits(), next(iter(reads.annotations), {}), max(n_groups))

    @property
    def size(self) -> int:
        """Chunks of a group."""
        return group_size(self.n_chunks, self.n_groups)

    @property
    def places(self) -> list[list[Place]]:
        """Of the chunks of each group, in the order in which they are taken."""
        numblocks = self.reads.arrays[0].numblocks
        chunks = self.order.chunks(0, self.n_chunks)
        along = (each.tolist() for each in np.unravel_index(chunks, numblocks))
        places = list(zip(*along, strict=True))
        return [places[i : i + self.size] for i in range(0, self.n_chunks, self.size)]

    @property
    def n_chunks(self) -> int:
        return int(self.reads.arrays[0].npartitions)

    @property
    def order(self) -> ChunkOrder:
        """In which order the chunks are taken."""
        return ChunkOrder.evenly(self.n_chunks)


def group_size(n_chunks: int, n_groups: int = GROUPS) -> int:
    """Chunks of a group, of which there are so many at most. What narrows cuts may want more of
    them, and then has them all."""
    return -(
        -n_chunks // (n_groups if n_groups > GROUPS else min(GROUPS, 2 * math.isqrt(n_chunks)))
    )


def limits() -> Limits:
    """What may be kept, by dask's config."""
    return Limits(settings.n_bytes("keep-limit"), settings.directory("keep-spill"))


def why_twice(reads: Reads, questions: Sequence[Question]) -> str:
    """Why each chunk of some arrays takes two loads whatever it holds; nothing if it may take one.

    What is cheap to know is looked at first.
    """
    are_few = "chunks are few", lambda: reads.arrays[0].npartitions < FEW_CHUNKS
    are_not = "too much would be kept", lambda: not all(each.keeps for each in questions)
    return _first_why(reads, dict([are_few, are_not]))


def why_groups_twice(reads: Reads, n_parts: int, n_roots: int, *, keeps: bool) -> str:
    """The same of an array whose elements are in groups, by how many parts of it a task each takes,
    and in how many places groups are looked at."""
    whys: dict[str, Callable[[], bool]] = {
        "parts of several chunks are few": lambda: n_parts < FEW_CHUNKS,
        # A task that answers waits for all others and, apart from that, for its own.
        "parts are many": lambda: n_parts > MOST_PARTS,
        "groups are many": lambda: n_roots > 1 or not keeps,
    }
    return _first_why(reads, whys)


def _first_why(reads: Reads, own: Mapping[str, Callable[[], bool]]) -> str:
    """The first reason that holds, of some of its own and of those that are anybody's."""
    x, *others = reads.arrays
    whys: dict[str, Callable[[], bool]] = {
        "keep-limit is 0": lambda: not limits().n_bytes,
        **own,
        "chunks are in memory": lambda: any(each.is_in_memory for each in reads.arrays),
        # What is kept of them goes to the host: quartiles of 8 chunks of 512 MiB take 392 ms on an
        # H200, and 36 in two loads.
        "chunks are made on a device": lambda: any(
            each.is_on_device and not each.is_staged for each in reads.arrays
        ),
        "chunks of the arrays differ": lambda: any(y.numblocks != x.numblocks for y in others),
        # A task that answers for a group may have to read its chunks: from several workers' disks.
        "chunks come from a shuffle": lambda: bool(reads.of_shuffles),
        # If a worker is lost, a task that answers may have to read a chunk. It would need what is
        # persisted of all chunks of its group for that.
        "chunks are made of persisted data": lambda: reads.take_futures,
        # What several chunks are made of would be made for each of them.
        "chunks share work": lambda: not reads.are_apart,
        "tasks that load have different annotations": lambda: len(reads.annotations) > 1,
    }
    return next((why for why, holds in whys.items() if holds()), "")


# --- Load 1 -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FirstReport(Arrays):
    """What the first load says of a chunk.

    Parameters
    ----------
    cuts : Cuts
    kept : Kept or None
    board : object
        Held as long as this is, and of no meaning in another process.
    """

    cuts: Cuts
    kept: Kept | None
    board: object

    def __reduce__(self) -> tuple[Any, ...]:
        return FirstReport, (self.cuts, self.kept, None)


def reports_of(
    keeping: Keeping,
    x: DaskArray,
    question: Question,
    share: int,
    among: str | None,
    *,
    is_marked: bool,
) -> DaskArray:
    """The reports of every chunk of an array."""
    source = private_copy(x, f"load 1 of {among or x.name}")
    arguments: dict[str, Any] = {
        "dtype": x.dtype,
        "share": share,
        "grid": x.numblocks,
        "limits": keeping.limits,
        "is_marked": is_marked,
    }
    name = f"quantile-reports-{tokenize(source.name, question, list(arguments.items()))}"
    asked = graphs.held(f"quantile-question-{tokenize(question)}", [question], ())
    arguments |= {"block_ids": True, "board_name": name}
    return graphs.each_chunk(_report, name, [source], [asked], **arguments)


def _report(
    chunk: Any,
    question: Question,
    place: Place,
    *,
    dtype: np.dtype[Any],
    share: int,
    grid: Place,
    limits: Limits,
    is_marked: bool,
    board_name: str,
) -> FirstReport:
    own = board(board_name, question.keep, math.prod(grid), share)
    n = values_of(chunk).size
    guess = own.guess
    tally: Tally | None = None
    cuts: Cuts | None = None
    if guess.ruler is not None and guess.brackets is not None:
        how = dtype, share, guess.ruler, guess.brackets, _most_of(guess, n)
        tally, cuts = kernels.tally_and_cuts(chunk, *how) or (None, None)
        if tally is not None and cuts is None:
            own.drop_ruler(guess.ruler)
    if cuts is None:
        cuts = kernels.cuts(chunk, dtype=dtype, share=share)
    own.put(int(np.ravel_multi_index(place, grid)), cuts)
    if tally is None:
        guess = own.guess_for(cuts)
        if guess.brackets is not None:
            tally = kernels.tally(chunk, dtype, guess.brackets, _most_of(guess, n))
    if tally is None or guess.brackets is None or (held := held_tally(tally, limits)) is None:
        return FirstReport(cuts, None, own)
    sums = sums_of(chunk, guess.brackets, dtype, who_sums(question))
    marks = marks_of([chunk], ordered=False) if is_marked else NO_MARKS
    return FirstReport(cuts, Kept(guess.brackets, *held, sums, marks), own)


def _most_of(guess: Guess, n: int) -> int:
    """How many elements may be kept of a chunk of `n`."""
    return int(ROOM * guess.share * n) + LEAST_ROOM


# --- Groups of reports --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Group(Arrays):
    """The reports of some chunks: of each array, in the order in which they are taken."""

    cuts: list[Cuts]
    kept: list[list[Kept | None]]
    boards: list[Any]

    @classmethod
    def of(cls, columns: list[list[FirstReport]]) -> Group:
        cuts = [merge_cuts([report.cuts for report in column]) for column in columns]
        kept = [[report.kept for report in column] for column in columns]
        boards = [report.board for column in columns for report in column]
        return cls([each for each in cuts if each is not None], kept, boards)

    def __reduce__(self) -> tuple[Any, ...]:
        return Group, (self.cuts, self.kept, [])


Guesses = list[tuple[Brackets | None, int]]
"""Of some chunks in order: what was kept of so many one after the other."""


def grouped(keeping: Keeping, reports: Sequence[DaskArray]) -> DaskArray:
    """The reports of all arrays, in groups of chunks."""
    name = f"quantile-groups-{tokenize([each.name for each in reports], keeping.size)}"
    tasks = {}
    for i, places in enumerate(keeping.places):
        columns = [List(*(TaskRef((each.name, *place)) for place in places)) for each in reports]
        tasks[name, i] = Task((name, i), quietly(Group.of), List(*columns))
    graph = extended(merged(*reports), name, tasks, {each.name for each in reports})
    return graphs.objects(graph, name, (len(tasks),))


def cuts_of(groups: DaskArray, i: int) -> DaskArray:
    """The cuts of the i-th array, for each group."""
    name = f"quantile-cuts-{tokenize(groups.name, i)}"
    return graphs.each_chunk(_cuts_of, name, [groups], i=i)


def _cuts_of(group: Group, *, i: int) -> Cuts:
    return group.cuts[i]


# --- Load 2 -------------------------------------------------------------------------------------

Measure = Callable[[Any, Proven, Place], Gathered]
"""What a chunk says at proven brackets, told its place."""

MergeGathered = Callable[[list[Gathered]], Any]
"""What becomes of all that is gathered of some chunks."""


def second_loads(
    keeping: Keeping,
    groups: DaskArray,
    questions: Sequence[Question],
    brackets: Sequence[DaskArray],
    label: str,
    *,
    is_marked: bool,
    merge: MergeGathered = Gathered.merge,
) -> list[DaskArray]:
    """What is asked of every chunk at the brackets, for each array: merged in groups."""
    arrays = keeping.reads.arrays
    token = tokenize(groups.name, [each.name for each in brackets])
    guesses = graphs.each_chunk(_guesses_of, f"{label}-guesses-{token}", [groups])
    weigh = [question.weighs for question in questions]
    told: dict[str, Any] = {f"proven_{i}": TaskRef((each.name,)) for i, each in enumerate(brackets)}
    decided = graphs.reduced(
        DaskArray(merged(guesses, *brackets), guesses.name, guesses.chunks, meta=guesses._meta),
        f"{label}-guesses-merge",
        partial(graphs.merge_columns, merge=_joined),
        _decide,
        f"{label}-decided-{token}",
        label=label,
        order=keeping.order,
        weigh=weigh,
        **told,
    )
    measures: list[Measure] = [
        partial(gathered, dtype=x.dtype, summing=who_sums(question), is_marked=is_marked)
        for x, question in zip(arrays, questions, strict=True)
    ]
    seconds = each_if_needed(
        _second,
        f"{label}-candidates-{token}",
        keeping.reads,
        [],
        [decided, *brackets],
        measures,
        keeping.reads.shared,
        annotations=keeping.annotations,
    )
    name = f"{label}-answered-{token}"
    answered = _answered(keeping, groups, seconds, brackets, measures, weigh, name, merge)
    if len(arrays) == 1:
        return [answered]
    names = [f"{label}-answered-of-{tokenize(answered.name, i)}" for i in range(len(arrays))]
    return [graphs.item_of(answered, i, name) for i, name in enumerate(names)]


def _guesses_of(group: Group) -> list[list[Guesses]]:
    """For each array what was guessed for its chunks."""
    found = []
    for column in group.kept:
        runs: Guesses = []
        for kept in column:
            brackets = None if kept is None else kept.brackets
            if runs and runs[-1][0] is brackets:
                runs[-1] = brackets, runs[-1][1] + 1
            else:
                runs.append((brackets, 1))
        found.append([runs])
    return found


def _joined(parts: list[Guesses]) -> Guesses:
    return [run for part in parts for run in part]


def _decide(
    parts: list[list[list[Guesses]]],
    label: str,
    order: ChunkOrder,
    weigh: list[bool],
    **proven: Proven,
) -> list[NDArray[np.bool_]]:
    """For each array which of its chunks need not be read again, in C order."""
    columns = graphs.merge_columns(parts, _joined)
    decided = []
    for (runs,), each, weighs in zip(columns, proven.values(), weigh, strict=True):
        is_covered = [
            brackets is not None and covers(brackets, each.brackets, weighs=weighs)
            for brackets, _ in runs
        ]
        in_turn = np.repeat(is_covered, [n for _, n in runs])
        decided.append(in_turn[order.turns()])
    if logger.isEnabledFor(logging.DEBUG):
        n_twice = int((~np.logical_and.reduce(decided)).sum())
        told = "%s: %d of %d chunks are read twice, the others once"
        logger.debug(told, label, n_twice, order.n)
    return decided


Second = Gathered | Unread
"""What the second load says of a chunk, or how to read it where the first load has kept that."""


def _second(
    read: Reader,
    place: tuple[int, ...],
    decided: list[NDArray[np.bool_]],
    *told: Any,
) -> list[Second]:
    """Of each array what its chunk at a place says, if the first load has not kept that."""
    *proven, measures, shared = told
    found: list[Second] = []
    for i, (each, measure) in enumerate(zip(proven, measures, strict=True)):
        chunk = int(np.ravel_multi_index(place, each.numblocks))
        found.append(read.unread(i, shared) if decided[i][chunk] else measure(read(i), each, place))
    return found


def _answered(
    keeping: Keeping,
    groups: DaskArray,
    seconds: DaskArray,
    brackets: Sequence[DaskArray],
    measures: Sequence[Measure],
    weigh: Sequence[bool],
    name: str,
    merge: MergeGathered,
) -> DaskArray:
    """What all chunks of a group say at the brackets, by what was kept of them or by their second
    loads."""
    proven = List(*(TaskRef((each.name,)) for each in brackets))
    shared = keeping.reads.shared
    told: dict[str, Any] = {"is_alone": len(brackets) == 1, "merge": merge, "shared": shared}
    told |= {"measures": measures, "weigh": weigh, "values": List(*map(TaskRef, shared))}
    tasks = {}
    for i, places in enumerate(keeping.places):
        loads = List(*(TaskRef((seconds.name, *place)) for place in places))
        how = (TaskRef((groups.name, i)), loads, proven, places)
        tasks[name, i] = Task((name, i), quietly(_answer), *how, **told)
    above = {groups.name, seconds.name, *(each.name for each in brackets)}
    above |= {key[0] if isinstance(key, tuple) else key for key in shared}
    graph = extended(merged(groups, seconds), name, tasks, above)
    return graphs.objects(graph, name, (len(tasks),))


def _answer(
    group: Group,
    seconds: list[list[Second]],
    proven: list[Proven],
    places: list[Place],
    *,
    is_alone: bool,
    shared: Sequence[Key],
    values: list[Any],
    measures: Sequence[Measure],
    weigh: Sequence[bool],
    merge: MergeGathered,
) -> Any:
    known = dict(zip(shared, values, strict=True))
    found = []
    for i, (each, kept) in enumerate(zip(proven, group.kept, strict=True)):
        by_kept = partial(_by_kept, each, known=known, measure=measures[i], weighs=weigh[i])
        parts = [
            by_kept(own, second, place) if isinstance(second := loads[i], Unread) else second
            for own, loads, place in zip(kept, seconds, places, strict=True)
        ]
        found.append(merge(parts))
    return found[0] if is_alone else found


def _by_kept(
    proven: Proven,
    kept: Kept | None,
    unread: Unread,
    place: Place,
    *,
    known: Mapping[Key, Any],
    measure: Measure,
    weighs: bool,
) -> Gathered:
    """What a chunk says by what was kept of it.

    It was decided that this is enough. But if a worker is lost, dask makes its reports anew, and
    these may have kept something else, or nothing. Then the chunk is read here.
    """
    if kept is None or not covers(kept.brackets, proven.brackets, weighs=weighs):
        return measure(unread.read(known), proven, place)
    tally = tally_by(kept.brackets, kept.whole(), proven.brackets)
    return Gathered(proven.checked(tally, place), kept.sums, kept.marks)
