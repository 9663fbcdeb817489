"""Moving windows of DataArrays and Datasets: ``a.exact.rolling(time=31)``.

xarray finds the dimensions of the windows; `dask_gpuselect.windows.rolling` computes the answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import Any

import numpy as np
import xarray as xr
from dask.base import is_dask_collection

from dask_gpuselect.arguments import public
from dask_gpuselect.optional import Advising, its_own
from dask_gpuselect.quantiles.documentation import as_method
from dask_gpuselect.routing import replaces
from dask_gpuselect.windows import Rolling, rolling
from dask_gpuselect.xarray.reductions import (
    companions_of,
    is_answered,
    keeps,
    labelled,
    shares_of,
    unchanged,
)

try:
    from xarray.computation.rolling import DataArrayRolling, DatasetRolling
except ImportError:  # before 2025.4
    from xarray.core.rolling import DataArrayRolling, DatasetRolling  # type: ignore[import-not-found, no-redef]


KEEP_ATTRS = inspect.Parameter("keep_attrs", inspect.Parameter.KEYWORD_ONLY, default=None)


def _statistic(statistic: str, about_it: str) -> Callable[..., Any]:
    """Return the method for a statistic of each window, by its name in `Rolling`."""

    def method(
        self: ExactRolling, q: Any = None, *, keep_attrs: bool | None = None, **how: Any
    ) -> Any:
        shares = None
        if statistic == "quantile":
            how["q"], shares = q, shares_of(q)
        return self._answered(statistic, keep_attrs, how, shares)

    every, summary = getattr(Rolling, statistic), f"Return {about_it}."
    return public()(as_method(method, every, "ExactRolling", summary, more=[KEEP_ATTRS]))


class ExactRolling(Advising):
    """Moving windows of a DataArray or a Dataset, made by ``a.exact.rolling(time=31)``.

    NaN are left out. The answer of a window with fewer than `min_periods` other elements is NaN; by
    default, `min_periods` is the size of the window. A window has the label of its last element, or
    of its middle with ``center=True``. For a Dataset, the methods answer for each numeric variable,
    and variables without these dimensions are unchanged.

    Parameters
    ----------
    windows : DataArrayRolling or DatasetRolling
        The result of xarray's `rolling`.
    **how
        For `dask_gpuselect.windows.rolling`: `boundary`, `where` and `nodata`.

    See Also
    --------
    dask_gpuselect.windows.rolling : Moving windows of dask arrays.

    Notes
    -----
    Reads and memory: as for `dask_gpuselect.windows.rolling`. Each chunk is read once.

    Examples
    --------
    >>> import xarray as xr
    >>> import dask_gpuselect.xarray
    >>> a = xr.DataArray([5.0, 1.0, 4.0, 9.0], dims="day").chunk(day=2)
    >>> a.exact.rolling(day=3, center=True, min_periods=2).median().values
    array([3. , 4. , 4. , 6.5])
    """

    def __init__(self, windows: Any, **how: Any) -> None:
        self._windows, self._how = windows, how

    def __repr__(self) -> str:
        sizes = dict(zip(self._windows.dim, self._windows.window, strict=True))
        return f"<exact statistics of moving windows of {sizes}>"

    def _advice(self, name: str) -> str:
        return its_own(type(self._windows), name, "a.rolling(...)") or super()._advice(name)

    median = _statistic("median", "the median of each window")
    quantile = _statistic(
        "quantile",
        'quantiles of each window; for several q, a dimension "quantile" comes first',
    )
    mad = _statistic("mad", "the median absolute deviation of each window")
    iqr = _statistic("iqr", "the interquartile range of each window")
    min = _statistic("min", "the minimum of each window")
    max = _statistic("max", "the maximum of each window")
    count = _statistic("count", "the number of elements of each window other than NaN")

    def _answered(
        self, statistic: str, keep_attrs: bool | None, how: Mapping[str, Any], shares: Any = None
    ) -> Any:
        """Ask for a statistic of a DataArray, or of the variables of a Dataset."""
        obj, keeps_attrs = self._windows.obj, keeps(keep_attrs)
        valid = getattr(Rolling, f"nan{statistic}", getattr(Rolling, statistic))

        def answered(array: xr.DataArray) -> xr.DataArray:
            answer = valid(self._over(array), **how)
            return labelled(answer, array, array.dims, (), shares, keeps_attrs=keeps_attrs)

        if isinstance(obj, xr.DataArray):
            return answered(obj)
        variables = {}
        for name, array in obj.data_vars.items():
            if set(self._windows.dim).isdisjoint(array.dims):
                variables[name] = unchanged(array, keeps_attrs=keeps_attrs)
            elif is_answered(statistic, array.dtype, how.get("method", "linear")):
                variables[name] = answered(array)
        return xr.Dataset(variables, attrs=obj.attrs if keeps_attrs else None)

    def _over(self, array: xr.DataArray) -> Rolling:
        """Move the windows over a DataArray."""
        about = zip(self._windows.dim, self._windows.window, self._windows.center, strict=True)
        own = {array.dims.index(dim): (n, mid) for dim, n, mid in about if dim in array.dims}
        sizes = {axis: int(n) for axis, (n, _) in own.items()}
        how = {**self._how, **companions_of(array, self._how)}
        least = self._windows.min_periods
        if isinstance(self._windows.obj, xr.Dataset) and len(own) < len(self._windows.dim):
            least = min(least, int(np.prod(list(sizes.values()))))
        middle = [mid for _, mid in own.values()]
        return rolling(array.data, sizes, center=middle, min_periods=int(least), **how)


# --- xarray's own methods, while enabled ----------------------------------------------------------


def _own(name: str, original: Any, self: Any, *args: Any, **how: Any) -> Any:
    """Replace a method of xarray's windows, for lazy arrays of numbers."""
    obj = self.obj
    variables = obj.data_vars.values() if isinstance(obj, xr.Dataset) else [obj]
    some = [each for each in variables if any(dim in each.dims for dim in self.dim)]
    is_ours = any(is_dask_collection(each.data) for each in some) and all(
        each.dtype.kind in "iuf" for each in some
    )
    if original is None or (is_ours and not args and how.keys() <= {"keep_attrs"}):
        return getattr(ExactRolling(self), name)(*args, **how)
    return original(self, *args, **how)


for _name in ("median", "quantile"):
    _like_ours = update_wrapper(partial(_own, _name), getattr(ExactRolling, _name))
    replaces(_name, DataArrayRolling, DatasetRolling)(_like_ours)
