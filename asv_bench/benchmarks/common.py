"""What all measurements share: sizes, data, and a source that counts its reads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self, TypeVar

import dask
import dask.array as da
import numpy as np
from numpy.typing import DTypeLike, NDArray

from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.cuts import Brackets, Cuts
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.ranks import ranks

with suppress(ImportError):
    # Dask does, the first time that it computes. asv forks the processes of measurements from one
    # that has imported everything: otherwise this is most of their time.
    import distributed  # noqa: F401

Values = NDArray[Any]
Floats = NDArray[np.float64]
Function = TypeVar("Function", bound=Callable[..., Any])
Collection = TypeVar("Collection")

QUARTILES = (0.25, 0.5, 0.75)
THREADS = 2


def shrunk(size: int) -> int:
    """A size, divided by the environment variable ``BENCH_SHRINK`` where that is set."""
    return max(1, size // int(os.environ.get("BENCH_SHRINK", "1")))


def shrunk_side(side: int) -> int:
    """One of two sides that are divided both, so that the number of elements is divided by
    ``BENCH_SHRINK``."""
    return max(1, round(side / int(os.environ.get("BENCH_SHRINK", "1")) ** 0.5))


def some_q(n_q: int) -> Floats:
    """Evenly spaced shares: the median, the quartiles, ... for 1, 3, ... of them."""
    return np.arange(1, n_q + 1) / (n_q + 1)


class Seconds:
    """How times are taken: one call a sample, for the graph is new each time; a second of them, at
    least two, in one process. A machine's noise is told from a change by many runs, not by long
    ones."""

    number = 1
    rounds = 1
    repeat = (2, 7, 1.0)
    warmup_time = 0
    timeout = 600


def unit(name: str) -> Callable[[Function], Function]:
    """Tell asv what a ``track_`` benchmark counts."""

    def label(function: Function) -> Function:
        function.unit = name  # type: ignore[attr-defined]
        return function

    return label


def compute(lazy: Any, threads: int = THREADS, **options: Any) -> Any:
    """The value of a lazy array or box plot, computed on some threads of this process."""
    return lazy.compute(scheduler="threads", num_workers=threads, **options)


def optimized(lazy: Collection) -> Collection:
    """The same collection with the graph that the scheduler sees."""
    result: Collection
    (result,) = dask.optimize(lazy)
    return result


# --- Data


class Part:
    """A stretch of an array of `total` elements, and the random numbers it is made of."""

    def __init__(self, start: int, size: int, total: int) -> None:
        self.start, self.size, self.total = start, size, total
        self.rng = np.random.default_rng([2011, start])

    def normal(self) -> Floats:
        return self.rng.standard_normal(self.size)

    def uniform(self) -> Floats:
        return self.rng.random(self.size)

    def position(self) -> Floats:
        """Increasing from 0 to 1 over the whole array, in uneven steps."""
        return (np.arange(self.start, self.start + self.size) + self.uniform()) / self.total


def clustered(part: Part) -> Floats:
    """The third quartile lies behind a gap, as one of few: until it is known, the upper fence of a
    box may lie anywhere among a quarter of all elements, and a third load looks for it."""
    # Evenly spread in each stretch, so that chance does not move the quartile over the gap.
    u = part.rng.permutation((np.arange(part.size) + part.uniform()) / part.size)
    return np.where(u < 0.74999, u, np.where(u < 0.77, 10 + u, 20 + 40 * (u - 0.77)))


DISTRIBUTIONS: Mapping[str, Callable[[Part], Floats]] = {
    "normal": Part.normal,
    "lognormal": lambda part: np.exp(3 * part.normal()),
    "integers": lambda part: part.rng.integers(0, 10, part.size).astype(np.float64),
    "constant": lambda part: np.full(part.size, 3.25),
    "sorted": Part.position,
    "outliers": lambda part: np.where(part.uniform() < 0.01, 1e20, part.normal()),
    "uniform": Part.uniform,
    "trended": lambda part: part.normal() + 20 * part.position(),
    "scales": lambda part: part.normal() * 10.0 ** part.rng.integers(0, 31, part.size),
    "zipf": lambda part: np.floor(np.minimum((1 - part.uniform()) ** -2.0, 1e15)),
    "clustered": clustered,
}
"""How the elements of a stretch are distributed, and in which order they come."""

SPEED = ("normal", "lognormal", "integers", "constant", "sorted", "outliers")
"""The distributions that times are quoted for."""

WATCHED = ("normal", "integers", "sorted")
"""Those that asv measures: no ties, many, and chunks that do not overlap."""


def make(distribution: str, part: Part, dtype: DTypeLike = np.float64) -> Values:
    """The elements of a stretch; for integer dtypes scaled to fill a good part of the range."""
    values = DISTRIBUTIONS[distribution](part)
    dtype = np.dtype(dtype)
    if dtype.kind not in "iu":
        return values.astype(dtype, copy=False)
    info = np.iinfo(dtype)
    middle = (info.min + info.max + 1) // 2
    spread = float(info.max - middle) / 8
    return (np.clip(values, -7.9, 7.9) * spread + middle).astype(dtype)


def in_memory(distribution: str, size: int, dtype: DTypeLike = np.float64) -> Values:
    """An array of `size` elements, made in stretches, so that nothing else of its size is."""
    stretch = 1 << 20
    values = np.empty(size, dtype)
    for start in range(0, size, stretch):
        part = Part(start, min(stretch, size - start), size)
        values[start : start + part.size] = make(distribution, part, dtype)
    values.flags.writeable = False
    return values


# --- Sources


class Source:
    """A one-dimensional array that dask reads chunk by chunk; every load is counted.

    To dask it is like a file: what it holds is not in memory, and each of the two reads asks for
    it anew.

    Parameters
    ----------
    size, n_chunks : int
        Number of elements and, unless they are fewer, of chunks, all of one size but the last.
    dtype : dtype
        Of the elements.
    load : callable
        From the start and the stop of a stretch to its elements.
    """

    ndim = 1

    def __init__(
        self, size: int, n_chunks: int, dtype: DTypeLike, load: Callable[[int, int], Values]
    ) -> None:
        self.shape = (size,)
        self.dtype = np.dtype(dtype)
        self.chunk = -(-size // n_chunks)
        self.loads = [0] * -(-size // self.chunk)
        self._load = load
        self._lock = threading.Lock()

    @classmethod
    def of(cls, values: Values, n_chunks: int) -> Self:
        """A source whose reads cost nothing: views of an array."""
        return cls(values.size, n_chunks, values.dtype, lambda start, stop: values[start:stop])

    @classmethod
    def generated(
        cls, distribution: str, size: int, n_chunks: int, dtype: DTypeLike = np.float64
    ) -> Self:
        """A source that makes a chunk whenever it is asked for it, and keeps none."""
        return cls(
            size,
            n_chunks,
            dtype,
            lambda start, stop: make(distribution, Part(start, stop - start, size), dtype),
        )

    def __getitem__(self, key: Any) -> Values:
        (stretch,) = key if isinstance(key, tuple) else (key,)
        start, stop, _ = stretch.indices(self.shape[0])
        if start < stop:
            with self._lock:
                self.loads[start // self.chunk] += 1
        return self._load(start, stop)

    def lazy(self) -> da.Array:
        """The lazy array. Its name is random: to hash 0.8 GB would take longer than to sum it."""
        array: da.Array = da.from_array(self, chunks=self.chunk, name=False)
        return array


# --- Brackets


def even_cuts(values: Values, n_chunks: int, n_pivots: int) -> Cuts:
    """The merged cuts of chunks of equal size, at evenly spaced pivots."""
    chunks = values.reshape(n_chunks, -1)
    return Cuts.merge([reference.cuts(chunk, n_pivots) for chunk in chunks])


def find(cuts: Cuts, q: Floats) -> Brackets:
    """The brackets of some quantiles."""
    wanted = ranks(int(cuts.n_valid.sum()), q, "linear")
    return find_brackets(cuts, wanted.lower, wanted.upper)


def count_candidates(ordered: Values, brackets: Brackets) -> int:
    """How many of some sorted elements are candidates."""
    below = np.searchsorted(ordered, brackets.ends, side="left")
    upto = np.searchsorted(ordered, brackets.ends, side="right")
    inside = np.append(below, ordered.size) - np.append(0, upto)
    return int(inside[brackets.wanted].sum())
