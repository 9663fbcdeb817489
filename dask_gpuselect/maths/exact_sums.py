"""Exact sums, the same to the last bit under any chunking, and thresholds to compare them with.

A finite float is a whole number of small units, and so are its square and its products with others.
So their sums are integers (Kulisch's accumulator; Neal 2015). They are too large for int64, and
stored in digits of 32 bits. Whatever the order, the magnitudes or the cancellation, nothing is
rounded before the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add, mul
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.tables import Arrays, FloatArray, IntArray, slices_of

DIGIT = 32  # bits
MASK = (1 << DIGIT) - 1
LEAST = -1074  # the exponent of the last bit of the smallest float64

# Kernels add up rows of digits: of elements, of products of two, and of three. A row has so many
# digits behind the binary point, and so many digits in all, enough for sums of 2**63 elements of
# any magnitude.
TOTAL_POINT, TOTAL_DIGITS = 34, 68
SQUARE_POINT, SQUARE_DIGITS = 2 * TOTAL_POINT, 2 * TOTAL_DIGITS
CUBE_POINT, CUBE_DIGITS = 3 * TOTAL_POINT, 3 * TOTAL_DIGITS
# Bits of a float64 begin at its biased exponent plus this; those of a square, at twice that sum.
OFFSET = DIGIT * TOTAL_POINT - 1075


def sums_bytes(dtype: np.dtype[Any]) -> int:
    """Bound the bytes of the exact sums of elements of a dtype, and of their squares."""
    bits = 2 * np.finfo(dtype).maxexp if dtype.kind == "f" else 8 * dtype.itemsize
    digits = (bits + 128) // DIGIT + 1  # with those of denormal numbers, and of 2**63 elements
    return 16 * digits  # of int64 if any sum is negative, and twice as many of uint32 for squares


@dataclass(frozen=True, slots=True, eq=False)
class ExactSums(Arrays):
    """Table of exact numbers, whole multiples of ``2**(32 * first)``.

    Parameters
    ----------
    first : int
        Place of the lowest digit.
    digits : ndarray of uint32 or int64, or of Python integers, shape (n_digits, *table)
        Digits of 32 bits, the lowest first. The highest digit of a negative number is negative.
        Each of up to `FEW` numbers is a single digit of any size, a Python integer, because an
        operation on tables of digits takes 10 to 30 us, whatever their size.
    """

    first: int
    digits: NDArray[Any]

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> Self:
        """Make a table of zeros."""
        return cls(0, np.zeros((0, *shape), np.uint32))

    @classmethod
    def of(cls, group: IntArray, n_groups: int, *factors: NDArray[Any]) -> Self:
        """Add up the products of finite numbers, each to the sum of its group."""
        if not len(group):
            return cls.zeros((n_groups,))
        if max(len(group), n_groups) <= FEW:
            sums = np.zeros(n_groups, object)
            np.add.at(sums, group, reduce(mul, map(whole, factors)))
            bits = int(np.bitwise_or.reduce(sums))
            spare = max((bits & -bits).bit_length() - 1, 0) // DIGIT  # digits that are 0 in all
            shorter = [each >> DIGIT * spare for each in sums.tolist()]
            return cls.of_integers(shorter, spare - TOTAL_POINT * len(factors))
        lowest, highest = np.sum([begins(factor) for factor in factors], axis=0).tolist()
        first, last = lowest // DIGIT, highest // DIGIT
        n_digits = last - first + 2 * len(factors) + 1
        table = np.zeros((n_groups, n_digits), np.int64)
        flat = table.reshape(-1)
        for start in range(0, len(group), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            number = reduce(_multiplied, [_wide(factor[some]) for factor in factors])
            _, begin, _ = number
            # A zero may have any place, so its place is clipped to the table.
            place = np.clip(begin // DIGIT, first, last) - first + group[some] * n_digits
            for i, part in enumerate(_parts(number)):
                np.add.at(flat, place + i, part)
        return cls.of_table(table, -first)

    @classmethod
    def of_table(cls, table: IntArray, point: int) -> Self:
        """Read sums from the rows of digits that kernels have added up.

        `point` digits of a row are behind the binary point. Digits may be negative and larger than
        32 bits.
        """
        some = np.flatnonzero(table.reshape(-1, table.shape[-1]).any(axis=0))
        if not len(some):
            return cls.zeros(table.shape[:-1])
        start, stop = int(some[0]), int(some[-1]) + 1
        digits = table[..., start:stop].transpose(-1, *range(table.ndim - 1))
        return cls.carried(start - point, digits).packed()

    @classmethod
    def carried(cls, first: int, digits: NDArray[Any]) -> Self:
        """Carry digits of any size to digits of 32 bits, or to Python integers if they are few.

        The result may have one more digit.
        """
        if math.prod(digits.shape[1:]) <= FEW:
            return cls(first, digits if digits.dtype == object else _whole_numbers(digits)[None])
        if digits.dtype == object:
            return cls(first, _digits_of(digits[0]))
        carried = np.zeros((len(digits) + 1, *digits.shape[1:]), np.int64)
        carried[:-1] = digits
        columns = carried.reshape(len(carried), -1)
        for low, high in zip(columns[:-1], columns[1:], strict=True):
            high += low >> DIGIT
            low &= MASK
        return cls(first, carried)

    @classmethod
    def of_integers(cls, numbers: Sequence[int] | NDArray[np.object_], unit: int) -> Self:
        """Convert Python integers, in units of ``2**(32 * unit)``."""
        return cls.carried(unit, np.array(numbers, object)[None]).packed()

    @classmethod
    def sum(cls, parts: Sequence[Self]) -> Self:
        """Add up several tables, place by place."""
        first, n = _span(parts)
        if parts[0].is_few:
            return cls(first, reduce(add, [part.integers(first) for part in parts])[None])
        total = np.zeros((n, *parts[0].shape), np.int64)
        for part in parts:
            total[part._places(first)] += part.digits
        return cls.carried(first, total).packed()

    @classmethod
    def joined(cls, pieces: Sequence[Self]) -> Self:
        """Concatenate tables along their first axis."""
        first, _ = _span(pieces)
        if sum(math.prod(piece.shape) for piece in pieces) <= FEW:
            return cls(first, np.concatenate([piece.integers(first) for piece in pieces])[None])
        pieces = [piece.in_digits() for piece in pieces]
        first, n = _span(pieces)
        digits = np.concatenate([piece.aligned(first, n) for piece in pieces], 1)
        return cls.carried(first, digits).packed()  # the sign of a shorter number moves to the top

    def in_digits(self) -> Self:
        """Return the same numbers in digits of 32 bits."""
        is_whole = self.digits.dtype == object
        return type(self)(self.first, _digits_of(self.digits[0])) if is_whole else self

    @property
    def is_few(self) -> bool:
        """True if each number may be a Python integer."""
        return math.prod(self.shape) <= FEW

    @property
    def shape(self) -> tuple[int, ...]:
        return self.digits.shape[1:]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Self:
        """Take a part of the table."""
        index = index if isinstance(index, tuple) else (index,)
        part = type(self)(self.first, self.digits[:, *index])
        is_whole = part.is_few or self.digits.dtype != object
        return part if is_whole else self.in_digits().packed()[index]

    def pieces(self, sizes: IntArray) -> list[Self]:
        """Split a one-dimensional table into pieces of these sizes."""
        # Python integers of 300 pieces together take a fifth of the time of those of each piece.
        numbers = self.integers(self.first)[None] if sizes.min(initial=FEW) < FEW else self.digits
        whole, each = type(self)(self.first, numbers), zip(sizes, slices_of(sizes), strict=True)
        return [(whole if size < FEW else self)[own] for size, own in each]

    def __add__(self, other: Self) -> Self:
        return self.sum([self, other]) if len(other.digits) else self

    def __sub__(self, other: Self) -> Self:
        if not len(other.digits):
            return self
        if self.first == other.first and self.digits.dtype == other.digits.dtype == object:
            return type(self)(self.first, self.digits - other.digits)
        first, n = _span([self, other])
        if self.is_few:
            return type(self)(first, (self.integers(first) - other.integers(first))[None])
        digits = self.aligned(first, n)
        digits[other._places(first)] -= other.digits
        return self.carried(first, digits).trimmed()

    def where(self, mask: NDArray[np.bool_]) -> Self:
        """Take the numbers at places where the mask is True, and zeros elsewhere."""
        return type(self)(self.first, np.where(mask, self.digits, self.digits.dtype.type(0)))

    def running(self) -> Self:
        """Add up the numbers before each place of a one-dimensional table, and behind the last."""
        own = self.wide
        digits = np.zeros((len(own), len(self) + 1), own.dtype)
        np.cumsum(own, axis=1, out=digits[:, 1:])
        return self.carried(self.first, digits).packed()

    def of_runs(self, begins: IntArray) -> Self:
        """Add up neighbouring numbers of a one-dimensional table, from each begin to the next."""
        if not len(begins):
            return self.zeros((0,))
        digits = np.add.reduceat(self.wide, begins, axis=1)
        return self.carried(self.first, digits).packed()

    def places_of(self, sums: Self) -> IntArray:
        """Count the numbers of a one-dimensional table, which ascend, below each of some sums."""
        if not (self.is_few and sums.is_few):
            return Wholes.of_sums(self).reach(sums)
        first, _ = _span([self, sums])
        return self.integers(first).searchsorted(sums.integers(first))

    def at_places(self, places: IntArray, n: int) -> Self:
        """Add up the numbers of a one-dimensional table at each of `n` places."""
        own = self.in_digits()
        digits = np.zeros((len(own.digits), n), np.int64)
        for total, digit in zip(digits, own.digits, strict=True):
            np.add.at(total, places, digit)
        return self.carried(own.first, digits).packed()

    def aligned(self, first: int, n_digits: int) -> IntArray:
        """Return the digits from a lower place `first` on, padded with zeros."""
        digits = np.zeros((n_digits, *self.shape), np.int64)
        digits[self._places(first)] = self.digits
        return digits

    def _places(self, first: int) -> slice:
        start = self.first - first if len(self.digits) else 0
        return slice(start, start + len(self.digits))

    @property
    def wide(self) -> NDArray[Any]:
        """The digits, with room for carries."""
        return self.digits if self.digits.dtype == object else self.digits.astype(np.int64)

    def trimmed(self) -> Self:
        """Drop digits that are zero in all numbers, at both ends."""
        if self.digits.dtype == object:
            return self
        start, stop = 0, len(self.digits)
        while start < stop and not self.digits[stop - 1].any():
            stop -= 1
        while start < stop and not self.digits[start].any():
            start += 1
        return type(self)(self.first + start if start < stop else 0, self.digits[start:stop])

    def packed(self) -> Self:
        """Convert the digits to the form with the least memory."""
        if self.digits.dtype == object:
            return self
        trimmed = self.trimmed()
        kind = np.int64 if trimmed.is_negative.any() else np.uint32
        return type(self)(trimmed.first, trimmed.digits.astype(kind))

    def share_of(self, shares: NDArray[np.float64]) -> Self:
        """Multiply each place with a number between 0 and 1, rounded to ``2**-48`` first."""
        whole = np.rint(shares * 2.0**48).astype(np.int64)
        if self.digits.dtype == object:
            return type(self)(self.first, self.digits * whole).shifted(-48)
        high, low = np.divmod(whole, 1 << 24)  # so that products with digits fit int64
        digits = np.zeros((len(self.digits) + 1, *self.shape), np.int64)
        digits[:-1], product = self.digits * low, self.digits * high
        digits[:-1] += (product & 0xFF) << 24
        digits[1:] += product >> 8
        return self.carried(self.first, digits).shifted(-48)

    def shifted(self, bits: int) -> Self:
        """Multiply with ``2**bits``."""
        places, shift = divmod(bits, DIGIT)
        if not shift:
            return type(self)(self.first + places, self.digits)
        return self.carried(self.first + places, self.wide << shift)

    @property
    def is_negative(self) -> NDArray[np.bool_]:
        if not len(self.digits):
            return np.zeros(self.shape, np.bool_)
        return np.asarray(self.digits[-1] < 0)

    @property
    def is_zero(self) -> NDArray[np.bool_]:
        return np.asarray(~(self.digits != 0).any(axis=0))

    def whole(self) -> Self:
        """Round up to integers. The numbers must not be negative."""
        one = np.zeros((1, *self.shape), np.int64)
        first, n = _span([self, type(self)(0, one)])
        digits = self.aligned(first, n)
        low, high = digits[:-first], digits[-first:]
        high[0] += low.any(axis=0)
        return self.carried(0, high)

    def leading_digits(self, n: int) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
        """Return the highest `n` digits of numbers that are not negative, the highest first.

        Also return the place of the highest (any for zero), and whether all other digits are zero.
        """
        own, size = self.in_digits(), math.prod(self.shape)
        digits = np.zeros((n + max(len(own.digits), 1), size), np.int64)
        digits[n : n + len(own.digits)] = own.digits.reshape(len(own.digits), size)
        top = len(digits) - 1 - (digits != 0)[::-1].argmax(axis=0)
        leading = digits.ravel()[(top - np.arange(n)[:, None]) * size + np.arange(size)]
        is_all = np.count_nonzero(leading, axis=0) == np.count_nonzero(digits, axis=0)
        top = (top - n + own.first).reshape(self.shape)
        return leading.reshape(n, *self.shape), top, is_all.reshape(self.shape)

    def magnitude(self) -> Self:
        """Compute absolute values."""
        if not self.is_negative.any():
            return self
        times = np.where(self.is_negative, -1, 1)
        return self.carried(self.first, self.digits * times).trimmed()

    def integers(self, unit: int) -> NDArray[np.object_]:
        """Convert to Python integers, in units of ``2**(32 * unit)``.

        All numbers must be multiples of the unit.
        """
        is_whole = self.digits.dtype == object
        numbers: NDArray[np.object_] = self.digits[0] if is_whole else _whole_numbers(self.digits)
        shift = DIGIT * (self.first - unit)
        if shift and len(self.digits):
            numbers = numbers << shift if shift > 0 else numbers >> -shift
        return numbers

    def in_units(self, unit: IntArray | np.int64) -> IntArray:
        """Return numbers in units of ``2**unit``, rounded down.

        They must not be negative, and must fit int64.
        """
        own, total = self.in_digits(), np.zeros(self.shape, np.int64)
        for i, digit in enumerate(own.digits):
            shift = DIGIT * (own.first + i) - unit
            total += digit.astype(np.int64) << shift.clip(0, 63) >> (-shift).clip(0, 63)
        return total

    def rounded(self) -> FloatArray:
        """Round each number once to float64; inf beyond the largest.

        The numbers must be multiples of the smallest float64 and not negative.
        """
        if math.prod(self.shape) <= FEW:
            units = self.integers(self.first).ravel().tolist()
            floats = [_as_float(each, DIGIT * self.first) for each in units]
            return np.array(floats, np.float64).reshape(self.shape)
        (a, b, c), top, is_all = self.leading_digits(3)
        bits = np.frexp(a.astype(np.float64))[1]  # of the highest digit
        shift = np.clip(DIGIT - bits, 0, DIGIT - 1).astype(np.uint64)
        whole = (a << DIGIT | b).astype(np.uint64) << shift | (c >> bits).astype(np.uint64)
        # The last of the 64 bits tells whether any lower bit is set, so the next rounding is right.
        is_more = ~is_all | ((c & (1 << bits) - 1) != 0)
        whole |= is_more.astype(np.uint64)
        exponent = DIGIT * (top - 1) - shift.astype(np.int64)
        with np.errstate(over="ignore"):
            return np.asarray(np.ldexp(whole.astype(np.float64), exponent))

    def leading(self) -> tuple[FloatArray, IntArray]:
        """Return the numbers as floats times ``2**(32 * place)``, to 64 bits; 0 for zero."""
        digits, top, _ = self.leading_digits(3)
        scales = 2.0 ** (-DIGIT * np.arange(3))
        numbers: FloatArray = np.tensordot(scales, digits.astype(np.float64), 1)
        return numbers, top


HALF = DIGIT // 2
FACTORS = 1 << 20  # so many products of two halves of digits add up exactly as float64
AT_ONCE = 1 << 14  # numbers whose digits are computed together


FEW = 64  # numbers that are Python integers
FEW_DIGITS = 8  # of integers that are added up digit by digit


def _whole_numbers(digits: NDArray[Any]) -> NDArray[np.object_]:
    """Return the Python integers that have some digits, of any size.

    Many digits are read as bytes: 135 take a twentieth of the time of adding them up, and 5 take
    twice as long.
    """
    numbers: NDArray[np.object_]
    if 0 < len(digits) <= FEW_DIGITS:
        numbers = digits[-1].astype(object)
        for each in digits[-2::-1]:
            numbers = (numbers << DIGIT) + each
        return numbers
    numbers, part = np.zeros((2, math.prod(digits.shape[1:])), object)
    if not digits.size:
        return numbers.reshape(digits.shape[1:])
    n, halves = 4 * len(digits), [digits & MASK]
    if digits.dtype != np.uint32:
        halves.append((digits >> DIGIT) + (1 << DIGIT - 1))  # none is negative
    middle = sum(1 << DIGIT * i - 1 for i in range(1, len(digits) + 1))
    for half, least in zip(reversed(halves), (middle, 0)[-len(halves) :], strict=True):
        text = half.reshape(len(digits), -1).T.astype("<u4").tobytes()
        words = (text[i : i + n] for i in range(0, len(text), n))
        part[:] = [int.from_bytes(each, "little") - least for each in words]
        numbers = (numbers << DIGIT) + part
    return numbers.reshape(digits.shape[1:])


def whole(numbers: NDArray[Any], point: int = DIGIT * TOTAL_POINT) -> NDArray[np.object_]:
    """Convert finite numbers to Python integers, in units of ``2**-point``."""
    ratios = (each.as_integer_ratio() for each in numbers.tolist())
    units = np.empty(len(numbers), object)
    units[:] = [top << (point + 1 - bottom.bit_length()) for top, bottom in ratios]
    return units


def _digits_of(numbers: NDArray[np.object_]) -> IntArray:
    """Split Python integers into digits of 32 bits, the lowest first."""
    flat = numbers.ravel().tolist()
    ends = min(flat, default=0), max(flat, default=0)
    size = max(each.bit_length() for each in ends) // DIGIT + 1
    text = b"".join([each.to_bytes(4 * size, "little", signed=True) for each in flat])
    words = np.frombuffer(text, "<u4").reshape(-1, size).T.astype(np.int64)
    words[-1] = words[-1].astype(np.uint32).view(np.int32)
    return words.reshape(size, *numbers.shape)


def _as_float(number: int, exponent: int) -> float:
    """Round ``number * 2**exponent`` once; inf beyond the largest float64."""
    try:
        return float(number / (1 << -exponent) if exponent < 0 else number << exponent)
    except OverflowError:
        return math.inf


def _span(parts: Sequence[ExactSums]) -> tuple[int, int]:
    """Find the lowest place of all numbers, and how many digits they span together."""
    some = [part for part in parts if len(part.digits)]
    first = min((part.first for part in some), default=0)
    return first, max((part.first + len(part.digits) for part in some), default=0) - first


def begins(values: NDArray[Any]) -> tuple[int, int]:
    """Find the lowest and the highest place where the bits of some numbers begin; see `_wide`."""
    if values.dtype.kind != "f":
        return 0, 0
    sizes = np.abs(values)
    largest = float(sizes.max())
    least = float(sizes.min(initial=largest, where=sizes > 0))
    return math.frexp(least)[1] - 53, math.frexp(largest)[1] - 53


Wide = tuple[IntArray, IntArray, list[NDArray[np.uint64]]]
"""Numbers as a sign, a power of two and limbs: ``sign * 2**begin * whole number``.

The limbs have 32 bits, the lowest first.
"""


def _wide(values: NDArray[Any]) -> Wide:
    """Take finite numbers apart."""
    if values.dtype.kind == "f":
        fraction, exponent = np.frexp(values.astype(np.float64))
        whole, begin = np.ldexp(fraction, 53).astype(np.int64), exponent.astype(np.int64) - 53
    else:
        whole, begin = values, np.zeros(len(values), np.int64)
    sign = np.where(whole < 0, np.int64(-1), np.int64(1))
    size = whole.astype(np.uint64)
    size = np.where(whole < 0, np.uint64(0) - size, size)
    return sign, begin, [size & U_MASK, size >> U_DIGIT]


def _multiplied(one: Wide, other: Wide) -> Wide:
    """Multiply number by number."""
    (sign, begin, lefts), (other_sign, other_begin, rights) = one, other
    n = len(lefts)
    limbs = [np.zeros(len(sign), np.uint64) for _ in range(n + len(rights))]
    for j, right in enumerate(rights):
        carry: Any = np.uint64(0)
        for i, left in enumerate(lefts):
            whole = left * right + limbs[i + j] + carry
            limbs[i + j], carry = whole & U_MASK, whole >> U_DIGIT
        limbs[n + j] = carry
    return sign * other_sign, begin + other_begin, limbs


def _parts(number: Wide) -> list[IntArray]:
    """Split each number into the digits it has bits in, from the one where it begins.

    Each part has at most 33 bits.
    """
    sign, begin, limbs = number
    shift = (begin % DIGIT).astype(np.uint64)
    parts, carry = [], np.zeros_like(shift)
    for limb in limbs:
        whole = limb << shift
        parts.append((whole & U_MASK) + carry)
        carry = whole >> U_DIGIT
    return [sign * part.view(np.int64) for part in (*parts, carry)]


U_MASK, U_DIGIT = np.uint64(MASK), np.uint64(DIGIT)


def two_sum(a: FloatArray, b: Any) -> tuple[FloatArray, FloatArray]:
    """Compute sums and their rounding errors (Knuth, volume 2, 4.2.2)."""
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


def product(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute products and their rounding errors (Dekker 1971; Veltkamp's splitting)."""
    rounded = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    error = ((a_high * b_high - rounded) + a_high * b_low + a_low * b_high) + a_low * b_low
    return rounded, error


def _split(a: FloatArray) -> tuple[FloatArray, FloatArray]:
    wide = 134217729.0 * a  # 2**27 + 1
    high = wide - (wide - a)
    return high, a - high


Pair = tuple[FloatArray, Any]
"""Numbers as sums of two floats, the second of which is below the last bit of the first."""


def as_pair(numbers: ExactSums, point: int) -> Pair:
    """Round numbers that are not negative, in units of ``2**point``, to two floats each."""
    own = numbers.in_digits()
    high, low = np.zeros((2, *own.shape))
    for i, digit in reversed([*enumerate(own.digits)]):
        places = DIGIT * (own.first + i) - point
        high, rest = two_sum(high, np.ldexp(digit.astype(np.float64), places))
        low += rest
    return two_sum(high, low)


def plus(a: Pair, b: Pair, sign: Any = 1) -> Pair:
    """Add pairs, or subtract them; the error is at most 2**-102 of both sizes together."""
    high, rest = two_sum(a[0], sign * b[0])
    return two_sum(high, rest + (a[1] + sign * b[1]))


def times(a: Pair, b: Pair) -> Pair:
    """Multiply pairs; the error is at most 2**-102 of the product."""
    high, rest = product(a[0], b[0])
    return two_sum(high, rest + (a[0] * b[1] + a[1] * b[0]))


# --- Thresholds for sums --------------------------------------------------------------------------


def needs(weight: ExactSums, q: NDArray[np.float64], unit: int) -> tuple[ExactSums, ExactSums]:
    """Compute the least sums that reach the share q of each weight, and that exceed it.

    All sums that are compared with them are whole multiples of ``2**(32 * unit)``, and so are
    these.

    Share and sums are exact, and compared when each is rounded to 53 bits. A user's 0.1 is a little
    more than a tenth as a float, and yet of ten equal weights the first one is wanted. NumPy rounds
    the share where it counts elements, so weights that are counts give the same result as repeated
    elements. The share 0 is that of the first element. The share 1 is that of all elements, however
    little the last one weighs, and no sum is beyond it.
    """
    if len(weight) > 1 and are_alike(weight, q):
        same = np.zeros(len(weight), np.int64)
        reached, passed = needs(weight[:1], q[:1], unit)
        return reached[same], passed[same]
    least, beyond = whole_needs(weight.integers(unit), q)
    return ExactSums.of_integers(least, unit), ExactSums.of_integers(beyond, unit)


def are_alike(weight: ExactSums, q: FloatArray) -> bool:
    """Return whether all weights are the same, and all shares."""
    return bool((q == q[0]).all() and (weight.digits == weight.digits[:, :1]).all())


def whole_needs(total: Any, q: FloatArray) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """Return the least whole sums that reach the share q of whole sums, and that exceed it.

    `total` is one Python integer for all shares, or an array of one for each. They are compared as
    those of `needs` are.
    """
    fraction, exponent = np.frexp(q)
    tops = np.ldexp(fraction, 53).astype(np.int64).astype(object)
    # Multiples of a power of two, with 64 bits below them, where the middles lie.
    places = (53 + 64 - exponent).astype(object)
    below, beyond, is_even = _halfway(total * tops << 64)
    limits = (below, (q == 0) | ~is_even), (beyond, is_even)
    least, past = (
        np.minimum(np.where(passes, (limit >> places) + 1, -(-limit >> places)), total)
        for limit, passes in limits
    )
    return np.where(q == 1, total, least), np.where(q == 1, total, past)


_bit_lengths: Any = np.frompyfunc(int.bit_length, 1, 1)


def _halfway(share: Any) -> tuple[Any, Any, NDArray[np.bool_]]:
    """Round integers to 53 bits, and find the middles between them and their neighbours.

    They are 0 or beyond 2**64. Also return whether they are even. A sum in the middle is rounded to
    the even one.
    """
    last = np.maximum(_bit_lengths(share) - 53, 1)
    half = 1 << (last - 1)
    share = (share + half - 1 + (share >> last & 1)) >> last << last
    last = np.maximum(_bit_lengths(share) - 53, 1)
    half = 1 << (last - 1)
    is_power = (share & (share - 1)) == 0
    return share - (half >> is_power.astype(object)), share + half, (share >> last & 1) == 0


@dataclass(frozen=True, eq=False)
class Wholes:
    """Table of weights, or of their running sums, as whole numbers of a unit.

    Parameters
    ----------
    exponent : int
        The unit is ``2**exponent``.
    limbs : list of ndarray of int64, shape (n_rows, n)
        Digits of 32 bits, the lowest first; the highest has all remaining bits. The sum of a row of
        weights fits int64 in every limb. Mostly one or two.
    """

    exponent: int
    limbs: list[IntArray]

    @classmethod
    def of_sums(cls, sums: ExactSums) -> Self:
        """Make one row of running sums."""
        sums = sums.in_digits()
        limbs = [*sums.aligned(sums.first, max(len(sums.digits), 1))[:, None]]
        if len(limbs) > 1 and limbs[-1].max(initial=0) <= MASK // 2:
            limbs[-2:] = [limbs[-1] << DIGIT | limbs[-2]]
        return cls(DIGIT * sums.first, limbs)

    def at(self, n: IntArray, row: IntArray | None = None) -> ExactSums:
        """Return the sums of the first `n` weights of each row, or of some rows."""
        last = np.maximum(n - 1, 0)
        limbs = (taken(limb, last) if row is None else limb[row, last] for limb in self.limbs)
        return self.exact(np.array([np.where(n > 0, limb, 0) for limb in limbs]))

    def sums(self) -> ExactSums:
        """Return the sum of each row."""
        return self.exact(np.array([limb.sum(axis=1) for limb in self.limbs]))

    def exact(self, limbs: IntArray) -> ExactSums:
        """Convert the limbs of some sums to exact numbers."""
        return ExactSums.carried(0, limbs).shifted(self.exponent).trimmed()

    def reach(self, sums: ExactSums, row: IntArray | None = None) -> IntArray:
        """Count the running sums below each of some sums, in its row or in every row.

        The result is the place of the first running sum that reaches it.
        """
        wanted = self.limbs_of(sums)
        table, n = self.limbs[-1], self.limbs[0].shape[1]
        # The highest limb alone mostly decides.
        if len(table) == 1:
            low, high = (table[0].searchsorted(wanted[-1], side) for side in ("left", "right"))
        elif n <= COUNTED:
            some, least = table if row is None else table[row], wanted[-1][:, None]
            low, high = (np.count_nonzero(each, axis=1) for each in (some < least, some <= least))
        else:
            low, high = np.zeros_like(wanted[-1]), np.full_like(wanted[-1], n)
        row = np.arange(len(low)) if row is None and len(table) > 1 else row
        for _ in range(int((high - low).max(initial=0)).bit_length()):
            middle = (low + high) >> 1
            at = 0 if row is None else row, np.minimum(middle, n - 1)
            is_less, is_equal = np.zeros(low.shape, np.bool_), low < high
            for limb, least in zip(reversed(self.limbs), reversed(wanted), strict=True):
                other = limb[at]
                is_less |= is_equal & (other < least)
                is_equal &= other == least
                if not is_equal.any():
                    break
            low, high = np.where(is_less, middle + 1, low), np.where(is_less, high, middle)
        return np.asarray(low)

    def limbs_of(self, sums: ExactSums) -> list[IntArray]:
        """Round numbers up to units, negative ones to 0, and split them.

        The highest limb saturates at the largest int64.
        """
        last = len(self.limbs) - 1
        if sums.is_few:
            few, shift = sums.integers(sums.first), self.exponent - DIGIT * sums.first
            wholes = np.maximum(-(-few >> shift) if shift > 0 else few << -shift, 0)
            digits = [wholes >> DIGIT * i & MASK for i in range(last)]
            digits.append(np.minimum(wholes >> DIGIT * last, MOST))
            return [each.astype(np.int64) for each in digits]
        sums = sums.where(~sums.is_negative).shifted(-self.exponent).whole()
        limbs = [*sums.aligned(0, max(len(sums.digits), last + 2))]
        highest, beyond = limbs[last] | limbs[last + 1] << DIGIT, limbs[last + 2 :]
        is_beyond = (highest < 0) | (limbs[last + 1] > MASK // 2) | np.any(beyond, axis=0)
        return [*limbs[:last], np.where(is_beyond, MOST, highest)]

    @classmethod
    def of(cls, weights: NDArray[Any]) -> Self:
        """Convert a table of float64 or int64, none negative, on the host or a device."""
        carry = weights.shape[1].bit_length()
        largest = weights.max().item() if weights.size else 0
        if weights.dtype.kind == "i":
            if largest << carry < 1 << 62:
                return cls(0, [weights])
            return cls(0, [weights & MASK, weights >> DIGIT])
        top = math.frexp(largest)[1]
        exponent = max(top + carry - 62, LEAST)
        scaled = _scaled(weights, -exponent)
        whole = scaled.astype(np.int64)
        # A number that scaling makes 0 is too small to be whole.
        if (whole == scaled).all() and np.count_nonzero(whole) == np.count_nonzero(weights):
            return cls(exponent, [whole])
        least = float(np.where(weights > 0, weights, largest).min())
        exponent = max(math.frexp(least)[1] - 53, LEAST)
        limbs, rest = [], weights
        for low in reversed(range(exponent, top, DIGIT)):
            part = np.floor(_scaled(rest, -low))
            limbs.append(part.astype(np.int64))
            rest = rest - _scaled(part, low)
        return cls(exponent, limbs[::-1])

    def running(self) -> Self:
        """Compute the running sums of each row."""
        # Of a single row without an axis: CuPy would read it once for every bit of its length.
        limbs = [
            limb.cumsum(axis=1) if len(limb) > 1 else limb.cumsum()[None] for limb in self.limbs
        ]
        for low, high in zip(limbs[:-1], limbs[1:], strict=True):
            high += low >> DIGIT
            low &= MASK
        return type(self)(self.exponent, limbs)

    def squares(self) -> ExactSums:
        """Compute the sum of the squares of each row."""
        n_rows, n = self.limbs[0].shape
        # Split into pieces so small that sums of their products are exact as float64.
        n_bits = 64 if len(self.limbs) == 1 else DIGIT
        pieces = [
            (
                DIGIT * i + shift,
                (limb >> shift & MASK >> HALF).astype(np.float64),
            )
            for i, limb in enumerate(self.limbs)
            for shift in range(0, n_bits, HALF)
        ]
        pieces = [(place, piece) for place, piece in pieces if piece.any()]
        digits = np.zeros((2 * len(self.limbs) + 6, n_rows), np.int64)
        for upto, (i, one) in enumerate(pieces, 1):
            for j, other in pieces[:upto]:
                place, shift = divmod(i + j + (i != j), DIGIT)
                for start in range(0, n, FACTORS):
                    some = slice(start, start + FACTORS)
                    sums = np.einsum("ij,ij->i", one[:, some], other[:, some]).astype(np.int64)
                    low, high = (sums & MASK) << shift, (sums >> DIGIT) << shift
                    digits[place] += low & MASK
                    digits[place + 1] += (low >> DIGIT) + high
        return ExactSums.carried(0, digits).shifted(2 * self.exponent).trimmed()


MOST = np.iinfo(np.int64).max
COUNTED = 256  # up to so many sums, comparing all takes less time than bisection


def squares_of(weights: NDArray[Any], wholes: Wholes) -> ExactSums:
    """Compute the sum of squares of each row of weights; `wholes` are the same weights."""
    if len(wholes.limbs) <= NARROW:
        return wholes.squares()
    row, place = np.nonzero(weights)
    some = weights[row, place]
    return ExactSums.of(row, len(weights), some, some)


NARROW = 9
"""Largest number of limbs whose pieces are multiplied by each other.

With more limbs most pieces are zero: for 2.6e5 weights of all magnitudes 8,000 products took 2.4 s.
Squaring each weight by itself takes 0.06 s.
"""


def _scaled(values: NDArray[Any], exponent: int) -> NDArray[Any]:
    """Multiply values by a power of two."""
    if abs(exponent) < 1000:  # takes a third of the time of ldexp
        scaled: NDArray[Any] = values * math.ldexp(1.0, exponent)
    else:
        scaled = np.ldexp(values, exponent)
    return scaled


def taken(table: NDArray[Any], at: IntArray) -> NDArray[Any]:
    """Take elements of each row at places of its own; shape ``(n_rows, ...)``.

    Places beyond the ends take the nearest element.
    """
    if not table.shape[1]:
        return np.zeros(at.shape, table.dtype)
    flat = np.clip(at.reshape(len(table), math.prod(at.shape[1:])), 0, table.shape[1] - 1)
    return np.take_along_axis(table, flat, axis=1).reshape(at.shape)


def search(table: NDArray[Any], wanted: NDArray[Any], n: IntArray, *, upto: bool) -> IntArray:
    """Count the entries of each row that are below wanted values, or `upto` them.

    Only the first `n` entries of a row are searched; they ascend. `wanted` has shape ``(n_rows,
    ...)``, and so has the result.
    """
    low, high = np.zeros((2, *wanted.shape), np.int64)
    high += n.reshape(-1, *(1 for _ in wanted.shape[1:]))
    for _ in range(table.shape[1].bit_length()):
        middle = (low + high) >> 1
        entry = taken(table, middle)
        is_before = (entry <= wanted if upto else entry < wanted) & (low < high)
        low, high = np.where(is_before, middle + 1, low), np.where(is_before, high, middle)
    return np.asarray(low)


def sum_of(parts: Sequence[Any]) -> Any:
    """Add up numbers, arrays of numbers, or exact sums."""
    return parts[0].sum(parts) if isinstance(parts[0], ExactSums) else sum(parts)


def joined_weights(weights: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate weights; where some are integers beyond 2**53, all become integers."""
    if len({each.dtype for each in weights}) > 1:
        weights = [each.astype(np.int64, copy=False) for each in weights]
    return np.concatenate(weights)


EVEN_BITS = (1 << 28) - 1  # bits of a float64 that are 0 if it is halfway between two float32


def quotients(
    numerators: Iterable[int], denominators: Iterable[int], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Round fractions with positive denominators once to a floating-point dtype."""
    pairs = [*zip(numerators, denominators, strict=True)]
    rounded = np.array([top / bottom for top, bottom in pairs], np.float64)
    is_even = rounded.view(np.uint64) & np.uint64(EVEN_BITS) == 0
    for i in np.flatnonzero(is_even).tolist() if dtype.itemsize < 8 else ():
        # Take the float64 next to it on the side of the fraction: it is never halfway between two
        # numbers of the smaller dtype, so the second rounding is right.
        (top, bottom), (numerator, denominator) = rounded[i].as_integer_ratio(), pairs[i]
        rest = numerator * bottom - top * denominator
        if rest:
            rounded[i] = np.nextafter(rounded[i], np.inf if rest > 0 else -np.inf)
    with np.errstate(over="ignore", under="ignore"):
        return rounded.astype(dtype)
