"""Exact sums of weights in the rows of tables, and what is compared with them.

A float64 is a whole number of small units, so sums of floats are integers: too large for int64,
as a rule, and so kept in digits. Nothing here rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray
from dask_gpuselect.maths.lane_moments import Halves, add_products, two_sum
from dask_gpuselect.maths.moments import SQUARE_DIGITS, SQUARE_POINT

DIGIT = 16  # bits
MASK = (1 << DIGIT) - 1
LEAST = -1074  # the exponent of the last bit of the smallest float64


@dataclass(frozen=True, eq=False)
class Sums(Arrays):
    """A table of exact numbers, whole multiples of ``2**(16 * first)``.

    Parameters
    ----------
    first : int
        The place of the lowest digit.
    digits : ndarray of uint16 or int64, shape (n_digits, *table)
        The lowest first, each of 16 bits; of a negative number, the highest is negative.
    """

    first: int
    digits: NDArray[Any]

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> Self:
        return cls(0, np.zeros((0, *shape), np.int64))

    @classmethod
    def carried(cls, first: int, digits: IntArray) -> Self:
        """The numbers that digits of any size make, but for the highest: it takes what is left."""
        for low, high in zip(digits[:-1], digits[1:], strict=True):
            high += low >> DIGIT
            low &= MASK
        return cls(first, digits)

    @classmethod
    def of_integers(cls, numbers: NDArray[np.object_], unit: int) -> Self:
        """Python's integers, none negative, in units of ``2**(16 * unit)``; shape ``(n,)``."""
        size = max((int(each).bit_length() for each in numbers), default=0) // DIGIT + 1
        text = b"".join(int(each).to_bytes(2 * size, "little") for each in numbers)
        return cls(unit, np.frombuffer(text, "<u2").reshape(-1, size).T.astype(np.int64))

    @classmethod
    def sum(cls, parts: Sequence[Self]) -> Self:
        """The sums of the numbers at each place."""
        first, n = _span(parts)
        total = np.zeros((n, *parts[0].digits.shape[1:]), np.int64)
        for part in parts:
            total[part._places(first)] += part.digits
        return cls.carried(first, total).packed()

    @classmethod
    def stacked(cls, parts: Sequence[Self], axis: int, *, join: bool = False) -> Self:
        """Tables side by side: along a new axis, or joined along one that they have."""
        first, n = _span(parts)
        tables = [part.aligned(first, n) for part in parts]
        axis += axis >= 0
        return cls(first, np.concatenate(tables, axis) if join else np.stack(tables, axis))

    def aligned(self, first: int, n_digits: int) -> IntArray:
        """The digits from another place on, which has to be before these."""
        digits = np.zeros((n_digits, *self.digits.shape[1:]), np.int64)
        digits[self._places(first)] = self.digits
        return digits

    def _places(self, first: int) -> slice:
        return slice(self.first - first, self.first - first + len(self.digits))

    def __getitem__(self, index: Any) -> Self:
        """Some of the table."""
        index = index if isinstance(index, tuple) else (index,)
        return type(self)(self.first, self.digits[:, *index])

    def trimmed(self) -> Self:
        """The same numbers without digits that are zero in all."""
        some = np.flatnonzero(self.digits.any(axis=tuple(range(1, self.digits.ndim))))
        if not len(some):
            return type(self)(0, self.digits[:0])
        start, stop = int(some[0]), int(some[-1]) + 1
        return type(self)(self.first + start, self.digits[start:stop])

    def packed(self) -> Self:
        """The same numbers, none negative, in less memory."""
        found = self.trimmed()
        return type(self)(found.first, found.digits.astype(np.uint16))

    def minus(self, other: Self) -> Self:
        """The differences."""
        if not len(other.digits):
            return self
        first, n = _span([self, other])
        return self.carried(first, self.aligned(first, n) - other.aligned(first, n))

    def times(self, q: float) -> Self:
        """The exact products with a float64, from 0 to 1."""
        p, denominator = q.as_integer_ratio()
        places, shift = divmod(1 - denominator.bit_length(), DIGIT)
        return self._times([(p << shift) >> DIGIT * i & MASK for i in range(6)], places)

    def share_of(self, shares: NDArray[np.float64]) -> Self:
        """The products with numbers from 0 to 1 at each place, these rounded to ``2**-48``."""
        whole = np.rint(shares * 2.0**48).astype(np.int64)
        return self._times([whole >> DIGIT * i & MASK for i in range(4)], -3)

    def shifted(self, bits: int) -> Self:
        """The products with ``2**bits``."""
        places, shift = divmod(bits, DIGIT)
        if not shift:
            return type(self)(self.first + places, self.digits)
        return self._times([1 << shift], places)

    def _times(self, factors: Sequence[Any], places: int) -> Self:
        n = len(self.digits)
        digits = np.zeros((n + len(factors) + 1, *self.digits.shape[1:]), np.int64)
        for i, factor in enumerate(factors):
            if np.any(factor):
                digits[i : i + n] += self.digits.astype(np.int64) * factor
        return self.carried(self.first + places, digits)

    @property
    def is_negative(self) -> NDArray[np.bool_]:
        if not len(self.digits):
            return np.zeros(self.digits.shape[1:], np.bool_)
        return np.asarray(self.digits[-1] < 0)

    @property
    def is_zero(self) -> NDArray[np.bool_]:
        return np.asarray(~self.digits.any(axis=0))

    def whole(self, more: NDArray[np.bool_]) -> Self:
        """The least integers that are no less; or, where `more`, that are larger. Of numbers that
        are not negative."""
        one = np.zeros((1, *self.digits.shape[1:]), np.int64)
        first, n = _span([self, type(self)(0, one)])
        digits = self.aligned(first, n + 1)
        low, high = digits[:-first], digits[-first:]
        high[0] += more | low.any(axis=0)
        return self.carried(0, high)

    def plus_bit(self, place: IntArray, number: IntArray) -> Self:
        """The sums with small numbers times ``2**place``, counted from the lowest bit."""
        place = np.maximum(place, 0)
        at = DIGIT * np.arange(len(self.digits)).reshape(-1, *(1,) * place.ndim)
        added = np.where(place // DIGIT * DIGIT == at, number, 0) << (place % DIGIT)
        return self.carried(self.first, self.digits + added)

    def has_bit(self, place: IntArray) -> NDArray[np.bool_]:
        """Whether a bit is set, counted from the lowest."""
        place = np.maximum(place, 0)
        digit = np.take_along_axis(self.digits, (place // DIGIT)[None], axis=0)[0]
        return np.asarray((digit >> place % DIGIT & 1) != 0)

    def last_bit(self) -> IntArray:
        """The place of the last of the 53 bits that the numbers have as floats; 0 for zero."""
        top = np.maximum(len(self.digits) - 1 - np.argmax(self.digits[::-1] != 0, axis=0), 0)
        highest = np.take_along_axis(self.digits, top[None], axis=0)[0]
        found = DIGIT * top + np.frexp(highest.astype(np.float64))[1] - 53
        return np.asarray(np.maximum(found, 0))

    def integers(self, unit: int) -> NDArray[np.object_]:
        """Python's integers, in units of ``2**(16 * unit)``, of which all are whole multiples."""
        if len(self.digits) > WIDE:
            return self._wide_integers(unit)
        total = np.zeros(self.digits.shape[1:], object)
        for i in range(0, len(self.digits), 3):  # 48 bits at once
            part = np.zeros(total.shape, np.int64)
            for j, digit in enumerate(self.digits[i : i + 3]):
                part += digit.astype(np.int64) << DIGIT * j
            total += part.astype(object) << DIGIT * (self.first + i - unit)
        return total

    def _wide_integers(self, unit: int) -> NDArray[np.object_]:
        """The same, read as bytes: of 135 digits in a twentieth of the time."""
        *_, highest = self.digits.reshape(len(self.digits), -1)
        words = np.ascontiguousarray(self.digits[:-1].reshape(len(self.digits) - 1, -1).T, "<u2")
        text, size = words.tobytes(), 2 * words.shape[1]
        found = np.empty(len(words), object)
        found[:] = [
            int.from_bytes(text[size * i : size * (i + 1)], "little") + (last << 8 * size)
            for i, last in enumerate(highest.tolist())
        ]
        whole = np.left_shift(found, DIGIT * (self.first - unit))
        return np.asarray(whole, object).reshape(self.digits.shape[1:])

    def pair(self, exponent: int) -> tuple[FloatArray, FloatArray]:
        """The numbers in units of ``2**exponent``, which leave them below 2**300, as two floats of
        106 bits together, or some less."""
        first, second = np.zeros((2, *self.digits.shape[1:]))
        for i in reversed(range(len(self.digits))):
            digit = np.ldexp(self.digits[i].astype(np.float64), DIGIT * (i + self.first) - exponent)
            first, rest = two_sum(first, digit)
            second += rest
        return two_sum(first, second)

    def leading(self) -> tuple[NDArray[np.float64], IntArray]:
        """The numbers as floats times ``2**(16 * place)``, to 64 bits and more; 0 for zero."""
        shape = self.digits.shape[1:]
        if not len(self.digits):
            return np.zeros(shape), np.zeros(shape, np.int64)
        top = len(self.digits) - 1 - np.argmax(self.digits[::-1] != 0, axis=0)
        found = np.zeros(shape)
        for i in range(min(5, len(self.digits))):
            digit = np.take_along_axis(self.digits, np.maximum(top - i, 0)[None], axis=0)[0]
            found += np.where(top >= i, np.ldexp(digit.astype(np.float64), -DIGIT * i), 0)
        return found, top + self.first


WIDE = 9  # digits: of more Python's integers are made of bytes


def _span(parts: Sequence[Sums]) -> tuple[int, int]:
    """The lowest place of all numbers, and how many digits they have, with one for carries."""
    some = [part for part in parts if len(part.digits)] or list(parts[:1])
    first = min(part.first for part in some)
    return first, max(part.first + len(part.digits) for part in some) - first + 1


@dataclass(frozen=True, eq=False)
class Need:
    """Sums that others have to reach, or to pass where `passes`."""

    sums: Sums
    passes: NDArray[np.bool_]

    @classmethod
    def reached(cls, sums: Sums) -> Self:
        return cls(sums, np.zeros(sums.digits.shape[1:], np.bool_))

    def repeated(self, n: int) -> Self:
        """The same for `n` rows, of one."""
        digits = np.broadcast_to(self.sums.digits, (len(self.sums.digits), n))
        return type(self)(Sums(self.sums.first, digits), np.broadcast_to(self.passes, n))

    def minus(self, sums: Sums) -> Self:
        """What is needed beside other sums."""
        return type(self)(self.sums.minus(sums), self.passes)

    @property
    def is_met(self) -> NDArray[np.bool_]:
        """Whether nothing at all is needed."""
        return self.sums.is_negative | (self.sums.is_zero & ~self.passes)


def needs(weight: Sums, q: float) -> tuple[Need, Need]:
    """What sums need to reach the share q of all weights, and to pass it.

    Share and sums are exact, and compared when each is rounded to 53 bits: the 0.1 of a user is a
    little more than a tenth, and of ten equal weights the first one is wanted. NumPy rounds the
    share where it counts elements; so weights that are counts give what as many elements would. The
    share 1 is that of all elements, however little the last one weighs.
    """
    if q == 1:
        return Need.reached(weight), Need.reached(weight)
    if weight.digits.shape[1] > 1 and (weight.digits == weight.digits[:, :1]).all():
        n_rows = weight.digits.shape[1]
        reached, passed = (need.repeated(n_rows) for need in needs(weight[:1], q))
        return reached, passed
    product = weight.times(q).trimmed()
    if q == 0:
        return Need.reached(product), Need(product, np.ones(product.digits.shape[1:], np.bool_))
    # With four digits more, for what is less than the last bit.
    n = len(product.digits) + 5
    share = Sums(product.first - 4, product.aligned(product.first - 4, n))
    last, one = share.last_bit(), np.where(share.is_zero, 0, 1)
    bits = np.clip(last - DIGIT * np.arange(n).reshape(-1, *(1,) * last.ndim), 0, DIGIT)
    lost = Sums(share.first, share.digits & ((1 << bits) - 1))  # of each digit
    share = Sums(share.first, share.digits - lost.digits)
    is_half = lost.has_bit(last - 1)
    is_up = is_half & (~lost.plus_bit(last - 1, -one).is_zero | share.has_bit(last))
    share = share.plus_bit(last, np.where(is_up, one, 0))

    last = share.last_bit()
    is_even = ~share.has_bit(last)
    is_power = share.plus_bit(last + 52, -one).is_zero
    # Halfway to the numbers of 53 bits beside it: an even one takes what is halfway.
    below, beyond = share.plus_bit(last - 1 - is_power, -one), share.plus_bit(last - 1, one)
    return Need(below, ~is_even), Need(beyond, is_even)


@dataclass(frozen=True, eq=False)
class Running:
    """The running sums of the weights in the rows of a table.

    Parameters
    ----------
    exponent : int
        They are whole multiples of ``2**exponent``.
    bits : int
        Of each limb but the highest, a multiple of 16.
    limbs : list of ndarray of int64, shape (n_rows, n)
        The lowest first. Mostly one or two.
    """

    exponent: int
    bits: int
    limbs: list[IntArray]

    def at(self, n: IntArray) -> Sums:
        """The sums of the first `n` weights of each row; shape ``(n_rows,)`` or more axes."""
        pieces, step = 4, self.bits // DIGIT
        digits = np.zeros((step * (len(self.limbs) - 1) + pieces, *n.shape), np.int64)
        for i, limb in enumerate(self.limbs):
            found = np.where(n > 0, taken(limb, n - 1), 0)
            for j in range(pieces):
                digits[step * i + j] += (found >> DIGIT * j) & MASK
        return Sums.carried(0, digits).shifted(self.exponent).trimmed()

    def pair(self, n: IntArray) -> tuple[FloatArray, FloatArray]:
        """The sums of the first `n` weights of each row, in units of ``2**exponent``, as two floats
        of 106 bits together. Of two limbs at most."""
        found = [np.where(n > 0, taken(limb, n - 1), 0) for limb in self.limbs]
        first = found[-1].astype(np.float64)
        second = (found[-1] - first.astype(np.int64)).astype(np.float64)
        if len(found) == 1:
            return first, second
        scale = 2.0**self.bits
        second, _ = two_sum(second * scale, found[0].astype(np.float64))
        return two_sum(first * scale, second)

    def some(self, rows: IntArray) -> Self:
        """Those of some rows."""
        return type(self)(self.exponent, self.bits, [limb[rows] for limb in self.limbs])

    def reach(self, need: Need) -> IntArray:
        """How many weights of each row have sums that are not enough: so the next has. Shape
        ``(n_rows,)``."""
        is_met, sums = need.is_met, need.sums.trimmed()
        if is_met.any():
            sums = Sums(sums.first, np.where(is_met, 0, sums.digits))
        wanted = self._limbs_of(sums.shifted(-self.exponent).whole(need.passes))
        n = self.limbs[0].shape[1]
        if len(wanted) == 1 and n <= COUNTED:
            found = np.count_nonzero(self.limbs[0] < wanted[0][:, None], axis=1)
            return np.where(is_met, 0, found)
        low, high = np.zeros((2, *wanted[0].shape), np.int64)
        high += n
        for _ in range(n.bit_length()):
            middle = (low + high) >> 1
            is_less, is_equal = np.zeros(low.shape, np.bool_), low < high
            for limb, least in zip(reversed(self.limbs), reversed(wanted), strict=True):
                found = taken(limb, middle[:, None])[:, 0]
                is_less |= is_equal & (found < least)
                is_equal &= found == least
                if not is_equal.any():
                    break
            low, high = np.where(is_less, middle + 1, low), np.where(is_less, high, middle)
        return np.where(is_met, 0, low)

    def _limbs_of(self, sums: Sums) -> list[IntArray]:
        """Whole numbers of units, in limbs as these; the largest limb where there are too many."""
        step, last = self.bits // DIGIT, len(self.limbs) - 1
        limbs = []
        for i in range(last + 1):
            digits = sums.digits[step * i : step * (i + 1) if i < last else step * i + 4]
            limb = np.zeros(sums.digits.shape[1:], np.int64)
            for j, digit in enumerate(digits):
                limb |= digit.astype(np.int64) << DIGIT * j
            limbs.append(limb)
        is_beyond = limbs[-1] < 0  # the sign bit
        if len(sums.digits) > step * last + 4:
            is_beyond |= sums.digits[step * last + 4 :].any(axis=0)
        limbs[-1][is_beyond] = np.iinfo(np.int64).max
        return limbs


COUNTED = 256  # of fewer sums, all are compared: bisection takes longer


@dataclass(frozen=True, eq=False)
class Wholes:
    """A table of weights as whole numbers of a unit.

    Parameters
    ----------
    exponent : int
        The unit is ``2**exponent``.
    bits : int
        Of each limb but the highest, a multiple of 16; sums of the limbs of a row fit int64.
    limbs : list of ndarray of int64, shape (n_rows, n)
        The lowest first. Mostly one or two.
    """

    exponent: int
    bits: int
    limbs: list[IntArray]

    @classmethod
    def of(cls, weights: NDArray[Any]) -> Self:
        """Of a table of float64 or int64, none negative."""
        carry = weights.shape[1].bit_length()
        bits = 48 if carry <= 15 else 32
        largest = weights.max(initial=0)
        if weights.dtype.kind == "i":
            if int(largest) << carry < 1 << 62:
                return cls(0, bits, [weights])
            return cls(0, bits, [weights & ((1 << bits) - 1), weights >> bits])
        top = math.frexp(largest)[1]
        exponent = max(top + carry - 62, LEAST)
        found = _scaled(weights, -exponent)
        whole = found.astype(np.int64)
        # What is so small that scaling makes it 0 is no whole number.
        if (whole == found).all() and np.count_nonzero(whole) == np.count_nonzero(weights):
            return cls(exponent, bits, [whole])
        least = weights.min(initial=largest, where=weights > 0)
        exponent = max(math.frexp(least)[1] - 53, LEAST)
        limbs, rest = [], weights
        for low in reversed(range(exponent, top, bits)):
            part = np.floor(_scaled(rest, -low))
            limbs.append(part.astype(np.int64))
            rest = rest - _scaled(part, low)
        return cls(exponent, bits, limbs[::-1])

    def running(self) -> Running:
        """The running sums of each row."""
        limbs = [limb.cumsum(axis=1) for limb in self.limbs]
        for low, high in zip(limbs[:-1], limbs[1:], strict=True):
            high += low >> self.bits
            low &= (1 << self.bits) - 1
        return Running(self.exponent, self.bits, limbs)

    def squares(self) -> Sums:
        """The sums of the squares of each row."""
        bits, limbs = self.bits, self.limbs
        n = limbs[0].shape[1]
        # In pieces, whose products have sums that are exact as float64.
        size, at_once = (21, 1 << 11) if n <= 1 << 11 else (16, 1 << 20)
        held = bits if len(limbs) > 1 else 64
        pieces = [
            (
                bits * i + shift,
                (limb >> shift & ((1 << min(size, held - shift)) - 1)).astype(np.float64),
            )
            for i, limb in enumerate(limbs)
            for shift in range(0, held, size)
        ]
        pieces = [(place, piece) for place, piece in pieces if piece.any()]
        digits = np.zeros((2 * bits * len(limbs) // DIGIT + 16, len(limbs[0])), np.int64)
        for upto, (i, one) in enumerate(pieces, 1):
            for j, other in pieces[:upto]:
                place, shift = divmod(i + j, DIGIT)
                for start in range(0, n, at_once):
                    some = slice(start, start + at_once)
                    found = np.einsum("ij,ij->i", one[:, some], other[:, some]).astype(np.int64)
                    for k in range(4):
                        digits[place + k] += (found >> DIGIT * k & MASK) << (shift + (i != j))
        return Sums.carried(0, digits).shifted(2 * self.exponent).trimmed()


def squares_of(weights: NDArray[Any], wholes: Wholes) -> Sums:
    """The sums of the squares of each row of a table of weights, which are these whole numbers."""
    return wholes.squares() if len(wholes.limbs) <= NARROW else _squares_apart(weights)


NARROW = 6
"""Limbs whose pieces are multiplied by each other. Of more most pieces are zero: of 2.6e5 weights
of all magnitudes 8,000 products took 2.4 s, and each weight by itself takes 0.06."""

AT_ONCE = 1 << 16  # weights


def _squares_apart(weights: NDArray[np.float64]) -> Sums:
    """The same, by the square of each weight."""
    n_rows, n = weights.shape
    columns = np.zeros((n_rows, SQUARE_DIGITS), np.int64)
    step = max(AT_ONCE // max(n_rows, 1), 1)
    for start in range(0, n, step):
        some = weights[:, start : start + step]
        row, place = np.nonzero(some)
        parts = Halves.of(some[row, place])
        add_products(columns, row, parts, parts)
    digits = np.zeros((2 * SQUARE_DIGITS + 2, n_rows), np.int64)
    digits[:-2:2], digits[1:-2:2] = columns.T & MASK, columns.T >> DIGIT
    return Sums.carried(-2 * SQUARE_POINT, digits).trimmed()


def _scaled(values: NDArray[Any], exponent: int) -> NDArray[Any]:
    """The values times a power of two."""
    if abs(exponent) < 1000:  # a third of the time
        scaled: NDArray[Any] = values * math.ldexp(1.0, exponent)
    else:
        scaled = np.ldexp(values, exponent)
    return scaled


def taken(table: NDArray[Any], at: IntArray) -> NDArray[Any]:
    """Elements of each row, at places of its own: shape ``(n_rows, ...)``; the nearest to places
    beyond the ends."""
    if not table.shape[1]:
        return np.zeros(at.shape, table.dtype)
    flat = np.clip(at.reshape(len(table), math.prod(at.shape[1:])), 0, table.shape[1] - 1)
    return np.take_along_axis(table, flat, axis=1).reshape(at.shape)


def integers_of(values: NDArray[Any]) -> tuple[int, NDArray[np.object_]]:
    """An exponent e, and Python's integers that times ``2**e`` are the values, all finite."""
    if values.dtype.kind in "iu":
        return 0, values.astype(object)
    fractions, exponents = np.frexp(values.astype(np.float64))
    whole = np.ldexp(fractions, 53).astype(np.int64)
    least = max(int(exponents.min(initial=1 << 20, where=whole != 0)) - 53, LEAST)
    shifts = np.where(whole != 0, exponents.astype(np.int64) - 53 - least, 0)
    whole >>= np.maximum(-shifts, 0)
    return least, whole.astype(object) << np.maximum(shifts, 0).astype(object)


def quotient(numerator: int, denominator: int, exponent: int, *, to_odd: bool) -> float:
    """``numerator / denominator * 2**exponent``, rounded once; or, if it is to be rounded again to
    fewer bits, to an odd last one, so that nothing is lost."""
    if to_odd:
        shift = 52 - abs(numerator).bit_length() + denominator.bit_length()
        whole, rest = divmod(abs(numerator) << max(shift, 0), denominator << max(-shift, 0))
        found = math.ldexp(whole | (rest != 0), exponent - shift)
        return -found if numerator < 0 else found
    return (numerator << max(exponent, 0)) / (denominator << max(-exponent, 0))
