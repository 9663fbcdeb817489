"""CUDA kernels on a CPU: a stand-in for CuPy in ``cupy/``, whose kernels g++ compiles.

Deadlocks, misaligned reads and writes beyond shared memory are errors. ``EMULATED_ORDER=backward``
shows races, and ``EMULATED_GUARD=1`` accesses beyond an array.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent


def begin() -> None:
    """From now on `import cupy` finds the stand-in, also in processes that this one starts. An
    ImportError if it cannot be used."""
    if "cupy" in sys.modules:
        raise ImportError("CuPy is imported already")
    sys.path.insert(0, str(HERE))
    others = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *others.split(os.pathsep)]).rstrip(":")
    cupy = importlib.import_module("cupy")
    importlib.import_module("cupy.compiler").compiler()
    # What dask.array does for CuPy when it is imported, which it has been.
    from dask.array.chunk_types import register_chunk_type

    register_chunk_type(cupy.ndarray)
