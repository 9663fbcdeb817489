"""Lazy sources that count their loads, and sources that change between them.

Nothing is held in memory: an element is a hash of its place, made when it is read.
"""

from __future__ import annotations

import math
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from tests.data import hashed

Index = tuple[slice | int, ...]

PIECE = 1 << 15  # elements made at once


class Reading:
    """Like an array on disk, which counts how often its chunks are read. It is pickled without its
    lock."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype, self.ndim = shape, np.dtype(dtype), len(shape)
        self.lock = threading.Lock()
        self.counts: Counter[Any] = Counter()
        self.token = uuid.uuid4().hex

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.Lock())

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # Its own: an expression of an equal array would be the one there is, and read that array.
        return type(self).__name__, self.token


class Source(Reading):
    """Like an array on disk: each element a hash of its index, made when it is read.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype
        Floating point: in [0, 1), scaled for others.
    log : path, optional
        Where loads are noted, a line each, if they happen in other processes.
    wait : float
        Seconds that a load takes at least.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str = "f8",
        *,
        log: Path | None = None,
        wait: float = 0.0,
    ) -> None:
        super().__init__(shape, dtype)
        self.log = log
        self.wait = wait

    def __getitem__(self, index: Index) -> NDArray[Any]:
        self._note(index)
        time.sleep(self.wait)
        return self.values(index)

    def values(self, index: Index) -> NDArray[Any]:
        """The elements at an index, in pieces: making a chunk takes little more than its memory."""
        index = index or (0,)  # a 0-d array has one element
        ranges = [
            range(*part.indices(size)) if isinstance(part, slice) else range(part, part + 1)
            for part, size in zip(index, self.shape or (1,), strict=True)
        ]
        out = np.empty(tuple(map(len, ranges)), self.dtype)
        rows, *others = ranges
        step = max(1, PIECE // max(1, math.prod(map(len, others))))
        for start in range(0, len(rows), step):
            numbers = hashed(self._positions(rows[start : start + step], *others))
            is_float = self.dtype.kind == "f"
            out[start : start + step] = numbers if is_float else numbers * 100
        are_slices = [isinstance(part, slice) for part in index]
        return out.reshape([n for n, keep in zip(out.shape, are_slices, strict=True) if keep])

    def _positions(self, *ranges: range) -> NDArray[np.int64]:
        """Of the elements, in the whole array in C order."""
        positions = np.zeros((), np.int64)
        for places, size in zip(ranges, self.shape or (1,), strict=True):
            axis = np.arange(places.start, places.stop, places.step)
            positions = positions[..., None] * size + axis
        return positions

    def lazy(self, chunks: Any, *, inline: bool = False) -> da.Array:
        meta = np.empty((0,) * self.ndim, self.dtype)  # else dask reads an empty slice to know it
        return da.from_array(self, chunks=chunks, meta=meta, inline_array=inline)

    def whole(self) -> NDArray[Any]:
        """All elements, uncounted."""
        return self.values(tuple(slice(0, n) for n in self.shape))

    @property
    def loads(self) -> dict[str, int]:
        """How often each chunk was read, by the name of its place."""
        if self.log is None:
            return dict(self.counts)
        return dict(Counter(self.log.read_text().split("\n")[:-1])) if self.log.exists() else {}

    def _note(self, index: Index) -> None:
        place = ",".join(f"{i.start}:{i.stop}" if isinstance(i, slice) else f"{i}" for i in index)
        if self.log is None:
            with self.lock:
                self.counts[place] += 1
            return
        # One write to a file opened for appending is not torn apart by other processes' writes.
        file = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{place}\n".encode())
        os.close(file)


def changing(
    change: Callable[[NDArray[np.float64], int], NDArray[np.float64]],
    *,
    directory: Path,
    chunk: int = 3,
    n_chunks: int = 6,
    size: int = 1000,
) -> da.Array:
    """Chunks of `size` elements, of which one chunk is changed on its second load.

    Parameters
    ----------
    change : callable
        From the chunk's elements and the number of the load, 1 or 2, to what is read.
    directory : path
        Where loads are noted, so that any process knows which load it is.
    """

    def read(block: NDArray[np.float64], block_id: tuple[int, ...]) -> NDArray[np.float64]:
        values = hashed(np.arange(size) + size * block_id[0])
        if block_id != (chunk,):
            return values
        mine = directory / f"load-{len(list(directory.glob('load-*'))) + 1}"
        mine.touch()
        return change(values, int(mine.name.removeprefix("load-")))

    blocks = da.zeros(size * n_chunks, chunks=size)
    unknown = ((np.nan,) * n_chunks,)  # as of boolean indexing
    return blocks.map_blocks(read, dtype=np.float64, meta=np.empty(0), chunks=unknown)


def lazily(array: NDArray[Any], chunks: Any) -> da.Array:
    """An array that tasks make."""
    return da.from_array(array, chunks=chunks).map_blocks(np.copy)


def die_once(block: Any, flag: str) -> Any:
    """End the process that is the first to have a chunk."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return block
    os._exit(1)
