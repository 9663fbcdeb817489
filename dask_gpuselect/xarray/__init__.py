"""Quantiles and box plots of xarray's objects: ``import dask_gpuselect.xarray``, then ``a.exact``.

While `dask_gpuselect.enable` is in force, xarray's own methods call this package for lazy data:
`median` and `quantile`, because xarray calls NumPy, which calls dask; and, once this module is
imported, ``a.weighted(w).quantile(q)``, and `median` and `quantile` of ``a.groupby(...)``,
``a.groupby_bins(...)``, ``a.resample(...)`` and ``a.rolling(...)``.
"""

import dask_gpuselect.xarray.routed  # noqa: F401 -- adds to what enable() replaces
from dask_gpuselect.xarray.accessors import ExactDataArray, ExactDataset
from dask_gpuselect.xarray.groups import ExactGroupBy
from dask_gpuselect.xarray.windows import ExactRolling

__all__ = ["ExactDataArray", "ExactDataset", "ExactGroupBy", "ExactRolling"]
