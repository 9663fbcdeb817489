"""Lanes that are sorted in runs have the order statistics of lanes that are sorted whole."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.kernels.cpu import lane_runs
from dask_gpuselect.kernels.cpu.lane_runs import LaneRuns, pick_from_runs
from dask_gpuselect.maths.sorted_lanes import SortedLanes, pick
from tests.data import FLOATS, INTEGERS, MISSING
from tests.kernels.test_groups_kernels import assert_same_lanes
from tests.selecting import ranks_about

pytestmark = pytest.mark.any_dask  # of kernels alone

ranks = ranks_about([0, 0.1, 0.5, 0.77, 1])


def table(name: str, dtype: str, n: int) -> NDArray[np.generic]:
    """Make lanes of one kind of data: as they come, ascending, and with neighbours exchanged."""
    make = INTEGERS.get(name)
    with np.errstate(over="ignore", under="ignore"):
        values = (FLOATS | MISSING)[name](8 * n) if make is None else make(8 * n, dtype)
        rows = values.astype(dtype).reshape(8, n)
    rows[3:5].sort(axis=1)
    rows[5] = np.sort(rows[5])[::-1]
    return rows


@pytest.mark.parametrize("n", [1, 17, 200])
@pytest.mark.parametrize("run", [1 << 11, 256, 24])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u8"])
def test_ranks_of_runs_are_those_of_sorted_lanes(
    monkeypatch: pytest.MonkeyPatch, dtype: str, run: int, n: int
) -> None:
    monkeypatch.setattr(lane_runs, "RUN", run)
    for name in FLOATS | MISSING if dtype[0] == "f" else INTEGERS:
        rows = table(name, dtype, n)
        expected = pick(SortedLanes.of_rows(np.sort(rows, axis=1)), ranks)
        runs = LaneRuns.of_rows(rows)
        answer = pick_from_runs(runs, ranks)
        assert_same_lanes(answer, expected)
