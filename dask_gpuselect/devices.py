"""CUDA devices: CuPy, imported when it is first needed, and what to do where there is none."""

from __future__ import annotations

import functools
from typing import Any

# Of the CUDA runtime; CuPy gives no names to them.
INSUFFICIENT_DRIVER = 35
NO_DEVICE = 100


def import_cupy() -> Any:
    """The module; an ImportError that says what to install if there is none."""
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise  # CuPy is there, and something that it needs is not
        raise ImportError(
            "this needs CuPy: pip install cupy-cuda13x, "
            "or cupy-cuda12x for a driver that knows no CUDA 13"
        ) from error
    return cupy


@functools.cache  # of successes only: an error is found anew
def check_device() -> None:
    """Raise a RuntimeError that says what to do if this process has no usable CUDA device."""
    runtime = import_cupy().cuda.runtime
    try:
        found = int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        if error.status == INSUFFICIENT_DRIVER:
            raise RuntimeError(_driver_problem(runtime)) from error
        if error.status != NO_DEVICE:
            raise
        found = 0
    if not found:
        raise RuntimeError(
            "no CUDA device can be seen: run where there is a GPU (nvidia-smi lists them), "
            "and see that CUDA_VISIBLE_DEVICES hides none that is wanted"
        )


def _driver_problem(runtime: Any) -> str:
    needed, known = int(runtime.runtimeGetVersion()), int(runtime.driverGetVersion())
    if not known:
        return "there is no NVIDIA driver: run where there is a GPU and its driver"
    return (
        f"the NVIDIA driver knows CUDA {_version(known)}, and CuPy was built for CUDA "
        f"{_version(needed)}: update the driver, or install the CuPy of an older CUDA "
        "(pip install cupy-cuda12x)"
    )


def _version(number: int) -> str:
    """CUDA's 13020 is version 13.2."""
    return f"{number // 1000}.{number % 1000 // 10}"
