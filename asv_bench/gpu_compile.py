"""What compiling CUDA kernels takes: ``python asv_bench/gpu_compile.py``.

First calls of a process, in the order of the table: each compiles the kernels that no call before
it has needed. Twice: with an empty folder for CuPy's kernels on disk, and by another process with
what the first one has left there. Seconds on the clock; a float32 dtype throughout.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

Q = [0.25, 0.5, 0.75]
N = 1 << 26


def first_calls() -> dict[str, Callable[[], Any]]:
    import cupy as cp
    import dask.array as da

    import dask_gpuselect as gs

    x = cp.random.default_rng(1).standard_normal(N, dtype=cp.float32)
    lazy = da.from_array(x, chunks=N // 8, asarray=False)
    calls: dict[str, Callable[[], Any]] = {
        "median of 2^20": lambda: gs.median(x[: 1 << 20]),
        "median of 2^26": lambda: gs.median(x),
        "box plot of 2^26": lambda: gs.describe_boxplot(x).boxes,
    }
    for n in (365, 3650):
        lanes = x[: n * 10_000].reshape(n, 100, 100)
        calls[f"medians of lanes of {n}"] = lambda lanes=lanes: gs.median(lanes, axis=0)  # type: ignore[misc]
        calls[f"box plots of lanes of {n}"] = lambda lanes=lanes: (  # type: ignore[misc]
            gs.describe_boxplot(lanes, axis=0).tables
        )
    calls["quartiles of 8 chunks"] = lambda: gs.quantile(lazy, Q).compute(scheduler="sync")
    return calls


def measured() -> list[tuple[str, float, list[tuple[str, float]]]]:
    """What each first call takes in this process, and each of the kernels that it loads."""
    import cupy as cp

    from dask_gpuselect.kernels.cuda import launch

    compiled: list[tuple[str, float]] = []
    module = launch._module

    def timed(name: str, dtype: Any, device: int, defined: Any) -> Any:
        made = module(name, dtype, device, defined)
        start = time.perf_counter()
        made.compile()
        compiled.append((name, time.perf_counter() - start))
        return made

    launch._module = timed
    calls, rows = first_calls(), []
    cp.cuda.Device().synchronize()
    for what, call in calls.items():
        n, start = len(compiled), time.perf_counter()
        call()
        cp.cuda.Device().synchronize()
        rows.append((what, time.perf_counter() - start, compiled[n:]))
    return rows


def by_another_process(folder: str) -> Any:
    """`measured`, with this folder for CuPy's kernels."""
    command = [sys.executable, __file__, "--measure"]
    environment = os.environ | {"CUPY_CACHE_DIR": folder}
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="print what `measured` finds")
    if parser.parse_args().measure:
        print(json.dumps(measured()))
        return
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = by_another_process(folder), by_another_process(folder)
    print("| first call | cold, s | of kernels | slowest kernel | warm, s | of kernels |")
    print("|---" * 6 + "|")
    for (what, took, kernels), (_, again, loaded) in zip(cold, warm, strict=True):
        of_kernels, of_loaded = (sum(each for _, each in some) for some in (kernels, loaded))
        name, slowest = max(kernels, key=lambda kernel: kernel[1], default=("none", 0.0))
        print(
            f"| {what} | {took:.2f} | {of_kernels:.2f} | `{name}` {slowest:.2f} "
            f"| {again:.2f} | {of_loaded:.2f} |"
        )


if __name__ == "__main__":
    main()
