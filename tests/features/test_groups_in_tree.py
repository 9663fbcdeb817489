"""A few large groups, whose cuts are too many for one place: the answer is that of a full sort."""

from __future__ import annotations

import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect.engine import group_stages
from dask_gpuselect.groups import groupby
from tests.data import normal, uniform

pytestmark = pytest.mark.any_dask

N = 15_000
TREE = {"dask_gpuselect.column-limit": "4 kB", "dask_gpuselect.root-limit": 0}
NOT_KEPT = {"dask_gpuselect.cache-limit": 0}


@pytest.fixture(autouse=True)
def small_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of parts four at a time, so that there are several levels."""
    monkeypatch.setattr(group_stages, "COARSE_EVERY", 4)


def values(dtype: str) -> Any:
    found = 1000 * normal(N)
    found[::7] = found[0]
    if dtype == "f8":
        found[::50] = np.nan
    return found.astype(dtype)


def labels(n_groups: int) -> Any:
    """Of which the first has most, and the last nothing."""
    return np.floor(uniform(N)[::-1] ** 2 * (n_groups - 1)).astype(np.int64)


def is_in_tree(answer: Any) -> bool:
    names = {str(key[0] if isinstance(key, tuple) else key) for key in answer.__dask_graph__()}
    return any(name.startswith("quantile-groups-narrower") for name in names)


@pytest.mark.few(1)
@pytest.mark.parametrize("groups", ["known", "not known"])
@pytest.mark.parametrize("dtype", ["f8", "i8", "f4"])
@pytest.mark.parametrize("keep", [{}, NOT_KEPT], ids=["kept", "two loads"])
def test_each_group_is_as_alone(dtype: str, groups: str, keep: dict[str, Any]) -> None:
    a, by = values(dtype), labels(6)
    known = np.arange(6) if groups == "known" else None
    x, lazy = da.from_array(a, chunks=((611,) * 24 + (336,),)), da.from_array(by, chunks=777)
    q = [0.0, 0.25, 0.5, 0.99, 1.0]
    with dask.config.set(TREE | keep):
        answer = groupby(x, lazy, groups=known).nanquantile(q)
        assert is_in_tree(answer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of a group without elements
            found = answer.compute(scheduler="threads")
    for group in range(5):
        own = a[by == group]
        np.testing.assert_array_equal(found[:, group], np.nanquantile(own, q))
    assert found.shape[1] == (6 if groups == "known" else 5)
    assert np.isnan(found[:, 5:]).all()


def test_few_candidates_come_to_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    from dask_gpuselect.engine.group_elements import GroupedElements

    plain = GroupedElements.order_statistics

    def finding(self: Any, reports: Any, *args: Any) -> Any:
        seen.append(sum(len(report.candidates) for report in reports))
        return plain(self, reports, *args)

    monkeypatch.setattr(GroupedElements, "order_statistics", finding)
    x, by = da.from_array(values("i8"), chunks=600), da.from_array(labels(4), chunks=600)
    answers = []
    for limit in (0, "1 GiB"):
        with dask.config.set(TREE | NOT_KEPT | {"dask_gpuselect.root-limit": limit}):
            answers.append(groupby(x, by).median().compute(scheduler="sync"))
    np.testing.assert_array_equal(*answers)
    few, every = seen
    assert few < every / 3


@pytest.mark.parametrize(("n_groups", "n_chunks"), [(1, 10**4), (1000, 10**4)])
def test_no_task_holds_more_than_the_limit_at_1e12(n_groups: int, n_chunks: int) -> None:
    x = da.zeros(10**12, chunks=10**12 // n_chunks)
    for groups in (range(n_groups), None)[: 2 if n_groups == 1 else 1]:
        plan = groupby(x, da.zeros_like(x, dtype="i4"), groups=groups).explain([0.25, 0.5, 0.75])
        assert plan.loads == 2
        assert plan.root_bytes <= 1 << 30
        assert plan.gathered_bytes <= plan.root_bytes
