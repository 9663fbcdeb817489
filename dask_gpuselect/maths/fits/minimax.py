"""The minimax fit: the linear fit whose largest absolute residual is least."""

from __future__ import annotations

import numpy as np

from dask_gpuselect.arrays import Array, like, namespace, to_host
from dask_gpuselect.maths.cuts import FloatArray, IntArray
from dask_gpuselect.maths.fits.designs import residuals

TOLERANCE = 1e-12  # of the largest residual, and of lengths
EXCHANGES = 50  # at most, for each column
FEW = 2000  # rows that are looked at first: of 118,000 with 6 columns all take 78 ms, these 5


def minimax(design: Array, target: Array) -> FloatArray:
    """The coefficients that minimise the largest absolute residual.

    Parameters
    ----------
    design : array, shape (n, p)
        NumPy's or CuPy's.
    target : array, shape (n,)

    Returns
    -------
    ndarray, shape (p,)
        Zeros if there are no more than p rows, or fewer than p independent ones.

    Notes
    -----
    Of many rows those of the largest targets are fitted, then also those with the largest residuals
    of that fit, until all others' are smaller. Those are fitted on the host, wherever the rows are.

    In p + 1 rows, a reference, the best fit of these has residuals of one size, e. It grows as rows
    are exchanged for the one with the largest residual of all, until that is no larger than e
    (Stiefel 1959). This is the simplex method on the dual linear program, a reference its basis.
    Each exchange looks at all rows. No sum depends on the order of the rows, or on their alignment
    in memory as those of a BLAS do.
    """
    n, p = design.shape
    if n <= p:
        return np.zeros(p)
    held = _largest(abs(target))
    rows, targets = _at(design, held), _at(target, held)
    if len(independent_rows(rows)) < p:
        held = np.union1d(held, independent_rows(to_host(design)))
        rows, targets = _at(design, held), _at(target, held)
    while len(independent := independent_rows(rows)) == p:
        theta = _exchanged(rows, targets, independent)
        sizes = abs(residuals(design, target, theta))
        if float(sizes.max()) <= np.abs(residuals(rows, targets, theta)).max():
            return theta
        held = np.union1d(held, _largest(sizes))
        rows, targets = _at(design, held), _at(target, held)
    return np.zeros(p)


def _largest(sizes: Array) -> IntArray:
    """Where the few largest are, in ascending order."""
    n_others = max(len(sizes) - FEW, 0)
    if not n_others:
        return np.arange(len(sizes))
    places: IntArray = to_host(namespace(sizes).argpartition(sizes, n_others)[n_others:])
    return np.sort(places)


def _at(array: Array, places: IntArray) -> FloatArray:
    """The rows at some places, on the host."""
    rows: FloatArray = to_host(array[like(places, array)])
    return rows


def _exchanged(design: FloatArray, target: FloatArray, independent: IntArray) -> FloatArray:
    """The fit of few rows, from the reference of some independent ones."""
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
    """The columns of the dual's first basis, and their costs: of p independent rows, and the one
    that their fit fits worst."""
    theta = np.linalg.solve(design[independent], target[independent]).astype(np.float64, copy=False)
    size = np.abs(residuals(design, target, theta))
    size[independent] = -1.0
    reference = np.append(independent, np.argmax(size))
    # Signs with which a mean of the rows is 0: the residuals' in their best fit.
    dependence = np.linalg.svd(design[reference].T)[2][-1]
    signs = np.where(dependence < 0, -1.0, 1.0)
    if dependence @ target[reference] < 0:
        signs = -signs
    basis = np.vstack([signs * design[reference].T, np.ones(len(reference))])
    return basis, signs * target[reference]


def independent_rows(design: FloatArray) -> IntArray:
    """As many linearly independent rows as there are, each the furthest from the others' span."""
    rest = design.copy()
    lengths = (rest * rest).sum(axis=1)
    least = TOLERANCE**2 * lengths.max(initial=0.0)
    found: list[int] = []
    while len(found) < design.shape[1] and lengths.max(initial=0.0) > least:
        found.append(int(np.argmax(lengths)))
        direction = rest[found[-1]] / np.sqrt(lengths[found[-1]])
        along = -residuals(rest, np.zeros(len(rest)), direction)
        rest -= np.outer(along, direction)
        lengths = (rest * rest).sum(axis=1)
    return np.array(found, np.int64)
