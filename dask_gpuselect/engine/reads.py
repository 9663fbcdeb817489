"""Tasks that read their chunk only if what is known by then asks for it.

A graph cannot decide that. So such a task holds, as data, what it takes to read the chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from dask._task_spec import DataNode, GraphNode, List, TaskRef, execute_graph
from dask.core import flatten

from dask_gpuselect.engine.graphs import objects, tasks_of_each
from dask_gpuselect.engine.source import (
    DaskArray,
    Key,
    as_tasks,
    divide,
    extended,
    is_future,
    merged,
)
from dask_gpuselect.quiet import outside, quiet


@dataclass(frozen=True)
class Reads:
    """What it takes to read each chunk of an array, found once for several layers."""

    x: DaskArray

    @cached_property
    def of_chunks(self) -> dict[Any, Read]:
        return reads_of(self.x)


def each_if_needed(
    function: Callable[..., Any],
    name: str,
    reads: Reads,
    grids: Sequence[DaskArray],
    singles: Sequence[DaskArray],
    *arguments: Any,
) -> DaskArray:
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
    of_places = {key[1:]: read for key, read in reads.of_chunks.items()}
    needs = {place: List(*map(TaskRef, read.needs)) for place, read in of_places.items()}
    takes = [of_places, needs, {place: place for place in of_places}]
    takes += [grid.name for grid in grids]
    takes += [TaskRef((single.name,)) for single in singles]
    run = partial(_run, function, arguments)
    tasks = tasks_of_each(run, name, x.numblocks, takes)
    above = {*divide(x)[0], *(array.name for array in (*grids, *singles))}
    return objects(extended(merged(x, *grids, *singles), name, tasks, above), name, x.numblocks)


def _run(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    read: Read,
    values: list[Any],
    place: Any,
    *told: Any,
) -> Any:
    with quiet():
        return function(outside()(partial(read.run, values)), place, *told, *arguments)


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


def reads_of(x: DaskArray) -> dict[Key, Read]:
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
