"""What an answer costs: its time beside that of normal data, and numbers that are the same in every
run: loads, elements that kernels look at, and elements that they hand on."""

from __future__ import annotations

import gc
import inspect
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest import mock

import dask
import dask.array as da
import numpy as np

from dask_gpuselect import describe_boxplot, kernels, median, nanquantile, quantile, sort
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.groups import groupby
from dask_gpuselect.kernels.companions import values_of
from dask_gpuselect.robust import mad
from tests.hostile.recipes import N_GROUPS, Made, Recipe

QUARTILES = (0.25, 0.5, 0.75)

# --- What is asked --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A question, and how its data lie.

    Parameters
    ----------
    ask : callable
        Of data, and of what goes with them, or None.
    lanes : int
        Of two dimensions there are so many columns; 0 of one dimension.
    passes : bool
        Whether columns are larger than their limit.
    needs : str
        What goes with the data: "weights", "labels", "mask" or nothing.
    groups : int
        How many groups the labels make.
    """

    ask: Callable[[Any, Any], Any]
    lanes: int = 0
    passes: bool = False
    needs: str = ""
    groups: int = N_GROUPS


def _nodata(x: Any, _: Any) -> Any:
    """Elements of the value that many have, or none."""
    return nanquantile(x, QUARTILES, nodata=np.dtype(x.dtype).type(0))


LANES: Mapping[str, Callable[[Any, Any], Any]] = {
    "lanes": lambda x, _: nanquantile(x, QUARTILES, axis=0),
    "lane boxes": lambda x, _: describe_boxplot(x, axis=0),
    "lane mads": lambda x, _: mad(x, axis=0),
}
WEIGHTED_LANES: Mapping[str, Callable[[Any, Any], Any]] = {
    "weighted lanes": lambda x, w: nanquantile(
        x, QUARTILES, axis=0, weights=w, method="inverted_cdf"
    ),
    "weighted lane boxes": lambda x, w: describe_boxplot(x, axis=0, weights=w),
}
QUESTIONS: dict[str, Asked] = {
    "median": Asked(lambda x, _: median(x)),
    "quartiles": Asked(lambda x, _: quantile(x, QUARTILES)),
    "nan quartiles": Asked(lambda x, _: nanquantile(x, QUARTILES)),
    "tails": Asked(lambda x, _: nanquantile(x, [0, 1e-4, 0.01, 0.999, 1])),
    "percentiles": Asked(lambda x, _: nanquantile(x, np.linspace(0, 1, 101))),
    "box": Asked(lambda x, _: describe_boxplot(x)),
    "mad": Asked(lambda x, _: mad(x)),
    "ecdf": Asked(lambda x, _: ecdf(x, 101)),
    "sort": Asked(lambda x, _: sort(x)),
    "weights": Asked(
        lambda x, w: nanquantile(x, QUARTILES, weights=w, method="inverted_cdf"), needs="weights"
    ),
    "linear weights": Asked(
        lambda x, w: nanquantile(x, QUARTILES, weights=w, method="linear"), needs="weights"
    ),
    "weighted box": Asked(lambda x, w: describe_boxplot(x, weights=w), needs="weights"),
    "weighted groups": Asked(
        lambda x, w: groupby(x, np.arange(x.size) % N_GROUPS).nanquantile(
            QUARTILES, weights=w, method="inverted_cdf"
        ),
        needs="weights",
    ),
    **{
        f"{size}{name}": Asked(ask, lanes=lanes, needs="weights")
        for size, lanes in {"few ": 3, "": 64, "many ": 4000}.items()
        for name, ask in WEIGHTED_LANES.items()
    },
    **{
        f"{name} in passes": Asked(ask, lanes=64, passes=True, needs="weights")
        for name, ask in WEIGHTED_LANES.items()
    },
    "masked quartiles": Asked(lambda x, m: nanquantile(x, QUARTILES, where=m), needs="mask"),
    "masked box": Asked(lambda x, m: describe_boxplot(x, where=m), needs="mask"),
    "masked mad": Asked(lambda x, m: mad(x, where=m), needs="mask"),
    "masked lanes": Asked(
        lambda x, m: nanquantile(x, QUARTILES, axis=0, where=m), lanes=64, needs="mask"
    ),
    "nodata": Asked(_nodata),
    "groups": Asked(lambda x, g: groupby(x, g).median(), needs="labels"),
    "group boxes": Asked(lambda x, g: groupby(x, g).describe_boxplot(), needs="labels"),
    "two groups": Asked(lambda x, g: groupby(x, g).median(), needs="labels", groups=2),
    "many groups": Asked(lambda x, g: groupby(x, g).median(), needs="labels", groups=5000),
    "many group boxes": Asked(
        lambda x, g: groupby(x, g).describe_boxplot(), needs="labels", groups=1000
    ),
    **{name: Asked(ask, lanes=64) for name, ask in LANES.items()},
    **{f"few {name}": Asked(ask, lanes=3) for name, ask in LANES.items()},
    **{f"many {name}": Asked(ask, lanes=4000) for name, ask in LANES.items()},
    "lane passes": Asked(LANES["lanes"], lanes=64, passes=True),
    "lane tails": Asked(lambda x, _: nanquantile(x, 0.999, axis=0), lanes=64, passes=True),
    "lane box passes": Asked(LANES["lane boxes"], lanes=64, passes=True),
    "short lanes": Asked(lambda x, _: nanquantile(x, QUARTILES, axis=1), lanes=32),
    "short lane boxes": Asked(lambda x, _: describe_boxplot(x, axis=1), lanes=32),
}
PLANS = ("lazy", "persisted", "plain")
"""Chunks that are read, chunks in memory, and a NumPy array."""
LIMITS = {"lazy": 2.0, "persisted": 3.0, "plain": 3.0}
"""So many times as long as normal data may any data take."""


class Source:
    """What is read at no cost, and counts how many elements are."""

    def __init__(self, a: Any) -> None:
        self.a, self.shape, self.dtype, self.ndim = a, a.shape, a.dtype, a.ndim
        self.n_loaded = 0

    def __getitem__(self, index: Any) -> Any:
        part = self.a[index]
        self.n_loaded += part.size
        return part

    def lazy(self, chunks: Any) -> da.Array:
        meta = np.empty((0,) * self.ndim, self.dtype)
        return da.from_array(self, chunks=chunks, meta=meta)


def in_columns(a: Any, n: int) -> Any:
    """As many rows of n as there are."""
    return a[: len(a) // n * n].reshape(-1, n)


def prepared(
    asked: Asked, plan: str, made: Made, sizes: tuple[int, ...] | None = None
) -> tuple[Callable[[], Any], Source | None]:
    """What asks and computes, and the source that counts loads if it is lazy; in chunks of these
    sizes, or in their own."""
    sizes, source = sizes or made.at.sizes, None
    a, other, chunks = made.values, made.beside(asked.needs, asked.groups), (sizes,)
    if asked.lanes:
        a, other = (each if each is None else in_columns(each, asked.lanes) for each in (a, other))
        rows = np.diff(np.cumsum(sizes) // asked.lanes, prepend=0)
        chunks = (tuple(rows.tolist()), (asked.lanes,))  # type: ignore[assignment]
    if plan == "lazy":
        source = Source(a)
        x = source.lazy(chunks)
        other = None if other is None else Source(other).lazy(chunks)
    elif plan == "persisted":
        x = da.from_array(a, chunks=chunks)
        other = None if other is None else da.from_array(other, chunks=chunks)
    else:
        x = a
    limit = {"dask_gpuselect.column-limit": max(a.nbytes // 8, 1 << 16)} if asked.passes else {}

    def run() -> Any:
        with dask.config.set({"scheduler": "sync", "num_workers": 1, **limit}):
            return dask.compute(asked.ask(x, other))

    return run, source


# --- What the same run always costs ---------------------------------------------------------------


@dataclass
class Work:
    """What was done for an answer, in units of all elements.

    Parameters
    ----------
    loads : float
        Of each element, about.
    looks : float
        How often kernels look at an element.
    handed : float
        Elements that they hand on: candidates and pivots.
    """

    loads: float = 0.0
    looks: float = 0.0
    handed: float = 0.0


def _elements(value: Any) -> int:
    """In an array, or a chunk of one."""
    try:
        return int(np.size(values_of(value)))
    except (AttributeError, TypeError, ValueError):
        return 0


def _bytes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum(map(_bytes, value))
    return 0 if value is None or isinstance(value, (int, float)) else value.__sizeof__()


@contextmanager
def counted(n: int, itemsize: int) -> Iterator[Work]:
    """What kernels do meanwhile, of so many elements."""
    work, depth = Work(), 0

    def noting(kernel: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(kernel)
        def wrapped(*args: Any, **how: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                found = kernel(*args, **how)
            finally:
                depth -= 1
            if not depth:
                work.looks += sum(map(_elements, args[:1])) / n
                work.handed += _bytes(found) / (n * itemsize)
            return found

        return wrapped

    found = {
        name: noting(kernel)
        for name, kernel in vars(kernels).items()
        if inspect.isfunction(kernel)
        and kernel.__module__ == kernels.__name__
        and name[0] != "_"
        and name != "elements_of"
    }
    with mock.patch.multiple(kernels, **found):
        yield work


def work_of(asked: Asked, plan: str, made: Made) -> Work:
    """What an answer costs, by numbers that are the same in every run."""
    run, source = prepared(asked, plan, made)
    with counted(max(made.values.size, 1), made.values.itemsize) as work:
        run()
    if source is not None:
        work.loads = source.n_loaded / max(made.values.size, 1)
    return work


# --- Time -----------------------------------------------------------------------------------------


def seconds_in_turns(runs: list[Callable[[], Any]], repeat: int) -> list[list[float]]:
    """Processor seconds of each, taking turns."""
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(repeat):
        for run, times in zip(runs, found, strict=True):
            if repeat > 1:
                gc.collect()
            begin = time.process_time()
            run()
            times.append(time.process_time() - begin)
    return found


def time_ratio(
    asked: Asked, plan: str, recipe: Recipe, n: int, n_chunks: int, repeat: int = 1
) -> float:
    """How many times as long hostile data take as normal data."""
    runs = [prepared(asked, plan, each.made(n, n_chunks))[0] for each in (recipe, recipe.normal)]
    hostile, normal = map(statistics.median, seconds_in_turns(runs, repeat))
    return hostile / normal
