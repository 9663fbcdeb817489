from __future__ import annotations

from dataclasses import dataclass
from typing import Any

N_MULTIPROCESSORS = 2
SHARED_OF_BLOCK = 227 << 10  # bytes that a block can have at most, of an H100
SHARED_OF_MULTIPROCESSOR = 228 << 10
THREADS_OF_MULTIPROCESSOR = 2048
MOST_BLOCKS = 2  # of a multiprocessor at a time; a device has 32


@dataclass(frozen=True)
class Device:
    id: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", int(self.id or 0))
        if self.id:
            from .runtime import CUDARuntimeError

            raise CUDARuntimeError(101)

    def use(self) -> None:
        pass

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def __int__(self) -> int:
        return self.id

    @property
    def attributes(self) -> dict[str, int]:
        return {
            "MultiProcessorCount": N_MULTIPROCESSORS,
            "MaxSharedMemoryPerBlockOptin": SHARED_OF_BLOCK,
        }
