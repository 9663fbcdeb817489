"""Groups of xarray's objects: answers are those of xarray for data in memory, by the accessor and
by xarray's own methods while enabled, with flox or without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from xarray.groupers import BinGrouper, TimeResampler, UniqueGrouper

import dask_gpuselect.xarray
from dask_gpuselect import describe_boxplot, enable, robust
from dask_gpuselect.xarray.groups import grouped_object
from tests.data import normal
from tests.doors.test_xarray import is_lazy_and_in_place
from tests.spies import ComputedError, refuse

pytestmark = [
    pytest.mark.legacy,  # xarray indexes answers in ways that expressions lack
    pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning"),
]

DAYS = 90


@pytest.fixture(autouse=True)
def without_flox() -> Iterator[None]:
    # What flox answers in memory differs by scalar coordinates and the order of dimensions.
    with xr.set_options(use_flox=False):
        yield


def cube(dtype: str = "f8") -> xr.DataArray:
    """Weekly data with gaps: of each month a few steps."""
    a = (100 * normal(DAYS * 3 * 4)).reshape(3, DAYS, 4)
    if dtype[0] == "f":
        a[0, 5:40] = a[:, 60, 1] = np.nan
    times = np.datetime64("2000-01-15", "ns") + np.arange(DAYS) * np.timedelta64(7 * 86400, "s")
    steps = np.arange(DAYS)
    return xr.DataArray(
        a.astype(dtype),
        dims=("y", "time", "x"),
        coords={
            "time": times,
            "x": list("abcd"),
            "area": (("y", "x"), np.ones((3, 4))),
            "level": ("time", steps % 3 + 0.5, {"units": "Pa"}),
            "name": ("time", np.array(["dry", "wet", "ice"])[steps % 3]),
            "broken": ("time", np.where(steps % 4 == 1, np.nan, steps % 4)),
            "step": ("time", steps),
        },
        name="t",
        attrs={"units": "K"},
    )


def table() -> xr.Dataset:
    array = cube()
    return xr.Dataset(
        {
            "t": array,
            "count": ("time", np.arange(DAYS)),
            "profile": ("x", np.arange(4)),
            "is_hot": ("time", np.arange(DAYS) % 5 == 0),
            "code": ("x", list("pqrs")),
        },
        attrs={"title": "some"},
    )


def zones() -> xr.DataArray:
    """In another order of dimensions than the data, with NaN."""
    of_pixels = np.array([[1, 2, np.nan], [4, 1, 2], [1, 1, 1], [2, 2, np.nan]])
    coords = {"x": list("abcd")}
    return xr.DataArray(of_pixels, dims=("x", "y"), coords=coords, name="zone", attrs={"of": "map"})


def chunked(obj: Any, time: int = 25) -> Any:
    """Lazy data; coordinates stay in memory."""
    return obj.chunk({"time": time, "y": 2, "x": 3}).assign_coords(dict(obj.coords))


Grouper = Callable[[Any], Any]

# Of an object or of its accessor.
GROUPERS: dict[str, Grouper] = {
    "month": lambda a: a.groupby("time.month"),
    "season": lambda a: a.groupby("time.season"),
    "strings": lambda a: a.groupby("name"),
    "NaN among labels": lambda a: a.groupby("broken"),
    "an array": lambda a: a.groupby((cube().step % 4).rename("rest")),
    "groupers": lambda a: a.groupby(level=UniqueGrouper()),
    "mapping": lambda a: a.groupby({"level": BinGrouper(bins=[0, 1, 2, 3])}),
    "bins": lambda a: a.groupby_bins("level", [-2, 0, 1, 2, 5]),
    "named bins": lambda a: a.groupby_bins("step", [0, 9, 30], labels=["few", "many"], right=False),
    "months": lambda a: a.resample(time="MS"),
    "empty periods": lambda a: a.resample(time="3D"),
    "ends": lambda a: a.resample(time="2ME", label="left", closed="left"),
    "zones": lambda a: a.groupby(zones()),
    "bins of zones": lambda a: a.groupby_bins(zones(), [0, 1, 3, 9]),
}
SEVERAL: dict[str, Grouper] = {
    "along two dimensions": lambda a: a.groupby(name=UniqueGrouper(), x=UniqueGrouper()),
    "along one": lambda a: a.groupby(
        level=BinGrouper(bins=[-1, 0, 1, 9]), time=TimeResampler("QS")
    ),
}


def asked(name: str, obj: Any) -> list[tuple[Any, bool]]:
    """The groups of lazy data, and whether they are xarray's own."""
    return [(GROUPERS[name](obj.exact), False), (GROUPERS[name](obj), True)]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "dtype",
    ["f8", *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in ("f4", "i4", "u1"))],
)
@pytest.mark.parametrize("name", GROUPERS)
def test_as_xarray_of_the_loaded_array(name: str, dtype: str) -> None:
    """Names, coordinates, order of dimensions, attributes and all."""
    loaded = cube("i4").astype(dtype) if dtype == "u1" else cube(dtype)
    whole = GROUPERS[name](loaded)
    for skipna, keep_attrs in ((None, None), (True, False), (False, True)):
        how: dict[str, Any] = {"skipna": skipna, "keep_attrs": keep_attrs}
        for grouped, is_theirs in asked(name, chunked(loaded)):
            with enable():
                median = grouped.median(**how)
                quantiles = [(q, grouped.quantile(q, **how)) for q in (0.3, [0.9, 0.5])]
            assert name == "empty periods" or is_lazy_and_in_place(median), is_theirs
            wanted = whole.median(**how)
            assert median.dtype == wanted.dtype
            xr.testing.assert_identical(median.compute(), wanted)
            for q, actual in quantiles:
                assert isinstance(actual.data, da.Array)
                wanted = whole.quantile(q, **how)
                if keep_attrs is False:  # which xarray 2026.9 does not look at
                    wanted.attrs = {}
                assert actual.dtype == wanted.dtype
                actual = actual.compute()
                if dtype == "f4":  # NumPy subtracts in float32
                    np.testing.assert_allclose(actual, wanted, rtol=1e-4)
                    actual = actual.copy(data=wanted)
                xr.testing.assert_identical(actual, wanted)


@pytest.mark.few(3)
@pytest.mark.parametrize("dim", [..., ["time", "x"], "time", ["x", "time", "y"]])
@pytest.mark.parametrize("name", ["month", "bins", "months"])
def test_more_dimensions(name: str, dim: Any) -> None:
    for loaded in (cube(), table().drop_vars("is_hot")):
        whole = GROUPERS[name](loaded)
        for grouped, _ in asked(name, chunked(loaded)):
            with enable():
                result = grouped.median(dim)
            xr.testing.assert_identical(result.compute(), whole.median(dim))


def test_dimensions_that_are_not_of_the_groups() -> None:
    loaded = cube()
    lazy = chunked(loaded)
    with enable():
        result = lazy.groupby("time.month").median("x")
    xr.testing.assert_identical(result.compute(), loaded.groupby("time.month").median("x"))
    with pytest.raises(ValueError, match=r"lacks \['time'\]"):
        lazy.exact.groupby("time.month").median("x")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SEVERAL)
def test_several_groupers(name: str) -> None:
    """With the dimensions of the groups in the place of theirs, as in xarray's documentation."""
    loaded = cube()
    for q in (None, 0.3, [0.1, 0.9]):

        def ask(grouped: Any, q: Any = q) -> Any:
            return grouped.median() if q is None else grouped.quantile(q)

        wanted = ask(SEVERAL[name](loaded))
        order = {
            "along two dimensions": ("y", "name", "x"),
            "along one": ("y", "level_bins", "time", "x"),
        }[name] + (("quantile",) if np.ndim(q) else ())
        wanted = wanted.transpose(*order, transpose_coords=False)
        lazy = chunked(loaded)
        with enable():
            both = ask(SEVERAL[name](lazy)), ask(SEVERAL[name](lazy.exact))
        for actual in both:
            assert actual.dims == order
            assert isinstance(actual.data, da.Array)
            xr.testing.assert_identical(actual.compute(), wanted)


@pytest.mark.few(3)
@pytest.mark.parametrize("flox", [False, True])
@pytest.mark.parametrize(
    "name", ["months", "bins", "month", "zones", "NaN among labels", "empty periods"]
)
def test_datasets(name: str, flox: bool) -> None:
    """Variables that lack the dimension are repeated for each group. Flox is left out where it is
    installed: it fails, or is wrong, where chunks do not match the groups."""
    loaded = table().drop_vars("profile") if name == "zones" else table()
    lazy, numbers = chunked(loaded), loaded.drop_vars(["is_hot", "code"])
    wanted = GROUPERS[name](loaded).median()
    quantiles = GROUPERS[name](numbers).quantile([0.3, 0.9])
    with xr.set_options(use_flox=flox), enable():
        medians = [GROUPERS[name](each).median() for each in (lazy, lazy.exact)]
        actual = GROUPERS[name](chunked(numbers)).quantile([0.3, 0.9])
        of_array = GROUPERS[name](lazy["t"]).median()
    assert isinstance(medians[0]["t"].data, da.Array)
    for median in medians:
        xr.testing.assert_identical(median.compute(), wanted)
    array = GROUPERS[name](loaded["t"]).median()
    xr.testing.assert_identical(of_array.compute(), array)
    xr.testing.assert_identical(actual.compute(), quantiles)
    counts = GROUPERS[name](lazy.exact).count().compute()
    wanted = GROUPERS[name](loaded).count()
    xr.testing.assert_identical(counts, wanted.drop_vars("code") if name == "zones" else wanted)
    assert "code" not in GROUPERS[name](lazy.exact).count(nodata=1)


@pytest.mark.filterwarnings("ignore:Specified chunks:UserWarning")
def test_labels_in_chunks() -> None:
    """Which flox answers chunk by chunk, and so wrongly where a zone is in two of them."""
    loaded = cube()
    lazy = chunked(loaded).assign_coords(zone=zones().chunk({"x": 3, "y": 1}))
    for grouper in (UniqueGrouper(labels=np.array([1.0, 2.0, 4.0])), BinGrouper([0, 1, 3, 9])):
        wanted = loaded.assign_coords(zone=zones()).groupby(zone=grouper).median()
        for flox in (False, True):
            with xr.set_options(use_flox=flox), enable():
                own = lazy.groupby(zone=grouper, **EAGERLY).median()
            for actual in (own, lazy.exact.groupby(zone=grouper).median()):
                assert isinstance(actual.data, da.Array)
                xr.testing.assert_identical(actual.compute(), wanted)
    with pytest.raises(ValueError, match="labels"):
        lazy.exact.groupby("zone")
    with pytest.raises(ValueError, match=r"(?i)bin edges"):
        lazy.exact.groupby_bins("zone", 3)


# Before 2025.5 xarray loads labels unless it is told not to.
EAGERLY = {} if xr.__version__ >= "2025.05" else {"eagerly_compute_group": False}


@pytest.mark.parametrize("kind", ["loaded", "in chunks", "labels too"])
def test_labels_that_are_wanted(kind: str) -> None:
    """Others are left out; those without elements are NaN."""
    loaded = cube()
    loaded = loaded.assign_coords(step=loaded.step % 4)
    obj = loaded if kind == "loaded" else chunked(loaded)
    if kind == "labels too":
        obj = obj.assign_coords(step=loaded.step.chunk(time=11))
    actual = obj.exact.groupby(step=UniqueGrouper(labels=[3, 7, 0])).median("time").compute()
    assert actual.step.values.tolist() == [3, 7, 0]
    assert actual.dims == ("y", "step", "x")
    wanted = loaded.groupby("step").median()
    np.testing.assert_array_equal(actual.isel(step=[0, 2]), wanted.sel(step=[3, 0]))
    assert actual.isel(step=1).isnull().all()


def test_groups_of_a_multi_index() -> None:
    loaded = cube().isel(time=slice(12)).stack(pixel=("y", "x"))
    lazy = loaded.chunk(time=5, pixel=4)
    actual = lazy.exact.groupby("pixel").median().compute()
    # xarray keeps coordinates along a dimension whose every element is a group.
    xr.testing.assert_identical(actual, loaded.groupby("pixel").median().drop_vars("area"))
    for level in ("y", "x"):
        with enable():
            actual = lazy.groupby(level).quantile([0.2, 0.5])
        wanted = loaded.groupby(level).quantile([0.2, 0.5])
        xr.testing.assert_identical(actual.compute(), wanted)


def by_hand(name: str, function: Callable[..., Any]) -> Any:
    """Of each group by itself."""
    return GROUPERS[name](cube()).map(lambda a: a.reduce(function, "time", keep_attrs=True))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["month", "bins", "empty periods"])
@pytest.mark.parametrize("function", ["mad", "iqr", "trimmed_mean"])
def test_robust_statistics(function: str, name: str) -> None:
    for skipna, ask in ((None, f"nan{function}"), (False, function)):
        result = getattr(GROUPERS[name](chunked(cube()).exact), function)(skipna=skipna)
        xr.testing.assert_identical(result.compute(), by_hand(name, getattr(robust, ask)))
    result = GROUPERS[name](chunked(cube()).exact).count()
    xr.testing.assert_identical(result.compute(), GROUPERS[name](cube()).count())


def test_masks_and_weights() -> None:
    """By the names of dimensions, and lazy."""
    loaded = cube()
    keeps, weights = loaded.x > "a", xr.DataArray([1.0, 0.5, 2.0], dims="y")
    wanted = loaded.where(keeps).groupby("time.month").median(...)
    weighed = loaded.groupby("time.month").map(
        lambda a: a.exact.nanquantile(0.3, ["time", "y"], weights=weights)
    )
    months = chunked(loaded).exact.groupby("time.month")
    for each in (keeps, keeps.chunk(x=2)):
        xr.testing.assert_identical(months.median(..., where=each).compute(), wanted)
    for each in (weights, weights.chunk(y=1)):
        actual = months.quantile(0.3, ["time", "y"], weights=each)
        np.testing.assert_array_equal(actual.transpose(*weighed.dims), weighed)


def test_box_plots() -> None:
    loaded = cube()
    grouped = chunked(loaded).exact.groupby("name")
    assert repr(grouped) == "<3 groups of a DataArray along time>"
    assert len(grouped) == 3
    boxes = grouped.describe_boxplot(...).compute()
    assert boxes.labels == ("dry", "ice", "wet")
    for label, box in zip(boxes.labels, boxes, strict=True):
        some = loaded.isel(time=np.flatnonzero(loaded["name"] == label)).values
        (wanted,) = describe_boxplot(some, labels=[label])
        np.testing.assert_equal(box.to_dict(), wanted.to_dict())
    assert grouped.describe_boxplot().shape == (3, 3, 4)


# --- Loads, and what stays as it is ---------------------------------------------------------------


def test_in_memory_xarrays_own_path_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = cube()
    monkeypatch.setattr(dask_gpuselect.xarray.routed, "groups_of", refuse)
    with enable():
        loaded.groupby("time.month").median()
        loaded.to_dataset().resample(time="MS").quantile(0.5)
        with pytest.raises(ComputedError):
            chunked(loaded).groupby("time.month").median()


def test_disable_gives_xarrays_methods_back() -> None:
    grouped = chunked(cube()).groupby("time.month"), chunked(table()).resample(time="MS")
    kinds = [type(each) for each in grouped]
    before = [(vars(home).copy()) for kind in kinds for home in kind.__mro__]
    with enable():
        assert before != [(vars(home).copy()) for kind in kinds for home in kind.__mro__]
    after = [(vars(home).copy()) for kind in kinds for home in kind.__mro__]
    assert before == after


def test_what_ours_do_not_take_is_xarrays() -> None:
    """Spans of time, which it takes apart itself, and keywords of other engines."""
    loaded = cube("i8").astype("m8[ns]")
    with enable():
        result = chunked(loaded).groupby("time.month").median()
    xr.testing.assert_identical(result.compute(), loaded.groupby("time.month").median())
    with enable(), pytest.raises(TypeError):
        chunked(cube()).groupby("time.month").median(engine="flox", nothing=1)


@pytest.mark.parametrize("name", ["median", "quantile", "mad", "iqr", "trimmed_mean"])
@pytest.mark.parametrize("kind", ["?", "u1", "i8", "f4", "m8[ns]", "M8[ns]", "U1"])
def test_a_dataset_is_asked_about_the_same_variables_with_and_without_groups(
    name: str, kind: str
) -> None:
    """Bool and time differences are numbers, as in xarray, where a function answers about them."""
    of_quantiles = name in ("median", "quantile")
    values = np.array([1, 0, 1, 1]).astype(kind)
    labels = xr.DataArray([0, 0, 1, 1], dims="t", name="g")
    ds = xr.Dataset({"v": ("t", values), "w": ("t", np.arange(4.0))}).chunk(t=2)
    for how in ({}, {"method": "lower"}) if name == "quantile" else ({},):
        q = [0.5] if name == "quantile" else []
        whole = getattr(ds.exact, name)(*q, **how)
        grouped = getattr(ds.exact.groupby(labels), name)(*q, **how)
        assert set(whole) == set(grouped)
        is_there = kind[0] in "uif" or (kind == "?" and name in ("median", "mad", "trimmed_mean"))
        is_there |= (kind == "?" and bool(how)) or (kind[0] == "m" and of_quantiles)
        assert ("v" in whole) == is_there
        if is_there:
            alone = getattr(ds.v.isel(t=[2, 3]).exact, name)(*q, **how)
            second = grouped.v.isel(g=1)
            np.testing.assert_array_equal(np.squeeze(second.values), np.squeeze(alone.values))


def test_what_is_grouped_is_told_or_asked_for() -> None:
    grouped = xr.DataArray([1.0, 2.0], dims="x", coords={"x": [0, 1]}).groupby("x")
    assert grouped_object(grouped).identical(grouped._original_obj)
    with pytest.raises(TypeError, match=r"type a\.exact\.groupby"):
        grouped_object(object())
