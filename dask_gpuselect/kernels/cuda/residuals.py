"""Sums over the rows of CuPy chunks for linear fits: the host side of ``residuals.cu``."""

from __future__ import annotations

from collections.abc import Sequence

import cupy
import numpy as np

from dask_gpuselect.kernels.cuda.chunk import as_float64
from dask_gpuselect.kernels.cuda.launch import Array, blocks_at_once, launch, on_device
from dask_gpuselect.kernels.cuda.source import MOST_PARAMETERS, row_sums
from dask_gpuselect.kernels.reference import residuals
from dask_gpuselect.maths.cuts import FloatArray
from dask_gpuselect.maths.fits.concentration import ResidualSums
from dask_gpuselect.maths.fits.designs import Design


def row_tallies(
    x: Array,
    y: Array,
    design: Design,
    thetas: FloatArray,
    ends: Sequence[FloatArray],
    most: Sequence[int],
    *,
    with_sums: bool,
) -> list[ResidualSums]:
    """Tally the rows of a chunk for some fits; see `residuals.row_tallies`.

    Reads the chunk once for each fit of up to `MOST_PARAMETERS` parameters. Scratch: the gathered
    rows, and copies of rows that are not contiguous and of a y that is not float64.
    """
    if thetas.shape[1] > MOST_PARAMETERS or x.size == 0:
        return residuals.row_tallies(x, y, design, thetas, ends, most, with_sums=with_sums)
    x, y = cupy.ascontiguousarray(x), cupy.ascontiguousarray(as_float64(cupy.asarray(y)))
    about = list(zip(thetas, ends, most, strict=True))
    # All fits are started before the host waits for the first one.
    begun = [_begun(x, y, design, *each, with_sums=with_sums) for each in about]
    p = thetas.shape[1]
    return [_row_tally(*each, len(own), p) for each, (_, own, _) in zip(begun, about, strict=True)]


def _begun(
    x: Array,
    y: Array,
    design: Design,
    theta: FloatArray,
    ends: FloatArray,
    most: int,
    *,
    with_sums: bool,
) -> tuple[Array, Array, Array]:
    """Start the kernel for a fit; return its counts and sums, places of gathered rows, and rows."""
    dtype, n_ends, p = np.dtype(x.dtype), len(ends), len(theta)
    defined = (("PARAMETERS", p), ("INTERCEPT", int(design.has_intercept)))
    n_sums, most = row_sums(p), min(most, len(x))
    blocks = blocks_at_once(dtype, "rows_tally", defined)
    of_y = (design.y_centre, design.y_scale)
    numbers = np.concatenate([design.centre, design.scale, of_y, theta, ends])
    totals = cupy.zeros(2 + n_ends + n_ends * n_sums + blocks * (1 + n_sums))
    counts, at_ends, of_blocks = cupy.split(totals, np.cumsum([2 + n_ends, n_ends * n_sums]))
    places, rows = cupy.empty(most, np.int64), cupy.empty((most, 1 + p))
    given = (x, y, len(x), on_device(numbers), n_ends, with_sums, most)
    out = (counts, at_ends, of_blocks, places, rows)
    launch(dtype, "rows_tally", *given, *out, blocks=blocks, defined=defined)
    return totals, places, rows


def _row_tally(totals: Array, places: Array, rows: Array, n_ends: int, p: int) -> ResidualSums:
    n_sums, most = row_sums(p), len(places)
    host = totals.get()
    counted = host[: 2 + n_ends].view(np.int64)
    sums = host[2 + n_ends :]
    below = sums[n_ends * n_sums :].reshape(-1, 1 + n_sums).sum(axis=0)
    n = np.append(np.int64(below[0]), counted[1:-1])
    groups = np.vstack([below[1:], sums[: n_ends * n_sums].reshape(n_ends, n_sums)])
    n_between = int(counted[-1])
    n_gathered = min(n_between, most)
    # In the order of the data, so that sums of them are reproducible.
    gathered = rows[cupy.argsort(places[:n_gathered])]
    return ResidualSums(n, *_unpacked(groups, p), gathered, n_between <= most)


def _unpacked(groups: FloatArray, p: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Unpack products, moments and squares of each group."""
    gram = np.zeros((len(groups), p, p))
    row, column = np.tril_indices(p)
    gram[:, row, column] = gram[:, column, row] = groups[:, : len(row)]
    return gram, groups[:, len(row) : -1], groups[:, -1]
