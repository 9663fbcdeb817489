"""xarray's objects: the accessor, and xarray's own functions while ours are in dask's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import dask_gpuselect.xarray  # noqa: F401 -- registers the accessors
from dask_gpuselect import describe_boxplot, enable, explain, robust
from tests.data import normal
from tests.graphs import names_of

DIMS: tuple[Any, ...] = (None, "time", ["y", "time"], ["x"], ["time", "y", "x"])


def cube(dtype: str = "f8") -> xr.DataArray:
    a = (10 * normal(40 * 5 * 6)).reshape(40, 5, 6)
    if dtype[0] == "f":
        a[3:30, 2, 4] = a[:, 1, 1] = np.nan
        a[0, 0, 0] = np.nan
    return xr.DataArray(
        a.astype(dtype),
        dims=("time", "y", "x"),
        coords={
            "time": np.arange(40),
            "y": list("abcde"),
            "area": (("y", "x"), np.ones((5, 6))),
            "hour": ("time", np.arange(40) % 24),
            "height": 2.0,
        },
        name="t",
        attrs={"units": "K"},
    )


def chunked(array: Any) -> Any:
    return array.chunk({"time": 15, "y": 3, "x": 4})


def is_lazy_and_in_place(result: xr.DataArray) -> bool:
    return isinstance(result.data, da.Array) and "rechunk" not in str(names_of(result.data))


def test_without_it_xarray_raises_or_rechunks() -> None:
    lazy = chunked(cube())
    with pytest.raises(NotImplementedError):
        lazy.median()
    assert not is_lazy_and_in_place(lazy.quantile(0.5, "time"))


# Dask's expressions lack `broadcast_to`, which xarray calls.
@pytest.mark.legacy
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
@pytest.mark.parametrize("dim", [None, "time", ["time", "y"]])
def test_datasets(dim: Any) -> None:
    """By xarray's methods while enabled, and by the accessor, which keeps attributes."""
    loaded = xr.Dataset(
        {
            "t": cube(),
            "profile": ("y", np.arange(5.0)),
            "count": (("time", "y"), np.arange(200).reshape(40, 5)),
            "name": ("y", list("vwxyz")),
            "one": 3.0,
        },
        attrs={"title": "some"},
    )
    lazy, q = chunked(loaded), [0.1, 0.5]
    for skipna, keep_attrs in ((None, None), (True, True), (False, False)):
        with enable():
            median = lazy.median(dim, skipna=skipna, keep_attrs=keep_attrs)
            of_array = lazy["t"].quantile(0.3, dim, skipna=skipna, keep_attrs=keep_attrs)
        assert is_lazy_and_in_place(median["t"])
        wanted = loaded["t"].quantile(0.3, dim, skipna=skipna, keep_attrs=keep_attrs)
        xr.testing.assert_identical(of_array.compute(), wanted)
        wanted = loaded.median(dim, skipna=skipna, keep_attrs=keep_attrs)
        xr.testing.assert_identical(median.compute(), wanted)
        actual = lazy.exact.nanmedian(dim, keep_attrs=keep_attrs).compute()
        xr.testing.assert_identical(actual, loaded.median(dim, keep_attrs=keep_attrs is not False))
    with enable():
        quantile = lazy.quantile(q, dim, numeric_only=True)
    wanted = loaded.quantile(q, dim, numeric_only=True)
    xr.testing.assert_identical(quantile.compute(), wanted)
    assert is_lazy_and_in_place(lazy.exact.quantile(q, dim)["t"])
    lazy["profile"].attrs["unit"] = "m"  # which some versions of xarray drop where it is unchanged
    for keep_attrs in (None, True, False):
        wanted = loaded.quantile(q, dim, numeric_only=True, keep_attrs=True)
        if keep_attrs is False:  # with which xarray 2026.9 keeps some
            wanted.attrs, wanted["t"].attrs = {}, {}
        actual = lazy.exact.nanquantile(q, dim, keep_attrs=keep_attrs)
        wanted["profile"].attrs = {} if keep_attrs is False else {"unit": "m"}
        xr.testing.assert_identical(actual.compute().drop_vars("height", errors="ignore"), wanted)


def test_box_plots() -> None:
    loaded = cube()
    boxes = chunked(loaded).exact.describe_boxplot(["time", "x"], max_fliers=3).compute()
    assert boxes.labels == tuple("abcde")
    for label, box in zip("abcde", boxes, strict=True):
        (wanted,) = describe_boxplot(loaded.sel(y=label).values, max_fliers=3, labels=[label])
        np.testing.assert_equal(box.to_dict(), wanted.to_dict())
    (box,) = chunked(loaded).exact.describe_boxplot()
    assert box.n == int(loaded.count())
    both = xr.Dataset({"a": loaded, "b": -loaded, "c": ("z", ["x"])}).exact.describe_boxplot()
    assert both.labels == ("a", "b")


# --- Quantiles by the accessor --------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
@pytest.mark.parametrize("dtype", ["f8", "i4"])
@pytest.mark.parametrize("dim", DIMS)
def test_quantiles_as_xarrays(dtype: str, dim: Any) -> None:
    """But for coordinates without dimensions, which xarray's `quantile` drops."""
    loaded = cube(dtype)
    for array in (loaded, chunked(loaded)):
        for q in (0.3, [0.1, 0.5]):
            wanted = loaded.quantile(q, dim, keep_attrs=True).assign_coords(height=2.0)
            for actual in (
                array.exact.nanquantile(q, dim),
                array.exact.nanpercentile(100 * np.asarray(q), dim),
            ):
                xr.testing.assert_allclose(actual.compute(), wanted, rtol=1e-14)
                assert actual.attrs == wanted.attrs
                assert actual.name == wanted.name
        actual = array.exact.nanmedian(dim, keep_attrs=False)
        xr.testing.assert_identical(actual.compute(), loaded.median(dim, keep_attrs=False))
        for skipna in (None, True, False):
            actual = array.exact.median(dim, skipna=skipna)
            wanted = loaded.median(dim, skipna=skipna, keep_attrs=True)
            xr.testing.assert_identical(actual.compute(), wanted)
            actual = array.exact.quantile(0.3, dim, skipna=skipna)
            wanted = loaded.quantile(0.3, dim, skipna=skipna)
            np.testing.assert_array_equal(actual.compute(), wanted)
    for name in ("mad", "nanmad", "iqr", "naniqr"):
        actual = getattr(chunked(loaded).exact, name)(dim, skipna=name.startswith("nan"))
        assert is_lazy_and_in_place(actual)
        wanted = loaded.median(dim, keep_attrs=True)
        axes = tuple(loaded.get_axis_num(each) for each in np.atleast_1d(dim or loaded.dims))
        wanted = wanted.copy(data=getattr(robust, name)(loaded.values, axes))
        xr.testing.assert_identical(actual.compute(), wanted)


MASKS: dict[str, Callable[[xr.DataArray], Any]] = {
    "whole": lambda a: a.fillna(0) > 1,
    "along y": lambda a: a.y > "b",
    "along x and time": lambda a: a.isel(y=0).fillna(1).transpose("x", "time") > 0,
    "an array": lambda a: a.values > 1,
}


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
@pytest.mark.parametrize("dim", [None, "time", ["x", "time"]])
@pytest.mark.parametrize("name", MASKS)
def test_masks_are_broadcast_by_name(name: str, dim: Any) -> None:
    loaded = cube()
    keeps = MASKS[name](loaded)
    wanted = loaded.where(keeps).median(dim, keep_attrs=True).drop_vars("y", errors="ignore")
    for array in (loaded, chunked(loaded)):
        for mask in (keeps, keeps.chunk(5)) if isinstance(keeps, xr.DataArray) else (keeps,):
            actual = array.exact.nanmedian(dim, where=mask).drop_vars("y", errors="ignore")
            xr.testing.assert_identical(actual.compute(), wanted)


@pytest.mark.legacy  # query planning has no broadcast_to
def test_boxes_with_weights_by_dimension() -> None:
    """Of an array, and of the variables of a dataset, one of which is transposed."""
    loaded = cube()
    weights = xr.DataArray(np.arange(1.0, 1 + loaded.sizes["y"]), coords={"y": loaded.y})
    spread = weights.broadcast_like(loaded).transpose(*loaded.dims).values
    keeps = loaded.y > "b"
    for each in (weights, weights.chunk(2)):
        (box,) = chunked(loaded).exact.describe_boxplot(weights=each)
        (wanted,) = describe_boxplot(loaded.values, weights=spread)
        np.testing.assert_equal(box.to_dict(), wanted.to_dict())
        both = xr.Dataset({"a": chunked(loaded), "b": chunked(loaded.transpose("y", ...))})
        for box in both.exact.describe_boxplot(weights=each):
            np.testing.assert_equal(box.to_dict() | {"label": None}, wanted.to_dict())
        for box in both.exact.describe_boxplot(where=keeps, weights=each):
            assert box.n == float((weights * keeps * loaded.notnull()).sum())


def test_nodata_is_told_and_not_guessed() -> None:
    attrs = {"_FillValue": 0, "missing_value": 0}
    loaded = xr.DataArray(np.array([0, 0, 0, 5, 6, 7], "u2"), dims="x", attrs=attrs)
    for array in (loaded, loaded.chunk(x=4)):
        assert array.exact.median().compute() == 2.5
        assert array.exact.median(nodata=0).compute() == 6
        result = array.exact.quantile(0.5, nodata=0, method="lower")
        assert result.dtype == np.uint16
        assert result.attrs == attrs


def test_masked_chunks() -> None:
    """Which xarray fills with NaN itself."""
    loaded = cube("i4").values
    masked = da.ma.masked_less(da.from_array(loaded, chunks=7), 0)
    array = xr.DataArray(masked, dims=("time", "y", "x"))
    assert array.exact.nanmedian().compute() == np.median(loaded[loaded >= 0])
    wanted = np.ma.median(np.ma.masked_less(loaded, 0), 0)
    np.testing.assert_array_equal(array.exact.nanmedian("time").compute(), wanted)


# --- As xarray's own are typed --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
@pytest.mark.parametrize("dim", [..., 0, ("x", "m"), [("x", "m")], [0, "y"]])
def test_dimensions_are_told_as_xarrays(dim: Any) -> None:
    loaded = xr.DataArray(cube().values, dims=(0, "y", ("x", "m")))
    lazy = loaded.chunk({0: 7, "y": 2})
    given = [dim] if dim == ("x", "m") else dim  # in which xarray sees two dimensions
    wanted = loaded.median(given)
    xr.testing.assert_identical(lazy.exact.median(dim).compute(), wanted)
    (*_, box) = lazy.exact.describe_boxplot(dim).compute()
    assert box.med == wanted.values.ravel()[-1]
    table = lazy.to_dataset(name="t").exact.median(dim)
    np.testing.assert_array_equal(table["t"].compute(), wanted)


def test_names_are_those_of_the_data() -> None:
    loaded = cube()
    for name in (None, "t", 7):
        lazy = chunked(loaded.rename(name)).assign_coords(hour=loaded.hour)  # which is not lazy
        months = lazy.exact.groupby("hour")
        results = [lazy.exact.median("time"), lazy.exact.quantile(0.5), months.median()]
        with enable():
            results.append(lazy.groupby("hour").quantile(0.5))
        assert {each.name for each in results} == {name}


def test_plans_and_descriptions() -> None:
    lazy = chunked(cube())
    plan = lazy.exact.explain([0.1, 0.9], "time")
    assert plan == explain(lazy.data, [0.1, 0.9], 0)
    table = xr.Dataset({"t": lazy, "still": lazy.compute()})
    assert table.exact.explain([0.1, 0.9], "time") == {"t": plan}
    assert repr(lazy.exact) == "<exact order statistics of a DataArray (time: 40, y: 5, x: 6)>"
    assert repr(table.exact).startswith("<exact order statistics of a Dataset (time: 40, ")


# --- weighted().quantile() ------------------------------------------------------------------------


# Dask's expressions lack `broadcast_to`, which xarray calls.
@pytest.mark.few(3)
@pytest.mark.legacy
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
@pytest.mark.parametrize("dim", [None, "time", "y", ["y", "time"], ["x", "y"]])
@pytest.mark.parametrize("skipna", [None, True, False])
@pytest.mark.parametrize("kind", ["along y", "with 0", "lazy", "whole", "ints"])
def test_weighted_quantiles_as_xarrays(kind: str, skipna: bool | None, dim: Any) -> None:
    loaded = cube("i4" if kind == "ints" else "f8")
    weights = xr.DataArray(np.cos(np.arange(5.0)) ** 2, dims="y", coords={"y": list("abcde")})
    if kind == "whole":
        weights = abs(loaded).fillna(1)
    elif kind == "with 0":
        weights[2] = 0
    for q in (0.3, [0.0, 0.1, 0.5, 1.0]):
        wanted = loaded.weighted(weights).quantile(q, dim=dim, skipna=skipna)
        with enable():
            each = weights.chunk() if kind == "lazy" else weights
            actual = chunked(loaded).weighted(each).quantile(q, dim=dim, skipna=skipna)
            there = loaded.weighted(weights).quantile(q, dim=dim, skipna=skipna)
        # By the accessor what weighs 0 takes no part, though it is NaN, and all 0 is an error.
        for array in (loaded, chunked(loaded)) if kind != "with 0" else ():
            also = array.exact.quantile(q, dim, weights=each, skipna=skipna)
            np.testing.assert_allclose(also.compute(), wanted, rtol=1e-11)
            assert also.dims == wanted.dims
        assert isinstance(actual.data, da.Array)
        xr.testing.assert_identical(there, wanted)
        xr.testing.assert_allclose(actual.compute(), wanted, rtol=1e-12)
        assert actual.attrs == wanted.attrs
        assert actual.name == wanted.name
    with enable():
        both = chunked(loaded).to_dataset().weighted(weights).quantile(0.5, dim=dim)
    wanted = loaded.to_dataset().weighted(weights).quantile(0.5, dim=dim)
    xr.testing.assert_allclose(both.compute(), wanted, rtol=1e-12)
