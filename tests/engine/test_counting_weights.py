"""Weighted elements of one and two bytes take one load: the weights of each value are added up
exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import describe_boxplot, explain, quantile
from dask_gpuselect.quantiles.weighted import WEIGHTED
from tests.data import uniform
from tests.sources import Source

pytestmark = pytest.mark.any_dask

SHAPE, CHUNKS = (60, 500), (7, 180)
WEIGHTS = uniform(60 * 500)[::-1].reshape(SHAPE)
Q = [0, 0.013, 0.25, 0.5, 0.9, 1]


QUESTIONS: dict[str, Callable[..., Any]] = {
    **{
        method: lambda x, method=method, **how: quantile(x, Q, method=method, **how)
        for method in WEIGHTED
    },
    **{
        f"box, {method}": lambda x, method=method, **how: describe_boxplot(
            x, method=method, max_fliers=9, **how
        )
        for method in WEIGHTED
    },
    "box of quantiles": lambda x, **how: describe_boxplot(
        x, method="inverted_cdf", whis=(2, 98), **how
    ),
}


def assert_same(found: Any, wanted: Any) -> None:
    if hasattr(wanted, "to_dict"):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_equal(one.to_dict(), other.to_dict())
        return
    np.testing.assert_array_equal(found, wanted)


def test_several_arrays_and_questions_share_the_load() -> None:
    source, weights = Source(SHAPE, "u1"), da.from_array(WEIGHTS, chunks=CHUNKS)
    x = source.lazy(CHUNKS)
    asked = [ask(x, weights=weights) for ask in QUESTIONS.values()]
    for scheduler in ("sync", "threads"):
        source.counts.clear()
        found = dask.compute(asked, scheduler=scheduler)[0]
        assert set(source.counts.values()) == {1}
        for one, ask in zip(found, QUESTIONS.values(), strict=True):
            assert_same(one, ask(source.whole(), weights=weights.compute()))


def test_the_plan_says_so() -> None:
    weights = da.ones(SHAPE, chunks=CHUNKS)
    for dtype, n in (("u1", 1), ("i1", 1), ("u2", 1), ("f2", 1), ("i4", 2)):
        plan = explain(Source(SHAPE, dtype).lazy(CHUNKS), weights=weights)
        assert plan.loads == n
        assert (plan.name == "counts") == (n == 1)
