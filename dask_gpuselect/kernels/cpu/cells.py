"""Load 1 of NumPy chunks: counts of the cells between pivots, compiled by Numba.

Every element is classified among the pivots by a `tree`. 1e8 float64 in 10 chunks on 2 threads take
0.33 s at 2,047 pivots whatever the distribution (constant data: 0.16 s). A lookup table linear in
value took 0.3 s on normal and 8.6 s on lognormal data, a binary search for each element 2.6 s.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import kernel, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.draws import sample
from dask_gpuselect.kernels.cpu.scalars import is_missing
from dask_gpuselect.kernels.cpu.spans import tally
from dask_gpuselect.kernels.cpu.tree import RUN, Tree, tree_of, walk
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.kernels.reference.selection import (
    cuts_of_sorted,
    gathered_cells,
    with_heavy_split,
)
from dask_gpuselect.maths.cuts import Cuts, IntArray

SORT_AT_MOST = 8192  # up to this many elements, sorting the chunk is as fast as classifying it
OVERSAMPLING = 16  # sampled elements for each pivot: cells then vary by a quarter of their size
FLUSH = 1 << 30  # elements after which counts move from 32 to 64 bits


@until_compiled(reference.cuts)
def cuts(values: NDArray[Any], n_pivots: int) -> Cuts:
    """Measure the cuts of a chunk at sampled pivots; see `reference.selection.cuts`.

    Reads the chunk once. Scratch: about 100 bytes for each pivot, and the elements of heavy cells.
    Cells are heavy where the sample missed the distribution, which hashed positions make unlikely.
    """
    if values.size <= SORT_AT_MOST:
        return reference.cuts(values, n_pivots)
    # The tree has 2**levels - 1 nodes: use all of them. One more level than the pivots need takes
    # 10 % more time (1e7 float64: 62 ms with 2,047 pivots, 68 ms with 4,095).
    full = (1 << ((n_pivots + 1).bit_length() - 1)) - 1
    return _cuts_at(values, np.unique(_sample_pivots(values, full)), n_pivots)


def cuts_of_run(values: NDArray[Any], n_pivots: int) -> Cuts:
    """Measure the cuts of valid elements as `cuts` does, with their extremes among the pivots."""
    extremes = [values.min(), values.max()]
    inner = _sample_pivots(values, n_pivots - 2)
    return _cuts_at(values, np.unique(np.append(inner, extremes)), n_pivots)


def _cuts_at(values: NDArray[Any], pivots: NDArray[Any], n_pivots: int) -> Cuts:
    """Measure the cuts of a chunk at some pivots, and at more where these are far apart."""
    tree = tree_of(pivots)
    total, equal = np.zeros((2, len(tree[1])), np.int64)
    scratch = np.zeros(2 * len(total), np.int64), np.empty(RUN, np.uint32)
    n_missing = _classify(values, tree, total, equal, scratch)
    total[0] -= n_missing  # NaN is counted as if it were below all pivots
    upto = np.cumsum(total[: len(pivots)])
    below = upto - equal[: len(pivots)]
    sampled = Cuts.of_chunk(pivots, below, upto, values.size - n_missing, n_missing)

    def cuts_inside(heavy: IntArray, sizes: IntArray, share: int) -> list[Cuts]:
        """Measure each heavy cell at exactly even steps."""
        gathered = gathered_cells(partial(tally, values), pivots, heavy, int(sizes.sum()))
        ordered = np.sort(gathered.candidates.on_host())
        cells = np.split(ordered, np.cumsum(sizes[:-1]))
        return [cuts_of_sorted(cell, 0, -(-cell.size // share) + 1) for cell in cells]

    return with_heavy_split(sampled, n_pivots, cuts_inside)


def _sample_pivots(values: NDArray[Any], n_pivots: int) -> NDArray[Any]:
    """Choose `n_pivots` pivots at even steps through a sorted sample, unless none is valid."""
    ordered = np.sort(sample(values, min(OVERSAMPLING * (n_pivots + 1), values.size)))
    steps = np.arange(1, n_pivots + 1) * len(ordered) // (n_pivots + 1)
    return ordered[steps] if len(ordered) else ordered


# Kernels get the arrays that they write to as arguments. Allocating arrays inside them, and
# operations on whole arrays, would take Numba a third of a kernel's compile time.


@kernel
def _classify(
    x: t.Values, tree: Tree, total: t.Ints, equal: t.Ints, scratch: tuple[t.Ints, t.Cells]
) -> Any:
    """Count the elements of each cell of x, those equal to its pivot, and NaN.

    A cell is (previous pivot, pivot]. There are two counts for each cell, side by side, for even
    and odd elements: with one, each addition would wait for the one before on constant data. A word
    counts all elements in its lower half and the equal ones in its upper half, so that one addition
    does both.
    """
    counts, cell = scratch
    _, pivots, _ = tree
    leaf = np.uint32(pivots.size)
    n_missing = 0
    for begin in range(0, x.size, FLUSH):
        end = min(begin + FLUSH, x.size)
        for start in range(begin, end, RUN):
            run = x[start : min(start + RUN, end)]
            walk(run, tree, cell)
            for k in range(run.size):
                n_missing += is_missing(run[k])
            for k in range(run.size):
                i = cell[k] - leaf
                place = np.uint32(2) * i + np.uint32(k & 1)
                counts[place] += 1 + (np.int64(run[k] == pivots[i]) << 32)
        for place in range(counts.size):
            total[place >> 1] += counts[place] & 0xFFFFFFFF
            equal[place >> 1] += counts[place] >> 32
            counts[place] = 0
    return n_missing
