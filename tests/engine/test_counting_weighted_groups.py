"""Groups of weighted elements of one and two bytes take one load, while groups are few."""

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

from dask_gpuselect import describe_boxplot, quantile
from dask_gpuselect.engine import plans
from dask_gpuselect.groups import groupby
from dask_gpuselect.quantiles.weighted import WEIGHTED
from tests.data import uniform
from tests.engine.test_counting_groups import (
    CHUNKS,
    N_GROUPS,
    SHAPE,
    assert_same,
    compute,
    zones,
)
from tests.engine.test_counting_groups import elements as elements_of
from tests.sources import Source

pytestmark = pytest.mark.any_dask

N = math.prod(SHAPE)
Q = [0, 0.013, 0.25, 0.5, 0.9, 1]
UNIT = uniform(N)[::-1].reshape(SHAPE)
WEIGHTS: dict[str, NDArray[Any]] = {
    "floats": UNIT,
    "float32": UNIT.astype("f4"),
    "counts": np.floor(UNIT * 4).astype("i2"),
    "every magnitude": np.ldexp(
        0.5 + UNIT, np.floor(2000 * uniform(N)).astype(int).reshape(SHAPE) - 1000
    ),
    "beyond 2**53": np.floor(UNIT * 2.0**61).astype("i8") * 4 + 1,
}
QUESTIONS: dict[str, Callable[..., Any]] = {
    **{
        method: lambda groups, method=method, **how: groups.nanquantile(Q, method=method, **how)
        for method in WEIGHTED
    },
    "with NaN": lambda groups, **how: groups.quantile(0.3, method="inverted_cdf", **how),
    "box": lambda groups, **how: groups.describe_boxplot(
        method="inverted_cdf", max_fliers=7, **how
    ),
    "box of windows": lambda groups, **how: groups.describe_boxplot(method="linear", **how),
}


@pytest.fixture(autouse=True)
def parts_of_few_chunks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Small data are in several parts, and are weighed whatever the sums take beside them."""
    monkeypatch.setattr(plans, "GROUP_COUNTS_SHARE", math.inf)
    with dask.config.set({"dask_gpuselect.column-limit": "40 kB"}):
        yield


def elements(dtype: str) -> tuple[Source, Any, NDArray[Any]]:
    """As of groups that are counted, and bools."""
    if dtype != "?":
        return elements_of(dtype)
    source = Source(SHAPE, "u1")
    return source, source.lazy(CHUNKS) > 40, source.whole() > 40


def now(ask: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return ask()


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "f2"])
def test_one_load(dtype: str, kind: str) -> None:
    """The answers about all elements in memory, which sort them, to the last bit."""
    (source, x, values), by, weights = elements(dtype), zones(), WEIGHTS[kind]
    lazy = da.from_array(weights, chunks=(13, 500))
    asks = QUESTIONS
    if dtype == "?":  # which can only be chosen
        asks = {name: QUESTIONS[name] for name in ("inverted_cdf", "with NaN")}
    told = da.from_array(by.astype("u1"), chunks=(11, 400))
    for labels, groups in ((by, None), (told, range(N_GROUPS)), (told, None)):
        if groups is None and labels is told and x.dtype.itemsize == 2:
            continue  # there may be 256 groups
        grouped = groupby(x, labels, groups=groups)
        plan = grouped.explain(weights=lazy)
        assert (plan.name, plan.loads) == ("counts", 1)
        assert "all are weighed" in str(plan)
        assert len(plan.parts) > 2
        answers = [ask(grouped, weights=lazy) for ask in asks.values()]
        source.counts.clear()
        found = compute(*answers)
        assert set(source.counts.values()) == {1}  # of all questions together
        assert len(source.counts) == x.npartitions
        for one, ask in zip(found, asks.values(), strict=True):
            wanted = now(lambda ask=ask: ask(groupby(values, by), weights=weights))
            assert_same(one, wanted)


def test_a_group_is_all() -> None:
    """One group is asked as all elements are, and a box of it is."""
    source, weights = Source(SHAPE, "i2"), WEIGHTS["float32"]
    grouped = groupby(source.lazy(CHUNKS), np.zeros(SHAPE, "i4"))
    lazy = da.from_array(weights, chunks=CHUNKS)
    for method in WEIGHTED:
        how: dict[str, Any] = {"weights": lazy, "method": method}
        found, box = compute(grouped.quantile(Q, **how), grouped.describe_boxplot(**how))
        how["weights"] = weights
        np.testing.assert_array_equal(found[:, 0], quantile(source.whole(), Q, **how))
        assert_same(box, describe_boxplot(source.whole(), **how, labels=["0"]))


def test_weights_that_are_none() -> None:
    x, by = Source(SHAPE, "i2").lazy(CHUNKS), zones()
    for weight, message in ((-1.0, "non-negative"), (np.nan, "NaN, inf or were all zero")):
        weights = np.ones(SHAPE)
        weights[33, 33] = weight
        lazy = da.from_array(weights, chunks=CHUNKS)
        grouped = groupby(x, by)
        with pytest.raises(ValueError, match=message):
            compute(grouped.quantile(0.5, weights=lazy, method="inverted_cdf"))
        others = groupby(x, by, groups=[g for g in range(N_GROUPS) if g != by[33, 33]])
        compute(others.quantile(0.5, weights=lazy, method="inverted_cdf"))
    lazy = da.from_array((by != 2).astype("f8"), chunks=CHUNKS)
    for ask in QUESTIONS.values():
        with pytest.raises(ValueError, match="all zero"):
            compute(ask(groupby(x, by), weights=lazy))


# --- Where sums are too many ----------------------------------------------------------------------


def test_sums_are_few_beside_the_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    n = 1 << 27

    def plan_of(dtype: str, n_groups: int) -> Any:
        x, by = (da.zeros(n, chunks=1 << 22, dtype=each) for each in (dtype, "i8"))
        grouped = groupby(x, by, groups=range(n_groups))
        with dask.config.set({"dask_gpuselect.column-limit": "1 GiB"}):
            return grouped.explain(weights=da.ones(n, chunks=1 << 22))

    # As many as fit `root-limit`, whatever the weights are.
    for dtype, most in (("u1", 3500), ("i2", 14), ("f2", 14)):
        for n_groups, is_few in ((most, True), (most + 250, False)):
            plan = plan_of(dtype, n_groups)
            assert (plan.name == "counts") == is_few, (dtype, n_groups)
            if is_few:
                assert plan.gathered_bytes <= 1 << 30
                assert plan.task_bytes <= 1 << 26
    assert plan_of("i4", 2).name != "counts"
