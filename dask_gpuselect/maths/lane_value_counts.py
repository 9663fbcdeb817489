"""Counts of each value in every lane, or in every group, for data that have few values.

Plain NumPy on the host; see `value_counts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Arrays, IntArray, packed
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes, ranks_of_each
from dask_gpuselect.maths.lane_ends import Bounds, LaneEnds, Outermost
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.value_counts import (
    ValueCounts,
    every_value,
    most_values,
    places_of_values,
)


@dataclass(frozen=True, eq=False)
class LaneValueCounts(Arrays):
    """Counts of the distinct values in many lanes, of some chunks.

    Parameters
    ----------
    sizes : ndarray of unsigned integers, shape (n_lanes,)
        Number of distinct values in each lane.
    values : ndarray, shape (P,)
        Distinct values, lane by lane, ascending within a lane. No NaN.
    counts : ndarray of unsigned integers, shape (P,)
        Number of elements that equal each value.
    n_missing, n_left_out : ndarray of unsigned integers, shape (n_lanes,)
        Number of NaN, and of elements that take no part, such as masked ones.

    Notes
    -----
    Unsigned integers have as few bytes as possible, as there may be as many values as elements.
    """

    sizes: NDArray[Any]
    values: NDArray[Any]
    counts: NDArray[Any]
    n_missing: NDArray[Any]
    n_left_out: NDArray[Any]

    @classmethod
    def of_words(cls, table: IntArray, dtype: np.dtype[Any], n_left_out: IntArray) -> Self:
        """Convert counts of words of bits, for elements of a dtype of one or two bytes.

        `table` has shape ``(n_lanes, n_words)``: how often each word occurs in every lane.
        """
        words, missing = _words_in_order(dtype.newbyteorder("="))
        n_missing = np.asarray(table[:, missing].sum(axis=1))
        if dtype.kind == "f":
            table[:, 0] += table[:, MINUS_ZERO]  # -0.0 and +0.0 are one value
        values = words.view(dtype.newbyteorder("=")) if dtype.kind != "b" else words
        ordered = table[:, words] if dtype.kind in "if" else table
        return cls._of_table(ordered, values.astype(selection_dtype(dtype)), n_missing, n_left_out)

    @classmethod
    def of_lanes(cls, lanes: Sequence[ValueCounts], dtype: np.dtype[Any]) -> Self:
        """Join the counts of single lanes, of elements of `dtype`."""
        none = np.empty(0, selection_dtype(dtype))
        of_each = ([getattr(lane, name) for lane in lanes] for name in ("n_missing", "n_left_out"))
        return cls(
            packed(np.array([len(lane.values) for lane in lanes], np.int64)),
            np.concatenate([none, *(lane.values for lane in lanes)]),
            packed(np.concatenate([np.empty(0, np.int64), *(lane.counts for lane in lanes)])),
            *(packed(np.array(each, np.int64)) for each in of_each),
        )

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Add up the counts of all parts."""
        if len(parts) == 1:
            return parts[0]
        kind, n_lanes = parts[0].values.dtype, parts[0].n_lanes
        table = np.zeros(n_lanes * most_values(kind), np.int64)
        for part in parts:  # whose values are distinct in each lane, so that `+=` counts all
            places = part._lanes * most_values(kind) + places_of_values(part.values)
            table[places] += part.counts.astype(np.int64)
        n_missing, n_left_out = (
            np.asarray(np.sum([getattr(part, name) for part in parts], axis=0, dtype=np.int64))
            for name in ("n_missing", "n_left_out")
        )
        ordered = table.reshape(n_lanes, most_values(kind))
        return cls._of_table(ordered, every_value(kind), n_missing, n_left_out)

    @classmethod
    def _of_table(
        cls, ordered: IntArray, values: NDArray[Any], n_missing: IntArray, n_left_out: IntArray
    ) -> Self:
        """Make counts from a table of the counts of some ascending values in every lane."""
        n_lanes, n_values = ordered.shape
        flat = ordered.reshape(-1)
        places = np.flatnonzero(flat)
        sizes = np.count_nonzero(ordered, axis=1) if n_lanes else np.empty(0, np.int64)
        some = values[places % max(n_values, 1)]
        return cls(packed(sizes), some, packed(flat[places]), packed(n_missing), packed(n_left_out))

    def spread(self, places: IntArray, n_lanes: int) -> Self:
        """Place these lanes among `n_lanes`, at ascending places; other lanes are empty."""
        columns = {}
        for name in ("sizes", "n_missing", "n_left_out"):
            own = getattr(self, name)
            columns[name] = np.zeros(n_lanes, own.dtype)
            columns[name][places] = own
        return replace(self, **columns)

    @property
    def n_lanes(self) -> int:
        return len(self.sizes)

    @property
    def n_valid(self) -> IntArray:
        """Number of elements of each lane."""
        upto = np.append(np.int64(0), self._upto)
        return np.asarray(upto[self._stops] - upto[self._stops - self.sizes])

    @cached_property
    def _stops(self) -> IntArray:
        """Index behind the last value of each lane."""
        return np.cumsum(self.sizes, dtype=np.int64)

    @cached_property
    def _upto(self) -> IntArray:
        """Number of elements up to each value, in its lane and all lanes before."""
        return np.cumsum(self.counts, dtype=np.int64)

    @property
    def _lanes(self) -> IntArray:
        """Lane of each value."""
        return np.repeat(np.arange(self.n_lanes), self.sizes)

    def order_statistics(self, ranks: RanksOfLanes) -> Lanes:
        """Find the elements of some ranks in every lane."""
        n_valid = self.n_valid
        before = (np.cumsum(n_valid) - n_valid)[:, None]
        pair = ranks_of_each(n_valid, ranks)
        values = self.values if len(self.values) else np.zeros(1, self.values.dtype)
        lower, upper = (
            values[np.minimum(np.searchsorted(self._upto, before + rank, "right"), len(values) - 1)]
            for rank in pair
        )
        return Lanes(lower, upper, n_valid, self.n_missing.astype(np.int64))

    def mapped(self, function: Callable[[NDArray[Any], IntArray], NDArray[Any]]) -> Self:
        """Apply ``function(values, lanes)`` to the elements, and sort the results.

        Equal results stay separate values.
        """
        lanes = self._lanes
        values = function(self.values, lanes)
        order = np.lexsort((values, lanes))
        return replace(self, values=values[order], counts=self.counts[order])

    def ends(self, bounds: Bounds, most: int) -> LaneEnds:
        """Find the elements beyond the bounds of every lane, at most `most` on each side."""
        values, lanes = self.values, self._lanes
        wide = values.astype(np.float64)
        low, high = bounds.low[lanes], bounds.high[lanes]
        least, largest = _extremes(values.dtype)
        first, last = self._stops - self.sizes, self._stops - 1
        some = np.flatnonzero(self.sizes)

        def nearest(inside: NDArray[np.bool_], other: Any, find: Any) -> NDArray[Any]:
            elements = np.full(self.n_lanes, other, values.dtype)
            if len(some):
                elements[some] = find.reduceat(np.where(inside, values, other), first[some])
            return elements

        def at(places: IntArray, other: Any) -> NDArray[Any]:
            elements = np.full(self.n_lanes, other, values.dtype)
            elements[some] = values[places[some]]
            return elements

        counts = self.counts.astype(np.int64)

        def outermost(beyond: NDArray[np.bool_], *, is_high: bool) -> Outermost:
            n = _sums_of_lanes(counts[beyond], lanes[beyond], self.n_lanes)
            some = lanes[beyond], values[beyond], most
            return Outermost.of(n, *some, is_high=is_high, counts=counts[beyond])

        n_valid = self.n_valid
        return LaneEnds(
            n_valid,
            self.n_missing.astype(np.int64),
            self.n_left_out.astype(np.int64),
            n_valid,
            at(first, largest),
            at(last, least),
            nearest(wide >= low, largest, np.minimum),
            nearest(wide <= high, least, np.maximum),
            outermost(wide < low, is_high=False),
            outermost(wide > high, is_high=True),
            Moments.of(values, lanes, self.n_lanes, counts=self.counts),
        )


MINUS_ZERO = 1 << 15  # the bits of -0.0 as float16


@cache
def _words_in_order(dtype: np.dtype[Any]) -> tuple[NDArray[Any], IntArray]:
    """Return the words of a countable dtype in the order of their values, and the NaN words."""
    words = np.arange(1 << 8 * dtype.itemsize).astype(f"u{dtype.itemsize}")
    if dtype.kind in "ub":
        return words, np.empty(0, np.int64)
    values = words.view(dtype)
    order = np.argsort(values.astype(selection_dtype(dtype)), kind="stable")
    is_missing = values[order] != values[order]
    is_other = is_missing | (order == MINUS_ZERO) if dtype.kind == "f" else is_missing
    return words[order[~is_other]], order[is_missing]


def _extremes(kind: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the least and the largest number of a `selection_dtype`."""
    if kind.kind == "f":
        return -np.inf, np.inf
    return np.iinfo(kind).min, np.iinfo(kind).max


def _sums_of_lanes(counts: IntArray, lanes: IntArray, n_lanes: int) -> IntArray:
    sums = np.zeros(n_lanes, np.int64)
    np.add.at(sums, lanes, counts)
    return sums
