"""Mean and standard deviation of all chunks from sums of each, the same under any chunking.

A chunk's sums are taken about a centre of its own, its middle pivot, so that nothing cancels: the
mean is at most a standard deviation from the median. They are kept as unevaluated sums of two
float64, exact to about 2**-100 (Dekker 1971; Knuth, volume 2, 4.2.2), so that what is rounded at
the end does not depend on how the elements were divided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.cuts import Arrays, FloatArray, IntArray

SCALE = 2.0**-600
LARGE = 2.0**400  # whose square can be added up


@dataclass(frozen=True, slots=True, eq=False)
class Moments(Arrays):
    """Sums of one chunk, or of several.

    Parameters
    ----------
    n : ndarray of int64, shape (B,)
        Finite elements of each chunk.
    n_high, n_low : ndarray of int64, shape (B,)
        Elements that are inf and -inf.
    centre : ndarray of float64, shape (B,)
        A number near all of them.
    total, square : ndarray of float64, shape (B, 2)
        The sums of their columns are those of ``(x - centre) * scale`` and of its squares.
    scale : ndarray of float64, shape (B,)
        1, or `SCALE` where that would be too large for a float64.
    """

    n: IntArray
    n_high: IntArray
    n_low: IntArray
    centre: FloatArray
    total: FloatArray
    square: FloatArray
    scale: FloatArray

    @classmethod
    def of_chunk(
        cls,
        n: int,
        n_high: int,
        n_low: int,
        centre: float,
        total: Sequence[float],
        square: Sequence[float],
        scale: float,
    ) -> Self:
        """Of a single chunk, from numbers that are to be added up: in two float64 for each."""
        return cls(
            np.array([n], np.int64),
            np.array([n_high], np.int64),
            np.array([n_low], np.int64),
            np.array([centre]),
            np.array([_in_two(total)]),
            np.array([_in_two(square)]),
            np.array([scale]),
        )

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Those of all chunks of `parts`."""
        columns = ([getattr(part, field.name) for part in parts] for field in fields(cls))
        return cls(*(np.concatenate(column) for column in columns))

    @property
    def is_scaled(self) -> bool:
        """Whether no sum is infinite for want of scale, nor will be, and no element."""
        fits = np.isfinite(self.square).all() and (np.abs(self.centre) < LARGE).all()
        return bool(fits and not self.n_high.any() | self.n_low.any())

    def mean_and_std(self) -> tuple[float, float]:
        """Of all elements; NaN of none, and as NumPy's where some are infinite."""
        n, n_high, n_low = (int(count.sum()) for count in (self.n, self.n_high, self.n_low))
        if n_high or n_low:
            mean = math.nan if n_high and n_low else math.inf if n_high else -math.inf
            return mean, math.nan
        if n == 0:
            return math.nan, math.nan
        some = self.n > 0
        scale = float(self.scale[some].min())
        more = (scale / self.scale[some])[:, None]
        counts, centre = self.n[some].astype(np.float64), self.centre[some] * scale
        total, square = self.total[some] * more, self.square[some] * more * more
        with np.errstate(over="ignore", invalid="ignore"):
            parts = np.concatenate([*total.T, *product(counts, centre)]).tolist()
            mean = _quotient(parts, n)
            # About the mean instead of the centres; and about the true mean, which was rounded.
            shift, lost = two_sum(centre, -mean)
            left = _sum(*total.T, *product(counts, shift), counts * lost)
            shift_squared, error = product(shift, shift)
            error = error + 2 * shift * lost
            squares = _sum(
                *square.T,
                *(2 * part for part in product(shift, total[:, 0])),
                2 * (shift * total[:, 1] + lost * total[:, 0]),
                *product(counts, shift_squared),
                counts * error,
                np.array([-left * (left / n)]),
            )
        return mean / scale, math.sqrt(max(squares, 0.0) / n) / scale


# --- Of many lanes --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class LaneMoments(Arrays):
    """Sums of many lanes, each about a centre that all parts of the lane share.

    Parameters
    ----------
    n, n_high, n_low : ndarray of int64, shape (n_lanes,)
        Finite elements; elements that are inf and -inf.
    centre : ndarray of float64, shape (n_lanes,)
        The median, or 0 if that is not finite.
    total, square : ndarray of float64, shape (n_lanes, 2)
        The sums of their columns are those of ``(x - centre) * scale`` and of its squares.
    scale : ndarray of float64, shape (n_lanes,)
        As in `Moments`.
    """

    n: IntArray
    n_high: IntArray
    n_low: IntArray
    centre: FloatArray
    total: FloatArray
    square: FloatArray
    scale: FloatArray

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Those of several parts of the same lanes."""
        n, n_high, n_low = (
            np.sum([getattr(part, name) for part in parts], axis=0)
            for name in ("n", "n_high", "n_low")
        )
        scale = np.min([part.scale for part in parts], axis=0)
        total = square = np.zeros((len(scale), 2))
        for part in parts:
            more = (scale / part.scale)[:, None]
            total = _added(total, part.total * more)
            square = _added(square, part.square * more * more)
        return cls(n, n_high, n_low, parts[0].centre, total, square, scale)

    def mean_and_std(self) -> tuple[FloatArray, FloatArray]:
        """Of all elements of each lane; NaN of none, and as NumPy's where some are infinite."""
        n = self.n.astype(np.float64)
        with np.errstate(all="ignore"):
            mean, rest = _divided(self.total, n)
            about, lost = two_sum(self.centre * self.scale, mean)
            # The squares of differences from the mean: those from the centre, less n times that of
            # the mean's own. It is at most half of them, for the centre is the median.
            own, error = product(mean, self.total[:, 0])
            error = error + mean * self.total[:, 1] + rest * self.total[:, 0]
            squares = _added(self.square, -np.stack([own, error], axis=1))
            left = np.maximum(squares[:, 0] + squares[:, 1], 0.0)
            means, deviations = (about + (lost + rest)) / self.scale, np.sqrt(left / n) / self.scale
            infinite = np.where(self.n_high > 0, np.inf, 0) + np.where(self.n_low > 0, -np.inf, 0)
        is_infinite = (self.n_high > 0) | (self.n_low > 0)
        nothing = (self.n == 0) | is_infinite
        means = np.where(is_infinite, infinite, np.where(nothing, np.nan, means))
        return means, np.where(nothing, np.nan, deviations)


def _added(a: FloatArray, b: FloatArray) -> FloatArray:
    """Sums of numbers that are each two float64, shape (k, 2), in the same form."""
    total, lost = two_sum(a[:, 0], b[:, 0])
    rest, lost_rest = two_sum(a[:, 1], b[:, 1])
    total, lost = two_sum(total, lost + rest)
    return np.stack(two_sum(total, lost + lost_rest), axis=1)


def _divided(a: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Such numbers by others, as two float64 each."""
    quotient = a[:, 0] / n
    whole, error = product(quotient, n)
    rest = ((a[:, 0] - whole) - error + a[:, 1]) / n
    return two_sum(quotient, rest)


# --- Arithmetic -----------------------------------------------------------------------------------


def _in_two(numbers: Sequence[float]) -> tuple[float, float]:
    """The sum of some numbers as that of two; infinite if it is too large."""
    high = _rounded_sum(numbers)
    return high, _rounded_sum([*numbers, -high]) if math.isfinite(high) else 0.0


def _rounded_sum(numbers: Sequence[float]) -> float:
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):  # of finite numbers, and of infinite ones
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.sum(numbers))


def _quotient(numbers: Sequence[float], n: int) -> float:
    """The sum of some numbers by n, rounded once."""
    high, low = _in_two(numbers)
    return float((Fraction(high) + Fraction(low)) / n) if math.isfinite(high) else high


def _sum(*columns: NDArray[Any]) -> float:
    """The sum of all numbers, rounded once."""
    return _rounded_sum(np.concatenate(columns).tolist())


def two_sum(a: FloatArray, b: Any) -> tuple[FloatArray, FloatArray]:
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


def product(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A product and its rounding error (Dekker; Veltkamp's splitting)."""
    rounded = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    error = ((a_high * b_high - rounded) + a_high * b_low + a_low * b_high) + a_low * b_low
    return rounded, error


def _split(a: FloatArray) -> tuple[FloatArray, FloatArray]:
    wide = 134217729.0 * a  # 2**27 + 1
    high = wide - (wide - a)
    return high, a - high
