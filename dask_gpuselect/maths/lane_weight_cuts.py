"""Weighted quantiles of many lanes in parts: cuts of each part, and the brackets that they prove.

The cuts of a part are pivots at even steps by count and by weight, with bounds of the weights
before and up to them. The cuts of all parts bracket every quantile, and the last load adds up
everything outside of the brackets exactly. The bounds are whole numbers of a unit that each lane
has; no decision depends on rounded sums.

All tables are on the host and have lanes along their first axis, questions along the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import FloatArray, IntArray
from dask_gpuselect.maths.exact_sums import ExactSums, Wholes, search, squares_of, taken
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    Lanes,
    LaneTally,
    LaneWeights,
    as_rows,
    check_lanes_unchanged,
    even_ranks,
    known_of_all,
    last_of,
    least_upto,
    most_below,
    table_tiles,
    total,
)
from dask_gpuselect.maths.lane_weights import (
    DOUBT,
    TYPE_7,
    Items,
    Middle,
    WantedQuantiles,
)
from dask_gpuselect.maths.sorted_lanes import SortedLanes, inside_of
from dask_gpuselect.maths.weights import check_some_weigh


def cuts_of_sorted(lanes: SortedLanes, brackets: LaneBrackets | None, m: int) -> LaneCuts:
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
    pivots = np.where(is_none, last_of(lanes.values.dtype), taken(lanes.values, at))
    of_weights = LaneWeights(
        np.where(is_none, until[..., None], least(at) + at),
        np.where(is_none, before[..., None], least(at + 1)),
        before,
        until,
        least(n),
        least(n) + n,
        np.square(weights.astype(np.float64)).sum(axis=1),
        unit,
    )
    return LaneCuts(pivots, pivots, stop - first, first, n, lanes.n_missing, of_weights)


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
    shifted: IntArray = np.where(bits < 0, numbers << np.clip(-bits, 0, 63), right)
    return shifted


def _even_steps(start: IntArray, stop: IntArray, m: int) -> IntArray:
    """Compute `m` numbers from after `start` to `stop`, in even steps; a new last axis."""
    step = (stop - start) // max(m - 1, 1)
    return start[..., None] + 1 + step[..., None] * np.arange(m)


@dataclass(frozen=True, eq=False)
class _United:
    """Sorted pivots of several parts, and the bounds of all parts together at each.

    Parameters
    ----------
    pivots, below, upto : ndarray, shape (n_rows, k)
        As in `LaneCuts` and `LaneWeights`, with a row for each lane and bracket.
    share : ndarray of float64, shape (n_rows, k)
        Approximate share of the elements up to each pivot and of their weight, added up.
    n : ndarray of int64, shape (n_rows,)
        Number of pivots that are elements: they come first.
    """

    pivots: NDArray[Any]
    below: IntArray
    upto: IntArray
    share: FloatArray
    n: IntArray

    @classmethod
    def of(cls, parts: Sequence[LaneCuts], weights: Sequence[LaneWeights], rows: slice) -> Self:
        """Merge some of the brackets of parts, whose weights are in the same units."""

        def tables(name: str) -> list[NDArray[Any]]:
            return [as_rows(getattr(each, name))[rows] for each in weights]

        def columns(given: Sequence[Any], name: str) -> list[NDArray[Any]]:
            return [getattr(each, name).reshape(-1)[rows] for each in given]

        pivots = np.concatenate([as_rows(part.low)[rows] for part in parts], axis=1)
        order = np.argsort(pivots, axis=1, kind="stable")
        before, until = columns(weights, "before"), columns(weights, "until")
        n_inside = columns(parts, "n_inside")
        shares = np.zeros((len(n_inside[0]), len(parts)))
        masses = [
            (end - start) * (n > 0) for end, start, n in zip(until, before, n_inside, strict=True)
        ]
        for measure in (n_inside, masses):
            of_each = np.stack(measure, axis=1).astype(np.float64)
            shares += of_each / np.maximum(of_each.sum(axis=1, keepdims=True), 1)
        widths = [part.low.shape[-1] for part in parts]
        steps = np.repeat(shares / widths, widths, axis=1)
        has_some = [width * (n > 0) for width, n in zip(widths, n_inside, strict=True)]
        return cls(
            np.take_along_axis(pivots, order, axis=1),
            most_below(order, tables("below"), until),
            least_upto(order, tables("upto"), before),
            np.take_along_axis(steps, order, axis=1).cumsum(axis=1),
            np.sum(has_some, axis=0),
        )

    def even(self, k: int) -> IntArray:
        """Choose the places of `k` pivots at even steps of count and weight together."""
        wanted = self.share[:, -1:] * np.linspace(0, 1, k)
        at = search(self.share, wanted, self.n, upto=False)
        last = np.maximum(self.n - 1, 0)
        at[:, 0], at[:, -1] = 0, last
        return np.minimum(at, last[:, None])


def _in_one_unit(parts: Sequence[LaneCuts]) -> list[LaneWeights]:
    """Convert the weights of parts to one unit for each lane, and their sums to below 2**62."""
    weights = [part.weights for part in parts if part.weights is not None]
    bits = [
        np.where(each.most > 0, each.unit + np.frexp(each.most)[1], -(1 << 20)) for each in weights
    ]
    unit = np.max(bits, axis=0) + len(parts).bit_length() - 61
    converted = []
    for each in weights:
        shift = unit - each.unit
        columns: dict[str, Any] = {
            "unit": unit,
            "square": np.ldexp(each.square, np.clip(-2 * shift, -4000, 4000)),
        }
        for name, sign in (*LOWER_BOUNDS, *UPPER_BOUNDS):
            table = sign * getattr(each, name)
            columns[name] = sign * _shifted(table, shift.reshape(-1, *(1,) * (table.ndim - 1)))
        converted.append(LaneWeights(**columns))
    return converted


# Names of bounds, with a sign such that rounding down keeps them true.
LOWER_BOUNDS = ("upto", 1), ("before", 1), ("least", 1)
UPPER_BOUNDS = ("below", -1), ("until", -1), ("most", -1)


def merge(parts: Sequence[LaneCuts], m: int) -> LaneCuts:
    """Merge the cuts of several parts, at twice `m` pivots.

    Around a value, only the cells of the parts that contain it are uncertain, in number and in
    weight. A cell of part p has at most ``n_p / (m_p - 1)`` elements and ``W_p / (m_p - 1)`` of the
    weight. So the merged cuts are uncertain by the sum of these, and by two steps of their own.
    """
    weights = _in_one_unit(parts)
    n_inside = total("n_inside", parts)
    pieces = []
    for rows in table_tiles(n_inside.size, sum(part.low.shape[-1] for part in parts)):
        united = _United.of(parts, weights, rows)
        at = united.even(2 * m)
        pieces.append([taken(each, at) for each in (united.pivots, united.below, united.upto)])
    pivots, below, upto = (
        np.concatenate(column).reshape(*n_inside.shape, 2 * m)
        for column in zip(*pieces, strict=True)
    )
    names = "before", "until", "least", "most", "square"
    sums: dict[str, Any] = {name: total(name, weights) for name in names}
    of_weights = LaneWeights(below, upto, **sums, unit=weights[0].unit)
    n_before, known = total("n_before", parts), known_of_all(parts)
    return LaneCuts(pivots, pivots, n_inside, n_before, *known, of_weights)


def narrowed(
    parts: Sequence[LaneCuts], brackets: LaneBrackets | None, wanted: WantedQuantiles
) -> LaneBrackets:
    """Find the brackets that the cuts of a pass prove, inside those of the pass before.

    Raises
    ------
    ChunksChangedError
        If a lane has another number of elements than in the pass before.
    """
    numbers = known_of_all(parts) if brackets is None else check_lanes_unchanged(parts, brackets)
    weights = _in_one_unit(parts)
    n_lanes, n_tables = parts[0].n_inside.shape
    n_brackets = wanted.n_brackets
    k = n_brackets // n_tables  # for each of the tables: all, or one
    least, most = (each.reshape(-1, k) for each in _targets(weights, wanted))
    bounds = np.empty((2, len(least), k), parts[0].low.dtype)
    for rows in table_tiles(len(least), sum(part.low.shape[-1] for part in parts)):
        united = _United.of(parts, weights, rows)
        last = united.n[:, None] - 1
        low = search(united.below, np.maximum(least[rows], 1), united.n, upto=False) - 1
        high = search(united.upto, most[rows], united.n, upto=True)
        bounds[0, rows] = taken(united.pivots, low)
        bounds[1, rows] = taken(united.pivots, np.minimum(high, last))
        if brackets is not None:
            ends = (end.reshape(-1, 1)[rows] for end in (brackets.low, brackets.high))
            for i, (end, is_beyond) in enumerate(zip(ends, (low < 0, high > last), strict=True)):
                bounds[i, rows] = np.where(is_beyond, end, bounds[i, rows])
    low, high = bounds.reshape(2, n_lanes, n_brackets)
    return LaneBrackets(low, high, None, None, *numbers, wanted=wanted)


def _targets(weights: Sequence[LaneWeights], wanted: WantedQuantiles) -> tuple[IntArray, IntArray]:
    """Compute bounds of the wanted weights of each lane, shape ``(n_lanes, n_brackets)``."""
    least, most = total("least", weights)[:, None], total("most", weights)[:, None]
    q = np.array(wanted.q)
    shares, doubt = np.broadcast_to(q, (len(least), len(q))), 0.0
    if wanted.method == TYPE_7:
        width = total("square", weights)[:, None] / np.maximum(least, 1).astype(np.float64) ** 2
        start = q * (1 - np.minimum(width, 1))
        shares, doubt = np.concatenate([start, start + np.minimum(width, 1)], axis=1), DOUBT
    slack = 2.0**-50
    low = np.floor(np.maximum(shares - doubt, 0) * least * (1 - slack))
    high = np.ceil(np.minimum(shares + doubt, 1) * most * (1 + slack))
    return low.astype(np.int64), high.astype(np.int64)


def tally_of_sorted(lanes: SortedLanes, brackets: LaneBrackets) -> LaneTally:
    """Make the tally of some lanes at their brackets."""
    assert lanes.weights is not None
    assert brackets.wanted is not None
    low, high, until, behind = _ends(brackets)
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
    square = squares_of(lanes.weights, wholes).packed() if is_type_7 else None
    return LaneTally(
        running.at(lanes.places(low, upto=False)).packed(),
        running.at(first).packed(),
        np.count_nonzero(is_inside, axis=-1).astype(np.int64),
        running.at(lanes.places(high, upto=True)).packed(),
        np.broadcast_to(lanes.values[:, None], is_inside.shape)[is_inside],
        lanes.n_valid,
        lanes.n_missing,
        lanes.n_idle,
        np.broadcast_to(lanes.weights[:, None], is_inside.shape)[is_inside],
        (running.at(end) - running.at(start)).packed(),
        ExactSums(product.first, product.digits.reshape(len(product.digits), *first.shape)),
        running.at(lanes.n_valid).packed(),
        ExactSums.zeros((len(first),)) if square is None else square,
    )


def _ends(brackets: LaneBrackets) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return four ends for each question: of the whole range, and of the gap in its middle.

    The range begins at the first and ends at the second. Between the other two, elements are summed
    and are no candidates. Only windows of type 7 have such a gap.
    """
    assert brackets.wanted is not None
    n = len(brackets.wanted.q)
    low, high = brackets.low[:, :n], brackets.high[:, -n:]
    if brackets.wanted.method != TYPE_7:
        return low, high, high, high
    return low, high, brackets.high[:, :n], brackets.low[:, -n:]


def answers(tally: LaneTally, brackets: LaneBrackets) -> Lanes:
    """Find the answers by the tally of all parts, which proves them.

    Raises
    ------
    ChunksChangedError
        If a bracket does not hold the wanted elements.
    """
    wanted = brackets.wanted
    assert wanted is not None
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
    tally: LaneTally, brackets: LaneBrackets, rows: slice, i: int, starts: IntArray
) -> Items:
    """Collect the candidates of one question in some lanes, between the ends of their brackets."""
    low, high, until, _ = (end[rows, i] for end in _ends(brackets))
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
    n = np.where(tally.n_valid[rows] > 0, size + 2, 0)
    middle = Middle(tally.middle[rows, i], tally.product[rows, i], n)
    if brackets.wanted is not None and brackets.wanted.method == TYPE_7:
        place_ = search(values, until[:, None], size + 1, upto=True)[:, 0]
        middle = replace(middle, place=np.maximum(place_, 1))
    before, weight, square = tally.before[rows, i], tally.weight[rows], tally.square[rows]
    running = Wholes.of(weights).running()
    return Items(values, weights, running, before, n, weight, square, middle)
