"""A quantile along time of maps, one a chunk: what each plan reads, takes and writes; Markdown.

    python asv_bench/maps.py small
    python asv_bench/maps.py made [--maps 300 1200] [--limit "512 MiB"]
    python asv_bench/maps.py store --store DIR [--maps 1095] [--only "sum;disk;1 read"]
    python asv_bench/maps.py variants --store DIR [--maps 365] [--shape 360 720] [--only "float64"]
    python asv_bench/maps.py days
    python asv_bench/maps.py cluster [--maps 100]
    python asv_bench/maps.py graph

``small``: 1,000 maps of (60, 80), a column limit of a 38th of all. ``made``: maps of (720, 1440)
float32 that cost little to load, and a limit of 64 MiB. ``store``: maps of (721, 1440) in a Zarr
store compressed by zstd, in processes that may take 4 GiB of memory each; beside `x.sum(axis=0)`
and what it takes to write the bytes to a plain file and to read them. ``variants``: other dtypes,
chunks and questions about such a store, with 1 read, each beside its own sum and its own bytes, in
turns of one process; its limit is a fifth of the bytes of the maps. ``days``: a climatology of
small maps of three years, by months and by windows of five days. ``cluster``: the maps of ``made``
on a LocalCluster of two processes of one thread. `da.median` and xarray rechunk there as dask
chooses, which is by tasks, and `da.median` by P2P as well. ``graph``: a year of hourly maps, built,
optimised and ordered, and not computed; and `x.sum(axis=0)` beside it where chunks are small. "By
hand" is `rechunk` into tiles, `to_zarr` and `quantile` of that. Each contender has a process of its
own, and a cluster of its own, whose start is not timed; reads are of a chunk.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr
from compare import machine, say, table
from dask.order import order

from dask_gpuselect import describe_boxplot, explain, nanquantile, quantile
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import iqr, mad
from dask_gpuselect.warm import warm

MEMORY = 4 << 30
Q = [0.05, 0.5, 0.95]


class Maps:
    """Maps that cost little to make, or those of a Zarr array: each load is noted in a file."""

    def __init__(self, shape: tuple[int, ...], log: str, store: Path | None = None) -> None:
        self.shape, self.ndim, self.dtype = shape, 3, np.dtype("f4")
        self.log = log
        self.stored: Any = None if store is None else zarr.open_array(store, mode="r")
        rng = np.random.default_rng(25)
        self.made = None if store else 250 + rng.standard_normal((16, *shape[1:]), "f4")

    def __getitem__(self, index: Any) -> Any:
        with open(self.log, "ab", buffering=0) as file:
            file.write(b".")
        if self.stored is not None:
            return self.stored[index]
        each = np.arange(index[0].start, index[0].stop)
        return self.made[(each % 16, *index[1:])] + np.float32(each[:, None, None] % 97)

    def lazy(self, chunks: tuple[int, ...] | None = None) -> da.Array:
        meta = np.empty((0, 0, 0), "f4")
        chunks = chunks or (1, *self.shape[1:])
        return da.from_array(self, chunks=chunks, meta=meta, name=False)

    @property
    def loads(self) -> int:
        return Path(self.log).stat().st_size


def a_median(x: da.Array) -> Any:
    return quantile(x, 0.5, axis=0).compute()


def by_hand(x: da.Array, ask: Callable[[da.Array], Any] = a_median) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        lanes = max((1 << 26) // (4 * x.shape[0]), 1)
        rows = max(lanes // x.shape[2], 1)
        tiles = x.rechunk({0: 50, 1: rows, 2: min(lanes, x.shape[2])})
        tiles.to_zarr(f"{folder}/tiles")
        return ask(da.from_zarr(f"{folder}/tiles"))


def by_month(x: da.Array) -> Any:
    dates = np.datetime64("2001-01-01") + np.arange(x.shape[0])
    return groupby(x, dates.astype("M8[M]").astype(int) % 12, 0)


def months(x: da.Array) -> Any:
    return by_month(x).quantile([0.1, 0.9]).compute()


def in_windows(x: da.Array) -> Any:
    """The 0.9 quantile of five days around each day of the year."""
    days = np.arange(x.shape[0])
    near = {i: np.flatnonzero((days % 365 - i + 2) % 365 < 5) for i in range(365)}
    near = {i: some for i, some in near.items() if len(some)}
    return groupby(x, near, 0).quantile(0.9)


def five_days(x: da.Array) -> Any:
    return in_windows(x).compute()


def write_and_read(x: da.Array) -> None:
    """The bytes of `x`, chunk by chunk."""
    chunk = np.ones(x.chunksize, x.dtype)
    with tempfile.TemporaryFile() as file:
        for _ in range(x.npartitions):
            file.write(chunk.data)
        file.seek(0)
        while file.readinto(chunk.data):  # type: ignore[attr-defined]
            pass


def in_xarray(x: da.Array) -> Any:
    import xarray

    days = np.datetime64("2001-01-01", "ns") + np.arange(x.shape[0]) * np.timedelta64(1, "D")
    return xarray.DataArray(x, dims=("time", "y", "x"), coords={"time": days})


def by_xarray(x: da.Array) -> Any:
    return in_xarray(x).chunk(time=-1, y="auto", x="auto").quantile(0.5, "time").compute()


def months_by_xarray(x: da.Array) -> Any:
    maps = in_xarray(x).chunk(time=-1, y="auto", x="auto")
    return maps.groupby("time.month").quantile([0.1, 0.9], "time").compute()


def five_days_by_xarray(x: da.Array) -> Any:
    """Percentiles of days of the year as xclim does it, which joins December and January not."""
    maps = in_xarray(x).chunk(time=-1, y="auto", x="auto")
    windows = maps.rolling(time=5, center=True).construct("window")
    return windows.groupby("time.dayofyear").quantile(0.9, ["time", "window"]).compute()


CONTENDERS: dict[str, Callable[[da.Array], Any]] = {
    "x.sum(axis=0)": lambda x: x.sum(axis=0).compute(),
    "its bytes written and read": write_and_read,
    "quantile, 1 read": a_median,
    "quantile, passes": a_median,
    "by hand": by_hand,
    "da.median": lambda x: da.median(x, axis=0).compute(),
    "three quantiles, 1 read": lambda x: quantile(x, Q, axis=0).compute(),
    "box plots, 1 read": lambda x: describe_boxplot(x, axis=0).compute(),
    "months, 1 read": months,
    "months, passes": months,
    "five days, 1 read": five_days,
    "five days, passes": five_days,
    "five days of 40 rows, 1 read": lambda x: five_days(x[:, :40]),
    "da.median, rechunked by P2P": lambda x: da.median(x, axis=0).compute(),
    "xarray": by_xarray,
    "months, by hand": lambda x: by_hand(x, months),
    "months, xarray": months_by_xarray,
    "five days of 40 rows, by hand": lambda x: by_hand(x[:, :40], five_days),
    "five days of 40 rows, xarray": lambda x: five_days_by_xarray(x[:, :40]),
}
ALL = list(CONTENDERS)


def of(dtype: str) -> Callable[[Maps], da.Array]:
    """Make maps of another dtype; integers are hundredths, as archives pack them, or whole."""
    base, scale = {"i2": (300, 100), "u2": (0, 100), "u1": (200, 1)}.get(dtype, (0, 1))
    if np.dtype(dtype).kind == "f":
        return lambda maps: maps.lazy().astype(dtype)
    return lambda maps: ((maps.lazy() - base) * scale).astype(dtype)


def halves(maps: Maps) -> da.Array:
    return maps.lazy((1, -(-maps.shape[1] // 2), maps.shape[2]))


def with_gaps(maps: Maps) -> da.Array:
    """Make a tenth of the elements NaN, as a satellite's clouds do."""
    return maps.lazy().map_blocks(lambda block: np.where(block % 1 < 0.1, np.nan, block))


def by_place(x: da.Array) -> da.Array:
    """Make an array in memory of the shape and chunks of a map."""
    rows, columns = np.ogrid[: x.shape[1], : x.shape[2]]
    return da.from_array(np.sin(rows / 40) + np.cos(columns / 50), chunks=x.chunks[1:])


as_it_is = of("f4")
median = functools.partial(quantile, q=0.5, axis=0)
boxes = functools.partial(describe_boxplot, axis=0)
COMPANIONS: dict[str, Callable[[da.Array], da.Array]] = {
    "mask": lambda x: x > 290,
    "weights of elements": lambda x: x.astype("f8"),
}
"""A mask or weight for each element, by the variants that have one."""

VARIANTS: dict[str, tuple[Callable[[Maps], da.Array], Callable[[da.Array], Any]]] = {
    "a median": (as_it_is, median),
    "two quantiles": (as_it_is, lambda x: quantile(x, [0.1, 0.9], axis=0)),
    "nine quantiles": (as_it_is, lambda x: quantile(x, np.linspace(0.1, 0.9, 9), axis=0)),
    "99 quantiles": (as_it_is, lambda x: quantile(x, np.linspace(0.01, 0.99, 99), axis=0)),
    "mad": (as_it_is, lambda x: mad(x, axis=0)),
    "box plots": (as_it_is, boxes),
    "whis=(5, 95)": (as_it_is, lambda x: boxes(x, whis=(5, 95))),
    "mask": (as_it_is, lambda x: median(x, where=COMPANIONS["mask"](x))),
    "mask for all maps": (as_it_is, lambda x: median(x, where=by_place(x)[None] > 0)),
    "NaN": (with_gaps, functools.partial(nanquantile, q=0.5, axis=0)),
    "weights": (as_it_is, lambda x: median(x, weights=np.arange(1.0, len(x) + 1))),
    "weights of elements": (
        as_it_is,
        lambda x: median(x, weights=COMPANIONS["weights of elements"](x)),
    ),
    "iqr": (as_it_is, lambda x: iqr(x, axis=0)),
    **{
        f"{name} of {dtype}": (of(dtype), ask)
        for dtype in ("f8", "f2", "i2", "u2", "u1")
        for name, ask in (("a median", median), ("box plots", boxes))
    },
    "chunks of two maps": (lambda maps: maps.lazy((2, *maps.shape[1:])), median),
    "maps in two halves": (halves, median),
    "medians of months": (as_it_is, lambda x: by_month(x).median()),
    "percentiles of months": (as_it_is, lambda x: by_month(x).quantile([0.1, 0.9])),
    "box plots of months": (as_it_is, lambda x: by_month(x).describe_boxplot()),
    "five days of 40 rows": (lambda maps: maps.lazy()[:, :40], in_windows),
}
KINDS: dict[str, tuple[tuple[int, ...], str, list[str]]] = {
    "small": ((60, 80), "0.5 MB", [*ALL[:1], *ALL[2:6]]),
    "made": ((720, 1440), "64 MiB", ALL[:5]),
    "store": ((721, 1440), "1 GiB", [*ALL[:5], *ALL[6:10], ALL[12], *ALL[15:]]),
    "days": ((72, 144), "4 MiB", [*ALL[:2], *ALL[8:12]]),
    "cluster": ((720, 1440), "64 MiB", [ALL[0], *ALL[2:4], ALL[5], *ALL[13:15]]),
}


@contextmanager
def scheduler_of(kind: str) -> Iterator[dict[str, Any]]:
    """The settings of threads, or of a cluster that is there meanwhile."""
    if kind != "cluster":
        yield {"scheduler": "threads"}
        return
    from distributed import Client, LocalCluster

    options: dict[str, Any] = {"memory_limit": MEMORY // 2, "dashboard_address": ":0"}
    with LocalCluster(2, threads_per_worker=1, **options) as workers, Client(workers) as client:
        client.run(quantile, np.ones((8, 9), "f4"), 0.5, axis=0)
        yield {}


def child(kind: str, n: int, name: str, limit: str, store: Path | None) -> None:
    """Print what a contender takes, as JSON."""
    shape = KINDS[kind][0]
    if kind == "store":
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    quantile(np.ones((8, 9), "f4"), 0.5, axis=0)  # what is compiled, and imported
    with tempfile.NamedTemporaryFile() as log, scheduler_of(kind) as config:
        maps = Maps((n, *shape), log.name, store)
        x = maps.lazy()
        config["dask_gpuselect.column-limit"] = limit
        config["dask_gpuselect.scratch-directory"] = "passes" not in name
        config["dask_gpuselect.scratch-reads"] = 2
        config["array.rechunk.method"] = "p2p" if "by P2P" in name else None
        with dask.config.set(config):
            begin = time.perf_counter()
            CONTENDERS[name](x)
            seconds = time.perf_counter() - begin
        loads = maps.loads
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if kind == "cluster":  # the larger of the two workers, which have ended
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps([seconds, loads / n, used / 2**20]))


def variant(maps: Maps, name: str, limit: str | None) -> Iterator[tuple[list[float], ...]]:
    """Yield seconds of a sum, of the bytes on a plain disk and of an answer, again and again.

    Sum and bytes are of the data, then once more of the data with a companion of each element, if
    there is one. They are by the clock, then of the processor, then the reads of the answer.
    Kernels are loaded and packages imported before.
    """
    make, ask = VARIANTS[name]
    first = Maps((maps.shape[0], 128, max((1 << 22) // maps.shape[0] // 128, 1)), maps.log)
    warm([make(first).dtype, "float64"], ("boxes", "weights"))
    maps[:1, :1]
    for each in itertools.chain([first], itertools.repeat(maps)):
        x = make(each)
        config = {"dask_gpuselect.column-limit": limit or x.nbytes // 5, "scheduler": "threads"}
        steps: list[Callable[[], Any]] = []
        for read in ([x], [x, COMPANIONS[name](x)]) if name in COMPANIONS else ([x],):
            steps.append(lambda read=read: dask.compute(*(each.sum(axis=0) for each in read)))
            steps.append(lambda read=read: [write_and_read(each) for each in read])
        steps.append(lambda x=x: dask.compute(ask(x)))
        clock, processor = [], []
        with dask.config.set(config):
            for step in steps:
                before, begin, own = maps.loads, time.perf_counter(), time.process_time()
                step()
                clock.append(time.perf_counter() - begin)
                processor.append(time.process_time() - own)
        if each is maps:
            yield clock, processor, [(maps.loads - before) / x.npartitions]


def variants(maps: Maps, options: argparse.Namespace) -> None:
    """Print medians of some turns, in each of which every variant has one; ratios are of a turn."""
    some = options.only.split(";")
    names = [name for name in VARIANTS if any(part in f"^{name}$" for part in some)]
    turns = {name: variant(maps, name, options.limit) for name in names}
    times: dict[str, list[Any]] = {name: [] for name in names}
    for _ in range(options.repeat):
        for name, turn in turns.items():
            times[name].append(next(turn))
            print(name, *times[name][-1], sep="; ", file=sys.stderr, flush=True)
    rows = []
    for name in names:
        clock, processor, loads = map(np.array, zip(*times[name], strict=True))
        rows.append([name, f"{loads.max():.2f}"])
        for each in (clock, processor):
            rows[-1].append(", ".join(f"{step:.2f}" for step in np.median(each, axis=0)))
            bases = [each[:, i : i + 2].sum(axis=1) for i in range(0, each.shape[1] - 1, 2)]
            ratios = [each[:, -1] / base for base in bases]
            rows[-1].append(
                "; ".join(f"{np.median(r):.2f} ({min(r):.2f} to {max(r):.2f})" for r in ratios)
            )
    columns = ["sum, bytes (the same with companions), 1 read, s", "over sum and disk (of both)"]
    say(table(["", "reads", *columns, *(f"{name}, processor" for name in columns)], rows))


def contend(kind: str, n: int, limit: str, store: Path | None, only: str, repeat: int) -> None:
    shape, _, names = KINDS[kind]
    names = [name for name in names if any(part in name for part in only.split(";"))]
    rows = []
    times: dict[str, float] = {}
    for name in names:
        command = [sys.executable, __file__, "child", kind, name, str(n), limit, str(store or "")]
        best: list[float] | None = None
        for _ in range(repeat):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stderr[-600:], file=sys.stderr)
                continue
            result = json.loads(done.stdout.splitlines()[-1])
            best = result if best is None or result < best else best
        if best is None:
            rows.append([f"`{name}`", "fails", "", "", ""])
            continue
        times[name] = best[0]
        base = sum(times.get(name, 0.0) for name in ALL[:2])
        loads, peak = f"{best[1]:.2f}", f"{best[2]:.2f}"
        rows.append([name, f"{best[0]:.2f}", loads, f"{best[0] / (base or np.nan):.2f}", peak])
        print(*rows[-1], sep="; ", file=sys.stderr, flush=True)
    whole = f"{n * shape[0] * shape[1] * 4 / 2**30:.2f} GiB"
    say([f"**{n:,} maps of {shape} float32** ({whole}), one a chunk, column limit {limit}", ""])
    say(table(["", "seconds", "reads", "over the sum (and the disk)", "GiB at the peak"], rows))


def fill(store: Path, n: int, shape: tuple[int, int]) -> None:
    """Write maps that look like temperatures: smooth, with noise, in hundredths."""
    rng = np.random.default_rng(0)
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    smooth = 300 - 60 * np.abs(rows / shape[0] - 0.5) + 5 * np.sin(columns / 90)
    noise = rng.standard_normal((16, *shape))
    codec = zarr.codecs.ZstdCodec(level=3)
    whole = zarr.create_array(
        store, shape=(n, *shape), chunks=(1, *shape), dtype="f4", compressors=codec
    )
    for i in range(n):
        whole[i] = np.round(smooth + 8 * np.sin(i / 58) + noise[i % 16] * (1 + i % 7), 2)


def graph() -> None:
    rows = []
    year = da.zeros((8760, 721, 1440), chunks=(1, 721, 1440), dtype="f4")
    days = da.zeros((8784, 721, 1440), chunks=(24, 721, 1440), dtype="f4")
    parts = da.zeros((1000, 721, 1440), chunks=(1, 103, 144), dtype="f4")
    for x, ask in ((year, quantile), (days, quantile), (parts, quantile), (parts, da.sum)):
        with dask.config.set({"dask_gpuselect.scratch-limit": "1 TB", "scheduler": "threads"}):
            quantile(x[:72], 0.5, axis=0)
            begin = time.process_time()
            lazy = ask(x, 0.5, axis=0) if ask is quantile else ask(x, axis=0)
            built = time.process_time() - begin
            plan = explain(x, 0.5, axis=0).name if ask is quantile else "`x.sum(axis=0)`"
        made = dict(lazy.__dask_optimize__(lazy.dask, lazy.__dask_keys__()))
        optimised = time.process_time() - begin
        order(made)
        ordered = time.process_time() - begin
        each = f"{ordered / x.npartitions * 1e3:.2f}"
        rows.append([f"{x.shape} in {x.chunksize}", plan, f"{built:.2f}", f"{optimised:.2f}"])
        rows[-1] += [f"{ordered:.2f}", each, f"{len(made):,}"]
    units = ["ordered (seconds of the processor in all)", "ms a chunk", "tasks"]
    say(table(["", "plan", "built", "optimised", *units], rows))


def main() -> None:
    if sys.argv[1:2] == ["child"]:
        kind, name, n, limit, store = sys.argv[2:]
        child(kind, int(n), name, limit, Path(store) if store else None)
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=[*KINDS, "variants", "graph"])
    parser.add_argument("--maps", type=int, nargs="+", default=None)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--shape", type=int, nargs=2, default=KINDS["store"][0], help="of a map")
    parser.add_argument("--limit", help="the column limit")
    parser.add_argument("--only", default="", help='parts of names; "^box plots$" of variants')
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    say(machine())
    if given.what == "graph":
        graph()
        return
    defaults = {"small": [1000], "made": [300, 1200], "store": [1095], "days": [1095]}
    defaults["variants"] = [365]
    default = defaults.get(given.what, [100])
    shape = tuple(given.shape)
    for n in given.maps or default:
        own = "" if shape == KINDS["store"][0] else "-{}-{}".format(*shape)
        store = given.store and given.store / f"maps-{n}{own}"
        if store and not store.exists():
            fill(store, n, shape)
        if given.what == "variants":
            with tempfile.NamedTemporaryFile() as log:
                variants(Maps((n, *shape), log.name, store), given)
            continue
        limit = given.limit or KINDS[given.what][1]
        contend(given.what, n, limit, store, given.only, given.repeat)


if __name__ == "__main__":
    main()
