"""Weighted quantiles of many lanes at once.

An element of weight w counts as w elements. Instead of ranks, shares of the weight of a lane give
the answers. ``q W`` is an exact number, and so is every sum that is compared with it: see
`exact_sums`. For lanes in parts see `lane_weight_cuts`.

All tables are on the host and have lanes along their first axis, questions along the second.
Elements of weight 0 are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import ADVICE, Arrays, ChunksChangedError, FloatArray, IntArray
from dask_gpuselect.maths.exact_sums import (
    DIGIT,
    ExactSums,
    Running,
    Wholes,
    needs,
    squares_of,
)
from dask_gpuselect.maths.lane_cuts import Lanes, some_lanes
from dask_gpuselect.maths.sorted_lanes import SortedLanes
from dask_gpuselect.maths.weight_finish import WeightedOrder, answers
from dask_gpuselect.maths.weights import check_some_weigh

TYPE_7: Final = "linear"
METHODS: Final = ("inverted_cdf", "averaged_inverted_cdf", TYPE_7)


@dataclass(frozen=True)
class WantedQuantiles:
    """Quantiles that are asked of every lane, and the method.

    Parameters
    ----------
    q : tuple of float
        Quantiles, between 0 and 1.
    method : str
        One of `METHODS`.
    dtype : dtype
        Dtype of the answers.
    """

    q: tuple[float, ...]
    method: str
    dtype: np.dtype[Any]

    @property
    def n_brackets(self) -> int:
        """Number of brackets of a lane: two for each window of the estimator of type 7.

        The two ends of a window are far apart if some elements are heavy.
        """
        return len(self.q) * (2 if self.method == TYPE_7 else 1)


# --- Whole lanes ----------------------------------------------------------------------------------


def pick(lanes: SortedLanes, wanted: WantedQuantiles) -> Lanes:
    """Find the answers of whole lanes, as pairs of elements whose means they are.

    For the estimator of type 7 both of a pair are the answer itself.
    """
    check_some_weigh(lanes)
    shape = (len(lanes.values), len(wanted.q))
    dtype = wanted.dtype if wanted.method == TYPE_7 else lanes.values.dtype
    lower, upper = np.zeros(shape, dtype), np.zeros(shape, dtype)
    return decided(lanes, wanted, lower, upper, np.zeros(shape, np.bool_))


def decided(
    lanes: SortedLanes,
    wanted: WantedQuantiles,
    lower: NDArray[Any],
    upper: NDArray[Any],
    is_sure: NDArray[np.bool_],
) -> Lanes:
    """Find the answers that are not sure yet, exactly, in place of those in `lower` and `upper`."""
    rows = np.flatnonzero(~is_sure.all(axis=1) & (lanes.n_valid > 0))
    if len(rows):
        items = Items.of(
            lanes if len(rows) == len(lanes.values) else some_lanes(lanes, rows), wanted
        )
        for i in np.flatnonzero(~is_sure[rows].all(axis=0)):
            lower[rows, i], upper[rows, i] = items.answer(wanted.q[i], wanted)
    return Lanes(lower, upper, lanes.n_valid, lanes.n_missing)


@dataclass(frozen=True, eq=False)
class Middle(Arrays):
    """Summed elements of each row that lie between two neighbouring items.

    Parameters
    ----------
    weight : ExactSums, shape (n_rows,)
        Sum of their weights.
    product : ExactSums, shape (n_rows,)
        Sum of weight times element.
    place : ndarray of int64, shape (n_rows,)
        Number of items before them: that of all items where nothing is summed.
    """

    weight: ExactSums
    product: ExactSums
    place: IntArray


@dataclass(frozen=True, eq=False)
class Items(WeightedOrder):
    """Sorted elements in the rows of a table, among which the answers are; a row is a slot.

    The weight of the first j items is `base` plus the j-th running sum. But the weight of no items
    is 0, and that of all items is the weight of the lane, because the first and the last item may
    stand for others beyond them.

    A row has a place for each item, one for its `middle`, and one behind.

    Parameters
    ----------
    values, weights : ndarray, shape (n_rows, n)
        Items, ascending, and their weights. The ends of a bracket have weights of 0.
    running : Running
        Running sums of the weights.
    base : ExactSums, shape (n_rows,)
        Weight before the items.
    n : ndarray of int64, shape (n_rows,)
        Number of items.
    weight, square : ExactSums, shape (n_rows,)
        Sum of the weights of the lane, and of their squares.
    middle : Middle
        Summed elements between two of the items.
    """

    values: NDArray[Any]
    weights: NDArray[Any]
    running: Running
    base: ExactSums
    n: IntArray
    weight: ExactSums
    square: ExactSums
    middle: Middle

    @classmethod
    def of(cls, lanes: SortedLanes, wanted: WantedQuantiles) -> Self:
        """Take all elements of lanes as items."""
        assert lanes.weights is not None
        n, weights = lanes.n_valid, lanes.weights
        wholes, none = Wholes.of(weights), ExactSums.zeros(n.shape)
        running = wholes.running()
        square = squares_of(weights, wholes) if wanted.method == TYPE_7 else none
        middle = Middle(none, none, n)
        return cls(lanes.values, weights, running, none, n, running.at(n), square, middle)

    def sums_of(self, slot: IntArray) -> tuple[ExactSums, ExactSums]:
        return ExactSums.zeros(slot.shape), self.weight[slot]

    def squares_of(self, slot: IntArray) -> ExactSums:
        return self.square[slot]

    def answer(self, q: float, wanted: WantedQuantiles) -> tuple[NDArray[Any], NDArray[Any]]:
        """Find the two elements whose mean is the answer of each row."""
        about, rows = ((q,), wanted.method, wanted.dtype), np.arange(len(self.n))
        if wanted.method != TYPE_7:
            lower, upper = answers(self, rows, *about)[..., 0]
            return lower, upper
        # Many windows are about a single value, which floats tell.
        ends = window(q, _width(self.weight, self.square), DOUBT)
        first, last = (self.elements(self.reach(rows, self.weight.share_of(end))) for end in ends)
        with np.errstate(over="ignore"):
            means = first.astype(wanted.dtype)
        rows = np.flatnonzero((first != last) & (self.n > 0))
        if len(rows):
            means[rows] = answers(self, rows, *about)[0, :, 0]
        return means, means

    def check(self, q: float, wanted: WantedQuantiles, below: ExactSums, upto: ExactSums) -> None:
        """Raise unless the answers are among the items.

        Unless the first item is the first of all, more than the weight `below` must be wanted.
        Unless the last item is the last of all, no more than the weight `upto` may be.
        """
        if wanted.method == TYPE_7:
            ends = window(q, _width(self.weight, self.square), DOUBT / 2)
            first, last = (self.weight.share_of(end) for end in ends)
        else:
            unit = min(each.first for each in (self.weight, below, upto))
            first, last = needs(self.weight, np.full(self.n.shape, q), unit)
        is_first = below.is_zero | (below - first).is_negative
        is_last = (self.weight - upto).is_zero | ~(upto - last).is_negative
        if not (is_first & is_last)[self.n > 0].all():
            raise ChunksChangedError(
                f"a 1-D slice has other elements than in the first read. {ADVICE}"
            )

    @property
    def unit(self) -> int:
        sums = self.weight, self.base, self.middle.weight
        return min(self.running.exponent // DIGIT, *(each.first for each in sums))

    def reach(self, slot: IntArray, sums: ExactSums) -> IntArray:
        among, middle = sums - self.base[slot], self.middle.place[slot]
        item = self.running.reach(among, slot)
        if (item >= middle).any():
            behind = self.running.reach(among - self.middle.weight[slot], slot)
            item = np.where(item < middle, item, np.maximum(behind, middle))
        item = np.minimum(item, np.maximum(self.n[slot] - 1, 0))
        place: IntArray = slot * (self.values.shape[1] + 2) + item + (item >= middle)
        return place

    def elements(self, places: IntArray) -> NDArray[Any]:
        row, item, _ = self._parts(places)
        return np.asarray(self.values[row, item])

    def weights_before(self, places: IntArray) -> ExactSums:
        row, item, is_behind = self._parts(places)
        sums = self.base[row] + self.running.at(item, row)
        return sums + self.middle.weight[row].where(is_behind)

    def products(self, starts: IntArray, stops: IntArray) -> ExactSums:
        (row, start, was_behind), (_, stop, is_behind) = map(self._parts, (starts, stops))
        sizes = stop - start
        pair = np.repeat(np.arange(len(row)), sizes)
        at = row[pair], np.arange(len(pair)) + np.repeat(start - (np.cumsum(sizes) - sizes), sizes)
        sums = ExactSums.of(pair, len(row), self.values[at], self.weights[at])
        return sums + self.middle.product[row].where(is_behind & ~was_behind)

    def _parts(self, places: IntArray) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
        """Split places into the row, the item, and whether it is behind the row's middle."""
        row, item = np.divmod(places, self.values.shape[1] + 2)
        is_behind = item > self.middle.place[row]
        return row, item - is_behind, is_behind


DOUBT = 2.0**-40
"""Bound of the error of a share of the weight that is computed with floats."""


def window(q: float, width: FloatArray, doubt: float) -> tuple[FloatArray, FloatArray]:
    """Compute the shares of the weight between which the estimator of type 7 averages.

    The window is `doubt` wider on both sides. `width` is the sum of the squares of the weights
    divided by the square of their sum.
    """
    low = q * (1 - width)
    return np.maximum(low - doubt, 0), np.minimum(low + width + doubt, 1)


def _width(weight: ExactSums, square: ExactSums) -> NDArray[np.float64]:
    total, place = weight.leading()
    squares_, place_of_square = square.leading()
    total = np.where(total > 0, total, 1)
    width: NDArray[np.float64] = np.ldexp(
        squares_ / total**2, DIGIT * (place_of_square - 2 * place).clip(-50, 50)
    )
    return np.minimum(width, 1)
