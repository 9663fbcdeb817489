"""Compiling and starting kernels, and copying records to a device and back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import cupy
import numpy as np

from dask_gpuselect.devices import check_device
from dask_gpuselect.kernels.cuda.source import (
    PASSED,
    TYPES,
    Defined,
    Sizes,
    definitions,
    kernels,
    sizes_for,
    source,
)

Array = Any  # a CuPy array
P = ParamSpec("P")
T = TypeVar("T")


@cache
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


def to_share(arrays: T) -> T:
    """Wait until arrays are on the device: calls in other streams, which take them, would not."""
    cupy.cuda.get_current_stream().synchronize()
    return arrays


def coded(codes: Array | None) -> Defined:
    """Return the definition of the type of codes, by default of four bytes; see ``codes.cuh``."""
    return (("CODE_BYTES", 4 if codes is None else codes.itemsize),)


MOST_BLOCKS = (1 << 31) - 1  # blocks of a grid


def held(weights: Array) -> Defined:
    """Return the definitions of the type of weights; see ``weights.cuh``."""
    return ("WHOLE", int(weights.dtype.kind == "i")), ("NARROW", int(weights.dtype == np.float32))


def launch(
    dtype: np.dtype[Any],
    name: str,
    *arguments: Any,
    shared: int = 0,
    blocks: int = 0,
    n_threads: int = 0,
    rows: int = 1,
    spared: int = 0,
    defined: Defined = (),
) -> None:
    """Start a kernel; by default with as many blocks as run at the same time.

    Parameters
    ----------
    arguments : arrays, numbers, records or None
        One for each parameter of the kernel. Numbers are converted to its type, and None is a null
        pointer.
    shared : int
        Number of bytes of dynamic shared memory.
    blocks : int
        Number of blocks.
    n_threads : int
        Number of threads to start; instead of `blocks`.
    rows : int
        Number of rows of blocks, which share all blocks.
    spared : int
        Number of blocks that are not started, to leave room for calls beside: see `beside`.
    """
    how = {"shared": shared, "blocks": blocks, "n_threads": n_threads}
    how |= {"rows": rows, "spared": spared}
    start, taken = prepared(dtype, name, defined, **how)
    start(taken(arguments))


def prepared(
    dtype: np.dtype[Any],
    name: str,
    defined: Defined = (),
    *,
    shared: int = 0,
    blocks: int = 0,
    n_threads: int = 0,
    rows: int = 1,
    spared: int = 0,
) -> tuple[Callable[[tuple[Any, ...]], None], Callable[..., tuple[Any, ...]]]:
    """Return what starts a kernel with converted arguments, and what converts them.

    See `launch`. The second function takes arguments, and the parameter that is the first of them.
    """
    kernel = _prepared(dtype, name, shared, cupy.cuda.Device().id, defined)
    if n_threads:
        blocks = min(-(-n_threads // kernel.threads), MOST_BLOCKS)
    n_blocks = max((blocks or kernel.at_once - spared) // rows, 1)
    grid, block = (n_blocks, rows), (kernel.threads,)
    return partial(kernel.start, grid, block, shared_mem=shared), kernel.taken


def launch_together(
    dtype: np.dtype[Any],
    name: str,
    arguments: tuple[int | np.ndarray[Any, Any], ...],
    shared: int = 0,
    *,
    blocks: int,
    defined: Defined = (),
) -> None:
    """Start at most `blocks` blocks of a kernel that wait for each other: all run at the same time.

    Arguments are addresses, and arrays on the host that are passed by value.
    """
    kernel = _prepared(dtype, name, shared, cupy.cuda.Device().id, defined)
    addresses = (ctypes.c_uint64 * len(arguments))()
    places = (ctypes.c_uint64 * len(arguments))()
    first = ctypes.addressof(addresses)
    for i, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            places[i] = argument.ctypes.data
        else:
            addresses[i], places[i] = argument, first + 8 * i
    grid, block = (min(blocks, kernel.at_once), 1, 1), (kernel.threads, 1, 1)
    stream = cupy.cuda.get_current_stream().ptr
    # CuPy's own flag for cooperative kernels needs a library of the CUDA toolkit.
    start = cupy.cuda.driver.launchCooperativeKernel
    start(kernel.start.kernel.ptr, *grid, *block, shared, stream, ctypes.addressof(places))


def blocks_at_once(dtype: np.dtype[Any], name: str, defined: Defined = (), shared: int = 0) -> int:
    """Return the number of blocks that `launch` starts of a kernel."""
    return _prepared(dtype, name, shared, cupy.cuda.Device().id, defined).at_once


class _Kernel(NamedTuple):
    """A compiled kernel: its threads in a block, and its blocks that run at the same time.

    `types` convert arguments to the types of its parameters.
    """

    start: Any
    threads: int
    at_once: int
    types: tuple[Callable[[Any], Any], ...]

    def taken(self, arguments: Sequence[Any], first: int = 0) -> tuple[Any, ...]:
        """Convert arguments for parameters from the `first` on."""
        types = self.types[first : first + len(arguments)] if first else self.types
        return tuple([take(each) for take, each in zip(types, arguments, strict=True)])


@cache
def _prepared(
    dtype: np.dtype[Any], name: str, shared: int, device: int, defined: Defined = ()
) -> _Kernel:
    """Compile a kernel."""
    kernel = _module(name, dtype, device, defined).get_function(name)
    if shared > kernel.max_dynamic_shared_size_bytes:
        kernel.max_dynamic_shared_size_bytes = shared
    # The driver needs a context. A thread that only took memory from a pool may have none.
    cupy.cuda.Device(device).use()
    _, stated, types = kernels()[name]
    known = definitions(dtype, sizes_of(dtype, device), defined)
    threads = int(known.get(stated) or stated)
    occupancy = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
    each = occupancy(kernel.kernel.ptr, threads, shared)
    attribute = cupy.cuda.runtime.cudaDevAttrMultiProcessorCount
    at_once = int(each * cupy.cuda.runtime.deviceGetAttribute(attribute, device))
    return _Kernel(kernel, threads, at_once, tuple(map(_type_of, types)))


NUMBERS = {name: np.dtype(kind).type for name, kind in TYPES.items()} | {"signed char": np.int8}
"""Types of parameters that are numbers."""


def _type_of(parameter: str) -> Callable[[Any], Any]:
    """Return what converts an argument to the type of a parameter."""
    if parameter.endswith("*"):
        return as_pointer
    return _as_bytes if "__grid_constant__" in parameter else NUMBERS.get(parameter, _as_it_is)


def as_pointer(array: Any) -> Any:
    """Return an array, or a null pointer for None."""
    return np.uint64(0) if array is None else array


def _as_bytes(record: Any) -> Any:
    """Return a record as opaque bytes; CuPy would go through its fields one by one."""
    return record.reshape(1).view(f"V{record.itemsize}")[0]


def _as_it_is(number: Any) -> Any:
    """Return a number of the dtype of the elements."""
    return number


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


MOST_PLACED = 3  # kernels that pass a record on


def on_device(record: Any, n_zeros: int = 0, *, room: int = 0) -> Array:
    """Copy a record or an array to the device as bytes.

    Behind it are `n_zeros` zeros and `room` unset bytes. A small record, or one that ends in zeros,
    goes as an argument of one kernel or a few, which take 15 us each; a staged copy takes 55 to
    150.
    """
    content = np.ravel(record).view(np.uint8)
    n_out = content.size + n_zeros
    if content.size > PASSED:
        content = content[: content.size - int((content[::-1] != 0).argmax())]
    if content.size > MOST_PLACED * PASSED:
        return cupy.asarray(np.append(content, np.zeros(n_out + room - content.size, np.uint8)))
    out = cupy.empty(n_out + room, np.uint8)
    for start in range(0, max(content.size, 1), PASSED):
        passed, part = np.zeros(PASSED, np.uint8), content[start : start + PASSED]
        passed[: part.size] = part
        stop = n_out if start + PASSED >= content.size else start + PASSED
        given = passed.view(f"V{PASSED}"), part.size, stop - start, out[start:]
        launch(out.dtype, "place", *given, blocks=1)
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


@cache
def _stream_beside(device: int) -> Any:
    return cupy.cuda.Stream(non_blocking=True)


def beside(start: Callable[[], Callable[[], T]]) -> Callable[[], T]:
    """Start work that later calls do not wait for; return the function that waits for it.

    The work begins when all calls before have ended, in a stream of its own. Keep what it reads
    until the function has waited, or drop the function: memory that is freed may be written to.
    """
    before = cupy.cuda.get_current_stream().record()
    stream = _stream_beside(cupy.cuda.Device().id)
    stream.wait_event(before)
    with stream:
        return start()


def filled(record: np.dtype[Any], **fields: Any) -> Any:
    """Make a record of some numbers and of the addresses of some arrays; other fields are 0."""
    made = np.zeros((), record)
    for name, value in fields.items():
        made[name] = value.data.ptr if isinstance(value, cupy.ndarray) else value
    return made


def places_in(array: Array, record: np.dtype[Any]) -> dict[str, np.uint64]:
    """Return the addresses of the fields of a record that is at the start of an array."""
    first = array.data.ptr
    return {name: np.uint64(first + at) for name, at in offsets(record).items()}


@lru_cache
def offsets(record: np.dtype[Any]) -> dict[str, int]:
    """Return the offsets of the fields of a record."""
    return {name: entry[1] for name, entry in (record.fields or {}).items()}
