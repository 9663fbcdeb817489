"""Lanes: the elements of some ranks in each, and the elements beyond bounds. The reference.

Chunks with masks or weights are handled on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dask_gpuselect.arrays import Array, as_type, concatenate, like, namespace, numpy_dtype, to_host
from dask_gpuselect.kernels.companions import ChunkColumn, with_companions
from dask_gpuselect.kernels.cpu import lanes as host
from dask_gpuselect.kernels.reference.at_once import lanes_last
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import LaneOrder, join
from dask_gpuselect.maths.lane_ends import Bounds, LaneEnds
from dask_gpuselect.maths.sorted_lanes import SortedLanes, pick

answers_and_ends = host.answers_and_ends  # whatever the kind of the chunks


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
    tables = sorted_lanes(parts_of(column))
    order = join([pick(table, question.lane_ranks) for table in tables])
    return like(question.lane_answer(order), column.chunks[0])


@with_companions(host.sorted_lanes)
def sorted_lanes(parts: Sequence[Array]) -> Iterator[SortedLanes]:
    """Yield tables on the host whose rows are lanes, each sorted with NaN and NaT last.

    Parameters
    ----------
    parts : sequence of arrays, shape (*lanes, n_i)
        The elements of each lane are those of all parts, in any order.

    Yields
    ------
    SortedLanes
        The next lanes in C order; at least one table. The next one may overwrite it.
    """
    whole = concatenate(parts, -1) if len(parts) > 1 else parts[0]
    ordered = np.asarray(to_host(namespace(whole).sort(whole, axis=-1)))
    yield SortedLanes.of_rows(ordered.reshape(math.prod(ordered.shape[:-1]), ordered.shape[-1]))


@with_companions(host.lane_ends)
def lane_ends(parts: Sequence[Array], bounds: Bounds, most: int) -> LaneEnds:
    """Collect the elements beyond the bounds of every lane, on the host.

    Parameters
    ----------
    parts : sequence of arrays, shape (*lanes, n_i)
        As for `sorted_lanes`.
    bounds : Bounds
        Bounds of the lanes, in C order.
    most : int
        Largest number of elements to collect of each side.
    """
    return host.lane_ends([np.asarray(to_host(part)) for part in parts], bounds, most)


def deviations(chunk: Array, centre: Array, dtype: np.dtype[Any]) -> Array:
    """Return the distances of elements from the centres of their lanes, in the given dtype.

    They are 0 where a centre is not finite.
    """
    xp, wide = namespace(chunk), as_type(chunk, dtype.name)
    with np.errstate(over="ignore", invalid="ignore"):  # for namespaces that use NumPy
        distances = xp.abs(wide - centre)
    return xp.where(xp.isfinite(centre), distances, xp.zeros_like(distances))
