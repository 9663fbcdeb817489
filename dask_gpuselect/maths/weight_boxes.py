"""Box plots of weighted elements: cells by counts and weights, and the box by exact sums.

Plain NumPy on the host; see `boxes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.boxes import (
    Ladder,
    PartialBox,
    Rule,
    bracket_box,
    cells_of_box,
    largest_to,
    resolve_again,
    resolve_beyond,
    smallest_from,
)
from dask_gpuselect.maths.coarse import narrower
from dask_gpuselect.maths.cuts import Brackets, IntArray, Tally
from dask_gpuselect.maths.envelope import Ranges
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.weight_brackets import WeightBounds, WeightEnvelope, summed_between
from dask_gpuselect.maths.weight_finish import InOrder
from dask_gpuselect.maths.weights import (
    WeightedCuts,
)


def bracket_from_weights(cuts: WeightedCuts, rule: Rule, room: int) -> Brackets:
    """Choose the cells whose elements are gathered for a weighted box, from the cuts of all chunks.

    Up to `room` elements may be gathered near a fence.
    """
    if not cuts.n_valid.any():
        nothing = np.zeros(1, np.bool_)
        return Brackets(cuts.pivots[:0], nothing, summed=nothing)
    envelope = WeightEnvelope.of(cuts)
    lo, hi = _positions(envelope, rule)
    found = bracket_box(
        Ladder.of(envelope.counts, envelope.n_valid),
        rule,
        *_of_quantiles(rule, lo, hi),
        envelope.tied_inside(lo, hi),
        room,
        made_of=(lo, hi),
    )
    return replace(found, summed=_summed(envelope, rule, found, lo, hi))


def _positions(envelope: WeightEnvelope, rule: Rule) -> tuple[IntArray, IntArray]:
    """Find positions between which the elements lie from which the quantiles are computed."""
    return envelope.positions([end for q in rule.q for end in _ends(envelope, rule, q)])


def _of_quantiles(rule: Rule, lo: IntArray, hi: IntArray) -> tuple[IntArray, IntArray]:
    """Find positions between which the quantiles lie.

    Each is between the first and the last element from which it is computed.
    """
    return lo.reshape(len(rule.q), -1)[:, 0], hi.reshape(len(rule.q), -1)[:, -1]


def _summed(
    envelope: WeightEnvelope, rule: Rule, found: Brackets, lo: IntArray, hi: IntArray
) -> NDArray[np.bool_]:
    if rule.method != "linear":
        return np.zeros(len(found.wanted), np.bool_)
    return summed_between(envelope, found, lo, hi)


def ranges_of_weighted_box(cuts: WeightedCuts, rule: Rule) -> Ranges:
    """Find the ranges of values that a weighted box needs, as `boxes.ranges_of_box` does."""
    if not cuts.n_valid.any():
        return Ranges(0, cuts.pivots[:0], cuts.pivots[:0])
    envelope = WeightEnvelope.of(cuts)
    lo, hi = _cells(envelope, rule, *_positions(envelope, rule))
    return Ranges.between(envelope.counts.values, lo, hi)


def narrower_weighted_box(brackets: Brackets, cuts: WeightedCuts, rule: Rule) -> Brackets:
    """Narrow the brackets of a weighted box, as `boxes.narrower_box` does."""
    if not cuts.n_valid.any():
        return brackets
    envelope = WeightEnvelope.of(cuts)
    lo, hi = _positions(envelope, rule)
    tied = envelope.tied_inside(lo, hi)
    cells = _cells(envelope, rule, lo, hi)
    found = Brackets.covering(envelope.counts.values, *cells, counted=tied)
    return narrower(brackets, replace(found, summed=_summed(envelope, rule, found, lo, hi)))


def _cells(
    envelope: WeightEnvelope, rule: Rule, lo: IntArray, hi: IntArray
) -> tuple[IntArray, IntArray]:
    """Find positions around everything that a box needs: its quantiles, fences and extremes."""
    begins, ends = cells_of_box(
        Ladder.of(envelope.counts, envelope.n_valid), rule, *_of_quantiles(rule, lo, hi)
    )
    return np.append(lo, begins), np.append(hi, ends)


def _ends(envelope: WeightEnvelope, rule: Rule, q: float) -> Sequence[WeightBounds]:
    """Bound the sums of weights at the elements that a quantile needs.

    That is one sum, or both ends of a window.
    """
    if rule.method == "linear":
        return envelope.window(q)
    return [envelope.share(q, passes=rule.method == "averaged_inverted_cdf")]


@dataclass(frozen=True, eq=False)
class PartialWeightedBox(PartialBox):
    """Partial result of a weighted box after load 2.

    Parameters
    ----------
    weight : int
        Weight of all elements, in units of ``2**-1088``, as all weights below.
    low_weights, high_weights : ExactSums
        Weights of the elements that equal each of the distinct values of `low` and of `high`, the
        most extreme first.
    weight_below, weight_above : int or None
        Weight of the elements beyond each fence; None where `below` and `above` are None.
    """

    weight: int
    low_weights: ExactSums
    high_weights: ExactSums
    weight_below: int | None
    weight_above: int | None


def resolve_weighted(order: InOrder, rule: Rule, q: NDArray[np.float64]) -> PartialWeightedBox:
    """Find the box of at least one element whose quantiles are `q`, as far as it was gathered.

    Raises `ChunksChangedError` if the brackets do not hold what they should.
    """
    found = resolve_beyond(order.brackets, order.tally, rule, q, {})
    low, high = np.unique(found.low), np.unique(found.high)
    return PartialWeightedBox(
        **{each.name: getattr(found, each.name) for each in fields(PartialBox)},
        weight=order.weight,
        low_weights=order.at(low),
        high_weights=order.at(high)[::-1],
        weight_below=None if found.below is None else _below(order, found),
        weight_above=None if found.above is None else _above(order, found),
    )


def resolve_weighted_again(
    found: PartialWeightedBox, brackets: Brackets, tally: Tally
) -> PartialWeightedBox:
    """Complete a box after the third load, which gathers the elements near its fences."""
    now = resolve_again(found, brackets, tally)
    assert isinstance(now, PartialWeightedBox)
    order = InOrder.of(brackets, tally)
    return replace(
        now,
        weight_below=_below(order, now) if found.below is None else found.weight_below,
        weight_above=_above(order, now) if found.above is None else found.weight_above,
    )


def _below(order: InOrder, found: PartialBox) -> int:
    """Find the weight of the elements below the lower fence."""
    if not found.below:
        return 0
    first = smallest_from(found.fences[0], order.brackets.ends.dtype)
    return order.weight if first is None else order.below(first)


def _above(order: InOrder, found: PartialBox) -> int:
    """Find the weight of the elements above the upper fence."""
    if not found.above:
        return 0
    last = largest_to(found.fences[1], order.brackets.ends.dtype)
    return order.weight - (0 if last is None else order.upto(last))
