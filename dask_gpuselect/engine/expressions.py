"""Convert expression arrays to the engine's arrays, and answers back to expression arrays.

There are two types: dask's own, with ``array.query-planning``, and those of the package dask-array.
The engine works on `DaskArray`. An expression array is converted to one with its low-level graph,
and an answer is converted to an expression array with the answer's graph. Everything that depends
on the type is in the table `KINDS`: how to get the graph, and how to make an array.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from dask.base import get_name_from_key
from dask.core import flatten

from dask_gpuselect.engine.source import (
    Alias,
    DaskArray,
    Graph,
    GraphNode,
    Key,
    graph_of,
    is_reduction,
    optimize,
)


@dataclass(frozen=True)
class ExpressionType:
    """A type of expression arrays.

    Parameters
    ----------
    name : str
        Name of the package that makes them, for messages.
    home : str
        Module that the class comes from.
    source_of : callable
        Function from an array to the one whose graph is taken, fully optimized.
    answer_of : callable
        ``(tasks, meta, chunks, keys, name) -> array``.
    """

    name: str
    home: str
    source_of: Callable[[Any], Any]
    answer_of: Callable[..., Any]

    @property
    def array(self) -> Any:
        """The class of the arrays, if its module is imported."""
        return getattr(sys.modules.get(self.home), "Array", None)

    def is_instance(self, value: object) -> bool:
        return self.array is not None and isinstance(value, self.array)


def _by_package(tasks: Any, meta: Any, chunks: Any, keys: Sequence[Key], name: str) -> Any:
    return import_module("dask_array.core").from_graph(tasks, meta, chunks, list(keys), name)


def _by_dask(tasks: Any, meta: Any, chunks: Any, keys: Sequence[Key], name: str) -> Any:
    home = import_module("dask.array._array_expr._collection")
    return home.from_graph(tasks, meta, chunks, list(keys), name)


KINDS = (
    # The graph of such an array is optimized, and has its keys; `optimize` may change chunks.
    ExpressionType("dask_array", "dask_array._collection", lambda x: x, _by_package),
    ExpressionType(
        "dask.array", "dask.array._array_expr._collection", lambda x: x.optimize(), _by_dask
    ),
)


def kind_of(value: object) -> ExpressionType | None:
    """Return the type of an expression array; None for anything else."""
    of: Any = type(value)
    return _kind_of_type(of)


# This is called several times for every argument. A cached None stays right: no object can have an
# expression type before the type's module is imported.
@lru_cache(maxsize=256)
def _kind_of_type(of: Any) -> ExpressionType | None:
    known = ((kind, kind.array) for kind in KINDS)
    return next((kind for kind, array in known if array and issubclass(of, array)), None)


def is_lazy_array(value: object) -> bool:
    """Return whether an object is a dask array, with expressions or without."""
    return isinstance(value, DaskArray) or kind_of(value) is not None


def homes() -> list[ModuleType]:
    """Return the modules that users get arrays from: dask.array, and dask_array if installed."""
    modules = [import_module("dask.array")]
    with suppress(ImportError):
        modules.append(import_module("dask_array"))
    return modules


# --- In -----------------------------------------------------------------------------------------


def as_source(x: Any) -> Any:
    """Convert an expression array to an array of the engine; return anything else unchanged.

    Nothing is computed.
    """
    kind = kind_of(x)
    if kind is None:
        return x
    source = kind.source_of(x)
    graph = graph_of(source.__dask_graph__())
    _annotate_sizes(graph, x)
    first = next(flatten(source.__dask_keys__()))
    return DaskArray(graph, get_name_from_key(first), source.chunks, meta=source._meta)


def _annotate_sizes(graph: Graph, x: Any) -> None:
    """Annotate the layers of reductions with their sizes, because loads share small results."""
    if not any(itertools.starmap(is_reduction, graph.layers.items())):
        return
    for node in x.optimize().expr.walk():
        name = node._name
        # An array made from another graph has aliases to tasks with names of their own.
        while (layer := graph.layers.get(name)) is not None:
            layer.collection_annotations = {"shape": node.shape, "dtype": node.dtype}
            task = next(iter(layer.values()))
            if not isinstance(task, Alias):
                break
            name = get_name_from_key(task.target)


# --- Out ----------------------------------------------------------------------------------------


def as_expression(answer: DaskArray, kind: ExpressionType) -> Any:
    """Convert an array of the engine to an expression array."""
    tasks = LowLevel(answer)
    return kind.answer_of(tasks, answer._meta, answer.chunks, tasks.keys_of_blocks, answer.name)


class LowLevel(Mapping[Key, GraphNode]):
    """The tasks of an array, made and fused on first access. The array's name identifies them."""

    def __init__(self, array: DaskArray) -> None:
        self.array = array

    @property
    def keys_of_blocks(self) -> list[Key]:
        return list(flatten(self.array.__dask_keys__()))

    @cached_property
    def tasks(self) -> dict[Key, GraphNode]:
        return dict(optimize(self.array.dask, self.keys_of_blocks))

    def __getitem__(self, key: Key) -> GraphNode:
        return self.tasks[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getstate__(self) -> dict[str, Any]:
        return {"array": self.array}

    def __dask_tokenize__(self) -> tuple[str, str]:
        return type(self).__name__, self.array.name
