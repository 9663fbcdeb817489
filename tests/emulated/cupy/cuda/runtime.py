from __future__ import annotations

from typing import Any

from ._device import N_MULTIPROCESSORS, SHARED_OF_BLOCK

cudaDevAttrMultiProcessorCount = 16
cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
ATTRIBUTES = {
    cudaDevAttrMultiProcessorCount: N_MULTIPROCESSORS,
    cudaDevAttrMaxSharedMemoryPerBlockOptin: SHARED_OF_BLOCK,
}
streamLegacy, streamPerThread = 1, 2
memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice = 1, 2, 3
MEMORY = 80 << 30


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"CUDA error {status}")


def getDeviceCount() -> int:
    return 1


def getDevice() -> int:
    return 0


def deviceGetAttribute(attribute: int, device: int) -> int:
    return ATTRIBUTES[attribute]


def getDeviceProperties(device: int) -> dict[str, Any]:
    return {"name": b"a CPU", "totalGlobalMem": MEMORY, "multiProcessorCount": N_MULTIPROCESSORS}


def deviceSynchronize() -> None:
    pass


def runtimeGetVersion() -> int:
    return 13000


driverGetVersion = runtimeGetVersion
