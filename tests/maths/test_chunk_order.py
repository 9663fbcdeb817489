"""An order of chunks of which every first part is spread over all of them."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect.maths.chunk_order import ChunkOrder


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 12, 100, 256, 1000, 46_368])
def test_every_chunk_has_one_turn(n: int) -> None:
    order = ChunkOrder.evenly(n)
    chunks = order.chunks(0, n)
    assert sorted(chunks) == list(range(n))
    turns = order.turns()
    np.testing.assert_array_equal(turns[chunks], np.arange(n))
    assert np.argsort(chunks)[:20].tolist() == turns[:20].tolist()


@pytest.mark.parametrize("n", [100, 233, 1000, 46_368])
def test_first_parts_are_spread_evenly(n: int) -> None:
    order = ChunkOrder.evenly(n)
    for size in (5, 10, 30, 77):
        gaps = np.diff(np.sort(order.chunks(0, size)), append=np.nan)[:-1]
        assert gaps.max() <= 3 * n / size
        assert gaps.min() >= n / size / 4 - 1
