"""The graph of nearest neighbours: one load of the data, for any number of queries.

::

    queries ──> gathered ─┐
                          ├──> nearest rows of each chunk ──merge──> nearest ──> answers
    x ──private copy──────┘
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.array.utils import meta_from_array
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import in_kind, is_cupy, is_kind, namespace, numpy_dtype, to_host
from dask_gpuselect.engine import settings, threads
from dask_gpuselect.engine.graphs import each_chunk, reduced
from dask_gpuselect.engine.marks import Seen, changed, marks_of
from dask_gpuselect.engine.source import DaskArray, extended, merged, private_copy
from dask_gpuselect.maths.nearest import Nearest
from dask_gpuselect.quiet import quiet

DISTANCE_LIMIT, DISTANCE_LIMIT_OF_GPUS = "64 MiB", "512 MiB"
"""Of one tile of distances, if the config value ``dask_gpuselect.distance-limit`` is None. A GPU
takes milliseconds for a tile, however small: of 1e6 rows and 1,000 queries, tiles of 64 MiB took
five times as long as those of 1 GiB."""


def distance_limit(kind: Any) -> int:
    """How many bytes a tile of distances may have; at least one distance."""
    chosen = DISTANCE_LIMIT_OF_GPUS if is_cupy(kind) else DISTANCE_LIMIT
    return max(8, settings.n_bytes("distance-limit", chosen))


@dataclass(frozen=True)
class Answer:
    """What is made of the nearest rows.

    Parameters
    ----------
    function : callable
        ``Nearest, *known -> ndarray``.
    dtype : dtype
        Of what it returns.
    per_query : tuple of int
        The shape of the answer for each query.
    """

    function: Callable[..., Any]
    dtype: np.dtype[Any]
    per_query: tuple[int, ...]


def distances_of(found: Nearest) -> NDArray[np.float64]:
    return found.distances


def indices_of(found: Nearest) -> NDArray[np.int64]:
    return found.index


class NeighborSearch:
    """The nearest rows of some queries, and answers made of them.

    Parameters
    ----------
    X, Q : arrays of `as_rows`
    k : int
    leave_out : bool
        Whether `Q` is `X`, and no row is its own neighbour.
    """

    def __init__(self, X: Any, Q: Any, k: int, *, leave_out: bool = False) -> None:
        self.is_lazy = isinstance(X, DaskArray) or isinstance(Q, DaskArray)
        self.n_queries, self.k, self.leave_out = Q.shape[0], k, leave_out
        self.kind = X._meta if isinstance(X, DaskArray) else X[:0, :]
        self.threads = 1 if isinstance(X, DaskArray) else _threads_for(X, Q)
        x = X if isinstance(X, DaskArray) else _held(X, self.threads, self.is_lazy)
        q = Q if isinstance(Q, DaskArray) else _held(Q, 1, self.is_lazy)
        self.found = self._found(x, q)

    def _found(self, x: DaskArray, q: DaskArray) -> DaskArray:
        """One task, of all rows. The copy of the source is the same for any queries: those that are
        computed together share the load."""
        label = "neighbors"
        x, q = private_copy(x, "rows of neighbors"), private_copy(q, "queries of neighbors")
        rows = each_chunk(_query_rows, f"{label}-query-rows-{tokenize(q.name)}", [q])
        name = f"{label}-queries-{tokenize(q.name)}"
        join = partial(Seen.merge, np.concatenate)
        queries = reduced(rows, f"{label}-queries-merge", join, join, name)
        limit, k = distance_limit(self.kind), self.k + self.leave_out
        token = tokenize(x.name, q.name, k, limit)
        nearest = each_chunk(
            _nearest_of_chunk,
            f"{label}-chunk-{token}",
            [x],
            [queries],
            block_ids=True,
            k=k,
            limit=limit,
            # Pieces of a plain array are not the chunks of the queries, and are read once.
            is_same=self.leave_out and self.is_lazy,
        )
        finish = _finish_without_themselves if self.leave_out else _finish
        name = f"{label}-{tokenize(token, self.leave_out)}"
        return reduced(nearest, f"{label}-merge", partial(Nearest.merge, k=k), finish, name, k=k)

    def answers(self, wanted: Sequence[Answer], *known: NDArray[Any]) -> list[Any]:
        """Arrays of a row for each query, made of its nearest rows and of what else is known."""
        given = [_data(array, self.is_lazy) for array in known]
        lazy = [self._answer(each, given) for each in wanted]
        if self.is_lazy:
            return lazy
        graph = merged(*lazy)
        keys = [(each.name, *(0,) * each.ndim) for each in lazy]
        return list(threads.computed(graph, keys, self.threads))

    def _answer(self, wanted: Answer, known: Sequence[DaskArray]) -> DaskArray:
        shape = (self.n_queries, *wanted.per_query)
        # Other kinds of arrays have no strings.
        kind = self.kind if wanted.dtype.kind in "biuf" else np.empty(0)
        meta = _meta(kind, len(shape), wanted.dtype)
        needs = [self.found, *known]
        names = [array.name for array in needs]
        how = (wanted.function, wanted.dtype)
        name = f"neighbors-answer-{tokenize(*how, shape, *names)}"
        key: Any = (name, *(0,) * len(shape))
        references = [TaskRef((array.name, *(0,) * array.ndim)) for array in needs]
        tasks = {key: Task(key, _make_answer, *how, kind, *references)}
        graph = extended(merged(*needs), name, tasks, set(names))
        return DaskArray(graph, name, tuple((n,) for n in shape), meta=meta)


def _threads_for(X: Any, Q: Any) -> int:
    """How many threads share plain rows."""
    n_queries = 0 if math.isnan(Q.shape[0]) else Q.shape[0]
    return threads.threads_for(X, n_queries * math.prod(X.shape), "products")


def _held(a: Any, n_pieces: int, is_lazy: bool) -> DaskArray:
    """A plain array as chunks of rows that are views of it."""
    size = max(1, -(-a.shape[0] // n_pieces))
    starts = range(0, max(1, a.shape[0]), size)
    return _data(a, is_lazy, [a[start : start + size, ...] for start in starts])


def _data(a: Any, is_lazy: bool, pieces: Sequence[Any] | None = None) -> DaskArray:
    """An array that a graph holds. Only what is lazy has a name by its content: to hash it takes a
    read of it."""
    pieces = [a] if pieces is None else pieces
    name = f"neighbors-data-{len(pieces)}-{tokenize(a) if is_lazy else uuid.uuid4().hex}"
    held = {(name, i, *(0,) * (a.ndim - 1)): piece for i, piece in enumerate(pieces)}
    chunks = (tuple(piece.shape[0] for piece in pieces), *((n,) for n in a.shape[1:]))
    return DaskArray(held, name, chunks, meta=_meta(a, a.ndim, numpy_dtype(a)))


def _meta(like: Any, ndim: int, dtype: np.dtype[Any]) -> Any:
    """What dask says that chunks are: of other kinds than NumPy's and CuPy's it takes none."""
    known = like if isinstance(like, np.ndarray) or is_cupy(like) else np.empty(0)
    return meta_from_array(known, ndim=ndim, dtype=dtype)


def _query_rows(chunk: Any) -> Seen:
    """A chunk of queries on the host."""
    host = to_host(chunk)
    check_finite(host, "Q")
    return Seen(host.astype(np.float64, copy=False), marks_of([chunk]))


def _nearest_of_chunk(
    chunk: Any, seen: Seen, place: tuple[int, ...], *, k: int, limit: int, is_same: bool
) -> Nearest:
    """The nearest rows in a chunk, of X; which has to be the chunk of queries at its place, where
    the queries are X."""
    queries: NDArray[np.float64] = seen.value
    if is_same and seen.marks[int(place[0])] != marks_of([chunk])[0]:
        raise changed(place)
    check_finite(chunk, "X", tuple(map(int, place)))
    return kernels.nearest(chunk, queries, k, limit // 8)


def check_k(k: int, n: float, n_queries: float) -> None:
    """Raise, in scikit-learn's words, if there are fewer rows; not if their number is unknown."""
    if k > n:
        raise ValueError(
            f"Expected n_neighbors <= n_samples_fit, but n_neighbors = {k}, "
            f"n_samples_fit = {n}, n_samples = {n_queries}"
        )


def check_k_of_others(k: int, n: float) -> None:
    """Raise if there are too few rows, of which none is its own neighbour."""
    if k >= n:
        raise ValueError(
            f"Expected n_neighbors < n_samples_fit, but n_neighbors = {k}, "
            f"n_samples_fit = {n}, n_samples = {n}"
        )


def check_finite(a: Any, name: str, place: tuple[int, ...] | None = None) -> None:
    """Raise, in scikit-learn's words, for NaN and infinity."""
    if not is_kind(a, "real floating"):
        return
    xp = namespace(a)
    with np.errstate(over="ignore", invalid="ignore"):
        # One read without a mask: only a sum that is not finite is looked into.
        if math.isfinite(float(xp.sum(a))) or bool(xp.all(xp.isfinite(a))):
            return
    where = "" if place is None else f", in chunk {place}"
    if bool(xp.any(xp.isnan(a))):
        raise ValueError(f"Input {name} contains NaN{where}")
    raise ValueError(
        f"Input {name} contains infinity or a value too large for {numpy_dtype(a)}{where}"
    )


def _finish(parts: list[Nearest], *, k: int) -> Nearest:
    found = Nearest.merge(parts, k)
    check_k(k, found.n_rows, len(found.index))
    return found


def _finish_without_themselves(parts: list[Nearest], *, k: int) -> Nearest:
    found = Nearest.merge(parts, k)
    check_k_of_others(k - 1, found.n_rows)
    return found.without_themselves()


@quiet()
def _make_answer(
    function: Callable[..., Any], dtype: np.dtype[Any], kind: Any, found: Nearest, *known: Any
) -> Any:
    """An answer, of the kind of the rows' chunks."""
    return in_kind(np.ascontiguousarray(function(found, *known), dtype), kind)
