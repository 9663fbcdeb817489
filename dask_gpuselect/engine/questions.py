"""Base classes of questions about arrays. A feature subclasses one, and `asking.ask` answers it.

Questions are frozen, picklable, and deterministically tokenizable.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import concatenate
from dask_gpuselect.engine.answers import AnswerAxes, Form
from dask_gpuselect.engine.source import DaskArray, itself, nothing
from dask_gpuselect.kernels import elements_at, values
from dask_gpuselect.maths import weights
from dask_gpuselect.maths.boxes import BoxGuess
from dask_gpuselect.maths.coarse import narrower
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, RanksOf, Tally
from dask_gpuselect.maths.envelope import find_brackets, guess_brackets
from dask_gpuselect.maths.finish import order_statistics
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import ElementOrder, LaneOrder
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.runs import Runs
from dask_gpuselect.maths.sizes import PIVOT_BYTES, PIVOT_WORK, pivot_share
from dask_gpuselect.maths.tails import TailSizes, lanes_in_tails
from dask_gpuselect.maths.value_counts import ValueCounts

Block = tuple[int, ...]
Sample = Callable[[], tuple[Any, float]]
"""Type of a function that takes a sorted sample, and returns it with its rate."""

VERY_MANY = 1 << 50  # elements


class BaseQuestion:
    """A question whose answer may be lazy."""

    def lazily(self, answer: DaskArray) -> Any:
        """Wrap the lazy answer in the object that the caller gets."""
        return answer

    @property
    def further(self) -> LaneLoad | None:
        """A load after the passes that find the order statistics; None if there is none.

        Its results are the answers, in the form of those of `finished`.
        """
        return None

    @property
    def lanes(self) -> LaneQuestion:
        """The corresponding question about every lane, for reductions along some axes."""
        if isinstance(self, LaneQuestion):
            return self
        raise TypeError(
            f"{type(self).__name__} does not define `lanes`: it is not supported along an axis"
        )


class Question(BaseQuestion, ABC):
    """A question about all elements of an array.

    Subclasses implement `bracket` and `resolve`. All else is optional: the engine asks `defines`
    what there is.
    """

    wants_sums: ClassVar[bool] = False
    """True if `finish` needs exact sums of the elements in the cells of `summed`: no load more."""

    weighs: ClassVar[bool] = False
    """True if the elements are weighted: cuts and tallies then measure weights."""

    n_slots: int = 1
    """Most slots that are answered separately; see `slots.OfSlots`."""

    third: ClassVar[str | None] = None
    """Name of the third load, used in the names of its layers. None if there is never one."""

    def defines(self, hook: str) -> bool:
        """Return whether the question has a method of that name, which is optional."""
        return getattr(type(self), hook) is not getattr(Question, hook)

    @property
    def n_answers(self) -> int:
        """Number of numbers in the answer."""
        return 1

    counts_values: ClassVar[bool] = True
    """True if counts of every value answer the question, for small dtypes."""

    @property
    def share(self) -> int:
        """Number of wanted ranks for each pivot; see `sizes.pivot_count`."""
        return pivot_share(self.n_answers)

    def root_bytes(self, dtype: np.dtype[Any]) -> tuple[int, int]:
        """Return the bytes of one pivot in the first load, and of one candidate in the second."""
        if self.weighs:
            return weights.PIVOT_BYTES, dtype.itemsize + weights.WEIGHT_BYTES
        return PIVOT_BYTES, dtype.itemsize

    @property
    def pivot_work(self) -> int:
        """Peak bytes of the aggregating task for each pivot; see `sizes.PIVOT_WORK`."""
        return weights.PIVOT_WORK if self.weighs else PIVOT_WORK

    def most_candidates(self, n_pivots: int) -> int:
        """Return about how many candidates there are in all, by the number of pivots in all."""
        return n_pivots * -(-self.n_answers // self.share)

    @abstractmethod
    def bracket(self, cuts: Cuts) -> Brackets:
        """Return the brackets at which the second load measures, from the cuts of all chunks."""

    @property
    def keeps(self) -> bool:
        """True if a tally at the brackets of `keep` has all that the second load needs."""
        return not self.wants_sums or not self.defines("summed")

    def keep(self, cuts: Cuts) -> Brackets:
        """Return the brackets at which the first load may cache, from cuts of some chunks.

        These cuts stand for those of the other chunks; see `maths.chunk_sample`.
        """
        return self.bracket(cuts)

    @property
    def n_ranges(self) -> int:
        """Number of ranges of values that contain all pivots that `bracket` needs.

        This holds for very many elements. 0 if `bracket` may need any pivot.
        """
        return 0

    def stretch(self, i: int, n: int) -> Question:
        """Return the question about the `i`-th of `n` runs of ranks, if the ranges are of ranks."""
        raise TypeError(f"{type(self).__name__} does not define `stretch`")

    def narrower(self, brackets: Brackets, cuts: Cuts) -> Brackets:
        """Narrow brackets to the candidates that matter.

        The cuts are of all chunks, at some of the candidates and at the ends of the brackets.
        """
        return narrower(brackets, self.bracket(cuts))

    def guess(self, ordered: Any, rate: float) -> Brackets:
        """Guess the brackets at which the only read of data in memory measures.

        Parameters
        ----------
        ordered : array or WeightedSample
            Sorted sample of the elements, on any device; a `WeightedSample` if they are weighted.
        rate : float
            Fraction of all elements that the sample contains.
        """
        raise TypeError(f"{type(self).__name__} does not define `guess`")

    def guess_there(self, size: int, rate: float) -> BoxGuess | None:
        """Return how a device can compute `guess` from a sorted sample of `size` elements.

        `rate` is as for `guess`. Return None if only the host can.
        """
        return None

    def guess_inside(self, brackets: Brackets, tally: Tally, sample: Sample) -> Brackets | None:
        """Guess narrower brackets, maybe by a sample of the candidates alone.

        It serves data in memory. Return None if the candidates should stay as they are. Raise
        `ChunksChangedError` if the brackets do not contain all that is needed.
        """
        return None

    def answer_alone(self, values: Any, dtype: np.dtype[Any]) -> Any:
        """Answer about all elements of an array in memory by a kernel; None if there is none.

        There is at least one element. It is asked first, before sampling or counting.
        """
        del values, dtype

    def ranks_of_sample(self, n: int) -> RanksOf | None:
        """Return a function from a sample's size to the first and last rank of each bracket in it.

        Return None unless the question is about ranks among `n` elements alone. The function is
        hashable, and equal for equal questions.
        """
        return None

    @abstractmethod
    def resolve(self, brackets: Brackets, tally: Tally) -> Any:
        """Resolve the question from the tally at the brackets, as far as it can.

        Raises `ChunksChangedError` if the brackets do not contain all that is needed.
        """

    whole_times: ClassVar[int | None] = 1
    """Cost of the question among all elements as candidates, over that of ranks.

    None if it cannot be answered by one bracket of everything.
    """

    wants_squares: ClassVar[bool] = False
    """True if `resolve` needs the sum of the squares of all weights."""

    def of_run(self, run: Runs) -> Any:
        """Return the answer, in the form of that of `finish`, from one run of all elements.

        At least one of them is valid. Where a device sorts fast, nothing has to be guessed.
        """
        raise TypeError(f"{type(self).__name__} does not define `of_run`")

    def of_box(self, box: LaneBoxes) -> Any:
        """Return the answer, in the form of that of `finish`, from a box by a device."""
        raise TypeError(f"{type(self).__name__} does not define `of_box`")

    def first_ranks(self, n: int) -> IntArray:
        """Return the ranks that `resolve` needs first of `n` elements: devices may select them."""
        return np.empty(0, np.int64)

    def summed(self, brackets: Brackets) -> NDArray[np.bool_] | None:
        """Mark the open cells of brackets whose elements are summed; None to sum all elements.

        The mask has the form of `Brackets.wanted`.
        """
        return None

    def more(self, brackets: Brackets, resolved: Any) -> Brackets | None:
        """Return the brackets for a third load, or None if `resolved` is enough."""
        return None

    def narrower_again(self, resolved: Any, more: Brackets, cuts: Cuts) -> Brackets:
        """Narrow the brackets of a third load, as `narrower` does those of the second."""
        raise TypeError(f"{type(self).__name__} does not define `narrower_again`")

    def resolve_again(self, resolved: Any, more: Brackets, tally: Tally) -> Any:
        """Resolve the question from the tally of a third load, in the form of `resolve`.

        Its counts alone prove the result, however the earlier brackets were found.
        """
        raise NotImplementedError

    def finish(self, resolved: Any, sums: Moments | None) -> Any:
        """Return the answer, from the result of `resolve` or `resolve_again`, and the sums.

        It is a one-dimensional array on the host, of the promised dtype; or any object.
        """
        return resolved

    def answered(
        self, brackets: Brackets, measure: Callable[[Brackets], Tally], sums: Moments | None
    ) -> Any:
        """Return the answer, by the tallies at proven brackets, which `measure` returns."""
        return self.finish(self.resolved(brackets, measure(brackets), measure), sums)

    def resolved(
        self, brackets: Brackets, tally: Tally, measure: Callable[[Brackets], Tally | None]
    ) -> Any:
        """Resolve the question from a tally, and from that of a third load if it needs one.

        `measure` returns the latter, or None if there is none; then this returns None.
        """
        resolved = self.resolve(brackets, tally)
        more = self.more(brackets, resolved)
        if more is None:
            return resolved
        last = measure(more)
        return None if last is None else self.resolve_again(resolved, more, last)

    @property
    def of_slot(self) -> Question | None:
        """The question about each of several slots, if `of_slots` combines the answers; or None."""
        return None

    def of_slots(self, answers: Sequence[Any]) -> Any:
        """Combine the answers of `of_slot` about each slot to an array ``(n_answers, n_slots)``."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class ArrayQuestion:
    """A question about all elements of a dask array.

    Parameters
    ----------
    x : dask array
        Chunks of any number and size, known or not, NumPy or CuPy.
    question : Question
        What to find.
    form : Form
        Form of the answer.
    """

    x: DaskArray
    question: Question
    form: Form

    @property
    def identity(self) -> tuple[str, Question, tuple[int, ...], np.dtype[Any] | None]:
        """The fields that distinguish this from other questions that are asked together."""
        return self.x.name, self.question, self.form.shape, self.form.dtype


class RankQuestion(Question):
    """A question whose brackets are those of some ranks."""

    @abstractmethod
    def ranks(self, n: int) -> tuple[IntArray, IntArray]:
        """Return the first and last rank of each wanted bracket among `n` valid elements.

        Both arrays are empty if `n` is 0.
        """

    def bracket(self, cuts: Cuts) -> Brackets:
        return find_brackets(cuts, *self.ranks(int(cuts.n_valid.sum())))

    @property
    def n_ranges(self) -> int:
        return len(self.ranks(VERY_MANY)[0])

    def guess(self, ordered: Any, rate: float) -> Brackets:
        size = int(ordered.shape[0])
        take = partial(elements_at, ordered)
        return guess_brackets(take, size, *self.ranks(size))[0]


class ElementQuestion(RankQuestion):
    """A question that is answered by the elements of some ranks, with any method of selection.

    So a strategy can select the elements, too.
    """

    by_order: ClassVar[bool] = True
    """True if elements at the ranks of `order` give the answer."""

    @property
    @abstractmethod
    def order(self) -> ElementOrder:
        """The order statistics that give the answer."""

    @abstractmethod
    def ranks_of_sample(self, n: int) -> RanksOf:
        """Return a function from a sample's size to the first and last rank of each bracket."""

    @abstractmethod
    def answer_by(
        self, n_valid: int, n_missing: int, elements_at: Callable[[IntArray], NDArray[Any]]
    ) -> NDArray[Any]:
        """Return the answer, given a function from ranks to elements."""

    def resolve(self, brackets: Brackets, tally: Tally) -> NDArray[Any]:
        elements_at_ranks = partial(order_statistics, brackets, tally)
        return self.answer_by(tally.n_valid, tally.n_missing, elements_at_ranks)


class OneLoadQuestion(BaseQuestion, ABC):
    """A question that is answered from one partial result for each chunk, in one load."""

    @abstractmethod
    def measure(self, chunk: Any, dtype: np.dtype[Any]) -> Any:
        """Compute the partial result of a chunk."""

    @staticmethod
    @abstractmethod
    def merge(partials: Sequence[Any]) -> Any:
        """Merge the partial results of several chunks."""

    @abstractmethod
    def answer(self, partial_result: Any) -> Any:
        """Return the answer, any object, from the partial result of all chunks."""


@dataclass(frozen=True)
class LaneLoad:
    """The functions of one load of every lane, which take the chunks of a part of a column.

    Parameters
    ----------
    measure : callable
        ``(chunks, dtype, axes, known)``: the partial result of a part. `known` is the result of the
        load before, or None.
    merge : callable
        ``(partials)``: merge the partial results of several parts.
    finish : callable
        ``(partials, known)``: the result.
    known : callable
        ``(order statistics)``: what a further load needs to know of them.
    answers : callable, optional
        ``(partial_result, known)``: the answers in the form of `LaneQuestion.finished`, on the
        device of the merged partial result; None if they have to be made from order statistics.
    name : str
        Part of the names of the layers of a further load.
    merge_every : int
        Number of partial results of a further load that one task merges.
    width : int
        Most elements of each lane in a partial result, if that has the tails of lanes.
    """

    measure: Callable[..., Any]
    merge: Callable[..., Any]
    finish: Callable[..., Any]
    known: Callable[[Any], Any] = itself
    name: str = ""
    merge_every: int = 0
    width: int = 0
    answers: Callable[..., Any | None] = nothing

    @classmethod
    def of_tails(cls, sizes: TailSizes, order: LaneOrder) -> LaneLoad:
        """Return the load for tails of these sizes, which contain every lane's ranks."""
        merge = partial(kernels.merge_lane_tails, sizes=sizes)
        in_tails = partial(_order_statistics_in_tails, ranks=order.lane_ranks, sizes=sizes)
        measure = partial(kernels.lane_tails, sizes=sizes)
        return cls(measure, merge, of_merged(merge, in_tails), width=sizes.width(sizes.n))


def of_merged(merge: Callable[..., Any], finish: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that merges partial results before it finishes them."""
    return partial(_of_merged, merge, finish)


def _of_merged(
    merge: Callable[..., Any], finish: Callable[..., Any], partials: Sequence[Any], known: Any
) -> Any:
    return finish(merge(partials), known)


def _order_statistics_in_tails(tails: Any, known: None, *, ranks: Any, sizes: TailSizes) -> Any:
    return lanes_in_tails(tails, ranks, sizes)


@dataclass(frozen=True)
class LaneSlots:
    """The slots of every lane that are answered separately, as far as plans depend on them.

    Without groups a lane is one slot; else each of its groups is one.

    Parameters
    ----------
    n : int
        Number of slots of each lane; 1 if it is unknown.
    at_most : float
        The largest possible number; inf if it is unknown.
    of_element : float
        Average number of slots that contain an element.
    pass_factor : float
        Factor on the time that passes spend on elements.
    are_known : bool
        False if the slots are unknown until labels are read. There are then no passes.
    windows : tuple of ndarray of int64, optional
        Positions of the elements of each slot, if labels in the chunks do not define them.
    """

    n: int = 1
    at_most: float = 1
    of_element: float = 1.0
    pass_factor: float = 1.0
    are_known: bool = True
    windows: tuple[IntArray, ...] | None = None

    def elements(self, n: int) -> int:
        """Return the number of elements of each slot of a lane of `n` elements."""
        return math.ceil(n * self.of_element / self.n)


class LaneQuestion(BaseQuestion, ABC):
    """A question about every lane along some axes.

    Subclasses implement `order`. All else is optional.
    """

    pass_time: ClassVar[float] = 0.75
    """Time that a load of passes spends on elements, over the time that a whole column takes.

    Measured for quantiles of (3650, 150, 150) float32, with chunks that cost nothing to make.
    """

    @property
    @abstractmethod
    def order(self) -> LaneOrder:
        """The order statistics of every lane that give the answer, or that passes find first."""

    @property
    def n_answers(self) -> int:
        """Number of numbers in the answer, for each lane."""
        return self.order.n_answers

    counts_values: ClassVar[bool] = False
    """True if counts of every value answer the question, for small dtypes; see `counted`."""

    def count_values(
        self, chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], known: None
    ) -> Any:
        """Count every value in some chunks of a column."""
        return values.lane_value_counts(chunks, dtype, axes)

    def merge_value_counts(self, partials: Sequence[Any]) -> Any:
        """Merge the counts of values of several parts of a column."""
        return ValueCounts.merge(partials)

    def counted(self, counts: Any, dtype: np.dtype[Any]) -> Any:
        """Return the answers, in the form of those of `finished`, from the counts of all values."""
        return self.finished(counts.order_statistics(self.order.lane_ranks))

    by_place: ClassVar[bool] = True
    """True if the answer depends on the positions of elements in a chunk."""

    by_order: ClassVar[bool] = True
    """True if elements at the ranks of `order`, maybe with a further load, give the answer."""

    takes_runs: ClassVar[bool] = False
    """True if `block` also takes a `maths.runs.Runs`, in which groups are lanes."""

    composes: ClassVar[bool] = False
    """True if `composed` answers by other questions, without `steps`."""

    @property
    def steps(self) -> tuple[LaneLoad, LaneLoad]:
        """The loads of passes that find the order statistics of every lane.

        The first results in brackets; its `measure` and `merge` also get a number of ranks, `m`.
        The last one results in order statistics.
        """
        merge, finish = kernels.merge_lane_tallies, kernels.order_statistics_of_lanes
        bracketed = partial(kernels.narrowed_lane_brackets, order=self.order)
        answers = partial(kernels.answers_of_tally, order=self.order)
        return (
            LaneLoad(kernels.lane_cuts, kernels.merge_lane_cuts, bracketed),
            LaneLoad(kernels.lane_tally, merge, of_merged(merge, finish), answers=answers),
        )

    def finished(self, resolved: Any) -> Any:
        """Convert the result of passes to answers ``(n_answers, n_lanes)`` on the host."""
        return self.order.lane_answer(resolved)

    def restored(self, answers: Any, block: Block, shape: AnswerAxes) -> Any:
        """Give the answers about the lanes of a block of that shape the axes of the answer."""
        return shape.restore(answers, block)

    def tails(self, n: int) -> LaneLoad | None:
        """Return how the tails of lanes of `n` elements give the answer; None if they do not."""
        return None

    @property
    def n_brackets(self) -> int:
        """Number of brackets that passes narrow, for each lane or for each group in it."""
        return self.n_answers

    @property
    def slots(self) -> LaneSlots:
        """The slots of every lane."""
        return LaneSlots()

    def partial_bytes(self, dtype: np.dtype[Any]) -> dict[str, int]:
        """Return the bytes of partial results of passes, as arguments of `sizes.plan_passes`."""
        return {"itemsize": selection_dtype(self.task_dtype(dtype)).itemsize}

    def task_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype in which a task holds elements of the given dtype."""
        return dtype

    def loads_in_passes(self, loads: int) -> int:
        """Return the number of loads of all passes, given the number for the order statistics."""
        return loads * (1 + self.composes) + (self.further is not None)

    def answer(self, chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...]) -> Any:
        """Compute the answers ``(n_answers, n_lanes)`` of all chunks together, in kind."""
        return kernels.answer_lanes(chunks, dtype, axes, self.order)

    def answer_groups(
        self,
        chunks: Sequence[Any],
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        places: Callable[[], Sequence[IntArray]],
    ) -> Any | None:
        """Compute the answers ``(n_answers, n_groups, n_lanes)`` for every group of every lane.

        They are in kind. Return None if groups have to be answered one after the other. `places`
        returns, for each group, the positions of its elements in every lane.
        """
        if self.further is not None or not self.by_order:
            return None
        return kernels.answer_group_lanes(chunks, dtype, axes, self.order, places)

    def block(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        """Compute a block of the answer from the chunks of its column."""
        return shape.restore(self.answer(chunks, dtype, shape.axes), chunks[0].shape)

    def block_now(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        """Compute the answer for an array in memory; it may stay where the array is."""
        return self.block(chunks, dtype, shape)

    def joined(self, blocks: Sequence[Any], axis: int) -> Any:
        """Concatenate blocks of the answer along an axis."""
        return concatenate(list(blocks), axis)

    def divided(self, block: Any, n: int, axis: int) -> Sequence[Any]:
        """Divide a block of the answer on the host into `n` of equal size along an axis."""
        return np.split(block, n, axis)

    def composed(
        self,
        ask: Callable[[DaskArray, LaneQuestion, bool], DaskArray],
        x: DaskArray,
        label: str,
        axes: tuple[int, ...] | None,
    ) -> DaskArray:
        """Compose the lazy answer from other questions, where columns have to be read in passes.

        ``ask(x, question, marked)`` answers these, with the reduced axes. `axes` are those of the
        lanes; None for groups of all elements.
        """
        raise NotImplementedError
