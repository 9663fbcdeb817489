"""Exact statistics of groups: the elements that share a label."""

from dask_gpuselect.groups.functions import GroupBy, groupby
from dask_gpuselect.optional import listed

__all__ = ["GroupBy", "groupby"]

__dir__ = listed(__all__)
