"""Weighted quantiles of all elements: exact, and the same however the elements are cut up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import ChunksChangedError, explain, nanquantile, percentile, quantile
from dask_gpuselect.quantiles.weighted import WEIGHTED, WeightedQuantiles
from tests.backends import Backend
from tests.data import INTEGER_DTYPES, make, normal, uniform
from tests.kernels.test_weighing import WEIGHTS
from tests.oracle import check, weighted
from tests.sources import Source, changing

QUANTILES = (0.0, 0.001, 0.1, 0.25, 1 / 3, 0.5, 0.9, 1.0)
DISCRETE = "inverted_cdf"


def asked(
    a: Any, q: Any, weights: Any, method: str = DISCRETE, *, skips_missing: bool = False, **how: Any
) -> Any:
    function = nanquantile if skips_missing else quantile
    return function(a, q, method=method, weights=weights, **how)


def expected(values: Any, q: Any, weights: Any, method: str, dtype: Any = None) -> Any:
    """By fractions, of the type that the answer has."""
    values, weights = np.asarray(values).ravel(), np.asarray(weights).ravel()
    dtype = np.dtype(np.float64 if dtype is None else dtype)
    found = [weighted(values, weights, each, method, dtype) for each in np.atleast_1d(q).tolist()]
    return np.array(found, dtype)


# --- Answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", WEIGHTED)
@pytest.mark.parametrize("name", WEIGHTS)
def test_answers_are_exact(name: str, method: str, backend: Backend) -> None:
    values, weights = normal(1200).reshape(30, 40), WEIGHTS[name](1200).reshape(30, 40)
    x, w = backend.lazy(values, (7, 23)), backend.lazy(weights, (11, 40))
    found = backend.to_numpy(asked(x, QUANTILES, w, method).compute())
    check(found, expected(values, QUANTILES, weights, method))
    # The same at once.
    given = backend.asarray(values), QUANTILES, backend.asarray(weights)
    check(backend.to_numpy(asked(*given, method)), found)


@pytest.mark.few(2)
@pytest.mark.parametrize("method", WEIGHTED)
@pytest.mark.parametrize("name", ["tenths", "lognormal", "every magnitude", "one heavy"])
def test_ten_chunkings_have_one_answer(name: str, method: str) -> None:
    values, weights = normal(6000), WEIGHTS[name](6000)
    answers = set()
    for chunks in (1000, 999, 6000, 251, (1, 5999), (0, 6000), 3000, 4001, 77, (2000, 0, 4000)):
        sizes = chunks if isinstance(chunks, int) else (chunks,)
        x = da.from_array(values, chunks=sizes).map_blocks(np.copy)
        answers.add(asked(x, QUANTILES, weights, method).compute().tobytes())
    order = np.argsort(weights)
    shuffled = da.from_array(values[order], chunks=700)
    answers.add(asked(shuffled, QUANTILES, weights[order], method).compute().tobytes())
    assert len(answers) == 1


@pytest.mark.few(1)
@pytest.mark.parametrize("method", ["inverted_cdf", "averaged_inverted_cdf"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "?", "M8[s]", *INTEGER_DTYPES])
def test_integer_weights_repeat_elements(dtype: str, method: Any) -> None:
    if method != DISCRETE and dtype in ("?", "M8[s]"):
        return
    values = make(
        {"f": "normal", "?": "bools"}.get(np.dtype(dtype).kind, "whole range"), dtype, 200
    )
    counts = np.floor(uniform(200) * 4).astype("u1")
    counts[0] = 100 - counts[1:].sum() % 100  # so that percentiles are reached exactly
    repeated = np.repeat(values, counts)
    q = np.arange(101) / 100
    found = asked(da.from_array(values, chunks=37), q, counts, method).compute()
    theirs = np.quantile(repeated, q, method=method)
    if method != DISCRETE and dtype in ("i8", "u8"):  # NumPy's differences overflow
        theirs = expected(values, q, counts, method)
    check(found, theirs.astype(found.dtype))


def test_integers_near_2_to_the_63_are_told_apart() -> None:
    values = np.array([2**63 - 3, 2**63 - 2, 2**63 - 1])
    weights = np.array([2**53 + 1, 2**53, 1])
    found = asked(da.from_array(values, chunks=1), (0.25, 0.5, 0.75, 1.0), weights).compute()
    assert found.tolist() == [2**63 - 3, 2**63 - 3, 2**63 - 2, 2**63 - 1]


def test_equal_weights_are_as_none() -> None:
    values = normal(1000)
    q = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
    for method in WEIGHTED:
        found = asked(da.from_array(values, chunks=130), q, np.full(1000, 0.125), method)
        theirs = np.quantile(values, q, method=method)
        np.testing.assert_allclose(found.compute(), theirs, rtol=1e-14)
        if method != "linear":
            check(found.compute(), theirs)


def test_what_a_running_sum_of_floats_decides_otherwise() -> None:
    values, weights = np.arange(1.0, 7), np.full(6, 0.3)
    assert np.quantile(values, 0.5, weights=weights, method="inverted_cdf") == 4
    assert asked(da.from_array(values, chunks=4), 0.5, weights).compute() == 3
    assert asked(values, 0.5, weights, "averaged_inverted_cdf") == 3.5
    # The largest element has a weight, however small.
    weights = np.array([1.0, *np.full(5, 1e-17)])
    assert np.quantile(values, 1.0, weights=weights, method="inverted_cdf") == 1
    assert asked(da.from_array(values, chunks=4), 1.0, weights).compute() == 6


@pytest.mark.parametrize("method", WEIGHTED)
def test_infinite_elements(method: str) -> None:
    values = np.array([-np.inf, -np.inf, 1, 2, np.inf, np.inf, np.inf, -0.0])
    weights = np.array([1.0, 1, 1, 1, 2, 2, 1, 3])
    with np.errstate(all="ignore"):
        theirs = expected(values, QUANTILES, weights, method)
    found = asked(da.from_array(values, chunks=3), QUANTILES, weights, method).compute()
    check(found, theirs)
    assert not np.signbit(found[found == 0]).any()


@pytest.mark.parametrize("dtype", ["u1", "?", "f4", "f2", "i8"])
@pytest.mark.parametrize("method", WEIGHTED)
def test_types_of_answers(method: str, dtype: str) -> None:
    values = make({"f": "normal", "?": "bools"}.get(np.dtype(dtype).kind, "few"), dtype, 300)
    weights = uniform(300)
    if dtype == "?" and method != DISCRETE:
        with pytest.raises(TypeError, match="bools are never interpolated"):
            asked(values, 0.5, weights, method)
        return
    for q in (0.5, (0.25, 0.5)):
        found = asked(da.from_array(values, chunks=70), q, weights, method).compute()
        wanted = dtype if method == DISCRETE else np.quantile(values, q, method=method).dtype
        theirs = expected(values, q, weights, method, wanted)
        check(found, theirs if np.ndim(q) else theirs[0])


def test_dates() -> None:
    values = np.array(["2020-01-05", "2020-01-01", "NaT", "2020-01-03"], "M8[D]")
    found = asked(da.from_array(values, chunks=2), 0.5, np.array([1.0, 5, 0, 1]))
    assert found.compute() == np.datetime64("2020-01-01")
    found = asked(values, 0.5, np.array([1.0, 5, 2, 1]))
    assert np.isnat(found)
    pair = np.array([0, 9], "m8[s]")
    found = asked(da.from_array(pair, chunks=1), 0.5, np.ones(2), "averaged_inverted_cdf")
    assert found.compute() == np.quantile(pair, 0.5, method="averaged_inverted_cdf")


# --- What takes no part ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", WEIGHTED)
def test_what_weighs_nothing_or_is_left_out_takes_no_part(method: str) -> None:
    values, weights = normal(900), uniform(900)
    weights[::4] = 0
    values[::8] = np.nan  # of no weight
    keeps = uniform(900) < 0.7
    values[~keeps] = 1e9
    weights[~keeps] = np.nan
    x = da.from_array(values, chunks=200)
    found = asked(x, QUANTILES, weights, method, where=keeps).compute()
    some = keeps & (weights > 0)
    check(found, expected(values[some], QUANTILES, weights[some], method))


def test_missing_elements() -> None:
    values, weights = make("some nan", "f8", 500), uniform(500)
    x = da.from_array(values, chunks=120)
    assert np.isnan(asked(x, 0.5, weights).compute())
    valid = ~np.isnan(values)
    found = asked(x, (0.2, 0.5), weights, "linear", skips_missing=True).compute()
    check(found, expected(values[valid], (0.2, 0.5), weights[valid], "linear"))


def test_nothing_but_missing_elements() -> None:
    x = da.from_array(np.full(6, np.nan), chunks=4)
    with pytest.warns(RuntimeWarning, match="All-NaN slice encountered"):
        assert np.isnan(asked(x, 0.5, np.ones(6), skips_missing=True).compute())
    assert np.isnan(asked(x, 0.5, np.ones(6)).compute())


def test_all_left_out() -> None:
    x = da.from_array(np.arange(6.0), chunks=4)
    with pytest.warns(RuntimeWarning, match="All-NaN slice encountered"):
        assert np.isnan(asked(x, 0.5, np.ones(6), where=np.zeros(6, bool)).compute())
    integers = da.arange(6, chunks=4)
    with pytest.raises(IndexError, match="every element is left out"):
        asked(integers, 0.5, np.ones(6), where=np.zeros(6, bool)).compute()


def test_an_empty_array() -> None:
    x = da.from_array(np.empty(0), chunks=1)
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        assert np.isnan(asked(x, 0.5, np.empty(0), skips_missing=True).compute())


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-1.0, "Weights must be non-negative."),
        (np.nan, "Weights included NaN, inf or were all zero."),
        (np.inf, "Weights included NaN, inf or were all zero."),
    ],
)
def test_weights_that_are_none(weight: float, message: str) -> None:
    weights = np.ones(10)
    weights[7] = weight
    found = asked(da.arange(10.0, chunks=3), 0.5, weights)
    with pytest.raises(ValueError, match=message):
        found.compute()


@pytest.mark.parametrize("method", WEIGHTED)
def test_weights_that_are_all_zero(method: str) -> None:
    for values in (np.arange(10.0), np.full(10, np.nan)):
        found = asked(da.from_array(values, chunks=3), 0.5, np.zeros(10), method)
        with pytest.raises(ValueError, match="were all zero"):
            found.compute()
        with pytest.raises(ValueError, match="were all zero"):
            asked(values, 0.5, np.zeros(10), method)
    # One that weighs something is enough.
    weights = np.arange(10) == 4
    assert asked(da.arange(10.0, chunks=3), 0.5, weights, method).compute() == 4


@pytest.mark.parametrize("method", ["hazen", "lower", "none at all"])
def test_methods_without_weights(method: str) -> None:
    message = "Only methods inverted_cdf, averaged_inverted_cdf, linear support weights. Got: "
    with pytest.raises(ValueError, match=message + method):
        asked(da.arange(5.0, chunks=2), 0.5, np.ones(5), method)


def test_percentiles() -> None:
    values, weights = normal(500), uniform(500)
    found = percentile(da.from_array(values, chunks=90), [10, 99], method="linear", weights=weights)
    check(found.compute(), expected(values, (0.1, 0.99), weights, "linear"))


def test_no_quantiles() -> None:
    for method in WEIGHTED:
        assert asked(da.arange(5.0, chunks=2), (), np.ones(5), method).compute().shape == (0,)


# --- Loads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", WEIGHTED)
def test_two_loads_of_data_and_weights(method: str) -> None:
    source, weights = Source((4000,)), Source((4000,))
    found = asked(source.lazy(500), (0.2, 0.5), weights.lazy(700), method)
    assert not source.loads
    answer = found.compute()
    for each in (source, weights):
        assert max(each.loads.values()) <= 2
    check(answer, expected(source.whole(), (0.2, 0.5), weights.whole(), method))


def test_weights_of_one_load_of_the_data() -> None:
    source = Source((4000,))
    x = source.lazy(500)
    answer = asked(x, 0.5, x * x, "linear").compute()
    assert max(source.loads.values()) <= 2
    values = source.whole()
    assert answer == expected(values, 0.5, values * values, "linear")[0]


def change(kind: str) -> Callable[[NDArray[Any], int], NDArray[Any]]:
    return {
        "heavier": lambda values, load: np.where(values < 0.3, values * load**8, values),
        "fewer": lambda values, load: values[load - 1 :],
    }[kind]


@pytest.mark.parametrize("kind", ["heavier", "fewer"])
def test_a_chunk_that_changes_is_noticed(kind: str, tmp_path: Path) -> None:
    x = changing(change(kind), directory=tmp_path)
    found = asked(x, 0.5, x, "linear")
    with pytest.raises(ChunksChangedError):
        found.compute(scheduler="sync")


@pytest.mark.usefixtures("nothing_kept")
def test_questions_are_deterministic_and_frozen() -> None:
    dtype = np.dtype(np.float64)
    one, same = (WeightedQuantiles((0.5,), "linear", False, dtype, dtype) for _ in range(2))
    other = WeightedQuantiles((0.5,), "inverted_cdf", False, dtype, dtype)
    assert one == same
    assert tokenize(one) == tokenize(same) != tokenize(other)
    x, w = da.arange(100.0, chunks=9), da.ones(100, chunks=9)
    first, second = asked(x, 0.5, w), asked(x, 0.5, w)
    assert first.name == second.name
    # Cuts do not depend on what is asked.
    keys = [set(dict(asked(x, 0.5, w, method).dask)) for method in WEIGHTED]
    shared = [key for key in set.intersection(*keys) if "quantile-cuts" in str(key)]
    assert len(shared) == x.npartitions


def test_any_scheduler_gives_the_same(cluster_here: Any) -> None:
    values, weights = normal(3000), WEIGHTS["lognormal"](3000)
    found = asked(da.from_array(values, chunks=500).map_blocks(np.copy), 0.3, weights, "linear")
    answers = {found.compute(), found.compute(scheduler="sync"), found.compute(scheduler="threads")}
    assert len(answers) == 1


def test_what_is_told_is_what_comes_to_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that `explain` gives bound the cuts, and are no more than three times theirs."""
    held = []
    bracket = WeightedQuantiles.bracket

    def noted(self: WeightedQuantiles, cuts: Any) -> Any:
        columns = [getattr(cuts, name) for name in cuts.column_names()]
        held.append(sum(each.nbytes for each in columns if len(each) == len(cuts.pivots)))
        return bracket(self, cuts)

    monkeypatch.setattr(WeightedQuantiles, "bracket", noted)
    for name in ("equal", "lognormal"):
        x = da.from_array(normal(40_000), chunks=4000)
        w = da.from_array(WEIGHTS[name](40_000), chunks=4000)
        told = explain(x, [0.5], weights=w).gathered_bytes
        asked(x, [0.5], w).compute(scheduler="sync")
        assert held[-1] <= told <= 3 * held[-1]
