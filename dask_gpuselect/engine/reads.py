"""Tasks that read their chunk only if earlier results require it.

A dask graph has no branches. So such a task contains, as data, the tasks that make the chunk. Tasks
that several chunks share run once for all of them, under the same condition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from dask.core import flatten

from dask_gpuselect.engine.graphs import named, objects, tasks_of_each
from dask_gpuselect.engine.shuffles import readers_of_shuffles
from dask_gpuselect.engine.source import (
    SLICES,
    DaskArray,
    DataNode,
    Graph,
    GraphNode,
    Key,
    List,
    Source,
    Task,
    TaskRef,
    as_tasks,
    calls,
    divide,
    done_once,
    extended,
    futures_of,
    in_place,
    is_future,
    merged,
    optimize,
    reached,
    stays_in_place,
)
from dask_gpuselect.quiet import outside, quietly

ChunkPlace = tuple[int, ...]
"""Place of a chunk in the grid of chunks."""


@dataclass(frozen=True)
class Reads:
    """The tasks that read each chunk of some arrays, determined once for several layers.

    Parameters
    ----------
    *arrays : dask arrays
        Arrays with the same grid of chunks.
    """

    arrays: tuple[Source, ...]

    def __init__(self, *arrays: DaskArray) -> None:
        object.__setattr__(self, "arrays", tuple(map(Source.of, arrays)))

    @cached_property
    def of_shuffles(self) -> dict[Key, GraphNode]:
        """The tasks that read what a shuffle has written, which stay in the graph.

        A worker reads only from its own disk. For other data, it tells the scheduler to run the
        task on another worker. So a task that reads chunks of several shuffles would never end.
        """
        readers: dict[Key, GraphNode] = {}
        for x in self.arrays:
            if done_once(x):  # without any, no tasks are made
                readers |= readers_of_shuffles(x, self._tasks)
        return readers

    @cached_property
    def _tasks(self) -> dict[Key, GraphNode]:
        """The tasks of all arrays, except those whose results are shared or in memory anyway."""
        tasks: dict[Key, GraphNode] = {}
        for x in self.arrays:
            tasks |= _tasks_of(x)
        return tasks

    @cached_property
    def of_places(self) -> dict[ChunkPlace, Read]:
        """The tasks that make the chunks of all arrays at each place in the grid."""
        shuffled = self.of_shuffles
        tasks = {key: task for key, task in self._tasks.items() if key not in shuffled}
        columns = [list(flatten(x.__dask_keys__())) for x in self.arrays]
        if any(_is_slice(task, tasks) for task in tasks.values()):
            # Fuse slices into the tasks that read, as dask does, so that only the slice is read.
            tasks = optimize(tasks, [key for keys in columns for key in keys])
        return {keys[0][1:]: _read(keys, tasks) for keys in zip(*columns, strict=True)}

    @cached_property
    def shared(self) -> dict[Key, GraphNode]:
        """The tasks that serve several places, such as those of a mask that chunks share."""
        if all(map(stays_in_place, self.arrays)):
            return {}
        n_places = Counter(key for read in self.of_places.values() for key in read.tasks)
        return {
            key: task
            for read in self.of_places.values()
            for key, task in read.tasks.items()
            if n_places[key] > 1 and not isinstance(task, DataNode)
        }

    @cached_property
    def once(self) -> dict[Key, Read]:
        """The tasks that run once for all places: shared ones, and those that read shuffles."""
        if not (once := self.of_shuffles | self.shared):
            return {}
        reads = self.of_places.values()
        tasks = {key: task for read in reads for key, task in read.tasks.items()}
        data = {key: task for key, task in tasks.items() if isinstance(task, DataNode)}
        # All that a shared task needs is shared as well, or data.
        return {
            key: _read((key,), {key: task} | {n: data[n] for n in task.dependencies & data.keys()})
            for key, task in once.items()
        }

    @cached_property
    def apart(self) -> dict[ChunkPlace, Read]:
        """Return `of_places` with reads that need the tasks of `once` instead of having them."""
        if not self.once:
            return self.of_places
        return {
            place: _read(read.keys, {k: read.tasks[k] for k in read.tasks if k not in self.once})
            for place, read in self.of_places.items()
        }

    @property
    def take_futures(self) -> bool:
        """True if chunks need data in memory of their own, such as those of a persisted array."""
        futures = set[Key]().union(*map(futures_of, self.arrays))
        if not futures:
            return False
        needs = [set(read.needs) for read in self.of_places.values()]
        own = set().union(*needs).difference(set.intersection(*needs))
        return not own.isdisjoint(futures)

    @property
    def annotations(self) -> list[Mapping[str, Any]]:
        """The different annotations of the tasks that read; empty if there are none."""
        distinct: list[Mapping[str, Any]] = []
        for x in self.arrays:
            for name in divide(x)[1]:
                own = x.dask.layers[name].annotations
                if own and own not in distinct:
                    distinct.append(own)
        return distinct


def each_if_needed(
    function: Callable[..., Any],
    label: str,
    reads: Reads,
    singles: Sequence[DaskArray],
    wants: Callable[..., bool],
    instead: Any = None,
    /,
    **arguments: Any,
) -> DaskArray:
    """Apply a function to each chunk, if it is wanted; return an array of objects.

    Parameters
    ----------
    function : callable
        ``(chunk, *results, place, **arguments)``, as for `each_chunk`.
    label : str
        Prefix of the name of the new layer.
    reads : Reads
        How to read the chunks.
    singles : sequence of dask arrays
        As for `each_chunk`.
    wants : callable
        ``(*results)``: true if the chunks are read.
    instead : object
        Result where they are not.
    """
    x, *_ = reads.arrays
    name = named(label, [*reads.arrays, *singles], arguments)
    results = [TaskRef((single.name,)) for single in singles]
    refs, once = _once(name, reads, wants, results)
    needs = {place: _needs(read, refs) for place, read in reads.apart.items()}
    takes = [reads.apart, needs, {place: place for place in needs}, *results]
    run = quietly(partial(_run, partial(function, **arguments), wants, instead))
    tasks = tasks_of_each(run, name, x.numblocks, takes)
    # The layers that read stay out of the graph: with one more consumer, dask would not fuse them.
    resident = [in_place(array) for array in reads.arrays]
    above = {single.name for single in singles}.union(*(graph.layers for graph in resident))
    graph = Graph.merge(*resident, *(single.dask for single in singles))
    graph = _with_both(graph, name, once, tasks, above)
    return objects(graph, name, x.numblocks)


def _once(
    name: str, reads: Reads, wants: Callable[..., bool], results: Sequence[TaskRef]
) -> tuple[dict[Key, TaskRef], dict[Key, Task]]:
    """Make the tasks that run once for all places, if the results want that, and refer to them."""
    refs = {key: TaskRef((f"{name}-once", i)) for i, key in enumerate(reads.once)}
    tasks = {
        ref.key: Task(ref.key, _read_if_wanted, wants, read, _needs(read, refs), List(*results))
        for ref, read in zip(refs.values(), reads.once.values(), strict=True)
    }
    return refs, tasks


def _with_both(
    graph: Graph,
    name: str,
    once: dict[Key, Task],
    tasks: dict[Key, Task],
    above: set[str],
    annotations: Any = None,
) -> Graph:
    """Add a layer of tasks, and before it that of the tasks of `_once`, if there are any."""
    if once:
        graph = extended(graph, f"{name}-once", once, above, annotations)
        above = above | {f"{name}-once"}
    return extended(graph, name, tasks, above, annotations)


def _needs(read: Read, refs: Mapping[Key, TaskRef]) -> List:
    """Return references to what a read needs: some of it is made by tasks of other keys."""
    return List(*(refs.get(need) or TaskRef(need) for need in read.needs))


def _read_if_wanted(
    wants: Callable[..., bool], read: Read, values: list[Any], results: list[Any]
) -> Any:
    """Return the result of a task that is read, or None if it is not wanted."""
    return Reader(read, values)() if wants(*results) else None


def several_if_needed(
    function: Callable[..., Any],
    label: str,
    reads: Reads,
    given: Sequence[DaskArray],
    calls: Iterable[tuple[Any, ...]],
    wants: Callable[..., bool] | None = None,
) -> DaskArray:
    """Make tasks that may read the chunks of several places; return an array of objects.

    Parameters
    ----------
    function : callable
        ``(readers, *more)``, with a `Reader` for each place.
    label : str
        Prefix of the name of the new layer.
    reads : Reads
        How to read the chunks.
    given : sequence of dask arrays
        Arrays whose results `more` refers to.
    calls : iterable
        For each task the places, and `more`.
    wants : callable, optional
        ``(*results)``, by those of `given`, each of one task: true if anything is read. Without it,
        the places may share no work.
    """
    name, tasks = named(label, given, {}), dict[Key, Task]()
    refs, once = dict[Key, TaskRef](), dict[Key, Task]()
    if wants is not None:
        refs, once = _once(name, reads, wants, [TaskRef((each.name,)) for each in given])
    of_places = reads.apart if refs else reads.of_places
    for i, (places, *more) in enumerate(calls):
        some = tuple(of_places[place] for place in places)
        needs = List(*(_needs(read, refs) for read in some))
        tasks[name, i] = Task((name, i), quietly(_run_several), function, some, needs, *more)
    resident = Graph.merge(*map(in_place, reads.arrays))
    annotations = next(iter(reads.annotations), None)
    graph, above = merged(*given, graph=resident), {each.name for each in given}
    graph = _with_both(graph, name, once, tasks, above.union(resident.layers), annotations)
    return objects(graph, name, (len(tasks),))


def _run_several(
    function: Callable[..., Any], reads: Sequence[Read], values: list[list[Any]], *more: Any
) -> Any:
    return function(list(map(Reader, reads, values)), *more)


def _run(
    function: Callable[..., Any],
    wants: Callable[..., bool],
    instead: Any,
    read: Read,
    values: list[Any],
    place: Any,
    *results: Any,
) -> Any:
    return function(Reader(read, values)(), *results, place) if wants(*results) else instead


@dataclass(frozen=True)
class Read:
    """The tasks that make the chunks of some arrays at one place.

    Parameters
    ----------
    keys : tuple of keys
        Keys of the chunks.
    tasks : dict
        All tasks needed, except those whose results are computed or in memory anyway.
    needs : tuple of keys
        Keys of these results.
    """

    keys: tuple[Key, ...]
    tasks: dict[Key, GraphNode]
    needs: tuple[Key, ...]


class Reader:
    """Function that makes the chunks of one place: ``read(i)`` that of array i, default 0.

    Each chunk is made once. A result that several of them need is made once as well, and dropped
    when all of them are made.

    Parameters
    ----------
    read : Read
    values : list
        Values for the keys in `read.needs`.
    """

    def __init__(self, read: Read, values: list[Any]) -> None:
        self._read, self._known = read, dict(zip(read.needs, values, strict=True))
        self._left = Counter(need for task in read.tasks.values() for need in task.dependencies)
        self._left.update(read.keys)

    def __call__(self, i: int = 0) -> Any:
        key = self._read.keys[i]
        with outside():
            chunk = self._made(key)
        self._forget([key])
        return chunk

    def _made(self, wanted: Key) -> Any:
        known, tasks = self._known, self._read.tasks
        if wanted not in known:
            for key in _in_order(wanted, tasks, known):
                known[key] = tasks[key](known)
                self._forget(tasks[key].dependencies)
        return known[wanted]

    def _forget(self, keys: Iterable[Key]) -> None:
        """Drop results that no remaining task needs."""
        for key in keys:
            self._left[key] -= 1
            if not self._left[key] and key in self._read.tasks:
                self._known.pop(key, None)


def _in_order(wanted: Key, tasks: Mapping[Key, GraphNode], known: Mapping[Key, Any]) -> list[Key]:
    """Return the tasks that a result needs, and its own, each after its dependencies."""
    ordered: dict[Key, None] = {}
    stack = [wanted]
    while stack:
        key = stack[-1]
        missing = [
            need for need in tasks[key].dependencies if need not in ordered and need not in known
        ]
        if missing:
            stack += missing
        else:
            ordered[stack.pop()] = None
    return list(ordered)


def _tasks_of(x: DaskArray) -> dict[Key, GraphNode]:
    """Return the tasks of an array, except those whose results are computed or in memory anyway."""
    layers, dependencies = x.dask.layers, x.dask.dependencies
    _, names = divide(x)
    tasks: dict[Key, GraphNode] = {}
    for name in names:
        layer = layers[name]
        for key, task in as_tasks(layer, layers, dependencies[name]).items():
            if task is not None:
                tasks[key] = task
            elif isinstance(layer[key], DataNode):
                tasks[key] = layer[key]
            elif not is_future(layer[key]):
                tasks[key] = DataNode(key, layer[key])
    return tasks


def _is_slice(task: GraphNode, tasks: Mapping[Key, GraphNode]) -> bool:
    """Return whether a task takes a part of the result of another."""
    return calls(task, SLICES) and not task.dependencies.isdisjoint(tasks)


def _read(keys: tuple[Key, ...], tasks: dict[Key, GraphNode]) -> Read:
    every = reached(keys, lambda key: tasks[key].dependencies if key in tasks else ())
    own = {key: tasks[key] for key in every if key in tasks}
    return Read(keys, own, tuple(key for key in every if key not in tasks))
