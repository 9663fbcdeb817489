"""Robust linear regression of arrays of any size, in scikit-learn's conventions."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from dask.base import is_dask_collection, tokenize
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dask_gpuselect.arguments import as_entered, check_most, check_real, check_table, public
from dask_gpuselect.arrays import as_type, gpu_of, like, namespace
from dask_gpuselect.engine.source import DaskArray, from_array, map_blocks
from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.maths.cuts import FloatArray
from dask_gpuselect.maths.fits.concentration import Criterion, MedianSquares, TrimmedSquares
from dask_gpuselect.maths.fits.designs import Design, solve
from dask_gpuselect.maths.fits.scales import NORMAL, median_scale, rows_covered, trimmed_scale
from dask_gpuselect.maths.fits.starts import Fit, StartSettings
from dask_gpuselect.quantiles.documentation import documented_like
from dask_gpuselect.quiet import quiet
from dask_gpuselect.robust import rows as passes
from dask_gpuselect.robust.fitting import fit
from dask_gpuselect.robust.rows import LazyRows, PlainRows, Rows

MOST_STARTS = 1 << 17  # residuals of all rows of a sample are in memory for all starts together
REWEIGHTED = NORMAL.inv_cdf(0.9875)  # residuals of more than this many scales are outliers

# scikit-learn has its own `repr` and compares estimators by identity.
with_parameters = dataclass(kw_only=True, repr=False, eq=False)


@with_parameters
class RobustRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The part of an estimator that does not depend on its criterion."""

    coverage: float | None = None
    fit_intercept: bool = True
    reweight: bool = False
    n_starts: int = 500
    n_best: int = 10
    max_iter: int = 100
    tol: float = 1e-10
    random_state: Any = None

    _criterion: ClassVar[Criterion]

    @public("X", "y")
    def fit(self, X: Any, y: Any) -> Self:
        """Fit a robust linear model to the rows of X and y.

        Parameters
        ----------
        X : dask array or array_like, shape (n, p)
            Real numbers, all finite. A dask array has NumPy or CuPy chunks of rows, with all
            columns in one chunk. The sizes of the chunks may be unknown.
        y : dask array or array_like, shape (n,)
            Real numbers, all finite. A dask array must have the same chunks of rows as `X`.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter is out of its range, if `X` or `y` has a wrong shape, if their chunks do
            not match, if columns are in several chunks, if columns are collinear, if there are no
            more than two rows for each parameter, or if a value is NaN or infinite.
        TypeError
            If an array is masked or not of real numbers, or if `y` is lazy and `X` is not.
        ChunksChangedError
            If a chunk differs between two reads.

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If the fit has not settled after `max_iter` steps.
        """
        self._check_parameters()
        rows = self._rows(X, y)
        n, p = sum(rows.sizes), self.n_features_in_ + bool(self.fit_intercept)
        if n <= 2 * p:
            raise ValueError(
                f"n_samples={n} is not enough: {p} parameters need more than {2 * p} rows"
            )
        h = rows_covered(self.coverage, n, p)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        random = np.random.default_rng(seed)
        design, fitted = fit(rows, h, self._search(), tol=self.tol, random=random)
        if not fitted.is_settled and self._improves:
            warnings.warn(
                f"the fit has not settled after max_iter={self.max_iter} steps: increase "
                "max_iter, or tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._describe(design, fitted, n, p)
        theta, limit = fitted.theta, fitted.half.t
        if self.reweight:
            limit = REWEIGHTED * self.scale_ * design.y_scale
            theta = _reweighted(rows, design, theta, limit)
            self.coef_, self.intercept_ = design.coefficients(theta)
        how = {"design": design, "theta": fitted.theta, "limit": limit}
        self.support_ = rows.mapped(_has_small_residual, "support", **how)
        self.n_passes_ = rows.n_passes
        return self

    @public("X")
    def predict(self, X: Any) -> Any:
        """Predict the value of each row.

        Parameters
        ----------
        X : dask array or array_like, shape (n, p)
            Real numbers.

        Returns
        -------
        dask array or array of float64, shape (n,)
            Lazy if `X` is a dask array.

        Raises
        ------
        ValueError
            If `X` has another number of columns than the fitted rows.
        sklearn.exceptions.NotFittedError
            If `fit` has not been called.
        """
        check_is_fitted(self)
        how: dict[str, Any] = {"coef": self.coef_, "intercept": self.intercept_}
        X = self._as_columns(X)
        if isinstance(X, DaskArray):
            meta = namespace(X._meta).zeros((0,), dtype=np.float64)
            name = f"prediction-{tokenize(X.name, self.coef_, self.intercept_)}"
            how |= {"drop_axis": 1, "dtype": np.float64, "meta": meta, "name": name}
            return map_blocks(_predicted, X, **how)
        return _predicted(X, **how)

    @public("X", "y", "sample_weight")
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the coefficient of determination of the predictions.

        Outliers lower it, although they do not change the fit.

        Parameters
        ----------
        X : dask array or array_like, shape (n, p)
            Rows, as for `fit`. A dask array is read once, at the call.
        y : dask array or array_like, shape (n,)
            The true values, as for `fit`.
        sample_weight : array_like, shape (n,), optional
            The weight of each row. Not supported for dask arrays.

        Returns
        -------
        float
            The value of `sklearn.metrics.r2_score`.

        Raises
        ------
        ValueError
            If `sample_weight` is given for a dask array, or if the shapes or chunks do not match.
        sklearn.exceptions.NotFittedError
            If `fit` has not been called.
        """
        if not isinstance(X, DaskArray):
            return float(super().score(X, y, sample_weight))
        if sample_weight is not None:
            raise ValueError(
                "sample_weight is not supported for dask arrays: leave it out, or pass arrays in "
                "memory"
            )
        check_is_fitted(self)
        X, y = self._as_columns(X), as_entered(y, "y")
        predict = partial(_predicted, coef=self.coef_, intercept=self.intercept_)
        n, mean, of_y, of_residual = passes.squares(X, _aligned(X, y), predict).T
        around = of_y.sum() + (n * (mean - np.average(mean, weights=n)) ** 2).sum()
        return float(1 - of_residual.sum() / around)

    # --- The criterion ----------------------------------------------------------------------------

    @property
    def _improves(self) -> bool:
        """Whether fits are improved by steps."""
        return True

    def _scale(self, fitted: Fit, n: int, p: int) -> float:
        """Estimate the standard deviation of the errors, in the units of the design."""
        raise NotImplementedError

    def _describe(self, design: Design, fitted: Fit, n: int, p: int) -> None:
        """Set the attributes that describe the fit."""
        self.n_covered_ = fitted.half.h
        self.coef_, self.intercept_ = design.coefficients(fitted.theta)
        # Dividing twice, because the square of a scale may be beyond the largest float64.
        self.objective_ = float(fitted.objective) / design.y_scale / design.y_scale
        self.n_iter_ = max(fitted.n_steps, 1)
        self.scale_: float = self._scale(fitted, n, p) / design.y_scale

    def _search(self) -> StartSettings:
        """Return how starts are searched."""
        return StartSettings(
            self._criterion,
            bool(self.fit_intercept),
            self.n_starts,
            self.n_best,
            self.max_iter if self._improves else 0,
        )

    # --- Checks -----------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Raise for parameters that are out of range."""
        if self.coverage is not None and not _is_within(self.coverage, 0.5, 1):
            raise ValueError(
                f"coverage must be None or a number in [0.5, 1], not {self.coverage!r}"
            )
        for name, least in (("n_starts", 1), ("n_best", 1), ("max_iter", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")
        check_most(int(self.n_starts), "n_starts", MOST_STARTS)
        if not _is_within(self.tol, 0, 1) or self.tol == 1:
            raise ValueError(f"tol must be a number in [0, 1), not {self.tol!r}")

    def _rows(self, X: Any, y: Any) -> Rows:
        """Check X and y, and return their rows."""
        is_lazy = isinstance(X, DaskArray)
        if is_dask_collection(y) and not is_lazy:
            raise TypeError("y is lazy and X is not: pass da.from_array(X), or y.compute()")
        X, y = as_entered(X, "X"), as_entered(y, "y")
        if not is_lazy and gpu_of(X) is None:
            checked = validate_data(
                self, X, y, y_numeric=True, dtype=(np.float64, np.float32), ensure_min_samples=2
            )
            return PlainRows(*checked)
        check_table(X, "X")
        check_real(X, "X")
        check_real(y, "y")
        validate_data(self, X, skip_check_array=True)
        if is_lazy:
            return LazyRows(X, _aligned(X, y))
        return PlainRows(X, y if gpu_of(y) is not None else like(np.asarray(y), X))

    def _as_columns(self, X: Any) -> Any:
        """Return rows of as many columns as the fitted ones, or raise."""
        if isinstance(X, DaskArray):
            X = as_entered(X, "X")
            check_table(X, "X")
        is_checked = isinstance(X, DaskArray) or gpu_of(X) is not None
        return validate_data(self, X, reset=False, skip_check_array=is_checked)


# --- Lazy arrays ----------------------------------------------------------------------------------


def _is_within(value: Any, least: float, most: float) -> bool:
    """Return whether a value is a number between two bounds."""
    return isinstance(value, Real | np.number) and bool(least <= float(value) <= most)


def _aligned(X: DaskArray, y: Any) -> DaskArray:
    """Return y with the chunks of X, or raise if they cannot match."""
    if y.ndim != 1:
        raise ValueError(
            f"y must be one-dimensional, not of shape {y.shape}: pass one column of it"
        )
    known, of_y = math.isfinite(X.shape[0]), math.isfinite(y.shape[0])
    if known and of_y and X.shape[0] != y.shape[0]:
        raise ValueError(
            f"X has {X.shape[0]} rows, but y has {y.shape[0]}: pass one target for each row"
        )
    if not isinstance(y, DaskArray):
        y = from_array(y, chunks=(X.chunks[0],) if known else -1, asarray=False)
    if X.numblocks[0] != y.numblocks[0] or (known and of_y and X.chunks[0] != y.chunks[0]):
        raise ValueError(
            f"X has chunks of {X.chunks[0]} rows, and y of {y.chunks[0]}: pass "
            "y.rechunk((X.chunks[0],))"
        )
    aligned: DaskArray = y
    return aligned


# --- Predictions and reweighting ------------------------------------------------------------------


@quiet()
def _predicted(x: Any, coef: FloatArray, intercept: float) -> Any:
    """Return the predictions of some rows."""
    return as_type(x, "float64") @ like(coef, x) + intercept


def _reweighted(rows: Rows, design: Design, theta: FloatArray, limit: float) -> FloatArray:
    """Fit the rows whose absolute residual is at most `limit` by least squares, in one pass."""
    about: dict[str, Any] = {
        "design": design,
        "thetas": theta[None],
        "ends": [np.array([limit])],
        "most": [0],
    }
    (tally,) = passes.tallies(rows, **about, with_sums=True)
    return theta + solve(tally.gram.sum(axis=0), tally.moment.sum(axis=0))


def _has_small_residual(x: Any, y: Any, *, design: Design, theta: FloatArray, limit: float) -> Any:
    """Return which rows have an absolute residual of at most `limit`."""
    return backend_for(x).residuals.absolute_residuals(x, y, design, theta) <= limit


# --- Estimators -----------------------------------------------------------------------------------


class LeastTrimmedSquares(RobustRegressor):
    """Robust linear regression that minimises the sum of the h smallest squared residuals.

    Up to half of the rows may be outliers of any kind. It takes dask arrays larger than memory,
    arrays on a GPU, and arrays in memory.

    Parameters
    ----------
    coverage : float, optional
        The share of rows that the fit describes, in [0.5, 1]. It sets h. By default, and for 0.5,
        ``h = (n + p + 1) // 2`` for n rows and p parameters, which gives the highest breakdown
        point. 1 is ordinary least squares.
    fit_intercept : bool, default True
        Whether to fit an intercept. It counts as a parameter.
    reweight : bool, default False
        Whether to follow the fit by least squares of all rows whose residual is at most 2.24 times
        `scale_`. This is more efficient if errors are normal.
    n_starts : int, default 500
        The number of random starts, from 1 to 131,072. Each start is an exact fit of p rows. If
        there are no more than `n_starts` such fits, all of them are tried.
    n_best : int, default 10
        How many fits of each subset go on to more rows.
    max_iter : int, default 100
        The most concentration steps of a fit, in the sample and on all rows.
    tol : float, default 1e-10
        Concentration on all rows stops when a step lowers the objective by less than this share of
        it. In [0, 1). Used only if there are more rows than in the sample.
    random_state : int, RandomState or None, optional
        The seed of the sample and the starts.

    Attributes
    ----------
    coef_ : ndarray, shape (n_features,)
        The coefficients.
    intercept_ : float
        The intercept; 0.0 if `fit_intercept` is False.
    scale_ : float
        The estimated standard deviation of the errors. It is consistent for normal errors and
        corrected for small samples.
    support_ : array of bool, shape (n,)
        Which rows the fit describes: those whose absolute residual is at most the h-th smallest.
        With `reweight`, those within 2.24 times `scale_`. A lazy dask array for dask input;
        computing it reads X and y once.
    objective_ : float
        The sum of the h smallest squared residuals. If several residuals tie with the h-th, only as
        many of them are added as are needed for h.
    n_covered_ : int
        h, the number of rows that the fit describes.
    n_iter_ : int
        The number of concentration steps that led to the fit.
    n_passes_ : int
        How often `fit` has read X and y.
    n_features_in_ : int
        The number of columns of X.
    feature_names_in_ : ndarray of str
        The names of the columns. Set only if X is a data frame.

    See Also
    --------
    LeastMedianOfSquares : Minimises the median of the squared residuals.

    Notes
    -----
    Reads: one read of X and y draws a sample of up to 65,536 rows (and 64 MB) and checks that all
    values are finite. If the sample has all rows, there is no other read. If not, each
    concentration step on all rows takes one read, which all remaining fits share. A step takes
    three reads if the sample guessed wrong where the h-th residual is, which is expected once in
    1e9 steps, and two if the guess would gather more than 128 MB. One more read counts the rows if
    the sizes of the chunks are unknown, and one more reweights.

    Memory: for each of its threads, a worker holds one chunk of X and y. CuPy chunks of more than
    ten parameters need two more copies in float64. The process that calls `fit` holds the sample
    (at most 64 MB) and about ten arrays of its size. From each read it also holds the rows whose
    residual is near the h-th: at most 128 MB, twice that while they are merged. If cuts are used
    instead, they take 24 bytes for each fit, chunk and pivot.

    Algorithm: FAST-LTS (Rousseeuw & Van Driessen 2006). The starts are compared after two steps in
    five subsets of 300 rows. The best of each subset are compared in all 1,500 rows. The best of
    these take steps in the sample until they settle, and those that differ go on to all rows. After
    two steps there, only the best one goes on. In a step on all rows, integer counts find the h-th
    smallest residual (Beliakov 2011, section VI, equation 4), and sums of products give the least
    squares fit of the h rows. The read also tests a fit further along the same direction, as far as
    the last two steps suggest (Aitken 1926), and the better of the two is taken. The objective is
    that of the returned fit.

    Number of starts: for p parameters and a share e of outliers, about one start in
    ``(1 - e) ** -p`` has no outlier. With 45 % outliers, 14 of 500 starts have none for six
    parameters, but none is expected for twenty. Then increase `n_starts`.

    Sums of floating-point numbers depend on their order. So fits of the same data in other chunks
    differ in the last digits. The sample does not depend on the chunks.

    References
    ----------
    A. C. Aitken, "On Bernoulli's numerical solution of algebraic equations", Proceedings of the
    Royal Society of Edinburgh 46, 1926. P. J. Rousseeuw and K. Van Driessen, "Computing LTS
    regression for large data sets", Data Mining and Knowledge Discovery 12, 2006. G. Beliakov,
    "Parallel calculation of the median and order statistics on GPUs with application to robust
    regression", 2011. G. Pison, S. Van Aelst and G. Willems, "Small sample corrections for LTS and
    MCD", Metrika 55, 2002.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.robust import LeastTrimmedSquares
    >>> x = da.arange(1000, chunks=100)[:, None] % 37
    >>> y = da.where(x[:, 0] < 20, 3 * x[:, 0] + 1, -500)
    >>> fit = LeastTrimmedSquares(random_state=0).fit(x, y)
    >>> fit.coef_.round(6), round(fit.intercept_, 6), int(fit.support_.sum())
    (array([3.]), 1.0, 541)
    """

    _criterion = TrimmedSquares()

    def _scale(self, fitted: Fit, n: int, p: int) -> float:
        return trimmed_scale(
            float(fitted.objective),
            fitted.half.h,
            n,
            p,
            coverage=self.coverage,
            has_intercept=bool(self.fit_intercept),
        )


@documented_like(LeastTrimmedSquares)
@with_parameters
class LeastMedianOfSquares(RobustRegressor):
    """Robust linear regression that minimises the median of the squared residuals.

    Up to half of the rows may be outliers of any kind. It takes dask arrays larger than memory,
    arrays on a GPU, and arrays in memory. `LeastTrimmedSquares` has the same breakdown point and is
    more efficient.

    Parameters
    ----------
    coverage : float, optional
        The share of rows that the fit describes, in [0.5, 1]. It sets h, and the h-th smallest
        squared residual is minimised. By default, and for 0.5, ``h = (n + p + 1) // 2`` for n rows
        and p parameters, which gives the highest breakdown point. 1 is the minimax fit.
    {fit_intercept}
    {reweight}
    {n_starts}
    {n_best}
    max_iter : int, default 100
        The most steps of a fit, in the sample and on all rows. Used only if `refine` is True.
    {tol}
    {random_state}
    refine : bool, default True
        Whether to improve a fit by the minimax fit of its half. If False, fits are those of p rows
        with the best intercept, as in PROGRESS.

    Attributes
    ----------
    {coef_}
    {intercept_}
    scale_ : float
        The estimated standard deviation of the errors, consistent for normal errors.
    {support_}
    objective_ : float
        The h-th smallest squared residual.
    {n_covered_}
    n_iter_ : int
        The number of steps that led to the fit.
    {n_passes_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    LeastTrimmedSquares : More efficient for normal errors; its notes have reads and memory.

    Notes
    -----
    Reads and memory are those of `LeastTrimmedSquares`.

    Algorithm: the starts are exact fits of p rows with the best intercept (Rousseeuw & Leroy 1987,
    chapter 5). They go through the nested subsets of FAST-LTS. In the sample, a step is the minimax
    fit of the h rows with the smallest residuals (Stiefel 1959), which cannot increase their
    largest residual. On all rows, a step is the minimax fit of the rows near the h-th residual,
    which the read has gathered. The next read tells whether that fit is better. Each read finds the
    h-th smallest residual by exact counts (Beliakov 2011).

    References
    ----------
    P. J. Rousseeuw, "Least median of squares regression", JASA 79, 1984. P. J. Rousseeuw and A. M.
    Leroy, "Robust regression and outlier detection", 1987. E. Stiefel, "Über diskrete und lineare
    Tschebyscheff-Approximationen", Numerische Mathematik 1, 1959. G. Beliakov, "Parallel
    calculation of the median and order statistics on GPUs with application to robust regression",
    2011, section VI.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.robust import LeastMedianOfSquares
    >>> x = da.arange(1000, chunks=100)[:, None] % 37
    >>> y = da.where(x[:, 0] < 20, 3 * x[:, 0] + 1, -500)
    >>> fit = LeastMedianOfSquares(random_state=0).fit(x, y)
    >>> fit.coef_.round(6), round(fit.intercept_, 6)
    (array([3.]), 1.0)
    """

    refine: bool = True

    _criterion = MedianSquares()

    @property
    def _improves(self) -> bool:
        return bool(self.refine)

    def _scale(self, fitted: Fit, n: int, p: int) -> float:
        return median_scale(math.sqrt(fitted.objective), fitted.half.h, n, p)
