"""The right answers, from NumPy and exact fractions; nothing of the package is used.

A discrete method's answer is NumPy's own, and so is a mixture of dates. Another mixed one is
NumPy's for the valid elements as float64, rounded once to the type that NumPy's answer has. Where
NumPy's arithmetic loses an answer that exists (infinite neighbours, overflow, integers from 2**53
on; `dask_gpuselect.maths.interpolation` lists them), the two neighbours are mixed here in exact
arithmetic. Even then their ranks and weight are NumPy's, read off its answers for data of zeros and
ones.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from fractions import Fraction
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FUNCTIONS = ("median", "nanmedian", "quantile", "nanquantile", "percentile", "nanpercentile")

DISCRETE = ("inverted_cdf", "closest_observation", "lower", "higher", "nearest")
MIXED = (
    "averaged_inverted_cdf",
    "interpolated_inverted_cdf",
    "hazen",
    "weibull",
    "linear",
    "median_unbiased",
    "normal_unbiased",
    "midpoint",
)
METHODS = DISCRETE + MIXED

WIDE = 2**53  # integers up to here are float64 numbers

_quantile: Any = np.quantile  # NumPy types its method as one of thirteen literals


def takes_q(function: str) -> bool:
    return "median" not in function


def skips_missing(function: str) -> bool:
    return function.startswith("nan")


def methods_for(function: str, dtype: np.dtype[Any]) -> tuple[str, ...]:
    """The methods by which the function answers data of this type; "median" for a median."""
    if not takes_q(function):
        return ("median",)
    return DISCRETE if dtype.kind == "b" else METHODS


def expected(function: str, a: Any, q: Any = 0.5, method: str = "median") -> Any:
    """The answer to ``function(a, q, method=method)`` over all elements, of NumPy's type and shape.

    Parameters
    ----------
    function : str
        One of `FUNCTIONS`.
    a : array_like
        With at least one valid element, or at least one that is missing.
    q : scalar or 1-d
        In [0, 1], or [0, 100] for percentiles. A median takes none.
    method : str
        One of `METHODS`, or "median".
    """
    if not takes_q(function):
        q = 0.5
    x = np.asarray(a)
    x = x.astype(x.dtype.newbyteorder("="), copy=False).ravel()
    dtype = expected_dtype(function, x.dtype, q, method)
    share = np.asarray(q, np.float64) / (100 if "percentile" in function else 1)
    is_missing = x != x  # NaT too
    valid = np.sort(x[~is_missing])
    if len(valid) == 0 or (is_missing.any() and not skips_missing(function)):
        return np.full(share.shape, np.nan if dtype.kind == "f" else "NaT", dtype)[()]
    if method in DISCRETE:
        return np.asarray(_quantile(valid, share, method=method), dtype)[()]
    if dtype.kind in "mM":
        return _between_dates(valid, share, method)[()]
    return _mixed(valid, share, method).astype(dtype)[()]


def expected_dtype(function: str, dtype: np.dtype[Any], q: Any, method: str) -> np.dtype[Any]:
    """What NumPy itself gives: in native order, and for a q that is no float float64."""
    if dtype.kind in "mM":  # NumPy has no median of dates
        return dtype.newbyteorder("=")
    of_q = None if type(q) in (int, float) else getattr(q, "dtype", np.dtype(int))
    if of_q is not None and of_q.kind != "f":
        of_q = np.dtype(np.float64)
    return _numpys_dtype(function, dtype.newbyteorder("="), of_q, method)


@cache
def _numpys_dtype(
    function: str, dtype: np.dtype[Any], of_q: np.dtype[Any] | None, method: str
) -> np.dtype[Any]:
    """Ask NumPy, with a q of a dtype or a number of Python."""
    call, few = getattr(np, function), np.zeros(3, dtype)
    if not takes_q(function):
        return np.dtype(call(few).dtype)
    q = 0.5 if of_q is None else np.full(1, 0.5, of_q)
    return np.dtype(call(few, q, method=method).dtype)


def _mixed(valid: NDArray[Any], share: NDArray[np.float64], method: str) -> NDArray[np.float64]:
    with np.errstate(all="ignore"):
        answer = _numpys(valid.astype(np.float64), share, method)
        is_lost = ~np.isfinite(answer)
        halved = _numpys(valid / 2, share, method) if is_lost.any() else answer
    if valid.dtype.kind in "iu":
        is_lost |= bool(np.any(valid >= WIDE) or np.any(valid <= -WIDE))
    for i in np.argwhere(is_lost):
        where = neighbours(len(valid), float(share[*i]), method)
        a, b = valid[where.lower].item(), valid[min(where.lower + 1, len(valid) - 1)].item()
        if isinstance(a, float) or a <= -WIDE or b >= WIDE:
            answer[*i] = mixture(a, b, where.weight)
        if isinstance(a, float) and a < b and np.isfinite(2 * halved[*i]):
            # Neighbours that overflow only at full scale: NumPy's bits, if they are right.
            assert abs(halved[*i] - answer[*i] / 2) <= 2 * np.spacing(max(-a, b) / 2)
            answer[*i] = 2 * halved[*i]
    return answer


def _between_dates(valid: NDArray[Any], share: NDArray[np.float64], method: str) -> NDArray[Any]:
    """NumPy's own answer, or the exact one where neighbours are too far apart for it."""
    if method == "median":
        a, b = (int(valid.view("i8")[k]) for k in ((len(valid) - 1) // 2, len(valid) // 2))
        return np.full(share.shape, int(Fraction(a + b, 2))).view(valid.dtype)
    try:
        answer = np.array(_quantile(valid, share, method=method))
    except OverflowError:  # from NumPy 2.5 on, where the difference of two neighbours overflows
        each = [_one_between_dates(valid, q, method) for q in share.ravel()]
        answer = np.array(each, valid.dtype).reshape(share.shape)
    for i in np.ndindex(share.shape):
        where = neighbours(len(valid), float(share[i]), method)
        a, b = (int(valid.view("i8")[min(where.lower + k, len(valid) - 1)]) for k in (0, 1))
        if b - a >= WIDE:
            up = where.weight >= 0.5
            step = round((b - a) * Fraction(1 - where.weight if up else where.weight))
            answer[i] = np.int64(b - step if up else a + step).view(valid.dtype)
    return answer


def _one_between_dates(valid: NDArray[Any], share: Any, method: str) -> Any:
    """NumPy's own answer, or the lower neighbour where NumPy has none."""
    try:
        return np.asarray(_quantile(valid, share, method=method))[()]
    except OverflowError:
        return valid[neighbours(len(valid), float(share), method).lower]


def _numpys(valid: NDArray[Any], share: NDArray[np.float64], method: str) -> NDArray[np.float64]:
    if method == "median":
        return np.full(share.shape, np.median(valid))
    return np.array(_quantile(valid, share, method=method), np.float64)


class Neighbours(NamedTuple):
    """Rank of the lower of two neighbours, and the weight of the upper one, less than 1."""

    lower: int
    weight: float


@cache
def neighbours(n: int, share: float, method: str) -> Neighbours:
    """Which elements NumPy mixes, and how: as its answers for zeros and ones reveal."""
    if method == "median":
        return Neighbours((n - 1) // 2, 0.5 if n % 2 == 0 else 0.0)
    rank = np.arange(n)

    def part_from(k: int) -> float:
        return float(_quantile((rank >= k).astype(np.float64), share, method=method))

    near = int(_quantile(rank.astype(np.float64), share, method=method))
    lower = max(k for k in (near - 1, near, near + 1) if 0 <= k < n and part_from(k) == 1)
    return Neighbours(lower, part_from(lower + 1))


def mixture(a: float, b: float, weight: float) -> float:
    """``(1 - weight) a + weight b`` of two Python numbers, rounded once."""
    if weight == 0 or a == b:
        return float(a)
    if not (np.isfinite(float(a)) and np.isfinite(float(b))):
        return float(a) + float(b)
    return float((1 - Fraction(weight)) * Fraction(a) + Fraction(weight) * Fraction(b))


class Weighed(NamedTuple):
    """Elements that weigh something, ascending, their weights as whole numbers, and the sums of
    these. The unit is a power of two, so it changes no rounding."""

    ordered: NDArray[Any]
    parts: list[int]
    upto: list[int]

    @classmethod
    def of(cls, values: NDArray[Any], weights: NDArray[Any]) -> Weighed:
        weighs = np.flatnonzero(weights > 0)
        order = weighs[np.argsort(values[weighs], kind="stable")]
        ratios = [weight.as_integer_ratio() for weight in weights[order].tolist()]
        unit = max(below for _, below in ratios)
        parts = [above * (unit // below) for above, below in ratios]
        return cls(values[order], parts, list(accumulate(parts)))


def weighted(
    values: NDArray[Any], weights: NDArray[Any], q: float, method: str, dtype: np.dtype[Any]
) -> Any:
    """The weighted quantile of valid elements: see `weighted_of`."""
    return weighted_of(Weighed.of(values, weights), q, method, dtype)


def weighted_of(elements: Weighed, q: float, method: str, dtype: np.dtype[Any]) -> Any:
    """The weighted quantile of elements, of `dtype`, by fractions.

    Parameters
    ----------
    method : {"inverted_cdf", "averaged_inverted_cdf", "linear"}
    """
    ordered, parts, upto = elements
    total = upto[-1]
    if method == "linear":
        return _window_mean(ordered, parts, upto, Fraction(q), dtype)
    last = len(upto) - 1
    i = j = last
    if q < 1:
        share = rounded(Fraction(q) * total)
        i = min(bisect_left(upto, share, key=rounded), last)
        j = min(bisect_right(upto, share, key=rounded), last)
    if method == "inverted_cdf" or ordered[i] == ordered[j]:
        return ordered[i].astype(dtype)
    a, b = ordered[i].item(), ordered[j].item()
    if ordered.dtype.kind == "f" or (abs(a) < WIDE and abs(b) < WIDE):
        # By NumPy's formula, which rounds more than once.
        return halfway(a, b).astype(dtype)
    return np.float64(mixture(a, b, 0.5)).astype(dtype)


def halfway(a: float, b: float) -> Any:
    """The mean of two numbers that differ, as `numpy.quantile` has it where that is finite."""
    with np.errstate(all="ignore"):
        middle = np.quantile([a, b], 0.5)
    return middle if np.isfinite(middle) else np.float64(mixture(a, b, 0.5))


def rounded(number: Fraction | int) -> Fraction | int:
    """A number rounded to 53 bits, whatever its magnitude."""
    if number == 0:
        return number
    exponent = number.numerator.bit_length() - number.denominator.bit_length() - 53
    scale = Fraction(2) ** exponent
    if number / scale >= 2**53:
        scale *= 2
    return round(number / scale) * scale


def _window_mean(
    ordered: NDArray[Any],
    parts: list[int],
    upto: list[int],
    q: Fraction,
    dtype: np.dtype[Any],
) -> Any:
    """The mean over the window of the estimator of type 7."""
    total = upto[-1]
    width = Fraction(sum(part * part for part in parts), total)
    low = q * (total - width)
    high = low + width
    some = range(bisect_right(upto, low), min(bisect_left(upto, high) + 1, len(upto)))
    first, last = ordered[some[0]], ordered[some[-1]]
    if first == last:
        return np.asarray(first).astype(dtype)[()]
    if not np.isfinite([first, last]).all():
        with np.errstate(invalid="ignore"):
            return (first + last).astype(dtype)
    overlaps = {i: min(upto[i], high) - max(upto[i] - parts[i], low) for i in some}
    mean = sum(overlaps[i] * Fraction(ordered[i].item()) for i in some) / width
    return nearest(mean, dtype)


def root_of(x: Fraction) -> float:
    """The float64 that is nearest to a square root, to even if two are: by comparing squares."""
    scale = 2**1200
    near = float(Fraction(math.isqrt(x.numerator * scale**2 // x.denominator), scale))
    below, above = math.nextafter(near, 0), math.nextafter(near, math.inf)
    low, high = ((Fraction(near) + Fraction(other)) / 2 for other in (below, above))
    if x in (low * low, high * high):
        other = below if x == low * low else above
        return min(near, other, key=lambda y: int(y / math.ulp(y)) % 2)
    return below if x < low * low else above if x > high * high else near


def nearest(number: Fraction, dtype: np.dtype[Any]) -> Any:
    """The number of a floating-point dtype that is nearest to a fraction; of two the even one."""
    with np.errstate(over="ignore"):
        about = np.float64(float(number)).astype(dtype)
    beside = [np.nextafter(about, dtype.type(side)) for side in (-np.inf, np.inf)]
    every = [each for each in (*beside, about) if np.isfinite(each)]
    bits = f"u{dtype.itemsize}"
    return min(every, key=lambda x: (abs(Fraction(float(x)) - number), x.view(bits) & 1))


def check(ours: Any, theirs: Any, what: Any = "") -> None:
    """Assert that two answers are of one type, dtype and shape, and equal.

    All NaN are equal, and so are the two zeros.
    """
    assert type(ours) is type(theirs), (what, type(ours), type(theirs))
    assert ours.dtype == theirs.dtype, (what, ours.dtype, theirs.dtype)
    assert ours.dtype.isnative, what
    assert ours.shape == theirs.shape, (what, ours.shape, theirs.shape)
    equal = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    assert np.all(equal), (what, ours[~equal], theirs[~equal])
