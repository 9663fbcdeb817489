"""Moving windows: beside windows that are unfolded, pandas and scipy.ndimage."""

from __future__ import annotations

import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dask_gpuselect.kernels import compiling
from dask_gpuselect.kernels.cpu import window_blocks, window_networks, windows
from dask_gpuselect.windows import median_filter, percentile_filter, rank_filter, rolling
from tests.sources import Source
from tests.spies import noted

pytestmark = pytest.mark.usefixtures("in_this_thread")

ndimage = pytest.importorskip("scipy.ndimage")

MODES = ("reflect", "constant", "nearest", "mirror", "wrap", "grid-wrap")
PADDED = {None: "constant", "reflect": "symmetric"}
same = np.testing.assert_array_equal


def some(
    shape: tuple[int, ...], dtype: str = "f8", *, nan: float = 0.1, seed: int = 52
) -> NDArray[Any]:
    """Few values, so that there are ties; some of them NaN."""
    random = np.random.default_rng(seed)
    result = random.integers(0 if np.dtype(dtype).kind == "u" else -25, 25, shape).astype(dtype)
    if result.dtype.kind == "f":
        result += random.random(shape).round(1).astype(dtype)
        result[random.random(shape) < nan] = np.nan
    return result


def unfolded(
    x: NDArray[Any], windows: dict[int, int], *, center: bool = False, boundary: str | None = None
) -> NDArray[Any]:
    """The windows of every element, with NaN for what is beyond the ends, along a last axis."""
    widths = [(0, 0)] * x.ndim
    for axis, size in windows.items():
        after = (size - 1) // 2 if center else 0
        widths[axis] = (size - 1 - after, after)
    how: dict[str, Any] = {} if boundary else {"constant_values": np.nan}
    padded = np.pad(x.astype("f8"), widths, PADDED[boundary], **how)  # type: ignore[call-overload]
    result = sliding_window_view(padded, tuple(windows.values()), axis=tuple(windows))
    return result.reshape(*x.shape, -1)


# --- Answers --------------------------------------------------------------------------------------


@pytest.fixture(params=["numpy", "blocks", "networks"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What answers NumPy chunks: NumPy, as of few elements, or one of the kernels."""
    if request.param != "numpy":
        monkeypatch.setattr(compiling, "LARGE", 0)
        monkeypatch.setattr(windows, "SLAB", 1 << 9)  # slabs that end within windows
        monkeypatch.setattr(window_blocks, "LONG", 1 << 7)
    if request.param == "blocks":
        monkeypatch.setattr(window_networks, "MOST", 0)
    return str(request.param)


def by_definition(every: NDArray[Any], about: Any, result: Any) -> None:
    """Compare with the windows themselves."""
    with warnings.catch_warnings(action="ignore"):
        same(about.median(), np.median(every, -1).astype(result))
        same(about.nanquantile([0.1, 0.5]), np.nanquantile(every, [0.1, 0.5], -1))
        expected = np.quantile(every, 0.7, -1, method="inverted_cdf")
        same(about.quantile(0.7, method="inverted_cdf"), expected)
        if result == "f8":
            distances = np.abs(every - np.nanmedian(every, -1, keepdims=True))
            same(about.nanmad(scale=1.0), np.nanmedian(distances, -1))


WIDE = [{1: 5}, {0: 4, 1: 3}, {0: 20, 1: 9}, {0: 20, 1: 12}, {1: 70}]
WIDE += [{0: 2, 1: 3, 2: 3}, {0: 1, 2: 31}, {0: 4, 1: 4, 2: 9}]


@pytest.mark.parametrize(
    "dtype", ["f8", *(pytest.param(d, marks=pytest.mark.slow) for d in ("f4", "u1", "i2"))]
)
@pytest.mark.parametrize("windows", WIDE)
def test_every_kernel_is_exact(way: str, dtype: str, windows: dict[int, int]) -> None:
    x = some((9, 120, 3) if 2 not in windows else (3, 12, 40), dtype)
    np.nan_to_num(x[: len(x) // 2], copy=False)  # some slabs lack nothing
    x[::2], x[-2:] = x[::2].round(-1), x[-2:, :1]  # some have few values, or one
    x[-1] += 0 * x[-3]  # which may be missing
    about = rolling(x, windows, center=True, boundary="reflect")
    result = "f8" if x.dtype.kind != "f" else dtype
    by_definition(unfolded(x, windows, center=True, boundary="reflect"), about, result)
    some_of_them = tuple(slice(None, None, 1 + (axis in windows)) for axis in range(3))
    by_definition(unfolded(x, windows)[some_of_them], rolling(x, windows, step=2), result)


SIZES = [(1, 9), (9, 1), (3, 3), (4, 5), (2, 3, 2)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 99), st.booleans(), st.sets(st.integers(0, 19)), st.sampled_from(SIZES))
@example(10, False, {17}, (2, 30))  # comparisons of an earlier stage follow those of a later one
def test_networks_find_every_rank(seed: int, is_full: bool, ranks: set[int], size: Any) -> None:
    """Of zeros and ones, which suffices; footprints of any form, and sets of ranks."""
    random = np.random.default_rng(seed)
    marks = random.random(size) < (1 if is_full else 0.6)
    marks[(0,) * marks.ndim] = True
    wanted = sorted({rank % int(marks.sum()) for rank in ranks} or {int(marks.sum()) - 1})
    made = window_networks.network(size, tuple(marks.ravel().tolist()), tuple(wanted))
    flat = marks.reshape(-1, size[-1])
    x = random.random((len(flat), 4000)) < random.random((1, 4000)).round(1)
    rows = [*x, *(np.empty(0, bool) for _ in range(made.n_rows - len(flat)))]
    for stage in made.stages:
        known: dict[tuple[int, int], NDArray[Any]] = {}
        for first, moved, second, also_moved, low, high in stage:
            pair = [
                known[node] if node in known else rows[made.rows[node[0]]][node[1] :]
                for node in ((first, moved), (second, also_moved))
            ]
            a, b = (each[: min(map(len, pair))] for each in pair)
            for number, result in ((low, a & b), (high, a | b)):
                known[number, 0] = result
                if number in made.rows:  # a stage reads no row that it writes
                    rows[made.rows[number]] = result
    n_windows = 4000 - size[-1] + 1
    every = np.sort([x[row, i : i + n_windows] for row, i in np.argwhere(flat)], axis=0)
    for rank in wanted:
        number, moved = made.answers[rank]
        same(rows[made.rows[number]][moved:][:n_windows], every[rank])


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "f4", "i8", "u8", "f8"])
@pytest.mark.parametrize(("size", "n"), [((1, 9), 700), ((3, 3), 5000), ((5, 4), 129), ((7, 1), 9)])
def test_the_code_of_networks_compares_whole_range(
    monkeypatch: pytest.MonkeyPatch, dtype: str, size: tuple[int, ...], n: int
) -> None:
    """Signs, the largest and least of all, infinities; runs that end within vectors and rows.

    Percentages are no ranks, though 4.0 equals 4.
    """
    monkeypatch.setattr(compiling, "LARGE", 0)
    random = np.random.default_rng(n)
    x = random.integers(0, 256, (11, n, np.dtype(dtype).itemsize), "u1").view(dtype)[..., 0]
    x = np.where(x == x, x, x.dtype.type(0)) + x.dtype.type(0)  # -0.0 is answered by 0.0
    networks = noted(monkeypatch, window_networks.Network, "fitting", lambda *_: None)
    # SciPy rounds integers beyond 2**53.
    widths = [(side // 2, side - 1 - side // 2) for side in size]
    expected = np.sort(sliding_window_view(np.pad(x, widths, "edge"), size).reshape(*x.shape, -1))
    most = expected.shape[-1]
    for rank in (0, most // 2, most - 1):
        same(rank_filter(x, rank, size, mode="nearest"), expected[..., rank])
        same(percentile_filter(x, rank, size, mode="nearest"), expected[..., most * rank // 100])
    # The stride of the first axis is negative.
    same(rank_filter(x.reshape(1, 11, n)[::-1], 0, (1, *size), mode="nearest")[0], expected[..., 0])
    assert networks


def test_elements_that_differ_in_their_last_bits(way: str) -> None:
    """Sorting by the highest bits alone leaves them as they came."""
    del way
    x = np.repeat(1 + np.random.default_rng(52).permutation(3000) * np.finfo("f8").eps, 2)
    x[::1000] = 1e300
    same(rolling(x, 101).median()[100:], np.median(sliding_window_view(x, 101), -1))


@pytest.mark.parametrize("mask", [np.ma.nomask, np.zeros(12, bool), np.arange(12) == 5])
def test_integers_stay_integers_unless_an_element_is_masked(mask: Any) -> None:
    x = np.ma.array(np.arange(12, dtype="u2")[::-1], mask=mask)
    result = rolling(x, 3, min_periods=1).quantile(0.5, method="lower")
    plain = rolling(np.ma.getdata(x), 3, min_periods=1).quantile(0.5, method="lower")
    assert plain.dtype == "u2"
    assert result.dtype == ("f8" if np.any(mask) else "u2")
    if not np.any(mask):
        same(result, plain)
    lazy = rolling(da.from_array(x, chunks=5), 3, min_periods=1).quantile(0.5, method="lower")
    assert lazy.dtype == "f8"  # whether an element is masked is not known at the call
    same(lazy.compute(), result)


# --- pandas and scipy.ndimage ---------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["right", "left", "both", "neither", None])
@pytest.mark.parametrize(("center", "step", "least"), [(False, 1, 6), (True, 1, 2), (False, 3, 1)])
def test_windows_are_those_of_pandas(closed: Any, center: bool, step: int, least: int) -> None:
    x = some((60,))
    for window in (2, 5, 6, 10**12):
        how: dict[str, Any] = {"center": center, "closed": closed, "step": step}
        how["min_periods"] = min(least, window)
        theirs = pd.Series(x).rolling(window, **how)
        ours = rolling(da.from_array(x, chunks=(7, 30, 23)), window, **how)
        same(ours.nanmedian(), theirs.median())
        same(ours.nanquantile(0.3, method="higher"), theirs.quantile(0.3, interpolation="higher"))


@settings(max_examples=20, deadline=None)
@given(st.data(), st.sampled_from(["f8", "u2", "i4"]))
def test_filters_are_those_of_scipy(data: Any, dtype: str) -> None:
    chunks = data.draw(
        st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=3)
    )
    x = some(tuple(map(sum, chunks)), dtype, nan=0)
    size = tuple(data.draw(st.integers(1, 7)) for _ in chunks)
    origin = [data.draw(st.integers(-(n // 2), (n - 1) // 2)) for n in size]
    places = np.random.default_rng(data.draw(st.integers(0, 9))).random(size)
    marks = places <= (1 if data.draw(st.booleans()) else max(0.6, places.min()))
    order = data.draw(st.permutations(range(x.ndim)))
    how: dict[str, Any] = {"mode": data.draw(st.sampled_from(MODES)), "cval": 3, "axes": order}
    how |= {"origin": [origin[axis] for axis in order], "footprint": marks.transpose(order)}
    if marks.all():
        how |= {"footprint": None, "size": [size[axis] for axis in order]}
    # In one dimension SciPy takes all of a footprint, and reads beyond short arrays.
    above = {"mode": how["mode"], "cval": 3, "footprint": marks[None], "origin": [0, *origin]}
    lazy = da.from_array(x, chunks=tuple(map(tuple, chunks)))
    n = int(marks.sum())
    for ours, theirs, *args in (
        (median_filter, ndimage.median_filter),
        (percentile_filter, ndimage.percentile_filter, 37.5),
        (rank_filter, ndimage.rank_filter, data.draw(st.integers(-n, n - 1))),
    ):
        expected = theirs(x[None], *args, **above)[0]
        actual = ours(lazy, *args, **how)
        assert actual.chunks == lazy.chunks
        answer = actual.compute()
        assert answer.dtype == actual.dtype == expected.dtype
        same(answer, expected)
        same(ours(x, *args, **how), expected)


# --- Loads and graphs -----------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [(10, 7), (1, 20), ((3, 1, 36), 20)])
def test_each_chunk_is_loaded_once(chunks: Any) -> None:
    """For several windows of one array, and for what is made of the array and its windows."""
    source = Source((40, 20))
    x = source.lazy(chunks)
    wide, filtered = rolling(x, 25, 0).quantile(0.1), median_filter(x, 3, mode="wrap")
    dask.compute(x - wide, filtered, rolling(x, {0: 3, 1: 9}, min_periods=1).mad())
    assert set(source.loads.values()) == {1}


def test_names_are_deterministic() -> None:
    def answers_of(x: da.Array) -> list[da.Array]:
        return [rolling(x, 5, 0).quantile([0, 1]), median_filter(x, 3), rolling(x, 3, 1).count()]

    x = da.ones((20, 10), chunks=(6, 5))
    first = answers_of(x)
    assert [each.name for each in first] == [each.name for each in answers_of(x)]
    assert len({each.name for each in (*first, *answers_of(x + 1))}) == 6
    assert first[0].chunks == ((2,), *x.chunks)
    assert rolling(x, 4, 0, step=3).median().chunks == ((2, 2, 2, 1), (5, 5))


def test_a_chunk_is_not_kept_for_its_halo() -> None:
    """A slice is a copy: chunks are freed before their neighbours are read."""
    result = rolling(da.ones((100, 1000), chunks=(10, 1000)), 3, 0).median()
    task = next(task for key, task in result.dask.items() if "halo" in key[0])
    part = task({key: np.ones((10, 1000)) for key in task.dependencies})
    assert part.base is None
    assert part.shape[0] < 10
