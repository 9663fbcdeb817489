"""Designs of linear fits: rows that are shifted and scaled, with a column for the intercept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_gpuselect.arrays import Array, as_float64, like, namespace, to_host
from dask_gpuselect.maths.cuts import Arrays, FloatArray

MOST_BITS = 1000  # largest exponent of a scale: denormal data could exceed the range of exponents
# Smallest eigenvalue of a Gram matrix of normalised columns, as a share of the largest, from which
# on the columns are clearly not collinear. Rounding changes it by less than 1e-10 in 65,536 rows.
CLEAR = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class Design(Arrays):
    """Map from rows of X and y to those of a fit, in float64: ``z = (x - centre) * scale``.

    The target is mapped in the same way. With an intercept, the first column is ones. Scales are
    powers of two: they round nothing, and they prevent over- and underflow where squares of the
    data would.

    Parameters
    ----------
    centre, scale : ndarray, shape (p,)
        Shift and scale of the columns of X.
    y_centre, y_scale : float
        Shift and scale of the target.
    has_intercept : bool
        True if there is a column of ones. Without it nothing is shifted.
    """

    centre: FloatArray
    scale: FloatArray
    y_centre: float
    y_scale: float
    has_intercept: bool

    @classmethod
    def of(cls, x: Array, y: Array, *, has_intercept: bool) -> Design:
        """Choose the design by medians and median deviations of rows, which resist outliers."""
        xp = namespace(x)
        columns = xp.concatenate([as_float64(x).T, as_float64(y)[None, :]], axis=0)
        centre = np.zeros(len(columns))
        if has_intercept:
            centre = to_host(xp.median(columns, axis=1))
            columns = columns - like(centre, columns)[:, None]
        sizes = abs(columns)
        both = to_host(xp.stack([xp.median(sizes, axis=1), sizes.max(axis=1)]))
        scale = np.array(list(map(_power_of_two, *both)))
        return cls(centre[:-1], scale[:-1], float(centre[-1]), float(scale[-1]), has_intercept)

    @property
    def n_parameters(self) -> int:
        return len(self.centre) + self.has_intercept

    def rows(self, x: Array) -> Array:
        """Compute the design of rows, shape (n, n_parameters), in arrays of their kind."""
        x, xp = as_float64(x), namespace(x)
        z = (x - like(self.centre, x)) * like(self.scale, x)
        return xp.concatenate([xp.ones((len(z), 1)), z], axis=1) if self.has_intercept else z

    def target(self, y: Array) -> Array:
        return (as_float64(y) - self.y_centre) * self.y_scale

    def coefficients(self, theta: FloatArray) -> tuple[FloatArray, float]:
        """Compute the coefficients of the original X, and the intercept."""
        slopes = theta[1:] if self.has_intercept else theta
        coef: FloatArray = slopes * self.scale / self.y_scale
        if not self.has_intercept:
            return coef, 0.0
        return coef, float(theta[0] / self.y_scale + self.y_centre - self.centre @ coef)


def _power_of_two(typical: float, largest: float) -> float:
    """Choose the power of two that brings the typical deviation near 1."""
    # The column is mostly constant, or the mean of its two middle deviations overflowed.
    if not 0 < typical <= largest:
        typical = largest
    exponent = int(np.frexp(typical)[1]) if typical > 0 else 0
    return math.ldexp(1.0, min(-exponent, MOST_BITS))


def residuals(design: Array, target: Array, theta: FloatArray) -> Array:
    """Compute the residuals of rows in memory, shape (n,).

    The operations are those of the kernels, in the same order, so that results have the same bits.
    """
    rest = target
    for column, coefficient in zip(design.T, theta.tolist(), strict=True):
        rest = rest - column * coefficient
    return rest


def rank(design: Array) -> int:
    """Compute the rank of the columns, up to rounding.

    Each row is scaled to one size, which changes no rank: otherwise a row far out makes all columns
    look alike. Then each column is scaled, to avoid that squares underflow. If columns are far from
    collinear, the Gram matrix shows it, without a decomposition of all rows, which takes 20 times
    as long.
    """
    xp = namespace(design)
    for axis in (1, 0):
        size = abs(design).max(axis=axis, keepdims=True)
        design = design / xp.where(size > 0, size, 1.0)
    lengths = xp.sqrt((design * design).sum(axis=0))
    design = design / xp.where(lengths > 0, lengths, 1.0)
    values = np.linalg.eigvalsh(to_host(design.T @ design))
    if values[0] > CLEAR * values[-1]:
        return len(values)
    triangle = np.linalg.qr(to_host(design), mode="r")
    sizes = np.linalg.svd(triangle, compute_uv=False)
    tolerance = sizes[0] * max(design.shape) * np.finfo(np.float64).eps
    return int((sizes > tolerance).sum())


def solve(gram: FloatArray, moment: FloatArray) -> FloatArray:
    """Find the shortest solutions of normal equations, shapes (..., p, p) and (..., p).

    Columns are normalised first. Directions whose eigenvalues are mere rounding are left out. The
    solution is zero where sums have overflowed.
    """
    is_finite: Any = np.isfinite(gram).all(axis=(-2, -1)) & np.isfinite(moment).all(axis=-1)
    gram = np.where(is_finite[..., None, None], gram, 0.0)
    moment = np.where(is_finite[..., None], moment, 0.0)
    length = np.sqrt(np.diagonal(gram, axis1=-2, axis2=-1))
    length = np.where(length > 0, length, 1.0)
    values, vectors = np.linalg.eigh(gram / (length[..., :, None] * length[..., None, :]))
    eps = np.finfo(np.float64).eps
    is_significant = values > values[..., -1:] * (gram.shape[-1] * eps)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=is_significant)
    along = np.einsum("...ji,...j->...i", vectors, moment / length) * inverse
    solution: FloatArray = np.einsum("...ij,...j->...i", vectors, along) / length
    return solution
