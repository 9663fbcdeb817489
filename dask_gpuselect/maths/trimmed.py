"""Means of lanes without their least and largest elements, from sums of two floats or more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_gpuselect.arrays import Array
from dask_gpuselect.maths.cuts import Arrays
from dask_gpuselect.maths.moments import moved_from_ties


@dataclass(frozen=True, slots=True, eq=False)
class TrimmedLanes(Arrays):
    """Means that kernels have rounded to float64, and what tells how to round them again.

    The arrays are on the host or on a device.

    Parameters
    ----------
    means : array of float64, shape (n_lanes,)
        Means, each rounded once if `is_sure`.
    rest : array of float64, shape (n_lanes,)
        A number with the sign of what the rounding has cut off.
    is_sure : array of bool, shape (n_lanes,)
        False where more digits are needed.
    n_valid, n_left_out : array of int64, shape (n_lanes,)
        Number of elements that are neither NaN nor masked, and of masked ones.
    """

    means: Array
    rest: Array
    is_sure: Array
    n_valid: Array
    n_left_out: Array

    def rounded(self, dtype: np.dtype[Any]) -> Array:
        """Return the means in a dtype, each rounded once."""
        is_narrow = dtype.itemsize < 8
        means = moved_from_ties(self.means, self.rest)[0] if is_narrow else self.means
        with np.errstate(over="ignore", under="ignore"):
            return means.astype(dtype)
