"""NumPy chunks: compiled by Numba, one compilation for each dtype, without the GIL.

Load 1 classifies every element among the pivots as super-scalar sample sort does (Sanders & Winkel
2004): the pivots form a binary tree in the order of its levels (Eytzinger), walked level by level
over runs of elements that stay in the first-level cache, so that each level is one vectorised loop
of gathers and no branch depends on data. 1e8 float64 in 10 chunks on 2 threads take 0.33 s at
2,047 pivots whatever the distribution (constant: 0.16 s); a table linear in value took 0.3 s on a
normal and 8.6 s on a lognormal, a binary search of each element 2.6 s.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload, register_jitable
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import compiled
from dask_gpuselect.kernels.cpu import few as cpu_few
from dask_gpuselect.kernels.cpu import measures as cpu_measures
from dask_gpuselect.kernels.cpu import moments as cpu_moments
from dask_gpuselect.kernels.cpu import narrow as cpu_narrow
from dask_gpuselect.kernels.reference import bitonic
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.kernels.reference.selection import even_positions, heavy_cells
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, RanksOf, Tally, extremes_of
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.lane_boxes import BoxesQuestion, Fences, Fliers, LaneEnds
from dask_gpuselect.maths.lane_cuts import (
    LaneQuestion,
    Lanes,
    RanksOfLanes,
    join,
    pick,
    ranks_of_each,
)
from dask_gpuselect.maths.moments import LaneMoments

RUN = 512  # elements a run: 4 KiB of float64 beside 2 KiB of cells
SORT_AT_MOST = 8192  # below this many elements sorting the chunk is as fast as classifying it
OVERSAMPLING = 16  # sampled elements for each pivot: cells then vary by a quarter of their size
FLUSH = 1 << 30  # elements after which counts move from 32 to 64 bits
TILE = 1 << 19  # bytes of lanes that are sorted together
SAMPLED = 64  # of a lane, and half of a short one
FEW_LEFT = 48  # elements that are sorted by insertion
MOST_LOOKED_AT = 3  # times the elements of a lane: 1.1 to 1.5 as a rule, 2.2 in 140,000 lanes
SEED = secrets.randbits(62)  # of the places of samples in lanes: no answer depends on it
FEW_ENDS = 24  # up to here comparing every element with every end beats the tree
MANY_MARKS = 64  # of a run, from which on all are taken at once


def cuts(values: NDArray[Any], n_pivots: int) -> Cuts:
    """The cuts of a chunk at sampled pivots; see `reference.cuts`.

    Reads the chunk once. Scratch: about 100 bytes for each pivot; as much as the heavy cells hold
    where the sample missed the distribution (which hashed positions make unlikely on any data).
    """
    if values.size <= SORT_AT_MOST:
        ordered, n_missing = _sort_valid(values)
        return cuts_of_sorted(ordered, n_pivots, n_missing)
    pivots = _sample_pivots(values, n_pivots)
    total, equal, distance, n_missing = _compiled(_classify, values.dtype)(values, *_tree(pivots))
    total[0] -= n_missing  # NaN compares as if below all pivots
    upto = np.cumsum(total[: len(pivots)])
    below = upto - equal[: len(pivots)]
    distance = distance[: len(pivots)]
    distance[:1] = np.nan  # the first cell has no lower end: unknown
    sampled = Cuts.of_chunk(pivots, below, upto, distance, values.size - n_missing, n_missing)
    return _split_heavy(sampled, values, n_pivots)


def tally(values: NDArray[Any], brackets: Brackets, most: int) -> Tally | None:
    """Counts at the ends and candidates; see `reference.tally`. Scratch: `most` elements."""
    out = np.empty(most + RUN, values.dtype)
    ends, wanted = brackets.ends, brackets.wanted
    if len(ends) <= FEW_ENDS:
        bars, is_above = _bars(ends, wanted)
        total, equal, n_missing, found = _compiled(_tally_few, values.dtype)(
            values, bars, is_above, ends, wanted, most, out
        )
        upto = np.cumsum(total[:-1]) + equal * is_above
        below = upto - equal
    else:
        total, equal, n_missing, found = _compiled(_tally_many, values.dtype)(
            values, *_tree(ends), len(ends), wanted, most, out
        )
        total[0] -= n_missing
        upto = np.cumsum(total[: len(ends)])
        below = upto - equal[: len(ends)]
    if found < 0:
        return None
    return Tally(below, upto, out[:found].copy(), values.size - n_missing, n_missing)


def sample(values: NDArray[Any], size: int) -> NDArray[Any]:
    """Valid elements at `size` hashed places; see `reference.sample`."""
    drawn: NDArray[Any] = _compiled(_sample, values.dtype)(values, size)
    return drawn[~np.isnan(drawn)] if drawn.dtype.kind == "f" else drawn


def sorted_sample(values: NDArray[Any], size: int) -> tuple[NDArray[Any], float]:
    """A sorted sample; see `reference.sorted_sample`."""
    return np.sort(sample(values, size)), size / max(values.size, 1)


def pilot(values: NDArray[Any], size: int, ranks: RanksOf) -> tuple[Brackets, Tally | None]:
    """Brackets that a sample suggests, and the tally there; see `reference.pilot`."""
    drawn = sample(values, size)
    return reference.pilot_from(drawn, partial(tally, values), values.size, ranks)


def lanes(parts: Sequence[NDArray[Any]], ranks: RanksOfLanes) -> Lanes:
    """The elements of some ranks in every lane; see `reference.lanes`.

    Lanes are copied side by side into a tile that stays in the cache, and sorted there by NumPy's
    vectorised sort, which puts NaN and NaT last and lets go of the GIL. Lanes that are long for the
    number of their ranks are narrowed by samples instead. Lanes of few elements are sorted side by
    side, and integers of one and two bytes by counting. Scratch: the tile, or three lanes if that
    is more.
    """
    if cpu_few.is_few(parts):
        return cpu_few.lanes(parts, ranks)
    n = sum(part.shape[-1] for part in parts)
    dtype = parts[0].dtype
    if dtype.kind not in "Mm" and n and not cpu_narrow.is_narrow(dtype):
        n_answers = len(ranks(np.array([n]))[0])
        if _is_selected_faster(n, dtype.itemsize, n_answers):
            return join([_select(rows, ranks) for rows in tiles(parts)])
    return join([pick(_sort(rows), ranks) for rows in tiles(parts)])


def answer_lanes(parts: Sequence[NDArray[Any]], question: LaneQuestion) -> NDArray[Any]:
    """The answers for every lane, ``(n_answers, n_lanes)``. Scratch as for `lanes`."""
    if cpu_few.is_few(parts):
        return cpu_few.answer_lanes(parts, question)
    return question.lane_answer(lanes(parts, question.lane_ranks))


def sorted_lanes(parts: Sequence[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Tables of sorted lanes; see `reference.sorted_lanes`. Scratch as for `lanes`."""
    if cpu_few.is_few(parts):
        return cpu_few.sorted_tiles(parts)
    return map(_sort, tiles(parts))


def lane_ends(parts: Sequence[NDArray[Any]], fences: Fences, most: int) -> LaneEnds:
    """What is beyond the fences of every lane; see `reference.lane_ends`.

    Lanes are sorted: then their ends are where they are looked for. Scratch: as for `lanes`, and
    the fliers.
    """
    pieces = []
    start = 0
    for rows in sorted_lanes(parts):
        pieces.append(_ends_of_sorted(rows, fences[start : start + len(rows)], most))
        start += len(rows)
    return LaneEnds.joined(pieces)


def lane_boxes(
    parts: Sequence[NDArray[Any]], question: BoxesQuestion
) -> tuple[NDArray[np.float64], LaneEnds]:
    """The quantiles of every lane, and what is beyond its fences, of lanes that are sorted once."""
    quantiles, pieces = [], []
    for rows in sorted_lanes(parts):
        q = question.lane_answer(pick(rows, question.lane_ranks)).astype(np.float64)
        fences = Fences.of(q, question.rule, rows.dtype)
        quantiles.append(q)
        pieces.append(_ends_of_sorted(rows, fences, question.rule.max_fliers))
    return np.concatenate(quantiles, axis=1), LaneEnds.joined(pieces)


def _ends_of_sorted(rows: NDArray[Any], fences: Fences, most: int) -> LaneEnds:
    n_lanes, n = rows.shape
    counts = np.zeros((5, n_lanes), np.int64)
    ends = np.empty((4, n_lanes), rows.dtype)
    ends[::2], ends[1::2] = extremes_of(rows.dtype)[::-1]
    _compiled(_look_at_sorted, rows.dtype)(rows, fences.low, fences.high, counts, ends)
    n_valid, n_low, n_high, n_above, n_below = counts
    sums = cpu_moments.sums_of_sorted(rows, n_below, n_valid - n_above)
    moments = LaneMoments(n_valid - n_above - n_below, n_above, n_below, *sums)
    kept = np.minimum(n_low, most), np.minimum(n_high, most)
    found = [np.empty(int(each.sum()), rows.dtype) for each in kept]
    _compiled(_take_ends, rows.dtype)(rows, *kept, n_valid, *found)
    low, high = (
        Fliers(number, n_kept, unsigned_zero(elements))
        for number, n_kept, elements in zip((n_low, n_high), kept, found, strict=True)
    )
    least, largest, first, last = ends
    return LaneEnds(n_valid, n - n_valid, least, largest, first, last, low, high, moments)


def _sort(rows: NDArray[Any]) -> NDArray[Any]:
    if cpu_narrow.is_narrow(rows.dtype):
        cpu_narrow.sort_rows(rows)
    else:
        rows.sort(axis=-1)
    return rows


def _is_selected_faster(n: int, itemsize: int, n_answers: int) -> bool:
    """Nanoseconds an element, of 365 to 1e5 float32 and float64: the sort takes about ``0.55 *
    log2(n / 128) - 1.5`` for each byte of it (AVX2; up to 128 by networks); selecting an answer 5.4
    of 365, 3.2 of 1,000, 2.3 of 3,650 and 1.2 of 1e5."""
    if n <= 128:
        return False
    return 0.55 * itemsize * math.log2(n / 128) - 1.5 > n_answers * (1.5 + 1500 / n)


def _select(rows: NDArray[Any], ranks: RanksOfLanes) -> Lanes:
    """As `pick`, of lanes that are not sorted. They are moved about in their rows."""
    return select(rows, ranks, SEED)[0]


def select(rows: NDArray[Any], ranks: RanksOfLanes, seed: int) -> tuple[Lanes, IntArray]:
    """The same, and how many elements were looked at for each answer of each lane; -1 where so many
    that NumPy selected them instead.

    Every sample is drawn at places that are hashed with the seed, below 2**62, so that whoever does
    not know it cannot arrange data that a sample says nothing about.
    """
    n_valid = np.full(len(rows), rows.shape[1], np.int64)
    if rows.dtype.kind == "f":
        n_valid -= np.count_nonzero(np.isnan(rows), axis=1)
    lower, upper = (np.ascontiguousarray(each) for each in ranks_of_each(n_valid, ranks))
    found = np.zeros((2, *lower.shape), rows.dtype)
    looked_at = np.zeros(lower.shape, np.int64)
    _compiled(_select_rows, rows.dtype)(
        rows, n_valid, lower, upper, found[0], found[1], seed, looked_at
    )
    for i in np.flatnonzero((looked_at < 0).any(axis=1)):
        ordered = np.partition(rows[i, : n_valid[i]], np.union1d(lower[i], upper[i]))
        found[:, i] = ordered[lower[i]], ordered[upper[i]]
    return Lanes(found[0], found[1], n_valid, rows.shape[1] - n_valid), looked_at


def tiles(parts: Sequence[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """All lanes in tables with a row for each, the next in the memory of the one before."""
    shape = parts[0].shape[:-1]
    n = sum(part.shape[-1] for part in parts)
    dtype = parts[0].dtype
    most = max(1, TILE // max(n * dtype.itemsize, 1))
    memory = np.empty(min(most, math.prod(shape)) * n, dtype)
    if not math.prod(shape):
        yield memory.reshape(0, n)
        return
    for place in cpu_few.slabs(shape, most):
        slab = parts[0][place].shape[:-1]
        tile = memory[: math.prod(slab) * n].reshape(*slab, n)
        start = 0
        for part in parts:
            stop = start + part.shape[-1]
            tile[..., start:stop] = part[place]
            start = stop
        yield tile.reshape(math.prod(slab), n)


is_best_whole = reference.is_best_whole

whole = reference.whole


moments = cpu_moments.moments

merged = Tally.merge  # this is the host

tally_in_place = tally  # this is the host

report = cpu_measures.report

bitonic_sorted = bitonic.sorted_by_network


# --- Choosing pivots ----------------------------------------------------------------------------


def _sample_pivots(values: NDArray[Any], n_pivots: int) -> NDArray[Any]:
    """About `n_pivots` distinct pivots, at even steps through a sorted sample of the chunk."""
    # The tree has 2**levels - 1 nodes: use them all. A level more than there are pivots wanted for
    # takes 10 % more time (1e7 float64: 62 ms with 2,047, 68 ms with 4,095).
    n_pivots = (1 << ((n_pivots + 1).bit_length() - 1)) - 1
    n_sampled = min(OVERSAMPLING * (n_pivots + 1), values.size)
    ordered = np.sort(sample(values, n_sampled))
    steps = np.arange(1, n_pivots + 1) * len(ordered) // (n_pivots + 1)
    return np.unique(ordered[steps]) if len(ordered) else ordered


def _look_at_sorted(rows: Any, low: Any, high: Any, counts: Any, ends: Any) -> None:
    """Counts of every row, its extremes, and its nearest elements inside the fences."""
    for i in range(rows.shape[0]):
        row = rows[i]
        n_valid = row.size
        if n_valid and _is_missing(row[n_valid - 1]):
            n_valid = _count_upto(row, n_valid, np.inf)
        counts[0, i] = n_valid
        if n_valid == 0:
            continue
        # Nothing is beyond NaN, and nothing inside.
        n_low = _count_below(row, n_valid, low[i])
        n_upto = _count_upto(row, n_valid, high[i]) if high[i] == high[i] else n_valid
        counts[1, i], counts[2, i] = n_low, n_valid - n_upto
        counts[3, i] = n_valid - _count_below(row, n_valid, np.inf)
        counts[4, i] = _count_upto(row, n_valid, -np.inf)
        ends[0, i], ends[1, i] = row[0], row[n_valid - 1]
        if low[i] == low[i] and n_low < n_valid:
            ends[2, i] = row[n_low]
        if high[i] == high[i] and n_upto > 0:
            ends[3, i] = row[n_upto - 1]


@register_jitable
def _count_below(row: Any, n: Any, value: Any) -> Any:
    """How many of n sorted elements are, as float64, less than a value."""
    first, stop = 0, n
    while first < stop:
        middle = (first + stop) // 2
        if np.float64(row[middle]) < value:
            first = middle + 1
        else:
            stop = middle
    return first


@register_jitable
def _count_upto(row: Any, n: Any, value: Any) -> Any:
    """How many are less or equal."""
    first, stop = 0, n
    while first < stop:
        middle = (first + stop) // 2
        if np.float64(row[middle]) <= value:
            first = middle + 1
        else:
            stop = middle
    return first


def _take_ends(
    rows: Any, kept_low: Any, kept_high: Any, n_valid: Any, lows: Any, highs: Any
) -> None:
    """The outermost elements of every row, the most extreme first."""
    n_low, n_high = 0, 0
    for i in range(rows.shape[0]):
        for j in range(kept_low[i]):
            lows[n_low] = rows[i, j]
            n_low += 1
        for j in range(kept_high[i]):
            highs[n_high] = rows[i, n_valid[i] - 1 - j]
            n_high += 1


def _sample(x: Any, n_sampled: int) -> Any:
    """One element from each of `n_sampled` equal stretches of x, at a hashed place of the stretch.

    A fixed stride would see one phase of periodic data. Stretches make the sample of sorted data
    nearly even.
    """
    sample = np.empty(n_sampled, x.dtype)
    for i in range(n_sampled):
        sample[i] = x[_sampled_place(i, n_sampled, x.size, 0)]
    return sample


@register_jitable
def _sampled_place(i: Any, n_sampled: Any, n: Any, salt: Any) -> Any:
    """A hashed place in stretch i of `n_sampled` equal stretches of n elements."""
    start = i * n // n_sampled
    length = (i + 1) * n // n_sampled - start
    return start + np.int64(hashed(np.uint64(salt + i)) % np.uint64(length))


@register_jitable
def hashed(i: Any) -> Any:
    """SplitMix64 (Steele, Lea & Flood 2014), a bijection that looks random."""
    i = i * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    i = (i ^ (i >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    i = (i ^ (i >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return i ^ (i >> np.uint64(31))


def _split_heavy(sampled: Cuts, values: NDArray[Any], n_pivots: int) -> Cuts:
    """Divide the cells that hold more than `HEAVY` times their share, at exactly even steps."""
    n_valid = int(sampled.n_valid[0])
    share = max(n_valid // n_pivots, 1)
    heavy, inside, before = heavy_cells(sampled.below, sampled.upto, n_valid, share)
    if len(heavy) == 0:
        return sampled
    held = np.sort(_gather_cells(sampled.pivots, heavy, values, int(inside[heavy].sum())))

    parts = [sampled]
    taken = 0
    for size, start in zip(inside[heavy], before[heavy], strict=True):
        within = cuts_of_sorted(held[taken : taken + size], -(-int(size) // share) + 1, 0)
        parts.append(replace(within, below=within.below + start, upto=within.upto + start))
        taken += size
    merged = Cuts.merge(parts)
    # A heavy cell now ends at the last of its own pivots, and nothing is left to the old end.
    merged.distance[heavy[heavy < len(sampled.pivots)]] = 0.0
    order = np.argsort(merged.pivots)
    n_missing = int(sampled.n_missing[0])
    return Cuts.of_chunk(
        merged.pivots[order],
        merged.below[order],
        merged.upto[order],
        merged.distance[order],
        n_valid,
        n_missing,
    )


def _gather_cells(
    pivots: NDArray[Any], cells: IntArray, values: NDArray[Any], size: int
) -> NDArray[Any]:
    """The elements of some open cells between the pivots."""
    around = np.unique(np.concatenate([cells - 1, cells]))
    around = around[(around >= 0) & (around < len(pivots))]
    wanted = np.zeros(len(around) + 1, np.bool_)
    wanted[np.searchsorted(around, cells)] = True
    gathered = tally(values, Brackets(pivots[around], wanted), size)
    if gathered is None:
        raise RuntimeError("the chunk changed while it was read: another thread writes to it")
    return gathered.candidates


# --- Long lanes ---------------------------------------------------------------------------------


def _select_rows(
    rows: Any,
    n_valid: Any,
    lower: Any,
    upper: Any,
    first: Any,
    second: Any,
    seed: int,
    looked_at: Any,
) -> None:
    """The elements of ranks `lower` and `upper` of every row: (row, answer)."""
    n = rows.shape[1]
    one, other = np.empty(n + 1, rows.dtype), np.empty(n + 1, rows.dtype)
    sample = np.empty(SAMPLED, rows.dtype)
    for i in range(rows.shape[0]):
        row = rows[i]
        if n_valid[i] < n:  # those that are missing are behind
            size = 0
            for j in range(n):
                value = row[j]
                row[size] = value
                size += not _is_missing(value)
        valid = row[: n_valid[i]]
        if valid.size:
            for q in range(lower.shape[1]):
                first[i, q], second[i, q], looked_at[i, q] = _select_pair(
                    valid, lower[i, q], upper[i, q], one, other, sample, seed
                )


@register_jitable
def _select_pair(
    x: Any, rank: Any, upper: Any, one: Any, other: Any, sample: Any, seed: Any
) -> Any:
    """The elements of two ranks, of which the second is the same or the next; and how many elements
    all sweeps looked at, or -1 where they are given up.

    Two elements of a sample, about where the rank must be, part what is below, between and above
    them: between is a quarter of all, or an eighth. Again with what the rank is in, until it is
    little. Floyd & Rivest 1975, with a sample of bounded size.
    """
    left, k = x, rank
    looked_at = 0
    while left.size > FEW_LEFT:
        n = left.size
        looked_at += n
        if looked_at > MOST_LOOKED_AT * x.size:
            return x[0], x[0], -1
        n_sampled = SAMPLED // 2 if n < 2000 else SAMPLED
        salt = np.int64(hashed(np.uint64(seed + n)) >> np.uint64(2))
        for i in range(n_sampled):
            sample[i] = left[_sampled_place(i, n_sampled, n, salt)]
        _insertion_sort(sample, n_sampled)
        place = (k + 0.5) / n * n_sampled
        reach = 1.5 * math.sqrt(place * (1 - place / n_sampled)) + 1
        p = sample[max(np.int64(place - reach), 0)]
        r = sample[min(np.int64(place + reach), n_sampled - 1)]
        below, upto = _count_two(left, p, r)
        if below == 0 and upto == n:  # ties at both ends: count those of one
            p = sample[np.int64(place)]
            r = p
            below, upto = _count_two(left, p, r)
        size = 0
        if k < below:
            for i in range(n):
                one[size] = left[i]
                size += left[i] < p
        elif k >= upto:
            for i in range(n):
                one[size] = left[i]
                size += left[i] > r
            k -= upto
        elif p == r:
            second = p if upper == rank or k + 1 - below < upto - below else _next(x, p)
            return p, second, looked_at
        else:
            for i in range(n):
                one[size] = left[i]
                size += (left[i] >= p) & (left[i] <= r)
            k -= below
        left = one[:size]
        one, other = other, one
    for i in range(left.size):
        one[i] = left[i]
    _insertion_sort(one, left.size)
    found = one[k]
    if upper == rank:
        return found, found, looked_at
    return found, (one[k + 1] if k + 1 < left.size else _next(x, found)), looked_at


@register_jitable
def _count_two(x: Any, p: Any, r: Any) -> Any:
    """How many are below p, and up to r."""
    below = np.int64(0)
    upto = np.int64(0)
    for i in range(x.size):
        below += x[i] < p
        upto += x[i] <= r
    return below, upto


@register_jitable
def _next(x: Any, value: Any) -> Any:
    """The least element that is larger; there is one."""
    found = value
    for i in range(x.size):
        if x[i] > value and (found == value or x[i] < found):
            found = x[i]
    return found


@register_jitable
def _insertion_sort(x: Any, n: Any) -> None:
    for i in range(1, n):
        value = x[i]
        j = i
        while j > 0 and x[j - 1] > value:
            x[j] = x[j - 1]
            j -= 1
        x[j] = value


# --- A sorted chunk, or the sorted elements of a cell -------------------------------------------


def _sort_valid(values: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """The elements that are no NaN, ascending, and the number of those that are."""
    ordered = np.sort(values)  # NaN last
    n_valid = len(ordered)
    if ordered.dtype.kind == "f" and n_valid and np.isnan(ordered[-1]):
        n_valid = int(np.searchsorted(ordered, np.nan))
    return ordered[:n_valid], len(ordered) - n_valid


def cuts_of_sorted(ordered: NDArray[Any], n_pivots: int, n_missing: int) -> Cuts:
    """The cuts at even steps through sorted elements, the first and last of them among the
    pivots."""
    positions = even_positions(len(ordered), n_pivots)
    pivots, below, upto, distance = _compiled(_measure_sorted, ordered.dtype)(ordered, positions)
    return Cuts.of_chunk(pivots, below, upto, distance, len(ordered), n_missing)


def _measure_sorted(x: Any, positions: Any) -> Any:
    """Pivots, below, upto and distance of the distinct elements at ascending positions of the
    sorted x."""
    pivots = np.empty(positions.size, x.dtype)
    below = np.empty(positions.size, np.int64)
    upto = np.empty(positions.size, np.int64)
    distance = np.empty(positions.size, np.float64)
    m = 0
    k = 0  # elements up to the pivots so far
    for position in positions:
        if position < k:  # equal to the pivot before
            continue
        pivot = x[position]
        sum_ = 0.0
        while x[k] < pivot:
            sum_ += _gap(x[k], pivot)
            k += 1
        below[m] = k
        while k < x.size and x[k] == pivot:
            k += 1
        pivots[m], upto[m], distance[m] = pivot, k, sum_
        m += 1
    distance[:1] = np.nan
    return pivots[:m].copy(), below[:m].copy(), upto[:m].copy(), distance[:m].copy()


# --- One pass over the chunk --------------------------------------------------------------------


def _tree(pivots: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], int]:
    """The pivots as an Eytzinger tree of 2**levels - 1 nodes, and ascending, both padded with the
    largest value.

    A walk from node 1 to ``2 * node + (x > tree[node])``, `levels` times, ends at ``2**levels +
    (number of pivots < x)``. Padding catches what is above all pivots.
    """
    levels = len(pivots).bit_length()
    n_cells = 1 << levels
    largest = np.inf if pivots.dtype.kind == "f" else np.iinfo(pivots.dtype).max
    padded = np.full(n_cells, largest, pivots.dtype)
    padded[: len(pivots)] = pivots
    tree = padded.copy()
    for level in range(levels):
        step = n_cells >> level
        tree[1 << level : 2 << level] = padded[step // 2 - 1 : -1 : step]
    return tree, padded, levels


@register_jitable
def _walk(run: Any, tree: Any, pivots: Any, levels: Any, cell: Any) -> None:
    """The leaf of every element of a run, level by level: each inner loop vectorises to gathers."""
    first = 0
    if levels >= 4:
        first = 4
        _count_fifteen(run, pivots, cell)
    else:
        for k in range(run.size):
            cell[k] = np.uint32(1)
    for _ in range(first, levels):
        for k in range(run.size):
            node = cell[k]
            cell[k] = np.uint32(2) * node + np.uint32(run[k] > tree[node])


@register_jitable
def _count_fifteen(run: Any, pivots: Any, cell: Any) -> None:
    """The nodes of the fifth level: there is one for each number of pivots of the first four levels
    that are below the element.

    Comparing with all fifteen beats four gathers: 62 ms for 71 of the whole pass over 1e7 float64
    at 2,047 pivots. Fifteen names and not an array, so that they stay in registers.
    """
    step = pivots.size // 16
    p1 = pivots[1 * step - 1]
    p2 = pivots[2 * step - 1]
    p3 = pivots[3 * step - 1]
    p4 = pivots[4 * step - 1]
    p5 = pivots[5 * step - 1]
    p6 = pivots[6 * step - 1]
    p7 = pivots[7 * step - 1]
    p8 = pivots[8 * step - 1]
    p9 = pivots[9 * step - 1]
    p10 = pivots[10 * step - 1]
    p11 = pivots[11 * step - 1]
    p12 = pivots[12 * step - 1]
    p13 = pivots[13 * step - 1]
    p14 = pivots[14 * step - 1]
    p15 = pivots[15 * step - 1]
    for k in range(run.size):
        v = run[k]
        count = np.uint32(16)
        count += np.uint32(v > p1) + np.uint32(v > p2) + np.uint32(v > p3)
        count += np.uint32(v > p4) + np.uint32(v > p5) + np.uint32(v > p6)
        count += np.uint32(v > p7) + np.uint32(v > p8) + np.uint32(v > p9)
        count += np.uint32(v > p10) + np.uint32(v > p11) + np.uint32(v > p12)
        count += np.uint32(v > p13) + np.uint32(v > p14) + np.uint32(v > p15)
        cell[k] = count


def _classify(x: Any, tree: Any, pivots: Any, levels: Any) -> Any:
    """Count and sum the cells of x: elements in (pivot before, pivot], those equal to it,
    distances to it."""
    n_cells = pivots.size
    total = np.zeros(n_cells, np.int64)
    equal = np.zeros(n_cells, np.int64)
    # Two copies, for even and odd elements: on constant data each addition would wait for the one
    # before. A word counts all elements in its low half and the equal ones in its high half: one
    # addition for both.
    counts = np.zeros((2, n_cells), np.int64)
    distance = np.zeros((2, n_cells), np.float64)
    cell = np.empty(RUN, np.uint32)
    leaf = np.uint32(n_cells)
    n_missing = 0
    for begin in range(0, x.size, FLUSH):
        end = min(begin + FLUSH, x.size)
        for start in range(begin, end, RUN):
            run = x[start : min(start + RUN, end)]
            _walk(run, tree, pivots, levels, cell)
            for k in range(run.size):
                n_missing += _is_missing(run[k])
            for k in range(0, run.size - 1, 2):
                i = cell[k] - leaf
                counts[0, i] += 1 + (np.int64(run[k] == pivots[i]) << 32)
                distance[0, i] += _gap(run[k], pivots[i])
                i = cell[k + 1] - leaf
                counts[1, i] += 1 + (np.int64(run[k + 1] == pivots[i]) << 32)
                distance[1, i] += _gap(run[k + 1], pivots[i])
            if run.size % 2:
                k = run.size - 1
                i = cell[k] - leaf
                counts[0, i] += 1 + (np.int64(run[k] == pivots[i]) << 32)
                distance[0, i] += _gap(run[k], pivots[i])
        for i in range(n_cells):
            for copy in range(2):
                total[i] += counts[copy, i] & 0xFFFFFFFF
                equal[i] += counts[copy, i] >> 32
                counts[copy, i] = 0
    return total, equal, distance[0] + distance[1], n_missing


def _bars(ends: NDArray[Any], wanted: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Values such that the number of them that are less than an element is its open cell, or if it
    is an end that of a neighbouring cell, a wanted one if there is one; and whether it is the one
    above."""
    is_float = ends.dtype.kind == "f"
    least = -np.inf if is_float else np.iinfo(ends.dtype).min
    is_above = ~wanted[:-1] & (ends > least)
    with np.errstate(over="ignore", under="ignore"):  # -inf, and denormal numbers, are right
        before = np.nextafter(ends, ends.dtype.type(least)) if is_float else ends - (ends > least)
    return np.where(is_above, before, ends).astype(ends.dtype), is_above


def _tally_few(
    x: Any, bars: Any, is_above: Any, ends: Any, wanted: Any, most: int, out: Any
) -> Any:
    """Compare every element with every bar, and pick out the cells that are wanted or have ties:
    all vectorised. Marks are looked through eight at a time.

    One comparison for each bar, one byte for its cell: 1e7 float64 at twelve ends take 19 ms; 31
    where elements are compared with ends both ways, to count them, and once more to mark them.
    """
    n_ends = ends.size
    total = np.zeros(n_ends + 1, np.int64)
    equal = np.zeros(n_ends, np.int64)
    is_marked = wanted.copy()
    for j in range(n_ends):
        is_marked[j + is_above[j]] = True
    sizes = np.zeros(n_ends + 1, np.int64)
    cell = np.empty(RUN, np.uint8)
    held = np.empty(RUN, np.uint8)
    marks = np.empty(RUN, np.uint8)
    words = marks.view(np.uint64)
    n_missing = 0
    found = 0
    for start in range(0, x.size, RUN):
        run = x[start : min(start + RUN, x.size)]
        _count_bars(run, bars, cell)
        missing = 0
        for k in range(run.size):
            missing += _is_missing(run[k])
        n_missing += missing
        total[0] -= missing
        marks[:] = 0
        n_marked = 0
        for j in range(n_ends + 1):
            size = np.uint16(0)
            for k in range(run.size):
                size = np.uint16(size + np.uint16(cell[k] == np.uint8(j)))
            sizes[j] = size
            if is_marked[j] and size:
                n_marked += sizes[j]
                for k in range(run.size):
                    marks[k] |= cell[k] == np.uint8(j)
        total += sizes
        if missing:
            for k in range(run.size):
                marks[k] &= not _is_missing(run[k])
        if found > most:
            return total, equal, n_missing, -1
        if n_marked > MANY_MARKS:
            _unmark(run, cell, sizes, ends, wanted, equal, marks)
            for w in range(words.size):
                if words[w]:
                    for k in range(8 * w, min(8 * w + 8, run.size)):
                        out[found] = run[k]
                        found += marks[k]
            continue
        begin = found
        for w in range(words.size):
            if words[w]:
                for k in range(8 * w, min(8 * w + 8, run.size)):
                    out[found] = run[k]
                    held[found - begin] = cell[k]
                    found += marks[k]
        found = _without_ends(out, begin, found, held, ends, wanted, equal)
    if found > most:
        return total, equal, n_missing, -1
    return total, equal, n_missing, found


@register_jitable
def _without_ends(
    out: Any, begin: Any, found: Any, cells: Any, ends: Any, wanted: Any, equal: Any
) -> Any:
    """Keep those found since the beginning of a run that are in wanted cells; count the ends."""
    kept = begin
    for k in range(begin, found):
        value = out[k]
        i = np.int64(cells[k - begin])
        is_kept = wanted[i]
        if i < ends.size and value == ends[i]:
            equal[i] += 1
            is_kept = False
        elif i > 0 and value == ends[i - 1]:
            equal[i - 1] += 1
            is_kept = False
        out[kept] = value
        kept += is_kept
    return kept


@register_jitable
def _unmark(
    run: Any, cell: Any, sizes: Any, ends: Any, wanted: Any, equal: Any, marks: Any
) -> None:
    """Count and unmark what equals an end, and unmark cells that are not wanted."""
    for j in range(ends.size):
        if sizes[j] or sizes[j + 1]:
            end = ends[j]
            size = np.uint16(0)
            for k in range(run.size):
                is_end = run[k] == end
                size = np.uint16(size + np.uint16(is_end))
                marks[k] &= not is_end
            equal[j] += size
    for j in range(wanted.size):
        if sizes[j] and not wanted[j]:
            for k in range(run.size):
                marks[k] &= cell[k] != np.uint8(j)


@register_jitable
def _count_bars(run: Any, bars: Any, cell: Any) -> None:
    """How many bars are less than each element: six of them at a time, in registers."""
    cell[:] = 0
    n = bars.size // 6 * 6
    for j in range(0, n, 6):
        p1 = bars[j]
        p2 = bars[j + 1]
        p3 = bars[j + 2]
        p4 = bars[j + 3]
        p5 = bars[j + 4]
        p6 = bars[j + 5]
        for k in range(run.size):
            v = run[k]
            count = np.uint8(v > p1) + np.uint8(v > p2) + np.uint8(v > p3)
            count += np.uint8(v > p4) + np.uint8(v > p5) + np.uint8(v > p6)
            cell[k] = np.uint8(cell[k] + count)
    for j in range(n, bars.size):
        bar = bars[j]
        for k in range(run.size):
            cell[k] = np.uint8(cell[k] + np.uint8(run[k] > bar))


def _tally_many(
    x: Any, tree: Any, ends: Any, levels: Any, n_ends: int, wanted: Any, most: int, out: Any
) -> Any:
    """Classify every element among the ends, as `_classify` does among the pivots."""
    n_cells = ends.size
    total = np.zeros(n_cells, np.int64)
    equal = np.zeros(n_cells, np.int64)
    is_wanted = np.zeros(n_cells, np.bool_)
    for i in range(n_cells):
        is_wanted[i] = wanted[min(i, n_ends)]
    cell = np.empty(RUN, np.uint32)
    leaf = np.uint32(n_cells)
    n_missing = 0
    found = 0
    for start in range(0, x.size, RUN):
        run = x[start : min(start + RUN, x.size)]
        _walk(run, tree, ends, levels, cell)
        for k in range(run.size):
            n_missing += _is_missing(run[k])
        for k in range(run.size):
            i = cell[k] - leaf
            is_end = run[k] == ends[i] and i < n_ends
            total[i] += 1
            equal[i] += is_end
            out[found] = run[k]
            found += is_wanted[i] and not is_end and not _is_missing(run[k])
        if found > most:
            return total, equal, n_missing, -1
    return total, equal, n_missing, found


def _gap(low: Any, high: Any) -> Any:
    """``high - low`` as float64, to a relative error of 2**-53; see `cuts.exact_gap`."""
    raise NotImplementedError("compiled only")


@overload(_gap, strict=False)
def _gap_overload(low: Any, high: Any) -> Any:
    if isinstance(low, types.Float):
        return lambda low, high: np.float64(high) - np.float64(low)
    return lambda low, high: np.float64(np.uint64(high) - np.uint64(low))


def _is_missing(value: Any) -> Any:
    """Whether a value is NaN."""
    raise NotImplementedError("compiled only")


@overload(_is_missing, strict=False)
def _is_missing_overload(value: Any) -> Any:
    if isinstance(value, types.Float):
        return lambda value: value != value
    return lambda value: False


# --- Compilation --------------------------------------------------------------------------------


def _signatures(
    values: types.Array, values_out: types.Array
) -> dict[Callable[..., Any], tuple[Any, ...]]:
    flags = types.Array(types.boolean, 1, "C", readonly=True)
    positions = types.Array(types.int64, 1, "C", readonly=True)
    table, numbers = types.Array(values.dtype, 2, "C"), types.Array(types.int64, 2, "C")
    reals = types.Array(types.float64, 1, "A", readonly=True)
    places = types.Array(types.int64, 1, "A", readonly=True)
    return {
        _look_at_sorted: (table, reals, reals, numbers, table),
        _take_ends: (table, places, places, places, values_out, values_out),
        _select_rows: (
            table,
            types.Array(types.int64, 1, "C"),
            numbers,
            numbers,
            table,
            table,
            types.int64,
            numbers,
        ),
        _sample: (values, types.int64),
        _measure_sorted: (values, positions),
        _classify: (values, values, values, types.int64),
        _tally_few: (values, values, flags, values, flags, types.int64, values_out),
        _tally_many: (
            values,
            values,
            values,
            types.int64,
            types.int64,
            flags,
            types.int64,
            values_out,
        ),
    }


def _compiled(kernel: Callable[..., Any], dtype: np.dtype[Any]) -> Callable[..., Any]:
    return compiled(kernel, dtype, _signatures)
