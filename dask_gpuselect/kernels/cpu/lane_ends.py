"""Elements beyond the bounds of sorted lanes, weighted or not, compiled by Numba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_gpuselect.kernels.compiling import (
    Types,
    called_by_kernels,
    compiles,
    types,
    until_compiled,
)
from dask_gpuselect.kernels.cpu.moments import add_at, sums_of_sorted
from dask_gpuselect.kernels.cpu.pairs import (
    LARGE,
    LOST,
    SMALL,
    normal,
    over,
    times,
    two_product,
    two_sum,
)
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
from dask_gpuselect.maths.lane_cuts import some_lanes
from dask_gpuselect.maths.lane_ends import Bounds, LaneEnds, Measure, Outermost
from dask_gpuselect.maths.moments import Moments, RoundedMoments
from dask_gpuselect.maths.sorted_lanes import SortedLanes

SHORT = 100
"""Length of lanes up to which sums are rounded lane by lane. Box plots of lanes of 24 elements take
40 ns an element then, and 65 with exact sums of all lanes. Lanes of 365 take 31 ns that way, and 16
with exact sums."""


@until_compiled(lane_ends.ends_of_sorted)
def ends_of_sorted(
    lanes: SortedLanes, bounds: Bounds, most: int, *, are_whole: bool = False
) -> LaneEnds:
    """Collect the elements beyond the bounds of each lane; see `maths.lane_ends.ends_of_sorted`."""
    rows, n_valid = lanes.values, lanes.n_valid
    if lanes.weights is not None and lanes.weights.dtype.kind == "i":  # beyond 2**53
        return lane_ends.ends_of_sorted(lanes, bounds, most, are_whole=are_whole)
    counts = np.zeros((6, len(rows)), np.int64)
    ends = np.empty((4, len(rows)), rows.dtype)
    ends[::2], ends[1::2] = extremes_of(rows.dtype)[::-1]
    given = n_valid, bounds.low, bounds.high, most
    _compiled(_ends_of_sorted_rows, rows.dtype)(rows, *given, counts, ends)
    is_short = lanes.weights is not None or rows.shape[1] <= SHORT
    sums_of = _rounded_sums if are_whole and is_short else _exact_sums
    measures, moments = sums_of(lanes, counts[:4])
    low, high = (
        _outermost(lanes, measure, _places(kept, start), most, is_high=is_high)
        for measure, kept, start, is_high in (
            (measures[1], counts[4], np.zeros_like(n_valid), False),
            (measures[2], counts[5], n_valid - counts[5], True),
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
    """Return the elements at some places, and their weights."""
    weights = None
    if lanes.weights is not None:
        own = lanes.weights[places]
        weights = ExactSums.of(np.arange(len(own)), len(own), own)
    some = places[0], lanes.values[places], most
    return Outermost.of(measure, *some, is_high=is_high, weights=weights)


def _places(kept: IntArray, start: IntArray) -> tuple[IntArray, IntArray]:
    """Return the lanes and places of `kept` elements of each lane, from the place `start` on."""
    lane = np.repeat(np.arange(len(kept)), kept)
    return lane, np.arange(len(lane)) + np.repeat(start - (np.cumsum(kept) - kept), kept)


def _ends_of_sorted_rows(
    rows: Any, valid: Any, low: Any, high: Any, most: int, counts: Any, ends: Any
) -> None:
    """Count the elements beyond the bounds of every row, and find its extremes.

    `counts` gets the numbers below, above, that are inf, that are -inf, and that are collected on
    both sides. `ends` gets the least and largest element, and the first and last one inside the
    bounds.
    """
    for i in range(rows.shape[0]):
        row, n = rows[i], valid[i]
        if n == 0:
            continue
        # A bound that is NaN has no element beyond it, and no first or last one inside.
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
        # Elements that equal the last collected one are collected too.
        kept = min(n_low, most)
        while 0 < kept < n_low and row[kept] == row[kept - 1]:
            kept += 1
        counts[4, i] = kept
        kept = min(n_high, most)
        while 0 < kept < n_high and row[n - 1 - kept] == row[n - kept]:
            kept += 1
        counts[5, i] = kept


# --- Sums that are rounded once -------------------------------------------------------------------


def _rounded_sums(lanes: SortedLanes, counts: IntArray) -> tuple[Sequence[Measure], RoundedMoments]:
    """Sum lanes as `_exact_sums` does, rounded to floats.

    The sums are pairs of floats, or exact where a pair might round to the wrong float.
    """
    rows, weights, n_valid = lanes.values, lanes.weights, lanes.n_valid
    own = np.empty((0, rows.shape[1])) if weights is None else weights
    found, is_sure = np.zeros((5, len(rows))), np.ones(len(rows), np.bool_)
    is_whole = rows.dtype.kind in "iu"
    _compiled(_summarize, rows.dtype)(rows, own, n_valid, counts, is_whole, found, is_sure)
    unsure = np.flatnonzero(~is_sure)
    if len(unsure):
        sums, moments = _exact_sums(some_lanes(lanes, unsure), counts[:, unsure])
        found[3:, unsure] = moments.mean_and_std()
        if weights is not None:
            found[:3, unsure] = [each.rounded() for each in sums if isinstance(each, ExactSums)]
    rounded = RoundedMoments(found[3], found[4])
    return (n_valid, *counts[:2]) if weights is None else tuple(found[:3]), rounded


def _summarize(
    rows: Any, weights: Any, n_valid: Any, counts: Any, is_whole: bool, found: Any, is_sure: Any
) -> None:
    """Compute the mean and deviation of every row, and its weights in all and beyond the bounds.

    Elements without weights count as weight 1.
    """
    weighs = weights.shape[0] > 0
    for i in range(rows.shape[0]):
        row, n = rows[i], n_valid[i]
        found[3, i] = found[4, i] = np.nan
        if n == 0:
            continue
        weight, rest, weight_off = 1.0 * n, 0.0, 0.0
        if weighs:
            stops = (counts[0, i], n - counts[1, i], n)
            weight, begin = 0.0, 0
            for k in range(3):
                part, part_rest, part_off = _added_up(weights[i], begin, stops[k])
                begin = stops[k]
                if k != 1:
                    found[1 if k == 0 else 2, i] = part + part_rest
                    is_sure[i] &= part + (part_rest - part_off) == part + (part_rest + part_off)
                weight_off += part_off
                rest, more = two_sum(rest, part_rest)
                weight, part = two_sum(weight, part)
                rest, least = two_sum(rest, part)
                weight_off += abs(more) + abs(least)
            weight, rest = normal(weight, rest)
            found[0, i] = weight
            is_sure[i] &= weight + (rest - weight_off) == weight + (rest + weight_off)
        n_above, n_below = counts[2, i], counts[3, i]
        if n_above or n_below:
            found[3, i] = np.nan if n_above and n_below else np.inf if n_above else -np.inf
            continue
        size = max(abs(np.float64(row[0])), abs(np.float64(row[n - 1])))
        if size == 0:
            found[3, i] = found[4, i] = 0.0
            continue
        is_usual = SMALL < size < LARGE and SMALL < weight < LARGE
        if not is_usual or (is_whole and size >= 2.0**53):
            is_sure[i] = False
            continue
        total, total_rest, off = _weighed_total(row, weights, i, n, weighs)
        mean, mean_rest, found[3, i], off, is_one = _mean(
            total, total_rest, off, weight, rest, weight_off, size
        )
        is_sure[i] &= is_one
        if row[0] == row[n - 1]:
            found[4, i] = 0.0
            continue
        found[4, i], is_one = _deviation(
            row, weights, i, n, weighs, mean, mean_rest, off, weight, rest, weight_off
        )
        is_sure[i] &= is_one


@called_by_kernels
def _added_up(weights: Any, start: int, stop: int) -> Any:
    """Sum some weights as a pair of floats; also return an error bound, which mostly is 0."""
    total, rest, off = 0.0, 0.0, 0.0
    for j in range(start, stop):
        total, more = two_sum(total, weights[j])
        rest, least = two_sum(rest, more)
        off += abs(least)
    total, rest = normal(total, rest)
    return total, rest, off


@called_by_kernels
def _weighed_total(row: Any, weights: Any, i: int, n: int, weighs: bool) -> Any:
    """Sum the elements times their weights as a pair of floats; also return an error bound."""
    total, rest, off = 0.0, 0.0, 0.0
    for j in range(n):
        value, more = np.float64(row[j]), 0.0
        if weighs:
            value, more = two_product(value, weights[i, j])
            if row[j] != 0 and abs(value) < 2.0**-960:
                # The product may lose bits below the smallest float.
                off += 2.0**-1000
        total, lower = two_sum(total, value)
        rest, least = two_sum(rest, lower)
        off += abs(least)
        rest, least = two_sum(rest, more)
        off += abs(least)
    total, rest = normal(total, rest)
    return total, rest, off


@called_by_kernels
def _mean(
    total: Any, total_rest: Any, off: Any, weight: Any, rest: Any, weight_off: Any, size: Any
) -> Any:
    """Compute the mean, as a pair and rounded, an error bound, and whether it is rounded correctly.

    `size` is the largest magnitude of the elements.
    """
    mean, mean_rest = over(total, total_rest, weight, rest)
    error = size * 16 * LOST
    if off or weight_off:
        error += (2 * off + 2 * size * weight_off) / weight
    least, most = mean + (mean_rest - error), mean + (mean_rest + error)
    if least == most:
        return mean, mean_rest, least, error, abs(mean) > 2.0**-900
    if off or weight_off or rest:
        return mean, mean_rest, least, error, False
    # If the quotient of the two sums is exactly a pair of floats, its rounding is known. That
    # covers zeros, and means halfway between two floats, which no error bound decides.
    first = total / weight
    high, low = two_product(first, weight)
    left, lost = two_sum(total - high, -low)
    left, more = two_sum(left, total_rest)
    second = left / weight
    high, low = two_product(second, weight)
    is_known = lost == 0 and more == 0 and high == left and low == 0
    is_usual = abs(first) > 2.0**-900 or total == 0
    return mean, mean_rest, first + second, error, is_known and is_usual


@called_by_kernels
def _deviation(
    row: Any,
    weights: Any,
    i: int,
    n: int,
    weighs: bool,
    mean: Any,
    mean_rest: Any,
    off: Any,
    weight: Any,
    rest: Any,
    weight_off: Any,
) -> Any:
    """Compute the standard deviation, and whether it is proven to be rounded correctly.

    Distances from a mean with an error e have a sum of squares that is too large by the weight
    times e**2.
    """
    square, square_rest = 0.0, 0.0
    for j in range(n):
        distance, lower = two_sum(np.float64(row[j]), -mean)
        distance, lower = normal(distance, lower - mean_rest)
        own, own_rest = two_product(distance, distance)
        own_rest += 2 * distance * lower
        if weighs:
            own, own_rest = times(own, own_rest, weights[i, j], 0.0)
        square, more = two_sum(square, own)
        square_rest += more + own_rest
    square, square_rest = normal(square, square_rest)
    if not square > 2.0**-500:
        return np.nan, False
    variance, variance_rest = over(square, square_rest, weight, rest)
    error = (16.0 + n) * (16.0 + n) * LOST + weight_off / weight + weight * off * off / square
    root = np.sqrt(variance)
    high, low = two_product(root, root)
    root_rest = (((variance - high) - low) + variance_rest) / (2 * root)
    least, most = root + (root_rest - error * root), root + (root_rest + error * root)
    return least, least == most


# --- Exact sums -----------------------------------------------------------------------------------


def _exact_sums(lanes: SortedLanes, counts: IntArray) -> tuple[Sequence[Measure], Moments]:
    """Sum each lane exactly: its measures in all, below and above the bounds, and its moments.

    `counts` holds the numbers of elements below, above, that are inf and that are -inf.
    """
    rows, weights, n_valid = lanes.values, lanes.weights, lanes.n_valid
    n_low, n_high, n_above, n_below = counts
    if weights is None:
        sums = sums_of_sorted(rows, n_below, n_valid - n_above)
        moments = Moments(n_valid - n_above - n_below, n_above, n_below, *sums)
        return (n_valid, n_low, n_high), moments
    sizes = (3 * TOTAL_DIGITS, TOTAL_DIGITS, SQUARE_DIGITS, CUBE_DIGITS)
    digits, *tables = (np.zeros((len(rows), size), np.int64) for size in sizes)
    _compiled(_add_rows, rows.dtype)(rows, weights, n_valid, n_low, n_high, digits, *tables)
    parts = ExactSums.of_table(digits.reshape(len(rows), 3, TOTAL_DIGITS), TOTAL_POINT)
    moments = moments_of_tables(counts[2:], *tables)
    return (ExactSums.sum([parts[:, i] for i in range(3)]), parts[:, 0], parts[:, 2]), moments


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
    """Add the elements of every row to digits of its own."""
    held = np.empty(1, np.float64)
    for i in range(rows.shape[0]):
        first_above = valid[i] - n_high[i]
        for j in range(valid[i]):
            weight, begin, _ = whole_number(weights[i, j], held)
            part = np.int64(j >= n_low[i]) + np.int64(j >= first_above)
            add_at(parts[i], -part * TOTAL_DIGITS, np.int64(weight), begin)
            if np.isfinite(rows[i, j]):
                add_moment(rows[i, j], weight, begin, held, finite[i], total[i], square[i])


@compiles
def _compiled(values: types.Array, values_out: types.Array) -> Types:
    del values_out
    rows, table = types.Array(values.dtype, 2, "A"), types.Array(values.dtype, 2, "C")
    weights = types.Array(types.float64, 2, "A")
    numbers, digits = types.Array(types.int64, 2, "C"), types.Array(types.int64, 2, "C")
    reals = types.Array(types.float64, 1, "A", readonly=True)
    places = types.Array(types.int64, 1, "A", readonly=True)
    sums = (digits, digits, digits, digits)
    counts = types.Array(types.int64, 2, "A", readonly=True)
    table_of_reals, flags = types.Array(types.float64, 2, "C"), types.Array(types.boolean, 1, "C")
    return {
        _ends_of_sorted_rows: (rows, places, reals, reals, types.int64, numbers, table),
        _add_rows: (rows, weights, places, places, places, *sums),
        _summarize: (rows, weights, places, counts, types.boolean, table_of_reals, flags),
    }
