"""Exact sums of chunks and of rows: the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import Array, namespace, to_host
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.moments import Moments


def moments(values: Array, near: Any = None, cells: NDArray[np.bool_] | None = None) -> Moments:
    """Sum a chunk and its squares exactly, or the elements in some cells.

    Parameters
    ----------
    values : array, any shape
        Elements.
    near : ndarray, optional
        Some values of the usual size of the elements; they affect only the speed.
    cells : ndarray, optional
        Open cells between these values; see `in_cells`.

    Returns
    -------
    Moments
        Sums of one lane.
    """
    values = np.asarray(to_host(values))
    if cells is not None:
        values = values[in_cells(values, near, cells)]
    return moments_of_rows(values.reshape(1, -1))


def in_cells(values: Array, ends: NDArray[Any], cells: NDArray[np.bool_]) -> Array:
    """Return whether each element lies in one of some open cells, in the shape of the elements.

    Parameters
    ----------
    values : array, any shape
        Elements.
    ends, cells : ndarray
        The ends of the cells and a mask of the cells, as those of `Brackets`; not of the first nor
        of the last cell.
    """
    xp = namespace(values)
    is_some = xp.zeros_like(values, dtype=xp.bool)
    for cell in np.flatnonzero(cells).tolist():
        low, high = ends[cell - 1].item(), ends[cell].item()
        is_some |= (values > low) & (values < high)
    return is_some


def moments_of_runs(values: Array, stops: IntArray, near: Any = None) -> Moments:
    """Sum each of some runs of elements, which follow one another, and its squares exactly.

    `stops` are the places behind the runs; `near` is as for `moments`.
    """
    run = np.repeat(np.arange(len(stops)), np.diff(stops, prepend=0))
    return Moments.of(values, run, len(stops))


def moments_of_rows(rows: Array) -> Moments:
    """Sum each row of a table and its squares exactly."""
    rows = np.asarray(to_host(rows))
    return Moments.of(rows.reshape(-1), np.repeat(np.arange(len(rows)), rows.shape[1]), len(rows))
