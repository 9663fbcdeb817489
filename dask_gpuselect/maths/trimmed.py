"""Means of lanes without their least and largest elements, from sums of two floats or more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray
from dask_gpuselect.maths.moments import moved_from_ties


@dataclass(frozen=True, slots=True, eq=False)
class TrimmedLanes(Arrays):
    """Means that kernels have rounded to float64, and what tells how to round them again.

    Parameters
    ----------
    means : ndarray of float64, shape (n_lanes,)
        Means, each rounded once if `is_sure`.
    rest : ndarray of float64, shape (n_lanes,)
        A number with the sign of what the rounding has cut off.
    is_sure : ndarray of bool, shape (n_lanes,)
        False where more digits are needed.
    n_valid, n_left_out : ndarray of int64, shape (n_lanes,)
        Number of elements that are neither NaN nor masked, and of masked ones.
    """

    means: FloatArray
    rest: FloatArray
    is_sure: NDArray[np.bool_]
    n_valid: IntArray
    n_left_out: IntArray

    def rounded(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the means in a dtype, each rounded once."""
        is_narrow = dtype.itemsize < 8
        means = moved_from_ties(self.means, self.rest)[0] if is_narrow else self.means
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(means.astype(dtype))
