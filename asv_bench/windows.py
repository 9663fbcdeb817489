"""Moving windows of arrays in memory, beside those who have some; prints Markdown.

    python asv_bench/windows.py [--cpu] [--elements 1000000] [--side 1024] [--repeat 5]
    python asv_bench/windows.py --stack [--frames 10000] [--side 512]
    python asv_bench/windows.py --gpu [--elements 4194304] [--side 2048] [--repeat 5]

``--cpu``: medians and quantiles of windows along one axis beside bottleneck, pandas, Polars and
xarray; filters of images beside ``scipy.ndimage``, OpenCV and scikit-image; of a volume beside
SciPy. Who cannot be imported is left out. ``--stack``: the 8th percentile of 301 frames of a lazy
stack, and the peak of memory. ``--gpu``: beside ``cupyx.scipy.ndimage`` and the time of a copy;
every answer is checked. Contenders take turns; medians.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from compare import machine, rounded, say, table

from dask_gpuselect.kernels import compiling
from dask_gpuselect.windows import median_filter, percentile_filter, rolling

WINDOWS = (5, 31, 301, 3001)
SIZES = (3, 5, 15, 51)
SLOW = 15  # sizes from which on SciPy is measured on a quarter of each side
Ask = Callable[[], Any]


def module(name: str) -> Any:
    """A package, or None if it is not installed or cannot be imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except Exception:  # whatever it is that is missing
            return None


def turns(asks: dict[str, Ask], repeat: int) -> dict[str, list[float]]:
    """CPU seconds of each on this thread, by turns; the first turn does not count.

    All work on one thread. So time spent waiting for a busy processor does not count either.
    """
    times: dict[str, list[float]] = {name: [] for name in asks}
    for turn in range(repeat + 1):
        for name, ask in asks.items():
            begin = time.thread_time()
            ask()
            if turn:
                times[name].append(time.thread_time() - begin)
    return times


def row_of(
    title: list[str], asks: dict[str, Ask], sizes: dict[str, int], repeat: int, names: list[str]
) -> list[str]:
    """Nanoseconds per element of the first one, and how many times as long the others take.

    A name such as "SciPy, 8th percentile" is compared with this package's answer to that question.
    """
    times = turns(asks, repeat)
    each = {name: [t / sizes[name] for t in times[name]] for name in asks}
    ours = next(iter(asks))
    results = [*title, rounded(statistics.median(each[ours]) * 1e9)]
    for name in names:
        if name not in each:
            results.append("")
            continue
        alike = f"{ours}, {name.partition(', ')[2]}"
        own = each[alike if alike in each and alike != name else ours]
        ratios = [theirs / mine for theirs, mine in zip(each[name], own, strict=True)]
        results.append(f"{rounded(statistics.median(ratios))}×")
    return results


# --- One axis -------------------------------------------------------------------------------------


def line(n: int, dtype: str, nan: float) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=n)).astype(dtype)
    x[rng.random(n) < nan] = np.nan
    return x


def of_one_axis(x: Any, window: int, nan: float) -> dict[str, Ask]:
    windows = rolling(x, window, min_periods=window // 2 if nan else None)
    asks: dict[str, Ask] = {"dask_gpuselect": windows.nanmedian if nan else windows.median}
    least = max(window // 2, 1) if nan else window
    if (bottleneck := module("bottleneck")) is not None:
        asks["bottleneck"] = partial(bottleneck.move_median, x, window, min_count=least)
    if (pandas := module("pandas")) is not None:
        asks["pandas"] = pandas.Series(x).rolling(window, min_periods=least).median
    polars = module("polars")
    if polars is not None and hasattr(polars, "Series"):
        try:
            series = polars.Series(x).fill_nan(None)
            asks["Polars"] = partial(series.rolling_median, window, min_samples=least)
            asks["Polars"]()
        except Exception:  # a package without its binary
            asks.pop("Polars", None)
    xarray = module("xarray")
    if xarray is not None and window <= 31:
        array = xarray.DataArray(x, dims="t").rolling(t=window, min_periods=least)
        asks["xarray"] = lambda: array.reduce(np.nanmedian).data
    return asks


def along_one_axis(n: int, repeat: int) -> Iterator[str]:
    names = ["bottleneck", "pandas", "Polars", "xarray"]
    rows = []
    for dtype in ("float32", "float64"):
        for nan in (0.0, 0.05):
            for window in WINDOWS:
                x = line(n, dtype, nan)
                asks = of_one_axis(x, window, nan)
                some = line(n // 50, dtype, nan)
                sizes = dict.fromkeys(asks, n)
                if "xarray" in asks:  # which unfolds
                    asks["xarray"] = of_one_axis(some, window, nan)["xarray"]
                    sizes["xarray"] = len(some)
                title = [dtype, f"{nan:.0%}", str(window)]
                rows.append(row_of(title, asks, sizes, repeat, names))
    yield f"Medians of windows of {n:,} elements, a random walk"
    yield ""
    yield from table(["dtype", "NaN", "window", "dask_gpuselect, ns", *names], rows)


# --- Images ---------------------------------------------------------------------------------------


def image(side: int, dtype: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    waves = np.sin(np.arange(side) / 40)
    values = 100 + 60 * waves[:, None] * waves + rng.normal(0, 25, (side, side))
    scale = 1 if dtype == "uint8" else 200
    return (values.clip(0, 250) * scale).astype(dtype)


def of_an_image(x: Any, size: int) -> dict[str, Ask]:
    few = x if size < SLOW else np.ascontiguousarray(x[: len(x) // 4, : len(x) // 4])
    asks: dict[str, Ask] = {
        "dask_gpuselect": partial(median_filter, x, size),
        "dask_gpuselect, 8th percentile": partial(percentile_filter, x, 8.0, size),
    }
    if (scipy := module("scipy.ndimage")) is not None:
        asks["SciPy"] = partial(scipy.median_filter, few, size)
        asks["SciPy, 8th percentile"] = partial(scipy.percentile_filter, few, 8.0, size)
    cv2 = module("cv2")
    if cv2 is not None and (x.dtype == np.uint8 or size <= 5):
        cv2.setNumThreads(1)
        asks["OpenCV"] = partial(cv2.medianBlur, x, size)
    rank = module("skimage.filters.rank")
    if rank is not None and x.dtype == np.uint8:  # of 16 bits it takes minutes
        asks["scikit-image"] = partial(rank.median, x, np.ones((size, size), np.uint8))
    return asks


def of_images(side: int, repeat: int) -> Iterator[str]:
    names = [
        "dask_gpuselect, 8th percentile",
        "SciPy",
        "SciPy, 8th percentile",
        "OpenCV",
        "scikit-image",
    ]
    rows = []
    for dtype in ("uint8", "uint16", "float32"):
        x = image(side, dtype)
        for size in SIZES:
            asks = of_an_image(x, size)
            few = (side // 4) ** 2 if size >= SLOW else x.size
            sizes = {name: few if name.startswith("SciPy") else x.size for name in asks}
            rows.append(row_of([dtype, f"{size}²"], asks, sizes, repeat, names))
    yield f"Medians of windows of an image of {side}²"
    yield ""
    yield from table(["dtype", "window", "dask_gpuselect, ns", *names], rows)
    volume = np.random.default_rng(0).normal(size=(64, 128, 128)).astype(np.float32)
    asks = {"dask_gpuselect": partial(median_filter, volume, 3)}
    if (scipy := module("scipy.ndimage")) is not None:
        asks["SciPy"] = partial(scipy.median_filter, volume, 3)
    row = row_of(["float32", "3³"], asks, dict.fromkeys(asks, volume.size), repeat, ["SciPy"])
    yield "Medians of windows of a volume of 64 x 128 x 128"
    yield ""
    yield from table(["dtype", "window", "dask_gpuselect, ns", "SciPy"], [row])


# --- A stack --------------------------------------------------------------------------------------


def of_a_stack(frames: int, side: int) -> Iterator[str]:
    """The 8th percentile of 301 frames of a stack that is made as it is read."""
    size = (min(1000, frames), min(128, side), min(128, side))

    def made(block: Any, block_id: tuple[int, ...]) -> Any:
        rng = np.random.default_rng(block_id)
        return rng.integers(0, 4000, block.shape, dtype=np.uint16)

    x = da.empty((frames, side, side), np.uint16, chunks=size).map_blocks(made, dtype=np.uint16)
    baseline = rolling(x, 301, 0, center=True, boundary="reflect").quantile(0.08, method="lower")
    # Of each chunk by itself, as if it were stored: for the maximum of all, dask keeps 66 of 160.
    n_each = tuple((1,) * n for n in x.numblocks)
    with dask.config.set(scheduler="threads", num_workers=2):
        begin, cpu = time.perf_counter(), time.process_time()
        baseline.map_blocks(np.max, keepdims=True, dtype=x.dtype, chunks=n_each).compute()
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        begin = time.perf_counter()
        x.map_blocks(np.max, keepdims=True, dtype=x.dtype, chunks=n_each).compute()
        reading = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    yield from table(
        ["frames", "side", "seconds", "of which made", "CPU, ns an element", "peak, GB"],
        [
            [
                f"{frames:,}",
                str(side),
                rounded(seconds),
                rounded(reading),
                rounded(cpu / x.size * 1e9),
                rounded(peak),
            ]
        ],
    )


# --- A GPU ----------------------------------------------------------------------------------------


def on_a_gpu(side: int, most: int, repeat: int) -> Iterator[str]:
    """Beside CuPy's filters, which are checked too, and the time of a copy."""
    import cupy
    from cupyx.scipy import ndimage

    def timed(ask: Ask, times: int) -> tuple[Any, float]:
        result, seconds = ask(), []
        for _ in range(times):
            cupy.cuda.Device().synchronize()
            begin = time.perf_counter()
            ask()
            cupy.cuda.Device().synchronize()
            seconds.append(time.perf_counter() - begin)
        return result, statistics.median(seconds)

    rows = []
    for dtype in ("uint8", "uint16", "float32"):
        x = cupy.asarray(image(side, dtype))
        for size in SIZES:
            few = x if size < SLOW else x[: side // 4, : side // 4].copy()
            _, copy = timed(x.copy, repeat)
            result, ours = timed(partial(median_filter, x, size), repeat)
            theirs_of, theirs = timed(partial(ndimage.median_filter, few, size), 1)
            inner = (slice(size, len(few) - size),) * 2
            right = bool((result[: len(few), : len(few)][inner] == theirs_of[inner]).all())
            each = ours / x.size
            rows.append(
                [
                    *(dtype, f"{size}²", rounded(each * 1e9), rounded(ours / copy)),
                    *(f"{rounded(theirs / few.size / each)}×", "yes" if right else "NO"),
                ]
            )
    yield f"Medians of windows of an image of {side}²"
    yield ""
    yield from table(["dtype", "window", "dask_gpuselect, ns", "copies", "CuPy", "equal"], rows)
    rows = []
    for dtype in ("float32", "float64"):
        for nan in (0.0, 0.05):
            for window in (5, 31, 301, 3001, 10_001):
                n = most if window < 3000 else most // 4
                host = line(n, dtype, nan)
                x = cupy.asarray(host)
                _, copy = timed(x.copy, repeat)
                about = rolling(x, window, min_periods=1)
                result, ours = timed(about.nanmedian, 1 if window > 3000 else repeat)
                some = slice(0, 200_000)
                expected = rolling(host[some], window, min_periods=1).nanmedian()
                right = np.array_equal(result[some].get(), expected, equal_nan=True)
                rows.append(
                    [
                        *(dtype, f"{nan:.0%}", str(window), rounded(ours / n * 1e9)),
                        *(rounded(ours / copy), "yes" if right else "NO"),
                    ]
                )
    yield "Medians of windows along one axis"
    yield ""
    yield from table(["dtype", "NaN", "window", "dask_gpuselect, ns", "copies", "equal"], rows)
    volume = cupy.asarray(
        np.random.default_rng(0).normal(size=(64, side // 8, side // 8)).astype("f4")
    )
    result, ours = timed(partial(median_filter, volume, 3), repeat)
    theirs_of, theirs = timed(partial(ndimage.median_filter, volume, 3), 1)
    stack = cupy.asarray(
        np.random.default_rng(0).integers(0, 4000, (600, side // 16, side // 16)).astype("u2")
    )
    about = rolling(stack, 301, 0, center=True, boundary="reflect")
    eighth, baseline = timed(partial(about.quantile, 0.08, method="lower"), 1)
    lanes = rolling(stack[:, :8, :8].get(), 301, 0, center=True, boundary="reflect")
    spread, deviations = timed(rolling(volume, 5, 0).mad, 1)
    host = rolling(volume[:, :16, :16].get(), 5, 0).mad()
    yield from table(
        ["question", "dask_gpuselect, ns", "CuPy", "equal"],
        [
            [
                "median of 3³, float32",
                rounded(ours / volume.size * 1e9),
                f"{rounded(theirs / ours)}×",
                "yes" if bool((result == theirs_of).all()) else "NO",
            ],
            [
                "8th percentile of 301 frames, uint16",
                rounded(baseline / stack.size * 1e9),
                "",
                "yes"
                if np.array_equal(eighth[:, :8, :8].get(), lanes.quantile(0.08, method="lower"))
                else "NO",
            ],
            [
                "mad of 5 frames, float32",
                rounded(deviations / volume.size * 1e9),
                "",
                "yes" if np.array_equal(spread[:, :16, :16].get(), host, equal_nan=True) else "NO",
            ],
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("--cpu", "--gpu", "--stack"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--elements", type=int, help="along one axis")
    parser.add_argument("--side", type=int, help="of images, or of frames")
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    compiling.LARGE = 0  # kernels answer, however few elements there are
    say(machine())
    if given.gpu:
        say(on_a_gpu(given.side or 2048, given.elements or 1 << 22, given.repeat))
    elif given.stack:
        say(of_a_stack(given.frames, given.side or 512))
    else:
        say(along_one_axis(given.elements or 1_000_000, given.repeat))
        say(of_images(given.side or 1024, given.repeat))


if __name__ == "__main__":
    main()
