"""Base classes of questions about arrays. A feature subclasses one, and `asking.ask` answers it.

Questions are frozen, picklable, and deterministically tokenizable.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import concatenate, namespace
from dask_gpuselect.engine.answers import AnswerAxes, Form
from dask_gpuselect.engine.source import DaskArray, itself, nothing, private_copy
from dask_gpuselect.kernels import elements_at, values
from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn, values_of
from dask_gpuselect.maths.boxes import BoxGuess
from dask_gpuselect.maths.coarse import narrower
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, RanksOf, Tally
from dask_gpuselect.maths.envelope import find_brackets, guess_brackets
from dask_gpuselect.maths.finish import order_statistics
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import ElementOrder, LaneOrder
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.ragged import Wanted
from dask_gpuselect.maths.runs import Runs
from dask_gpuselect.maths.sizes import PartialBytes, pivot_share
from dask_gpuselect.maths.tails import TailSizes, lanes_in_tails
from dask_gpuselect.maths.value_counts import ValueCounts

Block = tuple[int, ...]
Sample = Callable[[], tuple[Any, float]]
"""Type of a function that takes a sorted sample, and returns it with its rate."""

Summed = Callable[[Brackets], NDArray[np.bool_] | None]
"""Type of a function that marks the cells of brackets whose elements are summed."""

VERY_MANY = 1 << 50  # elements


def everything(brackets: Brackets) -> None:
    """Return no mask of cells: a question sums all elements."""


def no_ranks(n: int) -> IntArray:
    """Return no ranks among `n` elements."""
    del n
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Measures:
    """Measures that the loads of a question take, besides numbers of elements.

    Parameters
    ----------
    sums : callable, optional
        Marks the open cells of brackets whose elements are summed exactly, in the form of
        `Brackets.wanted`; `everything` to sum all elements. It takes no load more. None without
        sums.
    weights : bool
        True if the elements are weighted: cuts and tallies then measure weights.
    squares : bool
        True if `Question.resolve` needs the sum of the squares of all weights.
    counts : bool
        True if counts of every value answer the question, for small dtypes.
    """

    sums: Summed | None = None
    weights: bool = False
    squares: bool = False
    counts: bool = True


@dataclass(frozen=True)
class Costs:
    """Costs of a question: numbers on which plans depend.

    Parameters
    ----------
    share : int
        Number of wanted ranks for each pivot; see `sizes.pivot_count`.
    candidates : callable
        ``(n_pivots)``: about how many candidates there are in all, by the number of pivots in all.
    stretch : callable, optional
        ``(i, n)``: the question about the `i`-th of `n` runs of ranks, if the ranges are of ranks.
    """

    share: int
    candidates: Callable[[int], int]
    stretch: Callable[[int, int], Question] | None = None

    @classmethod
    def of_ranks(cls, n_answers: int, share: int | None = None) -> Self:
        """Return the costs of a question about so many ranks."""
        share = share or pivot_share(n_answers)
        return cls(share, lambda n_pivots: n_pivots * -(-n_answers // share))


@dataclass(frozen=True)
class ThirdLoad:
    """A third load, where the second leaves too much open.

    Parameters
    ----------
    name : str
        Part of the names of its layers.
    brackets : callable
        ``(brackets, resolved)``: the brackets at which it measures, or None if `resolved`, the
        result of `Question.resolve`, is enough.
    resolve : callable
        ``(resolved, more, tally)``: the result, in the form of `Question.resolve`, from the tally
        at the brackets `more`. Its counts alone prove it, however earlier brackets were found.
    narrower : callable, optional
        ``(resolved, more, cuts)``: narrow the brackets, as `Question.narrower` does.
    """

    name: str
    brackets: Callable[[Brackets, Any], Brackets | None]
    resolve: Callable[[Any, Brackets, Tally], Any]
    narrower: Callable[[Any, Brackets, Cuts], Brackets] | None = None


@dataclass(frozen=True, kw_only=True)
class InMemory:
    """Ways to answer about data in memory: directly, or by a sample that guesses brackets.

    All answers are in the form of those of `Question.finish`.

    Parameters
    ----------
    guess : callable, optional
        ``(ordered, rate)``: brackets, by a sorted sample on any device, a `WeightedSample` if the
        elements are weighted. `rate` is the fraction of all elements that it contains.
    guess_there : callable
        ``(size, rate)``: how a device can compute `guess` from a sorted sample of `size` elements;
        None if only the host can.
    guess_inside : callable
        ``(brackets, tally, sample)``: narrower brackets, maybe by a sample of the candidates alone.
        None if the candidates should stay as they are. It raises `ChunksChangedError` if the
        brackets do not contain all that is needed.
    ranks_of_sample : callable
        ``(n)``: a function from a sample's size to the first and last rank of each bracket in it.
        None unless the question is about ranks among `n` elements alone. The function is hashable,
        and equal for equal questions.
    first_ranks : callable
        ``(n)``: the ranks that `Question.resolve` needs first of `n` elements. Devices may select
        them.
    whole_times : int or None
        Cost of the question among all elements as candidates, over that of ranks. None if it cannot
        be answered by one bracket of everything.
    alone : callable
        ``(values, dtype)``: the answer by a kernel; None if there is none. There is at least one
        element. It is asked first, before sampling or counting.
    of_run : callable, optional
        ``(run)``: the answer from one run of all elements, at least one of which is valid. Where a
        device sorts fast, nothing has to be guessed.
    of_box : callable
        ``(box)``: the answer from a box by a device.
    """

    guess: Callable[[Any, float], Brackets] | None = None
    guess_there: Callable[[int, float], BoxGuess | None] = nothing
    guess_inside: Callable[[Brackets, Tally, Sample], Brackets | None] = nothing
    ranks_of_sample: Callable[[int], RanksOf | None] = nothing
    first_ranks: Callable[[int], IntArray] = no_ranks
    whole_times: int | None = 1
    alone: Callable[[Any, np.dtype[Any]], Any] = nothing
    of_run: Callable[[Runs], Any] | None = None
    of_box: Callable[[LaneBoxes], Any] = nothing


@dataclass(frozen=True)
class BySlot:
    """A question about each of several slots, and how the answers are combined.

    Parameters
    ----------
    question : Question
        The question about one slot.
    together : callable
        ``(answers)``: the answers about all slots, an array ``(n_answers, n_slots)``.
    """

    question: Question
    together: Callable[[Sequence[Any]], Any]


class Question(ABC):
    """A question about all elements of an array.

    Subclasses implement `bracket` and `resolve`. All else is optional.
    """

    @property
    def measures(self) -> Measures:
        """Measures that the loads take."""
        return Measures()

    @property
    def n_answers(self) -> int:
        """Number of numbers in the answer."""
        return 1

    @property
    def costs(self) -> Costs:
        """Numbers on which plans depend."""
        return Costs.of_ranks(self.n_answers)

    @property
    def n_ranges(self) -> int:
        """Number of ranges of values that contain all pivots that `bracket` needs.

        This holds for very many elements. 0 if `bracket` may need any pivot.
        """
        return 0

    @abstractmethod
    def bracket(self, cuts: Cuts) -> Brackets:
        """Return the brackets at which the second load measures, from the cuts of all chunks."""

    @property
    def keep(self) -> Callable[[Cuts], Brackets] | None:
        """Function from cuts of some chunks to the brackets at which the first load may cache.

        These cuts stand for those of the other chunks; see `maths.chunk_sample`. None if a tally
        there has not all that the second load needs.
        """
        return self.bracket if self.measures.sums in (None, everything) else None

    def narrower(self, brackets: Brackets, cuts: Cuts) -> Brackets:
        """Narrow brackets to the candidates that matter.

        The cuts are of all chunks, at some of the candidates and at the ends of the brackets.
        """
        return narrower(brackets, self.bracket(cuts))

    @abstractmethod
    def resolve(self, brackets: Brackets, tally: Tally) -> Any:
        """Resolve the question from the tally at the brackets, as far as it can.

        Raises `ChunksChangedError` if the brackets do not contain all that is needed.
        """

    @property
    def third(self) -> ThirdLoad | None:
        """The third load; None if there is never one."""
        return None

    def finish(self, resolved: Any, sums: Moments | None) -> Any:
        """Return the answer, from the result of `resolve` or of the third load, and the sums.

        It is a one-dimensional array on the host, of the promised dtype; or any object.
        """
        return resolved

    @property
    def in_memory(self) -> InMemory:
        """Ways to answer about data in memory."""
        return InMemory()

    @property
    def by_slot(self) -> BySlot | None:
        """The question about each of several slots; None if that is not supported."""
        return None


def answered(
    question: Question,
    brackets: Brackets,
    measure: Callable[[Brackets], Tally],
    sums: Moments | None,
) -> Any:
    """Answer a question by the tallies at proven brackets, which `measure` returns."""
    resolved = fully_resolved(question, brackets, measure(brackets), measure)
    return question.finish(resolved, sums)


def fully_resolved(
    question: Question,
    brackets: Brackets,
    tally: Tally,
    measure: Callable[[Brackets], Tally | None],
) -> Any:
    """Resolve a question from a tally, and from that of a third load if it needs one.

    `measure` returns the latter, or None if there is none; then this returns None.
    """
    resolved, third = question.resolve(brackets, tally), question.third
    more = None if third is None else third.brackets(brackets, resolved)
    if third is None or more is None:
        return resolved
    last = measure(more)
    return None if last is None else third.resolve(resolved, more, last)


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
    label : str
        Prefix of the names of the layers: ``<label>-bracket``, ``<label>-candidates``, ``<label>``.
    among : str or None
        Token of all arrays that are loaded together; None if there is one array.
    """

    x: DaskArray
    question: Question
    form: Form
    label: str
    among: str | None = None

    @property
    def source(self) -> DaskArray:
        """The chunks of the first load, which questions about the same arrays share.

        Each array has a seed of its own: if x and x - median(x) had the same copy of x, x would
        stay in memory until its median is known.
        """
        return private_copy(self.x, f"load 1 of {self.among or self.x.name}")

    @property
    def is_marked(self) -> bool:
        """True if loads need fingerprints of chunks, because a third load may follow.

        An answer from the second load alone needs none: its counts prove it.
        """
        return self.question.third is not None

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

    @property
    def in_memory(self) -> InMemory:
        return InMemory(guess=self._guess)

    def _guess(self, ordered: Any, rate: float) -> Brackets:
        """Guess the brackets of the ranks, which are relative, by a sorted sample."""
        del rate
        size = int(ordered.shape[0])
        take = partial(elements_at, ordered)
        return guess_brackets(take, size, *self.ranks(size))[0]


class ElementQuestion(RankQuestion):
    """A question that is answered by the elements of some ranks, with any method of selection.

    So a strategy can select the elements, too.
    """

    @property
    @abstractmethod
    def order(self) -> ElementOrder:
        """The order statistics that give the answer."""

    @abstractmethod
    def ranks_of_sample(self, n: int) -> RanksOf:
        """Return a function from a sample's size to the first and last rank of each bracket."""

    @property
    def in_memory(self) -> InMemory:
        return InMemory(guess=self._guess, ranks_of_sample=self.ranks_of_sample)

    @abstractmethod
    def answer_by(
        self, n_valid: int, n_missing: int, elements_at: Callable[[IntArray], NDArray[Any]]
    ) -> NDArray[Any]:
        """Return the answer, given a function from ranks to elements."""

    def resolve(self, brackets: Brackets, tally: Tally) -> NDArray[Any]:
        elements_at_ranks = partial(order_statistics, brackets, tally)
        return self.answer_by(tally.n_valid, tally.n_missing, elements_at_ranks)


@dataclass(frozen=True)
class LaneLoad:
    """The functions of one load of every lane, which take the chunks of a part of a column.

    Parameters
    ----------
    measure : callable
        ``(column, known)``: the partial result of a part. `known` is the result of the load before,
        or None.
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
        Most elements of each lane in a partial result, if that has the tails or fliers of lanes.
    is_done : callable, optional
        ``(known)``: whether the results are known already, so that a further load of groups reads
        nothing, and its partial results are None.
    """

    measure: Callable[..., Any]
    merge: Callable[..., Any]
    finish: Callable[..., Any]
    known: Callable[[Any], Any] = itself
    name: str = ""
    merge_every: int = 0
    width: int = 0
    answers: Callable[..., Any | None] = nothing
    is_done: Callable[[Any], bool] | None = None

    @classmethod
    def of_tails(cls, sizes: TailSizes, order: LaneOrder) -> LaneLoad:
        """Return the load for tails of these sizes, which contain every lane's ranks."""
        merge = partial(kernels.lane_passes.merge_tails, sizes=sizes)
        in_tails = partial(lanes_in_tails, ranks=order.lane_ranks, sizes=sizes)
        measure = partial(kernels.lane_passes.tails, sizes=sizes)
        return cls(measure, merge, of_merged(merge, in_tails), width=sizes.width(sizes.n))


def of_merged(merge: Callable[..., Any], finish: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that merges partial results before it finishes them."""
    return partial(_of_merged, merge, finish)


def _of_merged(
    merge: Callable[..., Any], finish: Callable[..., Any], partials: Sequence[Any], known: Any
) -> Any:
    return finish(merge(partials), known)


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


@dataclass(frozen=True, kw_only=True)
class LaneLoads:
    """The loads by which lanes are answered whose chunks no task takes together.

    Parameters
    ----------
    narrow, last : LaneLoad
        Those of passes, which find the order statistics of every lane. The first results in
        brackets; its `measure` and `merge` also get a number of ranks, `m`. The last one results in
        order statistics.
    n_brackets : int
        Number of brackets that passes narrow, for each lane or for each group in it.
    partial_bytes : callable
        ``(dtype)``: the bytes of partial results of passes.
    pass_time : float
        Time that a load of passes spends on elements, over the time that a whole column takes.
    further : LaneLoad, optional
        A load after the passes. Its results are the answers, in the form of those of
        `LaneQuestion.finished`.
    tails : callable
        ``(n)``: how the tails of lanes of `n` elements give the answer; None if they do not.
    counts : LaneLoad, optional
        The load that counts every value, if that answers the question for small dtypes. It results
        in the answers, in the form of those of `LaneQuestion.finished`.
    """

    narrow: LaneLoad
    last: LaneLoad
    n_brackets: int
    partial_bytes: Callable[[np.dtype[Any]], PartialBytes]
    # Measured for quantiles of (3650, 150, 150) float32, with chunks that cost nothing to make.
    pass_time: float = 0.75
    further: LaneLoad | None = None
    tails: Callable[[int], LaneLoad | None] = nothing
    counts: LaneLoad | None = None


def counting(counted: Callable[..., Any]) -> LaneLoad:
    """Return the load that counts every value; `counted` makes the answers of all counts."""
    finish = of_merged(ValueCounts.merge, counted)
    return LaneLoad(values.lane_value_counts, ValueCounts.merge, finish)


@dataclass(frozen=True)
class BlockForm:
    """Functions that make blocks of the answer: arrays, or tables of boxes.

    Parameters
    ----------
    restored : callable
        ``(answers, block, shape)``: give the answers about the lanes of a block of that shape the
        axes of the answer.
    joined : callable
        ``(blocks, axis)``: concatenate blocks of the answer.
    divided : callable
        ``(block, n, axis)``: divide a block into `n` of equal size.
    joined_later : callable, optional
        As `joined`, for blocks that stay in their process; some of it may be done when it is used.
    """

    restored: Callable[[Any, Block, AnswerAxes], Any]
    joined: Callable[[Sequence[Any], int], Any]
    divided: Callable[[Any, int, int], Sequence[Any]]
    joined_later: Callable[[Sequence[Any], int], Any] | None = None


def _restored(answers: Any, block: Block, shape: AnswerAxes) -> Any:
    return shape.restore(answers, block)


def _joined(blocks: Sequence[Any], axis: int) -> Any:
    return concatenate(list(blocks), axis)


ARRAYS = BlockForm(_restored, _joined, np.split)

OF_ROWS = AnswerAxes(2, (1,), keepdims=False, is_scalar=False)  # of a table with a row for each run

LONG, LONG_AS_ROWS = 1 << 16, 1 << 18
"""Least lengths of lanes that a device had better answer as groups, and copy to rows.

On an H200, trimmed means of 512 lanes of 2**17 float32 take 10 ms as groups, and 23 otherwise.
`mad` of 32 lanes of 2**21 along the first axis takes 7 ms as rows, and 128 otherwise.
"""

TOGETHER = 1 << 26  # elements of lanes that are answered as groups at a time, with 48 bytes of each

Composed = Callable[[Callable[..., DaskArray], DaskArray, str, "tuple[int, ...] | None"], DaskArray]
"""Type of a function that composes a lazy answer from other questions.

``(ask, x, label, axes)``: `axes` are those of the lanes, or None for groups of all elements.
``ask(x, question, marked)`` answers the other questions, with the reduced axes.
"""


class LaneQuestion(ABC):
    """A question about every lane along some axes.

    Subclasses implement `order`. All else is optional.
    """

    takes_runs: ClassVar[bool] = False
    """True if `block` also takes a `maths.runs.Runs`, in which groups are lanes."""

    def block_of_groups(
        self, chunks: Sequence[Any], dtype: np.dtype[Any], n_groups: int, shape: AnswerAxes
    ) -> Any:
        """Answer about all groups of some chunks at once, on their device.

        The labels of chunks are the numbers of groups. None if tables of groups are as fast. The
        question has to take runs.
        """
        runs = kernels.runs.sorted_runs(chunks, dtype, n_groups)
        return None if runs is None else self.block([runs], dtype, shape)

    def as_groups(self, column: ChunkColumn, least: int | None = None) -> Any:
        """Answer about lanes on a device, each as a group; None if they are shorter than `least`.

        By default, that is `LONG`. Scratch: that of groups of `TOGETHER` elements.
        """
        chunks, dtype, _ = column
        is_short = column.n < max(LONG if least is None else least, 1)
        if is_short or not (column.size and kernels.is_on_device(chunks[0])):
            return None
        rows, step = kernels.as_rows(column).chunks, max(TOGETHER // column.n, 1)
        answers = []
        for i in range(0, rows[0].shape[0], step):
            some = [_with_labels(part[i : i + step]) for part in rows]
            answers.append(self.block_of_groups(some, dtype, some[0].shape[0], OF_ROWS))
            if answers[-1] is None:
                return None
        return answers[0] if len(answers) == 1 else self.blocks.joined(answers, -1)

    @property
    def by_order(self) -> bool:
        """Return whether elements at the ranks of `order` answer, maybe after a further load."""
        return True

    @property
    def wanted_of_group(self) -> Wanted | None:
        """The elements that are wanted of each group of all elements, if two loads find them.

        A further load may follow.
        """
        return Wanted.of_ranks(self.order.lane_ranks) if self.by_order else None

    @property
    @abstractmethod
    def order(self) -> LaneOrder:
        """The order statistics of every lane that give the answer, or that passes find first."""

    @property
    def n_answers(self) -> int:
        """Number of numbers in the answer, for each lane."""
        return self.order.n_answers

    @property
    def loads(self) -> LaneLoads:
        """The loads by which lanes are answered whose chunks no task takes together."""
        own = kernels.lane_passes
        finish = of_merged(own.merge_tallies, own.order_statistics)
        bracketed = partial(own.narrowed, order=self.order)
        answers = partial(own.answers, order=self.order)
        return LaneLoads(
            narrow=LaneLoad(own.cuts, own.merge_cuts, bracketed),
            last=LaneLoad(own.tally, own.merge_tallies, finish, answers=answers),
            n_brackets=self.n_answers,
            partial_bytes=self._partial_bytes,
            further=self.further,
        )

    @property
    def further(self) -> LaneLoad | None:
        """The load after the passes, if there is one: see `LaneLoads`."""
        return None

    def _partial_bytes(self, dtype: np.dtype[Any]) -> PartialBytes:
        return PartialBytes(selection_dtype(self.task_dtype(dtype)).itemsize)

    def _counted(self, counts: ValueCounts, known: None = None) -> Any:
        """Return the answers about lanes, from the counts of all values, for `counting`."""
        return self.finished(counts.order_statistics(self.order.lane_ranks))

    @property
    def composed(self) -> Composed | None:
        """Function that composes the lazy answer, where columns have to be read in passes.

        None if passes find the answer.
        """
        return None

    def finished(self, resolved: Any) -> Any:
        """Convert the result of passes to answers ``(n_answers, n_lanes)`` on the host."""
        return self.order.lane_answer(resolved)

    @property
    def blocks(self) -> BlockForm:
        """Functions that make blocks of the answer."""
        return ARRAYS

    @property
    def slots(self) -> LaneSlots:
        """The slots of every lane."""
        return LaneSlots()

    def task_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype in which a task holds elements of the given dtype."""
        return dtype

    def answer(self, column: ChunkColumn) -> Any:
        """Compute the answers ``(n_answers, n_lanes)`` of all chunks together, in kind."""
        return kernels.lanes.answer_lanes(column, self.order)

    def answer_groups(
        self, column: ChunkColumn, places: Callable[[], Sequence[IntArray]]
    ) -> Any | None:
        """Compute the answers ``(n_answers, n_groups, n_lanes)`` for every group of every lane.

        They are in kind. Return None if groups have to be answered one after the other. `places`
        returns, for each group, the positions of its elements in every lane.
        """
        if self.further is not None or not self.by_order:
            return None
        return kernels.lanes.answer_group_lanes(column, self.order, places)

    def block(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        """Compute a block of the answer from the chunks of its column."""
        column = long_as_rows(ChunkColumn(chunks, dtype, shape.axes))
        return shape.restore(self.answer(column), chunks[0].shape)


def long_as_rows(column: ChunkColumn) -> ChunkColumn:
    """Copy long lanes on a device without weights to rows; leave others where they are."""
    first = column.chunks[0]
    is_weighted = getattr(first, "weights", None) is not None
    if column.are_rows or column.n < LONG_AS_ROWS or is_weighted:
        return column
    return kernels.as_rows(column) if column.may_be_rows and kernels.is_on_device(first) else column


def _with_labels(rows: Any) -> Accompanied:
    """Add to each element of a table the number of its row, as its label."""
    xp = namespace(values_of(rows))
    labels = xp.broadcast_to(xp.arange(rows.shape[0], dtype=np.int32)[:, None], rows.shape)
    whole = rows if isinstance(rows, Accompanied) else Accompanied(rows)
    return replace(whole, labels=labels)
