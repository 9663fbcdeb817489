"""Chunks arrive on the GPU whole, whatever their layout, and whatever goes wrong on the way.

Pool and threads are tested on a link to a device that is none: its memory is NumPy's, and it copies
late, as a GPU does, so that what is overwritten too early arrives wrong.
"""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.system import CPU_COUNT
from distributed import Client
from numpy.typing import NDArray

from dask_gpuselect import devices, quantile, staging
from dask_gpuselect.engine import door
from dask_gpuselect.staging import BUFFER, Staging, to_gpu
from tests.backends import CUPY
from tests.sources import Source
from tests.spies import DEADLINE, noted, wait_until

Q = [0.0, 0.25, 0.5, 0.75, 1.0]
DTYPES = "?bhilqBHILQefdFD"


# --------------------------------------------------------------------------------------------------
# A link that is none
# --------------------------------------------------------------------------------------------------


class BrokenError(Exception):
    pass


class FakeArray(np.ndarray):
    """An array on the device."""


class FakeEvent:
    """Happens when its stream gets there; without a stream it has happened."""

    def __init__(self) -> None:
        self.happened = threading.Event()
        self.happened.set()

    def record(self, stream: FakeStream) -> None:
        self.happened = threading.Event()
        stream.put(self.happened.set)

    def synchronize(self) -> None:
        assert self.happened.wait(DEADLINE)


class FakeStream:
    """Does what it is given one after the other, and later."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        threading.Thread(target=_do_all, args=[self.queue], daemon=True).start()
        weakref.finalize(self, self.queue.put, None)

    def put(self, action: Callable[[], object]) -> None:
        self.queue.put(action)

    def record(self) -> FakeEvent:
        event = FakeEvent()
        event.record(self)
        return event

    def wait_event(self, event: FakeEvent) -> None:
        self.put(event.happened.wait)

    def synchronize(self) -> None:
        self.record().synchronize()


def _do_all(queue: SimpleQueue[Callable[[], object] | None]) -> None:
    while action := queue.get():
        action()


class FakeLink:
    """See `staging.CudaLink`."""

    def __init__(self, *, delay: float = 0.0, most_pinned: float = np.inf) -> None:
        self.delay = delay
        self.most_pinned = most_pinned
        self.pinned_sizes: list[int] = []
        self.users: list[str] = []
        self.sent = 0
        self.copied = 0
        self.drained = 0
        self.before_send: Callable[[int], object] = lambda number: None
        self.stream, self.consumer = FakeStream(), FakeStream()

    def use(self) -> None:
        self.users.append(threading.current_thread().name)

    def pinned(self, size: int) -> NDArray[np.uint8]:
        if len(self.pinned_sizes) >= self.most_pinned:
            raise RuntimeError("cudaErrorMemoryAllocation: out of memory")
        self.pinned_sizes.append(size)
        return np.full(size, 0xAB, np.uint8)

    def event(self) -> FakeEvent:
        return FakeEvent()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return np.full(shape, 1, dtype).view(FakeArray)

    def consumed(self) -> FakeEvent:
        return self.consumer.record()

    def send(self, memory: Any, target: Any, offset: int, after: Any, sent: Any) -> None:
        self.sent += 1
        self.before_send(self.sent)
        place = target.reshape(-1).view(np.uint8)[offset : offset + memory.size]
        assert np.shares_memory(place, target)
        assert place.size == memory.size

        def arrive() -> None:
            time.sleep(self.delay)
            place[:] = memory  # as it is by then

        self.stream.wait_event(after)
        self.stream.put(arrive)
        sent.record(self.stream)

    def hand_over(self) -> None:
        self.consumer.wait_event(self.stream.record())

    def copy(self, source: NDArray[Any], target: Any) -> None:
        self.copied += 1
        assert source.flags.c_contiguous
        assert source.dtype == target.dtype
        target.reshape(-1)[...] = source.reshape(-1)

    def drain(self) -> None:
        self.drained += 1
        self.stream.synchronize()

    def break_at(self, bad: int, until: Callable[[], bool] = lambda: True) -> None:
        """Fail at the copy of a number; others wait for a condition."""

        def fail(number: int) -> None:
            if number == bad:
                raise BrokenError("the link broke")
            wait_until(until)

        self.before_send = fail

    def close(self, what: str) -> threading.Event:
        """Let a stream wait until the event."""
        gate = threading.Event()
        getattr(self, what).put(lambda: gate.wait(DEADLINE))
        return gate


def stage(source: NDArray[Any], link: FakeLink, *, buffers: int = 3, size: int = 64) -> Any:
    """A copy of an array as the consumer sees it."""
    return arrived(Staging(link, buffers, 4, size), source)


def arrived(staging: Staging, source: NDArray[Any]) -> Any:
    """Copy an array, and check the copy once the consumer may read it."""
    copy = staging.copy(source)
    staging.link.consumer.synchronize()
    check(copy, source)
    return copy


def check(copy: Any, source: NDArray[Any]) -> None:
    assert isinstance(copy, FakeArray)
    assert copy.dtype == source.dtype.newbyteorder("=")
    assert copy.dtype.isnative
    np.testing.assert_array_equal(copy.view(np.ndarray), source, strict=False)
    assert copy.shape == source.shape


def some(shape: Any, dtype: Any = "f8") -> NDArray[Any]:
    """Neighbours differ, and so do elements a whole number of buffers apart."""
    numbers = np.arange(np.prod(shape, dtype=int)) * 7 + 3
    return (numbers % 65_497).astype(dtype).reshape(shape)  # a prime that float16 holds


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


# --------------------------------------------------------------------------------------------------
# What arrives
# --------------------------------------------------------------------------------------------------


LAYOUTS = {
    "C": lambda a: a,
    "Fortran": np.asfortranarray,
    "axes in another order": lambda a: a.transpose(1, 2, 0).copy().transpose(2, 0, 1),
    "other axes in another order": lambda a: a.transpose(2, 0, 1),
    "a slice of the first axis": lambda a: a[2:5],
    "a slice of the last axis": lambda a: a[..., 1:4],
    "steps": lambda a: a[::2, ::3, ::2],
    "backwards": lambda a: a[::-1, :, ::-1],
    "one element of an axis": lambda a: a[:, 3:4],
    "an axis less": lambda a: a[:, 3],
    "one row": lambda a: a[:1, :1],
    "repeated": lambda a: np.broadcast_to(a[0], a.shape),
    "repeated within": lambda a: np.broadcast_to(a[..., :1], a.shape),
    "none": lambda a: a[:, :0],
    "not aligned": lambda a: np.frombuffer(b"x" + a.tobytes(), a.dtype, a.size, 1).reshape(a.shape),
    "0-d": lambda a: a[1, 2, 3],
    "0-d array": lambda a: a[1, 2, 3, ...],
}


@pytest.mark.parametrize("dtype", [*DTYPES, *(f">{dtype}" for dtype in DTYPES)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_arrives(layout: str, dtype: str) -> None:
    """Rows that are smaller than a buffer, as large, and larger; and without buffers."""
    source = np.asarray(LAYOUTS[layout](some((6, 7, 11), dtype)))
    source.flags.writeable = False
    before = source.copy()
    for size, buffers in ((16, 1), (64, 3), (144, 9), (10_000, 3), (64, 0)):
        stage(source, FakeLink(), size=size, buffers=buffers)
        np.testing.assert_array_equal(source, before)


def test_axes_keep_their_order_in_memory(link: FakeLink) -> None:
    """So that Fortran order is copied as fast as C order, and is what it was."""
    source = some((30, 40))
    assert stage(source, link).flags.c_contiguous
    assert link.sent == 150  # all buffers full
    assert stage(np.asfortranarray(source), link).flags.f_contiguous
    assert link.sent == 300


# --------------------------------------------------------------------------------------------------
# Buffers and threads
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("buffers", "threads"), [(1, 1), (1, 8), (2, 3), (8, 1), (8, 8)])
def test_a_buffer_is_not_used_before_it_is_sent(buffers: int, threads: int) -> None:
    """The device reads buffers late: from one that was filled too early it would read wrong."""
    link = FakeLink(delay=2e-4)
    staging = Staging(link, buffers, threads, 64)
    for n in (100, 333):
        arrived(staging, some(n))


@pytest.mark.parametrize(("buffers", "threads"), [(1, 4), (5, 1)])
def test_many_tasks_at_once(buffers: int, threads: int) -> None:
    link = FakeLink(delay=1e-5)
    staging = Staging(link, buffers, threads, 64)
    sources = [some(10 * i) + i for i in range(40)]
    with ThreadPoolExecutor(12) as tasks:
        copies = list(tasks.map(staging.copy, sources, timeout=DEADLINE))
    link.consumer.synchronize()
    for copy, source in zip(copies, sources, strict=True):
        check(copy, source)
    assert staging.buffers.qsize() == buffers


def test_all_threads_work_and_each_uses_the_device(link: FakeLink) -> None:
    together = threading.Barrier(4, timeout=DEADLINE)
    link.before_send = lambda number: together.wait()
    stage(some(32), link, buffers=4)
    assert len(link.users) == 4
    assert len(set(link.users)) == 4


@pytest.mark.parametrize("what", ["stream", "consumer"])
def test_returns_when_all_is_on_its_way(what: str, link: FakeLink) -> None:
    """The chunk may then be freed or changed; what comes after on the device waits. Nor is memory
    written while the consumer may still read it: a pool hands it on as soon as the host has done
    with it."""
    gate = link.close(what)
    source = some(32)
    staging = Staging(link, 4, 2, 64)
    copy = staging.copy(source)
    observed: list[NDArray[Any]] = []
    link.consumer.put(lambda: observed.append(copy.copy()))
    source[:] = -1
    time.sleep(0.05)
    assert (copy == 1).all()
    assert not observed
    gate.set()
    link.consumer.synchronize()
    check(observed[0], some(32))


@pytest.mark.parametrize("bad", [1, 5, 50])
@pytest.mark.parametrize("buffers", [1, 3])
def test_an_error_in_a_thread_reaches_the_caller(bad: int, buffers: int) -> None:
    link = FakeLink(delay=1e-4)
    staging = Staging(link, buffers, 4, 64)
    link.break_at(bad)
    with pytest.raises(BrokenError, match="the link broke"):
        staging.copy(some(400))
    assert staging.buffers.qsize() == buffers
    sent = link.sent
    time.sleep(0.02)
    assert link.sent == sent  # nothing goes on behind the caller's back
    arrived(staging, some(400) + 1)


def test_the_rest_is_not_sent_after_an_error(
    link: FakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = Staging(link, 3, 2, 64)
    futures = noted(monkeypatch, staging.threads, "submit", lambda future, *_: future)
    link.break_at(1, until=lambda: len(futures) == 125 and futures[-1].cancelled())
    with pytest.raises(BrokenError):
        staging.copy(some(1000))
    assert link.sent <= 3  # the first, and one that each of two threads had begun


def test_what_is_under_way_after_an_error_is_waited_for(link: FakeLink) -> None:
    """The memory that it writes to goes back to the pool, for the consumer's next array."""
    gate = link.close("stream")
    staging = Staging(link, 13, 1, 64)
    link.break_at(3)
    with pytest.raises(BrokenError):
        staging.copy(some(100))
    done = link.consumer.record()
    assert not done.happened.wait(0.05)
    gate.set()
    done.synchronize()


def test_no_room_on_the_device(link: FakeLink) -> None:
    def empty(shape: tuple[int, ...], dtype: Any) -> Any:
        raise MemoryError("Out of memory allocating 800 bytes")

    staging = Staging(link, 3, 4, 64)
    link.empty = empty  # type: ignore[method-assign]
    with pytest.raises(
        MemoryError,
        match=r"chunk of 800 B does not fit .*, or fewer threads \(Out of memory allocating 8",
    ):
        staging.copy(some(100))
    assert staging.buffers.qsize() == 3


def test_buffers_are_not_freed_while_they_are_read(link: FakeLink) -> None:
    others = set(threading.enumerate())
    staging = Staging(link, 3, 2, 64)
    staging.copy(some(10))
    mine = set(threading.enumerate()) - others
    assert mine
    del staging  # which a thread may still have, that has just done its work
    wait_until(lambda: gc.collect() >= 0 and link.drained)
    assert link.drained == 1
    wait_until(lambda: not all(thread.is_alive() for thread in mine))  # they end with the buffers


@pytest.mark.parametrize("most", [0, 2])
def test_without_pinned_memory(most: int) -> None:
    """A part of it is of no use, and is given back."""
    link = FakeLink(most_pinned=most)
    staging = Staging(link, 3, 2, 64)
    assert staging.problem == "cudaErrorMemoryAllocation: out of memory"
    assert staging.buffers.qsize() == 0
    arrived(staging, some((6, 7)))
    assert link.sent == 0


# --------------------------------------------------------------------------------------------------
# The lazy array
# --------------------------------------------------------------------------------------------------


class Machine:
    """Some devices, all of them fake."""

    def __init__(self) -> None:
        self.current = threading.local()
        self.links: dict[int, list[FakeLink]] = {}
        self.most_pinned = np.inf
        self.cupy = SimpleNamespace(
            ndarray=FakeArray,
            empty=lambda shape, dtype: np.empty(shape, dtype).view(FakeArray),
            cuda=SimpleNamespace(runtime=SimpleNamespace(getDevice=self.device)),
        )

    def device(self) -> int:
        return getattr(self.current, "device", 0)

    def link(self) -> FakeLink:
        """What a consumer does that is no stream: wait."""
        link = FakeLink(most_pinned=self.most_pinned)
        link.hand_over = link.stream.synchronize  # type: ignore[method-assign]
        self.links.setdefault(self.device(), []).append(link)
        return link


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(staging, "import_cupy", lambda: machine.cupy)
    monkeypatch.setattr(staging, "check_device", lambda: None)
    monkeypatch.setattr(staging, "CudaLink", machine.link)
    monkeypatch.setattr(staging, "_stagings", {})
    return machine


def moved(x: da.Array, **options: Any) -> Any:
    return to_gpu(x).compute(scheduler="threads", num_workers=3, **options)


@pytest.mark.parametrize("dtype", ["f4", ">i8", "?"])
@pytest.mark.parametrize("chunks", [(5, 20), (7, 30), (-1, -1)])
@pytest.mark.usefixtures("machine")
def test_lazy(dtype: str, chunks: Any) -> None:
    whole = some((20, 30), dtype)
    x = da.from_array(whole, chunks=chunks)
    y = to_gpu(x)
    assert isinstance(y._meta, FakeArray)
    assert y.chunks == x.chunks
    assert y.dtype == whole.dtype.newbyteorder("=")
    assert y.dtype.isnative
    blocks = dask.compute(*y.to_delayed().ravel(), scheduler="threads")
    assert all(isinstance(block, FakeArray) for block in blocks)
    np.testing.assert_array_equal(y.compute(), whole)


@pytest.mark.usefixtures("machine")
@pytest.mark.legacy
def test_fuses_with_the_reader() -> None:
    x = Source((40, 50)).lazy((20, 30), inline=True)
    (y,) = dask.optimize(to_gpu(x))
    assert len(y.dask) == 4
    pickle.loads(pickle.dumps(dict(y.dask)))


@pytest.mark.usefixtures("machine")
def test_shapes() -> None:
    for whole in (np.array(3, "f4"), np.ones((0, 3)), np.ones((3, 0)), np.array(2)):
        result = moved(da.from_array(whole, chunks=-1))
        np.testing.assert_array_equal(result, whole, strict=True)
    x = da.arange(10, chunks=5)
    assert moved(x.sum()) == 45
    unknown = to_gpu(x[x > 6])
    assert np.isnan(unknown.shape[0])
    np.testing.assert_array_equal(unknown.compute(), [7, 8, 9])


def test_chunks_on_the_device_stay(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    # The door makes plain arrays of subclasses of NumPy's, which CuPy's are not, and ours are.
    monkeypatch.setattr(door, "as_declared", lambda chunk, *_: chunk)
    x = da.ones(10, chunks=5)
    y = to_gpu(x)
    assert to_gpu(y) is y
    lying = y.map_blocks(lambda block: block, meta=np.empty(0))
    blocks = dask.compute(*y.persist().to_delayed().ravel())
    assert all(staging._stage(block) is block for block in blocks)
    np.testing.assert_array_equal(moved(lying), np.ones(10))
    assert sum(link.sent for link in machine.links[0]) == 4  # y, and y once more


@pytest.mark.parametrize("dtype", ["M8[ns]", "m8[s]", "O", "U3", "S3", "g", "G", "i4,f8"])
@pytest.mark.usefixtures("machine")
def test_dtypes_that_cupy_lacks(dtype: str) -> None:
    whole = np.zeros(3, dtype)
    with pytest.raises(
        TypeError, match="cannot be moved to the GPU, because CuPy does not support it"
    ) as e:
        to_gpu(da.from_array(whole, chunks=2))
    assert ("x.view('int64')" in str(e.value)) == (dtype[0] in "Mm")
    lying = da.ones(3, chunks=3).map_blocks(lambda _: whole, meta=np.empty(0))
    with pytest.raises(TypeError, match=r"chunk \(0,\) has dtype .* but its array says float64"):
        moved(lying)


@pytest.mark.usefixtures("machine")
def test_what_is_no_array() -> None:
    masked = np.ma.masked_equal([1, 2], 2)
    with pytest.raises(TypeError, match="masked arrays are not supported"):
        to_gpu(da.from_array(masked, chunks=2))
    for chunk, message in ((masked, "masked arrays"), ([1, 2], "is of type list, which is not")):
        lying = da.ones(2, chunks=2).map_blocks(lambda _, c=chunk: c, meta=np.empty(0))
        with pytest.raises(TypeError, match=message):
            moved(lying)


# --------------------------------------------------------------------------------------------------
# Config, devices
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({}, (16, min(8, CPU_COUNT))),
        ({"pool": "1 GiB", "threads": 3}, (128, 3)),
        ({"pool": BUFFER, "threads": 8}, (1, 8)),
        ({"pool": BUFFER - 1, "threads": 8}, (0, 8)),
        ({"pool": "0", "threads": "2"}, (0, 2)),
    ],
)
def test_config(config: dict[str, Any], wanted: tuple[int, int]) -> None:
    with dask.config.set({f"dask_gpuselect.staging-{name}": config[name] for name in config}):
        assert staging._settings() == wanted


def test_config_is_honoured(machine: Machine) -> None:
    """Read by the tasks, so that it may change between two computations of one array."""
    whole = np.arange(1000)
    x = to_gpu(da.from_array(whole, chunks=100))
    for pool, buffers in (("40 MiB", 5), ("40 MiB", 5), ("9 MiB", 1), ("40 MiB", 5), (0, 0)):
        with dask.config.set({"dask_gpuselect.staging_pool": pool}):
            np.testing.assert_array_equal(x.compute(scheduler="threads", num_workers=4), whole)
        assert machine.links[0][-1].pinned_sizes == [BUFFER] * buffers
    assert len(machine.links[0]) == 4
    assert machine.links[0][-1].copied == 10


def test_several_devices(machine: Machine) -> None:
    """Each has its own, made where it is the current one."""
    whole = np.arange(100)

    def at(device: int) -> None:
        machine.current.device = device
        np.testing.assert_array_equal(staging._stage(whole), whole)

    with ThreadPoolExecutor(4) as tasks:
        list(tasks.map(at, [0, 1, 2, 1, 0, 2, 0, 0]))
    assert {device: len(links) for device, links in machine.links.items()} == {0: 1, 1: 1, 2: 1}
    assert [machine.links[device][0].sent for device in range(3)] == [4, 2, 2]


def test_a_warning_once_without_pinned_memory(machine: Machine) -> None:
    machine.most_pinned = 7
    whole = np.arange(1000)
    x = to_gpu(da.from_array(whole, chunks=100))
    with pytest.warns(RuntimeWarning, match=r"of 8.00 MiB of pinned memory .* CUDA device 0"):
        np.testing.assert_array_equal(x.compute(scheduler="threads", num_workers=4), whole)
    with warnings.catch_warnings(action="error"):
        np.testing.assert_array_equal(x.compute(), whole)
    assert machine.links[0][0].copied == 20


# --------------------------------------------------------------------------------------------------
# What is missing
# --------------------------------------------------------------------------------------------------


def test_without_cupy_or_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ImportError, match=r"pip install cupy-cuda13x"):
        to_gpu(da.ones(3))
    (tmp_path / "cupy.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    with pytest.raises(ImportError, match="no_such_module"):
        devices.import_cupy()


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Let the driver find a number of devices, or fail with an error of some status."""

    def set_up(count: int | None = None, status: int = 0, driver: int = 12040) -> None:
        def get_count() -> int:
            if count is None:
                raise CUDARuntimeError(status)
            return count

        runtime = SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            getDeviceCount=get_count,
            runtimeGetVersion=lambda: 13020,
            driverGetVersion=lambda: driver,
        )
        cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
        monkeypatch.setattr(devices, "import_cupy", lambda: cupy)
        devices.check_device.cache_clear()

    yield set_up
    devices.check_device.cache_clear()


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        ({"count": 0}, "no CUDA device is visible: .* CUDA_VISIBLE_DEVICES"),
        ({"status": 100}, "no CUDA device is visible: .* CUDA_VISIBLE_DEVICES"),
        (
            {"status": 35},
            r"driver supports CUDA 12.4, and CuPy .* CUDA 13.2: update .*cupy-cuda12x",
        ),
        ({"status": 35, "driver": 0}, "there is no NVIDIA driver"),
        ({"status": 999}, "cudaError 999"),
    ],
)
def test_no_device(driver: dict[str, int], message: str, count: Callable[..., None]) -> None:
    """It is looked for until it is there."""
    count(**driver)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=message):
            devices.check_device()
    count(2)
    devices.check_device()


# --------------------------------------------------------------------------------------------------
# On a GPU
# --------------------------------------------------------------------------------------------------


def on_the_gpu(source: NDArray[Any]) -> None:
    copy = staging._stage(source)
    assert (copy.dtype, copy.shape) == (source.dtype.newbyteorder("="), source.shape)
    np.testing.assert_array_equal(CUPY.to_numpy(copy), source)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(6, 7, 11), (70, 60, 1100), (6, 7, 1_000_000)])
def test_gpu_layouts(layout: str, shape: tuple[int, ...]) -> None:
    """Less than a buffer, a few, and many with rows of about one; and sizes around buffers."""
    for dtype in DTYPES if shape == (6, 7, 11) else "i":
        source = some(shape, dtype)
        for given in (source, source.astype(source.dtype.newbyteorder())):
            on_the_gpu(np.asarray(LAYOUTS[layout](given)))
    if layout == "C":
        for size in (1, *(BUFFER * n + extra for n in (1, 2, 18) for extra in (-1, 0, 1))):
            on_the_gpu(some(size, "u1"))


@pytest.mark.gpu
def test_gpu_many_tasks_reuse_memory() -> None:
    """Kernels are still reading what the next chunk is about to overwrite, were it not to wait."""
    chunks = [some(5_000_000, "f4") + i for i in range(6)]

    def consume(i: int) -> tuple[int, Any]:
        copy = staging._stage(chunks[i % 6])
        for _ in range(20):
            copy = CUPY.xp.sqrt(copy * copy)
        return i % 6, abs(copy).sum(dtype="f8")

    with ThreadPoolExecutor(4) as tasks:
        sums = list(tasks.map(consume, range(60)))
    expected: dict[int, float] = {}
    for i, total in sums:
        assert expected.setdefault(i, float(total)) == float(total)
    for i, chunk in enumerate(chunks):
        np.testing.assert_allclose(expected[i], abs(chunk).sum(dtype="f8"), rtol=1e-5)


@pytest.mark.gpu
def test_gpu_other_streams() -> None:
    """What one thread moved on a stream of its own, another uses on another."""
    source = some(20_000_000, "i4")

    def move(_: int) -> Any:
        with CUPY.xp.cuda.Stream(non_blocking=True):
            return staging._stage(source)

    with ThreadPoolExecutor(3) as tasks:
        for copy in tasks.map(move, range(6)):
            with CUPY.xp.cuda.Stream(non_blocking=True):
                assert int(copy.sum(dtype="i8")) == source.sum(dtype="i8")


@pytest.mark.gpu
def test_gpu_no_room() -> None:
    """It says what to do, and the next chunk that fits is moved."""
    pool = CUPY.xp.cuda.MemoryPool()
    pool.set_limit(64 << 20)
    # An allocator is set for a thread.
    with CUPY.xp.cuda.using_allocator(pool.malloc):
        with pytest.raises(
            MemoryError, match="use smaller chunks \\(x.rechunk\\), or fewer threads"
        ):
            staging._stage(np.zeros(65 << 20, "u1"))
        on_the_gpu(some(1 << 20, "i4"))


@pytest.mark.gpu
@pytest.mark.parametrize("pool", ["128 MiB", "0"])
def test_gpu_distributed(pool: str, cluster_here: Client) -> None:
    source = Source((2000, 3000))
    with dask.config.set({"dask_gpuselect.staging-pool": pool}):
        answer = quantile(to_gpu(source.lazy((600, 1100))), Q)
        result = cluster_here.compute(answer).result()
    np.testing.assert_array_equal(CUPY.to_numpy(result), np.quantile(source.whole(), Q))


@pytest.mark.gpu
def test_gpu_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread on a device of its own; on a machine with one device, all on that."""
    monkeypatch.setattr(staging, "_stagings", {})  # no pinned buffers yet
    n_devices = CUPY.xp.cuda.runtime.getDeviceCount()

    def move(i: int) -> None:
        source = some(5_000_000, "i4") + i
        with CUPY.xp.cuda.Device(i % n_devices):
            copy = staging._stage(source)
            assert copy.device.id == i % n_devices
            np.testing.assert_array_equal(CUPY.to_numpy(copy), source)

    with ThreadPoolExecutor(4) as tasks:
        list(tasks.map(move, range(12)))
    assert set(staging._stagings) == set(range(n_devices))
