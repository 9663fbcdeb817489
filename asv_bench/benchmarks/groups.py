"""Time and reads of medians of groups, beside those without.

Sizes are those of quantiles; ``BENCH_SHRINK`` divides them. Loads cost nothing where time is
measured. ``groups.py`` beside this package compares with others, and measures memory.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dask_gpuselect import median
from dask_gpuselect.groups import groupby

from .common import Seconds, Source, Values, compute, shrunk, unit
from .quantiles import CHUNKS, ELEMENTS, values_of


@lru_cache(maxsize=1)
def labels_of(n: int, n_groups: int) -> Values:
    """Labels of groups of equal size, in any order."""
    return np.random.default_rng(1).permutation(np.arange(n, dtype=np.int32) % n_groups)


class GroupsOfAll(Seconds):
    """Medians of all elements by random labels; of one group, the median without groups."""

    params = ([1, 18, 1000, 100_000], ["float32", "float64"])
    param_names = ("groups", "dtype")

    def setup(self, groups: int, dtype: str) -> None:
        n = shrunk(ELEMENTS)
        n_groups = max(min(groups, n // 50), 1)
        labels = labels_of(n, n_groups)
        self.sources = Source.of(values_of("normal", n, dtype), CHUNKS), Source.of(labels, CHUNKS)
        x, by = (source.lazy() for source in self.sources)
        names = np.arange(n_groups)
        self.answer = median(x) if groups == 1 else groupby(x, by, groups=names).median()
        few = (Source.of(s[: min(n, 40_000)], 2).lazy() for s in self.sources)
        compute(groupby(*few).median())
        for source in self.sources:
            source.loads[:] = [0] * len(source.loads)

    def time_median(self, groups: int, dtype: str) -> None:
        compute(self.answer)

    @unit("reads of a chunk")
    def track_loads(self, groups: int, dtype: str) -> int:
        """Of the data or of the labels, whichever are more."""
        compute(self.answer)
        return max(n for source in self.sources for n in source.loads)


class GroupsOfLanes(Seconds):
    """The 90th percentile along the first axis of an array in memory: of twelve months, or of five
    days around each of a year."""

    params = (["all", "months", "days"], ["float32"])
    param_names = ("by", "dtype")

    def setup(self, by: str, dtype: str) -> None:
        side = max(4, int(shrunk(25_000_000 // 3650) ** 0.5))
        rng = np.random.default_rng(1)
        self.stack = rng.standard_normal((3650, side, side)).astype(dtype)
        day = np.arange(3650) % 365
        self.labels = {
            "all": np.zeros(3650, int),
            "months": day // 31,
            "days": {i: np.flatnonzero((day - i + 2) % 365 < 5) for i in range(365)},
        }[by]
        self.time_percentile(by, dtype)

    def time_percentile(self, by: str, dtype: str) -> None:
        groupby(self.stack, self.labels, 0).percentile(90)
