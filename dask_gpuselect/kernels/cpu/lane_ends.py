"""What is beyond the bounds of sorted lanes, with weights or without, compiled by Numba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_gpuselect.kernels.compiling import Types, compiles, types, until_compiled
from dask_gpuselect.kernels.cpu.moments import add_at, sums_of_sorted
from dask_gpuselect.kernels.cpu.scalars import first_behind, first_from
from dask_gpuselect.kernels.cpu.weighing import add_moment, moments_of_tables, whole_number
from dask_gpuselect.maths import lane_ends
from dask_gpuselect.maths.cuts import IntArray, extremes_of
from dask_gpuselect.maths.exact_sums import (
    CUBE_DIGITS,
    SQUARE_DIGITS,
    TOTAL_DIGITS,
    TOTAL_POINT,
    ExactSums,
)
from dask_gpuselect.maths.lane_ends import Bounds, LaneEnds, Measure, Outermost
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.sorted_lanes import SortedLanes


@until_compiled(lane_ends.ends_of_sorted)
def ends_of_sorted(lanes: SortedLanes, bounds: Bounds, most: int) -> LaneEnds:
    """What is beyond the bounds of each lane; see `maths.lane_ends.ends_of_sorted`."""
    rows, n_valid = lanes.values, lanes.n_valid
    counts = np.zeros((6, len(rows)), np.int64)
    ends = np.empty((4, len(rows)), rows.dtype)
    ends[::2], ends[1::2] = extremes_of(rows.dtype)[::-1]
    given = n_valid, bounds.low, bounds.high, most
    _compiled(_look_at_sorted, rows.dtype)(rows, *given, counts, ends)
    n_low, n_high, n_above, n_below, kept_low, kept_high = counts
    measures: Sequence[Measure] = n_valid, n_low, n_high
    if lanes.weights is None:
        sums = sums_of_sorted(rows, n_below, n_valid - n_above)
        moments = Moments(n_valid - n_above - n_below, n_above, n_below, *sums)
    else:
        parts, moments = _sums(lanes, n_low, n_high, counts[2:4])
        measures = ExactSums.sum([parts[:, i] for i in range(3)]), parts[:, 0], parts[:, 2]
    low, high = (
        _outermost(lanes, measure, _places(kept, start), most, is_high=is_high)
        for measure, kept, start, is_high in (
            (measures[1], kept_low, np.zeros_like(n_valid), False),
            (measures[2], kept_high, n_valid - kept_high, True),
        )
    )
    n_left_out = lanes.n_left_out + lanes.n_idle
    about = n_valid, lanes.n_missing, n_left_out, measures[0]
    least, largest, first, last = ends
    return LaneEnds(*about, least, largest, first, last, low, high, moments)


def _outermost(
    lanes: SortedLanes,
    measure: Measure,
    places: tuple[IntArray, IntArray],
    most: int,
    *,
    is_high: bool,
) -> Outermost:
    """The elements at some places, and what they weigh."""
    weights = None
    if lanes.weights is not None:
        own = lanes.weights[places]
        weights = ExactSums.of(np.arange(len(own)), len(own), own)
    some = places[0], lanes.values[places], most
    return Outermost.of(measure, *some, is_high=is_high, weights=weights)


def _places(kept: IntArray, start: IntArray) -> tuple[IntArray, IntArray]:
    """The lanes and places of so many elements of each lane, from a place on."""
    lane = np.repeat(np.arange(len(kept)), kept)
    return lane, np.arange(len(lane)) + np.repeat(start - (np.cumsum(kept) - kept), kept)


def _look_at_sorted(
    rows: Any, valid: Any, low: Any, high: Any, most: int, counts: Any, ends: Any
) -> None:
    """Counts of every row, its extremes, and its nearest elements inside the bounds."""
    for i in range(rows.shape[0]):
        row, n = rows[i], valid[i]
        if n == 0:
            continue
        # Nothing is beyond NaN, and nothing inside.
        n_low = first_from(row, 0, n, low[i])
        n_upto = first_behind(row, 0, n, high[i]) if high[i] == high[i] else n
        n_high = n - n_upto
        counts[0, i], counts[1, i] = n_low, n_high
        counts[2, i] = n - first_from(row, 0, n, np.inf)
        counts[3, i] = first_behind(row, 0, n, -np.inf)
        ends[0, i], ends[1, i] = row[0], row[n - 1]
        if low[i] == low[i] and n_low < n:
            ends[2, i] = row[n_low]
        if high[i] == high[i] and n_upto > 0:
            ends[3, i] = row[n_upto - 1]
        # With what equals the last that is kept.
        kept = min(n_low, most)
        while 0 < kept < n_low and row[kept] == row[kept - 1]:
            kept += 1
        counts[4, i] = kept
        kept = min(n_high, most)
        while 0 < kept < n_high and row[n - 1 - kept] == row[n - kept]:
            kept += 1
        counts[5, i] = kept


# --- Exact sums -----------------------------------------------------------------------------------


def _sums(
    lanes: SortedLanes, n_low: IntArray, n_high: IntArray, infinite: IntArray
) -> tuple[ExactSums, Moments]:
    """What weighs below the bounds, inside and above, shape ``(n_lanes, 3)``; and the moments of
    each lane, which has so many elements that are inf and -inf."""
    rows, weights, valid = lanes.values, lanes.weights, lanes.n_valid
    assert weights is not None
    if weights.dtype != np.float64:
        return _sums_of_integers(lanes, n_low, n_high)
    sizes = (3 * TOTAL_DIGITS, TOTAL_DIGITS, SQUARE_DIGITS, CUBE_DIGITS)
    parts, *tables = (np.zeros((len(rows), size), np.int64) for size in sizes)
    _compiled(_add_rows, rows.dtype)(rows, weights, valid, n_low, n_high, parts, *tables)
    thirds = parts.reshape(len(rows), 3, TOTAL_DIGITS)
    return ExactSums.of_table(thirds, TOTAL_POINT), moments_of_tables(infinite, *tables)


def _add_rows(
    rows: Any,
    weights: Any,
    valid: Any,
    n_low: Any,
    n_high: Any,
    parts: Any,
    finite: Any,
    total: Any,
    square: Any,
) -> None:
    """Add up the elements of every row, in digits of its own."""
    held = np.empty(1, np.float64)
    for i in range(rows.shape[0]):
        first_above = valid[i] - n_high[i]
        for j in range(valid[i]):
            weight, begin, _ = whole_number(weights[i, j], held)
            part = np.int64(j >= n_low[i]) + np.int64(j >= first_above)
            add_at(parts[i], -part * TOTAL_DIGITS, np.int64(weight), begin)
            if np.isfinite(rows[i, j]):
                add_moment(rows[i, j], weight, begin, held, finite[i], total[i], square[i])


def _sums_of_integers(
    lanes: SortedLanes, n_low: IntArray, n_high: IntArray
) -> tuple[ExactSums, Moments]:
    """The same, of weights beyond 2**53: by NumPy."""
    n_lanes, valid = len(lanes.values), lanes.n_valid
    assert lanes.weights is not None
    lane, place = np.nonzero(np.arange(lanes.values.shape[1]) < valid[:, None])
    values, weights = lanes.values[lane, place], lanes.weights[lane, place]
    part = (place >= n_low[lane]).astype(np.int64) + (place >= (valid - n_high)[lane])
    sums = ExactSums.of(3 * lane + part, 3 * n_lanes, weights)
    parts = ExactSums(sums.first, sums.digits.reshape(-1, n_lanes, 3))
    return parts, Moments.of(values, lane, n_lanes, weights=weights)


@compiles
def _compiled(values: types.Array, values_out: types.Array) -> Types:
    del values_out
    rows, table = types.Array(values.dtype, 2, "A"), types.Array(values.dtype, 2, "C")
    weights = types.Array(types.float64, 2, "A")
    numbers, digits = types.Array(types.int64, 2, "C"), types.Array(types.int64, 2, "C")
    reals = types.Array(types.float64, 1, "A", readonly=True)
    places = types.Array(types.int64, 1, "A", readonly=True)
    sums = (digits, digits, digits, digits)
    return {
        _look_at_sorted: (rows, places, reals, reals, types.int64, numbers, table),
        _add_rows: (rows, weights, places, places, places, *sums),
    }
