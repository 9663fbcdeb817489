"""The question about the elements at which the chunks of a sorted array begin."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dask_gpuselect.engine.questions import Costs, Question
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.finish import order_statistics
from dask_gpuselect.maths.partition import SortedChunks, Splitters
from dask_gpuselect.maths.sizes import share_of_ranks

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
    def costs(self) -> Costs:
        n = self.n_answers, share_of_ranks(self.wanted.n_chunks)
        return replace(Costs.of_ranks(*n), stretch=self._stretch)

    def bracket(self, cuts: Cuts) -> Brackets:
        ranks = self._ranks(cuts)
        return find_brackets(cuts, ranks, ranks)

    def _ranks(self, cuts: Cuts) -> IntArray:
        n_valid, n_missing = int(cuts.n_valid.sum()), int(cuts.n_missing.sum())
        starts = self.wanted.starts(n_valid + n_missing)
        return np.unique(starts[starts < n_valid])

    @property
    def n_ranges(self) -> int:
        return self.n_answers

    def _stretch(self, i: int, n: int) -> SplitterQuestion:
        return SplitterQuestion(replace(self.wanted, part=(i, n)))

    @property
    def keep(self) -> Callable[[Cuts], Brackets] | None:
        # If a quarter of n elements in random order has been read, the first load would cache about
        # 7 / sqrt(n) of them around each splitter.
        sizes = self.wanted.sizes
        are_few = sizes is None or MANY * self.wanted.n_chunks <= math.sqrt(sum(sizes))
        return self._keep if are_few else None

    def _keep(self, cuts: Cuts) -> Brackets:
        # These cuts have only about as many elements as the array.
        n, sizes = int(cuts.n_valid.sum()) + int(cuts.n_missing.sum()), self.wanted.sizes
        if sizes is None:
            return self.bracket(cuts)
        stops = [stop * n // max(sum(sizes), 1) for stop in itertools.accumulate(sizes)]
        scaled = replace(self.wanted, sizes=tuple(np.diff(stops, prepend=0).tolist()))
        return SplitterQuestion(scaled).bracket(cuts)

    def resolve(self, brackets: Brackets, tally: Tally) -> Splitters:
        starts = self.wanted.starts(tally.n_valid + tally.n_missing)
        elements = order_statistics(brackets, tally, starts[starts < tally.n_valid])
        return Splitters(starts, elements)
