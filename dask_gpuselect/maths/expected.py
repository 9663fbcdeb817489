"""Counts that load 2 must find in every chunk, as proven by load 1.

A small table of bounds is made once, where the brackets are, and goes to load 2 together with them.
So a changed chunk is noticed at once and named, and no task of load 2 depends on the chunk's own
cuts. If it did, the time of `dask.order` would grow with the square of the number of chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import (
    ADVICE,
    Brackets,
    ChunksChangedError,
    Cuts,
    IntArray,
    Joined,
    Tally,
)
from dask_gpuselect.maths.weights import POINT, WEIGHT_UNIT

# Largest number of counts in the table, 17 bytes each. If there are more, some ends are left out.
MOST_CHECKED = 1 << 20
# Number of counts that are computed together.
AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Expected(Joined):
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
    weight, weight_most : ndarray of int64, shape (B,), optional
        Bounds of the weight of all elements of each chunk, in units of ``2**unit``. None if
        elements have no weights; then the other weights are None, too.
    least_weight, most_weight : ndarray of int64, shape (B, C), optional
        Bounds of the weight of the elements up to the end.
    unit : ndarray of int64, shape (B,), optional
        Exponent of each chunk's unit.
    """

    n_valid: IntArray
    n_missing: IntArray
    most_candidates: IntArray
    checked: IntArray
    least: IntArray
    most: IntArray
    is_pivot: NDArray[np.bool_]
    weight: IntArray | None = None
    weight_most: IntArray | None = None
    least_weight: IntArray | None = None
    most_weight: IntArray | None = None
    unit: IntArray | None = None

    @classmethod
    def of(cls, cuts: Cuts, brackets: Brackets, among: int = 0) -> Self:
        """Compute the bounds from the cuts of all chunks, or of some of `among` chunks."""
        n_chunks, n_ends = len(cuts.sizes), len(brackets.ends)
        n_checked = min(n_ends, max(MOST_CHECKED // max(n_chunks, among, 1), 1))
        checked = np.arange(n_checked) * n_ends // max(n_checked, 1)
        size, parts = max(AT_ONCE // (n_ends + 1), 1), []
        for begin in range(0, max(n_chunks, 1), size):
            part = slice(begin, begin + size)
            cells = cells_of(cuts, part, brackets.ends)
            bounds = bounds_of(cells, cuts.upto, cuts.below, cuts.n_valid)
            n_candidates = _most_candidates(*bounds, cuts.n_valid[part], brackets.wanted)
            of_ends = *bounds, *(weights_of(cuts, cells) if cuts.weighs else ())
            parts.append([n_candidates, *(each[:, checked] for each in of_ends)])
        columns = map(np.concatenate, zip(*parts, strict=True))
        most_candidates, least, most, is_pivot, *weights = columns
        of_counts = most_candidates, checked, least, most, is_pivot
        of_weights = cuts.weight, cuts.weight_most, *(weights or (None, None)), cuts.unit
        return cls(cuts.n_valid, cuts.n_missing, *of_counts, *of_weights)

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Join the bounds of all chunks of `parts`, in their order."""
        return replace(cast(Self, Joined.merge(parts)), checked=parts[0].checked)

    def of_chunks(self, chunks: IntArray) -> Self:
        """Take some of the chunks, by their numbers, in that order."""
        columns = {name: column for name, column in self.by_name().items() if name != "checked"}
        return replace(self, **{name: column[chunks] for name, column in columns.items()})

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
        for where, at_least, at_most, counts in (
            ("below", least, np.where(is_pivot, least, most), tally.below[self.checked]),
            ("up to", np.where(is_pivot, most, least), most, tally.upto[self.checked]),
        ):
            differs = (counts < at_least) | (counts > at_most)
            if differs.any():
                end = int(differs.argmax())
                raise ChunksChangedError(
                    f"chunk {chunk} had {at_least[end]} to {at_most[end]} elements {where} "
                    f"{brackets.ends[self.checked[end]]!s} in the first read and {counts[end]} in "
                    f"the second. {ADVICE}"
                )
        if self.unit is not None and tally.n_valid and not self._has_weights(i, tally):
            raise ChunksChangedError(
                f"chunk {chunk} had other weights beside its elements in the first read than in "
                f"the second. {ADVICE}"
            )
        return tally

    def _has_weights(self, i: int, tally: Tally) -> bool:
        """Return whether the weights in a tally of chunk `i` agree with the bounds."""
        assert self.unit is not None
        shift = int(self.unit[i]) + POINT  # negative for tiny weights
        finer, coarser = max(-shift, 0), max(shift, 0)
        names = "weight", "weight_most", "least_weight", "most_weight"
        least, most, *of_ends = (getattr(self, name)[i : i + 1].astype(object) for name in names)
        total = tally.weight.integers(WEIGHT_UNIT)[0] << finer
        upto = tally.weight_upto[self.checked].integers(WEIGHT_UNIT) << finer
        at_least, at_most = (each[0] << coarser for each in of_ends)
        is_whole = least[0] << coarser <= total <= most[0] << coarser
        return bool(is_whole and ((at_least <= upto) & (upto <= at_most)).all())


class EndPlaces(NamedTuple):
    """Places of ascending distinct values `ends` among the pivots of some chunks.

    Parameters
    ----------
    part : slice
        The chunks.
    behind : ndarray of int64, shape (chunks, ends)
        Place of the first pivot behind the end, among the pivots of all chunks.
    is_first, is_last, is_pivot : ndarray of bool, shape (chunks, ends)
        True if no pivot of the chunk is at or before the end, if none is behind it, and if one is
        equal to it.
    """

    part: slice
    behind: IntArray
    is_first: NDArray[np.bool_]
    is_last: NDArray[np.bool_]
    is_pivot: NDArray[np.bool_]


Bounds = tuple[IntArray, IntArray, NDArray[np.bool_]]


def cells_of(cuts: Cuts, part: slice, ends: NDArray[Any]) -> EndPlaces:
    """Find ascending distinct values `ends` among the pivots of some chunks."""
    last = np.cumsum(cuts.sizes)[part]
    sizes = cuts.sizes[part]
    first = last - sizes
    n_chunks, n_ends = len(sizes), len(ends)
    if not n_chunks or not n_ends:
        none = np.zeros((n_chunks, n_ends), np.int64)
        return EndPlaces(part, none, *(none.astype(np.bool_) for _ in range(3)))
    pivots = cuts.pivots[first[0] : last[-1]]
    chunk = np.repeat(np.arange(n_chunks), sizes)
    cell = ends.searchsorted(pivots, side="left")  # the first end that is not below the pivot
    counts = np.bincount(chunk * (n_ends + 1) + cell, minlength=n_chunks * (n_ends + 1))
    upto_end = counts.reshape(n_chunks, -1)[:, :n_ends].cumsum(axis=1)  # pivots of each chunk
    is_pivot = np.zeros((n_chunks, n_ends), np.bool_)
    is_end = cell < n_ends
    is_end[is_end] = ends[cell[is_end]] == pivots[is_end]
    is_pivot[chunk[is_end], cell[is_end]] = True
    behind = first[:, None] + upto_end
    return EndPlaces(part, behind, upto_end == 0, upto_end == sizes[:, None], is_pivot)


def bounds_of(cells: EndPlaces, upto: IntArray, below: IntArray, whole: IntArray) -> Bounds:
    """Bound a measure of some chunks at the ends of some cells.

    The measure is known up to all pivots, below them, and of each chunk. Returns `Expected.least`,
    `most` and `is_pivot`, of shape ``(chunks, ends)``.
    """
    before, at, after = _around(cells, upto, below, whole)
    is_pivot = cells.is_pivot
    return np.where(is_pivot, at, before), np.where(is_pivot, before, after), is_pivot


def weights_of(cuts: Cuts, cells: EndPlaces) -> tuple[IntArray, IntArray]:
    """Bound the weights of some chunks at the ends of some cells, by their cuts.

    Returns `Expected.least_weight` and `most_weight`, of shape ``(chunks, ends)``.
    """
    columns: Any = cuts.weight_least, cuts.weight_below, cuts.weight_most
    before, _, after = _around(cells, *columns)
    at_pivot = _at(cuts.weight_upto, cells.behind - 1)
    return before, np.where(cells.is_pivot, at_pivot, after)


def _around(cells: EndPlaces, upto: IntArray, below: IntArray, whole: IntArray) -> list[IntArray]:
    """Return a measure up to the last pivot that is not behind each end, and below it.

    The third array is the measure below the next pivot of the chunk, or of the whole chunk.
    """
    part, behind, is_first, is_last, _ = cells
    before = np.where(is_first, 0, _at(upto, behind - 1))
    after = np.where(is_last, whole[part, None], _at(below, behind))
    return [before, _at(below, behind - 1), after]


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
    n_candidates: IntArray = inside[:, wanted].sum(axis=1)
    return n_candidates
