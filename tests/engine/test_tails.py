"""Quantiles near the ends of lanes of columns that do not fit: exact, and in one load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from numpy.typing import NDArray

from dask_gpuselect import (
    explain,
    nanquantile,
    percentile,
    quantile,
)
from dask_gpuselect.engine import plans
from dask_gpuselect.groups import groupby
from tests.backends import NUMPY
from tests.data import normal, uniform
from tests.engine.test_lane_passes import N, by_lane, limited, share, stack
from tests.features.test_lanes import call
from tests.oracle import METHODS
from tests.sources import Source

pytestmark = pytest.mark.any_dask

EMPTY_AND_SMALL = ((1,) * 40 + (0,) + (5,) * 112, 2, 6)
CHUNKS: Mapping[str, Any] = {
    "regular": (25, 5, 3),
    "small and empty": EMPTY_AND_SMALL,
    "irregular": ((100, 0, 3, 100, 97, 200, 100), (4, 0, 1), 6),
}


def plan_of(x: da.Array, q: Any, axis: Any = 0) -> Any:
    plan = explain(x, q, axis=axis)
    assert (plan.name, plan.loads) == ("tails", 1)
    return plan


# --- Answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
def test_every_method(method: str) -> None:
    a, q = stack(), [0.01, 0.05, 0.95, 1.0]
    x = NUMPY.lazy(a, CHUNKS["irregular"])
    with limited(share(x, 0, "50%")):
        plan_of(x, q)
        lazy = [call(f, x, q, method, axis=0) for f in ("quantile", "nanquantile")]
    for function, found in zip(("quantile", "nanquantile"), dask.compute(*lazy), strict=True):
        np.testing.assert_array_equal(found, by_lane(function, a, q, method))


@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_masks(dtype: str) -> None:
    """What is left out is told from NaN, and from the largest integer."""
    a = (normal(N * 5) * 1000).reshape(N, 5).astype(dtype)
    where = uniform(N * 5).reshape(N, 5) < [0.9, 0.5, 0.02, 1.0, 0.7]
    a[::9, 3] = np.inf if dtype == "f8" else np.iinfo(dtype).max
    if dtype == "f8":
        a[::11, 4] = np.nan
    x, mask = NUMPY.lazy(a, (30, 5)), NUMPY.lazy(where, (30, 5))
    for function, oracle in ((quantile, np.quantile), (nanquantile, np.nanquantile)):
        source = Source((N, 5))
        with limited(share(x, 0, "60%")):
            found = function(x, [0.02, 0.96], axis=0, where=mask, method="inverted_cdf")
            assert "tails" in found.name
            other = function(source.lazy((30, 5)), 0.98, axis=0, where=mask)
        lanes = [a[where[:, i], i] for i in range(5)]
        how: dict[str, Any] = {"method": "inverted_cdf"}
        wanted = np.stack([oracle(lane, [0.02, 0.96], **how) for lane in lanes], axis=1)
        np.testing.assert_array_equal(found.compute(), wanted)
        other.compute()
        assert set(source.loads.values()) == {1}


# --- Groups ---------------------------------------------------------------------------------------

DAYS = np.where(np.arange(N) % 11 == 3, 9, np.arange(N) // 17 % 4)


def test_groups() -> None:
    """Of different sizes, missing in some chunks, one with no element at all, and one not asked."""
    a = stack()
    x = NUMPY.lazy(a, (25, 5, 3))
    grouped = groupby(x, DAYS, axis=0, groups=[9, 2, 0, 7, 3])
    with limited(share(x, 0, "60%")):
        assert (grouped.explain([0.03, 0.95]).name, grouped.explain(0.9).loads) == ("tails", 1)
        with pytest.warns(RuntimeWarning):
            found = grouped.nanquantile([0.03, 0.95]).compute(scheduler="sync")
    for i, group in enumerate([9, 2, 0, 7, 3]):
        some = a[group == DAYS]
        if len(some):
            wanted = by_lane("nanquantile", some, [0.03, 0.95], "linear")
            np.testing.assert_array_equal(found[:, i], wanted)
        else:
            assert np.isnan(found[:, i]).all()


# --- Loads ----------------------------------------------------------------------------------------


def test_one_load_as_told() -> None:
    source = Source((N, 6, 5))
    x = source.lazy((8, 3, 5))
    for limit in (60_000, 40_000, 20_000):
        with limited(limit):
            plan = plan_of(x, 0.95)
            lazy = quantile(x, 0.95, axis=0)
        assert plan.task_bytes <= limit
        assert 0 < plan.gathered_bytes <= limit
        source.counts.clear()
        np.testing.assert_array_equal(lazy.compute(), np.quantile(source.whole(), 0.95, axis=0))
        assert set(source.loads.values()) == {1}


def test_questions_share_the_load() -> None:
    source = Source((N, 4))
    x = source.lazy((20, 2))
    with limited(4000):
        some = [quantile(x, 0.9, axis=0), percentile(x, [4, 97], axis=0)]
        some += [nanquantile(x, 0.1, axis=0)]
    dask.compute(*some)
    assert set(source.loads.values()) == {1}


# --- Tasks ----------------------------------------------------------------------------------------

ASKED: Mapping[str, Callable[[da.Array], Any]] = {
    "lanes": lambda x: quantile(x, [0.04, 0.95], axis=0),
    "keepdims": lambda x: quantile(x, 0.95, axis=0, keepdims=True),
    "groups": lambda x: groupby(x, DAYS, axis=0).quantile(0.95),
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_lanes_are_divided(name: str, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among tasks that share the load."""
    monkeypatch.setattr(plans, "SHARE_BYTES", 1)
    source = Source((N, 6, 7))
    x = source.lazy((25, 3, 7))
    wanted = ASKED[name](da.from_array(source.whole(), chunks=-1)).compute()
    with limited(share(x, 0, "60%")):
        assert plan_of(x, 0.95).shares > 1
        found = ASKED[name](x)
    np.testing.assert_array_equal(found.compute(scheduler=scheduler, num_workers=3), wanted)
    assert set(source.loads.values()) == {1}


@pytest.mark.legacy
@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_on_a_cluster(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "SHARE_BYTES", 1)
    a = uniform(N * 42).reshape(N, 6, 7)
    x = da.from_array(a, chunks=(25, 3, 7))
    x = x.map_blocks(np.copy, dtype=x.dtype)
    wanted = ASKED[name](da.from_array(a, chunks=-1)).compute()
    with limited(share(x, 0, "60%")):
        found = ASKED[name](x)
    assert "tails" in found.name
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster):
        np.testing.assert_array_equal(found.compute(), wanted)


# --- Plans ----------------------------------------------------------------------------------------


def test_it_is_explained() -> None:
    x = da.zeros((1000, 10, 10), chunks=(100, 5, 5)).map_blocks(np.copy)
    with limited("100 kB"):
        assert str(explain(x, 0.9, axis=0)) == (
            "tails: one load; chunks of 97.66 kiB a task; reports of 40.62 kiB in one place"
        )


def test_where_it_is_not_taken() -> None:
    """Ranks in the middle, columns that fit, data in memory, unknown sizes, weights."""
    a = uniform(N * 12).reshape(N, 12)
    held = da.from_array(a, chunks=(20, 12))
    x = held.map_blocks(np.copy, dtype="f8")
    with limited(share(x, 0, "50%")):
        assert plan_of(x, 0.9)
        for q in (0.5, [0.2, 0.8], [0.1, 0.5]):
            assert explain(x, q, axis=0).name != "tails"
        assert explain(held, 0.9, axis=0).name != "tails"
        assert explain(x[a[:, 0] > 0.5], 0.9, axis=0).name == "tails"  # sizes are known
        assert explain(x[x[:, 0] > 0.5], 0.9, axis=0).name == "column"
        how: dict[str, Any] = {"weights": uniform(N), "method": "inverted_cdf"}
        assert "tails" not in quantile(x, 0.9, axis=0, **how).name
        labels = da.from_array(DAYS, chunks=20)
        assert groupby(x, labels, axis=0, groups=range(10)).explain(0.9).name != "tails"
    assert explain(x, 0.9, axis=0).name == "column"


def lanes_of(order: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
    return order(uniform(4000 * 6).reshape(4000, 6))


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_bad_orders(order: str) -> None:
    """Where every part has larger elements than the ones before, or none."""
    a = lanes_of(lambda values: np.sort(values, axis=0))[:: 1 if order == "ascending" else -1]
    x = NUMPY.lazy(a, (250, 6))
    with limited(share(x, 0, "30%")):
        plan_of(x, [0.95, 0.99])
        found = quantile(x, [0.95, 0.99], axis=0)
    np.testing.assert_array_equal(found.compute(), np.quantile(a, [0.95, 0.99], axis=0))
