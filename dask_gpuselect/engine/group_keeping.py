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
from dask_gpuselect.engine.boards import Held, Limits, board, held_tally, whole_tally
from dask_gpuselect.engine.group_elements import MOST_KEPT_GROUPS, GroupedElements
from dask_gpuselect.engine.group_values import Named, codes_of_names
from dask_gpuselect.engine.keeping import room_for
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.maths.cuts import Arrays, Brackets, Cuts, IntArray
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.kept import cell_tally_by
from dask_gpuselect.maths.labels import Labels, codes_among
from dask_gpuselect.maths.lane_cuts import RanksOfLanes
from dask_gpuselect.maths.ragged import CellTally
from dask_gpuselect.maths.sizes import pivot_share

# Number of parts of a group that are seen before the first guess, if there are enough parts. A part
# is read again if the guess of any group is wrong. That happened among 18 groups when two parts
# made the first guess.
FIRST = 8
# With fewer elements of a group in a part, on average, nothing is cached: 60 groups of 2e5 elements
# took 2.5× the time of two loads that cost nothing, and 1.6× where a load took 50 ms.
LEAST_OF_GROUP = 1 << 12


@dataclass(frozen=True, eq=False)
class KeptGroups(Arrays):
    """Cached tally of a part of the data, at guessed brackets of its groups.

    Parameters
    ----------
    names : Labels or None
        Labels of the groups in the part; None if they are known before.
    brackets : Brackets
        Brackets that were guessed.
    tally : CellTally
        Tally of the part at these brackets; without candidates if they are on disk.
    held : Hold or Aside
        Where the candidates are.
    """

    names: Labels | None
    brackets: Brackets
    tally: CellTally
    held: Held

    def tally_at(self, proven: Named) -> CellTally | None:
        """Return the tally at the proven brackets; None if the cache does not cover them."""
        tally = whole_tally(self.tally, self.held)
        among: IntArray = np.arange(self.brackets.n_slots)
        if self.names is not None:
            among = codes_among(self.names, proven.names).astype(np.int64)
        return cell_tally_by(self.brackets, tally, proven.value.brackets, among)


@dataclass(frozen=True, eq=False)
class OnBoards(Arrays):
    """The cache of a part, if any, and the boards of its groups.

    The boards live as long as this object, and are dropped when it goes to another process.
    """

    kept: KeptGroups | None
    boards: list[Any] = field(default_factory=list)

    def __reduce__(self) -> tuple[Any, ...]:
        return OnBoards, (self.kept,)


def cuts_and_kept(
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
    if n_groups > MOST_KEPT_GROUPS or runs.n_valid.sum() < n_groups * LEAST_OF_GROUP:
        return cuts, OnBoards(None)
    keep = partial(_bracket_of_group, ranks=question.ranks)
    first = max(min(FIRST, n_parts // FIRST), 2)
    how = keep, n_parts, pivot_share(question.of_group.n_answers), first, False
    boards: list[Any] = []
    guessed: dict[int, Brackets] = {}
    expected = 0.0
    for group, own in runs.each(np.unique(runs.slots[runs.sizes > 0])):
        boards.append(board(f"{board_name}-{group if names is None else names[group]}", *how))
        guess = boards[-1].put(number, own)
        if guess.brackets is not None:
            guessed[group] = guess.brackets
            expected += guess.share * int(own.n_valid[0])
    if len(guessed) < len(boards) or not boards:
        return cuts, OnBoards(None, boards)
    n_slots = question.n_groups_of(names)
    nothing = Brackets(runs.pivots[:0], np.zeros(1, np.bool_))
    brackets = Brackets.of_each([guessed.get(slot, nothing) for slot in range(n_slots)])
    tally = kernels.group_tally(chunks, dtype, codes_of_names(names), brackets)
    if len(tally.candidates) > room_for(expected):
        return cuts, OnBoards(None, boards)
    held = held_tally(tally, limits)
    kept = None if held is None else KeptGroups(names, brackets, *held)
    return cuts, OnBoards(kept, boards)


def _bracket_of_group(cuts: Cuts, ranks: RanksOfLanes) -> Brackets:
    """Return the brackets at which a group with these cuts is cached."""
    n = np.maximum(cuts.n_valid.sum(keepdims=True), 1)
    lower, upper = (np.asarray(each, np.int64).ravel() for each in ranks(n))
    return find_brackets(cuts, lower, upper)


def tally_by_kept(on_boards: OnBoards, proven: Named) -> CellTally | None:
    """Return the tally of a part from its cache; None if the part has to be read."""
    return None if on_boards.kept is None else on_boards.kept.tally_at(proven)
