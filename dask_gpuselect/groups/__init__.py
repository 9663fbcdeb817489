"""Exact statistics of groups: the elements that share a label."""

from dask_gpuselect.groups.groupby import GroupBy, groupby

__all__ = ["GroupBy", "groupby"]
