"""The mathematics of robust fits, and the kernels that tally rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from dask_gpuselect.arrays import to_host
from dask_gpuselect.kernels.reference import residuals as reference
from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.maths.fits.concentration import (
    Half,
    MedianSquares,
    ResidualSums,
    TrimmedSquares,
    half_of,
)
from dask_gpuselect.maths.fits.designs import Design, solve
from dask_gpuselect.maths.fits.minimax import minimax
from dask_gpuselect.maths.fits.scales import median_scale, rows_covered, trimmed_scale
from dask_gpuselect.maths.fits.starts import StartSettings, best_fits, elemental_fits
from dask_gpuselect.maths.fits.tables import Tables
from tests.backends import Backend

Floats = NDArray[np.float64]


def rows_and_target(n: int, p: int, seed: int = 0) -> tuple[Floats, Floats]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, p))
    return x, x @ np.arange(1, p + 1) + 1 + random.normal(size=n)


# --------------------------------------------------------------------------------------------------
# Kernels
# --------------------------------------------------------------------------------------------------


def kinds_of_rows(n: int) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    x, y = rows_and_target(n, 3)
    ties = np.round(x), np.round(y)
    return {
        "float64": (x, y),
        "float32": (x.astype("f4"), y.astype("f4")),
        "integers": (np.round(10 * x).astype("i4"), np.round(10 * y).astype("i8")),
        "bool": (x > 0, y > 0),
        "by columns": (np.asfortranarray(x), y),
        "every second": (np.repeat(x, 2, axis=0)[::2], np.repeat(y, 2)[::2]),
        "ties": ties,
        "huge": (x * 1e300, y * 1e300),
        "one huge": (np.where(np.arange(n)[:, None] == n // 2, 1.7e308, x), y),
        "tiny": (x * 1e-310, y),
        "far off": (x + 1e9, y - 1e9),
    }


KINDS = list(kinds_of_rows(1))
OF_OTHER_DTYPES = ("float32", "integers", "bool")  # each is compiled for itself
SIZES = (1, 257, 3000)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow if kind in OF_OTHER_DTYPES else [])
        for kind in KINDS
    ],
)
@pytest.mark.parametrize("has_intercept", [True, False])
def test_kernels_agree(backend: Backend, kind: str, n: int, has_intercept: bool) -> None:
    """With the reference of NumPy: counts, rows and residuals bit for bit, sums nearly."""
    x, y = kinds_of_rows(n)[kind]
    floats = x.astype("f8"), y.astype("f8")
    with np.errstate(all="ignore"):
        design = Design.of(*floats, has_intercept=has_intercept)
        thetas = np.random.default_rng(1).normal(size=(3, design.n_parameters)).round(2)
        sizes = np.sort(reference.absolute_residuals(*floats, design, thetas[1]))
        ends = [
            np.array([0.5, 0.75]),
            np.unique([sizes[n // 3], sizes[n // 2], sizes[2 * n // 3]]),
            np.array([-1.0, 0.01, np.inf]),
        ]
        most = [n, n, n // 2]
        wanted = reference.row_tallies(*floats, design, thetas, ends, most, with_sums=True)
        ours_x, ours_y = backend.asarray(x), backend.asarray(y)
        kernel = backend_for(ours_x).residuals
        about = (ours_x, ours_y, design)
        tallies = kernel.row_tallies(*about, thetas, ends, most, with_sums=True)
        bare = kernel.row_tallies(*about, thetas, ends, most, with_sums=False)
    assert len(tallies) == len(wanted) == len(bare) == 3
    for ours, theirs, counted in zip(tallies, wanted, bare, strict=True):
        np.testing.assert_array_equal(ours.n, theirs.n)
        np.testing.assert_array_equal(counted.n, theirs.n)
        assert ours.is_whole == theirs.is_whole == counted.is_whole
        if theirs.is_whole:
            np.testing.assert_array_equal(to_host(ours.rows), theirs.rows)
            np.testing.assert_array_equal(to_host(counted.rows), theirs.rows)
        for name in ("gram", "moment", "squares"):
            sums = getattr(theirs, name)
            room = 1e-12 * np.abs(sums).max(initial=1)
            np.testing.assert_allclose(getattr(ours, name), sums, rtol=1e-9, atol=room)
            assert not getattr(counted, name).any()
    for theta in thetas:
        with np.errstate(all="ignore"):
            ours = kernel.absolute_residuals(*about, theta)
            theirs = reference.absolute_residuals(*floats, design, theta)
        ours = ours if backend.name == "numpy" else ours.get()
        np.testing.assert_array_equal(ours, theirs)
        assert not np.isnan(theirs).any()


# --------------------------------------------------------------------------------------------------
# Halves
# --------------------------------------------------------------------------------------------------


def tally_of(values: Sequence[float], ends: Floats) -> ResidualSums:
    """Of residuals of a design of ones."""
    target = np.array(values, np.float64)
    design = Design(np.zeros(1), np.ones(1), 0.0, 1.0, False)
    about = (np.ones((len(target), 1)), target, design, np.zeros((1, 1)), [ends], [len(target)])
    return reference.row_tallies(*about, with_sums=True)[0]


small = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=30)


@given(small, st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.5, 3.0]), max_size=3), st.data())
def test_the_half_by_counts(values: list[float], inner: list[float], data: st.DataObject) -> None:
    """Of any ends about it the same h-th residual, ties shared so that weights add up to h, and the
    sum of exactly the h smallest squares."""
    h = data.draw(st.integers(1, len(values)))
    ordered = np.sort(np.abs(values))
    t = ordered[h - 1]
    ends = np.unique([data.draw(st.sampled_from([-1.0, 0.0, t])), t, *inner, 5.0])
    ends = ends[ends >= 0] if data.draw(st.booleans()) else ends
    tally = tally_of(values, ends)
    half = half_of(tally, ends, h)
    if tally.n[0] >= h:
        assert half is None
        return
    assert half == Half(t, int((ordered < t).sum()), int((ordered == t).sum()), h)
    assert half.weights(ordered).sum() == pytest.approx(h, rel=1e-14)
    objective = TrimmedSquares().sums(tally, ends, half)[0, 0]
    assert objective == pytest.approx((ordered[:h] ** 2).sum(), rel=1e-14)
    assert MedianSquares().objective(half, np.empty(0)) == t * t


def test_no_half_outside_the_ends() -> None:
    ends = np.array([1.0, 2.0])
    tally = tally_of([0.1, 0.2, 1.5, 3.0], ends)
    assert half_of(tally, ends, 2) is None
    assert half_of(tally, ends, 3) == Half(1.5, 2, 1, 3)
    assert half_of(tally, ends, 4) is None


# --------------------------------------------------------------------------------------------------
# Designs, normal equations, minimax fits
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_intercept", [True, False])
def test_coefficients_are_those_of_the_data(has_intercept: bool) -> None:
    x, y = rows_and_target(50, 3)
    x, y = x * [1e-5, 1, 1e5] + has_intercept * np.array([1e4, 0, -1e7]), 1e3 * y
    design = Design.of(x, y, has_intercept=has_intercept)
    assert (np.frexp(design.scale)[0] == 0.5).all()
    theta = np.linalg.lstsq(design.rows(x), design.target(y), rcond=None)[0]
    coef, intercept = design.coefficients(theta)
    table = np.column_stack([x, np.ones(50)]) if has_intercept else x
    wanted = np.linalg.lstsq(table / np.abs(table).max(axis=0), y, rcond=None)[0]
    wanted = wanted / np.abs(table).max(axis=0)
    np.testing.assert_allclose(coef, wanted[:3], rtol=1e-7)
    np.testing.assert_allclose(x @ coef + intercept, table @ wanted, rtol=1e-6, atol=1e-3)


def test_scales_of_columns_that_hardly_vary() -> None:
    x = np.zeros((9, 4))
    x[0, 1], x[:, 2], x[:, 3] = 1000, 1e300 * np.arange(9), 1e-320 * np.arange(9)
    design = Design.of(x, np.arange(9.0), has_intercept=True)
    rows = design.rows(x)
    assert np.isfinite(rows).all()
    assert rows[:, 1].tolist() == [0] * 9
    assert 0.5 <= rows[0, 2] <= 1
    assert 1 <= np.abs(rows[:, 3]).max() <= 8
    assert len(np.unique(rows[:, 4])) == 9


def test_solve() -> None:
    random = np.random.default_rng(0)
    table = random.normal(size=(4, 20, 3)) * [1e-6, 1, 1e6]
    truth = random.normal(size=(4, 3)) / [1e-6, 1, 1e6]
    gram = table.swapaxes(1, 2) @ table
    np.testing.assert_allclose(solve(gram, np.einsum("kij,kj->ki", gram, truth)), truth, rtol=1e-9)
    flat = np.array([[2.0, 2.0], [2.0, 2.0]])  # one direction: the shortest solution
    np.testing.assert_allclose(solve(flat, np.array([4.0, 4.0])), [1, 1])
    assert not solve(np.zeros((2, 2)), np.zeros(2)).any()


def best_by_program(design: Floats, target: Floats) -> float:
    n, p = design.shape
    costs = np.append(np.zeros(p), 1)
    limits = np.vstack([np.hstack([side * design, -np.ones((n, 1))]) for side in (1, -1)])
    solution = linprog(costs, limits, np.append(target, -target), bounds=[(None, None)] * (p + 1))
    assert solution.status == 0
    return float(solution.fun)


@pytest.mark.parametrize("p", [1, 2, 5])
@pytest.mark.parametrize("kind", ["normal", "ties", "exact but for one", "near collinear"])
def test_minimax(kind: str, p: int) -> None:
    random = np.random.default_rng(p)
    for n in (p + 1, p + 2, 60, 5000):
        design, target = random.normal(size=(n, p)), random.normal(size=n)
        if kind == "ties":
            design, target = design.round(), target.round()
            design[:p] += 9 * np.eye(p)
        elif kind == "exact but for one":
            target = design.sum(axis=1) + (np.arange(n) == 1)
        elif kind == "near collinear":
            design[:, -1] = design[:, 0] * (p > 1) + 1e-6 * design[:, -1]
        error = np.abs(target - design @ minimax(design, target)).max()
        assert error == pytest.approx(best_by_program(design, target), rel=1e-6, abs=1e-9)


def test_minimax_of_too_few_rows() -> None:
    assert not minimax(np.ones((2, 2)), np.ones(2)).any()
    assert not minimax(np.ones((9, 2)), np.arange(9.0)).any()
    assert not minimax(np.empty((0, 2)), np.empty(0)).any()


# --------------------------------------------------------------------------------------------------
# Starts
# --------------------------------------------------------------------------------------------------


def test_all_elemental_fits_of_few_rows() -> None:
    x, y = rows_and_target(8, 2)
    fits = elemental_fits(x, y, 28, np.random.default_rng(0))
    assert len(fits) == math.comb(8, 2)
    for rows, fit in zip(itertools.combinations(range(8), 2), fits, strict=True):
        np.testing.assert_allclose(x[list(rows)] @ fit, y[list(rows)])


def test_starts_of_rows_that_determine_nothing() -> None:
    """Most rows are alike: others are added until there is a fit."""
    design = np.column_stack([np.ones(200), np.arange(200) > 190])
    target = design @ [1, 2]
    fits = elemental_fits(design, target, 50, np.random.default_rng(0))
    np.testing.assert_allclose(fits, np.tile([1.0, 2.0], (50, 1)), atol=1e-9)


def least(x: Floats, y: Floats, criterion: Any, max_steps: int = 100) -> tuple[Floats, float]:
    """The rows of a design, and the least objective of a fit to eight of them that is found."""
    design = np.column_stack([np.ones(len(x)), x])
    search = StartSettings(criterion, True, 500, 10, max_steps)
    fits = best_fits(Tables.of(design, y), 8 / len(x), search, np.random.default_rng(0))
    return design, fits[0].objective


def sets_of(size: int, n: int) -> list[list[int]]:
    return [*map(list, itertools.combinations(range(n), size))]


@pytest.mark.parametrize("seed", range(4))
def test_trimmed_squares_of_all_halves(seed: int) -> None:
    """Brute force: the least sum among least squares of all sets of h rows."""
    x, y = rows_and_target(13, 2, seed)
    y[:4] += 20
    design, objective = least(x, y, TrimmedSquares())
    sums = [np.linalg.lstsq(design[rows], y[rows], rcond=None)[1][0] for rows in sets_of(8, 13)]
    assert objective == pytest.approx(min(sums), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_median_squares_of_all_references(seed: int) -> None:
    """Brute force: the optimum is the minimax fit of some p + 1 rows."""
    x, y = rows_and_target(14, 1, seed)
    y[:5] += 20
    design, objective = least(x, y, MedianSquares())
    fits = (minimax(design[rows], y[rows]) for rows in sets_of(3, 14))
    best = min(np.sort(np.abs(y - design @ theta))[7] ** 2 for theta in fits)
    assert objective == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_elemental_fits_by_brute_force(seed: int) -> None:
    """Without steps: the best of all elemental fits, with the best intercept of each."""
    x, y = rows_and_target(15, 1, seed)
    design, objective = least(x, y, MedianSquares(), max_steps=0)
    fits = [np.linalg.solve(design[rows], y[rows]) for rows in sets_of(2, 15)]
    errors = np.sort(y - np.stack(fits) @ design.T, axis=1)
    best = (errors[:, 7:] - errors[:, :8]).min() / 2
    assert objective == pytest.approx(best**2, rel=1e-9)


# --------------------------------------------------------------------------------------------------
# Scales
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coverage", [None, 0.75, 1.0])
def test_scales_estimate_a_standard_deviation(coverage: float | None) -> None:
    errors = np.sort(np.abs(np.random.default_rng(0).normal(scale=3, size=100_000)))
    h = rows_covered(coverage, 100_000, 2)
    square = float((errors[:h] ** 2).sum())
    trimmed = trimmed_scale(square, h, 100_000, 2, coverage=coverage, has_intercept=True)
    assert trimmed == pytest.approx(3, rel=0.02)
    if coverage != 1:
        assert median_scale(errors[h - 1], h, 100_000, 2) == pytest.approx(3, rel=0.02)
    assert trimmed_scale(0.0, h, 100_000, 2, coverage=coverage, has_intercept=False) == 0
