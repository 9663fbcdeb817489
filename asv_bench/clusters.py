"""Clusters of workers that hold the data, and what they send to one another."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
from compare import WrongAnswerError
from dask.core import flatten
from distributed import Client, LocalCluster

LOG = "distributed.admin.low-level-log-length"


def started(n_workers: int, *, on_gpus: bool, threads: int = 1) -> LocalCluster:
    """One worker a GPU, or processes of one thread."""
    dask.config.set({LOG: 1_000_000})  # the workers' logs of what they have sent, whole
    if not on_gpus:
        return LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0")
    from dask_cuda import LocalCUDACluster

    return LocalCUDACluster(n_workers=n_workers, threads_per_worker=threads, dashboard_address=":0")


def n_gpus() -> int:
    """How many are here; 0 without CuPy or a driver."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except (ImportError, RuntimeError):
        return 0


@dataclass(frozen=True)
class Sent:
    """What workers have sent: bytes as written to the wire, of keys and headers too."""

    between: int
    """To other workers."""
    to_client: int
    objects: int
    chunks: int
    """How many of the objects were chunks of the data."""

    @property
    def wire(self) -> int:
        return self.between + self.to_client


def sent(client: Client, x: da.Array, call: Callable[[], Any]) -> tuple[Sent, Any]:
    """What a call sends that computes something of `x`, and its result. Nothing is sent by a worker
    to itself.

    Counted is what is handed on of results of tasks, by the log that each worker has of it. Not
    counted are graphs, which the client sends, and messages between the scheduler and the workers.
    """

    def begin(dask_worker: Any) -> int:
        dask_worker.transfer_outgoing_log.clear()
        return int(dask_worker.transfer_outgoing_bytes_total)

    def read(dask_worker: Any) -> tuple[list[dict[str, Any]], int]:
        return list(dask_worker.transfer_outgoing_log), dask_worker.transfer_outgoing_bytes_total

    before = client.run(begin)
    result = call()
    for _ in range(100):
        logs = client.run(read)
        if all(
            sum(entry["total"] for entry in log) == total - before[worker]
            for worker, (log, total) in logs.items()
        ):
            break
        time.sleep(0.05)  # an entry is made when the receiver has confirmed it
    else:
        raise WrongAnswerError("the workers' logs do not hold all that they have sent")
    entries = [entry for log, _ in logs.values() for entry in log]
    keys = [key for entry in entries for key in entry["keys"]]
    chunks = set(flatten(x.__dask_keys__()))
    # "compressed" is all that was written, compressed or not. The scheduler, which asks for the
    # client, gives no name.
    between, to_client = (
        sum(entry["compressed"] for entry in entries if (entry["who"] in logs) == is_worker)
        for is_worker in (True, False)
    )
    traffic = Sent(between, to_client, len(keys), sum(key in chunks for key in keys))
    return traffic, result
