"""The nearest rows of CuPy chunks: the host side of ``distances.cu``."""

from __future__ import annotations

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.cuda.launch import Array, advised, launch
from dask_gpuselect.kernels.cuda.source import (
    NEAR_QUERIES,
    NEAR_ROOM,
    NEAR_ROWS,
    NEAR_THREADS,
)
from dask_gpuselect.kernels.reference import distances as reference
from dask_gpuselect.kernels.reference.distances import Best, Question
from dask_gpuselect.maths.nearest import DOWN, LARGE, SMALL, TINY, UP, Nearest

ROW_BITS = np.uint64(32)  # of a pair's code, below the number of its query


@advised
def nearest(rows: Array, queries: NDArray[np.float64], k: int, tile_elements: int) -> Nearest:
    """The nearest rows of every query; see `reference.distances.nearest`.

    Reads the rows about once. Scratch on the device: as many candidates as take no more than a tile
    of so many distances. There is no tile, but where there are more candidates than that.
    """
    return reference.nearest(rows, queries, k, tile_elements, _step)


def _step(tile: Array, start: int, best: Best | None, question: Question) -> Best | None:
    """The nearest of those so far and of a tile; None if too many may be nearer."""
    n_queries, n_known, n = len(question.queries), 0 if best is None else best.k, len(tile)
    if question.k > NEAR_ROOM // 2:
        return None
    if best is not None and n_known == question.k:
        codes = _near(tile, reference.limits(best, question), question)
        if codes is None:
            return None
        codes.sort()
    elif n_queries * n <= question.most_pairs:  # all, as long as fewer than k are known
        query = cupy.arange(n_queries, dtype=np.uint64)[:, None]
        codes = (query << ROW_BITS | cupy.arange(n, dtype=np.uint64)).ravel()
    else:
        return None
    pairs = (codes, *_keys(tile, codes, question))
    return _chosen(pairs, n_queries, start, best, min(question.k, n_known + n))


def _keys(tile: Array, codes: Array, question: Question) -> tuple[Array, Array]:
    """The level and the square of each pair, by which it is compared; see `Nearest`."""
    level, squared = cupy.empty(codes.size, np.int8), cupy.empty(codes.size)
    if codes.size:
        numbers = (np.int64(codes.size), *map(np.float64, (TINY, UP, DOWN)))
        levels = tuple(map(np.int8, (SMALL, LARGE)))
        told = (cupy.ascontiguousarray(question.queries), codes, *numbers, *levels, level, squared)
        launch(tile.dtype, "near_keys", NEAR_THREADS, (*_rows(tile), *told))
    return level, squared


def _chosen(
    pairs: tuple[Array, ...], n_queries: int, start: int, best: Best | None, k: int
) -> Best:
    """The k nearest of those so far and of pairs: their codes, which ascend, levels and squares."""
    shape = n_queries, k
    found = Best(cupy.empty(shape, np.int8), cupy.empty(shape), cupy.empty(shape, np.int64))
    known = found if best is None else best
    n_known = np.int32(0 if best is None else best.k)
    codes, *keys = pairs
    before = map(cupy.ascontiguousarray, (known.level, known.squared, known.index))
    told = (codes, np.int64(codes.size), *keys, np.int64(start), *before, n_known, np.int32(k))
    arguments = (*told, found.level, found.squared, found.index)
    launch(found.squared.dtype, "near_chosen", NEAR_THREADS, arguments, blocks=n_queries)
    return found


def _near(tile: Array, limits: Array, question: Question) -> Array | None:
    """Codes of those whose lower bound is not beyond the limit of their query, in any order."""
    n_queries, n = len(question.queries), len(tile)
    blocks = -(-n // NEAR_ROWS) * -(-n_queries // NEAR_QUERIES)
    most = question.most_pairs
    codes, n_found = cupy.empty(most, np.uint64), cupy.zeros(1, np.uint64)
    pointer, *steps, p = _rows(tile)
    factors = cupy.ascontiguousarray(question.factors[:, :-1].T)
    about = (question.centre, factors, question.squares, limits, np.int32(n_queries))
    share = np.float64(1 - question.slack)
    arguments = (pointer, np.int64(n), *steps, p, *about, share, codes, np.uint64(most), n_found)
    launch(tile.dtype, "near_pairs", NEAR_THREADS, arguments, blocks=blocks)
    found = int(n_found.get()[0])
    return codes[:found] if found <= most else None


def _rows(tile: Array) -> tuple[np.uint64, np.int64, np.int64, np.int32]:
    """Where rows are: the pointer, steps from row to row and from feature to feature in elements,
    and the number of features."""
    row_step, feature_step = (np.int64(stride // tile.itemsize) for stride in tile.strides)
    return np.uint64(tile.data.ptr), row_step, feature_step, np.int32(tile.shape[1])
