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
from dask_gpuselect.keys import selection_dtype
from dask_gpuselect.moments import Moments

Array = Any  # a CuPy array


@advised
def moments(values: Array, centre: Any, scale: float) -> Moments:
    """Sums of a chunk about a centre; see `generic.moments`. Reads the chunk once."""
    if values.size <= FEW:
        return cpu.moments(on_host(values), centre, scale)
    dtype = np.dtype(values.dtype)
    name = f"moments_{'scaled' if scale != 1 else 'centre' if centre else 'zero'}"
    blocks = blocks_at_once(dtype, name, MOMENTS_THREADS)
    # Four numbers of each block, and three counts.
    found = cupy.zeros(4 * blocks + 3)
    told = selection_dtype(dtype).type(centre)
    arguments = (*Chunk.of(values), told, np.float64(scale), found, found[4 * blocks :])
    launch(dtype, name, MOMENTS_THREADS, arguments, blocks=blocks)
    host = found.get()
    numbers, counts = host[: 4 * blocks], host[4 * blocks :].view(np.int64)
    total, square = numbers.reshape(-1, 2, 2).transpose(1, 0, 2).reshape(2, -1).tolist()
    if not math.isfinite(sum(total)) or not math.isfinite(sum(square)):
        square = [math.inf]  # a difference is too large for a float64
    n_high, n_low, _ = counts.tolist()
    n = values.size - int(counts.sum())
    return Moments.of_chunk(n, n_high, n_low, float(centre), total, square, scale)
