"""Base of splines through monotone points that are monotone themselves, to the last bit.

They are built and evaluated by array operations alone, for arrays of NumPy or CuPy.

On the interval between two points a spline is ``y + rise * share(u)``, with u from 0 to 1. The
share depends only on the slopes at the ends, divided by the mean slope. So nothing depends on the
units of x and y. Numbers that may be beyond the range of float64 are stored as ``m * 2**e``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
