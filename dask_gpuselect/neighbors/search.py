"""A search for nearest rows: lazily by a graph, or eagerly for plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.engine import threads
from dask_gpuselect.maths.nearest import Nearest, NearestRows
from dask_gpuselect.neighbors import graph
from dask_gpuselect.neighbors.steps import Answer, Search, answer_in_kind, check_finite


def answers(search: Search, wanted: Sequence[Answer], *known: NDArray[Any]) -> list[Any]:
    """Return arrays with a row for each query, made of its nearest rows and known arrays."""
    if search.is_lazy:
        return graph.answers(search, wanted, *known)
    nearest = _nearest(search)
    if search.leave_out:
        nearest = nearest.on_host().without_themselves()
    if not isinstance(nearest, Nearest) and all(each.in_place for each in wanted):
        return [each.function(nearest) for each in wanted]
    host = nearest.on_host()
    return [
        answer_in_kind(each.function, each.dtype, search.kind_of(each), host, *known)
        for each in wanted
    ]


def _nearest(search: Search) -> NearestRows:
    """Find the nearest rows of plain arrays. Several threads share large NumPy arrays."""
    pieces, k = search.pieces, search.n_wanted
    how = {"queries": search.Q, "k": k, "limit": search.tile_elements}
    parts = threads.each(partial(_nearest_of_piece, **how), pieces, len(pieces))
    return parts[0] if len(parts) == 1 else Nearest.merge([part.on_host() for part in parts], k)


def _nearest_of_piece(piece: Any, *, queries: Any, k: int, limit: int) -> NearestRows:
    """Find the nearest rows among a piece of them."""
    check_finite(X=piece, Q=queries)
    return kernels.nearest_in_place(piece, queries, k, limit)
