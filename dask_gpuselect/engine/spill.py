"""Arrays that are stored on disk, in temporary files without a name."""

from __future__ import annotations

import math
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast
from weakref import WeakValueDictionary, finalize

import numpy as np
from dask import config
from numpy.typing import NDArray

from dask_gpuselect import forks
from dask_gpuselect.arrays import namespace, to_host


@dataclass(frozen=True)
class Spilled:
    """An array in a temporary file.

    When it is pickled, it becomes the array itself. The file's space is freed when everything
    written there is dropped.

    Parameters
    ----------
    file, offset
        The file, and the position of the array in it.
    shape, dtype
        Shape and dtype of the array.
    asarray : callable
        `asarray` of the array's namespace. Dask does not always know that: it loses it where a mask
        selects elements.
    """

    file: SpillFile
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    asarray: Callable[[NDArray[Any]], Any]

    def __getitem__(self, rows: slice) -> Spilled:
        """Return a range of contiguous rows."""
        start, stop, step = rows.indices(self.shape[0])
        assert step == 1
        of_row = math.prod(self.shape[1:]) * self.dtype.itemsize
        shape = (max(stop - start, 0), *self.shape[1:])
        return replace(self, offset=self.offset + start * of_row, shape=shape)

    def read(self) -> NDArray[Any]:
        """Read the array to the host."""
        array = np.empty(self.shape, self.dtype)
        self.read_into(array)
        return array

    def read_into(self, array: NDArray[Any]) -> None:
        """Fill a contiguous array of the same shape and dtype from the disk."""
        self.file.read_runs_into(array, (self.offset,), array.nbytes)

    def runs(self, box: Sequence[slice]) -> tuple[NDArray[np.int64], int]:
        """Return the offsets of the runs of bytes in the file that make up a box, and their length.

        A box has a slice with a start and a stop for each axis.
        """
        sizes = [some.stop - some.start for some in box]
        cut = max((i for i, n in enumerate(self.shape) if sizes[i] < n), default=0)
        starts, step = np.full(1, self.offset, np.int64), self.dtype.itemsize
        for axis in reversed(range(len(self.shape))):
            if axis == cut:
                n_bytes = sizes[axis] * step
                starts = starts + box[axis].start * step
            elif axis < cut:
                along = np.arange(box[axis].start, box[axis].stop) * step
                starts = (along[:, None] + starts).reshape(-1)
            step *= self.shape[axis]
        return starts, n_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return self.asarray, (self.read(),)


class SpillFile:
    """A temporary file without a name, which the system deletes when the process ends.

    Parameters
    ----------
    directory : str
        Directory of the file.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        try:
            self._file = cast(BinaryIO, tempfile.TemporaryFile(dir=directory, buffering=0))  # noqa: SIM115
        except OSError as error:
            raise self._noted(error) from None
        # The lock guards the fields below, and the file's position if reads and writes cannot name
        # theirs.
        self._lock = threading.Lock()
        self._end = 0
        self._gaps: dict[int, int] = {}  # sizes of what was given back, by offset
        self._process = os.getpid()
        # While `__del__` runs, another thread may still find the file by its name.
        finalize(self, self._file.close)

    @property
    def is_empty(self) -> bool:
        """True if nothing is stored in the file."""
        return self._end == 0

    def write(self, array: Any) -> Spilled:
        """Append an array of NumPy or CuPy. Several threads write at the same time."""
        self._check_process()
        host = np.ascontiguousarray(to_host(array))
        data = host.reshape(-1).view(np.uint8).data
        n = len(data)
        offset = self._reserve(n)
        try:
            while data:
                data = data[self._write_some(data, offset + n - len(data)) :]
        except BaseException as error:
            self._give_back(offset, n)
            raise self._noted(error) if isinstance(error, OSError) else error from None
        return Spilled(self, offset, tuple(array.shape), host.dtype, namespace(array).asarray)

    def _reserve(self, n: int) -> int:
        """Reserve a number of bytes of the file; return their offset."""
        with self._lock:
            offset = next((offset for offset, room in self._gaps.items() if room >= n > 0), None)
            if offset is None:
                self._end += n
                return self._end - n
            room = self._gaps.pop(offset)
            if room > n:
                self._gaps[offset + n] = room - n
            return offset

    def _give_back(self, offset: int, n: int) -> None:
        """Give back bytes whose write failed: later writes may need their space.

        The file is cut if they are at its end, which also frees what was written of them.
        """
        with self._lock:
            self._gaps[offset] = n
            for start in sorted(self._gaps, reverse=True):
                if start + self._gaps[start] < self._end:
                    break
                self._end = start
                del self._gaps[start]
            with suppress(OSError):
                self._file.truncate(self._end)

    def _write_some(self, data: memoryview, offset: int) -> int:
        """Write bytes at an offset, or the first of them; return their number."""
        if hasattr(os, "pwrite"):
            return os.pwrite(self._file.fileno(), data, offset)
        with self._lock:  # on Windows
            self._file.seek(offset)
            return self._file.write(data)

    def _read_some(self, data: memoryview, offset: int) -> int:
        """Read bytes from an offset, as many as there is room for or less; return their number."""
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), (data,), offset)
        with self._lock:  # on Windows
            self._file.seek(offset)
            n: int = self._file.readinto(data)  # type: ignore[attr-defined]
            return n

    def _check_process(self) -> None:
        # Parent and child share the file, and the child would write where the parent does.
        if os.getpid() != self._process:
            raise RuntimeError(
                "a temporary file belongs to the process that made it, and this process was forked "
                "from that one: compute again in this process"
            )

    def _noted(self, error: OSError) -> OSError:
        error.add_note(f"parts of the array wait on disk in {self._directory}")
        return error

    def read_runs_into(self, array: NDArray[Any], offsets: Iterable[int], n: int) -> None:
        """Fill a contiguous array with runs of `n` bytes each, from some offsets."""
        self._check_process()
        data = array.reshape(-1).view(np.uint8).data
        starts = range(0, len(data), n) if n else range(0)
        try:
            for start, offset in zip(starts, offsets, strict=False):
                run = data[start : start + n]
                while run:
                    n_read = self._read_some(run, offset)
                    if not n_read:
                        raise OSError(
                            f"a temporary file in {self._directory} is shorter than what was "
                            "written to it: compute again"
                        )
                    run, offset = run[n_read:], offset + n_read
        except OSError as error:
            raise self._noted(error) from None


def directory_of(spill: str | os.PathLike[str] | None) -> str:
    """Return the given directory; without one, that of dask's temporary files."""
    given = spill or config.get("temporary-directory", None) or tempfile.gettempdir()
    return os.fspath(given)


# Files by process, because a fork inherits those of its parent, and by name: there may be many
# pieces, but file descriptors are few.
_files: WeakValueDictionary[tuple[int, str, str], SpillFile] = WeakValueDictionary()
_files_lock = forks.lock()


def spill_file(name: str, directory: str) -> SpillFile:
    """Return the file of that name in this process; it lives as long as anything stored in it."""
    known = (os.getpid(), name, directory)
    with _files_lock:
        file = _files.get(known)
        if file is None:
            file = _files[known] = SpillFile(directory)
        return file
