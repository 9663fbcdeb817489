"""Exact sums of chunks and of rows: the host side of ``moments.cu``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.cpu import moments as cpu
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.chunk import (
    FEW,
    Chunk,
    Elements,
    as_float64,
    masked,
    n_unmasked,
    on_host,
)
from dask_gpuselect.kernels.cuda.launch import (
    Array,
    coded,
    copied_ahead,
    launch,
    most_shared,
    on_device,
)
from dask_gpuselect.maths import exact_sums
from dask_gpuselect.maths.cuts import FloatArray, IntArray
from dask_gpuselect.maths.exact_sums import SQUARE_DIGITS, TOTAL_DIGITS, ExactSums
from dask_gpuselect.maths.moments import Moments, integers_of, rounded

N_DIGITS = TOTAL_DIGITS + SQUARE_DIGITS
N_SUMS = N_DIGITS + 3  # digits, and the numbers of elements that are inf, -inf and NaN
FEW_LANES = 80  # whose moments are rounded one by one


def moments(
    values: Elements, near: NDArray[Any], cells: NDArray[np.bool_] | None = None
) -> Moments:
    """Sum a chunk exactly; see `reference.moments.moments`. Reads it once, or for each cell."""
    if cells is None:
        return moments_ahead(values, near)()
    if values.size <= FEW:
        return cpu.moments(on_host(values), near, cells)
    dtype, sums = np.dtype(values.dtype), cupy.zeros(N_SUMS + 1, np.uint64)
    pieces, top = source.cut_for(near, dtype)
    made = (("PIECES", pieces), *masked(values))
    for cell in np.flatnonzero(cells).tolist():
        given = *Chunk.of(values), top, near[cell - 1], near[cell]
        launch(dtype, "moments_between", *given, sums, defined=made)
    found = sums.get().view(np.int64)
    return moments_of(found[None, :N_SUMS], found[N_SUMS:])  # all of these elements are finite


def moments_ahead(values: Elements, near: NDArray[Any]) -> Callable[[], Moments]:
    """Start to sum a chunk exactly; return a function that waits for `moments`."""
    if values.size <= FEW:
        return partial(cpu.moments, on_host(values), near)
    dtype, sums = np.dtype(values.dtype), cupy.zeros(N_SUMS, np.uint64)
    pieces, top = source.cut_for(near, dtype)
    made = (("PIECES", pieces), *masked(values))
    launch(dtype, "moments", *Chunk.of(values), top, sums, defined=made)
    wait = copied_ahead(sums)
    return lambda: moments_of(wait()[None].view(np.int64), n_unmasked(values))


def moments_of_runs(values: Array, stops: IntArray, near: NDArray[Any]) -> Moments:
    """Sum each run of a flat array exactly; `stops` are the places behind the runs."""
    dtype, sums = np.dtype(values.dtype), cupy.zeros((len(stops), N_SUMS), np.uint64)
    pieces, top = source.cut_for(near, dtype)
    given = values, on_device(stops), len(stops), top, sums
    launch(dtype, "moments_of_runs", *given, defined=(("PIECES", pieces),))
    return moments_of(sums.get().view(np.int64), np.diff(stops, prepend=0))


def start_moments_of_groups(
    parts: Sequence[tuple[Array, Array]],
    n_groups: int,
    tops: Array,
    sums: Array,
    way: tuple[int, dict[str, Any]],
) -> None:
    """Start to add the elements of groups to `N_SUMS` numbers for each; see `moments_of`.

    `parts` are elements and codes, `tops` the powers of two at which elements of groups are cut,
    and `way` as `source.group_sums` chooses it.
    """
    tile, how = way
    for values, codes in parts:
        dtype = np.dtype(values.dtype)
        made = (("PIECES", source.pieces_of(dtype)), *coded(codes), *how["defined"])
        given = values, codes, values.size, n_groups, tile, tops, sums
        if values.size:
            launch(dtype, "moments_of_groups", *given, shared=how["shared"], defined=made)


def squares_ahead(
    values: Array, codes: Array, n_groups: int, top: int
) -> Callable[[], ExactSums] | None:
    """Start to sum the squares of the finite elements of each group, which are below ``2**top``.

    Return a function that waits for the sums; None if shared memory has no room.
    """
    way = source.group_sums(np.dtype(values.dtype), n_groups, most_shared(cupy.cuda.Device().id))
    if way is None:
        return None
    sums = cupy.zeros((n_groups, N_SUMS), np.uint64)
    # Sums are exact whatever the cut, but pieces of numbers that are too large or small are not.
    tops = cupy.full(n_groups, top if abs(top) < source.FARTHEST_TOP else 0, np.int32)
    start_moments_of_groups([(values, codes)], n_groups, tops, sums, way)
    wait = copied_ahead(sums.reshape(-1))
    return lambda: moments_of(wait().view(np.int64).reshape(n_groups, N_SUMS), 0).square


def moments_of(sums: IntArray, sizes: IntArray | int) -> Moments:
    """Return the moments of lanes of some sizes from the `N_SUMS` numbers of a kernel for each."""
    total, square, others = np.split(sums, [TOTAL_DIGITS, N_DIGITS], axis=1)
    return cpu.moments_of(sizes, others.T, total, square)


def rounded_moments(sums: IntArray, sizes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Round the means and standard deviations of lanes, whose numbers `moments_of` takes.

    For few lanes Python's integers take less time than exact sums in arrays.
    """
    if len(sums) > FEW_LANES or sums[:, N_DIGITS:].any():
        return moments_of(sums, sizes).mean_and_std()
    total, square = (integers_of(each) for each in np.split(sums[:, :N_DIGITS], [TOTAL_DIGITS], 1))
    mean, std = np.array(list(map(rounded, sizes.tolist(), total, square))).T
    return mean, std


def moments_of_rows(rows: Array) -> Moments:
    """Sum each row of a table exactly."""
    n_rows, n = rows.shape
    dtype = np.dtype(rows.dtype)
    zero = np.zeros(n_rows, np.int64)
    n_finite, n_high, n_low = zero + n, zero, zero
    extent = None
    if dtype.kind == "f" and rows.size:
        values = as_float64(rows)
        is_finite = cupy.isfinite(values)
        n_finite, n_high, n_low = (
            cupy.count_nonzero(mask, axis=1).get().astype(np.int64)
            for mask in (is_finite, values == cupy.inf, values == -cupy.inf)
        )
        sizes = cupy.abs(values)
        largest = cupy.where(is_finite, sizes, 0).max()
        least = cupy.where(sizes > 0, sizes, cupy.inf).min()
        extent = float(least), float(largest)
    (first_total, n_total), (first_square, n_square) = source.digits_for(dtype, extent)
    total = cupy.zeros((n_rows, n_total), np.int64)
    square = cupy.zeros((n_rows, n_square), np.int64)
    if rows.size:
        digits = total, first_total, n_total, square, first_square, n_square
        launch(dtype, "sum_rows", cupy.ascontiguousarray(rows), n_rows, n, *digits)
    sums = (
        ExactSums.of_table(table.get(), point - first)
        for table, point, first in (
            (total, exact_sums.TOTAL_POINT, first_total),
            (square, exact_sums.SQUARE_POINT, first_square),
        )
    )
    return Moments(n_finite, n_high, n_low, *sums)
