"""Means over windows of the weight, by two float64 each: fast, and whether that is enough.

A pair of floats stands for its sum, of 106 bits. Nearly all answers are rounded rightly from one;
where it cannot tell, nothing is said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import FloatArray
from dask_gpuselect.maths.exact_sums import product, two_sum

Pair = tuple[FloatArray, FloatArray]

# What is lost for each unit of what is added up is less, of few operations on pairs.
LOST = 2.0**-94


def window_means(
    values: FloatArray, sums: Pair, weight: Pair, square: Pair, q: float, dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The means of some elements over the windows of the estimator of type 7, and whether each is
    rounded rightly.

    The mean is the first element, and of each step to the next one as much as there is of the
    window behind it.

    Parameters
    ----------
    values : ndarray of float64, shape (n_rows, n)
        Ascending in each row; the window is on no others.
    sums : pair, shape (n_rows, n - 1)
        Of the weights of all elements up to each but the last.
    weight, square : pair, shape (n_rows, 1)
        Of all weights, and of their squares, in the square of the unit.
    q : float
    dtype : dtype
        Of the answers.
    """
    with np.errstate(all="ignore"):
        all_squared = _times(weight, weight)
        shares_of_q = np.full_like(weight[0], q), np.zeros_like(weight[0])
        end = _plus(_times(_plus(all_squared, _negative(square)), shares_of_q), square)
        high, low = _over(_plus(end, _negative(_times(sums, weight))), square)
        # Behind the window there is nothing, and before it all.
        is_some = (high > 0) & ((high < 1) | ((high == 1) & (low < 0)))
        some = np.clip(high, 0, 1), np.where(is_some, low, 0)
        parts = _times(some, two_sum(values[:, 1:], -values[:, :-1]))
        mean = values[:, 0], np.zeros(len(values))
        for i in range(values.shape[1] - 1):
            mean = _plus(mean, (parts[0][:, i], parts[1][:, i]))
        size = np.abs(values).max(axis=1)
        lost = LOST * values.shape[1] * size * (1 + (all_squared[0] / square[0])[:, 0])
        if dtype.itemsize == 8:
            least, most = mean[0] + (mean[1] - lost), mean[0] + (mean[1] + lost)
        else:
            least = np.nextafter(mean[0] + (mean[1] - lost), -np.inf).astype(dtype)
            most = np.nextafter(mean[0] + (mean[1] + lost), np.inf).astype(dtype)
        is_sure = (least == most) & (size > 2.0**-400) & (size < 2.0**400)
        return mean[0].astype(dtype), is_sure


def _plus(a: Pair, b: Pair) -> Pair:
    high, low = two_sum(a[0], b[0])
    rest, least = two_sum(a[1], b[1])
    high, low = _normal(high, low + rest)
    return _normal(high, low + least)


def _normal(high: FloatArray, low: FloatArray) -> Pair:
    """The same pair, of which the first is the nearest float."""
    return two_sum(high, low)


def _times(a: Pair, b: Pair) -> Pair:
    high, low = product(a[0], b[0])
    return _normal(high, low + (a[0] * b[1] + a[1] * b[0]))


def _over(a: Pair, b: Pair) -> Pair:
    first = a[0] / b[0]
    zero = np.zeros_like(first)
    rest = _plus(a, _negative(_times((first, zero), b)))
    second = rest[0] / b[0]
    rest = _plus(rest, _negative(_times((second, zero), b)))
    high, low = _normal(first, second)
    return _normal(high, low + rest[0] / b[0])


def _negative(a: Pair) -> Pair:
    return -a[0], -a[1]
