"""Quartiles and box plots of CuPy chunks with and without keeping, by where chunks come from.

    python asv_bench/device_keeping.py [--chunks 8] [--mib 512]

Chunks that tasks make on the device, chunks that it holds, and chunks that come from the host by
`to_gpu`, each with the default ``cache-limit``, 1 GiB and 0, beside ``x.sum()`` of the same array.
Medians of ratios taken in turn; prints Markdown. Needs a CUDA device.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import cupy
import dask
import dask.array as da
import numpy as np

from dask_gpuselect import describe_boxplot, explain, quantile, to_gpu

QUARTILES = [0.25, 0.5, 0.75]


def homes(n_chunks: int, mib: int) -> dict[str, da.Array]:
    size = mib * 2**18
    on_device = cupy.random.default_rng(0).standard_normal(n_chunks * size, dtype="f4")
    persisted = da.from_array(on_device, chunks=size, asarray=False).persist(scheduler="sync")
    host = da.from_array(np.asarray(on_device.get()), chunks=size)
    meta = cupy.empty(0, "f4")
    return {
        "made by tasks": persisted.map_blocks(cupy.negative, dtype="f4", meta=meta),
        "made at random": da.map_blocks(_random, chunks=persisted.chunks, dtype="f4", meta=meta),
        "held": persisted,
        "from the host": to_gpu(host),
    }


def _random(block_info: Any = None) -> Any:
    about = block_info[None]
    rng = cupy.random.default_rng(about["chunk-location"][0])
    return rng.standard_normal(about["chunk-shape"], dtype="f4")


def seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    cupy.cuda.Device().synchronize()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print("| chunks | question | `cache-limit` | times `x.sum()` | ms | plan |")
    print("|---|---|---|---|---|---|")
    for name, x in homes(options.chunks, options.mib).items():
        for what in ("quartiles", "box"):
            for limit in (None, "1 GiB", 0):

                def ask(x: da.Array = x, what: str = what, limit: Any = limit) -> Any:
                    with dask.config.set({"dask_gpuselect.cache-limit": limit}):
                        if what == "box":
                            return describe_boxplot(x).compute()
                        return quantile(x, QUARTILES).compute()

                seconds(ask), seconds(lambda x=x: x.sum().compute())
                pairs = [
                    (seconds(ask), seconds(lambda x=x: x.sum().compute()))
                    for _ in range(options.repeat)
                ]
                ratio = statistics.median(one / other for one, other in pairs)
                took = 1e3 * statistics.median(one for one, _ in pairs)
                with dask.config.set({"dask_gpuselect.cache-limit": limit}):
                    plan = explain(x, QUARTILES)
                print(f"| {name} | {what} | {limit} | {ratio:.2f} | {took:.1f} | {plan.name} |")


if __name__ == "__main__":
    main()
