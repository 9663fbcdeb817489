"""Lanes of overlapping windows: windows of one size are further lanes, some at a time.

The 90th percentile of 365 five-day windows takes 72 ns a window of 3 years of float32, 240 of 10
years and 600 of 30 years. One window after the other takes 790, 720 and 950 with 200 lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.cpu import few
from dask_gpuselect.kernels.cpu.lanes import lanes
from dask_gpuselect.maths.atoms import Atoms
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes, join, moved

# Average numbers of atoms of a window and of elements of an atom. With more, one window after the
# other is as fast.
MOST_MEMBERS = 8
MOST_ELEMENTS = 64


def is_faster(atoms: Atoms, dtype: np.dtype[Any]) -> bool:
    """Return whether windows of lanes of this dtype are found fastest together."""
    n_atoms = len(atoms.starts) - 1
    is_small = 0 < len(atoms.places) <= MOST_ELEMENTS * n_atoms
    members = len(atoms.members) / max(len(atoms.first_member) - 1, 1)
    return is_small and 1 < members <= MOST_MEMBERS and dtype.kind in "fiu"


def window_lanes(parts: Sequence[NDArray[Any]], atoms: Atoms, ranks: RanksOfLanes) -> Lanes | None:
    """Find the elements of some ranks in every window; see `reference.groups.window_lanes`.

    Scratch: a tile of lanes, and a copy.
    """
    if not len(ranks(np.ones(1, np.int64))[0]) or not is_faster(atoms, parts[0].dtype):
        return None
    each = [np.moveaxis(part, -1, 0).reshape(part.shape[-1], -1) for part in parts]
    whole = each[0] if len(each) == 1 else np.concatenate(each)
    order, pieces = [], []
    for own, places in atoms.by_size:
        order.append(own)
        pieces += _of_one_size(whole, places, ranks)
    found, n_lanes = join(pieces), whole.shape[1]
    if len(order) == 1:
        return found
    back = np.argsort(np.concatenate(order))[:, None] * n_lanes + np.arange(n_lanes)
    return moved(found, lambda array: array.take(back.reshape(-1), axis=0))


def _of_one_size(whole: NDArray[Any], places: IntArray, ranks: RanksOfLanes) -> list[Lanes]:
    """Find the elements of some ranks in windows of equally many elements, ``(n, n_windows)``."""
    (n, n_windows), n_lanes = places.shape, whole.shape[1]
    is_few = 0 < n <= few.MOST[whole.itemsize]
    tile = few.TILE if is_few else few.WHOLE_TILE // 4
    most = max(tile // max(n * whole.itemsize, 4), 1)
    step = max(most // max(n_lanes, 1), 1)
    network = few.selector(n, ranks) if is_few else None
    pieces = []
    for i in range(0, n_windows, step):
        for start in range(0, n_lanes, most):
            table = whole[places[:, i : i + step], start : start + most]
            table = table.reshape(n, table.shape[1] * table.shape[2])
            if network is None:
                pieces.append(lanes([table.T], ranks))
            else:
                pieces.append(moved(network(table), np.copy))  # not views of the table
    return pieces
