"""Lazy answers in daily life: futures and pictures."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from distributed import Client

from dask_gpuselect import describe_boxplot, median
from tests.sources import Source

pytestmark = pytest.mark.usefixtures("nothing_kept")


def lazy() -> da.Array:
    return Source((60_000,)).lazy(7000)


def test_futures(cluster_here: Client) -> None:
    x = lazy()
    future = cluster_here.compute(median(x))
    boxes = cluster_here.compute(describe_boxplot(x))
    assert future.result() == np.median(Source((60_000,)).values((slice(None),)))
    assert boxes.result()[0].med == future.result()
    held = cluster_here.persist(describe_boxplot(x))
    assert repr(held.compute()) == repr(boxes.result())


# --- Pictures of the graph ------------------------------------------------------------------------
