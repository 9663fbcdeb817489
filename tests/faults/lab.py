"""The places where cases are computed: local schedulers, and clusters, made anew when broken."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
from dask.callbacks import Callback
from dask.utils import key_split
from distributed import Client, WorkerPlugin, utils

from tests.faults.apart import Apart, answer, waited_for
from tests.faults.cases import Case
from tests.faults.places import CLUSTERS, are_processes

PATIENCE = 120  # seconds for an answer on a cluster
START = 200  # for its workers to be there

CONFIG = {
    "distributed.comm.timeouts.connect": "3s",
    "distributed.comm.timeouts.tcp": "30s",
    "distributed.comm.retry.count": 0,
    "distributed.scheduler.allowed-failures": 1,
    "distributed.scheduler.unknown-task-duration": "1ms",
    "distributed.worker.memory.terminate": 0.95,
    "distributed.worker.memory.monitor-interval": "50ms",
    "distributed.admin.log-length": 100,
}
BREAKS = ("worker closes", "connection is cut", "scheduler closes")
SMALL = ("worker out of memory", "worker short of memory")
"""Faults of workers with little memory."""


class Strike:
    """What happens at a task of some number, counted over all.

    Parameters
    ----------
    case : Case
    n_tasks : int
        Of the graph.
    act : callable
        What goes wrong; by whom it is called is free.
    """

    def __init__(self, case: Case, n_tasks: int, act: Callable[[], None]) -> None:
        self.at = int(case.moment * n_tasks)
        self.case, self.act = case, act
        self.phase, self.n = "", 0
        self.waiting: list[threading.Timer] = []
        self.lock = threading.Lock()

    def passed(self, key: Any) -> None:
        """A task begins or ends."""
        with self.lock:
            self.n += 1
            if self.phase or self.n <= self.at:
                return
            self.phase = key_split(key)
        timer = threading.Timer(self.case.delay, self.act)
        timer.daemon = True
        self.waiting.append(timer)  # before it starts: Ctrl-C may come while that is waited for
        timer.start()

    def over(self) -> None:
        """What was to happen has happened, or does not any more."""
        self.phase = self.phase or "none"
        for timer in self.waiting:
            timer.join()


class Lab:
    """Clusters of this process."""

    def __init__(self) -> None:
        self.clusters: dict[str, Any] = {}
        self.workers: list[Any] = []
        self.is_small = False
        self.left = ""
        self.folder = tempfile.TemporaryDirectory(prefix="faults-workers-")

    def ready(self, case: Case) -> None:
        """Start the cluster of a case, before anything is counted."""
        scheduler, is_small = case.scheduler, case.fault in SMALL
        if scheduler == "processes" and is_small != self.is_small:
            self.renew(scheduler)
            self.is_small = is_small
        if scheduler == "apart" and scheduler not in self.clusters:
            self.clusters[scheduler] = Apart(self.folder.name, CONFIG)
        if scheduler in CLUSTERS and scheduler not in self.clusters:
            options: dict[str, Any] = {"memory_limit": "450MB"} if is_small else {}
            options |= {"local_directory": self.folder.name, "silence_logs": 50}
            with warnings.catch_warnings(action="ignore"):
                self.clusters[scheduler] = CLUSTERS[scheduler].started(**options)
        note_device()

    def renew(self, scheduler: str) -> None:
        """The next case there has another cluster."""
        if (cluster := self.clusters.pop(scheduler, None)) is not None:
            with suppress(Exception), warnings.catch_warnings(action="ignore"):
                cluster.close(timeout=10)
            if scheduler in CLUSTERS and CLUSTERS[scheduler].is_here:
                for worker in self.workers:  # what it held would be gone with its process
                    worker.data.clear()
                    worker.state.tasks.clear()

    def close(self) -> None:
        for scheduler in [*self.clusters]:
            self.renew(scheduler)
        self.folder.cleanup()

    # --- Computing --------------------------------------------------------------------------------

    def compute(self, case: Case, collections: tuple[Any, ...], folder: Path) -> tuple[Any, str]:
        """What was asked, and the task at which something happened."""
        if case.scheduler in ("sync", "threads"):
            return locally(case, collections, folder)
        if case.scheduler == "apart":
            return self.apart(case, collections, folder / "phase")
        return self.on_cluster(case, collections, folder)

    def apart(self, case: Case, collections: tuple[Any, ...], note: Path) -> tuple[Any, str]:
        phase = lambda: note.read_text() if note.exists() else ""  # noqa: E731
        cluster = self.clusters[case.scheduler]
        try:
            return answer(cluster, case, collections, note, tasks_of(collections)), phase()
        except BaseException as error:
            error.phase = phase()  # type: ignore[attr-defined]
            if isinstance(error, AssertionError):
                self.renew(case.scheduler)
            raise

    def on_cluster(self, case: Case, collections: tuple[Any, ...], folder: Path) -> tuple[Any, str]:
        cluster = self.clusters[case.scheduler]
        if CLUSTERS[case.scheduler].is_here:
            self.workers = [*cluster.workers.values()]
        plugin = f"strike-{case.number}"
        client = Client(cluster, set_as_default=False, timeout=20)
        try:
            client.wait_for_workers(len(cluster.worker_spec), timeout=START)
            if are_processes(case.scheduler):
                prepare_workers(client, dask.config.config)
            act = acts_on(case, cluster, client, folder)
            strike = Strike(case, tasks_of(collections), act.__call__)
            cluster.scheduler.plugins[plugin] = plugin_of(strike, case)
            self.strike = strike
            try:
                return act.answer(collections), strike.phase
            finally:
                cluster.scheduler.plugins.pop(plugin, None)
                strike.over()
        finally:
            with suppress(Exception):
                client.close(timeout=5)
            if case.fault in BREAKS:
                self.renew(case.scheduler)

    def without_fault(self, case: Case, collections: tuple[Any, ...]) -> tuple[Any, ...]:
        """What was asked, of workers that have been through a fault; if there are none, here."""
        if not are_processes(case.scheduler) or case.scheduler not in self.clusters:
            return dask.compute(*collections, scheduler="sync")
        cluster = self.clusters[case.scheduler]
        with Client(cluster, set_as_default=False, timeout=20) as client:
            client.wait_for_workers(len(cluster.worker_spec), timeout=START)
            return waited_for(client, case, collections, PATIENCE)

    def left_on_workers(self, scheduler: str) -> str:
        """What workers of other processes still keep."""
        if scheduler not in self.clusters or not (scheduler == "apart" or are_processes(scheduler)):
            return ""
        address = self.clusters[scheduler].scheduler_address
        with Client(address, set_as_default=False) as client:
            left = lambda: client.run(left_on_worker).values()  # noqa: E731
            return until_nothing(lambda: "; ".join(filter(None, left())))


def tasks_of(collections: tuple[Any, ...]) -> int:
    return sum(len(dict(each.__dask_graph__())) for each in dask.optimize(*collections)[:1])


# --- Local schedulers -----------------------------------------------------------------------------


def locally(case: Case, collections: tuple[Any, ...], folder: Path) -> tuple[Any, str]:
    acts = {
        "Ctrl-C": lambda: os.kill(os.getpid(), signal.SIGINT),
        "vanishing folder": lambda: shutil.rmtree(folder / "spilled"),
    }
    strike = Strike(case, tasks_of(collections), acts.get(case.fault, lambda: None))
    has_act = case.fault in acts

    def told(key: Any, *_: Any) -> None:
        if has_act:
            strike.passed(key)

    callback = Callback(**{"pretask" if case.is_during else "posttask": told})
    error: BaseException | None = None
    answer = None
    for step in ("compute", "settle"):
        try:
            if step == "compute":
                with callback:
                    answer = dask.compute(*collections, scheduler=case.scheduler, num_workers=3)
            else:
                strike.over()
                time.sleep(0.001)  # a signal that is still to be told
        except BaseException as caught:  # Ctrl-C, too: it is what we look for
            error = error or caught
    phase = strike.phase if has_act and strike.waiting else ""
    if error is not None and answer is None:
        error.phase = phase  # type: ignore[attr-defined]
        raise error
    return answer, phase


# --- Clusters -------------------------------------------------------------------------------------


def prepare_workers(client: Client, config: Mapping[str, Any]) -> None:
    """Give worker processes the config of a case, and those that are started while it runs: else
    these have that of the case in which their nanny was made, whose folder is gone."""
    from distributed.comm import CommClosedError

    for _ in range(10):
        with suppress(OSError, CommClosedError):  # a worker of the last case ends just now
            client.register_plugin(Prepared(config), name="prepared")
            return
        time.sleep(0.5)
    raise AssertionError("hang: workers cannot be prepared")


class Prepared(WorkerPlugin):
    """What a worker does before a case."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        names = ("dask_gpuselect", "temporary-directory")
        self.config = {name: config[name] for name in names if name in config}

    def setup(self, worker: Any) -> None:
        dask.config.set(self.config)
        note_device()


def plugin_of(strike: Strike, case: Case) -> Any:
    from distributed.diagnostics.plugin import SchedulerPlugin

    finish_at = "processing" if case.is_during else "memory"

    class Counted(SchedulerPlugin):
        def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
            if finish == finish_at:
                strike.passed(key)

    return Counted()


class acts_on:  # noqa: N801
    """What goes wrong on a cluster, and how an answer is waited for."""

    def __init__(self, case: Case, cluster: Any, client: Any, folder: Path) -> None:
        self.case, self.cluster, self.client, self.folder = case, cluster, client, folder
        self.futures: list[Any] = []
        self.stopped = threading.Event()
        acts = {
            "cancelled": lambda: self.client.cancel(self.futures, force=True),
            "timeout": self.stopped.set,
            "asyncio timeout": self.stopped.set,
            "worker closes": self.close_worker,
            "connection is cut": self.cut,
            "worker pauses": self.pause,
            "scheduler closes": lambda: self.cluster.loop.add_callback(cluster.scheduler.close),
            "worker is killed": lambda: self.signalled(signal.SIGKILL),
            "worker is stopped": self.stop,
            "worker restarts": lambda: client.restart_workers([self.nanny.worker_address]),
            "all restart": lambda: client.restart(timeout=60),
            "vanishing folder": lambda: shutil.rmtree(folder / "spilled"),
        }
        self.act = acts.get(case.fault, lambda: None)

    def __call__(self) -> None:
        with suppress(Exception):
            self.act()

    @property
    def nanny(self) -> Any:
        workers = [*self.cluster.workers.values()]
        return workers[self.case.chunk % len(workers)]

    worker = nanny

    def close_worker(self) -> None:
        self.cluster.loop.add_callback(self.worker.close, executor_wait=False, reason="fault")

    def cut(self) -> None:
        self.cluster.loop.add_callback(self.worker.batched_stream.comm.abort)

    def pause(self) -> None:
        from distributed.core import Status

        worker = self.worker
        for status in (Status.paused, Status.running):
            if are_processes(self.case.scheduler):
                self.client.run(become, status, workers=[worker.worker_address])
            else:
                self.cluster.loop.add_callback(become, status, worker)
            time.sleep(0.15)

    def signalled(self, number: int) -> None:
        if (pid := self.nanny.pid) is not None:
            os.kill(pid, number)

    def stop(self) -> None:
        pid = self.nanny.pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.4)
        os.kill(pid, signal.SIGCONT)

    # --- Waiting for the answer -------------------------------------------------------------------

    def answer(self, collections: tuple[Any, ...]) -> Any:
        if self.case.fault == "asyncio timeout":
            return asyncio.run(self.awaited(collections))
        self.futures = self.client.compute(list(collections), retries=self.case.retries)
        end = time.monotonic() + PATIENCE
        if self.case.fault == "timeout":
            while not self.stopped.is_set() and not all(f.done() for f in self.futures):
                time.sleep(0.001)
                assert time.monotonic() < end, "hang"
            end = 0
        try:
            return tuple(f.result(timeout=max(end - time.monotonic(), 1e-4)) for f in self.futures)
        except TimeoutError:
            assert not end, "hang"
            raise
        finally:
            self.futures = []

    async def awaited(self, collections: tuple[Any, ...]) -> Any:
        address = self.cluster.scheduler_address
        async with Client(address, asynchronous=True, set_as_default=False) as client:

            async def all_of() -> tuple[Any, ...]:
                futures = client.compute(list(collections), retries=self.case.retries)
                return tuple([await future for future in futures])

            async def until_told() -> None:
                while not self.stopped.is_set():
                    await asyncio.sleep(0.001)

            task = asyncio.ensure_future(all_of())
            stop = asyncio.ensure_future(until_told())
            await asyncio.wait([task, stop], return_when="FIRST_COMPLETED", timeout=PATIENCE)
            stop.cancel()
            return await asyncio.wait_for(task, 0.0 if self.stopped.is_set() else 5)


def become(status: Any, dask_worker: Any) -> None:
    dask_worker.status = status


# --- What is left ---------------------------------------------------------------------------------


_on_device_before = 0
UNIT = 512  # bytes, of which sizes in CuPy's pool are multiples


def note_device() -> None:
    """Note what this process has on its device before a case."""
    global _on_device_before
    gc.collect()  # what earlier tests have left in cycles
    _on_device_before = bytes_on_device()


def bytes_on_device() -> int:
    """How much of CuPy's pool is in use, without what the package keeps there on purpose: a room
    for each thread to count in, and tables that are shared by calls of one size."""
    if (cupy := sys.modules.get("cupy")) is None:
        return 0
    rooms: list[Any] = []
    if (tables := sys.modules.get("dask_gpuselect.kernels.cuda.lane_stack")) is not None:
        tables.tables_of.cache_clear()
    if (module := sys.modules.get("dask_gpuselect.kernels.cuda.only_lane")) is not None:
        rooms = [each for each in gc.get_objects() if type(each) is module._Room]
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    return int(pool.used_bytes()) - sum(-(-room.zeros.nbytes // UNIT) * UNIT for room in rooms)


def left_here() -> str:
    """What the package still keeps in this process, in words; nothing if there is none.

    Logs of workers, also of closed ones, have the traceback of each transfer that failed, and with
    it what was sent: `distributed` and pytest keep that, and not the package.
    """
    from dask_gpuselect.engine import boards, spill

    utils.DequeHandler.clear_all_instances()
    for handler in logging.getLogger().handlers:
        getattr(handler, "records", []).clear()
    gc.collect()
    left = {
        "bytes taken": boards.room.taken,
        "boards": len(boards._boards),
        "spill files": len(spill._files),
        "bytes on the device": max(bytes_on_device() - _on_device_before, 0),
    }
    return ", ".join(f"{n} {what}" for what, n in left.items() if n)


def left_on_worker(dask_worker: Any) -> str:
    """What the package still keeps in the process of a worker, and what `distributed` does."""
    if left := left_here():
        data = sorted({key_split(key) for key in dask_worker.data})
        tasks = sorted({f"{key_split(t.key)} {t.state}" for t in dask_worker.state.tasks.values()})
        left += f" (data {data}, tasks {tasks})"
    return left


def left_in(folder: Path) -> str:
    """Files in a folder, and open ones that have no name there any more."""
    named = os.listdir(folder) if folder.exists() else []
    named = [name for name in named if name != "dask-scratch-space"]  # of workers
    nameless = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith(str(folder)):
                nameless.append(fd)
    return f"files {named}, {len(nameless)} descriptors" if named or nameless else ""


def until_nothing(left_now: Callable[[], str], seconds: float = 20) -> str:
    """What is left after some time; threads that nobody waits for may still be at work."""
    end = time.monotonic() + seconds
    while (left := left_now()) and time.monotonic() < end:
        time.sleep(0.02)
    return left


THREADS_OF_OTHERS = (
    "MainThread", "ThreadPoolExecutor", "IO loop", "Profile", "Dask-", "Task", "asyncio", "Worker",
    "TCP-Executor", "Watch", "AsyncProcess", "execnet", "pytest", "Offload", "threading-", "Nanny",
    "dask-", "waitpid", "QueueFeeder", "Dummy",
)  # fmt: skip


def threads_left(before: set[int]) -> str:
    """Threads that were not there before, and are nobody else's."""
    left = [
        thread.name
        for thread in threading.enumerate()
        if thread.ident not in before
        and not thread.name.startswith(THREADS_OF_OTHERS)
        and "Dask-" not in thread.name
    ]
    return f"threads {left}" if left else ""


@contextmanager
def lab() -> Iterator[Lab]:
    with dask.config.set(CONFIG):
        made = Lab()
        try:
            yield made
        finally:
            made.close()
