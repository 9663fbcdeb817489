"""Lanes of overlapping windows: each atom is sorted once, and windows merge their few atoms.

An atom is a set of elements that are in the same windows. The elements that a window asks for are
found by merging its atoms from the nearer end. Compiled by Numba.

The 90th percentile of 366 five-day windows takes 0.2 ms in a lane of 10,957 float32; sorting each
window takes 0.6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import kernel, until_compiled
from dask_gpuselect.kernels.cpu import few
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.few import tiles
from dask_gpuselect.kernels.cpu.lanes import lanes
from dask_gpuselect.kernels.cpu.scalars import first_from, is_missing
from dask_gpuselect.maths.atoms import Atoms
from dask_gpuselect.maths.lane_cuts import Lanes, RanksOfLanes, join, moved

# Average numbers of atoms of a window and of elements of an atom. With more, sorting each window by
# vectors is as fast.
MOST_MEMBERS = 8
MOST_ELEMENTS = 64


def is_faster(atoms: Atoms, dtype: np.dtype[Any]) -> bool:
    """Return whether windows of lanes of this dtype are found fastest by atoms."""
    n_atoms = len(atoms.starts) - 1
    is_small = 0 < len(atoms.places) <= MOST_ELEMENTS * n_atoms
    members = len(atoms.members) / max(len(atoms.first_member) - 1, 1)
    return is_small and 1 < members <= MOST_MEMBERS and dtype.kind in "fiu"


def window_lanes(parts: Sequence[NDArray[Any]], atoms: Atoms, ranks: RanksOfLanes) -> Lanes | None:
    """Find the elements of some ranks in every window; see `reference.groups.window_lanes`.

    Scratch: a tile of lanes, and a copy.
    """
    sizes, dtype = atoms.sizes, parts[0].dtype
    if not len(ranks(np.ones(1, np.int64))[0]) or not is_faster(atoms, dtype):
        return None
    is_few = sizes.max() <= few.MOST[dtype.itemsize] and sizes.min() == sizes.max()
    return (_side_by_side if is_few else _merged)(parts, atoms, ranks)


def _side_by_side(parts: Sequence[NDArray[Any]], atoms: Atoms, ranks: RanksOfLanes) -> Lanes:
    """Sort windows of equally few elements as further lanes, some of all windows at a time.

    In lanes of 365 float32, five-day windows take 51 ns each, and 204 if their atoms are merged.
    """
    each = [np.moveaxis(part, -1, 0).reshape(part.shape[-1], -1) for part in parts]
    whole = each[0] if len(each) == 1 else np.concatenate(each)
    (n, n_windows), n_lanes = atoms.table.shape, whole.shape[1]
    most = few.TILE // (n * max(whole.itemsize, 4))
    select, step = few.selector(n, ranks), max(most // n_lanes, 1)
    pieces = []
    for i in range(0, n_windows, step):
        for start in range(0, n_lanes, most):
            table = whole[atoms.table[:, i : i + step], start : start + most]
            pieces.append(moved(select(table.reshape(n, -1)), np.copy))  # not views of the table
    return join(pieces)


def _one_by_one(parts: Sequence[NDArray[Any]], atoms: Atoms, ranks: RanksOfLanes) -> Lanes:
    """Sort one window after the other, by NumPy.

    The time that takes decides when `_merged` is worth its compilation, so it is not the caller who
    does this.
    """
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts, -1)
    return join([lanes([whole[..., window]], ranks) for window in atoms.windows()])


@until_compiled(_one_by_one)
def _merged(parts: Sequence[NDArray[Any]], atoms: Atoms, ranks: RanksOfLanes) -> Lanes:
    sizes = atoms.sizes
    tables = [
        np.ascontiguousarray(each.T)
        for each in ranks(np.maximum(np.arange(int(sizes.max(initial=0)) + 1), 1))
    ]
    n_lanes, dtype = math.prod(parts[0].shape[:-1]), parts[0].dtype
    shape = (len(sizes), n_lanes, tables[0].shape[1])
    lower, upper = np.zeros((2, *shape), dtype)
    n_valid = np.zeros(shape[:2], np.int64)
    given = (atoms.starts, atoms.members, atoms.first_member), (tables[0], tables[1])
    begin = 0
    for rows in tiles(parts):
        some = slice(begin, begin + len(rows))
        ordered = _sorted_atoms(rows, atoms)
        _select(ordered, *given, lower[:, some], upper[:, some], n_valid[:, some])
        begin += len(rows)
    flat = (len(sizes) * n_lanes, shape[2])
    n_missing = sizes[:, None] - n_valid
    return Lanes(lower.reshape(flat), upper.reshape(flat), n_valid.ravel(), n_missing.ravel())


def _sorted_atoms(rows: NDArray[Any], atoms: Atoms) -> NDArray[Any]:
    """Sort the elements of each atom in lanes that are rows, with NaN last, atom by atom.

    Neighbouring atoms of one size are sorted by one call.
    """
    ordered = np.take(rows, atoms.places, axis=1)
    sizes = np.diff(atoms.starts)
    changes = np.flatnonzero(np.diff(sizes)) + 1
    for first, last in zip([0, *changes], [*changes, len(sizes)], strict=True):
        start, stop = atoms.starts[first], atoms.starts[last]
        # This is a view: its rows have one stride.
        ordered[:, start:stop].reshape(len(rows), last - first, -1, copy=False).sort(axis=-1)
    return ordered


@kernel
def _select(
    rows: t.Rows,
    atoms: tuple[t.Places, t.Places, t.Places],
    ranks: tuple[t.IntRows, t.IntRows],
    lower: t.StridedStack,
    upper: t.StridedStack,
    n_valid: t.StridedIntTable,
) -> None:
    """Find the elements at the ranks of every window, in lanes that are rows of sorted atoms.

    A cut through each atom of a window divides its elements into those below and above a rank. Most
    atoms of the next window are the same: their cuts stay. A new atom is cut at the value found in
    the last window. Then single elements move to the other side until the rank is right.
    """
    starts, members, first_member = atoms
    lower_rank, upper_rank = ranks
    n_atoms = starts.size - 1
    stops = np.empty(n_atoms, np.int64)  # end of the valid elements of each atom
    cut = np.empty(n_atoms, np.int64)  # the first element above the cut
    last_window = np.empty(n_atoms, np.int64)  # the last window that used the cut
    for lane in range(rows.shape[0]):
        row = rows[lane]
        for atom in range(n_atoms):
            stop = starts[atom + 1]
            while stop > starts[atom] and is_missing(row[stop - 1]):
                stop -= 1
            stops[atom] = stop
        for q in range(lower_rank.shape[1]):
            last_window[:] = -2
            value = row[0]
            for window in range(first_member.size - 1):
                own = members[first_member[window] : first_member[window + 1]]
                n = np.int64(0)
                below = np.int64(0)
                for atom in own:
                    if last_window[atom] != window - 1:
                        cut[atom] = first_from(row, starts[atom], stops[atom], value)
                    last_window[atom] = window
                    n += stops[atom] - starts[atom]
                    below += cut[atom] - starts[atom]
                n_valid[window, lane] = n
                if n == 0:
                    continue
                rank = lower_rank[n, q]
                while below > rank:
                    best = np.int64(-1)
                    for atom in own:
                        if cut[atom] > starts[atom] and (
                            best < 0 or row[cut[atom] - 1] > row[cut[best] - 1]
                        ):
                            best = atom
                    cut[best] -= 1
                    below -= 1
                # Go on to the element of the lower rank, which is then the first above, and then to
                # the upper one.
                while True:
                    best = np.int64(-1)
                    for atom in own:
                        if cut[atom] < stops[atom] and (
                            best < 0 or row[cut[atom]] < row[cut[best]]
                        ):
                            best = atom
                    value = row[cut[best]]
                    if below == rank:
                        lower[window, lane, q] = value
                    if below == upper_rank[n, q]:
                        upper[window, lane, q] = value
                        break
                    cut[best] += 1
                    below += 1
