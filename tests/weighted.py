"""Weighted quantiles by fractions: the right answers, from their definitions alone."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

METHODS = ("inverted_cdf", "averaged_inverted_cdf", "linear")

_rng = np.random.default_rng(22)

WEIGHTS: dict[str, Callable[[tuple[int, ...]], NDArray[Any]]] = {
    "equal": np.ones,
    "integers": lambda shape: _rng.integers(0, 4, shape),
    "tenths": lambda shape: _rng.integers(0, 9, shape) / 10,
    "uniform": _rng.random,
    "lognormal": lambda shape: _rng.lognormal(0, 3, shape),
    "heavy": lambda shape: np.where(_rng.random(shape) < 0.05, 100.0, _rng.random(shape)),
    "all magnitudes": lambda shape: np.ldexp(_rng.random(shape), _rng.integers(-1070, 900, shape)),
    "huge": lambda shape: _rng.random(shape) * 1.7e308,
    "tiny": lambda shape: _rng.integers(0, 3, shape) * 5e-324,
    "large integers": lambda shape: _rng.integers(2**53, 2**62, shape),
    "mostly none": lambda shape: np.where(_rng.random(shape) < 0.7, 0, _rng.random(shape)),
}


def quantile(values: Any, weights: Any, q: float, method: str, dtype: Any = "f8") -> Any:
    """The weighted quantile of the elements that weigh something, in that dtype.

    Parameters
    ----------
    values, weights : array_like
        One-dimensional; one element at least weighs something, and no such element is NaN.
    """
    if method == "linear":
        items, sums = _in_order(values, weights)
        return _type_7(items, sums, Fraction(q), np.dtype(dtype))
    lower, upper = neighbours(values, weights, q)
    if method == "inverted_cdf" or lower == upper:
        return np.dtype(dtype).type(lower)
    two = np.array([lower, upper], np.float64)
    with np.errstate(all="ignore"):
        found = np.quantile(two, 0.5, method="averaged_inverted_cdf")
        return np.dtype(dtype).type(found if np.isfinite(found) else (two / 2).sum())


def neighbours(values: Any, weights: Any, q: float) -> tuple[Any, Any]:
    """The first element up to which the share q of the weight is reached, and, if the elements up
    to it weigh exactly that, the next; else the same."""
    items, sums = _in_order(values, weights)
    last = items[-1][0]
    if q == 1:
        return last, last
    share = to_53_bits(Fraction(q) * sums[-1])
    pairs = [(x, to_53_bits(total)) for (x, _), total in zip(items, sums, strict=True)]
    lower = next((x for x, total in pairs if total >= share), last)
    return lower, next((x for x, total in pairs if total > share), last)


def to_53_bits(number: Fraction) -> Fraction:
    """A sum of floats, or a share of it, rounded as a float64 of any exponent is."""
    bits = number.numerator.bit_length() - number.denominator.bit_length() + 1
    scale = Fraction(2) ** (bits - 53)
    return round(number / scale) * scale


def _in_order(values: Any, weights: Any) -> tuple[list[tuple[Any, Fraction]], list[Fraction]]:
    """Elements with their weights, and the sums of these."""
    pairs = zip(np.asarray(values).tolist(), np.asarray(weights).tolist(), strict=True)
    items = sorted((x, Fraction(w)) for x, w in pairs if w > 0)
    return items, list(accumulate(w for _, w in items))


def _type_7(
    items: list[tuple[Any, Fraction]], sums: list[Fraction], q: Fraction, dtype: np.dtype[Any]
) -> Any:
    width = sum(w * w for _, w in items) / sums[-1]
    low = q * (sums[-1] - width)
    overlaps = [
        min(low + width, total) - max(low, total - w)
        for (_, w), total in zip(items, sums, strict=True)
    ]
    some = [(x, part) for (x, _), part in zip(items, overlaps, strict=True) if part > 0]
    infinite = [x for x, _ in some if abs(x) == np.inf]
    if some[0][0] == some[-1][0] or infinite:
        return dtype.type(sum(infinite) if infinite else some[0][0])
    return rounded(sum(Fraction(x) * part for x, part in some) / width, dtype)


def rounded(number: Fraction, dtype: np.dtype[Any]) -> Any:
    """The nearest number of a dtype, the even one of two."""
    near = dtype.type(float(number))
    neighbours = [np.nextafter(near, dtype.type(end)) for end in (-np.inf, np.inf)]
    bits = np.dtype(f"u{dtype.itemsize}")
    return min(
        (near, *neighbours),
        key=lambda x: (abs(Fraction(float(x)) - number), int(x.view(bits)) % 2),
    )


def by_lane(
    a: NDArray[Any],
    weights: NDArray[Any],
    axes: tuple[int, ...],
    q: tuple[float, ...],
    method: str,
    dtype: Any = "f8",
) -> NDArray[Any]:
    """The answers ``(len(q), *others)`` for every lane."""
    kept = [axis for axis in range(a.ndim) if axis not in axes]
    shape = tuple(a.shape[axis] for axis in kept)
    tables = [
        np.broadcast_to(x, a.shape).transpose(*kept, *axes).reshape(int(np.prod(shape)), -1)
        for x in (a, weights)
    ]
    found = [
        [quantile(lane, some, each, method, dtype) for lane, some in zip(*tables, strict=True)]
        for each in q
    ]
    return np.array(found, dtype).reshape(len(q), *shape)
