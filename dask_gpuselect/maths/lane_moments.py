"""Means and standard deviations of many lanes from exact sums, each rounded correctly.

Two float64 hold what nearly all of them are rounded from; where these cannot tell, integers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray
from dask_gpuselect.maths.moments import (
    DIGIT,
    MASK,
    OFFSET,
    SQUARE_DIGITS,
    SQUARE_POINT,
    TOTAL_DIGITS,
    TOTAL_POINT,
    integer,
    rounded,
)


@dataclass(frozen=True, eq=False)
class Digits(Arrays):
    """A number for each lane, by the digits that are not zero in all of them.

    Parameters
    ----------
    first : int
        Which digit comes first, counted from the lowest that a number can have.
    columns : ndarray of int64, shape (n_lanes, n_digits)
        The lowest first. They may be negative, and larger than 32 bits: carries wait.
    """

    first: int
    columns: IntArray

    @classmethod
    def trimmed(cls, first: int, columns: IntArray) -> Self:
        """Without digits that are zero everywhere, at both ends."""
        some = np.flatnonzero(columns.any(axis=0))
        if not len(some):
            return cls(first, columns[:, :0])
        start, stop = int(some[0]), int(some[-1]) + 1
        if stop - start == columns.shape[1]:
            return cls(first, columns)
        return cls(first + start, columns[:, start:stop].copy())

    @classmethod
    def sum(cls, parts: Sequence[Self]) -> Self:
        """The sums of the numbers of each lane."""
        first, n_digits = _span(parts)
        columns = np.zeros((len(parts[0].columns), n_digits), np.int64)
        for part in parts:
            columns[:, part._places(first)] += part.columns
        return cls(first, columns)

    @classmethod
    def joined(cls, pieces: Sequence[Self]) -> Self:
        """The numbers of some lanes, and of the next."""
        first, n_digits = _span(pieces)
        columns = np.zeros((sum(len(piece.columns) for piece in pieces), n_digits), np.int64)
        start = 0
        for piece in pieces:
            stop = start + len(piece.columns)
            columns[start:stop, piece._places(first)] = piece.columns
            start = stop
        return cls(first, columns)

    def _places(self, first: int) -> slice:
        return slice(self.first - first, self.first - first + self.columns.shape[1])

    def number(self, lane: int) -> int:
        """The number of one lane, in the units of `Moments`."""
        return integer(self.columns[lane]) << DIGIT * self.first


def _span(parts: Sequence[Digits]) -> tuple[int, int]:
    """The first digit of all numbers, and how many they have together."""
    some = [part for part in parts if part.columns.shape[1]]
    first = min((part.first for part in some), default=0)
    return first, max((part.first + part.columns.shape[1] for part in some), default=0) - first


@dataclass(frozen=True, slots=True, eq=False)
class LaneMoments(Arrays):
    """Sums of many lanes, or of parts of them.

    Parameters
    ----------
    n, n_high, n_low : ndarray of int64, shape (n_lanes,)
        Finite elements; elements that are inf and -inf.
    total, square : Digits
        The exact sums of the finite elements and of their squares, in the units of `Moments`.
    """

    n: IntArray
    n_high: IntArray
    n_low: IntArray
    total: Digits
    square: Digits

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """The moments of several parts of the same lanes together."""
        n, n_high, n_low = (
            np.sum([getattr(part, name) for part in parts], axis=0)
            for name in ("n", "n_high", "n_low")
        )
        total, square = (
            Digits.sum([getattr(part, name) for part in parts]) for name in ("total", "square")
        )
        return cls(n, n_high, n_low, total, square)

    def mean_and_std(self) -> tuple[FloatArray, FloatArray]:
        """Mean and deviation of each lane, each rounded once: NaN without elements, and as NumPy
        has it where some are infinite."""
        means, deviations = np.zeros((2, len(self.n)))
        for start in range(0, len(self.n), LANES):
            lanes = slice(start, start + LANES)
            means[lanes], deviations[lanes] = self._of_lanes(lanes)
        infinite = np.where(self.n_high > 0, np.inf, 0.0)
        with np.errstate(invalid="ignore"):
            infinite = infinite + np.where(self.n_low > 0, -np.inf, 0.0)
        is_infinite = (self.n_high > 0) | (self.n_low > 0)
        nothing = (self.n == 0) | is_infinite
        means = np.where(is_infinite, infinite, np.where(nothing, np.nan, means))
        return means, np.where(nothing, np.nan, deviations)

    def _of_lanes(self, lanes: slice) -> tuple[FloatArray, FloatArray]:
        """Mean and deviation of some lanes: fast, and by integers where that may round wrongly or
        takes longer."""
        n = np.maximum(self.n[lanes], 1)
        if _are_integers_faster(len(n), self.total.columns.shape[1]):
            return self._by_integers(n, lanes.start, np.arange(len(n)), *np.empty((2, len(n))))
        total, is_negative = _magnitude(self.total.columns[lanes])
        squares = np.ascontiguousarray(self.square.columns[lanes].T)
        spread, first = _spread(n, total, self.total.first, list(squares), self.square.first)
        with np.errstate(all="ignore"):
            mean, is_known = _quotient(_leading(total, self.total.first - TOTAL_POINT), n)
            mean = np.where(is_negative, -mean, mean)
            deviation, is_sure = _root_over(_leading(spread, first - SQUARE_POINT), n)
        unsure = np.flatnonzero(~(is_known & is_sure) | (n >= MANY))
        return self._by_integers(n, lanes.start, unsure, mean, deviation)

    def _by_integers(
        self, n: IntArray, start: int, which: IntArray, mean: FloatArray, deviation: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and deviation of the lanes from `start` on, of which some are found here."""
        for i in which.tolist():
            numbers = int(n[i]), self.total.number(start + i), self.square.number(start + i)
            mean[i], deviation[i] = rounded(*numbers)
        return mean, deviation


def _are_integers_faster(n_lanes: int, n_digits: int) -> bool:
    """Whether Python's integers take less time than arrays: 4 microseconds for a lane and a quarter
    for each digit, where arrays take 240 for all lanes, and 4 for each pair of digits."""
    n_pairs = n_digits * (n_digits + 1) // 2
    return n_lanes * (4 + n_digits / 4) < 240 + 4 * n_pairs


LANES = 1 << 12  # that are rounded together: their columns stay in the cache
MANY = 1 << 31  # elements of a lane from which on a digit times them is too large
Columns = list[IntArray]
"""Digits of many numbers, the lowest first, each of one column in [0, 2**32)."""


def _carried(columns: Columns) -> tuple[Columns, IntArray]:
    """Digits in [0, 2**32), with one more; and 0, or -1 for numbers that are negative."""
    carried = []
    carry = np.zeros_like(columns[0]) if columns else np.zeros(0, np.int64)
    for column in columns:
        whole = column + carry
        carried.append(whole & MASK)
        carry = whole >> DIGIT
    return [*carried, carry & MASK], carry >> DIGIT


def _magnitude(table: IntArray) -> tuple[Columns, NDArray[np.bool_]]:
    """The digits of the numbers without their signs, and which are negative."""
    columns = list(np.ascontiguousarray(table.T)) or [np.zeros(len(table), np.int64)]
    found, sign = _carried(columns)
    if not sign.any():
        return found, sign < 0
    times = 2 * sign + 1
    return _carried([column * times for column in columns])[0], sign < 0


def _spread(
    n: IntArray, total: Columns, first_total: int, square: Columns, first_square: int
) -> tuple[Columns, int]:
    """The digits of n times the sum of squares less the square of the sum, and the first's place:
    n squared times the variance.

    `total` has the digits of the sums' magnitudes.
    """
    square = _carried(square)[0] if square else [np.zeros_like(n)]
    first = min(first_square, 2 * first_total)
    stop = max(first_square + len(square), 2 * first_total + 2 * len(total)) + 1
    found = [np.zeros_like(n) for _ in range(stop - first)]
    for i, digit in enumerate(square, first_square - first):
        product = digit * n  # less than 2**63: see MANY
        found[i] += product & MASK
        found[i + 1] += product >> DIGIT
    words = [digit.view(np.uint64) for digit in total]
    shift, mask = np.uint64(DIGIT), np.uint64(MASK)
    for i, one in enumerate(words):
        for j, other in enumerate(words[: i + 1], i + 2 * first_total - first):
            times = 1 if other is one else 2
            whole = one * other
            found[j] -= times * (whole & mask).view(np.int64)
            found[j + 1] -= times * (whole >> shift).view(np.int64)
    return _carried(found)[0], first


# --- Rounding many numbers ------------------------------------------------------------------------


class Leading(NamedTuple):
    """Numbers by their leading bits: ``(high + middle + low) * 2**exponent``, of which the parts do
    not overlap, to 2**-120 of the number, and whether that is all."""

    high: FloatArray
    middle: FloatArray
    low: FloatArray
    exponent: IntArray
    is_all: NDArray[np.bool_]


TAKEN = 5  # digits: 129 bits or more
ERROR = 2.0**-96  # of what is found in two float64, at most


def _leading(columns: Columns, place: int) -> Leading:
    """The leading bits of numbers, whose lowest digit is that many digits above the point."""
    table = np.stack(columns, axis=1)
    n_digits = table.shape[1]
    some = table != 0
    top = n_digits - 1 - np.argmax(some[:, ::-1], axis=1)
    places = top[:, None] - np.arange(TAKEN)
    digits = np.take_along_axis(table, np.maximum(places, 0), axis=1)
    numbers = np.where(places >= 0, digits, 0).astype(np.float64).T
    a, b, c, d, e = (number * 2.0 ** (-DIGIT * i) for i, number in enumerate(numbers))
    high, middle = two_sum(a, b)
    middle, low = two_sum(middle, c)
    high, middle = two_sum(high, middle)
    middle, low = two_sum(middle, low)
    low, rest = two_sum(low, d)
    low, lost = two_sum(low, e)
    is_all = (rest == 0) & (lost == 0) & (np.argmax(some, axis=1) > top - TAKEN)
    return Leading(high, middle, low, DIGIT * (top + place), is_all | ~some.any(axis=1))


def _quotient(number: Leading, n: IntArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Numbers by others, and whether they are certainly rounded correctly."""
    by = n.astype(np.float64)
    first = number.high / by
    whole, error = product(first, by)
    rest, more = two_sum((number.high - whole) - error, number.middle)
    more = more + number.low
    second = (rest + more) / by
    # Of ties, which are common where n is 2 or 4, all bits are known.
    again, lost = product(second, by)
    is_exact = number.is_all & (more == 0) & (again == rest) & (lost == 0)
    return _rounded_sum(first, second, is_exact, number.exponent)


def _root_over(number: Leading, n: IntArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The square roots of numbers with an even exponent, by others, and whether they are certainly
    rounded correctly."""
    by = n.astype(np.float64)
    root = np.sqrt(number.high)
    whole, error = product(root, root)
    rest, more = two_sum((number.high - whole) - error, number.middle)
    second = np.where(root > 0, (rest + (more + number.low)) / (2 * root), 0.0)
    twice, lost = product(2 * root, second)
    own, lost_own = product(second, second)
    left, lost_left = two_sum(rest - twice, more)
    left, lost_more = two_sum(left, number.low - own)
    lost = np.abs(lost) + np.abs(lost_own) + np.abs(lost_left) + np.abs(lost_more)
    is_root = number.is_all & (left == 0) & (lost == 0)
    first = root / by
    whole, error = product(first, by)
    rest = (root - whole) - error
    is_exact = is_root & ((n & (n - 1)) == 0) | (number.high == 0)
    return _rounded_sum(first, (rest + second) / by, is_exact, number.exponent // 2)


def _rounded_sum(
    first: FloatArray, second: FloatArray, is_exact: NDArray[np.bool_], exponent: IntArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The sums of two numbers, known to `ERROR` or exactly, and whether their rounding is sure."""
    first, second = two_sum(first, second)
    error = np.where(is_exact, 0.0, np.abs(first) * ERROR)
    low, high = first + (second - error), first + (second + error)
    found = np.ldexp(low, exponent)
    is_normal = (np.abs(found) > 2.0**-1021) & np.isfinite(found) | (first == 0)
    return found, (low == high) & is_normal


# --- Of arrays on the host: the reference ---------------------------------------------------------


def sums_of_rows(
    rows: NDArray[Any], takes: NDArray[np.bool_] | None = None
) -> tuple[Digits, Digits]:
    """The sums of the finite elements of each row, or of those that are told, and of their
    squares."""
    lane, place = np.nonzero(np.isfinite(rows) if takes is None else takes)
    parts = Halves.of(rows[lane, place])
    total, square = (
        np.zeros((len(rows), n_digits), np.int64) for n_digits in (TOTAL_DIGITS, SQUARE_DIGITS)
    )
    add_numbers(total, lane, parts)
    add_products(square, lane, parts, parts)
    return Digits.trimmed(0, total), Digits.trimmed(0, square)


class Halves(NamedTuple):
    """Finite numbers: ``sign * (low + high * 2**32) * 2**begin``, in units of ``2**-1088``."""

    sign: IntArray
    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    begin: IntArray

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        if values.dtype.kind == "f":
            bits = values.astype(np.float64).view(np.uint64)
            is_negative = (bits >> np.uint64(63)) != 0
            exponent = (bits >> np.uint64(52)) & np.uint64(0x7FF)
            one = (exponent > 0).astype(np.uint64) << np.uint64(52)
            whole = bits & np.uint64((1 << 52) - 1) | one
            begin = np.maximum(exponent, 1).astype(np.int64) + OFFSET
        else:
            is_negative = values < 0
            whole = values.astype(np.uint64)
            whole = np.where(is_negative, np.uint64(0) - whole, whole)
            begin = np.full(len(values), DIGIT * TOTAL_POINT)
        sign = np.where(is_negative, -1, 1)
        return cls.positive(whole, begin)._replace(sign=sign)

    @classmethod
    def positive(cls, whole: NDArray[np.uint64], begin: IntArray) -> Self:
        """Whole numbers times ``2**begin``."""
        low, high = whole & np.uint64(MASK), whole >> np.uint64(DIGIT)
        return cls(np.ones_like(begin), low, high, begin)


def digits_of(numbers: Halves) -> tuple[IntArray, list[IntArray]]:
    """The first digit that each number has a part in, and its parts in that one and the next two;
    each below ``2**(DIGIT + 1)``."""
    shift, mask, digit = (
        (numbers.begin % DIGIT).astype(np.uint64),
        np.uint64(MASK),
        np.uint64(DIGIT),
    )
    low, high = numbers.low << shift, numbers.high << shift
    parts = low & mask, (low >> digit) + (high & mask), high >> digit
    return numbers.begin // DIGIT, [numbers.sign * part.astype(np.int64) for part in parts]


def add_numbers(table: IntArray, lane: IntArray, numbers: Halves) -> None:
    """Add numbers to the digits of some lanes, of which there are `TOTAL_DIGITS`."""
    for begin, term in ((0, numbers.low), (DIGIT, numbers.high)):
        _add_terms(table, lane, numbers.begin + begin, term, numbers.sign)


def add_products(table: IntArray, lane: IntArray, one: Halves, other: Halves) -> None:
    """Add products of numbers to the digits of some lanes, of which there are enough for these."""
    sign, begin = one.sign * other.sign, one.begin + other.begin
    for left, first in ((0, one.low), (DIGIT, one.high)):
        for right, second in ((0, other.low), (DIGIT, other.high)):
            _add_terms(table, lane, begin + (left + right), first * second, sign)


def _add_terms(
    table: IntArray, lane: IntArray, begin: IntArray, term: NDArray[np.uint64], sign: IntArray
) -> None:
    """Add numbers, from which bit on, to the digits of some lanes."""
    shift, mask, digit = (begin % DIGIT).astype(np.uint64), np.uint64(MASK), np.uint64(DIGIT)
    low, high = (term & mask) << shift, (term >> digit) << shift
    parts = low & mask, (low >> digit) + (high & mask), high >> digit
    for i, part in enumerate(parts):
        np.add.at(table, (lane, begin // DIGIT + i), sign * part.astype(np.int64))


# --- Arithmetic -----------------------------------------------------------------------------------


def two_sum(a: FloatArray, b: Any) -> tuple[FloatArray, FloatArray]:
    """Sums and their rounding errors (Knuth, volume 2, 4.2.2)."""
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


def product(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Products and their rounding errors (Dekker 1971; Veltkamp's splitting)."""
    found = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    error = ((a_high * b_high - found) + a_high * b_low + a_low * b_high) + a_low * b_low
    return found, error


def _split(a: FloatArray) -> tuple[FloatArray, FloatArray]:
    wide = 134217729.0 * a  # 2**27 + 1
    high = wide - (wide - a)
    return high, a - high
