"""Bits of elements for kernels: counts and positions of bits, words as floats, keys of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.kernels.compiling import by_types, intrinsic, types


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


def _count_bits(context: Any, word: Any) -> Any:
    """Count the set bits of a word by one instruction."""
    del context, word

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


def _find_first_bit(context: Any, word: Any) -> Any:
    """Find the lowest set bit of a word by one instruction."""
    del context, word

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        never_zero = arguments[0].type.__class__(1)(1)
        return builder.cttz(arguments[0], never_zero)

    return types.int64(types.uint64), generate


def _find_last_bit(context: Any, word: Any) -> Any:
    """Find the highest set bit of a word by two instructions."""
    del context, word

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        kind = arguments[0].type
        never_zero = kind.__class__(1)(1)
        return builder.sub(kind(63), builder.ctlz(arguments[0], never_zero))

    return types.int64(types.uint64), generate


@by_types
def n_bits(word: Any) -> Any:
    """Count the set bits of a word."""
    count = intrinsic(_count_bits)
    return lambda word: count(word)


@by_types
def first_bit(word: Any) -> Any:
    """Find the lowest set bit of a word that is not 0."""
    find = intrinsic(_find_first_bit)
    return lambda word: find(word)


@by_types
def last_bit(word: Any) -> Any:
    """Find the highest set bit of a word that is not 0."""
    find = intrinsic(_find_last_bit)
    return lambda word: find(word)
