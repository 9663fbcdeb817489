"""Groups of all elements: two loads, brackets of every group at once, labels that need not be known
before."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import ChunksChangedError, quantile
from dask_gpuselect.engine import lane_plans
from dask_gpuselect.engine.group_elements import MOST, SPARE, stretches
from dask_gpuselect.groups import groupby
from dask_gpuselect.maths import boxes
from dask_gpuselect.maths.sizes import MOST_TREES
from tests.backends import CUPY, Backend
from tests.data import normal, uniform
from tests.limits import configured
from tests.matrix.axes import LABELS
from tests.matrix.laws import same_computed
from tests.sources import Source, changing

pytestmark = pytest.mark.any_dask

N = 5000


def labels(n_groups: int, n: int = N) -> NDArray[np.int64]:
    """Negative ones among them, and in no order."""
    return np.floor(uniform(n)[::-1] * n_groups).astype(np.int64) - 3


def alone(a: NDArray[Any], by: NDArray[Any], ask: Callable[..., Any]) -> NDArray[Any]:
    """The answer about each group by itself."""
    return np.stack([np.asarray(ask(a[by == each])) for each in np.unique(by)], axis=-1)


def test_a_device_takes_in_one_task_what_fits(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of NumPy chunks threads take parts, with weights and without."""
    monkeypatch.setattr(lane_plans, "ONE_TASK", 20_000)
    in_parts = "groups", 2
    x, by = backend.mapped(da.from_array(normal(N), chunks=611)), labels(5)
    weights = backend.mapped(da.ones(N, chunks=611))
    for how in ({}, {"weights": weights}):
        plan = groupby(x, by).explain(**how)
        assert (plan.name, plan.loads) == (("column", 1) if backend is CUPY else in_parts)


def test_many_groups_have_several_roots() -> None:
    """No task holds the cuts of all groups, and the answer is that of one place."""
    a, by = normal(40_000), labels(2000, 40_000) + 3
    x, lazy = da.from_array(a, chunks=3000), da.from_array(by, chunks=3000)
    grouped, answers = groupby(x, lazy, groups=np.arange(2000)), []
    for limit in ("1 GiB", "1 MB", "100 kB"):
        with configured(column_limit="30 kB", root_limit=limit):
            plan = grouped.explain([0.2, 0.8])
            assert (plan.name, plan.loads) == ("groups", 2)
            assert plan.gathered_bytes <= 1.01 * dask.utils.parse_bytes(limit)
            answers.append(grouped.quantile([0.2, 0.8]).compute())
    expected = alone(a, by, lambda some: np.quantile(some, [0.2, 0.8]))
    np.testing.assert_array_equal(answers, [expected] * 3)
    with configured(column_limit="30 kB", root_limit=0):
        graph = grouped.quantile([0.2, 0.8]).dask
    assert sum("groups-bracket-each" in name for name in graph.layers) == MOST_TREES


@pytest.mark.parametrize("method", ["inverted_cdf", "averaged_inverted_cdf", "linear"])
@pytest.mark.parametrize(("n_groups", "small"), [(3, "60 kB"), (500, "1 MB")])
def test_weighted_groups_take_two_loads(n_groups: int, small: str, method: str) -> None:
    """With one root and several, in a tree, and with a cache: the answer is that of one task."""
    n, how = 20_000, {"q": [0.0, 0.3, 1.0], "method": method}
    values, by = normal(n), labels(n_groups, n) + 3
    values[::17], weights = 2.0, np.floor(9 * uniform(n))
    weights[:n_groups] = 10.0 ** (40 * np.resize(normal(50), n_groups)) + 1  # far apart
    weights[by == 1] += 1
    expected = groupby(values, by).quantile(**how, weights=weights)
    x, lazy, w = (da.from_array(each, chunks=3000) for each in (values, by, weights))
    for limit, cache in itertools.product(("1 GiB", small), ("1 GiB", "0")):
        with configured(column_limit="60 kB", root_limit=limit, cache_limit=cache):
            for labelled in (groupby(x, lazy), groupby(x, by, groups=range(n_groups))):
                plan = labelled.explain(partial(quantile, **how), weights=w)
                assert (plan.name, plan.loads) == ("groups", 2)
                np.testing.assert_array_equal(labelled.quantile(**how, weights=w), expected)
    by[3::5] = -1  # groups of weight 0 are an error wherever their elements are
    with pytest.raises(ValueError, match="all zero"):
        groupby(x, np.where(np.arange(n) > 5000, by, 0)).quantile(
            **how, weights=da.where(da.arange(n, chunks=3000) > 5000, 0, w)
        ).compute()


@pytest.mark.parametrize("limit", ["1 GiB", "500 kB"])
@pytest.mark.parametrize(("n_groups", "loads"), [(3, 2), (3, 3), (2000, 2), (2000, 3)])
@pytest.mark.parametrize("weighs", [False, True])
def test_boxes_of_groups_take_two_loads(
    n_groups: int, loads: int, weighs: bool, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third is taken if the fences of some group are too uncertain."""
    source, by = Source((100_000,)), labels(n_groups, 100_000) + 3
    values, how = source.values((slice(None),)), {"whis": 0.4, "max_fliers": 9}
    beside = {"weights": 1 / (uniform(100_000) + 0.01)} if weighs else {}
    expected = groupby(values, by).describe_boxplot(**how, **beside)
    if loads == 3:
        monkeypatch.setattr(boxes, "ROOM", 0)
        monkeypatch.setattr(boxes, "LEAST_ROOM", 0)
    lazy = {name: da.from_array(each, chunks=12_000) for name, each in beside.items()}
    with configured(column_limit=10**5, cache_limit=0, root_limit=limit):
        grouped = groupby(source.lazy(12_000), by)
        same_computed(grouped.describe_boxplot(**how, **lazy), expected)
    assert {*source.loads.values()} == {loads}


def test_tasks_about_very_many_weighted_groups_are_bounded() -> None:
    """A million groups of 1e9 elements fit default limits."""
    x = da.zeros(10**9, chunks=10**7, dtype=np.float32)
    by, weights = x.astype(np.int32), da.ones_like(x)
    asked = partial(quantile, q=0.5, method="inverted_cdf")
    plan = groupby(x, by, groups=range(10**6)).explain(asked, weights=weights)
    assert (plan.name, plan.loads) == ("groups", 2)
    assert plan.task_bytes <= 200e6
    assert plan.root_bytes <= 2**30


# --- Labels ---------------------------------------------------------------------------------------


def test_names_of_groups() -> None:
    codes = labels(6) + 3
    for kind, named in LABELS.items():
        by = named(codes)
        names = np.unique(by[by == by])
        if len(names):
            np.testing.assert_array_equal(groupby(normal(N), by).groups, names, err_msg=kind)
        lazy = groupby(da.from_array(normal(N), chunks=611), da.from_array(by, chunks=900))
        np.testing.assert_array_equal(lazy.groups.compute(), names, err_msg=kind)


def test_fractions_are_told_while_computing() -> None:
    by = da.from_array(np.arange(10) / 4, chunks=5)
    with pytest.raises(ValueError, match="floats with fractions"):
        groupby(da.arange(10, chunks=5), by).median().compute(scheduler="sync")
    result = groupby(da.arange(10, chunks=5), by, groups=[0.25, 1.0]).median()
    np.testing.assert_array_equal(result.compute(), [1, 4])


def test_a_chunk_with_a_weighted_group_that_was_not_there_is_named(tmp_path: Path) -> None:
    x = changing(lambda v, load: v - 5 * (load > 1), directory=tmp_path, size=8000)
    x = x.map_blocks(lambda block: block, dtype=x.dtype, chunks=((8000,) * x.npartitions,))
    x, by = da.ones_like(x), x.map_blocks(np.floor).astype(int)
    how = {"method": "inverted_cdf", "weights": da.ones(x.size, chunks=x.chunks)}
    with dask.config.set({"dask_gpuselect.column-limit": "60 kB"}):
        answer = groupby(x, by, groups=[-5, 0]).quantile(0.5, **how)
    with pytest.raises(ChunksChangedError, match=r"chunk \(3,\)"):
        answer.compute(scheduler="sync")


# --- Many groups, as rows of tables ---------------------------------------------------------------


def test_tables_are_filled_well() -> None:
    """Every group is in one stretch, in order, and padding is bounded."""
    sizes = np.floor(1 / (uniform(3000) + 1e-6)).astype(np.int64)
    sizes[1234] = 3 * MOST
    result = list(stretches(sizes))
    assert [*(first for first, _ in result), len(sizes)] == [0, *(last for _, last in result)]
    for first, last in result:
        n = sizes[first:last]
        room, filled = int(n.max()) * len(n), int(n.sum())
        assert len(n) == 1 or (room <= MOST and room - filled <= max(SPARE, filled // 4))
    assert list(stretches(sizes[:0])) == [(0, 0)]
