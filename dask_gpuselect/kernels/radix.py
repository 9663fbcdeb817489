"""Steps of the distributed radix sort on one chunk, NumPy's or CuPy's, on the chunk's own device.

The keys are those of `keys.to_keys`, no wider than the elements. Here every element has a key: NaN
and NaT have the last one, because `numpy.sort` puts them last. Keys are made from the bits of the
elements, since CuPy flushes subnormal float32 to zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.arrays import Array, all_true, checked, is_cupy, namespace, to_host
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.keys import elements_of as elements_of
from dask_gpuselect.maths.keys import keys_of as keys_of_words
from dask_gpuselect.maths.scans import Run


def key_bits(dtype: np.dtype[Any]) -> int:
    """Return the number of bits in which keys can differ."""
    return 1 if dtype.kind == "b" else 8 * dtype.itemsize


def check_kind(array: Any, name: str = "radix_sort") -> None:
    """Raise a TypeError unless an array is NumPy's or CuPy's.

    The array API has no views of another dtype, so the bits of other arrays are out of reach.
    """
    if not (isinstance(array, np.ndarray) or is_cupy(array)):
        raise TypeError(
            f"{name} needs chunks of NumPy or CuPy, not of {type(array).__module__}: "
            "pass x.map_blocks(numpy.asarray), or numpy.asarray(x) of an array in memory"
        )


def keys_of(chunk: Any, dtype: np.dtype[Any]) -> Array:
    """Return the keys of a chunk's elements in C order, unsigned integers of the elements' size.

    Parameters
    ----------
    chunk : NumPy or CuPy array
        Elements, of any shape.
    dtype : dtype
        The dtype of the dask array, in native byte order.
    """
    chunk = checked(chunk, dtype)
    check_kind(chunk)
    words = chunk.astype(dtype, copy=False).reshape(-1).view(f"u{dtype.itemsize}")
    return keys_of_words(words, dtype)


def run_of(keys: Array) -> Run:
    """Return the first and last key of a chunk, and whether the keys ascend."""
    n = keys.shape[0]
    if n == 0:
        return Run(None, None, ascends=True)
    first, last = (int(keys[i]) for i in (0, n - 1))
    return Run(first, last, ascends=all_true(keys[1:] >= keys[:-1]))


def count_digit(keys: Array, shift: int, bits: int) -> IntArray:
    """Count the keys that have each value of a digit, on the host: step 1 of Algorithm 1."""
    size = _values_of_digit(keys, shift, bits)
    if keys.shape[0] == 0:  # CuPy's bincount takes the maximum, which is an error if there is none
        return np.zeros(size, np.int64)
    counts = namespace(keys).bincount(digits(keys, shift, bits), minlength=size)
    return np.asarray(to_host(counts), np.int64)


def by_digit(keys: Array, shift: int, bits: int) -> Array:
    """Sort keys by one digit; keys with equal digits keep their order."""
    # NumPy's stable argsort is a radix sort for so few bits: 1.25e6 in 7.5 ms.
    return keys[stable_places(digits(keys, shift, bits))]


def stable_places(keys: Array) -> Array:
    """Return the places of keys in ascending order, those of equal keys ascending."""
    # CuPy has one argsort, and it is stable.
    return keys.argsort() if is_cupy(keys) else keys.argsort(kind="stable")


def joined(pieces: list[Array]) -> Array:
    """Join pieces into one copy: a piece that is a view keeps its whole source in memory."""
    return namespace(pieces[0]).concatenate(pieces)


def digits(keys: Array, shift: int, bits: int) -> Array:
    """Return a digit of each key: `bits` bits, the lowest of them worth ``2**shift``."""
    unsigned = keys.dtype.type
    mask = unsigned(_values_of_digit(keys, shift, bits) - 1)
    return ((keys >> unsigned(shift)) & mask).astype(np.uint8 if bits <= 8 else np.uint16)


def _values_of_digit(keys: Array, shift: int, bits: int) -> int:
    """Return the number of values of a digit: the topmost digit may have fewer bits."""
    return 1 << min(bits, 8 * int(keys.dtype.itemsize) - shift)
