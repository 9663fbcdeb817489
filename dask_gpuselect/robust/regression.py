"""Robust linear regression in scikit-learn's conventions, of arrays of any size."""

from __future__ import annotations

import math
import warnings
from numbers import Real
from typing import Any, Self

import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dask_gpuselect import kernels
from dask_gpuselect.arguments import public
from dask_gpuselect.arrays import FILL_ROWS, as_type, check_not_masked, is_cupy, like, namespace
from dask_gpuselect.engine.door import entered
from dask_gpuselect.maths.fits.concentration import Criterion, MedianSquares, TrimmedSquares
from dask_gpuselect.maths.fits.designs import Design, solve
from dask_gpuselect.maths.fits.scales import NORMAL, median_scale, rows_covered, trimmed_scale
from dask_gpuselect.maths.fits.starts import Search
from dask_gpuselect.quiet import outside, quiet
from dask_gpuselect.robust import rows as passes
from dask_gpuselect.robust.fitting import Fitted, fit
from dask_gpuselect.robust.rows import LazyRows, PlainRows, Rows

REWEIGHTED = NORMAL.inv_cdf(0.9875)  # scales, up to which a residual is no outlier's
FloatArray = NDArray[np.float64]


class _RobustRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """What both estimators do: check, fit, and tell."""

    coverage: float | None
    fit_intercept: bool
    reweight: bool
    n_starts: int
    n_best: int
    max_iter: int
    tol: float
    random_state: Any

    @public("X", "y")
    def fit(self, X: Any, y: Any) -> Self:
        """Fit the rows of X and y.

        Parameters
        ----------
        X : dask array or array_like, shape (n, p)
            Of real numbers. In chunks of rows, of sizes known or not, NumPy's or CuPy's.
        y : dask array or array_like, shape (n,)
            In chunks of the same rows.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For NaN and infinities, collinear columns, no more than two rows for each parameter, or
            chunks that divide the columns, or rows otherwise than y's.
        TypeError
            For dtypes that are not real, and a lazy y for an X in memory.
        ChunksChangedError
            If a chunk differs between two loads.
        """
        self._check_parameters()
        rows = self._rows(X, y)
        n, p = sum(rows.sizes), self.n_features_in_ + bool(self.fit_intercept)
        if n <= 2 * p:
            raise ValueError(
                f"n_samples={n} is not enough for {p} parameters, which take more than {2 * p}"
            )
        h = rows_covered(self.coverage, n, p)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        found = fit(
            rows,
            h,
            self._search(),
            tol=self.tol,
            random=np.random.default_rng(seed),
        )
        if not found.is_settled and self._improves:
            warnings.warn(
                f"not settled after max_iter={self.max_iter} steps",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._tell(found, n, p)
        theta, limit = found.theta, found.half.t
        if self.reweight:
            limit = REWEIGHTED * self.scale_ * found.design.y_scale
            theta = _reweighted(rows, found.design, theta, limit)
            self.coef_, self.intercept_ = found.design.coefficients(theta)
        how = {"design": found.design, "theta": found.theta, "limit": limit}
        self.support_ = rows.mapped(_is_held, "support", **how)
        self.n_passes_ = rows.n_passes
        return self

    @public("X")
    def predict(self, X: Any) -> Any:
        """The values that the fit gives to rows.

        Parameters
        ----------
        X : dask array or array_like, shape (n, p)

        Returns
        -------
        dask array or array, shape (n,)
            Of float64; lazy for a lazy X.
        """
        check_is_fitted(self)
        how: dict[str, Any] = {"coef": self.coef_, "intercept": self.intercept_}
        if isinstance(X, da.Array):
            X = _entered(X, "X")
            _check_table(X)
            self._check_columns(X)
            meta = namespace(X._meta).zeros((0,), dtype=np.float64)
            how |= {"drop_axis": 1, "dtype": np.float64, "meta": meta, "token": "prediction"}
            return da.map_blocks(_predicted, X, **how)
        if is_cupy(X):
            self._check_columns(X)
        else:
            X = validate_data(self, X, reset=False)
        return _predicted(X, **how)

    @public("X", "y", "sample_weight")
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The coefficient of determination, of lazy arrays by one load.

        Parameters
        ----------
        X, y
            As for `fit`.
        sample_weight : array_like, optional
            Of arrays in memory only.

        Returns
        -------
        float
            What `sklearn.metrics.r2_score` is. Outliers spoil it.
        """
        if not isinstance(X, da.Array):
            return float(super().score(X, y, sample_weight))
        if sample_weight is not None:
            raise ValueError("sample_weight is not supported for dask arrays")
        residual = y - self.predict(X)
        with outside():
            return float(1 - (residual * residual).mean() / y.var())

    # --- What is asked ----------------------------------------------------------------------------

    @property
    def _improves(self) -> bool:
        return True

    def _criterion(self) -> Criterion:
        raise NotImplementedError

    def _tell(self, found: Fitted, n: int, p: int) -> None:
        design, self.n_covered_ = found.design, found.half.h
        self.coef_, self.intercept_ = design.coefficients(found.theta)
        # Not by the square of a scale, which may be beyond the largest float64.
        self.objective_ = float(found.objective) / design.y_scale / design.y_scale
        self.n_iter_ = max(found.n_iter, 1)

    def _search(self) -> Search:
        return Search(
            self._criterion(),
            bool(self.fit_intercept),
            self.n_starts,
            self.n_best,
            self.max_iter if self._improves else 0,
        )

    # --- Checks -----------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        if self.coverage is not None and not _is_within(self.coverage, 0.5, 1):
            raise ValueError(f"coverage must be None or in [0.5, 1], and is {self.coverage!r}")
        for name, least in (("n_starts", 1), ("n_best", 1), ("max_iter", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be an integer from {least}, and is {value!r}")
        if not _is_within(self.tol, 0, 1) or self.tol == 1:
            raise ValueError(f"tol must be in [0, 1), and is {self.tol!r}")

    def _rows(self, X: Any, y: Any) -> Rows:
        if isinstance(X, da.Array):
            X, y = _entered(X, "X"), _entered(y, "y")
            _check_table(X)
            self._check_dtypes(X, y)
            self.n_features_in_ = X.shape[1]
            return LazyRows(X, _aligned(X, y))
        if is_dask_collection(y):
            raise TypeError("y is lazy and X is not: make X a dask array, or compute y")
        for array in (X, y):
            check_not_masked(array, FILL_ROWS)
        if is_cupy(X):
            _check_table(X)
            self._check_dtypes(X, y)
            self.n_features_in_ = X.shape[1]
            return PlainRows(X, y if is_cupy(y) else like(np.asarray(y), X))
        checked = validate_data(
            self, X, y, y_numeric=True, dtype=(np.float64, np.float32), ensure_min_samples=2
        )
        return PlainRows(*checked)

    def _check_columns(self, X: Any) -> None:
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )

    def _check_dtypes(self, X: Any, y: Any) -> None:
        for name, array in (("X", X), ("y", y)):
            if np.dtype(array.dtype).kind not in "biuf":
                raise TypeError(f"{name} must be of real numbers, not {array.dtype}")


class LeastTrimmedSquares(_RobustRegressor):
    """Linear regression by the least sum of the h smallest squared residuals.

    Up to half of the rows may be anything. Of dask arrays larger than memory, of arrays on a GPU,
    and plain ones.

    Parameters
    ----------
    coverage : float, optional
        In [0.5, 1]: the share of rows that are described, h. By default, and for 0.5, that of the
        highest breakdown point, ``h = (n + p + 1) // 2`` with p parameters; 1 is least squares.
    fit_intercept : bool, default True
    reweight : bool, default False
        Whether least squares of all rows within 2.24 scales of the fit follow it, which is more
        efficient where errors are normal.
    n_starts : int, default 500
        Random starts: exact fits of p rows each; all there are, if they are no more.
    n_best : int, default 10
        Fits of subsets that go on to more rows.
    max_iter : int, default 100
        Concentration steps at most of a fit, in the sample and on all rows.
    tol : float, default 1e-10
        Of more than 65,536 rows, what share of the objective a step has to gain for another one.
    random_state : int, RandomState or None, optional
        Of the sample and the starts.

    Attributes
    ----------
    coef_ : ndarray, shape (p,)
    intercept_ : float
    scale_ : float
        Of the errors: the fit's, consistent for normal ones, with the correction for small samples.
    support_ : array of bool, shape (n,)
        The rows that the fit is made of: those whose residual is no larger than the h-th smallest,
        or than 2.24 scales if reweighted. Lazy for lazy arrays, in one load.
    objective_ : float
        The sum of the h smallest squared residuals, exact to the h-th: rows that tie with it share
        what places are left.
    n_covered_ : int
        h.
    n_iter_ : int
        Steps on all rows that led to the fit.
    n_passes_ : int
        Loads of X and y that `fit` took.
    n_features_in_ : int
    feature_names_in_ : ndarray
        Of a data frame.

    See Also
    --------
    LeastMedianOfSquares

    Notes
    -----
    Loads: one that draws a sample of 65,536 rows, or all, and checks that all are finite. Of no
    more rows there is no other. Of more, one for each concentration step on all rows, which all
    fits that are left share; three where the sample guessed wrong between which ends the h-th
    residual is (once in 1e9 times), or where what lies between these would take more than 128 MB.
    One more to count rows in chunks of unknown sizes, and one to reweight.

    Memory: a worker holds a chunk of X and y for each of its threads, CuPy's of more than ten
    parameters with two copies in float64. The process that fits holds the sample, of at most 64 MB,
    and about ten arrays of its size; and of each pass the rows whose residual is near the h-th, of
    at most 128 MB, twice while they are merged, or 40 bytes for each fit, chunk and pivot of cuts.

    Algorithm: FAST-LTS (Rousseeuw & Van Driessen 2006). Starts are compared after two steps in five
    subsets of 300 rows, the best of each in all 1,500, and these in the sample until they settle;
    the different ones go on to all rows, and after two steps the best of them alone. There a step
    takes the tally of one pass: integer counts find the h-th smallest residual (Beliakov 2011,
    section VI, equation 4), sums of products give least squares of the half. Beside the next fit
    the pass looks at one that is as many steps further as the last two suggest (Aitken 1926), and
    takes the better one. The objective is exact for the fit that is returned.

    Of p parameters and a share e of outliers, one start in ``(1 - e) ** -p`` is free of them: 45 %
    leave 14 of 500 starts with six parameters, and none with twenty, which take more starts.

    Sums of floating-point numbers depend on their order, so that fits of other chunks differ in the
    last digits. The sample does not depend on chunks.

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

    def __init__(
        self,
        *,
        coverage: float | None = None,
        fit_intercept: bool = True,
        reweight: bool = False,
        n_starts: int = 500,
        n_best: int = 10,
        max_iter: int = 100,
        tol: float = 1e-10,
        random_state: Any = None,
    ) -> None:
        self.coverage = coverage
        self.fit_intercept = fit_intercept
        self.reweight = reweight
        self.n_starts = n_starts
        self.n_best = n_best
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _criterion(self) -> Criterion:
        return TrimmedSquares()

    def _tell(self, found: Fitted, n: int, p: int) -> None:
        super()._tell(found, n, p)
        scale = trimmed_scale(
            float(found.objective),
            found.half.h,
            n,
            p,
            coverage=self.coverage,
            has_intercept=bool(self.fit_intercept),
        )
        self.scale_ = scale / found.design.y_scale


class LeastMedianOfSquares(_RobustRegressor):
    """Linear regression by the least median of squared residuals.

    Up to half of the rows may be anything. Of dask arrays larger than memory, of arrays on a GPU,
    and plain ones. `LeastTrimmedSquares` is more efficient, and smoother.

    Parameters
    ----------
    coverage : float, optional
        In [0.5, 1]: the share of rows that are described, h, whose largest squared residual is
        minimised. By default, and for 0.5, that of the highest breakdown point,
        ``h = (n + p + 1) // 2`` with p parameters; 1 is the minimax fit.
    fit_intercept : bool, default True
    reweight : bool, default False
        Whether least squares of all rows within 2.24 scales of the fit follow it.
    refine : bool, default True
        Whether fits are improved by the minimax fits of their halves; else they are those of p rows
        with the best intercept, as PROGRESS has them.
    n_starts : int, default 500
        Random starts: exact fits of p rows each; all there are, if they are no more.
    n_best : int, default 10
        Fits of subsets that go on to more rows.
    max_iter : int, default 100
        Steps at most of a fit, in the sample and on all rows.
    tol : float, default 1e-10
        Of more than 65,536 rows, what share of the objective a step has to gain for another one.
    random_state : int, RandomState or None, optional
        Of the sample and the starts.

    Attributes
    ----------
    coef_ : ndarray, shape (p,)
    intercept_ : float
    scale_ : float
        Of the errors, consistent for normal ones.
    support_ : array of bool, shape (n,)
        The rows whose residual is no larger than the h-th smallest, or than 2.24 scales if
        reweighted. Lazy for lazy arrays, in one load.
    objective_ : float
        The h-th smallest squared residual. Exact.
    n_covered_ : int
        h.
    n_iter_ : int
        Steps on all rows that led to the fit.
    n_passes_ : int
        Loads of X and y that `fit` took.
    n_features_in_ : int
    feature_names_in_ : ndarray
        Of a data frame.

    See Also
    --------
    LeastTrimmedSquares

    Notes
    -----
    Loads and memory: as of `LeastTrimmedSquares`.

    Algorithm: exact fits of p rows with the best intercept (Rousseeuw & Leroy 1987, chapter 5)
    start in the nested subsets of FAST-LTS, with its steps. In the sample a step is the minimax fit
    of the half with the smallest residuals, which cannot make their largest larger; on all rows it
    is that of the rows near the h-th residual, which the pass gathers, and the next pass tells if
    it is better. The median of all residuals is exact in every pass.

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

    def __init__(
        self,
        *,
        coverage: float | None = None,
        fit_intercept: bool = True,
        reweight: bool = False,
        refine: bool = True,
        n_starts: int = 500,
        n_best: int = 10,
        max_iter: int = 100,
        tol: float = 1e-10,
        random_state: Any = None,
    ) -> None:
        self.coverage = coverage
        self.fit_intercept = fit_intercept
        self.reweight = reweight
        self.refine = refine
        self.n_starts = n_starts
        self.n_best = n_best
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    @property
    def _improves(self) -> bool:
        return bool(self.refine)

    def _criterion(self) -> Criterion:
        return MedianSquares()

    def _tell(self, found: Fitted, n: int, p: int) -> None:
        super()._tell(found, n, p)
        scale = median_scale(math.sqrt(found.objective), found.half.h, n, p)
        self.scale_ = scale / found.design.y_scale


# --- Lazy arrays ----------------------------------------------------------------------------------


def _entered(array: Any, name: str) -> Any:
    """A lazy array whose chunks are what it says; a plain one, but a masked one, as it is."""
    if isinstance(array, da.Array):
        return entered(array, name, FILL_ROWS)
    check_not_masked(array, FILL_ROWS)
    return array


def _is_within(value: Any, least: float, most: float) -> bool:
    return isinstance(value, Real | np.number) and bool(least <= float(value) <= most)


def _check_table(X: Any) -> None:
    if X.ndim != 2:
        raise ValueError(f"X must be two-dimensional, not of shape {X.shape}: reshape your data")
    if X.shape[1] == 0:
        raise ValueError(
            f"Found array with 0 feature(s) (shape={X.shape}) while a minimum of 1 is required: X"
        )
    if isinstance(X, da.Array) and X.numblocks[1] != 1:
        raise ValueError(
            f"the columns of X are in {X.numblocks[1]} chunks: X.rechunk({{1: -1}}) joins them"
        )


def _aligned(X: da.Array, y: Any) -> da.Array:
    """y with the chunks of X."""
    if y.ndim != 1:
        raise ValueError(f"y must be one-dimensional, not of shape {y.shape}")
    known, of_y = math.isfinite(X.shape[0]), math.isfinite(y.shape[0])
    if known and of_y and X.shape[0] != y.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, and y {y.shape[0]}")
    if not isinstance(y, da.Array):
        y = da.from_array(y, chunks=(X.chunks[0],) if known else -1, asarray=False)
    if X.numblocks[0] != y.numblocks[0] or (known and of_y and X.chunks[0] != y.chunks[0]):
        raise ValueError(
            f"the rows of X are in chunks {X.chunks[0]}, those of y in {y.chunks[0]}: "
            "y.rechunk((X.chunks[0],)) gives it the same"
        )
    aligned: da.Array = y
    return aligned


# --- What is told ---------------------------------------------------------------------------------


@quiet()
def _predicted(x: Any, coef: FloatArray, intercept: float) -> Any:
    return as_type(x, "float64") @ like(coef, x) + intercept


def _reweighted(rows: Rows, design: Design, theta: FloatArray, limit: float) -> FloatArray:
    """Least squares of the rows whose absolute residual is at most so large, by one pass."""
    ends = [np.array([limit])]
    (tally,) = passes.tallies(rows, design, theta[None], ends, [0], with_sums=True)
    return theta + solve(tally.gram.sum(axis=0), tally.moment.sum(axis=0))


def _is_held(x: Any, y: Any, *, design: Design, theta: FloatArray, limit: float) -> Any:
    return kernels.row_kernels_for(x).absolute_residuals(x, y, design, theta) <= limit
