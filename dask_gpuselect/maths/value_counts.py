"""Counts of each value, for data with so few values that all of them can be counted.

Elements of one or two bytes have at most 65,536 values. Their counts are cuts at every value. So
they determine the tally of any brackets, and any sum, and a single load gives the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import HostCandidates
from dask_gpuselect.maths.cuts import Arrays, Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.keys import from_keys, selection_dtype, to_keys
from dask_gpuselect.maths.moments import Moments

MOST_BYTES = 2
"""Largest size of an element in bytes for its values to be counted."""


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


@dataclass(frozen=True, slots=True, eq=False)
class ValueCounts(Arrays):
    """Counts of the distinct values among the valid elements of some chunks.

    Parameters
    ----------
    values : ndarray, of a `selection_dtype`
        Distinct values, ascending. No NaN.
    counts : ndarray of int64
        Number of elements that equal each value.
    n_missing, n_left_out : int
        Number of NaN, and of elements that take no part, such as masked ones.
    """

    values: NDArray[Any]
    counts: IntArray
    n_missing: int
    n_left_out: int = field(default=0, kw_only=True)

    @classmethod
    def of_table(cls, table: IntArray, dtype: np.dtype[Any]) -> Self:
        """Convert the count of every word of bits, for elements of a countable dtype."""
        words = np.flatnonzero(table)
        return cls.of_words(words, table[words].astype(np.int64, copy=False), dtype)

    @classmethod
    def of_words(cls, words: IntArray, counts: IntArray, dtype: np.dtype[Any]) -> Self:
        """Convert counts of some distinct words of bits, in any order."""
        values = words.astype(f"u{dtype.itemsize}").view(dtype.newbyteorder("="))
        is_missing = np.isnan(values) if dtype.kind == "f" else np.zeros(len(words), np.bool_)
        kind = selection_dtype(dtype)
        ordered = np.zeros(most_values(kind), np.int64)
        # Zeros of both signs have the same place.
        np.add.at(ordered, places_of_values(values[~is_missing].astype(kind)), counts[~is_missing])
        return cls._of_places(ordered, kind, int(counts[is_missing].sum()))

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Add up the counts of all parts."""
        if len(parts) == 1:
            return parts[0]
        kind = parts[0].values.dtype
        counts = np.zeros(most_values(kind), np.int64)
        for part in parts:  # the values of a part are distinct, so `+=` counts all
            counts[places_of_values(part.values)] += part.counts
        n_missing, n_left_out = (
            sum(getattr(part, name) for part in parts) for name in ("n_missing", "n_left_out")
        )
        return cls._of_places(counts, kind, n_missing, n_left_out=n_left_out)

    @classmethod
    def _of_places(
        cls, counts: IntArray, kind: np.dtype[Any], n_missing: int, n_left_out: int = 0
    ) -> Self:
        """Make counts from those of every possible value, in their order."""
        places = np.flatnonzero(counts)
        return cls(every_value(kind)[places], counts[places], n_missing, n_left_out=n_left_out)

    @property
    def n_valid(self) -> int:
        return int(self.counts.sum())

    def elements_at(self, ranks: IntArray) -> NDArray[Any]:
        """Find the elements of some ranks."""
        return self.values[np.searchsorted(np.cumsum(self.counts), ranks, side="right")]

    def cuts(self) -> Cuts:
        """Make cuts of all elements as one chunk: exact at every value, with nothing between."""
        upto = np.cumsum(self.counts)
        distance = np.zeros(len(self.values))
        distance[:1] = np.nan  # the first cell has no lower end: unknown
        below = upto - self.counts
        counts = self.n_valid, self.n_missing
        return Cuts.of_chunk(self.values, below, upto, distance, *counts)

    def tally(self, brackets: Brackets) -> Tally:
        """Make the tally that a load would find at some brackets."""
        upto = np.append(np.int64(0), np.cumsum(self.counts))
        first = np.searchsorted(self.values, brackets.ends, side="left")
        behind = np.searchsorted(self.values, brackets.ends, side="right")
        starts = np.append(0, behind)[brackets.wanted]
        stops = np.append(first, len(self.values))[brackets.wanted]
        cells = [slice(*cell) for cell in zip(starts, stops, strict=True)]
        pieces = [np.repeat(self.values[cell], self.counts[cell]) for cell in cells]
        candidates = HostCandidates(np.concatenate([self.values[:0], *pieces]))
        counts = self.n_valid, self.n_missing
        return Tally(upto[first], upto[behind], candidates, *counts, n_left_out=self.n_left_out)

    def among(self, values: NDArray[Any]) -> Self:
        """Take the elements that equal some of the values, given in ascending order."""
        if values is self.values:
            return self
        return type(self)(values, self.counts[np.searchsorted(self.values, values)], 0)

    def moments(self) -> Moments:
        """Compute the exact sums of all elements and of their squares."""
        every = np.zeros(len(self.values), np.int64)
        return Moments.of(self.values, every, 1, counts=self.counts)


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
