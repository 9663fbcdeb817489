"""Exact medians and quantiles of dask arrays that fit nowhere, in at most two loads of the data."""

from dask_gpuselect.cuts import ChunksChangedError
from dask_gpuselect.quantiles import (
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
    quantile,
)

__all__ = [
    "ChunksChangedError",
    "median",
    "nanmedian",
    "nanpercentile",
    "nanquantile",
    "percentile",
    "quantile",
]

__version__ = "0.1.0"
