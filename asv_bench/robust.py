"""How long robust fits take, beside one pass of least squares over the same dask array; prints
Markdown.

    python asv_bench/robust.py             1e7 rows of 5 and 20 columns, with and without outliers
    python asv_bench/robust.py --gpu       CuPy rows, and the h-th residual of up to 2^30
    python asv_bench/robust.py --starts    1e7 CuPy rows: the parts of a fit; --profile tells where

A pass of least squares is ``dask.compute(x.T @ x, x.T @ y)``, on a GPU the same of plain arrays.
Rows are in chunks that are views of memory, or that are made anew in every pass ("made"). Each fit
and each pass are taken in turns. A fit that is not near the planted plane is told: of 20 columns
and 45 % of outliers 500 starts find it hardly ever.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import time
import unittest.mock
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from benchmarks.common import THREADS
from benchmarks.robust import (
    CHUNKS,
    ESTIMATORS,
    compile_rows,
    contaminated,
    fitted,
    in_chunks,
    least_squares,
)
from compare import machine, rounded, say, table

HEAD = ["rows", "columns", "outliers", "chunks", "fit", "s", "of a pass", "reads", "steps", "found"]


def seconds(call: Callable[[], Any], wait: Callable[[], None]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = call()
    wait()
    return time.perf_counter() - begin, result


def contest(
    x: Any, y: Any, case: Sequence[str], repeat: int, wait: Callable[[], None] = lambda: None
) -> Iterator[list[str]]:
    """A row for the pass, and one for each estimator."""
    passes: list[float] = []
    runs: dict[str, list[tuple[float, Any]]] = {name: [] for name in ESTIMATORS}
    for turn in range(repeat):
        print(f"{', '.join(case)}: repetition {turn + 1} of {repeat}", file=sys.stderr)
        for name, of_one in runs.items():
            passes.append(seconds(lambda: least_squares(x, y), wait)[0])
            of_one.append(seconds(lambda name=name: fitted(name, x, y), wait))  # type: ignore[misc]
    one = statistics.median(passes)
    yield [*case, "one pass of least squares", rounded(one), "1", "1", "", ""]
    for name, of_one in runs.items():
        middle = statistics.median(time for time, _ in of_one)
        result = of_one[0][1]
        planted = np.arange(1, len(result.coef_) + 1)
        is_found = "yes" if np.abs(result.coef_ - planted).max() < 0.1 else "no"
        loads, steps = str(result.n_passes_), str(result.n_iter_)
        yield [*case, name, rounded(middle), rounded(middle / one), loads, steps, is_found]


def made(n: int, p: int, share: float, chunks: int) -> tuple[da.Array, da.Array]:
    """Rows that are nowhere: each chunk is made when it is read."""
    size = -(-n // chunks)

    def rows(_: Any, block_info: Any = None) -> Any:
        x, y = contaminated(size, p, share, seed=block_info[None]["chunk-location"][0])
        return np.column_stack([x, y])

    empty = da.zeros((size * chunks, p + 1), chunks=(size, p + 1))
    full = empty.map_blocks(rows, dtype=float, meta=np.empty((0, 0)))
    return full[:, :-1], full[:, -1]


def as_case(text: str) -> tuple[int, float]:
    """Columns and share of outliers."""
    p, share = text.split(":")
    return int(p), float(share)


def on_cpu(arguments: argparse.Namespace) -> None:
    say(machine())
    lines: list[list[str]] = []
    with dask.config.set(scheduler="threads", num_workers=THREADS):
        compile_rows()
        for p, share in map(as_case, arguments.cases):
            about = (f"{arguments.rows:,}", str(p), f"{share:.0%}")
            rows = in_chunks(*contaminated(arguments.rows, p, share), CHUNKS)
            lines += contest(*rows, (*about, "views"), arguments.repeat)
            del rows
        p, share = as_case(arguments.cases[0])
        about = (f"{arguments.rows:,}", str(p), f"{share:.0%}", "made")
        lines += contest(*made(arguments.rows, p, share, CHUNKS), about, 1)
    say(table(HEAD, lines))


# --- On a GPU


def on_gpu(arguments: argparse.Namespace) -> None:
    import cupy

    from dask_gpuselect import order_statistic

    wait = cupy.cuda.get_current_stream().synchronize
    lines: list[list[str]] = []
    for n, p in ((10**7, 5), (10**8, 5)):
        x, y = map(cupy.asarray, contaminated(n, p, 0.4, "f4"))
        for name in ESTIMATORS:
            fitted(name, x, y)
        lines += contest(x, y, (f"{n:,}", str(p), "40%", "plain"), arguments.repeat, wait)
        del x, y
        cupy.get_default_memory_pool().free_all_blocks()
    say(table(HEAD, lines))
    print("The h-th of all absolute residuals\n")
    steps = []
    for bits, dtype in ((24, "f8"), (27, "f8"), (29, "f8"), (30, "f4"), (30, "f8")):
        residuals = abs(cupy.random.default_rng(0).standard_normal(1 << bits, dtype=dtype))
        median_of = partial(order_statistic, residuals, (residuals.size + 7) // 2 - 1)
        calls = {"sum": residuals.sum, "order": median_of}
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(12):
            for name, call in calls.items():
                times[name].append(seconds(call, wait)[0])
        one, step = (statistics.median(of_one[1:]) for of_one in times.values())
        ms = (rounded(1e3 * one), rounded(1e3 * step))
        steps.append([f"2^{bits}", dtype, *ms, rounded(step / one)])
        del residuals, median_of, calls
        cupy.get_default_memory_pool().free_all_blocks()
    say(table(["residuals", "dtype", "`r.sum()`, ms", "h-th smallest, ms", "reads"], steps))


# --- The starts of a fit on a GPU


def starts_on_gpu(arguments: argparse.Namespace) -> None:
    """Fits of plain CuPy rows: all, and the part of them that is spent in starts. Each part ends
    with a wait for the device."""
    import cupy

    from dask_gpuselect.robust import fitting

    wait = cupy.cuda.get_current_stream().synchronize
    spent: dict[str, float] = {}

    def timed(name: str, call: Callable[..., Any], *about: Any, **how: Any) -> Any:
        wait()
        time_of_call, result = seconds(lambda: call(*about, **how), wait)
        spent[name] = spent.get(name, 0.0) + time_of_call
        return result

    parts = {"_sampled": "sample", "best_fits": "starts", "_concentrated": "all rows"}
    n, lines = arguments.rows, list[list[str]]()
    x, y = map(cupy.asarray, contaminated(n, 5, 0.4, "f4"))
    for name in ESTIMATORS:
        fitted(name, x, y)  # compiles
        bare = [seconds(lambda name=name: fitted(name, x, y), wait) for _ in range(5)]  # type: ignore[misc]
        with unittest.mock.patch.multiple(
            fitting,
            **{
                each: partial(timed, label, getattr(fitting, each)) for each, label in parts.items()
            },
        ):
            spent.clear()
            fitted(name, x, y)
        middle, result = statistics.median(time for time, _ in bare), bare[0][1]
        is_found = np.abs(result.coef_ - np.arange(1, 6)).max() < 0.1
        shares = [f"{1e3 * spent[label]:.1f}" for label in parts.values()]
        loads = str(result.n_passes_)
        lines.append([name, f"{1e3 * middle:.1f}", *shares, loads, "yes" if is_found else "no"])
        if arguments.profile:
            profile = cProfile.Profile()
            profile.runcall(fitted, name, x, y)
            pstats.Stats(profile).sort_stats("tottime").print_stats(35)
    print(f"{n:,} rows of float32, 5 columns, 40 % outliers\n")
    say(
        table(["fit", "ms", *(f"{label}, ms" for label in parts.values()), "reads", "found"], lines)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    add = parser.add_argument
    add("--gpu", action="store_true", help="on one CUDA device")
    add("--starts", action="store_true", help="on one CUDA device: the share of the starts")
    add("--profile", action="store_true", help="with --starts: what functions take")
    add("--rows", type=int, default=10_000_000, help="1e7")
    add("--cases", nargs="+", default=["5:0.45", "5:0", "20:0.1"], help="columns:outliers")
    add("--repeat", type=int, default=3, help="repetitions; 3")
    parsed = parser.parse_args(arguments)
    (starts_on_gpu if parsed.starts else on_gpu if parsed.gpu else on_cpu)(parsed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
