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
    name = f"moments_{'scaled' if scale != 1 else 'centre' if centre else 'zero'}"
    sums = Sums(values, name, MOMENTS_THREADS)
    told = selection_dtype(dtype).type(centre)
    arguments = (*Chunk.of(values), told, np.float64(scale), *sums.places)
    launch(dtype, name, MOMENTS_THREADS, arguments)
    return sums.moments(centre, scale)


class Sums:
    """Where the blocks of a kernel write what they add up."""

    def __init__(self, values: Array, kernel: str, threads: int, shared: int = 0) -> None:
        self.size = values.size
        self.n_blocks = blocks_at_once(np.dtype(values.dtype), kernel, threads, shared)
        # Four numbers of each block, and three counts.
        self.found = cupy.zeros(4 * self.n_blocks + 3)

    @property
    def places(self) -> tuple[Array, Array]:
        """For the kernel: of the numbers and of the counts."""
        return self.found, self.found[4 * self.n_blocks :]

    def moments(self, centre: Any, scale: float) -> Moments:
        """What they have found, when they have."""
        found = self.found.get()
        numbers, counts = found[: 4 * self.n_blocks], found[4 * self.n_blocks :].view(np.int64)
        total, square = numbers.reshape(-1, 2, 2).transpose(1, 0, 2).reshape(2, -1).tolist()
        if not math.isfinite(sum(total)) or not math.isfinite(sum(square)):
            square = [math.inf]  # a difference is too large for a float64
        n = self.size - int(counts.sum())
        n_high, n_low, _ = counts.tolist()
        return Moments.of_chunk(n, n_high, n_low, float(centre), total, square, scale)
