"""The nearest rows of a chunk of any kind, by matrix multiplication and then differences.

The reference. The k-th distance of a query is a threshold: rows that are not proven to be further
are candidates.

1. A *tile*, the distances of some queries to some rows, is one product of matrices. It is not
   exact: in ``|x|² + |q|² - 2 x·q`` the common part of x and q cancels. Both are first moved by the
   mean of the queries, and the remaining error has a bound.
2. Rows whose distance minus that bound is at most the k-th so far are the candidates, some for
   each query.
3. Their distances are computed by differences, feature after feature in float64, and these alone
   decide which k are nearest.

The bound. Let u = 2⁻⁵³, x' = fl(x - c), q' = fl(q - c) and S = |x'| + |q'|. In the standard model
of rounding, whatever the order of the sums and with fused products or without:

- the product of p + 1 terms, the last of which is the (1 - C)|x'|² below, and the sums of squares
  are off by at most γ_{p+3} S² together;
- x' - q' differs from x - q by at most u S, and so the square of its length by at most 2.1 u S²;
- the square by differences differs from the true one by at most γ_{p+2} times it, which is at most
  1.1 S²;
- the threshold minus |q'|² is rounded once: u times the larger of both.

Together less than (2.2 p + 12) u S², and S² is at most 2 |x'|² + 2 |q'|². So

(1 - C) (|x'|² + |q'|²) - 2 x'·q'  <=  the square by differences,    C = (6 p + 64) u,

which leaves a part of C for the terms of second order. Where sums may overflow, all rows are
candidates. Where they underflow they are off by p 2⁻¹⁰⁷⁴, which is negligible beside ``TINY``, the
least threshold.

Where the bound is too weak (equal rows, or rows far from the queries compared with the k-th
distance) there are too many candidates: then a whole tile is computed by differences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import (
    Array,
    any_true,
    as_type,
    concatenate,
    is_cupy,
    like,
    n_true,
    namespace,
    to_host,
)
from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.maths.nearest import DOWN, LARGE, SMALL, TINY, UP, Nearest

UNIT = 2.0**-53
FEW_ROWS = 256  # rows of the first tile, which sets the threshold for the next
MOST_GROWTH = 16  # largest growth of tiles; on a GPU each takes milliseconds, however small
PAIR_ARRAYS = 8  # arrays of float64 that a candidate takes besides its features
WIDER = 1 + 16 * UNIT
HUGE = 2.0**1000  # squares from which on a sum of products may overflow


Ahead = Callable[[Array, int, "Nearest | None", "Queries"], "tuple[Nearest | None, int]"]
"""Finds the nearest among the best so far and the rows from a place on, by a backend's own kernels.
Also returns the place of the first row that it left."""


def nearest(rows: Array, queries: NDArray[np.float64], k: int, tile_elements: int) -> Nearest:
    """Find the nearest rows of every query.

    Parameters
    ----------
    rows : array, shape (n, p)
        Finite, of a real floating or integer dtype, p at least 1. Converted to float64.
    queries : float64 array, shape (n_queries, p)
        Finite, on the host.
    k : int
        Number of rows to find for each query.
    tile_elements : int
        Largest number of distances in memory. There are up to six arrays of that size.

    Returns
    -------
    Nearest
        On the host, ``min(k, n)`` rows of each query.
    """
    return best_of(rows, like(queries, rows), k, tile_elements).on_host()


def nearest_in_place(rows: Array, queries: Array, k: int, tile_elements: int) -> Nearest:
    """Find the nearest rows of queries on any device.

    The answer stays on the device of the rows if the backend has a type for that.
    """
    on_host = to_host(queries).astype(np.float64, copy=False)
    answer: Nearest = backend_for(rows).distances.nearest(rows, on_host, k, tile_elements)
    return answer


def best_of(
    rows: Array, queries: Array, k: int, tile_elements: int, ahead: Ahead | None = None
) -> Nearest:
    """Find the nearest rows of every query, on the device of both."""
    n, n_queries = rows.shape[0], queries.shape[0]
    k = min(k, n)
    if not n or not n_queries:
        none = (np.zeros((n_queries, k), dtype) for dtype in (np.int8, np.float64, np.int64))
        level, squared, index = (like(array, rows) for array in none)
        return Nearest(level, squared, index, n)
    n_together = max(1, min(n_queries, tile_elements // FEW_ROWS))
    parts = [
        _nearest(rows, Queries(queries[start : start + n_together, :], k, tile_elements), ahead)
        for start in range(0, n_queries, n_together)
    ]
    if len(parts) == 1:
        return replace(parts[0], n_rows=n)
    columns = zip(*((each.level, each.squared, each.index) for each in parts), strict=True)
    level, squared, index = (concatenate(column, 0) for column in columns)
    return Nearest(level, squared, index, n)


def _nearest(rows: Array, question: Queries, ahead: Ahead | None) -> Nearest:
    """Find the nearest rows of some queries tile by tile, with the k-th so far as a threshold."""
    xp, n, n_queries = namespace(rows), rows.shape[0], question.queries.shape[0]
    most_rows = max(1, question.tile_elements // n_queries)
    # A tile that has g times as many rows as came before should yield about g * k candidates.
    growth = question.most_pairs // (2 * n_queries * question.k)
    growth = max(1, min(growth, MOST_GROWTH))
    best: Nearest | None = None
    start = 0
    while start < n:
        if ahead is not None:
            best, start = ahead(rows, start, best, question)
            if start == n:
                break
        stop = min(n, start + min(most_rows, max(growth * start, FEW_ROWS)))
        tile = as_type(rows[start:stop, :], "float64")
        index = xp.arange(start, stop, dtype=xp.int64, **_beside(rows))
        if best is None or best.k < question.k:
            best = _by_differences(tile, index, best, question)
        else:
            best = _by_product(tile, index, best, question)
        start = stop
    assert best is not None
    return best


@dataclass(frozen=True)
class Queries:
    """Some queries, in the form in which tiles are multiplied with them.

    Parameters
    ----------
    queries : array, shape (n_queries, p)
        Queries in float64.
    k : int
        Number of rows to find for each.
    tile_elements : int
        Largest number of distances in memory.
    """

    queries: Array
    k: int
    tile_elements: int

    @cached_property
    def centre(self) -> Array:
        """Mean of the queries, which is subtracted from queries and rows, shape (p,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return namespace(self.queries).mean(self.queries, axis=0)

    @cached_property
    def factors(self) -> Array:
        """``-2 q'``, and a column of ones for the squares of the rows: shape (n_queries, p + 1)."""
        with np.errstate(over="ignore", invalid="ignore"):
            moved = self.queries - self.centre
            ones = namespace(moved).ones_like(moved[:, :1])
            return concatenate([-2.0 * moved, ones], axis=1)

    @cached_property
    def squares(self) -> Array:
        """``|q'|²``, shape (n_queries,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            moved = self.queries - self.centre
            return namespace(moved).sum(moved * moved, axis=1)

    @property
    def most_pairs(self) -> int:
        """Largest number of candidates, of all queries, that take no more memory than a tile."""
        return self.tile_elements // (PAIR_ARRAYS + 2 * int(self.queries.shape[1]))

    @property
    def slack(self) -> float:
        """The constant C of the bound."""
        return (6 * int(self.queries.shape[1]) + 64) * UNIT


# --- By the product -----------------------------------------------------------------------------


def _by_product(tile: Array, index: Array, best: Nearest, question: Queries) -> Nearest:
    """Find the nearest among those so far and a tile, by differences of its candidates only."""
    xp = namespace(tile)
    with np.errstate(over="ignore", invalid="ignore"):
        lower, squares = _lower_bounds(tile, question)
        limit = limits(best, question)
        may_overflow = ~(xp.max(squares) + question.squares < HUGE)
        limit = xp.where(may_overflow, xp.full_like(limit, np.inf), limit)
        is_near = ~(lower > limit[:, None])
        n_near = n_true(is_near)
        most = question.most_pairs
        if n_near > most and tile.shape[0] > question.k:
            # Nearer rows come late: the k-th distance in this tile is a better threshold. The
            # square of a distance exceeds its lower bound by at most 2 C (|x'|² + |q'|²); the third
            # C covers rounding.
            more = 3 * question.slack * (xp.max(squares) + question.squares)
            is_near = is_near & ~(lower > (_kth(lower, question.k) + more)[:, None])
            n_near = n_true(is_near)
    if not n_near:
        return best
    if n_near > most:
        del lower, is_near
        return _by_differences(tile, index, best, question)
    return _with_pairs(tile, index, is_near, best, question)


def limits(best: Nearest, question: Queries) -> Array:
    """Return for each query the largest lower bound of a nearer row; see `_lower_bounds`."""
    return _threshold(best) * WIDER - (1 - question.slack) * question.squares


def _lower_bounds(tile: Array, question: Queries) -> tuple[Array, Array]:
    """Return lower bounds of the squared distances of all pairs, and ``|x'|²``.

    The term ``(1 - C) |q'|²`` of the bounds is left out.
    """
    xp = namespace(tile)
    moved = tile - question.centre
    squares = xp.sum(moved * moved, axis=1)
    least = (1 - question.slack) * squares
    terms = concatenate([moved, least[:, None]], axis=1)
    return xp.matmul(question.factors, terms.T), squares


def _threshold(best: Nearest) -> Array:
    """Return the largest square by differences, at the normal level, that a nearer row can have."""
    xp = namespace(best.squared)
    level, squared = best.level[:, -1], best.squared[:, -1]
    unlimited, tiny = xp.full_like(squared, np.inf), xp.full_like(squared, TINY)
    small = xp.where(squared > 0, tiny, -unlimited)  # nothing is nearer than an equal row
    return xp.where(level < 0, small, xp.where(level > 0, unlimited, squared))


def _kth(values: Array, k: int) -> Array:
    """Return the k-th least value of every row."""
    xp = namespace(values)
    if hasattr(xp, "partition"):
        return xp.partition(values, k - 1, axis=1)[:, k - 1]
    return xp.sort(values, axis=1)[:, k - 1]


def _with_pairs(
    tile: Array, index: Array, is_near: Array, best: Nearest, question: Queries
) -> Nearest:
    """Find the nearest among those so far and some pairs of queries and rows.

    There are a few pairs for each query.
    """
    xp, (n_queries, k) = namespace(tile), best.index.shape
    query, row = xp.nonzero(is_near)
    level, squared = _keys(
        xp.take(tile.T, row, axis=1), xp.take(question.queries.T, query, axis=1), tile.shape[1]
    )
    every = xp.arange(n_queries, dtype=query.dtype, **_beside(tile))
    owner = xp.reshape(xp.broadcast_to(every[:, None], (n_queries, k)), (-1,))
    owner, level, squared, index = (
        concatenate([xp.reshape(old, (-1,)), new], axis=0)
        for old, new in (
            (owner, query),
            (best.level, level),
            (best.squared, squared),
            (best.index, xp.take(index, row)),
        )
    )
    # The sort is stable and rows ascend, so that the first of equally distant rows stays the first.
    order = _ascending(level, squared, axis=0)
    order = xp.take(order, _argsort(xp.take(owner, order), axis=0))
    starts = xp.searchsorted(xp.take(owner, order), every)
    places = starts[:, None] + xp.arange(k, dtype=starts.dtype, **_beside(tile))
    order = xp.take(order, xp.reshape(places, (-1,)))
    arrays = (xp.reshape(xp.take(a, order), (n_queries, k)) for a in (level, squared, index))
    return Nearest(*arrays)


# --- By differences -----------------------------------------------------------------------------


def _by_differences(tile: Array, index: Array, best: Nearest | None, question: Queries) -> Nearest:
    """Find the nearest among those so far and a tile, by all differences of the tile."""
    xp, n_queries = namespace(tile), question.queries.shape[0]
    level, squared = _keys(tile.T[:, None, :], question.queries.T[:, :, None], 1)
    index = xp.broadcast_to(index[None, :], (n_queries, index.shape[0]))
    if best is not None:
        last, last_squared = best.level[:, -1:], best.squared[:, -1:]
        is_nearer = (level < last) | ((level == last) & (squared < last_squared))
        if best.k == question.k and not any_true(is_nearer):
            return best
        level = concatenate([best.level, level], axis=1)
        squared = concatenate([best.squared, squared], axis=1)
        index = concatenate([best.index, index], axis=1)
    order = _ascending(level, squared, axis=1)
    order = order[:, : min(question.k, order.shape[1])]
    return Nearest(*(xp.take_along_axis(a, order, axis=1) for a in (level, squared, index)))


def _keys(x: Array, q: Array, at_once: int) -> tuple[Array, Array]:
    """Return the level and the square by which pairs are compared; see `Nearest`.

    Parameters
    ----------
    x, q : arrays, shape (p, ...)
        Rows and queries, feature by feature, that broadcast to all pairs.
    at_once : int
        Number of features whose differences are in memory together.
    """
    xp = namespace(x)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squared = _squared(x, q, at_once, lambda a, b: a - b)
        is_small, is_large = squared < TINY, squared == np.inf
        level = as_type(is_large, "int8") * LARGE + as_type(is_small, "int8") * SMALL
        if any_true(level != 0):
            small = _squared(x, q, at_once, lambda a, b: (a - b) * UP)
            squared = xp.where(is_small, small, squared)
            large = _squared(x, q, at_once, lambda a, b: a * DOWN - b * DOWN)
            squared = xp.where(is_large, large, squared)
    return level, squared


def _squared(
    x: Array, q: Array, at_once: int, difference: Callable[[Array, Array], Array]
) -> Array:
    """Sum squared differences in the order of the features: the same bits in any namespace."""
    total = None
    for start in range(0, x.shape[0], at_once):
        some = slice(start, start + at_once)
        d = difference(x[some, ...], q[some, ...])
        d = d * d
        for f in range(d.shape[0]):
            total = d[f, ...] if total is None else total + d[f, ...]
    return total


def _ascending(level: Array, squared: Array, axis: int) -> Array:
    """Return the places ordered by level and square; equal ones keep their order."""
    xp = namespace(squared)
    order = _argsort(squared, axis)
    if any_true(level != 0):
        by_level = _argsort(xp.take_along_axis(level, order, axis=axis), axis)
        order = xp.take_along_axis(order, by_level, axis=axis)
    return order


def _argsort(values: Array, axis: int) -> Array:
    xp = namespace(values)
    how = {"kind": "stable"} if is_cupy(values) else {"stable": True}
    return xp.argsort(values, axis=axis, **how)


def _beside(array: Array) -> dict[str, Any]:
    """Return keyword arguments with which functions create arrays on the device of another array.

    CuPy creates them on the current device, which is that of the chunk.
    """
    return {} if is_cupy(array) else {"device": array.device}
