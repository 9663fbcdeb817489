"""From the candidates to the order statistics: the proof that each answer is exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import ADVICE, Brackets, ChunksChangedError, IntArray, Tally

SumsBefore = Callable[[NDArray[Any], Literal["left", "right"]], NDArray[Any]]
"""From values to a sum of all candidates that are < or <= each."""
Places = Callable[[NDArray[Any], Literal["left", "right"]], IntArray]
"""From values to how many candidates are < or <= each."""


def order_statistics(brackets: Brackets, tally: Tally, ranks: IntArray) -> NDArray[Any]:
    """The elements of the given ranks.

    Parameters
    ----------
    brackets : Brackets
        Of all these ranks.
    tally : Tally
        Of all chunks, at these brackets.
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
    The counts are load 2's alone, so an answer that is returned is exact for the data as load 2
    read it.
    """
    borders = _borders(tally)
    inside = borders[1::2] - borders[::2]  # of each cell
    segment = _segments(borders, ranks)
    is_end = segment % 2 == 1
    is_gathered = inside[brackets.wanted].sum() == len(tally.candidates)
    if not (is_gathered and is_held(brackets, tally, ranks).all()):
        raise ChunksChangedError(
            "the data have changed since the first read: wanted ranks are outside their brackets. "
            f"{ADVICE}"
        )
    held = inside * brackets.wanted
    before = held.cumsum() - held  # candidates before each cell
    answers = np.empty(ranks.shape, tally.candidates.dtype)
    answers[is_end] = brackets.ends[segment[is_end] // 2]
    within = segment[~is_end]
    places = ranks[~is_end] - borders[within] + before[within // 2]
    answers[~is_end] = tally.candidates.elements_at(places)
    return unsigned_zero(answers)


def counts_at(
    brackets: Brackets,
    tally: Tally,
    values: NDArray[Any],
    places: Places,
) -> tuple[IntArray, IntArray]:
    """How many valid elements are < and <= some values.

    Parameters
    ----------
    brackets, tally
        As for `order_statistics`, or of a chunk alone.
    values : ndarray
        Each is an end of the brackets, or in a cell that was gathered.
    places : callable
        ``(values, "left" or "right")`` to how many candidates are < or <= them.
    """
    return sums_at(brackets.ends, (tally.below, tally.upto), values, places)


def sums_at(
    ends: NDArray[Any],
    at_ends: tuple[NDArray[Any], NDArray[Any]],
    values: NDArray[Any],
    places: SumsBefore,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """As `counts_at`, of elements or of what they weigh, by the sums below and up to each end."""
    below_ends, upto_ends = at_ends
    # The end at or next above each value. If it is not the value, that is in the cell before, and
    # what is below the value is up to the cell's begin, or a candidate behind that.
    end = ends.searchsorted(values)
    is_end = ends.searchsorted(values, "right") > end
    behind = np.append(np.int64(0), upto_ends - places(ends, "right"))[end]
    none = np.int64(0)
    below = np.where(is_end, np.append(below_ends, none)[end], behind + places(values, "left"))
    upto = np.where(is_end, np.append(upto_ends, none)[end], behind + places(values, "right"))
    return below, upto


def is_held(brackets: Brackets, tally: Tally, ranks: IntArray) -> NDArray[np.bool_]:
    """Whether the elements of these ranks are at or in the brackets."""
    segment = _segments(_borders(tally), ranks)
    return np.asarray((segment % 2 == 1) | brackets.wanted[segment // 2])


def _segments(borders: IntArray, ranks: IntArray) -> IntArray:
    """The segment that holds each rank: an even number is a cell, an odd one an end."""
    return borders[1:].searchsorted(ranks, side="right")


def unsigned_zero(values: NDArray[Any]) -> NDArray[Any]:
    """The values with +0.0 for -0.0: they are equal, so which of them has a rank depends on the
    chunks."""
    return values + 0.0 if values.dtype.kind == "f" else values


def _borders(tally: Tally) -> IntArray:
    """Where, in the sorted whole, cell 0 begins, the elements equal to end 0, cell 1, those equal
    to end 1, and so on; and where all ends."""
    borders = np.zeros(2 * len(tally.below) + 2, np.int64)
    borders[1:-1:2], borders[2:-1:2], borders[-1] = tally.below, tally.upto, tally.n_valid
    return borders
