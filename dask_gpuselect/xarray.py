"""Quantiles and box plots of xarray's objects, by an accessor: ``import dask_gpuselect.xarray``,
``a.exact``.

For `median` and `quantile` of all elements none is needed: while `dask_gpuselect.enable` is in
force, xarray's own lead to ours, for it asks NumPy, which asks dask. So does
``a.weighted(w).quantile(q)``, once this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import wraps
from typing import Any

import numpy as np
import xarray as xr
from dask.base import is_dask_collection

from dask_gpuselect.arguments import check_known
from dask_gpuselect.boxplot import describe as boxplot
from dask_gpuselect.boxplot.summary import Boxplot
from dask_gpuselect.methods import also_replace
from dask_gpuselect.quantiles import functions as quantiles
from dask_gpuselect.robust import spread

try:
    from xarray.computation.weighted import Weighted
except ImportError:  # before 2025.4
    from xarray.core.weighted import Weighted  # type: ignore[import-not-found, no-redef]

Dims = str | Iterable[Hashable] | None

# --- Quantiles ------------------------------------------------------------------------------------


def _reducing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The method that answers for a DataArray, or for each numeric variable of a Dataset."""

    def method(self: Any, dim: Dims = None, **how: Any) -> Any:
        return self._reduced(function, dim, how)

    return _told(method, function, "")


def _reducing_by_q(function: Callable[..., Any], scale: int = 1) -> Callable[..., Any]:
    """The same for a function of q, whose answers have a coordinate "quantile"."""

    def method(self: Any, q: Any, dim: Dims = None, **how: Any) -> Any:
        return self._reduced(function, dim, how, q, scale)

    return _told(method, function, "q, ")


def _told(method: Any, function: Callable[..., Any], more: str) -> Callable[..., Any]:
    name = function.__name__
    method.__name__, method.__qualname__ = name, f"exact.{name}"
    method.__doc__ = f"""`dask_gpuselect.{name}` along dimensions: ``exact.{name}({more}dim=None)``.

    Parameters
    ----------
    {"q : float or 1-D array_like of floats" if more else "..."}
    dim : str or iterable of hashable, optional
        To reduce; all by default.
    where, weights : DataArray or array, optional
        A DataArray has the same labels as the data, and is broadcast by the names of its
        dimensions.
    keep_attrs : bool, optional
        As of xarray's own functions: by default as its options say, and otherwise True.
    **how
        For `dask_gpuselect.{name}`: `nodata`, for instance. The attributes ``_FillValue`` and
        ``missing_value`` are not looked at.

    Returns
    -------
    DataArray or Dataset
        Lazy if the data or one of their companions are.
    """.replace("    ...\n", "")
    return method  # type: ignore[no-any-return]


class _Reductions:
    """What DataArrays and Datasets have in common."""

    median = _reducing(quantiles.median)
    nanmedian = _reducing(quantiles.nanmedian)
    quantile = _reducing_by_q(quantiles.quantile)
    nanquantile = _reducing_by_q(quantiles.nanquantile)
    percentile = _reducing_by_q(quantiles.percentile, 100)
    nanpercentile = _reducing_by_q(quantiles.nanpercentile, 100)
    mad = _reducing(spread.mad)
    nanmad = _reducing(spread.nanmad)
    iqr = _reducing(spread.iqr)
    naniqr = _reducing(spread.naniqr)


def _answered(
    array: xr.DataArray,
    function: Callable[..., Any],
    dim: Dims,
    how: Mapping[str, Any],
    q: Any = None,
    scale: int = 1,
) -> xr.DataArray:
    """What a function of arrays answers, with the dimensions and coordinates that are left."""
    asked = dict(how)
    keeps_attrs = asked.pop("keep_attrs", None)
    check_known(keeps_attrs, "keep_attrs")
    if not asked.keys().isdisjoint({"axis", "keepdims"}):
        raise TypeError("a DataArray is reduced along dim, and keeps none of those")
    dims = _reduced(dim, array.dims)
    kept = [name for name in array.dims if name not in dims]
    asked |= _companions(array, asked)
    axes = tuple(array.get_axis_num(name) for name in dims)
    found = function(array.data, *([] if q is None else [q]), axis=axes, **asked)
    lost = [name for name, each in array.coords.items() if not set(each.dims) <= set(kept)]
    result = xr.DataArray(
        found,
        dims=["quantile", *kept] if np.ndim(q) else kept,
        coords=array.drop_vars(lost).coords,
        name=array.name,
    )
    if keeps_attrs is None:
        keeps_attrs = xr.get_options()["keep_attrs"] is not False  # type: ignore[no-untyped-call]
    if keeps_attrs:
        result.attrs = dict(array.attrs)
    if q is None:
        return result
    shares = np.asarray(q, np.float64) / scale
    return result.assign_coords(quantile=("quantile", shares) if shares.ndim else shares)


def _companions(array: xr.DataArray, how: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that are DataArrays, as arrays that go with the data."""
    ways = {"where": _expanded, "weights": _whole}
    return {
        name: lay(_aligned(how[name], array, name), array)
        for name, lay in ways.items()
        if isinstance(how.get(name), xr.DataArray)
    }


def _aligned(companion: xr.DataArray, array: xr.DataArray, name: str) -> xr.DataArray:
    """A companion with its dimensions in the order of the data's."""
    unknown = [dim for dim in companion.dims if dim not in array.dims]
    if unknown:
        raise ValueError(f"{name} has dimensions {unknown}, which the data lack: {array.dims}")
    _, companion = xr.align(array, companion, join="exact", copy=False)
    return companion.transpose(*(dim for dim in array.dims if dim in companion.dims))


def _expanded(companion: xr.DataArray, array: xr.DataArray) -> Any:
    """The data of a companion, of size 1 along the dimensions that it lacks."""
    index = tuple(slice(None) if dim in companion.dims else None for dim in array.dims)
    return companion.data[index]


def _whole(companion: xr.DataArray, array: xr.DataArray) -> Any:
    """The data of a companion in the shape of the array; they stay small until they are read."""
    if is_dask_collection(array.data) and not is_dask_collection(companion.data):
        companion = companion.chunk()
    return companion.broadcast_like(array).transpose(*array.dims).data


# --- Accessors ------------------------------------------------------------------------------------


class ExactDataArray(_Reductions):
    """Exact quantiles and box plots of a DataArray: ``a.exact``.

    Parameters
    ----------
    array : DataArray
        Of any chunks, NumPy or CuPy, or in memory.

    Examples
    --------
    >>> import xarray as xr
    >>> import dask_gpuselect.xarray
    >>> years = {"year": [2024, 2025]}
    >>> a = xr.DataArray([[1, 2, 3], [4, 5, 9]], dims=("year", "day"), coords=years)
    >>> boxes = a.chunk(day=2).exact.describe_boxplot("day").compute()
    >>> boxes["2025"].med
    5.0
    """

    def __init__(self, array: xr.DataArray) -> None:
        self._array = array

    def _reduced(self, function: Any, dim: Dims, how: Mapping[str, Any], *q: Any) -> xr.DataArray:
        return _answered(self._array, function, dim, how, *q)

    def describe_boxplot(self, dim: Dims = None, **how: Any) -> Boxplot:
        """A box for every lane along some dimensions.

        Parameters
        ----------
        dim : str or iterable of hashable, optional
            To reduce; all by default.
        **how
            For `dask_gpuselect.describe_boxplot`. A `where` and `weights` that are DataArrays have
            the same labels as the data, and are broadcast by the names of their dimensions.

        Returns
        -------
        Boxplot
            Lazy if the array is. Labels are those of a coordinate, where one dimension is left.

        Raises
        ------
        ValueError
            For unknown dimensions, and as `dask_gpuselect.describe_boxplot`.
        """
        dims = _reduced(dim, self._array.dims)
        kept = [name for name in self._array.dims if name not in dims]
        if len(kept) == 1 and _is_known(self._array, kept[0]):
            how.setdefault("labels", [str(label) for label in self._array[kept[0]].values])
        axes = tuple(self._array.get_axis_num(name) for name in dims)
        how |= _companions(self._array, how)
        return boxplot.describe_boxplot(self._array.data, axes, **how)


class ExactDataset(_Reductions):
    """Exact quantiles and box plots of the numeric variables of a Dataset: ``ds.exact``.

    Parameters
    ----------
    dataset : Dataset
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def _reduced(self, function: Any, dim: Dims, how: Mapping[str, Any], *q: Any) -> xr.Dataset:
        """Of each numeric variable, along those of the dimensions that it has."""
        dims = _reduced(dim, tuple(self._dataset.dims))
        found = {
            name: _answered(array, function, [each for each in dims if each in array.dims], how, *q)
            for name, array in self._dataset.data_vars.items()
            if array.dtype.kind in "iuf" and not set(dims).isdisjoint(array.dims)
        }
        return xr.Dataset(found, attrs=self._dataset.attrs)

    def describe_boxplot(self, **how: Any) -> Boxplot:
        """A box for each numeric variable, of all its elements; what they have in common is loaded
        for all of them together.

        Parameters
        ----------
        **how
            For `dask_gpuselect.describe_boxplot`, but no `axis`: of lanes, describe the variables
            one by one. A `where` and `weights` that are DataArrays go with each variable by the
            names of their dimensions, all of which it must have.

        Returns
        -------
        Boxplot
            With the names of the variables.
        """
        if "axis" in how or "dim" in how:
            raise TypeError("all elements of each variable: for lanes, describe them one by one")
        arrays = {
            str(name): array
            for name, array in self._dataset.data_vars.items()
            if array.dtype.kind in "iuf"
        }
        named = {name: _companions(array, how) for name, array in arrays.items()}
        for each in {"where", "weights"} & next(iter(named.values()), {}).keys():
            how[each] = {name: companions[each] for name, companions in named.items()}
        return boxplot.describe_boxplot({name: a.data for name, a in arrays.items()}, **how)


def _is_known(array: xr.DataArray, name: Hashable) -> bool:
    """Whether there is a coordinate of that name, and it is not lazy."""
    return name in array.coords and not is_dask_collection(array.coords[name])


def _reduced(dim: Dims, known: tuple[Hashable, ...]) -> list[Hashable]:
    check_known(dim, "dim")
    dims: list[Hashable] = [*known] if dim is None else [dim] if isinstance(dim, str) else [*dim]
    unknown = [name for name in dims if name not in known]
    if unknown:
        raise ValueError(f"{unknown} not found in array dimensions {known}")
    return dims


# --- Weighted quantiles, while ours are in the place of xarray's ----------------------------------


def _routed_weighted(original: Callable[..., xr.DataArray]) -> Callable[..., xr.DataArray]:
    """Ours for lazy arrays, whose chunked dimensions xarray's own does not take."""

    @wraps(original)
    def weighted_quantile(
        self: Any, da: xr.DataArray, q: Any, dim: Dims = None, skipna: bool | None = None
    ) -> xr.DataArray:
        is_lazy = any(is_dask_collection(each.data) for each in (da, self.weights))
        if not is_lazy or da.dtype.kind not in "iuf":
            return original(self, da, q, dim, skipna)
        array, weights = xr.align(da, self.weights, join="inner", copy=False)
        array = array.broadcast_like(weights)
        how: dict[str, Any] = {"method": "linear", "where": weights != 0}
        skips = da.dtype.kind == "f" and skipna is not False
        if da.dtype.kind == "f" and not skips:
            # To xarray a NaN of weight 0 is one, too.
            how["where"] = how["where"] | array.isnull()
            weights = weights.where(array.notnull(), 1)
        function = quantiles.nanquantile if skips else quantiles.quantile
        shares = np.atleast_1d(np.asarray(q, np.float64))
        how |= {"weights": weights, "keep_attrs": _keeps_attrs()}
        found = _answered(array, function, dim, how, shares)
        return found.squeeze()

    return weighted_quantile


def _keeps_attrs() -> bool:
    """Whether xarray's functions keep attributes, by its options and the default of its version."""
    return bool(xr.apply_ufunc(np.negative, xr.DataArray(0, attrs={"kept": True})).attrs)


also_replace(Weighted, "_weighted_quantile", _routed_weighted)

xr.register_dataarray_accessor("exact")(ExactDataArray)  # type: ignore[no-untyped-call]
xr.register_dataset_accessor("exact")(ExactDataset)  # type: ignore[no-untyped-call]
