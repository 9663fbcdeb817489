"""A search for nearest rows: lazily, in one load for any number of queries, or eagerly.

::

    queries ──> gathered ─┐
                          ├──> nearest rows of each chunk ──merge──> nearest ──> answers
    x ──private copy──────┘
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import gpu_of, in_kind, is_kind, namespace, numpy_dtype, to_host, usual
from dask_gpuselect.engine import settings, threads
from dask_gpuselect.engine.graphs import each_chunk, in_one_place, reduced
from dask_gpuselect.engine.marks import KnownChunks, changed, marks_of
from dask_gpuselect.engine.source import DaskArray, Task, TaskRef, extended, merged, private_copy
from dask_gpuselect.maths.nearest import Nearest
from dask_gpuselect.quiet import quietly

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
        True if `function` takes any nearest rows and nothing else, and its result is on their
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


def _answer_in_kind(
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


def answers(search: Search, wanted: Sequence[Answer], *known: NDArray[Any]) -> list[Any]:
    """Return arrays with a row for each query, made of its nearest rows and known arrays."""
    if search.is_lazy:
        needs = [_nearest(search), *(_as_dask([array]) for array in known)]
        return [_answer(each, search, needs) for each in wanted]
    pieces, k, is_same = search.pieces, search.n_wanted, search.leave_out
    parts = threads.each(partial(_nearest_now, search=search), pieces, len(pieces))
    is_there = len(parts) == 1 and kernels.is_on_device(parts[0].index) and not is_same
    if is_there and all(each.in_place for each in wanted):
        return [each.function(parts[0]) for each in wanted]
    nearest = _finish([part.on_host() for part in parts], k=k, is_same=is_same)
    return [
        _answer_in_kind(each.function, each.dtype, search.kind_of(each), nearest, *known)
        for each in wanted
    ]


def _nearest_now(piece: Any, search: Search) -> Any:
    """Find the nearest rows among a piece of plain ones. Several threads share NumPy arrays."""
    check_finite(X=piece, Q=search.Q)
    how = search.n_wanted, search.tile_elements
    return kernels.distances.nearest_in_place(piece, search.Q, *how)


def _nearest(search: Search) -> DaskArray:
    """Return one task that finds the nearest rows among all.

    The copy of the source has the same name for any queries. So those that are computed together
    share the load.
    """
    x, q = search.X, search.Q
    x = x if isinstance(x, DaskArray) else _as_dask(search.pieces)
    q = q if isinstance(q, DaskArray) else _as_dask([q])
    label, k = "neighbors", search.n_wanted
    x, q = private_copy(x, "rows of neighbors"), private_copy(q, "queries of neighbors")
    rows = each_chunk(_query_rows, f"{label}-query-rows", [q])
    merge = partial(KnownChunks.merge, np.concatenate)
    queries = in_one_place([rows], merge, f"{label}-queries")
    how: dict[str, Any] = {"k": k, "is_same": search.leave_out}
    nearest = each_chunk(
        _nearest_of_chunk,
        f"{label}-chunk",
        [x],
        [queries],
        block_ids=True,
        limit=search.tile_elements,
        **how,
    )
    return reduced(nearest, partial(Nearest.merge, k=k), _finish, label, **how)


def _answer(wanted: Answer, search: Search, needs: Sequence[DaskArray]) -> DaskArray:
    """Return the lazy array of one answer."""
    shape = (search.Q.shape[0], *wanted.per_query)
    kind = search.kind_of(wanted)
    meta = _meta(kind, len(shape), wanted.dtype)
    names = [array.name for array in needs]
    how = (wanted.function, wanted.dtype)
    name = f"neighbors-answer-{tokenize(*how, shape, *names)}"
    key: Any = (name, *(0,) * len(shape))
    references = [TaskRef((array.name, *(0,) * array.ndim)) for array in needs]
    tasks = {key: Task(key, quietly(_answer_in_kind), *how, kind, *references)}
    graph = extended(merged(*needs), name, tasks, set(names))
    return DaskArray(graph, name, tuple((n,) for n in shape), meta=meta)


def _as_dask(pieces: Sequence[Any]) -> DaskArray:
    """Return a plain array, in pieces of rows, as a dask array.

    Its name follows from its content, which is read for that.
    """
    first = pieces[0]
    name = f"neighbors-data-{tokenize(*pieces)}"
    layer = {(name, i, *(0,) * (first.ndim - 1)): piece for i, piece in enumerate(pieces)}
    chunks = (tuple(piece.shape[0] for piece in pieces), *((n,) for n in first.shape[1:]))
    return DaskArray(layer, name, chunks, meta=_meta(first, first.ndim, numpy_dtype(first)))


def _meta(like: Any, ndim: int, dtype: np.dtype[Any]) -> Any:
    """Return dask's meta of chunks; of kinds other than NumPy's and CuPy's dask takes none."""
    return meta_from_array(usual(like[:0]), ndim=ndim, dtype=dtype)


def _query_rows(chunk: Any) -> KnownChunks:
    """Copy a chunk of queries to the host, as float64."""
    host = to_host(chunk)
    check_finite(Q=host)
    return KnownChunks(host.astype(np.float64, copy=False), marks_of([chunk], ordered=True))


def _nearest_of_chunk(
    chunk: Any,
    known_queries: KnownChunks,
    place: tuple[int, ...],
    *,
    k: int,
    limit: int,
    is_same: bool,
) -> Nearest:
    """Find the nearest rows of all queries in a chunk of X.

    With `is_same`, the queries are X, and the chunk must equal the chunk of queries at its place.
    """
    queries: NDArray[np.float64] = known_queries.value
    if is_same and known_queries.marks[int(place[0])] != marks_of([chunk], ordered=True)[0]:
        raise changed(place)
    check_finite(tuple(map(int, place)), X=chunk)
    nearest: Nearest = kernels.distances.nearest(chunk, queries, k, limit)
    return nearest


def _finish(parts: list[Nearest], *, k: int, is_same: bool) -> Nearest:
    """Merge the nearest rows of all chunks; without each row itself if the queries are X."""
    nearest = parts[0] if len(parts) == 1 else Nearest.merge(parts, k)
    if is_same:
        check_k(k - 1, nearest.n_rows)
        return nearest.without_themselves()
    check_k(k, nearest.n_rows, len(nearest.index))
    return nearest


# --- Checks ---------------------------------------------------------------------------------------


def check_k(k: int, n: float, n_queries: float | None = None) -> None:
    """Raise, in scikit-learn's words, if there are fewer than k rows for each query.

    Without a number of queries, these are the rows, none of which is its own neighbour. An unknown
    number of rows is not checked.
    """
    relation, reason = "<=", f"there are {n} rows to search"
    if n_queries is None:
        relation, reason, n_queries = "<", "no row is its own neighbour", n
    if k > n or (k == n and relation == "<"):
        raise ValueError(
            f"Expected n_neighbors {relation} n_samples_fit, but n_neighbors = {k}, "
            f"n_samples_fit = {n}, n_samples = {n_queries}: {reason}"
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
