"""Order statistics from the candidates, with the proof that each one is exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import to_host
from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import ADVICE, Brackets, ChunksChangedError, IntArray, Tally
from dask_gpuselect.maths.exact_sums import ExactSums


def order_statistics(brackets: Brackets, tally: Tally, ranks: IntArray) -> NDArray[Any]:
    """Find the elements of the given ranks.

    Parameters
    ----------
    brackets : Brackets
        Brackets of all these ranks.
    tally : Tally
        Tally of all chunks, at these brackets.
    ranks : ndarray of int64, any shape
        0-based, ``0 <= rank < tally.n_valid``.

    Returns
    -------
    ndarray, shape of `ranks`, dtype of the chunks

    Raises
    ------
    ChunksChangedError
        If a rank lies outside its bracket: load 2 read other data than load 1.

    Notes
    -----
    All counts are from load 2, so an answer that is returned is exact for the data as load 2
    read it.
    """
    borders = borders_of(tally)
    gathered = inside(tally) * brackets.wanted
    segment = _segments(borders, ranks)
    is_end = segment % 2 == 1
    is_gathered = gathered.sum() == len(tally.candidates)
    if not (is_gathered and are_gathered(brackets, tally, ranks).all()):
        raise ChunksChangedError(
            "the data have changed since the first read: wanted ranks are outside their brackets. "
            f"{ADVICE}"
        )
    before = gathered.cumsum() - gathered  # candidates before each cell
    answers = np.empty(ranks.shape, tally.candidates.dtype)
    answers[is_end] = brackets.ends[brackets.end_behind(segment[is_end] // 2)]
    within = segment[~is_end]
    places = ranks[~is_end] - borders[within] + before[within // 2]
    answers[~is_end] = tally.candidates.elements_at(places)
    return unsigned_zero(answers)


def _total(elements: Any) -> ExactSums:
    elements = to_host(elements)
    return ExactSums.of(np.zeros(len(elements), np.int64), 1, elements)


def sum_of_ranks(
    brackets: Brackets,
    tally: Tally,
    first: int,
    stop: int,
    total_of: Callable[[Any], ExactSums] = _total,
) -> ExactSums:
    """Sum the elements of ranks `first` to `stop` exactly, as far as the tally knows them.

    These are the candidates and the ends of the brackets, which must be finite at these ranks.
    Elements of cells that are not wanted are left out. One sum, in a table of one place. A kernel
    may sum the candidates: `total_of`.
    """
    borders = borders_of(tally)
    gathered = inside(tally) * brackets.wanted
    before = [int((rank - borders[::2]).clip(0, gathered).sum()) for rank in (first, stop)]
    total = total_of(tally.candidates.ordered().elements[slice(*before)])
    below, upto = (each.clip(first, stop) for each in (tally.below, tally.upto))
    ends = np.flatnonzero(upto - below)
    none = np.zeros(len(ends), np.int64)
    return total + ExactSums.of(none, 1, brackets.ends[ends], (upto - below)[ends])


def counts_at(
    brackets: Brackets, tally: Tally, values: NDArray[Any], candidates: Candidates | None = None
) -> tuple[IntArray, IntArray]:
    """Count the valid elements that are < and <= some values.

    Parameters
    ----------
    brackets, tally
        As for `order_statistics`, or the tally of a single chunk.
    values : ndarray
        Each is an end of the brackets, or lies in a cell whose elements are candidates. If the
        candidates are not sorted, the values are ascending and distinct.
    candidates : Candidates, optional
        Those of the tally, if they were sorted.
    """
    # `end` is the end at each value or the next one above. If the value is no end itself, it lies
    # in the cell before that end. Elements below the value are then those of the cells before that
    # were not gathered, those that equal an end, and the candidates below the value.
    end, is_end = places_among(brackets.ends, values)
    below, upto = (tally.candidates if candidates is None else candidates).counts(values)
    none = np.int64(0)
    gathered = (inside(tally) * brackets.wanted).cumsum()[:-1]
    behind = np.append(none, tally.upto - gathered)[end]
    below = np.where(is_end, np.append(tally.below, none)[end], behind + below)
    upto = np.where(is_end, np.append(tally.upto, none)[end], behind + upto)
    return below, upto


def places_among(ends: NDArray[Any], values: NDArray[Any]) -> tuple[IntArray, NDArray[np.bool_]]:
    """Find the open cell below each value or around it, and whether the value is an end."""
    cell = ends.searchsorted(values)
    return cell, ends.searchsorted(values, "right") > cell


def inside(tally: Tally) -> IntArray:
    """Count the elements in each cell."""
    return np.append(tally.below, tally.n_valid) - np.append(np.int64(0), tally.upto)


def are_gathered(brackets: Brackets, tally: Tally, ranks: IntArray) -> NDArray[np.bool_]:
    """Return whether the elements of these ranks are ends, or lie in wanted cells."""
    segment = _segments(borders_of(tally), ranks)
    return np.asarray((segment % 2 == 1) | brackets.wanted[segment // 2])


def _segments(borders: IntArray, ranks: IntArray) -> IntArray:
    """Find the segment that has each rank: an even number is a cell, an odd one an end."""
    return borders[1:].searchsorted(ranks, side="right")


def unsigned_zero(values: NDArray[Any]) -> NDArray[Any]:
    """Replace -0.0 by +0.0.

    Both are equal, so which of them has a given rank depends on the chunks.
    """
    return values + 0.0 if values.dtype.kind == "f" else values


def borders_of(tally: Tally) -> IntArray:
    """Compute the first rank of cell 0, of the ties of end 0, of cell 1, and so on.

    The last entry is the number of valid elements.
    """
    borders = np.zeros(2 * len(tally.below) + 2, np.int64)
    borders[1:-1:2], borders[2:-1:2], borders[-1] = tally.below, tally.upto, tally.n_valid
    return borders
