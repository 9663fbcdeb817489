"""Weighted quantiles of many lanes at once, and what is known of lanes in parts.

An element that weighs w counts as w elements would: where ranks answer without weights, shares of
the weight of a lane answer here. ``q W`` is an exact number, and so is every sum that is compared
with it: see `exact_sums`. Of lanes in parts, each part tells pivots at even steps by count and by
weight, with bounds of the weights before and up to them; those of all parts bracket every quantile,
and the last load adds up what is outside of the brackets exactly.

All tables are on the host and have lanes along their first axis, questions along the second. An
element without weight is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import ADVICE, Arrays, ChunksChangedError, FloatArray, IntArray
from dask_gpuselect.maths.exact_sums import (
    DIGIT,
    LEAST,
    Need,
    Running,
    Sums,
    Wholes,
    integers_of,
    needs,
    quotient,
    taken,
)
from dask_gpuselect.maths.lane_cuts import even_ranks, last_of, table_tiles, total
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

    @classmethod
    def joined(cls, pieces: Sequence[Self]) -> Self:
        columns = ([getattr(piece, each.name) for piece in pieces] for each in fields(cls))
        return cls(*map(np.concatenate, columns))

    def __getitem__(self, lanes: Any) -> Self:
        return type(self)(*(getattr(self, each.name)[lanes] for each in fields(self)))

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
        is_whole = bool(weighs.all())
        idle = np.zeros(shape[0], np.int64)
        if not is_whole:
            idle = shape[1] - np.count_nonzero(weighs, axis=1).astype(np.int64) - left_out
        missing = np.zeros(shape[0], np.int64)
        if values.dtype.kind in "fmM":
            is_missing = np.isnan(values)
            if is_missing.any():
                missing = np.count_nonzero(is_missing & weighs, axis=1).astype(np.int64)
                weights, is_whole = np.where(is_missing, 0, weights), False
        order = np.argsort(values, axis=1)
        values, weights = (np.take_along_axis(table, order, axis=1) for table in (values, weights))
        if not is_whole:  # what weighs nothing goes behind the others, which stay in order
            behind = np.argsort(weights == 0, axis=1, kind="stable")
            values, weights = (
                np.take_along_axis(table, behind, axis=1) for table in (values, weights)
            )
        if values.dtype.kind in "mM":
            values = values.view(np.int64)
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
        items = _Items.of(lanes if len(rows) == shape[0] else lanes.some(rows), wanted)
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
    weight : Sums, shape (n_rows,)
        What they weigh.
    product : ndarray of Python's integers, shape (n_rows,)
        The sums of weight times element, in units of ``2**(LEAST + FINEST)``.
    place : ndarray of int64, shape (n_rows,)
        How many items are before.
    """

    weight: Sums
    product: NDArray[np.object_]
    place: IntArray


@dataclass(frozen=True, eq=False)
class _Items:
    """Items in the rows of a table, among which the answers are.

    The weight of the first j is what `running` says, with `base`; but 0 of none, and that of the
    lane of all, for the first and the last may stand for others beyond.

    Parameters
    ----------
    values : ndarray, shape (n_rows, n)
        Ascending.
    running : Running
    base : Sums, shape (n_rows,)
    n : ndarray of int64, shape (n_rows,)
        How many items there are.
    weight, square : Sums, shape (n_rows,)
        Of the lane: the sum of its weights, and of their squares.
    middle : Middle, optional
    """

    values: NDArray[Any]
    running: Running
    base: Sums
    n: IntArray
    weight: Sums
    square: Sums
    middle: Middle | None = None

    @classmethod
    def of(cls, lanes: SortedLanes, wanted: Wanted) -> Self:
        """All elements of lanes."""
        n = lanes.numbers.valid
        wholes, none = Wholes.of(lanes.weights), Sums.zeros(n.shape)
        running = wholes.running()
        square = wholes.squares() if wanted.method == TYPE_7 else none
        return cls(lanes.values, running, none, n, running.at(n), square)

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

    def check(self, q: float, wanted: Wanted, below: Sums, upto: Sums) -> None:
        """Raise unless the answers are among the items: if more is wanted than the weight `below`
        the first, and less than the weight `upto` the last."""
        first, last = needs(self.weight, q)
        if wanted.method == TYPE_7:
            ends = window(q, _width(self.weight, self.square), DOUBT / 2)
            first, last = (Need.reached(self.weight.share_of(end)) for end in ends)
        is_first = below.is_zero | ~first.minus(below).is_met
        is_last = self.weight.minus(upto).is_zero | last.minus(upto).is_met
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
            behind = Sums.sum([self.base, self.middle.weight])
        stop = np.maximum(self._some_item(self.running.reach(high.minus(behind))), start)
        first = taken(self.values, start[:, None])[:, 0]
        last = taken(self.values, stop[:, None])[:, 0]
        with np.errstate(over="ignore"):
            found = first.astype(dtype)
        rows = np.flatnonzero((first != last) & (self.n > 0))
        if self.middle is None and not len(self.base.digits) and len(self.running.limbs) <= 2:
            few = rows[(stop - start)[rows] < FEW]
            if len(few):
                found[few], is_sure = self._by_pairs(q, few, start[few], stop[few], dtype)
                rows = np.setdiff1d(rows, few[is_sure], assume_unique=True)
        at = 0
        while at < len(rows):
            width = int((stop - start)[rows[at:]].max()) + 1
            some = rows[at : at + max(1, OBJECTS // width)]
            found[some] = self._some_averages(q, some, start[some], width, dtype)
            at += len(some)
        return found

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
        self, q: float, rows: IntArray, start: IntArray, n: int, dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        """The averages of some rows over `n` items, from `start` on, in Python's integers."""
        some = [self.running.exponent // DIGIT]
        some += [self.base.first, self.weight.first, self.square.first // 2]
        unit = min(some if self.middle is None else [*some, self.middle.weight.first])
        weight, base = self.weight[rows].integers(unit), self.base[rows].integers(unit)
        square = self.square[rows].integers(2 * unit)

        place = start[:, None] + np.arange(n + 1)
        sums = self.running.some(rows).at(place).integers(unit) + base[:, None]
        before, after = sums[:, :-1], sums[:, 1:]
        product: Any = 0
        if self.middle is not None:
            is_behind = place[:, :-1] >= self.middle.place[rows, None]
            between = is_behind * self.middle.weight[rows].integers(unit)[:, None]
            before, after = before + between, after + between
            product = self.middle.product[rows]
        is_all = place >= self.n[rows, None]
        before = np.where(is_all[:, :-1], weight[:, None], np.where(place[:, :-1], before, 0))
        after = np.where(is_all[:, 1:], weight[:, None], after)

        p, parts = q.as_integer_ratio()
        scale = weight * parts
        low = (weight * weight - square) * p
        high = low + square * parts
        ends = np.minimum(after * scale[:, None], high[:, None])
        overlap = np.maximum(ends - np.maximum(before * scale[:, None], low[:, None]), 0)

        values = self.values[rows[:, None], np.minimum(place[:, :-1], self.n[rows, None] - 1)]
        is_infinite = np.isinf(values) if values.dtype.kind == "f" else np.zeros(1, np.bool_)
        exponent, whole = integers_of(np.where(is_infinite, values.dtype.type(0), values))
        numerator = (overlap * whole).sum(axis=1)
        if self.middle is not None:
            # No weight is finer than the unit, and no element than the smallest float.
            product = np.right_shift(product, DIGIT * unit - FINEST)
            numerator = (numerator << (exponent - LEAST)) + product * scale
            exponent = LEAST
        round_ = np.frompyfunc(
            lambda a, b: quotient(a, b, exponent, to_odd=dtype.itemsize < 8), 2, 1
        )
        found = round_(numerator, square * parts).astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            found += np.where(is_infinite & (overlap > 0), values, 0).sum(axis=1)
            return np.asarray(found.astype(dtype))


FINEST = LEAST // DIGIT * DIGIT
FEW = 8  # items that are averaged by pairs of floats, mostly two
OBJECTS = 1 << 14  # Python's integers that are in one table


DOUBT = 2.0**-40
"""By less than this, a share of the weight may be off that floats say."""


def window(q: float, width: FloatArray, doubt: float) -> tuple[FloatArray, FloatArray]:
    """The shares of the weight between which the estimator of type 7 averages, and `doubt` more at
    both sides. The width is the sum of the squares of the weights by the square of their sum."""
    low = q * (1 - width)
    return np.maximum(low - doubt, 0), np.minimum(low + width + doubt, 1)


def _width(weight: Sums, square: Sums) -> NDArray[np.float64]:
    total, place = weight.leading()
    squares_, place_of_square = square.leading()
    total = np.where(total > 0, total, 1)
    found: NDArray[np.float64] = np.ldexp(
        squares_ / total**2, DIGIT * (place_of_square - 2 * place).clip(-99, 99)
    )
    return np.minimum(found, 1)


# --- Lanes in parts -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WeightCuts(Arrays):
    """What a part of the data tells, or several: pivots, and bounds of what is before each.

    Of the elements strictly inside the brackets of an earlier pass, or, in the first, of all. Half
    of the pivots are at even steps by count, half by weight, so that an element is one of them if
    it weighs more than such a step. Weights are int64, in units of ``2**unit`` of each lane.

    Parameters
    ----------
    pivots : ndarray, shape (n_lanes, n_brackets, k)
        Ascending. Of no meaning where nothing is inside.
    below, n_below : ndarray of int64, shape (n_lanes, n_brackets, k)
        At most so much weight, and so many elements, are below the pivot.
    upto, n_upto : ndarray of int64, shape (n_lanes, n_brackets, k)
        At least so much and so many are up to it.
    before, n_before, until, n_until : ndarray of int64, shape (n_lanes, n_brackets)
        At least so much weight is up to the lower end, and at most so much below the upper end; the
        numbers are exact.
    least, most : ndarray of int64, shape (n_lanes,)
        Bounds of the weight of all elements.
    square : ndarray of float64, shape (n_lanes,)
        About the sum of the squares of all weights, in the square of the unit.
    unit : ndarray of int64, shape (n_lanes,)
    numbers : Numbers
        Of all elements.
    """

    pivots: NDArray[Any]
    below: IntArray
    upto: IntArray
    n_below: IntArray
    n_upto: IntArray
    before: IntArray
    until: IntArray
    n_before: IntArray
    n_until: IntArray
    least: IntArray
    most: IntArray
    square: FloatArray
    unit: IntArray
    numbers: Numbers


@dataclass(frozen=True, eq=False)
class WeightBrackets(Arrays):
    """Where answers are: each in ``[low, high]``, elements of the lane.

    Parameters
    ----------
    low, high : ndarray, shape (n_lanes, n_brackets)
        Of the estimator of type 7, first those of the lower ends of all windows, then of the upper.
    numbers : Numbers
    wanted : Wanted
    """

    low: NDArray[Any]
    high: NDArray[Any]
    numbers: Numbers
    wanted: Wanted

    def __getitem__(self, lanes: slice) -> WeightBrackets:
        return replace(
            self, low=self.low[lanes], high=self.high[lanes], numbers=self.numbers[lanes]
        )

    def ends(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """For each question, where it begins and ends, and what is between, which is not looked at
        in detail: nothing, but for windows."""
        n = len(self.wanted.q)
        low, high = self.low[:, :n], self.high[:, -n:]
        if self.wanted.method != TYPE_7:
            return low, high, high, high
        return low, high, self.high[:, :n], self.low[:, -n:]


@dataclass(frozen=True, eq=False)
class WeightTally(Arrays):
    """What a part of the data weighs at the ends of brackets, exactly, and its candidates.

    Parameters
    ----------
    below, before, upto : Sums, shape (n_lanes, n_questions)
        Of the elements below the lower end, up to it, and up to the upper end.
    n_inside : ndarray of int64, shape (n_lanes, n_questions)
        How many candidates there are.
    candidates, weights : ndarray, shape (n_inside.sum(),)
        One bracket after the other.
    middle : Sums, shape (n_lanes, n_questions)
        What the elements weigh that lie between the two ends of a window, and are no candidates.
    product : ndarray of Python's integers, shape (n_lanes, n_questions)
        See `Middle`.
    weight, square : Sums, shape (n_lanes,)
        Of all elements. The latter of the estimator of type 7 alone.
    numbers : Numbers
    """

    below: Sums
    before: Sums
    upto: Sums
    n_inside: IntArray
    candidates: NDArray[Any]
    weights: NDArray[Any]
    middle: Sums
    product: NDArray[np.object_]
    weight: Sums
    square: Sums
    numbers: Numbers


Table = TypeVar("Table", WeighedLanes, WeightCuts, WeightTally)


def join(pieces: Sequence[Table]) -> Table:
    """What is known of some lanes, and of the next, as one."""
    found: dict[str, Any] = {}
    for each in fields(pieces[0]):
        column = [getattr(piece, each.name) for piece in pieces]
        if isinstance(column[0], Sums):
            found[each.name] = Sums.stacked(column, 0, join=True).packed()
        elif isinstance(column[0], Numbers):
            found[each.name] = Numbers.joined(column)
        else:
            found[each.name] = np.concatenate(column)
    return type(pieces[0])(**found)


def cuts_of_sorted(
    lanes: SortedLanes, brackets: WeightBrackets | None = None, *, m: int
) -> WeightCuts:
    """The cuts of some lanes, inside their brackets if there are any, at `m` pivots by count and
    `m` by weight."""
    n = lanes.numbers.valid
    if brackets is None:
        first, stop = np.zeros_like(n)[:, None], n[:, None]
    else:
        first = lanes.places(brackets.low, upto=True)
        stop = np.maximum(lanes.places(brackets.high, upto=False), first)
    unit, weights = _rounded_down(lanes.weights)
    sums = np.cumsum(weights, axis=1)

    def least(places: IntArray) -> IntArray:  # and less than one unit more for each element
        return np.where(places > 0, taken(sums, places - 1), 0)

    before, until = least(first), least(stop)
    by_count = first[..., None] + even_ranks(stop - first, m)
    by_weight = search(sums, _even_steps(before, until, m), n, upto=False)
    by_weight = np.clip(by_weight, first[..., None], np.maximum(stop - 1, first)[..., None])
    at = np.sort(np.concatenate([by_count, by_weight], axis=-1), axis=-1)
    until = until + stop
    is_none = (first == stop)[..., None]
    return WeightCuts(
        np.where(is_none, last_of(lanes.values.dtype), taken(lanes.values, at)),
        np.where(is_none, until[..., None], least(at) + at),
        np.where(is_none, before[..., None], least(at + 1)),
        at,
        np.where(is_none, at, at + 1),
        before,
        until,
        first,
        stop,
        least(n),
        least(n) + n,
        np.square(weights.astype(np.float64)).sum(axis=1),
        unit,
        lanes.numbers,
    )


def _rounded_down(weights: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """The exponent of a unit for each row, and how many whole units each weight has; their sums are
    below 2**61."""
    bits = weights.shape[1].bit_length()
    largest = weights.max(axis=1, initial=0).astype(np.float64)
    unit = np.frexp(largest)[1].astype(np.int64) + bits - 61
    if weights.dtype.kind == "i":
        return unit, _shifted(weights, unit[:, None])
    return unit, np.floor(np.ldexp(weights, -unit[:, None])).astype(np.int64)


def _shifted(numbers: IntArray, bits: IntArray) -> IntArray:
    """Integers by ``2**bits``, rounded down."""
    right = numbers >> np.clip(bits, 0, 63)
    found: IntArray = np.where(bits < 0, numbers << np.clip(-bits, 0, 63), right)
    return found


def _even_steps(start: IntArray, stop: IntArray, m: int) -> IntArray:
    """`m` numbers from after `start` to `stop`, in even steps; a new last axis."""
    step = (stop - start) // max(m - 1, 1)
    return start[..., None] + 1 + step[..., None] * np.arange(m)


@dataclass(frozen=True, eq=False)
class _United:
    """The pivots of several parts together, in order, and what all parts say at each.

    Parameters
    ----------
    pivots, below, upto, n_upto, n_below : ndarray, shape (n_rows, k)
    n : ndarray of int64, shape (n_rows,)
        How many of the pivots are elements: the first.
    """

    pivots: NDArray[Any]
    below: IntArray
    upto: IntArray
    n_below: IntArray
    n_upto: IntArray
    n: IntArray

    @classmethod
    def of(cls, parts: Sequence[WeightCuts], rows: slice) -> Self:
        """Some of the brackets. The parts have one unit."""

        def tables(name: str) -> list[NDArray[Any]]:
            return [_as_rows(getattr(part, name), 2)[rows] for part in parts]

        pivots = np.concatenate(tables("pivots"), axis=1)
        order = np.argsort(pivots, axis=1, kind="stable")

        def at_most(name: str, end: str) -> IntArray:
            """What a part says of its next pivot holds before that too."""
            found, ends = tables(name), [_as_rows(getattr(part, end), 1)[rows] for part in parts]
            steps = [
                np.diff(each, append=end_, axis=1) for each, end_ in zip(found, ends, strict=True)
            ]
            ordered = np.take_along_axis(np.concatenate(steps, axis=1), order, axis=1)
            start = np.sum([each[:, :1] for each in found], axis=0)
            result: IntArray = start + np.cumsum(ordered, axis=1) - ordered
            return result

        def at_least(name: str, end: str) -> IntArray:
            """What a part says of its last pivot holds behind that too."""
            found, ends = tables(name), [_as_rows(getattr(part, end), 1)[rows] for part in parts]
            steps = [
                np.diff(each, prepend=end_, axis=1) for each, end_ in zip(found, ends, strict=True)
            ]
            ordered = np.take_along_axis(np.concatenate(steps, axis=1), order, axis=1)
            result: IntArray = np.sum(ends, axis=0) + np.cumsum(ordered, axis=1)
            return result

        has_some = [
            (part.n_until > part.n_before).reshape(-1)[rows] * part.pivots.shape[-1]
            for part in parts
        ]
        return cls(
            np.take_along_axis(pivots, order, axis=1),
            at_most("below", "until"),
            at_least("upto", "before"),
            at_most("n_below", "n_until"),
            at_least("n_upto", "n_before"),
            np.sum(has_some, axis=0),
        )


def _as_rows(table: NDArray[Any], n_axes: int) -> NDArray[Any]:
    """One row for each lane and bracket, whose last axis is what is behind these, or of size 1."""
    return table.reshape(table.shape[0] * table.shape[1], -1 if n_axes == 2 and table.size else 1)


def _in_one_unit(parts: Sequence[WeightCuts]) -> list[WeightCuts]:
    """The same parts in one unit for each lane, such that their sums are below 2**62."""
    bits = [
        np.where(part.most > 0, part.unit + np.frexp(part.most)[1], -(1 << 20)) for part in parts
    ]
    unit = np.max(bits, axis=0) + len(parts).bit_length() - 61
    found = []
    for part in parts:
        shift = unit - part.unit
        changed: dict[str, Any] = {}
        for name in ("upto", "before", "least"):
            table = getattr(part, name)
            changed[name] = _shifted(table, shift.reshape(-1, *(1,) * (table.ndim - 1)))
        for name in ("below", "until", "most"):
            table = getattr(part, name)
            changed[name] = -_shifted(-table, shift.reshape(-1, *(1,) * (table.ndim - 1)))
        square = np.ldexp(part.square, np.clip(-2 * shift, -4000, 4000))
        found.append(replace(part, unit=unit, square=square, **changed))
    return found


def merge(parts: Sequence[WeightCuts], m: int) -> WeightCuts:
    """What is known of several parts together, at `m` pivots by count and `m` by weight.

    What is not known of a value, as a number of elements and as a weight, is in the cells of the
    parts that hold it. A cell of a part has at most ``n_p / (m_p - 1)`` elements and
    ``W_p / (m_p - 1)`` of the weight; and what is merged is known to the sum of these, and to a
    step of its own.
    """
    parts = _in_one_unit(parts)
    totals = {
        name: total(name, parts)
        for name in ("before", "until", "n_before", "n_until", "least", "most")
    }
    shape = totals["before"].shape
    steps = _even_steps(totals["before"], totals["until"], m).reshape(-1, m)
    ranks = even_ranks(totals["n_until"] - totals["n_before"], m) + totals["n_before"][..., None]
    ranks = ranks.reshape(-1, m)
    names = ("pivots", "below", "upto", "n_below", "n_upto")
    pieces = []
    for rows in table_tiles(math.prod(shape), sum(part.pivots.shape[-1] for part in parts)):
        united = _United.of(parts, rows)
        by_count = search(united.n_upto, ranks[rows], united.n, upto=True)
        by_weight = search(united.upto, steps[rows], united.n, upto=False)
        by_count[:, 0], by_count[:, -1] = 0, united.n
        at = np.concatenate([by_count, by_weight], axis=1)
        at = np.clip(np.sort(at, axis=1), 0, np.maximum(united.n - 1, 0)[:, None])
        pieces.append([taken(getattr(united, name), at) for name in names])
    tables = {
        name: np.concatenate(column).reshape(*shape, 2 * m)
        for name, column in zip(names, zip(*pieces, strict=True), strict=True)
    }
    numbers = Numbers.sum([part.numbers for part in parts])
    square = np.sum([part.square for part in parts], axis=0)
    return WeightCuts(**tables, **totals, square=square, unit=parts[0].unit, numbers=numbers)


def narrowed(
    parts: Sequence[WeightCuts], brackets: WeightBrackets | None, wanted: Wanted
) -> WeightBrackets:
    """The brackets that the cuts of a pass prove, inside those of the pass before if there was one.

    Raises
    ------
    ChunksChangedError
        If a lane has another number of elements than in the pass before.
    """
    numbers = Numbers.sum([part.numbers for part in parts])
    if brackets is not None:
        brackets.numbers.check_unchanged(numbers)
    parts = _in_one_unit(parts)
    shape = parts[0].n_before.shape
    n_lanes, n_brackets = len(numbers.valid), wanted.n_brackets
    k = n_brackets // shape[1]  # for each of the tables: all, or one
    least, most = (wanted_.reshape(-1, k) for wanted_ in _targets(parts, wanted))
    found = np.empty((2, len(least), k), parts[0].pivots.dtype)
    for rows in table_tiles(len(least), sum(part.pivots.shape[-1] for part in parts)):
        united = _United.of(parts, rows)
        last = united.n[:, None] - 1
        low = search(united.below, np.maximum(least[rows], 1), united.n, upto=False) - 1
        high = search(united.upto, most[rows], united.n, upto=True)
        found[0, rows] = taken(united.pivots, low)
        found[1, rows] = taken(united.pivots, np.minimum(high, last))
        if brackets is not None:
            ends = (end.reshape(-1, 1)[rows] for end in (brackets.low, brackets.high))
            for i, (end, is_beyond) in enumerate(zip(ends, (low < 0, high > last), strict=True)):
                found[i, rows] = np.where(is_beyond, end, found[i, rows])
    low, high = found.reshape(2, n_lanes, n_brackets)
    return WeightBrackets(low, high, numbers, wanted)


def _targets(parts: Sequence[WeightCuts], wanted: Wanted) -> tuple[IntArray, IntArray]:
    """Bounds of the weights that are wanted of each lane, shape ``(n_lanes, n_brackets)``."""
    least, most = total("least", parts)[:, None], total("most", parts)[:, None]
    q = np.array(wanted.q)
    shares, doubt = np.broadcast_to(q, (len(least), len(q))), 0.0
    if wanted.method == TYPE_7:
        width = (
            np.sum([part.square for part in parts], axis=0)[:, None]
            / np.maximum(least, 1).astype(np.float64) ** 2
        )
        start = q * (1 - np.minimum(width, 1))
        shares, doubt = np.concatenate([start, start + np.minimum(width, 1)], axis=1), DOUBT
    slack = 2.0**-50
    low = np.floor(np.maximum(shares - doubt, 0) * least * (1 - slack))
    high = np.ceil(np.minimum(shares + doubt, 1) * most * (1 + slack))
    return low.astype(np.int64), high.astype(np.int64)


def tally_of_sorted(lanes: SortedLanes, brackets: WeightBrackets) -> WeightTally:
    """The tally of some lanes at their brackets."""
    low, high, until, behind = brackets.ends()
    first = lanes.places(low, upto=True)
    stop = np.maximum(lanes.places(high, upto=False), first)
    start = np.clip(lanes.places(until, upto=True), first, stop)
    end = np.clip(lanes.places(behind, upto=False), start, stop)
    place = np.arange(lanes.values.shape[1])
    first_, stop_, start_, end_ = (each[..., None] for each in (first, stop, start, end))
    is_inside = (place >= first_) & (place < stop_) & ((place < start_) | (place >= end_))
    wholes = Wholes.of(lanes.weights)
    running = wholes.running()
    product = np.zeros(first.shape, object)
    for lane, i in zip(*np.nonzero(end > start), strict=True):
        some = slice(start[lane, i], end[lane, i])
        weight_exponent, weights = integers_of(lanes.weights[lane, some])
        exponent, values = integers_of(lanes.values[lane, some])
        product[lane, i] = (weights * values).sum() << weight_exponent + exponent - LEAST - FINEST
    is_type_7 = brackets.wanted.method == TYPE_7
    return WeightTally(
        running.at(lanes.places(low, upto=False)).packed(),
        running.at(first).packed(),
        running.at(lanes.places(high, upto=True)).packed(),
        np.count_nonzero(is_inside, axis=-1).astype(np.int64),
        np.broadcast_to(lanes.values[:, None], is_inside.shape)[is_inside],
        np.broadcast_to(lanes.weights[:, None], is_inside.shape)[is_inside],
        running.at(end).minus(running.at(start)).packed(),
        product,
        running.at(lanes.numbers.valid).packed(),
        wholes.squares().packed() if is_type_7 else Sums.zeros((len(first),)),
        lanes.numbers,
    )


def merge_tallies(parts: Sequence[WeightTally]) -> WeightTally:
    """The tally of several parts together."""
    if len(parts) == 1:
        return parts[0]
    sums = {
        name: Sums.sum([getattr(part, name) for part in parts])
        for name in ("below", "before", "upto", "middle", "weight", "square")
    }
    sizes = [part.n_inside.reshape(-1) for part in parts]
    bracket = np.concatenate([np.repeat(np.arange(len(size)), size) for size in sizes])
    order = np.argsort(bracket, kind="stable")
    exact = np.dtype("i8" if any(part.weights.dtype.kind == "i" for part in parts) else "f8")
    return WeightTally(
        n_inside=total("n_inside", parts),
        candidates=np.concatenate([part.candidates for part in parts])[order],
        weights=np.concatenate([part.weights.astype(exact) for part in parts])[order],
        product=sum((part.product for part in parts[1:]), parts[0].product),
        numbers=Numbers.sum([part.numbers for part in parts]),
        **sums,
    )


def answers(tally: WeightTally, brackets: WeightBrackets) -> WeighedLanes:
    """What answers, by the tally of all parts, which proves it.

    Raises
    ------
    ChunksChangedError
        If a bracket does not hold what is wanted.
    """
    wanted = brackets.wanted
    brackets.numbers.check_unchanged(tally.numbers)
    tally.numbers.check()
    n_lanes, n = len(tally.numbers.valid), len(wanted.q)
    dtype = wanted.dtype if wanted.method == TYPE_7 else brackets.low.dtype
    lower, upper = np.zeros((2, n_lanes, n), dtype)
    sizes = tally.n_inside.reshape(-1)
    starts = (np.cumsum(sizes) - sizes).reshape(n_lanes, n)
    for i, q in enumerate(wanted.q):
        for rows in table_tiles(n_lanes, int(tally.n_inside[:, i].max(initial=0)) + 2):
            items = _items_of(tally, brackets, rows, i, starts[rows, i])
            items.check(q, wanted, tally.below[rows, i], tally.upto[rows, i])
            lower[rows, i], upper[rows, i] = items.answer(q, wanted)
    return WeighedLanes(lower, upper, tally.numbers)


def _items_of(
    tally: WeightTally, brackets: WeightBrackets, rows: slice, i: int, starts: IntArray
) -> _Items:
    """The candidates of one question about some lanes, between the ends of their brackets."""
    low, high, until, _ = (end[rows, i] for end in brackets.ends())
    size = tally.n_inside[rows, i]
    place = np.arange(int(size.max(initial=0)) + 2) - 1
    is_one = (place >= 0) & (place < size[:, None])
    at = np.where(is_one, starts[:, None] + place, 0)
    values, weights = (
        np.where(is_one, column[at] if column.size else 0, other).astype(column.dtype)
        for column, other in (
            (tally.candidates, last_of(tally.candidates.dtype)),
            (tally.weights, 0),
        )
    )
    # First the candidates alone, between the two places for the ends.
    order = np.argsort(values[:, 1:], axis=1, kind="stable") + 1
    values[:, 1:], weights[:, 1:] = (
        np.take_along_axis(table, order, axis=1) for table in (values, weights)
    )
    values[:, 0] = low
    np.put_along_axis(values, size[:, None] + 1, high[:, None], axis=1)
    middle = None
    if brackets.wanted.method == TYPE_7:
        place_ = search(values, until[:, None], size + 1, upto=True)[:, 0]
        middle = Middle(tally.middle[rows, i], tally.product[rows, i], np.maximum(place_, 1))
    n = np.where(tally.numbers.valid[rows] > 0, size + 2, 0)
    before, weight, square = tally.before[rows, i], tally.weight[rows], tally.square[rows]
    return _Items(values, Wholes.of(weights).running(), before, n, weight, square, middle)
