"""Sorting of one chunk, NumPy's or CuPy's, on the chunk's own device.

Elements are ordered by their keys: NaN and NaT come last, and zeros of both signs are equal. Each
backend has its own keys. `reference.ordering` describes the functions that pass a call on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.arrays import Array, checked, namespace
from dask_gpuselect.kernels.radix import check_kind
from dask_gpuselect.kernels.reference.ordering import Dealt as Dealt
from dask_gpuselect.kernels.registry import backend_for, passing


def words_of(chunk: Array, dtype: np.dtype[Any]) -> Array:
    """Return the elements of a chunk in C order, with their bits unchanged."""
    chunk = checked(chunk, dtype)
    check_kind(chunk, "sort")
    return chunk.astype(dtype, copy=False).reshape(-1)


def keys_of(chunk: Array, dtype: np.dtype[Any]) -> Array:
    """Return the keys of a chunk's elements in C order, of the elements' size.

    The keys may be the chunk itself. See `radix.keys_of`.
    """
    chunk = checked(chunk, dtype)
    check_kind(chunk, "sort")
    return backend_for(chunk).ordering.keys_of(chunk, dtype)


_own = passing("ordering", "dealt", "elements_of", "sort", "stable_order")
dealt, elements_of = _own.dealt, _own.elements_of
sort, stable_order = _own.sort, _own.stable_order


def places(ordered: Dealt, first: int) -> Array:
    """Return the place of each element before it was moved, counted from `first`."""
    if ordered.order is None:
        return namespace(ordered.keys).arange(first, first + len(ordered.keys))
    return ordered.order + first
