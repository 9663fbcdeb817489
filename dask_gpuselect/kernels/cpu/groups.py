"""Elements of groups in NumPy chunks: distributed to their groups, and sorted or counted there.

Numba compiles the kernels. Apart from the cache, distributing takes as long with many groups as
with few: 4 ns an element for 1.6e7 float32 in 18 groups. Large groups are then measured one by one,
by the kernels for all elements of a chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import kernel, kernel_of, until_compiled
from dask_gpuselect.kernels.cpu import long_lanes, spans
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.cells import SORT_AT_MOST, cuts_of_run
from dask_gpuselect.kernels.cpu.moments import moments_of_runs
from dask_gpuselect.kernels.cpu.scalars import first_behind, first_from, is_missing
from dask_gpuselect.kernels.reference import groups as reference
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.ragged import CellTally, pivot_counts, ranks_in_one_order

Part = tuple[NDArray[Any], NDArray[np.int32]]
Parts = Sequence[Part]

# Groups of up to this many elements are sorted by the kernel. Larger ones are sorted by NumPy's
# vectorised sort, which needs a call for each group: 14 ns an element in groups of 16 float32, 16
# in groups of 40, 8.5 in groups of 160.
SHORT = 24

# Larger groups are tallied one by one: 349,000 float32 take 0.7 ns each at one bracket and 1.8 at
# nine, and 2.4 and 37 with all groups; groups of 10,000 take 3.8 and 5.0.
TALLIED_ALONE = 1 << 14

# Ends of a group up to which elements are compared with all of them. With 18 ends that takes 28 ns
# an element, and to look each element up takes 57; with 40 ends 60 and 70, with 100 150 and 85.
FEW_ENDS = 40


@until_compiled(reference.cuts)
def cuts(parts: Parts, n_groups: int, share: int) -> Cuts:
    """Measure the cuts of every group; see `reference.groups.cuts`."""
    ordered, stops, n_missing = _dealt(parts, n_groups)
    _sort_each(ordered, stops, SORT_AT_MOST)
    n_valid = np.diff(stops, prepend=0)
    groups = np.flatnonzero(n_valid + n_missing)
    n, of_missing = n_valid[groups], n_missing[groups]
    # Larger runs need no order: to sort 58,000 float64 takes 38 ns for each, and this 6.
    is_large = n > SORT_AT_MOST
    n_wanted = pivot_counts(n, share)
    counts = np.where(is_large, 0, n_wanted)
    places = np.empty((3, int(counts.sum())), np.int64)
    sizes = np.empty(len(groups), np.int64)
    n_pivots = _cut(ordered, n, counts, sizes, places)
    at, below, upto = places[:, :n_pivots]
    runs = Cuts.of_runs(groups, sizes, n, of_missing, ordered[at], below, upto)
    if not is_large.any():
        return runs
    each = [runs.of_chunks(np.flatnonzero(~is_large))]
    for run in np.flatnonzero(is_large):
        group = groups[run]
        own = cuts_of_run(ordered[stops[group] - n[run] : stops[group]], int(n_wanted[run]))
        each.append(replace(own, n_missing=of_missing[run : run + 1]).as_run(group))
    return Cuts.merge(each)


@until_compiled(reference.tally)
def tally(parts: Parts, brackets: Brackets) -> CellTally:
    """Tally every group at its brackets; see `reference.groups.tally`."""
    ordered, stops, _ = _dealt(parts, brackets.n_slots)
    starts = np.append(0, stops[:-1])
    large = np.flatnonzero(stops - starts > TALLIED_ALONE)
    tallies = {}
    if len(large):
        of_slot = brackets.by_slot()
        for slot in large.tolist():
            run = ordered[starts[slot] : stops[slot]]
            own = spans.tally(run, of_slot(slot), len(run))
            assert own is not None  # there is room for all of the run
            tallies[slot] = own
    starts[large] = stops[large]
    at = ordered, starts, stops, brackets.ends, brackets.first_end
    counts = np.zeros((len(brackets.wanted), 2), np.int64)
    _count_at_ends(at, counts)
    n = int(counts[brackets.wanted, 0].sum())
    candidates, of_cells = np.empty(n + 1, ordered.dtype), np.empty(n, np.int32)
    wanted = brackets.wanted & (counts[:, 0] > 0)
    _gather(at, wanted, candidates, of_cells)
    others = CellTally.of_counts(counts, candidates[:n], of_cells)
    return CellTally.merge([others, CellTally.of_each(brackets, tallies)]) if tallies else others


@until_compiled(reference.moments)
def moments(parts: Parts, brackets: Brackets) -> Moments:
    """Sum the valid elements of every group exactly; see `reference.groups.moments`."""
    ordered, stops, _ = _dealt(parts, brackets.n_slots)
    return moments_of_runs(ordered, stops)


@until_compiled(reference.elements)
def elements(parts: Parts, n_groups: int, ranks: RanksOfLanes) -> Lanes:
    """Find the elements of some ranks in every group; see `reference.groups.elements`.

    For a single quantile, large groups are not sorted but partitioned.
    """
    ordered, stops, n_missing = _dealt(parts, n_groups)
    n_valid = np.diff(stops, prepend=0)
    lower, upper = ranks_in_one_order(n_valid, ranks)
    # The two ranks of a median take 8 ns an element of groups of 9,000 float32, and sorting takes
    # 15; six ranks take 18.
    most = SORT_AT_MOST if len(lower) == 1 else len(ordered)
    _sort_each(ordered, stops, most)
    for group in np.flatnonzero(n_valid > most).tolist():
        start = stops[group] - n_valid[group]
        places = np.unique([lower[:, group], upper[:, group]]) - start
        long_lanes.divide(ordered[start : stops[group]], places.tolist())
    padded = ordered if len(ordered) else np.zeros(1, ordered.dtype)
    return Lanes(padded[lower].T, padded[upper].T, n_valid, n_missing)


@until_compiled(reference.value_counts)
def value_counts(parts: Iterable[Part], n_groups: int, n_words: int) -> IntArray:
    """Count every value in every group; see `reference.groups.value_counts`."""
    table = np.zeros((n_groups, n_words), np.int64)
    for part in parts:
        _count_words(*_ready(part), table)
    return table


@until_compiled(reference.places_in_groups)
def places_in_groups(codes: NDArray[Any], n_groups: int) -> tuple[IntArray, IntArray]:
    """Return the places of the elements of each group; see `reference.groups.places_in_groups`.

    Places are distributed to the groups as elements are, and keep their order: 70 ms for 4e6 codes,
    where a stable `argsort` takes 180 with 2,000 groups and 560 with 100,000.
    """
    part = np.arange(len(codes)), codes.astype(np.int32, copy=False)
    ordered, stops, _ = _dealt([part], n_groups)
    return ordered, np.diff(stops, prepend=0)


@until_compiled(reference.in_groups)
def in_groups(parts: Parts, n_groups: int) -> tuple[NDArray[Any], IntArray, IntArray]:
    """Sort the valid elements by group and value; see `reference.groups.in_groups`."""
    ordered, stops, n_missing = _dealt(parts, n_groups)
    _sort_each(ordered, stops, len(ordered))
    return ordered, np.diff(stops, prepend=0), n_missing


def _sort_each(ordered: NDArray[Any], stops: IntArray, most: int) -> None:
    """Sort every group of at most `most` elements in place."""
    n_valid = np.diff(stops, prepend=0)
    _sort_short(ordered, stops, np.empty(SHORT, ordered.dtype))
    for group in np.flatnonzero((n_valid > SHORT) & (n_valid <= most)).tolist():
        ordered[stops[group] - n_valid[group] : stops[group]].sort()


def _dealt(parts: Parts, n_groups: int) -> tuple[NDArray[Any], IntArray, IntArray]:
    """Collect the valid elements of some chunks group by group, in any order within a group.

    Also returns where each group stops, and how many of its elements are missing.
    """
    parts = [_ready(part) for part in parts]
    dtype = parts[0][0].dtype
    n_valid, n_missing = np.zeros((2, n_groups), np.int64)
    for part in parts:
        _count(*part, n_valid, n_missing)
    stops = np.cumsum(n_valid)
    ordered = np.empty(int(n_valid.sum()), dtype)
    at = stops - n_valid
    for part in parts:
        _deal(*part, at, ordered)
    return ordered, stops, n_missing


def _ready(part: Part) -> Part:
    """Return elements and codes as contiguous, aligned arrays, which the kernels need."""
    values, codes = part
    return np.require(values, requirements=["C", "A"]), np.require(codes, requirements=["C", "A"])


@kernel
def _count(values: t.Values, codes: t.Codes, n_valid: t.Ints, n_missing: t.Ints) -> None:
    """Count the valid and the missing elements of every group."""
    for k in range(values.size):
        code = codes[k]
        if code >= 0:
            if is_missing(values[k]):
                n_missing[code] += 1
            else:
                n_valid[code] += 1


@kernel
def _deal(values: t.Values, codes: t.Codes, at: t.Ints, ordered: t.Out) -> None:
    """Write every valid element of a group behind the earlier ones of that group."""
    for k in range(values.size):
        code = codes[k]
        if code >= 0 and not is_missing(values[k]):
            ordered[at[code]] = values[k]
            at[code] += 1


@kernel_of("u2 u1")
def _count_words(words: t.Values, codes: t.Codes, table: t.IntTable) -> None:
    """Count every word in each group."""
    for k in range(words.size):
        code = codes[k]
        if code >= 0:
            table[code, words[k]] += 1


@kernel
def _sort_short(ordered: t.Out, stops: t.Places, some: t.Out) -> None:
    """Sort every group of at most ``some.size`` elements, by the number of those before each."""
    start = 0
    for stop in stops:
        if stop - start <= some.size:
            for i in range(start, stop):
                value = ordered[i]
                place = np.int64(0)
                for j in range(start, i):
                    place += ordered[j] <= value
                for j in range(i + 1, stop):
                    place += ordered[j] < value
                some[place] = value
            for i in range(start, stop):
                ordered[i] = some[i - start]
        start = stop


@kernel
def _cut(
    ordered: t.Values, sizes: t.Places, counts: t.Places, n_pivots: t.Ints, places: t.IntTable
) -> int:
    """Find the distinct pivots of each run, and count the elements below and up to them.

    Returns the number of pivots.
    """
    at, below, upto = places[0], places[1], places[2]
    n = 0
    start = np.int64(0)
    for run in range(sizes.size):
        size = sizes[run]
        steps = max(counts[run] - 1, 1)
        whole = (size - 1) // steps
        rest = (size - 1) % steps
        before = n
        reached = start  # first element greater than the previous pivot
        for j in range(counts[run]):
            place = start + j * whole + j * rest // steps
            if place < reached:
                continue
            value = ordered[place]
            at[n] = place
            below[n] = first_from(ordered, reached, place, value) - start
            reached = first_behind(ordered, place, start + size, value)
            upto[n] = reached - start
            n += 1
        n_pivots[run] = n - before
        start += size
    return n


AtEnds = tuple[t.Values, t.Places, t.Places, t.Values, t.Places]
"""Elements by group, where each group starts and stops, ends of brackets, the first end of each."""


@kernel
def _count_at_ends(at: AtEnds, counts: t.IntTable) -> None:
    """Count the elements of every group in its cells and at its ends.

    Few ends are compared one by one, in loops that vectorise; among many, elements are looked up.
    """
    ordered, starts, stops, ends, first_end = at
    for group in range(stops.size):
        some = ordered[starts[group] : stops[group]]
        first = first_end[group]
        last = first_end[group + 1]
        cell = first + group  # each group has one cell more than ends
        if last - first > FEW_ENDS:
            for value in some:
                end = first_from(ends, first, last, value)
                is_end = end < last and ends[end] == value
                counts[end + group, np.int64(is_end)] += 1
            continue
        before = np.int64(0)
        for end in range(first, last):
            value = ends[end]
            below = np.int64(0)
            upto = np.int64(0)
            for k in range(some.size):
                below += some[k] < value
                upto += some[k] <= value
            counts[cell, 0] = below - before
            counts[cell, 1] = upto - below
            before = upto
            cell += 1
        counts[cell, 0] = some.size - before


@kernel
def _gather(at: AtEnds, wanted: t.Flags, candidates: t.Out, of_cells: t.CodesOut) -> None:
    """Gather the elements of the wanted cells; only cells with elements are wanted."""
    ordered, starts, stops, ends, first_end = at
    n = 0
    for group in range(stops.size):
        some = ordered[starts[group] : stops[group]]
        first = first_end[group]
        last = first_end[group + 1]
        if last - first > FEW_ENDS:
            for value in some:
                end = first_from(ends, first, last, value)
                if wanted[end + group] and not (end < last and ends[end] == value):
                    candidates[n] = value
                    of_cells[n] = np.int32(end + group)
                    n += 1
            continue
        for end in range(first, last + 1):
            if not wanted[end + group]:
                continue
            # Without branches: half of the elements are above their group's median. `candidates`
            # has room for one element more than there are candidates.
            has_low, has_high = end > first, end < last
            low, high = ends[max(end - 1, 0)], ends[min(end, ends.size - 1)]
            begin = n
            for value in some:
                candidates[n] = value
                n += (not has_low or value > low) & (not has_high or value < high)
            of_cells[begin:n] = np.int32(end + group)
