"""Load 1 of NumPy chunks: counts and sums of the cells between pivots, compiled by Numba.

Every element is classified among the pivots by a `tree`. 1e8 float64 in 10 chunks on 2 threads take
0.33 s at 2,047 pivots whatever the distribution (constant data: 0.16 s). A lookup table linear in
value took 0.3 s on normal and 8.6 s on lognormal data, a binary search for each element 2.6 s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import kernel, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.draws import sample
from dask_gpuselect.kernels.cpu.scalars import gap, is_missing
from dask_gpuselect.kernels.cpu.spans import tally
from dask_gpuselect.kernels.cpu.tree import RUN, Tree, tree_of, walk
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.kernels.reference.selection import even_positions, heavy_cells
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally

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
        ordered, n_missing = _sort_valid(values)
        return cuts_of_sorted(ordered, n_pivots, n_missing)
    pivots = _sample_pivots(values, n_pivots)
    tree = tree_of(pivots)
    total, equal = np.zeros((2, len(tree[1])), np.int64)
    distance = np.zeros(2 * len(total))
    scratch = np.zeros_like(distance, np.int64), np.empty(RUN, np.uint32)
    n_missing = _classify(values, tree, (total, equal, distance), scratch)
    with np.errstate(over="ignore", invalid="ignore"):
        distance = distance[::2] + distance[1::2]
    total[0] -= n_missing  # NaN is counted as if it were below all pivots
    upto = np.cumsum(total[: len(pivots)])
    below = upto - equal[: len(pivots)]
    distance = distance[: len(pivots)]
    distance[:1] = np.nan  # the first cell has no lower end: unknown
    sampled = Cuts.of_chunk(pivots, below, upto, distance, values.size - n_missing, n_missing)
    return _split_heavy(sampled, values, n_pivots)


def _sample_pivots(values: NDArray[Any], n_pivots: int) -> NDArray[Any]:
    """Choose about `n_pivots` distinct pivots at even steps through a sorted sample."""
    # The tree has 2**levels - 1 nodes: use all of them. One more level than the pivots need takes
    # 10 % more time (1e7 float64: 62 ms with 2,047 pivots, 68 ms with 4,095).
    n_pivots = (1 << ((n_pivots + 1).bit_length() - 1)) - 1
    n_sampled = min(OVERSAMPLING * (n_pivots + 1), values.size)
    ordered = np.sort(sample(values, n_sampled))
    steps = np.arange(1, n_pivots + 1) * len(ordered) // (n_pivots + 1)
    return np.unique(ordered[steps]) if len(ordered) else ordered


def _split_heavy(sampled: Cuts, values: NDArray[Any], n_pivots: int) -> Cuts:
    """Divide the cells that hold more than `HEAVY` times their share, at exactly even steps."""
    n_valid = int(sampled.n_valid[0])
    share = max(n_valid // n_pivots, 1)
    heavy, inside, before = heavy_cells(sampled.below, sampled.upto, n_valid, share)
    if len(heavy) == 0:
        return sampled
    gather = partial(tally, values)
    gathered = gathered_cells(gather, sampled.pivots, heavy, int(inside[heavy].sum()))
    inside_heavy = np.sort(gathered.candidates.on_host())

    parts = [sampled]
    taken = 0
    for size, start in zip(inside[heavy], before[heavy], strict=True):
        within = cuts_of_sorted(inside_heavy[taken : taken + size], -(-int(size) // share) + 1, 0)
        parts.append(replace(within, below=within.below + start, upto=within.upto + start))
        taken += size
    merged = Cuts.merge(parts)
    # The pivot at the end of a heavy cell now follows the last of the cell's own pivots, and there
    # is no element between the two.
    assert merged.distance is not None
    merged.distance[heavy[heavy < len(sampled.pivots)]] = 0.0
    order = np.argsort(merged.pivots)
    n_missing = int(sampled.n_missing[0])
    columns: list[Any] = [merged.pivots, merged.below, merged.upto, merged.distance]
    pivots, below, upto, distance = (column[order] for column in columns)
    return Cuts.of_chunk(pivots, below, upto, distance, n_valid, n_missing)


def gathered_cells(
    tally: Callable[..., Tally | None], pivots: NDArray[Any], cells: IntArray, size: int
) -> Tally:
    """Gather the elements of some open cells between the pivots."""
    around = np.unique(np.concatenate([cells - 1, cells]))
    around = around[(around >= 0) & (around < len(pivots))]
    wanted = np.zeros(len(around) + 1, np.bool_)
    wanted[np.searchsorted(around, cells)] = True
    gathered = tally(Brackets(pivots[around], wanted), size)
    if gathered is None:
        raise RuntimeError(
            "the chunk changed while it was read, because another thread writes to it: pass a "
            "copy, a.copy()"
        )
    return gathered


def _sort_valid(values: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Sort the valid elements; return them and the number of NaN."""
    ordered = np.sort(values)  # NaN last
    n_valid = len(ordered)
    if ordered.dtype.kind == "f" and n_valid and np.isnan(ordered[-1]):
        n_valid = int(np.searchsorted(ordered, np.nan))
    return ordered[:n_valid], len(ordered) - n_valid


def cuts_of_sorted(ordered: NDArray[Any], n_pivots: int, n_missing: int) -> Cuts:
    """Measure cuts at even steps through sorted elements, from the first to the last."""
    positions = even_positions(len(ordered), n_pivots)
    n = len(positions)
    pivots, distance = np.empty(n, ordered.dtype), np.empty(n)
    below, upto = np.empty((2, n), np.int64)
    m = _measure_sorted(ordered, positions, pivots, below, upto, distance)
    distance[:1] = np.nan
    pivots, distance = pivots[:m].copy(), distance[:m].copy()
    below, upto = below[:m].copy(), upto[:m].copy()
    return Cuts.of_chunk(pivots, below, upto, distance, len(ordered), n_missing)


# Kernels get the arrays that they write to as arguments. Allocating arrays inside them, and
# operations on whole arrays, would take Numba a third of a kernel's compile time.


@kernel
def _measure_sorted(
    x: t.Values, positions: t.Places, pivots: t.Out, below: t.Ints, upto: t.Ints, distance: t.Floats
) -> Any:
    """Measure the distinct elements at ascending positions of the sorted x; return their number.

    Writes pivots, below, upto and distance.
    """
    m = 0
    k = 0  # elements up to the pivots so far
    for position in positions:
        if position < k:  # equal to the pivot before
            continue
        pivot = x[position]
        sum_ = 0.0
        while x[k] < pivot:
            sum_ += gap(x[k], pivot)
            k += 1
        below[m] = k
        while k < x.size and x[k] == pivot:
            k += 1
        pivots[m], upto[m], distance[m] = pivot, k, sum_
        m += 1
    return m


@kernel
def _classify(
    x: t.Values,
    tree: Tree,
    sums: tuple[t.Ints, t.Ints, t.Floats],
    scratch: tuple[t.Ints, t.Cells],
) -> Any:
    """Count and sum the cells of x, and count NaN.

    A cell is (previous pivot, pivot]. For each cell, the kernel counts the elements and those equal
    to the pivot, and sums the distances to the pivot.

    There are two counts and distances for each cell, side by side, for even and odd elements: with
    one, each addition would wait for the one before on constant data. A word counts all elements in
    its lower half and the equal ones in its upper half, so that one addition does both.
    """
    total, equal, distance = sums
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
                distance[place] += gap(run[k], pivots[i])
        for place in range(counts.size):
            total[place >> 1] += counts[place] & 0xFFFFFFFF
            equal[place >> 1] += counts[place] >> 32
            counts[place] = 0
    return n_missing
