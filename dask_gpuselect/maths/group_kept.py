"""What a second load would say of the groups in a part, by what the first one has kept of it.

Each group of a part is as a chunk of an array of its own: see `kept` and `seen`.

Plain NumPy on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dask_gpuselect.maths.candidates import HostCandidates
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.group_cuts import GroupBrackets, GroupCuts, GroupTally, totals
from dask_gpuselect.maths.kept import covers, tally_by
from dask_gpuselect.maths.lane_cuts import RanksOfLanes


def cuts_of_groups(cuts: GroupCuts) -> Iterator[tuple[int, Cuts]]:
    """The cuts of each group that has valid elements in a part, and its number."""
    stops = np.cumsum(cuts.sizes, dtype=np.int64)
    for run in np.flatnonzero(cuts.sizes):
        own = slice(int(stops[run]) - int(cuts.sizes[run]), int(stops[run]))
        unknown = np.full(own.stop - own.start, np.nan)
        yield (
            int(cuts.groups[run]),
            Cuts.of_chunk(
                cuts.pivots[own],
                cuts.below[own].astype(np.int64),
                cuts.upto[own].astype(np.int64),
                unknown,
                int(cuts.n_valid[run]),
                0,
                slack=unknown,
            ),
        )


@dataclass(frozen=True)
class BracketsOfGroup:
    """What is to be kept of a group: the brackets of its ranks.

    Parameters
    ----------
    ranks : callable
        From numbers of elements to the lower and upper ranks that are wanted of so many.
    """

    ranks: RanksOfLanes

    def __call__(self, cuts: Cuts) -> Brackets:
        n = np.maximum(cuts.n_valid.sum(keepdims=True), 1)
        lower, upper = (np.asarray(each, np.int64).ravel() for each in self.ranks(n))
        return find_brackets(cuts, lower, upper, use_distances=False)


def brackets_of_groups(known: Mapping[int, Brackets], like: GroupCuts, n: int) -> GroupBrackets:
    """The brackets of `n` groups, of which some are known, by their numbers, and the others are
    asked nothing. How many elements groups have is not known."""
    nothing = Brackets(like.pivots[:0], np.zeros(1, np.bool_))
    each = [known.get(group, nothing) for group in range(n)]
    none = np.zeros(n, np.int64)
    return GroupBrackets(
        np.concatenate([nothing.ends, *(own.ends for own in each)]),
        np.array([len(own.ends) for own in each], np.int64),
        np.concatenate([nothing.wanted[:0], *(own.wanted for own in each)]),
        none[None],
        none[None],
        none,
        none,
    )


def group_tally_by(
    kept: GroupBrackets, tally: GroupTally, wanted: GroupBrackets, among: IntArray
) -> GroupTally | None:
    """The tally of a part at other brackets; None if those that were kept do not cover them.

    Parameters
    ----------
    kept, tally
        What was kept, and at which brackets.
    wanted : GroupBrackets
    among : ndarray of int, shape (kept.n_groups,)
        The number of each group that was kept among those that are wanted.
    """
    n_cells = len(kept.wanted)
    inside, equal = (totals(tally.cells, each, n_cells) for each in (tally.inside, tally.equal))
    counts = np.zeros((len(wanted.wanted), 2), np.int64)
    candidates, of_cells = [tally.candidates[:0]], [np.empty(0, np.int32)]
    order = np.argsort(tally.of_cells, kind="stable")
    starts = tally.of_cells[order].searchsorted(np.append(kept.first_cell, n_cells))
    of_old, of_new = each_group(kept), each_group(wanted)
    for group in range(kept.n_groups):
        old, old_cells = of_old(group)
        stops = np.stack([inside[old_cells], equal[old_cells]], axis=1).ravel().cumsum()
        n = int(stops[-1])
        if not n:
            continue
        new, new_cells = of_new(int(among[group]))
        counts[new_cells.start, 0] = n  # if nothing is asked of the group
        if not len(new.ends) and not new.wanted.any():
            continue
        if not covers(old, new):
            return None
        some = tally.candidates[order[starts[group] : starts[group + 1]]]
        found = tally_by(old, Tally(stops[:-2:2], stops[1:-1:2], HostCandidates(some), n, 0), new)
        counts[new_cells, 0] = np.append(found.below, n) - np.append(0, found.upto)
        counts[new_cells, 1][:-1] = found.upto - found.below
        own = found.candidates.on_host()
        candidates.append(own)
        cells = new.ends.searchsorted(own) + new_cells.start
        of_cells.append(cells.astype(np.int32))
    return GroupTally.of_counts(counts, np.concatenate(candidates), np.concatenate(of_cells))


def each_group(brackets: GroupBrackets) -> Callable[[int], tuple[Brackets, slice]]:
    """From a group to its brackets alone, and where its cells are."""
    ends, cells, n_ends = (
        each.tolist() for each in (brackets.first_end, brackets.first_cell, brackets.n_ends)
    )

    def of_group(group: int) -> tuple[Brackets, slice]:
        n = n_ends[group]
        own = slice(cells[group], cells[group] + n + 1)
        end = slice(ends[group], ends[group] + n)
        return Brackets(brackets.ends[end], brackets.wanted[own]), own

    return of_group
