"""Data in memory: a guess from a sample, proven by one read, with the guaranteed plan behind."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import median, nanquantile, quantile
from dask_gpuselect.engine import pilot, questions
from dask_gpuselect.engine.source import Source
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError, Tally
from dask_gpuselect.maths.envelope import guess_brackets
from dask_gpuselect.maths.finish import order_statistics
from tests.backends import CUPY, NUMPY, Backend, kernel_module, own_module, param
from tests.data import FLOATS, MISSING, normal
from tests.graphs import names_of

N = 60_000
Q = np.array([0.0, 0.001, 0.25, 0.5, 0.75, 1.0])


def kernel_modules(backend: Backend, purpose: str) -> list[Any]:
    """The kernels for arrays of a kind, and the reference."""
    names = ["reference", "cpu", *(["cuda"] if backend is CUPY else [])]
    return [kernel_module(name, purpose) for name in names]


def guessing(backend: Backend) -> list[ModuleType]:
    """The modules that guess brackets for arrays of a kind."""
    names = ["reference", *(["cuda"] if backend is CUPY else [])]
    return [own_module(name, "sampling") for name in names]


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy chunks as if they were on several devices: see `test_held` for those on one."""
    monkeypatch.setattr(Source, "is_on_one_device", False)


@pytest.fixture
def small_pilots(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 500, worth it from the first element on."""
    monkeypatch.setattr(pilot, "PILOT_SIZE", 500)
    monkeypatch.setattr(pilot, "PILOT_WORTH", 1)
    for module in kernel_modules(backend, "sampling"):
        monkeypatch.setattr(module, "is_best_whole", lambda *_: False)
    if backend is CUPY:  # one launch answers arrays that are as small as these
        lanes = kernel_module("cuda", "lanes")
        monkeypatch.setattr(lanes, "answer_only_lane", lambda values, question: None)


@pytest.fixture
def misses(backend: Backend, small_pilots: None, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Guesses that gather what is above the sample, and so never hold; what became of each."""

    def guess(look: Any, size: int, first: Any, last: Any) -> tuple[Brackets, float]:
        ends = np.unique(look(np.array([0, size - 1])))
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
    outcomes: list[bool] = []
    settle = pilot.settled

    def watched(*args: Any, **kwargs: Any) -> Any:
        settled = settle(*args, **kwargs)
        outcomes.append(settled is not None)
        return settled

    monkeypatch.setattr(pilot, "settled", watched)
    return outcomes


def holds(brackets: Brackets, tally: Tally, ranks: Any) -> bool:
    """Whether the counts prove that the elements of these ranks are ends or candidates."""
    try:
        order_statistics(brackets, tally, ranks)
    except ChunksChangedError:
        return False
    return True


def plan(answer: da.Array) -> str:
    return "pilot" if any("-guess-" in name for name in names_of(answer)) else "two loads"


def compute(backend: Backend, answer: Any) -> Any:
    computed = answer.compute(scheduler="sync") if isinstance(answer, da.Array) else answer
    return backend.to_numpy(computed)


def forms(backend: Backend, values: Any) -> list[Any]:
    """In chunks in order, in sorted chunks of uneven sizes, and plain."""
    ordered = np.sort(values)
    return [
        backend.held(values, 20_000),
        backend.held(ordered, ((33_000, 0, 1, 26_999),)),
        backend.asarray(values),
    ]


@pytest.mark.usefixtures("small_pilots")
def test_nan_propagates(backend: Backend) -> None:
    values = np.where(np.arange(N) == 777, np.nan, normal(N))
    for form in forms(backend, values)[::2]:
        assert np.isnan(compute(backend, quantile(form, Q))).all()


@pytest.mark.parametrize("name", ["normal", "tied", "half tied", "outliers", "infinite"])
def test_a_miss_falls_back_to_the_guaranteed_plan(
    backend: Backend, name: str, misses: list[bool]
) -> None:
    values = FLOATS[name](N)
    for form in forms(backend, values):
        found = compute(backend, quantile(form, Q, method="lower"))
        np.testing.assert_array_equal(found, np.quantile(values, Q, method="lower") + 0.0)
    assert misses == [False] * 3


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1"])
@pytest.mark.parametrize("n", [2**22, 2**22 + 1, 20_000_000])
def test_plain_arrays_of_every_plan(dtype: str, n: int) -> None:
    """Sorted as a whole, sampled, and, for many q, by the counts of pivots."""
    values = (normal(n) * 50).astype(dtype)
    a = CUPY.asarray(values)
    ordered = np.sort(values)
    for q in (np.array([0.5]), np.array([0.0, 0.3, 1.0]), np.linspace(0, 1, 101)):
        found = CUPY.to_numpy(quantile(a, q, method="lower"))
        expected = ordered[np.floor((n - 1) * q).astype(np.int64)]  # as NumPy's, which partitions
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(CUPY.to_numpy(a), values)


def test_arrays_of_any_size_do_not_meet_in_one_place(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pilot gathers a share of all elements, so past a size there is none."""
    monkeypatch.setattr(pilot, "PILOT_MOST", 2 * pilot.PILOT_WORTH)
    values = np.zeros(2 * pilot.PILOT_WORTH + 1, np.int32)
    assert plan(median(backend.held(values[:-1], -1))) == "pilot"
    assert plan(median(backend.held(values, -1))) == "two loads"


PILOTED = [
    ("normal", "f8"),
    ("normal", "f4"),
    ("denormal float32", "f4"),
    ("some nan", "f8"),
    ("all nan", "f4"),
    ("tied", "f4"),
    ("half tied", "f8"),
    ("constant", "f8"),
    ("signed zeros", "f4"),
    ("infinite", "f4"),
]


@pytest.mark.parametrize(
    ("kind", "kernel"),
    [
        param(NUMPY, NUMPY, "reference"),
        param(NUMPY, NUMPY, "cpu"),
        param(CUPY, CUPY, "cuda"),
    ],
)
@pytest.mark.parametrize(("name", "dtype"), PILOTED)
@pytest.mark.parametrize("q", [(), (0.5,), (0.25, 0.5, 0.75), (0.0, 0.3, 0.301, 1.0), (1.0,)])
def test_pilots(kind: Backend, kernel: str, name: str, dtype: str, q: tuple[float, ...]) -> None:
    """The brackets hold, and the tally is what the reference finds there."""
    values = (FLOATS | MISSING)[name](N).astype(dtype)

    def ranks(n: int) -> tuple[Any, Any]:
        first = np.floor(np.array(q) * (n - 1)).astype(np.int64)[: n * len(q)]
        return first, np.minimum(first + 1, n - 1)

    module = kernel_module(kernel, "sampling")
    brackets, found = module.pilot(kind.asarray(values), 4000, ranks)
    expected = reference.tally(values, brackets, N)
    assert expected is not None
    assert found is not None
    np.testing.assert_array_equal(found.below, expected.below)
    np.testing.assert_array_equal(found.upto, expected.upto)
    assert (found.n_valid, found.n_missing) == (expected.n_valid, expected.n_missing)
    np.testing.assert_array_equal(
        np.sort(found.candidates.on_host()), np.sort(expected.candidates.on_host())
    )
    for wanted in ranks(found.n_valid):
        assert holds(brackets, found, wanted)
    assert len(expected.candidates) < N / 2 or len(q) == 0


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "helps"),
    [
        ("normal", False),
        ("outliers", False),
        ("some nan", True),
        ("tied", False),
        ("constant", False),
    ],
)
def test_the_host_helps_where_the_device_cannot_guess(
    name: str, helps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where elements are missing."""
    sampling = guessing(CUPY)[-1]
    calls = []

    def noted(*args: Any) -> Any:
        calls.append(args)
        return guess_brackets(*args)

    monkeypatch.setattr(sampling, "guess_brackets", noted)
    for module in kernel_modules(CUPY, "sampling"):
        monkeypatch.setattr(module, "is_best_whole", lambda *_: False)
    values = FLOATS.get(name, MISSING.get(name))(N * 100)  # type: ignore[misc]
    found = CUPY.to_numpy(nanquantile(CUPY.asarray(values), [0.25, 0.5, 0.75], method="lower"))
    expected = np.nanquantile(values, [0.25, 0.5, 0.75], method="lower")
    np.testing.assert_array_equal(found, expected)
    assert bool(calls) == helps


def test_a_guess_of_nothing() -> None:
    """No valid element was drawn: nothing is held, unless there is none at all."""
    nothing = np.empty(0, np.int64)
    brackets, share = guess_brackets(np.empty(0).take, 0, nothing, nothing)
    assert share == 0
    assert isinstance(brackets, Brackets)
    tally = reference.tally(normal(100), brackets, 100)
    assert isinstance(tally, Tally)
    assert not holds(brackets, tally, np.array([50]))
