"""Splines through monotone points that are monotone themselves, to the last bit: built and
evaluated by array operations alone, of NumPy's or CuPy's arrays.

On the interval between two points a spline is ``y + rise * share(u)``, u from 0 to 1. The share has
only the slopes at the ends, divided by the mean one, as parameters, so that nothing depends on the
units of x and y. Where numbers span more than a float64, they are kept as ``m * 2**e``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dask_gpuselect.arguments import public
from dask_gpuselect.arrays import is_cupy, namespace
from dask_gpuselect.distribution.numbers import namespace_of, real

Array = Any  # a NumPy or CuPy array
EPS = 2.0**-52
evaluates = public(instead="a.map_blocks(s), or compute it")
BEYOND = 5000  # more than any exponent of a quotient of float64
EXTRAPOLATE: tuple[bool | str, ...] = (True, False, "constant")


class _MonotoneSpline:
    """What both splines share. A subclass has the share of an interval's rise: `_share`, its
    derivatives, `_rate`, and its inverse, `_place`."""

    def __init__(self, x: Array, y: Array, extrapolate: bool | str) -> None:
        self.x, self.y, self.extrapolate = x, y, _extrapolation(extrapolate)
        xp = namespace(x)
        self._sign = -1.0 if bool(y[-1] < y[0]) else 1.0
        self._columns = _Steps.of(x)
        self._rows = _Steps.of(self._sign * y)
        width, self._width_e = self._columns.exact()
        rise, rise_e = self._rows.exact()
        self._width_m = xp.where(width > 0, width, 1.0)
        # The mean slope of each interval; 0 where it jumps.
        self._mean_m = xp.where(width > 0, rise / self._width_m, 0.0)
        self._mean_e = rise_e - self._width_e

    @evaluates
    def __call__(self, z: Any, nu: int = 0, extrapolate: bool | str | None = None) -> Array:
        """The value of the spline, or of a derivative, at each element of z.

        Parameters
        ----------
        z : array_like
            Real numbers, of any shape; NaN gives NaN.
        nu : {0, 1, 2}, default 0
            Order of the derivative. At a knot it is that of the piece to the right.
        extrapolate : {None, True, False, "constant"}, optional
            As for the constructor, whose choice None stands for.

        Returns
        -------
        array of float64, of the shape of `z`
            Infinite where it is larger than a float64.
        """
        _check_order(nu)
        how = self.extrapolate if extrapolate is None else _extrapolation(extrapolate)
        xp, z = namespace(self.x), self._real(z)
        first, last = self.x[0], self.x[-1]
        is_below, is_above = z < first, z > last
        inside = xp.clip(z, first, last)
        i = _interval_of(self.x, inside, side="right")
        with np.errstate(all="ignore"):
            u, rest = self._columns.shares(i, inside)
            # What is continued below the first point is what is left of it, should it jump there.
            i = xp.where(is_below, 0, i)
            u, rest = xp.where(is_below, 0.0, u), xp.where(is_below, 1.0, rest)
            u = xp.where(rest <= 0, 1.0, u)
            if nu == 0:
                share = xp.where(u <= 0, 0.0, self._share(i, u, rest))
                found = self._rows.at(i, xp.where(rest <= 0, 1.0, share))
            else:
                found = xp.ldexp(*self._rate(i, u, rest, nu))
            is_outside = is_below | is_above
            if bool(is_outside.any()):
                place = (i, u, rest)
                beyond = self._beyond(z / 2 - inside / 2, place, found, nu, how)
                found = xp.where(is_outside, beyond, found)
            found = xp.where(z == z, found, math.nan)
        return xp.asarray(self._sign * found)

    @evaluates
    def derivative(self, nu: int = 1) -> SplineDerivative:
        """A derivative of the spline as a function, called as the spline is.

        Parameters
        ----------
        nu : {0, 1, 2}, default 1
        """
        _check_order(nu)
        return SplineDerivative(self, nu)

    @evaluates
    def inverse(self, v: Any) -> Array:
        """Where the spline reaches each element of v, in closed form.

        Parameters
        ----------
        v : array_like
            Real numbers, of any shape; NaN gives NaN.

        Returns
        -------
        array of float64, of the shape of `v`
            The least z with ``s(z) >= v``, ``s(z) <= v`` for descending data: the first point of
            a flat part, and the abscissa of a jump for all it leaps over. NaN for a v that is not
            between the first y and the last.
        """
        xp, v = namespace(self.x), self._sign * self._real(v)
        y = self._sign * self.y
        inside = xp.clip(v, y[0], y[-1])
        i = _interval_of(y, inside, side="left")
        with np.errstate(all="ignore"):
            share, rest = self._rows.shares(i, inside)
            u = xp.where(rest <= 0, 1.0, self._place(i, share, rest))
            found = self._columns.at(i, xp.where(share <= 0, 0.0, u))
        return xp.asarray(xp.where(inside == v, found, math.nan))

    def _beyond(
        self, half: Array, place: tuple[Array, Array, Array], end: Array, nu: int, how: bool | str
    ) -> Array | float:
        """What is half the distance `half` away from the end of the spline at `place`, where it, or
        its derivative, is `end`."""
        if how is False:
            return math.nan
        if nu > (how is True):
            return 0.0
        if how == "constant" or nu == 1:
            return end
        xp = namespace(half)
        slope, exponent = self._rate(*place, nu=1)
        return end + xp.where(slope == 0, 0.0, xp.ldexp(half * slope, exponent + 1))

    def _share(self, i: Array, u: Array, rest: Array) -> Array:
        """Of the rise of interval i, how much is done at u of its width; ``rest`` is 1 - u."""
        raise NotImplementedError

    def _rate(self, i: Array, u: Array, rest: Array, nu: int) -> tuple[Array, Array]:
        """The first or second derivative there, as mantissa and exponent."""
        raise NotImplementedError

    def _place(self, i: Array, share: Array, rest: Array) -> Array:
        """The u of a share; ``rest`` is 1 - share."""
        raise NotImplementedError

    def _real(self, values: Any) -> Array:
        if is_cupy(values) and not is_cupy(self.x):
            raise TypeError(
                "a spline of NumPy arrays is not evaluated at a CuPy array: make it of CuPy arrays"
            )
        return real(namespace(self.x), values, "what a spline is evaluated at")


class MonotoneQuadraticSpline(_MonotoneSpline):
    """The monotone quadratic spline of Schumaker, with Butland's slopes.

    Parameters
    ----------
    x : array_like, shape (n,)
        Ascending and finite; at least two points. Where neighbours are equal the spline jumps from
        the first y there to the last, and is continuous from the right, as an empirical
        distribution function is. A point that repeats the one before is left out.
    y : array_like, shape (n,)
        Ascending, or descending, and finite. May be a CuPy array, as may `x`: then so is all that
        the spline gives.
    extrapolate : {True, False, "constant"}, default True
        Outside of the first and the last x: True continues with the slope there, which stays
        monotone (SciPy's interpolators continue the polynomial, which does not); False gives NaN;
        "constant" the first or last y, as a distribution function has it.

    Attributes
    ----------
    x, y : array of float64
        The points.
    t : array of float64, shape (2 * (n - 1) + 1,)
        Knots: every x, and behind each but the last one more. They coincide where an interval needs
        none.
    alpha, beta, gamma : array of float64, shape (2 * (n - 1),)
        ``s(z) = alpha[j] + beta[j] * (z - t[j]) + gamma[j] * (z - t[j])**2`` between ``t[j]`` and
        ``t[j + 1]``. Infinite where they are larger than a float64; evaluation does not use them.

    Raises
    ------
    TypeError
        For anything but real numbers, and for dask arrays.
    ValueError
        For points that are not as said above, or fewer than two different ones.

    See Also
    --------
    MonotoneRationalSpline : for given slopes
    scipy.interpolate.PchipInterpolator : by cubics

    Notes
    -----
    Everything is computed in float64, float32 too. The value at a point is its y. Within an
    interval values stay between its two y, and never decrease as z increases (the other way round
    for descending y): exactly so, not up to rounding, for each piece is written about the end where
    it is flatter. Then no coefficient is negative, and rounding keeps the order; but where a piece
    flattens, values near its start have an error of some eps of its rise. Steps and slopes may be
    as large and as small as float64 go. Scaling x and y by powers of two scales all of it exactly.

    The slopes at the points are harmonic means of those on both sides, and 0 at a flat part. At a
    jump they are twice that of the neighbouring interval, as if the jump were a very steep one.

    No loads: arrays only; ``a.map_blocks(s)`` evaluates a spline on a dask array. Memory: about ten
    arrays of the size of `x`, and in a call fifteen of the size of `z`.

    The paper's formula for the value at the added knot lacks a factor: of its last term
    ``(dbar - d) / (2 (t - x))`` it is ``(dbar - d) (t - x) / 2`` that makes the spline continuous.
    Its program takes slopes for equal up to 1e-6, and divides by no less than 1e-10, whatever the
    units of the data; here nothing depends on them.

    References
    ----------
    L. L. Schumaker, "On shape preserving quadratic spline interpolation", 1983; J. Butland, "A
    method of interpolating reasonable-shaped curves through any data", 1980. As by G. Beliakov and
    S. Liu, "Parallel monotone spline interpolation and approximation on GPUs", 2013, section 2.1.

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
        x, y = _points(x, y)
        xp = namespace(x)
        is_new = xp.ones(x.shape, bool)
        is_new[1:] = (x[1:] != x[:-1]) | (y[1:] != y[:-1])
        x, y = x[is_new], y[is_new]
        if len(x) < 2:
            raise ValueError("a spline needs at least two different points")
        super().__init__(x, y, extrapolate)
        left, right = self._butlands()
        self._pieces = _Pieces.of(left, right, self._is_mean(left), self._is_mean(right))

    def _butlands(self) -> tuple[Array, Array]:
        """The slopes at both ends of every interval, of its mean one."""
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
        # A parabola at each end; a line if both ends are one.
        left[0], right[-1] = 2 - right[0], 2 - left[-1]
        return left, right

    def _is_mean(self, slope: Array) -> Array:
        """Whether a slope is the mean one, as far as points that are rounded to float64 can tell.

        Where it is, and the other end's is not, the knot is in the middle, and with any slope on
        the other side of the mean one near an end. So points on a line must not be told from it by
        their rounding: an error of eps in a number is one of eps * number / step in a slope, and
        three intervals have their part in two slopes.
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
        """Values at the knots but the last."""
        i = namespace(self.x).arange(len(self.x) - 1)
        rows, share = self._rows, self._pieces.most[::2]
        return self._sign * self._interleaved(rows.start, rows.at(i, share))

    @cached_property
    def beta(self) -> Array:
        """Slopes at the knots but the last."""
        return self._sign * self._interleaved(*map(self._in_units, self._pieces.slopes[:2]))

    @cached_property
    def gamma(self) -> Array:
        """Half the second derivatives behind the knots but the last."""
        xp, pieces = namespace(self.x), self._pieces
        curve = (pieces.sign * pieces.curve).reshape(-1, 2).T / self._width_m
        first, second = (self._in_units(of_one, -self._width_e) for of_one in curve)
        return self._sign * self._interleaved(xp.where(pieces.knot > 0, first, second), second)

    def _in_units(self, share: Array, exponent: Array | int = 0) -> Array:
        with np.errstate(over="ignore", under="ignore"):
            return namespace(share).ldexp(self._mean_m * share, self._mean_e + exponent)

    def _interleaved(self, first: Array, second: Array) -> Array:
        return namespace(first).stack([first, second], axis=1).reshape(-1)


class _Pieces(NamedTuple):
    """The two parabolas of every interval, in units of its width and rise, each written about the
    end where it is flatter: ``base + sign * way * (slope + curve * way)``, with nothing negative.

    Parameters
    ----------
    knot : array, shape (n,)
        Between the two; 0 if the interval is one parabola, the second.
    slopes : tuple of arrays, shape (n,)
        At the start, the knot and the end.
    origin, base, slope, curve, sign : array, shape (2 * n,)
        Where the piece is written about, the share there, the slope there; the curvature; and in
        which direction from there it lies.
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
    def of(cls, left: Array, right: Array, is_left_mean: Array, is_right_mean: Array) -> _Pieces:
        """Of slopes in [0, 2] at both ends, and whether each is as good as 1.

        The spline has a continuous value and slope with any knot, and the slope
        ``2 - knot * left - (1 - knot) * right >= 0`` at it. If the slopes are on different sides of
        the mean the knot is where that is 1, so that the spline is convex or concave: a quotient of
        sums of the same sign, in which nothing cancels, so that no tolerance is needed for slopes
        that are nearly equal. If they are 1 on average both pieces are one parabola wherever the
        knot is: at the start, in exact arithmetic, and up to 2 eps of the rise in this.
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
        """How far u is from where piece j is written about."""
        xp, origin = namespace(u), self.origin[j]
        return xp.where(origin == 1, rest, xp.abs(u - origin))


class MonotoneRationalSpline(_MonotoneSpline):
    """The monotone rational quadratic Hermite spline of Gregory and Delbourgo, of given slopes.

    Parameters
    ----------
    x, y : array_like, shape (n,)
        As for `MonotoneQuadraticSpline`; a point that repeats the one before stays: the slope of
        the first holds to its left, that of the last to its right.
    slopes : array_like, shape (n,)
        The derivative at each point, finite, and not against the direction of `y`. Those of an
        interval whose two y are equal are not met: it is flat.
    extrapolate : {True, False, "constant"}, default True
        As for `MonotoneQuadraticSpline`.

    Attributes
    ----------
    x, y, slopes : array of float64
        The points; the spline's knots are `x`.

    Raises
    ------
    TypeError
        For anything but real numbers, and for dask arrays.
    ValueError
        For points and slopes that are not as said above, or fewer than two points.

    See Also
    --------
    MonotoneQuadraticSpline : finds slopes by itself

    Notes
    -----
    Everything is computed in float64. Any slopes that are not against the direction of `y` give a
    monotone spline with continuous slope; cubics need them not to be larger than about three times
    the mean ones. Within an interval, with ``w = u / (1 - u)`` at u of its width and the slopes p
    and q at its ends, of its mean one, the spline has done the share
    ``1 / (1 + (q + 1 / w) / (w + p))`` of its rise. That is the paper's quotient, rid of its
    differences: nothing cancels, and as each operation keeps the order when it rounds, values never
    decrease as z increases (the other way round for descending y), exactly so.

    No loads: arrays only; ``a.map_blocks(s)`` evaluates a spline on a dask array. Memory: about ten
    arrays of the size of `x`, and in a call fifteen of the size of `z`.

    References
    ----------
    J. A. Gregory and R. Delbourgo, "Piecewise rational quadratic interpolation to monotonic data",
    1982. As by G. Beliakov and S. Liu, "Parallel monotone spline interpolation and approximation on
    GPUs", 2013, section 2.2.

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
        x, y, slopes = _points(x, y, slopes)
        super().__init__(x, y, extrapolate)
        xp = namespace(x)
        self.slopes = slopes
        if bool((self._sign * slopes < 0).any()):
            raise ValueError("slopes must not be against the direction of y")
        # Against a flat part, or one without width, slopes count for nothing.
        is_steep = self._mean_m > 0
        mean = xp.where(is_steep, self._mean_m, 1.0)
        given, exponents = xp.frexp(self._sign * slopes)
        ends = []
        for of_end, exponent in ((given[:-1], exponents[:-1]), (given[1:], exponents[1:])):
            of_mean = xp.where(is_steep, of_end / mean, 0.0)
            ends.append((of_mean, xp.where(of_mean > 0, exponent - self._mean_e, -BEYOND)))
        (p, p_e), (q, q_e) = ends
        # All of an interval is scaled so that the largest of p, q and 1 is about 1. The others may
        # vanish, but for 1: something is left when neither slope counts any more.
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


@dataclass(frozen=True)
class SplineDerivative:
    """A derivative of a spline, called as the spline is.

    Parameters
    ----------
    spline : MonotoneQuadraticSpline or MonotoneRationalSpline
    nu : int
        Its order.
    """

    spline: _MonotoneSpline
    nu: int

    @evaluates
    def __call__(self, z: Any, nu: int = 0, extrapolate: bool | str | None = None) -> Array:
        """Its value, or that of its own derivative of order `nu`."""
        return self.spline(z, self.nu + nu, extrapolate)

    @evaluates
    def derivative(self, nu: int = 1) -> SplineDerivative:
        """Its own derivative."""
        return self.spline.derivative(self.nu + nu)


class _Steps(NamedTuple):
    """Ascending numbers, and the steps between neighbours.

    Parameters
    ----------
    start, end, width : array, shape (n - 1,)
        Width is the step times scale.
    scale : array, shape (n - 1,)
        1, or 1/2 where the step is larger than a float64. Such a step has no end so small that its
        half would be rounded.
    """

    start: Array
    end: Array
    width: Array
    scale: Array

    @classmethod
    def of(cls, values: Array) -> _Steps:
        start, end = values[:-1], values[1:]
        with np.errstate(over="ignore"):
            scale = namespace(values).where(end - start < math.inf, 1.0, 0.5)
        return cls(start, end, end * scale - start * scale, scale)

    def exact(self) -> tuple[Array, Array]:
        """The steps as mantissa and exponent."""
        xp = namespace(self.width)
        fraction, exponent = xp.frexp(self.width)
        return fraction, exponent + (self.scale < 1)

    def conditions(self) -> Array:
        """How much larger the ends are than the step; 0 for no step, which no rounding makes."""
        xp = namespace(self.width)
        size = xp.maximum(xp.abs(self.start), xp.abs(self.end)) * self.scale
        with np.errstate(over="ignore"):
            return xp.where(self.width > 0, size / xp.where(self.width > 0, self.width, 1.0), 0.0)

    def shares(self, i: Array, value: Array) -> tuple[Array, Array]:
        """How much of step i is behind a value, and before it."""
        scale, width = self.scale[i], self.width[i]
        width = namespace(width).where(width > 0, width, 1.0)
        at = value * scale
        return (at - self.start[i] * scale) / width, (self.end[i] * scale - at) / width

    def at(self, i: Array, share: Array) -> Array:
        """The value where a share of step i is done, within it."""
        xp, start, end, scale = namespace(share), self.start[i], self.end[i], self.scale[i]
        found = (start * scale + self.width[i] * share) / scale
        return xp.where(share >= 1, end, xp.clip(found, start, end))


def _interval_of(values: Array, wanted: Array, side: str) -> Array:
    """Between which neighbours each wanted number is, as `searchsorted` has it."""
    xp = namespace(values)
    return xp.clip(xp.searchsorted(values, wanted, side=side) - 1, 0, len(values) - 2)


def _points(*given: Any) -> tuple[Array, ...]:
    """x, y and slopes as they are computed with, checked."""
    xp = namespace_of(*given)
    names = ("x", "y", "slopes")
    arrays = tuple(real(xp, each, name) for name, each in zip(names, given, strict=False))
    x, y = arrays[:2]
    for name, array in zip(names, arrays, strict=False):
        if array.ndim != 1 or array.shape != x.shape:
            shapes = ", ".join(str(each.shape) for each in arrays)
            raise ValueError(f"points must be one-dimensional and as many of each, not {shapes}")
        if not bool(xp.isfinite(array).all()):
            raise ValueError(f"{name} must be finite")
    if len(x) < 2:
        raise ValueError(f"a spline needs at least two points, not {len(x)}")
    if bool((x[1:] < x[:-1]).any()):
        raise ValueError("x must ascend: sort the points by it")
    if bool((y[1:] < y[:-1]).any()) and bool((y[1:] > y[:-1]).any()):
        raise ValueError("y must ascend or descend; isotonic regression makes it so")
    return arrays


def _check_order(nu: Any) -> None:
    if nu not in (0, 1, 2):
        raise ValueError(f"the order of a derivative must be 0, 1 or 2, not {nu!r}")


def _extrapolation(given: Any) -> bool | str:
    for known in EXTRAPOLATE:
        if isinstance(given, str) == isinstance(known, str) and given == known:
            return known
    raise ValueError(f"extrapolate must be True, False or 'constant', not {given!r}")
