"""Ranks and what is between them, against NumPy, exact arithmetic and the laws of quantiles."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect.maths.interpolation import interpolate, result_dtype
from dask_gpuselect.maths.ranks import (
    MAX_COUNT,
    MEDIAN,
    METHODS,
    Method,
    Ranks,
    check_method,
    ranks,
)
from tests.oracle import mixture

FLOAT64 = np.dtype(np.float64)
quantile: Any = np.quantile  # NumPy types its method as one of thirteen literals
ALL_METHODS = pytest.mark.parametrize("method", list(METHODS))
thirteen_methods = settings(deadline=None, database=None, max_examples=100)

TINY = 5e-324
EDGES = [0.0, TINY, 2.0**-1022, 2.0**-53, 0.25, 0.5, 0.75, 1 - 2.0**-53, 1.0]

counts = st.one_of(
    st.integers(1, 60),
    st.integers(1, MAX_COUNT),
    st.integers(0, 50).map(lambda d: MAX_COUNT - d),
    st.tuples(st.integers(0, 52), st.integers(-2, 2)).map(lambda t: max(1, 2 ** t[0] + t[1])),
)
shares = st.one_of(st.sampled_from(EDGES), st.floats(0, 1))


def many_q(n: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Shares at, just below and just above every rank, a fine grid, random ones and the ends."""
    k = np.arange(n + 1)
    at = np.concatenate([k / n, k[:-1] / max(n - 1, 1), (k[:-1] + 0.5) / n])
    if len(at) > 500:
        at = rng.choice(at, 500)
    around = np.concatenate([np.nextafter(at, -1), at, np.nextafter(at, 2)])
    q = np.concatenate([EDGES, around, np.linspace(0, 1, 1001), rng.random(200)])
    return np.asarray(np.clip(q, 0, 1))


# --- The table --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "Linear", "median", "higher "])
def test_check_method_lists_those_there_are(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid method") as error:
        check_method(name)
    assert repr(name) in str(error.value)
    assert str(error.value).endswith(": " + ", ".join(METHODS))
    with pytest.raises(ValueError, match="is not a valid method"):
        ranks(3, 0.5, name)


# --- NumPy ------------------------------------------------------------------------------------


def check_form(r: Ranks, n: int, method: str) -> None:
    assert [part.dtype for part in r] == [np.int64, np.int64, np.float64]
    assert np.all((r.lower >= 0) & (r.lower <= r.upper) & (r.upper <= n - 1))
    assert np.all((r.weight >= 0) & (r.weight < 1))
    assert np.array_equal(r.upper - r.lower, r.weight > 0)
    if METHODS[method].discrete:
        assert np.all(r.weight == 0)


@ALL_METHODS
def test_numpy(method: str) -> None:
    for n in [*range(1, 61), 101, 1000, 4097, 65_536, 1_000_003]:
        rng = np.random.default_rng(n)
        x = np.sort(rng.standard_normal(n)) if n <= 1000 else np.arange(float(n))
        q = many_q(n, rng)
        r = ranks(n, q, method)
        check_form(r, n, method)
        ours = interpolate(x[r.lower], x[r.upper], r.weight, METHODS[method], FLOAT64)
        assert ours.tobytes() == quantile(x, q, method=method).tobytes(), n


@pytest.mark.parametrize("n", [2**24 + 1, 2**31, 2**40 + 3, 2**52 - 1, 2**52, 2**53 - 1, 2**53])
def test_median_ranks_of_very_many(n: int) -> None:
    lower, upper, _ = ranks(n, 0.5, MEDIAN)
    assert [lower, upper] == [(n - 1) // 2, n // 2]


# --- Exact arithmetic -------------------------------------------------------------------------


class Definition(NamedTuple):
    """A method in exact arithmetic, counting from 1 as Hyndman and Fan do.

    ``settle`` never decreases, so an error in ``reach`` is bounded by settling both its ends.
    """

    reach: Callable[[int, Fraction], Fraction]
    settle: Callable[[Fraction], Fraction]


def plotted(alpha: Fraction, beta: Fraction) -> Definition:
    return Definition(lambda n, q: n * q + alpha + q * (1 - alpha - beta), lambda p: p)


def whole(settle: Callable[[Fraction], int]) -> Callable[[Fraction], Fraction]:
    return lambda p: Fraction(settle(p))


def count(n: int, q: Fraction) -> Fraction:
    return n * q


def span(n: int, q: Fraction) -> Fraction:
    return (n - 1) * q + 1


THIRD, HALF = Fraction(1, 3), Fraction(1, 2)
EXACT = {
    "inverted_cdf": Definition(count, whole(ceil)),
    "averaged_inverted_cdf": Definition(count, lambda p: Fraction(floor(p) + 1 + ceil(p), 2)),
    "closest_observation": Definition(count, whole(round)),
    "interpolated_inverted_cdf": plotted(Fraction(0), Fraction(1)),
    "hazen": plotted(HALF, HALF),
    "weibull": plotted(Fraction(0), Fraction(0)),
    "linear": plotted(Fraction(1), Fraction(1)),
    "median_unbiased": plotted(THIRD, THIRD),
    "normal_unbiased": plotted(Fraction(3, 8), Fraction(3, 8)),
    "lower": Definition(span, whole(floor)),
    "higher": Definition(span, whole(ceil)),
    "midpoint": Definition(span, lambda p: Fraction(floor(p) + ceil(p), 2)),
    "nearest": Definition(span, lambda p: Fraction(round(p - 1) + 1)),
}


def settled(n: int, reach: Fraction, definition: Definition) -> Fraction:
    """Where the answer is among the elements, counting from 0."""
    return min(max(definition.settle(reach) - 1, Fraction(0)), Fraction(n - 1))


methods = st.sampled_from(list(METHODS))


@given(method=methods, n=counts, q=shares)
@example(method="linear", n=MAX_COUNT - 1, q=1.0)
@example(method="weibull", n=MAX_COUNT, q=1 - 2.0**-53)
@example(method="hazen", n=2**52 + 1, q=1.0)
@thirteen_methods
def test_exact_within_rounding(method: str, n: int, q: float) -> None:
    r = ranks(n, q, method)
    check_form(r, n, method)
    ours = int(r.lower) + Fraction(r.weight.item())
    definition = EXACT[method]
    reach = definition.reach(n, Fraction(q))
    slack = 4 * max(reach, Fraction(1)) / 2**53
    assert settled(n, reach - slack, definition) <= ours <= settled(n, reach + slack, definition)


# --- Arguments --------------------------------------------------------------------------------


def test_ranks_are_float64_for_float32_q() -> None:
    n, q = 2**24 + 4, np.float32(0.99999994)
    assert ranks(n, q, "lower").lower == floor((n - 1) * Fraction(float(q)))
    assert ranks(n, q, "linear").weight.dtype == np.float64


# --- Interpolation --------------------------------------------------------------------------------


# NumPy types its method as one of thirteen literals


HUGE = 1.7e308
INF = np.inf


def answer(x: NDArray[Any], q: Any, method: Method, *, weak_q: bool = False) -> NDArray[Any]:
    """Quantiles of data without NaN through the two modules, with every floating-point error on."""
    x = np.sort(x)
    lower, upper, weight = ranks(len(x), q, method)
    dtype = result_dtype(x.dtype, method, weak_q=weak_q)
    with np.errstate(all="raise"), warnings.catch_warnings(action="error"):
        result = interpolate(x[lower], x[upper], weight, method, dtype)
    assert result.dtype == dtype
    assert result.shape == np.shape(q)
    return result


# --- Floats -----------------------------------------------------------------------------------


LOST = [(INF, INF), (-INF, -INF), (1.0, INF), (-INF, 1.0), (-INF, INF), (-HUGE, HUGE), (HUGE, HUGE)]
LOST += [(1.5e308, HUGE), (5e-324, 5e-324)]
"""Neighbours between which NumPy mostly loses the answer."""


@pytest.mark.parametrize(("a", "b"), LOST)
def test_answers_that_numpy_loses(a: float, b: float) -> None:
    weights = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    exact = np.array([*(mixture(a, b, weight) for weight in weights[:-1]), b])
    for n in (1, 9000):  # rows that are interpolated together, and one by one
        ends = np.full((2, 5, n), [[[a]], [[b]]])
        with np.errstate(all="raise"):
            ours = interpolate(*ends, weights[:, None], METHODS["linear"], FLOAT64)
        np.testing.assert_equal(ours, np.repeat(exact[:, None], n, axis=1))
    np.testing.assert_equal(answer(np.array([a, b]), 0.5, MEDIAN).item(), mixture(a, b, 0.5))


# --- Dates ------------------------------------------------------------------------------------


def test_a_share_of_a_span_is_no_unit_too_low() -> None:
    """7 / 10 as float64 is a bit less."""
    ends, linear = np.array([0, 10], "m8[s]"), METHODS["linear"]
    assert answer(ends, 0.7, linear) == np.timedelta64(7, "s")
    wide = np.array([0, 10**16], "M8[ns]")
    assert answer(wide, 0.7, linear).astype("i8") == 7 * 10**15
