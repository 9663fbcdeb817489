"""Load 2 of NumPy chunks: counts or weights at the ends of brackets, and candidates, by Numba.

One kernel measures elements by their number, and one by their weight: see `_measuring`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import (
    Kernel,
    by_types,
    called_by_kernels,
    kernel,
    renamed,
    types,
    until_compiled,
)
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.moments import CARRY_EVERY, MASK, carry, whole_of
from dask_gpuselect.kernels.cpu.scalars import append, is_missing
from dask_gpuselect.kernels.cpu.tree import RUN, Tree, tree_of, walk
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import Brackets, Tally
from dask_gpuselect.maths.exact_sums import TOTAL_DIGITS, TOTAL_POINT, ExactSums

# Ends up to which comparing every element with all of them is faster than the tree: for elements
# that are counted, and for those that are weighed, whose places are needed too.
FEW_ENDS, FEW_TO_WEIGH_AT = 24, 8


@until_compiled(reference.tally)
def tally(values: NDArray[Any], brackets: Brackets, most: int) -> Tally | None:
    """Count elements at the ends and gather candidates; see `reference.selection.tally`.

    Scratch: `most` elements.
    """
    return tally_by(_count, values, np.empty(0), brackets, most)


def tally_by(
    measure: Kernel,
    values: NDArray[Any],
    weights: NDArray[np.float64],
    brackets: Brackets,
    most: int,
) -> Tally | None:
    """Tally elements by a kernel that `_measuring` has made; without weights, these are empty."""
    n_ends, weighs = len(brackets.ends), measure is weigh
    # A row for each cell and for the ends between them. The last row is for elements that equal the
    # tree's padding; they belong to the last cell. Columns hold the number of elements and the
    # digits of their weight, or the numbers at even and at odd places: with one number, each
    # addition would wait for the one before on constant data.
    sums = np.zeros((2 * n_ends + 2, 1 + TOTAL_DIGITS if weighs else 2), np.int64)
    wanted = np.repeat(brackets.wanted, 2)
    wanted[1:-1:2] = False
    out, own = np.empty(most + RUN, values.dtype), np.empty((most + RUN) * weighs)
    scratch = np.empty(RUN, np.uint32), np.empty(RUN, np.uint8), np.empty((4, RUN), np.int64)
    at = tree_of(brackets.ends), n_ends, wanted
    n = measure(values, weights, *at, sums, scratch, most, (out, own))
    if n < 0:
        return None
    sums[-2] += sums[-1]
    counts = sums[:-1, 0] if weighs else sums[:-1].sum(axis=1)
    of_weights = ExactSums.of_table(sums[:-1, 1:], TOTAL_POINT) if weighs else None
    of_candidates = Candidates(out[:n].copy()), own[:n].copy()
    return Tally.of_segments(counts, of_weights, *of_candidates, values.size - int(counts.sum()))


# Kernels get the arrays that they write to as arguments. Allocating arrays inside them, and
# operations on whole arrays, would take Numba a third of a kernel's compile time.


def _measuring(name: str, few: int, *, weighs: bool) -> Kernel:
    """Make a kernel that measures elements at ends, and gathers those of wanted cells.

    Up to `few` ends are compared with every element; more are found by the tree.
    """
    odd = 0 if weighs else 1

    def measure(
        x: t.Values,
        weights: t.Reals,
        tree: Tree,
        n_ends: int,
        wanted: t.Flags,
        sums: t.IntTable,
        scratch: tuple[t.Cells, t.MarksOut, t.IntTable],
        most: int,
        out: tuple[t.Out, t.Floats],
    ) -> Any:
        _, ends, _ = tree
        (place, marks, parts), (values, own), n = scratch, out, 0
        leaf, gathers = np.uint32(ends.size), wanted.any()
        for start in range(0, x.size, RUN):
            run = x[start : min(start + RUN, x.size)]
            own_weights = weights[start : start + run.size] if weighs else weights
            n_missing = count_missing(run)
            if 0 < n_ends <= few:
                marks[:] = 0
                _compare(run, ends[:n_ends], run.size - n_missing, wanted, sums, marks)
                if weighs:
                    _count_passed(run, ends[:n_ends], place)
                    n = append(run, marks, values, n, own_weights, own)
                else:
                    n = append(run, marks, values, n)
            else:
                walk(run, tree, place)  # to the leaves
                for k in range(run.size):
                    at = place[k] - leaf
                    i = np.uint32(2) * at + np.uint32(run[k] == ends[at])
                    place[k] = i
                    sums[i, k & odd] += 1
                for k in range(run.size if gathers else 0):
                    values[n] = run[k]
                    if weighs:
                        own[n] = own_weights[k]
                    n += wanted[place[k]] & (not is_missing(run[k]))
                sums[0, 0] -= n_missing
            if n > most:
                return -1
            if weighs:
                if start % CARRY_EVERY == 0:
                    for row in sums:
                        carry(row[1:])
                _add_weights(own_weights, place, sums, parts)
        return n

    return kernel(renamed(measure, name))


_count = _measuring("_count", FEW_ENDS, weighs=False)
weigh = _measuring("_weigh", FEW_TO_WEIGH_AT, weighs=True)


@called_by_kernels
def _compare(run: Any, ends: Any, n_valid: Any, wanted: Any, sums: Any, marks: Any) -> None:
    """Count the elements of a run in its cells and at the ends, and mark those of wanted cells.

    Every element is compared with every end, in loops that vectorise.
    """
    before = 0
    for j in range(ends.size + 1):
        below = upto = n_valid
        if j < ends.size:
            below, upto = count_at(run, ends[j])
            sums[2 * j + 1, 0] += upto - below
        sums[2 * j, 0] += below - before
        if wanted[2 * j] and below > before:
            low, high = ends[max(j - 1, 0)], ends[min(j, ends.size - 1)]
            is_first, is_last = j == 0, j == ends.size
            for k in range(run.size):
                v = run[k]
                marks[k] |= ((v > low) | is_first) & ((v < high) | is_last)
        before = upto


@called_by_kernels
def count_at(run: Any, end: Any) -> Any:
    """Count the elements of a run below and up to an end."""
    below = upto = _as_wide(False, end)
    for k in range(run.size):
        below = _plus(below, run[k] < end)
        upto = _plus(upto, run[k] <= end)
    return np.int64(below), np.int64(upto)


@by_types
def _as_wide(flag: Any, value: Any) -> Any:
    """Return a flag as an integer as wide as an element, so that vectors add what they compare."""
    wide = getattr(types, f"uint{max(value.bitwidth, 16)}")
    return lambda flag, value: wide(flag)


@by_types
def _plus(number: Any, flag: Any) -> Any:
    """Count a flag, without making the number wider."""
    wide = number
    return lambda number, flag: wide(number + wide(flag))


@called_by_kernels
def count_missing(run: Any) -> Any:
    n_missing = _as_wide(False, run[0])
    for k in range(run.size):
        n_missing = _plus(n_missing, is_missing(run[k]))
    return np.int64(n_missing)


@called_by_kernels
def _count_passed(run: Any, ends: Any, place: Any) -> None:
    """Find the place of each element among cells and ends, by comparing it with the ends."""
    for k in range(run.size):
        place[k] = np.uint32(0)
    for j in range(ends.size):
        end = ends[j]
        for k in range(run.size):
            place[k] += np.uint32(run[k] > end) + np.uint32(run[k] >= end)


@called_by_kernels
def _add_weights(weights: Any, place: Any, sums: Any, parts: Any) -> None:
    """Add the weights of a run to the sums of their places.

    A weight has three digits, which vector instructions find first. Weights cut into pieces, which
    a block of elements adds up as integers, took a tenth less here: too little to be told in the
    time of a quantile.
    """
    bits, flat = weights.view(np.int64), sums.reshape(-1)
    low, middle, high, first = parts[0], parts[1], parts[2], parts[3]
    for k in range(weights.size):
        whole, begin = whole_of(bits[k])
        shift = begin & 31
        below, above = (whole & MASK) << shift, (whole >> 32) << shift
        low[k], middle[k], high[k] = below & MASK, (below >> 32) + (above & MASK), above >> 32
        first[k] = np.int64(place[k]) * (1 + TOTAL_DIGITS) + 1 + (begin >> 5)
    for k in range(weights.size):
        i = np.uint64(first[k])
        flat[i] += low[k]
        flat[i + np.uint64(1)] += middle[k]
        flat[i + np.uint64(2)] += high[k]
