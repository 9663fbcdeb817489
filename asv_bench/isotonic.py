"""How long isotonic regression takes: the table of Beliakov and Liu, section 3; prints Markdown.

    python asv_bench/isotonic.py            pooled violators (SciPy) and serial lower sets
    python asv_bench/isotonic.py --gpu      and parallel lower sets on a CUDA device

Data are a function and normal noise: an increasing one with noise of three of its steps, the same
with noise of 0.1, a constant and a decreasing one with as much. Where noise is little, blocks are
small, and serial lower sets look at all that is behind each. With `--gpu` the array is on the
device, and pooling it on the host includes both copies. Serial minimum lower sets are compiled by
Numba. What is expected to take more than `--budget` seconds is left out. A line is printed when it
is known, answers are compared: the program ends with 1 if two differ by more than rounding.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numba
import numpy as np
import scipy.optimize
from compare import machine, rounded, say, table
from numpy.typing import NDArray

from dask_gpuselect.distribution import isotonic_regression

Floats = NDArray[np.float64]
SIZES = (50_000, 100_000, 500_000, 1_000_000, 2_000_000, 10_000_000, 20_000_000, 50_000_000)
DATA: Mapping[str, tuple[Callable[[Floats], Floats], Callable[[int], float]]] = {
    "increasing": (np.sqrt, lambda n: 3 / n),
    "increasing, noisy": (np.sqrt, lambda n: 0.1),
    "constant": (np.zeros_like, lambda n: 0.1),
    "decreasing": (np.negative, lambda n: 0.1),
}


def noisy(name: str, n: int) -> Floats:
    function, noise = DATA[name]
    return function(np.linspace(0, 1, n)) + noise(n) * np.random.default_rng(n).normal(size=n)


def pooled(y: Floats) -> Floats:
    result: Floats = scipy.optimize.isotonic_regression(y).x
    return result


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def serial_lower_sets(y: Floats) -> Floats:
    """From the end of a block on, the smallest average of what is left is the next block's."""
    n = len(y)
    result = np.empty(n)
    i = 0
    while i < n:
        total, least, last = 0.0, np.inf, i
        for j in range(i, n):
            total += y[j]
            average = total / (j - i + 1)
            if average <= least:
                least, last = average, j
        result[i : last + 1] = least
        i = last + 1
    return result


def seconds(call: Callable[[], Any], repeat: int, wait: Callable[[], None]) -> tuple[float, Any]:
    """The median, and the last answer."""
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        result = call()
        wait()
        times.append(time.perf_counter() - begin)
    return statistics.median(times), result


class Contest:
    """Times of one kind of data, and what they let expect of more of it."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        self.name, self.repeat, self.budget = name, arguments.repeat, arguments.budget
        self.last: dict[str, tuple[int, float]] = {}
        self.differences: list[str] = []

    def time(
        self, what: str, call: Callable[[Any], Any], y: Any, wait: Callable[[], None]
    ) -> tuple[float, Any] | None:
        """None where it would take too long, if it takes four times as long for twice as many."""
        size, taken = self.last.get(what, (len(y), 0.0))
        if taken * (len(y) / size) ** 2 > self.budget:
            return None
        first, result = seconds(lambda: call(y), 1, wait)
        if first < self.budget / 10:
            first, result = seconds(lambda: call(y), self.repeat, wait)
        self.last[what] = (len(y), first)
        return first, result

    def check(self, what: str, found: Floats, wanted: Floats) -> str:
        """How far apart, in eps of the largest number; each block is a sum of up to n."""
        size = float(np.abs(wanted).max()) or 1.0
        apart = float(np.abs(found - wanted).max()) / size / 2.0**-52
        if not apart <= 2 * len(wanted):
            self.differences.append(f"{self.name}, {len(wanted):,}: {what} {apart:.3g} eps apart")
        return f"{apart:.2g}"


def on_cpu(contest: Contest, n: int) -> list[str]:
    y = noisy(contest.name, n)
    one = contest.time("pooled", pooled, y, no_wait)
    other = contest.time("serial", serial_lower_sets, y, no_wait)
    medians = contest.time("absolute", of_medians, y, no_wait)
    apart = contest.check("serial", other[1], one[1]) if one and other else ""
    return [contest.name, f"{n:,}", cell(one), cell(other), apart, cell(medians)]


def of_medians(y: Any) -> Any:
    return isotonic_regression(y, loss="absolute")


def on_gpu(contest: Contest, n: int) -> list[str]:
    import cupy

    from dask_gpuselect.kernels.cuda.lower_sets import lower_sets

    def there_and_back(y: Any) -> Any:
        return cupy.asarray(pooled(y.get()))

    wait = cupy.cuda.get_current_stream().synchronize
    y = cupy.asarray(noisy(contest.name, n))
    lower_sets(y[:1000]), of_medians(y[:1000])
    one = contest.time("pooled", there_and_back, y, wait)
    parallel = contest.time("parallel", lower_sets, y, wait)
    medians = contest.time("absolute", of_medians, y, wait)
    apart = contest.check("parallel", parallel[1].get(), one[1].get()) if one and parallel else ""
    times = rounded(parallel[0] / one[0]) if one and parallel else ""
    return [contest.name, f"{n:,}", cell(one), cell(parallel), times, apart, cell(medians)]


def no_wait() -> None:
    """There is nothing to wait for."""


def cell(timed: tuple[float, Any] | None) -> str:
    return rounded(timed[0]) if timed else "--"


CPU_HEAD = ["data", "n", "pooled violators, s", "serial lower sets, s", "eps apart", "absolute, s"]
GPU_HEAD = ["data", "n", "pooled on the host, s", "parallel lower sets, s", "times", "eps apart"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    add = parser.add_argument
    add("--gpu", action="store_true", help="on one CUDA device")
    add("--sizes", type=int, nargs="+", default=SIZES, help="5e4 to 5e7")
    add("--data", nargs="+", choices=DATA, default=list(DATA))
    add("--repeat", type=int, default=5, help="repetitions of what is quick; 5")
    add("--budget", type=float, default=60, help="seconds that one call may take; 60")
    parsed = parser.parse_args(arguments)
    serial_lower_sets(np.zeros(2))
    say(machine("scipy"))
    head = [*GPU_HEAD, "absolute, s"] if parsed.gpu else CPU_HEAD
    lines = table(head, [])
    print(next(lines), next(lines), sep="\n", flush=True)
    differences: list[str] = []
    for name in parsed.data:
        contest = Contest(name, parsed)
        for n in parsed.sizes:
            row = (on_gpu if parsed.gpu else on_cpu)(contest, n)
            print(f"| {' | '.join(row)} |", flush=True)
        differences += contest.differences
    for difference in differences:
        print(difference, file=sys.stderr)
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
