"""Nearest neighbours: exact, whatever the data, the chunks, the kernel and the scheduler."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import array_api_strict
import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import neighbors as theirs
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from dask_gpuselect import kernels
from dask_gpuselect.arrays import to_host
from dask_gpuselect.engine import threads
from dask_gpuselect.kernels.cpu import distances as cpu_distances
from dask_gpuselect.kernels.reference import distances
from dask_gpuselect.maths.nearest import Nearest
from dask_gpuselect.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    NearestNeighbors,
    kneighbors,
)
from tests.backends import CUPY, NUMPY, Backend, param
from tests.limits import peak_of
from tests.sources import Source
from tests.spies import noted

pytestmark = pytest.mark.any_dask  # the graph is that of a pass over rows

Array = NDArray[Any]
Found = tuple[Array, Array]


# --------------------------------------------------------------------------------------------------
# Oracles
# --------------------------------------------------------------------------------------------------


def keys(X: Array, Q: Array, before: float = 1.0, after: float = 1.0) -> Array:
    """Of all queries and rows: sums of squares in float64, feature after feature."""
    squared = np.zeros((len(Q), len(X)))
    with np.errstate(over="ignore", under="ignore"):
        for x, q in zip(X.T.astype(np.float64), Q.T.astype(np.float64), strict=True):
            squared = squared + ((x[None, :] * before - q[:, None] * before) * after) ** 2
    return squared


def nearest_by_definition(X: Array, Q: Array, k: int) -> Nearest:
    """Of any data."""
    squared = keys(X, Q)
    level = (np.isinf(squared) * 1 - (squared < 2.0**-900)).astype(np.int8)
    squared = np.where(level < 0, keys(X, Q, after=2.0**600), squared)
    squared = np.where(level > 0, keys(X, Q, before=2.0**-600), squared)
    places = np.broadcast_to(np.arange(len(X)), squared.shape)
    order = np.lexsort((places, squared, level), axis=1)[:, :k]
    taken = (np.take_along_axis(a, order, 1) for a in (level, squared))
    return Nearest(*taken, order, len(X))


def by_definition(X: Array, Q: Array, k: int) -> Found:
    result = nearest_by_definition(X, Q, k)
    return result.distances, result.index


def assert_equal(actual: Nearest, wanted: Nearest) -> None:
    for name in ("level", "squared", "index", "n_rows"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(wanted, name))


def in_rationals(X: Array, Q: Array) -> Found:
    """Without any rounding but that of the distances."""
    rows = [[Fraction(float(v)) for v in row] for row in X]
    results, indices = [], []
    for query in Q:
        point = [Fraction(float(v)) for v in query]
        squared = [sum((a - b) ** 2 for a, b in zip(row, point, strict=True)) for row in rows]
        order = sorted(range(len(rows)), key=lambda i: (squared[i], i))
        indices.append(order)
        results.append([root(Fraction(squared[i])) for i in order])
    return np.array(results), np.array(indices)


def root(value: Fraction) -> float:
    with decimal.localcontext(decimal.Context(prec=60, Emin=-9999, Emax=9999)):
        quotient = decimal.Decimal(value.numerator) / decimal.Decimal(value.denominator)
        return float(quotient.sqrt())


def random(n: int, p: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, p))


def whole(n: int, p: int, most: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, most, (n, p))


def descending(n: int) -> Array:
    """Every row is nearer than those before it."""
    return random(n, 3) * 1e-3 + np.arange(n, 0, -1.0)[:, None]


def clusters(n: int, apart: float, seed: int = 0, spread: float = 1.0) -> Array:
    """About two points, between which the middle of all lies."""
    sides = apart * (2.0 * whole(n, 1, 2, seed) - 1)
    return np.asarray(sides + spread * random(n, 3, seed))


# Of rows and queries whose distances are in no danger.
DATA: Mapping[str, Callable[[], tuple[Array, Array]]] = {
    "normal": lambda: (random(900, 5), random(33, 5, 1)),
    "one feature": lambda: (random(700, 1), random(9, 1, 1)),
    "many features": lambda: (random(700, 70), random(8, 70, 1)),
    "queries are rows": lambda: (random(600, 4), random(600, 4)[5:40]),
    "a grid": lambda: (whole(900, 3, 4), whole(40, 3, 4, 1)),
    "a grid of floats": lambda: (whole(900, 2, 5) * 0.1, whole(40, 2, 5, 1) * 0.1),
    "constant": lambda: (np.full((800, 3), 1.7), np.array([[1.7] * 3, [2.0] * 3, [0.0] * 3])),
    "every row twice": lambda: (np.repeat(random(400, 3), 2, axis=0), random(11, 3, 1)),
    "far from the origin": lambda: (random(900, 5) + 1e8, random(20, 5, 1) + 1e8),
    "queries and rows in two clusters": lambda: (clusters(900, 1e8), clusters(20, 1e8, 1)),
    "two clusters": lambda: (random(900, 3) + 1e7 * whole(900, 1, 2), random(20, 3, 1)),
    "an outlier": lambda: (np.vstack([random(300, 3), [[1e18] * 3], random(400, 3)]), random(9, 3)),
    "descending": lambda: (descending(900), random(7, 3, 1)),
    "float32": lambda: (random(800, 6).astype("f4"), random(21, 6, 1).astype("f4")),
    "float16": lambda: (random(800, 2).astype("f2"), random(21, 2, 1)),
    "int8": lambda: (whole(800, 3, 100).astype("i1"), whole(10, 3, 100, 1).astype("u2")),
    "bool": lambda: (whole(300, 8, 2).astype("?"), whole(5, 8, 2, 1).astype("?")),
    "large int64": lambda: (whole(500, 2, 2**62), whole(5, 2, 2**62, 1)),
    "few rows": lambda: (random(3, 2), random(5, 2, 1)),
    "one query": lambda: (random(900, 3), random(1, 3, 1)),
    "no query": lambda: (random(90, 3), random(0, 3)),
    "fortran": lambda: (np.asfortranarray(random(500, 3)), np.asfortranarray(random(9, 3, 1))),
    "strides": lambda: (random(1500, 6)[::2, ::2], random(9, 6, 1)[:, ::2]),
}

# Of those whose squares, or differences, are not.
EXTREME: Mapping[str, Callable[[], tuple[Array, Array]]] = {
    "1e200": lambda: (1e200 * random(300, 3), 1e200 * random(4, 3, 1)),
    "1e154": lambda: (1e154 * random(300, 3), 1e154 * random(4, 3, 1)),
    "the largest": lambda: (
        1.7e308 * np.sign(random(30, 2)) * 0.9 ** whole(30, 2, 30),
        -1.7e308 * np.eye(2),
    ),
    "clusters far apart": lambda: (clusters(300, 3e154, 0, 1e150), clusters(4, 3e154, 1, 1e150)),
    "squares that overflow, of near rows": lambda: (
        (1.36e154 + 1e151 * random(300, 1)) * np.sign(random(300, 1, 1)),
        np.array([[6e153], [-6e153]]),
    ),
    "1e-200": lambda: (1e-200 * random(300, 3), 1e-200 * random(4, 3, 1)),
    "1e-150": lambda: (1e-150 * random(300, 3), 1e-150 * random(4, 3, 1)),
    "1e-136": lambda: (1e-136 * random(300, 2), 1e-136 * random(4, 2, 1)),
    "denormal": lambda: (5e-324 * whole(300, 2, 1000), 5e-324 * whole(4, 2, 1000, 1)),
    "all scales": lambda: (10.0 ** (whole(80, 1, 600) - 300) * random(80, 2), np.zeros((1, 2))),
    "two scales": lambda: (
        np.vstack([1e200 * random(300, 2), 1e-200 * random(5, 2)]),
        np.zeros((1, 2)),
    ),
    "close and large": lambda: (
        1e200 * (1 + 2.0**-50 * whole(50, 2, 64)),
        np.full((2, 2), 1e200),
    ),
    "equal and tiny": lambda: (1e-200 * np.repeat(whole(20, 2, 3), 3, axis=0), np.zeros((1, 2))),
}


def at_the_edge() -> tuple[Array, Array]:
    """Sums of squares that are, or would be, within a few units of the largest number."""
    steps = np.arange(-9, 10)
    side = np.sqrt(np.finfo(np.float64).max / 2) * (1 + 2.0**-52 * steps)
    rows = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    return np.random.default_rng(0).permutation(rows), np.zeros((2, 2))


# --------------------------------------------------------------------------------------------------
# Kernels
# --------------------------------------------------------------------------------------------------


class Kernel(NamedTuple):
    """A kernel, and how it is given its rows."""

    name: str
    search: Callable[[Array, Array, int], Nearest]

    def check(self, X: Array, Q: Array, k: int) -> None:
        assert_equal(self.search(X, Q.astype(np.float64), k), nearest_by_definition(X, Q, k))


def searching(
    xp: Any, tile_elements: int, nearest: Callable[..., Nearest] = distances.nearest
) -> Callable[[Array, Array, int], Nearest]:
    return lambda X, Q, k: nearest(xp(X), Q, k, tile_elements)


def strict(X: Array) -> Any:
    # It has no float16.
    return array_api_strict.asarray(X.astype("f4") if X.dtype == np.float16 else X)


KERNELS = [
    param(backend, Kernel(name, search), id=name)
    for name, backend, search in (
        ("cpu", NUMPY, cpu_distances.nearest),
        ("numpy", NUMPY, searching(np.asarray, 1 << 20)),
        ("numpy in tiles", NUMPY, searching(np.asarray, 1000)),
        ("numpy in single rows", NUMPY, searching(np.asarray, 1)),
        ("array API", NUMPY, searching(strict, 1 << 20)),
        ("cupy", CUPY, searching(CUPY.asarray, 1 << 20)),
        ("cupy in tiles", CUPY, searching(CUPY.asarray, 1000)),
        ("cuda", CUPY, searching(CUPY.asarray, 1 << 20, kernels.distances.nearest)),
        ("cuda with little room", CUPY, searching(CUPY.asarray, 12_000, kernels.distances.nearest)),
        ("cuda in tiles", CUPY, searching(CUPY.asarray, 1000, kernels.distances.nearest)),
    )
]
every_kernel = pytest.mark.parametrize("kernel", KERNELS)
fast_kernels = pytest.mark.parametrize("kernel", [k for k in KERNELS if "single" not in str(k.id)])


@pytest.mark.few(4)
@every_kernel
@pytest.mark.parametrize("data", DATA)
def test_every_kernel_is_exact(kernel: Kernel, data: str) -> None:
    X, Q = DATA[data]()
    if kernel.name == "numpy in single rows":
        X, Q = X[:60], Q[:3]
    for k in {1, min(7, len(X)), len(X)} if len(X) < 200 else (1, 7, 40):
        kernel.check(X, Q, k)


@pytest.mark.parametrize("data", EXTREME)
def test_the_definition_knows_extreme_distances(data: str) -> None:
    X, Q = EXTREME[data]()
    actual, wanted = by_definition(X, Q, len(X)), in_rationals(X, Q)
    np.testing.assert_array_equal(actual[1], wanted[1])
    np.testing.assert_allclose(actual[0], wanted[0], rtol=1e-15, atol=5e-324)


@fast_kernels
@pytest.mark.parametrize("data", [*EXTREME, "at the edge"])
def test_every_kernel_is_exact_on_extreme_distances(kernel: Kernel, data: str) -> None:
    X, Q = at_the_edge() if data == "at the edge" else EXTREME[data]()
    for k in (1, 5, 9, 25, len(X)):
        kernel.check(X, Q, k)


coordinates = st.sampled_from(
    [0.0, 1.0, -1.0, 0.1, 3.0, 1e8, 1e8 + 1, 1e-9, 1e160, -1e200, 1e-170, 5e-324, 1.7e308]
) | st.floats(allow_nan=False, allow_infinity=False)


@given(
    data=st.data(), p=st.integers(1, 6), n=st.integers(1, 40), tile=st.sampled_from([1, 50, 400])
)
def test_any_data(data: st.DataObject, p: int, n: int, tile: int) -> None:
    values = data.draw(st.lists(coordinates, min_size=(n + 2) * p, max_size=(n + 2) * p))
    X, Q = np.split(np.array(values).reshape(n + 2, p), [n])
    k = data.draw(st.integers(1, n))
    wanted = nearest_by_definition(X, Q, k)
    assert_equal(distances.nearest(X, Q, k, tile), wanted)
    assert_equal(cpu_distances.nearest(X, Q, k), wanted)
    cut = data.draw(st.integers(0, n))
    parts = [cpu_distances.nearest(part, Q, k) for part in (X[:cut], X[cut:])]
    assert_equal(Nearest.merge(parts, k), wanted)


@pytest.mark.few(3)
@pytest.mark.parametrize("data", ["normal", "constant", "far from the origin", "descending"])
@pytest.mark.parametrize("limit", ["8 B", "16 kB", "1 MB"])
def test_no_tile_is_larger_than_the_limit(
    data: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_product, by_differences = (
        noted(monkeypatch, distances, name, lambda actual, *_: int(np.prod(actual[0].shape)))
        for name in ("_lower_bounds", "_keys")
    )
    X, Q = (a[: 30 if limit == "8 B" else 600] for a in DATA[data]())
    Q = Q[:5]
    with dask.config.set({"dask_gpuselect.distance-limit": limit}):
        actual = kneighbors(array_api_strict.asarray(X), array_api_strict.asarray(Q), 3)
    wanted = by_definition(X, Q, 3)
    np.testing.assert_array_equal(to_host(actual[1]), wanted[1])
    assert by_differences
    assert by_product or data == "constant"
    assert 8 * max(by_product + by_differences) <= dask.utils.parse_bytes(limit)


def test_scratch_has_a_bound() -> None:
    X, Q, limit = random(20_000, 6), random(500, 6), 1 << 20
    cpu_distances.nearest(X[:10], Q, 3)  # compiles
    for search, most in (
        (cpu_distances.nearest, 1 << 20),
        (searching(np.asarray, limit // 8), 8 * limit),
    ):
        assert peak_of(search, X, Q, 3, enough=most) < most


# --------------------------------------------------------------------------------------------------
# The function
# --------------------------------------------------------------------------------------------------


def computed(result: tuple[da.Array, da.Array], backend: Backend = NUMPY, **how: Any) -> Found:
    result = dask.compute(*result, **how)
    return backend.to_numpy(result[0]), backend.to_numpy(result[1])


def assert_same(actual: Found, wanted: Found) -> None:
    np.testing.assert_array_equal(actual[1], wanted[1])
    np.testing.assert_array_equal(actual[0], wanted[0])
    assert (actual[0].dtype, actual[1].dtype) == (np.float64, np.int64)


CHUNKS = {"one": -1, "even": 100, "single rows": 1, "irregular": (1, 0, 399, 7, 0, 93)}


@pytest.mark.parametrize("data", ["normal", "a grid"])
@pytest.mark.parametrize("chunks", CHUNKS)
def test_chunks_make_no_difference(backend: Backend, chunks: str, data: str) -> None:
    X, Q = DATA[data]()
    X, Q = X[: 60 if chunks == "single rows" else 500], Q[:12]
    rows = backend.lazy(X, (CHUNKS[chunks], -1))
    for queries in (Q, da.from_array(Q, chunks=(4, -1))):
        result = kneighbors(rows, queries, 6)
        assert_same(computed(result, backend), by_definition(X, Q, 6))


def test_plain_arrays_are_answered_at_once_in_kind(backend: Backend) -> None:
    X, Q = DATA["normal"]()
    wanted = by_definition(X, Q, 4)
    rows = backend.asarray(X)
    for queries in (Q, backend.asarray(Q), Q.tolist()):
        actual = kneighbors(rows, queries, 4)
        assert_same((backend.to_numpy(actual[0]), backend.to_numpy(actual[1])), wanted)
    assert_same(computed(kneighbors(rows, backend.lazy(Q, (7, -1)), 4), backend), wanted)
    actual = kneighbors(array_api_strict.asarray(X), array_api_strict.asarray(Q), 4)
    assert all(isinstance(a, type(array_api_strict.asarray(X))) for a in actual)
    assert_same((to_host(actual[0]), to_host(actual[1])), wanted)


@pytest.mark.parametrize("k", [1, 7, 1_000, 1_500])
@pytest.mark.parametrize("data", ["equal", "few", "normal"])
def test_more_pairs_than_a_block_orders_at_once(backend: Backend, data: str, k: int) -> None:
    """Equal distances by thousands; k that a GPU leaves to CuPy's functions; rows with gaps."""
    rng = np.random.default_rng(1)
    rows = np.zeros((9_000, 3)) if data == "equal" else rng.integers(0, 2, (9_000, 3)) * 1.0
    if data == "normal":
        rows = rng.standard_normal((9_000, 6))[:, ::2]
    queries = np.ascontiguousarray(rows[:10] + 0.25)
    actual = kneighbors(backend.asarray(rows), queries, k)
    for each, expected in zip(
        actual, kneighbors(np.ascontiguousarray(rows), queries, k), strict=True
    ):
        np.testing.assert_array_equal(to_host(each), expected)


def test_threads_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Q = DATA["a grid"]()
    monkeypatch.setitem(threads.WORTH, "products", 1)
    for n in (1, 3):
        with dask.config.set(num_workers=n):
            assert_same(kneighbors(X, Q, 9), by_definition(X, Q, 9))
            assert_same(kneighbors(X, X, 9), by_definition(X, X, 9))


def test_unknown_chunk_sizes(backend: Backend) -> None:
    X, Q = DATA["normal"]()
    x, q = backend.lazy(X, (100, -1)), backend.lazy(Q, (10, -1))
    result = kneighbors(x[x[:, 0] > 0], q[q[:, 0] > 0], 4)
    assert np.isnan(result[0].shape[0])
    assert result[0].shape[1] == 4
    assert_same(computed(result, backend), by_definition(X[X[:, 0] > 0], Q[Q[:, 0] > 0], 4))


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("n_queries", [1, 40])
def test_one_load(backend: Backend, n_queries: int, inline: bool) -> None:
    source, queries = Source((90, 5)), Source((n_queries, 5))
    x = backend.mapped(source.lazy((20, 5), inline=inline))
    q = backend.mapped(queries.lazy((7, 5), inline=inline))
    lazy = kneighbors(x, q, 3)
    assert source.loads == queries.loads == {}
    for result, dtype in zip(lazy, (np.float64, np.int64), strict=True):
        assert (result.dtype, result.chunks) == (dtype, ((n_queries,), (3,)))
        assert isinstance(result._meta, backend.array_type)
    assert_same(computed(lazy, backend), by_definition(source.whole(), queries.whole(), 3))
    assert set(source.loads.values()) == {1} == set(queries.loads.values())
    assert len(source.loads) == 5


def test_one_load_for_several_calls() -> None:
    source = Source((90, 5))
    x = source.lazy((20, 5))
    dask.compute(*kneighbors(x, random(4, 5), 3), *kneighbors(x, random(6, 5, 1), 7))
    assert set(source.loads.values()) == {1}


def test_rows_are_not_held() -> None:
    """Of 40 MB in chunks of 1 MB, a few at a time."""
    x = da.random.default_rng(0).random((500_000, 10), chunks=(12_500, 10))
    result = kneighbors(x, random(3, 10), 5)
    dask.compute(*kneighbors(x[:100], random(3, 10), 5), scheduler="sync")  # compiles, imports
    assert peak_of(dask.compute, *result, scheduler="sync", enough=8e6) < 8e6


@pytest.mark.parametrize(("value", "message"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_what_is_not_finite_is_found_while_computing(
    backend: Backend, value: float, message: str
) -> None:
    X = random(90, 3)
    X[55, 1] = value
    result = kneighbors(backend.lazy(X, (20, -1)), random(3, 3), 2)
    with pytest.raises(ValueError, match=rf"Input X contains {message}.*, in chunk \(2, 0\)"):
        result[1].compute()
    result = kneighbors(random(9, 3), backend.lazy(X, (20, -1)), 2)
    with pytest.raises(ValueError, match=f"Input Q contains {message}"):
        result[1].compute()


def test_large_numbers_are_finite() -> None:
    X = np.full((10, 2), 1.5e308)
    assert_same(kneighbors(X, X[:1], 2), (np.zeros((1, 2)), np.array([[0, 1]])))


# --------------------------------------------------------------------------------------------------
# The estimators
# --------------------------------------------------------------------------------------------------

ESTIMATORS = [NearestNeighbors(), KNeighborsRegressor(), KNeighborsClassifier()]


@pytest.mark.few(4)
@pytest.mark.filterwarnings("ignore:.*column-vector y was passed")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_neighbors_of_the_fitted_rows(backend: Backend) -> None:
    """And of others, as scikit-learn finds them."""
    X = random(120, 3)
    model = NearestNeighbors().fit(backend.lazy(X, (50, -1)))
    for queries in (random(9, 3, 1), None):
        wanted = theirs.NearestNeighbors(algorithm="brute").fit(X).kneighbors(queries)
        actual = computed(model.kneighbors(queries), backend)
        np.testing.assert_array_equal(actual[1], wanted[1])
        np.testing.assert_allclose(actual[0], wanted[0], rtol=1e-9)
    np.testing.assert_array_equal(
        backend.to_numpy(model.kneighbors(n_neighbors=2, return_distance=False).compute()),
        wanted[1][:, :2],
    )


def test_equal_rows_are_neighbors_but_none_its_own() -> None:
    X = np.zeros((6, 2))
    result = NearestNeighbors(n_neighbors=2).fit(X).kneighbors()
    np.testing.assert_array_equal(result[1], [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1], [0, 1]])
    np.testing.assert_array_equal(result[0], 0)


def gaussian(d: Array) -> Array:
    return np.exp(-(d**2))


WEIGHTS = pytest.mark.parametrize("weights", ["uniform", "distance", None, gaussian])


@WEIGHTS
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
def test_regression(backend: Backend, weights: Any, shape: tuple[int, ...], dtype: str) -> None:
    X, Q = random(200, 3), np.vstack([random(20, 3, 1), random(200, 3)[:5]])  # some at distance 0
    y = (100 * np.random.default_rng(2).standard_normal((200, *shape))).astype(dtype)
    how: dict[str, Any] = {"n_neighbors": 4, "weights": weights}
    wanted = theirs.KNeighborsRegressor(algorithm="brute", **how).fit(X, y).predict(Q)
    lazy = KNeighborsRegressor(**how).fit(backend.lazy(X, (30, -1)), da.from_array(y)).predict(Q)
    assert (lazy.shape, lazy.dtype) == (wanted.shape, wanted.dtype)
    now = KNeighborsRegressor(**how).fit(X, y)
    for actual in (backend.to_numpy(lazy.compute()), now.predict(Q)):
        assert actual.dtype == wanted.dtype
        np.testing.assert_allclose(actual, wanted, rtol=1e-5 if dtype == "f4" else 1e-7)
    assert now.score(X, y) > 0.2


@WEIGHTS
@pytest.mark.parametrize("labels", ["int", "str", "two outputs"])
def test_classification(backend: Backend, weights: Any, labels: str) -> None:
    X, Q = random(200, 3), np.vstack([random(40, 3, 1), random(200, 3)[:5]])
    y: Array = np.digitize(X[:, 0] + X[:, 1], [-1, 0, 1.0])
    if labels == "str":
        y = np.array(["a", "bb", "c", "d"])[y]
    if labels == "two outputs":
        y = np.stack([y, X[:, 2] > 0], axis=1)
    rows = backend.lazy(X, (30, -1))
    how: dict[str, Any] = {"n_neighbors": 6, "weights": weights}
    wanted = theirs.KNeighborsClassifier(algorithm="brute", **how).fit(X, y)
    now = KNeighborsClassifier(**how).fit(X, y)
    np.testing.assert_array_equal(now.predict(Q), wanted.predict(Q))
    for one, other in zip(now.classes_, wanted.classes_, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(now.predict_proba(Q), wanted.predict_proba(Q), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)
    if labels == "str":
        backend = NUMPY  # the only kind that has them
    lazy = KNeighborsClassifier(**how).fit(rows, da.from_array(y))
    answer = lazy.predict(Q)
    assert (answer.shape, answer.dtype) == (wanted.predict(Q).shape, y.dtype)
    np.testing.assert_array_equal(backend.to_numpy(answer.compute()), wanted.predict(Q))


def test_the_first_of_equal_votes_wins() -> None:
    model = KNeighborsClassifier(n_neighbors=2).fit([[0], [1]], ["b", "a"])
    assert model.predict([[0]]) == "a"
    np.testing.assert_array_equal(model.predict_proba([[0]]), [[0.5, 0.5]])


def test_ties_beyond_the_last_are_decided_by_number() -> None:
    X, y = [[1], [-1], [1], [0]], [10.0, 20.0, 40.0, 0.0]
    assert KNeighborsRegressor(n_neighbors=3).fit(X, y).predict([[0]]) == 10


def test_not_fitted() -> None:
    with pytest.raises(NotFittedError):
        KNeighborsRegressor().predict([[1]])


# --------------------------------------------------------------------------------------------------
# On a device
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shapes of what was copied to the host so far."""
    import cupy

    return noted(monkeypatch, cupy.ndarray, "get", lambda _, array, *args, **how: str(array.shape))


@pytest.mark.gpu
@pytest.mark.emulated
def test_the_host_waits_once_for_all_tiles(waits: list[str]) -> None:
    """And no answer leaves the device, nor do queries that are there."""
    X, Q = random(9_000, 4), random(30, 4, 1)
    result = kneighbors(CUPY.asarray(X), CUPY.asarray(Q), 3)
    assert waits == ["(1,)"]
    assert_same((to_host(result[0]), to_host(result[1])), by_definition(X, Q, 3))


@pytest.mark.gpu
def test_tiles_that_fail_are_left_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before and behind them are not."""
    left = noted(monkeypatch, distances, "_by_product", lambda _, tile, *args: len(tile))
    X, Q = random(9_000, 3), random(5, 3, 1)
    X[3_000:5_000] = (
        Q[0] + 1e-6 * X[3_000:5_000]
    )  # more near rows of a query than there is room for
    result = kernels.distances.nearest(CUPY.asarray(X), Q, 3, 4_000)
    assert_equal(result, nearest_by_definition(X, Q, 3))
    assert 0 < sum(left) < 9_000 - distances.FEW_ROWS
