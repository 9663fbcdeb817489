"""Lanes of which some elements are left out: sorted in tiles, with what is left out behind.

For integers that is as large as the largest number, for floats it is NaN; counts tell it from
elements. So every dtype stays what it is, and no copy of a chunk is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import in_kind, to_host
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cpu import lanes as whole_lanes
from dask_gpuselect.kernels.cpu.lane_ends import ends_of_sorted
from dask_gpuselect.kernels.reference.lane_passes import tails_in_turn
from dask_gpuselect.kernels.reference.lanes import answer_group_lanes, lanes_last
from dask_gpuselect.maths import lane_cuts
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    LaneOrder,
    Lanes,
    LaneTally,
    RanksOfLanes,
    join,
    lanes_between,
    last_of,
    pick,
)
from dask_gpuselect.maths.lane_ends import Bounds, BoundsOf, LaneEnds
from dask_gpuselect.maths.tails import LaneTails, TailSizes

__all__ = [
    "answer_group_lanes",
    "answer_lanes",
    "answers_and_ends",
    "cuts",
    "lane_ends",
    "lanes",
    "parts_of",
    "tails",
    "tally",
]


def parts_of(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], axes: tuple[int, ...]
) -> list[Accompanied]:
    """The chunks as parts of lanes, on the host; see `reference.lanes.parts_of`."""
    values = whole_lanes.parts_of([np.asarray(to_host(c.values)) for c in chunks], dtype, axes)
    masks = (np.asarray(to_host(c.keeps)) if c.keeps is not None else None for c in chunks)
    kept = [None if mask is None else lanes_last(mask, axes) for mask in masks]
    return [Accompanied(*part) for part in zip(values, kept, strict=True)]


def answer_lanes(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], axes: tuple[int, ...], question: LaneOrder
) -> Any:
    """The answers for every lane; see `reference.lanes.answer_lanes`."""
    found = lanes(parts_of(chunks, dtype, axes), question.lane_ranks)
    return in_kind(question.lane_answer(found), chunks[0].values)


def answers_and_ends(
    chunks: Sequence[Accompanied],
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
        for rows, left_out in _sorted(parts_of(chunks, dtype, axes)):
            picked = pick(rows, question.lane_ranks, left_out)
            found = question.lane_answer(picked).astype(np.float64)
            answers.append(found)
            bounds = Bounds(*bounds_of(found), rows.dtype)
            yield ends_of_sorted(rows, bounds, most, left_out)

    ends = LaneEnds.of_whole_lanes(pieces())
    return np.concatenate(answers, axis=1), ends


def lanes(parts: Sequence[Accompanied], ranks: RanksOfLanes) -> Lanes:
    """The elements of some ranks among those that take part; see `reference.lanes.lanes`."""
    return join([pick(rows, ranks, left_out) for rows, left_out in _sorted(parts)])


def lane_ends(parts: Sequence[Accompanied], bounds: Bounds, most: int) -> LaneEnds:
    """What is beyond the bounds of every lane; see `reference.lanes.lane_ends`."""
    pieces, start = [], 0
    for rows, left_out in _sorted(parts):
        stop = start + len(rows)
        pieces.append(ends_of_sorted(rows, bounds[start:stop], most, left_out))
        start = stop
    return LaneEnds.joined(pieces)


def cuts(parts: Sequence[Accompanied], brackets: LaneBrackets | None, m: int) -> LaneCuts:
    """The cuts of every lane; see `reference.lane_passes.cuts`."""
    pieces, start = [], 0
    for rows, left_out in _sorted(parts):
        stop = start + len(rows)
        some = brackets and lanes_between(brackets, start, stop)
        pieces.append(lane_cuts.cuts_of_sorted(rows, some, m, left_out))
        start = stop
    return join(pieces)


def tally(parts: Sequence[Accompanied], brackets: LaneBrackets) -> LaneTally:
    """Counts of every lane at its brackets, and candidates."""
    pieces, start = [], 0
    for rows, left_out in _sorted(parts):
        stop = start + len(rows)
        some = lanes_between(brackets, start, stop)
        pieces.append(lane_cuts.tally_of_sorted(rows, some, left_out))
        start = stop
    return join(pieces)


def tails(parts: Sequence[Accompanied], sizes: TailSizes) -> LaneTails:
    """The tails of every lane; see `reference.lane_passes.tails`."""
    n_left_out = np.sum([_left_out(part) for part in parts], axis=0)
    tables = (rows for rows, _ in _sorted(parts))
    return tails_in_turn(tables, parts, sizes, n_left_out)


def _sorted(parts: Sequence[Accompanied]) -> Iterator[tuple[NDArray[Any], IntArray]]:
    """Tables of sorted lanes, and how many elements of each lane are left out."""
    left_out = np.sum([_left_out(part) for part in parts], axis=0)
    start = 0
    for rows in whole_lanes.tiles(parts, _put):
        stop = start + len(rows)
        yield whole_lanes.sort_rows(rows), left_out[start:stop]
        start = stop


def _left_out(part: Accompanied) -> IntArray:
    n_left_out = np.full(part.shape[:-1], part.shape[-1] if part.keeps is not None else 0, np.int64)
    if part.keeps is not None:
        keeps = part.keeps.view(np.uint8)
        for start in range(0, part.shape[-1], 255):  # counts in bytes: NumPy adds 32 at once
            n_left_out -= np.add.reduce(keeps[..., start : start + 255], axis=-1, dtype=np.uint8)
    return n_left_out.reshape(-1)


def _put(tile: NDArray[Any], part: Accompanied) -> None:
    """Write elements, and the last value of the dtype for those that are left out.

    By bits and without branches, and in the chunk's own layout, which the mask has too: a fifth of
    the time of a masked copy, which is worst where the mask is random.
    """
    if part.keeps is None:
        tile[...] = part.values
        return
    size = tile.dtype.itemsize
    bits = part.values.view(f"u{size}")
    is_left_out = (part.keeps.view(np.int8) - np.int8(1)).astype(f"i{size}").view(f"u{size}")
    chosen = bits ^ np.asarray(last_of(tile.dtype), tile.dtype).view(f"u{size}")
    chosen &= is_left_out
    chosen ^= bits
    tile.view(f"u{size}")[...] = chosen
