"""Overlapping windows of lanes have the ranks of their own elements, whatever their sizes."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect.kernels.cpu import window_lanes
from dask_gpuselect.maths.atoms import Atoms
from dask_gpuselect.maths.lane_cuts import join
from dask_gpuselect.maths.sorted_lanes import SortedLanes, pick
from tests.kernels.test_groups_kernels import assert_same_lanes
from tests.kernels.test_lane_nearest import table
from tests.selecting import ranks_about

pytestmark = pytest.mark.any_dask  # of kernels alone

WINDOWS = {
    "few": [(0, 5), (2, 7), (6, 11)],
    "many": [(0, 30), (15, 45), (30, 60)],
    "of several sizes": [(0, 9), (3, 14), (0, 0), (5, 8), (20, 60)],
}


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize(("dtype", "name"), [("f4", "some nan"), ("f8", "tied"), ("u1", "few")])
def test_windows_have_the_ranks_of_sorted_elements(dtype: str, name: str, windows: str) -> None:
    ranks = ranks_about([0, 0.3, 1])
    rows = table(name, dtype, 60)
    each = [np.arange(*window) for window in WINDOWS[windows]]
    atoms = Atoms.of(each, 60)
    assert atoms is not None
    actual = window_lanes.window_lanes([rows[:, :25], rows[:, 25:]], atoms, ranks)
    whole = [pick(SortedLanes.of_rows(np.sort(rows[:, own], axis=1)), ranks) for own in each]
    assert actual is not None
    assert_same_lanes(actual, join(whole))
