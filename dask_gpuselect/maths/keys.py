"""Ordered keys: unsigned integers in the order of the elements, for any dtype.

The key of a float is its bits, with the sign bit flipped if it is positive and all bits flipped if
it is negative. Zeros of both signs have the same key (Alabi et al. 2012, section 2.2, with that
exception). The keys of NaN have no meaning.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import extremes_of

EXACT_UP_TO: Final = 2**53
"""Integers of at most this size are numbers of float64."""


def are_float64(values: Any) -> bool:
    """Return whether all elements of an array of any kind are numbers of float64.

    Floats always are. Reads integers of 8 bytes twice.
    """
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8 or not values.size:
        return True
    return int(values.min()) >= -EXACT_UP_TO and int(values.max()) <= EXACT_UP_TO


def selection_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which elements of `dtype` are compared: exact, and in the same order."""
    substitutes = {"b": np.uint8, "M": np.int64, "m": np.int64}
    if dtype.kind == "f" and dtype.itemsize == 2:
        return np.dtype(np.float32)
    return np.dtype(substitutes.get(dtype.kind, dtype.newbyteorder("=")))


def from_keys(keys: NDArray[np.uint64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert keys to elements of `selection_dtype`."""
    bits = 8 * dtype.itemsize
    sign = np.uint64(1 << (bits - 1))
    if dtype.kind == "i":
        keys = keys ^ sign
    elif dtype.kind == "f":
        keys = np.where(keys & sign, keys ^ sign, ~keys)
    words = keys.astype(f"u{dtype.itemsize}")
    return words.view(dtype).astype(selection_dtype(dtype), copy=False)


def to_keys(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Convert elements of `selection_dtype` to keys."""
    dtype = values.dtype
    sign = np.uint64(1 << (8 * dtype.itemsize - 1))
    if dtype.kind == "f":
        values = values + dtype.type(0)  # makes -0.0 +0.0: both have the same key
    keys = values.view(f"u{dtype.itemsize}").astype(np.uint64)
    if dtype.kind == "i":
        return keys ^ sign
    if dtype.kind == "f":
        ones = np.uint64((1 << (8 * dtype.itemsize)) - 1)
        return np.where(keys & sign, ones & ~keys, keys | sign)
    return keys


def unused_key(dtype: np.dtype[Any]) -> int | None:
    """Return the key that no element has, for a `selection_dtype`; None if there is none.

    It is the key before that of +0.0, because -0.0 has the key of +0.0.
    """
    return (1 << 8 * dtype.itemsize - 1) - 1 if dtype.kind == "f" else None


def key_at(key: int, dtype: np.dtype[Any]) -> int:
    """Return the key itself, or the next one if no element has it."""
    return key + (key == unused_key(dtype))


def extreme_keys(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the keys of the least and of the largest value of a `selection_dtype`.

    For floats these are infinities.
    """
    least, largest = to_keys(np.array(extremes_of(dtype), dtype)).tolist()
    return least, largest
