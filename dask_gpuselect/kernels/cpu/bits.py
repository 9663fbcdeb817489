"""Bits of elements for kernels: counts and positions of bits, words as floats, keys of elements."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import (
    by_types,
    called_by_kernels,
    instructions,
    kernel_of,
    types,
)
from dask_gpuselect.kernels.cpu import typed as t


@by_types
def as_floats(words: Any) -> Any:
    """View unsigned words as the floats of their size, or as they are if there are none."""
    if words.dtype == types.uint64:
        return lambda words: words.view(np.float64)
    if words.dtype == types.uint32:
        return lambda words: words.view(np.float32)
    return lambda words: words


@by_types
def ordered(value: Any, bits: Any) -> Any:
    """Return the key of an element from its bits as a signed integer, minus the key of zero."""
    if isinstance(value, types.Float):
        top = value.bitwidth - 1
        rest = (1 << top) - 1
        return lambda value, bits: np.int64(bits ^ ((bits >> top) & rest) if value != 0 else 0)
    if value.signed:
        return lambda value, bits: np.int64(bits)
    least = -(1 << (value.bitwidth - 1))
    return lambda value, bits: np.int64(bits ^ least)


@by_types
def key_of(value: Any, bits: Any) -> Any:
    """Return the key of an element from its bits as a signed integer; see `keys.to_keys`."""
    zero = np.uint64(1 << (value.bitwidth - 1))
    return lambda value, bits: np.uint64(ordered(value, bits)) + zero


def keys_of(values: NDArray[Any]) -> tuple[NDArray[Any], int, int]:
    """Return the keys of contiguous elements that are not unsigned, their least and their largest.

    See `radix.keys_of`.
    """
    words, dtype = values.view(f"u{values.itemsize}"), values.dtype
    as_word, keys = words.dtype.type, np.empty_like(words)
    infinity = np.array(np.inf, dtype).view(as_word)[()] if dtype.kind == "f" else as_word(0)
    return keys, *_to_keys(words.reshape(-1), *_kind_of(dtype), infinity, keys.reshape(-1))


def turn_into_words(keys: NDArray[Any], dtype: np.dtype[Any]) -> None:
    """Turn the keys of elements that are not unsigned into their bits, in place."""
    _from_keys(keys.reshape(-1), *_kind_of(dtype))


def _kind_of(dtype: np.dtype[Any]) -> tuple[int, Any]:
    """Return the kind of elements for kernels: 0, 1 for floats, more for dates; and their sign."""
    size = dtype.itemsize
    return "ifmM".index(dtype.kind), np.dtype(f"u{size}").type(1 << (8 * size - 1))


@kernel_of("u8 u4 u2 u1")
def _to_keys(words: t.Values, kind: int, sign: t.Value, infinity: t.Value, keys: t.Out) -> Any:
    """Write keys of words; return the least and the largest."""
    as_word = keys.dtype.type
    largest = as_word(0)
    least = last = as_word(~largest)  # which Numba takes for a wider integer
    for i in range(words.size):
        word = words[i]
        if kind == 0:
            keys[i] = word ^ sign
        elif kind > 1:
            keys[i] = (word ^ sign) + (word | ~word)  # minus one
        elif word & ~sign > infinity:
            keys[i] = last
        else:
            keys[i] = ~word if word & sign and word != sign else word | sign
        least, largest = as_word(min(least, keys[i])), as_word(max(largest, keys[i]))
    return least, largest


@kernel_of("u8 u4 u2 u1")
def _from_keys(keys: t.Out, kind: int, sign: t.Value) -> None:
    """Turn keys into words, in place."""
    one = keys.dtype.type(1)
    for i in range(keys.size):
        key = keys[i]
        if kind == 0:
            keys[i] = key ^ sign
        elif kind == 1:
            keys[i] = key ^ sign if key & sign else ~key
        else:
            keys[i] = (key + one) ^ sign


@called_by_kernels
def nan_key(keys: Any) -> Any:
    """Return the key of the NaN that NumPy writes, for floats whose keys are of the same size."""
    kind = keys.dtype.type
    rest = kind(~kind(0)) >> kind(13 if keys.itemsize == 8 else 10)
    return kind(~rest)


def _never_zero(word: Any) -> Any:
    """Return the flag that says that a word is not 0."""
    return word.type.__class__(1)(1)


_of_word = partial(instructions, result="int64", given=["uint64"])

n_bits = _of_word("n_bits", write=lambda builder, word: builder.ctpop(word))
"""Count the set bits of a word."""

first_bit = _of_word("first_bit", write=lambda builder, word: builder.cttz(word, _never_zero(word)))
"""Find the lowest set bit of a word that is not 0."""

last_bit = _of_word(
    "last_bit",
    write=lambda builder, word: builder.sub(word.type(63), builder.ctlz(word, _never_zero(word))),
)
"""Find the highest set bit of a word that is not 0."""


def _deposits() -> bool:
    """Return whether the processor has an instruction that is faster than `_nth_by_loop`."""
    from numba.core.registry import cpu_target

    # Numba keeps kernels on disk by the same names, so that no other processor is given them.
    _, processor, features = cpu_target.target_context.codegen().magic_tuple()
    return "+bmi2" in features and processor not in ("znver1", "znver2")  # which take 18 cycles


@by_types
def nth_bit(word: Any, n: Any) -> Any:
    """Find the set bit of a word that has n lower ones."""
    if not _deposits():
        return lambda word, n: _nth_by_loop(word, n)
    external: Any = types.ExternalFunction
    of = types.uint64(types.uint64, types.uint64)
    deposit = external("llvm.x86.bmi.pdep.64", of)
    return lambda word, n: first_bit(deposit(np.uint64(1) << np.uint64(n), word))


@called_by_kernels
def _nth_by_loop(word: Any, n: Any) -> Any:
    """Clear the n lowest set bits of a word, and find the next: often a mispredicted branch."""
    for _ in range(n):
        word &= word - np.uint64(1)
    return first_bit(word)
