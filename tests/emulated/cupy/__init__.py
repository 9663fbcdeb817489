"""A stand-in for CuPy on machines without a GPU: arrays on the host, and kernels compiled by g++.

It is for the tests of this package, and has what they and the package need; other functions are
NumPy's. Streams are none: everything happens at once.
"""

# ruff: noqa: F401

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as _np

from . import compiler, cuda
from ._arrays import (
    array,
    asarray,
    ascontiguousarray,
    asfortranarray,
    asnumpy,
    empty,
    empty_like,
    full,
    get_array_module,
    ndarray,
    ones,
    zeros,
)
from ._arrays import delegated as _delegated
from ._kernels import ElementwiseKernel, RawModule, ReductionKernel
from .cuda.memory import get_default_memory_pool, get_default_pinned_memory_pool

__version__ = "14.0.0"
is_emulated = True
lib = SimpleNamespace(
    stride_tricks=SimpleNamespace(
        as_strided=_delegated(_np.lib.stride_tricks.as_strided),
        sliding_window_view=_delegated(_np.lib.stride_tricks.sliding_window_view),
    )
)
cuda.compiler = SimpleNamespace(CompileException=compiler.CompileError)
NUMBERS = ("count_nonzero",)  # NumPy gives an int, CuPy an array


class _Generator:
    def __init__(self, seed: Any = None) -> None:
        self._numpy = _np.random.default_rng(seed)

    def __getattr__(self, name: str) -> Any:
        return _delegated(getattr(self._numpy, name))


random = SimpleNamespace(
    default_rng=_Generator, Generator=_Generator, RandomState=_np.random.RandomState, XORWOW=None
)


def sort(a: Any, axis: int = -1, kind: Any = None) -> ndarray:
    out: ndarray = a.copy()
    out.sort(axis)  # type: ignore[attr-defined]
    return out


def argsort(a: Any, axis: int = -1, kind: Any = None) -> ndarray:
    return a.argsort(axis)  # type: ignore[no-any-return]


def take(a: Any, indices: Any, axis: Any = None, out: Any = None) -> ndarray:
    return a.take(indices, axis, out)  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    found = getattr(_np, name)
    if isinstance(found, type) or not callable(found):
        return found
    own = _delegated(found, name in NUMBERS)
    globals()[name] = own
    return own
