"""Lazy answers in daily life: progress, pictures, futures, and what is forgotten."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback
from dask.diagnostics import ProgressBar
from dask.utils import key_split
from distributed import Client, LocalCluster, fire_and_forget, progress

from dask_gpuselect import describe_boxplot, median, nanquantile, quantile
from tests.data import normal
from tests.sources import Source


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def lazy() -> da.Array:
    return Source((60_000,)).lazy(7000)


def steps(collection: Any) -> set[str]:
    """What a progress display calls the tasks."""
    (optimized,) = dask.optimize(collection)
    return {key_split(key) for key in dict(optimized.__dask_graph__())}


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        (median, {"quantile-cuts", "median-bracket", "median-candidates", "median"}),
        (
            lambda x: nanquantile(x, [0.1, 0.9]),
            {"quantile-cuts", "nanquantile-bracket", "nanquantile-candidates", "nanquantile"},
        ),
        (
            describe_boxplot,
            {"quantile-cuts", "boxplot-sums", "boxplot-bracket", "boxplot-candidates", "boxplot"},
        ),
        (lambda x: median(x.reshape(100, -1), axis=0), {"median-column"}),
    ],
)
def test_names_say_what_runs(question: Any, wanted: set[str]) -> None:
    x = lazy()
    assert steps(question(x)) >= wanted


def test_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[Any] = []
    with ProgressBar(), Callback(posttask=lambda key, *_: done.append(key)):
        found = median(lazy()).compute(scheduler="threads")
    assert found == np.median(Source((60_000,)).values((slice(None),)))
    assert "100% Completed" in capsys.readouterr().out
    assert len(done) > 10


def test_progress_on_a_cluster(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    held = client.persist(quantile(lazy(), [0.25, 0.5]))
    progress(held, notebook=False)
    assert "100% Completed" in capsys.readouterr().out
    np.testing.assert_array_equal(
        held.compute(), np.quantile(Source((60_000,)).values((slice(None),)), [0.25, 0.5])
    )


def test_layers_have_short_names() -> None:
    """As pictures of the graph write them."""
    for name in median(lazy()).dask.layers:
        assert re.fullmatch(r"[a-z-]{4,40}", key_split(name)), name


def test_futures(client: Client) -> None:
    x = lazy()
    future = client.compute(median(x))
    boxes = client.compute(describe_boxplot(x))
    assert future.result() == np.median(Source((60_000,)).values((slice(None),)))
    assert boxes.result()[0].med == future.result()
    held = client.persist(describe_boxplot(x))
    assert repr(held.compute()) == repr(boxes.result())


def test_fire_and_forget(client: Client, tmp_path: Path) -> None:
    def store(value: Any) -> None:
        np.save(tmp_path / "median.npy", value)

    fire_and_forget(client.submit(store, client.compute(median(lazy()))))
    for _ in range(100):
        if (tmp_path / "median.npy").exists():
            break
        time.sleep(0.1)
    assert np.load(tmp_path / "median.npy") == np.median(Source((60_000,)).values((slice(None),)))


def test_answers_compose_with_what_is_theirs(client: Client) -> None:
    a = normal(5000)
    x = da.from_array(a, chunks=700)
    total, middle = client.gather(client.compute([(x - median(x)).sum(), median(x)]))
    assert middle == np.median(a)
    np.testing.assert_allclose(total, (a - np.median(a)).sum())
