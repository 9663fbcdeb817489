"""`fill_value`: what answers where no element takes part."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr

import dask_gpuselect.xarray
from dask_gpuselect import (
    explain,
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
)
from dask_gpuselect import quantile as ours_quantile
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import iqr, naniqr
from tests.backends import Backend
from tests.data import uniform
from tests.matrix.cases import Counted

quantile: Any = ours_quantile
SHAPE, CHUNKS = (600, 4, 3), (100, 2, 3)


def data(dtype: Any) -> Any:
    return (200 * uniform(int(np.prod(SHAPE))).reshape(SHAPE)).astype(dtype)


def mask() -> Any:
    """Which elements take part: none of the lanes (1, 2) and (3, 0) along the first axis."""
    keeps = uniform(int(np.prod(SHAPE))).reshape(SHAPE)[::-1] < 0.5
    keeps[:, 1, 2] = keeps[:, 3, 0] = False
    return keeps


def filled(a: Any, keeps: Any, q: float, method: str, fill: Any) -> Any:
    """NumPy's answer for each lane of the first axis."""
    found = np.full(a.shape[1:], fill)
    for place in np.ndindex(found.shape):
        kept = a[(slice(None), *place)][keeps[(slice(None), *place)]]
        if len(kept):
            found[place] = np.quantile(kept, q, method=method)
    return found


@pytest.mark.parametrize("method", ["lower", "linear"])
@pytest.mark.parametrize("dtype", ["i2", "f4", "?"])
def test_lanes_that_a_mask_empties(backend: Backend, dtype: str, method: str) -> None:
    """Integers have no NaN to say so; lanes that have elements are answered as before."""
    a, keeps = data(dtype), mask()
    x, where = backend.asarray(a), backend.asarray(keeps)
    asked = partial(quantile, x, 0.3, axis=0, method=method, where=where)
    fill = a.dtype.type(7) if method == "lower" else np.float64(7)  # True of bools
    wanted = filled(a, keeps, 0.3, method, fill)
    np.testing.assert_array_equal(backend.to_numpy(asked(fill_value=fill)), wanted)
    if dtype != "f4" and method == "lower":
        with pytest.raises(IndexError, match="all elements are left out"):
            asked()


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
        asked = [median(x, **how), nanmedian(x, **how), quantile(x, 0.3, **how)]
        asked += [nanquantile(x, 0.3, **how), percentile(x, 30, **how)]
        asked += [nanpercentile(x, 30, **how), quantile(x, 0.3, strategy="kelley", **how)]
        asked += [quantile(x, 0.3, weights=None if where is None else np.ones(12), **how)]
        with warnings.catch_warnings(action="error"):
            for found in da.compute(*asked):
                np.testing.assert_equal(found, fill)


def test_where_people_type_it() -> None:
    a, keeps = data("i4"), mask()
    wanted = filled(a, keeps, 0.5, "nearest", np.int32(-1))
    how: dict[str, Any] = {"method": "nearest", "fill_value": -1}
    found = da.from_array(a, chunks=CHUNKS).exact.quantile(0.5, 0, where=keeps, **how)
    np.testing.assert_array_equal(found.compute(), wanted)
    named = xr.DataArray(a, dims=("t", "y", "x")).chunk(t=100)
    by_name = named.exact.quantile(0.5, "t", where=keeps, **how)
    np.testing.assert_array_equal(by_name.compute(), wanted)
    both = named.to_dataset(name="v").exact.quantile(0.5, "t", where=keeps, **how)
    np.testing.assert_array_equal(both.v.compute(), wanted)
    with dask_gpuselect.enable():
        found = da.quantile(da.from_array(a, chunks=CHUNKS), 0.5, axis=0, where=keeps, **how)
    np.testing.assert_array_equal(found.compute(), wanted)


@pytest.mark.parametrize("dtype", ["m8[ns]", "f8"])
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_a_fill_value_takes_no_memory(name: str, dtype: str) -> None:
    """A column that fits the limit by its elements alone is read once, as `explain` says."""
    a = data(dtype).reshape(7200)[:743, None]
    source = Counted(a)
    x = source.lazy(((250, 493, 0), (1,)))
    with dask.config.set(
        {
            "scheduler": "sync",
            "dask_gpuselect.column-limit": 6000,
            "dask_gpuselect.scratch-directory": False,
        }
    ):
        plan = explain(x, axis=0)
        fill = np.array(1, dtype)[()]
        getattr(dask_gpuselect, name)(x, 0.5, axis=0, fill_value=fill).compute()
    assert source.most == plan.loads == 1


@pytest.mark.parametrize("n", [1, 3, 600])
@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_lanes_of_nan(backend: Backend, n: int, method: str) -> None:
    """The nan-variants fill lanes of nothing but NaN, and no lane whose answer is NaN."""
    a = uniform(7 * n).reshape(n, 7).astype("f4")
    a[:, 2] = a[:: n // 2 + 1, 1] = np.nan
    a[: n // 2, 4], a[n // 2 :, 4] = -np.inf, np.inf
    x = backend.lazy(a, (max(n // 3, 1), 7))
    groups = groupby(x.T, np.arange(7) % 3, 0, groups=[2, 0, 7])
    how: dict[str, Any] = {"q": 0.5, "method": method}
    for ask, is_none in (
        (partial(nanquantile, x, axis=0), np.isnan(a).all(axis=0)),
        (partial(nanquantile, x[:, 2:3]), True),
        (partial(nanquantile, x), False),
        (groups.nanquantile, [np.isnan(a[:, 2::3]).all(axis=1), n * [False], n * [True]]),
    ):
        with warnings.catch_warnings(action="error"):
            found = backend.to_numpy(ask(**how, fill_value=-1).compute())
        with warnings.catch_warnings(action="ignore"):
            wanted = backend.to_numpy(ask(**how).compute())
        np.testing.assert_array_equal(found, np.where(is_none, np.float32(-1), wanted))


@pytest.mark.parametrize(
    ("dtype", "method", "fill", "error"),
    [
        ("u1", "lower", -1, ValueError),
        ("i8", "lower", 0.5, ValueError),
        ("i8", "lower", np.nan, ValueError),
        ("i8", "lower", 2**70, ValueError),
        ("?", "lower", 5, ValueError),
        ("f2", "linear", 1e6, ValueError),
        ("i8", "lower", [1, 2], ValueError),
        ("i8", "lower", "none", TypeError),
        ("i8", "lower", 1j, TypeError),
        ("M8[D]", "lower", 0, TypeError),
        ("i8", "lower", np.ma.masked, TypeError),
        ("i8", "lower", da.ones(()), TypeError),
    ],
)
def test_what_the_answer_cannot_hold(dtype: str, method: str, fill: Any, error: Any) -> None:
    for x in (np.ones(3, dtype), da.ones(3, dtype=dtype)):
        with pytest.raises(error, match="fill_value"):
            quantile(x, 0.5, method=method, fill_value=fill)


def test_without_it_the_error_names_it() -> None:
    with pytest.raises(IndexError, match="fill_value="):
        quantile(np.arange(3), 0.5, method="lower", where=False)


@pytest.mark.filterwarnings("ignore:All-NaN")
def test_ranges_of_empty_groups_and_arrays() -> None:
    for x in (np.array([[3]]), da.ones((1, 1), dtype=int)):
        found = groupby(x, np.array([[5]]), groups=[5, 2]).naniqr(method="higher")
        np.testing.assert_array_equal(da.compute(found)[0], [0.0, np.nan])
    unknown = da.arange(4, chunks=2)
    assert np.isnan(naniqr(unknown[unknown > 9], method="lower").compute())
    with pytest.raises(IndexError, match="empty"):
        iqr(unknown[unknown > 9], method="lower").compute()
