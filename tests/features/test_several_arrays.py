"""Quantiles of several arrays in a call: dicts and lists of answers, in shared loads."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dask_gpuselect
from dask_gpuselect import describe_boxplot, median, nanquantile, quantile
from tests.data import hashed
from tests.oracle import FUNCTIONS
from tests.sources import Source

Q = [0.1, 0.5, 0.75]
A = hashed(np.arange(3000)).reshape(100, 30)
PLAIN = {"a": A, "b": (A * 100).astype("i4"), 3: A[:7].astype("f4")}


def lazy(arrays: dict[Any, Any]) -> dict[Any, Any]:
    return {key: da.from_array(a, chunks=17) for key, a in arrays.items()}


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_dict_is_answered_by_a_dict(name: str, axis: int | None) -> None:
    ask, q = getattr(dask_gpuselect, name), ()
    if "median" not in name:
        q = (([10.0, 50.0] if "percentile" in name else Q),)
    result, (computed,) = ask(PLAIN, *q, axis=axis), dask.compute(ask(lazy(PLAIN), *q, axis=axis))
    assert list(result) == list(computed) == ["a", "b", 3]
    for key, a in PLAIN.items():
        alone = ask(a, *q, axis=axis)
        for each in (result[key], computed[key]):
            assert each.dtype == alone.dtype
            np.testing.assert_array_equal(each, alone)


def test_a_list_with_a_lazy_array_is_answered_by_a_list() -> None:
    x = da.from_array(A, chunks=40)
    for given in ([x, A + 1], (A, x + 1)):
        result = median(given)
        assert isinstance(result, list)
        assert all(isinstance(each, da.Array) for each in result)
        assert dask.compute(*result) == (np.median(A), np.median(A + 1))


def test_a_list_of_plain_arrays_is_one_array_as_for_numpy() -> None:
    assert median([A[0], A[1]]) == np.median([A[0], A[1]])
    assert median([[1, 2], [3, 9]]) == 2.5
    x = da.from_array(A, chunks=40)
    with pytest.raises(TypeError, match=r"da\.stack"):
        median([x.sum(), x.mean()])


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("ask", [median, describe_boxplot])
def test_answers_share_loads(ask: Callable[[Any], Any]) -> None:
    source = Source((60_000,))
    x = source.lazy(7000)
    result = ask({"x": x, "double": 2 * x, "far": x + 1e9})
    assert not source.loads
    dask.compute(result)
    assert set(source.loads.values()) == {2}
    again = Source((60_000,))
    x = again.lazy(7000)
    dask.compute(ask([x, x - 1]))
    assert set(again.loads.values()) == {2}


def test_masks_and_weights_of_each() -> None:
    x, masks = lazy(PLAIN), {key: a > a.mean() for key, a in PLAIN.items()}
    weights = {key: np.arange(a.size).reshape(a.shape) % 4 for key, a in PLAIN.items()}
    weights[3] = None
    (result,) = dask.compute(nanquantile(x, 0.5, where=masks))
    assert result == {key: np.median(a[masks[key]]) for key, a in PLAIN.items()}
    how: dict[str, Any] = {"method": "inverted_cdf"}
    (result,) = dask.compute(quantile(x, 0.5, weights=weights, **how))
    for key, a in PLAIN.items():
        own = None if weights[key] is None else weights[key].ravel()
        assert result[key] == np.quantile(a.ravel(), 0.5, weights=own, **how)
    keeps = A > 0.5
    (result,) = dask.compute(median([x["a"], x["b"]], where=keeps))
    assert result == [np.median(PLAIN[key][keeps]) for key in "ab"]
    (result,) = dask.compute(median([x["a"], x["b"]], where=[keeps, ~keeps]))
    assert result == [np.median(A[keeps]), np.median(PLAIN["b"][~keeps])]
    with pytest.raises(ValueError, match="with the same keys"):
        median(x, where={"a": keeps})
    with pytest.raises(ValueError, match="where has 2 arrays, and the data have 3"):
        median([x["a"]] * 3, where=[keeps, keeps])


def test_none_some_empty_and_some_in_memory() -> None:
    x = {"empty": da.empty(0), "memory": A, "lazy": da.from_array(A, chunks=40)}
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        (result,) = dask.compute(median(x))
    assert np.isnan(result["empty"])
    assert result["memory"] == result["lazy"] == np.median(A)
    with pytest.raises(TypeError, match="complex"):
        median({"a": A, "b": A * 1j})
