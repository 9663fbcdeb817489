"""Means of lanes without their least and largest elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import Array
from dask_gpuselect.maths.cuts import Arrays, FloatArray
from dask_gpuselect.maths.moments import moved_from_ties


@dataclass(frozen=True, slots=True, eq=False)
class TrimmedLanes(Arrays):
    """Means that kernels have found, on the host or on a device.

    Parameters
    ----------
    means : array, shape (n_lanes,)
        Means in the dtype of the answer, each rounded once if `is_sure`.
    is_sure : array of bool, shape (n_lanes,)
        False where more digits are needed, or nothing is valid.
    n_valid, n_left_out : array of int64, shape (n_lanes,)
        Number of elements that are neither NaN nor masked, and of masked ones.
    """

    means: Array
    is_sure: Array
    n_valid: Array
    n_left_out: Array


def narrowed(means: FloatArray, rest: FloatArray, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Round float64 means to a dtype, as if once; a rest has the sign of what is cut off."""
    if dtype.itemsize < 8:
        means, _ = moved_from_ties(means, rest)
    with np.errstate(over="ignore", under="ignore"):
        return means.astype(dtype)


def end_of(cuts: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Compute the mean where both cuts are equal or one is infinite: NaN of two infinities."""
    low, high = cuts.astype(dtype)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(low == high, low, low + high))
