"""The layout of lanes in memory, and the wanted ranks, as records for ``lanes.cuh``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from dask_gpuselect.kernels.companions import MOST_STACKED, ChunkColumn
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.launch import (
    MOST_BLOCKS,
    Array,
    filled,
    launch,
    most_shared,
    to_share,
)
from dask_gpuselect.maths.lane_cuts import LaneOrder

STACK = source.record("lanes.cuh", "Stack")
WANTED = source.record("lanes.cuh", "Wanted")


class Part(NamedTuple):
    """A chunk as (outer, rows, inner) dimensions; strides are in elements."""

    chunk: Array
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]

    def with_lanes_inside(self) -> Part:
        """Return a part whose inner lanes are its outer ones; it has no others."""
        (n_outer, n, _), (outer, row, _) = self.shape, self.strides
        return Part(self.chunk, (1, n, n_outer), (0, row, outer))

    def rows(self, lanes: Array) -> Array:
        """Copy some lanes, each to a row."""
        strides = tuple(stride * self.chunk.itemsize for stride in self.strides)
        whole = cupy.lib.stride_tricks.as_strided(self.chunk, self.shape, strides)
        return whole[lanes // self.shape[2], :, lanes % self.shape[2]]


def parts_in_three(chunks: Sequence[Array], axes: tuple[int, ...]) -> list[Part]:
    ndim = chunks[0].ndim
    if not axes:  # every element is a lane
        chunks, axes, ndim = [chunk[..., None] for chunk in chunks], (ndim,), ndim + 1
    if axes[-1] - axes[0] >= len(axes):  # other axes lie between the reduced ones
        left = [axis for axis in range(ndim) if axis not in axes]
        chunks = [cupy.ascontiguousarray(chunk.transpose(*left, *axes)) for chunk in chunks]
        axes = tuple(range(len(left), ndim))
    if len(chunks) > MOST_STACKED:
        # Joined along the first of the axes: the chunks have all of the others.
        joined = [_as_rows(chunk, axes) for chunk in chunks]
        chunks, axes = [cupy.concatenate(joined, axis=1)], (1,)
    parts = [_part(chunk, axes) or _part(cupy.ascontiguousarray(chunk), axes) for chunk in chunks]
    return [part for part in parts if part is not None and part.shape[1]]


def _as_rows(chunk: Array, axes: tuple[int, ...]) -> Array:
    shape = chunk.shape
    outer, inner = math.prod(shape[: axes[0]]), math.prod(shape[axes[-1] + 1 :])
    return chunk.reshape(outer, math.prod(shape[axes[0] : axes[-1] + 1]), inner)


def _part(chunk: Array, axes: tuple[int, ...]) -> Part | None:
    """Return a chunk as a `Part`; None if one of its three dimensions would have uneven strides."""
    groups = (range(axes[0]), axes, range(axes[-1] + 1, chunk.ndim))
    even = [_even([(chunk.shape[i], chunk.strides[i]) for i in group]) for group in groups]
    if None in even:
        return None
    sizes, strides = zip(*even, strict=True)
    return Part(chunk, sizes, tuple(stride // chunk.itemsize for stride in strides))


def _even(dimensions: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Merge dimensions into one, and return its size and stride; None if strides are uneven."""
    dimensions = [(size, stride) for size, stride in dimensions if size != 1]
    for (_, wide), (size, stride) in zip(dimensions, dimensions[1:], strict=False):
        if wide != size * stride:
            return None
    return math.prod(size for size, _ in dimensions), dimensions[-1][1] if dimensions else 0


def marked_lanes(flags: Array, n: int, most: int) -> Iterator[Array]:
    """Yield numbers of flagged lanes of n elements, those of about `most` elements together."""
    lanes, step = cupy.flatnonzero(flags), max(1, most // n)
    for start in range(0, len(lanes), step):
        yield lanes[start : start + step]


def numbers_of_rows(table: Array) -> Array:
    """Return the number of the row of each element of a table, int32."""
    n_rows, n = table.shape
    return cupy.repeat(cupy.arange(n_rows, dtype=np.int32), n).reshape(n_rows, n)


class LaneStack(NamedTuple):
    """The lanes of some chunks, and the record that describes them to kernels."""

    parts: list[Part]
    record: Any

    @classmethod
    def of(cls, column: ChunkColumn) -> LaneStack:
        """Stack the lanes of a column whose chunks are not all empty."""
        parts = parts_in_three(column.chunks, column.axes)
        if source.are_side_by_side([(part.shape, part.strides) for part in parts]):
            parts = [part.with_lanes_inside() for part in parts]
        outer, _, inner = parts[0].shape
        stops = np.cumsum([part.shape[1] for part in parts])
        sides = {"n_inner": inner, "n_lanes": outer * inner, "n": stops[-1], "one": 1}
        record = filled(STACK, n_parts=len(parts), **sides)
        for row, part, stop in zip(record["parts"], parts, stops, strict=False):
            row["data"], row["stop"] = part.chunk.data.ptr, stop
            row["outer"], row["row"], row["inner"] = part.strides
        return cls(parts, record)

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.parts[0].chunk.dtype
        return dtype

    @property
    def n(self) -> int:
        """The number of elements of a lane."""
        return int(self.record["n"])

    @property
    def n_lanes(self) -> int:
        return int(self.record["n_lanes"])

    @property
    def is_side_by_side(self) -> bool:
        return bool(self.record["n_inner"] > 1)

    def kernel(self, **how: int) -> source.LaneKernel | None:
        """Choose the kernel that reads lanes of this length and layout once, tile by tile.

        None if they are too long, or have more tiles than a grid has blocks. `source.lane_kernel`
        takes the other arguments.
        """
        shared, dtype = most_shared(cupy.cuda.Device().id), self.dtype
        is_beside = self.is_side_by_side
        kernel = source.lane_kernel(dtype, self.n, shared, side_by_side=is_beside, **how)
        return None if kernel is None or self.n_tiles(kernel) > MOST_BLOCKS else kernel

    def n_tiles(self, kernel: source.LaneKernel) -> int:
        """Return how many tiles of lanes a kernel takes, one by each block."""
        return -(-self.n_lanes // kernel.lanes)

    def start(
        self,
        kernel: source.LaneKernel,
        *arguments: Any,
        n_tiles: int = 0,
        defined: source.Defined = (),
    ) -> None:
        """Start a kernel with a block for each tile: the device then balances their load."""
        blocks = min(n_tiles or self.n_tiles(kernel), MOST_BLOCKS)
        masked = source.KEEPS if self.record["has_missing"] else ()
        made = (("IN_PARTS", int(len(self.parts) > 1)), *masked, *defined, *kernel.defined)
        how: dict[str, Any] = {"shared": kernel.shared, "blocks": blocks, "defined": made}
        launch(self.dtype, kernel.name, self.record, *arguments, **how)


def wanted_of(question: LaneOrder, first_v: int, n: int) -> tuple[Any, tuple[Array, ...]]:
    """Describe the wanted ranks of lanes of `first_v` to n valid elements.

    Also returns the tables that the record points to, which must live until it is used.
    """
    ranks, weights = tables = tables_of(question, first_v, n, cupy.cuda.Device().id)
    about = {name: getattr(question, name) for name in ("n_answers", "mixes", "skips_missing")}
    return filled(WANTED, ranks=ranks, weights=weights, first_v=first_v, **about), tables


# Cached, because lanes of one size come repeatedly; floats have a row for every number of valid
# elements.
@lru_cache(maxsize=16)
def tables_of(question: LaneOrder, first_v: int, n: int, device: int) -> tuple[Array, Array]:
    """Return ranks and weights of the answers on the device; see `Wanted` of ``lanes.cuh``."""
    counts = np.arange(first_v, n + 1)
    wanted = question.wanted_of_lanes(np.maximum(counts, 1))
    shape = (question.n_answers, len(counts))
    lower, upper, weight = (np.broadcast_to(values, shape).T for values in wanted)
    ranks = np.stack([lower, upper], axis=-1)
    return to_share((cupy.array(ranks, np.int32, order="C"), cupy.array(weight, order="C")))
