"""Search with one pivot a round: the root of the subgradient, or the minimum of the objective.

The root by bisection and Brent's method; the minimum by golden section and Brent's method, from the
values of the objective alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator

from dask_gpuselect.maths.ranks import Applied
from dask_gpuselect.strategies import spaces
from dask_gpuselect.strategies.known import Known, Reply, Search, Strategy
from dask_gpuselect.strategies.probes import Extent, Points, Probe, points_bytes
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


# --- Minima of the objective ----------------------------------------------------------------------

GOLDEN = (3 - math.sqrt(5)) / 2


def _may_be_at(space: Space, c: float, known: Known) -> bool:
    """Return whether the wanted elements may lie at a coordinate; else a probe is useless."""
    first, last = ends_of(space, known)
    return first <= c <= last


def _objective(
    space: Space, c: float, known: Known
) -> Generator[Probe, Reply, tuple[float, float, Known]]:
    """Measure the objective near a coordinate, at an element inside the bracket.

    It is that of equation (2) of Beliakov 2011, with weights by `Known.target`. Returns the
    coordinate of that element, the value, and what is known.
    """
    pivot = space.nearest(c, known.dtype, known.lo, known.hi)
    known, measured = yield Points((pivot,), space)
    n, target = known.n, known.target
    f = target * (float(measured.high[0]) / n) + (n - target) * (float(measured.low[0]) / n)
    return space.coordinate(pivot, known.dtype), f, known


def GoldenSection(space: spaces.Name = "value", iterations: int = MOST_ITERATIONS) -> Strategy:
    """Make golden section: of two inner points, the one with the smaller objective stays inside.

    Parameters
    ----------
    space : {"value", "key", "log"}
        Scale of the objective and of the section.
    iterations : int
        Largest number of points.

    Returns
    -------
    Strategy
        The method, for `order_statistic` and `quantile`.

    Notes
    -----
    Source: Beliakov 2011, sections III and V.B. Reads: one for the extremes, one for each point.

    Counts at each point narrow the proven bracket, independently of the rounded values of the
    objective. If the next point lies outside the bracket, the section starts anew inside it. As
    with `Bisection`, outliers cost rounds by value, but not by key.
    """
    return one_pivot("goldensection", _golden_section, space, iterations)


def _golden_section(name: spaces.Name, known: Known, extent: object) -> Search:
    space = space_of(name, known)
    while True:
        a, b = ends_of(space, known)
        c, d = a + GOLDEN * (b - a), b - GOLDEN * (b - a)
        c, fc, known = yield from _objective(space, c, known)
        if not _may_be_at(space, d, known):
            continue
        d, fd, known = yield from _objective(space, d, known)
        while a < c < d < b:
            is_left = fc < fd
            if is_left:
                b, d, fd = d, c, fc
                x = a + GOLDEN * (b - a)
            else:
                a, c, fc = c, d, fd
                x = b - GOLDEN * (b - a)
            if not _may_be_at(space, x, known):
                break
            x, fx, known = yield from _objective(space, x, known)
            c, fc, d, fd = (x, fx, d, fd) if is_left else (c, fc, x, fx)


def BrentMinimize(space: spaces.Name = "value", iterations: int = MOST_ITERATIONS) -> Strategy:
    """Make Brent's minimization: the vertex of a parabola through three points, or golden section.

    Parameters
    ----------
    space : {"value", "key", "log"}
        Scale of the objective and its argument.
    iterations : int
        Largest number of points.

    Returns
    -------
    Strategy
        The method, for `order_statistic` and `quantile`.

    Notes
    -----
    Source: Beliakov 2011, sections III and V.B, "Brent's minimization" of tables I and II; the
    method is that of Brent 1973 (*Algorithms for Minimization without Derivatives*, chapter 5).
    Reads: one for the extremes, one for each point.

    Weak spot of the paper: between an outlier and the bulk of the data the objective is a line,
    through which there is no parabola. So the method falls back to golden section (section V.D and
    figure 5). By key there is no such stretch. The counts prove the bracket; the method starts anew
    inside it if the next point would lie outside.
    """
    return one_pivot("brentminimize", _brent_minimize, space, iterations)


def _brent_minimize(name: spaces.Name, known: Known, extent: object) -> Search:
    space = space_of(name, known)
    while True:
        a, b = ends_of(space, known)
        x, fx, known = yield from _objective(space, a + GOLDEN * (b - a), known)
        w, fw, v, fv = x, fx, x, fx  # the second best point, and the third
        step = before = 0.0
        while a <= x <= b:
            step, before = _parabolic((x, fx), (w, fw), (v, fv), a, b, before, step)
            if not _may_be_at(space, x + step, known):
                break
            u, fu, known = yield from _objective(space, x + step, known)
            if u == x:  # elements are farther apart than the step: start anew in the bracket
                break
            if fu <= fx:
                a, b = (x, b) if u >= x else (a, x)
                (v, fv), (w, fw), (x, fx) = (w, fw), (x, fx), (u, fu)
                continue
            a, b = (u, b) if u < x else (a, u)
            if fu <= fw or w == x:
                (v, fv), (w, fw) = (w, fw), (u, fu)
            elif fu <= fv or v in (x, w):
                v, fv = u, fu


def _parabolic(
    best: Point, second: Point, third: Point, a: float, b: float, before: float, step: float
) -> tuple[float, float]:
    """Choose the next step from the best point, and the step to compare the following one with.

    The step leads to the vertex of the parabola if that lies inside and the steps shrink. Otherwise
    it leads into the larger part.
    """
    (x, fx), (w, fw), (v, fv) = best, second, third
    r, q = (x - w) * (fx - fv), (x - v) * (fx - fw)
    p, q = (x - v) * q - (x - w) * r, 2 * (q - r)
    p, q = (-p, q) if q > 0 else (p, -q)
    if q > 0 and abs(p) < abs(q * before / 2) and q * (a - x) < p < q * (b - x):
        return p / q, step
    larger = (a if x >= a / 2 + b / 2 else b) - x
    return GOLDEN * larger, larger
