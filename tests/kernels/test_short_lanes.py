"""Lanes of few elements, and of integers of one and two bytes, are sorted in ways of their own."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import describe_boxplot, median, nanmedian, nanquantile, quantile
from dask_gpuselect.kernels.cpu import few as cpu_few
from dask_gpuselect.kernels.cpu import lanes as cpu
from dask_gpuselect.kernels.cpu import narrow as cpu_narrow
from dask_gpuselect.kernels.reference import lanes as reference
from dask_gpuselect.maths.cuts import IntArray

DTYPES = ("f8", "f4", "i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1", "M8[s]", "m8[ms]")
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 31, 32, 33, 64, 65)


def table(n_lanes: int, n: int, dtype: str, *, missing: float = 0.2) -> NDArray[Any]:
    """Lanes with ties, the ends of the dtype, and what may be missing; one of nothing else."""
    random = np.random.default_rng(n)
    kind = np.dtype(dtype).kind
    if kind in "iu":
        info = np.iinfo(dtype)
        values = random.integers(info.min, info.max, (n_lanes, n), dtype=dtype, endpoint=True)
        few = random.integers(0, 3, (n_lanes, n)).astype(dtype)
        ends = np.where(few, *np.array([info.min, info.max], dtype))
    elif kind == "f":
        values = random.standard_normal((n_lanes, n)).astype(dtype)
        few = np.round(values)
        ends = np.where(values > 0, np.inf, -np.inf).astype(dtype)
    else:
        values = random.integers(-99, 99, (n_lanes, n)).astype("i8").view(dtype)
        few = random.integers(0, 3, (n_lanes, n)).astype("i8").view(dtype)
        ends = np.full((n_lanes, n), np.iinfo(np.int64).max).view(dtype)
    pick = random.random((n_lanes, n))
    found = np.where(pick < 0.5, values, np.where(pick < 0.8, few, ends))
    if kind in "fMm":
        found[random.random((n_lanes, n)) < missing] = "NaT" if kind in "Mm" else np.nan
        found[0] = "NaT" if kind in "Mm" else np.nan
    return found


def three(n: IntArray) -> tuple[IntArray, IntArray]:
    lower = np.stack([(n - 1) // 4, (n - 1) // 2, n - 1])
    return lower, np.minimum(lower + 1, n - 1)


def layouts(lanes: NDArray[Any]) -> list[list[NDArray[Any]]]:
    """The same lanes one after the other, side by side, and in parts of which one is empty."""
    n = lanes.shape[1]
    split = [lanes[:, : n // 3], lanes[:, :0], lanes[:, n // 3 :]]
    return [[lanes], [np.asfortranarray(lanes)], split, [lanes.reshape(-1, 2, n)]]


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_as_in_the_reference(dtype: str, n: int) -> None:
    for missing in (0.0, 0.2):
        lanes = table(300, n, dtype, missing=missing)
        wanted = np.sort(lanes, axis=1)
        for parts in layouts(lanes):
            found = cpu.lanes(parts, three)
            other = reference.lanes([lanes], three)
            for name in ("n_valid", "n_missing"):
                np.testing.assert_array_equal(getattr(found, name), getattr(other, name))
            has_any = other.n_valid > 0
            for name in ("lower", "upper"):
                mine, theirs = (getattr(each, name)[has_any] for each in (found, other))
                assert mine.dtype == theirs.dtype
                np.testing.assert_array_equal(mine, theirs)
            rows = np.concatenate([rows.copy() for rows in cpu.sorted_lanes(parts)])
            np.testing.assert_array_equal(rows, wanted)


def test_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found in one tile is not overwritten by the next."""
    monkeypatch.setattr(cpu_few, "TILE", 1 << 10)
    for dtype in ("f8", "u1"):
        for n in (1, 2, 5):
            lanes = table(1000, n, dtype, missing=0.0)[1:-1]
            found = cpu.lanes([lanes], three)
            for mine, theirs in zip((found.lower, found.upper), three(np.array([n])), strict=True):
                np.testing.assert_array_equal(mine, np.sort(lanes, axis=1)[:, theirs[:, 0]])


@pytest.mark.parametrize("n", range(1, 9))
def test_networks_sort(n: int) -> None:
    """All zeros and ones, so everything (Knuth's 0-1 principle); and find each rank alone."""
    rows = np.array(list(itertools.product([0, 1], repeat=n)), np.int8)
    wanted = np.sort(rows, axis=1).T
    for ranks in (tuple(range(n)), *((rank,) for rank in range(n))):
        found = cpu_few._exchanged(rows.T.copy(), cpu_few.exchanges(n, ranks))
        for rank in ranks:
            np.testing.assert_array_equal(found[rank], wanted[rank])


def test_networks_make_no_exchange_in_vain() -> None:
    sizes = [len(cpu_few.exchanges(n, tuple(range(n)))) for n in (1, 2, 3, 4, 8, 16)]
    assert sizes == [0, 1, 3, 5, 19, 63]
    assert len(cpu_few.exchanges(16, (0,))) == 15
    assert not any(each.with_greater for each in cpu_few.exchanges(16, (0,)))


@pytest.mark.parametrize("n", [0, 1, 2, 65, 1023, 1024, 1027, 5000])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2"])
def test_counting_sorts(dtype: str, n: int) -> None:
    info = np.iinfo(dtype)
    random = np.random.default_rng(n)
    for low, high in ((info.min, info.max), (0, 2), (info.max, info.max), (info.min, info.min)):
        rows = random.integers(low, high, (7, n), dtype=dtype, endpoint=True)
        wanted = np.sort(rows, axis=1)
        cpu_narrow.sort_rows(rows)
        np.testing.assert_array_equal(rows, wanted)


# --- Through the public functions -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "u8", "i2", "u1", "i1", "?"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, 40, 1100])
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
def test_as_numpy(dtype: str, n: int) -> None:
    """Along either axis; what is mixed of infinities is not NumPy's."""
    lanes = np.random.default_rng(n).normal(0, 50, (90, n))
    a = (lanes > 0 if dtype == "?" else np.abs(lanes) if dtype[0] == "u" else lanes).astype(dtype)
    q = [0.0, 0.3, 0.5, 0.75, 1.0]
    holes = (
        np.where(np.random.default_rng(1).random(a.shape) < 0.3, np.nan, lanes).astype(dtype)
        if dtype[0] == "f"
        else a
    )
    for axis in (1, 0):
        b, c = (np.ascontiguousarray(x if axis else x.T) for x in (a, holes))
        np.testing.assert_array_equal(
            median(b, axis), np.median(b.astype("f8"), axis).astype(median(b, axis).dtype)
        )
        methods = ["inverted_cdf", "lower"] if dtype == "?" else ["linear", "hazen", "nearest"]
        for method in methods:
            wide = b if method in ("inverted_cdf", "lower", "nearest") else b.astype("f8")
            found = quantile(b, q, axis, method=method)
            wanted = np.quantile(wide, q, axis=axis, method=method)
            np.testing.assert_array_equal(found, wanted.astype(found.dtype))
        if dtype[0] == "f":
            wide = c.astype("f8")
            for found, wanted in (
                (nanmedian(c, axis), np.nanmedian(wide, axis)),
                (nanquantile(c, q, axis), np.nanquantile(wide, q, axis=axis)),
                (median(c, axis), np.median(wide, axis)),
            ):
                np.testing.assert_array_equal(found, wanted.astype(found.dtype))


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_many_lanes_by_threads(n: int) -> None:
    """Threads write their answers to one array: all of them, in order, and all axes."""
    a = np.random.default_rng(n).standard_normal((2**21 // n, n))
    np.testing.assert_array_equal(median(a, 1), np.median(a, 1))
    np.testing.assert_array_equal(median(a.T, 0), np.median(a, 1))
    b = a[: 2**18].reshape(2**9, 2**9, n)
    np.testing.assert_array_equal(
        quantile(np.repeat(b, 8, 0), [0.2, 0.5], -1, keepdims=True),
        np.quantile(np.repeat(b, 8, 0), [0.2, 0.5], -1, keepdims=True),
    )


def test_lanes_of_nan_are_told_once() -> None:
    a = np.full((100_000, 2), np.nan)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert np.isnan(nanmedian(a, 1)).all()
    assert [str(each.message) for each in told] == ["All-NaN slice encountered"]
    assert np.isnan(median(a, 1)).all()  # without a warning, which would be an error


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", ["f8", "u1", "i2"])
@pytest.mark.parametrize("n", [1, 2, 3, 33])
def test_boxes(dtype: str, n: int) -> None:
    a = np.random.default_rng(n).integers(0, 100, (20, n)).astype(dtype)
    for lane, box in zip(a, describe_boxplot(a, 1), strict=True):
        alone = describe_boxplot(lane)[0]
        for name, value in alone.to_dict().items():
            if name != "label":
                np.testing.assert_array_equal(getattr(box, name), value, err_msg=name)
