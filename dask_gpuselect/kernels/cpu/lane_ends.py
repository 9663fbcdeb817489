"""Elements beyond the bounds of sorted lanes, weighted or not, compiled by Numba."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.moments import (
    BLOCK,
    MOST_PIECES,
    N_SUMS,
    WIDTH,
    add_at,
    cut_up,
    least_of,
    sums_of_sorted,
)
from dask_gpuselect.kernels.cpu.pairs import (
    LARGE,
    LOST,
    SMALL,
    added,
    halves,
    normal,
    over,
    scaled,
    times,
    two_product,
    two_sum,
)
from dask_gpuselect.kernels.cpu.products import (
    add_moments,
    moments_of_tables,
    room_for_block,
    whole_number,
)
from dask_gpuselect.kernels.cpu.scalars import first_behind, first_from
from dask_gpuselect.maths import lane_ends
from dask_gpuselect.maths.cuts import IntArray, extremes_of, packed
from dask_gpuselect.maths.exact_sums import (
    CUBE_DIGITS,
    SQUARE_DIGITS,
    TOTAL_DIGITS,
    TOTAL_POINT,
    ExactSums,
)
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.lane_cuts import some_lanes
from dask_gpuselect.maths.lane_ends import Bounds, LaneEnds, Measure, Outermost
from dask_gpuselect.maths.moments import Moments, RoundedMoments
from dask_gpuselect.maths.sorted_lanes import SortedLanes

MOST = 1 << 26  # elements of a lane up to which sums of pieces are floats


@until_compiled(lane_ends.ends_of_sorted)
def ends_of_sorted(
    lanes: SortedLanes, bounds: Bounds, most: int, *, are_whole: bool = False
) -> LaneEnds:
    """Collect the elements beyond the bounds of each lane; see `maths.lane_ends.ends_of_sorted`."""
    rows, weights, n_valid = lanes.values, lanes.weights, lanes.n_valid
    if weights is not None and weights.dtype.kind == "i":  # beyond 2**53
        return lane_ends.ends_of_sorted(lanes, bounds, most, are_whole=are_whole)
    counts = np.zeros((6, len(rows)), np.int64)
    ends = np.empty((4, len(rows)), rows.dtype)
    ends[::2], ends[1::2] = extremes_of(rows.dtype)[::-1]
    _ends_of_rows(rows, n_valid, *bounds, most, counts, ends)
    measures: Sequence[Measure] = (n_valid, *counts[:2])
    moments: Moments | RoundedMoments
    if weights is None:
        how = ((most, is_high, not are_whole) for is_high in (False, True))
        low, high = map(partial(_listed, rows, n_valid), how, counts[:2], counts[4:])
        if are_whole:
            moments = _rounded_moments(lanes, counts, ends)
        else:
            moments = _exact_sums(lanes, counts[:4])[1]
    else:
        measures, moments = (_rounded_sums if are_whole else _exact_sums)(lanes, counts[:4])
        low, high = (
            _outermost(lanes, measure, _places(n, start), most, is_high=is_high)
            for measure, n, start, is_high in (
                (measures[1], counts[4], np.zeros_like(n_valid), False),
                (measures[2], counts[5], n_valid - counts[5], True),
            )
        )
    numbers = n_valid, lanes.n_missing, lanes.n_left_out + lanes.n_idle, measures[0]
    least, largest, first, last = ends
    return LaneEnds(*numbers, least, largest, first, last, low, high, moments)


def _listed(
    rows: NDArray[Any], n_valid: IntArray, how: tuple[int, bool, bool], n: IntArray, rooms: IntArray
) -> Outermost:
    """List the elements beyond bounds of lanes without weights, n of each lane.

    `how` is that of `_list_outermost`: equal elements are listed as one value with their number, or
    one by one if nothing is merged later.
    """
    room = int(rooms.sum())
    elements, counts = np.empty(room, rows.dtype), np.ones(room, np.int64)
    sizes = np.zeros_like(n)
    size = _list_outermost(rows, n_valid, n, how, (sizes, counts), elements)
    return Outermost(n, sizes, unsigned_zero(elements[:size]), packed(counts[:size]))


def _outermost(
    lanes: SortedLanes,
    measure: Measure,
    places: tuple[IntArray, IntArray],
    most: int,
    *,
    is_high: bool,
) -> Outermost:
    """Return the elements at some places, and their weights."""
    assert lanes.weights is not None
    own = lanes.weights[places]
    weights = ExactSums.of(np.arange(len(own)), len(own), own)
    some = places[0], lanes.values[places], most
    return Outermost.of(measure, *some, is_high=is_high, weights=weights)


def _places(n: IntArray, start: IntArray) -> tuple[IntArray, IntArray]:
    """Return the lanes and places of n elements of each lane, from the place `start` on."""
    lane = np.repeat(np.arange(len(n)), n)
    return lane, np.arange(len(lane)) + np.repeat(start - (np.cumsum(n) - n), n)


@kernel
def _ends_of_rows(
    rows: t.StridedRows,
    n_valid: t.StridedInts,
    low: t.StridedReals,
    high: t.StridedReals,
    most: int,
    counts: t.IntTable,
    ends: t.Table,
) -> None:
    """Count the elements beyond the bounds of every row, and find its extremes.

    `counts` gets the numbers below, above, that are inf, that are -inf, and that are collected on
    both sides. `ends` gets the least and largest element, and the first and last one inside the
    bounds; they have what is beyond all elements.
    """
    for i in range(rows.shape[0]):
        row, n = rows[i], n_valid[i]
        if n == 0:
            continue
        # A bound that is NaN has no element beyond it, and no first or last one inside.
        first = first_from(row, 0, n, low[i])
        behind = first_behind(row, 0, n, high[i]) if high[i] == high[i] else n
        n_low, n_high = first, n - behind
        counts[0, i], counts[1, i] = n_low, n_high
        if row[n - 1] == np.inf:
            counts[2, i] = n - first_from(row, 0, n, np.inf)
        if row[0] == -np.inf:
            counts[3, i] = first_behind(row, 0, n, -np.inf)
        ends[0, i], ends[1, i] = row[0], row[n - 1]
        if low[i] == low[i] and first < n:
            ends[2, i] = row[first]
        if high[i] == high[i] and behind > 0:
            ends[3, i] = row[behind - 1]
        # Elements that equal the last collected one are collected too.
        size = min(n_low, most)
        while 0 < size < n_low and row[size] == row[size - 1]:
            size += 1
        counts[4, i] = size
        size = min(n_high, most)
        while 0 < size < n_high and row[n - 1 - size] == row[n - size]:
            size += 1
        counts[5, i] = size


@kernel
def _list_outermost(
    rows: t.Rows,
    n_valid: t.StridedInts,
    n_beyond: t.StridedInts,
    how: tuple[int, bool, bool],
    tables: tuple[t.Ints, t.Ints],
    elements: t.Out,
) -> int:
    """List the most extreme elements of every row, at most `most` of a side, or their values.

    `how` is `most`, whether they are the largest, and whether values are listed. `tables` gets how
    many each row has, and the number of elements of each value. Returns how many there are in all.
    """
    sizes, counts = tables
    most, is_high, by_value = how
    step = -1 if is_high else 1
    size = 0
    for i in range(rows.shape[0]):
        row, begin, left = rows[i], size, min(n_beyond[i], most)
        place = n_valid[i] - 1 if is_high else 0
        while left > 0:
            before = left
            elements[size] = row[place]
            place, left = place + step, left - 1
            while by_value and 0 <= place < n_valid[i] and row[place] == elements[size]:
                place, left = place + step, left - 1
            counts[size] = before - left
            size += 1
        sizes[i] = size - begin
    return size


# --- Moments that are rounded once ----------------------------------------------------------------


def _rounded_moments(lanes: SortedLanes, counts: IntArray, ends: NDArray[Any]) -> RoundedMoments:
    """Round the mean and deviation of lanes without weights, from exact sums in any case."""
    rows = lanes.values
    rounded, is_sure = np.full((2, len(rows)), np.nan), np.ones(len(rows), np.bool_)
    is_whole = rows.dtype.kind in "iu"
    _round_rows(rows, lanes.n_valid, counts, ends, is_whole, rounded, is_sure)
    unsure = np.flatnonzero(~is_sure)
    if len(unsure):
        exact = _exact_sums(some_lanes(lanes, unsure), counts[:4, unsure])[1]
        rounded[:, unsure] = exact.mean_and_std()
    return RoundedMoments(*rounded)


N_KNOWN = 10  # numbers of a lane from which its moments are rounded
FLOOR = 2.0**-120  # of the largest element of a lane: smaller ones are bounded, and not summed
BATCH = 64  # lanes whose sums are rounded side by side, by vector instructions


@kernel
def _round_rows(
    rows: t.Rows,
    n_valid: t.StridedInts,
    counts: t.IntTable,
    ends: t.Table,
    is_whole: bool,
    rounded: t.FloatTable,
    is_sure: t.FlagsOut,
) -> None:
    """Compute the mean and deviation of every row from the sums of pieces of its elements."""
    sums = np.empty((3, N_SUMS), np.float64)
    known = np.empty((N_KNOWN, BATCH), np.float64)
    results = np.empty((3, BATCH), np.float64)
    for first in range(0, rows.shape[0], BATCH):
        stop = min(first + BATCH, rows.shape[0])
        known[:] = 1.0
        for i in range(first, stop):
            n = n_valid[i]
            size = max(abs(np.float64(ends[0, i])), abs(np.float64(ends[1, i])))
            n_pieces, top, place = 0, 0, MOST_PIECES
            is_usual = 0 < n < MOST and not (is_whole and size >= 2.0**53)
            if is_usual and SMALL < size < LARGE:
                n_pieces = _cut_lane(rows[i, :n], size, is_whole, sums)
            total, rest, off, square, square_rest, square_off = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for j in range(n_pieces):
                total, rest, off = added(total, rest, off, sums[1, j])
                for k in range(n_pieces - j):
                    times_ = 2.0 if k else 1.0
                    square, more = two_sum(square, times_ * sums[1, place + k])
                    square_rest += more + times_ * sums[2, place + k]
                place += MOST_PIECES - j
            if is_usual and n_pieces == 0 and 0 < size < np.inf:
                part, top = math.frexp(size)
                n_pieces, least, size = 1, size * FLOOR, np.float64(part)
                total, rest, off, square, square_rest, square_off = _scaled_sums(
                    rows[i, :n], least, -top
                )
            sizes = np.float64(n), size, float(n_pieces), float(top)
            of_lane = total, rest, off, square, square_rest, *sizes, square_off
            for k in range(N_KNOWN):
                known[k, i - first] = of_lane[k]
        _round_batch(known, results)
        for i in range(first, stop):
            b = i - first
            n_above, n_below, is_same = counts[2, i], counts[3, i], ends[0, i] == ends[1, i]
            if known[5, b] == 0:
                continue
            if n_above or n_below:
                rounded[0, i] = np.nan if n_above and n_below else np.inf if n_above else -np.inf
            elif known[6, b] == 0:
                rounded[0, i] = rounded[1, i] = 0.0
            else:
                is_one = results[2, b] == 3.0 or (is_same and results[2, b] == 1.0)
                for k in range(2 if known[8, b] else 0):
                    results[k, b], is_right = scaled(results[k, b], int(known[8, b]))
                    is_one &= is_right
                rounded[0, i], rounded[1, i] = results[0, b], 0.0 if is_same else results[1, b]
                is_sure[i] = known[7, b] > 0 and is_one


@called_by_kernels
def _round_batch(known: Any, results: Any) -> None:
    """Round the means and deviations of some lanes; see `_round_rows`."""
    for b in range(BATCH):
        total, rest = normal(known[0, b], known[1, b])
        square, square_rest = normal(known[3, b], known[4, b])
        off, weight, size = known[2, b], known[5, b], known[6, b]
        _, mean, is_mean = mean_of((total, rest, off), (weight, 0.0, 0.0), size)
        # n times the sum of squares, less the squared sum, is the variance times n squared.
        square, square_rest = times(square, square_rest, weight, 0.0)
        less, less_rest = times(total, rest, total, rest)
        spread, more = two_sum(square, -less)
        spread, more = normal(spread, more + (square_rest - less_rest))
        error = 2.0**-92 * square + 4 * abs(total) * off + weight * known[9, b]
        variance, variance_rest = over(spread, more, weight * weight, 0.0)
        deviation, is_one = _root(variance, variance_rest, np.divide(error, spread))
        is_one &= spread > 2 * error
        results[0, b], results[1, b] = mean, deviation
        results[2, b] = (1.0 if is_mean else 0.0) + (2.0 if is_one else 0.0)


@called_by_kernels
def _scaled_sums(row: Any, least: Any, power: Any) -> Any:
    """Sum the elements of a lane times ``2**power``, which are less than 1, and their squares.

    Each sum is a pair of floats with an error bound. Elements smaller than `least`, which become
    less than `FLOOR`, only add to the bounds: they lie between the others.
    """
    up, more = halves(power)
    total, rest, off = 0.0, 0.0, 0.0
    square, square_rest, square_off = 0.0, 0.0, 0.0
    begin, end = 0, row.size
    while begin < end and row[begin] <= -least:
        begin += 1
    while end > begin and row[end - 1] >= least:
        end -= 1
    if begin < end and (row[begin] != 0 or row[end - 1] != 0):
        off = square_off = FLOOR * (end - begin)
    for j in range(row.size - (end - begin)):
        value = row[j if j < begin else j + end - begin] * up * more
        total, rest, off = added(total, rest, off, value)
        own, own_rest = two_product(value, value)
        square, lost = two_sum(square, own)
        square_rest += lost + own_rest
    # Of n elements, the rest is less than n * 2**-53 times the sum, and is rounded 2 * n times.
    square_off += 2.0**-105 * row.size**2 * square
    return total, rest, off, square, square_rest, square_off


@called_by_kernels
def _cut_lane(row: Any, size: Any, is_whole: Any, sums: Any) -> Any:
    """Cut the elements of a lane into pieces, and return how many of each; 0 if some do not fit.

    `size` is the largest magnitude of the elements. Rows 1 and 2 of `sums` get the sums of pieces
    and of their products as pairs of floats, which are exact.
    """
    _, top = math.frexp(size)
    n_pieces = 2 if row.itemsize < 8 or (is_whole and top < 2 * WIDTH) else 3
    while True:
        least = 0.0 if is_whole else least_of(row, top, n_pieces)
        sums[1:] = 0.0
        n_fit = 0
        for start in range(0, row.size, BLOCK):
            run = row[start : min(start + BLOCK, row.size)]
            n_fit += cut_up(run, top, n_pieces, least, sums[0])
            for k in range(N_SUMS):
                sums[1, k], more = two_sum(sums[1, k], sums[0, k])
                sums[2, k] += more
        if n_fit < row.size:  # zeros add nothing, and do not count
            for j in range(row.size):
                n_fit += row[j] == 0
        if n_fit == row.size:
            return n_pieces
        if n_pieces == MOST_PIECES:
            return 0
        n_pieces = MOST_PIECES


# --- Weighted sums that are rounded once ----------------------------------------------------------


def _rounded_sums(lanes: SortedLanes, counts: IntArray) -> tuple[Sequence[Measure], RoundedMoments]:
    """Sum weighted lanes as `_exact_sums` does, rounded to floats.

    The sums are pairs of floats, or exact where a pair might round to the wrong float.
    """
    rows, weights, n_valid = lanes.values, lanes.weights, lanes.n_valid
    sums_, is_sure = np.zeros((5, len(rows))), np.ones(len(rows), np.bool_)
    is_whole = rows.dtype.kind in "iu"
    _summarize(rows, weights, n_valid, counts, is_whole, sums_, is_sure)
    unsure = np.flatnonzero(~is_sure)
    if len(unsure):
        sums, moments = _exact_sums(some_lanes(lanes, unsure), counts[:, unsure])
        sums_[3:, unsure] = moments.mean_and_std()
        sums_[:3, unsure] = [each.rounded() for each in sums if isinstance(each, ExactSums)]
    return tuple(sums_[:3]), RoundedMoments(sums_[3], sums_[4])


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
    """Compute the mean and deviation of every row, and its weights in all and beyond the bounds."""
    for i in range(rows.shape[0]):
        row, n = rows[i], n_valid[i]
        sums_[3, i] = sums_[4, i] = np.nan
        if n == 0:
            continue
        stops = (counts[0, i], n - counts[1, i], n)
        weight, rest, weight_off, begin = 0.0, 0.0, 0.0, 0
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
        total = _weighed_total(row, weights[i], n)
        pair = weight, rest, weight_off
        mean, sums_[3, i], is_one = mean_of(total, pair, size)
        is_sure[i] &= is_one
        if row[0] == row[n - 1]:
            sums_[4, i] = 0.0
            continue
        sums_[4, i], is_one = _deviation(row, weights[i], n, mean, pair)
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
def _weighed_total(row: Any, weights: Any, n: int) -> Any:
    """Sum the elements times their weights as a pair of floats; also return an error bound."""
    total, rest, off = 0.0, 0.0, 0.0
    for j in range(n):
        value, more = two_product(np.float64(row[j]), weights[j])
        if row[j] != 0 and abs(value) < 2.0**-960:
            # The product may lose bits below the smallest float.
            off += 2.0**-1000
        total, rest, off = added(total, rest, off, value)
        rest, least = two_sum(rest, more)
        off += abs(least)
    total, rest = normal(total, rest)
    return total, rest, off


@called_by_kernels
def mean_of(total: Any, weight: Any, size: Any) -> Any:
    """Compute the mean: as a pair with an error bound, rounded, and whether that is correct.

    `total` and `weight` are pairs of floats with error bounds, and `size` is the largest magnitude
    of the elements. There are no branches, so that lanes are divided side by side.
    """
    total, total_rest, off = total
    weight, rest, weight_off = weight
    mean, mean_rest = over(total, total_rest, weight, rest)
    error = size * 16 * LOST + np.divide(2 * off + 2 * size * weight_off, weight)
    least, most = mean + (mean_rest - error), mean + (mean_rest + error)
    # If the quotient of the two sums is exactly a pair of floats, its rounding is known. That
    # covers zeros, and means halfway between two floats, which no error bound decides.
    first = np.divide(total, weight)
    high, low = two_product(first, weight)
    left, lost = two_sum(total - high, -low)
    left, more = two_sum(left, total_rest)
    second = np.divide(left, weight)
    high, low = two_product(second, weight)
    is_known = (lost == 0) & (more == 0) & (high == left) & (low == 0)
    is_known &= (off == 0) & (weight_off == 0) & (rest == 0)
    is_known &= (abs(first) > 2.0**-900) | (total == 0)
    is_proven = least == most
    is_sure = (is_proven & (abs(mean) > 2.0**-900)) | (is_known & (not is_proven))
    return (mean, mean_rest, error), (first + second if is_known else least), is_sure


@called_by_kernels
def _deviation(row: Any, weights: Any, n: int, mean: Any, weight: Any) -> Any:
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
        own, own_rest = times(own, own_rest, weights[j], 0.0)
        square, more = two_sum(square, own)
        square_rest += more + own_rest
    square, square_rest = normal(square, square_rest)
    if not square > 2.0**-500:
        return np.nan, False
    variance, variance_rest = over(square, square_rest, weight, rest)
    error = (16.0 + n) * (16.0 + n) * LOST + weight_off / weight + weight * off * off / square
    return _root(variance, variance_rest, error)


@called_by_kernels
def _root(variance: Any, variance_rest: Any, error: Any) -> Any:
    """Round the root of a pair once, and return whether that is correct.

    `error` bounds the relative error of the pair.
    """
    error += 16 * LOST
    root = np.sqrt(variance)
    high, low = two_product(root, root)
    root_rest = np.divide(((variance - high) - low) + variance_rest, 2 * root)
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
    one, room = np.empty(1, np.float64), room_for_block()
    for i in range(rows.shape[0]):
        first_above = valid[i] - n_high[i]
        for j in range(valid[i]):
            weight, begin, _ = whole_number(weights[i, j], one)
            part = np.int64(j >= n_low[i]) + np.int64(j >= first_above)
            add_at(parts[i], -part * TOTAL_DIGITS, np.int64(weight), begin)
        n = valid[i]
        add_moments(rows[i, :n], weights[i, :n], (finite[i], total[i], square[i]), room)
