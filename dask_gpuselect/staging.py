"""Host chunks to GPUs, through pinned buffers that several threads fill.

::

    chunk ──> pieces ──np.copyto──> pinned buffers ──cudaMemcpyAsync──> device array
               8 MiB    8 threads     16 a device      1 stream a device

A thread copies ordinary memory at 9 GB/s, and a GPU takes only what is in pinned memory, at
55 GB/s. So several threads fill buffers while full ones are on their way.

Two rules keep this free of deadlocks, whatever the numbers of tasks, threads and buffers: only a
thread that is copying holds a buffer, and it waits for nothing then but the GPU; and a buffer that
was sent goes back to the others at once, with an event that its next user waits for. Pieces are
copied in the order of their arrival: the chunk that came first is complete first, and is computed
on while the next one is copied.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

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

BUFFER = 8 << 20  # bytes; with 32 MiB the copies were slower
# On an H200 1, 4 and 8 threads copied 9, 30 and 51 GB/s, of the 55 that its link carries.
MOST_THREADS = 8

CUPY_DTYPES = "?bhilqBHILQefdFD"  # as `np.dtype.char`


@public("x")
def to_gpu(x: DaskArray) -> DaskArray:
    """Move the chunks of a dask array to the GPU, several times faster than a plain copy.

    Parameters
    ----------
    x : dask array
        Of NumPy chunks of any layout, of bool, integers, floats or complex numbers; chunk sizes
        known or not. Chunks that are CuPy arrays already stay what they are.

    Returns
    -------
    dask array
        The same values in CuPy chunks, of the same shape and chunks, in native byte order. Nothing
        is moved until it is computed. Each chunk goes to the device that is current where and when
        its task runs.

    Raises
    ------
    ImportError
        At the call, and while computing, if CuPy is not installed.
    RuntimeError
        At the call, and while computing, if there is no CUDA device, or its driver is too old.
    TypeError
        At the call, for what is not a dask array, for masked arrays, and for dtypes that CuPy
        lacks: datetimes, strings, objects, long doubles. While computing, for such chunks.
    ValueError
        While computing, for a config value that makes no sense.
    MemoryError
        While computing, if a chunk finds no room on the device.

    Warns
    -----
    RuntimeWarning
        Once for each process and device, if no pinned memory could be had. Then chunks are copied
        plainly: the same values, but slower.

    See Also
    --------
    median, quantile

    Notes
    -----
    Chunks go through a pool of pinned host buffers, filled by several threads: 51 GB/s from
    ordinary memory to an H200, whose link carries 55; a plain copy takes 7 to 9. A task returns as
    soon as its chunk has left for the device; the current stream waits for its arrival. With two or
    more tasks at once, chunks are copied while others are computed on.

    Two values of dask's config, read where the tasks run:

    ``dask_gpuselect.staging-pool``
        Bytes of pinned memory, for each process and device, taken when first needed and kept;
        "128 MiB" unless set. In buffers of 8 MiB: with less than that, chunks are copied plainly.
    ``dask_gpuselect.staging-threads``
        Threads that fill them, for each process and device; 8 unless set, or as many as there are
        CPUs if these are fewer.

    Loads: a chunk of `x` is loaded whenever a chunk of the result is.

    Memory: a task holds one chunk on the host, and as much on the device. In device memory of M
    bytes, t threads can work on chunks of M / t bytes less what the computation needs.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect import median
    >>> x = da.from_zarr("measurements.zarr")  # doctest: +SKIP
    >>> median(to_gpu(x)).compute()  # doctest: +SKIP
    array(0.5)
    """
    if not isinstance(x, DaskArray):
        raise TypeError(
            f"to_gpu takes a dask array, not {type(x).__name__}: "
            "for an array in memory there is cupy.asarray"
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
    moved: DaskArray = map_blocks(Step("stage", _stage), x, name=name, dtype=dtype, meta=meta)
    return moved


def _stage(chunk: Any) -> Any:
    """A chunk on the current device."""
    cupy = import_cupy()
    if isinstance(chunk, cupy.ndarray):
        return chunk
    check_device()
    return _staging(cupy.cuda.runtime.getDevice()).copy(_as_numpy(chunk))


def _as_numpy(chunk: Any) -> NDArray[Any]:
    if not isinstance(chunk, np.ndarray | np.generic):
        raise TypeError(
            f"a chunk of type {type(chunk).__name__} cannot be moved to the GPU: "
            "it is neither a NumPy nor a CuPy array"
        )
    return np.asarray(chunk)


def _native_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype in native byte order, which is the only one on GPUs; a TypeError if CuPy lacks it."""
    if dtype.char in CUPY_DTYPES:
        return dtype.newbyteorder("=")
    hint = ": view or convert it as int64 first" if dtype.kind in "mM" else ""
    raise TypeError(f"dtype {dtype} cannot be moved to the GPU, CuPy does not have it{hint}")


# --- One staging for each device ----------------------------------------------------------------


class Settings(NamedTuple):
    """How many pinned buffers there are, and threads that fill them."""

    n_buffers: int
    n_threads: int


_stagings: dict[int, Staging] = {}
_stagings_lock = forks.lock()


def _staging(device: int) -> Staging:
    """The staging of the current device; a new one after a change of the config."""
    settings = _settings()
    with _stagings_lock:
        staging = _stagings.get(device)
        if staging is not None and staging.settings == settings:
            return staging
        staging = _stagings[device] = Staging(CudaLink(), settings)
    if staging.problem:
        warnings.warn(
            f"no pinned memory for CUDA device {device}, of {settings.n_buffers} buffers of "
            f"{format_bytes(BUFFER)}: chunks are copied to it plainly, which is slower. "
            f"Try a smaller config value dask_gpuselect.staging-pool ({staging.problem})",
            RuntimeWarning,
            stacklevel=2,
        )
    return staging


def _settings() -> Settings:
    """The settings that dask's config asks for."""
    pool = n_bytes("staging-pool")
    threads = number("staging-threads", min(MOST_THREADS, CPU_COUNT))
    return Settings(pool // BUFFER, threads)


# --- Staging ------------------------------------------------------------------------------------


class Event(Protocol):
    """Something that happens on the device; has happened if nothing was recorded."""

    def synchronize(self) -> None:
        """Wait for it."""


class Link(Protocol):
    """What staging needs of a device. Every method but `drain` is called with the device current.

    The consumer is the stream that is current where a chunk is copied: who works on it next.
    """

    def use(self) -> None:
        """Make the device current in this thread."""

    def pinned(self, size: int) -> NDArray[np.uint8]:
        """Pinned host memory; a RuntimeError or MemoryError if there is none."""

    def event(self) -> Event:
        """A new event."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A device array in C order; a MemoryError if there is no room."""

    def consumed(self) -> Event:
        """The event that the consumer has done what it was given so far."""

    def send(
        self, memory: NDArray[np.uint8], target: Any, offset: int, after: Event, sent: Event
    ) -> None:
        """Copy pinned memory to `target`, from a byte of it on, after an event; record `sent`. Does
        not wait."""

    def hand_over(self) -> None:
        """Let the consumer wait for all that was sent."""

    def copy(self, source: NDArray[Any], target: Any) -> None:
        """Copy ordinary memory in C order, and wait."""

    def drain(self) -> None:
        """Wait for all that was sent."""


class Buffer(NamedTuple):
    """Pinned memory, and the event that its content has been sent."""

    memory: NDArray[np.uint8]
    sent: Event


class Staging:
    """Copies arrays to a device, for any number of threads at once.

    Parameters
    ----------
    link : Link
        To the device.
    settings : Settings
        Without buffers, or if they cannot be had, copies are plain.
    size : int
        Bytes of a buffer, a multiple of 16.

    Attributes
    ----------
    problem : str
        Why there are no buffers, if they were wanted.
    """

    def __init__(self, link: Link, settings: Settings, size: int = BUFFER) -> None:
        self.link = link
        self.settings = settings
        self.size = size
        self.problem = ""
        self.buffers: SimpleQueue[Buffer] = SimpleQueue()
        try:
            buffers = [Buffer(link.pinned(size), link.event()) for _ in range(settings.n_buffers)]
        except (RuntimeError, MemoryError) as error:  # CUDA's errors are RuntimeErrors
            buffers, self.problem = [], str(error) or type(error).__name__
        self.is_plain = not buffers
        for buffer in buffers:
            self.buffers.put(buffer)
        self.turn = threading.Lock()
        self.threads = Threads(settings.n_threads, initializer=link.use)
        weakref.finalize(self, link.drain)  # no buffer is freed that is still being read

    def copy(self, source: NDArray[Any]) -> Any:
        """A device array with the values of `source`, its axes in the same order in memory.

        The consumer may use it at once, and `source` is not needed any more.
        """
        axes = sorted(range(source.ndim), key=lambda axis: -abs(source.strides[axis]))
        ordered = source.transpose(axes)  # in C order, if that takes no more than other axes
        target = self._allocate(ordered)
        if self.is_plain and source.size:
            self.link.copy(np.ascontiguousarray(ordered, target.dtype), target)
        elif source.size:
            self._send_all(ordered, target)
        return target.transpose(np.argsort(axes).tolist())

    def _allocate(self, source: NDArray[Any]) -> Any:
        try:
            return self.link.empty(source.shape, _native_dtype(source.dtype))
        except MemoryError as error:
            raise MemoryError(
                f"no room on the GPU for a chunk of {format_bytes(source.nbytes)}: "
                f"take smaller chunks, or fewer threads ({error})"
            ) from error

    def _send_all(self, source: NDArray[Any], target: Any) -> None:
        """Fill `target`, in C order, from `source`."""
        after = self.link.consumed()  # memory of `target` may have been used by others before
        futures: list[Future[None]] = []
        offset = 0
        try:
            # Were the pieces of two chunks mixed, both would be complete at the end, and nothing
            # would be copied while they are computed on.
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

    def _send(self, piece: NDArray[Any], target: Any, offset: int, after: Event) -> None:
        """Copy a piece to a buffer, and send that. Runs in one of `threads`."""
        buffer = self.buffers.get()  # of the free ones that which was sent first
        try:
            buffer.sent.synchronize()
            memory = buffer.memory[: piece.nbytes]
            np.copyto(memory.view(target.dtype).reshape(piece.shape), piece)
            self.link.send(memory, target, offset, after, buffer.sent)
        finally:
            self.buffers.put(buffer)


def _pieces(source: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    """Views of at most `size` bytes, which in C order follow one another."""
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
    """The link to the device that is current where this is made. See `Link`."""

    def __init__(self) -> None:
        cupy = import_cupy()
        self.cuda = cupy.cuda
        self.empty = cupy.empty
        self.device = self.cuda.Device()
        self.stream = self.cuda.Stream(non_blocking=True)

    def use(self) -> None:
        self.device.use()

    def pinned(self, size: int) -> NDArray[np.uint8]:
        return np.frombuffer(self.cuda.alloc_pinned_memory(size), np.uint8, size)

    def event(self) -> Any:
        # One that blocks: threads that spin would take the CPUs from those that copy.
        return self.cuda.Event(block=True, disable_timing=True)

    def consumed(self) -> Any:
        event = self.event()
        event.record(self.cuda.get_current_stream())
        return event

    def send(
        self, memory: NDArray[np.uint8], target: Any, offset: int, after: Any, sent: Any
    ) -> None:
        self.stream.wait_event(after)
        place = target.data + offset
        place.copy_from_host_async(memory.ctypes.data, memory.nbytes, self.stream)
        sent.record(self.stream)

    def hand_over(self) -> None:
        arrived = self.event()
        arrived.record(self.stream)
        consumer = self.cuda.get_current_stream()
        consumer.wait_event(arrived)
        if consumer.ptr not in (0, self.cuda.runtime.streamLegacy):
            arrived.synchronize()  # other threads have other streams, which would not wait

    def copy(self, source: NDArray[Any], target: Any) -> None:
        # Not cupy.asarray: that asks for as much pinned memory as the chunk has bytes.
        consumer = self.cuda.get_current_stream()
        target.data.copy_from_host_async(source.ctypes.data, source.nbytes, consumer)
        consumer.synchronize()

    def drain(self) -> None:
        self.stream.synchronize()
