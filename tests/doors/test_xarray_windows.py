"""Moving windows of xarray's objects: by the accessor, and by xarray's methods while enabled."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import xarray as xr

import dask_gpuselect
import dask_gpuselect.xarray  # noqa: F401 -- registers `exact`

RANDOM = np.random.default_rng(4)


def movie(dtype: str = "f8") -> xr.DataArray:
    values = RANDOM.integers(0, 40, (30, 4, 5)).astype(dtype)
    if values.dtype.kind == "f":
        values[RANDOM.random(values.shape) < 0.05] = np.nan
    coords = {"time": np.arange(30) * 2, "y": [1, 2, 3, 5]}
    dims = ("time", "y", "x")
    return xr.DataArray(values, dims=dims, coords=coords, name="f", attrs={"units": "counts"})


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("least", [None, 1, 7])
@pytest.mark.parametrize("windows", [{"time": 5}, {"time": 4, "x": 3}])
def test_medians_are_those_of_xarray(center: bool, least: int | None, windows: Any) -> None:
    least = least and min(least, 5)
    a = movie()
    how: dict[str, Any] = {"min_periods": least, "center": center}
    actual = a.chunk(time=7, y=2, x=2).exact.rolling(**windows, **how)
    expected = a.rolling(**windows, **how)
    xr.testing.assert_identical(actual.median().compute(), expected.median(keep_attrs=True))
    xr.testing.assert_identical(actual.max().compute(), expected.max(keep_attrs=True))
    enough = actual.count().where(actual.count() >= expected.min_periods)
    np.testing.assert_array_equal(enough, expected.count())
    # By windows that are unfolded.
    every = expected.construct({name: f"of_{name}" for name in windows})
    dims = [f"of_{name}" for name in windows]
    with warnings.catch_warnings(action="ignore"):
        quantiles = every.quantile([0.08, 0.5], dims).where(expected.count().notnull())
    answer = actual.quantile([0.08, 0.5])
    assert answer.dims == ("quantile", "time", "y", "x")
    assert answer.chunks[1:] == a.chunk(time=7, y=2, x=2).chunks
    np.testing.assert_array_equal(answer.transpose(*quantiles.dims), quantiles)
    assert actual.quantile(0.08).coords["quantile"] == 0.08


def test_other_statistics_and_companions() -> None:
    a = movie("u2")
    windows = a.chunk(time=7).exact.rolling(time=3, boundary="reflect", where=a["time"] != 4)
    assert windows.mad(scale=1.0).dtype == windows.iqr().dtype == "f8"
    xr.testing.assert_equal(windows.min(), a.chunk(time=7).exact.rolling(
        {"time": 3}, boundary="reflect", nodata=99).min().where(windows.count() == 3))  # fmt: skip
    assert repr(windows) == "<exact statistics of moving windows of {'time': 3}>"


def test_datasets() -> None:
    a = movie()
    other = xr.DataArray(np.arange(4.0), dims="y")
    ds = xr.Dataset({"f": a, "row": other, "name": ("time", np.full(30, "a"))}, attrs={"of": 1})
    actual = ds.chunk(time=7).exact.rolling(time=5, center=True).median().compute()
    expected = ds.drop_vars("name").rolling(time=5, center=True).median(keep_attrs=True)
    xr.testing.assert_identical(actual, expected)
    several = ds.chunk(time=7).exact.rolling(time=5, y=2, min_periods=1).quantile([0.1, 0.9])
    assert several["f"].dims == ("quantile", "time", "y", "x")
    np.testing.assert_array_equal(
        several["f"][0].compute(), a.exact.rolling(time=5, y=2, min_periods=1).quantile(0.1)
    )


def test_xarrays_own_methods_while_enabled() -> None:
    a = movie()
    lazy = a.chunk(time=7)
    assert not hasattr(lazy.rolling(time=5), "quantile")
    with dask_gpuselect.enable():
        actual = lazy.rolling(time=5).median()
        assert "rolling-median" in actual.data.name
        quantile = lazy.rolling(time=5, min_periods=1).quantile(0.25)
        of_dataset = lazy.to_dataset().rolling(time=5).median()
        in_memory = a.rolling(time=5).median()
    assert not hasattr(lazy.rolling(time=5), "quantile")
    expected = a.rolling(time=5).median(keep_attrs=True)
    xr.testing.assert_identical(actual.compute(), expected)
    xr.testing.assert_identical(of_dataset["f"].compute(), expected)
    xr.testing.assert_equal(in_memory, expected)
    same = lazy.exact.rolling(time=5, min_periods=1).quantile(0.25)
    xr.testing.assert_identical(quantile.compute(), same.compute())
    assert "rolling-median" not in lazy.rolling(time=5).median().data.name
