"""A distributed radix sort, the literature's baseline: see `radix_sort`."""

from dask_gpuselect.sorting.radix_sort import radix_sort

__all__ = ["radix_sort"]
