"""What the first call of a process takes, beside the second: ``python asv_bench/first_call.py``.

A table of 25 questions about 2e7 elements in 10 chunks, each asked in a process of its own, with
all kernels on disk. ``--fresh`` asks quartiles of 1e8 elements with none on disk, beside
`np.quantile`, and the best of five of 1e7.

Seconds of the processor, and on the clock: on a busy machine the first say more. The process has
imported dask and this package, and has summed the array or the column. `__pycache__` is written, as
by an installer.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUESTIONS = {
    "median": "gs.median(x)",
    "quartiles": "gs.quantile(x, [.25, .5, .75])",
    "60 quantiles": "gs.quantile(x, MANY)",
    "quartiles, in memory": "gs.quantile(a, [.25, .5, .75])",
    "quartiles where": "gs.quantile(x, [.25, .5, .75], where=labels > 0)",
    "nanquantile of float32": "gs.nanquantile(x.astype('f4'), [.25, .5, .75])",
    "quantile of int16": "gs.quantile(x.astype('i2'), [.25, .5, .75])",
    "weighted quantile": "gs.quantile(x, .5, weights=weights, method=LOWER)",
    "order statistic": "gs.order_statistic(x, 1000)",
    "box plot": "gs.describe_boxplot(x).to_dict()",
    "box plot, in memory": "gs.describe_boxplot(a).to_dict()",
    "weighted box plot": "gs.describe_boxplot(x, weights=weights).to_dict()",
    "median along an axis": "gs.median(table, axis=0)",
    "weighted along an axis": "gs.quantile(table, .5, axis=0, weights=beside, method=LOWER)",
    "boxes along an axis": "gs.describe_boxplot(table, axis=0).to_dict()",
    "median of groups": "groupby(x, labels, groups=range(5)).median()",
    "boxes of groups": "groupby(x, labels, groups=range(5)).describe_boxplot().to_dict()",
    "groups along an axis": "groupby(table, np.arange(20_000) % 12, axis=0).median()",
    "DataFrame groupby": "frame.exact.groupby('key')['value'].median()",
    "sort": "gs.sort(x)",
    "argsort": "gs.argsort(x)",
    "mad": "robust.mad(x)",
    "iqr": "robust.iqr(x)",
    "quantile_bins": "gs.quantile_bins(x, 10)",
    "ecdf": "distribution.ecdf(x, 1000)",
}
SCRIPT = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, pandas as pd, dask, dask.array as da, dask.dataframe as dd
import dask_gpuselect as gs, dask_gpuselect.dataframe
from dask_gpuselect import distribution, robust
from dask_gpuselect.groups import groupby
MANY, LOWER = np.linspace(0, 1, 60), "inverted_cdf"
rng = np.random.default_rng(0)
a = rng.normal(0, 100, {n})
x = da.from_array(a, chunks={n} // 10)
labels = da.from_array(rng.integers(0, 5, {n}), chunks={n} // 10)
weights = da.from_array(rng.random({n}), chunks={n} // 10)
table, beside = (da.from_array(np.asarray(each).reshape(20_000, -1), chunks=(2000, -1))
                 for each in (a, weights))
if "frame" in {question!r}:
    frame = dd.from_pandas(pd.DataFrame({{"value": a, "key": np.asarray(labels)}}), npartitions=10)
    dask.compute(frame["value"].sum())  # which finds the divisions of 2e7 rows, in 2 to 5 s
dask.compute(x.sum())
for _ in range(2):
    begin = time.process_time(), time.perf_counter()
    dask.compute({question})
    print(time.process_time() - begin[0], time.perf_counter() - begin[1])
"""
FRESH = """
import time
import numpy as np, dask.array as da
import dask_gpuselect as gs
a = np.random.default_rng(0).normal(size={n})
x = da.from_array(a, chunks={n} // 10)
x.sum().compute()
def took(call):
    begin = time.process_time(), time.perf_counter()
    call()
    return time.process_time() - begin[0], time.perf_counter() - begin[1]
own = [took(lambda: gs.quantile(x, [.25, .5, .75]).compute()) for _ in range(5)]
theirs = [took(lambda: np.quantile(a, [.25, .5, .75])) for _ in range({repeat})]
for name, found in (("first", own[0]), ("best of five", min(own)), ("np.quantile", min(theirs))):
    print(f"| {{name}} |", " | ".join(f"{{each:.2f}}" for each in found), "|")
"""


def output_of(script: str, cache: str) -> str:
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": cache,
        "PYTHONPATH": str(ROOT),
        "PYTHONPYCACHEPREFIX": f"{cache}/modules",
        "PYTHONDONTWRITEBYTECODE": "",
    }
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def show_questions(n: int, chosen: str, cache: str) -> None:
    print(f"{n:,} float64 in 10 chunks, kernels on disk; seconds of the processor (on the clock)\n")
    print("| question | first call | second | first over 1.5 times the second and 1 s |")
    print("|---|---|---|---|")
    for name, question in QUESTIONS.items():
        if chosen not in name:
            continue
        script = SCRIPT.format(n=n, question=question)
        output_of(script, cache)  # so that all is on disk
        first, second = (
            list(map(float, line.split())) for line in output_of(script, cache).splitlines()
        )
        seconds = [f"{of[0]:.2f} ({of[1]:.2f})" for of in (first, second)]
        over = max(first[0] - 1.5 * second[0] - 1, 0.0)
        print(f"| {name} | {' | '.join(seconds)} | {over:.2f} |", flush=True)


def show_fresh() -> None:
    for n, repeat in ((10**8, 1), (10**7, 5)):
        print(f"\n{n:,} float64 in 10 chunks, no kernels on disk; quartiles")
        print("| call | of the processor, s | on the clock, s |\n|---|---|---|")
        with tempfile.TemporaryDirectory() as cache:
            output_of("import dask_gpuselect, numba", cache)
            print(output_of(FRESH.format(n=n, repeat=repeat), cache), end="", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=float, default=2e7)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--only", default="", help="a part of the names of questions")
    parser.add_argument("--cache", help="a folder for kernels, kept for the next run")
    given = parser.parse_args()
    if given.fresh:
        show_fresh()
    elif given.cache:
        show_questions(int(given.n), given.only, given.cache)
    else:
        with tempfile.TemporaryDirectory() as cache:
            show_questions(int(given.n), given.only, cache)


if __name__ == "__main__":
    main()
