"""Schumaker's monotone quadratic spline, which takes its slopes from the points."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dask_gpuselect.arrays import Array, namespace
from dask_gpuselect.distribution.splines import BEYOND, MonotoneSpline, checked_points, evaluates

EPS = 2.0**-52


class MonotoneQuadraticSpline(MonotoneSpline):
    """Schumaker's monotone quadratic spline through given points, with Butland's slopes.

    Parameters
    ----------
    x : array_like, shape (n,)
        The abscissae, ascending and finite, at least two. If neighbours are equal, the spline jumps
        there from the first of their y to the last. It is continuous from the right, as an
        empirical distribution function is. A point that repeats the one before is dropped.
    y : array_like, shape (n,)
        The ordinates, finite, and either never decreasing or never increasing. If `x` or `y` is a
        CuPy array, all results are CuPy arrays.
    extrapolate : {True, False, "constant"}, default True
        What to do outside the first and the last x. True continues with the slope at the end, so
        the result stays monotone. False gives NaN. "constant" gives the first or the last y.

    Attributes
    ----------
    x, y : array of float64, shape (n,)
        The points, without those that repeat the one before.
    t : array of float64, shape (2 * (n - 1) + 1,)
        The knots: every x, and one more between each two neighbours. If an interval needs no
        additional knot, it coincides with the x before it.
    alpha, beta, gamma : array of float64, shape (2 * (n - 1),)
        The coefficients. Between ``t[j]`` and ``t[j + 1]`` the spline is
        ``alpha[j] + beta[j] * (z - t[j]) + gamma[j] * (z - t[j])**2``. Coefficients beyond the
        range of float64 are infinite. Evaluation does not use these arrays.

    Raises
    ------
    TypeError
        If `x` or `y` is lazy or not of real numbers.
    ValueError
        If the points are not as described above, or if fewer than two of them are different.

    See Also
    --------
    MonotoneRationalSpline : A spline with given slopes.
    scipy.interpolate.PchipInterpolator : A monotone spline of cubics.

    Notes
    -----
    Everything is computed in float64, also for float32 input. The value at a point is its y.

    Monotone: between two points, values stay between the two y, and never decrease as z increases
    (never increase if y descends). This holds exactly, not only up to rounding. Each piece is
    written from the end where it is flatter, so no coefficient is negative, and rounding keeps the
    order. If a piece gets flatter towards its end, values near its start have an error of a few eps
    of its rise. Scaling x or y by a power of two scales every result exactly, for steps and slopes
    of any size that float64 can hold.

    Slopes: at an inner point, the harmonic mean of the slopes of the two neighbouring intervals,
    and 0 beside a flat part. Beside a jump, twice the slope of the interval, which is the limit for
    a very steep neighbour.

    Nothing is read: the points are in memory. ``a.map_blocks(s)`` evaluates a spline s on a dask
    array a.

    Memory: a spline holds 28 float64 for each point, and 41 while it is made. A call needs about 16
    for each element of z.

    The paper's formula for the value at the added knot lacks a factor. Its last term is printed as
    ``(dbar - d) / (2 (t - x))``. The spline is continuous with ``(dbar - d) (t - x) / 2``, which is
    used here. The paper's program treats slopes as equal up to 1e-6 and divides by no less than
    1e-10, in any units. Here, the only tolerance is the rounding of the points.

    References
    ----------
    L. L. Schumaker, "On shape preserving quadratic spline interpolation", 1983. J. Butland, "A
    method of interpolating reasonable-shaped curves through any data", 1980. G. Beliakov and S.
    Liu, "Parallel monotone spline interpolation and approximation on GPUs", 2013, section 2.1,
    which this follows.

    Examples
    --------
    >>> from dask_gpuselect.distribution import MonotoneQuadraticSpline
    >>> s = MonotoneQuadraticSpline([0, 1, 2, 4], [0, 1, 1, 9])
    >>> s([0.5, 1.5, 3]).tolist()
    [0.75, 1.0, 3.0]
    >>> s.inverse([0.75, 1.0, 3.0]).tolist()
    [0.5, 1.0, 3.0]
    >>> float(s(3, nu=1))
    4.0
    """

    @evaluates
    def __init__(self, x: Any, y: Any, *, extrapolate: bool | str = True) -> None:
        x, y = checked_points(x, y)
        xp = namespace(x)
        is_new = xp.ones(x.shape, bool)
        is_new[1:] = (x[1:] != x[:-1]) | (y[1:] != y[:-1])
        x, y = x[is_new], y[is_new]
        if len(x) < 2:
            raise ValueError(f"a spline needs at least two different points, not {len(x)}")
        super().__init__(x, y, extrapolate)
        left, right = self._butlands()
        self._pieces = Parabolas.of(left, right, self._is_mean(left), self._is_mean(right))

    def _butlands(self) -> tuple[Array, Array]:
        """Return Butland's slopes at both ends of every interval, relative to its mean slope."""
        xp, mean, exponent = namespace(self.x), self._mean_m, self._mean_e
        is_jump = self._columns.width == 0
        mean = xp.where(is_jump, 1.0, mean)
        exponent = xp.where(is_jump, BEYOND, exponent)
        top = xp.maximum(exponent[:-1], exponent[1:])
        before = xp.ldexp(mean[:-1], exponent[:-1] - top)
        after = xp.ldexp(mean[1:], exponent[1:] - top)
        both = before + after
        both = xp.where(both > 0, both, 1.0)
        left, right = xp.ones_like(mean), xp.ones_like(mean)
        left[1:], right[:-1] = 2 * before / both, 2 * after / both
        # The first and the last interval are one parabola each; a single interval is a line.
        left[0], right[-1] = 2 - right[0], 2 - left[-1]
        return left, right

    def _is_mean(self, slope: Array) -> Array:
        """Return whether slopes equal the mean slope, up to the rounding of the points to float64.

        If one slope is the mean and the other is not, the knot is in the middle. If the slopes are
        on different sides of the mean, it may be near an end. So points on a line must give the
        mean in spite of rounding. A rounding error of eps in a number is one of eps * number / step
        in a slope, and two slopes depend on three intervals.
        """
        xp = namespace(slope)
        error = EPS * (2 + self._columns.conditions() + self._rows.conditions())
        around = error + 0.0
        around[1:] += error[:-1]
        around[:-1] += error[1:]
        return xp.abs(slope - 1) <= around

    def _share(self, i: Array, u: Array, rest: Array) -> Array:
        pieces = self._pieces
        j = 2 * i + (u >= pieces.knot[i])
        way = pieces.way(j, u, rest)
        done = pieces.sign[j] * (way * (pieces.slope[j] + pieces.curve[j] * way))
        return namespace(u).clip(pieces.base[j] + done, pieces.least[j], pieces.most[j])

    def _rate(self, i: Array, u: Array, rest: Array, nu: int) -> tuple[Array, Array]:
        pieces = self._pieces
        j = 2 * i + (u >= pieces.knot[i])
        if nu == 1:
            rate = pieces.slope[j] + 2 * pieces.curve[j] * pieces.way(j, u, rest)
            return self._mean_m[i] * rate, self._mean_e[i]
        rate = 2 * pieces.sign[j] * pieces.curve[j] / self._width_m[i]
        return self._mean_m[i] * rate, self._mean_e[i] - self._width_e[i]

    def _place(self, i: Array, share: Array, rest: Array) -> Array:
        xp, pieces = namespace(share), self._pieces
        j = 2 * i + (share > pieces.most[2 * i])
        base, slope, sign = pieces.base[j], pieces.slope[j], pieces.sign[j]
        done = xp.where(base == 1, rest, xp.abs(share - base))
        # The root of curve * way**2 + slope * way = done in which nothing cancels.
        both = slope + xp.sqrt(slope * slope + 4 * pieces.curve[j] * done)
        return pieces.origin[j] + sign * xp.where(both > 0, 2 * done / both, 0.0)

    @cached_property
    def t(self) -> Array:
        """Knots."""
        xp = namespace(self.x)
        i = xp.arange(len(self.x) - 1)
        t = xp.empty(2 * len(self.x) - 1)
        t[::2], t[1::2] = self.x, self._columns.at(i, self._pieces.knot)
        return t

    @cached_property
    def alpha(self) -> Array:
        """Values at all knots but the last."""
        i = namespace(self.x).arange(len(self.x) - 1)
        rows, share = self._rows, self._pieces.most[::2]
        return self._sign * self._interleaved(rows.start, rows.at(i, share))

    @cached_property
    def beta(self) -> Array:
        """Slopes at all knots but the last."""
        return self._sign * self._interleaved(*map(self._in_units, self._pieces.slopes[:2]))

    @cached_property
    def gamma(self) -> Array:
        """Half the second derivatives to the right of all knots but the last."""
        xp, pieces = namespace(self.x), self._pieces
        curve = (pieces.sign * pieces.curve).reshape(-1, 2).T / self._width_m
        first, second = (self._in_units(of_one, -self._width_e) for of_one in curve)
        return self._sign * self._interleaved(xp.where(pieces.knot > 0, first, second), second)

    def _in_units(self, share: Array, exponent: Array | int = 0) -> Array:
        """Convert slopes relative to the mean to the units of the points."""
        with np.errstate(over="ignore", under="ignore"):
            return namespace(share).ldexp(self._mean_m * share, self._mean_e + exponent)

    def _interleaved(self, first: Array, second: Array) -> Array:
        """Interleave the values of the two pieces of every interval."""
        return namespace(first).stack([first, second], axis=1).reshape(-1)


class Parabolas(NamedTuple):
    """The two parabolas of every interval, in units of its width and rise.

    Each is written about the end where it is flatter: ``base + sign * way * (slope + curve *
    way)``. Except for the sign, nothing is negative.

    Parameters
    ----------
    knot : array, shape (n,)
        The knot between the two; 0 if the interval is one parabola, the second.
    slopes : tuple of arrays, shape (n,)
        Slopes at the start, the knot and the end.
    origin, base, slope, curve, sign : array, shape (2 * n,)
        The point about which a piece is written, the share and the slope there, the curvature, and
        the direction in which the piece lies from there.
    least, most : array, shape (2 * n,)
        The shares at its ends.
    """

    knot: Array
    slopes: tuple[Array, Array, Array]
    origin: Array
    base: Array
    slope: Array
    curve: Array
    sign: Array
    least: Array
    most: Array

    @classmethod
    def of(cls, left: Array, right: Array, is_left_mean: Array, is_right_mean: Array) -> Parabolas:
        """Make the pieces for slopes in [0, 2] at both ends of each interval.

        `is_left_mean` and `is_right_mean` say whether a slope is as good as 1.

        The spline has a continuous value and slope with any knot, and the slope ``2 - knot * left -
        (1 - knot) * right >= 0`` at the knot. If the slopes are on different sides of the mean, the
        knot is where that slope is 1, so that the spline is convex or concave. This knot is a
        quotient of sums of the same sign, in which nothing cancels, so that slopes that are nearly
        equal need no tolerance. If the slopes are 1 on average, both pieces are one parabola for
        any knot. Then the knot is at the start: exactly that parabola in exact arithmetic, and up
        to 2 eps of the rise here.
        """
        xp = namespace(left)
        below, above = xp.abs(left - 1), xp.abs(right - 1)
        is_shaped = ((left < 1) != (right < 1)) & ~is_left_mean & ~is_right_mean
        both = xp.where(is_shaped, below + above, 1.0)
        knot = xp.where(is_shaped, above / both, 0.5)
        middle = xp.where(is_shaped, 1.0, 2 - (left + right) / 2)
        is_one = xp.abs(left + right - 2) <= 4 * EPS
        knot, middle = xp.where(is_one, 0.0, knot), xp.where(is_one, left, middle)
        at_knot = xp.minimum(knot * (left + middle) / 2, 1.0)
        zero, one = xp.zeros_like(knot), xp.ones_like(knot)

        def pieces(first: Array, second: Array) -> Array:
            return xp.stack([first, second], axis=1).reshape(-1)

        start, end = pieces(left, middle), pieces(middle, right)
        lengths = pieces(knot, 1 - knot)
        is_rising = start <= end
        lengths = xp.where(lengths > 0, lengths, 1.0)
        return cls(
            knot,
            (left, middle, right),
            origin=xp.where(is_rising, pieces(zero, knot), pieces(knot, one)),
            base=xp.where(is_rising, pieces(zero, at_knot), pieces(at_knot, one)),
            slope=xp.minimum(start, end),
            curve=xp.abs(end - start) / (2 * lengths),
            sign=xp.where(is_rising, 1.0, -1.0),
            least=pieces(zero, at_knot),
            most=pieces(at_knot, one),
        )

    def way(self, j: Array, u: Array, rest: Array) -> Array:
        """Return the distance of u from the point about which piece j is written."""
        xp, origin = namespace(u), self.origin[j]
        return xp.where(origin == 1, rest, xp.abs(u - origin))
