"""Cuts of several chunks as those of one, at as few pivots as wanted.

The cuts of a million chunks are too many for one place, and so are the few around the wanted ranks.
So they are merged in a tree. What the chunks below a merge know together are bounds of the number
of elements up to each of their pivots, and some of the pivots, evenly spaced, are handed on with
these. A merge that hands on K pivots makes each bracket wider by about one in K of all elements,
and proves it all the same.

The second load's candidates are narrowed by the same tree, where they wait: each group of chunks
knows exact counts at every one of its candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.envelope import Envelope
from dask_gpuselect.maths.finish import counts_at
from dask_gpuselect.maths.kept import places_among
from dask_gpuselect.maths.sizes import COARSE_EVERY

# How often the largest of even steps is found anew: with k large ones among K, what is left of the
# error is (k / K) to that power.
LEVELLED = 8


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


def coarsened(cuts: Cuts, most: int) -> CoarseCuts:
    """What some chunks know together, at about `most` of their pivots: evenly spaced, and closer
    near the ends. A value that many elements equal is among them."""
    sizes, n_valid, n_missing = (
        np.array([n], np.int64) for n in (0, cuts.n_valid.sum(), cuts.n_missing.sum())
    )
    if len(cuts.pivots) == 0:
        none = np.empty(0, np.int64)
        unknown = np.empty(0)
        some = cuts.pivots, none, none, unknown, unknown
        return CoarseCuts(*some, sizes, n_valid, n_missing, none)
    envelope = Envelope.of(cuts)
    kept = _spread(envelope.lower, int(n_valid[0]), most)
    unknown = np.full(len(kept), np.nan)
    upper = envelope.upper[kept]
    return CoarseCuts(
        envelope.values[kept],
        upper - envelope.ties[kept],
        upper,
        unknown,
        unknown,
        np.array([len(kept)]),
        n_valid,
        n_missing,
        envelope.lower[kept],
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


def merged_coarsely(parts: Sequence[Cuts], most: int) -> CoarseCuts:
    """The same of the cuts of many chunks, few at a time: what is in one place are about
    `COARSE_EVERY` times as many pivots as are handed on, or those of two parts."""
    while True:
        some = [coarsened(_merged(batch), most) for batch in _batches(parts, COARSE_EVERY * most)]
        if len(some) == 1:
            return some[0]
        parts = some


def _batches(parts: Sequence[Cuts], room: int) -> Iterator[list[Cuts]]:
    """Parts that have so many pivots together, or are two."""
    batch: list[Cuts] = []
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


# --- Candidates -----------------------------------------------------------------------------------


def cuts_of_tally(brackets: Brackets, tally: Tally, most: int) -> Cuts:
    """The cuts of some chunks together, by their tally: at the ends of the brackets, and at about
    `most` of the candidates, evenly spaced."""
    ordered = tally.candidates.ordered()
    n = len(ordered)
    places = np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64)) if n else np.arange(0)
    taken = ordered.elements_at(places)
    pivots = np.unique(np.concatenate([brackets.ends, taken]))
    below, upto = counts_at(brackets, tally, pivots, ordered.places)
    # Each is an element at least once, or counts nothing that its neighbours do not.
    unknown = np.full(len(pivots), np.nan)
    counts = tally.n_valid, tally.n_missing
    return Cuts.of_chunk(pivots, below, upto, unknown, *counts, slack=unknown)


def narrower(brackets: Brackets, found: Brackets) -> Brackets:
    """What is wanted of both, where the tally of the first tells it: brackets of the same ranks,
    whose elements are inside both."""
    cell, is_end = places_among(brackets.ends, found.ends)
    ends = np.union1d(brackets.ends, found.ends[brackets.wanted[cell] & ~is_end])
    wanted = _cells_of(brackets, ends) & _cells_of(found, ends)
    return Brackets(ends, wanted)


def _cells_of(brackets: Brackets, ends: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether brackets want the cells between some ends, which have all of theirs or leave out such
    as are beside what matters."""
    begun = np.append(np.int64(0), brackets.ends.searchsorted(ends, side="right"))
    return np.asarray(brackets.wanted[begun])
