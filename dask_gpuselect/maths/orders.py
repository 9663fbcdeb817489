"""Elements of slots in order: the places of elements, and the weight before them.

All elements, lanes and groups are slots. What is known of them differs: all of their elements, in
runs, or those that were gathered at brackets, with counts of the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import (
    ADVICE,
    UNKNOWN,
    Brackets,
    ChunksChangedError,
    FloatArray,
    IntArray,
    Tally,
    covered,
)
from dask_gpuselect.maths.exact_sums import DIGIT, ExactSums, are_alike, needs, whole
from dask_gpuselect.maths.tables import ahead, bisected
from dask_gpuselect.maths.weights import PRODUCT_UNIT, WEIGHT_UNIT

DOUBT = 2.0**-40
"""Bound of the error of a share of the weight that is computed with floats."""
FEW_SHARES = 32  # shares whose Python integers take less time than to reach sums once more


class WeightedOrder(ABC):
    """Base of weighted elements of one or several slots, each in ascending order.

    A place is that of an element, or of several that are equal. Places ascend within a slot.
    """

    @property
    @abstractmethod
    def _totals(self) -> tuple[ExactSums, ExactSums]:
        """The weight before each slot, which places count, and that of its elements."""

    def sums_of(self, slot: IntArray) -> tuple[ExactSums, ExactSums]:
        """Return the weight before some slots, and that of their elements."""
        before, weight = self._totals
        return before[slot], weight[slot]

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
        before, weight = self.sums_of(slot)
        if len(slot) <= FEW_SHARES or are_alike(weight, share):
            wanted = needs(weight, share, self.unit)
            return self.reach_each(slot, before, wanted[: 1 + passes])
        # A little less and a little more are mostly reached at the same place. Integers of 1,800
        # shares take 25 ms.
        ends = map(weight.share_of, (np.maximum(share - DOUBT, 0), np.minimum(share + DOUBT, 1)))
        first, last = self.reach_each(slot, before, [*ends])
        places, some = np.stack([first] * (1 + passes)), np.flatnonzero(first != last)
        if len(some):
            wanted = needs(weight[some], share[some], self.unit)
            places[:, some] = self.reach_each(slot[some], before[some], wanted[: 1 + passes])
        return [*places]

    def reach_each(
        self, slot: IntArray, before: ExactSums, sums: Sequence[ExactSums]
    ) -> Sequence[IntArray]:
        """Find the first places up to which several sums are reached in each slot.

        `before` is the weight before the slots.
        """
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


@dataclass(frozen=True, eq=False)
class OrderedRuns(WeightedOrder):
    """Runs of sorted elements, on any device; with weights, those of weight above 0.

    All that is returned is on the host. Places are among the elements of all runs.

    Parameters
    ----------
    dtype : dtype
        Dtype in which elements are compared.
    n_valid, n_missing, n_left_out, n_idle : ndarray of int64, shape (n_runs,)
        Number of elements of each run: sorted ones, NaN, those that are left out, such as masked
        ones and NaN of weight 0, and valid elements of weight 0.
    """

    dtype: np.dtype[Any]
    n_valid: IntArray
    n_missing: IntArray
    n_left_out: IntArray
    n_idle: IntArray

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a table with a row for each run, as far as answers depend on it."""
        return len(self.n_valid), 0

    @cached_property
    def stops(self) -> IntArray:
        """Place behind each run."""
        return np.cumsum(self.n_valid)

    @cached_property
    def starts(self) -> IntArray:
        return self.stops - self.n_valid

    @property
    @abstractmethod
    def has_weights(self) -> bool: ...

    @cached_property
    def _totals(self) -> tuple[ExactSums, ExactSums]:
        """The weight before each run, and that of its elements."""
        n, sums = len(self.stops), self.weights_before(np.concatenate([self.starts, self.stops]))
        return sums[:n], sums[n:] - sums[:n]

    @abstractmethod
    def find(self, run: IntArray, values: NDArray[Any], upto: NDArray[np.bool_]) -> IntArray:
        """Find the places behind the elements of a run below each value, or up to it."""

    def sides(self, run: IntArray, values: NDArray[Any]) -> IntArray:
        """Find the places behind the elements of a run below each value, and up to it."""
        upto = np.repeat([False, True], len(run))
        return self.find(np.tile(run, 2), np.tile(values, 2), upto).reshape(2, -1)

    def pivots(self, n: IntArray) -> tuple[IntArray, NDArray[Any], IntArray, IntArray]:
        """Choose pivots of each run, `n` at even steps by count and as many by weight.

        Returns the run of each pivot, the pivots, which differ and ascend, and the places behind
        the elements below and up to each of them.
        """
        run = np.repeat(np.arange(len(n)), n)
        step = ahead(np.zeros_like(n), n)
        by_count = self.starts[run] + step * (self.n_valid[run] - 1) // np.maximum(n[run] - 1, 1)
        before, weight = self.sums_of(run)
        by_weight = self.reach(run, before + weight.share_of((step + 1) / n[run]))
        places = np.sort(np.concatenate([by_count, by_weight]), kind="stable")
        values, run = self.elements(places), self.stops.searchsorted(places, side="right")
        is_new = np.ones(len(places), np.bool_)
        is_new[1:] = (values[1:] != values[:-1]) | (run[1:] != run[:-1])
        run, pivots = run[is_new], values[is_new]
        return run, pivots, *self.sides(run, pivots)

    @abstractmethod
    def elements(self, places: IntArray) -> NDArray[Any]:
        """Return the elements at some places, the last one at places beyond it."""

    @abstractmethod
    def weights_at(self, places: IntArray) -> NDArray[Any]:
        """Return the weights of the elements at some places, as float64 or int64."""


@dataclass(frozen=True, eq=False)
class GatheredRuns(WeightedOrder):
    """Elements of slots, of which those in the wanted cells of brackets are at hand.

    Places are ranks among the elements of all slots. All ranks of elements that equal an end are
    one place. To ask for an element that is not at hand raises a `ChunksChangedError`.

    Parameters
    ----------
    brackets : Brackets
    counts : ndarray of int64, shape (n_cells, 2)
        Number of elements inside each cell, and of those that equal its upper end.
    before : ExactSums, shape (2 * n_cells + 1,)
        Weight of the elements before each cell and before its upper end, and of all. None, as all
        sums, without weights.
    squares : ExactSums, shape (n_slots,)
        Sums of the squares of weights; 0 if nothing asks for them.
    n_missing, n_idle : ndarray of int64, shape (n_slots,)
        As in `OrderedRuns`.
    runs : OrderedRuns
        The elements at hand, with a run for each cell.
    of_cells : ExactSums, shape (n_cells,), optional
        Sums of element times weight in the cells that are `Brackets.summed`.
    """

    brackets: Brackets
    counts: IntArray
    before: ExactSums
    squares: ExactSums
    n_missing: IntArray
    n_idle: IntArray
    runs: OrderedRuns
    of_cells: ExactSums | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.brackets.ends.dtype

    @property
    def has_weights(self) -> bool:
        return self.before is not UNKNOWN

    @classmethod
    def of_tally(cls, brackets: Brackets, tally: Tally) -> Self:
        """Make the order of a single slot from its tally, without `runs`."""
        n_missing, n_idle = (np.array([n], np.int64) for n in (tally.n_missing, tally.n_idle))
        products = tally.products if tally.weighs and len(tally.products) else None
        counts, before = tally.segments()
        before = before if tally.weighs else UNKNOWN
        return cls(brackets, counts, before, tally.square, n_missing, n_idle, UNKNOWN, products)

    @cached_property
    def n_valid(self) -> IntArray:
        edges = self._borders[2 * self._first]
        return edges[1:] - edges[:-1]

    @property
    def unit(self) -> int:
        return min(self.runs.unit, self.before.first)

    @cached_property
    def _first(self) -> IntArray:
        """The first cell of each slot, and the number of all cells."""
        return self.brackets.first_cell

    @cached_property
    def _totals(self) -> tuple[ExactSums, ExactSums]:
        edges = self.before[2 * self._first]
        return edges[:-1], edges[1:] - edges[:-1]

    @cached_property
    def others(self) -> ExactSums:
        """The weight of the elements before each cell, and of all, that are not at hand."""
        is_other = np.ones(self.counts.size, np.bool_)
        is_other[::2] = ~self.brackets.wanted
        return (self.before[1:] - self.before[:-1]).where(is_other).running()[::2]

    @cached_property
    def _is_lost(self) -> NDArray[np.bool_]:
        """Mask of the cells whose elements are not at hand."""
        return (self.counts[:, 0] > 0) & ~self.brackets.wanted

    @cached_property
    def _borders(self) -> IntArray:
        """The first rank of each cell and each end, one behind the other, and the number of all."""
        borders = np.zeros(self.counts.size + 1, np.int64)
        self.counts.cumsum(out=borders[1:])
        return borders

    @property
    def starts(self) -> IntArray:
        """Place of the first element of each slot."""
        return self._borders[2 * self._first[:-1]]

    @property
    def stops(self) -> IntArray:
        """Place behind the last element of each slot."""
        return self._borders[2 * self._first[1:]]

    def find(self, slot: IntArray, values: NDArray[Any], upto: NDArray[np.bool_]) -> IntArray:
        """Find the places behind the elements of a slot below each value, or up to it.

        A place is -1 if it is not known, because elements near the value are not at hand.
        """
        ends, edges = self.brackets.ends, self.brackets.first_end
        end_at = np.append(ends, np.zeros(1, self.dtype)).take  # a place behind all ends
        if self.brackets.n_ends is None:
            at = ends.searchsorted(values)
        else:
            at = bisected(edges[slot], edges[slot + 1], lambda at: end_at(at) < values)
        cell, is_end = at + slot, (at < edges[slot + 1]) & (end_at(at) == values)
        places: IntArray = self._borders[2 * cell + 1 + (is_end & upto)]
        is_lost = self._is_lost[cell] & ~is_end
        places[is_lost] = -1
        some = np.flatnonzero(~is_end & ~is_lost)
        inner = cell[some]
        there = self.runs.find(inner, values[some], upto[some]) - self.runs.starts[inner]
        places[some] = self._borders[2 * inner] + there
        return places

    def at_hand(self, places: IntArray) -> IntArray:
        """Return the places in `runs` of elements at hand."""
        return self._parts(places)[2]

    def check_beyond(self, inner: IntArray, outer: IntArray) -> None:
        """Check that all elements before and behind some places of each slot are at hand."""
        if (np.minimum(inner, outer) < 0).any():
            raise lost()
        places = np.stack([self.starts, inner, outer, self.stops])
        n, n_at_hand = (np.diff(each, axis=0)[::2] for each in (places, self.at_hand(places)))
        if not np.array_equal(n, n_at_hand):
            raise lost()

    def _parts(self, places: IntArray) -> tuple[IntArray, NDArray[np.bool_], IntArray]:
        """Split places into the cell, whether it is its end, and the elements at hand before it."""
        segment = self._borders[1:-1].searchsorted(places, "right")
        cell, is_end = segment // 2, segment % 2 == 1
        within = np.minimum(places - self._borders[2 * cell], self.runs.n_valid[cell])
        return cell, is_end, self.runs.starts[cell] + within

    def squares_of(self, slot: IntArray) -> ExactSums:
        return self.squares[slot]

    def cells_reached(self, slot: IntArray, sums: ExactSums) -> tuple[IntArray, NDArray[np.bool_]]:
        """Find the cells in which sums are reached, and whether that is at their end."""
        segment = np.maximum(self.before[1:-1].places_of(sums), 2 * self._first[slot])
        return segment // 2, segment % 2 == 1

    def reach(self, slot: IntArray, sums: ExactSums) -> IntArray:
        cell, is_end = self.cells_reached(slot, sums)
        places = np.where(is_end, self._borders[2 * cell + 2] - 1, self._borders[2 * cell])
        some = np.flatnonzero(~is_end & self.brackets.wanted[cell])
        inner = cell[some]
        among = sums[some] - self.others[inner]
        places[some] += self.runs.reach(inner, among) - self.runs.starts[inner]
        return places

    def elements(self, places: IntArray) -> NDArray[Any]:
        cell, is_end, inner = self._parts(places)
        if (self._is_lost[cell] & ~is_end).any():
            raise lost()
        elements = np.empty(len(places), self.dtype)
        elements[is_end] = self.brackets.ends[self.brackets.end_behind(cell[is_end])]
        elements[~is_end] = self.runs.elements(inner[~is_end])
        return elements

    def weights_at(self, places: IntArray) -> FloatArray:
        """Return the weights of the elements at some places; NaN at places of ends."""
        _, is_end, inner = self._parts(places)
        return np.where(is_end, np.nan, self.runs.weights_at(inner))

    def weights_before(self, places: IntArray) -> ExactSums:
        cell, is_end, inner = self._parts(places)
        others = self._offsets[np.where(is_end, 2 * cell + 1, len(self.before) + cell)]
        return others + self.runs.weights_before(np.where(is_end, 0, inner))

    @cached_property
    def _offsets(self) -> ExactSums:
        """The numbers of `before`, and then those of `others`."""
        return ExactSums.joined([self.before, self.others])

    def products(self, starts: IntArray, stops: IntArray) -> ExactSums:
        cell, is_end, inner = self._parts(np.concatenate([starts, stops]))
        summed, n = self.brackets.summed, len(starts)
        is_known = self.brackets.wanted if summed is None else self.brackets.needed
        n_lost = np.append(0, (self._is_lost & ~is_known).cumsum())[cell + is_end]
        if (n_lost[:n] != n_lost[n:]).any():
            raise lost()
        among = self.runs.products(*inner.reshape(2, -1))
        segment = 2 * cell + is_end
        if (segment[:n] == segment[n:]).all():
            return among
        is_between = covered(np.arange(self.counts.size), segment[:n], segment[n:])[1:]
        before = self._products_before(is_between)
        return among + (before[segment[n:]] - before[segment[:n]])

    def _products_before(self, some: NDArray[np.bool_]) -> ExactSums:
        """Add up the products of summed cells and of some ends before each cell and each end."""
        at = np.flatnonzero(some[1::2] & (self.counts[:, 1] > 0))
        ends = self.brackets.ends[self.brackets.end_behind(at)]
        weights = self.before[2 * at + 2] - self.before[2 * at + 1]
        of_ends = whole(ends) * weights.integers(WEIGHT_UNIT)
        own = ExactSums.of_integers(of_ends, PRODUCT_UNIT).at_places(2 * at + 1, len(some))
        if self.of_cells is not None:
            own += self.of_cells.at_places(np.arange(0, len(some), 2), len(some))
        return own.running()


def lost() -> ChunksChangedError:
    return ChunksChangedError(
        "the data have changed since the first read: wanted elements are outside their brackets. "
        f"{ADVICE}"
    )
