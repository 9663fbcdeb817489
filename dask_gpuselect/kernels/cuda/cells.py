"""Load 1: counts of the cells between pivots. The host side of ``cells.cu``."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.cpu import cells as cpu
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.chunk import (
    FEW,
    Chunk,
    Elements,
    as_selected,
    compressed,
    masked,
    on_host,
)
from dask_gpuselect.kernels.cuda.launch import launch, places_in, sizes_of
from dask_gpuselect.kernels.cuda.spans import tally_on_device
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.cuts import Cuts, IntArray
from dask_gpuselect.maths.keys import from_keys

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
    Reads the chunk once. Scratch on the device: 0.4 MB, and the elements of heavy cells where the
    sample's buckets do not separate the data (two clusters within one binade, each narrower than a
    4,096th of it).
    """
    if values.size <= FEW:
        return cpu.cuts(on_host(values), n_pivots)
    sheet = _classify(values, n_pivots)
    if sheet is None:  # the sample spans hundreds of binades
        if values.dtype.itemsize < 8:  # CuPy flushes these to zero if they are subnormal
            return cpu.cuts(on_host(values), n_pivots)
        return reference.cuts(as_selected(compressed(values).ravel()), n_pivots)

    def cuts_inside(heavy: IntArray, sizes: IntArray, share: int) -> list[Cuts]:
        """Measure the elements of each heavy cell, which are gathered on the device."""
        gather, parts = partial(tally_on_device, values), []
        for cell, size in zip(heavy, sizes.tolist(), strict=True):
            gathered = reference.gathered_cells(gather, sampled.pivots, cell[None], size)
            parts.append(cuts(gathered.candidates.elements, -(-size // share) + 1))
        return parts

    sampled = _cuts_of_buckets(sheet, np.dtype(values.dtype))
    return reference.with_heavy_split(sampled, min(n_pivots, MOST_PIVOTS), cuts_inside)


def _classify(values: Elements, n_pivots: int) -> Any:
    """Run the kernels of ``cells.cu``; return the sheet, of `totals_dtype`, on the host.

    None if the elements spread over too many slots.
    """
    dtype = np.dtype(values.dtype)
    sizes = sizes_of(dtype, cupy.cuda.Device().id)
    chunk = Chunk.of(values)
    windows = cupy.empty(source.n_slots(dtype), np.uint64)
    # All that goes back to the host is in one piece of memory: one copy, and one wait.
    layout = totals_dtype(sizes.buckets, f"u{source.key_size(dtype)}")
    device_sheet = cupy.zeros(layout.itemsize, np.uint8)
    at = places_in(device_sheet, layout)

    # About a third of the buckets have no pivot of their own, or lie beyond the data in their slot.
    aim = min(sizes.buckets, n_pivots + n_pivots // 2)
    shared = source.choose_memory(dtype, sizes)
    places = (windows, at["pivots"], at["has_pivot"], at["n_buckets"])
    more = masked(values)
    launch(dtype, "choose", *chunk, aim, *places, shared=shared, blocks=1, defined=more)
    shared = source.classify_memory(dtype, sizes)
    places = (windows, at["pivots"], at["n_buckets"], at["counts"])
    launch(dtype, "classify", *chunk, *places, shared=shared, defined=more)
    sheet = device_sheet.get().view(layout)[0]
    return sheet if sheet["n_buckets"] else None


@cache
def totals_dtype(buckets: int, key: str) -> np.dtype[Any]:
    """Return the dtype of `Totals` of ``cells.cu``, followed by the pivots of the buckets."""
    counts = ("counts", "i8", (3, buckets))  # of elements below, at, above the bucket's pivot
    numbers = ("n_missing", "i8"), ("n_buckets", "i8")
    return np.dtype([counts, *numbers, ("pivots", key, buckets), ("has_pivot", "?", buckets)])


def _cuts_of_buckets(sheet: Any, dtype: np.dtype[Any]) -> Cuts:
    """Make cuts at the pivots of buckets from the counts in all buckets.

    Buckets without a pivot belong to the cell that ends at the next pivot.
    """
    n = int(sheet["n_buckets"])
    (below, equal, above), has_pivot = sheet["counts"][:, :n], sheet["has_pivot"][:n]
    upto_end = np.cumsum(below + equal + above)
    upto = (upto_end - above)[has_pivot]
    pivots = from_keys(sheet["pivots"][:n][has_pivot].astype(np.uint64), dtype)
    n_valid = int(upto_end[-1])
    return Cuts.of_chunk(pivots, upto - equal[has_pivot], upto, n_valid, int(sheet["n_missing"]))
