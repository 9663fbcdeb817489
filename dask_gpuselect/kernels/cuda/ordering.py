"""What sorting does to a CuPy chunk: the host side of ``ordering.cu``.

Keys are those of `radix.keys_of`, unsigned integers, which CuPy sorts by their digits. A chunk is
not sorted before it is cut into pieces: its elements are dealt out to the pieces, in one read and
one write.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels import radix
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.chunk import Chunk
from dask_gpuselect.kernels.cuda.launch import Array, advised, launch, offsets, on_device
from dask_gpuselect.kernels.reference import ordering as reference
from dask_gpuselect.kernels.reference.ordering import Dealt, sort, stable_order
from dask_gpuselect.maths.cuts import IntArray

__all__ = ["counts_at", "dealt", "elements_of", "keys_of", "sort", "stable_order"]


@advised
def keys_of(chunk: Array, dtype: np.dtype[Any]) -> Array:
    """The keys of a chunk's elements in C order; see `radix.keys_of`."""
    if dtype.kind not in "fi":  # which are their own keys
        return radix.keys_of(chunk, dtype)
    words = cupy.ascontiguousarray(chunk.astype(dtype, copy=False)).reshape(-1)
    keys = cupy.empty(words.size, f"u{dtype.itemsize}")
    arguments = (words, np.int64(words.size), keys)
    if words.size:
        launch(dtype, "keys_of_words", source.DEAL_THREADS, arguments)
    return keys


@advised
def elements_of(keys: Array, dtype: np.dtype[Any]) -> Array:
    """The elements of these keys, of `dtype`, in their place; zeros are positive."""
    if dtype.kind not in "fi":
        return radix.elements_of(keys, dtype)
    if keys.size:
        launch(dtype, "words_of_keys", source.DEAL_THREADS, (keys, np.int64(keys.size)))
    return keys.view(dtype)


@advised
def dealt(
    values: Array,
    marks: NDArray[Any],
    dtype: np.dtype[Any],
    *,
    has_order: bool,
    known: tuple[IntArray, IntArray],
) -> Dealt:
    """Keys in the order in which they are cut into pieces; see `reference.ordering.dealt`.

    Those between two marks are in no order. Scratch: none beside the keys; two copies if other
    arrays go along, or if there are more marks than `source.MOST_MARKS`: then the chunk is sorted.
    """
    wanted = radix.keys_of(marks, dtype)
    distinct, first = np.unique(wanted, return_index=True)
    if has_order or len(distinct) > source.MOST_MARKS:
        keys = keys_of(values, dtype) if values.dtype == dtype else values
        return reference.dealt(keys, marks, dtype, has_order=has_order, known=known)
    n = int(values.size)
    # What was counted before says where each class has room. If it is wrong, what finds none is
    # counted and not written.
    below, upto = (side[first] for side in known)
    inner = np.stack([below, upto], axis=1).ravel()
    bounds = np.maximum.accumulate(np.clip([0, *inner.tolist(), n], 0, n))
    out = cupy.empty(n, f"u{dtype.itemsize}")
    counts = _dealt_into(out, values, distinct, bounds)
    stops = np.cumsum(counts)
    at = 2 * distinct.searchsorted(wanted) + 1
    return Dealt(out, None, (stops - counts)[at], stops[at])


def counts_at(values: Array, marks: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """How many elements, in any order, are below, and up to, each of some marks: at most
    `source.MOST_MARKS`, ascending and distinct. One read."""
    keys = radix.keys_of(marks, np.dtype(values.dtype))
    counts = _dealt_into(None, values, keys, np.zeros(0, np.int64))
    stops = np.cumsum(counts)
    return (stops - counts)[1::2][: len(marks)], stops[1::2][: len(marks)]


def _dealt_into(
    out: Array | None, values: Array, marks: NDArray[Any], bounds: IntArray
) -> IntArray:
    """How many elements, or keys, each class has that marks make; they are written to `out`."""
    if not values.size:
        return np.zeros(2 * len(marks) + 2, np.int64)
    dtype = np.dtype(values.dtype)
    room = 1 << len(marks).bit_length()  # more than there are marks
    layout = _sheet(np.dtype(f"u{source.key_size(dtype)}"), room, len(bounds))
    sheet = np.zeros((), layout)
    sheet["marks"] = np.iinfo(f"u{dtype.itemsize}").max
    sheet["marks"][: len(marks)] = marks
    sheet["bounds"] = bounds
    told = on_device(sheet)
    at = {name: np.uint64(told.data.ptr + place) for name, place in offsets(layout).items()}
    taken = cupy.zeros((2 * len(marks) + 2, source.DEAL_APART), np.uint64)
    sizes = np.uint32(room), np.uint32(len(marks))
    arguments = (*Chunk.of(values)[:3], at["marks"], *sizes, taken)
    if out is None:
        memory = source.deal_counts_memory(dtype, *map(int, sizes))
        launch(dtype, "deal_counts", source.DEAL_THREADS, arguments, memory)
    else:
        memory = source.deal_memory(dtype, *map(int, sizes))
        more = at["bounds"], out
        launch(dtype, "deal", source.DEAL_THREADS, (*arguments, *more), memory)
    return np.asarray(taken.get()[:, 0].astype(np.int64))


@lru_cache
def _sheet(key: np.dtype[Any], room: int, n_bounds: int) -> np.dtype[Any]:
    """What the kernels are told."""
    return np.dtype([("marks", key, (room,)), ("bounds", "i8", (n_bounds,))], align=True)
