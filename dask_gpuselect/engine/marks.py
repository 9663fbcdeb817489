"""Fingerprints of chunks, which prove that several loads have read the same elements.

If one load alone proves an answer, as for a quantile, its counts are enough and no fingerprints are
needed. They serve answers to which several loads contribute. An error names the chunk that changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.fingerprints import (
    BegunFingerprint,
    begun_fingerprint,
    ended_fingerprints,
)
from dask_gpuselect.maths.cuts import ADVICE, Arrays, ChunksChangedError

Marks = NDArray[np.uint64]
"""Fingerprints of some chunks, in the order of the chunks."""

BegunMarks = tuple[int | BegunFingerprint, ...]
"""Fingerprints that devices may still be computing. A partial result need not wait for them."""

NO_MARKS: Marks = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class KnownChunks(Arrays):
    """A partial result about some chunks, with the fingerprints of these chunks.

    Parameters
    ----------
    value : object
        The partial result.
    marks : ndarray of uint64
        Fingerprints of the chunks; empty if they are not needed. For columns, `BegunMarks`.
    """

    value: Any
    marks: Any

    @classmethod
    def merge(cls, merge: Callable[[list[Any]], Any], parts: Sequence[Self]) -> Self:
        """Merge the partial results of several parts."""
        return cls(merge([part.value for part in parts]), joined(part.marks for part in parts))


@dataclass(frozen=True, slots=True, eq=False)
class Slab(Arrays):
    """A part of a chunk, with the fingerprint of the whole chunk, which may still be computed."""

    piece: Any
    mark: int | BegunFingerprint


def marks_of(chunks: Iterable[Any], *, ordered: bool) -> Marks:
    """Return the fingerprints of chunks, or of the whole chunks that slabs belong to.

    They are `ordered` where the answer depends on the positions of elements in a chunk, as it does
    along an axis. Otherwise a source may return the elements of a chunk in another order at each
    load, as partitions do after a shuffle on disk.
    """
    return ended(begun_marks(chunks, ordered=ordered))


def begun_marks(chunks: Iterable[Any], *, ordered: bool) -> BegunMarks:
    """Start to compute the fingerprints of chunks, without waiting for them."""
    return tuple(
        c.mark if isinstance(c, Slab) else begun_fingerprint(c, ordered=ordered) for c in chunks
    )


def ended(marks: Marks | BegunMarks) -> Marks:
    """Return finished fingerprints, waiting for all of them together if necessary."""
    if isinstance(marks, np.ndarray):
        return marks
    return np.array(ended_fingerprints(marks), np.uint64)


def pieces_of(chunks: Iterable[Any]) -> list[Any]:
    """Return chunks, with each `Slab` replaced by the part that it contains."""
    return [chunk.piece if isinstance(chunk, Slab) else chunk for chunk in chunks]


def joined(parts: Iterable[Any]) -> Any:
    """Concatenate the fingerprints of several parts; unfinished ones stay unfinished."""
    given = list(parts)
    if all(isinstance(part, np.ndarray) for part in given):
        return np.concatenate([NO_MARKS, *given])
    each = (part.tolist() if isinstance(part, np.ndarray) else part for part in given)
    return tuple(itertools.chain.from_iterable(each))


def check_same(known: Marks, marks: Marks, place_of: Callable[[int], Sequence[int]]) -> None:
    """Raise a `ChunksChangedError` unless two loads have read the same chunks.

    Parameters
    ----------
    known, marks : ndarray of uint64
        Fingerprints of the same chunks, by the earlier load and by the later one.
    place_of : callable
        Function from the number of a chunk to its place in the grid.
    """
    differs = np.flatnonzero(known != marks)
    if len(differs):
        raise changed(place_of(int(differs[0])))


def changed(place: Sequence[int]) -> ChunksChangedError:
    return ChunksChangedError(
        f"chunk {tuple(map(int, place))} had other elements in a later read than in an earlier "
        f"one. {ADVICE}"
    )


@dataclass(frozen=True)
class InColumn:
    """Function from the number of a chunk in its column to its place in the grid.

    Parameters
    ----------
    numblocks : tuple of int
        Shape of the whole grid of chunks.
    axes : tuple of int
        Axes along which the column extends.
    place : tuple of int
        Place of any chunk of the column.
    order : tuple of int
        The numbers of the chunks in the order in which they are counted; empty if that is C order.
    """

    numblocks: tuple[int, ...]
    axes: tuple[int, ...]
    place: tuple[int, ...]
    order: tuple[int, ...] = ()

    @classmethod
    def of_all(cls, numblocks: tuple[int, ...]) -> InColumn:
        """Return the function of the only column, which extends along all axes."""
        return cls(numblocks, tuple(range(len(numblocks))), (0,) * len(numblocks))

    def __call__(self, i: int) -> tuple[int, ...]:
        number = self.order[i] if self.order else i
        along = np.unravel_index(number, [self.numblocks[axis] for axis in self.axes])
        places = list(self.place)
        for axis, block in zip(self.axes, along, strict=True):
            places[axis] = int(block)
        return tuple(places)

    def number(self) -> int:
        """Return the number in its column of the chunk at `place`."""
        along = [int(self.place[axis]) for axis in self.axes]
        return int(np.ravel_multi_index(along, [self.numblocks[axis] for axis in self.axes]))
