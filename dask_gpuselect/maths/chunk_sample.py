"""Guesses of the brackets from some chunks, before the cuts of all chunks are known.

A chunk that is loaded can cache the answers to a second load if the brackets can be guessed from
the chunks before it. The guess decides only whether the chunk is loaded again: once the brackets
are proven, the cached part either covers them or it does not.

For a guess, each chunk of the sample stands for those around it, in the order of the grid. The
question computes its brackets from the cuts of such an array, where all counts are in doubt by
their likely error. The error is estimated from the differences between neighbours. It is far
smaller if chunks change slowly from one to the next than if they differ as much at random.

The sample is evenly spread, as chunks are read in a `ChunkOrder`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Brackets, Cuts, FloatArray, IntArray
from dask_gpuselect.maths.envelope import Envelope, thinned
from dask_gpuselect.maths.expected import bounds_of, cells_of
from dask_gpuselect.maths.rulers import COARSE, Ruler, ruler_of
from dask_gpuselect.maths.sizes import pivot_count

# A guess is off by more than this many standard deviations once in 16,000 times. The counts notice
# that, and it costs a load.
SIGMA = 4.0
# Chunks differ at random if the mean square of the steps from one to the next is more than so many
# times their variance: for noise it is twice the variance, for a trend almost nothing.
NOISE = 1.2
# Largest share of all elements that is cached: caching more takes as long as loading again.
MOST_CACHED = 0.15
# No further guess is made once so many chunks are in the sample, or once the error is at most so
# small a part of what the guess holds.
MOST_SAMPLED = 128
SMALL_DOUBT = 0.1
# Neither is one made if chunks are measured by a ruler and so few elements will be cached: a guess
# takes 1 to 5 ms, and caching a million elements about as long.
FEW_CACHED = 1 << 20
# A chunk that comes before any guess makes one of its own, with room for so much doubt. With mixed
# data that guess holds, and this chunk is not loaded again either.
ALONE = 0.1
# No chunk does so any more once a guess by several of them may be wrong by so large a share of all
# elements. With many chunks that is after two of them, if they differ by a twentieth of their
# elements.
FAR = 0.5
# Approximate number of pivots that find the brackets and the error of a guess. Mostly it is too
# early for one, and then no more of the pivots are used.
ROUGH_PIVOTS = 1 << 12
# Number of elements that counts may be off by, in addition to the error.
LEAST_DOUBT = 4


def most_cached(cuts: Cuts) -> int:
    """Compute the largest number of elements to cache, by the cuts of all chunks."""
    return int(MOST_CACHED * cuts.n_valid.sum())


@dataclass(frozen=True)
class Guess:
    """Brackets that likely hold those that will be proven.

    Parameters
    ----------
    brackets : Brackets or None
        None if they would hold too much.
    share : float
        Approximate share of all elements that is inside.
    doubt : float
        Share of all elements that is inside each bracket because the guess may be wrong.
    n_apart : int
        Number of brackets that do not overlap; each one holds the share `doubt` in addition.
    ruler : Ruler or None
        Ruler for chunks that cache what is inside the brackets. None if they are measured at
        pivots.
    n_cached : float
        Approximate number of elements inside, in the chunks outside the sample.
    """

    brackets: Brackets | None
    share: float
    doubt: float
    n_apart: int = 1
    ruler: Ruler | None = None
    n_cached: float = np.inf

    @property
    def may_improve(self) -> bool:
        """True if more chunks may lead to a guess that holds much less."""
        if self.ruler is not None and self.n_cached < FEW_CACHED:
            return False
        # The rest of the share comes from the pivots, however many chunks are in the sample.
        return self.n_apart * self.doubt > SMALL_DOUBT * self.share

    @property
    def is_far(self) -> bool:
        """True if the chunks of the sample differ so much that none stands for the others."""
        return self.doubt > FAR

    def next_after(self, n: int) -> int:
        """Choose after how many chunks to guess again, when `n` are in the sample."""
        if self.brackets is not None:
            # What is spared may be little enough a few chunks later.
            later = 2 * n + 1 if self.brackets.is_whole else n + n // 4 + 1
            return later if self.may_improve else MOST_SAMPLED + 1
        # The error of a trend falls fastest, with the number of chunks to the power of 3/2.
        if self.doubt <= MOST_CACHED:  # a guess that holds a little less would do
            return max(int(n * (self.share / MOST_CACHED) ** (2 / 3)), n + n // 4 + 1)
        times = (self.doubt / MOST_CACHED) ** (2 / 3)
        return max(int(n * min(times, MOST_SAMPLED)), 2 * n)

    def or_before(self, before: Guess) -> Guess:
        """Choose this guess, or the one before if this holds too much and is about as sure."""
        is_about_as_sure = self.doubt <= 2 * before.doubt
        return before if self.brackets is None and is_about_as_sure else self


@dataclass(frozen=True, slots=True, eq=False)
class ChunkSample:
    """Cuts of some chunks of an array, and their places.

    Parameters
    ----------
    cuts : Cuts
        Cuts of the chunks in the order of `places`.
    places : ndarray of int64, shape (B,)
        Numbers of the chunks, ascending.
    n_chunks : int
        Number of chunks of the array.
    """

    cuts: Cuts
    places: IntArray
    n_chunks: int

    def guess(self, keep: Callable[[Cuts], Brackets], most_pivots: int) -> Guess:
        """Guess the brackets from two or more chunks.

        Parameters
        ----------
        keep : callable
            Function from the cuts of all chunks to the brackets of what their second load might
            gather.
        most_pivots : int
            Approximate number of pivots that a guess uses.
        """
        if not self.cuts.n_valid.any():
            return Guess(None, 0.0, 1.0)
        rough = self._thinned(ROUGH_PIVOTS)
        about = keep(rough.cuts.times(self._stands_for()))
        doubt = rough._doubt(about.ends)
        if doubt > MOST_CACHED:
            return Guess(None, 1.0, doubt)
        # Fewer pivots overestimate the doubt a little, and with many brackets each one gets wider
        # by it.
        fine = self._thinned(most_pivots)
        doubt = fine._doubt(about.ends)
        least = rough._least_inside(about, doubt)
        if least > MOST_CACHED:
            return Guess(None, least, doubt)
        cuts = fine.cuts.times(self._stands_for())
        return fine._guess_of(keep(replace(cuts, doubt=doubt / 2)), doubt)

    def _doubt(self, ends: NDArray[Any]) -> float:
        """Estimate the share of all elements that must be added around each value for a guess.

        It covers errors on both sides of the value.
        """
        n_valid = float((self.cuts.n_valid * self._stands_for()).sum())
        # Where no chunk differs from the others, a few elements still may.
        return 2 * (self._error(ends) + LEAST_DOUBT / n_valid)

    def guess_alone(self, keep: Callable[[Cuts], Brackets]) -> Guess:
        """Guess the brackets for a single chunk, from that chunk alone."""
        if not self.cuts.n_valid.any():
            return Guess(None, 0.0, 1.0)
        cuts = self.cuts.times(self._stands_for())
        doubt = ALONE / _n_apart(keep(cuts))
        return self._guess_of(keep(replace(cuts, doubt=doubt / 2)), doubt)

    def _guess_of(self, brackets: Brackets, doubt: float) -> Guess:
        inside = self._share_inside(brackets)
        if inside > MOST_CACHED:
            return Guess(None, inside, doubt)
        n_others = self.n_chunks - len(self.places)
        n_cached = inside * n_others * float(self.cuts.n_valid.mean())
        return Guess(brackets, inside, doubt, _n_apart(brackets), n_cached=n_cached)

    def ruler(self, share: int) -> Ruler | None:
        """Find a ruler for chunks like these; None if elements have weights.

        `share` is as for `sizes.pivot_count`.
        """
        cuts = self._thinned(ROUGH_PIVOTS).cuts
        if cuts.weighs:
            return None
        envelope = Envelope.of(cuts)
        shares = (envelope.lower + envelope.upper) / (2 * cuts.n_valid.sum())
        most = COARSE / pivot_count(max(int(cuts.n_valid.mean()), 1), share)
        return ruler_of(envelope.values, shares, most)

    def _thinned(self, most: int) -> ChunkSample:
        """Drop pivots so that about `most` of them are left."""
        return replace(self, cuts=thinned(self.cuts, max(-(-len(self.cuts.pivots) // most), 1)))

    def _stands_for(self) -> FloatArray:
        """Compute for how many chunks of the array each one stands."""
        middles = (self.places[1:] + self.places[:-1]) / 2
        return np.diff(np.concatenate([[-0.5], middles, [self.n_chunks - 0.5]]))

    def _error(self, ends: NDArray[Any]) -> float:
        """Estimate the largest error of the counts up to some values, as a share of all elements.

        The chunks of the sample show how much to expect.
        """
        if len(ends) == 0:
            return 0.0
        cuts, scale = self.cuts, np.ones(len(self.places))
        if cuts.weighs:  # the unit of an empty chunk is arbitrary
            unit = np.minimum(cuts.unit - cuts.unit[cuts.n_valid > 0].max(), 0)
            scale = np.ldexp(scale, unit.astype(np.int32))
        mass = cuts.mass[-1] * scale
        least, most, _ = bounds_of(cells_of(cuts, slice(0, len(mass)), ends), *cuts.mass)
        half = scale[:, None] / 2
        upto = least * half + most * half  # ties at the value count half
        # The excess of a chunk over its share, so that chunks may differ in size.
        share = upto.sum(0) / mass.sum()
        residual = (upto - mass[:, None] * share) / mass.mean()
        # Two chunks may agree by chance: the error is at least that of elements drawn at random.
        at_random = 2 * share * (1 - share) / self.cuts.n_valid.mean()
        differences = np.diff(residual, axis=0)
        steps = np.maximum(np.abs(differences), np.sqrt(at_random))
        is_noise = (differences**2).mean(0) > NOISE * residual.var(0, ddof=1)
        errors = np.where(is_noise, self._error_of_noise(steps), self._error_of_trend(steps))
        return float(errors.max() / self.n_chunks)

    def _error_of_noise(self, steps: FloatArray) -> FloatArray:
        """Estimate errors of sums over all chunks, if steps between its chunks are noise."""
        # A chunk outside the sample adds its own noise. A chunk of the sample adds its noise once
        # for each other chunk for which it stands.
        others = self._stands_for() - 1
        n_noisy = (others**2).sum() + self.n_chunks - len(self.places)
        errors: FloatArray = _sigmas(steps) * np.sqrt((steps**2).mean(0) / 2 * n_noisy)
        return errors

    def _error_of_trend(self, steps: FloatArray) -> FloatArray:
        """Estimate errors of sums over all chunks, if some of the steps are a trend.

        Then only the step over a gap depends on the chunks in it.
        """
        gaps = np.diff(self.places)[:, None] - 1.0
        first, last = float(self.places[0]), float(self.n_chunks - 1 - self.places[-1])
        noise = (steps**2).mean(0) / 2
        variance = (steps**2 / 2 * (gaps**2 + gaps)).sum(0) + noise * (first + last)
        variance += (steps[0] * first) ** 2 + (steps[-1] * last) ** 2
        # The error is at most that of gaps whose chunks are all like the one at their other side.
        at_most = (steps * gaps).sum(0) + steps[0] * first + steps[-1] * last
        at_most += SIGMA * np.sqrt(noise * (self.n_chunks - len(self.places)))
        errors: FloatArray = np.minimum(_sigmas(steps) * np.sqrt(variance), at_most)
        return errors

    def _share_inside(self, brackets: Brackets) -> float:
        """Estimate the share of the sample's elements in the wanted cells."""
        first, last = self._reach(brackets)
        return float((last - first).sum())

    def _least_inside(self, about: Brackets, doubt: float) -> float:
        """Estimate the least share that a guess with so much doubt holds around these brackets.

        It is the share if pivots left nothing open.
        """
        first, last = self._reach(about)
        middles = np.sort((first + last) / 2)
        reach = np.minimum(middles + doubt / 2, 1) - np.maximum(middles - doubt / 2, 0)
        overlap = np.maximum(doubt - np.diff(middles), 0)
        return float(reach.sum() - overlap.sum())

    def _reach(self, brackets: Brackets) -> tuple[FloatArray, FloatArray]:
        """Estimate which range of shares of the sample's elements each wanted cell covers."""
        n_chunks = len(self.cuts.sizes)
        cells = cells_of(self.cuts, slice(0, n_chunks), brackets.ends)
        counts = self.cuts.upto, self.cuts.below, self.cuts.n_valid
        least, most, is_pivot = bounds_of(cells, *counts)
        middle = (least + most) / 2
        below, upto = np.where(is_pivot, least, middle), np.where(is_pivot, most, middle)
        n_valid = float(self.cuts.n_valid.sum())
        first = np.append(0.0, upto.sum(0) / n_valid)[brackets.wanted]
        return first, np.append(below.sum(0) / n_valid, 1.0)[brackets.wanted]


def _sigmas(steps: FloatArray) -> float:
    """Compute how many standard deviations to allow for an error known from so few steps."""
    return SIGMA * (1 + 2 / len(steps))


def _n_apart(brackets: Brackets) -> int:
    """Count the brackets that do not overlap, at least one."""
    return max(int(np.diff(brackets.wanted, prepend=False).sum() + 1) // 2, 1)


# --- The order in which chunks are read -----------------------------------------------------------

GOLDEN = (math.sqrt(5) - 1) / 2
NEAR = 12  # how many steps on each side of the golden section are tried


@dataclass(frozen=True)
class ChunkOrder:
    """Order of n chunks: each one is `step` chunks behind the one before, modulo n.

    Parameters
    ----------
    n : int
        Number of chunks.
    step : int
        Coprime to `n`.

    Notes
    -----
    However many chunks are taken from the start, the gaps between them have at most three lengths
    (Sós 1958). These differ least where the continued fraction of step / n has small quotients, as
    that of the golden section has. The gaps in rows and columns of a grid are then mostly even too.
    Bisection would take the whole first column of a grid before anything else.
    """

    n: int
    step: int = 1

    @classmethod
    def evenly(cls, n: int) -> Self:
        near = max(round(n * GOLDEN), 1)
        steps = range(max(near - NEAR, 1), min(near + NEAR, max(n - 1, 1)) + 1)
        apart = [step for step in steps if math.gcd(step, n) == 1]
        return cls(n, min(apart, key=lambda step: (_largest_quotient(step, n), abs(step - near))))

    def chunks(self, start: int, stop: int) -> IntArray:
        """Return the numbers of the chunks that are taken at turns `start` to `stop`."""
        return np.arange(start, stop, dtype=np.int64) * self.step % max(self.n, 1)

    def turns(self) -> IntArray:
        """Compute for each chunk at which turn it is taken, counted from 0."""
        turn_of = np.empty(self.n, np.int64)
        turn_of[self.chunks(0, self.n)] = np.arange(self.n)
        return turn_of


def _largest_quotient(a: int, b: int) -> int:
    """Find the largest quotient of the continued fraction of a / b, for a <= b."""
    largest = 0
    while a:
        quotient, rest = divmod(b, a)
        largest = max(largest, quotient)
        a, b = rest, a
    return largest
