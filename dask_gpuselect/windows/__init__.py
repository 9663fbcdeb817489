"""Exact statistics of moving windows, and the rank filters of images."""

from dask_gpuselect.optional import listed
from dask_gpuselect.windows.filters import median_filter, percentile_filter, rank_filter
from dask_gpuselect.windows.functions import Rolling, rolling

__all__ = ["Rolling", "median_filter", "percentile_filter", "rank_filter", "rolling"]

__dir__ = listed(__all__)
