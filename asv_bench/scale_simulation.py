"""What one place holds of very many chunks: the root by synthetic cuts of true size, the client by
graphs, the scheduler by a cluster of this machine; prints Markdown.

    python asv_bench/scale_simulation.py root --chunks 10_000 --size 100_000_000
    python asv_bench/scale_simulation.py client --chunks 10_000 30_000 100_000
    python asv_bench/scale_simulation.py scheduler --chunks 2_000

`root` makes the cuts that chunks of `--size` elements report: order statistics of a uniform sample
are sums of gamma variates, so that no chunk is made. They go through the functions that the tasks
call, and each root's task runs in a process of its own, with its arguments read from
a file as they arrive on a worker. Its peak is what tracemalloc knows of all arrays, arguments too;
beside it stands what the system says of the process, Python and modules included. Candidates are as
many as lie in the brackets that are proven, by the distribution.

`client` builds and orders the graph of ``median(x)``; 1_000_000 chunks take ten minutes and 7 GB.
`at_scale.py plans` prints the plans of larger arrays.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import pickle
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.order
import numpy as np
from compare import say, table
from distributed import Client, LocalCluster

from dask_gpuselect import median
from dask_gpuselect.engine.answers import Form
from dask_gpuselect.engine.loads import _find_brackets, _resolve
from dask_gpuselect.engine.partials import Gathered, Proven
from dask_gpuselect.engine.settings import DEFAULTS
from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import Cuts, Tally
from dask_gpuselect.maths.sizes import pivot_count, plan_narrowing
from dask_gpuselect.quantiles.questions import Quantiles

MEGABYTE = 1e6
EVERY = 32  # parts of a merge
F8 = np.dtype(np.float64)


def question_of(q: Sequence[float]) -> Quantiles:
    return Quantiles(tuple(q), "linear", False, F8, F8)


# --- The root -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """Chunks of uniform elements, each of them moved by up to `spread`.

    Parameters
    ----------
    n_chunks, size : int
    n_pivots : int
        Of a chunk.
    spread : float
    """

    n_chunks: int
    size: int
    n_pivots: int
    spread: float = 0.1

    def move(self, i: int) -> float:
        return float(self.spread * np.random.default_rng([0, i]).random())

    def cuts(self, i: int) -> Cuts:
        """What chunk i reports."""
        random = np.random.default_rng([1, i])
        ranks = np.linspace(0, self.size - 1, self.n_pivots).astype(np.int64)
        # An element of rank r is the sum of r + 1 of size + 1 exponential variates, of their sum.
        gaps = random.standard_gamma(np.diff(ranks, prepend=-1, append=self.size))
        pivots = np.cumsum(gaps)
        pivots = pivots[:-1] / pivots[-1] + self.move(i)
        return Cuts.of_chunk(pivots, ranks, ranks + 1, self.size, 0)

    def share_between(self, low: float, high: float) -> float:
        """Of the elements of all chunks."""
        moves = np.array([self.move(i) for i in range(self.n_chunks)])
        return float(np.mean(np.clip(high - moves, 0, 1) - np.clip(low - moves, 0, 1)))


@dataclass(frozen=True)
class Measured:
    """Peaks of a task in bytes, of arrays and of the process, and its seconds."""

    arrays: float
    process: float
    seconds: float

    def row(self, name: str, what: str) -> list[str]:
        peaks = (f"{peak / MEGABYTE:,.0f} MB" for peak in (self.arrays, self.process))
        return [name, what, *peaks, f"{self.seconds:.1f} s"]


def measured(work: Callable[..., Any], path: Path, *args: Any) -> tuple[Any, Measured]:
    """What a task makes of what is in a file, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result, *numbers = pool.apply(_measure, (work, path, args))
    return result, Measured(*numbers)


def _measure(work: Callable[..., Any], path: Path, args: tuple[Any, ...]) -> Any:
    tracemalloc.start()
    with path.open("rb") as file:
        parts = [pickle.load(file) for _ in range(pickle.load(file))]
    start = time.perf_counter()
    result = work(parts, *args)
    seconds = time.perf_counter() - start
    return result, tracemalloc.get_traced_memory()[1], max_rss() * MEGABYTE, seconds


def written(parts: Sequence[Any], path: Path) -> Path:
    with path.open("wb") as file:
        pickle.dump(len(parts), file)
        for part in parts:
            pickle.dump(part, file)
    return path


def merged(columns: Sequence[list[Cuts]]) -> list[list[Cuts]]:
    """Bundles of one column, merged until a task takes them."""
    while len(columns) > EVERY:
        columns = [
            [Cuts.merge([cuts for column in columns[i : i + EVERY] for cuts in column])]
            for i in range(0, len(columns), EVERY)
        ]
    return [list(column) for column in columns]


def simulate_root(n_chunks: int, size: int, q: Sequence[float], limit: int) -> None:
    question = question_of(q)
    plan = plan_narrowing(n_chunks, size, question.n_ranges, question.costs.share, 8, limit)
    if plan is not None:
        print(f"{plan}: at_scale.py roots measures that")
        return
    n_pivots = pivot_count(size, question.costs.share)
    n_pivots = (1 << n_pivots.bit_length() - 1) - 1  # as the kernels divide a chunk
    model = Model(n_chunks, size, n_pivots)
    print(
        f"{n_chunks:,} chunks of {size:,} float64, {len(q)} quantiles, {n_pivots:,} pivots of each "
        "chunk.\n"
    )
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "parts"
        last = merged([[model.cuts(i)] for i in range(n_chunks)])
        left = sum(len(cuts.pivots) for column in last for cuts in column)
        written([column[0] for column in last], path)
        del last
        proven, result = measured(_prove, path, question, (n_chunks,))
        rows.append(result.row("bracket, and what is expected of each chunk", f"{left:,} pivots"))
        n_candidates, result = _simulate_candidates(model, proven, question, path)
        rows.append(result.row("answer", f"{n_candidates:,} candidates"))
    say(table(["task", "takes", "peak of arrays", "of the process", "time"], rows))
    print(f"The process that prepared this held {max_rss():,.0f} MB.")


def _prove(parts: list[Cuts], question: Quantiles, numblocks: tuple[int, ...]) -> Proven | None:
    return _find_brackets(list(parts), question, numblocks)


def _simulate_candidates(
    model: Model, proven: Proven, question: Quantiles, path: Path
) -> tuple[int, Measured]:
    """As many candidates as are in the brackets, in the parts of the last merge."""
    brackets = proven.brackets
    n = model.n_chunks * model.size
    cells = np.flatnonzero(brackets.wanted)
    sizes = [int(n * model.share_between(*brackets.ends[cell - 1 : cell + 1])) for cell in cells]
    first, _ = question.ranks(n)
    upto = np.zeros(len(brackets.ends), np.int64)
    below = np.zeros(len(brackets.ends), np.int64)
    for cell, size, rank in zip(cells, sizes, first, strict=True):  # the rank is amidst its bracket
        upto[cell - 1], below[cell] = rank - size // 2, rank - size // 2 + size
        below[cell - 1], upto[cell] = upto[cell - 1] - 1, below[cell] + 1
    n_parts = min(EVERY, -(-model.n_chunks // EVERY))
    random = np.random.default_rng(2)
    with path.open("wb") as file:
        pickle.dump(n_parts, file)
        for part in range(n_parts):
            drawn = [
                random.uniform(
                    *brackets.ends[cell - 1 : cell + 1],
                    size * (part + 1) // n_parts - size * part // n_parts,
                )
                for cell, size in zip(cells, sizes, strict=True)
            ]
            counts = (below, upto) if part == 0 else (below * 0, upto * 0)
            candidates = Candidates(np.concatenate(drawn))
            pickle.dump(Gathered(Tally(*counts, candidates, n if part == 0 else 0, 0)), file)
    _, result = measured(_resolved, path, proven, question)
    return sum(sizes), result


def _resolved(parts: list[Gathered], proven: Proven, question: Quantiles) -> Any:
    form = Form((), None, np.empty(0))
    resolved = _resolve(parts, proven, None, question, None, form, "median")
    form = Form((len(question.q),), F8, np.empty(0))
    return form.made(question.finish(resolved.answer, resolved.sums))


def max_rss() -> float:
    """Of this process, in megabytes; of Linux alone. `resource` tells a child its parent's peak."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / MEGABYTE


# --- The client -----------------------------------------------------------------------------------


def lazy(n_chunks: int, size: int) -> da.Array:
    """An array of chunks that are made by a task each."""
    return da.zeros(n_chunks * size, chunks=size).map_blocks(_same, dtype=F8)


def _same(block: Any) -> Any:
    return block


def simulate_client(sizes: Sequence[int], size: int, limit: str) -> None:
    rows = []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for n_chunks in sizes:
            rows.append(pool.apply(_client_row, (n_chunks, size, limit)))
    say(table(["chunks", "tasks", "build", "optimise", "order", "peak", "a task, pickled"], rows))
    print("Peak: what the process has grown by, graph, optimised graph and order together.")


def _client_row(n_chunks: int, size: int, limit: str) -> list[str]:
    before = max_rss()
    with dask.config.set({"dask_gpuselect.root-limit": limit}):
        times = [time.perf_counter()]
        answer = median(lazy(n_chunks, size))
        times.append(time.perf_counter())
        graph = dict(dask.optimize(answer)[0].__dask_graph__())
        times.append(time.perf_counter())
        dask.order.order(graph)
        times.append(time.perf_counter())
    grown = max_rss() - before
    keys = list(graph)[:: max(len(graph) // 1000, 1)]
    pickled = len(pickle.dumps([(key, graph[key]) for key in keys])) / len(keys)
    return [
        f"{n_chunks:,}",
        f"{len(graph):,}",
        *(f"{each:.1f} s" for each in np.diff(times)),
        f"{grown:,.0f} MB, {grown * 1000 / n_chunks:.1f} kB a chunk",
        f"{pickled:,.0f} B",
    ]


# --- The scheduler --------------------------------------------------------------------------------


def simulate_scheduler(n_chunks: int) -> None:
    """What the scheduler allocates for tasks that wait, and how long it takes to run them."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        scheduler = cluster.scheduler
        client.submit(sum, [1]).result()
        # Eight elements a chunk: that the graph is run costs nothing but tasks.
        answer = median(lazy(n_chunks, 8))
        client.compute(answer).result()
        times = []
        for each in (median(lazy(n_chunks, 9)), lazy(n_chunks, 9).sum()):
            start = time.perf_counter()
            client.compute(each).result()
            times.append(time.perf_counter() - start)
        gate = dask.delayed(time.sleep)(8)
        x = lazy(n_chunks, 10).map_blocks(_after, gate, dtype=F8)
        gc.collect()
        tracemalloc.start(40)
        future = client.compute(median(x))
        while not scheduler.tasks or len(scheduler.tasks) < 2 * n_chunks:
            time.sleep(0.05)
        time.sleep(0.5)
        snapshot = tracemalloc.take_snapshot()
        n_tasks = len(scheduler.tasks)
        tracemalloc.stop()
        future.cancel()
    inside = tracemalloc.Filter(True, "*/distributed/scheduler.py", all_frames=True)
    in_use = sum(trace.size for trace in snapshot.filter_traces([inside]).traces)
    say(
        table(
            ["chunks", "tasks", "held by the scheduler", "one worker", "of `x.sum()`"],
            [
                [
                    f"{n_chunks:,}",
                    f"{n_tasks:,}",
                    f"{in_use / MEGABYTE:.1f} MB, {in_use / n_tasks:,.0f} B a task",
                    f"{times[0]:.1f} s, {1000 * times[0] / n_tasks:.2f} ms a task",
                    f"{times[1]:.1f} s",
                ]
            ],
        )
    )


def _after(block: Any, gate: Any) -> Any:
    del gate
    return block


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("what", choices=["root", "client", "scheduler"])
    parser.add_argument("--chunks", type=int, nargs="+", default=[10_000])
    parser.add_argument("--size", type=int, default=10**8, help="elements of a chunk")
    parser.add_argument("--q", type=float, nargs="+", default=[0.25, 0.5, 0.75])
    parser.add_argument("--limit", default=DEFAULTS["root-limit"])
    args = parser.parse_args()
    if args.what == "root":
        for n_chunks in args.chunks:
            simulate_root(n_chunks, args.size, args.q, dask.utils.parse_bytes(args.limit))
    elif args.what == "client":
        simulate_client(args.chunks, args.size, args.limit)
    else:
        for n_chunks in args.chunks:
            simulate_scheduler(n_chunks)


if __name__ == "__main__":
    main()
