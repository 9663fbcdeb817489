"""What an answer costs: its time beside that of normal data, and numbers that are the same in every
run: loads, elements that kernels look at, and elements that they hand on."""

from __future__ import annotations

import gc
import inspect
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from types import SimpleNamespace
from typing import Any
from unittest import mock

import dask
import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.kernels.companions import values_of
from tests.matrix import cases
from tests.matrix.recipes import N_GROUPS, Made, Recipe

# --- What is asked --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A question, and how its data lie.

    Parameters
    ----------
    question : str
        Of the matrix.
    lanes : int
        Of two dimensions there are so many columns; 0 of one dimension.
    needs : tuple of str
        What goes with the data: "weights", "labels" or "where".
    how : dict
        Arguments.
    slots : str
        Of the matrix.
    passes : bool
        Whether columns are larger than their limit.
    groups : int
        How many groups the labels make.
    """

    question: str
    lanes: int = 0
    needs: tuple[str, ...] = ()
    how: Mapping[str, Any] = field(default_factory=dict)
    slots: str = "all"
    passes: bool = False
    groups: int = N_GROUPS


ALONG = "first axis"
QUARTILES: Mapping[str, Any] = {"q": (0.25, 0.5, 0.75)}
SHARES = QUARTILES | {"method": "inverted_cdf"}
LANES = {
    "lanes": ("nanquantile", QUARTILES),
    "lane boxes": ("describe_boxplot", {}),
}
WEIGHTED_LANES = {
    "weighted lanes": ("nanquantile", SHARES),
    "weighted lane boxes": ("describe_boxplot", {}),
}
SIZES = {"few ": 3, "": 64, "many ": 4000}
W, M, G, LAZY = ("weights",), ("where",), ("labels",), "groups, lazy labels"
QUESTIONS: dict[str, Asked] = {
    "quartiles": Asked("quantile", how=QUARTILES),
    "percentiles": Asked("nanquantile", how={"q": np.linspace(0, 1, 101)}),
    "box": Asked("describe_boxplot"),
    "mad": Asked("mad"),
    "weights": Asked("nanquantile", 0, W, SHARES),
    "linear weights": Asked("nanquantile", 0, W, QUARTILES | {"method": "linear"}),
    "weighted box": Asked("describe_boxplot", 0, W),
    **{
        f"{size}{name}": Asked(question, lanes, W, how, ALONG)
        for size, lanes in SIZES.items()
        for name, (question, how) in WEIGHTED_LANES.items()
    },
    "masked quartiles": Asked("nanquantile", 0, M, QUARTILES),
    "masked box": Asked("describe_boxplot", 0, M),
    "masked mad": Asked("mad", 0, M),
    "masked lanes": Asked("nanquantile", 64, M, QUARTILES, ALONG),
    "group boxes": Asked("describe_boxplot", 0, G, slots=LAZY),
    "many group boxes": Asked("describe_boxplot", 0, G, slots=LAZY, groups=1000),
    **{
        f"{size}{name}": Asked(question, lanes, (), how, ALONG)
        for size, lanes in SIZES.items()
        for name, (question, how) in LANES.items()
    },
    "lane box passes": Asked("describe_boxplot", 64, (), {}, ALONG, passes=True),
    "short lanes": Asked("nanquantile", 32, (), QUARTILES, "last axis"),
    "short lane boxes": Asked("describe_boxplot", 32, (), {}, "last axis"),
}
PLANS = {"lazy": "tasks", "persisted": "memory", "plain": "plain"}
"""Homes of the matrix: chunks that are read, chunks in memory, and a NumPy array."""
LIMITS = {"lazy": 2.0, "persisted": 3.0, "plain": 3.0}
"""So many times as long as normal data may any data take."""


def prepared(
    query: Asked, plan: str, made: Made, sizes: tuple[int, ...] | None = None
) -> tuple[Callable[[], Any], cases.Counted | None]:
    """Prepare a call that asks and computes, and the source that counts loads if it is lazy; in
    chunks of these sizes, or in their own."""
    sizes, n = sizes or made.at.sizes, query.lanes
    arrays = [made.values, *(made.beside(name, query.groups) for name in query.needs)]
    chunks: tuple[tuple[int, ...], ...] = (sizes,)
    if n:  # as many rows as there are
        arrays = [a[: len(a) // n * n].reshape(-1, n) for a in arrays]
        chunks = (tuple(np.diff(np.cumsum(sizes) // n, prepend=0).tolist()), (n,))
    values, *others = arrays
    row = {"question": query.question, "slots": query.slots, "home": PLANS[plan]}
    row |= {"cuts": "even", "companion cuts": "alike"}
    beside = dict(zip(query.needs, others, strict=True))
    case = cases.Case(row, values, chunks, query.how, beside)
    lazy = cases.lazily(case)
    config = {"scheduler": "sync", "num_workers": 1}
    if query.passes:
        config["dask_gpuselect.column-limit"] = max(values.nbytes // 8, 1 << 16)
        config["dask_gpuselect.scratch-directory"] = False
    x, its = (values, beside) if plan == "plain" else (lazy.values, lazy.beside)

    def run() -> Any:
        with dask.config.set(config):
            return dask.compute(cases.ask(case, x, its))

    return run, lazy.sources.get("values")  # type: ignore[return-value]


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
                result = kernel(*args, **how)
            finally:
                depth -= 1
            if not depth:
                work.looks += sum(map(_elements, args[:1])) / n
                work.handed += _bytes(result) / (n * itemsize)
            return result

        return wrapped

    def is_kernel(each: Any) -> bool:
        return inspect.isfunction(each) and each.__module__ == kernels.__name__

    of_purposes = [each for each in vars(kernels).values() if isinstance(each, SimpleNamespace)]
    with ExitStack() as stack:
        for owner in (kernels, *of_purposes):
            own = {name: noting(each) for name, each in vars(owner).items() if is_kernel(each)}
            stack.enter_context(mock.patch.multiple(owner, **own))
        yield work


def work_of(query: Asked, plan: str, made: Made) -> Work:
    """What an answer costs, by numbers that are the same in every run."""
    run, source = prepared(query, plan, made)
    with counted(max(made.values.size, 1), made.values.itemsize) as work:
        run()
    if source is not None:
        work.loads = n_loaded(source) / max(made.values.size, 1)
    return work


def n_loaded(source: cases.Counted) -> int:
    """Count the elements that were read."""
    return sum(n * math.prod(b - a for a, b in place) for place, n in source.counts.items())


# --- Time -----------------------------------------------------------------------------------------


def seconds_in_turns(runs: list[Callable[[], Any]], repeat: int) -> list[list[float]]:
    """Processor seconds of each, taking turns."""
    results: list[list[float]] = [[] for _ in runs]
    for _ in range(repeat):
        for run, times in zip(runs, results, strict=True):
            if repeat > 1:
                gc.collect()
            begin = time.process_time()
            run()
            times.append(time.process_time() - begin)
    return results


def time_ratio(
    query: Asked, plan: str, recipe: Recipe, n: int, n_chunks: int, repeat: int = 1
) -> float:
    """How many times as long hostile data take as normal data."""
    runs = [prepared(query, plan, each.made(n, n_chunks))[0] for each in (recipe, recipe.normal)]
    hostile, normal = map(statistics.median, seconds_in_turns(runs, repeat))
    return hostile / normal
