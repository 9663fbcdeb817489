"""Compiling kernels by Numba: once for each dtype, kept on disk for the next process.

Nothing else in this package asks Numba to keep what it has compiled. The folder is the one that
`NUMBA_CACHE_DIR` names, or `__pycache__` beside the sources, or one of the user's. Where none can
be written, as in a container with a read-only file system, or the disk is full, every process
compiles its kernels anew: seconds, and the same answers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial, wraps
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba.extending import overload

from dask_gpuselect import forks

Kernel = Callable[..., Any]
Types = dict[Kernel, tuple[Any, ...]]
"""Those of the arguments of each kernel."""
Signatures = Callable[[types.Array, types.Array], Types]
"""From the types of an array that is read and of one that is written, those of each kernel."""


_compiling = forks.lock()
T = TypeVar("T")


def once(make: Callable[..., T]) -> Callable[..., T]:
    """A decorator: `functools.cache`, but threads that ask for the same at once wait for the first
    of them, and a fork waits for the compiler."""
    made: dict[tuple[Any, ...], T] = {}

    @wraps(make)
    def found(*args: Any, **kwargs: Any) -> T:
        key = (*args, *kwargs.values())
        if key not in made:
            with _compiling:
                if key not in made:
                    made[key] = make(*args, **kwargs)
        return made[key]

    return found


@once
def compiled(kernel: Kernel, dtype: np.dtype[Any], signatures: Signatures) -> Kernel:
    """A kernel compiled for one dtype: once in a process, and kept on disk for the next.

    Read-only arrays are another type to Numba; a signature that asks for no more than reading
    accepts both.
    """
    scalar = numba.from_dtype(dtype)
    values = types.Array(scalar, 1, "C", readonly=True)
    signature = signatures(values, types.Array(scalar, 1, "C"))[kernel]
    return jit(kernel, signature)


def compiles(signatures: Signatures) -> Callable[[Kernel, np.dtype[Any]], Kernel]:
    """A decorator: `compiled`, by the signatures that a function gives."""
    return partial(compiled, signatures=signatures)


def jit(kernel: Kernel, signature: tuple[Any, ...]) -> Kernel:
    """A kernel compiled for the types of its arguments, kept on disk if that can be."""
    found: Any = None
    # Whatever it is that cannot be written or read: an error of the kernel itself comes again.
    with suppress(Exception):
        found = numba.njit(nogil=True, cache=True)(kernel)
        found.compile(signature)
    if found is not None and found.signatures == [signature]:
        # It may not have been written, but it is there.
        found.disable_compile()
        return cast(Kernel, found)
    # Or two processes that compiled a kernel for two dtypes at the same time have written to one
    # file, and it is the other's.
    return cast(Kernel, numba.njit(signature, nogil=True)(kernel))


def by_types(choose: Kernel) -> Kernel:
    """A decorator: a function that kernels alone can call, by one that chooses what it does for the
    types of its arguments."""

    @wraps(choose)
    def stub(*arguments: Any) -> Any:
        raise NotImplementedError("compiled only")

    overload(stub, strict=False)(choose)
    return stub


def jit_when_called(kernel: Kernel) -> Kernel:
    """A decorator: compile a kernel for the types of the arguments of a call, when that comes."""
    kept = cache(partial(numba.njit(nogil=True, cache=True), kernel))
    plain = cache(partial(numba.njit(nogil=True), kernel))

    @wraps(kernel)
    def call(*arguments: Any) -> Any:
        try:
            return kept()(*arguments)
        except Exception:  # as in `jit`
            return plain()(*arguments)

    return call
