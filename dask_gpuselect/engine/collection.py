"""Lazy answers that are no arrays: what makes an object of some tasks a dask collection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from dask.base import DaskMethodsMixin, get_name_from_key, replace_name_in_key
from dask.core import flatten
from dask.threaded import get as threaded_get

from dask_gpuselect.engine.source import DaskArray, Graph, merged, optimize


class LazyCollection(DaskMethodsMixin):
    """An object that is made of what some tasks give.

    A subclass says in `_finish` what ``compute()`` makes of that. Its constructor takes the same
    arguments in the same order.

    Parameters
    ----------
    graph : Graph or None
        None for what is computed already, which dask then leaves alone.
    keys : list
        Of the tasks, or of lists of them: `_finish` is given their results in lists of this shape.
    *state
        All else that tells this object from others. Picklable, and known to `tokenize`.
    """

    def __init__(self, graph: Any, keys: list[Any], *state: Any) -> None:
        self._graph, self._keys, self._state = graph, keys, state

    @staticmethod
    def _finish(results: list[Any], *state: Any) -> Any:
        """The computed object. Not a method of this one, whose graph would be sent along."""
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
        """The same object over another graph, in which layers may have other names."""
        return cls(graph, _renamed(keys, rename or {}), *state)


def tasks_of(answers: Sequence[DaskArray]) -> tuple[Graph, list[list[Any]]]:
    """The graph of some arrays together, and the keys of each, in C order."""
    return merged(*answers), [list(flatten(answer.__dask_keys__())) for answer in answers]


def _renamed(keys: Any, names: Mapping[str, str]) -> Any:
    """Keys, or lists of them, with other names for their layers."""
    if isinstance(keys, list):
        return [_renamed(each, names) for each in keys]
    return replace_name_in_key(keys, names)
