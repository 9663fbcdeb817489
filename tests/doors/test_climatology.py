"""Groups by the day of the year, beside windows put together by hand and xclim's
`percentile_doy`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import dask_gpuselect.xarray  # noqa: F401 -- registers the accessors
from tests.data import normal

pytestmark = [
    pytest.mark.legacy,  # xarray indexes answers in ways that expressions lack
    pytest.mark.filterwarnings("ignore:Series.dt.dayofyear:DeprecationWarning"),  # old xarray
]


def dates(start: str, end: str) -> NDArray[Any]:
    return np.arange(np.datetime64(start), np.datetime64(end) + 1).astype("M8[ns]")


def series(times: Any) -> xr.DataArray:
    n = len(times)
    data = normal(n * 3).reshape(n, 3)
    data[5:n:50, 0] = np.nan
    coords = {"time": times, "station": list("abc")}
    return xr.DataArray(data, dims=("time", "station"), coords=coords, name="t", attrs={"a": 1})


def cftimes(calendar: str, n: int) -> Any:
    pytest.importorskip("cftime")
    return xr.date_range("2001-01-01", periods=n, calendar=calendar, use_cftime=True)


@pytest.mark.few(1)
@pytest.mark.parametrize("window", [1, 4, 5, 31])
@pytest.mark.parametrize("chunks", [365, 100, 2000])
def test_windows_are_those_of_rolling(window: int, chunks: int) -> None:
    """Over the ends of years too; days of leap years by their own numbers."""
    loaded = series(dates("2003-01-01", "2005-12-31"))
    days = loaded.chunk(time=chunks, station=2).exact.groupby_dayofyear(window=window)
    result = days.quantile([0.1, 0.5], keep_attrs=True).compute()
    # The elements of all windows around each step, along a new dimension, as xclim makes them.
    steps = loaded.rolling(min_periods=1, center=True, time=window).construct("window")
    dims = ["time", "window"]
    assert result.dayofyear.values.tolist() == list(range(1, 367))
    assert result.dims == ("dayofyear", "station", "quantile")
    assert result.attrs == loaded.attrs
    for day in (1, 2, 59, 60, 61, 365, 366):
        some = steps.isel(time=np.flatnonzero(loaded.time.dt.dayofyear == day))
        alone = some.quantile([0.1, 0.5], dims).transpose("station", "quantile")
        np.testing.assert_array_equal(result.sel(dayofyear=day), alone)
        np.testing.assert_array_equal(days.count().sel(dayofyear=day), some.count(dims))


@pytest.mark.parametrize(("calendar", "length"), [("noleap", 365), ("360_day", 360)])
def test_calendars(calendar: str, length: int) -> None:
    loaded = series(cftimes(calendar, 3 * length))
    days = loaded.chunk(time=70).exact.groupby_dayofyear(window=3)
    assert len(days) == length
    counts = days.count().isel(station=1).compute()
    # At both ends of the dates a step is missing.
    assert counts.values.tolist() == [8] + [9] * (length - 2) + [8]


def test_standard_calendar_of_cftime() -> None:
    loaded = series(cftimes("standard", 4 * 365 + 1))
    same = loaded.assign_coords(time=dates("2001-01-01", "2004-12-31"))
    result = loaded.chunk(time=70).exact.groupby_dayofyear(window=5).median()
    xr.testing.assert_identical(result.compute(), same.exact.groupby_dayofyear(window=5).median())
    counts = loaded.exact.groupby_dayofyear(window=5).count().isel(station=1)
    assert counts.sel(dayofyear=[60, 365, 366]).values.tolist() == [20, 19, 3]


def test_steps_and_not_days_are_counted() -> None:
    """Where days are missing a window reaches further, as xclim's does."""
    times = np.delete(dates("2001-01-01", "2002-12-31"), [9, 10])
    loaded = series(times)
    days = loaded.exact.groupby_dayofyear(window=3)
    at = np.flatnonzero(loaded.time.dt.dayofyear == 9)
    assert times[at + 1].astype("M8[D]").astype(str).tolist() == ["2001-01-12", "2002-01-10"]
    around = np.median(loaded.values[[*(at - 1), *at, *(at + 1)], 1])
    assert days.median().sel(dayofyear=9, station="b") == around


def test_datasets_and_other_names() -> None:
    loaded = series(dates("2001-01-01", "2003-12-31")).rename(time="day")
    table = loaded.to_dataset().assign(height=("station", [1.0, 2.0, 3.0]))
    actual = table.chunk(day=200).exact.groupby_dayofyear("day", window=5).median().compute()
    wanted = loaded.exact.groupby_dayofyear("day", window=5).median()
    xr.testing.assert_identical(actual["t"], wanted)
    assert actual["height"].dims == ("dayofyear", "station")
    boxes = loaded.chunk(day=90).exact.groupby_dayofyear("day").describe_boxplot()
    assert boxes.shape == (365, 3)


@pytest.mark.parametrize("window", [1, 5])
def test_several_steps_a_day(window: int) -> None:
    """6-hourly data have the windows of their days, whole; the last day has a part of its steps."""
    days = dates("2003-12-01", "2005-03-01")
    times = (days[:, None] + np.arange(4) * np.timedelta64(6, "h")).ravel()[:-2]
    loaded = series(times).fillna(0)
    actual = loaded.chunk(time=100).exact.groupby_dayofyear(window=window).median().compute()
    of_step = loaded.time.dt.floor("D").values
    reach = (np.arange(window) - window // 2) * np.timedelta64(1, "D")
    for number in (1, 60, 335, 366):
        some = days[xr.DataArray(days, dims="d").dt.dayofyear.values == number]
        around = (some[:, None] + reach).ravel()
        wanted = loaded.isel(time=np.isin(of_step, around)).median("time")
        np.testing.assert_array_equal(actual.sel(dayofyear=number), wanted)
