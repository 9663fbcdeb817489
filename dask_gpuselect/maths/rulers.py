"""Rulers: bars at even steps, so that arithmetic finds the cell of an element.

If a guess holds, the cached part of a chunk answers all that the second load would ask. The counts
elsewhere are a precaution for a guess that fails, and a ruler makes them cheap: it is a uniform
histogram. Pivots of the chunk's own take a walk through a tree for every element: 2e6 float64 take
7.8 ms in one thread with pivots, and 2.8 with a ruler, caching included. No cell of a ruler may
have more than `COARSE` times the elements of a cell between pivots. So a guess that fails costs
candidates, but never more than that many times as many.

Steps are even in value or in the order of the keys, whichever suits the data: the former suits a
normal distribution, the latter a lognormal one. Where neither does, there is no ruler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Arrays, Brackets, Cuts, FloatArray, IntArray, Tally, covered
from dask_gpuselect.maths.finish import places_among
from dask_gpuselect.maths.keys import from_keys, to_keys, unused_key

# Largest number of elements of a cell, in units of a cell between pivots. The cuts of a chunk have
# a bar for each fourth of that.
COARSE = 16
BARS_OF_COARSE = 4
# Numbers of cells whose counters stay in the first-level cache, and in the second-level one.
SIZES = (1 << 10, 1 << 12)
# Bars are mostly within so many elements of where they should be: finding 1,024 then takes 1.1 ms,
# and 4.5 ms by bisection among all elements.
NEAR = np.uint64(16)


@dataclass(frozen=True, slots=True, eq=False)
class Ruler(Arrays):
    """Ascending bars, each the largest value of its cell.

    Parameters
    ----------
    bars : ndarray, shape (R,), dtype of the elements
        Elements behind the last bar are in one more cell.
    start : int or float
        Begin of the first cell: a value, or a key minus the key of zero.
    step : int or float
        The cell number of x is ``(x - start) * step`` if steps are even in value, in the arithmetic
        of the elements, and otherwise ``(key - start) >> step``; rounded towards zero, and at least
        0.
    is_by_key : bool
        True if steps are even in the order of the keys.
    """

    bars: NDArray[Any]
    start: Any
    step: Any
    is_by_key: bool


def ruler_of(values: NDArray[Any], shares: FloatArray, most: float) -> Ruler | None:
    """Find a ruler that is fine enough for elements of a known distribution.

    Parameters
    ----------
    values : ndarray, shape (K,)
        Ascending and distinct, of a `selection_dtype`; finite where shares are not extreme.
    shares : ndarray of float64, shape (K,)
        Approximate share of the elements that are up to each value. Ascending.
    most : float
        Largest share of the elements that a cell may hold.

    Returns
    -------
    Ruler or None
        None if there is none that is fine enough.
    """
    inner = np.searchsorted(shares, [most / 2, 1 - most / 2])
    low, high = values[np.minimum(inner, len(values) - 1)]
    for scale in scales(low, high, values.dtype):
        if _largest(scale.cells(values), shares) <= most:
            return scale.ruler()
    return None


def _largest(cells: IntArray, shares: FloatArray) -> float:
    """Find the largest share of a cell, from the cell of each value and the share up to it."""
    is_last = np.append(cells[1:] != cells[:-1], np.True_)
    return float(np.diff(shares[is_last], prepend=0.0).max())


def scales(low: Any, high: Any, dtype: np.dtype[Any]) -> Iterator[Scale]:
    """Yield possible rulers from one value to another, in the order in which they are tried."""
    if not low < high:
        return
    for n in SIZES:
        if dtype.kind == "f":
            with np.errstate(over="ignore", divide="ignore"):
                step = dtype.type(n) / (high - low)
            if np.isfinite(low) and np.isfinite(step) and step > 0:
                yield Scale(low, step, n, dtype, is_by_key=False)
        first, last = map(int, to_keys(np.array([low, high], dtype)))
        shift = max((last - first).bit_length() - n.bit_length() + 1, 0)
        if shift or dtype.kind != "f":
            start = _without_unused(first, shift, dtype)
            yield Scale(start, shift, (last - first) >> shift, dtype, is_by_key=True)


def _without_unused(first: int, shift: int, dtype: np.dtype[Any]) -> int:
    """Shift the key of the first cell if a bar would otherwise have the key of no element."""
    unused = unused_key(dtype)
    is_bar = unused is not None and (unused + 1 - first) % (1 << shift) == 0
    return first - is_bar


@dataclass(frozen=True, slots=True)
class Scale:
    """Cells of even steps in value, or in the order of the keys: see `Ruler`.

    Parameters
    ----------
    start, step : int or float
        As for a `Ruler`, but by key, `start` is the key of the first cell.
    n : int
        Number of cells.
    dtype : dtype
        Dtype of the elements.
    is_by_key : bool
    """

    start: Any
    step: Any
    n: int
    dtype: np.dtype[Any]
    is_by_key: bool

    def cells(self, values: NDArray[Any]) -> IntArray:
        """Find the cell of each value, in the arithmetic of the kernels."""
        if self.is_by_key:
            first = np.uint64(self.start)
            places = (np.maximum(to_keys(values), first) - first) >> np.uint64(self.step)
            return np.asarray(np.minimum(places, np.uint64(self.n)), np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.clip((values - self.start) * self.step, 0, self.n), np.int64)

    def ruler(self) -> Ruler:
        """Make the ruler of these cells."""
        if self.is_by_key:
            steps = np.arange(1, self.n + 1, dtype=np.uint64) << np.uint64(self.step)
            zero = 1 << (8 * self.dtype.itemsize - 1)
            bars = from_keys(self.start + steps - 1, self.dtype)
            return Ruler(bars, self.start - zero, self.step, is_by_key=True)
        # Arithmetic rounds, so bars are found by bisection among the keys. They are near the exact
        # places, and further away where elements near zero are much finer than steps.
        cells = np.arange(self.n)
        with np.errstate(over="ignore"):
            about = to_keys((self.start + (cells + 1) / self.step).astype(self.dtype))
        least, largest = to_keys(np.array([-np.inf, np.inf], self.dtype))
        low, high = np.maximum(about, least + NEAR) - NEAR, np.minimum(about + NEAR, largest)
        is_far = ~(self._is_within(low, cells) & ~self._is_within(high, cells))
        low[is_far], high[is_far] = least, largest
        while len(open_ := np.flatnonzero(high - low > 1)):
            middle = low[open_] + (high[open_] - low[open_]) // np.uint64(2)
            is_within = self._is_within(middle, cells[open_])
            low[open_[is_within]], high[open_[~is_within]] = middle[is_within], middle[~is_within]
        return Ruler(from_keys(low, self.dtype), self.start, self.step, is_by_key=False)

    def _is_within(self, keys: NDArray[np.uint64], cells: IntArray) -> NDArray[np.bool_]:
        """Return whether elements are in some cells or before them."""
        return np.asarray(self.cells(from_keys(keys, self.dtype)) <= cells)


def reached(ruler: Ruler, brackets: Brackets) -> NDArray[np.bool_]:
    """Mark the cells of a ruler that may hold a candidate or an end of some brackets.

    The last entry is the cell behind the last bar.
    """
    n = len(ruler.bars)
    cell = ruler.bars.searchsorted(brackets.ends)
    first, last = np.append(0, cell)[brackets.wanted], np.append(cell, n)[brackets.wanted]
    return covered(np.arange(n), np.append(cell, first) - 1, np.append(cell, last))


def tally_of_reached(
    tally: Tally, ruler: Ruler, brackets: Brackets, others: IntArray, n_missing: int
) -> Tally:
    """Complete the tally of a chunk's elements in cells that are `reached`.

    `others` are the numbers of valid elements in the other cells, 0 in reached ones.
    """
    before = np.append(np.int64(0), np.cumsum(others))
    shift = before[ruler.bars.searchsorted(brackets.ends)]
    return replace(
        tally,
        below=tally.below + shift,
        upto=tally.upto + shift,
        n_valid=tally.n_valid + int(before[-1]),
        n_missing=n_missing,
    )


def pivots_inside(n_pivots: int) -> int:
    """Choose how many pivots inside the brackets make as many cuts as there are without a ruler."""
    return n_pivots - n_pivots * BARS_OF_COARSE // COARSE


def ruled_cuts(
    ruler: Ruler,
    below: IntArray,
    upto: IntArray,
    brackets: Brackets,
    tally: Tally,
    inside: Cuts,
    n_pivots: int,
) -> Cuts | None:
    """Make the cuts of a chunk at bars of a ruler, at the ends of brackets and inside them.

    Parameters
    ----------
    ruler : Ruler
    below, upto : ndarray of int64
        Number of the chunk's elements below and up to each bar.
    brackets, tally : Brackets, Tally
        Brackets, and the tally of the chunk with its candidates.
    inside : Cuts
        Cuts of the candidates.
    n_pivots : int
        Number of pivots that the chunk would have without a ruler.

    Returns
    -------
    Cuts or None
        None if a cell outside of the brackets has more than `COARSE` times its share of elements.
    """
    most = COARSE * tally.n_valid // n_pivots
    bars, below, upto = _enough(ruler.bars, below, upto, -(-most // BARS_OF_COARSE))
    cell, is_end = places_among(brackets.ends, bars)
    is_outside = ~brackets.wanted[cell] & ~is_end
    shift = _shifts(brackets, tally, inside)
    pivots = np.concatenate([bars[is_outside], brackets.ends, inside.pivots])
    order = np.argsort(pivots)
    pivots = pivots[order]
    below, upto = (
        np.concatenate(parts)[order]
        for parts in (
            [below[is_outside], tally.below, inside.below + shift],
            [upto[is_outside], tally.upto, inside.upto + shift],
        )
    )
    n_between = np.append(below, tally.n_valid) - np.append(np.int64(0), upto)
    is_wanted = brackets.wanted[brackets.ends.searchsorted(pivots)]
    if (n_between[:-1][~is_wanted] > most).any() or (
        n_between[-1] > most and not brackets.wanted[-1]
    ):
        return None
    return Cuts.of_chunk(pivots, below, upto, tally.n_valid, tally.n_missing)


def _enough(
    bars: NDArray[Any], below: IntArray, upto: IntArray, step: int
) -> tuple[NDArray[Any], IntArray, IntArray]:
    """Choose bars such that about `step` elements are between neighbours."""
    targets = np.arange(0, upto[-1] + step, max(step, 1))
    places = np.unique(np.minimum(np.searchsorted(upto, targets), len(bars) - 1))
    distinct = np.append(np.True_, bars[places][1:] > bars[places][:-1])
    places = places[distinct]
    return bars[places], below[places], upto[places]


def _shifts(brackets: Brackets, tally: Tally, inside: Cuts) -> IntArray:
    """Count for each pivot among the candidates the elements before it that are no candidates."""
    before = np.append(np.int64(0), tally.upto)
    sizes = (np.append(tally.below, tally.n_valid) - before) * brackets.wanted
    cell = brackets.ends.searchsorted(inside.pivots)
    return np.asarray((before - (np.cumsum(sizes) - sizes))[cell])
