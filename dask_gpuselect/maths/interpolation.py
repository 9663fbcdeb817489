"""Interpolation between two neighbouring elements of the sorted data, and the dtype of the result.

The types are NumPy 2's, the arithmetic is that of ``numpy.quantile`` and ``numpy.median`` on
float64, except where theirs loses an answer that exists: see `interpolate`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dask_gpuselect.maths.ranks import Method

__all__ = ["interpolate", "is_weak", "precision_of", "result_dtype"]

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

_FLOATS: Final = (np.float16, np.float32, np.float64)

_CONVERSIONS: Final = {
    "O": ': pass a.astype("f8") if all elements are numbers, a.astype("M8[us]") if all are dates, '
    'or only the columns of numbers of a table, a.select_dtypes("number")',
    **dict.fromkeys("SUT", ': pass a.astype("f8") if all strings are numbers'),
    "c": ": pass a.real, a.imag or abs(a)",
    "f": ': pass a.astype("f8"), which rounds',
    "a record": ': pass one field, as a["name"]',
}
"""Advice in errors about data of other kinds of dtype."""

_WIDE: Final = 2.0**53
"""Integers up to this are float64 numbers. Larger ones are mixed as Python integers."""
_TOGETHER: Final = 1 << 13
"""Answers that are interpolated at once. Measured, 99 quantiles of 100 lanes: 3 ns an answer, and
39 a row at a time."""


# --- Types --------------------------------------------------------------------------------------


def is_weak(q: object) -> bool:
    """Return whether q leaves the precision of the data alone.

    Parameters
    ----------
    q : object
        Quantile argument as the user gave it.

    Returns
    -------
    bool
        True for a Python int or float. False for everything else: lists, arrays (0-d ones too),
        NumPy scalars, bool, and subclasses of float. ``numpy.float64`` is such a subclass, but as
        in NumPy it is float64 and makes the answer float64.

    Examples
    --------
    >>> is_weak(0.5), is_weak([0.5]), is_weak(np.float64(0.5))
    (True, False, False)
    """
    return type(q) in (int, float)


def precision_of(q: object) -> np.dtype[Any]:
    """Return the dtype of q if it is a NumPy float narrower than float64, else float64.

    Examples
    --------
    >>> precision_of(np.float32(0.5)), precision_of([0.5]), precision_of(np.array([0, 1]))
    (dtype('float32'), dtype('float64'), dtype('float64'))
    """
    dtype = getattr(q, "dtype", None)
    is_narrow = isinstance(dtype, np.dtype) and dtype.kind == "f" and dtype.itemsize < 8
    return dtype.newbyteorder("=") if is_narrow else np.dtype(np.float64)  # type: ignore[union-attr]


def no_quantiles_of(dtype: np.dtype[Any]) -> str:
    """Say why elements of a dtype have no quantiles, and what to type; empty if they have."""
    if dtype.kind in "biufmM" and (dtype.kind != "f" or dtype.type in _FLOATS):
        return ""
    return (
        "quantiles need an array of real numbers, bools or dates, not "
        f"{dtype}{conversion_of(dtype)}"
    )


def conversion_of(dtype: np.dtype[Any]) -> str:
    """Return the end of a message: what to type for elements without quantiles, or nothing."""
    return _CONVERSIONS.get("a record" if dtype.names else dtype.kind, "")


def check_numbers(dtype: np.dtype[Any], subject: str) -> None:
    """Raise for bool and dates; `subject` is a plural, such as "box plots"."""
    if dtype.kind in "bmM":
        other = "x.astype('int8')" if dtype.kind == "b" else "x.astype('int64'), if none is NaT"
        raise TypeError(f"{subject} need integers or floats, not {dtype}: pass {other}")


def result_dtype(
    dtype: np.dtype[Any],
    method: Method,
    *,
    weak_q: bool,
    q_dtype: np.dtype[Any] = np.dtype(np.float64),  # noqa: B008 -- it is immutable
) -> np.dtype[Any]:
    """Return the dtype of a quantile, as in NumPy 2.

    Parameters
    ----------
    dtype : dtype
        Dtype of the data.
    method : Method
        An entry of `dask_gpuselect.maths.ranks.METHODS`, or `dask_gpuselect.maths.ranks.MEDIAN`.
    weak_q : bool
        True if q is a Python number (`is_weak`). The median takes no q and ignores it.
    q_dtype : dtype
        Dtype of q otherwise: see `precision_of`.

    Returns
    -------
    dtype
        In native byte order:

        ===================  ========  ==========  =============  =============
        data                 discrete  the median  other, weak q  other q
        ===================  ========  ==========  =============  =============
        bool                 bool      float64     TypeError      TypeError
        integers             the same  float64     float64        of both
        float16, float32     the same  the same    the same       of both
        float64              float64   float64     float64        float64
        datetime, timedelta  the same  the same    the same       the same
        ===================  ========  ==========  =============  =============

        where *of both* is the dtype to which NumPy promotes data and q, and *discrete* are
        inverted_cdf, closest_observation, lower, higher and nearest.

    Raises
    ------
    TypeError
        For other data (complex, extended precision, objects, strings, records), and for bool data
        whose elements would be mixed.

    Notes
    -----
    Deviations from NumPy:

    - q is always converted to float64, and an integer q counts as float64. NumPy does not convert
      it: for 0 and 1 ``numpy.quantile`` gives integers for some methods (``numpy.percentile`` for
      none).
    - NumPy has a median of time differences, but none of dates. Here both have one, as in pandas.
    - NumPy answers in the data's own byte order for some arguments and in native order for others.
    """
    problem = no_quantiles_of(dtype)
    if problem:
        raise TypeError(problem)
    native = dtype.newbyteorder("=")
    if method.discrete or dtype.kind in "mM":
        return native
    if dtype.kind == "b" and not method.averages:
        raise TypeError(
            f"method={method.name!r} would interpolate between elements, which bool does not "
            "support: "
            'pass method="lower" or "inverted_cdf", or x.astype("int8")'
        )
    if dtype.kind == "f" and (weak_q or method.averages):
        return native
    return np.dtype(np.float64) if method.averages else np.result_type(native, q_dtype)


# --- Values -------------------------------------------------------------------------------------


def interpolate(
    lower: NDArray[Any],
    upper: NDArray[Any],
    weight: ArrayLike,
    method: Method,
    dtype: np.dtype[Any],
    *,
    nearest: bool = False,
) -> NDArray[Any]:
    """Interpolate quantiles between the elements at the two ranks of each.

    Parameters
    ----------
    lower, upper : ndarray
        Elements in the dtype of the data, ``lower <= upper``.
    weight : array_like of float64
        Weight of upper against lower, in [0, 1]; broadcasts against them. The median ignores
        it: its weights are equal.
    method : Method
        Method that gave the ranks and weights.
    dtype : dtype
        Dtype of the result, by `result_dtype`.
    nearest : bool
        True if a date between two others is rounded to the nearest unit. Otherwise, as in NumPy,
        its distance from the nearer one is truncated to a whole number of units.

    Returns
    -------
    ndarray
        For a discrete method, lower itself. For others, the interpolation in float64, rounded once
        to `dtype`. Dates and time differences are mixed as integers. No floating-point warning is
        given on the way.

    Notes
    -----
    For float64 data the answer is NumPy's, bit for bit, wherever NumPy's is finite; for float16,
    float32, and integers below 2**53 it is NumPy's answer for the data as float64, rounded to
    `dtype`. In these places NumPy's arithmetic loses an answer that exists:

    - Two equal elements, or a weight of 0 or 1: the answer is the element. NumPy has NaN between
      two equal infinities, and often next to one.
    - A finite element and an infinite one, mixed: the infinity. NumPy has NaN from weight 1/2 on if
      the upper is infinite, below 1/2 if the lower is. Between -inf and +inf it is NaN here too.
    - Finite elements whose difference, or for the median whose sum, is beyond the largest float64:
      finite. NumPy has infinity or NaN.
    - Narrow integers: exact differences. NumPy's overflow: ``np.quantile(x, 0.5)`` of the int16
      values -1 and 32767 is 49151.
    - Integers from 2**53 on: the exact mixture, rounded once to float64. NumPy's differences may
      overflow, and its medians round each element first.
    - float16 and float32 are mixed in float64, and not in their own precision as NumPy does for q
      a Python number.
    - Dates and time differences that are 2**53 units or more apart (104 days in nanoseconds): the
      exact mixture, rounded to the nearest unit. NumPy rounds their difference to float64 first,
      or it overflows. The median is exact, truncated to a whole unit towards the epoch, as in
      pandas.

    Where zeros of both signs meet, the sign of a zero is not defined.

    Examples
    --------
    >>> from dask_gpuselect.maths.ranks import METHODS
    >>> a, b = np.int16([-1]), np.int16([32767])
    >>> interpolate(a, b, [0.5], METHODS["linear"], np.dtype("f8"))
    array([16383.])
    """
    if method.discrete:
        return lower.astype(dtype, copy=False)
    weights = np.asarray(0.5 if method.averages else weight, dtype=np.float64)
    if lower is upper and np.broadcast_shapes(lower.shape, weights.shape) == lower.shape:
        return lower.astype(dtype, copy=False)
    if dtype.kind in "mM":
        first, last = (x.astype(dtype, copy=False).view(np.int64) for x in (lower, upper))
        mixed = _middle(first, last) if method.averages else _between(first, last, weights, nearest)
        return mixed.view(dtype)
    with np.errstate(all="ignore"):
        if lower.ndim != 2 or weights.shape[:1] != lower.shape[:1]:
            return _mixed(lower, upper, weights, method).astype(dtype, copy=False)
        answer = np.empty(np.broadcast_shapes(lower.shape, weights.shape), dtype)
        n = max(_TOGETHER // max(lower.shape[1], 1), 1)
        for rows in (slice(i, i + n) for i in range(0, len(lower), n)):
            answer[rows] = _mixed(lower[rows], upper[rows], weights[rows], method)
        return answer


def _mixed(lower: NDArray[Any], upper: NDArray[Any], weights: Reals, method: Method) -> Reals:
    """Interpolate numbers in float64."""
    a, b = lower.astype(np.float64, copy=False), upper.astype(np.float64, copy=False)
    answer = _mean(a, b) if method.averages else _lerp(a, b, weights)
    if lower.dtype.kind in "iu" and lower.dtype.itemsize == 8:
        wide = np.broadcast_to((a <= -_WIDE) | (b >= _WIDE), answer.shape)
        operands = (np.broadcast_to(x, answer.shape)[wide] for x in (lower, upper, weights))
        answer[wide] = _mix_integers(*operands)
    return answer


def _lerp(a: Reals, b: Reals, weight: Reals) -> Reals:
    """Compute ``(1 - weight) a + weight b`` by NumPy's formula, at half scale if it overflows."""
    answer = _put_numpy_lerp(np.empty(np.broadcast_shapes(a.shape, weight.shape)), a, b, weight)
    is_finite = np.isfinite(answer)  # as the difference of a and b is
    if not is_finite.all():
        is_far = ~is_finite
        some = (np.broadcast_to(each, answer.shape)[is_far] for each in (a, b, weight))
        answer[is_far] = _lerp_far(*some)
    answer += 0.0  # no zero is -0.0
    return answer


def _lerp_far(a: Reals, b: Reals, weight: Reals) -> Reals:
    """Interpolate between numbers whose difference is infinite or NaN."""
    inner = 2 * _put_numpy_lerp(np.empty_like(a), a / 2, b / 2, weight)
    mixed = np.where(np.isfinite(a) & np.isfinite(b), inner, a + b)
    return np.where(weight == 0, a, np.where(weight == 1, b, mixed))


def _put_numpy_lerp(answer: Reals, a: Reals, b: Reals, weight: Reals) -> Reals:
    """Interpolate by NumPy's formula.

    It starts from the nearer end, so that the answer never decreases with the weight.
    """
    is_low = weight < 0.5
    np.subtract(b, a, out=answer)
    answer *= np.where(is_low, weight, weight - 1)
    # A single weight needs no copy: a row of 30,000 takes 1 ns an answer instead of 1.5.
    answer += np.where(is_low, a, b) if weight.size != 1 else a if is_low else b
    return answer


def _mean(a: Reals, b: Reals) -> Reals:
    """Compute ``(a + b) / 2`` without overflow."""
    total = a + b
    is_finite = np.isfinite(total)
    if is_finite.all():
        return np.asarray(total / 2)
    return np.where(is_finite, total / 2, a / 2 + b / 2)


def _mix_integer(a: int, b: int, weight: float) -> float:
    """Compute ``(1 - weight) a + weight b``, rounded once."""
    numerator, denominator = weight.as_integer_ratio()
    return (a * denominator + (b - a) * numerator) / denominator


_mix_integers: Final = np.frompyfunc(_mix_integer, 3, 1)


# --- Dates and time differences, as integers ------------------------------------------------------


def _middle(a: Integers, b: Integers) -> Integers:
    """Compute ``(a + b) / 2`` without overflow, truncated to an integer towards 0."""
    floor = (a >> 1) + (b >> 1) + (a & b & 1)
    return np.asarray(floor + ((floor < 0) & ((a ^ b) & 1 == 1)))


def _between(a: Integers, b: Integers, weight: Reals, nearest: bool) -> Integers:
    """Compute ``(1 - weight) a + weight b`` as a whole number of units from the nearer end."""
    a, b, weight = np.broadcast_arrays(a, b, weight)
    is_near = weight < 0.5
    share = np.where(is_near, weight, 1 - weight)
    with np.errstate(all="ignore"):
        width = b - a
        exact = np.asarray(width * share, np.float64)
        step = (np.rint(exact) if nearest else exact).astype(np.int64)
    is_wide = (width >= _WIDE) | (width < 0)  # an overflow makes it negative
    if is_wide.any():
        step[is_wide] = _wide_steps(a[is_wide], b[is_wide], share[is_wide])
    return np.asarray(np.where(is_near, a + step, b - step))


def _wide_step(a: int, b: int, share: float) -> int:
    """Compute ``share (b - a)``, rounded to the nearest integer."""
    return round((b - a) * Fraction(share))


_wide_steps: Final = np.frompyfunc(_wide_step, 3, 1)
