"""Box plots of elements that weigh: where to look is known by their counts and their weights, and
what is there by exact sums. Plain NumPy on the host; see `boxes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.boxes import (
    BoxBrackets,
    BoxReport,
    Ladder,
    Rule,
    Spared,
    bracket_box,
    cells_of_box,
    largest_to,
    look_again,
    look_beyond,
    smallest_from,
)
from dask_gpuselect.maths.coarse import narrower_weighted
from dask_gpuselect.maths.cuts import Brackets, IntArray
from dask_gpuselect.maths.envelope import Ranges
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.weight_brackets import WeightBounds, WeightEnvelope, summed_between
from dask_gpuselect.maths.weight_finish import InOrder
from dask_gpuselect.maths.weights import (
    WeightedBrackets,
    WeightedCuts,
    WeightedTally,
)


@dataclass(frozen=True, slots=True, eq=False)
class WeightedBoxBrackets(WeightedBrackets):
    """Brackets for a box of elements that weigh.

    Parameters
    ----------
    spared : Spared
        As of `BoxBrackets`.
    """

    spared: Spared


def bracket_from_weights(cuts: WeightedCuts, rule: Rule, room: int) -> WeightedBoxBrackets:
    """What to gather for a box, from the cuts of all chunks, with room for so many elements about
    the fences."""
    none = cuts.pivots[:0]
    if not cuts.n_valid.any():
        nothing = np.zeros(1, np.bool_)
        return WeightedBoxBrackets(none, nothing, nothing, (none, none))
    envelope = WeightEnvelope.of(cuts)
    lo, hi = _positions(envelope, rule)
    found: BoxBrackets = bracket_box(
        Ladder.of(envelope.counts, envelope.n_valid),
        rule,
        *_of_quantiles(rule, lo, hi),
        envelope.tied_inside(lo, hi),
        room,
        made_of=(lo, hi),
    )
    summed = _summed(envelope, rule, found, lo, hi)
    return WeightedBoxBrackets(found.ends, found.wanted, summed, found.spared)


def _positions(envelope: WeightEnvelope, rule: Rule) -> tuple[IntArray, IntArray]:
    """Between which positions the elements lie that the quantiles are made of."""
    return envelope.positions([end for q in rule.q for end in _ends(envelope, rule, q)])


def _of_quantiles(rule: Rule, lo: IntArray, hi: IntArray) -> tuple[IntArray, IntArray]:
    """Between which positions the quantiles lie: each between the first and the last element that
    it is made of."""
    return lo.reshape(len(rule.q), -1)[:, 0], hi.reshape(len(rule.q), -1)[:, -1]


def _summed(
    envelope: WeightEnvelope, rule: Rule, found: Brackets, lo: IntArray, hi: IntArray
) -> NDArray[np.bool_]:
    if rule.method != "linear":
        return np.zeros(len(found.wanted), np.bool_)
    return summed_between(envelope, found, lo, hi)


def ranges_of_weighted_box(cuts: WeightedCuts, rule: Rule) -> Ranges:
    """As `boxes.ranges_of_box`."""
    if not cuts.n_valid.any():
        return Ranges(0, cuts.pivots[:0], cuts.pivots[:0])
    envelope = WeightEnvelope.of(cuts)
    lo, hi = _cells(envelope, rule, *_positions(envelope, rule))
    return Ranges.between(envelope.counts.values, lo, hi)


def narrower_weighted_box(
    brackets: WeightedBoxBrackets, cuts: WeightedCuts, rule: Rule
) -> WeightedBoxBrackets:
    """As `boxes.narrower_box`."""
    if not cuts.n_valid.any():
        return brackets
    envelope = WeightEnvelope.of(cuts)
    lo, hi = _positions(envelope, rule)
    tied = envelope.tied_inside(lo, hi)
    cells = _cells(envelope, rule, lo, hi)
    found = Brackets.covering(envelope.counts.values, *cells, counted=tied)
    summed = _summed(envelope, rule, found, lo, hi)
    both = narrower_weighted(brackets, WeightedBrackets(found.ends, found.wanted, summed))
    return WeightedBoxBrackets(both.ends, both.wanted, both.summed, brackets.spared)


def _cells(
    envelope: WeightEnvelope, rule: Rule, lo: IntArray, hi: IntArray
) -> tuple[IntArray, IntArray]:
    """Between which positions all lies that a box needs, with what the quantiles are made of."""
    begins, ends = cells_of_box(
        Ladder.of(envelope.counts, envelope.n_valid), rule, *_of_quantiles(rule, lo, hi)
    )
    return np.append(lo, begins), np.append(hi, ends)


def _ends(envelope: WeightEnvelope, rule: Rule, q: float) -> Sequence[WeightBounds]:
    """What the elements reach that a quantile is made of: one sum, or both ends of a window."""
    if rule.method == "linear":
        return envelope.window(q)
    return [envelope.share(q, passes=rule.method == "averaged_inverted_cdf")]


@dataclass(frozen=True, eq=False)
class WeightedFound(BoxReport):
    """What the second load says of a box of elements that weigh.

    Parameters
    ----------
    weight : int
        Of all elements, in units of ``2**-1088``, as those below.
    low_weights, high_weights : ExactSums
        What the elements weigh that equal each of the distinct ones of `low` and of `high`, the
        most extreme first.
    weight_below, weight_above : int or None
        What the elements beyond each fence weigh; None where `below` and `above` are.
    """

    weight: int
    low_weights: ExactSums
    high_weights: ExactSums
    weight_below: int | None
    weight_above: int | None


def look_weighted(order: InOrder, rule: Rule, q: NDArray[np.float64]) -> WeightedFound:
    """What was found of a box whose quantiles are `q`. There is at least one element.

    Raises `ChunksChangedError` if the brackets do not hold what they should.
    """
    found = look_beyond(order.brackets, order.tally, rule, q, {})
    low, high = np.unique(found.low), np.unique(found.high)
    return WeightedFound(
        **{each.name: getattr(found, each.name) for each in fields(BoxReport)},
        weight=order.weight,
        low_weights=order.at(low),
        high_weights=order.at(high)[::-1],
        weight_below=None if found.below is None else _below(order, found),
        weight_above=None if found.above is None else _above(order, found),
    )


def look_weighted_again(
    found: WeightedFound, brackets: Brackets, tally: WeightedTally
) -> WeightedFound:
    """What is known after a third load, which gathers what lies about the fences."""
    now = look_again(found, brackets, tally)
    assert isinstance(now, WeightedFound)
    order = InOrder.of(brackets, tally)
    return replace(
        now,
        weight_below=_below(order, now) if found.below is None else found.weight_below,
        weight_above=_above(order, now) if found.above is None else found.weight_above,
    )


def _below(order: InOrder, found: BoxReport) -> int:
    """What lies below the lower fence."""
    if not found.below:
        return 0
    first = smallest_from(found.fences[0], order.brackets.ends.dtype)
    return order.weight if first is None else order.below(first)


def _above(order: InOrder, found: BoxReport) -> int:
    """What lies above the upper fence."""
    if not found.above:
        return 0
    last = largest_to(found.fences[1], order.brackets.ends.dtype)
    return order.weight - (0 if last is None else order.upto(last))
