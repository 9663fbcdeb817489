"""Sorting by a bitonic network and merges, in plain NumPy (Alyafi & Khalid, section 4.1).

Sub-arrays are the columns of a table, so that each exchange of the network is one minimum and one
maximum of rows. Sorted runs are then merged in pairs. Each element finds its place by binary search
in the other run, so that no step loops over single elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import to_host
from dask_gpuselect.maths.cuts import extremes_of


def bitonic_sorted(values: Any, sub_array: int) -> NDArray[Any]:
    """Sort all elements of an array without NaN, ascending, on the host.

    The network sorts runs of `sub_array` elements, a power of two. Scratch: twice the array.
    """
    host: NDArray[Any] = np.asarray(to_host(values))
    n = len(host)
    if n == 0:
        return host.copy()
    size = min(sub_array, 1 << max(n - 1, 1).bit_length())
    n_runs = -(-n // size)
    padded = np.full(n_runs * size, extremes_of(host.dtype)[1], host.dtype)
    padded[:n] = host
    runs = np.ascontiguousarray(_network(padded.reshape(n_runs, size).T).T)
    return _merged_runs(runs.reshape(-1), size)[:n]


def _network(table: NDArray[Any]) -> NDArray[Any]:
    """Sort every column by Batcher's bitonic network; the number of rows is a power of two."""
    rows = np.ascontiguousarray(table)
    n = len(rows)
    places = np.arange(n)
    run = 2
    while run <= n:
        apart = run // 2
        while apart:
            low = places[(places & apart) == 0]
            high = low + apart
            ascending = ((low & run) == 0)[:, None]
            a, b = rows[low], rows[high]
            least, largest = np.minimum(a, b), np.maximum(a, b)
            rows[low] = np.where(ascending, least, largest)
            rows[high] = np.where(ascending, largest, least)
            apart //= 2
        run *= 2
    return rows


def _merged_runs(values: NDArray[Any], size: int) -> NDArray[Any]:
    """Merge sorted runs of `size` elements in pairs until one is left."""
    n = len(values)
    while size < n:
        out = np.empty_like(values)
        for start in range(0, n, 2 * size):
            left, right = values[start : start + size], values[start + size : start + 2 * size]
            places = np.arange(len(left)) + np.searchsorted(right, left, side="left")
            out[start + places] = left
            places = np.arange(len(right)) + np.searchsorted(left, right, side="right")
            out[start + places] = right
        values, size = out, 2 * size
    return values
