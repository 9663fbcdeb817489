"""Questions about box plots of weighted elements: of all elements, and of every lane."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.boxplot.questions import BoxesOfLanes, BoxQuestion
from dask_gpuselect.boxplot.tables import Boxes
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.questions import LaneQuestion, Question
from dask_gpuselect.maths.boxes import PartialBox, resolve_weighted
from dask_gpuselect.maths.cuts import Brackets, Tally
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.runs import Runs
from dask_gpuselect.maths.weight_finish import InOrder
from dask_gpuselect.maths.weights import PIVOT_BYTES, WEIGHT_BYTES, check_some_weigh
from dask_gpuselect.quantiles.questions import Quantiles
from dask_gpuselect.quantiles.weighted import quantiles_of
from dask_gpuselect.quantiles.weighted_lanes import WeightedLaneQuantiles

OF_ROWS = AnswerAxes(2, (1,), keepdims=False, is_scalar=False)  # of a table with a row for each run


@dataclass(frozen=True)
class WeightedBoxQuestion(BoxQuestion):
    """One box plot of all elements, weighted, as a question."""

    guess = Question.guess
    weighs: ClassVar[bool] = True
    counts_values: ClassVar[bool] = False

    @property
    def lanes(self) -> LaneQuestion:
        return WeightedLaneBoxQuestion.of(self.rule, self.source_dtype, omits_nan=self.omits_nan)

    def root_bytes(self, dtype: np.dtype[Any]) -> tuple[int, int]:
        return PIVOT_BYTES, dtype.itemsize + WEIGHT_BYTES

    def of_run(self, run: Runs) -> Boxes:
        boxes: Boxes = self.lanes.block([run], self.source_dtype, OF_ROWS)
        return boxes.reshape(())

    @property
    def n_ranges(self) -> int:
        return super().n_ranges + (len(self.rule.q) if self.rule.method == "linear" else 0)

    def resolve(self, brackets: Brackets, tally: Tally) -> PartialBox | Tally:
        check_some_weigh(tally)
        tally = replace(tally, n_left_out=tally.n_left_out + tally.n_idle)
        if tally.n_valid == 0:
            return tally
        order, rule, kind = InOrder.of(brackets, tally), self.rule, np.dtype(np.float64)
        q = quantiles_of(order, rule.q, rule.method, brackets.ends.dtype, kind)
        return resolve_weighted(order, rule, q.astype(kind))

    def finished(self, resolved: PartialBox, sums: Moments) -> Boxes:
        assert resolved.weight_below is not None
        assert resolved.weight_above is not None
        names = "n", "n_low", "n_high"
        own = [resolved.weight, resolved.weight_below, resolved.weight_above]
        numbers = ExactSums.joined(own).rounded()
        low, high = map(np.unique, resolved.fliers(self.rule.max_fliers))
        weights = ExactSums.joined(
            [resolved.low_weights[: len(low)], resolved.high_weights[: len(high)]]
        ).rounded()
        counts: dict[str, Any] = dict(zip(names, numbers, strict=True))
        box = self.box_of(resolved, sums, counts, (low, high[::-1]))
        # There are fewer fliers than weights only if NaN make all statistics missing.
        return replace(box, flier_weights=weights[: len(box.fliers)])

    def without_elements(self, tally: Tally) -> Boxes:
        none = np.zeros((), np.float64)
        boxes = super().without_elements(tally)
        return replace(boxes, n=none, n_low=none, n_high=none, flier_weights=np.empty(0))


@dataclass(frozen=True)
class WeightedLaneBoxQuestion(BoxesOfLanes, WeightedLaneQuantiles):
    """A weighted box plot of every lane, as a question."""

    def _answers_of(self, chosen: Quantiles, lanes: Lanes) -> NDArray[Any]:
        # No warning: the boxes have their numbers of elements.
        return chosen.lane_values(lanes)
