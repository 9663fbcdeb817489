"""Few ranks of long lanes: found by narrowing with samples, compiled by Numba."""

from __future__ import annotations

import math
import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.draws import hashed, sampled_place
from dask_gpuselect.kernels.cpu.lane_runs import RUN
from dask_gpuselect.kernels.cpu.scalars import is_missing
from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes, ranks_of_each

SAMPLED = 64  # elements of a sample of a lane; half as many for a short one
FEW_LEFT = 48  # elements up to which insertion sort finishes
MOST_READS = 3  # reads of a lane at most: mostly 1.1 to 1.5, and 2.2 in 140,000 lanes
SEED = secrets.randbits(62)  # seed of the places of samples; no answer depends on it


def is_selected_faster(n: int, itemsize: int, n_answers: int) -> bool:
    """Return whether selecting the answers of lanes of n elements is faster than sorting runs.

    In nanoseconds an element, selecting one answer takes ``1.5 + 1500 / n``. Sorting lanes of more
    than one run, and finding answers in the runs, takes as long as `lane_runs.is_faster` says.
    """
    if n * itemsize <= RUN:
        return False
    in_runs = 0.4 * itemsize + n_answers * (0.1 * itemsize + 400 / n)
    return in_runs > n_answers * (1.5 + 1500 / n)


def select(rows: NDArray[Any], ranks: RanksOfLanes, seed: int) -> tuple[Lanes, IntArray]:
    """Find the elements of some ranks in every row of a table; reorders the rows.

    Also returns how many elements were read for each answer of each lane, or -1 if that became so
    many that NumPy selected them instead.

    Every sample is drawn at places that are hashed with the seed, which is below 2**62: without
    knowing it, nobody can arrange data about which a sample says nothing.
    """
    n_valid = np.full(len(rows), rows.shape[1], np.int64)
    if rows.dtype.kind == "f":
        touched = np.flatnonzero(np.isnan(np.max(rows, axis=1)))  # less than counting in all
        n_valid[touched] -= np.count_nonzero(np.isnan(rows[touched]), axis=1)
    wanted = np.stack(ranks_of_each(n_valid, ranks))
    pair = np.zeros(wanted.shape, rows.dtype)
    n_read = np.zeros(wanted.shape[1:], np.int64)
    _select_rows(rows, n_valid, wanted, pair, seed, n_read)
    for i in np.flatnonzero((n_read < 0).any(axis=1)):
        elements = Candidates(rows[i, : n_valid[i]])
        pair[:, i] = elements.elements_at(wanted[:, i])
    return Lanes(pair[0], pair[1], n_valid, rows.shape[1] - n_valid), n_read


@kernel
def _select_rows(
    rows: t.Table,
    n_valid: t.Ints,
    wanted: t.IntStack,
    pair: t.Stack,
    seed: int,
    n_read: t.IntTable,
) -> None:
    """Find the elements of two ranks for each answer; all are (lower or upper, row, answer)."""
    n = rows.shape[1]
    one, other = np.empty(n + 1, rows.dtype), np.empty(n + 1, rows.dtype)
    sample = np.empty(SAMPLED, rows.dtype)
    for i in range(rows.shape[0]):
        row = rows[i]
        if n_valid[i] < n:  # move missing elements behind the valid ones
            size = 0
            for j in range(n):
                value = row[j]
                row[size] = value
                size += not is_missing(value)
        valid = row[: n_valid[i]]
        if valid.size:
            for q in range(n_read.shape[1]):
                pair[0, i, q], pair[1, i, q], n_read[i, q] = _select_pair(
                    valid, wanted[0, i, q], wanted[1, i, q], one, other, sample, seed
                )


@called_by_kernels
def _select_pair(
    x: Any, rank: Any, upper: Any, one: Any, other: Any, sample: Any, seed: Any
) -> Any:
    """Find the elements of two ranks, the second of which is the same as the first or the next.

    Also returns how many elements all sweeps read, or -1 if the search was given up.

    Two elements of a sample, around the place of the rank, divide the elements into those below,
    between and above. A quarter or an eighth of them are between. This is repeated with the part
    that has the rank, until it is small (Floyd & Rivest 1975, with a sample of bounded size).

    If the sample has ties at one of the two, elements equal to them are counted and not gathered:
    they may be half of all elements in every sweep.
    """
    left, k = x, rank
    n_read = 0
    while left.size > FEW_LEFT:
        n = left.size
        n_read += n
        if n_read > MOST_READS * x.size:
            return x[0], x[0], -1
        n_sampled = SAMPLED // 2 if n < 2000 else SAMPLED
        salt = np.int64(hashed(np.uint64(seed + n)) >> np.uint64(2))
        for i in range(n_sampled):
            sample[i] = left[sampled_place(i, n_sampled, n, salt)]
        _insertion_sort(sample, n_sampled)
        place = (k + 0.5) / n * n_sampled
        reach = 1.5 * math.sqrt(place * (1 - place / n_sampled)) + 1
        low = max(np.int64(place - reach), 0)
        high = min(np.int64(place + reach), n_sampled - 1)
        p, r = sample[low], sample[high]
        below, upto = _count_two(left, p, r)
        begin, end = below, upto  # range of ranks between the two, ties with them included
        if _is_tied(sample, n_sampled, low) or _is_tied(sample, n_sampled, high):
            end, begin = _count_two(left, r, p)
        elif below == 0 and upto == n:  # nothing is divided: count the ties of a single element
            p = sample[np.int64(place)]
            r = p
            below, begin = _count_two(left, p, p)
            end, upto = below, begin
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
        elif k < begin or k >= end:
            lower, last = (p, begin) if k < begin else (r, upto)
            return lower, (lower if upper == rank or k + 1 < last else _next(x, lower)), n_read
        elif begin > below:
            for i in range(n):
                one[size] = left[i]
                size += (left[i] > p) & (left[i] < r)
            k -= begin
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
    lower = one[k]
    if upper == rank:
        return lower, lower, n_read
    return lower, (one[k + 1] if k + 1 < left.size else _next(x, lower)), n_read


@called_by_kernels
def _is_tied(ordered: Any, n: Any, i: Any) -> Any:
    """Return whether one of n elements in order equals one of its neighbours."""
    is_as_next = i + 1 < n and ordered[i + 1] == ordered[i]
    return is_as_next or (i > 0 and ordered[i - 1] == ordered[i])


@called_by_kernels
def _count_two(x: Any, p: Any, r: Any) -> Any:
    """Count the elements below p and up to r."""
    below = np.int64(0)
    upto = np.int64(0)
    for i in range(x.size):
        below += x[i] < p
        upto += x[i] <= r
    return below, upto


@called_by_kernels
def _next(x: Any, value: Any) -> Any:
    """Find the least element larger than a value; there must be one."""
    next_ = value
    for i in range(x.size):
        if x[i] > value and (next_ == value or x[i] < next_):
            next_ = x[i]
    return next_


@called_by_kernels
def _insertion_sort(x: Any, n: Any) -> None:
    for i in range(1, n):
        value = x[i]
        j = i
        while j > 0 and x[j - 1] > value:
            x[j] = x[j - 1]
            j -= 1
        x[j] = value
