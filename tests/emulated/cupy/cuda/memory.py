"""Memory of the device, which is the host's; pools count it and keep none of it."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

UNIT = 512  # bytes, of which sizes are multiples
GUARDED = bool(os.environ.get("EMULATED_GUARD"))
POISON = 0xDB  # what new memory has, as on a device: anything


class OutOfMemoryError(MemoryError):
    def __init__(self, size: int, total: int, limit: int) -> None:
        super().__init__(
            f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes, "
            f"limit set to: {limit:,} bytes)."
        )

    def __reduce__(self) -> Any:
        return MemoryError, self.args


class Bytes(np.ndarray):  # type: ignore[type-arg]
    """All bytes of some memory; what arrays are views of."""

    memory: Memory


class Memory:
    """What is given back when nobody needs its bytes any more."""

    def __init__(self, ptr: int, size: int, pool: MemoryPool) -> None:
        self.ptr, self.size, self.pool = ptr, size, pool

    def __del__(self) -> None:
        self.pool.give_back(self.size)


def _aligned(size: int) -> Bytes:
    all_bytes = bytearray(size + UNIT)
    start = -np.frombuffer(all_bytes, np.uint8).ctypes.data % UNIT
    return Bytes(size, np.uint8, all_bytes, start)


def _guarded(size: int) -> Bytes:
    """Memory that ends where a page ends behind which nothing may be read or written."""
    page = mmap.PAGESIZE
    n_pages = -(-size // page) + 1
    pages = mmap.mmap(-1, n_pages * page)
    last = np.frombuffer(pages, np.uint8).ctypes.data + (n_pages - 1) * page
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(last), page, 0)
    # Vectors of 16 bytes have to be aligned.
    start = (n_pages - 1) * page - (size + 15) // 16 * 16
    return Bytes(size, np.uint8, pages, start)


class MemoryPointer:
    def __init__(self, all_bytes: Bytes, offset: int) -> None:
        self.bytes, self.offset = all_bytes, offset
        self.mem = all_bytes.memory
        self.ptr = self.mem.ptr + offset

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.bytes, self.offset + offset)

    def _check(self, size: int) -> None:
        assert 0 <= self.offset <= self.offset + size <= self.mem.size, "behind its memory"

    def copy_from_host_async(self, source: Any, size: int, stream: Any = None) -> None:
        self._check(size)
        ctypes.memmove(self.ptr, getattr(source, "value", source), size)

    copy_from_host = copy_from_host_async

    def copy_to_host_async(self, target: Any, size: int, stream: Any = None) -> None:
        self._check(size)
        ctypes.memmove(getattr(target, "value", target), self.ptr, size)

    copy_to_host = copy_to_host_async

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        self._check(size)
        ctypes.memset(self.ptr, value, size)

    memset = memset_async


class MemoryPool:
    def __init__(self, allocator: Any = None) -> None:
        self._used, self._limit = 0, 0
        self._lock = threading.RLock()  # memory may be given back while some is taken

    def malloc(self, size: int) -> MemoryPointer:
        rounded = -(-size // UNIT) * UNIT
        with self._lock:
            if self._limit and self._used + rounded > self._limit:
                raise OutOfMemoryError(rounded, self._used, self._limit)
            self._used += rounded
        made = _guarded(size) if GUARDED else _aligned(rounded)
        made[:] = POISON
        made.memory = Memory(made.ctypes.data, rounded, self)
        return MemoryPointer(made, 0)

    def give_back(self, size: int) -> None:
        with self._lock:
            self._used -= size

    def free_all_blocks(self, stream: Any = None) -> None:
        pass

    def used_bytes(self) -> int:
        return self._used

    def total_bytes(self) -> int:
        return self._used

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self._limit = size or 0

    def get_limit(self) -> int:
        return self._limit


_default_pool = MemoryPool()
_of_all: Callable[[int], MemoryPointer] = _default_pool.malloc
_of_thread = threading.local()


def get_default_memory_pool() -> MemoryPool:
    return _default_pool


def alloc(size: int) -> MemoryPointer:
    return (getattr(_of_thread, "allocate", None) or _of_all)(size)


def set_allocator(allocator: Any = None) -> None:
    global _of_all
    _of_all = allocator or _default_pool.malloc


@contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    before = getattr(_of_thread, "allocate", None)
    _of_thread.allocate = allocator or _default_pool.malloc
    try:
        yield
    finally:
        _of_thread.allocate = before


# --- Pinned memory --------------------------------------------------------------------------------


class PinnedMemoryPointer(np.ndarray):  # type: ignore[type-arg]
    """Bytes of the host, as a buffer and by their address."""

    @property
    def ptr(self) -> int:
        return int(self.ctypes.data)


class PinnedMemoryPool:
    def malloc(self, size: int) -> PinnedMemoryPointer:
        return _aligned(size).view(PinnedMemoryPointer)  # type: ignore[no-any-return]

    def free_all_blocks(self) -> None:
        pass


_pinned_pool = PinnedMemoryPool()


def get_default_pinned_memory_pool() -> PinnedMemoryPool:
    return _pinned_pool


def alloc_pinned_memory(size: int) -> Any:
    return _pinned_pool.malloc(size)
