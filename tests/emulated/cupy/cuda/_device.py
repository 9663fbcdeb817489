from __future__ import annotations

from typing import Any

N_MULTIPROCESSORS = 2
SHARED_OF_BLOCK = 227 << 10  # bytes that a block can have at most, of an H100
SHARED_OF_MULTIPROCESSOR = 228 << 10
THREADS_OF_MULTIPROCESSOR = 2048
MOST_BLOCKS = 2  # of a multiprocessor at a time; a device has 32


class Device:
    def __init__(self, device: Any = None) -> None:
        self.id = int(device or 0)
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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    @property
    def attributes(self) -> dict[str, int]:
        return {
            "MultiProcessorCount": N_MULTIPROCESSORS,
            "MaxSharedMemoryPerBlockOptin": SHARED_OF_BLOCK,
        }
