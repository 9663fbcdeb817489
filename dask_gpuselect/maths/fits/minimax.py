"""Minimax fits: linear fits whose largest absolute residual is least."""

from __future__ import annotations

import numpy as np

from dask_gpuselect.arrays import Array, namespace, to_host
from dask_gpuselect.maths.cuts import FloatArray, IntArray
from dask_gpuselect.maths.fits.designs import residuals

TOLERANCE = 1e-12  # relative to the largest residual, and to lengths
EXCHANGES = 50  # largest number for each column
FEW = 2000  # rows to begin with: for 118,000 rows of 6 columns, all take 78 ms, and so few take 5


def minimax(design: Array, target: Array) -> FloatArray:
    """Find the coefficients that minimise the largest absolute residual.

    Parameters
    ----------
    design : array, shape (n, p)
        Array of NumPy or CuPy.
    target : array, shape (n,)

    Returns
    -------
    ndarray, shape (p,)
        Zeros if there are no more than p rows, or fewer than p independent ones.

    Notes
    -----
    Among many rows, those with the largest targets are fitted first, then also those with the
    largest residuals of that fit, until all other residuals are smaller. These rows are fitted on
    the host, wherever all rows are.

    In p + 1 rows, a reference, the best fit has residuals of one size, e. Rows of the reference are
    exchanged for the one with the largest residual of all, and so e grows, until no residual is
    larger than e (Stiefel 1959). This is the simplex method on the dual linear program, with the
    reference as its basis. Each exchange reads all rows. No sum depends on the order of the rows,
    or on their alignment in memory as the sums of a BLAS do.
    """
    n, p = design.shape
    if n <= p:
        return np.zeros(p)
    table = _largest(design, target, abs(target))
    if len(independent_rows(table[:, 2:])) < p:
        whole = _with_places(to_host(design), to_host(target), np.arange(n))
        table = _united(table, whole[independent_rows(whole[:, 2:])])
    while len(independent := independent_rows(table[:, 2:])) == p:
        targets, rows = np.ascontiguousarray(table[:, 1]), np.ascontiguousarray(table[:, 2:])
        theta = _exchanged(rows, targets, independent)
        sizes = abs(residuals(design, target, theta))
        if float(sizes.max()) <= np.abs(residuals(rows, targets, theta)).max():
            return theta
        table = _united(table, _largest(design, target, sizes))
    return np.zeros(p)


def _largest(design: Array, target: Array, sizes: Array) -> FloatArray:
    """Take the few rows with the largest sizes, on the host, in their order.

    A row is its place, its target and its design.
    """
    xp, n_others = namespace(sizes), max(len(sizes) - FEW, 0)
    places = xp.argpartition(sizes, n_others)[n_others:]
    table: FloatArray = to_host(_with_places(design[places], target[places], places))
    return table[np.argsort(table[:, 0])]


def _with_places(design: Array, target: Array, places: Array) -> Array:
    """Join places, targets and designs to one table, for one transfer from a device."""
    return namespace(design).concatenate([places[:, None], target[:, None], design], axis=1)


def _united(table: FloatArray, more: FloatArray) -> FloatArray:
    """Merge the rows of two tables, each once, in their order."""
    both = np.concatenate([table, more])
    return both[np.unique(both[:, 0], return_index=True)[1]]


def _exchanged(design: FloatArray, target: FloatArray, independent: IntArray) -> FloatArray:
    """Fit few rows, beginning with the reference of some independent ones."""
    p = design.shape[1]
    best, least = np.zeros(p), np.inf
    basis, costs = _first_reference(design, target, independent)
    last = np.append(np.zeros(p), 1.0)
    for _ in range(EXCHANGES * (p + 1)):
        try:
            *theta, level = np.linalg.solve(basis.T, costs)
        except np.linalg.LinAlgError:
            break
        errors = residuals(design, target, np.array(theta))
        worst = int(np.argmax(np.abs(errors)))
        largest = abs(errors[worst])
        if largest < least:
            best, least = np.array(theta), largest
        if largest <= level * (1 + TOLERANCE):
            break
        sign = np.sign(errors[worst])
        entering = np.append(sign * design[worst], 1.0)
        shares, along = np.linalg.solve(basis, np.column_stack([last, entering])).T
        limits = np.where(along > TOLERANCE, shares / np.where(along > TOLERANCE, along, 1), np.inf)
        leaving = int(np.argmin(limits))
        basis[:, leaving], costs[leaving] = entering, sign * target[worst]
    return best


def _first_reference(
    design: FloatArray, target: FloatArray, independent: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Find the columns of the dual's first basis, and their costs.

    They belong to p independent rows, and to the row with the largest residual in their fit.
    """
    theta = np.linalg.solve(design[independent], target[independent]).astype(np.float64, copy=False)
    size = np.abs(residuals(design, target, theta))
    size[independent] = -1.0
    reference = np.append(independent, np.argmax(size))
    # Signs with which a mean of the rows is 0: those of the residuals in their best fit.
    dependence = np.linalg.svd(design[reference].T)[2][-1]
    signs = np.where(dependence < 0, -1.0, 1.0)
    if dependence @ target[reference] < 0:
        signs = -signs
    basis = np.vstack([signs * design[reference].T, np.ones(len(reference))])
    return basis, signs * target[reference]


def independent_rows(design: FloatArray) -> IntArray:
    """Find the most linearly independent rows, each one farthest from the span of the others."""
    rest = design.copy()
    lengths = (rest * rest).sum(axis=1)
    least = TOLERANCE**2 * lengths.max(initial=0.0)
    chosen: list[int] = []
    while len(chosen) < design.shape[1] and lengths.max(initial=0.0) > least:
        chosen.append(int(np.argmax(lengths)))
        direction = rest[chosen[-1]] / np.sqrt(lengths[chosen[-1]])
        along = -residuals(rest, np.zeros(len(rest)), direction)
        rest -= np.outer(along, direction)
        lengths = (rest * rest).sum(axis=1)
    return np.array(chosen, np.int64)
