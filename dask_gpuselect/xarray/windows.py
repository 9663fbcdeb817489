"""Moving windows of DataArrays and Datasets: ``a.exact.rolling(time=31)``.

xarray finds the dimensions of the windows; `dask_gpuselect.windows.rolling` computes the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import xarray as xr
from dask.base import is_dask_collection

from dask_gpuselect.arguments import check_known
from dask_gpuselect.optional import Advising, its_own
from dask_gpuselect.routing import replacements
from dask_gpuselect.windows import Rolling, rolling
from dask_gpuselect.xarray.reductions import companions_of, is_answered, keeps

try:
    from xarray.computation.rolling import DataArrayRolling, DatasetRolling
except ImportError:  # before 2025.4
    from xarray.core.rolling import (  # type: ignore[import-not-found, no-redef]
        DataArrayRolling,
        DatasetRolling,
    )


class ExactRolling(Advising):
    """Exact statistics of moving windows, as of xarray's ``a.rolling(...)``.

    NaN are left out. The answer for a window with fewer than `min_periods` other elements, by
    default its size, is NaN. The label of a window is that of its last element, or of its middle.
    For a Dataset, numeric variables are answered; those without these dimensions are kept.

    Parameters
    ----------
    windows : DataArrayRolling or DatasetRolling
        The result of xarray's `rolling`.
    **how
        For `dask_gpuselect.windows.rolling`: `boundary`, `where` and `nodata`.
    """

    def __init__(self, windows: Any, **how: Any) -> None:
        self._windows, self._how = windows, how

    def __repr__(self) -> str:
        sizes = dict(zip(self._windows.dim, self._windows.window, strict=True))
        return f"<exact statistics of moving windows of {sizes}>"

    def _advice(self, name: str) -> str:
        return its_own(self._windows, name, "a.rolling(...)") or super()._advice(name)

    def median(self, *, keep_attrs: bool | None = None) -> Any:
        """Return the median of each window."""
        return self._answered("median", Rolling.nanmedian, keep_attrs)

    def quantile(self, q: Any, *, method: str = "linear", keep_attrs: bool | None = None) -> Any:
        """Return quantiles of each window; for several q, a dimension "quantile" comes first."""
        check_known(q, "q")
        if np.ndim(q) > 1:
            raise ValueError(f"q must be a scalar or one-dimensional, not of shape {np.shape(q)}")

        def ask(windows: Rolling) -> Any:
            return windows.nanquantile(q, method=method)

        found = self._answered("quantile", ask, keep_attrs, method)
        shares = np.asarray(q, np.float64)
        return found.assign_coords(quantile=("quantile", shares) if shares.ndim else shares)

    def mad(self, *, scale: float | str = "normal", keep_attrs: bool | None = None) -> Any:
        """Return the median absolute deviation of each window: see `dask_gpuselect.robust.mad`."""
        return self._answered("mad", lambda windows: windows.nanmad(scale=scale), keep_attrs)

    def iqr(self, *, method: str = "linear", keep_attrs: bool | None = None) -> Any:
        """Return the interquartile range of each window."""
        return self._answered("iqr", lambda windows: windows.naniqr(method=method), keep_attrs)

    def min(self, *, keep_attrs: bool | None = None) -> Any:
        """Return the minimum of each window."""
        return self._answered("min", Rolling.nanmin, keep_attrs)

    def max(self, *, keep_attrs: bool | None = None) -> Any:
        """Return the maximum of each window."""
        return self._answered("max", Rolling.nanmax, keep_attrs)

    def count(self, *, keep_attrs: bool | None = None) -> Any:
        """Return the number of elements of each window that are not NaN, as int64."""
        return self._answered("count", Rolling.count, keep_attrs)

    def _answered(
        self,
        name: str,
        ask: Callable[[Rolling], Any],
        keep_attrs: bool | None,
        method: str = "linear",
    ) -> Any:
        """Ask for a statistic of a DataArray, or of the variables of a Dataset."""
        obj = self._windows.obj
        if isinstance(obj, xr.DataArray):
            return self._of_array(obj, ask, keep_attrs)
        found = {
            key: self._of_array(array, ask, keep_attrs)
            if any(dim in array.dims for dim in self._windows.dim)
            else array
            for key, array in obj.data_vars.items()
            if is_answered(name, array.dtype, method)
            or not any(dim in array.dims for dim in self._windows.dim)
        }
        return xr.Dataset(found, attrs=obj.attrs if keeps(keep_attrs) else None)

    def _of_array(
        self, array: xr.DataArray, ask: Callable[[Rolling], Any], keep_attrs: bool | None
    ) -> xr.DataArray:
        """Ask for a statistic of a DataArray."""
        about = zip(self._windows.dim, self._windows.window, self._windows.center, strict=True)
        own = {array.dims.index(dim): (n, mid) for dim, n, mid in about if dim in array.dims}
        sizes = {axis: int(n) for axis, (n, _) in own.items()}
        how = {**self._how, **companions_of(array, self._how)}
        least = self._windows.min_periods
        if isinstance(self._windows.obj, xr.Dataset) and len(own) < len(self._windows.dim):
            least = min(least, int(np.prod(list(sizes.values()))))
        middle = [mid for _, mid in own.values()]
        found = ask(rolling(array.data, sizes, center=middle, min_periods=int(least), **how))
        more = ["quantile"] * (found.ndim - array.ndim)
        result = xr.DataArray(found, dims=(*more, *array.dims), coords=array.coords)
        result.name = array.name
        if keeps(keep_attrs):
            result.attrs = dict(array.attrs)
        return result


# --- xarray's own methods, while enabled ----------------------------------------------------------


def _routed(name: str) -> Callable[[Any], Any]:
    """Return a function that replaces a method of xarray's windows, for lazy arrays of numbers."""

    def routed(original: Callable[..., Any] | None) -> Callable[..., Any]:
        ours = getattr(ExactRolling, name)

        @wraps(original or ours)
        def method(self: Any, *args: Any, **how: Any) -> Any:
            obj = self.obj
            variables = obj.data_vars.values() if isinstance(obj, xr.Dataset) else [obj]
            some = [each for each in variables if any(dim in each.dims for dim in self.dim)]
            is_ours = any(is_dask_collection(each.data) for each in some) and all(
                each.dtype.kind in "iuf" for each in some
            )
            if original is None or (is_ours and not args and how.keys() <= {"keep_attrs"}):
                return ours(ExactRolling(self), *args, **how)
            return original(self, *args, **how)

        return method

    return routed


for _owner in (DataArrayRolling, DatasetRolling):
    for _name in ("median", "quantile"):
        replacements.add(_owner, _name, _routed(_name))
