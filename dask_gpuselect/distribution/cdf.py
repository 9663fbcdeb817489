"""Cumulative distributions: by exact counts at some points, or by estimates of shares there. A
monotone spline fills in what is between."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dask_gpuselect.arguments import check_known, public
from dask_gpuselect.arrays import is_array, like, to_host
from dask_gpuselect.distribution.isotonic import isotonic_regression
from dask_gpuselect.distribution.splines import MonotoneQuadraticSpline
from dask_gpuselect.kernels.bins import digitized
from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray
from dask_gpuselect.maths.ranks import ranks
from dask_gpuselect.optional import axes

DRAWN = 2000  # steps of a drawn curve, about

evaluates = public(instead="of a dask array z take z.map_blocks(distribution.cdf, dtype=float)")


class Curve:
    """What the two kinds of distribution have in common: a spline between some points."""

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
        """Without what is made of the rest sooner than it is sent."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def _at(self, z: NDArray[Any], nu: int = 0) -> FloatArray:
        """The spline, or its slope; NaN beyond its knots."""
        z = z.astype(np.float64)
        return np.full_like(z, np.nan) if self.spline is None else self.spline(z, nu)

    def _where(self, y: FloatArray) -> FloatArray:
        """The least abscissa where the spline is up to `y`; NaN where it is that nowhere."""
        return np.full_like(y, np.nan) if self.spline is None else self.spline.inverse(y)


# --- By counts ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EmpiricalDistribution(Curve, Arrays):
    """The distribution of the elements of an array: exact at some points, APPROXIMATE between them.

    Made by `ecdf`. At the points the counts are exact; between two of them a monotone spline says
    how the elements there may lie. What the counts prove is in `cdf_bounds` and `quantile_bounds`,
    and no value of `cdf` or `quantile` is outside of that.

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
        """Of the data."""
        return self.points.dtype

    @cached_property
    def max_error(self) -> float:
        """By how much `cdf` can differ from the exact share, anywhere: the largest share of the
        elements that is between two neighbouring points.

        With k points at evenly spaced ranks it is less than ``1 / (k - 1)``. 0 if no elements are
        between points, and NaN if there are none at all. No smaller bound holds for all data with
        these counts: all elements between two points may lie next to one of them.
        """
        if not self.n_valid:
            return float("nan")
        return int(self._between.max(initial=0)) / self.n_valid

    @property
    def is_jump(self) -> NDArray[np.bool_]:
        """Which points have so many elements that the spline jumps there; see the notes."""
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

    @evaluates
    def cdf(self, z: ArrayLike) -> Any:
        """The share of the elements up to z: exact at the points, APPROXIMATE between them.

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
        return evaluated(self._cdf, z)

    @evaluates
    def cdf_bounds(self, z: ArrayLike) -> tuple[Any, Any]:
        """Between what the share of the elements up to z is, as the exact counts prove.

        Parameters
        ----------
        z : array_like of real numbers, any shape
            As for `cdf`.

        Returns
        -------
        lower, upper : ndarrays of float64, of the shape of `z`, or scalars
            Equal at the points, and where nothing is between two points.

        Raises
        ------
        TypeError
            As `cdf`.
        """
        lower, upper = evaluated(self._bounds, z)
        return lower, upper

    @evaluates
    def pdf(self, z: ArrayLike) -> Any:
        """The density at z, an ESTIMATE: the slope of the spline.

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
        return evaluated(self._pdf, z)

    @evaluates
    def quantile(self, p: ArrayLike) -> Any:
        """The element up to which the share p of all is, APPROXIMATELY: the inverse of `cdf`.

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
        return evaluated(self._quantile, p)

    @evaluates
    def quantile_bounds(self, p: ArrayLike) -> tuple[Any, Any]:
        """Two points, of all, that enclose the exact quantile, as the counts prove.

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
        lower, upper = evaluated(self._enclosing, p)
        return lower, upper

    @evaluates
    def plot(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draw `cdf` with matplotlib, and between which bounds it is exact, in a paler shade.

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
        few = np.union1d(finite[:: -(-len(finite) // DRAWN) or 1], finite[-1:])
        points = self.points[few].astype(np.float64)
        n_inner = DRAWN // max(len(few), 1) + 1
        inner = np.linspace(points[:-1], points[1:], n_inner, endpoint=False)[1:]
        z = np.sort(np.concatenate([points, points, inner.ravel()]))
        y = self._cdf(z)
        lower, upper = self._bounds(z)
        # The first of the two at a point stands for what is left of it.
        left = self.below[few] / max(self.n_valid, 1)
        for curve in (y, lower, upper):
            curve[z.searchsorted(points)] = left
        ax = plotted(z, y, ax, **kwargs)
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
        rank = ranks(self.n_valid, checked_shares(p), "inverted_cdf").lower
        upper = self.upto.searchsorted(rank, side="right")
        return self.below.searchsorted(rank, side="right") - 1, upper

    def _quantile(self, p: NDArray[Any]) -> FloatArray:
        if not self.n_valid:
            return np.full_like(checked_shares(p), np.nan)
        places = self._cell_of(p)
        lower, upper = (self.points[place].astype(np.float64) for place in places)
        found = self._where(p * np.float64(self.n_valid) - self._jumped[places[0]])
        return np.where(found == found, np.clip(found, lower, upper), upper)


# --- By estimates ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EstimatedDistribution(Curve, Arrays):
    """A distribution by estimates of the shares up to some points: APPROXIMATE everywhere.

    Made by `EstimatedDistribution.from_noisy`. Nothing is proven of it.

    Parameters
    ----------
    points : ndarray of float64, shape (k,)
        Ascending and distinct, at least two.
    shares : ndarray of float64, shape (k,)
        In [0, 1], never decreasing.

    Notes
    -----
    Frozen and picklable; see `EmpiricalDistribution` for arrays of other kinds, and the spline,
    that goes through the shares. Loads: none. Memory: 16 bytes a point, and 150 for the spline.
    """

    points: FloatArray
    shares: FloatArray

    @classmethod
    @evaluates
    def from_noisy(
        cls, points: ArrayLike, proportions: ArrayLike, weights: ArrayLike | None = None
    ) -> Self:
        """The distribution that is nearest to proportions which were each found in a sample.

        Parameters
        ----------
        points : array_like of real numbers, shape (k,)
            Ascending and distinct, at least two.
        proportions : array_like of real numbers, shape (k,)
            For each point the share of a sample that was up to it. Of different samples they need
            not ascend.
        weights : array_like of positive numbers, shape (k,), optional
            How many elements each sample had. All the same by default.

        Returns
        -------
        EstimatedDistribution
            Of those that never decrease the one with the least weighted sum of squared differences
            (`isotonic_regression`), held in [0, 1].

        Raises
        ------
        TypeError
            For what is lazy, or no real numbers.
        ValueError
            For other shapes; for points that do not ascend or are not finite; for proportions that
            are not finite; for weights that are not positive.

        Notes
        -----
        Loads: none. It is for estimates: counts of one array at all points are exact and ascend,
        and `ecdf` needs one load for them.

        References
        ----------
        G. Beliakov and S. Liu, "Parallel monotone spline interpolation and approximation on GPUs",
        2013, section 3.

        Examples
        --------
        >>> d = EstimatedDistribution.from_noisy([0, 1, 2, 3], [0.1, 0.6, 0.4, 1.02])
        >>> d.shares.tolist()
        [0.1, 0.5, 0.5, 1.0]
        """
        x, y = on_host(points).astype(np.float64), on_host(proportions).astype(np.float64)
        if x.ndim != 1 or len(x) < 2 or x.shape != y.shape:
            raise ValueError(
                "points and proportions must be one-dimensional, of one length, and two at least, "
                f"not of shapes {x.shape} and {y.shape}"
            )
        if not (np.isfinite(x).all() and np.isfinite(y).all() and (x[1:] > x[:-1]).all()):
            raise ValueError("points must be finite, ascending and distinct; proportions finite")
        fitted = isotonic_regression(y, None if weights is None else on_host(weights))
        return cls(x, np.clip(fitted, 0.0, 1.0))

    @property
    def knots(self) -> tuple[FloatArray, FloatArray]:
        """The points and shares."""
        return self.points, self.shares

    @evaluates
    def cdf(self, z: ArrayLike) -> Any:
        """The share of the elements up to z, an ESTIMATE; NaN beyond the points, and where z is.

        See `EmpiricalDistribution.cdf` for what z may be, and what is returned and raised.
        """
        return evaluated(self._at, z)

    @evaluates
    def pdf(self, z: ArrayLike) -> Any:
        """The density at z, an ESTIMATE: the slope of the spline; NaN where `cdf` is."""
        return evaluated(lambda values: self._at(values, nu=1), z)

    @evaluates
    def quantile(self, p: ArrayLike) -> Any:
        """The least value up to which the share p of the elements is, an ESTIMATE.

        NaN for a p that is less than the first of the shares, or more than the last. See
        `EmpiricalDistribution.quantile` for what p may be, and what is returned and raised.
        """
        return evaluated(lambda shares: self._where(checked_shares(shares)), p)

    @evaluates
    def plot(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draw `cdf` with matplotlib; see `EmpiricalDistribution.plot`."""
        z = np.linspace(self.points[0], self.points[-1], DRAWN)
        return plotted(z, self._at(z), ax, **kwargs)

    @property
    def max_error(self) -> float:
        """Raises TypeError: nothing is proven of estimates."""
        raise nothing_proven()

    @evaluates
    def cdf_bounds(self, z: ArrayLike) -> tuple[Any, Any]:
        """Raises TypeError: nothing is proven of estimates."""
        raise nothing_proven()

    @evaluates
    def quantile_bounds(self, p: ArrayLike) -> tuple[Any, Any]:
        """Raises TypeError: nothing is proven of estimates."""
        raise nothing_proven()


def nothing_proven() -> TypeError:
    return TypeError(
        "bounds are proven by exact counts, and these shares are estimates: `ecdf` counts"
    )


# --- Arguments ------------------------------------------------------------------------------------


def evaluated(function: Any, argument: Any) -> Any:
    """What a function of a NumPy array gives, an array or several, in the kind of its argument."""
    found = function(on_host(argument))
    if isinstance(found, tuple):
        return tuple(_in_kind(each, argument) for each in found)
    return _in_kind(found, argument)


def _in_kind(found: NDArray[Any], argument: Any) -> Any:
    if isinstance(argument, np.ndarray | np.generic) or not is_array(argument):
        return found[()]
    return like(found, argument)


def on_host(argument: Any) -> NDArray[Any]:
    """Real numbers as a NumPy array."""
    is_other = is_array(argument) and not isinstance(argument, np.ndarray | np.generic)
    host = np.asarray(to_host(argument) if is_other else argument)
    if host.dtype.kind not in "biuf":
        raise TypeError(f"expected real numbers, not {host.dtype}")
    return host


def checked_shares(p: NDArray[Any]) -> FloatArray:
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("p must lie in [0, 1]")
    return p.astype(np.float64)


def places_among(points: NDArray[Any], z: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """How many of the ascending points are < and <= each z, compared as real numbers."""
    z = z if z.dtype.itemsize <= 8 else z.astype(np.float64)
    return digitized(z, points, right=True), digitized(z, points, right=False)


def plotted(x: FloatArray, y: FloatArray, ax: Any, **kwargs: Any) -> Any:
    """A curve of shares, drawn with matplotlib."""
    ax = axes(ax)
    ax.plot(x, y, **kwargs)
    ax.set(xlabel="x", ylabel="share of the elements up to x")
    return ax
