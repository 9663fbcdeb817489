"""Weighted quantiles of many lanes at once.

An element of weight w counts as w elements. Instead of ranks, shares of the weight of a lane give
the answers. ``q W`` is an exact number, and so is every sum that is compared with it: see
`exact_sums`.

The cuts of a part of lanes are pivots at even steps by count and by weight, with bounds of the
weights below and up to them. The cuts of all parts bracket every quantile, and the last load adds
up everything outside of the brackets exactly. Bounds are floats, whose errors are allowed for.

All tables are on the host and have lanes along their first axis, questions along the second.
Elements of weight 0 are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import ADVICE, ChunksChangedError, FloatArray, IntArray
from dask_gpuselect.maths.exact_sums import (
    DIGIT,
    ExactSums,
    Wholes,
    needs,
    search,
    squares_of,
    taken,
)
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    Lanes,
    LaneTally,
    check_lanes_unchanged,
    known_of_all,
    last_of,
    some_lanes,
    table_tiles,
    total,
    united,
)
from dask_gpuselect.maths.orders import DOUBT, GatheredRuns, OrderedRuns, WeightedOrder
from dask_gpuselect.maths.sorted_lanes import SMALLEST, SortedLanes
from dask_gpuselect.maths.tables import ahead
from dask_gpuselect.maths.weight_finish import answers, width_of
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


def picked(runs: OrderedRuns | GatheredRuns, wanted: WantedQuantiles) -> Lanes:
    """Find the elements between which weighted quantiles lie, as `pick` does."""
    check_some_weigh(runs)
    dtype = wanted.dtype if wanted.method == TYPE_7 else runs.dtype
    lower, upper = np.zeros((2, len(runs.n_valid), len(wanted.q)), dtype)
    some = np.flatnonzero(runs.n_valid)
    if len(some) and wanted.q:
        found = answers(runs, some, wanted.q, wanted.method, dtype)
        lower[some], upper[some] = unsigned_zero(found)
    return Lanes(lower, upper, runs.n_valid, runs.n_missing)


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
class Items(WeightedOrder):
    """Sorted elements in the rows of a table, among which the answers are; a row is a slot.

    The weight of the first j items is `base` plus the j-th running sum. But the weight of no items
    is 0, and that of all items is the weight of the lane, because the first and the last item may
    stand for others beyond them. Between two neighbouring items of a row, or behind the last,
    there may be a gap, whose elements are summed.

    A row has a place for each item, one for its gap, and one behind.

    Parameters
    ----------
    values, weights : ndarray, shape (n_rows, n)
        Items, ascending, and their weights. The ends of a bracket have weights of 0.
    running : Wholes
        Running sums of the weights.
    base : ExactSums, shape (n_rows,)
        Weight before the items.
    n : ndarray of int64, shape (n_rows,)
        Number of items.
    weight, square : ExactSums, shape (n_rows,)
        Sum of the weights of the lane, and of their squares.
    gap : ndarray of int64, shape (n_rows,)
        Number of items before the gap.
    middle, product : ExactSums, shape (n_rows,)
        Sums of the weights of the elements in the gap, and of weight times element.
    """

    values: NDArray[Any]
    weights: NDArray[Any]
    running: Wholes
    base: ExactSums
    n: IntArray
    weight: ExactSums
    square: ExactSums
    gap: IntArray
    middle: ExactSums
    product: ExactSums

    @classmethod
    def of(cls, lanes: SortedLanes, wanted: WantedQuantiles) -> Self:
        """Take all elements of lanes as items."""
        assert lanes.weights is not None
        n, weights = lanes.n_valid, lanes.weights
        wholes, none = Wholes.of(weights), ExactSums.zeros(n.shape)
        running = wholes.running()
        square = squares_of(weights, wholes) if wanted.method == TYPE_7 else none
        sums = running.at(n), square
        return cls(lanes.values, weights, running, none, n, *sums, n, none, none)

    @property
    def _totals(self) -> tuple[ExactSums, ExactSums]:
        return ExactSums.zeros(self.n.shape), self.weight

    def squares_of(self, slot: IntArray) -> ExactSums:
        return self.square[slot]

    def answer(self, q: float, wanted: WantedQuantiles) -> tuple[NDArray[Any], NDArray[Any]]:
        """Find the two elements whose mean is the answer of each row."""
        about, rows = ((q,), wanted.method, wanted.dtype), np.arange(len(self.n))
        if wanted.method != TYPE_7:
            lower, upper = answers(self, rows, *about)[..., 0]
            return lower, upper
        # Many windows are about a single value, which floats tell.
        ends = window(q, width_of(self.weight, self.square), DOUBT)
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
            ends = window(q, width_of(self.weight, self.square), DOUBT / 2)
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
        sums = self.weight, self.base, self.middle
        return min(self.running.exponent // DIGIT, *(each.first for each in sums))

    def reach(self, slot: IntArray, sums: ExactSums) -> IntArray:
        among, gap = sums - self.base[slot], self.gap[slot]
        item = self.running.reach(among, slot)
        if (item >= gap).any():
            behind = self.running.reach(among - self.middle[slot], slot)
            item = np.where(item < gap, item, np.maximum(behind, gap))
        item = np.minimum(item, np.maximum(self.n[slot] - 1, 0))
        place: IntArray = slot * (self.values.shape[1] + 2) + item + (item >= gap)
        return place

    def elements(self, places: IntArray) -> NDArray[Any]:
        row, item, _ = self._parts(places)
        return np.asarray(self.values[row, item])

    def weights_before(self, places: IntArray) -> ExactSums:
        row, item, is_behind = self._parts(places)
        sums = self.base[row] + self.running.at(item, row)
        return sums + self.middle[row].where(is_behind)

    def products(self, starts: IntArray, stops: IntArray) -> ExactSums:
        (row, start, was_behind), (_, stop, is_behind) = map(self._parts, (starts, stops))
        sizes = stop - start
        pair = np.repeat(np.arange(len(row)), sizes)
        at = row[pair], ahead(start, sizes)
        sums = ExactSums.of(pair, len(row), self.values[at], self.weights[at])
        return sums + self.product[row].where(is_behind & ~was_behind)

    def _parts(self, places: IntArray) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
        """Split places into the row, the item, and whether it is behind the row's middle."""
        row, item = np.divmod(places, self.values.shape[1] + 2)
        is_behind = item > self.gap[row]
        return row, item - is_behind, is_behind


def window(q: float, width: FloatArray, doubt: float) -> tuple[FloatArray, FloatArray]:
    """Compute the shares of the weight between which the estimator of type 7 averages.

    The window is `doubt` wider on both sides. `width` is the sum of the squares of the weights
    divided by the square of their sum.
    """
    low = q * (1 - width)
    return np.maximum(low - doubt, 0), np.minimum(low + width + doubt, 1)


# --- Lanes in parts -------------------------------------------------------------------------------


def merge(parts: Sequence[LaneCuts], m: int) -> LaneCuts:
    """Merge the cuts of several parts, at twice `m` pivots.

    Around a value, only the cells of the parts that contain it are uncertain, in number and in
    weight. A cell of part p has at most ``n_p / (m_p - 1)`` elements and ``W_p / (m_p - 1)`` of the
    weight. So the merged cuts are uncertain by the sum of these, and by two steps of their own.
    """
    n_inside = total("n_inside", parts)
    pieces = []
    for rows in table_tiles(n_inside.size, sum(part.low.shape[-1] for part in parts)):
        n, (order, *tables) = _n_elements(parts, rows), united(parts, rows)
        at = _even(parts, rows, order, n, 2 * m)
        pieces.append([taken(each, at) for each in tables])
    pivots, below, upto = (
        np.concatenate(column).reshape(*n_inside.shape, 2 * m)
        for column in zip(*pieces, strict=True)
    )
    before, until, weight = (total(name, parts) for name in ("before", "until", "weight"))
    numbers = n_inside, total("n_before", parts), *known_of_all(parts)
    of_weights = below, upto, before, until, weight, _norm(parts)
    return LaneCuts(pivots, pivots, *numbers, *of_weights)


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
    n_lanes, n_tables = parts[0].n_inside.shape
    n_pivots = sum(part.low.shape[-1] for part in parts)
    k = wanted.n_brackets // n_tables  # for each of the tables: all, or one
    least, most = (each.reshape(-1, k) for each in _targets(parts, wanted, numbers[0] + n_pivots))
    bounds = np.empty((2, len(least), k), parts[0].low.dtype)
    for rows in table_tiles(len(least), n_pivots):
        n, (_, pivots, below, upto) = _n_elements(parts, rows), united(parts, rows)
        low, last = search(below, least[rows], n, upto=False) - 1, n[:, None] - 1
        high = search(upto, most[rows], n, upto=True)
        bounds[0, rows] = taken(pivots, low)
        bounds[1, rows] = taken(pivots, np.minimum(high, last))
        if brackets is not None:
            ends = (end.reshape(-1, 1)[rows] for end in (brackets.low, brackets.high))
            for i, (end, is_beyond) in enumerate(zip(ends, (low < 0, high > last), strict=True)):
                bounds[i, rows] = np.where(is_beyond, end, bounds[i, rows])
    low, high = bounds.reshape(2, n_lanes, wanted.n_brackets)
    return LaneBrackets(low, high, None, None, *numbers, wanted=wanted)


def _n_elements(parts: Sequence[LaneCuts], rows: slice) -> IntArray:
    """Count the pivots of some brackets of all parts that are elements; they come first."""
    widths = [part.low.shape[-1] * (part.n_inside.reshape(-1)[rows] > 0) for part in parts]
    n: IntArray = np.sum(widths, axis=0)
    return n


def _even(parts: Sequence[LaneCuts], rows: slice, order: IntArray, n: IntArray, k: int) -> IntArray:
    """Choose the places of `k` pivots at even steps of count and weight together.

    `order` is as of `united`, and `n` as of `_n_elements`.
    """
    measures = (
        np.stack([measure.reshape(-1)[rows] for measure in column], axis=1)
        for column in (
            [part.n_inside for part in parts],
            [part.until - part.before for part in parts],
        )
    )
    shares = sum(each / np.maximum(each.sum(axis=1, keepdims=True), SMALLEST) for each in measures)
    widths = [part.low.shape[-1] for part in parts]
    steps = np.repeat(shares / widths, widths, axis=1)
    share = np.take_along_axis(steps, order, axis=1).cumsum(axis=1)
    at = search(share, share[:, -1:] * np.linspace(0, 1, k), n, upto=False)
    last = np.maximum(n - 1, 0)
    at[:, 0], at[:, -1] = 0, last
    return np.minimum(at, last[:, None])


ERROR = 2.0**-48
"""Bound of the error of a sum of weights, for each rounding, as a share of all weights."""


def _targets(
    parts: Sequence[LaneCuts], wanted: WantedQuantiles, n_rounded: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Compute bounds of the wanted weights of each lane, shape ``(n_lanes, n_brackets)``.

    They allow for the errors of the bounds at pivots, too.
    """
    weight = total("weight", parts)[:, None]
    shares, doubt = np.broadcast_to(np.array(wanted.q), (len(weight), len(wanted.q))), 0.0
    if wanted.method == TYPE_7:
        width = np.minimum(_norm(parts)[:, None] / np.maximum(weight, SMALLEST), 1) ** 2
        start = shares * (1 - width)
        shares, doubt = np.concatenate([start, start + width], axis=1), DOUBT
    error = n_rounded[:, None] * (ERROR * weight + SMALLEST)
    least = np.maximum(shares - doubt, 0) * weight - error
    return least, np.minimum(shares + doubt, 1) * weight + error


def _norm(parts: Sequence[LaneCuts]) -> FloatArray:
    """Compute the root of the sum of the squares of all weights, for each lane."""
    return functools.reduce(np.hypot, [part.norm for part in parts])


def answers_of_tally(tally: LaneTally, brackets: LaneBrackets) -> Lanes:
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
    low, high, *gap = (end[rows, i] for end in brackets.ends)
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
    before_gap = n
    if gap:
        before_gap = np.maximum(search(values, gap[0][:, None], size + 1, upto=True)[:, 0], 1)
    middle, product = tally.middle[rows, i], tally.product[rows, i]
    running, before = Wholes.of(weights).running(), tally.before[rows, i]
    sums = tally.weight[rows], tally.square[rows]
    return Items(values, weights, running, before, n, *sums, before_gap, middle, product)
