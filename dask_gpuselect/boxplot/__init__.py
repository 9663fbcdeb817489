"""Box plots of arrays that are larger than memory."""

from dask_gpuselect.boxplot.describe import describe_boxplot
from dask_gpuselect.boxplot.summary import Box, Boxplot

__all__ = ["Box", "Boxplot", "describe_boxplot"]
