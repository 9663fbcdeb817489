"""How far `ecdf` is from the exact distribution, how evenly its quantiles divide data, and how long
it takes; prints Markdown.

    python asv_bench/ecdf.py                  1e7 elements of eleven distributions
    python asv_bench/ecdf.py --elements 100_000_000 --data normal --repeat 5

The error is the largest one at a million elements and just below them, as a share of all elements;
what is stated is `max_error`. Splitters are the quantiles that divide data into 64 parts, the
paper's use: from `ecdf` of all data in two reads, from `ecdf` of all data at quantiles of a random
sample in one, from `ecdf` of the sample alone, from the sample itself, and the exact ones. How even
the parts are is the largest one's size, of the mean. Times are taken in turns, of ten chunks in
memory. Answers are checked: the program ends with an error if one is further off than what is
stated.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from benchmarks.common import THREADS, Floats, Values
from compare import machine, rounded, say, table

from dask_gpuselect import quantile
from dask_gpuselect.distribution import EmpiricalDistribution, ecdf

CHUNKS = 10
LOOKED_AT = 1_000_000

Random = np.random.Generator

DATA: Mapping[str, Callable[[Random, int], Values]] = {
    "uniform": lambda r, n: r.random(n),
    "normal": lambda r, n: r.standard_normal(n),
    "exponential": lambda r, n: r.exponential(size=n),
    "lognormal, sigma 3": lambda r, n: r.lognormal(sigma=3, size=n),
    "Cauchy": lambda r, n: r.standard_cauchy(n),
    "two normals, 1e3 apart": lambda r, n: r.standard_normal(n) + 1e3 * (r.random(n) < 0.3),
    "ten normals, of scales 1 to 1e9": lambda r, n: (
        r.standard_normal(n) * 10.0 ** r.integers(0, 10, n)
    ),
    "normal, a third 0": lambda r, n: r.standard_normal(n) * (r.random(n) < 2 / 3),
    "normal, rounded to 0.01": lambda r, n: r.standard_normal(n).round(2),
    "Zipf, a = 1.5": lambda r, n: np.minimum(r.zipf(1.5, n), 10**12),
    "outliers of 1e20": lambda r, n: np.where(r.random(n) < 1e-3, 1e20, r.standard_normal(n)),
}


def in_chunks(values: Values) -> da.Array:
    return da.from_array(values, chunks=-(-len(values) // CHUNKS))


# --- Splitters ------------------------------------------------------------------------------------


def spline_splitters(x: Any, n_parts: int, points: Any = 1001) -> Floats:
    """The ``n_parts - 1`` values that divide an array of any kind into about equal parts: quantiles
    of the spline through its distribution, which is exact at so many points, or at these."""
    distribution = ecdf(x, points)
    if not isinstance(distribution, EmpiricalDistribution):
        distribution = distribution.compute()
    result: Floats = distribution.quantile(shares_of(n_parts))
    return result


def shares_of(n_parts: int) -> Floats:
    return np.arange(1, n_parts) / n_parts


def sample_of(values: Values, size: int) -> Values:
    return np.random.default_rng(7).choice(values, size)


def points_of(sample: Values, k: int = 1001) -> Any:
    """Values at which to count all data: evenly spaced in a sample."""
    return quantile(sample, np.linspace(0, 1, k), method="inverted_cdf")


def exact_splitters(x: Any, n_parts: int) -> Any:
    result = quantile(x, shares_of(n_parts), method="inverted_cdf")
    return result.compute() if isinstance(result, da.Array) else result


def balance(ordered: Values, splitters: Any) -> float:
    """The size of the largest part, of the mean; elements that equal a splitter are before it."""
    borders = ordered.searchsorted(np.asarray(splitters, np.float64), "right")
    sizes = np.diff(borders, prepend=0, append=len(ordered))
    return float(sizes.max() * len(sizes) / len(ordered))


# --- Errors ---------------------------------------------------------------------------------------


def error_found(distribution: EmpiricalDistribution, ordered: Values) -> float:
    """The largest difference from the exact distribution, at elements and just below them."""
    at = ordered[:: max(len(ordered) // LOOKED_AT, 1)].astype(np.float64)
    worst = 0.0
    for z in (at, np.nextafter(at, -np.inf)):
        exact = ordered.searchsorted(z, "right") / len(ordered)
        worst = max(worst, float(np.abs(distribution.cdf(z) - exact).max()))
    return worst


def share(value: float) -> str:
    return f"{value:.2g}" if value else "0"


def errors(values: Values, arguments: Any) -> Iterator[str]:
    ordered = np.sort(values)
    for k in arguments.points:
        distribution = ecdf(values, k)
        result, stated = error_found(distribution, ordered), distribution.max_error
        if result > stated + 2**-52:
            raise SystemExit(f"the error is {result} of {k} points, and {stated} was stated")
        yield share(result)
        yield share(stated)


def balances(values: Values, arguments: Any) -> Iterator[str]:
    ordered, parts = np.sort(values), arguments.parts
    for k in arguments.points:
        yield f"{balance(ordered, spline_splitters(values, parts, k)):.3f}"
    for size in arguments.samples:
        drawn = sample_of(values, size)
        yield f"{balance(ordered, spline_splitters(values, parts, points_of(drawn))):.3f}"
        yield f"{balance(ordered, spline_splitters(drawn, parts)):.3f}"
        yield f"{balance(ordered, exact_splitters(drawn, parts)):.3f}"
    yield f"{balance(ordered, exact_splitters(ordered, parts)):.3f}"


# --- Times ----------------------------------------------------------------------------------------


def times(values: Values, arguments: Any) -> Iterator[str]:
    """Medians, in turns."""
    x, points = in_chunks(values), arguments.points
    calls: dict[str, Callable[[], Any]] = {}
    for k in points:
        calls[f"ecdf {k}"] = lambda k=k: ecdf(x, k).compute()  # type: ignore[misc]
        calls[f"quantile {k}"] = lambda k=k: quantile(x, np.linspace(0, 1, k)).compute()  # type: ignore[misc]
    given = np.linspace(values.min(), values.max(), 1001).astype(values.dtype)
    calls["at values"] = lambda: ecdf(x, given).compute()
    drawn = sample_of(values, arguments.samples[0])
    calls["by sample"] = lambda: spline_splitters(x, arguments.parts, points_of(drawn))
    calls["splitters"] = partial(exact_splitters, x, arguments.parts)
    taken: dict[str, list[float]] = {call: [] for call in calls}
    for turn in range(arguments.repeat + 1):
        for call, function in calls.items():
            begin = time.perf_counter()
            function()
            if turn:  # the first one may compile
                taken[call].append(time.perf_counter() - begin)
    middle = {call: statistics.median(runs) for call, runs in taken.items()}
    for k in points:
        yield rounded(middle[f"ecdf {k}"])
        yield f"{middle[f'ecdf {k}'] / middle[f'quantile {k}']:.2f}"
    yield rounded(middle["at values"])
    yield rounded(middle["splitters"])
    yield rounded(middle["by sample"])


def heads(points: Sequence[int], arguments: Any) -> tuple[list[str], list[str], list[str]]:
    of_errors, of_times = ["data"], ["data"]
    for k in points:
        of_errors += [f"{k:,} points", "stated"]
        of_times += [f"`ecdf(x, {k})`, s", "of as many quantiles"]
    of_balances = ["data", *(f"`ecdf(x, {k})`" for k in points)]
    for size in arguments.samples:
        of_balances += [f"`ecdf` at 1,001 quantiles of {size:,}"]
        of_balances += [f"`ecdf` of these {size:,}", f"quantiles of these {size:,}"]
    of_times += ["`ecdf` at 1,001 values, s", f"{arguments.parts - 1} exact splitters, s"]
    of_times += [f"by `ecdf` at 1,001 quantiles of {arguments.samples[0]:,}, s"]
    return of_errors, [*of_balances, "exact"], of_times


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    add = parser.add_argument
    add("--elements", type=int, default=10_000_000, help="1e7")
    add("--data", nargs="+", choices=DATA, default=list(DATA), metavar="NAME")
    add("--points", nargs="+", type=int, default=[101, 1001, 10_001], help="101 1001 10001")
    add("--parts", type=int, default=64, help="64")
    add("--samples", nargs="+", type=int, default=[10_000, 100_000], help="1e4 1e5")
    add("--repeat", type=int, default=3, help="of times; 3")
    options = parser.parse_args(arguments)
    points: list[int] = options.points
    say(machine())
    of_errors, of_balances, of_times = heads(points, options)
    with dask.config.set(scheduler="threads", num_workers=THREADS):
        for line, head, title in (
            (errors, of_errors, "Largest error of the cdf, of all elements"),
            (balances, of_balances, f"The largest of {options.parts} parts, of the mean"),
            (times, of_times, "Times"),
        ):
            print(f"{title}\n")
            say(iter([*table(head, [])][:-1]))
            for name in options.data:
                values = DATA[name](np.random.default_rng(2013), options.elements)
                print(f"| {' | '.join([name, *line(values, options)])} |", flush=True)
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
