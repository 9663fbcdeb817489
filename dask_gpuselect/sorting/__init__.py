"""Sorted arrays, and bins with equal numbers of elements."""

from dask_gpuselect.sorting.binning import digitize, quantile_bins
from dask_gpuselect.sorting.functions import argsort, sort, sort_by

__all__ = ["argsort", "digitize", "quantile_bins", "sort", "sort_by"]
