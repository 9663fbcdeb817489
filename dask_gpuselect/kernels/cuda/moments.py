"""Sums of a chunk about a centre: the host side of ``moments.cu``."""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels import cpu
from dask_gpuselect.kernels.cuda.chunk import FEW, Chunk, on_host
from dask_gpuselect.kernels.cuda.launch import advised, blocks_at_once, launch
from dask_gpuselect.kernels.cuda.source import MOMENTS_THREADS
from dask_gpuselect.kernels.generic import selection_dtype
from dask_gpuselect.moments import Moments

Array = Any  # a CuPy array


@advised
def moments(values: Array, centre: Any, scale: float) -> Moments:
    """Sums of a chunk about a centre; see `generic.moments`. Reads the chunk once."""
    if values.size <= FEW:
        return cpu.moments(on_host(values), centre, scale)
    dtype = np.dtype(values.dtype)
    name = "moments" if scale == 1 else "moments_scaled"
    blocks = blocks_at_once(dtype, name, MOMENTS_THREADS)
    # Four numbers for each block, and then three counts.
    found = cupy.zeros(4 * blocks + 3)
    counts = found[4 * blocks :]
    told = selection_dtype(dtype).type(centre)
    arguments = (*Chunk.of(values), told, np.float64(scale), found, counts)
    launch(dtype, name, MOMENTS_THREADS, arguments)
    host = found.get()
    n_high, n_low, n_missing = host[4 * blocks :].view(np.int64).tolist()
    total, square = host[: 4 * blocks].reshape(blocks, 2, 2).transpose(1, 0, 2).reshape(2, -1)
    if not np.isfinite(total).all() or not np.isfinite(square).all():
        square = np.array([math.inf])  # a difference is too large for a float64
    n = values.size - n_high - n_low - n_missing
    return Moments.of_chunk(n, n_high, n_low, float(centre), total, square, scale)
