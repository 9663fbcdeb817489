"""The accessors `exact` of DataArrays and Datasets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import xarray as xr
from dask.base import is_dask_collection

from dask_gpuselect.arguments import check_known
from dask_gpuselect.boxplot import describe as boxplot
from dask_gpuselect.boxplot.summary import Boxplot
from dask_gpuselect.engine.plans import Plan
from dask_gpuselect.optional import Advising, its_own
from dask_gpuselect.quantiles.functions import explain
from dask_gpuselect.windows.functions import check_no_offset
from dask_gpuselect.xarray.groups import ExactGroupBy, groups_of, groups_of_days
from dask_gpuselect.xarray.reductions import (
    FUNCTIONS,
    Dims,
    answered,
    companions_of,
    documented,
    function_for,
    is_answered,
    keeps,
    reduced_dims,
    unchanged,
)
from dask_gpuselect.xarray.windows import ExactRolling


def _reducing(name: str, scale: int = 0, *, skips: bool = False) -> Callable[..., Any]:
    """Return the method for a DataArray, or for each numeric variable of a Dataset.

    Parameters
    ----------
    name : str
        Name of the statistic.
    scale : int
        The largest q of a function of q, whose answers have a coordinate "quantile"; 0 for others.
    skips : bool
        True if the method leaves NaN out of data of any dtype, unless `skipna` is False.
    """
    default = {"skipna": True} if skips else {}

    def reduced(self: Any, dim: Dims = None, **how: Any) -> Any:
        return self._reduced(name, dim, default | how)

    def reduced_by_q(self: Any, q: Any, dim: Dims = None, **how: Any) -> Any:
        return self._reduced(name, dim, default | how, q, scale)

    function = FUNCTIONS[f"nan{name}" if skips else name]
    scope = "along dimensions", "all of them by default"
    return documented(reduced_by_q if scale else reduced, function, "exact", scope)


class _LabelledAccessor(Advising):
    """Base of the accessors of DataArrays and Datasets."""

    _obj: Any

    median = _reducing("median")
    quantile = _reducing("quantile", 1)
    percentile = _reducing("percentile", 100)
    mad = _reducing("mad")
    iqr = _reducing("iqr")
    trimmed_mean = _reducing("trimmed_mean")
    nanmedian = _reducing("median", skips=True)
    nanquantile = _reducing("quantile", 1, skips=True)
    nanpercentile = _reducing("percentile", 100, skips=True)
    nanmad = _reducing("mad", skips=True)
    naniqr = _reducing("iqr", skips=True)
    nantrimmed_mean = _reducing("trimmed_mean", skips=True)

    def __repr__(self) -> str:
        kind, sizes = type(self._obj).__name__, dict(self._obj.sizes)
        of = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        return f"<exact order statistics of a {kind} ({of})>"

    def _advice(self, name: str) -> str:
        return its_own(type(self._obj), name, "a") or super()._advice(name)

    def groupby(self, group: Any = None, **groupers: Any) -> ExactGroupBy:
        """Divide the elements into groups, as xarray's own `groupby`.

        Parameters
        ----------
        group : str, DataArray, sequence or mapping, optional
            As for xarray's `groupby`: "time.month", a coordinate, or labels of one or more
            dimensions. They may be lazy, in chunks of their own, if a `UniqueGrouper` has their
            `labels` or a `BinGrouper` its edges.
        **groupers
            Groupers, and other arguments of xarray's `groupby`.

        Returns
        -------
        ExactGroupBy
            The groups, with methods for quantiles of each.
        """
        return self._grouped("groupby", group, **groupers)

    def groupby_bins(self, group: Any, bins: Any, **how: Any) -> ExactGroupBy:
        """Divide the elements into groups by bins of labels, as xarray's own `groupby_bins`.

        Parameters
        ----------
        group : str or DataArray
            The labels.
        bins : int, sequence or IntervalIndex
            The number of bins, or their edges.
        **how
            Other arguments of xarray's `groupby_bins`.

        Returns
        -------
        ExactGroupBy
            The groups, with methods for quantiles of each.
        """
        check_known(bins, "bins")
        return self._grouped("groupby_bins", group, bins, **how)

    def resample(self, indexer: Any = None, **how: Any) -> ExactGroupBy:
        """Divide the elements into periods of time, as in xarray: ``resample(time="MS")``.

        Parameters
        ----------
        indexer : mapping, optional
            The dimension with its frequency.
        **how
            The dimension with its frequency, and other arguments of xarray's `resample`.

        Returns
        -------
        ExactGroupBy
            The groups, with methods for quantiles of each.
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
        """Return moving windows, as xarray's own `rolling`: ``rolling(time=31, center=True)``.

        Parameters
        ----------
        dim : mapping, optional
            The size of the window along each dimension.
        min_periods : int, optional
            The number of elements other than NaN that a window needs; by default its size.
        center : bool or mapping, default False
            Whether the label of a window is that of its middle instead of its end.
        boundary, where, nodata
            As for `dask_gpuselect.windows.rolling`. A `where` that is a DataArray is broadcast by
            the names of its dimensions.
        **windows : int
            The size of the window along each dimension, by its name.

        Returns
        -------
        ExactRolling
            The windows, with methods for quantiles of each.
        """
        check_known(dim, "dim")
        for name in {"closed", "step"} & windows.keys() - {*self._obj.dims}:
            raise TypeError(
                f"{name}= is not supported, and no dimension has that name: type "
                f"dask_gpuselect.windows.rolling(a.data, {{axis: size}}, {name}=...)"
            )
        for name, value in {"min_periods": min_periods, "center": center, **windows}.items():
            check_known(value, name)
        check_no_offset(windows if dim is None else dim)
        rolled = self._obj.rolling(dim, min_periods, center, **windows)
        return ExactRolling(rolled, boundary=boundary, where=where, nodata=nodata)

    def groupby_dayofyear(self, dim: str = "time", *, window: int = 1) -> ExactGroupBy:
        """Group by the day of the year, with the days around it: the base of climatologies.

        Parameters
        ----------
        dim : str, default "time"
            The dimension of time, whose coordinate has dates of any calendar, ascending. A day may
            have several steps, as in 6-hourly data.
        window : int, default 1
            Number of consecutive days to take around each occurrence of a day, itself included,
            with all of their steps. If `window` is even, it has one more day before the day than
            after it.

        Returns
        -------
        ExactGroupBy
            Overlapping groups along the dimension "dayofyear".

        Raises
        ------
        TypeError
            For a coordinate without dates, and a window that is not an integer.
        ValueError
            For dates that do not ascend, and for a window below 1, or so long that it overlaps the
            window of another year.

        Notes
        -----
        A window has days that follow each other, also over the ends of years. At the ends of the
        dates it has fewer days, and where days are missing it reaches further.

        Days are counted from 1 as by ``dt.dayofyear``. In leap years of the standard calendars, the
        29th of February is day 60, and the number of each day after it is one more than in other
        years. Day 366 has the windows of leap years alone: a quarter of the elements of other days.
        Nothing is interpolated. Except for day 366, the groups are those of xclim's
        `percentile_doy`.

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
        """Group by a method of xarray, without loading lazy labels."""
        method = getattr(self._obj, name)
        if inspect.signature(method).parameters["eagerly_compute_group"].default is True:
            how.setdefault("eagerly_compute_group", False)  # xarray before 2025.5 loads labels
        return ExactGroupBy(self._obj, groups_of(method(*args, **how)))


class ExactDataArray(_LabelledAccessor):
    """Exact quantiles and box plots of a DataArray: ``a.exact``.

    Parameters
    ----------
    array : DataArray
        Of NumPy or CuPy chunks of any sizes, or in memory.

    See Also
    --------
    ExactDataset : The accessor of a Dataset.
    dask_gpuselect.quantile : Quantiles of dask arrays.

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

    def _reduced(self, name: str, dim: Dims, how: Mapping[str, Any], *q: Any) -> xr.DataArray:
        """Reduce the array along dimensions by one of two functions."""
        arguments, skipna = _skipna(how)
        function = FUNCTIONS[function_for(name, self._obj.dtype, skipna)]
        return answered(self._obj, function, dim, arguments, *q)

    def explain(self, q: Any = 0.5, dim: Dims = None, **how: Any) -> Plan:
        """Return the plan for quantiles along dimensions: see `dask_gpuselect.explain`.

        Parameters
        ----------
        q : float or array_like of floats, default 0.5
            In [0, 1].
        dim : hashable, iterable of hashable or ..., optional
            Dimensions to reduce; all of them by default.
        **how
            For `dask_gpuselect.explain`: `where`, `weights` and `nodata`.

        Returns
        -------
        Plan
            Its reads and its memory.
        """
        axes = tuple(map(self._obj.dims.index, reduced_dims(dim, self._obj.dims)))
        how |= companions_of(self._obj, how)
        return explain(self._obj.data, q, axes, **how)

    def describe_boxplot(self, dim: Dims = None, **how: Any) -> Boxplot:
        """Return statistics of a box plot for each 1-D slice along some dimensions.

        Parameters
        ----------
        dim : hashable, iterable of hashable or ..., optional
            Dimensions to reduce; all of them by default.
        **how
            For `dask_gpuselect.describe_boxplot`. A `where` and `weights` that are DataArrays have
            the labels of the data, and are broadcast by the names of their dimensions.

        Returns
        -------
        Boxplot
            Lazy if the array is. If one dimension is left, its coordinate has the labels.

        Raises
        ------
        ValueError
            For unknown dimensions, and as `dask_gpuselect.describe_boxplot`.
        """
        dims = reduced_dims(dim, self._obj.dims)
        left = [name for name in self._obj.dims if name not in dims]
        if len(left) == 1 and _is_known(self._obj, left[0]):
            how.setdefault("labels", [str(label) for label in self._obj[left[0]].values])
        axes = tuple(map(self._obj.dims.index, dims))
        how |= companions_of(self._obj, how)
        return boxplot.describe_boxplot(self._obj.data, axes, **how)


class ExactDataset(_LabelledAccessor):
    """Exact quantiles and box plots of the numeric variables of a Dataset: ``ds.exact``.

    Parameters
    ----------
    dataset : Dataset
        Its variables may be lazy or in memory.

    See Also
    --------
    ExactDataArray : The accessor of a DataArray.
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._obj = dataset

    def _reduced(self, statistic: str, dim: Dims, how: Mapping[str, Any], *q: Any) -> xr.Dataset:
        """Reduce each numeric variable along those of the dimensions that it has.

        As in xarray, variables without these dimensions are kept. Those without any dimension have
        quantiles of their own, if they are numbers.
        """
        arguments, skipna = _skipna(how)
        keeps_attrs = keeps(how.get("keep_attrs"))
        dims = reduced_dims(dim, tuple(self._obj.dims))
        method = how.get("method", "linear")
        variables = {}
        for name, array in self._obj.data_vars.items():
            own = [each for each in dims if each in array.dims]
            has_answer = is_answered(statistic, array.dtype, method)
            if not own and not (q and has_answer and not array.dims):
                variables[name] = unchanged(array, keeps_attrs=keeps_attrs)
            elif has_answer:
                function = FUNCTIONS[function_for(statistic, array.dtype, skipna)]
                variables[name] = answered(array, function, own, arguments, *q)
        return xr.Dataset(variables, attrs=self._obj.attrs if keeps_attrs else None)

    def explain(self, q: Any = 0.5, dim: Dims = None, **how: Any) -> dict[Hashable, Plan]:
        """Return the plans for quantiles of each lazy numeric variable.

        Parameters
        ----------
        q, dim, **how
            As for `ExactDataArray.explain`.

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

    def describe_boxplot(self, dim: None = None, **how: Any) -> Boxplot:
        """Return statistics of a box plot for each numeric variable, of all its elements.

        The variables share the reads of chunks that they have in common.

        Parameters
        ----------
        dim : None
            Not supported: for boxes along dimensions, describe each variable by itself.
        **how
            For `dask_gpuselect.describe_boxplot`, except `axis`. A `where` and `weights` that are
            DataArrays are broadcast by the names of their dimensions. Each variable must have all
            of these.

        Returns
        -------
        Boxplot
            Labelled with the names of the variables.
        """
        if dim is not None or "axis" in how:
            raise TypeError(
                "boxes of a Dataset are of all elements of each variable: for boxes "
                "along dimensions, type ds[name].exact.describe_boxplot(dim)"
            )
        arrays = {
            str(name): array
            for name, array in self._obj.data_vars.items()
            if is_answered("describe_boxplot", array.dtype)
        }
        if not arrays:
            raise TypeError("the Dataset has no variable of integers or floats to describe")
        named = {name: companions_of(array, how) for name, array in arrays.items()}
        for each in {"where", "weights"} & next(iter(named.values())).keys():
            how[each] = {name: companions[each] for name, companions in named.items()}
        return boxplot.describe_boxplot({name: a.data for name, a in arrays.items()}, **how)


def _skipna(how: Mapping[str, Any]) -> tuple[dict[str, Any], bool | None]:
    """Separate `skipna` from the other arguments."""
    arguments = dict(how)
    skipna = arguments.pop("skipna", None)
    check_known(skipna, "skipna")
    return arguments, skipna


def _is_known(array: xr.DataArray, name: Hashable) -> bool:
    """Return whether there is a coordinate of that name, and it is not lazy."""
    return name in array.coords and not is_dask_collection(array.coords[name])


xr.register_dataarray_accessor("exact")(ExactDataArray)  # type: ignore[no-untyped-call]
xr.register_dataset_accessor("exact")(ExactDataset)  # type: ignore[no-untyped-call]
