"""How long the distributed radix sort takes, beside a sort in memory and quantiles of the same
array; prints Markdown.

    python asv_bench/sorting.py             2e7 float64 in 16 chunks, digits of 8, 11 and 16 bits
    python asv_bench/sorting.py --bits 16 --elements 100_000_000

Times are taken as ``compare.py`` takes them. The array is held in memory, and so is what is sorted:
one chunk beside the other. Beside random data there is sorted data, which is not moved, and sorted
data of which two elements are exchanged, which is moved as any other. Answers are checked: the
program ends with 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
from benchmarks.common import QUARTILES, THREADS, Values, compute, in_memory
from compare import Runs, WrongAnswerError, machine, ratio, rounded, say, table, take_turns

from dask_gpuselect import quantile
from dask_gpuselect.kernels import radix
from dask_gpuselect.maths.scans import cut_positions
from dask_gpuselect.radix_sort import radix_sort
from dask_gpuselect.sorted_boxes import describe_sorted

SORT, OURS, BOX = "np.sort(a)", "quantile(x, q)", "describe_sorted(ordered)"


def exchanged(size: int) -> Values:
    """Sorted but for the first and the last element."""
    values = in_memory("sorted", size).copy()
    values[[0, -1]] = values[[-1, 0]]
    return values


DATA: Mapping[str, Callable[[int], Values]] = {
    "uniform": lambda size: in_memory("uniform", size),
    "sorted": lambda size: in_memory("sorted", size),
    "two exchanged": exchanged,
}


def radix_name(bits: int) -> str:
    return f"radix_sort(x, bits={bits})"


@dataclass
class Contest:
    """What is timed on one array; the last answer of each, for runs that keep all take memory."""

    values: Values
    chunks: int
    threads: int

    def __post_init__(self) -> None:
        self.x = self.held(da.from_array(self.values, chunks=-(-self.values.size // self.chunks)))
        self.ordered = self.held(radix_sort(self.x))
        self.answers: dict[str, Any] = {}

    def held(self, lazy: da.Array) -> da.Array:
        (result,) = dask.persist(lazy, scheduler="threads", num_workers=self.threads)
        return result

    def calls(self, widths: Sequence[int]) -> dict[str, Callable[[], None]]:
        calls: dict[str, Callable[[], Any]] = {
            SORT: lambda: np.sort(self.values),
            OURS: lambda: compute(quantile(self.x, QUARTILES), self.threads),
            BOX: self.described,
        }
        for bits in widths:
            calls[radix_name(bits)] = lambda bits=bits: self.held(radix_sort(self.x, bits=bits))  # type: ignore[misc]
        return {name: self.noted(name, call) for name, call in calls.items()}

    def described(self) -> Any:
        box = describe_sorted(self.ordered)
        (result,) = dask.compute(box, scheduler="threads", num_workers=self.threads)
        return result

    def noted(self, name: str, call: Callable[[], Any]) -> Callable[[], None]:
        def timed() -> None:
            self.answers[name] = call()

        return timed

    def check(self) -> None:
        """All are NumPy's own."""
        expected, box = self.answers[SORT], self.answers[BOX]
        quartiles = self.answers[OURS]
        if not np.array_equal(quartiles, np.quantile(self.values, QUARTILES)):
            raise WrongAnswerError(f"{OURS} has another answer than NumPy")
        if not np.array_equal(quartiles, [box.q1, box.med, box.q3]):
            raise WrongAnswerError(f"{BOX} has another answer than {OURS}")
        for name, answer in self.answers.items():
            if name.startswith("radix_sort") and not np.array_equal(answer, expected):
                raise WrongAnswerError(f"{name} has another answer than NumPy")


def contest(
    values: Values, chunks: int, threads: int, widths: Sequence[int], repeat: int, what: str
) -> Runs:
    """The runs of all on one array, checked."""
    contest = Contest(values, chunks, threads)
    runs = take_turns(contest.calls(widths), repeat, what)
    contest.check()
    return runs


def rows(runs: Runs) -> Iterator[Sequence[str]]:
    for name, of_one in runs.items():
        seconds = [run.seconds for run in of_one]
        times = map(rounded, (statistics.median(seconds), min(seconds), max(seconds)))
        ratios = (rounded(ratio(runs, name, base)) for base in (SORT, OURS))
        yield [f"`{name}`", *times, *ratios]


# --- What is moved


def moved(values: Values, chunks: int, bits: int) -> list[float]:
    """The share of the keys that change chunk in each pass, were none of them left out."""
    keys = radix.keys_of(values, values.dtype)
    starts = range(0, keys.size, -(-keys.size // chunks))
    shares = []
    for shift in range(0, radix.key_bits(values.dtype), bits):
        parts = np.split(keys, list(starts)[1:])
        cuts = cut_positions(np.array([radix.count_digit(part, shift, bits) for part in parts]))
        stays = keys.size if cuts is None else int(np.diff(cuts, axis=1).trace())
        shares.append(1 - stays / keys.size)
        keys = radix.by_digit(keys, shift, bits)
    return shares


def moved_rows(arguments: argparse.Namespace) -> Iterator[Sequence[str]]:
    for name in arguments.data:
        values = DATA[name](arguments.elements)
        for bits in arguments.bits:
            shares = moved(values, arguments.chunks, bits)
            yield [name, f"{bits}", *(f"{share:.0%}" for share in (min(shares), max(shares)))]


# --- The program


def compare(arguments: argparse.Namespace) -> None:
    """A table for each kind of data."""
    print(
        f"{arguments.elements:,} float64 in {arguments.chunks} chunks in memory, "
        f"{arguments.threads} threads; medians of {arguments.repeat} repetitions.\n"
    )
    say(machine())
    shared = (arguments.chunks, arguments.threads, arguments.bits)
    contest(in_memory("uniform", 10_000), *shared, 1, "warm up")  # no time has a compilation
    for name in arguments.data:
        runs = contest(DATA[name](arguments.elements), *shared, arguments.repeat, name)
        print(f"{name}\n")
        head = ["", "seconds", "least", "most", "in units of np.sort", "of quantile"]
        say(table(head, list(rows(runs))))
    print("Keys that change chunk in a pass, if sorted data is not left alone\n")
    say(table(["", "bits", "least", "most"], list(moved_rows(arguments))))


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    add = parser.add_argument
    add("--elements", type=int, default=20_000_000, help="in all; 2e7")
    add("--chunks", type=int, default=16, help="16")
    add("--bits", nargs="+", type=int, default=[8, 11, 16], help="of a digit; 8 11 16")
    add("--data", nargs="+", choices=DATA, default=list(DATA), metavar="NAME", help="; ".join(DATA))
    add("--threads", type=int, default=THREADS, help=f"that compute; {THREADS}")
    add("--repeat", type=int, default=5, help="repetitions; 5")
    try:
        compare(parser.parse_args(arguments))
    except WrongAnswerError as error:
        print(f"sorting: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
