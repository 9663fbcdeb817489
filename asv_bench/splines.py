"""How near monotone splines come to smooth functions, and what they cost, beside SciPy's
PchipInterpolator; prints Markdown.

    python asv_bench/splines.py             errors, and times on NumPy arrays
    python asv_bench/splines.py --gpu       times on CuPy arrays, with SciPy's on the host

The rational spline is given the true slopes. Errors are the largest of 20,001 places, and those of
the derivative beside them. Points are equally far apart, or at random places. The program ends with
1 if a spline is not monotone, or not at its points.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from compare import machine, rounded, say, table
from numpy.typing import NDArray
from scipy import special, stats
from scipy.interpolate import PchipInterpolator

from dask_gpuselect.distribution import MonotoneQuadraticSpline, MonotoneRationalSpline

Floats = NDArray[np.float64]
NAMES = ("quadratic", "rational", "PCHIP")


class Function(NamedTuple):
    value: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]
    low: float
    high: float


def of_distribution(distribution: Any, low: float, high: float) -> Function:
    return Function(distribution.cdf, distribution.pdf, low, high)


FUNCTIONS: Mapping[str, Function] = {
    "normal cdf": of_distribution(stats.norm(), -4, 4),
    "lognormal cdf": of_distribution(stats.lognorm(1), 0, 8),
    "cdf of two normals": Function(
        lambda x: (special.ndtr(x) + special.ndtr(8 * (x - 4))) / 2,
        lambda x: (stats.norm.pdf(x) + 8 * stats.norm.pdf(8 * (x - 4))) / 2,
        -4,
        6,
    ),
    "exp": Function(np.exp, np.exp, 0, 3),
    "steep logistic": Function(
        lambda x: special.expit(40 * x),
        lambda x: 40 * special.expit(40 * x) * special.expit(-40 * x),
        -1,
        1,
    ),
    "cube root": Function(np.cbrt, lambda x: np.cbrt(x) / (3 * x), 0.01, 1),
}


def splines(x: Floats, y: Floats, slopes: Floats) -> dict[str, Any]:
    """By name."""
    ours = (MonotoneQuadraticSpline(x, y), MonotoneRationalSpline(x, y, slopes))
    return dict(zip(NAMES, (*ours, PchipInterpolator(x, y)), strict=True))


def errors(function: Function, n: int, places: str, wrong: list[str]) -> list[str]:
    """A value and a derivative for each spline."""
    x = np.linspace(function.low, function.high, n)
    if places == "random":
        inner = np.random.default_rng(n).uniform(function.low, function.high, n - 2)
        x = np.concatenate([x[:1], np.sort(inner), x[-1:]])
    y = function.value(x)
    z = np.linspace(function.low, function.high, 20_001)
    cells = []
    for name, spline in splines(x, y, function.slope(x)).items():
        values = spline(z)
        if name != "PCHIP" and ((np.diff(values) < 0).any() or (spline(x) != y).any()):
            wrong.append(f"{name}, {n} points: not monotone, or not at its points")
        cells.append(f"{np.abs(values - function.value(z)).max():.2g}")
        cells.append(f"{np.abs(spline(z, 1) - function.slope(z)).max():.2g}")
    return cells


def seconds(call: Callable[[], Any], repeat: int, wait: Callable[[], None]) -> float:
    times = []
    for _ in range(repeat + 1):
        begin = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def cost(n: int, n_places: int, repeat: int, gpu: bool) -> list[str]:
    """Milliseconds to make each spline of n points and to evaluate and invert it, with SciPy's on
    the host."""
    xp: Any = np
    wait: Callable[[], None] = lambda: None  # noqa: E731
    if gpu:
        import cupy as xp  # type: ignore[no-redef]

        wait = xp.cuda.get_current_stream().synchronize
    rng = np.random.default_rng(n)
    x, y = np.sort(rng.normal(size=n)), np.sort(rng.random(n))
    z, v = rng.normal(size=n_places), rng.random(n_places)
    on_device = [xp.asarray(each) for each in (x, y, special.ndtr(x) * 0 + 1)]
    places, values = xp.asarray(z), xp.asarray(v)
    times: list[float] = []
    for make, arrays in ((MonotoneQuadraticSpline, 2), (MonotoneRationalSpline, 3)):
        given = on_device[:arrays]
        spline: Any = make(*given)
        times.append(seconds(lambda m=make, g=given: m(*g), repeat, wait))  # type: ignore[misc]
        times.append(seconds(lambda s=spline: s(places), repeat, wait))  # type: ignore[misc]
        times.append(seconds(lambda s=spline: s.inverse(values), repeat, wait))  # type: ignore[misc]
    pchip = PchipInterpolator(x, y)
    times.append(seconds(lambda: PchipInterpolator(x, y), repeat, wait))
    times.append(seconds(lambda: pchip(z), repeat, wait))
    return [f"{n:,}", f"{n_places:,}", *(rounded(1e3 * each) for each in times)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    add = parser.add_argument
    add("--gpu", action="store_true", help="on one CUDA device")
    add("--points", type=int, nargs="+", default=[10, 30, 100, 300, 1000], help="of error tables")
    add("--sizes", type=int, nargs="+", default=[1000, 1_000_000], help="points that are timed")
    add("--places", type=int, default=1_000_000, help="at which a spline is evaluated; 1e6")
    add("--repeat", type=int, default=5, help="repetitions; 5")
    parsed = parser.parse_args(arguments)
    wrong: list[str] = []
    say(machine("scipy"))
    if not parsed.gpu:
        head = [cell for name in NAMES for cell in (name, f"{name}'")]
        for places in ("even", "random"):
            print(f"Errors, points at {places} places\n")
            rows = [
                [name, str(n), *errors(function, n, places, wrong)]
                for name, function in FUNCTIONS.items()
                for n in parsed.points
            ]
            say(table(["function", "points", *head], rows))
    print("Milliseconds\n")
    head = [f"{name}: {what}" for name in NAMES[:2] for what in ("make", "call", "inverse")]
    rows = [cost(n, parsed.places, parsed.repeat, parsed.gpu) for n in parsed.sizes]
    say(table(["points", "places", *head, "PCHIP: make", "PCHIP: call"], rows))
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
