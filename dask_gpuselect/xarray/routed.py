"""Methods of xarray that call this package while `dask_gpuselect.enable` is in force.

They are weighted quantiles, and medians and quantiles of groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from dask.base import is_dask_collection
from xarray.core.groupby import DataArrayGroupBy, DatasetGroupBy
from xarray.core.resample import DataArrayResample, DatasetResample

from dask_gpuselect.quantiles import functions as quantiles
from dask_gpuselect.routing import replaces
from dask_gpuselect.xarray.groups import ExactGroupBy, all_dims, grouped_object, groups_of
from dask_gpuselect.xarray.reductions import Dims, answered, keeps_attrs_by_default

try:
    from xarray.computation.weighted import Weighted
except ImportError:  # before 2025.4
    from xarray.core.weighted import Weighted  # type: ignore[import-not-found, no-redef]


@replaces("quantile", Weighted)
def quantile(
    original: Any,
    self: Any,
    q: Any,
    *,
    dim: Dims = None,
    keep_attrs: bool | None = None,
    skipna: bool | None = True,
) -> Any:
    """Replace ``a.weighted(w).quantile``.

    It calls this package for lazy arrays, because xarray's own does not support chunked dimensions.
    """
    options: dict[str, Any] = {"dim": dim, "keep_attrs": keep_attrs, "skipna": skipna}
    if not any(map(is_dask_collection, (self.obj, self.weights))):
        return original(self, q, **options)
    if isinstance(self.obj, xr.Dataset):

        def of_variable(array: xr.DataArray) -> xr.DataArray:
            answer: xr.DataArray = quantile(original, array.weighted(self.weights), q, **options)
            return answer

        return self.obj.map(of_variable, keep_attrs=keep_attrs)
    if self.obj.dtype.kind not in "iuf":
        return original(self, q, **options)
    array, weights = xr.align(self.obj, self.weights, join="inner", copy=False)
    array = array.broadcast_like(weights)
    how: dict[str, Any] = {"method": "linear", "where": weights != 0}
    skips = array.dtype.kind == "f" and skipna is not False
    if array.dtype.kind == "f" and not skips:
        # For xarray, a NaN of weight 0 makes the answer NaN too.
        how["where"] = how["where"] | array.isnull()
        weights = weights.where(array.notnull(), 1)
    function = quantiles.nanquantile if skips else quantiles.quantile
    keeps = keeps_attrs_by_default() if keep_attrs is None else keep_attrs
    shares = np.atleast_1d(np.asarray(q, np.float64))
    answer = answered(array, function, dim, how | {"weights": weights, "keep_attrs": keeps}, shares)
    return answer.squeeze()


# --- Groups ---------------------------------------------------------------------------------------


OURS = {
    "median": {"dim", "skipna", "keep_attrs"},
    "quantile": {"q", "dim", "skipna", "keep_attrs", "method"},
}
TAKEN = {"median": {*"biufSU"}, "quantile": {*"iuf"}}
"""Kinds of dtypes for which the answers equal xarray's. For a dataset, xarray leaves strings out of
medians, and raises for quantiles of bool, which this package leaves out."""


def _home(kind: type, name: str) -> type:
    """Return the class that defines a method that others inherit."""
    return next(each for each in kind.__mro__ if name in vars(each))


_KINDS = (DataArrayGroupBy, DatasetGroupBy, DataArrayResample, DatasetResample)


def _of_groups(original: Any, self: Any, *args: Any, **how: Any) -> Any:
    """Replace a method of xarray's groups.

    It calls this package for lazy data. dask has no median of groups, and flox only if chunks match
    the groups.
    """
    name = original.__name__
    obj = grouped_object(self)
    variables = obj.data_vars.values() if isinstance(obj, xr.Dataset) else [obj]
    if not any(is_dask_collection(each.data) for each in (*variables, self.encoded.codes)):
        return original(self, *args, **how)
    groups = groups_of(self)
    dim = how.get("dim", args[-1] if len(args) > (name == "quantile") else None)
    dims = set(all_dims(dim, obj, groups))
    kinds = {each.dtype.kind for each in variables if not dims.isdisjoint(each.dims)}
    is_ours = how.keys() <= OURS[name] and dims >= {*groups.dims} and kinds <= TAKEN[name]
    if is_ours:
        return getattr(ExactGroupBy(obj, groups), name)(*args, **how)
    # With flox the answer would be wrong where chunks do not match the groups.
    with xr.set_options(use_flox=False):  # type: ignore[no-untyped-call]
        return original(self, *args, **how)


for _name in OURS:
    replaces(_name, *{_home(kind, _name) for kind in _KINDS})(_of_groups)
