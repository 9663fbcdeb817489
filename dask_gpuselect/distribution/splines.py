"""Splines through monotone points that are monotone themselves, to the last bit.

Schumaker's is quadratic and takes its slopes from the points; Gregory and Delbourgo's is rational
and takes given slopes. Both are built and evaluated by array operations alone, for arrays of NumPy
or CuPy.

On the interval between two points a spline is ``y + rise * share(u)``, with u from 0 to 1. The
share depends only on the slopes at the ends, divided by the mean slope. So nothing depends on the
units of x and y. Numbers that may be beyond the range of float64 are stored as ``m * 2**e``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dask_gpuselect.arguments import public, real
from dask_gpuselect.arrays import Array, all_true, any_true, namespace, namespace_of

evaluates = public(instead="for a dask array a and a spline s type a.map_blocks(s), or a.compute()")
BEYOND = 5000  # more than any exponent of a quotient of float64
EXTRAPOLATE: tuple[bool | str, ...] = (True, False, "constant")


class MonotoneSpline:
    """Base of both splines.

    A subclass has the share of an interval's rise (`_share`), its derivatives (`_rate`), and its
    inverse (`_place`).
    """

    def __init__(self, x: Array, y: Array, extrapolate: bool | str) -> None:
        self.x, self.y, self.extrapolate = x, y, _extrapolation(extrapolate)
        xp = namespace(x)
        self._sign = -1.0 if bool(y[-1] < y[0]) else 1.0
        self._columns = Intervals.of(x)
        self._rows = Intervals.of(self._sign * y)
        width, self._width_e = self._columns.exact()
        rise, rise_e = self._rows.exact()
        self._width_m = xp.where(width > 0, width, 1.0)
        # The mean slope of each interval; 0 where it jumps.
        self._mean_m = xp.where(width > 0, rise / self._width_m, 0.0)
        self._mean_e = rise_e - self._width_e

    @evaluates
    def __call__(self, z: Any, nu: int = 0, extrapolate: bool | str | None = None) -> Array:
        """Evaluate the spline, or one of its derivatives, at each element of z.

        Parameters
        ----------
        z : array_like of real numbers, any shape
            Where to evaluate. NaN gives NaN.
        nu : {0, 1, 2}, default 0
            The order of the derivative. At a knot, derivatives are those of the piece to the right.
        extrapolate : {None, True, False, "constant"}, optional
            What to do outside the first and the last x, as in the constructor. None takes the
            constructor's choice.

        Returns
        -------
        array of float64, of the shape of `z`
            A NumPy array, or a CuPy array if the spline was made of CuPy arrays. Values beyond the
            range of float64 are infinite.

        Raises
        ------
        TypeError
            If `z` is lazy or not of real numbers, or if it is a CuPy array and the spline was made
            of NumPy arrays.
        ValueError
            If `nu` or `extrapolate` is not one of the values above.
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
            # Below the first point, the spline to the left of a jump there is continued.
            i = xp.where(is_below, 0, i)
            u, rest = xp.where(is_below, 0.0, u), xp.where(is_below, 1.0, rest)
            u = xp.where(rest <= 0, 1.0, u)
            if nu == 0:
                share = xp.where(u <= 0, 0.0, self._share(i, u, rest))
                values = self._rows.at(i, xp.where(rest <= 0, 1.0, share))
            else:
                values = xp.ldexp(*self._rate(i, u, rest, nu))
            is_outside = is_below | is_above
            if any_true(is_outside):
                place = (i, u, rest)
                beyond = self._beyond(z / 2 - inside / 2, place, values, nu, how)
                values = xp.where(is_outside, beyond, values)
            values = xp.where(z == z, values, math.nan)
        return xp.asarray(self._sign * values)

    @evaluates
    def derivative(self, nu: int = 1) -> SplineDerivative:
        """Return a derivative of the spline as a function, which is called as the spline is.

        Parameters
        ----------
        nu : {0, 1, 2}, default 1
            The order of the derivative.

        Returns
        -------
        SplineDerivative

        Raises
        ------
        ValueError
            If `nu` is not 0, 1 or 2.
        """
        _check_order(nu)
        return SplineDerivative(self, nu)

    @evaluates
    def inverse(self, v: Any) -> Array:
        """Find where the spline reaches each element of v, in closed form.

        Parameters
        ----------
        v : array_like of real numbers, any shape
            Values of the spline. NaN gives NaN.

        Returns
        -------
        array of float64, of the shape of `v`
            The smallest z with ``s(z) >= v``, or with ``s(z) <= v`` if y descends. This is the
            first point of a flat part, and the x of a jump for all values inside the jump. NaN if v
            is not between the first and the last y.

        Raises
        ------
        TypeError
            In the same cases as when the spline is called.
        """
        xp, v = namespace(self.x), self._sign * self._real(v)
        y = self._sign * self.y
        inside = xp.clip(v, y[0], y[-1])
        i = _interval_of(y, inside, side="left")
        with np.errstate(all="ignore"):
            share, rest = self._rows.shares(i, inside)
            u = xp.where(rest <= 0, 1.0, self._place(i, share, rest))
            places = self._columns.at(i, xp.where(share <= 0, 0.0, u))
        return xp.asarray(xp.where(inside == v, places, math.nan))

    def _beyond(
        self, half: Array, place: tuple[Array, Array, Array], end: Array, nu: int, how: bool | str
    ) -> Array | float:
        """Return the value, or derivative, at twice the distance `half` from an end of the spline.

        `place` is that end, and `end` the value or derivative there.
        """
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
        """Return the share of the rise of interval i at u of its width; ``rest`` is 1 - u."""
        raise NotImplementedError

    def _rate(self, i: Array, u: Array, rest: Array, nu: int) -> tuple[Array, Array]:
        """Return the first or second derivative at u of interval i, as mantissa and exponent."""
        raise NotImplementedError

    def _place(self, i: Array, share: Array, rest: Array) -> Array:
        """Return the u at which interval i has a share of its rise; ``rest`` is 1 - share."""
        raise NotImplementedError

    def _real(self, values: Any) -> Array:
        """Return arguments as float64 of the spline's kind, or raise."""
        if namespace_of(values, self.x) is not namespace(self.x):
            raise TypeError(
                "a spline of NumPy arrays cannot be evaluated at a CuPy array: pass "
                "cupy.asnumpy(z), or make the spline of CuPy arrays"
            )
        return real(namespace(self.x), values, "the arguments of a spline")


@dataclass(frozen=True)
class SplineDerivative:
    """A derivative of a spline, which is called as the spline is.

    Parameters
    ----------
    spline : MonotoneQuadraticSpline or MonotoneRationalSpline
        The spline.
    nu : int
        The order of the derivative.
    """

    spline: MonotoneSpline
    nu: int

    @evaluates
    def __call__(self, z: Any, nu: int = 0, extrapolate: bool | str | None = None) -> Array:
        """Evaluate the derivative, or its own derivative of order `nu`, at each element of z.

        The orders add up, to 2 at most.
        """
        return self.spline(z, self.nu + nu, extrapolate)

    @evaluates
    def derivative(self, nu: int = 1) -> SplineDerivative:
        """Return the derivative of order `nu` of this derivative."""
        return self.spline.derivative(self.nu + nu)


class Intervals(NamedTuple):
    """Ascending numbers, and the steps between neighbours.

    Parameters
    ----------
    start, end, width : array, shape (n - 1,)
        Both numbers, and the step times `scale`.
    scale : array, shape (n - 1,)
        1, or 1/2 if the step is larger than the largest float64. The ends of such a step are so
        large that half of them is exact.
    """

    start: Array
    end: Array
    width: Array
    scale: Array

    @classmethod
    def of(cls, values: Array) -> Intervals:
        """Make the intervals of ascending numbers."""
        start, end = values[:-1], values[1:]
        with np.errstate(over="ignore"):
            scale = namespace(values).where(end - start < math.inf, 1.0, 0.5)
        return cls(start, end, end * scale - start * scale, scale)

    def exact(self) -> tuple[Array, Array]:
        """Return the steps as mantissa and exponent."""
        xp = namespace(self.width)
        fraction, exponent = xp.frexp(self.width)
        return fraction, exponent + (self.scale < 1)

    def conditions(self) -> Array:
        """Return the ratio of the larger end to the step; 0 for no step, which is exact."""
        xp = namespace(self.width)
        size = xp.maximum(xp.abs(self.start), xp.abs(self.end)) * self.scale
        with np.errstate(over="ignore"):
            return xp.where(self.width > 0, size / xp.where(self.width > 0, self.width, 1.0), 0.0)

    def shares(self, i: Array, value: Array) -> tuple[Array, Array]:
        """Return the shares of step i behind a value and before it."""
        scale, width = self.scale[i], self.width[i]
        width = namespace(width).where(width > 0, width, 1.0)
        at = value * scale
        return (at - self.start[i] * scale) / width, (self.end[i] * scale - at) / width

    def at(self, i: Array, share: Array) -> Array:
        """Return the value at a share of step i, within the step."""
        xp, start, end, scale = namespace(share), self.start[i], self.end[i], self.scale[i]
        values = (start * scale + self.width[i] * share) / scale
        return xp.where(share >= 1, end, xp.clip(values, start, end))


def _interval_of(values: Array, wanted: Array, side: str) -> Array:
    """Return the neighbours that enclose each wanted number, as `searchsorted` does."""
    xp = namespace(values)
    return xp.clip(xp.searchsorted(values, wanted, side=side) - 1, 0, len(values) - 2)


def checked_points(*given: Any) -> tuple[Array, ...]:
    """Return x, y and slopes as float64, or raise if they are no points of a spline."""
    xp = namespace_of(*given)
    names = ("x", "y", "slopes")
    arrays = tuple(real(xp, each, name) for name, each in zip(names, given, strict=False))
    x, y = arrays[:2]
    for name, array in zip(names, arrays, strict=False):
        if array.ndim != 1 or array.shape != x.shape:
            shapes = ", ".join(
                f"{name} of shape {each.shape}" for name, each in zip(names, arrays, strict=False)
            )
            raise ValueError(f"points must be one-dimensional and of one length, not {shapes}")
        if not all_true(xp.isfinite(array)):
            raise ValueError(f"{name} must be finite: leave out points with NaN or infinities")
    if len(x) < 2:
        raise ValueError(f"a spline needs at least two points, not {len(x)}")
    if any_true(x[1:] < x[:-1]):
        raise ValueError(
            "x must ascend: sort the points, with order = np.argsort(x), x[order] and y[order]"
        )
    if any_true(y[1:] < y[:-1]) and any_true(y[1:] > y[:-1]):
        raise ValueError(
            "y must ascend or descend throughout: pass isotonic_regression(y), which ascends"
        )
    return arrays


def _check_order(nu: Any) -> None:
    """Raise unless the order of a derivative is 0, 1 or 2."""
    if nu not in (0, 1, 2):
        raise ValueError(f"nu, the order of the derivative, must be 0, 1 or 2, not {nu!r}")


def _extrapolation(given: Any) -> bool | str:
    """Return how to extrapolate, or raise if that is unknown."""
    for known in EXTRAPOLATE:
        if isinstance(given, str) == isinstance(known, str) and given == known:
            return known
    raise ValueError(f"extrapolate must be True, False or 'constant', not {given!r}")


# --- Quadratic splines ----------------------------------------------------------------------------

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


# --- Rational splines -----------------------------------------------------------------------------


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
