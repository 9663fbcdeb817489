"""Data of one and two bytes, whose values are counted in one read; prints Markdown.

    python asv_bench/few_values.py [--gigabytes 1.2] [--repeat 5]
    python asv_bench/few_values.py --gpu [--elements N] [--repeat 7]

A display stretch: the 2 % and 98 % quantiles of each of three bands, of an array that is made when
it is loaded, from a file that is mapped into memory; and quartiles and a box plot of all elements.
Quartiles, ``mad`` and box plots of 18 zones that a map of labels tells, quartiles of elements that
weigh, of all of them and of 12 zones, and ``sort``.
Beside ``x.sum()``, ``np.bincount`` by hand, and the reads that elements of four bytes take.
Contenders take turns; medians. ``--gpu``: box plots and quartiles of CuPy arrays, plain and
in eight chunks, by counts and without.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from benchmarks.common import THREADS
from compare import machine, say, table

from dask_gpuselect import describe_boxplot, quantile, sort
from dask_gpuselect.engine import lane_plans, now, plans, resident
from dask_gpuselect.groups import groupby

BANDS = 3
LANES = (14, 18, 21, 23)  # base-2 logarithms of their lengths, on a device
ZONES, FEW_ZONES = 18, 12  # as many of two bytes, with weights, fit `root-limit`
COUNTING = [
    (now, "is_best_counted", False),
    (resident, "is_best_counted", False),
    (plans, "takes_counts", False),
    (lane_plans, "_plan_counts", None),
]
"""Functions that decide whether values are counted, and their result if they are not."""
STRETCH = (0.02, 0.98)
QUARTILES = (0.25, 0.5, 0.75)


def store(folder: Path, dtype: np.dtype[Any], gigabytes: float) -> da.Array:
    """Three bands of normal noise, in chunks of 32 MB."""
    side = int((gigabytes * 1e9 / dtype.itemsize / BANDS) ** 0.5)
    path = folder / f"{dtype}.npy"
    file = np.lib.format.open_memmap(path, "w+", dtype, (BANDS, side, side))
    rng = np.random.default_rng(0)
    top = np.iinfo(dtype).max
    for band in range(BANDS):
        noise = rng.normal(0.3 + 0.1 * band, 0.1, (1 << 20,)).clip(0, 1) * top
        rows = np.resize(noise.astype(dtype), (side, side))
        file[band] = rows
    file.flush()
    chunk = int((32e6 / dtype.itemsize / BANDS) ** 0.5)
    mapped = np.load(path, mmap_mode="r")
    read = da.from_array(mapped, chunks=(BANDS, chunk, chunk), name=False)
    return read.map_blocks(np.array, dtype=dtype)  # a load copies, as one from a file does


def by_hand(x: da.Array) -> np.ndarray[Any, Any]:
    """The counts of each band by ``np.bincount``, added up; then the ranks by hand."""
    n_values = 1 << 8 * x.dtype.itemsize

    def count(chunk: Any) -> Any:
        return np.stack([np.bincount(band.ravel(), minlength=n_values) for band in chunk])[None]

    blocks = [dask.delayed(count)(block) for block in x.to_delayed().ravel()]
    upto = np.cumsum(np.sum(dask.compute(blocks)[0], axis=0)[0], axis=1)
    n = upto[0, -1]
    ranks = [int(q * (n - 1)) for q in STRETCH]
    return np.stack([np.searchsorted(each, ranks, side="right") for each in upto], axis=1)


def without_counts(function: Callable[[], Any]) -> Any:
    """The answer as it would be of elements of more bytes."""
    functions = [(module, name, getattr(module, name)) for module, name, _ in COUNTING]
    for module, name, result in COUNTING:
        setattr(module, name, lambda *_, result=result: result)
    try:
        return function()
    finally:
        for module, name, value in functions:
            setattr(module, name, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--gpu", action="store_true", help="of CuPy arrays")
    parser.add_argument("--elements", type=int, default=1 << 29, help="of these; 2^29")
    a = parser.parse_args()
    say(machine())
    if a.gpu:
        print(f"{a.elements} elements, milliseconds, medians of {a.repeat} runs in turn.\n")
        rows = [row for name in ("uint8", "uint16") for row in on_gpu(name, a.elements, a.repeat)]
        say(table(["dtype", "what", "counted", "before"], rows))
        return
    print(f"{a.gigabytes} GB each, {THREADS} threads, medians of {a.repeat} runs in turn.\n")
    rows = []
    for name in ("uint8", "uint16"):
        with tempfile.TemporaryDirectory() as folder, dask.config.set(num_workers=THREADS):
            rows += rows_of(store(Path(folder), np.dtype(name), a.gigabytes), a.repeat)
    say(table(["dtype", "what", "seconds", "times x.sum()"], rows))


def on_gpu(name: str, n: int, repeat: int) -> list[list[str]]:
    import cupy

    noise = cupy.random.default_rng(0).standard_normal(n, dtype=np.float32)
    x = (noise * 20 + 120).clip(0, 255).astype(name)
    del noise
    persisted = da.from_array(x, chunks=-(-n // 8), asarray=False).persist(scheduler="sync")
    made = persisted.map_blocks(cupy.copy, dtype=x.dtype, meta=persisted._meta)

    def computed(lazy: Any) -> Any:
        return dask.compute(lazy, scheduler="sync")[0]

    labels = (cupy.arange(n, dtype=np.int32) >> 10) % ZONES
    in_chunks = da.from_array(labels.astype(np.uint8), chunks=persisted.chunks, asarray=False)
    zones = groupby(made, in_chunks, groups=np.arange(ZONES))

    calls: dict[str, Callable[[], Any]] = {
        "x.sum()": lambda: x.sum(dtype=np.int64),
        "cupy.bincount(x)": lambda: cupy.bincount(x, minlength=1 << 8 * x.itemsize),
        "median(x)": lambda: quantile(x, 0.5),
        "describe_boxplot(x)": lambda: describe_boxplot(x),
        "quartiles, chunks in memory": lambda: computed(quantile(persisted, [0.25, 0.5, 0.75])),
        "quartiles, lazily": lambda: computed(quantile(made, [0.25, 0.5, 0.75])),
        "describe_boxplot, lazily": lambda: computed(describe_boxplot(made)),
        f"quartiles of {ZONES} zones, lazily": lambda: computed(zones.quantile(QUARTILES)),
    }
    for log in LANES:
        lanes = x.reshape(-1, min(n, 1 << log))
        about = f"medians of {len(lanes)} lanes of 2^{log}"
        calls[about] = lambda lanes=lanes: quantile(lanes, 0.5, axis=1)
    ways: tuple[Callable[..., Any], ...] = (lambda call: call(), without_counts)
    seconds: dict[str, list[list[float]]] = {what: [[], []] for what in calls}
    for turn in range(repeat + 1):
        for what, call in calls.items():
            for way, times in zip(ways, seconds[what], strict=True):
                start = time.perf_counter()
                way(call)
                cupy.cuda.Device().synchronize()
                if turn:  # the first compiles
                    times.append(time.perf_counter() - start)
    return [
        [name, what, *(f"{1e3 * statistics.median(each):.2f}" for each in both)]
        for what, both in seconds.items()
    ]


def zones_of(x: da.Array) -> da.Array:
    """A label for each element, in chunks as of the data: of squares, six in a chunk and row."""

    def labels(block: Any, block_info: Any) -> Any:
        _, rows, columns = (
            np.arange(*ends) // (x.chunksize[1] // 6) for ends in block_info[0]["array-location"]
        )
        result = (rows[:, None] * 7 + columns) % ZONES
        return np.broadcast_to(result.astype(np.uint8), block.shape).copy()

    return x.map_blocks(labels, dtype=np.uint8, meta=np.empty((0, 0, 0), np.uint8))


def rows_of(x: da.Array, repeat: int) -> list[list[str]]:
    stretch = {"method": "lower", "axis": (1, 2)}
    base = da.zeros(x.shape, chunks=x.chunks, dtype=np.uint8)
    zones, weights = groupby(x, zones_of(base), groups=np.arange(ZONES)), base + np.float32(0.3)
    weights = weights * (1 + zones_of(base))
    how = {"weights": weights, "method": "inverted_cdf"}
    questions: dict[str, Callable[[], Any]] = {
        "quartiles of zones": lambda: zones.quantile(QUARTILES).compute(),
        "mad of zones": lambda: zones.mad().compute(),
        "box plots of zones": lambda: [b.std for b in zones.describe_boxplot().compute()],
        "sort, then its sum": lambda: sort(x.ravel()).sum().compute(),
    }
    questions["quartiles with weights"] = lambda: quantile(x, QUARTILES, **how).compute()
    few = groupby(x, zones_of(base), groups=np.arange(FEW_ZONES))
    questions[f"quartiles of {FEW_ZONES} zones with weights"] = lambda: few.quantile(
        QUARTILES, **how
    ).compute()
    calls: dict[str, Callable[[], Any]] = {
        "x.sum()": lambda: x.sum().compute(),
        "stretch of bands": lambda: quantile(x, STRETCH, **stretch).compute(),
        "stretch, two reads": lambda: without_counts(
            lambda: quantile(x, STRETCH, **stretch).compute()
        ),
        "stretch, np.bincount by hand": lambda: by_hand(x),
        "quartiles": lambda: quantile(x, [0.25, 0.5, 0.75]).compute(),
        "quartiles, two reads": lambda: without_counts(
            lambda: quantile(x, [0.25, 0.5, 0.75]).compute()
        ),
        "box plot": lambda: describe_boxplot(x).compute(),
    }
    for name, call in questions.items():
        calls[name] = call
        calls[f"{name}, not counted"] = partial(without_counts, call)
    answers = {name: call() for name, call in calls.items()}
    for name in ("stretch, two reads", "stretch, np.bincount by hand"):
        np.testing.assert_array_equal(answers["stretch of bands"], answers[name])
    np.testing.assert_array_equal(answers["quartiles"], answers["quartiles, two reads"])
    for name in questions:
        np.testing.assert_array_equal(answers[name], answers[f"{name}, not counted"])
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeat):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    base = medians["x.sum()"]
    return [[str(x.dtype), name, f"{s:.2f}", f"{s / base:.2f}"] for name, s in medians.items()]


if __name__ == "__main__":
    main()
