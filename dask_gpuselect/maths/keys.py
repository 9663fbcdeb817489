"""Ordered keys: unsigned integers in the order of the elements, for any dtype.

The key of a float is its bits, with the sign bit flipped if it is positive and all bits flipped if
it is negative. Zeros of both signs have the same key (Alabi et al. 2012, section 2.2, with that
exception).
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
    elements: NDArray[Any] = elements_of(keys.astype(f"u{dtype.itemsize}"), dtype)
    return elements.astype(selection_dtype(dtype), copy=False)


def to_keys(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Convert elements of `selection_dtype` to keys."""
    keys: NDArray[Any] = keys_of(values.view(f"u{values.dtype.itemsize}"), values.dtype)
    return keys.astype(np.uint64)


def keys_of(words: Any, dtype: np.dtype[Any]) -> Any:
    """Return the keys of elements of a dtype from their bits, as unsigned integers of their size.

    The arrays may be CuPy's. Every NaN has the last key, and so has NaT.
    """
    sign = _sign(words)
    if dtype.kind == "i":
        return words ^ sign
    if dtype.kind in "mM":
        return (words ^ sign) - words.dtype.type(1)  # NaT, the least integer, gets the largest key
    if dtype.kind != "f":
        return words
    signed = words.view(f"i{dtype.itemsize}")
    keys = (signed >> (8 * dtype.itemsize - 1)).view(words.dtype)  # all ones if negative
    keys |= sign
    keys ^= words
    keys[words == sign] = sign
    infinity = np.array(np.inf, dtype).view(words.dtype)[()]
    keys[(words & ~sign) > infinity] = ~words.dtype.type(0)
    return keys


def elements_of(keys: Any, dtype: np.dtype[Any]) -> Any:
    """Return the elements of a dtype that have these keys of its size; zeros are positive."""
    sign = _sign(keys)
    if dtype.kind == "i":
        keys = keys ^ sign
    elif dtype.kind in "mM":
        keys = (keys + keys.dtype.type(1)) ^ sign
    elif dtype.kind == "f":
        positive = keys.view(f"i{dtype.itemsize}") >> (8 * dtype.itemsize - 1)  # ones if positive
        flipped = np.invert(positive, out=positive).view(keys.dtype)
        flipped |= sign
        flipped ^= keys
        keys = flipped
    return keys.view(dtype)


def _sign(words: Any) -> Any:
    """Return the top bit of unsigned integers."""
    return words.dtype.type(1 << (8 * words.dtype.itemsize - 1))


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
