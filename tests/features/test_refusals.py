"""What features refuse, by its message. `tests/matrix/test_senseless.py` has more values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import array_api_strict
import dask
import dask.array as da
import numpy as np
from numpy.exceptions import AxisError

from dask_gpuselect import (
    argsort,
    describe_boxplot,
    digitize,
    median,
    order_statistic,
    quantile,
    quantile_bins,
    sort,
    sort_by,
)
from dask_gpuselect.distribution import (
    EmpiricalDistribution,
    EstimatedDistribution,
    MonotoneQuadraticSpline,
    MonotoneRationalSpline,
    ecdf,
    isotonic_regression,
)
from dask_gpuselect.maths.ranks import MAX_COUNT, ranks
from dask_gpuselect.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    NearestNeighbors,
    kneighbors,
)
from dask_gpuselect.robust import (
    LeastMedianOfSquares,
    LeastTrimmedSquares,
    iqr,
    mad,
    naniqr,
    nanmad,
    trimmed_mean,
)
from dask_gpuselect.sorting.radix_sort import radix_sort
from dask_gpuselect.sorting.sorted_boxes import describe_sorted
from dask_gpuselect.strategies import BitonicMerge, Bucket, Radix
from dask_gpuselect.windows import median_filter, percentile_filter, rank_filter, rolling
from tests.refusals import Refusals, messages_of

Calls = list[Callable[[], Any]]

NAN, INF = np.nan, np.inf


def of_both(function: Callable[..., Any], a: Any, *args: Any, **how: Any) -> Calls:
    """Ask about an array in memory, and about a lazy one."""
    return [partial(function, x, *args, **how) for x in (a, da.from_array(a, chunks=2))]


# --- Quantiles ------------------------------------------------------------------------------------


def without(dtype: str, *values: Any) -> Calls:
    """Leave out a value that an array does not have."""
    x = da.zeros(5, dtype=dtype)
    return [partial(quantile, x, 0.5, method="lower", nodata=value) for value in values]


def filled(dtype: str, *values: Any) -> Calls:
    """Fill an answer by a value that it does not hold."""
    method = "linear" if dtype[0] == "f" else "lower"
    return [
        call
        for value in values
        for call in of_both(quantile, np.ones(3, dtype), 0.5, method=method, fill_value=value)
    ]


def ranked(k: Any) -> Calls:
    """Ask for elements of a rank, with a strategy and without."""
    return [
        call
        for strategy in (None, "radix")
        for call in of_both(order_statistic, np.zeros(10), k, strategy=strategy)
    ]


def spread(a: Any, **how: Any) -> Calls:
    return [partial(function, a, **how) for function in (mad, nanmad, iqr, naniqr)]


A = np.arange(10.0)
X = da.ones((5, 4))
DAY = np.datetime64("2020-01-01")
OF_QUANTILES: Refusals = {
    ValueError: {
        "nodata must ": [
            *without("u2", -9999, NAN, 0.5),
            *without("i8", 2**70, 2.0**63),
            *without("u8", 2.0**64),
            *without("f2", 70_000),
            *without("?", 2),
            *without("M8[D]", np.datetime64("2020-01-01T01")),
            *without("f8", [[0.0]]),
        ],
        "where has shape ... does not broadcast": [
            *of_both(median, np.ones((4, 6, 2)), where=np.ones((6, 4, 2), bool)),
            *of_both(median, np.ones((4, 6, 2)), where=da.ones((1, 4, 6, 2), dtype=bool)),
        ],
        "fill_value": [
            *filled("u1", -1),
            *filled("i8", 0.5, NAN, 2**70, [1, 2]),
            *filled("?", 5),
            *filled("f2", 1e6),
        ],
        "k must be a scalar or one-dimensional, not of shape (1, 1)": ranked([[1]]),
        "unknown strategy 'quick': choose from kelley, bisection, ... mer": [
            *of_both(order_statistic, A, 1, strategy="quick"),
            *of_both(quantile, A, 0.5, strategy="quick"),
        ],
        "power of two from 64 to 4096": [
            partial(BitonicMerge, size) for size in (0, 32, 100, 8192)
        ],
        "bits must be from 1 to 11, not 0": partial(Radix, 0),
        "bits must be from 1 to 11, not 12": partial(Radix, 12),
        "n_buckets must be at least 2, not 1": partial(Bucket, 1),
        "n must be from 1 to 2**53": [
            partial(ranks, n, 0.5, "linear") for n in (0, -1, MAX_COUNT + 1, np.array([3, 0]))
        ],
        "Quantiles must be in the range [0, 1]": [
            partial(ranks, 3, q, "linear")
            for q in (-5e-324, 1 + 2.0**-52, NAN, INF, [0.5, NAN], [0.5, 50])
        ],
        "n_bins": lambda: quantile_bins(X, 0),
        "one-dimensional": lambda: digitize(X, [[1.0]]),
        "missing": lambda: digitize(X, [1, NAN]),
        "ascend": lambda: digitize(X, da.from_array(np.array([1, 3, 2]), chunks=1)).compute(),
        "scale must be": spread(X, scale=0) + spread(np.ones(5), scale="norm"),
        "float16": lambda: mad(np.ones(3, "f2"), scale=1e9),
        "q must be in [0, 1]": lambda: iqr(X, q=(25, 75)),
        "proportiontocut must be a number in [0, 0.5)": [
            partial(trimmed_mean, np.arange(3), cut) for cut in (-0.1, 0.5, 2, NAN)
        ],
    },
    TypeError: {
        "nodata must ": [
            *without("f8", "0", 1j, np.datetime64("NaT")),
            *without("M8[D]", 0, np.timedelta64(0, "D")),
        ],
        "fill_value": [
            *filled("i8", "none", 1j, np.ma.masked, da.ones(())),
            *filled("M8[D]", 0),
        ],
        "k must be an integer, not float64: ... quantile(a, q)": ranked(1.0),
        "n_bins must be an integer, not 2.5": lambda: quantile_bins(X, 2.5),  # type: ignore[arg-type]
        np.dtype("g").name: lambda: digitize(X.astype("g"), [1]),
        "complex128 ... a.real": lambda: digitize(X.astype(complex), [1]),
        "<U1": lambda: digitize(X, ["a"]),
        "masked ": lambda: digitize(da.ma.masked_equal(X, 1), [1]),
        "scale must be": spread(X, scale=None),
        "scale must be known": spread(X, scale=X.sum()),
        "not complex128: pass a.real": spread(X + 0j) + spread(X + 0j, nodata=1j),
        "not object": spread(X.astype(object)),
        "need ... not datetime64": spread(X.astype("M8[s]")),
        "proportiontocut must be a number": lambda: trimmed_mean(np.arange(3), "0.1"),  # type: ignore[arg-type]
        "a trimmed mean needs numbers": lambda: trimmed_mean(np.array([DAY])),
    },
    IndexError: {
        "k=10 is out of range: there are 10 elements, counted from 0": ranked(10),
    },
    AxisError: {"out of bounds": spread(X, axis=2)},
}


# --- Box plots ------------------------------------------------------------------------------------


def boxes(**how: Any) -> Callable[[], Any]:
    return partial(describe_boxplot, A, **how)


LAZY = da.from_array(A, chunks=3)


def weighted_boxes(weights: Any) -> Calls:
    """Ask about an array in memory, and compute the answer about a lazy one."""
    return [boxes(weights=weights), lambda: describe_boxplot(LAZY, weights=weights).compute()]


OF_BOXES: Refusals = {
    ValueError: {
        "whis must be a number >= 0": boxes(whis=-1),
        "ascending": boxes(whis=(95, 5)),
        "max_fliers": boxes(max_fliers=-1),
        "nan_policy": boxes(nan_policy="raise"),
        "Only methods inverted_cdf, averaged_inverted_cdf, linear support weights. Got: hazen": (
            boxes(weights=A + 1, method="hazen")
        ),
        "weights has 3 arrays, and the data have 2": lambda: describe_boxplot(
            [A, A], weights=[A + 1, A + 1, A + 1]
        ),
        "with the same keys": lambda: describe_boxplot({"a": A}, weights={"b": A}),
        "included NaN": weighted_boxes(A * NAN),
        "non-negative": weighted_boxes(A - 1),
        "all zero": weighted_boxes(A * 0),
        "must be one-dimensional, not of shape": lambda: describe_sorted(da.ones((2, 2))),
        "whis must be a number of at least 0, not nan": lambda: describe_sorted(LAZY, NAN),
        "the ends of its chunks do not ascend": [
            lambda: dask.compute(describe_sorted(da.from_array([1.0, 2, 0, 3], 2))),
            lambda: dask.compute(describe_sorted(da.from_array([NAN, 1], 1))),
        ],
    },
    TypeError: {
        "whis must be a number, or two percentiles such as ... not of dtype <U3": boxes(whis="1.5"),
        "max_fliers must be an integer, not 1.5": boxes(max_fliers=1.5),
        "labels must be a sequence of str, not 'ab'": boxes(labels="ab"),
        "shapes of a and weights": boxes(weights=A[:3]),
        "real numbers": boxes(weights=["a"] * 10),
        "box plots need integers or floats, not bool": lambda: describe_sorted(LAZY > 0),
        "real numbers, bools or dates, not complex128": lambda: describe_sorted(LAZY + 0j),
        "must be a sorted dask array, not ndarray": lambda: describe_sorted(A),  # type: ignore[arg-type]
    },
    AxisError: {"axis": boxes(axis=1)},
}


# --- Distributions, splines, isotonic regression --------------------------------------------------


def points(dtype: str, points: Any) -> Calls:
    return of_both(ecdf, np.zeros(4, dtype), points)


def curves(x: Any, y: Any) -> Calls:
    """Lead both splines through points."""
    slopes = np.zeros(np.shape(x))
    return [partial(MonotoneQuadraticSpline, x, y), partial(MonotoneRationalSpline, x, y, slopes)]


def isotonic(*args: Any) -> Calls:
    return [partial(isotonic_regression, *args, loss=loss) for loss in ("squared", "absolute")]


def evaluated(result: Any, *where: Any) -> Calls:
    """Ask all functions of a distribution."""
    names = ("cdf", "pdf", "cdf_bounds", "quantile", "quantile_bounds")
    return [partial(getattr(result, name), z) for name in names for z in where]


def lazy_attribute(name: str) -> Callable[[], Any]:
    return partial(getattr, ecdf(da.ones(6, chunks=2), 5), name)


FOUND = ecdf(A, 5)
ESTIMATED = EstimatedDistribution.from_noisy([0, 1], [0.2, 0.7])
ONE, TWO = np.array([0, 1]), np.array([1, 2])
LINE = MonotoneQuadraticSpline([0, 1], [0, 1])
OF_CURVES: Refusals = {
    ValueError: {
        "at least 2 (the minimum and the maximum)": points("f8", 1) + points("f8", -3),
        "NaN": points("f8", [NAN]),
        "one-dimensional": points("f8", [[1.0]]),
        "float16": points("f2", [7e4]),
        "points must fit int32, the dtype of x, and 0.5 does not": points("i4", [0.5]),
        "p must be in [0, 1], not ": [
            partial(ask, [0.5, p])
            for ask in (FOUND.quantile, FOUND.quantile_bounds, ESTIMATED.quantile)
            for p in (-0.1, 1.1, NAN)
        ],
        "ascending": [
            partial(EmpiricalDistribution, *wrong)
            for wrong in (
                (TWO[::-1] * 1.0, ONE, TWO, 2, 0),
                (TWO * 1.0, TWO, ONE, 2, 0),
                (TWO * 1.0, ONE, TWO, 3, 0),
                (TWO * 1.0, ONE[:1], TWO, 2, 0),
                (TWO * 1.0, TWO, TWO, 2, 0),
            )
        ],
        "points": [
            partial(EstimatedDistribution.from_noisy, *wrong)
            for wrong in (
                ([0], [0.5]),
                ([0, 1], [0.5, 0.5, 0.5]),
                ([[0, 1]], [[0.1, 0.5]]),
                ([1, 0], [0.1, 0.5]),
                ([0, 0], [0.1, 0.5]),
                ([0, INF], [0.1, 0.5]),
                ([0, 1], [0.1, NAN]),
            )
        ],
        "x must ascend": curves([0, 1, 0.5], [0, 1, 2]),
        "isotonic": curves([0, 1, 2], [0, 2, 1]),
        "one length, not x of shape (2,), y of shape (3,)": curves([0, 1], [0, 1, 2]),
        "one-dimensional ": curves([[0, 1]], [[0, 1]]),
        "at least two points, not 1": curves([0], [0]),
        "x must be finite": curves([0, NAN], [0, 1]),
        "y must be finite": curves([0, 1], [0, INF]) + isotonic([1, NAN]) + isotonic([1, INF]),
        "two different points": curves([1, 1], [2, 2])[:1],
        "True, False or 'constant', not 'periodic'": lambda: MonotoneQuadraticSpline(
            [0, 1], [0, 1], extrapolate="periodic"
        ),
        "slopes must be 0 or have the sign": [
            lambda: MonotoneRationalSpline([0, 1], [0, 1], [1, -1]),
            lambda: MonotoneRationalSpline([0, 1], [1, 0], [1, 0]),
        ],
        "0, 1 or 2, not 3": [lambda: LINE(0.5, nu=3), lambda: LINE.derivative(2).derivative()],
        "y must be one-dimensional": isotonic([[1, 2]]),
        "weights must have the shape of y, (2,), not (1,)": isotonic([1, 2], [1]),
        "positive and finite": isotonic([1, 2], [1, 0]) + isotonic([1, 2], [1, INF]),
        "squared, absolute, not ": [
            partial(isotonic_regression, [1, 2], loss=loss) for loss in ("huber", None, 5, [], {})
        ],
    },
    TypeError: {
        "complex": points("c16", 5),
        "object": points("O", 5),
        "int64": points("M8[s]", 5) + points("m8[s]", 5),
        "integer": points("f8", 5.0) + points("f8", None) + points("f8", "few"),
        "real": points("f8", ["a"]) + points("f8", [1j]) + evaluated(FOUND, "a"),
        "known at the call": points("f8", da.ones(3)),
        "map_blocks": [*evaluated(FOUND, da.ones(3)), partial(LINE, da.ones(3))],
        "x must have real": curves([0, 1j], [0, 1]),
        "y must have real": curves([0, 1], ["a", "b"]) + isotonic(["a"]),
        "x must be known": lambda: MonotoneQuadraticSpline(da.ones(2), [0, 1]),
        "must have real": lambda: LINE("here"),
        "weights must have real": isotonic([1, 2], [1j, 1]),
    },
    AttributeError: {
        "estimates have no proven bounds ... type ecdf(x)": [
            lambda: ESTIMATED.max_error,  # type: ignore[attr-defined]
            lambda: ESTIMATED.cdf_bounds(0.5),  # type: ignore[attr-defined]
            lambda: ESTIMATED.quantile_bounds(0.5),  # type: ignore[attr-defined]
        ],
        "not computed yet, type compute().plot": lazy_attribute("plot"),
        "'LazyDistribution' object has no attribute 'cdg'": lazy_attribute("cdg"),
    },
}


# --- Sorting --------------------------------------------------------------------------------------


def sorted_in_all_ways(x: Any) -> Calls:
    return [partial(function, x) for function in (sort, argsort, sort_by)]


ONES = da.ones(10, chunks=4)
STRICT = array_api_strict.asarray
KNOWN = ONES.map_blocks(STRICT, meta=STRICT(np.empty(0)))
UNKNOWN = ONES.map_blocks(STRICT, meta=np.empty(0))
MASKED = ONES.map_blocks(np.ma.masked_array, meta=np.ma.masked_array([]))
WRONG = da.ones(3, dtype="f4").map_blocks(lambda block: block.astype("f8"), dtype="f4")
TO_BE_MASKED = ONES.map_blocks(lambda block: np.ma.masked_equal(block, 1), meta=np.empty(0))
IS_STRICT = "needs chunks of NumPy or CuPy, not of array_api_strict"
OF_SORTS: Refusals = {
    ValueError: {
        "not of shape ( ... pass x.ravel()": sorted_in_all_ways(da.ones((3, 3)))
        + sorted_in_all_ways(np.ones((2, 2))),
        "split_every": lambda: sort(ONES, split_every=1),
        "positive": [partial(sort, ONES, chunks=chunks) for chunks in (0, -2)],
        "Chunks do not add up": lambda: sort(ONES, chunks=(5, 4)),
        "as many rows as the key, 10, not": [
            partial(sort_by, ONES, value) for value in (da.ones(9, chunks=4), da.ones(()), A[:9])
        ],
        "one along others": lambda: sort_by(ONES, da.ones((10, 4), chunks=(4, 2))),
        "as the key, 3, not shape": lambda: sort_by(np.ones(3), np.ones(4)),
        **{
            f"bits must be from 1 to 16, not {bits}": partial(radix_sort, ONES, bits=bits)
            for bits in (0, 17)
        },
    },
    TypeError: {
        "complex": sorted_in_all_ways(da.ones(3, dtype=complex)),
        "<U1": sorted_in_all_ways(da.from_array(np.array(["a", "b"]))),
        "masked": sorted_in_all_ways(da.ma.masked_array(da.ones(3), mask=[0, 1, 0])),
        "masked ": lambda: sort_by(ONES, TO_BE_MASKED)[1].compute(),
        "pass da.from_array(key)": lambda: sort_by(np.ones(3), da.ones(3)),
        "x must be a dask array, not ndarray": lambda: radix_sort(np.ones(3)),  # type: ignore[arg-type]
        "real numbers, bools or dates, not complex128": lambda: radix_sort(ONES + 0j),
        "masked arrays are not supported": lambda: radix_sort(MASKED).compute(),
        "chunk (0,) has dtype float64, but its array says float32": lambda: radix_sort(
            WRONG
        ).compute(),
        IS_STRICT: [
            lambda: radix_sort(KNOWN),
            lambda: radix_sort(UNKNOWN).compute(),
            lambda: rolling(KNOWN, 3).median(),
            lambda: median_filter(STRICT(np.ones(3)), 3),
        ],
    },
}


# --- Rows: robust fits, nearest neighbours --------------------------------------------------------


def fits(x: Any, y: Any, **how: Any) -> Calls:
    estimators: tuple[Any, ...] = (LeastTrimmedSquares, LeastMedianOfSquares)
    return [partial(estimator(**how).fit, x, y) for estimator in estimators]


def near(x: Any, q: Any, k: Any) -> Callable[[], Any]:
    return partial(kneighbors, x, q, k)


ROWS = np.random.default_rng(0).normal(size=(100, 3))
TARGET = ROWS @ [1.0, 2, 3] + np.random.default_rng(1).normal(size=100)
DX, DY = da.from_array(ROWS, chunks=(20, -1)), da.from_array(TARGET, chunks=20)
EVERY = DX[DX[:, 0] < 9]  # of unknown size
CUT = DX.map_blocks(lambda block: block[:, :2], dtype=float, meta=np.ones((0, 0)))
Regressor: Any = KNeighborsRegressor
Classifier: Any = KNeighborsClassifier
NEAREST = NearestNeighbors(n_neighbors=1)
OF_ROWS: Refusals = {
    ValueError: {
        "the columns of X and the intercept are collinear: only 4 of 5 are linearly independent": (
            fits(da.concatenate([DX, DX[:, :1] + 3], axis=1).rechunk((20, 4)), DY)
        ),
        "the columns of X are collinear: only 3 of 4": fits(
            np.column_stack([ROWS, 2 * ROWS[:, 0]]), TARGET, fit_intercept=False
        ),
        "n_samples=8 is not enough: 4 parameters need more than 8 rows": fits(
            DX[:8].rechunk(4), DY[:8].rechunk(4)
        ),
        "0 feature(s) (shape=(50, 0)) while a min": fits(
            da.zeros((50, 0), chunks=(10, 0)), da.zeros(50, chunks=10)
        ),
        "Input X contains NaN or infinity, in chunk ": fits(da.where(DX > 2, NAN, DX), DY),
        "Input y contains NaN or infinity, in chunk 3": fits(
            DX, da.where(TARGET[70] == DY, INF, DY)
        ),
        "Input X contains NaN": [
            *fits(np.where(ROWS > 2, NAN, ROWS), TARGET),
            near([[NAN]], [[1]], 1),
            lambda: NearestNeighbors().fit([[NAN]]),
        ],
        "X has 2 chunks along the features, and must have one: pass X.rechunk({1: -1})": [
            *fits(DX.rechunk((20, 2)), DY),
            near(da.ones((4, 4), chunks=2), np.ones((1, 4)), 1),
        ],
        "y.rechunk((X.chunks[0],))": fits(DX, DY.rechunk(25)),
        "X has 100 rows, but y has 99": fits(DX, DY[:-1]),
        "chunk ... of X has 20 rows, and that of y has ": fits(
            DX[da.ones(100, chunks=20) > 0], DY[DY > 0]
        ),
        "X must be two-dimensional": fits(DX[:, 0], DY),
        "y must be one-dimensional": fits(DX, DX),
        "in [0.5, 1], not 0.4": fits(DX, DY, coverage=0.4),
        "n_starts must be an integer": fits(DX, DY, n_starts=0),
        "n_best must be an integer": fits(DX, DY, n_best=1.5),
        "max_iter must be an integer": fits(DX, DY, max_iter=-1),
        "tol must be a number in": fits(DX, DY, tol=1.0) + fits(DX, DY, tol=1j),
        "Q must be ... : Expected 2D array, got 1D": near([[1.0]], [1], 1),
        "Q has 1 features, but X has 2": near([[1, 2]], [[1]], 1),
        "n_neighbors <= n_samples_fit, but n_neighbors = 3, n_samples_fit = 2, n_samples = 1": (
            near([[1], [2]], [[1]], 3)
        ),
        "k must be at least 1": near([[1], [2]], [[1]], 0),
        "Input Q contains infinity": near([[1]], [[INF]], 1),
        "metric must be 'euclidean', not 'cosine'": lambda: NearestNeighbors(metric="cosine").fit(
            [[1], [2]]
        ),
        "weights must be ... not 'x'": lambda: Regressor(weights="x").fit([[1], [2]], [1, 2]),
        "samples: [2, 1]": [
            lambda: Regressor().fit([[1], [2]], [1]),
            lambda: Classifier().fit(da.ones((2, 1)), [1]),
        ],
        "Input y contains NaN": lambda: Regressor().fit([[1.0]], [NAN]),
        "has 2 features": [
            lambda: NEAREST.fit([[1]]).kneighbors([[1, 2]]),
            lambda: NEAREST.fit(da.ones((3, 1))).kneighbors(da.ones((1, 2))),
        ],
        "n_neighbors = 101, n_samples_fit = ": lambda: kneighbors(EVERY, ROWS, 101)[0].compute(),
        "Expected n_neighbors < n_samples_fit": [
            lambda: NearestNeighbors(n_neighbors=4).fit(ROWS[:4]).kneighbors(),
            lambda: NearestNeighbors(n_neighbors=100).fit(EVERY).kneighbors()[0].compute(),
        ],
        "samples: [100, 99]": lambda: Regressor().fit(EVERY, TARGET[1:]).predict(ROWS).compute(),
        "chunk ( ... 0) of X has shape (20, 2)": lambda: kneighbors(CUT, ROWS, 1)[0].compute(),
        "zero weights": lambda: (
            Classifier(weights=np.zeros_like).fit(ROWS, np.arange(100) % 2).predict(ROWS[:3])
        ),
    },
    TypeError: {
        "X must have real numbers": [
            *fits(DX + 1j, DY),
            near([[1j]], [[1]], 1),
            near([["a"]], [[1]], 1),
        ],
        "y must have real numbers": fits(DX, DY.astype(object)),
        "y is lazy and X is not": fits(ROWS, DY),
        "k must be an integer, not 1.5": near([[1]], [[1]], 1.5),
        "Q must have real numbers": near([[1]], [[None]], 1),
        "masked": near(np.ma.ones((3, 1)), [[1]], 1),
    },
}


# --- Moving windows -------------------------------------------------------------------------------

MAP = np.ones((4, 6))
OF_WINDOWS: Refusals = {
    ValueError: {
        "window has 2 sizes, and axis 1 axes": partial(rolling, MAP, np.array([3, 3]), 0),
        "leave out axis": partial(rolling, MAP, {0: 3}, 0),
        "must be from 0 to 3": partial(rolling, MAP, 3, 0, min_periods=4),
        "boundary must be None": partial(rolling, MAP, 3, 0, boundary=["wrap"]),
        'closed must be "right", "left"': partial(rolling, MAP, 3, 0, closed=["left"]),
        "would be empty": partial(rolling, MAP, 1, 0, closed="neither"),
        "step must be 1 or more": partial(rolling, MAP, 3, 0, step=0),
        "q must be in [0, 1]": lambda: rolling(MAP, 3, 0).quantile(8),
        "size must be 1 or more": partial(median_filter, MAP, 0),
        '"propagate" or "omit"': partial(median_filter, MAP, 3, nan="drop"),
        "mode must be one of": partial(median_filter, MAP, 3, mode="zero"),
        "invalid origin 2": partial(median_filter, MAP, 3, origin=2),
        "of dtype float64, not 'a'": partial(median_filter, MAP, 3, cval="a"),
        "pass a window of at most": [
            partial(median_filter, MAP, 2**70, mode="constant"),
            rolling(MAP, 3 << 20, 0, boundary="wrap").median,
        ],
    },
    TypeError: {
        "window must be an integer, not 2.5": partial(rolling, MAP, 2.5, 0),
        "min_periods must be an integer": partial(rolling, MAP, 3, 0, min_periods=1.5),
        "complex": lambda: rolling(MAP * 1j, 3, 0).median(),
        "iqr needs numbers, not bool": lambda: rolling(MAP > 0, 3, 0).iqr(),
        "rank must be an integer, not 1.0": partial(rank_filter, MAP, 1.0, 3),
    },
    RuntimeError: {
        "no footprint or filter size": partial(median_filter, MAP),
        "pass axes=": partial(median_filter, MAP, footprint=[1]),
        "size must be one value, or one for": partial(median_filter, MAP, (3, 3, 3)),
        "rank not within filter footprint size": partial(rank_filter, MAP, 9, 3),
        "from -100 to 100": partial(percentile_filter, MAP, 101, 3),
    },
}


# --- All of them ----------------------------------------------------------------------------------

test_messages = messages_of(OF_QUANTILES, OF_BOXES, OF_CURVES, OF_SORTS, OF_ROWS, OF_WINDOWS)
