"""Time, memory and loads of quantiles along an axis: of a stack of images, chunked along time.

The stack is that of the claims in RESULTS.md; ``BENCH_SHRINK`` divides its images' sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import explain, median, nanquantile, quantile

from .common import QUARTILES, THREADS, Values, compute, in_memory, shrunk, unit

STACK = (365, 500, 500)
CHUNKS = (73, 250, 250)
MISSING = 0.02


@dataclass(frozen=True)
class Stack:
    """The same elements for every peer: in memory and as a dask array of views of them."""

    values: Values
    x: da.Array

    @classmethod
    def of(cls, values: Values, chunks: tuple[int, ...]) -> Stack:
        return cls(values, da.from_array(values, chunks=chunks, name=False))


def make_stack(shape: tuple[int, ...], missing: float = 0.0) -> NDArray[np.float32]:
    """Normal data, a share of it NaN."""
    values = in_memory("normal", int(np.prod(shape)), np.float32).reshape(shape)
    if not missing:
        return values
    is_missing = np.random.default_rng(2011).random(shape) < missing
    return np.where(is_missing, np.float32(np.nan), values)


@dataclass(frozen=True)
class LanePeer:
    """One way to the answer.

    Parameters
    ----------
    call : str
        How a user writes it.
    function : callable
        From an array, lazy or in memory, to the answer, lazy likewise.
    lazy : bool
        Whether it takes a lazy array.
    """

    call: str
    function: Callable[[Any], Any]
    lazy: bool

    def __call__(self, stack: Stack, threads: int) -> Any:
        if self.lazy:
            return compute(self.function(stack.x), threads)
        return self.function(stack.values)


def _numbagg(values: Values) -> Values:
    import numbagg

    return numbagg.nanquantile(values, np.array(QUARTILES), axis=0)


Q = list(QUARTILES)

LANE_PEERS: Mapping[str, Mapping[str, LanePeer]] = {
    "median": {
        "ours": LanePeer("median(x, axis=0)", lambda x: median(x, axis=0), True),
        "plain": LanePeer("median(a, axis=0)", lambda a: median(a, axis=0), False),
        "dask": LanePeer("da.median(x, axis=0)", lambda x: da.median(x, axis=0), True),
        "numpy": LanePeer("np.median(a, axis=0)", lambda a: np.median(a, axis=0), False),
        "sum": LanePeer("x.sum(axis=0)", lambda x: x.sum(axis=0), True),
    },
    "quartiles": {
        "ours": LanePeer("quantile(x, q, axis=0)", lambda x: quantile(x, Q, axis=0), True),
        "plain": LanePeer("quantile(a, q, axis=0)", lambda a: quantile(a, Q, axis=0), False),
        "dask": LanePeer("da.quantile(x, q, axis=0)", lambda x: da.quantile(x, Q, axis=0), True),
        "numpy": LanePeer("np.quantile(a, q, axis=0)", lambda a: np.quantile(a, Q, axis=0), False),
    },
    "quartiles with NaN": {
        "ours": LanePeer("nanquantile(x, q, axis=0)", lambda x: nanquantile(x, Q, axis=0), True),
        "plain": LanePeer("nanquantile(a, q, axis=0)", lambda a: nanquantile(a, Q, axis=0), False),
        "numbagg": LanePeer("numbagg.nanquantile(a, q, axis=0)", _numbagg, False),
        "dask": LanePeer(
            "da.nanquantile(x, q, axis=0)", lambda x: da.nanquantile(x, Q, axis=0), True
        ),
    },
}
"""For each question ourselves, lazy and of a plain array, and what else there is."""


def available(question: str) -> Mapping[str, LanePeer]:
    """The peers that are installed."""
    peers = LANE_PEERS[question]
    return {name: peers[name] for name in peers if name != "numbagg" or find_spec("numbagg")}


stack_of = lru_cache(maxsize=1)(make_stack)


def shrunk_stack(missing: float = 0.0) -> Stack:
    side = shrunk(STACK[1])
    shape = (STACK[0], side, side)
    chunk = (CHUNKS[0], -(-side // 2), -(-side // 2))
    return Stack.of(stack_of(shape, missing), chunk)


class LanePeers:
    """Questions about (365, 500, 500) float32 in chunks of (73, 250, 250).

    asv measures one after the other. For ratios run ``axis.py``, which takes turns.
    """

    params = (["median", "quartiles", "quartiles with NaN"], ["ours", "plain", "dask"])
    param_names = ("question", "peer")
    number = 1
    repeat = (3, 10, 20.0)
    warmup_time = 0
    timeout = 600

    def setup(self, question: str, peer: str) -> None:
        self.stack = shrunk_stack(MISSING if "NaN" in question else 0.0)
        self.peer = LANE_PEERS[question][peer]

    def time_answer(self, question: str, peer: str) -> None:
        self.peer(self.stack, THREADS)


class LanePlans:
    """The plans of a stack that is made when it is read: loads, tasks and peak memory."""

    params = (["1 GiB", "100 MB", "20 MB"],)
    param_names = ("column_limit",)
    timeout = 600

    def setup(self, column_limit: str) -> None:
        side = shrunk(200)
        chunk = (50, side, side)
        blocks = da.zeros((2500, side, side), chunks=chunk, dtype=np.float32)
        self.x = blocks.map_blocks(_normal, dtype=np.float32, meta=np.empty((0, 0, 0), "f4"))
        with dask.config.set({"dask_gpuselect.column-limit": column_limit}):
            self.lazy = quantile(self.x, QUARTILES, axis=0)
            self.plan = explain(self.x, QUARTILES, axis=0)

    def peakmem_sum(self, column_limit: str) -> None:
        compute(self.x.sum(axis=0))

    def peakmem_quartiles(self, column_limit: str) -> None:
        compute(self.lazy)

    @unit("loads")
    def track_loads(self, column_limit: str) -> int:
        return self.plan.loads

    @unit("tasks")
    def track_num_tasks(self, column_limit: str) -> int:
        return len(self.lazy.dask)


def _normal(block: Values, block_id: tuple[int, ...]) -> NDArray[np.float32]:
    return np.random.default_rng(block_id).standard_normal(block.shape, np.float32)
