"""Choice of the kernels for a chunk, by its kind; imported when the first such chunk arrives."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.arrays import is_cupy
from dask_gpuselect.kernels.companions import parts_of, values_of
from dask_gpuselect.kernels.protocols import Backend


def backend_for(chunk: Any) -> Backend:
    """Return the kernels for a chunk, with companions or without, or for `Several`."""
    chunk = values_of(parts_of(chunk)[0])
    if isinstance(chunk, np.ndarray):
        from dask_gpuselect.kernels.cpu import backend as cpu

        return cpu.BACKEND
    if is_cupy(chunk):
        from dask_gpuselect.kernels.cuda import backend as cuda

        return cuda.BACKEND
    from dask_gpuselect.kernels.reference import backend as reference

    return reference.BACKEND
