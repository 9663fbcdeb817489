"""Spafford's weak scaling: quartiles and outliers of keys that growing numbers of workers hold, by
`describe_boxplot` and by the radix sort; prints Markdown.

    python asv_bench/weak_scaling.py --cpu --workers 1 2 4 --json cpu.json
    python asv_bench/weak_scaling.py --gpu --workers 1 2 4 --json gpu.json
    python asv_bench/weak_scaling.py --plot cpu.json gpu.json

K. Spafford, "Identification of Quartiles and Outliers with a Distributed Heterogeneous Radix Sort",
section III.C.5 and figure 7: 512 MB of 64-bit keys on each worker, made there and as many on each.
The paper's pairs have a value beside the key, which quartiles do not need: here are keys alone.

After a warm-up both methods run in every repetition, in alternating order. A time is all that a
user waits; bytes are those of the same calls. Both list all outliers. Answers are checked against
each other and by counting: the program ends with 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from benchmarks.common import QUARTILES
from clusters import Sent, n_gpus, sent, started
from compare import (
    Run,
    Runs,
    WrongAnswerError,
    cpu_model,
    machine,
    median_time,
    ratio,
    rounded,
    say,
    table,
    take_turns,
)
from distributed import Client, wait
from strategy_plots import Drawing, saved

from dask_gpuselect import describe_boxplot
from dask_gpuselect.arrays import namespace, to_host
from dask_gpuselect.radix_sort import radix_sort
from dask_gpuselect.sorted_boxes import describe_sorted

PICTURE = Path(__file__).parent / "pictures" / "weak_scaling.png"


# --- Keys -----------------------------------------------------------------------------------------

HALF = 1 << 61
"""Keys are uniform in [-HALF, HALF), so that the fences of a box are near -2 HALF and 2 HALF."""
EDGE = HALF - (HALF >> 14)
"""One key in 2**14 is beyond, and set apart behind the fences: uniform data has no outliers."""


def random(place: Any, total: int) -> Any:
    return (scrambled(place) >> np.uint64(2)).astype(np.int64) - HALF


def ascending(place: Any, total: int) -> Any:
    """Sequential, in steps that are filled: every digit of a key differs from those of others."""
    step = 2 * HALF // total
    filling = (scrambled(place) % np.uint64(step)).astype(np.int64)
    return place * step + filling - HALF


def exchanged(place: Any, total: int) -> Any:
    """Sorted but for the first and the last key."""
    is_end = place % (total - 1) == 0
    return ascending(namespace(place).where(is_end, total - 1 - place, place), total)


ORDERS: Mapping[str, Callable[[Any, int], Any]] = {
    "random": random,
    "sorted": ascending,
    "exchanged": exchanged,
}


def scrambled(place: Any) -> Any:
    """64 bits of each place, as random ones: the finaliser of SplitMix64."""
    z = (place.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def make(module: str, order: str, start: int, size: int, total: int) -> Any:
    """A chunk of the keys, where it is needed: the same with NumPy and with CuPy."""
    xp = importlib.import_module(module)
    key = ORDERS[order](xp.arange(start, start + size, dtype=np.int64), total)
    return xp.where(abs(key) < EDGE, key, key + 2 * HALF * xp.sign(key))


def workers_of(client: Client) -> list[str]:
    return sorted(client.scheduler_info(n_workers=-1)["workers"])


def held(client: Client, module: str, order: str, chunks: int, size: int) -> da.Array:
    """The keys on the workers: so many chunks of each, the array's in the workers' order."""
    workers = workers_of(client)
    total = len(workers) * chunks * size
    name = f"keys-{order}"
    futures = {
        (name, i): client.submit(
            make, module, order, i * size, size, total, key=(name, i), workers=workers[i // chunks]
        )
        for i in range(len(workers) * chunks)
    }
    wait(list(futures.values()))
    for future in futures.values():
        if future.status != "finished":
            future.result()  # raises what the worker raised
    places = sorted(len(keys) for keys in client.has_what().values())
    if places != [chunks] * len(workers):
        raise RuntimeError(f"chunks are to lie {chunks} on each worker, not {places}")
    meta = importlib.import_module(module).empty(0, np.int64)
    return da.Array(futures, name, ((size,) * len(futures),), meta=meta)


# --- Methods --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Of a box plot: steps 2 to 5 of the paper's section I.A."""

    n: int
    quartiles: tuple[float, float, float]
    whiskers: tuple[float, float]
    n_low: int
    n_high: int
    outliers: tuple[int, ...]
    """Ascending."""

    @classmethod
    def of(cls, box: Any, outliers: Any) -> Answer:
        quartiles = (float(box.q1), float(box.med), float(box.q3))
        whiskers = (float(box.whislo), float(box.whishi))
        counts = (int(box.n_low), int(box.n_high))
        return cls(int(box.n), quartiles, whiskers, *counts, tuple(np.sort(outliers).tolist()))


def by_selection(client: Client, x: da.Array, most: int) -> Answer:
    box = describe_boxplot(x, max_fliers=most).compute()[0]
    return Answer.of(box, box.fliers)


def by_sorting(client: Client, x: da.Array, most: int) -> Answer:
    """The sorted keys stay on the workers too, as long as they are needed."""
    ordered = client.persist(radix_sort(x))
    (box,) = dask.compute(describe_sorted(ordered))
    return Answer.of(box, np.concatenate([to_host(box.fliers_low), to_host(box.fliers_high)]))


OURS, SORT = "describe_boxplot", "radix sort"
METHODS: Mapping[str, Callable[[Client, da.Array, int], Answer]] = {
    OURS: by_selection,
    SORT: by_sorting,
}


def count_outliers(x: da.Array) -> tuple[int, int]:
    """How many were set apart on either side."""
    low, high = dask.compute((x < -2 * HALF).sum(), (x >= 2 * HALF).sum())
    return int(low), int(high)


def check(x: da.Array, answers: Mapping[str, Answer], counts: tuple[int, int]) -> None:
    """All are the same, have the outliers that were set apart, and quartiles between the elements
    that counting finds."""
    ours = answers[OURS]
    for name, answer in answers.items():
        for field in dataclasses.fields(Answer):
            result, expected = (getattr(each, field.name) for each in (answer, ours))
            if result != expected:
                raise WrongAnswerError(f"{name}: {field.name} is not that of {OURS}")
    result = (ours.n, ours.n_low, ours.n_high, len(ours.outliers))
    if result != (x.size, *counts, sum(counts)):
        raise WrongAnswerError(f"{result} keys and outliers, and {counts} of {x.size} were made")
    # A quartile is a float64, so far from the number that it stands for.
    around = [
        (int(value) - math.ceil(math.ulp(value)), int(value) + math.ceil(math.ulp(value)))
        for value in ours.quartiles
    ]
    below, upto = dask.compute(
        [(x < a).sum() for a, _ in around], [(x <= b).sum() for _, b in around]
    )
    for q, b, u in zip(QUARTILES, below, upto, strict=True):
        position = q * (x.size - 1)
        if int(b) > math.ceil(position) or int(u) < math.floor(position) + 1:
            raise WrongAnswerError(f"quantile {q}: {b} keys are below it, {u} up to it")


# --- Measuring ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """What was measured of a method on one cluster."""

    kind: str
    """CPU or GPU."""
    device: str
    workers: int
    order: str
    method: str
    chunks: int
    nbytes: int
    """Of all keys."""
    outliers: int
    seconds: list[float]
    """One for each repetition, and so below."""
    between: list[int]
    """Bytes that workers sent to one another."""
    to_client: list[int]
    chunks_sent: list[int]


def timed(call: Callable[[], Answer]) -> Run:
    begin = time.perf_counter()
    answer = call()
    return Run(time.perf_counter() - begin, answer)


def measure(client: Client, order: str, asked: argparse.Namespace) -> Iterator[Record]:
    """The methods on keys in one order; the table is printed."""
    workers = len(workers_of(client))
    size = asked.mb * 2**20 // 8 // asked.chunks
    x = held(client, "cupy" if asked.gpu else "numpy", order, asked.chunks, size)
    counts = count_outliers(x)
    calls = {name: partial(method, client, x, max(counts)) for name, method in METHODS.items()}
    counted = {name: partial(sent, client, x, partial(timed, call)) for name, call in calls.items()}
    take_turns(calls, 1, f"workers: {workers}, {order}, warm-up")
    results = take_turns(counted, asked.repeat, f"workers: {workers}, {order}")
    traffic = {name: [run.result[0] for run in of_one] for name, of_one in results.items()}
    # Without the time that counting takes.
    runs = {name: [run.result[1] for run in of_one] for name, of_one in results.items()}
    check(x, {name: of_one[-1].result for name, of_one in runs.items()}, counts)
    say(table(HEAD, [row(x, name, runs, traffic[name]) for name in METHODS]))
    for name in METHODS:
        yield Record(
            kind="GPU" if asked.gpu else "CPU",
            device=device(asked),
            workers=workers,
            order=order,
            method=name,
            chunks=x.npartitions,
            nbytes=x.nbytes,
            outliers=sum(counts),
            seconds=[run.seconds for run in runs[name]],
            between=[each.between for each in traffic[name]],
            to_client=[each.to_client for each in traffic[name]],
            chunks_sent=[each.chunks for each in traffic[name]],
        )


HEAD = (
    "",
    "seconds",
    "least",
    "most",
    f"of `{OURS}`",
    "MB between workers",
    "of the keys",
    "MB to the client",
    "chunks sent",
)


def row(x: da.Array, name: str, runs: Runs, traffic: Sequence[Sent]) -> Sequence[str]:
    seconds = [run.seconds for run in runs[name]]
    between = statistics.median(each.between for each in traffic)
    return [
        name,
        *map(rounded, (median_time(runs[name]), min(seconds), max(seconds))),
        rounded(ratio(runs, name, OURS)),
        f"{between / 1e6:.3f}",
        f"{between / x.nbytes:.3%}",
        f"{statistics.median(each.to_client for each in traffic) / 1e6:.3f}",
        f"{statistics.median(each.chunks for each in traffic):.0f}",
    ]


def device(asked: argparse.Namespace) -> str:
    if not asked.gpu:
        return cpu_model()
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())


def scale(asked: argparse.Namespace) -> None:
    """A cluster for each number of workers, and a table for each order of the keys."""
    say(machine("distributed"))
    print(f"{device(asked)}; {asked.mb} MiB of int64 in {asked.chunks} chunks a worker;")
    print(f"medians of {asked.repeat} repetitions.\n")
    for workers in asked.workers:
        if asked.gpu and workers > n_gpus():
            print(f"Workers: {workers}: left out, GPUs here: {n_gpus()}.\n", flush=True)
            continue
        with started(workers, on_gpus=asked.gpu) as cluster, Client(cluster) as client:
            for order in asked.order:
                print(f"#### Workers: {workers}; keys: {order}\n", flush=True)
                add(asked.json, list(measure(client, order, asked)))


def add(path: Path | None, records: list[Record]) -> None:
    """Append them to a file, if there is to be one."""
    if path:
        known = read([path]) if path.exists() else []
        path.write_text(
            json.dumps([dataclasses.asdict(each) for each in [*known, *records]]) + "\n"
        )


def read(paths: Sequence[Path]) -> list[Record]:
    return [Record(**each) for path in paths for each in json.loads(path.read_text())]


# --- The picture ----------------------------------------------------------------------------------

COLOURS = {
    ("CPU", OURS): "#000000",
    ("CPU", SORT): "#D55E00",
    ("GPU", OURS): "#0072B2",
    ("GPU", SORT): "#CC79A7",
}
LEAST = 10_000  # bytes, below which the axis is linear
DASHES = {"random": "-", "sorted": ":", "exchanged": "--"}


def draw(records: Sequence[Record], path: Path) -> Path:
    """Seconds, and bytes between workers, by the number of workers."""
    import matplotlib

    matplotlib.use("Agg")
    path.parent.mkdir(parents=True, exist_ok=True)
    seconds = panel(
        records, "seconds", lambda record: statistics.median(record.seconds), logarithmic
    )
    between = panel(
        records,
        "bytes between workers",
        lambda record: statistics.median(record.between),
        with_zero,
    )
    return saved(path, [seconds, between], legend_columns=2)


def panel(
    records: Sequence[Record],
    title: str,
    value: Callable[[Record], float],
    set_scale: Drawing,
) -> Drawing:
    def drawing(cell: Any) -> None:
        lines: dict[tuple[str, str, str], dict[int, float]] = {}
        for record in records:
            line = lines.setdefault((record.kind, record.method, record.order), {})
            line[record.workers] = value(record)  # of two of a kind, the later
        for (kind, method, order), points in lines.items():
            cell.plot(
                *zip(*sorted(points.items()), strict=True),
                color=COLOURS[kind, method],
                linestyle=DASHES[order],
                marker="o",
                markersize=4,
                label=f"{method}, {kind}, {order}",
            )
        ticks = sorted({record.workers for record in records})
        cell.set_xscale("log", base=2)
        cell.set_xticks(ticks, map(str, ticks))
        cell.set_xlabel("workers")
        set_scale(cell)
        cell.set_title(title, fontsize=10, loc="left")
        cell.grid(alpha=0.3)

    return drawing


def logarithmic(cell: Any) -> None:
    cell.set_yscale("log")
    cell.yaxis.set_major_formatter("{x:g}")


def with_zero(cell: Any) -> None:
    """Logarithmic, and a zero below, which is what one worker sends."""
    cell.set_yscale("symlog", linthresh=LEAST)
    _, top = cell.get_ylim()
    cell.set_yticks([0, *(LEAST * 10**i for i in range(1 + math.ceil(math.log10(top / LEAST))))])
    cell.set_ylim(0, 2 * top)


# --- The program ----------------------------------------------------------------------------------


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--cpu", action="store_true", help="processes of one thread, and NumPy")
    mode.add_argument("--gpu", action="store_true", help="a process for each GPU, and CuPy")
    mode.add_argument("--plot", nargs="+", type=Path, metavar="FILE", help="draw what --json wrote")
    add = parser.add_argument
    add("--workers", nargs="+", type=int, default=[1, 2, 4], help="numbers of them; 1 2 4")
    add("--mb", type=int, default=512, help="MiB of keys a worker; 512")
    add("--chunks", type=int, default=4, help="of a worker; 4")
    add("--order", nargs="+", choices=ORDERS, default=["random", "exchanged"], help="of the keys")
    add("--repeat", type=int, default=3, help="repetitions; 3")
    add("--json", type=Path, metavar="FILE", help="append the figures to a list there")
    add("--out", type=Path, default=PICTURE, metavar="FILE", help="of the picture")
    chosen = parser.parse_args(arguments)
    if min(*chosen.workers, chosen.mb, chosen.chunks, chosen.repeat) < 1:
        parser.error("needs at least a worker, a MiB, a chunk and a repetition")
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if an answer is wrong."""
    chosen = parse(arguments)
    if chosen.plot:
        print(draw(read(chosen.plot), chosen.out))
        return 0
    try:
        scale(chosen)
    except WrongAnswerError as error:
        print(f"weak_scaling: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
