"""Ends of many lanes: elements beyond two bounds of each lane, and its moments.

One pass over a lane counts the elements beyond its bounds, finds the extremes and the nearest
elements inside the bounds, lists the most extreme elements beyond, and adds up all elements and
their squares, exactly. Parts of a lane are treated one by one, and the results merged. All tables
are on the host, with a row for each lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray, extremes_of, packed, totals
from dask_gpuselect.maths.exact_sums import ExactSums, sum_of
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.lane_cuts import join
from dask_gpuselect.maths.moments import LANES, Moments, RoundedMoments
from dask_gpuselect.maths.sorted_lanes import SortedLanes

Measure = IntArray | ExactSums | FloatArray
"""Number of elements in each lane, or their weight, which may be rounded."""

Bounds = FloatArray
"""Lower and upper bound of each lane, shape ``(2, n_lanes)``. Nothing is beyond NaN."""

BoundsOf = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""Function from the answers of some lanes, shape ``(n_answers, n_lanes)``, to their two bounds."""


# A table of all lanes is sorted by rows, unless it has more than so many times the elements there
# are. That is 23 times as fast as sorting 1.3e5 elements of 64 lanes by two keys.
PADDED = 3


@dataclass(frozen=True, eq=False)
class Outermost(Arrays):
    """The most extreme elements beyond one bound of each lane, as distinct values.

    Parameters
    ----------
    measure : Measure, shape (n_lanes,)
        Number of elements beyond the bound, or their weight.
    sizes : ndarray of int64, shape (n_lanes,)
        Number of values that are listed.
    elements : ndarray, shape (sizes.sum(),)
        Values, lane by lane, the most extreme first.
    counts : ndarray of integers, of the same shape
        Number of elements that equal each value. Without weights, that of the last value of a lane
        may be too low. Of lanes, unsigned with as few bytes as possible: most are 1.
    weights : ExactSums or ndarray of float64, of the same shape, optional
        Weight of these elements; floats if nothing is added to it any more.
    """

    measure: Measure
    sizes: IntArray
    elements: NDArray[Any]
    counts: NDArray[Any]
    weights: ExactSums | FloatArray | None = None

    @classmethod
    def of(
        cls,
        measure: Measure,
        lane: IntArray,
        elements: NDArray[Any],
        most: int,
        *,
        is_high: bool,
        counts: IntArray | None = None,
        weights: ExactSums | None = None,
    ) -> Self:
        """List the values of at most `most` elements of each lane, and of all that equal the last.

        The elements come lane by lane, and in any order within a lane.
        """
        n_lanes = len(measure)
        sizes = np.bincount(lane, minlength=n_lanes)
        order = _order_in_lanes(sizes, lane, elements)
        if is_high:
            stops = np.cumsum(sizes)
            order = order[np.repeat(2 * stops - sizes - 1, sizes) - np.arange(len(order))]
        elements = unsigned_zero(elements[order])
        is_first = np.ones(len(elements), np.bool_)
        is_first[1:] = (lane[1:] != lane[:-1]) | (elements[1:] != elements[:-1])
        first = np.flatnonzero(is_first)
        if counts is None:
            counts = np.diff(first, append=len(elements))
        elif len(first):
            counts = np.add.reduceat(counts[order], first)
        lane, elements = lane[first], elements[first]
        # A value is taken as long as fewer than `most` elements of the lane are more extreme.
        before, of_lane = np.cumsum(counts) - counts, np.bincount(lane, minlength=n_lanes)
        begin = np.append(before, 0)[np.cumsum(of_lane) - of_lane]
        takes = before - np.repeat(begin, of_lane) < most
        if weights is not None:
            weights = weights[order].of_runs(first)[takes]
        n_values = np.bincount(lane[takes], minlength=n_lanes)
        return cls(measure, n_values, elements[takes], packed(counts[takes]), weights)

    @classmethod
    def merge(cls, parts: Sequence[Outermost], most: int, *, is_high: bool) -> Outermost:
        """Merge the values beyond the bounds of several parts of the same lanes.

        Each part has all of its elements that are more extreme than the last value that is left. So
        counts and weights are those of all parts.
        """
        lane = np.concatenate([np.repeat(np.arange(len(part.sizes)), part.sizes) for part in parts])
        order = np.argsort(lane, kind="stable")
        elements, counts = (
            np.concatenate([getattr(part, name) for part in parts])[order]
            for name in ("elements", "counts")
        )
        weights = [part.weights for part in parts if isinstance(part.weights, ExactSums)]
        return cls.of(
            sum_of([part.measure for part in parts]),
            lane[order],
            elements,
            most,
            is_high=is_high,
            counts=counts.astype(np.int64),
            weights=ExactSums.joined(weights)[order] if weights else None,
        )

    def repeated(self, most: int) -> tuple[IntArray, NDArray[Any]]:
        """Repeat each value by its count, up to `most` elements a lane.

        Returns the number of elements of each lane, and the elements.
        """
        if (self.counts == 1).all():
            return self.sizes, self.elements
        starts, some = np.cumsum(self.sizes) - self.sizes, self.sizes > 0
        counts = self.counts.astype(np.int64)
        before = np.cumsum(counts) - counts
        of_lane = np.repeat(before[starts[some]], self.sizes[some])
        times = np.minimum(counts, most - (before - of_lane))
        stops = np.append(0, np.cumsum(times))
        sizes = stops[starts + self.sizes] - stops[starts]
        return sizes, np.repeat(self.elements, times)


def _order_in_lanes(sizes: IntArray, lane: IntArray, elements: NDArray[Any]) -> IntArray:
    """Sort elements lane by lane, unless they are sorted; each lane has `sizes` of them."""
    if ((elements[1:] >= elements[:-1]) | (lane[1:] != lane[:-1])).all():
        return np.arange(len(elements))
    width = int(sizes.max(initial=0))
    if len(sizes) * width > PADDED * len(elements):
        return np.lexsort((elements, lane))
    is_one = np.arange(width) < sizes[:, None]
    table = np.full(is_one.shape, extremes_of(elements.dtype)[1], elements.dtype)
    table[is_one] = elements
    order = np.argsort(table, axis=1, kind="stable") + (np.cumsum(sizes) - sizes)[:, None]
    return np.asarray(order[is_one])


@dataclass(frozen=True, eq=False)
class LaneEnds(Arrays):
    """Elements beyond the bounds of each lane, in a part of the data or in all of it.

    Parameters
    ----------
    n_valid, n_missing, n_left_out : ndarray of int64, shape (n_lanes,)
        Number of valid elements, of missing ones, and of those that are left out. Elements of
        weight 0 are left out, too.
    measure : Measure, shape (n_lanes,)
        Number or weight of all valid elements.
    least, most : ndarray, shape (n_lanes,)
        The extremes; the largest and the smallest number of the dtype where nothing is valid.
    low, high : ndarray, shape (n_lanes,)
        The nearest elements inside the bounds, or as above where there is none.
    beyond_low, beyond_high : Outermost
        Elements beyond the lower and the upper bound.
    moments : Moments or RoundedMoments
        Rounded if they are those of whole lanes.
    """

    n_valid: IntArray
    n_missing: IntArray
    n_left_out: IntArray
    measure: Measure
    least: NDArray[Any]
    most: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    beyond_low: Outermost
    beyond_high: Outermost
    moments: Moments | RoundedMoments

    @classmethod
    def merge(cls, parts: Sequence[LaneEnds], most: int) -> LaneEnds:
        """Merge several parts of the same lanes, with values of `most` elements of each side."""
        if len(parts) == 1:
            return parts[0]
        columns = {
            field.name: [getattr(part, field.name) for part in parts] for field in fields(cls)
        }
        names = "n_valid", "n_missing", "n_left_out", "measure"
        sums = {name: sum_of(columns[name]) for name in names}
        lowest = {name: np.min(columns[name], axis=0) for name in ("least", "low")}
        highest = {name: np.max(columns[name], axis=0) for name in ("most", "high")}
        return cls(
            **sums,
            **lowest,
            **highest,
            beyond_low=Outermost.merge(columns["beyond_low"], most, is_high=False),
            beyond_high=Outermost.merge(columns["beyond_high"], most, is_high=True),
            moments=Moments.merge(columns["moments"]),
        )

    def less_left_out(self, n: IntArray) -> Self:
        return replace(self, n_left_out=self.n_left_out - n)

    @classmethod
    def of_whole_lanes(cls, pieces: Iterable[LaneEnds]) -> LaneEnds:
        """Join the ends of consecutive batches of lanes.

        Sums of lanes are rounded as soon as there are many: the digits of 62,500 lanes of 32
        elements of all magnitudes take six times the memory of the elements.
        """
        rounded: list[LaneEnds] = []
        waiting: list[LaneEnds] = []
        for piece in pieces:
            waiting.append(piece)
            if sum(len(each.n_valid) for each in waiting) >= LANES:
                rounded.append(join(waiting).rounded())
                waiting = []
        return join([*rounded, join(waiting).rounded()] if waiting else rounded)

    def rounded(self) -> Self:
        return replace(self, moments=RoundedMoments(*self.moments.mean_and_std()))


def ends_of_sorted(
    lanes: SortedLanes, bounds: Bounds, most: int, *, are_whole: bool = False
) -> LaneEnds:
    """Find the elements beyond the bounds of sorted lanes, at most `most` on each side.

    `are_whole` says that lanes are complete. Kernels with the same arguments may then round sums;
    here they are exact.
    """
    lane, place = np.nonzero(np.arange(lanes.values.shape[1]) < lanes.n_valid[:, None])
    numbers = lanes.n_valid, lanes.n_missing, lanes.n_left_out + lanes.n_idle
    weights = None if lanes.weights is None else lanes.weights[lane, place]
    return ends_of_values(lanes.values[lane, place], lane, numbers, bounds, most, weights=weights)


def ends_of_values(
    values: NDArray[Any],
    lane: IntArray,
    numbers: tuple[IntArray, IntArray, IntArray],
    bounds: Bounds,
    most: int,
    *,
    counts: IntArray | None = None,
    weights: NDArray[Any] | None = None,
) -> LaneEnds:
    """Find the values beyond the bounds of lanes, at most `most` on each side.

    Parameters
    ----------
    values, lane : ndarray
        Values that come lane by lane and ascend within a lane, and the lane of each.
    numbers : tuple of ndarrays
        Number of valid elements of each lane, of missing ones, and of those that are left out.
    bounds, most
        As for `ends_of_sorted`.
    counts : ndarray of int64, optional
        How often each value occurs; once by default.
    weights : ndarray, optional
        Weight of each value.
    """
    n_lanes = len(numbers[0])
    sizes = np.bincount(lane, minlength=n_lanes)
    stops = np.cumsum(sizes)
    starts, wide = stops - sizes, values.astype(np.float64)
    is_low, is_high = wide < bounds[0][lane], wide > bounds[1][lane]  # False for NaN
    n_low, n_high = (np.bincount(lane[each], minlength=n_lanes) for each in (is_low, is_high))
    least, largest = extremes_of(values.dtype)
    has_low, has_high = ~np.isnan(bounds)

    def at(places: IntArray, is_some: NDArray[np.bool_], other: Any) -> NDArray[Any]:
        elements = np.full(n_lanes, other, values.dtype)
        elements[is_some] = values[places[is_some]]
        return elements

    def measured(some: NDArray[np.bool_]) -> Measure:
        if weights is not None:
            return ExactSums.of(lane[some], n_lanes, weights[some])
        return totals(lane[some], (np.ones_like(lane) if counts is None else counts)[some], n_lanes)

    def beyond(some: NDArray[np.bool_], *, is_high: bool) -> Outermost:
        n = int(np.count_nonzero(some))
        own = None if weights is None else ExactSums.of(np.arange(n), n, weights[some])
        times = None if counts is None else counts[some]
        listed = measured(some), lane[some], values[some], most
        return Outermost.of(*listed, is_high=is_high, counts=times, weights=own)

    return LaneEnds(
        *numbers,
        numbers[0] if weights is None else measured(np.ones(len(lane), np.bool_)),
        at(starts, sizes > 0, largest),
        at(stops - 1, sizes > 0, least),
        at(starts + n_low, (n_low < sizes) & has_low, largest),
        at(stops - n_high - 1, (n_high < sizes) & has_high, least),
        beyond(is_low, is_high=False),
        beyond(is_high, is_high=True),
        Moments.of(values, lane, n_lanes, counts=counts, weights=weights),
    )
