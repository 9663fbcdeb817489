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
    ChunksChangedError,
    explain,
    median,
    nanquantile,
    percentile,
    quantile,
)
from dask_gpuselect.engine import plans
from dask_gpuselect.groups import groupby
from tests.backends import NUMPY
from tests.data import INTEGERS, normal, uniform
from tests.engine.test_lane_passes import N, by_lane, limited, share, stack
from tests.features.test_lanes import call, scaled
from tests.oracle import METHODS
from tests.sources import Source

pytestmark = pytest.mark.any_dask

EMPTY_AND_SMALL = ((1,) * 40 + (0,) + (5,) * 112, 2, 6)
CHUNKS: Mapping[str, Any] = {
    "regular": (25, 5, 3),
    "small and empty": EMPTY_AND_SMALL,
    "irregular": ((100, 0, 3, 100, 97, 200, 100), (4, 1), 6),
}
QUANTILES: Mapping[str, Any] = {"high": 0.93, "low": [0.0, 0.04, 0.07], "both": [0.02, 0.97, 1.0]}


def plan_of(x: da.Array, q: Any, axis: Any = 0) -> Any:
    plan = explain(x, q, axis=axis)
    assert (plan.name, plan.loads) == ("tails", 1)
    return plan


# --- Answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("q", QUANTILES)
@pytest.mark.parametrize("function", ["quantile", "nanpercentile"])
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
def test_adversarial_lanes(function: str, q: str, chunks: str, dtype: str) -> None:
    """All NaN in one lane, none in the next; tied, sorted either way, infinite."""
    a = stack(dtype)
    asked = scaled(function, QUANTILES[q])
    x = NUMPY.lazy(a, CHUNKS[chunks])
    with limited(share(x, 0, "50%")):
        plan_of(x, QUANTILES[q])
        lazy = call(function, x, asked, "linear", axis=0)
    found = np.asarray(lazy.compute(scheduler="sync"))
    wanted = by_lane(function, a, asked, "linear")
    assert (found.dtype, lazy.chunks[-2:]) == (wanted.dtype, x.chunks[1:])
    np.testing.assert_array_equal(found, wanted)
    assert not np.signbit(found[found == 0]).any()


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


@pytest.mark.parametrize("dtype", ["i4", "i8", "u8", "i1", "u2"])
def test_integers(dtype: str) -> None:
    a = np.stack([make(N, dtype) for make in INTEGERS.values()], axis=1)
    x = NUMPY.lazy(a, (40, 3))
    for method in ("higher", "linear"):
        with limited(share(x, 0, "50%")):
            plan_of(x, [0.02, 0.9])
            found = quantile(x, [0.02, 0.9], axis=0, method=method).compute(scheduler="sync")
        np.testing.assert_array_equal(found, by_lane("quantile", a, [0.02, 0.9], method))


@pytest.mark.parametrize("dtype", ["?", "M8[s]", "m8[D]", ">f8"])
def test_other_dtypes(dtype: str) -> None:
    a = (normal(N * 4) * 50).astype("i8").reshape(N, 4).astype(dtype)
    if dtype[0] in "Mm":
        a[::7, 1] = "NaT"
        a[:, 3] = "NaT"
    x = NUMPY.lazy(a, (30, 4))
    with limited(share(x, 0, "50%")):
        plan_of(x, 0.9)
        found = quantile(x, 0.9, axis=0, method="lower").compute(scheduler="sync")
    np.testing.assert_array_equal(found, by_lane("quantile", a, 0.9, "lower"))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [1, -1, (0, 2), (1, 2)])
def test_any_axes(axis: Any, keepdims: bool) -> None:
    a = uniform(30 * 40 * 50).reshape(30, 40, 50)
    x = NUMPY.lazy(a, (7, 9, 11))
    axes = axis if isinstance(axis, tuple) else (axis % 3,)
    sizes = (n if i in axes else max(x.chunks[i]) for i, n in enumerate(a.shape))
    with limited(8 * int(np.prod(list(sizes))) * 6 // 10):
        plan_of(x, [0.9, 0.95], axis)
        found = quantile(x, [0.9, 0.95], axis=axis, keepdims=keepdims)
    wanted = np.quantile(a, [0.9, 0.95], axis=axis, keepdims=keepdims)
    np.testing.assert_array_equal(found.compute(), wanted)


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


@pytest.mark.parametrize("axis", [0, 1, (0, 1)])
def test_groups_along_any_axis_in_one_load(axis: Any) -> None:
    source = Source((60, 70, 8))
    a, x = source.whole(), source.lazy((7, 9, 8))
    labels = np.arange(60 * 70).reshape(60, 70) % 13 % 3
    labels = labels[0] if axis == 1 else labels[:, 0] if axis == 0 else labels
    grouped = groupby(x, labels, axis=axis)
    with limited({0: 60 * 9, 1: 7 * 70, (0, 1): 4200}[axis] * 8 * 8 * 7 // 10):
        plan = grouped.explain(0.92)
        found = grouped.quantile(0.92)
    assert (plan.name, plan.loads) == ("tails", 1)
    found = found.compute()
    assert set(source.loads.values()) == {1}
    for group in range(3):
        index = (labels == group) if axis != 1 else (slice(None), labels == group)
        some = a[index]
        wanted = np.quantile(some, 0.92, axis=1 if axis == 1 else 0)
        np.testing.assert_array_equal(found[:, group] if axis == 1 else found[group], wanted)


def test_windows() -> None:
    """Groups that overlap; and others of the same array, computed with them."""
    source = Source((N, 12))
    a, x = source.whole(), source.lazy((25, 12))
    near = [
        {k: np.flatnonzero(abs(np.arange(N) % 50 - 10 * k) < w) for k in range(5)} for w in (4, 5)
    ]
    with limited(share(x, 0, "60%")):
        grouped = [groupby(x, windows, axis=0) for windows in near]
        assert {each.explain(0.95).name for each in grouped} == {"tails"}
        found = dask.compute(*(each.quantile(0.95) for each in grouped))
    for windows, answer in zip(near, found, strict=True):
        for k, places in windows.items():
            np.testing.assert_array_equal(answer[k], np.quantile(a[places], 0.95, axis=0))
    assert set(source.loads.values()) == {1}


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


@pytest.mark.legacy
def test_passes_share_their_first_load() -> None:
    """Arrays that are expressions load once more."""
    source = Source((N, 4))
    x = source.lazy((20, 2))
    with limited(4000):
        some = [quantile(x, 0.9, axis=0), percentile(x, [4, 97], axis=0)]
        middle = median(x, axis=0)
    assert "passes" in middle.name
    dask.compute(*some, middle)
    assert set(source.loads.values()) == {2}  # passes take two alone


def test_slabs_are_loads_of_their_own() -> None:
    """Where the middle of lanes is asked too, which takes slabs here."""
    source = Source((N, 4))
    x = source.lazy((20, 2))
    with limited(5000):
        lazy = [quantile(x, q, axis=0) for q in ([0.1, 0.2], 0.9, 0.4, 0.5)]
        assert [explain(x, q, axis=0).loads for q in (0.9, 0.4)] == [1, 2]
    dask.compute(*lazy)
    assert set(source.loads.values()) == {3}


def test_a_later_load_is_of_the_same_chunks() -> None:
    source = Source((N, 4))
    x, a = source.lazy((20, 2)), source.whole()
    with limited(4000):
        found = x - quantile(x, 0.95, axis=0)
        spread = median(abs(x - quantile(x, 0.95, axis=0)), axis=0)
    np.testing.assert_array_equal(found.compute(), a - np.quantile(a, 0.95, axis=0))
    assert set(source.loads.values()) == {2}
    away = abs(a - np.quantile(a, 0.95, axis=0))
    np.testing.assert_array_equal(spread.compute(), np.median(away, axis=0))


def test_chunks_with_more_elements_than_told() -> None:
    """No number is given that would be wrong."""
    x = da.zeros((N, 4), chunks=(20, 4)).map_blocks(
        lambda block: np.concatenate([block, block]), dtype="f8", meta=np.empty((0, 0))
    )
    with limited(9000):
        lazy = quantile(x, 0.95, axis=0)
    assert "tails" in lazy.name
    with pytest.raises((ChunksChangedError, ValueError)):
        lazy.compute(scheduler="sync")


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


def test_names_are_deterministic() -> None:
    x = Source((N, 4)).lazy((20, 2))
    with limited(4000):
        names = {quantile(x, q, axis=0).name for q in (0.9, 0.9, 0.91, 0.1)}
    assert len(names) == 3


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


def test_medians_of_lanes_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    x = da.zeros((3650, 100, 100), chunks=(365, 100, 100), dtype="f4").map_blocks(np.copy)
    with limited(3650 * 10**4 * 4 // 3):
        with_tails = explain(x, 0.5, axis=0)
        monkeypatch.setattr(plans, "_plan_tails", lambda *_: None)
        assert explain(x, 0.5, axis=0) == with_tails


def test_every_chunk_fits_the_limit_or_is_a_part() -> None:
    """A chunk that is larger than the limit is a part by itself."""
    source = Source((N, 40))
    x = source.lazy((100, 40))
    with limited(10_000):
        plan = plan_of(x, 0.99)
        found = quantile(x, 0.99, axis=0)
    assert plan.task_bytes == 100 * 40 * 8
    np.testing.assert_array_equal(found.compute(), np.quantile(source.whole(), 0.99, axis=0))
    assert set(source.loads.values()) == {1}


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
