"""Draw medians and box plots by month, from a Zarr store of daily maps.

    python examples/monthly_medians.py --output monthly_medians.png

makes a Zarr store of the surface temperature of a synthetic planet, (day, latitude, longitude) in
float32: seasons, continents, weather, and clouds, which look like a very cold surface.
`groupby(days, months, axis=0).median()` is the median of every pixel in every month, which clouds
hardly change. `describe_boxplot` of the same groups has a box for each month, of all pixels of a
belt of latitudes. Both are lazy and exact: the example compares them with NumPy's.

The defaults take 0.25 GB. `--small` takes a few seconds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import Boxplot
from dask_gpuselect.groups import groupby

Values = NDArray[Any]

FIRST_YEAR = 2015
NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
BELTS = {"45° to 55° N": (45, 55), "45° to 55° S": (-55, -45)}
UNIT = "°C"
LABEL = f"surface temperature, {UNIT}"


# --- The planet -----------------------------------------------------------------------------------


def smooth(rng: np.random.Generator, shape: tuple[int, int], cells: int) -> Values:
    """Make noise from 0 to 1, smooth and without a seam in longitude."""
    down, across = np.arange(shape[0]) / shape[0], np.arange(shape[1]) / shape[1]
    total = np.zeros(shape)
    for _ in range(30):
        waves = rng.integers(-cells, cells + 1, 2)
        angle = np.pi * waves[0] * down[:, None] + 2 * np.pi * waves[1] * across
        total += np.sin(angle + 2 * np.pi * rng.random()) / (1 + np.abs(waves).sum())
    total -= total.min()
    scaled: Values = total / total.max()
    return scaled


class Planet:
    """Surface temperatures, as a satellite sees them."""

    def __init__(self, n_lat: int) -> None:
        rng = np.random.default_rng(15)
        shape = n_lat, 2 * n_lat
        self.latitude = np.linspace(90, -90, 2 * n_lat + 1)[1::2]
        ground = smooth(rng, shape, 4) + 0.4 * smooth(rng, shape, 16)
        height = np.clip((ground - np.quantile(ground, 0.62)) / 0.4, 0, 1)
        self.is_land = height > 0
        north = np.sin(np.radians(self.latitude))[:, None]
        self.swing = np.where(self.is_land, 26, 9) * north
        self.mean = 28 - 36 * north**2 - 14 * height
        self.air, self.clouds = (smooth(rng, shape, cells) for cells in (4, 9))

    def day(self, day: int, of_year: float) -> Values:
        """Make one day, in float32."""
        rng = np.random.default_rng([15, day])
        season = -np.cos(2 * np.pi * (of_year - 0.06))  # the coldest day comes three weeks later
        drift = (int(n) for n in rng.integers(0, self.air.shape[1], 2))
        air, clouds = (
            np.roll(field, n, axis=1)[:: int(rng.choice([-1, 1]))]
            for field, n in zip((self.air, self.clouds), drift, strict=True)
        )
        temperature = self.mean + self.swing * season + 12 * (air - 0.5)
        temperature += rng.normal(0, 1.5, temperature.shape)
        is_cloudy = clouds > np.quantile(clouds[::4, ::4], 1 - rng.uniform(0.02, 0.25))
        observed: Values = np.where(is_cloudy, -15 - 50 * clouds, temperature).astype(np.float32)
        return observed


def dates(years: int) -> Values:
    first, stop = (np.datetime64(str(year), "D") for year in (FIRST_YEAR, FIRST_YEAR + years))
    return np.arange(first, stop)


def make_store(path: Path, planet: Planet, years: int) -> None:
    """Write all days, one year per chunk."""
    import zarr

    days = dates(years)
    n_lat = len(planet.latitude)
    of_year = (days - days.astype("M8[Y]")).astype(np.int64) / 365.25
    make: Any = zarr.create_array
    shape = len(days), n_lat, 2 * n_lat
    store = make(path, shape=shape, chunks=(366, -(-n_lat // 2), -(-n_lat // 2)), dtype="f4")
    for start in range(0, len(days), 366):
        part = range(start, min(start + 366, len(days)))
        store[start : part.stop] = np.stack([planet.day(i, of_year[i]) for i in part])


class Counted:
    """A store that counts how often each of its chunks is read."""

    def __init__(self, path: Path) -> None:
        import zarr

        self.store: Any = zarr.open_array(path, mode="r")
        self.shape, self.dtype, self.ndim = self.store.shape, self.store.dtype, self.store.ndim
        self.loads: Counter[tuple[int, ...]] = Counter()

    def __getitem__(self, key: tuple[slice, ...]) -> Values:
        self.loads[tuple(each.start for each in key)] += 1
        values: Values = self.store[key]
        return values

    def lazy(self) -> da.Array:
        array: da.Array = da.from_array(self, chunks=self.store.chunks, name=False, lock=True)
        return array


# --- The months -----------------------------------------------------------------------------------


def by_month(x: da.Array, months: Values, latitude: Values) -> tuple[da.Array, dict[str, Boxplot]]:
    """Return the median of every month and pixel, and a box for every month and belt, lazily."""
    medians = groupby(x, months, axis=0).median()
    boxes = {}
    for name, (south, north) in BELTS.items():
        rows = np.flatnonzero((latitude > south) & (latitude < north))
        belt = x[:, rows[0] : rows[-1] + 1]
        # Labels that broadcast to the data: all pixels of a month are one group.
        boxes[name] = groupby(belt, months[:, None, None]).describe_boxplot(max_fliers=0)
    return medians, boxes


def check(x: da.Array, months: Values, medians: Values) -> int:
    """Check the medians of some pixels against NumPy's; return how many were compared."""
    some = np.s_[:: max(1, x.shape[1] // 4), :: max(1, x.shape[2] // 4)]
    series = x[:, *some].compute().astype("f8")
    some_medians = medians[:, *some]
    for month in range(12):
        right = np.median(series[months == month], axis=0).astype(medians.dtype)
        np.testing.assert_array_equal(some_medians[month], right)
    return some_medians.size


def check_boxes(x: da.Array, months: Values, latitude: Values, boxes: dict[str, Boxplot]) -> None:
    """Check the quartiles of the belts against NumPy's, in the first month and the seventh."""
    for name, (south, north) in BELTS.items():
        is_inside = (latitude > south) & (latitude < north)
        for month in (0, 6):
            own = x[months == month][:, is_inside].compute().astype("f8")
            box = boxes[name][month]
            np.testing.assert_array_equal(
                [box.q1, box.med, box.q3], np.quantile(own, [0.25, 0.5, 0.75])
            )


# --- The picture ----------------------------------------------------------------------------------


def save(
    path: Path, medians: Values, is_land: Values, boxes: dict[str, Boxplot], years: int
) -> None:
    """Draw a map for each month, and a box for each month of both belts."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(10, 7.8), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[1.35, 1])
    above, below = parts
    maps = above.subplots(3, 4, sharex=True, sharey=True)
    low, high = np.quantile(medians, [0.01, 0.99])
    whole = (-180, 180, -90, 90)
    for axis, name, month in zip(maps.flat, NAMES, medians, strict=True):
        image = axis.imshow(month, cmap="viridis", vmin=low, vmax=high, extent=whole)
        axis.contour(is_land, [0.5], colors="white", linewidths=0.5, extent=whole, origin="upper")
        axis.set_title(name, fontsize=11, pad=3)
        axis.set_xticks([-90, 0, 90], ["90° W", "0°", "90° E"], fontsize=8)
        axis.set_yticks([-45, 0, 45], ["45° S", "0°", "45° N"], fontsize=8)
    last = FIRST_YEAR + years - 1
    above.suptitle(f"Monthly medians of each pixel of a synthetic planet, {FIRST_YEAR} to {last}")
    above.colorbar(image, ax=maps, label=LABEL, shrink=0.9, aspect=30, pad=0.01, extend="both")
    plots = below.subplots(1, 2, sharey=True)
    for axis, (name, of_belt) in zip(plots, boxes.items(), strict=True):
        of_belt.plot(
            axis, showfliers=False, patch_artist=True, widths=0.6,
            boxprops={"facecolor": "#7fb7be", "linewidth": 0.8},
            medianprops={"color": "#1d3557", "linewidth": 2},
        )  # fmt: skip
        axis.set_xticks(range(1, 13), NAMES, fontsize=9)
        axis.set_title(f"All days and pixels of {name}", fontsize=11)
        axis.grid(axis="y", linewidth=0.4)
    plots[0].set_ylabel(LABEL)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def describe(options: argparse.Namespace, folder: Path) -> None:
    planet = Planet(options.size)
    make_store(folder / "days.zarr", planet, options.years)
    source = Counted(folder / "days.zarr")
    x = source.lazy()
    print(f"days: {x.shape} float32, {x.nbytes / 1e6:.0f} MB in {x.npartitions} chunks")
    months = dates(options.years).astype("M8[M]").astype(np.int64) % 12
    medians, boxes = by_month(x, months, planet.latitude)
    source.loads.clear()
    begin = time.perf_counter()
    medians, boxes = dask.compute(medians, boxes, num_workers=options.threads)
    seconds = time.perf_counter() - begin
    loads = source.loads.total() / x.npartitions
    print(f"medians and boxes: {seconds:.2f} s, {loads:.2f} reads of a chunk on average")
    n = check(x, months, medians)
    check_boxes(x, months, planet.latitude, boxes)
    print(f"{n:,} medians and the quartiles of {2 * len(boxes)} boxes equal NumPy's")
    for name, of_belt in boxes.items():
        (coldest, low), *_, (warmest, high) = sorted(
            zip(NAMES, (box.med for box in of_belt), strict=True), key=lambda each: each[1]
        )
        beyond = sum(box.n_low for box in of_belt) / sum(box.n for box in of_belt)
        print(
            f"{name}: {low:.1f} {UNIT} in {coldest}, {high:.1f} {UNIT} in {warmest}; "
            f"{beyond:.0%} far below, as clouds are"
        )
    save(options.output, medians, planet.is_land, boxes, options.years)
    print(f"saved {options.output}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add: Any = parser.add_argument
    add("--output", type=Path, default=Path("monthly_medians.png"), help="picture, PNG or JPEG")
    add("--years", type=int, default=6, help="years of daily data (6)")
    add("--size", type=int, default=120, help="pixels from pole to pole (120)")
    add("--threads", type=int, default=2, help="number of threads (2)")
    add("--small", action="store_true", help="use two years, and 24 pixels from pole to pole")
    options = parser.parse_args(arguments)
    if options.small:
        options.years, options.size = 2, 24
    if options.years < 1 or options.threads < 1 or options.size < 12:
        parser.error("needs a year, a thread, and 12 pixels from pole to pole")
    with tempfile.TemporaryDirectory() as folder:
        describe(options, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
