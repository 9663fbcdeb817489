"""Cuts of several chunks, merged into the cuts of one at as few pivots as wanted.

The cuts of a million chunks are too many for one task, and so are the few pivots around the wanted
ranks. So the cuts are merged in a tree. The chunks below a merge together bound the number of
elements up to each of their pivots. The merge hands on evenly spaced pivots with these bounds. If
it hands on K pivots, each bracket gets wider by about one in K of all elements, and stays proven.

The weight of weighted elements is bounded in the same way. Half of the pivots are spaced evenly by
their number and half by their weight, so a bracket gets wider by about two in K of all weight.

The candidates of the second load are narrowed by the same tree, where they are: each branch of the
tree has exact counts at every one of its candidates.

A few large groups of elements have as many pivots as all elements have. Each of these groups is
treated as an array of its own, and the groups share the pivots that a merge hands on. A group of
four times the elements gets twice as many pivots: this makes the candidates of all groups together
fewest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cached import in_order, places_among, weights_at
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally, merge
from dask_gpuselect.maths.envelope import Envelope, find_brackets
from dask_gpuselect.maths.finish import Places, counts_at
from dask_gpuselect.maths.group_cuts import (
    GroupBrackets,
    GroupCuts,
    GroupTally,
    packed,
    totals,
)
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

# How often the limit on large steps is computed anew: if k of K steps are large, the error left is
# (k / K) to that power.
LEVELLED = 8


class HasPivots(Protocol):
    """Protocol of cuts: anything with pivots."""

    @property
    def pivots(self) -> NDArray[Any]: ...


CutsOf = TypeVar("CutsOf", bound=HasPivots)


@dataclass(frozen=True, slots=True, eq=False)
class CoarseCuts(Cuts):
    """Cuts of sets of chunks, each set as one chunk whose counts are known as bounds.

    Parameters
    ----------
    below, upto
        Upper bounds of the numbers that `Cuts` has.
    least : ndarray of int64, shape (P,)
        Lower bound of the number of valid elements of the set that are <= the pivot.
    """

    least: IntArray

    OF_CHUNKS: ClassVar[frozenset[str]] = Cuts.OF_CHUNKS

    @property
    def least_upto(self) -> IntArray:
        return self.least


def coarsened(cuts: Cuts, most: int) -> Cuts:
    """Merge the cuts of some chunks into those of one, at about `most` of their pivots.

    The pivots are evenly spaced, and closer near the ends. A value that many elements equal is
    among them.
    """
    if isinstance(cuts, WeightedCuts):
        return _coarsened_weights(cuts, most)
    envelope = Envelope.of(cuts)
    return _bounds_at(_spread(envelope.lower, int(cuts.n_valid.sum()), most), envelope, cuts)


def _bounds_at(kept: IntArray, envelope: Envelope, cuts: Cuts) -> CoarseCuts:
    """Make the cuts of all chunks together at some of the distinct pivots."""
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


@over_slots
def merged_coarsely(parts: Sequence[Cuts], most: int, every: int = COARSE_EVERY) -> Cuts:
    """Merge the cuts of many chunks into those of one, few at a time.

    A merge holds about `every` times as many pivots as it hands on (`most`), or those of two parts.
    """
    return _few_at_a_time(parts, most, every, lambda batch: coarsened(merge(batch), most))


def _few_at_a_time(
    parts: Sequence[CutsOf], most: int, every: int, merge: Callable[[Sequence[CutsOf]], CutsOf]
) -> CutsOf:
    while True:
        some = [merge(batch) for batch in batches(parts, every * most)]
        if len(some) == 1:
            return some[0]
        parts = some


def batches(parts: Sequence[CutsOf], room: int) -> Iterator[list[CutsOf]]:
    """Yield batches of parts with at most `room` pivots together, or of two parts."""
    batch: list[CutsOf] = []
    held = 0
    for part in parts:
        if held + len(part.pivots) > room and len(batch) > 1:
            yield batch
            batch, held = [], 0
        batch.append(part)
        held += len(part.pivots)
    yield batch


# --- Of groups ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class CoarseGroupCuts(GroupCuts):
    """Cuts of runs, some of several parts together, whose counts are known as bounds.

    Parameters
    ----------
    least : ndarray of unsigned integers, shape (P,)
        Lower bound of the number of elements of the run that are <= the pivot; `below` and `upto`
        are upper bounds.
    """

    least: NDArray[Any]

    def as_chunks(self, unknown: Cuts) -> Cuts:
        """Convert the runs to chunks whose counts are known as bounds."""
        return CoarseCuts(**unknown.by_name(), least=self.least.astype(np.int64))


def merged_groups_coarsely(parts: Sequence[GroupCuts], most: int) -> GroupCuts:
    """Merge the cuts of groups, few parts at a time, at about `most` pivots of all groups."""
    return _few_at_a_time(
        parts, most, COARSE_EVERY, lambda batch: _coarsened_groups(GroupCuts.merge(batch), most)
    )


def _coarsened_groups(cuts: GroupCuts, most: int) -> CoarseGroupCuts:
    """Merge the runs of each large group into one, at about `most` pivots of all groups.

    Runs of groups that have few pivots stay as they are.
    """
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
    """Divide `most` pivots among groups of n elements, with at least a few for each."""
    weights = np.sqrt(n)
    shares = most * weights / max(float(weights.sum()), 1.0)
    return np.maximum(shares, LEAST_OF_GROUP).astype(np.int64)


def _as_coarse(cuts: GroupCuts) -> CoarseGroupCuts:
    if isinstance(cuts, CoarseGroupCuts):
        return cuts
    return CoarseGroupCuts(**cuts.by_name(), least=cuts.upto)


def _run_of(group: int, cuts: Cuts) -> CoarseGroupCuts:
    """Convert cuts of a single chunk to a run of a group."""
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
    """Make the cuts of each group from the tally, at about `most` of the candidates of all."""
    held = np.bincount(brackets.group_of_cell[tally.of_cells], minlength=brackets.n_groups)
    shares = _shares(held, most)
    none = _as_coarse(GroupCuts.of_missing(np.arange(0), brackets.ends.dtype))
    runs = (
        _run_of(group, cuts_of_tally(own, some, int(shares[group])))
        for group, own, some in tally.each(brackets)
    )
    return CoarseGroupCuts.merge([none, *runs])


def narrower_groups(brackets: GroupBrackets, cuts: GroupCuts) -> GroupBrackets:
    """Narrow the brackets of groups by the cuts of all parts at some of the candidates."""
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
    """Make cuts from a tally: at the ends of the brackets, and at about `most` of the candidates.

    The candidates that become pivots are evenly spaced.
    """
    if isinstance(tally, WeightedTally):
        return _cuts_of_weights(brackets, tally, most)
    ordered = tally.candidates.ordered()
    taken = ordered.elements_at(_even(len(ordered), most))
    pivots = np.unique(np.concatenate([brackets.ends, taken]))
    # Where a pivot is no element, its counts equal those of its neighbours, which does no harm.
    return _counted_at(pivots, brackets, tally, ordered.places)


def _counted_at(pivots: NDArray[Any], brackets: Brackets, tally: Tally, places: Places) -> Cuts:
    below, upto = counts_at(brackets, tally, pivots, places)
    return Cuts.of_chunk(pivots, below, upto, None, tally.n_valid, tally.n_missing)


def _even(n: int, most: int) -> IntArray:
    """Choose about `most` of `n` places, evenly spaced."""
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
    """Intersect brackets with narrower ones of the same ranks.

    The wanted elements are inside both. Ends of the narrower ones that the tally of the first
    cannot count are left out.
    """
    ends = _ends_of_both(brackets, found)
    wanted = cells_of(brackets, ends)
    return Brackets(ends, brackets.wanted[wanted] & found.wanted[cells_of(found, ends)])


def narrower_weighted(brackets: WeightedBrackets, found: WeightedBrackets) -> WeightedBrackets:
    """Intersect brackets of windows with narrower ones of the same ranks.

    Elements that were summed stay so. Former candidates that are between the ends of a window are
    summed from now on.
    """
    ends = _ends_of_both(brackets, found)
    before, now = cells_of(brackets, ends), cells_of(found, ends)
    wanted = brackets.wanted[before] & found.wanted[now]
    summed = brackets.summed[before] | brackets.wanted[before] & found.summed[now]
    return WeightedBrackets(ends, wanted, summed & ~wanted)


def _ends_of_both(brackets: Brackets, found: Brackets) -> NDArray[Any]:
    """Merge the ends of brackets with those of others that are inside their wanted cells."""
    cell, is_end = places_among(brackets.ends, found.ends)
    return np.union1d(brackets.ends, found.ends[brackets.wanted[cell] & ~is_end])


def cells_of(brackets: Brackets, ends: NDArray[Any]) -> IntArray:
    """Find for each cell between some ends the cell of the brackets that it is in.

    `ends` has all ends of the brackets, except some that do not matter.
    """
    return np.append(np.int64(0), brackets.ends.searchsorted(ends, side="right"))
