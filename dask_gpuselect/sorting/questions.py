"""What is asked of an array that is sorted: where the chunks of the result begin."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dask_gpuselect.engine.questions import Question
from dask_gpuselect.maths.coarse import narrower
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally
from dask_gpuselect.maths.envelope import Ranges
from dask_gpuselect.maths.partition import SortedChunks, Splitters

MANY = 64


@dataclass(frozen=True)
class SplitterQuestion(Question):
    """The elements at which the chunks of the sorted array begin.

    Parameters
    ----------
    wanted : SortedChunks
    """

    wanted: SortedChunks

    divides: ClassVar[bool] = True

    @property
    def has_guess(self) -> bool:
        """Not by a sample: every chunk is asked what is below each of them."""
        return False

    @property
    def n_answers(self) -> int:
        return self.wanted.n_chunks - 1

    @property
    def share(self) -> int:
        return self.wanted.share

    @property
    def keeps(self) -> bool:
        """Not around so many splitters that all that would have to be kept is too much. Of n
        elements drawn at random, of which a quarter is seen, it is about 7 / sqrt(n) around
        each."""
        sizes = self.wanted.sizes
        return sizes is None or MANY * self.wanted.n_chunks <= math.sqrt(sum(sizes))

    def bracket(self, cuts: Cuts) -> Brackets:
        return self.wanted.bracket(cuts)

    @property
    def n_ranges(self) -> int:
        return self.n_answers

    def ranges(self, cuts: Cuts) -> Ranges:
        return self.wanted.ranges(cuts)

    def stretch(self, i: int, n: int) -> SplitterQuestion:
        return SplitterQuestion(replace(self.wanted, part=(i, n)))

    def narrower(self, brackets: Brackets, cuts: Cuts) -> Brackets:
        return narrower(brackets, self.bracket(cuts))

    def keep(self, cuts: Cuts) -> Brackets:
        return self.wanted.keep(cuts)

    def look(self, brackets: Brackets, tally: Tally) -> Splitters:
        return self.wanted.splitters(brackets, tally)
