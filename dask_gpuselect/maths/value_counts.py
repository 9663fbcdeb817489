"""Counts of each value, for data with so few values that all of them can be counted.

Elements of one or two bytes have at most 65,536 values. Their counts are cuts at every value. So
they determine the tally of any brackets, and any sum, and a single load gives the answer: for all
elements, for every lane, and for every group.

Plain NumPy on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import Arrays, Brackets, Cuts, IntArray, Tally, packed
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.keys import from_keys, selection_dtype, to_keys
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes, ranks_of_each
from dask_gpuselect.maths.lane_ends import Bounds, LaneEnds, ends_of_values
from dask_gpuselect.maths.moments import Moments

MOST_BYTES = 2
"""Largest size of an element in bytes for its values to be counted."""
MOST_SQUARES = 1 << 31
"""Number of integers of two bytes, below which the sum of their squares is below 2**63."""


def is_countable(dtype: np.dtype[Any]) -> bool:
    """Return whether elements of a dtype have so few values that all of them can be counted."""
    return dtype.itemsize <= MOST_BYTES and dtype.kind in "biuf"


def most_values(dtype: np.dtype[Any]) -> int:
    """Return how many values a countable dtype, or its `selection_dtype`, can have."""
    return 256 if dtype.itemsize == 1 else 1 << 16


def counts_bytes(dtype: np.dtype[Any], n: float = math.inf) -> int:
    """Return the most bytes that the counts of a lane of n elements take, with their values.

    NaN as `n` means that the number is not known.
    """
    n = most_values(dtype) if math.isnan(n) else min(n, most_values(dtype))
    return int(n) * (selection_dtype(dtype).itemsize + np.dtype(np.int64).itemsize)


@dataclass(frozen=True, eq=False)
class ValueCounts(Arrays):
    """Counts of the distinct values in one or many lanes, of some chunks.

    All elements are one lane, and so is a group.

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
    def of_words(
        cls, table: IntArray, dtype: np.dtype[Any], n_left_out: IntArray | None = None
    ) -> Self:
        """Convert counts of words of bits, for elements of a dtype of one or two bytes.

        `table` has shape ``(n_lanes, n_words)``: how often each word occurs in every lane.
        """
        if n_left_out is None:
            n_left_out = np.zeros(len(table), np.int64)
        words, missing = _words_in_order(dtype.newbyteorder("="))
        n_missing = np.asarray(table[:, missing].sum(axis=1))
        if dtype.kind == "f":
            table[:, 0] += table[:, MINUS_ZERO]  # -0.0 and +0.0 are one value
        values = words.view(dtype.newbyteorder("=")) if dtype.kind != "b" else words
        ordered = table.take(words, axis=1) if dtype.kind in "if" else table
        return cls._of_table(ordered, values.astype(selection_dtype(dtype)), n_missing, n_left_out)

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
        places = np.flatnonzero(flat != 0)  # 2 to 6 times as fast as of the counts
        sizes = np.diff(places.searchsorted(np.arange(n_lanes + 1) * n_values))
        some = values[places % max(n_values, 1)]
        return cls(packed(sizes), some, packed(flat[places]), packed(n_missing), packed(n_left_out))

    @classmethod
    def of_lane(cls, values: NDArray[Any], counts: IntArray, n_missing: int) -> Self:
        """Make the counts of a single lane, from its ascending distinct values."""
        sizes, missing, left_out = (np.array([n]) for n in (len(values), n_missing, 0))
        return cls(packed(sizes), values, packed(counts), packed(missing), left_out)

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
        left_out = self.n_left_out.astype(np.int64)
        numbers = self.n_valid, self.n_missing.astype(np.int64), left_out
        counts = self.counts.astype(np.int64)
        return ends_of_values(self.values, self._lanes, numbers, bounds, most, counts=counts)

    def moments(self, some: Any = slice(None)) -> Moments:
        """Compute the exact sums of each lane and of its squares, of all values or of some."""
        lanes, counts = self._lanes[some], self.counts[some].astype(np.int64)
        values = self.values[some]
        if values.dtype.kind not in "iu" or counts.sum() >= MOST_SQUARES:
            return Moments.of(values, lanes, self.n_lanes, counts=counts)
        # A box plot of 2^20 uint8 takes 1.5 ms so, and 2.0 by digits.
        numbers, sums = values.astype(np.int64), np.zeros((3, self.n_lanes), np.int64)
        for row, each in zip(sums, (counts, counts * numbers, counts * numbers**2), strict=True):
            np.add.at(row, lanes, each)
        total, square = (ExactSums.of_table(row[:, None], 0) for row in sums[1:])
        none = np.zeros_like(sums[0])
        return Moments(sums[0], none, none, total, square)

    # --- Of a single lane, such as all elements ---

    def cuts(self) -> Cuts:
        """Make cuts of the lane as one chunk: exact at every value, with nothing between."""
        upto, counts = self._upto, (self.n_valid.item(), self.n_missing.item())
        return Cuts.of_chunk(self.values, upto - self.counts.astype(np.int64), upto, *counts)

    def tally(self, brackets: Brackets) -> Tally:
        """Make the tally that a load would find at some brackets."""
        upto, times = np.append(np.int64(0), self._upto), self.counts.astype(np.int64)
        first = np.searchsorted(self.values, brackets.ends, side="left")
        behind = np.searchsorted(self.values, brackets.ends, side="right")
        some = brackets.places_inside(first, behind, len(self.values))
        candidates = Candidates(np.repeat(self.values[some], times[some]))
        counts = self.n_valid.item(), self.n_missing.item()
        n_left_out = self.n_left_out.item()
        return Tally(upto[first], upto[behind], candidates, *counts, n_left_out=n_left_out)


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


@cache
def every_value(kind: np.dtype[Any]) -> NDArray[Any]:
    """List all values of a `selection_dtype`, ascending.

    For floats these are the values of float16, with NaN at both ends.
    """
    places = np.arange(most_values(kind))
    if kind.kind == "f":
        return from_keys(places.astype(np.uint64), np.dtype(np.float16))
    return np.asarray((places + np.iinfo(kind).min).astype(kind))


def places_of_values(values: NDArray[Any]) -> IntArray:
    """Find the places of values among `every_value` of their dtype.

    Floats must have values of float16.
    """
    if values.dtype.kind == "f":
        return to_keys(values.astype(np.float16)).astype(np.int64)
    return values.astype(np.int64) - np.iinfo(values.dtype).min
