"""Quantiles and box plots of xarray's objects, by an accessor: ``import dask_gpuselect.xarray``,
``a.exact``.

For `median` and `quantile` of all elements none is needed: while `dask_gpuselect.enable` is in
force, xarray's own lead to ours, for it asks NumPy, which asks dask. So do
``a.weighted(w).quantile(q)``, and `median` and `quantile` of ``a.groupby(...)``,
``a.groupby_bins(...)`` and ``a.resample(...)``, and of ``a.rolling(...)``, once this module is
imported.
"""

import dask_gpuselect.xarray.routed  # noqa: F401 -- methods of xarray lead to ours while enabled
from dask_gpuselect.xarray.accessors import ExactDataArray, ExactDataset
from dask_gpuselect.xarray.groups import ExactGroupBy
from dask_gpuselect.xarray.windows import ExactRolling

__all__ = ["ExactDataArray", "ExactDataset", "ExactGroupBy", "ExactRolling"]
