"""The graph of nearest neighbours: one load of the data, for any number of queries.

::

    queries ──> gathered ─┐
                          ├──> nearest rows of each chunk ──merge──> nearest ──> answers
    x ──private copy──────┘
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import numpy_dtype, to_host, usual
from dask_gpuselect.engine.graphs import each_chunk, in_one_place, reduced
from dask_gpuselect.engine.marks import KnownChunks, changed, marks_of
from dask_gpuselect.engine.source import DaskArray, Task, TaskRef, extended, merged, private_copy
from dask_gpuselect.maths.nearest import Nearest
from dask_gpuselect.neighbors.steps import (
    Answer,
    Search,
    answer_in_kind,
    check_finite,
    check_k,
    check_k_of_others,
)
from dask_gpuselect.quiet import quietly


def answers(search: Search, wanted: Sequence[Answer], *known: NDArray[Any]) -> list[DaskArray]:
    """Return lazy arrays with a row for each query, made of its nearest rows and known arrays."""
    needs = [_nearest(search), *(_as_dask([array]) for array in known)]
    return [_answer(each, search, needs) for each in wanted]


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
    rows = each_chunk(_query_rows, f"{label}-query-rows-{tokenize(q.name)}", [q])
    name = f"{label}-queries-{tokenize(q.name)}"
    queries = in_one_place(rows, partial(KnownChunks.merge, np.concatenate), name)
    limit = search.tile_elements
    token = tokenize(x.name, q.name, k, limit)
    nearest = each_chunk(
        _nearest_of_chunk,
        f"{label}-chunk-{token}",
        [x],
        [queries],
        block_ids=True,
        k=k,
        limit=limit,
        is_same=search.leave_out,
    )
    name, merge = f"{label}-{tokenize(token, search.leave_out)}", partial(Nearest.merge, k=k)
    how: dict[str, Any] = {"k": k, "is_same": search.leave_out}
    return reduced(nearest, f"{label}-merge", merge, _finish, name, **how)


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
    tasks = {key: Task(key, quietly(answer_in_kind), *how, kind, *references)}
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
    return kernels.nearest(chunk, queries, k, limit)


def _finish(parts: list[Nearest], *, k: int, is_same: bool) -> Nearest:
    """Merge the nearest rows of all chunks; without each row itself if the queries are X."""
    nearest = Nearest.merge(parts, k)
    if is_same:
        check_k_of_others(k - 1, nearest.n_rows)
        return nearest.without_themselves()
    check_k(k, nearest.n_rows, len(nearest.index))
    return nearest
