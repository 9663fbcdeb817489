"""Make a cloud-free picture from a stack of cloudy ones: the median of each pixel over time.

    python examples/median_composite.py --output composite.png

makes a Zarr store of synthetic satellite images, chunked along time as they would arrive. They show
fields, lakes and hills, with drifting clouds and their shadows; unseen parts are NaN. The example
computes the median of every pixel and band without rechunking, and draws one
date beside the composite. The true surface is known, so it also prints the error of both.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray

from dask_gpuselect import explain, nanmedian

Image = NDArray[np.float32]
"""Reflectances: (band, y, x), or (y, x) of one band; red, green and blue."""

COVERS = np.array(  # reflectance of each land cover
    [
        [0.02, 0.05, 0.09],  # water
        [0.04, 0.09, 0.03],  # forest
        [0.10, 0.16, 0.06],  # meadow
        [0.28, 0.22, 0.14],  # ploughed field
        [0.22, 0.21, 0.20],  # rock, roofs and roads
    ],
    np.float32,
)
CLOUD = np.array([0.82, 0.84, 0.88], np.float32)


# --- A landscape and its weather ------------------------------------------------------------------


def fractal(rng: np.random.Generator, size: int, coarsest: int, finest: int) -> Image:
    """Make smooth periodic noise from 0 to 1, rougher on smaller scales."""
    total = np.zeros((size, size))
    cells = max(1, size // coarsest)
    while size // cells >= finest:
        total += interpolate(rng.random((cells, cells)), size) / cells
        cells *= 2
    total -= total.min()
    scaled: Image = (total / total.max()).astype(np.float32)
    return scaled


def interpolate(grid: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Enlarge a grid smoothly, periodic along both axes."""
    for axis in (0, 1):
        n = grid.shape[axis]
        position = np.arange(size) * n / size
        left = position.astype(int)
        share = (1 - np.cos(np.pi * (position - left))) / 2
        share = share[:, None] if axis == 0 else share
        grid = (1 - share) * grid.take(left, axis) + share * grid.take((left + 1) % n, axis)
    return grid


def landscape(rng: np.random.Generator, size: int) -> Image:
    """Make the surface without clouds."""
    height = fractal(rng, size, size // 2, 4)
    cover = np.digitize(height, [0.32, 0.5, 0.72])  # water, forest, meadow, rock
    cover[cover == 3] = 4
    fields = np.kron(rng.random((size // 24 + 1, size // 32 + 1)), np.ones((24, 32)))[:size, :size]
    cover[(cover == 2) & (fields < 0.45)] = 3
    slope = np.clip(1 + 6 * (height - np.roll(height, 3, axis=(0, 1))), 0.6, 1.4)
    texture = 1 + 0.15 * (fields - 0.5) + 0.1 * (fractal(rng, size, 16, 2) - 0.5)
    surface: Image = np.moveaxis(COVERS[cover], -1, 0) * (slope * texture).astype(np.float32)
    return surface


class Sky:
    """Clouds that drift with the wind and change on their way."""

    def __init__(self, rng: np.random.Generator, size: int, cover: float) -> None:
        self.fields = [fractal(rng, size, size // 3, 4) for _ in range(4)]
        self.size, self.cover = size, cover

    def __call__(self, rng: np.random.Generator, date: int) -> Image:
        """Return how much of the ground the cloud hides at each pixel."""
        one, other = (self.fields[(date + i) % len(self.fields)] for i in (0, 1))
        field = (one + np.roll(other, (7 * date, 11 * date), axis=(0, 1))) / 2
        # In irrational shares of the picture, so that no place is under the same cloud again.
        drift = (np.array([0.618, 0.414]) * date * self.size).astype(int)
        field = np.roll(field, drift, axis=(0, 1))
        clouds = np.clip(rng.normal(self.cover, 0.15), 0.02, 0.9)  # of this date
        edge = np.quantile(field, 1 - clouds)
        hidden: Image = np.clip((field - edge) / 0.06, 0, 1) * np.float32(0.97)
        return hidden


def observe(rng: np.random.Generator, surface: Image, hidden: Image) -> Image:
    """Make the image of one date."""
    size = surface.shape[-1]
    shadow = 1 - 0.55 * np.roll(hidden, (size // 40, size // 30), axis=(0, 1))
    sunlight = rng.normal(1, 0.04)
    image = surface * shadow * sunlight * (1 - hidden) + CLOUD[:, None, None] * hidden
    image += rng.normal(0, 0.004, image.shape)
    # The swath ends on a slant; some dates miss lines too.
    y, x = np.mgrid[:size, :size]
    start, stop = np.sort(rng.uniform(-0.4, 1.4, 2)) * size
    outside = (x + 0.2 * y < start) if rng.random() < 0.5 else (x + 0.2 * y > stop)
    lines = (rng.random() < 0.2) & (y % 16 < 2)
    image[:, outside | lines] = np.nan
    return image.astype(np.float32)


def make_store(path: Path, surface: Image, dates: int, every: int, side: int, seed: int) -> None:
    """Write a stack of images, (time, band, y, x), with `every` dates per chunk."""
    bands, size, _ = surface.shape
    store = zarr.create_array(
        path, shape=(dates, bands, size, size), chunks=(every, bands, side, side), dtype="f4"
    )
    sky = Sky(np.random.default_rng([seed, 1]), size, cover=0.27)
    for start in range(0, dates, every):
        images = []
        for date in range(start, min(start + every, dates)):
            rng = np.random.default_rng([seed, 2, date])
            images.append(observe(rng, surface, sky(rng, date)))
        store[start : start + len(images)] = np.stack(images)


# --- The composite --------------------------------------------------------------------------------


def error(image: Image, surface: Image) -> float:
    """Return the root mean square error of an image, ignoring missing pixels."""
    return float(np.sqrt(np.nanmean((image - surface) ** 2)))


def by_clearness(stack: da.Array) -> NDArray[np.int64]:
    """Order the dates by their number of bright and missing pixels, ascending."""
    is_bad = da.isnan(stack[:, 0]) | (stack[:, 0] > 0.4)
    order: NDArray[np.int64] = is_bad.mean(axis=(1, 2)).compute().argsort()
    return order


def save(path: Path, before: Image, after: Image, title: str) -> None:
    """Draw both pictures side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(12, 6.4), layout="constrained")
    for axis, image, name in zip(
        axes, (before, after), (title, "median of all dates"), strict=True
    ):
        shown = np.clip(np.moveaxis(image, 0, -1) / 0.35, 0, 1) ** 0.7
        axis.imshow(np.nan_to_num(shown, nan=0.5))
        axis.set_title(name)
        axis.set_axis_off()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


@contextmanager
def folder(path: Path | None) -> Iterator[Path]:
    """Yield the folder of the store; a temporary one is removed at the end."""
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
        yield path
        return
    made = Path(tempfile.mkdtemp())
    try:
        yield made
    finally:
        shutil.rmtree(made)


def compose(options: argparse.Namespace) -> None:
    surface = landscape(np.random.default_rng([options.seed, 0]), options.size)
    with folder(options.folder) as directory:
        path = directory / f"stack-{options.dates}-{options.size}-{options.seed}.zarr"
        if not path.exists():
            side = -(-options.size // 3)
            part = path.with_suffix(".part")  # until it is complete
            shutil.rmtree(part, ignore_errors=True)
            make_store(part, surface, options.dates, options.every, side, options.seed)
            part.rename(path)
        stack = da.from_zarr(path)
        print(f"stack: {stack.shape}, chunks of {stack.chunksize}, {stack.nbytes / 1e6:.0f} MB")
        print(f"plan:  {explain(stack, axis=0)}")
        begin = time.perf_counter()
        composite = nanmedian(stack, axis=0).compute()
        print(f"time:  {time.perf_counter() - begin:.2f} s")
        dates = by_clearness(stack)
        best, typical = int(dates[0]), int(dates[len(dates) // 2])
        clear, cloudy, mean = dask.compute(stack[best], stack[typical], da.nanmean(stack, axis=0))
    print(f"\nroot mean square error (the surface's standard deviation is {surface.std():.3f})")
    rows = {
        f"date {typical}, a typical one": cloudy,
        f"date {best}, the clearest": clear,
        "mean of all dates": mean,
        "median of all dates": composite,
    }
    for name, image in rows.items():
        print(f"  {name:24} {error(image, surface):.4f}   {np.isnan(image).mean():6.2%} missing")
    save(options.output, cloudy, composite, f"date {typical}, a typical one")
    print(f"\nsaved {options.output}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add: Any = parser.add_argument
    add("--output", type=Path, default=Path("composite.png"), help="picture, PNG or JPEG")
    add("--dates", type=int, default=60, help="number of images (60)")
    add("--size", type=int, default=720, help="pixels per side of an image (720)")
    add("--every", type=int, default=10, help="dates per chunk (10)")
    add(
        "--folder",
        type=Path,
        help="folder of the store, which is kept (default: a temporary folder)",
    )
    add("--seed", type=int, default=0, help="seed of the random numbers (0)")
    options = parser.parse_args(arguments)
    if min(options.dates, options.every) < 1 or options.size < 32:
        parser.error("needs a date, and 32 pixels to a side")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("this example draws: python -m pip install '.[gallery]'", file=sys.stderr)
        return 1
    compose(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
