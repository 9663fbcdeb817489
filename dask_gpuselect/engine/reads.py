"""Tasks that read their chunk only if what is known by then asks for it.

A graph cannot decide that. So such a task holds, as data, what it takes to read the chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import dask.array as da
from dask._task_spec import DataNode, GraphNode, List, Task, TaskRef, execute_graph
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, Layer

from dask_gpuselect.engine.graphs import objects
from dask_gpuselect.engine.source import Key, as_tasks, divide, extended, is_future
from dask_gpuselect.quiet import outside, quiet


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
    needs = {*divide(x)[0], *(array.name for array in (*grids, *singles))}
    graph = HighLevelGraph.merge(x.dask, *(array.dask for array in (*grids, *singles)))
    graph = extended(graph, name, layer, needs)
    return objects(graph, name, x.numblocks)


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
    with quiet():
        return function(outside()(partial(read.run, values)), place, *told)


@dataclass(frozen=True)
class Read:
    """How to make one chunk.

    Parameters
    ----------
    key : key
        Of the chunk.
    tasks : dict
        All that it takes but for what is computed or in memory anyway.
    needs : tuple of keys
        Of that.
    """

    key: Key
    tasks: dict[Key, GraphNode]
    needs: tuple[Key, ...]

    def run(self, values: Sequence[Any]) -> Any:
        """The chunk, from the values of `needs`."""
        known = dict(zip(self.needs, values, strict=True))
        if self.key in known:
            return known[self.key]
        return execute_graph(self.tasks, known, {self.key})[self.key]


def reads_of(x: da.Array) -> dict[Key, Read]:
    """What it takes to read each chunk of an array, as data that nothing runs.

    A task that holds such data can decide to read its chunk or not, which a graph cannot. Work that
    chunks share is then done for each of them: this is for what is rarely needed.
    """
    layers, dependencies = x.dask.layers, x.dask.dependencies
    _, held = divide(x)
    tasks: dict[Key, GraphNode] = {}
    for name in held:
        layer = layers[name]
        for key, task in as_tasks(layer, layers, dependencies[name]).items():
            if task is not None:
                tasks[key] = task
            elif isinstance(layer[key], DataNode):
                tasks[key] = layer[key]
            elif not is_future(layer[key]):
                tasks[key] = DataNode(key, layer[key])
    return {key: _read(key, tasks) for key in flatten(x.__dask_keys__())}


def _read(key: Key, tasks: dict[Key, GraphNode]) -> Read:
    own: dict[Key, GraphNode] = {}
    needs: dict[Key, None] = {}
    stack = [key]
    while stack:
        wanted = stack.pop()
        if wanted in own or wanted in needs:
            continue
        if wanted in tasks:
            own[wanted] = tasks[wanted]
            stack += tasks[wanted].dependencies
        else:
            needs[wanted] = None
    return Read(key, own, tuple(needs))
