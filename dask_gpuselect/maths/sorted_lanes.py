"""Tables of sorted lanes, with or without masks and weights, and questions that they answer.

Here are cuts and tallies by count and by weight, and order statistics. Weighted quantiles are in
`lane_weights`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray
from dask_gpuselect.maths.exact_sums import ExactSums, Wholes, search, squares_of, taken
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    Lanes,
    LaneTally,
    RanksOfLanes,
    distinct,
    even_ranks,
    last_of,
)

SCALE = 2.0**-40
"""Factor of weights whose sums are floats, so that none overflows."""

SMALLEST = float(np.finfo(np.float64).smallest_subnormal)


@dataclass(frozen=True, eq=False)
class SortedLanes(Arrays):
    """Sorted lanes in the rows of tables.

    Parameters
    ----------
    values : ndarray, shape (n_lanes, n)
        Valid elements first, ascending; with weights, only those of weight above 0. The rest of a
        row is arbitrary.
    n_valid, n_missing : ndarray of int64, shape (n_lanes,)
        Number of valid elements, and of NaN or NaT. With weights, only those of weight above 0
        count.
    n_left_out : ndarray of int64, shape (n_lanes,)
        Number of elements that are left out, such as masked ones. With weights, also of NaN and NaT
        in lanes in which no element has a weight.
    weights : ndarray of float64 or int64, shape (n_lanes, n), optional
        Weight of each element; 0 behind the valid elements. By default all weigh the same.
    """

    values: NDArray[Any]
    n_valid: IntArray
    n_missing: IntArray
    n_left_out: IntArray
    weights: NDArray[Any] | None = None

    @classmethod
    def of_rows(cls, rows: NDArray[Any], n_left_out: IntArray | None = None) -> Self:
        """Make a table from sorted rows, with NaN and NaT last, and count these.

        Elements that are left out are behind all others, replaced by `lane_cuts.last_of`.
        """
        n_lanes, n = rows.shape
        n_missing = np.zeros(n_lanes, np.int64)
        last: Any = (slice(None), -1)
        if n_left_out is None:
            n_left_out = np.zeros(n_lanes, np.int64)
        else:
            last = np.arange(n_lanes), np.maximum(n - 1 - n_left_out, 0)
        # Floats and dates that are left out are NaN or NaT.
        if rows.size and rows.dtype.kind in "fMm":
            touched = np.flatnonzero(np.isnan(rows[last]))
            if touched.size:
                some = rows if touched.size == n_lanes else rows[touched]
                n_missing[touched] = np.count_nonzero(np.isnan(some), axis=1) - n_left_out[touched]
        return cls(rows, n - n_missing - n_left_out, n_missing, n_left_out)

    @property
    def n_idle(self) -> IntArray:
        """Number of other elements of weight 0."""
        n: IntArray = self.values.shape[1] - self.n_valid - self.n_missing - self.n_left_out
        return n

    @classmethod
    def weighed(
        cls, values: NDArray[Any], weights: NDArray[Any], keeps: NDArray[np.bool_] | None = None
    ) -> Self:
        """Sort tables of lanes in any order, with weights that are neither negative nor NaN.

        `weights` may have one row for all lanes.
        """
        weights = np.broadcast_to(weights, values.shape)
        n_left_out = np.zeros(len(values), np.int64)
        if keeps is not None:
            n_left_out = np.count_nonzero(~keeps, axis=1).astype(np.int64)
            weights = np.where(keeps, weights, 0)
        weighs = weights > 0
        n_missing = np.zeros(len(values), np.int64)
        if values.dtype.kind in "fmM":
            is_missing = np.isnan(values)
            if is_missing.any():
                n_missing = np.count_nonzero(is_missing & weighs, axis=1).astype(np.int64)
                weights = np.where(is_missing, 0, weights)
                weighs &= ~is_missing
        n_valid = np.count_nonzero(weighs, axis=1).astype(np.int64)
        leave_out_missing(n_left_out, n_valid + n_missing, values, keeps)
        if values.dtype.kind in "mM":
            values = values.view(np.int64)
        n_behind = weighs.size - np.count_nonzero(weighs)
        if n_behind:
            # Fill with the largest value, not NaN, which NumPy sorts six times as slowly as other
            # floats.
            last = np.inf if values.dtype.kind == "f" else np.iinfo(values.dtype).max
            values = np.where(weighs, values, values.dtype.type(last))
            n_behind -= np.count_nonzero(values == last)
        order = np.argsort(values, axis=1)
        values, weights = (np.take_along_axis(table, order, axis=1) for table in (values, weights))
        if n_behind:  # other elements may equal the largest value: they go before the fillers
            behind = np.argsort(weights == 0, axis=1, kind="stable")
            values, weights = (
                np.take_along_axis(table, behind, axis=1) for table in (values, weights)
            )
        return cls(values, n_valid, n_missing, n_left_out, weights)

    def places(self, ends: NDArray[Any], *, upto: bool) -> IntArray:
        """Count the valid elements below some values, or `upto` them, in the shape of `ends`."""
        return search(self.values, ends, self.n_valid, upto=upto)


def leave_out_missing(
    n_left_out: IntArray, n_weigh: IntArray, values: NDArray[Any], keeps: NDArray[np.bool_] | None
) -> None:
    """Count NaN and NaT as left out in lanes in which no element has a weight.

    `n_weigh` is the number of elements of each lane that have one. Weights that are all 0 are an
    error for valid elements alone. The kernels that sort do not do it, because one more condition
    takes 10 ns an element there.
    """
    places = np.flatnonzero((n_weigh == 0) & (n_left_out < values.shape[1]))
    if places.size and values.dtype.kind in "fmM":
        is_missing = np.isnan(values[places])
        if keeps is not None:
            is_missing &= keeps[places]
        n_left_out[places] += np.count_nonzero(is_missing, axis=1)


def pick(lanes: SortedLanes, ranks: RanksOfLanes) -> Lanes:
    """Take the elements of some ranks of whole lanes."""
    rows, n_valid = lanes.values, lanes.n_valid
    columns = rows if rows.shape[1] else np.zeros((len(rows), 1), rows.dtype)
    if (n_valid == n_valid[:1]).all():  # the same columns for all, in a fifth of the time
        lower, upper = (rank[:, 0] for rank in ranks(n_valid[:1].max(initial=1, keepdims=True)))
        return Lanes(columns[:, lower], columns[:, upper], n_valid, lanes.n_missing)
    # Elements of one rank lie side by side, as the answers will.
    counts, place = distinct(n_valid)
    table, step, behind = columns, columns.shape[1], 1
    if columns.flags.f_contiguous:  # lanes lie side by side
        table, step, behind = columns.T, 1, len(columns)
    starts = np.arange(len(columns), like=place) * step
    lower, upper = (
        table.reshape(-1).take(np.asarray(rank, like=place).take(place, axis=1) * behind + starts).T
        for rank in ranks(np.maximum(counts, 1))
    )
    return Lanes(lower, upper, n_valid, lanes.n_missing)


def cuts_of_sorted(lanes: SortedLanes, brackets: LaneBrackets | None, m: int) -> LaneCuts:
    """Make the cuts of some lanes at `m` ranks, inside their brackets if there are any.

    With weights, there are as many pivots again, at even steps of the weight.
    """
    first, stop = inside_of(lanes, brackets)
    at = first[..., None] + even_ranks(stop - first, m)
    numbers = stop - first, first, lanes.n_valid, lanes.n_missing
    if lanes.weights is None:
        pivots = taken(lanes.values, at)
        return LaneCuts(pivots, pivots, *numbers)
    weights = lanes.weights * SCALE
    sums = np.cumsum(weights, axis=1)

    def upto(places: IntArray) -> FloatArray:
        return np.where(places > 0, taken(sums, places - 1), 0)

    before, until = upto(first), upto(stop)
    by_weight = search(sums, np.linspace(before, until, m, axis=-1), lanes.n_valid, upto=False)
    by_weight = np.clip(by_weight, first[..., None], np.maximum(stop - 1, first)[..., None])
    at = np.sort(np.concatenate([at, by_weight], axis=-1), axis=-1)
    largest = np.maximum(weights.max(axis=1, initial=0), SMALLEST)
    norm = largest * np.sqrt(np.square(weights / largest[:, None]).sum(axis=1))
    is_some = (first < stop)[..., None]
    pivots = np.where(is_some, taken(lanes.values, at), last_of(lanes.values.dtype))
    bounds = (
        np.where(is_some, upto(at), until[..., None]),
        np.where(is_some, upto(at + 1), before[..., None]),
    )
    return LaneCuts(pivots, pivots, *numbers, *bounds, before, until, upto(lanes.n_valid), norm)


def tally_of_sorted(lanes: SortedLanes, brackets: LaneBrackets) -> LaneTally:
    """Measure some lanes at their brackets, and gather the candidates.

    With weights, the elements in the gaps of windows are summed.
    """
    low, high, *gap = brackets.ends
    first = lanes.places(low, upto=True)
    stop = np.maximum(lanes.places(high, upto=False), first)
    n_inside, place = stop - first, np.arange(lanes.values.shape[1])
    is_inside = (place >= first[..., None]) & (place < stop[..., None])
    sums: list[Any] = [lanes.places(low, upto=False), first, lanes.places(high, upto=True)]
    columns: dict[str, Any] = {}
    if lanes.weights is not None:
        wholes = Wholes.of(lanes.weights)
        running = wholes.running()
        sums = [running.at(each).packed() for each in sums]
        columns = dict.fromkeys(("middle", "product"), ExactSums.zeros(first.shape))
        columns["square"] = ExactSums.zeros((len(first),))
        if gap:
            start = np.clip(lanes.places(gap[0], upto=True), first, stop)
            end = np.clip(lanes.places(gap[1], upto=False), start, stop)
            is_summed = (place >= start[..., None]) & (place < end[..., None])
            n_inside, is_inside = n_inside - (end - start), is_inside & ~is_summed
            columns["middle"] = (running.at(end) - running.at(start)).packed()
            columns["product"] = _products(lanes.values, lanes.weights, is_summed)
            columns["square"] = squares_of(lanes.weights, wholes).packed()
        columns |= {"n_idle": lanes.n_idle, "weight": running.at(lanes.n_valid).packed()}
        columns["weights"] = np.broadcast_to(lanes.weights[:, None], is_inside.shape)[is_inside]
    below, before, upto = sums
    candidates = np.broadcast_to(lanes.values[:, None], is_inside.shape)[is_inside]
    numbers = lanes.n_valid, lanes.n_missing
    return LaneTally(below, before, n_inside, upto, candidates, *numbers, **columns)


def _products(
    values: NDArray[Any], weights: NDArray[Any], is_summed: NDArray[np.bool_]
) -> ExactSums:
    """Sum weight times element over some elements of each lane, for each question."""
    shape = is_summed.shape[:2]
    lane, i, at = np.nonzero(is_summed)
    sums = ExactSums.of(lane * shape[1] + i, math.prod(shape), values[lane, at], weights[lane, at])
    return ExactSums(sums.first, sums.digits.reshape(len(sums.digits), *shape))


def inside_of(lanes: SortedLanes, brackets: Any | None) -> tuple[IntArray, IntArray]:
    """Find the places from the first element strictly inside each bracket to behind the last.

    Without brackets, these are the places of all valid elements.
    """
    if brackets is None:
        return np.zeros((len(lanes.n_valid), 1), np.int64), lanes.n_valid[:, None]
    first = lanes.places(brackets.low, upto=True)
    return first, np.maximum(lanes.places(brackets.high, upto=False), first)
