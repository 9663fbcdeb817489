"""CUDA devices and CuPy, imported when it is first needed, and errors without them."""

from __future__ import annotations

import functools
from typing import Any

# Error codes of the CUDA runtime, for which CuPy has no names.
INSUFFICIENT_DRIVER = 35
NO_DEVICE = 100


def import_cupy() -> Any:
    """Import CuPy, or raise an ImportError that says what to install."""
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise  # CuPy is there, and something that it needs is not
        raise ImportError(
            "this needs CuPy: pip install cupy-cuda13x, "
            "or cupy-cuda12x if the driver does not support CUDA 13"
        ) from error
    return cupy


@functools.cache  # after an error it is called again
def check_device() -> None:
    """Raise a RuntimeError that says what to do if this process has no usable CUDA device."""
    runtime = import_cupy().cuda.runtime
    try:
        n_devices = int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        if error.status == INSUFFICIENT_DRIVER:
            raise RuntimeError(_driver_problem(runtime)) from error
        if error.status != NO_DEVICE:
            raise
        n_devices = 0
    if not n_devices:
        raise RuntimeError(
            "no CUDA device is visible: run on a machine with a GPU (nvidia-smi lists them), and "
            "check that CUDA_VISIBLE_DEVICES does not hide it"
        )


def memory_bytes() -> int:
    """Return the bytes of device memory that this process may use; 0 without a usable device."""
    try:
        check_device()
    except (ImportError, RuntimeError):
        return 0
    cupy = import_cupy()
    total = _total_bytes(cupy.cuda.runtime.getDevice())
    return min(cupy.get_default_memory_pool().get_limit() or total, total)


@functools.cache
def _total_bytes(device: int) -> int:
    """Return the bytes of memory of a device."""
    return int(import_cupy().cuda.runtime.getDeviceProperties(device)["totalGlobalMem"])


def _driver_problem(runtime: Any) -> str:
    """Return the error for a driver that is missing or too old."""
    needed, known = int(runtime.runtimeGetVersion()), int(runtime.driverGetVersion())
    if not known:
        return "there is no NVIDIA driver: run on a machine with a GPU and its driver"
    return (
        f"the NVIDIA driver supports CUDA {_version(known)}, and CuPy was built for CUDA "
        f"{_version(needed)}: update the driver, or install the CuPy of an older CUDA "
        "(pip install cupy-cuda12x)"
    )


def _version(number: int) -> str:
    """Return CUDA's version number as text: 13020 is 13.2."""
    return f"{number // 1000}.{number % 1000 // 10}"
