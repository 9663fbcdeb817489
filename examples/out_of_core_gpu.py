"""Compute quartiles of data on the host that are larger than the allowed memory of the GPU.

    python examples/out_of_core_gpu.py --gigabytes 32 --device-gb 4

limits CuPy to 4 GB of device memory, and computes the quartiles of 32 GB of float32 on the host.
`to_gpu` copies chunk after chunk through pinned memory while others are computed, and the GPU never
holds more than a few of them. The picture shows the device memory in use over time. Without a GPU,
the same program generates NumPy chunks when they are read, and draws their memory. The answers are
checked by counting.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np

from dask_gpuselect import quantile, to_gpu

QUANTILES = [0.25, 0.5, 0.75]


def device(limit: int) -> Any:
    """Return CuPy with a limit of its memory in bytes, or None without a GPU."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except (ImportError, RuntimeError):  # no CuPy, no driver, no device
        return None
    cupy.get_default_memory_pool().set_limit(size=limit)
    return cupy


class Memory:
    """A context whose thread records how many bytes are in use."""

    def __init__(self, in_use: Callable[[], int]) -> None:
        self.in_use = in_use
        self.samples: list[tuple[float, int]] = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self) -> None:
        begin = time.perf_counter()
        while not self.stop.wait(0.005):
            self.samples.append((time.perf_counter() - begin, self.in_use()))

    def __enter__(self) -> Memory:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()


def host_bytes() -> int:
    """Return what Python and NumPy have allocated, which must be traced."""
    return tracemalloc.get_traced_memory()[0]


def draw(path: Path, samples: list[tuple[float, int]], nbytes: int, limit: int, what: str) -> None:
    """Draw the memory in use, and the size of the data."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    seconds, in_use = np.array(samples).reshape(-1, 2).T
    figure, axis = pyplot.subplots(figsize=(8, 3.4), layout="constrained")
    axis.fill_between(seconds, in_use / 1e9, step="mid", color="tab:blue", label=what)
    axis.axhline(nbytes / 1e9, color="black", label="the data")
    axis.axhline(limit / 1e9, color="tab:red", linestyle="--", label="the limit")
    axis.set(xlabel="seconds", ylabel="GB", title="Memory while the quartiles are computed")
    axis.legend(frameon=False, loc="center right")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add: Any = parser.add_argument
    add("--output", type=Path, default=Path("out_of_core_gpu.png"), help="picture, PNG or JPEG")
    add("--gigabytes", type=float, default=8.0, help="size of the data, in 1e9 bytes (8)")
    add("--device-gb", type=float, default=1.0, help="limit of device memory, in 1e9 bytes (1)")
    add("--chunks", type=int, default=100, help="number of chunks (100)")
    add("--threads", type=int, default=2, help="number of threads (2)")
    options = parser.parse_args(arguments)
    import matplotlib  # noqa: F401 -- or raise before anything is computed

    if min(options.gigabytes, options.device_gb) <= 0 or min(options.chunks, options.threads) < 1:
        parser.error("needs data, device memory, a chunk and a thread")
    limit = int(options.device_gb * 1e9)
    cupy = device(limit)
    n = int(options.gigabytes * 1e9 / 4)
    rng = da.random.default_rng(2011)
    x = rng.standard_normal(n, chunks=-(-n // options.chunks), dtype="f4")
    if cupy:
        x = x.persist()
    moved = to_gpu(x) if cupy else x
    what = "device memory in use" if cupy else "host memory in use"
    lazy = quantile(moved, QUANTILES, method="lower")
    with dask.config.set(scheduler="threads", num_workers=options.threads):
        quantile(moved[: moved.chunks[0][0]], QUANTILES).compute()  # compiles
        tracemalloc.start()
        with Memory(cupy.get_default_memory_pool().used_bytes if cupy else host_bytes) as memory:
            begin = time.perf_counter()
            quartiles = lazy.compute()
            seconds = time.perf_counter() - begin
        tracemalloc.stop()
        total = time.perf_counter()
        moved.sum().compute()
        total = time.perf_counter() - total
    peak = max((each for _, each in memory.samples), default=0)
    print(f"{x.nbytes / 1e9:.2f} GB of float32 in {x.npartitions} chunks: {seconds:.2f} s")
    print(f"at most {peak / 1e9:.2f} GB, {what}; x.sum() takes {total:.2f} s")
    for q, value in zip(QUANTILES, quartiles.tolist(), strict=True):
        below, upto = dask.compute((x < value).sum(), (x <= value).sum())
        if not below <= int(q * (n - 1)) < upto:
            print(f"quantile {q}: {value!r} is WRONG")
            return 1
    print("the quartiles are exact: the counts of smaller elements prove it")
    draw(options.output, memory.samples, x.nbytes, limit, what)
    print(f"saved {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
