"""Load 1: counts and sums of the cells between pivots. The host side of ``cells.cu``."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.cpu import cells as cpu
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.buckets import Cells, assemble, totals_dtype
from dask_gpuselect.kernels.cuda.chunk import (
    FEW,
    Chunk,
    Elements,
    as_selected,
    compressed,
    masked,
    on_host,
)
from dask_gpuselect.kernels.cuda.launch import Array, launch, places_in, sizes_of
from dask_gpuselect.kernels.cuda.spans import tally_on_device
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.kernels.reference.selection import heavy_cells
from dask_gpuselect.maths.cuts import Brackets, Cuts

MOST_PIVOTS = 1024  # cells are not promised to hold less than 1 / MOST_PIVOTS of a chunk


def cuts(values: Elements, n_pivots: int) -> Cuts:
    """Measure the cuts of a chunk at sampled pivots; see `reference.selection.cuts`.

    Parameters
    ----------
    values : cupy.ndarray, or Accompanied by a mask
        Elements of any shape and strides, of bool, integers, float16, float32 or float64.
    n_pivots : int
        Approximate number of pivots to choose; at most the number of buckets: 8,192 for elements of
        4 bytes and 4,096 for 8, with the shared memory of compute capability 9.0.

    Notes
    -----
    Reads the chunk once. Scratch on the device: 0.8 MB, and the elements of heavy cells where the
    sample's buckets do not separate the data (two clusters within one binade, each narrower than a
    4,096th of it).
    """
    if values.size <= FEW:
        return cpu.cuts(on_host(values), n_pivots)
    cells = _cells(values, n_pivots, None)
    if cells is None:  # the sample spans hundreds of binades
        if values.dtype.itemsize < 8:  # CuPy flushes these to zero if they are subnormal
            return cpu.cuts(on_host(values), n_pivots)
        return reference.cuts(as_selected(compressed(values).ravel()), n_pivots)
    cells.distance[:1] = np.nan  # the first cell has no lower end: unknown
    m = len(cells.pivots)
    return Cuts.of_chunk(
        cells.pivots,
        cells.below,
        cells.upto,
        cells.distance[:m],
        cells.n_valid,
        cells.n_missing,
        slack=cells.slack[:m],
    )


def _cells(values: Elements, n_pivots: int, above: Any) -> Cells | None:
    """Find the cells of the elements; all of these are below `above` if that is not None.

    None if the elements spread over more slots than buckets can serve.
    """
    sheet = _classify(values, n_pivots)
    if sheet is None:
        return None
    return _split_heavy(assemble(sheet, values.dtype, above), values, n_pivots, above)


def _classify(values: Elements, n_pivots: int) -> Any:
    """Run the kernels of ``cells.cu``; return the sheet, of `totals_dtype`, on the host.

    None if the elements spread over too many slots.
    """
    dtype = np.dtype(values.dtype)
    sizes = sizes_of(dtype, cupy.cuda.Device().id)
    chunk = Chunk.of(values)
    windows = cupy.empty(source.n_slots(dtype), np.uint64)
    pivots = cupy.empty(sizes.buckets, f"u{source.key_size(dtype)}")
    # All that goes back to the host is in one piece of memory: one copy, and one wait.
    layout = totals_dtype(sizes.buckets)
    device_sheet = cupy.zeros(layout.itemsize, np.uint8)
    at = places_in(device_sheet, layout)

    # About a third of the buckets have no pivot of their own, or lie beyond the data in their slot.
    aim = min(sizes.buckets, n_pivots + n_pivots // 2)
    shared = source.choose_memory(dtype, sizes)
    places = (windows, pivots, at["buckets"], at["n_buckets"])
    more = masked(values)
    launch(dtype, "choose", *chunk, aim, *places, shared=shared, blocks=1, defined=more)
    shared = source.classify_memory(dtype, sizes)
    places = (windows, pivots, at["n_buckets"], at["counts"])
    launch(dtype, "classify", *chunk, *places, shared=shared, defined=more)
    sheet = device_sheet.get().view(layout)[0]
    return sheet if sheet["n_buckets"] else None


def _split_heavy(cells: Cells, values: Elements, n_pivots: int, above: Any) -> Cells:
    """Divide the cells that hold more than `HEAVY` times their share."""
    share = max(cells.n_valid // min(n_pivots, MOST_PIVOTS), 1)
    heavy, inside, before = heavy_cells(cells.below, cells.upto, cells.n_valid, share)
    if len(heavy) == 0:
        return cells
    distance, slack = cells.distance.copy(), cells.slack.copy()
    parts = [cells]
    ends = np.append(cells.pivots, cells.pivots[:0] if above is None else above)
    for j in heavy:
        gathered = _gather_cell(cells.pivots, int(j), values, int(inside[j]))
        within = _cells_of_gathered(gathered, -(-int(inside[j]) // share) + 1, ends[j : j + 1])
        parts.append(within._replace(below=within.below + before[j], upto=within.upto + before[j]))
        # The cell now ends at the last of its own pivots; the rest of it ends where the cell did.
        distance[j], slack[j] = within.distance[-1], within.slack[-1]
    parts[0] = cells._replace(distance=distance, slack=slack)
    return _with_split(parts)


def _gather_cell(pivots: NDArray[Any], j: int, values: Elements, size: int) -> Array:
    """Gather the elements of open cell j between the pivots, on the device."""
    ends = pivots[max(j - 1, 0) : j + 1]
    wanted = np.zeros(len(ends) + 1, np.bool_)
    wanted[1 if j else 0] = True
    tally = tally_on_device(values, Brackets(ends, wanted), size)
    if tally is None:
        raise RuntimeError(
            "the chunk changed while it was read, because another thread writes to it: pass a "
            "copy, a.copy()"
        )
    return tally.candidates.elements


def _cells_of_gathered(gathered: Array, n_pivots: int, above: NDArray[Any]) -> Cells:
    """Find the cells of a heavy cell's elements; `above` is empty, or the cell's end."""
    if gathered.size > FEW:
        cells = _cells(gathered, n_pivots, above[0] if len(above) else None)
        if cells is not None:
            return cells
    exact = cpu.cuts_of_sorted(np.sort(gathered.get()), n_pivots, 0)
    assert exact.distance is not None
    assert exact.slack is not None
    # The extremes are pivots: no element is below the first or above the last.
    distance, slack = np.append(exact.distance, 0.0), np.append(exact.slack, 0.0)
    distance[0] = slack[0] = 0.0
    return Cells(exact.pivots, exact.below, exact.upto, distance, slack, gathered.size, 0)


def _with_split(parts: list[Cells]) -> Cells:
    """Merge the cells of the other parts into those of the first."""
    first = parts[0]
    pivots = np.concatenate([part.pivots for part in parts])
    order = np.argsort(pivots)
    return first._replace(
        pivots=pivots[order],
        below=np.concatenate([part.below for part in parts])[order],
        upto=np.concatenate([part.upto for part in parts])[order],
        distance=np.append(
            np.concatenate([part.distance[:-1] for part in parts])[order], first.distance[-1]
        ),
        slack=np.append(
            np.concatenate([part.slack[:-1] for part in parts])[order], first.slack[-1]
        ),
    )
