"""Means and standard deviations from exact sums, of one lane or many, each rounded once.

Nearly all of them are rounded correctly from two float64. Where these are not precise enough to
tell, Python integers are used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray, totals
from dask_gpuselect.maths.exact_sums import (
    DIGIT,
    EVEN_BITS,
    MASK,
    SQUARE_POINT,
    TOTAL_POINT,
    ExactSums,
    product,
    quotients,
    sum_of,
    two_sum,
)
from dask_gpuselect.maths.tables import concatenated


@dataclass(frozen=True, slots=True, eq=False)
class Moments(Arrays):
    """Exact sums of the elements of some lanes, or of parts of them, and of their squares.

    A plain array is a single lane.

    Parameters
    ----------
    n : ndarray of int64, or ExactSums; shape (n_lanes,)
        Number of finite elements, or their weight.
    n_high, n_low : ndarray of int64, shape (n_lanes,)
        Number of elements that are inf and -inf.
    total, square : ExactSums, shape (n_lanes,)
        Sums of the finite elements and of their squares, each times its weight if it has one.
    """

    n: IntArray | ExactSums
    n_high: IntArray
    n_low: IntArray
    total: ExactSums
    square: ExactSums

    @classmethod
    def of(
        cls,
        values: NDArray[Any],
        lane: IntArray,
        n_lanes: int,
        *,
        counts: NDArray[Any] | None = None,
        weights: NDArray[Any] | None = None,
    ) -> Self:
        """Add up elements in the lanes where they are.

        `counts` has how often each element occurs; then squares must be exact as float64. `weights`
        has what each one weighs.
        """
        numbers = np.zeros((3, n_lanes), np.int64)
        is_finite = np.isfinite(values)
        for row, some in zip(
            numbers, (is_finite, values == np.inf, values == -np.inf), strict=True
        ):
            np.add.at(row, lane[some], 1 if counts is None else counts[some].astype(np.int64))
        n, n_high, n_low = numbers
        lane, values = lane[is_finite], values[is_finite]
        times = [each[is_finite] for each in (counts, weights) if each is not None]
        squared = [values, values] if counts is None else [np.square(values, dtype=np.float64)]
        total, square = (
            ExactSums.of(lane, n_lanes, *factors, *times) for factors in ([values], squared)
        )
        weight = n if weights is None else ExactSums.of(lane, n_lanes, *times)
        return cls(weight, n_high, n_low, total, square)

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Add up several parts of the same lanes."""
        return cls(*map(sum_of, zip(*(part.parts() for part in parts), strict=True)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the sums of consecutive lanes."""
        return cls(*map(concatenated, zip(*(part.parts() for part in parts), strict=True)))

    def __getitem__(self, lanes: Any) -> Self:
        """Take some lanes."""
        return type(self)(*(column[lanes] for column in self.parts()))

    def at_places(self, lanes: NDArray[Any], n: int) -> Self:
        """Add up the sums that belong to the same of `n` lanes."""
        columns: list[Any] = [
            totals(lanes, each, n) if isinstance(each, np.ndarray) else each.at_places(lanes, n)
            for each in self.parts()
        ]
        return type(self)(*columns)

    def mean_and_std(self) -> tuple[FloatArray, FloatArray]:
        """Round the mean and standard deviation of each lane once.

        They are NaN without elements, and as in NumPy where some elements are infinite.
        """
        results = np.zeros((2, len(self.n)))
        for start in range(0, len(self.n), LANES):
            lanes = slice(start, start + LANES)
            results[:, lanes] = _rounded_lanes(self.n[lanes], self.total[lanes], self.square[lanes])
        infinite = np.where(self.n_high > 0, np.inf, 0.0)
        with np.errstate(invalid="ignore"):
            infinite = infinite + np.where(self.n_low > 0, -np.inf, 0.0)
        is_infinite = (self.n_high > 0) | (self.n_low > 0)
        means = np.where(is_infinite, infinite, results[0])
        return means, np.where(is_infinite, np.nan, results[1])

    def sample_std(self) -> list[float]:
        """Round the standard deviation with n - 1 degrees of freedom of each lane without weights.

        It is NaN for fewer than two elements, or where some are infinite.
        """
        assert isinstance(self.n, np.ndarray)
        is_some = (self.n > 1) & (self.n_high == 0) & (self.n_low == 0)
        totals, squares = self.total.integers(-TOTAL_POINT), self.square.integers(-SQUARE_POINT)
        return [
            rounded_root(n * square - total * total, n * (n - 1) << DIGIT * SQUARE_POINT)
            if is_one
            else math.nan
            for is_one, n, total, square in zip(
                is_some, self.n.tolist(), totals, squares, strict=True
            )
        ]


@dataclass(frozen=True, slots=True, eq=False)
class RoundedMoments(Arrays):
    """Means and standard deviations of whole lanes, rounded.

    They take 16 bytes a lane, where `Moments` may take 1,600.
    """

    mean: FloatArray
    std: FloatArray

    @classmethod
    def of_digits(cls, n: int, total: IntArray, square: IntArray) -> Self:
        """Round those of n finite elements, from the digits of their sums that kernels add up.

        For one lane this takes a fifth of the time of exact sums in arrays.
        """
        mean, std = rounded(n, integer_of(total), integer_of(square))
        return cls(np.array([mean]), np.array([std]))

    def mean_and_std(self) -> tuple[FloatArray, FloatArray]:
        return self.mean, self.std


def integer_of(digits: IntArray) -> int:
    """Return the number with some digits of 32 bits, the lowest first. They may be any int64."""
    return sum(int(digits[i]) << DIGIT * i for i in np.flatnonzero(digits).tolist())


def integers_of(table: IntArray) -> list[int]:
    """Return the number of each row of digits; see `integer_of`."""
    numbers: list[int] = ExactSums.of_table(table, 0).integers(0).tolist()
    return numbers


def rounded(n: int, total: int, square: int) -> tuple[float, float]:
    """Round the mean and the standard deviation of n elements.

    `total` and `square` are in units of ``2**-1088`` and ``2**-2176``. With weights, `n` is in
    units of ``2**-1088``, and the units of the other two are smaller by that factor.
    """
    if n == 0:
        return math.nan, math.nan
    variance = n * square - total * total
    return (
        total / (n << DIGIT * TOTAL_POINT),
        rounded_root(variance, n * n << DIGIT * SQUARE_POINT),
    )


def rounded_root(numerator: int, denominator: int) -> float:
    """Round the square root of a fraction once.

    The root is computed as an integer of 54 bits or more. Its last bit is set if it is not exact,
    so the division by a power of two then rounds as if all bits were there.
    """
    shift = (numerator.bit_length() - denominator.bit_length() - 109) // 2
    if shift >= 0:
        return (_root_to_odd(numerator, denominator << 2 * shift) << shift) / 1
    return _root_to_odd(numerator << -2 * shift, denominator) / (1 << -shift)


def _root_to_odd(numerator: int, denominator: int) -> int:
    root = math.isqrt(numerator // denominator)
    return root | (root * root * denominator != numerator)


def means(n: IntArray, total: ExactSums, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Divide the exact sum of each lane by its number of elements, and round once to a dtype.

    The means of no elements are NaN.
    """
    by, sizes = np.maximum(n, 1), total.magnitude()
    with np.errstate(all="ignore"):
        rounded_sizes, is_sure = _quotient(sizes, _Divisor.of(by), is_narrow=dtype.itemsize < 8)
        answers = np.where(total.is_negative, -rounded_sizes, rounded_sizes).astype(dtype)
    unsure = np.flatnonzero(~is_sure)
    n_units = by[unsure].astype(object) << DIGIT * TOTAL_POINT
    answers[unsure] = quotients(total[unsure].integers(-TOTAL_POINT), n_units, dtype)
    return np.where(n > 0, answers, dtype.type(np.nan))


# --- Sums of many lanes, rounded ------------------------------------------------------------------

LANES = 1 << 12  # lanes that are rounded together: their digits stay in the cache


def _rounded_lanes(n: IntArray | ExactSums, total: ExactSums, square: ExactSums) -> FloatArray:
    """Round the mean and deviation of some lanes, ``(2, n_lanes)``.

    Floats do that, or integers where floats may round wrongly or take longer.
    """
    results, unsure = np.empty((2, len(n))), np.arange(len(n))
    if not _are_integers_faster(len(n), len(total.digits)):
        results, is_sure = _rounded_by_floats(n, total, square)
        unsure = np.flatnonzero(~is_sure)
    more = 0 if isinstance(n, np.ndarray) else TOTAL_POINT
    numbers = [
        each[unsure].tolist() if isinstance(each, np.ndarray) else each[unsure].integers(-point)
        for each, point in ((n, more), (total, more + TOTAL_POINT), (square, more + SQUARE_POINT))
    ]
    for i, lane in zip(unsure.tolist(), zip(*numbers, strict=True), strict=True):
        results[:, i] = rounded(*lane)
    return results


def _are_integers_faster(n_lanes: int, n_digits: int) -> bool:
    """Return whether Python integers take less time than arrays.

    Integers take 5 microseconds for a lane and a twelfth for each digit. Arrays take 330 for all
    lanes, and 18 for each digit.
    """
    return n_lanes * (5 + n_digits / 12) < 330 + 18 * n_digits


def _rounded_by_floats(
    n: IntArray | ExactSums, total: ExactSums, square: ExactSums
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Compute means and deviations, ``(2, n_lanes)``, and mark lanes where both are surely right.

    Other lanes may be rounded wrongly.
    """
    sizes, by, own = total.magnitude(), _Divisor.of(n), _exact(n)
    spread = _product(own, square) - _product(sizes, sizes)  # n squared times the variance
    with np.errstate(all="ignore"):
        mean, is_known = _quotient(sizes, by)
        mean = np.where(total.is_negative, -mean, mean)
        deviation, is_sure = _root_over(spread, by)
    is_none = by.high == 0
    return np.where(is_none, np.nan, np.stack([mean, deviation])), is_none | is_sure & is_known


def _exact(n: IntArray | ExactSums) -> ExactSums:
    """Return the sum of the weights of each lane, which are 1 if they are counted."""
    if isinstance(n, ExactSums):
        return n
    return ExactSums(0, np.stack([n & MASK, n >> DIGIT])).trimmed()


def _product(some: ExactSums, others: ExactSums) -> ExactSums:
    """Multiply numbers that are not negative, without carrying the digits of the products."""
    is_square, some, others = some is others, some.in_digits(), others.in_digits()
    words = others.digits.astype(np.uint64)
    products = np.zeros((len(some.digits) + len(words) + 1, *some.shape), np.uint64)
    shift, mask = np.uint64(DIGIT), np.uint64(MASK)
    for i, word in enumerate(some.digits.astype(np.uint64)):
        whole = word * (words[:i] if is_square else words)
        products[i : i + len(whole)] += whole & mask
        products[i + 1 : i + 1 + len(whole)] += whole >> shift
    if is_square:
        products *= np.uint64(2)
        whole = words * words
        products[:-1:2] += whole & mask
        products[1::2] += whole >> shift
    return ExactSums(some.first + others.first, products.view(np.int64))


TAKEN = 5  # digits, with 129 bits or more
SCALES = 2.0 ** (-DIGIT * np.arange(TAKEN)[:, None])
ERROR = 2.0**-96  # bound of the relative error of two float64


def _leading(numbers: ExactSums) -> tuple[NDArray[Any], ...]:
    """Take the leading bits of numbers that are not negative, as three floats.

    A number is ``(high + middle + low) * 2**exponent``, with an even exponent. The three do not
    overlap, and are precise to 2**-120 of the number. The last result is True where nothing is
    left.
    """
    leading, top, is_whole = numbers.leading_digits(TAKEN)
    a, b, c, d, e = leading * SCALES
    high, middle = two_sum(a, b)
    middle, low = two_sum(middle, c)
    high, middle = two_sum(high, middle)
    middle, low = two_sum(middle, low)
    low, rest = two_sum(low, d)
    low, lost = two_sum(low, e)
    is_all = (rest == 0) & (lost == 0) & is_whole
    return high, middle, low, DIGIT * top, is_all


def _quotient(
    numbers: ExactSums, by: _Divisor, *, is_narrow: bool = False
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Divide numbers, and mark the quotients that are surely rounded correctly.

    See `_rounded_sum`.
    """
    high, middle, low, exponent, is_all = _leading(numbers)
    first, rest, more = by.divide(high)
    rest, lost = two_sum(rest, middle)
    left = more + (lost + low)
    second = (rest + left) / by.high
    # Where the quotient may be a tie, which is common if n is 2 or 4, all of its bits must be
    # known.
    again, lost = product(second, by.high)
    is_exact = is_all & by.is_float & (left == 0) & (again == rest) & (lost == 0)
    return _rounded_sum(first, second, is_exact, exponent - by.exponent, is_narrow=is_narrow)


class _Divisor(NamedTuple):
    """Leading bits of divisors as of `_leading`; there are no others in those that are one float.

    `rest` is None if all of them are one float.
    """

    high: FloatArray
    rest: tuple[FloatArray, FloatArray] | None
    exponent: IntArray
    is_float: NDArray[np.bool_] | bool

    @classmethod
    def of(cls, n: IntArray | ExactSums) -> Self:
        if isinstance(n, np.ndarray):  # counts are below 2**53
            return cls(n.astype(np.float64), None, np.zeros_like(n), True)
        high, middle, low, exponent, is_all = _leading(n)
        return cls(high, (middle, low), exponent, is_all & (middle == 0) & (low == 0))

    def divide(self, high: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | float]:
        """Divide floats; return the quotients and what they leave of the floats, as two numbers."""
        first = high / self.high
        whole, error = product(first, self.high)
        rest: FloatArray = (high - whole) - error
        if self.rest is None:
            return first, rest, 0.0
        less, more = product(first, self.rest[0])
        rest, lost = two_sum(rest, -less)
        return first, rest, lost - more - first * self.rest[1]


def _root_over(numbers: ExactSums, by: _Divisor) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Divide square roots, and mark the quotients that are surely rounded correctly."""
    high, middle, low, exponent, is_all = _leading(numbers)
    root = np.sqrt(high)
    whole, error = product(root, root)
    rest, more = two_sum((high - whole) - error, middle)
    second = np.where(root > 0, (rest + (more + low)) / (2 * root), 0.0)
    twice, lost = product(2 * root, second)
    own, lost_own = product(second, second)
    left, lost_left = two_sum(rest - twice, more)
    left, lost_more = two_sum(left, low - own)
    lost = np.abs(lost) + np.abs(lost_own) + np.abs(lost_left) + np.abs(lost_more)
    is_root = is_all & (left == 0) & (lost == 0)
    first, rest, behind = by.divide(root)
    is_exact = is_root & by.is_float & (np.frexp(by.high)[0] == 0.5) | (high == 0)
    second = (rest + (second + behind)) / by.high
    return _rounded_sum(first, second, is_exact, exponent // 2 - by.exponent)


def _rounded_sum(
    first: FloatArray,
    second: FloatArray,
    is_exact: NDArray[np.bool_],
    exponent: IntArray,
    *,
    is_narrow: bool = False,
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Add pairs of non-negative numbers, and mark the sums that are surely rounded correctly.

    The pairs are exact, or have errors of at most `ERROR`. If the sums are rounded again, to a
    narrow dtype, those that may be ties of it are moved to the next float64 on the side of the sum.
    """
    first, second = two_sum(first, second)
    error = np.where(is_exact, 0.0, np.abs(first) * ERROR)
    low, high = first + (second - error), first + (second + error)
    sums = np.ldexp(low, exponent)
    is_sure = (low == high) & np.isfinite(sums)
    if is_narrow:
        sums, is_even = moved_from_ties(sums, second)
        is_sure &= ~is_even | is_exact | (np.abs(second) > error)
    small = np.flatnonzero((sums <= LEAST_NORMAL) & (first != 0))
    if len(small):
        sums[small], is_sure[small] = _rounded_to_subnormal(
            first[small], second[small], error[small], exponent[small]
        )
    return sums, is_sure


def moved_from_ties(numbers: FloatArray, rest: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Move float64 that may be halfway between numbers of a narrow dtype by the sign of a rest.

    The rest is what rounding them has cut off. Also return which numbers may be halfway.
    """
    is_even = numbers.view(np.uint64) & np.uint64(EVEN_BITS) == 0
    moved = np.nextafter(numbers, np.copysign(np.inf, rest))
    return np.where(is_even & (rest != 0), moved, numbers), is_even


LEAST_NORMAL, LEAST_EXPONENT = 2.0**-1022, -1074


def _rounded_to_subnormal(
    first: FloatArray, second: FloatArray, error: FloatArray, exponent: IntArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Add pairs of numbers that may be subnormal, so that the sum is rounded once.

    It is rounded at the unit of subnormal numbers, which have fewer bits than others.
    """
    unit = np.ldexp(1.0, LEAST_EXPONENT - exponent)
    whole = (first + 2.0**52 * unit) - 2.0**52 * unit
    rest = np.abs((first - whole) + second)
    is_tie = (error == 0) & (second == 0)  # `rest`, if any, is half a unit: rounded to even
    is_sure = np.isfinite(unit) & ((rest + error < unit / 2) | is_tie)
    return np.ldexp(whole, exponent), is_sure
