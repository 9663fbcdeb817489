"""Medians, quantiles and order statistics of arrays, exactly."""

from dask_gpuselect.quantiles.functions import (
    explain,
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
    quantile,
)
from dask_gpuselect.quantiles.order_statistics import order_statistic

__all__ = [
    "explain",
    "median",
    "nanmedian",
    "nanpercentile",
    "nanquantile",
    "order_statistic",
    "percentile",
    "quantile",
]
