"""Mean and standard deviation from exact sums, the same to the last bit under any chunking.

The sum of the elements and that of their squares are integers, in units so small that every float64
and its square is a whole number of them (Kulisch's accumulator; Neal 2015). Integers are added
without rounding, whatever the order, the magnitudes or the cancellation. Only at the end the mean
and the root of the variance are rounded, once and correctly.

Kernels add up digits of 32 bits, each in an int64, so that carries can wait.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from dask_gpuselect.maths.cuts import Arrays, IntArray

DIGIT = 32  # bits
TOTAL_POINT = 34  # digits behind the binary point of a sum: a unit is 2**-1088
SQUARE_POINT = 2 * TOTAL_POINT  # of a sum of squares
TOTAL_DIGITS, SQUARE_DIGITS = 68, 136  # of 2**63 elements, of any magnitude
CUBE_DIGITS = TOTAL_DIGITS + SQUARE_DIGITS  # of squares times weights
MASK, SIGN = (1 << DIGIT) - 1, 1 << DIGIT - 1
# Where the bits of a float64 begin: this more than its biased exponent, and twice it in squares.
OFFSET = DIGIT * TOTAL_POINT - 1075


@dataclass(frozen=True, slots=True)
class Moments(Arrays):
    """Sums of one chunk, or of several.

    Parameters
    ----------
    n : int
        Finite elements.
    n_high, n_low : int
        Elements that are inf and -inf.
    total, square : int
        The exact sums of the finite elements and of their squares, in units of ``2**-1088`` and
        ``2**-2176``.

    Notes
    -----
    Of elements that weigh, each counts as often as it weighs: `n` is the sum of the weights, and
    all three sums are in units that are ``2**-1088`` of these, so mean and deviation are found
    alike.
    """

    n: int
    n_high: int
    n_low: int
    total: int
    square: int

    @classmethod
    def of_digits(cls, n: int, n_high: int, n_low: int, total: IntArray, square: IntArray) -> Self:
        """The moments whose sums have these digits, the lowest first."""
        return cls(n, n_high, n_low, integer(total), integer(square))

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """The moments of the elements of all parts."""
        return cls(*(sum(getattr(part, field.name) for part in parts) for field in fields(cls)))

    def mean_and_std(self) -> tuple[float, float]:
        """Mean and deviation of all elements, each rounded once: NaN without elements, and as
        NumPy has it where some are infinite."""
        if self.n_high or self.n_low:
            both = self.n_high and self.n_low
            return math.nan if both else math.inf if self.n_high else -math.inf, math.nan
        if self.n == 0:
            return math.nan, math.nan
        return rounded(self.n, self.total, self.square)

    def sample_std(self) -> float:
        """The standard deviation with n - 1 degrees of freedom, rounded once; NaN of fewer than two
        elements, or where some are infinite."""
        if self.n_high or self.n_low or self.n < 2:
            return math.nan
        variance = self.n * self.square - self.total * self.total
        return rounded_root(variance, self.n * (self.n - 1) << DIGIT * SQUARE_POINT)


def rounded(n: int, total: int, square: int) -> tuple[float, float]:
    """The mean and the standard deviation of n elements from their exact sums."""
    variance = n * square - total * total
    return (
        total / (n << DIGIT * TOTAL_POINT),
        rounded_root(variance, n * n << DIGIT * SQUARE_POINT),
    )


def rounded_root(numerator: int, denominator: int) -> float:
    """The square root of a fraction, rounded once.

    From an integer root of 54 bits or more whose last bit says whether it is exact: the division
    by a power of two then rounds as if all bits were there.
    """
    shift = (numerator.bit_length() - denominator.bit_length() - 109) // 2
    if shift >= 0:
        return (_root_to_odd(numerator, denominator << 2 * shift) << shift) / 1
    return _root_to_odd(numerator << -2 * shift, denominator) / (1 << -shift)


def _root_to_odd(numerator: int, denominator: int) -> int:
    root = math.isqrt(numerator // denominator)
    return root | (root * root * denominator != numerator)


def integer(digits: IntArray) -> int:
    """The number that some digits make, the lowest first; they may be negative, and large."""
    return sum(digit << DIGIT * i for i, digit in enumerate(digits.tolist()) if digit)


def integers(table: IntArray) -> list[int]:
    """The number that the digits of each row make.

    Words are read as bytes: of 1,000 rows of 68 digits 3 microseconds each, where adding up digits
    takes 34. Upper words are signed: each is read as ``2**31`` more, which is taken off again.
    """
    words = np.ascontiguousarray(table, "<i8").view("<u4").reshape(*table.shape, 2)
    size = 4 * table.shape[1]
    lower, upper = words[..., 0].tobytes(), (words[..., 1] ^ np.uint32(SIGN)).tobytes()
    more = int.from_bytes(SIGN.to_bytes(4, "little") * table.shape[1], "little")
    return (
        [
            int.from_bytes(lower[start : start + size], "little")
            + (int.from_bytes(upper[start : start + size], "little") - more << DIGIT)
            for start in range(0, size * len(table), size)
        ]
        if size
        else [0] * len(table)
    )
