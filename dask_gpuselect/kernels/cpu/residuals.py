"""Residuals of linear fits in NumPy chunks: compiled by Numba, one read for all fits.

Rows are taken in runs whose columns stay in the first-level cache. One shared test compares the
kernels with the reference, `residuals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, called_with, kernel_of
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.maths.cuts import FloatArray
from dask_gpuselect.maths.fits.concentration import ResidualSums
from dask_gpuselect.maths.fits.designs import Design

RUN = 256  # rows of a run: 2 KiB a column
SLAB = 1 << 14  # rows after which gathered rows are moved out of the kernel's buffer


def row_tallies(
    x: NDArray[Any],
    y: NDArray[Any],
    design: Design,
    thetas: FloatArray,
    ends: Sequence[FloatArray],
    most: Sequence[int],
    *,
    with_sums: bool,
) -> list[ResidualSums]:
    """Tally the rows of a chunk for some fits; see `residuals.row_tallies`.

    Scratch: the gathered rows, a slab of rows for each fit, and a copy of a chunk that is not
    contiguous or neither float32 nor float64.
    """
    x, y = _rows(x), np.ascontiguousarray(y, np.float64)
    n_fits, p = thetas.shape
    n_ends = np.array([len(each) for each in ends])
    padded = np.full((n_fits, n_ends.max()), np.nan)
    for row, each in zip(padded, ends, strict=True):
        row[: len(each)] = each
    groups = (n_fits, 1 + padded.shape[1])
    n = np.zeros(groups, np.int64)
    gram, moment, squares = (np.zeros((*groups, *each)) for each in ((p, p), (p,), ()))
    # Rows whose absolute residuals lie between the ends, as long as there is room.
    between = [[np.empty((0, 1 + p))] for _ in most]
    n_gathered = np.zeros(n_fits, np.int64)
    how = _numbers(design), np.ascontiguousarray(thetas), padded, n_ends, with_sums
    room = np.empty((n_fits, min(SLAB, len(x)), 1 + p))
    for start in range(0, len(x), SLAB):
        slab = slice(start, start + SLAB)
        n_between = np.zeros(n_fits, np.int64)
        _tally(x[slab], y[slab], *how, (n, gram, moment, squares), room, n_between)
        n_gathered += n_between
        for i in np.flatnonzero((n_between > 0) & (n_gathered <= most)).tolist():
            between[i].append(room[i, : n_between[i]].copy())
    gram += np.tril(gram, -1).swapaxes(-1, -2)
    tallies = []
    for i, size in enumerate((1 + n_ends).tolist()):
        sums = (n[i, :size], gram[i, :size], moment[i, :size], squares[i, :size])
        is_whole = bool(n_gathered[i] <= most[i])
        tallies.append(ResidualSums(*sums, np.concatenate(between[i]), is_whole))
    return tallies


def absolute_residuals(
    x: NDArray[Any], y: NDArray[Any], design: Design, theta: FloatArray
) -> FloatArray:
    """Return the absolute residuals of one fit; see `residuals.absolute_residuals`."""
    x, y = _rows(x), np.ascontiguousarray(y, np.float64)
    sizes = np.empty(len(x))
    _sizes(x, y, _numbers(design), np.ascontiguousarray(theta), sizes)
    return sizes


def _rows(x: NDArray[Any]) -> NDArray[Any]:
    is_float = x.dtype in (np.float32, np.float64)
    return np.ascontiguousarray(x, x.dtype if is_float else np.float64)


Numbers = tuple[t.Reals, t.Reals, float, float, bool]
"""The fields of a design."""


def _numbers(design: Design) -> tuple[Any, ...]:
    """Return the numbers of a design for the kernels."""
    about_y = design.y_centre, design.y_scale
    return design.centre, design.scale, *about_y, design.has_intercept


# --- Kernels ------------------------------------------------------------------------------------


@called_by_kernels
def _load(x: Any, y: Any, start: Any, size: Any, design: Any, z: Any, target: Any) -> None:
    """Standardise rows of the design, column by column."""
    centre, scale, y_centre, y_scale, has_intercept = design
    first = np.int64(has_intercept)
    for k in range(centre.size):
        for b in range(size):
            z[first + k, b] = (np.float64(x[start + b, k]) - centre[k]) * scale[k]
    for b in range(size):
        target[b] = (y[start + b] - y_centre) * y_scale


@called_by_kernels
def _subtract(z: Any, target: Any, theta: Any, size: Any, residuals: Any) -> None:
    """Subtract the fit from the target. Each operation rounds as it does in the reference."""
    for b in range(size):
        residuals[b] = target[b]
    for k in range(theta.size):
        for b in range(size):
            residuals[b] -= z[k, b] * theta[k]


@called_with(fastmath={"reassoc", "contract"})
def _dot(u: Any, v: Any) -> Any:
    """Return a dot product, summed in any order so that it vectorises."""
    total = 0.0
    for b in range(RUN):
        total += u[b] * v[b]
    return total


@kernel_of("f8 f4")
def _tally(
    x: t.Rows,
    y: t.Reals,
    design: Numbers,
    thetas: t.FloatTable,
    ends: t.FloatTable,
    n_ends: t.Ints,
    with_sums: bool,
    sums: tuple[t.IntTable, t.FloatStacks, t.FloatStack, t.FloatTable],
    gathered: t.FloatStack,
    n_between: t.Ints,
) -> None:
    n_fits, p = thetas.shape
    n, gram, moment, squares = sums
    z, below = np.ones((p, RUN)), np.empty((p, RUN))
    target, residuals, of_below = np.empty(RUN), np.empty(RUN), np.empty(RUN)
    marks = np.empty(RUN, np.int64)
    for start in range(0, x.shape[0], RUN):
        size = min(RUN, x.shape[0] - start)
        _load(x, y, start, size, design, z, target)
        for j in range(n_fits):
            _subtract(z, target, thetas[j], size, residuals)
            least, largest = ends[j, 0], ends[j, n_ends[j] - 1]
            n_below, n_marks = 0, 0
            for b in range(size):
                a = abs(residuals[b])
                is_below = a < least
                n_below += is_below
                marks[n_marks] = b
                n_marks += (not is_below) and a <= largest
                of_below[b] = residuals[b] if is_below else 0.0
            n[j, 0] += n_below
            if with_sums and n_below:
                for b in range(size, RUN):
                    of_below[b] = 0.0
                for k in range(p):
                    for b in range(size):
                        below[k, b] = z[k, b] if abs(residuals[b]) < least else 0.0
                    for b in range(size, RUN):
                        below[k, b] = 0.0
                for k in range(p):
                    for m in range(k + 1):
                        gram[j, 0, k, m] += _dot(below[k], below[m])
                    moment[j, 0, k] += _dot(below[k], of_below)
                squares[j, 0] += _dot(of_below, of_below)
            for i in range(n_marks):
                b = marks[i]
                residual = residuals[b]
                at = -1
                for e in range(n_ends[j]):
                    if abs(residual) == ends[j, e]:
                        at = e
                if at < 0:
                    row = gathered[j, n_between[j]]
                    n_between[j] += 1
                    row[0] = residual
                    for k in range(p):
                        row[1 + k] = z[k, b]
                    continue
                n[j, 1 + at] += 1
                if with_sums:
                    for k in range(p):
                        for m in range(k + 1):
                            gram[j, 1 + at, k, m] += z[k, b] * z[m, b]
                        moment[j, 1 + at, k] += z[k, b] * residual
                    squares[j, 1 + at] += residual * residual


@kernel_of("f8 f4")
def _sizes(x: t.Rows, y: t.Reals, design: Numbers, theta: t.Floats, sizes: t.Floats) -> None:
    z, target, residuals = np.ones((theta.size, RUN)), np.empty(RUN), np.empty(RUN)
    for start in range(0, x.shape[0], RUN):
        size = min(RUN, x.shape[0] - start)
        _load(x, y, start, size, design, z, target)
        _subtract(z, target, theta, size, residuals)
        for b in range(size):
            a = abs(residuals[b])
            sizes[start + b] = a if a == a else np.inf
