"""Elements in groups: measured, counted and gathered for all groups together, on the host.

`codes` are the number of the group of each element, -1 for none. `parts` are pairs of elements, as
`Selection.elements_of` returns them, and their codes, one pair for each chunk. All partial results
are on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import to_host
from dask_gpuselect.kernels.reference.moments import moments_of_runs
from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.ragged import CellTally, pivot_counts, ranks_in_one_order
from dask_gpuselect.maths.tables import bisected

Parts = Sequence[tuple[Any, Any]]


def cuts(parts: Parts, n_groups: int, share: int) -> Cuts:
    """Measure the cuts of every group in some chunks.

    Each group has one run over all chunks. Its pivots are its least and largest element, and others
    at even ranks between them.
    """
    ordered, n_valid, n_missing = in_groups(parts, n_groups)
    groups = np.flatnonzero(n_valid + n_missing)
    n = n_valid[groups]
    at, run = even_places(n, pivot_counts(n, share))
    value = ordered[at]
    is_first = np.append(np.True_, (run[1:] != run[:-1]) | (value[1:] != value[:-1]))[: len(at)]
    value, run = value[is_first], run[is_first]
    stop = np.cumsum(n)[run]
    start = stop - n[run]
    below, upto = (
        _places_of_ends(ordered, start, stop, value, is_behind) - start
        for is_behind in (np.less, np.less_equal)
    )
    sizes = np.bincount(run, minlength=len(groups)).astype(np.int64)
    return Cuts.of_runs(groups, sizes, n, n_missing[groups], value, below, upto)


def tally(parts: Parts, brackets: Brackets) -> CellTally:
    """Count some chunks at the ends of the brackets, and gather candidates."""
    group = np.repeat(np.arange(brackets.n_slots), np.diff(brackets.first_end))
    of_end = np.arange(len(group)) + group  # the cell before each end
    of_group = brackets.first_cell
    ordered, n_valid, _ = in_groups(parts, brackets.n_slots)
    stop = np.cumsum(n_valid)
    start = stop - n_valid
    below, upto = (
        _places_of_ends(ordered, start[group], stop[group], brackets.ends, is_behind)
        for is_behind in (np.less, np.less_equal)
    )
    # The elements of a cell are contiguous.
    begins, stops = np.empty((2, len(brackets.wanted)), np.int64)
    begins[of_group[:-1]], begins[of_end + 1] = start, upto
    stops[of_end], stops[of_group[1:] - 1] = below, stop
    counts = np.zeros((len(brackets.wanted), 2), np.int64)
    counts[:, 0] = stops - begins
    counts[of_end, 1] = upto - below
    sizes = np.where(brackets.wanted, counts[:, 0], 0)
    within = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    number = np.arange(len(within)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return CellTally.of_counts(counts, ordered[begins[within] + number], within)


def _places_of_ends(
    ordered: NDArray[Any],
    start: IntArray,
    stop: IntArray,
    ends: NDArray[Any],
    is_behind: Callable[[Any, Any], Any],
) -> IntArray:
    """Find the place of each end in a sorted stretch of its own.

    With `np.less`, it is behind the elements less than the end; with `np.less_equal`, behind those
    up to it.
    """
    padded = ordered if len(ordered) else np.zeros(1, ordered.dtype)

    def goes_on(places: IntArray) -> NDArray[np.bool_]:
        return np.asarray(is_behind(padded[np.minimum(places, len(padded) - 1)], ends))

    return bisected(start, stop, goes_on)


def elements(parts: Parts, n_groups: int, ranks: RanksOfLanes) -> Lanes:
    """Find the elements of some ranks in every group of all chunks, one lane per group."""
    own = backend_for(parts[0][0]).groups
    ordered, n_valid, n_missing = own.in_groups(parts, n_groups)
    padded = ordered if len(ordered) else np.zeros(1, ordered.dtype)
    lower, upper = ranks_in_one_order(n_valid, ranks)
    return Lanes(padded[lower].T, padded[upper].T, n_valid, n_missing)


def value_counts(parts: Iterable[tuple[Any, Any]], n_groups: int, n_words: int) -> IntArray:
    """Count every word in every group, shape ``(n_groups, n_words)``.

    The elements of the parts are words below `n_words`.
    """
    table = np.zeros(n_groups * n_words, np.int64)
    for part in parts:
        words, codes = map(to_host, part)
        is_some = codes >= 0
        places = codes[is_some].astype(np.int64) * n_words + words[is_some]
        np.add.at(table, places, 1)
    return table.reshape(n_groups, n_words)


def lane_counts(*_: Any, **__: Any) -> None:
    """Count every word in every lane, shape ``(n_lanes, n_words)``.

    The lanes are rows, with a mask of the same shape or None. The result is None where it is as
    fast to count one lane after the other.
    """


def moments(parts: Parts, brackets: Brackets) -> Moments:
    """Sum the valid elements of every group in some chunks exactly; the brackets are near them."""
    values, n_valid, _ = in_groups(parts, brackets.n_slots)
    return moments_of_runs(values, np.cumsum(n_valid))


def places_in_groups(codes: NDArray[Any], n_groups: int) -> tuple[IntArray, IntArray]:
    """Return the places of the elements of each group, ascending, and the size of each group.

    The codes are a NumPy array. The groups follow one another.
    """
    places = np.flatnonzero(codes >= 0)
    # NumPy's stable sort of one or two bytes is a radix sort.
    short = codes[places].astype(np.min_scalar_type(n_groups), copy=False)
    sizes = np.bincount(short, minlength=n_groups).astype(np.int64)
    return places[np.argsort(short, kind="stable")], sizes


# In groups of at least this many elements on average, sorting each is faster than sorting all by
# two keys. 1e6 float64 in 5 groups take 31 ms, and 325 by two keys; in 60,000 groups 67 and 419.
LEAST_SORTED = 16


def sorted_in_groups(values: NDArray[Any], codes: NDArray[np.int32], n_groups: int) -> NDArray[Any]:
    """Sort the elements of NumPy arrays by group and by value; none may be missing."""
    if n_groups * LEAST_SORTED > len(values):
        return np.asarray(values[np.lexsort((values, codes))])
    places, sizes = places_in_groups(codes, n_groups)
    ordered, stops = np.asarray(values[places]), np.cumsum(sizes)
    for start, stop in pairwise([0, *stops.tolist()]):
        ordered[start:stop].sort()
    return ordered


def window_lanes(*_: Any, **__: Any) -> None:
    """Find the elements of some ranks in every window of every lane, window after window.

    None where it is as fast to take the elements of one window after the other.

    Parameters
    ----------
    parts : sequence of array, shape (*lanes, n)
        Parts that `lanes.parts_of` returns; joined along the last axis they are whole lanes.
    atoms : Atoms
        The windows as unions of atoms.
    ranks : callable
        Maps numbers of elements to the wanted ranks among so many.
    """


def in_groups(parts: Parts, n_groups: int) -> tuple[NDArray[Any], IntArray, IntArray]:
    """Sort the valid elements of some chunks by group and by value.

    Also returns the number of valid and of missing elements of each group.
    """
    some = [valid(*part) for part in parts]
    values, codes, missing = (np.concatenate(each) for each in zip(*some, strict=True))
    n_valid, n_missing = (np.bincount(each, minlength=n_groups) for each in (codes, missing))
    return (
        sorted_in_groups(values, codes, n_groups),
        n_valid.astype(np.int64),
        n_missing.astype(np.int64),
    )


def valid(values: Any, codes: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the elements in a group that are not NaN, their codes, and the codes of the others.

    The others are in a group and NaN. All arrays are on the host.
    """
    values, codes = to_host(values), to_host(codes)
    is_some = codes >= 0
    is_missing = values != values
    return (
        values[is_some & ~is_missing],
        codes[is_some & ~is_missing],
        codes[is_some & is_missing],
    )


def even_places(n: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return places at even steps through stretches of `n` elements, and the stretch of each place.

    The stretches follow one another. There are `counts` places in each, its first and last
    included.
    """
    stretch = np.repeat(np.arange(len(n)), counts)
    number = np.arange(len(stretch)) - np.repeat(np.cumsum(counts) - counts, counts)
    steps = np.maximum(counts - 1, 1)[stretch]
    # Whole steps and remainders are multiplied separately: together the product may exceed int64.
    whole, rest = np.divmod(np.maximum(n - 1, 0)[stretch], steps)
    return (np.cumsum(n) - n)[stretch] + number * whole + number * rest // steps, stretch
