"""Time, reads and tasks of median absolute deviations, beside medians of the same arrays.

Sizes are those of the claims in RESULTS.md; ``BENCH_SHRINK`` divides them. As for quantiles, a load
costs nothing where time is measured. From ``asv_bench``, ``python -m benchmarks.spread`` compares
all in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import dask
import dask.array as da
import numpy as np

from dask_gpuselect import median
from dask_gpuselect.robust import iqr, mad

from .boxplot import FORMS, forms_of
from .common import (
    DISTRIBUTIONS,
    SPEED,
    THREADS,
    Seconds,
    Source,
    compute,
    in_memory,
    optimized,
    shrunk,
    unit,
)
from .quantiles import CHUNKS, ELEMENTS, values_of


def composed(x: Any) -> Any:
    return median(abs(x - median(x)))


def formula(a: Any) -> Any:
    return np.median(np.abs(a - np.median(a)))


OURS: Mapping[str, Callable[[Any], Any]] = {
    "median(x)": median,
    "mad(x)": lambda x: mad(x, scale=1.0),
    "median(abs(x - median(x)))": composed,
    "iqr(x)": iqr,
}


def answer(question: str, array: Any) -> Any:
    """Build the graph if there is one, and compute."""
    result = OURS[question](array)
    return compute(result, THREADS) if isinstance(result, da.Array) else result


@cache
def compile_spread() -> None:
    """Have all kernels compiled: those for data in memory too, and those that follow a miss."""
    for distribution in ("normal", "lognormal"):
        for array in forms_of(in_memory(distribution, 1 << 21, "float64"), 2).values():
            for question in OURS:
                answer(question, array)


class Spread(Seconds):
    """Deviations of 1e8 elements in 10 chunks, and medians, of each form of an array."""

    params = (list(OURS), list(FORMS), ["normal", "integers"])
    param_names = ("question", "form", "distribution")

    def setup(self, question: str, form: str, distribution: str) -> None:
        compile_spread()
        values = values_of(distribution, shrunk(ELEMENTS), "float64")
        self.array = FORMS[form](values, CHUNKS)

    def time_compute(self, question: str, form: str, distribution: str) -> None:
        with dask.config.set(num_workers=THREADS):
            answer(question, self.array)


class SpreadLoads:
    """How often a chunk is loaded, and how many tasks that takes."""

    params = (list(OURS), ["normal", "sorted"])
    param_names = ("question", "distribution")

    def setup(self, question: str, distribution: str) -> None:
        self.source = Source.generated(distribution, shrunk(ELEMENTS // 10), CHUNKS)

    @unit("reads")
    def track_loads(self, question: str, distribution: str) -> int:
        answer(question, self.source.lazy())
        return max(self.source.loads)

    @unit("tasks")
    def track_num_tasks(self, question: str, distribution: str) -> int:
        return len(dict(optimized(OURS[question](self.source.lazy())).__dask_graph__()))


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    """Print a table for each distribution: seconds, and ratios to a median within the turn."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--elements", type=int, default=ELEMENTS)
    parser.add_argument("--repeat", type=int, default=5)
    names = list(DISTRIBUTIONS)
    parser.add_argument("--distributions", nargs="+", choices=names, default=list(SPEED))
    arguments = parser.parse_args()
    compile_spread()
    for distribution in arguments.distributions:
        values = in_memory(distribution, arguments.elements, "float64")
        arrays = forms_of(values, CHUNKS)
        wanted = formula(values)
        times: dict[tuple[str, str], list[float]] = {}
        with dask.config.set(num_workers=THREADS):
            for _ in range(arguments.repeat):
                for form, array in arrays.items():
                    for question in OURS:
                        taken = seconds(lambda q=question, x=array: answer(q, x))  # type: ignore[misc]
                        times.setdefault((form, question), []).append(taken)
                numpys = seconds(lambda x=values: formula(x))  # type: ignore[misc]
                times.setdefault(("plain", "NumPy's formula"), []).append(numpys)
            for array in arrays.values():
                assert answer("mad(x)", array) == wanted, distribution
        print(f"\n{distribution}\n\n| form | | seconds | of our median |\n|---|---|---|---|")
        for (form, question), taken_in_turns in times.items():
            pairs = zip(taken_in_turns, times[form, "median(x)"], strict=True)
            ratio = statistics.median(one / other for one, other in pairs)
            middle = statistics.median(taken_in_turns)
            print(f"| {form} | `{question}` | {middle:.2f} | {ratio:.1f} |")


if __name__ == "__main__":
    main()
