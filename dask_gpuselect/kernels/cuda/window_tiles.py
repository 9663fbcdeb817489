"""Tiles of windows of many elements: the host side of ``window_tiles.cu``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dask_gpuselect.kernels.cuda.source import PAD_AXES, STATIC, record
from dask_gpuselect.kernels.cuda.window_axes import Axis, WindowKernel, axes_of, fill
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.windows import Frame, Piecewise, strides_of

MOST_RUNS, MOST_HELD = 320, 80
"""Largest number of runs of a window, and of those that take two registers of a thread each."""
SIZES = tuple(1 << levels for levels in range(10, 16))
"""Numbers of elements of a tile."""
REGISTERS = 1 << 16  # of a multiprocessor
SECTOR = 32  # bytes that a device reads at least
FEWEST = 132  # blocks that keep a device busy


def levels_of(size: int, itemsize: int) -> int:
    """Return the number of levels of a tile: the bits of a rank, or of a short key."""
    return 8 * itemsize if itemsize <= 2 else size.bit_length() - 1


def memory_of(size: int, itemsize: int) -> int:
    """Return the bytes of shared memory of a block with a tile of some size."""
    words = size // 32 + 1
    made = 2 * size + 8 * words * levels_of(size, itemsize)
    if itemsize > 2:
        made = 2 * size + max(made, size * (9 if itemsize == 4 else 8))
    return 2 * size + 16 * words + made


def tiling(
    padding: tuple[Piecewise, ...], frame: Frame, itemsize: int, shared: int
) -> WindowKernel | None:
    """Choose the tiles of a chunk; None for windows of many runs, or too large.

    `shared` is the number of bytes of shared memory that a block can have.
    """
    axes = axes_of(padding, frame)
    run, offsets, lengths = _runs(axes, frame)
    if len(lengths) > MOST_RUNS or len(axes) > PAD_AXES:
        return None
    fitting = [size for size in SIZES if memory_of(size, itemsize) + STATIC <= shared]
    ways = [(size, outs) for size in fitting if (outs := _outs(axes, size, itemsize))]
    if not ways:
        return None
    n_runs = len(lengths)
    size, outs = min(ways, key=lambda way: _cost(axes, way[0], way[1], n_runs, itemsize))
    memory = memory_of(size, itemsize)
    threads = _threads(size, n_runs)
    blocks = min(shared // (memory + STATIC), REGISTERS // (threads * _registers(n_runs)))
    unrolled = n_runs if n_runs <= MOST_HELD else 1
    defined = (
        *(("AXES", len(axes)), ("RUNS", n_runs), ("UNROLLED", unrolled)),
        *(("TILE_THREADS", threads), ("TILE_BLOCKS", max(blocks, 1))),
    )
    made = _record(axes, run, size, outs, n_runs, levels_of(size, itemsize))
    made["offsets"], made["lengths"] = offsets @ made["distances"], lengths
    return "window_tiles", made, defined, {"shared": memory}


def _registers(n_runs: int) -> int:
    """Estimate the registers of a thread."""
    return 2 * n_runs + 44 if n_runs <= MOST_HELD else 64


def _threads(size: int, n_runs: int) -> int:
    """Return the threads of a block: whole warps, as many as its registers allow."""
    return min(size // 8, 1024, REGISTERS // _registers(n_runs) // 32 * 32)


def _runs(axes: list[Axis], frame: Frame) -> tuple[int, IntArray, IntArray]:
    """Find the axis along which a window has the fewest runs.

    Return it with the first places of the runs, ``(n_runs, n_axes)``, and with their lengths.
    """
    shape = tuple(axis.window for axis in axes)
    marks = np.ones(shape, np.int8)
    if frame.footprint is not None:
        marks[...] = np.reshape(frame.footprint, shape)
    ways = []
    for d in range(len(axes)):
        along = np.moveaxis(marks, d, -1)
        edges = np.diff(along, prepend=np.int8(0), append=np.int8(0))
        first, last = (np.argwhere(edges == side) for side in (1, -1))
        ways.append(
            (len(first), -d, np.insert(first[:, :-1], d, first[:, -1], axis=1), first, last)
        )
    _, d, places, first, last = min(ways, key=lambda way: way[:2])
    return -d, places, last[:, -1] - first[:, -1]


def _outs(axes: list[Axis], size: int, itemsize: int) -> list[int]:
    """Choose how many windows of each axis a tile of at most `size` elements has; none fit: []."""
    outs = [1] * len(axes)
    outs[-1] = min(axes[-1].n, max(SECTOR // itemsize, 1))
    if _n_elements(axes, outs) > size:
        outs[-1] = 1
    if _n_elements(axes, outs) > size:
        return []
    while True:
        grown = []
        for d, axis in enumerate(axes):
            more = [*outs[:d], min(axis.n, max(outs[d] + 1, outs[d] * 5 // 4)), *outs[d + 1 :]]
            if more[d] > outs[d] and _n_elements(axes, more) <= size:
                share = axis.extent(more[d]) / axis.extent(outs[d]) * outs[d] / more[d]
                grown.append((share, -d, more))
        if not grown:
            return outs
        outs = min(grown)[-1]


def _n_elements(axes: list[Axis], outs: list[int]) -> int:
    """Count the elements of a tile."""
    return math.prod(axis.extent(n) for axis, n in zip(axes, outs, strict=True))


def _n_tiles(axes: list[Axis], outs: list[int]) -> list[int]:
    """Count the tiles along each axis."""
    return [-(-axis.n // n) for axis, n in zip(axes, outs, strict=True)]


def _cost(axes: list[Axis], size: int, outs: list[int], n_runs: int, itemsize: int) -> float:
    """Estimate the instructions of all tiles: of sorting, of making levels, and of windows."""
    levels = levels_of(size, itemsize)
    steps = levels * (levels + 1) / 2 if itemsize > 2 else 0
    of_tile = size * (4 * steps + 15 * levels)
    of_windows = math.prod(outs) * (25 * n_runs * levels + 150)
    return max(math.prod(_n_tiles(axes, outs)), FEWEST) * (of_tile + of_windows)


def _record(
    axes: list[Axis], run: int, size: int, outs: list[int], n_runs: int, levels: int
) -> Any:
    """Return what the kernel takes, but for the runs. Tiles have the axis of runs last."""
    order = [*(d for d in range(len(axes)) if d != run), run]
    extents = [axis.extent(n) for axis, n in zip(axes, outs, strict=True)]
    distances = np.empty(len(axes), np.int64)
    distances[order] = strides_of(tuple(extents[d] for d in order))
    tiles = _n_tiles(axes, outs)
    made = np.zeros((), record("window_tiles.cu", "Tiling", AXES=len(axes), RUNS=n_runs))
    fill(made["axes"], axes)
    made["tiles"], made["outs"], made["extents"] = tiles, outs, extents
    made["distances"], made["size"], made["levels"] = distances, size, levels
    for name, numbers in (("n_tiles", tiles), ("n_outs", outs), ("n_elements", extents)):
        made[name] = math.prod(numbers)
    return made
