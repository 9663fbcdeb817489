"""Lanes that are taken in parts: what each part reports, and what reports say together. The
reference, over tables of sorted lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from numpy.typing import NDArray

from dask_gpuselect.kernels.reference.lanes import sorted_lanes
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    LaneTally,
    bracketed,
    cuts_of_sorted,
    join,
    lanes_between,
    merge_tallies,
    tally_of_sorted,
)

__all__ = ["bracketed", "cuts", "in_turn", "merge_tallies", "tally"]

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
