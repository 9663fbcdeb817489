"""Questions about median absolute deviations, of all elements and of every lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import in_kind, masked, namespace
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.graphs import places_of
from dask_gpuselect.engine.marks import InColumn, KnownChunks, changed, marks_of
from dask_gpuselect.engine.questions import (
    Costs,
    InMemory,
    LaneLoads,
    LaneQuestion,
    Question,
    ThirdLoad,
    counting,
)
from dask_gpuselect.engine.source import DaskArray, blockwise, computed_once, map_blocks
from dask_gpuselect.kernels import valid_in
from dask_gpuselect.kernels.companions import ChunkColumn, values_of
from dask_gpuselect.maths.boxes import rungs_of
from dask_gpuselect.maths.chunk_sample import most_cached
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.finish import order_statistics
from dask_gpuselect.maths.interpolation import result_dtype
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.ranks import MEDIAN
from dask_gpuselect.maths.value_counts import ValueCounts
from dask_gpuselect.quantiles.questions import Quantiles
from dask_gpuselect.quiet import quiet
from dask_gpuselect.robust.deviations import (
    LEAST_ROOM,
    ROOM,
    bracket_from_cuts,
    bracket_from_sample,
    bracket_known,
    distances_of_ranks,
    narrower_about,
    narrower_deviations,
)

ResolvedMedian = tuple[NDArray[Any], NDArray[Any] | None]
"""The median, and the deviation before it is divided; both arrays of one element.

The deviation is None if it takes one more load.
"""


@dataclass(frozen=True)
class DeviationQuestion(Question, LaneQuestion):
    """The median absolute deviation of all elements, or of every lane, as a question.

    Parameters
    ----------
    median : Quantiles
        The median of the elements.
    distances : Quantiles
        The median of the distances.
    scale : float
        The number by which the median of the distances is divided.
    """

    median: Quantiles
    distances: Quantiles
    scale: float

    by_order: ClassVar[bool] = False
    takes_runs: ClassVar[bool] = True

    @classmethod
    def of(
        cls, source: np.dtype[Any], scale: float, if_none: str = "empty", *, skips_missing: bool
    ) -> DeviationQuestion:
        dtype = result_dtype(source, MEDIAN, weak_q=True)
        about = (0.5,), MEDIAN.name, skips_missing
        median = Quantiles(*about, source, dtype, if_none=if_none)
        # Without elements, the deviation is missing as the median is, and no second warning is
        # given.
        quiet = "masked" if if_none == "masked" else "empty"
        distances = Quantiles(*about, dtype, dtype, if_none=quiet, warns=False)
        return cls(median, distances, scale)

    @property
    def order(self) -> Quantiles:
        return self.median

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.distances.dtype

    @property
    def in_memory(self) -> InMemory:
        # It needs shells, so all elements cannot be candidates.
        return InMemory(guess=self._guess, first_ranks=self._first_ranks, whole_times=None)

    def _guess(self, ordered: Any, rate: float) -> Brackets:
        del rate  # the wanted ranks are relative, the same in the sample
        return bracket_from_sample(*valid_in(ordered, rungs_of), self.dtype)

    def bracket(self, cuts: Cuts) -> Brackets:
        return bracket_from_cuts(cuts, self.dtype)

    n_ranges = 5  # one of the median, and two for each of two shells

    @property
    def costs(self) -> Costs:
        return Costs(1, lambda n_pivots: max(ROOM * n_pivots, LEAST_ROOM))

    def narrower(self, brackets: Brackets, cuts: Cuts) -> Brackets:
        return narrower_deviations(brackets, cuts, self.dtype)

    def keep(self, cuts: Cuts) -> Brackets:
        # The median is uncertain before the second load, and the shells more so.
        return bracket_from_cuts(cuts, self.dtype, most_cached(cuts))

    def _first_ranks(self, n: int) -> IntArray:
        return np.unique(self.median.ranks(n))

    def resolve(self, brackets: Brackets, tally: Tally) -> ResolvedMedian:

        elements_at = partial(order_statistics, brackets, tally)
        median = self.median.answer_by(tally.n_valid, tally.n_missing, elements_at)
        if not np.isfinite(np.ma.filled(median, np.nan)).all():
            nan = median.dtype.type(np.nan)  # np.ma takes a float for float64
            return median, median * nan  # which is masked if the median is
        if brackets.spared is not None:
            return median, None
        return median, self._deviation(median, brackets, tally)

    @property
    def third(self) -> ThirdLoad:
        functions = self._more, self._resolve_again, self._narrower_again
        return ThirdLoad("distances", *functions)

    def _more(self, brackets: Brackets, resolved: ResolvedMedian) -> Brackets | None:
        median, deviation = resolved
        if deviation is not None:
            return None
        return bracket_known(brackets.spared, median[0])

    def _narrower_again(self, resolved: ResolvedMedian, more: Brackets, cuts: Cuts) -> Brackets:
        return narrower_about(more, cuts, resolved[0][0])

    def _resolve_again(
        self, resolved: ResolvedMedian, more: Brackets, tally: Tally
    ) -> ResolvedMedian:
        median, _ = resolved
        return median, self._deviation(median, more, tally)

    def finish(self, resolved: ResolvedMedian, sums: Moments | None) -> NDArray[Any]:
        del sums
        median, deviation = resolved
        answer: NDArray[Any] = _finished(deviation, median, self)
        return answer

    def _deviation(self, median: NDArray[Any], brackets: Brackets, tally: Tally) -> NDArray[Any]:
        """Return the median of the distances from a known median."""

        def distances_at(wanted: IntArray) -> NDArray[Any]:
            return distances_of_ranks(brackets, tally, median[0], wanted)

        return self.distances.answer_by(tally.n_valid, 0, distances_at)

    def task_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return self.dtype  # the distances': bytes become float64

    @quiet()
    def answer(self, column: ChunkColumn) -> Any:
        both = kernels.lanes.lane_deviations(column, self.median, self.distances, self.dtype)
        if both is not None:
            return _finished(both[1], both[0], self)
        median = kernels.lanes.answer_lanes(column, self.median)
        (first, *_), axes = column.chunks, column.axes
        shape = [1 if axis in axes else size for axis, size in enumerate(first.shape)]
        centre = namespace(median).reshape(median, tuple(shape))
        distances = [kernels.deviations(chunk, centre, self.dtype) for chunk in column.chunks]
        column = ChunkColumn(distances, self.dtype, axes)
        deviations = kernels.lanes.answer_lanes(column, self.distances)
        return _finished(deviations, median, self)

    @quiet()
    def block_of_groups(
        self, chunks: Sequence[Any], dtype: np.dtype[Any], n_groups: int, shape: AnswerAxes
    ) -> Any:
        median = self._of_groups(self.median, chunks, dtype, n_groups)
        distances = [_from_own(chunk, median[0], self.dtype) for chunk in chunks]
        deviations = self._of_groups(self.distances, distances, self.dtype, n_groups)
        kind = values_of(chunks[0])
        return in_kind(shape.restore(_finished(deviations, median, self), (n_groups, 0)), kind)

    @staticmethod
    def _of_groups(
        question: Quantiles, chunks: Sequence[Any], dtype: np.dtype[Any], n_groups: int
    ) -> Any:
        """Answer a question about the order of each group, whose numbers are the labels."""
        return question.lane_answer(
            kernels.group_elements(chunks, dtype, n_groups, question.lane_ranks)
        )

    @property
    def loads(self) -> LaneLoads:
        return replace(super().loads, counts=counting(self._counted))

    def _counted(self, counts: ValueCounts, known: None = None) -> Any:
        """Return the deviations of lanes, by the counts of all values that occur."""
        median = self.median.lane_answer(counts.order_statistics(self.median.lane_ranks))
        (centres,) = np.ma.getdata(median)
        distances = counts.mapped(
            lambda values, lanes: kernels.deviations(values, centres[lanes], self.dtype)
        )
        deviations = self.distances.lane_answer(
            distances.order_statistics(self.distances.lane_ranks)
        )
        return _finished(deviations, median, self)

    def composed(
        self,
        ask: Callable[[DaskArray, LaneQuestion, bool], DaskArray],
        x: DaskArray,
        label: str,
        axes: tuple[int, ...] | None,
    ) -> DaskArray:
        """Return the median of the distances from the medians of lanes or groups, lazily.

        Each of the two medians takes its own loads.
        """
        every = tuple(range(x.ndim))
        median = computed_once(ask(x, self.median, True))
        distances = blockwise(
            partial(_distances, question=self, numblocks=x.numblocks, axes=axes),
            every,
            x,
            every,
            median,
            (x.ndim,) if axes is None else every,
            places_of(x),
            every,
            name=f"{label}-distances-{tokenize(x.name, median.name)}",
            concatenate=False,
            align_arrays=False,
            dtype=self.dtype,
            meta=meta_from_array(x._meta, dtype=self.dtype),
        )
        unscaled = ask(distances, self.distances, False)
        return map_blocks(
            partial(_finished, question=self),
            unscaled,
            median,
            name=f"{label}-scaled-{tokenize(unscaled.name, median.name, self)}",
            dtype=self.dtype,
            meta=unscaled._meta,
        )


@quiet()
def _distances(
    chunk: Any,
    median: Any,
    place: tuple[int, ...],
    *,
    question: DeviationQuestion,
    numblocks: tuple[int, ...],
    axes: tuple[int, ...] | None,
) -> Any:
    """Return the distances of elements from the median of their lane, or of their group.

    The medians are a `KnownChunks`, in a list for groups. Raise if the chunk has changed since they
    were found.
    """
    known: KnownChunks = median if axes is not None else median[0]
    number = InColumn(numblocks, tuple(range(len(place))) if axes is None else axes, place).number()
    if known.marks[number] != marks_of([chunk], ordered=axes is not None)[0]:
        raise changed(place)
    if axes is None:
        return _from_own(chunk, known.value, question.dtype)
    return kernels.deviations(chunk, known.value, question.dtype)


def _from_own(chunk: Any, centres: Any, dtype: np.dtype[Any]) -> Any:
    """Return the distance of each element from the centre of its group, if there is any group."""
    if not len(centres):
        return kernels.deviations(chunk, centres.dtype.type(0), dtype)
    centres = in_kind(centres, values_of(chunk))
    return kernels.deviations(chunk, namespace(centres).take(centres, chunk.labels), dtype)


@quiet()
def _finished(deviations: Any, median: Any, question: DeviationQuestion) -> Any:
    """Divide the medians of distances by the scale; NaN where the median is not finite.

    Medians that know their chunks are a `KnownChunks`.
    """
    if isinstance(median, KnownChunks):
        median = median.value
    if isinstance(deviations, np.ma.MaskedArray):
        return masked(_finished(deviations.data, np.ma.getdata(median), question), deviations.mask)
    return kernels.lanes.quotients(deviations, median, question.scale)
