"""Lanes sorted in short runs, and order statistics of the runs of a lane, compiled by Numba.

NumPy sorts up to some hundred elements by networks of vector instructions, five times as fast as a
thousand. A few order statistics of a lane then follow from the runs by binary searches.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import (
    called_by_kernels,
    kernel,
    kernel_of,
    until_compiled,
)
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.scalars import first_behind
from dask_gpuselect.maths.cuts import Arrays, IntArray
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes, ranks_of_each
from dask_gpuselect.maths.sorted_lanes import SortedLanes, pick

RUN = 1 << 11
"""Bytes of a run. NumPy sorts so many by networks alone with AVX-512: float32 in 1.2 ns an element
of 500 and 6.7 of 1,095, float64 in 2.3 of 200 and 7.0 of 365."""

NEAR = 8  # elements before the wanted one from which on runs are merged
SURE = 6  # rounds after which a window is halved, whatever its elements


@dataclass(frozen=True, eq=False)
class LaneRuns(Arrays):
    """Lanes in the rows of a table, sorted in runs.

    Parameters
    ----------
    values : ndarray, shape (n_lanes, n)
        Elements; those of each run ascend, with NaN last.
    length : int
        Length of all runs but the last, which may be shorter.
    n_valid : ndarray of int64, shape (n_lanes, n_runs)
        Number of valid elements of each run, which are its first.
    n_left_out : ndarray of int64, shape (n_lanes,)
        Number of masked elements, which are among the NaN.
    """

    values: NDArray[Any]
    length: int
    n_valid: IntArray
    n_left_out: IntArray

    @classmethod
    def of_rows(cls, rows: NDArray[Any], n_left_out: IntArray | None = None) -> Self:
        """Sort the rows of a table in runs, in place."""
        n_lanes, n = rows.shape
        n_runs = max(-(-n * rows.dtype.itemsize // RUN), 1)
        length = max(-(-n // n_runs), 1)
        n_valid = np.empty((n_lanes, -(-n // length)), np.int64)
        for i, start in enumerate(range(0, n, length)):
            run = rows[:, start : start + length]
            run.sort(axis=-1)
            n_valid[:, i] = SortedLanes.of_rows(run).n_valid
        if n_left_out is None:
            n_left_out = np.zeros(n_lanes, np.int64)
        return cls(rows, length, n_valid, n_left_out)

    @property
    def n_missing(self) -> IntArray:
        answer: IntArray = self.values.shape[1] - self.n_valid.sum(axis=1) - self.n_left_out
        return answer

    def whole(self, some: IntArray | slice = slice(None)) -> SortedLanes:
        """Return a table of some lanes, sorted."""
        values, n_left_out = np.sort(self.values[some], axis=-1), self.n_left_out[some]
        return SortedLanes.of_rows(values, n_left_out)


# Nanoseconds that measuring takes, as a rule, and the most that runs save by element.
MEASURING, BEST = 1e7, 11.0

_waiting: Counter[int] = Counter()
"""Nanoseconds that runs would have saved at best while that was not measured, by itemsize."""


def is_faster(n: int, itemsize: int, n_answers: int, n_lanes: int) -> bool:
    """Return whether runs of lanes of n elements are answered faster than whole lanes are sorted.

    With r runs, each answer takes about ``200 * (r + 1)`` nanoseconds: 90 to 180 if kernels are
    compiled for AVX-512, 120 to 250 for AVX2, 130 to 280 for any x86-64. Sorting is measured once
    all lanes so far, `n_lanes` here, may have lost as much time as that takes.
    """
    n_runs = n * itemsize / RUN
    if n_runs <= 1:
        return False
    of_four = (math.log2(n_runs) + 0.7) / 2.7
    cost = n_answers * 200 * (n_runs + 1) / n
    if _waiting[itemsize] < MEASURING:
        _waiting[itemsize] += max(int((BEST * of_four - cost) * n * n_lanes), 0)
        if _waiting[itemsize] < MEASURING:
            return False
    return cost < _saved(itemsize) * of_four


@cache
def _saved(itemsize: int) -> float:
    """Measure how much longer sorting lanes of four runs takes than their runs, in ns an element.

    That takes some milliseconds. Machines differ: 7 for float32 and 11 for float64 on an AMD EPYC
    with AVX-512; 0.4 and 0.7 with AVX2, which sorts long lanes two to four times as fast there.
    """
    dtype = np.dtype(f"f{min(max(itemsize, 4), 8)}")
    n = 4 * RUN // dtype.itemsize
    rows = (np.arange(32 * n) * 0.6180339887 % 1).astype(dtype)
    seconds = [math.inf, math.inf]
    for _ in range(3):
        for i, length in enumerate((n, n // 4)):
            table = rows.copy().reshape(-1, length)
            begin = time.perf_counter()
            table.sort(axis=-1)
            seconds[i] = min(seconds[i], time.perf_counter() - begin)
    return (seconds[0] - seconds[1]) / rows.size * 1e9


def _pick_by_numpy(runs: LaneRuns, ranks: RanksOfLanes) -> Lanes:
    return pick(runs.whole(), ranks)


@until_compiled(_pick_by_numpy)
def pick_from_runs(runs: LaneRuns, ranks: RanksOfLanes) -> Lanes:
    """Find the elements of some ranks in every lane."""
    n_valid = runs.n_valid.sum(axis=1)
    wanted = np.stack(ranks_of_each(n_valid, ranks))
    pair = np.zeros(wanted.shape, runs.values.dtype)
    _pick_from_runs(runs.values, runs.length, runs.n_valid, wanted, pair)
    return Lanes(pair[0], pair[1], n_valid, runs.n_missing)


@kernel
def _pick_from_runs(
    rows: t.Rows, length: int, n_valid: t.IntTable, wanted: t.IntStack, pair: t.Stack
) -> None:
    """Find the elements of two ranks for each answer; all are (lower or upper, row, answer)."""
    windows = np.empty((3, n_valid.shape[1]), np.int64)
    for i in range(rows.shape[0]):
        for q in range(wanted.shape[2]):
            ranks = wanted[0, i, q], wanted[1, i, q]
            pair[0, i, q], pair[1, i, q] = _pick_pair(rows[i], length, n_valid[i], ranks, windows)


@called_by_kernels
def _pick_pair(row: Any, length: Any, n_valid: Any, ranks: Any, windows: Any) -> Any:
    """Find the elements of two ranks, the second of which is the same as the first or the next.

    A window of each run may hold the first one. The element at its place in the longest window
    divides all windows. When few elements are before the first one, the runs are merged.
    """
    begin, end, place = windows
    left, inside = ranks[0], 0
    for r in range(n_valid.size):
        begin[r] = r * length
        end[r] = begin[r] + n_valid[r]
        inside += n_valid[r]
    if inside == 0:
        return row[0], row[0]
    is_next = ranks[1] > ranks[0]
    n_rounds = 0
    while left > NEAR:
        longest, size = 0, np.int64(-1)
        for r in range(n_valid.size):
            if end[r] - begin[r] > size:
                longest, size = r, end[r] - begin[r]
        at = left * size // inside if n_rounds < SURE else size // 2
        n_rounds += 1
        pivot = row[begin[longest] + at]
        below = 0
        for r in range(n_valid.size):
            place[r] = _search(row, begin[r], end[r], pivot)
            below += place[r] - begin[r]
        if below > left:
            end, place, inside = place, end, below
            continue
        if below == 0:  # the pivot is the least of all: its ties come first
            for r in range(n_valid.size):
                place[r] = first_behind(row, begin[r], end[r], pivot)
                below += place[r] - begin[r]
            if left + is_next < below:
                return pivot, pivot
            if left < below:
                return pivot, _least(row, length, n_valid, place)[0]
        begin, place = place, begin
        left -= below
        inside -= below
    lower, r = _least(row, length, n_valid, begin)
    for _ in range(left):
        begin[r] += 1
        lower, r = _least(row, length, n_valid, begin)
    if not is_next:
        return lower, lower
    begin[r] += 1
    return lower, _least(row, length, n_valid, begin)[0]


@called_by_kernels
def _least(row: Any, length: Any, n_valid: Any, begin: Any) -> Any:
    """Return the least element from some places of the runs on, and its run."""
    run, least = -1, row[0]
    for r in range(n_valid.size):
        if begin[r] < r * length + n_valid[r] and (run < 0 or row[begin[r]] < least):
            run, least = r, row[begin[r]]
    return least, run


@called_by_kernels
def _search(row: Any, start: Any, stop: Any, value: Any) -> Any:
    """Find the first place as `first_from` does, without branches that depend on elements."""
    size = stop - start
    while size > 0:
        half = (size + 1) >> 1
        start += half if row[np.uint64(start + half - 1)] < value else 0
        size -= half
    return start


# --- Distances ------------------------------------------------------------------------------------


def pick_nearest(lanes: SortedLanes, centres: NDArray[Any], ranks: RanksOfLanes) -> Lanes:
    """Find the distances of some ranks from the centre of every lane; any if that is not finite.

    Their dtype is that of the centres, float32 or float64. The kernel has to be compiled.
    """
    rows = np.ascontiguousarray(lanes.values, centres.dtype)
    wanted = np.stack(ranks_of_each(lanes.n_valid, ranks))
    lower, upper = pair = np.zeros(wanted.shape, rows.dtype)
    _pick_nearest(rows, lanes.n_valid, centres, wanted, pair)
    return Lanes(lower, upper, lanes.n_valid, lanes.n_missing)


@kernel_of("f8 f4")
def _pick_nearest(
    rows: t.Rows, n_valid: t.StridedInts, centres: t.Values, wanted: t.IntStack, pair: t.Stack
) -> None:
    """Find the distances of two ranks for each answer.

    The nearest elements are neighbours in a sorted row. A search finds the first of them: of the
    element before it and the last of them, the former is farther away.
    """
    for i in range(rows.shape[0]):
        row, centre = rows[i], centres[i]
        if n_valid[i] == 0 or not np.isfinite(centre):
            continue
        for q in range(wanted.shape[2]):
            for end in range(2):
                rank = wanted[end, i, q]
                if end and rank == wanted[0, i, q]:
                    pair[1, i, q] = pair[0, i, q]
                    continue
                first, stop = np.int64(0), n_valid[i] - 1 - rank
                while first < stop:
                    middle = (first + stop) // 2
                    is_near = centre - row[middle] <= row[middle + rank + 1] - centre
                    first = first if is_near else middle + 1
                    stop = middle if is_near else stop
                pair[end, i, q] = max(abs(row[first] - centre), abs(row[first + rank] - centre))
