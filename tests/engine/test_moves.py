"""Columns that do not fit, on clusters, where dask's P2P rechunk moves their lanes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from numpy.typing import NDArray

from dask_gpuselect import describe_boxplot, explain, median, nanquantile, quantile
from dask_gpuselect.engine import moves, scratch
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import mad
from tests.limits import configured
from tests.matrix.laws import same
from tests.sources import Source, die_once, lazily
from tests.spies import DEADLINE, wait_until

SHAPE = N, ROWS, COLUMNS = 48, 6, 5
WHOLE = N * ROWS * COLUMNS * 8
CHUNKS = {"maps": (1, ROWS, COLUMNS), "parts of maps": (7, 3, COLUMNS)}

MASK = np.arange(WHOLE // 8).reshape(SHAPE) % 5 > 0
ROUGH = np.arange(WHOLE // 8).reshape(SHAPE) % 11 + 1.0
MONTHS = np.arange(N) % 12
WINDOWS = {day: np.arange(day, day + 9) for day in range(0, N - 9, 10)}


@pytest.fixture(autouse=True)
def quietly() -> Iterator[None]:
    """A shuffle tells of its beginning and its end by warnings in a log."""
    log = logging.getLogger("distributed.shuffle")
    level = log.level
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(level)


def limited(to: int = WHOLE // 3, **more: Any) -> Any:
    return configured(**{"column_limit": to, "scratch_reads": 2} | more)


# --- One load, whatever is asked ------------------------------------------------------------------

QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "quantiles": lambda x: quantile(x, [0.1, 0.5], axis=0),
    "a mask": lambda x: nanquantile(x, 0.5, axis=0, where=lazily(MASK, (7, 6, 4))),
    "weights": lambda x: quantile(
        x, 0.4, axis=0, weights=lazily(ROUGH, (5, 3, 5)), method="inverted_cdf"
    ),
    "groups": lambda x: groupby(x, MONTHS, 0).quantile([0.2, 0.5]),
    "mad": lambda x: mad(x, 0),
    "two axes": lambda x: quantile(x, [0.1, 0.6], axis=(0, 2)),
    "labels of each element": lambda x: groupby(
        x, lazily((ROUGH * 7 % 5).astype("i8"), 4), 0, groups=range(5)
    ).median(),
    "labels that nobody knows": lambda x: groupby(x, lazily(MONTHS, 10), 0).median(),
    "windows": lambda x: groupby(x, WINDOWS, 0).median(),
    "boxes": lambda x: describe_boxplot(x, axis=0),
    "boxes of groups": lambda x: groupby(x, MONTHS, 0).describe_boxplot(),
}


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.few(4)
def test_one_load_gives_the_answer_of_one_chunk(
    name: str, chunks: str, cluster: Any, tmp_path: Path
) -> None:
    """To the last bit, with the chunks that other plans give."""
    ask = QUESTIONS[name]
    source = Source(SHAPE, log=tmp_path / "loads")
    x = source.lazy(CHUNKS[chunks])
    with limited():
        lazy = ask(x)
        result = lazy.compute()
    assert set(source.loads.values()) == {1}
    assert any("p2p" in str(key) for key in dict(lazy.__dask_graph__()))
    # Of one chunk, without the cluster.
    same(result, ask(da.from_array(source.whole(), chunks=-1)).compute(scheduler="sync"))
    if name.startswith("boxes"):
        return
    with limited(WHOLE):
        assert lazy.chunks == ask(x).chunks or np.isnan(lazy.shape).any()
    assert result.dtype == lazy.dtype


def test_masked_chunks_of_which_the_first_have_no_mask(cluster_here: Any) -> None:
    days = np.arange(float(N))[:, None, None] * np.ones((1, ROWS, COLUMNS))

    def masked(chunk: NDArray[Any]) -> Any:
        return np.ma.array(chunk, mask=np.ma.nomask if chunk[0, 0, 0] < N // 2 else True)

    x = da.from_array(days, chunks=(1, 6, 5)).map_blocks(masked, meta=np.ma.empty((0, 0, 0)))
    with limited():
        assert explain(x, axis=0).name == "p2p"
        result = median(x, axis=0).compute()
    np.testing.assert_array_equal(result, np.median(days[: N // 2], axis=0))


@pytest.mark.parametrize("made", [(1, 6, 5), (N, 1, 5)])
def test_questions_together_share_their_load(made: Any, cluster: Any, tmp_path: Path) -> None:
    """Also of chunks that a shuffle made."""
    source = Source(SHAPE, log=tmp_path / "loads")
    x = source.lazy(made).rechunk((1, 6, 5), method="p2p")
    x.__dask_graph__()  # the expressions of dask itself have no such rechunk, and say so here
    with limited():
        results = dask.compute(median(x, axis=0), quantile(x, [0.1, 0.2, 0.3], axis=0), mad(x, 0))
    assert set(source.loads.values()) == {1}
    np.testing.assert_array_equal(results[0], np.median(source.whole(), axis=0))


def test_an_answer_is_a_source_and_can_be_computed_again(cluster: Any, tmp_path: Path) -> None:
    source = Source(SHAPE, log=tmp_path / "loads")
    x = source.lazy((1, 6, 5))
    with limited():
        answer = median(x, axis=0)
        above = quantile(answer, 0.75)
        first = answer.compute()
        # The cluster lets go of the first computation, of which the second would take what is left.
        wait_until(lambda: not cluster.run_on_scheduler(n_tasks))
        second = above.compute()
    medians = np.median(source.whole(), axis=0)
    np.testing.assert_array_equal(first, medians)
    assert second == np.quantile(medians, 0.75)
    assert set(source.loads.values()) == {2}


def n_tasks(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


# --- When, and how much ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        {"dask_gpuselect.scratch-directory": False},
        {"dask_gpuselect.scratch-limit": WHOLE - 1},
        {"distributed.p2p.storage.disk": False},
        {"scheduler": "processes"},
    ],
)
def test_where_workers_may_not_write_passes_are_taken(
    setting: dict[str, Any], cluster_here: Any
) -> None:
    x = Source(SHAPE).lazy((1, 6, 5))
    with limited():
        assert explain(x, axis=0).name == "p2p"
        with dask.config.set(setting):
            plan = explain(x, axis=0)
    assert plan.loads == 3
    if "dask_gpuselect.scratch-limit" in setting:
        assert "as much room in the disks of the workers" in str(plan)


@pytest.mark.parametrize("free", [0, 2 * ROWS * COLUMNS * 8 - 1, WHOLE - 1])
def test_a_full_disk_of_a_worker_is_told(
    free: int, cluster_here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the settings that help; and passes are taken if nothing may be written."""
    source = Source(SHAPE)
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda where: SimpleNamespace(free=free))
    moves._check_worker.cache_clear()
    message = r"workers with larger disks .* dask_gpuselect\.scratch-limit"
    with limited(), pytest.raises(OSError, match=message):
        median(source.lazy((1, ROWS, COLUMNS)), axis=0).compute()
    with limited(scratch_limit=0):
        result = median(source.lazy((1, ROWS, COLUMNS)), axis=0).compute()
    np.testing.assert_array_equal(result, np.median(source.whole(), axis=0))


def test_tiles_that_a_worker_cannot_hold_are_told(
    cluster_here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves._check_worker.cache_clear()
    with limited():
        plan = explain(Source(SHAPE).lazy((1, ROWS, COLUMNS)), axis=0)
        monkeypatch.setattr(moves, "worker_memory", lambda: plan.task_bytes - 1.0)
        message = r"its memory limit is .*: set dask_gpuselect\.column-limit to .*--memory-limit"
        with pytest.raises(MemoryError, match=message):
            median(Source(SHAPE).lazy((1, ROWS, COLUMNS)), axis=0).compute()


def test_two_loads_are_as_cheap_as_the_network(cluster_here: Any) -> None:
    x = Source(SHAPE).lazy((1, 6, 5))
    with dask.config.set({"dask_gpuselect.column-limit": WHOLE // 2}):
        assert explain(x, axis=0).loads == 2
    with limited(WHOLE // 2):
        assert explain(x, axis=0).name == "p2p"


def test_persisted_chunks_stay(cluster_here: Any) -> None:
    with limited():
        assert explain(Source(SHAPE).lazy((1, 6, 5)).persist(), axis=0).loads > 1


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_threads_tell_that_they_are_no_workers(scheduler: str, cluster_here: Any) -> None:
    with limited():
        lazy = median(Source(SHAPE).lazy((1, 6, 5)), axis=0)
    with pytest.raises(RuntimeError, match=r"plan 'p2p' .*scheduler='threads'"):
        lazy.compute(scheduler=scheduler)


# --- Workers that are lost ------------------------------------------------------------------------


@pytest.mark.thorough  # the cluster waits for the worker for most of a minute
@pytest.mark.parametrize("moment", ["a chunk is loaded", "a tile is answered"])
def test_a_worker_is_lost(moment: str, tmp_path: Path) -> None:
    """Dask moves everything again, and the answer is right."""
    source = Source(SHAPE, log=tmp_path / "loads")
    flag = str(tmp_path / "flag")
    with LocalCluster(2, threads_per_worker=1, dashboard_address=":0") as workers, Client(workers):
        x, answer = source.lazy((1, 6, 5)), None
        if moment == "a chunk is loaded":
            x = x.map_blocks(die_once, flag=flag, meta=np.empty((0, 0, 0)))
        with limited():
            assert explain(x, axis=0).name == "p2p"
            answer = median(x, axis=0)
        if moment == "a tile is answered":
            answer = answer.map_blocks(die_once, flag=flag, meta=np.empty((0, 0)))
        result = answer.compute()
    assert (tmp_path / "flag").exists()
    np.testing.assert_array_equal(result, np.median(source.whole(), axis=0))


# --- Readers that never return --------------------------------------------------------------------

HANGS, MAY_END = threading.Event(), threading.Event()


def hang_at(chunk: NDArray[Any], first: float) -> NDArray[Any]:
    """Return a chunk; the one with this first element only when the test allows it."""
    if chunk.flat[0] == first:
        HANGS.set()
        MAY_END.wait(2 * DEADLINE)
    return chunk


def test_a_question_is_cancelled_if_a_reader_hangs(cluster_here: Any) -> None:
    """What was written is gone while the reader still hangs, and the cluster takes other work."""
    (folder,) = cluster_here.run(lambda dask_worker: dask_worker.local_directory).values()

    def moved() -> list[Path]:
        return [*Path(folder).glob("shuffle-*")]

    HANGS.clear()
    MAY_END.clear()
    source = Source(SHAPE)
    first, meta = source.whole()[20, 0, 0], np.empty((0, 0, 0))
    x = source.lazy((1, ROWS, COLUMNS)).map_blocks(hang_at, first=first, meta=meta)
    with limited():
        lazy = median(x, axis=0)
    try:
        future = cluster_here.compute(lazy)
        wait_until(lambda: HANGS.is_set() and moved())
        future.cancel()
        with pytest.raises(CancelledError):
            future.result(timeout=DEADLINE)
        wait_until(lambda: not moved())
        assert cluster_here.submit(abs, -1).result(timeout=DEADLINE) == 1
        assert not MAY_END.is_set()
    finally:
        MAY_END.set()
    np.testing.assert_array_equal(lazy.compute(), np.median(source.whole(), axis=0))
