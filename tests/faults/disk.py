"""A disk that fills up, cannot be written or read, or loses what was written; a process that is
killed while it writes."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from dask_gpuselect.engine import spill
from tests.faults.faults import ERRNO

FILLS_UP = ("full disk", "killed while writing")
"""Faults at a byte that is written."""


class Disk:
    """The disk below the files of `engine.spill`, in this process.

    Parameters
    ----------
    fault : str
    moment : float
        After which share of `size`.
    size : int
        Bytes that may be written about.
    """

    def __init__(self, fault: str, moment: float, size: int) -> None:
        self.fault, self.moment = fault, moment
        self.room = int(moment * size) if fault in FILLS_UP else 1 << 60
        self.reads = int(moment * 20)
        self.opens = int(moment * 2)
        self.is_struck = False
        self.lock = threading.Lock()

    def open(self, **how: Any) -> Any:
        with self.lock:
            self.opens -= 1
            if self.fault in ("read-only folder", "no descriptors") and self.opens < 0:
                raise self.error()
        return File(self, tempfile.TemporaryFile(**how))  # noqa: SIM115

    def error(self) -> OSError:
        self.is_struck = True
        if self.fault == "killed while writing":
            os.kill(os.getpid(), signal.SIGKILL)
        number = ERRNO[self.fault]
        return OSError(number, os.strerror(number))

    def fail_in_time(self, descriptor: int) -> None:
        """Fail at a read, or lose what was written, if it is time."""
        fails = self.fault in ("failing reads of the disk", "truncated file")
        if fails and self.is_time_to_fail():
            if self.fault == "failing reads of the disk":
                raise self.error()
            self.is_struck = True
            os.ftruncate(descriptor, 0)

    def pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        return os.pwrite(descriptor, data[: self.room_for(len(data))], offset)

    def room_for(self, n: int) -> int:
        """How many of some bytes the disk takes: fewer than it is given, if it is nearly full."""
        with self.lock:
            taken = min(n, self.room)
            if n and not taken:
                raise self.error()
            self.room -= taken
        return taken

    def preadv(self, descriptor: int, buffers: Any, offset: int) -> int:
        self.fail_in_time(descriptor)
        return os.preadv(descriptor, buffers, offset)

    def is_time_to_fail(self) -> bool:
        """Whether a read is one that fails."""
        with self.lock:
            self.reads -= 1
            return self.reads < 0


class File:
    """A file of that disk."""

    def __init__(self, disk: Disk, file: Any) -> None:
        self.disk, self.file = disk, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: Any) -> int:
        return int(self.file.write(data[: self.disk.room_for(len(data))]))

    def readinto(self, data: Any) -> int:
        self.disk.fail_in_time(self.file.fileno())
        return int(self.file.readinto(data))


@contextmanager
def failing(disk: Disk) -> Iterator[None]:
    """Meanwhile files that wait are on that disk."""
    before = spill.tempfile, spill.os
    own = {"preadv": disk.preadv, "pwrite": disk.pwrite}
    spill.os = SimpleNamespace(**{**vars(os), **own})  # type: ignore[assignment]
    spill.tempfile = SimpleNamespace(TemporaryFile=disk.open, gettempdir=tempfile.gettempdir)  # type: ignore[assignment]
    try:
        yield
    finally:
        spill.tempfile, spill.os = before
