"""xarray's objects: the accessor, and xarray's own functions while ours are in dask's place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import dask_gpuselect.xarray  # noqa: F401 -- registers the accessors
from dask_gpuselect import describe_boxplot, disable, enable
from tests.data import normal
from tests.graphs import names_of
from tests.sources import Source

DIMS: tuple[Any, ...] = (None, "time", ["y", "time"], ["x"], ["time", "y", "x"])


@pytest.fixture(autouse=True)
def not_enabled() -> Iterator[None]:
    disable()
    yield
    disable()


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
    return array.chunk({"time": 7, "y": 2, "x": 4})


def is_lazy_and_in_place(found: xr.DataArray) -> bool:
    return isinstance(found.data, da.Array) and "rechunk" not in str(names_of(found.data))


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
@pytest.mark.parametrize("dtype", ["f8", "i4"])
@pytest.mark.parametrize("dim", DIMS)
def test_as_xarray_of_the_loaded_array(dtype: str, dim: Any) -> None:
    """Names, coordinates, attributes and all, while enabled."""
    loaded = cube(dtype)
    lazy = chunked(loaded)
    for skipna, keep_attrs in ((None, None), (True, False), (False, True)):
        how: dict[str, Any] = {"skipna": skipna, "keep_attrs": keep_attrs}
        with enable():
            median = lazy.median(dim, **how)
            quantiles = [(q, lazy.quantile(q, dim, **how)) for q in (0.3, [0.1, 0.5])]
        assert is_lazy_and_in_place(median)
        xr.testing.assert_identical(median.compute(), loaded.median(dim, **how))
        for q, found in quantiles:
            assert is_lazy_and_in_place(found)
            xr.testing.assert_identical(found.compute(), loaded.quantile(q, dim, **how))


def test_without_it_xarray_raises_or_rechunks() -> None:
    lazy = chunked(cube())
    with pytest.raises(NotImplementedError):
        lazy.median()
    assert not is_lazy_and_in_place(lazy.quantile(0.5, "time"))


def test_loads() -> None:
    source = Source((60, 50, 40))
    array = xr.DataArray(source.lazy((10, 50, 20)), dims=("time", "y", "x"))
    with enable():
        along, whole = array.quantile([0.25, 0.5], "time"), array.median()
    assert along.chunksizes["x"] == (20, 20)
    assert not source.loads
    along.compute()
    assert set(source.loads.values()) == {1}
    whole.compute()
    assert set(source.loads.values()) == {3}


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
@pytest.mark.parametrize("dim", [None, "time", ["time", "y"]])
def test_datasets(dim: Any) -> None:
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
    lazy = chunked(loaded)
    with enable():
        median = lazy.median(dim)
        quantile = lazy.quantile([0.1, 0.5], dim, numeric_only=True)
    assert is_lazy_and_in_place(median["t"])
    xr.testing.assert_identical(median.compute(), loaded.median(dim))
    wanted = loaded.quantile([0.1, 0.5], dim, numeric_only=True)
    xr.testing.assert_identical(quantile.compute(), wanted)


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


def test_bad_dimensions() -> None:
    with pytest.raises(ValueError, match="not found"):
        cube().exact.describe_boxplot(["time", "nowhere"])
    for how in ({"dim": "time"}, {"axis": 0}):
        with pytest.raises(TypeError, match="one by one"):
            cube().to_dataset().exact.describe_boxplot(**how)
