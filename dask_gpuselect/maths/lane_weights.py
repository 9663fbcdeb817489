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
    TOTAL_POINT,
    ExactSums,
    Need,
    Running,
    Wholes,
    needs,
    quotient,
    squares_of,
    taken,
)
from dask_gpuselect.maths.lane_cuts import Lanes, some_lanes
from dask_gpuselect.maths.sorted_lanes import SortedLanes

ALL_ZERO: Final = "Weights included NaN, inf or were all zero."  # NumPy's message

TYPE_7: Final = "linear"
METHODS: Final = ("inverted_cdf", "averaged_inverted_cdf", TYPE_7)


def check_some_weigh(lanes: Any) -> None:
    """Raise if all elements of a lane have weight 0."""
    if ((lanes.n_valid + lanes.n_missing == 0) & (lanes.n_idle > 0)).any():
        raise ValueError(ALL_ZERO)


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
        Number of items before them.
    """

    weight: ExactSums
    product: ExactSums
    place: IntArray


@dataclass(frozen=True, eq=False)
class Items:
    """Sorted elements in the rows of a table, among which the answers are.

    The weight of the first j items is `base` plus the j-th running sum. But the weight of no items
    is 0, and that of all items is the weight of the lane, because the first and the last item may
    stand for others beyond them.

    Parameters
    ----------
    values : ndarray, shape (n_rows, n)
        Ascending.
    running : Running
        Running sums of the weights of the items.
    base : ExactSums, shape (n_rows,)
        Weight before the items.
    n : ndarray of int64, shape (n_rows,)
        Number of items.
    weight, square : ExactSums, shape (n_rows,)
        Sum of the weights of the lane, and of their squares.
    middle : Middle, optional
        Summed elements between two of the items.
    """

    values: NDArray[Any]
    running: Running
    base: ExactSums
    n: IntArray
    weight: ExactSums
    square: ExactSums
    middle: Middle | None = None

    @classmethod
    def of(cls, lanes: SortedLanes, wanted: WantedQuantiles) -> Self:
        """Take all elements of lanes as items."""
        assert lanes.weights is not None
        n, weights = lanes.n_valid, lanes.weights
        wholes, none = Wholes.of(weights), ExactSums.zeros(n.shape)
        running = wholes.running()
        square = squares_of(weights, wholes) if wanted.method == TYPE_7 else none
        return cls(lanes.values, running, none, n, running.at(n), square)

    def answer(self, q: float, wanted: WantedQuantiles) -> tuple[NDArray[Any], NDArray[Any]]:
        """Find the two elements whose mean is the answer of each row."""
        if wanted.method == TYPE_7:
            found = self._averages(q, wanted.dtype)
            return found, found
        reached, passed = (need.minus(self.base) for need in needs(self.weight, q))
        found = self._at(self.running.reach(reached))
        if wanted.method != "averaged_inverted_cdf":
            return found, found
        return found, self._at(self.running.reach(passed))

    def _at(self, places: IntArray) -> NDArray[Any]:
        return taken(self.values, self._some_item(places)[:, None])[:, 0]

    def _some_item(self, places: IntArray) -> IntArray:
        return np.minimum(places, np.maximum(self.n - 1, 0))

    def check(self, q: float, wanted: WantedQuantiles, below: ExactSums, upto: ExactSums) -> None:
        """Raise unless the answers are among the items.

        Unless the first item is the first of all, more than the weight `below` must be wanted.
        Unless the last item is the last of all, no more than the weight `upto` may be.
        """
        first, last = needs(self.weight, q)
        if wanted.method == TYPE_7:
            ends = window(q, _width(self.weight, self.square), DOUBT / 2)
            first, last = (Need.reached(self.weight.share_of(end)) for end in ends)
        is_first = below.is_zero | ~first.minus(below).is_met
        is_last = (self.weight - upto).is_zero | last.minus(upto).is_met
        if not (is_first & is_last)[self.n > 0].all():
            raise ChunksChangedError(
                f"a 1-D slice has other elements than in the first read. {ADVICE}"
            )

    def _averages(self, q: float, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Compute the answers of the estimator of type 7: averages over windows."""
        ends = window(q, _width(self.weight, self.square), DOUBT)
        low, high = (Need.reached(self.weight.share_of(end)) for end in ends)
        start = self._some_item(self.running.reach(low.minus(self.base)))
        behind = self.base
        if self.middle is not None:
            start = np.minimum(start, self.middle.place)
            behind = ExactSums.sum([self.base, self.middle.weight])
        stop = np.maximum(self._some_item(self.running.reach(high.minus(behind))), start)
        first = taken(self.values, start[:, None])[:, 0]
        last = taken(self.values, stop[:, None])[:, 0]
        with np.errstate(over="ignore"):
            found = first.astype(dtype)
        rows = np.flatnonzero((first != last) & (self.n > 0))
        if not len(rows):
            return found
        width = stop + 1 - start
        rows = rows[np.argsort(width[rows])]  # so that rows of a batch have similar widths
        at = 0
        while at < len(rows):
            some = rows[at : at + max(1, OBJECTS // width[rows[at]])]
            some = some[: max(1, OBJECTS // width[some[-1]])]
            place = self._places(some, start[some], stop[some] + 1)
            found[some] = self._some_averages(q, some, place, dtype)
            at += len(some)
        return found

    def _places(self, rows: IntArray, start: IntArray, behind: IntArray) -> IntArray:
        """List the places of the items from `start` on, in rows as long as the longest.

        The places behind a row's range are replaced by the number of items, where there is no item.
        """
        n = behind - start
        i = np.arange(n.max())
        return np.where(i < n[:, None], start[:, None] + i, self.n[rows, None])

    def _some_averages(
        self,
        q: float,
        rows: IntArray,
        place: IntArray,
        dtype: np.dtype[Any],
    ) -> NDArray[Any]:
        """Average some rows over the items at some places, with Python integers."""
        some = [self.running.exponent // DIGIT]
        some += [self.base.first, self.weight.first, self.square.first // 2]
        unit = min(some if self.middle is None else [*some, self.middle.weight.first])
        weight, base = self.weight[rows].integers(unit), self.base[rows].integers(unit)
        square = self.square[rows].integers(2 * unit)

        running = self.running.some(rows)
        before, after = (running.at(place + i).integers(unit) + base[:, None] for i in (0, 1))
        product: ExactSums | None = None
        if self.middle is not None:
            is_behind = place >= self.middle.place[rows, None]
            between = is_behind * self.middle.weight[rows].integers(unit)[:, None]
            before, after = before + between, after + between
            product = self.middle.product[rows]
        n = self.n[rows, None]
        before = np.where(place >= n, weight[:, None], np.where(place, before, 0))
        after = np.where(place + 1 >= n, weight[:, None], after)

        p, parts = q.as_integer_ratio()
        scale = weight * parts
        low = (weight * weight - square) * p
        high = low + square * parts
        ends = np.minimum(after * scale[:, None], high[:, None])
        overlap = np.maximum(ends - np.maximum(before * scale[:, None], low[:, None]), 0)

        values = self.values[rows[:, None], np.minimum(place, n - 1)]
        is_infinite = np.isinf(values) if values.dtype.kind == "f" else np.zeros(1, np.bool_)
        finite = np.where(is_infinite, values.dtype.type(0), values)
        exact = ExactSums.of(np.arange(finite.size), finite.size, finite.ravel())
        exponent = DIGIT * exact.first
        numerator = (overlap * exact.integers(exact.first).reshape(finite.shape)).sum(axis=1)
        if product is not None:
            # Weights are multiples of the unit, and elements are multiples of the smallest float.
            point = DIGIT * TOTAL_POINT
            between = product.shifted(point).integers(unit)
            numerator = (numerator << exponent + point) + between * scale
            exponent = -point
        up, down = max(exponent, 0), max(-exponent, 0)
        round_ = np.frompyfunc(lambda a, b: quotient(a << up, b << down, dtype), 2, 1)
        found = round_(numerator, square * parts).astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            found += np.where(is_infinite & (overlap > 0), values, 0).sum(axis=1)
            return np.asarray(found.astype(dtype))


OBJECTS = 1 << 14  # largest number of Python integers in one table


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
    found: NDArray[np.float64] = np.ldexp(
        squares_ / total**2, DIGIT * (place_of_square - 2 * place).clip(-50, 50)
    )
    return np.minimum(found, 1)
