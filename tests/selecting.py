"""Strategies with all kinds of parameters, and ranks to search for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.strategies import (
    STRATEGIES,
    Bisection,
    BrentMinimize,
    BrentRoot,
    Bucket,
    GoldenSection,
    Kelley,
    Quickselect,
    Radix,
    Randomized,
    Strategy,
)
from dask_gpuselect.strategies.spaces import NAMES

VARIANTS: Mapping[str, Strategy] = {
    **{name: make() for name, make in STRATEGIES.items()},
    **{
        f"{kind.__name__} {space}": kind(space=space)
        for kind in (Kelley, Bisection, BrentRoot, BrentMinimize, GoldenSection)
        for space in NAMES
        if space != ("key" if kind is Bisection else "value")
    },
    "Kelley once": Kelley(iterations=1),
    "Radix 4 copies": Radix(4, copies=True),
    "Radix 11": Radix(11, copies=False),
    "Bucket 16": Bucket(16),
    "Bucket copies": Bucket(64, phase_one=50),
    "Randomized small": Randomized(size=64),
    "Quickselect small": Quickselect(drawn=4),
}
"""Every strategy, and what its parameters change."""


def extreme_ranks(n: int) -> Iterator[tuple[int, int]]:
    """Those at the ends, and the middle pair."""
    for k in sorted({0, 1, n - 2, n - 1} & set(range(n))):
        yield k, k
    if n > 1:
        yield (n - 1) // 2, (n - 1) // 2 + 1


def ranks_about(q: Sequence[float]) -> Callable[[IntArray], tuple[IntArray, IntArray]]:
    """Make a function that gives the two ranks about each quantile of so many elements."""

    def ranks(n: IntArray) -> tuple[IntArray, IntArray]:
        lower = np.floor(np.multiply.outer(np.array(q), n - 1)).astype(np.int64)
        return lower, np.minimum(lower + 1, n - 1)

    return ranks
