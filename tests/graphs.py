"""What is in the graphs of dask's collections, expressions or not."""

from __future__ import annotations

from functools import wraps
from typing import Any

from dask._task_spec import GraphNode, convert_legacy_graph
from dask.base import get_name_from_key
from dask.core import flatten
from dask.optimization import cull

from dask_gpuselect.engine.expressions import as_source


def tasks_of(collection: Any) -> dict[Any, GraphNode]:
    """The tasks that a collection needs."""
    graph = convert_legacy_graph(dict(collection.__dask_graph__()))
    tasks: dict[Any, GraphNode] = cull(graph, list(flatten(collection.__dask_keys__())))[0]
    return tasks


def names_of(collection: Any) -> set[str]:
    """The names of tasks, in front of the places in their keys."""
    return set(map(get_name_from_key, tasks_of(collection)))


def of_sources(function: Any) -> Any:
    """A function of the engine, of expression arrays too: as the doors give it these."""

    @wraps(function)
    def called(*arrays: Any, **how: Any) -> Any:
        first, *others = arrays
        is_list = isinstance(first, list)
        return function([*map(as_source, first)] if is_list else as_source(first), *others, **how)

    return called
