"""Layers of tasks: one for each chunk, trees that merge what these report, and tasks that read a
chunk only if that is needed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from dask_gpuselect.engine.settings import integer
from dask_gpuselect.engine.source import AnswerLayer, Read, layers_in_place, reads_of
from dask_gpuselect.quiet import outside, quiet, quietly

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
        pairs += [places_of(x), index]
    numblocks = {grid.name: x.numblocks for grid in grids}
    layer = blockwise(quietly(function), name, index, *pairs, numblocks=numblocks, **arguments)
    needs = [*grids, *singles]
    graph = HighLevelGraph.merge(*(array.dask for array in needs))
    graph = extended(graph, name, layer, {array.name for array in needs})
    chunks = tuple((1,) * n for n in x.numblocks)
    return da.Array(graph, name, chunks, meta=np.empty((0,) * x.ndim, dtype=object))


def places_of(x: da.Array) -> ArrayBlockIdDep:
    """For `dask.array.blockwise`: the place of each block in the grid."""
    return ArrayBlockIdDep(x.chunks)


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
    every = split_every(None, MERGE_EVERY)
    merge_name = f"{merge_name}-{tokenize(grid.name, every)}"
    parts, merges = _tree(list(flatten(grid.__dask_keys__())), every, merge, merge_name)
    graph, above = grid.dask, grid.name
    if merges:
        graph = extended(graph, merge_name, MaterializedLayer(merges), {above})
        above = merge_name
    key = key or (name,)
    last = AnswerLayer({key: Task(key, quietly(finish), List(*map(TaskRef, parts)), **arguments)})
    graph = extended(graph, name, last, {above} | _layers_of(arguments))
    return da.Array(graph, name, (), meta=np.empty((), dtype=object))


@dataclass(frozen=True)
class Finish:
    """The last task of a reduction.

    Parameters
    ----------
    function : callable
        ``list of objects, **arguments -> result``.
    name : str
        Of the task's layer; its key is ``(name,)``.
    arguments : dict
        Task references become dependencies.
    """

    function: Callable[..., Any]
    name: str
    arguments: Mapping[str, Any]


def reduced_together(
    grids: Sequence[da.Array],
    merge_name: str,
    merge: Callable[[list[Any]], Any],
    finishes: Sequence[Finish],
) -> list[da.Array]:
    """As `reduced` of each grid by one tree for all of them.

    The tree ties the grids together chunk by chunk. With a tree for each, dask would go through all
    chunks for the first of them, and keep what the others need of every chunk until it is their
    turn: eight box plots of ``x[k == i]`` kept all of x.
    """
    if len(grids) == 1:
        (grid,), (last,) = grids, finishes
        return [reduced(grid, merge_name, merge, last.function, last.name, **last.arguments)]
    bundle = _bundled(grids, merge_name)
    names = tokenize(bundle.name, [last.name for last in finishes])
    merge_each = partial(_merge_each, merge=merge)
    merged = reduced(bundle, merge_name, merge_each, merge_each, f"{merge_name}-all-{names}")
    results = []
    for i, (grid, last) in enumerate(zip(grids, finishes, strict=True)):
        key = (last.name,)
        whole = TaskRef((merged.name,))
        task = Task(key, quietly(_finish_one), whole, i, last.function, **last.arguments)
        graph = HighLevelGraph.merge(merged.dask, grid.dask)
        needs = {merged.name} | _layers_of(last.arguments)
        graph = extended(graph, last.name, AnswerLayer({key: task}), needs)
        results.append(da.Array(graph, last.name, (), meta=np.empty((), dtype=object)))
    return results


def _bundled(grids: Sequence[da.Array], label: str) -> da.Array:
    """The objects of some grids, for each chunk, in C order: a list for each grid, of one object or
    of none."""
    name = f"{label}-bundle-{tokenize([grid.name for grid in grids])}"
    columns = [[TaskRef(key) for key in flatten(grid.__dask_keys__())] for grid in grids]
    tasks = {
        (name, i): Task(
            (name, i), _as_they_are, List(*(List(*each[i : i + 1]) for each in columns))
        )
        for i in range(max(map(len, columns)))
    }
    graph = HighLevelGraph.merge(*(grid.dask for grid in grids))
    graph = extended(graph, name, MaterializedLayer(tasks), {grid.name for grid in grids})
    return da.Array(graph, name, ((1,) * len(tasks),), meta=np.empty(0, dtype=object))


Bundle = list[list[Any]]


def _as_they_are(bundle: Bundle) -> Bundle:
    return bundle


def _merge_each(bundles: list[Bundle], merge: Callable[[list[Any]], Any]) -> Bundle:
    columns = (list(itertools.chain(*parts)) for parts in zip(*bundles, strict=True))
    return [[merge(parts)] if parts else [] for parts in columns]


def _finish_one(merged: Bundle, i: int, finish: Callable[..., Any], **arguments: Any) -> Any:
    return finish(merged[i], **arguments)


def _layers_of(arguments: Mapping[str, Any]) -> set[str]:
    """The layers of the keys that arguments refer to."""
    references = (value for value in arguments.values() if isinstance(value, TaskRef))
    return {get_name_from_key(reference.key) for reference in references}


def split_every(given: Any, default: int) -> int:
    """How many parts a merge takes: what an argument says, or dask's config, or a default.

    As for dask's reductions, that is an integer, or a dict of integers by axis, of which the parts
    that are merged are the product. Dask takes 1 for 2 in its config, and so is it here.

    Raises
    ------
    ValueError
        For all else, and for an argument below 2.
    """
    value = config.get("split_every", None) if given is None else given
    if not value and given is None:
        return default
    parts = value.values() if isinstance(value, Mapping) else [value]
    sizes = [integer(part) for part in parts]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or not known or min(known) < (1 if given is None else 2):
        raise ValueError(
            "split_every must be at least 2, an integer or a dict of them by axis, "
            f"and {value!r} is not"
        )
    return max(2, math.prod(known))


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
            merges[merged] = Task(merged, quietly(merge), List(*map(TaskRef, group)))
        depth += 1
    return parts, merges


PAIRS = 1 << 16
"""Of a chunk and one of the result, up to which each has a task of its own: 0.6 s at the call."""


@dataclass(frozen=True)
class Stages:
    """How pieces get from the chunks of one array to those of another: each by a task of its own,
    or through groups of chunks of the result, so that tasks are few. Deterministically tokenizable.

    With P chunks in and M out, pieces are P * M. Through groups, each chunk is cut into about
    sqrt(M) pieces, one for each group. As many pieces of a group, of a batch of chunks, come to one
    task, which cuts them at the chunks of the group: about 2 * P * sqrt(M) tasks. All data moves
    twice.

    Parameters
    ----------
    steps : tuple of int
        Where groups begin among the chunks of the result, and their number. Without groups each
        chunk is one.
    n_batches : int
        Of chunks. 0 without groups.
    in_a_batch : int
        0 for batches of chunks from all over the array: where data is sorted, neighbours go to the
        same group, and many of them would not fit into a task. Otherwise how many neighbours are
        in a batch, so that pieces come in the order of the chunks.
    """

    steps: tuple[int, ...]
    n_batches: int = 0
    in_a_batch: int = 0

    @classmethod
    def of(cls, n_in: int, sizes: Sequence[float], *, in_order: bool = False) -> Stages:
        """For so many chunks, and chunks of the result of these sizes, all 1 if unknown."""
        n_out = len(sizes)
        if n_in * n_out <= PAIRS:
            return cls(tuple(range(n_out + 1)))
        # Groups of about as many elements each: what a task takes of one is about a chunk.
        n_groups = math.isqrt(n_out)
        stops = np.cumsum(sizes)
        wanted = np.arange(1, n_groups) * (stops[-1] / n_groups)
        steps = np.unique(np.searchsorted(stops, wanted, side="right"))
        inner = steps[(steps > 0) & (steps < n_out)].tolist()
        return cls((0, *inner, n_out), -(-n_in // n_groups), n_groups if in_order else 0)

    def batch(self, i: int) -> slice:
        """The chunks of a batch."""
        n = self.in_a_batch
        return slice(i * n, (i + 1) * n) if n else slice(i, None, self.n_batches)


def exchanged(
    split: da.Array,
    stages: Stages,
    name: str,
    moved: str,
    place: Callable[..., Any],
    *arguments: Any,
    regroup: Callable[..., Any],
    join: Callable[[list[Any]], Any] | None = None,
    every: int = 0,
    **told: Any,
) -> da.Array:
    """Each chunk of a result takes its piece of every chunk: an array of one object for each,
    ``place(pieces, *arguments)``.

    Parameters
    ----------
    split : dask array
        Of lists, each of a piece for each of the groups, or of the chunks of the result.
    stages : Stages
        How pieces get there. Through groups they are in the order of the batches, else in that of
        the chunks.
    name, moved : str
        Of the new layer, and of the tasks in it that hand on a piece.
    place : callable
        ``list of pieces, *arguments -> object``.
    regroup : callable
        ``(pieces of a group, number of the batch, number of the group, **told) -> list of pieces``,
        one for each chunk of the group.
    join : callable, optional
        ``list of pieces -> piece``, in a tree of tasks where there are more than `every` pieces.
        All come to one task without it.
    **told
        For `regroup`; task references become dependencies.
    """
    tasks: dict[Any, Task] = {}
    pieces = [TaskRef(key) for key in flatten(split.__dask_keys__())]
    n_groups = len(stages.steps) - 1
    if not stages.n_batches:
        taken = [_handed_on(tasks, pieces, (moved, j), j) for j in range(n_groups)]
    else:
        taken = []
        for g, (first, stop) in enumerate(itertools.pairwise(stages.steps)):
            of_group = _handed_on(tasks, pieces, (f"{moved}-to-group", g), g)
            regrouped = []
            for b in range(stages.n_batches):
                key: Any = (f"{moved}-regrouped", b, g)
                batch = List(*of_group[stages.batch(b)])
                tasks[key] = Task(key, quietly(regroup), batch, b, g, **told)
                regrouped.append(TaskRef(key))
            for j in range(first, stop):
                taken.append(_handed_on(tasks, regrouped, (moved, j), j - first))
    for j, parts in enumerate(taken):
        if join is not None and len(parts) > every:
            keys = [reference.key for reference in parts]
            keys, joins = _tree(keys, every, join, f"{moved}-joined", j)
            tasks |= joins
            parts = list(map(TaskRef, keys))  # noqa: PLW2901
        own: Any = (name, j)
        tasks[own] = Task(own, quietly(place), List(*parts), *arguments)
    references = [value for value in told.values() if isinstance(value, TaskRef)]
    others = {get_name_from_key(reference.key) for reference in references}
    graph = extended(split.dask, name, MaterializedLayer(tasks), {split.name} | others)
    return da.Array(graph, name, ((1,) * len(taken),), meta=np.empty(0, dtype=object))


def _handed_on(
    tasks: dict[Any, Task], sources: Sequence[TaskRef], prefix: tuple[Any, ...], place: int
) -> list[Any]:
    """Tasks that hand on what is at a place of each of some lists."""
    found = []
    for i, source in enumerate(sources):
        key = (*prefix, i)
        tasks[key] = Task(key, getitem, source, place)
        found.append(TaskRef(key))
    return found


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
    with quiet():
        return function(outside()(partial(read.run, values)), place, *told)
