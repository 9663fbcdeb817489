"""NumPy chunks measured by a ruler, with the candidates of a guess: one read, compiled by Numba.

The cell of an element takes a few vectorised operations, and counting it one addition. Elements of
the cells that overlap the guess are gathered in the same pass, and only these are compared with its
ends: 2e6 float64 take 1.4 ns each on one thread with AVX-512, where the tree of `cells` takes 3.9
and their sum 0.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.bits import ordered
from dask_gpuselect.kernels.cpu.cells import SORT_AT_MOST
from dask_gpuselect.kernels.cpu.scalars import append, is_missing
from dask_gpuselect.kernels.cpu.spans import count_missing, tally
from dask_gpuselect.kernels.cpu.tree import RUN
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.cuts import Brackets, IntArray, Tally
from dask_gpuselect.maths.rulers import Ruler, reached, tally_of_reached

FEW_RANGES = 10  # ranges of cells that are tested one by one; more are looked up in a table
# Cells at the ends of a guess also hold elements outside it: room for this fraction of a chunk.
BESIDE = 8


@until_compiled(reference.tally_by_ruler)
def tally_by_ruler(
    values: NDArray[Any], ruler: Ruler, brackets: Brackets, most: int
) -> tuple[Tally, IntArray, IntArray] | None:
    """Tally some brackets, and count at a ruler; see `reference.selection.tally_by_ruler`.

    Scratch: `most` elements, and an eighth of the chunk.
    """
    if values.size <= SORT_AT_MOST:
        return None
    is_reached = reached(ruler, brackets)
    counts = _counted(values, ruler, is_reached, most + len(values) // BESIDE)
    if counts is not None:
        total, equal, n_missing, some = counts
        tallied = tally(some, brackets, most)
        if tallied is not None:
            tallied = tally_of_reached(tallied, ruler, brackets, total * ~is_reached, n_missing)
    else:  # a guess or ruler made for other data: count and tally separately
        counts = _counted(values, ruler, np.zeros_like(is_reached), 0)
        assert counts is not None
        total, equal, _, _ = counts
        tallied = tally(values, brackets, most)
    if tallied is None:
        return None
    upto = np.cumsum(total[:-1])
    # Bars may be equal if steps are finer than the elements. Only the first of equal bars has a
    # count.
    return tallied, upto - equal[ruler.bars.searchsorted(ruler.bars)], upto


Counts = tuple[IntArray, IntArray, int, NDArray[Any]]
"""Counts of the valid elements of each cell, of those that equal its bar, and of missing elements;
and the elements of the cells that overlap the brackets."""


def _counted(
    values: NDArray[Any], ruler: Ruler, is_reached: NDArray[np.bool_], most: int
) -> Counts | None:
    """Count the cells of a ruler; None if those in `is_reached` have more than `most` elements."""
    bars = np.append(ruler.bars, ruler.bars[-1:])  # no element above all bars equals this
    edges = np.flatnonzero(np.diff(is_reached, prepend=False, append=False)).astype(np.int32)
    firsts, sizes = edges[::2].copy(), edges[1::2] - edges[::2]
    out = np.empty(most + RUN, values.dtype)
    by_value, by_key = np.empty(0, values.dtype), (0, 0)
    if ruler.is_by_key:
        by_key = ruler.start, ruler.step
    else:
        by_value = np.array([ruler.start, ruler.step, _nearest_to_next(ruler)], values.dtype)
    bits = values.view(f"i{values.dtype.itemsize}")
    cells = bars, firsts, sizes, is_reached
    total, equal, n_missing, n = _count_cells(values, bits, by_value, by_key, cells, most, out)
    if n < 0:
        return None
    total[0] -= n_missing
    return total, equal, n_missing, out[:n]


def _nearest_to_next(ruler: Ruler) -> Any:
    """Return the least fraction of its cell at which any bar lies, in the kernel's arithmetic.

    An element equal to a bar is at least that far into its cell. The fraction is usually close to
    1, so that hardly any other element is.
    """
    place = np.maximum((ruler.bars - ruler.start) * ruler.step, 0)
    return (place - np.trunc(place)).min()


@kernel
def _count_cells(
    x: t.Values,
    bits: t.Bits,
    by_value: t.Values,
    by_key: tuple[int, int],
    cells: tuple[t.Values, t.Codes, t.Codes, t.Flags],
    most: int,
    out: t.Out,
) -> Any:
    """Count the cells of a ruler, and gather the elements of some.

    `by_value` holds start, step and the least fraction of `_nearest_to_next`; it is empty for a
    ruler by key, and `by_key` holds the start and step of that. `cells` are the bars, the first
    cells and the sizes of the ranges to gather, and whether each cell is in one of these.
    """
    bars, firsts, sizes, is_reached = cells
    total = np.zeros(bars.size, np.int64)
    equal = np.zeros(bars.size, np.int64)
    cell = np.empty(RUN, np.int32)
    marks = np.zeros(RUN, np.uint8)
    n_missing = 0
    n_gathered = 0
    for first in range(0, x.size, RUN):
        stop = min(first + RUN, x.size)
        run = x[first:stop]
        if by_value.size:
            n_near = _cells_by_value(run, by_value, bars.size - 1, cell)
        else:
            n_near = _cells_by_key(run, bits[first:stop], by_key, bars.size - 1, cell)
        if n_near:
            _count_equal(run, bars, cell, equal)
        n_missing += _count(run, cell, total)
        _mark(run, cell, firsts, sizes, is_reached, marks)
        n_gathered = append(run, marks, out, n_gathered)
        if n_gathered > most:
            return total, equal, n_missing, -1
    return total, equal, n_missing, n_gathered


@called_by_kernels
def _cells_by_value(run: Any, by_value: Any, last_cell: Any, cell: Any) -> Any:
    """Find the cells of a run by value; return how many elements may equal a bar."""
    start, step, near = by_value[0], by_value[1], by_value[2]
    zero, last = run.dtype.type(0), run.dtype.type(last_cell)
    n_near = 0
    for k in range(run.size):
        place = (run[k] - start) * step
        place = place if place > zero else zero  # NaN becomes 0 too
        place = place if place < last else last
        cell[k] = np.int32(place)
        n_near += place - run.dtype.type(cell[k]) >= near
    return n_near


@called_by_kernels
def _cells_by_key(run: Any, bits: Any, by_key: Any, last_cell: Any, cell: Any) -> Any:
    """Find the cells of a run by key; return how many elements may equal a bar."""
    start, shift = by_key
    by, last = np.uint64(shift), np.uint64(last_cell)
    rest = (np.uint64(1) << by) - np.uint64(1)
    n_near = 0
    for k in range(run.size):
        key = ordered(run[k], bits[k])
        behind = np.uint64(key - start)
        place = behind >> by
        place = place if place < last else last
        cell[k] = np.int32(place if key >= start and not is_missing(run[k]) else 0)
        n_near += behind & rest == rest  # a bar is the last key of its cell
    return n_near


@called_by_kernels
def _count_equal(run: Any, bars: Any, cell: Any, equal: Any) -> None:
    for k in range(run.size):
        equal[cell[k]] += run[k] == bars[cell[k]]


@called_by_kernels
def _count(run: Any, cell: Any, total: Any) -> Any:
    """Count a run by its cells, and its missing elements."""
    for k in range(run.size):
        total[cell[k]] += 1
    return count_missing(run)


@called_by_kernels
def _mark(run: Any, cell: Any, firsts: Any, sizes: Any, is_reached: Any, marks: Any) -> None:
    """Mark the elements of the cells in `is_reached`."""
    marks[:] = 0
    if firsts.size <= FEW_RANGES:
        for j in range(firsts.size):
            first = np.uint32(firsts[j])
            size = np.uint32(sizes[j])
            for k in range(run.size):
                marks[k] |= np.uint32(np.uint32(cell[k]) - first) < size
    else:
        for k in range(run.size):
            marks[k] = is_reached[cell[k]]
