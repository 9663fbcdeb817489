"""Long lanes are selected in linear time, whatever the data: elements are counted, not seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import median, quantile
from dask_gpuselect.kernels.cpu import long_lanes as cpu
from dask_gpuselect.maths.cuts import IntArray
from tests.data import FLOATS, MISSING
from tests.docs.programs import benchmark
from tests.processes import python

crafted = benchmark("benchmarks.crafted")

KNOWN = 12345
"""A seed that whoever crafts the data knows."""


def middle(n: IntArray) -> tuple[IntArray, IntArray]:
    return (n[None] - 1) // 2, n[None] // 2


def looked_at(rows: NDArray[Any], seed: int = KNOWN) -> IntArray:
    """How many times its elements each row was looked at, of a median; the answer is checked."""
    wanted = np.sort(rows, axis=1)[:, [(rows.shape[1] - 1) // 2, rows.shape[1] // 2]]
    result, counts = cpu.select(rows.copy(), middle, seed)
    np.testing.assert_array_equal(np.hstack([result.lower, result.upper]), wanted)
    return counts[:, 0]


N = 30_000


@pytest.mark.slow
def test_crafted_data_are_given_up_in_time() -> None:
    """With the seed they were made for; then NumPy selects. Else they are data like others."""
    row = crafted.killer(N, (N - 1) // 2, crafted.salt_of(KNOWN), 40)[None]
    assert looked_at(row).tolist() == [-1]
    for seed in range(50):
        assert 0 < looked_at(row, seed)[0] < 2 * N


@pytest.mark.slow
def test_each_process_has_a_seed_of_its_own() -> None:
    code = "from dask_gpuselect.kernels.cpu import long_lanes; print(long_lanes.SEED)"
    assert len({f"{cpu.SEED}\n", *(python("-c", code) for _ in range(2))}) == 3


def test_lanes_that_are_given_up_have_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, ranks of several quantiles and lanes with NaN too."""
    a = np.stack([make(4_000) for make in (FLOATS | MISSING).values()])
    monkeypatch.setattr(cpu, "SEED", KNOWN)
    a[0] = crafted.killer(a.shape[1], 1_999, crafted.salt_of(KNOWN), 40)
    counts = cpu.select(a.copy(), middle, KNOWN)[1]
    assert counts[0, 0] == -1
    for row, answer in zip(a, median(a, axis=1), strict=True):
        np.testing.assert_array_equal(answer, median(row))
    q = [0.1, 0.5]
    for i, row in enumerate(a):
        np.testing.assert_array_equal(quantile(a, q, axis=1)[:, i], quantile(row, q))
