"""Fingerprints of CuPy chunks: the host side of ``fingerprints.cu``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.cpu.fingerprints import MASK, mixed
from dask_gpuselect.kernels.cuda.chunk import Chunk, layout_in_order
from dask_gpuselect.kernels.cuda.launch import Array, launch

WORD = np.dtype(np.uint64)


class PendingFingerprint:
    """A fingerprint that the device is still computing, or that the host has not read yet.

    It is pickled as the finished number.
    """

    __slots__ = ("n_bytes", "start", "words")

    def __init__(self, start: int, n_bytes: int, words: Array) -> None:
        self.start, self.n_bytes, self.words = start, n_bytes, words

    @property
    def nbytes(self) -> int:
        return int(self.words.nbytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, tuple(ended([self]))

    def of(self, of_words: int, rest: int) -> int:
        """Finish the fingerprint from the two sums of the device."""
        return mixed((self.start ^ of_words ^ rest ^ self.n_bytes << 32) & MASK)


def begun(start: int, chunk: Array) -> int | PendingFingerprint:
    """Start a fingerprint: 64 bits that depend on a number and every byte of a chunk, in C order.

    `ended` finishes it. It is finished here unless the stream is the one that all threads share: a
    task of another thread would not wait for work in another stream.

    Reads the chunk once, and copies it only if it is not in C order or not aligned to a word.
    """
    pending = _begun(start, chunk)
    is_shared = cupy.cuda.get_current_stream().ptr == cupy.cuda.Stream.null.ptr
    return pending if is_shared else ended([pending])[0]


def mixed_in(start: int, chunk: Array) -> int:
    """Return the fingerprint of a chunk, and wait for it; see `begun`."""
    return ended([_begun(start, chunk)])[0]


def _begun(start: int, chunk: Array) -> PendingFingerprint:
    flat = cupy.ascontiguousarray(chunk)
    if flat.data.ptr % WORD.itemsize:
        flat = flat.copy()
    words = cupy.zeros(2, np.uint64)
    if flat.nbytes:
        launch(WORD, "mark_words", flat, flat.nbytes // WORD.itemsize, flat.nbytes, words)
    return PendingFingerprint(start, flat.nbytes, words)


def summed(start: int, columns: Sequence[Array]) -> PendingFingerprint:
    """Start a fingerprint that depends on a number and the elements of some arrays, in any order.

    The elements at the same place of all arrays are hashed together; the place itself is not.
    `ended` finishes it.

    Reads each array once, and copies none. Scratch: eight bytes for each element, if there are
    several arrays.

    Parameters
    ----------
    columns : sequence of array
        At least one array of unsigned integers; all have one shape.
    """
    *others, last = columns
    words = cupy.zeros(2, np.uint64)  # the second sum, of bytes behind the last word, stays 0
    if last.size and not others:
        launch(last.dtype, "mark_elements", *Chunk.of(last)[:3], None, words)
    elif last.size:
        hashes = cupy.zeros(last.size, np.uint64)
        for column, sums in zip(columns, (*(None for _ in others), words), strict=True):
            given = column, column.size, layout_in_order(column), hashes, sums
            launch(column.dtype, "mark_elements", *given)
    return PendingFingerprint(start, 0, words)


def ended(all_begun: Sequence[PendingFingerprint]) -> list[int]:
    """Finish fingerprints; the host waits once if they are on one device."""
    words = [each.words for each in all_begun]
    if len({int(each.device.id) for each in words}) == 1:
        with words[0].device:
            sums = (words[0] if len(words) == 1 else cupy.concatenate(words)).get()
    else:
        sums = np.concatenate([each.get() for each in words])
    pairs = sums.reshape(-1, 2).tolist()
    return [each.of(*pair) for each, pair in zip(all_begun, pairs, strict=True)]
