"""Classification of elements among ascending values by a binary tree.

It follows super-scalar sample sort (Sanders & Winkel 2004). The values form a tree in the order of
its levels (Eytzinger layout). Runs of elements that stay in the first-level cache walk down the
tree level by level. Each level is one vectorised loop of gathers, and no branch depends on data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.maths.cuts import extremes_of

RUN = 512  # elements of a run: 4 KiB of float64 and 2 KiB of cells

Tree = tuple[t.Values, t.Values, int]
"""The tree of `tree_of` as a kernel takes it."""


def tree_of(pivots: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Return the pivots as an Eytzinger tree of 2**levels - 1 nodes, ascending, and the levels.

    Both arrays are padded with the largest value. A walk from node 1 to ``2 * node + (x >
    tree[node])``, `levels` times, ends at ``2**levels + (number of pivots < x)``. The padding
    catches elements above all pivots.
    """
    levels = len(pivots).bit_length()
    n_cells = 1 << levels
    padded = np.full(n_cells, extremes_of(pivots.dtype)[1])
    padded[: len(pivots)] = pivots
    tree = padded.copy()
    for level in range(levels):
        step = n_cells >> level
        tree[1 << level : 2 << level] = padded[step // 2 - 1 : -1 : step]
    return tree, padded, levels


@called_by_kernels
def walk(run: Any, tree: Any, cell: Any) -> None:
    """Find the leaf of every element of a run, level by level; each inner loop is one gather."""
    nodes, pivots, levels = tree
    first = 0
    if levels >= 4:
        first = 4
        _count_fifteen(run, pivots, cell)
    else:
        for k in range(run.size):
            cell[k] = np.uint32(1)
    for _ in range(first, levels):
        for k in range(run.size):
            node = cell[k]
            cell[k] = np.uint32(2) * node + np.uint32(run[k] > nodes[node])


@called_by_kernels
def find_places(run: Any, tree: Any, place: Any) -> None:
    """Find the place of every element of a run: ``2 * i`` in cell i, ``2 * i + 1`` at pivot i.

    Elements that equal the padding are behind the last cell. The two loops vectorise one after the
    other: 3 ns an element at 15 pivots.
    """
    walk(run, tree, place)
    _, pivots, _ = tree
    leaf = np.uint32(pivots.size)
    for k in range(run.size):
        i = place[k] - leaf
        place[k] = np.uint32(2) * i + np.uint32(run[k] == pivots[i])


@called_by_kernels
def _count_fifteen(run: Any, pivots: Any, cell: Any) -> None:
    """Find the nodes of the fifth level, by counting the pivots of four levels below each element.

    Comparing with all fifteen is faster than four gathers: 62 ms and 71 ms for the whole pass over
    1e7 float64 at 2,047 pivots. The pivots have fifteen names, not an array, so that they stay in
    registers.
    """
    step = pivots.size // 16
    p1 = pivots[1 * step - 1]
    p2 = pivots[2 * step - 1]
    p3 = pivots[3 * step - 1]
    p4 = pivots[4 * step - 1]
    p5 = pivots[5 * step - 1]
    p6 = pivots[6 * step - 1]
    p7 = pivots[7 * step - 1]
    p8 = pivots[8 * step - 1]
    p9 = pivots[9 * step - 1]
    p10 = pivots[10 * step - 1]
    p11 = pivots[11 * step - 1]
    p12 = pivots[12 * step - 1]
    p13 = pivots[13 * step - 1]
    p14 = pivots[14 * step - 1]
    p15 = pivots[15 * step - 1]
    for k in range(run.size):
        v = run[k]
        count = np.uint32(16)
        count += np.uint32(v > p1) + np.uint32(v > p2) + np.uint32(v > p3)
        count += np.uint32(v > p4) + np.uint32(v > p5) + np.uint32(v > p6)
        count += np.uint32(v > p7) + np.uint32(v > p8) + np.uint32(v > p9)
        count += np.uint32(v > p10) + np.uint32(v > p11) + np.uint32(v > p12)
        count += np.uint32(v > p13) + np.uint32(v > p14) + np.uint32(v > p15)
        cell[k] = count
