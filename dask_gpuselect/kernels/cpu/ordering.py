"""Sorting of a NumPy chunk: compiled by Numba, around NumPy's vectorised sort.

A chunk is not sorted before it is cut into pieces. Its elements are distributed to the pieces, as
in super-scalar sample sort (Sanders & Winkel 2004), and each chunk of the result is sorted once.
Distributing 1.25e6 float64 to 16 pieces takes 7 to 11 ms. NumPy's sort takes 18 ms with AVX2, and 4
to 7 times as long without.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels import radix
from dask_gpuselect.kernels.compiling import called_by_kernels, kernel_of, until_compiled
from dask_gpuselect.kernels.cpu import bits
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.scalars import is_missing
from dask_gpuselect.kernels.cpu.tree import RUN, Tree, find_places, tree_of
from dask_gpuselect.kernels.cpu.word_counts import count_in_turn, counts_of_words
from dask_gpuselect.kernels.reference import ordering as reference
from dask_gpuselect.kernels.reference.ordering import Dealt, in_order
from dask_gpuselect.maths.cuts import IntArray

SHORT = 32  # elements up to which insertion sort is used


def keys_of(chunk: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the keys of a chunk's elements, of a dtype that NumPy sorts fastest.

    Floats are their own keys. Keys of integers and dates are signed: with AVX2, 1.25e6 float64 take
    18 ms, int64 22 and uint64 27. Keys of one or two bytes are unsigned, and are counted.
    """
    if _is_small(dtype):  # unsigned integers are returned as they are, and may be a strided view
        return np.require(radix.keys_of(chunk, dtype), requirements=["C", "A"])
    keys = np.require(chunk.astype(dtype, copy=False).reshape(-1), requirements=["C", "A"])
    signed = keys.view(f"i{dtype.itemsize}")
    if dtype.kind in "mM":
        return signed - 1  # NaT, the least integer, gets the largest key
    return signed ^ np.iinfo(signed.dtype).min if dtype.kind == "u" else keys


def elements_of(keys: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the elements of `dtype` that have these ascending keys; zeros are positive.

    The memory of the keys may be reused.
    """
    if _is_small(dtype):
        answer: NDArray[Any] = radix.elements_of(keys, dtype)
        return answer
    if dtype.kind == "f":
        # Zeros of both signs are together, and so are NaN; their bits are made equal.
        keys[keys.searchsorted(0.0) : keys.searchsorted(0.0, side="right")] = 0.0
        keys[keys.searchsorted(np.nan) :] = np.nan
    elif dtype.kind in "mM":
        keys += 1
    elif dtype.kind == "u":
        keys ^= np.iinfo(keys.dtype).min
    return keys.view(dtype)


def _is_small(dtype: np.dtype[Any]) -> bool:
    """Return whether keys have one or two bytes, and are counted."""
    return dtype.itemsize <= 2


def dealt(
    values: NDArray[Any],
    marks: NDArray[Any],
    dtype: np.dtype[Any],
    *,
    has_order: bool,
    known: tuple[IntArray, IntArray],
    ends: IntArray | None = None,
) -> Dealt:
    """Order keys so that they can be cut into pieces; see `reference.ordering.dealt`."""
    del known, ends
    keys = keys_of(values, dtype) if values.dtype == dtype else values
    wanted = keys_of(marks, dtype)
    if ascends(keys):
        return in_order(keys, None, wanted)
    return _dealt(keys, wanted, has_order=has_order)


@until_compiled(reference.dealt_by_sorting)
def _dealt(keys: NDArray[Any], wanted: NDArray[Any], *, has_order: bool) -> Dealt:
    # Keys of missing elements are integers too. A mark of their own tells them from those above all
    # marks.
    numbers = wanted[:0] if wanted.dtype.kind == "f" else [np.iinfo(wanted.dtype).max]
    distinct = np.unique(np.append(wanted, numbers).astype(wanted.dtype, copy=False))
    of_each, counts = classes(keys, distinct)
    stops = np.cumsum(counts)
    at = 2 * distinct.searchsorted(wanted) + 1
    ordered, order = np.empty_like(keys), None
    if has_order:
        order = np.empty(keys.size, np.int64)
        _deal(np.arange(keys.size), of_each, stops - counts, order)
    _deal(keys, of_each, stops - counts, ordered)
    return Dealt(ordered, order, (stops - counts)[at], stops[at])


def _ascends_by_numpy(keys: NDArray[Any]) -> bool:
    for start in range(0, keys.size - 1, RUN):
        some = keys[start : start + RUN + 1]
        if not ((some[:-1] <= some[1:]) | (some[1:] != some[1:])).all():
            return False
    return True


def sort(keys: NDArray[Any]) -> None:
    """Sort keys in place; those of one or two bytes are counted.

    1.25e6 keys of two bytes take 2 ms, NumPy's stable sort 11 and its other one, without AVX-512,
    74.
    """
    if keys.dtype.kind == "u" and keys.dtype.itemsize <= 2:
        n_words = 1 << 8 * keys.itemsize
        _fill_in_order(keys, counts_of_words(keys, n_words))
    elif not ascends(keys):
        keys.sort()


def _fill_by_numpy(keys: NDArray[Any], counts: IntArray) -> None:
    keys[:] = np.repeat(np.arange(len(counts), dtype=keys.dtype), counts)


def classes(keys: NDArray[Any], marks: NDArray[Any]) -> tuple[NDArray[np.uint32], IntArray]:
    """Classify each key among ascending marks.

    Class ``2 * i`` is between mark i - 1 and mark i; class ``2 * i + 1`` equals mark i. Three
    classes follow the last mark: keys above it, keys that equal the largest number, and NaN.
    """
    of_each = np.empty(keys.size, np.uint32)
    return of_each, _find_classes(keys, tree_of(marks), len(marks), of_each)


@until_compiled(reference.stable_order)
def stable_order(keys: NDArray[Any]) -> IntArray:
    """Return the places of the keys in ascending order, those of equal keys ascending.

    Keys and places are packed into words of 64 bits, with as many leading bits of the keys as there
    is room for, and these are sorted: 1.25e6 float64 take 28 ms with AVX2, and 250 to 290 by
    NumPy's stable argsort. Insertion sort orders keys that differ only in their other bits. If
    these are many, NumPy's argsort is used.

    Scratch: a word of 64 bits and one of the key's size for each key.
    """
    n = keys.size
    if n < 2 or keys.dtype.itemsize <= 2:
        return np.asarray(reference.stable_order(keys))  # a radix sort
    if ascends(keys):
        return np.arange(n)
    words, low, high = bits.keys_of(keys)
    for_places = (n - 1).bit_length()
    shift = max((high - low).bit_length() + for_places - 64, 0)
    packed = np.empty(n, np.int64)
    _pack(words, words.dtype.type(low), shift, for_places, packed)
    packed.sort()
    if _unpack(words, shift, for_places, packed):
        return packed
    return np.asarray(reference.stable_order(keys))


@until_compiled(_ascends_by_numpy)
@kernel_of("f8 f4 i8 i4 i2 i1 u2 u1")
def ascends(keys: t.Values) -> bool:
    """Return whether the keys are in order, NaN last. Stops soon if they are not."""
    for start in range(0, keys.size - 1, RUN):
        stop = min(start + RUN, keys.size - 1)
        n_down = 0
        for k in range(start, stop):
            n_down += keys[k] > keys[k + 1] or is_missing(keys[k]) > is_missing(keys[k + 1])
        if n_down:
            return False
    return True


@until_compiled(_fill_by_numpy)
@kernel_of("u2 u1")
def _fill_in_order(keys: t.Out, counts: t.Ints) -> None:
    """Write each word as often as it was counted, in place: `numpy.repeat` takes another copy."""
    start = 0
    for word in range(counts.size):
        stop = start + counts[word]
        keys[start:stop] = word
        start = stop


@kernel_of("f8 f4 i8 i4 i2 i1 u2 u1")
def _find_classes(keys: t.Values, tree: Tree, n_marks: int, of_each: t.Cells) -> Any:
    """Find the class of every key and count the classes."""
    missing = np.uint32(2 * n_marks + 2)
    for start in range(0, keys.size, RUN):
        run = keys[start : min(start + RUN, keys.size)]
        run_classes = of_each[start : start + run.size]
        find_places(run, tree, run_classes)
        for k in range(run.size):
            run_classes[k] = missing if is_missing(run[k]) else run_classes[k]
    counts = np.zeros((4, 2 * n_marks + 3), np.int64)
    count_in_turn(of_each, counts)
    return counts.sum(axis=0)


@kernel_of("f8 f4 i8 i4 i2 i1 u2 u1")
def _deal(keys: t.Values, of_each: t.Cells, starts: t.Ints, out: t.Out) -> None:
    """Write the keys class by class, in their order within a class."""
    for k in range(keys.size):
        i = of_each[k]
        start = starts[i]
        starts[i] = start + 1
        out[start] = keys[k]


@kernel_of("u8 u4")
def _pack(words: t.Values, low: t.Value, shift: int, for_places: int, packed: t.Ints) -> None:
    """Pack leading bits and places into signed integers, which AVX2 compares in one instruction."""
    for k in range(words.size):
        leading = np.uint64(words[k] - low) >> np.uint64(shift)
        word = (leading << np.uint64(for_places)) | np.uint64(k)
        packed[k] = np.int64(word ^ np.uint64(1 << 63))


@kernel_of("u8 u4")
def _unpack(words: t.Values, shift: int, for_places: int, packed: t.Ints) -> bool:
    """Replace packed words by places, and order these where leading bits are equal.

    Returns False if there are too many of these to sort by insertion.
    """
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
    """Sort some places by their words, stably, by insertion.

    Returns False if there are too many of them and they are not in order yet.
    """
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
