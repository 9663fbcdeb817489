"""Properties of a source, and private copies of its tasks under other keys, which can wait.

Dask keeps a chunk in memory until its last consumer is done. If both loads of one graph, or a load
and the user's own ``x - median(x)``, shared their source's keys, every chunk would wait in memory
for the later consumer. So each load reads a copy of the source's tasks under keys of its own, and
the copy for load 2 starts when the bracket is known.

Four things are not copied, because a copy could only cost:

- data that are in memory already: data nodes and futures (persisted arrays, NumPy arrays);
- results of reductions that are not larger, as a whole, than one chunk or 1 KiB: ``x.mean()`` in
  ``median(x - x.mean())``, or a median of ours in ``median(abs(x - median(x)))``. They are
  computed once and shared, with all that they depend on;
- dask's shuffles, which write to disk what the tasks behind them read: see `shuffles`;
- what only these need.

``dask.graph_manipulation.clone`` does not rename keys inside `Task` objects (dask 2026.8), so this
module uses `Task.substitute`.
"""

from __future__ import annotations

import inspect
import math
import mmap
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from dask._task_spec import Alias as Alias
from dask._task_spec import DataNode as DataNode
from dask._task_spec import GraphNode as GraphNode
from dask._task_spec import List as List
from dask._task_spec import Task as Task
from dask._task_spec import TaskRef as TaskRef
from dask._task_spec import _execute_subgraph, convert_legacy_task
from dask._task_spec import convert_legacy_graph as convert_legacy_graph
from dask.array import core, optimization
from dask.base import clone_key, get_name_from_key
from dask.blockwise import Blockwise, blockwise_token
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer
from dask.layers import ArrayBlockwiseDep

from dask_gpuselect.arrays import gpu_of

Key = Any
Node = TypeVar("Node", bound=Hashable)
Seed = Hashable

# The arrays of the engine, and what makes them: `dask.array` has others where it has expressions.
DaskArray = core.Array
blockwise: Callable[..., DaskArray] = core.blockwise
elemwise: Callable[..., DaskArray] = core.elemwise
from_array: Callable[..., DaskArray] = core.from_array
map_blocks: Callable[..., DaskArray] = core.map_blocks
optimize: Callable[..., Any] = optimization.optimize
Graph = HighLevelGraph

# Names and modules of dask's functions that take a chunk of an array-like, in the layer of
# `da.from_array`, or a slice of a chunk.
GETTERS = {"getter", "getter_inline", "getter_nofancy"}
SLICES = {"getitem"}
HOMES = {"dask.array.core", "dask_array._core_utils"}
HOMES |= {"_operator", "dask.array.chunk", "dask_array._chunk"}

# Words in the names of what dask's reductions make in the end, of arrays and of frames.
DASKS_REDUCTIONS = ("-aggregate-", "-tree-")

# Bytes of a result that is small beside chunks of any size.
SMALL_RESULT = 1024


# --- What layers do -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Companion:
    """Describe an array that goes with the elements of every chunk.

    Parameters
    ----------
    name : {"keeps", "weights", "labels"}
        As a field of `Accompanied`.
    dtype : dtype
        Of its elements.
    stretched : tuple of int
        The axes of the data along which it has size 1, and is broadcast.
    """

    name: str
    dtype: np.dtype[Any]
    stretched: tuple[int, ...] = ()


@dataclass(frozen=True)
class Step:
    """Wrap a function for tasks, and say what the tasks do.

    So a layer is known by its tasks, whatever its name: a copy of it has the same functions, and
    so have tasks without layers.

    Parameters
    ----------
    does : {"reduce", "stage", "check", "pack"}
        Whether a task makes the result of a reduction in the end, moves a chunk from the host to a
        device, or hands on a chunk: one that is checked, or one with its companions.
    function : callable
    companions : tuple of Companion
        What goes with the elements of each chunk that a task makes.
    """

    does: str
    function: Callable[..., Any]
    companions: tuple[Companion, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def steps_of(made: Any) -> Iterator[Step]:
    """Yield what a task does, or the first task of a layer.

    If dask has fused several tasks, the last one comes first. Waiting for a turn does not count.
    """
    if isinstance(made, Blockwise):
        made = made.task
    elif isinstance(made, MaterializedLayer):
        made = next(iter(made.values()), None)
    function = getattr(made, "func", None)
    if function is _in_turn:
        yield from steps_of(made.args[0])
    elif function is _execute_subgraph:
        inner, last, *_ = made.args
        for key in sorted(inner, key=lambda key: key != last):
            yield from steps_of(inner[key])
    else:
        yield function if isinstance(function, Step) else Step("", nothing)


def nothing(*_: Any) -> None:
    """Do nothing, in a task that others wait for."""


def itself(value: Any) -> Any:
    """Return a value unchanged."""
    return value


def is_reduction(name: str, made: Layer | GraphNode | None) -> bool:
    """Return whether a layer or task of that name makes the result of a reduction.

    The reduction may be dask's or one of this package.
    """
    is_ours = any(step.does == "reduce" for step in steps_of(made))
    return is_ours or any(word in name for word in DASKS_REDUCTIONS)


def calls(task: Any, names: Collection[str]) -> bool:
    """Return whether a task calls a function of dask, or of Python, with one of these names."""
    function = getattr(task, "func", None)
    is_called_so = getattr(function, "__name__", "") in names
    return is_called_so and getattr(function, "__module__", "") in HOMES


class Apart(Task):
    """A task that dask fuses with no other, so that what it takes is freed before the next one.

    Otherwise a block that is joined from tiles, and then copied by dask for the caller, would be in
    memory three times: in tiles, joined and copied.
    """

    __slots__ = ()
    block_fusion = True


class DoneOnce(MaterializedLayer):
    """Tasks that no load copies: all loads, and the user's own work, share their results."""


def merged(*arrays: DaskArray, graph: Graph | None = None) -> Graph:
    """Merge the graphs of several arrays, and one more graph if given."""
    others = [] if graph is None else [graph]
    return HighLevelGraph.merge(*others, *(array.dask for array in arrays))


def extended(
    graph: Graph,
    name: str,
    tasks: Mapping[Key, GraphNode] | Layer,
    dependencies: set[str],
    annotations: Mapping[str, Any] | None = None,
) -> Graph:
    """Add a layer of tasks to a graph, depending on the layers in `dependencies`."""
    layer = tasks if isinstance(tasks, Layer) else MaterializedLayer(tasks, annotations)
    layers = {**graph.layers, name: layer}
    return HighLevelGraph(layers, {**graph.dependencies, name: dependencies})


def some_layers(graph: Graph, names: Iterable[str]) -> Graph:
    """Return a graph with some of the layers of another."""
    layers = {name: graph.layers[name] for name in names}
    return Graph(layers, {name: graph.dependencies[name] for name in layers})


def graph_of(tasks: Mapping[Key, Any]) -> Graph:
    """Convert low-level tasks to a graph with a layer for each name."""
    futures = {key: value for key, value in tasks.items() if is_future(value)}
    others = convert_legacy_graph({key: tasks[key] for key in tasks if key not in futures})
    by_name: dict[str, dict[Key, Any]] = {}
    for key, value in {**others, **futures}.items():
        by_name.setdefault(get_name_from_key(key), {})[key] = value
    needs: dict[str, set[str]] = {name: set() for name in by_name}
    for key, task in others.items():
        name = get_name_from_key(key)
        needs[name].update(map(get_name_from_key, task.dependencies))
    layers = {name: MaterializedLayer(some) for name, some in by_name.items()}
    # Names that are not there are of tasks that dask culls.
    return Graph(layers, {name: some & layers.keys() - {name} for name, some in needs.items()})


def private_copy(x: DaskArray, seed: Seed, *, after: str | None = None) -> DaskArray:
    """Copy an array's tasks under keys of their own, possibly to wait for another task.

    Parameters
    ----------
    x : dask array
        The source. Nothing is computed.
    seed : hashable
        Copies of one array with the same seed have the same keys, and so share their work.
    after : str, optional
        Layer of one task that every first task of the copy waits for. It is not part of the copy's
        graph: the caller adds it.

    Returns
    -------
    dask array
        `x` itself if all its chunks are in memory already.
    """
    layers, dependencies = x.dask.layers, x.dask.dependencies
    in_place, copied = divide(x)
    if not copied:
        return x
    renaming = _Renaming(layers, in_place, copied, seed, after and (after,))
    new_layers: dict[str, Layer] = {name: layers[name] for name in in_place}
    new_dependencies: dict[str, set[str]] = {name: set(dependencies[name]) for name in in_place}
    for name in copied:
        layer, waits = renaming.copy(name, dependencies[name])
        new_name = clone_key(name, seed)
        new_layers[new_name] = layer
        new_dependencies[new_name] = {
            clone_key(d, seed) if d in copied else d for d in dependencies[name]
        }
        if waits and after:
            new_dependencies[new_name].add(after)
        if data := _data(layers[name]):  # the copy has other names for data
            # The new layer has only the data: culling may keep the layer's tasks, which are not
            # wanted.
            data_name = f"{new_name}-data"
            new_layers[data_name] = MaterializedLayer(data)
            new_dependencies[data_name] = set()
            new_dependencies[new_name].add(data_name)
    graph = HighLevelGraph(new_layers, new_dependencies)
    return DaskArray(graph, clone_key(x.name, seed), x.chunks, meta=x._meta)


# Chunks whose tasks are put together: it takes 0.1 ms for each of them at the call. Of 1,000 chunks
# of 73 x 10 float64 in passes, a median took 0.20 s to ask for and 0.52 to compute; left to dask,
# 0.01 and 1.01 (processor time).
MOST_IN_ONE = 1 << 10
MOST_DEEP = 64  # most tasks that are nested: they run as nested calls


def in_one_task_each(copy: DaskArray, x: DaskArray) -> DaskArray:
    """Nest the tasks that make each chunk of a private copy of `x` in one task.

    This applies if each chunk is made by a chain of tasks that make nothing else. Dask would fuse
    these when the graph is computed, and order the tasks of each chunk again when it runs: 0.2 ms a
    chunk, and as much again for layers that it has fused. A device has processed the chunk by then.

    The copy stays as it is if slices are taken of what is read, because dask then reads only the
    slices; if tasks have annotations; and if there are very many chunks. It also does if a task
    takes several others, such as a chunk and its labels: dask would put all of it into its
    consumer, if that is one task, and so load the chunk again for every expression array.
    """
    layers, dependencies = copy.dask.layers, copy.dask.dependencies
    own = [name for name in layers if name not in x.dask.layers and not _is_in_memory(layers[name])]
    wanted = list(flatten(copy.__dask_keys__()))
    if copy.name not in own or len(wanted) > MOST_IN_ONE:
        return copy
    if any(layers[name].annotations for name in own):
        return copy
    tasks: dict[Key, GraphNode] = {}
    for name in own:
        made = as_tasks(layers[name], layers, dependencies[name] & layers.keys())
        tasks |= {key: task for key, task in made.items() if task is not None}
    needed = Counter(key for task in tasks.values() for key in task.dependencies)
    needed.update(wanted)
    n_inner = (sum(each in tasks for each in task.dependencies) for task in tasks.values())
    if max(n_inner, default=0) > 1 or not _is_shallow(wanted, tasks):
        return copy
    if any(needed[key] > 1 or _is_slice(tasks[key], tasks) for key in tasks):
        return copy
    others = set().union(*(dependencies[name] for name in own)).difference(own)
    graph = some_layers(copy.dask, [name for name in layers if name not in own])
    joined = {key: _in_one(key, tasks) for key in wanted}
    graph = extended(graph, copy.name, joined, others)
    return DaskArray(graph, copy.name, copy.chunks, meta=copy._meta)


def _is_shallow(keys: Sequence[Key], tasks: Mapping[Key, GraphNode]) -> bool:
    """Return whether chains of tasks behind these keys are not too deep."""
    for _ in range(MOST_DEEP):
        if not keys:
            return True
        keys = [each for key in keys for each in tasks[key].dependencies if each in tasks]
    return False


def _is_slice(task: GraphNode, tasks: Mapping[Key, GraphNode]) -> bool:
    """Return whether a task takes a part of the result of another task that takes a part."""
    takes_a_part = partial(calls, names=GETTERS | SLICES)
    others = (tasks[key] for key in task.dependencies if key in tasks)
    return takes_a_part(task) and any(map(takes_a_part, others))


def _in_one(key: Key, tasks: Mapping[Key, GraphNode]) -> GraphNode:
    """Return the task of a key, with the tasks that it needs nested in it."""
    task = tasks[key]
    inner = {each: _in_one(each, tasks) for each in task.dependencies if each in tasks}
    return nested(task, inner, key)


def nested(task: GraphNode, inner: dict[Key, Any], key: Key) -> GraphNode:
    """Put tasks in place of those keys of a task; it reads data if one of them does, as in dask."""
    joined: GraphNode = task.substitute(inner, key=key)
    if isinstance(joined, Task):
        joined._data_producer = any(each.data_producer for each in (task, *inner.values()))
    return joined


def in_place(x: DaskArray) -> Graph:
    """Return the graph of the layers of an array that no load copies."""
    return some_layers(x.dask, divide(x)[0])


class Source(DaskArray):
    """A dask array that knows what its chunks are and where they are. Each fact is cached."""

    @classmethod
    def of(cls, x: DaskArray) -> Source:
        """Return the array as a source; itself if it is one."""
        return x if isinstance(x, cls) else cls(x.dask, x.name, x.chunks, meta=x._meta)

    @cached_property
    def made_by(self) -> Step:
        """The step of the tasks that make the chunks."""
        return next(steps_of(self.dask.layers.get(self.name)))

    @property
    def companions(self) -> tuple[Companion, ...]:
        """Return what goes with the elements of every chunk."""
        is_masked = isinstance(self._meta, np.ma.MaskedArray)
        mask = (Companion("keeps", np.dtype(bool)),) if is_masked else ()
        return self.made_by.companions if self.made_by.does == "pack" else mask

    def element_bytes(self, dtype: np.dtype[Any] | None = None) -> int:
        """Return the bytes of an element with its companions, as `dtype` if that is given.

        Labels and companions that are broadcast do not count.
        """
        whole = (each for each in self.companions if not each.stretched and each.name != "labels")
        n_bytes = sum(each.dtype.itemsize for each in whole)
        return n_bytes + int((self.dtype if dtype is None else dtype).itemsize)

    @cached_property
    def is_on_device(self) -> bool:
        """True if the chunks are CuPy arrays."""
        return gpu_of(self._meta) is not None

    @cached_property
    def is_staged(self) -> bool:
        """True if the chunks are moved from the host to a device."""
        steps = (step for layer in self.dask.layers.values() for step in steps_of(layer))
        return any(step.does == "stage" for step in steps)

    @cached_property
    def is_in_memory(self) -> bool:
        """True if reading any chunk costs nothing.

        The chunks are data nodes or futures, or views of a NumPy or CuPy array in memory, or a
        concatenation of several such arrays.
        """
        return all(each is not None for each in _in_memory(self.name, self.dask))

    @cached_property
    def is_in_process(self) -> bool:
        """True if all chunks are in the memory of this process: none is a future."""
        return self.is_in_memory and not futures_of(self)

    @cached_property
    def is_on_one_device(self) -> bool:
        """True if all chunks, and their companions, are in the memory of one device.

        They are CuPy arrays in the graph, or views of one.
        """
        devices = set(map(gpu_of, _in_memory(self.name, self.dask)))
        return len(devices) == 1 and None not in devices


def _in_memory(name: str, graph: Graph) -> Iterator[Any]:
    """Yield, for the chunks of a layer, the array or future that is in memory, or the viewed array.

    Yield None for chunks that tasks make.
    """
    layer = graph.layers.get(name)
    if layer is None:
        yield None
    elif _hands_on(layer):
        for each in graph.dependencies[name]:
            yield from _in_memory(each, graph)
    elif _is_in_memory(layer):
        yield from (getattr(value, "value", value) for value in _data(layer).values())
    else:
        source = _viewed(layer, graph.layers)
        yield source if gpu_of(source) is not None or _is_plain(source) else None


def futures_of(x: DaskArray) -> set[Key]:
    """Return the keys of the futures, data on a cluster, among the tasks of an array."""
    layers = [each for each in x.dask.layers.values() if isinstance(each, MaterializedLayer)]
    return {key for each in layers for key, value in each.items() if is_future(value)}


def _hands_on(layer: Layer) -> bool:
    """Return whether a layer only passes on the chunks of others.

    It may check or pack them, or give them another name, as `da.concatenate` does.
    """
    if next(steps_of(layer)).does in ("check", "pack"):
        return True
    if not isinstance(layer, MaterializedLayer) or not layer:
        return False
    return all(isinstance(value, Alias) or _is_key(value) for value in layer.values())


def _is_key(value: Any) -> bool:
    """Return whether a value in a graph is the key of a chunk."""
    return isinstance(value, tuple) and len(value) > 0 and isinstance(value[0], str)


def _viewed(layer: Any, layers: Mapping[str, Layer]) -> Any:
    """Return the array-like that a layer takes chunks of; None if the layer does more than that.

    An example is the layer of ``da.from_array(cupy_array, asarray=False)``.
    """
    is_blockwise = isinstance(layer, Blockwise)
    tasks = [layer.task] if is_blockwise else [*layer.values()]
    if not tasks or not all(calls(task, GETTERS) for task in tasks):
        return None
    source: Any = layer.indices[0][0] if is_blockwise else tasks[0].args[0]
    if isinstance(source, TaskRef | Alias):
        source = _data(layers[get_name_from_key(source.key)]).get(source.key)
        source = source.value if isinstance(source, DataNode) else source
    return source


def _is_plain(array: Any) -> bool:
    """Return whether an object is a NumPy array that is not a view of a file."""
    if type(array) is not np.ndarray:
        return False
    base = array.base
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return False
        base = base.base
    return not isinstance(base, mmap.mmap)


def aligned(arrays: Sequence[DaskArray]) -> list[list[int]]:
    """Group arrays, by their positions, so that each group can be processed chunk by chunk.

    In a group, chunk i of each array depends on the same chunks of what the group has in common, so
    none of these has to wait in memory. Chunks are numbered in C order. Five of them are checked.
    Arrays may have different numbers of chunks.
    """
    groups: list[list[int]] = []
    for place in sorted(range(len(arrays)), key=lambda i: -arrays[i].npartitions):
        fitting = (group for group in groups if _are_aligned(arrays[group[0]], arrays[place]))
        group = next(fitting, None)
        if group is None:
            groups.append([place])
        else:
            group.append(place)
    return sorted(sorted(group) for group in groups)


def _are_aligned(x: DaskArray, y: DaskArray) -> bool:
    """Return whether chunk i of both arrays shares tasks in all common layers, for a few i."""
    n = min(x.npartitions, y.npartitions)
    places = sorted({(n - 1) * i // 4 for i in range(5)}) if n else []
    of_x, of_y = _ancestors_of(x, places), _ancestors_of(y, places)
    names = set[str]().union(*of_x) & set[str]().union(*of_y)
    nothing: set[Key] = set()
    pairs = [
        (a.get(name, nothing), b.get(name, nothing))
        for a, b in zip(of_x, of_y, strict=True)
        for name in names
    ]
    return all(not (a or b) or not a.isdisjoint(b) for a, b in pairs)


def _ancestors_of(x: DaskArray, places: Sequence[int]) -> list[dict[str, set[Key]]]:
    """Return the keys that each of some chunks needs, by name, without shared or resident data."""
    keys = list(flatten(x.__dask_keys__()))
    some = [keys[place] for place in places]
    in_place, copied = map(set, divide(x))
    resident = in_place - copied
    once = done_once(x)
    tasks = convert_legacy_graph(dict(x.dask.cull(set(some))))
    tasks = {
        key: task
        for key, task in tasks.items()
        if get_name_from_key(key) not in resident and key not in once
    }
    return [_ancestors(key, tasks) for key in some]


def _ancestors(key: Key, tasks: Mapping[Key, GraphNode]) -> dict[str, set[Key]]:
    """Return a key and the keys of all that it needs, by their names."""
    by_name: dict[str, set[Key]] = {}
    for wanted in reached([key], lambda own: tasks[own].dependencies if own in tasks else ()):
        if wanted in tasks:
            by_name.setdefault(get_name_from_key(wanted), set()).add(wanted)
    return by_name


def reached(start: Iterable[Node], next_of: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """Return all that can be reached from some nodes of a graph, which are included, each once."""
    visited: dict[Node, None] = {}
    stack = list(start)
    while stack:
        node = stack.pop()
        if node not in visited:
            visited[node] = None
            stack += next_of(node)
    return list(visited)


def divide(x: DaskArray) -> tuple[list[str], list[str]]:
    """Return the layers that stay in place, and those to copy, as far as `x` needs them."""
    layers, dependencies = x.dask.layers, x.dask.dependencies
    small = max(largest_chunk_bytes(x), SMALL_RESULT)
    copied: list[str] = []
    shared: list[str] = []

    def next_of(name: str) -> Collection[str]:
        layer = layers[name]
        is_small = is_reduction(name, layer) and _size(layer) <= small
        is_shared = is_small or isinstance(layer, DoneOnce)
        if is_shared or _is_in_memory(layer):
            shared.append(name)
            return ()
        copied.append(name)
        needs: set[str] = dependencies[name]
        return needs

    reached(x.__dask_layers__(), next_of)
    return reached(shared, dependencies.__getitem__), copied


def stays_in_place(x: DaskArray) -> bool:
    """Return whether the layers to copy show that chunk i needs none of their tasks elsewhere.

    They do if each is blockwise, and takes chunk i of its inputs for chunk i. This makes no tasks,
    which takes 10 s for 1e5 chunks of three layers. If it is False, the tasks have to be compared.
    """
    copied = set(divide(x)[1])
    layers, dependencies = x.dask.layers, x.dask.dependencies
    return all(_takes_same_place(layers[name], dependencies[name], copied) for name in copied)


def _takes_same_place(layer: Layer, dependencies: set[str], copied: set[str]) -> bool:
    """Return whether chunk i of a layer depends, among copied layers, only on their chunks i."""
    # Slices are fused into the tasks before them.
    if not isinstance(layer, Blockwise) or calls(layer.task, SLICES):
        return False
    tokens = set(map(blockwise_token, range(len(layer.indices))))
    grid = tuple(layer.dims[index] for index in layer.output_indices)
    chunks: set[Any] = set()
    inputs: Any = layer.indices
    for source, index in inputs:
        if index is None:  # data, or the key of a task that all chunks share
            if isinstance(source, GraphNode | TaskRef) and not _is_in_place(source, copied):
                return False
        elif source in layer.io_deps:
            if not isinstance(layer.io_deps[source], ArrayBlockwiseDep):
                return False
        elif index == layer.output_indices and layer.numblocks[source] == grid:
            chunks.add(source)
        else:
            return False
    return layer.task.dependencies <= tokens and dependencies & copied <= chunks


def _is_in_place(source: GraphNode | TaskRef, copied: set[str]) -> bool:
    """Return whether what all chunks of a layer share is needed from no copied layer."""
    keys = {source.key} if isinstance(source, TaskRef) else source.dependencies
    return all(get_name_from_key(key) not in copied for key in keys)


def done_once(x: DaskArray) -> dict[Key, Any]:
    """Return the tasks of an array that are marked as done once for all loads."""
    once: dict[Key, Any] = {}
    for layer in x.dask.layers.values():
        if isinstance(layer, DoneOnce):
            once |= layer
    return once


Division = Callable[[Mapping[Key, Any]], tuple[dict[Key, Any], dict[Key, Any]]]
"""Type of a function that divides a layer's tasks into those done once and those of each load."""


def with_tasks_apart(
    x: DaskArray, is_done_once: Callable[[Any], bool], divided: Division
) -> DaskArray:
    """Move the tasks of an array that are done once for all loads to layers of their own.

    Parameters
    ----------
    x : dask array
    is_done_once : callable
        Returns whether a value of the graph is such a task, whose layer is then divided.
    divided : callable
        Divides the tasks of a layer.
    """
    layers, dependencies = dict(x.dask.layers), dict(x.dask.dependencies)
    for name, layer in x.dask.layers.items():
        if isinstance(layer, Blockwise | DoneOnce) or not any(map(is_done_once, layer.values())):
            continue
        tasks = as_tasks(layer, x.dask.layers, x.dask.dependencies[name])
        once, rest = divided({key: layer[key] if t is None else t for key, t in tasks.items()})
        if rest:
            before = f"{name}-once"
            layers[before] = DoneOnce(once, layer.annotations)
            dependencies[before] = dependencies[name]
            dependencies[name] = dependencies[name] | {before}
            layers[name] = MaterializedLayer(rest, layer.annotations)
        else:
            layers[name] = DoneOnce(once, layer.annotations)
        layers[name].collection_annotations = layer.collection_annotations
    return DaskArray(Graph(layers, dependencies), x.name, x.chunks, meta=x._meta)


def computed_once(x: DaskArray) -> DaskArray:
    """Let all loads share the chunks of an array, whatever their size.

    By default, loads share results of reductions only if they are no larger than a chunk. They
    would compute larger ones, and those of unknown size, again. This is for results that other
    questions need.
    """
    layer = x.dask.layers[x.name]
    once = DoneOnce(dict(layer), layer.annotations)
    once.collection_annotations = layer.collection_annotations
    graph = Graph({**x.dask.layers, x.name: once}, x.dask.dependencies)
    return DaskArray(graph, x.name, x.chunks, meta=x._meta)


def largest_chunk(x: DaskArray) -> float:
    """Return the number of elements of the largest chunk, by the largest sizes along each axis."""
    elements: float = math.prod(max(sizes, default=0) for sizes in x.chunks)
    return elements


def largest_chunk_bytes(x: DaskArray) -> float:
    """Return the bytes of the largest chunk; `SMALL_RESULT` if unknown."""
    elements = largest_chunk(x)
    return SMALL_RESULT if math.isnan(elements) else elements * x.dtype.itemsize


def _size(layer: Layer) -> float:
    """Return the bytes of all chunks of the array that a layer makes; infinite if unknown."""
    annotations = layer.collection_annotations or {}
    if "shape" not in annotations or "dtype" not in annotations or annotations["dtype"] is None:
        return math.inf
    size = math.prod(annotations["shape"]) * annotations["dtype"].itemsize
    return math.inf if math.isnan(size) else size


def _is_in_memory(layer: Layer) -> bool:
    """Return whether a layer consists of data nodes and futures only."""
    return isinstance(layer, MaterializedLayer) and len(_data(layer)) == len(layer)


def _data(layer: Layer) -> dict[Key, Any]:
    """Return the data nodes and futures of a layer."""
    if isinstance(layer, Blockwise):
        return {}
    return {key: value for key, value in layer.items() if _is_datum(value)}


def _is_datum(value: Any) -> bool:
    """Return whether a value in a graph is data: neither a task nor another key."""
    if isinstance(value, GraphNode):
        return isinstance(value, DataNode)
    if is_future(value):
        return True
    return not isinstance(value, tuple | list | dict | str | int | float)


def is_future(value: Any) -> bool:
    return isinstance(value, TaskRef) or getattr(value, "__dask_future__", False)


class _Renaming:
    """New names for copied keys, and copies of tasks that use them."""

    def __init__(
        self,
        layers: Mapping[str, Layer],
        in_place: list[str],
        copied: list[str],
        seed: Seed,
        after: Key | None,
    ) -> None:
        self.layers = layers
        self.seed = seed
        self.after = after
        # By the name in front of a key's indices: one entry for a layer of any number of chunks.
        self.names = set[str]()
        for name in copied:
            layer = layers[name]
            if isinstance(layer, Blockwise):
                self.names.add(layer.output)
            else:
                self.names.update(map(get_name_from_key, layer))
        # dask makes one layer of all that a lazy keyword argument needs: a copy of its tasks has
        # keys of its own, and other layers still need those that stay in place.
        self.names -= set(in_place).difference(copied)

    def copy(self, name: str, dependencies: set[str]) -> tuple[Layer, bool]:
        """Copy a layer, and return whether any of its tasks waits."""
        layer = self.layers[name]
        if isinstance(layer, Blockwise):
            return self._copy_blockwise(layer)
        return self._copy_tasks(layer, dependencies)

    def _is_copied(self, key: Key) -> bool:
        return get_name_from_key(key) in self.names

    def _new_key(self, key: Key) -> Key:
        return clone_key(key, self.seed) if self._is_copied(key) else key

    def _renamed(self, task: GraphNode, own: Collection[Key] = ()) -> dict[Key, Key]:
        """Return the copied keys that a task of a layer with `own` keys needs, with new names."""
        needed = (key for key in task.dependencies if key in own or self._is_copied(key))
        return {key: clone_key(key, self.seed) for key in needed}

    def _copy_blockwise(self, layer: Blockwise) -> tuple[Layer, bool]:
        """Copy a blockwise layer as such, so that dask can still fuse it with its neighbours."""
        output = clone_key(layer.output, self.seed)
        renamed = self._renamed(layer.task)  # lazy keyword arguments; the others are in `indices`
        task = layer.task.substitute(renamed, key=output)
        indices: list[tuple[Any, Any]] = []
        is_first = not renamed
        for source, index in layer.indices:
            key = source.key if isinstance(source, TaskRef) else source
            if index is None and not isinstance(source, TaskRef):
                indices.append((source, index))  # a literal
            elif self._is_copied(key):
                is_first = False
                new_key = self._new_key(key)
                is_reference = isinstance(source, TaskRef)
                indices.append((TaskRef(new_key) if is_reference else new_key, index))
            else:
                indices.append((source, index))
        # dask refers to a lazy keyword argument by the name of its layer, and may cull its key.
        indices += [(TaskRef(new_key), None) for new_key in renamed.values()]
        waits = False
        if is_first and self.after is not None:
            waits = True
            turn = TaskRef(blockwise_token(len(indices)))
            task = _waiting(task, output, turn)
            indices.append((TaskRef(self.after), None))
        numblocks = {self._new_key(name): blocks for name, blocks in layer.numblocks.items()}
        copy = rebuilt(layer, output=output, task=task, indices=indices, numblocks=numblocks)
        return copy, waits

    def _copy_tasks(self, layer: Layer, dependencies: set[str]) -> tuple[Layer, bool]:
        tasks: dict[Key, GraphNode] = {}
        waits = False
        own = as_tasks(layer, self.layers, dependencies)
        for key, value in own.items():
            new_key = clone_key(key, self.seed)
            task, is_first = self._copy_task(new_key, key, value, own)
            if is_first and self.after is not None:
                task, waits = _waiting(task, new_key, TaskRef(self.after)), True
            tasks[new_key] = task
        return MaterializedLayer(tasks, annotations=layer.annotations), waits

    def _copy_task(
        self, new_key: Key, key: Key, task: GraphNode | None, own: Collection[Key]
    ) -> tuple[GraphNode, bool]:
        """Copy a task under its new key, and return whether it needs no other copied task."""
        if task is None:
            return Alias(new_key, key), True  # data is not copied
        renamed = self._renamed(task, own)
        if isinstance(task, Alias):  # Alias.substitute keeps the old key if the target stays
            return Alias(new_key, renamed.get(task.target, task.target)), not renamed
        return task.substitute(renamed, key=new_key), not renamed


def as_tasks(
    layer: Layer, layers: Mapping[str, Layer], dependencies: set[str]
) -> dict[Key, GraphNode | None]:
    """Convert the tasks of a layer to task objects; data become None."""
    values = dict(layer)
    if any(not isinstance(value, GraphNode) and not _is_datum(value) for value in values.values()):
        known = set(values).union(*(layers[name].get_output_keys() for name in dependencies))
    else:
        known = set()
    tasks: dict[Key, GraphNode | None] = {}
    for key, value in values.items():
        if _is_datum(value):
            tasks[key] = None
            continue
        task = convert_legacy_task(key, value, known)
        tasks[key] = task if isinstance(task, GraphNode) else DataNode(key, task)
    return tasks


def rebuilt(layer: Blockwise, **changes: Any) -> Blockwise:
    """Copy a blockwise layer, with some of the arguments of its class changed."""
    own = {name: getattr(layer, name) for name in inspect.signature(Blockwise).parameters}
    return Blockwise(**(own | changes))


def _waiting(task: GraphNode, key: Key, turn: TaskRef) -> Task:
    """Return a task that waits for its turn, under a new key.

    A task that reads from a file waits with its first argument, so that dask still fuses slices
    into it.
    """
    reads = task.data_producer
    if not (isinstance(task, Task) and calls(task, GETTERS)):
        return Task(key, _in_turn, task, turn, _data_producer=reads)
    file, *rest = task.args
    waiting = Task(None, _in_turn, file, turn)
    return Task(key, task.func, waiting, *rest, _data_producer=reads, **task.kwargs)


def without_turn(layer: Blockwise, turns: Collection[Key]) -> Task | None:
    """Return the task of a layer without the wait for its turn, if that is one of `turns`.

    Return None if it waits for something else.
    """
    task = layer.task
    if task.func is not _in_turn:
        return task
    inner: Task = task.args[0]
    turn, _ = layer.indices[-1]
    return inner if isinstance(turn, TaskRef) and turn.key in turns else None


def _in_turn(value: Any, turn: object) -> Any:
    """Return a value; the second argument only makes the task wait."""
    del turn
    return value
