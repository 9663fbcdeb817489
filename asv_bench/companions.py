"""What masks, no-data values and weights cost; prints Markdown.

    python asv_bench/companions.py masks       nodata of 1e8 uint16 and where= of float64, beside
                                               none, and beside NaN in floats: time and peak memory
    python asv_bench/companions.py weights     weighted quartiles, medians and box plots of 1e8
                                               float64, and NumPy's of 1e7
    python asv_bench/companions.py chunkings   cos-latitude weighted quantiles of 1e9 float32 under
                                               ten chunkings: the same bits
    python asv_bench/companions.py gpu         medians of 2^28 float32 on a device, in reads
    python asv_bench/companions.py lanes       medians along axis 0 of (365, 500, 500) float32

Times are taken as ``compare.py`` takes them, by turns. With ``masks`` and ``weights`` every run is
a process of its own, which tells its peak of memory above what it had before. Answers are checked.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from axis import peak_memory
from benchmarks.common import QUARTILES, THREADS, compute
from compare import (
    WrongAnswerError,
    machine,
    median_time,
    ratio,
    rounded,
    say,
    table,
    take_turns,
)
from dask.base import is_dask_collection

from dask_gpuselect import Boxplot, describe_boxplot, median, nanmedian, quantile

NODATA = 0
WEIGHTED = "inverted_cdf"


# --- Lazy data, made when they are loaded ---------------------------------------------------------


def field(shape: Sequence[int], chunks: Any, make: Callable[..., Any], dtype: Any) -> da.Array:
    """An array whose elements depend on their positions alone, whatever its chunks."""
    return da.map_blocks(
        _block, chunks=da.core.normalize_chunks(chunks, shape), dtype=dtype, make=make,
        meta=np.empty((0,) * len(shape), dtype),
    )  # fmt: skip


def _block(make: Callable[..., Any], block_info: Any = None) -> Any:
    return make(*(slice(*each) for each in block_info[None]["array-location"]))


def hashed(index: Any, seed: int) -> Any:
    """Pseudo-random uint64 of positions."""
    bits = index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    bits ^= bits >> np.uint64(32)
    bits *= np.uint64(0xD6E8FEB86659FD93)
    bits ^= bits >> np.uint64(32)
    return bits


def positions(stretch: slice) -> Any:
    return np.arange(stretch.start, stretch.stop)


def scenes(stretch: slice) -> Any:
    """uint16 of which a fifth is no data."""
    bits = hashed(positions(stretch), 1)
    values = (bits & np.uint64(0x1FFF)).astype(np.uint16) + np.uint16(1)
    values[(bits >> np.uint64(40)) % np.uint64(5) == 0] = NODATA
    return values


def floats(stretch: slice, seed: int = 2) -> Any:
    """Uniform float64 in (0, 1]."""
    return (hashed(positions(stretch), seed) >> np.uint64(11)).astype(
        np.float64
    ) * 2.0**-53 + 2**-54


def keeps(stretch: slice) -> Any:
    return hashed(positions(stretch), 3) % np.uint64(5) != 0


class Held:
    """Chunks in memory that serve as a file: to read one costs nothing."""

    ndim = 1

    def __init__(self, values: Any) -> None:
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def __getitem__(self, key: Any) -> Any:
        return self.values[key]


def in_memory(arguments: argparse.Namespace, make: Callable[[slice], Any]) -> da.Array:
    """An array of all elements, made before the clock runs."""
    n, size = arguments.elements, -(-arguments.elements // arguments.chunks)
    values = np.empty(n, make(slice(0, 1)).dtype)
    for start in range(0, n, 1 << 16):
        values[start : start + (1 << 16)] = make(slice(start, min(start + (1 << 16), n)))
    lazy: da.Array = da.from_array(Held(values), chunks=size, name=False)
    return lazy


# --- Every run in a process of its own ------------------------------------------------------------


def as_floats(x: da.Array, dtype: str) -> da.Array:
    return da.where(x != NODATA, x, np.dtype(dtype).type(np.nan)).astype(dtype)


def dasks(x: da.Array) -> da.Array:
    """dask's nanmedian, of one chunk, for it has none across chunks."""
    return da.nanmedian(x.rechunk(-1), axis=0)


def of_masks(name: str, a: argparse.Namespace) -> Callable[[], Any]:
    """What a contestant of `masks` does, with its data made."""
    if "float64, " in name:
        x, mask = in_memory(a, floats), in_memory(a, keeps)
        return {
            "float64, all": lambda: median(x),
            "float64, where=": lambda: median(x, where=mask),
            "float64, NaN where masked": lambda: nanmedian(da.where(mask, x, np.nan)),
        }[name]
    x = in_memory(a, scenes)
    return {
        "uint16, all": lambda: median(x),
        "uint16, nodata=0": lambda: median(x, nodata=NODATA),
        "float32 with NaN, nanmedian": lambda: nanmedian(as_floats(x, "f4")),
        "float32 with NaN, da.nanmedian": lambda: dasks(as_floats(x, "f4")),
        "to float64 with NaN, nanmedian": lambda: nanmedian(as_floats(x, "f8")),
    }[name]


MASKS = {  # and what each is divided by
    "uint16, all": "uint16, all",
    "uint16, nodata=0": "uint16, all",
    "float32 with NaN, nanmedian": "uint16, nodata=0",
    "to float64 with NaN, nanmedian": "uint16, nodata=0",
    "float32 with NaN, da.nanmedian": "uint16, nodata=0",
    "float64, all": "float64, all",
    "float64, where=": "float64, all",
    "float64, NaN where masked": "float64, where=",
}
SAME = [
    ["uint16, nodata=0", *[name for name in MASKS if "with NaN" in name]],
    ["float64, where=", "float64, NaN where masked"],
]


def of_weights(name: str, a: argparse.Namespace) -> Callable[[], Any]:
    """What a contestant of `weights` does, with its data made."""
    x = in_memory(a, floats)
    if name == "x.sum()":
        return x.sum
    unweighted = {
        "quartiles": lambda: quantile(x, QUARTILES),
        "median": lambda: median(x),
        "box": lambda: describe_boxplot(x),
    }
    if name in unweighted:
        return unweighted[name]
    w = in_memory(a, partial(floats, seed=5))
    if name == "weighted box":
        return lambda: describe_boxplot(x, weights=w)
    if name == "weighted median":
        return lambda: quantile(x, 0.5, weights=w, method=WEIGHTED)
    if name.startswith("np."):
        n = min(a.elements, a.most)
        values, weights = x[:n].compute(), w[:n].compute()
        return lambda: np.quantile(values, QUARTILES, weights=weights, method=WEIGHTED)
    return lambda: quantile(x, QUARTILES, weights=w, method=name.partition(", ")[2])


WEIGHTS = {
    "quartiles": "quartiles",
    f"weighted, {WEIGHTED}": "quartiles",
    "weighted, averaged_inverted_cdf": "quartiles",
    "weighted, linear": "quartiles",
    "np.quantile(weights=)": f"weighted, {WEIGHTED}",
    "median": "median",
    "weighted median": "median",
    "x.sum()": "weighted median",
    "box": "box",
    "weighted box": "box",
}
OWN = {"masks": (of_masks, MASKS), "weights": (of_weights, WEIGHTS)}


def run(arguments: argparse.Namespace) -> None:
    """In a process of its own: make the data, warm up, and tell seconds, bytes and the answer."""
    prepare, _ = OWN[arguments.table]
    few = argparse.Namespace(**{**vars(arguments), "elements": 100_000})
    _answer(prepare(arguments.run, few)(), arguments.threads)
    call = prepare(arguments.run, arguments)
    before, begin = peak_memory(), time.perf_counter()
    result = _answer(call(), arguments.threads)
    seconds = time.perf_counter() - begin
    print(seconds, peak_memory() - before, *np.ravel(result).astype(float).tolist())


def _answer(result: Any, threads: int) -> Any:
    answer = compute(result, threads) if is_dask_collection(result) else result
    return [box.med for box in answer] if isinstance(answer, Boxplot) else answer


def own_processes(arguments: argparse.Namespace) -> None:
    """A table of time and peak memory."""
    _, names = OWN[arguments.table]
    outputs: dict[str, list[list[float]]] = {name: [] for name in names}
    flags = [f"--{n}={getattr(arguments, n)}" for n in ("elements", "chunks", "threads", "most")]
    for repetition in range(arguments.repeat):
        for name in names if repetition % 2 == 0 else reversed(names):
            command = [sys.executable, __file__, arguments.table, "--run", name, *flags]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            outputs[name].append([float(each) for each in done.stdout.split()])
        print(f"repetition {repetition + 1} of {arguments.repeat}", file=sys.stderr, flush=True)
    for group in SAME if arguments.table == "masks" else []:
        if len({tuple(outputs[name][0][2:]) for name in group}) != 1:
            raise WrongAnswerError(f"{group} differ: {[outputs[name][0][2:] for name in group]}")
    print(
        f"{arguments.elements:,} elements in {arguments.chunks} chunks, {arguments.threads} "
        f"threads; medians of {arguments.repeat} processes.\n"
    )
    say(machine())
    rows = []
    for name, base in names.items():
        times = np.array([each[0] for each in outputs[name]])
        ratios = times / [each[0] for each in outputs[base]]
        peak = np.median([each[1] for each in outputs[name]]) / 1e6
        over = f"{rounded(float(np.median(ratios)))} of {base}"
        rows.append([name, rounded(float(np.median(times))), over, rounded(float(peak))])
    say(table(["", "seconds", "time", "peak, MB"], rows))


# --- Chunkings ------------------------------------------------------------------------------------


def degrees(rows: slice, columns: slice) -> Any:
    """float32 on a grid, colder to the poles."""
    index = positions(rows)[:, None] * np.int64(1 << 20) + positions(columns)
    noise = (hashed(index, 7) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return noise + np.float32(1e-4) * positions(rows).astype(np.float32)[:, None]


def chunkings(arguments: argparse.Namespace) -> None:
    """Weighted quantiles of a globe under ten chunkings: the bits are the same."""
    n_lat = int((arguments.elements / 2) ** 0.5)
    shape = n_lat, 2 * n_lat
    latitude = np.linspace(-90, 90, n_lat + 1)[:-1] + 90 / n_lat
    rows, answers = [], set()
    for i in range(10):
        lat, lon = -(-n_lat // (2 + i)), -(-2 * n_lat // (12 - i))
        x = field(shape, (lat, lon), degrees, np.float32)
        area = da.from_array(np.cos(np.radians(latitude))[:, None], chunks=(lat, 1))
        w = da.broadcast_to(area, shape, chunks=x.chunks)
        for method in (WEIGHTED, "linear"):
            begin = time.perf_counter()
            answer = compute(quantile(x, QUARTILES, weights=w, method=method), arguments.threads)
            seconds = rounded(time.perf_counter() - begin)
            rows.append([f"({lat}, {lon})", str(x.npartitions), method, seconds])
            answers.add((method, answer.tobytes()))
        print(f"chunking {i + 1} of 10", file=sys.stderr, flush=True)
    if len(answers) != 2:
        raise WrongAnswerError(f"{len(answers)} answers of 2 methods: they depend on the chunks")
    print(f"{shape} float32, weights of the latitude, {arguments.threads} threads\n")
    say(machine())
    say(table(["chunks", "there are", "method", "seconds"], rows))


# --- Lanes, and a device --------------------------------------------------------------------------


def lanes(arguments: argparse.Namespace) -> None:
    """Medians along the first axis of a stack in memory."""
    rng = np.random.default_rng(1)
    stack = rng.standard_normal(arguments.shape, np.float32)
    mask = rng.random(arguments.shape, np.float32) < 0.7
    weights = rng.random(arguments.shape, np.float32)
    holes = np.where(mask, stack, np.float32(np.nan))
    counts = (stack * 500 + 5000).astype(np.uint16)
    chunks = (-(-arguments.shape[0] // 5), *(-(-n // 2) for n in arguments.shape[1:]))
    x, m, w, u = (
        da.from_array(each, chunks=chunks, name=False) for each in (stack, mask, weights, counts)
    )
    calls: Mapping[str, Callable[[], Any]] = {
        "plain": lambda: compute(median(x, axis=0), arguments.threads),
        "where=": lambda: compute(median(x, axis=0, where=m), arguments.threads),
        "weights=": lambda: compute(
            quantile(x, 0.5, axis=0, weights=w, method=WEIGHTED), arguments.threads
        ),
        "uint16, plain": lambda: compute(median(u, axis=0), arguments.threads),
        "uint16, where=": lambda: compute(median(u, axis=0, where=m), arguments.threads),
        "np.nanmedian, one thread": lambda: np.nanmedian(holes, axis=0),
    }
    for name, call in calls.items():
        if not name.startswith("np."):
            call()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = take_turns(calls, arguments.repeat, "lanes")
    ours, numpys = (runs[name][-1].result for name in ("where=", "np.nanmedian, one thread"))
    if not np.array_equal(ours, numpys, equal_nan=True):
        raise WrongAnswerError("the median where a mask is True is not np.nanmedian's")
    print(f"{tuple(arguments.shape)}, chunks of {chunks}, {arguments.threads} threads\n")
    say(machine())
    rows = []
    for name in calls:
        base = "uint16, plain" if name.startswith("uint16") else "plain"
        rows.append([name, rounded(median_time(runs[name])), rounded(ratio(runs, name, base))])
    say(table(["", "seconds", "in units of plain"], rows))


def gpu(arguments: argparse.Namespace) -> None:
    """Medians of what a device holds, in reads of it."""
    import cupy as cp

    n = arguments.elements
    rng = cp.random.default_rng(1)
    x = rng.standard_normal(n, dtype=cp.float32)
    mask, w = rng.random(n, dtype=cp.float32) < 0.8, rng.random(n, dtype=cp.float32)
    wide = w.astype(cp.float64)

    def timed(call: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            result = call()
            cp.cuda.Device().synchronize()
            return result

        return run

    calls = {
        "x.sum()": timed(x.sum),
        "median(x)": timed(lambda: median(x)),
        "median(x, where=mask)": timed(lambda: median(x, where=mask)),
        "quantile(x, 0.5, weights=w)": timed(lambda: quantile(x, 0.5, weights=w, method=WEIGHTED)),
        "the same, averaged_inverted_cdf": timed(
            lambda: quantile(x, 0.5, weights=w, method="averaged_inverted_cdf")
        ),
        "the same, w float64": timed(lambda: quantile(x, 0.5, weights=wide, method=WEIGHTED)),
        "cupy.sort(x)": timed(lambda: cp.sort(x)),
    }
    for call in calls.values():
        call()
    runs = take_turns(calls, arguments.repeat, "gpu")
    if float(runs["median(x, where=mask)"][-1].result) != float(cp.median(x[mask])):
        raise WrongAnswerError("the median where a mask is True is not CuPy's")
    weighted = ("quantile(x, 0.5, weights=w)", "the same, w float64")
    if len({float(runs[name][-1].result) for name in weighted}) != 1:
        raise WrongAnswerError("the weighted medians differ by the dtype of the weights")
    print(f"{n:,} float32 on a device; medians of {arguments.repeat} repetitions.\n")
    rows = [
        [f"`{name}`", rounded(1e3 * median_time(runs[name])), rounded(ratio(runs, name, "x.sum()"))]
        for name in calls
    ]
    say(table(["", "ms", "reads"], rows))


# --- The program ----------------------------------------------------------------------------------

TABLES = {
    "masks": (own_processes, 10**8),
    "weights": (own_processes, 10**8),
    "chunkings": (chunkings, 10**9),
    "gpu": (gpu, 1 << 28),
    "lanes": (lanes, 0),
}
"""What makes a table, and of how many elements."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    add: Any = parser.add_argument
    add("table", choices=TABLES)
    add("--elements", type=int, help="1e8; 1e9 of chunkings, 2^28 on a device")
    add("--chunks", type=int, default=10, help="10")
    add("--shape", nargs=3, type=int, default=(365, 500, 500), help="of lanes")
    add("--threads", type=int, default=THREADS, help=f"that compute; {THREADS}")
    add("--repeat", type=int, default=5, help="repetitions; 5")
    add("--most", type=int, default=10**7, help="elements for np.quantile; 1e7")
    add("--run", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    make, n = TABLES[chosen.table]
    chosen.elements = chosen.elements or n
    try:
        (run if chosen.run else make)(chosen)
    except WrongAnswerError as error:
        print(f"companions: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
