"""The nearest rows of CuPy chunks: the host side of ``distances.cu``."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import to_host
from dask_gpuselect.kernels.cuda.launch import Array, advised, launch
from dask_gpuselect.kernels.cuda.source import (
    NEAR_QUERIES,
    NEAR_ROOM,
    NEAR_ROWS,
    NEAR_THREADS,
)
from dask_gpuselect.kernels.reference import distances as reference
from dask_gpuselect.kernels.reference.distances import FEW_ROWS, MOST_GROWTH, WIDER, Best, Queries
from dask_gpuselect.maths.nearest import DOWN, LARGE, SMALL, TINY, UP, Nearest

FLOAT = np.dtype(np.float64)
MOST_TILE = 1 << 31  # rows, whose numbers in a tile have 32 bits
SCALES = (*map(np.float64, (TINY, UP, DOWN)), *map(np.int8, (SMALL, LARGE)))


@dataclass(frozen=True)
class DeviceNearest:
    """The nearest rows of every query, on a device; see `maths.nearest.NearestRows`."""

    best: Best
    n_rows: int

    @property
    def index(self) -> Array:
        return self.best.index

    @property
    def distances(self) -> Array:
        squared = self.best.squared
        found = cupy.empty(squared.shape)
        if found.size:
            numbers = np.int64(found.size), np.float64(UP), np.float64(DOWN)
            arguments = (self.best.level, squared, *numbers, found)
            launch(FLOAT, "near_distances", NEAR_THREADS, arguments)
        return found

    def on_host(self) -> Nearest:
        best = self.best
        return Nearest(best.level.get(), best.squared.get(), best.index.get(), self.n_rows)


@advised
def nearest(rows: Array, queries: NDArray[np.float64], k: int, tile_elements: int) -> Nearest:
    """The nearest rows of every query; see `reference.distances.nearest`.

    Reads the rows about once. Scratch on the device: the rows that may be near, less than two tiles
    of so many distances. There is no tile, but where there are more of these than that.
    """
    return nearest_in_place(rows, queries, k, tile_elements).on_host()


@advised
def nearest_in_place(rows: Array, queries: Any, k: int, tile_elements: int) -> DeviceNearest:
    """`nearest`, of queries anywhere; the answer stays on the device."""
    if not isinstance(queries, cupy.ndarray):
        queries = to_host(queries).astype(np.float64, copy=False)
    queries = cupy.ascontiguousarray(cupy.asarray(queries, FLOAT))
    return DeviceNearest(reference.best_of(rows, queries, k, tile_elements, _ahead), len(rows))


# --- Tile after tile ------------------------------------------------------------------------------


class Tiling(NamedTuple):
    """How the rows are divided, before anything is known of them.

    Parameters
    ----------
    bounds : list of int
        Of the tiles.
    room : int
        For rows of a tile that may be near to a query.
    """

    bounds: list[int]
    room: int


def plan_for(start: int, n: int, question: Queries) -> Tiling | None:
    """The tiles from a place on; None if there is too little memory for them."""
    n_queries, k = len(question.queries), question.k
    first = max(FEW_ROWS, k)
    most = question.tile_elements // n_queries  # 13 bytes each
    if most < first or k > NEAR_ROOM // 2:
        return None
    # Of a tile with so many times the rows before it, as many times k should be near. Their number
    # is spread as a sum of k waiting times: for one query in 1e7 it is more than these times k.
    spread = k + 8 * math.isqrt(k) + 16
    growth = max(1, min(most // spread, MOST_GROWTH))
    bounds = [start]
    while bounds[-1] < n:
        size = max(growth * bounds[-1], first)
        bounds.append(min(n, bounds[-1] + min(size, MOST_TILE)))
    room = max(first, growth * spread, question.most_pairs // n_queries)
    return Tiling(bounds, min(room, most, max(first, n - start)))


def _ahead(
    rows: Array, start: int, best: Best | None, question: Queries
) -> tuple[Best | None, int]:
    """The nearest of those so far and of the rows from a place on, up to the first tile of which
    too many rows may be near to a query; and where that begins.

    All kernels are started at once. The device notes which tile has failed, and leaves out those
    behind it: this is all that is waited for.
    """
    n, k = len(rows), question.k
    plan = plan_for(start, n, question)
    if plan is None or (best is not None and best.k < k):
        return best, start
    tiles = _Tiles(question, plan.room, best)
    for number, (first, stop) in enumerate(itertools.pairwise(plan.bounds), 1):
        tiles.look_at(rows[first:stop, :], first, number)
    failed = int(tiles.failed.get()[0])
    return tiles.best, plan.bounds[failed - 1] if failed else n


class _Tiles:
    """What kernels make of one tile after the other, on the device.

    Parameters
    ----------
    question : Question
    room : int
        As of `Plan`.
    best : Best, optional
        What is known, of as many rows as are wanted.
    """

    def __init__(self, question: Queries, room: int, best: Best | None) -> None:
        self.question, self.room = question, np.uint32(room)
        (n_queries, p), k = question.queries.shape, question.k
        told = cupy.zeros(1 + n_queries, np.uint32)
        self.failed, self.n_near = told[:1], told[1:]
        self.near = cupy.empty((n_queries, room), np.uint32)
        self.keys = cupy.empty(self.near.shape, np.int8), cupy.empty(self.near.shape)
        self.factors, self.squares = cupy.empty((p, n_queries)), cupy.empty(n_queries)
        if best is None:
            shape = n_queries, k
            self.best = Best(cupy.empty(shape, np.int8), cupy.empty(shape), cupy.empty(shape, "i8"))
            self.limits = cupy.empty(n_queries)
        else:
            arrays = best.level, best.squared, best.index
            self.best = Best(*map(cupy.ascontiguousarray, arrays))
            self.limits = reference.limits(best, question)
        sizes = np.int32(n_queries), np.int32(p)
        made = self.factors, self.squares
        arguments = (question.queries, *sizes, question.centre, *made)
        launch(FLOAT, "near_queries", NEAR_THREADS, arguments)

    def look_at(self, tile: Array, start: int, number: int) -> None:
        """Start what looks at the rows of a tile, which begin at a place. Of the first all are
        compared, and so as many are known as are wanted."""
        question, n, best = self.question, len(tile), self.best
        n_queries = len(question.queries)
        pointer, *steps = _rows(tile)
        share, near = np.float64(1 - question.slack), np.uint64(0)
        if start:
            near = np.uint64(self.near.data.ptr)
            about = (self.factors, self.squares, self.limits, np.int32(n_queries), share)
            found = (near, self.room, self.n_near, self.failed, np.uint32(number))
            arguments = (pointer, np.int64(n), *steps, question.centre, *about, *found)
            blocks = -(-n // NEAR_ROWS) * -(-n_queries // NEAR_QUERIES)
            launch(tile.dtype, "near_pairs", NEAR_THREADS, arguments, blocks=blocks)
        looked_at = (np.uint32(n), near, self.room, self.n_near, self.failed)
        told = (pointer, *steps, question.queries, *looked_at, *SCALES, *self.keys)
        launch(tile.dtype, "near_keys", NEAR_THREADS, told, blocks=n_queries)
        known = np.int64(start), np.int32(question.k if start else 0), np.int32(question.k)
        limit = (self.squares, share, np.float64(WIDER), np.float64(TINY), self.limits)
        told = (*looked_at, *self.keys, *known, best.level, best.squared, best.index, *limit)
        launch(FLOAT, "near_chosen", NEAR_THREADS, told, blocks=n_queries)


def _rows(tile: Array) -> tuple[np.uint64, np.int64, np.int64, np.int32]:
    """Where rows are: the pointer, steps from row to row and from feature to feature in elements,
    and the number of features."""
    row_step, feature_step = (np.int64(stride // tile.itemsize) for stride in tile.strides)
    return np.uint64(tile.data.ptr), row_step, feature_step, np.int32(tile.shape[1])
