"""Exact sums of chunks and of rows: the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import Array, to_host
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
        Of one lane.
    """
    del near
    return moments_of_rows(np.asarray(to_host(values)).reshape(1, -1))


def moments_of_rows(rows: Array) -> Moments:
    """Exact sums of each row of a table, and of its squares."""
    rows = np.asarray(to_host(rows))
    return Moments.of(rows.reshape(-1), np.repeat(np.arange(len(rows)), rows.shape[1]), len(rows))
