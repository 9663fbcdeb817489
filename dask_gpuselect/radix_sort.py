"""A distributed radix sort, the baseline in the literature: see `radix_sort`."""

from dask_gpuselect.sorting.radix_sort import radix_sort

__all__ = ["radix_sort"]
