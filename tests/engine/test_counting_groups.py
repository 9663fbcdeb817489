"""Groups of data of one and two bytes take one load, while groups are few."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.engine import plans
from dask_gpuselect.engine.group_elements import GroupedElements
from dask_gpuselect.groups import groupby
from tests.data import uniform
from tests.sources import Source

pytestmark = pytest.mark.any_dask

SHAPE, CHUNKS = (40, 400), (13, 180)
N_GROUPS = 5
Q = [0, 0.013, 0.25, 0.5, 0.9, 1]
QUESTIONS: dict[str, Callable[..., Any]] = {
    "quantiles": lambda groups, **how: groups.quantile(Q, **how),
    "nanmedian": lambda groups, **how: groups.nanmedian(**how),
    "iqr": lambda groups, **how: groups.iqr(**how),
    "mad": lambda groups, **how: groups.mad(**how),
    "nanmad": lambda groups, **how: groups.nanmad(scale=1.0, **how),
    "count": lambda groups, **how: groups.count(**how),
    "box": lambda groups, **how: groups.describe_boxplot(**how),
    "box of quantiles": lambda groups, **how: groups.describe_boxplot(
        whis=(5, 95), max_fliers=7, method="inverted_cdf", **how
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


N = math.prod(SHAPE)
UNIT = uniform(N)[::-1].reshape(SHAPE)
HOW: dict[str, dict[str, Any]] = {
    "counts": {},
    "masks": {"where": (UNIT < 0.7) & (zones() != 2), "nodata": 3},
}

FIRST = [("u1", "counts"), ("f2", "masks")]
OTHERS = set(itertools.product(["u1", "i1", "u2", "i2", "f2"], HOW)) - set(FIRST)


@pytest.mark.few(2)
@pytest.mark.parametrize(("dtype", "kind"), [*FIRST, *sorted(OTHERS)])
def test_one_load(dtype: str, kind: str) -> None:
    """The answers about all elements in memory, which sort them, to the last bit."""
    (source, x, values), how = elements(dtype), HOW[kind]
    lazy = {k: da.from_array(a, (13, 500)) if k != "nodata" else a for k, a in how.items()}
    missing = np.where(UNIT < 0.1, np.nan, zones())
    small = da.from_array(zones().astype("u1"), chunks=(11, 400))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        of_missing, of_zones = (
            [ask(groupby(values, by), **how) for ask in QUESTIONS.values()]
            for by in (missing, zones())
        )
    for labels, wanted, groups in (
        (missing, of_missing, None),
        (small, of_zones, range(N_GROUPS)),
    ):
        grouped = groupby(x, labels, groups=groups)
        plan = grouped.explain(**lazy)
        assert (plan.name, plan.loads) == ("counts", 1)
        assert len(plan.parts) > 2
        answers = [ask(grouped, **lazy) for ask in QUESTIONS.values()]
        source.counts.clear()
        found = compute(*answers, scheduler="sync" if groups is None else "threads")
        assert set(source.counts.values()) == {1}  # of all questions together
        assert len(source.counts) == x.npartitions
        for one, other in zip(found, wanted, strict=True):
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
    merge = GroupedElements.merge_value_counts

    def noted(self: Any, reports: Any) -> Any:
        sizes.append(sum(report.__sizeof__() for report in reports))
        return merge(self, reports)

    monkeypatch.setattr(GroupedElements, "merge_value_counts", noted)
    x = da.arange(1 << 20, chunks=1 << 17).astype("u2")
    grouped = groupby(x, np.arange(1 << 20) % 3)
    compute(grouped.median())
    assert 0 < max(sizes) <= grouped.explain().gathered_bytes
