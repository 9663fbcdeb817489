"""Selection by random pivots: two around the wanted rank, or one after the other."""

from __future__ import annotations

import math
from itertools import count

import numpy as np

from dask_gpuselect.maths.ranks import Applied
from dask_gpuselect.strategies.known import Known, Search, Strategy
from dask_gpuselect.strategies.probes import COPY, Draw, KeyArray, Points, drawn_bytes

SIGMA = 1.6448536269514722
"""Distance from the mean, in standard deviations, that covers 0.9 of a normal distribution."""
SAMPLES = 4
"""Samples of randomized selection, each of which gives a bracket."""
DRAWS = 8
"""Number of rounds of quickselect beside its pivots."""


def Randomized(size: int = 1 << 14, sigma: float = SIGMA) -> Strategy:
    """Make randomized selection: a random sample gives two pivots around the wanted rank.

    Parameters
    ----------
    size : int, default 2**14
        Size of the sample.
    sigma : float
        Width of the bracket on each side, in standard deviations of the binomial distribution.
        Default: for a probability of 0.9.

    Returns
    -------
    Strategy
        The method, for `order_statistic` and `quantile`.

    Notes
    -----
    Source: Monroe et al. 2011 as Alabi et al. 2012 describe it, section 5.2, with their ``p_k =
    0.9``. Reads: one for each round, apart from the sample. On a miss, another sample is drawn from
    the part with the rank, and the bracket is twice as wide.

    Weak spot: a miss, once in ten times, makes times vary (figure 12). The counts notice it, and
    the part that has the rank is searched in the same way.
    """
    reply_bytes = Applied(drawn_bytes, (size, SAMPLES, 2, SAMPLES))
    return Strategy("randomized", Applied(_randomized, (size, sigma)), 2 * SAMPLES, reply_bytes)


def _randomized(size: int, width: float, known: Known, opened: None) -> Search:
    for turn in range(SAMPLES):
        known, drawn = yield Draw(known.lo, known.hi, size, turn)
        pivots = _about(known, np.sort(drawn.keys), width)
        if not pivots:
            return
        lo, hi = pivots[0], pivots[-1]
        known, _ = yield Points(pivots)
        if known.lo >= lo and known.hi <= hi:
            return  # a hit: the elements between them are gathered and sorted
        width *= 2


def _about(known: Known, drawn: KeyArray, sigma: float) -> tuple[int, ...]:
    """Choose one or two elements of a sorted sample around the wanted rank."""
    size = len(drawn)
    if size == 0:
        return ()
    share = (known.target - known.before) / known.inside
    middle = size * share
    reach = sigma * math.sqrt(size * share * (1 - share)) + 1
    places = np.clip([math.floor(middle - reach), math.ceil(middle + reach)], 0, size - 1)
    return tuple(sorted(set(drawn[places].tolist())))


def Quickselect(drawn: int = 1024, iterations: int = 64) -> Strategy:
    """Make quickselect: each round keeps the side of a random pivot that has the wanted rank.

    Parameters
    ----------
    drawn : int, default 1024
        Number of elements that are drawn together: those in the bracket are the next pivots.
    iterations : int, default 64
        Largest number of pivots.

    Returns
    -------
    Strategy
        The method, for `order_statistic` and `quantile`.

    Notes
    -----
    Source: Hoare 1961, "Find", as in Beliakov 2011, section II, and Alabi et al. 2012, section 1.1
    (the version that partitions all elements in parallel, of footnote 1). With plain arrays the
    side is copied, so that the reads shrink from round to round: together they are about 3 reads of
    the whole. The chunks of dask arrays stay, and each pivot takes a read.

    Weak spot: bad pivots. They are hashed places, which only data made for them can foresee. If
    elements are left after all iterations, the answer is found otherwise.
    """
    reply_bytes = Applied(drawn_bytes, (drawn, DRAWS, 1, iterations))
    return Strategy("quickselect", Applied(_quickselect, (drawn,)), iterations + DRAWS, reply_bytes)


def _quickselect(drawn: int, known: Known, opened: None) -> Search:
    for turn in count():
        known, sample = yield Draw(known.lo, known.hi, drawn, turn)
        if not len(sample.keys):
            return
        # Sampled keys come chunk by chunk, so they ascend if the data do: choose pivots in
        # random order.
        for pivot in np.random.default_rng(turn).permutation(sample.keys).tolist():
            if known.lo < pivot < known.hi:
                known, _ = yield Points((pivot,))
                yield COPY
