"""How long sorting a dask array takes by exact splitters, by a radix sort, and by
dask.dataframe, and how even the chunks become; prints Markdown.

    python asv_bench/sorted_arrays.py            2e7 float64 in 16 chunks, in memory
    python asv_bench/sorted_arrays.py --gpu      2^28 float64 in 16 CuPy chunks

Times are taken as ``compare.py`` takes them; results are kept in memory, beside the array. Even is
the size of the largest chunk in units of the mean. Answers are checked: the program ends with 1 if
one is wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dask
import dask.array as da
import numpy as np
from benchmarks.common import DISTRIBUTIONS, THREADS, Values, in_memory
from compare import Runs, WrongAnswerError, machine, ratio, rounded, say, table, take_turns

from dask_gpuselect import argsort, sort
from dask_gpuselect.arrays import namespace, to_host
from dask_gpuselect.radix_sort import radix_sort

DATA = ("normal", "lognormal", "integers", "zipf", "sorted")
OURS = "sort(x)"

Call = Callable[[da.Array], Any]


def by_dataframe(x: da.Array) -> Any:
    """Its divisions are approximate quantiles."""
    import dask.dataframe as dd

    return dd.from_dask_array(x, columns="v").to_frame().sort_values("v")["v"]


def whole(x: da.Array) -> da.Array:
    """The library's own sort, of all chunks as one."""
    return x.rechunk(-1).map_blocks(lambda chunk: namespace(chunk).sort(chunk))


SORTS: Mapping[str, Call] = {
    OURS: sort,
    "sort(x, spill=True)": lambda x: sort(x, spill=True),
    "argsort(x)": argsort,
    "radix_sort(x)": radix_sort,
    "rechunk(-1), sort": whole,
    "dask.dataframe": by_dataframe,
}
ON_A_GPU = (OURS, "argsort(x)", "radix_sort(x)", "rechunk(-1), sort")


def sorts(*, gpu: bool) -> dict[str, Call]:
    """Those that are there."""
    calls = {name: call for name, call in SORTS.items() if name in ON_A_GPU or not gpu}
    if importlib.util.find_spec("pyarrow") is None:  # dask.dataframe needs it
        calls.pop("dask.dataframe", None)
    return calls


@dataclass
class Contest:
    """What is timed on one array; the last answer of each, for runs that keep all take memory."""

    x: da.Array
    threads: int
    synchronize: Callable[[], None]
    answers: dict[str, Any] = field(default_factory=dict)

    def timed(self, name: str, call: Call) -> Callable[[], None]:
        def run() -> None:
            self.answers.pop(name, None)
            lazy = call(self.x)
            (self.answers[name],) = dask.persist(
                lazy, scheduler="threads", num_workers=self.threads
            )
            self.synchronize()

        return run

    def parts(self, name: str) -> list[Values]:
        """The chunks of an answer, on the host."""
        answer = self.answers[name]
        blocks = dask.compute(*list(answer.to_delayed()))
        return [to_host(getattr(block, "values", block)) for block in blocks]

    def check(self, values: Values) -> dict[str, float]:
        """How even the chunks of each are."""
        expected = np.sort(values)
        even = {}
        for name in self.answers:
            parts = self.parts(name)
            result = np.concatenate(parts)
            result = values[result] if name.startswith("argsort") else result
            if not np.array_equal(result, expected):
                raise WrongAnswerError(f"{name} has another answer than NumPy")
            even[name] = max(map(len, parts)) * len(parts) / len(result)
        return even


def rows(runs: Runs, even: Mapping[str, float], base: str) -> Iterator[Sequence[str]]:
    for name, of_one in runs.items():
        seconds = [run.seconds for run in of_one]
        times = map(rounded, (statistics.median(seconds), min(seconds), max(seconds)))
        ratios = (rounded(ratio(runs, name, other)) for other in (OURS, base))
        yield [f"`{name}`", *times, *ratios, f"{even[name]:.3f}" if name in even else ""]


def compare(arguments: argparse.Namespace) -> None:
    """A table for each kind of data."""
    n, n_chunks = arguments.elements, arguments.chunks
    kind, base = ("CuPy", "cupy.sort(a)") if arguments.gpu else ("NumPy", "np.sort(a)")
    print(f"{n:,} float64 in {n_chunks} {kind} chunks in memory; {arguments.repeat} repetitions.\n")
    say(machine())
    for name in arguments.data:
        values = in_memory(name, n)
        a, synchronize = device(values) if arguments.gpu else (values, lambda: None)
        chunk = -(-n // n_chunks)
        pieces = {("held", i): a[i * chunk : (i + 1) * chunk] for i in range(-(-n // chunk))}
        sizes = (tuple(len(piece) for piece in pieces.values()),)
        x = da.Array(pieces, "held", sizes, meta=a[:0])
        contest = Contest(x, arguments.threads, synchronize)

        def alone(a: Any = a, done: Callable[[], None] = synchronize) -> None:
            namespace(a).sort(a)
            done()

        calls: dict[str, Callable[[], None]] = {base: alone}
        calls |= {
            each: contest.timed(each, call) for each, call in sorts(gpu=arguments.gpu).items()
        }
        with dask.config.set({"dataframe.shuffle.method": "tasks"}):
            take_turns(calls, 1, "warm up")
            runs = take_turns(calls, arguments.repeat, name)
        even = contest.check(values)
        print(f"{name}\n")
        head = ["", "seconds", "least", "most", f"in units of {OURS}", f"of {base}", "even"]
        say(table(head, list(rows(runs, even, base))))


def device(values: Values) -> tuple[Any, Callable[[], None]]:
    import cupy

    return cupy.asarray(values), cupy.cuda.runtime.deviceSynchronize


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    add = parser.add_argument
    add("--elements", type=int, help="in all; 2e7, or 2^28 on a GPU")
    add("--chunks", type=int, default=16, help="16")
    add("--data", nargs="+", choices=DISTRIBUTIONS, default=list(DATA), metavar="NAME")
    add("--threads", type=int, help=f"that compute; {THREADS}, or 1 on a GPU")
    add("--repeat", type=int, default=5, help="repetitions; 5")
    add("--gpu", action="store_true", help="CuPy chunks")
    given = parser.parse_args(arguments)
    given.elements = given.elements or (1 << 28 if given.gpu else 20_000_000)
    given.threads = given.threads or (1 if given.gpu else THREADS)
    try:
        compare(given)
    except WrongAnswerError as error:
        print(f"sorted_arrays: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
