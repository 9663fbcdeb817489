"""`EstimatedDistribution`, made from estimated shares of the elements up to some points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from dask_gpuselect.arguments import on_host
from dask_gpuselect.arrays import in_kind
from dask_gpuselect.distribution import curves
from dask_gpuselect.distribution.isotonic import isotonic_regression
from dask_gpuselect.maths.cuts import Arrays, FloatArray
from dask_gpuselect.optional import Advising


@dataclass(frozen=True, eq=False)
class EstimatedDistribution(Advising, curves.Curve, Arrays):
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
    @curves.evaluates
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

    @curves.evaluates
    def cdf(self, z: ArrayLike) -> Any:
        """Estimate the share of the elements that are at most z; NaN outside the points.

        See `EmpiricalDistribution.cdf` for the argument, the shape of the answer, and the errors.
        """
        return in_kind(self._at(on_host(z)), z)

    @curves.evaluates
    def pdf(self, z: ArrayLike) -> Any:
        """Estimate the density at z by the slope of the spline; NaN where `cdf` is NaN.

        See `EmpiricalDistribution.pdf` for the argument, the shape of the answer, and the errors.
        """
        return in_kind(self._at(on_host(z), nu=1), z)

    @curves.evaluates
    def quantile(self, p: ArrayLike) -> Any:
        """Estimate the quantile at p: the smallest value at which `cdf` is at least p.

        NaN if p is less than the first share or more than the last. See
        `EmpiricalDistribution.quantile` for the argument, the shape of the answer, and the errors.
        """
        return in_kind(self._where(curves.checked_shares(p)), p)

    @curves.evaluates
    def plot(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draw `cdf` with matplotlib; see `EmpiricalDistribution.plot`."""
        z = np.linspace(self.points[0], self.points[-1], curves.DRAWN)
        return curves.plotted(z, self._at(z), ax, **kwargs)

    def _advice(self, name: str) -> str:
        if name in ("max_error", "cdf_bounds", "quantile_bounds"):
            return "estimates have no proven bounds, and the counts of an array have: type ecdf(x)"
        return super()._advice(name)
