"""Ourselves and what else there is: one table for the benchmarks and for ``compare.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, Self

import dask.array as da
import numpy as np

from dask_gpuselect import quantile

from .common import Floats, Source, Values, compute

Finds = Literal["quantiles", "median", "sum"]


@dataclass(frozen=True)
class Data:
    """The same elements for every peer: in memory, and as a dask array of views of them, which dask
    takes for a file unless it `is_in_memory`."""

    values: Values
    x: da.Array

    @classmethod
    def of(cls, values: Values, n_chunks: int, *, is_in_memory: bool = False) -> Self:
        if is_in_memory:
            return cls(
                values, da.from_array(values, chunks=-(-len(values) // n_chunks), name=False)
            )
        return cls(values, Source.of(values, n_chunks).lazy())


@dataclass(frozen=True)
class Peer:
    """One way to the answer.

    Parameters
    ----------
    call : str
        How a user writes it.
    function : callable
        From an array, lazy or in memory, and the shares q to the answer, lazy likewise.
    finds : str
        What that is: the quantiles asked for, the median alone, or a sum.
    exact, lazy : bool
        Whether it is exact, and whether it takes a lazy array (otherwise one in memory).
    """

    call: str
    function: Callable[[Any, Floats], Any]
    finds: Finds
    exact: bool
    lazy: bool

    def __call__(self, data: Data, q: Floats, threads: int) -> Any:
        """Build the graph if there is one, and compute."""
        if self.lazy:
            return compute(self.function(data.x, q), threads)
        return self.function(data.values, q)


def partition(values: Values, q: Floats) -> Values:
    """The two elements between which each quantile lies, in rows."""
    position = q * (values.size - 1)
    neighbours = np.stack([np.floor(position), np.ceil(position)], axis=1).astype(np.int64)
    return np.partition(values, np.unique(neighbours))[neighbours]


KNOWN: Mapping[str, Peer] = {
    "dask_gpuselect": Peer("quantile(x, q)", quantile, finds="quantiles", exact=True, lazy=True),
    "np.quantile": Peer("np.quantile(a, q)", np.quantile, "quantiles", exact=True, lazy=False),
    "np.partition": Peer("np.partition(a, ranks)", partition, "quantiles", exact=True, lazy=False),
    "da.percentile": Peer(
        "da.percentile(x, 100 * q)",
        lambda x, q: da.percentile(x, 100 * q),
        "quantiles",
        exact=False,
        lazy=True,
    ),
    "tdigest": Peer(
        'da.percentile(x, 100 * q, internal_method="tdigest")',
        lambda x, q: da.percentile(x, 100 * q, internal_method="tdigest"),
        "quantiles",
        exact=False,
        lazy=True,
    ),
    "da.median": Peer(
        "da.median(x.rechunk(-1), axis=0)",
        lambda x, q: da.median(x.rechunk(-1), axis=0),
        "median",
        exact=True,
        lazy=True,
    ),
    "x.sum": Peer("x.sum()", lambda x, q: x.sum(), "sum", exact=True, lazy=True),
}


def is_installed(peer: str) -> bool:
    """Whether there is what dask makes digests with: `dask-gpuselect[bench]`."""
    return peer != "tdigest" or find_spec("crick") is not None


PEERS: Mapping[str, Peer] = {name: peer for name, peer in KNOWN.items() if is_installed(name)}
