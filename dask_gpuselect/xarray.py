"""Box plots of xarray's objects, by an accessor: ``import dask_gpuselect.xarray``, ``a.exact``.

For `median` and `quantile` none is needed: while `dask_gpuselect.enable` is in force, xarray's own
lead to ours, for it asks NumPy, which asks dask.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import xarray as xr
from dask.base import is_dask_collection

from dask_gpuselect.arguments import public
from dask_gpuselect.boxplot import describe as boxplot
from dask_gpuselect.boxplot.summary import Boxplot

Dims = str | Iterable[Hashable] | None


class ExactDataArray:
    """Box plots of a DataArray: ``a.exact``.

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

    @public()
    def describe_boxplot(self, dim: Dims = None, **how: Any) -> Boxplot:
        """A box for every lane along some dimensions.

        Parameters
        ----------
        dim : str or iterable of hashable, optional
            To reduce; all by default.
        **how
            For `dask_gpuselect.describe_boxplot`.

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
        return boxplot.describe_boxplot(self._array.data, axes, **how)


class ExactDataset:
    """Box plots of the numeric variables of a Dataset: ``ds.exact``.

    Parameters
    ----------
    dataset : Dataset
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    @public()
    def describe_boxplot(self, **how: Any) -> Boxplot:
        """A box for each numeric variable, of all its elements; what they have in common is loaded
        for all of them together.

        Parameters
        ----------
        **how
            For `dask_gpuselect.describe_boxplot`, but no `axis`: of lanes, describe the variables
            one by one.

        Returns
        -------
        Boxplot
            With the names of the variables.
        """
        if "axis" in how or "dim" in how:
            raise TypeError("all elements of each variable: for lanes, describe them one by one")
        arrays = {
            str(name): array.data
            for name, array in self._dataset.data_vars.items()
            if array.dtype.kind in "iuf"
        }
        return boxplot.describe_boxplot(arrays, **how)


def _is_known(array: xr.DataArray, name: Hashable) -> bool:
    """Whether there is a coordinate of that name, and it is not lazy."""
    return name in array.coords and not is_dask_collection(array.coords[name])


def _reduced(dim: Dims, known: tuple[Hashable, ...]) -> list[Hashable]:
    dims: list[Hashable] = [*known] if dim is None else [dim] if isinstance(dim, str) else [*dim]
    unknown = [name for name in dims if name not in known]
    if unknown:
        raise ValueError(f"{unknown} not found in array dimensions {known}")
    return dims


xr.register_dataarray_accessor("exact")(ExactDataArray)  # type: ignore[no-untyped-call]
xr.register_dataset_accessor("exact")(ExactDataset)  # type: ignore[no-untyped-call]
