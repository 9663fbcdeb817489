"""Compute zonal statistics of a map: medians and box plots of each district, without "no data".

    python examples/zonal_statistics.py --output zonal_statistics.jpg

makes a Zarr store of a synthetic map (elevation in decimetres, int16, where -32768 means "no
data") and one of its districts, whose pixels lie in many chunks. `groupby(elevation, districts)`
computes the median and the box plot of each district. The map is never in memory as a whole. The
answers are exact: the example compares them with NumPy's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray

from dask_gpuselect import Boxplot
from dask_gpuselect.groups import groupby

NODATA = -32768


def make_stores(folder: Path, size: int, n_zones: int) -> None:
    """Write the elevation and the districts."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[:size, :size] / size
    height = np.zeros((size, size))
    for _ in range(24):
        waves = rng.integers(-6, 7, 2)
        phase = rng.uniform(0, 2 * np.pi)
        share = 1 / max(1, abs(waves).sum())
        height += share * np.sin(2 * np.pi * (waves[0] * x + waves[1] * y) + phase)
    height = 8000 * (height - height.min()) / np.ptp(height) + rng.normal(0, 60, height.shape)
    gaps = np.hypot(x - 0.78, y - 0.2) < 0.09  # a lake that was not measured
    elevation = np.where(gaps, NODATA, height).astype("i2")
    seeds = rng.random((n_zones, 2))
    nearest = np.full(height.shape, np.inf)
    districts = np.zeros(height.shape, "u2")
    for i, (a, b) in enumerate(seeds):
        distance = np.hypot(x - a, y - b) + 0.02 * np.sin(30 * x) * np.sin(30 * y)
        districts[distance < nearest] = i
        nearest = np.minimum(nearest, distance)
    chunks = -(-size // 4), -(-size // 4)
    for name, values in (("elevation", elevation), ("districts", districts)):
        zarr.create_array(folder / f"{name}.zarr", data=values, chunks=chunks)


def statistics(elevation: da.Array, districts: da.Array, n_zones: int) -> tuple[Any, Boxplot]:
    """Compute the median and the box plot of each district; both share the reads of the map."""
    zones = groupby(elevation, districts, groups=np.arange(n_zones))
    lazy = zones.median(nodata=NODATA), zones.describe_boxplot(nodata=NODATA)
    medians, boxes = dask.compute(*lazy)
    return medians, boxes


def check(elevation: Any, districts: Any, medians: Any, boxes: Boxplot) -> None:
    """Check the medians and quartiles against NumPy's."""
    for zone, box in enumerate(boxes):
        own = elevation[(districts == zone) & (elevation != NODATA)]
        expected = np.quantile(own, [0.25, 0.5, 0.75])
        np.testing.assert_array_equal([box.q1, medians[zone], box.q3], expected)


def draw(
    path: Path, elevation: NDArray[Any], districts: NDArray[Any], medians: Any, boxes: Boxplot
) -> None:
    """Draw the map, the medians of its districts, and their box plots from low to high."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.7), layout="constrained")
    shown = np.where(elevation == NODATA, np.nan, elevation / 10)
    limits: dict[str, Any] = {"cmap": "terrain", "vmin": 0, "vmax": 800}
    axes[0].imshow(shown, **limits)
    axes[0].set_title("Elevation, m; white: no data")
    image = axes[1].imshow(medians[districts] / 10, **limits)
    axes[1].set_title("The median of each district")
    figure.colorbar(image, ax=axes[:2], shrink=0.8)
    for axis in axes[:2]:
        axis.set(xticks=[], yticks=[])
    order = np.argsort(medians)
    drawn = boxes.to_bxp()
    axes[2].bxp([drawn[i] for i in order], showfliers=False, widths=0.6)
    axes[2].set(title="Box plots, by median", xticks=[], xlabel="district", ylabel="decimetres")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add: Any = parser.add_argument
    add("--output", type=Path, default=Path("zonal_statistics.png"), help="picture, PNG or JPEG")
    add("--size", type=int, default=1600, help="pixels per side of the map (1600)")
    add("--zones", type=int, default=30, help="number of districts (30)")
    options = parser.parse_args(arguments)
    if options.size < 64 or not 1 <= options.zones <= 60:
        parser.error("needs 64 pixels to a side, and 1 to 60 districts")
    with tempfile.TemporaryDirectory() as folder:
        make_stores(Path(folder), options.size, options.zones)
        names = "elevation", "districts"
        elevation, districts = (da.from_zarr(Path(folder) / f"{name}.zarr") for name in names)
        print(f"{elevation.shape} {elevation.dtype} in {elevation.npartitions} chunks")
        medians, boxes = statistics(elevation, districts, options.zones)
        in_memory = elevation.compute(), districts.compute()
        check(*in_memory, medians, boxes)
        print(f"medians and quartiles of {len(boxes)} districts equal NumPy's")
        draw(options.output, *in_memory, medians, boxes)
    print(f"saved {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
