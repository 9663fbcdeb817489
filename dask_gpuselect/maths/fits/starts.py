"""Starts of fits: exact fits of a few random rows, and concentration in nested subsets.

If there are very many rows, only a sample is used here. A few hundred rows tell most good starts
from bad ones. The remaining starts go on with more rows, as in the nested extensions of FAST-LTS
(Rousseeuw & Van Driessen 2006, section 4):

    starts in 5 subsets of 300 ──> the best of each in all 1,500 ──> the best of these in the sample
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dask_gpuselect.arrays import like, namespace, to_host
from dask_gpuselect.maths.cuts import UNKNOWN, FloatArray, IntArray
from dask_gpuselect.maths.fits.concentration import Criterion, Half, Halves, leap
from dask_gpuselect.maths.fits.tables import Tables

SUBSET, SUBSETS = 300, 5  # rows of a subset, and number of subsets: the paper's
FIRST_STEPS = 2  # steps after which starts are compared, the paper's
DIGITS = float(1 << 24)
SAME = 1e-7  # relative to a coefficient of the design: fits that are no further apart are the same
# Fits of a sample whose objective is worse than the best one by this share are dropped. By chance,
# the objectives of two fits in 65,536 rows, with h bounded terms each, differ by 0.8 % at most.
CLOSE = 0.05
BLOCK = 1 << 20  # number of residuals that are computed together, for as many fits as they make
ERRORS = 0.5  # in typical errors of the sample: fits nearer to each other become one in all rows


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit of some rows, and how it was found.

    Parameters
    ----------
    theta : ndarray, shape (p,)
        Coefficients of the design.
    objective : float
        Objective of the criterion, for the rows that were used.
    n_steps : int
        Number of steps that led to it.
    is_settled : bool
        True if another step gains nothing.
    half : Half
        The half of the rows that is fitted, if it was asked for.
    step : ndarray, shape (p,)
        The step that follows, of a fit of all rows that is in progress.
    proposals : tuple of ndarray
        Coefficients that the next pass over all rows is to try.
    """

    theta: FloatArray
    objective: float
    n_steps: int = 0
    is_settled: bool = False
    half: Half = UNKNOWN
    step: FloatArray = UNKNOWN
    proposals: tuple[FloatArray, ...] = ()


@dataclass(frozen=True)
class StartSettings:
    """Settings for drawing and comparing starts.

    Parameters
    ----------
    criterion : Criterion
    has_intercept : bool
        True if the first column of the design is the intercept.
    n_starts, n_best : int
        Number of starts, and of fits that go on to more rows.
    most_steps : int
        Largest number of steps of a fit; with 0 fits are only compared.
    """

    criterion: Criterion
    has_intercept: bool
    n_starts: int
    n_best: int
    most_steps: int


def best_fits(
    whole: Tables,
    share: float,
    search: StartSettings,
    random: np.random.Generator,
    tol: float = 0.0,
) -> list[Fit]:
    """Find the best distinct fits of some rows, the best first.

    Parameters
    ----------
    whole : Tables
        A single table, of rank p.
    share : float
        Share of the rows that a fit describes.
    search : StartSettings
    random : Generator
    tol : float
        Share of the objective that a step on all rows must gain for another step to follow.

    Returns
    -------
    list of Fit
    """
    subsets = nested_subsets(whole.n, random)
    first_steps = min(FIRST_STEPS, search.most_steps)
    quick = search.criterion.quick if len(subsets) > 1 else search.criterion
    tables = whole.taken(np.stack(subsets)) if len(subsets) > 1 else whole
    drawn = _starts(tables, share, search, random)
    fits = _best(tables, *drawn, share, search, quick, first_steps)
    if len(subsets) > 1:
        tables = whole.taken(np.concatenate(subsets)[None])
        fits = _best(tables, *_of_one(fits), share, search, quick, first_steps)
    if tol:
        fits = _best(whole, *_of_one(fits), share, search, quick, first_steps)
        fits = different(fits, whole, share)
    thetas, which = _of_one(fits)
    return _best(whole, thetas, which, share, search, search.criterion, search.most_steps, tol)


def different(fits: list[Fit], whole: Tables, share: float) -> list[Fit]:
    """Choose the fits of a sample to compare on more rows, the best first."""
    close = [fit for fit in fits if not fit.objective > fits[0].objective * (1 + CLOSE)]
    thetas, which = _of_one(close)
    h = rows_of(share, whole.n, whole.p)
    typical = to_host(Halves.of(whole, thetas, h, which).t)
    errors = ERRORS * typical * math.sqrt(whole.p / whole.n)
    chosen, is_open = list[Fit](), np.ones(len(close), np.bool_)
    while is_open.any():
        i = int(np.argmax(is_open))
        chosen.append(close[i])
        is_open[i] = False
        rest = np.flatnonzero(is_open)
        is_open[rest] = ~(_distances(whole, thetas[rest] - thetas[i]) < errors[rest])
    return chosen


def _distances(whole: Tables, moved: FloatArray) -> FloatArray:
    """Compute how far changes of coefficients, shape (F, p), move the typical row, shape (F,)."""
    if not len(moved):
        return np.empty(0)
    xp = namespace(whole.target)
    far = abs(like(moved, whole.target) @ whole.columns[:, 0, :])
    return np.asarray(to_host(xp.median(far, axis=1)))


def nested_subsets(n: int, random: np.random.Generator) -> list[IntArray]:
    """Draw disjoint subsets of n rows, or take all rows if they are few."""
    n_subsets = min(n // SUBSET, SUBSETS)
    if n_subsets < 2:
        return [np.arange(n)]
    rows = random.choice(n, n_subsets * SUBSET, replace=False)
    return list(rows.reshape(n_subsets, SUBSET))


def rows_of(share: float, n: int, p: int) -> int:
    """Compute the share of n rows as a number, but enough for p parameters."""
    return min(max(round(share * n), p + 1), n)


# --- Starts ---------------------------------------------------------------------------------------


def _starts(
    tables: Tables, share: float, search: StartSettings, random: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Draw starts, shape (F, p), and return them with the number of the table of each.

    Rows are drawn on the host.
    """
    n_starts = math.ceil(search.n_starts / len(tables.target))
    drawn = [elemental_fits(*table, n_starts, random) for table in tables.on_host()]
    thetas, which = np.concatenate(drawn), np.repeat(np.arange(len(drawn)), list(map(len, drawn)))
    if search.has_intercept:
        h = rows_of(share, tables.n, tables.p)
        thetas[:, 0] += search.criterion.locations(tables, thetas, which, h)
    return thetas, which


def elemental_fits(
    design: FloatArray, target: FloatArray, n_starts: int, random: np.random.Generator
) -> FloatArray:
    """Fit p random rows exactly, for each start, shape (n_fits, p).

    If there are no more sets of p rows than starts, all sets are used. Where p rows do not
    determine a fit others are added, and it is the shortest least squares fit.
    """
    n, p = design.shape
    if math.comb(n, p) <= n_starts:
        rows = np.array(list(itertools.combinations(range(n), p)))
        rows = rows[_is_regular(design[rows])]
        return _fits(design[rows], target[rows])
    # Each start has its own permutation of the rows, and takes as many rows from it as it needs.
    orders = np.argsort(random.random((n_starts, n)), axis=1, kind="stable")
    fits = np.empty((n_starts, p))
    todo, size = np.arange(n_starts), p
    while len(todo):
        rows = orders[todo, :size]
        is_done = _is_regular(design[rows]) if size < n else np.ones(len(todo), np.bool_)
        fits[todo[is_done]] = _fits(design[rows[is_done]], target[rows[is_done]])
        todo, size = todo[~is_done], min(size + p, n)
    return fits


def _is_regular(designs: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return whether designs, shape (s, m, p), have rank p."""
    sizes = np.linalg.svd(designs, compute_uv=False)
    eps = np.finfo(np.float64).eps
    regular: np.ndarray[tuple[int], np.dtype[np.bool_]] = sizes[:, -1] > sizes[:, 0] * (
        max(designs.shape[1:]) * eps
    )
    return regular


def _fits(designs: FloatArray, targets: FloatArray) -> FloatArray:
    if designs.shape[1] == designs.shape[2]:
        exact = np.linalg.solve(designs, targets[..., None])[..., 0]
        return exact.astype(np.float64, copy=False)
    inverses = np.linalg.pinv(designs).astype(np.float64, copy=False)
    shortest: FloatArray = np.einsum("sij,sj->si", inverses, targets)
    return shortest


# --- Fits of rows in memory -----------------------------------------------------------------------


def _best(
    tables: Tables,
    thetas: FloatArray,
    which: IntArray,
    share: float,
    search: StartSettings,
    steps_by: Criterion,
    n_steps: int,
    tol: float = 0.0,
) -> list[Fit]:
    """Improve fits of each table by some steps, and find the best distinct ones, the best first."""
    h = rows_of(share, tables.n, tables.p)
    size = max(BLOCK // tables.n, 1)
    fits = []
    for i in range(0, len(thetas), size):
        of_some = which[i : i + size]
        some = concentrated(tables, thetas[i : i + size], of_some, h, steps_by, n_steps, tol)
        if steps_by is not search.criterion:
            reached = _rounded(np.stack([fit.theta for fit in some]))
            some = concentrated(tables, reached, of_some, h, search.criterion, 0, 0.0)
        fits += some
    bounds = np.searchsorted(which, np.arange(len(tables.target) + 1)).tolist()
    each = (fits[begin:end] for begin, end in itertools.pairwise(bounds))
    return [fit for of_table in each for fit in _distinct(of_table, search.n_best)]


def _rounded(thetas: FloatArray) -> FloatArray:
    """Round coefficients to fewer digits, so that they are the same wherever they were summed.

    Minimax fits leave p + 1 residuals of one size, and the last digit of a start decides which of
    them are in the next half. So without this, fits on a device could end elsewhere.
    """
    digits, exponents = np.frexp(thetas)
    return np.ldexp(np.rint(digits * DIGITS) / DIGITS, exponents)


def _distinct(fits: list[Fit], most: int) -> list[Fit]:
    """Choose the best ones of some fits, no two of which are the same."""
    chosen: list[Fit] = []
    for fit in sorted(fits, key=lambda fit: fit.objective):
        if len(chosen) == most:
            break
        if not any(_is_same(fit, other) for other in chosen):
            chosen.append(fit)
    return chosen


def _of_one(fits: Sequence[Fit]) -> tuple[FloatArray, IntArray]:
    """Stack the coefficients of fits of the first table, with its number for each."""
    return np.stack([fit.theta for fit in fits]), np.zeros(len(fits), np.int64)


def _is_same(fit: Fit, other: Fit) -> bool:
    return bool(np.abs(fit.theta - other.theta).max() <= SAME * np.abs(other.theta).max())


def concentrated(
    tables: Tables,
    thetas: FloatArray,
    which: IntArray,
    h: int,
    criterion: Criterion,
    n_steps: int,
    tol: float,
) -> list[Fit]:
    """Improve fits by at most `n_steps` steps, as long as each step gains the share `tol`.

    Notes
    -----
    If several steps at once do not improve a fit, a single step is taken.
    """
    halves = Halves.of(tables, thetas, h, which)
    thetas, objectives = thetas.copy(), criterion.objectives(halves)
    n_done = np.zeros(len(thetas), np.int64)
    is_settled = np.zeros(len(thetas), np.bool_)
    going = np.flatnonzero(np.isfinite(objectives))
    halves = halves.chosen(going)
    moved = before = np.empty((len(going), tables.p))
    for n in range(1, n_steps + 1):
        if not len(going):
            break
        step = criterion.steps(halves)
        can_leap = criterion.needs_sums and n > 1
        leaps = leap(moved, step - before) if can_leap else np.ones(len(going))
        last, tried = objectives[going], thetas[going] + leaps[:, None] * step
        halves = Halves.of(tables, tried, h, which[going])
        reached = criterion.objectives(halves)
        missed = np.flatnonzero(~(reached < last) & (leaps > 1))
        if len(missed):
            tried[missed] = thetas[going[missed]] + step[missed]
            others = Halves.of(tables, tried[missed], h, which[going[missed]])
            halves, reached[missed] = halves.replaced(missed, others), criterion.objectives(others)
        goes_on = reached < last * (1 - tol)
        is_settled[going] = ~goes_on
        moved, before = (tried - thetas[going])[goes_on], step[goes_on]
        is_better = reached < last
        better = going[is_better]
        thetas[better], objectives[better] = tried[is_better], reached[is_better]
        n_done[better] = n
        going, halves = going[goes_on], halves.chosen(np.flatnonzero(goes_on))
    each = zip(thetas, objectives.tolist(), n_done.tolist(), is_settled.tolist(), strict=True)
    return [Fit(*facts) for facts in each]
