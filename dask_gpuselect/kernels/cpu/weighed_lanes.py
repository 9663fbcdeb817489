"""Weighted lanes, compiled by Numba: sorted with their weights, and the quantiles found in them.

Sums of weights are pairs of floats, and mostly exact. Where a pair cannot decide the answer,
`maths.lane_weights` does, in integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import (
    by_types,
    called_by_kernels,
    kernel,
    kernel_of,
    types,
    until_compiled,
)
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.bits import key_of, last_bit
from dask_gpuselect.kernels.cpu.moments import plus_product
from dask_gpuselect.kernels.cpu.pairs import (
    LARGE,
    LOST,
    SMALL,
    added,
    normal,
    over,
    plus,
    times,
    two_product,
    two_sum,
)
from dask_gpuselect.kernels.cpu.scalars import first_behind, first_from, insert
from dask_gpuselect.maths import lane_weights
from dask_gpuselect.maths.exact_sums import taken
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.lane_weights import TYPE_7, WantedQuantiles
from dask_gpuselect.maths.sorted_lanes import SortedLanes, leave_out_missing
from dask_gpuselect.maths.weights import check_some_weigh

NARROW = 1 << 12
"""Length of lanes up to which keys of elements of four bytes have room for enough bits of these."""

MOVES = 8  # places an element of a lane may move, on average, until the lane is sorted otherwise


# --- Sorting lanes with their weights -------------------------------------------------------------


@until_compiled(SortedLanes.weighed)
def sorted_with_weights(
    values: NDArray[Any], weights: NDArray[Any], keeps: NDArray[np.bool_] | None = None
) -> SortedLanes:
    """Sort tables of lanes with their weights; see `SortedLanes.weighed`.

    `weights` may have one row for all lanes.

    Keys are sorted that also hold the places of the elements: as many of the highest bits in which
    the elements of a lane differ as there is room for. The rest of the order is mended, which
    mostly moves few elements. So 365 float32 take 4 ns an element, where sorting the places and
    taking elements and weights by them takes 25.
    """
    n_lanes, n = values.shape
    if values.dtype.kind in "mM" or weights.dtype.kind == "i":
        return SortedLanes.weighed(values, weights, keeps)
    n_left_out = np.zeros(n_lanes, np.int64)
    if keeps is not None:
        n_left_out += n - np.count_nonzero(keeps, axis=1)
        weights = weights * keeps
    dtype = values.dtype
    if n > NARROW and 8 * dtype.itemsize + n.bit_length() > 32:
        dtype = np.dtype(f"{dtype.kind}8")
    elements, size = values.astype(dtype, copy=False), dtype.itemsize
    keys, shifts = np.empty((n_lanes, n), f"u{max(size, 4)}"), np.empty(n_lanes, np.int64)
    n_valid, n_missing = counts = np.empty((2, n_lanes), np.int64)
    given = elements, weights
    _make_keys(given, elements.view(f"i{size}"), keys, shifts, counts)
    keys.sort(axis=1)
    ordered, is_sorted = (np.empty_like(elements), np.empty((n_lanes, n))), np.empty(n_lanes, "?")
    _by_keys(given, keys, shifts, n_valid, ordered, is_sorted)
    left = np.flatnonzero(~is_sorted)
    if left.size:
        some = SortedLanes.weighed(elements[left], weights if len(weights) == 1 else weights[left])
        ordered[0][left], ordered[1][left] = some.values, some.weights
    leave_out_missing(n_left_out, n_valid + n_missing, values, keeps)
    in_order = ordered[0].astype(values.dtype, copy=False)
    return SortedLanes(in_order, n_valid, n_missing, n_left_out, ordered[1])


Given = tuple[t.Table, t.FloatTable]
"""Elements and weights of lanes; the weights may have one row for all of them."""

NONE = np.uint64(2**64 - 1)


@called_by_kernels
def _bits_of_places(n: Any) -> Any:
    """Return how many bits hold a place among n, so that no place has all of them set."""
    return last_bit(np.uint64(n)) + 1 if n else 1


@kernel_of("f8 i8 u8 f4 i4 i2 i1 u4 u2 u1")
def _make_keys(
    given: Given, bits: t.BitTable, keys: t.WordTable, shifts: t.Ints, counts: t.IntTable
) -> None:
    """Write integers nearly in the order of the elements, with the place of each in the last bits.

    The keys of elements that are not valid or have no weight come last. `counts` gets the numbers
    of valid and missing elements that have one, and `shifts` how many bits the keys of a lane lack.
    """
    values, weights = given
    n = values.shape[1]
    n_bits = _bits_of_places(n)
    room = 8 * keys.itemsize - n_bits
    for i in range(values.shape[0]):
        own = weights[min(i, weights.shape[0] - 1)]
        least, shift = np.uint64(0), np.uint64(0)
        if room < 8 * values.itemsize:
            least, most = NONE, np.uint64(0)
            for j in range(n):
                value = values[i, j]
                takes = (own[j] > 0) & (value == value)
                key = key_of(value, bits[i, j])
                least = min(least, key if takes else NONE)
                most = max(most, key if takes else np.uint64(0))
            width = last_bit(most - least) + 1 if most > least else 0
            shift = np.uint64(max(width - room, 0))
        shifts[i] = shift
        n_weighing, n_valid = 0, 0
        for j in range(n):
            value, weighs = values[i, j], own[j] > 0
            takes = weighs & (value == value)
            n_weighing += weighs
            n_valid += takes
            key = (key_of(value, bits[i, j]) - least) >> shift
            keys[i, j] = key << np.uint64(n_bits) | np.uint64(j) if takes else NONE
        counts[0, i], counts[1, i] = n_valid, n_weighing - n_valid


@kernel_of("f8 i8 u8 f4 i4 i2 i1 u4 u2 u1")
def _by_keys(
    given: Given,
    keys: t.WordTable,
    shifts: t.Ints,
    n_valid: t.StridedInts,
    ordered: Given,
    is_sorted: t.FlagsOut,
) -> None:
    """Write elements and weights in the order of their keys, and mend it where keys lack bits.

    Lanes for which that takes long are left.
    """
    values, weights = given
    elements, own = ordered
    mask = keys.dtype.type((1 << _bits_of_places(values.shape[1])) - 1)
    for i in range(keys.shape[0]):
        n, of_lane = n_valid[i], weights[min(i, weights.shape[0] - 1)]
        for j in range(n):  # one table at a time is faster
            elements[i, j] = values[i, keys[i, j] & mask]
        for j in range(n):
            own[i, j] = of_lane[keys[i, j] & mask]
        elements[i, n:], own[i, n:] = 0, 0
        is_sorted[i] = shifts[i] == 0 or insert(elements[i], own[i], n, MOVES * n)


# --- Quantiles ------------------------------------------------------------------------------------


@until_compiled(lane_weights.pick)
def pick(lanes: SortedLanes, wanted: WantedQuantiles) -> Lanes:
    """Find weighted quantiles in sorted lanes; see `maths.lane_weights.pick`."""
    assert lanes.weights is not None
    if lanes.weights.dtype.kind == "i" or not lanes.values.size:
        return lane_weights.pick(lanes, wanted)
    check_some_weigh(lanes)
    values, dtype = lanes.values, lanes.values.dtype
    q = np.array(wanted.q, np.float64)
    given = values, lanes.weights, lanes.n_valid
    shape = (2, len(values), len(q))
    is_sure = np.ones(shape[1:], np.bool_)
    if wanted.method == TYPE_7:
        means = np.zeros(shape[1:])
        kinds = wanted.dtype.itemsize == 4, dtype.kind in "iu"
        _average(given, q, *kinds, means, is_sure)
        with np.errstate(over="ignore"):
            lower = upper = means.astype(wanted.dtype)
            if wanted.dtype.itemsize == 2:  # float16 is rounded twice
                beside = (np.nextafter(means, end).astype("f2") for end in (-np.inf, np.inf))
                is_sure &= np.equal(*beside)
    else:
        places = np.zeros(shape, np.int64)
        _reach(given, q, places, is_sure)
        lower = taken(values, places[0])
        upper = lower if wanted.method == "inverted_cdf" else taken(values, places[1])
    return lane_weights.decided(lanes, wanted, lower, upper, is_sure)


Weighed = tuple[t.Table, t.FloatTable, t.StridedInts]
"""Sorted elements, their weights, and the number of valid ones of each lane."""


@called_by_kernels
def _add_up(weights: Any, n: int, high: Any, low: Any) -> Any:
    """Sum the weights up to each element; return an error bound, which mostly is 0."""
    total, rest, lost = 0.0, 0.0, 0.0
    for j in range(n):
        total, rest, lost = added(total, rest, lost, weights[j])
        high[j], low[j] = normal(total, rest)
    return lost


@kernel
def _reach(given: Weighed, q: t.Floats, places: t.IntStack, is_sure: t.FlagTable) -> None:
    """Find where sums of weights reach the shares of q, and where they exceed them.

    Sums and shares are rounded to 53 bits.
    """
    values, weights, n_valid = given
    high, low = np.empty(weights.shape[1]), np.empty(weights.shape[1])
    for i in range(values.shape[0]):
        n = n_valid[i]
        if n == 0:
            continue
        lost = _add_up(weights[i], n, high, low)
        weight, rest = high[n - 1], low[n - 1]
        is_usual = SMALL < weight < LARGE
        for k in range(q.size):
            if q[k] == 0 or q[k] == 1:
                places[0, i, k] = places[1, i, k] = n - 1 if q[k] else 0
                continue
            share, more = two_product(q[k], weight)
            off = (abs(more) + abs(q[k] * rest)) * 2.0**-52 if rest else 0.0
            least, most = share + (more + q[k] * rest - off), share + (more + q[k] * rest + off)
            if lost:  # the true value may be on the other side of a halfway point
                least, most = least * (1 - 2.0**-50), most * (1 + 2.0**-50)
            reached, passed = first_from(high, 0, n, least), first_behind(high, 0, n, most)
            is_one = least == most or reached == passed
            is_sure[i, k] = is_usual and share > 2.0**-900 and is_one
            places[0, i, k], places[1, i, k] = min(reached, n - 1), min(passed, n - 1)


@kernel
def _average(
    given: Weighed,
    q: t.Floats,
    is_narrow: bool,
    is_whole: bool,
    means: t.FloatTable,
    is_sure: t.FlagTable,
) -> None:
    """Average each lane over the windows of the type 7 estimator, rounded once.

    Rounded to float32 if `is_narrow`. `is_sure` becomes False where pairs of floats cannot decide,
    as for integers (`is_whole`) beyond 2**53.

    The mean is the first element, plus each step to the next element times the part of the window
    behind that step. Let W be the sum of the weights and S that of their squares. In units of W**2,
    the window is from ``q (W**2 - S)`` on and S wide. The part behind the sum F of the first
    weights begins at ``F W``.

    A mean may be halfway between two floats, which no error bound decides: with whole weights that
    is common. But if all numbers are multiples of one power of two and less than 2**100 times as
    large, no operation on pairs loses a bit, and the mean is compared with the middle.
    """
    values, weights, n_valid = given
    high, low, high_times, low_times = np.empty((4, weights.shape[1]))
    ones = np.ones(weights.shape[1])
    for i in range(values.shape[0]):
        n, row = n_valid[i], values[i]
        if n == 0 or (is_narrow and _average_in_floats(row, weights[i], n, q, high, means[i])):
            continue
        j = 1
        while j < n and weights[i, j] == weights[i, 0]:
            j += 1
        own = ones if j == n else weights[i]  # equal weights are as good as ones
        lost = _add_up(own, n, high, low)
        weight, rest = high[n - 1], low[n - 1]
        if not SMALL < weight < LARGE:
            is_sure[i] = False
            continue
        square, square_rest = 0.0, 0.0
        for j in range(n):
            product, own_rest = two_product(own[j], own[j])
            square, more = two_sum(square, product)
            square_rest += more + own_rest
            if j % 64 == 63:
                square, square_rest = normal(square, square_rest)
        square, square_rest = normal(square, square_rest)
        whole, whole_rest = times(weight, rest, weight, rest)
        other, other_rest = plus(whole, whole_rest, -square, -square_rest)
        inverse, inverse_rest = over(1.0, 0.0, square, square_rest)
        doubt, unit = 64 * LOST + 8 * lost / weight, 0.0
        share, width, margin, begin = other / weight, square / weight, weight * 2.0**-40, 0
        by_square, n_times = whole / square, 0
        for k in range(q.size):
            if k and q[k] < q[k - 1]:
                begin = n_times = 0
            first, last = q[k] * share - margin, q[k] * share + width + margin
            while begin < n - 1 and high[begin] <= first:  # the window begins behind these
                begin += 1
            n_times = max(n_times, begin)
            stop, stop_rest = two_product(q[k], other)
            stop, stop_rest = plus(stop, stop_rest + q[k] * other_rest, square, square_rest)
            start = np.float64(row[begin])
            total, total_rest = times(start, 0.0, square, square_rest)
            size = abs(start)
            j = begin
            while j < n - 1 and high[j] < last:
                if j == n_times:  # few elements are in a window
                    high_times[j], low_times[j] = times(high[j], low[j], weight, rest)
                    n_times += 1
                part, part_rest = plus(stop, stop_rest, -high_times[j], -low_times[j])
                if part <= 0:
                    part, part_rest = 0.0, 0.0
                elif part > square or (part == square and part_rest > square_rest):
                    part, part_rest = square, square_rest
                behind = np.float64(row[j + 1])
                size = max(size, abs(behind))
                step, step_rest = two_sum(behind, -np.float64(row[j]))
                step, step_rest = times(step, step_rest, part, part_rest)
                total, total_rest = plus(total, total_rest, step, step_rest)
                j += 1
            if row[j] == row[begin]:
                means[i, k] = row[begin]
                continue
            mean, mean_rest = times(total, total_rest, inverse, inverse_rest)
            error = size * (doubt * (j - begin + 4 + by_square) + 16.0 * n * LOST)
            least, most = mean + (mean_rest - error), mean + (mean_rest + error)
            if is_narrow:
                wider = 2.0**-52 * abs(mean)  # float32 is rounded twice
                least, most = np.float32(least - wider), np.float32(most + wider)
            means[i, k] = least
            is_usual = SMALL < size < LARGE and SMALL < size * square < LARGE
            if not is_usual or (is_whole and size >= 2.0**53):
                is_sure[i, k] = False
            elif least != most:
                middle, off = two_sum(np.float64(least), (np.float64(most) - least) / 2)
                less, less_rest = times(middle, off, square, square_rest)
                beyond, _ = plus(total, total_rest, -less, -less_rest)
                if beyond > 4 * error * square:
                    means[i, k] = most
                elif beyond == 0:
                    means[i, k] = middle
                    for m in range(0 if unit else n):
                        unit = _unit_of(own[m], unit or 1.0)
                    grain = 1.0
                    for m in range(begin, j + 1):
                        grain = _unit_of(np.float64(row[m]), grain)
                    grain = min(grain * _unit_of(q[k], 1.0), _unit_of(off, _unit_of(middle, 1.0)))
                    is_sure[i, k] = 2 * size * whole <= 2.0**100 * grain * unit * unit
                else:
                    is_sure[i, k] = beyond < -4 * error * square


@called_by_kernels
def _unit_of(number: Any, unit: Any) -> Any:
    """Halve a power of two until a number is a multiple of it."""
    number = number / unit
    while number != np.floor(number):
        number, unit = number * 2, unit / 2
    return unit


@by_types
def _average_in_floats(row: Any, weights: Any, n: Any, q: Any, high: Any, means: Any) -> Any:
    """Average a lane as `_average` does, in single floats; return whether float32 are certain.

    The sums up to an element are nearly as exact as pairs, and made as far as windows reach. Those
    of all weights and of their squares have relative errors of at most 64 + n / 64 roundings.
    """

    def average(row: Any, weights: Any, n: Any, q: Any, high: Any, means: Any) -> Any:
        weight, square = 0.0, 0.0
        for start in range(0, n, 64):
            run, of_run, squares = weights[start : min(start + 64, n)], 0.0, 0.0
            for j in range(run.size):
                of_run = plus_product(of_run, run[j], 1.0)
                squares = plus_product(squares, run[j], run[j])
            weight, square = weight + of_run, square + squares
        if not SMALL < weight < LARGE:
            return False
        share, width, slack = (weight * weight - square) / weight, square / weight, 2.0**-40
        slack += n * 2.0**-50
        times_weight, by_square = weight / square, weight * weight / square
        total, rest, n_summed, begin = 0.0, 0.0, 0, 0
        for k in range(q.size):
            if k and q[k] < q[k - 1]:
                begin = 0
            first, stop = q[k] * share - slack * weight, q[k] * share + width
            while n_summed < n and total + rest <= stop + 2 * slack * weight:
                total, more = two_sum(total, weights[n_summed])
                rest += more
                high[n_summed] = total + rest
                n_summed += 1
            while begin < n - 1 and high[begin] <= first:  # the window begins behind these
                begin += 1
            mean = np.float64(row[begin])
            size = abs(mean)
            j = begin
            while j < n - 1:
                part = (stop - high[j]) * times_weight
                if part <= -slack * by_square:
                    break
                behind = np.float64(row[j + 1])
                size = max(size, abs(behind))
                mean += min(max(part, 0.0), 1.0) * (behind - np.float64(row[j]))
                j += 1
            if row[j] == row[begin]:
                means[k] = row[begin]
                continue
            error = 2.0**-46 * size * (j - begin + 4 + by_square * (3 + n / 2048) + n / 8)
            means[k] = np.float32(mean)
            is_one = np.float32(mean - error) == np.float32(mean + error)
            if not (is_one and SMALL < size < LARGE):
                return False
        return True

    if row.dtype != types.float32:
        return lambda row, weights, n, q, high, means: False
    return average
