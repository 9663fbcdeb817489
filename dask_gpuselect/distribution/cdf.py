"""Cumulative distributions: counts or estimates at some points, a monotone spline between them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dask_gpuselect.arguments import check_known, on_host, public
from dask_gpuselect.arrays import in_kind
from dask_gpuselect.distribution.isotonic import isotonic_regression
from dask_gpuselect.distribution.splines import MonotoneQuadraticSpline
from dask_gpuselect.kernels.bins import digitized
from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray
from dask_gpuselect.maths.ranks import ranks
from dask_gpuselect.optional import Advising, axes

DRAWN = 2000  # approximate number of steps of a drawn curve

evaluates = public(instead="for a dask array z, type z.map_blocks(distribution.cdf, dtype=float)")


class Curve:
    """Base of both kinds of distribution: a spline between some points."""

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            check_known(getattr(self, field.name), field.name)

    @property
    def knots(self) -> tuple[FloatArray, FloatArray]:
        """The abscissae and ordinates that the spline goes through."""
        raise NotImplementedError

    @cached_property
    def spline(self) -> MonotoneQuadraticSpline | None:
        """The spline through the `knots`; None if there is nothing between them."""
        x, y = self.knots
        is_any = len(x) > 1 and x[0] < x[-1]
        return MonotoneQuadraticSpline(x, y, extrapolate=False) if is_any else None

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone, without cached values that follow from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def _at(self, z: NDArray[Any], nu: int = 0) -> FloatArray:
        """Evaluate the spline, or its slope; NaN beyond its knots."""
        z = z.astype(np.float64)
        return np.full_like(z, np.nan) if self.spline is None else self.spline(z, nu)

    def _where(self, y: FloatArray) -> FloatArray:
        """Return the least abscissa at which the spline reaches `y`; NaN if there is none."""
        return np.full_like(y, np.nan) if self.spline is None else self.spline.inverse(y)


def checked_shares(p: ArrayLike) -> FloatArray:
    """Return shares as float64 on the host, or raise if one is outside [0, 1]."""
    shares = on_host(p)
    outside = ~((shares >= 0) & (shares <= 1))  # NaN too
    if outside.any():
        raise ValueError(f"p must be in [0, 1], not {shares[outside].flat[0]}")
    return shares.astype(np.float64)


def plotted(x: FloatArray, y: FloatArray, ax: Any, **kwargs: Any) -> Any:
    """Draw a curve of shares with matplotlib."""
    ax = axes(ax)
    ax.plot(x, y, **kwargs)
    ax.set(xlabel="x", ylabel="share of the elements up to x")
    return ax


@dataclass(frozen=True, eq=False)
class EmpiricalDistribution(Curve, Arrays):
    """The distribution of the elements of an array: exact at k points, approximate between them.

    `ecdf` makes it. The counts at the points are exact. Between two points, a monotone spline
    interpolates. `cdf_bounds` and `quantile_bounds` give the bounds that the counts prove. `cdf`
    and `quantile` always stay within them.

    Parameters
    ----------
    points : ndarray, shape (k,)
        Ascending and distinct, in the dtype of the data. The minimum and the maximum are among
        them. Empty if there are no elements.
    below, upto : ndarray of int64, shape (k,)
        The number of elements that are < and <= each point. Exact.
    n_valid : int
        The number of elements, without NaN.
    n_missing : int
        The number of NaN, which are left out.

    Raises
    ------
    ValueError
        If the points do not ascend, or if these cannot be the counts at them.

    See Also
    --------
    ecdf : Makes the distribution of an array.

    Notes
    -----
    A distribution cannot be changed, can be pickled, and is stored on the host. Its methods take
    array_like arguments. CuPy and other array-API arrays are copied to the host, and the answer is
    an array of their kind. For a dask array z, use ``z.map_blocks(distribution.cdf, dtype=float)``.
    Nothing is read.

    Memory: 24 bytes for each point. The first use of `cdf`, `pdf`, `quantile` or `plot` makes the
    spline, which holds about 260 bytes for each point, and 360 while it is made.

    Spline: Schumaker's quadratic spline with Butland's slopes (`MonotoneQuadraticSpline`) goes
    through the counts in float64.

    Ties: a point is a *jump* (`is_jump`) if so many elements equal it that chance does not explain
    it: ``ties**2 > n_left + n_right``, for that many elements between the point and its two
    neighbours. `cdf` steps up there. The spline goes through the counts without the elements at
    jumps, as if a continuous and a discrete distribution were mixed. A single element is a jump
    only if there is no element between it and its neighbours. If every element is a point, `cdf` is
    the step function that counts them.

    Infinity: the spline ends at the first and the last finite point. Elements before the first
    finite point count as equal to it, and elements behind the last one as infinite. `cdf` is flat
    there.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_gpuselect.distribution import EmpiricalDistribution
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
                "points, below and upto must be one-dimensional and of one length, points "
                "ascending and distinct, and the counts ascending from below[0] = 0 to upto[-1] = "
                "n_valid: type ecdf(x) to count"
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
        """Largest possible difference between `cdf` and the exact share, anywhere.

        It is the largest share of the elements that lies between two neighbouring points. With k
        points at evenly spaced ranks it is less than ``1 / (k - 1)``. It is 0 if no elements are
        between points, and NaN if there are no elements at all. No smaller bound holds for all data
        with these counts, because all elements between two points may lie next to one of them.
        """
        if not self.n_valid:
            return float("nan")
        return int(self._between.max(initial=0)) / self.n_valid

    @property
    def is_jump(self) -> NDArray[np.bool_]:
        """Whether `cdf` jumps at each point because many elements equal it.

        A bool array of shape (k,). The notes of the class have the rule.
        """
        ties = (self.upto - self.below).astype(np.float64)
        beside = np.append(0, self._between) + np.append(self._between, 0)
        return np.asarray(ties * ties > beside)

    @cached_property
    def knots(self) -> tuple[FloatArray, FloatArray]:
        """The points that the spline goes through, as abscissae and ordinates.

        The abscissae are the finite points, as float64. The ordinates are the numbers of elements
        up to them, without the elements at jumps.
        """
        is_finite = np.isfinite(self.points)
        counts = (self.upto - self._jumped)[is_finite]
        return self.points[is_finite].astype(np.float64), counts.astype(np.float64)

    @evaluates
    def cdf(self, z: ArrayLike) -> Any:
        """Return the share of the elements up to z: exact at the points, approximate between them.

        Parameters
        ----------
        z : array_like of real numbers, any shape
            Compared with the points exactly, also as 64-bit integers.

        Returns
        -------
        float64 scalar or ndarray, of the shape of `z`
            Within `cdf_bounds`, and so within `max_error` of the exact share. It never decreases as
            z increases. It is 0 below the minimum, and 1 from the maximum on. NaN if z is NaN or if
            there are no elements.

        Raises
        ------
        TypeError
            If `z` is lazy or not of real numbers.
        """
        values = on_host(z)
        before, reached = places_among(self.points, values)
        lower, upper = self._bounds_at(values, before, reached)
        jumped = np.append(np.int64(0), self._jumped)[reached]
        filled = (self._at(values) + jumped) / max(self.n_valid, 1)
        return in_kind(np.where(filled == filled, np.clip(filled, lower, upper), lower), z)

    @evaluates
    def cdf_bounds(self, z: ArrayLike) -> tuple[Any, Any]:
        """Return lower and upper bounds of the share of the elements that are at most z.

        Parameters
        ----------
        z : array_like of real numbers, any shape
            As for `cdf`.

        Returns
        -------
        lower, upper : float64 scalars or ndarrays, of the shape of `z`
            The exact counts prove these bounds. The two are equal at the points, and between two
            points that have no elements between them.

        Raises
        ------
        TypeError
            If `z` is lazy or not of real numbers.
        """
        values = on_host(z)
        lower, upper = self._bounds_at(values, *places_among(self.points, values))
        return in_kind(lower, z), in_kind(upper, z)

    @evaluates
    def pdf(self, z: ArrayLike) -> Any:
        """Estimate the density at z by the slope of the spline.

        Parameters
        ----------
        z : array_like of real numbers, any shape
            As for `cdf`.

        Returns
        -------
        float64 scalar or ndarray, of the shape of `z`
            At a point, the slope to its right. Elements at jumps have no density and are left out
            (see `is_jump`). 0 between two points that have no elements between them, and outside
            the finite points. NaN if z is NaN or if there are no elements.

        Raises
        ------
        TypeError
            If `z` is lazy or not of real numbers.

        Notes
        -----
        Nothing is proven about the density. It is continuous but not smooth. It needs many elements
        between neighbouring points: with c of them, its relative error is at least about
        ``1 / sqrt(c)``.
        """
        values = on_host(z)
        _, reached = places_among(self.points, values)
        inside = np.concatenate([[0], self._between, [0]])[reached]
        slope = self._at(values, nu=1) / max(self.n_valid, 1)
        slope = np.where((inside > 0) & (slope == slope), slope, 0.0)
        return in_kind(np.where((values == values) & (self.n_valid > 0), slope, np.nan), z)

    @evaluates
    def quantile(self, p: ArrayLike) -> Any:
        """Approximate the quantile at p by the inverse of `cdf`.

        Parameters
        ----------
        p : array_like of floats, any shape
            Shares in [0, 1].

        Returns
        -------
        float64 scalar or ndarray, of the shape of `p`
            Within `quantile_bounds`, and exact if the two bounds are equal. NaN if there are no
            elements.

        Raises
        ------
        TypeError
            If `p` is lazy or not of real numbers.
        ValueError
            If an element of `p` is outside [0, 1] or NaN.
        """
        shares = checked_shares(p)
        if not self.n_valid:
            return in_kind(np.full_like(shares, np.nan), p)
        places = self._cell_of(shares)
        lower, upper = (self.points[place].astype(np.float64) for place in places)
        reached = self._where(shares * np.float64(self.n_valid) - self._jumped[places[0]])
        return in_kind(np.where(reached == reached, np.clip(reached, lower, upper), upper), p)

    @evaluates
    def quantile_bounds(self, p: ArrayLike) -> tuple[Any, Any]:
        """Return two points between which the exact quantile at p lies.

        Parameters
        ----------
        p : array_like of floats, any shape
            Shares in [0, 1].

        Returns
        -------
        lower, upper : scalars or ndarrays of the dtype of the data, of the shape of `p`
            Bounds of ``quantile(x, p, method="inverted_cdf")``. If that element is a point, both
            bounds equal it. Otherwise it is strictly between them.

        Raises
        ------
        TypeError
            If `p` is lazy or not of real numbers.
        ValueError
            If an element of `p` is outside [0, 1] or NaN, or if there are no elements.
        """
        if not self.n_valid:
            raise ValueError(
                "there are no elements, and so no bounds of quantiles: check n_valid first"
            )
        lower, upper = self._cell_of(checked_shares(p))
        return in_kind(self.points[lower], p), in_kind(self.points[upper], p)

    @evaluates
    def plot(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draw `cdf` with matplotlib, and the bounds that the counts prove in a paler shade.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw. By default the axes of a new figure.
        **kwargs
            Passed to `matplotlib.axes.Axes.plot`.

        Returns
        -------
        matplotlib.axes.Axes
            The axes that were drawn on.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        finite = np.flatnonzero(np.isfinite(self.points))
        few = np.union1d(finite[:: -(-len(finite) // DRAWN) or 1], finite[-1:])
        points = self.points[few].astype(np.float64)
        n_inner = DRAWN // max(len(few), 1) + 1
        inner = np.linspace(points[:-1], points[1:], n_inner, endpoint=False)[1:]
        z = np.sort(np.concatenate([points, points, inner.ravel()]))
        y, (lower, upper) = self.cdf(z), self.cdf_bounds(z)
        # Each point occurs twice. The first of the two has the value to the left of the point.
        left = self.below[few] / max(self.n_valid, 1)
        for curve in (y, lower, upper):
            curve[z.searchsorted(points)] = left
        ax = plotted(z, y, ax, **kwargs)
        ax.fill_between(z, lower, upper, color=ax.lines[-1].get_color(), alpha=0.25, linewidth=0)
        return ax

    # --- On the host ------------------------------------------------------------------------------

    @cached_property
    def _between(self) -> IntArray:
        """The number of elements between each point and the next."""
        return self.below[1:] - self.upto[:-1]

    @cached_property
    def _jumped(self) -> IntArray:
        """The number of elements up to each point that are at jumps."""
        return np.cumsum(np.where(self.is_jump, self.upto - self.below, 0))

    def _bounds_at(
        self, z: NDArray[Any], before: IntArray, reached: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the bounds of the shares, by the numbers of points below and up to each value."""
        least = np.append(np.int64(0), self.upto)[reached]
        most = np.append(self.below, self.n_valid)[before]
        bounds = least, np.where(before < reached, least, most)
        is_known = (z == z) & (self.n_valid > 0)
        lower, upper = (np.where(is_known, n / max(self.n_valid, 1), np.nan) for n in bounds)
        return lower, upper

    def _cell_of(self, p: FloatArray) -> tuple[IntArray, IntArray]:
        """Return the positions of the points that enclose the quantiles of some shares."""
        rank = ranks(self.n_valid, p, "inverted_cdf").lower
        upper = self.upto.searchsorted(rank, side="right")
        return self.below.searchsorted(rank, side="right") - 1, upper


def places_among(points: NDArray[Any], z: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Return how many of the ascending points are < and <= each z, compared as real numbers."""
    z = z if z.dtype.itemsize <= 8 else z.astype(np.float64)
    return digitized(z, points, right=True), digitized(z, points, right=False)


# --- Estimates ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EstimatedDistribution(Advising, Curve, Arrays):
    """A distribution made from estimated shares of the elements up to some points.

    `EstimatedDistribution.from_noisy` makes it. It is approximate everywhere and has no bounds.

    Parameters
    ----------
    points : ndarray of float64, shape (k,)
        Ascending and distinct, at least two.
    shares : ndarray of float64, shape (k,)
        The share of the elements up to each point, in [0, 1], never decreasing.

    See Also
    --------
    ecdf : The distribution of an array by exact counts.

    Notes
    -----
    A distribution cannot be changed, can be pickled, and is stored on the host. Arguments of its
    methods are those of `EmpiricalDistribution`. A `MonotoneQuadraticSpline` goes through the
    shares. Nothing is read.

    Memory: 16 bytes for each point. The first use of a method makes the spline, which holds about
    225 bytes for each point.
    """

    points: FloatArray
    shares: FloatArray

    @classmethod
    @evaluates
    def from_noisy(
        cls, points: ArrayLike, proportions: ArrayLike, weights: ArrayLike | None = None
    ) -> Self:
        """Fit a distribution to proportions that were each measured in a sample.

        Parameters
        ----------
        points : array_like of real numbers, shape (k,)
            Ascending and distinct, at least two.
        proportions : array_like of real numbers, shape (k,)
            For each point, the share of a sample that was at most the point. As the samples may
            differ, these need not ascend.
        weights : array_like of positive numbers, shape (k,), optional
            The number of elements in each sample. By default all samples weigh the same.

        Returns
        -------
        EstimatedDistribution
            Its shares never decrease and have the smallest weighted sum of squared differences from
            `proportions` (`isotonic_regression`). They are clipped to [0, 1].

        Raises
        ------
        TypeError
            If an argument is lazy or not of real numbers.
        ValueError
            If the shapes differ or are not (k,), if points do not ascend or are not finite, if
            proportions are not finite, or if weights are not positive and finite.
        ImportError
            If SciPy is not installed.

        Notes
        -----
        Nothing is read. Use this for estimates only. If you have the array itself, `ecdf` counts at
        given points exactly, reading each chunk once.

        References
        ----------
        G. Beliakov and S. Liu, "Parallel monotone spline interpolation and approximation on GPUs",
        2013, section 3.

        Examples
        --------
        >>> from dask_gpuselect.distribution import EstimatedDistribution
        >>> d = EstimatedDistribution.from_noisy([0, 1, 2, 3], [0.1, 0.6, 0.4, 1.02])
        >>> d.shares.tolist()
        [0.1, 0.5, 0.5, 1.0]
        """
        x, y = on_host(points).astype(np.float64), on_host(proportions).astype(np.float64)
        if x.ndim != 1 or len(x) < 2 or x.shape != y.shape:
            raise ValueError(
                "points and proportions must be one-dimensional and of one length, at least 2, not "
                f"of shapes {x.shape} and {y.shape}"
            )
        if not (np.isfinite(x).all() and np.isfinite(y).all() and (x[1:] > x[:-1]).all()):
            raise ValueError(
                "points must be finite, ascending and distinct, and proportions "
                "finite: sort both by points, and leave out NaN and repeated points"
            )
        fitted = isotonic_regression(y, None if weights is None else on_host(weights))
        return cls(x, np.clip(fitted, 0.0, 1.0))

    @property
    def knots(self) -> tuple[FloatArray, FloatArray]:
        """The points, and the shares of the elements up to them."""
        return self.points, self.shares

    @evaluates
    def cdf(self, z: ArrayLike) -> Any:
        """Estimate the share of the elements that are at most z; NaN outside the points.

        See `EmpiricalDistribution.cdf` for the argument, the shape of the answer, and the errors.
        """
        return in_kind(self._at(on_host(z)), z)

    @evaluates
    def pdf(self, z: ArrayLike) -> Any:
        """Estimate the density at z by the slope of the spline; NaN where `cdf` is NaN.

        See `EmpiricalDistribution.pdf` for the argument, the shape of the answer, and the errors.
        """
        return in_kind(self._at(on_host(z), nu=1), z)

    @evaluates
    def quantile(self, p: ArrayLike) -> Any:
        """Estimate the quantile at p: the smallest value at which `cdf` is at least p.

        NaN if p is less than the first share or more than the last. See
        `EmpiricalDistribution.quantile` for the argument, the shape of the answer, and the errors.
        """
        return in_kind(self._where(checked_shares(p)), p)

    @evaluates
    def plot(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draw `cdf` with matplotlib; see `EmpiricalDistribution.plot`."""
        z = np.linspace(self.points[0], self.points[-1], DRAWN)
        return plotted(z, self._at(z), ax, **kwargs)

    def _advice(self, name: str) -> str:
        if name in ("max_error", "cdf_bounds", "quantile_bounds"):
            return "estimates have no proven bounds, and the counts of an array have: type ecdf(x)"
        return super()._advice(name)
