"""Quantiles of groups, beside what else there is; prints Markdown.

    python asv_bench/groups.py climatology   the 90th percentile of 30 years of days by day of the
                                             year (windows of five days), month and season
    python asv_bench/groups.py zonal         medians of the zones of an array, with lazy labels of
                                             its shape, in units of its median without groups
    python asv_bench/groups.py tables        medians and 0.9 quantiles of the rows of each key
    python asv_bench/groups.py many          box plots, deviations and weighted quantiles of few and
                                             of many groups of one array
    python asv_bench/groups.py gpu           medians of the groups of CuPy chunks, in reads

But for ``many`` and ``gpu``, each run is a process of its own, and the contenders take turns. A
time is that of the call and its computation, without imports; a small array is asked before, so
that everything is compiled. The peak is that of the process's resident memory, and "MB before" is
what it was before the call: all processes have imported dask and Numba, those of the peers too.
``--limit`` (GB) is what a process may hold: one that has more is ended. ``--seconds`` ends one that
takes longer. Needs Linux.

The source counts the reads, for each chunk on average. Every answer of dask_gpuselect is checked:
at some pixels against ``np.quantile`` in float64, and for all groups by counting the elements below
and up to it.

Peers that are not installed are left out. All of them, in an environment of their own:

    pip install -e '.[bench,xarray,zarr]' flox xclim dask-image

At the sizes of a climatology some of them take twenty times the memory of the data, so give a
``--limit`` below that of the machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from benchmarks.common import THREADS, Floats, Values
from compare import WrongAnswerError, machine, rounded, say, table
from dataframe import limited, peak

import dask_gpuselect
from dask_gpuselect.groups import groupby

Blocks = Iterable[tuple[Values, Values]]
"""Elements and the number of the group of each, block by block."""


class Counted:
    """What dask reads chunk by chunk, as from a file; every load is counted."""

    def __init__(
        self, shape: Sequence[int], dtype: Any, load: Callable[[tuple[slice, ...]], Values]
    ) -> None:
        self.shape, self.dtype, self.ndim = tuple(shape), np.dtype(dtype), len(shape)
        self.loads: Counter[tuple[int, ...]] = Counter()
        self._load, self._lock = load, threading.Lock()

    def __getitem__(self, key: Any) -> Values:
        slices = key if isinstance(key, tuple) else (key,)
        if all(each.start < each.stop for each in slices):
            with self._lock:
                self.loads[tuple(each.start for each in slices)] += 1
        return self._load(slices)

    def lazy(self, chunks: Any) -> da.Array:
        array: da.Array = da.from_array(self, chunks=chunks, name=False)
        return array


@dataclass
class Prepared:
    """What a contender does, with its imports done."""

    call: Callable[[], Any]
    sources: Mapping[str, tuple[Counted, da.Array]] = field(default_factory=dict)


# --- Climatology ----------------------------------------------------------------------------------

FIRST_DAY = np.datetime64("1981-01-01")
SHARE = 0.9
PIXELS = 24  # that are checked


def days_of(n: int) -> Values:
    return FIRST_DAY + np.arange(n)


def numbers(n: int, case: str) -> Values:
    """The number of the group of each day, from 0."""
    days = days_of(n)
    if case == "days":
        return (days - days.astype("M8[Y]")).astype(np.int64)
    months = days.astype("M8[M]").astype(np.int64) % 12
    return months if case == "months" else (months + 1) % 12 // 3


def windows(n: int) -> dict[int, Values]:
    """For each day of the year, the days that are at most two days from one."""
    of_day = numbers(n, "days")
    results = {}
    for day in range(int(of_day.max()) + 1):
        near = np.flatnonzero(of_day == day)[:, None] + np.arange(-2, 3)
        results[day] = np.unique(near[(near >= 0) & (near < n)])
    return results


def places(n: int, case: str) -> list[Values]:
    """Where the days of each group are."""
    if case == "days":
        return list(windows(n).values())
    of_day = numbers(n, case)
    return [np.flatnonzero(of_day == group) for group in range(int(of_day.max()) + 1)]


def weather(start: int, shape: Sequence[int]) -> Values:
    """Temperatures of some days: a seasonal cycle that is larger far from the equator."""
    random = np.random.Generator(np.random.SFC64([41, start]))
    values = random.standard_normal(shape, np.float32)
    values *= np.float32(3)
    latitude = np.linspace(-np.pi / 2, np.pi / 2, shape[1])
    cycle = -np.cos(2 * np.pi * (start + np.arange(shape[0]) - 20) / 365.25)
    values += (15 * cycle[:, None] * np.sin(latitude)).astype(np.float32)[..., None]
    values += (30 * np.cos(latitude) - 5).astype(np.float32)[:, None]
    return values


def weather_store(a: argparse.Namespace) -> Path:
    """The Zarr store, written if it is not there."""
    import zarr

    name = "-".join(map(str, (*a.shape, a.days)))
    path = Path(a.store) / f"climatology-{name}.zarr"
    if not path.exists():
        part = path.with_suffix(".part")  # until it is complete
        make: Any = zarr.create_array
        store = make(
            part, shape=a.shape, chunks=(a.days, *a.shape[1:]), dtype="f4", compressors=None,
            overwrite=True,
        )  # fmt: skip
        for start in range(0, a.shape[0], a.days):
            size = min(a.days, a.shape[0] - start)
            store[start : start + size] = weather(start, (size, *a.shape[1:]))
        part.rename(path)
    return path


def labelled(values: Values) -> Any:
    """What xarray and xclim take."""
    import xarray as xr

    time_of_day = days_of(len(values)).astype("M8[ns]")
    return xr.DataArray(
        values, dims=("time", "lat", "lon"), coords={"time": time_of_day}, attrs={"units": "degC"}
    )


def numpys(values: Values, case: str) -> Values:
    groups = places(len(values), case)
    return np.stack([np.quantile(values[group], SHARE, axis=0) for group in groups])


def xarrays(values: Values, case: str, *, use_flox: bool) -> Values:
    import xarray as xr

    lazy = labelled(values)
    by = xr.DataArray(numbers(len(values), case), dims="time", name="group")
    with xr.set_options(use_flox=use_flox):
        if case == "days":  # the first and the last windows have NaN beyond the data
            wide = lazy.rolling(time=5, center=True).construct("window")
            result = wide.groupby(by).quantile(SHARE, dim=("time", "window"))
        else:
            result = lazy.groupby(by).quantile(SHARE, dim="time", skipna=False)
    return result.transpose("group", "lat", "lon").values


def xclims(values: Values, case: str) -> Values:
    """NumPy's method of interpolation has alpha = beta = 1."""
    from xclim.core.calendar import percentile_doy

    result = percentile_doy(
        labelled(values), window=5, per=100 * SHARE, alpha=1, beta=1, copy=False
    )
    return result.isel(percentiles=0).transpose("dayofyear", "lat", "lon").values


IN_MEMORY: Mapping[str, Callable[[Values, str], Values]] = {
    "NumPy, group by group": numpys,
    "xarray without flox": lambda x, case: xarrays(x, case, use_flox=False),
    "xarray with flox": lambda x, case: xarrays(x, case, use_flox=True),
    "xclim, percentile_doy": xclims,
}


def climatology_of(a: argparse.Namespace) -> Prepared:
    import zarr

    store: Any = zarr.open_array(weather_store(a), mode="r")
    for package in NEEDS.get(a.contender, ()):
        __import__(package)
    if a.contender in IN_MEMORY:
        return Prepared(lambda: IN_MEMORY[a.contender](store[:], a.case))
    source = Counted(store.shape, store.dtype, lambda key: store[key])
    x = source.lazy(store.chunks)
    n = len(x)
    calls: Mapping[str, Callable[[], Any]] = {
        READING: x.sum,
        UNGROUPED: lambda: dask_gpuselect.quantile(x, SHARE, axis=0),
        OURS: lambda: groupby(
            x, windows(n) if a.case == "days" else numbers(n, a.case), axis=0
        ).quantile(SHARE),
    }
    return Prepared(lambda: calls[a.contender]().compute(), {"data": (source, x)})


def series(a: argparse.Namespace) -> tuple[Any, Values]:
    """Some pixels, and all their days."""
    import zarr

    store: Any = zarr.open_array(weather_store(a), mode="r")
    random = np.random.default_rng(5)
    at = tuple(random.integers(0, n, PIXELS) for n in a.shape[1:])
    days = range(0, a.shape[0], a.days)
    return at, np.concatenate([store[day : day + a.days][:, *at] for day in days])


def climatology(a: argparse.Namespace) -> None:
    print(
        f"The {100 * SHARE:.0f}th percentile of groups of {tuple(a.shape)} float32, "
        f"{4 * np.prod(a.shape) / 1e9:.3g} GB in a Zarr store without compression, in chunks of "
        f"{a.days} days. {how(a)}\n"
    )
    say(machine(*versions("xarray", "flox", "xclim", "numbagg")))
    weather_store(a)
    at, of_pixels = series(a)
    for case in a.cases:
        some = places(a.shape[0], case)
        right = np.stack([np.quantile(of_pixels[g].astype("f8"), SHARE, axis=0) for g in some])
        names = [READING, UNGROUPED, OURS, *IN_MEMORY][: None if case == "days" else -1]

        def check(name: str, answer: Values, right: Floats = right) -> str:
            if name not in (OURS, *IN_MEMORY):
                return ""
            result = answer[:, *at]
            difference = compared(name, result, right)
            return (
                f"{difference}: it adjusts days to the calendar" if "xclim" in name else difference
            )

        sizes = sorted(map(len, some))
        print(f"#### {case}: {len(some)} groups of {sizes[0]} to {sizes[-1]} days\n", flush=True)
        show_runs(a, case, names, check)


# --- Zones ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Zones:
    """Labels of the shape of an array."""

    title: str
    n_groups: int
    make: Callable[[tuple[slice, slice], Sequence[int]], Values]


def random_at(seed: int, key: tuple[slice, ...]) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64([seed, *(each.start for each in key)]))


def sides(key: tuple[slice, ...]) -> tuple[int, ...]:
    return tuple(each.stop - each.start for each in key)


def heights(key: tuple[slice, ...], shape: Sequence[int]) -> Values:
    """float32 noise on a slope."""
    values = random_at(1, key).random(sides(key), np.float32)
    rows = np.arange(key[0].start, key[0].stop, dtype=np.float32)[:, None]
    values += rows / np.float32(shape[0])
    return values


def scattered(n: int) -> Callable[..., Values]:
    """Each label anywhere."""
    dtype = np.uint8 if n <= 256 else np.int32
    return lambda key, _: random_at(2, key).integers(0, n, sides(key), dtype)


def grid(n_down: int, n_across: int) -> Callable[..., Values]:
    """Rectangles of one label each."""

    def make(key: tuple[slice, ...], shape: Sequence[int]) -> Values:
        down, across = (
            np.arange(each.start, each.stop) * n // size
            for each, n, size in zip(key, (n_down, n_across), shape, strict=True)
        )
        dtype = np.uint8 if n_down * n_across <= 256 else np.int32
        return (down[:, None] * n_across).astype(dtype) + across.astype(dtype)

    return make


def mostly_first(key: tuple[slice, ...], _: Sequence[int]) -> Values:
    """One label in nine of ten places."""
    drawn = random_at(3, key).integers(0, 170, sides(key), np.uint8)
    return np.maximum(drawn, 152) - np.uint8(152)


ZONES: Mapping[str, Zones] = {
    "18 random": Zones("18 labels, anywhere", 18, scattered(18)),
    "18 zones": Zones("18 zones of one piece", 18, grid(3, 6)),
    "100000 zones": Zones("100,000 zones of one piece", 100_000, grid(250, 400)),
    "100000 random": Zones("100,000 labels, anywhere", 100_000, scattered(100_000)),
    "one of 90 %": Zones("18 labels, one with 90 % of all elements", 18, mostly_first),
}


def dask_images(x: da.Array, labels: da.Array, n: int) -> Any:
    from dask_image.ndmeasure import median

    return median(x, labels, np.arange(n)).compute()


def floxs(x: da.Array, labels: da.Array, n: int) -> Any:
    """Medians need all elements of a group in one chunk."""
    from flox import groupby_reduce

    result, _ = groupby_reduce(
        x.rechunk(-1).ravel(), labels.rechunk(-1).ravel(), func="median",
        expected_groups=np.arange(n), method="blockwise",
    )  # fmt: skip
    return result.compute()


ZONAL_PEERS = {"dask-image, ndmeasure.median": dask_images, "flox, one chunk": floxs}


def zonal_of(a: argparse.Namespace) -> Prepared:
    zones = ZONES[a.case]
    of_data = Counted(a.shape, np.float32, lambda key: heights(key, a.shape))
    of_labels = Counted(
        a.shape, zones.make((slice(0, 1),) * 2, a.shape).dtype,
        lambda key: zones.make(key, a.shape),
    )  # fmt: skip
    x, labels = (source.lazy(tuple(a.chunks)) for source in (of_data, of_labels))
    for package in NEEDS.get(a.contender, ()):
        __import__(package)
    n = zones.n_groups
    calls: Mapping[str, Callable[[], Any]] = {
        READING: lambda: x.sum().compute(),
        READING_LABELS: lambda: labels.sum().compute(),
        UNGROUPED: lambda: dask_gpuselect.quantile(x, 0.5).compute(),
        OURS: lambda: groupby(x, labels, groups=np.arange(n)).median().compute(),
        OURS_UNLISTED: lambda: groupby(x, labels).median().compute(),
        **{name: lambda p=peer: p(x, labels, n) for name, peer in ZONAL_PEERS.items()},  # type: ignore[misc]
    }
    return Prepared(calls[a.contender], {"data": (of_data, x), "labels": (of_labels, labels)})


def zonal_blocks(a: argparse.Namespace, case: str) -> Iterator[tuple[Values, Values]]:
    """Chunk by chunk: these make the data, so others would not do."""
    for place in da.core.slices_from_chunks(da.core.normalize_chunks(tuple(a.chunks), a.shape)):
        yield heights(place, a.shape).ravel(), ZONES[case].make(place, a.shape).ravel()


def zonal(a: argparse.Namespace) -> None:
    print(
        f"Medians of the groups of {tuple(a.shape)} float32, {4 * np.prod(a.shape) / 1e9:.3g} GB, "
        f"in chunks of {tuple(a.chunks)}. Data and labels are lazy, and made when they are loaded."
        f" {how(a)}\n"
    )
    say(machine(*versions("flox", "dask-image")))
    names = [READING, READING_LABELS, UNGROUPED, OURS]
    names += [OURS_UNLISTED] * a.discover + list(ZONAL_PEERS) * a.peers
    for case in a.cases:
        print(f"#### {ZONES[case].title}\n", flush=True)
        ours: list[Values] = []

        def check(name: str, answer: Values, case: str = case, ours: list[Values] = ours) -> str:
            if name == OURS:
                ours.append(answer)
                check_groups(lambda: zonal_blocks(a, case), answer[None], [0.5])
                return "exact"
            if name == OURS_UNLISTED and ours:  # groups that are not there are left out
                answer = placed((np.flatnonzero(~np.isnan(ours[0])), [answer]), len(ours[0]))[0]
            is_checked = ours and (name == OURS_UNLISTED or name in ZONAL_PEERS)
            return compared(name, answer, ours[0]) if is_checked else ""

        show_runs(a, case, names, check, base=UNGROUPED)


# --- Tables ---------------------------------------------------------------------------------------

KEYS = {"10": 10, "10000": 10_000, "1000000": 1_000_000, "one": 10}
"""Columns of keys, and how many groups they make. `one` has 95 % of the rows in one group."""

SHARES = [0.5, SHARE]


def rows_of(i: int, size: int) -> dict[str, Values]:
    """The columns of a file."""
    random = np.random.Generator(np.random.SFC64([51, i]))
    keys = {name: random.integers(0, n, size) for name, n in KEYS.items()}
    keys["one"] = np.maximum(random.integers(0, 200, size) - 190, 0)
    values = random.standard_normal(size) + keys["10"]
    return {"x": values, **{f"k{name}": column for name, column in keys.items()}}


def rows_store(a: argparse.Namespace) -> Path:
    """The folder of Parquet files, written if they are not there."""
    path = Path(a.store) / f"groups-{a.rows}-{a.files}"
    if not path.exists():
        import pyarrow as pa
        from pyarrow import parquet

        part = path.with_suffix(".part")
        part.mkdir(parents=True, exist_ok=True)
        size = -(-a.rows // a.files)
        for i, start in enumerate(range(0, a.rows, size)):
            columns = rows_of(i, min(size, a.rows - start))
            parquet.write_table(pa.table(columns), part / f"{i:05}.parquet")
        part.rename(path)
    return path


def column(a: argparse.Namespace, name: str) -> tuple[Counted, da.Array]:
    """A column of the files, a chunk for each of them."""
    from pyarrow import parquet

    folder, size = rows_store(a), -(-a.rows // a.files)

    def load(key: tuple[slice, ...]) -> Values:
        (stretch,) = key
        i, first = divmod(stretch.start, size)
        read = parquet.read_table(folder / f"{i:05}.parquet", columns=[name], use_threads=False)
        values: Values = read.column(0).to_numpy()
        return values[first : first + stretch.stop - stretch.start]

    source = Counted((a.rows,), np.float64 if name == "x" else np.int64, load)
    return source, source.lazy(size)


Answer = tuple[Values, Sequence[Values]]
"""Keys, and for each of `SHARES` the answers."""


def pandas(folder: Path, key: str, threads: int) -> Answer:
    import pandas as pd

    frame = pd.read_parquet(sorted(folder.glob("*.parquet")), columns=[key, "x"])
    grouped = frame.groupby(key)["x"]
    results = [grouped.quantile(q) for q in SHARES]
    return results[0].index.to_numpy(), [each.to_numpy() for each in results]


def polars(folder: Path, key: str, threads: int) -> Answer:
    import polars as pl

    questions = [pl.col("x").quantile(q, interpolation="linear").alias(str(q)) for q in SHARES]
    lazy = pl.scan_parquet(f"{folder}/*.parquet").group_by(key).agg(questions)
    result = lazy.collect(engine="streaming")
    return result[key].to_numpy(), [result[str(q)].to_numpy() for q in SHARES]


def duckdb(folder: Path, key: str, threads: int) -> Answer:
    import duckdb

    with tempfile.TemporaryDirectory() as spilled, duckdb.connect() as connection:
        connection.execute(f"SET threads = {threads}; SET temp_directory = '{spilled}'")
        if "DUCKDB_LIMIT" in os.environ:
            connection.execute(f"SET memory_limit = '{os.environ['DUCKDB_LIMIT']}'")
        questions = ", ".join(f"quantile_cont(x, {q}) AS q{i}" for i, q in enumerate(SHARES))
        result = connection.execute(
            f"SELECT {key}, {questions} FROM '{folder}/*.parquet' GROUP BY {key}"
        ).fetchnumpy()
        return result[key], [result[f"q{i}"] for i in range(len(SHARES))]


def frames(folder: Path, key: str, threads: int) -> Answer:
    import dask.dataframe as dd

    import dask_gpuselect.dataframe  # noqa: F401

    frame: Any = dd.read_parquet(folder, columns=[key, "x"])
    result = frame.exact.groupby(key)["x"].quantile(SHARES).compute()
    values = result.to_numpy().reshape(-1, len(SHARES)).T
    return result.index.get_level_values(0)[:: len(SHARES)].to_numpy(), list(values)


TABLE_PEERS: Mapping[str, Callable[[Path, str, int], Answer]] = {
    "dask_gpuselect, df.exact.groupby": frames,
    "pandas": pandas,
    "Polars, streaming": polars,
    "DuckDB, quantile_cont": duckdb,
}


def placed(answer: Answer, n: int) -> Floats:
    """Answers in the order of the keys; NaN for groups that are not there."""
    keys, values = answer
    result = np.full((len(values), n), np.nan)
    for row, of_share in zip(result, values, strict=True):
        row[keys] = of_share
    return result


def tables_of(a: argparse.Namespace) -> Prepared:
    import pyarrow as pa

    pa.set_cpu_count(a.threads)
    folder, key, n = rows_store(a), f"k{a.case}", KEYS[a.case]
    if a.contender in TABLE_PEERS:
        peer = TABLE_PEERS[a.contender]
        return Prepared(lambda: placed(peer(folder, key, a.threads), n))
    (of_data, x), (of_keys, keys) = column(a, "x"), column(a, key)
    calls: Mapping[str, Callable[[], Any]] = {
        READING_BOTH: lambda: dask.compute(x.sum(), keys.sum()),
        UNGROUPED: lambda: dask_gpuselect.quantile(x, SHARES).compute(),
        OURS: lambda: groupby(x, keys, groups=np.arange(n)).quantile(SHARES).compute(),
        OURS_UNLISTED: lambda: groupby(x, keys).quantile(SHARES).compute(),
    }
    return Prepared(calls[a.contender], {"data": (of_data, x), "keys": (of_keys, keys)})


def tables(a: argparse.Namespace) -> None:
    folder = rows_store(a)
    print(
        f"Medians and {SHARE} quantiles of float64 by int64 keys, {a.rows:,} rows in {a.files} "
        f"files of Parquet. {how(a)}\n"
    )
    say(machine(*versions("pandas", "pyarrow", "polars", "duckdb")))
    names = [READING_BOTH, UNGROUPED, OURS, *[OURS_UNLISTED] * a.discover, *TABLE_PEERS]

    def blocks(case: str) -> Iterator[tuple[Values, Values]]:
        from pyarrow import parquet

        for path in sorted(folder.glob("*.parquet")):
            read = parquet.read_table(path, columns=["x", f"k{case}"])
            yield read.column(0).to_numpy(), read.column(1).to_numpy()

    for case in a.cases:
        share = ", one of them with 95 % of all rows" if case == "one" else ""
        print(f"#### {KEYS[case]:,} groups{share}\n", flush=True)
        ours: list[Values] = []

        def check(name: str, answer: Values, case: str = case, ours: list[Values] = ours) -> str:
            if name == OURS:
                ours.append(answer)
                check_groups(lambda: blocks(case), answer, SHARES)
                return "exact"
            if name == OURS_UNLISTED and ours:  # groups that are not there are left out
                answer = placed((np.flatnonzero(~np.isnan(ours[0][0])), answer), KEYS[case])
            is_checked = ours and (name == OURS_UNLISTED or name in TABLE_PEERS)
            return compared(name, answer, ours[0]) if is_checked else ""

        show_runs(a, case, names, check, base=READING_BOTH)


# --- Answers are checked --------------------------------------------------------------------------

MOST_GATHERED = 100_000_000  # elements of a group that NumPy is asked about


def compared(name: str, found: Values, right: Values) -> str:
    """How far an answer is from the right one, rounded to its dtype.

    Raises
    ------
    WrongAnswerError
        For an answer of dask_gpuselect that is not equal.
    """
    if np.array_equal(found, right.astype(found.dtype), equal_nan=True):
        return "exact"
    off = np.abs(found.astype("f8") - right)
    difference = (
        f"{np.nanmax(off):.2g} off" if (np.isnan(found) == np.isnan(right)).all() else "NaN"
    )
    if name.startswith(OURS):
        raise WrongAnswerError(f"{name}: {difference}")
    return difference


def check_groups(blocks: Callable[[], Blocks], answers: Values, shares: Sequence[float]) -> None:
    """That each answer, (share, group), is between the neighbours of its place, by counts; and of
    some groups, that it is NumPy's."""
    n_groups = answers.shape[1]

    def count(labels: Values) -> Values:
        return np.bincount(labels, minlength=n_groups)

    n = np.zeros(n_groups, np.int64)
    below, upto = (np.zeros(answers.shape, np.int64) for _ in range(2))
    for values, labels in blocks():
        n += count(labels)
        for i, answer in enumerate(answers):
            limit = answer[labels]
            below[i] += count(labels[values < limit])
            upto[i] += count(labels[values <= limit])
    if not np.array_equal(np.isnan(answers), np.broadcast_to(n == 0, answers.shape)):
        raise WrongAnswerError("NaN is not where groups are without elements")
    for i, share in enumerate(shares):
        position = share * np.maximum(n - 1, 0)
        is_wrong = (below[i] > np.ceil(position)) | (upto[i] <= np.floor(position))
        if (is_wrong & (n > 0)).any():
            group = np.flatnonzero(is_wrong & (n > 0))[0]
            raise WrongAnswerError(f"{answers[i, group]} is not the {share} quantile of {group}")
    some = np.flatnonzero((n > 0) & (n <= MOST_GATHERED))
    for group in some[[0, -1]] if some.size else []:
        own = np.concatenate([values[labels == group] for values, labels in blocks()])
        right = np.quantile(own.astype("f8"), shares).astype(answers.dtype)
        if not np.array_equal(answers[:, group], right):
            raise WrongAnswerError(f"{answers[:, group]} of group {group}, and NumPy has {right}")


# --- Runs, each in a process of its own -----------------------------------------------------------

OURS, OURS_UNLISTED = "dask_gpuselect", "dask_gpuselect, without groups="
UNGROUPED = "dask_gpuselect, all in one group"
READING, READING_LABELS, READING_BOTH = "x.sum()", "labels.sum()", "x.sum(), keys.sum()"

NEEDS: Mapping[str, Sequence[str]] = {
    "xarray without flox": ["xarray"],
    "xarray with flox": ["xarray", "flox"],
    "xclim, percentile_doy": ["xclim.core.calendar"],
    "dask-image, ndmeasure.median": ["dask_image.ndmeasure"],
    "flox, one chunk": ["flox"],
    "pandas": ["pandas"],
    "Polars, streaming": ["polars"],
    "DuckDB, quantile_cont": ["duckdb"],
}
"""Modules to import before the clock runs."""


def lacks(name: str) -> str:
    """What has to be installed for a contender, if anything."""
    packages = (module.partition(".")[0] for module in NEEDS.get(name, ()))
    return next((each for each in packages if importlib.util.find_spec(each) is None), "")


def versions(*packages: str) -> list[str]:
    return [each for each in packages if importlib.util.find_spec(each.replace("-", "_"))]


def how(a: argparse.Namespace) -> str:
    limit = f"; at most {a.limit:g} GB a process" if a.limit else ""
    return f"{a.threads} threads; medians of {a.repeat} processes{limit}."


SMALL_COLUMN = "256 KiB"


def small(a: argparse.Namespace) -> argparse.Namespace:
    """What is asked before, so that all is compiled."""
    less: Mapping[str, Any] = {
        # All days: longer lanes have other kernels.
        "climatology": lambda: {"shape": [a.shape[0], 4, 6]},
        "zonal": lambda: {"shape": [300, 400], "chunks": [150, 200]},
        "tables": lambda: {"rows": 100_000, "files": 2},
    }
    return argparse.Namespace(**{**vars(a), **less[a.table]()})


def run_here(a: argparse.Namespace) -> dict[str, Any]:
    prepare = {"climatology": climatology_of, "zonal": zonal_of, "tables": tables_of}[a.table]
    with dask.config.set(scheduler="threads", num_workers=a.threads):
        prepare(small(a)).call()
        if a.table == "climatology":  # the plan of passes has kernels of its own
            with dask.config.set({"dask_gpuselect.column-limit": SMALL_COLUMN}):
                prepare(small(a)).call()
        prepared = prepare(a)
        for source, _ in prepared.sources.values():
            source.loads.clear()
        before, begin = peak(), time.perf_counter()
        answer = prepared.call()
        seconds = time.perf_counter() - begin
    loads = {
        name: source.loads.total() / lazy.npartitions
        for name, (source, lazy) in prepared.sources.items()
    }
    results = {"seconds": seconds, "peak": peak(), "before": before, "reads": loads}
    np.save(a.answer, np.asarray(answer))
    return results


def run_apart(a: argparse.Namespace, case: str, name: str, answer: Path) -> dict[str, Any]:
    job = {**vars(a), "case": case, "contender": name, "answer": str(answer)}
    command = [sys.executable, __file__, a.table, "--run", json.dumps(job)]
    try:
        return limited(command, name, a.limit, threads=a.threads, seconds=a.seconds)
    except RuntimeError as error:
        return {"failed": str(error).strip().splitlines()[-1].replace("|", "/")[:100]}


def show_runs(
    a: argparse.Namespace,
    case: str,
    names: Sequence[str],
    check: Callable[[str, Values], str],
    base: str = UNGROUPED,
) -> None:
    """A table of one case. `check` says of an answer whether it is right."""
    names = [name for name in names if name in (base, OURS, *(a.contenders or names))]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    failures = {
        name: f"needs {lacks(name)}, which is not installed" for name in names if lacks(name)
    }
    with tempfile.TemporaryDirectory() as folder:
        for repetition in range(a.repeat):
            for name in names if repetition % 2 == 0 else reversed(names):
                if name in failures:
                    continue
                answer = Path(folder) / f"{names.index(name)}.npy"
                result = run_apart(a, case, name, answer)
                print(f"{case}, {name}: {result}", file=sys.stderr, flush=True)
                if "failed" in result:
                    failures[name] = result["failed"]
                    continue
                runs[name].append(result)
        rows = []
        for name in names:
            if name in failures:
                rows.append([f"`{name}`", failures[name], *[""] * 6])
                continue
            verdict = check(name, np.load(Path(folder) / f"{names.index(name)}.npy"))
            rows.append([f"`{name}`", *cells(runs[name], runs[base]), verdict])
    units = f"time / `{base}`"
    memory = ["MB before", "peak, MB"]
    head = ["", "seconds", units, "reads of data", "of labels", *memory, "answer"]
    filled = [i for i in range(len(head)) if i == 0 or any(row[i] for row in rows)]
    say(table([head[i] for i in filled], [[row[i] for i in filled] for row in rows]))


def cells(own: list[dict[str, Any]], base: list[dict[str, Any]]) -> list[str]:
    seconds, ratios = (
        [run["seconds"] for run in own],
        [run["seconds"] / other["seconds"] for run, other in zip(own, base, strict=False)],
    )
    loads = own[0]["reads"]
    of_labels = [each for name, each in loads.items() if name != "data"]
    return [
        rounded(statistics.median(seconds)),
        rounded(statistics.median(ratios)) if ratios else "",
        f"{loads['data']:.2f}" if "data" in loads else "",
        f"{of_labels[0]:.2f}" if of_labels else "",
        *(f"{max(run[when] for run in own) / 1e6:,.0f}" for when in ("before", "peak")),
    ]


# --- Few groups and many --------------------------------------------------------------------------

N_CHECKED = 20  # groups


def many(a: argparse.Namespace) -> None:
    """What takes more than order statistics, of few and of many groups of one array."""
    random = np.random.default_rng(1)
    values = random.standard_normal(a.elements, dtype="f4")
    weights = random.random(a.elements, dtype="f4")
    lazy = da.from_array(values, chunks=-(-a.elements // 4))
    how: dict[str, Any] = {"weights": weights, "method": "inverted_cdf"}
    questions: Mapping[str, Callable[[Any], Any]] = {
        "box plots": lambda grouped: grouped.describe_boxplot(),
        "`mad`": lambda grouped: grouped.mad(scale=1.0),
        "quartiles, weighted": lambda grouped: grouped.quantile([0.25, 0.75], **how),
    }
    rows = []
    for n_groups in a.groups:
        by = random.integers(0, n_groups, a.elements)
        grouped = groupby(lazy, by, groups=np.arange(n_groups))
        calls = {name: ask(grouped) for name, ask in questions.items()}
        check_many(calls, values, weights, by, n_groups)
        times = {name: seconds(call, a.repeat) for name, call in calls.items()}
        rows.append([f"{n_groups:,}", *map(rounded, times.values())])
    runs = f"medians of {a.repeat} runs, {THREADS} threads"
    print(f"Seconds of {a.elements:,} float32 in 4 chunks, {runs}\n")
    say(table(["groups", *questions], rows))


def check_many(
    calls: Mapping[str, Any], values: Values, weights: Values, by: Values, n_groups: int
) -> None:
    """That answers of some groups are NumPy's."""
    boxes, deviations, quartiles = (call.compute() for call in calls.values())
    for i in range(0, n_groups, -(-n_groups // N_CHECKED)):
        own = values[by == i].astype("f8")
        middle = np.median(own)
        shares, of_own = [0.25, 0.75], weights[by == i].astype("f8")
        weighted = np.quantile(own, shares, weights=of_own, method="inverted_cdf")
        pairs = {
            "median": (boxes[i].med, middle),
            "upper quartile": (boxes[i].q3, np.quantile(own, 0.75)),
            "mad": (deviations[i], np.float32(np.median(abs(own - np.float64(middle))))),
            "weighted": (quartiles[:, i].astype("f8"), weighted),
        }
        for name, (result, right) in pairs.items():
            if not np.allclose(result, right, rtol=1e-6, atol=0):
                raise WrongAnswerError(f"{name} of group {i} of {n_groups}: {result}, not {right}")


def seconds(call: Any, repeat: int) -> float:
    """The median of some computations."""
    taken = []
    for _ in range(repeat):
        start = time.perf_counter()
        call.compute(scheduler="threads", num_workers=THREADS)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


# --- One GPU --------------------------------------------------------------------------------------


def gpu(a: argparse.Namespace) -> None:
    """Groups of CuPy chunks along an axis, and of labels of their own shape."""
    import cupy as cp
    from gpu import free

    name = cp.cuda.runtime.getDeviceProperties(cp.cuda.Device().id)["name"].decode()
    print(f"{name}, CuPy {cp.__version__}; medians of {a.repeat} repetitions, wall.\n", flush=True)
    with dask.config.set({"dask_gpuselect.column-limit": "16 GiB"}):
        for part in (gpu_axis, gpu_labels):
            part(a)
            free()


def gpu_axis(a: argparse.Namespace) -> None:
    import cupy as cp
    from gpu import chunked, lanes, wall

    n = a.shape[0]
    x = lanes(tuple(a.shape), "normal")
    lazy = chunked(x, 0, 5).persist(scheduler="sync")
    read = wall(lambda: x.sum(), a.repeat)
    plain = dask_gpuselect.median(lazy, axis=0)
    ungrouped = wall(lambda: plain.compute(scheduler="sync"), a.repeat)
    rows = [["`x.sum()`", rounded(read), "1", ""]]
    rows += [["dask_gpuselect, without groups", rounded(ungrouped), rounded(ungrouped / read), "1"]]
    corner = x[:, :3, :3].get().astype("f8")
    for case in ("months", "days"):
        labels = numbers(n, case)
        groups = np.unique(labels)
        grouped = groupby(lazy, labels, axis=0).median()
        result = cp.asnumpy(grouped[:, :3, :3].compute(scheduler="sync"))
        right = np.stack([np.median(corner[labels == group], axis=0) for group in groups])
        if not np.array_equal(result, right.astype(result.dtype)):
            raise WrongAnswerError(f"medians by {case} are not NumPy's")
        taken = wall(lambda g=grouped: g.compute(scheduler="sync"), a.repeat)  # type: ignore[misc]
        label = f"dask_gpuselect, {len(groups)} groups"
        rows.append([label, rounded(taken), rounded(taken / read), rounded(taken / ungrouped)])
    print(f"Medians along axis 0 of {tuple(a.shape)} float32 in 5 CuPy chunks, by label of a day\n")
    say(table(["", "ms", "reads", "of those without groups"], rows))


def gpu_labels(a: argparse.Namespace) -> None:
    import cupy as cp
    from gpu import chunked, wall

    n, n_groups = a.elements, a.groups
    random = cp.random.default_rng(1)
    x = random.standard_normal(n, dtype=cp.float32)
    by = random.integers(0, n_groups, n, dtype=cp.int32)
    lazy, lazy_by = (chunked(each, 0, 8).persist(scheduler="sync") for each in (x, by))
    wanted = np.arange(n_groups)
    grouped = groupby(lazy, lazy_by, groups=wanted).median()
    plain = dask_gpuselect.median(lazy)

    def ordered_bits() -> Any:
        """Ordered as the floats are: all bits of negative ones flipped, else the sign alone."""
        bits = x.view(cp.uint32)
        return cp.where(bits >> 31, ~bits, bits | cp.uint32(1 << 31))

    def sorted_key() -> Any:
        """Medians by one sort: the label in the upper half of a key, the element in the lower."""
        key = by.astype(cp.uint64) << cp.uint64(32)
        key |= ordered_bits()
        key.sort()
        stops = cp.searchsorted(key, cp.arange(1, n_groups + 1, dtype=cp.uint64) << cp.uint64(32))
        starts = cp.concatenate([cp.zeros(1, stops.dtype), stops[:-1]])
        middle = cp.stack([(starts + stops - 1) // 2, (starts + stops) // 2])
        low = (key[middle] & cp.uint64(0xFFFFFFFF)).astype(cp.uint32)
        back = cp.where(low >> 31, low & cp.uint32(0x7FFFFFFF), ~low)
        # float64, so that the mean of two neighbours is rounded once
        return back.view(cp.float32).astype(cp.float64).mean(axis=0).astype(cp.float32)

    calls: Mapping[str, Callable[[], Any]] = {
        "`x.sum()`": lambda: x.sum(),
        "dask_gpuselect, without groups": lambda: plain.compute(scheduler="sync"),
        f"dask_gpuselect, {n_groups:,} groups, 8 chunks": lambda: grouped.compute(scheduler="sync"),
        f"dask_gpuselect, {n_groups:,} groups, arrays": lambda: groupby(
            x, by, groups=wanted
        ).median(),
        "CuPy, sort of labels and elements": sorted_key,
        "CuPy, lexsort alone": lambda: cp.lexsort(cp.stack([ordered_bits(), by.view(cp.uint32)])),
    }
    right = cp.asnumpy(calls["CuPy, sort of labels and elements"]())
    for name in list(calls)[2:4]:
        if not np.array_equal(cp.asnumpy(calls[name]()), right):
            raise WrongAnswerError(f"{name}: not what sorting finds")
    times = {name: wall(call, a.repeat) for name, call in calls.items()}
    read = times["`x.sum()`"]
    print(f"Medians of {n:,} float32 by {n_groups:,} random labels of their shape\n")
    say(table(["", "ms", "reads"], [[k, rounded(t), rounded(t / read)] for k, t in times.items()]))


# --- The program ----------------------------------------------------------------------------------

TABLES = {"climatology": climatology, "zonal": zonal, "tables": tables, "many": many, "gpu": gpu}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    lines = (__doc__ or "").partition(";")[0]
    parser = argparse.ArgumentParser(description=lines)
    parts = parser.add_subparsers(dest="table", required=True)
    adds: dict[str, Any] = {name: parts.add_parser(name).add_argument for name in TABLES}
    for name, add in adds.items():
        runs = 9 if name == "gpu" else 3
        add("--repeat", type=int, default=runs, help="runs of each; %(default)s")
        if name in {"many", "gpu"}:
            continue
        add("--limit", type=float, default=0.0, help="GB that a process may hold; none")
        add("--seconds", type=float, default=1800.0, help="that a run may take; %(default)g")
        add(
            "--contenders", nargs="+", metavar="NAME", help="dask_gpuselect beside these alone; all"
        )
        add("--threads", type=int, default=THREADS, help="that compute; %(default)s")
        add("--run", help=argparse.SUPPRESS)
        if name != "zonal":
            add("--store", default="", help="a folder for the files, which stay there")
    add = adds["climatology"]
    add("--shape", type=int, nargs=3, default=[10957, 180, 360], help="days, latitudes, longitudes")
    add("--days", type=int, default=365, help="in a chunk; %(default)s")
    cases = ["days", "months", "seasons"]
    add("--cases", nargs="+", choices=cases, default=cases)
    add = adds["zonal"]
    add("--shape", type=int, nargs=2, default=[21384, 43200], help="of the array")
    add("--chunks", type=int, nargs=2, default=[2376, 4320], help="of the array and of the labels")
    add("--cases", nargs="+", choices=ZONES, default=list(ZONES), metavar="NAME", help="of labels")
    add("--peers", action="store_true", help="dask-image and flox too: for small shapes")
    add("--discover", action="store_true", help="dask_gpuselect without groups=, too")
    add = adds["tables"]
    add("--rows", type=int, default=100_000_000, help="in all; 1e8")
    add("--files", type=int, default=100, help="of Parquet; %(default)s")
    add("--cases", nargs="+", choices=KEYS, default=list(KEYS)[:3], metavar="KEYS", help="of keys")
    add("--discover", action="store_true", help="dask_gpuselect without groups=, too")
    add = adds["many"]
    add("--elements", type=int, default=4_000_000, help="float32; 4e6")
    numbers = [18, 200, 2_000, 20_000, 100_000]
    add("--groups", type=int, nargs="+", default=numbers, help="numbers of them")
    add = adds["gpu"]
    add("--shape", type=int, nargs=3, default=[3650, 300, 300], help="of lanes")
    add("--elements", type=int, default=1 << 28, help="with labels of their shape; 2^28")
    add("--groups", type=int, default=1000, help="of these; %(default)s")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if an answer of dask_gpuselect is wrong."""
    chosen = parse(arguments)
    if getattr(chosen, "run", None):
        print(json.dumps(run_here(argparse.Namespace(**json.loads(chosen.run)))))
        return 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            if not getattr(chosen, "store", folder):
                chosen.store = folder
            TABLES[chosen.table](chosen)
    except WrongAnswerError as error:
        print(f"groups: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
