"""Ordered keys: unsigned integers in the order of the elements, whatever these are.

The key of a float is its bits, with the sign flipped of a positive and all bits of a negative one;
zeros of both signs have one key (Alabi et al. 2012, section 2.2, with that exception). NaN has none
that means anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def selection_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which elements of `dtype` are compared: the same order, and exact both ways."""
    substitutes = {"b": np.uint8, "M": np.int64, "m": np.int64}
    if dtype.kind == "f" and dtype.itemsize == 2:
        return np.dtype(np.float32)
    return np.dtype(substitutes.get(dtype.kind, dtype.newbyteorder("=")))


def from_keys(keys: NDArray[np.uint64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The elements of these keys, of `selection_dtype`."""
    bits = 8 * dtype.itemsize
    sign = np.uint64(1 << (bits - 1))
    if dtype.kind == "i":
        keys = keys ^ sign
    elif dtype.kind == "f":
        keys = np.where(keys & sign, keys ^ sign, ~keys)
    words = keys.astype(f"u{dtype.itemsize}")
    return words.view(dtype).astype(selection_dtype(dtype), copy=False)


def to_keys(values: NDArray[Any]) -> NDArray[np.uint64]:
    """The keys of elements, of `selection_dtype`."""
    dtype = values.dtype
    sign = np.uint64(1 << (8 * dtype.itemsize - 1))
    if dtype.kind == "f":
        values = values + dtype.type(0)  # zeros of both signs have one
    keys = values.view(f"u{dtype.itemsize}").astype(np.uint64)
    if dtype.kind == "i":
        return keys ^ sign
    if dtype.kind == "f":
        ones = np.uint64((1 << (8 * dtype.itemsize)) - 1)
        return np.where(keys & sign, ones & ~keys, keys | sign)
    return keys


def unused_key(dtype: np.dtype[Any]) -> int | None:
    """The key between those of elements that belongs to none, of a `selection_dtype`: that before
    +0.0, for -0.0 has the other's."""
    return (1 << 8 * dtype.itemsize - 1) - 1 if dtype.kind == "f" else None


def key_at(key: int, dtype: np.dtype[Any]) -> int:
    """The key itself, or the next if it belongs to no element."""
    return key + (key == unused_key(dtype))


def extreme_keys(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The keys of the least and of the largest number of a `selection_dtype`: of infinities."""
    if dtype.kind == "f":
        ends = np.array([-np.inf, np.inf], dtype)
    else:
        ends = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    least, largest = to_keys(ends).tolist()
    return least, largest
