"""Compiling and starting kernels, and copying records to a device and back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import cupy
import numpy as np

from dask_gpuselect.devices import check_device
from dask_gpuselect.kernels.cuda.source import (
    PASSED,
    PLACE_THREADS,
    Defined,
    Sizes,
    sizes_for,
    source,
)

Array = Any  # a CuPy array
P = ParamSpec("P")
T = TypeVar("T")


def advised(kernel: Callable[P, T]) -> Callable[P, T]:
    """Decorate a kernel: if device memory runs out, raise an error that says what to do."""

    @wraps(kernel)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return kernel(*args, **kwargs)
        except cupy.cuda.memory.OutOfMemoryError as error:
            cupy.get_default_memory_pool().free_all_blocks()
            raise MemoryError(
                f"{error}. Use smaller chunks (x.rechunk), or fewer threads for a GPU: each holds "
                "a chunk and scratch of at most two chunks."
            ) from error

    return wrapped


def launch(
    dtype: np.dtype[Any],
    name: str,
    threads: int,
    arguments: tuple[Any, ...],
    shared: int = 0,
    *,
    blocks: int = 0,
    defined: Defined = (),
) -> None:
    """Start a kernel; by default with as many blocks as run at the same time.

    `shared` is the number of bytes of dynamic shared memory.
    """
    kernel, at_once = _prepared(dtype, name, threads, shared, cupy.cuda.Device().id, defined)
    kernel((blocks or at_once,), (threads,), arguments, shared_mem=shared)


def launch_together(
    dtype: np.dtype[Any],
    name: str,
    threads: int,
    arguments: tuple[int | np.ndarray[Any, Any], ...],
    shared: int = 0,
    *,
    blocks: int,
    defined: Defined = (),
) -> None:
    """Start at most `blocks` blocks of a kernel that wait for each other: all run at the same time.

    Arguments are addresses, and arrays on the host that are passed by value.
    """
    kernel, at_once = _prepared(dtype, name, threads, shared, cupy.cuda.Device().id, defined)
    addresses = (ctypes.c_uint64 * len(arguments))()
    places = (ctypes.c_uint64 * len(arguments))()
    first = ctypes.addressof(addresses)
    for i, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            places[i] = argument.ctypes.data
        else:
            addresses[i], places[i] = argument, first + 8 * i
    grid, block = (min(blocks, at_once), 1, 1), (threads, 1, 1)
    stream = cupy.cuda.get_current_stream().ptr
    # CuPy's own flag for cooperative kernels needs a library of the CUDA toolkit.
    start = cupy.cuda.driver.launchCooperativeKernel
    start(kernel.kernel.ptr, *grid, *block, shared, stream, ctypes.addressof(places))


def blocks_at_once(dtype: np.dtype[Any], name: str, threads: int, defined: Defined = ()) -> int:
    """Return the number of blocks that `launch` starts of a kernel without shared memory."""
    return _prepared(dtype, name, threads, 0, cupy.cuda.Device().id, defined)[1]


@cache
def _prepared(
    dtype: np.dtype[Any],
    name: str,
    threads: int,
    shared: int,
    device: int,
    defined: Defined = (),
) -> tuple[Any, int]:
    """Compile a kernel; return it with the number of its blocks that run at the same time."""
    kernel = _module(name, dtype, device, defined).get_function(name)
    if shared > kernel.max_dynamic_shared_size_bytes:
        kernel.max_dynamic_shared_size_bytes = shared
    # The driver needs a context. A thread that only took memory from a pool may have none.
    cupy.cuda.Device(device).use()
    occupancy = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
    each = occupancy(kernel.kernel.ptr, threads, shared)
    attribute = cupy.cuda.runtime.cudaDevAttrMultiProcessorCount
    return kernel, int(each * cupy.cuda.runtime.deviceGetAttribute(attribute, device))


def _module(name: str, dtype: np.dtype[Any], device: int, defined: Defined) -> Any:
    """Compile a kernel as a module of its own."""
    check_device()
    code = source(name, dtype, sizes_of(dtype, device), defined)
    return cupy.RawModule(code=code, backend="nvrtc", options=("--std=c++17",))


@cache
def most_shared(device: int) -> int:
    """Return the bytes of shared memory that a block can have."""
    attribute = cupy.cuda.runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin
    return int(cupy.cuda.runtime.deviceGetAttribute(attribute, device))


@cache
def sizes_of(dtype: np.dtype[Any], device: int) -> Sizes:
    """Return the sizes with which the kernels of load 1 are compiled for a device."""
    shared = most_shared(device)
    sizes = sizes_for(dtype, shared)
    if sizes is None:
        raise RuntimeError(
            f"the CUDA device has {shared >> 10} KiB of shared memory a block, less than the "
            "kernels need: use a device of compute capability 7.0 or later, or move the chunks to "
            "the host, x.map_blocks(cupy.asnumpy)"
        )
    return sizes


def on_device(record: Any, n_zeros: int = 0, *, room: int = 0) -> Array:
    """Copy a record to the device as bytes, followed by `n_zeros` zeros and `room` unset bytes.

    A small record goes as an argument of a kernel, which takes 15 us; a staged copy takes 55.
    """
    told = record.reshape(1).view(np.uint8)
    if told.size > PASSED:
        return cupy.asarray(np.append(told, np.zeros(n_zeros + room, np.uint8)))
    passed = np.zeros(PASSED, np.uint8)
    passed[: told.size] = told
    n_out = told.size + n_zeros
    out = cupy.empty(n_out + room, np.uint8)
    # CuPy passes an array of one element by value.
    arguments = (passed.view(f"V{PASSED}"), np.int32(told.size), np.int32(n_out), out)
    launch(out.dtype, "place", PLACE_THREADS, arguments, blocks=1)
    return out


def copied_ahead(array: Array) -> Callable[[], Any]:
    """Start a copy to the host that later work does not delay; return a function that waits."""
    host = np.frombuffer(cupy.cuda.alloc_pinned_memory(array.nbytes), array.dtype, array.size)
    array.get(out=host, blocking=False)
    event = cupy.cuda.Event(disable_timing=True)
    event.record()

    def wait() -> Any:
        event.synchronize()
        return host

    return wait


@lru_cache
def offsets(record: np.dtype[Any]) -> dict[str, int]:
    """Return the offsets of the fields of a record."""
    return {name: entry[1] for name, entry in (record.fields or {}).items()}
