"""Partial results of the two loads, how a chunk makes them, and how they are merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.engine.marks import NO_MARKS, Marks, joined, marks_of
from dask_gpuselect.engine.questions import ArrayQuestion, Question, Summed
from dask_gpuselect.maths.cuts import Arrays, Brackets, Cuts, IntArray, Tally, merge_all, merge_any
from dask_gpuselect.maths.expected import Expected
from dask_gpuselect.maths.moments import Moments


@dataclass(frozen=True, slots=True, eq=False)
class Proven(Arrays):
    """Proven brackets, with the counts that they imply for every chunk.

    Parameters
    ----------
    brackets : Brackets
        The brackets.
    expected : Expected
        Expected counts of the chunks, in C order, by the cuts that prove the brackets.
    numblocks : tuple of int
        Shape of the grid of chunks.
    """

    brackets: Brackets
    expected: Expected
    numblocks: tuple[int, ...]

    @classmethod
    def by(
        cls,
        cuts: Cuts,
        brackets: Brackets,
        numblocks: tuple[int, ...] = (),
        turns: IntArray | None = None,
    ) -> Proven:
        """Combine brackets with the cuts that prove them: those of all chunks, or of the only one.

        The cuts are in the order of the chunks. With `turns`, those of chunk i are at position
        ``turns[i]``.
        """
        expected = Expected.of(cuts, brackets)
        if turns is not None:
            expected = expected.of_chunks(turns)
        return cls(brackets, expected, numblocks)

    def tally(
        self, chunk: Any, place: tuple[int, ...], dtype: np.dtype[Any], *, stays: bool = False
    ) -> Tally:
        """Measure the chunk at a place, and check that it agrees with its own cuts.

        Candidates stay on the chunk's device if `stays`. If the chunk has changed, a
        `ChunksChangedError` names its place.
        """
        tally = kernels.tally_in_place if stays else kernels.tally
        most = int(self.expected.most_candidates[self._chunk(place)[0]])
        return self.checked(tally(chunk, dtype, self.brackets, most), place)

    def checked(self, tally: Tally | None, place: tuple[int, ...]) -> Tally:
        """Return a chunk's tally after a check that it agrees with the chunk's own cuts."""
        number, name = self._chunk(place)
        return self.expected.check(number, tally, self.brackets, chunk=name)

    def narrower(self, question: Question, cuts: Cuts) -> Proven:
        """Narrow the brackets by the cuts of all chunks at some of the candidates."""
        brackets = question.narrower(self.brackets, cuts)
        return replace(self, brackets=brackets, expected=self.expected.of_chunks(np.arange(0)))

    def _chunk(self, place: tuple[int, ...]) -> tuple[int, str]:
        """Return the number of the chunk at a place, and its name in messages."""
        number = int(np.ravel_multi_index(place, self.numblocks))
        return number, str(tuple(map(int, place)))


@dataclass(frozen=True, slots=True, eq=False)
class Gathered(Arrays):
    """The partial result of a load after the first, for one chunk or several.

    Parameters
    ----------
    tally : Tally or None
        Counts at brackets, and candidates. None if nothing was asked, or if a guess missed.
    sums : Moments or None
        Exact sums of the elements that `Measures.sums` selects.
    marks : ndarray of uint64
        Fingerprints of the chunks, for a question that may need one load more.
    n_again : int
        Number of chunks of which the load before had cached too little.
    """

    tally: Tally | None
    sums: Moments | None = None
    marks: Marks = field(default_factory=lambda: NO_MARKS)
    n_again: int = 0

    @classmethod
    def merge(cls, parts: Sequence[Gathered]) -> Gathered:
        """Merge the partial results of several chunks."""
        return cls.of(parts, merge_all([part.tally for part in parts]))

    @classmethod
    def whole(cls, parts: Sequence[Gathered], kind: Any) -> Gathered:
        """Merge the partial results of all chunks, with candidates where they are selected fastest.

        `kind` is an array of the kind of the answer.
        """
        tallies = [part.tally for part in parts]
        some = [tally for tally in tallies if tally is not None]
        return cls.of(parts, kernels.merged(some, kind) if len(some) == len(tallies) else None)

    @classmethod
    def of(cls, parts: Sequence[Gathered], tally: Tally | None) -> Gathered:
        """Merge the partial results of several chunks whose merged tally is known."""
        sums = merge_any([part.sums for part in parts])
        n_again = sum(part.n_again for part in parts)
        return cls(tally, sums, joined(part.marks for part in parts), n_again)


@dataclass(frozen=True)
class Resolved:
    """Answers of the second load of all chunks, or of a guess instead of it.

    Parameters
    ----------
    answer : object
        What `Question.resolve` returns.
    sums : Moments or None
        Exact sums, if the question wants them.
    brackets : Brackets or None
        Brackets of a third load, if one is needed.
    marks : ndarray of uint64
        Fingerprints of the chunks that were read.
    """

    answer: Any
    sums: Moments | None
    brackets: Brackets | None = None
    marks: Marks = field(default_factory=lambda: NO_MARKS)

    def narrower(self, question: Question, cuts: Cuts) -> Resolved:
        """Narrow the brackets of the third load by the cuts of all chunks at some candidates."""
        assert self.brackets is not None
        assert question.third is not None
        assert question.third.narrower is not None
        brackets = question.third.narrower(self.answer, self.brackets, cuts)
        return replace(self, brackets=brackets)


def gathered(
    chunk: Any,
    proven: Proven,
    place: tuple[int, ...],
    *,
    dtype: np.dtype[Any],
    summed: Summed | None,
    is_marked: bool,
    stays: bool = False,
) -> Gathered:
    """Measure the chunk at a place at proven brackets, in the second load.

    Parameters
    ----------
    chunk, proven, place
        The chunk, the brackets, and the chunk's place in the grid.
    dtype : dtype
        Dtype of the elements.
    summed : callable or None
        As of `Measures.sums`.
    is_marked : bool
        True if a third load may follow, which needs fingerprints.
    stays : bool
        True if candidates stay on the chunk's device.
    """
    bound = kernels.of(chunk, dtype)
    tally = proven.tally(bound, place, dtype, stays=stays)
    sums = sums_of(bound, proven.brackets, dtype, summed)
    return Gathered(tally, sums, marks_of([chunk], ordered=False) if is_marked else NO_MARKS)


def how_gathered(request: ArrayQuestion) -> dict[str, Any]:
    """Return the arguments of `gathered` for a question about an array."""
    summed = request.question.measures.sums
    return {"dtype": request.x.dtype, "summed": summed, "is_marked": request.is_marked}


def sums_of(
    chunk: Any, brackets: Brackets, dtype: np.dtype[Any], summed: Summed | None
) -> Moments | None:
    """Sum the elements of a chunk that `Measures.sums` selects; return None without it."""
    if summed is None:
        return None
    sums: Moments = kernels.moments(chunk, dtype, brackets.ends, summed(brackets))
    return sums
