"""Tails of lanes: that they hold what quantiles ask for, whatever is missing."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect import kernels
from dask_gpuselect.maths.cuts import ChunksChangedError, IntArray
from dask_gpuselect.maths.ranks import MEDIAN, METHODS, Method, ranks
from dask_gpuselect.maths.tails import LaneTails, TailSizes, lanes_in_tails
from tests.selecting import ranks_about

EVERY_METHOD = [*METHODS.values(), MEDIAN]
LONG = [0.0, 1e-9, 0.1, 1 / 3, 0.9, 0.999, float(np.nextafter(1, 0)), 1.0]


def shares(n: int) -> list[float]:
    """At and around every rank, and the ends."""
    at = np.append(np.arange(n + 1) / n, np.arange(n) / max(n - 1, 1))
    around = np.concatenate([np.nextafter(at, -1), at, np.nextafter(at, 2), [1e-300, 0.9, 0.1]])
    every: list[float] = np.unique(np.clip(around, 0, 1)).tolist()
    return every


def assert_in_tails(n: int, m: IntArray, q: float, method: Method) -> None:
    """Assert that of lanes of m of n elements both elements of a quantile are in a tail."""
    sizes, wanted = TailSizes.of_quantiles(n, (q,)), ranks(m, q, method)
    assert sizes.low + sizes.high <= n
    for rank in (wanted.lower, wanted.upper):
        assert ((rank < sizes.low) | (rank >= m - sizes.high)).all(), (method.name, q)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20, 61, 10**9, (1 << 49) - 3])
def test_fewer_elements_ask_for_no_more(n: int) -> None:
    """Of every number of valid elements, and of long lanes, where positions are rounded."""
    random = np.random.default_rng(0)
    m, some = np.arange(1, min(n, 61) + 1), shares(n) if n <= 61 else LONG
    if n > 61:
        m = np.concatenate([n - np.arange(1000), random.integers(1, n, 1000), [1, 2]])
    for method in EVERY_METHOD:
        for q in some:
            assert_in_tails(n, m, q, method)


def test_lanes_that_are_longer_than_was_said() -> None:
    counts = np.full(3, 11), np.zeros(3, np.int64)
    tails = LaneTails(np.zeros((3, 4)), *counts)
    assert kernels.lane_passes.merge_tails([tails], TailSizes(10, 0, 4)) is tails
    with pytest.raises(ChunksChangedError, match="more elements than its size, 10"):
        lanes_in_tails(tails, ranks=ranks_about([0.9]), sizes=TailSizes(10, 0, 4))
