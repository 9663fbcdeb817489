"""Weighted quantiles of data in memory: a guess from a sample, proven by exact sums of all weights,
with the guaranteed plan behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import quantile
from dask_gpuselect.engine import pilot
from dask_gpuselect.quantiles import weighted
from tests.backends import Backend
from tests.data import normal
from tests.kernels.test_weighing import WEIGHTS
from tests.oracle import Weighed, check, weighted_of

N = 6_000
METHODS = ("inverted_cdf", "averaged_inverted_cdf", "linear")
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
    elements = Weighed.of(values, weights)
    for q in QUANTILES:
        found = ask(backend, values, weights, q, method)
        expected = weighted_of(elements, q, method, np.dtype(np.float64))
        dtype = values.dtype if values.dtype.kind == "f" else found.dtype
        check(np.asarray(found, dtype), np.asarray(expected, dtype))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", WEIGHTS)
def test_any_weights(name: str, method: str, backend: Backend, settled: list[bool]) -> None:
    check_answers(backend, normal(N), WEIGHTS[name](N), method)
    assert len(settled) == len(QUANTILES)
    # Of "largest" weights, half are as good as 0: the brackets of a window may hold too many.
    missed = {"one heavy", "lognormal", "every magnitude"}
    missed |= {"largest"} if method == "linear" else set()
    if name not in missed:
        # A device draws another sample, which may miss one of them.
        assert sum(settled) >= len(settled) - (backend.name != "numpy")


@pytest.mark.parametrize(
    ("weight", "message"),
    [(-1, "non-negative"), (-np.inf, "non-negative"), (np.nan, "NaN"), (np.inf, "inf")],
)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_weights_at_fault(
    weight: float, message: str, dtype: str, backend: Backend, settled: list[bool]
) -> None:
    if dtype == "i8":  # -1, or what is past those of unsigned integers
        past = 2**63, "below 2", "u8"
        weight, message, dtype = (weight, message, dtype) if weight == -1 else past
    weights = np.ones(N, dtype)
    weights[N // 3] = weight
    with pytest.raises(ValueError, match=message):
        ask(backend, normal(N), weights, 0.5, "inverted_cdf")
    with pytest.raises(ValueError, match="all zero"):
        ask(backend, normal(N), np.zeros(N, dtype), 0.5, "inverted_cdf")
