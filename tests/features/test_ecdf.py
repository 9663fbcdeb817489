"""`ecdf`: exact counts at its points, bounds that hold between them, and what fills them in."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import array_api_strict
import dask
import dask.array as da
import numpy as np
import pytest
from dask.base import is_dask_collection, tokenize
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays, from_dtype
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dask_gpuselect import kernels, quantile
from dask_gpuselect.distribution import (
    EmpiricalDistribution,
    EstimatedDistribution,
    MonotoneQuadraticSpline,
    ecdf,
)
from dask_gpuselect.distribution.empirical import LazyDistribution, even_ranks
from dask_gpuselect.engine import pilot, threads
from dask_gpuselect.kernels.reference.selection import places_of
from tests.backends import Backend
from tests.data import FLOATS, normal, uniform, valid
from tests.matrix import definitions
from tests.matrix.laws import same
from tests.spies import noted


def lazy_of(a: NDArray[Any], chunks: Any) -> da.Array:
    """Of an array that dask takes for a file."""
    x = da.from_array(a, chunks=chunks)
    return x.map_blocks(np.copy, dtype=a.dtype, meta=np.empty((0,) * a.ndim, a.dtype))


def computed(lazy: Any) -> EmpiricalDistribution:
    assert isinstance(lazy, LazyDistribution)
    result: EmpiricalDistribution = lazy.compute(scheduler="sync")
    return result


def assert_counts(actual: EmpiricalDistribution, a: NDArray[Any], points: Any, what: Any) -> None:
    """That counts are exact, at the points that were asked for."""
    assert isinstance(actual, EmpiricalDistribution)
    slot = definitions.Slot(a.ravel(), None, 0)
    same(actual, [definitions.ecdf("ecdf", slot, a.dtype, points=points)], str(what))
    assert actual.dtype == a.dtype
    if actual.points.dtype.kind == "f":
        assert not np.signbit(actual.points[actual.points == 0]).any()


def looked_at(a: NDArray[Any]) -> NDArray[Any]:
    """Values to ask for: elements, and some that are between or beside them."""
    v = valid(a)[:: max(len(a) // 200, 1)]
    if a.dtype.kind == "b":
        return np.array([0, 1])
    if a.dtype.kind in "iu":
        info = np.iinfo(a.dtype)
        beside = [np.where(v > info.min, v - (v > info.min), v), v + (v < info.max)]
        ends = np.array([info.min, info.max], a.dtype)
        return np.sort(np.concatenate([v, *beside, ends]).astype(a.dtype))
    with np.errstate(all="ignore"):
        between = v[:-1] / 2 + v[1:] / 2
        beside = [np.nextafter(v, -np.inf, dtype=a.dtype), np.nextafter(v, np.inf, dtype=a.dtype)]
    ends = np.array([-np.inf, 0, np.inf], a.dtype)
    every = np.sort(np.concatenate([v, between, *beside, ends]))
    return every[~np.isnan(every)]


SHARES = np.concatenate([uniform(60), np.arange(17) / 16])


def assert_bounds(actual: EmpiricalDistribution, a: NDArray[Any], what: Any) -> None:
    """That all it says is proven by its counts, and true."""
    v, z = valid(a), looked_at(a)
    n = len(v)
    exact = v.searchsorted(z, "right") / n
    cdf, (lower, upper) = actual.cdf(z), actual.cdf_bounds(z)
    assert cdf.dtype == lower.dtype == np.float64
    assert (lower <= exact).all(), what
    assert (exact <= upper).all(), what
    assert (lower <= cdf).all(), what
    assert (cdf <= upper).all(), what
    assert (np.diff(cdf) >= 0).all(), what
    assert (upper - lower).max() <= actual.max_error + 2**-52, what
    assert np.abs(cdf - exact).max() <= actual.max_error + 2**-52, what
    np.testing.assert_array_equal(actual.cdf(actual.points), actual.upto / n)
    q, (low, high) = actual.quantile(SHARES), actual.quantile_bounds(SHARES)
    with np.errstate(all="ignore"):
        wanted = quantile(v, SHARES, method="inverted_cdf")
    assert low.dtype == high.dtype == a.dtype
    assert (low <= wanted).all(), what
    assert (wanted <= high).all(), what
    assert (low.astype(float) <= q).all(), what
    assert (q <= high.astype(float)).all(), what
    ascending = q[np.argsort(SHARES)]
    assert (ascending[1:] >= ascending[:-1]).all(), what
    pdf = actual.pdf(z)
    assert (pdf >= 0).all(), what


# --- Exact counts, and what they prove ------------------------------------------------------------


@settings(max_examples=15)
@given(data=st.data())
def test_property(data: st.DataObject) -> None:
    """Few different elements or any, in chunks or not, at few ranks or any values."""
    dtype = data.draw(st.sampled_from(["f8", "f4", "f2", "i1", "i8", "u8"]))
    some: Any = {"allow_nan": False} if dtype[0] == "f" else {}
    any_of = from_dtype(np.dtype(dtype), **some)
    elements = any_of if data.draw(st.booleans()) else st.integers(0, 9)
    a = data.draw(arrays(dtype, st.integers(1, 60), elements=elements))
    points: Any = data.draw(st.integers(2, 20))
    if data.draw(st.booleans()):
        points = np.array(data.draw(st.lists(any_of, max_size=9)), dtype)
    result = ecdf(a, points)
    assert_counts(result, a, points, (a, points))
    assert_bounds(result, a, (a, points))
    assert np.ndim(points) or result.max_error < 1 / (points - 1)
    size = data.draw(st.integers(1, 60))
    same(computed(ecdf(lazy_of(a, size), points)), result)


def test_even_ranks() -> None:
    """Exactly, where a product of int64 would overflow; and never further apart than promised."""
    for n, k in ((0, 5), (1, 5), (3, 5), (1000, 7), (2**53, 100_003), (10**12 + 1, 12_345)):
        result = even_ranks(n, k)
        some = range(k) if k < 100 else (0, 1, 2, k // 3, k - 2, k - 1)
        assert (
            set(result.tolist()) >= {j * (n - 1) // (k - 1) for j in some} if n else not len(result)
        )
        if n > 1:
            assert (result[0], result[-1]) == (0, n - 1)
            assert np.diff(result).max() <= -(-(n - 1) // (k - 1))


# --- Missing, infinite, nothing -------------------------------------------------------------------


def test_nothing() -> None:
    nan = np.full(7, np.nan)
    for a in (np.empty(0), nan, np.empty(0, "i4")):
        for points in (5, [1, 2]):
            for result in (ecdf(a, points), computed(ecdf(lazy_of(a, 3), points))):
                assert_counts(result, a, points, points)
                assert np.isnan(result.max_error)
                assert np.isnan([result.cdf(1), result.pdf(1), *result.cdf_bounds(1)]).all()
                assert np.isnan(result.quantile([0.0, 0.5])).all()
                with pytest.raises(ValueError, match="no elements"):
                    result.quantile_bounds(0.5)
                assert "nan" in repr(result)
    x = lazy_of(normal(100), 30)
    result = computed(ecdf(x[x > 100], 5))
    assert result.n_valid == 0


def test_infinite() -> None:
    """No spline leads to an infinite point, and no element is taken to be next to it."""
    a = np.concatenate([[-np.inf] * 10, np.arange(80.0), [np.inf] * 10])
    result = ecdf(a, 5)  # ranks 0, 24, 49, 74, 99
    assert result.points.tolist() == [-np.inf, 14, 39, 64, np.inf]
    assert result.cdf([-np.inf, -1e300, 0, 13.9]).tolist() == [0.1] * 4
    assert result.cdf([14, 39, 64, 65, 1e300, np.inf]).tolist() == [0.25, 0.5, 0.75, 0.75, 0.75, 1]
    assert result.pdf([-np.inf, 0, 65, np.inf]).tolist() == [0] * 4
    assert result.pdf(20) > 0
    assert result.quantile([0.05, 0.2, 0.25, 0.8, 0.95]).tolist() == [
        -np.inf,
        14,
        14,
        np.inf,
        np.inf,
    ]
    assert np.isfinite(result.plot().lines[0].get_data()).all()


# --- Comparing with points ------------------------------------------------------------------------


def test_integers_beyond_float64() -> None:
    """They are counted and compared as integers."""
    for dtype, base in (("i8", 2**62), ("i8", -(2**63)), ("u8", 2**64 - 101)):
        a = np.array([base + i for i in range(101)], dtype)
        result = ecdf(a, 101)
        np.testing.assert_array_equal(result.points, a)
        np.testing.assert_array_equal(result.cdf(a), np.arange(1, 102) / 101)
        assert result.quantile_bounds(0.5)[0] == a[50]
        few = ecdf(a, [int(a[7])])
        assert few.points.tolist() == [a[0], a[7], a[-1]]
        assert few.cdf(a[7]) == 8 / 101
        assert_bounds(few, a, dtype)
    whole = np.array([0, 2**63, 2**64 - 1], "u8")
    result = ecdf(whole, 3)
    z = np.array([-1, 0, 2**63 - 1], "i8")
    assert result.cdf(z).tolist() == [0, 1 / 3, 1 / 3]
    assert result.cdf([-0.5, 0.5, 2.0**63, 2.0**64]).tolist() == [0, 1 / 3, 2 / 3, 1]
    result = ecdf(np.array([-(2**63), 2**63 - 1], "i8"), 2)
    assert result.cdf(np.array([2**63 - 2, 2**63 - 1, 2**64 - 1], "u8")).tolist() == [0.5, 1, 1]
    assert result.cdf([-np.inf, -(2.0**63), 2.0**63, np.inf, np.nan])[:4].tolist() == [0, 0.5, 1, 1]


def test_ordered_places_on_any_device() -> None:
    """By steps of its own, for arrays that NumPy does not search."""
    a = np.sort(np.concatenate([FLOATS["denormal float32"](500), FLOATS["tied"](500)])).astype("f4")
    wanted = np.unique(np.concatenate([a[::7], np.float32([-1, 1e-45, 3, 99])]))
    ordered = array_api_strict.asarray(a)
    for side in ("left", "right"):
        np.testing.assert_array_equal(
            places_of(ordered, wanted, side), a.searchsorted(wanted, side)
        )
    assert places_of(ordered[:0], wanted, "left").tolist() == [0] * len(wanted)


def test_shapes_and_kinds() -> None:
    result = ecdf(normal(500), 20)
    assert isinstance(result.cdf(0), np.float64)
    assert isinstance(result.quantile(0.5), np.float64)
    assert [type(one) for one in result.cdf_bounds(0)] == [np.float64] * 2
    assert [type(one) for one in result.quantile_bounds(0.5)] == [np.float64] * 2
    assert result.cdf([]).shape == result.quantile([]).shape == (0,)
    for shape in ((3, 4), (0, 2), (1,)):
        z = np.zeros(shape)
        assert result.cdf(z).shape == result.pdf(z).shape == result.cdf_bounds(z)[1].shape == shape
        assert result.quantile(z).shape == result.quantile_bounds(z)[0].shape == shape
    z = array_api_strict.asarray([[0.0, 1.0]])
    for one in (result.cdf(z), result.pdf(z), result.quantile(z), *result.cdf_bounds(z)):
        assert type(one) is type(z)
        assert one.shape == (1, 2)
    for function in (result.cdf, MonotoneQuadraticSpline(result.points, result.upto)):
        lazy = da.from_array(normal(50), chunks=20).map_blocks(function)
        np.testing.assert_array_equal(lazy.compute(scheduler="sync"), function(normal(50)))


# --- The spline between ---------------------------------------------------------------------------


def test_all_elements_are_points() -> None:
    """Then it is the step function that counts them, and nothing has a density."""
    a = normal(50)
    result = ecdf(a, 1000)
    assert result.max_error == 0
    assert result.is_jump.all()
    z = looked_at(a)
    np.testing.assert_array_equal(result.cdf(z), np.searchsorted(np.sort(a), z, "right") / 50)
    assert (result.pdf(z) == 0).all()
    p = (np.arange(50) + 0.5) / 50
    np.testing.assert_array_equal(result.quantile(p), np.sort(a))


def test_a_jump_is_more_than_chance() -> None:
    """More elements than the square root of those beside it, whatever the distances."""
    for ties, beside, jumps in ((3, 9, False), (3, 8, True), (1, 1, False), (1, 0, True)):
        left, n = beside // 2, ties + beside + 2
        below, upto = np.array([0, 1 + left, n - 1]), np.array([1, 1 + left + ties, n])
        for points in ([0.0, 1.0, 2.0], [-1e9, 0.0, 1e-9]):
            result = EmpiricalDistribution(np.array(points), below, upto, n, 0)
            assert result.is_jump[1] == jumps
            before, at = result.cdf([np.nextafter(points[1], -1), points[1]])
            assert at == upto[1] / n
            assert before <= below[1] / n


def test_the_density_of_continuous_data_with_atoms() -> None:
    """At a point of many elements the cdf steps, and beside it the spline is as if they were not
    there: of uniform data a line."""
    n = 100_000
    even = np.arange(n) / n
    a = np.concatenate([even, np.full(n // 2, 0.25), np.full(30_000, even[-1]), np.zeros(n // 5)])
    actual = ecdf(a, 101)
    assert actual.points[actual.is_jump].tolist() == [0.0, 0.25, even[-1]]
    z = (np.arange(1, 3000) + 0.5) / 3001
    exact = np.searchsorted(np.sort(a), z, "right") / len(a)
    assert np.abs(actual.cdf(z) - exact).max() < 3 / n
    inner = z[(z > 0.001) & (z < 0.999)]
    np.testing.assert_allclose(actual.pdf(inner), n / len(a), rtol=0.02)
    # Left of the step, and at it.
    left, at = actual.cdf([np.nextafter(0.25, 0), 0.25])
    assert at - left == pytest.approx((n // 2 + 1) / len(a), abs=1e-9)
    p = np.sort(uniform(500))
    wanted = quantile(a, p, method="inverted_cdf")
    np.testing.assert_allclose(actual.quantile(p), wanted, atol=3 / n)


@pytest.mark.any_dask
def test_pdf() -> None:
    """It is the derivative of the cdf, and near the density that the data have."""
    n = 200_000
    result = ecdf(ndtri((np.arange(n) + 0.5) / n), 201)
    z = np.linspace(-2, 2, 777)
    np.testing.assert_allclose(result.pdf(z), np.exp(-z * z / 2) / np.sqrt(2 * np.pi), rtol=0.02)
    step = 1e-6
    slope = (result.cdf(z + step) - result.cdf(z - step)) / (2 * step)
    # Next to a point the cdf stays below what is certainly not more.
    is_free = result.cdf(z + step) < result.cdf_bounds(z)[1]
    assert is_free.mean() > 0.99
    np.testing.assert_allclose(result.pdf(z)[is_free], slope[is_free], rtol=1e-3)
    assert result.pdf([-9, 9]).tolist() == [0, 0]
    # Nothing is between two values that were both asked for.
    gap = ecdf(np.concatenate([uniform(100), 5 + uniform(100)]), [1.5, 4.5])
    assert gap.pdf(3) == 0
    assert gap.pdf(0.5) > 0


# --- Noisy estimates ------------------------------------------------------------------------------


@pytest.mark.any_dask
def test_noisy_estimates() -> None:
    """The shares of samples do not ascend; made to, they are nearer to the truth."""
    x = np.linspace(-2.5, 2.5, 101)
    sizes = np.where(np.arange(101) % 3, 100, 400)
    noisy = np.random.default_rng(0).binomial(sizes, ndtr(x)) / sizes
    assert (np.diff(noisy) < 0).any()
    result = EstimatedDistribution.from_noisy(x, noisy, sizes)
    assert (np.diff(result.shares) >= 0).all()
    for z in (x, np.linspace(-2.5, 2.5, 777)):
        assert (np.diff(result.cdf(z)) >= 0).all()
    np.testing.assert_allclose(result.cdf(x), result.shares, atol=1e-15)
    of_ours, of_noise = (np.mean((y - ndtr(x)) ** 2) for y in (result.shares, noisy))
    assert of_ours < of_noise / 2
    even = EstimatedDistribution.from_noisy(x, noisy)
    assert not np.array_equal(even.shares, result.shares)
    p = np.linspace(result.shares[0], result.shares[-1], 50)
    np.testing.assert_allclose(result.cdf(result.quantile(p)), p, atol=1e-12)
    assert np.isnan(result.cdf([-3, 3, np.nan])).all()
    assert np.isnan(result.quantile([0.0, 1.0])).tolist() == [
        result.shares[0] > 0,
        result.shares[-1] < 1,
    ]
    assert (result.pdf(x) >= 0).all()
    assert len(result.plot().lines) == 1
    same = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(same.cdf(x), result.cdf(x))


@pytest.mark.any_dask
def test_estimates_are_shares() -> None:
    result = EstimatedDistribution.from_noisy([0, 1, 2], [-0.1, 0.5, 1.1])
    assert result.shares.tolist() == [0, 0.5, 1]
    assert result.quantile([0, 1]).tolist() == [0, 2]
    constant = EstimatedDistribution.from_noisy([0, 1], [0.5, 0.5])
    assert constant.cdf(0.3) == 0.5
    assert constant.quantile(0.5) == 0


# --- Loads, laziness, schedulers ------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is done to every chunk, by the names of the kernels."""
    results: list[str] = []
    for name in ("cuts", "tally"):
        noted(monkeypatch, kernels, name, lambda *_, name=name, **__: name, results)
    monkeypatch.setattr(pilot, "PILOT_WORTH", 2000)
    monkeypatch.setattr(pilot, "PILOT_SIZE", 3000)
    return results


def test_data_in_memory(reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Few points are guessed, and counted in one read; many take two, in place; so does a miss."""
    a = normal(40_000)
    x = da.from_array(a, chunks=10_000)
    result = computed(ecdf(x, 8))
    assert reads == ["tally"] * 4
    assert_counts(result, a, 8, "guess")
    same(ecdf(a, 8), result)
    reads.clear()
    result = computed(ecdf(x, 9))
    assert sorted(reads) == ["cuts"] * 4 + ["tally"] * 4
    assert_counts(result, a, 9, "in place")
    reads.clear()
    assert_counts(computed(ecdf(x, [0.0, 1])), a, [0.0, 1], "values")
    assert reads == ["tally"] * 4
    monkeypatch.setitem(threads.WORTH, "elements", 10_000)
    for points in (5, [0.5]):
        assert_counts(ecdf(a, points), a, points, "shared out among threads")
    other = np.concatenate([np.full(100, -99.0), 3 + uniform(1000), np.full(100, 99.0)])
    monkeypatch.setattr(kernels, "sample", lambda *args, **how: other)
    assert_counts(computed(ecdf(x, 5)), a, 5, "a sample of other data")


def test_it_is_a_collection() -> None:
    x = lazy_of(normal(3000), 700)
    for points in (31, [0.0]):
        lazy = ecdf(x, points)
        assert is_dask_collection(lazy)
        assert is_dask_collection(lazy.persist())
        assert "not computed" in repr(lazy)
        assert tokenize(lazy) == tokenize(ecdf(x, points)) != tokenize(ecdf(x, 7))
    assert tokenize(ecdf(x, [0.0])) != tokenize(ecdf(x, [0.5]))
    assert not is_dask_collection(lazy.compute())


# --- As an object ---------------------------------------------------------------------------------


def test_it_is_frozen() -> None:
    result = ecdf(normal(300), 11)
    before = result.cdf(0.3)
    again = pickle.loads(pickle.dumps(result))
    same(again, result)
    assert again.cdf(0.3) == before
    result.pdf(0.3)
    assert len(pickle.dumps(result)) < 24 * 11 + 1000
    with pytest.raises(AttributeError):
        result.n_valid = 3  # type: ignore[misc]
    points, one, two = np.array([1.0, 2.0]), np.array([0, 1]), np.array([1, 2])
    assert EmpiricalDistribution(points, one, two, 2, 0).cdf(1.5) == 0.5


def test_plot() -> None:
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    a = np.concatenate([normal(900), np.zeros(100)])
    result = ecdf(a, 21)
    ax = Figure().subplots()
    assert result.plot(ax, color="red", label="data") is ax
    (line,) = ax.lines
    x, y = line.get_data()
    assert line.get_color() == "red"
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) >= 0).all()
    # Its ends, the points, and both ends of the step.
    assert (x[0], x[-1], y[0], y[-1]) == (a.min(), a.max(), 0, 1)
    drawn = set(zip(x.tolist(), y.tolist(), strict=True))
    assert drawn >= set(zip(result.points.tolist(), (result.upto / 1000).tolist(), strict=True))
    assert drawn >= set(zip(result.points.tolist(), (result.below / 1000).tolist(), strict=True))
    assert len(ax.collections) == 1
    ax.figure.canvas.draw()
    for data in (np.ones(5), np.full(5, np.inf), np.empty(0), np.arange(5000), uniform(5000)):
        ecdf(data, 3000).plot().figure.canvas.draw()
    pyplot.close("all")


# --- Arguments ------------------------------------------------------------------------------------


# --- Chunks of other kinds ------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_large_chunks(backend: Backend, dtype: str) -> None:
    """Large enough for the kernels of devices, and for candidates that are selected there."""
    n = 3_000_000 if backend.name == "cupy" else 60_000
    a = np.where(uniform(n) < 0.2, 0.25, normal(n)).astype(dtype)
    x = backend.asarray(a)
    for points in (5, 1001, np.linspace(-3, 3, 1500).astype(dtype)):
        assert_counts(ecdf(x, points), a, points, points)
        assert_counts(computed(ecdf(backend.lazy(a, n // 3), points)), a, points, points)


def test_values_of_the_same_kind(backend: Backend) -> None:
    actual = ecdf(backend.asarray(normal(5000)), backend.asarray([0.0, 0.5]))
    z = backend.asarray([[0.0, 0.2, 9.0]])
    assert_counts(actual, normal(5000), [0.0, 0.5], "values")
    for one, wanted in (
        (actual.cdf(z), actual.cdf([[0.0, 0.2, 9.0]])),
        (actual.pdf(z), actual.pdf([[0.0, 0.2, 9.0]])),
        (actual.quantile(z / 9), actual.quantile([[0.0, 0.2 / 9, 1.0]])),
        (actual.cdf_bounds(z)[0], actual.cdf_bounds([[0.0, 0.2, 9.0]])[0]),
    ):
        np.testing.assert_array_equal(backend.to_numpy(one), wanted)


@pytest.mark.parametrize("kind", [list, tuple])
def test_points_beyond_int64(kind: Any) -> None:
    """Of such a list NumPy makes float64, which rounds."""
    a = np.array([1, 2**63, 2**63 + 1, 2**64 - 1], "u8")
    for x in (a, da.from_array(a, chunks=2)):
        (d,) = dask.compute(ecdf(x, kind([1, 2**63 + 1, 2**64 - 2])))
        assert d.points.tolist() == [1, 2**63 + 1, 2**64 - 2, 2**64 - 1]
        assert d.upto.tolist() == [1, 3, 3, 4]
    with pytest.raises(ValueError, match="points must fit uint64, the dtype of x, and -1"):
        ecdf(a, kind([1, -1]))
