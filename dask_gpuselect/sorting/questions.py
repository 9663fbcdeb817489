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
from dask_gpuselect.maths.partition import Splitters
from dask_gpuselect.maths.sizes import share_of_ranks

MANY = 64


@dataclass(frozen=True)
class SplitterQuestion(Question):
    """The elements at which the chunks of the sorted array begin, as a question.

    Parameters
    ----------
    n_chunks : int
        Number of chunks of the sorted array.
    sizes : tuple of int, optional
        Sizes of the chunks, if the number of elements is known. Otherwise they differ by at most
        one.
    part : tuple of (int, int)
        Number of the stretch of starts that is asked for, and the number of stretches.
    """

    n_chunks: int
    sizes: tuple[int, ...] | None = None
    part: tuple[int, int] = (0, 1)

    def starts(self, n: int) -> IntArray:
        """Compute the first ranks of all chunks but the first, among n elements, for this part."""
        if self.sizes is None:
            starts = np.array([i * n // self.n_chunks for i in range(1, self.n_chunks)], np.int64)
        elif sum(self.sizes) != n:
            raise ValueError(
                f"the shape of the array says {sum(self.sizes)} elements, and its chunks have {n}: "
                "give the array the right chunks"
            )
        else:
            starts = np.cumsum(self.sizes[:-1], dtype=np.int64)
        i, n_parts = self.part
        return np.array_split(starts, n_parts)[i]

    @property
    def n_answers(self) -> int:
        return self.n_chunks - 1

    @property
    def costs(self) -> Costs:
        n = self.n_answers, share_of_ranks(self.n_chunks)
        return replace(Costs.of_ranks(*n), stretch=self._stretch)

    def bracket(self, cuts: Cuts) -> Brackets:
        ranks = self._ranks(cuts)
        return find_brackets(cuts, ranks, ranks)

    def _ranks(self, cuts: Cuts) -> IntArray:
        n_valid, n_missing = int(cuts.n_valid.sum()), int(cuts.n_missing.sum())
        starts = self.starts(n_valid + n_missing)
        return np.unique(starts[starts < n_valid])

    @property
    def n_ranges(self) -> int:
        return self.n_answers

    def _stretch(self, i: int, n: int) -> SplitterQuestion:
        return replace(self, part=(i, n))

    @property
    def keep(self) -> Callable[[Cuts], Brackets] | None:
        # If a quarter of n elements in random order has been read, the first load would cache about
        # 7 / sqrt(n) of them around each splitter.
        sizes = self.sizes
        are_few = sizes is None or MANY * self.n_chunks <= math.sqrt(sum(sizes))
        return self._keep if are_few else None

    def _keep(self, cuts: Cuts) -> Brackets:
        # These cuts have only about as many elements as the array.
        n, sizes = int(cuts.n_valid.sum()) + int(cuts.n_missing.sum()), self.sizes
        if sizes is None:
            return self.bracket(cuts)
        stops = [stop * n // max(sum(sizes), 1) for stop in itertools.accumulate(sizes)]
        return replace(self, sizes=tuple(np.diff(stops, prepend=0).tolist())).bracket(cuts)

    def resolve(self, brackets: Brackets, tally: Tally) -> Splitters:
        starts = self.starts(tally.n_valid + tally.n_missing)
        elements = order_statistics(brackets, tally, starts[starts < tally.n_valid])
        return Splitters(starts, elements)
