"""Weighted quantiles by exact sums: the elements that they are made of, and their proof.

All elements, lanes and groups finish here. They differ only in how their elements lie in order: see
`WeightedOrder`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import ADVICE, Brackets, ChunksChangedError, IntArray, Tally, covered
from dask_gpuselect.maths.exact_sums import DIGIT, ExactSums, Wholes, begins, needs, quotients
from dask_gpuselect.maths.finish import borders_of, inside
from dask_gpuselect.maths.weights import POINT, PRODUCT_UNIT, WEIGHT_UNIT

FEW = 64  # elements that are multiplied as Python integers
# Sums of the candidates' weights are stored behind every so many of them. Between, they are added
# up where they are wanted.
BLOCK = 64
# Blocks that are added up together.
AT_ONCE = 1 << 10
# So few candidates are one block: a question about blocks takes dozens of operations on small
# arrays, and adding up all of these candidates as few as one question.
ONE_BLOCK = 1 << 14
# Weights that differ by more than this factor are added up one by one, because tables of whole
# numbers would have many digits.
FAR = 2.0**128


class WeightedOrder(ABC):
    """Base of weighted elements of one or several slots, each in ascending order.

    A place is that of an element, or of several that are equal. Places ascend within a slot.
    """

    @abstractmethod
    def sums_of(self, slot: IntArray) -> tuple[ExactSums, ExactSums]:
        """Return the weight before some slots, which places count, and that of their elements."""

    @abstractmethod
    def squares_of(self, slot: IntArray) -> ExactSums:
        """Return the sum of the squares of the weights of some slots."""

    def squares_in(self, slot: IntArray, unit: IntArray) -> NDArray[np.float64]:
        """Round the sum of the squares of the weights of some slots, in units of ``4**unit``."""
        numbers, places = self.squares_of(slot).leading()
        return np.asarray(np.ldexp(numbers, DIGIT * places - 2 * unit))

    @property
    @abstractmethod
    def unit(self) -> int:
        """Place of a digit: the weights before all places are multiples of ``2**(32 * unit)``."""

    @abstractmethod
    def reach(self, slot: IntArray, sums: ExactSums) -> IntArray:
        """Find the first places up to which the elements of some slots reach sums.

        Each sum is above the weight before its slot, and at most that up to its end.
        """

    def reach_shares(
        self, slot: IntArray, share: NDArray[np.float64], *, passes: bool
    ) -> Sequence[IntArray]:
        """Find the first places up to which shares of the weight of some slots are reached.

        If `passes`, also those up to which they are exceeded. See `exact_sums.needs`.
        """
        wanted = needs(self.sums_of(slot)[1], share, self.unit)
        return self.reach_each(slot, wanted if passes else wanted[:1])

    def reach_each(self, slot: IntArray, sums: Sequence[ExactSums]) -> Sequence[IntArray]:
        """Find the first places up to which several sums are reached in each slot."""
        before, _ = self.sums_of(slot)
        every = ExactSums.joined([each + before for each in sums])
        return [*self.reach(np.tile(slot, len(sums)), every).reshape(len(sums), -1)]

    @abstractmethod
    def elements(self, places: IntArray) -> NDArray[Any]:
        """Return the elements at some places."""

    @abstractmethod
    def weights_before(self, places: IntArray) -> ExactSums:
        """Return the weight of all elements before each place."""

    @abstractmethod
    def products(self, starts: IntArray, stops: IntArray) -> ExactSums:
        """Sum element times weight between pairs of places; the elements must be finite."""


# --- Answers --------------------------------------------------------------------------------------


def answers(
    order: WeightedOrder, slots: IntArray, q: Sequence[float], method: str, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Find pairs of elements whose means are the quantiles of some slots, none of them empty.

    For the method "linear", both of a pair are the answer itself, in `dtype`.

    Returns
    -------
    ndarray, shape (2, n_slots, n_q)
    """
    slot, share = np.repeat(slots, len(q)), np.tile(np.array(q, np.float64), len(slots))
    if method == "linear":
        pair = [window_means(order, slot, share, dtype)]
    else:
        passes = method == "averaged_inverted_cdf"
        places = order.reach_shares(slot, share, passes=passes)
        pair = [*order.elements(np.concatenate(places)).reshape(len(places), -1)]
    return np.stack([pair[0], pair[-1]]).reshape(2, len(slots), len(q))


def windows(total: Any, squares: Any, q: Sequence[float]) -> tuple[Any, Any, Any]:
    """Find the windows of the weight over which quantiles of type 7 average; see `window_means`.

    Parameters
    ----------
    total, squares : int, or ndarray of Python integers
        Weight of all elements, and the sum of the squares of all weights, in units: one for all, or
        one for each share.
    q : sequence of float
        Shares.

    Returns
    -------
    low, high : ndarray of Python integers
        Where each window begins and ends, in units of the unit of weight divided by `scale`.
    scale : ndarray of Python integers
        Weight of all elements times the denominator of the share.
    """
    numerators, denominators = np.array([each.as_integer_ratio() for each in q], object).T
    low = numerators * (total * total - squares)
    return low, low + squares * denominators, total * denominators


def sums_reached(low: Any, high: Any, scale: Any) -> tuple[Any, Any]:
    """Return the whole sums that the first and the last element of each of `windows` reach."""
    return low // scale + 1, -(-high // scale)


def window_means(
    order: WeightedOrder, slot: IntArray, q: NDArray[np.float64], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Compute weighted quantiles of type 7: the means of windows of the weight.

    The window of q begins behind the weight ``q (W - S/W)`` and is ``S/W`` wide, where W is the sum
    of all weights and S that of their squares: Kish's effective number of elements is W*W/S. For n
    equal weights it begins behind ``q (n - 1)`` elements and is one element wide.

    Returns
    -------
    ndarray of `dtype`
        The quantile of each slot and share, exact and rounded once.

    References
    ----------
    A. Akinshin, "Weighted quantile estimators", arXiv:2304.07265, 2023.
    """
    (before, weight), squares = order.sums_of(slot), order.squares_of(slot)
    # Integers in units of 2**-POINT have a thousand bits more: 99 quantiles of 18 slots took 87 ms.
    unit = min(order.unit, squares.first // 2)
    about = windows(weight.integers(unit), squares.integers(2 * unit), q.tolist())
    sums = [ExactSums.of_integers(each, unit) for each in sums_reached(*about)]
    first, last = order.reach_each(slot, sums)
    low, high = order.elements(np.concatenate([first, last])).reshape(2, -1)
    with np.errstate(invalid="ignore", over="ignore"):
        means = np.where(low == high, low, low + high).astype(dtype)  # -inf and inf are NaN
    some = np.flatnonzero((low != high) & np.isfinite(low) & np.isfinite(high))
    if not len(some):
        return means
    first, last, before = first[some], last[some], before[some]
    begin, end, scale = (each[some] for each in about)
    ends = order.weights_before(np.concatenate([first + 1, last])).integers(unit)
    first_ends, last_begins = ends.reshape(2, -1) - before.integers(unit)
    products = order.products(first + 1, last)
    own = np.concatenate([low[some], high[some]])
    place = min(products.first, unit, unit + begins(own)[0] // DIGIT)
    lows, highs = whole(own, DIGIT * (unit - place)).reshape(2, -1)
    total = lows * (first_ends * scale - begin) + highs * (end - last_begins * scale)
    total += products.integers(place) * scale
    widths = (end - begin) << DIGIT * (unit - place)
    means[some] = quotients(total.tolist(), widths.tolist(), dtype)
    return means


def whole(numbers: NDArray[Any], point: int = POINT) -> NDArray[np.object_]:
    """Convert finite numbers to Python integers, in units of ``2**-point``."""
    ratios = (each.as_integer_ratio() for each in numbers.tolist())
    units = np.empty(len(numbers), object)
    units[:] = [top << (point + 1 - bottom.bit_length()) for top, bottom in ratios]
    return units


# --- All elements ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class InOrder(WeightedOrder):
    """Sorted candidates of the second load and the ends of their brackets, as one slot.

    Places are ranks. All ranks of elements that equal an end are one place.

    Parameters
    ----------
    brackets : Brackets
    tally : Tally
        Tally of all chunks, at these brackets, with sorted candidates.
    weights : ndarray, shape (n_blocks, size)
        Weights of the candidates, and zeros behind them.
    starts : ndarray of int64, shape (n_cells + 1,)
        Number of candidates before each cell, and of all.
    blocks : ExactSums, shape (n_blocks + 1,)
        Weight of the candidates before each block, and of all; zeros if there is one block.
    """

    brackets: Brackets
    tally: Tally
    weights: NDArray[Any]
    starts: IntArray
    blocks: ExactSums

    @classmethod
    def of(cls, brackets: Brackets, tally: Tally) -> Self:
        counts = inside(tally) * brackets.wanted
        starts = np.append(np.int64(0), counts.cumsum())
        if starts[-1] != len(tally.candidates):
            raise _left()
        tally = tally.in_order()
        own = tally.weights
        are_far = len(own) and float(own.max()) / FAR > float(own.min())
        size = BLOCK if are_far or len(own) > ONE_BLOCK else len(own) + 1
        weights = np.zeros((len(own) // size + 1, size), own.dtype)
        weights.reshape(-1)[: len(own)] = own
        if len(weights) == 1:
            return cls(brackets, tally, weights, starts, ExactSums.zeros((2,)))
        if are_far:
            blocks = [ExactSums.of(np.arange(len(own)) // BLOCK, len(weights), own)]
        else:
            pieces = range(0, len(weights), AT_ONCE)
            blocks = [Wholes.of(weights[i : i + AT_ONCE]).sums() for i in pieces]
        return cls(brackets, tally, weights, starts, ExactSums.joined(blocks).running())

    @cached_property
    def cells(self) -> CellWeights:
        """The weights of the cells, as integers."""
        return CellWeights.of(self.brackets, self.tally)

    @cached_property
    def _segments(self) -> tuple[ExactSums, ExactSums]:
        return self.cells.sums()

    @cached_property
    def borders(self) -> IntArray:
        """Ranks at which the cells, and the ends between them, begin: see `finish.borders_of`."""
        return borders_of(self.tally)

    unit = WEIGHT_UNIT

    def sums_of(self, slot: IntArray) -> tuple[ExactSums, ExactSums]:
        return ExactSums.zeros(slot.shape), self.tally.weight[slot]

    def squares_of(self, slot: IntArray) -> ExactSums:
        return self.tally.square[slot]

    def reach(self, slot: IntArray, sums: ExactSums) -> IntArray:
        """Find the first places up to which sums are reached.

        A place is the last rank of the elements that equal an end.

        Raises
        ------
        ChunksChangedError
            If one of them is not among the candidates: load 2 read other data than load 1.
        """
        cell, is_end, among = self.cells.reached(sums.integers(WEIGHT_UNIT))
        if not (is_end | self.brackets.wanted[cell]).all():
            raise _left()
        place = self._reached(among)
        behind_ends = self.borders[np.minimum(2 * cell + 2, len(self.borders) - 1)]
        inner = self.borders[2 * cell] + place - self.starts[cell]
        return np.asarray(np.where(is_end, behind_ends - 1, inner))

    def _reached(self, sums: NDArray[np.object_]) -> IntArray:
        """Find the candidates up to which all before them reach some sums."""
        if len(self.weights) == 1:
            return self._only.reach_whole(sums)
        block = Wholes.of_sums(self.blocks[1:-1]).reach_whole(sums)
        rest = sums - self.blocks[block].integers(WEIGHT_UNIT)
        place = self._running(block).reach_whole(rest, np.arange(len(block)))
        return np.asarray(self.weights.shape[1] * block + place)

    def elements(self, places: IntArray) -> NDArray[Any]:
        cell, is_end, place = self._parts(places)
        elements = np.empty(len(places), self.brackets.ends.dtype)
        elements[is_end] = self.brackets.ends[cell[is_end]]
        elements[~is_end] = self.tally.candidates.on_host()[place[~is_end]]
        return elements

    def weights_at(self, places: IntArray) -> NDArray[np.float64]:
        """Return the weights of the candidates at some places; NaN at places of ends."""
        _, is_end, place = self._parts(places)
        return np.where(is_end, np.nan, self.weights.reshape(-1)[place])

    def weights_before(self, places: IntArray) -> ExactSums:
        cell, is_end, place = self._parts(places)
        if len(self.weights) == 1:
            among = self._only.at(place, np.zeros_like(place))
        else:
            block, rest = np.divmod(place, self.weights.shape[1])
            some, row = np.unique(block, return_inverse=True)
            among = self.blocks[block] + self._running(some).at(rest, row)
        segments, gathered = self._segments
        return segments[2 * cell + is_end] + (among - gathered[cell]).where(~is_end)

    def products(self, starts: IntArray, stops: IntArray) -> ExactSums:
        cell, is_end, place = self._parts(np.concatenate([starts, stops]))
        tally, n = self.tally, len(starts)
        sums = differences(place, self._product_of)
        segment = 2 * cell + is_end
        if (segment[:n] == segment[n:]).all():
            return ExactSums.of_integers(sums, PRODUCT_UNIT)
        is_unknown = (inside(tally) > 0) & ~self.brackets.needed
        n_unknown = np.append(np.int64(0), is_unknown.cumsum())[cell + is_end]
        if (n_unknown[:n] != n_unknown[n:]).any():
            raise _left()
        sums += differences(cell, self._product_of_ends)
        if len(tally.products):
            cells = tally.products.running().integers(PRODUCT_UNIT)
            sums += cells[(cell + is_end)[n:]] - cells[(cell + is_end)[:n]]
        return ExactSums.of_integers(sums, PRODUCT_UNIT)

    def _product_of(self, start: int, stop: int) -> int:
        """Sum candidate times weight between two places among the candidates."""
        candidates = self.tally.candidates.on_host()[start:stop]
        weights = self.tally.weights[start:stop]
        if stop - start <= FEW:
            pairs = zip(whole(candidates), whole(weights), strict=True)
            return sum(element * weight for element, weight in pairs)
        group = np.zeros(stop - start, np.int64)
        sums = ExactSums.of(group, 1, candidates, weights).integers(PRODUCT_UNIT)
        return int(sums[0])

    def _product_of_ends(self, start: int, stop: int) -> int:
        """Sum some ends times their weights."""
        below, upto = (
            each[start:stop].integers(WEIGHT_UNIT)
            for each in (self.tally.weight_below, self.tally.weight_upto)
        )
        return int(((upto - below) * whole(self.brackets.ends[start:stop])).sum())

    def _parts(self, places: IntArray) -> tuple[IntArray, NDArray[np.bool_], IntArray]:
        """Split places into the cell, whether it is the end behind it, and the candidate.

        The candidate is the first one behind an end, or behind the begin of a cell that was not
        gathered.
        """
        segment = self.borders[1:].searchsorted(places, "right")
        cell, is_end = segment // 2, segment % 2 == 1
        is_among = ~is_end & self.brackets.wanted[cell]
        place = self.starts[cell + is_end] + (places - self.borders[segment]) * is_among
        return cell, is_end, place

    def _running(self, blocks: IntArray) -> Wholes:
        """Compute the running sums of the weights in some blocks."""
        return Wholes.of(self.weights[blocks]).running()

    @cached_property
    def _only(self) -> Wholes:
        """The running sums of the weights if there is one block."""
        return Wholes.of(self.weights).running()


class CellWeights(NamedTuple):
    """Weights of cells as Python integers, in units of ``2**-POINT``.

    Operations on tables of exact sums take 10 to 30 us each, whatever their size, and a question
    needs dozens of them.

    Parameters
    ----------
    starts, stops : ndarray of Python integers
        Weight of all elements before each cell, and up to its end.
    gathered : ndarray of Python integers
        Weight of the candidates before each cell, and of all candidates.
    """

    starts: NDArray[np.object_]
    stops: NDArray[np.object_]
    gathered: NDArray[np.object_]

    @classmethod
    def of(cls, brackets: Brackets, tally: Tally) -> Self:
        columns = tally.weight_below, tally.weight_upto, tally.weight
        below, upto, total = (each.integers(WEIGHT_UNIT) for each in columns)
        zero = np.zeros(1, object)
        starts, stops = np.concatenate([zero, upto]), np.concatenate([below, total])
        own = (stops - starts) * brackets.wanted
        return cls(starts, stops, np.concatenate([zero, own.cumsum()]))

    @property
    def total(self) -> int:
        """Weight of all elements."""
        return int(self.stops[-1])

    def sums(self) -> tuple[ExactSums, ExactSums]:
        """Return the weight before each segment, a cell or an end, and of all; and `gathered`."""
        segments = np.stack([self.starts, self.stops], axis=1).ravel()
        gathered = ExactSums.of_integers(self.gathered, WEIGHT_UNIT)
        return ExactSums.of_integers(segments, WEIGHT_UNIT), gathered

    def reached(
        self, sums: NDArray[np.object_]
    ) -> tuple[IntArray, NDArray[np.bool_], NDArray[np.object_]]:
        """Find the cells in which some sums are reached.

        Also return whether that is at the end behind the cell, and not inside it; and up to which
        weight of the candidates.
        """
        # The first cell with an end behind it up to which the sum is reached, or the last one.
        cell = self.starts[1:].searchsorted(sums)
        is_end = (sums > self.stops[cell]) & (cell < len(self.starts) - 1)
        among = self.gathered[cell + is_end] + np.where(is_end, 0, sums - self.starts[cell])
        return cell, is_end, among


def differences(at: IntArray, sum_of: Callable[[int, int], int]) -> NDArray[np.object_]:
    """Return the sums between pairs of places, the first and the second half of `at`.

    `sum_of` sums between two places. Each place is summed once, and those outside all pairs never.
    """
    first, last = at.reshape(2, -1)
    cuts = np.unique(at)
    is_between = covered(cuts, first, last)[1:-1].tolist()
    pieces = zip(pairwise(cuts.tolist()), is_between, strict=True)
    own = (sum_of(*piece) if some else 0 for piece, some in pieces)
    sums = np.array([*accumulate(own, initial=0)], object)
    totals: NDArray[np.object_] = sums[cuts.searchsorted(last)] - sums[cuts.searchsorted(first)]
    return totals


def _left() -> ChunksChangedError:
    return ChunksChangedError(
        "the data have changed since the first read: wanted weights are outside their brackets. "
        f"{ADVICE}"
    )
