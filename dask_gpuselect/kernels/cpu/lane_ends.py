"""What is beyond the bounds of sorted lanes, compiled by Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import Types, compiles, types, until_compiled
from dask_gpuselect.kernels.cpu.moments import sums_of_sorted
from dask_gpuselect.kernels.cpu.scalars import first_behind, first_from, is_missing
from dask_gpuselect.kernels.reference import lanes as reference
from dask_gpuselect.maths.cuts import IntArray, extremes_of
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.lane_ends import Bounds, LaneEnds, Outermost
from dask_gpuselect.maths.moments import Moments


def _ends_by_kernels(
    rows: NDArray[Any], bounds: Bounds, most: int, n_left_out: IntArray | None = None
) -> LaneEnds:
    """What is beyond the bounds of each row, with at most so many elements of each side.

    Elements that are left out come last, as `lane_cuts.last_of` says.
    """
    n_lanes, n = rows.shape
    none = np.zeros(n_lanes, np.int64) if n_left_out is None else n_left_out
    sizes = n - none if rows.dtype.kind in "iu" else np.full(n_lanes, n)
    counts = np.zeros((5, n_lanes), np.int64)
    ends = np.empty((4, n_lanes), rows.dtype)
    ends[::2], ends[1::2] = extremes_of(rows.dtype)[::-1]
    _compiled(_look_at_sorted, rows.dtype)(rows, sizes, bounds.low, bounds.high, counts, ends)
    n_valid, n_low, n_high, n_above, n_below = counts
    sums = sums_of_sorted(rows, n_below, n_valid - n_above)
    moments = Moments(n_valid - n_above - n_below, n_above, n_below, *sums)
    kept = np.minimum(n_low, most), np.minimum(n_high, most)
    found = [np.empty(int(each.sum()), rows.dtype) for each in kept]
    _compiled(_take_ends, rows.dtype)(rows, *kept, n_valid, *found)
    low, high = (
        Outermost(number, n_kept, unsigned_zero(elements))
        for number, n_kept, elements in zip((n_low, n_high), kept, found, strict=True)
    )
    least, largest, first, last = ends
    n_missing = n - n_valid - none
    return LaneEnds(n_valid, n_missing, none, least, largest, first, last, low, high, moments)


def _ends_by_numpy(
    rows: NDArray[Any], bounds: Bounds, most: int, n_left_out: IntArray | None = None
) -> LaneEnds:
    if n_left_out is not None:  # no other way
        return _ends_by_kernels(rows, bounds, most, n_left_out)
    return reference.lane_ends([rows], bounds, most)


ends_of_sorted = until_compiled(_ends_by_numpy)(_ends_by_kernels)


def _look_at_sorted(rows: Any, sizes: Any, low: Any, high: Any, counts: Any, ends: Any) -> None:
    """Counts of every row, its extremes, and its nearest elements inside the bounds."""
    for i in range(rows.shape[0]):
        row = rows[i]
        n_valid = sizes[i]
        if n_valid and is_missing(row[n_valid - 1]):
            n_valid = first_behind(row, 0, n_valid, np.inf)
        counts[0, i] = n_valid
        if n_valid == 0:
            continue
        # Nothing is beyond NaN, and nothing inside.
        n_low = first_from(row, 0, n_valid, low[i])
        n_upto = first_behind(row, 0, n_valid, high[i]) if high[i] == high[i] else n_valid
        counts[1, i], counts[2, i] = n_low, n_valid - n_upto
        counts[3, i] = n_valid - first_from(row, 0, n_valid, np.inf)
        counts[4, i] = first_behind(row, 0, n_valid, -np.inf)
        ends[0, i], ends[1, i] = row[0], row[n_valid - 1]
        if low[i] == low[i] and n_low < n_valid:
            ends[2, i] = row[n_low]
        if high[i] == high[i] and n_upto > 0:
            ends[3, i] = row[n_upto - 1]


def _take_ends(
    rows: Any, kept_low: Any, kept_high: Any, n_valid: Any, lows: Any, highs: Any
) -> None:
    """The outermost elements of every row, the most extreme first."""
    n_low, n_high = 0, 0
    for i in range(rows.shape[0]):
        for j in range(kept_low[i]):
            lows[n_low] = rows[i, j]
            n_low += 1
        for j in range(kept_high[i]):
            highs[n_high] = rows[i, n_valid[i] - 1 - j]
            n_high += 1


@compiles
def _compiled(values: types.Array, values_out: types.Array) -> Types:
    table, numbers = types.Array(values.dtype, 2, "C"), types.Array(types.int64, 2, "C")
    reals = types.Array(types.float64, 1, "A", readonly=True)
    places = types.Array(types.int64, 1, "A", readonly=True)
    return {
        _look_at_sorted: (table, places, reals, reals, numbers, table),
        _take_ends: (table, places, places, places, values_out, values_out),
    }
