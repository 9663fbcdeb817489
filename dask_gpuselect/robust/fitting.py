"""A robust fit: the best fits of a sample, and concentration on all rows.

::

    rows ──sample──> up to 65,536 rows ──> starts in nested subsets ──> the best fits of the sample
      │                                                                        │
      └── pass ──> tallies of all fits ──> halves ──> objectives, better fits ─┤
              ^                                                                │
              └────────────── the fits that became better ─────────────────────┘

The sample guesses two ends that have the h-th smallest residual between them. The counts of the
pass prove the guess. If they do not, two more passes find the residual by cuts, as `median` does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dask_gpuselect.arrays import Array, like, namespace, to_host
from dask_gpuselect.maths.cuts import ADVICE, UNKNOWN, ChunksChangedError, Cuts, FloatArray
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.fits.concentration import Half, Halves, ResidualSums, half_of, leap
from dask_gpuselect.maths.fits.designs import Design, rank
from dask_gpuselect.maths.fits.starts import FIRST_STEPS, Fit, StartSettings, best_fits, different
from dask_gpuselect.maths.fits.tables import Tables
from dask_gpuselect.robust import rows as passes
from dask_gpuselect.robust.rows import Rows

SAMPLED = 1 << 16  # rows
SAMPLED_BYTES = 1 << 26
# Width of a guess in standard deviations: it is wrong once in 1e9 times.
SIGMA = 6.0
# Share of the objective that a step in the sample has to gain for another step. More precision is
# left to the steps on all rows.
SAMPLE_TOL = 1e-6
GATHERED_BYTES = 1 << 27  # of rows that a pass gathers for all fits; for more, a pass of cuts first


@np.errstate(over="ignore", invalid="ignore")  # outliers may be infinitely far away
def fit(
    rows: Rows, h: int, search: StartSettings, *, tol: float, random: np.random.Generator
) -> tuple[Design, Fit]:
    """Find the best fit of h rows, and the design that it is of.

    Parameters
    ----------
    rows : Rows
        The rows of X and y.
    h : int
        Number of rows to fit, between half of the rows and all of them.
    search : StartSettings
        The criterion, and how starts are compared.
    tol : float
        Share of the objective that a step has to gain for another step.
    random : Generator
        Draws the sample and the starts.

    Raises
    ------
    ValueError
        For NaN and infinities, and if columns are collinear.
    ChunksChangedError
        If two passes read different data.

    Notes
    -----
    Passes: one, and one for each step if there are more than `SAMPLED` rows; three for a step
    if the guess was wrong, or would gather more than `GATHERED_BYTES`.
    """
    problem = Problem(rows, h, search, tol, *_sampled(rows, search, random))
    tables, share, is_all = problem.tables, h / problem.n, problem.size == problem.n
    fits = best_fits(tables, share, search, random, 0.0 if is_all else SAMPLE_TOL)
    if is_all:
        half = Halves.of(tables, fits[0].theta[None], h).half(0)
        return problem.design, replace(fits[0], half=half)
    fits = different(fits, tables, share)
    begun = [Fit(UNKNOWN, math.inf, proposals=(each.theta,)) for each in fits]
    return problem.design, _concentrated(problem, begun)


# --- The sample -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Problem:
    """The rows to fit, with a sample of them, which is on the device of the rows.

    `rows`, `h`, `search` and `tol` are the arguments of `fit`. `tables` has the sampled rows of the
    design.
    """

    rows: Rows
    h: int
    search: StartSettings
    tol: float
    design: Design
    tables: Tables

    @property
    def n(self) -> int:
        """Number of rows."""
        return sum(self.rows.sizes)

    @property
    def size(self) -> int:
        """Number of sampled rows."""
        return self.tables.n

    def residuals(self, thetas: FloatArray) -> Array:
        """Return absolute residuals of some fits, shape (F, size); overflow is infinite."""
        size = abs(self.tables.residuals(thetas, np.zeros(len(thetas), np.int64)))
        xp = namespace(size)
        return xp.where(xp.isnan(size), np.inf, size)


def _sampled(
    rows: Rows, search: StartSettings, random: np.random.Generator
) -> tuple[Design, Tables]:
    """Draw rows at random places, in their order. The sample does not depend on the chunks."""
    n, row_bytes = sum(rows.sizes), 8 * (rows.p + 2)
    size = min(n, SAMPLED, max(SAMPLED_BYTES // row_bytes, 10 * (rows.p + 1)))
    places = np.sort(random.choice(n, size, replace=False, shuffle=False))
    x, y = passes.sample(rows, places)
    design = Design.of(x, y, has_intercept=search.has_intercept)
    table = design.rows(x)
    if (n_independent := rank(table)) < design.n_parameters:
        intercept = " and the intercept" if search.has_intercept else ""
        raise ValueError(
            f"the columns of X{intercept} are collinear: only {n_independent} of "
            f"{design.n_parameters} are linearly independent; leave out the columns that follow "
            "from others"
        )
    return design, Tables.of(table, design.target(y))


# --- All rows -------------------------------------------------------------------------------------


def _concentrated(problem: Problem, tracks: list[Fit]) -> Fit:
    """Return the best of some fits after steps on all rows; one fit takes the last steps."""
    for turn in range(problem.search.most_steps + 1):
        tracks = _after_a_pass(problem, tracks)
        if turn >= FIRST_STEPS:
            tracks = [min(tracks, key=lambda track: track.objective)]
        if all(track.is_settled for track in tracks):
            break
    return min(tracks, key=lambda track: track.objective)


def _after_a_pass(problem: Problem, tracks: list[Fit]) -> list[Fit]:
    """Return the tracks after one pass, in which each open track takes a step."""
    open_ = [track for track in tracks if not track.is_settled]
    fits = [(track, theta) for track in open_ for theta in track.proposals]
    measured = iter(_tallied(problem, fits))
    advanced = [
        _advanced(problem, track, [(theta, *next(measured)) for theta in track.proposals])
        for track in open_
    ]
    return [track for track in tracks if track.is_settled] + advanced


def _advanced(
    problem: Problem,
    track: Fit,
    measured: list[tuple[FloatArray, ResidualSums, FloatArray, Half]],
) -> Fit:
    """Return a track after one pass.

    It ends unless a proposal is better than the best fit so far by enough for another step.
    """
    criterion = problem.search.criterion
    sums = [criterion.sums(tally, ends, half) for _, tally, ends, half in measured]
    each = zip(measured, sums, strict=True)
    objectives = [criterion.objective(half, of_one) for (_, _, _, half), of_one in each]
    objective = min(objectives)
    if not objective < track.objective:
        return replace(track, is_settled=True)
    best = objectives.index(objective)
    theta, tally, ends, half = measured[best]
    gains = objective < track.objective * (1 - problem.tol)
    step = criterion.step(tally, ends, half, sums[best])
    proposals = [theta + step]
    if criterion.needs_sums and track.step is not None:
        proposals.append(theta + leap(theta - track.theta, step - track.step) * step)
    return Fit(theta, objective, track.n_steps + 1, not gains, half, step, tuple(proposals))


Measured = tuple[ResidualSums, FloatArray, Half]


def _tallied(problem: Problem, fits: list[tuple[Fit, FloatArray]]) -> list[Measured]:
    """Return the tallies of some fits with their halves.

    That takes one pass if all guesses hold, else two more.
    """
    thetas = np.array([theta for _, theta in fits])
    guesses = _guesses(problem, fits)
    measured: list[Measured | None] = [None] * len(fits)
    expected = sum(expected for _, expected in guesses)
    if expected * 8 * (thetas.shape[1] + 1) <= GATHERED_BYTES:
        # One chunk may have all of them, and there may be more by chance.
        room = [(ends, 4 * math.ceil(most) + 1024) for ends, most in guesses]
        measured = _measured(problem, thetas, room)
    missed = [i for i, each in enumerate(measured) if each is None]
    if missed:
        cuts = passes.cuts(problem.rows, problem.design, thetas[missed])
        proven = [_proven(each, problem.h) for each in cuts]
        for i, each in zip(missed, _measured(problem, thetas[missed], proven), strict=True):
            measured[i] = each
    if any(each is None for each in measured):
        raise ChunksChangedError(
            f"X or y has changed between two reads: residuals differ. {ADVICE}"
        )
    return [each for each in measured if each is not None]


def _measured(
    problem: Problem, thetas: FloatArray, about: list[tuple[FloatArray, int]]
) -> list[Measured | None]:
    """Tally all rows for some fits in one pass; None for a fit whose guess did not hold."""
    ends, most = [each for each, _ in about], [each for _, each in about]
    given: dict[str, Any] = {"design": problem.design, "thetas": thetas, "ends": ends, "most": most}
    tallies = passes.tallies(problem.rows, **given, with_sums=problem.search.criterion.needs_sums)
    pairs = list(zip(tallies, ends, strict=True))
    halves = [half_of(*pair, problem.h) for pair in pairs]
    each = zip(pairs, halves, strict=True)
    return [None if half is None else (*pair, half) for pair, half in each]


def _guesses(
    problem: Problem, fits: list[tuple[Fit, FloatArray]]
) -> list[tuple[FloatArray, float]]:
    """Guess two ends that have the h-th residual of each fit between them, and the rows between.

    For the best fit so far, t is known, and so is the rank that t has in the sample. A similar fit
    has its own t near the same rank. The uncertainty comes from the rows that have changed sides
    and are not in the sample.
    """
    size, share = problem.size, problem.h / problem.n
    sizes = problem.residuals(np.array([theta for _, theta in fits]))
    xp = namespace(sizes)
    ordered = xp.sort(sizes, axis=1)
    places = np.full(len(fits), share * size)
    spreads = np.full(len(fits), math.sqrt(size * share * (1 - share)))
    bests = [track.theta for track, _ in fits if track.half is not None]
    if problem.search.criterion.needs_sums and len(bests) == len(fits):
        t = like(np.array([track.half.t for track, _ in fits]), sizes)
        was_inside = problem.residuals(np.array(bests)) <= t[:, None]
        n_inside = was_inside.sum(axis=1)
        own_t = xp.take_along_axis(ordered, xp.minimum(n_inside, size - 1)[:, None], axis=1)
        n_changed = (was_inside != (sizes <= own_t)).sum(axis=1)
        places, changed = to_host(xp.stack([n_inside, n_changed])).astype(np.float64)
        spreads = np.minimum(spreads, np.sqrt(changed))
    margins = SIGMA * spreads + SIGMA
    firsts = np.floor(places - margins).astype(np.int64) - 1
    lasts = np.ceil(places + margins).astype(np.int64)
    ends = np.clip(np.stack([firsts, lasts], axis=1), 0, size - 1)
    lo, hi = to_host(xp.take_along_axis(ordered, like(ends, ordered), axis=1)).T
    lo, hi = np.where(firsts >= 0, lo, -1.0), np.where(lasts < size, hi, np.inf)
    expected = (lasts - firsts) * problem.n / size
    return [(np.unique(each), float(most)) for *each, most in zip(lo, hi, expected, strict=True)]


def _proven(cuts: Cuts, h: int) -> tuple[FloatArray, int]:
    """Prove two ends with the h-th residual of a fit between them, by the cuts of all chunks."""
    rank_of_h = np.array([h - 1])
    brackets = find_brackets(cuts, rank_of_h, rank_of_h)
    open_ends = np.where(brackets.wanted[[0, -1]], [-1.0, np.inf], np.nan)
    ends = np.concatenate([open_ends[:1], brackets.ends, open_ends[1:]])
    return ends[~np.isnan(ends)], int(cuts.n_valid.sum())
