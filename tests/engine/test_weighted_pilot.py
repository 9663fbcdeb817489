"""Weighted quantiles of data in memory: a guess from a sample, proven by exact sums of all weights,
with the guaranteed plan behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import nanquantile, quantile
from dask_gpuselect.engine import pilot
from dask_gpuselect.quantiles import weighted
from tests.backends import Backend
from tests.data import make, normal, uniform
from tests.kernels.test_weighing import WEIGHTS
from tests.oracle import check
from tests.oracle import weighted as weighted_by_fractions

N = 6_000
METHODS = ("inverted_cdf", "averaged_inverted_cdf")
QUANTILES = (0.0, 0.001, 0.5, 0.9, 1.0)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Small samples, worth it for few elements; whether each guess has held."""
    monkeypatch.setattr(pilot, "PILOT_SIZE", 1000)
    monkeypatch.setattr(pilot, "PILOT_WORTH", 1)
    monkeypatch.setattr(pilot, "NARROWING", 300)
    monkeypatch.setattr(weighted, "FEW_CANDIDATES", 50)
    told: list[bool] = []
    settle = pilot.settled

    def watched(*given: Any) -> Any:
        found = settle(*given)
        told.append(found is not None)
        return found

    monkeypatch.setattr(pilot, "settled", watched)
    return told


def ask(
    backend: Backend, values: NDArray[Any], weights: NDArray[Any], q: Any, method: Any, **how: Any
) -> Any:
    given = backend.asarray(values), q, backend.asarray(weights)
    return backend.to_numpy(quantile(given[0], q, weights=given[2], method=method, **how))


def check_answers(
    backend: Backend, values: NDArray[Any], weights: NDArray[Any], method: str
) -> None:
    for q in QUANTILES:
        found = ask(backend, values, weights, q, method)
        expected = weighted_by_fractions(values, weights, q, method, np.dtype(np.float64))
        dtype = values.dtype if values.dtype.kind == "f" else found.dtype
        check(np.asarray(found, dtype), np.asarray(expected, dtype))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", WEIGHTS)
def test_any_weights(name: str, method: str, backend: Backend, settled: list[bool]) -> None:
    check_answers(backend, normal(N), WEIGHTS[name](N), method)
    assert len(settled) == len(QUANTILES)
    if name not in ("one heavy", "lognormal", "every magnitude"):
        # A device draws another sample, which may miss one of them.
        assert sum(settled) >= len(settled) - (backend.name != "numpy")


def test_a_guess_that_leaves_too_much_is_no_guess(
    settled: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of elements that weigh next to nothing a sample cannot tell where the quantiles are."""
    monkeypatch.setattr(pilot, "NARROWING", 30)
    values = normal(N)
    weights = np.where(np.abs(values) < 0.7, 1e-6, 1.0)
    found = quantile(values, 0.5, weights=weights, method="inverted_cdf")
    expected = weighted_by_fractions(values, weights, 0.5, "inverted_cdf", np.dtype(np.float64))
    assert found == expected
    assert settled == [False]


@pytest.mark.parametrize("data", ["normal", "all equal", "few values", "sorted"])
def test_any_data(data: str, backend: Backend, settled: list[bool]) -> None:
    values = {
        "normal": normal(N).astype(np.float32),
        "all equal": np.full(N, 3.0),
        "few values": np.floor(4 * uniform(N)).astype(np.int32),
        "sorted": np.sort(normal(N)),
    }[data]
    check_answers(backend, values, uniform(N).astype(np.float32), "inverted_cdf")
    assert all(settled)


def test_one_heavy_element_that_no_sample_has(backend: Backend, settled: list[bool]) -> None:
    values, weights = normal(N), np.ones(N)
    drawn = set(make_sample_places(N))
    place = next(i for i in np.argsort(values)[-100:].tolist() if i not in drawn)
    weights[place] = 10.0 * N
    assert ask(backend, values, weights, 0.5, "inverted_cdf") == values[place]
    if backend.name == "numpy":
        assert settled == [False]


def make_sample_places(n: int) -> list[int]:
    """Where the reference looks."""
    starts = np.arange(1001) * n // 1000
    places: list[int] = np.random.default_rng(0).integers(starts[:-1], starts[1:]).tolist()
    return places


def test_zeros_missing_elements_and_a_mask(backend: Backend, settled: list[bool]) -> None:
    values, weights = make("some nan", "f8", N).copy(), uniform(N).copy()
    weights[::3] = 0
    assert np.isnan(ask(backend, values, weights, 0.5, "inverted_cdf"))
    takes = ~np.isnan(values)
    expected = weighted_by_fractions(
        values[takes], weights[takes], 0.5, "inverted_cdf", np.dtype(np.float64)
    )
    given = backend.asarray(values), 0.5
    w, keeps = backend.asarray(weights), backend.asarray(takes)
    found = nanquantile(*given, weights=w, method="inverted_cdf")
    assert backend.to_numpy(found) == expected
    weights[~takes] = -1  # of what is left out
    w = backend.asarray(weights)
    found = quantile(*given, weights=w, where=keeps, method="inverted_cdf")
    assert backend.to_numpy(found) == expected
    # A device keeps candidates in any order, so the sample among them is another one each time. Of
    # so few, one in six leaves too many.
    assert settled == [True] * 3 if backend.name == "numpy" else len(settled) == 3


@pytest.mark.parametrize(
    ("weight", "message"),
    [(-1.0, "non-negative"), (-np.inf, "non-negative"), (np.nan, "NaN"), (np.inf, "inf")],
)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_weights_at_fault(
    weight: float, message: str, dtype: str, backend: Backend, settled: list[bool]
) -> None:
    weights = np.ones(N, dtype)
    weights[N // 3] = weight
    with pytest.raises(ValueError, match=message):
        ask(backend, normal(N), weights, 0.5, "inverted_cdf")
    with pytest.raises(ValueError, match="all zero"):
        ask(backend, normal(N), np.zeros(N, dtype), 0.5, "inverted_cdf")


def test_integers_at_fault(backend: Backend, settled: list[bool]) -> None:
    weights = np.ones(N, np.int64)
    weights[N // 3] = -1
    with pytest.raises(ValueError, match="non-negative"):
        ask(backend, normal(N), weights, 0.5, "inverted_cdf")
    with pytest.raises(ValueError, match="below 2"):
        ask(backend, normal(N), weights.astype(np.uint64), 0.5, "inverted_cdf")
