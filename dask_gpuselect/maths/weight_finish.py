"""Weighted quantiles by exact sums: the elements that they are made of, and their proof.

All elements, lanes and groups finish here. They differ only in how their elements lie in order: see
`WeightedOrder`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import OrderedHostCandidates
from dask_gpuselect.maths.cuts import ADVICE, Brackets, ChunksChangedError, IntArray, Tally, covered
from dask_gpuselect.maths.exact_sums import ExactSums, Need, Running, Wholes, needs, quotient
from dask_gpuselect.maths.weights import POINT, PRODUCT_UNIT, WEIGHT_UNIT

# Sums of the candidates' weights are stored behind every so many of them. Between, they are added
# up where they are wanted.
BLOCK = 64
# Candidates that are added up together.
AT_ONCE = 1 << 16
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

    @abstractmethod
    def reach(self, slot: IntArray, need: Need) -> IntArray:
        """Find the first places up to which the elements of some slots meet thresholds.

        Each threshold is above the weight before its slot, and at most that up to its end.
        """

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
        before, weight = order.sums_of(slot)
        wanted = needs(weight, share)
        some = wanted if method == "averaged_inverted_cdf" else wanted[:1]
        pair = [order.elements(places) for places in _places(order, slot, before, some)]
    return np.stack([pair[0], pair[-1]]).reshape(2, len(slots), len(q))


def _places(
    order: WeightedOrder, slot: IntArray, before: ExactSums, needs: Sequence[Need]
) -> IntArray:
    """Find the first places that meet several thresholds in each slot, one row for each of them."""
    need = Need.joined([need.plus(before) for need in needs])
    return order.reach(np.tile(slot, len(needs)), need).reshape(len(needs), -1)


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Windows of the weight over which quantiles of type 7 average; see `window_means`.

    Parameters
    ----------
    low, high : ndarray of Python integers
        Where each begins and ends, in units of a unit of weight divided by `scale`.
    scale : ndarray of Python integers
        Weight of all elements times the denominator of the share.
    """

    low: NDArray[np.object_]
    high: NDArray[np.object_]
    scale: NDArray[np.object_]

    @classmethod
    def of(cls, weight: ExactSums, square: ExactSums, q: Sequence[float]) -> Self:
        """Make the windows of some shares, from the sums of all weights and of their squares."""
        numerators, denominators = np.array([each.as_integer_ratio() for each in q], object).T
        total, squares = weight.integers(WEIGHT_UNIT), square.integers(PRODUCT_UNIT)
        low = numerators * (total * total - squares)
        return cls(low, low + squares * denominators, total * denominators)

    @property
    def needs(self) -> tuple[Need, Need]:
        """The thresholds up to the first and the last element of each window."""
        sums = self.low // self.scale + 1, -(-self.high // self.scale)
        first, last = (Need.reached(ExactSums.of_integers(each, WEIGHT_UNIT)) for each in sums)
        return first, last


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
    before, weight = order.sums_of(slot)
    windows = Windows.of(weight, order.squares_of(slot), q.tolist())
    first, last = _places(order, slot, before, windows.needs)
    low, high = order.elements(first), order.elements(last)
    with np.errstate(invalid="ignore", over="ignore"):
        means = np.where(low == high, low, low + high).astype(dtype)  # -inf and inf are NaN
    some = np.flatnonzero((low != high) & np.isfinite(low) & np.isfinite(high))
    if not len(some):
        return means
    first, last, before = first[some], last[some], before[some]
    begin, end, scale = (each[some] for each in (windows.low, windows.high, windows.scale))
    ends = order.weights_before(np.concatenate([first + 1, last])).integers(WEIGHT_UNIT)
    first_ends, last_begins = ends.reshape(2, -1) - before.integers(WEIGHT_UNIT)
    total = whole(low[some]) * (first_ends * scale - begin)
    total += whole(high[some]) * (end - last_begins * scale)
    total += order.products(first + 1, last).integers(PRODUCT_UNIT) * scale
    widths = (end - begin) << POINT
    means[some] = [quotient(*each, dtype) for each in zip(total, widths, strict=True)]
    return means


def whole(numbers: NDArray[Any]) -> NDArray[np.object_]:
    """Convert finite numbers to Python integers, in units of ``2**-POINT``."""
    ratios = (each.as_integer_ratio() for each in numbers.tolist())
    units = np.empty(len(numbers), object)
    units[:] = [top << (POINT + 1 - bottom.bit_length()) for top, bottom in ratios]
    return units


# --- All elements ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class InOrder(WeightedOrder):
    """Sorted candidates of the second load and the ends of their brackets, as one slot.

    Segments are the cells, and the ends between them. Segment s has the places from ``firsts[s]``
    on: an end has one, and a cell one more than it has candidates.

    Parameters
    ----------
    brackets : Brackets
    tally : Tally
        Tally of all chunks, at these brackets.
    candidates : ndarray
        Candidates, sorted.
    weights : ndarray, shape (n_blocks, BLOCK)
        Their weights, and zeros behind them.
    starts : ndarray of int64, shape (n_cells + 1,)
        Number of candidates before each cell, and of all.
    firsts : ndarray of int64, shape (n_segments,)
        First place of each segment.
    segments : ExactSums, shape (n_segments + 1,)
        Weight of the elements before each segment, and of all.
    gathered : ExactSums, shape (n_cells + 1,)
        Weight of the candidates before each cell, and of all.
    blocks : ExactSums, shape (n_blocks + 1,)
        Weight of the candidates before each block, and of all.
    """

    brackets: Brackets
    tally: Tally
    candidates: NDArray[Any]
    weights: NDArray[Any]
    starts: IntArray
    firsts: IntArray
    segments: ExactSums
    gathered: ExactSums
    blocks: ExactSums

    @classmethod
    def of(cls, brackets: Brackets, tally: Tally) -> Self:
        counts = inside(tally) * brackets.wanted
        starts = np.append(np.int64(0), counts.cumsum())
        if starts[-1] != len(tally.candidates):
            raise _left()
        ordered, own = tally.in_order()
        assert own is not None
        weights = np.zeros((len(own) // BLOCK + 1, BLOCK), own.dtype)
        weights.reshape(-1)[: len(own)] = own
        if len(own) and float(own.max()) / FAR > float(own.min()):
            blocks = [ExactSums.of(np.arange(len(own)) // BLOCK, len(weights), own)]
        else:
            pieces = np.split(weights, range(AT_ONCE // BLOCK, len(weights), AT_ONCE // BLOCK))
            blocks = [Wholes.of(rows).running().at(np.full(len(rows), BLOCK)) for rows in pieces]
        cells = cell_ends(tally)
        return cls(
            brackets,
            tally,
            ordered.on_host(),
            weights,
            starts,
            np.repeat(starts, 2)[1:-2] + np.arange(2 * len(counts) - 1),
            _interleaved(*cells),
            gathered_before(brackets, cells),
            ExactSums.joined(blocks).running(),
        )

    @property
    def ordered(self) -> OrderedHostCandidates:
        """The candidates, as candidates."""
        return OrderedHostCandidates(self.candidates)

    @property
    def own_weights(self) -> NDArray[Any]:
        """Weight of each candidate."""
        return self.weights.reshape(-1)[: len(self.candidates)]

    def sums_of(self, slot: IntArray) -> tuple[ExactSums, ExactSums]:
        return ExactSums.zeros(slot.shape), self.tally.weight[slot]

    def squares_of(self, slot: IntArray) -> ExactSums:
        return self.tally.square[slot]

    def reach(self, slot: IntArray, need: Need) -> IntArray:
        """Find the first places up to which all elements meet thresholds.

        Raises
        ------
        ChunksChangedError
            If one of them is not among the candidates: load 2 read other data than load 1.
        """
        segment = Running.of(self.segments[1:]).reach(need, slot)
        cell, is_end = np.divmod(segment, 2)
        if not (self.brackets.wanted[cell] | (is_end == 1)).all():
            raise _left()
        # Convert the weight to that among the candidates alone.
        need = need.plus(self.gathered[cell] - self.segments[segment])
        last = len(self.weights) - 1
        block = np.minimum(Running.of(self.blocks[1:]).reach(need, slot), last)
        place = BLOCK * block + self._running(block).reach(need.minus(self.blocks[block]))
        return np.where(is_end == 1, self.starts[cell + 1], place) + segment

    def find(self, values: NDArray[Any], *, upto: bool) -> IntArray:
        """Find the places behind all elements below some values, or up to them.

        Each value must be an end, or lie in a cell that was gathered or is empty.
        """
        ends = self.brackets.ends
        cell = ends.searchsorted(values)
        is_end = ends.searchsorted(values, "right") > cell
        place = self.candidates.searchsorted(values, "right" if upto else "left")
        at_end = self.firsts[np.minimum(2 * cell + 1, len(self.firsts) - 1)] + upto
        return np.where(is_end, at_end, place + 2 * cell)

    def elements(self, places: IntArray) -> NDArray[Any]:
        cell, is_end, place = self._parts(places)
        elements = np.empty(len(places), self.brackets.ends.dtype)
        elements[is_end] = self.brackets.ends[cell[is_end]]
        elements[~is_end] = self.candidates[place[~is_end]]
        return elements

    def weights_before(self, places: IntArray) -> ExactSums:
        cell, is_end, place = self._parts(places)
        block, rest = np.divmod(place, BLOCK)
        among = self.blocks[block] + self._running(block).at(rest) - self.gathered[cell]
        return self.segments[2 * cell + is_end] + among.where(~is_end)

    def products(self, starts: IntArray, stops: IntArray) -> ExactSums:
        cell, is_end, place = self._parts(np.concatenate([starts, stops]))
        segment, brackets, tally = 2 * cell + is_end, self.brackets, self.tally
        is_unknown = (inside(tally) > 0) & ~brackets.needed
        n_unknown = np.append(np.int64(0), is_unknown.cumsum())[(segment + 1) // 2]
        if (n_unknown[: len(starts)] != n_unknown[len(starts) :]).any():
            raise _left()
        # Candidates outside all pairs are in no difference.
        at = np.where(is_end, self.starts[cell + 1], place)
        between = covered(np.arange(len(self.candidates) + 1), *at.reshape(2, -1))[1:-1]
        finite = np.flatnonzero(between & np.isfinite(self.candidates))
        some = self.candidates[finite], self.own_weights[finite]
        cuts = np.unique(np.concatenate([place, self.starts]))
        group = cuts.searchsorted(finite, "right")
        at_cuts = ExactSums.of(group, len(cuts) + 1, *some).running()[1:]
        at_cells = at_cuts[cuts.searchsorted(self.starts)]
        cells = at_cells[1:] - at_cells[:-1]
        if len(tally.products):
            cells += tally.products
        # An infinite end is the end of a window, and never between two ends.
        values = np.where(np.isfinite(brackets.ends), brackets.ends, 0)
        at_ends = (tally.weight_upto - tally.weight_below).integers(WEIGHT_UNIT) * whole(values)
        ends = ExactSums.of_integers(at_ends, PRODUCT_UNIT)
        among = (at_cuts[cuts.searchsorted(place)] - at_cells[cell]).where(~is_end)
        sums = _interleaved(cells, ends).running()[segment] + among
        return sums[len(starts) :] - sums[: len(starts)]

    def _parts(self, places: IntArray) -> tuple[IntArray, NDArray[np.bool_], IntArray]:
        """Split places into the cell, whether it is the end behind it, and the candidate."""
        segment = self.firsts.searchsorted(places, "right") - 1
        return segment // 2, segment % 2 == 1, places - segment

    def _running(self, blocks: IntArray) -> Running:
        """Compute the running sums of the weights in some blocks."""
        return Wholes.of(self.weights[blocks]).running()


def inside(tally: Tally) -> IntArray:
    """Count the elements in each cell."""
    return np.append(tally.below, tally.n_valid) - np.append(np.int64(0), tally.upto)


def cell_ends(tally: Tally) -> tuple[ExactSums, ExactSums]:
    """Compute the weight before each cell, and the weight up to its end."""
    nothing = ExactSums.zeros((1,))
    return (
        ExactSums.joined([nothing, tally.weight_upto]),
        ExactSums.joined([tally.weight_below, tally.weight]),
    )


def gathered_before(brackets: Brackets, cells: tuple[ExactSums, ExactSums]) -> ExactSums:
    """Compute the weight of the candidates before each cell, and of all candidates."""
    return (cells[1] - cells[0]).where(brackets.wanted).running()


def _interleaved(first: ExactSums, second: ExactSums) -> ExactSums:
    """Interleave two tables, the second of which may be shorter by one."""
    order = np.arange(2 * len(first)).reshape(2, -1).T.ravel()
    return ExactSums.joined([first, second])[order[: len(first) + len(second)]]


def _left() -> ChunksChangedError:
    return ChunksChangedError(
        "the data have changed since the first read: wanted weights are outside their brackets. "
        f"{ADVICE}"
    )
