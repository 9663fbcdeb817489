"""The question about the elements at which the chunks of a sorted array begin."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dask_gpuselect.engine.questions import Question
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally
from dask_gpuselect.maths.envelope import Ranges
from dask_gpuselect.maths.partition import SortedChunks, Splitters

MANY = 64


@dataclass(frozen=True)
class SplitterQuestion(Question):
    """The elements at which the chunks of the sorted array begin, as a question.

    Parameters
    ----------
    wanted : SortedChunks
        The chunks of the sorted array.
    """

    wanted: SortedChunks

    @property
    def n_answers(self) -> int:
        return self.wanted.n_chunks - 1

    @property
    def share(self) -> int:
        return self.wanted.share

    @property
    def keeps(self) -> bool:
        """Whether the first load caches elements.

        It does unless there are too many splitters. If a quarter of n elements in random order has
        been read, it would cache about 7 / sqrt(n) of them around each splitter.
        """
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

    def keep(self, cuts: Cuts) -> Brackets:
        return self.wanted.keep(cuts)

    def resolve(self, brackets: Brackets, tally: Tally) -> Splitters:
        return self.wanted.splitters(brackets, tally)
