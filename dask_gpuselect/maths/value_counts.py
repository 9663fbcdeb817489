"""How often each value occurs, of data that have so few different ones that all can be counted.

Elements of one or two bytes have at most 65,536 values. Their counts are cuts at every value, so
they are the tally of any brackets too, and the sums of anything: one load answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import HostCandidates
from dask_gpuselect.maths.cuts import Arrays, Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.moments import DIGIT, SQUARE_POINT, TOTAL_POINT, Moments

MOST_BYTES = 2
"""Of an element, for its values to be counted."""

# A power of two that makes integers of all finite float16.
FLOAT16_POINT = 24


def is_countable(dtype: np.dtype[Any]) -> bool:
    """Whether elements of a dtype have so few values that all of them can be counted."""
    return dtype.itemsize <= MOST_BYTES and dtype.kind in "biuf"


def most_values(dtype: np.dtype[Any]) -> int:
    """How many values elements of a countable dtype can have."""
    return 2 if dtype.kind == "b" else 1 << 8 * dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class ValueCounts(Arrays):
    """The valid elements of some chunks, by their values.

    Parameters
    ----------
    values : ndarray, of a `selection_dtype`
        Those that occur, ascending and distinct. No NaN.
    counts : ndarray of int64
        How often each of them does.
    n_missing, n_left_out : int
        Number of NaN, and of elements that take no part.
    """

    values: NDArray[Any]
    counts: IntArray
    n_missing: int
    n_left_out: int = field(default=0, kw_only=True)

    @classmethod
    def of_words(cls, table: IntArray, dtype: np.dtype[Any]) -> Self:
        """By how often each word of bits occurs, of elements of a countable dtype."""
        words = np.flatnonzero(table)
        native = dtype.newbyteorder("=")
        values = words.astype(f"u{dtype.itemsize}").view(native).astype(selection_dtype(dtype))
        counts = table[words].astype(np.int64, copy=False)
        if dtype.kind != "f":
            order = np.argsort(values)
            return cls(values[order], counts[order], 0)
        is_missing = np.isnan(values)
        # Zeros of both signs are one value.
        distinct, place = np.unique(values[~is_missing] + np.float32(0), return_inverse=True)
        summed = np.zeros(len(distinct), np.int64)
        np.add.at(summed, place, counts[~is_missing])
        return cls(distinct, summed, int(counts[is_missing].sum()))

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """The counts of all parts together."""
        values = np.unique(np.concatenate([part.values for part in parts]))
        counts = np.zeros(len(values), np.int64)
        for part in parts:  # whose own values are distinct
            counts[np.searchsorted(values, part.values)] += part.counts
        n_missing = sum(part.n_missing for part in parts)
        return cls(values, counts, n_missing, n_left_out=sum(part.n_left_out for part in parts))

    @property
    def n_valid(self) -> int:
        return int(self.counts.sum())

    def cuts(self) -> Cuts:
        """The cuts of all elements as one chunk: exact at every value, with nothing between."""
        upto = np.cumsum(self.counts)
        distance = np.zeros(len(self.values))
        distance[:1] = np.nan  # the first cell has no lower end: unknown
        below = upto - self.counts
        counts = self.n_valid, self.n_missing
        return Cuts.of_chunk(self.values, below, upto, distance, *counts)

    def tally(self, brackets: Brackets) -> Tally:
        """What a load would find at some brackets."""
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

    def moments(self) -> Moments:
        """The exact sums of all elements."""
        is_finite = np.isfinite(self.values)
        counts = self.counts[is_finite].tolist()
        point = FLOAT16_POINT if self.values.dtype.kind == "f" else 0
        # Whole numbers: of float16, which float32 multiplies exactly.
        numbers = np.ldexp(self.values[is_finite].astype(np.float64), point).astype(np.int64)
        pairs = list(zip(numbers.tolist(), counts, strict=True))
        total = sum(number * count for number, count in pairs)
        square = sum(number * number * count for number, count in pairs)
        infinite = self.values[~is_finite], self.counts[~is_finite]
        return Moments(
            sum(counts),
            int(infinite[1][infinite[0] > 0].sum()),
            int(infinite[1][infinite[0] < 0].sum()),
            total << DIGIT * TOTAL_POINT - point,
            square << DIGIT * SQUARE_POINT - 2 * point,
        )
