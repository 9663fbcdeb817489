"""An order of chunks of which every first part is spread over all of them."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect.maths.spread import Spread


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 12, 100, 256, 1000, 46_368])
def test_every_chunk_has_one_turn(n: int) -> None:
    spread = Spread.evenly(n)
    chunks = spread.chunks(0, n)
    assert sorted(chunks) == list(range(n))
    turns = spread.turns()
    np.testing.assert_array_equal(turns[chunks], np.arange(n))
    assert [spread.turn(chunk) for chunk in range(min(n, 20))] == turns[:20].tolist()


@pytest.mark.parametrize("n", [100, 233, 1000, 46_368])
def test_first_parts_are_spread_evenly(n: int) -> None:
    spread = Spread.evenly(n)
    for size in (5, 10, 30, 77):
        gaps = np.diff(np.sort(spread.chunks(0, size)), append=np.nan)[:-1]
        assert gaps.max() <= 3 * n / size
        assert gaps.min() >= n / size / 4 - 1
