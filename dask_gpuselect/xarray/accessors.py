"""The accessors of DataArrays and Datasets, `exact`."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping
from typing import Any

import xarray as xr
from dask.base import is_dask_collection

from dask_gpuselect.arguments import check_known
from dask_gpuselect.boxplot import describe as boxplot
from dask_gpuselect.boxplot.summary import Boxplot
from dask_gpuselect.engine.plans import Plan
from dask_gpuselect.quantiles.functions import explain
from dask_gpuselect.xarray.climatology import groups_of_days
from dask_gpuselect.xarray.groups import ExactGroupBy, groups_of
from dask_gpuselect.xarray.reductions import (
    Dims,
    Pair,
    Reductions,
    answered,
    companions_of,
    is_answered,
    keeps,
    reduced_dims,
)
from dask_gpuselect.xarray.windows import ExactRolling


class _LabelledAccessor(Reductions):
    """What the accessors of DataArrays and Datasets have in common."""

    _obj: Any

    def __repr__(self) -> str:
        kind, sizes = type(self._obj).__name__, dict(self._obj.sizes)
        of = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        return f"<exact order statistics of a {kind} ({of})>"

    def groupby(self, group: Any = None, **groupers: Any) -> ExactGroupBy:
        """Groups of elements, as of xarray's own `groupby`.

        Parameters
        ----------
        group : str, DataArray, sequence or mapping, optional
            As of xarray's `groupby`: "time.month", a coordinate, or labels of one or more
            dimensions. They may be lazy, in chunks of their own, if a `UniqueGrouper` has their
            `labels` or a `BinGrouper` its edges.
        **groupers
            Groupers, and other arguments of xarray's `groupby`.

        Returns
        -------
        ExactGroupBy
        """
        return self._grouped("groupby", group, **groupers)

    def groupby_bins(self, group: Any, bins: Any, **how: Any) -> ExactGroupBy:
        """Groups by bins of labels, as of xarray's own `groupby_bins`.

        Parameters
        ----------
        group : str or DataArray
        bins : int, sequence or IntervalIndex
        **how
            Other arguments of xarray's `groupby_bins`.

        Returns
        -------
        ExactGroupBy
        """
        check_known(bins, "bins")
        return self._grouped("groupby_bins", group, bins, **how)

    def resample(self, indexer: Any = None, **how: Any) -> ExactGroupBy:
        """Groups by periods of time, as of xarray's own `resample`: ``resample(time="MS")``.

        Parameters
        ----------
        indexer : mapping, optional
        **how
            The dimension with its frequency, and other arguments of xarray's `resample`.

        Returns
        -------
        ExactGroupBy
        """
        return ExactGroupBy(self._obj, groups_of(self._obj.resample(indexer, **how)))

    def rolling(
        self,
        dim: Mapping[Any, int] | None = None,
        min_periods: int | None = None,
        center: bool | Mapping[Any, bool] = False,
        *,
        boundary: str | None = None,
        where: Any = None,
        nodata: Any = None,
        **windows: int,
    ) -> ExactRolling:
        """Moving windows, as of xarray's own `rolling`: ``rolling(time=31, center=True)``.

        Parameters
        ----------
        dim : mapping, optional
            The size of the window along each dimension.
        min_periods : int, optional
            How many elements a window needs that are not NaN; by default all.
        center : bool or mapping, default False
            Whether labels are those in the middle of windows.
        boundary, where, nodata
            As of `dask_gpuselect.windows.rolling`. A `where` that is a DataArray is broadcast by
            the names of its dimensions.
        **windows : int
            The size of the window along each dimension, by its name.

        Returns
        -------
        ExactRolling
        """
        check_known(dim, "dim")
        for name, value in {"min_periods": min_periods, "center": center, **windows}.items():
            check_known(value, name)
        found = self._obj.rolling(dim, min_periods, center, **windows)
        return ExactRolling(found, boundary=boundary, where=where, nodata=nodata)

    def groupby_dayofyear(self, dim: str = "time", *, window: int = 1) -> ExactGroupBy:
        """Groups by the day of the year, with the days around it: the base of climatologies.

        Parameters
        ----------
        dim : str
            The dimension of time, whose coordinate has dates of any calendar, ascending. A day may
            have several steps, as of 6-hourly data.
        window : int
            How many consecutive days to take around each occurrence of a day, itself included, with
            all of their steps. Of an even number one more is before it than behind it.

        Returns
        -------
        ExactGroupBy
            Of overlapping groups, along the dimension "dayofyear".

        Raises
        ------
        TypeError
            For a coordinate without dates, and a window that is no integer.
        ValueError
            For dates that do not ascend, and for a window below 1, or so long that it meets the
            window of another year.

        Notes
        -----
        A window is of days as they follow each other, and so goes on over the ends of years. At
        the ends of the dates it has fewer of them, and where days are missing it reaches further.

        Days are counted from 1 as by ``dt.dayofyear``. In leap years of the standard calendars the
        29th of February is day 60, and each day after it has a number more than in other years.
        Day 366 has the windows of leap years alone: a quarter of the elements of other days.
        Nothing is interpolated. Without that day, the groups are those of xclim's `percentile_doy`.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import xarray as xr
        >>> import dask_gpuselect.xarray
        >>> times = pd.date_range("2022-01-01", "2023-12-31", unit="ns")
        >>> a = xr.DataArray(np.arange(730.0), coords={"time": times}, dims="time").chunk(time=300)
        >>> days = a.exact.groupby_dayofyear(window=5)
        >>> days.count().sel(dayofyear=[1, 2, 3, 365]).values
        array([ 8,  9, 10,  8])
        >>> days.median().sel(dayofyear=[1, 2, 3, 365]).values
        array([363.5, 364. , 184.5, 365.5])
        """
        return ExactGroupBy(self._obj, groups_of_days(self._obj, dim, window))

    def _grouped(self, name: str, /, *args: Any, **how: Any) -> ExactGroupBy:
        method = getattr(self._obj, name)
        if inspect.signature(method).parameters["eagerly_compute_group"].default is True:
            how.setdefault("eagerly_compute_group", False)  # xarray before 2025.5 loads labels
        return ExactGroupBy(self._obj, groups_of(method(*args, **how)))


class ExactDataArray(_LabelledAccessor):
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
        self._obj = array

    def _reduced(self, pair: Pair, dim: Dims, how: Mapping[str, Any], *q: Any) -> xr.DataArray:
        asked, skipna = _skipna(how)
        return answered(self._obj, pair.of(self._obj.dtype, skipna), dim, asked, *q)

    def explain(self, q: Any = 0.5, dim: Dims = None, **how: Any) -> Plan:
        """Tell how quantiles along dimensions would be computed: `dask_gpuselect.explain`.

        Parameters
        ----------
        q : float or array_like of floats, default 0.5
        dim : hashable, iterable of hashable or ..., optional
            To reduce; all by default.
        **how
            For `dask_gpuselect.explain`: `where`, `weights` and `nodata`.

        Returns
        -------
        Plan
        """
        axes = tuple(map(self._obj.dims.index, reduced_dims(dim, self._obj.dims)))
        how |= companions_of(self._obj, how)
        return explain(self._obj.data, q, axes, **how)

    def describe_boxplot(self, dim: Dims = None, **how: Any) -> Boxplot:
        """Statistics of a box plot for each lane along some dimensions.

        Parameters
        ----------
        dim : hashable, iterable of hashable or ..., optional
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
        dims = reduced_dims(dim, self._obj.dims)
        kept = [name for name in self._obj.dims if name not in dims]
        if len(kept) == 1 and _is_known(self._obj, kept[0]):
            how.setdefault("labels", [str(label) for label in self._obj[kept[0]].values])
        axes = tuple(map(self._obj.dims.index, dims))
        how |= companions_of(self._obj, how)
        return boxplot.describe_boxplot(self._obj.data, axes, **how)


class ExactDataset(_LabelledAccessor):
    """Exact quantiles and box plots of the numeric variables of a Dataset: ``ds.exact``.

    Parameters
    ----------
    dataset : Dataset
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._obj = dataset

    def _reduced(self, pair: Pair, dim: Dims, how: Mapping[str, Any], *q: Any) -> xr.Dataset:
        """Of each numeric variable, along those of the dimensions that it has. As in xarray, those
        without these dimensions are kept."""
        asked, skipna = _skipna(how)
        dims = reduced_dims(dim, tuple(self._obj.dims))
        method = how.get("method", "linear")
        found = {}
        for name, array in self._obj.data_vars.items():
            own = [each for each in dims if each in array.dims]
            if not own:
                found[name] = array
            elif is_answered(pair.every.__name__, array.dtype, method):
                found[name] = answered(array, pair.of(array.dtype, skipna), own, asked, *q)
        attrs = self._obj.attrs if keeps(how.get("keep_attrs")) else None
        return xr.Dataset(found, attrs=attrs)

    def explain(self, q: Any = 0.5, dim: Dims = None, **how: Any) -> dict[Hashable, Plan]:
        """Tell how quantiles of each lazy numeric variable would be computed.

        Parameters
        ----------
        q, dim, **how
            As of a DataArray's `explain`.

        Returns
        -------
        dict of Plan
            By the names of the variables.
        """
        dims = reduced_dims(dim, tuple(self._obj.dims))
        return {
            name: ExactDataArray(array).explain(q, own, **how)
            for name, array in self._obj.data_vars.items()
            if (own := [each for each in dims if each in array.dims])
            and is_answered("median", array.dtype)
            and is_dask_collection(array.data)
        }

    def describe_boxplot(self, **how: Any) -> Boxplot:
        """Statistics of a box plot for each numeric variable, of all its elements.

        The variables share the reads of what they have in common.

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
            for name, array in self._obj.data_vars.items()
            if is_answered("describe_boxplot", array.dtype)
        }
        named = {name: companions_of(array, how) for name, array in arrays.items()}
        for each in {"where", "weights"} & next(iter(named.values()), {}).keys():
            how[each] = {name: companions[each] for name, companions in named.items()}
        return boxplot.describe_boxplot({name: a.data for name, a in arrays.items()}, **how)


def _skipna(how: Mapping[str, Any]) -> tuple[dict[str, Any], bool | None]:
    """The other arguments, and `skipna`."""
    asked = dict(how)
    skipna = asked.pop("skipna", None)
    check_known(skipna, "skipna")
    return asked, skipna


def _is_known(array: xr.DataArray, name: Hashable) -> bool:
    """Whether there is a coordinate of that name, and it is not lazy."""
    return name in array.coords and not is_dask_collection(array.coords[name])


xr.register_dataarray_accessor("exact")(ExactDataArray)  # type: ignore[no-untyped-call]
xr.register_dataset_accessor("exact")(ExactDataset)  # type: ignore[no-untyped-call]
