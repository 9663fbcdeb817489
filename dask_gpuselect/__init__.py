"""Exact medians, quantiles and box plots of dask arrays that are larger than memory.

For quantiles of all elements, each chunk is read at most twice, and nothing is rechunked. Chunks
may be NumPy or CuPy arrays. A call with a dask array computes nothing and returns a dask array.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from dask_gpuselect.boxplot.describe import describe_boxplot
from dask_gpuselect.boxplot.summary import Boxplot
from dask_gpuselect.boxplot.tables import Box
from dask_gpuselect.enable import disable, enable
from dask_gpuselect.engine.plans import Plan
from dask_gpuselect.maths.cuts import ChunksChangedError
from dask_gpuselect.quantiles.functions import (
    explain,
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
    quantile,
)
from dask_gpuselect.quantiles.order_statistics import order_statistic
from dask_gpuselect.sorting.binning import digitize, quantile_bins
from dask_gpuselect.sorting.functions import argsort, sort, sort_by
from dask_gpuselect.staging import to_gpu
from dask_gpuselect.versions import show_versions
from dask_gpuselect.warm import warm

if TYPE_CHECKING:
    from dask_gpuselect import distribution as distribution
    from dask_gpuselect import groups as groups
    from dask_gpuselect import neighbors as neighbors
    from dask_gpuselect import robust as robust
    from dask_gpuselect import windows as windows

__all__ = [
    "Box",
    "Boxplot",
    "ChunksChangedError",
    "Plan",
    "argsort",
    "describe_boxplot",
    "digitize",
    "disable",
    "enable",
    "explain",
    "median",
    "nanmedian",
    "nanpercentile",
    "nanquantile",
    "order_statistic",
    "percentile",
    "quantile",
    "quantile_bins",
    "show_versions",
    "sort",
    "sort_by",
    "to_gpu",
    "warm",
]

__version__ = "1.0.0rc1"

_SUBPACKAGES = ("distribution", "groups", "neighbors", "robust", "windows")


def __getattr__(name: str) -> ModuleType:
    if name in _SUBPACKAGES:
        return import_module(f"{__package__}.{name}")
    homes = [] if name.startswith("_") else [*_SUBPACKAGES]
    modules = (import_module(f"{__package__}.{home}") for home in homes)
    advice = (f": type {home.__name__}.{name}" for home in modules if name in home.__all__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{next(advice, '')}")


def __dir__() -> list[str]:
    """List the public names and the subpackages alone, for `<Tab>`."""
    return sorted(
        [*__all__, *_SUBPACKAGES, "__all__", "__doc__", "__file__", "__name__", "__version__"]
    )
