"""What the first calls of a process take, with no kernels on disk and with all of them:
``python asv_bench/first_call.py``.

Each call stands in a process of its own after the imports of NumPy and dask, and after a sum of the
same array, so that only what this package adds is timed. Seconds on the clock, and of the
processor: on a busy machine the second say more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

CALLS = {
    "median": "gs.median(x).compute()",
    "quantile": "gs.quantile(x, [0.1, 0.9]).compute()",
    "boxes": "gs.describe_boxplot(x).boxes",
    "axis": "gs.median(x.reshape(1000, -1), axis=0).compute()",
    "all": "gs.median(x).compute(); gs.quantile(x, [0.1, 0.9]).compute(); "
    "gs.describe_boxplot(x).boxes",
}
SCRIPT = """
import sys, time
import numpy as np, dask.array as da
x = da.random.default_rng(0).random({n}, chunks={n} // 4).persist()
x.sum().compute()
start = time.perf_counter(), time.process_time()
import dask_gpuselect as gs
imported = time.perf_counter(), time.process_time()
{now}
{call}
end = time.perf_counter(), time.process_time()
print(*(b - a for a, b in zip(start, imported)), *(b - a for a, b in zip(imported, end)))
"""
AT_ONCE = "from dask_gpuselect.kernels import compiling; now = compiling.at_once(); now.__enter__()"
WAYS = {"as it is": "", "compiled at once": AT_ONCE}
ROOT = Path(__file__).parents[1]


def seconds(call: str, now: str, cache: str, n: int) -> list[float]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT.format(call=call, now=now, n=n)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [float(each) for each in done.stdout.split()]


def main() -> None:
    n = int(float(sys.argv[1])) if len(sys.argv) > 1 else 4_000_000
    print(f"{n:,} float64 in four chunks; seconds on the clock (of the processor)\n")
    print("| call | way | kernels on disk | import | call |\n|---|---|---|---|---|")
    for name, call in CALLS.items():
        for way, now in WAYS.items():
            with tempfile.TemporaryDirectory() as cache:
                for known in ("none", "all"):
                    if known == "all":
                        seconds(call, AT_ONCE, cache, n)
                    found = [
                        seconds(call, now, cache, n) for _ in range(1 if known == "none" else 3)
                    ]
                    a, b, c, d = (sorted(each)[len(each) // 2] for each in zip(*found, strict=True))
                    told = f"{a:.2f} ({b:.2f}) | {c:.2f} ({d:.2f})"
                    print(f"| {name} | {way} | {known} | {told} |", flush=True)


if __name__ == "__main__":
    main()
