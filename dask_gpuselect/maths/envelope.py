"""Bounds of the counts that the cuts of all chunks prove, and the brackets that follow from them.

At any pivot y of all chunks, the number of elements up to y is bounded from both sides: cells that
end at y or before are counted as a whole, and cells that contain y count as a whole for the upper
bound and not at all for the lower one. These bounds are the `Envelope`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import UNKNOWN, Arrays, Brackets, Cuts, FloatArray, IntArray
from dask_gpuselect.maths.sizes import pilot_bracket

CutsOf = TypeVar("CutsOf", bound=Cuts)

# With so many pivots or more, and so few ranks or fewer, pivots far from all ranks are dropped
# first, by a pass over one in 16: three quantiles of 131,000 pivots take 3.4 ms instead of 8.1.
# 1,001 quantiles would take longer.
THIN_FROM = 1 << 14
THIN_FOR = 16
THIN = 16


def find_brackets(cuts: Cuts, first: IntArray, last: IntArray) -> Brackets:
    """Bracket the order statistics of ranks ``first[i]`` to ``last[i]``, for every i.

    Parameters
    ----------
    cuts : Cuts
        Cuts of all chunks.
    first, last : ndarray of int64, shape (n_q,)
        Ranks, 0-based, ``0 <= first <= last < n``. ``last - first`` is 0 or 1: the two neighbours
        of a quantile.

    Returns
    -------
    Brackets
        Brackets of all these ranks. With n elements in all and m evenly spaced pivots in every
        chunk, each bracket has at most about 1.09 n/m candidates ("Candidates" in
        ``asv_bench/measured/quantiles.md``).

    Notes
    -----
    O(P log P) in the number P of pivots.
    """
    if len(first) == 0:
        return Brackets(cuts.pivots[:0], np.zeros(1, np.bool_))
    if len(cuts.pivots) >= THIN_FROM and len(first) <= THIN_FOR:
        cuts = Ranges.of_ranks(thinned(cuts, THIN), first, last).around(cuts)
    envelope = Envelope.of(cuts)
    lo, hi = envelope.positions(first, last)
    return cells_between(envelope, lo, hi, counted=tied_inside(envelope, lo, hi))


@dataclass(frozen=True, slots=True, eq=False)
class Ranges(Arrays):
    """Ranges of values, each proven to hold what some bracket needs.

    Pivots far from all ranges change no bracket: all elements that they count are on one side of
    it.

    Parameters
    ----------
    n_ranges : int
        Number of ranges.
    lows, highs : ndarray, dtype of the chunks
        Lower and upper ends of the ranges, each ascending. A range that is open on a side has no
        end there.
    """

    n_ranges: int
    lows: NDArray[Any]
    highs: NDArray[Any]

    @classmethod
    def of_ranks(cls, cuts: Cuts, first: IntArray, last: IntArray) -> Ranges:
        """Find ranges around the brackets of some ranks, by cuts of all chunks at some pivots."""
        if len(first) == 0:
            return cls(0, cuts.pivots[:0], cuts.pivots[:0])
        envelope = Envelope.of(cuts)
        values, (lo, hi) = envelope.values, envelope.positions(first, last)
        return cls(len(lo), np.sort(values[lo[lo >= 0]]), np.sort(values[hi[hi < len(values)]]))

    @classmethod
    def around_all(cls, brackets: Brackets) -> Ranges:
        """Return the range from the first to the last of some brackets."""
        ends, wanted = brackets.ends, brackets.wanted
        lows, highs = (ends[:0] if is_open else ends for is_open in wanted[[0, -1]])
        return cls(int(len(ends) > 0 or wanted[0]), lows[:1], highs[-1:])

    def around(self, cuts: Cuts) -> Cuts:
        """Drop all pivots but those whose cells reach into a range."""
        # A cell lies beside all ranges if as many ranges have ended up to its begin as have begun
        # up to its end. Ranges without a low end have begun before all cells, and those without a
        # high end never end. Both ends of a range are the same where a rank is known to be a tie.
        n_open = self.n_ranges - len(self.lows)
        begun = n_open + np.searchsorted(self.lows, cuts.pivots, side="right")
        ended = np.searchsorted(self.highs, cuts.pivots, side="right")
        is_last_wanted = np.full(len(cuts.sizes), self.n_ranges)
        before = begun > _previous(cuts, ended)
        behind = _next(cuts, begun, is_last_wanted) > ended
        return _only(cuts, before | behind)


def thinned(cuts: CutsOf, step: int) -> CutsOf:
    """Take every `step`-th pivot of each chunk, beginning with the first."""
    if step == 1:
        return cuts
    place = np.arange(len(cuts.pivots)) - np.repeat(np.cumsum(cuts.sizes) - cuts.sizes, cuts.sizes)
    return _only(cuts, place % step == 0)


def _only(cuts: CutsOf, is_taken: NDArray[np.bool_]) -> CutsOf:
    """Take some of the pivots."""
    n_taken = np.append(np.int64(0), np.cumsum(is_taken, dtype=np.int64))
    stops = np.cumsum(cuts.sizes)
    sizes = n_taken[stops] - n_taken[stops - cuts.sizes]
    return cuts.at_pivots(is_taken, sizes)


def guess_brackets(
    take: Callable[[IntArray], NDArray[Any]], size: int, first: IntArray, last: IntArray
) -> tuple[Brackets, float]:
    """Bracket the wanted order statistics with near certainty, by a random sample.

    Parameters
    ----------
    take : callable
        Function from positions in the sorted sample to the elements there, on the host.
    size : int
        Number of elements of the sample: valid ones, drawn at the same rate everywhere.
    first, last : ndarray of int64
        Ranks of the sample where the wanted quantiles are, as for `find_brackets`.

    Returns
    -------
    brackets : Brackets
        Nothing is proven: load 2 counts whether they hold.
    share : float
        Share of all elements that are candidates, about and at most.
    """
    if len(first) == 0:
        return Brackets(take(first), np.zeros(1, np.bool_)), 0.0
    lo, hi = pilot_bracket(first, last, size)
    return brackets_at(take, size, lo, hi), min(float((hi - lo).sum() / size), 1.0)


def brackets_at(
    take: Callable[[IntArray], NDArray[Any]], size: int, lo: IntArray, hi: IntArray
) -> Brackets:
    """Make the brackets (lo, hi] from positions in a sorted sample; see `guess_brackets`.

    Position -1 is open below, `size` open above.
    """
    # A value becomes an end, and so is counted and not gathered, if more than about one in eight of
    # the elements of a bracket equal it: that is, if it is found at two neighbouring ones of the
    # positions that divide the bracket in sixteen.
    positions = lo[:, None] + np.multiply.outer(hi - lo, np.arange(17)) // 16
    places = np.clip(positions, 0, size - 1)
    values, inverse = np.unique(take(places.ravel()), return_inverse=True)
    at = inverse.reshape(positions.shape)
    is_tied = (at[:, 1:] == at[:, :-1]) & (places[:, 1:] > places[:, :-1])
    heavy = at[:, 1:][is_tied]
    lows = np.where(lo < 0, -1, at[:, 0])
    highs = np.where(hi == size, len(values), at[:, -1])
    return Brackets.covering(values, lows, highs, counted=heavy)


Measure = tuple[IntArray, IntArray, IntArray, IntArray]
"""Bounds of a measure of each chunk's elements: their number, or their weight.

At the chunk's own pivots the lower bound of those <= the pivot, and the upper bounds of those < and
<= the pivot, shape (P,); and the upper bound of all, shape (B,).
"""


def _bounds(
    cuts: Cuts, measure: Measure, order: IntArray, is_last: NDArray[np.bool_]
) -> tuple[IntArray, IntArray, IntArray]:
    """Bound the measure of all chunks up to every distinct pivot.

    Parameters
    ----------
    cuts : Cuts
    measure : Measure
    order : ndarray of int64
        Order of the pivots of all chunks.
    is_last : ndarray of bool
        True for the ordered pivots that are the last of their value.

    Returns
    -------
    lower, below, upper : ndarray of int64
        Bounds of the measure of the elements up to each distinct pivot, with the upper bound of
        those below it. The upper bounds are without the cells before each chunk's first pivot.
    """

    def summed(column: IntArray) -> IntArray:
        # Columns are summed one at a time: each is as large as the pivots.
        return np.asarray(np.cumsum(column[order])[is_last])

    least_upto, most_below, most_upto, most = measure
    lower = summed(least_upto - _previous(cuts, least_upto))
    upper = summed(most_upto - most_below)
    ties = np.diff(upper, prepend=np.int64(0))
    # A cell is open at y if it begins before y and ends after it: its elements may or may not be up
    # to y.
    opened = summed(_next(cuts, most_below, most) - most_upto)
    upper[1:] += opened[:-1]
    return lower, upper - ties, upper


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """Bounds of the number of elements <= y, at every distinct pivot y of all chunks.

    Parameters
    ----------
    values : ndarray, shape (K,)
        The distinct pivots, ascending.
    lower, below : ndarray of int64, shape (K,)
        ``lower[i] <= #{x <= values[i]}`` and ``#{x < values[i]} <= below[i]``; both ascending. If
        the cuts have a `doubt`, they may be below 0 and above that of all elements.
    most : int
        Upper bound of the number of all elements.
    upper : ndarray of int64, shape (K,)
        ``#{x <= values[i]} <= upper[i]``. As what follows, not given where `positions` are not
        asked for.
    position : ndarray of int64, shape (P,)
        Position of each pivot of the cuts in `values`.
    least : int
        Lower bound of the number of all elements.
    sigma : float
        Width in standard deviations of the likely error of counts between two values, if they are
        scaled up from a random sample. 0 for counts that are proven.
    """

    values: NDArray[Any]
    lower: IntArray
    below: IntArray
    most: int
    upper: IntArray = UNKNOWN
    position: IntArray = UNKNOWN
    least: int = 0
    sigma: float = 0.0

    @classmethod
    def of(cls, cuts: Cuts) -> Envelope:
        """Bound the number of elements."""
        order = np.argsort(cuts.pivots, kind="stable")
        ordered = cuts.pivots[order]
        is_last = _is_last(ordered)
        values = ordered[is_last]
        del ordered
        counts = cuts.least_upto, cuts.below, cuts.upto, cuts.n_valid
        lower, below, upper = _bounds(cuts, counts, order, is_last)
        before = int(cuts.below[firsts(cuts)].sum())  # cells before a chunk's first pivot
        n = int(cuts.n_valid.sum())
        doubt = ceil(cuts.doubt * n)
        below, upper = below + before + doubt, upper + before + doubt
        position = np.empty(len(order), np.int64)
        position[order] = np.cumsum(is_last) - is_last
        return cls(values, lower - doubt, below, n, upper, position, n)

    def bounds_of(self, cuts: Cuts, measure: Measure) -> tuple[IntArray, IntArray, IntArray]:
        """Bound another measure of the same cuts at every value, as `_bounds` does."""
        order = np.argsort(self.position, kind="stable")
        return _bounds(cuts, measure, order, _is_last(self.position[order]))

    @property
    def ties(self) -> IntArray:
        """Number of elements known to equal each value."""
        return self.upper - self.below

    def positions(self, first: IntArray, last: IntArray) -> tuple[IntArray, IntArray]:
        """Find positions between which the order statistics of these ranks lie.

        For each pair of ranks these are the last value with surely at most `first` elements up to
        it, or -1, and the first value with surely more than `last` elements up to it, or K.
        """
        lo = np.searchsorted(self.upper, first, side="right") - 1
        return lo, np.searchsorted(self.lower, last + 1, side="left")

    def least_upto(self, positions: IntArray) -> IntArray:
        """Bound from below the number of elements up to the values at positions; 0 at -1."""
        return np.where(positions < 0, 0, self.lower[np.maximum(positions, 0)])

    def most_below(self, positions: IntArray) -> IntArray:
        """Bound from above the number of elements below the values at positions; of all at K."""
        is_end, last = positions == len(self.values), len(self.values) - 1
        return np.where(is_end, self.most, self.below[np.minimum(positions, last)])

    def most_between(self, lo: int, hi: int) -> int:
        """Bound from above how many elements lie between two values, both excluded.

        They lie above value `lo` (-1: no lower end) and below value `hi` (K: no upper end).
        """
        below = self.most if hi == len(self.values) else int(self.below[hi])
        most = below - (int(self.lower[lo]) if lo >= 0 else 0)
        return min(most + self._error(most), self.most) if self.sigma else most

    def least_from(self, first: int, last: int) -> int:
        """Bound from below how many elements lie from value `first` to `last`, both included.

        `first` K or `last` -1 stand for an empty interval.
        """
        below = self.most if first == len(self.values) else int(self.below[first])
        least = (int(self.lower[last]) if last >= 0 else 0) - below
        return least - self._error(least) if self.sigma else least

    def _error(self, scaled: int) -> int:
        """Compute the likely error of a count that is scaled up from the sample."""
        share = min(max(scaled / self.most, 0.0), 1.0)
        return ceil(self.sigma * (sqrt(self.most * share * (1 - share)) + 1))


def exact_gap(low: Any, high: Any) -> FloatArray:
    """Compute ``high - low`` for ``low <= high`` of a real dtype, to a relative error of 2**-53."""
    low, high = np.asarray(low), np.asarray(high)
    if low.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(high.astype(np.float64) - low.astype(np.float64))
    # Modulo 2**64 the difference is exact even where int64 would overflow.
    return np.asarray((high.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64))


def cells_between(envelope: Envelope, lo: IntArray, hi: IntArray, counted: IntArray) -> Brackets:
    """Make the brackets (lo, hi] from positions, without cells that are surely empty.

    Position -1 is open below, K open above. `counted` are positions of further ends.
    """
    brackets = Brackets.covering(envelope.values, lo, hi, counted=counted)
    ends = np.searchsorted(envelope.values, brackets.ends)
    return replace(brackets, wanted=brackets.wanted & (most_inside(envelope, ends) > 0))


def tied_inside(envelope: Envelope, lo: IntArray, hi: IntArray) -> IntArray:
    """Find pivots inside brackets (lo, hi] that may have too many ties to gather, as positions.

    Where ties are heavy, rank and bounds can disagree about a pivot inside a bracket. At most one
    such pivot has more ties than the cells open there have elements, and it is the first. For any
    later one, all ties of the pivots between it and the first would have to lie above the lower
    bound of the first and below the rank. So making the first one an end is enough to bound the
    number of candidates on any data.
    """
    tied = (lo + 1)[lo + 1 < hi]
    return np.asarray(tied[envelope.upper[tied] - envelope.below[tied] > 1])


def most_inside(envelope: Envelope, ends: IntArray) -> IntArray:
    """Bound from above the elements in each open cell between neighbouring ends (positions)."""
    n_valid = np.int64(np.iinfo(np.int64).max)
    most_below = np.append(envelope.below[ends], n_valid)
    least_upto = np.append(np.int64(0), envelope.lower[ends])
    return np.asarray(most_below - least_upto)


def _is_last(ordered: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the ordered values that are the last of those that equal them."""
    return np.append(ordered[1:] != ordered[:-1], np.True_)[: len(ordered)]


def firsts(cuts: Cuts) -> IntArray:
    """Find the index of the first pivot of every chunk that has any."""
    starts = np.cumsum(cuts.sizes) - cuts.sizes
    return np.asarray(starts[cuts.sizes > 0])


def _previous(cuts: Cuts, column: IntArray) -> IntArray:
    """Return for each pivot what a column has at the previous pivot of the same chunk.

    The first pivot of a chunk gets 0.
    """
    previous = np.empty_like(column)
    previous[1:] = column[:-1]
    previous[firsts(cuts)] = 0
    return previous


def _next(cuts: Cuts, column: IntArray, at_last: IntArray) -> IntArray:
    """Return for each pivot what a column has at the next pivot of the same chunk.

    The last pivot of a chunk gets the chunk's `at_last`.
    """
    following = np.empty_like(column)
    following[:-1] = column[1:]
    has_pivots = cuts.sizes > 0
    following[(np.cumsum(cuts.sizes) - 1)[has_pivots]] = at_last[has_pivots]
    return following
