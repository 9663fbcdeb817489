"""Lanes that are read in parts, by Numba: the partial result of each part, and how they are merged.

A part is read in tables of lanes that stay in the cache (`lanes.tiles`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.draws import hashed
from dask_gpuselect.kernels.cpu.few import tiles
from dask_gpuselect.kernels.cpu.scalars import first_behind, first_from
from dask_gpuselect.kernels.cpu.spans import count_at, count_missing
from dask_gpuselect.kernels.cpu.tree import RUN
from dask_gpuselect.kernels.reference import lane_passes as reference
from dask_gpuselect.maths import lane_cuts
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    LaneTally,
    RanksOfLanes,
    as_rows,
    table_tiles,
)
from dask_gpuselect.maths.lane_cuts import merge_tallies as merge_tallies


@until_compiled(reference.cuts)
def cuts(parts: Sequence[Any], brackets: Any | None, m: int) -> Any:
    """Measure the cuts of every lane at `m` ranks; see `reference.lane_passes.cuts`."""
    if _are_numbers_alone(parts):
        return reference.in_turn(partial(_cuts_of_rows, m=m), tiles(parts), brackets)
    return reference.cuts(parts, brackets, m)


@until_compiled(reference.tally)
def tally(parts: Sequence[Any], brackets: Any) -> Any:
    """Tally every lane at its brackets, with candidates; see `reference.lane_passes.tally`."""
    if _are_numbers_alone(parts):
        return reference.in_turn(_tally_of_rows, tiles(parts), brackets)
    return reference.tally(parts, brackets)


def _are_numbers_alone(parts: Sequence[Any]) -> bool:
    """Return whether the elements are numbers without masks and weights."""
    return isinstance(parts[0], np.ndarray) and parts[0].dtype.kind not in "Mm"


def _cuts_of_rows(rows: NDArray[Any], brackets: LaneBrackets | None, m: int) -> LaneCuts:
    """Measure the cuts of lanes that are not sorted yet."""
    ordered = _sorted(rows)
    n_questions = brackets.low.shape[1] if brackets else 1
    pivots = np.empty((len(rows), n_questions, m), ordered.dtype)
    counts = np.zeros((2, len(rows), n_questions), np.int64)
    n_valid = np.empty(len(rows), np.int64)
    _cut_rows(ordered, _ends_of(brackets, ordered.dtype), pivots, counts, n_valid)
    pivots, (n_inside, n_before) = pivots.astype(rows.dtype, copy=False), counts
    return LaneCuts(pivots, pivots, n_inside, n_before, n_valid, rows.shape[1] - n_valid)


def _sorted(rows: NDArray[Any]) -> NDArray[Any]:
    """Sort rows in their own memory; return integers of one and two bytes as int32.

    Without AVX-512, NumPy sorts int32 in a quarter of the time of narrower ones. Long lanes are
    sorted too: counting them at the pivots of a sample, as `cpu.cuts` does, takes as long.
    """
    ordered = rows.astype(np.int32) if rows.dtype.kind in "iu" and rows.itemsize < 4 else rows
    ordered.sort(axis=1)
    return ordered


def _ends_of(brackets: LaneBrackets | None, dtype: np.dtype[Any]) -> tuple[NDArray[Any], ...]:
    """Return the lower and upper ends of brackets for kernels, without rows if there are none."""
    none = np.empty((0, 1), dtype)
    ends = (brackets.low, brackets.high) if brackets else (none, none)
    return tuple(np.ascontiguousarray(end, dtype) for end in ends)


def _tally_of_rows(rows: NDArray[Any], brackets: LaneBrackets) -> LaneTally:
    """Tally lanes that need not be sorted; their candidates are in the order of their lane."""
    counts = np.zeros((4, *brackets.low.shape), np.int64)
    n_missing = np.zeros(len(rows), np.int64)
    ends = _ends_of(brackets, rows.dtype)
    _count_rows(rows, ends, counts, n_missing)
    below, n_before, n_inside, upto = counts
    candidates = np.empty(int(n_inside.sum()), rows.dtype)
    _gather_rows(rows, ends, n_inside, candidates)
    n_valid = rows.shape[1] - n_missing
    return LaneTally(below, n_before, n_inside, upto, candidates, n_valid, n_missing)


def find_lane_brackets(parts: Sequence[LaneCuts], ranks: RanksOfLanes) -> LaneBrackets:
    """Find the brackets of some ranks; see `lane_cuts.find_lane_brackets`."""
    return lane_cuts.find_lane_brackets(parts, ranks, bracketed)


@until_compiled(lane_cuts.bracketed)
def bracketed(
    parts: Sequence[Any], lower: IntArray, upper: IntArray
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Find the bounds that the pivots of all parts prove for some ranks; see `lane_cuts.bracketed`.

    It searches the pivots, which are in order in each part, and does not sort all of them. For one
    rank among ten parts of 28 pivots, that takes a fiftieth of the time.
    """
    k = lower.shape[-1]
    shape = (*parts[0].n_inside.shape, k)
    dtype = parts[0].low.dtype
    plain = np.dtype("i8") if dtype.kind in "Mm" else dtype
    tables = [[as_rows(getattr(part, end)) for part in parts] for end in ("low", "high")]
    sizes = np.stack([part.n_inside.reshape(-1) for part in parts], axis=1)
    wanted = [np.ascontiguousarray(as_rows(each)) for each in (lower, upper)]
    bounds = np.empty((2, len(sizes), k), dtype)
    widths = [table.shape[1] for table in tables[0]]
    stops = np.cumsum(widths)
    are_known = all(part.low is part.high for part in parts)  # one table for both ends
    for rows in table_tiles(len(sizes), int(stops[-1])):
        pivots = np.concatenate([table[rows] for table in tables[0]], axis=1)
        for end in range(2):
            if end and not are_known:
                pivots = np.concatenate([table[rows] for table in tables[1]], axis=1)
            about = stops, sizes[rows], wanted[end][rows], end == 1
            _find_pivots(pivots.view(plain), *about, bounds[end, rows].view(plain))
    return bounds[0].reshape(shape), bounds[1].reshape(shape)


# --- A part ---------------------------------------------------------------------------------------


Ends = tuple[t.Rows, t.Rows]


@kernel
def _cut_rows(
    rows: t.Table, ends: Ends, pivots: t.Stack, counts: t.IntStack, n_valid: t.Ints
) -> None:
    """Take the elements of sorted rows at even ranks: inside the brackets if given, else of all."""
    low, high = ends
    m = pivots.shape[2]
    for i in range(rows.shape[0]):
        row = rows[i]
        n = row.size
        if n and row[n - 1] != row[n - 1]:  # NaN is last
            n = first_behind(row, 0, n, np.inf)
        n_valid[i] = n
        for q in range(pivots.shape[1]):
            begin, size = 0, n
            if low.shape[0]:
                begin = first_behind(row, 0, n, low[i, q])
                size = max(first_from(row, 0, n, high[i, q]) - begin, 0)
            counts[0, i, q], counts[1, i, q] = size, begin
            if row.size:
                for j in range(m):
                    pivots[i, q, j] = row[min(begin + _rank(j, m, max(size, 1)), row.size - 1)]


@kernel
def _count_rows(rows: t.Table, ends: Ends, counts: t.IntStack, n_missing: t.Ints) -> None:
    """Count the elements below and up to the lower end, inside, up to the upper end; and NaN."""
    low, high = ends
    n = rows.shape[1]
    for i in range(rows.shape[0]):
        for start in range(0, n, RUN):
            run = rows[i, start : min(start + RUN, n)]
            n_missing[i] += count_missing(run)
            for q in range(low.shape[1]):
                below, before = count_at(run, low[i, q])
                until, upto = count_at(run, high[i, q])
                counts[0, i, q] += below
                counts[1, i, q] += before
                if low[i, q] == low[i, q]:  # nothing is above NaN
                    counts[2, i, q] += max(until - before, 0)
                counts[3, i, q] += upto


@kernel
def _gather_rows(rows: t.Table, ends: Ends, n_inside: t.IntRows, out: t.Out) -> None:
    """Gather the elements inside each bracket, one bracket after the other."""
    low, high = ends
    begin = 0
    for i in range(rows.shape[0]):
        for q in range(low.shape[1]):
            stop = begin + n_inside[i, q]
            first, last = low[i, q], high[i, q]
            j = 0
            while begin < stop:  # the last candidate ends the loop
                value = rows[i, j]
                out[begin] = value
                begin += (value > first) & (value < last)
                j += 1


# --- All parts ------------------------------------------------------------------------------------


@called_by_kernels
def _rank(j: Any, m: Any, size: Any) -> Any:
    """Return the j-th of m even ranks."""
    return j * (size - 1) // max(m - 1, 1)


@called_by_kernels
def _place_left(first: Any, last: Any, share: Any, n_left: Any, step: Any) -> Any:
    """Choose a place among those that are left of some part, in one of two ways by turns.

    At even steps it is in the part with most places left, where the wanted rank would be if the
    part is like the others. At odd steps it is pseudo-random, so that the search is short whatever
    the data.
    """
    if step % 2:
        left = np.int64(hashed(np.uint64(step)) >> np.uint64(33)) % n_left
        p = 0
        while left >= last[p] - first[p]:
            left -= last[p] - first[p]
            p += 1
        return first[p] + left
    widest = 0
    for p in range(1, first.size):
        if last[p] - first[p] > last[widest] - first[widest]:
            widest = p
    width = last[widest] - first[widest]
    return first[widest] + min(max(np.int64(share * width), 0), width - 1)


@kernel
def _find_pivots(
    pivots: t.Rows,
    stops: t.Places,
    sizes: t.IntRows,
    wanted: t.IntRows,
    is_upper: bool,
    bounds: t.Table,
) -> None:
    """Find the pivot in each row that bounds the element of a wanted rank.

    For the upper end of a bracket, this is the smallest pivot for which at least ``wanted + 1``
    elements are proven to be up to it; for the lower end, the largest pivot for which at most
    `wanted` elements can be below it.

    At most t elements of a part are below its pivot of rank t, and so below any smaller value;
    beyond the last pivot, that may be all of them. At least t + 1 are up to it, and up to any
    larger value.
    """
    n_parts = stops.size
    first, last = np.empty(n_parts, np.int64), np.empty(n_parts, np.int64)
    at = np.empty(n_parts, np.int64)
    for i in range(pivots.shape[0]):
        row = pivots[i]
        for k in range(wanted.shape[1]):
            best = row[row.size - 1] if is_upper else row[0]
            n_left, step = 0, 0
            least, most = 0, 0  # bounds of the number found so far
            for p in range(n_parts):
                most += sizes[i, p]
                start = stops[p - 1] if p else 0
                first[p] = start
                last[p] = stops[p] if sizes[i, p] else start
                n_left += last[p] - first[p]
            while n_left:
                share = (wanted[i, k] + 0.5 - least) / max(most - least, 1)
                value = row[_place_left(first, last, share, n_left, step)]
                step += 1
                number = 0
                for p in range(n_parts):
                    start = stops[p - 1] if p else 0
                    if is_upper:
                        at[p] = first_behind(row, first[p], last[p], value)
                        if at[p] > start:
                            number += _rank(at[p] - 1 - start, stops[p] - start, sizes[i, p]) + 1
                    else:
                        at[p] = first_from(row, first[p], last[p], value)
                        if at[p] < stops[p] and sizes[i, p]:
                            number += _rank(at[p] - start, stops[p] - start, sizes[i, p])
                        else:
                            number += sizes[i, p]
                is_low = number <= wanted[i, k]
                if is_low:
                    least = number
                else:
                    most = number
                if is_low != is_upper:
                    best = value
                n_left = 0
                for p in range(n_parts):
                    if not is_low:
                        last[p] = first_from(row, first[p], at[p], value) if is_upper else at[p]
                    else:
                        first[p] = at[p] if is_upper else first_behind(row, at[p], last[p], value)
                    n_left += last[p] - first[p]
            bounds[i, k] = best
