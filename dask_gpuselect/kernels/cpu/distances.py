"""The nearest rows of NumPy chunks: compiled by Numba, from differences only.

One shared test compares it with the reference, `distances`.

There is no matrix multiplication here, and so no cancellation. Up to about 50 features, one
subtraction and one fused multiply-add for each feature, in registers for two queries and four
features, take as long as BLAS takes for the product alone. The rest is done while the distances are
in the cache: see "Nearest neighbours" in asv_bench/measured/neighbors.md. BLAS would also start
threads of its own, for which dask's threads then wait.

These sums are only compared with a threshold. Their relative error is less than ``(p + 3) 2**-53``,
where p is the number of features, whether products are fused or not. Rows that are not proven to be
too far are computed again in the order and with the roundings of the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, called_with, kernel
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.maths.nearest import DOWN, LARGE, NORMAL, SMALL, TINY, UP, Nearest

MOST_ROWS = 256  # rows of a tile: 512 take as long, 1,024 take 1.2 to 2 times as long
LEAST_ROWS = 16
TILE_FEATURES = 1 << 16  # elements of a tile: 512 KiB of float64, half of a core's cache
GROUP = 2  # queries that share each read of a tile
STOP_EVERY = 16  # features after which a tile may be given up as too far
UNIT = 2.0**-53


def nearest(
    rows: NDArray[Any], queries: NDArray[np.float64], k: int, tile_elements: int = 0
) -> Nearest:
    """Find the nearest rows of every query; see `reference.distances.nearest`.

    `tile_elements` is ignored: tiles have at most `TILE_FEATURES` elements, or `LEAST_ROWS` rows.
    """
    del tile_elements
    native = rows.dtype.newbyteorder("=")
    native = np.dtype(np.float32) if native == np.float16 else native  # Numba does not know float16
    rows = np.require(rows, native, ["C", "A"])
    n, shape = len(rows), (len(queries), min(k, len(rows)))
    level, squared, index = np.zeros(shape, np.int8), np.empty(shape), np.empty(shape, np.int64)
    if level.size:
        tile_rows = max(LEAST_ROWS, min(MOST_ROWS, TILE_FEATURES // rows.shape[1]))
        tile = np.empty((rows.shape[1], tile_rows))
        queries = np.ascontiguousarray(queries)
        _search(rows, queries, tile, (level, squared, index))
    return Nearest(level, squared, index, n)


# --- Kernels ------------------------------------------------------------------------------------


Best = tuple[t.Levels, t.FloatTable, t.IntTable]
"""The fields of `Nearest` for the nearest rows of every query so far."""


@kernel
def _search(rows: t.Rows, queries: t.RealRows, tile: t.FloatTable, best: Best) -> Any:
    """Search all rows for every query, by a heap of its nearest rows so far.

    The top of the heap is the furthest of them: the threshold for further rows. Rows come in
    ascending order, so an equally distant one is no nearer.
    """
    level, squared, index = best
    n, p = rows.shape
    n_queries, k = level.shape
    sums, spare = np.empty((GROUP, tile.shape[1])), np.empty(tile.shape[1])
    for start in range(0, n, tile.shape[1]):
        m = min(tile.shape[1], n - start)
        for j in range(m):
            for f in range(p):
                tile[f, j] = np.float64(rows[start + j, f])
        for i in range(0, n_queries, GROUP):
            # The last query of an odd number is paired with itself.
            two = min(i + 1, n_queries - 1)
            sums_two = sums[1] if two > i else spare
            near = _threshold(level[i, 0], squared[i, 0], start >= k, p)
            near_two = _threshold(level[two, 0], squared[two, 0], start >= k, p)
            if not _measure(tile, m, queries[i], queries[two], near, near_two, sums[0], sums_two):
                continue
            _take(rows, m, start, queries[i], sums[0], (level[i], squared[i], index[i]))
            if two > i:
                heap = level[two], squared[two], index[two]
                _take(rows, m, start, queries[two], sums_two, heap)
    for i in range(n_queries):
        _sort((level[i], squared[i], index[i]))


@called_by_kernels
def _threshold(level: Any, squared: Any, is_full: Any, p: Any) -> Any:
    """Return the sum from which on a row cannot be nearer; NaN if any row may be."""
    if not is_full or level == LARGE:
        return np.nan
    if level == SMALL and squared == 0:
        return 0.0
    widened = (TINY if level == SMALL else squared) * (1 + (4 * p + 16) * UNIT)
    return widened if widened < np.inf else np.nan


@called_with(fastmath={"contract"})
def _with_squares(total: Any, x: Any, a: Any) -> Any:
    """Add the squares of four differences, feature after feature."""
    for f in range(4):
        d = x[f] - a[f]
        total += d * d
    return total


@called_with(fastmath={"contract"})
def _measure(
    tile: Any, m: Any, one: Any, two: Any, near: Any, near_two: Any, sums: Any, sums_two: Any
) -> Any:
    """Sum the squared distances of two queries to the rows of a tile; return whether any is near.

    "Near" is what may be nearer than the threshold; the accuracy is that of the module's docstring.
    A partial sum never exceeds the whole one, so that a tile may be given up before its last
    features.
    """
    p = one.size
    for j in range(m):
        sums[j] = 0.0
        sums_two[j] = 0.0
    f = 0
    while f + 4 <= p:
        a0, a1, a2, a3 = one[f], one[f + 1], one[f + 2], one[f + 3]
        b0, b1, b2, b3 = two[f], two[f + 1], two[f + 2], two[f + 3]
        x0, x1, x2, x3 = tile[f], tile[f + 1], tile[f + 2], tile[f + 3]
        for j in range(m):
            x = x0[j], x1[j], x2[j], x3[j]
            sums[j] = _with_squares(sums[j], x, (a0, a1, a2, a3))
            sums_two[j] = _with_squares(sums_two[j], x, (b0, b1, b2, b3))
        f += 4
        if f % STOP_EVERY == 0 and not _any_near(m, near, near_two, sums, sums_two):
            return False
    while f < p:
        x = tile[f]
        a, b = one[f], two[f]
        for j in range(m):
            d = x[j] - a
            sums[j] += d * d
            d = x[j] - b
            sums_two[j] += d * d
        f += 1
    return _any_near(m, near, near_two, sums, sums_two)


@called_by_kernels
def _any_near(m: Any, near: Any, near_two: Any, sums: Any, sums_two: Any) -> Any:
    n_far = 0
    for j in range(m):
        n_far += (sums[j] >= near) & (sums_two[j] >= near_two)
    return n_far < m


@called_by_kernels
def _take(rows: Any, m: Any, start: Any, query: Any, sums: Any, heap: Any) -> None:
    """Put the rows of a tile that are near enough into the heap of a query.

    It is made of the first k rows when they are all there.
    """
    level, squared, index = heap
    k, p = level.size, query.size
    near = _threshold(level[0], squared[0], start >= k, p)
    for j in range(m):
        if sums[j] >= near:
            continue
        row = start + j
        its_level, its_squared = _key(rows[row], query)
        if row < k:
            level[row], squared[row], index[row] = its_level, its_squared, row
            for place in range(k // 2 - 1, -1, -1) if row == k - 1 else range(0):
                _sink(heap, place, k)
        elif its_level < level[0] or (its_level == level[0] and its_squared < squared[0]):
            level[0], squared[0], index[0] = its_level, its_squared, row
            _sink(heap, 0, k)
        near = _threshold(level[0], squared[0], row + 1 >= k, p)


@called_by_kernels
def _key(row: Any, query: Any) -> Any:
    """Return the level and the scaled square by which a row is compared; see `Nearest`."""
    total = 0.0
    for f in range(query.size):
        d = np.float64(row[f]) - query[f]
        total += d * d
    if TINY <= total < np.inf:
        return NORMAL, total
    is_small = total < TINY
    total = 0.0
    for f in range(query.size):
        x = np.float64(row[f])
        d = (x - query[f]) * UP if is_small else x * DOWN - query[f] * DOWN
        total += d * d
    return (SMALL if is_small else LARGE), total


# A heap of the nearest rows, with the furthest of them at its top


@called_by_kernels
def _is_further(heap: Any, i: Any, j: Any) -> Any:
    level, squared, index = heap
    if level[i] != level[j]:
        return level[i] > level[j]
    if squared[i] != squared[j]:
        return squared[i] > squared[j]
    return index[i] > index[j]


@called_by_kernels
def _swap(heap: Any, i: Any, j: Any) -> None:
    level, squared, index = heap
    level[i], level[j] = level[j], level[i]
    squared[i], squared[j] = squared[j], squared[i]
    index[i], index[j] = index[j], index[i]


@called_by_kernels
def _sink(heap: Any, place: Any, n: Any) -> None:
    """Move a row of a heap of `n` rows down, below which they are in order."""
    while True:
        child = 2 * place + 1
        if child >= n:
            break
        if child + 1 < n and _is_further(heap, child + 1, child):
            child += 1
        if not _is_further(heap, child, place):
            break
        _swap(heap, place, child)
        place = child


@called_by_kernels
def _sort(heap: Any) -> None:
    """Sort a heap in ascending order."""
    level, _, _ = heap
    for n in range(level.size - 1, 0, -1):
        _swap(heap, 0, n)
        _sink(heap, 0, n)
