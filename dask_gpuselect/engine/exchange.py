"""Pieces of each chunk of an array for each chunk of another, as sorting moves them: the tasks that
cut, hand on and join them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

import numpy as np
from dask.core import flatten

from dask_gpuselect.engine.graphs import layers_of, merge_tree, objects
from dask_gpuselect.engine.source import DaskArray, List, Task, TaskRef, extended
from dask_gpuselect.quiet import quietly

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
        """The stages from so many chunks to chunks of these sizes, all 1 if they are unknown."""
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
    split: DaskArray,
    stages: Stages,
    name: str,
    moved: str,
    place: Callable[..., Any],
    *arguments: Any,
    regroup: Callable[..., Any],
    join: Callable[[list[Any]], Any] | None = None,
    every: int = 0,
    **told: Any,
) -> DaskArray:
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
            keys, joins = merge_tree(keys, every, join, f"{moved}-joined", j)
            tasks |= joins
            parts = list(map(TaskRef, keys))  # noqa: PLW2901
        own: Any = (name, j)
        tasks[own] = Task(own, quietly(place), List(*parts), *arguments)
    needs = {split.name} | layers_of(told)
    graph = extended(split.dask, name, tasks, needs)
    return objects(graph, name, (len(taken),))


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
