"""What compiling CUDA kernels takes, with no kernels on disk: ``python asv_bench/gpu_compile.py``.

First calls of a process, in the order of the table: each compiles the kernels that no call before
it has needed. Seconds on the clock; a float32 dtype throughout.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ["CUPY_CACHE_DIR"] = tempfile.mkdtemp()  # CuPy looks at it when it is imported

import cupy as cp
import dask.array as da

import dask_gpuselect as gs
from dask_gpuselect.kernels.cuda import launch

Q = [0.25, 0.5, 0.75]
N = 1 << 26


def first_calls() -> dict[str, Callable[[], Any]]:
    x = cp.random.default_rng(1).standard_normal(N, dtype=cp.float32)
    lazy = da.from_array(x, chunks=N // 8, asarray=False)
    calls: dict[str, Callable[[], Any]] = {
        "median of 2^20": lambda: gs.median(x[: 1 << 20]),
        "median of 2^26": lambda: gs.median(x),
        "box plot of 2^26": lambda: gs.describe_boxplot(x).boxes,
    }
    for n in (365, 3650):
        lanes = x[: n * 10_000].reshape(n, 100, 100)
        calls[f"medians of lanes of {n}"] = lambda lanes=lanes: gs.median(lanes, axis=0)
        calls[f"box plots of lanes of {n}"] = lambda lanes=lanes: (
            gs.describe_boxplot(lanes, axis=0).tables
        )
    calls["quartiles of 8 chunks"] = lambda: gs.quantile(lazy, Q).compute(scheduler="sync")
    return calls


def main() -> None:
    compiled: list[tuple[float, str, launch.Defined]] = []
    module = launch._module

    def timed(name: str, dtype: Any, device: int, defined: launch.Defined) -> Any:
        made = module(name, dtype, device, defined)
        start = time.perf_counter()
        made.compile()
        compiled.append((time.perf_counter() - start, name, defined))
        return made

    launch._module = timed
    print("| first call | all of it | compiling | kernels |\n|---|---|---|---|")
    for what, call in first_calls().items():
        n, start = len(compiled), time.perf_counter()
        call()
        cp.cuda.Device().synchronize()
        took, mine = time.perf_counter() - start, compiled[n:]
        names = ", ".join(name for _, name, _ in mine)
        print(f"| {what} | {took:.2f} | {sum(each[0] for each in mine):.2f} | {names} |")
    print("\n| kernel | made for | seconds |\n|---|---|---|")
    for seconds, name, defined in sorted(compiled, reverse=True):
        made_for = " ".join(f"{key}={value}" for key, value in defined)
        print(f"| {name} | {made_for} | {seconds:.2f} |")


if __name__ == "__main__":
    main()
