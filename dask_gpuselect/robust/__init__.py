"""Robust statistics by exact selection: means, spread and regression.

Outliers do not change the means and the spread, and up to half of the rows may be outliers in a
regression.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dask_gpuselect.optional import listed, on_demand
from dask_gpuselect.robust.spread import iqr, mad, naniqr, nanmad
from dask_gpuselect.robust.trimmed import nantrimmed_mean, trimmed_mean

if TYPE_CHECKING:
    from dask_gpuselect.robust.regression import LeastMedianOfSquares, LeastTrimmedSquares

__all__ = [
    "LeastMedianOfSquares",
    "LeastTrimmedSquares",
    "iqr",
    "mad",
    "naniqr",
    "nanmad",
    "nantrimmed_mean",
    "trimmed_mean",
]

__getattr__ = on_demand(
    __name__, __all__, lambda: import_module("dask_gpuselect.robust.regression"), "sklearn"
)
__dir__ = listed(__all__)
