"""Isotonic regression by minimum lower sets, in a form that runs in parallel.

The reference, for any array of the array API. For every start, take the smallest of the averages
from the start up to each later element. The answer at an element is the largest of these over the
starts up to it. Averages are quotients of differences of prefix sums. These sums are pairs of
float64, because differences of single ones could cancel all digits.
"""

from __future__ import annotations

import math

import numpy as np

from dask_gpuselect.arrays import Array, as_type, concatenate, namespace
from dask_gpuselect.maths.exact_sums import two_sum

BEST_UPTO = 0  # pooling adjacent violators on the host is faster
TILE = 512  # rows and columns of averages that are computed together


def lower_sets(y: Array, weights: Array | None = None) -> Array:
    """Return the isotonic regression of y, ascending, by least squares.

    Parameters
    ----------
    y : array of float64, shape (n,)
        Finite.
    weights : array of float64, shape (n,), optional
        Positive and finite.

    Returns
    -------
    array of float64, shape (n,)

    Notes
    -----
    O(n**2) averages. Scratch: a tile of them, and sixteen arrays like y.
    """
    if y.shape[0] == 0:
        return y
    exponent = exponent_of(y)
    y, own = scaled(y, -exponent), None  # none exceeds 1
    if weights is not None:
        weights = scaled(weights, -exponent_of(weights))
        y, own = y * weights, _prefix_sums(weights)
    return scaled(running_maximum(_smallest_averages(_prefix_sums(y), own)), exponent)


Sums = tuple[Array, Array]
"""Prefix sums of n numbers: n + 1 pairs of a high and a low part, the first of which is 0."""


def running_maximum(values: Array) -> Array:
    """Return the largest value up to each, in ``log2(n)`` vectorised steps."""
    xp = namespace(values)
    step = 1
    while step < values.shape[0]:
        later = xp.maximum(values[step:], values[:-step])
        values = concatenate([values[:step], later], axis=0)
        step *= 2
    return values


def running_minimum(values: Array) -> Array:
    """Return the smallest value up to each."""
    if isinstance(values, np.ndarray):
        return np.minimum.accumulate(values)
    return -running_maximum(-values)


def _smallest_averages(total: Sums, weight: Sums | None) -> Array:
    """Return the smallest average from each start on; weights are all 1 by default."""
    xp = namespace(total[0])
    n = total[0].shape[0] - 1
    averages = []
    for i in range(0, n, TILE):
        starts = slice(i, min(i + TILE, n))
        smallest = [
            xp.min(_averages(total, weight, starts, slice(j, min(j + TILE, n))), axis=1)
            for j in range(i, n, TILE)
        ]
        averages.append(xp.min(xp.stack(smallest), axis=0))
    return concatenate(averages, axis=0)


def _averages(total: Sums, weight: Sums | None, starts: slice, ends: slice) -> Array:
    """Return the averages from every start to every end, both included; inf if the end is first."""
    xp = namespace(total[0])
    start = xp.arange(starts.start, starts.stop)[:, None]
    end = xp.arange(ends.start, ends.stop)[None, :]
    count = as_type(end - start + 1, "float64")
    size = count if weight is None else _differences(weight, starts, ends)
    is_behind = count > 0
    size = xp.where(is_behind, size, xp.ones_like(size))
    averages = _differences(total, starts, ends) / size
    return xp.where(is_behind, averages, xp.full_like(averages, math.inf))


def _differences(sums: Sums, starts: slice, ends: slice) -> Array:
    """Return the differences of sums between start and end, to about one rounding."""
    high, low = sums
    behind = slice(ends.start + 1, ends.stop + 1)
    grown, lost = two_sum(high[behind][None, :], -high[starts][:, None])
    return grown + (lost + (low[behind][None, :] - low[starts][:, None]))


def _prefix_sums(high: Array) -> Sums:
    """Return the prefix sums of numbers in ``log2(n)`` vectorised steps.

    Each step adds an error of at most ``2**-103`` times the sum of magnitudes.
    """
    low, step = 0 * high, 1
    while step < high.shape[0]:
        total, lost = two_sum(high[step:], high[:-step])
        total, lost = two_sum(total, lost + (low[step:] + low[:-step]))
        high = concatenate([high[:step], total], axis=0)
        low = concatenate([low[:step], lost], axis=0)
        step *= 2
    nothing = 0 * high[:1]
    return concatenate([nothing, high], axis=0), concatenate([nothing, low], axis=0)


def exponent_of(values: Array) -> int:
    """Return the exponent of a power of two that is at least as large as every value."""
    return math.frexp(float(namespace(values).max(abs(values))))[1]


def scaled(values: Array, exponent: int) -> Array:
    """Multiply by ``2**exponent``, which need not be a float64 itself."""
    half = exponent // 2
    return values * 2.0**half * 2.0 ** (exponent - half)
