"""Choice of the kernels for a chunk, by its kind; imported when the first such chunk arrives.

A backend is a folder with modules of the names of those in `reference`. The functions of the
reference define the kernels: a backend has functions of the same names and parameters, and where it
lacks one, the reference's is used. A result "in kind" is an array of the same library, on the same
device, as the chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np

from dask_gpuselect.arrays import is_cupy
from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn, Several, checked_chunk
from dask_gpuselect.kernels.compiling import one_way
from dask_gpuselect.maths.cuts import Arrays
from dask_gpuselect.maths.runs import Runs

ALSO: dict[str, dict[str, tuple[str, ...]]] = {
    "cpu": {
        **{"selection": ("cells", "spans", "rulers"), "groups": ("window_lanes",)},
        **{"sampling": ("draws",), "lanes": ("trimmed",)},
    },
    "cuda": {
        **{"selection": ("cells", "spans"), "sampling": ("spans",)},
        "lanes": ("only_lane", "only_box", "trimmed"),
    },
    "grouped": {},
    "reference": {"lanes": ("at_once",)},
}
"""Modules of a backend with functions for a purpose, besides the module of the purpose's name."""


class Kernels:
    """The functions of a backend for one purpose."""

    def __init__(self, folder: str, purpose: str) -> None:
        own, defining = (
            [f"{each}.{name}" for name in (purpose, *ALSO[each].get(purpose, ()))]
            for each in (folder, "reference")
        )
        paths = [*(path for path in own if find_spec(f"{__package__}.{path}")), *defining]
        self._modules = [import_module(f"{__package__}.{path}") for path in dict.fromkeys(paths)]
        self._advised: Callable[[Any], Any] | None = None
        if folder == "cuda":
            self._advised = import_module(f"{__package__}.cuda.launch").advised

    def __getattr__(self, name: str) -> Any:
        for module in self._modules:
            if hasattr(module, name):
                value = getattr(module, name)
                return self._advised(value) if self._advised and callable(value) else value
        raise AttributeError(f"no module of {self._modules} has {name}")


class Backend:
    """The kernels for one kind of chunk, by their purposes: `selection`, `lanes` and so on.

    Those that `of` returns are bound to a chunk, and find once what they take of it.

    Parameters
    ----------
    folder : str
        Name of the backend.
    chunk : chunk
        The chunk that the kernels are bound to, which has been checked. None if they are not bound.
    dtype : dtype
        The dtype of the chunk's dask array.
    """

    def __init__(self, folder: str, chunk: Any = None, dtype: Any = None) -> None:
        self.folder, self.chunk, self.dtype = folder, chunk, dtype
        self._made: dict[Callable[..., Any], Any] = {}

    def __getattr__(self, purpose: str) -> Any:
        if purpose.startswith("_"):
            raise AttributeError(purpose)
        if self.chunk is not None:
            return getattr(backend_of(self.folder), purpose)
        setattr(self, purpose, Kernels(self.folder, purpose))
        return getattr(self, purpose)

    @property
    def size(self) -> int:
        return math.prod(self.chunk.shape)

    @property
    def is_on_device(self) -> bool:
        """True for chunks on a CUDA device (CuPy)."""
        return self.folder == "cuda"

    @property
    def is_weighted(self) -> bool:
        return isinstance(self.chunk, Accompanied) and self.chunk.weights is not None

    @property
    def parts(self) -> tuple[Backend, ...]:
        """The kernels bound to each part of `Several`, or else these."""
        if not isinstance(self.chunk, Several):
            return (self,)
        return tuple(of(part, self.dtype) for part in self.chunk.parts)

    @property
    def elements(self) -> Any:
        """The elements that take part, as kernels take them, their weights if any, and a number.

        It is the number of NaT, which are left out. With weights, it is that of NaT and NaN, and
        elements of weight zero are left out as well.
        """
        if isinstance(self.chunk, Several):
            parts, n_nat = zip(*(part.elements for part in self.parts), strict=True)
            return Several(parts), sum(n_nat)
        return self.once(self.weighing.weighed if self.is_weighted else self.selection.elements_of)

    def once(self, make: Callable[[Any, np.dtype[Any]], Any]) -> Any:
        """Return what a function makes of the chunk and its dtype; it is called once."""
        if make not in self._made:
            self._made[make] = make(self.chunk, self.dtype)
        return self._made[make]


@cache
def backend_of(folder: str) -> Backend:
    """Return the kernels of a folder."""
    return Backend(folder)


def backend_for(given: Any) -> Backend:
    """Return the kernels for a chunk, with companions or without, or for the first of several.

    Those for partial results are where their arrays are.
    """
    while not isinstance(given, np.ndarray):
        if isinstance(given, tuple | list):
            given = given[0]
        elif isinstance(given, Accompanied):
            given = given.values
        elif isinstance(given, Several | Arrays):
            given = given.parts if isinstance(given, Several) else given.parts()
        elif is_cupy(given):
            return backend_of("cuda")
        else:
            return backend_of("grouped" if isinstance(given, Runs) else "reference")
    return backend_of("cpu")


def is_on_device(given: Any) -> bool:
    """Return whether a chunk, or the first of several, is on a CUDA device (CuPy)."""
    return backend_for(given).is_on_device


def of(chunk: Any, dtype: np.dtype[Any]) -> Backend:
    """Check a chunk, or `Several`, and bind its kernels to it; return bound ones unchanged."""
    if isinstance(chunk, Backend):
        return chunk
    chunk = chunk if isinstance(chunk, Several) else checked_chunk(chunk, dtype)
    return Backend(backend_for(chunk).folder, chunk, dtype)


def passing(
    purpose: str, *names: str, of_parts: tuple[str, ...] = (), alone: tuple[str, ...] = ()
) -> Any:
    """Return functions for a purpose that pass each call on to the kernels for its first argument.

    If that is a column of chunks, those `of_parts` pass its parts of lanes on. Those of one kernel
    `alone` need no `one_way`, which takes 30 us. The functions have the names of those of the
    reference.
    """
    every = {name: one_way(_passing(purpose, name, is_of_parts=False)) for name in names}
    every |= {name: one_way(_passing(purpose, name, is_of_parts=True)) for name in of_parts}
    every |= {name: _passing(purpose, name, is_of_parts=False) for name in alone}
    return SimpleNamespace(**every)


def _passing(purpose: str, name: str, *, is_of_parts: bool) -> Callable[..., Any]:
    def call(first: Any, *others: Any, **how: Any) -> Any:
        backend = backend_for(first)
        if is_of_parts and isinstance(first, ChunkColumn):
            first = backend.lanes.parts_of(first)
        return getattr(getattr(backend, purpose), name)(first, *others, **how)

    # Graphs send the functions to processes by these names.
    call.__module__, call.__name__, call.__qualname__ = __package__, name, f"{purpose}.{name}"
    return call
