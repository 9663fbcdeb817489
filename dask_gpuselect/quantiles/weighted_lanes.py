"""Questions about weighted quantiles of every lane along some axes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import as_dtype
from dask_gpuselect.engine.questions import LaneLoad, LaneQuestion, PassSteps, of_merged
from dask_gpuselect.maths import lane_weight_cuts
from dask_gpuselect.maths.interpolation import interpolate
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import Lanes, merge_tallies
from dask_gpuselect.maths.lane_weights import WantedQuantiles
from dask_gpuselect.maths.ranks import METHODS
from dask_gpuselect.maths.weights import WEIGHT_BYTES
from dask_gpuselect.quantiles.questions import QuantileFields, Quantiles


@dataclass(frozen=True)
class WeightedLaneQuantiles(QuantileFields, LaneQuestion):
    """Weighted quantiles of every lane of an array whose chunks have weights, as a question.

    `method` is a name in `lane_weights.METHODS`.
    """

    by_order: ClassVar[bool] = False
    takes_runs: ClassVar[bool] = True

    @property
    def order(self) -> Any:
        return self

    @property
    def wanted(self) -> WantedQuantiles:
        # The estimator of type 7 is rounded once, so here to the dtype of the answers.
        return WantedQuantiles(self.q, self.method, self.dtype)

    @property
    def steps(self) -> PassSteps:
        return PassSteps(
            LaneLoad(
                kernels.lane_cuts,
                lane_weight_cuts.merge,
                partial(lane_weight_cuts.narrowed, wanted=self.wanted),
            ),
            LaneLoad(
                kernels.lane_tally,
                merge_tallies,
                of_merged(merge_tallies, lane_weight_cuts.answers),
            ),
        )

    def lane_answer(self, order: Lanes) -> NDArray[Any]:
        """Return the answers of lanes, as `LaneOrder` does."""
        lower, dtype = order.lower, self.source_dtype
        if self.method == "averaged_inverted_cdf":
            upper = as_dtype(order.upper, self.source_dtype)
            lower = as_dtype(order.lower, self.source_dtype)
            lower = interpolate(lower, upper, 0.5, METHODS[self.method], self.dtype)
        if self.method != "inverted_cdf":
            dtype = self.dtype
        # The answers are known. The question of the discrete method only warns of lanes without
        # one.
        chosen = self.as_kind(Quantiles, method="inverted_cdf", source_dtype=dtype)
        return self._answers_of(chosen, replace(order, lower=lower, upper=lower))

    def _answers_of(self, chosen: Quantiles, order: Lanes) -> NDArray[Any]:
        """Return the answers, with a warning or an error for lanes that have none."""
        return chosen.lane_answer(order)

    @property
    def n_brackets(self) -> int:
        return self.wanted.n_brackets

    def partial_bytes(self, dtype: np.dtype[Any]) -> dict[str, int]:
        itemsize = selection_dtype(dtype).itemsize
        # A pivot by count and one by weight, each with two bounds; four sums of about 128 bits, and
        # the candidates between them.
        return {"itemsize": itemsize + WEIGHT_BYTES, "pivot": 2 * (itemsize + 16), "counts": 80}
