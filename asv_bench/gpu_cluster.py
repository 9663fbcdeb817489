"""What quartiles of data in the memory of several GPUs cost, beside `x.sum()`; prints Markdown.

    python asv_bench/gpu_cluster.py                     137 GB and 34 GB of float32 on two GPUs
    python asv_bench/gpu_cluster.py --only small --profile
    python asv_bench/gpu_cluster.py --cpu               64 MB on two processes of the CPU
    python asv_bench/gpu_cluster.py --data made axis --only small
                                    chunks that tasks make, and a median along an axis

The chunks are made on the workers and stay there; those of `--data made` are made for every read.
All contestants run in every repetition, in alternating order, and a ratio is taken within a
repetition; what is printed is the median over the repetitions. A time is all that a user waits:
building the graph, optimising, sending and computing it. Answers are checked by counting: the
program ends with 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
from benchmarks.common import QUARTILES, optimized
from clusters import sent, started
from compare import (
    Runs,
    WrongAnswerError,
    machine,
    median_time,
    ratio,
    rounded,
    say,
    table,
    take_turns,
)
from distributed import Client, get_task_stream, wait
from distributed.utils import key_split

from dask_gpuselect import quantile

SIZES = {"large": 1 << 35, "small": 1 << 33}
"""Elements: 137 GB, and 34 GB."""
CPU_SIZES = {"small": 1 << 24}

SUM = "`x.sum()`"

DATA = {
    "held": "in the memory of the workers",
    "made": "that tasks make",
    "axis": "in the memory of the workers, of three dimensions",
}

Contestants = Mapping[str, Callable[[], da.Array]]


# --- Data


def make(module: str, size: int, block_id: tuple[int]) -> Any:
    """A chunk of normal numbers, where it is needed."""
    import importlib

    xp = importlib.import_module(module)
    return xp.random.default_rng([2011, *block_id]).standard_normal(size, dtype=xp.float32)


def normal(module: str, size: int, n_chunks: int) -> da.Array:
    """The data, made chunk by chunk when it is needed."""
    import importlib

    chunk = size // n_chunks
    meta = importlib.import_module(module).empty(0, "f4")
    return da.map_blocks(make, module, chunk, chunks=((chunk,) * n_chunks,), dtype="f4", meta=meta)


def make_maps(module: str, shape: tuple[int, ...], block_id: tuple[int, ...]) -> Any:
    """Make a chunk of maps of normal numbers."""
    return make(module, math.prod(shape), block_id).reshape(shape)  # type: ignore[arg-type]


def maps(module: str, size: int) -> da.Array:
    """A stack of maps, as (1460, 1000, 1000) in chunks of (146, 500, 1000) or smaller."""
    import importlib

    side = min(math.isqrt(size // 1460) // 2 * 2, 1000)
    chunk = 146, side // 2, side
    chunks = ((chunk[0],) * 10, (chunk[1],) * 2, (side,))
    meta = importlib.import_module(module).empty((0, 0, 0), "f4")
    return da.map_blocks(make_maps, module, chunk, chunks=chunks, dtype="f4", meta=meta)


def in_turn(client: Client, module: str, lazy: da.Array) -> da.Array:
    """The maps on all workers in turn, so that each of them has chunks of every column."""
    workers = sorted(client.scheduler_info()["workers"])
    name, chunk = f"in-turn-{uuid.uuid4().hex}", lazy.chunksize
    futures = {}
    for place in itertools.product(*map(range, lazy.numblocks)):
        key, worker = (name, *place), workers[sum(place) % len(workers)]
        how = {"key": key, "workers": [worker]}
        futures[key] = client.submit(make_maps, module, chunk, block_id=place, **how)
    wait(list(futures.values()))
    return da.Array(futures, name, lazy.chunks, meta=lazy._meta)


def persisted(client: Client, lazy: da.Array) -> da.Array:
    """The data, in the memory of the workers."""
    x = client.persist(lazy)
    wait(x)
    for future in client.futures_of(x):
        if future.status != "finished":
            future.result()  # raises what the worker raised
    return x


def know_cupy() -> None:
    """Without it da.percentile raises: dask registers CuPy for it only when something else needs
    that."""
    from dask.array.backends import register_cupy

    register_cupy()


def nothing(chunk: Any) -> Any:
    return chunk[:1].copy()


def along_axis(x: da.Array) -> Contestants:
    """Questions along the first axis, by name, each building a graph."""
    return {
        SUM: lambda: x.sum(axis=0),
        "`median(x, axis=0)`": lambda: quantile(x, 0.5, axis=0),
        "`quantile(x, q, axis=0)`": lambda: quantile(x, QUARTILES, axis=0),
    }


def without_keeping(x: da.Array) -> da.Array:
    with dask.config.set({"dask_gpuselect.cache-limit": 0}):
        return quantile(x, QUARTILES)


def contestants(x: da.Array, peers: Sequence[str]) -> Contestants:
    """By name, each building a graph."""
    results: dict[str, Callable[[], da.Array]] = {
        SUM: x.sum,
        "`x.map_blocks(nothing)`": lambda: x.map_blocks(nothing, chunks=(1,), meta=x._meta),
        "`quantile(x, q)`": lambda: quantile(x, QUARTILES),
        "`median(x)`": lambda: quantile(x, 0.5),
    }
    if "cache-limit" in peers:
        results["`quantile(x, q)` with `cache-limit` 0"] = lambda: without_keeping(x)
    if "da.percentile" in peers:
        percents = [100 * q for q in QUARTILES]
        results["`da.percentile(x, 100 * q)`, approximate"] = lambda: da.percentile(x, percents)
    return results


def check(x: da.Array, answer: Any) -> None:
    """Each quartile lies between its neighbours."""
    values = [float(value) for value in answer]
    # Compared in float32: what is below a number is below the next float32, and likewise up to it.
    nearest = np.array(values, np.float32)
    up = np.where(nearest < values, np.nextafter(nearest, np.float32(np.inf)), nearest)
    down = np.where(nearest > values, np.nextafter(nearest, np.float32(-np.inf)), nearest)
    (below, upto) = dask.compute(
        [(x < value).sum() for value in up], [(x <= value).sum() for value in down]
    )
    for q, value, b, u in zip(QUARTILES, values, below, upto, strict=True):
        position = q * (x.size - 1)
        if int(b) > math.ceil(position) or int(u) < math.floor(position) + 1:
            raise WrongAnswerError(f"quantile {q} is not {value}: {b} below, {u} up to it")


def check_along_axis(x: da.Array) -> None:
    """Each quartile of each lane lies between its neighbours."""
    lazy = quantile(x, QUARTILES, axis=0)
    for i, q in enumerate(QUARTILES):
        position = q * (x.shape[0] - 1)
        below, upto = dask.compute(
            (x < lazy[i]).sum(axis=0).max(), (x <= lazy[i]).sum(axis=0).min()
        )
        if int(below) > math.ceil(position) or int(upto) < math.floor(position) + 1:
            raise WrongAnswerError(f"quantile {q}: at most {below} below, {upto} up to it")


def elsewhere(client: Client, x: da.Array) -> float:
    """The share of the chunks that are not on the worker which has most of their column."""
    where: dict[Any, list[str]] = {}
    for key, (worker, *_) in client.who_has(client.futures_of(x)).items():
        where.setdefault(key[2:], []).append(worker)
    most = sum(max(map(column.count, column)) for column in where.values())
    return 1 - most / x.npartitions


# --- Measuring


def show(client: Client, x: da.Array, calls: Contestants, runs: Runs) -> Iterator[str]:
    rows = []
    for name, call in calls.items():
        seconds = [run.seconds for run in runs[name]]
        traffic, _ = sent(client, x, lambda call=call: call().compute())  # type: ignore[misc]
        rows.append(
            [
                name,
                str(len(optimized(call()).dask)),
                *(rounded(1e3 * t) for t in (median_time(runs[name]), min(seconds), max(seconds))),
                f"{ratio(runs, name, SUM):.2f}",
                f"{traffic.wire / 1e6:.2f}",
                str(traffic.objects),
                str(traffic.chunks),
            ]
        )
    head = ["", "tasks", "ms", "least", "most", "of `x.sum()`", "MB sent", "objects", "chunks"]
    return table(head, rows)


# --- Where the time goes


def phases(client: Client, name: str, call: Callable[[], da.Array], repeat: int) -> Iterator[str]:
    """Medians of what a client does one after the other, in ms."""
    times: dict[str, list[float]] = {}
    for _ in range(repeat):
        marks = [("", time.perf_counter())]

        def mark(step: str, marks: list[tuple[str, float]] = marks) -> None:
            marks.append((step, time.perf_counter()))

        lazy = call()
        mark("build")
        lazy = optimized(lazy)
        mark("optimise")
        future = client.compute(lazy, optimize_graph=False)
        mark("send")
        wait(future)
        mark("run")
        future.result()
        mark("fetch")
        for (_, start), (step, stop) in zip(marks, marks[1:], strict=False):
            times.setdefault(step, []).append(1e3 * (stop - start))
    steps = (f"{step} {rounded(statistics.median(values))}" for step, values in times.items())
    yield f"{name}, ms: {', '.join(steps)}."
    yield ""


@dataclass
class Stage:
    """All tasks of one prefix."""

    tasks: int = 0
    compute: float = 0.0
    transfer: float = 0.0
    longest: float = 0.0
    first: float = math.inf
    last: float = -math.inf


def stages(client: Client, call: Callable[[], da.Array]) -> Iterator[str]:
    """By the prefix of their names, when tasks ran and how long, in ms."""
    with get_task_stream(client) as stream:
        begin = time.time()
        call().compute()
        end = time.time()
    results: dict[str, Stage] = {}
    for task in stream.data:
        stage = results.setdefault(key_split(task["key"]), Stage())
        stage.tasks += 1
        for part in task["startstops"]:
            took = part["stop"] - part["start"]
            stage.first = min(stage.first, part["start"] - begin)
            stage.last = max(stage.last, part["stop"] - begin)
            if part["action"] == "compute":
                stage.compute += took
                stage.longest = max(stage.longest, took)
            elif part["action"] == "transfer":
                stage.transfer += took
    rows = [
        [
            f"`{name}`",
            str(stage.tasks),
            *(
                f"{1e3 * t:.1f}"
                for t in (stage.first, stage.last, stage.compute, stage.longest, stage.transfer)
            ),
        ]
        for name, stage in sorted(results.items(), key=lambda item: item[1].first)
    ]
    rows.append(["answer at the client", "", "", f"{1e3 * (end - begin):.1f}", "", "", ""])
    head = ["ms", "tasks", "first start", "last stop", "compute", "longest", "transfer"]
    return table(head, rows)


# --- The program


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(description=lines[0])
    add = parser.add_argument
    add("--gpus", type=int, default=2, help="workers, one a GPU; 2")
    add("--threads", type=int, default=1, help="of a worker on a GPU; 1, as dask-cuda has it")
    add("--cpu", action="store_true", help="processes on the CPU, and NumPy")
    add("--only", nargs="+", choices=SIZES, help="sizes: large (137 GB), small (34 GB)")
    add("--elements", type=int, help="of float32, in place of those sizes")
    add("--chunks", type=int, default=32, help="32")
    add("--data", nargs="+", choices=DATA, default=["held"], help="held")
    add("--repeat", type=int, default=5, help="repetitions; 5")
    add("--no-peers", action="store_true", help="without da.percentile, which is slow")
    add("--in-turn", action="store_true", help="chunks of each column on all workers, in turn")
    add("--profile", action="store_true", help="also when tasks ran, and how long")
    chosen = parser.parse_args(arguments)
    sizes = CPU_SIZES if chosen.cpu else SIZES
    chosen.sizes = [size for name, size in sizes.items() if name in (chosen.only or sizes)]
    if chosen.elements:
        chosen.sizes = [chosen.elements]
    if min(chosen.gpus, chosen.chunks, chosen.repeat, *chosen.sizes) < 1:
        parser.error("needs at least a worker, a chunk, an element and a repetition")
    return chosen


def measure(client: Client, size: int, data: str, arguments: argparse.Namespace) -> None:
    module = "numpy" if arguments.cpu else "cupy"
    begin = time.perf_counter()
    lazy = maps(module, size) if data == "axis" else normal(module, size, arguments.chunks)
    if data == "axis" and arguments.in_turn:
        x = in_turn(client, module, lazy)
    else:
        x = lazy if data == "made" else persisted(client, lazy)
    resident = sorted(map(len, client.has_what().values()))
    print(
        f"{x.nbytes / 1e9:.3g} GB made in {time.perf_counter() - begin:.1f} s; chunks: {resident}",
        file=sys.stderr,
        flush=True,
    )
    print(
        f"#### {x.nbytes / 1e9:.3g} GB of float32 in {x.npartitions} chunks {DATA[data]}, on "
        f"{arguments.gpus} {'processes' if arguments.cpu else 'GPUs'}, "
        f"threads a worker: {1 if arguments.cpu else arguments.threads}\n"
    )
    peers = [] if arguments.no_peers or size == SIZES["large"] else ["da.percentile"]
    peers = {"held": peers, "made": ["cache-limit"], "axis": []}[data]
    if "da.percentile" in peers and not arguments.cpu:
        know_cupy()
        client.run(know_cupy)
    calls = along_axis(x) if data == "axis" else contestants(x, peers)
    runners = {name: lambda call=call: call().compute() for name, call in calls.items()}
    for name, run in take_turns(runners, 1, "warm-up").items():  # compiles, and learns durations
        print(f"{name}: first call {1e3 * run[0].seconds:.0f} ms", file=sys.stderr, flush=True)
    runs = take_turns(runners, arguments.repeat, "cluster")
    if data == "axis":
        check_along_axis(x)
        share = elsewhere(client, x)
        print(f"Not where most of their column is: {share:.0%} of the chunks.\n", flush=True)
    else:
        check(x, runs["`quantile(x, q)`"][-1].result)
    say(show(client, x, calls, runs))
    if arguments.profile:
        for name, call in calls.items():
            say(phases(client, name, call, arguments.repeat))
            say(stages(client, call))


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if an answer is wrong."""
    chosen = parse(arguments)
    cluster = started(chosen.gpus, on_gpus=not chosen.cpu, threads=chosen.threads)
    with cluster, Client(cluster) as client:
        say(machine())
        try:
            for data, size in itertools.product(chosen.data, chosen.sizes):
                measure(client, size, data, chosen)
        except WrongAnswerError as error:
            print(f"gpu_cluster: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
