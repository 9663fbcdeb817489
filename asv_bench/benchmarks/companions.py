"""Time and reads of medians with what goes with the data, beside those without.

Sizes are those of the claims in RESULTS.md; ``BENCH_SHRINK`` divides them. Loads cost nothing where
time is measured. ``companions.py`` beside this package compares with others, and measures memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dask_gpuselect import median, quantile

from .common import QUARTILES, Seconds, Source, compute, shrunk, unit
from .quantiles import CHUNKS, ELEMENTS, values_of

CALLS: Mapping[str, Callable[[Any, Any], Any]] = {
    "plain": lambda x, w: quantile(x, QUARTILES),
    "nodata": lambda x, w: quantile(x, QUARTILES, nodata=0),
    "where": lambda x, w: quantile(x, QUARTILES, where=w > 0.2),
    "weights": lambda x, w: quantile(x, QUARTILES, weights=w, method="inverted_cdf"),
}


class Companions(Seconds):
    """Quartiles of all elements."""

    params = (list(CALLS), ["uint16", "float64"])
    param_names = ("call", "dtype")

    def setup(self, call: str, dtype: str) -> None:
        n = shrunk(ELEMENTS)
        weights = (np.arange(n) * 0.618) % 1
        self.sources = Source.of(values_of("normal", n, dtype), CHUNKS), Source.of(weights, CHUNKS)
        few = (Source.of(s[: min(n, 40_000)], 2).lazy() for s in self.sources)
        compute(CALLS[call](*few))
        self.arrays = [source.lazy() for source in self.sources]
        for source in self.sources:
            source.loads[:] = [0] * len(source.loads)

    def time_quartiles(self, call: str, dtype: str) -> None:
        compute(CALLS[call](*self.arrays))

    @unit("reads of a chunk")
    def track_loads(self, call: str, dtype: str) -> int:
        """Of the data or of what goes with them, whichever are more."""
        compute(CALLS[call](*self.arrays))
        return max(n for source in self.sources for n in source.loads)


class CompanionsOfLanes(Seconds):
    """Medians along the first axis of an array in memory, of which some elements are left out."""

    params = (["plain", "where"], ["uint16", "float32"])
    param_names = ("call", "dtype")

    def setup(self, call: str, dtype: str) -> None:
        side = max(4, int(shrunk(25_000_000 // 100) ** 0.5))
        rng = np.random.default_rng(1)
        self.stack = (rng.standard_normal((100, side, side)) * 500 + 5000).astype(dtype)
        self.where = rng.random(self.stack.shape) < 0.7 if call == "where" else None
        self.time_median(call, dtype)

    def time_median(self, call: str, dtype: str) -> None:
        median(self.stack, axis=0, where=self.where)
