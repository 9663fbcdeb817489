"""Sorted arrays and distributions. ``sorted_arrays.py`` and ``ecdf.py`` beside this folder take
turns and print ratios; here is what a change of the code might make slower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dask
import dask.array as da

from dask_gpuselect import argsort, digitize, quantile_bins, sort
from dask_gpuselect.distribution import ecdf

from .common import THREADS, Seconds, Source, shrunk
from .quantiles import values_of

ELEMENTS, CHUNKS = 10_000_000, 10

CALLS: Mapping[str, Callable[[da.Array], Any]] = {
    "sort": lambda x: sort(x, spill=False),
    "sort on disk": lambda x: sort(x, spill=True),
    "argsort": lambda x: argsort(x, spill=False),
    "digitize": lambda x: digitize(x, quantile_bins(x, 10)[1:-1]),
    "ecdf": ecdf,
}


class Sorting(Seconds):
    """1e7 float64 in 10 chunks that are read each time."""

    params = (list(CALLS), ["normal", "sorted"])
    param_names = ("call", "distribution")

    def setup(self, call: str, distribution: str) -> None:
        values = values_of(distribution, shrunk(ELEMENTS))
        self.x = Source.of(values, CHUNKS).lazy()
        CALLS[call](self.x[:100]).compute(scheduler="sync")  # compiles

    def time_call(self, call: str, distribution: str) -> None:
        dask.compute(CALLS[call](self.x), scheduler="threads", num_workers=THREADS)

    def peakmem_call(self, call: str, distribution: str) -> None:
        self.time_call(call, distribution)
