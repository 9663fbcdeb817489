"""Move pieces of each chunk of one array to each chunk of another, as sorting does.

The graph has tasks that cut chunks, pass pieces on, and join them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

import numpy as np
from dask.core import flatten

from dask_gpuselect.engine.graphs import merge_tree, objects, referred
from dask_gpuselect.engine.source import DaskArray, List, Task, TaskRef, extended, merged
from dask_gpuselect.quiet import quietly

PAIRS = 1 << 16
"""Most pairs of an input and an output chunk that get a task each: 0.6 s at the call."""


@dataclass(frozen=True)
class Stages:
    """The stages by which pieces get from the chunks of one array to those of another.

    Each piece has a task of its own, or goes through groups of output chunks, so that there are
    fewer tasks. Deterministically tokenizable.

    With P chunks in and M out, there are P * M pieces. Through groups, each chunk is cut into about
    sqrt(M) pieces, one for each group. For each group, the pieces from a batch of sqrt(M) chunks
    come to one task, which cuts them at the chunks of the group: about 2 * P * sqrt(M) tasks in
    all. All data move twice.

    Parameters
    ----------
    steps : tuple of int
        Index of the first output chunk of each group, and the number of chunks. Without groups,
        each chunk is a group.
    n_batches : int
        Number of batches of input chunks. 0 without groups.
    in_a_batch : int
        Number of neighbouring chunks in a batch, so that pieces come in the order of the chunks. 0
        for batches that are spread over the array: in sorted data, neighbours go to the same group,
        and a batch of them would not fit in one task.
    """

    steps: tuple[int, ...]
    n_batches: int = 0
    in_a_batch: int = 0

    @classmethod
    def of(cls, n_in: int, sizes: Sequence[float], *, in_order: bool = False) -> Stages:
        """Return the stages from `n_in` chunks to chunks of these sizes, all 1 if unknown."""
        n_out = len(sizes)
        if n_in * n_out <= PAIRS:
            return cls(tuple(range(n_out + 1)))
        # Groups have about equal numbers of elements, so that a task holds about one chunk.
        n_groups = math.isqrt(n_out)
        stops = np.cumsum(sizes)
        wanted = np.arange(1, n_groups) * (stops[-1] / n_groups)
        steps = np.unique(np.searchsorted(stops, wanted, side="right"))
        inner = steps[(steps > 0) & (steps < n_out)].tolist()
        return cls((0, *inner, n_out), -(-n_in // n_groups), n_groups if in_order else 0)

    def batch(self, i: int) -> slice:
        """Return the slice of input chunks in batch `i`."""
        n = self.in_a_batch
        return slice(i * n, (i + 1) * n) if n else slice(i, None, self.n_batches)


def exchanged(
    split: DaskArray,
    stages: Stages,
    name: str,
    moved: str,
    place: Callable[..., Any],
    *arguments: Any,
    regroup: Callable[..., Any],
    join: Callable[[list[Any]], Any] | None = None,
    every: int = 0,
    **options: Any,
) -> DaskArray:
    """Apply ``place(pieces, *arguments)`` to the pieces of all input chunks for each output chunk.

    The result is an array of one object for each output chunk.

    Parameters
    ----------
    split : dask array
        Lists of pieces for each input chunk: one for each group, or for each output chunk.
    stages : Stages
        How pieces get there. Through groups, they come in the order of the batches, otherwise in
        that of the chunks.
    name, moved : str
        Name of the new layer, and of the tasks in it that pass on a piece.
    place : callable
        ``list of pieces, *arguments -> object``.
    regroup : callable
        ``(pieces of a group, batch number, group number, **options) -> list of pieces``,
        one for each chunk of the group.
    join : callable, optional
        ``list of pieces -> piece``, in a tree of tasks if there are more than `every` pieces.
        Without it, one task takes all of them.
    **options
        Arguments of `regroup`. An array of one object stands for the object.
    """
    tasks: dict[Any, Task] = {}
    options, known = referred(options)
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
                tasks[key] = Task(key, quietly(regroup), batch, b, g, **options)
                regrouped.append(TaskRef(key))
            for j in range(first, stop):
                taken.append(_handed_on(tasks, regrouped, (moved, j), j - first))
    for j, parts in enumerate(taken):
        if join is not None and len(parts) > every:
            keys = [reference.key for reference in parts]
            keys, joins = merge_tree(keys, every, join, f"{moved}-joined", j)
            tasks |= joins
            parts = list(map(TaskRef, keys))  # noqa: PLW2901
        own: Any = (name, j)
        tasks[own] = Task(own, quietly(place), List(*parts), *arguments)
    above = {each.name for each in (split, *known)}
    graph = extended(merged(split, *known), name, tasks, above)
    return objects(graph, name, (len(taken),))


def _handed_on(
    tasks: dict[Any, Task], sources: Sequence[TaskRef], prefix: tuple[Any, ...], place: int
) -> list[Any]:
    """Add tasks that each select the item at `place` of a list, and return references to them."""
    references = []
    for i, source in enumerate(sources):
        key = (*prefix, i)
        tasks[key] = Task(key, getitem, source, place)
        references.append(TaskRef(key))
    return references
