"""Questions about box plots, of all elements and of every lane, weighted or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.boxplot.tables import Boxes, BoxesThere
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.questions import (
    OF_ROWS,
    Block,
    BlockForm,
    BySlot,
    Costs,
    InMemory,
    LaneLoad,
    LaneLoads,
    LaneQuestion,
    Measures,
    Question,
    Sample,
    ThirdLoad,
    counting,
    everything,
    long_as_rows,
    of_merged,
)
from dask_gpuselect.engine.source import nothing
from dask_gpuselect.kernels import valid_in
from dask_gpuselect.kernels.companions import ChunkColumn
from dask_gpuselect.maths.boxes import (
    LEAST_ROOM,
    ROOM,
    PartialBox,
    Rule,
    box_guess,
    bracket_fences,
    bracket_from_cuts,
    bracket_from_sample,
    first_ranks,
    narrower_box,
    room_of,
    rungs_of,
)
from dask_gpuselect.maths.chunk_sample import most_cached
from dask_gpuselect.maths.cuts import Brackets, Cuts, FloatArray, IntArray, Tally
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.host_runs import gathered
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import Lanes, check_lanes_unchanged
from dask_gpuselect.maths.lane_ends import LaneEnds
from dask_gpuselect.maths.lane_weights import picked
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.orders import GatheredRuns
from dask_gpuselect.maths.ragged import SlotKeys, Sums, Wanted
from dask_gpuselect.maths.ranks import METHODS
from dask_gpuselect.maths.runs import Runs, completed, ends
from dask_gpuselect.maths.value_counts import ValueCounts
from dask_gpuselect.maths.weight_guess import guess_box_brackets, shares_inside
from dask_gpuselect.quantiles import weighted
from dask_gpuselect.quantiles.questions import Quantiles
from dask_gpuselect.quantiles.weighted import WeightedQuantiles


@dataclass(frozen=True, eq=False)
class KnownBoxes(Lanes):
    """The quantiles of the box of each lane, and its ends where no load need find them.

    Parameters
    ----------
    ends : LaneEnds or None
        Ends of all lanes; None if some are not known.
    """

    ends: LaneEnds | None = None


@dataclass(frozen=True)
class BoxQuestion(LaneQuestion, Question):
    """Box plots of all elements, or of every lane, as a question: quantiles, moments and tails.

    Parameters
    ----------
    quantiles : Quantiles or WeightedQuantiles
        The quantiles `Rule.q`.
    rule : Rule
        How its quartiles and fences follow from the data.
    omits_nan : bool
        True if NaN are left out. Otherwise one of them makes every statistic NaN.
    stays : bool
        True if the boxes of lanes may stay on the device of their chunks.
    """

    quantiles: Quantiles | WeightedQuantiles
    rule: Rule
    omits_nan: bool
    stays: bool = False

    takes_runs: ClassVar[bool] = True

    @classmethod
    def of(
        cls,
        rule: Rule,
        source: np.dtype[Any],
        *,
        omits_nan: bool,
        stays: bool = False,
        weighs: bool = False,
    ) -> Self:
        is_element = METHODS[rule.method].discrete
        dtype = source.newbyteorder("=") if is_element else np.dtype(np.float64)
        quantiles_of = WeightedQuantiles if weighs else Quantiles
        # The boxes have their numbers of elements, so nothing warns.
        quantiles = quantiles_of(rule.q, rule.method, True, source, dtype, warns=False)
        return cls(quantiles, rule, omits_nan, stays)

    @property
    def order(self) -> Any:
        return self.quantiles

    @property
    def by_order(self) -> bool:
        return self.quantiles.by_order

    @property
    def wanted_of_group(self) -> Wanted | None:
        wanted = self.quantiles.wanted_of_group
        if wanted is None:
            return None
        find = partial(self._found, wanted.find)
        return replace(wanted, find=find, whole=self, is_done=_has_ends)

    def _found(self, find: Callable[..., Lanes], order: GatheredRuns, sums: Sums | None) -> Lanes:
        """Find the quantiles of groups; the boxes, too, if all that these need was gathered."""
        lanes = find(order, sums)
        if sums is None:
            return lanes
        known, (n_all, moments) = self.known(lanes), sums
        own = ends(order, np.stack(self.rule.fences(known.lower.T)), self.rule.max_fliers)
        if own.beyond_low.measure is None or own.beyond_high.measure is None:
            return known
        n_left_out = n_all - known.n_valid - known.n_missing
        return replace(known, ends=replace(own, n_left_out=n_left_out, moments=moments))

    @property
    def measures(self) -> Measures:
        return replace(self.quantiles.measures, sums=everything)

    @property
    def costs(self) -> Costs:
        def candidates(n_pivots: int) -> int:
            return n_pivots * self.n_answers + 2 * max(ROOM * n_pivots, LEAST_ROOM)

        return replace(super().costs, candidates=candidates)

    @property
    def n_ranges(self) -> int:
        return self.quantiles.n_ranges + 4  # two fences and two extremes

    def bracket(
        self, cuts: Cuts, most: int | None = None, keys: SlotKeys | None = None
    ) -> Brackets:
        return bracket_from_cuts(cuts, self.rule, room_of(cuts, keys, most), keys=keys)

    def keep(self, cuts: Cuts) -> Brackets:
        # The quartiles are uncertain before the second load, and the fences more so.
        return bracket_from_cuts(cuts, self.rule, most_cached(cuts))

    def narrower(self, brackets: Brackets, cuts: Cuts) -> Brackets:
        return narrower_box(brackets, cuts, self.rule)

    def resolve(self, brackets: Brackets, tally: Tally) -> PartialBox:
        about, order = self.quantiles, gathered(brackets, tally)
        q = np.full(len(self.rule.q), np.nan)

        def elements_at(ranks: IntArray) -> NDArray[Any]:
            return unsigned_zero(order.elements(ranks.ravel())).reshape(ranks.shape)

        if isinstance(about, WeightedQuantiles):
            q = self.q_of(picked(order, about.wanted))[:, 0]
        elif tally.n_valid:
            q = about.answer_by(tally.n_valid, tally.n_missing, elements_at).astype(np.float64)
        own = ends(order, np.stack(self.rule.fences(q[:, None])), self.rule.max_fliers)
        return q, replace(own, n_left_out=own.n_left_out + tally.n_left_out)

    @property
    def third(self) -> ThirdLoad:
        fences = partial(bracket_fences, rule=self.rule)
        return ThirdLoad("fences", fences, partial(completed, rule=self.rule))

    def finish(self, resolved: PartialBox, sums: Moments | None) -> Boxes:
        assert sums is not None
        q, ends = resolved
        return self.boxes(q[:, None], replace(ends, moments=sums)).reshape(())

    @property
    def in_memory(self) -> InMemory:
        first = partial(first_ranks, self.rule)
        if isinstance(self.quantiles, WeightedQuantiles):
            return InMemory(
                guess=self._guess_by_weight,
                guess_inside=self._guess_inside,
                first_ranks=first,
                of_run=self._of_run,
            )
        return InMemory(
            guess=self._guess,
            guess_there=partial(box_guess, self.rule, self.order),
            first_ranks=first,
            # Arrays of 2^22 float32 or 2^20 float64. On an H200 a box of 2^18 normal float32 takes
            # 1.3 ms instead of 2.3, and of 2^24 2.6 instead of 1.5.
            whole_times=8,
            alone=self._alone,
            of_box=self._of_box,
        )

    def _guess(self, ordered: Any, rate: float) -> Brackets:
        return bracket_from_sample(*valid_in(ordered, rungs_of), rate, self.rule)

    def _guess_by_weight(self, ordered: Any, rate: float) -> Brackets:
        shares = ordered.shares(self.rule.q, self.rule.method, rate)
        return guess_box_brackets(ordered, shares, rate, self.rule)

    def _guess_inside(self, brackets: Brackets, tally: Tally, sample: Sample) -> Brackets | None:
        if len(tally.candidates) <= weighted.FEW_CANDIDATES:
            return None
        shares = shares_inside(brackets, tally, self.rule.q, self.rule.method)
        ordered, rate = sample()
        return guess_box_brackets(ordered, shares, rate, self.rule, is_inside=True)

    def _alone(self, values: Any, dtype: np.dtype[Any]) -> Boxes | None:
        box = kernels.lanes.box_alone(values, self.order, self.rule)
        return None if box is None else self._of_box(box)

    def _of_box(self, box: LaneBoxes) -> Boxes:
        return BoxesThere.waiting(box, (), self.quantiles.source_dtype)

    def _of_run(self, run: Runs) -> Boxes:
        return self.block([run], self.quantiles.source_dtype, OF_ROWS).reshape(())

    @property
    def by_slot(self) -> BySlot:
        return BySlot(self, self._together)

    def _together(self, answers: Sequence[Boxes]) -> Boxes:
        # Columns of integers stay exact beside NaN of slots that have no elements.
        kinds = [each.min.dtype for each in answers if each.n]
        some = [each.reshape((1,)) for each in answers]
        if kinds and kinds[0].kind in "iu":
            none = dict.fromkeys(("min", "max", "low", "high"), np.zeros(1, kinds[0]))
            some = [each if each.n.all() else replace(each, **none) for each in some]
        return Boxes.concatenated(some, 0).without_missing(omits_nan=True)

    @property
    def loads(self) -> LaneLoads:
        loads = replace(self.quantiles.loads, further=self.further, tails=nothing)
        if loads.counts is None:
            return loads
        # The time was measured in the same way as that of quantiles.
        return replace(loads, pass_time=1.1, counts=counting(self._counted))

    @property
    def further(self) -> LaneLoad:
        merge = partial(_merged_ends, most=self.rule.max_fliers)
        functions = self.measure_ends, merge, of_merged(merge, self.boxes_by_ends), self.known
        # Sorting the fliers of more partial results at once takes five times as long.
        return LaneLoad(*functions, "ends", 2, 2 * self.rule.max_fliers)

    def known(self, found: Lanes) -> KnownBoxes:
        """Return what the load of the ends needs to know of the quantiles."""
        if isinstance(found, KnownBoxes):
            return found
        q = self.q_of(found).T
        return KnownBoxes(q, q, found.n_valid, found.n_missing)

    def measure_ends(self, column: ChunkColumn, known: Any) -> LaneEnds:
        """Measure the ends of every lane, when its quantiles are known."""
        bounds = np.stack(self.rule.fences(known.lower.T))
        ends: LaneEnds = kernels.lanes.lane_ends(column, bounds, self.rule.max_fliers)
        return ends

    def boxes_by_ends(self, ends: LaneEnds | None, known: Any) -> Boxes:
        """Return the box of each lane, from its quantiles and ends, unless these are known."""
        if ends is None:
            ends = known.ends
        check_lanes_unchanged([ends], known)
        return self.boxes(known.lower.T, ends)

    def _counted(self, counts: ValueCounts, known: None = None) -> Boxes:
        q = self.q_of(counts.order_statistics(self.order.lane_ranks))
        ends = counts.ends(np.stack(self.rule.fences(q)), self.rule.max_fliers)
        return self.boxes(q, ends)

    def q_of(self, lanes: Lanes) -> FloatArray:
        """Return the quantiles `Rule.q`, ``(n_q, n_lanes)``."""
        return np.asarray(self.quantiles.lane_answer(lanes), np.float64)

    def block(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Boxes:
        column, rule = long_as_rows(ChunkColumn(chunks, dtype, shape.axes)), self.rule
        about = column, self.order
        boxes = kernels.lanes.box_lanes(*about, rule, omits_nan=self.omits_nan)
        if boxes is not None and isinstance(chunks[0], Runs):
            return self._of_runs(boxes, dtype, shape)
        if boxes is not None:
            table = BoxesThere.waiting if self.stays else Boxes.finished
            return table(boxes, shape.remaining(chunks[0].shape), dtype)
        is_weighted = isinstance(self.quantiles, WeightedQuantiles)
        as_groups = self.as_groups(column, None if is_weighted else 1)
        if as_groups is not None:
            return _restored(as_groups, chunks[0].shape, shape)
        q, ends = kernels.lanes.answers_and_ends(*about, rule.fences, rule.max_fliers)
        return _restored(self.boxes(q, ends), chunks[0].shape, shape)

    def block_of_groups(
        self, chunks: Sequence[Any], dtype: np.dtype[Any], n_groups: int, shape: AnswerAxes
    ) -> Any:
        boxes = kernels.near.boxes_of_groups(chunks, dtype, n_groups, self.order, self.rule)
        if boxes is None:
            return super().block_of_groups(chunks, dtype, n_groups, shape)
        return self._of_runs(boxes, dtype, shape)

    def _of_runs(self, boxes: LaneBoxes, dtype: np.dtype[Any], shape: AnswerAxes) -> Boxes:
        """Make a table of boxes of runs, which are undefined if these are empty."""
        table = BoxesThere.waiting if self.stays else Boxes.finished
        drawn = table(boxes, shape.remaining((boxes.n_lanes, 0)), dtype)
        return drawn.without_missing(omits_nan=self.omits_nan)

    @property
    def blocks(self) -> BlockForm:
        return BlockForm(_restored, Boxes.concatenated, Boxes.divided, Boxes.concatenated_later)

    def boxes(self, q: FloatArray, ends: LaneEnds) -> Boxes:
        """Return the box of each lane."""
        boxes = Boxes.of_lanes(q, ends, self.rule).in_dtype(self.quantiles.source_dtype)
        return boxes.without_missing(omits_nan=self.omits_nan)


def _has_ends(known: KnownBoxes) -> bool:
    return known.ends is not None


def _merged_ends(parts: Sequence[Any], most: int) -> LaneEnds | None:
    return None if parts[0] is None else LaneEnds.merge(parts, most)


def _restored(answers: Boxes, block: Block, shape: AnswerAxes) -> Boxes:
    """Give the boxes of the lanes of a block of that shape the axes of the answer."""
    return answers.reshape(shape.remaining(block))
