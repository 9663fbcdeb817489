"""Compute the baseline of a fluorescence movie by a moving 8th percentile, and dF/F.

    python examples/calcium_baseline.py --frames 3000 --size 128 --output calcium_baseline.png

Cells flash for some frames, and the whole picture bleaches. The baseline F of a pixel is the 8th
percentile of the 301 frames around each frame, and dF/F = (movie - F) / F. Each chunk of the movie
is made once for both, and windows are never unfolded. The baseline of some pixels is compared with
NumPy's percentiles of unfolded windows.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dask_gpuselect.windows import rolling

WINDOW, SHARE = 301, 0.08


def baseline_of(movie: Any) -> Any:
    """Return the 8th percentile of the frames around each frame; the ends mirror the movie."""
    windows = rolling(movie, WINDOW, 0, center=True, boundary="reflect")
    return windows.quantile(SHARE)


def make(frames: int, size: int) -> Any:
    """Make a lazy movie of uint16, with flashing cells, bleaching and noise."""
    chunks = (min(frames, 600), min(size, 64), min(size, 64))
    empty = da.empty((frames, size, size), dtype=np.uint16, chunks=chunks)
    return empty.map_blocks(_made, dtype=np.uint16, meta=np.empty((0, 0, 0), np.uint16))


def _made(block: Any, block_info: Any) -> Any:
    (first, last), *window = block_info[0]["array-location"]
    rng = np.random.default_rng([first, *(begin for begin, _ in window)])
    frames, y, x = np.ogrid[first:last, slice(*window[0]), slice(*window[1])]
    light = 300 + 500 * np.exp(-frames / 2500)
    cells = ((y % 32 - 16) ** 2 + (x % 32 - 16) ** 2) < 64
    of_cell = (y // 32) * 7 + (x // 32) * 13
    flash = np.exp(-((frames + 37 * of_cell) % 190) / 25)
    expected = light * (1 + cells * (0.4 + 0.9 * flash))
    return rng.poisson(expected).clip(0, 65535).astype(np.uint16)


def check(movie: Any, baseline: Any) -> None:
    """Compare the baseline of some pixels with NumPy's percentiles of unfolded windows."""
    some = np.asarray(movie[:, 16:18, 15:17])
    padded = np.pad(some, [(WINDOW // 2, WINDOW // 2), (0, 0), (0, 0)], "symmetric")
    expected = np.quantile(sliding_window_view(padded, WINDOW, axis=0), SHARE, axis=-1)
    np.testing.assert_array_equal(baseline, expected)


def draw(path: Path, trace: Any, base: Any, change: Any, frame: Any) -> None:
    """Draw the fluorescence of a pixel with its baseline and dF/F, and a frame of dF/F."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(11, 3.6), layout="constrained", width_ratios=[2.4, 1]
    )
    left.plot(trace, color="0.7", linewidth=0.6, label="a pixel")
    left.plot(base, color="C3", linewidth=1.6, label=f"its 8th percentile of {WINDOW} frames")
    left.plot(500 * change - 700, color="C0", linewidth=0.6, label="500 dF/F - 700")
    left.set(xlabel="frame", ylabel="fluorescence", xlim=(0, len(trace)))
    left.legend(loc="upper right", ncols=3, fontsize=8, frameon=False)
    shown = right.imshow(frame, vmin=0, vmax=1.5, cmap="magma")
    right.set(title="dF/F of a frame", xticks=[], yticks=[])
    figure.colorbar(shown, ax=right)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=3000, help="number of frames (3000)")
    parser.add_argument("--size", type=int, default=128, help="pixels per side (128)")
    parser.add_argument(
        "--output", type=Path, default=Path("calcium_baseline.png"), help="picture, PNG or JPEG"
    )
    given = parser.parse_args(argv)
    import matplotlib  # noqa: F401 -- or raise before anything is computed

    if given.frames < WINDOW or given.size < 32:
        parser.error(f"needs {WINDOW} frames, and 32 pixels a side")
    movie = make(given.frames, given.size)
    base = baseline_of(movie)
    change = (movie - base) / base
    begin = time.perf_counter()
    whole, bases, changes = da.compute(movie, base, change)
    print(f"{movie.nbytes / 1e6:.0f} MB of frames in {time.perf_counter() - begin:.1f} s")
    check(whole, bases[:, 16:18, 15:17])
    print("the baseline of four pixels equals NumPy's")
    pixel = slice(None), 16, 16
    draw(given.output, whole[pixel], bases[pixel], changes[pixel], changes[given.frames // 3])
    print(f"saved {given.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
