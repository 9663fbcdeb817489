"""Elements of groups: cut, counted and gathered for all groups at once, on the host.

`codes` are the number of the group of each element, -1 for none, and `parts` pairs of elements and
their codes: those of chunks, as `Selection.elements_of` gives them. All reports are on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import to_host
from dask_gpuselect.maths.atoms import Atoms
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.group_cuts import (
    GroupBrackets,
    GroupCuts,
    GroupTally,
    pivot_counts,
)
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes

Parts = Sequence[tuple[Any, Any]]


def cuts(parts: Parts, n_groups: int, share: int) -> GroupCuts:
    """The cuts of every group in some chunks: each has a run of all of them together, with its
    least and largest element and others evenly between them by rank as pivots."""
    ordered, n_valid, n_missing = in_groups(parts, n_groups)
    groups = np.flatnonzero(n_valid + n_missing)
    n = n_valid[groups]
    at, run = even_places(n, pivot_counts(n, share))
    value = ordered[at]
    is_first = np.append(np.True_, (run[1:] != run[:-1]) | (value[1:] != value[:-1]))[: len(at)]
    value, run, at = value[is_first], run[is_first], at[is_first]
    # Of equal elements of a run the first and the last, by where others begin.
    of_each = np.repeat(np.arange(len(groups)), n)
    begins = np.flatnonzero(
        np.append(np.True_, (of_each[1:] != of_each[:-1]) | (ordered[1:] != ordered[:-1]))[
            : len(ordered)
        ]
    )
    tied = np.searchsorted(begins, at, side="right")
    start = (np.cumsum(n) - n)[run]
    below = begins[tied - 1] - start
    upto = np.append(begins, len(ordered))[tied] - start
    sizes = np.bincount(run, minlength=len(groups)).astype(np.int64)
    return GroupCuts.of_runs(groups, sizes, n, n_missing[groups], value, below, upto)


def tally(parts: Parts, brackets: GroupBrackets) -> GroupTally:
    """The counts of some chunks at the ends of the brackets, and their candidates."""
    group = np.repeat(np.arange(brackets.n_groups), brackets.n_ends)
    of_end = np.arange(len(group)) + group  # the cell before each end
    of_group = brackets.first_end + np.arange(brackets.n_groups + 1)  # the first cell of each
    counts = np.zeros((len(brackets.wanted), 2), np.int64)
    candidates, of_cells = [brackets.ends[:0]], [np.empty(0, np.int32)]
    for part in parts:
        ordered, n_valid, _ = in_groups([part], brackets.n_groups)
        stop = np.cumsum(n_valid)
        start = stop - n_valid
        below, upto = (
            _places_of_ends(ordered, start[group], stop[group], brackets.ends, is_behind)
            for is_behind in (np.less, np.less_equal)
        )
        # The elements of a cell are from one place up to another.
        begins, stops = np.empty((2, len(counts)), np.int64)
        begins[of_group[:-1]], begins[of_end + 1] = start, upto
        stops[of_end], stops[of_group[1:] - 1] = below, stop
        sizes = stops - begins
        counts[:, 0] += sizes
        counts[of_end, 1] += upto - below
        wanted = np.flatnonzero(brackets.wanted)
        within = np.repeat(wanted, sizes[wanted])
        number = np.arange(len(within)) - np.repeat(
            np.cumsum(sizes[wanted]) - sizes[wanted], sizes[wanted]
        )
        candidates.append(ordered[begins[within] + number])
        of_cells.append(within.astype(np.int32))
    return GroupTally.of_counts(counts, np.concatenate(candidates), np.concatenate(of_cells))


def _places_of_ends(
    ordered: NDArray[Any],
    start: IntArray,
    stop: IntArray,
    ends: NDArray[Any],
    is_behind: Callable[[Any, Any], Any],
) -> IntArray:
    """Where each end belongs in a sorted stretch of its own: behind the elements that are less than
    it, or up to it. By halves, of all at once."""
    padded = ordered if len(ordered) else np.zeros(1, ordered.dtype)
    first, last = start.copy(), stop.copy()
    while (is_open := first < last).any():
        middle = (first + last) // 2
        is_above = is_open & is_behind(padded[np.minimum(middle, len(padded) - 1)], ends)
        first = np.where(is_above, middle + 1, first)
        last = np.where(is_open & ~is_above, middle, last)
    return first


def elements(parts: Parts, n_groups: int, ranks: RanksOfLanes) -> Lanes:
    """The elements of some ranks in every group of all chunks, as of so many lanes."""
    ordered, n_valid, n_missing = in_groups(parts, n_groups)
    return elements_of_sorted(ordered, n_valid, n_missing, ranks)


def value_counts(parts: Iterable[tuple[Any, Any]], n_groups: int, n_words: int) -> IntArray:
    """How often each word occurs in every group, shape ``(n_groups, n_words)``: the elements of the
    parts are words of so many values."""
    table = np.zeros(n_groups * n_words, np.int64)
    for part in parts:
        words, codes = map(to_host, part)
        is_some = codes >= 0
        places = codes[is_some].astype(np.int64) * n_words + words[is_some]
        np.add.at(table, places, 1)
    return table.reshape(n_groups, n_words)


def lane_counts(rows: Any, keeps: Any, n_words: int) -> IntArray | None:
    """How often each word occurs in every lane, shape ``(n_lanes, n_words)``, of lanes in rows and
    maybe a mask of their shape; None where it is as fast to count one lane after the other."""
    del rows, keeps, n_words
    return None


def elements_of_sorted(
    ordered: NDArray[Any], n_valid: IntArray, n_missing: IntArray, ranks: RanksOfLanes
) -> Lanes:
    """The elements of some ranks in every group, by those of all groups in order."""
    padded = ordered if len(ordered) else np.zeros(1, ordered.dtype)
    places = places_of_ranks(n_valid, ranks)
    return elements_of_places(places, padded.__getitem__, n_valid, n_missing)


def places_of_ranks(n_valid: IntArray, ranks: RanksOfLanes) -> tuple[IntArray, IntArray]:
    """Where the lower and the upper elements of each group are among those of all groups in order,
    shapes ``(n_questions, n_groups)``; any place there is for a group without elements."""
    starts, last = np.cumsum(n_valid) - n_valid, max(int(n_valid.sum()) - 1, 0)
    lower, upper = (
        np.minimum(np.broadcast_to(rank, (len(rank), len(starts))) + starts, last)
        for rank in ranks(np.maximum(n_valid, 1))
    )
    return lower, upper


def elements_of_places(
    places: tuple[IntArray, IntArray],
    elements_at: Callable[[IntArray], NDArray[Any]],
    n_valid: IntArray,
    n_missing: IntArray,
) -> Lanes:
    """The lower and upper elements of every group, as of so many lanes."""
    lower, upper = map(elements_at, places)
    return Lanes(lower.T, upper.T, n_valid, n_missing)


def places_in_groups(codes: NDArray[Any], n_groups: int) -> tuple[IntArray, IntArray]:
    """The places of the elements of each group in a NumPy array of codes, ascending, one group
    after the other, and how many each group has."""
    found = np.flatnonzero(codes >= 0)
    sizes = np.bincount(codes[found], minlength=n_groups).astype(np.int64)
    return found[np.argsort(codes[found], kind="stable")], sizes


# Of larger groups, a sort of each takes less than one of all by two keys. 1e6 float64 in 5 groups
# take 31 ms, and by two keys 325; in 60,000 groups 67 and 419.
LEAST_SORTED = 16


def sorted_in_groups(values: NDArray[Any], codes: NDArray[np.int32], n_groups: int) -> NDArray[Any]:
    """Elements of NumPy arrays, none of them missing, group by group, each group's ascending."""
    if n_groups * LEAST_SORTED > len(values):
        return np.asarray(values[np.lexsort((values, codes))])
    # A stable sort of one or two bytes counts them.
    short = codes.astype(np.min_scalar_type(n_groups), copy=False)
    ordered = np.asarray(values[np.argsort(short, kind="stable")])
    stops = np.cumsum(np.bincount(codes, minlength=n_groups))
    for start, stop in pairwise([0, *stops.tolist()]):
        ordered[start:stop].sort()
    return ordered


def window_lanes(parts: Sequence[Any], atoms: Atoms, ranks: RanksOfLanes) -> Lanes | None:
    """The elements of some ranks in every window of every lane, window after window; None where it
    is as fast to take the elements of one window after the other.

    Parameters
    ----------
    parts : sequence of array, shape (*lanes, n)
        As `LaneKernels.parts_of` gives them: one behind the other they are whole lanes.
    atoms : Atoms
        Of the windows.
    ranks : callable
        From numbers of elements to the ranks that are wanted of so many.
    """
    return None


def in_groups(parts: Parts, n_groups: int) -> tuple[NDArray[Any], IntArray, IntArray]:
    """The valid elements of some chunks, group by group, each group's ascending; and of each group
    how many there are, and how many are missing."""
    some = [valid(*part) for part in parts]
    values, codes, missing = (np.concatenate(each) for each in zip(*some, strict=True))
    n_valid, n_missing = (np.bincount(each, minlength=n_groups) for each in (codes, missing))
    return (
        sorted_in_groups(values, codes, n_groups),
        n_valid.astype(np.int64),
        n_missing.astype(np.int64),
    )


def valid(values: Any, codes: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The elements that are in a group and not NaN, and their codes; and the codes of those in a
    group that are NaN. On the host."""
    values, codes = to_host(values), to_host(codes)
    is_some = codes >= 0
    is_missing = values != values
    return (
        values[is_some & ~is_missing],
        codes[is_some & ~is_missing],
        codes[is_some & is_missing],
    )


def even_places(n: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Places spread evenly over stretches of `n` elements, one stretch behind the other: so many of
    each, its first and last among them; and the stretch of each place."""
    stretch = np.repeat(np.arange(len(n)), counts)
    number = np.arange(len(stretch)) - np.repeat(np.cumsum(counts) - counts, counts)
    steps = np.maximum(counts - 1, 1)[stretch]
    # Whole steps and the rest of each by itself: their product may exceed int64, these cannot.
    whole, rest = np.divmod(np.maximum(n - 1, 0)[stretch], steps)
    return (np.cumsum(n) - n)[stretch] + number * whole + number * rest // steps, stretch
