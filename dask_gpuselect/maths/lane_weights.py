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
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import ADVICE, Arrays, ChunksChangedError, IntArray
from dask_gpuselect.maths.exact_sums import (
    DIGIT,
    LEAST,
    Running,
    Sums,
    integers_of,
    quotient,
    squares,
    taken,
)
from dask_gpuselect.maths.lane_cuts import even_ranks, last_of, table_tiles, total

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

    def __getitem__(self, lanes: slice) -> Self:
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
    def of(cls, values: NDArray[Any], weights: NDArray[Any], keeps: NDArray[np.bool_] | None) -> Self:
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
        valid = shape[1] - missing - idle - left_out
        return cls(values, weights, Numbers(valid, missing, idle, left_out))

    def places(self, ends: NDArray[Any], *, upto: bool) -> IntArray:
        """How many valid elements are below some values, or `upto` them; shape as of `ends`."""
        low = np.zeros(ends.shape, np.int64)
        high = np.broadcast_to(_beside(self.numbers.valid, ends), ends.shape).copy()
        for _ in range(self.values.shape[1].bit_length()):
            middle = (low + high) >> 1
            found = taken(self.values, middle)
            is_before = (found <= ends if upto else found < ends) & (low < high)
            low, high = np.where(is_before, middle + 1, low), np.where(is_before, high, middle)
        return low


def _beside(column: NDArray[Any], table: NDArray[Any]) -> NDArray[Any]:
    """A value for each lane, to go with a table of more axes."""
    return column.reshape(-1, *(1 for _ in table.shape[1:]))


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

    @classmethod
    def joined(cls, pieces: Sequence[Self]) -> Self:
        lower, upper = (
            np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("lower", "upper")
        )
        return cls(lower, upper, Numbers.joined([piece.numbers for piece in pieces]))


# --- Lanes that are known as a whole --------------------------------------------------------------


def pick(lanes: SortedLanes, wanted: Wanted) -> WeighedLanes:
    """What answers, of lanes that are known as a whole."""
    lanes.numbers.check()
    n = lanes.numbers.valid
    running = Running.of(lanes.weights)
    weight = running.at(n)
    square = squares(lanes.weights) if wanted.method == TYPE_7 else None
    columns = []
    for q in wanted.q:
        items = _Items(lanes.values, running, Sums.zeros(n.shape), n, weight, square)
        columns.append(items.answer(q, wanted))
    shape = (len(n), len(wanted.q))
    lower, upper = (
        np.stack([column[i] for column in columns], axis=1) if columns else np.zeros(shape)
        for i in (0, 1)
    )
    return WeighedLanes(lower, upper, lanes.numbers)


@dataclass(frozen=True, eq=False)
class Middle(Arrays):
    """Elements of each row that are not kept: those between two items that follow each other.

    Parameters
    ----------
    weight : Sums, shape (n_rows,)
        What they weigh.
    product : ndarray of Python's integers, shape (n_rows,)
        The sums of weight times element, in units of ``2**(2 * LEAST)``.
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

    def answer(self, q: float, wanted: Wanted) -> tuple[NDArray[Any], NDArray[Any]]:
        """The two elements whose mean answers, of each row."""
        if wanted.method == TYPE_7:
            found = self._averages(q, wanted.dtype)
            return found, found
        rest = self.weight.times(q).minus(self.base)
        found = self._at(self.running.reach(rest))
        if wanted.method != "averaged_inverted_cdf":
            return found, found
        return found, self._at(self.running.reach(rest, beyond=True))

    def _at(self, places: IntArray) -> NDArray[Any]:
        return taken(self.values, self._some_item(places)[:, None])[:, 0]

    def _some_item(self, places: IntArray) -> IntArray:
        return np.minimum(places, np.maximum(self.n - 1, 0))

    def _averages(self, q: float, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The averages over the windows of the estimator of type 7."""
        shares = (np.rint(end * 2.0**48) for end in window(q, _width(self.weight, self.square)))
        low, high = (self.weight.share(share.astype(np.int64)) for share in shares)
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
        at = 0
        while at < len(rows):
            width = int((stop - start)[rows[at:]].max()) + 1
            some = rows[at : at + max(1, OBJECTS // width)]
            found[some] = self._some_averages(q, some, start[some], width, dtype)
            at += len(some)
        return found

    def _some_averages(
        self, q: float, rows: IntArray, start: IntArray, n: int, dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        """The averages of some rows over `n` items, from `start` on, in Python's integers."""
        some = [self.running.unit, self.base.first, self.weight.first, self.square.first // 2]
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
            product = np.right_shift(product, DIGIT * unit - LEAST)
            numerator = (numerator << (exponent - LEAST)) + product * scale
            exponent = LEAST
        round_ = np.frompyfunc(
            lambda a, b: quotient(a, b, exponent, to_odd=dtype.itemsize < 8), 2, 1
        )
        found = round_(numerator, square * parts).astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            found += np.where(is_infinite & (overlap > 0), values, 0).sum(axis=1)
            return np.asarray(found.astype(dtype))


OBJECTS = 1 << 14  # Python's integers that are in one table


DOUBT = 2.0**-40
"""By less than this, a share of the weight may be off that floats say."""


def window(q: float, width: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Shares of the weight that are before and behind the window of the estimator of type 7, whose
    width is the sum of the squared weights by the square of their sum."""
    low = q * (1 - width)
    return np.maximum(low - DOUBT, 0), np.minimum(low + width + DOUBT, 1)


def _width(weight: Sums, square: Sums) -> NDArray[np.float64]:
    total, place = weight.leading()
    squares_, place_of_square = square.leading()
    total = np.where(total > 0, total, 1)
    found: NDArray[np.float64] = np.ldexp(
        squares_ / total**2, DIGIT * (place_of_square - 2 * place).clip(-99, 99)
    )
    return np.minimum(found, 1)
