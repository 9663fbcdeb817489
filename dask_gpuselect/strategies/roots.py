"""Root of the subgradient: bisection, and Brent's method."""

from __future__ import annotations

from collections.abc import Callable

from dask_gpuselect.maths.ranks import Applied
from dask_gpuselect.strategies import spaces
from dask_gpuselect.strategies.known import Known, Search, Strategy
from dask_gpuselect.strategies.probes import Extent, Points, points_bytes
from dask_gpuselect.strategies.spaces import VALUE, Space

MOST_ITERATIONS = 64
"""Largest number of pivots: as many as bisection between keys of 64 bits needs.

By value it may need 2,098.
"""


def space_of(name: spaces.Name, known: Known) -> Space:
    """Return the space of that name for data whose extremes are known."""
    least = known.least
    if name == "log":
        return Space("log", float(spaces.element(least, known.dtype)))
    return VALUE if name == "value" else Space("key", least)


def ends_of(space: Space, known: Known) -> tuple[float, float]:
    """Return the coordinates between which the wanted elements lie."""
    first, last = (space.coordinate(key, known.dtype) for key in (known.least, known.largest))
    return first, last


def one_pivot(
    name: str, search: Callable[..., Search], space: spaces.Name, iterations: int
) -> Strategy:
    """Make a method with one pivot in each round, which begins with the extremes."""
    rounds = 1 + iterations
    reply_bytes = Applied(points_bytes, (1, rounds))
    return Strategy(name, Applied(search, (space,)), rounds, reply_bytes, Extent(VALUE))


def Bisection(space: spaces.Name = "key", iterations: int = MOST_ITERATIONS) -> Strategy:
    """Make bisection: each round halves the bracket, by value or by key.

    Parameters
    ----------
    space : {"key", "value", "log"}
        Scale on which the middle is taken.
    iterations : int
        Largest number of pivots.

    Returns
    -------
    Strategy
        The method, for `order_statistic` and `quantile`.

    Notes
    -----
    Source: Beliakov 2011, section III ("we adapted the classical bisection method"). The paper
    bisects by value, so that one outlier costs as many rounds as its logarithm (section V.D). By
    key a bracket of b bits is one element after b rounds, whatever the data.

    Each round also finds the elements next to the pivot. So the search ends as soon as no other
    element lies between a pivot and a wanted one. Reads: one for the extremes, one for each pivot.
    """
    return one_pivot("bisection", _bisection, space, iterations)


def _bisection(name: spaces.Name, known: Known, extent: object) -> Search:
    space = space_of(name, known)
    while True:
        pivot = space.nearest(_middle(*ends_of(space, known)), known.dtype, known.lo, known.hi)
        known, _ = yield Points((pivot,))


def _middle(a: float, b: float) -> float:
    """Compute the middle; NaN between -inf and inf, for which the middle key is taken."""
    return a / 2 + b / 2


def BrentRoot(space: spaces.Name = "value", iterations: int = MOST_ITERATIONS) -> Strategy:
    """Make Brent's root finding: inverse quadratic interpolation and secants, or else bisection.

    Parameters
    ----------
    space : {"value", "key", "log"}
        Scale of the argument. The function is the number of elements up to it, less the wanted
        number.
    iterations : int
        Largest number of pivots.

    Returns
    -------
    Strategy
        The method, for `order_statistic` and `quantile`.

    Notes
    -----
    Source: Beliakov 2011, section III, "Brent's nonlinear equation" of tables I and II; the method
    is that of Brent 1973 (*Algorithms for Minimization without Derivatives*, chapter 4). Reads: one
    for the extremes, one for each pivot.

    Weak spot of the paper: one outlier of 1e9 makes the function flat over nearly all of its range,
    so that the method bisects (section V.D). By key there is no such range. The count is exact, and
    the neighbours of each pivot end the search as in `Bisection`.
    """
    return one_pivot("brentroot", _brent_root, space, iterations)


def _brent_root(name: spaces.Name, known: Known, extent: object) -> Search:
    space, dtype = space_of(name, known), known.dtype
    a, b = ends_of(space, known)
    fa, fb = 1 - known.target, known.n - known.target
    c, fc = a, fa
    step = before = b - a
    while True:
        if (fb > 0) == (fc > 0):  # the root lies between b and c
            c, fc = a, fa
            step = before = b - a
        if abs(fc) < abs(fb):  # b must be the best, and a the one before
            a, b, c = b, c, b
            fa, fb, fc = fb, fc, fb
        before, step = _brent_step((a, fa), (b, fb), (c, fc), before, step)
        a, fa = b, fb
        pivot = space.nearest(b + step, dtype, known.lo, known.hi)
        known, measured = yield Points((pivot,))
        b = space.coordinate(pivot, dtype)
        fb = float(measured.upto[0]) - known.target


Point = tuple[float, float]
"""Coordinate, and the value of a function there."""


def _brent_step(
    last: Point, best: Point, other: Point, before: float, step: float
) -> tuple[float, float]:
    """Return the last step and the next one: interpolated if that is good enough, else halved."""
    (a, fa), (b, fb), (c, fc) = last, best, other
    half = c / 2 - b / 2
    if abs(fa) <= abs(fb) or fb == 0 or fa == 0:
        return half, half
    s = fb / fa
    if a == c:
        p, q = 2 * half * s, 1 - s
    else:
        u, r = fa / fc, fb / fc
        p = s * (2 * half * u * (u - r) - (b - a) * (r - 1))
        q = (u - 1) * (r - 1) * (s - 1)
    p, q = (p, -q) if p > 0 else (-p, q)
    if 2 * p < min(3 * half * q, abs(before * q)):
        return step, p / q
    return half, half
