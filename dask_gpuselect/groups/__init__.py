"""Exact statistics of groups: the elements that share a label."""

from dask_gpuselect.groups.functions import GroupBy, groupby

__all__ = ["GroupBy", "groupby"]
