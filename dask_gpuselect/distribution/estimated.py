"""A distribution by estimates of the shares up to some points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from dask_gpuselect.arguments import on_host
from dask_gpuselect.distribution import curves
from dask_gpuselect.distribution.isotonic import isotonic_regression
from dask_gpuselect.maths.cuts import Arrays, FloatArray


@dataclass(frozen=True, eq=False)
class EstimatedDistribution(curves.Curve, Arrays):
    """A distribution made from estimated shares of the elements up to some points.

    `EstimatedDistribution.from_noisy` makes it. It is approximate everywhere, without any bounds.

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
    @curves.evaluates
    def from_noisy(
        cls, points: ArrayLike, proportions: ArrayLike, weights: ArrayLike | None = None
    ) -> Self:
        """Fit a distribution to proportions, each of which was measured in a sample.

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
        """The points, and the shares of the elements up to them."""
        return self.points, self.shares

    @curves.evaluates
    def cdf(self, z: ArrayLike) -> Any:
        """The estimated share of the elements that are at most z; NaN beyond the points.

        See `EmpiricalDistribution.cdf` for what z may be, and what is returned and raised.
        """
        return curves.evaluated(self._at, z)

    @curves.evaluates
    def pdf(self, z: ArrayLike) -> Any:
        """The estimated density at z: the slope of the spline; NaN where `cdf` is NaN."""
        return curves.evaluated(lambda values: self._at(values, nu=1), z)

    @curves.evaluates
    def quantile(self, p: ArrayLike) -> Any:
        """The estimated quantile at p: the least value at which `cdf` is at least p.

        NaN for a p that is less than the first of the shares, or more than the last. See
        `EmpiricalDistribution.quantile` for what p may be, and what is returned and raised.
        """
        return curves.evaluated(lambda shares: self._where(curves.checked_shares(shares)), p)

    @curves.evaluates
    def plot(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draw `cdf` with matplotlib; see `EmpiricalDistribution.plot`."""
        z = np.linspace(self.points[0], self.points[-1], curves.DRAWN)
        return curves.plotted(z, self._at(z), ax, **kwargs)

    @property
    def max_error(self) -> float:
        """Raise TypeError: estimates have no proven bounds."""
        raise nothing_proven()

    @curves.evaluates
    def cdf_bounds(self, z: ArrayLike) -> tuple[Any, Any]:
        """Raise TypeError: estimates have no proven bounds."""
        raise nothing_proven()

    @curves.evaluates
    def quantile_bounds(self, p: ArrayLike) -> tuple[Any, Any]:
        """Raise TypeError: estimates have no proven bounds."""
        raise nothing_proven()


def nothing_proven() -> TypeError:
    return TypeError(
        "bounds are proven by exact counts, and these shares are estimates: `ecdf` counts"
    )
