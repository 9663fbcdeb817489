"""The device: one, whose blocks have what those of an H100 have, and few of them at a time."""

# ruff: noqa: F401

from __future__ import annotations

from . import driver, memory, runtime
from ._device import Device
from .memory import (
    MemoryPointer,
    MemoryPool,
    PinnedMemoryPool,
    alloc,
    alloc_pinned_memory,
    set_allocator,
    using_allocator,
)
from .stream import Event, Stream, get_current_stream, get_elapsed_time


def is_available() -> bool:
    return True
