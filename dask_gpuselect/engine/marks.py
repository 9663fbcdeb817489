"""What a load says of chunks, with the fingerprints of the chunks it has seen: so that a later load
is known to have seen the same, or the chunk is named that has changed.

Where an answer is made by one load alone, as a quantile is, there is no need for this: the counts
of that load prove it. It is for answers that several loads have a part in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.fingerprints import begun_fingerprint, ended_fingerprints
from dask_gpuselect.kernels.protocols import BegunFingerprint
from dask_gpuselect.maths.cuts import ADVICE, Arrays, ChunksChangedError

Marks = NDArray[np.uint64]
"""The fingerprints of some chunks, in the order of these."""

BegunMarks = tuple[int | BegunFingerprint, ...]
"""Those that devices may still be at, for which a report need not wait."""

NO_MARKS: Marks = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class KnownChunks(Arrays):
    """What is known of some chunks, and which these were.

    Parameters
    ----------
    value : object
    marks : ndarray of uint64
        Of the chunks; none where nobody asks. In reports of columns, `BegunMarks`.
    """

    value: Any
    marks: Any

    @classmethod
    def merge(cls, merge: Callable[[list[Any]], Any], parts: Sequence[Self]) -> Self:
        """What all parts say together."""
        return cls(merge([part.value for part in parts]), joined(part.marks for part in parts))


@dataclass(frozen=True, slots=True, eq=False)
class Slab(Arrays):
    """A part of a chunk, and the fingerprint of all of it, which may only have begun."""

    piece: Any
    mark: int | BegunFingerprint


def marks_of(chunks: Iterable[Any], *, ordered: bool) -> Marks:
    """The fingerprints of chunks, or of the whole chunks that slabs are of.

    They are `ordered` where the answer depends on the places of elements in a chunk, as it does
    along an axis. Where it does not, a source may give the elements of a chunk in another order at
    each load, as partitions come that dask shuffles on disk.
    """
    return ended(begun_marks(chunks, ordered=ordered))


def begun_marks(chunks: Iterable[Any], *, ordered: bool) -> BegunMarks:
    """The same, without waiting for them."""
    return tuple(
        c.mark if isinstance(c, Slab) else begun_fingerprint(c, ordered=ordered) for c in chunks
    )


def ended(marks: Marks | BegunMarks) -> Marks:
    """Marks for all of which the host waits at once, if it has to."""
    if isinstance(marks, np.ndarray):
        return marks
    return np.array(ended_fingerprints(marks), np.uint64)


def pieces_of(chunks: Iterable[Any]) -> list[Any]:
    """Chunks, or what slabs hold of them."""
    return [chunk.piece if isinstance(chunk, Slab) else chunk for chunk in chunks]


def joined(parts: Iterable[Any]) -> Any:
    """The marks of parts, one after the other; as long as they are only begun, still so."""
    given = list(parts)
    if all(isinstance(part, np.ndarray) for part in given):
        return np.concatenate([NO_MARKS, *given])
    each = (part.tolist() if isinstance(part, np.ndarray) else part for part in given)
    return tuple(itertools.chain.from_iterable(each))


def check_same(known: Marks, found: Marks, place_of: Callable[[int], Sequence[int]]) -> None:
    """Raise a `ChunksChangedError` unless two loads have seen the same chunks.

    Parameters
    ----------
    known, found : ndarray of uint64
        Of the earlier load and the later one, for the same chunks.
    place_of : callable
        The number of a chunk to its place in the grid of all.
    """
    differs = np.flatnonzero(known != found)
    if len(differs):
        raise changed(place_of(int(differs[0])))


def changed(place: Sequence[int]) -> ChunksChangedError:
    return ChunksChangedError(
        f"chunk {tuple(map(int, place))} had other elements in a later read than in an earlier "
        f"one. {ADVICE}"
    )


@dataclass(frozen=True)
class InGrid:
    """The place of a chunk by its number in C order."""

    numblocks: tuple[int, ...]

    def __call__(self, i: int) -> tuple[int, ...]:
        return tuple(map(int, np.unravel_index(i, self.numblocks)))


@dataclass(frozen=True)
class InColumn:
    """The place of a chunk by its number in its column.

    Parameters
    ----------
    numblocks : tuple of int
        Of the whole grid.
    axes : tuple of int
        Along which the column goes.
    place : tuple of int
        Of any of its chunks.
    """

    numblocks: tuple[int, ...]
    axes: tuple[int, ...]
    place: tuple[int, ...]

    def __call__(self, i: int) -> tuple[int, ...]:
        along = np.unravel_index(i, [self.numblocks[axis] for axis in self.axes])
        found = list(self.place)
        for axis, block in zip(self.axes, along, strict=True):
            found[axis] = int(block)
        return tuple(found)

    def number(self) -> int:
        """The number of the chunk at `place`."""
        along = [int(self.place[axis]) for axis in self.axes]
        return int(np.ravel_multi_index(along, [self.numblocks[axis] for axis in self.axes]))
