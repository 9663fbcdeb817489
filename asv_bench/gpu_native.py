"""Cells of one GPU that have CUDA kernels, and what they save: prints the table of `docs/gpu.md`.

    python asv_bench/gpu_native.py

A cell is a question about all elements, along an axis or by groups, with a mask or weights or
neither. Each is asked of a plain CuPy array twice: as it is, and with every kernel replaced by the
reference in the array API, which is the floor of a cell without kernels of its own. One read is
`x.sum()` in the same run. Times are medians of a few calls by the wall, after a first one.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from gpu_cells import evenly, normal, seconds

import dask_gpuselect as dg
from dask_gpuselect import groups, robust
from dask_gpuselect.kernels.registry import backend_of

BITS = 24
MAPS = 256  # along the reduced axis
ZONES = 18

QUESTIONS = {
    "median": lambda of: partial(of.quantile, 0.5),
    "9 quantiles": lambda of: partial(of.quantile, evenly(9)),
    "box plot": lambda of: of.describe_boxplot,
    "mad": lambda of: of.mad,
    "256 bins": lambda of: of.bins,
}
"""Questions, by name: functions from a `Data` to what is timed."""

BESIDE = {"nothing": {}, "a mask": {"where": "mask"}, "weights": {"weights": "weights"}}
"""Companions of the elements, by name: keyword arguments, and the arrays of `Data`."""


class Data:
    """An array and what goes with it, asked about all elements, along an axis or by groups."""

    def __init__(self, slots: str, beside: str) -> None:
        import cupy as cp

        self.slots = slots
        shape = (MAPS, (1 << BITS) // MAPS) if slots == "along an axis" else (1 << BITS,)
        self.x = normal(*shape)
        rng = cp.random.default_rng(1)
        each = {"mask": rng.random(shape, dtype="f4") > 0.1, "weights": rng.random(shape[0])}
        self.beside: dict[str, Any] = {key: each[name] for key, name in BESIDE[beside].items()}
        self.how: dict[str, Any] = {"axis": 0} if slots == "along an axis" else {}
        self.method = {"method": "inverted_cdf"} if beside == "weights" else {}
        if slots == "by groups":
            zones = cp.random.randint(0, ZONES, 1 << BITS).astype("i2")
            self.grouped = groups.groupby(self.x, zones, groups=range(ZONES))

    def _asked(self, plain: Callable[..., Any], name: str, *args: Any, **how: Any) -> Any:
        how |= self.beside
        if self.slots == "by groups":
            return getattr(self.grouped, name)(*args, **how)
        return plain(self.x, *args, **how, **self.how)

    def quantile(self, q: Any) -> Any:
        return self._asked(dg.quantile, "quantile", q, **self.method)

    def describe_boxplot(self) -> Any:
        return self._asked(dg.describe_boxplot, "describe_boxplot", **self.method)

    def mad(self) -> Any:
        return self._asked(robust.mad, "mad")

    def bins(self) -> Any:
        return self._asked(dg.quantile_bins, "quantile_bins", 256)


@contextmanager
def floor() -> Iterator[None]:
    """Replace all CUDA kernels by the reference."""
    cuda, reference = backend_of("cuda"), backend_of("reference")
    kernels = vars(cuda).copy()
    vars(cuda).clear()
    vars(cuda).update(vars(reference))
    try:
        yield
    finally:
        vars(cuda).clear()
        vars(cuda).update(kernels)


def started(call: Callable[[], Any]) -> set[str]:
    """The CUDA sources whose kernels a call starts."""
    from dask_gpuselect.kernels.cuda import launch, source

    names: set[str] = set()
    prepared = launch._prepared

    def noted(dtype: Any, name: str, *args: Any) -> Any:
        file, *_ = source.kernels()[name]
        names.add(file.removesuffix(".cu"))
        return prepared(dtype, name, *args)

    launch._prepared = noted  # type: ignore[assignment]
    try:
        call()
    finally:
        launch._prepared = prepared
    return names


def timed(call: Callable[[], Any], sync: Callable[[], None]) -> tuple[float | None, str]:
    """The median time of a call, or None and why there is no answer. Long ones are called twice."""
    try:
        return seconds(call, sync, long=0.5)[0], ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}".partition("\n")[0][:60]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="number of the first row, from 0")
    first = parser.parse_args().first
    import cupy as cp

    warnings.simplefilter("ignore")
    sync = cp.cuda.Device().synchronize
    print("| question | of | with | CUDA sources | reads | floor, reads |")
    print("|---|---|---|---|---|---|")
    of = itertools.product(("all elements", "along an axis", "by groups"), BESIDE)
    for i, (slots, beside) in enumerate(of):
        some = list(QUESTIONS.items())[max(first - i * len(QUESTIONS), 0) :]
        if not some:
            continue
        data = Data(slots, beside)
        read = seconds(data.x.sum, sync)[0]
        for name, question in some:
            call = question(data)
            own, why = timed(call, sync)
            if own is None:  # the question takes no such companion
                print(f"{name}, {slots}, {beside}: {why}", flush=True)
                continue
            used = " ".join(sorted(started(call))) or "none"
            with floor():
                slow, why = timed(call, sync)
            least = why if slow is None else f"{slow / read:,.0f}"
            row = (name, slots, beside, used, f"{own / read:,.0f}", least)
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
