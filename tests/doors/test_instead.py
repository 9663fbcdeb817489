"""Objects that are no arrays are refused, with what to type instead; and that works."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

import dask_gpuselect.dataframe
import dask_gpuselect.xarray  # noqa: F401
from dask_gpuselect import describe_boxplot, enable, median, nanmedian, sort
from dask_gpuselect.groups import groupby
from dask_gpuselect.optional import INSTEAD

pytestmark = [pytest.mark.any_dask, pytest.mark.usefixtures("in_this_thread")]

VALUES = np.arange(24.0).reshape(4, 6)
X = xr.DataArray(
    VALUES,
    dims=("time", "x"),
    coords={"time": pd.date_range("2024-01-30", periods=4).to_numpy().astype("M8[ns]")},
    name="v",
).chunk(time=2)
SET = X.to_dataset(name="temperature")
DF = dd.from_pandas(pd.DataFrame({"a": [1.0, 2, 3], "key": [0, 0, 1]}), npartitions=2)
PANDAS = pd.DataFrame({"a": [1.0, 2, 3], "key": [0, 0, 1]})


CASES: list[tuple[Callable[[], Any], str, float]] = [
    (lambda: X.groupby("time.month"), 'x.exact.groupby("time.month").median()', 3),
    (lambda: X.to_dataset().groupby("time.month"), 'x.exact.groupby("time.month").median()', 3),
    (lambda: X.compute().groupby("time.month"), 'x.exact.groupby("time.month").median()', 3),
    (lambda: X.resample(time="MS"), 'x.exact.resample(time="MS").median()', 3),
    (lambda: X.rolling(time=2), 'a.construct("window").data', np.nan),
    (lambda: X.coarsen(time=2), 'a.construct(time=("step", "part")).data', 0),
    (lambda: X.weighted(X), "x.exact.quantile(q, weights=w)", 11.5),
    (lambda: SET, 'a["temperature"].data', 0),
    (lambda: SET.compute(), 'a["temperature"].data', 0),
    (lambda: xr.DataTree(SET.compute()), 'a["temperature"].data', 0),
    (lambda: PANDAS.groupby("key").a, "a.median()", 1.5),
    (lambda: PANDAS.a.rolling(1), "a.median()", 1),
    (lambda: PANDAS.a.expanding(), "a.median()", 1),
    (lambda: PANDAS.a.set_axis(pd.date_range("2024", periods=3)).resample("D"), "a.median()", 1),
    (lambda: DF.groupby("key"), 'df.exact.groupby("key")["a"].median()', 1.5),
    (lambda: DF.groupby("key").a, 'df.exact.groupby("key")["a"].median()', 1.5),
    (lambda: DF.a.rolling(1), "a.median()", 1),
    (
        lambda: dask.bag.from_sequence([1.0, 2.0]),
        'a.to_dataframe(meta={"a": float})["a"].values',
        1,
    ),
    (lambda: dask.delayed(np.ones)(3), "da.from_delayed(a, shape, dtype)", 1),
    (lambda: (i for i in range(1, 4)), "list(a)", 1),
    (lambda: map(float, [1, 2]), "list(a)", 1),
    (lambda: iter([1, 2]), "list(a)", 1),
    (lambda: {1, 2}, "list(a)", 1),
    (lambda: {"a": 1.0}.values(), "list(a)", 1),
    (lambda: groupby(da.ones(4, chunks=2), np.array([0, 0, 1, 1])), "a.median()", 1),
    (lambda: da.ones(4, chunks=2).exact, "a.median()", 1),
    (lambda: X.exact, "a.median()", 11.5),
]
"""An object, the code that the error names, and the first number of what that gives."""


def first_of(result: Any) -> float:
    (result,) = dask.compute(result)
    return float(np.ravel(result.data if isinstance(result, xr.DataArray) else result)[0])


@pytest.mark.parametrize(("make", "code", "first"), CASES)
def test_what_to_type_instead(make: Callable[[], Any], code: str, first: float) -> None:
    a = make()
    with pytest.raises(TypeError, match="^expected an array, not ") as error:
        median(a)
    assert code in str(error.value)
    names = {"a": a, "x": X, "df": DF, "q": 0.5, "w": xr.ones_like(X), "da": da}
    actual = first_of(eval(code, names | {"shape": (3,), "dtype": "f8"}))
    np.testing.assert_equal(actual, first)


@pytest.mark.parametrize("function", [sort, describe_boxplot, lambda a: groupby(a, [0, 1])])
def test_every_function_says_it(function: Callable[[Any], Any]) -> None:
    for make in (lambda: X.groupby("time.month"), lambda: DF.groupby("key")):
        with pytest.raises(TypeError, match=r"^expected an array, not .*\.exact\.groupby\("):
            function(make())


def test_windows_of_xarray() -> None:
    """Both ways that the error names."""
    with enable():
        rolled, coarse = X.rolling(time=2).median(), X.coarsen(time=2).median()
    windows = X.rolling(time=2).construct("window").data
    np.testing.assert_array_equal(rolled[1:], nanmedian(windows, axis=-1)[1:])
    parts = X.coarsen(time=2).construct(time=("step", "part")).data
    np.testing.assert_array_equal(coarse, median(parts, axis=1))


def test_arrays_on_disk(tmp_path: Path) -> None:
    """NumPy would load all of them."""
    group = zarr.create_group(tmp_path / "a.zarr")
    array = group.create_array("temperature", shape=(3,), chunks=(2,), dtype="f8")
    array[:] = [3, 1, 2]
    for a, code in [
        (group["temperature"], "da.from_zarr(a)"),
        (group, 'da.from_zarr(a["temperature"])'),
    ]:
        with pytest.raises(TypeError, match="^expected an array, not ") as error:
            median(a)
        assert code in str(error.value)
        assert float(median(eval(code, {"a": a, "da": da})).compute()) == 2
    with pytest.raises(TypeError, match=r"^expected an array, not Array of zarr: pass da\.from_za"):
        describe_boxplot([group["temperature"], np.ones(3)])
    with pytest.raises(TypeError, match=r"Path of pathlib: open it first, .* da\.from_zarr\(a\)"):
        median(tmp_path / "a.zarr")


def stranger(package: str, name: str, **attributes: Any) -> Any:
    """An object of a package that is not installed."""
    return type(name, (), {"__module__": f"{package}.core", **attributes})()


@pytest.mark.parametrize("package", INSTEAD)
def test_every_row_is_reached(package: str) -> None:
    """No row before another takes its objects."""
    for part, advice in INSTEAD[package].items():
        with pytest.raises(TypeError, match=f"not {part} of {package}: ") as error:
            median(stranger(package, part))
        assert str(error.value).endswith(advice.format(name="a"))


def test_arrays_on_a_gpu_that_are_not_cupys() -> None:
    tensor = stranger("torch", "Tensor", __cuda_array_interface__={}, __array__=None)
    with pytest.raises(
        TypeError, match=r"torch\.core\.Tensor are not supported on a GPU: pass cupy\."
    ):
        median(tensor)


@pytest.mark.parametrize("a", [None, "data.zarr", b"x", median, 2**70, pd.NaT, SimpleNamespace()])
def test_what_is_no_array_is_named(a: Any) -> None:
    with pytest.raises(TypeError, match="array of real numbers, bools or dates, not ") as error:
        median(a)
    assert type(a).__name__ in str(error.value)


@pytest.mark.parametrize(
    ("a", "code"),
    [
        (np.array([2, 1.5, 3], object), 'a.astype("f8")'),
        (np.array([2 + 1j]), "a.real"),
        (np.array([2.0], np.longdouble), 'a.astype("f8")'),
        (np.array([2.0], [("name", "f8")]), 'a["name"]'),
    ],
    ids=["object", "complex", "long double", "record"],
)
def test_other_dtypes_are_told_how_to_convert(a: Any, code: str) -> None:
    for given in (a, da.from_array(a, chunks=1)):
        with pytest.raises(TypeError, match="array of real numbers, bools or dates, not ") as error:
            median(given)
        assert code in str(error.value)
    assert median(eval(code, {"a": a})) == 2


def test_lists_of_unequal_arrays() -> None:
    unequal = [np.ones(3), np.full(4, 2.0)]
    with pytest.raises(ValueError, match=r"shapes, \(3,\) and \(4,\), .*: pass a dict of arrays"):
        median(unequal)
    assert median(dict(enumerate(unequal))) == {0: 1, 1: 2}
    lazy = [da.from_array(each) for each in unequal]
    assert dask.compute(median(lazy)) == ([1, 2],)


@pytest.mark.parametrize(
    "a",
    [
        pd.Series([3, 1, 2]),
        pd.Series([3, 1, 2], dtype="int64[pyarrow]"),
        pd.array([3, 1, 2]),
        pd.Index([3, 1, 2]),
        pd.DataFrame({"a": [3, 1, 2]}),
        X.compute()[:3, 1] * 0 + 2,
        range(1, 4),
        deque([3, 1, 2]),
        memoryview(np.array([3, 1, 2])),
        np.ma.masked_greater([3, 1, 2, 9], 5),
    ],
    ids=lambda a: type(a).__name__,
)
def test_what_numpy_takes_in_memory_is_taken(a: Any) -> None:
    assert median(a) == 2


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_matrices() -> None:
    assert median(np.matrix([3, 1, 2])) == 2
    assert median(np.matrix([3, 1, 2]), axis=1) == [2]
