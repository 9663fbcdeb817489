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
def insert(row: Any, others: Any, n: Any, most: Any) -> Any:
    """Sort the first n elements of a row, which are nearly sorted, by insertion, and others alike.

    Return False, unfinished, if that takes more than `most` moves.
    """
    left = most
    for i in range(1, n):
        value = row[i]
        if row[i - 1] <= value:
            continue
        other, j = others[i], i
        while j > 0 and row[j - 1] > value:
            row[j], others[j] = row[j - 1], others[j - 1]
            j -= 1
        row[j], others[j] = value, other
        left -= i - j
        if left < 0:
            return False
    return True


@called_by_kernels
def append(
    run: Any, marks: Any, out: Any, n: Any, weights: Any = None, out_weights: Any = None
) -> Any:
    """Write the marked elements of a run behind n others, and return their new number.

    Their weights are written too, if they have some. Marks are tested eight at a time, as words.
    """
    words = marks.view(np.uint64)
    for w in range((run.size + 7) // 8):
        if words[w]:
            for k in range(8 * w, min(8 * w + 8, run.size)):
                out[n] = run[k]
                if weights is not None:
                    out_weights[n] = weights[k]
                n += marks[k]
    return n


@called_by_kernels
def mean_of(a: Any, b: Any) -> Any:
    """Return the mean of two floats, also where their sum overflows; the loops become vectors."""
    first, second = np.float64(a), np.float64(b)
    total = first + second
    return total / 2 if np.isfinite(total) else first / 2 + second / 2
