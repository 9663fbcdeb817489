"""Compare us with what else there is, in one run and by turns; prints Markdown.

    python asv_bench/compare.py                  quartiles of 1e8 float64 in 10 chunks
    python asv_bench/compare.py --in-memory      the same, held in memory: the plan of one read
    python asv_bench/compare.py --many-chunks    10,000 chunks of 1,000 elements, against x.sum()
    python asv_bench/compare.py --candidates     candidates of a quantile
    python asv_bench/compare.py --boxplot        box plots of 1e8 float64, beside our quartiles and
                                                 matplotlib's statistics

The speed of a machine drifts, and neighbours take their share of it. So every repetition runs all
contestants, one after the other (every second repetition in the opposite order), and a ratio is
taken within a repetition; what is printed is the median over the repetitions. Answers are checked
too: the program ends with 1 if one that should be exact is not.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import os
import platform
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from benchmarks.boxplot import (
    FORMS,
    OTHER_BOXES,
    OUR_BOXES,
    Arrays,
    BoxPeer,
    compile_boxes,
    forms_of,
    is_installed,
)
from benchmarks.common import (
    DISTRIBUTIONS,
    QUARTILES,
    SPEED,
    THREADS,
    Floats,
    Source,
    Values,
    compute,
    count_candidates,
    even_cuts,
    find,
    in_memory,
    optimized,
)
from benchmarks.peers import PEERS, Data, Peer

from dask_gpuselect import Box, median, quantile

DESIGNED = (
    "normal",
    "uniform",
    "sorted",
    "trended",
    "scales",
    "lognormal",
    "zipf",
    "outliers",
    "integers",
)
"""The distributions of the candidates' table."""

OURS_ON_NORMAL = "dask_gpuselect, normal data"


class WrongAnswerError(Exception):
    """An answer that should be exact is not."""


# --- Taking turns


@dataclass(frozen=True)
class Run:
    """One call of a contestant."""

    seconds: float
    result: Any


Runs = Mapping[str, Sequence[Run]]
"""For each contestant its runs, one a repetition."""


def take_turns(contestants: Mapping[str, Callable[[], Any]], repeat: int, what: str) -> Runs:
    """Run every contestant once a repetition, in alternating order."""
    runs: dict[str, list[Run]] = {name: [] for name in contestants}
    for repetition in range(repeat):
        gc.collect()
        names = list(contestants)
        for name in names if repetition % 2 == 0 else reversed(names):
            begin = time.perf_counter()
            result = contestants[name]()
            runs[name].append(Run(time.perf_counter() - begin, result))
        print(f"{what}: repetition {repetition + 1} of {repeat}", file=sys.stderr, flush=True)
    return runs


def ratio(runs: Runs, name: str, base: str) -> float:
    """The median of the ratios of two contestants' times, each taken within a repetition."""
    pairs = zip(runs[name], runs[base], strict=True)
    return statistics.median(one.seconds / other.seconds for one, other in pairs)


def median_time(runs: Sequence[Run]) -> float:
    return statistics.median(run.seconds for run in runs)


# --- Markdown


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def say(lines: Iterator[str]) -> None:
    for line in lines:
        print(line, flush=True)


def rounded(value: float) -> str:
    """Three digits, or more if there are more before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


def machine(*others: str) -> Iterator[str]:
    """What the measurements were taken on, without its name; and versions of other packages."""
    names = ("numpy", "dask", "numba", *others)
    packages = {name: importlib.metadata.version(name) for name in names}
    load, *_ = os.getloadavg() if hasattr(os, "getloadavg") else (float("nan"),)
    return table(
        ["cores", "CPU", "NumPy uses", "system", "Python", *packages, "load at the start"],
        [
            [
                str(cores()),
                cpu_model(),
                " ".join(simd()),
                platform.system(),
                platform.python_version(),
                *packages.values(),
                f"{load:.2f}",
            ]
        ],
    )


def simd() -> list[str]:
    """The vector instructions that NumPy has found beyond those it always uses: its sort is 4
    to 7 times as fast for 64 bits with AVX2 (in X86_V3), and faster with AVX-512 (in X86_V4)."""
    config: Any = np.show_config(mode="dicts")
    result: list[str] = config["SIMD Extensions"].get("found", [])
    return result


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


# --- Quartiles beside the peers


def quartiles(arguments: argparse.Namespace) -> None:
    """A table for each distribution, and one that sums them up."""
    size, n_chunks, threads = arguments.elements, arguments.chunks, arguments.threads
    peers = {
        name: PEERS[name] for name in PEERS if name == "dask_gpuselect" or name in arguments.peers
    }
    q = np.array(QUARTILES)
    print(
        f"Quartiles of {size:,} float64 in {n_chunks} chunks, {threads} threads;"
        f" medians of {arguments.repeat} repetitions.\n"
    )
    say(machine(*(["crick"] if "tdigest" in peers else [])))
    is_resident = arguments.in_memory
    normal = Data.of(in_memory("normal", size), n_chunks, is_in_memory=is_resident)
    warm_up(peers, q, threads, is_in_memory=is_resident)

    summary = []
    for distribution in arguments.distributions:
        data = normal
        if distribution != "normal":
            data = Data.of(in_memory(distribution, size), n_chunks, is_in_memory=is_resident)
        runs = take_turns(
            contestants(peers, data, normal, q, threads), arguments.repeat, distribution
        )
        print(f"#### {distribution}\n")
        check_same_bits(runs)
        say(detail(peers, runs, data.values, q))
        others = [
            rounded(ratio(runs, name, "dask_gpuselect"))
            for name in peers
            if name != "dask_gpuselect"
        ]
        on_normal = rounded(ratio(runs, "dask_gpuselect", OURS_ON_NORMAL))
        summary.append(
            [distribution, rounded(median_time(runs["dask_gpuselect"])), on_normal, *others]
        )

    print("#### All: times relative to dask_gpuselect\n")
    calls = [f"`{peer.call}`" for name, peer in peers.items() if name != "dask_gpuselect"]
    say(
        table(
            ["data", "dask_gpuselect, seconds", "divided by that on normal data", *calls], summary
        )
    )


def warm_up(
    peers: Mapping[str, Peer], q: Floats, threads: int, *, is_in_memory: bool = False
) -> None:
    """Run all once on a little of all data, so that no time includes a compilation."""
    for distribution in SPEED:
        # Held chunks of a million, from which on there is a pilot.
        data = Data.of(
            in_memory(distribution, 1 << 21 if is_in_memory else 40_000),
            2,
            is_in_memory=is_in_memory,
        )
        for peer in peers.values():
            peer(data, q, threads)


def contestants(
    peers: Mapping[str, Peer], data: Data, normal: Data, q: Floats, threads: int
) -> Mapping[str, Callable[[], Any]]:
    """The peers on this data, and ourselves on normal data."""
    calls: dict[str, Callable[[], Any]] = {
        name: lambda peer=peer: peer(data, q, threads)  # type: ignore[misc]
        for name, peer in peers.items()
    }
    return {**calls, OURS_ON_NORMAL: lambda: PEERS["dask_gpuselect"](normal, q, threads)}


def detail(peers: Mapping[str, Peer], runs: Runs, values: Values, q: Floats) -> Iterator[str]:
    head = [
        "",
        "finds",
        "answer",
        "array",
        "seconds",
        "least",
        "most",
        "relative to dask_gpuselect",
    ]
    rows = []
    for name, peer in peers.items():
        seconds = [run.seconds for run in runs[name]]
        rows.append(
            [
                f"`{peer.call}`",
                peer.finds,
                quality(name, peer, runs[name][-1].result, values, q),
                "lazy" if peer.lazy else "in memory",
                *map(rounded, (statistics.median(seconds), min(seconds), max(seconds))),
                rounded(ratio(runs, name, "dask_gpuselect")),
            ]
        )
    return table(head, rows)


def check_same_bits(runs: Runs) -> None:
    """Ours and NumPy's interpolated answers are equal to the last bit."""
    if "np.quantile" in runs:
        ours, numpys = (runs[name][-1].result for name in ("dask_gpuselect", "np.quantile"))
        if not np.array_equal(ours, numpys):
            raise WrongAnswerError(f"dask_gpuselect is {ours}, and NumPy's {numpys}")


def quality(name: str, peer: Peer, answer: Any, values: Values, q: Floats) -> str:
    """Whether an answer is exact; otherwise how far off it is."""
    if peer.finds == "sum":
        return ""
    share = rank_error(answer, values, q if peer.finds == "quantiles" else np.array([0.5]))
    if not peer.exact:
        return f"approximate, off by {100 * share:.2g} % of the ranks"
    if share:
        raise WrongAnswerError(f"{name} answered {answer}, off by {share:.2g} of the ranks")
    return "exact"


def rank_error(answer: Any, values: Values, q: Floats) -> float:
    """How far answers are from between the neighbours of their quantiles, at most: a share of all
    ranks."""
    worst = 0
    for result, position in zip(
        np.reshape(answer, (len(q), -1)), q * (values.size - 1), strict=True
    ):
        for value in result:
            below, upto = np.count_nonzero(values < value), np.count_nonzero(values <= value)
            worst = max(worst, int(below - np.ceil(position)), int(np.floor(position) + 1 - upto))
    return worst / values.size


# --- Many chunks


@dataclass(frozen=True)
class Phases:
    """Seconds that the steps of an answer take, and tasks that the scheduler runs."""

    build: float
    optimize: float
    compute: float
    tasks: int


def many_chunks(arguments: argparse.Namespace) -> None:
    """Quartiles and sum of the same chunks: graph, tasks and root."""
    size, n_chunks, threads = arguments.elements, arguments.chunks, arguments.threads
    print(
        f"{n_chunks:,} chunks of {size // n_chunks:,} float64, {threads} threads;"
        f" medians of {arguments.repeat} repetitions.\n"
    )
    say(machine())
    x = Source.of(in_memory("normal", size), n_chunks).lazy()
    functions = {
        "median(x)": lambda: phases(lambda: median(x), threads),
        "quantile(x, q)": lambda: phases(lambda: quantile(x, QUARTILES), threads),
        "x.sum()": lambda: phases(x.sum, threads),
    }
    bytes_of = {
        "median(x)": bytes_of_graph(lambda: median(x)),
        "quantile(x, q)": bytes_of_graph(lambda: quantile(x, QUARTILES)),
        "x.sum()": bytes_of_graph(x.sum),
    }
    warm_up({"dask_gpuselect": PEERS["dask_gpuselect"]}, np.array(QUARTILES), threads)
    phases(lambda: x[:1000].sum(), threads)
    runs = take_turns(functions, arguments.repeat, "many chunks")

    steps = ("build", "optimize", "compute")
    rows = []
    for name in functions:
        results = [run.result for run in runs[name]]
        rows.append(
            [
                f"`{name}`",
                f"{results[0].tasks:,}",
                rounded(bytes_of[name] / 1e6),
                *(rounded(statistics.median(getattr(r, step) for r in results)) for step in steps),
                rounded(median_time(runs[name])),
                rounded(ratio(runs, name, "x.sum()")),
            ]
        )
    times = ["build, s", "optimise, s", "compute, s", "all, s", "all / `x.sum()`"]
    head = ["", "tasks", "graph, MB", *times]
    say(table(head, rows))


def bytes_of_graph(call: Callable[[], da.Array]) -> int:
    """What the graph takes that a scheduler is given, in memory."""
    gc.collect()
    tracemalloc.start()
    graph = dict(optimized(call()).dask)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del graph
    return size


def phases(call: Callable[[], da.Array], threads: int) -> Phases:
    """Build a graph, optimise it, and compute it."""
    times = [time.perf_counter()]
    lazy = call()
    times.append(time.perf_counter())
    lazy = optimized(lazy)
    times.append(time.perf_counter())
    compute(lazy, threads, optimize_graph=False)
    times.append(time.perf_counter())
    build, optimize, computed = np.diff(times).tolist()
    return Phases(build, optimize, computed, len(lazy.dask))


# --- Candidates


def candidates(arguments: argparse.Namespace) -> None:
    """How many elements leave the chunks for each quantile, in units of n/m."""
    size, n_chunks = arguments.elements, arguments.chunks
    size -= size % n_chunks
    print(
        f"Candidates of a quantile in units of n/m: n = {size:,} elements in {n_chunks} chunks,"
        f" m evenly spaced pivots in each. Quantiles: {', '.join(map(str, arguments.q))}.\n"
    )
    rows = []
    for distribution in arguments.distributions:
        values = in_memory(distribution, size)
        ordered = np.sort(values)
        for n_pivots in arguments.pivots:
            cuts = even_cuts(values, n_chunks, n_pivots)
            found = [count_candidates(ordered, find(cuts, np.array([q]))) for q in arguments.q]
            shares = np.array(found) * (n_pivots / size)
            row = (f"{value:.2f}" for value in (shares.mean(), shares.max()))
            rows.append([distribution, str(n_pivots), *row])
        print(f"{distribution}: done", file=sys.stderr, flush=True)
    say(table(["data", "m", "mean", "most"], rows))


# --- Box plots


def boxplots(arguments: argparse.Namespace) -> None:
    """A table for each distribution, and one that sums them up."""
    size, n_chunks, threads = arguments.elements, arguments.chunks, arguments.threads
    others = {name: OTHER_BOXES[name] for name in OTHER_BOXES if name in arguments.peers}
    peers = {**OUR_BOXES, **others}
    print(
        f"Box plots of {size:,} float64, dask arrays in {n_chunks} chunks, {threads} threads;"
        f" medians of {arguments.repeat} repetitions.\n"
    )
    say(machine(*(name for name in ("matplotlib",) if name in others)))
    warm_up_boxes(peers, threads)

    summary = []
    for distribution in arguments.distributions:
        values = in_memory(distribution, size)
        calls = box_contestants(peers, forms_of(values, n_chunks), threads)
        runs = take_turns(calls, arguments.repeat, distribution)
        check_boxes(runs, values)
        print(f"#### {distribution}\n")
        say(table(BOX_HEAD, [box_row(name, peer, runs) for name, peer in peers.items()]))
        to_quartiles = [rounded(ratio(runs, f"box, {form}", base_of(form))) for form in FORMS]
        summary.append([distribution, *to_quartiles, *(faster(runs, f) for f in FORMS)])

    print("#### All: boxes relative to quartiles of the same array, matplotlib relative to boxes\n")
    units = [f"{form}, {what}" for what in ("of quartiles", "matplotlib's") for form in FORMS]
    say(table(["data", *units], summary))


BOX_HEAD = ("", "array", "seconds", "least", "most", "of our quartiles", "matplotlib's of it")


def base_of(form: str) -> str:
    """The contestant that other answers about an array are measured by."""
    return f"quartiles, {form}"


def box_row(name: str, peer: BoxPeer, runs: Runs) -> Sequence[str]:
    seconds = [run.seconds for run in runs[name]]
    times = map(rounded, (statistics.median(seconds), min(seconds), max(seconds)))
    to_quartiles = rounded(ratio(runs, name, base_of(peer.form)))
    faster_by = faster(runs, peer.form) if name == f"box, {peer.form}" else ""
    return [f"`{peer.call}`", peer.form, *times, to_quartiles, faster_by]


def faster(runs: Runs, form: str) -> str:
    """How many times as long as our box of a form of the array matplotlib's takes, if it ran."""
    return rounded(ratio(runs, "matplotlib", f"box, {form}")) if "matplotlib" in runs else ""


def box_contestants(
    peers: Mapping[str, BoxPeer], arrays: Arrays, threads: int
) -> Mapping[str, Callable[[], Any]]:
    return {name: lambda peer=peer: peer(arrays, threads) for name, peer in peers.items()}  # type: ignore[misc]


def warm_up_boxes(peers: Mapping[str, BoxPeer], threads: int) -> None:
    """Run all once on a little data, so that no time includes a compilation."""
    compile_boxes("float64")
    arrays = forms_of(in_memory("normal", 40_000), 2)
    for peer in peers.values():
        peer(arrays, threads)


def check_boxes(runs: Runs, values: Values) -> None:
    """Our boxes are the same in each form, and matplotlib's; all quartiles are the box's."""
    last = {name: of_name[-1].result for name, of_name in runs.items()}
    (box,) = last[f"box, {next(iter(FORMS))}"]
    for name, answer in last.items():
        if name == "matplotlib":
            check_as_matplotlib(box, answer[0], values)
        elif name in OUR_BOXES and OUR_BOXES[name].is_box:
            for key, value in answer[0].to_dict().items():
                check_equal(f"{name}: {key}", value, getattr(box, key))
        else:
            check_equal(name, answer, [box.q1, box.med, box.q3])


def check_as_matplotlib(box: Box, stats: Mapping[str, Any], values: Values) -> None:
    """To the last bit, but for the mean, which is rounded in another order. Fliers by their
    numbers, and those that we kept by their values."""
    for key in ("q1", "med", "q3", "iqr", "whislo", "whishi", "cilo", "cihi"):
        check_equal(f"matplotlib: {key}", stats[key], getattr(box, key))
    low, high = (
        np.sort(stats["fliers"][is_beyond(stats["fliers"], stats[end])])
        for is_beyond, end in ((np.less, "whislo"), (np.greater, "whishi"))
    )
    check_equal("matplotlib: n_low, n_high", (len(low), len(high)), (box.n_low, box.n_high))
    n_low = int((box.fliers < box.whislo).sum())
    n_high = len(box.fliers) - n_low
    taken = np.concatenate([low[:n_low], high[::-1][:n_high]])
    check_equal("matplotlib: fliers", taken, box.fliers)
    check_equal("NumPy: min, max", (values.min(), values.max()), (box.min, box.max))
    if not np.isclose(stats["mean"], box.mean, rtol=1e-9, atol=1e-12 * box.std):
        raise WrongAnswerError(
            f"matplotlib: mean: {stats['mean']}, and dask_gpuselect is {box.mean}"
        )


def check_equal(what: str, answer: Any, ours: Any) -> None:
    if not np.array_equal(answer, ours):
        raise WrongAnswerError(f"{what}: {answer}, and dask_gpuselect is {ours}")


# --- The program


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(description=lines[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--many-chunks", action="store_true", help="10,000 chunks against x.sum()")
    mode.add_argument("--candidates", action="store_true", help="the table of candidates")
    mode.add_argument("--boxplot", action="store_true", help="box plots, beside matplotlib's")
    add = parser.add_argument
    add("--in-memory", action="store_true", help="a dask array that is held: da.from_array")
    add("--elements", type=int, help="in all; 1e8, with many chunks 1e7, for candidates 6.4e6")
    add("--chunks", type=int, help="10, with many chunks 10,000, for candidates 32")
    add("--threads", type=int, default=THREADS, help=f"that compute; {THREADS}")
    add("--repeat", type=int, default=5, help="repetitions; 5")
    add("--distributions", nargs="+", choices=DISTRIBUTIONS, metavar="NAME", help="of the data")
    peers = list(dict.fromkeys([*PEERS, *OTHER_BOXES]))
    add("--peers", nargs="+", choices=peers, default=peers, metavar="NAME", help="beside us")
    add("--pivots", nargs="+", type=int, default=[64, 256], help="for candidates: m; 64 256")
    add(
        "--q",
        nargs="+",
        type=float,
        default=[0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99],
        help="for candidates: the quantiles",
    )
    chosen = parser.parse_args(arguments)
    elements, chunks, distributions = defaults(chosen)
    chosen.elements = elements if chosen.elements is None else chosen.elements
    chosen.chunks = chunks if chosen.chunks is None else chosen.chunks
    chosen.distributions = chosen.distributions or list(distributions)
    if not 0 < chosen.chunks <= chosen.elements or min(chosen.threads, chosen.repeat) < 1:
        parser.error("needs at least an element a chunk, a thread and a repetition")
    if chosen.boxplot and not all(map(is_installed, chosen.peers)):
        parser.error("needs matplotlib (pip install 'dask-gpuselect[plot]'), or other --peers")
    return chosen


def defaults(chosen: argparse.Namespace) -> tuple[int, int, Sequence[str]]:
    """Elements, chunks and distributions of each mode."""
    if chosen.many_chunks:
        return 10_000_000, 10_000, ("normal",)
    if chosen.candidates:
        return 32 * 200_000, 32, DESIGNED
    if chosen.boxplot:
        return 100_000_000, 10, (*SPEED, "clustered")
    return 100_000_000, 10, SPEED


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if an answer is wrong."""
    chosen = parse(arguments)
    modes = {"many_chunks": many_chunks, "candidates": candidates, "boxplot": boxplots}
    mode = next((name for name in modes if getattr(chosen, name)), None)
    try:
        modes.get(mode, quartiles)(chosen)
    except WrongAnswerError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
