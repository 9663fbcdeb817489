"""Elements that weigh: cuts and tallies with sums of weights beside the counts.

A quantile of weighted elements is the smallest x with F(x) >= q W, where F(x) is the sum of the
weights of the elements up to x, and W that of all. Both are sums of floats that no rounding may
decide. So the first load adds up whole units of a chunk's own, each weight rounded down, and counts
bound what is lost; and the second load adds up without rounding at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import Candidates, HostCandidates
from dask_gpuselect.maths.cuts import (
    Brackets,
    Cuts,
    FloatArray,
    IntArray,
    Tally,
    multiplied,
)
from dask_gpuselect.maths.exact_sums import DIGIT, SQUARE_POINT, TOTAL_POINT, ExactSums

# Where sums of weights, and those of products with them, become Python's integers, these are in
# units of ``2**(32 * unit)``.
WEIGHT_UNIT, PRODUCT_UNIT = -TOTAL_POINT, -SQUARE_POINT
POINT = DIGIT * TOTAL_POINT

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
    weight_below, weight_upto : ExactSums, shape (E,)
        Of the weights of the valid elements < and <= each end.
    weight : ExactSums, shape (1,)
        Of the weights of all valid elements.
    weights : array of float64 or int64, shape (C,)
        Of the candidates, in their order; where these are. What is merged or finished has
        both on the host.
    n_idle : int
        Number of elements that are not left out and weigh nothing.
    square : ExactSums, shape (1,)
        Of the squares of the weights; 0 at brackets that are not `WeightedBrackets`.
    products : ExactSums, shape (E + 1,)
        Of element times weight in the cells that are `WeightedBrackets.summed`; empty at other
        brackets.
    """

    weight_below: ExactSums
    weight_upto: ExactSums
    weight: ExactSums
    weights: Any
    n_idle: int = field(default=0, kw_only=True)
    square: ExactSums = field(default_factory=lambda: ExactSums.zeros((1,)), kw_only=True)
    products: ExactSums = field(default_factory=lambda: ExactSums.zeros((0,)), kw_only=True)

    @classmethod
    def of_segments(
        cls,
        counts: IntArray,
        sums: ExactSums,
        candidates: Candidates,
        weights: Any,
        n_missing: int = 0,
        **others: Any,
    ) -> Self:
        """Say by how many elements are in each segment, and what these weigh, how many are at the
        ends. Segments are cells, and the ends between them."""
        upto, weight_upto = counts.cumsum(), sums.running()[1:]
        return cls(
            upto[:-1:2],
            upto[1::2],
            candidates,
            int(upto[-1]),
            n_missing,
            weight_upto[:-1:2],
            weight_upto[1::2],
            weight_upto[-1:],
            weights,
            **others,
        )

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """The tally of all parts together, with candidates on the host."""
        if len(parts) == 1:
            return parts[0]

        def total(name: str) -> Any:
            columns = [getattr(part, name) for part in parts]
            return ExactSums.sum(columns) if isinstance(columns[0], ExactSums) else sum(columns)

        candidates = np.concatenate([part.candidates.on_host() for part in parts])
        weights = [part.weights for part in parts]
        if len({each.dtype for each in weights}) > 1:  # integers, of which some are beyond 2**53
            weights = [each.astype(np.int64) for each in weights]
        found = {each.name: total(each.name) for each in fields(cls) if each.name not in GATHERED}
        return cls(candidates=HostCandidates(candidates), weights=np.concatenate(weights), **found)

    def columns(self) -> list[NDArray[Any]]:
        return [*Tally.columns(self), self.weights]

    def with_columns(self, columns: Sequence[NDArray[Any]]) -> Self:
        elements, weights = columns
        return replace(self, candidates=HostCandidates(elements), weights=weights)

    @property
    def held_bytes(self) -> int:
        elements = len(self.candidates) * self.candidates.dtype.itemsize
        return elements + int(self.weights.nbytes)


GATHERED = "candidates", "weights"
UNIT_BITS = 61  # of a sum of weights in int64, at most


def in_units(tally: WeightedTally, sums: ExactSums) -> IntArray:
    """Exact sums, of at most all weights of a tally, in whole units of `unit_of`, rounded down."""
    shift = unit_of(tally) + POINT
    return np.array([each >> shift for each in sums.integers(WEIGHT_UNIT)], np.int64)


def unit_of(tally: WeightedTally) -> int:
    """The exponent of a unit in which the sum of all weights of a tally fits int64."""
    (weight,) = tally.weight.integers(WEIGHT_UNIT)
    return max(int(weight).bit_length() - UNIT_BITS, 0) - POINT


def square_in_units(tally: WeightedTally) -> float:
    """The sum of the squares of the weights of a tally: `WeightedCuts.square`."""
    (square,) = tally.square.integers(PRODUCT_UNIT)
    shift = max(int(square).bit_length() - UNIT_BITS, 0)
    return math.ldexp(square >> shift, shift - 2 * (unit_of(tally) + POINT))
