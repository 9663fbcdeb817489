"""Residuals of linear fits, and sums over the rows of a chunk.

The reference, for any array of the array API. Every residual is computed by the same operations in
the same order, ``y - z_1 t_1 - z_2 t_2 ...``, each rounded by itself, so that it has the same bits
in every chunking, on every device, in every pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_gpuselect.arrays import Array, as_type, concatenate, like, n_true, namespace, to_host
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
    """Tally the rows of a chunk for some fits.

    Parameters
    ----------
    x : array, shape (n, p)
        Predictors.
    y : array, shape (n,)
        Target.
    design : Design
        How rows are standardised.
    thetas : ndarray, shape (n_fits, design.n_parameters)
        Parameters of the fits.
    ends : sequence of ndarray
        Ends of ranges of absolute residuals, ascending, for each fit; at least one.
    most : sequence of int
        Largest number of rows to gather, for each fit.
    with_sums : bool
        True if sums are wanted; otherwise they are zeros.

    Returns
    -------
    list of ResidualSums
        One for each fit. Gathered rows are of the kind of `x`; all else is on the host.

    Notes
    -----
    Scratch: two copies of the chunk in float64, one with an additional column.
    """
    columns, target = _columns(x, y, design)
    xp = namespace(x)
    rows = xp.stack(columns, axis=1)
    return [
        _row_tally(xp, rows, _residuals(columns, target, theta), *about, with_sums=with_sums)
        for theta, about in zip(thetas, zip(ends, most, strict=True), strict=True)
    ]


def absolute_residuals(x: Array, y: Array, design: Design, theta: FloatArray) -> Array:
    """Return the absolute residuals of one fit, shape (n,), in kind; inf where they overflow."""
    size = abs(_residuals(*_columns(x, y, design), theta))
    return namespace(x).where(size == size, size, math.inf)


def _columns(x: Array, y: Array, design: Design) -> tuple[list[Array], Array]:
    """Return the columns of the design and its target."""
    x = as_type(x, "float64")
    y = as_type(like(y, x) if isinstance(y, np.ndarray) else y, "float64")
    shifts = zip(design.centre.tolist(), design.scale.tolist(), strict=True)
    columns = [(x[:, i] - centre) * scale for i, (centre, scale) in enumerate(shifts)]
    target = (y - design.y_centre) * design.y_scale
    return [namespace(y).ones_like(target)] * design.has_intercept + columns, target


def _residuals(columns: list[Array], target: Array, theta: FloatArray) -> Array:
    residuals = target
    for column, coefficient in zip(columns, theta.tolist(), strict=True):
        residuals = residuals - column * coefficient
    return residuals


def _row_tally(
    xp: Any,
    rows: Array,
    residuals: Array,
    ends: FloatArray,
    most: int,
    *,
    with_sums: bool,
) -> ResidualSums:
    size, p = abs(residuals), rows.shape[1]
    groups = [size < float(ends[0])] + [size == end for end in ends.tolist()]
    between = (size > float(ends[0])) & (size < float(ends[-1]))
    for group in groups[1:]:
        between = between & ~group
    n = np.array([n_true(group) for group in groups], np.int64)
    gram, moment = np.zeros((len(n), p, p)), np.zeros((len(n), p))
    squares = np.zeros(len(n))
    for i in np.flatnonzero(n) if with_sums else ():
        own_rows = xp.where(groups[i][:, None], rows, xp.zeros_like(rows))
        own_residuals = xp.where(groups[i], residuals, xp.zeros_like(residuals))
        gram[i] = to_host(own_rows.T @ own_rows)
        moment[i] = to_host(own_rows.T @ own_residuals)
        squares[i] = float(own_residuals @ own_residuals)
    n_between = n_true(between)
    gathered = like(np.empty((0, 1 + p)), rows)
    if 0 < n_between <= most:
        gathered = concatenate([residuals[between][:, None], rows[between, :]], axis=1)
    return ResidualSums(n, gram, moment, squares, gathered, n_between <= most)
