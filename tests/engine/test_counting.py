"""Data of one and two bytes take one load, whatever is asked of all elements."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import describe_boxplot, explain, median, nanquantile, order_statistic, quantile
from dask_gpuselect.boxplot.questions import BoxQuestion
from dask_gpuselect.distribution import EmpiricalDistribution, ecdf
from dask_gpuselect.engine.counting import answer_by_values
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.value_counts import ValueCounts
from dask_gpuselect.robust import iqr, mad
from tests.backends import Backend
from tests.data import uniform
from tests.sources import Source

SHAPE, CHUNKS = (60, 500), (7, 180)
QUESTIONS: dict[str, Callable[[Any], Any]] = {
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


def numbers(answer: Any) -> list[float]:
    """All numbers of an answer."""
    answer = answer.get() if hasattr(answer, "get") and hasattr(answer, "device") else answer
    if isinstance(answer, EmpiricalDistribution):
        return [float(number) for each in vars(answer).values() for number in np.ravel(each)]
    columns = answer.to_dict().values() if hasattr(answer, "to_dict") else [answer]
    flat = (np.hstack(each) if each.dtype == object else each for each in map(np.asarray, columns))
    return [float(number) for column in flat for number in np.ravel(column) if number is not None]


def wide(values: Any) -> Any:
    """The same numbers in a dtype that takes two loads."""
    return values.astype("f4" if values.dtype.kind == "f" else "i4")


def lazy(backend: Backend, source: Source, chunks: Any = CHUNKS) -> da.Array:
    return backend.mapped(source.lazy(chunks))


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u2", "f2"])
def test_one_load(backend: Backend, name: str, dtype: str) -> None:
    ask, source = QUESTIONS[name], Source(SHAPE, dtype)
    x = lazy(backend, source)
    answer = ask(x)
    assert not source.counts
    (found,) = dask.compute(answer, scheduler="sync")
    assert set(source.counts.values()) == {1}
    assert len(source.counts) == x.npartitions
    for chunks in ((60, 500), (1, 500), ((0, 59, 1), 333)):
        (again,) = dask.compute(ask(lazy(backend, source, chunks)), scheduler="sync")
        np.testing.assert_array_equal(numbers(again), numbers(found), str(chunks))


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u2", "f2"])
def test_the_same_as_in_two_loads(dtype: str) -> None:
    """Of numbers that are of a wider type; but for the type of a quantile, of float16."""
    values = Source(SHAPE, dtype).values((slice(None),) * 2)
    for name, ask in QUESTIONS.items():
        if dtype == "f2" and name != "order statistic":
            continue
        narrow, two = (ask(da.from_array(each, chunks=CHUNKS)) for each in (values, wide(values)))
        found, right = dask.compute(narrow, two, scheduler="sync")
        np.testing.assert_array_equal(numbers(found), numbers(right), name)
        np.testing.assert_array_equal(numbers(ask(values)), numbers(right), name)


def test_several_questions_share_the_load() -> None:
    source = Source(SHAPE, "u1")
    x = source.lazy(CHUNKS)
    dask.compute([ask(x) for ask in QUESTIONS.values()], scheduler="sync")
    assert set(source.counts.values()) == {1}
    boxes = describe_boxplot({"low": x[:30], "masked": da.where(x > 3, x, 0)})
    source.counts.clear()
    dask.compute(boxes, scheduler="sync")
    assert max(source.counts.values()) <= 2  # x[:30] has other chunks than the whole


@pytest.mark.usefixtures("nothing_kept")
def test_masks_and_weights() -> None:
    source = Source(SHAPE, "u2")
    x, values = source.lazy(CHUNKS), source.values((slice(None),) * 2)
    keeps = values % 3 == 0
    masked = quantile(x, [0.2, 0.9], where=da.from_array(keeps, chunks=CHUNKS))
    found = masked.compute(scheduler="sync")
    np.testing.assert_array_equal(found, np.quantile(values[keeps], [0.2, 0.9]))
    assert set(source.counts.values()) == {1}
    source.counts.clear()
    weights = da.ones(SHAPE, chunks=CHUNKS, dtype=int)
    quantile(x, 0.5, weights=weights, method="inverted_cdf").compute(scheduler="sync")
    assert set(source.counts.values()) == {1}


def test_the_plan_says_so() -> None:
    plan = explain(Source(SHAPE, "u1").lazy(CHUNKS))
    assert (plan.name, plan.loads) == ("counts", 1)
    assert plan.gathered_bytes == 27 * 256 * 9
    assert explain(Source(SHAPE, "i4").lazy(CHUNKS)).loads == 2
    unknown = Source(SHAPE, "u2").lazy(CHUNKS)
    assert explain(unknown[unknown > 3]).gathered_bytes == 32 * 65_536 * 10  # of one merge


@pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning")
def test_nothing_and_nothing_but_nan() -> None:
    assert np.isnan(median(da.zeros((0,), dtype="u1")).compute())
    nothing = da.full((40,), np.nan, dtype="f2", chunks=7)
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        assert np.isnan(nanquantile(nothing, 0.5).compute(scheduler="sync"))
    with pytest.raises(IndexError):
        quantile(da.zeros((0,), dtype="i2"), 0.5).compute()


LANES: dict[str, Callable[[Any], Any]] = {
    "median": lambda x: median(x, axis=0),
    "quantiles": lambda x: quantile(x, [0.02, 0.98], axis=0, method="lower", keepdims=True),
    "box": lambda x: describe_boxplot(x, axis=0),
    "mad": lambda x: mad(x, axis=0),
}


@pytest.mark.parametrize("name", LANES)
@pytest.mark.parametrize("dtype", ["u1", "i1"])
def test_long_lanes_take_one_load_of_a_chunk_at_a_time(
    backend: Backend, name: str, dtype: str
) -> None:
    ask, source = LANES[name], Source((60_000, 5), dtype)
    x, values = lazy(backend, source, (12_500, 3)), source.values((slice(None),) * 2)
    (found,) = dask.compute(ask(x), scheduler="sync")
    assert set(source.counts.values()) == {1}
    np.testing.assert_array_equal(numbers(found), numbers(ask(values)))
    plan = explain(x, axis=0)
    assert (plan.name, plan.loads, plan.task_bytes) == ("counts", 1, 12_500 * 3)


def test_boxes_and_deviations_of_long_lanes_with_masks() -> None:
    source, keeps = Source((60_000, 5), "u1"), uniform(300_000).reshape(60_000, 5) < 0.2
    keeps[:, 4] = False
    keeps[7, 4] = True
    x, values = source.lazy((12_500, 3)), source.whole()
    for ask in (mad, describe_boxplot):
        source.counts.clear()
        where = da.from_array(keeps, chunks=(20_000, 5))
        (found,) = dask.compute(ask(x, axis=0, where=where, nodata=3), scheduler="sync")
        assert set(source.counts.values()) == {1}
        wanted = ask(values, axis=0, where=keeps, nodata=3)
        np.testing.assert_array_equal(numbers(found), numbers(wanted))


def test_long_lanes_with_masks_and_nan() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(0, 50, (40_000, 4)).clip(-120, 120).astype("i1")
    keeps = rng.random(values.shape) < 0.4
    keeps[:, 3] = False
    x, where = (da.from_array(each, chunks=(12_000, 3)) for each in (values, keeps))
    found = quantile(x[:, :3], 0.3, axis=0, where=where[:, :3]).compute(scheduler="sync")
    lanes = [values[keeps[:, i], i] for i in range(3)]
    np.testing.assert_array_equal(found, [np.quantile(lane, 0.3) for lane in lanes])
    with pytest.warns(RuntimeWarning):
        assert np.isnan(nanquantile(x, 0.3, axis=0, where=where).compute(scheduler="sync")[3])
    floats = da.from_array(rng.normal(size=(9_000_000, 1)).astype("f2"), chunks=(4_500_000, 1))
    assert explain(floats, axis=0).name == "counts"
    missing = da.where(da.arange(9_000_000, chunks=4_500_000)[:, None] == 7, np.nan, floats)
    missing = missing.astype("f2")
    answer = quantile(missing, 0.5, axis=0, method="lower").compute()
    assert np.isnan(answer).all()
    # As float64, for NumPy 2.1 computes ranks in the dtype of the data, and 2^23 is no float16.
    right = np.nanquantile(missing.astype("f8").compute(), 0.5, axis=0, method="lower")
    np.testing.assert_array_equal(nanquantile(missing, 0.5, axis=0, method="lower"), right)


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
    found = ValueCounts(values[there].astype(np.uint16), counts[there], 0)
    upto = np.cumsum(found.counts)
    n = int(upto[-1])
    rule = Rule((0.05, 0.95), False, 1000, "inverted_cdf")
    box = answer_by_values(found, BoxQuestion(rule, False, np.dtype("u2")))
    q1, median_, q3, low, high = (
        found.values[np.searchsorted(upto, -(-n * percent // 100))]
        for percent in (25, 50, 75, 5, 95)
    )
    assert (box.q1, box.med, box.q3, box.n) == (q1, median_, q3, n)
    below, above = (
        np.sum(found.counts[side]) for side in (found.values < low, found.values > high)
    )
    assert (box.n_low, box.n_high) == (below, above)
    assert len(box.fliers) == 1000 * (int(below > 0) + int(above > 0))
    total = sum(int(v) * int(c) for v, c in zip(found.values, found.counts, strict=True))
    assert box.mean == float(Fraction(total, n))
