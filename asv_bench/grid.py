"""The grid: every question with every measure, mask, home, dtype and distribution; prints Markdown.

    python asv_bench/grid.py [--elements 2097152] [--minutes 12]
    python asv_bench/grid.py --gpu [--elements 67108864] [--minutes 6]
    python asv_bench/grid.py --against CHECKOUT     this checkout and another one in turn
    python asv_bench/grid.py --only "median,axis"   cells whose names have all these parts
    python asv_bench/grid.py --own-time             processor time, for a shared machine

A cell takes one row of each table below. From the first row of every table one step is taken along
each axis, and a second one from there where both steps matter together. The figure of a cell is its
time in ns an element on a CPU, and in reads, the time of ``x.sum()`` of the same array, on a GPU;
where NumPy or CuPy has a function for the same, the ratio to its time follows. The worst cells come
first. Two cells are neighbours if they differ in one row; a cell that takes more than three times
as long as a neighbour is a finding. Compare what the two run: mostly one of them has no kernel of
its own. To add a row, add it to a table below; `STEPS` says which questions are neighbours.

Each checkout answers in a process of its own, on a CPU by kernels, after a first call that is not
counted. Before it fewer elements are asked about; where these say that a cell would take seconds
(on a GPU 0.5), the cell is timed at their size, beside reads of that size.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FINDING = 3.0
LONG = 0.5  # seconds: a call that takes longer is timed once
# Seconds: a call that would take longer is timed with fewer elements, one of so many.
TOO_LONG, FEWER = 4.0, (16,)
TOO_LONG_ON_GPU, FEWER_ON_GPU = 0.5, (16, 256)
ALL_TASKS = 0.025  # seconds: the fewest elements in this time are mostly tasks, so all come next

# --- The tables -----------------------------------------------------------------------------------

SLOTS: Mapping[str, tuple[int, ...] | None] = {
    "all": None,
    "axis of 8": (8, 1000),
    "axis of 24": (24, 577),
    "axis of 365": (365, 100),
    "axis of 3650": (3650, 30),
    "axis of 40000": (40000, 9),
    "18 groups": None,
    "18 groups along 365": (365, 100),
}
"""The elements of an answer; for answers along the first axis its size and that of the last one."""

QUESTIONS = (
    "median",
    "3 quantiles",
    "9 quantiles",
    "99 quantiles",
    "box",
    "mad",
    "iqr",
    "order statistic",
    "256 bins",
    "sort",
)
MEASURES = ("count", "weights", 'weights, "linear"')
MASKS = ("none", "where", "nodata")
HOMES = ("held", "plain", "made by tasks", "staged")
DTYPES = ("f4", "f8", "u1", "i2")
DATA = ("normal", "lognormal", "sorted")

STEPS = (("median", "3 quantiles", "9 quantiles", "99 quantiles"), ("median", "iqr"))
"""Questions that are neighbours; all rows of the other tables are, but shapes."""

WEIGHTED = ("median", "3 quantiles", "9 quantiles", "99 quantiles", "box")
OF_ALL = ("order statistic", "sort", "256 bins")
UNMASKED = ("sort",)


@dataclass(frozen=True)
class Cell:
    """A row of each table, by name."""

    question: str = QUESTIONS[0]
    slots: str = "all"
    measure: str = MEASURES[0]
    mask: str = MASKS[0]
    home: str = HOMES[0]
    dtype: str = DTYPES[0]
    data: str = DATA[0]

    def __str__(self) -> str:
        return ", ".join(str(getattr(self, each.name)) for each in fields(self))

    @property
    def is_asked(self) -> bool:
        """Whether there is such a question."""
        if self.measure != "count" and self.question not in WEIGHTED:
            return False
        if self.slots != "all" and self.question in OF_ALL:
            return False
        return not (self.mask != "none" and self.question in UNMASKED)


TABLES: Mapping[str, tuple[str, ...]] = {
    "measure": MEASURES,
    "mask": MASKS,
    "home": HOMES,
    "dtype": DTYPES,
    "data": DATA,
}
TYPICAL = ("median", "9 quantiles", "box", "sort")
"""Questions that are asked about all dtypes and distributions."""
PAIRS = (("measure", "mask"), ("mask", "home"))
"""Axes along which two steps are taken together."""


def cells(*, gpu: bool) -> list[Cell]:
    """All cells that are timed, each once: those of no step first, then those of one."""
    firsts = [Cell(*each) for each in itertools.product(QUESTIONS, SLOTS)]
    cells: dict[Cell, None] = dict.fromkeys(firsts)
    for axis, rows in TABLES.items():
        for row, first in itertools.product(rows[1:], firsts):
            if axis in ("dtype", "data") and first.question not in TYPICAL:
                continue
            cells[replace(first, **{axis: row})] = None
    for first in firsts:
        for one, other in PAIRS:
            rows = {one: TABLES[one][1], other: TABLES[other][1]}
            cells[replace(first, **rows)] = None
    return [cell for cell in cells if cell.is_asked and (gpu or cell.home != "staged")]


def neighbours(cell: Cell, known: Mapping[Cell, float]) -> Iterator[Cell]:
    """The cells that were timed and differ from one in a single row. A plain array has none along
    homes: its reads are no tasks."""
    for axis, rows in TABLES.items():
        for row in rows:
            other = replace(cell, **{axis: row})
            if axis == "home" and "plain" in (row, cell.home):
                continue
            if other != cell and other in known:
                yield other
    for steps in STEPS:
        if cell.question in steps:
            at = steps.index(cell.question)
            for question in steps[max(at - 1, 0) : at + 2]:
                other = replace(cell, question=question)
                if other != cell and other in known:
                    yield other


# --- Asking: in a process of each checkout --------------------------------------------------------


class Bench:
    """The arrays of cells, and the calls.

    Parameters
    ----------
    elements : int
        Of each array, about.
    gpu : bool
        Whether chunks are CuPy's.
    own_time : bool
        Whether to take the least processor time of several calls, not the median by the clock.
    """

    def __init__(self, elements: int, *, gpu: bool, own_time: bool = False) -> None:
        self.elements, self.gpu, self.own_time = elements, gpu, own_time
        self.xp = importlib.import_module("cupy" if gpu else "numpy")
        self.values = lru_cache(maxsize=8)(self._values)
        self.labels = lru_cache(maxsize=8)(labels_of)
        self.reads: dict[Any, float] = {}

    def shape(self, slots: str) -> tuple[int, ...]:
        ends = SLOTS[slots]
        if ends is None:
            return (self.elements,)
        first, last = ends
        last = max(1, min(last * (30 if self.gpu else 1), self.elements // first // 4))
        return (first, max(1, self.elements // (first * last)), last)

    def _values(self, slots: str, dtype: str, data: str) -> Any:
        xp, shape = self.xp, self.shape(slots)
        x = xp.random.default_rng(0).standard_normal(shape, dtype="f4")
        if data == "lognormal":
            x = xp.exp(3 * x)
        elif data == "tied":
            x = xp.floor(3 * x)
        elif data == "sorted":
            x = xp.sort(x, axis=0)
        if dtype[0] in "iu":
            info = xp.iinfo(dtype)
            x = xp.clip(x * 20 + (100 if info.min == 0 else 0), info.min, min(info.max, 2**30))
        return x.astype(dtype)

    def chunks(self, shape: tuple[int, ...]) -> Any:
        """Eight chunks: along the only axis, or across the lanes."""
        if len(shape) == 1:
            return -(-shape[0] // 8)
        return (shape[0], -(-shape[1] // 8), shape[2])

    def lazy(self, a: Any, home: str) -> Any:
        import dask.array as da

        chunks = self.chunks(a.shape)
        if home == "held":
            x = da.from_array(a, chunks=chunks, asarray=False)
            return x.persist(scheduler="sync") if self.gpu else x
        if home == "staged":
            from dask_gpuselect import to_gpu

            return to_gpu(da.from_array(self.xp.asnumpy(a), chunks=chunks))
        persisted = da.from_array(a, chunks=chunks, asarray=False)
        meta = a[(slice(0, 0),) * a.ndim]
        return persisted.map_blocks(self.xp.copy, dtype=a.dtype, meta=meta)

    def call(self, cell: Cell) -> Callable[[], Any]:
        """What is timed: the call, and computing its answer."""
        a = self.values(cell.slots, cell.dtype, cell.data)
        x = a if cell.home == "plain" else self.lazy(a, cell.home)
        how: dict[str, Any] = {}
        if cell.measure != "count":
            how["weights"] = self._beside(a, cell, lambda r, shape: r.random(shape, dtype="f4"))
        if cell.mask == "where":
            how["where"] = self._beside(a, cell, lambda r, shape: r.random(shape) < 0.9, whole=True)
        elif cell.mask == "nodata":
            how["nodata"] = a.dtype.type(3)
        ask = self._asked(x, cell, how)

        def run() -> Any:
            result = ask()
            return self._ended(result.compute() if hasattr(result, "compute") else result)

        return run

    def _beside(self, a: Any, cell: Cell, draw: Any, *, whole: bool = False) -> Any:
        """A companion: of every element, or of the places along the first axis."""
        shape = a.shape if whole or a.ndim == 1 else a.shape[:1]
        result = draw(self.xp.random.default_rng(1), shape)
        is_small = cell.home == "plain" or shape != a.shape
        return result if is_small else self.lazy(result, cell.home)

    def _asked(self, x: Any, cell: Cell, how: dict[str, Any]) -> Callable[[], Any]:
        import numpy as np

        import dask_gpuselect as ours
        from dask_gpuselect import groups, robust

        axis = None if x.ndim == 1 else 0
        if cell.measure != "count":
            is_linear = "linear" in cell.measure
            how["method"] = "linear" if is_linear else "inverted_cdf"
        target: Any = ours
        if "groups" in cell.slots:
            labels = self.labels(self.xp if axis is None else np, x.shape[0])
            if axis is None and cell.home != "plain":
                labels = self.lazy(labels, "held")
            target = groups.groupby(x, labels, axis, groups=range(18))
            names = {"box": "describe_boxplot"}
            given: tuple[Any, ...] = ()
        else:
            names = {"box": "describe_boxplot", "order statistic": "order_statistic"}
            names |= {"256 bins": "quantile_bins", "sort": "sort"}
            given = (x,)
            if cell.question not in OF_ALL:
                how["axis"] = axis
            if cell.question in ("mad", "iqr"):
                target = robust
        name = names.get(cell.question, cell.question)
        if cell.question == "order statistic":
            given += (self.elements // 3,)
        elif cell.question == "256 bins":
            given += (256,)
        elif "quantiles" in cell.question or (name == "median" and how.get("weights") is not None):
            n_q = int(cell.question.split()[0]) if "quantiles" in cell.question else 1
            given += ([(i + 1) / (n_q + 1) for i in range(n_q)],)
            name = "quantile"
        return lambda: getattr(target, name)(*given, **how)

    def read_seconds(self, cell: Cell, repeat: int) -> float:
        """What the sum of the same elements takes, as one stretch."""
        about = cell.slots, cell.home, cell.dtype
        if about not in self.reads:
            a = self.values(cell.slots, cell.dtype, cell.data).reshape(-1)
            if self.gpu and a.itemsize < 4:  # for whose sum CuPy would compile for 30 s
                a = a[: a.size // 4 * 4].view("f4")
            x = a if cell.home == "plain" else self.lazy(a, cell.home)

            def run() -> None:
                result = x.sum()
                self._ended(result.compute() if hasattr(result, "compute") else result)

            run()
            self.reads[about] = self.timed(run, repeat)
        return self.reads[about]

    def peer(self, cell: Cell) -> Callable[[], Any] | None:
        """The function of NumPy or CuPy for the same, of a plain array."""
        is_plain = cell.home == "plain" and cell.measure == "count" and cell.mask == "none"
        if not is_plain or "groups" in cell.slots:
            return None
        a, xp = self.values(cell.slots, cell.dtype, cell.data), self.xp
        axis = None if a.ndim == 1 else 0
        if cell.question == "median":
            return lambda: self._ended(xp.median(a, axis=axis))
        if cell.question == "sort":
            return lambda: self._ended(xp.sort(a))
        if "quantiles" in cell.question:
            n_q = int(cell.question.split()[0])
            q = xp.asarray([(i + 1) / (n_q + 1) for i in range(n_q)])
            return lambda: self._ended(xp.quantile(a, q, axis=axis))
        return None

    def timed(self, run: Callable[[], Any], repeat: int) -> float:
        """Take the seconds of the typical one of several calls, and of a long one alone."""
        clock = time.process_time if self.own_time else time.perf_counter
        results: list[float] = []
        while len(results) < repeat and sum(results) < LONG:
            begin = clock()
            run()
            results.append(clock() - begin)
        return min(results) if self.own_time else statistics.median(results)

    def _ended(self, found: Any) -> Any:
        if self.gpu:
            self.xp.cuda.Device().synchronize()
        return found


def labels_of(xp: Any, n: int) -> Any:
    """Make labels of 18 groups."""
    return xp.arange(n) * 7919 % 18


def measured(cell: Cell, benches: list[Bench], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Time a cell with the most elements that it does not take too long for.

    `benches` have ever more elements. The first call with each is not counted: it may compile. With
    nothing to repeat there is only that of the fewest elements. With a number of elements given,
    there is no other.
    """
    too_long = TOO_LONG_ON_GPU if benches[0].gpu else TOO_LONG
    benches = [each for each in benches if asked["elements"] in (None, each.elements)]
    ours = math.inf
    for bench, larger in zip(benches, [*benches[1:], None], strict=True):
        if bench.gpu and larger and ours <= ALL_TASKS:
            continue
        run = bench.call(cell)
        ours = bench.timed(run, 1)
        if not asked["repeat"]:
            bench.read_seconds(cell, 1)
            return {}
        if not (bench.gpu and larger and ours > TOO_LONG):  # whose kernels are compiled before
            ours = bench.timed(run, asked["repeat"] if larger is None else 1)
        if larger and ours * larger.elements / bench.elements > too_long:
            break
    result: dict[str, Any] = {"dask_gpuselect": ours, "elements": bench.elements}
    if asked["beside"]:
        result["read"] = bench.read_seconds(cell, asked["repeat"])
        peer = bench.peer(cell) if asked["peers"] else None
        if peer is not None:
            peer()
            result["peer"] = bench.timed(peer, asked["repeat"])
    return result


def serve(elements: int, *, gpu: bool, own_time: bool) -> None:
    """Time the cells that come in, a line each, until there are no more."""
    import warnings

    from dask_gpuselect.kernels import compiling

    warnings.simplefilter("ignore")
    if not gpu:
        compiling.LARGE = 0
    fewer = FEWER_ON_GPU if gpu else FEWER
    sizes = [elements // each for each in (*fewer[::-1], 1)]
    benches = [Bench(each, gpu=gpu, own_time=own_time) for each in sizes]
    for line in sys.stdin:
        request = json.loads(line)
        try:
            result = measured(Cell(**request["cell"]), benches, request)
        except Exception as error:  # noqa: BLE001 -- a cell that fails is a result
            result = {"error": f"{type(error).__name__}: {error}".split("\n")[0]}
        print("result " + json.dumps(result), flush=True)


class Server:
    """A process that times cells with the package of one checkout."""

    def __init__(self, checkout: Path, elements: int, *, gpu: bool, own_time: bool = False) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        command += ["--elements", str(elements), *(["--gpu"] if gpu else [])]
        command += ["--own-time"] if own_time else []
        path = f"{checkout}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )

    def ask(
        self,
        cell: Cell,
        repeat: int,
        *,
        beside: bool,
        peers: bool = False,
        elements: int | None = None,
    ) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"cell": asdict(cell), "repeat": repeat, "beside": beside, "elements": elements}
        request["peers"] = peers
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("result "):
                result: dict[str, Any] = json.loads(line.removeprefix("result "))
                return result
        raise SystemExit("a process that times cells has ended")

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def compile_kernels(some: list[Cell], checkout: Path, elements: int, n_beside: int) -> None:
    """Call each cell once with few elements, in several processes: kernels are then on disk.

    There are `n_beside` of these programs on the machine at the same time.

    One process took 10 minutes for all cells on an H200, 9 of them to compile.
    """
    # In a random order: cells that follow each other need the same kernels.
    left = iter(random.Random(0).sample(some, len(some)))  # of all processes

    def call(_: int) -> None:
        server = Server(checkout, elements, gpu=True)
        for cell in left:
            server.ask(cell, 0, beside=False)
        server.end()

    processes = max((os.cpu_count() or 1) // n_beside - 2, 1)
    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(call, range(processes)))


# --- The table ------------------------------------------------------------------------------------


def row(cells: list[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def show(known: Mapping[Cell, float], others: Mapping[Cell, dict[str, Any]], unit: str) -> None:
    """Print all cells, the worst first, and the findings."""
    print(row(["cell", unit, "times of the peer"]))
    print(row(["---"] * 3))
    for cell in sorted(known, key=lambda each: -known[each]):
        result = others[cell]
        peer = f"{result['dask_gpuselect'] / result['peer']:.2f}" if "peer" in result else ""
        is_small = result["elements"] < max(each.get("elements", 0) for each in others.values())
        print(row([cell, f"{known[cell]:.1f}{'*' * is_small}", peer]))
    print("\n*: with fewer elements, and reads of as many.")
    print(f"\nFindings: cells of more than {FINDING:g} times a neighbour.\n")
    print(row(["cell", "times", "neighbour"]))
    print(row(["---"] * 3))
    results = [
        (known[cell] / known[other], cell, other)
        for cell in known
        for other in neighbours(cell, known)
        if known[cell] > FINDING * known[other]
    ]
    worst: dict[Cell, tuple[float, Cell]] = {}
    for times, cell, other in sorted(results, key=lambda each: -each[0]):
        worst.setdefault(cell, (times, other))
    for cell, (times, other) in worst.items():
        print(row([cell, f"{times:.1f}", other]))
    failed = {cell: result["error"] for cell, result in others.items() if "error" in result}
    for cell, error in failed.items():
        print(f"\nfailed: {cell}: {error}")


def show_ratios(before: Mapping[Cell, float], after: Mapping[Cell, float]) -> None:
    """Print the ratio of each cell in two checkouts, the worst first."""
    ratios = {cell: after[cell] / before[cell] for cell in after if cell in before}
    mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
    print(f"{len(ratios)} cells: geometric mean {mean:.3f}, worst {max(ratios.values()):.2f}\n")
    print(row(["cell", "ns an element here", "there", "ratio"]))
    print(row(["---"] * 4))
    for cell in sorted(ratios, key=lambda each: -ratios[each]):
        seconds = [after[cell], before[cell], ratios[cell] * 1e-9]
        print(row([cell, *(f"{each * 1e9:.2f}" for each in seconds)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--elements", type=int)
    parser.add_argument("--minutes", type=float, help="cells that come later are left out")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--part", default="0/1", help="1/2: every second cell, from the second on")
    parser.add_argument("--no-peers", action="store_true", help="without CuPy's own functions")
    parser.add_argument("--only", default="", help="parts of the names of cells, with commas")
    parser.add_argument("--own-time", action="store_true", help="processor time, not the clock's")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    elements = options.elements or (1 << 26 if options.gpu else 1 << 21)
    if options.serve:
        return serve(elements, gpu=options.gpu, own_time=options.own_time)
    parts = [part.strip() for part in options.only.split(",") if part.strip()]
    some = [cell for cell in cells(gpu=options.gpu) if all(part in str(cell) for part in parts)]
    part, n_parts = map(int, options.part.split("/"))
    some = some[part::n_parts]
    begin = time.monotonic()
    end = begin + 60 * (options.minutes or (6 if options.gpu else 12))
    if options.gpu:
        for checkout in (ROOT, options.against):
            if checkout:
                compile_kernels(some, checkout, elements, n_parts)
    how = {"gpu": options.gpu, "own_time": options.own_time}
    here = Server(ROOT, elements, **how)
    there = Server(options.against, elements, **how) if options.against else None
    known: dict[Cell, float] = {}
    before: dict[Cell, float] = {}
    others: dict[Cell, dict[str, Any]] = {}
    for cell in some:
        if time.monotonic() > end:
            break
        is_alone = there is None
        result = here.ask(cell, options.repeat, beside=is_alone, peers=not options.no_peers)
        others[cell] = result
        print(f"{time.monotonic() - begin:.0f} s, {cell}: {result}", file=sys.stderr, flush=True)
        if "dask_gpuselect" not in result:
            continue
        if there is None:
            known[cell] = result["dask_gpuselect"] / (
                result["read"] if options.gpu else result["elements"] * 1e-9
            )
            continue
        # In turn, twice, with as many elements: the faster of both is the less disturbed.
        others_results = [
            server.ask(cell, options.repeat, beside=False, elements=result["elements"])
            for server in (there, here, there)
        ]
        rounds = [(result, others_results[0]), tuple(others_results[1:])]
        if all("dask_gpuselect" in each for pair in rounds for each in pair):
            known[cell], before[cell] = (
                min(each["dask_gpuselect"] / each["elements"] for each in side)
                for side in zip(*rounds, strict=True)
            )
    if there is None:
        show(known, others, "reads" if options.gpu else "ns an element")
    else:
        show_ratios(before, known)
        there.end()
    here.end()
    print(f"\n{len(others)} of {len(some)} cells were timed in the minutes that were given.")
    return None


if __name__ == "__main__":
    main()
