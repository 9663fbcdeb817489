"""Lanes of overlapping windows: what is found in all of them at once is what is found in each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import nanquantile, quantile
from dask_gpuselect.groups import groupby
from dask_gpuselect.kernels.cpu import window_lanes
from dask_gpuselect.maths.atoms import Atoms
from tests.data import normal, uniform


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u8"])
def test_days_of_years(dtype: str) -> None:
    """As users ask: five days around each of a year, at once and lazily, NaN left out or not."""
    a: NDArray[Any] = (100 * normal(1100 * 6)).astype(dtype).reshape(1100, 2, 3)
    if a.dtype.kind == "f":
        a[uniform(1100) < 0.02] = np.nan
    days = np.arange(1100) % 365
    windows = {i: np.flatnonzero((days - i + 2) % 365 < 5) for i in range(0, 365, 3)}
    atoms = Atoms.of(list(windows.values()), 1100)
    assert atoms is not None
    assert window_lanes.is_faster(atoms, a.dtype)
    grouped = groupby(a, windows, 0)
    with np.errstate(invalid="ignore"):
        found = grouped.quantile([0.1, 0.9])
        valid = grouped.nanquantile(0.5)
    for i, window in enumerate(windows.values()):
        np.testing.assert_array_equal(found[:, i], quantile(a[window], [0.1, 0.9], 0))
        np.testing.assert_array_equal(valid[i], nanquantile(a[window], 0.5, 0))
