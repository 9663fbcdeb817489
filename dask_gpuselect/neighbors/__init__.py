"""Exact k nearest neighbours of chunked data, by brute force: the function `kneighbors`, and
scikit-learn's estimators over it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dask_gpuselect.neighbors.search import kneighbors
from dask_gpuselect.optional import needs

if TYPE_CHECKING:
    from dask_gpuselect.neighbors.estimators import (
        KNeighborsClassifier,
        KNeighborsRegressor,
        NearestNeighbors,
    )

__all__ = ["KNeighborsClassifier", "KNeighborsRegressor", "NearestNeighbors", "kneighbors"]


def __getattr__(name: str) -> Any:
    """The estimators, when they are first asked for: they need scikit-learn."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs("sklearn", name, but="; the function kneighbors does not"):
        estimators = importlib.import_module("dask_gpuselect.neighbors.estimators")
    return getattr(estimators, name)
