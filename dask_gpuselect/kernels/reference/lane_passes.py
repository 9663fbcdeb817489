"""Lanes that are taken in parts: what each part reports, and what reports say together. The
reference, over tables of sorted lanes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.reference.lanes import sorted_lanes
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    LaneOrder,
    LaneTally,
    bracketed,
    cuts_of_sorted,
    find_lane_brackets,
    join,
    lanes_between,
    merge_tallies,
    order_statistics,
    tally_of_sorted,
)
from dask_gpuselect.maths.tails import LaneTails, TailSizes, tails_of_sorted

__all__ = [
    "answers",
    "bracketed",
    "cuts",
    "find_lane_brackets",
    "in_turn",
    "merge_tallies",
    "order_statistics",
    "tails",
    "tails_in_turn",
    "tally",
]

Array = Any  # an array-API array
Reported = TypeVar("Reported", LaneCuts, LaneTally)


def cuts(parts: Sequence[Array], brackets: LaneBrackets | None, m: int) -> LaneCuts:
    """The cuts of every lane at `m` ranks, inside its brackets if there are any.

    Parameters
    ----------
    parts : sequence of arrays, shape (*lanes, n_i)
        As for `lanes.lanes`.
    """
    return in_turn(partial(cuts_of_sorted, m=m), sorted_lanes(parts), brackets)


def tally(parts: Sequence[Array], brackets: LaneBrackets) -> LaneTally:
    """Counts of every lane at its brackets, and candidates."""
    return in_turn(tally_of_sorted, sorted_lanes(parts), brackets)


def answers(tally: LaneTally, brackets: LaneBrackets, order: LaneOrder) -> Array | None:
    """The answers ``(n_answers, n_lanes)``, where the tally is; None where `order_statistics` finds
    them as fast on the host."""
    return None


def tails(parts: Sequence[Array], sizes: TailSizes, n_unused: IntArray | None = None) -> LaneTails:
    """The tails of every lane.

    Parameters
    ----------
    parts : sequence of arrays, shape (*lanes, n_i)
        As for `lanes.lanes`.
    sizes : TailSizes
    n_unused : ndarray of int64, shape (n_lanes,), optional
        How many of the last elements of each lane, when it is sorted, stand for none.
    """
    return tails_in_turn(sorted_lanes(parts), parts, sizes, n_unused)


def tails_in_turn(
    tables: Iterable[NDArray[Any]],
    parts: Sequence[Any],
    sizes: TailSizes,
    n_unused: IntArray | None = None,
) -> LaneTails:
    """The tails of the lanes of some parts, by tables of these lanes, sorted, one after the
    other. Scratch: none, but for what is kept."""
    n_lanes = math.prod(parts[0].shape[:-1])
    width = sizes.width(sum(part.shape[-1] for part in parts))
    counts = np.zeros((2, n_lanes), np.int64)
    kept: NDArray[Any] | None = None
    start = 0
    for rows in tables:
        some = slice(start, start + len(rows))
        found = tails_of_sorted(rows, sizes, None if n_unused is None else n_unused[some])
        if kept is None:
            kept = np.empty((n_lanes, width), rows.dtype)
        kept[some], counts[0, some], counts[1, some] = found.kept, found.n_valid, found.n_missing
        start += len(rows)
    assert kept is not None  # there is a table, of no lanes perhaps
    return LaneTails(kept, *counts)


def in_turn(
    measure: Callable[..., Reported], tables: Iterable[NDArray[Any]], brackets: LaneBrackets | None
) -> Reported:
    """What is measured of one table of lanes after the other, each with its brackets."""
    found = []
    start = 0
    for rows in tables:
        stop = start + len(rows)
        found.append(measure(rows, brackets and lanes_between(brackets, start, stop)))
        start = stop
    return join(found)
