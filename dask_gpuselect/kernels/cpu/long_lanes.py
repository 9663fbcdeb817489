"""Few ranks of long lanes, found by NumPy's vectorised partition."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes

LEAST = 320
"""Elements of a lane from which NumPy finds a rank faster than it sorts: 1,095 float32 take 2.9 ns
an element instead of 4.9, 3,650 float64 3.8 instead of 9, and 365 float32 as long with AVX-512."""


def is_selected_faster(n: int, n_answers: int) -> bool:
    """Return whether selecting the answers of lanes of n elements is faster than sorting them."""
    return n >= LEAST * n_answers**2


def select(rows: NDArray[Any], ranks: RanksOfLanes) -> Lanes:
    """Find the elements of some ranks in every row of a table; may reorder the rows.

    Rows with equally many valid elements are taken together.
    """
    n = rows.shape[1]
    n_valid = np.full(len(rows), n, np.int64)
    if rows.dtype.kind == "f":
        touched = np.flatnonzero(np.isnan(np.max(rows, axis=1)))  # less than counting in all
        some = rows[touched]
        is_missing = np.isnan(some)
        n_valid[touched] -= np.count_nonzero(is_missing, axis=1)
        some[is_missing] = np.nan  # `np.fmin` passes no others over: of a signalling one it is NaN
        rows[touched] = some
    sizes, own = np.unique(n_valid, return_inverse=True)
    order = np.argsort(own, kind="stable")
    some = rows if len(sizes) == 1 else rows[order]
    lower, upper = ranks(np.maximum(sizes, 1))
    pair = np.empty((2, len(rows), len(lower)), rows.dtype)
    start = 0
    every = lower.T.tolist(), upper.T.tolist()
    for size, *wanted in zip(np.bincount(own).tolist(), *every, strict=True):
        stop = start + size
        _find(some[start:stop], *wanted, *pair[:, start:stop])
        start = stop
    pair[:, order] = pair.copy()
    return Lanes(pair[0], pair[1], n_valid, n - n_valid)


def _find(
    rows: NDArray[Any], lower: list[int], upper: list[int], first: NDArray[Any], last: NDArray[Any]
) -> None:
    """Find the elements of two ranks for each answer; the second is that of the first or the next.

    NaN are moved behind the others.
    """
    places = sorted(set(lower))
    divide(rows, places)
    for answer, (low, high) in enumerate(zip(lower, upper, strict=True)):
        first[:, answer] = last[:, answer] = rows[:, low]
        if high > low:
            stop = min((place for place in places if place > low), default=rows.shape[1])
            last[:, answer] = np.fmin.reduce(rows[:, high : max(stop, high + 1)], axis=1)


def divide(rows: NDArray[Any], places: list[int]) -> None:
    """Put the elements of some places, ascending, where they are in sorted rows.

    Elements that are not greater come before each of them.
    """
    if places:
        half = len(places) // 2
        middle = places[half]
        rows.partition(middle, axis=-1)
        divide(rows[..., :middle], places[:half])
        divide(rows[..., middle + 1 :], [place - middle - 1 for place in places[half + 1 :]])
