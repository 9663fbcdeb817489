"""Minimization of the objective by its values alone: golden section, and Brent's method."""

from __future__ import annotations

import math
from collections.abc import Generator

from dask_gpuselect.strategies import spaces
from dask_gpuselect.strategies.known import Known, Reply, Search, Strategy
from dask_gpuselect.strategies.probes import Points, Probe
from dask_gpuselect.strategies.roots import MOST_ITERATIONS, Point, ends_of, one_pivot, space_of
from dask_gpuselect.strategies.spaces import Space

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
