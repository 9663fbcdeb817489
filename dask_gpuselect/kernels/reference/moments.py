"""Exact sums of chunks and of rows: the reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import Array, to_host
from dask_gpuselect.maths.lane_moments import LaneMoments, sums_of_rows
from dask_gpuselect.maths.moments import Moments


def moments(values: Array, near: NDArray[Any]) -> Moments:
    """Exact sums of a chunk and of its squares.

    Parameters
    ----------
    values : array, any shape
    near : ndarray
        Some values of the kind that it holds.

    Returns
    -------
    Moments
    """
    del near
    found = moments_of_rows(np.asarray(to_host(values)).reshape(1, -1))
    n, n_high, n_low = (int(count[0]) for count in (found.n, found.n_high, found.n_low))
    return Moments(n, n_high, n_low, found.total.number(0), found.square.number(0))


def moments_of_rows(rows: Array) -> LaneMoments:
    """Exact sums of each row of a table, and of its squares."""
    rows = np.asarray(to_host(rows))
    is_finite = np.isfinite(rows)
    n, n_high, n_low = (
        np.count_nonzero(mask, axis=1).astype(np.int64)
        for mask in (is_finite, rows == math.inf, rows == -math.inf)
    )
    return LaneMoments(n, n_high, n_low, *sums_of_rows(rows))
