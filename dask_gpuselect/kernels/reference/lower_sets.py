"""Isotonic regression of any array of the array API: scales and running minima.

Only CUDA has kernels of minimum lower sets.
"""

from __future__ import annotations

import math

import numpy as np

from dask_gpuselect.arrays import Array, concatenate, namespace

BEST_UPTO = 0
"""Number of elements up to which a kernel `lower_sets` is faster than pooling on the host."""


def running_minimum(values: Array) -> Array:
    """Return the smallest value up to each, in ``log2(n)`` vectorised steps."""
    if isinstance(values, np.ndarray):
        return np.minimum.accumulate(values)
    xp, step = namespace(values), 1
    while step < values.shape[0]:
        later = xp.minimum(values[step:], values[:-step])
        values = concatenate([values[:step], later], axis=0)
        step *= 2
    return values


def exponent_of(values: Array) -> int:
    """Return the exponent of a power of two that is at least as large as every value."""
    return math.frexp(float(namespace(values).max(abs(values))))[1]


def scaled(values: Array, exponent: int) -> Array:
    """Multiply by ``2**exponent``, which need not be a float64 itself."""
    half = exponent // 2
    return values * 2.0**half * 2.0 ** (exponent - half)
