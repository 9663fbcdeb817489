"""How many reads the first load spares the second, and what that is worth; prints Markdown.

    python asv_bench/one_load.py kinds [--wait 0.05] [--repeat 6] [--picture FILE]
    python asv_bench/one_load.py questions [--wait 0.05] [--repeat 6]
    python asv_bench/one_load.py sorts [--wait 0.05] [--repeat 3]
    python asv_bench/one_load.py groups [--wait 0.05] [--repeat 3]
    python asv_bench/one_load.py stores --store DIR [--gigabytes 2] [--repeat 5]
    python asv_bench/one_load.py few [--repeat 9]

``kinds``: quartiles of thirteen kinds of data, in 200 chunks of 2e5 float64, made when they are
loaded, after a wait if one is given, as of an object store. ``questions``: what else is asked, of
mixed data. ``sorts``: `sort` into more and more chunks. ``groups``: of more and more labels of the
data's shape, of which a task takes one chunk. ``stores``: a Zarr store compressed by zstd at level
9, and chunks that take 50 ms to come, beside `da.percentile`. ``few``: as few chunks as
two threads and a cluster of two workers of two threads have work for. Loads are counted for each
chunk; seconds are beside those of two reads (``cache-limit`` 0) and of ``x.sum()``. Contenders take
turns; medians.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr
from benchmarks.common import THREADS
from compare import machine, say, table
from distributed import Client, LocalCluster
from numpy.typing import NDArray

from dask_gpuselect import describe_boxplot, order_statistic, quantile, sort
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.engine import boards
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import mad

QUARTILES = [0.25, 0.5, 0.75]
N_CHUNKS, SIZE = 200, 200_000
BASES = 8  # chunks of noise, which others repeat

Floats = NDArray[np.float64]
Ask = Callable[[da.Array], Any]


class Kinds:
    """Chunks of many kinds, by their number: noise, changed from chunk to chunk.

    Parameters
    ----------
    n_chunks, size : int
        How many, and of how many elements.
    """

    def __init__(self, n_chunks: int, size: int) -> None:
        self.n_chunks, self.size = n_chunks, size
        rng = np.random.default_rng(0)
        self.normal = rng.standard_normal((BASES, size))
        self.uniform = rng.random((BASES, size))
        self.tenths = rng.integers(0, 10, (BASES, size)).astype(float)
        steps = rng.standard_normal(n_chunks)
        self.small, self.walk, self.scales = 0.05 * steps, 0.3 * np.cumsum(steps), np.exp(steps)
        self.share = rng.random(n_chunks)

    def shifted(self, i: int, by: float) -> Floats:
        return self.normal[i % BASES] + by

    def clouds(self, i: int) -> Floats:
        """A part of each chunk is white, from none to all."""
        is_cloud = self.uniform[i % BASES] < self.share[i] ** 3
        return np.where(is_cloud, 10 + self.normal[i % BASES], self.normal[(i + 1) % BASES])

    def of(self, kind: str) -> Callable[[int], Floats]:
        return {
            "mixed": lambda i: self.shifted(i, 0.0),
            "lognormal": lambda i: np.exp(3 * self.normal[i % BASES]),
            "ten integers": lambda i: self.tenths[i % BASES] + 0,
            "constant": lambda i: np.full(self.size, 42.0),
            "small differences": lambda i: self.shifted(i, self.small[i]),
            "trend of four deviations": lambda i: self.shifted(i, 4 * i / self.n_chunks),
            "random walk": lambda i: self.shifted(i, self.walk[i]),
            "sorted": lambda i: np.arange(i * self.size, (i + 1) * self.size, dtype=float),
            "seasons": lambda i: self.shifted(i, 3 * np.sin(2 * np.pi * i / 12)),
            "space": lambda i: self.shifted(i, 2 * np.sin(i % 20 / 3) + 2 * np.cos(i // 20 / 2)),
            "a third of another kind": lambda i: self.shifted(i, 5.0 * (self.share[i] < 1 / 3)),
            "scales": lambda i: self.normal[i % BASES] * self.scales[i],
            "clouds": self.clouds,
        }[kind]


KINDS = (
    "mixed",
    "lognormal",
    "ten integers",
    "constant",
    "small differences",
    "trend of four deviations",
    "random walk",
    "sorted",
    "seasons",
    "space",
    "a third of another kind",
    "scales",
    "clouds",
)


class Counted:
    """A dask array that counts its reads.

    Parameters
    ----------
    make : callable
        From the number of a chunk to its elements.
    n_chunks, size : int
    wait : float
        Seconds before a chunk comes.
    """

    def __init__(
        self, make: Callable[[int], Floats], n_chunks: int, size: int, wait: float = 0.0
    ) -> None:
        self._make, self._wait = make, wait
        self._lock = threading.Lock()
        self.n_loads = 0
        chunks = ((size,) * n_chunks,)
        self.x = da.map_blocks(self._load, chunks=chunks, dtype="f8", meta=np.empty(0))

    def _load(self, block_id: tuple[int, ...]) -> Floats:
        with self._lock:
            self.n_loads += 1
        time.sleep(self._wait)
        return self._make(block_id[0])

    def __dask_tokenize__(self) -> int:
        return id(self)


class Cached:
    """The most that the first reads have cached at a time."""

    def __init__(self) -> None:
        self.most = 0

    def __enter__(self) -> Cached:
        self._take = boards.Room.take

        def take(room: boards.Room, n: int, limit: float) -> bool:
            taken = self._take(room, n, limit)
            self.most = max(self.most, room.taken)
            return taken

        boards.Room.take = take  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        boards.Room.take = self._take  # type: ignore[method-assign]


def caching_off() -> Any:
    return dask.config.set({"dask_gpuselect.cache-limit": 0})


def computed(lazy: Any) -> Any:
    """The answer; of a box plot its quartiles."""
    if hasattr(lazy, "compute"):
        lazy = lazy.compute()
    return lazy[0].med if hasattr(lazy, "to_bxp") else lazy


Clocks = tuple[float, float]
"""Seconds by the wall, and of processors."""


def clocks() -> Clocks:
    return time.perf_counter(), time.process_time()


def turns_of(contenders: dict[str, Callable[[], Any]], repeat: int) -> dict[str, list[Clocks]]:
    """Seconds in turn, in alternating order, the first round left out."""
    results: dict[str, list[Clocks]] = {name: [] for name in contenders}
    for round_ in range(repeat + 1):
        for name, run in list(contenders.items())[:: -1 if round_ % 2 else 1]:
            begin = clocks()
            run()
            end = clocks()
            if round_:
                results[name].append((end[0] - begin[0], end[1] - begin[1]))
    return results


def seconds_of(contenders: dict[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """Their medians."""
    turns = turns_of(contenders, repeat)
    return {name: statistics.median(wall for wall, _ in each) for name, each in turns.items()}


def row_of(data: Counted, ask: Ask, repeat: int) -> tuple[float, list[str]]:
    """Reads of each chunk; and those, the share cached, seconds, and ratios."""
    answers = {}
    with Cached() as cached:
        data.n_loads = 0
        answers["cached"] = computed(ask(data.x))
        loads = data.n_loads / data.x.npartitions

    def one() -> None:
        answers["cached"] = computed(ask(data.x))

    def two() -> None:
        with caching_off():
            answers["not"] = computed(ask(data.x))

    took = seconds_of({"one": one, "two": two, "sum": data.x.sum().compute}, repeat)
    np.testing.assert_array_equal(np.asarray(answers["cached"]), np.asarray(answers["not"]))
    share = f"{100 * cached.most / data.x.nbytes:.1f}"
    ratios = [took["one"] / took["two"], took["one"] / took["sum"], took["two"] / took["sum"]]
    return loads, [f"{loads:.2f}", share, f"{took['one']:.2f}", *(f"{r:.2f}" for r in ratios)]


HEAD = ["reads", "cached, %", "seconds", "of two reads", "of x.sum()", "two reads of x.sum()"]


def kinds(a: argparse.Namespace) -> None:
    source = Kinds(a.chunks, a.size)
    rows, loads = [], {}
    for kind in KINDS:
        data = Counted(source.of(kind), a.chunks, a.size, a.wait)
        loads[kind], row = row_of(data, lambda x: quantile(x, QUARTILES), a.repeat)
        rows.append([kind, *row])
    say(table(["data", *HEAD], rows))
    if a.picture:
        draw(loads, a.picture)


def draw(loads: dict[str, float], path: Path) -> None:
    """Loads by kind, as bars."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh([*loads][::-1], [*loads.values()][::-1], color="tab:blue")
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.set(xlim=(0, 2.2), xlabel="reads for each chunk, three quartiles of 200 chunks")
    for loads_at in (1, 2):
        axes.axvline(loads_at, color="gray", lw=0.8, ls=":")
    figure.savefig(path, dpi=120)


QUESTIONS: dict[str, Ask] = {
    "median": lambda x: quantile(x, 0.5),
    "three quartiles": lambda x: quantile(x, QUARTILES),
    "99.9 %": lambda x: quantile(x, 0.999),
    "order statistic 777": lambda x: order_statistic(x, 777),
    "99 percentiles": lambda x: quantile(x, np.arange(1, 100) / 100),
    "describe_boxplot": describe_boxplot,
    "mad": mad,
    "ecdf, 101 points": lambda x: ecdf(x, 101).compute().quantile(QUARTILES),
    "weights": lambda x: quantile(x, QUARTILES, weights=abs(x), method="inverted_cdf"),
    "weights, linear": lambda x: quantile(x, QUARTILES, weights=abs(x)),
    "describe_boxplot, weights": lambda x: describe_boxplot(x, weights=abs(x)),
}


def questions(a: argparse.Namespace) -> None:
    source = Kinds(a.chunks, a.size)
    rows = []
    for name, ask in QUESTIONS.items():
        data = Counted(source.of("mixed"), a.chunks, a.size, a.wait)
        rows.append([name, *row_of(data, ask, a.repeat)[1]])
    say(table(["question", *HEAD], rows))


SORTED_INTO = (5, 10, 20, 50, 100)  # chunks
SORTED_KINDS = ("lognormal", "ten integers", "small differences", "sorted")


def sorts(a: argparse.Namespace) -> None:
    source = Kinds(a.chunks, a.size)
    rows = []
    for kind, n in [("mixed", n) for n in SORTED_INTO] + [(kind, 20) for kind in SORTED_KINDS]:
        data = Counted(source.of(kind), a.chunks, a.size, a.wait)
        size = -(-data.x.size // n)
        ask = partial(sort, chunks=size, spill=False)
        rows.append([kind, str(n), *row_of(data, ask, a.repeat)[1]])
    say(table(["data", "sorted into chunks", *HEAD], rows))


N_GROUPS = (4, 18, 60)
GROUPED_KINDS = ("lognormal", "ten integers", "trend of four deviations", "sorted")


def groups(a: argparse.Namespace) -> None:
    source = Kinds(a.chunks, a.size)
    n_groups = [("mixed", n) for n in N_GROUPS] + [(kind, 18) for kind in GROUPED_KINDS]
    rows = []
    for kind, n in n_groups:
        # From five chunks in turn, and noise is from eight: both go together anyhow.
        labels = da.map_blocks(
            lambda block_id, n: (source.uniform[block_id[0] % 5] * n).astype("i4"),
            n=n,
            chunks=((a.size,) * a.chunks,),
            dtype="i4",
            meta=np.empty(0, "i4"),
        )
        data = Counted(source.of(kind), a.chunks, a.size, a.wait)
        with dask.config.set({"dask_gpuselect.column-limit": 8 * a.size}):
            row = row_of(data, lambda x, by=labels: groupby(x, by).median(), a.repeat)[1]
        rows.append([kind, str(n), *row])
    say(table(["data", "groups", *HEAD], rows))


def stores(a: argparse.Namespace) -> None:
    path = a.store / "zstd9.zarr"
    chunk = int(a.chunk_mb * 1e6 / 8)
    n = max(int(a.gigabytes * 1e9 / 8) // chunk, 1) * chunk
    target = zarr.create_array(
        path,
        shape=(n,),
        chunks=(chunk,),
        dtype="f8",
        compressors=zarr.codecs.ZstdCodec(level=9),
        overwrite=True,
    )
    rng = np.random.default_rng(0)
    for begin in range(0, n, chunk):
        target[begin : begin + chunk] = rng.standard_normal(chunk).round(3)
    slow = Counted(Kinds(a.chunks, a.size).of("mixed"), a.chunks, a.size, 0.05)
    rows = []
    for name, x in (("zstd, level 9", da.from_zarr(path)), ("50 ms a chunk", slow.x)):
        rows += [[name, *row] for row in beside_percentile(x, a.repeat)]
    say(table(["source", "what", "seconds", "times x.sum()", "in processor time"], rows))


def beside_percentile(x: da.Array, repeat: int) -> list[list[str]]:
    """This package with a cache and without, and dask's approximations."""

    def off() -> None:
        with caching_off():
            quantile(x, QUARTILES).compute()

    runs: dict[str, Callable[[], Any]] = {
        "x.sum()": x.sum().compute,
        "quartiles": lambda: quantile(x, QUARTILES).compute(),
        "quartiles, two reads": off,
        "box plot": lambda: describe_boxplot(x).compute(),
        "da.percentile": lambda: da.percentile(x, [25, 50, 75]).compute(),
    }
    try:
        import crick  # noqa: F401
    except ImportError:
        print("crick is not installed: no t-digests\n")
    else:
        runs["da.percentile, t-digests"] = lambda: da.percentile(
            x, [25, 50, 75], internal_method="tdigest"
        ).compute()
    turns = turns_of(runs, repeat)
    return [
        [
            name,
            f"{statistics.median(wall for wall, _ in each):.2f}",
            ratios(each, turns["x.sum()"], 0),
            ratios(each, turns["x.sum()"], 1),
        ]
        for name, each in turns.items()
    ]


def ratios(one: list[Clocks], other: list[Clocks], clock: int) -> str:
    """The median of the ratios within a turn, the least and the most."""
    each = [a[clock] / b[clock] for a, b in zip(one, other, strict=True)]
    return f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})"


def few(a: argparse.Namespace) -> None:
    rows = []
    with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as workers:
        for where, n_threads in (("threads", THREADS), ("cluster", 4)):
            for times in (1, 2, 4, 8):
                n_chunks = n_threads * times
                if where == "threads":
                    result = ratio(n_chunks, a.elements, a.repeat)
                else:
                    with Client(workers):
                        result = ratio(n_chunks, a.elements, a.repeat)
                rows.append([where, str(n_threads), str(n_chunks), *result])
    say(table(["where", "threads", "chunks", "seconds", "of two reads"], rows))


def ratio(n_chunks: int, size: int, repeat: int) -> list[str]:
    x = da.random.default_rng(0).standard_normal(n_chunks * size, chunks=size)

    def two() -> None:
        with caching_off():
            quantile(x, QUARTILES).compute()

    took = seconds_of({"one": lambda: quantile(x, QUARTILES).compute(), "two": two}, repeat)
    return [f"{took['one']:.2f}", f"{took['one'] / took['two']:.2f}"]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(required=True)
    for run, repeat in ((kinds, 6), (questions, 6), (sorts, 3), (groups, 3), (stores, 5), (few, 9)):
        part = parts.add_parser(run.__name__)
        part.set_defaults(run=run)
        part.add_argument("--repeat", type=int, default=repeat)
        part.add_argument("--chunks", type=int, default=N_CHUNKS)
        part.add_argument("--size", type=int, default=SIZE, help="elements of a chunk")
        if run in (kinds, questions, sorts, groups):
            part.add_argument("--wait", type=float, default=0.0, help="seconds, for each chunk")
        if run is kinds:
            part.add_argument("--picture", type=Path)
        if run is stores:
            part.add_argument("--store", type=Path, required=True)
            part.add_argument("--gigabytes", type=float, default=2.0)
            part.add_argument("--chunk-mb", type=float, default=32.0)
        if run is few:
            part.add_argument("--elements", type=int, default=2_000_000, help="of a chunk")
    return parser


def main() -> None:
    a = parser().parse_args()
    say(machine())
    print(f"{THREADS} threads; medians of {a.repeat} runs in turn.\n")
    with dask.config.set(num_workers=THREADS):
        a.run(a)


if __name__ == "__main__":
    main()
