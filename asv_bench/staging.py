"""How fast an array on the host gets to the GPU, beside what its link carries; prints Markdown.

    python asv_bench/staging.py                  32 GiB of float32 through 8 GiB of device memory
    python asv_bench/staging.py --threads 1 4 8 --only link arrive

All contestants run in every repetition, in alternating order, and a share of the link is taken
within a repetition; what is printed is the median over the repetitions. Answers are checked: the
program ends with 1 if one is wrong.

The array is a tile of random numbers, repeated. Dask takes it for a file (see `Source`), so that
each load asks for every chunk anew. Device memory is limited for CuPy's pool, not for the driver.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
from benchmarks.common import QUARTILES, Source, Values, compute
from compare import (
    Runs,
    WrongAnswerError,
    cores,
    machine,
    median_time,
    rounded,
    say,
    table,
    take_turns,
)
from dask.utils import format_bytes, parse_bytes

from dask_gpuselect import quantile
from dask_gpuselect.devices import check_device, import_cupy
from dask_gpuselect.staging import to_gpu

TILE = 1 << 22  # elements of the tile, 16 MiB
STRETCH = 1 << 28  # bytes of pinned memory that the link is measured with

LINK = "the link: pinned memory, cudaMemcpyAsync"


@dataclass(frozen=True)
class Moved:
    """What a contestant did."""

    size: int
    """Bytes moved to the device, by all reads."""
    loads: float
    """Times that each chunk was moved."""
    peak: int
    """Bytes that CuPy's pool has taken of the device since it was last emptied."""


Contestant = Callable[[], Moved]


# --- Data


class Host:
    """An array on the host: random numbers, repeated.

    Parameters
    ----------
    size, chunk : int
        Bytes of the array, at least those of a tile, and of a chunk.
    """

    def __init__(self, size: int, chunk: int) -> None:
        self.tile = np.random.default_rng(2011).standard_normal(TILE, np.float32)
        self.repeats = max(1, size // self.tile.nbytes)
        self.values = np.empty(self.repeats * TILE, np.float32)
        self.chunk = min(chunk, self.values.nbytes)
        self.n_chunks = -(-self.values.nbytes // self.chunk)
        with ThreadPoolExecutor(cores()) as threads:  # one alone takes long to touch fresh pages
            list(threads.map(self._fill, range(self.repeats)))

    def _fill(self, i: int) -> None:
        np.copyto(self.values[i * TILE : (i + 1) * TILE], self.tile)

    def first_chunk(self) -> Values:
        return self.values[: self.chunk // self.values.itemsize]

    def check_sum(self, found: float) -> None:
        expected = self.tile.sum(dtype=np.float64) * self.repeats
        if not math.isclose(found, expected, rel_tol=1e-9):
            raise WrongAnswerError(f"the sum is {expected}, not {found}")

    def check_quartiles(self, found: Values) -> None:
        """Each must lie between its neighbours."""
        ordered = np.sort(self.tile)
        for q, value in zip(QUARTILES, found, strict=True):
            position = q * (self.values.size - 1)
            lower = ordered[math.floor(position) // self.repeats]
            upper = ordered[math.ceil(position) // self.repeats]
            if not lower <= value <= upper:
                raise WrongAnswerError(f"quantile {q} is in [{lower}, {upper}], not {value}")


# --- Contestants


def link() -> Contestant:
    """One pinned buffer, again and again."""
    cupy = import_cupy()
    pinned = cupy.cuda.alloc_pinned_memory(STRETCH)
    np.frombuffer(pinned, np.uint8)[:] = 1

    def run() -> Moved:
        target = cupy.empty(STRETCH, np.uint8)
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.get_current_stream().synchronize()
        n = 32
        for _ in range(n):
            target.data.copy_from_host_async(pinned.ptr, STRETCH, stream)
        stream.synchronize()
        return moved(n * STRETCH)

    return run


def plain(host: Host, function: Callable[[Values], Any]) -> Contestant:
    """One chunk, by one thread."""
    cupy = import_cupy()

    def run() -> Moved:
        chunk = host.first_chunk()
        copy = function(chunk)
        cupy.cuda.get_current_stream().synchronize()
        assert copy.nbytes == chunk.nbytes
        return moved(copy.nbytes)

    return run


def pageable(chunk: Values) -> Any:
    """As the driver copies memory that is not pinned."""
    cupy = import_cupy()
    copy = cupy.empty(chunk.shape, chunk.dtype)
    copy.set(chunk)
    return copy


def lazily(
    host: Host,
    move: Callable[[da.Array], da.Array],
    reduce: Callable[[da.Array], da.Array],
    check: Callable[[Any], None],
    workers: int,
    config: Mapping[str, Any],
) -> Contestant:
    """The whole array, chunk by chunk."""
    cupy = import_cupy()

    def run() -> Moved:
        source = Source.of(host.values, host.n_chunks)
        with dask.config.set(config):
            check(cupy.asnumpy(compute(reduce(move(source.lazy())), workers)))
        loads = sum(source.loads) / host.n_chunks
        return moved(int(loads * host.values.nbytes), loads)

    return run


def moved(size: int, loads: float = 1) -> Moved:
    """The pool is emptied, so that the next contestant begins like this one."""
    pool = import_cupy().get_default_memory_pool()
    peak = int(pool.total_bytes())
    pool.free_all_blocks()
    return Moved(size, loads, peak)


def ignore(found: Any) -> None:
    del found


def first_elements(x: da.Array) -> da.Array:
    """The least that can be asked of chunks: nothing but that they arrive."""

    def first(chunk: Any) -> Any:
        return chunk[:1].copy()  # a view would keep the whole chunk on the device

    return da.map_blocks(first, x, chunks=(1,), dtype=x.dtype, meta=x._meta)


def plainly(x: da.Array) -> da.Array:
    cupy = import_cupy()
    return da.map_blocks(cupy.asarray, x, dtype=x.dtype, meta=cupy.empty(0, x.dtype))


REDUCTIONS: Mapping[str, tuple[str, Callable[[da.Array], da.Array]]] = {
    "arrive": ("first({})", first_elements),
    "sum": ("{}.sum()", lambda x: x.sum(dtype=np.float64)),
    "quantile": ("quantile({}, q)", lambda x: quantile(x, QUARTILES)),
}
"""What is computed of the chunks on the device: how it is written, and what it does."""

KINDS = ("link", "pageable", "plain", *REDUCTIONS)


def contestants(arguments: argparse.Namespace, host: Host) -> Mapping[str, Contestant]:
    """By name; the link is always among them."""
    cupy = import_cupy()
    results = {LINK: link()}
    if "pageable" in arguments.only:
        results["a chunk, cudaMemcpyAsync"] = plain(host, pageable)
    if "plain" in arguments.only:
        results["a chunk, `cupy.asarray`"] = plain(host, cupy.asarray)
    checks = {"arrive": ignore, "sum": host.check_sum, "quantile": host.check_quartiles}
    for workers in arguments.workers:
        for kind, (call, reduce) in REDUCTIONS.items():
            if kind not in arguments.only:
                continue
            if kind == "sum" and "plain" in arguments.only:
                name = f"`{call.format('x.map_blocks(cupy.asarray)')}`, {workers} workers"
                results[name] = lazily(host, plainly, reduce, checks[kind], workers, {})
            for config in configs(arguments):
                words = [f"{workers} workers", *(f"{n} {value}" for n, value in config.items())]
                name = f"`{call.format('to_gpu(x)')}`, {', '.join(words)}"
                full = {f"dask_gpuselect.staging-{n}": value for n, value in config.items()}
                results[name] = lazily(host, to_gpu, reduce, checks[kind], workers, full)
    return results


def configs(arguments: argparse.Namespace) -> Sequence[Mapping[str, Any]]:
    """Every combination of the values asked for; what is not given stays the default."""
    pools = [{"pool": pool} for pool in arguments.pool] or [{}]
    threads = [{"threads": threads} for threads in arguments.threads] or [{}]
    return [{**one, **other} for one in pools for other in threads]


# --- Results


def rate(run: Any) -> float:
    """GB/s."""
    return float(run.result.size / run.seconds / 1e9)


def show(runs: Runs) -> None:
    rows = []
    for name, own in runs.items():
        rates = list(map(rate, own))
        pairs = zip(rates, map(rate, runs[LINK]), strict=True)
        rows.append(
            [
                name,
                f"{own[-1].result.loads:.3g}",
                rounded(median_time(own)),
                rounded(statistics.median(rates)),
                f"{rounded(min(rates))} to {rounded(max(rates))}",
                f"{100 * statistics.median(one / other for one, other in pairs):.0f} %",
                format_bytes(max(run.result.peak for run in own)),
            ]
        )
    head = ["", "reads", "seconds", "GB/s a read", "least to most", "of the link", "device memory"]
    say(table(head, rows))


# --- The program


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(description=lines[0])
    add = parser.add_argument
    add("--gigabytes", type=float, default=32, help="GiB of the array; 32")
    add("--chunk", type=parse_bytes, default="1GiB", help="bytes of a chunk; 1GiB")
    add("--limit", type=parse_bytes, default="8GiB", help="of CuPy's pool on the device; 8GiB")
    add("--workers", type=int, nargs="+", default=[2], help="threads of the scheduler; 2")
    add("--pool", nargs="+", default=[], metavar="BYTES", help="staging-pool; our default")
    add("--threads", type=int, nargs="+", default=[], help="staging-threads; our default")
    add("--repeat", type=int, default=5, help="repetitions; 5")
    add("--only", nargs="+", choices=KINDS, default=list(KINDS), help="contestants; all")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if an answer is wrong."""
    chosen = parse(arguments)
    check_device()
    cupy = import_cupy()
    begin = time.perf_counter()
    host = Host(int(chosen.gigabytes * 2**30), chosen.chunk)
    seconds = time.perf_counter() - begin
    print(f"{format_bytes(host.values.nbytes)} made in {seconds:.1f} s", file=sys.stderr)

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
    print(
        f"{format_bytes(host.values.nbytes)} of float32 in {host.n_chunks} chunks to a device "
        f"memory of {format_bytes(chosen.limit)}; medians of {chosen.repeat} repetitions. "
        f"{properties['name'].decode()}, CuPy {cupy.__version__}.\n"
    )
    say(machine())
    cupy.get_default_memory_pool().set_limit(size=chosen.limit)
    result = contestants(chosen, host)
    try:
        take_turns(result, 1, "warm-up")
        show(take_turns(result, chosen.repeat, "staging"))
    except WrongAnswerError as error:
        print(f"staging: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
