"""Brackets of weighted quantiles, from cuts with sums of weights that were rounded down.

A bracket is proven as a bracket of ranks is: at every pivot of all chunks, the sum of the weights
up to it is bounded from both sides by the sums of each chunk at its own pivots. The wanted sum is
bounded as well, because it is a share of the weight of all elements, which the first load knows
only with limited precision.

If there are several slots, their pivots follow one another, and each slot has sums of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dask_gpuselect.maths.cuts import Brackets, Cuts, FloatArray, IntArray, covered, totals
from dask_gpuselect.maths.envelope import Envelope, cells_between, firsts, most_inside
from dask_gpuselect.maths.tables import bisected
from dask_gpuselect.maths.weights import SQUARE_ROUNDINGS

SUM_BITS = 61  # of a sum of the weights of all chunks, at most; each chunk may add one more unit
# More than `exact_sums.needs`, and the floats that bound it here, round away of all weight.
ROUNDING = 2.0**-48
# Largest number of values, for each bracket, that become ends because they have more ties than a
# cell has elements.
MOST_TIED = 16


@dataclass(frozen=True, slots=True, eq=False)
class WeightEnvelope:
    """Bounds of the weight of the elements up to every distinct pivot, and of all elements.

    Parameters
    ----------
    counts : Envelope
        Bounds of the numbers of elements.
    lower, below, upper : ndarray of int64, shape (K,)
        Bounds of the weight of the elements of the pivot's slot, as those of `counts` are, in units
        of the slot.
    edges : ndarray of int64, shape (S + 1,)
        Positions of the first distinct pivot of each slot, and their number.
    n_valid, least, most : ndarray of int64, shape (S,)
        Number of elements of each slot, and bounds of their weight.
    unit : ndarray of int64, shape (S,)
        Exponent of each slot's units.
    square, error : ndarray of float64, shape (S,)
        Sum of the squares of all weights, as in `Cuts`, and the bound of its relative error.
    n_cells : int
        Approximate number of cells that divide all elements, including those at pivots that were
        left out.
    """

    counts: Envelope
    lower: IntArray
    below: IntArray
    upper: IntArray
    edges: IntArray
    n_valid: IntArray
    least: IntArray
    most: IntArray
    unit: IntArray
    square: FloatArray
    error: FloatArray
    n_cells: int

    @classmethod
    def of(cls, cuts: Cuts) -> WeightEnvelope:
        """Compute the bounds from the cuts of all chunks; pivots ascend from slot to slot."""
        slot = np.zeros(len(cuts.sizes), np.int64)
        if cuts.slots is not None:
            slot = np.unique(cuts.slots, return_inverse=True)[1]
        n_slots = int(slot.max(initial=0)) + 1
        unit = _common_units(cuts, slot, n_slots)
        shift = np.where(cuts.n_valid > 0, cuts.unit - unit[slot], 0)
        at_pivots = np.repeat(shift, cuts.sizes)
        most_of = -_in_units(-cuts.weight_most, shift)
        most_below, most_upto = (
            -_in_units(-each, at_pivots) for each in (cuts.weight_below, cuts.weight_upto)
        )
        measure = _in_units(cuts.weight_least, at_pivots), most_below, most_upto, most_of
        counts = Envelope.of(cuts)
        slot_of = np.empty(len(counts.values), np.int64)
        slot_of[counts.position] = np.repeat(slot, cuts.sizes)
        edges = slot_of.searchsorted(np.arange(n_slots + 1))
        # Sums over all slots may exceed int64, but modulo 2**64 their differences are right.
        lower, below, upper = counts.bounds_of(cuts, measure)
        lower = lower - np.append(np.int64(0), lower)[edges[:-1]][slot_of]
        first, of_first = np.zeros_like(slot), firsts(cuts)
        first[cuts.sizes > 0] = most_below[of_first]
        before, all_of = (totals(slot, each, n_slots) for each in (first, most_of - first))
        base = (before - (np.cumsum(all_of) - all_of))[slot_of]
        below, upper = below + base, upper + base
        n_valid, n_chunks, least, most = (
            totals(slot, each, n_slots)
            for each in (cuts.n_valid, np.ones_like(slot), _in_units(cuts.weight, shift), most_of)
        )
        if cuts.doubt:
            doubt = np.ceil(cuts.doubt * most).astype(np.int64)[slot_of]
            lower, below, upper = lower - doubt, below + doubt, upper + doubt
        square = np.zeros(n_slots)
        np.add.at(square, slot, np.ldexp(cuts.square, 2 * shift))
        # The relative error is that of the largest chunk, and one more rounding for each chunk.
        largest = np.zeros(n_slots, np.int64)
        np.maximum.at(largest, slot, cuts.n_valid)
        error: FloatArray = (largest + n_chunks + SQUARE_ROUNDINGS) / 2**52 + cuts.doubt
        n_cells = max(len(counts.lower), int(np.sqrt(cuts.n_valid).sum()))
        measured = counts, lower, below, upper, edges, n_valid, least, most
        return cls(*measured, unit, square, error, n_cells)

    def positions(self, q: Sequence[float], method: str) -> tuple[IntArray, IntArray]:
        """Find positions of distinct pivots between which the wanted elements lie: (lo, hi].

        For each quantile, there is a pair for each slot that has elements; or two pairs, one behind
        the other, for each window of the method "linear".
        """
        some = np.flatnonzero(self.n_valid)
        least, most = self._wanted(np.array(q, np.float64)[:, None], some, method)
        first, stop = (
            np.broadcast_to(each[:, None], least.shape)
            for each in (self.edges[some], self.edges[some + 1])
        )
        lo = bisected(first, stop, lambda at: _taken(self.upper, at) < least) - 1
        hi = bisected(first, stop, lambda at: _taken(self.lower, at) < most)
        before = np.cumsum(self.n_valid) - self.n_valid
        for i, each in enumerate(q):
            # The first of all elements begins at the share 0, and the last one ends at the share 1.
            if each in (0, 1):
                ranks = before[some] if each == 0 else (before + self.n_valid)[some] - 1
                at = i, slice(None), 0 if each == 0 else -1
                lo[at], hi[at] = self.counts.positions(ranks, ranks)
        return np.maximum(lo, first - 1).ravel(), np.minimum(hi, stop).ravel()

    def _wanted(self, q: FloatArray, some: IntArray, method: str) -> tuple[IntArray, IntArray]:
        """Bound the least whole sums that some slots have up to the wanted elements.

        They reach a share of the weight, or exceed it. For the method "linear" they are those that
        exceed the begin of a window, and those that reach its end: see `weight_finish.windows`.
        """
        least, most = (each[some].astype(np.float64) for each in (self.least, self.most))
        if method != "linear":
            passes = method == "averaged_inverted_cdf"
            bounds = [(q * least * (1 - ROUNDING), q * most * (1 + ROUNDING), passes)]
        else:
            square, error, doubt = self.square[some], self.error[some], ROUNDING * most
            # The width of the window is the sum of squares divided by the sum, which is at most the
            # sum itself.
            narrow = square * (1 - error) / most
            wide = np.minimum(most, square * (1 + error) / np.maximum(least, 0.5))
            begin = np.maximum(q * (least - wide) - doubt, 0), q * (most - narrow) + doubt
            rest = 1 - q
            end = q * least + rest * narrow - doubt, q * most + rest * wide + doubt
            bounds = [(*begin, True), (*end, False)]
        whole = [
            (np.ceil(low), np.floor(high) + 1 if passes else np.ceil(high))
            for low, high, passes in bounds
        ]
        lows, highs = zip(*whole, strict=True)
        return np.stack(lows, axis=-1).astype(np.int64), np.stack(highs, axis=-1).astype(np.int64)

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


def _common_units(cuts: Cuts, slot: IntArray, n_slots: int) -> IntArray:
    """Find the exponent of the smallest unit in which all weight of each slot fits int64."""
    least, most = np.full((2, n_slots), NO_UNIT) * np.array([[1], [-1]])
    some = np.flatnonzero(cuts.n_valid)
    slot, unit = slot[some], cuts.unit[some]
    np.minimum.at(least, slot, unit)
    np.maximum.at(most, slot, unit)
    total = np.zeros(n_slots)
    np.add.at(total, slot, np.ldexp(cuts.weight_most[some].astype(np.float64), unit - most[slot]))
    units = np.maximum(least, most + np.frexp(total * (1 + ROUNDING))[1] - SUM_BITS)
    return np.where(total > 0, units, 0)


NO_UNIT = 1 << 20  # above all exponents


def _in_units(sums: IntArray, shift: IntArray) -> IntArray:
    """Multiply sums by ``2**shift``, rounded down: the size of negative ones is rounded up."""
    return (sums << np.maximum(shift, 0)) >> np.clip(-shift, 0, 63)


def _taken(column: IntArray, at: IntArray) -> IntArray:
    return column[np.minimum(at, len(column) - 1)]
