"""Public functions of CuPy arrays, so that every kernel runs at least once: a small part of what the
tests marked `gpu` ask, for machines without a GPU. Answers are those of NumPy arrays to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import (
    describe_boxplot,
    median,
    nanquantile,
    order_statistic,
    quantile,
    sort,
    to_gpu,
)
from dask_gpuselect.distribution import isotonic_regression
from dask_gpuselect.groups import groupby
from dask_gpuselect.kernels.cuda.source import FILES
from dask_gpuselect.robust import LeastTrimmedSquares, mad
from dask_gpuselect.strategies import STRATEGIES
from tests.backends import CUPY
from tests.data import make, normal, uniform

pytestmark = pytest.mark.gpu
Q = [0.0, 0.1, 0.5, 0.77, 1.0]
N = 6000


def in_chunks(x: Any, chunks: Any = 2000) -> da.Array:
    return da.from_array(x, chunks=chunks, asarray=False)


def ask_all(x: Any) -> Any:
    return nanquantile(in_chunks(x), Q)


def ask_box(x: Any) -> Any:
    return list(describe_boxplot(in_chunks(x)).compute()[0]._asdict().values())


def ask_masked(x: Any) -> Any:
    where = in_chunks((x == x) & (x > x.dtype.type(0)))
    return nanquantile(in_chunks(x), Q, where=where)


def ask_weighted(x: Any) -> Any:
    weights = abs(x.astype("f8")) + 0.25
    weights[x != x] = 1
    return nanquantile(in_chunks(x), Q, weights=in_chunks(weights), method="inverted_cdf")


def ask_groups(x: Any) -> Any:
    labels = np.arange(N) * 7 % 5
    by = in_chunks(CUPY.asarray(labels) if isinstance(x, CUPY.array_type) else labels)
    return groupby(in_chunks(x), by, groups=range(5)).nanquantile([0.25, 0.5])


ALL_ELEMENTS = {
    "quantiles": ask_all,
    "at once": lambda x: nanquantile(x, Q),
    "box": ask_box,
    "masked": ask_masked,
    "weighted": ask_weighted,
    "groups": ask_groups,
    "spread": lambda x: mad(in_chunks(x)),
    "sorted": lambda x: sort(in_chunks(x)),
}


@pytest.fixture(scope="module")
def started() -> Iterator[set[str]]:
    """The kernels that were started so far."""
    from dask_gpuselect.kernels.cuda import launch

    names: set[str] = set()
    prepared = launch._prepared

    def noted(dtype: Any, name: str, *args: Any) -> Any:
        names.add(name.partition("_")[0])
        return prepared(dtype, name, *args)

    launch._prepared = noted  # type: ignore[assignment]
    yield names
    launch._prepared = prepared


def on_host(answer: Any) -> Any:
    if isinstance(answer, da.Array):
        answer = answer.compute(scheduler="sync")
    if isinstance(answer, list):
        return [on_host(each) for each in answer]
    return answer.get() if isinstance(answer, CUPY.array_type) else answer


def assert_as_numpy(ask: Callable[[Any], Any], values: Any) -> None:
    mine, theirs = on_host(ask(CUPY.asarray(values))), on_host(ask(values))
    for found, wanted in zip(*((a if isinstance(a, list) else [a]) for a in (mine, theirs)), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["some nan", "tied"])
@pytest.mark.parametrize("asked", ALL_ELEMENTS)
@pytest.mark.usefixtures("started")
def test_all_elements(asked: str, name: str) -> None:
    if name == "some nan" and asked == "spread":
        name = "normal"
    assert_as_numpy(ALL_ELEMENTS[asked], make(name, "f4", N))


@pytest.mark.parametrize("dtype", ["f2", "i2", "u1", "i8"])
@pytest.mark.usefixtures("started")
def test_other_dtypes(dtype: str) -> None:
    values = (50 * normal(N)).astype(dtype) if dtype != "u1" else (200 * uniform(N)).astype(dtype)
    assert_as_numpy(ask_all, values)
    assert_as_numpy(ask_box, values)


@pytest.mark.parametrize("n", [7, 30, 100, 400, 12_000, 100_000])
@pytest.mark.usefixtures("started")
def test_lanes(n: int) -> None:
    rows = make("some nan", "f4", 5 * n).reshape(5, n)
    for values in (rows, np.asfortranarray(rows)):
        assert_as_numpy(lambda x: nanquantile(x, Q, axis=1), values)
    assert_as_numpy(lambda x: nanquantile(in_chunks(x, (5, n // 3 + 1)), 0.3, axis=1), rows)
    assert_as_numpy(lambda x: describe_boxplot(x, axis=1).tables[0].med, rows)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.usefixtures("started")
def test_strategies(strategy: str) -> None:
    for name in ("normal", "tied"):
        ask = lambda x: order_statistic(in_chunks(x), [1, N // 3, N], strategy=strategy)  # noqa: B023,E731
        assert_as_numpy(ask, make(name, "f4", N))


def test_every_kernel_has_run(started: set[str]) -> None:
    assert set(FILES) - started == set()
