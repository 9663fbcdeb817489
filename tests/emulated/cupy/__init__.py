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
    ndarray,
    ones,
    zeros,
)
from ._arrays import called as _called
from ._arrays import delegated as _delegated
from ._kernels import ElementwiseKernel, RawModule, ReductionKernel
from .cuda.memory import get_default_memory_pool, get_default_pinned_memory_pool

__version__ = "14.0.0"
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


class _BitGenerator:
    """What dask gives a seed to, and makes a generator of."""

    def __init__(self, seed: Any = None) -> None:
        is_sequence = isinstance(seed, _np.random.SeedSequence)
        self._seed_seq = seed if is_sequence else _np.random.SeedSequence(seed)


def _generator(seed: Any = None) -> _Generator:
    return _Generator(getattr(seed, "_seed_seq", seed))


random = SimpleNamespace(
    default_rng=_generator,
    Generator=_generator,
    RandomState=_np.random.RandomState,
    XORWOW=_BitGenerator,
    standard_normal=lambda size, dtype="f8": _Generator().standard_normal(size, dtype=dtype),
)


def sort(a: Any, axis: int = -1, kind: Any = None) -> ndarray:
    out: ndarray = a.copy()
    out.sort(axis)  # type: ignore[attr-defined]
    return out


def argsort(a: Any, axis: int = -1, kind: Any = None) -> ndarray:
    return a.argsort(axis)  # type: ignore[no-any-return]


def take(a: Any, indices: Any, axis: Any = None, out: Any = None) -> ndarray:
    return a.take(indices, axis, out)  # type: ignore[no-any-return]


def split(a: Any, indices_or_sections: Any, axis: int = 0) -> list[ndarray]:
    if isinstance(indices_or_sections, _np.ndarray):  # they may be on the host
        indices_or_sections = indices_or_sections.tolist()
    return _called(_np.split, (a, indices_or_sections, axis), {})  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    attribute = getattr(_np, name)
    if isinstance(attribute, type) or not callable(attribute):
        return attribute
    own = _delegated(attribute, name in NUMBERS)
    globals()[name] = own
    return own
