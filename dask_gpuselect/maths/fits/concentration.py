"""Concentration: steps from a fit to a better one, by the rows that it fits best.

For each fit, a pass over all rows counts the rows whose residual is below some ends, and adds them
up; only the rows between the ends are gathered. Among these is the h-th smallest residual, which
follows from the counts alone. It determines the objective of the fit, and the next fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from dask_gpuselect.arrays import Array, concatenate, like, namespace, to_host
from dask_gpuselect.maths.cuts import Arrays, FloatArray, IntArray
from dask_gpuselect.maths.fits.designs import solve
from dask_gpuselect.maths.fits.minimax import minimax
from dask_gpuselect.maths.fits.tables import Tables


@dataclass(frozen=True, slots=True, eq=False)
class ResidualSums(Arrays):
    """Sums of rows by their residuals from one fit, in one chunk or several together.

    A pass over the rows finds them at E ascending ends. The first entry is for the rows whose
    absolute residual is below all ends, the next E entries for the rows at each end.

    Parameters
    ----------
    n : ndarray of int64, shape (1 + E,)
        Number of rows. Exact.
    gram : ndarray, shape (1 + E, p, p)
        Sums of the products of columns of the design.
    moment : ndarray, shape (1 + E, p)
        Sums of the columns times the residual.
    squares : ndarray, shape (1 + E,)
        Sums of squared residuals.
    rows : array, shape (m, 1 + p)
        Residual and design of the rows between the first and the last end, except those at an end,
        in the order of the data; on the host, or where the rows are.
    is_whole : bool
        True if there was room for all of these rows.
    """

    n: IntArray
    gram: FloatArray
    moment: FloatArray
    squares: FloatArray
    rows: FloatArray
    is_whole: bool

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Merge the tallies of all parts."""
        if len(parts) == 1:
            return parts[0]
        sums = {
            name: np.sum([getattr(part, name) for part in parts], axis=0)
            for name in ("n", "gram", "moment", "squares")
        }
        rows = concatenate([part.rows for part in parts], axis=0)
        return cls(**sums, rows=rows, is_whole=all(part.is_whole for part in parts))


@dataclass(frozen=True, slots=True)
class Half:
    """The h rows with the smallest residuals, given by the largest of these residuals, t.

    All rows below t are in the half. Rows at t are in it with a share, so that there are h rows
    (Beliakov 2011, equation 4, where the share is a/b).

    Parameters
    ----------
    t : float
        The h-th smallest absolute residual.
    n_below, n_tied : int
        Number of rows whose absolute residual is less than t, and equal to t.
    h : int
        Number of rows in the half.
    """

    t: float
    n_below: int
    n_tied: int
    h: int

    @property
    def share(self) -> float:
        return (self.h - self.n_below) / self.n_tied

    def weights(self, sizes: FloatArray) -> FloatArray:
        """Compute the weights in the half of rows, or groups of rows, by absolute residual."""
        return np.where(sizes < self.t, 1.0, np.where(sizes == self.t, self.share, 0.0))


def half_of(tally: ResidualSums, ends: FloatArray, h: int) -> Half | None:
    """Find the half of a fit; None if its largest residual is not at the ends or between them."""
    n_others = int(tally.n[0])
    if not tally.is_whole or n_others >= h:
        return None
    sizes = abs(tally.rows[:, 0])
    # No gathered row is below the first end, and all are below the last one.
    inner = [int((sizes < end).sum()) for end in ends[1:-1].tolist()]
    counts = [0, *inner, len(sizes)][: len(ends)]
    for end, n_at, n_rows in zip(ends.tolist(), tally.n[1:].tolist(), counts, strict=True):
        n_below = n_others + n_rows
        if n_below >= h:
            xp = namespace(sizes)
            t = xp.partition(sizes, h - n_others - 1)[h - n_others - 1]
            return _half_at(xp, sizes, t, n_others, h)
        if n_below + n_at >= h:
            return Half(end, n_below, n_at, h)
        n_others += n_at
    return None


def _half_at(xp: Any, sizes: Array, t: Array, n_others: int, h: int) -> Half:
    """Make the half with the largest residual t, from some rows and the number of others below."""
    numbers = xp.stack([t, (sizes < t).sum(), (sizes == t).sum()])  # counts below 2^53 stay exact
    largest, n_below, n_tied = to_host(numbers).tolist()
    return Half(largest, n_others + int(n_below), int(n_tied), h)


@dataclass(frozen=True, slots=True, eq=False)
class Halves(Arrays):
    """Halves of S fits of rows in memory.

    Parameters
    ----------
    tables : Tables
    which : ndarray of int64, shape (S,)
        Number of the table of each fit, ascending.
    residuals : array, shape (S, n)
        Residuals of all rows.
    t : array, shape (S,)
        The h-th smallest absolute residual of each fit; infinite or NaN if fewer are finite.
    weights : array, shape (S, n)
        Weights of the rows in the half of each fit.
    h : int
        Number of rows in a half.
    """

    tables: Tables
    which: IntArray
    residuals: Array
    t: Array
    weights: Array
    h: int

    OF_FITS: ClassVar = "residuals", "t", "weights"

    @classmethod
    def of(cls, tables: Tables, thetas: FloatArray, h: int, which: IntArray | None = None) -> Self:
        """Compute the halves of fits of the first table, or of the tables `which`."""
        which = np.zeros(len(thetas), np.int64) if which is None else which
        residuals = tables.residuals(thetas, which)
        xp, sizes = namespace(residuals), abs(residuals)
        t = xp.partition(sizes, h - 1, axis=1)[:, h - 1]
        is_below, is_tied = sizes < t[:, None], sizes == t[:, None]
        n_left = h - xp.count_nonzero(is_below, axis=1)
        share = n_left / xp.maximum(xp.count_nonzero(is_tied, axis=1), 1)
        return cls(tables, which, residuals, t, is_below + is_tied * share[:, None], h)

    def half(self, i: int) -> Half:
        """Return the half of the i-th fit."""
        xp, sizes, t = namespace(self.t), abs(self.residuals[i]), self.t[i]
        return _half_at(xp, sizes, t, 0, self.h)

    def chosen(self, places: IntArray) -> Self:
        """Take the halves of some of the fits, at ascending places."""
        if len(places) == len(self.which):
            return self
        where = like(places, self.t)
        fits = {name: getattr(self, name)[where] for name in self.OF_FITS}
        return replace(self, which=self.which[places], **fits)

    def replaced(self, places: IntArray, others: Self) -> Self:
        """Replace the halves in some places by others."""
        if len(places) == len(self.which):
            return others
        where = like(places, self.t)
        fits = {name: getattr(self, name).copy() for name in self.OF_FITS}
        for name, each in fits.items():
            each[where] = getattr(others, name)
        return replace(self, **fits)


MOST_LEAP = 20.0


def leap(moved: FloatArray, changed: FloatArray) -> FloatArray:
    """Estimate how many steps at once lead fits to where steps end, from 1 to `MOST_LEAP`.

    Parameters
    ----------
    moved, changed : ndarray, shape (..., p)
        Difference between two fits, and between the steps that follow them.

    Returns
    -------
    ndarray, shape (...)

    Notes
    -----
    Near the end, each step covers the same share of the remaining way (Aitken 1926): 14 % with
    clean normal data and half of the rows. With 1e6 rows and 20 columns, 10 % of them outliers, 75
    steps became 15.
    """
    length = (moved * moved).sum(axis=-1)
    share = np.where(length > 0, -(changed * moved).sum(axis=-1), 1.0)
    share /= np.where(length > 0, length, 1.0)
    n_steps: FloatArray = 1 / np.clip(share, 1 / MOST_LEAP, 1.0)
    return n_steps


# --- Objectives -----------------------------------------------------------------------------------


class TrimmedSquares:
    """Criterion of least trimmed squares: the sum of the h smallest squared residuals.

    The step is the concentration step of Rousseeuw & Van Driessen 2006, section 3: least squares of
    the half. It lowers the half's sum, and the new half has an even lower one. The step starts from
    the residuals, so that rounding in the sums of products costs steps and not digits.
    """

    needs_sums = True
    """True if a step needs the sums of a tally; otherwise it needs the rows near t."""

    @property
    def quick(self) -> Criterion:
        """Criterion whose steps are used for starts in subsets."""
        return self

    def sums(self, tally: ResidualSums, ends: FloatArray, half: Half) -> FloatArray:
        """Compute products of residual and design over the half, shape (1 + p, 1 + p).

        These are the sum of squares, the moments and the Gram matrix.
        """
        # Groups without rows have no weight.
        of_groups = np.where(tally.n > 0, np.concatenate([[1.0], half.weights(ends)]), 0.0)
        groups = of_groups > 0
        moment = of_groups[groups] @ tally.moment[groups]
        sums = np.empty((1 + len(moment), 1 + len(moment)))
        sums[0, 0] = of_groups[groups] @ tally.squares[groups]
        sums[0, 1:] = sums[1:, 0] = moment
        sums[1:, 1:] = np.einsum("g,gij->ij", of_groups[groups], tally.gram[groups])
        if not len(tally.rows):
            return sums
        xp, sizes = namespace(tally.rows), abs(tally.rows[:, 0])
        weights = (sizes < half.t) + (sizes == half.t) * half.share
        rows = xp.where(weights[:, None] > 0, tally.rows, 0.0)
        near: FloatArray = to_host((rows * weights[:, None]).T @ rows)
        return sums + near

    def objective(self, half: Half, sums: FloatArray) -> float:
        """Compute the objective of the fit that was tallied."""
        return float(sums[0, 0])

    def step(
        self, tally: ResidualSums, ends: FloatArray, half: Half, sums: FloatArray
    ) -> FloatArray:
        """Compute the step that leads from the fit to a better one."""
        return solve(sums[1:, 1:], sums[0, 1:])

    def objectives(self, halves: Halves) -> FloatArray:
        """Compute the objective of each of some fits; infinite for one without a half."""
        xp = namespace(halves.t)
        near = xp.where(halves.weights > 0, halves.residuals, 0.0)
        squares = (halves.weights * near * near).sum(axis=1)
        return np.asarray(to_host(xp.where(xp.isfinite(halves.t), squares, np.inf)))

    def steps(self, halves: Halves) -> FloatArray:
        """Compute the steps of some fits, all of which have a half, shape (S, p)."""
        how = halves.residuals, halves.weights, halves.which
        return solve(*halves.tables.normal_equations(*how))

    def locations(self, tables: Tables, thetas: FloatArray, which: IntArray, h: int) -> FloatArray:
        """Compute what to add to the intercept of each fit to improve it, by its table."""
        return np.zeros(len(thetas))  # the step finds the intercept


class MedianSquares:
    """Criterion of the least median of squares: the h-th smallest squared residual.

    The step is the minimax fit of those rows of the half that were gathered. If all were gathered,
    no residual of the half gets larger than before, and the largest of the new half is even
    smaller. Otherwise the next pass shows whether the fit is better.
    """

    needs_sums = False

    @property
    def quick(self) -> Criterion:
        """Least trimmed squares.

        They lower the largest residual of a half too, in a tenth of the time.
        """
        return TrimmedSquares()

    def sums(self, tally: ResidualSums, ends: FloatArray, half: Half) -> FloatArray:
        """Compute nothing: the objective and the step need no sums."""
        return np.empty(0)

    def objective(self, half: Half, sums: FloatArray) -> float:
        return half.t * half.t

    def step(
        self, tally: ResidualSums, ends: FloatArray, half: Half, sums: FloatArray
    ) -> FloatArray:
        n_outside = half.h - int(tally.n[0]) - int(tally.n[1:][ends <= half.t].sum())
        nearest = nearest_rows(abs(tally.rows[:, 0]), max(n_outside, 0))
        rows = tally.rows[nearest]
        return minimax(rows[:, 1:], rows[:, 0])

    def objectives(self, halves: Halves) -> FloatArray:
        t: FloatArray = to_host(halves.t)
        return np.where(np.isfinite(t), t * t, np.inf)

    def steps(self, halves: Halves) -> FloatArray:
        nearest = nearest_rows(abs(halves.residuals), halves.h)
        steps = []
        for i, table in enumerate(halves.which.tolist()):
            columns = halves.tables.columns[:, table, :][:, nearest[i]]
            steps.append(minimax(columns.T, halves.residuals[i][nearest[i]]))
        return np.stack(steps)

    def locations(self, tables: Tables, thetas: FloatArray, which: IntArray, h: int) -> FloatArray:
        return shortest_middles(tables.residuals(thetas, which), h)


Criterion = TrimmedSquares | MedianSquares
"""Objective of the residuals in the half, with a step that reduces it."""


def nearest_rows(sizes: Array, h: int) -> Array:
    """Find the places of the h smallest along the last axis, the first ones of a tie."""
    xp = namespace(sizes)
    return xp.argsort(sizes, axis=-1, kind="stable")[..., :h]


def shortest_middles(residuals: Array, h: int) -> FloatArray:
    """Find the middle of the shortest interval that holds h residuals, for each fit.

    It is zero if there is none (Rousseeuw & Leroy 1987, chapter 4, section 2).
    """
    xp = namespace(residuals)
    ordered = xp.sort(residuals, axis=1)
    widths = ordered[:, h - 1 :] - ordered[:, : ordered.shape[1] - h + 1]
    widths = xp.where(xp.isfinite(widths), widths, np.inf)
    shortest = xp.argmin(widths, axis=1)[:, None]
    width = xp.take_along_axis(widths, shortest, axis=1)
    middles = (xp.take_along_axis(ordered, shortest, axis=1) + width / 2)[:, 0]
    return np.asarray(to_host(xp.where(xp.isfinite(middles), middles, 0.0)))
