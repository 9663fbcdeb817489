"""Brackets of weighted quantiles, from cuts with sums of weights that were rounded down.

A bracket is proven as a bracket of ranks is: at every pivot of all chunks, the sum of the weights
up to it is bounded from both sides by the sums of each chunk at its own pivots. The wanted sum is
bounded as well, because it is a share of the weight of all elements, which the first load knows
only with limited precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

import numpy as np

from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, covered
from dask_gpuselect.maths.envelope import Envelope, cells_between, most_inside
from dask_gpuselect.maths.weights import SQUARE_ROUNDINGS

SUM_BITS = 61  # of a sum of the weights of all chunks, at most; each chunk may add one more unit
ROUNDING = Fraction(1, 2**50)  # more than `exact_sums.needs` rounds away
# Largest number of values, for each bracket, that become ends because they have more ties than a
# cell has elements.
MOST_TIED = 16


@dataclass(frozen=True, slots=True, eq=False)
class WeightEnvelope:
    """Bounds of the weight of the elements up to every distinct pivot, and of all elements.

    Parameters
    ----------
    counts, weights : Envelope
        Bounds of the numbers of elements, and of their weight in units that all chunks have in
        common.
    unit : int
        Exponent of these units.
    square : float
        Sum of the squares of all weights, as in `Cuts`.
    squares : tuple of Fraction
        Bounds of that sum.
    n_cells : int
        Approximate number of cells that divide all elements, including those at pivots that were
        left out.
    """

    counts: Envelope
    weights: Envelope
    unit: int
    square: float
    squares: tuple[Fraction, Fraction]
    n_cells: int

    @classmethod
    def of(cls, cuts: Cuts) -> WeightEnvelope:
        """Compute the bounds from the cuts of all chunks."""
        unit = common_unit(cuts)
        shift = np.where(cuts.n_valid > 0, cuts.unit - unit, 0)
        at_pivots = np.repeat(shift, cuts.sizes)
        measure = (
            _in_units(cuts.weight_least, at_pivots),
            -_in_units(-cuts.weight_below, at_pivots),
            -_in_units(-cuts.weight_upto, at_pivots),
            -_in_units(-cuts.weight_most, shift),
        )
        counts = Envelope.of(cuts)
        weights = counts.of_measure(cuts, measure, int(_in_units(cuts.weight, shift).sum()))
        square = float(np.ldexp(cuts.square, 2 * shift).sum())
        error = square_error(cuts) + Fraction(cuts.doubt)
        around = Fraction(square) * (1 - error), Fraction(square) * (1 + error)
        n_cells = max(len(counts.lower), int(np.sqrt(cuts.n_valid).sum()))
        return cls(counts, weights, unit, square, around, n_cells)

    def positions(self, q: Sequence[float], method: str) -> tuple[IntArray, IntArray]:
        """Find positions of distinct pivots between which the wanted elements lie: (lo, hi].

        There are two pairs for each window of the method "linear", and one for other quantiles.
        """
        if method == "linear":
            wanted = [end for each in q for end in self._window(Fraction(each))]
        else:
            passes = method == "averaged_inverted_cdf"
            wanted = [self._share(Fraction(each), passes=passes) for each in q]
        least, most = np.array(wanted, np.int64).T
        lo, hi = self.weights.positions(least - 1, most - 1)
        n_ends = len(wanted) // len(q)
        for i, each in enumerate(q):
            # The first of all elements begins at the share 0, and the last one ends at the share 1.
            if each in (0, 1):
                at, rank = (0, 0) if each == 0 else (n_ends - 1, self.counts.most - 1)
                ends = np.array([rank])
                (lo[n_ends * i + at],), (hi[n_ends * i + at],) = self.counts.positions(ends, ends)
        return lo, hi

    def _share(self, share: Fraction, *, passes: bool) -> tuple[int, int]:
        """Bound the least whole sum that reaches a share of the weight, or exceeds it."""
        weights = self.weights
        least, most = share * weights.least * (1 - ROUNDING), share * weights.most * (1 + ROUNDING)
        return _whole_bounds(least, most, passes=passes)

    def _window(self, share: Fraction) -> tuple[tuple[int, int], tuple[int, int]]:
        """Bound the least whole sums that exceed the begin of a window, and that reach its end.

        See `weight_finish.window_means`.
        """
        rest, weights = 1 - share, self.weights
        # The width of the window is the sum of squares divided by the sum, which is at most the sum
        # itself.
        narrow, wide = self.squares[0] / weights.most, Fraction(weights.most)
        if weights.least > 0:
            wide = min(wide, self.squares[1] / weights.least)
        low = max(share * (weights.least - wide), Fraction(0)), share * (weights.most - narrow)
        high = share * weights.least + rest * narrow, share * weights.most + rest * wide
        return _whole_bounds(*low, passes=True), _whole_bounds(*high, passes=False)

    def with_sums(self, brackets: Brackets, lo: IntArray, hi: IntArray, method: str) -> Brackets:
        """Sum the unwanted cells between the brackets of both ends of each window.

        `lo` and `hi` are as of `positions`.
        """
        if method != "linear":
            return brackets
        ends = np.searchsorted(self.counts.values, brackets.ends)
        # From where the first bracket ends to where the second begins, unless they overlap.
        begin, end = hi[::2], lo[1::2]
        is_apart = begin < end
        between = covered(ends, begin[is_apart], end[is_apart])
        summed = between & ~brackets.wanted & (most_inside(self.counts, ends) > 0)
        return replace(brackets, summed=summed)

    def tied_inside(self, lo: IntArray, hi: IntArray) -> IntArray:
        """Find the pivots inside brackets with more ties than a cell has elements, as positions.

        Elements that weigh almost nothing cannot be told apart by their weight, so a bracket may
        hold any number of values. At most `MOST_TIED` pivots for each bracket are returned, those
        with most ties.
        """
        n_values = len(self.counts.values)
        inside = np.flatnonzero(covered(np.arange(n_values), lo + 1, hi)[1:])
        ties = self.counts.ties[inside]
        is_tied = ties > max(self.counts.most // self.n_cells, 1)
        inside, ties = inside[is_tied], ties[is_tied]
        most = MOST_TIED * len(lo)
        return inside if len(inside) <= most else inside[np.argsort(-ties, kind="stable")[:most]]


def _whole_bounds(least: Fraction, most: Fraction, *, passes: bool) -> tuple[int, int]:
    """Round bounds of a sum to bounds of the least whole sum that reaches it.

    Where it `passes`, the whole sum exceeds it.
    """
    return ceil(least), floor(most) + 1 if passes else ceil(most)


def find_weighted_brackets(cuts: Cuts, q: Sequence[float], method: str) -> Brackets:
    """Bracket the elements from which weighted quantiles are computed.

    The elements between the two ends of a window of the method "linear" are summed.
    """
    if not (len(q) and cuts.n_valid.any()):
        return no_brackets(cuts, method)
    envelope = WeightEnvelope.of(cuts)
    lo, hi = envelope.positions(q, method)
    brackets = cells_between(envelope.counts, lo, hi, counted=envelope.tied_inside(lo, hi))
    return envelope.with_sums(brackets, lo, hi, method)


def no_brackets(cuts: Cuts, method: str) -> Brackets:
    """Make brackets where nothing is wanted."""
    nothing = np.zeros(1, np.bool_)
    return Brackets(cuts.pivots[:0], nothing, summed=nothing if method == "linear" else None)


def square_error(cuts: Cuts) -> Fraction:
    """Bound the relative error of the sum of `Cuts.square` over all chunks.

    It is that of the largest chunk, and one more rounding for each chunk.
    """
    n = int(cuts.n_valid.max()) + len(cuts.n_valid)
    return Fraction(n + SQUARE_ROUNDINGS, 2**52)


def common_unit(cuts: Cuts) -> int:
    """Find the exponent of the smallest unit in which the sum of all weights fits int64."""
    rows = zip(cuts.weight_most.tolist(), cuts.n_valid.tolist(), cuts.unit.tolist(), strict=True)
    known = [(weight, unit) for weight, n, unit in rows if n]
    least = min((unit for _, unit in known), default=0)
    total = sum(weight << (unit - least) for weight, unit in known)
    return int(least + max(total.bit_length() - SUM_BITS, 0))


def _in_units(sums: IntArray, shift: IntArray) -> IntArray:
    """Multiply sums by ``2**shift``, rounded down: the size of negative ones is rounded up."""
    return (sums << np.maximum(shift, 0)) >> np.clip(-shift, 0, 63)
