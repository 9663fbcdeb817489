"""The ends of many lanes whose elements weigh: what is beyond two bounds of each, and what all of
them sum up to, exactly. See `lane_ends`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Arrays, IntArray
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.lane_ends import joined
from dask_gpuselect.maths.lane_weights import Numbers
from dask_gpuselect.maths.moments import Moments


@dataclass(frozen=True, eq=False)
class HeavyEnds(Arrays):
    """What lies beyond one bound of each lane.

    Parameters
    ----------
    weight : ExactSums, shape (n_lanes,)
        What all of it weighs.
    kept : ndarray of int64, shape (n_lanes,)
        How many distinct values are here: those of the most extreme elements.
    elements : ndarray, shape (kept.sum(),)
        Lane by lane, the most extreme first.
    counts, weights : ndarray of int64, and ExactSums, of the same shape
        How many elements equal each, and what they weigh.
    """

    weight: ExactSums
    kept: IntArray
    elements: NDArray[Any]
    counts: IntArray
    weights: ExactSums

    @classmethod
    def of(
        cls, weight: ExactSums, lane: IntArray, elements: NDArray[Any], weights: NDArray[Any]
    ) -> Self:
        """Of elements that come lane by lane, equal ones side by side."""
        group, first = _runs(lane, elements)
        counts = np.bincount(group, minlength=len(first))
        kept = np.bincount(lane[first], minlength=len(weight))
        sums = ExactSums.of(group, len(first), weights)
        return cls(weight, kept, unsigned_zero(elements[first]), counts, sums)

    @classmethod
    def merge(cls, parts: Sequence[Self], most: int, *, is_high: bool) -> Self:
        """What lies beyond the bounds in several parts of the same lanes, and of it the values of
        at most so many elements.

        Each part has all of its elements that equal a value, or are more extreme, so the counts and
        weights of what is left are those of all parts.
        """
        weight = ExactSums.sum([part.weight for part in parts])
        lane = np.concatenate([np.repeat(np.arange(len(part.kept)), part.kept) for part in parts])
        elements, counts = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("elements", "counts")
        )
        weights = ExactSums.joined([part.weights for part in parts])
        order = np.lexsort((elements, lane))
        if is_high:
            order = order[::-1][np.argsort(lane[order[::-1]], kind="stable")]
        lane, elements = lane[order], elements[order]
        _, first = _runs(lane, elements)
        if len(first):
            counts = np.add.reduceat(counts[order], first)
            weights = weights[order].of_runs(first)
        lane, elements = lane[first], elements[first]
        # As long as fewer elements of the lane are more extreme.
        before = np.cumsum(counts) - counts
        of_lane = np.searchsorted(lane, lane)
        is_kept = before - before[of_lane] < most
        kept = np.bincount(lane[is_kept], minlength=len(parts[0].kept))
        return cls(weight, kept, elements[is_kept], counts[is_kept], weights[is_kept])


def _runs(lane: IntArray, elements: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Of which run of equal elements of a lane each element is, and where each run begins."""
    if not len(lane):
        return lane, lane
    is_first = np.append(True, (lane[1:] != lane[:-1]) | (elements[1:] != elements[:-1]))
    return np.cumsum(is_first) - 1, np.flatnonzero(is_first)


@dataclass(frozen=True, eq=False)
class WeightedLaneEnds(Arrays):
    """What is beyond the bounds of each lane, in a part of the data or in all.

    Parameters
    ----------
    numbers : Numbers
    least, most, low, high : ndarray, shape (n_lanes,)
        As of `LaneEnds`.
    weight : ExactSums, shape (n_lanes,)
        Of all elements.
    beyond_low, beyond_high : HeavyEnds
    moments : Moments
    """

    numbers: Numbers
    least: NDArray[Any]
    most: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    weight: ExactSums
    beyond_low: HeavyEnds
    beyond_high: HeavyEnds
    moments: Moments

    @classmethod
    def merge(cls, parts: Sequence[Self], most: int) -> Self:
        """The ends of several parts of the same lanes, with values of so many elements of each
        side."""
        columns = {each.name: [getattr(part, each.name) for part in parts] for each in fields(cls)}
        return cls(
            numbers=Numbers.sum(columns["numbers"]),
            least=np.min(columns["least"], axis=0),
            most=np.max(columns["most"], axis=0),
            low=np.min(columns["low"], axis=0),
            high=np.max(columns["high"], axis=0),
            beyond_low=HeavyEnds.merge(columns["beyond_low"], most, is_high=False),
            beyond_high=HeavyEnds.merge(columns["beyond_high"], most, is_high=True),
            weight=ExactSums.sum(columns["weight"]),
            moments=Moments.merge(columns["moments"]),
        )

    def less_left_out(self, n: IntArray) -> Self:
        return replace(self, numbers=self.numbers.less_left_out(n))

    @classmethod
    def joined(cls, pieces: Sequence[Self]) -> Self:
        """The ends of some lanes, and of the next, as one."""
        found: Self = joined(pieces)
        return found
