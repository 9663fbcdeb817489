"""Facts for a bug report: the machine, its packages and the settings."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from dask.system import CPU_COUNT

from dask_gpuselect.devices import check_device, import_cupy
from dask_gpuselect.engine.settings import all_values

__all__ = ["show_versions"]

# As pip names them. CuPy has a package for each CUDA.
PACKAGES = (
    "dask-gpuselect",
    "numpy",
    "dask",
    "distributed",
    "numba",
    "cupy",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "dask-cuda",
    "dask-array",
    "pandas",
    "pyarrow",
    "xarray",
    "zarr",
    "scipy",
    "scikit-learn",
    "matplotlib",
)


def show_versions() -> None:
    """Print facts for a bug report: Python, the system, packages and settings.

    ``python -m dask_gpuselect`` prints the same.

    Notes
    -----
    Only CuPy is imported, if it is installed, to ask for the CUDA devices. The settings are those
    of ``dask_gpuselect`` in dask's config, where a directory may be named.

    Examples
    --------
    >>> import dask_gpuselect
    >>> dask_gpuselect.show_versions()  # doctest: +SKIP
    Python: 3.12.11 (CPython)
    system: Linux-6.8.0-x86_64
    CPUs: 16
    CUDA devices: none: this needs CuPy: pip install cupy-cuda13x, ...
    dask-gpuselect: 1.0.0rc1
    numpy: 2.3.4
    ...
    """
    for name, fact in _facts():
        print(f"{name}: {fact}")


def _facts() -> Iterator[tuple[str, object]]:
    """Yield each fact with its name."""
    yield "Python", f"{platform.python_version()} ({platform.python_implementation()})"
    yield "system", platform.platform()
    yield "CPUs", CPU_COUNT
    yield "CUDA devices", _devices()
    for name in PACKAGES:
        if (installed := _version(name)) is not None:
            yield name, installed
    yield from all_values().items()


def _version(name: str) -> str | None:
    """Return the version of a package without importing it; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _devices() -> str:
    """Return the names of the CUDA devices, or why there are none."""
    try:
        check_device()
    except (ImportError, RuntimeError) as error:
        return f"none: {error}"
    runtime = import_cupy().cuda.runtime
    numbers = range(runtime.getDeviceCount())
    return ", ".join(runtime.getDeviceProperties(n)["name"].decode() for n in numbers)
