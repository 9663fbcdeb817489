"""Nearest neighbours of normal rows, here and by scikit-learn. The program ``neighbors.py`` beside
this folder takes turns and prints ratios; here is what a change of the code might make slower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import dask
import dask.array as da
import numpy as np

from dask_gpuselect.neighbors import kneighbors

from .common import THREADS, Floats, Seconds, shrunk

ROWS, QUERIES, CHUNKS = 100_000, 1000, 10


@lru_cache(maxsize=1)
def normal_rows(n: int, n_queries: int, n_features: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, n_features)), rng.standard_normal((n_queries, n_features))


def ours_plain(rows: Floats, queries: Floats, k: int) -> tuple[Any, Any]:
    with dask.config.set(num_workers=THREADS):
        return kneighbors(rows, queries, k)


def ours_lazy(rows: Floats, queries: Floats, k: int, n_chunks: int = CHUNKS) -> tuple[Any, Any]:
    """Of chunks that are views: a load costs nothing."""
    x = da.from_array(Views(rows), chunks=(-(-len(rows) // n_chunks), -1), name=False)
    result = kneighbors(x, queries, k)
    distances, indices = dask.compute(*result, scheduler="threads", num_workers=THREADS)
    return distances, indices


class Views:
    """Like a file whose reads cost nothing, to dask, which would make a copy of an array."""

    def __init__(self, rows: Floats) -> None:
        self.rows, self.shape, self.dtype, self.ndim = rows, rows.shape, rows.dtype, rows.ndim

    def __getitem__(self, key: Any) -> Floats:
        return self.rows[key]


def scikit_learns(rows: Floats, queries: Floats, k: int) -> tuple[Any, Any]:
    try:
        from sklearn.neighbors import NearestNeighbors
    except ImportError as error:
        raise NotImplementedError from error  # asv leaves it out
    result = NearestNeighbors(n_neighbors=k, algorithm="brute", n_jobs=THREADS).fit(rows)
    distances, indices = result.kneighbors(queries)
    return distances, indices


CONTENDERS: Mapping[str, Callable[[Floats, Floats, int], tuple[Any, Any]]] = {
    "dask_gpuselect, plain": ours_plain,
    "dask_gpuselect, lazy": ours_lazy,
    "scikit-learn": scikit_learns,
}


class Neighbors(Seconds):
    """1,000 queries of 100,000 rows."""

    params = (list(CONTENDERS), [5, 50], [5, 50])
    param_names = ("contender", "features", "k")

    def setup(self, contender: str, features: int, k: int) -> None:
        self.rows, self.queries = normal_rows(shrunk(ROWS), shrunk(QUERIES), features)
        CONTENDERS[contender](self.rows[:k], self.queries[:1], k)  # compiles

    def time_kneighbors(self, contender: str, features: int, k: int) -> None:
        CONTENDERS[contender](self.rows, self.queries, k)

    def peakmem_kneighbors(self, contender: str, features: int, k: int) -> None:
        CONTENDERS[contender](self.rows, self.queries, k)
