"""Quantiles and box plots of groups: ``a.exact.groupby("time.month")``.

xarray finds the group of each element, and the names of the groups. `dask_gpuselect.groups.groupby`
computes the answers. No elements are loaded before that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from xarray.core.groupby import DataArrayGroupBy

from dask_gpuselect.arguments import check_known
from dask_gpuselect.boxplot.summary import Boxplot
from dask_gpuselect.groups import groupby
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.optional import Advising, its_own
from dask_gpuselect.xarray.reductions import (
    FUNCTIONS,
    answered,
    companions_of,
    documented,
    function_for,
    is_answered,
    keeps,
    keeps_attrs_by_default,
    labelled,
    reduced_dims,
    shares_of,
    unchanged,
)

# --- Groups ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LabelledGroups:
    """The groups of the elements of an object, and the names of the groups.

    Parameters
    ----------
    by : DataArray of int64, or dict of ndarray of int64
        The number of the group of each element, lazy or not; or, for each number, the indices of
        the group's elements along the one dimension.
    dims : tuple of hashable
        The dimensions of the labels.
    numbers : sequence or ndarray of int
        The numbers of the groups that are wanted.
    name : hashable
        The dimension of the groups in an answer before it is finished.
    named : callable
        Replaces that dimension in an answer by the groups' coordinates.
    places : dict
        For dimensions of the finished answer, the dimensions that they replace.
    labels : sequence, ndarray or Index
        The names of the groups.
    """

    by: xr.DataArray | Mapping[int, Any]
    dims: tuple[Hashable, ...]
    numbers: Any
    name: Hashable
    named: Callable[[Any], Any]
    places: Mapping[Hashable, Hashable]
    labels: Any

    def laid_along(self, array: xr.DataArray) -> Any:
        """Return the argument `by` of `groups.groupby`, for an array that has all dimensions."""
        if not isinstance(self.by, xr.DataArray):
            return self.by
        codes = self.by.transpose(*(dim for dim in array.dims if dim in self.dims))
        index = tuple(slice(None) if dim in self.dims else None for dim in array.dims)
        return codes.data if array.ndim == 1 else codes.data[index]

    def expanded(self, array: xr.DataArray) -> xr.DataArray:
        """Repeat an array along the dimensions of the labels that it lacks."""
        missing = [dim for dim in self.dims if dim not in array.dims]
        if missing and isinstance(self.by, xr.DataArray):
            array = array.expand_dims({dim: self.by.sizes[dim] for dim in missing})
        return array

    def ordered(self, array: xr.DataArray, dims: Sequence[Hashable]) -> xr.DataArray:
        """Return a finished answer with its dimensions in xarray's order.

        The dimensions of the groups are in the place of those that they replace, or behind all
        others. The dimension of q is the last one.
        """

        def place(dim: Hashable) -> int:
            dim = self.places.get(dim, dim)
            return dims.index(dim) if dim in dims else len(dims) + (dim == "quantile")

        return array.transpose(*sorted(array.dims, key=place), transpose_coords=False)


def groups_of(grouped: Any) -> LabelledGroups:
    """Return the groups of xarray's ``a.groupby(...)``, `groupby_bins` or `resample`."""
    encoded, groupers = grouped.encoded, grouped.groupers
    codes: xr.DataArray = encoded.codes
    n, n_there = len(encoded.full_index), encoded.unique_coord.size
    # Bins and periods without elements, and combinations, are not among the coordinates yet.
    there = np.arange(n) if n_there == n else np.unique(codes.data[codes.data >= 0])
    (name,) = encoded.unique_coord.dims
    resampled = {each.name: each.codes.dims[0] for each in groupers if each.name == RESAMPLED}
    lines = {each.name: each.codes.dims[0] for each in groupers if each.codes.ndim == 1}
    unnamed = [each.name for each in groupers if not isinstance(each.group, xr.DataArray)]

    def named(answer: Any) -> Any:
        answer = answer.assign_coords(encoded.coords)
        if len(groupers) > 1:
            answer = answer.unstack(name).drop_vars(unnamed, errors="ignore")
        full = {
            each.name: each.full_index
            for each in groupers
            if each.name in answer.indexes
            and (n_there < n or not answer.indexes[each.name].equals(each.full_index))
        }
        return (answer.reindex(full) if full else answer).rename(resampled)

    return LabelledGroups(
        by=codes,
        dims=codes.dims,
        numbers=there,
        name=name,
        named=named,
        places={resampled.get(name, name): dim for name, dim in lines.items()},
        labels=encoded.full_index[there],
    )


def grouped_object(grouped: Any) -> Any:
    """Return the object that xarray's ``a.groupby(...)`` groups, which no public name gives.

    Raises
    ------
    TypeError
        If this version of xarray has another name for it.
    """
    try:
        return grouped._original_obj
    except AttributeError:
        raise TypeError(
            f"{type(grouped).__name__} of xarray {xr.__version__} is not supported while enable() "
            "is active: type a.exact.groupby(...) instead, or dask_gpuselect.disable()"
        ) from None


RESAMPLED = "__resample_dim__"
"""The name that xarray has for the groups of `resample` before they have that of the dimension."""


def all_dims(dim: Any, obj: Any, groups: LabelledGroups) -> list[Hashable]:
    """Return the dimensions to reduce: those of the groups by default, and all of them for ``...``.

    Raises
    ------
    ValueError
        For dimensions that do not exist.
    """
    check_known(dim, "dim")
    known = tuple(dict.fromkeys([*obj.dims, *groups.dims]))
    if dim is None:
        return list(groups.dims)
    return reduced_dims(None if dim is ... else dim, known)


# --- Statistics of groups -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Statistic:
    """A statistic of groups along dimensions, with its arguments.

    Parameters
    ----------
    groups : LabelledGroups
        The groups.
    dims : sequence of hashable
        The reduced dimensions, which include those of the groups.
    name : str
        Name of a method of `GroupBy`, of all elements.
    how : mapping
        Arguments.
    keeps_attrs : bool
        True if attributes are kept.
    skipna : bool, optional
        True if NaN are left out. By default they are left out of floating-point data.
    q : sequence of ndarray
        The shares of quantiles, as the one argument of that name, if there is one.
    is_carried : bool
        True if variables of a dataset that lack the dimensions of the groups are in the answer.
    """

    groups: LabelledGroups
    dims: Sequence[Hashable]
    name: str
    how: Mapping[str, Any]
    keeps_attrs: bool = False
    skipna: bool | None = None
    q: Sequence[Any] = ()
    is_carried: bool = False

    def of_array(self, array: xr.DataArray, dims: Sequence[Hashable]) -> xr.DataArray:
        """Return the answer along dimensions with all groups along one of them."""
        array = self.groups.expanded(array)
        answer = self.answer(array, dims)
        first = min(map(array.dims.index, dims))
        left = [
            self.groups.name if axis == first else dim
            for axis, dim in enumerate(array.dims)
            if axis == first or dim not in dims
        ]
        return labelled(answer, array, left, dims, *self.q, keeps_attrs=self.keeps_attrs)

    def answer(self, array: xr.DataArray, dims: Sequence[Hashable]) -> Any:
        """Return the answer for the groups of an array that has all dimensions."""
        axes, by = tuple(sorted(map(array.dims.index, dims))), self.groups.laid_along(array)
        grouped = groupby(array.data, by, axes, groups=self.groups.numbers)
        name = function_for(self.name, array.dtype, self.skipna)
        how = {**self.how, **companions_of(array, self.how)}
        return getattr(grouped, name)(*self.q, **how)

    def of_variable(self, array: xr.DataArray) -> xr.DataArray | None:
        """Return the answer for a variable of a dataset, which may lack dimensions.

        None if the variable is no part of the answer.
        """
        own = [dim for dim in self.dims if dim in array.dims]
        has_answer = is_answered(self.name, array.dtype, self.how.get("method", "linear"))
        if not set(self.groups.dims).isdisjoint(own):
            dims = [*dict.fromkeys([*self.groups.dims, *own])]
            return self.of_array(array, dims) if has_answer else None
        if not self.is_carried or (own and not has_answer):
            return None
        if self.name == "count":
            array = array.count(own, keep_attrs=self.keeps_attrs)
        elif own:
            function = FUNCTIONS[function_for(self.name, array.dtype, self.skipna)]
            how = {**self.how, "keep_attrs": self.keeps_attrs}
            array = answered(array, function, own, how, *self.q)
        else:
            array = unchanged(array, keeps_attrs=self.keeps_attrs)
        return array.expand_dims({self.groups.name: len(self.groups.numbers)})

    def of(self, obj: Any) -> Any:
        """Return the answer for a DataArray or a Dataset."""
        if isinstance(obj, xr.DataArray):
            answers = self.groups.named(self.of_array(obj, self.dims))
            return self.groups.ordered(answers, self.groups.expanded(obj).dims)
        variables = {}
        for name, array in obj.data_vars.items():
            if (each := self.of_variable(array)) is not None:
                dims = self.groups.name, *({"quantile"} & {*each.dims}), ...
                variables[name] = each.transpose(*dims, transpose_coords=False)
        attrs = obj.attrs if self.keeps_attrs else None
        return self.groups.named(xr.Dataset(variables, attrs=attrs))


def _statistic(name: str, *, is_carried: bool = False) -> Callable[..., Any]:
    """Return the method for a statistic of each group."""

    def method(
        self: ExactGroupBy,
        dim: Any = None,
        *,
        skipna: bool | None = None,
        keep_attrs: bool | None = None,
        **how: Any,
    ) -> Any:
        about = {"skipna": skipna, "is_carried": is_carried, "keeps_attrs": keeps(keep_attrs)}
        return self._along(dim, name, how, **about).of(self._obj)

    scope = "for each group", "those of the groups by default, and others in addition"
    return documented(method, FUNCTIONS[name], "groupby(...)", scope)


class ExactGroupBy(Advising):
    """The groups of a DataArray or a Dataset, made by ``a.exact.groupby("time.month")``.

    Answers have the names, dimensions, coordinates and attributes of those that xarray's own
    `groupby` has for data in memory. NaN are left out of floating-point data unless `skipna` is
    False. Bins, periods and combinations without elements are NaN.

    For a Dataset, each numeric variable is answered. As in xarray, `median`, `quantile` and `count`
    repeat variables that lack the dimensions of the groups, once for each group.

    Parameters
    ----------
    obj : DataArray or Dataset
        The grouped object.
    groups : LabelledGroups
        The group of each element.

    See Also
    --------
    dask_gpuselect.groups.groupby : Groups of dask arrays.

    Notes
    -----
    Reads and memory: as for `dask_gpuselect.groups.groupby`. Chunks need not match groups.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import xarray as xr
    >>> import dask_gpuselect.xarray
    >>> times = pd.date_range("2025-01-30", periods=6, unit="ns")
    >>> a = xr.DataArray(np.arange(6.0), coords={"time": times}, dims="time").chunk(time=4)
    >>> medians = a.exact.groupby("time.month").median()
    >>> medians.month.values, medians.values
    (array([1, 2]), array([0.5, 3.5]))
    """

    def __init__(self, obj: Any, groups: LabelledGroups) -> None:
        self._obj, self._groups = obj, groups

    def __repr__(self) -> str:
        name, n = type(self._obj).__name__, len(self)
        return f"<{n} groups of a {name} along {', '.join(map(str, self._groups.dims))}>"

    def __len__(self) -> int:
        return len(self._groups.labels)

    def _advice(self, name: str) -> str:
        own = its_own(DataArrayGroupBy, name, "a.groupby(...)")
        return (own if isinstance(self._groups.by, xr.DataArray) else "") or super()._advice(name)

    median = _statistic("median", is_carried=True)
    mad = _statistic("mad")
    iqr = _statistic("iqr")
    trimmed_mean = _statistic("trimmed_mean")

    def quantile(
        self,
        q: Any,
        dim: Any = None,
        *,
        skipna: bool | None = None,
        keep_attrs: bool | None = None,
        **how: Any,
    ) -> Any:
        """Return quantiles of each group.

        "quantile" is the last dimension of a DataArray, and the second of a variable of a Dataset.

        Parameters
        ----------
        q : float or 1-D array_like of floats
            In [0, 1].
        dim, skipna
            As for `median`.
        keep_attrs : bool, optional
            Whether attributes are kept: by default as xarray's options say, and otherwise as its
            version does.
        **how
            For `dask_gpuselect.quantile`: `method`, `where`, `weights` and `nodata`.

        Returns
        -------
        DataArray or Dataset
            As for `median`.
        """
        keeps_attrs = keeps_attrs_by_default() if keep_attrs is None else keeps(keep_attrs)
        about = {"keeps_attrs": keeps_attrs, "skipna": skipna, "q": [shares_of(q)]}
        return self._along(dim, "quantile", how, **about, is_carried=True).of(self._obj)

    def count(self, dim: Any = None, *, keep_attrs: bool | None = None, **how: Any) -> Any:
        """Return the number of elements of each group that are not NaN.

        It takes the arguments of `median`. As in xarray, bins and periods without elements are NaN.
        With `where` or `nodata`, variables without the dimensions of the groups are left out.
        """
        about = {"keeps_attrs": keeps(keep_attrs), "is_carried": not how}
        return self._along(dim, "count", how, **about).of(self._obj)

    def describe_boxplot(self, dim: Any = None, **how: Any) -> Boxplot:
        """Return statistics of a box plot for each group that has elements.

        Parameters
        ----------
        dim : str, iterable of hashable or ..., optional
            Dimensions to reduce, as for `median`.
        **how
            For `dask_gpuselect.describe_boxplot`.

        Returns
        -------
        Boxplot
            The groups replace the first reduced dimension. The boxes have the labels of their
            groups.

        Raises
        ------
        TypeError
            For a Dataset.
        """
        if isinstance(self._obj, xr.Dataset):
            raise TypeError(
                "groups of a Dataset have no box plots: type "
                "ds[name].exact.groupby(...).describe_boxplot() for each variable"
            )
        statistic = self._along(dim, "describe_boxplot", how)
        array, dims = self._groups.expanded(self._obj), statistic.dims
        boxes: Boxplot = statistic.answer(array, dims)
        return boxes.of_groups(self._groups.labels, min(map(array.get_axis_num, dims)))

    def _along(self, dim: Any, name: str, how: Mapping[str, Any], **about: Any) -> _Statistic:
        """Return a statistic along dimensions, or raise if these lack some of the groups'."""
        dims = all_dims(dim, self._obj, self._groups)
        left_out = [str(each) for each in self._groups.dims if each not in dims]
        if left_out:
            raise ValueError(
                f"dim must include the dimensions of the groups, and lacks {left_out}: add "
                "them, or leave out dim"
            )
        return _Statistic(self._groups, dims, name, how, **about)


# --- Days of the year with the days around them ---------------------------------------------------


def groups_of_days(obj: Any, dim: Hashable, window: int) -> LabelledGroups:
    """Return the groups of `exact.groupby_dayofyear`."""
    check_known(dim, "dim")
    check_known(window, "window")
    size = operator.index(window)
    if size < 1:
        raise ValueError(f"window must be at least 1, not {window}")
    days, first = _days(obj[dim])
    numbers = np.unique(days)
    before, n = size // 2, len(days)
    around = np.arange(-before, size - before)
    windows: dict[int, IntArray] = {}
    for number in numbers:
        at = np.flatnonzero(days == number)
        if len(at) > 1 and np.diff(at).min() < size:
            raise ValueError(
                f"window must be smaller than {window}: windows around the same day of two years "
                "overlap"
            )
        near = (at[:, None] + around).ravel()
        near = near[(near >= 0) & (near < n)]
        steps = [np.arange(first[day], first[day + 1]) for day in near]
        windows[int(number)] = np.concatenate(steps)

    def named(answer: Any) -> Any:
        return answer.assign_coords({NAME: numbers})

    return LabelledGroups(
        by=windows,
        dims=(dim,),
        numbers=list(windows),
        name=NAME,
        named=named,
        places={NAME: dim},
        labels=numbers,
    )


NAME = "dayofyear"


def _days(times: xr.DataArray) -> tuple[IntArray, IntArray]:
    """Return the day of the year of each day that has steps, and the place of its first step.

    Behind the last place is the number of steps.
    """
    steps: Any = times.to_index() if times.ndim == 1 else None
    if not hasattr(steps, "year"):
        raise TypeError(
            f"{times.name!r} must be a dimension whose coordinate has dates: pass "
            "dim=, the name of the dimension of time"
        )
    # pandas and cftime have different names for it, and older xarray uses the deprecated one.
    days = steps.day_of_year if hasattr(steps, "day_of_year") else steps.dayofyear
    days, years = np.asarray(days), np.asarray(steps.year)
    if not steps.is_monotonic_increasing:
        raise ValueError(
            f"{times.name!r} must ascend: sort the data first, a.sortby({times.name!r})"
        )
    is_new = np.ones(len(days), np.bool_)
    is_new[1:] = (np.diff(days) != 0) | (np.diff(years) != 0)
    first = np.flatnonzero(is_new)
    return days[first].astype(np.int64), np.append(first, len(days))
