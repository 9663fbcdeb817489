"""What some chunks say of all of them: a guess of the brackets, before all cuts are known.

A chunk that is loaded can keep what a second load would ask of it, if the brackets can be guessed
from the chunks before it. Nothing depends on the guess but whether the chunk is loaded again: when
the brackets are proven, what was kept covers them or it does not.

The guess is what the question itself proves of data that might be: each chunk that was seen stands
for those around it, in the order of the grid, and all counts may be off by as much as that is
likely to be wrong. How much this is follows from the differences between neighbours: far less where
chunks change slowly from one to the next than where they differ as much, at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Brackets, Cuts, FloatArray, IntArray
from dask_gpuselect.maths.envelope import Envelope, thinned
from dask_gpuselect.maths.expected import bounds_of
from dask_gpuselect.maths.rulers import COARSE, Ruler, ruler_of
from dask_gpuselect.maths.sizes import pivot_count

# A guess is off by more than this many standard deviations once in 16,000 times. What is missed is
# found by the counts, and costs a load.
SIGMA = 4.0
# Chunks differ at random if the mean square of the steps from one to the next is more than so many
# times their variance: of noise it is twice that, of a trend next to nothing.
NOISE = 1.2
# Of all elements, at most: more would take as long to keep as to load again.
MOST_KEPT = 0.15
# A guess is made no more when so many chunks have been seen, or when its error is so small a part
# of what it holds.
MOST_SEEN = 128
SMALL_DOUBT = 0.1
# Nor when chunks are measured by a ruler and so few elements will be kept: to make one takes 1 to 5
# ms, and to keep a million elements about as long.
FEW_KEPT = 1 << 20
# A chunk that comes before any guess makes one of its own, with room for so much doubt. Of mixed
# data it holds, and this chunk is not loaded again either.
ALONE = 0.1
# None does so any more when a guess by several of them may be wrong by so many of all elements: by
# two of many chunks, where these differ by a twentieth of their elements.
FAR = 0.5
# Pivots that tell where the brackets are, about, and by how much a guess would be wrong. Mostly it
# is too early: then no more of them are looked at.
ROUGH_PIVOTS = 1 << 12
# Elements that counts may be off by, more than the error says.
LEAST_DOUBT = 4


def most_kept(cuts: Cuts) -> int:
    """How many elements are kept at most, by the cuts of all chunks."""
    return int(MOST_KEPT * cuts.n_valid.sum())


@dataclass(frozen=True)
class Guess:
    """Brackets that are likely to hold those that will be proven.

    Parameters
    ----------
    brackets : Brackets or None
        None if they would hold too much.
    share : float
        About this share of all elements is inside.
    doubt : float
        Which share of all elements is inside of each bracket because the guess may be wrong.
    n_apart : int
        So many brackets are apart, and each holds that share more.
    ruler : Ruler or None
        By which chunks that keep what is inside are measured elsewhere; None if by pivots.
    n_kept : float
        About so many elements are inside in the chunks that were not seen.
    """

    brackets: Brackets | None
    share: float
    doubt: float
    n_apart: int = 1
    ruler: Ruler | None = None
    n_kept: float = np.inf

    @property
    def may_improve(self) -> bool:
        """Whether more chunks may tell a guess that holds much less."""
        if self.ruler is not None and self.n_kept < FEW_KEPT:
            return False
        # The rest of the share is what pivots leave open, however many chunks are seen.
        return self.n_apart * self.doubt > SMALL_DOUBT * self.share

    @property
    def is_far(self) -> bool:
        """Whether the chunks that were seen differ so much that none tells of the others."""
        return self.doubt > FAR

    def next_after(self, n: int) -> int:
        """When to guess again, after `n` chunks were seen: not before it can be of use."""
        if self.brackets is not None:
            return 2 * n + 1 if self.may_improve else MOST_SEEN + 1
        # The error of a trend falls fastest, with the number of chunks to the power of 3/2.
        if self.doubt <= MOST_KEPT:  # it would be a guess that holds a little less
            return max(int(n * (self.share / MOST_KEPT) ** (2 / 3)), n + n // 4 + 1)
        times = (self.doubt / MOST_KEPT) ** (2 / 3)
        return max(int(n * min(times, MOST_SEEN)), 2 * n)

    def or_before(self, before: Guess) -> Guess:
        """This guess; or the one before it where this would hold a little too much, and is about as
        sure."""
        is_about_as_sure = self.doubt <= 2 * before.doubt
        return before if self.brackets is None and is_about_as_sure else self


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """The cuts of some chunks of an array.

    Parameters
    ----------
    cuts : Cuts
        Of the chunks in the order of `places`.
    places : ndarray of int64, shape (B,)
        Their numbers, ascending.
    n_chunks : int
        Of the array.
    """

    cuts: Cuts
    places: IntArray
    n_chunks: int

    def guess(self, keep: Callable[[Cuts], Brackets], most_pivots: int) -> Guess:
        """A guess of the brackets, by two chunks or more.

        Parameters
        ----------
        keep : callable
            From the cuts of all chunks to what their second load might gather.
        most_pivots : int
            A guess looks at so many of all pivots, about.
        """
        if not self.cuts.n_valid.any():
            return Guess(None, 0.0, 1.0)
        rough = self._thinned(ROUGH_PIVOTS)
        about = keep(rough.cuts.times(self._stands_for()))
        doubt = rough._doubt(about.ends)
        if doubt > MOST_KEPT:
            return Guess(None, 1.0, doubt)
        # Few pivots doubt a little more than they need to, and of many brackets each holds that.
        fine = self._thinned(most_pivots)
        doubt = fine._doubt(about.ends)
        least = rough._least_inside(about, doubt)
        if least > MOST_KEPT:
            return Guess(None, least, doubt)
        cuts = fine.cuts.times(self._stands_for())
        return fine._guess_of(keep(replace(cuts, doubt=doubt / 2)), doubt)

    def _doubt(self, ends: NDArray[Any]) -> float:
        """Which share of all elements may be on both sides of each of some values because a guess
        is wrong."""
        n_valid = float((self.cuts.n_valid * self._stands_for()).sum())
        # Where nothing differs, a few elements may.
        return 2 * (self._error(ends) + LEAST_DOUBT / n_valid)

    def guess_alone(self, keep: Callable[[Cuts], Brackets]) -> Guess:
        """A guess of the brackets by a single chunk, for itself."""
        if not self.cuts.n_valid.any():
            return Guess(None, 0.0, 1.0)
        cuts = self.cuts.times(self._stands_for())
        doubt = ALONE / _n_apart(keep(cuts))
        return self._guess_of(keep(replace(cuts, doubt=doubt / 2)), doubt)

    def _guess_of(self, brackets: Brackets, doubt: float) -> Guess:
        inside = self._share_inside(brackets)
        if inside > MOST_KEPT:
            return Guess(None, inside, doubt)
        n_unseen = self.n_chunks - len(self.places)
        n_kept = inside * n_unseen * float(self.cuts.n_valid.mean())
        return Guess(brackets, inside, doubt, _n_apart(brackets), n_kept=n_kept)

    def ruler(self, share: int) -> Ruler | None:
        """A ruler for chunks like these; elements that weigh have none. `share` is as for
        `sizes.pivot_count`."""
        cuts = self._thinned(ROUGH_PIVOTS).cuts
        if cuts.by_mass() is not cuts:
            return None
        envelope = Envelope.of(cuts)
        shares = (envelope.lower + envelope.upper) / (2 * cuts.n_valid.sum())
        most = COARSE / pivot_count(max(int(cuts.n_valid.mean()), 1), share)
        return ruler_of(envelope.values, shares, most)

    def _thinned(self, most: int) -> Seen:
        """The same with about so many pivots at most."""
        return replace(self, cuts=thinned(self.cuts, max(-(-len(self.cuts.pivots) // most), 1)))

    def _stands_for(self) -> FloatArray:
        """For how many chunks each of them stands."""
        middles = (self.places[1:] + self.places[:-1]) / 2
        return np.diff(np.concatenate([[-0.5], middles, [self.n_chunks - 0.5]]))

    def _error(self, ends: NDArray[Any]) -> float:
        """By how much of all elements the counts at some values are off, at most: those up to
        them, as the chunks that were seen let expect."""
        if len(ends) == 0:
            return 0.0
        by_mass = self.cuts.by_mass()
        mass = by_mass.n_valid.astype(np.float64)
        least, most, _ = bounds_of(by_mass, slice(0, len(mass)), ends)
        upto = (least + most) / 2  # ties at the value count half
        # What a chunk has more than its share, so that chunks may differ in size.
        share = upto.sum(0) / mass.sum()
        residual = (upto - mass[:, None] * share) / mass.mean()
        # Two chunks may agree by chance: they say no less than if elements were drawn at random.
        at_random = 2 * share * (1 - share) / self.cuts.n_valid.mean()
        differences = np.diff(residual, axis=0)
        steps = np.maximum(np.abs(differences), np.sqrt(at_random))
        is_noise = (differences**2).mean(0) > NOISE * residual.var(0, ddof=1)
        found = np.where(is_noise, self._error_of_noise(steps), self._error_of_trend(steps))
        return float(found.max() / self.n_chunks)

    def _error_of_noise(self, steps: FloatArray) -> FloatArray:
        """By how much sums over all chunks are off, were the steps from one chunk that was seen to
        the next the noise of both."""
        # A chunk that was not seen is off by its own noise, and all of those for which a chunk
        # stands by that of this one.
        others = self._stands_for() - 1
        n_noisy = (others**2).sum() + self.n_chunks - len(self.places)
        found: FloatArray = _sigmas(steps) * np.sqrt((steps**2).mean(0) / 2 * n_noisy)
        return found

    def _error_of_trend(self, steps: FloatArray) -> FloatArray:
        """The same, were some of it a trend: of each gap only the step over it tells."""
        unseen = np.diff(self.places)[:, None] - 1.0
        first, last = float(self.places[0]), float(self.n_chunks - 1 - self.places[-1])
        noise = (steps**2).mean(0) / 2
        variance = (steps**2 / 2 * (unseen**2 + unseen)).sum(0) + noise * (first + last)
        variance += (steps[0] * first) ** 2 + (steps[-1] * last) ** 2
        # No more than if every chunk in a gap were like the one at the other side of it.
        at_most = (steps * unseen).sum(0) + steps[0] * first + steps[-1] * last
        at_most += SIGMA * np.sqrt(noise * (self.n_chunks - len(self.places)))
        found: FloatArray = np.minimum(_sigmas(steps) * np.sqrt(variance), at_most)
        return found

    def _share_inside(self, brackets: Brackets) -> float:
        """Which share of the elements that were seen is in the wanted cells, about."""
        first, last = self._reach(brackets)
        return float((last - first).sum())

    def _least_inside(self, about: Brackets, doubt: float) -> float:
        """Which share a guess with so much doubt holds at least, by where its brackets are: as if
        pivots left nothing open."""
        first, last = self._reach(about)
        middles = np.sort((first + last) / 2)
        reach = np.minimum(middles + doubt / 2, 1) - np.maximum(middles - doubt / 2, 0)
        overlap = np.maximum(doubt - np.diff(middles), 0)
        return float(reach.sum() - overlap.sum())

    def _reach(self, brackets: Brackets) -> tuple[FloatArray, FloatArray]:
        """From which share of the elements that were seen to which each wanted cell reaches,
        about."""
        n_chunks = len(self.cuts.sizes)
        least, most, is_pivot = bounds_of(self.cuts, slice(0, n_chunks), brackets.ends)
        middle = (least + most) / 2
        below, upto = np.where(is_pivot, least, middle), np.where(is_pivot, most, middle)
        n_valid = float(self.cuts.n_valid.sum())
        first = np.append(0.0, upto.sum(0) / n_valid)[brackets.wanted]
        return first, np.append(below.sum(0) / n_valid, 1.0)[brackets.wanted]


def _sigmas(steps: FloatArray) -> float:
    """How many standard deviations an error may have that is known by so few steps."""
    return SIGMA * (1 + 2 / len(steps))


def _n_apart(brackets: Brackets) -> int:
    """How many of the brackets are apart, at least one."""
    return max(int(np.diff(brackets.wanted, prepend=False).sum() + 1) // 2, 1)
