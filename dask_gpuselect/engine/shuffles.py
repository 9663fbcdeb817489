"""Dask's shuffles among the tasks of a source: they run once for all loads.

The tasks of a shuffle do not pass on values. Each writes parts of its chunk to the disks of the
workers, a barrier waits for all of them, and the tasks behind the barrier read what was written. A
copy of the tasks before the barrier would shuffle all data again, and dask's scheduler recognises
the barrier of a peer-to-peer shuffle by its key alone. So the barrier and all that it needs stay in
place, and each load copies only the tasks that read.

A shuffle may hold its data in memory, where they can be read only once. Then all loads share the
chunks that it makes, which wait in memory for the last load.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from dask_gpuselect.engine.source import (
    DaskArray,
    GraphNode,
    Key,
    Task,
    done_once,
    reached,
    with_tasks_apart,
)

# The modules that make barriers. If none is imported, no graph has any.
HOMES = ("distributed.shuffle", "dask.dataframe.shuffle")


def is_barrier(task: Any) -> bool:
    """Return whether a task waits until a shuffle has written everything.

    A peer-to-peer shuffle has a task of a class of its own, which the scheduler looks for. The
    shuffle of dask's DataFrames without a cluster calls a function that does nothing else.
    """
    if isinstance(task, tuple):
        return bool(task) and _waits_for_writers(task[0])
    if not isinstance(task, Task):
        return False
    # Shuffles have classes of tasks beside dask's own.
    is_of_a_shuffle = type(task).__module__.partition(".")[0] != "dask"
    return is_of_a_shuffle or _waits_for_writers(task.func)


def _waits_for_writers(function: Any) -> bool:
    home = sys.modules.get("dask.dataframe.shuffle")
    return home is not None and function is getattr(home, "barrier", None)


def _is_on_disk(barrier: GraphNode) -> bool:
    """Return whether the data of a shuffle can be read several times.

    A shuffle that does not say where it stores them may hold them in memory.
    """
    if isinstance(barrier, Task) and _waits_for_writers(barrier.func):
        return True
    return bool(getattr(getattr(barrier, "spec", None), "disk", False))


def shuffles_apart(x: DaskArray) -> DaskArray:
    """Move the shuffles among an array's tasks to layers of their own, which no load copies."""
    if not any(home in sys.modules for home in HOMES):
        return x
    return with_tasks_apart(x, is_barrier, divided)


def divided(tasks: Mapping[Key, Any]) -> tuple[dict[Key, Any], dict[Key, Any]]:
    """Divide tasks into those of shuffles, which run once, and those that each load runs.

    A task that both need is in both.
    """
    stay = shared_by_shuffles(tasks)
    once = needed(tasks, stay)
    if not all(_is_on_disk(tasks[key]) for key in stay):
        return dict(tasks), {}
    return once, needed(tasks, (key for key in tasks if key not in once), stay)


def shared_by_shuffles(tasks: Mapping[Key, Any]) -> set[Key]:
    """Return the barriers among some tasks, and the tasks that readers and writers share."""
    barriers = {key for key, task in tasks.items() if is_barrier(task)}
    readers = [key for key, task in tasks.items() if not barriers.isdisjoint(_needs(task))]
    writers = needed(tasks, barriers)
    return barriers.union(*(_needs(tasks[key]) & writers.keys() for key in readers))


def readers_of_shuffles(x: DaskArray, tasks: Mapping[Key, GraphNode]) -> dict[Key, GraphNode]:
    """Return the tasks that read what a shuffle has written, among those that each load runs."""
    barriers = {key for key, task in done_once(x).items() if is_barrier(task)}
    if not barriers:
        return {}
    return {key: task for key, task in tasks.items() if barriers & task.dependencies}


def needed(
    tasks: Mapping[Key, Any], keys: Iterable[Key], but: Iterable[Key] = ()
) -> dict[Key, Any]:
    """Return the tasks that some keys need, except `but` and what only these need."""
    left_out = set(but)
    start = (key for key in keys if key not in left_out)
    every = reached(start, lambda key: _needs(tasks[key]) - left_out if key in tasks else ())
    return {key: tasks[key] for key in every if key in tasks}


def _needs(task: Any) -> frozenset[Key]:
    """Return the keys that a task depends on; none for data."""
    return frozenset(getattr(task, "dependencies", ()))


def described(x: DaskArray) -> str:
    """Describe how often the shuffles among the tasks of an array run, and where they store data.

    Return "" if there are none.
    """
    barriers = [task for task in done_once(x).values() if is_barrier(task)]
    if not barriers:
        return ""
    if all(map(_is_on_disk, barriers)):
        return "once; each read takes what it has written to the disks of workers"
    return "once; its chunks wait in memory for the last read"
