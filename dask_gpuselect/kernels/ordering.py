"""What sorting does to one chunk, NumPy's or CuPy's, on the chunk's own device.

Elements are ordered by their keys: NaN and NaT come last, and zeros of both signs are equal. What
keys are is for the kernels to say.
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
from dask_gpuselect.maths.cuts import IntArray


def words_of(chunk: Array, dtype: np.dtype[Any]) -> Array:
    """The elements of a chunk in C order."""
    chunk = checked(chunk, dtype)
    check_kind(chunk, "sort")
    return chunk.astype(dtype, copy=False).reshape(-1)


def keys_of(chunk: Array, dtype: np.dtype[Any]) -> Array:
    """The keys of a chunk's elements in C order, of the elements' size; it may be the chunk. See
    `radix.keys_of`."""
    chunk = checked(chunk, dtype)
    check_kind(chunk, "sort")
    return backend_for(chunk).ordering.keys_of(chunk, dtype)


def elements_of(keys: Array, dtype: np.dtype[Any]) -> Array:
    """The elements of ascending keys, of `dtype`, maybe in their place; zeros are positive."""
    return backend_for(keys).ordering.elements_of(keys, dtype)


@one_way
def sort(keys: Array) -> None:
    """Sort keys in place, ones that ascend in one read."""
    backend_for(keys).ordering.sort(keys)


@one_way
def stable_order(keys: Array) -> Array:
    """The places of the keys in ascending order, those of equal ones ascending; int64."""
    return backend_for(keys).ordering.stable_order(keys)


@one_way
def dealt(
    values: Array,
    marks: NDArray[Any],
    dtype: np.dtype[Any],
    *,
    has_order: bool,
    known: tuple[IntArray, IntArray],
    ends: IntArray | None = None,
) -> Dealt:
    """Elements, or keys, in the order in which they are cut into pieces; see
    `reference.ordering.dealt`."""
    own = backend_for(values).ordering
    return own.dealt(values, marks, dtype, has_order=has_order, known=known, ends=ends)


def places(found: Dealt, first: int) -> Array:
    """Where the elements were, counted from a number."""
    if found.order is None:
        return namespace(found.keys).arange(first, first + len(found.keys))
    return found.order + first
