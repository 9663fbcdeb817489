"""Box plots of arrays that are larger than memory."""

from dask_gpuselect.boxplot.describe import describe_boxplot
from dask_gpuselect.boxplot.summary import Boxplot
from dask_gpuselect.boxplot.tables import Box

__all__ = ["Box", "Boxplot", "describe_boxplot"]
