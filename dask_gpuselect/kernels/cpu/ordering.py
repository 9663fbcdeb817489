"""What sorting does to a NumPy chunk: compiled by Numba, around NumPy's vectorised sort.

A chunk is not sorted before it is cut into pieces. Its elements are dealt out to the pieces, as
super-scalar sample sort does (Sanders & Winkel 2004), and each chunk of the result is sorted once.
Of 1.25e6 float64 that are to go to 16 pieces, dealing out takes 7 to 11 ms, and NumPy's sort 18
with AVX2, without which it takes 4 to 7 times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels import radix
from dask_gpuselect.kernels.compiling import (
    Types,
    called_by_kernels,
    compiles,
    types,
    until_compiled,
)
from dask_gpuselect.kernels.cpu.scalars import is_missing
from dask_gpuselect.kernels.cpu.tree import RUN, tree_of, walk
from dask_gpuselect.kernels.cpu.word_counts import count_words, is_word, place_of
from dask_gpuselect.kernels.reference.ordering import Dealt, in_order
from dask_gpuselect.maths.cuts import IntArray

SHORT = 32  # elements that insertion sorts


def keys_of(chunk: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The keys of a chunk's elements, of the dtypes that NumPy sorts with AVX2 and AVX-512, and
    fastest as these: floats are their own keys, and integers and dates are signed. 1.25e6 float64
    take 18 ms with AVX2, int64 22 and uint64 27."""
    if _is_small(dtype):  # unsigned ones are the chunk itself, which may be any part of an array
        return np.require(radix.keys_of(chunk, dtype), requirements=["C", "A"])
    keys = np.require(chunk.astype(dtype, copy=False).reshape(-1), requirements=["C", "A"])
    signed = keys.view(f"i{dtype.itemsize}")
    if dtype.kind in "mM":
        return signed - 1  # NaT, the least number, becomes the last
    return signed ^ np.iinfo(signed.dtype).min if dtype.kind == "u" else keys


def elements_of(keys: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The elements of ascending keys, of `dtype`, maybe in their place; zeros are positive."""
    if _is_small(dtype):
        small: NDArray[Any] = radix.elements_of(keys, dtype)
        return small
    if dtype.kind == "f":
        # Those of one key are together, but may have any bits.
        keys[keys.searchsorted(0.0) : keys.searchsorted(0.0, side="right")] = 0.0
        keys[keys.searchsorted(np.nan) :] = np.nan
    elif dtype.kind in "mM":
        keys += 1
    elif dtype.kind == "u":
        keys ^= np.iinfo(keys.dtype).min
    return keys.view(dtype)


def _is_small(dtype: np.dtype[Any]) -> bool:
    """Of one or two bytes: keys that are counted."""
    return dtype.itemsize <= 2


def _stable_by_numpy(keys: NDArray[Any]) -> IntArray:
    return keys.argsort(kind="stable").astype(np.int64, copy=False)


def _dealt_by_numpy(
    values: NDArray[Any],
    marks: NDArray[Any],
    dtype: np.dtype[Any],
    *,
    has_order: bool,
    known: tuple[IntArray, IntArray],
    ends: IntArray | None = None,
) -> Dealt:
    del known, ends
    keys = keys_of(values, dtype) if values.dtype == dtype else values
    order = _stable_by_numpy(keys) if has_order else None
    ordered = np.sort(keys) if order is None else keys[order]
    return in_order(ordered, order, keys_of(marks, dtype))


@until_compiled(_dealt_by_numpy)
def dealt(
    values: NDArray[Any],
    marks: NDArray[Any],
    dtype: np.dtype[Any],
    *,
    has_order: bool,
    known: tuple[IntArray, IntArray],
    ends: IntArray | None = None,
) -> Dealt:
    """Keys in the order in which they are cut into pieces; see `reference.ordering.dealt`."""
    del known, ends
    keys = keys_of(values, dtype) if values.dtype == dtype else values
    wanted = keys_of(marks, dtype)
    if ascends(keys):
        return in_order(keys, None, wanted)
    # Missing elements that are numbers are told from those behind all marks by a mark of their own.
    numbers = wanted[:0] if wanted.dtype.kind == "f" else [np.iinfo(wanted.dtype).max]
    distinct = np.unique(np.append(wanted, numbers).astype(wanted.dtype, copy=False))
    of_each, counts = classes(keys, distinct)
    stops = np.cumsum(counts)
    at = 2 * distinct.searchsorted(wanted) + 1
    order = _dealt_places(of_each, counts) if has_order else None
    return Dealt(_dealt_keys(keys, of_each, counts), order, (stops - counts)[at], stops[at])


def _ascends_by_numpy(keys: NDArray[Any]) -> bool:
    for start in range(0, keys.size - 1, RUN):
        some = keys[start : start + RUN + 1]
        if not ((some[:-1] <= some[1:]) | (some[1:] != some[1:])).all():
            return False
    return True


@until_compiled(_ascends_by_numpy)
def ascends(keys: NDArray[Any]) -> bool:
    """Whether the keys are in order, NaN last. Stops soon where they are not."""
    return bool(_compiled(_ascends, keys.dtype)(keys))


def sort(keys: NDArray[Any]) -> None:
    """Sort in place. One and two bytes are counted: 1.25e6 of two bytes take 2 ms, NumPy's stable
    sort 11 and its other, without AVX-512, 74."""
    if keys.dtype.kind == "u" and keys.dtype.itemsize <= 2:
        _sort_narrow(keys)
    elif not ascends(keys):
        keys.sort()


def _sort_narrow_by_numpy(keys: NDArray[Any]) -> None:
    keys.sort(kind="stable")  # by counting digits


@until_compiled(_sort_narrow_by_numpy)
def _sort_narrow(keys: NDArray[Any]) -> None:
    _compiled(_sort_by_counting, keys.dtype)(keys, np.zeros(1 << 8 * keys.itemsize, np.int64))


def classes(keys: NDArray[Any], marks: NDArray[Any]) -> tuple[NDArray[np.uint32], IntArray]:
    """Where each key is among ascending marks: class ``2 * i`` is before mark i and behind the one
    before, ``2 * i + 1`` equals it. Behind all marks are three: the largest number has one of its
    own, and NaN the last.

    Returns
    -------
    ndarray of uint32, ndarray of int64
        The class of every key, and how many keys each class has.
    """
    of_each = np.empty(keys.size, np.uint32)
    tree, padded, levels = tree_of(marks)
    return of_each, _compiled(_find_classes, keys.dtype)(
        keys, tree, padded, levels, len(marks), of_each
    )


def _dealt_keys(keys: NDArray[Any], of_each: NDArray[np.uint32], counts: IntArray) -> NDArray[Any]:
    """The keys class by class, each as they were."""
    out = np.empty_like(keys)
    _compiled(_deal, keys.dtype)(keys, of_each, np.cumsum(counts) - counts, out)
    return out


def _dealt_places(of_each: NDArray[np.uint32], counts: IntArray) -> IntArray:
    """Where the keys were that `_dealt_keys` gives."""
    out = np.empty(of_each.size, np.int64)
    _compiled(_deal_places, of_each.dtype)(of_each, np.cumsum(counts) - counts, out)
    return out


@until_compiled(_stable_by_numpy)
def stable_order(keys: NDArray[Any]) -> IntArray:
    """The places of the keys in ascending order, those of equal ones ascending.

    Keys and places are packed into words of 64 bits, as many leading bits of the keys as there is
    room for, and these are sorted: 1.25e6 float64 take 28 ms with AVX2, and 250 to 290 by NumPy's
    stable argsort. What differs in the other bits alone is put in order by insertion. Where that is
    much, NumPy's it is.

    Scratch: two words for each key.
    """
    n = keys.size
    if n < 2 or keys.dtype.itemsize <= 2:
        return _stable_by_numpy(keys)  # by counting digits
    if ascends(keys):
        return np.arange(n)
    bits = keys.view(f"u{keys.dtype.itemsize}")
    sign = np.uint64(1 << (8 * keys.dtype.itemsize - 1))
    infinity = np.array(np.inf, keys.dtype).view(bits.dtype)[()] if keys.dtype.kind == "f" else 0
    words = np.empty(n, np.uint64)
    low, high = _compiled(_to_words, bits.dtype)(bits, sign, np.uint64(infinity), words)
    for_places = (n - 1).bit_length()
    shift = max((int(high) - int(low)).bit_length() + for_places - 64, 0)
    packed = np.empty(n, np.int64)
    _compiled(_pack, words.dtype)(words, low, shift, for_places, packed)
    packed.sort()
    if _compiled(_unpack, words.dtype)(words, shift, for_places, packed):
        return packed
    return _stable_by_numpy(keys)


def _ascends(keys: Any) -> bool:
    for start in range(0, keys.size - 1, RUN):
        stop = min(start + RUN, keys.size - 1)
        n_down = 0
        for k in range(start, stop):
            n_down += keys[k] > keys[k + 1] or is_missing(keys[k]) > is_missing(keys[k + 1])
        if n_down:
            return False
    return True


def _sort_by_counting(keys: Any, counts: Any) -> None:
    count_words(keys, counts)
    start = 0
    for value in range(counts.size):
        stop = start + counts[place_of(value, counts.size)]
        keys[start:stop] = value
        start = stop


def _find_classes(keys: Any, tree: Any, marks: Any, levels: Any, n_marks: Any, of_each: Any) -> Any:
    """Loops that vectorise, one after the other: 3 ns an element at 15 marks."""
    cell = np.empty(RUN, np.uint32)
    leaf = np.uint32(marks.size)
    missing = np.uint32(2 * n_marks + 2)
    for start in range(0, keys.size, RUN):
        run = keys[start : min(start + RUN, keys.size)]
        found = of_each[start : start + run.size]
        walk(run, tree, marks, levels, cell)
        n_missing = 0
        for k in range(run.size):
            n_missing += is_missing(run[k])
            i = cell[k] - leaf
            found[k] = np.uint32(2) * i + np.uint32(run[k] == marks[i])
        if n_missing:
            for k in range(run.size):
                if is_missing(run[k]):
                    found[k] = missing
    # Four in turn, for equal elements would wait for each other's.
    counts = np.zeros((4, 2 * n_marks + 3), np.int64)
    n = of_each.size // 4 * 4
    for k in range(0, n, 4):
        counts[0, of_each[k]] += 1
        counts[1, of_each[k + 1]] += 1
        counts[2, of_each[k + 2]] += 1
        counts[3, of_each[k + 3]] += 1
    for k in range(n, of_each.size):
        counts[0, of_each[k]] += 1
    return counts.sum(axis=0)


def _deal(keys: Any, of_each: Any, starts: Any, out: Any) -> None:
    for k in range(keys.size):
        i = of_each[k]
        start = starts[i]
        starts[i] = start + 1
        out[start] = keys[k]


def _deal_places(of_each: Any, starts: Any, out: Any) -> None:
    for k in range(of_each.size):
        i = of_each[k]
        start = starts[i]
        starts[i] = start + 1
        out[start] = k


def _to_words(bits: Any, sign: Any, infinity: Any, words: Any) -> Any:
    """Unsigned words in the order of floats, or of signed integers where `infinity` is 0; the least
    and the largest. Zeros of both signs have one, and so has every NaN."""
    low, high = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0)
    for k in range(bits.size):
        bit = np.uint64(bits[k])
        word = bit ^ sign
        if infinity:
            magnitude = bit & (sign - np.uint64(1))
            below_zero = sign - magnitude  # -0.0 becomes 0.0
            above_zero = sign + min(magnitude, infinity + np.uint64(1))
            word = below_zero if bit & sign and magnitude <= infinity else above_zero
        words[k] = word
        low, high = min(low, word), max(high, word)
    return low, high


def _pack(words: Any, low: Any, shift: Any, for_places: Any, packed: Any) -> None:
    """In the order of signed integers, which AVX2 compares in one instruction."""
    for k in range(words.size):
        leading = (words[k] - low) >> np.uint64(shift)
        word = (leading << np.uint64(for_places)) | np.uint64(k)
        packed[k] = np.int64(word ^ np.uint64(1 << 63))


def _unpack(words: Any, shift: Any, for_places: Any, packed: Any) -> bool:
    """The places, put in order where leading bits are equal; False if there is too much of it."""
    mask = np.int64((1 << for_places) - 1)
    start = 0
    leading = packed[0] >> for_places
    packed[0] &= mask
    for k in range(1, packed.size + 1):
        following = leading
        if k < packed.size:
            following = packed[k] >> for_places
            packed[k] &= mask
        if k == packed.size or following != leading:
            if shift and k - start > 1 and not _sort_few(words, packed, start, k):
                return False
            start, leading = k, following
    return True


@called_by_kernels
def _sort_few(words: Any, order: Any, start: Any, stop: Any) -> bool:
    """Sort some places by their words, those of equal ones as they are: by insertion. False if they
    are too many, and not in order already."""
    for k in range(start + 1, stop):
        place = order[k]
        word = words[place]
        if words[order[k - 1]] <= word:
            continue
        if stop - start > SHORT:
            return False
        i = k
        while i > start and words[order[i - 1]] > word:
            order[i] = order[i - 1]
            i -= 1
        order[i] = place
    return True


# --- Compilation --------------------------------------------------------------------------------


@compiles
def _compiled(values: types.Array, values_out: types.Array) -> Types:
    numbers, words = types.Array(types.int64, 1, "C"), types.Array(types.uint64, 1, "C")
    of_each = types.Array(types.uint32, 1, "C")
    size, word = types.int64, types.uint64
    if values.dtype == types.uint32:  # no keys: see `keys_of`
        return {
            _to_words: (values, word, word, words),
            _deal_places: (of_each, numbers, numbers),
        }
    if values.dtype == types.uint64:
        return {
            _to_words: (values, word, word, words),
            _pack: (words, word, size, size, numbers),
            _unpack: (words, size, size, numbers),
        }
    found: Types = {
        _ascends: (values,),
        _find_classes: (values, values, values, size, size, of_each),
        _deal: (values, of_each, numbers, values_out),
    }
    if is_word(values.dtype):
        found[_sort_by_counting] = (values_out, numbers)
    return found
