"""Distances of the elements of sorted lanes from a centre, compiled by Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import kernel_of
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes, ranks_of_each
from dask_gpuselect.maths.sorted_lanes import SortedLanes


def pick_nearest(lanes: SortedLanes, centres: NDArray[Any], ranks: RanksOfLanes) -> Lanes:
    """Find the distances of some ranks from the centre of every lane; any if that is not finite.

    Their dtype is that of the centres, float32 or float64. The kernel has to be compiled.
    """
    rows = np.ascontiguousarray(lanes.values, centres.dtype)
    wanted = np.stack(ranks_of_each(lanes.n_valid, ranks))
    lower, upper = pair = np.zeros(wanted.shape, rows.dtype)
    _pick_nearest(rows, lanes.n_valid, centres, wanted, pair)
    return Lanes(lower, upper, lanes.n_valid, lanes.n_missing)


@kernel_of("f8 f4")
def _pick_nearest(
    rows: t.Rows, n_valid: t.StridedInts, centres: t.Values, wanted: t.IntStack, pair: t.Stack
) -> None:
    """Find the distances of two ranks for each answer.

    The nearest elements are neighbours in a sorted row. A search finds the first of them: of the
    element before it and the last of them, the former is farther away.
    """
    for i in range(rows.shape[0]):
        row, centre = rows[i], centres[i]
        if n_valid[i] == 0 or not np.isfinite(centre):
            continue
        for q in range(wanted.shape[2]):
            for end in range(2):
                rank = wanted[end, i, q]
                if end and rank == wanted[0, i, q]:
                    pair[1, i, q] = pair[0, i, q]
                    continue
                first, stop = np.int64(0), n_valid[i] - 1 - rank
                while first < stop:
                    middle = (first + stop) // 2
                    is_near = centre - row[middle] <= row[middle + rank + 1] - centre
                    first = first if is_near else middle + 1
                    stop = middle if is_near else stop
                pair[end, i, q] = max(abs(row[first] - centre), abs(row[first + rank] - centre))
