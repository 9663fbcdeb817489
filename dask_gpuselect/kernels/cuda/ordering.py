"""Sorting of a CuPy chunk: the host side of ``ordering.cu``.

Keys are those of `radix.keys_of`, unsigned integers, which CuPy sorts by their digits. A chunk is
not sorted before it is cut into pieces: its elements are distributed to the pieces in one read and
one write.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels import radix
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.chunk import Chunk
from dask_gpuselect.kernels.cuda.launch import Array, launch, on_device, places_in
from dask_gpuselect.kernels.reference import ordering as reference
from dask_gpuselect.kernels.reference.ordering import Dealt
from dask_gpuselect.maths.cuts import IntArray


def keys_of(chunk: Array, dtype: np.dtype[Any]) -> Array:
    """Return the keys of a chunk's elements in C order; see `radix.keys_of`."""
    if dtype.kind not in "fi":  # not done by the kernel
        return radix.keys_of(chunk, dtype)
    words = cupy.ascontiguousarray(chunk.astype(dtype, copy=False)).reshape(-1)
    keys = cupy.empty(words.size, f"u{dtype.itemsize}")
    if words.size:
        launch(dtype, "keys_of_words", words, words.size, keys)
    return keys


def elements_of(keys: Array, dtype: np.dtype[Any]) -> Array:
    """Return the elements of `dtype` that have these keys, in their memory; zeros are positive."""
    if dtype.kind not in "fi":
        return radix.elements_of(keys, dtype)
    if keys.size:
        launch(dtype, "words_of_keys", keys, keys.size)
    return keys.view(dtype)


def dealt(
    values: Array,
    marks: NDArray[Any],
    dtype: np.dtype[Any],
    *,
    has_order: bool,
    known: tuple[IntArray, IntArray],
    ends: IntArray | None = None,
) -> Dealt:
    """Order keys so that they can be cut into pieces; see `reference.ordering.dealt`.

    Keys between two marks are in no order. Scratch: none besides the keys. With other arrays to
    sort along, or more marks than `source.MOST_MARKS`, the chunk is sorted instead, which takes two
    copies.
    """
    wanted = radix.keys_of(marks, dtype)
    distinct, first = np.unique(wanted, return_index=True)
    if has_order or len(distinct) > source.MOST_MARKS:
        keys = keys_of(values, dtype) if values.dtype == dtype else values
        return reference.dealt(keys, marks, dtype, has_order=has_order, known=known)
    n = int(values.size)
    pieces = KeyBuffers.of(np.array([0, n]) if ends is None else ends, f"u{dtype.itemsize}")
    # Earlier counts tell how much room each class has. If they are wrong, keys without room are
    # counted but not written.
    inner = np.stack([side[first] for side in known], axis=1).ravel()
    rooms = pieces.rooms(np.append(0, inner[1::2]), np.append(inner[::2], n))
    counts = _classes(values, distinct, rooms)
    stops = np.cumsum(counts)
    if n == pieces.ends[-1] and np.array_equal(stops[:-2], inner):
        for start, stop, key in zip(inner[::2], inner[1::2], distinct, strict=True):
            pieces.fill(int(start), int(stop), key)
        pieces.fill(n - int(counts[-1]), n, distinct.dtype.type(np.iinfo(distinct.dtype).max))
    at = 2 * distinct.searchsorted(wanted) + 1
    keys = pieces.arrays[0] if ends is None else pieces.arrays
    return Dealt(keys, None, (stops - counts)[at], stops[at])


class KeyBuffers(NamedTuple):
    """Memory for keys, in pieces.

    Parameters
    ----------
    ends : ndarray of int64
        Where the pieces begin among all keys, and where the last one ends.
    arrays : list of cupy.ndarray
        The pieces.
    """

    ends: IntArray
    arrays: list[Array]

    @classmethod
    def of(cls, ends: IntArray, key: str) -> KeyBuffers:
        return cls(ends, [cupy.empty(size, key) for size in np.diff(ends).tolist()])

    def rooms(self, starts: IntArray, stops: IntArray) -> IntArray:
        """Return where the kernel writes runs of keys, each of which lies in one piece.

        `starts` and `stops` are places among all keys.
        """
        piece = self._piece_of(starts)
        first, last = self.ends[piece], self.ends[piece + 1]
        itemsize = self.arrays[0].itemsize
        bases = np.array([each.data.ptr // itemsize for each in self.arrays])[piece]
        rooms = np.stack([np.clip(side, first, last) for side in (starts, stops)], axis=1)
        return np.asarray((rooms + (bases - first)[:, None]).ravel(), np.int64)

    def fill(self, start: int, stop: int, key: Any) -> None:
        """Set all keys from one place to another to the same key."""
        while start < stop:
            piece = int(self._piece_of(start))
            first, last = self.ends[piece : piece + 2].tolist()
            self.arrays[piece][start - first : stop - first] = key
            start = last

    def _piece_of(self, places: Any) -> Any:
        """Return the piece of each place, the last piece for places behind all."""
        pieces = self.ends.searchsorted(places, side="right") - 1
        return np.clip(pieces, 0, len(self.arrays) - 1)


def _classes(values: Array, marks: NDArray[Any], rooms: IntArray) -> IntArray:
    """Count the elements, or keys, of each class; write those between the marks to their rooms."""
    if not values.size:
        return np.zeros(2 * len(marks) + 2, np.int64)
    dtype = np.dtype(values.dtype)
    room = 1 << len(marks).bit_length()  # more than the number of marks, a power of two
    layout = _sheet(np.dtype(f"u{source.key_size(dtype)}"), room, len(rooms))
    sheet = np.zeros((), layout)
    sheet["marks"] = np.iinfo(f"u{dtype.itemsize}").max
    sheet["marks"][: len(marks)] = marks
    sheet["rooms"] = rooms
    device_sheet = on_device(sheet)
    at = places_in(device_sheet, layout)
    taken = cupy.zeros((2 * len(marks) + 2, source.DEAL_APART), np.uint64)
    given = (*Chunk.of(values)[:3], at["marks"], room, len(marks), taken)
    memory = source.deal_memory(dtype, room, len(marks))
    launch(dtype, "deal", *given, at["rooms"], shared=memory)
    return np.asarray(taken.get()[:, 0].astype(np.int64))


@lru_cache
def _sheet(key: np.dtype[Any], room: int, n_rooms: int) -> np.dtype[Any]:
    """Return the dtype of the record that the kernels read."""
    return np.dtype([("marks", key, (room,)), ("rooms", "i8", (n_rooms,))], align=True)
