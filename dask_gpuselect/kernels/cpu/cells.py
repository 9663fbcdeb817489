"""Load 1 of NumPy chunks: counts of the cells between pivots.

Every element is classified among the pivots by a `tree`, as `spans.tally` does. 1e8 float64 in 10
chunks on 2 threads take 0.33 s at 2,047 pivots whatever the distribution. A lookup table linear in
value took 0.3 s on normal and 8.6 s on lognormal data, a binary search for each element 2.6 s.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import until_compiled
from dask_gpuselect.kernels.cpu.draws import sample
from dask_gpuselect.kernels.cpu.spans import tally
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.kernels.reference.selection import (
    cuts_of_sorted,
    gathered_cells,
    with_heavy_split,
)
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray

SORT_AT_MOST = 8192  # up to this many elements, sorting the chunk is as fast as classifying it
OVERSAMPLING = 16  # sampled elements for each pivot: cells then vary by a quarter of their size


@until_compiled(reference.cuts)
def cuts(values: NDArray[Any], n_pivots: int) -> Cuts:
    """Measure the cuts of a chunk at sampled pivots; see `reference.selection.cuts`.

    Reads the chunk once. Scratch: about 100 bytes for each pivot, and the elements of heavy cells.
    Cells are heavy where the sample missed the distribution, which hashed positions make unlikely.
    """
    if values.size <= SORT_AT_MOST:
        return reference.cuts(values, n_pivots)
    # The tree has 2**levels - 1 nodes: use all of them. One more level than the pivots need takes
    # 10 % more time (1e7 float64: 62 ms with 2,047 pivots, 68 ms with 4,095).
    full = (1 << ((n_pivots + 1).bit_length() - 1)) - 1
    return _cuts_at(values, np.unique(_sample_pivots(values, full)), n_pivots)


def cuts_of_run(values: NDArray[Any], n_pivots: int) -> Cuts:
    """Measure the cuts of valid elements as `cuts` does, with their extremes among the pivots."""
    extremes = [values.min(), values.max()]
    inner = _sample_pivots(values, n_pivots - 2)
    return _cuts_at(values, np.unique(np.append(inner, extremes)), n_pivots)


def _cuts_at(values: NDArray[Any], pivots: NDArray[Any], n_pivots: int) -> Cuts:
    """Measure the cuts of a chunk at some pivots, and at more where these are far apart."""
    at_pivots = tally(values, Brackets(pivots, np.zeros(len(pivots) + 1, np.bool_)), 0)
    assert at_pivots is not None  # there are no candidates
    numbers = at_pivots.n_valid, at_pivots.n_missing
    sampled = Cuts.of_chunk(pivots, at_pivots.below, at_pivots.upto, *numbers)

    def cuts_inside(heavy: IntArray, sizes: IntArray, share: int) -> list[Cuts]:
        """Measure each heavy cell at exactly even steps."""
        gathered = gathered_cells(partial(tally, values), pivots, heavy, int(sizes.sum()))
        ordered = np.sort(gathered.candidates.on_host())
        cells = np.split(ordered, np.cumsum(sizes[:-1]))
        return [cuts_of_sorted(cell, 0, -(-cell.size // share) + 1) for cell in cells]

    return with_heavy_split(sampled, n_pivots, cuts_inside)


def _sample_pivots(values: NDArray[Any], n_pivots: int) -> NDArray[Any]:
    """Choose `n_pivots` pivots at even steps through a sorted sample, unless none is valid."""
    ordered = np.sort(sample(values, min(OVERSAMPLING * (n_pivots + 1), values.size)))
    steps = np.arange(1, n_pivots + 1) * len(ordered) // (n_pivots + 1)
    return ordered[steps] if len(ordered) else ordered
