"""Robust statistics by exact selection: the spread of data, whatever its outliers."""

from dask_gpuselect.robust.spread import iqr, mad, naniqr, nanmad

__all__ = ["iqr", "mad", "naniqr", "nanmad"]
