"""Cache of the first load for groups of all elements, so that the second load need not read.

::

    source ──copy──> cuts of runs ──> brackets
                 │                       │
                 └──> cached ────> tallies <── read, where that is not enough

Each group is treated as an array of its own, whose chunks are the parts: it has a board, and its
elements are cached as those of an array. A part is not read again if its cache covers the brackets
of all its groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.engine.boards import Cached, Limits, board
from dask_gpuselect.engine.group_elements import MOST_CACHED_GROUPS, GroupedElements
from dask_gpuselect.engine.group_values import Named, codes_of_names
from dask_gpuselect.engine.keeping import FirstPartial, room_for
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.maths.cached import cell_tally_by
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.labels import codes_among
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


def first_of_groups(
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
) -> FirstPartial:
    """Measure the runs in a part, by its number, and cache what guesses ask for."""
    found = question.cuts(chunks, dtype, axes, known, edges=None)
    names, cuts = found.names, found.value
    n_groups = np.count_nonzero(cuts.sizes)
    if n_groups > MOST_CACHED_GROUPS or cuts.n_valid.sum() < n_groups * LEAST_OF_GROUP:
        return FirstPartial(found, None, None)
    keep = partial(_bracket_of_group, ranks=question.ranks)
    first = max(min(FIRST, n_parts // FIRST), 2)
    how = keep, n_parts, pivot_share(question.of_group.n_answers), first, False
    boards: list[Any] = []
    guessed: dict[int, Brackets] = {}
    expected = 0.0
    for group, own in cuts.each(np.unique(cuts.slots[cuts.sizes > 0])):
        boards.append(board(f"{board_name}-{group if names is None else names[group]}", *how))
        guess = boards[-1].put(number, own)
        if guess.brackets is not None:
            guessed[group] = guess.brackets
            expected += guess.share * int(own.n_valid[0])
    if len(guessed) < len(boards) or not boards:
        return FirstPartial(found, None, boards)
    nothing = Brackets(cuts.pivots[:0], np.zeros(1, np.bool_))
    slots = range(question.n_groups_of(names))
    brackets = Brackets.of_each([guessed.get(slot, nothing) for slot in slots])
    tally = kernels.group_tally(chunks, dtype, codes_of_names(names), brackets)
    if len(tally.candidates) > room_for(expected):
        return FirstPartial(found, None, boards)
    return FirstPartial(found, Cached.of(brackets, tally, limits), boards)


def _bracket_of_group(cuts: Cuts, ranks: RanksOfLanes) -> Brackets:
    """Return the brackets at which a group with these cuts is cached."""
    n = np.maximum(cuts.n_valid.sum(keepdims=True), 1)
    lower, upper = (np.asarray(each, np.int64).ravel() for each in ranks(n))
    return find_brackets(cuts, lower, upper)


def cell_tally_by_cache(first: FirstPartial, proven: Named) -> CellTally | None:
    """Return the tally of a part from its cache; None if the part has to be read."""
    cached, names = first.cached, first.cuts.names
    if cached is None:
        return None
    among: IntArray = np.arange(cached.brackets.n_slots)
    if names is not None:
        among = codes_among(names, proven.names).astype(np.int64)
    return cell_tally_by(cached.brackets, cached.whole(), proven.value.brackets, among)
