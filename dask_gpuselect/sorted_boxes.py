"""Box plots of arrays that are already sorted: see `describe_sorted`."""

from dask_gpuselect.sorting.sorted_boxes import SortedBox, describe_sorted

__all__ = ["SortedBox", "describe_sorted"]
