"""Load 2 of NumPy chunks: counts at the ends of brackets, and candidates, compiled by Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.scalars import is_missing
from dask_gpuselect.kernels.cpu.tree import RUN, Tree, tree_of, walk
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.candidates import Candidates
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
        cells = bars, ends, wanted, is_marked
        sums = total, equal, sizes
        n_missing, n = _tally_few(values, cells, sums, np.empty((3, RUN), np.uint8), most, out)
    else:
        tree, is_above = tree_of(ends), np.zeros(len(ends), np.bool_)
        is_wanted = np.full(len(tree[1]), wanted[-1])
        is_wanted[: len(ends)] = wanted[:-1]
        total, equal = np.zeros((2, len(is_wanted)), np.int64)
        how = len(ends), is_wanted, total, equal, np.empty(RUN, np.uint32), most, out
        n_missing, n = _tally_many(values, tree, *how)
    if n < 0:
        return None
    total[0] -= n_missing
    equal = equal[: len(ends)]
    upto = np.cumsum(total[: len(ends)]) + equal * is_above
    candidates = Candidates(out[:n].copy())
    return Tally(upto - equal, upto, candidates, values.size - n_missing, n_missing)


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


@kernel
def _tally_few(
    x: t.Values,
    cells: tuple[t.Values, t.Values, t.Flags, t.Flags],
    sums: tuple[t.Ints, t.Ints, t.Ints],
    scratch: t.ByteTable,
    most: int,
    out: t.Out,
) -> Any:
    """Compare every element with every bar, and gather the elements of wanted cells.

    All loops vectorise. Cells that are wanted or may have ties with ends are marked first; marks
    are tested eight at a time, as words.

    One comparison for each bar and one byte for each cell: 1e7 float64 at twelve ends take 19 ms.
    Comparing elements with the ends in both ways to count them, and again to mark them, takes 31.
    """
    bars, ends, wanted, is_marked = cells
    total, equal, sizes = sums
    cell, marked_cells, marks = scratch[0], scratch[1], scratch[2]
    words = marks.view(np.uint64)
    n_missing = 0
    n = 0
    for start in range(0, x.size, RUN):
        run = x[start : min(start + RUN, x.size)]
        count_bars(run, bars, cell)
        missing = 0
        for k in range(run.size):
            missing += is_missing(run[k])
        n_missing += missing
        for w in range(words.size):
            words[w] = 0
        n_marked = 0
        for j in range(wanted.size):
            size = count_equal(run.size, cell, j)
            sizes[j] = size
            total[j] += size
            if is_marked[j] and size:
                n_marked += sizes[j]
                for k in range(run.size):
                    marks[k] |= cell[k] == np.uint8(j)
        if missing:
            for k in range(run.size):
                marks[k] &= not is_missing(run[k])
        if n > most:
            return n_missing, -1
        if n_marked > MANY_MARKS:
            _unmark(run, cell, sizes, ends, wanted, equal, marks)
            n = append(run, marks, out, n)
        else:
            stop = n + append(run, marks, out[n:], 0, cell, marked_cells)
            n = _without_ends(out, n, stop, marked_cells, ends, wanted, equal)
    return n_missing, (n if n <= most else -1)


@called_by_kernels
def count_equal(n: Any, cell: Any, j: Any) -> Any:
    """Count the first n elements of a run that are in cell j."""
    size = np.uint16(0)
    for k in range(n):
        size = np.uint16(size + np.uint16(cell[k] == np.uint8(j)))
    return size


@called_by_kernels
def append(
    run: Any, marks: Any, out: Any, n: Any, beside: Any = None, out_beside: Any = None
) -> Any:
    """Write the marked elements of a run behind n others, and return their new number.

    What is beside them is written too, if anything is. Marks are tested eight at a time, as words.
    """
    words = marks.view(np.uint64)
    for w in range(words.size):
        if words[w]:
            for k in range(8 * w, min(8 * w + 8, run.size)):
                out[n] = run[k]
                if beside is not None:
                    out_beside[n] = beside[k]
                n += marks[k]
    return n


@called_by_kernels
def _without_ends(
    out: Any, begin: Any, stop: Any, cells: Any, ends: Any, wanted: Any, equal: Any
) -> Any:
    """Count the ends among the last elements, and leave only those in wanted cells."""
    n = begin
    for k in range(begin, stop):
        value = out[k]
        i = np.int64(cells[k - begin])
        is_candidate = wanted[i]
        if i < ends.size and value == ends[i]:
            equal[i] += 1
            is_candidate = False
        elif i > 0 and value == ends[i - 1]:
            equal[i - 1] += 1
            is_candidate = False
        out[n] = value
        n += is_candidate
    return n


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


@kernel
def _tally_many(
    x: t.Values,
    tree: Tree,
    n_ends: int,
    is_wanted: t.Flags,
    total: t.Ints,
    equal: t.Ints,
    cell: t.Cells,
    most: int,
    out: t.Out,
) -> Any:
    """Classify every element among the ends, as `cells._classify` does among the pivots."""
    _, ends, _ = tree
    leaf = np.uint32(ends.size)
    n_missing = 0
    n = 0
    for start in range(0, x.size, RUN):
        run = x[start : min(start + RUN, x.size)]
        walk(run, tree, cell)
        for k in range(run.size):
            n_missing += is_missing(run[k])
        for k in range(run.size):
            i = cell[k] - leaf
            is_end = run[k] == ends[i] and i < n_ends
            total[i] += 1
            equal[i] += is_end
            out[n] = run[k]
            n += is_wanted[i] and not is_end and not is_missing(run[k])
        if n > most:
            return n_missing, -1
    return n_missing, n
