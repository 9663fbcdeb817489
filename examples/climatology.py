"""Find unusually warm days by percentiles of each day of the year, from windows of 31 days.

    python examples/climatology.py --output climatology.jpg

makes a Zarr store of daily temperatures of a synthetic region, (time, latitude, longitude) in
float32, chunked along time. For each day of the year and each pixel, `groupby_dayofyear` takes the
10th, 50th and 90th percentile of all days that are at most 15 days apart from it, in all years. The
windows overlap, and nothing is rechunked. The picture shows the percentiles at one pixel, and how
many days of the last year were warmer than the 90th percentile. One pixel is checked with NumPy.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

import dask_gpuselect.xarray  # noqa: F401  # adds the accessor `exact`

QUANTILES = [0.1, 0.5, 0.9]
WINDOW = 31  # days


def make_store(path: Path, years: int, size: int) -> NDArray[np.datetime64]:
    """Write the days of some years, a year at a time; return their dates."""
    days = np.arange("2001", f"{2001 + years}", dtype="M8[D]")
    shape = days.size, size, 2 * size
    stored: Any = zarr.create_array(path, shape=shape, chunks=(365, *shape[1:]), dtype="f4")
    y, x = np.mgrid[:size, : 2 * size] / size
    mean, swing = 16 - 10 * y, 8 + 3 * np.sin(3 * x + y)  # the north is colder
    rng = np.random.default_rng(1)
    for start in range(0, days.size, 365):
        part = days[start : start + 365]
        t = (part - days[0]).astype(float)[:, None, None]
        season = mean - swing * np.cos(2 * np.pi * (t - 20) / 365.25) + 0.05 * t / 365.25
        memory = 0.85 ** np.arange(30)  # warm days follow warm days
        pulses = rng.normal(0, 3, (part.size + 29, 4))
        weather = np.stack([np.convolve(each, memory, "valid") for each in pulses.T], axis=1)
        patterns = np.stack([np.sin((i + 1) * x + i * y) for i in range(4)])
        noise = rng.normal(0, 1.5, (part.size, *shape[1:]))
        warmth = np.tensordot(weather, patterns, 1) / 4
        stored[start : start + part.size] = season + warmth + noise
    return days


def check(a: xr.DataArray, bounds: xr.DataArray, day: int) -> None:
    """Check the percentiles of one day at the first pixel against NumPy's."""
    values = a[:, 0, 0].to_numpy()
    apart = abs(a.time.dt.dayofyear.to_numpy() - day)
    chosen = values[np.minimum(apart, 365 - apart) <= WINDOW // 2]  # Feb 29 is not near this day
    expected = np.quantile(chosen.astype("f8"), QUANTILES)
    np.testing.assert_array_equal(bounds.sel(dayofyear=day).isel(y=0, x=0), expected)


def draw(path: Path, a: xr.DataArray, bounds: xr.DataArray, hot: xr.DataArray) -> None:
    """Draw the percentiles and the last year of one pixel, and the map of hot days."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = a.sizes["y"]
    place = {"y": size // 3, "x": size}
    low, middle, high = bounds.isel(place).to_numpy()
    year = a.isel(place).to_numpy()[-365:]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    left.fill_between(bounds.dayofyear, low, high, color="0.82", label="10th to 90th percentile")
    left.plot(bounds.dayofyear, middle, color="0.35", label="median")
    left.plot(np.arange(1, 366), year, color="tab:red", linewidth=0.8, label="the last year")
    left.set(xlabel="day of the year", ylabel="°C", title="One pixel", xlim=(1, 365))
    left.legend(frameon=False, fontsize=8)
    image = right.imshow(hot, cmap="inferno", aspect="auto")
    right.set(title="Days above the 90th percentile, last year", xticks=[], yticks=[])
    figure.colorbar(image, ax=right)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add: Any = parser.add_argument
    add("--output", type=Path, default=Path("climatology.png"), help="picture, PNG or JPEG")
    add("--years", type=int, default=20, help="years of daily data (20)")
    add("--size", type=int, default=30, help="pixels from north to south (30)")
    options = parser.parse_args(arguments)
    if options.years < 3 or options.size < 3:
        parser.error("needs three years and three pixels")
    with tempfile.TemporaryDirectory() as folder:
        days = make_store(Path(folder) / "days.zarr", options.years, options.size)
        x = da.from_zarr(Path(folder) / "days.zarr")
        a = xr.DataArray(x, dims=("time", "y", "x"), coords={"time": days.astype("M8[ns]")})
        print(f"{x.shape} {x.dtype}, {x.nbytes / 1e6:.0f} MB in {x.npartitions} chunks")
        lazy = a.exact.groupby_dayofyear(window=WINDOW).quantile(QUANTILES)
        bounds = lazy.transpose("quantile", "dayofyear", "y", "x").compute()
        check(a, bounds, 180)
        print(f"{bounds.size:,} percentiles; those of day 180 at one pixel equal NumPy's")
        last = a[-365:]
        limit = bounds.sel(quantile=0.9).sel(dayofyear=last.time.dt.dayofyear)
        hot = (last > limit).sum("time").compute()
        print(f"{float(hot.mean()):.0f} days of the last year are above the 90th percentile")
        draw(options.output, a, bounds, hot)
    print(f"saved {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
