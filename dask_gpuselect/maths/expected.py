"""Counts that load 2 must find in every chunk, as proven by load 1.

A small table of bounds is made once, where the brackets are, and goes to load 2 together with them.
So a changed chunk is noticed at once and named, and no task of load 2 depends on the chunk's own
cuts. If it did, the time of `dask.order` would grow with the square of the number of chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import (
    ADVICE,
    Arrays,
    Brackets,
    ChunksChangedError,
    Cuts,
    IntArray,
    Tally,
)

# Largest number of counts in the table, 17 bytes each. If there are more, some ends are left out.
MOST_CHECKED = 1 << 20
# Number of counts that are computed together.
AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Expected(Arrays):
    """Bounds of the counts of every chunk at the ends of some brackets.

    Parameters
    ----------
    n_valid, n_missing : ndarray of int64, shape (B,)
        Number of valid elements, and of NaN or NaT, of each chunk.
    most_candidates : ndarray of int64, shape (B,)
        Largest number of candidates that each chunk can have.
    checked : ndarray of int64, shape (C,)
        Places of the ends that are checked: all of them, unless there are too many.
    least, most : ndarray of int64, shape (B, C)
        Bounds of the number of the chunk's elements below the end, and up to it: without and with
        all of the cell around the end. Where the end is a pivot of the chunk, the exact numbers
        below it and up to it.
    is_pivot : ndarray of bool, shape (B, C)
        True if the end is a pivot of the chunk.
    """

    n_valid: IntArray
    n_missing: IntArray
    most_candidates: IntArray
    checked: IntArray
    least: IntArray
    most: IntArray
    is_pivot: NDArray[np.bool_]

    @classmethod
    def of(cls, cuts: Cuts, brackets: Brackets, among: int = 0) -> Self:
        """Compute the bounds from the cuts of all chunks, or of some of `among` chunks."""
        n_chunks, n_ends = len(cuts.sizes), len(brackets.ends)
        n_checked = min(n_ends, max(MOST_CHECKED // max(n_chunks, among, 1), 1))
        checked = np.arange(n_checked) * n_ends // max(n_checked, 1)
        shape = (n_chunks, n_checked)
        least, most = np.empty(shape, np.int64), np.empty(shape, np.int64)
        is_pivot = np.empty(shape, np.bool_)
        most_candidates = np.empty(n_chunks, np.int64)
        size = max(AT_ONCE // (n_ends + 1), 1)
        for begin in range(0, n_chunks, size):
            part = slice(begin, begin + size)
            bounds = bounds_of(cuts, part, brackets.ends)
            least[part], most[part], is_pivot[part] = (each[:, checked] for each in bounds)
            most_candidates[part] = _most_candidates(*bounds, cuts.n_valid[part], brackets.wanted)
        return cls(cuts.n_valid, cuts.n_missing, most_candidates, checked, least, most, is_pivot)

    OF_CHUNKS: ClassVar[tuple[str, ...]] = (
        *("n_valid", "n_missing", "most_candidates"),
        *("least", "most", "is_pivot"),
    )
    """Names of the columns with a row for each chunk."""

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Join the bounds of all chunks of `parts`, in their order."""
        columns = ((name, [getattr(part, name) for part in parts]) for name in cls.OF_CHUNKS)
        return replace(parts[0], **{name: np.concatenate(column) for name, column in columns})

    def of_chunks(self, chunks: IntArray) -> Self:
        """Take some of the chunks, by their numbers, in that order."""
        return replace(self, **{name: getattr(self, name)[chunks] for name in self.OF_CHUNKS})

    def check(self, i: int, tally: Tally | None, brackets: Brackets, chunk: str) -> Tally:
        """Check that the second load of chunk `i` agrees with the bounds, and return its tally.

        Parameters
        ----------
        i : int
            Number of the chunk.
        tally : Tally or None
            Tally of the chunk from load 2; None if it had more candidates than it can have.
        brackets : Brackets
            Brackets of the tally.
        chunk : str
            Name of the chunk in messages, for example ``"(3, 0)"``.

        Raises
        ------
        ChunksChangedError
            Naming the chunk and what differs.
        """
        if tally is None:
            raise ChunksChangedError(
                f"chunk {chunk} had more elements inside the brackets in the second read than in "
                f"the first. {ADVICE}"
            )
        for kind, first, second in (
            ("valid", int(self.n_valid[i]), tally.n_valid),
            ("missing (NaN or NaT)", int(self.n_missing[i]), tally.n_missing),
        ):
            if first != second:
                raise ChunksChangedError(
                    f"chunk {chunk} had {first} {kind} elements in the first read and {second} in "
                    f"the second. {ADVICE}"
                )
        least, most, is_pivot = self.least[i], self.most[i], self.is_pivot[i]
        for where, at_least, at_most, found in (
            ("below", least, np.where(is_pivot, least, most), tally.below[self.checked]),
            ("up to", np.where(is_pivot, most, least), most, tally.upto[self.checked]),
        ):
            differs = (found < at_least) | (found > at_most)
            if differs.any():
                end = int(differs.argmax())
                raise ChunksChangedError(
                    f"chunk {chunk} had {at_least[end]} to {at_most[end]} elements {where} "
                    f"{brackets.ends[self.checked[end]]!s} in the first read and {found[end]} in "
                    f"the second. {ADVICE}"
                )
        return tally


Bounds = tuple[IntArray, IntArray, NDArray[np.bool_]]


def bounds_of(cuts: Cuts, part: slice, ends: NDArray[Any]) -> Bounds:
    """Bound the counts of some chunks at ascending distinct values `ends`, by their cuts.

    Returns `Expected.least`, `most` and `is_pivot`, of shape ``(chunks, ends)``.
    """
    last = np.cumsum(cuts.sizes)[part]
    sizes = cuts.sizes[part]
    first = last - sizes
    n_chunks, n_ends = len(sizes), len(ends)
    if not n_chunks or not n_ends:
        none = np.zeros((n_chunks, n_ends), np.int64)
        return none, none, none.astype(np.bool_)
    pivots = cuts.pivots[first[0] : last[-1]]
    chunk = np.repeat(np.arange(n_chunks), sizes)
    cell = ends.searchsorted(pivots, side="left")  # the first end that is not below the pivot
    counts = np.bincount(chunk * (n_ends + 1) + cell, minlength=n_chunks * (n_ends + 1))
    upto_end = counts.reshape(n_chunks, -1)[:, :n_ends].cumsum(axis=1)  # pivots of each chunk
    is_pivot = np.zeros((n_chunks, n_ends), np.bool_)
    is_end = cell < n_ends
    is_end[is_end] = ends[cell[is_end]] == pivots[is_end]
    is_pivot[chunk[is_end], cell[is_end]] = True
    behind = first[:, None] + upto_end  # index of the chunk's next pivot among all pivots
    before = np.where(upto_end > 0, _at(cuts.upto, behind - 1), 0)
    after = np.where(upto_end < sizes[:, None], _at(cuts.below, behind), cuts.n_valid[part, None])
    least = np.where(is_pivot, _at(cuts.below, behind - 1), before)
    return least, np.where(is_pivot, before, after), is_pivot


def _at(counts: IntArray, places: IntArray) -> IntArray:
    """Take the counts at some places; the values at places out of range are arbitrary."""
    return counts[np.clip(places, 0, len(counts) - 1)] if len(counts) else np.zeros_like(places)


def _most_candidates(
    least: IntArray,
    most: IntArray,
    is_pivot: NDArray[np.bool_],
    n_valid: IntArray,
    wanted: NDArray[np.bool_],
) -> IntArray:
    """Bound from above the number of elements of each chunk in the wanted cells."""
    most_below = np.where(is_pivot, least, most)
    least_upto = np.where(is_pivot, most, least)
    inside = np.hstack([most_below, n_valid[:, None]])
    inside[:, 1:] -= least_upto
    found: IntArray = inside[:, wanted].sum(axis=1)
    return found
