"""Weighted quantiles of many lanes at once, and what is known of lanes in parts.

An element that weighs w counts as w elements would: where ranks answer without weights, shares of
the weight of a lane answer here. ``q W`` is an exact number, and so is every sum that is compared
with it: see `exact_sums`. Of lanes in parts: see `lane_weight_cuts`.

All tables are on the host and have lanes along their first axis, questions along the second. An
element without weight is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
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
from dask_gpuselect.maths.lane_cuts import total
from dask_gpuselect.maths.lane_windows import window_means

ALL_ZERO: Final = "Weights included NaN, inf or were all zero."  # as NumPy has it

TYPE_7: Final = "linear"
METHODS: Final = ("inverted_cdf", "averaged_inverted_cdf", TYPE_7)


@dataclass(frozen=True, eq=False)
class Numbers(Arrays):
    """How many elements of each lane there are, shape (n_lanes,) of int64.

    Parameters
    ----------
    valid, missing : ndarray
        Those that weigh something: elements proper, and NaN or NaT.
    idle, left_out : ndarray
        Those that weigh nothing, and those that are left out.
    """

    valid: IntArray
    missing: IntArray
    idle: IntArray
    left_out: IntArray

    @classmethod
    def sum(cls, parts: Sequence[Self]) -> Self:
        return cls(*(total(each.name, parts) for each in fields(cls)))

    def __getitem__(self, lanes: Any) -> Self:
        return type(self)(*(getattr(self, each.name)[lanes] for each in fields(self)))

    def less_left_out(self, n: IntArray) -> Self:
        return type(self)(self.valid, self.missing, self.idle, self.left_out - n)

    def check(self) -> None:
        """Raise if all elements of a lane weigh nothing."""
        if ((self.valid + self.missing == 0) & (self.idle > 0)).any():
            raise ValueError(ALL_ZERO)

    def check_unchanged(self, now: Self) -> None:
        """Raise if a later load has found other numbers."""
        for each in fields(self):
            first, found = getattr(self, each.name), getattr(now, each.name)
            if not np.array_equal(first, found):
                lane = np.flatnonzero(first != found)[0]
                raise ChunksChangedError(
                    f"a lane held {first[lane]} {each.name} elements on the first load and "
                    f"{found[lane]} on a later one. {ADVICE}"
                )


@dataclass(frozen=True, eq=False)
class SortedLanes(Arrays):
    """Lanes in the rows of tables, sorted.

    Parameters
    ----------
    values : ndarray, shape (n_lanes, n)
        Valid elements first, ascending. What follows has no meaning.
    weights : ndarray of float64 or int64, shape (n_lanes, n)
        Of each; 0 behind the valid elements.
    numbers : Numbers
    """

    values: NDArray[Any]
    weights: NDArray[Any]
    numbers: Numbers

    @classmethod
    def of(
        cls, values: NDArray[Any], weights: NDArray[Any], keeps: NDArray[np.bool_] | None = None
    ) -> Self:
        """Of tables of lanes in any order. Their weights are none below 0, nor NaN."""
        shape = values.shape
        left_out = np.zeros(shape[0], np.int64)
        if keeps is not None:
            left_out = np.count_nonzero(~keeps, axis=1).astype(np.int64)
            weights = np.where(keeps, weights, 0)
        weighs = weights > 0
        idle = np.zeros(shape[0], np.int64)
        if not weighs.all():
            idle = shape[1] - np.count_nonzero(weighs, axis=1).astype(np.int64) - left_out
        missing = np.zeros(shape[0], np.int64)
        if values.dtype.kind in "fmM":
            is_missing = np.isnan(values)
            if is_missing.any():
                missing = np.count_nonzero(is_missing & weighs, axis=1).astype(np.int64)
                weights = np.where(is_missing, 0, weights)
                weighs &= ~is_missing
        if values.dtype.kind in "mM":
            values = values.view(np.int64)
        n_behind = weighs.size - np.count_nonzero(weighs)
        if n_behind:
            # The largest value, for NumPy sorts NaN six times as slowly as other floats.
            last = np.inf if values.dtype.kind == "f" else np.iinfo(values.dtype).max
            values = np.where(weighs, values, values.dtype.type(last))
            n_behind -= np.count_nonzero(values == last)
        order = np.argsort(values, axis=1)
        values, weights = (np.take_along_axis(table, order, axis=1) for table in (values, weights))
        if n_behind:  # others have the largest value, too, and go before what weighs nothing
            behind = np.argsort(weights == 0, axis=1, kind="stable")
            values, weights = (
                np.take_along_axis(table, behind, axis=1) for table in (values, weights)
            )
        valid = shape[1] - missing - idle - left_out
        return cls(values, weights, Numbers(valid, missing, idle, left_out))

    def some(self, rows: IntArray) -> Self:
        """Some of the lanes."""
        return type(self)(self.values[rows], self.weights[rows], self.numbers[rows])

    def places(self, ends: NDArray[Any], *, upto: bool) -> IntArray:
        """How many valid elements are below some values, or `upto` them; shape as of `ends`."""
        return search(self.values, ends, self.numbers.valid, upto=upto)


def search(table: NDArray[Any], wanted: NDArray[Any], n: IntArray, *, upto: bool) -> IntArray:
    """How many of the first `n` entries of each row, ascending, are below what is wanted, or `upto`
    that; shape as of `wanted`, ``(n_rows, ...)``."""
    low, high = np.zeros((2, *wanted.shape), np.int64)
    high += n.reshape(-1, *(1 for _ in wanted.shape[1:]))
    for _ in range(table.shape[1].bit_length()):
        middle = (low + high) >> 1
        found = taken(table, middle)
        is_before = (found <= wanted if upto else found < wanted) & (low < high)
        low, high = np.where(is_before, middle + 1, low), np.where(is_before, high, middle)
    return np.asarray(low)


@dataclass(frozen=True)
class Wanted:
    """Which quantiles are asked of every lane, by which method.

    Parameters
    ----------
    q : tuple of float
    method : str
        Of `METHODS`.
    dtype : dtype
        Of the answers.
    """

    q: tuple[float, ...]
    method: str
    dtype: np.dtype[Any]

    @property
    def n_brackets(self) -> int:
        """Two for each window of the estimator of type 7, whose two ends are far apart if some
        elements are heavy."""
        return len(self.q) * (2 if self.method == TYPE_7 else 1)


@dataclass(frozen=True, eq=False)
class WeighedLanes(Arrays):
    """What answers some questions about lanes.

    Parameters
    ----------
    lower, upper : ndarray, shape (n_lanes, n_questions)
        Elements whose mean answers; of the estimator of type 7, the answers themselves. Any value
        where there is no valid element.
    numbers : Numbers
    """

    lower: NDArray[Any]
    upper: NDArray[Any]
    numbers: Numbers


# --- Lanes that are known as a whole --------------------------------------------------------------


def pick(lanes: SortedLanes, wanted: Wanted) -> WeighedLanes:
    """What answers, of lanes that are known as a whole."""
    lanes.numbers.check()
    shape = (len(lanes.values), len(wanted.q))
    dtype = wanted.dtype if wanted.method == TYPE_7 else lanes.values.dtype
    lower, upper = np.zeros(shape, dtype), np.zeros(shape, dtype)
    is_sure = np.zeros(shape, np.bool_)
    if wanted.method != TYPE_7 and lanes.values.size:
        places, is_sure = _by_floats(lanes, wanted.q)
        lower[...] = upper[...] = taken(lanes.values, places)
    rows = np.flatnonzero(~is_sure.all(axis=1) & (lanes.numbers.valid > 0))
    if len(rows):
        items = Items.of(lanes if len(rows) == shape[0] else lanes.some(rows), wanted)
        for i in np.flatnonzero(~is_sure[rows].all(axis=0)):
            lower[rows, i], upper[rows, i] = items.answer(wanted.q[i], wanted)
    return WeighedLanes(lower, upper, lanes.numbers)


def _by_floats(lanes: SortedLanes, q: Sequence[float]) -> tuple[IntArray, NDArray[np.bool_]]:
    """The places of quantiles in each row, and whether sums of floats are enough to know them.

    They are where these differ by more than rounding may have moved them: as nearly always, but for
    equal weights and the like.
    """
    n = lanes.values.shape[1]
    largest = float(lanes.weights.max(initial=0))
    weights = lanes.weights
    if not 1e-290 < largest < 1e290 / n:
        weights = np.ldexp(weights.astype(np.float64), -math.frexp(largest)[1])
    sums = np.cumsum(weights, axis=1, dtype=np.float64)
    weight = sums[:, -1]
    slack = weight * (n + 8) * 2.0**-52
    last = np.maximum(lanes.numbers.valid - 1, 0)
    places = np.zeros((len(weight), len(q)), np.int64)
    is_sure = np.ones(places.shape, np.bool_)
    for i, each in enumerate(q):
        if each == 1:
            places[:, i] = last
        elif each > 0:
            share = weight * each
            places[:, i] = np.count_nonzero(sums < (share - slack)[:, None], axis=1)
            is_sure[:, i] = taken(sums, places[:, i, None])[:, 0] > share + slack
    return places, is_sure


@dataclass(frozen=True, eq=False)
class Middle(Arrays):
    """Elements of each row that are not kept: those between two items that follow each other.

    Parameters
    ----------
    weight : ExactSums, shape (n_rows,)
        What they weigh.
    product : ExactSums, shape (n_rows,)
        The sums of weight times element.
    place : ndarray of int64, shape (n_rows,)
        How many items are before.
    """

    weight: ExactSums
    product: ExactSums
    place: IntArray


@dataclass(frozen=True, eq=False)
class Items:
    """Items in the rows of a table, among which the answers are.

    The weight of the first j is what `running` says, with `base`; but 0 of none, and that of the
    lane of all, for the first and the last may stand for others beyond.

    Parameters
    ----------
    values : ndarray, shape (n_rows, n)
        Ascending.
    running : Running
    base : ExactSums, shape (n_rows,)
    n : ndarray of int64, shape (n_rows,)
        How many items there are.
    weight, square : ExactSums, shape (n_rows,)
        Of the lane: the sum of its weights, and of their squares.
    middle : Middle, optional
    weights : ndarray, shape (n_rows, n), optional
        Of the items, where all of the lane are here.
    """

    values: NDArray[Any]
    running: Running
    base: ExactSums
    n: IntArray
    weight: ExactSums
    square: ExactSums
    middle: Middle | None = None
    weights: NDArray[Any] | None = None

    @classmethod
    def of(cls, lanes: SortedLanes, wanted: Wanted) -> Self:
        """All elements of lanes."""
        n = lanes.numbers.valid
        wholes, none = Wholes.of(lanes.weights), ExactSums.zeros(n.shape)
        running = wholes.running()
        square = squares_of(lanes.weights, wholes) if wanted.method == TYPE_7 else none
        about = lanes.values, running, none, n, running.at(n), square
        return cls(*about, weights=lanes.weights)

    def answer(self, q: float, wanted: Wanted) -> tuple[NDArray[Any], NDArray[Any]]:
        """The two elements whose mean answers, of each row."""
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

    def check(self, q: float, wanted: Wanted, below: ExactSums, upto: ExactSums) -> None:
        """Raise unless the answers are among the items: if more is wanted than the weight `below`
        the first, and less than the weight `upto` the last."""
        first, last = needs(self.weight, q)
        if wanted.method == TYPE_7:
            ends = window(q, _width(self.weight, self.square), DOUBT / 2)
            first, last = (Need.reached(self.weight.share_of(end)) for end in ends)
        is_first = below.is_zero | ~first.minus(below).is_met
        is_last = (self.weight - upto).is_zero | last.minus(upto).is_met
        if not (is_first & is_last)[self.n > 0].all():
            raise ChunksChangedError(f"a lane has other elements than on the first load. {ADVICE}")

    def _averages(self, q: float, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The averages over the windows of the estimator of type 7."""
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
        if self.middle is None and not len(self.base.digits) and len(self.running.limbs) <= 3:
            few = rows[(stop - start)[rows] < FEW]
            if len(few):
                found[few], is_sure = self._by_pairs(q, few, start[few], stop[few], dtype)
                rows = np.setdiff1d(rows, few[is_sure], assume_unique=True)
        if not len(rows):
            return found
        first_inside, behind_inside = stop + 1, stop + 1
        if self.weights is not None:
            start[rows], stop[rows] = self._exact_window(q, rows)
            is_some = stop - start > 1
            first_inside = np.where(is_some, start, stop) + 1
            behind_inside = np.where(is_some, stop, stop + 1)
        widths = 2 * np.maximum(first_inside - start, stop + 1 - behind_inside)
        rows = rows[np.argsort(widths[rows])]  # so that those together are about as wide
        at = 0
        while at < len(rows):
            some = rows[at : at + max(1, OBJECTS // widths[rows[at]])]
            some = some[: max(1, OBJECTS // widths[some[-1]])]
            inside = first_inside[some], behind_inside[some]
            place = np.concatenate(
                [
                    self._places(some, start[some], inside[0]),
                    self._places(some, inside[1], stop[some] + 1),
                ],
                axis=1,
            )
            found[some] = self._some_averages(q, some, place, inside, dtype)
            at += len(some)
        return found

    def _exact_window(self, q: float, rows: IntArray) -> tuple[IntArray, IntArray]:
        """The first and the last item that have a part in the window, of some rows of which all
        items are here: all between them are inside as a whole, and infinite only if one of these
        is."""
        unit = min(self.running.exponent // DIGIT, self.weight.first, self.square.first // 2)
        weight, square = self.weight[rows].integers(unit), self.square[rows].integers(2 * unit)
        p, parts = q.as_integer_ratio()
        low = (weight * weight - square) * p
        running, scale = self.running.some(rows), weight * parts
        # Sums are whole numbers of the unit: those beyond an end are at least the next such number.
        ends = low // scale + 1, -(-(low + square * parts) // scale)
        start, stop = (
            running.reach(Need.reached(ExactSums.of_integers(end, unit))) for end in ends
        )
        last = self.n[rows] - 1
        return np.minimum(start, last), np.minimum(np.maximum(start, stop), last)

    def _places(self, rows: IntArray, start: IntArray, behind: IntArray) -> IntArray:
        """The items from a place on of some rows, each row as long as the longest: there is nothing
        at the places behind all items."""
        n = behind - start
        i = np.arange(n.max())
        return np.where(i < n[:, None], start[:, None] + i, self.n[rows, None])

    def _by_pairs(
        self, q: float, rows: IntArray, start: IntArray, stop: IntArray, dtype: np.dtype[Any]
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The averages of some rows over few items, and which are known to be right."""
        place = start[:, None] + np.arange(int((stop - start).max()) + 1)
        last = self.n[rows, None] - 1
        values = self.values[rows[:, None], np.minimum(place, last)]
        exact = values.astype(np.float64)
        if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
            exact[(exact > 2.0**53) | (exact < -(2.0**53))] = np.nan
        running = self.running.some(rows)
        square = self.square[rows[:, None]].pair(2 * running.exponent)
        sums = running.pair(np.minimum(place[:, :-1], last) + 1)
        return window_means(exact, sums, running.pair(last + 1), square, q, dtype)

    def _some_averages(
        self,
        q: float,
        rows: IntArray,
        place: IntArray,
        inside: tuple[IntArray, IntArray],
        dtype: np.dtype[Any],
    ) -> NDArray[Any]:
        """The averages of some rows over the items at some places, and over those `inside` of the
        window as a whole, in Python's integers."""
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
        elif (inside[0] < inside[1]).any():
            product = self._products(rows, *inside)
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
            # No weight is finer than the unit, and no element than the smallest float.
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

    def _products(self, rows: IntArray, first: IntArray, behind: IntArray) -> ExactSums:
        """The sums of weight times element of some items of each row, the first and those up to the
        one behind."""
        assert self.weights is not None
        place = np.arange(self.values.shape[1])
        row, at = np.nonzero((place >= first[:, None]) & (place < behind[:, None]))
        values, weights = self.values[rows[row], at], self.weights[rows[row], at]
        is_finite = np.isfinite(values)
        some = (each[is_finite] for each in (row, values, weights))
        row, values, weights = some
        return ExactSums.of(row, len(rows), values, weights)


FEW = 8  # items that are averaged by pairs of floats, mostly two
OBJECTS = 1 << 14  # Python's integers that are in one table


DOUBT = 2.0**-40
"""By less than this, a share of the weight may be off that floats say."""


def window(q: float, width: FloatArray, doubt: float) -> tuple[FloatArray, FloatArray]:
    """The shares of the weight between which the estimator of type 7 averages, and `doubt` more at
    both sides. The width is the sum of the squares of the weights by the square of their sum."""
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
