"""Answers about groups whose elements are sorted together, by group and then by value.

The elements of a group are a run of that order. Few places tell a quantile or a box plot of a run,
so the elements can stay on a device: each question is asked about all runs together.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.boxes import Rule, largest_to, smallest_from
from dask_gpuselect.maths.cuts import Brackets, FloatArray, IntArray, covered, extremes_of
from dask_gpuselect.maths.exact_sums import ExactSums, Wholes
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import LaneOrder, Lanes, ranks_of_each
from dask_gpuselect.maths.lane_ends import Bounds, BoundsOf, LaneEnds, Outermost
from dask_gpuselect.maths.lane_weights import DOUBT, TYPE_7, WantedQuantiles
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.tables import ahead, bisected
from dask_gpuselect.maths.weight_finish import WeightedOrder, answers, whole
from dask_gpuselect.maths.weights import PRODUCT_UNIT, WEIGHT_UNIT, check_some_weigh


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

    def sums_of(self, slot: IntArray) -> tuple[ExactSums, ExactSums]:
        before, weight = self._totals
        return before[slot], weight[slot]

    def reach_shares(
        self, slot: IntArray, share: FloatArray, *, passes: bool
    ) -> Sequence[IntArray]:
        return _reached(self, slot, share, passes=passes)

    @cached_property
    def _totals(self) -> tuple[ExactSums, ExactSums]:
        """The weight before each run, and that of its elements."""
        n, sums = len(self.stops), self.weights_before(np.concatenate([self.starts, self.stops]))
        return sums[:n], sums[n:] - sums[:n]

    @abstractmethod
    def find(self, run: IntArray, values: NDArray[Any], upto: NDArray[np.bool_]) -> IntArray:
        """Find the places behind the elements of a run below each value, or up to it."""

    @abstractmethod
    def elements(self, places: IntArray) -> NDArray[Any]:
        """Return the elements at some places, the last one at places beyond it."""

    @abstractmethod
    def weights_at(self, places: IntArray) -> NDArray[Any]:
        """Return the weights of the elements at some places, as float64 or int64."""


class Runs(OrderedRuns):
    """Runs about which all questions can be asked."""

    @property
    @abstractmethod
    def home(self) -> Any:
        """An array of the kind of the elements, on their device."""

    @abstractmethod
    def boxes(self, question: LaneOrder, rule: Rule) -> LaneBoxes | None:
        """Compute the box plot of each run; None where `answers_and_ends` has to do it.

        The boxes of runs without elements are undefined.
        """

    @abstractmethod
    def distances(self, centre: Any, dtype: np.dtype[Any]) -> Runs:
        """Sort the distances of all elements without weights from the centre of their run."""

    @abstractmethod
    def moments(self, near: NDArray[Any]) -> Moments:
        """Sum the elements of each run exactly; `near` are some values of their usual size."""

    @abstractmethod
    def sums_between(self, first: IntArray, stop: IntArray, near: NDArray[Any]) -> ExactSums:
        """Sum the finite elements of each run between two places; see `moments`."""


def answered(runs: Runs, question: Any) -> NDArray[Any]:
    """Answer a question about the order of lanes for each run: ``(n_answers, n_runs)``."""
    lanes = picked(runs, question.wanted) if runs.has_weights else _by_ranks(runs, question)
    answers: NDArray[Any] = question.lane_answer(lanes)
    return answers


def answers_and_ends(
    runs: Runs, question: Any, bounds_of: BoundsOf, most: int
) -> tuple[FloatArray, LaneEnds]:
    """Answer a question for each run, and collect the elements beyond bounds from the answers."""
    answers = answered(runs, question).astype(np.float64)
    return answers, ends(runs, np.stack(bounds_of(answers)), most)


# --- Quantiles ------------------------------------------------------------------------------------


def _reached(
    order: WeightedOrder, slot: IntArray, share: FloatArray, *, passes: bool
) -> Sequence[IntArray]:
    """Find places as `WeightedOrder.reach_shares` does, mostly without Python integers.

    A little less and a little more are mostly reached at the same place. Integers of 1,800 shares
    take 25 ms.
    """
    if len(slot) <= FEW_SHARES:
        return WeightedOrder.reach_shares(order, slot, share, passes=passes)
    weight = order.sums_of(slot)[1]
    ends = map(weight.share_of, (np.maximum(share - DOUBT, 0), np.minimum(share + DOUBT, 1)))
    first, last = order.reach_each(slot, [*ends])
    places, some = np.stack([first] * (1 + passes)), np.flatnonzero(first != last)
    if len(some):
        exactly = WeightedOrder.reach_shares
        places[:, some] = exactly(order, slot[some], share[some], passes=passes)
    return [*places]


@dataclass(frozen=True, eq=False)
class GatheredRuns(WeightedOrder):
    """Weighted elements of slots, of which those in the wanted cells of brackets are at hand.

    Each element at hand has a place, and behind those of a cell, its end. All others of a cell have
    one place: to ask for them raises a LookupError.

    Parameters
    ----------
    brackets : Brackets
    counts : ndarray of int64, shape (n_cells, 2)
        Number of elements inside each cell, and of those that equal its upper end.
    sums : ExactSums, shape (2 * n_cells,)
        Their weights.
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
    sums: ExactSums
    squares: ExactSums
    n_missing: IntArray
    n_idle: IntArray
    runs: OrderedRuns
    of_cells: ExactSums | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.brackets.ends.dtype

    @cached_property
    def n_valid(self) -> IntArray:
        return np.add.reduceat(self.counts.sum(axis=1), self.brackets.first_cell[:-1])

    @property
    def unit(self) -> int:
        return min(self.runs.unit, self.sums.first)

    @cached_property
    def _before(self) -> ExactSums:
        """The weight before each cell and each end, one behind the other, and that of all."""
        return self.sums.running()

    @cached_property
    def _before_there(self) -> ExactSums:
        """The weight of the elements at hand before each cell."""
        return self.sums[::2].where(self.brackets.wanted).running()

    @cached_property
    def _is_lost(self) -> NDArray[np.bool_]:
        """Mask of the cells whose elements are not at hand."""
        return (self.counts[:, 0] > 0) & ~self.brackets.wanted

    @cached_property
    def _places(self) -> IntArray:
        """The first place of each cell, and the place of its end, in two rows."""
        n = self.runs.n_valid + self._is_lost
        ends = np.cumsum(n + 1) - 1
        return np.stack([ends - n, ends])

    @property
    def starts(self) -> IntArray:
        """Place of the first element of each slot."""
        starts: IntArray = self._places[0, self.brackets.first_cell[:-1]]
        return starts

    @property
    def stops(self) -> IntArray:
        """Place behind the last element of each slot."""
        stops: IntArray = self._places[1, self.brackets.first_cell[1:] - 1]
        return stops

    def find(self, slot: IntArray, values: NDArray[Any], upto: NDArray[np.bool_]) -> IntArray:
        """Find the places behind the elements of a slot below each value, or up to it."""
        all_ends, first = self.brackets.ends, self.brackets.first_end
        end_at: Callable[[IntArray], NDArray[Any]] = partial(all_ends.take, mode="clip")
        at = bisected(first[slot], first[slot + 1], lambda at: end_at(at) < values)
        cell, is_end = at + slot, (at < first[slot + 1]) & (end_at(at) == values)
        if (self._is_lost[cell] & ~is_end).any():
            raise _lost()
        starts, ends = self._places
        places: IntArray = ends[cell] + (is_end & upto)
        some = np.flatnonzero(~is_end)
        inner = cell[some]
        there = self.runs.find(inner, values[some], upto[some]) - self.runs.starts[inner]
        places[some] = starts[inner] + there
        return places

    def at_hand(self, places: IntArray) -> IntArray:
        """Return the places in `runs` of elements at hand."""
        return self._parts(places)[2]

    def check_beyond(self, inner: IntArray, outer: IntArray) -> None:
        """Check that all elements before and behind some places of each slot are at hand."""
        first, last = self.brackets.first_cell[:-1], self.brackets.first_cell[1:] - 1
        starts, ends = self._places
        is_known = self.brackets.wanted[first] & self.brackets.wanted[last]
        is_known &= (inner <= ends[first]) & (outer >= starts[last])
        if not (is_known | (self.n_valid == 0)).all():
            raise _lost()

    def _parts(self, places: IntArray) -> tuple[IntArray, NDArray[np.bool_], IntArray]:
        """Split places into the cell, whether it is its end, and the elements at hand before it."""
        starts, ends = self._places
        cell = ends.searchsorted(places)
        within = np.minimum(places - starts[cell], self.runs.n_valid[cell])
        return cell, places == ends[cell], self.runs.starts[cell] + within

    def sums_of(self, slot: IntArray) -> tuple[ExactSums, ExactSums]:
        edges = self._before[2 * self.brackets.first_cell]
        return edges[slot], edges[slot + 1] - edges[slot]

    def squares_of(self, slot: IntArray) -> ExactSums:
        return self.squares[slot]

    def reach_shares(
        self, slot: IntArray, share: FloatArray, *, passes: bool
    ) -> Sequence[IntArray]:
        return _reached(self, slot, share, passes=passes)

    def reach(self, slot: IntArray, sums: ExactSums) -> IntArray:
        starts, stops = self._before[:-1:2], self._before[1::2]
        first = self.brackets.first_cell
        cell = Wholes.of_sums(starts[1:]).reach(sums).clip(first[slot], first[slot + 1] - 1)
        is_end = (stops[cell] - sums).is_negative
        places: IntArray = self._places[is_end.astype(np.int64), cell]
        some = np.flatnonzero(~is_end & self.brackets.wanted[cell])
        inner = cell[some]
        among = self._before_there[inner] + (sums[some] - starts[inner])
        places[some] += self.runs.reach(inner, among) - self.runs.starts[inner]
        return places

    def elements(self, places: IntArray) -> NDArray[Any]:
        cell, is_end, inner = self._parts(places)
        if (self._is_lost[cell] & ~is_end).any():
            raise _lost()
        elements = np.empty(len(places), self.dtype)
        elements[is_end] = self.brackets.ends[self.brackets.end_behind(cell[is_end])]
        elements[~is_end] = self.runs.elements(inner[~is_end])
        return elements

    def weights_before(self, places: IntArray) -> ExactSums:
        cell, is_end, inner = self._parts(places)
        within = self.runs.weights_before(inner) - self._before_there[cell]
        return self._before[2 * cell + is_end] + within.where(~is_end)

    def products(self, starts: IntArray, stops: IntArray) -> ExactSums:
        cell, is_end, inner = self._parts(np.concatenate([starts, stops]))
        summed, n = self.brackets.summed, len(starts)
        is_known = self.brackets.wanted if summed is None else self.brackets.needed
        lost = np.append(0, (self._is_lost & ~is_known).cumsum())[cell + is_end]
        if (lost[:n] != lost[n:]).any():
            raise _lost()
        among = self.runs.products(*inner.reshape(2, -1))
        segment = 2 * cell + is_end
        if (segment[:n] == segment[n:]).all():
            return among
        is_between = covered(np.arange(len(self.sums)), segment[:n], segment[n:])[1:]
        before = self._products_before(is_between)
        return among + (before[segment[n:]] - before[segment[:n]])

    def _products_before(self, some: NDArray[np.bool_]) -> ExactSums:
        """Add up the products of summed cells and of some ends before each cell and each end."""
        at = np.flatnonzero(some[1::2] & (self.counts[:, 1] > 0))
        ends = self.brackets.ends[self.brackets.end_behind(at)]
        of_ends = whole(ends) * self.sums[1::2][at].integers(WEIGHT_UNIT)
        own = ExactSums.of_integers(of_ends, PRODUCT_UNIT).at_places(2 * at + 1, len(self.sums))
        if self.of_cells is not None:
            own += self.of_cells.at_places(np.arange(0, len(self.sums), 2), len(self.sums))
        return own.running()


def _lost() -> LookupError:
    return LookupError("wanted elements are outside their brackets")


FEW_SHARES = 32  # shares whose Python integers take less time than to reach sums once more


def _by_ranks(runs: OrderedRuns, question: LaneOrder) -> Lanes:
    """Take the elements of the ranks that a question wants."""
    starts, n_valid = runs.starts[:, None], runs.n_valid
    places = np.stack(ranks_of_each(np.maximum(n_valid, 1), question.lane_ranks))
    lower, upper = runs.elements((places + starts).ravel()).reshape(places.shape)
    return Lanes(lower, upper, n_valid, runs.n_missing)


def picked(runs: OrderedRuns | GatheredRuns, wanted: WantedQuantiles) -> Lanes:
    """Find the elements between which weighted quantiles lie, as `lane_weights.pick` does."""
    check_some_weigh(runs)
    dtype = wanted.dtype if wanted.method == TYPE_7 else runs.dtype
    lower, upper = np.zeros((2, len(runs.n_valid), len(wanted.q)), dtype)
    some = np.flatnonzero(runs.n_valid)
    if len(some) and wanted.q:
        lower[some], upper[some] = answers(runs, some, wanted.q, wanted.method, dtype)
    return Lanes(lower, upper, runs.n_valid, runs.n_missing)


# --- Ends -----------------------------------------------------------------------------------------


def places_inside(runs: OrderedRuns | GatheredRuns, bounds: Bounds) -> tuple[IntArray, IntArray]:
    """Find the places where the elements inside the bounds of each run begin and end."""
    n_runs = len(runs.stops)
    (lowest, highest), is_none = _inside(np.asarray(bounds), runs.dtype)
    upto = np.repeat([False, True], n_runs)
    run = np.tile(np.arange(n_runs), 2)
    inner, outer = runs.find(run, np.concatenate([lowest, highest]), upto).reshape(2, -1)
    # No value is on the inner side of a bound: all elements are beyond it, or none if it is NaN.
    inner, outer = np.where(is_none, [runs.stops, runs.starts], [inner, outer])
    is_number = ~np.isnan(bounds)
    return np.where(is_number[0], inner, runs.starts), np.where(is_number[1], outer, runs.stops)


def _inside(bounds: FloatArray, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Find the smallest value from each lower bound and the largest to each upper one, in two rows.

    Also return a mask of the bounds that have none.
    """
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            values = bounds.astype(dtype)
        own, ends = values.astype(np.float64), np.array([[np.inf], [-np.inf]], dtype)
        is_beyond = np.stack([own[0] < bounds[0], own[1] > bounds[1]])
        values = np.where(is_beyond, np.nextafter(values, ends), values)
        return np.where(np.isnan(bounds), ends, values), np.isnan(bounds)
    found = [
        [value_of(each, dtype) for each in row.tolist()]
        for value_of, row in zip((smallest_from, largest_to), bounds, strict=True)
    ]
    is_none = np.array([[each is None for each in row] for row in found])
    pairs = zip(found, extremes_of(dtype)[::-1], strict=True)
    filled = [[end if each is None else each for each in row] for row, end in pairs]
    return np.array(filled, dtype), is_none


def ends(runs: Runs, bounds: Bounds, most: int) -> LaneEnds:
    """Find the elements beyond the bounds of each run, at most `most` on each side.

    Runs have no weights: see `Runs.boxes`.
    """
    assert not runs.has_weights
    n_valid, starts, stops = runs.n_valid, runs.starts, runs.stops
    least, largest = extremes_of(runs.dtype)
    (inner, outer), is_number = places_inside(runs, bounds), ~np.isnan(bounds)
    n_low, n_high = np.minimum(inner - starts, most), np.minimum(stops - outer, most)
    low_places, high_places = ahead(starts, n_low), ahead(stops - 1, n_high, -1)
    singles = np.concatenate([starts, stops - 1, inner, outer - 1])
    elements = runs.elements(np.concatenate([singles.clip(0), low_places, high_places]))
    single, low, high = np.split(elements, np.cumsum([len(singles), len(low_places)]))
    least_of, most_of, low_of, high_of = single.reshape(4, -1)
    is_inside = inner < stops, outer > starts
    return LaneEnds(
        n_valid,
        runs.n_missing,
        runs.n_left_out + runs.n_idle,
        n_valid,
        np.where(n_valid > 0, least_of, largest),
        np.where(n_valid > 0, most_of, least),
        np.where(is_inside[0] & is_number[0], low_of, largest),
        np.where(is_inside[1] & is_number[1], high_of, least),
        _outermost(inner - starts, n_low, low, most, is_high=False),
        _outermost(stops - outer, n_high, high, most, is_high=True),
        runs.moments(np.concatenate([least_of, low_of, high_of, most_of])),
    )


def clipped_ends(runs: Runs, cuts: NDArray[Any]) -> LaneEnds:
    """Return the ends of each run, with the sums of its elements clipped at two cuts of its own."""
    n = len(runs.n_valid)
    run, limits = np.tile(np.arange(n), 2), np.nan_to_num(cuts.ravel()).astype(runs.dtype)
    inner, outer = runs.find(run, limits, np.repeat([False, True], n)).reshape(2, -1)
    own = ends(runs, np.full((2, n), np.nan), 1)
    assert isinstance(own.moments, Moments)
    near = np.concatenate([own.least, own.most])
    within = runs.sums_between(inner, np.maximum(inner, outer), near[np.tile(runs.n_valid > 0, 2)])
    numbers = np.where(np.isfinite(cuts.ravel()), cuts.ravel(), 0).astype(runs.dtype)
    beyond = np.concatenate([inner - runs.starts, runs.stops - outer])
    total = within + ExactSums.of(run, n, numbers, beyond)
    return replace(own, moments=replace(own.moments, total=total))


def _outermost(
    measure: IntArray, n: IntArray, elements: NDArray[Any], most: int, *, is_high: bool
) -> Outermost:
    """List the values of the `n` most extreme elements of each run, the most extreme first."""
    order = np.arange(len(elements))
    if is_high:  # ascending within a run, as `Outermost` wants it
        order = ahead(np.cumsum(n) - 1, n, -1)
    run = np.repeat(np.arange(len(n)), n)
    return Outermost.of(measure, run, elements[order], most, is_high=is_high)
