"""Host chunks to GPUs, through pinned buffers that several threads fill.

::

    chunk ──> pieces ──np.copyto──> pinned buffers ──cudaMemcpyAsync──> device array
               8 MiB    8 threads     16 a device      1 stream a device

A thread copies ordinary memory at 9 GB/s. A GPU reads pinned memory at 55 GB/s, and cannot read
ordinary memory itself. So several threads fill some buffers while full ones are sent.

Two rules prevent deadlocks, for any number of tasks, threads and buffers. Only a thread that is
copying holds a buffer, and while it does, it waits for nothing but the GPU. A buffer that was sent
goes back to the others immediately, with an event that its next user waits for. Pieces are copied
in the order of their arrival: the chunk that came first is complete first, and is computed on while
the next one is copied.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any

import numpy as np
from dask.base import tokenize
from dask.system import CPU_COUNT
from dask.utils import format_bytes
from numpy.typing import NDArray

from dask_gpuselect import forks
from dask_gpuselect.arguments import public
from dask_gpuselect.arrays import check_not_masked
from dask_gpuselect.devices import check_device, import_cupy
from dask_gpuselect.engine.door import entered
from dask_gpuselect.engine.settings import n_bytes, number
from dask_gpuselect.engine.source import DaskArray, Step, map_blocks
from dask_gpuselect.engine.threads import Threads

BUFFER = 8 << 20  # bytes; copies with buffers of 32 MiB were slower
# On an H200 1, 4 and 8 threads copied 9, 30 and 51 GB/s, of the 55 that its link carries.
MOST_THREADS = 8

CUPY_DTYPES = "?bhilqBHILQefdFD"  # as `np.dtype.char`


@public("x")
def to_gpu(x: DaskArray) -> DaskArray:
    """Move the chunks of a dask array to the GPU, several times faster than a plain copy.

    Parameters
    ----------
    x : dask array
        Its chunks are NumPy arrays of any layout, of bool, integers, floats or complex numbers.
        Chunk sizes may be unknown. Chunks that are CuPy arrays already stay as they are.

    Returns
    -------
    dask array
        The same values in CuPy chunks, of the same shape and chunks, in native byte order. Nothing
        is moved until it is computed. Each chunk goes to the device that is current in the thread
        of its task.

    Raises
    ------
    ImportError
        At the call, and while computing, if CuPy is not installed.
    RuntimeError
        At the call, and while computing, if there is no CUDA device, or its driver is too old.
    TypeError
        At the call, for what is not a dask array, for masked arrays, and for dtypes that CuPy
        does not support: datetimes, strings, objects, long doubles. While computing, for chunks of
        these kinds.
    ValueError
        While computing, for an invalid config value.
    MemoryError
        While computing, if a chunk does not fit in the memory of the device.

    Warns
    -----
    RuntimeWarning
        Once for each process and device, if pinned memory could not be allocated. Chunks are then
        copied without it: the same values, but slower.

    See Also
    --------
    median : Medians of CuPy chunks are computed on the GPU.
    quantile : So are quantiles.

    Notes
    -----
    Chunks go through a pool of pinned host buffers, filled by several threads: 51 GB/s from
    ordinary memory to an H200, whose link carries 55; a plain copy takes 7 to 9. A task returns as
    soon as its chunk has left for the device; the current stream waits for its arrival. With two or
    more tasks at once, chunks are copied while others are computed on.

    Two values of dask's config, read where the tasks run:

    ``dask_gpuselect.staging-pool``
        Bytes of pinned memory for each process and device, allocated when first needed and not
        freed; "128 MiB" by default. It is divided into buffers of 8 MiB: with less than that,
        chunks are copied without pinned memory.
    ``dask_gpuselect.staging-threads``
        Number of threads that fill the buffers, for each process and device; by default 8, or the
        number of CPUs if that is less.

    Reads: a chunk of `x` is read whenever a chunk of the result is computed.

    Memory: a task holds one chunk on the host, and a copy of it on the device. With M bytes of
    device memory, t threads can work on chunks of M / t bytes, less the memory that the computation
    needs.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import median
    >>> from dask_gpuselect import to_gpu
    >>> x = da.from_zarr("measurements.zarr")  # doctest: +SKIP
    >>> median(to_gpu(x)).compute()  # doctest: +SKIP
    array(0.5)
    """
    if not isinstance(x, DaskArray):
        raise TypeError(
            f"to_gpu takes a dask array, not {type(x).__name__}: "
            "for an array in memory, type cupy.asarray(x)"
        )
    check_not_masked(x._meta)
    dtype = _native_dtype(x.dtype)
    cupy = import_cupy()
    if isinstance(x._meta, cupy.ndarray):
        return x
    check_device()
    x = entered(x)
    meta = cupy.empty((0,) * x.ndim, dtype)
    name = f"to-gpu-{tokenize(x)}"
    return map_blocks(Step("stage", _stage), x, name=name, dtype=dtype, meta=meta)


def _stage(chunk: Any) -> Any:
    """Copy a chunk to the current device."""
    cupy = import_cupy()
    if isinstance(chunk, cupy.ndarray):
        return chunk
    check_device()
    return _staging(cupy.cuda.runtime.getDevice()).copy(_as_numpy(chunk))


def _as_numpy(chunk: Any) -> NDArray[Any]:
    """Return a chunk as a NumPy array, or raise if it is none."""
    if not isinstance(chunk, np.ndarray | np.generic):
        raise TypeError(
            f"a chunk of type {type(chunk).__name__} cannot be moved to the GPU: "
            "chunks must be NumPy or CuPy arrays; pass x.map_blocks(numpy.asarray)"
        )
    return np.asarray(chunk)


def _native_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype in native byte order, the only one on GPUs.

    Raise a TypeError if CuPy does not support it.
    """
    if dtype.char in CUPY_DTYPES:
        return dtype.newbyteorder("=")
    hint = ": pass x.view('int64')" if dtype.kind in "mM" else ""
    raise TypeError(
        f"dtype {dtype} cannot be moved to the GPU, because CuPy does not support it{hint}"
    )


# --- One staging for each device ----------------------------------------------------------------


_stagings: dict[int, Staging] = {}
_stagings_lock = forks.lock()


def _staging(device: int) -> Staging:
    """Return the staging of the current device; a new one after a change of the config."""
    settings = _settings()
    with _stagings_lock:
        staging = _stagings.get(device)
        if staging is not None and staging.settings == settings:
            return staging
        staging = _stagings[device] = Staging(CudaLink(), *settings)
    if staging.problem:
        warnings.warn(
            f"{settings[0]} buffers of {format_bytes(BUFFER)} of pinned memory could not be "
            f"allocated for CUDA device {device}: chunks are copied without them, which is slower. "
            f"Try a smaller config value dask_gpuselect.staging-pool ({staging.problem})",
            RuntimeWarning,
            stacklevel=2,
        )
    return staging


def _settings() -> tuple[int, int]:
    """Return the numbers of buffers and of threads from dask's config."""
    pool = n_bytes("staging-pool")
    threads = number("staging-threads", min(MOST_THREADS, CPU_COUNT))
    return pool // BUFFER, threads


# --- Staging ------------------------------------------------------------------------------------


Buffer = tuple[NDArray[np.uint8], Any]
"""Pinned memory, and the event that its content has been sent.

An event that was never recorded has happened.
"""


class Staging:
    """Copies of arrays to a device, for any number of threads at the same time.

    Parameters
    ----------
    link : CudaLink
        The link to the device.
    n_buffers : int
        Number of pinned buffers. Without any, or if they cannot be allocated, copies are plain.
    n_threads : int
        Number of threads that fill them.
    size : int
        Bytes of a buffer, a multiple of 16.

    Attributes
    ----------
    problem : str
        Why there are no buffers, if some were asked for.
    """

    def __init__(self, link: CudaLink, n_buffers: int, n_threads: int, size: int = BUFFER) -> None:
        self.link = link
        self.settings = (n_buffers, n_threads)
        self.size = size
        self.problem = ""
        self.buffers: SimpleQueue[Buffer] = SimpleQueue()
        try:
            buffers = [(link.pinned(size), link.event()) for _ in range(n_buffers)]
        except (RuntimeError, MemoryError) as error:  # CUDA's errors are RuntimeErrors
            buffers, self.problem = [], str(error) or type(error).__name__
        self.is_plain = not buffers
        for buffer in buffers:
            self.buffers.put(buffer)
        self.turn = threading.Lock()
        self.threads = Threads(n_threads, initializer=link.use)
        weakref.finalize(self, link.drain)  # so that no buffer is freed while it is read

    def copy(self, source: NDArray[Any]) -> Any:
        """Return a device array with the values of `source`, its axes in the same order in memory.

        The consumer may use it immediately, and `source` is not needed any more.
        """
        axes = sorted(range(source.ndim), key=lambda axis: -abs(source.strides[axis]))
        ordered = source.transpose(axes)  # in C order, if an order of the axes makes it so
        target = self._allocate(ordered)
        if self.is_plain and source.size:
            self.link.copy(np.ascontiguousarray(ordered, target.dtype), target)
        elif source.size:
            self._send_all(ordered, target)
        return target.transpose(np.argsort(axes).tolist())

    def _allocate(self, source: NDArray[Any]) -> Any:
        """Allocate a device array for a NumPy array."""
        try:
            return self.link.empty(source.shape, _native_dtype(source.dtype))
        except MemoryError as error:
            raise MemoryError(
                f"a chunk of {format_bytes(source.nbytes)} does not fit in the memory of the GPU: "
                f"use smaller chunks (x.rechunk), or fewer threads ({error})"
            ) from error

    def _send_all(self, source: NDArray[Any], target: Any) -> None:
        """Fill `target`, in C order, from `source`."""
        after = self.link.consumed()  # memory of `target` may have been used by others before
        futures: list[Future[None]] = []
        offset = 0
        try:
            # If the pieces of two chunks were mixed, both would be complete only at the end, and
            # nothing would be copied while they are computed on.
            with self.turn:
                for piece in _pieces(source, self.size):
                    futures.append(self.threads.submit(self._send, piece, target, offset, after))
                    offset += piece.nbytes
            for future in futures:
                future.result()
        finally:
            # After an error too, nobody may read `source` or write `target` when they are freed.
            for future in futures:
                future.cancel()
            wait(futures)
            self.link.hand_over()

    def _send(self, piece: NDArray[Any], target: Any, offset: int, after: Any) -> None:
        """Copy a piece to a buffer, and send the buffer. This runs in one of `threads`."""
        memory, sent = buffer = self.buffers.get()  # the free buffer that was sent first
        try:
            sent.synchronize()
            piece_memory = memory[: piece.nbytes]
            np.copyto(piece_memory.view(target.dtype).reshape(piece.shape), piece)
            self.link.send(piece_memory, target, offset, after, sent)
        finally:
            self.buffers.put(buffer)


def _pieces(source: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    """Yield views of at most `size` bytes that follow one another in C order."""
    if source.nbytes <= size:
        yield source
        return
    if source.flags.c_contiguous:
        source = source.reshape(-1)
    row = source.nbytes // len(source)
    if row > size:
        for part in source:
            yield from _pieces(part, size)
    else:
        step = size // row
        for start in range(0, len(source), step):
            yield source[start : start + step]


class CudaLink:
    """Operations that staging needs of the device that is current where this is made.

    Every method except `use` and `drain` is called with the device current. The consumer is the
    stream that is current where a chunk is copied: the next one to use the chunk.
    """

    def __init__(self) -> None:
        cupy = import_cupy()
        self.cuda = cupy.cuda
        self.empty = cupy.empty
        self.device = self.cuda.Device()
        self.stream = self.cuda.Stream(non_blocking=True)

    def use(self) -> None:
        """Make the device current in this thread."""
        self.device.use()

    def pinned(self, size: int) -> NDArray[np.uint8]:
        """Allocate pinned host memory; raise a RuntimeError or MemoryError if there is none."""
        return np.frombuffer(self.cuda.alloc_pinned_memory(size), np.uint8, size)

    def event(self) -> Any:
        """Make a new event."""
        # A blocking event: threads that spin would take the CPUs from those that copy.
        return self.cuda.Event(block=True, disable_timing=True)

    def consumed(self) -> Any:
        """Return the event that the consumer has finished all work it was given so far."""
        event = self.event()
        event.record(self.cuda.get_current_stream())
        return event

    def send(
        self, memory: NDArray[np.uint8], target: Any, offset: int, after: Any, sent: Any
    ) -> None:
        """Copy pinned memory to `target` from byte `offset` on, after an event; record `sent`.

        The call does not wait.
        """
        self.stream.wait_event(after)
        place = target.data + offset
        place.copy_from_host_async(memory.ctypes.data, memory.nbytes, self.stream)
        sent.record(self.stream)

    def hand_over(self) -> None:
        """Let the consumer wait for all that was sent."""
        arrived = self.event()
        arrived.record(self.stream)
        consumer = self.cuda.get_current_stream()
        consumer.wait_event(arrived)
        if consumer.ptr not in (0, self.cuda.runtime.streamLegacy):
            arrived.synchronize()  # other threads have other streams, which would not wait

    def copy(self, source: NDArray[Any], target: Any) -> None:
        """Copy ordinary memory in C order, and wait."""
        # Not cupy.asarray: that asks for as much pinned memory as the chunk has bytes.
        consumer = self.cuda.get_current_stream()
        target.data.copy_from_host_async(source.ctypes.data, source.nbytes, consumer)
        consumer.synchronize()

    def drain(self) -> None:
        """Wait for all that was sent."""
        self.stream.synchronize()
