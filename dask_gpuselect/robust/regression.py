"""Robust linear regression in scikit-learn's conventions, of arrays of any size."""

from __future__ import annotations

import math
from typing import Any

from dask_gpuselect.maths.fits.concentration import Criterion, MedianSquares, TrimmedSquares
from dask_gpuselect.maths.fits.scales import median_scale, trimmed_scale
from dask_gpuselect.quantiles.documentation import documented_like
from dask_gpuselect.robust.fitting import Fitted
from dask_gpuselect.robust.regressor import RobustRegressor


class LeastTrimmedSquares(RobustRegressor):
    """Robust linear regression that minimises the sum of the h smallest squared residuals.

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
        Random starts: exact fits of p rows each; all there are, if they are no more. At most
        131,072, for they are tried side by side.
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


@documented_like(LeastTrimmedSquares)
class LeastMedianOfSquares(RobustRegressor):
    """Robust linear regression that minimises the median of the squared residuals.

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
    {n_starts}
    {n_best}
    max_iter : int, default 100
        Steps at most of a fit, in the sample and on all rows.
    {tol}
    {random_state}

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
    {n_covered_}
    {n_iter_}
    {n_passes_}
    {n_features_in_}

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
        super().__init__(
            coverage=coverage,
            fit_intercept=fit_intercept,
            reweight=reweight,
            n_starts=n_starts,
            n_best=n_best,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
        )
        self.refine = refine

    @property
    def _improves(self) -> bool:
        return bool(self.refine)

    def _criterion(self) -> Criterion:
        return MedianSquares()

    def _tell(self, found: Fitted, n: int, p: int) -> None:
        super()._tell(found, n, p)
        scale = median_scale(math.sqrt(found.objective), found.half.h, n, p)
        self.scale_ = scale / found.design.y_scale
