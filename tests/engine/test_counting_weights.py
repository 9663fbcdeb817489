"""Weighted elements of one and two bytes take one load: the weights of each value are added up
exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import describe_boxplot, explain, nanquantile, quantile
from dask_gpuselect.engine import loads, plans
from dask_gpuselect.quantiles.weighted import WEIGHTED
from tests.data import uniform
from tests.sources import Source

pytestmark = pytest.mark.any_dask

SHAPE, CHUNKS = (60, 500), (7, 180)
N = 60 * 500
Q = [0, 0.013, 0.25, 0.5, 0.9, 1]


def weights_of(kind: str) -> NDArray[Any]:
    unit = uniform(N)[::-1]
    some: dict[str, NDArray[Any]] = {
        "counts": np.floor(unit * 4).astype("i2"),
        "floats": unit,
        "float32": unit.astype("f4"),
        "every magnitude": np.ldexp(0.5 + unit, np.floor(2000 * uniform(N)).astype(int) - 1000),
        "beyond 2**53": np.floor(unit * 2.0**61).astype("i8") * 4 + 1,
        "bools": unit < 0.7,
        "one heavy": np.where(np.arange(N) == 777, 1e30, unit),
    }
    return some[kind].reshape(SHAPE)


KINDS = ["counts", "floats", "float32", "every magnitude", "beyond 2**53", "bools", "one heavy"]
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


@pytest.fixture
def in_two_loads(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    def ask(call: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            for module in (loads, plans):
                patch.setattr(module, "takes_counts", lambda *_: False)
            return call()

    return ask


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "f2"])
def test_one_load(dtype: str, kind: str, in_two_loads: Callable[[Callable[[], Any]], Any]) -> None:
    """The answers of two loads, to the last bit, whatever the weights; and of an array in
    memory."""
    source, weights = Source(SHAPE, dtype), weights_of(kind)
    values, lazy = source.whole(), da.from_array(weights, chunks=(13, 500))
    for name, ask in QUESTIONS.items():
        source.counts.clear()
        (found,) = dask.compute(ask(source.lazy(CHUNKS), weights=lazy), scheduler="sync")
        assert set(source.counts.values()) == {1}, name
        (again,) = dask.compute(ask(source.lazy((60, 333)), weights=weights), scheduler="sync")
        assert_same(again, found)
        (two,) = in_two_loads(
            lambda ask=ask: dask.compute(ask(source.lazy(CHUNKS), weights=lazy), scheduler="sync")
        )
        assert_same(found, two)
        assert_same(found, in_two_loads(lambda ask=ask: ask(values, weights=weights)))


@pytest.mark.parametrize("method", WEIGHTED)
def test_counts_as_weights_repeat(method: str) -> None:
    source, counts = Source(SHAPE, "u1"), weights_of("counts")
    x, lazy = source.lazy(CHUNKS), da.from_array(counts, chunks=CHUNKS)
    repeated = np.repeat(source.whole().ravel(), counts.ravel())
    found = quantile(x, Q, method=method, weights=lazy).compute(scheduler="sync")
    if method != "linear":  # Kish's number of elements is another
        np.testing.assert_array_equal(found, np.quantile(repeated, Q, method=method))
    box = describe_boxplot(x, method="inverted_cdf", weights=lazy).compute(scheduler="sync")[0]
    wanted = describe_boxplot(repeated, method="inverted_cdf")[0]
    for name in ("n", "min", "q1", "med", "q3", "max", "mean", "std", "n_low", "n_high"):
        assert getattr(box, name) == getattr(wanted, name), name
    if method == "inverted_cdf":
        right = np.quantile(source.whole().ravel(), Q, method=method, weights=counts.ravel())
        np.testing.assert_array_equal(found, right)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["floats", "every magnitude"])
def test_float16_with_nan_infinities_and_zeros_of_both_signs(kind: str) -> None:
    """As the same numbers of a wider type, which take two loads."""

    def odd(values: Any) -> Any:
        values = np.where(values < 0.05, np.float16("nan"), values)
        values = np.where(values > 0.99, np.float16("inf"), values)
        values = np.where(abs(values - 0.3) < 0.01, np.float16("-inf"), values)
        return np.where(abs(values - 0.5) < 0.1, np.float16(-0.0), values - np.float16(0.3))

    source, weights = Source(SHAPE, "f2"), da.from_array(weights_of(kind), chunks=(13, 500))
    x = source.lazy(CHUNKS).map_blocks(odd, dtype="f2")
    for method in ("inverted_cdf", "linear"):  # of which one takes no arithmetic
        how: dict[str, Any] = {"method": method, "weights": weights}
        source.counts.clear()
        asked = nanquantile(x, Q, **how), describe_boxplot(x, **how)
        found, box = dask.compute(*asked, scheduler="sync")
        assert set(source.counts.values()) == {1}
        wide = x.astype("f4")
        assert explain(wide, weights=weights).loads == 2
        wanted = nanquantile(wide, Q, **how).compute(scheduler="sync")
        np.testing.assert_array_equal(found, wanted.astype(found.dtype))
        right = describe_boxplot(wide, **how).compute(scheduler="sync")
        np.testing.assert_equal(box[0].to_dict(), right[0].to_dict())


def test_masks_and_bools() -> None:
    source, weights = Source(SHAPE, "u1"), weights_of("floats")
    values, keeps = source.whole(), uniform(N).reshape(SHAPE) < 0.3
    how: dict[str, Any] = {"where": keeps, "nodata": [3, 50]}
    x, lazy = source.lazy(CHUNKS), da.from_array(weights, chunks=CHUNKS)
    for name, ask in QUESTIONS.items():
        found = ask(x, weights=lazy, **how).compute(scheduler="sync")
        some = keeps & ~np.isin(values, [3, 50])
        if name in WEIGHTED:
            assert_same(found, ask(values[some].astype("i4"), weights=weights[some]))
        assert_same(found, ask(values, weights=weights, **how))
    found = quantile(x > 40, Q, method="inverted_cdf", weights=lazy).compute(scheduler="sync")
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(
        found, quantile((values > 40).astype("i4"), Q, method="inverted_cdf", weights=weights)
    )


def test_weights_that_are_none() -> None:
    x = Source(SHAPE, "u1").lazy(CHUNKS)
    for bad, message in ((-1.0, "non-negative"), (np.nan, "NaN, inf or were all zero")):
        weights = da.from_array(
            np.where(np.arange(N) == 99, bad, 1.0).reshape(SHAPE), chunks=CHUNKS
        )
        with pytest.raises(ValueError, match=message):
            quantile(x, 0.5, method="inverted_cdf", weights=weights).compute(scheduler="sync")
    nothing = da.zeros(SHAPE, chunks=CHUNKS)
    for ask in QUESTIONS.values():
        with pytest.raises(ValueError, match="all zero"):
            ask(x, weights=nothing).compute(scheduler="sync")
    with pytest.raises(IndexError):
        quantile(x[:0], 0.5, method="inverted_cdf", weights=nothing[:0]).compute(scheduler="sync")
    where = np.zeros(SHAPE, np.bool_)
    how: dict[str, Any] = {"weights": da.ones(SHAPE, chunks=CHUNKS), "where": where}
    assert describe_boxplot(x, method="linear", **how).compute(scheduler="sync")[0].n == 0
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        assert np.isnan(nanquantile(x, 0.5, method="linear", **how).compute(scheduler="sync"))


def test_several_arrays_and_questions_share_the_load() -> None:
    source, weights = Source(SHAPE, "u1"), da.from_array(weights_of("floats"), chunks=CHUNKS)
    x = source.lazy(CHUNKS)
    asked = [ask(x, weights=weights) for ask in QUESTIONS.values()]
    for scheduler in ("sync", "threads"):
        source.counts.clear()
        found = dask.compute(asked, scheduler=scheduler)[0]
        assert set(source.counts.values()) == {1}
        for one, ask in zip(found, QUESTIONS.values(), strict=True):
            assert_same(one, ask(source.whole(), weights=weights.compute()))


@pytest.mark.legacy
def test_box_plots_of_several_arrays_share_the_load() -> None:
    """Expressions of dask that depend on each other are read apart."""
    source, weights = Source(SHAPE, "u1"), da.from_array(weights_of("floats"), chunks=CHUNKS)
    x = source.lazy(CHUNKS)
    boxes = describe_boxplot({"x": x, "more": x + 1}, weights=weights, method="linear")
    boxes.compute(scheduler="sync")
    assert set(source.counts.values()) == {1}


def test_the_plan_says_so() -> None:
    weights = da.ones(SHAPE, chunks=CHUNKS)
    for dtype, n in (("u1", 1), ("i1", 1), ("u2", 1), ("f2", 1), ("i4", 2)):
        plan = explain(Source(SHAPE, dtype).lazy(CHUNKS), weights=weights)
        assert plan.loads == n
        assert (plan.name == "counts") == (n == 1)
