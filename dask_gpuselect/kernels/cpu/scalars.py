"""Functions of single elements and of sorted ones, of any dtype, for compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.kernels.compiling import by_types, called_by_kernels, types

NAT = np.iinfo(np.int64).min


@by_types
def is_missing(value: Any, has_nat: Any = False) -> Any:
    """Return whether a value is NaN, or NaT if `has_nat`."""
    if isinstance(value, types.Float):
        return lambda value, has_nat=False: value != value
    if value == types.int64 and has_nat == types.boolean:
        return lambda value, has_nat=False: has_nat & (value == NAT)
    return lambda value, has_nat=False: False


@called_by_kernels
def first_from(row: Any, start: Any, stop: Any, value: Any) -> Any:
    """Find the first place in a sorted stretch whose element is not less than a value.

    Integers are compared with a float64 as float64.
    """
    while start < stop:
        middle = (start + stop) // 2
        if row[middle] < value:
            start = middle + 1
        else:
            stop = middle
    return start


@called_by_kernels
def first_behind(row: Any, start: Any, stop: Any, value: Any) -> Any:
    """Find the first place in a sorted stretch whose element is greater than a value, or NaN."""
    while start < stop:
        middle = (start + stop) // 2
        if row[middle] <= value:
            start = middle + 1
        else:
            stop = middle
    return start


@called_by_kernels
def mean_of(a: Any, b: Any) -> Any:
    """Return the mean of two floats, also where their sum overflows; the loops become vectors."""
    first, second = np.float64(a), np.float64(b)
    total = first + second
    return total / 2 if np.isfinite(total) else first / 2 + second / 2
