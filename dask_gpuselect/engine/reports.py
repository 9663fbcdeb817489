"""What the tasks of the two loads report of chunks, and how reports are merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.engine.marks import NO_MARKS, Marks, joined, marks_of
from dask_gpuselect.engine.questions import Question
from dask_gpuselect.maths.cuts import Arrays, Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.expected import Expected
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.slots import over_slots


def merge_cuts(reports: list[Cuts | None]) -> Cuts | None:
    """The cuts of several chunks together; None if none was read."""
    found = [report for report in reports if report is not None]
    return type(found[0]).merge(found) if found else None


@dataclass(frozen=True, slots=True, eq=False)
class Proven(Arrays):
    """Brackets, and what the cuts that prove them say of every chunk there.

    Parameters
    ----------
    brackets : Brackets
    expected : Expected
        Of the chunks in C order.
    numblocks : tuple of int
        The grid of chunks.
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
        """Brackets that the cuts of all chunks of a grid prove, or of the only one.

        The cuts are in the order of the chunks, or those of each chunk are at its turn.
        """
        expected = expected_of(cuts, brackets)
        if turns is not None:
            expected = of_chunks(expected, turns)
        return cls(brackets, expected, numblocks)

    def tally(
        self, chunk: Any, place: tuple[int, ...], dtype: np.dtype[Any], *, stays: bool = False
    ) -> Tally:
        """The tally of the chunk at a place, if it still is what its own cuts say; with candidates
        that stay on its device, if they are to.

        Raises a `ChunksChangedError` that names its place otherwise.
        """
        tally = kernels.tally_in_place if stays else kernels.tally
        most = _most_candidates(self.expected, self._chunk(place)[0])
        return self.checked(tally(chunk, dtype, self.brackets, most), place)

    def checked(self, tally: Tally | None, place: tuple[int, ...]) -> Tally:
        """The tally of the chunk at a place, if that still is what its own cuts say."""
        return _checked(self.expected, tally, self.brackets, *self._chunk(place))

    def _chunk(self, place: tuple[int, ...]) -> tuple[int, str]:
        """The number of the chunk at a place, and what messages call it."""
        number = int(np.ravel_multi_index(place, self.numblocks))
        return number, str(tuple(map(int, place)))


expected_of = over_slots(Expected.of)


@over_slots
def of_chunks(expected: Expected, chunks: IntArray) -> Expected:
    """What is expected of some of the chunks, by their numbers, in that order."""
    return expected.of_chunks(chunks)


@over_slots
def _most_candidates(expected: Expected, i: int) -> int:
    return int(expected.most_candidates[i])


@over_slots
def _checked(
    expected: Expected, tally: Tally | None, brackets: Brackets, i: int, name: str
) -> Tally:
    return expected.check(i, tally, brackets, chunk=name)


def merge_tallies(tallies: list[Tally | None]) -> Tally | None:
    """The tally of several chunks together; None if one of them has none."""
    found = [tally for tally in tallies if tally is not None]
    return type(found[0]).merge(found) if len(found) == len(tallies) else None


@dataclass(frozen=True, slots=True, eq=False)
class Gathered(Arrays):
    """What a load after the first reports of a chunk, or of several together.

    Parameters
    ----------
    tally : Tally or None
        Counts at brackets, and candidates. None if nothing was asked, or a guess missed.
    sums : Moments or None
        Of the elements that the question wants to have summed.
    marks : ndarray of uint64
        Of the chunks, for a question that may have one load more.
    """

    tally: Tally | None
    sums: Moments | None = None
    marks: Marks = field(default_factory=lambda: NO_MARKS)

    @classmethod
    def merge(cls, reports: Sequence[Gathered]) -> Gathered:
        """The report of several chunks together."""
        return cls.of(reports, merge_tallies([report.tally for report in reports]))

    @classmethod
    def whole(cls, reports: Sequence[Gathered], kind: Any) -> Gathered:
        """The report of all chunks, with the candidates where they are selected fastest, for
        answers of that kind."""
        tallies = [report.tally for report in reports]
        found = [tally for tally in tallies if tally is not None]
        return cls.of(reports, kernels.merged(found, kind) if len(found) == len(tallies) else None)

    @classmethod
    def of(cls, reports: Sequence[Gathered], tally: Tally | None) -> Gathered:
        """The report of several chunks, of which the tally is known."""
        sums = [report.sums for report in reports if report.sums is not None]
        marks = joined(report.marks for report in reports)
        return cls(tally, type(sums[0]).merge(sums) if sums else None, marks)


def who_sums(question: Question) -> Question | None:
    """What the task of a chunk is told of a question: nothing, unless that wants sums. A question
    may have thousands of ranks, and there is a task for each chunk."""
    return question if question.wants_sums else None


def gathered(
    chunk: Any,
    proven: Proven,
    place: tuple[int, ...],
    *,
    dtype: np.dtype[Any],
    summing: Question | None,
    is_marked: bool,
    stays: bool = False,
) -> Gathered:
    """What the second load of the chunk at a place reports. `summing` is of `who_sums`, `is_marked`
    says whether a third load may follow, and `stays` whether candidates stay on their device."""
    slots = kernels.in_slots(chunk)
    tally = proven.tally(slots, place, dtype, stays=stays)
    sums = sums_of(slots, proven.brackets, dtype, summing)
    return Gathered(tally, sums, marks_of([chunk], ordered=False) if is_marked else NO_MARKS)


def sums_of(
    chunk: Any, brackets: Brackets, dtype: np.dtype[Any], question: Question | None
) -> Moments | None:
    """The sums that a question wants of a chunk; see `who_sums`."""
    if question is None:
        return None
    return _sums(chunk, brackets, dtype, question)


@over_slots
def _sums(chunk: Any, brackets: Brackets, dtype: np.dtype[Any], question: Question) -> Moments:
    return kernels.moments(question.summed(chunk, brackets), brackets.ends, dtype)
