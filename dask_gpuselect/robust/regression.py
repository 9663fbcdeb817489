"""Robust linear regression of arrays of any size, in scikit-learn's conventions."""

from __future__ import annotations

import math

from dask_gpuselect.maths.fits.concentration import MedianSquares, TrimmedSquares
from dask_gpuselect.maths.fits.scales import median_scale, trimmed_scale
from dask_gpuselect.maths.fits.starts import Fit
from dask_gpuselect.quantiles.documentation import documented_like
from dask_gpuselect.robust.regressor import RobustRegressor, with_parameters


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
