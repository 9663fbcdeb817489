"""Rows as linear fits take them: shifted, scaled, and with a column for the intercept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_gpuselect.maths.cuts import Arrays, FloatArray

MOST_BITS = 1000  # of a scale: denormal data would take more than there are


@dataclass(frozen=True, slots=True, eq=False)
class Design(Arrays):
    """How rows of X and y become those of a fit, in float64: ``z = (x - centre) * scale``, the
    target alike, and a first column of ones for an intercept.

    Scales are powers of two, so that they round nothing, and neither over- nor underflow where
    squares of the data would.

    Parameters
    ----------
    centre, scale : ndarray, shape (p,)
    y_centre, y_scale : float
    has_intercept : bool
        Without one nothing is shifted.
    """

    centre: FloatArray
    scale: FloatArray
    y_centre: float
    y_scale: float
    has_intercept: bool

    @classmethod
    def of(cls, x: FloatArray, y: FloatArray, *, has_intercept: bool) -> Design:
        """The design by medians and median deviations of some rows, which outliers do not move."""
        table = np.column_stack([x, y])
        centre = np.median(table, axis=0) if has_intercept else np.zeros(table.shape[1])
        scale = np.array([_power_of_two(column) for column in (table - centre).T])
        return cls(centre[:-1], scale[:-1], float(centre[-1]), float(scale[-1]), has_intercept)

    @property
    def n_parameters(self) -> int:
        return len(self.centre) + self.has_intercept

    def rows(self, x: Any) -> FloatArray:
        """The design, shape (n, n_parameters), of rows on the host."""
        z = (np.asarray(x, np.float64) - self.centre) * self.scale
        return np.column_stack([np.ones(len(z)), z]) if self.has_intercept else z

    def target(self, y: Any) -> FloatArray:
        target: FloatArray = (np.asarray(y, np.float64) - self.y_centre) * self.y_scale
        return target

    def coefficients(self, theta: FloatArray) -> tuple[FloatArray, float]:
        """The coefficients of X as it is, and the intercept."""
        slopes = theta[1:] if self.has_intercept else theta
        coef: FloatArray = slopes * self.scale / self.y_scale
        if not self.has_intercept:
            return coef, 0.0
        return coef, float(theta[0] / self.y_scale + self.y_centre - self.centre @ coef)


def _power_of_two(deviations: FloatArray) -> float:
    """One that brings the typical deviation near 1."""
    size = np.abs(deviations)
    typical = np.median(size)
    if not typical > 0:  # of a column that is mostly constant
        typical = size.max(initial=0.0)
    exponent = int(np.frexp(typical)[1]) if typical > 0 else 0
    return math.ldexp(1.0, min(-exponent, MOST_BITS))


def residuals(design: FloatArray, target: FloatArray, theta: FloatArray) -> FloatArray:
    """The residuals of rows on the host, shape (..., n), by the very operations of the kernels, in
    their order; of a fit, or of several, shape (..., p)."""
    found = target
    for i, column in enumerate(design.T):
        found = found - column * theta[..., i, None]
    return found


def rank(design: FloatArray) -> int:
    """The rank of the columns, up to rounding.

    Each row is brought to one size, which changes no rank: a row far out has all columns look like
    itself. Then each column is, for squares not to underflow.
    """
    for axis in (1, 0):
        size = np.abs(design).max(axis=axis, initial=0.0, keepdims=True)
        design = design / np.where(size > 0, size, 1.0)
    triangle = np.linalg.qr(design / _lengths(design), mode="r")
    sizes = np.linalg.svd(triangle, compute_uv=False)
    tolerance = sizes[0] * max(design.shape) * np.finfo(np.float64).eps
    return int((sizes > tolerance).sum())


def _lengths(design: FloatArray) -> FloatArray:
    lengths: FloatArray = np.sqrt((design * design).sum(axis=0))
    return np.where(lengths > 0, lengths, 1.0)


def solve(gram: FloatArray, moment: FloatArray) -> FloatArray:
    """The shortest solutions of normal equations, shapes (..., p, p) and (..., p).

    Columns are brought to one length first. Directions that rounding makes of nothing are left out.
    Zeros where sums have overflowed.
    """
    is_finite: Any = np.isfinite(gram).all(axis=(-2, -1)) & np.isfinite(moment).all(axis=-1)
    gram = np.where(is_finite[..., None, None], gram, 0.0)
    moment = np.where(is_finite[..., None], moment, 0.0)
    length = np.sqrt(np.diagonal(gram, axis1=-2, axis2=-1))
    length = np.where(length > 0, length, 1.0)
    values, vectors = np.linalg.eigh(gram / (length[..., :, None] * length[..., None, :]))
    eps = np.finfo(np.float64).eps
    is_held = values > values[..., -1:] * (gram.shape[-1] * eps)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=is_held)
    along = np.einsum("...ji,...j->...i", vectors, moment / length) * inverse
    solution: FloatArray = np.einsum("...ij,...j->...i", vectors, along) / length
    return solution
