"""Data of one and two bytes take one load, which counts values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import describe_boxplot, explain, median, nanquantile, order_statistic, quantile
from dask_gpuselect.boxplot.questions import BoxQuestion
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.engine.counting import answer_by_values
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.value_counts import ValueCounts
from dask_gpuselect.robust import iqr, mad
from tests.backends import Backend
from tests.data import uniform
from tests.matrix.laws import same, same_computed
from tests.sources import Source

SHAPE, CHUNKS = (60, 500), (7, 180)
COUNTED: dict[str, Callable[[Any], Any]] = {
    "median": median,
    "quantiles": lambda x: quantile(x, np.linspace(0, 1, 33), method="nearest"),
    "nanquantile": lambda x: nanquantile(x, [0.1, 0.7], keepdims=True),
    "order statistic": lambda x: order_statistic(x, [0, 17, -1]),
    "box": describe_boxplot,
    "box of quantiles": lambda x: describe_boxplot(x, whis=(5, 95)),
    "mad": mad,
    "iqr": iqr,
    "ecdf": lambda x: ecdf(x, 33),
    "counts at values": lambda x: ecdf(x, [1, 7, 33]),
}


def lazy(backend: Backend, source: Source, chunks: Any = CHUNKS) -> da.Array:
    return backend.mapped(source.lazy(chunks))


@pytest.mark.legacy  # dask 2026.8 mixes up what expressions and others answer together
@pytest.mark.few(4)
@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u2", "f2"])
def test_several_questions_share_the_load(backend: Backend, dtype: str) -> None:
    source = Source(SHAPE, dtype)
    x = lazy(backend, source)
    results = dask.compute([ask(x) for ask in COUNTED.values()], scheduler="sync")[0]
    assert set(source.counts.values()) == {1}
    for one, ask in zip(results, COUNTED.values(), strict=True):
        same(one, ask(source.whole()))
    boxes = describe_boxplot({"low": x[:30], "masked": da.where(x > 3, x, 0)})
    source.counts.clear()
    dask.compute(boxes, scheduler="sync")
    assert max(source.counts.values()) <= 2  # x[:30] has other chunks than the whole


def test_the_plan_says_so() -> None:
    plan = explain(Source(SHAPE, "u1").lazy(CHUNKS))
    assert (plan.name, plan.loads) == ("counts", 1)
    assert plan.gathered_bytes == 27 * 256 * 9
    unknown = Source(SHAPE, "u2").lazy(CHUNKS)
    assert explain(unknown[unknown > 3]).gathered_bytes == 32 * 65_536 * 10  # of one merge
    for dtype, n in (("u1", 1), ("i1", 1), ("u2", 1), ("f2", 1), ("i4", 2)):
        plan = explain(Source(SHAPE, dtype).lazy(CHUNKS))
        assert (plan.name == "counts", plan.loads) == (n == 1, n)
    assert explain(unknown, weights=da.ones(SHAPE, chunks=CHUNKS)).loads == 2


KEEPS = uniform(300_000).reshape(60_000, 5) < [0.2, 0.2, 0.2, 0.2, 0]
KEEPS[7, 4] = True
LANES: dict[str, Callable[[Any], Any]] = {
    "median": lambda x: median(x, axis=0),
    "quantiles": lambda x: quantile(x, [0.02, 0.98], axis=0, method="lower", keepdims=True),
    "box": lambda x: describe_boxplot(x, axis=0),
    "mad": lambda x: mad(x, axis=0),
    "masked box": lambda x: describe_boxplot(x, axis=0, where=KEEPS, nodata=3),
    "masked mad": lambda x: mad(x, axis=0, where=KEEPS, nodata=3),
}


@pytest.mark.parametrize("name", LANES)
@pytest.mark.parametrize("dtype", ["u1", "i1"])
def test_long_lanes_take_one_load_of_a_chunk_at_a_time(
    backend: Backend, name: str, dtype: str
) -> None:
    ask, source = LANES[name], Source((60_000, 5), dtype)
    x, values = lazy(backend, source, (12_500, 3)), source.values((slice(None),) * 2)
    same_computed(ask(x), ask(values))
    assert set(source.counts.values()) == {1}
    plan = explain(x, axis=0)
    assert (plan.name, plan.loads, plan.task_bytes) == ("counts", 1, 12_500 * 3)


def test_short_lanes_are_taken_as_ever() -> None:
    assert explain(Source((4000, 50), "u1").lazy((1000, 50)), axis=0).name == "column"
    assert explain(Source((400_000, 5), "u2").lazy((100_000, 5)), axis=0).name == "column"


@pytest.mark.parametrize("shape", ["normal", "flat", "two"])
def test_counts_of_more_elements_than_any_memory_holds(shape: str) -> None:
    """What is gathered does not grow with the counts."""
    values = np.arange(65_536)
    counts = {
        "normal": 1e12 * np.exp(-(((values - 30_000) / 500) ** 2)),
        "flat": np.full(65_536, 1e9),
        "two": np.where(np.isin(values, (5, 60_000)), 1e12, 0),
    }[shape].astype(np.int64)
    there = counts > 0
    merged = ValueCounts.of_lane(values[there].astype(np.uint16), counts[there], 0)
    rule = Rule((0.05, 0.95), False, 1000, "inverted_cdf")
    box = answer_by_values(merged, BoxQuestion.of(rule, np.dtype("u2"), omits_nan=False))
    how: Any = {"whis": (5, 95), "method": "inverted_cdf"}
    expected = describe_boxplot(merged.values, weights=merged.counts, **how)[0]
    columns = box.columns()
    for name in {*columns} - {"fliers", "flier_weights"}:
        assert float(columns[name].item()) == getattr(expected, name), name
    assert len(box.fliers) == 1000 * (int(box.n_low > 0) + int(box.n_high > 0))
