"""`fill_value`: what answers where no element takes part."""

from __future__ import annotations

import warnings
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import dask_gpuselect.xarray
from dask_gpuselect import median, nanmedian, nanpercentile, nanquantile, percentile
from dask_gpuselect import quantile as ours_quantile
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import iqr, naniqr
from tests.data import uniform

quantile: Any = ours_quantile
SHAPE, CHUNKS = (600, 4, 3), (100, 2, 3)


def data(dtype: Any) -> Any:
    return (200 * uniform(int(np.prod(SHAPE))).reshape(SHAPE)).astype(dtype)


def mask() -> Any:
    """Which elements take part: none of the lanes (1, 2) and (3, 0) along the first axis."""
    keeps = uniform(int(np.prod(SHAPE))).reshape(SHAPE)[::-1] < 0.5
    keeps[:, 1, 2] = keeps[:, 3, 0] = False
    return keeps


@pytest.mark.parametrize("fill", [-9, -9.5, np.nan])
def test_all_elements(fill: Any) -> None:
    """Of every function; by a strategy, and of an array that is empty or proves so."""
    a = np.arange(12)
    unknown = da.from_array(a, chunks=5)
    unknown = unknown[unknown > 20]
    for x, where in (
        (a, False),
        (da.from_array(a, chunks=5), np.zeros(12, bool)),
        (np.empty(0, int), None),
        (unknown, None),
    ):
        how = {"where": where, "fill_value": fill}
        answers = [median(x, **how), nanmedian(x, **how), quantile(x, 0.3, **how)]
        answers += [nanquantile(x, 0.3, **how), percentile(x, 30, **how)]
        answers += [nanpercentile(x, 30, **how), quantile(x, 0.3, strategy="kelley", **how)]
        answers += [quantile(x, 0.3, weights=None if where is None else np.ones(12), **how)]
        with warnings.catch_warnings(action="error"):
            for result in da.compute(*answers):
                np.testing.assert_equal(result, fill)


def test_where_people_type_it() -> None:
    a, keeps = data("i4"), mask()
    wanted = quantile(a, 0.5, 0, where=keeps, method="nearest", fill_value=-1)
    assert wanted[1, 2].tolist() == wanted[3, 0].tolist() == -1
    how: dict[str, Any] = {"method": "nearest", "fill_value": -1}
    actual = da.from_array(a, chunks=CHUNKS).exact.quantile(0.5, 0, where=keeps, **how)
    np.testing.assert_array_equal(actual.compute(), wanted)
    named = xr.DataArray(a, dims=("t", "y", "x")).chunk(t=100)
    by_name = named.exact.quantile(0.5, "t", where=keeps, **how)
    np.testing.assert_array_equal(by_name.compute(), wanted)
    both = named.to_dataset(name="v").exact.quantile(0.5, "t", where=keeps, **how)
    np.testing.assert_array_equal(both.v.compute(), wanted)
    with dask_gpuselect.enable():
        actual = da.quantile(da.from_array(a, chunks=CHUNKS), 0.5, axis=0, where=keeps, **how)
    np.testing.assert_array_equal(actual.compute(), wanted)


@pytest.mark.filterwarnings("ignore:All-NaN")
def test_ranges_of_empty_groups_and_arrays() -> None:
    for x in (np.array([[3]]), da.ones((1, 1), dtype=int)):
        result = groupby(x, np.array([[5]]), groups=[5, 2]).naniqr(method="higher")
        np.testing.assert_array_equal(da.compute(result)[0], [0.0, np.nan])
    unknown = da.arange(4, chunks=2)
    assert np.isnan(naniqr(unknown[unknown > 9], method="lower").compute())
    with pytest.raises(IndexError, match="empty"):
        iqr(unknown[unknown > 9], method="lower").compute()
