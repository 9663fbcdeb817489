"""Stretch the display of a microscopy volume: black and white points from exact percentiles.

    python examples/display_stretch.py --output display_stretch.jpg

makes a Zarr store of a synthetic light-sheet volume, (channel, z, y, x) in uint16: cells on a dark
background, and a few hot pixels of the camera. If the brightest pixel is shown white, all cells
look black. Viewers therefore stretch from the 1st to the 99.8th percentile. One lazy call computes
both for each channel, `percentile(volume, [1, 99.8], axis=(1, 2, 3))`, and reads each chunk once.
The answers are checked with NumPy.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray

from dask_gpuselect import explain, percentile

PERCENTILES = [1, 99.8]
COLOURS = [(0.1, 0.9, 1.0), (1.0, 0.3, 0.7)]  # of the channels


def make_store(path: Path, depth: int, size: int) -> None:
    """Write both channels, a few planes at a time."""
    shape, planes = (2, depth, size, size), 8
    chunks = (1, planes, -(-size // 2), -(-size // 2))
    stored: Any = zarr.create_array(path, shape=shape, chunks=chunks, dtype="u2")
    rng = np.random.default_rng(5)
    y, x = np.mgrid[:size, :size]
    for channel, (n_cells, radius, light) in enumerate(((60, 11, 420.0), (25, 20, 160.0))):
        centres = rng.random((n_cells, 3)) * (depth, size, size)
        for start in range(0, depth, planes):
            n_planes = min(planes, depth - start)
            volume = np.zeros((n_planes, size, size))
            for cz, cy, cx in centres:
                flat = (y - cy) ** 2 + (x - cx) ** 2
                for i in range(n_planes):
                    distance = flat + 4 * (start + i - cz) ** 2
                    volume[i] += light * np.exp(-distance / (2 * radius**2 / 4))
            volume = rng.poisson(100 + 30 * channel + volume).astype("u2")
            hot = rng.random(volume.shape) < 2e-5
            stored[channel, start : start + n_planes] = np.where(hot, 65_000, volume)


def stretched(plane: Any, low: Any, high: Any) -> NDArray[Any]:
    """Colour a plane of all channels: each is black at `low` and in full colour at `high`."""
    shares = [np.clip((c - a) / (b - a), 0, 1) for c, a, b in zip(plane, low, high, strict=True)]
    picture = np.tensordot(np.stack(shares, axis=-1), np.array(COLOURS), axes=1)
    return np.clip(picture, 0, 1)


def draw(path: Path, plane: NDArray[Any], limits: NDArray[Any], extremes: NDArray[Any]) -> None:
    """Draw a plane, stretched by the extremes and by the percentiles, and the histogram."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.7), layout="constrained")
    shown = {"From the least to the greatest": extremes, "From 1 % to 99.8 %": limits}
    for axis, (title, (low, high)) in zip(axes, shown.items(), strict=False):
        axis.imshow(stretched(plane.astype("f8"), low, high))
        axis.set(title=title, xticks=[], yticks=[])
    bins = np.geomspace(50, 70_000, 120)
    for values, (low, high), colour in zip(plane, limits.T, COLOURS, strict=True):
        axes[2].hist(values.ravel(), bins, color=colour, alpha=0.6)
        for each in (low, high):
            axes[2].axvline(each, color=colour, linestyle="--")
    axes[2].set(xscale="log", yscale="log", title="Elements of both channels", xlabel="value")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add: Any = parser.add_argument
    add("--output", type=Path, default=Path("display_stretch.png"), help="picture, PNG or JPEG")
    add("--depth", type=int, default=32, help="number of planes (32)")
    add("--size", type=int, default=320, help="pixels per side of a plane (320)")
    options = parser.parse_args(arguments)
    if options.depth < 1 or options.size < 64:
        parser.error("needs a plane and 64 pixels to a side")
    with tempfile.TemporaryDirectory() as folder:
        make_store(Path(folder) / "volume.zarr", options.depth, options.size)
        volume = da.from_zarr(Path(folder) / "volume.zarr")
        print(f"{volume.shape} {volume.dtype} in {volume.npartitions} chunks")
        print(f"plan: {explain(volume, np.array(PERCENTILES) / 100, axis=(1, 2, 3))}")
        limits = percentile(volume, PERCENTILES, axis=(1, 2, 3)).compute()
        in_memory = volume.compute()
    expected = np.percentile(in_memory, PERCENTILES, axis=(1, 2, 3))
    np.testing.assert_array_equal(limits, expected)
    print("the percentiles of both channels equal NumPy's:")
    for channel, (low, high) in enumerate(limits.T):
        top = in_memory[channel].max()
        print(f"  channel {channel}: {low:.0f} to {high:.0f}; the brightest pixel has {top}")
    extremes = np.stack([in_memory.min(axis=(1, 2, 3)), in_memory.max(axis=(1, 2, 3))])
    draw(options.output, in_memory[:, options.depth // 2], limits, extremes)
    print(f"saved {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
