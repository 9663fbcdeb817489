"""Counts of every value of elements of one or two bytes. Partial results are on the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dask_gpuselect.arrays import is_cupy, namespace, usual
from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn, as_codes, unpaired, words_of
from dask_gpuselect.kernels.compiling import one_way
from dask_gpuselect.kernels.reference.at_once import rows_of_lanes
from dask_gpuselect.kernels.registry import backend_for, of
from dask_gpuselect.kernels.stretches import group_codes
from dask_gpuselect.maths.lane_cuts import join
from dask_gpuselect.maths.value_counts import ValueCounts


@one_way
def value_counts(chunk: Any, dtype: np.dtype[Any]) -> ValueCounts:
    """Count every value in a chunk of any shape, of a countable dtype, as in a single lane."""
    bound = of(chunk, dtype)
    counts = bound.selection.value_counts(bound.chunk, dtype)
    return _with_left_out(counts, bound.size)


@one_way
def lane_value_counts(column: ChunkColumn, known: None = None) -> ValueCounts:
    """Count every value in every lane of a column of chunks of a countable dtype.

    Scratch: a copy of one chunk if the elements of a lane are not contiguous.
    """
    chunks, dtype, axes = column
    return ValueCounts.merge([_counts_of_chunk(chunk, dtype, axes) for chunk in chunks])


def _counts_of_chunk(chunk: Any, dtype: np.dtype[Any], axes: tuple[int, ...]) -> ValueCounts:
    values, keeps = unpaired(chunk)
    rows = rows_of_lanes(values, axes)
    keeps = None if keeps is None else rows_of_lanes(keeps, axes)
    n_words = 1 << 8 * dtype.itemsize
    if is_cupy(values):
        table = backend_for(values).groups.lane_counts(words_of(rows, dtype), keeps, n_words)
        if table is not None:
            n_left_out = rows.shape[1] - table.sum(axis=1)
            return ValueCounts.of_words(table, dtype, n_left_out)
    each = [ValueCounts.of_words(np.zeros((0, n_words), np.int64), dtype)]
    kernel = backend_for(values).selection.value_counts
    for i in range(rows.shape[0]):
        lane = rows[i, ...]
        each.append(kernel(lane if keeps is None else Accompanied(lane, keeps[i, ...]), dtype))
    return _with_left_out(join(each), rows.shape[1])


def _with_left_out(counts: ValueCounts, n: int) -> ValueCounts:
    """Count the elements that are left out, of `n` in each lane."""
    return replace(counts, n_left_out=n - counts.n_valid - counts.n_missing)


@one_way
def group_value_counts(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], n_groups: int
) -> ValueCounts:
    """Count every value in every group of all chunks together, of a countable dtype, on the host.

    Labels are numbers of groups, -1 for none. Scratch: the codes of one chunk, and 8 bytes for each
    possible value of each group.
    """
    kernel = backend_for(usual(chunks[0].values)).groups.value_counts

    def parts() -> Iterator[tuple[Any, Any]]:
        for chunk in chunks:
            words = words_of(usual(chunk.values), dtype)
            yield words.reshape(-1), as_codes(group_codes(chunk), words)

    def left_out() -> Iterator[tuple[Any, Any]]:
        """Yield the masked elements as words that are all equal, with their codes."""
        for chunk in chunks:
            if chunk.keeps is not None:
                others = namespace(chunk.keeps).logical_not(chunk.keeps)
                codes = group_codes(replace(chunk, keeps=others))
                codes = as_codes(codes, usual(chunk.values))
                yield namespace(codes).zeros(codes.shape, dtype=np.uint8), codes

    table = kernel(parts(), n_groups, 1 << 8 * dtype.itemsize)
    return ValueCounts.of_words(table, dtype, kernel(left_out(), n_groups, 1)[:, 0])
