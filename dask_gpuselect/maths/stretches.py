"""Very many ranks of very many chunks, a stretch of neighbouring ranks at a time.

A tree of merges hands on K pivots, and makes each bracket wider by one in K of the elements it is
about for each merge (see `coarse`). Of P ranks in one tree the brackets hold P / K of all elements.
So ranks that are more than a small part of K are divided into stretches, each with a tree of its
own: this is about the elements between the first rank of the stretch and the last, so a bracket is
wider by one in K of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_gpuselect.maths.coarse import cells_of, cuts_of_tally
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally
from dask_gpuselect.maths.envelope import Ranges
from dask_gpuselect.maths.kept import tally_by


def between(cuts: Cuts, ranges: Ranges) -> Cuts:
    """The cuts at the pivots of each chunk from the first range to the last, and at the pivot
    before and behind: those that bound what is up to a value there."""
    stops = np.cumsum(cuts.sizes)
    low = ranges.lows[:1] if len(ranges.lows) == ranges.n_ranges else ranges.lows[:0]
    high = ranges.highs[-1:] if len(ranges.highs) == ranges.n_ranges else ranges.highs[:0]
    kept, sizes = [np.empty(0, np.int64)], []
    for stop, size in zip(stops.tolist(), cuts.sizes.tolist(), strict=True):
        pivots = cuts.pivots[stop - size : stop]
        first = max(int(pivots.searchsorted(low[0])) - 1, 0) if len(low) else 0
        last = int(pivots.searchsorted(high[0], "right")) + 1 if len(high) else size
        if not ranges.n_ranges:
            last = first
        last = min(last, size)
        kept.append(np.arange(first, last) + (stop - size))
        sizes.append(max(last - first, 0))
    at = np.concatenate(kept)
    unknown = np.full(len(at), np.nan)
    return cuts.at_pivots(at, np.array(sizes, np.int64), distance=unknown, slack=unknown)


def joined(each: Sequence[Brackets]) -> Brackets:
    """The brackets of all stretches together."""
    ends = np.unique(np.concatenate([own.ends for own in each]))
    wanted = np.zeros(len(ends) + 1, np.bool_)
    for own in each:
        wanted |= own.wanted[cells_of(own, ends)]
    return Brackets(ends, wanted)


def cuts_of_counts(together: Brackets, tally: Tally) -> Cuts:
    """The exact cuts of all chunks at the ends of brackets, by their tally: they tell in which of
    the cells each rank is."""
    counts = tally.below, tally.upto, None, tally.n_valid, tally.n_missing
    return Cuts.of_chunk(together.ends, *counts)


def tallies_of_stretches(
    together: Brackets, tallies: Sequence[Tally], each: Sequence[Brackets]
) -> list[Tally]:
    """The tally of some chunks together at the brackets of each stretch, by those of each chunk at
    the brackets of all, whose candidates ascend."""
    return [_tally_of(together, tallies, own) for own in each]


def _tally_of(together: Brackets, tallies: Sequence[Tally], own: Brackets) -> Tally:
    return Tally.merge([tally_by(together, tally, own) for tally in tallies])


def cuts_of_stretches(
    together: Brackets, tallies: Sequence[Tally], each: Sequence[Brackets], most: int
) -> list[Cuts]:
    """The cuts of some chunks together for each stretch, at about `most` of its candidates."""
    # One after the other: together they are as much as all candidates.
    return [cuts_of_tally(own, _tally_of(together, tallies, own), most) for own in each]
