"""Find how the lanes of an array lie in the grid of its chunks, and how both divide into parts."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dask_gpuselect.engine.source import DaskArray, Source, is_future, steps_of


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


# --- Workers of a cluster that have the chunks of each column -------------------------------------

Homes = tuple[tuple[tuple[int, ...], ...], ...]
"""For each column in C order its parts: the numbers of the chunks that a worker has."""


def homes_of(x: Source, axes: tuple[int, ...]) -> Homes | None:
    """Divide each column of an array on a cluster into parts, one for each worker.

    The scheduler is asked, and nothing is computed. None if a chunk is not on a worker yet.
    """
    worker = _workers(x)
    if worker is None:
        return None
    homes = []
    for place in columns(x, axes):
        parts: dict[str, list[int]] = {}
        for i, chunk in enumerate(column(x, axes, place)):
            parts.setdefault(worker[chunk], []).append(i)
        homes.append(tuple(map(tuple, parts.values())))
    return tuple(homes)


def _workers(x: Source) -> dict[tuple[int, ...], str] | None:
    """Return the worker that has each chunk, by the place of the chunk; None if one is nowhere."""
    layers, name = x.dask.layers, x.name
    while next(steps_of(layers[name])).does == "check":
        (name,) = x.dask.dependencies[name]
    futures: dict[Any, Any] = {key: each for key, each in layers[name].items() if is_future(each)}
    client = getattr(next(iter(futures.values()), None), "client", None)
    if len(futures) < x.npartitions or client is None or client.asynchronous:
        return None
    where: dict[Any, Sequence[str]] = client.who_has(list(futures.values()))
    copies = {key[1:]: where.get(each.key) or [] for key, each in futures.items()}
    if not all(copies.values()):
        return None
    # Of the workers that have a copy, take the one that has most chunks.
    n_chunks = Counter(itertools.chain.from_iterable(where.values()))
    return {
        place: max(some, key=lambda each: (n_chunks[each], each)) for place, some in copies.items()
    }
