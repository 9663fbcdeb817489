"""Lanes of overlapping windows: what is found in all of them at once is what is found in each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect import nanquantile, quantile
from dask_gpuselect.groups import groupby
from dask_gpuselect.kernels.cpu import window_lanes
from dask_gpuselect.maths.atoms import Atoms
from dask_gpuselect.quantiles.questions import Quantiles
from tests.data import normal, uniform


def question(q: tuple[float, ...], dtype: str) -> Quantiles:
    return Quantiles(q, "linear", True, np.dtype(dtype), np.dtype(np.float64))


@settings(max_examples=60)
@given(st.data())
def test_any_windows(draw: st.DataObject) -> None:
    n, n_lanes = draw.draw(st.integers(1, 25)), draw.draw(st.integers(1, 4))
    values = st.integers(-3, 3).map(float) | st.sampled_from([np.nan, np.inf, -np.inf, -0.0])
    rows = draw.draw(st.lists(values, min_size=n * n_lanes, max_size=n * n_lanes))
    a = np.array(rows).reshape(n_lanes, n)
    windows = draw.draw(
        st.lists(st.sets(st.integers(0, n - 1), min_size=1), min_size=2, max_size=6)
    )
    given_windows = [np.array(sorted(each)) for each in windows]
    atoms = Atoms.of(given_windows, n)
    assert atoms is not None
    if not window_lanes.is_faster(atoms, a.dtype):
        return
    q = tuple(draw.draw(st.lists(st.floats(0, 1), min_size=1, max_size=3)))
    asked = question(q, "f8")
    cut = draw.draw(st.integers(0, n))
    found = window_lanes.window_lanes([a[:, :cut], a[:, cut:]], atoms, asked.lane_ranks)
    assert found is not None
    place = 0
    for window in given_windows:
        for lane in a:
            some = np.sort(lane[window])
            n_valid = int((some == some).sum())
            assert (found.n_valid[place], found.n_missing[place]) == (n_valid, len(some) - n_valid)
            if n_valid:
                lower, upper = (each[:, 0] for each in asked.lane_ranks(np.array([n_valid])))
                np.testing.assert_array_equal(found.lower[place], some[lower])
                np.testing.assert_array_equal(found.upper[place], some[upper])
            place += 1


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u8"])
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
