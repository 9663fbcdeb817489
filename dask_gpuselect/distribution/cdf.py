"""The distribution of data by exact counts at some points, with a monotone spline between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dask_gpuselect.distribution import curves
from dask_gpuselect.kernels.bins import digitized
from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray
from dask_gpuselect.maths.ranks import ranks


@dataclass(frozen=True, eq=False)
class EmpiricalDistribution(curves.Curve, Arrays):
    """The distribution of the elements of an array: exact at k points, approximate between them.

    `ecdf` makes it. The counts at the points are exact. Between two points, a monotone spline
    interpolates. `cdf_bounds` and `quantile_bounds` give the bounds that the counts prove, which
    `cdf` and `quantile` never leave.

    Parameters
    ----------
    points : ndarray, shape (k,), dtype of the data
        Ascending and distinct, the least and the largest element among them; none if there are no
        elements.
    below, upto : ndarray of int64, shape (k,)
        How many elements are < and <= each point. Exact.
    n_valid, n_missing : int
        How many elements, and how many NaN, which are left out.

    Raises
    ------
    ValueError
        If these are no such counts.

    Notes
    -----
    Frozen, picklable, and on the host: methods take and give NumPy arrays, and of CuPy or other
    array-API arrays such of their kind, evaluated on the host. For a dask array z there is
    ``z.map_blocks(distribution.cdf, dtype=float)``. Loads: none.

    Memory: 24 bytes a point, and 150 more for the spline.

    The spline is Schumaker's quadratic with Butland's slopes (`MonotoneQuadraticSpline`), of counts
    in float64. A point is a *jump* (`is_jump`) if more elements equal it than the chance variation
    of the counts beside it can be, ``ties**2 > n_left + n_right`` for that many elements between it
    and its neighbours. `cdf` steps up there, and the spline goes through the counts without those
    elements, as if a continuous distribution were mixed with a discrete one. A single element of
    continuous data is none, unless nothing is beside it; if every element is a point, `cdf` is the
    step function that counts them.

    No spline leads to an infinite point, and `cdf` is flat beside it: elements before the first
    finite point are taken to be at that, those behind the last one at infinity.

    Examples
    --------
    >>> import numpy as np
    >>> below, upto = np.array([0, 3, 9]), np.array([1, 5, 10])
    >>> d = EmpiricalDistribution(np.array([0, 4, 9]), below, upto, n_valid=10, n_missing=0)
    >>> d.cdf([-1, 0, 4, 9]).tolist(), d.max_error
    ([0.0, 0.1, 0.5, 1.0], 0.4)
    >>> d.cdf_bounds([6])
    (array([0.5]), array([0.9]))
    >>> d.quantile_bounds([0.2, 0.5])
    (array([0, 4]), array([4, 4]))
    """

    points: NDArray[Any]
    below: IntArray
    upto: IntArray
    n_valid: int
    n_missing: int

    def __post_init__(self) -> None:
        super().__post_init__()
        is_right = self.points.shape == self.below.shape == self.upto.shape == (len(self.points),)
        if is_right:
            counts = np.stack([self.below, self.upto], axis=1).ravel()
            ends = (counts[0], counts[-1]) if len(counts) else (0, 0)
            is_right = ends == (0, self.n_valid) and bool((np.diff(counts) >= 0).all())
            is_right = is_right and bool((self.points[1:] > self.points[:-1]).all())
        if not is_right:
            raise ValueError(
                "points must be ascending and distinct, and the counts below and up to them ascend "
                "from 0, below the first one, to n_valid, up to the last one"
            )

    def __repr__(self) -> str:
        missing = f", {self.n_missing:,} NaN" if self.n_missing else ""
        return (
            f"<EmpiricalDistribution of {self.n_valid:,} {self.dtype}{missing}: exact at "
            f"{len(self.points):,} points, within {self.max_error:.3g} between them>"
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the data."""
        return self.points.dtype

    @cached_property
    def max_error(self) -> float:
        """The most by which `cdf` can differ from the exact share, anywhere.

        It is the largest share of the elements that is between two neighbouring points.

        With k points at evenly spaced ranks it is less than ``1 / (k - 1)``. 0 if no elements are
        between points, and NaN if there are none at all. No smaller bound holds for all data with
        these counts: all elements between two points may lie next to one of them.
        """
        if not self.n_valid:
            return float("nan")
        return int(self._between.max(initial=0)) / self.n_valid

    @property
    def is_jump(self) -> NDArray[np.bool_]:
        """Whether so many elements equal a point that `cdf` jumps there; see the notes."""
        ties = (self.upto - self.below).astype(np.float64)
        beside = np.append(0, self._between) + np.append(self._between, 0)
        return np.asarray(ties * ties > beside)

    @cached_property
    def knots(self) -> tuple[FloatArray, FloatArray]:
        """The finite points, and how many elements are up to each without those that jump: what the
        spline goes through."""
        is_finite = np.isfinite(self.points)
        counts = (self.upto - self._jumped)[is_finite]
        return self.points[is_finite].astype(np.float64), counts.astype(np.float64)

    @curves.evaluates
    def cdf(self, z: ArrayLike) -> Any:
        """The share of the elements up to z: exact at the points, approximate between them.

        Parameters
        ----------
        z : array_like of real numbers, any shape
            Compared with the points exactly, integers of 64 bits too.

        Returns
        -------
        ndarray of float64, of the shape of `z`, or a scalar
            Within `cdf_bounds`, and so within `max_error` of the exact share. It never decreases;
            0 below the least element, 1 from the largest one on. NaN where z is, and everywhere if
            there are no elements.

        Raises
        ------
        TypeError
            For z that is lazy, or no real numbers.
        """
        return curves.evaluated(self._cdf, z)

    @curves.evaluates
    def cdf_bounds(self, z: ArrayLike) -> tuple[Any, Any]:
        """Lower and upper bounds of the share of the elements that are at most z.

        Parameters
        ----------
        z : array_like of real numbers, any shape
            As for `cdf`.

        Returns
        -------
        lower, upper : ndarrays of float64, of the shape of `z`, or scalars
            The exact counts prove these bounds. They are equal at the points, and between two
            points that have no elements between them.

        Raises
        ------
        TypeError
            As `cdf`.
        """
        lower, upper = curves.evaluated(self._bounds, z)
        return lower, upper

    @curves.evaluates
    def pdf(self, z: ArrayLike) -> Any:
        """The estimated density at z: the slope of the spline.

        Parameters
        ----------
        z : array_like of real numbers, any shape
            As for `cdf`.

        Returns
        -------
        ndarray of float64, of the shape of `z`, or a scalar
            At a point the slope to its right. What jumps is left out: it has no density (see
            `is_jump`). 0 where nothing is between two points, beyond the finite points, and
            NaN where z is, or if there are no elements.

        Raises
        ------
        TypeError
            As `cdf`.

        Notes
        -----
        Nothing is proven of it, and it is continuous but not smooth. It needs many elements between
        neighbouring points: of c of them its relative error is about ``1 / sqrt(c)`` at least.
        """
        return curves.evaluated(self._pdf, z)

    @curves.evaluates
    def quantile(self, p: ArrayLike) -> Any:
        """The approximate quantile at p: the inverse of `cdf`.

        Parameters
        ----------
        p : array_like of floats in [0, 1], any shape

        Returns
        -------
        ndarray of float64, of the shape of `p`, or a scalar
            Within `quantile_bounds`, and exact where these are equal. NaN if there are no elements.

        Raises
        ------
        TypeError
            For p that is lazy, or no real numbers.
        ValueError
            For p outside [0, 1] or NaN.
        """
        return curves.evaluated(self._quantile, p)

    @curves.evaluates
    def quantile_bounds(self, p: ArrayLike) -> tuple[Any, Any]:
        """Two points between which the exact quantile at p lies.

        Parameters
        ----------
        p : array_like of floats in [0, 1], any shape

        Returns
        -------
        lower, upper : ndarrays of the dtype of the data, of the shape of `p`, or scalars
            What ``quantile(x, p, method="inverted_cdf")`` gives is equal to both, where that is an
            element that equals a point, or strictly between them.

        Raises
        ------
        TypeError
            For p that is lazy, or no real numbers.
        ValueError
            For p outside [0, 1] or NaN; if there are no elements.
        """
        if not self.n_valid:
            raise ValueError("there are no elements, and so no quantiles")
        lower, upper = curves.evaluated(self._enclosing, p)
        return lower, upper

    @curves.evaluates
    def plot(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draw `cdf` with matplotlib, and the bounds that the counts prove in a paler shade.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            A new figure's by default.
        **kwargs
            For `matplotlib.axes.Axes.plot`.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            Without matplotlib.
        """
        finite = np.flatnonzero(np.isfinite(self.points))
        few = np.union1d(finite[:: -(-len(finite) // curves.DRAWN) or 1], finite[-1:])
        points = self.points[few].astype(np.float64)
        n_inner = curves.DRAWN // max(len(few), 1) + 1
        inner = np.linspace(points[:-1], points[1:], n_inner, endpoint=False)[1:]
        z = np.sort(np.concatenate([points, points, inner.ravel()]))
        y = self._cdf(z)
        lower, upper = self._bounds(z)
        # The first of the two at a point stands for what is left of it.
        left = self.below[few] / max(self.n_valid, 1)
        for curve in (y, lower, upper):
            curve[z.searchsorted(points)] = left
        ax = curves.plotted(z, y, ax, **kwargs)
        ax.fill_between(z, lower, upper, color=ax.lines[-1].get_color(), alpha=0.25, linewidth=0)
        return ax

    # --- On the host ------------------------------------------------------------------------------

    @cached_property
    def _between(self) -> IntArray:
        """How many elements are between each point and the next."""
        return self.below[1:] - self.upto[:-1]

    @cached_property
    def _jumped(self) -> IntArray:
        """How many elements, up to each point, jump."""
        return np.cumsum(np.where(self.is_jump, self.upto - self.below, 0))

    def _bounds(self, z: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        return self._bounds_at(z, *places_among(self.points, z))

    def _bounds_at(
        self, z: NDArray[Any], before: IntArray, reached: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        least = np.append(np.int64(0), self.upto)[reached]
        most = np.append(self.below, self.n_valid)[before]
        bounds = least, np.where(before < reached, least, most)
        is_known = (z == z) & (self.n_valid > 0)
        lower, upper = (np.where(is_known, n / max(self.n_valid, 1), np.nan) for n in bounds)
        return lower, upper

    def _cdf(self, z: NDArray[Any]) -> FloatArray:
        before, reached = places_among(self.points, z)
        lower, upper = self._bounds_at(z, before, reached)
        jumped = np.append(np.int64(0), self._jumped)[reached]
        filled = (self._at(z) + jumped) / max(self.n_valid, 1)
        return np.where(filled == filled, np.clip(filled, lower, upper), lower)

    def _pdf(self, z: NDArray[Any]) -> FloatArray:
        _, reached = places_among(self.points, z)
        inside = np.concatenate([[0], self._between, [0]])[reached]
        slope = self._at(z, nu=1) / max(self.n_valid, 1)
        slope = np.where((inside > 0) & (slope == slope), slope, 0.0)
        return np.where((z == z) & (self.n_valid > 0), slope, np.nan)

    def _enclosing(self, p: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        lower, upper = self._cell_of(p)
        return self.points[lower], self.points[upper]

    def _cell_of(self, p: NDArray[Any]) -> tuple[IntArray, IntArray]:
        """The points that enclose the quantiles of some shares: their places."""
        rank = ranks(self.n_valid, curves.checked_shares(p), "inverted_cdf").lower
        upper = self.upto.searchsorted(rank, side="right")
        return self.below.searchsorted(rank, side="right") - 1, upper

    def _quantile(self, p: NDArray[Any]) -> FloatArray:
        if not self.n_valid:
            return np.full_like(curves.checked_shares(p), np.nan)
        places = self._cell_of(p)
        lower, upper = (self.points[place].astype(np.float64) for place in places)
        found = self._where(p * np.float64(self.n_valid) - self._jumped[places[0]])
        return np.where(found == found, np.clip(found, lower, upper), upper)


def places_among(points: NDArray[Any], z: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """How many of the ascending points are < and <= each z, compared as real numbers."""
    z = z if z.dtype.itemsize <= 8 else z.astype(np.float64)
    return digitized(z, points, right=True), digitized(z, points, right=False)
