"""Compiling kernels by Numba: once for each dtype, kept on disk for the next process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numba
import numpy as np
from numba import types

Signatures = Callable[[types.Array, types.Array], dict[Callable[..., Any], tuple[Any, ...]]]
"""From the types of an array that is read and of one that is written, those of each kernel."""


@cache
def compiled(
    kernel: Callable[..., Any], dtype: np.dtype[Any], signatures: Signatures
) -> Callable[..., Any]:
    """A kernel compiled for one dtype: once in a process, and kept on disk for the next.

    Read-only arrays are another type to Numba; a signature that asks for no more than reading
    accepts both.
    """
    scalar = numba.from_dtype(dtype)
    values = types.Array(scalar, 1, "C", readonly=True)
    signature = signatures(values, types.Array(scalar, 1, "C"))[kernel]
    found: Any = numba.njit(signature, nogil=True, cache=True)(kernel)
    if found.signatures != [signature]:
        # Two processes that compiled a kernel for two dtypes at the same time have written to one
        # file, and it is the other's.
        found = numba.njit(signature, nogil=True)(kernel)
    return cast(Callable[..., Any], found)
