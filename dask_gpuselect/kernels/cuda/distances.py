"""The nearest rows of CuPy chunks: the host side of ``distances.cu``."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import to_host
from dask_gpuselect.kernels.cuda.launch import Array, launch
from dask_gpuselect.kernels.cuda.source import NEAR_QUERIES, NEAR_ROOM, NEAR_ROWS
from dask_gpuselect.kernels.reference import distances as reference
from dask_gpuselect.kernels.reference.distances import FEW_ROWS, MOST_GROWTH, WIDER, Queries
from dask_gpuselect.maths.nearest import DOWN, LARGE, SMALL, TINY, UP, Nearest

FLOAT = np.dtype(np.float64)
MOST_TILE = 1 << 31  # rows of a tile: their numbers have 32 bits


@dataclass(frozen=True)
class DeviceNearest(Nearest):
    """The nearest rows of every query, on a device."""

    @property
    def distances(self) -> Array:
        out = cupy.empty(self.squared.shape)
        if out.size:
            launch(FLOAT, "near_distances", self.level, self.squared, out.size, UP, DOWN, out)
        return out


def nearest(rows: Array, queries: NDArray[np.float64], k: int, tile_elements: int) -> Nearest:
    """Find the nearest rows of every query; see `reference.distances.nearest`.

    Reads the rows about once. Scratch on the device: the rows that may be near, less than two tiles
    of `tile_elements` distances. Distances of whole tiles are computed only where there are more
    such rows.
    """
    return nearest_in_place(rows, queries, k, tile_elements).on_host()


def nearest_in_place(rows: Array, queries: Any, k: int, tile_elements: int) -> DeviceNearest:
    """Find the nearest rows of queries on any device; the answer stays on the device."""
    if not isinstance(queries, cupy.ndarray):
        queries = to_host(queries).astype(np.float64, copy=False)
    queries = cupy.ascontiguousarray(cupy.asarray(queries, FLOAT))
    best = reference.best_of(rows, queries, k, tile_elements, _ahead)
    return DeviceNearest(**vars(best))


# --- Tile after tile ------------------------------------------------------------------------------


def plan_for(start: int, n: int, question: Queries) -> tuple[list[int], int] | None:
    """Divide the rows from a place on into tiles; None if there is too little memory for them.

    Returns the first row of each tile and the end of the last one, and the capacity for rows of a
    tile that may be near to a query.
    """
    n_queries, k = len(question.queries), question.k
    first = max(FEW_ROWS, k)
    most = question.tile_elements // n_queries  # rows; 4 bytes each for each query
    if most < first or k > NEAR_ROOM // 2:
        return None
    # A tile that has g times as many rows as came before should have about g * k near ones. That
    # number varies like a sum of k waiting times: it exceeds g * spread for one query in 1e7.
    spread = k + 8 * math.isqrt(k) + 16
    growth = max(1, min(most // spread, MOST_GROWTH))
    bounds = [start]
    while bounds[-1] < n:
        size = max(growth * bounds[-1], first)
        bounds.append(min(n, bounds[-1] + min(size, MOST_TILE)))
    room = max(first, growth * spread, question.most_pairs // n_queries)
    return bounds, min(room, most, max(first, n - start))


def _ahead(
    rows: Array, start: int, best: Nearest | None, question: Queries
) -> tuple[Nearest | None, int]:
    """Find the nearest among those so far and the rows from a place on, tile by tile.

    Stops at the first tile that may have too many near rows for a query. Returns the nearest rows,
    and the place where that tile begins.

    All kernels are started without waiting. The device notes which tile failed, and skips those
    after it; the host waits only for this number.
    """
    n, k = len(rows), question.k
    plan = plan_for(start, n, question)
    if plan is None or (best is not None and best.k < k):
        return best, start
    bounds, room = plan
    tiles = _Tiles(question, room, best)
    for number, (first, stop) in enumerate(itertools.pairwise(bounds), 1):
        tiles.start_tile(rows[first:stop, :], first, number)
    failed = int(tiles.failed.get()[0])
    return tiles.best, bounds[failed - 1] if failed else n


class _Tiles:
    """Search of one tile after the other on the device.

    Parameters
    ----------
    question : Queries
        The queries.
    room : int
        Capacity as in `plan_for`.
    best : Nearest, optional
        The nearest rows so far, as many as are wanted.
    """

    def __init__(self, question: Queries, room: int, best: Nearest | None) -> None:
        self.question, self.room = question, room
        (n_queries, p), k = question.queries.shape, question.k
        counters = cupy.zeros(1 + n_queries, np.uint32)
        self.failed, self.n_near = counters[:1], counters[1:]
        self.near = cupy.empty((n_queries, room), np.uint32)
        # By CuPy's own kernels, 50 queries of 20,000 rows take 0.43 ms in all and not 0.3.
        self.factors, self.squares = cupy.empty((p, n_queries)), cupy.empty(n_queries)
        if best is None:
            shape = n_queries, k
            self.best = Nearest(
                cupy.empty(shape, np.int8), cupy.empty(shape), cupy.empty(shape, "i8")
            )
            self.limits = cupy.empty(n_queries)
        else:
            arrays = best.level, best.squared, best.index
            self.best = Nearest(*map(cupy.ascontiguousarray, arrays))
            self.limits = reference.limits(best, question)
        given = question.queries, n_queries, p, question.centre
        launch(FLOAT, "near_queries", *given, self.factors, self.squares)

    def start_tile(self, tile: Array, start: int, number: int) -> None:
        """Start the kernels for one tile, whose rows begin at a place.

        All rows of the first tile are compared; after it, as many rows are known as are wanted.
        """
        question, n, best = self.question, len(tile), self.best
        n_queries = len(question.queries)
        pointer, *steps = _rows(tile)
        share, near = 1 - question.slack, self.near if start else None
        if start:
            about = (self.factors, self.squares, self.limits, n_queries, share)
            outs = (near, self.room, self.n_near, self.failed, number)
            blocks = -(-n // NEAR_ROWS) * -(-n_queries // NEAR_QUERIES)
            given = (pointer, n, *steps, question.centre, *about, *outs)
            launch(tile.dtype, "near_pairs", *given, blocks=blocks)
        rows = (pointer, *steps, question.queries, n, near, self.room, self.n_near, self.failed)
        known = (start, question.k if start else 0, question.k)
        scales = (TINY, UP, DOWN, SMALL, LARGE)
        limit = (self.squares, share, WIDER, self.limits)
        given = (*rows, *scales, *known, best.level, best.squared, best.index, *limit)
        launch(tile.dtype, "near_chosen", *given, blocks=n_queries)


def _rows(tile: Array) -> tuple[Any, ...]:
    """Describe the layout of rows: pointer, steps of rows and of features, number of features."""
    steps = (stride // tile.itemsize for stride in tile.strides)
    return np.uint64(tile.data.ptr), *steps, tile.shape[1]
