"""Means of lanes without their least and largest elements, compiled by Numba."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn
from dask_gpuselect.kernels.compiling import kernel_of, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.few import lay, tiles
from dask_gpuselect.kernels.cpu.lane_ends import mean_of
from dask_gpuselect.kernels.cpu.lanes import left_out_of, parts_of, put_masked
from dask_gpuselect.kernels.cpu.pairs import added, normal, two_product, two_sum
from dask_gpuselect.maths import exact_sums
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.exact_sums import product
from dask_gpuselect.maths.trimmed import TrimmedLanes, end_of, narrowed
from dask_gpuselect.quiet import quiet

BATCH = 64  # lanes whose elements are added side by side, by vector instructions


def trimmed_lanes(
    column: ChunkColumn, cuts: Any, proportion: float, answer: np.dtype[Any]
) -> TrimmedLanes | None:
    """Average the elements of every lane between its cuts; see `reference.lanes.trimmed_lanes`.

    Scratch: a tile of lanes, and the result.
    """
    parts = parts_of(column)
    first, n_lanes = parts[0], cuts.shape[1]
    is_masked = isinstance(first, Accompanied)
    if first.dtype.str[1:] in ("i8", "u8") or not column.size:
        return None
    dtype, put = first.dtype, put_masked if is_masked else lay
    if is_masked and dtype.kind != "f":  # floats have NaN for masked elements
        dtype, put = np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64), _put_as_floats
    pairs, n_valid = np.empty((2, n_lanes)), np.empty(n_lanes, np.int64)
    is_sure, start = np.empty(n_lanes, np.bool_), 0
    for table in tiles(parts, put, are_columns=True, dtype=dtype):
        some = slice(start, start + table.shape[1])
        own = np.ascontiguousarray(cuts[:, some], np.float64)
        pairs[:, some], n_valid[some], is_sure[some] = _trimmed(table, own, proportion)
        start = some.stop
    n_left_out = np.zeros(n_lanes, np.int64)
    for part in parts if is_masked else ():
        n_left_out += left_out_of(part)
    is_finite = np.isfinite(cuts).all(axis=0)
    means = np.where(is_finite, narrowed(pairs[0], pairs[1], answer), end_of(cuts, answer))
    return TrimmedLanes(means, is_sure | ~is_finite, n_valid, n_left_out)


def _put_as_floats(tile: NDArray[Any], part: Accompanied) -> None:
    """Write integers into a tile of floats, and NaN for masked ones."""
    lay(tile, part.values)
    if part.keeps is not None:
        np.copyto(tile, np.nan, where=~part.keeps)


Trimmed = tuple[NDArray[np.float64], IntArray, NDArray[np.bool_]]


@quiet()
def _trimmed_by_numpy(table: NDArray[Any], cuts: NDArray[Any], proportion: float) -> Trimmed:
    """Average the columns of a table between cuts; see `_trim`."""
    total, rest, off = np.zeros((3, table.shape[1]))
    n_valid = np.count_nonzero(table == table, axis=0)
    n_cut = np.floor(proportion * n_valid)
    within = (np.clip(np.float64(row), *cuts) for row in table)
    rows = itertools.chain(within, *(product(-n_cut, cut) for cut in cuts))
    for row in rows:
        total, more = exact_sums.two_sum(total, np.where(row == row, row, 0))
        rest, lost = exact_sums.two_sum(rest, more)
        off += np.abs(lost)
    total, rest = exact_sums.two_sum(total, rest)
    n = n_valid - 2 * n_cut
    mean = total / n
    for _ in range(2):  # the second time the mean is as precise as it can be
        whole, more = product(mean, n)
        left, lost = exact_sums.two_sum(total - whole, -more)
        left, less = exact_sums.two_sum(left, rest)
        left += lost + less
        mean = mean + left / n
    error = off + 2.0**-100 * np.abs(total) * (left != 0)
    is_sure = (mean + (left - error) / n == mean) & (mean + (left + error) / n == mean)
    return np.stack([mean, left]), n_valid, is_sure & ((np.abs(left) > error) | (error == 0))


@until_compiled(_trimmed_by_numpy)
def _trimmed(table: NDArray[Any], cuts: NDArray[Any], proportion: float) -> Trimmed:
    pairs, n_valid = np.empty((2, table.shape[1])), np.empty(table.shape[1], np.int64)
    is_sure = np.empty(table.shape[1], np.bool_)
    _trim(table, cuts, proportion, (pairs, n_valid, is_sure))
    return pairs, n_valid, is_sure


@kernel_of("f8 f4 i4 u4 i2 u2 i1 u1")
def _trim(
    table: t.Rows,
    cuts: t.RealRows,
    proportion: float,
    results: tuple[t.FloatTable, t.Ints, t.FlagsOut],
) -> None:
    """Average the columns of a table between cuts; see `TrimmedLanes`."""
    pairs, n_valid, is_sure = results
    sums, bounds = np.empty((3, BATCH), np.float64), np.empty((2, BATCH), np.float64)
    valid = np.empty(BATCH, np.int64)
    for first in range(0, table.shape[1], BATCH):
        n_lanes = min(BATCH, table.shape[1] - first)
        sums[:], valid[:] = 0.0, 0
        bounds[:, :n_lanes] = cuts[:, first : first + n_lanes]
        for j in range(table.shape[0]):
            row = table[j, first : first + n_lanes]
            for k in range(n_lanes):
                number = np.float64(row[k])
                is_some = number == number
                inner = min(max(number, bounds[0, k]), bounds[1, k])
                valid[k] += is_some
                sums[0, k], sums[1, k], sums[2, k] = added(
                    sums[0, k], sums[1, k], sums[2, k], inner if is_some else 0.0
                )
        for k in range(n_lanes):
            total, rest, off = sums[0, k], sums[1, k], sums[2, k]
            n_cut = np.floor(proportion * valid[k])
            for cut in range(2):
                product, more = two_product(-n_cut, bounds[cut, k])
                total, rest, off = added(total, rest, off, product)
                total, rest, off = added(total, rest, off, more)
            total, rest = normal(total, rest)
            n, size = valid[k] - 2 * n_cut, max(abs(bounds[0, k]), abs(bounds[1, k]))
            _, mean, is_one = mean_of((total, rest, off), (n, 0.0, 0.0), size)
            # What is left of the sum has the sign of what is left of the mean.
            product, more = two_product(mean, n)
            left, lost = two_sum(total - product, -more)
            left, less = two_sum(left, rest)
            left += lost + less
            pairs[0, first + k], pairs[1, first + k], n_valid[first + k] = mean, left, valid[k]
            is_sure[first + k] = is_one and (off == 0 or abs(left) > 2 * off)
