"""Time, memory and reads of quantiles along an axis: of a stack of images, chunked along time.

The stack is that of the claims in RESULTS.md; ``BENCH_SHRINK`` divides the
number of its images' pixels.
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
from dask.utils import parse_bytes
from numpy.typing import NDArray

from dask_gpuselect import explain, median, nanquantile, quantile

from .common import (
    QUARTILES,
    THREADS,
    Seconds,
    Values,
    compute,
    in_memory,
    shrunk,
    shrunk_side,
    unit,
)

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
        "dask_gpuselect": LanePeer("median(x, axis=0)", lambda x: median(x, axis=0), True),
        "plain": LanePeer("median(a, axis=0)", lambda a: median(a, axis=0), False),
        "dask": LanePeer("da.median(x, axis=0)", lambda x: da.median(x, axis=0), True),
        "numpy": LanePeer("np.median(a, axis=0)", lambda a: np.median(a, axis=0), False),
        "sum": LanePeer("x.sum(axis=0)", lambda x: x.sum(axis=0), True),
    },
    "quartiles": {
        "dask_gpuselect": LanePeer(
            "quantile(x, q, axis=0)", lambda x: quantile(x, Q, axis=0), True
        ),
        "plain": LanePeer("quantile(a, q, axis=0)", lambda a: quantile(a, Q, axis=0), False),
        "dask": LanePeer("da.quantile(x, q, axis=0)", lambda x: da.quantile(x, Q, axis=0), True),
        "numpy": LanePeer("np.quantile(a, q, axis=0)", lambda a: np.quantile(a, Q, axis=0), False),
    },
    "quartiles with NaN": {
        "dask_gpuselect": LanePeer(
            "nanquantile(x, q, axis=0)", lambda x: nanquantile(x, Q, axis=0), True
        ),
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
    side = shrunk_side(STACK[1])
    shape = (STACK[0], side, side)
    chunk = (CHUNKS[0], -(-side // 2), -(-side // 2))
    return Stack.of(stack_of(shape, missing), chunk)


class LanePeers(Seconds):
    """Questions about (365, 500, 500) float32 in chunks of (73, 250, 250).

    asv measures one after the other. For ratios run ``axis.py``, which takes turns.
    """

    params = (["median", "quartiles", "quartiles with NaN"], ["dask_gpuselect", "plain", "dask"])
    param_names = ("question", "peer")

    def setup(self, question: str, peer: str) -> None:
        self.stack = shrunk_stack(MISSING if "NaN" in question else 0.0)
        self.peer = LANE_PEERS[question][peer]

    def time_answer(self, question: str, peer: str) -> None:
        self.peer(self.stack, THREADS)


class LanePlans:
    """The plans of a stack that is made when it is read: reads, tasks and peak memory. Limits are
    divided as the stack is."""

    params = (["1 GiB", "100 MB", "20 MB"],)
    param_names = ("column_limit",)
    timeout = 600

    def setup(self, column_limit: str) -> None:
        side = shrunk_side(200)
        chunk = (50, side, side)
        blocks = da.zeros((2500, side, side), chunks=chunk, dtype=np.float32)
        self.x = blocks.map_blocks(_normal, dtype=np.float32, meta=np.empty((0, 0, 0), "f4"))
        limit = shrunk(parse_bytes(column_limit))
        with dask.config.set({"dask_gpuselect.column-limit": limit}):
            self.lazy = quantile(self.x, QUARTILES, axis=0)
            self.plan = explain(self.x, QUARTILES, axis=0)

    def peakmem_sum(self, column_limit: str) -> None:
        compute(self.x.sum(axis=0))

    def peakmem_quartiles(self, column_limit: str) -> None:
        compute(self.lazy)

    @unit("reads")
    def track_loads(self, column_limit: str) -> int:
        return self.plan.loads

    @unit("tasks")
    def track_num_tasks(self, column_limit: str) -> int:
        return len(self.lazy.dask)


def _normal(block: Values, block_id: tuple[int, ...]) -> NDArray[np.float32]:
    return np.random.default_rng(block_id).standard_normal(block.shape, np.float32)


# --- Lanes of other kinds


def of_bytes(shape: tuple[int, int], dtype: str = "u1") -> Values:
    return np.random.default_rng(2011).integers(0, 200, shape).astype(dtype)


def of_normal(shape: tuple[int, int]) -> Values:
    return in_memory("normal", shape[0] * shape[1], np.float64).reshape(shape)


KINDS: Mapping[str, tuple[Callable[[], Values], int]] = {
    "uint8 (2000, 10000)": (lambda: of_bytes((shrunk_side(2000), shrunk_side(10_000))), 0),
    "uint8 (10000, 2000)": (lambda: of_bytes((shrunk_side(10_000), shrunk_side(2000))), 1),
    "uint8 (200, 100000)": (lambda: of_bytes((shrunk_side(200), shrunk_side(100_000))), 0),
    "uint8 (20, 1000000)": (lambda: of_bytes((20, shrunk(1_000_000))), 0),
    "int16 (2000, 10000)": (lambda: of_bytes((shrunk_side(2000), shrunk_side(10_000)), "i2"), 0),
    "float64 (16e6, 1)": (lambda: of_normal((shrunk(16_000_000), 1)), 1),
    "float64 (1, 16e6)": (lambda: of_normal((1, shrunk(16_000_000))), 0),
    "float64 (5e6, 2)": (lambda: of_normal((shrunk(5_000_000), 2)), 1),
    "float64 (5e6, 3)": (lambda: of_normal((shrunk(5_000_000), 3)), 1),
    "float64 (3, 5e6)": (lambda: of_normal((3, shrunk(5_000_000))), 0),
    "float64 (2e6, 8)": (lambda: of_normal((shrunk(2_000_000), 8)), 1),
    "normal (1, 1e6)": (lambda: of_normal((1, shrunk(1_000_000))), 1),
}
"""Arrays of narrow integers, of lanes of few elements, and of one long lane; and the axis."""

CALLS: Mapping[str, Callable[[Values, int], Any]] = {
    "median": lambda a, axis: median(a, axis=axis),
    "np.median": lambda a, axis: np.median(a, axis=axis),
    "quantile": lambda a, axis: quantile(a, Q, axis=axis),
    "np.quantile": lambda a, axis: np.quantile(a, Q, axis=axis),
}


class KindsOfLanes(Seconds):
    """The median and three quartiles of NumPy arrays that are not like a stack of images."""

    params = (list(KINDS), ["median", "quantile"])
    param_names = ("kind", "call")

    def setup(self, kind: str, call: str) -> None:
        make, self.axis = KINDS[kind]
        self.values = make()
        self.call = CALLS[call]

    def time_answer(self, kind: str, call: str) -> None:
        self.call(self.values, self.axis)
