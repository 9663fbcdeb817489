"""Robust regression: published fits, equivariance, contamination, passes, scikit-learn's rules."""

from __future__ import annotations

import math
import pickle
import sys
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import r2_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from dask_gpuselect import ChunksChangedError, neighbors, robust
from dask_gpuselect.maths.fits import starts
from dask_gpuselect.maths.fits.concentration import TrimmedSquares
from dask_gpuselect.maths.fits.tables import Tables
from dask_gpuselect.robust import LeastMedianOfSquares, LeastTrimmedSquares, fitting
from tests.backends import CUPY, Backend
from tests.matrix.cases import Counted
from tests.matrix.cases import _hidden as hidden
from tests.published import STACK_LOSS, STARS
from tests.spies import noted

Floats = NDArray[np.float64]
ESTIMATORS = [LeastTrimmedSquares, LeastMedianOfSquares]
FEW: dict[str, Any] = {"random_state": 0, "n_starts": 100}

both = pytest.mark.parametrize("estimator", ESTIMATORS)


def contaminated(n: int, p: int = 3, share: float = 0.45, seed: int = 0) -> tuple[Floats, Floats]:
    """Rows of a plane, 1 + x_1 + 2 x_2 ..., and a cluster of bad leverage points."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, p))
    y = x @ np.arange(1, p + 1) + 1 + 0.1 * random.normal(size=n)
    is_bad = random.random(n) < share
    x[is_bad] += 8
    y[is_bad] = -60 + random.normal(size=is_bad.sum())
    return x, y


def lazy(x: Floats, y: Floats, chunks: Any) -> tuple[da.Array, da.Array]:
    return da.from_array(x, chunks=(chunks, -1)), da.from_array(y, chunks=chunks)


@pytest.fixture
def small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few thousand rows are more than a sample."""
    monkeypatch.setattr(fitting, "SAMPLED", 1000)


# --------------------------------------------------------------------------------------------------
# Published fits
# --------------------------------------------------------------------------------------------------


def one_based(mask: NDArray[np.bool_]) -> list[int]:
    return (np.flatnonzero(mask) + 1).tolist()


@pytest.mark.any_dask
def test_stack_loss_by_trimmed_squares() -> None:
    """R's robustbase 0.99, ltsReg: the best subset; reweighted coefficients and outliers."""
    x, y = STACK_LOSS[:, :3], STACK_LOSS[:, 3]
    raw = LeastTrimmedSquares(n_starts=1000, random_state=0).fit(x, y)
    assert raw.n_covered_ == 13
    assert one_based(raw.support_) == [5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 17, 18, 19]
    table = np.column_stack([x, np.ones(21)])[raw.support_]
    wanted = np.linalg.lstsq(table, y[raw.support_], rcond=None)[0]
    np.testing.assert_allclose([*raw.coef_, raw.intercept_], wanted, rtol=1e-8)
    np.testing.assert_allclose(raw.coef_, [0.7409, 0.3915, 0.0111], atol=5e-5)
    actual = LeastTrimmedSquares(reweight=True, random_state=0).fit(x, y)
    np.testing.assert_allclose(actual.coef_, [0.7977, 0.5773, -0.0671], atol=5e-5)
    assert actual.intercept_ == pytest.approx(-37.6525, abs=5e-5)
    assert one_based(~actual.support_) == [1, 3, 4, 21]
    assert actual.scale_ == raw.scale_


@pytest.mark.any_dask
def test_stars_by_trimmed_squares() -> None:
    """The same of the star cluster, of which least squares sees only the giants."""
    x, y = STARS[:, :1], STARS[:, 1]
    raw = LeastTrimmedSquares(random_state=0).fit(x, y)
    best = "2 4 6 10 13 15 17 19 21 22 25 27 28 29 33 35 36 38 39 41 42 43 44 45 46"
    assert one_based(raw.support_) == [int(i) for i in best.split()]
    result = LeastTrimmedSquares(reweight=True, random_state=0).fit(x, y)
    assert result.coef_[0] == pytest.approx(3.046, abs=5e-4)
    assert result.intercept_ == pytest.approx(-8.500, abs=5e-4)
    assert one_based(~result.support_) == [7, 9, 11, 20, 30, 34]
    assert np.polyfit(x[:, 0], y, 1)[0] < 0


@pytest.mark.any_dask
def test_stack_loss_by_median_of_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rousseeuw & Leroy 1987, chapter 3: 0.714, 0.357, 0.000; with the best intercept, as R's lqs
    has it, -34.25. There the median is the 11th of 21 residuals."""
    x, y = STACK_LOSS[:, :3], STACK_LOSS[:, 3]
    monkeypatch.setattr("dask_gpuselect.robust.regression.rows_covered", lambda *about: 11)
    how = {"n_starts": 5985, "random_state": 0}  # all sets of four rows
    book = LeastMedianOfSquares(refine=False, **how).fit(x, y)
    np.testing.assert_allclose(book.coef_, [5 / 7, 5 / 14, 0], atol=1e-9)
    assert book.intercept_ == pytest.approx(-34.25)
    better = LeastMedianOfSquares(random_state=0).fit(x, y)
    assert better.objective_ < 0.94 * book.objective_


# --------------------------------------------------------------------------------------------------
# What an estimate has to be
# --------------------------------------------------------------------------------------------------


@pytest.mark.any_dask
@pytest.mark.parametrize(
    ("estimator", "n", "p", "chunks"),
    [
        (LeastTrimmedSquares, 3000, 3, 700),
        (LeastTrimmedSquares, 3000, 3, None),
        (LeastMedianOfSquares, 30, 1, None),  # of all starts: rounding leads other ways
    ],
)
@pytest.mark.slow
def test_equivariance(
    estimator: Any, n: int, p: int, chunks: int | None, small_samples: None
) -> None:
    """Regression, scale and affine: a change of the data changes the fit alike."""
    x, y = contaminated(n, p)
    how = {"random_state": 0, "n_starts": 500 if n < 100 else 100, "max_iter": 200, "tol": 0}
    random = np.random.default_rng(1)
    shift, mix = np.array([3.0, -2.0, 0.5])[:p], random.normal(size=(p, p))

    def fitted(x: Floats, y: Floats) -> Any:
        rows = (x, y) if chunks is None else lazy(x, y, chunks)
        return estimator(**how).fit(*rows)

    plain = fitted(x, y)
    moved = fitted(x, y + x @ shift + 5)
    np.testing.assert_allclose(moved.coef_, plain.coef_ + shift, rtol=1e-6)
    assert moved.intercept_ == pytest.approx(plain.intercept_ + 5, rel=1e-6)
    scaled = fitted(x, -1000 * y)
    np.testing.assert_allclose(scaled.coef_, -1000 * plain.coef_, rtol=1e-6)
    assert scaled.scale_ == pytest.approx(1000 * plain.scale_, rel=1e-6)
    mixed = fitted(x @ mix + np.arange(p), y)
    np.testing.assert_allclose(mix @ mixed.coef_, plain.coef_, rtol=1e-6)
    assert mixed.objective_ == pytest.approx(plain.objective_, rel=1e-6)


@both
def test_almost_half_of_the_rows_may_be_wrong(estimator: Any) -> None:
    x, y = contaminated(20_000)
    least_squares = np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]), y, rcond=None)[0]
    assert np.abs(least_squares[:3] - [1, 2, 3]).max() > 2
    result = estimator(**FEW).fit(x, y)
    np.testing.assert_allclose(result.coef_, [1, 2, 3], atol=0.05)
    assert result.intercept_ == pytest.approx(1, abs=0.05)
    assert 0.1 < result.scale_ < 0.3  # of errors of 0.1, of which it takes all for the inner half
    assert not result.support_[y < -50].any()


@pytest.mark.few(2)
@both
@pytest.mark.parametrize(("n", "size"), [(500, 1e17), (3000, 1e200), (3000, 1e300)])
def test_outliers_of_any_size(estimator: Any, n: int, size: float, small_samples: None) -> None:
    """Rows far out make columns look collinear, and sums overflow."""
    x, y = contaminated(n, share=0.0)
    x[: n // 50], y[n // 4 : n // 3] = size, -size
    result = estimator(**FEW).fit(*lazy(x, y, 700))
    np.testing.assert_allclose(result.coef_, [1, 2, 3], atol=0.2)
    assert result.scale_ < 1


@pytest.mark.few(2)
@both
@pytest.mark.parametrize("n", [60, 2000])
def test_exact_fit(estimator: Any, n: int, small_samples: None) -> None:
    """Where more than half of the rows lie in a plane it is found, and the scale is nothing."""
    x, y = contaminated(n)
    is_good = np.random.default_rng(3).random(n) < 0.6
    y[is_good] = x[is_good] @ [1, 2, 3] + 1
    result = estimator(**FEW).fit(*lazy(x, y, 999))
    np.testing.assert_allclose([*result.coef_, result.intercept_], [1, 2, 3, 1], rtol=1e-9)
    assert result.scale_ < 1e-10


@pytest.mark.few(4)
@both
@pytest.mark.parametrize(
    ("coverage", "fit_intercept", "times"),
    [(0.5, True, 1), (0.5, True, 50), (0.75, False, 1), (1.0, True, 1)],
)
def test_the_objective_is_what_it_says(
    estimator: Any, coverage: float, fit_intercept: bool, times: int, small_samples: None
) -> None:
    """Of all rows, to the h-th residual; those that are tied are counted, and shared."""
    x, y = (np.repeat(a, times, axis=0) for a in contaminated(4000 // times, share=0.2))
    how = {"coverage": coverage, "fit_intercept": fit_intercept, **FEW}
    actual = estimator(**how).fit(*lazy(x, y, 900))
    error = np.sort(np.abs(y - x @ actual.coef_ - actual.intercept_))
    h, p = actual.n_covered_, 3 + fit_intercept
    least = (4000 + p + 1) // 2
    assert (
        h == {0.5: least, 0.75: 2 * least - 4000 + int(1.5 * (4000 - least)), 1.0: 4000}[coverage]
    )
    wanted = (error[:h] ** 2).sum() if estimator is LeastTrimmedSquares else error[h - 1] ** 2
    assert actual.objective_ == pytest.approx(wanted, rel=1e-9)
    assert 0 <= actual.support_.compute().sum() - h < times
    assert (actual.intercept_ == 0) == (not fit_intercept)
    if coverage == 1 and estimator is LeastTrimmedSquares:
        table = np.column_stack([x, np.ones(4000)]) if fit_intercept else x
        wanted = np.linalg.lstsq(table, y, rcond=None)[0][:3]
        np.testing.assert_allclose(actual.coef_, wanted, rtol=1e-7)


def test_a_settled_fit_has_settled_on_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step in memory lowers its objective."""
    x, y = contaminated(3000, share=0.3)
    monkeypatch.setattr(fitting, "SAMPLED", 500)
    result = LeastTrimmedSquares(**FEW, tol=0, max_iter=300).fit(*lazy(x, y, 250))
    theta, table = np.append(result.intercept_, result.coef_), np.column_stack([np.ones(3000), x])
    about = (np.zeros(1, int), result.n_covered_, TrimmedSquares(), 100, 0.0)
    (best,) = starts.concentrated(Tables.of(table, y), theta[None], *about)
    assert best.objective > result.objective_ * (1 - 1e-12)


@pytest.mark.gpu
@both
def test_a_device_takes_the_same_starts(
    estimator: Any, small_samples: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NumPy's rows: the same fits go on from the sample, and few waits for the device."""
    x, y = contaminated(3000)
    wanted = estimator(**FEW).fit(x, y)
    waits = noted(monkeypatch, CUPY.array_type, "get", lambda *_: None)
    actual = estimator(**FEW).fit(CUPY.asarray(x), CUPY.asarray(y))
    np.testing.assert_allclose(actual.coef_, wanted.coef_, rtol=1e-9)
    assert actual.objective_ == pytest.approx(wanted.objective_, rel=1e-9)
    assert actual.n_iter_ == wanted.n_iter_
    assert len(waits) < 200


# --------------------------------------------------------------------------------------------------
# Chunks and passes
# --------------------------------------------------------------------------------------------------


def counted(
    x: Floats, y: Floats, chunk: int, *, known: bool = True, changed: Any = None
) -> tuple[Counted, da.Array, da.Array]:
    """Rows that are read anew in every pass, after what counts how often."""
    source = Counted(np.column_stack([x, y]), changed)
    table = source.lazy((chunk, -1)).map_blocks(np.copy)  # so that both are read together
    table = table if known else hidden(table, 1)
    return source, table[:, :-1], table[:, -1]


@both
def test_every_step_of_all_fits_is_one_load(
    estimator: Any, small_samples: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for the sample, and one for each step, which all fits that are left share."""
    source, *rows = counted(*contaminated(5000, share=0.1), 600)
    fits = noted(
        monkeypatch, fitting.passes, "tallies", lambda _, rows, *, thetas, **how: len(thetas)
    )
    result = estimator(**FEW).fit(*rows)
    assert source.each == {result.n_passes_} == {1 + len(fits)}
    assert fits[0] > 1
    # Then the best alone goes on, by a step or by many at once.
    assert all(n <= 2 for n in fits[1 + starts.FIRST_STEPS :])
    assert 2 <= result.n_iter_ <= len(fits)
    result.support_.compute()
    assert source.each == {result.n_passes_ + 1}


def test_many_steps_at_once(small_samples: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of clean data single steps are short; the fit is the same, in fewer passes."""
    rows = lazy(*contaminated(20_000, share=0.0), 5_000)
    how: dict[str, Any] = {**FEW, "tol": 1e-12, "max_iter": 300}
    leaping = LeastTrimmedSquares(**how).fit(*rows)
    for module in (fitting, starts):
        monkeypatch.setattr(module, "leap", lambda moved, changed: np.ones(moved.shape[:-1]))
    walking = LeastTrimmedSquares(**how).fit(*rows)
    assert leaping.n_passes_ < 0.7 * walking.n_passes_
    assert leaping.objective_ <= walking.objective_ * (1 + 1e-6)


def test_other_passes(small_samples: None) -> None:
    x, y = contaminated(5000)
    passes = LeastTrimmedSquares(**FEW).fit(*lazy(x, y, 600)).n_passes_
    source, *rows = counted(x, y, 600, known=False)
    of_unknown = LeastTrimmedSquares(**FEW).fit(*rows)
    wanted = LeastTrimmedSquares(**FEW).fit(x, y)
    np.testing.assert_allclose(of_unknown.coef_, wanted.coef_, rtol=1e-9)
    assert of_unknown.n_passes_ == passes + 1
    assert source.each == {passes + 1}
    np.testing.assert_array_equal(of_unknown.support_.compute(), wanted.support_)
    source, *rows = counted(x, y, 600)
    reweighted = LeastTrimmedSquares(reweight=True, random_state=0).fit(*rows)
    assert reweighted.n_passes_ == passes + 1
    assert source.each == {passes + 1}


def test_few_rows_are_loaded_once() -> None:
    source, *rows = counted(*contaminated(500), 60)
    result = LeastTrimmedSquares(**FEW).fit(*rows)
    assert source.each == {result.n_passes_} == {1}
    assert result.n_iter_ >= 1


def test_cuts_go_ahead_where_too_much_would_be_gathered(
    small_samples: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = contaminated(5000)
    right = LeastTrimmedSquares(**FEW).fit(*lazy(x, y, 600))
    monkeypatch.setattr(fitting, "GATHERED_BYTES", 0)
    result = LeastTrimmedSquares(**FEW).fit(*lazy(x, y, 600))
    assert result.n_passes_ == 1 + 2 * (right.n_passes_ - 1)
    np.testing.assert_allclose(result.coef_, right.coef_, rtol=1e-9)


CHUNKS: dict[str, Any] = {
    "one": -1,
    "even": 500,
    "odd": 617,
    "irregular": (1, 0, 2000, 999, 1000, 1000),
    "small": 97,
}


@both
@pytest.mark.slow
def test_chunks_make_no_difference(estimator: Any, small_samples: None) -> None:
    """The medians' none at all, sums' in the last digits."""
    x, y = contaminated(5000)
    fits = [estimator(**FEW).fit(*lazy(x, y, chunks)) for chunks in CHUNKS.values()]
    fits.append(estimator(**FEW).fit(x, y))
    for each in fits[1:]:
        if estimator is LeastMedianOfSquares:
            assert each.coef_.tolist() == fits[0].coef_.tolist()
            assert each.objective_ == fits[0].objective_
        np.testing.assert_allclose(each.coef_, fits[0].coef_, rtol=1e-9)
        np.testing.assert_array_equal(np.asarray(each.support_), np.asarray(fits[0].support_))


@pytest.mark.few(2)
@both
@pytest.mark.parametrize("kind", ["held", "lazy"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_kinds_of_arrays(
    backend: Backend, estimator: Any, kind: str, dtype: str, small_samples: None
) -> None:
    """The same rows are drawn and have the same residuals on every device."""
    x, y = contaminated(4000)
    x, y = x.astype(dtype), y.astype(dtype)
    wanted, make = estimator(**FEW).fit(x, y), getattr(backend, kind)
    rows = make(x, (700, 3)), make(y, 700)
    actual = estimator(**FEW).fit(*rows)
    np.testing.assert_allclose(actual.coef_, wanted.coef_, rtol=1e-8)
    predicted, support = actual.predict(rows[0]), actual.support_
    for answer, kind_of_answer in ((predicted, np.float64), (support, bool)):
        assert isinstance(answer, da.Array)
        assert isinstance(answer._meta, backend.array_type)
        assert answer.dtype == kind_of_answer
    predicted, support = dask.compute(predicted, support)
    np.testing.assert_array_equal(backend.to_numpy(support), wanted.support_)
    np.testing.assert_allclose(backend.to_numpy(predicted), wanted.predict(x), rtol=1e-8)


def test_lazy_predictions_and_scores() -> None:
    x, y = contaminated(3000)
    rows = lazy(x, y, 500)
    result = LeastTrimmedSquares(**FEW).fit(*rows)
    predicted = result.predict(rows[0])
    assert predicted.chunks == rows[1].chunks
    np.testing.assert_allclose(predicted.compute(), x @ result.coef_ + result.intercept_)
    source, *others = counted(x, y, 500)
    assert result.score(*others) == pytest.approx(result.score(*rows), rel=1e-12)
    assert source.each == {1}
    assert result.score(*rows) == pytest.approx(r2_score(y, result.predict(x)), rel=1e-12)
    assert result.score(x, y) == pytest.approx(result.score(*rows), rel=1e-12)
    with pytest.raises(ValueError, match="sample_weight"):
        result.score(*rows, np.ones(3000))
    with pytest.raises(
        ValueError, match="X has 2 features, but LeastTrimmedSquares is expecting 3"
    ):
        result.predict(rows[0][:, :2])
    with pytest.raises(NotFittedError):
        LeastTrimmedSquares().predict(rows[0])


def test_fits_of_lazy_rows_can_be_sent(small_samples: None) -> None:
    x, y = contaminated(2000)
    result = pickle.loads(pickle.dumps(LeastTrimmedSquares(**FEW).fit(*lazy(x, y, 500))))
    assert result.support_.compute().sum() == result.n_covered_
    assert clone(result).get_params() == result.get_params()


# --------------------------------------------------------------------------------------------------
# Data that are not as they should be
# --------------------------------------------------------------------------------------------------


@pytest.mark.few(2)
@both
@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_targets_of_any_size(estimator: Any, scale: float) -> None:
    """Squares of them may be beyond what a float64 holds, and nothing else is."""
    x, y = contaminated(300)
    one, other = (estimator(**FEW, reweight=True).fit(x, y * by) for by in (1.0, scale))
    np.testing.assert_allclose(other.coef_ / scale, one.coef_, rtol=1e-9)
    assert other.scale_ / scale == pytest.approx(one.scale_)
    assert other.objective_ == (math.inf if scale > 1 else pytest.approx(0, abs=1e-300))
    np.testing.assert_array_equal(other.support_, one.support_)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_chunk_that_changes(small_samples: None, is_known: bool) -> None:
    def changed(rows: Floats, place: Any, load: int) -> Floats:
        return rows[1:] if (place[0][0], load) == (1000, 2) else rows

    _, X, y = counted(*contaminated(3000), 500, known=is_known, changed=changed)
    if is_known:
        error: type[Exception] = ValueError
        message = r"chunk \(2,.*\) of [Xy] has shape \(499,.*\), but its array says \(500,.*\)"
    else:
        error, message = ChunksChangedError, "chunk 2 of X has 499 rows, and had 500 before"
    with pytest.raises(error, match=message):
        LeastTrimmedSquares(**FEW).fit(X, y)


@both
def test_steps_that_do_not_suffice(estimator: Any, small_samples: None) -> None:
    x, y = contaminated(5000)
    with pytest.warns(ConvergenceWarning, match="not settled after max_iter=1 steps"):
        result = estimator(**FEW, max_iter=1).fit(*lazy(x, y, 500))
    assert result.n_iter_ <= 2


def test_estimators_say_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both modules that have them; what is no estimator works."""
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    for name in ("robust.regression", "neighbors.estimators"):
        monkeypatch.delitem(sys.modules, f"dask_gpuselect.{name}", raising=False)
    assert neighbors.kneighbors([[1.0], [5.0]], [[4.0]], 1)[1] == 1
    of_neighbors = ["NearestNeighbors", "KNeighborsRegressor", "KNeighborsClassifier"]
    of_fits = [estimator.__name__ for estimator in ESTIMATORS]
    for module, names in ((neighbors, of_neighbors), (robust, of_fits)):
        for name in names:
            with pytest.raises(ImportError, match=f"{name} needs scikit-learn: pip install sc"):
                getattr(module, name)
        assert not hasattr(module, "others")


# --------------------------------------------------------------------------------------------------
# scikit-learn's own checks
# --------------------------------------------------------------------------------------------------

EXPECTED = {
    "check_regressors_no_decision_function": "ten rows for five parameters: more are needed",
}


@pytest.mark.slow
@pytest.mark.any_dask
@parametrize_with_checks(
    [estimator(random_state=0, n_starts=50) for estimator in ESTIMATORS],
    expected_failed_checks=lambda estimator: EXPECTED,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)
