"""Weighted quantiles by exact sums: the elements that they are made of, and their proof.

All elements, lanes and groups finish here. They differ only in how their elements lie in order: see
`orders`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import (
    IntArray,
)
from dask_gpuselect.maths.exact_sums import (
    DIGIT,
    EVEN_BITS,
    ExactSums,
    as_pair,
    begins,
    plus,
    product,
    quotients,
    times,
    whole,
)
from dask_gpuselect.maths.orders import DOUBT, WeightedOrder

# Least mean, and least weight as a share of the largest, whose pairs of floats do not underflow,
# and a bound of the error of sums of such pairs, in units of the weight times the elements.
LEAST_SURE, FLOAT_ERROR = 2.0**-300, 2.0**-92
FEW_WINDOWS = 100  # windows whose Python integers take less time than pairs of floats


def answers(
    order: WeightedOrder, slots: IntArray, q: Sequence[float], method: str, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Find pairs of elements whose means are the quantiles of some slots, none of them empty.

    For the method "linear", both of a pair are the answer itself, in `dtype`.

    Returns
    -------
    ndarray, shape (2, n_slots, n_q)
    """
    slot, share = np.repeat(slots, len(q)), np.tile(np.array(q, np.float64), len(slots))
    if method == "linear":
        pair = [window_means(order, slot, share, dtype)]
    else:
        passes = method == "averaged_inverted_cdf"
        places = order.reach_shares(slot, share, passes=passes)
        pair = [*order.elements(np.concatenate(places)).reshape(len(places), -1)]
    return np.stack([pair[0], pair[-1]]).reshape(2, len(slots), len(q))


def windows(total: Any, squares: Any, q: Sequence[float]) -> tuple[Any, Any, Any]:
    """Find the windows of the weight over which quantiles of type 7 average; see `window_means`.

    Parameters
    ----------
    total, squares : int, or ndarray of Python integers
        Weight of all elements, and the sum of the squares of all weights, in units: one for all, or
        one for each share.
    q : sequence of float
        Shares.

    Returns
    -------
    low, high : ndarray of Python integers
        Where each window begins and ends, in units of the unit of weight divided by `scale`.
    scale : ndarray of Python integers
        Weight of all elements times the denominator of the share.
    """
    numerators, denominators = np.array([each.as_integer_ratio() for each in q], object).T
    low = numerators * (total * total - squares)
    return low, low + squares * denominators, total * denominators


def sums_reached(low: Any, high: Any, scale: Any) -> tuple[Any, Any]:
    """Return the whole sums that the first and the last element of each of `windows` reach."""
    return low // scale + 1, -(-high // scale)


def window_means(
    order: WeightedOrder, slot: IntArray, q: NDArray[np.float64], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Compute weighted quantiles of type 7: the means of windows of the weight.

    The window of q begins behind the weight ``q (W - S/W)`` and is ``S/W`` wide, where W is the sum
    of all weights and S that of their squares: Kish's effective number of elements is W*W/S. For n
    equal weights it begins behind ``q (n - 1)`` elements and is one element wide.

    Returns
    -------
    ndarray of `dtype`
        The quantile of each slot and share, exact and rounded once.

    References
    ----------
    A. Akinshin, "Weighted quantile estimators", arXiv:2304.07265, 2023.
    """
    means, unsure = np.zeros(len(slot), dtype), np.arange(len(slot))
    if len(slot) > FEW_WINDOWS:
        means, is_sure = _rounded_means(order, slot, q, dtype)
        unsure = np.flatnonzero(~is_sure)
    if len(unsure):
        means[unsure] = _exact_means(order, slot[unsure], q[unsure], dtype)
    return means


def _exact_means(
    order: WeightedOrder, slot: IntArray, q: NDArray[np.float64], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Compute the means of windows by Python integers."""
    (before, weight), squares = order.sums_of(slot), order.squares_of(slot)
    # Integers in units of 2**-POINT have a thousand bits more: 99 quantiles of 18 slots took 87 ms.
    unit = min(order.unit, squares.first // 2)
    about = windows(weight.integers(unit), squares.integers(2 * unit), q.tolist())
    sums = [ExactSums.of_integers(each, unit) for each in sums_reached(*about)]
    first, last = order.reach_each(slot, before, sums)
    means, some, ends = _ends_of(order, first, last, before, dtype)
    if ends is None:
        return means
    low, high, *edges, products = ends
    begin, end, scale = (each[some] for each in about)
    first_ends, last_begins = (each.integers(unit) for each in edges)
    own = np.concatenate([low, high])
    place = min(products.first, unit, unit + begins(own)[0] // DIGIT)
    lows, highs = whole(own, DIGIT * (unit - place)).reshape(2, -1)
    total = lows * (first_ends * scale - begin) + highs * (end - last_begins * scale)
    total += products.integers(place) * scale
    widths = (end - begin) << DIGIT * (unit - place)
    means[some] = quotients(total.tolist(), widths.tolist(), dtype)
    return means


def _ends_of(
    order: WeightedOrder, first: IntArray, last: IntArray, before: ExactSums, dtype: np.dtype[Any]
) -> tuple[NDArray[Any], IntArray, tuple[Any, ...] | None]:
    """Return the means of windows that end in equal or infinite elements, and which are others.

    Of those, also return the elements where they begin and end, the weight of their slots up to the
    first one and before the last one, and the products between both; None if there are none.
    """
    low, high = order.elements(np.concatenate([first, last])).reshape(2, -1)
    with np.errstate(invalid="ignore", over="ignore"):
        means = np.where(low == high, low, low + high).astype(dtype)  # -inf and inf are NaN
    some = np.flatnonzero((low != high) & np.isfinite(low) & np.isfinite(high))
    if not len(some):
        return means, some, None
    first, last, before = first[some] + 1, last[some], before[some]
    weights, n = order.weights_before(np.concatenate([first, last])), len(some)
    edges = weights[:n] - before, weights[n:] - before
    return means, some, (low[some], high[some], *edges, order.products(first, last))


def _rounded_means(
    order: WeightedOrder, slot: IntArray, q: NDArray[np.float64], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Compute the means of windows by pairs of floats, and mark those that are surely right."""
    own, slot_of = np.unique(slot, return_inverse=True)
    (before, weight), squares = order.sums_of(own), order.squares_of(own)
    means, width = np.zeros(len(slot), dtype), width_of(weight, squares)[slot_of]
    begin, at = q * (1 - width), np.tile(slot_of, 4)
    shares = np.stack([begin - DOUBT, begin + DOUBT, begin + width - DOUBT, begin + width + DOUBT])
    sums = weight[at].share_of(shares.clip(0, 1).ravel()) + before[at]
    places = order.reach(own[at], sums).reshape(4, -1)
    is_sure = (places[0] == places[1]) & (places[2] == places[3])
    sure = np.flatnonzero(is_sure)
    first, last = places[::2, sure]
    means[sure], some, ends = _ends_of(order, first, last, before[slot_of[sure]], dtype)
    if ends is None:
        return means, is_sure
    low, high, *edges, products = ends
    some = sure[some]
    at, q = slot_of[some], q[some]
    point = DIGIT * (weight.first + len(weight.in_digits().digits))  # weights are at most 1 then
    is_float, (low, high) = low.dtype.kind == "f", np.stack([low, high]).astype(np.float64)
    sign, size = np.where(products.is_negative, -1.0, 1.0), np.abs(low) + np.abs(high)
    with np.errstate(all="ignore"):
        every, window = (
            (first[at], rest[at])
            for first, rest in (as_pair(weight, point), as_pair(squares, 2 * point))
        )
        until, back, between = (as_pair(each, point) for each in (*edges, products.magnitude()))
        # Places in the weight are multiplied by the weight of the slot.
        start = times((q, 0.0), plus(times(every, every), window, -1))
        head = plus(times(until, every), start, -1)
        tail = plus(plus(start, window), times(back, every), -1)
        total = plus(times((low, 0.0), head), times((high, 0.0), tail))
        total = plus(total, times(between, every), sign)
        mean = total[0] / window[0]
        again, error = product(mean, window[0])
        rest = ((total[0] - again - error) + (total[1] - mean * window[1])) / window[0]
        doubt = FLOAT_ERROR * size * (every[0] ** 2 / window[0])
        least, most = mean + (rest - doubt), mean + (rest + doubt)
        is_right = (least == most) & (np.minimum(np.abs(least), every[0]) > LEAST_SURE)
        is_right &= is_float | (size < 2.0**53)
        if dtype.itemsize < 8:  # to be rounded again, from where it may be halfway
            is_right &= least.view(np.uint64) & np.uint64(EVEN_BITS) != 0
        means[some] = least.astype(dtype)
    is_sure[some] = is_right
    return means, is_sure


def width_of(weight: ExactSums, square: ExactSums) -> NDArray[np.float64]:
    """Compute how wide windows are, as shares of the weight of each slot; see `window_means`."""
    total, place = weight.leading()
    squares, place_of_square = square.leading()
    total = np.where(total > 0, total, 1)
    width: NDArray[np.float64] = np.ldexp(
        squares / total**2, DIGIT * (place_of_square - 2 * place).clip(-50, 50)
    )
    return np.minimum(width, 1)
