"""Parts of a search for nearest rows, lazy or not: the search, its answers, and checks of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from dask_gpuselect.arrays import gpu_of, in_kind, is_kind, namespace, numpy_dtype
from dask_gpuselect.engine import settings, threads
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.nearest import Nearest

DISTANCE_LIMIT, DISTANCE_LIMIT_OF_GPUS = "64 MiB", "512 MiB"
"""Bytes of one tile of distances, if the config value ``dask_gpuselect.distance-limit`` is None. A
GPU takes milliseconds for a tile of any size: for 1e6 rows and 1,000 queries, tiles of 64 MiB took
five times as long as those of 1 GiB."""


def distance_limit(kind: Any) -> int:
    """Return how many bytes a tile of distances may have; at least one distance."""
    chosen = DISTANCE_LIMIT if gpu_of(kind) is None else DISTANCE_LIMIT_OF_GPUS
    return max(8, settings.n_bytes("distance-limit", chosen))


@dataclass(frozen=True)
class Answer:
    """An answer that is made of the nearest rows.

    Parameters
    ----------
    function : callable
        ``Nearest, *known -> ndarray``.
    dtype : dtype
        Dtype of its result.
    per_query : tuple of int
        The shape of the answer for each query.
    in_place : bool
        True if `function` takes any `NearestRows` and nothing else, and its result is on their
        device.
    """

    function: Callable[..., Any]
    dtype: np.dtype[Any]
    per_query: tuple[int, ...]
    in_place: bool = False

    @classmethod
    def distances(cls, k: int) -> Answer:
        """Return the answer with distances."""
        return cls(attrgetter("distances"), np.dtype(np.float64), (k,), in_place=True)

    @classmethod
    def indices(cls, k: int) -> Answer:
        """Return the answer with row numbers."""
        return cls(attrgetter("index"), np.dtype(np.int64), (k,), in_place=True)


def answer_in_kind(
    function: Callable[..., Any], dtype: np.dtype[Any], kind: Any, nearest: Nearest, *known: Any
) -> Any:
    """Compute an answer on the host, and convert it to the kind of the rows' chunks."""
    return in_kind(np.ascontiguousarray(function(nearest, *known), dtype), kind)


@dataclass(frozen=True)
class Search:
    """A search for the nearest rows of some queries.

    Parameters
    ----------
    X, Q : arrays of `as_rows`
        The rows, and the queries.
    k : int
        Number of neighbours.
    leave_out : bool
        True if `Q` is `X`, and no row is its own neighbour.
    """

    X: Any
    Q: Any
    k: int
    leave_out: bool = False

    @property
    def is_lazy(self) -> bool:
        return isinstance(self.X, DaskArray) or isinstance(self.Q, DaskArray)

    @property
    def kind(self) -> Any:
        """An array of the kind of the rows' chunks."""
        return self.X._meta if isinstance(self.X, DaskArray) else self.X[:0, :]

    @property
    def tile_elements(self) -> int:
        """Largest number of distances in memory at a time."""
        return distance_limit(self.kind) // 8

    def kind_of(self, answer: Answer) -> Any:
        """Return an array of the kind of an answer; strings are NumPy's always."""
        return self.kind if answer.dtype.kind in "biuf" else np.empty(0)

    @property
    def pieces(self) -> list[Any]:
        """The rows of a plain array, in views that threads share."""
        n_queries = 0 if math.isnan(self.Q.shape[0]) else self.Q.shape[0]
        work = n_queries * math.prod(self.X.shape)
        n, n_threads = self.X.shape[0], threads.threads_for(self.X, work, "products")
        size = max(1, -(-n // n_threads))
        return [self.X[start : start + size, ...] for start in range(0, max(1, n), size)]

    @property
    def n_wanted(self) -> int:
        """Number of rows to find: one more if a row is not its own neighbour."""
        return self.k + self.leave_out


# --- Checks ---------------------------------------------------------------------------------------


def check_k(k: int, n: float, n_queries: float) -> None:
    """Raise, in scikit-learn's words, if there are fewer than k rows.

    An unknown number of rows is not checked.
    """
    if k > n:
        raise ValueError(
            f"Expected n_neighbors <= n_samples_fit, but n_neighbors = {k}, "
            f"n_samples_fit = {n}, n_samples = {n_queries}: there are {n} rows to search"
        )


def check_k_of_others(k: int, n: float) -> None:
    """Raise if there are not more than k rows, because no row is its own neighbour."""
    if k >= n:
        raise ValueError(
            f"Expected n_neighbors < n_samples_fit, but n_neighbors = {k}, "
            f"n_samples_fit = {n}, n_samples = {n}: no row is its own neighbour"
        )


def check_finite(place: tuple[int, ...] | None = None, **arrays: Any) -> None:
    """Raise, in scikit-learn's words, for NaN and infinity in arrays, by their names."""
    floats = {name: a for name, a in arrays.items() if is_kind(a, "real floating")}
    with np.errstate(over="ignore", invalid="ignore"):
        # One read without a mask: elements are searched only if the sum is not finite. All sums are
        # started before the first one is awaited.
        sums = [namespace(a).sum(a) for a in floats.values()]
        for (name, a), total in zip(floats.items(), sums, strict=True):
            if not math.isfinite(float(total)):
                _check_finite(a, name, "" if place is None else f", in chunk {place}")


def _check_finite(a: Any, name: str, where: str) -> None:
    """Raise for NaN and infinity in an array."""
    xp = namespace(a)
    if bool(xp.all(xp.isfinite(a))):
        return
    if bool(xp.any(xp.isnan(a))):
        raise ValueError(f"Input {name} contains NaN{where}: leave out these rows")
    raise ValueError(
        f"Input {name} contains infinity or a value too large for {numpy_dtype(a)}{where}: leave "
        "out these rows"
    )
