"""The accessor of dask arrays: ``x.exact.median()``."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from dask_gpuselect.boxplot import describe as boxplot
from dask_gpuselect.distribution import empirical
from dask_gpuselect.engine.expressions import homes
from dask_gpuselect.engine.plans import Plan
from dask_gpuselect.groups import functions as groups
from dask_gpuselect.optional import Advising, its_own
from dask_gpuselect.quantiles import functions as quantiles
from dask_gpuselect.quantiles import order_statistics
from dask_gpuselect.quantiles.documentation import as_method
from dask_gpuselect.robust import spread, trimmed
from dask_gpuselect.sorting import binning
from dask_gpuselect.sorting import functions as sorting
from dask_gpuselect.windows import filters
from dask_gpuselect.windows import functions as windows

P = ParamSpec("P")
T = TypeVar("T")


def _method(function: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Exact, P], T]:
    """Return the method of `Exact` that passes its array to a function as first argument."""

    def method(self: Exact, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(self._array, *args, **kwargs)

    as_method(method, function, "Exact", "Call `{name}` with this array as first argument.")
    method.__doc__ = f"{method.__doc__}\n\n{inspect.getdoc(function)}"
    return method


class Exact(Advising):
    """Exact order statistics of a dask array: ``x.exact``.

    Every dask array has this attribute once `dask_gpuselect` is imported. It has the functions of
    this package, and those of its subpackages `robust`, `groups` and `windows`, as methods. Dask's
    own functions of the same names raise, need the reduced axes in one chunk, or are approximate.

    Parameters
    ----------
    array : dask array
        The array that the methods pass to the functions of this package.

    See Also
    --------
    enable : Make these functions methods of the array itself.

    Examples
    --------
    >>> import dask.array as da
    >>> import dask_gpuselect
    >>> da.arange(11, chunks=3).exact.quantile(0.25).compute()
    np.float64(2.5)
    >>> da.arange(11, chunks=3).exact.mad(scale=1.0).compute()
    np.float64(3.0)
    """

    def __init__(self, array: Any) -> None:
        self._array = array

    def __repr__(self) -> str:
        return f"<exact order statistics of {self._array!r}>"

    def _advice(self, name: str) -> str:
        return its_own(type(self._array), name, "x") or super()._advice(name)

    median = _method(quantiles.median)
    nanmedian = _method(quantiles.nanmedian)
    quantile = _method(quantiles.quantile)
    nanquantile = _method(quantiles.nanquantile)
    percentile = _method(quantiles.percentile)
    nanpercentile = _method(quantiles.nanpercentile)
    order_statistic = _method(order_statistics.order_statistic)
    describe_boxplot = _method(boxplot.describe_boxplot)
    mad = _method(spread.mad)
    nanmad = _method(spread.nanmad)
    iqr = _method(spread.iqr)
    naniqr = _method(spread.naniqr)
    trimmed_mean = _method(trimmed.trimmed_mean)
    nantrimmed_mean = _method(trimmed.nantrimmed_mean)
    ecdf = _method(empirical.ecdf)
    sort = _method(sorting.sort)
    argsort = _method(sorting.argsort)
    sort_by = _method(sorting.sort_by)
    quantile_bins = _method(binning.quantile_bins)
    digitize = _method(binning.digitize)
    explain = _method(cast(Callable[..., Plan], quantiles.explain))
    groupby = _method(groups.groupby)
    rolling = _method(windows.rolling)
    median_filter = _method(filters.median_filter)
    percentile_filter = _method(filters.percentile_filter)
    rank_filter = _method(filters.rank_filter)


class _Registered:
    """Attribute of a class of dask arrays that makes the accessor of an array.

    It works as the accessors of pandas, xarray and dask.dataframe. Asked of the class, it is the
    class `Exact`.
    """

    def __get__(self, array: Any, owner: type) -> Any:
        return Exact if array is None else Exact(array)


def register(name: str = "exact") -> None:
    """Give every dask array the accessor, unless it has another attribute of that name."""
    for home in homes():
        known = inspect.getattr_static(home.Array, name, None)
        if known is None:
            setattr(home.Array, name, _Registered())
        elif not isinstance(known, _Registered):
            warnings.warn(
                f"x.{name} of {home.__name__} exists already and is left as it is: call the "
                "functions of dask_gpuselect instead, as dask_gpuselect.median(x)",
                stacklevel=2,
            )


register()
