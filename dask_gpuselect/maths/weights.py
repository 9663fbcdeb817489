"""Elements that weigh: cuts and tallies with sums of weights beside the counts.

A quantile of weighted elements is the smallest x with F(x) >= q W, where F(x) is the sum of the
weights of the elements up to x, and W that of all. Both are sums of floats that no rounding may
decide. So the first load adds up whole units of a chunk's own, each weight rounded down, and counts
bound what is lost; and the second load adds up without rounding at all.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import HostCandidates
from dask_gpuselect.maths.cuts import (
    Brackets,
    Cuts,
    FloatArray,
    IntArray,
    Tally,
    multiplied,
)
from dask_gpuselect.maths.exact_sums import integers_of
from dask_gpuselect.maths.lane_moments import Halves, add_numbers, add_products, digits_of
from dask_gpuselect.maths.moments import (
    CUBE_DIGITS,
    DIGIT,
    SQUARE_DIGITS,
    TOTAL_DIGITS,
    TOTAL_POINT,
    integer,
    integers,
)

FLOAT64 = np.finfo(np.float64)

ExactSums = NDArray[np.object_]
"""Python's integers, in units of ``2**-1088`` as those of `maths.moments`: exact, whatever is
added."""


SQUARE_ROUNDINGS = 16
"""Of a sum of squares, beside one for each element."""

NEGATIVE = "Weights must be non-negative."
NOT_FINITE = "Weights included NaN, inf or were all zero."
"""As NumPy has it."""


# Of each pivot with its sums of weights, and there are up to twice as many as without weights.
PIVOT_BYTES = 2 * 56
WEIGHT_BYTES = 8


@dataclass(frozen=True, slots=True, eq=False)
class WeightedCuts(Cuts):
    """Cuts that say how much the elements weigh, beside how many there are.

    Elements of weight 0 are left out of all of it.

    Parameters
    ----------
    weight_below, weight_upto : ndarray of int64, shape (P,)
        Sums of the weights of the elements < and <= the pivot, each weight rounded down to whole
        units of ``2**unit``: the exact sum is at least that, and less than `below` or `upto` units
        more.
    weight : ndarray of int64, shape (B,)
        The same of all valid elements of each chunk; below 2**62.
    unit : ndarray of int64, shape (B,)
        The exponent of each chunk's unit.
    square : ndarray of float64, shape (B,)
        The sum of the squares of the weights of valid elements, in units of ``2**(2 * unit)``, in
        which none overflows; to a relative error of ``(n + SQUARE_ROUNDINGS) * 2**-52`` for a chunk
        of n valid elements, as any order of adding them up has.
    """

    weight_below: IntArray
    weight_upto: IntArray
    weight: IntArray
    unit: IntArray
    square: FloatArray

    OF_CHUNKS: ClassVar[frozenset[str]] = Cuts.OF_CHUNKS | {"weight", "unit", "square"}

    @property
    def least_weight_upto(self) -> IntArray:
        """What the elements <= the pivot weigh, at least."""
        return self.weight_upto

    @property
    def most_weight_below(self) -> IntArray:
        """What the elements < the pivot weigh, at most."""
        return self.weight_below + self.below

    @property
    def most_weight_upto(self) -> IntArray:
        """What the elements <= the pivot weigh, at most."""
        return self.weight_upto + self.upto

    @property
    def most_weight(self) -> IntArray:
        """What all valid elements of each chunk weigh, at most."""
        return self.weight + self.n_valid

    def by_mass(self) -> Cuts:
        shift = np.minimum(self.unit - self._unit(), 0)  # a chunk without elements has any unit
        scale = np.ldexp(1.0, shift.astype(np.int32))
        scale *= 2.0**-10  # so that no sum of all chunks exceeds an int64
        at_pivots = np.repeat(scale, self.sizes)
        return Cuts(
            self.pivots,
            multiplied(self.weight_below, at_pivots),
            multiplied(self.weight_upto, at_pivots),
            self.distance,
            self.slack,
            self.sizes,
            multiplied(self.weight, scale),
            self.n_missing,
            doubt=self.doubt,
        )

    def times(self, factors: FloatArray) -> Self:
        found = Cuts.times(self, factors)
        shares = factors / factors.max()  # of weights, only the ratios matter
        at_pivots = np.repeat(shares, self.sizes)
        return replace(
            found,
            weight_below=multiplied(self.weight_below, at_pivots),
            weight_upto=multiplied(self.weight_upto, at_pivots),
            weight=multiplied(self.weight, shares),
            square=self.square * shares,
        )

    def _unit(self) -> int:
        """The largest unit of a chunk with elements."""
        return int(self.unit[self.n_valid > 0].max())


@dataclass(frozen=True, slots=True, eq=False)
class CoarseWeightedCuts(WeightedCuts):
    """Cuts of groups of chunks, each of them as one chunk, of which all is known from both sides:
    see `maths.coarse`.

    Parameters
    ----------
    below, upto, weight_below, weight_upto
        As of `WeightedCuts`, but of so much at most.
    least, least_weight : ndarray of int64, shape (P,)
        How many valid elements of the group are <= the pivot, and what they weigh, at least.
    weight_at_most : ndarray of int64, shape (B,)
        What all valid elements of each group weigh, at most; `weight` is at least.
    """

    least: IntArray
    least_weight: IntArray
    weight_at_most: IntArray

    OF_CHUNKS: ClassVar[frozenset[str]] = WeightedCuts.OF_CHUNKS | {"weight_at_most"}

    @property
    def least_upto(self) -> IntArray:
        return self.least

    @property
    def least_weight_upto(self) -> IntArray:
        return self.least_weight

    @property
    def most_weight_below(self) -> IntArray:
        return self.weight_below

    @property
    def most_weight_upto(self) -> IntArray:
        return self.weight_upto

    @property
    def most_weight(self) -> IntArray:
        return self.weight_at_most


@dataclass(frozen=True, slots=True, eq=False)
class WeightedBrackets(Brackets):
    """Brackets of weights, and the cells between those that are the ends of a window.

    Parameters
    ----------
    summed : ndarray of bool, shape (E + 1,)
        Whether the products of element and weight are added up in open cell j. None of these cells
        is wanted, and each of them is between two ends.
    """

    summed: NDArray[np.bool_]

    tells_more: ClassVar[bool] = True

    @property
    def asked(self) -> NDArray[np.bool_]:
        return self.wanted | self.summed


@dataclass(frozen=True, slots=True, eq=False)
class WeightedTally(Tally):
    """A tally that says how much the elements weigh, beside how many there are.

    Parameters
    ----------
    weight_below, weight_upto : ndarray of Python's integers, shape (E,)
        Exact sums of the weights of the valid elements < and <= each end.
    weight : int
        The exact sum of the weights of all valid elements, in the same units.
    weights : array of float64 or int64, shape (C,)
        Of the candidates, in their order; where these are. What is merged or finished has
        both on the host.
    n_idle : int
        Number of elements that are not left out and weigh nothing.
    square : int
        The exact sum of the squares of the weights, in units of ``2**-2176``; 0 at brackets that
        are not `WeightedBrackets`.
    products : ndarray of Python's integers, shape (E + 1,)
        The exact sums of element times weight in the cells that are `WeightedBrackets.summed`, in
        the same units; empty at other brackets.
    """

    weight_below: ExactSums
    weight_upto: ExactSums
    weight: int
    weights: Any
    n_idle: int = field(default=0, kw_only=True)
    square: int = field(default=0, kw_only=True)
    products: ExactSums = field(default_factory=lambda: np.empty(0, object), kw_only=True)

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """The tally of all parts together, with candidates on the host."""
        if len(parts) == 1:
            return parts[0]

        def total(name: str) -> Any:
            return sum(getattr(part, name) for part in parts)

        candidates = np.concatenate([part.candidates.on_host() for part in parts])
        weights = [part.weights for part in parts]
        if len({each.dtype for each in weights}) > 1:  # integers, of which some are beyond 2**53
            weights = [each.astype(np.int64) for each in weights]
        return cls(
            total("below"),
            total("upto"),
            HostCandidates(candidates),
            total("n_valid"),
            total("n_missing"),
            total("weight_below"),
            total("weight_upto"),
            total("weight"),
            np.concatenate(weights),
            n_left_out=total("n_left_out"),
            n_idle=total("n_idle"),
            square=total("square"),
            products=total("products"),
        )

    def columns(self) -> list[NDArray[Any]]:
        return [*Tally.columns(self), self.weights]

    def with_columns(self, columns: Sequence[NDArray[Any]]) -> Self:
        elements, weights = columns
        return replace(self, candidates=HostCandidates(elements), weights=weights)

    @property
    def held_bytes(self) -> int:
        elements = len(self.candidates) * self.candidates.dtype.itemsize
        return elements + int(self.weights.nbytes)


# --- Exact sums -----------------------------------------------------------------------------------

AT_ONCE = 1 << 16  # numbers whose digits are looked at together
MOST_BINS = 4 * AT_ONCE  # in which their digits are counted
DIGITS = 53  # of a float64, in bits
NORMAL = 1000  # powers of two up to here, and as small ones, scale numbers without rounding them
POINT = DIGIT * TOTAL_POINT  # bits behind the binary point of a sum of weights


def exact_sums(weights: NDArray[Any], group: IntArray, n_groups: int) -> ExactSums:
    """The sums of the weights in each group, in units of ``2**-1088``."""
    if n_groups == len(weights) and np.array_equal(group, np.arange(n_groups)):  # one in each
        exponent, whole = integers_of(weights)
        return np.asarray(whole << POINT + exponent, object)
    table = np.zeros((n_groups, TOTAL_DIGITS), np.int64)
    alike: ExactSums = np.zeros(n_groups, object)
    for begin in range(0, len(weights), AT_ONCE):
        some = weights[begin : begin + AT_ONCE]
        their_group = group[begin : begin + AT_ONCE]
        found = _sums_of_few_digits(some, their_group, n_groups) if n_groups < len(some) else None
        if found is None:
            _add_counted(table, their_group, some)
        else:
            alike += found
    return np.asarray(_integers(table) + alike, object)


def exact_sums_of_runs(weights: NDArray[Any], length: int) -> ExactSums:
    """The sums of so many neighbouring weights each, the last of the rest."""
    found = _in_one_unit(weights, length)
    if found is None:
        return exact_sums(weights, np.arange(len(weights)) // length, -(-len(weights) // length))
    whole, unit = found
    sums: FloatArray = np.add.reduceat(whole, np.arange(0, len(weights), length))
    return _shifted(sums, unit)


# NumPy counts in bins, whose sums are float64: the two ways below take sums of which these are
# exact. 45,000 float32 in 90 groups take 0.4 ms by the first and 1.5 by the second, and 8 by
# `add_numbers`.


def _sums_of_few_digits(weights: NDArray[Any], group: IntArray, n_groups: int) -> ExactSums | None:
    """The sums of at most `AT_ONCE` floats in each group, if one unit lets each be a float64."""
    found = _in_one_unit(weights, int(np.bincount(group).max()))
    if found is None:
        return None
    whole, unit = found
    return _shifted(np.bincount(group, whole, n_groups), unit)


def _in_one_unit(weights: NDArray[Any], n: int) -> tuple[FloatArray, int] | None:
    """Floats in whole units, and the exponent of the unit, if the sum of any n of them is a float64
    then."""
    if weights.dtype.kind != "f" or not len(weights):
        return None
    unit = math.frexp(float(weights.max()))[1] + n.bit_length() - DIGITS
    if not -NORMAL <= unit <= NORMAL:
        return None
    whole = np.trunc(weights * 2.0**-unit)
    return (whole, unit) if np.array_equal(whole * 2.0**unit, weights) else None


def _shifted(sums: NDArray[Any], unit: int) -> ExactSums:
    """Sums of whole units as exact ones."""
    return np.asarray(sums.astype(np.int64).astype(object) << (unit + POINT), object)


def _add_counted(table: IntArray, group: IntArray, weights: NDArray[Any]) -> None:
    """Add at most `AT_ONCE` weights to the digits of their groups."""
    numbers = Halves.of(weights)
    digit, parts = digits_of(numbers)
    first = int(digit.min())
    n_digits = int(digit.max()) + 1 - first
    if len(table) * n_digits > MOST_BINS:
        add_numbers(table, group, numbers)
        return
    bins = group * n_digits + (digit - first)
    for i, part in enumerate(parts):
        found = np.bincount(bins, part, len(table) * n_digits).reshape(len(table), n_digits)
        table[:, first + i : first + i + n_digits] += found.astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RunningSums(Sequence[int]):
    """What some weights before each of them and behind the last weigh together, in units of
    ``2**-1088``. Few of these sums are asked for, so they become Python's integers then.

    Parameters
    ----------
    table : ndarray of int64, shape (n + 1, D)
        Digits of the sums.
    first : int
        Which of all digits is the first in the table.
    start : int
        What is added to each.
    """

    table: IntArray
    first: int
    start: int

    @classmethod
    def of(cls, weights: NDArray[Any], start: int) -> Self:
        if not len(weights):
            return cls(np.zeros((1, 1), np.int64), 0, start)
        digit, parts = digits_of(Halves.of(weights))
        first = int(digit.min())
        table = np.zeros((len(weights) + 1, int(digit.max()) - first + len(parts)), np.int64)
        behind = np.arange(1, len(table))
        for i, part in enumerate(parts):
            table[behind, digit - first + i] = part
        return cls(table.cumsum(axis=0), first, start)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, at: Any) -> Any:
        return self.start + (integer(self.table[at]) << DIGIT * self.first)


def exact_products(
    values: NDArray[Any], weights: NDArray[Any], group: IntArray, n_groups: int
) -> ExactSums:
    """The sums of weights times finite elements in each group, in units of ``2**-2176``."""
    table = np.zeros((n_groups, SQUARE_DIGITS), np.int64)
    for begin in range(0, len(weights), AT_ONCE):
        some = slice(begin, begin + AT_ONCE)
        numbers = Halves.of(values[some]), Halves.of(weights[some])
        add_products(table, group[some], *numbers)
    return _integers(table)


def exact_squares(values: NDArray[Any], weights: NDArray[Any]) -> int:
    """The sum of weights times the squares of finite elements, in units of ``2**-3264``."""
    table = np.zeros((1, CUBE_DIGITS), np.int64)
    for begin in range(0, len(weights), AT_ONCE):
        some = slice(begin, begin + AT_ONCE)
        number, weight = Halves.of(values[some]), Halves.of(weights[some])
        lane, low, high = np.zeros_like(number.begin), number.low, number.high
        for shift, term in ((0, low * low), (DIGIT + 1, low * high), (2 * DIGIT, high * high)):
            add_products(table, lane, Halves.positive(term, 2 * number.begin + shift), weight)
    return integer(table[0])


UNIT_BITS = 61  # of a sum of weights in int64, at most


def in_units(tally: WeightedTally, sums: ExactSums) -> IntArray:
    """Exact sums, of at most all weights of a tally, in whole units of `unit_of`, rounded down."""
    shift = unit_of(tally) + POINT
    return np.array([int(each) >> shift for each in sums], np.int64)


def unit_of(tally: WeightedTally) -> int:
    """The exponent of a unit in which the sum of all weights of a tally fits int64."""
    return max(int(tally.weight).bit_length() - UNIT_BITS, 0) - POINT


def square_in_units(tally: WeightedTally) -> float:
    """The sum of the squares of the weights of a tally: `WeightedCuts.square`."""
    shift = max(int(tally.square).bit_length() - UNIT_BITS, 0)
    return math.ldexp(int(tally.square) >> shift, shift - 2 * (unit_of(tally) + POINT))


def _integers(table: IntArray) -> ExactSums:
    found = np.zeros(len(table), object)
    places = np.flatnonzero(table.any(axis=0)).tolist()
    if len(places) > WIDE:
        found[:] = integers(table[:, places[0] : places[-1] + 1])
        return np.asarray(found << DIGIT * places[0], object)
    for place in places:
        found += table[:, place].astype(object) << (DIGIT * place)
    return found


WIDE = 10
"""Digits. More are read as bytes: 68 of 2.4e5 sums in a fifth of the time."""


def rounded_sums(weights: Iterable[int]) -> NDArray[np.float64]:
    """Exact sums as float64, each rounded once; inf beyond the largest."""
    whole = list(weights)
    bits = functools.reduce(operator.or_, whole, 0)
    shift = max((bits & -bits).bit_length() - 1, 0)  # to the last bit that some have
    if bits.bit_length() - shift < FLOAT64.maxexp and shift - POINT >= FLOAT64.minexp:
        # No sum overflows before it is scaled, or loses bits then: 0.4 of the time.
        with np.errstate(over="ignore"):
            return np.ldexp(np.array([each >> shift for each in whole], np.float64), shift - POINT)
    return np.array([_rounded(weight) for weight in whole], np.float64)


def _rounded(weight: int) -> float:
    try:
        return weight / (1 << POINT)
    except OverflowError:
        return math.inf
