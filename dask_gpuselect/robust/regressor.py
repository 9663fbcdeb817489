"""Base class of robust regression in scikit-learn's conventions, for any criterion."""

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
from dask_gpuselect.maths.fits.concentration import Criterion
from dask_gpuselect.maths.fits.designs import Design, solve
from dask_gpuselect.maths.fits.scales import NORMAL, rows_covered
from dask_gpuselect.maths.fits.starts import Fit, StartSettings
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
