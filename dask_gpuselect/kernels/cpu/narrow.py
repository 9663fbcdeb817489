"""Lanes of integers of one or two bytes, sorted without comparisons.

NumPy's default sort compares them if the processor has no vector instructions for them (before
AVX-512): 51 ns an element for lanes of 2,000 uint8, 96 for as many int16. Its radix sort takes 5
and 4, and counting bytes 2, whatever the data. Short rows of two bytes are sorted as int32, for
which NumPy has vectors from AVX2 on and on ARM: rows of 120 take 1.7 ns an element instead of 6 to
12. A processor without vectors takes up to 30.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel_of, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.word_counts import count_in_turn

FEW_OF_EACH = 4 * 256  # elements of a row of bytes below which each element is placed by itself
SHORT = {1: 100, 2: 512}
"""Elements of a row up to which vectors of int32 sort faster than counting or digits, by the bytes
of an element: rows of 24 bytes take 3 ns an element instead of 8, of 100 bytes 2.5 instead of 4."""
TOGETHER = 1 << 14  # elements that are sorted as int32 at once, in the cache


def is_narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" and dtype.itemsize <= 2


def sort_rows(rows: NDArray[Any]) -> None:
    """Sort every row of a contiguous table of narrow integers, in place."""
    if rows.shape[1] <= SHORT[rows.itemsize]:
        _sort_wide(rows)
    elif rows.itemsize == 1:
        _sort_rows_of_bytes(rows)
    else:
        _sort_by_digits(rows)


def _sort_by_digits(rows: NDArray[Any]) -> None:
    rows.sort(axis=-1, kind="stable")  # a radix sort, of so few bits


def _sort_wide(rows: NDArray[Any]) -> None:
    """Sort rows as int32, some at a time."""
    step = max(TOGETHER // max(rows.shape[1], 1), 1)
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        wide = some.astype(np.int32)
        wide.sort(axis=-1)
        some[...] = wide


@until_compiled(_sort_by_digits)
def _sort_rows_of_bytes(rows: NDArray[Any]) -> None:
    _sort_bytes(rows.view(np.uint8), np.uint8(1 << 7 if rows.dtype.kind == "i" else 0))


@kernel_of("u1")
def _sort_bytes(rows: t.Table, flip: t.Value) -> None:
    """Sort rows of bytes by counting their values.

    Long rows are written as runs of equal values. In short rows each element is moved to its place:
    4 ns an element of 200, where short runs take 12.
    """
    if rows.shape[1] < FEW_OF_EACH:
        _place_each(rows, flip)
    else:
        _write_runs(rows, flip)


@called_by_kernels
def _place_each(rows: Any, flip: Any) -> None:
    n = rows.shape[1]
    other = np.empty(n, rows.dtype)
    places = np.zeros(256, np.int32)
    for i in range(rows.shape[0]):
        row = rows[i]
        for j in range(n):
            places[row[j]] += 1
        place = np.int32(0)
        for key in range(256):
            value = np.uint8(key) ^ flip
            size = places[value]
            places[value] = place
            place += size
        for j in range(n):
            value = row[j]
            other[places[value]] = value
            places[value] += 1
        for j in range(n):
            row[j] = other[j]
        for value in range(256):
            places[value] = 0


@called_by_kernels
def _write_runs(rows: Any, flip: Any) -> None:
    """Count the values of each row, and write each as often as it was counted."""
    counts = np.zeros((4, 256), np.int64)
    for i in range(rows.shape[0]):
        row = rows[i]
        count_in_turn(row, counts)
        stop = 0
        for key in range(256):
            value = np.uint8(key) ^ flip
            start = stop
            for copy in range(4):
                stop += counts[copy, value]
                counts[copy, value] = 0
            for j in range(start, stop):
                row[j] = value
