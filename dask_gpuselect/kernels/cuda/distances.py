"""The nearest rows of CuPy chunks: the host side of ``distances.cu``."""

from __future__ import annotations

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.cuda.launch import Array, advised, launch
from dask_gpuselect.kernels.cuda.source import NEAR_QUERIES, NEAR_ROWS, NEAR_THREADS
from dask_gpuselect.kernels.reference import distances as reference
from dask_gpuselect.kernels.reference.distances import Best, Pairs, Question
from dask_gpuselect.maths.nearest import DOWN, LARGE, SMALL, TINY, UP, Nearest

ROW = np.uint64((1 << 32) - 1)


@advised
def nearest(rows: Array, queries: NDArray[np.float64], k: int, tile_elements: int) -> Nearest:
    """The nearest rows of every query; see `reference.distances.nearest`.

    Reads the rows about once. Scratch on the device: as many candidates as take no more than a tile
    of so many distances. There is no tile, but where there are more candidates than that.
    """
    return reference.nearest(rows, queries, k, tile_elements, _pairs)


def _pairs(tile: Array, best: Best | None, question: Question) -> Pairs | None:
    """The pairs of a query and a row that may be nearer than what is known; all, as long as fewer
    than k are. None if they are too many."""
    n_queries = len(question.queries)
    if best is not None and best.k == question.k:
        codes = _near(tile, reference.limits(best, question), question)
        if codes is None:
            return None
        codes.sort()  # queries, and the rows of each, ascend
    elif n_queries * len(tile) <= question.most_pairs:
        query = cupy.arange(n_queries, dtype=np.uint64)[:, None]
        codes = (query << np.uint64(32) | cupy.arange(len(tile), dtype=np.uint64)).ravel()
    else:
        return None
    level, squared = cupy.empty(codes.size, np.int8), cupy.empty(codes.size)
    if codes.size:
        numbers = (np.int64(codes.size), *map(np.float64, (TINY, UP, DOWN)))
        levels = tuple(map(np.int8, (SMALL, LARGE)))
        told = (cupy.ascontiguousarray(question.queries), codes, *numbers, *levels)
        launch(tile.dtype, "near_keys", NEAR_THREADS, (*_rows(tile), *told, level, squared))
    row = (codes & ROW).astype(np.int64)
    return Pairs((codes >> np.uint64(32)).astype(np.int64), row, level, squared)


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
