"""Statistics of DataArrays and Datasets along dimensions, with names and coordinates."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np
import xarray as xr
from dask.base import is_dask_collection

from dask_gpuselect.arguments import check_known, too_many, unexpected
from dask_gpuselect.maths.ranks import check_method
from dask_gpuselect.quantiles import functions as quantiles
from dask_gpuselect.quantiles.documentation import public_name
from dask_gpuselect.robust import spread, trimmed

Dims = Hashable | Iterable[Hashable] | None
"""A dimension or several; None and ``...`` are all of them."""


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(quantiles.median, quantiles.nanmedian),
        *(quantiles.quantile, quantiles.nanquantile),
        *(quantiles.percentile, quantiles.nanpercentile),
        *(spread.mad, spread.nanmad),
        *(spread.iqr, spread.naniqr),
        *(trimmed.trimmed_mean, trimmed.nantrimmed_mean),
    )
}
"""The functions that answer for labelled arrays, by their names."""


def function_for(statistic: str, dtype: np.dtype[Any], skipna: bool | None) -> str:
    """Return the name of a statistic's function: by default floats skip NaN, as in xarray."""
    skips = dtype.kind == "f" if skipna is None else skipna
    return f"nan{statistic}" if skips and f"nan{statistic}" in FUNCTIONS else statistic


KINDS = {"mad": "biuf", "trimmed_mean": "biuf", "iqr": "iuf", "describe_boxplot": "iuf"}
"""Kinds of dtypes that a function supports in a Dataset, if not `NUMBERS`."""

NUMBERS = "biufm"
"""Kinds of numbers for xarray, which counts bool and time differences as numbers, but not dates."""


def is_answered(function: str, dtype: np.dtype[Any], method: str = "linear") -> bool:
    """Return whether a variable of a Dataset is part of an answer, of groups or not.

    `function` is the name of a function or method. A DataArray is answered whatever its dtype is.
    """
    if function.endswith(("quantile", "percentile")) and dtype.kind == "b":
        return check_method(method).discrete
    return dtype.kind in KINDS.get(function, NUMBERS)


OWN = "skipna", "keep_attrs"
"""Parameters of methods for labelled arrays that functions of arrays lack."""


def documented(
    method: Any, function: Callable[..., Any], owner: str, scope: tuple[str, str]
) -> Callable[..., Any]:
    """Give a method for labelled arrays its name, its docstring and errors that have its name.

    Parameters
    ----------
    method : callable
        Takes `dim`, and maybe q before it.
    function : callable
        The function of arrays.
    owner : str
        The object with the method, as in ``exact.median``.
    scope : tuple of two str
        What is answered, and which dimensions are reduced by default.
    """
    name, full = function.__name__, public_name(function)
    signature, others = inspect.signature(method), inspect.signature(function).parameters
    is_weighted, has_q = "weights" in others, "q" in signature.parameters
    positional = ["q", "dim"] if has_q else ["dim"]
    by_name = [each for each in [*others][1:] if each not in ("q", "axis", "keepdims")]
    method.__name__, method.__qualname__ = name, f"{owner}.{name}"

    @wraps(method)
    def checked(self: Any, *args: Any, **how: Any) -> Any:
        if len(args) > len(positional):
            raise too_many(name, positional, [*by_name, *OWN])
        for each in how:
            if each not in (*others, *positional, *OWN):
                raise unexpected(name, each)
        return method(self, *args, **how)

    words = {
        "full": full,
        "called": f"``{owner}.{name}({'q, ' if has_q else ''}dim=None)``",
        "answered": scope[0],
        "default": scope[1],
        "companions": "where, weights" if is_weighted else "where",
        "skipped": "" if name.startswith("nan") else " of floating-point data, as in xarray",
        "lazy": "one of these arguments" if is_weighted else "`where`",
    }
    text = inspect.getdoc(_along_dimensions) or ""  # `python -OO` leaves none
    q = "q : float or 1-D array_like of floats\n" if has_q else ""
    checked.__doc__ = text.format(**words).replace("...\n", q, 1)
    return checked


def _along_dimensions() -> None:
    """Compute `{full}` {answered}: {called}.

    Parameters
    ----------
    ...
    dim : hashable, iterable of hashable or ..., optional
        Dimensions to reduce; {default}.
    skipna : bool, optional
        Whether NaN and NaT are left out. Otherwise one of them makes the answer missing. By default
        they are left out{skipped}.
    {companions} : DataArray or array, optional
        A DataArray has the labels of the data, and is broadcast by the names of its dimensions.
    keep_attrs : bool, optional
        Whether attributes are kept: by default as xarray's options say, and otherwise True.
    **how
        Other arguments of `{full}`. The attributes ``_FillValue`` and ``missing_value`` are not
        used.

    Returns
    -------
    DataArray or Dataset
        Lazy if the data or {lazy} is.
    """


def answered(
    array: xr.DataArray,
    function: Callable[..., Any],
    dim: Dims,
    how: Mapping[str, Any],
    q: Any = None,
    scale: int = 1,
) -> xr.DataArray:
    """Apply a function of arrays along dimensions; keep the other dimensions and coordinates."""
    arguments = dict(how)
    keeps_attrs = arguments.pop("keep_attrs", None)
    if unexpected := sorted(arguments.keys() & {"axis", "keepdims"}):
        raise TypeError(
            f"{unexpected[0]} is not supported for xarray objects: pass dim=, the names of the "
            "dimensions to reduce"
        )
    shares = None if q is None else shares_of(q, scale)
    dims = reduced_dims(dim, array.dims)
    left = [name for name in array.dims if name not in dims]
    arguments |= companions_of(array, arguments)
    axes = tuple(map(array.dims.index, dims))
    answer = function(array.data, *([] if q is None else [q]), axis=axes, **arguments)
    return labelled(answer, array, left, dims, shares, keeps_attrs=keeps(keeps_attrs))


def shares_of(q: Any, scale: int = 1) -> Any:
    """Return q in [0, 1], a scalar if it is one, or raise before anything is read."""
    check_known(q, "q")  # NumPy would compute a lazy one
    shares, is_scalar = quantiles.probabilities(q, scale)
    return shares[0] if is_scalar else shares


def labelled(
    answer: Any,
    array: xr.DataArray,
    dims: Sequence[Hashable],
    reduced: Sequence[Hashable],
    shares: Any = None,
    *,
    keeps_attrs: bool,
) -> xr.DataArray:
    """Return an answer about an array, with the name and the coordinates of that.

    Parameters
    ----------
    answer : array
        With an axis for q in front if there are several.
    array : DataArray
        The data.
    dims : sequence of hashable
        Names of the other axes.
    reduced : sequence of hashable
        Dimensions of the data. Coordinates along one of them are left out.
    shares : ndarray, optional
        The q, in [0, 1].
    keeps_attrs : bool
        True if attributes are kept.
    """
    lost = [name for name, each in array.coords.items() if not {*reduced}.isdisjoint(each.dims)]
    result = xr.DataArray(
        answer,
        dims=["quantile", *dims] if np.ndim(shares) else dims,
        coords=array.drop_vars(lost).coords,
        attrs=array.attrs if keeps_attrs else None,
    )
    result.name = array.name  # without one, xarray takes that of the dask array
    if shares is None:
        return result
    return result.assign_coords(quantile=("quantile", shares) if np.ndim(shares) else shares)


def companions_of(array: xr.DataArray, how: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are DataArrays as arrays with the axes of the data."""
    ways = {"where": _expanded, "weights": _whole}
    return {
        name: lay(_aligned(how[name], array, name), array)
        for name, lay in ways.items()
        if isinstance(how.get(name), xr.DataArray)
    }


def _aligned(companion: xr.DataArray, array: xr.DataArray, name: str) -> xr.DataArray:
    """Return a mask or weights with dimensions in the order of the data's, or raise."""
    unknown = [dim for dim in companion.dims if dim not in array.dims]
    if unknown:
        raise ValueError(
            f"{name} has dimensions {unknown}, and the data have {array.dims}: pass {name} without "
            "them"
        )
    _, companion = xr.align(array, companion, join="exact", copy=False)
    return companion.transpose(*(dim for dim in array.dims if dim in companion.dims))


def _expanded(companion: xr.DataArray, array: xr.DataArray) -> Any:
    """Return the data of a mask, of size 1 along the dimensions that it lacks."""
    index = tuple(slice(None) if dim in companion.dims else None for dim in array.dims)
    return companion.data[index]


def _whole(companion: xr.DataArray, array: xr.DataArray) -> Any:
    """Return the data of weights in the shape of the array; they stay small until they are read."""
    if is_dask_collection(array.data) and not is_dask_collection(companion.data):
        companion = companion.chunk()
    return companion.broadcast_like(array).transpose(*array.dims).data


def reduced_dims(dim: Dims, known: tuple[Hashable, ...]) -> list[Hashable]:
    """Return the dimensions to reduce as a list, or raise if one does not exist."""
    check_known(dim, "dim")
    dims: list[Hashable]
    if dim is None or dim is ...:
        dims = [*known]
    elif isinstance(dim, str) or not isinstance(dim, Iterable):
        dims = [dim]
    else:  # a tuple is the name of a dimension only if there is one
        dims = [dim] if isinstance(dim, Hashable) and dim in known else [*dim]
    unknown = [name for name in dims if name not in known]
    if unknown:
        raise ValueError(f"{unknown} not found in array dimensions {known}")
    return dims


def keeps(keep_attrs: bool | None) -> bool:
    """Return whether attributes are kept: by default as xarray's options say, otherwise True."""
    check_known(keep_attrs, "keep_attrs")
    if keep_attrs is not None:
        return keep_attrs
    return xr.get_options()["keep_attrs"] is not False  # type: ignore[no-untyped-call]


def unchanged(array: xr.DataArray, *, keeps_attrs: bool) -> xr.DataArray:
    """Return a variable that lacks the dimensions, without its attributes unless they are kept."""
    if keeps_attrs:
        return array
    bare = array.copy(deep=False)
    bare.attrs = {}
    return bare


def keeps_attrs_by_default() -> bool:
    """Return whether xarray keeps attributes, by its options and its version's default."""
    return bool(xr.apply_ufunc(np.negative, xr.DataArray(0, attrs={"kept": True})).attrs)
