"""Windows of few elements: sorting networks over many windows at a time.

The elements at one place of many windows in a row are contiguous, so that each comparison of a
network is a loop that the compiler vectorises. A network is a table of comparisons without those
that cannot change the wanted ranks (Batcher's odd-even merge sort).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import Types, compiles, types
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.windows import Frame, WindowOrder, differ, ranks_by_count, strides_of

MOST = 27  # elements of a window
RUN = 128  # windows that are sorted together
LEAST_RUN = 16  # windows in a row; with fewer, blocks are faster


def takes(keys: NDArray[Any], frame: Frame) -> bool:
    """Return whether networks are the way for these windows."""
    return 1 <= frame.n <= MOST and frame.step[-1] == 1 and frame.shape(keys.shape)[-1] >= LEAST_RUN


@lru_cache(maxsize=64)
def network(n: int, wanted: tuple[int, ...]) -> IntArray:
    """Return the comparisons, ``(k, 2)``, that bring the elements of some ranks to their places."""
    size = 1 << max(n - 1, 0).bit_length()
    every: list[tuple[int, int]] = []
    _merge_sort(0, size, every)
    needed, kept = set(wanted), []
    for low, high in reversed([pair for pair in every if pair[1] < n]):
        if low in needed or high in needed:
            needed |= {low, high}
            kept.append((low, high))
    return np.array(kept[::-1], np.int64).reshape(-1, 2)


def _merge_sort(start: int, n: int, found: list[tuple[int, int]]) -> None:
    """Add the comparisons that sort n elements, a power of two, to those found."""
    if n > 1:
        _merge_sort(start, n // 2, found)
        _merge_sort(start + n // 2, n // 2, found)
        _merge(start, n, 1, found)


def _merge(start: int, n: int, apart: int, found: list[tuple[int, int]]) -> None:
    """Merge two sorted halves of the elements that lie `apart` from each other."""
    step = 2 * apart
    if step < n:
        _merge(start, n, step, found)
        _merge(start + apart, n, step, found)
        found += [(i, i + apart) for i in range(start + apart, start + n - apart, step)]
    else:
        found.append((start, start + apart))


def elements(
    keys: NDArray[Any], frame: Frame, order: WindowOrder, n_valid: IntArray | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Find the keys of the two elements of each answer in every window, ``(n_answers, n_windows)``.

    The two arrays are one if both elements always are.

    Parameters
    ----------
    keys : ndarray
        Keys of the elements; masked and missing ones have the last key.
    frame : Frame
        The windows.
    order : WindowOrder
        The wanted ranks.
    n_valid : ndarray, optional
        Number of valid elements of each window; all of them by default.
    """
    shape = frame.shape(keys.shape)
    lower, upper, _ = ranks_by_count(order, frame.n)
    has_upper = differ(lower, upper, is_whole=n_valid is None)
    wanted = (
        tuple(range(frame.n))
        if n_valid is not None
        else tuple(np.unique([lower[:, -1], upper[:, -1]]).tolist())
    )
    strides = strides_of(keys.shape)
    n = math.prod(shape)
    found = [np.empty(len(lower) * n, keys.dtype) for _ in range(1 + has_upper)]
    held = np.empty(0, np.int64) if n_valid is None else np.ascontiguousarray(n_valid)
    kernel = _compiled(_sort_windows, keys.dtype)
    about = (np.array(shape), strides * frame.step, frame.places() @ strides, held)
    table = network(frame.n, wanted)
    kernel(keys.reshape(-1), *about, table, lower, upper, int(has_upper), found[0], found[-1])
    laid = [each.reshape(len(lower), n) for each in found]
    return laid[0], laid[-1]


def _sort_windows(
    keys: Any,
    shape: Any,
    strides: Any,
    places: Any,
    held: Any,
    table: Any,
    lower: Any,
    upper: Any,
    has_upper: Any,
    out_lower: Any,
    out_upper: Any,
) -> None:
    """Sort windows in runs along the last axis, and take the elements of two ranks."""
    d, n = shape.size, places.size
    rows = np.empty((n, RUN), keys.dtype)
    n_rows = 1
    for a in range(d - 1):
        n_rows *= shape[a]
    length = shape[d - 1]
    total = n_rows * length
    for row in range(n_rows):
        rest, first = row, 0
        for a in range(d - 2, -1, -1):
            first += rest % shape[a] * strides[a]
            rest //= shape[a]
        for start in range(0, length, RUN):
            stop = min(RUN, length - start)
            for i in range(n):
                source = keys[first + places[i] + start : first + places[i] + start + stop]
                row_of = rows[i]
                for j in range(stop):
                    row_of[j] = source[j]
            for i in range(table.shape[0]):
                low, high = rows[table[i, 0]], rows[table[i, 1]]
                for j in range(RUN):
                    a_key, b_key = low[j], high[j]
                    low[j] = min(a_key, b_key)
                    high[j] = max(a_key, b_key)
            to = row * length + start
            for question in range(lower.shape[0]):
                place = question * total + to
                if held.size > 0:
                    for j in range(stop):
                        count = held[to + j]
                        out_lower[place + j] = rows[lower[question, count], j]
                        if has_upper:
                            out_upper[place + j] = rows[upper[question, count], j]
                    continue
                out_lower[place : place + stop] = rows[lower[question, n], :stop]
                if has_upper:
                    out_upper[place : place + stop] = rows[upper[question, n], :stop]


@compiles
def _compiled(values: types.Array, values_out: types.Array) -> Types:
    if values.dtype not in (types.uint8, types.uint16, types.uint32, types.uint64):
        return {}
    numbers, table = (
        types.Array(types.int64, 1, "C", readonly=True),
        types.Array(types.int64, 2, "C", readonly=True),
    )
    about = (numbers, numbers, numbers, numbers, table, table, table, types.int64)
    return {_sort_windows: (values, *about, values_out, values_out)}
