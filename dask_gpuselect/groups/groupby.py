"""`groupby`: quantiles and their relatives of every group of elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_gpuselect.arguments import Axis, as_accompanied, check_known, public, reduced_axes
from dask_gpuselect.boxplot.describe import describe_boxplot
from dask_gpuselect.boxplot.summary import Boxplot
from dask_gpuselect.engine.groups import Grouped, Grouping
from dask_gpuselect.groups.labels import grouping_by_labels, grouping_by_windows
from dask_gpuselect.quantiles import functions as quantiles
from dask_gpuselect.robust import spread


def groupby(a: Any, by: Any, axis: Axis = None, *, groups: Any = None) -> GroupBy:
    """docstring"""
    return GroupBy(a, *_grouping(a, by, axis, groups))


class GroupBy:
    def __init__(self, array: Any, axes: tuple[int, ...], grouping: Grouping, labels: Any) -> None:
        self._array, self._axes, self._grouping = array, axes, grouping
        self.groups = labels

    def _ask(self, function: Callable[..., Any], *args: Any, **how: Any) -> Any:
        return function(Grouped(self._array, self._grouping), *args, axis=self._axes, **how)

    def median(self, **how: Any) -> Any:
        return self._ask(quantiles.median, **how)

    def nanmedian(self, **how: Any) -> Any:
        return self._ask(quantiles.nanmedian, **how)

    def quantile(self, q: Any, **how: Any) -> Any:
        return self._ask(quantiles.quantile, q, **how)

    def mad(self, **how: Any) -> Any:
        return self._ask(spread.mad, **how)

    def iqr(self, **how: Any) -> Any:
        return self._ask(spread.iqr, **how)

    def describe_boxplot(self, **how: Any) -> Boxplot:
        found: Boxplot = self._ask(describe_boxplot, **how)
        return found


def _grouping(
    a: Any, by: Any, axis: Axis, groups: Any
) -> tuple[tuple[int, ...], Grouping, Any]:
    axes = reduced_axes(axis, a.ndim)
    shape = tuple(a.shape[each] for each in axes)
    if isinstance(by, Mapping):
        (n,) = shape
        return axes, *grouping_by_windows(by, groups, n)
    several = by if isinstance(by, tuple) else (by,)
    return axes, *grouping_by_labels([np.asarray(each) for each in several], groups, shape)
