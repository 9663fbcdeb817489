"""Quartiles of a column that is read from Parquet, by time and peak memory; prints Markdown.

    python asv_bench/dataframe.py                          1e8 float64 in 100 partitions
    python asv_bench/dataframe.py --dtype int64 --limit 1.5
    python asv_bench/dataframe.py --rows 10_000_000 --runs 3 --store DIR

Each run is a process of its own, and the contenders take turns. A time is that of the call and its
computation, without imports; a small frame is asked before, so that everything is compiled. The
peak is that of the process's resident memory. Every answer is compared with ``np.quantile`` of the
whole column, which is found once, when the files are written. ``--limit`` (GB) is what a process
may hold: one that has more is ended, and DuckDB is told before. Needs Linux and the extra
``bench``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.common import THREADS, Values
from compare import WrongAnswerError, machine, rounded, say, table

Q = (0.25, 0.5, 0.75)
OURS, DASK = "exact", "dask, approximate"
WARM_UP = 100_000  # rows


def made(dtype: str, i: int, size: int) -> Values:
    """The elements of a partition."""
    random = np.random.default_rng([7, i])
    if dtype == "float64":
        return random.standard_normal(size)
    return random.integers(-(10**12), 10**12, size)


def write(store: Path, rows: int, partitions: int, dtype: str) -> list[float]:
    """Write the files if they are not there, and return the right answer."""
    answer = store / "answer.json"
    if not answer.exists():
        import pyarrow as pa
        from pyarrow import parquet

        store.mkdir(parents=True, exist_ok=True)
        size = -(-rows // partitions)
        whole = np.empty(size * partitions, dtype)
        for i in range(partitions):
            part = whole[i * size : (i + 1) * size] = made(dtype, i, size)
            other = np.arange(size) + i * size  # a column that nobody asks for
            parquet.write_table(pa.table({"x": part, "row": other}), store / f"{i:04}.parquet")
        (store / "small").mkdir(exist_ok=True)
        few = pa.table({"x": made(dtype, 0, WARM_UP), "row": np.arange(WARM_UP)})
        for i in range(2):
            parquet.write_table(few, store / "small" / f"{i}.parquet")
        answer.write_text(json.dumps(np.quantile(whole, Q).tolist()))
    result: list[float] = json.loads(answer.read_text())
    return result


# --- Contenders: from a folder to the quartiles ---------------------------------------------------


def exact(folder: Path) -> Any:
    import dask.dataframe as dd

    import dask_gpuselect.dataframe  # noqa: F401 -- registers the accessor

    return dd.read_parquet(f"{folder}/*.parquet")["x"].exact.quantile(list(Q)).compute()


def approximate(folder: Path) -> Any:
    import dask.dataframe as dd

    return dd.read_parquet(f"{folder}/*.parquet")["x"].quantile(list(Q)).compute()


def pandas(folder: Path) -> Any:
    import pandas as pd

    files = sorted(folder.glob("*.parquet"))
    return pd.read_parquet(files, columns=["x"])["x"].quantile(list(Q))


def polars(folder: Path) -> Any:
    import polars as pl

    x = pl.col("x")
    questions = [x.quantile(q, interpolation="linear").alias(str(q)) for q in Q]
    return (
        pl.scan_parquet(f"{folder}/*.parquet").select(questions).collect(engine="streaming").row(0)
    )


def duckdb(folder: Path) -> Any:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {THREADS}")
        if "DUCKDB_LIMIT" in os.environ:
            connection.execute(f"SET memory_limit = '{os.environ['DUCKDB_LIMIT']}'")
        questions = f"SELECT quantile_cont(x, {list(Q)}) FROM '{folder}/*.parquet'"
        result = connection.execute(questions).fetchone()
        assert result is not None
        return result[0]


CONTENDERS: Mapping[str, Callable[[Path], Any]] = {
    OURS: exact,
    DASK: approximate,
    "pandas, the column in memory": pandas,
    "Polars, streaming": polars,
    "DuckDB, quantile_cont": duckdb,
}


# --- A run, in a process of its own ---------------------------------------------------------------


def run_here(name: str, store: Path) -> dict[str, Any]:
    import dask
    import pyarrow as pa

    pa.set_cpu_count(THREADS)
    with dask.config.set(scheduler="threads", num_workers=THREADS):
        CONTENDERS[name](store / "small")
        before = peak()
        begin, begin_cpu = time.perf_counter(), time.process_time()
        answer = CONTENDERS[name](store)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    values = [float(value) for value in np.asarray(answer)]
    return {"seconds": seconds, "cpu": cpu, "peak": peak(), "before": before, "answer": values}


def peak(process: int | str = "self") -> int:
    """The most memory that a process has had since it was forked; 0 if it has ended."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def run_apart(name: str, store: Path, limit: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--run", name, "--store", str(store)]
    return limited(command, name, limit)


def limited(
    command: Sequence[str],
    name: str,
    limit: float,
    *,
    threads: int = THREADS,
    seconds: float = math.inf,
) -> dict[str, Any]:
    """What a process prints as JSON in its last line; "failed" alone if it had more memory than a
    limit (GB; 0 for none) or took longer than some seconds."""
    more = {each: str(threads) for each in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS")}
    if limit:
        more["DUCKDB_LIMIT"] = f"{int(850 * limit)}MB"  # it counts its buffers alone
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        run = subprocess.Popen(command, stdout=output, stderr=errors, env={**os.environ, **more})
        end = time.monotonic() + seconds
        while run.poll() is None:
            has_too_much = limit and peak(run.pid) > limit * 1e9
            if has_too_much or time.monotonic() > end:
                run.kill()
                run.wait()
                what = f"{limit:g} GB" if has_too_much else f"{seconds:g} s"
                return {"failed": f"more than {what}"}
            time.sleep(0.01)
        output.seek(0)
        errors.seek(0)
        if run.returncode:
            message = errors.read()
            if limit and "OutOfMemory" in message:  # DuckDB's own, of its own limit
                return {"failed": f"more than {limit:g} GB"}
            raise RuntimeError(f"{name}: {message}")
        result: dict[str, Any] = json.loads(output.read().splitlines()[-1])
        return result


# --- The tables -----------------------------------------------------------------------------------


def rows_of(runs: Mapping[str, list[dict[str, Any]]], right: list[float]) -> Iterator[list[str]]:
    for name, own in runs.items():
        if failed := [run["failed"] for run in own if "failed" in run]:
            yield [f"`{name}`", failed[0], "", "", "", ""]
            continue
        pairs = zip(own, runs[DASK], strict=True)
        ratios = [run["seconds"] / base["seconds"] for run, base in pairs if "seconds" in base]
        answer = own[0]["answer"]
        if name == OURS and answer != right:
            raise WrongAnswerError(f"{answer} for {right}")
        error = max(abs(a - b) for a, b in zip(answer, right, strict=True))
        yield [
            f"`{name}`",
            rounded(statistics.median(run["seconds"] for run in own)),
            rounded(statistics.median(run["cpu"] for run in own)),
            rounded(statistics.median(ratios)) if ratios else "",
            f"{max(run['peak'] for run in own) / 1e6:,.0f}",
            "exact" if error == 0 else f"{error:.2g} off",
        ]


def compare(arguments: argparse.Namespace) -> None:
    shape = (arguments.rows, arguments.partitions, arguments.dtype)
    name = "-".join(map(str, shape))
    store = Path(arguments.store or tempfile.gettempdir()) / f"quartiles-{name}"
    right = write(store, *shape)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.contenders}
    for i in range(arguments.runs):
        for name, own in runs.items():
            own.append(run_apart(name, store, arguments.limit))
            print(f"{name}, run {i + 1}: {own[-1]}", file=sys.stderr, flush=True)
    limit = f", at most {arguments.limit:g} GB a process" if arguments.limit else ""
    print(
        f"Quartiles of {shape[0]:,} {shape[2]} in {shape[1]} files of Parquet, {THREADS} threads, "
        f"medians of {arguments.runs} runs{limit}.\n"
    )
    say(machine("pandas", "pyarrow", "polars", "duckdb"))
    head = ["", "seconds", "CPU seconds", f"time / {DASK}", "peak, MB", "answer"]
    say(table(head, list(rows_of(runs, right))))


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if an answer of dask_gpuselect is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    add = parser.add_argument
    add("--rows", type=int, default=100_000_000, help="in all; 1e8")
    add("--partitions", type=int, default=100, help="files; 100")
    add("--dtype", choices=["float64", "int64"], default="float64")
    add("--runs", type=int, default=5, help="of each contender; 5")
    add("--limit", type=float, default=0.0, help="GB that a process may hold; none")
    add("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), metavar="NAME")
    add("--store", default="", help="a folder for the files, which stay there")
    add("--run", choices=CONTENDERS, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.run:
        print(json.dumps(run_here(chosen.run, Path(chosen.store))))
        return 0
    try:
        compare(chosen)
    except WrongAnswerError as error:
        print(f"dataframe: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
