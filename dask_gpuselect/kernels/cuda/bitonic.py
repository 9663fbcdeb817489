"""Sorting by a bitonic network and merges on the device: the host side of ``bitonic.cu``."""

from __future__ import annotations

import cupy
import numpy as np

from dask_gpuselect.kernels.cuda.launch import Array, launch
from dask_gpuselect.kernels.cuda.source import BITONIC_THREADS, MERGE_EACH


def bitonic_sorted(values: Array, sub_array: int) -> Array:
    """Sort all elements of a contiguous array without NaN, ascending.

    A block sorts `sub_array` elements, a power of two; see `reference.bitonic`. Scratch: as much as
    the array.
    """
    dtype, n = np.dtype(values.dtype), values.size
    runs, other = cupy.empty_like(values), cupy.empty_like(values)
    if n == 0:
        return runs
    blocks, shared = -(-n // sub_array), sub_array * dtype.itemsize
    launch(dtype, "bitonic_runs", values, n, sub_array, runs, shared=shared, blocks=blocks)
    merged = BITONIC_THREADS * MERGE_EACH
    size = sub_array
    while size < n:
        tile = min(merged, 2 * size)
        blocks, shared = -(-n // tile), tile * dtype.itemsize
        launch(dtype, "merge_runs", runs, n, size, tile, other, shared=shared, blocks=blocks)
        runs, other, size = other, runs, 2 * size
    return runs
