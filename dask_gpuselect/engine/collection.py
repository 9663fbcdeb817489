"""Base class of lazy answers that are dask collections but no arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from dask.base import DaskMethodsMixin, get_name_from_key, replace_name_in_key
from dask.core import flatten
from dask.threaded import get as threaded_get

from dask_gpuselect.engine.source import DaskArray, Graph, merged, optimize


class LazyCollection(DaskMethodsMixin):
    """A dask collection of any object, which is made from the results of some tasks.

    A subclass implements `_finish`, which makes the computed object. The constructor of a subclass
    takes the same arguments in the same order.

    Parameters
    ----------
    graph : Graph or None
        Graph of the tasks. None if the object is computed already; dask then leaves it alone.
    keys : list
        Keys of the tasks, or nested lists of them. `_finish` gets the results in lists of this
        shape.
    *state
        Further state that identifies the object. Picklable, and known to `tokenize`.
    """

    def __init__(self, graph: Any, keys: list[Any], *state: Any) -> None:
        self._graph, self._keys, self._state = graph, keys, state

    @staticmethod
    def _finish(results: list[Any], *state: Any) -> Any:
        """Make the computed object.

        This is a static method, because dask would send a bound method's graph to the workers.
        """
        raise NotImplementedError

    def __dask_graph__(self) -> Any:
        return self._graph

    def __dask_keys__(self) -> list[Any]:
        return self._keys

    def __dask_layers__(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(get_name_from_key, flatten(self._keys))))

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return (type(self).__name__, self._state, self._keys)

    __dask_optimize__ = staticmethod(optimize)
    __dask_scheduler__ = staticmethod(threaded_get)

    def __dask_postcompute__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._finish, self._state

    def __dask_postpersist__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._rebuilt, (self._keys, self._state)

    @classmethod
    def _rebuilt(
        cls,
        graph: Any,
        keys: list[Any],
        state: tuple[Any, ...],
        rename: Mapping[str, str] | None = None,
    ) -> Self:
        """Rebuild the collection over another graph, whose layers may have other names."""
        return cls(graph, _renamed(keys, rename or {}), *state)


def tasks_of(answers: Sequence[DaskArray]) -> tuple[Graph, list[list[Any]]]:
    """Return the merged graph of some arrays, and a flat list of keys for each, in C order."""
    return merged(*answers), [list(flatten(answer.__dask_keys__())) for answer in answers]


def _renamed(keys: Any, names: Mapping[str, str]) -> Any:
    """Rename the layers in keys, or in nested lists of keys."""
    if isinstance(keys, list):
        return [_renamed(each, names) for each in keys]
    return replace_name_in_key(keys, names)
