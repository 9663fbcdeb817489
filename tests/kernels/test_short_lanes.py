"""Lanes of few elements, and of integers of one and two bytes, are sorted in ways of their own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dask_gpuselect.kernels.cpu import few as cpu_few
from dask_gpuselect.kernels.cpu import lanes, row_networks


@pytest.mark.parametrize("n", range(1, 9))
def test_networks_sort(n: int) -> None:
    """All zeros and ones, so everything (Knuth's 0-1 principle); and find each rank alone."""
    rows = np.array(list(itertools.product([0, 1], repeat=n)), np.int8)
    wanted = np.sort(rows, axis=1).T
    for ranks in (tuple(range(n)), *((rank,) for rank in range(n))):
        result = cpu_few._exchanged(rows.T.copy(), cpu_few.exchanges(n, ranks))
        for rank in ranks:
            np.testing.assert_array_equal(result[rank], wanted[rank])


@pytest.mark.parametrize("n", [1027, 0, 1, 2, 65, 1023, 1024, 5000])
@pytest.mark.parametrize("dtype", ["u1", "i2", "i1", "u2", "f2", "f4", "i4", "f8", "u8"])
def test_counting_and_networks_sort(dtype: str, n: int) -> None:
    """Any bits, so that some floats are NaN, of both signs."""
    info = np.iinfo(dtype.replace("f", "i"))
    for low, high in ((info.min, info.max), (0, 2), (info.max, info.max), (info.min, info.min)):
        bits = np.random.default_rng(n).integers(low, high, (41, n), info.dtype, endpoint=True)
        rows = bits.view(dtype)
        wanted, columns = np.sort(rows, axis=1), rows.T.copy()
        row_networks.sort_columns(columns)
        lanes.sort_rows(rows)
        np.testing.assert_array_equal([rows, columns.T], [wanted, wanted])
