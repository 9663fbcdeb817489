"""Find how the lanes of an array lie in the grid of its chunks, and how both divide into parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dask_gpuselect.engine.source import DaskArray


def other_axes(x: DaskArray, axes: tuple[int, ...]) -> list[int]:
    """Return the axes along which an array is not reduced."""
    return [axis for axis in range(x.ndim) if axis not in axes]


def columns(x: DaskArray, axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the places of the columns in the grid of chunks, in C order: 0 along `axes`."""
    along = (range(1) if axis in axes else range(n) for axis, n in enumerate(x.numblocks))
    return list(itertools.product(*along))


def column(
    x: DaskArray, axes: tuple[int, ...], place: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Yield the places of the chunks of a column, in C order."""
    along = (range(n) if axis in axes else (place[axis],) for axis, n in enumerate(x.numblocks))
    return itertools.product(*along)


def lane_sizes(x: DaskArray, axes: tuple[int, ...]) -> list[int]:
    """Return the number of a lane's elements in each chunk of a column, in C order; or NaN."""
    return [math.prod(sizes) for sizes in itertools.product(*(x.chunks[axis] for axis in axes))]


def share_axis(x: DaskArray, axes: tuple[int, ...], n: int) -> int:
    """Return the axis along which lanes are divided among `n` tasks.

    It is the first axis that is long enough, so that each task's part of a chunk is contiguous.
    """
    return next(axis for axis in other_axes(x, axes) if max(x.chunks[axis]) >= n)


def slab_axis(x: DaskArray, axes: tuple[int, ...]) -> int:
    """Return the axis along which chunks are divided."""
    return max(other_axes(x, axes), key=lambda axis: max(x.chunks[axis]))


def numbers_of_slabs(lane_bytes: int, n_lanes: int, widest: int, limit: int) -> list[int]:
    """Return the numbers of slabs to try for each chunk.

    They are powers of two, the number of single lanes, and the number that makes a column fit.
    """
    some = {1 << i for i in range((widest - 1).bit_length())} | {widest}
    width = int(limit // (lane_bytes * (n_lanes // widest)))
    return sorted(some | ({-(-widest // width)} if width else set()))


def runs(chunks: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield runs of chunks with at most `most` elements of a lane; single chunks may have more.

    No run is empty.
    """
    start, size = 0, 0
    for i, chunk in enumerate(chunks):
        if size and size + chunk > most:
            yield start, i
            start, size = i, 0
        size += chunk
    yield start, len(chunks)


def joined(
    blocks: Sequence[Any], grid: Sequence[int], join: Callable[[Sequence[Any], int], Any]
) -> Any:
    """Join a grid of blocks, in C order, to one block, along the last axis first.

    ``join(blocks, axis)`` joins some of them along an axis. NumPy's arrays are copied once.
    """
    if len(blocks) > 1 and {type(block) for block in blocks} == {np.ndarray}:
        nested: Any = blocks
        for n in reversed(grid):
            nested = [nested[i : i + n] for i in range(0, len(nested), n)]
        return np.block(nested[0])
    for axis, n in reversed(list(enumerate(grid))):
        if n > 1:
            blocks = [join(blocks[i : i + n], axis) for i in range(0, len(blocks), n)]
    (block,) = blocks
    return block
