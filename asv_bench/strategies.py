"""The tables of the papers on selection, measured anew: strategies, our default and plain peers on
the papers' data; prints Markdown.

    python asv_bench/strategies.py                     NumPy, up to 2^24 elements
    python asv_bench/strategies.py --gpu --json FILE   CuPy, up to 2^30
    python asv_bench/strategies.py --from FILE --plots FOLDER

A time is the median over repetitions, by the wall (or with ``--own-time`` the processor's time that
the process took), with the device synchronised. Rounds, reads and
gathered elements are those of `search.Selected`. Every answer is proven by counting what is below
it and up to it. What would take longer than the budget is left out, and its cell says what it took
at the size before. With ``--from`` nothing is measured: tables and pictures are those of FILE.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib.metadata
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from benchmarks.selection import (
    ADVERSARIAL_PAIRS,
    ALABI_PAIRS,
    BELIAKOV,
    OURS,
    OUTLIERS,
    PAPERS,
    Contender,
    alabi_ks,
    by_strategy,
    contenders,
    make_data,
    median_rank,
    peers,
)
from compare import machine, rounded, say
from strategy_tables import TABLES, Record, Results, defaults

from dask_gpuselect.strategies import BitonicMerge

ODD = tuple(range(13, 30, 2))
CPU_SIZES: Mapping[str, Sequence[int]] = {
    "beliakov": (*ODD[:5], 22),
    "adversarial": (22,),
    "bitonic": (20,),
    "k": (22,),
    "alabi": (*ODD[:5], 22, 24),
}
GPU_SIZES: Mapping[str, Sequence[int]] = {
    "beliakov": ODD[:8],  # 2^27 is the paper's 134e6
    "adversarial": (22, 27),
    "bitonic": (20,),
    "k": (27,),
    "alabi": (*ODD, 30),
}
WIDEST = {"float64": 29}  # two copies more are needed, and a sort's scratch
LONG = 0.25  # seconds of timed calls for one figure, after which none is begun
FEW_KS_FROM = 20  # without a device, all 25 of them take too long from 2**20 elements on


Place = tuple[str, str, str, str]  # table, contender, dtype and data


class OutOfTimeError(Exception):
    """The minutes are over."""


@dataclass(frozen=True)
class Limits:
    """How much may be measured.

    Parameters
    ----------
    repeats : int
        Timed calls.
    budget : float
        Seconds of a call; a contender that would take more is left out.
    deadline : float
        When to stop, by `time.monotonic`.
    clock : callable
        Seconds.
    """

    repeats: int
    budget: float
    deadline: float = math.inf
    clock: Callable[[], float] = time.perf_counter


@dataclass
class Bench:
    """Contenders on arrays of NumPy or CuPy, and what they took."""

    xp: ModuleType
    limits: Limits
    results: Results = field(default_factory=Results)
    failures: list[str] = field(default_factory=list)
    is_wrong: bool = False
    # The size before and seconds there, or why it is given up.
    before: dict[Place, tuple[int, float] | str] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def run(
        self,
        table: str,
        pair: tuple[str, str],
        log: int,
        chosen: Mapping[str, Contender],
        ranks: Sequence[int],
    ) -> None:
        """Measure contenders on one array."""
        data, dtype = pair
        self._say(f"{table}: {data}, {dtype}, 2^{log}")
        try:
            x = make_data(data, dtype, 1 << log, self.xp)
        except Exception as error:  # of memory, and whatever a device says
            self._fail(f"{data}, {dtype}, 2^{log}", error)
            return
        proven: dict[int, Any] = {}
        for name, contender in chosen.items():
            spot = Record(table, dtype, data, log, name, 0)
            ks = [ranks[len(ranks) // 2]] if contender.any_k else ranks
            self._contend(x, spot, contender, ks, proven)
        del x
        self.free()

    def _contend(
        self,
        x: Any,
        spot: Record,
        contender: Contender,
        ks: Sequence[int],
        proven: dict[int, Any],
    ) -> None:
        place = (spot.table, spot.name, spot.dtype, spot.data)
        note, times = self._refusal(place, spot.log), []
        for k in ks:
            record = dataclasses.replace(spot, k=k, ms=[], note=note)
            if not note:
                self._time(x, record, contender, proven, LONG / len(ks))
                times += record.ms
                note = record.note
            self.results.add(record)
            if note:
                break
        if times and not note:
            self.before[place] = (spot.log, statistics.median(times) / 1e3)
        elif note not in ("", self._refusal(place, spot.log)):
            self.before[place] = note

    def _refusal(self, place: Place, log: int) -> str:
        """Why a contender is not tried, or nothing."""
        before = self.before.get(place)
        if before is None or isinstance(before, str):
            return before or ""
        size, seconds = before
        if seconds * 2.0 ** (log - size) <= self.limits.budget:
            return ""
        return f"too long: {rounded(1e3 * seconds)} at 2^{size}"

    def _time(
        self,
        x: Any,
        record: Record,
        contender: Contender,
        proven: dict[int, Any],
        long: float,
    ) -> None:
        try:
            answer, trace = contender.traced(x, record.k)  # which also compiles what it takes
            self._prove(x, record, answer, proven)
            if trace is not None:
                record.rounds, record.gathered = trace.rounds, trace.gathered
                record.reads = round(trace.reads, 4)
            while len(record.ms) < self.limits.repeats and sum(record.ms) <= 1e3 * long:
                seconds, answer = self._wall(contender.select, x, record.k)
                record.ms.append(round(1e3 * seconds, 5))
            self._prove(x, record, answer, proven)
        except Exception as error:  # one contender's failure is told in its cell
            what = f"{record.name} on {record.data}, {record.dtype}, 2^{record.log}, k = {record.k}"
            record.note = self._fail(what, error)
            gc.collect()  # arrays that the traceback holds
            self.free()

    def _wall(self, select: Callable[[Any, int], Any], x: Any, k: int) -> tuple[float, Any]:
        if time.monotonic() > self.limits.deadline:
            raise OutOfTimeError("out of time")
        self.synchronize()
        start = self.limits.clock()
        answer = select(x, k)
        self.synchronize()
        return self.limits.clock() - start, answer

    def _prove(self, x: Any, record: Record, answer: Any, proven: dict[int, Any]) -> None:
        """Raise unless the answer has the rank: elements below it, and up to it, are counted once
        for each answer that differs."""
        value = x.dtype.type(answer.item() if hasattr(answer, "item") else answer)
        if record.k in proven and proven[record.k] == value:
            return
        below, upto = int((x < value).sum()), int((x <= value).sum())
        if not below <= record.k < upto:
            self.is_wrong = True
            raise AssertionError(f"WRONG: {value} has the ranks {below} to {upto - 1}")
        proven[record.k] = value

    def _fail(self, what: str, error: Exception) -> str:
        message = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
        if isinstance(error, OutOfTimeError):
            return "out of time"
        self.failures.append(f"{what}: {message}")
        self._say(self.failures[-1])
        return "WRONG" if "WRONG" in message else type(error).__name__

    def _say(self, what: str) -> None:
        seconds = time.monotonic() - self.started
        print(f"[{seconds:5.0f} s] {what}", file=sys.stderr, flush=True)

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.limits.deadline

    def synchronize(self) -> None:
        if self.xp is not np:
            self.xp.cuda.Device().synchronize()

    def free(self) -> None:
        """Give the device's memory back, so that every array begins with all of it."""
        if self.xp is np:
            return
        with suppress(Exception):  # after some errors a device does nothing more
            self.xp.get_default_memory_pool().free_all_blocks()
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_available():
                torch.cuda.empty_cache()


# --- What is measured ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """What the command line asks for."""

    sizes: Mapping[str, Sequence[int]]
    dtypes: Sequence[str]
    only: Sequence[str] = ()

    def pairs(self, pairs: Sequence[tuple[str, str]], log: int) -> list[tuple[str, str]]:
        return [
            (data, dtype)
            for data, dtype in pairs
            if dtype in self.dtypes and log <= WIDEST.get(dtype, log)
        ]

    def chosen(self, among: Mapping[str, Contender], names: Sequence[str]) -> dict[str, Contender]:
        return {
            name: among[name]
            for name in names
            if name in among and (not self.only or name in self.only)
        }


SLOW = ("bitonic merge",)  # has a table of its own
OF_ALABI = (
    "sort&choose",
    "radix 4",
    "radix 4, copying",
    "radix 4, in place",
    "bucket",
    "Kelley",
    "randomized",
    "Kelley, by key",
    "radix 8",
    "radix 11",
)
OF_K = ("radix 4", "bucket", "Kelley", "randomized", "radix 8", "radix 11")


def measure_beliakov(bench: Bench, asked: Comparison) -> None:
    among = contenders(bench.xp)
    chosen = asked.chosen(among, [name for name in among if name not in SLOW])
    sizes = asked.sizes["beliakov"]
    for log in sizes:
        data = [*BELIAKOV, *(OUTLIERS if log == sizes[-1] else ())]
        pairs = [(name, dtype) for dtype in ("float32", "float64") for name in data]
        for pair in asked.pairs(pairs, log):
            bench.run("beliakov", pair, log, chosen, [median_rank(1 << log)])
            if bench.is_late:
                return


def measure_alabi(bench: Bench, asked: Comparison) -> None:
    among = contenders(bench.xp)
    chosen = asked.chosen(among, [*OURS, *OF_ALABI, *peers(bench.xp)])
    for log in asked.sizes["alabi"]:
        ks = alabi_ks(1 << log)
        if bench.xp is np and log >= FEW_KS_FROM:
            ks = ks[::6]
        for pair in asked.pairs(ALABI_PAIRS, log):
            measure_ks(bench, "alabi", pair, log, chosen, ks)
            if bench.is_late:
                return


def measure_k(bench: Bench, asked: Comparison) -> None:
    among = contenders(bench.xp)
    names = [*OURS, *OF_K, *(name for name in peers(bench.xp) if not among[name].any_k)]
    pairs = [pair for pair in ALABI_PAIRS if pair[0] in ("uniform", "normal")]
    for log in asked.sizes["k"]:
        for pair in asked.pairs([pair for pair in pairs if pair[1] != "uint32"], log):
            chosen = asked.chosen(among, names)
            measure_ks(bench, "k", pair, log, chosen, alabi_ks(1 << log))
            if bench.is_late:
                return


def measure_ks(
    bench: Bench,
    table: str,
    pair: tuple[str, str],
    log: int,
    chosen: Mapping[str, Contender],
    ks: Sequence[int],
) -> None:
    """The k-th largest has rank ``n - k`` from below."""
    ranks = [(1 << log) - k for k in ks]
    usable = {name: each for name, each in chosen.items() if not each.only_median}
    bench.run(table, pair, log, usable, ranks)


def measure_adversarial(bench: Bench, asked: Comparison) -> None:
    among = contenders(bench.xp)
    chosen = asked.chosen(among, [name for name in among if name not in SLOW])
    for log in asked.sizes["adversarial"]:
        for pair in asked.pairs(ADVERSARIAL_PAIRS, log):
            bench.run("adversarial", pair, log, chosen, [median_rank(1 << log)])
            if bench.is_late:
                return


SUB_ARRAYS = (256, 512, 1024, 2048)  # of Alyafi & Khalid, table 2


def measure_bitonic(bench: Bench, asked: Comparison) -> None:
    chosen = {
        f"sub-arrays of {size}": by_strategy(BitonicMerge(size), any_k=True) for size in SUB_ARRAYS
    }
    chosen |= {"sort&choose": PAPERS["sort&choose"], **OURS}
    for log in asked.sizes["bitonic"]:
        for pair in asked.pairs([("uniform", "uint32"), ("uniform", "float32")], log):
            bench.run("bitonic", pair, log, chosen, [median_rank(1 << log)])


MEASURES: Mapping[str, Callable[[Bench, Comparison], None]] = {
    "beliakov": measure_beliakov,
    "adversarial": measure_adversarial,
    "bitonic": measure_bitonic,
    "k": measure_k,
    "alabi": measure_alabi,
}


# --- The program --------------------------------------------------------------------------------


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    add = parser.add_argument
    add("--gpu", action="store_true", help="CuPy arrays, and larger ones")
    add("--tables", nargs="+", choices=TABLES, default=list(TABLES), metavar="NAME")
    add("--sizes", nargs="+", type=int, metavar="LOG", help="2^LOG elements, instead of the plan")
    dtypes = ["uint32", "float32", "float64"]
    add("--dtypes", nargs="+", choices=dtypes, default=dtypes, metavar="DTYPE")
    add("--methods", nargs="+", default=[], metavar="NAME", help="only these contenders")
    add("--repeats", type=int, default=3, help="timed calls; 3, or fewer that are long")
    add("--budget", type=float, help="most seconds of a call; 1.5, on a GPU 0.5")
    add("--minutes", type=float, help="stop then, and print what there is; never, on a GPU after 8")
    add("--own-time", action="store_true", help="of the process, where neighbours take their share")
    add("--json", type=Path, metavar="PATH", help="write all figures there, after every table")
    add("--from", nargs="+", type=Path, dest="sources", metavar="PATH", help="what --json wrote")
    add("--plots", type=Path, metavar="FOLDER", help="draw the pictures there")
    chosen = parser.parse_args(arguments)
    if min([chosen.repeats, *(chosen.sizes or [])]) < 1:
        parser.error("needs at least a repetition, and two elements")
    return chosen


def planned(chosen: argparse.Namespace) -> Comparison:
    sizes: dict[str, Sequence[int]] = dict(GPU_SIZES if chosen.gpu else CPU_SIZES)
    if chosen.sizes:
        largest = (max(chosen.sizes),)
        sizes = dict.fromkeys(sizes, tuple(sorted(chosen.sizes)))
        sizes |= dict.fromkeys(("k", "bitonic"), largest)
    return Comparison(sizes, chosen.dtypes, chosen.methods)


def namespace(chosen: argparse.Namespace) -> ModuleType:
    if not chosen.gpu:
        return np
    import cupy

    return cupy  # type: ignore[no-any-return]


def describe(xp: ModuleType, chosen: argparse.Namespace) -> str:
    device = "NumPy, one thread"
    if xp is not np:
        result = xp.cuda.runtime.getDeviceProperties(xp.cuda.Device().id)["name"].decode()
        device = f"{result}, CuPy {xp.__version__}"
    clock = "processor's time of this process" if chosen.own_time else "wall"
    return f"{device}; {clock}, medians of {chosen.repeats} calls, or of fewer that are long."


def measure(chosen: argparse.Namespace) -> Bench:
    """All tables that are asked for, each printed when it is done."""
    xp, questions = namespace(chosen), planned(chosen)
    minutes = chosen.minutes or (8 if chosen.gpu else math.inf)
    budget = chosen.budget or (0.5 if chosen.gpu else 1.5)
    clock = time.process_time if chosen.own_time else time.perf_counter
    bench = Bench(xp, Limits(chosen.repeats, budget, time.monotonic() + 60 * minutes, clock))
    about = describe(xp, chosen)
    print(about, "\n")
    try:
        say(machine())
    except importlib.metadata.PackageNotFoundError as missing:
        print(f"{missing}\n")
    for name in (name for name in TABLES if name in chosen.tables):
        MEASURES[name](bench, questions)
        show(bench.results, [name])
        if chosen.json:
            write(chosen.json, about, bench)
    for each in bench.failures:
        print(f"- {each}")
    return bench


def show(results: Results, names: Sequence[str]) -> None:
    for name in names:
        title, render = TABLES[name]
        print(f"\n## {title}\n")
        say(render(results))


def write(path: Path, about: str, bench: Bench) -> None:
    records = [dataclasses.asdict(record) for record in bench.results]
    content = {"about": about, "failures": bench.failures, "records": records}
    path.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")


def read(paths: Sequence[Path]) -> Results:
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return Results(Record(**each) for content in contents for each in content["records"])


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if an answer is wrong."""
    chosen = parse(arguments)
    is_wrong = False
    if chosen.sources:
        results = read(chosen.sources)
        show(results, [name for name in chosen.tables if results.names(name)])
    else:
        bench = measure(chosen)
        results, is_wrong = bench.results, bench.is_wrong
    print("\n## The default\n")
    say(defaults(results))
    if chosen.plots:
        from strategy_plots import draw

        for path in draw(results, chosen.plots):
            print(path)
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
