"""Kelley's cutting planes, with one pivot in each round."""

from __future__ import annotations

from dask_gpuselect.maths.ranks import Applied
from dask_gpuselect.strategies import spaces
from dask_gpuselect.strategies.known import Known, Search, Strategy
from dask_gpuselect.strategies.probes import (
    Extent,
    ExtentResult,
    Points,
    PointsResult,
    points_bytes,
)
from dask_gpuselect.strategies.spaces import VALUE, Space

Cut = tuple[float, float, float]
"""Line below the objective: the coordinate where it touches, the objective there, and its slope."""


def Kelley(iterations: int = 7, space: spaces.Name = "value") -> Strategy:
    """Make the cutting-plane method: the next pivot is where the two innermost lines meet.

    The objective of an order statistic is convex and piecewise linear. So two lines that touch it
    left and right of the minimum bound it from below, and the minimum lies between them. After a
    few rounds, the elements left in the bracket are gathered and sorted.

    Parameters
    ----------
    iterations : int, default 7
        Largest number of pivots.
    space : {"value", "key", "log"}
        Scale of the objective; see the notes.

    Returns
    -------
    Strategy
        The method, for `order_statistic` and `quantile`.

    Notes
    -----
    Source: Beliakov 2011, section IV, algorithm 1, and the hybrid at its end; the objective is
    equation (2). The paper exchanges the weights of the two sides: with ``n - k + 1/2`` on the
    elements above, the minimum is ``x_(n - k + 1)``, which is the wanted element for the median
    alone.

    Reads: one for the extremes and the total (the paper's formulas for the first two lines), one
    for each pivot; in the "log" space one more.

    Weak spots of the paper: elements about 1e20 drown the others in the sums (section V.D), and for
    k = 2 another implementation gave a wrong answer in 19 % of cases (Alabi et al. 2012, section
    5.1). Here only counts move the bracket, so sums can only cost rounds. `space` "log" is the
    paper's transform ``log(1 + x - x_(1))``. "key" measures by ordered keys, in which no element is
    far from the others, and infinities and overflow do no harm. If sums are not finite, the middle
    key is the next pivot.
    """
    n_points = 1 + (space == "log")
    rounds = n_points + iterations
    opening = Extent(Space("key") if space == "key" else VALUE)
    search = Applied(_kelley, (iterations, opening.space, space == "log"))
    return Strategy("kelley", search, rounds, Applied(points_bytes, (n_points, rounds)), opening)


def _kelley(
    iterations: int, space: Space, is_log: bool, known: Known, extent: ExtentResult
) -> Search:
    least, largest, dtype = extent.least, extent.largest, known.dtype
    if is_log:
        space = Space("log", float(spaces.element(least, dtype)))
        known, ends = yield Points((least, largest), space)
        left, right = (
            _cut(known, space, key, ends, i, is_left=i == 0)
            for i, key in enumerate((least, largest))
        )
    else:
        left, right = _first_cuts(known, space, extent)
    for _ in range(iterations):
        pivot = space.nearest(_meeting(left, right), dtype, known.lo, known.hi)
        known, measured = yield Points((pivot,), space)
        is_left = bool(measured.upto[0] <= known.first)
        cut = _cut(known, space, pivot, measured, 0, is_left=is_left)
        left, right = (cut, right) if is_left else (left, cut)


def _first_cuts(known: Known, space: Space, extent: ExtentResult) -> tuple[Cut, Cut]:
    """Compute the lines at the extremes, from their values and the total.

    See Beliakov 2011, end of section IV.
    """
    n, target = known.n, known.target
    least, largest, total = (
        space.coordinate(extent.least, known.dtype),
        space.coordinate(extent.largest, known.dtype),
        extent.total,
    )
    left = least, target * (total / n - least), 1 - target
    right = largest, (n - target) * (largest - total / n), n - 1 - target
    return left, right


def _cut(
    known: Known, space: Space, key: int, measured: PointsResult, i: int, *, is_left: bool
) -> Cut:
    """Compute the line at a pivot that is steepest towards the minimum."""
    n, target = known.n, known.target
    low, high = float(measured.low[i]), float(measured.high[i])
    f = target * (high / n) + (n - target) * (low / n)
    g = float(measured.upto[i] if is_left else measured.below[i]) - target
    return space.coordinate(key, known.dtype), f, g


def _meeting(left: Cut, right: Cut) -> float:
    """Compute the coordinate where two lines meet; NaN if sums have overflowed."""
    (c, f, g), (right_c, right_f, right_g) = left, right
    try:
        return c + (right_f - f - (right_c - c) * right_g) / (g - right_g)
    except (OverflowError, ZeroDivisionError):
        return float("nan")
