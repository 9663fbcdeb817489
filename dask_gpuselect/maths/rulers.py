"""A ruler: values at even steps, so that arithmetic tells between which of them an element lies.

A chunk that has kept what the second load may ask knows all that is needed, if the guess at which
it was kept holds. What it counts elsewhere is a precaution. Pivots of its own would take a walk
through a tree for every element: 2e6 float64 take 7.8 ms by one thread, and 2.8 by a ruler, with
what is kept. No
cell between the bars of a ruler may hold more than `COARSE` times what one between pivots does, so
a guess that fails costs candidates, and never more than that many times as many.

Steps are even in value or in the order of the keys, whichever suits the data: a normal distribution
wants the one, a lognormal the other. Where neither does, there is no ruler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Arrays, Brackets, Cuts, FloatArray, IntArray, Tally
from dask_gpuselect.maths.kept import places_among
from dask_gpuselect.maths.keys import from_keys, to_keys, unused_key

# A cell holds so many times what one between pivots does, at most. The report of a chunk has a
# bar for each fourth of that.
COARSE = 16
BARS_OF_COARSE = 4
# Counters of so many cells stay in the first-level cache, and in the second-level one.
SIZES = (1 << 10, 1 << 12)
# Bars are mostly within so many elements of where they should be: to find 1,024 takes 1.1 ms then,
# and 4.5 by bisection among all elements.
NEAR = np.uint64(16)


@dataclass(frozen=True, slots=True, eq=False)
class Ruler(Arrays):
    """Bars that ascend, each the largest value of its cell.

    Parameters
    ----------
    bars : ndarray, shape (R,), dtype of the elements
        Those behind the last one are in one cell more.
    start : int or float
        Of the first cell: a value, or a key less that of zero.
    step : int or float
        The number of the cell of x is ``(x - start) * step`` if steps are even in value, in the
        arithmetic of the elements, and otherwise ``(key - start) >> step``; rounded towards zero,
        and at least 0.
    is_by_key : bool
        Which of these.
    """

    bars: NDArray[Any]
    start: Any
    step: Any
    is_by_key: bool


def ruler_of(values: NDArray[Any], shares: FloatArray, most: float) -> Ruler | None:
    """A ruler for elements of which about a share is up to each of some values.

    Parameters
    ----------
    values : ndarray, shape (K,)
        Ascending and distinct, of a `selection_dtype`; finite where shares are not extreme.
    shares : ndarray of float64, shape (K,)
        Ascending.
    most : float
        The largest share that a cell may hold.

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
    """The largest share of a cell, by the cell of each value and the share up to it."""
    is_last = np.append(cells[1:] != cells[:-1], np.True_)
    return float(np.diff(shares[is_last], prepend=0.0).max())


def scales(low: Any, high: Any, dtype: np.dtype[Any]) -> Iterator[ByValue | ByKey]:
    """What rulers from one value to another there are, in the order in which they are tried."""
    if not low < high:
        return
    for n in SIZES:
        if dtype.kind == "f":
            with np.errstate(over="ignore", divide="ignore"):
                step = dtype.type(n) / (high - low)
            if np.isfinite(low) and np.isfinite(step) and step > 0:
                yield ByValue(low, step, n)
        first, last = map(int, to_keys(np.array([low, high], dtype)))
        shift = max((last - first).bit_length() - n.bit_length() + 1, 0)
        if shift or dtype.kind != "f":
            yield ByKey(_without_unused(first, shift, dtype), shift, (last - first) >> shift, dtype)


def _without_unused(first: int, shift: int, dtype: np.dtype[Any]) -> int:
    """The key of a first cell such that no bar has the key that belongs to no element."""
    unused = unused_key(dtype)
    is_bar = unused is not None and (unused + 1 - first) % (1 << shift) == 0
    return first - is_bar


@dataclass(frozen=True, slots=True)
class ByValue:
    """Cells of even steps in value: see `Ruler`."""

    start: Any
    step: Any
    n: int

    def cells(self, values: NDArray[Any]) -> IntArray:
        """The cell of each value, in the arithmetic of the kernels."""
        with np.errstate(over="ignore", invalid="ignore"):
            place = np.clip((values - self.start) * self.step, 0, self.n)
        found: IntArray = place.astype(np.int64)
        return found

    def ruler(self) -> Ruler:
        # Arithmetic rounds, so bars are found by bisection among the keys: about where they should
        # be, and further away where elements near zero are much finer than steps.
        cells = np.arange(self.n)
        with np.errstate(over="ignore"):
            about = to_keys((self.start + (cells + 1) / self.step).astype(self.start.dtype))
        least, largest = to_keys(np.array([-np.inf, np.inf], self.start.dtype))
        low, high = np.maximum(about, least + NEAR) - NEAR, np.minimum(about + NEAR, largest)
        is_far = ~(self._is_within(low, cells) & ~self._is_within(high, cells))
        low[is_far], high[is_far] = least, largest
        while len(open_ := np.flatnonzero(high - low > 1)):
            middle = low[open_] + (high[open_] - low[open_]) // np.uint64(2)
            is_within = self._is_within(middle, cells[open_])
            low[open_[is_within]], high[open_[~is_within]] = middle[is_within], middle[~is_within]
        return Ruler(from_keys(low, self.start.dtype), self.start, self.step, is_by_key=False)

    def _is_within(self, keys: NDArray[np.uint64], cells: IntArray) -> NDArray[np.bool_]:
        """Whether elements are in some cells or before them."""
        found: NDArray[np.bool_] = self.cells(from_keys(keys, self.start.dtype)) <= cells
        return found


@dataclass(frozen=True, slots=True)
class ByKey:
    """Cells of even steps in the order of the keys: see `Ruler`."""

    first: int
    shift: int
    n: int
    dtype: np.dtype[Any]

    def cells(self, values: NDArray[Any]) -> IntArray:
        keys = np.maximum(to_keys(values), np.uint64(self.first)) - np.uint64(self.first)
        place = np.minimum(keys >> np.uint64(self.shift), np.uint64(self.n))
        found: IntArray = place.astype(np.int64)
        return found

    def ruler(self) -> Ruler:
        ends = self.first + (np.arange(1, self.n + 1, dtype=np.uint64) << np.uint64(self.shift)) - 1
        zero = 1 << (8 * self.dtype.itemsize - 1)
        return Ruler(from_keys(ends, self.dtype), self.first - zero, self.shift, is_by_key=True)


def reached(ruler: Ruler, brackets: Brackets) -> NDArray[np.bool_]:
    """Which cells of a ruler, and the one behind it, may hold a candidate or an end of some
    brackets."""
    n = len(ruler.bars)
    cell = ruler.bars.searchsorted(brackets.ends)
    first, last = np.append(0, cell)[brackets.wanted], np.append(cell, n)[brackets.wanted]
    begun = np.bincount(np.concatenate([cell, first]), minlength=n + 1)
    ended = np.bincount(np.concatenate([cell, last]) + 1, minlength=n + 2)[:-1]
    found: NDArray[np.bool_] = np.cumsum(begun - ended) > 0
    return found


def tally_of_reached(
    tally: Tally, ruler: Ruler, brackets: Brackets, others: IntArray, n_missing: int
) -> Tally:
    """The tally of a chunk at some brackets, by that of its elements in cells that are `reached`,
    and how many valid ones there are in each of the others."""
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
    """How many pivots a chunk has inside the brackets, so that with the bars it has as many as
    without a ruler."""
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
    """The cuts of a chunk at bars of a ruler, at the ends of some brackets and inside these.

    Parameters
    ----------
    below, upto : ndarray of int64
        How many of its elements are below and up to each bar.
    brackets, tally : Brackets, Tally
        Of the chunk, with its candidates.
    inside : Cuts
        Of the candidates.
    n_pivots : int
        How many the chunk would have of its own.

    Returns
    -------
    Cuts or None
        None if a cell outside of the brackets holds more than `COARSE` times its share.
    """
    most = COARSE * tally.n_valid // n_pivots
    bars, below, upto = _enough(ruler.bars, below, upto, -(-most // BARS_OF_COARSE))
    cell, is_end = places_among(brackets.ends, bars)
    is_outside = ~brackets.wanted[cell] & ~is_end
    shift, distance = _shifts(brackets, tally, inside)
    parts = (
        [bars[is_outside], brackets.ends, inside.pivots],
        [below[is_outside], tally.below, inside.below + shift],
        [upto[is_outside], tally.upto, inside.upto + shift],
        [np.full(is_outside.sum(), np.nan), np.full(len(brackets.ends), np.nan), distance],
        [np.full(is_outside.sum(), np.nan), np.full(len(brackets.ends), np.nan), inside.slack],
    )
    pivots, below, upto, distance, slack = map(np.concatenate, parts)
    order = np.argsort(pivots)
    pivots, below, upto = pivots[order], below[order], upto[order]
    held = np.append(below, tally.n_valid) - np.append(np.int64(0), upto)
    is_wanted = brackets.wanted[brackets.ends.searchsorted(pivots)]
    if (held[:-1][~is_wanted] > most).any() or (held[-1] > most and not brackets.wanted[-1]):
        return None
    return Cuts.of_chunk(
        pivots,
        below,
        upto,
        distance[order],
        tally.n_valid,
        tally.n_missing,
        slack=slack[order],
    )


def _enough(
    bars: NDArray[Any], below: IntArray, upto: IntArray, step: int
) -> tuple[NDArray[Any], IntArray, IntArray]:
    """As many of the bars as are needed so that about `step` elements are between two of them."""
    targets = np.arange(0, upto[-1] + step, max(step, 1))
    places = np.unique(np.minimum(np.searchsorted(upto, targets), len(bars) - 1))
    distinct = np.append(np.True_, bars[places][1:] > bars[places][:-1])
    places = places[distinct]
    return bars[places], below[places], upto[places]


def _shifts(brackets: Brackets, tally: Tally, inside: Cuts) -> tuple[IntArray, FloatArray]:
    """For each pivot among the candidates how many elements before it are none, and the distance of
    its cell, which is unknown where that begins at the end of a bracket."""
    before = np.append(np.int64(0), tally.upto)
    sizes = (np.append(tally.below, tally.n_valid) - before) * brackets.wanted
    cell = brackets.ends.searchsorted(inside.pivots)
    is_first = np.append(np.True_, cell[1:] != cell[:-1])[: len(cell)]
    shift = before - (np.cumsum(sizes) - sizes)
    return shift[cell], np.where(is_first, np.nan, inside.distance)
