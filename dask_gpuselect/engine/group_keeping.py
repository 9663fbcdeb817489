"""Cache of the first load for groups of all elements, so that the second load need not read.

::

    source ──copy──> cuts of runs ──> brackets
                 │                       │
                 └─> kept of runs ──> tallies <── read, where that is not enough

Each group is treated as an array of its own, whose chunks are the parts: it has a board, and its
elements are cached as those of an array. A part is not read again if its cache covers the brackets
of all its groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.engine.boards import Limits, Location, board, cached_tally, whole_tally
from dask_gpuselect.engine.group_elements import MOST_CACHED_GROUPS, GroupedElements
from dask_gpuselect.engine.group_values import Named, codes_of_names
from dask_gpuselect.engine.keeping import room_for
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.maths.cached import group_tally_by
from dask_gpuselect.maths.cuts import Arrays, Brackets, Cuts, IntArray
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.group_cuts import GroupBrackets, GroupTally
from dask_gpuselect.maths.labels import Labels, codes_among
from dask_gpuselect.maths.lane_cuts import RanksOfLanes
from dask_gpuselect.maths.sizes import pivot_share

# Number of parts of a group that are seen before the first guess, if there are enough parts. A part
# is read again if the guess of any group is wrong. That happened among 18 groups when two parts
# made the first guess.
FIRST = 8
# With fewer elements of a group in a part, on average, nothing is cached: 60 groups of 2e5 elements
# took 2.5× the time of two loads that cost nothing, and 1.6× where a load took 50 ms.
LEAST_OF_GROUP = 1 << 12


@dataclass(frozen=True, eq=False)
class CachedGroups(Arrays):
    """Cached tally of a part of the data, at guessed brackets of its groups.

    Parameters
    ----------
    names : Labels or None
        Labels of the groups in the part; None if they are known before.
    brackets : GroupBrackets
        Brackets that were guessed.
    tally : GroupTally
        Tally of the part at these brackets; without candidates if they are on disk.
    held : Hold or Aside
        Where the candidates are.
    """

    names: Labels | None
    brackets: GroupBrackets
    tally: GroupTally
    location: Location

    def tally_at(self, proven: Named) -> GroupTally | None:
        """Return the tally at the proven brackets; None if the cache does not cover them."""
        tally = whole_tally(self.tally, self.location)
        among: IntArray = np.arange(self.brackets.n_groups)
        if self.names is not None:
            among = codes_among(self.names, proven.names).astype(np.int64)
        return group_tally_by(self.brackets, tally, proven.value, among)


@dataclass(frozen=True, eq=False)
class OnBoards(Arrays):
    """The cache of a part, if any, and the boards of its groups.

    The boards live as long as this object, and are dropped when it goes to another process.
    """

    cached: CachedGroups | None
    boards: list[Any] = field(default_factory=list)

    def __reduce__(self) -> tuple[Any, ...]:
        return OnBoards, (self.cached,)


def cuts_and_cached(
    chunks: Sequence[Accompanied],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    known: None,
    *,
    number: int,
    question: GroupedElements,
    n_parts: int,
    limits: Limits,
    board_name: str,
) -> tuple[Named, OnBoards]:
    """Compute the cuts of the runs in a part, by its number, and cache what guesses ask for."""
    cuts = question.cuts(chunks, dtype, axes, known, edges=None)
    names, runs = cuts.names, cuts.value
    n_groups = np.count_nonzero(runs.sizes)
    if n_groups > MOST_CACHED_GROUPS or runs.n_valid.sum() < n_groups * LEAST_OF_GROUP:
        return cuts, OnBoards(None)
    keep = partial(_bracket_of_group, ranks=question.of_group.order.lane_ranks)
    first = max(min(FIRST, n_parts // FIRST), 2)
    how = keep, n_parts, pivot_share(question.of_group.n_answers), first, False
    boards: list[Any] = []
    guessed: dict[int, Brackets] = {}
    expected = 0.0
    for group, own in runs.each(np.unique(runs.groups[runs.sizes > 0])):
        boards.append(board(f"{board_name}-{group if names is None else names[group]}", *how))
        guess = boards[-1].put(number, own)
        if guess.brackets is not None:
            guessed[group] = guess.brackets
            expected += guess.share * int(own.n_valid[0])
    if len(guessed) < len(boards) or not boards:
        return cuts, OnBoards(None, boards)
    nothing = GroupBrackets.of_nothing(question.n_groups_of(names), runs.pivots.dtype)
    brackets = nothing.with_each(guessed)
    tally = kernels.group_tally(chunks, dtype, codes_of_names(names), brackets)
    if len(tally.candidates) > room_for(expected):
        return cuts, OnBoards(None, boards)
    location = cached_tally(tally, limits)
    cached = None if location is None else CachedGroups(names, brackets, *location)
    return cuts, OnBoards(cached, boards)


def _bracket_of_group(cuts: Cuts, ranks: RanksOfLanes) -> Brackets:
    """Return the brackets at which a group with these cuts is cached."""
    n = np.maximum(cuts.n_valid.sum(keepdims=True), 1)
    lower, upper = (np.asarray(each, np.int64).ravel() for each in ranks(n))
    return find_brackets(cuts, lower, upper, use_distances=False)


def tally_by_cached(on_boards: OnBoards, proven: Named) -> GroupTally | None:
    """Return the tally of a part from its cache; None if the part has to be read."""
    return None if on_boards.cached is None else on_boards.cached.tally_at(proven)
