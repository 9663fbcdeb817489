"""The kernel of lanes too long for shared memory, where keys have digits that are all the same."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import nanquantile, quantile
from dask_gpuselect.kernels.cuda import source
from tests.backends import CUPY
from tests.data import normal, uniform

pytestmark = pytest.mark.gpu

Q = [0.0, 0.25, 0.5, 0.75, 0.99999, 1.0]
N_LANES = 11


def lanes(n: int, values: NDArray[Any]) -> NDArray[Any]:
    return values[: n * N_LANES].reshape(n, N_LANES)


def each(n: int) -> NDArray[np.float64]:
    """Another number for each lane."""
    return np.broadcast_to(np.arange(N_LANES) * 1.7 - 3, (n, N_LANES)).copy()


def one_varies(n: int) -> NDArray[np.float64]:
    values = each(n)
    values[:, 4] = normal(n)
    return values


def with_one(n: int, value: float) -> NDArray[np.float64]:
    """An element of each lane but one differs from all others."""
    values = each(n)
    values[n // 3, 1:] = value
    return values


DATA: dict[str, Callable[[int], NDArray[np.float64]]] = {
    "normal": lambda n: lanes(n, normal(n * N_LANES)),
    "whole": lambda n: np.floor(10 * lanes(n, uniform(n * N_LANES))),
    "whole of both signs": lambda n: np.floor(200 * lanes(n, uniform(n * N_LANES))) - 100,
    "each its own": each,
    "one varies": one_varies,
    "one larger": lambda n: with_one(n, 99.0),
    "one smaller": lambda n: with_one(n, -99.0),
    "two values": lambda n: np.where(lanes(n, uniform(n * N_LANES)) < 0.5, 1.0, 1.0 + 2.0**-20),
    "largest and NaN": lambda n: np.where(
        lanes(n, uniform(n * N_LANES)) < 0.5, np.nan, float(np.finfo("f4").max)
    ),
    "one NaN": lambda n: with_one(n, np.nan),
    # Their keys begin as that of NaN.
    "NaN and large": lambda n: np.where(lanes(n, uniform(n * N_LANES)) < 0.3, np.nan, np.inf),
    "half NaN": lambda n: np.where(lanes(n, uniform(n * N_LANES)) < 0.5, np.nan, each(n)),
}


@pytest.fixture(autouse=True)
def only_the_kernel_of_long_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LONG_SIDE_BY_SIDE", 1)
    kernels = import_module("dask_gpuselect.kernels.cuda.plain_lanes")
    monkeypatch.setattr(kernels, "kernel_for", lambda *_: None)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i2", "i8", "u1"])
@pytest.mark.parametrize("name", DATA)
def test_digits_that_are_the_same(name: str, dtype: str, axis: int) -> None:
    """And missing elements, whose keys are the largest."""
    with np.errstate(invalid="ignore", over="ignore"):
        values = DATA[name](5_000)
        values = (values if dtype[0] == "f" else np.nan_to_num(values)).astype(dtype)
    values = values if axis == 0 else np.ascontiguousarray(values.T)
    for function in (quantile, nanquantile):
        found = CUPY.to_numpy(function(CUPY.asarray(values), Q, axis=axis))
        np.testing.assert_array_equal(found, function(values, Q, axis=axis))
