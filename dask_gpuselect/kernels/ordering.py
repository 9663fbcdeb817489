"""Sorting of one chunk, NumPy's or CuPy's, on the chunk's own device.

Elements are ordered by their keys: NaN and NaT come last, and zeros of both signs are equal. Each
backend has its own keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import Array, checked, namespace
from dask_gpuselect.kernels.compiling import one_way
from dask_gpuselect.kernels.radix import check_kind
from dask_gpuselect.kernels.reference.ordering import Dealt as Dealt
from dask_gpuselect.kernels.registry import backend_for


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


def elements_of(keys: Array, dtype: np.dtype[Any]) -> Array:
    """Return the elements of `dtype` that have these ascending keys; zeros are positive.

    The memory of the keys may be reused.
    """
    return backend_for(keys).ordering.elements_of(keys, dtype)


@one_way
def sort(keys: Array) -> None:
    """Sort keys in place; keys that already ascend are only read once."""
    backend_for(keys).ordering.sort(keys)


@one_way
def stable_order(keys: Array) -> Array:
    """Return the places of the keys in ascending order, those of equal keys ascending; int64."""
    return backend_for(keys).ordering.stable_order(keys)


@one_way
def dealt(values: Array, marks: NDArray[Any], dtype: np.dtype[Any], **how: Any) -> Dealt:
    """Order elements, or keys, so that they can be cut into pieces at `marks`.

    The parameters are those of `reference.ordering.dealt`.
    """
    answer: Dealt = backend_for(values).ordering.dealt(values, marks, dtype, **how)
    return answer


def places(ordered: Dealt, first: int) -> Array:
    """Return the place of each element before it was moved, counted from `first`."""
    if ordered.order is None:
        return namespace(ordered.keys).arange(first, first + len(ordered.keys))
    return ordered.order + first
