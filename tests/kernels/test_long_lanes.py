"""Long lanes are selected in linear time, whatever the data: elements are counted, not seconds."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import median, quantile
from dask_gpuselect.kernels.cpu import long_lanes as cpu
from dask_gpuselect.maths.cuts import IntArray
from tests.data import FLOATS, MISSING

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(Path(__file__).parents[2] / "asv_bench"))
    crafted = importlib.import_module("benchmarks.crafted")

KNOWN = 12345
"""A seed that whoever crafts the data knows."""


def middle(n: IntArray) -> tuple[IntArray, IntArray]:
    return (n[None] - 1) // 2, n[None] // 2


def looked_at(rows: NDArray[Any], seed: int = KNOWN) -> IntArray:
    """How many times its elements each row was looked at, of a median; the answer is checked."""
    wanted = np.sort(rows, axis=1)[:, [(rows.shape[1] - 1) // 2, rows.shape[1] // 2]]
    found, counts = cpu.select(rows.copy(), middle, seed)
    np.testing.assert_array_equal(np.hstack([found.lower, found.upper]), wanted)
    return counts[:, 0]


N = 30_000


@pytest.mark.slow
def test_crafted_data_are_given_up_in_time() -> None:
    """With the seed they were made for; then NumPy selects. Else they are data like others."""
    row = crafted.killer(N, (N - 1) // 2, crafted.salt_of(KNOWN), 40)[None]
    assert looked_at(row).tolist() == [-1]
    for seed in range(50):
        assert 0 < looked_at(row, seed)[0] < 2 * N


def test_the_places_of_samples_are_not_those_of_before() -> None:
    """Of data crafted when the salt of a sweep was the number of elements."""
    row = crafted.killer(N, (N - 1) // 2, lambda n: n, 40)[None]
    for seed in (cpu.SEED, *range(20)):
        assert 0 < looked_at(row, seed)[0] < 2 * N


@pytest.mark.slow
def test_each_process_has_a_seed_of_its_own() -> None:
    code = "from dask_gpuselect.kernels.cpu import long_lanes; print(long_lanes.SEED)"
    seeds = {
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
        for _ in range(2)
    }
    assert len({*seeds, b"%d\n" % cpu.SEED}) == 3


@pytest.mark.parametrize("n", [129, 400, 1999, 2000, 20_000])
def test_hardly_any_lane_is_given_up(n: int) -> None:
    """Of random data, over many lanes and seeds; the sweeps look at less than two times all."""
    rows = np.random.default_rng(7).standard_normal((400_000 // n, n))
    counts = np.concatenate([looked_at(rows, seed) for seed in range(5)])
    assert (counts > 0).all()
    assert counts.mean() < 1.6 * n


@pytest.mark.parametrize("name", FLOATS)
def test_adversarial_data(name: str) -> None:
    """No distribution and no order needs more than the budget."""
    n = 5_000
    with np.errstate(all="ignore"):
        rows = np.stack([FLOATS[name](n)] * 3)
    assert (looked_at(rows) <= cpu.MOST_LOOKED_AT * n).all()


@pytest.mark.parametrize("share", [0.03, 0.3, 0.5, 0.9])
def test_ties_at_a_rank_are_counted_and_not_kept(share: float) -> None:
    """Ranks inside a tie, and on both sides of its ends."""
    n, rng = 20_000, np.random.default_rng(3)
    ordered = np.sort(np.where(np.arange(n) < share * n, 0.1, rng.standard_normal(n)))
    below, upto = (int(ordered.searchsorted(0.1, side)) for side in ("left", "right"))
    wanted = np.array([below - 1, below, below + 1, upto - 2, upto - 1, upto])[:, None]
    rows = np.stack([rng.permutation(ordered) for _ in range(8)])
    found, counts = cpu.select(rows, lambda n_valid: (wanted + 0 * n_valid, wanted + 1), KNOWN)
    np.testing.assert_array_equal(found.lower, np.tile(ordered[wanted.T], (8, 1)))
    np.testing.assert_array_equal(found.upper, np.tile(ordered[wanted.T + 1], (8, 1)))
    assert (counts > 0).all()
    assert counts.mean() < 1.6 * n


def test_lanes_that_are_given_up_have_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, ranks of several quantiles and lanes with NaN too."""
    a = np.stack([make(4_000) for make in (FLOATS | MISSING).values()])
    monkeypatch.setattr(cpu, "SEED", KNOWN)
    a[0] = crafted.killer(a.shape[1], 1_999, crafted.salt_of(KNOWN), 40)
    found = cpu.select(a.copy(), middle, KNOWN)[1]
    assert found[0, 0] == -1
    for row, answer in zip(a, median(a, axis=1), strict=True):
        np.testing.assert_array_equal(answer, median(row))
    q = [0.1, 0.5]
    for i, row in enumerate(a):
        np.testing.assert_array_equal(quantile(a, q, axis=1)[:, i], quantile(row, q))
