"""Choice of the kernels for a chunk, by its kind; imported when the first such chunk arrives.

A backend is a folder with modules of the names of those in `reference`. The functions of the
reference define the kernels: a backend has functions of the same names and parameters, and where it
lacks one, the reference's is used. A result "in kind" is an array of the same library, on the same
device, as the chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from dask_gpuselect.arrays import is_cupy
from dask_gpuselect.kernels.companions import parts_of, values_of

ALSO = {
    "cpu": {
        **{"selection": ("cells", "spans", "rulers"), "groups": ("window_lanes",)},
        **{"sampling": ("draws",), "lanes": ("trimmed",)},
    },
    "cuda": {
        **{"selection": ("cells", "spans"), "sampling": ("spans",)},
        "lanes": ("only_lane", "only_box", "trimmed"),
    },
}
"""Modules of a backend with functions for a purpose, besides the module of the purpose's name."""


class Kernels:
    """The functions of a backend for one purpose."""

    def __init__(self, folder: str, purpose: str) -> None:
        names = [purpose, *ALSO.get(folder, {}).get(purpose, ())]
        own = [f"{folder}.{name}" for name in names if find_spec(f"{__package__}.{folder}.{name}")]
        paths = [*own, f"reference.{purpose}"]
        self._modules = [import_module(f"{__package__}.{path}") for path in paths]
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
    """The kernels for one kind of chunk, by their purposes: `selection`, `lanes` and so on."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __getattr__(self, purpose: str) -> Any:
        if purpose.startswith("_"):
            raise AttributeError(purpose)
        setattr(self, purpose, Kernels(self._folder, purpose))
        return getattr(self, purpose)


@cache
def backend_of(folder: str) -> Backend:
    """Return the kernels of a folder."""
    return Backend(folder)


def backend_for(chunk: Any) -> Backend:
    """Return the kernels for a chunk, with companions or without, or for `Several`."""
    chunk = values_of(parts_of(chunk)[0])
    if isinstance(chunk, np.ndarray):
        return backend_of("cpu")
    return backend_of("cuda" if is_cupy(chunk) else "reference")
