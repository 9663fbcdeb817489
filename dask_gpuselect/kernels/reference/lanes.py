"""Lanes: the elements of some ranks in each, and the elements beyond bounds. The reference.

Chunks with masks or weights are handled on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import (
    Array,
    as_float64,
    as_type,
    concatenate,
    is_kind,
    like,
    namespace,
    numpy_dtype,
    to_host,
)
from dask_gpuselect.kernels.companions import ChunkColumn, with_companions
from dask_gpuselect.kernels.cpu import lanes as host
from dask_gpuselect.kernels.reference.at_once import answer_group_lanes as answer_group_lanes
from dask_gpuselect.kernels.reference.at_once import answer_only_lane as answer_only_lane
from dask_gpuselect.kernels.reference.at_once import box_alone as box_alone
from dask_gpuselect.kernels.reference.at_once import box_lanes as box_lanes
from dask_gpuselect.kernels.reference.at_once import lanes_last
from dask_gpuselect.kernels.reference.moments import moments_of_rows
from dask_gpuselect.maths.cuts import IntArray, extremes_of
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import LaneOrder, Lanes, RanksOfLanes, join
from dask_gpuselect.maths.lane_ends import Bounds, BoundsOf, LaneEnds, Outermost
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.sorted_lanes import SortedLanes, pick

TILE = 1 << 22  # elements that are handled together, each as about fifteen float64


@with_companions(host.parts_of)
def parts_of(column: ChunkColumn) -> list[Array]:
    """Return the chunks of a column as parts of lanes, with the reduced axes joined as the last.

    Their dtype sorts fast, in the same order, and converts exactly both ways.
    """
    chunks, dtype, axes = column
    wanted = selection_dtype(dtype)
    return [
        lanes_last(chunk if numpy_dtype(chunk) == wanted else as_type(chunk, wanted.name), axes)
        for chunk in chunks
    ]


@with_companions(host.answer_lanes)
def answer_lanes(column: ChunkColumn, question: LaneOrder) -> Array:
    """Answer a question for every lane, ``(n_answers, n_lanes)``, of the kind of the chunks.

    Parameters
    ----------
    column : ChunkColumn
        The lanes.
    question : LaneOrder
        The order statistics to find.
    """
    answer = question.lane_answer(lanes(parts_of(column), question.lane_ranks))
    return like(answer, column.chunks[0])


@with_companions(host.answers_and_ends)
def answers_and_ends(
    column: ChunkColumn,
    question: LaneOrder,
    bounds_of: BoundsOf,
    most: int,
    answer: Callable[..., Array] = answer_lanes,
    ends_of: Callable[..., LaneEnds] | None = None,
) -> tuple[NDArray[np.float64], LaneEnds]:
    """Answer a question for every lane, and collect the elements beyond bounds from the answers.

    Both results are on the host.

    Parameters
    ----------
    column, question
        As for `answer_lanes`.
    bounds_of : callable
        Makes bounds from the answers; see `lane_ends.BoundsOf`.
    most : int
        Largest number of elements to collect of each side of a lane.
    answer, ends_of : callable, optional
        `answer_lanes` and `lane_ends` of another backend.
    """
    answers = to_host(answer(column, question)).astype(np.float64)
    bounds = np.stack(bounds_of(answers))
    return answers, (ends_of or lane_ends)(parts_of(column), bounds, most)


@with_companions(host.lanes)
def lanes(parts: Sequence[Array], ranks: RanksOfLanes) -> Lanes:
    """Find the elements of some ranks in every lane.

    Parameters
    ----------
    parts : sequence of arrays, shape (*lanes, n_i)
        The elements of each lane are those of all parts, in any order.
    ranks : callable
        See `lane_cuts.RanksOfLanes`.

    Returns
    -------
    Lanes
        In C order of the lanes.
    """
    return join([pick(table, ranks) for table in sorted_lanes(parts)])


@with_companions(host.sorted_lanes)
def sorted_lanes(parts: Sequence[Array]) -> Iterator[SortedLanes]:
    """Yield tables on the host whose rows are lanes, each sorted with NaN and NaT last.

    Parameters
    ----------
    parts : sequence of arrays
        As for `lanes`.

    Yields
    ------
    SortedLanes
        The next lanes in C order; at least one table. The next one may overwrite it.
    """
    whole = concatenate(parts, -1) if len(parts) > 1 else parts[0]
    ordered = np.asarray(to_host(namespace(whole).sort(whole, axis=-1)))
    yield SortedLanes.of_rows(ordered.reshape(math.prod(ordered.shape[:-1]), ordered.shape[-1]))


@with_companions(host.lane_ends)
def lane_ends(
    parts: Sequence[Array],
    bounds: Bounds,
    most: int,
    widened: Callable[[Array], Array] = as_float64,
    moments_of: Callable[[Array], Moments] = moments_of_rows,
) -> LaneEnds:
    """Collect the elements beyond the bounds of every lane.

    Parameters
    ----------
    parts : sequence of arrays, shape (*lanes, n_i)
        As for `lanes`.
    bounds : Bounds
        Bounds of the lanes, in C order.
    most : int
        Largest number of elements to collect of each side.
    widened : callable
        Converts elements to float64, subnormal ones exactly.
    moments_of : callable, optional
        Sums every row of a table exactly; by default on the host.

    Returns
    -------
    LaneEnds
        On the host.
    """
    n = sum(part.shape[-1] for part in parts)
    whole = concatenate(parts, -1) if len(parts) > 1 else parts[0]
    rows = namespace(whole).reshape(whole, (math.prod(whole.shape[:-1]), n))
    step = max(1, TILE // max(n, 1))
    pieces = [
        _ends_of_rows(
            rows[i : min(i + step, rows.shape[0]), ...],  # ends beyond a row are NumPy's alone
            bounds[:, i : i + step],
            most,
            widened,
            moments_of,
        )
        for i in range(0, max(rows.shape[0], 1), step)
    ]
    ends: LaneEnds = join(pieces)
    return ends


def _ends_of_rows(
    rows: Array,
    bounds: Bounds,
    most: int,
    widened: Callable[[Array], Array],
    moments_of: Callable[[Array], Moments],
) -> LaneEnds:
    xp = namespace(rows)
    values = widened(rows)
    low, high = (like(bound, rows)[:, None] for bound in bounds)
    is_valid = values == values
    is_low, is_high = values < low, values > high
    least, largest = extremes_of(numpy_dtype(rows))
    n_valid, n_low, n_high = (_counted(mask) for mask in (is_valid, is_low, is_high))

    n = rows.shape[1]

    # In float64, because CuPy flushes subnormal float32 to zero.
    exact = values if is_kind(rows, "real floating") else rows

    def nearest(mask: Array, other: Any, find: Callable[..., Array]) -> NDArray[Any]:
        if n == 0:
            return np.full(len(n_valid), other)
        extremes = find(xp.where(mask, exact, other.item()), axis=1)
        return np.asarray(to_host(extremes), other.dtype)

    beyond_low, beyond_high = (
        Outermost.of(
            count,
            np.repeat(np.arange(len(count)), count),
            to_host(rows[mask]),
            most,
            is_high=is_upper,
        )
        for mask, count, is_upper in ((is_low, n_low, False), (is_high, n_high, True))
    )
    return LaneEnds(
        n_valid,
        n - n_valid,
        np.zeros_like(n_valid),
        n_valid,
        nearest(is_valid, largest, xp.min),
        nearest(is_valid, least, xp.max),
        nearest(values >= low, largest, xp.min),
        nearest(values <= high, least, xp.max),
        beyond_low,
        beyond_high,
        moments_of(rows),
    )


def _counted(mask: Array) -> IntArray:
    return np.asarray(to_host(namespace(mask).sum(as_type(mask, "int64"), axis=1)), np.int64)


def deviations(chunk: Array, centre: Array, dtype: np.dtype[Any]) -> Array:
    """Return the distances of elements from the centres of their lanes, in the given dtype.

    They are 0 where a centre is not finite.
    """
    xp, wide = namespace(chunk), as_type(chunk, dtype.name)
    with np.errstate(over="ignore", invalid="ignore"):  # for namespaces that use NumPy
        distances = xp.abs(wide - centre)
    return xp.where(xp.isfinite(centre), distances, xp.zeros_like(distances))
