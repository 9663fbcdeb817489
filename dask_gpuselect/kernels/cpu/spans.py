"""Load 2 of NumPy chunks: counts at the ends of brackets, and candidates, compiled by Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import (
    Types,
    called_by_kernels,
    compiles,
    types,
    until_compiled,
)
from dask_gpuselect.kernels.cpu.scalars import is_missing
from dask_gpuselect.kernels.cpu.tree import RUN, tree_of, walk
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.candidates import HostCandidates
from dask_gpuselect.maths.cuts import Brackets, Tally

FEW_ENDS = 24  # ends up to which comparing every element with all of them is faster than the tree
MANY_MARKS = 64  # marked elements of a run, above which ends are sorted out by vectors


@until_compiled(reference.tally)
def tally(values: NDArray[Any], brackets: Brackets, most: int) -> Tally | None:
    """Count elements at the ends and gather candidates; see `reference.selection.tally`.

    Scratch: `most` elements.
    """
    out = np.empty(most + RUN, values.dtype)
    ends, wanted = brackets.ends, brackets.wanted
    if len(ends) <= FEW_ENDS:
        bars, is_above = bars_of(ends, wanted)
        is_marked = wanted.copy()
        is_marked[np.arange(len(ends)) + is_above] = True
        total, sizes = np.zeros((2, len(wanted)), np.int64)
        equal = np.zeros(len(ends), np.int64)
        cell, held, marks = np.empty((3, RUN), np.uint8)
        words = marks.view(np.uint64)
        n_missing, found = _compiled(_tally_few, values.dtype)(
            values,
            bars,
            ends,
            wanted,
            is_marked,
            total,
            equal,
            sizes,
            cell,
            held,
            marks,
            words,
            most,
            out,
        )
        upto = np.cumsum(total[:-1]) + equal * is_above
        below = upto - equal
    else:
        tree, padded, levels = tree_of(ends)
        is_wanted = np.full(len(padded), wanted[-1])
        is_wanted[: len(ends)] = wanted[:-1]
        total, equal = np.zeros((2, len(padded)), np.int64)
        n_missing, found = _compiled(_tally_many, values.dtype)(
            values,
            tree,
            padded,
            levels,
            len(ends),
            is_wanted,
            total,
            equal,
            np.empty(RUN, np.uint32),
            most,
            out,
        )
        total[0] -= n_missing
        upto = np.cumsum(total[: len(ends)])
        below = upto - equal[: len(ends)]
    if found < 0:
        return None
    candidates = HostCandidates(out[:found].copy())
    return Tally(below, upto, candidates, values.size - n_missing, n_missing)


def bars_of(
    ends: NDArray[Any], wanted: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return bars such that the number of them below an element is the element's cell.

    An element that equals an end falls in the cell below it if that is wanted, and otherwise in the
    cell above. Also returns for each end whether it is the cell above.
    """
    is_float = ends.dtype.kind == "f"
    least = -np.inf if is_float else np.iinfo(ends.dtype).min
    is_above = ~wanted[:-1] & (ends > least)
    with np.errstate(over="ignore", under="ignore"):  # -inf and subnormal results are right
        before = np.nextafter(ends, ends.dtype.type(least)) if is_float else ends - (ends > least)
    return np.where(is_above, before, ends).astype(ends.dtype), is_above


# As in `cells`, kernels get the arrays that they write to as arguments.


def _tally_few(
    x: Any,
    bars: Any,
    ends: Any,
    wanted: Any,
    is_marked: Any,
    total: Any,
    equal: Any,
    sizes: Any,
    cell: Any,
    held: Any,
    marks: Any,
    words: Any,
    most: int,
    out: Any,
) -> Any:
    """Compare every element with every bar, and gather the elements of wanted cells.

    All loops vectorise. Cells that are wanted or may have ties with ends are marked first; marks
    are tested eight at a time, as words.

    One comparison for each bar and one byte for each cell: 1e7 float64 at twelve ends take 19 ms.
    Comparing elements with the ends in both ways to count them, and again to mark them, takes 31.
    """
    n_missing = 0
    found = 0
    for start in range(0, x.size, RUN):
        run = x[start : min(start + RUN, x.size)]
        count_bars(run, bars, cell)
        missing = 0
        for k in range(run.size):
            missing += is_missing(run[k])
        n_missing += missing
        total[0] -= missing
        for w in range(words.size):
            words[w] = 0
        n_marked = 0
        for j in range(wanted.size):
            size = np.uint16(0)
            for k in range(run.size):
                size = np.uint16(size + np.uint16(cell[k] == np.uint8(j)))
            sizes[j] = size
            total[j] += size
            if is_marked[j] and size:
                n_marked += sizes[j]
                for k in range(run.size):
                    marks[k] |= cell[k] == np.uint8(j)
        if missing:
            for k in range(run.size):
                marks[k] &= not is_missing(run[k])
        if found > most:
            return n_missing, -1
        if n_marked > MANY_MARKS:
            _unmark(run, cell, sizes, ends, wanted, equal, marks)
            for w in range(words.size):
                if words[w]:
                    for k in range(8 * w, min(8 * w + 8, run.size)):
                        out[found] = run[k]
                        found += marks[k]
            continue
        begin = found
        for w in range(words.size):
            if words[w]:
                for k in range(8 * w, min(8 * w + 8, run.size)):
                    out[found] = run[k]
                    held[found - begin] = cell[k]
                    found += marks[k]
        found = _without_ends(out, begin, found, held, ends, wanted, equal)
    if found > most:
        return n_missing, -1
    return n_missing, found


@called_by_kernels
def _without_ends(
    out: Any, begin: Any, found: Any, cells: Any, ends: Any, wanted: Any, equal: Any
) -> Any:
    """Count the ends among the elements of a run, and keep only the elements in wanted cells."""
    kept = begin
    for k in range(begin, found):
        value = out[k]
        i = np.int64(cells[k - begin])
        is_kept = wanted[i]
        if i < ends.size and value == ends[i]:
            equal[i] += 1
            is_kept = False
        elif i > 0 and value == ends[i - 1]:
            equal[i - 1] += 1
            is_kept = False
        out[kept] = value
        kept += is_kept
    return kept


@called_by_kernels
def _unmark(
    run: Any, cell: Any, sizes: Any, ends: Any, wanted: Any, equal: Any, marks: Any
) -> None:
    """Count elements that equal an end, and unmark them and the elements of unwanted cells."""
    for j in range(ends.size):
        if sizes[j] or sizes[j + 1]:
            end = ends[j]
            size = np.uint16(0)
            for k in range(run.size):
                is_end = run[k] == end
                size = np.uint16(size + np.uint16(is_end))
                marks[k] &= not is_end
            equal[j] += size
    for j in range(wanted.size):
        if sizes[j] and not wanted[j]:
            for k in range(run.size):
                marks[k] &= cell[k] != np.uint8(j)


@called_by_kernels
def count_bars(run: Any, bars: Any, cell: Any) -> None:
    """Count the bars below each element, six bars at a time in registers."""
    for k in range(cell.size):
        cell[k] = np.uint8(0)
    n = bars.size // 6 * 6
    for j in range(0, n, 6):
        p1 = bars[j]
        p2 = bars[j + 1]
        p3 = bars[j + 2]
        p4 = bars[j + 3]
        p5 = bars[j + 4]
        p6 = bars[j + 5]
        for k in range(run.size):
            v = run[k]
            count = np.uint8(v > p1) + np.uint8(v > p2) + np.uint8(v > p3)
            count += np.uint8(v > p4) + np.uint8(v > p5) + np.uint8(v > p6)
            cell[k] = np.uint8(cell[k] + count)
    for j in range(n, bars.size):
        bar = bars[j]
        for k in range(run.size):
            cell[k] = np.uint8(cell[k] + np.uint8(run[k] > bar))


def _tally_many(
    x: Any,
    tree: Any,
    ends: Any,
    levels: Any,
    n_ends: int,
    is_wanted: Any,
    total: Any,
    equal: Any,
    cell: Any,
    most: int,
    out: Any,
) -> Any:
    """Classify every element among the ends, as `cells._classify` does among the pivots."""
    leaf = np.uint32(ends.size)
    n_missing = 0
    found = 0
    for start in range(0, x.size, RUN):
        run = x[start : min(start + RUN, x.size)]
        walk(run, tree, ends, levels, cell)
        for k in range(run.size):
            n_missing += is_missing(run[k])
        for k in range(run.size):
            i = cell[k] - leaf
            is_end = run[k] == ends[i] and i < n_ends
            total[i] += 1
            equal[i] += is_end
            out[found] = run[k]
            found += is_wanted[i] and not is_end and not is_missing(run[k])
        if found > most:
            return n_missing, -1
    return n_missing, found


@compiles
def _compiled(values: types.Array, values_out: types.Array) -> Types:
    flags, size = types.Array(types.boolean, 1, "C", readonly=True), types.int64
    numbers, marks = types.Array(types.int64, 1, "C"), types.Array(types.uint8, 1, "C")
    words, cell = types.Array(types.uint64, 1, "C"), types.Array(types.uint32, 1, "C")
    scratch = (numbers, numbers, numbers, marks, marks, marks, words)
    return {
        _tally_few: (values, values, values, flags, flags, *scratch, size, values_out),
        _tally_many: (
            values,
            values,
            values,
            size,
            size,
            flags,
            numbers,
            numbers,
            cell,
            size,
            values_out,
        ),
    }
