"""Remove clouds from satellite scenes: a median over time with a mask and "no data" values.

    python examples/cloud_mask.py --output clouds.png

makes a Zarr store of synthetic scenes, (time, band, y, x) in uint16, where 0 means "no data", and a
store of their cloud mask, (time, 1, y, x). One lazy call computes the median of the clear dates of
every pixel and band, `median(scenes, axis=0, where=~clouds, nodata=0)`, and xarray's
`.where(clear).median("time")` does the same in float32. Each runs in a separate process, which
prints its time, the memory that it needed in addition, and how often it read each chunk.

The defaults are small. `--dates 100 --bands 12 --size 1098` are the sizes of a year of Sentinel-2
scenes at 100 m, of 2.9 GB.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Image = NDArray[Any]


# --- The scenes -----------------------------------------------------------------------------------


def smooth(rng: np.random.Generator, size: int, cells: int) -> Image:
    """Make noise from 0 to 1 that varies over some pixels."""
    total = np.zeros((size, size))
    position = np.arange(size) / size
    for _ in range(12):
        waves = rng.integers(-cells, cells + 1, 2)
        phase = 2 * np.pi * rng.random()
        angle = 2 * np.pi * (waves[0] * position[:, None] + waves[1] * position) + phase
        total += np.sin(angle) / max(1, np.abs(waves).sum())
    total -= total.min()
    scaled: Image = total / total.max()
    return scaled


def scene(
    ground: Image, plants: Image, sky: Image, date: int, dates: int, bands: int
) -> tuple[Image, Image]:
    """Make one date: its bands, and where its clouds are."""
    rng = np.random.default_rng([7, date])
    size = len(ground)
    summer = (1 - np.cos(2 * np.pi * date / dates)) / 2
    drift = tuple(int(n) for n in rng.integers(0, size, 2))
    field = np.roll(sky, drift, axis=(0, 1))
    clouds = field > np.quantile(field[::4, ::4], 1 - rng.uniform(0.1, 0.6))
    y, x = np.mgrid[:size, :size]
    outside = x + 0.2 * y < rng.uniform(-0.6, 0.4) * size  # the swath ends on a slant
    values = np.empty((bands, size, size), np.uint16)
    for band in range(bands):
        green = plants * summer * (0.6 if band % 3 == 1 else -0.2)
        surface = 900 + 150 * (band % 3) + 1200 * ground + 1000 * green
        observed = np.where(clouds, 6500 + 2500 * field, surface) + rng.normal(0, 20, (size, size))
        values[band] = np.where(outside, 0, np.clip(observed, 1, 10_000))
    return values, clouds[None]


def make_stores(folder: Path, options: argparse.Namespace) -> None:
    """Write the scenes and their masks, a few dates at a time."""
    import zarr

    size, every, side = options.size, options.every, -(-options.size // 2)
    shape = options.dates, options.bands, size, size
    make: Any = zarr.create_array
    scenes = make(folder / "scenes.zarr", shape=shape, chunks=(every, 1, side, side), dtype="u2")
    shape, chunks = (options.dates, 1, size, size), (every, 1, side, side)
    masks = make(folder / "clouds.zarr", shape=shape, chunks=chunks, dtype="?")
    rng = np.random.default_rng(7)
    ground, plants, sky = (smooth(rng, size, cells) for cells in (9, 5, 7))
    for start in range(0, options.dates, every):
        dates = range(start, min(start + every, options.dates))
        made = [scene(ground, plants, sky, d, options.dates, options.bands) for d in dates]
        scenes[start : dates.stop] = np.stack([values for values, _ in made])
        masks[start : dates.stop] = np.stack([clouds for _, clouds in made])


# --- Two ways to the median -----------------------------------------------------------------------


class Counted:
    """A store that counts how often each of its chunks is read."""

    def __init__(self, path: Path) -> None:
        import zarr

        self.store: Any = zarr.open_array(path, mode="r")
        self.shape, self.dtype, self.ndim = self.store.shape, self.store.dtype, self.store.ndim
        self.loads: Counter[tuple[int, ...]] = Counter()
        self.lock = threading.Lock()

    def __getitem__(self, key: tuple[slice, ...]) -> Image:
        with self.lock:
            self.loads[tuple(each.start for each in key)] += 1
        image: Image = self.store[key]
        return image

    def lazy(self) -> Any:
        import dask.array as da

        return da.from_array(self, chunks=self.store.chunks, name=False)


def ours(scenes: Any, clouds: Any) -> Any:
    from dask_gpuselect import median

    return median(scenes, axis=0, where=~clouds, nodata=0)


def xarrays(scenes: Any, clouds: Any) -> Any:
    """Compute the median by xarray, in float32, with all dates in one chunk."""
    import xarray as xr

    dims = ("time", "band", "y", "x")
    is_clear = xr.DataArray(~clouds & (scenes != 0), dims=dims)
    values = xr.DataArray(scenes.astype("f4"), dims=dims).where(is_clear)
    return values.chunk(time=-1).median("time").data


def without_mask(scenes: Any, clouds: Any) -> Any:
    from dask_gpuselect import median

    return median(scenes, axis=0, nodata=0)


WAYS = {"dask_gpuselect": ours, "xarray": xarrays, "unmasked": without_mask}


def peak_memory() -> int:
    """Return the peak memory of this process in bytes."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def compute(way: str, folder: Path, threads: int) -> None:
    """Compute in a separate process, save the answer, and print time, memory and reads."""
    scenes, clouds = (Counted(folder / f"{name}.zarr") for name in ("scenes", "clouds"))
    lazy = [store.lazy() for store in (scenes, clouds)]
    corner = [array[..., :2, :2] for array in lazy]
    WAYS[way](*corner).compute(scheduler="threads", num_workers=threads)  # compiles, imports
    for store in (scenes, clouds):
        store.loads.clear()
    before, begin = peak_memory(), time.perf_counter()
    composite = WAYS[way](*lazy).compute(scheduler="threads", num_workers=threads)
    seconds = time.perf_counter() - begin
    print(seconds, (peak_memory() - before) / 1e6, end=" ")
    print(*(max(store.loads.values(), default=0) for store in (scenes, clouds)))
    np.save(folder / f"{way}.npy", composite.astype("f4"))


def measure(way: str, folder: Path, threads: int) -> list[float]:
    """Return seconds, megabytes, and the most reads of a chunk of the scenes and of the masks."""
    command = [sys.executable, __file__, "--folder", str(folder), "--threads", str(threads)]
    done = subprocess.run([*command, "--way", way], stdout=subprocess.PIPE, text=True, check=True)
    return [float(each) for each in done.stdout.split()]


# --- The picture ----------------------------------------------------------------------------------


def save(path: Path, folder: Path, date: int) -> None:
    """Draw one scene, its mask, and the medians without and with the mask."""
    import matplotlib

    matplotlib.use("Agg")
    import zarr
    from matplotlib import pyplot

    stores: list[Any] = [zarr.open_array(folder / f"{n}.zarr", mode="r") for n in STORES]
    without, composite = (np.load(folder / f"{way}.npy") for way in ("unmasked", "dask_gpuselect"))
    shown = {
        f"date {date}": stores[0][date],
        "its clouds": np.repeat(stores[1][date], len(composite), axis=0) * 10_000,
        "median, without the mask": without,
        "median of the clear pixels": composite,
    }
    figure, axes = pyplot.subplots(2, 2, figsize=(9, 9.4), layout="constrained")
    for axis, (name, image) in zip(axes.flat, shown.items(), strict=True):
        colours = [2 % len(image), 1 % len(image), 0]
        axis.imshow(np.clip(np.nan_to_num(image[colours]) / 4000, 0, 1).transpose(1, 2, 0))
        axis.set_title(name)
        axis.set_axis_off()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


STORES = ("scenes", "clouds")


def compose(folder: Path, options: argparse.Namespace) -> None:
    make_stores(folder, options)
    shape = options.dates, options.bands, options.size, options.size
    print(f"scenes: {shape} uint16, {2 * np.prod(shape) / 1e6:.0f} MB; {options.threads} threads")
    print(f"{'':14} {'seconds':>8} {'peak, MB':>9} {'reads of a chunk':>17} {'of the mask':>12}")
    for way in WAYS:
        seconds, peak, *loads = measure(way, folder, options.threads)
        print(f"{way:14} {seconds:8.2f} {peak:9.0f} {loads[0]:17.0f} {loads[1]:12.0f}")
    composite, by_xarray = (np.load(folder / f"{way}.npy") for way in ("dask_gpuselect", "xarray"))
    np.testing.assert_array_equal(composite, by_xarray)
    print("the answers of this package and of xarray are equal")
    save(options.output, folder, options.dates // 2)
    print(f"saved {options.output}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add: Any = parser.add_argument
    add("--output", type=Path, default=Path("clouds.png"), help="picture, PNG or JPEG")
    add("--dates", type=int, default=40, help="number of dates (40)")
    add("--bands", type=int, default=3, help="bands of each scene (3)")
    add("--size", type=int, default=360, help="pixels per side of a scene (360)")
    add("--every", type=int, default=10, help="dates per chunk (10)")
    add("--threads", type=int, default=2, help="number of threads (2)")
    add("--folder", type=Path, help=argparse.SUPPRESS)
    add("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.way:
        compute(options.way, options.folder, options.threads)
        return 0
    if min(options.dates, options.bands, options.every, options.threads) < 1 or options.size < 32:
        parser.error("needs a date, a band, a thread, and 32 pixels to a side")
    with tempfile.TemporaryDirectory() as folder:
        compose(Path(folder), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
