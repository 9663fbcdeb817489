"""The same answer, bit for bit, under every scheduler, also where workers die and chunks fail."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from dask_gpuselect import ChunksChangedError, median, nanquantile, quantile, sort, sort_by
from tests.backends import NUMPY, Backend, kind_of
from tests.graphs import names_of
from tests.sources import Source, changing

Q = [0.0, 0.25, 0.5, 0.75, 1.0]
SHAPE, CHUNKS = (90, 80), (20, 30)


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_local_schedulers(backend: Backend, scheduler: str) -> None:
    assert_scheduler_is_right(backend, scheduler)


@pytest.mark.slow
def test_the_scheduler_of_processes() -> None:
    """NumPy's chunks alone: a process that is forked has lost its parent's CUDA devices."""
    assert_scheduler_is_right(NUMPY, "processes")


def assert_scheduler_is_right(backend: Backend, scheduler: str) -> None:
    source = Source(SHAPE)
    x = backend.mapped(source.lazy(CHUNKS))
    with dask.config.set(scheduler=scheduler):
        ours = backend.to_numpy(quantile(x, Q).compute())
        np.testing.assert_array_equal(ours, np.quantile(source.whole(), Q))
        ordered = backend.to_numpy(sort(x[:, 3], chunks=35, spill=True).compute())
        np.testing.assert_array_equal(ordered, np.sort(source.whole()[:, 3]))
        furthest = backend.to_numpy((x - median(x)).max().compute())
        assert furthest == (source.whole() - np.median(source.whole())).max()


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_kept")
def test_loads_in_other_processes(tmp_path: Path) -> None:
    source = Source(SHAPE, log=tmp_path / "log")
    quantile(source.lazy(CHUNKS), Q).compute(scheduler="processes", num_workers=2)
    assert set(source.loads.values()) == {2}
    assert len(source.loads) == 15


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["workers", "worker_here"], ids=["cluster", "threads"])
def test_distributed(
    backend: Backend, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with Client(request.getfixturevalue(kind), set_as_default=kind == "workers") as cluster:
        assert_a_cluster_is_right(cluster, backend, tmp_path)


def assert_a_cluster_is_right(cluster: Client, backend: Backend, tmp_path: Path) -> None:
    source = Source(SHAPE, log=tmp_path / "log")
    x = backend.mapped(source.lazy(CHUNKS))
    whole = source.whole()
    ours = backend.to_numpy(cluster.compute(quantile(x, Q)).result(timeout=120))
    np.testing.assert_array_equal(ours, np.quantile(whole, Q))
    assert len(source.loads) == 15
    assert max(source.loads.values()) <= 2
    derived = abs(x - median(x)).rechunk((33, 33))
    future = cluster.compute(nanquantile(derived, Q, method="hazen"))
    np.testing.assert_array_equal(
        backend.to_numpy(future.result(timeout=120)),
        np.quantile(abs(whole - np.median(whole)), Q, method="hazen"),
    )


def test_persisted_on_a_cluster(backend: Backend, cluster: Client, tmp_path: Path) -> None:
    """Futures are read where they are."""
    source = Source(SHAPE, log=tmp_path / "log")
    x = cluster.persist(backend.mapped(source.lazy(CHUNKS)))
    whole = source.whole()
    ours = cluster.compute(median(x)).result(timeout=120)
    assert backend.to_numpy(ours) == np.median(whole)
    larger = x[x > 0.5] * 2
    ours = cluster.compute(quantile(larger, Q)).result(timeout=120)
    theirs = np.quantile(whole[whole > 0.5] * 2, Q)
    np.testing.assert_array_equal(kind_of(larger).to_numpy(ours), theirs)
    assert set(source.loads.values()) == {1}


@pytest.mark.slow
def test_large_data_persisted_on_a_cluster(backend: Backend, cluster: Client) -> None:
    """Large enough that a sample guesses the bracket, and every worker counts what it holds."""
    source = Source((2_500_000,))
    x = cluster.persist(backend.mapped(source.lazy(1_250_000)))
    answer = quantile(x, Q)
    assert any("guess" in name for name in names_of(answer))
    ours = backend.to_numpy(cluster.compute(answer).result(timeout=120))
    np.testing.assert_array_equal(ours, np.quantile(source.whole(), Q))


def test_a_changed_chunk_is_named_by_another_process(
    backend: Backend, cluster: Client, tmp_path: Path
) -> None:
    x = backend.mapped(changing(lambda values, load: values / load, directory=tmp_path))
    with pytest.raises(ChunksChangedError, match=r"chunk \(3,\) held .* `.persist\(\)` the array"):
        cluster.compute(median(x)).result(timeout=60)


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def mortal() -> Iterator[LocalCluster]:
    """Two workers in processes of their own, which are restarted when they die; as those of other
    tests are not to."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as workers:
        yield workers


def kill_one(client: Client) -> str:
    """The address of a worker, which is no more."""
    address, process = next(iter(client.run(os.getpid).items()))
    os.kill(process, signal.SIGKILL)
    return address


def wait_for_another(client: Client, victim: str) -> None:
    """Until there are two workers again, none of them the victim."""

    def is_replaced() -> bool:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        return len(workers) == 2 and victim not in workers

    wait_for(is_replaced)


@pytest.mark.parametrize("load", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.slow
def test_a_killed_worker(load: int, mortal: LocalCluster, tmp_path: Path) -> None:
    """Killed in the first or the second load, a worker's share is done again, and the worker is
    replaced."""
    source = Source((2000,), log=tmp_path / "log", wait=0.05)
    x = source.lazy(50)
    with Client(mortal) as client:
        future = client.compute(quantile(x, Q))
        enough = 10 if load == 1 else 50
        # And both have something to lose, which on a slow machine one did not have by then.
        wait_for(lambda: sum(source.loads.values()) >= enough and all(client.has_what().values()))
        victim = kill_one(client)
        np.testing.assert_array_equal(future.result(timeout=120), np.quantile(source.whole(), Q))
        assert sum(source.loads.values()) > 2 * 40
        wait_for_another(client, victim)


@pytest.mark.slow
def test_a_worker_killed_with_pieces(mortal: LocalCluster, tmp_path: Path) -> None:
    """Pieces that are lost, on its disk, are made again."""
    source = Source((2000,), log=tmp_path / "log", wait=0.02)
    x = source.lazy(100)
    with Client(mortal) as client:
        futures = client.compute(sort_by(x, x + 1, chunks=500, spill=True))
        wait_for(lambda: sum(source.loads.values()) >= 50 and all(client.has_what().values()))
        victim = kill_one(client)
        keys, values = client.gather(futures)
        np.testing.assert_array_equal(keys, np.sort(source.whole()))
        np.testing.assert_array_equal(values, keys + 1)
        assert sum(source.loads.values()) > 3 * 20
        wait_for_another(client, victim)


class SourceError(Exception):
    """What a failing chunk raises."""


class Failing(Source):
    """Raises on one chunk, the first time or always."""

    def __init__(self, *args: Any, times: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.times = times

    def values(self, index: Any) -> Any:
        if index[0].start == 100 and self.times:
            self.times -= 1
            raise SourceError("the disk is on fire")
        return super().values(index)


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_a_chunk_that_fails(backend: Backend, scheduler: str) -> None:
    """The original exception comes out, and the next try is right."""
    source = Failing((1000,), times=1)
    answer = median(backend.mapped(source.lazy(50)))
    with pytest.raises(SourceError, match="the disk is on fire"):
        answer.compute(scheduler=scheduler)
    ours = backend.to_numpy(answer.compute(scheduler=scheduler))
    assert ours == np.median(Source((1000,)).whole())


def test_a_chunk_that_fails_on_a_cluster(cluster: Client) -> None:
    answer = median(Failing((1000,), times=10**9).lazy(50))
    with pytest.raises(SourceError, match="the disk is on fire"):
        cluster.compute(answer).result(timeout=60)


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_a_pickled_answer_still_computes(backend: Backend, pickler: Any) -> None:
    x = backend.mapped(da.arange(1000, chunks=70) % 37)
    answer = pickler.loads(pickler.dumps(quantile(x, Q)))
    ours = backend.to_numpy(answer.compute())
    np.testing.assert_array_equal(ours, np.quantile(np.arange(1000) % 37, Q))


@pytest.mark.parametrize(("n", "chunk"), [(5000, 500), (100_000, 20_000)])
def test_threads_of_the_user(backend: Backend, n: int, chunk: int) -> None:
    """Several threads compute at once, the kernels not compiled yet for this dtype perhaps."""
    source = Source((n,), "f4")
    x = backend.mapped(source.lazy(chunk))
    answers: list[Any] = []
    work = lambda: answers.append(median(x).compute(scheduler="sync"))  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [backend.to_numpy(answer) for answer in answers] == [np.median(source.whole())] * 4
