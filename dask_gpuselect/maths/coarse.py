"""Cuts of several chunks as those of one, at as few pivots as wanted.

The cuts of a million chunks are too many for one place, and so are the few around the wanted ranks.
So they are merged in a tree. What the chunks below a merge know together are bounds of the number
of elements up to each of their pivots, and some of the pivots, evenly spaced, are handed on with
these. A merge that hands on K pivots makes each bracket wider by about one in K of all elements,
and proves it all the same.

Elements that weigh are bounded by what they weigh as well. Half of the pivots are spaced evenly by
their number and half by their weight, so a bracket is wider by about two in K of all weight.

The second load's candidates are narrowed by the same tree, where they wait: each group of chunks
knows exact counts at every one of its candidates.

A few large groups of elements have as many pivots as all elements have. Each of them is as an array
of its own, and all share what a merge hands on: a group of four times the elements gets twice as
many pivots, for so the candidates of all groups together are fewest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.envelope import Envelope, find_brackets
from dask_gpuselect.maths.finish import Places, counts_at
from dask_gpuselect.maths.group_cuts import (
    GroupBrackets,
    GroupCuts,
    GroupTally,
    packed,
    totals,
)
from dask_gpuselect.maths.kept import in_order, places_among, weights_at
from dask_gpuselect.maths.sizes import COARSE_EVERY, LEAST_OF_GROUP
from dask_gpuselect.maths.slots import over_slots
from dask_gpuselect.maths.weight_brackets import WeightEnvelope
from dask_gpuselect.maths.weights import (
    CoarseWeightedCuts,
    WeightedBrackets,
    WeightedCuts,
    WeightedTally,
    in_units,
    square_in_units,
    unit_of,
)

# How often the largest of even steps is found anew: with k large ones among K, what is left of the
# error is (k / K) to that power.
LEVELLED = 8


class HasPivots(Protocol):
    """What some chunks know at some pivots."""

    @property
    def pivots(self) -> NDArray[Any]: ...


CutsOf = TypeVar("CutsOf", bound=HasPivots)


@dataclass(frozen=True, slots=True, eq=False)
class CoarseCuts(Cuts):
    """Cuts of groups of chunks, each of them as one chunk, whose counts are known from both sides.

    Parameters
    ----------
    below, upto
        As of `Cuts`, but of so many elements at most.
    least : ndarray of int64, shape (P,)
        How many valid elements of the group are <= the pivot, at least.
    """

    least: IntArray

    OF_CHUNKS: ClassVar[frozenset[str]] = Cuts.OF_CHUNKS

    @property
    def least_upto(self) -> IntArray:
        return self.least


def coarsened(cuts: Cuts, most: int) -> Cuts:
    """What some chunks know together, at about `most` of their pivots: evenly spaced, and closer
    near the ends. A value that many elements equal is among them."""
    if isinstance(cuts, WeightedCuts):
        return _coarsened_weights(cuts, most)
    envelope = Envelope.of(cuts)
    return _bounds_at(_spread(envelope.lower, int(cuts.n_valid.sum()), most), envelope, cuts)


def _bounds_at(kept: IntArray, envelope: Envelope, cuts: Cuts) -> CoarseCuts:
    """The cuts of all chunks together at some of the distinct pivots."""
    unknown = np.full(len(kept), np.nan)
    upper = envelope.upper[kept]
    return CoarseCuts(
        envelope.values[kept],
        upper - envelope.ties[kept],
        upper,
        unknown,
        unknown,
        np.array([len(kept)]),
        np.array([cuts.n_valid.sum()]),
        np.array([cuts.n_missing.sum()]),
        envelope.lower[kept],
    )


def _coarsened_weights(cuts: WeightedCuts, most: int) -> CoarseWeightedCuts:
    envelope = WeightEnvelope.of(cuts)
    half = max(most // 2, 1)
    kept = np.union1d(
        _spread(envelope.counts.lower, envelope.n_valid, half),
        _spread(envelope.lower, envelope.least, half),
    )
    upper = envelope.upper[kept]
    return CoarseWeightedCuts(
        **_bounds_at(kept, envelope.counts, cuts).by_name(),
        weight_below=upper - envelope.ties[kept],
        weight_upto=upper,
        weight=np.array([envelope.least]),
        unit=np.array([envelope.unit]),
        square=np.array([envelope.square]),
        least_weight=envelope.lower[kept],
        weight_at_most=np.array([envelope.most]),
    )


def _spread(upto: IntArray, n: int, most: int) -> IntArray:
    """Places of about so many of some values, by how many of n elements are up to each: evenly
    spaced, where a single step that is larger than the others counts as one of them. So those
    around candidates are told apart, however many elements are beside them."""
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


@over_slots
def merged_coarsely(parts: Sequence[Cuts], most: int, every: int = COARSE_EVERY) -> Cuts:
    """The same of the cuts of many chunks, few at a time: what is in one place are about `every`
    times as many pivots as are handed on, or those of two parts."""
    return _few_at_a_time(parts, most, every, lambda batch: coarsened(_merged(batch), most))


def _few_at_a_time(
    parts: Sequence[CutsOf], most: int, every: int, merge: Callable[[Sequence[CutsOf]], CutsOf]
) -> CutsOf:
    while True:
        some = [merge(batch) for batch in batches(parts, every * most)]
        if len(some) == 1:
            return some[0]
        parts = some


def batches(parts: Sequence[CutsOf], room: int) -> Iterator[list[CutsOf]]:
    """Parts that have so many pivots together, or are two."""
    batch: list[CutsOf] = []
    held = 0
    for part in parts:
        if held + len(part.pivots) > room and len(batch) > 1:
            yield batch
            batch, held = [], 0
        batch.append(part)
        held += len(part.pivots)
    yield batch


def _merged(batch: Sequence[Cuts]) -> Cuts:
    return type(batch[0]).merge(batch)


# --- Of groups ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class CoarseGroupCuts(GroupCuts):
    """Cuts of runs, some of which are of several parts together: their counts are known from both
    sides.

    Parameters
    ----------
    least : ndarray of unsigned integers, shape (P,)
        How many elements of the run are <= the pivot, at least; `below` and `upto` are at most.
    """

    least: NDArray[Any]

    def as_chunks(self, unknown: Cuts) -> Cuts:
        """The runs as chunks whose counts are known from both sides."""
        return CoarseCuts(**unknown.by_name(), least=self.least.astype(np.int64))


def merged_groups_coarsely(parts: Sequence[GroupCuts], most: int) -> GroupCuts:
    """The cuts of all parts together, few at a time, at about `most` pivots of all groups."""
    return _few_at_a_time(
        parts, most, COARSE_EVERY, lambda batch: _coarsened_groups(GroupCuts.merge(batch), most)
    )


def _coarsened_groups(cuts: GroupCuts, most: int) -> CoarseGroupCuts:
    """What several parts know together of each group, at about so many pivots of all groups."""
    groups, number = np.unique(cuts.groups, return_inverse=True)
    n_valid, n_pivots, n_runs = (
        totals(number, each, len(groups))
        for each in (cuts.n_valid, cuts.sizes, np.ones(len(number), np.int64))
    )
    shares = _shares(n_valid, most)
    is_large = (n_pivots > shares) | (n_runs > shares)
    found = [_as_coarse(cuts.of_chunks(np.flatnonzero(~is_large[number])))]
    large = cuts.each(groups[is_large])
    for (group, own), share in zip(large, shares[is_large].tolist(), strict=True):
        found.append(_run_of(group, coarsened(own, share)))
    return CoarseGroupCuts.merge(found)


def _shares(n: IntArray, most: int) -> IntArray:
    """How many of `most` pivots each group of so many elements gets, at least a few."""
    weights = np.sqrt(n)
    shares = most * weights / max(float(weights.sum()), 1.0)
    return np.maximum(shares, LEAST_OF_GROUP).astype(np.int64)


def _as_coarse(cuts: GroupCuts) -> CoarseGroupCuts:
    if isinstance(cuts, CoarseGroupCuts):
        return cuts
    return CoarseGroupCuts(**cuts.by_name(), least=cuts.upto)


def _run_of(group: int, cuts: Cuts) -> CoarseGroupCuts:
    """The only chunk of some cuts as a run of a group."""
    return CoarseGroupCuts(
        groups=np.array([group], np.int32),
        sizes=packed(cuts.sizes),
        n_valid=packed(cuts.n_valid),
        n_missing=packed(cuts.n_missing),
        pivots=cuts.pivots,
        below=packed(cuts.below),
        upto=packed(cuts.upto),
        least=packed(cuts.least_upto),
    )


def cuts_of_group_tally(brackets: GroupBrackets, tally: GroupTally, most: int) -> GroupCuts:
    """The cuts of each group as of `cuts_of_tally`, at about `most` of the candidates of all."""
    held = np.bincount(brackets.group_of_cell[tally.of_cells], minlength=brackets.n_groups)
    shares = _shares(held, most)
    none = _as_coarse(GroupCuts.of_missing(np.arange(0), brackets.ends.dtype))
    runs = (
        _run_of(group, cuts_of_tally(own, some, int(shares[group])))
        for group, own, some in tally.each(brackets)
    )
    return CoarseGroupCuts.merge([none, *runs])


def narrower_groups(brackets: GroupBrackets, cuts: GroupCuts) -> GroupBrackets:
    """What is wanted of what was gathered at some brackets, by cuts of all parts at some of the
    candidates."""
    of_group = brackets.each()
    some = {}
    for group, own in cuts.each(np.unique(cuts.groups)):
        ranks = brackets.lower[:, group], brackets.upper[:, group]
        found = find_brackets(own, *ranks, use_distances=False)
        some[group] = narrower(of_group(group)[0], found)
    return brackets.with_each(some)


# --- Candidates -----------------------------------------------------------------------------------


@over_slots
def cuts_of_tally(brackets: Brackets, tally: Tally, most: int) -> Cuts:
    """The cuts of some chunks together, by their tally: at the ends of the brackets, and at about
    `most` of the candidates, evenly spaced."""
    if isinstance(tally, WeightedTally):
        return _cuts_of_weights(brackets, tally, most)
    ordered = tally.candidates.ordered()
    taken = ordered.elements_at(_even(len(ordered), most))
    pivots = np.unique(np.concatenate([brackets.ends, taken]))
    # Each is an element at least once, or counts nothing that its neighbours do not.
    return _counted_at(pivots, brackets, tally, ordered.places)


def _counted_at(pivots: NDArray[Any], brackets: Brackets, tally: Tally, places: Places) -> Cuts:
    below, upto = counts_at(brackets, tally, pivots, places)
    return Cuts.of_chunk(pivots, below, upto, None, tally.n_valid, tally.n_missing)


def _even(n: int, most: int) -> IntArray:
    """About so many of `n` places, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64)) if n else np.arange(0)


def _cuts_of_weights(brackets: Brackets, tally: WeightedTally, most: int) -> WeightedCuts:
    elements, weights = in_order(tally)
    places = _even(len(elements), max(most // 2, 1))
    if len(elements):
        # Only which pivots are taken depends on the rounding of this sum.
        passed = np.cumsum(weights / max(weights.max(), 1))
        by_weight = np.searchsorted(passed, np.linspace(0, passed[-1], len(places)))
        places = np.union1d(places, np.minimum(by_weight, len(elements) - 1))
    pivots = np.union1d(brackets.ends, elements[places])
    at_pivots = weights_at(brackets, tally, pivots, elements, weights)
    weight_below, weight_upto = (in_units(tally, sums) for sums in at_pivots)
    return WeightedCuts(
        **_counted_at(pivots, brackets, tally, elements.searchsorted).by_name(),
        weight_below=weight_below,
        weight_upto=weight_upto,
        weight=in_units(tally, tally.weight),
        unit=np.array([unit_of(tally)]),
        square=np.array([square_in_units(tally)]),
    )


def narrower(brackets: Brackets, found: Brackets) -> Brackets:
    """What is wanted of both, where the tally of the first tells it: brackets of the same ranks,
    whose elements are inside both."""
    ends = _ends_of_both(brackets, found)
    wanted = cells_of(brackets, ends)
    return Brackets(ends, brackets.wanted[wanted] & found.wanted[cells_of(found, ends)])


def narrower_weighted(brackets: WeightedBrackets, found: WeightedBrackets) -> WeightedBrackets:
    """The same of brackets of windows. What is between the ends of a window and was a candidate is
    summed from now on, as what was summed stays so."""
    ends = _ends_of_both(brackets, found)
    before, now = cells_of(brackets, ends), cells_of(found, ends)
    wanted = brackets.wanted[before] & found.wanted[now]
    summed = brackets.summed[before] | brackets.wanted[before] & found.summed[now]
    return WeightedBrackets(ends, wanted, summed & ~wanted)


def _ends_of_both(brackets: Brackets, found: Brackets) -> NDArray[Any]:
    """The ends of brackets, and those of others that are inside their wanted cells."""
    cell, is_end = places_among(brackets.ends, found.ends)
    return np.union1d(brackets.ends, found.ends[brackets.wanted[cell] & ~is_end])


def cells_of(brackets: Brackets, ends: NDArray[Any]) -> IntArray:
    """Which cells of brackets those between some ends are in, which have all of theirs or leave out
    such as are beside what matters."""
    return np.append(np.int64(0), brackets.ends.searchsorted(ends, side="right"))
