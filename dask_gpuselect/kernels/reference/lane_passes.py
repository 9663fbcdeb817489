"""Lanes that are read in parts: the partial result of each part, and how they are merged.

The reference, over tables of sorted lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.maths import lane_cuts, lane_weights
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    Lanes,
    LaneTally,
    join,
    lanes_between,
)
from dask_gpuselect.maths.lane_cuts import bracketed as bracketed
from dask_gpuselect.maths.lane_cuts import find_lane_brackets as find_lane_brackets
from dask_gpuselect.maths.lane_cuts import merge_tallies as merge_tallies
from dask_gpuselect.maths.sorted_lanes import SortedLanes, cuts_of_sorted, tally_of_sorted
from dask_gpuselect.maths.tails import LaneTails, TailSizes, tails_of_sorted

Array = Any  # an array-API array


def cuts(parts: Sequence[Array], brackets: Any | None, m: int) -> Any:
    """Measure the cuts of every lane at `m` ranks, inside its brackets if given.

    Parameters
    ----------
    parts : sequence of arrays, shape (*lanes, n_i)
        As for `lanes.sorted_lanes`.
    brackets : LaneBrackets, or those by weight, optional
        Brackets of an earlier pass.
    m : int
        Number of even ranks.
    """
    return in_turn(partial(cuts_of_sorted, m=m), _sorted_lanes(parts), brackets)


def tally(parts: Sequence[Array], brackets: Any) -> Any:
    """Tally every lane at its brackets, with candidates."""
    return in_turn(tally_of_sorted, _sorted_lanes(parts), brackets)


def _sorted_lanes(parts: Sequence[Array]) -> Iterator[SortedLanes]:
    """Yield tables of sorted lanes as the backend of the parts does; see `lanes.sorted_lanes`."""
    answer: Iterator[SortedLanes] = backend_for(parts[0]).lanes.sorted_lanes(parts)
    return answer


def answers(*_: Any, **__: Any) -> None:
    """Answer a question from a tally, ``(n_answers, n_lanes)``, on the tally's device.

    None where `order_statistics` is as fast on the host.
    """


def order_statistics(tally: LaneTally, brackets: LaneBrackets) -> Lanes:
    """Find the elements that are wanted, by count or by weight, as the tally proves them."""
    find = lane_cuts.order_statistics if tally.weights is None else lane_weights.answers_of_tally
    return find(tally, brackets)


def merge_cuts(parts: Sequence[LaneCuts], m: int) -> LaneCuts:
    """Merge the cuts of several parts of lanes into cuts at `m` ranks; see `lane_cuts.merge`."""
    if parts[0].weight is not None:
        return lane_weights.merge(parts, m)
    return lane_cuts.merge(parts, m, backend_for(parts).lane_passes.bracketed)


def narrowed(parts: Sequence[LaneCuts], brackets: LaneBrackets | None, order: Any) -> LaneBrackets:
    """Find the brackets that the cuts of a pass prove, inside those of the pass before if any.

    See `lane_cuts.find_lane_brackets`, `lane_cuts.narrow` and `lane_weights.narrowed`.
    """
    if parts[0].weight is not None:
        return lane_weights.narrowed(parts, brackets, order.wanted)
    own = backend_for(parts).lane_passes
    if brackets is None:
        answer: LaneBrackets = own.find_lane_brackets(parts, order.lane_ranks)
        return answer
    return lane_cuts.narrow(parts, brackets, own.bracketed)


def tails(
    parts: Sequence[Array], known: Any, sizes: TailSizes, n_unused: IntArray | None = None
) -> LaneTails:
    """Return the tails of every lane: its least and largest elements.

    Parameters
    ----------
    parts : sequence of arrays, shape (*lanes, n_i)
        As for `lanes.sorted_lanes`.
    known : object
        Ignored: what is known of the lanes before the load.
    sizes : TailSizes
        Sizes of the tails.
    n_unused : ndarray of int64, shape (n_lanes,), optional
        Number of the last elements of each sorted lane that are padding.

    Notes
    -----
    Sorting lanes of 300 float32 takes 1.1 ns an element where NumPy sorts by wide vectors, whatever
    their order; `numpy.partition` takes 1.3. Scratch: a tile and the tails.
    """

    def measure(table: SortedLanes, n_unused: IntArray | None) -> LaneTails:
        if n_unused is not None:
            table = SortedLanes.of_rows(table.values, n_unused)
        return tails_of_sorted(table, sizes)

    answer: LaneTails = in_turn(measure, _sorted_lanes(parts), n_unused)
    return answer


def merge_tails(parts: Sequence[LaneTails], sizes: TailSizes) -> LaneTails:
    """Merge the tails of several parts of lanes."""
    if len(parts) == 1:
        return parts[0]
    n_unused = np.sum([part.n_unused for part in parts], axis=0)
    merged = tails([part.elements for part in parts], None, sizes, n_unused)
    return LaneTails(merged.elements, *lane_cuts.known_of_all(parts))


def in_turn(measure: Callable[..., Any], tables: Iterable[Any], known: Any | None) -> Any:
    """Measure consecutive tables of lanes, each with what is known of them, and join the results.

    `known` may be brackets, or an array with a row for each lane.
    """
    pieces = []
    start = 0
    for table in tables:
        stop = start + len(table.values if isinstance(table, SortedLanes) else table)
        own = None if known is None else lanes_between(known, start, stop)
        pieces.append(measure(table, own))
        start = stop
    return join(pieces)
