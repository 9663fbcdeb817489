"""The door that every chunk of a dask array comes through, whatever is asked of it.

What a function is given is a source: it says of which dtype, shape and kind its chunks are, and
only a worker sees what they are. So each function puts one layer on its source, whose tasks check
the chunk and hand it on. Copies of the source have copies of them, so that every load of every
function is checked by the same few lines. A task that takes one chunk checks it itself, see
`entrance`; with others dask fuses the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.blockwise import Blockwise, blockwise
from dask.highlevelgraph import HighLevelGraph
from dask.layers import ArrayBlockwiseDep

from dask_gpuselect.arrays import FILL_ELEMENTS, as_declared, check_kind, check_not_masked, checked
from dask_gpuselect.engine.source import DOOR, Key, extended, without_turn

Place = tuple[int, ...]


def entered(x: da.Array, name: str = "", advice: str = FILL_ELEMENTS) -> da.Array:
    """An array whose chunks are checked as they are read: each is what the array says, or an error
    names it.

    Parameters
    ----------
    x : dask array
        Nothing is computed.
    name : str
        What the caller knows it by, for messages: "X", for instance.
    advice : str
        What to do with masked chunks.

    Returns
    -------
    dask array
        Its chunks are NumPy arrays and no subclasses, CuPy's, or others of the array API, none
        masked, of the dtype and, where that is known, the shape that `x` declares. Chunks of
        another dtype are converted if every element stays what it is.

    Raises
    ------
    TypeError
        For chunks of a kind that is not supported, if the array says so.
    """
    if x.name.startswith(DOOR):
        return x
    check_not_masked(x._meta, advice)
    check_kind(x._meta)
    index = tuple(range(x.ndim))
    known = _Declared(x.chunks)
    own = f"{DOOR}{tokenize(x.name, x.dtype, known, name, advice)}"
    pairs: list[Any] = [x.name, index, known, index]
    numblocks = {x.name: x.numblocks}
    how = {"dtype": x.dtype, "name": name, "advice": advice}
    layer = blockwise(_enter, own, index, *pairs, numblocks=numblocks, **how)
    return da.Array(extended(x.dask, own, layer, {x.name}), own, x.chunks, meta=x._meta)


@dataclass(frozen=True)
class Entrance:
    """What the door in front of an array does, for tasks that do it themselves.

    With a task for each chunk at the door, dask would fuse it with what follows, and order the
    tasks of the result anew each time that it runs: 0.2 ms a chunk.

    Parameters
    ----------
    source : str
        The array behind the door.
    graph : HighLevelGraph
        Of that array.
    declared : BlockwiseDep
        What the array says of each chunk.
    how : dict
        Further arguments of the check.
    """

    source: str
    graph: HighLevelGraph
    declared: _Declared
    how: Mapping[str, Any]

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function for a chunk from behind the door, and what is declared of it."""
        return Entering(function, self.how)


@dataclass(frozen=True)
class Entering:
    """A function of a chunk that checks it first."""

    function: Callable[..., Any]
    how: Mapping[str, Any]

    def __call__(self, chunk: Any, declared: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self.function(_enter(chunk, declared, **self.how), *args, **kwargs)


def entrance(x: da.Array, turns: Collection[Key]) -> Entrance | None:
    """The door that an array has, for tasks that wait for `turns` anyway; None without one."""
    layer = x.dask.layers.get(x.name)
    if not (x.name.startswith(DOOR) and isinstance(layer, Blockwise)):
        return None
    task = without_turn(layer, turns)
    if task is None or task.func is not _enter:
        return None
    (source, _), (name, _), *_ = layer.indices
    assert isinstance(source, str)
    assert isinstance(name, str)
    declared = layer.io_deps[name]
    assert isinstance(declared, _Declared)
    graph = HighLevelGraph(
        {name: each for name, each in x.dask.layers.items() if name != x.name},
        {name: needs for name, needs in x.dask.dependencies.items() if name != x.name},
    )
    return Entrance(source, graph, declared, task.kwargs)


class _Declared(ArrayBlockwiseDep):
    """The place and the shape of each chunk."""

    def __getitem__(self, idx: Place) -> tuple[Place, tuple[float, ...]]:
        return idx, tuple(sizes[i] for sizes, i in zip(self.chunks, idx, strict=True))

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return type(self).__name__, self.chunks


def _enter(
    chunk: Any,
    declared: tuple[Place, tuple[float, ...]],
    *,
    dtype: np.dtype[Any],
    name: str,
    advice: str,
) -> Any:
    place, shape = declared
    called = f"chunk {tuple(map(int, place))}" + (f" of {name}" if name else "")
    chunk = checked(chunk, dtype, called, advice)
    found = tuple(map(int, chunk.shape))
    # A size that is not known is NaN, and equals none.
    if len(found) != len(shape) or any(
        size == size and size != own  # noqa: PLR0124
        for size, own in zip(shape, found, strict=True)
    ):
        raise ValueError(
            f"{called} has shape {found}, but its array says {_shown(shape)}: "
            "give the array the right chunks"
        )
    return as_declared(chunk, dtype, called)


def _shown(shape: tuple[float, ...]) -> str:
    sizes = ", ".join(f"{size:g}" if size == size else "?" for size in shape)  # noqa: PLR0124
    return f"({sizes}{',' * (len(shape) == 1)})"
