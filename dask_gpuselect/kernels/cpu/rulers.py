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

from dask_gpuselect.kernels.compiling import (
    Types,
    by_types,
    called_by_kernels,
    compiles,
    types,
    until_compiled,
)
from dask_gpuselect.kernels.cpu.cells import SORT_AT_MOST
from dask_gpuselect.kernels.cpu.scalars import is_missing
from dask_gpuselect.kernels.cpu.spans import tally
from dask_gpuselect.kernels.cpu.tree import RUN
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.cuts import Brackets, IntArray, Tally
from dask_gpuselect.maths.rulers import Ruler, reached, tally_of_reached

FLUSH = 1 << 30  # elements after which counts move from 32 to 64 bits
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
        found = tally(some, brackets, most)
        if found is not None:
            found = tally_of_reached(found, ruler, brackets, total * ~is_reached, n_missing)
    else:  # a guess or ruler made for other data: count and tally separately
        counts = _counted(values, ruler, np.zeros_like(is_reached), 0)
        assert counts is not None
        total, equal, _, _ = counts
        found = tally(values, brackets, most)
    if found is None:
        return None
    upto = np.cumsum(total[:-1])
    # Bars may be equal if steps are finer than the elements. Only the first of equal bars has a
    # count.
    return found, upto - equal[ruler.bars.searchsorted(ruler.bars)], upto


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
    how = (bars, firsts, sizes, is_reached, most, out)
    if ruler.is_by_key:
        words = values.view(f"i{values.dtype.itemsize}")
        kernel = _compiled(_count_by_key, values.dtype)
        total, equal, n_missing, found = kernel(values, words, ruler.start, ruler.step, *how)
    else:
        kernel = _compiled(_count_by_value, values.dtype)
        near = _nearest_to_next(ruler)
        total, equal, n_missing, found = kernel(values, ruler.start, ruler.step, near, *how)
    if found < 0:
        return None
    total[0] -= n_missing
    return total, equal, n_missing, out[:found]


def _nearest_to_next(ruler: Ruler) -> Any:
    """Return the least fraction of its cell at which any bar lies, in the kernel's arithmetic.

    An element equal to a bar is at least that far into its cell. The fraction is usually close to
    1, so that hardly any other element is.
    """
    place = np.maximum((ruler.bars - ruler.start) * ruler.step, 0)
    return (place - np.trunc(place)).min()


def _count_by_value(
    x: Any,
    start: Any,
    step: Any,
    near: Any,
    bars: Any,
    firsts: Any,
    sizes: Any,
    is_reached: Any,
    most: Any,
    out: Any,
) -> Any:
    total = np.zeros(bars.size, np.int64)
    equal = np.zeros(bars.size, np.int64)
    counts = np.zeros((2, bars.size), np.int32)
    cell = np.empty(RUN, np.int32)
    marks = np.zeros(RUN, np.uint8)
    last = x.dtype.type(bars.size - 1)
    zero = x.dtype.type(0)
    n_missing = 0
    found = 0
    for begin in range(0, x.size, FLUSH):
        end = min(begin + FLUSH, x.size)
        for first in range(begin, end, RUN):
            run = x[first : min(first + RUN, end)]
            n_near = 0
            for k in range(run.size):
                place = (run[k] - start) * step
                place = place if place > zero else zero  # NaN becomes 0 too
                place = place if place < last else last
                cell[k] = np.int32(place)
                n_near += place - x.dtype.type(cell[k]) >= near
            if n_near:
                _count_equal(run, bars, cell, equal)
            n_missing += _count(run, cell, counts)
            found = _pick(run, cell, firsts, sizes, is_reached, marks, out, found)
            if found > most:
                return total, equal, n_missing, -1
        _flush(counts, total)
    return total, equal, n_missing, found


def _count_by_key(
    x: Any,
    bits: Any,
    start: Any,
    shift: Any,
    bars: Any,
    firsts: Any,
    sizes: Any,
    is_reached: Any,
    most: Any,
    out: Any,
) -> Any:
    total = np.zeros(bars.size, np.int64)
    equal = np.zeros(bars.size, np.int64)
    counts = np.zeros((2, bars.size), np.int32)
    cell = np.empty(RUN, np.int32)
    marks = np.zeros(RUN, np.uint8)
    last = np.uint64(bars.size - 1)
    by = np.uint64(shift)
    rest = (np.uint64(1) << by) - np.uint64(1)
    n_missing = 0
    found = 0
    for begin in range(0, x.size, FLUSH):
        end = min(begin + FLUSH, x.size)
        for first in range(begin, end, RUN):
            stop = min(first + RUN, end)
            run = x[first:stop]
            of_run = bits[first:stop]
            n_near = 0
            for k in range(run.size):
                key = _key(run[k], of_run[k])
                behind = np.uint64(key - start)
                place = behind >> by
                place = place if place < last else last
                cell[k] = np.int32(place if key >= start and not is_missing(run[k]) else 0)
                n_near += behind & rest == rest  # a bar is the last key of its cell
            if n_near:
                _count_equal(run, bars, cell, equal)
            n_missing += _count(run, cell, counts)
            found = _pick(run, cell, firsts, sizes, is_reached, marks, out, found)
            if found > most:
                return total, equal, n_missing, -1
        _flush(counts, total)
    return total, equal, n_missing, found


@by_types
def _key(value: Any, bits: Any) -> Any:
    """Return the key of an element from its bits as a signed integer, minus the key of zero."""
    if isinstance(value, types.Float):
        top = value.bitwidth - 1
        rest = (1 << top) - 1
        return lambda value, bits: np.int64(bits ^ ((bits >> top) & rest) if value != 0 else 0)
    if value.signed:
        return lambda value, bits: np.int64(bits)
    least = -(1 << (value.bitwidth - 1))
    return lambda value, bits: np.int64(bits ^ least)


@called_by_kernels
def _count_equal(run: Any, bars: Any, cell: Any, equal: Any) -> None:
    for k in range(run.size):
        equal[cell[k]] += run[k] == bars[cell[k]]


@called_by_kernels
def _count(run: Any, cell: Any, counts: Any) -> Any:
    """Count a run by its cells, and its missing elements.

    There are two copies of the counts, so that equal cells in a row do not wait for each other.
    """
    n_missing = 0
    for k in range(run.size):
        n_missing += is_missing(run[k])
    for k in range(0, run.size - 1, 2):
        counts[0, cell[k]] += 1
        counts[1, cell[k + 1]] += 1
    if run.size % 2:
        counts[0, cell[run.size - 1]] += 1
    return n_missing


@called_by_kernels
def _pick(
    run: Any,
    cell: Any,
    firsts: Any,
    sizes: Any,
    is_reached: Any,
    marks: Any,
    out: Any,
    found: Any,
) -> Any:
    """Append the elements of the cells in `is_reached` to those found before.

    Marks are tested eight at a time.
    """
    words = marks.view(np.uint64)
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
    for w in range(words.size):
        if words[w]:
            for k in range(8 * w, min(8 * w + 8, run.size)):
                out[found] = run[k]
                found += marks[k]
    return found


@called_by_kernels
def _flush(counts: Any, total: Any) -> None:
    for copy in range(2):
        for i in range(total.size):
            total[i] += counts[copy, i]
            counts[copy, i] = 0


@compiles
def _compiled(values: types.Array, values_out: types.Array) -> Types:
    scalar: Any = values.dtype
    signed = getattr(types, f"int{scalar.bitwidth}")
    bits = types.Array(signed, 1, "C", readonly=True)
    found: Types = {
        _count_by_key: (values, bits, types.int64, types.int64, *_ruler_types(values), values_out),
    }
    if isinstance(scalar, types.Float):
        found[_count_by_value] = (values, scalar, scalar, scalar, *_ruler_types(values), values_out)
    return found


def _ruler_types(values: types.Array) -> tuple[Any, ...]:
    """Return the Numba types of bars, ranges of cells, flags of cells, and a size."""
    cells = types.Array(types.int32, 1, "C", readonly=True)
    flags = types.Array(types.boolean, 1, "C", readonly=True)
    return values, cells, cells, flags, types.int64
