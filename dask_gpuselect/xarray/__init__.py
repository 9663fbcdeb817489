"""Quantiles and box plots of xarray's objects: ``import dask_gpuselect.xarray``, then ``a.exact``.

While `dask_gpuselect.enable` is in force, xarray's own methods call this package for lazy data:
`median` and `quantile`, because xarray calls NumPy, which calls dask; and, once this module is
imported, ``a.weighted(w).quantile(q)``, and `median` and `quantile` of ``a.groupby(...)``,
``a.groupby_bins(...)``, ``a.resample(...)`` and ``a.rolling(...)``.
"""

from dask_gpuselect.optional import needs

with needs("xarray", "dask_gpuselect.xarray"):
    import xarray  # noqa: F401, ICN001

import dask_gpuselect.xarray.routed  # noqa: F401, E402 -- adds to what enable() replaces
from dask_gpuselect.xarray.accessors import ExactDataArray, ExactDataset  # noqa: E402
from dask_gpuselect.xarray.groups import ExactGroupBy  # noqa: E402
from dask_gpuselect.xarray.windows import ExactRolling  # noqa: E402

__all__ = ["ExactDataArray", "ExactDataset", "ExactGroupBy", "ExactRolling"]
