"""Time and memory of quantiles along an axis, by how large a column of chunks is for its limit;
prints Markdown.

    python asv_bench/column_limits.py                    images and long lanes, chunks that are made
    python asv_bench/column_limits.py --held             the same in memory
    python asv_bench/column_limits.py --questions quartiles

The data of a table are always the same; ``dask_gpuselect.column-limit`` differs. Each row is
measured in a process of its own: the least of some times, and what its memory grows by at most.
Times are also given in units of the first row, whose columns are the furthest below the limit, and
as steps: in units of the row before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
from axis import peak_memory
from benchmarks.common import THREADS, compute, shrunk
from compare import WrongAnswerError, machine, rounded, say, table
from numpy.typing import NDArray

from dask_gpuselect import describe_boxplot, explain, median, quantile
from dask_gpuselect.boxplot.questions import BoxQuestion
from dask_gpuselect.engine.lane_plans import plan_lanes
from dask_gpuselect.maths.boxes import Rule

RATIOS = (0.1, 0.5, 0.9, 1.1, 1.5, 2.5, 4.0, 7.0, 10.0)
"""Of a column to its limit."""

SHAPES: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "images": ((3650, shrunk(150), shrunk(150)), (365, shrunk(150), shrunk(150))),
    "columns of images": ((3650, shrunk(150), shrunk(150)), (365, shrunk(50), shrunk(50))),
    "long lanes": ((shrunk(8_000_000), 10), (shrunk(400_000), 10)),
}
"""Float32, reduced along the first axis, and their chunks."""

QUESTIONS: Mapping[str, Any] = {
    "median": lambda x: median(x, axis=0),
    "quartiles": lambda x: quantile(x, [0.25, 0.5, 0.75], axis=0),
    "boxes": lambda x: describe_boxplot(x, axis=0),
}

RULE = Rule(1.5, autorange=False, max_fliers=1000, method="linear")

SLACK = 32 << 20
"""Bytes of Python, dask and the graph."""


def noise(block: NDArray[Any], base: NDArray[Any], block_id: tuple[int, ...]) -> NDArray[Any]:
    """A chunk that is made about as fast as one is read from a disk's cache."""
    del block
    return base + np.float32(np.random.default_rng(block_id).standard_normal() / 8)


def lazy(shape: tuple[int, ...], chunks: tuple[int, ...], *, held: bool) -> da.Array:
    base = np.random.default_rng(0).standard_normal(chunks, np.float32)
    blocks = da.zeros(shape, chunks=chunks, dtype="f4")
    # By name: a base in the graph would be hashed, and counted as data.
    x = blocks.map_blocks(noise, base=base, dtype="f4", meta=np.empty((0,) * len(shape), "f4"))
    return x.persist() if held else x


def plan_of(x: da.Array, question: str) -> Any:
    if question == "boxes":
        return plan_lanes(x, (0,), BoxQuestion.of(RULE, x.dtype, omits_nan=True))
    return explain(x, 0.5 if question == "median" else [0.25, 0.5, 0.75], axis=0)


def measured(name: str, question: str, ratio: float, *, held: bool, repeat: int) -> dict[str, Any]:
    """One row, in this process."""
    shape, chunks = SHAPES[name]
    ask = QUESTIONS[question]
    x = lazy(shape, chunks, held=held)
    column = shape[0] * int(np.prod(chunks[1:])) * x.dtype.itemsize
    limit = int(column / ratio)
    # So many elements that kernels answer, which are compiled here.
    small = lazy((shape[0] // 4, *shape[1:]), chunks, held=held)
    for few in (column // 8, 1 << 30):
        with dask.config.set({"dask_gpuselect.column-limit": few}):
            compute(ask(small))
    with dask.config.set({"dask_gpuselect.column-limit": limit}):
        plan = plan_of(x, question)
        answer = ask(x)
    before = peak_memory()
    seconds, cpu = [], []
    for _ in range(repeat):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        compute(answer)
        seconds.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    chunk = int(np.prod(chunks)) * x.dtype.itemsize
    return {
        "plan": f"{plan.name}, {getattr(plan, 'slabs', 1)}",
        "reads": plan.loads + plan.slabs * (question == "boxes" and plan.name == "passes"),
        "seconds": min(seconds),
        "cpu": min(cpu),
        "grown": peak_memory() - before,
        "allowed": THREADS * (max(limit, chunk) + 2 * chunk) + plan.gathered_bytes + SLACK,
        "limit": limit,
    }


def in_a_process(name: str, question: str, ratio: float, *options: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--row", name, question, str(ratio), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def rows_of(
    name: str, question: str, ratios: Sequence[float], options: Sequence[str]
) -> Iterator[list[str]]:
    first: dict[str, Any] = {}
    before: dict[str, Any] = {}
    for ratio in ratios:
        row = in_a_process(name, question, ratio, *options)
        print(f"{name}, {question}: {ratio} of the limit", file=sys.stderr, flush=True)
        first, before = first or row, before or row
        if row["grown"] > row["allowed"]:
            raise WrongAnswerError(f"{name}, {question}, {ratio}: held {row['grown']:,} bytes")
        yield [
            f"{ratio:g}",
            row["plan"],
            str(row["reads"]),
            rounded(row["seconds"]),
            rounded(row["cpu"]),
            *(rounded(row[kind] / first[kind]) for kind in ("seconds", "cpu")),
            *(rounded(row[kind] / before[kind]) for kind in ("seconds", "cpu")),
            rounded(row["grown"] / 1e6),
            rounded(row["allowed"] / 1e6),
        ]
        before = row


HEAD = (
    "column / limit",
    "plan, slabs",
    "reads",
    "s",
    "CPU s",
    "s / first",
    "CPU / first",
    "step, s",
    "step, CPU",
    "MB held",
    "MB allowed",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if more memory was held than may be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    add = parser.add_argument
    add("--held", action="store_true", help="data in memory")
    add("--questions", nargs="+", choices=QUESTIONS, default=["median", "boxes"])
    add("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    add("--ratios", nargs="+", type=float, default=RATIOS, help="of a column to its limit")
    add("--repeat", type=int, default=3, help="times, of which the least counts; 3")
    add("--row", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.row:
        name, question, ratio = chosen.row
        result = measured(name, question, float(ratio), held=chosen.held, repeat=chosen.repeat)
        print(json.dumps(result))
        return 0
    options = ["--repeat", str(chosen.repeat), *(["--held"] if chosen.held else [])]
    say(machine())
    try:
        for name in chosen.shapes:
            shape, chunks = SHAPES[name]
            for question in chosen.questions:
                print(f"{name}: {question} of {shape} float32 in chunks of {chunks}\n")
                say(table(HEAD, list(rows_of(name, question, chosen.ratios, options))))
    except WrongAnswerError as error:
        print(f"column_limits: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
