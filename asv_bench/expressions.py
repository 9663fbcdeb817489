"""Quartiles of arrays that are expressions, beside those of other dask arrays; prints Markdown.

    python asv_bench/expressions.py [--repeat 5]

Each kind of array has a process of its own, for query planning is chosen when dask is imported.
Times are medians over the repetitions, on two threads, of chunks that are copied from memory.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("dask", "query-planning", "dask-array")
SHAPES = ((1_000_000, 100), (1_000, 5_000))  # elements of a chunk, and chunks


class Held:
    """An array that dask takes for a file."""

    ndim, dtype = 1, np.dtype("f8")

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.values, self.shape = values, values.shape

    def __getitem__(self, index: Any) -> NDArray[np.float64]:
        return self.values[index].copy()

    def __dask_tokenize__(self) -> tuple[str, int]:
        return "held", len(self.values)


def timed(compute: Callable[[], Any]) -> float:
    gc.collect()
    begin = time.perf_counter()
    compute()
    return time.perf_counter() - begin


def measure(kind: str, repeat: int) -> None:
    import dask

    from dask_gpuselect import quantile

    da = import_module("dask_array" if kind == "dask-array" else "dask.array")
    dask.config.set(scheduler="threads", num_workers=2)
    for size, n_chunks in ((1000, 10), *SHAPES):
        values = np.random.default_rng(0).normal(size=size * n_chunks)
        x = da.from_array(Held(values), chunks=size, meta=np.empty(0))
        sums, ours = [], []
        for _ in range(repeat):
            ours.append(timed(lambda x=x: quantile(x, [0.25, 0.5, 0.75]).compute()))
            sums.append(timed(lambda x=x: x.sum().compute()))
        if n_chunks > 10:  # the first compiles
            quartiles, total = statistics.median(ours), statistics.median(sums)
            print(f"| {kind} | {n_chunks:,} x {size:,} | {quartiles:.2f} | {total:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        measure(options.kind, options.repeat)
        return
    print("| arrays | chunks | quartiles, s | `x.sum()`, s |\n|---|---|---|---|", flush=True)
    for kind in KINDS:
        subprocess.run(
            [sys.executable, __file__, "--repeat", str(options.repeat), "--kind", kind],
            env=os.environ | {"DASK_ARRAY__QUERY_PLANNING": str(kind == "query-planning")},
            check=True,
        )


if __name__ == "__main__":
    main()
