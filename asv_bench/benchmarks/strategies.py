"""Selection methods of the literature on plain arrays. ``strategies.py`` beside this folder has the
papers' tables; here is what a change of the code might make slower."""

from __future__ import annotations

from functools import lru_cache

from dask_gpuselect.strategies import STRATEGIES

from .common import Seconds, shrunk, unit
from .selection import Contender, by_strategy, make_data, median_rank

ELEMENTS = 1 << 22
SLOW = ("bitonic_merge",)
DTYPES = ("float32", "float64")

data_of = lru_cache(maxsize=1)(make_data)


class Selecting(Seconds):
    """The median of 2^22 normal elements."""

    params = ([name for name in STRATEGIES if name not in SLOW], DTYPES)
    param_names = ("strategy", "dtype")

    def setup(self, strategy: str, dtype: str) -> None:
        self.x = data_of("normal", dtype, shrunk(ELEMENTS))
        self.k = median_rank(self.x.size)
        self.contender: Contender = by_strategy(STRATEGIES[strategy]())
        self.contender.select(self.x, self.k)  # compiles

    def time_median(self, strategy: str, dtype: str) -> None:
        self.contender.select(self.x, self.k)

    @unit("reads")
    def track_reads(self, strategy: str, dtype: str) -> float:
        _, trace = self.contender.traced(self.x, self.k)
        assert trace is not None
        return trace.reads
