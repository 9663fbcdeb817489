"""Write columns of chunks to local disk as they are loaded, and read them back in tiles.

::

    source ──copy──> write each chunk ──> all of a column are there ──> a tile of each ──> answer

A column that does not fit into memory often consists of one map a chunk, and the question is along
time. So each chunk is appended to a file without a name when it arrives, by one task. When a column
is complete, one task for each tile reads its part of every chunk: some whole lanes. There are as
many tasks as chunks and tiles together, and each chunk is loaded once.

A file belongs to the process that wrote it, so this plan is for threads of one process.
"""

from __future__ import annotations

import errno
import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect.engine import settings
from dask_gpuselect.engine.columns import first_load
from dask_gpuselect.engine.graphs import each_chunk, is_on_a_worker
from dask_gpuselect.engine.source import (
    DaskArray,
    Key,
    List,
    Step,
    Task,
    TaskRef,
    extended,
)
from dask_gpuselect.engine.spill import Spilled, directory_of, spill_file
from dask_gpuselect.kernels.companions import Accompanied, stretched, unstretched, values_of
from dask_gpuselect.quiet import quietly

Box = tuple[slice, ...]


def _len(some: slice) -> int:
    return int(some.stop - some.start)


SHARE_OF_FREE = 2
"""Divisor of the free disk space: by default, at most 1 / SHARE_OF_FREE of it is used."""

IN_MEMORY = {"tmpfs", "ramfs"}
"""Types of file systems whose files take memory."""


# --- Where, and how much --------------------------------------------------------------------------


def scratch_directory() -> str | None:
    """Return the directory where columns are written; None if they are not."""
    given = settings.directory("scratch-directory")
    return None if given is None else directory_of(given)


def scratch_room(where: str) -> int:
    """Return the bytes that one array may take in a directory; 0 if there is no such directory."""
    chosen = 0 if _is_in_memory(where) else _free(where) // SHARE_OF_FREE
    return min(settings.n_bytes("scratch-limit", chosen), _free(where))


def _free(where: str) -> int:
    try:
        return shutil.disk_usage(where).free
    except OSError:
        return 0


def _is_in_memory(where: str) -> bool:
    """Return whether files in a directory take memory, as far as the system says."""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
        path = Path(where).resolve()
    except OSError:
        return False
    kinds = {Path(point): kind for _, point, kind, *_ in map(str.split, lines)}
    nearest = next((each for each in (path, *path.parents) if each in kinds), None)
    return nearest is not None and kinds[nearest] in IN_MEMORY


# --- Writing --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Written:
    """A chunk that is on disk, with its companions.

    Companions that are broadcast are written with size 1 along those axes.
    """

    values: Spilled
    companions: dict[str, Spilled]

    def __reduce__(self) -> tuple[Any, ...]:
        raise RuntimeError(_told_elsewhere())


def _told_elsewhere() -> str:
    return (
        "the plan 'scratch' writes chunks to files of one process, but its tasks run in several: "
        "create the client of dask.distributed before you call the function, or name the "
        "scheduler by dask.config.set(scheduler=...) around the call; or set "
        "dask_gpuselect.scratch-directory to False, so that chunks are read several times instead"
    )


def _written(chunk: Any, place: tuple[int, ...], *, file: str, kept: Any, where: str) -> Written:
    if is_on_a_worker():
        raise RuntimeError(_told_elsewhere())
    column = tuple(place[axis] for axis in kept)
    try:
        disk = spill_file(f"{file}-{column}", where)
        given = chunk.companions if isinstance(chunk, Accompanied) else {}
        companions = {name: disk.write(unstretched(each)) for name, each in given.items()}
        return Written(disk.write(values_of(chunk)), companions)
    except OSError as error:
        raise _explained(error, where) from error


def _explained(error: OSError, where: str) -> OSError:
    """Return an error for a disk that is full, with a text that says what to do."""
    told = (
        f"{error.strerror or error}: columns of chunks larger than dask_gpuselect.column-limit "
        f"are written to {where}. Set dask_gpuselect.scratch-directory to a directory with more "
        "room, or dask_gpuselect.scratch-limit to the bytes that may be written there (with 0, "
        "nothing is written, and chunks are read several times)"
    )
    return OSError(error.errno or errno.EIO, told)


# --- Reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScratchColumn:
    """All chunks of a column that is on disk.

    Parameters
    ----------
    chunks : list of Written
        The chunks, in C order of the reduced axes.
    places : list of tuple of slice
        Range of each chunk in the column; all along the other axes.
    axes : tuple of int
        The reduced ones.
    """

    chunks: list[Written]
    places: list[Box]
    axes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Tile:
    """Some whole lanes of a column on disk, which the task that needs them reads.

    Parameters
    ----------
    column : Column
    box : tuple of slice
        Ranges in the column: all along the reduced axes, and some lanes along the others.
    """

    column: ScratchColumn
    box: Box

    def read(self) -> Any:
        """Read the elements, of the kind and with the companions that they came with."""
        first = self.column.chunks[0]
        shape = tuple(map(_len, self.box))
        values = self._gathered([chunk.values for chunk in self.column.chunks])
        found = first.values.asarray(values)
        if not first.companions:
            return found
        companions = {}
        for name, own in first.companions.items():
            array = self._gathered([chunk.companions[name] for chunk in self.column.chunks])
            companions[name] = stretched(own.asarray(array), shape)
        return Accompanied(found, **companions)

    def _gathered(self, parts: Sequence[Spilled]) -> NDArray[Any]:
        """Read these lanes from all parts, concatenated along the reduced axes.

        The result has size 1 along any other axis where all parts have.
        """
        axes = self.column.axes
        widest = map(max, zip(*(part.shape for part in parts), strict=True))
        shape = [
            _len(some) if axis in axes else min(n, _len(some))
            for axis, (n, some) in enumerate(zip(widest, self.box, strict=True))
        ]
        whole = np.empty(shape, parts[0].dtype)
        alike = self._runs_of_all(parts, whole)
        if alike is not None:
            parts[0].file.read_runs_into(whole, *alike)
            return whole
        for part, place in zip(parts, self.column.places, strict=True):
            box = self._box_of(part)
            piece = np.empty(tuple(map(_len, box)), part.dtype)
            starts, n = part.runs(box)
            part.file.read_runs_into(piece, starts.tolist(), n)
            whole[place] = piece
        return whole

    def _box_of(self, part: Spilled) -> Box:
        return tuple(
            slice(0, n) if axis in self.column.axes or n == 1 else some
            for axis, (n, some) in enumerate(zip(part.shape, self.box, strict=True))
        )

    def _runs_of_all(
        self, parts: Sequence[Spilled], whole: NDArray[Any]
    ) -> tuple[list[int], int] | None:
        """Return the runs of bytes of all parts, if these are alike and contiguous in the result.

        Maps are, along time. Reading part by part would take ten times as long. Return None
        otherwise.
        """
        first = parts[0]
        box = self._box_of(first)
        size = (len(parts) * first.shape[0], *map(_len, box[1:]))
        if size != whole.shape or any(part.shape != first.shape for part in parts):
            return None
        starts, n = first.runs(box)
        offsets = np.array([part.offset for part in parts]) - first.offset
        return (offsets[:, None] + starts).reshape(-1).tolist(), n


# --- The graph ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scratch:
    """The tiles in which columns are read back from disk, and the directory of the files.

    Parameters
    ----------
    tile : tuple of int
        Largest sizes of a tile along the axes that are not reduced; 0 along the others.
    where : str
        Directory of the files.
    """

    tile: tuple[int, ...]
    where: str


def in_tiles(x: DaskArray, axes: tuple[int, ...], how: Scratch) -> DaskArray:
    """Return the lanes of `x` in tiles: an array whose chunks are `Tile`, made by one load.

    Questions about the same array along the same axes share the files.

    Parameters
    ----------
    axes : tuple of int
        Reduced axes, along which a tile is whole.
    how : Scratch
    """
    written = _write_layer(x, axes, how.where)
    ready = f"{written.name}-ready"
    graph = extended(written.dask, ready, _columns(x, axes, written.name, ready), {written.name})
    cuts = [
        [(0, slice(0, sum(sizes)))] if axis in axes else _cuts(sizes, how.tile[axis])
        for axis, sizes in enumerate(x.chunks)
    ]
    name = f"{written.name}-tiles-{tokenize(how.tile)}"
    tiles: dict[Key, Task] = {}
    for index, cut in zip(_indices(cuts), itertools.product(*cuts), strict=True):
        place, box = (tuple(each) for each in zip(*cut, strict=True))
        tiles[name, *index] = Task((name, *index), Tile, TaskRef((ready, *place)), box)
    chunks = tuple(tuple(_len(some) for _, some in each) for each in cuts)
    return DaskArray(extended(graph, name, tiles, {ready}), name, chunks, meta=x._meta)


def _indices(lists: Sequence[Sequence[Any]]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(len(each)) for each in lists))


def _write_layer(x: DaskArray, axes: tuple[int, ...], where: str) -> DaskArray:
    """Return an array of a `Written` for each chunk."""
    source = first_load(x, axes)
    name = f"quantile-written-{tokenize(source.name, axes, where)}"
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    write = partial(_written, file=name, kept=kept, where=where)
    return each_chunk(write, name, [source], block_ids=True)


def _columns(x: DaskArray, axes: tuple[int, ...], written: str, ready: str) -> dict[Key, Task]:
    """Make a task for each column that waits for all of its chunks."""
    tasks: dict[Key, Task] = {}
    places = _places(x, axes)
    along = [(0,) if axis in axes else range(n) for axis, n in enumerate(x.numblocks)]
    for place in itertools.product(*along):
        some = [range(n) if i in axes else (place[i],) for i, n in enumerate(x.numblocks)]
        chunks = List(*(TaskRef((written, *chunk)) for chunk in itertools.product(*some)))
        key = (ready, *place)
        tasks[key] = Task(key, ScratchColumn, chunks, places, axes)
    return tasks


def _places(x: DaskArray, axes: tuple[int, ...]) -> list[Box]:
    """Return the range of each chunk in its column, along the reduced axes."""
    along = []
    for axis in range(x.ndim):
        stops = list(itertools.accumulate(x.chunks[axis]))
        each = [slice(b - n, b) for n, b in zip(x.chunks[axis], stops, strict=True)]
        along.append(each if axis in axes else [slice(None)])
    return list(itertools.product(*along))


def _cuts(chunks: Sequence[int], most: int) -> list[tuple[int, slice]]:
    """Return, for each tile along an axis, the number of its chunk, and its range in the chunk."""
    return [
        (i, slice(size * k // n, size * (k + 1) // n))
        for i, (size, n) in enumerate(zip(chunks, n_tiles(chunks, most), strict=True))
        for k in range(n)
    ]


def n_tiles(chunks: Sequence[int], most: int) -> list[int]:
    """Return the number of tiles of each chunk along an axis."""
    return [max(-(-size // most), 1) for size in chunks]


def tile_of(x: DaskArray, axes: tuple[int, ...], n_lanes: int) -> tuple[int, ...]:
    """Return the sizes of tiles of at most `n_lanes` lanes.

    They extend as far as possible along the last axes, whose elements are contiguous.
    """
    sizes = [0] * x.ndim
    for axis in reversed(range(x.ndim)):
        if axis not in axes:
            sizes[axis] = min(max(x.chunks[axis], default=0), max(n_lanes, 1)) or 1
            n_lanes //= sizes[axis]
    return tuple(sizes)


def joined_tiles(
    answer: DaskArray,
    counts: Sequence[Sequence[int]],
    label: str,
    join: Callable[[Sequence[Any], int], Any],
) -> DaskArray:
    """Join the answers about tiles to blocks.

    Parameters
    ----------
    counts : sequence of sequence of int
        Number of tiles of each block, for each axis of the answer.
    label : str
        Prefix of the name of the layer.
    join : callable
        Function from blocks and an axis to one block.
    """
    if all(n == 1 for each in counts for n in each):
        return answer
    name = f"{label}-{tokenize(answer.name, counts)}"
    runs = [_runs(each) for each in counts]
    tasks: dict[Key, Task] = {}
    for place in itertools.product(*(range(len(each)) for each in runs)):
        some = [runs[axis][i] for axis, i in enumerate(place)]
        given = List(*(TaskRef((answer.name, *index)) for index in itertools.product(*some)))
        grid = tuple(map(len, some))
        key = (name, *place)
        tasks[key] = Task(key, Step("reduce", quietly(_joined)), given, grid, join)
    graph = extended(answer.dask, name, tasks, {answer.name})
    chunks = tuple(
        tuple(sum(sizes[i] for i in run) for run in each)
        for sizes, each in zip(answer.chunks, runs, strict=True)
    )
    return DaskArray(graph, name, chunks, meta=answer._meta)


def _runs(counts: Sequence[int]) -> list[range]:
    """Return the numbers of the tiles of each block, along an axis."""
    stops = itertools.accumulate(counts)
    return [range(stop - n, stop) for n, stop in zip(counts, stops, strict=True)]


def _joined(blocks: list[Any], grid: tuple[int, ...], join: Callable[..., Any]) -> Any:
    for axis in reversed(range(len(grid))):
        n = grid[axis]
        if n > 1:
            blocks = [join(blocks[i : i + n], axis) for i in range(0, len(blocks), n)]
    (found,) = blocks
    return found
