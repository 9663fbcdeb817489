"""Lanes of few elements, and of integers of one and two bytes, are sorted in ways of their own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dask_gpuselect.kernels.cpu import few as cpu_few
from dask_gpuselect.kernels.cpu import narrow as cpu_narrow


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
@pytest.mark.parametrize("dtype", ["u1", "i2", "i1", "u2"])
def test_counting_sorts(dtype: str, n: int) -> None:
    info = np.iinfo(dtype)
    random = np.random.default_rng(n)
    for low, high in ((info.min, info.max), (0, 2), (info.max, info.max), (info.min, info.min)):
        rows = random.integers(low, high, (9, n), dtype=dtype, endpoint=True)
        wanted = np.sort(rows, axis=1)
        cpu_narrow.sort_rows(rows)
        np.testing.assert_array_equal(rows, wanted)
