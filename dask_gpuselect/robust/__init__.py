"""Robust statistics by exact selection: the spread of data, whatever its outliers, and regression
that up to half of the rows cannot spoil."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask_gpuselect.optional import needs
from dask_gpuselect.robust.spread import iqr, mad, naniqr, nanmad

if TYPE_CHECKING:
    from dask_gpuselect.robust.regression import LeastMedianOfSquares, LeastTrimmedSquares

__all__ = ["LeastMedianOfSquares", "LeastTrimmedSquares", "iqr", "mad", "naniqr", "nanmad"]


def __getattr__(name: str) -> Any:
    """The estimators, when they are first asked for: they need scikit-learn."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs("sklearn", name):
        from dask_gpuselect.robust import regression
    return getattr(regression, name)
