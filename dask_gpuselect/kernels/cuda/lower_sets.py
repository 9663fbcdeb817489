"""Isotonic regression of CuPy arrays by parallel minimum lower sets: the host side of
``lower_sets.cu``."""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.cuda.launch import advised, launch
from dask_gpuselect.kernels.cuda.source import SETS_THREADS
from dask_gpuselect.kernels.lower_sets import Sums, running_maximum

Array = Any  # a CuPy array

FLOAT64 = np.dtype(np.float64)
INFINITE = int(np.array(math.inf).view(np.uint64)) | 1 << 63  # as `ordered` has it


@advised
def lower_sets(y: Array, weights: Array | None = None) -> Array:
    """The isotonic regression of y; see `kernels.lower_sets.lower_sets`.

    Scratch: sixteen arrays like y.
    """
    if y.size == 0:
        return y
    sums = Sums.of(y, weights)
    return sums.in_units(running_maximum(_smallest_averages(sums, y.size)))


def _smallest_averages(sums: Sums, n: int) -> Array:
    keys = cupy.full(n, np.uint64(INFINITE))
    known = [*sums.total, *(sums.weight or ())]
    slacks = [np.float64(_left_out(high)) for high in known[::2]]
    name = "sets_smallest" if sums.weight is None else "sets_weighted"
    launch(FLOAT64, name, SETS_THREADS, (*known, np.int64(n), *slacks, keys))
    launch(FLOAT64, "sets_numbers", SETS_THREADS, (keys, np.int64(n)))
    return keys.view(np.float64)


def _left_out(high: Array) -> float:
    """More than the low parts of two sums, and their difference's rounding error."""
    return 8 * 2.0**-53 * float(abs(high).max())
