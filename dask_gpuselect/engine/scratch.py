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
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
from dask.base import tokenize
from dask.utils import format_bytes
from numpy.typing import NDArray

from dask_gpuselect.arrays import namespace
from dask_gpuselect.engine import settings
from dask_gpuselect.engine.columns import first_load
from dask_gpuselect.engine.graphs import (
    each_chunk,
    is_on_a_worker,
    runs_in_threads,
    runs_on_workers,
)
from dask_gpuselect.engine.grid import column, columns, joined
from dask_gpuselect.engine.source import (
    Apart,
    Companion,
    DaskArray,
    Key,
    List,
    Source,
    Step,
    Task,
    TaskRef,
    extended,
)
from dask_gpuselect.engine.spill import Spilled, directory_of, spill_file
from dask_gpuselect.kernels.companions import Accompanied, stretched, values_of
from dask_gpuselect.quiet import quietly

Box = tuple[slice, ...]


def _len(some: slice) -> int:
    """Count the elements of a slice."""
    return int(some.stop - some.start)


SHARE_OF_FREE = 2
"""Part of the free bytes of a disk that one array may take by default: one in so many."""

IN_MEMORY = {"tmpfs", "ramfs"}
"""File systems whose files are in memory."""


# --- Where, and how much --------------------------------------------------------------------------


def disk() -> tuple[str | None, float] | None:
    """Find the disk that the scheduler's tasks may write to; None if there is none.

    Files of a directory are of one process, for threads. Workers exchange what they write by dask's
    peer-to-peer rechunk. How much room they have is not asked: a call asks no scheduler.

    Returns
    -------
    where : str or None
        A directory; None for the disks of the workers of a cluster.
    room : float
        Bytes that one array may take.
    """
    given = settings.directory("scratch-directory")
    if given is None:
        return None
    if runs_in_threads():
        where = directory_of(given)
        if not Path(where).is_dir():
            setting = "dask_gpuselect.scratch-directory" if given else "temporary-directory"
            raise ValueError(
                f"{setting} is {where!r}, which is not a directory: create it, or set "
                "dask_gpuselect.scratch-directory to one that exists, or to False, so that nothing "
                "is written and chunks are read several times"
            )
        chosen = 0 if _is_in_memory(where) else free_bytes(where) // SHARE_OF_FREE
        return where, min(settings.n_bytes("scratch-limit", chosen), free_bytes(where))
    if runs_on_workers() and settings.shuffles_to_disk():
        return None, settings.n_bytes("scratch-limit", np.iinfo(np.int64).max)
    return None


def least_loads() -> int:
    """Return how many loads of each chunk are worth writing it to disk instead.

    If 1.2 GiB cost little to load, two loads took 1.2 to 1.8 times as long as a local disk, and
    four to six times the memory. On a cluster, where all goes through the network, they took as
    long.
    """
    return settings.number("scratch-reads", 3 if runs_on_workers() else 2)


def free_bytes(where: str) -> int:
    """Count the free bytes of the disk of a directory."""
    try:
        return shutil.disk_usage(where).free
    except OSError:
        return 0


def _is_in_memory(where: str) -> bool:
    """Return whether files of a directory take memory, as far as the system says."""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
        path = Path(where).resolve()
    except OSError:
        return False
    kinds = {Path(point): kind for _, point, kind, *_ in map(str.split, lines)}
    nearest = next((each for each in (path, *path.parents) if each in kinds), None)
    return nearest is not None and kinds[nearest] in IN_MEMORY


# --- Companions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Carried:
    """Companions of an array, each stored once for all chunks of a column that share it.

    Parameters
    ----------
    companions : tuple of Companion
    axes : tuple of int
        The reduced ones.
    firsts : tuple of int
        The first chunk with elements along each axis.
    """

    companions: tuple[Companion, ...]
    axes: tuple[int, ...]
    firsts: tuple[int, ...]

    @classmethod
    def by(cls, x: DaskArray, axes: tuple[int, ...]) -> Carried:
        """Find what the chunks of an array carry."""
        firsts = (next((i for i, n in enumerate(sizes) if n), 0) for sizes in x.chunks)
        return cls(Source.of(x).companions, axes, tuple(firsts))

    def with_chunk(self, place: tuple[int, ...]) -> list[Companion]:
        """List the companions that go with the chunk at a place: the first that shares each."""
        later = {axis for axis in self.axes if place[axis] != self.firsts[axis]}
        return [each for each in self.companions if later.isdisjoint(each.stretched)]

    def check(self, chunk: Any) -> None:
        """Raise if a chunk has a companion that its array does not describe."""
        own = set(chunk.companions) if isinstance(chunk, Accompanied) else set()
        assert own <= {each.name for each in self.companions}, own

    def n_bytes(self, x: DaskArray) -> float:
        """Count the bytes of the array and its companions.

        Companions that chunks of a column share count once for each column.
        """
        total = float(x.size * x.dtype.itemsize)
        for each in self.companions:
            sizes = list(map(float, x.shape))
            for axis in each.stretched:
                sizes[axis] = 1 if axis in self.axes else x.numblocks[axis]
            total += math.prod(sizes) * each.dtype.itemsize
        return total


def companion_of(chunk: Any, companion: Companion) -> Any:
    """Return a companion of a chunk, with size 1 along the axes that it is broadcast along."""
    array = chunk.companions.get(companion.name)
    if array is None:  # chunks of a masked array may have no mask
        values = values_of(chunk)
        array = namespace(values).ones(values.shape, dtype=bool)
    shared = (axis in companion.stretched for axis in range(array.ndim))
    return array[tuple(slice(1) if each else slice(None) for each in shared)]


NARROWER = {"f8": "f4", "i8": "i4", "u8": "u4"}
"""Dtypes of weights, and of half their bytes."""


def _to_write(chunk: Any, companion: Companion) -> Any:
    """Return a companion of a chunk; weights in half of their bytes if these hold them exactly.

    To write and read 8 bytes takes 8 ns longer than 4, and to find out 1.
    """
    array = companion_of(chunk, companion)
    if companion.name != "weights" or not isinstance(array, np.ndarray):
        return array
    with np.errstate(over="ignore"):
        narrow = array.astype(NARROWER.get(array.dtype.str[1:], array.dtype), copy=False)
    return narrow if np.array_equal(narrow, array) else array


# --- Writing --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OnDisk:
    """A chunk on disk, or all chunks of a column, with the companions.

    Parameters
    ----------
    values : Spilled, or Stack of a column
    companions : dict
        As `values`, by their names. One that several chunks of a column share is with the first of
        these alone, and with the column as an array, which has been read, if all lanes share it.
    blocks : dict
        Of a column: the blocks of answers, by the names of their layers.
    """

    values: Any
    companions: dict[str, Any]
    blocks: dict[str, NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def column(cls, chunks: list[OnDisk], places: list[Box], carried: Carried, box: Box) -> OnDisk:
        """Collect the chunks of a column, in C order of the reduced axes.

        Parameters
        ----------
        places : list of tuple of slice
            Of each chunk in the column; all along the other axes.
        carried : Carried
            Their companions.
        box : tuple of slice
            All lanes.
        """
        companions = {}
        for each in carried.companions:
            parts = [chunk.companions.get(each.name) for chunk in chunks]
            stack = Stack.of(parts, places, carried.axes, each.stretched)
            is_shared = len({*carried.axes, *each.stretched}) == len(box)
            companions[each.name] = stack.read(box) if is_shared else stack
        return cls(Stack.of([chunk.values for chunk in chunks], places, carried.axes), companions)

    def __reduce__(self) -> tuple[Any, ...]:
        raise RuntimeError(ADVICE_ELSEWHERE)


ADVICE_ELSEWHERE = (
    "the plan 'scratch' writes chunks to files of one process, but its tasks run in several: "
    "create the client of dask.distributed before you call the function, or name the "
    "scheduler by dask.config.set(scheduler=...) around the call; or set "
    "dask_gpuselect.scratch-directory to False, so that chunks are read several times instead"
)
"""Advice if several processes run the tasks."""


def _written(
    chunk: Any,
    place: tuple[int, ...],
    *,
    file: str,
    lengths: dict[int, int],
    where: str,
    carried: Carried,
) -> OnDisk:
    """Append a chunk and its companions to the file of its column.

    `lengths` has the sizes of the column along the reduced axes. The first chunk of a column raises
    if the disk has no room for all of it: it may be long since the plan was made.
    """
    if is_on_a_worker():
        raise RuntimeError(ADVICE_ELSEWHERE)
    column = tuple(i for axis, i in enumerate(place) if axis not in lengths)
    try:
        disk = spill_file(f"{file}-{column}", where)
        if disk.is_empty:
            sizes = (lengths.get(axis, n) for axis, n in enumerate(chunk.shape))
            check_room(where, math.prod(sizes) * chunk.dtype.itemsize)
        carried.check(chunk)
        companions = {
            each.name: disk.write(_to_write(chunk, each)) for each in carried.with_chunk(place)
        }
        return OnDisk(disk.write(values_of(chunk)), companions)
    except OSError as error:
        advice = "Set dask_gpuselect.scratch-directory to a directory with more room"
        raise explained(error, where, advice) from error


def check_room(where: str, n_bytes: float) -> None:
    """Raise if a disk has less free space than some bytes, as far as the system says."""
    if (free := free_bytes(where)) < n_bytes:
        missing = f"{format_bytes(int(n_bytes))}: {format_bytes(free)} are free"
        raise OSError(errno.ENOSPC, f"No space left on device for {missing}")


def explained(error: OSError, where: str, advice: str) -> OSError:
    """Make the error that says which settings help if a disk takes no more.

    `advice` says how to get another disk.
    """
    message = (
        f"{error.strerror or error}: columns of chunks larger than dask_gpuselect.column-limit "
        f"are written to {where}. {advice}, or set dask_gpuselect.scratch-limit to the bytes that "
        "may be written in all (with 0, nothing is written, and chunks are read several times)"
    )
    return OSError(error.errno or errno.EIO, message)


# --- Reading --------------------------------------------------------------------------------------


def empty_in(
    unused: list[NDArray[np.uint8]], shape: Sequence[int], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Make an array in unused memory, or in new memory, which is unused when no view of it is left.

    The system fills new memory with zeros, and on virtual machines it often has to find it first.
    That is a tenth of the time of a median of 1,095 maps.
    """
    n = math.prod(shape) * dtype.itemsize
    try:
        memory = unused.pop()
    except IndexError:
        memory = np.empty(0, np.uint8)
    if len(memory) < n:
        memory = np.empty(n, np.uint8)
    # By way of a `memoryview`: views of the array refer to the array, not to its memory.
    array = np.frombuffer(memory[:n].data, dtype).reshape(shape)
    finalize(array.base, unused.append, memory)
    return array


@dataclass(frozen=True, eq=False)
class Alike:
    """Arrays of one shape on disk that lie one behind the other along the first axis of a column.

    So do maps along time. Read one by one, each takes ten times as long.

    Parameters
    ----------
    first : Spilled
    offsets : ndarray of int64
        Distance of each array in the file from the first, in bytes.
    place : tuple of slice
        Of all together in the column; all along the axes that are not reduced.
    """

    first: Spilled
    offsets: NDArray[np.int64]
    place: Box

    @classmethod
    def of(cls, parts: Sequence[tuple[Spilled, Box]]) -> Alike:
        """Join arrays with their places."""
        (first, (start, *others)), (_, (stop, *_)) = parts[0], parts[-1]
        offsets = np.array([part.offset for part, _ in parts]) - first.offset
        return cls(first, offsets, (slice(start.start, stop.stop), *others))

    def read_into(self, whole: NDArray[Any], box: Box) -> None:
        """Read a box of each array to its place."""
        view = whole[self.place]
        dtype, is_whole = self.first.dtype, view.flags.c_contiguous
        given = view if is_whole and view.dtype == dtype else np.empty(view.shape, dtype)
        starts, n = self.first.runs(box)
        runs = (self.offsets[:, None] + starts).reshape(-1).tolist()
        self.first.file.read_runs_into(given, runs, n)
        if given is not view:
            view[...] = given


@dataclass(frozen=True, eq=False)
class Stack:
    """The elements of a column, or one of its companions, on disk.

    Parameters
    ----------
    runs : list of Alike
    sizes : tuple of int
        The sizes of the largest part: 1 along the axes that a companion is broadcast along, or 0 in
        a column without lanes.
    axes : tuple of int
        The reduced ones.
    shared : tuple of int
        Axes that a companion is broadcast along.
    unused : list of ndarray of uint8
        Memory of tiles that are answered, which the next tiles take.
    """

    runs: list[Alike]
    sizes: tuple[int, ...]
    axes: tuple[int, ...]
    shared: tuple[int, ...]
    unused: list[NDArray[np.uint8]] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        parts: Sequence[Spilled | None],
        places: Sequence[Box],
        axes: tuple[int, ...],
        shared: tuple[int, ...] = (),
    ) -> Stack:
        """Collect the parts of the chunks of a column: None for a chunk without one."""
        pairs = zip(parts, places, strict=True)
        some = [(part, place) for part, place in pairs if part is not None]
        sizes = tuple(map(max, zip(*(part.shape for part, _ in some), strict=True)))
        runs = [Alike.of(list(each)) for _, each in itertools.groupby(some, _about)]
        return cls(runs, sizes, axes, shared)

    def read(self, box: Box) -> Any:
        """Read some lanes, of the kind that the chunks came with."""
        sizes = [n if i in self.shared else _len(box[i]) for i, n in enumerate(self.sizes)]
        dtype = np.result_type(*(run.first.dtype for run in self.runs))
        whole = empty_in(self.unused, sizes, dtype)
        for run in self.runs:
            pairs = zip(run.first.shape, box, strict=True)
            some = [
                slice(0, n) if i in self.axes or n == 1 else lanes
                for i, (n, lanes) in enumerate(pairs)
            ]
            run.read_into(whole, tuple(some))
        return self.runs[0].first.asarray(whole)


def _about(part: tuple[Spilled, Box]) -> tuple[Any, ...]:
    """Return what neighbours have in common that lie one behind the other along the first axis."""
    array, (_, *others) = part
    return array.shape, array.dtype, [(each.start, each.stop) for each in others]


@dataclass(frozen=True, eq=False)
class Tile:
    """Some whole lanes of a column on disk, which the task that needs them reads.

    Parameters
    ----------
    column : OnDisk
    box : tuple of slice
        Ranges in the column: all along the reduced axes, and some lanes along the others.
    """

    column: OnDisk
    box: Box

    def read(self) -> Any:
        """Read the elements, of the kind and with the companions that they came with."""
        values, shape = self.column.values.read(self.box), tuple(map(_len, self.box))
        companions = {
            name: stretched(each.read(self.box) if isinstance(each, Stack) else each, shape)
            for name, each in self.column.companions.items()
        }
        return Accompanied(values, **companions) if companions else values

    def placed(self, answer: Any, labels: tuple[int, ...], layer: str) -> Any:
        """Copy an answer to its place in the block of its column, and return that.

        So only one tile of answers is in memory beside the block. An answer that is no array of
        NumPy, or is the whole block, is returned as it is.

        Parameters
        ----------
        labels : tuple of int
            The axis of the data of each axis of the answer; the others are not divided.
        layer : str
        """
        box, sizes = (dict(enumerate(each)) for each in (self.box, self.column.values.sizes))
        shape = tuple(sizes.get(i, n) for i, n in zip(labels, answer.shape, strict=True))
        blocks = self.column.blocks
        if type(answer) is not np.ndarray or shape == answer.shape:
            return answer
        if layer not in blocks:  # another thread may be faster
            blocks.setdefault(layer, np.empty(shape, answer.dtype))
        place = tuple(box.get(label, slice(None)) for label in labels)
        np.copyto(blocks[layer][place], answer, casting="no")
        return blocks[layer]


# --- The graph ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scratch:
    """Sizes of the tiles in which columns are read back, and the disk where they wait.

    Parameters
    ----------
    tile : tuple of int
        The sizes of a tile along the axes that are not reduced, at most; 0 along the others.
    n_bytes : int
        Of a tile, at most.
    where : str or None
        A directory; None for the disks of the workers of a cluster.
    disk_bytes, task_bytes : int
        Most bytes on disk at any time, and in one task.
    """

    tile: tuple[int, ...]
    n_bytes: int
    where: str | None
    disk_bytes: int
    task_bytes: int


def in_tiles(x: DaskArray, axes: tuple[int, ...], how: Scratch) -> DaskArray:
    """Make an array of the lanes of `x` in tiles: each chunk is a `Tile`.

    One load makes all. Questions about the same array along the same axes share what is written.

    Parameters
    ----------
    axes : tuple of int
        Reduced axes, along which a tile is whole.
    how : Scratch
    """
    assert how.where is not None
    source, carried = first_load(x, axes), Carried.by(x, axes)
    label, lengths = "quantile-written", {axis: x.shape[axis] for axis in axes}
    file = f"{label}-{tokenize(source.name, axes, how.where)}"
    write = partial(_written, lengths=lengths, where=how.where, carried=carried)
    written = each_chunk(write, label, [source], block_ids=True, file=file)
    ready = f"{written.name}-ready"
    graph = extended(written.dask, ready, _columns(x, carried, written.name, ready), {written.name})
    cuts = cuts_of(x, axes, how.tile)
    name = f"{written.name}-tiles-{tokenize(how.tile)}"
    tiles: dict[Key, Task] = {}
    for index, cut in zip(np.ndindex(*map(len, cuts)), itertools.product(*cuts), strict=True):
        place, box = (tuple(each) for each in zip(*cut, strict=True))
        tiles[name, *index] = Task((name, *index), Tile, TaskRef((ready, *place)), box)
    chunks = tuple(tuple(_len(some) for _, some in each) for each in cuts)
    return DaskArray(extended(graph, name, tiles, {ready}), name, chunks, meta=x._meta)


def cuts_of(
    x: DaskArray, axes: tuple[int, ...], tile: tuple[int, ...]
) -> list[list[tuple[int, slice]]]:
    """Find for each tile along each axis the number of its chunk, and its part of that chunk.

    Along the reduced axes there is one tile.
    """
    return [
        [(0, slice(0, sum(sizes)))] if axis in axes else _cuts(sizes, tile[axis])
        for axis, sizes in enumerate(x.chunks)
    ]


def _columns(x: DaskArray, carried: Carried, written: str, ready: str) -> dict[Key, Task]:
    """Make a task for each column, which waits for all of its chunks."""
    tasks: dict[Key, Task] = {}
    axes = carried.axes
    along = (
        [slice(run.start, run.stop) for run in _runs(sizes)] if axis in axes else [slice(None)]
        for axis, sizes in enumerate(x.chunks)
    )
    places = list(itertools.product(*along))  # of the chunks in a column, along the reduced axes
    for place in columns(x, axes):
        chunks = List(*(TaskRef((written, *chunk)) for chunk in column(x, axes, place)))
        each = zip(x.chunks, place, strict=True)
        box = tuple(
            slice(0, sum(sizes) if axis in axes else sizes[i])
            for axis, (sizes, i) in enumerate(each)
        )
        key = (ready, *place)
        tasks[key] = Task(key, OnDisk.column, chunks, places, carried, box)
    return tasks


def _cuts(chunks: Sequence[int], most: int) -> list[tuple[int, slice]]:
    """List for each tile along an axis the number of its chunk, and its part of that chunk."""
    return [
        (i, slice(size * k // n, size * (k + 1) // n))
        for i, (size, n) in enumerate(zip(chunks, n_tiles(chunks, most), strict=True))
        for k in range(n)
    ]


def n_tiles(chunks: Sequence[int], most: int) -> list[int]:
    """Count the tiles that each chunk along an axis is cut into."""
    return [max(-(-size // most), 1) for size in chunks]


def tile_of(x: DaskArray, axes: tuple[int, ...], n_lanes: int) -> tuple[int, ...]:
    """Find the sizes of tiles of at most so many lanes.

    They are as large as possible along the last axes, whose elements lie together.
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
    chunks: tuple[tuple[int, ...], ...],
    label: str,
    join: Callable[[Sequence[Any], int], Any],
) -> DaskArray:
    """Join the answers about tiles to blocks.

    Parameters
    ----------
    counts : sequence of sequence of int
        Number of tiles of each block, for each axis of the answer.
    chunks : tuple of tuple of int
        Of the blocks.
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
    for place, some in zip(np.ndindex(*map(len, runs)), itertools.product(*runs), strict=True):
        given = List(*(TaskRef((answer.name, *index)) for index in itertools.product(*some)))
        key, about = (name, *place), (given, tuple(map(len, some)), join)
        tasks[key] = Apart(key, Step("reduce", quietly(_in_one_block)), *about)
    graph = extended(answer.dask, name, tasks, {answer.name})
    return DaskArray(graph, name, chunks, meta=answer._meta)


def _in_one_block(
    tiles: Sequence[Any], grid: Sequence[int], join: Callable[[Sequence[Any], int], Any]
) -> Any:
    """Join tiles of answers, unless each is the block in which all were placed."""
    return tiles[0] if all(each is tiles[0] for each in tiles) else joined(tiles, grid, join)


def _runs(counts: Sequence[int]) -> list[range]:
    """List the numbers of the tiles of each block, or the places of each chunk, along an axis."""
    stops = itertools.accumulate(counts)
    return [range(stop - n, stop) for n, stop in zip(counts, stops, strict=True)]
