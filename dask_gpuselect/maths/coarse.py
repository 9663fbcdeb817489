"""Cuts of several chunks, merged into the cuts of one at as few pivots as wanted.

The cuts of a million chunks are too many for one task, and so are the few pivots around the wanted
ranks. So the cuts are merged in a tree. The chunks below a merge together bound the number of
elements up to each of their pivots. The merge hands on evenly spaced pivots with these bounds. If
it hands on K pivots, each bracket gets wider by about one in K of all elements, and stays proven.

The weight of weighted elements is bounded in the same way. Half of the pivots are spaced evenly by
their number and half by their weight, so a bracket gets wider by about two in K of all weight.

The candidates of the second load are narrowed by the same tree, where they are: each branch of the
tree has exact counts at every one of its candidates.

A few large slots have as many pivots as all elements have. Each of these slots is treated as an
array of its own, and the slots share the pivots that a merge hands on. A slot of four times the
elements gets twice as many pivots: this makes the candidates of all slots together fewest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally, merge, totals
from dask_gpuselect.maths.envelope import Envelope
from dask_gpuselect.maths.finish import counts_at, places_among
from dask_gpuselect.maths.host_runs import gathered
from dask_gpuselect.maths.ragged import Bracketed, CellTally, Wanted
from dask_gpuselect.maths.sizes import COARSE_EVERY, LEAST_OF_GROUP
from dask_gpuselect.maths.weight_brackets import WeightEnvelope
from dask_gpuselect.maths.weights import POINT, PRODUCT_UNIT, WEIGHT_UNIT

# How often the limit on large steps is computed anew: if k of K steps are large, the error left is
# (k / K) to that power.
LEVELLED = 8

UNIT_BITS = 61  # largest number of bits of a sum of weights in int64


def coarsened(cuts: Cuts, most: int) -> Cuts:
    """Merge the cuts of some chunks into those of one, at about `most` of their pivots.

    The pivots are evenly spaced, and closer near the ends. A value that many elements equal is
    among them. If there are several slots, the runs of each are merged into one.
    """
    if cuts.slots is not None:
        return _coarsened_slots(cuts, most)
    of_weights = WeightEnvelope.of(cuts) if cuts.weighs else None
    envelope = of_weights.counts if of_weights else Envelope.of(cuts)
    measures = [(envelope.lower, envelope.least)]
    if of_weights is not None:
        measures.append((of_weights.lower, int(of_weights.least[0])))
    few = max(most // len(measures), 1)
    places = [_spread(*each, few) for each in measures]
    some = places[0] if len(places) == 1 else np.union1d(*places)
    counts = envelope.values[some], envelope.below[some], envelope.upper[some]
    merged = Cuts.of_chunk(*counts, envelope.least, int(cuts.n_missing.sum()))
    merged = replace(merged, least=envelope.lower[some])
    if of_weights is None:
        return merged
    return replace(
        merged,
        weight_below=of_weights.below[some],
        weight_upto=of_weights.upper[some],
        weight_least=of_weights.lower[some],
        weight=of_weights.least,
        weight_most=of_weights.most,
        unit=of_weights.unit,
        square=of_weights.square,
    )


def _coarsened_slots(cuts: Cuts, most: int) -> Cuts:
    """Merge the runs of each large slot into one, at about `most` pivots of all slots.

    Runs of slots that have few pivots stay as they are.
    """
    assert cuts.slots is not None
    slots, number = np.unique(cuts.slots, return_inverse=True)
    n_valid, n_pivots, n_runs = (
        totals(number, each, len(slots))
        for each in (cuts.n_valid, cuts.sizes, np.ones(len(number), np.int64))
    )
    shares = _shares(n_valid, most)
    is_large = (n_pivots > shares) | (n_runs > shares)
    few = cuts.of_chunks(np.flatnonzero(~is_large[number]))
    runs = [replace(few, least=few.least_upto)]
    large = cuts.each(slots[is_large])
    for (slot, own), share in zip(large, shares[is_large].tolist(), strict=True):
        runs.append(coarsened(own, share).as_run(slot))
    return Cuts.merge(runs)


def _shares(n: IntArray, most: int) -> IntArray:
    """Divide `most` pivots among slots of n elements, with at least a few for each."""
    weights = np.sqrt(n)
    shares = most * weights / max(float(weights.sum()), 1.0)
    return np.maximum(shares, LEAST_OF_GROUP).astype(np.int64)


def _spread(upto: IntArray, n: int, most: int) -> IntArray:
    """Choose about `most` of some values, evenly spaced by how many of n elements are up to each.

    A single step that is larger than the others counts as one of them. So pivots around candidates
    stay apart, however many elements are beside them.
    """
    if len(upto) <= most:
        return np.arange(len(upto))
    steps = np.diff(upto, prepend=np.int64(0)).astype(np.float64)
    most_step = steps.sum() / most
    for _ in range(LEVELLED):
        most_step = np.minimum(steps, most_step).sum() / most
    passed = np.cumsum(np.minimum(steps, most_step))
    even = np.searchsorted(passed, np.linspace(0, passed[-1], most))
    few = 1 << np.arange(n.bit_length(), dtype=np.int64)  # for the extremes
    outer = np.searchsorted(upto, np.concatenate([few, n - few]))
    places = np.concatenate([[0], even, outer])
    return np.unique(np.minimum(places, len(upto) - 1))


def merged_coarsely(parts: Sequence[Cuts], most: int, every: int = COARSE_EVERY) -> Cuts:
    """Merge the cuts of many chunks into those of one, few at a time.

    A merge takes about `every` times as many pivots as it hands on (`most`), or those of two parts.
    """
    # Parts without a run of any slot have no weights, not even if the others have.
    parts = [part for part in parts if len(part.sizes)] or parts[:1]
    while True:
        some = [coarsened(merge(batch), most) for batch in batches(parts, every * most)]
        if len(some) == 1:
            return some[0]
        parts = some


def batches(parts: Sequence[Cuts], room: int) -> Iterator[list[Cuts]]:
    """Yield batches of parts with at most `room` pivots together, or of two parts."""
    batch: list[Cuts] = []
    n_pivots = 0
    for part in parts:
        if n_pivots + len(part.pivots) > room and len(batch) > 1:
            yield batch
            batch, n_pivots = [], 0
        batch.append(part)
        n_pivots += len(part.pivots)
    yield batch


# --- Candidates -----------------------------------------------------------------------------------


def cuts_of_tally(brackets: Brackets, tally: Tally, most: int) -> Cuts:
    """Make cuts from a tally: at the ends of the brackets, and at about `most` of the candidates.

    The candidates that become pivots are evenly spaced.
    """
    tally = tally.in_order()
    ordered = tally.candidates
    places = _even(len(ordered), max(most // 2, 1) if tally.weighs else most)
    if len(ordered) and tally.weighs:
        # The rounding of this sum decides only which pivots are taken.
        passed = np.cumsum(tally.weights / max(tally.weights.max(), 1))
        by_weight = np.searchsorted(passed, np.linspace(0, passed[-1], len(places)))
        places = np.union1d(places, np.minimum(by_weight, len(ordered) - 1))
    pivots = np.unique(np.concatenate([brackets.ends, ordered.elements_at(places)]))
    # If a pivot is no element, its counts equal those of its neighbours, which does no harm.
    below, upto = counts_at(brackets, tally, pivots)
    cuts = Cuts.of_chunk(pivots, below, upto, tally.n_valid, tally.n_missing)
    if not tally.weighs:
        return cuts
    weight = tally.weight.integers(WEIGHT_UNIT).item()
    square = tally.square.integers(PRODUCT_UNIT).item()
    shift, of_square = (max(each.bit_length() - UNIT_BITS, 0) for each in (weight, square))
    sums = gathered(brackets, tally).weights_before(np.concatenate([below, upto]))
    below, upto = sums.in_units(np.int64(shift - POINT)).reshape(2, -1)
    squares = math.ldexp(square >> of_square, of_square - 2 * shift)
    return cuts.with_weights(below, upto, weight >> shift, shift - POINT, squares)


def _even(n: int, most: int) -> IntArray:
    """Choose about `most` of `n` places, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64)) if n else np.arange(0)


def cuts_of_cells(brackets: Brackets, tally: CellTally, most: int) -> Cuts:
    """Make the cuts of each slot from its tally, at about `most` of the candidates of all slots."""
    n = np.bincount(brackets.slot_of_cell[tally.of_cells], minlength=brackets.n_slots)
    shares = _shares(n, most)
    runs = [
        cuts_of_tally(own, some, int(shares[slot])).as_run(slot)
        for slot, own, some in tally.each(brackets)
    ]
    return Cuts.merge(runs) if runs else Cuts.of_missing(np.arange(0), brackets.ends.dtype)


def narrower(brackets: Brackets, ranges: Brackets) -> Brackets:
    """Intersect brackets with narrower ones of the same ranks.

    The wanted elements are inside both. Ends of the narrower ones that the tally of the first
    cannot count are left out. Elements that were summed, or spared, stay so. Former candidates that
    are between the ends of a window are summed from now on.
    """
    cell, is_end = places_among(brackets.ends, ranges.ends)
    ends = np.union1d(brackets.ends, ranges.ends[brackets.wanted[cell] & ~is_end])
    before, now = cells_of(brackets, ends), cells_of(ranges, ends)
    was_wanted = brackets.wanted[before]
    wanted = was_wanted & ranges.wanted[now]
    if ranges.summed is None or brackets.summed is None:
        return Brackets(ends, wanted, spared=brackets.spared)
    summed = (brackets.summed[before] | was_wanted & ranges.summed[now]) & ~wanted
    return Brackets(ends, wanted, summed=summed, spared=brackets.spared)


def joined(each: Sequence[Brackets]) -> Brackets:
    """Merge the brackets of all stretches of ranks, which may overlap."""
    ends = np.unique(np.concatenate([own.ends for own in each]))
    wanted = np.zeros(len(ends) + 1, np.bool_)
    for own in each:
        wanted |= own.wanted[cells_of(own, ends)]
    return Brackets(ends, wanted)


def narrower_slots(about: Bracketed, parts: Sequence[Cuts], wanted: Wanted) -> Bracketed:
    """Narrow the brackets of slots by the cuts of all parts at some of the candidates."""
    brackets = about.brackets
    some = [part for part in parts if len(part.sizes)]
    if not some:
        return about
    cuts = Cuts.merge(some)
    assert cuts.slots is not None
    every = [*map(brackets.by_slot(), range(brackets.n_slots))]
    # One by one, because the extremes of a slot may be outside of its brackets, and no pivots.
    for slot, own in cuts.each(np.unique(cuts.slots)):
        if about.is_whole:
            every[slot] = wanted.whole.narrower(every[slot], own)
        else:
            ranges = wanted.ranges(own, about.n_valid[slot : slot + 1])
            every[slot] = narrower(every[slot], ranges)
    return replace(about, brackets=Brackets.of_each(every))


def cells_of(brackets: Brackets, ends: NDArray[Any]) -> IntArray:
    """Find for each cell between some ends the cell of the brackets that it is in.

    `ends` has all ends of the brackets, except some that do not matter.
    """
    return np.append(np.int64(0), brackets.ends.searchsorted(ends, side="right"))
