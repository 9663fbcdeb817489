"""Interpolated answers against exact arithmetic, where NumPy's is lost."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.maths.interpolation import interpolate, result_dtype
from dask_gpuselect.maths.ranks import MEDIAN, METHODS, Method, ranks

quantile: Any = np.quantile  # NumPy types its method as one of thirteen literals

FLOAT64 = np.dtype(np.float64)
HUGE = 1.7e308
INF = np.inf


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


# --- Floats -------------------------------------------------------------------------------------


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


# --- Dates --------------------------------------------------------------------------------------


def test_a_share_of_a_span_is_no_unit_too_low() -> None:
    """7 / 10 as float64 is a bit less."""
    ends, linear = np.array([0, 10], "m8[s]"), METHODS["linear"]
    assert answer(ends, 0.7, linear) == np.timedelta64(7, "s")
    wide = np.array([0, 10**16], "M8[ns]")
    assert answer(wide, 0.7, linear).astype("i8") == 7 * 10**15
