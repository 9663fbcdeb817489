"""Arguments as the arrays that are computed with: float64, of NumPy or CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.arrays import is_cupy, namespace

Array = Any  # a NumPy or CuPy array


def namespace_of(*given: Any) -> Any:
    """CuPy if any of these is one of its arrays, else NumPy."""
    return namespace(next(filter(is_cupy, given), np.empty(0)))


def real(xp: Any, values: Any, name: str) -> Array:
    """A copy as float64."""
    array = xp.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be real numbers, not {array.dtype}")
    return array.astype(np.float64)
