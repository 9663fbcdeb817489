from __future__ import annotations

import ctypes
import math
from typing import Any

from ._device import (
    MOST_BLOCKS,
    N_MULTIPROCESSORS,
    SHARED_OF_BLOCK,
    SHARED_OF_MULTIPROCESSOR,
    THREADS_OF_MULTIPROCESSOR,
)

OF_SYSTEM = 1024  # bytes of shared memory of each block
FREE = 48 << 10  # that a block has without asking
functions: list[Any] = [None]  # a function's address is its place here


class CUDADriverError(RuntimeError):
    pass


def occupancyMaxActiveBlocksPerMultiprocessor(function: int, threads: int, shared: int) -> int:
    own = shared + OF_SYSTEM + functions[function].n_static
    return min(THREADS_OF_MULTIPROCESSOR // threads, SHARED_OF_MULTIPROCESSOR // own, MOST_BLOCKS)


def check(function: Any, grid: Any, block: Any, shared: int) -> None:
    """Raise for a launch that a device refuses."""
    threads = block[0] * block[1] * block[2]
    if min(*grid, *block) < 1 or threads > 1024:
        raise CUDADriverError(f"invalid configuration: grid {grid}, block {block}")
    if shared > function.max_dynamic_shared_size_bytes:
        raise CUDADriverError(
            f"{function.name} asks for {shared} bytes of shared memory, "
            f"and may have {function.max_dynamic_shared_size_bytes}"
        )
    assert shared + function.n_static <= SHARED_OF_BLOCK, f"{function.name}: too much shared memory"


def launchCooperativeKernel(function: int, *numbers: int) -> None:
    """Launch a grid and blocks of three sizes each, with shared memory, a stream and arguments."""
    *sizes, shared, _, arguments = numbers
    kernel, grid, block = functions[function], sizes[:3], sizes[3:]
    check(kernel, grid, block, shared)
    together = N_MULTIPROCESSORS * occupancyMaxActiveBlocksPerMultiprocessor(
        function, math.prod(block), shared
    )
    if math.prod(grid) > together:
        raise CUDADriverError(f"too many blocks for a cooperative launch: {grid}")
    places = (ctypes.c_uint64 * len(kernel.compiled.sizes)).from_address(arguments)
    kernel.compiled(list(places), grid, block, shared, cooperative=True)
