"""Sources that a shuffle makes: it runs once for all loads, wherever it keeps what it moves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import dask_gpuselect.dataframe  # noqa: F401 -- registers the accessors
from dask_gpuselect import describe_boxplot, explain, median, order_statistic, quantile
from dask_gpuselect.engine.reads import Reads
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import mad
from tests.matrix.laws import same_computed
from tests.sources import Source, die_once

SHAPE, COLUMNS, ROWS = (48, 24), (48, 1), (6, 24)
TABLE = pd.DataFrame({"k": np.arange(400) % 20, "v": np.arange(400) * 37 % 401 / 8})

pytestmark = pytest.mark.legacy  # dask chooses how to shuffle, and layers are looked at


@pytest.fixture(autouse=True)
def peer_to_peer() -> Iterator[None]:
    """Let arrays be rechunked by a shuffle even where there is no cluster yet."""
    with dask.config.set({"array.rechunk.method": "p2p"}):
        yield


def rechunked(source: Source) -> da.Array:
    return source.lazy(COLUMNS).rechunk(ROWS)


# --- Loads ----------------------------------------------------------------------------------------

QUESTIONS: dict[str, Any] = {
    "median": median,
    "less its median": lambda x: x - median(x),
    "box with a third load": lambda x: describe_boxplot(x, whis=0.01),
    "mad": mad,
    "axis": lambda x: quantile(x, [0.1, 0.7], 0),
    "masked": lambda x: median(x, where=x > 0.5),
    "groups": lambda x: groupby(x, (x * 4).astype("i8"), groups=range(4)).median(),
    "a strategy": lambda x: order_statistic(x, 500, strategy="radix"),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", QUESTIONS)
def test_the_source_of_a_shuffle_is_loaded_once(name: str, cluster: Any, tmp_path: Path) -> None:
    source = Source(SHAPE, log=tmp_path / "loads")
    answer = QUESTIONS[name](rechunked(source))
    assert not source.loads
    result = answer.compute()
    assert set(source.loads.values()) == {1}
    assert len(source.loads) == SHAPE[1]
    same_computed(result, QUESTIONS[name](da.from_array(source.whole())))


def test_a_shuffle_in_memory_is_read_once(cluster: Any, tmp_path: Path) -> None:
    source = Source(SHAPE, log=tmp_path / "loads")
    with dask.config.set({"distributed.p2p.storage.disk": False}):
        x = rechunked(source)
    assert median(x).compute() == np.median(source.whole())
    assert set(source.loads.values()) == {1}
    assert "wait in memory" in str(explain(x))


def test_plans_say_that_a_shuffle_runs_once() -> None:
    x = da.ones(SHAPE, chunks=COLUMNS).rechunk(ROWS)
    for plan in (explain(x), explain(x, axis=0), explain(da.ones(SHAPE, chunks=ROWS), where=x > 0)):
        assert plan.shuffle.startswith("once; each read takes")
        assert plan.shuffle in str(plan)
        assert plan.rows["shuffle runs"] == plan.shuffle
    assert "because chunks come from a shuffle" in str(explain(x))
    assert not explain(da.ones(SHAPE, chunks=ROWS)).shuffle


# --- Tables on one machine ------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "scheduler"), [("disk", "threads"), ("tasks", "sync")])
def test_groups_of_shuffled_rows(method: str, scheduler: str) -> None:
    others = dd.from_pandas(pd.DataFrame({"k": range(20), "w": range(20)}), npartitions=4)
    table = dd.from_pandas(TABLE, npartitions=8)
    for shuffled in (table.shuffle("k", shuffle_method=method), table.merge(others, on="k")):
        answer = shuffled.exact.groupby("k")["v"].median()
        right = TABLE.groupby("k").v.median()
        pd.testing.assert_series_equal(answer.compute(scheduler=scheduler).sort_index(), right)


def test_a_shuffle_to_disk_runs_once(tmp_path: Path) -> None:
    log = tmp_path / "parts"

    def noted(part: pd.DataFrame) -> pd.DataFrame:
        with log.open("a") as file:
            file.write(".")
        return part

    table = dd.from_pandas(TABLE, npartitions=8).map_partitions(noted, meta=TABLE.iloc[:0])
    median_of = table.shuffle("k", shuffle_method="disk").v.exact.median()
    assert median_of.compute(scheduler="threads") == TABLE.v.median()
    assert log.read_text() == "." * 8


# --- Clients, and workers that are lost -----------------------------------------------------------


def test_a_client_that_is_awaited(workers: Any) -> None:
    async def ask() -> Any:
        async with Client(workers.scheduler_address, asynchronous=True) as client:
            x = da.from_array(np.arange(48.0 * 24).reshape(SHAPE), chunks=COLUMNS).rechunk(ROWS)
            futures = client.compute([median(x), describe_boxplot(x), median(x, 0)])
            return [await future for future in futures]

    middle, boxes, lanes = asyncio.run(ask())
    assert middle == np.median(np.arange(48.0 * 24))
    assert boxes[0].med == middle
    np.testing.assert_array_equal(lanes, np.median(np.arange(48.0 * 24).reshape(SHAPE), 0))


def test_several_clients(cluster: Any, worker_here: Any) -> None:
    x = da.from_array(np.arange(48.0 * 24).reshape(SHAPE), chunks=COLUMNS).rechunk(ROWS)
    answer = median(x)
    with Client(worker_here, set_as_default=False) as other:
        futures = [client.compute(answer) for client in (cluster, other, cluster)]
        assert [each.result() for each in futures] == [np.median(np.arange(48.0 * 24))] * 3


@pytest.mark.thorough  # the cluster waits for the worker for most of a minute
@pytest.mark.parametrize("ask", [median, lambda x: describe_boxplot(x, whis=0.01), mad])
def test_a_worker_is_lost_behind_a_shuffle(ask: Any, tmp_path: Path) -> None:
    source = Source(SHAPE, log=tmp_path / "loads")
    x = rechunked(source).map_blocks(die_once, flag=str(tmp_path / "flag"), meta=np.empty((0, 0)))
    with LocalCluster(2, threads_per_worker=1, dashboard_address=":0") as workers, Client(workers):
        result = ask(x).compute()
    same_computed(result, ask(da.from_array(source.whole())))


# --- What is kept, and persisted data -------------------------------------------------------------


def test_nothing_is_kept_of_chunks_that_are_made_of_persisted_ones(cluster: Any) -> None:
    x = da.ones((400, 24), chunks=(20, 24)).persist()
    made = x.map_blocks(np.copy)
    assert Reads(made).take_futures
    assert "because chunks are made of persisted data" in str(explain(made))
    assert not Reads(da.ones((400, 24), chunks=(20, 24)).map_blocks(np.copy)).take_futures
