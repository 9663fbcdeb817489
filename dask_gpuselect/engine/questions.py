"""What is asked of an array. A feature says it by a subclass, and `asking.ask` finds the answer.

Questions are frozen, picklable, and deterministically tokenizable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import concatenate
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.kernels import elements_at, values
from dask_gpuselect.maths.boxes import BoxGuess
from dask_gpuselect.maths.coarse import narrower
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, RanksOf, Tally
from dask_gpuselect.maths.envelope import Ranges, find_brackets, guess_brackets
from dask_gpuselect.maths.finish import order_statistics
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import LaneOrder, join, lanes_between
from dask_gpuselect.maths.lane_value_counts import LaneValueCounts
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.sizes import PIVOT_BYTES
from dask_gpuselect.maths.tails import TailSizes, lanes_in_tails

Block = tuple[int, ...]
Guess = Callable[[Any, float], Brackets]
"""As `Question.guess`."""

VERY_MANY = 1 << 50  # elements


class Question(ABC):
    """What is asked of all elements of an array.

    `bracket`, `guess` and `look` are needed. The other parts are optional. With `n_ranges` goes
    `ranges`; without `has_guess`, `guess` is not needed.
    """

    guesses_chunks: ClassVar[bool] = True
    """Whether it can do so for chunks of a dask array, too."""

    wants_sums: ClassVar[bool] = False
    """Whether `finish` takes the exact sums of the elements that `summed` tells. They cost no
    load."""

    weighs: ClassVar[bool] = False
    """Whether the elements weigh: it takes reports with weights."""

    n_slots: int = 1
    """Of how many slots it is asked apart, at most; see `slots.OfSlots`."""

    third: ClassVar[str | None] = None
    """What a third load is for, in the names of its layers; None if there is never one."""

    looks_again: ClassVar[bool] = False
    """Whether `look_again` knows what a third load has found, and its counts prove it however the
    brackets before it were found."""

    @property
    def has_guess(self) -> bool:
        """Whether a sample of the elements can guess the brackets."""
        return True

    @property
    def n_answers(self) -> int:
        """How many numbers answer."""
        return 1

    counts_values: ClassVar[bool] = True
    """Whether counts of every value answer it, of data that have few; see `brackets_by`."""

    @property
    def share(self) -> int:
        """How many wanted ranks there are for each pivot; see `sizes.pivot_count`."""
        return 1

    def root_bytes(self, dtype: np.dtype[Any]) -> tuple[int, int]:
        """What the first load reports for each pivot, and the second for each candidate, of
        elements of that dtype."""
        return PIVOT_BYTES, dtype.itemsize

    @property
    def lanes(self) -> LaneQuestion:
        """What is asked of every lane, where some axes are reduced."""
        raise TypeError(
            f"{type(self).__name__} does not define `lanes`: it is not supported along an axis"
        )

    @abstractmethod
    def bracket(self, cuts: Cuts) -> Brackets:
        """What the second load gathers, by the cuts of all chunks."""

    @property
    def keeps(self) -> bool:
        """Whether counts and candidates at other brackets, which `keep` gives, tell all that the
        second load is asked of a chunk."""
        return self.sums_all or not self.wants_sums

    def brackets_by(self, report: Any) -> Brackets:
        """The brackets at which counts of every value are looked at."""
        return self.bracket(report.cuts())

    def keep(self, cuts: Cuts) -> Brackets:
        """What the first load may keep for the second: what this would gather by the cuts of some
        chunks, which stand for the others. See `maths.seen`."""
        return self.bracket(cuts)

    @property
    def n_ranges(self) -> int:
        """In how many ranges of values all pivots lie that `bracket` needs, if there are very many
        elements; 0 if it may need any."""
        return 0

    def ranges(self, cuts: Cuts) -> Ranges:
        """These ranges, as the cuts of all chunks prove them at some of their pivots. Pivots whose
        cells are outside of them would change nothing that matters."""
        raise TypeError(f"{type(self).__name__} does not define `ranges`")

    def stretch(self, i: int, n: int) -> Question:
        """What is asked of the i-th of `n` stretches of neighbouring ranks, if it `divides`."""
        raise TypeError(f"{type(self).__name__} does not define `stretch`")

    divides: ClassVar[bool] = False
    """Whether ranges are those of ranks, which `stretch` divides."""

    @property
    def narrows_candidates(self) -> bool:
        """Whether `narrower` says which of the candidates matter."""
        return type(self).narrower is not Question.narrower

    def narrower(self, brackets: Brackets, cuts: Cuts) -> Brackets:
        """Which of the candidates at some brackets matter, by the cuts of all chunks at some of
        these candidates and at the ends of the brackets."""
        raise TypeError(f"{type(self).__name__} does not define `narrower`")

    def guess(self, ordered: Any, rate: float) -> Brackets:
        """What to gather in the only read of data in memory.

        Parameters
        ----------
        ordered : array or WeightedSample
            A sorted sample of the elements, on any device; a `WeightedSample` if they weigh.
        rate : float
            The share of all elements that it has.
        """
        raise TypeError(f"{type(self).__name__} does not define `guess`")

    def guess_there(self, size: int) -> BoxGuess | None:
        """How a device may find what `guess` gives, by a sorted sample of so many; None if only
        the host can."""
        return None

    def guess_inside(self, brackets: Brackets, tally: Tally) -> Guess | None:
        """`guess` for a sample of the candidates alone, which narrows brackets of data in memory;
        None if the candidates are to stay as they are.

        Raises `ChunksChangedError` if the brackets do not hold all that is needed.
        """
        return None

    def ranks_of_sample(self, n: int) -> RanksOf | None:
        """The first and last rank of each bracket in a sample, by its size, if ranks are all that
        is asked of `n` elements. Hashable, and equal for equal questions."""
        return None

    @abstractmethod
    def look(self, brackets: Brackets, tally: Tally) -> Any:
        """What the elements inside the brackets say.

        Raises `ChunksChangedError` if the brackets do not hold all that is needed.
        """

    def first_ranks(self, n: int) -> IntArray:
        """Ranks that `look` asks for first, of n elements: a device may select these at once."""
        return np.empty(0, np.int64)

    @property
    def sums_all(self) -> bool:
        """Whether all elements are summed."""
        return type(self).summed is Question.summed

    def summed(self, chunk: Any, brackets: Brackets) -> Any:
        """The elements of a chunk that are summed; all of them unless a question says otherwise. Of
        equal elements all or none: the chunk may be all values that occur, each of them once."""
        return chunk

    def more(self, brackets: Brackets, found: Any) -> Brackets | None:
        """What a third load gathers, or None if `found` is all that is needed."""
        return None

    def look_again(self, found: Any, more: Brackets, tally: Tally) -> Any:
        """What is known after a third load, as of `look`."""
        raise NotImplementedError

    def finish(
        self, found: Any, more: Brackets | None, tally: Tally | None, sums: Moments | None
    ) -> Any:
        """The answer, by what `look` has found, the third load and the sums.

        It is one-dimensional, on the host, and of the promised dtype; or any object.
        """
        return found

    def lazily(self, answer: DaskArray) -> Any:
        """What a caller gets for the answer before it is computed."""
        return answer

    @property
    def of_slot(self) -> Question | None:
        """The question as it is asked of each of several slots, if `of_slots` puts the answers
        together; None otherwise."""
        return None

    def of_slots(self, answers: Sequence[Any]) -> Any:
        """The answers ``(n_answers, n_slots)``, by those of `of_slot` about each slot."""
        raise NotImplementedError


class RankQuestion(Question):
    """A question whose brackets are those of some ranks."""

    @abstractmethod
    def ranks(self, n: int) -> tuple[IntArray, IntArray]:
        """The first and last rank of each wanted bracket, among `n` valid elements; none if `n` is
        0."""

    def bracket(self, cuts: Cuts) -> Brackets:
        return find_brackets(cuts, *self.ranks(int(cuts.n_valid.sum())))

    def narrower(self, brackets: Brackets, cuts: Cuts) -> Brackets:
        return narrower(brackets, self.bracket(cuts))

    @property
    def n_ranges(self) -> int:
        return len(self.ranks(VERY_MANY)[0])

    def ranges(self, cuts: Cuts) -> Ranges:
        return Ranges.of_ranks(cuts, *self.ranks(int(cuts.n_valid.sum())))

    def guess(self, ordered: Any, rate: float) -> Brackets:
        size = int(ordered.shape[0])
        take = partial(elements_at, ordered)
        return guess_brackets(take, size, *self.ranks(size))[0]


class ElementQuestion(RankQuestion):
    """A question that the elements of some ranks answer, however they are found.

    A strategy can be asked for them as well.
    """

    @abstractmethod
    def ranks_of_sample(self, n: int) -> RanksOf:
        """The first and last rank of each bracket in a sample of `n` elements, by its size."""

    @abstractmethod
    def answer_by(
        self, n_valid: int, n_missing: int, found: Callable[[IntArray], NDArray[Any]]
    ) -> NDArray[Any]:
        """The answer, by a function from ranks to elements."""

    def look(self, brackets: Brackets, tally: Tally) -> NDArray[Any]:
        found = partial(order_statistics, brackets, tally)
        return self.answer_by(tally.n_valid, tally.n_missing, found)


class OneLoadQuestion(ABC):
    """What the reports of all chunks answer together, each by itself, in one load."""

    @abstractmethod
    def measure(self, chunk: Any, dtype: np.dtype[Any]) -> Any:
        """The report of a chunk."""

    @staticmethod
    @abstractmethod
    def merge(reports: Sequence[Any]) -> Any:
        """The report of several chunks together."""

    @abstractmethod
    def answer(self, report: Any) -> Any:
        """The answer, any object, by the report of all chunks."""

    @abstractmethod
    def lazily(self, answer: DaskArray) -> Any:
        """What a caller gets for the answer before it is computed."""


def no_answers(report: Any, brackets: Any) -> None:
    """None: nothing is answered without what is found."""


@dataclass(frozen=True)
class PassSteps:
    """What is done in passes: on the chunks of a part of a column, and on the reports of parts.

    Parameters
    ----------
    cuts : callable
        ``(chunks, dtype, axes, brackets or None, m=)``: the report of a pass, at `m` ranks.
    merge_cuts : callable
        ``(reports, m=)``: that of several parts together.
    narrowed : callable
        ``(reports, brackets or None)``: the brackets that the reports of a pass prove.
    tally : callable
        ``(chunks, dtype, axes, brackets)``: the report of the last pass.
    merge_tallies : callable
        ``(reports)``: that of several parts together.
    found : callable
        ``(report, brackets)``: what is asked.
    join : callable
        ``(reports)``: those of some lanes, of the next, and so on, as one.
    between : callable
        ``(brackets, start, stop)``: those of some lanes.
    answers : callable, optional
        ``(report, brackets)``: the answers, as of `LaneQuestion.finished`, where the reports are;
        None where `found` leads to them.
    """

    cuts: Callable[..., Any]
    merge_cuts: Callable[..., Any]
    narrowed: Callable[..., Any]
    tally: Callable[..., Any]
    merge_tallies: Callable[..., Any]
    found: Callable[..., Any]
    join: Callable[..., Any] = join
    between: Callable[..., Any] = lanes_between
    answers: Callable[..., Any | None] = no_answers

    @classmethod
    def by_counts(cls, order: LaneOrder) -> PassSteps:
        """Those that find order statistics."""
        return cls(
            kernels.lane_cuts,
            kernels.merge_lane_cuts,
            partial(kernels.narrowed_lane_brackets, ranks=order.lane_ranks),
            kernels.lane_tally,
            kernels.merge_lane_tallies,
            kernels.order_statistics_of_lanes,
            answers=partial(kernels.answers_of_tally, order=order),
        )


@dataclass(frozen=True)
class Tails:
    """How the tails of every lane answer: what is done on the chunks of a part of a column, and on
    the reports of parts.

    Parameters
    ----------
    n_kept : int
        Elements of each lane that are kept, at most.
    measure : callable
        ``(chunks, dtype, axes, None)``: the report of a part.
    merge : callable
        ``(reports)``: that of several parts together.
    found : callable
        ``(report)``: what is asked, by the report of all parts.
    """

    n_kept: int
    measure: Callable[..., Any]
    merge: Callable[..., Any]
    found: Callable[..., Any]

    @classmethod
    def of_sizes(cls, sizes: TailSizes, order: LaneOrder) -> Tails:
        """Those that have the order statistics of every lane."""
        return cls(
            sizes.width(sizes.n),
            partial(kernels.lane_tails, sizes=sizes),
            partial(kernels.merge_lane_tails, sizes=sizes),
            partial(lanes_in_tails, ranks=order.lane_ranks, sizes=sizes),
        )


class LaneQuestion(ABC):
    """What is asked of every lane along some axes.

    `order` is needed. The other parts are optional.
    """

    look_cost: ClassVar[float] = 0.75
    """How long a load of passes looks at elements, of what a column looks at them. Measured of
    quantiles of (3650, 150, 150) float32, with chunks that cost nothing to make."""

    @property
    def looks(self) -> float:
        """`look_cost`, with what else a load of passes does."""
        return self.look_cost

    @property
    @abstractmethod
    def order(self) -> LaneOrder:
        """The order statistics of every lane that answer, or that passes find first."""

    @property
    def n_answers(self) -> int:
        """How many numbers answer, for each lane."""
        return self.order.n_answers

    @property
    def further(self) -> FurtherLoad | None:
        """A load of passes after those that find the order statistics."""
        return None

    counts_values: ClassVar[bool] = False
    """Whether counts of every value answer it, of lanes that have few: see `counted`."""

    @property
    def lanes_counted(self) -> float:
        """How many lanes values are counted of, for each: its groups. inf if that is not known."""
        return 1

    def value_report(
        self, chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], known: None
    ) -> Any:
        """The counts of every value in some chunks of a column."""
        return values.lane_value_counts(chunks, dtype, axes)

    def merge_value_reports(self, reports: Sequence[Any]) -> Any:
        """Merge those of several parts of a column."""
        return LaneValueCounts.merge(reports)

    def counted(self, report: Any, block: Block, dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        """A block of the answer, by that of all of them, for a block of the data of that shape."""
        return self.restored(report.found(self.order.lane_ranks), block, shape)

    takes_two_loads: ClassVar[bool] = False
    """Whether two loads of its own find it, where there is one lane alone."""

    @property
    def keeps(self) -> bool:
        """Whether the first of these may keep what the second would ask."""
        return False

    def root_bytes_of(self, sizes: Sequence[int], itemsize: int) -> int:
        """What these would bring to one place, from parts of so many elements."""
        raise NotImplementedError

    @property
    def most_roots(self) -> int:
        """In how many places these can be looked at."""
        return 1

    by_place: ClassVar[bool] = True
    """Whether the answer depends on the places of elements in a chunk."""

    by_order: ClassVar[bool] = True
    """Whether the elements at the ranks of `order`, or these and a further load, answer it."""

    composes_groups: ClassVar[bool] = False
    """Whether `composed_of_groups` answers it by other questions about groups of all elements."""

    has_steps: ClassVar[bool] = True
    """Whether passes of its own find it."""

    @property
    def takes_passes(self) -> bool:
        """Whether columns can be taken in passes."""
        return True

    @property
    def advice(self) -> str:
        """What a user can do so that passes are taken, for messages."""
        return ""

    @property
    def steps(self) -> PassSteps:
        """What passes do."""
        return PassSteps.by_counts(self.order)

    def finished(self, found: Any) -> Any:
        """The answers ``(n_answers, n_lanes)``, on the host, by what passes have found."""
        return self.order.lane_answer(found)

    def restored(self, found: Any, block: Block, shape: AnswerAxes) -> Any:
        """A block of the answer, by what passes have found, for a block of the data of that
        shape."""
        return shape.restore(self.finished(found), block)

    def tails(self, n: int) -> Tails | None:
        """How the tails of lanes of `n` elements answer; None if they do not."""
        return None

    @property
    def n_brackets(self) -> int:
        """How many brackets passes narrow, for each lane, or for each group in it."""
        return self.n_answers

    @property
    def windows(self) -> tuple[IntArray, ...] | None:
        """Where the elements of each group are, if that is no matter of labels, which chunks
        have."""
        return None

    @property
    def lanes_of_each(self) -> int:
        """How many lanes passes make of one: its groups."""
        return 1

    def elements_of_each(self, n: int) -> int:
        """How many elements such a lane has, of `n` in all."""
        return n

    def report_bytes(self, dtype: np.dtype[Any]) -> dict[str, int]:
        """What the reports of passes take, for elements of that dtype: sizes of
        `sizes.plan_passes`."""
        return {"itemsize": selection_dtype(self.held_dtype(dtype)).itemsize}

    def held_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """What a task holds elements of that dtype as."""
        return dtype

    def loads_in_passes(self, loads: int) -> int:
        """How many loads passes take, from those of the order statistics."""
        return loads + (self.further is not None)

    def answer(self, chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...]) -> Any:
        """The answers ``(n_answers, n_lanes)`` for every lane of all chunks together, in kind."""
        return kernels.answer_lanes(chunks, dtype, axes, self.order)

    def answer_groups(
        self,
        chunks: Sequence[Any],
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        places: Callable[[], Sequence[IntArray]],
    ) -> Any | None:
        """The answers ``(n_answers, n_groups, n_lanes)`` for every group of every lane, in kind;
        None where they are found of one group after the other. `places` gives for each group where
        its elements are in every lane."""
        if self.further is not None or not self.by_order:
            return None
        return kernels.answer_group_lanes(chunks, dtype, axes, self.order, places)

    def block(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        """A block of the answer, from the chunks of its column."""
        return shape.restore(self.answer(chunks, dtype, shape.axes), chunks[0].shape)

    def block_now(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        """The same of an array in memory, whose answer may stay where the array is."""
        return self.block(chunks, dtype, shape)

    def joined(self, blocks: Sequence[Any], axis: int) -> Any:
        """Blocks of the answer, one behind the other."""
        return concatenate(list(blocks), axis)

    def composed(self, x: DaskArray, label: str, shape: AnswerAxes) -> DaskArray | None:
        """The answer by other questions, where columns have to be taken in passes; None if passes
        of its own find it."""
        return None

    def composed_of_groups(
        self,
        ask: Callable[[DaskArray, LaneQuestion, bool], DaskArray],
        x: DaskArray,
        label: str,
    ) -> DaskArray:
        """The answer about each group of all elements by ``ask(x, question, seen)`` of others."""
        raise NotImplementedError


class FurtherLoad(ABC):
    """A load of every lane that follows when its order statistics are known."""

    name: ClassVar[str]
    """Part of the names of its layers."""

    merge_every: ClassVar[int]
    """Reports that are merged at once."""

    @abstractmethod
    def known(self, found: Any) -> Any:
        """What the tasks of the load have to know of the order statistics."""

    @abstractmethod
    def measure(
        self, chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], known: Any
    ) -> Any:
        """The report of some chunks of a column."""

    @abstractmethod
    def merge(self, reports: Sequence[Any]) -> Any:
        """The report of several parts of a column together."""

    def join(self, reports: Sequence[Any]) -> Any:
        """The reports of some lanes, of the next, and so on, as one."""
        return join(reports)

    def between(self, known: Any, start: int, stop: int) -> Any:
        """What is known of some of the lanes."""
        return lanes_between(known, start, stop)

    @abstractmethod
    def finish(
        self,
        reports: Sequence[Any],
        known: Any,
        block: Block,
        dtype: np.dtype[Any],
        shape: AnswerAxes,
    ) -> Any:
        """A block of the answer, for a block of the data of that shape."""
