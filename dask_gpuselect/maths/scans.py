"""Scans of the histograms of one pass of the distributed radix sort, on the host.

They find which keys of each chunk go to which chunk.

K. Spafford, "Identification of Quartiles and Outliers with a Distributed Heterogeneous Radix Sort",
Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.partition import dealt


class Run(NamedTuple):
    """Consecutive keys: the first and the last, None if there are none, and whether they ascend."""

    first: int | None
    last: int | None
    ascends: bool


def joined_runs(runs: Sequence[Run]) -> Run:
    """Join consecutive runs into one."""
    ends = [(run.first, run.last) for run in runs if run.first is not None]
    if not ends:
        return Run(None, None, ascends=True)
    is_joined = all(a[1] <= b[0] for a, b in pairwise(ends))  # type: ignore[operator]
    return Run(ends[0][0], ends[-1][1], is_joined and all(run.ascends for run in runs))


def cut_positions(counts: IntArray) -> IntArray | None:
    """Find where the ordered keys of each chunk are cut into pieces for all chunks.

    Steps 2 to 6 of Algorithm 1.

    Parameters
    ----------
    counts : ndarray of int64, shape (p, values)
        Number of keys of each chunk with each value of the digit.

    Returns
    -------
    ndarray of int64, shape (p, p + 1), or None
        Chunk i sends its keys from ``[i, j]`` to before ``[i, j + 1]`` to chunk j, and every chunk
        gets as many as it had. None if all keys have one value: then nothing moves.

    Notes
    -----
    The paper computes the position of every key from three counts: the keys with lower values,
    those of lower ranks with the same value (`H_PriorDigit`, `H_PriorRank`), and those of the same
    rank (`C_Digit`). The positions of a rank's ordered keys ascend, so it is enough to know where
    they pass the first position of each chunk. That is p numbers for a chunk, instead of one for
    every key.
    """
    sizes, totals = counts.sum(axis=1), counts.sum(axis=0)
    if totals.max(initial=0) == totals.sum():
        return None
    begins = np.cumsum(sizes[:-1])
    value = np.searchsorted(np.cumsum(totals), begins, side="right")
    value = np.minimum(value, len(totals) - 1)  # only empty chunks begin behind all keys
    upto = np.cumsum(counts, axis=1)[:, value]
    return dealt(upto - counts[:, value], upto, sizes, begins)
