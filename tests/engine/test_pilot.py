"""Data in memory: a guess from a sample, proven by one read, with the guaranteed plan behind."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import describe_boxplot, median, quantile
from dask_gpuselect.engine import pilot, questions
from dask_gpuselect.engine.source import Source
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.quantiles import weighted
from tests.backends import CUPY, Backend, kernel_module, own_module
from tests.data import FLOATS, normal
from tests.features.test_weighted_boxes import assert_box, box_of
from tests.graphs import names_of
from tests.kernels.test_weighing import WEIGHTS
from tests.oracle import Weighed, check, weighted_of
from tests.spies import noted

N = 60_000
Q = np.array([0.0, 0.001, 0.25, 0.5, 0.75, 1.0])


def guessing(backend: Backend) -> list[ModuleType]:
    """The modules that guess brackets for arrays of a kind."""
    names = ["reference", *(["cuda"] if backend is CUPY else [])]
    return [own_module(name, "sampling") for name in names]


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy chunks as if they were on several devices: see `test_resident` for those on one."""
    monkeypatch.setattr(Source, "is_on_one_device", False)


@pytest.fixture
def small_pilots(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 500, worth it from the first element on."""
    monkeypatch.setattr(pilot, "PILOT_SIZE", 500)
    monkeypatch.setattr(pilot, "PILOT_WORTH", 1)
    for name in ("reference", "cpu", *(["cuda"] if backend is CUPY else [])):
        monkeypatch.setattr(kernel_module(name, "sampling"), "is_best_whole", lambda *_: False)
    if backend is CUPY:  # one launch answers arrays that are as small as these
        lanes = kernel_module("cuda", "lanes")
        monkeypatch.setattr(lanes, "answer_only_lane", lambda values, question: None)


@pytest.fixture
def misses(backend: Backend, small_pilots: None, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Guesses that gather what is above the sample, and so never hold; what became of each."""

    def guess(elements_at: Any, size: int, first: Any, last: Any) -> tuple[Brackets, float]:
        ends = np.unique(elements_at(np.array([0, size - 1])))
        return Brackets(ends, np.arange(len(ends) + 1) == len(ends)), 0.0

    def bracket(first: Any, last: Any, size: int) -> Any:
        return np.array([size - 2]), np.array([size])

    monkeypatch.setattr(questions, "guess_brackets", guess)
    for module in guessing(backend):
        monkeypatch.setattr(module, "guess_brackets", guess)
        if module.__name__.endswith("cuda.sampling"):
            monkeypatch.setattr(module, "pilot_bracket", bracket)
            monkeypatch.setattr(module, "_plan", module._plan.__wrapped__)  # remembers brackets
    return watched_guesses(monkeypatch)


def watched_guesses(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each guess from now on holds."""
    return noted(monkeypatch, pilot, "settled", lambda settled, *_, **__: settled is not None)


def plan(answer: da.Array) -> str:
    return "pilot" if any("-guess-" in name for name in names_of(answer)) else "two loads"


def forms(backend: Backend, values: Any) -> list[Any]:
    """In chunks in order, in sorted chunks of uneven sizes, and plain."""
    ordered = np.sort(values)
    return [
        backend.held(values, 20_000),
        backend.held(ordered, ((33_000, 0, 1, 26_999),)),
        backend.asarray(values),
    ]


@pytest.mark.parametrize("name", ["normal", "tied", "half tied", "outliers", "infinite"])
def test_a_miss_falls_back_to_the_guaranteed_plan(
    backend: Backend, name: str, misses: list[bool]
) -> None:
    values = FLOATS[name](N)
    for form in forms(backend, values):
        (answer,) = da.compute(quantile(form, Q, method="lower"), scheduler="sync")
        result = backend.to_numpy(answer)
        np.testing.assert_array_equal(result, np.quantile(values, Q, method="lower") + 0.0)
    assert misses == [False] * 3


def test_arrays_of_any_size_do_not_meet_in_one_place(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pilot gathers a share of all elements, so past a size there is none."""
    monkeypatch.setattr(pilot, "PILOT_MOST", 2 * pilot.PILOT_WORTH)
    values = np.zeros(2 * pilot.PILOT_WORTH + 1, np.int32)
    assert plan(median(backend.held(values[:-1], -1))) == "pilot"
    assert plan(median(backend.held(values, -1))) == "two loads"


# --- Weights --------------------------------------------------------------------------------------


@pytest.fixture
def weighted_pilots(
    small_pilots: None, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> list[bool]:
    """Whether each guess by exact sums of all weights has held."""
    monkeypatch.setattr(pilot, "PILOT_SIZE", 1000)
    monkeypatch.setattr(pilot, "NARROWING", 600)  # 300 leave half of 2,100, more than is narrowed
    monkeypatch.setattr(weighted, "FEW_CANDIDATES", 50)
    if backend is CUPY:
        monkeypatch.setattr(own_module("cuda", "weighing"), "LEAST_MEASURED", 0)
    return watched_guesses(monkeypatch)


def of_weights(backend: Backend, values: Any, weights: Any, q: Any, method: Any) -> Any:
    given = backend.asarray(values), q, backend.asarray(weights)
    return backend.to_numpy(quantile(given[0], q, weights=given[2], method=method))


@pytest.mark.parametrize("method", ["inverted_cdf", "averaged_inverted_cdf", "linear"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_guessed(
    name: str, method: str, backend: Backend, weighted_pilots: list[bool]
) -> None:
    values, weights = normal(6_000), WEIGHTS[name](6_000)
    elements = Weighed.of(values, weights)
    for q in (0.0, 0.001, 0.5, 0.9, 1.0):
        expected = weighted_of(elements, q, method, np.dtype("f8"))
        check(of_weights(backend, values, weights, q, method), expected)
    every = [each / 40 for each in range(41)]  # a device measures the sample for so many
    expected = [weighted_of(elements, q, method, np.dtype("f8")) for q in every]
    check(of_weights(backend, values, weights, every, method), np.array(expected))
    # Of "largest" weights, half are as good as 0: the brackets of a window may hold too many.
    missed = {"one heavy", "lognormal", "every magnitude", *["largest"][: method == "linear"]}
    # A device draws another sample, which may miss one of them.
    assert name in missed or sum(weighted_pilots) >= 5 - (backend is CUPY)


@pytest.mark.parametrize("weight", [-1, np.nan, np.inf, 0])
def test_weights_at_fault(weight: float, backend: Backend, weighted_pilots: list[bool]) -> None:
    weights = np.where(np.arange(6_000) == 2_000, weight, float(weight != 0))
    with pytest.raises(ValueError, match="non-negative" if weight < 0 else "NaN, inf or .* zero"):
        of_weights(backend, normal(6_000), weights, 0.5, "inverted_cdf")


N_WEIGHED = 20_000


@pytest.mark.parametrize("method", ["inverted_cdf", "averaged_inverted_cdf", "linear"])
@pytest.mark.parametrize("name", ["equal", "uniform", "counts", "one heavy", "float32"])
def test_weighted_boxes_are_guessed(
    name: str, method: str, backend: Backend, weighted_pilots: list[bool], monkeypatch: Any
) -> None:
    monkeypatch.setattr(pilot, "GUESSED", 1.0)  # small samples make wide brackets
    monkeypatch.setattr(pilot, "PILOT_SIZE", 5_000)
    monkeypatch.setattr(pilot, "NARROWING", 3_000)
    if backend is CUPY and name in {"equal", "uniform"}:  # others are measured
        monkeypatch.setattr(own_module("cuda", "weighing"), "MOST_MEASURED", 0)
    weights, data = WEIGHTS[name](N_WEIGHED), normal(N_WEIGHED)
    for max_fliers, values in ((20, data), (0, np.exp(3 * data)), (1000, np.rint(data))):
        how = {"max_fliers": max_fliers, "method": method}
        arrays = backend.asarray(values), backend.asarray(weights)
        (box,) = describe_boxplot(arrays[0], weights=arrays[1], **how)
        assert_box(box, box_of(values, weights, **how))
    assert len(weighted_pilots) == 3
    assert name == "one heavy" or all(weighted_pilots)
