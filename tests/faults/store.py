"""A store whose readers fail, stall, die, or find other elements than before."""

from __future__ import annotations

import itertools
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
Way = Callable[[Values], Any]


def fails(values: Values) -> Values:
    raise OSError("the store cannot be reached")


def lacks_memory(values: Values) -> Values:
    raise MemoryError("no memory for what was read")


def stalls(values: Values) -> Values:
    time.sleep(0.1)
    return values


def stalls_for_long(values: Values) -> Values:
    """Longer than what `lab.CONFIG` allows a connection to take."""
    time.sleep(4)
    return values


def dies(values: Values) -> Values:
    os._exit(137)


def hoards(values: Values) -> Values:
    """More than a worker may have, for so long that it is noticed."""
    hoard = np.ones(HOARD // 8)
    time.sleep(2)
    return values + 0 * hoard[0].astype(values.dtype)


HOARD = 500 << 20


def fills(values: Values) -> Values:
    """So much that the worker pauses, until it does; and less than what it is ended for."""
    import dask
    import psutil
    from distributed import Status, get_worker

    worker = get_worker()
    manager = worker.memory_manager
    ends_at = dask.config.get("distributed.worker.memory.terminate")  # by its nanny
    share = (manager.memory_pause_fraction + ends_at) / 2
    size = share * manager.memory_limit - psutil.Process().memory_info().rss
    hoard = np.ones(int(size) // 8)
    for _ in range(100):
        if worker.status == Status.paused:
            return values + 0 * hoard[0].astype(values.dtype)
        time.sleep(0.05)
    raise AssertionError("the worker does not pause")


def turned(values: Values) -> Values:
    """Other elements, as many."""
    return values[::-1] // 2 if values.dtype.kind == "u" else -values


def one_else(values: Values) -> Values:
    changed = values.copy()
    changed.flat[values.size // 3] = values.flat[0] * 0
    return changed


WAYS: dict[str, Way] = {
    "fails": fails,
    "lacks memory": lacks_memory,
    "stalls": stalls,
    "stalls for long": stalls_for_long,
    "dies": dies,
    "hoards": hoards,
    "fills": fills,
    "other elements": turned,
    "another element": one_else,
    "shorter": lambda values: values[:-1],
    "longer": lambda values: np.concatenate([values, values[:2]]),
    "empty": lambda values: values[:0],
    "another dtype": lambda values: values.astype("U5"),
}


@dataclass
class Store:
    """Like an array on disk, of which one chunk is not always what it was.

    Parameters
    ----------
    values : ndarray
    chunks : tuple of tuples of int
    folder : path
        Where loads are noted, by a file for each: so processes need not talk to each other.
    way : str
        What is done to the chunk; "" for nothing.
    chunk : int
        Along the first axis; along the others the first one.
    load : int
        At which load of it, from 1 on.
    is_again : bool
        Whether later loads are like that, too.
    """

    values: Values
    chunks: tuple[tuple[int, ...], ...]
    folder: Path
    way: str = ""
    chunk: int = 0
    load: int = 1
    is_again: bool = False
    name: str = field(default_factory=lambda: f"store-{uuid.uuid4().hex}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        return self.values.ndim

    @property
    def index(self) -> tuple[slice, ...]:
        """Of the chunk."""
        start = sum(self.chunks[0][: self.chunk])
        first = slice(start, start + self.chunks[0][self.chunk])
        return first, *(slice(0, sizes[0]) for sizes in self.chunks[1:])

    def lazy(self) -> da.Array:
        meta = np.empty((0,) * self.ndim, self.dtype)
        return da.from_array(self, chunks=self.chunks, meta=meta, name=self.name)

    def __getitem__(self, index: tuple[slice, ...]) -> Values:
        values = self.values[index].copy()
        mine = self.index
        if not self.way or [i.start for i in index] != [i.start for i in mine]:
            return values
        load = self._number()
        if load != self.load and not (self.is_again and load > self.load):
            return values
        (self.folder / "struck").touch()
        return WAYS[self.way](values)

    def _number(self) -> int:
        """Of this load of the chunk."""
        for k in itertools.count(1):
            try:
                os.close(os.open(self.folder / f"load-{k}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return k
        raise AssertionError

    @property
    def is_struck(self) -> bool:
        return (self.folder / "struck").exists()

    def changed(self) -> Values | None:
        """What the array is with the chunk changed, if it is an array of the same shape then."""
        values = self.values.copy()
        if self.way in ("other elements", "another element"):
            values[self.index] = WAYS[self.way](values[self.index])
            return values
        return None

    def unchecked(self) -> Values | None:
        """What dask reads of one dimension, if the chunk is of another size."""
        if self.way in ("shorter", "longer", "empty"):
            (index,) = self.index
            parts = self.values[: index.start], self.values[index], self.values[index.stop :]
            return np.concatenate([parts[0], WAYS[self.way](parts[1]), parts[2]])
        return None
