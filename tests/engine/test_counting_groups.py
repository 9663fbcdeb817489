"""Groups of data of one and two bytes take one load, while groups are few."""

from __future__ import annotations

import math
import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect.engine import lane_plans
from dask_gpuselect.engine.group_elements import GroupedElements
from dask_gpuselect.groups import groupby
from tests.spies import noted

pytestmark = pytest.mark.any_dask

SHAPE, CHUNKS = (40, 400), (13, 180)


@pytest.fixture(autouse=True)
def parts_of_few_chunks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Small data are in several parts, and are counted whatever the counts take beside them."""
    monkeypatch.setattr(lane_plans, "GROUP_COUNTS_SHARE", math.inf)
    with dask.config.set({"dask_gpuselect.column-limit": "4 kB"}):
        yield


def compute(*lazy: Any, **how: Any) -> Any:
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        return dask.compute(*lazy, **({"scheduler": "sync"} | how))


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

    def size(_: Any, question: Any, partials: Any) -> int:
        return sum(partial.__sizeof__() for partial in partials)

    sizes = noted(monkeypatch, GroupedElements, "_merge_counts", size)
    x = da.arange(1 << 20, chunks=1 << 17).astype("u2")
    grouped = groupby(x, np.arange(1 << 20) % 3)
    compute(grouped.median())
    assert 0 < max(sizes) <= grouped.explain().gathered_bytes
