"""Isotonic regression: pooled violators, lower sets and medians against exact arithmetic."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect.distribution import isotonic_regression
from dask_gpuselect.optional import needs
from tests.backends import CUPY, NUMPY, Backend

pytestmark = pytest.mark.any_dask  # of no dask arrays

Floats = NDArray[np.float64]
EPS = 2.0**-52


KINDS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "increasing": lambda x, noise: np.sqrt(x) + 0.3 * noise,
    "offset": lambda x, noise: 1e8 + x + noise,
    "trend": lambda x, noise: 1e6 * x + noise,
    "constant": lambda x, noise: np.full(len(x), 1 / 3),
    "decreasing": lambda x, noise: -x,
    "increasing already": lambda x, noise: x**3,
    "outliers": lambda x, noise: np.sinh(3 * noise) ** 3,
    "ties": lambda x, noise: np.round(4 * x + noise),
    "huge": lambda x, noise: 1.7e308 * np.tanh(5 * x - 2.5 + noise),
    "denormal": lambda x, noise: 2.0**-1070 * np.round(9 * x + noise),
}


def noisy(kind: str, n: int = 600) -> Floats:
    return KINDS[kind](np.linspace(0, 1, n), np.random.default_rng(n).normal(size=n))


def exact(y: Floats, weights: Floats | None = None) -> list[Fraction]:
    """Least squares by pooling adjacent violators, in rational numbers."""
    given_weights = np.ones(len(y)) if weights is None else weights
    blocks: list[tuple[Fraction, Fraction, int]] = []  # weighted sum, weight, elements
    for value, weight in zip(y.tolist(), given_weights.tolist(), strict=True):
        w = Fraction(weight)
        block = (Fraction(value) * w, w, 1)
        while blocks and blocks[-1][0] * block[1] >= block[0] * blocks[-1][1]:
            before = blocks.pop()
            block = (before[0] + block[0], before[1] + block[1], before[2] + block[2])
        blocks.append(block)
    return [total / weight for total, weight, size in blocks for _ in range(size)]


def largest_error(actual: Floats, wanted: list[Fraction]) -> Fraction:
    return max(abs(Fraction(a) - b) for a, b in zip(actual.tolist(), wanted, strict=True))


def rounding(y: Floats, weights: Floats | None, n_roundings: float) -> Fraction:
    """So many, of the largest y, and what sums of two float64 lack; see `cuda.lower_sets`."""
    spread = len(y) if weights is None else weights.sum() / weights.min()
    lacking = 4 * len(y).bit_length() * 2.0**-103 * spread
    return Fraction(n_roundings * EPS + lacking) * Fraction(np.abs(y).max()) + Fraction(2) ** -1074


# --- Least squares --------------------------------------------------------------------------------


def lower_sets(*given_arrays: Floats | None) -> Floats:
    """By the kernels of CUDA."""
    kernel = importlib.import_module("dask_gpuselect.kernels.cuda.lower_sets")
    arrays = [a if a is None else CUPY.asarray(a) for a in given_arrays]
    result: Floats = CUPY.to_numpy(kernel.lower_sets(*arrays))
    return result


def weights_of(name: str, n: int) -> Floats | None:
    rng = np.random.default_rng(1)
    return {
        "none": None,
        "integers": rng.integers(1, 9, n).astype(float),
        "wide": 2.0 ** rng.uniform(-30, 30, n),
        "tiny": 1e-300 * rng.uniform(1, 2, n),
    }[name]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["none", "wide"])
def test_lower_sets(kind: str, weights: str) -> None:
    """To the rounding of one quotient of sums, whatever cancels in them."""
    y = noisy(kind, 560)
    w = weights_of(weights, len(y))
    result = lower_sets(y, w)
    assert (np.diff(result) >= 0).all()
    assert largest_error(result, exact(y, w)) <= rounding(y, w, 3)


@pytest.mark.gpu
def test_lower_sets_of_many_tiles() -> None:
    """More than a tile of starts, and more than a segment of ends."""
    n = 4700
    y = noisy("trend", n)
    for sizes in (n, n - 1, n - n % 256):
        result = lower_sets(y[:sizes])
        assert largest_error(result, exact(y[:sizes])) <= rounding(y, None, 3)
    result = lower_sets(y[::-1].copy())
    assert largest_error(result, exact(y[::-1])) <= rounding(y, None, 3)
    for few in (0, 1, 2):
        result = lower_sets(y[:few])
        assert result.shape == (few,)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["none", "integers", "wide", "tiny"])
def test_squared(kind: str, weights: str, backend: Backend) -> None:
    """SciPy adds a number at a time to its blocks: as many roundings as there are elements."""
    y = noisy(kind)
    w = weights_of(weights, len(y))
    given_arrays = [a if a is None else backend.asarray(a) for a in (y, w)]
    result = backend.to_numpy(isotonic_regression(*given_arrays))
    assert result.dtype == np.float64
    bound = rounding(y, w, len(y) if backend is NUMPY else 3)
    assert largest_error(result, exact(y, w)) <= bound
    descending = backend.to_numpy(isotonic_regression(*given_arrays, increasing=False))
    turned = exact(y[::-1], None if w is None else w[::-1])[::-1]
    assert largest_error(descending, turned) <= bound


@pytest.mark.gpu
def test_large_arrays_go_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    y = CUPY.asarray(noisy("increasing"))
    w = CUPY.asarray(weights_of("integers", y.size))
    on_device = [isotonic_regression(y).get(), isotonic_regression(y, w).get()]
    kernel = importlib.import_module("dask_gpuselect.kernels.cuda.lower_sets")
    monkeypatch.setattr(kernel, "BEST_UPTO", 0)
    on_host = [isotonic_regression(y), isotonic_regression(y, w)]
    assert all(type(result) is CUPY.array_type for result in on_host)
    for here, there in zip(on_device, on_host, strict=True):
        np.testing.assert_allclose(there.get(), here, rtol=0, atol=1e-12)


numbers = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e3, 1e3), st.floats(-1e300, 1e300))


@given(st.lists(st.tuples(numbers, st.integers(1, 5)), min_size=1, max_size=12), st.booleans())
def test_small_cases(pairs: list[tuple[float, int]], increasing: bool) -> None:
    """Both losses, in both directions."""
    y, w = (np.array(column, float) for column in zip(*pairs, strict=True))
    order = slice(None) if increasing else slice(None, None, -1)
    options: dict[str, Any] = {"increasing": increasing}
    result = isotonic_regression(y[order], w[order], **options)[order]
    assert largest_error(result, exact(y, w)) <= rounding(y, w, len(y))
    absolute = isotonic_regression(y[order], w[order], loss="absolute", **options)
    np.testing.assert_array_equal(absolute[order], by_slopes(y, w.astype(int)))


# --- Least absolute deviations --------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["none", "integers"])
def test_absolute_beside_slopes(kind: str, weights: str, backend: Backend) -> None:
    """Bit for bit what the slopes of the objective give, one element after the other."""
    y = noisy(kind, 3000)
    w = weights_of(weights, len(y))
    given_arrays = [a if a is None else backend.asarray(a) for a in (y, w)]
    result = backend.to_numpy(isotonic_regression(*given_arrays, loss="absolute"))
    repeats = np.ones(len(y), int) if w is None else w.astype(int)
    np.testing.assert_array_equal(result, by_slopes(y, repeats))
    again = isotonic_regression(backend.asarray(result), loss="absolute")
    np.testing.assert_array_equal(backend.to_numpy(again), result)


def by_slopes(y: Floats, repeats: NDArray[Any]) -> Floats:
    """The least objective of the first i elements as a function of the last one's bound is convex:
    a heap holds where its slope changes, and its top is the smallest best bound."""
    import heapq

    heap: list[float] = []
    tops = []
    for value, times in zip(y.tolist(), repeats.tolist(), strict=True):
        for _ in range(times):
            heapq.heappush(heap, -value)
            heapq.heappushpop(heap, -value) if -heap[0] > value else None
        tops.append(-heap[0])
    return np.minimum.accumulate(np.array(tops)[::-1])[::-1]


# --- Conventions ----------------------------------------------------------------------------------


def test_integers_and_single_floats(backend: Backend) -> None:
    y = [3, 1, 2]
    for dtype in ("i4", "u1", "f4", "f8"):
        for loss, wanted in (("squared", [2.0, 2.0, 2.0]), ("absolute", [1.0, 1.0, 2.0])):
            actual = isotonic_regression(backend.asarray(np.array(y, dtype)), loss=loss)
            assert type(actual) is backend.array_type
            assert actual.dtype == np.float64
            assert backend.to_numpy(actual).tolist() == wanted
    for loss in ("squared", "absolute"):
        assert isotonic_regression(backend.asarray(np.empty(0)), loss=loss).shape == (0,)
        one = backend.asarray([5.0])
        assert backend.to_numpy(isotonic_regression(one, one, loss=loss)).tolist() == [5]


def test_weights_of_all_sizes() -> None:
    weights = [1e300, 1e-300, 1.0]
    for loss in ("squared", "absolute"):
        assert isotonic_regression([3.0, 1, 2], weights, loss=loss).tolist() == [3, 3, 3]
    assert isotonic_regression([3.0, 1, 2], [1e308] * 3).tolist() == [2, 2, 2]


def test_y_is_not_changed() -> None:
    y, w = noisy("increasing"), weights_of("wide", 600)
    copies = y.copy(), None if w is None else w.copy()
    for loss in ("squared", "absolute"):
        isotonic_regression(y, w, loss=loss)
        np.testing.assert_array_equal(y, copies[0])
        np.testing.assert_array_equal(w, copies[1])  # type: ignore[arg-type]


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ImportError, match=r"SciPy: pip install scipy"):
        isotonic_regression([1, 2])
    assert isotonic_regression([2, 1], loss="absolute").tolist() == [1, 1]


def test_what_a_package_itself_lacks_is_told_as_it_is() -> None:
    with pytest.raises(ModuleNotFoundError) as caught, needs("scipy", "this"):
        raise ModuleNotFoundError("No module named 'other'", name="other")
    assert caught.value.name == "other"
