"""Answers and their types against NumPy's, and against exact arithmetic where NumPy's is lost."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect.maths.interpolation import interpolate, is_weak, precision_of, result_dtype
from dask_gpuselect.maths.ranks import MEDIAN, METHODS, Method, ranks

quick = settings(deadline=None, database=None, max_examples=50)

MIXING = [method for method in METHODS.values() if not method.discrete]
INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


FLOATS = ["f2", "f4", "f8"]

quantile: Any = np.quantile  # NumPy types its method as one of thirteen literals

FLOAT64 = np.dtype(np.float64)
HUGE = 1.7e308
INF = np.inf


def by_name(method: Method) -> str:
    return method.name


all_methods = pytest.mark.parametrize("method", list(METHODS.values()), ids=by_name)
mixing_methods = pytest.mark.parametrize("method", MIXING, ids=by_name)
all_mixing = pytest.mark.parametrize("method", [*MIXING, MEDIAN], ids=by_name)

shares = st.one_of(st.sampled_from([0.0, 5e-324, 0.25, 0.5, 1 - 2.0**-53, 1.0]), st.floats(0, 1))


class MyFloat(float):
    """A subclass of float that NumPy does not know."""


def answer(x: NDArray[Any], q: Any, method: Method, *, weak_q: bool = False) -> NDArray[Any]:
    """Quantiles of data without NaN through the two modules, with every floating-point error on."""
    x = np.sort(x)
    lower, upper, weight = ranks(len(x), q, method)
    dtype = result_dtype(x.dtype, method, weak_q=weak_q)
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        result = interpolate(x[lower], x[upper], weight, method, dtype)
    assert result.dtype == dtype
    assert result.shape == np.shape(q)
    return result


def numpys(x: NDArray[Any], q: Any, method: Method) -> Any:
    """NumPy's answer, whose warnings are not the subject."""
    with np.errstate(all="ignore"):
        return np.median(x) if method is MEDIAN else quantile(x, q, method=method.name)


def the_q(method: Method, q: Any) -> Any:
    return np.full_like(q, 0.5) if method is MEDIAN else q


# --- Types --------------------------------------------------------------------------------------

QS: list[Any] = [0.5, np.float64(0.5), MyFloat(0.5), [0.5], np.array(0.5), np.array([0.25, 0.5])]
QS += [np.float32(0.5), np.array([0.25, 0.5], "f4"), np.float16(0.5), np.array([0.5], ">f4")]


@all_methods
@pytest.mark.parametrize("dtype", ["?", *INTEGERS, *FLOATS])
def test_result_dtype_is_numpys(dtype: str, method: Method) -> None:
    x = np.array([0, 1, 1]).astype(dtype)
    functions: list[Any] = [np.quantile, np.percentile, np.nanquantile, np.nanpercentile]
    for q in QS:
        try:
            ours = result_dtype(x.dtype, method, weak_q=is_weak(q), q_dtype=precision_of(q))
        except TypeError:
            for function in functions:
                with pytest.raises(TypeError):
                    function(x, q, method=method.name)
        else:
            for function in functions:
                assert function(x, q, method=method.name).dtype == ours, (function, q)


@pytest.mark.parametrize("method", [*METHODS.values(), MEDIAN], ids=by_name)
@pytest.mark.parametrize("dtype", ["c8", "c16", "O", "S3", "U3", "V3", "i4,f8", np.longdouble])
def test_other_data_is_refused(dtype: Any, method: Method) -> None:
    with pytest.raises(TypeError, match="need an array of real numbers"):
        result_dtype(np.dtype(dtype), method, weak_q=True)


@mixing_methods
def test_bools_are_not_mixed(method: Method) -> None:
    with pytest.raises(TypeError, match='method="lower" or "inverted_cdf"'):
        result_dtype(np.dtype(bool), method, weak_q=True)


def test_is_weak() -> None:
    found = [is_weak(q) for q in (0, 1, True, np.int64(1), Fraction(1, 2))]
    assert found == [True, True, False, False, False]


# --- Floats -------------------------------------------------------------------------------------


def floats(width: Any, **kwargs: Any) -> st.SearchStrategy[list[float]]:
    """Lists of numbers in which zeros have no sign: the sign of a zero is not defined."""
    elements = st.floats(width=width, allow_nan=False, **kwargs).map(lambda v: v + 0.0)
    return st.lists(elements, min_size=1, max_size=20)


@pytest.mark.few(3)
@all_mixing
@given(values=floats(64), q=st.lists(shares, min_size=1, max_size=9))
@example(values=[-HUGE, HUGE], q=[0.25, 0.5, 0.75])
@example(values=[0.1, 0.7], q=[0.1, 0.3, 0.7, 0.9])
@example(values=[5e-324, 1e-323, -5e-324], q=[0.1, 0.3, 0.7, 0.9])
@example(values=[-INF, 0.0, INF], q=[0.1, 0.3, 0.7, 0.9])
@quick
def test_float64_is_numpys_wherever_it_is_finite(
    method: Method, values: list[float], q: list[float]
) -> None:
    x, q = np.sort(values), the_q(method, q)
    ours, theirs = answer(x, q, method), np.broadcast_to(numpys(x, q, method), len(q))
    finite = np.isfinite(theirs)
    assert ours[finite].tobytes() == theirs[finite].tobytes()
    # Where NumPy's is not, ours still lies between the elements, if it can.
    lower, upper, weight = ranks(len(x), q, method)
    a, b = x[lower], x[upper]
    undefined = (a == -INF) & (b == INF)
    assert np.array_equal(np.isnan(ours), undefined)
    assert np.all(undefined | ((a <= ours) & (ours <= b)))
    assert np.array_equal(np.isinf(ours), (np.isinf(a) | np.isinf(b)) & ~undefined)


# Those of NumPy's answers that are not the exact one are given as a last column, for the record:
# the day NumPy gives the exact one, a deviation is no more.
LOST = [
    # a, b, weight, the answer, NumPy's
    (INF, INF, 0.5, INF, np.nan),
    (-INF, -INF, 0.25, -INF, np.nan),
    (1.0, INF, 0.0, 1.0, np.nan),
    (1.0, INF, 0.25, INF, INF),
    (1.0, INF, 0.5, INF, np.nan),
    (1.0, INF, 1.0, INF, np.nan),
    (-INF, 1.0, 0.0, -INF, np.nan),
    (-INF, 1.0, 0.25, -INF, np.nan),
    (-INF, 1.0, 0.75, -INF, -INF),
    (-INF, 1.0, 1.0, 1.0, np.nan),
    (-INF, INF, 0.0, -INF, np.nan),
    (-INF, INF, 0.25, np.nan, np.nan),
    (-INF, INF, 0.5, np.nan, np.nan),
    (-INF, INF, 1.0, INF, np.nan),
    (-HUGE, HUGE, 0.0, -HUGE, np.nan),
    (-HUGE, HUGE, 0.25, -HUGE / 2, INF),
    (-HUGE, HUGE, 0.5, 0.0, -INF),
    (-HUGE, HUGE, 0.75, HUGE / 2, -INF),
    (-HUGE, HUGE, 1.0, HUGE, np.nan),
    (HUGE, HUGE, 0.5, HUGE, HUGE),
    (1.5e308, 1.7e308, 0.5, 1.6e308, 1.6e308),
    (5e-324, 5e-324, 0.5, 5e-324, 5e-324),
]


@pytest.mark.parametrize(("a", "b", "weight", "exact", "theirs"), LOST)
def test_answers_that_numpy_loses(
    a: float, b: float, weight: float, exact: float, theirs: float
) -> None:
    with np.errstate(all="raise"):
        ours = interpolate(
            np.array([a]), np.array([b]), [weight], METHODS["linear"], FLOAT64
        ).item()
    assert ours == pytest.approx(exact, rel=0, abs=0, nan_ok=True)
    if weight == 0.5:
        assert np.array_equal(answer(np.array([a, b]), 0.5, MEDIAN), exact, equal_nan=True)
    # NumPy meets a weight of 1 only in averaged_inverted_cdf, at the upper of two elements.
    if weight == 1:
        q, method = 0.75, "averaged_inverted_cdf"
    else:
        q, method = weight, "linear"
    with np.errstate(all="ignore"):
        assert np.array_equal(quantile([a, b], q, method=method), theirs, equal_nan=True)


@all_methods
@pytest.mark.parametrize("dtype", FLOATS)
def test_monotone(dtype: str, method: Method) -> None:
    limits = np.finfo(dtype)
    x = np.array(
        [-INF, limits.min, limits.min, -1, -limits.tiny, -limits.smallest_subnormal, 0, 0]
        + [limits.smallest_subnormal, limits.tiny, 1, 1 + limits.eps, limits.max, limits.max, INF],
        dtype=dtype,
    )
    ours = answer(x, np.linspace(0, 1, 2001), method, weak_q=True)
    assert not np.any(np.isnan(ours))
    assert np.all(ours[1:] >= ours[:-1])


# --- Integers -----------------------------------------------------------------------------------


def exactly(a: int, b: int, weight: float) -> float:
    """The float64 nearest to the mixture."""
    return float((1 - Fraction(weight)) * a + Fraction(weight) * b)


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", ["i8", "u8"])
@all_mixing
@given(data=st.data(), weight=st.floats(0, 1))
@quick
def test_wide_integers_are_rounded_once(
    method: Method, dtype: str, data: st.DataObject, weight: float
) -> None:
    limits = np.iinfo(dtype)
    value = st.one_of(
        st.integers(int(limits.min), int(limits.max)),
        st.integers(0, 9).map(lambda d: int(limits.max) - d),
        st.integers(0, 9).map(lambda d: int(limits.min) + d),
        st.integers(2**53 - 3, 2**54 + 3),
    )
    if dtype == "i8":
        value = st.one_of(value, st.integers(-(2**54) - 3, -(2**53) + 3))
    a, b = sorted([data.draw(value), data.draw(value)])
    if method is MEDIAN:
        weight = 0.5
    # 50 more elements that need no care, to see that each gets its own.
    lower = np.array([a, *range(50)], dtype=dtype)
    upper = np.array([b, *range(1, 51)], dtype=dtype)
    ours = interpolate(lower, upper, np.full(51, weight), method, FLOAT64)
    exact = exactly(a, b, weight)
    if max(abs(a), abs(b)) >= 2**53:
        assert ours[0] == exact
    assert abs(ours[0] - exact) <= np.spacing(float(max(abs(a), abs(b))))
    assert np.allclose(ours[1:], np.arange(50) + weight, rtol=1e-15, atol=0)


@pytest.mark.parametrize(
    ("a", "b", "weight"),
    [
        (-(2**63), 2**63 - 1, 0.5),
        (-(2**62) - 1, 2**62, 0.5),
        (-(2**62) - 1, 3 * 2**61 + 1, 0.4),
        (-(2**63), 2**63 - 1, 5e-324),
        (-(2**53) - 1, 5, 0.5),
        (2**53, 2**53 + 2, 0.75),
        (2**53 + 1, 2**53 + 3, 0.5),
        (2**63 + 1, 2**63 + 4095, 0.5),
    ],
)
def test_wide_integers_that_cancel(a: int, b: int, weight: float) -> None:
    x = np.array([[a], [b]], dtype="u8" if b >= 2**63 else "i8")
    for method in (METHODS["linear"], MEDIAN) if weight == 0.5 else (METHODS["linear"],):
        assert interpolate(*x, [weight], method, FLOAT64).item() == exactly(a, b, weight)


# --- Elements -----------------------------------------------------------------------------------


# --- Dates --------------------------------------------------------------------------------------


def test_a_share_of_a_span_is_no_unit_too_low() -> None:
    """7 / 10 as float64 is a bit less."""
    ends, linear = np.array([0, 10], "m8[s]"), METHODS["linear"]
    assert answer(ends, 0.7, linear) == np.timedelta64(7, "s")
    wide = np.array([0, 10**16], "M8[ns]")
    assert answer(wide, 0.7, linear).astype("i8") == 7 * 10**15


@quick
@given(st.integers(-(2**63) + 1, 2**63 - 1), st.integers(-(2**63) + 1, 2**63 - 1), shares)
@example(-(2**63) + 1, 2**63 - 1, 0.5)
@example(2**60, 2**60 + 2**53 + 2, 0.5)
def test_far_dates_are_mixed_exactly(a: int, b: int, weight: float) -> None:
    a, b = min(a, b), max(a, b)
    lower, upper = (np.array(each).view("m8[ns]") for each in (a, b))
    found = interpolate(lower, upper, weight, METHODS["linear"], lower.dtype)
    exact = a + (b - a) * Fraction(weight)
    # Below 2**53 units the share is rounded to float64 before it is cut.
    most = Fraction(1, 2) if b - a >= 2**53 else 1 + Fraction(1, 2**20)
    assert abs(int(found.astype("i8")) - exact) <= most
    middle = interpolate(lower, upper, 0.5, MEDIAN, lower.dtype)
    assert int(middle.astype("i8")) == int(Fraction(a + b, 2))
