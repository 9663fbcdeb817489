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
    integers,
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

    def __getitem__(self, lanes: Any) -> Digits:
        return Digits(self.first, self.columns[lanes])

    @property
    def n_digits(self) -> int:
        return int(self.columns.shape[1])

    def _places(self, first: int) -> slice:
        return slice(self.first - first, self.first - first + self.columns.shape[1])

    def numbers(self) -> list[int]:
        """The number of each lane, in the units of `Moments`."""
        return [number << DIGIT * self.first for number in integers(self.columns)]

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
        found = np.zeros((2, len(self.n)))
        for start in range(0, len(self.n), LANES):
            lanes = slice(start, start + LANES)
            found[:, lanes] = _rounded_lanes(
                np.maximum(self.n[lanes], 1), self.total[lanes], self.square[lanes]
            )
        infinite = np.where(self.n_high > 0, np.inf, 0.0)
        with np.errstate(invalid="ignore"):
            infinite = infinite + np.where(self.n_low > 0, -np.inf, 0.0)
        is_infinite = (self.n_high > 0) | (self.n_low > 0)
        nothing = (self.n == 0) | is_infinite
        means = np.where(is_infinite, infinite, np.where(nothing, np.nan, found[0]))
        return means, np.where(nothing, np.nan, found[1])


@dataclass(frozen=True, slots=True, eq=False)
class RoundedMoments(Arrays):
    """Means and standard deviations of whole lanes: 16 bytes a lane, where `LaneMoments` may take
    1,600."""

    mean: FloatArray
    std: FloatArray

    def mean_and_std(self) -> tuple[FloatArray, FloatArray]:
        return self.mean, self.std


# --- From sums to what is rounded -----------------------------------------------------------------

LANES = 1 << 12  # that are rounded together: their columns stay in the cache
MANY = 1 << 31  # elements of a lane from which on a digit times them is too large
Columns = list[IntArray]
"""Digits of many numbers, the lowest first, each of one column in [0, 2**32)."""
# Digits of a sum that its mean is rounded from; of a sum and of one of squares for a deviation. See
# `_windows`.
MEAN_DIGITS, SPREAD_DIGITS = 7, 10


def _rounded_lanes(n: IntArray, total: Digits, square: Digits) -> FloatArray:
    """Mean and deviation of some lanes, ``(2, n_lanes)``: by their leading digits, and by integers
    where that may round wrongly or takes longer."""
    found, unsure = np.empty((2, len(n))), np.arange(len(n))
    if not _are_integers_faster(len(n), total.n_digits):
        windows_of = _all_digits if total.n_digits <= SPREAD_DIGITS else _windows
        found, is_sure = _rounded_windows(n, *windows_of(total, square))
        unsure = np.flatnonzero(~is_sure)
    numbers = n[unsure].tolist(), total[unsure].numbers(), square[unsure].numbers()
    for i, each in zip(unsure.tolist(), zip(*numbers, strict=True), strict=True):
        found[:, i] = rounded(*each)
    return found


def _are_integers_faster(n_lanes: int, n_digits: int) -> bool:
    """Whether Python's integers take less time than arrays: 5 microseconds for a lane and a twelfth
    for each digit, where arrays take 400 for all lanes, and 10 for each pair of digits."""
    n_taken = min(n_digits, SPREAD_DIGITS)
    return n_lanes * (5 + n_digits / 12) < 400 + 10 * (n_taken * (n_taken + 1) // 2)


class Window(NamedTuple):
    """Some consecutive digits of many numbers.

    Parameters
    ----------
    columns : list of ndarray of int64
        The lowest first. They may be negative, and larger than 32 bits.
    first : int or ndarray of int64, shape (n_lanes,)
        The place of the lowest, of all numbers or of each.
    is_cut : ndarray of bool, shape (n_lanes,)
        Whether digits below may have a part in what is found.
    """

    columns: Columns
    first: Any
    is_cut: NDArray[np.bool_]


def _all_digits(total: Digits, square: Digits) -> tuple[Window, Window, Window]:
    """All digits of sums, of the same for their squares, and of sums of squares."""
    is_cut = np.zeros(len(total.columns), np.bool_)
    sums, squares = (
        [*np.ascontiguousarray(each.columns.T)] or [np.zeros(len(is_cut), np.int64)]
        for each in (total, square)
    )
    # The square of a sum may have lower digits than the sum of squares.
    n_lower = max(square.first - 2 * total.first, 0)
    squares = [np.zeros(len(is_cut), np.int64)] * n_lower + squares
    whole = Window(sums, total.first, is_cut)
    return whole, whole, Window(squares, square.first - n_lower, is_cut)


def _windows(total: Digits, square: Digits) -> tuple[Window, Window, Window]:
    """The leading digits of sums; those of them that matter to the leading digits of the spread;
    and of sums of squares.

    Notes
    -----
    A column is less than ``2**63``. So all columns below place p add up to less than ``2**32`` at p
    (to half of that, and a bit).

    Let u be so large that a sum S of squares is less than about ``2**(32 * (2 * u + 1))``, and a
    sum T less than ``1.5 * 2**(32 * (u + 1))``. With n < 2**31 what is left out of ``n * S`` below
    place ``2 * u - 9`` is less than ``2**63`` there. What is left out of T below ``u - 9`` changes
    its square by less than ``2**65`` there, and products of digits that lie lower make less than
    ``2**36``. So six digits above ``2 * u - 9`` the error is 2**-120 of the spread or less.

    The spread of lanes that reach over a factor of two is at least the square of the largest
    element times n / 8. With n S at most n * n times that square, these have a digit there, except
    where digits cancel. Lanes that do not reach so far have no digits that are left out. Numbers
    decide which lane is which; this only says that hardly any is looked at again.
    """
    low, top = _ends_of(total)
    first_square, top_square = _ends_of(square)
    half = np.maximum((top_square + 1) // 2, top)
    first, first_of_squares = half - SPREAD_DIGITS + 1, 2 * half - SPREAD_DIGITS + 1
    # Products of two digits lie in the window if both are in its upper half.
    is_cut = (first_square < first_of_squares) | (2 * low < first_of_squares)
    first_of_mean = top - MEAN_DIGITS + 1
    return (
        Window(_taken(total, first_of_mean, MEAN_DIGITS), first_of_mean, low < first_of_mean),
        Window(_taken(total, first, SPREAD_DIGITS), first, is_cut),
        Window(_taken(square, first_of_squares, SPREAD_DIGITS), first_of_squares, is_cut),
    )


def _ends_of(digits: Digits) -> tuple[IntArray, IntArray]:
    """The places of the lowest and the highest digit of each number, with the carry of the highest
    column."""
    table = digits.columns
    some = table != 0
    top = table.shape[1] - 1 - np.argmax(some[:, ::-1], axis=1)
    highest = table[np.arange(len(table)), top]
    low = np.where(highest == 0, top, np.argmax(some, axis=1))
    return low + digits.first, top + (np.abs(highest) > MASK) + digits.first


def _taken(digits: Digits, first: IntArray, n_digits: int) -> Columns:
    """So many digits of each number, from a place of its own on."""
    table = digits.columns
    place, row = first - digits.first, np.arange(len(table)) * table.shape[1]
    lowest, highest = int(place.min()), int(place.max())
    found = []
    for i in range(n_digits):
        at = place + i
        if lowest + i >= 0 and highest + i < table.shape[1]:
            found.append(table.take(row + at))
        else:
            inside = (at >= 0) & (at < table.shape[1])
            found.append(np.where(inside, table.take(row + np.where(inside, at, 0)), 0))
    return found


def _rounded_windows(
    n: IntArray, total: Window, for_spread: Window, square: Window
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Means and deviations, ``(2, n_lanes)``, and of which lanes both are certainly right."""
    sums, is_negative = _magnitude(total.columns)
    spread, is_spread = _spread(n, for_spread, square)
    with np.errstate(all="ignore"):
        number, is_near = _leading(sums, total.first - TOTAL_POINT, total.is_cut, FAR_OF_MEAN)
        mean, is_known = _quotient(number, n)
        mean = np.where(is_negative, -mean, mean)
        place = square.first - SQUARE_POINT
        number, is_far = _leading(spread, place, square.is_cut, FAR_OF_SPREAD)
        deviation, is_sure = _root_over(number, n)
    is_sure &= is_known & is_near & is_far & is_spread & (n < MANY)
    return np.stack([mean, deviation]), is_sure


def _carried(columns: Columns) -> tuple[Columns, IntArray]:
    """Digits in [0, 2**32), with one more; and 0, or -1 for numbers that are negative."""
    carried = []
    carry = np.zeros_like(columns[0])
    for column in columns:
        whole = column + carry
        carried.append(whole & MASK)
        carry = whole >> DIGIT
    return [*carried, carry & MASK], carry >> DIGIT


def _magnitude(columns: Columns) -> tuple[Columns, NDArray[np.bool_]]:
    """The digits of the numbers without their signs, and which are negative."""
    found, sign = _carried(columns)
    if not sign.any():
        return found, sign < 0
    times = 2 * sign + 1
    return _carried([column * times for column in columns])[0], sign < 0


def _spread(n: IntArray, total: Window, square: Window) -> tuple[Columns, NDArray[np.bool_]]:
    """The digits of n times the sum of squares less the square of the sum, from those of `square`
    on: n squared times the variance. And whether it is found: what is cut may come out negative."""
    squares, sign = _carried(square.columns)
    sums = _magnitude(total.columns)[0]
    begin = int(np.max(2 * total.first - square.first))  # the same of all lanes
    n_digits = max(len(squares), begin + 2 * len(sums)) + 1
    found = [np.zeros_like(n) for _ in range(n_digits)]
    for i, digit in enumerate(squares):
        product = digit * n  # less than 2**63: see MANY
        found[i] += product & MASK
        found[i + 1] += product >> DIGIT
    words = [digit.view(np.uint64) for digit in sums]
    shift, mask = np.uint64(DIGIT), np.uint64(MASK)
    products = [np.zeros(len(n), np.uint64) for _ in range(n_digits)]

    def add_product(one: NDArray[np.uint64], other: NDArray[np.uint64], place: int) -> None:
        if place >= 0:
            whole = one * other
            products[place] += whole & mask
            products[place + 1] += whole >> shift

    for i, one in enumerate(words):
        for j, other in enumerate(words[:i]):
            add_product(one, other, i + j + begin)
    for digit_of_products in products:
        digit_of_products *= np.uint64(2)
    for i, one in enumerate(words):
        add_product(one, one, 2 * i + begin)
    found = [digit - other.view(np.int64) for digit, other in zip(found, products, strict=True)]
    spread, of_spread = _carried(found)
    return spread, (sign == 0) & (of_spread == 0)


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
# Digits above the lowest of a window from which on what is left out is 2**-120 of a number or less.
FAR_OF_MEAN, FAR_OF_SPREAD = 5, 6


def _leading(
    columns: Columns, place: Any, is_cut: NDArray[np.bool_], far: int
) -> tuple[Leading, NDArray[np.bool_]]:
    """The leading bits of numbers, whose lowest digit is that many digits above the point. And
    whether they are right: of numbers that are cut, the highest has to be so many digits higher."""
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
    is_any = some.any(axis=1)
    is_all = (is_all | ~is_any) & ~is_cut
    leading = Leading(high, middle, low, DIGIT * (top + place), is_all)
    return leading, is_any & (top >= far) | ~is_cut


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
    """The sums of two numbers, known to `ERROR` or exactly, and whether their rounding is sure.
    None is negative."""
    first, second = two_sum(first, second)
    error = np.where(is_exact, 0.0, np.abs(first) * ERROR)
    low, high = first + (second - error), first + (second + error)
    found = np.ldexp(low, exponent)
    is_sure = (low == high) & np.isfinite(found)
    small = np.flatnonzero((found <= LEAST_NORMAL) & (first != 0))
    if len(small):
        found[small], is_sure[small] = _rounded_to_subnormal(
            first[small], second[small], error[small], exponent[small]
        )
    return found, is_sure


LEAST_NORMAL, LEAST_EXPONENT = 2.0**-1022, -1074


def _rounded_to_subnormal(
    first: FloatArray, second: FloatArray, error: FloatArray, exponent: IntArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Sums of two numbers likewise, which have fewer bits than others: rounded once, at the unit of
    subnormal numbers."""
    unit = np.ldexp(1.0, LEAST_EXPONENT - exponent)
    whole = (first + 2.0**52 * unit) - 2.0**52 * unit
    rest = np.abs((first - whole) + second)
    is_tie = (error == 0) & (second == 0)  # if anything; it went to the even one
    is_sure = np.isfinite(unit) & ((rest + error < unit / 2) | is_tie)
    return np.ldexp(whole, exponent), is_sure


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
