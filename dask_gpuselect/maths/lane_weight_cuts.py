"""Weighted quantiles of many lanes in parts: cuts of each part, and the brackets that they prove.

The cuts of a part are pivots at even steps by count and by weight, with bounds of the weights
before and up to them. Those of all parts bracket every quantile, and the last load adds up
everything outside of the brackets exactly. The bounds are whole numbers of a unit that each lane
has; no decision depends on rounded sums.

All tables are on the host and have lanes along their first axis, questions along the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray
from dask_gpuselect.maths.exact_sums import ExactSums, Wholes, squares_of, taken
from dask_gpuselect.maths.lane_cuts import (
    Lanes,
    check_lanes_unchanged,
    even_ranks,
    known_of_all,
    last_of,
    table_tiles,
    total,
)
from dask_gpuselect.maths.lane_weights import (
    DOUBT,
    TYPE_7,
    Items,
    Middle,
    WantedQuantiles,
    check_some_weigh,
)
from dask_gpuselect.maths.sorted_lanes import SortedLanes, inside_of, search


@dataclass(frozen=True, eq=False)
class WeightCuts(Arrays):
    """Weighted cuts of a part of the data, or of several: pivots, and bounds of the weights before.

    In the first pass they are those of all elements, later of the elements strictly inside the
    brackets of the pass before. Half of the pivots are at even steps by count, half by weight. So
    an element that weighs more than such a step is a pivot. Weights are int64, in units of
    ``2**unit`` of each lane.

    Parameters
    ----------
    pivots : ndarray, shape (n_lanes, n_brackets, k)
        Ascending. Arbitrary where nothing is inside.
    below, n_below : ndarray of int64, shape (n_lanes, n_brackets, k)
        Upper bounds of the weight and the number of the elements below the pivot.
    upto, n_upto : ndarray of int64, shape (n_lanes, n_brackets, k)
        Lower bounds of the weight and the number of the elements up to it.
    before, n_before, until, n_until : ndarray of int64, shape (n_lanes, n_brackets)
        Lower bound of the weight up to the lower end of the bracket, and upper bound of the weight
        below the upper end. Numbers of these elements are exact.
    least, most : ndarray of int64, shape (n_lanes,)
        Bounds of the weight of all elements.
    square : ndarray of float64, shape (n_lanes,)
        Approximate sum of the squares of all weights, in the square of the unit.
    unit, n_valid, n_missing : ndarray of int64, shape (n_lanes,)
        Exponent of the unit, and number of valid elements and of NaN or NaT.
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
    n_valid: IntArray
    n_missing: IntArray


@dataclass(frozen=True, eq=False)
class WeightBrackets(Arrays):
    """Brackets of weighted quantiles: each answer lies in ``[low, high]``, elements of the lane.

    Parameters
    ----------
    low, high : ndarray, shape (n_lanes, n_brackets)
        Ends of the brackets. For the estimator of type 7, first the brackets of the lower ends of
        all windows, then those of the upper ends.
    n_valid, n_missing : ndarray of int64, shape (n_lanes,)
        Number of valid elements, and of NaN or NaT.
    wanted : WantedQuantiles
    """

    low: NDArray[Any]
    high: NDArray[Any]
    n_valid: IntArray
    n_missing: IntArray
    wanted: WantedQuantiles

    def ends(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return four ends for each question: of the whole range, and of the gap in its middle.

        The range begins at the first and ends at the second. Between the other two, elements are
        summed and are no candidates. Only windows of type 7 have such a gap.
        """
        n = len(self.wanted.q)
        low, high = self.low[:, :n], self.high[:, -n:]
        if self.wanted.method != TYPE_7:
            return low, high, high, high
        return low, high, self.high[:, :n], self.low[:, -n:]


@dataclass(frozen=True, eq=False)
class WeightTally(Arrays):
    """Exact weights of a part of the data at the ends of brackets, and its candidates.

    Parameters
    ----------
    below, before, upto : ExactSums, shape (n_lanes, n_questions)
        Weight of the elements below the lower end, up to it, and up to the upper end.
    n_inside : ndarray of int64, shape (n_lanes, n_questions)
        Number of candidates.
    candidates, weights : ndarray, shape (n_inside.sum(),)
        Candidates and their weights, one bracket after the other.
    middle : ExactSums, shape (n_lanes, n_questions)
        Weight of the elements between the two ends of a window that are no candidates.
    product : ExactSums, shape (n_lanes, n_questions)
        Sum of weight times element of the same elements.
    weight, square : ExactSums, shape (n_lanes,)
        Sum of the weights of all elements, and of their squares. The latter is computed only for
        the estimator of type 7.
    n_valid, n_missing, n_idle : ndarray of int64, shape (n_lanes,)
        As in `SortedLanes`.
    """

    below: ExactSums
    before: ExactSums
    upto: ExactSums
    n_inside: IntArray
    candidates: NDArray[Any]
    weights: NDArray[Any]
    middle: ExactSums
    product: ExactSums
    weight: ExactSums
    square: ExactSums
    n_valid: IntArray
    n_missing: IntArray
    n_idle: IntArray


def cuts_of_sorted(lanes: SortedLanes, brackets: WeightBrackets | None, m: int) -> WeightCuts:
    """Make the cuts of some lanes, at `m` pivots by count and `m` by weight.

    They are those of the elements inside the brackets, or of all elements without brackets.
    """
    assert lanes.weights is not None
    n = lanes.n_valid
    first, stop = inside_of(lanes, brackets)
    unit, weights = _rounded_down(lanes.weights)
    sums = np.cumsum(weights, axis=1)

    def least(places: IntArray) -> IntArray:  # too low by less than one unit for each element
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
        n,
        lanes.n_missing,
    )


def _rounded_down(weights: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Round the weights of each row down to whole units; return the units' exponents too.

    The sum of a row is below 2**61.
    """
    bits = weights.shape[1].bit_length()
    largest = weights.max(axis=1, initial=0).astype(np.float64)
    unit = np.frexp(largest)[1].astype(np.int64) + bits - 61
    if weights.dtype.kind == "i":
        return unit, _shifted(weights, unit[:, None])
    return unit, np.floor(np.ldexp(weights, -unit[:, None])).astype(np.int64)


def _shifted(numbers: IntArray, bits: IntArray) -> IntArray:
    """Divide integers by ``2**bits``, rounded down."""
    right = numbers >> np.clip(bits, 0, 63)
    found: IntArray = np.where(bits < 0, numbers << np.clip(-bits, 0, 63), right)
    return found


def _even_steps(start: IntArray, stop: IntArray, m: int) -> IntArray:
    """Compute `m` numbers from after `start` to `stop`, in even steps; a new last axis."""
    step = (stop - start) // max(m - 1, 1)
    return start[..., None] + 1 + step[..., None] * np.arange(m)


@dataclass(frozen=True, eq=False)
class _United:
    """Sorted pivots of several parts, and the bounds of all parts together at each.

    Parameters
    ----------
    pivots, below, upto, n_upto, n_below : ndarray, shape (n_rows, k)
        As in `WeightCuts`, with a row for each lane and bracket.
    n : ndarray of int64, shape (n_rows,)
        Number of pivots that are elements: they come first.
    """

    pivots: NDArray[Any]
    below: IntArray
    upto: IntArray
    n_below: IntArray
    n_upto: IntArray
    n: IntArray

    @classmethod
    def of(cls, parts: Sequence[WeightCuts], rows: slice) -> Self:
        """Merge some of the brackets of parts that have the same units."""

        def tables(name: str) -> list[NDArray[Any]]:
            return [_as_rows(getattr(part, name), 2)[rows] for part in parts]

        pivots = np.concatenate(tables("pivots"), axis=1)
        order = np.argsort(pivots, axis=1, kind="stable")

        def at_most(name: str, end: str) -> IntArray:
            """Add up upper bounds: a part's bound at its next pivot holds before that pivot too."""
            found, ends = tables(name), [_as_rows(getattr(part, end), 1)[rows] for part in parts]
            steps = [
                np.diff(each, append=end_, axis=1) for each, end_ in zip(found, ends, strict=True)
            ]
            ordered = np.take_along_axis(np.concatenate(steps, axis=1), order, axis=1)
            start = np.sum([each[:, :1] for each in found], axis=0)
            result: IntArray = start + np.cumsum(ordered, axis=1) - ordered
            return result

        def at_least(name: str, end: str) -> IntArray:
            """Add up lower bounds: a part's bound at its last pivot holds behind that pivot too."""
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
    """Reshape a table to one row for each lane and bracket; other axes become one."""
    return table.reshape(table.shape[0] * table.shape[1], -1 if n_axes == 2 and table.size else 1)


def _in_one_unit(parts: Sequence[WeightCuts]) -> list[WeightCuts]:
    """Convert parts to one unit for each lane, such that sums over parts are below 2**62."""
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
    """Merge the cuts of several parts, at `m` pivots by count and `m` by weight.

    Around a value, only the cells of the parts that contain it are uncertain, in number and in
    weight. A cell of part p has at most ``n_p / (m_p - 1)`` elements and ``W_p / (m_p - 1)`` of the
    weight. So the merged cuts are uncertain by the sum of these, and by a step of their own.
    """
    parts = _in_one_unit(parts)
    totals: dict[str, Any] = {
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
    rest: dict[str, Any] = {name: total(name, parts) for name in ("square", "n_valid", "n_missing")}
    return WeightCuts(**tables, **totals, **rest, unit=parts[0].unit)


def narrowed(
    parts: Sequence[WeightCuts], brackets: WeightBrackets | None, wanted: WantedQuantiles
) -> WeightBrackets:
    """Find the brackets that the cuts of a pass prove, inside those of the pass before.

    Raises
    ------
    ChunksChangedError
        If a lane has another number of elements than in the pass before.
    """
    numbers = known_of_all(parts) if brackets is None else check_lanes_unchanged(parts, brackets)
    parts = _in_one_unit(parts)
    shape = parts[0].n_before.shape
    n_lanes, n_brackets = shape[0], wanted.n_brackets
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
    return WeightBrackets(low, high, *numbers, wanted)


def _targets(parts: Sequence[WeightCuts], wanted: WantedQuantiles) -> tuple[IntArray, IntArray]:
    """Compute bounds of the wanted weights of each lane, shape ``(n_lanes, n_brackets)``."""
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
    """Make the tally of some lanes at their brackets."""
    assert lanes.weights is not None
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
    lane, i, at = np.nonzero((place >= start_) & (place < end_))
    some = lanes.values[lane, at], lanes.weights[lane, at]
    product = ExactSums.of(lane * first.shape[1] + i, first.size, *some)
    is_type_7 = brackets.wanted.method == TYPE_7
    return WeightTally(
        running.at(lanes.places(low, upto=False)).packed(),
        running.at(first).packed(),
        running.at(lanes.places(high, upto=True)).packed(),
        np.count_nonzero(is_inside, axis=-1).astype(np.int64),
        np.broadcast_to(lanes.values[:, None], is_inside.shape)[is_inside],
        np.broadcast_to(lanes.weights[:, None], is_inside.shape)[is_inside],
        (running.at(end) - running.at(start)).packed(),
        ExactSums(product.first, product.digits.reshape(len(product.digits), *first.shape)),
        running.at(lanes.n_valid).packed(),
        squares_of(lanes.weights, wholes).packed() if is_type_7 else ExactSums.zeros((len(first),)),
        lanes.n_valid,
        lanes.n_missing,
        lanes.n_idle,
    )


def merge_tallies(parts: Sequence[WeightTally]) -> WeightTally:
    """Merge the tallies of several parts."""
    if len(parts) == 1:
        return parts[0]
    sums: dict[str, Any] = {
        name: ExactSums.sum([getattr(part, name) for part in parts])
        for name in ("below", "before", "upto", "middle", "product", "weight", "square")
    }
    sizes = [part.n_inside.reshape(-1) for part in parts]
    bracket = np.concatenate([np.repeat(np.arange(len(size)), size) for size in sizes])
    order = np.argsort(bracket, kind="stable")
    exact = np.dtype("i8" if any(part.weights.dtype.kind == "i" for part in parts) else "f8")
    names = "n_inside", "n_valid", "n_missing", "n_idle"
    counts: dict[str, Any] = {name: total(name, parts) for name in names}
    return WeightTally(
        candidates=np.concatenate([part.candidates for part in parts])[order],
        weights=np.concatenate([part.weights.astype(exact) for part in parts])[order],
        **counts,
        **sums,
    )


def answers(tally: WeightTally, brackets: WeightBrackets) -> Lanes:
    """Find the answers by the tally of all parts, which proves them.

    Raises
    ------
    ChunksChangedError
        If a bracket does not hold the wanted elements.
    """
    wanted = brackets.wanted
    check_lanes_unchanged([tally], brackets)
    check_some_weigh(tally)
    n_lanes, n = len(tally.n_valid), len(wanted.q)
    dtype = wanted.dtype if wanted.method == TYPE_7 else brackets.low.dtype
    lower, upper = np.zeros((2, n_lanes, n), dtype)
    sizes = tally.n_inside.reshape(-1)
    starts = (np.cumsum(sizes) - sizes).reshape(n_lanes, n)
    for i, q in enumerate(wanted.q):
        for rows in table_tiles(n_lanes, int(tally.n_inside[:, i].max(initial=0)) + 2):
            items = _items_of(tally, brackets, rows, i, starts[rows, i])
            items.check(q, wanted, tally.below[rows, i], tally.upto[rows, i])
            lower[rows, i], upper[rows, i] = items.answer(q, wanted)
    return Lanes(lower, upper, tally.n_valid, tally.n_missing)


def _items_of(
    tally: WeightTally, brackets: WeightBrackets, rows: slice, i: int, starts: IntArray
) -> Items:
    """Collect the candidates of one question in some lanes, between the ends of their brackets."""
    low, high, until, _ = (end[rows, i] for end in brackets.ends())
    size = tally.n_inside[rows, i]
    place = np.arange(int(size.max(initial=0)) + 2) - 1
    is_one = (place >= 0) & (place < size[:, None])
    at = np.where(is_one, starts[:, None] + place, 0)
    values, weights = (
        np.where(is_one, column[at], filler) if column.size else np.full(at.shape, filler)
        for column, filler in (
            (tally.candidates, np.array(last_of(tally.candidates.dtype), tally.candidates.dtype)),
            (tally.weights, np.zeros((), tally.weights.dtype)),
        )
    )
    # Sort the candidates alone: the first and the last place are for the ends of the bracket.
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
    n = np.where(tally.n_valid[rows] > 0, size + 2, 0)
    before, weight, square = tally.before[rows, i], tally.weight[rows], tally.square[rows]
    return Items(values, Wholes.of(weights).running(), before, n, weight, square, middle)
