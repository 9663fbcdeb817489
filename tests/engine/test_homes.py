"""Columns whose chunks are on several workers: each measures its own, and no chunk is sent."""

from __future__ import annotations

import pickle
import uuid
import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, wait

from dask_gpuselect import explain, median, nanquantile, quantile
from dask_gpuselect.engine import grid, lane_plans
from dask_gpuselect.engine.marks import InColumn
from dask_gpuselect.engine.source import DaskArray, Source
from dask_gpuselect.maths.lane_cuts import LaneCuts
from tests.backends import CUPY
from tests.data import FLOATS

N, LANES = 1460, 6
Q = [0.1, 0.5, 0.75]


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sending costs more than reading again, as between devices."""
    monkeypatch.setattr(lane_plans, "is_fast", lambda x: True)
    monkeypatch.setattr(lane_plans, "WORTH_SENDING", 1)


def numbers(dtype: str = "f4") -> Any:
    return FLOATS["normal"](N * LANES * 2).reshape(N, LANES * 2).astype(dtype)


def on_workers(client: Client, a: Any) -> DaskArray:
    """Chunks of which every worker has some of each column."""
    workers = sorted(client.scheduler_info()["workers"])
    x = da.from_array(a, chunks=(len(a) // 10, LANES))
    name, futures = f"on-workers-{uuid.uuid4()}", {}  # no other test has copies of them
    for i, j in np.ndindex(x.numblocks):
        own, key = workers[(i * 7 + j) % 3 % 2], (name, i, j)
        chunk = x.blocks[i, j].compute(scheduler="sync")
        futures[key] = client.submit(np.copy, chunk, key=key, workers=[own])
    wait(list(futures.values()))
    return DaskArray(futures, name, x.chunks, meta=x._meta)


@pytest.mark.usefixtures("spread")
def test_a_column_has_a_part_for_each_of_its_workers(cluster: Client) -> None:
    """Answers are the same as in one part."""
    a = numbers()
    x = on_workers(cluster, a)
    where = cluster.who_has(cluster.futures_of(x))
    parts = grid.homes_of(Source.of(x), (0,))
    assert parts is not None
    for j, column in enumerate(parts):
        assert len(column) == 2
        assert sorted(i for part in column for i in part) == list(range(10))
        for part in column:
            assert len({where[x.name, i, j] for i in part}) == 1
    plan = explain(x, Q, axis=0)
    assert (plan.name, plan.loads) == ("passes", 2)
    assert "several workers" in str(plan)
    lazy = quantile(x, Q, axis=0)
    assert sum("lane-cuts" in key[0] for key in lazy.dask) == 4
    np.testing.assert_array_equal(lazy.compute(), quantile(a, Q, axis=0))
    np.testing.assert_array_equal(median(x, axis=0).compute(), np.median(a, axis=0))


@pytest.mark.usefixtures("spread")
def test_other_columns_are_not_divided(cluster: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are short, chunks of one worker or of none yet, and those on no device."""
    a = numbers()
    x, short = on_workers(cluster, a), on_workers(cluster, a[:20])
    assert explain(x, axis=0).name == "passes"
    with monkeypatch.context() as patch:
        patch.setattr(lane_plans, "is_fast", lambda x: x.is_on_device)
        assert explain(x, axis=0).name == "column"
    one = min(cluster.scheduler_info()["workers"])
    whole = cluster.persist(x.map_blocks(lambda chunk: chunk + 1), workers=one)
    wait(whole)
    for each in (short, whole, x.map_blocks(lambda chunk: chunk + 2)):
        assert explain(each, axis=0).name == "column"
    cluster.amm.stop()  # which drops copies, every two seconds
    try:
        cluster.replicate(cluster.futures_of(x), workers=[one])
        assert explain(x, axis=0).name == "column"  # now that one worker has copies of all chunks
    finally:
        cluster.amm.start()


@pytest.mark.gpu
@pytest.mark.usefixtures("spread")
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_parts_of_a_device(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that are not next to each other, and of different sizes in each column."""
    a = numbers("f8") * (1000 if dtype == "i4" else 1)
    a = a.astype(dtype)
    if dtype[0] == "f":
        a[::7, 0], a[:, 3] = np.nan, np.nan
    x = da.from_array(CUPY.asarray(a), chunks=(N // 10, LANES), asarray=False)
    of_workers = ((0, 3, 4, 9), (1, 2, 5, 6, 7, 8)), ((1,), (0, 2, 3, 4, 5, 6, 7, 8, 9))
    monkeypatch.setattr(lane_plans, "homes_of", lambda x, axes: of_workers)
    monkeypatch.setattr(Source, "is_in_process", False)
    assert explain(x, Q, axis=0).homes == of_workers
    with dask.config.set(scheduler="sync"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of lanes of nothing but NaN
        result = CUPY.to_numpy(nanquantile(x, Q, axis=0).compute())
        expected = nanquantile(a, Q, axis=0)
    np.testing.assert_array_equal(result, expected)


def test_a_chunk_is_named_by_its_place() -> None:
    """Whatever the order in which the chunks of a column are counted."""
    assert InColumn((3, 2), (0,), (0, 1), (2, 0, 1))(0) == (2, 1)
    assert InColumn((3, 2), (0,), (0, 1))(1) == (1, 1)


def test_counts_are_sent_in_few_bytes() -> None:
    """They come back as int64, and one array with two names as one."""
    pivots = np.arange(400, dtype="i8").reshape(100, 1, 4) - 7
    counts = np.full((100, 1), 1 << 16), np.zeros((100, 1), "i8")
    cuts = LaneCuts(pivots, pivots, *counts, np.full(100, 300), np.full(100, -1))
    sent = pickle.dumps(cuts)
    assert len(sent) < cuts.__sizeof__() - 3000
    back = pickle.loads(sent)
    assert back.low is back.high
    for name in ("low", "n_inside", "n_before", "n_valid", "n_missing"):
        np.testing.assert_array_equal(getattr(back, name), getattr(cuts, name), strict=True)
