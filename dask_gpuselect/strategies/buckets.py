"""Selection by buckets: equally wide ones, or those of one digit of the keys after the other."""

from __future__ import annotations

import math
from itertools import count

from dask_gpuselect.maths.keys import key_at
from dask_gpuselect.maths.ranks import Applied
from dask_gpuselect.strategies.known import Known, Search, Strategy
from dask_gpuselect.strategies.probes import (
    COPY,
    Bins,
    Extent,
    KeyBins,
    LinearBins,
    Points,
    bins_bytes,
)
from dask_gpuselect.strategies.spaces import VALUE

PHASE_ONE = 1 << 21
"""Number of elements from which on the elements of the bucket are copied (section 2.3.1)."""
MOST_COPIES = 2
MOST_BY_VALUE = 8
"""Largest number of rounds by value.

The graph of a dask array has a task for each round and chunk, whether it is needed or not.
"""


def Bucket(n_buckets: int = 1024, phase_one: int = PHASE_ONE) -> Strategy:
    """Make bucket selection: each round divides one bucket into equally wide buckets.

    Parameters
    ----------
    n_buckets : int, default 1024
        Number of buckets of a round.
    phase_one : int, default 2**21
        If more elements than this are left, those of the chosen bucket are copied before the next
        round (phase I), at most twice. Otherwise all are read again (phase II).

    Returns
    -------
    Strategy
        The method, for `order_statistic` and `quantile`.

    Notes
    -----
    Source: Alabi et al. 2012, section 2.3, algorithms 4 and 5; distributive partitioning (Allison &
    Noga 1980). Reads: one for the extremes, one for each round.

    The paper's weak spots are avoided. In its "bucket killer" data (section 4.2.5), each round
    removes only a few elements, while all others share a bucket. A round that leaves more than half
    of the elements, or the eighth round, makes the next ones divide by ordered keys, 10 bits a
    round. So there are at most 7 more rounds. Data near machine zero, for which the paper divides
    by zero, are divided by keys too, and so are infinities.
    """
    if n_buckets < 2:
        raise ValueError(f"n_buckets must be at least 2, not {n_buckets}")
    bits = n_buckets.bit_length() - 1
    rounds = 1 + MOST_BY_VALUE + -(-64 // bits) + 1
    search = Applied(_bucket, (n_buckets, phase_one))
    reply_bytes = Applied(bins_bytes, (n_buckets, rounds))
    return Strategy("bucket", search, rounds, reply_bytes, Extent(VALUE), sort_below=1)


def _bucket(n_buckets: int, phase_one: int, known: Known, extent: object) -> Search:
    by_value, copies = True, 0
    for turn in count(1):
        bins = _bins(n_buckets, known, by_value=by_value)
        n_inside = known.inside
        known, (i, j) = yield bins
        if i != j:
            known, _ = yield Points((key_at(bins.edge(j), known.dtype),))
        by_value = by_value and 2 * known.inside <= n_inside and turn < MOST_BY_VALUE
        if n_inside > phase_one and copies < MOST_COPIES:
            yield COPY
            copies += 1


def _bins(n_buckets: int, known: Known, *, by_value: bool) -> Bins:
    lo, hi = known.least, known.largest
    start, end = (VALUE.coordinate(key, known.dtype) for key in (lo, hi))
    width = end - start
    slope = n_buckets / width if width > 0 else math.inf
    if by_value and math.isfinite(slope) and slope > 0:
        return LinearBins(lo, hi, start, slope, n_buckets, known.dtype)
    shift = max((hi - lo).bit_length() - (n_buckets.bit_length() - 1), 0)
    return KeyBins(lo, shift, ((hi - lo) >> shift) + 1)


# --- Digits of keys -------------------------------------------------------------------------------

COPY_FROM = 1 << 22
"""Number of elements from which on the paper copies them (section 2.2)."""


def Radix(bits: int = 8, copies: bool | None = None) -> Strategy:
    """Make radix selection: each round counts the values of one more digit.

    Parameters
    ----------
    bits : int, default 8
        Bits of a digit, from 1 to 11. The paper has 4.
    copies : bool, optional
        True if the elements that share the digit are copied before the next round ("radixSelect");
        False if all elements are read again ("inplace radixSelect", which changes the elements in
        place: here they are only read). Default: the paper's rule, copies from 2**22 elements on.

    Returns
    -------
    Strategy
        The method, for `order_statistic` and `quantile`.

    Notes
    -----
    Source: Alabi et al. 2012, section 2.2, algorithms 2 and 3. Reads: one for each digit.

    Rounds: at most 32 / bits or 64 / bits, on any data; one more if two neighbouring ranks have
    different digits. Weak spot: if data share leading digits (``[1, 2]``), all elements stay in the
    bracket for many rounds. The number of rounds is bounded all the same, and such a round with
    copies copies all elements.
    """
    if not 1 <= bits <= 11:
        raise ValueError(f"bits must be from 1 to 11, not {bits}")
    rounds = -(-64 // bits) + 1
    search, reply_bytes = Applied(_radix, (bits, copies)), Applied(bins_bytes, (1 << bits, rounds))
    return Strategy("radix", search, rounds, reply_bytes, sort_below=1)


def _radix(bits_of_digit: int, copies: bool | None, known: Known, opened: None) -> Search:
    shift = 8 * known.dtype.itemsize
    copies = known.n >= COPY_FROM if copies is None else copies
    origin = 0
    while True:
        bits = min(bits_of_digit, shift)
        shift -= bits
        bins = KeyBins(origin, shift, 1 << bits)
        known, (i, j) = yield bins
        if i != j:
            known, _ = yield Points((key_at(bins.edge(j), known.dtype),))
        origin = bins.edge(i)
        if copies:
            yield COPY
