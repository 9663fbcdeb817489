"""Graph of two loads. The first caches what the second would ask for.

::

    source ──copy──> results ──> groups ──cuts──> merge ──> bracket
                                   │                          │
                                   └──────> second loads <────┘
                                                 │
                                               merge ──> answer

A partial result has the cuts of a chunk. Once the chunks before it allow a guess of the bracket, it
also has the elements inside the guess: see `boards`. When the bracket is proven, a task for each
group answers for its chunks. It reads a chunk again only if its guess does not cover the bracket,
and so contains the tasks to read its chunks: see `reads`. It reads one chunk after the other.

A task that answers for chunks depends on the bracket and, separately, on what was cached of its
chunks. `dask.order` takes time in proportion to the number of such tasks times the number of
chunks. So chunks are put in at most `GROUPS` groups.

The chunks of a group are not neighbours: each group is spread over the grid, so that the first
groups are representative of all of it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.engine import graphs, settings
from dask_gpuselect.engine.boards import Cached, Limits, board
from dask_gpuselect.engine.marks import NO_MARKS, marks_of
from dask_gpuselect.engine.partials import Gathered, Proven, gathered, how_gathered, sums_of
from dask_gpuselect.engine.questions import ArrayQuestion, Question
from dask_gpuselect.engine.reads import ChunkPlace, Reader, Reads, several_if_needed
from dask_gpuselect.engine.source import (
    DaskArray,
    List,
    TaskRef,
)
from dask_gpuselect.kernels.companions import values_of
from dask_gpuselect.maths.cached import covers, tally_by
from dask_gpuselect.maths.chunk_sample import ChunkOrder
from dask_gpuselect.maths.cuts import Arrays, Cuts, Tally, merge_any

logger = logging.getLogger("dask_gpuselect")

CACHED = 1 << 30  # bytes, by default

# If there are fewer chunks, most are loaded before there is a guess.
FEW_CHUNKS = 8
# So many chunks are read again at a time where guesses miss. For 20,000 chunks `dask.order` takes
# 3.6 s with 256 groups, and 3.2 to 3.4 s with 128.
GROUPS = 256
MOST_PARTS = 1 << 12
# A chunk may cache this many times the elements that its guess predicts.
ROOM = 2.0
LEAST_ROOM = 1 << 12  # elements


@dataclass(frozen=True)
class Keeping:
    """A plan to load the chunks of some arrays together, and to cache parts of them.

    Parameters
    ----------
    reads : Reads
        How the arrays are read.
    limits : Limits
        How many bytes may be cached.
    n_groups : int
        Most groups of chunks.
    """

    reads: Reads
    limits: Limits
    n_groups: int

    @classmethod
    def of(cls, reads: Reads, n_groups: Sequence[int]) -> Keeping:
        """Make a `Keeping` with dask's configured limits.

        It has as many groups as narrowing asks for, if there is any.
        """
        few = min(GROUPS, 4 * math.isqrt(reads.arrays[0].npartitions))
        return cls(reads, limits(), max(n_groups, default=few))

    @property
    def size(self) -> int:
        """The number of chunks in a group."""
        return -(-self.n_chunks // self.n_groups)

    @property
    def places(self) -> list[list[ChunkPlace]]:
        """The places of the chunks of each group, in the order in which they are loaded."""
        places = list(np.ndindex(self.reads.arrays[0].numblocks))
        ordered = [places[i] for i in self.numbers]
        return [ordered[i : i + self.size] for i in range(0, self.n_chunks, self.size)]

    @property
    def numbers(self) -> list[int]:
        """The numbers of the chunks in the order in which they are loaded."""
        numbers: list[int] = self.order.chunks(0, self.n_chunks).tolist()
        return numbers

    @property
    def n_chunks(self) -> int:
        return int(self.reads.arrays[0].npartitions)

    @property
    def order(self) -> ChunkOrder:
        """The order in which the chunks are loaded."""
        return ChunkOrder.evenly(self.n_chunks)


def limits() -> Limits:
    """Return the limits of what may be cached, from dask's config."""
    return Limits(settings.n_bytes("cache-limit", CACHED), settings.directory("cache-spill"))


def why_twice(reads: Reads, questions: Sequence[Question]) -> str:
    """Return why every chunk of some arrays needs two loads, or "" if one load may be enough.

    Conditions that are cheap to check come first.
    """
    are_few = "chunks are few", lambda: reads.arrays[0].npartitions < FEW_CHUNKS
    are_not = "too much would be cached", lambda: any(each.keep is None for each in questions)
    return _first_why(reads, dict([are_few, are_not]))


def why_groups_twice(reads: Reads, n_parts: int, n_roots: int, *, keeps: bool) -> str:
    """Return why every chunk of an array in groups needs two loads, or "" if one may be enough.

    Parameters
    ----------
    reads : Reads
    n_parts : int
        Number of parts of the array, each measured by one task.
    n_roots : int
        Number of tasks among which the aggregation of groups is divided.
    keeps : bool
        True if the question allows caching.
    """
    whys: dict[str, Callable[[], bool]] = {
        "parts of several chunks are few": lambda: n_parts < FEW_CHUNKS,
        # A task that answers depends on all parts and, separately, on its own: see the module.
        "parts are many": lambda: n_parts > MOST_PARTS,
        "groups are many": lambda: n_roots > 1 or not keeps,
    }
    return _first_why(reads, whys)


def _first_why(reads: Reads, own: Mapping[str, Callable[[], bool]]) -> str:
    """Return the first reason that holds, among the caller's own and the common ones."""
    x, *others = reads.arrays
    whys: dict[str, Callable[[], bool]] = {
        "cache-limit is 0": lambda: not limits().n_bytes,
        **own,
        "chunks are in memory": lambda: any(each.is_in_memory for each in reads.arrays),
        # Their cached elements go to the host: quartiles of 8 chunks of 512 MiB take 392 ms on an
        # H200, but 36 ms in two loads.
        "chunks are made on a device": lambda: any(
            each.is_on_device and not each.is_staged for each in reads.arrays
        ),
        "the arrays have different chunks": lambda: any(y.numblocks != x.numblocks for y in others),
        # A task that answers for a group may have to read its chunks, which would then come from
        # the disks of several workers.
        "chunks come from a shuffle": lambda: bool(reads.of_shuffles),
        # If a worker is lost, a task that answers may have to read a chunk. So it would depend on
        # the persisted data of all chunks of its group.
        "chunks are made of persisted data": lambda: reads.take_futures,
        # Tasks that several chunks share would run once for each of these chunks.
        "chunks share work": lambda: bool(reads.shared),
        "tasks that load have different annotations": lambda: len(reads.annotations) > 1,
    }
    return next((why for why, holds in whys.items() if holds()), "")


# --- Load 1 -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FirstPartial(Arrays):
    """The partial result of the first load about a chunk, or a part of several chunks.

    Parameters
    ----------
    cuts : Cuts or Named, or list of Cuts
        Cuts of the chunk, with the labels of groups if there are any. Of a group of chunks: those
        of all its chunks together, for each array.
    cached : Cached or None, or list of lists
        What was cached of the chunk, if anything. Of a group: of each chunk, for each array.
    board : object
        The board or boards, which live as long as this object. None in another process.
    """

    cuts: Any
    cached: Any
    board: object

    @classmethod
    def of_group(cls, *columns: list[FirstPartial]) -> FirstPartial:
        """Collect the partial results of a group of chunks: for each array, those of its chunks."""
        cuts = [merge_any([part.cuts for part in column]) for column in columns]
        cached = [[part.cached for part in column] for column in columns]
        return cls(cuts, cached, [part.board for column in columns for part in column])

    def __reduce__(self) -> tuple[Any, ...]:
        return FirstPartial, (self.cuts, self.cached, None)


def first_partials(request: ArrayQuestion, limits: Limits, share: int) -> DaskArray:
    """Measure every chunk of an array in the first load, and cache what a guess asks for."""
    source, question, x = request.source, request.question, request.x
    arguments: dict[str, Any] = {
        "dtype": x.dtype,
        "share": share,
        "grid": x.numblocks,
        "limits": limits,
        "is_marked": request.is_marked,
    }
    single, label = graphs.literals("quantile-question", [question], ()), "quantile-reports"
    arguments |= {"block_ids": True, "board_name": graphs.named(label, [source, single], arguments)}
    return graphs.each_chunk(_first, label, [source], [single], **arguments)


def _first(
    chunk: Any,
    question: Question,
    place: ChunkPlace,
    *,
    dtype: np.dtype[Any],
    share: int,
    grid: ChunkPlace,
    limits: Limits,
    is_marked: bool,
    board_name: str,
) -> FirstPartial:
    assert question.keep is not None
    own = board(board_name, question.keep, math.prod(grid), share)
    n, bound = values_of(chunk).size, kernels.of(chunk, dtype)
    guess = own.guess
    tally: Tally | None = None
    cuts: Cuts | None = None
    if guess.ruler is not None and guess.brackets is not None:
        how = dtype, share, guess.ruler, guess.brackets, room_for(guess.share * n)
        tally, cuts = kernels.tally_and_cuts(bound, *how) or (None, None)
        if tally is not None and cuts is None:
            own.drop_ruler(guess.ruler)
    if cuts is None:
        cuts = kernels.cuts(bound, dtype=dtype, share=share)
    own.put(int(np.ravel_multi_index(place, grid)), cuts)
    if tally is None:
        guess = own.guess_for(cuts)
        if guess.brackets is not None:
            tally = kernels.tally(bound, dtype, guess.brackets, room_for(guess.share * n))
    cached = None
    if tally is not None and guess.brackets is not None:
        cached = Cached.of(guess.brackets, tally, limits)
    if cached is None:
        return FirstPartial(cuts, None, own)
    sums = sums_of(bound, cached.brackets, dtype, question.measures.sums)
    marks = marks_of([chunk], ordered=False) if is_marked else NO_MARKS
    return FirstPartial(cuts, replace(cached, sums=sums, marks=marks), own)


def room_for(expected: float) -> int:
    """Return how many elements of a chunk may be cached, where so many are expected."""
    return int(ROOM * expected) + LEAST_ROOM


def cuts_of(group: FirstPartial, *, i: int) -> Any:
    """Return the cuts of the i-th array in a group of chunks."""
    return group.cuts[i]


# --- Load 2 -------------------------------------------------------------------------------------

MergeGathered = Callable[[list[Gathered]], Any]
"""Type of a function that merges what was gathered of some chunks."""


def second_loads(
    keeping: Keeping,
    groups: DaskArray,
    requests: Sequence[ArrayQuestion],
    brackets: Sequence[DaskArray],
    merge: MergeGathered,
) -> list[DaskArray]:
    """Measure every chunk at the proven brackets, for each array, merged in groups of chunks."""
    reads, label = keeping.reads, requests[0].label
    measures = [partial(gathered, **how_gathered(request)) for request in requests]
    weigh = [request.question.measures.weights for request in requests]
    function = partial(_second, measures=measures, weigh=weigh, merge=merge)
    proven = List(*(TaskRef((each.name,)) for each in brackets))
    calls = (
        (places, TaskRef((groups.name, i)), proven, places)
        for i, places in enumerate(keeping.places)
    )
    given, own = [groups, *brackets], f"{label}-candidates"
    loads = several_if_needed(function, own, reads, given, calls)
    if len(brackets) == 1:
        return [loads]
    return [graphs.item_of(loads, i, f"{label}-candidates-of") for i in range(len(brackets))]


def _second(
    readers: Sequence[Reader],
    group: FirstPartial,
    proven: Sequence[Proven],
    places: Sequence[ChunkPlace],
    *,
    measures: Sequence[Callable[..., Gathered]],
    weigh: Sequence[bool],
    merge: MergeGathered,
) -> Any:
    """Measure the chunks of a group, for each array; read those of which too little is cached."""
    parts: list[list[Gathered]] = [[] for _ in proven]
    for read, place, *of_chunk in zip(readers, places, *group.cached, strict=True):
        for i, (each, cached) in enumerate(zip(proven, of_chunk, strict=True)):
            part = _by_cache(each, cached, place, weighs=weigh[i])
            if part is None:
                part = replace(measures[i](read(i), each, place), n_again=1)
            parts[i].append(part)
    answers = [*map(merge, parts)]
    return answers if len(answers) > 1 else answers[0]


def _by_cache(
    proven: Proven, cached: Cached | None, place: ChunkPlace, *, weighs: bool
) -> Gathered | None:
    """Measure a chunk at proven brackets by what was cached of it; None if that is too little."""
    if cached is None or not covers(cached.brackets, proven.brackets, weighs=weighs):
        return None
    tally = tally_by(cached.brackets, cached.whole(), proven.brackets)
    return Gathered(proven.checked(tally, place), cached.sums, cached.marks)
