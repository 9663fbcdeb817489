"""The reference kernels: any array of the array API standard, no compiled code.

One shared test compares every fast kernel with these. They sort the chunk, so they are slower than
the kernels written for one kind of chunk, and need scratch of two chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import (
    Array,
    as_type,
    concatenate,
    is_kind,
    like,
    n_true,
    namespace,
    numpy_dtype,
    to_host,
)
from dask_gpuselect.kernels.companions import unpaired
from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.rulers import Ruler
from dask_gpuselect.maths.tables import bisected
from dask_gpuselect.maths.value_counts import ValueCounts


def elements_of(chunk: Any, dtype: np.dtype[Any]) -> tuple[Array, int]:
    """Return the elements of a chunk as the kernels take them, without NaT, and the number of NaT.

    Parameters
    ----------
    chunk : array, or Accompanied by a mask
        Elements, of any shape.
    dtype : dtype
        The dtype of the dask array.
    """
    values, keeps = unpaired(chunk)
    values = values if keeps is None else values[keeps]
    flat = namespace(values).reshape(values, (math.prod(values.shape),))
    wanted = selection_dtype(dtype)
    return (flat if numpy_dtype(values) == wanted else as_type(flat, wanted.name)), 0


def cuts(values: Array, n_pivots: int) -> Cuts:
    """Measure the cuts of a chunk at pivots at even ranks of its own, its extremes among them.

    Parameters
    ----------
    values : array, shape (n,)
        Elements of a real floating or integer dtype.
    n_pivots : int
        Number of pivots to choose, at least 1. Equal ones are merged.

    Returns
    -------
    Cuts
        Cuts of this one chunk, on the host.
    """
    return cuts_of_sorted(*_sort_valid(values), n_pivots)


def cuts_of_sorted(ordered: Array, n_missing: int, n_pivots: int) -> Cuts:
    """Measure cuts at even steps through sorted elements, from the first to the last."""
    n_valid = ordered.shape[0]
    pivots = np.unique(elements_at(ordered, even_positions(n_valid, n_pivots)))
    return Cuts.of_chunk(pivots, *_counts(ordered, pivots), n_valid, n_missing)


def value_counts(chunk: Any, dtype: np.dtype[Any]) -> ValueCounts:
    """Count every value among the elements of a chunk.

    Parameters
    ----------
    chunk : array, or Accompanied by a mask
        Elements, of any shape and of a countable dtype; see `maths.value_counts.is_countable`.
    dtype : dtype
        The dtype of the dask array.

    Returns
    -------
    ValueCounts
        Of one lane, on the host.
    """
    ordered, n_missing = _sort_valid(elements_of(chunk, dtype)[0])
    distinct = namespace(ordered).unique_counts(ordered)
    order = np.argsort(values := to_host(distinct.values))
    counts = to_host(distinct.counts).astype(np.int64)
    return ValueCounts.of_lane(unsigned_zero(values[order]), counts[order], n_missing)


def tally(values: Array, brackets: Brackets, most: int) -> Tally | None:
    """Count a chunk at the ends of `brackets` and gather its candidates.

    Parameters
    ----------
    values : array, shape (n,)
        As for `cuts`.
    brackets : Brackets
        On the host.
    most : int
        Largest number of candidates.

    Returns
    -------
    Tally or None
        On the host; None if there are more candidates than `most`.
    """
    return _tally_of_sorted(*_sort_valid(values), brackets, most)


def tally_by_ruler(
    values: Array, ruler: Ruler, brackets: Brackets, most: int
) -> tuple[Tally, IntArray, IntArray] | None:
    """Tally a chunk, and count its valid elements below and up to each bar of a ruler.

    Parameters
    ----------
    values, brackets, most
        As for `tally`.
    ruler : Ruler
        On the host.

    Returns
    -------
    tally, below, upto : Tally, ndarray of int64, ndarray of int64
        On the host. None if there are more candidates than `most`, or where `tally` and `cuts` are
        as fast.
    """
    ordered, n_missing = _sort_valid(values)
    tally_ = _tally_of_sorted(ordered, n_missing, brackets, most)
    return None if tally_ is None else (tally_, *_counts(ordered, ruler.bars))


def _tally_of_sorted(ordered: Array, n_missing: int, brackets: Brackets, most: int) -> Tally | None:
    n_valid = ordered.shape[0]
    below, upto = _counts(ordered, brackets.ends)
    starts = np.append(np.int64(0), upto)[brackets.wanted]
    stops = np.append(below, np.int64(n_valid))[brackets.wanted]
    if int((stops - starts).sum()) > most:
        return None
    pieces = [slice(0, 0), *map(slice, starts.tolist(), stops.tolist())]
    candidates = Candidates(_joined(ordered, pieces))
    return Tally(below, upto, candidates, n_valid, n_missing)


def tally_in_place(values: Array, brackets: Brackets, most: int, ranks: Any = None) -> Tally | None:
    """Tally an array by its own backend; candidates may leave its device here."""
    answer: Tally | None = backend_for(values).selection.tally(values, brackets, most)
    return answer


merged = Tally.merge


HEAVY = 4  # a cell of more than this many times its share is split again


def heavy_cells(
    below: IntArray, upto: IntArray, n_valid: int, share: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Find the open cells that hold more than `HEAVY` times their share, from counts at the pivots.

    Also returns the number of elements inside and before every cell.
    """
    before = np.append(np.int64(0), upto)
    inside = np.append(below, n_valid) - before
    # Without a pivot, because the sample had no valid element, the only cell is heavy.
    return np.flatnonzero(inside > (HEAVY * share if len(below) else 0)), inside, before


def with_heavy_split(
    sampled: Cuts, n_pivots: int, cuts_inside: Callable[[IntArray, IntArray, int], Sequence[Cuts]]
) -> Cuts:
    """Divide the cells of a chunk that hold more than `HEAVY` times their share of its elements.

    `cuts_inside` maps the numbers of these cells, their sizes and a share to the cuts of the
    elements inside each.
    """
    n_valid, n_missing = int(sampled.n_valid[0]), int(sampled.n_missing[0])
    share = max(n_valid // n_pivots, 1)
    heavy, inside, before = heavy_cells(sampled.below, sampled.upto, n_valid, share)
    if len(heavy) == 0:
        return sampled
    within = cuts_inside(heavy, inside[heavy], share)
    parts = [(sampled, np.int64(0)), *zip(within, before[heavy], strict=True)]
    pivots = np.concatenate([part.pivots for part, _ in parts])
    below = np.concatenate([part.below + shift for part, shift in parts])
    upto = np.concatenate([part.upto + shift for part, shift in parts])
    order = np.argsort(pivots)
    return Cuts.of_chunk(pivots[order], below[order], upto[order], n_valid, n_missing)


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


def even_positions(n: int, count: int) -> IntArray:
    """Return at most `count` distinct positions at even steps over ``range(n)``, with both ends."""
    if n <= count:
        return np.arange(n, dtype=np.int64)
    # Exact in Python's integers, whatever n.
    steps = max(count - 1, 1)
    return np.array([i * (n - 1) // steps for i in range(count)], dtype=np.int64)


def elements_at(array: Array, places: IntArray) -> NDArray[Any]:
    """Return some elements of a one-dimensional array, on the host."""
    return np.asarray(to_host(namespace(array).take(array, like(places, array))))


def valid_in(
    ordered: Array, parts_of: Callable[[int], Sequence[slice]]
) -> tuple[NDArray[Any], int]:
    """Return some elements of an ascending array, on the host, and the number of valid ones.

    NaN come last in the array.

    Parameters
    ----------
    ordered : array
        Elements, ascending.
    parts_of : callable
        Maps a number of valid elements to the slices to return. The last element of the last slice
        must be the last valid one: one copy then also tells whether there are NaN.
    """
    xp, size = namespace(ordered), ordered.shape[0]
    elements = _joined(ordered, parts_of(size))
    if not (size and elements.dtype.kind == "f" and np.isnan(elements[-1])):
        return elements, size
    size -= n_true(xp.isnan(ordered))
    return _joined(ordered, parts_of(size)), size


def _joined(array: Array, parts: Sequence[slice]) -> NDArray[Any]:
    return np.asarray(to_host(concatenate([array[part] for part in parts], axis=0)))


def places_of(ordered: Array, values: NDArray[Any], side: Literal["left", "right"]) -> IntArray:
    """Count elements of a sorted array below, or up to, each value, as `numpy.searchsorted` does.

    Values are compared on the host, because CuPy flushes subnormal float32 to zero, in as many
    steps as the number of elements has bits.
    """
    size, is_before = ordered.shape[0], np.less if side == "left" else np.less_equal

    def goes_on(places: IntArray) -> NDArray[np.bool_]:
        return np.asarray(is_before(elements_at(ordered, np.minimum(places, size - 1)), values))

    return bisected(np.zeros(len(values), np.int64), np.full(len(values), size), goes_on)


def _counts(ordered: Array, values: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Count the elements of a sorted array below, and up to, each value."""
    xp = namespace(ordered)
    wanted = like(values, ordered)
    below, upto = (xp.searchsorted(ordered, wanted, side=side) for side in ("left", "right"))
    return to_host(below).astype(np.int64), to_host(upto).astype(np.int64)


def _sort_valid(values: Array) -> tuple[Array, int]:
    """Sort the valid elements; return them and the number of NaN."""
    xp = namespace(values)
    n_missing = 0
    if is_kind(values, "real floating"):
        is_missing = xp.isnan(values)
        n_missing = n_true(is_missing)
        if n_missing:
            values = values[~is_missing]
    return xp.sort(values), n_missing
