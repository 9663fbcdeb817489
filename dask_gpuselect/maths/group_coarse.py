"""Cuts of groups that are scattered over all elements, at as few pivots as wanted.

A few large groups have as many pivots as all elements have, and each of them is one root. So their
cuts are merged in the tree that those of all elements are, see `coarse`: what some parts know of a
group together is a run of bounds at some of its pivots. Those of all groups share what a merge
hands on, a group of four times the elements twice as many, for so the candidates of all groups
together are fewest. A merge that hands on K pivots of a group makes its brackets wider by about one
in K of its elements, and proves them all the same.

Candidates are narrowed where they wait, group by group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import HostCandidates
from dask_gpuselect.maths.coarse import CoarseCuts, batches, coarsened, cuts_of_tally, narrower
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.group_cuts import (
    GroupBrackets,
    GroupCuts,
    GroupTally,
    packed,
    runs_as_chunks,
    totals,
)
from dask_gpuselect.maths.group_kept import each_group, group_tally_by
from dask_gpuselect.maths.sizes import COARSE_EVERY, LEAST_OF_GROUP


def merged_groups_coarsely(parts: Sequence[GroupCuts], most: int) -> GroupCuts:
    """The cuts of all parts together, few at a time, at about `most` pivots of all groups."""
    while True:
        room = COARSE_EVERY * most
        some = [_coarsened(GroupCuts.merge(batch), most) for batch in batches(parts, room)]
        if len(some) == 1:
            return some[0]
        parts = some


def _coarsened(cuts: GroupCuts, most: int) -> GroupCuts:
    """What several parts know together of each group, at about so many pivots of all groups."""
    groups, number = np.unique(cuts.groups, return_inverse=True)
    n_valid, n_pivots, n_runs = (
        totals(number, each, len(groups))
        for each in (cuts.n_valid, cuts.sizes, np.ones(len(number), np.int64))
    )
    shares = shares_of(n_valid, most)
    is_large = (n_pivots > shares) | (n_runs > shares)
    order = np.argsort(number, kind="stable")
    runs = np.split(order, np.cumsum(n_runs)[:-1])
    few = np.concatenate([order[:0], *(runs[i] for i in np.flatnonzero(~is_large))])
    found = [_as_coarse(cuts.of_runs_at(few))]
    for i in np.flatnonzero(is_large):
        own = coarsened(runs_as_chunks(cuts.of_runs_at(runs[i])), int(shares[i]))
        found.append(_run_of(int(groups[i]), own))
    return CoarseGroupCuts.merge(found)


def shares_of(n: IntArray, most: int) -> IntArray:
    """How many of `most` pivots each group of so many elements gets, at least a few."""
    weights = np.sqrt(n)
    shares = most * weights / max(float(weights.sum()), 1.0)
    return np.maximum(shares, LEAST_OF_GROUP).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class CoarseGroupCuts(GroupCuts):
    """Cuts of runs, some of which are of several parts together: their counts are known from both
    sides.

    Parameters
    ----------
    least : ndarray of unsigned integers, shape (P,)
        How many elements of the run are <= the pivot, at least; `below` and `upto` are at most.
    """

    least: NDArray[Any]

    def as_chunks(self, unknown: Cuts) -> Cuts:
        """The runs as chunks whose counts are known from both sides."""
        columns = {name: getattr(unknown, name) for name in Cuts.column_names()}
        return CoarseCuts(**columns, least=self.least.astype(np.int64))


def _as_coarse(cuts: GroupCuts) -> CoarseGroupCuts:
    if isinstance(cuts, CoarseGroupCuts):
        return cuts
    columns = {name: getattr(cuts, name) for name in GroupCuts.column_names()}
    return CoarseGroupCuts(**columns, least=cuts.upto)


def _run_of(group: int, cuts: Cuts) -> CoarseGroupCuts:
    """The only chunk of some cuts as a run of a group."""
    return CoarseGroupCuts(
        groups=np.array([group], np.int32),
        sizes=packed(cuts.sizes),
        n_valid=packed(cuts.n_valid),
        n_missing=packed(cuts.n_missing),
        pivots=cuts.pivots,
        below=packed(cuts.below),
        upto=packed(cuts.upto),
        least=packed(cuts.least_upto),
    )


# --- Candidates -----------------------------------------------------------------------------------

CutsOfGroups = Mapping[int, Cuts]
"""The cuts of some parts together, of each group that has elements there, by its number."""


def cuts_of_candidates(brackets: GroupBrackets, tally: GroupTally, most: int) -> CutsOfGroups:
    """The cuts of each group by a tally of some parts: at the ends of its brackets, and at some of
    its candidates, so that those of all groups are about `most`."""
    held = np.bincount(brackets.group_of_cell[tally.of_cells], minlength=brackets.n_groups)
    shares = shares_of(held, most)
    return {
        group: cuts_of_tally(own, of_group, int(shares[group]))
        for group, own, of_group in _tallies(brackets, tally)
    }


def _tallies(brackets: GroupBrackets, tally: GroupTally) -> Iterator[tuple[int, Brackets, Tally]]:
    """The tally of each group that has elements, as of an array of its own, and its brackets."""
    n_cells = len(brackets.wanted)
    inside, equal = (totals(tally.cells, each, n_cells) for each in (tally.inside, tally.equal))
    order = np.argsort(tally.of_cells, kind="stable")
    starts = tally.of_cells[order].searchsorted(np.append(brackets.first_cell, n_cells))
    of_group = each_group(brackets)
    for group in range(brackets.n_groups):
        own, cells = of_group(group)
        stops = np.stack([inside[cells], equal[cells]], axis=1).ravel().cumsum()
        n = int(stops[-1])
        if n:
            some = tally.candidates[order[starts[group] : starts[group + 1]]]
            yield group, own, Tally(stops[:-2:2], stops[1:-1:2], HostCandidates(some), n, 0)


def merged_candidates_coarsely(parts: Sequence[CutsOfGroups], most: int) -> CutsOfGroups:
    """The cuts of each group of all parts together, at about `most` pivots of all groups."""
    groups = sorted({group for part in parts for group in part})
    n_valid = [sum(int(part[g].n_valid.sum()) for part in parts if g in part) for g in groups]
    shares = shares_of(np.array(n_valid, np.int64), most)
    found = {}
    for group, share in zip(groups, shares.tolist(), strict=True):
        some = [part[group] for part in parts if group in part]
        found[group] = coarsened(type(some[0]).merge(some), share)
    return found


def narrower_groups(parts: Sequence[CutsOfGroups], brackets: GroupBrackets) -> GroupBrackets:
    """What is wanted of what was gathered at some brackets, by cuts of all parts at some of the
    candidates."""
    of_group = each_group(brackets)
    each = []
    for group in range(brackets.n_groups):
        own, _ = of_group(group)
        some = [part[group] for part in parts if group in part]
        if some:
            ranks = brackets.lower[:, group], brackets.upper[:, group]
            cuts = type(some[0]).merge(some)
            own = narrower(own, find_brackets(cuts, *ranks, use_distances=False))
        each.append(own)
    return GroupBrackets(
        np.concatenate([brackets.ends[:0], *(own.ends for own in each)]),
        np.array([len(own.ends) for own in each], np.int64),
        np.concatenate([brackets.wanted[:0], *(own.wanted for own in each)]),
        *(brackets.lower, brackets.upper, brackets.n_valid, brackets.n_missing),
    )


def narrower_tally(brackets: GroupBrackets, tally: GroupTally, wanted: GroupBrackets) -> GroupTally:
    """The tally of some parts at narrower brackets of the same groups."""
    found = group_tally_by(brackets, tally, wanted, np.arange(brackets.n_groups))
    assert found is not None
    return found
