"""A cluster of processes of which the scheduler may be killed, and starts anew at its address."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import dask

from tests.faults.cases import Case

N_WORKERS = 2
PATIENCE = 60  # seconds for a process to end that has lost its scheduler

FORKED = multiprocessing.get_context("forkserver")


def prepare(*, has_gpus: bool) -> None:
    """Processes start in a tenth of a second, and not with the imports of each.

    On a busy machine a worker that imports all took more than two minutes to start. One that uses
    a GPU starts as it does elsewhere.
    """
    from distributed.utils import get_mp_context

    if not has_gpus:
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context()  # which chooses other modules, once
    modules = ["distributed", "tests.faults.lab", "tests.faults.questions", "tests.faults.store"]
    FORKED.set_forkserver_preload(modules)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def schedule(port: int, config: dict[str, Any]) -> None:
    """A scheduler, until it is killed."""
    from distributed import Scheduler

    async def serve() -> None:
        async with Scheduler(host="127.0.0.1", port=port, dashboard_address=":0") as scheduler:
            await scheduler.finished()

    _run(serve(), config)


def work(address: str, folder: str, config: dict[str, Any]) -> None:
    """A worker, until it loses its scheduler."""
    from distributed import Worker

    async def serve() -> None:
        async with Worker(
            address, nthreads=1, local_directory=folder, dashboard_address=":0"
        ) as worker:
            await worker.finished()

    _run(serve(), config)


def _run(serving: Coroutine[Any, Any, None], config: dict[str, Any]) -> None:
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    dask.config.set(config)
    asyncio.run(serving)


class Apart:
    """A scheduler and its workers, each in a process. What ends is started anew.

    Parameters
    ----------
    folder : str
        Of the workers.
    config : dict
        Of dask, for all of them.
    """

    def __init__(self, folder: str, config: dict[str, Any]) -> None:
        self.folder, self.config = folder, config
        self.port = free_port()
        self.scheduler = self._started(schedule, self.port)
        self.workers = self._new_workers()
        self.takes_workers = False
        """Whether workers are killed with their scheduler, as if one machine had both."""
        self.hung: list[int] = []
        """Workers that did not end when they had lost their scheduler."""
        self.is_renewed = threading.Event()
        self.is_closed = False
        self.thread = threading.Thread(target=self._follow, name="Dask-apart", daemon=True)
        self.thread.start()

    @property
    def scheduler_address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def _started(self, program: Any, *given: Any) -> Any:
        process = FORKED.Process(target=program, args=(*given, self.config), daemon=True)
        process.start()
        return process

    def _new_workers(self) -> list[Any]:
        address = self.scheduler_address
        return [self._started(work, address, self.folder) for _ in range(N_WORKERS)]

    def _follow(self) -> None:
        """Start the scheduler anew when it ends, and then the workers, as whoever runs a cluster
        does."""
        while True:
            self.scheduler.join()
            if self.is_closed:
                return
            if self.takes_workers:
                self._kill_workers()
            self.scheduler = self._started(schedule, self.port)
            end = time.monotonic() + PATIENCE
            for worker in self.workers:
                worker.join(max(end - time.monotonic(), 0))
            self.hung = [worker.pid for worker in self.workers if worker.is_alive()]
            self._kill_workers()
            self.workers = self._new_workers()
            self.is_renewed.set()

    def _kill_workers(self) -> None:
        for worker in self.workers:
            worker.kill()

    def close(self, timeout: float | None = None) -> None:
        self.is_closed = True
        self.scheduler.kill()
        self._kill_workers()
        for each in (self.thread, self.scheduler, *self.workers):
            each.join(timeout)


def plugin_of(case: Case, n_tasks: int, note: Path) -> Any:
    """What kills the scheduler that it is in, when it has seen so many tasks begin or end."""
    from dask.utils import key_split
    from distributed.diagnostics.plugin import SchedulerPlugin

    class Killer(SchedulerPlugin):
        name = f"strike-{case.number}"
        n = 0

        def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
            self.n += finish == ("processing" if case.is_during else "memory")
            if self.n > case.moment * n_tasks:
                self.n = -(10**9)
                note.write_text(key_split(key))
                threading.Timer(case.delay, os.kill, (os.getpid(), signal.SIGKILL)).start()

    return Killer()


def answer(
    apart: Apart, case: Case, collections: tuple[Any, ...], note: Path, n_tasks: int
) -> tuple[Any, ...]:
    """What was asked by a client that waits while the scheduler is killed.

    If it is told an error, the same client asks again; what it finds then is noted at the error.
    """
    from distributed import Client

    apart.is_renewed.clear()
    apart.takes_workers = case.is_again
    with Client(apart.scheduler_address, set_as_default=False, timeout=60) as client:
        client.wait_for_workers(N_WORKERS, timeout=120)
        killer = plugin_of(case, n_tasks, note)
        client.register_plugin(killer)
        try:
            results = waited_for(client, case, collections)
            if not note.exists():
                client.unregister_scheduler_plugin(killer.name)
            elif not apart.is_renewed.wait(3 * PATIENCE):
                raise AssertionError("hang: of the cluster")
        except AssertionError:
            raise
        except Exception as error:
            if note.exists():
                assert apart.is_renewed.wait(3 * PATIENCE), "hang: of the cluster"
                assert not apart.hung, "hang: workers do not end that have no scheduler"
                client.wait_for_workers(N_WORKERS, timeout=120)
                error.again = waited_for(client, case, collections)  # type: ignore[attr-defined]
            raise
        return results


def waited_for(
    client: Any, case: Case, collections: tuple[Any, ...], patience: float = PATIENCE
) -> tuple[Any, ...]:
    """Ask a cluster, and wait for its answer."""
    futures = client.compute(list(collections), retries=case.retries)
    end = time.monotonic() + patience
    try:
        return tuple(f.result(timeout=max(end - time.monotonic(), 1e-4)) for f in futures)
    except TimeoutError:
        assert time.monotonic() < end, "hang"
        raise
