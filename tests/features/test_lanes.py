"""Quantiles along some axes: of every lane what the functions give for it alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

import dask_gpuselect
from dask_gpuselect import median, nanmedian, nanquantile, quantile
from dask_gpuselect.robust import iqr
from tests.backends import CUPY, Backend
from tests.data import FLOATS, INTEGERS, MISSING, normal
from tests.limits import limited, peak_of
from tests.oracle import expected, takes_q
from tests.spies import noted


def call(function: str, a: Any, q: Any, method: str, **how: Any) -> Any:
    f = getattr(dask_gpuselect, function)
    return f(a, q, method=method, **how) if takes_q(function) else f(a, **how)


def assert_same(backend: Backend, actual: Any, wanted: NDArray[Any]) -> None:
    actual = np.asarray(backend.to_numpy(actual))
    assert actual.dtype == wanted.dtype
    np.testing.assert_array_equal(actual, wanted)


# --- What is missing ----------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "axis"), [((3, 0), 1), ((0, 3), 0), ((2, 0, 3), 1)])
def test_lanes_of_nothing(backend: Backend, shape: tuple[int, ...], axis: int) -> None:
    a = np.empty(shape)
    for given in (backend.lazy(a, shape), backend.asarray(a)):
        for function in (median, nanmedian):
            with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
                result = dask.compute(function(given, axis=axis), scheduler="sync")[0]
            assert_same(backend, result, np.full(np.delete(shape, axis), np.nan))
        with pytest.raises(IndexError, match="an empty array has no quantiles"):
            quantile(given, 0.5, axis=axis)


# --- Kernels --------------------------------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u8"])
@pytest.mark.parametrize("n", [24, 33, 200, 700, 2500, 17_000, 60_000])
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")
def test_lanes_of_any_length(backend: Backend, n: int, dtype: str) -> None:
    """On a GPU: sorted by a thread, selected by a few, by warps, by a block, and digit by digit."""
    with np.errstate(over="ignore", under="ignore"):
        if dtype[0] == "f":
            a = np.stack([make(n) for make in (FLOATS | MISSING).values()]).astype(dtype)
        else:
            a = np.stack([make(n, dtype) for make in INTEGERS.values()])
    q = [0.5, 0.0, 0.3, 1.0, 0.01, 0.99, 0.7]
    methods = ("linear", "lower") if n < 300 else ("lower",)
    for function, method in itertools.product(("quantile", "nanquantile"), methods):
        answers = [np.asarray(expected(function, lane, q, method)) for lane in a]
        wanted = np.stack(answers, axis=1)
        cut = [n // 3, n // 3 + 1]
        for stack, axis in ((a, 1), (a.T.copy(), 0), (np.stack([a.T, a.T], axis=2), 0)):
            parts = [backend.asarray(part) for part in np.split(stack, cut, axis)]
            x = da.concatenate([da.from_array(part, asarray=False) for part in parts], axis)
            lazy = call(function, x, q, method, axis=axis)
            assert lazy.name.startswith((f"{function}-column", f"{function}-shares-column"))
            actual = np.asarray(backend.to_numpy(lazy.compute(scheduler="sync")))
            for lanes_found in (actual, *([actual[..., 0]] if actual.ndim == 3 else [])):
                if lanes_found.ndim == 2:
                    np.testing.assert_array_equal(lanes_found, wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i2"])
def test_few_long_lanes_are_answered_one_after_the_other(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = import_module("dask_gpuselect.kernels.cuda.plain_lanes")
    monkeypatch.setattr(kernels, "ALONE", 1)
    alone = noted(monkeypatch, kernels, "answers_of_few", lambda actual, *_: actual is not None)
    a = (normal(210_000) * 40 + 100).clip(0, 255).astype(dtype).reshape(3, -1)
    q = [0.1, 0.5, 0.93]
    for method in ("linear", "lower"):
        actual = CUPY.to_numpy(quantile(CUPY.asarray(a), q, axis=1, method=method))
        wanted = np.stack([expected("quantile", lane, q, method) for lane in a], axis=1)
        np.testing.assert_array_equal(actual, wanted)
    if dtype[0] == "f":
        a[1, 5] = np.nan
        actual = CUPY.to_numpy(nanquantile(CUPY.asarray(a), q, axis=1, method="lower"))
        np.testing.assert_array_equal(actual, np.nanquantile(a, q, axis=1, method="lower"))
    assert alone == [True, True, False][: len(alone)]


def test_chunks_of_any_layout(backend: Backend) -> None:
    """Strided, reversed, transposed; the reduced axes apart; more chunks than a kernel takes."""
    a = np.random.default_rng(0).normal(size=(90, 6, 8, 5))
    views: tuple[Callable[[Any], Any], ...] = (
        lambda x: x,
        lambda x: x[::-1],
        lambda x: x[:, ::2, :, ::-1],
        lambda x: x.transpose(3, 1, 0, 2),
        lambda x: x[..., ::3],
        lambda x: x[5:, 1:, 2:],
    )
    for view in views:
        array = view(backend.asarray(a))
        for axis in ((), 0, 1, 2, 3, (0, 1), (1, 2), (0, 3), (1, 3), (0, 2, 3)):
            assert_same(backend, median(array, axis=axis), np.median(view(a), axis=axis))
    x = backend.lazy(a, (1, 3, 8, 5))
    for axis in ((), 0, (0, 1)):
        result = median(x, axis=axis).compute(scheduler="sync")
        assert_same(backend, result, np.median(a, axis=axis))


def test_large_plain_arrays_are_not_copied() -> None:
    """Beside the answer there are the threads' tiles."""
    a = np.random.default_rng(0).normal(size=(100, 200, 400))
    median(a[:, :2], axis=0)  # imports are no part of it
    assert peak_of(median, a, axis=0) < a.nbytes / 4


# --- Graphs -------------------------------------------------------------------------------------


EMPTY: dict[str, Callable[[Any], Any]] = {
    "quantile": lambda x: quantile(x, [0.2, 0.5], 0, method="lower"),
    "nanquantile": lambda x: nanquantile(x, 0.5, 0, method="nearest"),
    "iqr": lambda x: iqr(x, 0, method="lower"),
    "weights": lambda x: quantile(
        x, 0.5, 0, method="inverted_cdf", weights=da.ones_like(x, dtype="f8")
    ),
}


@pytest.mark.parametrize("dtype", ["i8", "u1"])
@pytest.mark.parametrize("limit", ["1 GiB", "32 B"])
@pytest.mark.parametrize("name", EMPTY)
def test_arrays_that_prove_empty(name: str, limit: str, dtype: str) -> None:
    """The dtype of the answer may not be able to say that there is none."""
    x = da.from_array(np.ones((40, 2), dtype), chunks=(10, 1))
    with limited(limit):
        lazy = EMPTY[name](x[da.zeros(40, dtype=bool, chunks=10)])
    with pytest.raises(IndexError, match=f"empty array has no quantiles, and {np.dtype(dtype)}"):
        lazy.compute()


def test_floats_that_prove_empty() -> None:
    x = da.from_array(np.ones((40, 2)), chunks=(10, 1))
    lazy = quantile(x[x[:, 0] > 1], 0.5, 0, method="lower")
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        np.testing.assert_array_equal(lazy.compute(), [np.nan, np.nan])
