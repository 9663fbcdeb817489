"""Groups by the day of the year, with the days around each of its occurrences."""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import Any

import numpy as np
import xarray as xr

from dask_gpuselect.arguments import check_known
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.xarray.groups import LabelledGroups


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
