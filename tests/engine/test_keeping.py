"""What the first load keeps, so that the second need not read."""

from __future__ import annotations

import gc
import logging
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode
from dask.utils import key_split
from distributed import Client, LocalCluster

from dask_gpuselect import (
    describe_boxplot,
    explain,
    kernels,
    median,
    nanquantile,
    order_statistic,
    quantile,
    to_gpu,
)
from dask_gpuselect.engine import boards, reads, spill
from dask_gpuselect.engine.reads import Reads
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.robust import mad
from tests.backends import CUPY
from tests.data import normal
from tests.matrix.laws import same
from tests.sources import Source
from tests.spies import DEADLINE, TwoInTurn, collect, noted, wait_until

N, N_CHUNKS = 8_000, 60
QUARTILES = [0.25, 0.5, 0.75]


def source() -> Source:
    return Source((N * N_CHUNKS,))


KEPT: dict[str, Callable[[da.Array], Any]] = {
    "quartiles": lambda x: quantile(x, QUARTILES),
    "a box": describe_boxplot,
    "mad": mad,
    "a rank": lambda x: order_statistic(x, 777),
    "weights": lambda x: quantile(x, QUARTILES, weights=x + 1, method="inverted_cdf"),
    "windows of weight": lambda x: quantile(x, QUARTILES, weights=x + 1, method="linear"),
    "a box that weighs": lambda x: describe_boxplot(x, weights=x + 1),
    "a mask": lambda x: nanquantile(x, QUARTILES, where=x < 0.9),
    "several arrays": lambda x: median([x, x**2, 1 / (x + 1)]),
    "two dimensions": lambda x: median(x.reshape(2 * N_CHUNKS, -1)),
}


def uncached(name: str) -> Any:
    """Compute the answer of two loads."""
    with dask.config.set({"dask_gpuselect.cache-limit": 0}):
        return dask.compute(KEPT[name](source().lazy(N)))


@pytest.mark.few(2)
@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_nearly_one_load_of_mixed_data(name: str, scheduler: str) -> None:
    """Before there is a guess a few chunks are loaded: twenty of 60 for an extreme rank."""
    data = source()
    # Of two threads one could be stopped, and the other read on.
    with dask.config.set(scheduler=scheduler, pool=TwoInTurn()):
        result = dask.compute(KEPT[name](data.lazy(N)))
        assert max(data.loads.values()) <= 2
        assert sum(data.loads.values()) <= (1.3 if name == "quartiles" else 1.6) * N_CHUNKS
    same(result, uncached(name))


def test_a_logger_tells_the_loads(caplog: pytest.LogCaptureFixture) -> None:
    data = source()
    with caplog.at_level(logging.DEBUG, "dask_gpuselect"):
        median(data.lazy(N)).compute()
    twice = sum(n == 2 for n in data.loads.values())
    assert f"median: {twice} of {N_CHUNKS} chunks are read twice" in caplog.text


# --- Rulers ---------------------------------------------------------------------------------------


# --- Why all chunks are loaded twice ------------------------------------------------------------


@pytest.mark.legacy
def test_explain_says_what_is_kept_or_why_not() -> None:
    x = source().lazy(N)
    plan = explain(x)
    assert (plan.loads, plan.cached_bytes) == (2, 1 << 30)
    assert str(plan).startswith("bracket: reads each chunk once or twice; ")
    assert str(plan).endswith("; caches at most 1.00 GiB per process")
    reasons = {
        "chunks are few": x[: 3 * N],
        "chunks share work": x.rechunk(N + 1),
        "chunks are in memory": da.from_array(source().whole()[: N * 10], chunks=N // 10),
    }
    for why, each in reasons.items():
        assert f"twice, because {why}; " in str(explain(each, np.linspace(0, 1, 2000)))
        assert explain(each).cached_bytes == 0
    with dask.config.set({"dask_gpuselect.cache-limit": 0}):
        assert "twice, because cache-limit is 0; " in str(explain(x))
    with dask.annotate(priority=3):
        y = x + 1
    with dask.annotate(priority=4):
        y = y + 1
    assert "because tasks that load have different annotations; " in str(explain(y))


@pytest.mark.legacy
def test_layers_show_that_chunks_share_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tasks, if they take chunk i for chunk i; as their tasks show otherwise."""
    x = da.zeros((8, 8), chunks=4) + 1
    y, row = x.map_blocks(np.copy), x.sum(axis=0)
    apart = [(y,), (x, x + y), (y[::2],), (y.T, y.T + 1), (y[None] + 1,), (y - y.sum(),)]
    shares = [(y + y.T,), (y, y.T), (y + row.map_blocks(np.copy),)]
    made = da.zeros(400, chunks=1).map_blocks(np.copy)
    assert "once or twice" in str(explain(made))
    assert not any(layer.is_materialized() for layer in made.dask.layers.values())
    for way in (reads.stays_in_place, lambda _: False):
        monkeypatch.setattr(reads, "stays_in_place", way)
        assert not any(Reads(*each).shared for each in apart)
        assert all(Reads(*each).shared for each in shares)


# --- Where it is kept ---------------------------------------------------------------------------


def test_what_waits_on_disk_may_go_to_another_process(tmp_path: Path) -> None:
    """Where it is in memory, and takes room there as long as it lives."""
    spilled = boards.Limits(1, str(tmp_path))
    brackets = Brackets(np.array([0.0, 9.0]), np.array([False, True, False]))
    tally = kernels.tally(np.arange(12.0), np.dtype("f8"), brackets, 100)
    assert tally is not None
    cached = boards.Cached.of(brackets, tally, spilled)
    assert cached is not None
    assert boards.room.taken == 0
    sent = pickle.loads(pickle.dumps(cached))
    again = pickle.loads(pickle.dumps(sent))
    for each in (cached, sent, again):
        for ours, theirs in zip(each.whole().columns(), tally.columns(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    n = sum(column.nbytes for column in tally.columns())
    assert n > 0
    assert boards.room.taken == 2 * n
    del sent, again, each
    gc.collect()
    assert boards.room.taken == 0


@pytest.mark.slow
def test_what_waits_on_disk_is_answered_by_processes(tmp_path: Path) -> None:
    """Every report goes through the first process."""
    x = source().lazy(N)
    with dask.config.set({"dask_gpuselect.cache-limit": 1, "dask_gpuselect.cache-spill": tmp_path}):
        result = quantile(x, QUARTILES).compute(scheduler="processes", num_workers=1)
    np.testing.assert_array_equal(result, np.quantile(source().whole(), QUARTILES))


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["quartiles", "weights", "a box"])
@pytest.mark.parametrize("room", [-1, 20_000])
def test_a_disk_that_takes_nothing_costs_loads_alone(
    name: str, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """What cannot be kept is loaded again: because no file can be made, or because it is full."""
    write = spill.SpillFile.write
    written = []

    def until_full(file: spill.SpillFile, column: Any) -> spill.Spilled:
        written.append(column.nbytes)
        if sum(written) > room:
            raise OSError(28, "No space left on device")
        return write(file, column)

    monkeypatch.setattr(spill.SpillFile, "write", until_full)
    where = tmp_path if room > 0 else tmp_path / "missing"
    data = source()
    on_disk = {"dask_gpuselect.cache-limit": 1, "dask_gpuselect.cache-spill": str(where)}
    with dask.config.set(on_disk):
        result = dask.compute(KEPT[name](data.lazy(N)), scheduler="sync")
    same(result, uncached(name))
    assert max(data.loads.values()) == 2
    records = [record for record in caplog.records if "not kept on disk" in record.message]
    assert len(records) in (1, 2)  # not once a chunk; two that tell it at a time both do
    assert str(where) in records[0].message


def test_a_worker_keeps_a_tenth_of_its_memory() -> None:
    # The worker is in this process, which may have more memory than that by now: it would pause.
    with (
        dask.config.set({"distributed.worker.memory.pause": False}),
        LocalCluster(
            n_workers=1, processes=False, memory_limit="300 MB", dashboard_address=":0"
        ) as workers,
        Client(workers) as client,
    ):
        limits = boards.Limits(1 << 30, None)
        limit = client.submit(lambda: limits.of_process()).result(timeout=DEADLINE)
    assert limit == 3e7
    assert limits.of_process() == 1 << 30  # of no worker


def test_what_is_kept_never_exceeds_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = noted(monkeypatch, boards.Room, "take", lambda _, room, n, limit: room.taken)
    limit = 30_000
    with dask.config.set({"dask_gpuselect.cache-limit": limit, "scheduler": "threads"}):
        dask.compute(*(quantile(source().lazy(N), QUARTILES) for _ in range(2)))
    assert limit / 2 < max(taken) <= limit
    collect()
    wait_until(lambda: not (_taken() or boards._boards))


# --- Everything that can happen meanwhile -------------------------------------------------------


@pytest.mark.legacy
def test_annotations_hold_for_both_loads() -> None:
    with dask.annotate(retries=3):
        x = source().lazy(N).map_blocks(np.sin)
    layers = median(x).dask.layers
    annotated = [
        name for name, layer in layers.items() if (layer.annotations or {}).get("retries") == 3
    ]
    assert any(name.startswith("median-candidates") for name in annotated)
    assert any(name.startswith(("sin", "array")) for name in annotated)


def test_workers_keep_their_own(cluster: Client, tmp_path: Path) -> None:
    data = Source((N * N_CHUNKS,), log=tmp_path / "log")
    result = cluster.compute(quantile(data.lazy(N), QUARTILES)).result(timeout=DEADLINE)
    np.testing.assert_array_equal(result, np.quantile(data.whole(), QUARTILES))
    assert sum(data.loads.values()) <= 1.6 * N_CHUNKS
    assert max(data.loads.values()) <= 2
    wait_until(lambda: not any(cluster.run(_taken).values()))


def _taken() -> int:
    gc.collect()
    return boards.room.taken


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["quartiles", "windows of weight", "a mask", "several arrays"])
@pytest.mark.parametrize("again", ["nothing", "too little"])
def test_reports_that_are_made_anew(name: str, again: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is lost when the brackets are known: the first load of half of the groups is done
    again, and keeps something else."""
    data = source()
    parts, repack = dask.base.unpack_collections(KEPT[name](data.lazy(N)))
    parts = dask.optimize(*parts)
    tasks = {key: task for each in parts for key, task in dict(each.__dask_graph__()).items()}
    keys = [key for key in tasks if key_split(key) == "quantile-groups"]
    keys += [key for key in tasks if "-bracket-" in key[0] and len(key) == 1]
    known = dict(zip(keys, dask.get(tasks, keys), strict=True))
    groups = [key for key in keys if len(key) > 1]
    assert sum(each is not None for key in groups for each in known[key].cached[0]) > 10
    for key in groups[::2]:
        del known[key]

    cache = boards.Cached.of

    def anew(brackets: Brackets, *what: Any) -> boards.Cached | None:
        if again == "nothing":
            return None
        return cache(replace(brackets, wanted=np.zeros_like(brackets.wanted)), *what)

    monkeypatch.setattr(boards.Cached, "of", anew)
    tasks |= {key: DataNode(key, value) for key, value in known.items()}
    finished = []
    for each in parts:
        finish, arguments = each.__dask_postcompute__()
        finished.append(finish(dask.get(tasks, each.__dask_keys__()), *arguments))
    same(repack(finished), uncached(name))


@pytest.mark.gpu
def test_chunks_that_are_made_on_a_device_are_not_kept() -> None:
    """What is kept goes to the host, so only chunks that come from there are."""
    a = normal(64_000)
    staged = to_gpu(Source((64_000,)).lazy(4000))
    made = CUPY.lazy(a, 4000)
    with dask.config.set({"dask_gpuselect.cache-limit": a.nbytes - 1}):  # or all chunks would stay
        assert explain(staged, [0.25, 0.75]).cached_bytes > 0
        assert explain(staged + 1, [0.25, 0.75]).cached_bytes > 0
        plan = explain(made, [0.25, 0.75])
        result = quantile(made, 0.3).compute()
    assert plan.cached_bytes == 0
    assert "made on a device" in plan.why
    np.testing.assert_array_equal(CUPY.to_numpy(result), np.quantile(a, 0.3))
