"""Gregory and Delbourgo's monotone rational spline, which takes given slopes."""

from __future__ import annotations

from typing import Any

from dask_gpuselect.arrays import Array, any_true, namespace
from dask_gpuselect.distribution.splines import BEYOND, MonotoneSpline, checked_points, evaluates


class MonotoneRationalSpline(MonotoneSpline):
    """Gregory and Delbourgo's monotone rational quadratic spline through points with given slopes.

    Parameters
    ----------
    x, y : array_like, shape (n,)
        The points, as for `MonotoneQuadraticSpline`. But a point that repeats the one before is
        kept: the slope of the first holds to its left, and the slope of the last to its right.
    slopes : array_like, shape (n,)
        The derivative at each point, finite, and 0 or of the sign in which y goes. If the two y of
        an interval are equal, the spline is flat there, whatever the slopes at its ends.
    extrapolate : {True, False, "constant"}, default True
        As for `MonotoneQuadraticSpline`.

    Attributes
    ----------
    x, y, slopes : array of float64, shape (n,)
        The points and their slopes. The knots of the spline are `x`.

    Raises
    ------
    TypeError
        If an argument is lazy or not of real numbers.
    ValueError
        If the points or slopes are not as described above, or if there are fewer than two points.

    See Also
    --------
    MonotoneQuadraticSpline : A spline that takes its slopes from the points.

    Notes
    -----
    Everything is computed in float64.

    Monotone: with any slopes that are allowed, the spline is monotone and has a continuous slope. A
    cubic needs slopes of at most about three times the mean slopes for that. Let u be the place in
    an interval, from 0 to 1, and p and q the slopes at its ends, divided by the mean slope. With
    ``w = u / (1 - u)``, the spline has done the share ``1 / (1 + (q + 1 / w) / (w + p))`` of its
    rise at u. This is the paper's quotient without differences. So nothing cancels, rounding keeps
    the order, and values never decrease as z increases (never increase if y descends). This holds
    exactly.

    Nothing is read: the points are in memory. ``a.map_blocks(s)`` evaluates a spline s on a dask
    array a.

    Memory: a spline holds 15 float64 for each point, and 23 while it is made. A call needs about 20
    for each element of z.

    References
    ----------
    J. A. Gregory and R. Delbourgo, "Piecewise rational quadratic interpolation to monotonic data",
    1982. G. Beliakov and S. Liu, "Parallel monotone spline interpolation and approximation on
    GPUs", 2013, section 2.2, which this follows.

    Examples
    --------
    >>> from dask_gpuselect.distribution import MonotoneRationalSpline
    >>> s = MonotoneRationalSpline([0, 1, 2], [0, 1, 4], [0, 2, 4])
    >>> s([0.5, 1.5]).tolist()
    [0.25, 2.25]
    >>> s(s.inverse([0.5, 3]), nu=0).round(12).tolist()
    [0.5, 3.0]
    """

    @evaluates
    def __init__(self, x: Any, y: Any, slopes: Any, *, extrapolate: bool | str = True) -> None:
        x, y, slopes = checked_points(x, y, slopes)
        super().__init__(x, y, extrapolate)
        xp = namespace(x)
        self.slopes = slopes
        if any_true(self._sign * slopes < 0):
            raise ValueError(
                "slopes must be 0 or have the sign of the steps of y: at least 0 "
                "where y ascends, and at most 0 where it descends"
            )
        # Against a flat part, or one without width, slopes count for nothing.
        is_steep = self._mean_m > 0
        mean = xp.where(is_steep, self._mean_m, 1.0)
        given, exponents = xp.frexp(self._sign * slopes)
        ends = []
        for of_end, exponent in ((given[:-1], exponents[:-1]), (given[1:], exponents[1:])):
            of_mean = xp.where(is_steep, of_end / mean, 0.0)
            ends.append((of_mean, xp.where(of_mean > 0, exponent - self._mean_e, -BEYOND)))
        (p, p_e), (q, q_e) = ends
        # The numbers of an interval are scaled so that the largest of p, q and 1 is about 1. p and
        # q may become 0, and 1 may not: something must be left where neither slope counts.
        self._scale_e = xp.maximum(xp.maximum(p_e, q_e), 0)
        self._p, self._q = xp.ldexp(p, p_e - self._scale_e), xp.ldexp(q, q_e - self._scale_e)
        self._one = xp.ldexp(xp.ones_like(p), -xp.minimum(self._scale_e, 1000))

    def _share(self, i: Array, u: Array, rest: Array) -> Array:
        p, q, one = self._p[i], self._q[i], self._one[i]
        w = namespace(u).clip(u / rest, 2.0**-1022, 2.0**1022)
        return 1 / (1 + (q + one / w) / (one * w + p))

    def _rate(self, i: Array, u: Array, rest: Array, nu: int) -> tuple[Array, Array]:
        xp = namespace(u)
        p, q, one = self._p[i], self._q[i], self._one[i]
        top = q * u * u + 2 * one * u * rest + p * rest * rest
        below = one * (u * u + rest * rest) + (p + q) * u * rest
        fraction, exponent = xp.frexp(below)
        mean, mean_e = self._mean_m[i], self._mean_e[i] - self._scale_e[i]
        if nu == 1:
            rate, rate_e = mean * top / (fraction * fraction), mean_e - 2 * exponent
            for is_there, at in ((u <= 0, i), (rest <= 0, i + 1)):
                slope, slope_e = xp.frexp(self._sign * self.slopes[at])
                rate = xp.where(is_there, xp.where(mean > 0, slope, 0.0), rate)
                rate_e = xp.where(is_there, slope_e, rate_e)
            return rate, rate_e
        top_rate = 2 * (q * u + one * (rest - u) - p * rest)
        below_rate = (p + q - 2 * one) * (rest - u)
        rate = (top_rate * fraction - 2 * top * xp.ldexp(below_rate, -exponent)) / fraction**3
        return mean * rate / self._width_m[i], mean_e - self._width_e[i] - 2 * exponent

    def _place(self, i: Array, share: Array, rest: Array) -> Array:
        xp = namespace(share)
        p, q, one = self._p[i], self._q[i], self._one[i]
        # The positive root w = u / (1 - u) of a w**2 + b w = c, in which nothing more cancels.
        a, b, c = one * rest, p * rest - q * share, one * share
        root = xp.hypot(b, 2 * xp.sqrt(a) * xp.sqrt(c))
        above = xp.where(b >= 0, 2 * c, root - b)
        below = xp.where(b >= 0, root + b, 2 * a)
        return xp.where(above > 0, above / (above + below), 0.0)
