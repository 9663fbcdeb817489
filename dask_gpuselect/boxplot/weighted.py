"""What a box plot asks of elements that weigh: of all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dask_gpuselect.boxplot.questions import BoxQuestion
from dask_gpuselect.boxplot.tables import Boxes
from dask_gpuselect.maths.boxes import Found
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.weight_boxes import (
    WeightedFound,
    bracket_from_weights,
    look_weighted,
    look_weighted_again,
    rounded_sums,
)
from dask_gpuselect.maths.weight_finish import InOrder
from dask_gpuselect.maths.weights import (
    NOT_FINITE,
    PIVOT_BYTES,
    WEIGHT_BYTES,
    WeightedCuts,
    WeightedTally,
)
from dask_gpuselect.quantiles.weighted import quantiles_of


@dataclass(frozen=True)
class WeightedBoxQuestion(BoxQuestion):
    """One box plot of all elements, which weigh."""

    has_guess = False

    def root_bytes(self, dtype: np.dtype[Any]) -> tuple[int, int]:
        return PIVOT_BYTES, dtype.itemsize + WEIGHT_BYTES

    def bracket(self, cuts: Cuts) -> Brackets:
        assert isinstance(cuts, WeightedCuts)
        return bracket_from_weights(cuts, self.rule)

    @property
    def n_ranges(self) -> int:
        return 0

    def look(self, brackets: Brackets, tally: Tally) -> Found | Tally:
        assert isinstance(tally, WeightedTally)
        if tally.n_valid == tally.n_missing == 0 < tally.n_idle:
            raise ValueError(NOT_FINITE)
        tally = replace(tally, n_left_out=tally.n_left_out + tally.n_idle)
        if tally.n_valid == 0:
            return tally
        order, rule, kind = InOrder.of(brackets, tally), self.rule, np.dtype(np.float64)
        q = quantiles_of(order, rule.q, rule.method, brackets.ends.dtype, kind)
        return look_weighted(order, rule, q.astype(kind))

    def finish(
        self,
        found: Found | Tally,
        more: Brackets | None,
        tally: Tally | None,
        sums: Moments | None,
    ) -> Boxes:
        if isinstance(found, Tally):
            return self.without_elements(found)
        assert isinstance(found, WeightedFound)
        if more is not None and isinstance(tally, WeightedTally):
            found = look_weighted_again(found, more, tally)
        assert sums is not None
        assert found.weight_below is not None
        assert found.weight_above is not None
        names = "n", "n_low", "n_high"
        numbers = rounded_sums([found.weight, found.weight_below, found.weight_above])
        low, high = map(np.unique, found.fliers(self.rule.max_fliers))
        weights = [*found.low_weights[: len(low)], *found.high_weights[: len(high)]]
        counts: dict[str, Any] = dict(zip(names, numbers, strict=True))
        box = self.box_of(found, sums, counts, (low, high[::-1]))
        # Without NaN that make all missing there are as many fliers as before.
        return replace(box, flier_weights=rounded_sums(weights)[: len(box.fliers)])

    def without_elements(self, found: Tally) -> Boxes:
        none = np.zeros((), np.float64)
        boxes = super().without_elements(found)
        return replace(boxes, n=none, n_low=none, n_high=none, flier_weights=np.empty(0))
