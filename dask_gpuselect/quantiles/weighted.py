"""Questions about weighted quantiles, of all elements and of every lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import as_dtype, in_kind
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.questions import (
    BySlot,
    InMemory,
    LaneLoads,
    LaneQuestion,
    Measures,
    Question,
    Sample,
)
from dask_gpuselect.kernels.companions import Accompanied, values_of
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally
from dask_gpuselect.maths.host_runs import gathered, wanted_by_weight
from dask_gpuselect.maths.interpolation import interpolate
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import Lanes, join
from dask_gpuselect.maths.lane_weights import WantedQuantiles, picked
from dask_gpuselect.maths.ragged import Wanted
from dask_gpuselect.maths.ranks import METHODS, Method
from dask_gpuselect.maths.sizes import PartialBytes
from dask_gpuselect.maths.weight_brackets import find_weighted_brackets
from dask_gpuselect.maths.weight_guess import guess_share_brackets, shares_inside
from dask_gpuselect.maths.weights import WEIGHT_BYTES, check_some_weigh
from dask_gpuselect.quantiles.questions import QuantileFields, Quantiles

# Number of candidates that are sorted and added up; more are narrowed first, on their device.
FEW_CANDIDATES = 1 << 17

WEIGHTED: Final = ("inverted_cdf", "averaged_inverted_cdf", "linear")


def check_weighted_method(name: str) -> Method:
    """Return the method of a name; raise a ValueError if it does not support weights."""
    if name not in WEIGHTED:
        raise ValueError(f"Only methods {', '.join(WEIGHTED)} support weights. Got: {name}.")
    return METHODS[name]


@dataclass(frozen=True)
class WeightedQuantiles(QuantileFields, Question, LaneQuestion):
    """Weighted quantiles of all elements, or every lane, of an array whose chunks have weights.

    `method` is a name in `WEIGHTED`.

    Notes
    -----
    Let F(x) be the sum of the weights of the elements up to x, and W the sum of all weights. The
    answers are:

    - inverted_cdf: the smallest x with F(x) >= q W;
    - averaged_inverted_cdf: the mean of that x and the next larger element if F(x) is q W, else
      that x;
    - linear: the mean over a window of the weight; see `maths.weight_finish.window_means`.

    All sums are exact, so the answers depend neither on the order of the elements nor on their
    chunks. F(x) and q W are compared when each is rounded to 53 bits, as NumPy rounds ``q * n``
    when it counts elements. So integer weights give the answer of `numpy.repeat`.

    ``numpy.quantile`` adds up weights in float64, and its sums may be off. For the numbers 1 to 6,
    each of weight 0.3, it returns the median 4 (method inverted_cdf), because its sum of three
    weights is 0.8999999999999999, less than half of 1.8, its sum of six. Here the median is 3, as
    for any six equal weights.

    A chunk has up to twice as many pivots as for quantiles without weights. Half of them are at
    even steps of the weight, so an element that weighs more than a step is a pivot. The median of
    4e6 normal elements in 16 chunks had 0.03 to 0.71 times as many candidates as the median without
    weights, and three quartiles at most 0.75 times as many (equal, uniform and lognormal weights,
    one element of half the weight, one chunk of nearly all of it). With the method linear, whose
    windows have two ends, there were at most 1.65 times as many. If some chunks have nearly all of
    the weight, and the light elements of the others lie between two neighbouring pivots of these,
    all light elements are candidates.
    """

    is_of_slot: bool = field(default=False, kw_only=True)
    """True if the question is about one of several slots, whose answers are those of lanes."""

    by_order: ClassVar[bool] = False
    takes_runs: ClassVar[bool] = True

    @property
    def order(self) -> Any:
        return self

    @property
    def measures(self) -> Measures:
        return Measures(weights=True, squares=self.method == "linear", counts=False)

    @property
    def in_memory(self) -> InMemory:
        return InMemory(guess=self._guess, guess_inside=self._guess_inside)

    def _guess(self, ordered: Any, rate: float) -> Brackets:
        return guess_share_brackets(ordered, *ordered.shares(self.q, self.method, rate))

    def _guess_inside(self, brackets: Brackets, tally: Tally, sample: Sample) -> Brackets | None:
        if len(tally.candidates) <= FEW_CANDIDATES or tally.n_missing and not self.skips_missing:
            return None
        first, last = shares_inside(brackets, tally, self.q, self.method)
        inside = Accompanied(tally.candidates.elements, weights=tally.weights)
        ends = kernels.weighing.near_shares(inside, first, last)
        if ends is not None:  # the answers are among them, which needs no candidates
            return Brackets(ends, np.zeros(len(ends) + 1, np.bool_))
        ordered, _ = sample()
        return guess_share_brackets(ordered, first, last)

    def bracket(self, cuts: Cuts) -> Brackets:
        return find_weighted_brackets(cuts, self.q, self.method)

    @property
    def n_ranges(self) -> int:
        return len(self.q) * (2 if self.method == "linear" else 1)

    def resolve(self, brackets: Brackets, tally: Tally) -> Any:
        if not self.is_of_slot:
            check_some_weigh(tally)
            # The question without weights has the answer for no elements.
            plain = self._unweighted()
            if plain.if_none == "empty" and tally.n_left_out:  # NaN of weight 0
                plain = replace(plain, if_none="missing")
            none = plain.answer_if_none(tally.n_valid, tally.n_missing)
            if none is not None:
                return none
        lanes = picked(gathered(brackets, tally), self.wanted)
        return lanes if self.is_of_slot else self.lane_values(lanes)[:, 0]

    def _unweighted(self, **changes: Any) -> Quantiles:
        """Return the question about the same quantiles without weights."""
        own = {each.name: getattr(self, each.name) for each in fields(QuantileFields)}
        return Quantiles(**(own | changes))

    @property
    def by_slot(self) -> BySlot:
        return BySlot(replace(self, is_of_slot=True), self._together)

    def _together(self, answers: Sequence[Any]) -> Any:
        return self.finished(join(answers))

    @property
    def wanted(self) -> WantedQuantiles:
        # The estimator of type 7 is rounded once, so here to the dtype of the answers.
        return WantedQuantiles(self.q, self.method, self.dtype)

    @property
    def wanted_of_group(self) -> Wanted:
        return wanted_by_weight(self.wanted)

    def lane_answer(self, order: Lanes) -> NDArray[Any]:
        """Return the answers of lanes, as `LaneOrder` does."""
        chosen, lanes = self._chosen(order)
        return chosen.lane_answer(lanes)

    def lane_values(self, order: Lanes) -> NDArray[Any]:
        """Return the answers of lanes without a warning or an error for those that have none."""
        chosen, lanes = self._chosen(order)
        return chosen.lane_values(lanes)

    def _chosen(self, order: Lanes) -> tuple[Quantiles, Lanes]:
        """Return the known answers as order statistics, and the question that chooses them."""
        lower, dtype = order.lower, self.source_dtype
        if self.method == "averaged_inverted_cdf":
            upper = as_dtype(order.upper, self.source_dtype)
            lower = as_dtype(order.lower, self.source_dtype)
            lower = interpolate(lower, upper, 0.5, METHODS[self.method], self.dtype)
        if self.method != "inverted_cdf":
            dtype = self.dtype
        # The question of the discrete method only warns of lanes without an answer.
        chosen = self._unweighted(method="inverted_cdf", source_dtype=dtype)
        return chosen, replace(order, lower=lower, upper=lower)

    def block_of_groups(
        self, chunks: Sequence[Any], dtype: np.dtype[Any], n_groups: int, shape: AnswerAxes
    ) -> Any:
        lanes = kernels.near.quantiles_of_groups(chunks, dtype, n_groups, self.wanted)
        if lanes is None:
            return super().block_of_groups(chunks, dtype, n_groups, shape)
        answers = in_kind(self.lane_answer(lanes), values_of(chunks[0]))
        return shape.restore(answers, (n_groups, 0))

    @property
    def loads(self) -> LaneLoads:
        return replace(super().loads, n_brackets=self.wanted.n_brackets)

    def _partial_bytes(self, dtype: np.dtype[Any]) -> PartialBytes:
        itemsize = selection_dtype(dtype).itemsize
        # A pivot by count and one by weight, each with two bounds; four sums of about 128 bits, and
        # the candidates between them.
        return PartialBytes(itemsize + WEIGHT_BYTES, pivot=2 * (itemsize + 16), counts=80)
