"""Few ranks of long lanes are those of sorted lanes, whatever the data."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect.kernels.cpu import long_lanes
from dask_gpuselect.maths.sorted_lanes import SortedLanes, pick
from tests.data import FLOATS, INTEGERS, MISSING
from tests.kernels.test_groups_kernels import assert_same_lanes
from tests.kernels.test_lane_nearest import table
from tests.selecting import ranks_about

pytestmark = pytest.mark.any_dask  # of kernels alone


@np.errstate(over="ignore")
@pytest.mark.parametrize("n", [1, 17, 400])
@pytest.mark.parametrize("q", [[0.5], [0], [1, 0.77, 0.1, 0.11, 0]])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u8"])
def test_selected_lanes_have_the_ranks_of_sorted_lanes(dtype: str, q: list[float], n: int) -> None:
    """Those without valid elements have any."""
    ranks = ranks_about(q)
    for name in FLOATS | MISSING if dtype[0] == "f" else INTEGERS:
        rows = table(name, dtype, n)
        if name in MISSING:  # signalling NaN
            rows.view(f"u{rows.itemsize}")[np.isnan(rows)] -= (1 << np.finfo(dtype).nmant - 1) - 1
        whole = pick(SortedLanes.of_rows(np.sort(rows, axis=1)), ranks)
        assert_same_lanes(long_lanes.select(rows, ranks), whole)
        assert long_lanes.select(rows[:0], ranks).lower.shape == (0, len(q))
