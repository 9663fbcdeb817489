"""What is left out: by `where`, by `nodata`, and by the mask of a masked array."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import array_api_strict
import dask.array as da
import numpy as np
import pytest
from distributed.protocol import deserialize, serialize
from numpy.typing import NDArray

import dask_gpuselect
from dask_gpuselect import median, nanmedian, nanquantile
from dask_gpuselect import quantile as ours_quantile
from dask_gpuselect.engine import threads
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import iqr, mad, naniqr, nanmad, trimmed_mean
from tests.backends import Backend
from tests.data import normal, uniform
from tests.limits import limited

quantile: Any = ours_quantile
SHAPE = (6, 20, 14)
CHUNKS = (4, 7, (5, 0, 9))
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "median": median,
    "nanmedian": nanmedian,
    "quantile": partial(quantile, q=0.3),
    "nanquantile": partial(nanquantile, q=[0.1, 0.9]),
    "nanpercentile": partial(dask_gpuselect.nanpercentile, q=30.0),
    "mad": mad,
    "nanmad": nanmad,
    "iqr": iqr,
    "naniqr": naniqr,
    "trimmed_mean": partial(trimmed_mean, proportiontocut=0.1),
}


def of_kept(a: NDArray[Any], keeps: NDArray[np.bool_], axis: Any) -> NDArray[Any]:
    """The medians of what is kept, as the matrix knows them of NumPy arrays in memory."""
    with warnings.catch_warnings(action="ignore"):
        return np.asarray(nanmedian(np.where(keeps, a.astype("f8"), np.nan), axis))


def data(dtype: str = "f8") -> NDArray[Any]:
    a = normal(int(np.prod(SHAPE))).reshape(SHAPE)
    if np.dtype(dtype).kind in "iu":
        return (abs(a) * 40).astype(dtype)
    return (a * 4).round(1).astype(dtype)


def mask() -> NDArray[np.bool_]:
    """With lanes along every axis of which all is left out, and some of which nothing is."""
    keeps = uniform(int(np.prod(SHAPE))).reshape(SHAPE) > 0.4
    keeps[:, 3, 5] = keeps[2, :, 6] = keeps[1, 4, :] = keeps[:, :, 2] = False
    keeps[:, 5, 5] = keeps[3, :, 7] = True
    return keeps


def same(actual: Any, wanted: Any, dtype: str = "f8") -> None:
    """float16 and float32 are rounded once more where NumPy computes in them."""
    rtol = {"f2": 2e-3, "f4": 1e-6}.get(np.dtype(dtype).str[1:], 0 if dtype == "f8" else 1e-15)
    np.testing.assert_allclose(np.asarray(actual, "f8"), wanted, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [("u2", [0, 7]), ("f4", [np.nan, -9999]), ("f8", []), ("f4", 0.1), ("i8", True), ("f8", 2**70)],
)
def test_nodata_in_numbers_of_python(backend: Backend, dtype: str, nodata: Any, axis: Any) -> None:
    """Which are rounded to the dtype; the matrix has values of the dtype."""
    a = data(dtype)
    values = np.atleast_1d(np.asarray(nodata, dtype))
    places = uniform(a.size).reshape(SHAPE) < 0.3
    if values.size:
        a[places] = np.resize(values, places.sum())
    is_out = (a[..., None] == values).any(-1) | (np.isnan(values).any() & np.isnan(a))
    assert values.size == 0 or is_out.any()
    result = median(backend.lazy(a, CHUNKS), axis=axis, nodata=nodata)
    same(backend.to_numpy(result.compute()), of_kept(a, ~is_out, axis), dtype)


@pytest.mark.parametrize("kind", [list, tuple])
def test_nodata_beyond_int64(kind: Any) -> None:
    """Of such a list NumPy makes float64, which rounds."""
    x = da.from_array(np.array([0, 5, 2**63 + 1, 2**63 + 2], "u8"), chunks=2)
    assert quantile(x, 1.0, method="higher", nodata=kind([0, 2**63 + 2])).compute() == 2**63 + 1


def test_true_is_everything() -> None:
    x = da.from_array(data(), chunks=5)
    assert median(x, where=True).name == median(x).name
    for where in (np.True_, np.array(True), da.from_array(np.array(True))):
        assert median(x, where=where).compute() == np.median(data())


# --- Masked arrays --------------------------------------------------------------------------------


def masked(a: NDArray[Any], keeps: NDArray[np.bool_], is_lazy: bool) -> Any:
    if not is_lazy:
        return np.ma.array(a, mask=~keeps)
    return da.ma.masked_array(*(da.from_array(each, chunks=CHUNKS) for each in (a, ~keeps)))


def computed(result: Any) -> Any:
    return result.compute() if isinstance(result, da.Array) else result


@pytest.mark.parametrize("is_lazy", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_is_masked(name: str, is_lazy: bool) -> None:
    """Without a warning."""
    result = computed(FUNCTIONS[name](masked(data(), np.zeros(SHAPE, bool), is_lazy)))
    assert result.mask.all() if name == "nanquantile" else result is np.ma.masked
    few = masked(data("f4"), np.zeros(SHAPE, bool), is_lazy)
    whole = computed(FUNCTIONS[name](few, keepdims=True))
    assert whole.dtype == FUNCTIONS[name](data("f4")).dtype


@pytest.mark.parametrize("is_lazy", [False, True])
def test_integers_that_are_chosen_and_all_masked(
    is_lazy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several threads share the 1-D slices in memory."""
    monkeypatch.setitem(threads.WORTH, "bytes of lanes", 1)
    x = masked(data("u2"), mask(), is_lazy)
    for result in (quantile(x, [0.2, 0.7], axis=0, method="lower"), iqr(x, 0, method="lower")):
        assert (np.ma.getmaskarray(computed(result)) == ~mask().any(0)).all()
    assert computed(quantile(x, 0.5, axis=0, method="lower")).dtype == np.uint16


def test_a_mask_and_where_and_nodata() -> None:
    a, keeps = data("u2"), mask()
    others = uniform(a.size).reshape(SHAPE) > 0.5
    a[0, :, :9] = 60000
    x = masked(a, keeps, True)
    result = median(x, where=da.from_array(others, chunks=5), nodata=60000)
    assert result.compute() == np.median(a[keeps & others & (a != 60000)])


@pytest.mark.parametrize("axis", [None, 0])
def test_a_mask_in_memory_beside_a_lazy_one(axis: Any) -> None:
    """The answer is lazy, and known to be masked before it is computed."""
    a = np.ma.masked_less(np.arange(12.0).reshape(3, 4), 5)
    keeps = np.arange(12).reshape(3, 4) % 4 > 0
    actual = median(a, axis=axis, where=da.from_array(keeps, chunks=2))
    assert isinstance(actual._meta, np.ma.MaskedArray)
    wanted = median(np.ma.array(a.data, mask=a.mask | ~keeps), axis=axis)
    np.testing.assert_array_equal(np.ma.getmaskarray(actual.compute()), np.ma.getmaskarray(wanted))
    np.testing.assert_array_equal(np.ma.filled(actual.compute()), np.ma.filled(wanted))


# --- What is missing ------------------------------------------------------------------------------


# --- Arrays of every kind -------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, (0, 2)])
def test_arrays_of_the_standard_beside_others(axis: Any) -> None:
    a, keeps = data("f4"), mask()
    x, where = (array_api_strict.asarray(each) for each in (a, keeps))
    wanted = of_kept(a, keeps, axis)
    same(median(x, axis, where=keeps), wanted, "f4")
    same(median(da.from_array(a, chunks=CHUNKS), axis, where=where).compute(), wanted, "f4")


# Fill values: NumPy's default fits neither small integers nor float16, and distributed refuses it.

FILLED = ["?", "i1", "u2", "i8", "f2", "f8", "M8[s]"]
ANSWERS: dict[str, Callable[[Any], Any]] = {
    "elements": partial(ours_quantile, q=[0.2, 0.7], method="lower"),
    "an axis": partial(ours_quantile, q=0.5, axis=0, method="lower"),
    "axes of passes": partial(ours_quantile, q=0.5, axis=0, method="lower"),
    "groups": lambda x: groupby(x, np.arange(24).reshape(4, 6) % 5).quantile(0.5, method="lower"),
    "groups of lanes": lambda x: groupby(x, [0, 1, 0, 1], 0).quantile(0.5, method="lower"),
    "mad": partial(mad, axis=0),
    "iqr": partial(iqr, axis=0),
}


def of_small_dtype(dtype: str) -> Any:
    values = np.arange(24).reshape(4, 6).astype(dtype)
    mask = (values == values[1, 2]) | (np.arange(6) == 4)  # of which no element takes part
    # Chunks of dask's cross workers, too, and need a fill value that fits.
    fill = np.ones((), dtype)[()]
    return da.ma.masked_array(
        da.from_array(values, (2, 3)), da.from_array(mask, (2, 3)), fill_value=fill
    )


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("dtype", FILLED)
def test_answers_have_a_fill_value_that_can_be_sent(dtype: str, name: str) -> None:
    x = of_small_dtype(dtype)
    if name in {"mad", "iqr"} and x.dtype.kind in "bmM":
        return
    with limited(8 if "passes" in name else 2**30):
        answer = ANSWERS[name](x)
    result = answer.compute(scheduler="sync")
    for array in (result, answer._meta):
        assert isinstance(array, np.ma.MaskedArray)
        assert array.fill_value.dtype == array.dtype
        with np.errstate(all="raise"):
            received = deserialize(*serialize(array)), pickle.loads(pickle.dumps(array))
        for sent in received:
            np.testing.assert_array_equal(np.ma.getmaskarray(sent), np.ma.getmaskarray(array))
            np.testing.assert_array_equal(sent.filled(), array.filled())
