"""Exact k nearest neighbours of chunked data, by brute force.

They are found by the function `kneighbors` and by scikit-learn's estimators.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dask_gpuselect.neighbors.functions import kneighbors
from dask_gpuselect.optional import listed, on_demand

if TYPE_CHECKING:
    from dask_gpuselect.neighbors.estimators import (
        KNeighborsClassifier,
        KNeighborsRegressor,
        NearestNeighbors,
    )

__all__ = ["KNeighborsClassifier", "KNeighborsRegressor", "NearestNeighbors", "kneighbors"]

__getattr__ = on_demand(
    __name__,
    __all__,
    lambda: import_module("dask_gpuselect.neighbors.estimators"),
    "sklearn",
    but="; the function kneighbors does not",
)
__dir__ = listed(__all__)
