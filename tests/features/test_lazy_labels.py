"""Lazy labels, where nobody says which groups there are: answers are those of known labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.groups import GroupBy, groupby
from tests.data import normal, uniform
from tests.limits import limited
from tests.sources import Source

pytestmark = pytest.mark.any_dask  # the graphs are those of quantiles along axes

ASKED: dict[str, Callable[[GroupBy], Any]] = {
    "quantiles": lambda g: g.quantile([0.1, 0.9]),
    "mad": lambda g: g.mad(),
    "median": lambda g: g.median(),
}


def codes(*shape: int) -> NDArray[Any]:
    return np.floor(uniform(int(np.prod(shape)))[::-1] * 3).astype(int).reshape(shape)


def test_several_kinds_of_labels() -> None:
    """Some in memory and some lazy, along an axis and of two."""
    a, of_places = 10 * np.abs(normal(360)).reshape(12, 5, 6), codes(12, 5)
    first = np.array(["wet", "dry", "hot"])[codes(12, 1, 1)]
    second = np.where(of_places == 1, np.nan, of_places)
    grouped = groupby(
        da.from_array(a, chunks=(5, 2, 4)), (first, da.from_array(second, chunks=4)), (0, 1)
    )
    wanted = groupby(a, (np.broadcast_to(first[..., 0], (12, 5)), second), (0, 1))
    assert grouped.groups.compute().tolist() == wanted.groups
    np.testing.assert_array_equal(grouped.median().compute(), wanted.median())


# --- Plans, loads and memory ----------------------------------------------------------------------


def test_slabs_where_a_column_is_too_large() -> None:
    """They fit the limit, and the plan tells of passes; what does not fit is an error."""
    x, by = da.zeros((4000, 60), chunks=(500, 30)), da.zeros(4000, chunks=700, dtype=int)
    grouped = groupby(x, by, 0)
    with limited("200 kB"):
        plan = grouped.explain()
        assert (plan.name, plan.loads) == ("column", 5)
        assert plan.task_bytes <= 200_000
        assert "groups= (the labels that there are) makes passes possible" in str(plan)
        assert "groups=" not in str(groupby(x, by, 0, groups=[0]).explain())
    weights = da.ones(4000, chunks=500)
    x = da.zeros(4000, chunks=500)
    with limited("20 kB"):
        with pytest.raises(ValueError, match=r"too small for columns .*; groups= \(the labels"):
            groupby(da.zeros((4000, 2), chunks=(500, 1)), by, 0).median()
        assert groupby(x, by).quantile(0.5, weights=weights).compute().tolist() == [0]
        assert groupby(x, by, groups=[0]).quantile(0.5, weights=weights).compute() == 0


def test_plans_count_masks_and_weights_of_groups() -> None:
    x, by = da.zeros((1000, 10), chunks=(100, 5)), np.arange(1000) % 3
    weights = da.ones((1000, 10), chunks=(100, 5))
    column = 1000 * 5 * 8
    how: list[dict[str, Any]] = [{"where": weights > 0}, {"weights": weights}]
    task_bytes = [groupby(x, by, 0).explain(**each).task_bytes for each in ({}, *how)]
    assert task_bytes == [column, column * 9 // 8, 2 * column]
    every = np.broadcast_to(by[:, None], x.shape)
    assert groupby(x, every).explain(weights=weights).task_bytes == 5 * column  # int32 labels
    with limited(20_000):
        plans = [groupby(x, every).explain(**each) for each in how]
    wanted = [("groups", 4 * 500 * (8 + 1 + 4)), ("groups", 2 * 500 * (8 + 8 + 4))]
    assert [(each.name, each.task_bytes) for each in plans] == wanted


@pytest.mark.parametrize("name", ASKED)
def test_loads(name: str) -> None:
    """Data once in a column and once a slab. Labels along an axis twice: one time to know which
    there are, and one time for all columns, slabs and questions."""
    source, labels = Source((400, 60)), Source((400,))
    x, by = source.lazy((50, 30)), (labels.lazy(70) * 4).astype(int)
    for limit, loads in (("1 GiB", 1), ("50 kB", 2)):
        with limited(limit):
            grouped = groupby(x, by, 0)
            answers = ASKED[name](grouped), grouped.count()
        assert not source.loads
        assert not labels.loads
        dask.compute(*answers)
        assert set(source.loads.values()) == {loads}
        assert set(labels.loads.values()) == {2}
        source.counts.clear()
        labels.counts.clear()
        groupby(x, by, 0).groups.compute()
        assert not source.loads
        assert set(labels.loads.values()) == {1}
        labels.counts.clear()


def test_loads_beside_chunks_that_are_smaller_than_a_label() -> None:
    """Weights by groups that are not known before take no load of labels alone."""
    labels = Source((6, 2, 5))
    by = (labels.lazy((3, 2, 5)) * 4).astype(int)
    x, weights = Source(by.shape, "i1").lazy((1, 1, 5)), Source(by.shape).lazy((3, 2, 5))
    groupby(x, by).quantile([0.5, 0.1], weights=weights).compute()
    assert set(labels.loads.values()) == {1}


@pytest.mark.parametrize("groups", [None, range(4)])
def test_columns_one_after_the_other(groups: Any) -> None:
    """Labels that all columns share give no reason to hold them all at once."""
    places: list[Any] = []

    class Noted(Source):
        def __getitem__(self, index: Any) -> NDArray[Any]:
            places.append(index[1].start)
            return super().__getitem__(index)

    x, by = Noted((200, 1200)).lazy((20, 300)), (Source((200,)).lazy(20) * 4).astype(int)
    groupby(x, by, 0, groups=groups).median().compute(scheduler="synchronous")
    changes = sum(a != b for a, b in zip(places[:-1], places[1:], strict=True))
    assert (len(places), changes) == (40, 3)


@pytest.mark.parametrize("groups", [None, [0, 1]])
@pytest.mark.parametrize("axis", [None, 0])
def test_labels_of_unknown_sizes_beside_data_of_known_ones(axis: Any, groups: Any) -> None:
    """Which cannot be matched before they are known: an error at the call, however many chunks."""
    x = da.arange(6, chunks=2)
    for chunks in (2, (2, 3, 1), 6):
        labels = da.from_array(np.array([0, 1, 0, 1, 1, 1]), chunks=(chunks,))
        with pytest.raises(ValueError, match=r"unknown sizes.*compute_chunk_sizes\(\)"):
            groupby(x, labels[labels >= 0], axis, groups=groups).median()
