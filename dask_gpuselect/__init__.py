"""Exact medians and quantiles of dask arrays that fit nowhere, in at most two loads of the data."""

from dask_gpuselect.binning import digitize, quantile_bins
from dask_gpuselect.boxplot import describe_boxplot
from dask_gpuselect.cuts import ChunksChangedError
from dask_gpuselect.methods import disable, enable
from dask_gpuselect.order_statistics import order_statistic
from dask_gpuselect.passes import Plan
from dask_gpuselect.quantiles import (
    explain,
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
    quantile,
)
from dask_gpuselect.sorting import argsort, sort, sort_by
from dask_gpuselect.staging import to_gpu
from dask_gpuselect.summary import Box, Boxplot

__all__ = [
    "Box",
    "Boxplot",
    "ChunksChangedError",
    "Plan",
    "argsort",
    "describe_boxplot",
    "digitize",
    "disable",
    "enable",
    "explain",
    "median",
    "nanmedian",
    "nanpercentile",
    "nanquantile",
    "order_statistic",
    "percentile",
    "quantile",
    "quantile_bins",
    "sort",
    "sort_by",
    "to_gpu",
]

__version__ = "0.1.0"
