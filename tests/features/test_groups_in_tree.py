"""A few large groups, whose cuts are too many for one place: the answer is that of a full sort."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect.engine import graphs
from dask_gpuselect.engine.group_elements import GroupedElements
from dask_gpuselect.groups import groupby
from tests.data import normal, uniform
from tests.spies import noted

pytestmark = pytest.mark.any_dask

N = 15_000
TREE = {"dask_gpuselect.column-limit": "4 kB", "dask_gpuselect.root-limit": 0}


@pytest.fixture(autouse=True)
def small_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of parts four at a time, so that there are several levels."""
    monkeypatch.setattr(graphs, "MERGE_EVERY", 4)


def values() -> Any:
    few = 1000 * normal(N)
    few[::7] = few[0]
    return few.astype("i8")


def labels(n_groups: int) -> Any:
    """Of which the first has most, and the last nothing."""
    return np.floor(uniform(N)[::-1] ** 2 * (n_groups - 1)).astype(np.int64)


def test_few_candidates_come_to_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def n_candidates(_: Any, question: Any, partials: Any, *args: Any) -> int:
        return sum(len(partial.candidates) for partial in partials)

    observed = noted(monkeypatch, GroupedElements, "order_statistics", n_candidates)
    x, by = da.from_array(values(), chunks=600), da.from_array(labels(4), chunks=600)
    answers = []
    for limit in (0, "1 GiB"):
        limits = {"dask_gpuselect.cache-limit": 0, "dask_gpuselect.root-limit": limit}
        with dask.config.set(TREE | limits):
            answers.append(groupby(x, by).median().compute(scheduler="sync"))
    np.testing.assert_array_equal(*answers)
    assert observed[0] < observed[1] / 3


def test_lots_of_parts_without_an_element_of_a_group() -> None:
    by = np.where(np.arange(N) < N // 2, 9, labels(5))
    x, by, weights = (da.from_array(a, chunks=300) for a in (values(), by, np.ones(N)))
    with dask.config.set(TREE):
        groups = groupby(x, by, groups=range(4))
        both = [groups.quantile(0.3, weights=w, method="inverted_cdf") for w in (None, weights)]
        np.testing.assert_array_equal(*dask.compute(*both, scheduler="sync"))


@pytest.mark.parametrize(("n_groups", "n_chunks"), [(1, 10**4), (1000, 10**4)])
def test_no_task_holds_more_than_the_limit_at_1e12(n_groups: int, n_chunks: int) -> None:
    x = da.zeros(10**12, chunks=10**12 // n_chunks)
    for groups in (range(n_groups), None)[: 2 if n_groups == 1 else 1]:
        plan = groupby(x, da.zeros_like(x, dtype="i4"), groups=groups).explain([0.25, 0.5, 0.75])
        assert plan.loads == 2
        assert plan.gathered_bytes <= plan.root_bytes <= 1 << 30
