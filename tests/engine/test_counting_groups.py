"""Groups of data of one and two bytes take one load, while groups and values are few."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import quantile
from dask_gpuselect.engine import plans
from dask_gpuselect.engine.group_elements import GroupedElements
from dask_gpuselect.groups import groupby
from tests.backends import Backend
from tests.data import uniform
from tests.sources import Source

pytestmark = pytest.mark.any_dask

SHAPE, CHUNKS = (60, 500), (7, 180)
N_GROUPS = 5
DTYPES = ["u1", "i1", "u2", "i2", "f2"]
QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "quantiles": lambda groups: groups.quantile([0, 0.3, 0.5, 1]),
    "nanmedian": lambda groups: groups.nanmedian(),
    "iqr": lambda groups: groups.iqr(),
    "mad": lambda groups: groups.mad(),
    "nanmad": lambda groups: groups.nanmad(scale=1.0),
    "count": lambda groups: groups.count(),
    "box": lambda groups: groups.describe_boxplot(),
    "box of quantiles": lambda groups: groups.describe_boxplot(
        whis=(5, 95), max_fliers=7, method="inverted_cdf"
    ),
}


@pytest.fixture(autouse=True)
def parts_of_few_chunks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Small data are in several parts, and are counted whatever the counts take beside them."""
    monkeypatch.setattr(plans, "GROUP_COUNTS_SHARE", math.inf)
    with dask.config.set({"dask_gpuselect.column-limit": "4 kB"}):
        yield


def zones(shape: tuple[int, ...] = SHAPE, dtype: str = "i4") -> NDArray[Any]:
    found = np.floor(uniform(math.prod(shape)) ** 2 * N_GROUPS).astype(dtype)
    return found.reshape(shape)


def elements(dtype: str) -> tuple[Source, Any, NDArray[Any]]:
    """A source, a lazy array of it, and all of that: with NaN, infinities and zeros of both
    signs."""
    source = Source(SHAPE, dtype)
    if dtype != "f2":
        return source, source.lazy(CHUNKS), source.whole()

    def odd(values: Any) -> Any:
        values = np.where(values < 0.05, np.float16("nan"), values)
        values = np.where(values > 0.99, np.float16("inf"), values)
        return np.where(abs(values - 0.5) < 0.1, np.float16(-0.0), values - np.float16(0.3))

    return source, source.lazy(CHUNKS).map_blocks(odd, dtype="f2"), odd(source.whole())


def compute(*lazy: Any, **how: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return dask.compute(*lazy, **({"scheduler": "sync"} | how))


def assert_same(found: Any, wanted: Any) -> None:
    if hasattr(wanted, "to_dict"):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_equal(one.to_dict(), other.to_dict())
        return
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["u1", "i2", "f2"])
def test_masks_and_missing_labels(dtype: str) -> None:
    source, x, values = elements(dtype)
    by = zones(dtype="f8")
    by[::9] = np.nan
    keeps = uniform(values.size).reshape(SHAPE) < 0.7
    keeps[by == 2] = False
    nodata = values[3, 3]
    how = {"where": keeps, "nodata": nodata}
    lazy = {"where": da.from_array(keeps, chunks=(20, 100)), "nodata": nodata}
    asks: list[Callable[..., Any]] = [
        lambda groups, **how: groups.nanquantile([0.1, 0.6], **how),
        lambda groups, **how: groups.count(**how),
        lambda groups, **how: groups.nanmad(**how),
    ]
    if dtype == "f2":
        asks.append(lambda groups, **how: groups.describe_boxplot(**how))
    grouped = groupby(x, by)
    assert grouped.explain(**lazy).name == "counts"
    found = compute(*(ask(grouped, **lazy) for ask in asks))
    assert set(source.counts.values()) == {1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for one, ask in zip(found, asks, strict=True):
            assert_same(one, ask(groupby(values, by), **how))
    some = values[keeps & (by == 1) & (values != nodata) & ~np.isnan(values.astype("f8"))]
    np.testing.assert_array_equal(found[0][:, 1], quantile(some, [0.1, 0.6]))
    assert found[1].tolist()[2] == 0


@pytest.mark.parametrize("name", QUESTIONS)
def test_chunks_of_any_kind(backend: Backend, name: str) -> None:
    """Labels are on the host, or with the data; and maybe in the chunks' masks."""
    ask, source, by = QUESTIONS[name], Source(SHAPE, "u1"), zones()
    x, values = backend.mapped(source.lazy(CHUNKS)), source.whole()
    wanted = ask(groupby(values, by))
    told = backend.mapped(da.from_array(by, chunks=CHUNKS))
    for labels in (by, told):
        grouped = groupby(x, labels, groups=range(N_GROUPS))
        assert grouped.explain().name == "counts"
        source.counts.clear()
        (found,) = compute(ask(grouped))
        assert set(source.counts.values()) == {1}
        assert_same(found if "box" in name else backend.to_numpy(found), wanted)


@pytest.mark.parametrize(
    "scheduler", ["threads", pytest.param("processes", marks=pytest.mark.slow)]
)
def test_any_scheduler(scheduler: str) -> None:
    source, by = Source(SHAPE, "u2"), zones()
    for groups in (None, [4, 2]):
        grouped = groupby(
            source.lazy(CHUNKS), da.from_array(by.astype("u1"), chunks=(9, 500)), groups=groups
        )
        asked = grouped.median(), grouped.mad(), grouped.describe_boxplot()
        found = compute(*asked, scheduler=scheduler)
        for one, other in zip(found, compute(*asked), strict=True):
            assert_same(one, other)


def test_data_of_nothing_but_nan() -> None:
    nothing = da.full((40,), np.nan, dtype="f2", chunks=7)
    grouped = groupby(nothing, np.arange(40) % 2)
    assert grouped.explain().name == "counts"
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        assert np.isnan(grouped.nanmedian().compute(scheduler="sync")).all()
    assert np.isnan(grouped.median().compute(scheduler="sync")).all()


# --- Where counts are too many --------------------------------------------------------------------


def plan_of(dtype: str, by: Any, n: int = 1 << 27, groups: Any = None) -> Any:
    with dask.config.set({"dask_gpuselect.column-limit": "1 GiB"}):
        return groupby(da.zeros(n, chunks=1 << 22, dtype=dtype), by, groups=groups).explain()


def test_counts_are_few_beside_the_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    by = da.zeros(1 << 27, chunks=1 << 22, dtype="i8")
    for dtype, n_groups, of_value in (("u1", 1000, 9), ("u2", 90, 10), ("f2", 70, 12)):
        n_values = 256 if dtype == "u1" else 1 << 16
        plan = plan_of(dtype, by, groups=range(n_groups))
        assert (plan.name, plan.loads) == ("counts", 1)
        part = max(stop - start for start, stop in plan.parts) << 22
        of_report = n_groups * n_values * of_value
        assert of_report <= part * np.dtype(dtype).itemsize <= 1 << 26
        assert plan.gathered_bytes == min(len(plan.parts), 4) * of_report
        assert plan_of(dtype, by, groups=range(n_groups << 5)).loads == 2
        with dask.config.set({"dask_gpuselect.root-limit": plan.gathered_bytes - 1}):
            assert plan_of(dtype, by, groups=range(n_groups)).loads == 2
    assert plan_of("u1", by).loads == 2  # nobody knows how many labels there are
    assert plan_of("u1", by.astype("u1")).name == "counts"
    assert plan_of("u1", by.astype("u2")).loads == 2
    assert plan_of("i4", by, groups=[0, 1]).loads == 2


def test_reports_take_what_explain_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where every value occurs in every group."""
    sizes: list[int] = []
    merge = GroupedElements.merge_value_reports

    def noted(self: Any, reports: Any) -> Any:
        sizes.append(sum(report.__sizeof__() for report in reports))
        return merge(self, reports)

    monkeypatch.setattr(GroupedElements, "merge_value_reports", noted)
    x = da.arange(1 << 20, chunks=1 << 17).astype("u2")
    grouped = groupby(x, np.arange(1 << 20) % 3)
    compute(grouped.median())
    assert 0 < max(sizes) <= grouped.explain().gathered_bytes
