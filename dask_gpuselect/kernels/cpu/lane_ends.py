"""Elements beyond the bounds of sorted lanes, weighted or not, compiled by Numba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.moments import add_at, sums_of_sorted
from dask_gpuselect.kernels.cpu.pairs import (
    LARGE,
    LOST,
    SMALL,
    added,
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
    _ends_of_sorted_rows(rows, n_valid, bounds.low, bounds.high, most, counts, ends)
    is_short = lanes.weights is not None or rows.shape[1] <= SHORT
    sums_of = _rounded_sums if are_whole and is_short else _exact_sums
    measures, moments = sums_of(lanes, counts[:4])
    low, high = (
        _outermost(lanes, measure, _places(n, start), most, is_high=is_high)
        for measure, n, start, is_high in (
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


def _places(n: IntArray, start: IntArray) -> tuple[IntArray, IntArray]:
    """Return the lanes and places of n elements of each lane, from the place `start` on."""
    lane = np.repeat(np.arange(len(n)), n)
    return lane, np.arange(len(lane)) + np.repeat(start - (np.cumsum(n) - n), n)


@kernel
def _ends_of_sorted_rows(
    rows: t.StridedRows,
    valid: t.StridedInts,
    low: t.StridedReals,
    high: t.StridedReals,
    most: int,
    counts: t.IntTable,
    ends: t.Table,
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
        size = min(n_low, most)
        while 0 < size < n_low and row[size] == row[size - 1]:
            size += 1
        counts[4, i] = size
        size = min(n_high, most)
        while 0 < size < n_high and row[n - 1 - size] == row[n - size]:
            size += 1
        counts[5, i] = size


# --- Sums that are rounded once -------------------------------------------------------------------


def _rounded_sums(lanes: SortedLanes, counts: IntArray) -> tuple[Sequence[Measure], RoundedMoments]:
    """Sum lanes as `_exact_sums` does, rounded to floats.

    The sums are pairs of floats, or exact where a pair might round to the wrong float.
    """
    rows, weights, n_valid = lanes.values, lanes.weights, lanes.n_valid
    own = np.empty((0, rows.shape[1])) if weights is None else weights
    sums_, is_sure = np.zeros((5, len(rows))), np.ones(len(rows), np.bool_)
    is_whole = rows.dtype.kind in "iu"
    _summarize(rows, own, n_valid, counts, is_whole, sums_, is_sure)
    unsure = np.flatnonzero(~is_sure)
    if len(unsure):
        sums, moments = _exact_sums(some_lanes(lanes, unsure), counts[:, unsure])
        sums_[3:, unsure] = moments.mean_and_std()
        if weights is not None:
            sums_[:3, unsure] = [each.rounded() for each in sums if isinstance(each, ExactSums)]
    rounded = RoundedMoments(sums_[3], sums_[4])
    return (n_valid, *counts[:2]) if weights is None else tuple(sums_[:3]), rounded


@kernel
def _summarize(
    rows: t.StridedRows,
    weights: t.StridedRealRows,
    n_valid: t.StridedInts,
    counts: t.StridedIntRows,
    is_whole: bool,
    sums_: t.FloatTable,
    is_sure: t.FlagsOut,
) -> None:
    """Compute the mean and deviation of every row, and its weights in all and beyond the bounds.

    Elements without weights count as weight 1.
    """
    weighs = weights.shape[0] > 0
    for i in range(rows.shape[0]):
        row, n = rows[i], n_valid[i]
        sums_[3, i] = sums_[4, i] = np.nan
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
                    sums_[1 if k == 0 else 2, i] = part + part_rest
                    is_sure[i] &= part + (part_rest - part_off) == part + (part_rest + part_off)
                weight_off += part_off
                rest, more = two_sum(rest, part_rest)
                weight, part = two_sum(weight, part)
                rest, least = two_sum(rest, part)
                weight_off += abs(more) + abs(least)
            weight, rest = normal(weight, rest)
            sums_[0, i] = weight
            is_sure[i] &= weight + (rest - weight_off) == weight + (rest + weight_off)
        n_above, n_below = counts[2, i], counts[3, i]
        if n_above or n_below:
            sums_[3, i] = np.nan if n_above and n_below else np.inf if n_above else -np.inf
            continue
        size = max(abs(np.float64(row[0])), abs(np.float64(row[n - 1])))
        if size == 0:
            sums_[3, i] = sums_[4, i] = 0.0
            continue
        is_usual = SMALL < size < LARGE and SMALL < weight < LARGE
        if not is_usual or (is_whole and size >= 2.0**53):
            is_sure[i] = False
            continue
        total = _weighed_total(row, weights, i, n, weighs)
        pair = weight, rest, weight_off
        mean, sums_[3, i], is_one = _mean(total, pair, size)
        is_sure[i] &= is_one
        if row[0] == row[n - 1]:
            sums_[4, i] = 0.0
            continue
        sums_[4, i], is_one = _deviation(row, weights, i, n, weighs, mean, pair)
        is_sure[i] &= is_one


@called_by_kernels
def _added_up(weights: Any, start: int, stop: int) -> Any:
    """Sum some weights as a pair of floats; also return an error bound, which mostly is 0."""
    total, rest, off = 0.0, 0.0, 0.0
    for j in range(start, stop):
        total, rest, off = added(total, rest, off, weights[j])
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
        total, rest, off = added(total, rest, off, value)
        rest, least = two_sum(rest, more)
        off += abs(least)
    total, rest = normal(total, rest)
    return total, rest, off


@called_by_kernels
def _mean(total: Any, weight: Any, size: Any) -> Any:
    """Compute the mean: as a pair with an error bound, rounded, and whether that is correct.

    `total` and `weight` are pairs of floats with error bounds, and `size` is the largest magnitude
    of the elements.
    """
    total, total_rest, off = total
    weight, rest, weight_off = weight
    mean, mean_rest = over(total, total_rest, weight, rest)
    error = size * 16 * LOST
    if off or weight_off:
        error += (2 * off + 2 * size * weight_off) / weight
    least, most = mean + (mean_rest - error), mean + (mean_rest + error)
    if least == most:
        return (mean, mean_rest, error), least, abs(mean) > 2.0**-900
    if off or weight_off or rest:
        return (mean, mean_rest, error), least, False
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
    return (mean, mean_rest, error), first + second, is_known and is_usual


@called_by_kernels
def _deviation(row: Any, weights: Any, i: int, n: int, weighs: bool, mean: Any, weight: Any) -> Any:
    """Compute the standard deviation, and whether it is proven to be rounded correctly.

    Distances from a mean with an error e have a sum of squares that is too large by the weight
    times e**2.
    """
    mean, mean_rest, off = mean
    weight, rest, weight_off = weight
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
    _add_rows(rows, weights, (n_valid, n_low, n_high), (digits, *tables))
    parts = ExactSums.of_table(digits.reshape(len(rows), 3, TOTAL_DIGITS), TOTAL_POINT)
    moments = moments_of_tables(counts[2:], *tables)
    return (ExactSums.sum([parts[:, i] for i in range(3)]), parts[:, 0], parts[:, 2]), moments


@kernel
def _add_rows(
    rows: t.StridedRows,
    weights: t.StridedRealRows,
    counts: tuple[t.StridedInts, t.StridedInts, t.StridedInts],
    digits: tuple[t.IntTable, t.IntTable, t.IntTable, t.IntTable],
) -> None:
    """Add the elements of every row to digits of its own."""
    valid, n_low, n_high = counts
    parts, finite, total, square = digits
    one = np.empty(1, np.float64)
    for i in range(rows.shape[0]):
        first_above = valid[i] - n_high[i]
        for j in range(valid[i]):
            weight, begin, _ = whole_number(weights[i, j], one)
            part = np.int64(j >= n_low[i]) + np.int64(j >= first_above)
            add_at(parts[i], -part * TOTAL_DIGITS, np.int64(weight), begin)
            if np.isfinite(rows[i, j]):
                add_moment(rows[i, j], weight, begin, one, finite[i], total[i], square[i])
