"""Weighted elements: cuts and tallies with sums of weights beside the counts.

A quantile of weighted elements is the smallest x with F(x) >= q W, where F(x) is the sum of the
weights of the elements up to x, and W that of all. Both are sums of floats, and rounding must not
decide. So the first load adds up whole units of a chunk's own, with each weight rounded down, and
counts bound the loss. The second load adds up without rounding at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from dask_gpuselect.maths.cuts import (
    Cuts,
    FloatArray,
    IntArray,
    Tally,
    multiplied,
)
from dask_gpuselect.maths.exact_sums import DIGIT, SQUARE_POINT, TOTAL_POINT, ExactSums

# Units of Python integers for sums of weights, and for sums of products of two: ``2**(32 * unit)``.
WEIGHT_UNIT, PRODUCT_UNIT = -TOTAL_POINT, -SQUARE_POINT
POINT = DIGIT * TOTAL_POINT

SQUARE_ROUNDINGS = 16
"""Number of roundings of a sum of squares, in addition to one for each element."""

NEGATIVE = "Weights must be non-negative."
NOT_FINITE = "Weights included NaN, inf or were all zero."
"""Message as in NumPy."""


# Bytes of each pivot with its sums of weights; there are up to twice as many pivots as without
# weights.
PIVOT_BYTES = 2 * 56
WEIGHT_BYTES = 8


@dataclass(frozen=True, slots=True, eq=False)
class WeightedCuts(Cuts):
    """Cuts with the weight of the elements beside their number.

    Elements of weight 0 are left out of all of it.

    Parameters
    ----------
    weight_below, weight_upto : ndarray of int64, shape (P,)
        Sums of the weights of the elements < and <= the pivot, each weight rounded down to whole
        units of ``2**unit``. The exact sum is at least that, and less than `below` or `upto` units
        more.
    weight : ndarray of int64, shape (B,)
        The same sum for all valid elements of each chunk; below 2**62.
    unit : ndarray of int64, shape (B,)
        Exponent of each chunk's unit.
    square : ndarray of float64, shape (B,)
        Sum of the squares of the weights of valid elements, in units of ``2**(2 * unit)``, in which
        none overflows. Its relative error is at most ``(n + SQUARE_ROUNDINGS) * 2**-52`` for a
        chunk of n valid elements, whatever the order of adding them up.
    """

    weight_below: IntArray
    weight_upto: IntArray
    weight: IntArray
    unit: IntArray
    square: FloatArray

    OF_CHUNKS: ClassVar[frozenset[str]] = Cuts.OF_CHUNKS | {"weight", "unit", "square"}

    @property
    def least_weight_upto(self) -> IntArray:
        """Lower bound of the weight of the elements <= the pivot."""
        return self.weight_upto

    @property
    def most_weight_below(self) -> IntArray:
        """Upper bound of the weight of the elements < the pivot."""
        return self.weight_below + self.below

    @property
    def most_weight_upto(self) -> IntArray:
        """Upper bound of the weight of the elements <= the pivot."""
        return self.weight_upto + self.upto

    @property
    def most_weight(self) -> IntArray:
        """Upper bound of the weight of all valid elements of each chunk."""
        return self.weight + self.n_valid

    def by_mass(self) -> Cuts:
        shift = np.minimum(self.unit - self._unit(), 0)  # the unit of an empty chunk is arbitrary
        scale = np.ldexp(1.0, shift.astype(np.int32))
        scale *= 2.0**-10  # so that the sums of all chunks fit int64
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
        shares = factors / factors.max()  # only the ratios of weights matter
        at_pivots = np.repeat(shares, self.sizes)
        return replace(
            found,
            weight_below=multiplied(self.weight_below, at_pivots),
            weight_upto=multiplied(self.weight_upto, at_pivots),
            weight=multiplied(self.weight, shares),
            square=self.square * shares,
        )

    def _unit(self) -> int:
        """Find the largest unit of a chunk with elements."""
        return int(self.unit[self.n_valid > 0].max())


@dataclass(frozen=True, slots=True, eq=False)
class CoarseWeightedCuts(WeightedCuts):
    """Cuts of sets of chunks, each set as one chunk whose sums are known as bounds.

    See `maths.coarse`.

    Parameters
    ----------
    below, upto, weight_below, weight_upto
        Upper bounds of the sums that `WeightedCuts` has.
    least_weight : ndarray of int64, shape (P,)
        Lower bound of the weight of the set's valid elements that are <= the pivot.
    weight_at_most : ndarray of int64, shape (B,)
        Upper bound of the weight of all valid elements of each set; `weight` is the lower bound.
    """

    least_weight: IntArray
    weight_at_most: IntArray

    OF_CHUNKS: ClassVar[frozenset[str]] = WeightedCuts.OF_CHUNKS | {"weight_at_most"}

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


UNIT_BITS = 61  # largest number of bits of a sum of weights in int64


def in_units(tally: Tally, sums: ExactSums) -> IntArray:
    """Convert exact sums of weights of a tally to whole units of `unit_of`, rounded down."""
    shift = unit_of(tally) + POINT
    return np.array([each >> shift for each in sums.integers(WEIGHT_UNIT)], np.int64)


def unit_of(tally: Tally) -> int:
    """Find the exponent of a unit in which the sum of all weights of a tally fits int64."""
    (weight,) = tally.weight.integers(WEIGHT_UNIT)
    return max(int(weight).bit_length() - UNIT_BITS, 0) - POINT


def square_in_units(tally: Tally) -> float:
    """Compute the sum of the squares of the weights of a tally: `WeightedCuts.square`."""
    (square,) = tally.square.integers(PRODUCT_UNIT)
    shift = max(int(square).bit_length() - UNIT_BITS, 0)
    return math.ldexp(square >> shift, shift - 2 * (unit_of(tally) + POINT))
