"""Lanes of NumPy chunks: sorted in tiles that stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import until_compiled
from dask_gpuselect.kernels.cpu import few, long_lanes, narrow
from dask_gpuselect.kernels.cpu.lane_ends import ends_of_sorted
from dask_gpuselect.kernels.reference.lanes import (
    answer_group_lanes,
    answer_only_lane,
    box_lanes,
    lanes_last,
)
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import LaneOrder, Lanes, RanksOfLanes, join, pick
from dask_gpuselect.maths.lane_ends import Bounds, BoundsOf, LaneEnds

__all__ = [
    "answer_group_lanes",
    "answer_lanes",
    "answer_only_lane",
    "answers_and_ends",
    "box_lanes",
    "deviations",
    "lane_ends",
    "lanes",
    "parts_of",
    "sorted_lanes",
    "tiles",
]

TILE = 1 << 19  # bytes of lanes that are sorted together


def parts_of(
    chunks: Sequence[NDArray[Any]], dtype: np.dtype[Any], axes: tuple[int, ...]
) -> list[NDArray[Any]]:
    """The chunks as parts of lanes; see `reference.lanes.parts_of`. Dates stay dates, for NumPy
    sorts NaT to the end, as it does NaN."""
    native = dtype.newbyteorder("=")
    wanted = native if dtype.kind in "Mm" else selection_dtype(dtype)
    return [
        lanes_last(chunk.astype(native, copy=False).astype(wanted, copy=False), axes)
        for chunk in chunks
    ]


def lanes(parts: Sequence[NDArray[Any]], ranks: RanksOfLanes) -> Lanes:
    """The elements of some ranks in every lane; see `reference.lanes.lanes`.

    Lanes are copied side by side into a tile that stays in the cache, and sorted there by NumPy's
    vectorised sort, which puts NaN and NaT last and lets go of the GIL. Lanes that are long for the
    number of their ranks are narrowed by samples instead. Lanes of few elements are sorted side by
    side, and integers of one and two bytes by counting. Scratch: the tile, or three lanes if that
    is more.
    """
    if few.is_few(parts):
        return few.lanes(parts, ranks)
    n = sum(part.shape[-1] for part in parts)
    dtype = parts[0].dtype
    if dtype.kind not in "Mm" and n and not narrow.is_narrow(dtype):
        n_answers = len(ranks(np.array([n]))[0])
        if long_lanes.is_selected_faster(n, dtype.itemsize, n_answers):
            return join([_selected(rows, ranks) for rows in tiles(parts)])
    return join([pick(sort_rows(rows), ranks) for rows in tiles(parts)])


def _sorted_and_picked(rows: NDArray[Any], ranks: RanksOfLanes) -> Lanes:
    return pick(sort_rows(rows), ranks)


@until_compiled(_sorted_and_picked)
def _selected(rows: NDArray[Any], ranks: RanksOfLanes) -> Lanes:
    return long_lanes.select(rows, ranks, long_lanes.SEED)[0]


def answer_lanes(
    chunks: Sequence[NDArray[Any]],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    question: LaneOrder,
) -> NDArray[Any]:
    """The answers for every lane; see `reference.lanes.answer_lanes`. Scratch as for `lanes`."""
    parts = parts_of(chunks, dtype, axes)
    if few.is_few(parts):
        return few.answer_lanes(parts, question)
    return question.lane_answer(lanes(parts, question.lane_ranks))


def answers_and_ends(
    chunks: Sequence[NDArray[Any]],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    question: LaneOrder,
    bounds_of: BoundsOf,
    most: int,
) -> tuple[NDArray[np.float64], LaneEnds]:
    """The answers for every lane, and what is beyond bounds that they make; see
    `reference.lanes.answers_and_ends`. Lanes are sorted once."""
    answers = []

    def pieces() -> Iterator[LaneEnds]:
        for rows in sorted_lanes(parts_of(chunks, dtype, axes)):
            found = question.lane_answer(pick(rows, question.lane_ranks)).astype(np.float64)
            answers.append(found)
            yield ends_of_sorted(rows, Bounds(*bounds_of(found), rows.dtype), most)

    ends = LaneEnds.of_whole_lanes(pieces())
    return np.concatenate(answers, axis=1), ends


def sorted_lanes(parts: Sequence[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Tables of sorted lanes; see `reference.lanes.sorted_lanes`. Scratch as for `lanes`."""
    if few.is_few(parts):
        return few.sorted_tiles(parts)
    return map(sort_rows, tiles(parts))


def lane_ends(parts: Sequence[NDArray[Any]], bounds: Bounds, most: int) -> LaneEnds:
    """What is beyond the bounds of every lane; see `reference.lanes.lane_ends`.

    Lanes are sorted: then their ends are where they are looked for. Scratch: as for `lanes`, and
    what is kept.
    """
    pieces = []
    start = 0
    for rows in sorted_lanes(parts):
        pieces.append(ends_of_sorted(rows, bounds[start : start + len(rows)], most))
        start += len(rows)
    return LaneEnds.joined(pieces)


def sort_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """The rows sorted, in place, with NaN and NaT last."""
    if narrow.is_narrow(rows.dtype):
        narrow.sort_rows(rows)
    else:
        rows.sort(axis=-1)
    return rows


def tiles(
    parts: Sequence[Any], put: Callable[[NDArray[Any], Any], None] = np.copyto
) -> Iterator[NDArray[Any]]:
    """All lanes in tables with a row for each, the next in the memory of the one before.

    Parameters
    ----------
    parts : sequence of parts
        As of `reference.lanes.lanes`, or whatever `put` takes.
    put : callable
        ``(tile, piece of a part)``: writes the piece into its place.
    """
    shape = parts[0].shape[:-1]
    n = sum(part.shape[-1] for part in parts)
    dtype = parts[0].dtype
    most = max(1, TILE // max(n * dtype.itemsize, 1))
    memory = np.empty(min(most, math.prod(shape)) * n, dtype)
    if not math.prod(shape):
        yield memory.reshape(0, n)
        return
    for place in few.slabs(shape, most):
        slab = parts[0][place].shape[:-1]
        tile = memory[: math.prod(slab) * n].reshape(*slab, n)
        start = 0
        for part in parts:
            stop = start + part.shape[-1]
            put(tile[..., start:stop], part[place])
            start = stop
        yield tile.reshape(math.prod(slab), n)


def deviations(chunk: NDArray[Any], centre: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The distances of elements from the centres of their lanes; see
    `reference.lanes.deviations`. Scratch: one copy of the chunk, which is the answer."""
    with np.errstate(over="ignore", invalid="ignore"):
        distances: NDArray[Any] = chunk.astype(dtype, copy=False) - centre
    np.abs(distances, out=distances)
    np.copyto(distances, 0, where=~np.isfinite(centre))
    return distances
