"""Cells of one GPU that once fell off, in reads of the same data:

    python asv_bench/gpu_cells.py --against CHECKOUT
    python asv_bench/gpu_cells.py --only of_weighted_lanes,of_weighted_chunks --split

One read is `x.sum()`, measured in the same run; of chunks that tasks make, it is that of the same
chunks. Two checkouts are asked in one call, each in a process of its own. Times are medians of a
few calls by the wall, after a first one that reads or compiles kernels, which is told apart.
With `--split`, another call of each row is timed kernel by kernel, by events on the device.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import dask_gpuselect as dg
from dask_gpuselect import groups, robust

LEAST, LONG = 0.5, 20.0  # seconds of a row: at least so many are spent, and no more calls after


def seconds(
    call: Callable[[], Any], sync: Callable[[], None], long: float = LONG
) -> tuple[float, float]:
    """The median time of a call, and that of the first."""
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 4 or (time.perf_counter() - start < LEAST and len(times) < 20):
        sync()
        begin = time.perf_counter()
        call()
        sync()
        times.append(time.perf_counter() - begin)
        if len(times) > 1 and time.perf_counter() - start > long:
            break
    return statistics.median(times[1:]), times[0]


Row = tuple[str, Callable[[], Any], Callable[[], Any]]
"""The name of a row, what is timed, and what reads the same data."""


SHAPES = (24, 4000, 4000), (365, 1000, 1000), (3650, 300, 300), (40000, 90, 90)


def tables() -> Iterator[Iterator[Row]]:
    """Yield the rows of each table."""
    for bits, numbers in ((30, (3, 9, 19, 99)), (26, (3, 9, 99)), (20, (3, 9))):
        yield of_quantiles(bits, numbers)
    for n, size in ((8, 1 << 27), (64, 1 << 23)):
        yield of_made(n, size)
    yield of_other_made()
    for shape in SHAPES:
        yield along(shape)
    yield of_skewed()
    yield of_deviations_and_bins()
    yield of_weights_and_groups()
    yield of_few_weighted_lanes()
    for shape in SHAPES:
        yield of_weighted_lanes(shape)
    yield of_weighted_chunks(8, 1 << 21)
    yield of_small_boxes()
    yield of_sort()


def rows(only: str = "") -> Iterator[Row]:
    import cupy as cp

    for table in tables():
        if not only or table.__name__ in only.split(","):
            cp.get_default_memory_pool().free_all_blocks()
            yield from table


def normal(*shape: int) -> Any:
    import cupy as cp

    return cp.random.default_rng(0).standard_normal(shape, dtype=cp.float32)


def evenly(n: int) -> Any:
    import numpy as np

    return np.arange(1, n + 1) / (n + 1)


def of_quantiles(bits: int, numbers: tuple[int, ...]) -> Iterator[Row]:
    x = normal(1 << bits)
    for n in numbers:
        yield f"{n} quantiles of 2^{bits}", partial(dg.quantile, x, evenly(n)), x.sum
    yield f"box of 2^{bits}", partial(dg.describe_boxplot, x), x.sum


def of_made(n: int, size: int, kind: str = "", dtype: str = "f4") -> Iterator[Row]:
    """Of chunks of independent elements; by `kind` the same ones in all chunks, or with a mask."""
    import cupy as cp
    import dask

    rng = cp.random.default_rng(0)
    n_sources = 1 if kind == "alike" else n
    sources = [rng.standard_normal(size, dtype=dtype) for _ in range(n_sources)]
    made = lazily(sources, n)
    read, how, named = made.sum().compute, {}, f"{kind} {dtype}"
    if kind == "masked":
        how = {"where": lazily([rng.random(size, dtype="f4") for _ in range(n)], n) > 0.15}
        # As floats: for a sum of bytes CuPy would compile for 30 s.
        bits = how["where"].map_blocks(lambda m: m.view("f4"), chunks=(size // 4,), dtype="f4")
        read = partial(dask.compute, made.sum(), bits.sum())
    named = f"{n} chunks made by tasks, {named.strip()}"
    for k in (3, 9, 99):
        yield f"{k} quantiles of {named}", dg.quantile(made, evenly(k), **how).compute, read
    yield f"box of {named}", dg.describe_boxplot(made, **how).compute, read


def of_other_made() -> Iterator[Row]:
    yield from of_made(8, 1 << 27, "alike")
    yield from of_made(64, 1 << 23, "alike")
    yield from of_made(8, 1 << 27, "masked")
    yield from of_made(8, 1 << 26, dtype="f8")


def lazily(sources: list[Any], n: int) -> Any:
    """An array of n chunks that tasks make of sources on a device, in turn."""
    import cupy as cp
    import dask.array as da
    import numpy as np

    size, dtype = sources[0].size, sources[0].dtype
    how = {"chunks": (size,), "dtype": dtype, "meta": cp.empty(0, dtype)}
    how["name"] = f"made-{uuid.uuid4().hex}"  # not hashed: that would copy the sources
    number = da.from_array(np.arange(n), chunks=1)
    return number.map_blocks(lambda i: sources[int(i[0]) % len(sources)] * dtype.type(1.5), **how)


def along(shape: tuple[int, ...]) -> Iterator[Row]:
    import cupy as cp
    import numpy as np

    x = normal(*shape)
    mask = cp.random.default_rng(1).random(shape, dtype=cp.float32) > 0.1
    weights = cp.asarray(np.random.default_rng(0).random(shape[0]))
    yield f"median of {shape} along 0", partial(dg.median, x, axis=0), x.sum
    yield "the same with a mask", partial(dg.median, x, axis=0, where=mask), x.sum
    how = {"axis": 0, "weights": weights, "method": "inverted_cdf"}
    yield "the same with weights", partial(dg.quantile, x, 0.5, **how), x.sum


def of_weights_and_groups() -> Iterator[Row]:
    import cupy as cp

    x, weights = normal(1 << 28), cp.random.default_rng(1).random(1 << 28, dtype=cp.float32)
    for method in ("inverted_cdf", "linear"):
        of, how = f'2^28 with weights, "{method}"', {"weights": weights, "method": method}
        yield f"median of {of}", partial(dg.quantile, x, 0.5, **how), x.sum
        yield f"9 quantiles of {of}", partial(dg.quantile, x, evenly(9), **how), x.sum
        masked = partial(dg.quantile, x, 0.5, where=x > -1, **how)
        yield f"median of {of}, and a mask", masked, x.sum
    zones = cp.random.randint(0, 18, 1 << 28).astype(cp.int16)
    grouped = groups.groupby(x, zones, groups=range(18))
    yield "median of 2^28 in 18 groups", grouped.median, x.sum
    y, zones = x[: 1 << 24], zones[: 1 << 24].copy()
    how = {"weights": weights[: 1 << 24], "method": "inverted_cdf"}
    grouped = groups.groupby(y, zones, groups=range(18))
    yield "box of 2^24 with weights", partial(dg.describe_boxplot, y, **how), y.sum
    yield "box of 2^24 in 18 groups", grouped.describe_boxplot, y.sum
    yield "mad of 2^24 in 18 groups", grouped.mad, y.sum
    weighed = partial(grouped.quantile, 0.5, **how)
    yield "median of 2^24 in 18 groups with weights", weighed, y.sum
    weighed = partial(grouped.describe_boxplot, **how)
    yield "box of 2^24 in 18 groups with weights", weighed, y.sum


def of_skewed() -> Iterator[Row]:
    import cupy as cp

    x = normal(1 << 30)
    yield "box of 2^30", partial(dg.describe_boxplot, x), x.sum
    for sigma in (1, 3):
        cp.exp(normal(1 << 30) * cp.float32(sigma), out=x)
        yield f"box of 2^30 lognormal, sigma {sigma}", partial(dg.describe_boxplot, x), x.sum


def of_deviations_and_bins() -> Iterator[Row]:
    x = normal(1 << 28)
    yield "mad of 2^28", partial(robust.mad, x), x.sum
    yield "256 bins of 2^28", partial(dg.quantile_bins, x, 256), x.sum


def of_few_weighted_lanes() -> Iterator[Row]:
    yield from of_weighted_lanes((256, 1 << 16))


def of_weighted_lanes(shape: tuple[int, ...]) -> Iterator[Row]:
    import cupy as cp

    x, rng = normal(*shape), cp.random.default_rng(1)
    how: dict[str, Any] = {"axis": 0, "weights": rng.random(shape[0])}
    mask = rng.random(shape, dtype=cp.float32) > 0.1
    for method in ("inverted_cdf", "linear"):
        of = f'{shape} along 0 with weights, "{method}"'
        ask = partial(dg.describe_boxplot, x, method=method, **how)
        yield f"box of {of}", ask, x.sum
        yield f"box of {of}, and a mask", partial(ask, where=mask), x.sum
        for n in (1, 9, 16, 17, 99):
            ask = partial(dg.quantile, x, evenly(n), method=method, **how)
            yield f"{n} quantiles of {of}", ask, x.sum


def of_weighted_chunks(n: int, size: int) -> Iterator[Row]:
    import cupy as cp
    import dask.array as da
    import numpy as np

    rng = cp.random.default_rng(1)
    source = normal(n * size), rng.random(n * size, dtype=cp.float32)
    persisted = [da.from_array(each, chunks=size) for each in source]
    one = da.from_array(np.zeros(n), chunks=1)
    how = {"chunks": (size,), "dtype": "f4", "meta": cp.empty(0, "f4")}
    made = [one.map_blocks(lambda _, a=each: a[:size] * cp.float32(1.5), **how) for each in source]
    for kind, (x, weights) in {"in memory": persisted, "made by tasks": made}.items():
        read = partial(x.sum().compute, scheduler="sync")
        for method in ("inverted_cdf", "linear"):
            of = f'{n} chunks {kind} with weights, "{method}"'
            about = {"weights": weights, "method": method}
            ask = partial(dg.quantile(x, 0.5, **about).compute, scheduler="sync")
            yield f"median of {of}", ask, read
            yield (
                f"box of {of}",
                partial(dg.describe_boxplot(x, **about).compute, scheduler="sync"),
                read,
            )


def of_sort() -> Iterator[Row]:
    import cupy as cp
    import dask.array as da

    x = normal(1 << 30)
    lazy = dg.sort(da.from_array(x, chunks=1 << 26))
    ask = partial(lazy.compute, scheduler="sync")
    yield "sort of 2^30 in 16 chunks, a read is cupy.sort", ask, partial(cp.sort, x)


def of_small_boxes() -> Iterator[Row]:
    for bits in (16, 18, 20, 22, 23):
        x = normal(1 << bits)
        yield f"median of 2^{bits}", partial(dg.median, x), x.sum
        yield f"box of 2^{bits}", partial(dg.describe_boxplot, x), x.sum
        yield f"order statistic of 2^{bits}", partial(dg.order_statistic, x, 12345), x.sum


def measure(only: str, *, splits: bool) -> None:
    """Print each row as JSON: its name, seconds, those of the first call, and of a read.

    A text follows that has the times of its kernels, or is empty.
    """
    import cupy as cp

    warnings.simplefilter("ignore")
    sync = cp.cuda.Device().synchronize
    begin = time.perf_counter()
    for name, call, read in rows(only):
        own, first = seconds(call, sync)
        kernels = of_kernels(call) if splits else ""
        print(json.dumps([name, own, first, seconds(read, sync)[0], kernels]), flush=True)
        print(f"{time.perf_counter() - begin:.0f} s: {name}", file=sys.stderr, flush=True)


def of_kernels(call: Callable[[], Any]) -> str:
    """Name the kernels of a call, with their milliseconds and how often each is started.

    Kernels of CuPy and copies are not among them.
    """
    import cupy as cp

    from dask_gpuselect.kernels.cuda import launch

    prepared, together = launch._prepared, cp.cuda.driver.launchCooperativeKernel
    timed: list[tuple[str, Any, Any]] = []

    def timing(name: str, start: Callable[..., Any]) -> Callable[..., Any]:
        def started(*args: Any, **how: Any) -> None:
            events = cp.cuda.Event(), cp.cuda.Event()
            events[0].record()
            start(*args, **how)
            events[1].record()
            timed.append((name, *events))

        return started

    def prepared_to_time(dtype: Any, name: str, *others: Any) -> Any:
        kernel = prepared(dtype, name, *others)
        start: Any = timing(name, kernel.start)
        start.kernel = kernel.start.kernel
        return kernel._replace(start=start)

    with ExitStack() as stack:
        stack.enter_context(patch.object(launch, "_prepared", prepared_to_time))
        waiting = timing("together", together)
        stack.enter_context(patch.object(cp.cuda.driver, "launchCooperativeKernel", waiting))
        call()
        cp.cuda.Device().synchronize()
    times, numbers = Counter[str](), Counter(name for name, _, _ in timed)
    for name, begin, end in timed:
        times[name] += cp.cuda.get_elapsed_time(begin, end)
    return ", ".join(f"{numbers[name]} {name} {time:.2f}" for name, time in times.most_common(6))


def found_by(checkout: str, only: str, *, splits: bool) -> dict[str, Any]:
    """The rows of a checkout, by a process of its own."""
    path = os.pathsep.join([checkout, os.environ.get("PYTHONPATH", "")])
    output = subprocess.run(
        [sys.executable, __file__, "--rows", "--only", only, *["--split"] * splits],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    named = list(map(json.loads, output.stdout.splitlines()))
    # Rows of one name follow others that tell them apart.
    return {f"{i}": each for i, each in enumerate(named)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", help="another checkout, which is asked first")
    parser.add_argument("--only", default="", help="names of some functions of tables, by commas")
    parser.add_argument("--split", action="store_true", help="also tell times of kernels")
    parser.add_argument("--rows", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    how = {"splits": given.split}
    if given.rows:
        measure(given.only, **how)
        return
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    before = found_by(given.against, given.only, **how) if given.against else {}
    now = found_by(here, given.only, **how)
    columns = "read, ms | before, reads | now, ms | now, reads | first call, s | kernels, ms"
    print(f"| what | {columns} |")
    print("|---|---|---|---|---|---|---|")
    for key, (name, own, first, read, kernels) in now.items():
        old = before.get(key)
        text = f"{old[1] / old[3]:,.1f}" if old else ""
        numbers = f"{1e3 * read:.3f} | {text} | {1e3 * own:,.2f} | {own / read:,.1f} | {first:.1f}"
        print(f"| {name} | {numbers} | {kernels} |")


if __name__ == "__main__":
    main()
