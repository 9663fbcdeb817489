"""Layers of tasks: one for each chunk, trees that merge what these report, and tasks that read a
chunk only if that is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import getitem
from typing import Any

import dask.array as da
import numpy as np
from dask import config
from dask._task_spec import DataNode, List, Task, TaskRef
from dask.base import get_name_from_key, tokenize
from dask.blockwise import blockwise
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer
from dask.layers import ArrayBlockIdDep

from dask_gpuselect.source import AnswerLayer, Read, layers_in_place, reads_of

MERGE_EVERY = 32  # parts a merge takes; dask's own 4 makes three times the tasks


def extended(
    graph: HighLevelGraph, name: str, layer: Layer, dependencies: set[str]
) -> HighLevelGraph:
    """The graph with one more layer."""
    layers = {**graph.layers, name: layer}
    return HighLevelGraph(layers, {**graph.dependencies, name: dependencies})


def held(name: str, values: Sequence[Any], numblocks: tuple[int, ...]) -> da.Array:
    """An array of objects that are there already, one for each block, in C order."""
    places = np.ndindex(numblocks)
    nodes = {
        (name, *place): DataNode((name, *place), value)
        for place, value in zip(places, values, strict=True)
    }
    graph = HighLevelGraph({name: MaterializedLayer(nodes)}, {name: set()})
    chunks = tuple((1,) * n for n in numblocks)
    return da.Array(graph, name, chunks, meta=np.empty((0,) * len(numblocks), dtype=object))


def each_chunk(
    function: Callable[..., Any],
    name: str,
    grids: list[da.Array],
    singles: Sequence[da.Array] = (),
    *,
    block_ids: bool = False,
    **arguments: Any,
) -> da.Array:
    """An array of one object for each chunk: ``function(*blocks, *results, [place], **arguments)``.

    Parameters
    ----------
    function : callable
        Takes a block of each of `grids`, the results of `singles`, and the block's place in the
        grid if `block_ids`.
    name : str
        Of the new layer.
    grids : list of dask arrays
        Of one grid of blocks, the chunks first.
    singles : sequence of dask arrays
        Of `reduced`.
    """
    x = grids[0]
    index = tuple(range(x.ndim))
    pairs: list[Any] = []
    for grid in grids:
        pairs += [grid.name, index]
    for single in singles:
        pairs += [TaskRef((single.name,)), None]
    if block_ids:
        pairs += [ArrayBlockIdDep(x.chunks), index]
    numblocks = {grid.name: x.numblocks for grid in grids}
    layer = blockwise(function, name, index, *pairs, numblocks=numblocks, **arguments)
    needs = [*grids, *singles]
    graph = HighLevelGraph.merge(*(array.dask for array in needs))
    graph = extended(graph, name, layer, {array.name for array in needs})
    chunks = tuple((1,) * n for n in x.numblocks)
    return da.Array(graph, name, chunks, meta=np.empty((0,) * x.ndim, dtype=object))


def reduced(
    grid: da.Array,
    merge_name: str,
    merge: Callable[[list[Any]], Any],
    finish: Callable[..., Any],
    name: str,
    key: tuple[Any, ...] | None = None,
    **arguments: Any,
) -> da.Array:
    """One task that finishes what a tree of merges makes of all objects of a grid, in the order of
    the chunks.

    Parameters
    ----------
    grid : dask array
        Of objects.
    merge_name : str
        Prefix of the layer of merges.
    merge, finish : callable
        ``list of objects -> object``, and ``list of objects, **arguments -> result``.
    name, key : str, tuple
        Of the last task and its layer; the key is ``(name,)`` unless given.
    **arguments
        For `finish`; task references become dependencies.
    """
    every = max(2, int(config.get("split_every", None) or MERGE_EVERY))
    merge_name = f"{merge_name}-{tokenize(grid.name, every)}"
    parts, merges = _tree(list(flatten(grid.__dask_keys__())), every, merge, merge_name)
    graph, above = grid.dask, grid.name
    if merges:
        graph = extended(graph, merge_name, MaterializedLayer(merges), {above})
        above = merge_name
    key = key or (name,)
    last = AnswerLayer({key: Task(key, finish, List(*map(TaskRef, parts)), **arguments)})
    references = [value for value in arguments.values() if isinstance(value, TaskRef)]
    others = {get_name_from_key(reference.key) for reference in references}
    graph = extended(graph, name, last, {above} | others)
    return da.Array(graph, name, (), meta=np.empty((), dtype=object))


def _tree(
    parts: list[Any], every: int, merge: Callable[[list[Any]], Any], name: str, *place: int
) -> tuple[list[Any], dict[Any, Task]]:
    """At most so many keys of what merging makes of all parts, in their order, and its tasks: of
    the layer `name`, and with `place` last in their keys."""
    merges: dict[Any, Task] = {}
    depth = 0
    while len(parts) > every:
        groups = [parts[i : i + every] for i in range(0, len(parts), every)]
        parts = [(name, depth, i, *place) for i in range(len(groups))]
        for merged, group in zip(parts, groups, strict=True):
            merges[merged] = Task(merged, merge, List(*map(TaskRef, group)))
        depth += 1
    return parts, merges


def exchanged(
    split: da.Array,
    n_chunks: int,
    name: str,
    moved: str,
    place: Callable[..., Any],
    *arguments: Any,
    join: Callable[[list[Any]], Any] | None = None,
    every: int = 0,
) -> da.Array:
    """Each chunk of a result takes its piece of every chunk: an array of one object for each,
    ``place(pieces, *arguments)``.

    Parameters
    ----------
    split : dask array
        Of lists, each of `n_chunks` pieces. The pieces are in the order of the chunks.
    n_chunks : int
        Of the result.
    name, moved : str
        Of the new layer, and of the tasks in it that hand on a piece.
    place : callable
        ``list of pieces, *arguments -> object``.
    join : callable, optional
        ``list of pieces -> piece``, in a tree of tasks where there are more than `every` pieces.
        All come to one task without it.
    """
    sources = list(flatten(split.__dask_keys__()))
    tasks: dict[Any, Task] = {}
    for j in range(n_chunks):
        taken = [(moved, i, j) for i in range(len(sources))]
        for key, source in zip(taken, sources, strict=True):
            tasks[key] = Task(key, getitem, TaskRef(source), j)
        if join is not None:
            taken, joins = _tree(taken, every, join, f"{moved}-joined", j)
            tasks |= joins
        own: Any = (name, j)
        tasks[own] = Task(own, place, List(*map(TaskRef, taken)), *arguments)
    graph = extended(split.dask, name, MaterializedLayer(tasks), {split.name})
    return da.Array(graph, name, ((1,) * n_chunks,), meta=np.empty(0, dtype=object))


# --- Chunks that are read only if needed ----------------------------------------------------------


@dataclass(frozen=True)
class Reads:
    """What it takes to read each chunk of an array, found once for several layers."""

    x: da.Array

    @cached_property
    def of_chunks(self) -> dict[Any, Read]:
        return reads_of(self.x)


def each_if_needed(
    function: Callable[..., Any],
    name: str,
    reads: Reads,
    grids: Sequence[da.Array],
    singles: Sequence[da.Array],
    *arguments: Any,
) -> da.Array:
    """An array of one object for each chunk, by a function that may read it or not.

    Parameters
    ----------
    function : callable
        ``(read, place, *blocks, *results, *arguments)``, of which ``read()`` makes the chunk.
    name : str
        Of the new layer.
    reads : Reads
        Of the chunks.
    grids, singles : sequences of dask arrays
        As for `each_chunk`.
    """
    x = reads.x
    layer = ReadsIfNeeded(function, name, reads, grids, singles, arguments)
    needs = {*layers_in_place(x), *(array.name for array in (*grids, *singles))}
    graph = HighLevelGraph.merge(x.dask, *(array.dask for array in (*grids, *singles)))
    graph = extended(graph, name, layer, needs)
    chunks = tuple((1,) * n for n in x.numblocks)
    return da.Array(graph, name, chunks, meta=np.empty((0,) * x.ndim, dtype=object))


class ReadsIfNeeded(Layer):
    """A task for each chunk that reads it only if what it is told asks for it.

    The tasks are made when they are wanted, for they hold what it takes to read.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        reads: Reads,
        grids: Sequence[da.Array],
        singles: Sequence[da.Array],
        arguments: tuple[Any, ...],
    ) -> None:
        super().__init__()
        self.function, self.name, self.reads, self.arguments = function, name, reads, arguments
        self.grids = [grid.name for grid in grids]
        self.singles = [single.name for single in singles]

    @cached_property
    def _tasks(self) -> dict[Any, Task]:
        tasks = {}
        for key, read in self.reads.of_chunks.items():
            place = key[1:]
            own = (self.name, *place)
            told = [TaskRef((grid, *place)) for grid in self.grids]
            told += [TaskRef((single,)) for single in self.singles]
            values = List(*map(TaskRef, read.needs))
            tasks[own] = Task(own, _run, self.function, read, values, place, *told, *self.arguments)
        return tasks

    def is_materialized(self) -> bool:
        return "_tasks" in self.__dict__

    def get_output_keys(self) -> set[Any]:
        return {(self.name, *key[1:]) for key in flatten(self.reads.x.__dask_keys__())}

    def __getitem__(self, key: Any) -> Task:
        return self._tasks[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return int(self.reads.x.npartitions)


def _run(
    function: Callable[..., Any], read: Read, values: list[Any], place: Any, *told: Any
) -> Any:
    return function(partial(read.run, values), place, *told)
