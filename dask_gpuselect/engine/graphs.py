"""Layers of tasks: one task for each chunk, and trees of tasks that merge partial results."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from dask import config
from dask.base import get_scheduler, tokenize
from dask.blockwise import Blockwise, blockwise, blockwise_token
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from dask.layers import ArrayBlockIdDep, ArrayBlockwiseDep
from dask.utils import key_split

from dask_gpuselect.engine.settings import integer
from dask_gpuselect.engine.source import (
    DaskArray,
    DataNode,
    Graph,
    Key,
    List,
    Source,
    Step,
    Task,
    TaskRef,
    extended,
    itself,
    merged,
    nested,
    rebuilt,
    some_layers,
    steps_of,
    without_turn,
)
from dask_gpuselect.engine.source import blockwise as array_blockwise
from dask_gpuselect.quiet import quietly

MERGE_EVERY = 32  # parts that a merge takes; dask's default of 4 makes three times as many tasks


def objects(graph: Graph, name: str, numblocks: tuple[int, ...]) -> DaskArray:
    """Wrap a layer whose tasks each make one object as a dask array with one block per object."""
    chunks = tuple((1,) * n for n in numblocks)
    return DaskArray(graph, name, chunks, meta=np.empty((0,) * len(numblocks), dtype=object))


def named(label: str, arrays: Iterable[DaskArray], arguments: Mapping[str, Any]) -> str:
    """Return the name of a layer: a label, and a token of the arrays and arguments of its tasks.

    The label stands for their function. Dask 2025.1 gives a dict another token in each process.
    """
    return f"{label}-{tokenize([each.name for each in arrays], list(arguments.items()))}"


def literals(label: str, values: Sequence[Any], numblocks: tuple[int, ...]) -> DaskArray:
    """Make a dask array of objects that exist already: one for each block, in C order."""
    places, name = np.ndindex(numblocks), f"{label}-{tokenize(values, numblocks)}"
    nodes = {
        (name, *place): DataNode((name, *place), value)
        for place, value in zip(places, values, strict=True)
    }
    return objects(extended(Graph({}, {}), name, nodes, set()), name, numblocks)


def each_chunk(
    function: Callable[..., Any],
    label: str,
    grids: list[DaskArray],
    singles: Sequence[DaskArray] = (),
    /,
    *,
    block_ids: bool = False,
    is_alone: bool = False,
    **arguments: Any,
) -> DaskArray:
    """Apply ``function(*blocks, *results, [place], **arguments)`` to each chunk.

    The result is a dask array of one object for each chunk.

    Parameters
    ----------
    function : callable
        Takes a block of each of `grids`, the results of `singles`, and, if `block_ids`, the place
        of the block in the grid.
    label : str
        Prefix of the name of the new layer.
    grids : list of dask arrays
        Arrays with the same grid of blocks, the chunks first.
    singles : sequence of dask arrays
        Results of `reduced`.
    is_alone : bool
        True if nothing else uses these chunks, so that the task may read its own chunk.
    """
    x, *rest = grids
    index = tuple(range(x.ndim))
    name, function = named(label, [*grids, *singles], arguments), quietly(function)
    needs = {array.name: array.dask for array in (*rest, *singles)}
    if (door := _entrance(x, [(single.name,) for single in singles])) is None:
        pairs: list[Any] = [x.name, index]
        needs[x.name] = x.dask
    else:
        source, graph, check, declared = door
        pairs = [source, index, declared, index]
        needs[source] = graph
        function = partial(_enter, function, check)
    numblocks = {pairs[0]: x.numblocks, **{grid.name: x.numblocks for grid in rest}}
    for grid in rest:
        pairs += [grid.name, index]
    for single in singles:
        pairs += [TaskRef((single.name,)), None]
    if block_ids:
        pairs += [places_of(x), index]
    graph, above = HighLevelGraph.merge(*needs.values()), set(needs)
    reader = graph.layers[pairs[0]]
    made: Any
    if isinstance(reader, Blockwise):  # dask fuses a blockwise layer with another one
        made = blockwise(function, name, index, *pairs, numblocks=numblocks, **arguments)
        if is_alone and _can_be_joined(reader, graph, made):
            made = _joined(reader, made)
            above = above - {reader.output} | graph.dependencies[reader.output]
            graph = some_layers(graph, [each for each in graph.layers if each != reader.output])
    else:
        made = tasks_of_each(function, name, x.numblocks, pairs[::2], **arguments)
    return objects(extended(graph, name, made, above), name, x.numblocks)


def _can_be_joined(reader: Blockwise, graph: Graph, taker: Blockwise) -> bool:
    """Return whether a layer that makes chunks from data alone can be merged with its consumer.

    A reader with blockwise layers above it is left to dask, which fuses slices into it.
    """
    above = (graph.layers[name] for name in graph.dependencies[reader.output])
    return (
        not any(isinstance(layer, Blockwise) for layer in above)
        and reader.annotations is None
        and not reader.new_axes
        and reader.output_indices == taker.output_indices
        and all(set(index or ()) <= set(reader.output_indices) for _, index in reader.indices)
    )


def _joined(reader: Blockwise, taker: Blockwise) -> Blockwise:
    """Merge a layer that reads chunks with its consumer, by nesting one task in the other.

    Otherwise dask would build and order a small graph for each chunk when it runs, which takes 0.1
    ms.
    """
    n = len(taker.indices)
    places = [0, *range(n, n + len(reader.indices) - 1)]
    renamed = {blockwise_token(i): blockwise_token(place) for i, place in enumerate(places)}
    inner = reader.task.substitute(renamed, key=reader.output)
    numblocks = {**reader.numblocks, **taker.numblocks}
    del numblocks[reader.output]
    return rebuilt(
        taker,
        task=nested(taker.task, {blockwise_token(0): inner}, taker.output),
        indices=[reader.indices[0], *taker.indices[1:], *reader.indices[1:]],
        numblocks=numblocks,
        io_deps={**reader.io_deps, **taker.io_deps},
    )


def tasks_of_each(
    function: Callable[..., Any],
    name: str,
    numblocks: tuple[int, ...],
    takes: Sequence[Any],
    **arguments: Any,
) -> dict[Key, Task]:
    """Make a task for each chunk: as a blockwise layer would, in a fifth of the time.

    Parameters
    ----------
    function : callable
        Takes the values of `takes`, and `arguments`.
    name : str
        Name of the tasks.
    takes : sequence
        For each argument the name of a grid of blocks, a reference to one result, or a table with a
        value for each block.
    """
    tasks = {}
    for place in np.ndindex(numblocks):
        own = (name, *place)
        tasks[own] = Task(own, function, *(_taken(each, place) for each in takes), **arguments)
    return tasks


def _taken(each: Any, place: tuple[int, ...]) -> Any:
    """Return an argument of the task at a place; see `tasks_of_each`."""
    if isinstance(each, str):
        return TaskRef((each, *place))
    return each if isinstance(each, TaskRef) else each[place]


def places_of(x: DaskArray) -> ArrayBlockIdDep:
    """Return the place of each block in the grid, as an argument of `dask.array.blockwise`."""
    return ArrayBlockIdDep(x.chunks)


def packed_by(
    pack: Step, x: DaskArray, grids: Sequence[Any], name: str, chunks: tuple[Any, ...]
) -> DaskArray:
    """Pack the blocks of several grids at each place to one chunk of an array like `x`."""
    index = tuple(range(x.ndim))
    pairs = itertools.chain.from_iterable((each, index[: len(each.numblocks)]) for each in grids)
    made = array_blockwise(
        pack, index, *pairs, name=name, align_arrays=False, dtype=x.dtype, meta=x._meta
    )
    return DaskArray(made.dask, name, chunks, meta=x._meta)


# --- A check of every chunk ---------------------------------------------------------------------


def checked_by(check: Callable[..., Any], x: DaskArray, name: str) -> Source:
    """Wrap an array so that a function checks each chunk, given its place and declared shape.

    If one task alone takes the chunk, the check becomes a part of that task. Otherwise dask would
    fuse two tasks, and order the tasks of the result at each run, which takes 0.2 ms a chunk.
    """
    index = tuple(range(x.ndim))
    pairs = x.name, index, Declared(x.chunks), index
    step, numblocks = Step("check", check), {x.name: x.numblocks}
    layer = blockwise(step, name, index, *pairs, numblocks=numblocks)
    graph = extended(x.dask, name, layer, {x.name})
    return Source.of(DaskArray(graph, name, x.chunks, meta=x._meta))


class Declared(ArrayBlockwiseDep):
    """The place and the declared shape of each chunk, as a blockwise argument."""

    def __getitem__(self, idx: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[float, ...]]:
        return idx, tuple(sizes[i] for sizes, i in zip(self.chunks, idx, strict=True))

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return type(self).__name__, self.chunks


def _enter(
    function: Callable[..., Any],
    check: Callable[..., Any],
    chunk: Any,
    declared: Any,
    /,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Apply a function to a chunk, which is checked first."""
    return function(check(chunk, declared), *args, **kwargs)


def _entrance(
    x: DaskArray, turns: Collection[Key]
) -> tuple[str, Graph, Callable[..., Any], Declared] | None:
    """Return what `checked_by` has put in front of an array, or None.

    This is for tasks that also wait for `turns`. What is returned: the name and the graph of the
    array behind the check, the check, and the declared place and shape of each chunk.
    """
    layer = x.dask.layers.get(x.name)
    task = without_turn(layer, turns) if isinstance(layer, Blockwise) else None
    if task is None or next(steps_of(task)).does != "check":
        return None
    assert isinstance(layer, Blockwise)
    (source, _), (name, _), *_ = layer.indices
    assert isinstance(source, str)
    assert isinstance(name, str)
    declared = layer.io_deps[name]
    assert isinstance(declared, Declared)
    graph = some_layers(x.dask, [each for each in x.dask.layers if each != x.name])
    return source, graph, task.func, declared


# --- Reductions ---------------------------------------------------------------------------------


def most_merged(x: DaskArray) -> int:
    """Return how many partial results about chunks one task of a reduction takes, at most."""
    return min(int(x.npartitions), split_every(None, MERGE_EVERY))


def reduced(
    grid: DaskArray,
    merge: Callable[[list[Any]], Any],
    finish: Callable[..., Any],
    label: str,
    place: tuple[int, ...] = (),
    /,
    **arguments: Any,
) -> DaskArray:
    """Reduce all objects of a grid by a tree of merges and a last task, in the order of the chunks.

    Reductions of a grid by the same function share the merges.

    Parameters
    ----------
    grid : dask array
        Array of objects.
    merge, finish : callable
        ``list of objects -> object``, and ``list of objects, **arguments -> result``.
    label : str
        Prefix of the name of the last task.
    place : tuple of int
        Indices that follow the name in its key.
    **arguments
        Arguments of `finish`. An array of one object stands for the object.
    """
    every = split_every(None, MERGE_EVERY)
    merge_name = named(f"{key_split(grid.name)}-merge", [grid], {"merge": merge, "every": every})
    parts, merges = merge_tree(list(flatten(grid.__dask_keys__())), every, merge, merge_name)
    graph, above = grid.dask, grid.name
    if merges:
        graph = extended(graph, merge_name, merges, {above})
        above = merge_name
    given = List(*map(TaskRef, parts))
    return _finished((finish, label, arguments, place), graph, [grid], {above}, given)


def in_one_place(
    grids: Sequence[DaskArray],
    function: Callable[..., Any],
    label: str,
    place: tuple[int, ...] = (),
    /,
    **arguments: Any,
) -> DaskArray:
    """Apply ``function(blocks, **arguments)`` to all blocks of some arrays in one task.

    The blocks of each array are in C order.
    """
    given = List(*(TaskRef(key) for grid in grids for key in flatten(grid.__dask_keys__())))
    names = {grid.name for grid in grids}
    return _finished((function, label, arguments, place), merged(*grids), grids, names, given)


def item_of(lists: DaskArray, i: int, label: str) -> DaskArray:
    """Select the i-th item of the list that each task makes."""
    return each_chunk(itemgetter(i), f"{label}-{i}", [lists])


def reduced_items(
    lists: DaskArray,
    merge: Callable[[list[Any]], Any],
    finish: Callable[..., Any],
    label: str,
    arguments_of_each: Sequence[Mapping[str, Any]],
    join: Callable[[list[Any]], Any],
) -> DaskArray:
    """Reduce the i-th items of all lists, for each i, and combine: ``join(results)``.

    Parameters
    ----------
    merge, finish, label
        As for `reduced`.
    arguments_of_each : sequence of mapping
        Arguments of the last task for each i.
    """
    results = []
    for i, arguments in enumerate(arguments_of_each):
        items = item_of(lists, i, f"{label}-of")
        results.append(reduced(items, merge, finish, f"{label}-{i}", **arguments))
    return in_one_place(results, join, label)


Finish = tuple[Callable[..., Any], str, Mapping[str, Any], tuple[int, ...]]
"""The last task of a reduction: `finish`, `label`, `arguments` and `place` of `reduced`."""


def _finished(
    last: Finish, graph: Graph, arrays: Sequence[DaskArray], above: set[str], *given: Any
) -> DaskArray:
    """Add the last task of a reduction of some arrays, which takes the results of other tasks."""
    function, label, arguments, place = last
    name = named(label, arrays, arguments)
    references, known = referred(arguments)
    key = (name, *place)
    tasks = {key: Task(key, Step("reduce", quietly(function)), *given, **references)}
    above = above | {each.name for each in known}
    return objects(extended(merged(*known, graph=graph), name, tasks, above), name, ())


def reduced_together(
    grids: Sequence[DaskArray],
    merge: Callable[[list[Any]], Any],
    finishes: Sequence[Finish],
) -> list[DaskArray]:
    """Reduce each of several grids as `reduced` does, by one tree of merges for all of them.

    The tree ties the grids together chunk by chunk. With a tree for each grid, dask would process
    all chunks for the first grid, and meanwhile hold what the other grids need of every chunk:
    eight box plots of ``x[k == i]`` held all of x in memory.
    """
    if len(grids) == 1:
        (grid,), ((finish, label, arguments, place),) = grids, finishes
        return [reduced(grid, merge, finish, label, place, **arguments)]
    label = f"{key_split(grids[0].name)}-merge"
    merge_each = partial(merge_columns, merge=merge)
    whole = reduced(bundled(grids, label), merge_each, merge_each, f"{label}-all")
    results = []
    for i, (finish, label, arguments, place) in enumerate(finishes):
        last = partial(_finish_one, finish=finish), label, {"i": i, **arguments}, place
        results.append(_finished(last, whole.dask, [whole], {whole.name}, TaskRef((whole.name,))))
    return results


def bundled(grids: Sequence[DaskArray], label: str) -> DaskArray:
    """Bundle the objects of several grids, for each chunk in C order.

    Each bundle is a list that has a list for each grid, with one object or none.
    """
    name = f"{label}-bundle-{tokenize([grid.name for grid in grids])}"
    columns = [[TaskRef(key) for key in flatten(grid.__dask_keys__())] for grid in grids]
    tasks = {
        (name, i): Task((name, i), itself, List(*(List(*each[i : i + 1]) for each in columns)))
        for i in range(max(map(len, columns)))
    }
    graph = extended(merged(*grids), name, tasks, {grid.name for grid in grids})
    return objects(graph, name, (len(tasks),))


Bundle = list[list[Any]]


def merge_columns(bundles: list[Bundle], merge: Callable[[list[Any]], Any]) -> Bundle:
    columns = (list(itertools.chain(*parts)) for parts in zip(*bundles, strict=True))
    return [[merge(parts)] if parts else [] for parts in columns]


def column_of(bundles: DaskArray, i: int, n: int) -> DaskArray:
    """Select the object of the i-th grid in each of the first `n` bundles, which all have one."""
    name = f"{bundles.name}-of-{i}"
    tasks = {
        (name, j): Task((name, j), _object_of, TaskRef((bundles.name, j)), i) for j in range(n)
    }
    return objects(extended(bundles.dask, name, tasks, {bundles.name}), name, (n,))


def _object_of(bundle: Bundle, i: int) -> Any:
    return bundle[i][0]


def _finish_one(whole: Bundle, *, i: int, finish: Callable[..., Any], **arguments: Any) -> Any:
    return finish(whole[i], **arguments)


def referred(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[DaskArray]]:
    """Refer to the objects of arrays among the arguments of a task; also return these arrays.

    Each of them has one object.
    """
    arrays = {name: each for name, each in arguments.items() if isinstance(each, DaskArray)}
    only = {name: TaskRef(next(flatten(each.__dask_keys__()))) for name, each in arrays.items()}
    return {**arguments, **only}, list(arrays.values())


def split_every(given: Any, default: int) -> int:
    """Return how many parts a merge takes: by an argument, else dask's config, else a default.

    As for dask's reductions, this is an integer, or a dict of integers by axis whose product
    counts. Dask takes 1 for 2 in its config, and so does this function.

    Raises
    ------
    ValueError
        For anything else, and for an argument below 2.
    """
    value = config.get("split_every", None) if given is None else given
    if not value and given is None:
        return default
    parts = value.values() if isinstance(value, Mapping) else [value]
    sizes = [integer(part) for part in parts]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or not known or min(known) < (1 if given is None else 2):
        raise ValueError(
            "split_every must be an integer of at least 2, or a dict of such integers by axis, "
            f"not {value!r}"
        )
    return max(2, math.prod(known))


def merge_tree(
    parts: list[Any], every: int, merge: Callable[[list[Any]], Any], name: str, *place: int
) -> tuple[list[Any], dict[Any, Task]]:
    """Make the tasks that merge parts, in their order, until at most `every` are left.

    A single part left over at a level is merged as well, because a merge may return another type
    than it takes.

    Parameters
    ----------
    parts : list of keys
    every : int
        Number of parts that a task takes.
    merge : callable
        ``list of objects -> object``.
    name, *place
        Name of the layer, and the last indices of each key: a layer may have several trees.

    Returns
    -------
    keys : list
        Of what is left: of the parts themselves, if they are few.
    tasks : dict
    """
    merges: dict[Any, Task] = {}
    depth = 0
    while len(parts) > every:
        groups = [parts[i : i + every] for i in range(0, len(parts), every)]
        parts = [(name, depth, i, *place) for i in range(len(groups))]
        for own, group in zip(parts, groups, strict=True):
            merges[own] = Task(own, quietly(merge), List(*map(TaskRef, group)))
        depth += 1
    return parts, merges


def size_of_groups(n: int, most: int) -> int:
    """Return the size of each group of `n` objects, for at most `most` groups.

    A group has at least as many objects as a merge takes.
    """
    return max(split_every(None, MERGE_EVERY), -(-n // most))


def grouped(
    grids: Sequence[DaskArray],
    size: int,
    function: Callable[..., Any],
    label: str,
    order: Sequence[int] = (),
) -> DaskArray:
    """Apply ``function(*lists)`` to groups of `size` chunks, with a list of objects of each grid.

    The result is an array of one object for each group. Groups are taken in an order of the chunks,
    which is C order if none is given.
    """
    name = named(label, grids, {"size": size})
    columns = [list(map(TaskRef, flatten(grid.__dask_keys__()))) for grid in grids]
    order, tasks = order or range(len(columns[0])), {}
    for i, begin in enumerate(range(0, len(order), size)):
        some = order[begin : begin + size]
        lists = (List(*(column[place] for place in some)) for column in columns)
        tasks[name, i] = Task((name, i), quietly(function), *lists)
    graph = extended(merged(*grids), name, tasks, {grid.name for grid in grids})
    return objects(graph, name, (len(tasks),))


def grouped_together(
    grids: Sequence[DaskArray], size: int, function: Callable[[list[Any]], Any], label: str
) -> list[DaskArray]:
    """Apply a function to lists of objects of each grid, as `grouped` does.

    The grids have the same groups, which tie them together as `reduced_together` does.
    """
    if len(grids) == 1:
        return [grouped(grids, size, function, f"{label}-groups")]
    merge = partial(merge_columns, merge=function)
    groups = grouped([bundled(grids, label)], size, merge, f"{label}-groups")
    return [column_of(groups, i, -(-each.npartitions // size)) for i, each in enumerate(grids)]


# --- Workers --------------------------------------------------------------------------------------


def _worker() -> Any:
    """Return the worker of `distributed` that runs this task; None if there is none."""
    distributed = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.get_worker()
    except ValueError:
        return None


def is_on_a_worker() -> bool:
    """Return whether a worker of `distributed` runs this task."""
    return _worker() is not None


def worker_directory() -> str:
    """Return the directory of the `distributed` worker that runs this task."""
    return str(_worker().local_directory)


def workers_here() -> tuple[int, int, int]:
    """Return the numbers of workers on the host of this task's worker, of all, and of its threads.

    The scheduler is asked.
    """
    worker = _worker()
    ask = sys.modules["distributed"].utils.sync
    known = ask(worker.loop, worker.scheduler.identity)["workers"]
    hosts = [each["host"] for each in known.values()]
    return hosts.count(known[worker.address]["host"]), len(hosts), worker.state.nthreads


def worker_memory() -> float:
    """Return the memory limit in bytes of the `distributed` worker that runs this task.

    It is infinite if no worker runs the task, or if the worker has no limit. A worker that does not
    say has the memory of the machine.
    """
    worker = _worker()
    if worker is None:
        return math.inf
    try:
        return worker.memory_manager.memory_limit or math.inf
    except AttributeError:
        return float(sys.modules["distributed"].system.MEMORY_LIMIT)


def runs_in_threads() -> bool:
    """Return whether dask would run tasks in threads of this process, as far as the call knows.

    The call knows the scheduler of dask's config, and the client.
    """
    return _home_of_scheduler() in ("dask.threaded", "dask.local")


def runs_on_workers() -> bool:
    """Return whether dask would run tasks on the workers of a client, as far as the call knows."""
    return _home_of_scheduler().partition(".")[0] == "distributed"


def _home_of_scheduler() -> str:
    """Return the module of the scheduler that would compute an array."""
    try:
        scheduler = get_scheduler(cls=DaskArray)
    except (RuntimeError, ValueError):  # `compute` will raise it
        return ""
    return getattr(scheduler, "__module__", "")
