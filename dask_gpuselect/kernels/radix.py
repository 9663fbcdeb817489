"""What the distributed radix sort does to one chunk, NumPy's or CuPy's, on the chunk's own device.

The keys are those of `keys.to_keys`, no wider than the elements, and here all elements have one:
NaN and NaT the last, as `numpy.sort` has them. On bits, for CuPy takes denormal float32 for zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.arrays import Array, all_true, checked, is_cupy, namespace, to_host
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.scans import Run


def key_bits(dtype: np.dtype[Any]) -> int:
    """How many bits of the keys differ at all."""
    return 1 if dtype.kind == "b" else 8 * dtype.itemsize


def check_kind(array: Any, name: str = "radix_sort") -> None:
    """Raise for arrays whose bits cannot be had: the array API has no views of another dtype."""
    if not (isinstance(array, np.ndarray) or is_cupy(array)):
        raise TypeError(
            f"{name} needs chunks of NumPy or CuPy, not of {type(array).__module__}: "
            "pass x.map_blocks(numpy.asarray)"
        )


def keys_of(chunk: Any, dtype: np.dtype[Any]) -> Array:
    """The keys of a chunk's elements in C order, unsigned integers of the elements' size.

    Parameters
    ----------
    chunk : NumPy or CuPy array
        Of any shape.
    dtype : dtype
        What its array says it is, in native byte order.
    """
    chunk = checked(chunk, dtype)
    check_kind(chunk)
    words = chunk.astype(dtype, copy=False).reshape(-1).view(f"u{dtype.itemsize}")
    sign = _sign(words)
    if dtype.kind == "i":
        return words ^ sign
    if dtype.kind in "mM":
        return (words ^ sign) - words.dtype.type(1)  # NaT, the least number, becomes the last
    if dtype.kind == "f":
        return _keys_of_floats(words, sign, dtype)
    return words


def _keys_of_floats(words: Array, sign: Any, dtype: np.dtype[Any]) -> Array:
    """Keys from the bits of floats, of which zeros of both signs have one, and so has every NaN."""
    signed = words.view(f"i{dtype.itemsize}")
    keys = (signed >> (8 * dtype.itemsize - 1)).view(words.dtype)  # all bits if negative
    keys |= sign
    keys ^= words
    keys[words == sign] = sign
    infinity = np.array(np.inf, dtype).view(words.dtype)[()]
    keys[(words & ~sign) > infinity] = ~words.dtype.type(0)
    return keys


def elements_of(keys: Array, dtype: np.dtype[Any]) -> Array:
    """The elements of these keys, of `dtype`; zeros are positive."""
    sign = _sign(keys)
    if dtype.kind == "i":
        keys = keys ^ sign
    elif dtype.kind in "mM":
        keys = (keys + keys.dtype.type(1)) ^ sign
    elif dtype.kind == "f":
        positive = keys.view(f"i{dtype.itemsize}") >> (8 * dtype.itemsize - 1)  # all bits if so
        flipped = namespace(keys).invert(positive, out=positive).view(keys.dtype)
        flipped |= sign
        flipped ^= keys
        keys = flipped
    return keys.view(dtype)


def run_of(keys: Array) -> Run:
    """The ends of a chunk's keys, and whether they ascend."""
    n = keys.shape[0]
    if n == 0:
        return Run(None, None, ascends=True)
    first, last = (int(keys[i]) for i in (0, n - 1))
    return Run(first, last, ascends=all_true(keys[1:] >= keys[:-1]))


def count_digit(keys: Array, shift: int, bits: int) -> IntArray:
    """How many keys have each value of a digit, on the host: step 1 of Algorithm 1."""
    size = _values_of_digit(keys, shift, bits)
    if keys.shape[0] == 0:  # CuPy's bincount looks for the largest
        return np.zeros(size, np.int64)
    counts = namespace(keys).bincount(digits(keys, shift, bits), minlength=size)
    return np.asarray(to_host(counts), np.int64)


def by_digit(keys: Array, shift: int, bits: int) -> Array:
    """The keys in the order of a digit, those with equal ones as they were."""
    # NumPy's stable argsort is a radix sort for so few bits: 1.25e6 in 7.5 ms.
    return keys[stable_places(digits(keys, shift, bits))]


def stable_places(keys: Array) -> Array:
    """The places of keys in ascending order, those of equal ones ascending."""
    # CuPy's only argsort is stable.
    return keys.argsort() if is_cupy(keys) else keys.argsort(kind="stable")


def joined(pieces: list[Array]) -> Array:
    """All of some pieces, copied: a piece that is a view keeps the whole of its source."""
    return namespace(pieces[0]).concatenate(pieces)


def digits(keys: Array, shift: int, bits: int) -> Array:
    """The digit of each key: of its bits, `bits` from the one of value ``2**shift`` on."""
    unsigned = keys.dtype.type
    mask = unsigned(_values_of_digit(keys, shift, bits) - 1)
    return ((keys >> unsigned(shift)) & mask).astype(np.uint8 if bits <= 8 else np.uint16)


def _values_of_digit(keys: Array, shift: int, bits: int) -> int:
    """How many values it can have: the first digit may be of fewer bits."""
    return 1 << min(bits, 8 * int(keys.dtype.itemsize) - shift)


def _sign(words: Array) -> Any:
    """The largest bit of unsigned integers."""
    return words.dtype.type(1 << (8 * words.dtype.itemsize - 1))
