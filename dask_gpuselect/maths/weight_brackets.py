"""Brackets of weighted quantiles, from cuts with sums of weights that were rounded down.

A bracket is proven as a bracket of ranks is: at every pivot of all chunks, the sum of the weights
up to it is bounded from both sides by the sums of each chunk at its own pivots. The wanted sum is
bounded as well, because it is a share of the weight of all elements, which the first load knows
only with limited precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Brackets, IntArray, covered
from dask_gpuselect.maths.envelope import (
    Envelope,
    KnownAtPivots,
    Ranges,
    cells_between,
    most_inside,
)
from dask_gpuselect.maths.weights import SQUARE_ROUNDINGS, WeightedCuts

SUM_BITS = 61  # of a sum of the weights of all chunks, at most; each chunk may add one more unit
ROUNDING = Fraction(1, 2**50)  # more than `weight_finish.reached_and_passed` rounds away
# Largest number of values, for each bracket, that become ends because they have more ties than a
# cell has elements.
MOST_TIED = 16


@dataclass(frozen=True)
class WeightBounds:
    """Bounds of a sum of weights that a wanted element is the first to reach, or to exceed.

    Parameters
    ----------
    least, most : Fraction
        The sum is in [least, most].
    passes : bool
        True if the weight of the elements up to the wanted one must exceed the sum; otherwise it is
        enough to reach it.
    rank : int, optional
        Rank of the element, if that is known whatever the weights: 0, or -1 for the largest one.
    """

    least: Fraction
    most: Fraction
    passes: bool = False
    rank: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WeightEnvelope:
    """Bounds of the weight of the elements up to every distinct pivot, and of all elements.

    Parameters
    ----------
    counts : Envelope
        Bounds of the numbers of elements.
    n_valid : int
        Number of all valid elements.
    lower, upper : ndarray of int64, shape (K,)
        Bounds of the weight up to each pivot, in units that all chunks have in common.
    ties : ndarray of int64, shape (K,)
        Difference between `upper` and the upper bound of the weight below the pivot.
    unit : int
        Exponent of these units.
    least, most : int
        Bounds of the weight of all elements, in these units.
    square : float
        Sum of the squares of all weights, as in `WeightedCuts`.
    squares : tuple of Fraction
        Bounds of that sum.
    n_cells : int
        Approximate number of cells that divide all elements, including those at pivots that were
        left out.
    """

    counts: Envelope
    n_valid: int
    lower: IntArray
    upper: IntArray
    ties: IntArray
    unit: int
    least: int
    most: int
    square: float
    squares: tuple[Fraction, Fraction]
    n_cells: int

    @classmethod
    def of(cls, cuts: WeightedCuts) -> WeightEnvelope:
        """Compute the bounds from the cuts of all chunks."""
        unit = common_unit(cuts)
        shift = np.where(cuts.n_valid > 0, cuts.unit - unit, 0)
        at_pivots = np.repeat(shift, cuts.sizes)
        sums = KnownAtPivots(
            _in_units(cuts.least_weight_upto, at_pivots),
            -_in_units(-cuts.most_weight_below, at_pivots),
            -_in_units(-cuts.most_weight_upto, at_pivots),
            -_in_units(-cuts.most_weight, shift),
        )
        counts = Envelope.of(cuts)
        lower, upper, ties = counts.bounds(cuts, sums)
        least, most = int(_in_units(cuts.weight, shift).sum()), int(sums.most.sum())
        doubt = ceil(cuts.doubt * most)
        square = float(np.ldexp(cuts.square, 2 * shift).sum())
        error = square_error(cuts) + Fraction(cuts.doubt)
        around = Fraction(square) * (1 - error), Fraction(square) * (1 + error)
        n_valid = int(cuts.n_valid.sum())
        n_cells = max(len(lower), int(np.sqrt(cuts.n_valid).sum()))
        bounds = lower - doubt, upper + doubt, ties, unit, least, most, square, around
        return cls(counts, n_valid, *bounds, n_cells)

    def share(self, q: float, *, passes: bool = False) -> WeightBounds:
        """Bound the share q of the weight of all elements."""
        share = Fraction(q)
        least, most = share * self.least * (1 - ROUNDING), share * self.most * (1 + ROUNDING)
        return WeightBounds(least, most, passes, {0.0: 0, 1.0: -1}.get(q))

    def window(self, q: float) -> tuple[WeightBounds, WeightBounds]:
        """Bound both ends of the window of the estimator of type 7.

        See `weight_finish.window_means`.
        """
        share, rest = Fraction(q), 1 - Fraction(q)
        # The width of the window is the sum of squares divided by the sum, which is at most the sum
        # itself.
        narrow, wide = self.squares[0] / self.most, Fraction(self.most)
        if self.least > 0:
            wide = min(wide, self.squares[1] / self.least)
        low = [max(share * (self.least - wide), Fraction(0)), share * (self.most - narrow)]
        high = [share * self.least + rest * narrow, share * self.most + rest * wide]
        return (
            WeightBounds(low[0], low[1], True, 0 if q == 0 else None),
            WeightBounds(high[0], high[1], False, -1 if q == 1 else None),
        )

    def positions(self, wanted: Sequence[WeightBounds]) -> tuple[IntArray, IntArray]:
        """Find positions of distinct pivots between which the wanted elements lie: (lo, hi]."""
        least = np.array([ceil(each.least) for each in wanted], np.int64)
        most = np.array(
            [floor(each.most) + 1 if each.passes else ceil(each.most) for each in wanted], np.int64
        )
        lo = np.searchsorted(self.upper, least, side="left") - 1
        hi = np.searchsorted(self.lower, most, side="left")
        ends = np.array([0, self.n_valid - 1], np.int64)
        lo_by_rank, hi_by_rank = self.counts.positions(ends, ends)
        for i, each in enumerate(wanted):
            if each.rank is not None:
                lo[i], hi[i] = lo_by_rank[each.rank], hi_by_rank[each.rank]
        return lo, hi

    def brackets(self, lo: IntArray, hi: IntArray) -> Brackets:
        """Make the cells of the brackets (lo, hi], given as positions."""
        return cells_between(self.counts, lo, hi, counted=self.tied_inside(lo, hi))

    def tied_inside(self, lo: IntArray, hi: IntArray) -> IntArray:
        """Find the pivots inside brackets with more ties than a cell has elements, as positions.

        Elements that weigh almost nothing cannot be told apart by their weight, so a bracket may
        hold any number of values. At most `MOST_TIED` pivots for each bracket are returned, those
        with most ties.
        """
        n_values = len(self.lower)
        inside = np.flatnonzero(covered(np.arange(n_values), lo + 1, hi)[1:])
        ties = self.counts.ties[inside]
        is_tied = ties > max(self.n_valid // self.n_cells, 1)
        inside, ties = inside[is_tied], ties[is_tied]
        most = MOST_TIED * len(lo)
        return inside if len(inside) <= most else inside[np.argsort(-ties, kind="stable")[:most]]


def find_share_brackets(cuts: WeightedCuts, q: Sequence[float], *, with_next: bool) -> Brackets:
    """Bracket the first elements up to which shares q of all weights are reached.

    With `with_next`, bracket the next larger elements too.
    """
    if not (len(q) and cuts.n_valid.any()):
        return Brackets(cuts.pivots[:0], np.zeros(1, np.bool_))
    envelope = WeightEnvelope.of(cuts)
    return envelope.brackets(
        *envelope.positions([envelope.share(each, passes=with_next) for each in q])
    )


def share_ranges(cuts: WeightedCuts, q: Sequence[float], *, with_next: bool) -> Ranges:
    """Find the ranges of values that `find_share_brackets` needs, from cuts at some pivots."""
    return _ranges(cuts, lambda envelope: [envelope.share(each, passes=with_next) for each in q])


def window_ranges(cuts: WeightedCuts, q: Sequence[float]) -> Ranges:
    """Find the ranges of values that `find_window_brackets` needs, from cuts at some pivots."""
    return _ranges(cuts, lambda envelope: [end for each in q for end in envelope.window(each)])


def _ranges(
    cuts: WeightedCuts, wanted: Callable[[WeightEnvelope], Sequence[WeightBounds]]
) -> Ranges:
    if not cuts.n_valid.any():
        return Ranges(0, cuts.pivots[:0], cuts.pivots[:0])
    envelope = WeightEnvelope.of(cuts)
    return Ranges.between(envelope.counts.values, *envelope.positions(wanted(envelope)))


def find_window_brackets(cuts: WeightedCuts, q: Sequence[float]) -> Brackets:
    """Bracket both ends of each window of the estimator of type 7, and sum what is between."""
    if not (len(q) and cuts.n_valid.any()):
        nothing = np.zeros(1, np.bool_)
        return Brackets(cuts.pivots[:0], nothing, summed=nothing)
    envelope = WeightEnvelope.of(cuts)
    windows = [envelope.window(each) for each in q]
    lo, hi = envelope.positions([end for window in windows for end in window])
    found = envelope.brackets(lo, hi)
    return replace(found, summed=summed_between(envelope, found, lo, hi))


def summed_between(
    envelope: WeightEnvelope, found: Brackets, lo: IntArray, hi: IntArray
) -> NDArray[np.bool_]:
    """Mark the unwanted cells between the brackets of both ends of each window.

    `lo` and `hi` have for each window the bracket of its begin, then that of its end.
    """
    ends = np.searchsorted(envelope.counts.values, found.ends)
    # From where the first bracket ends to where the second begins, unless they overlap.
    begin, end = hi[::2], lo[1::2]
    is_apart = begin < end
    between = covered(ends, begin[is_apart], end[is_apart])
    return np.asarray(between & ~found.wanted & (most_inside(envelope.counts, ends) > 0))


def square_error(cuts: WeightedCuts) -> Fraction:
    """Bound the relative error of the sum of `WeightedCuts.square` over all chunks.

    It is that of the largest chunk, and one more rounding for each chunk.
    """
    n = int(cuts.n_valid.max()) + len(cuts.n_valid)
    return Fraction(n + SQUARE_ROUNDINGS, 2**52)


def common_unit(cuts: WeightedCuts) -> int:
    """Find the exponent of the smallest unit in which the sum of all weights fits int64."""
    rows = zip(cuts.most_weight.tolist(), cuts.n_valid.tolist(), cuts.unit.tolist(), strict=True)
    known = [(weight, unit) for weight, n, unit in rows if n]
    least = min((unit for _, unit in known), default=0)
    total = sum(weight << (unit - least) for weight, unit in known)
    return int(least + max(total.bit_length() - SUM_BITS, 0))


def _in_units(sums: IntArray, shift: IntArray) -> IntArray:
    """Multiply sums by ``2**shift``, rounded down: the size of negative ones is rounded up."""
    return (sums << np.maximum(shift, 0)) >> np.clip(-shift, 0, 63)
