"""Compare quantiles along an axis with what else there is, in one run and by turns; prints
Markdown.

    python asv_bench/axis.py                 (365, 500, 500) float32 in chunks of (73, 250, 250)
    python asv_bench/axis.py --memory        a stack ten times the memory limit of a worker
    python asv_bench/axis.py --kinds         narrow integers, lanes of few elements

Times are taken as ``compare.py`` takes them. ``numbagg`` is compared with where it is installed
(``pip install dask-gpuselect[bench]``). With ``--memory``, a worker process of its own computes the
composite of a stack that is made when it is read, and tells its peak.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from benchmarks.common import THREADS
from benchmarks.lanes import (
    CALLS,
    CHUNKS,
    KINDS,
    MISSING,
    STACK,
    LanePeer,
    Stack,
    available,
    make_stack,
)
from compare import Runs, WrongAnswerError, machine, ratio, rounded, say, table, take_turns

from dask_gpuselect import explain, median


def compare(arguments: argparse.Namespace) -> None:
    """A table for each question."""
    shape, chunks = tuple(arguments.shape), tuple(arguments.chunks)
    print(
        f"{shape} float32 in chunks of {chunks}, along the first axis, {arguments.threads} threads;"
        f" medians of {arguments.repeat} repetitions.\n"
    )
    say(machine())
    for question in ("median", "quartiles", "quartiles with NaN"):
        missing = MISSING if "NaN" in question else 0.0
        stack = Stack.of(make_stack(shape, missing), chunks)
        peers = available(question)
        warm_up(peers, arguments.threads, missing)
        runs = take_turns(calls(peers, stack, arguments.threads), arguments.repeat, question)
        check(runs)
        print(f"{question}{f', {missing:.0%} of all' if missing else ''}\n")
        say(detail(peers, runs))


def calls(
    peers: Mapping[str, LanePeer], stack: Stack, threads: int
) -> Mapping[str, Callable[[], Any]]:
    return {name: lambda peer=peer: peer(stack, threads) for name, peer in peers.items()}  # type: ignore[misc]


def warm_up(peers: Mapping[str, LanePeer], threads: int, missing: float) -> None:
    """Run all once on a little data, so that no time includes a compilation."""
    stack = Stack.of(make_stack((20, 8, 8), missing), (10, 4, 4))
    for peer in peers.values():
        peer(stack, threads)


def check(runs: Runs) -> None:
    """Check the answers of all peers, up to the last digits of float32, in which some compute."""
    ours = runs["dask_gpuselect"][-1].result
    for name in runs:
        result = runs[name][-1].result
        if name != "sum" and not np.allclose(result, ours, rtol=1e-5, atol=1e-6, equal_nan=True):
            raise WrongAnswerError(f"{name} has another answer than we")
    if "plain" in runs and not np.array_equal(runs["plain"][-1].result, ours, equal_nan=True):
        raise WrongAnswerError("plain and lazy answers differ")


def detail(peers: Mapping[str, LanePeer], runs: Runs) -> Iterator[str]:
    rows = []
    for name, peer in peers.items():
        seconds = [run.seconds for run in runs[name]]
        times = map(rounded, (statistics.median(seconds), min(seconds), max(seconds)))
        rows.append([f"`{peer.call}`", *times, rounded(ratio(runs, name, "dask_gpuselect"))])
    return table(["", "seconds", "least", "most", "relative to dask_gpuselect"], rows)


# --- Kinds of lanes


def kinds(arguments: argparse.Namespace) -> None:
    """How many times faster than NumPy, for arrays of other kinds."""
    print(
        f"Arrays in memory, {arguments.threads} threads; medians of the ratios of "
        f"{arguments.repeat} repetitions.\n"
    )
    say(machine())
    rows = []
    for kind, (make, axis) in KINDS.items():
        values = make()
        calls = {name: partial(call, values, axis) for name, call in CALLS.items()}
        for call in calls.values():
            call()
        with dask.config.set(num_workers=arguments.threads):
            runs = take_turns(calls, arguments.repeat, kind)
        for name in ("median", "quantile"):
            ours, theirs = (runs[each][-1].result for each in (name, f"np.{name}"))
            if not np.array_equal(ours, theirs):
                raise WrongAnswerError(f"{name} of {kind} is not NumPy's")
        row = [rounded(ratio(runs, f"np.{name}", name)) for name in ("median", "quantile")]
        rows.append([kind, str(axis), *row])
    say(table(["array", "axis", "median, over `np.median`", "quartiles, over `np.quantile`"], rows))


# --- Memory


def memory(arguments: argparse.Namespace) -> None:
    """The peak of a worker that computes the median of a stack many times its memory limit."""
    from distributed import Client, LocalCluster

    limit = arguments.megabytes * 10**6
    n = -(-arguments.times * limit // (400 * 400 * 4))
    blocks = da.zeros((n, 400, 400), chunks=(-(-n // 50), 100, 100), dtype="f4")
    x = blocks.map_blocks(noise, dtype="f4", meta=np.empty((0, 0, 0), "f4"))
    rows = []
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=arguments.threads,
            memory_limit=limit,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        with dask.config.set({"dask_gpuselect.column-limit": limit // 10}):
            plan, lazy = explain(x, axis=0), median(x, axis=0)
        for call, value in (("x.sum(axis=0)", x.sum(axis=0)), ("median(x, axis=0)", lazy)):
            value.compute()
            (peak,) = client.run(peak_memory).values()
            rows.append([f"`{call}`", f"{x.nbytes / limit:.1f}", rounded(peak / limit)])
            if peak > limit:
                raise WrongAnswerError(f"{call}: a worker took {peak / limit:.2f} of its limit")
    print(f"A worker of {limit / 1e6:.0f} MB, {arguments.threads} threads. Plan: {plan}\n")
    say(table(["", "stack / limit", "peak of the worker / limit"], rows))


def noise(block: np.ndarray[Any, Any], block_id: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(block_id).standard_normal(block.shape, np.float32)


def peak_memory() -> int:
    """Bytes that this process has held at most."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# --- The program


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if an answer is wrong, or a limit broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    add = parser.add_argument
    add("--memory", action="store_true", help="a stack ten times a worker's memory limit")
    add("--kinds", action="store_true", help="other lanes, in memory, against NumPy")
    add("--shape", nargs=3, type=int, default=STACK, help="of the stack")
    add("--chunks", nargs=3, type=int, default=CHUNKS, help="of the stack")
    add("--threads", type=int, default=THREADS, help=f"that compute; {THREADS}")
    add("--repeat", type=int, default=5, help="repetitions; 5")
    add("--megabytes", type=int, default=500, help="of the worker, with --memory; 500")
    add("--times", type=int, default=10, help="so many times that is the stack; 10")
    chosen = parser.parse_args(arguments)
    try:
        (memory if chosen.memory else kinds if chosen.kinds else compare)(chosen)
    except WrongAnswerError as error:
        print(f"axis: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
