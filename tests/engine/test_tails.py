"""Quantiles near the ends of lanes of columns that do not fit: exact, and in one load."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import explain, kernels, quantile
from dask_gpuselect.groups import groupby
from dask_gpuselect.maths.cuts import ChunksChangedError, IntArray
from dask_gpuselect.maths.ranks import MEDIAN, METHODS, Method, ranks
from dask_gpuselect.maths.tails import LaneTails, TailSizes, lanes_in_tails
from tests.data import uniform
from tests.engine.test_lane_passes import N, limited, share
from tests.selecting import ranks_about

pytestmark = pytest.mark.any_dask


def plan_of(x: da.Array, q: Any, axis: Any = 0) -> Any:
    plan = explain(x, q, axis=axis)
    assert (plan.name, plan.loads) == ("tails", 1)
    return plan


DAYS = np.where(np.arange(N) % 11 == 3, 9, np.arange(N) // 17 % 4)


# --- Plans ----------------------------------------------------------------------------------------


def test_it_is_explained() -> None:
    x = da.zeros((1000, 10, 10), chunks=(100, 5, 5)).map_blocks(np.copy)
    with limited("100 kB"):
        assert str(explain(x, 0.9, axis=0)) == (
            "tails: reads each chunk once; 97.66 kiB of chunks per task; "
            "40.62 kiB of partial results in one task"
        )


def test_where_it_is_not_taken() -> None:
    """Ranks in the middle, columns that fit, data in memory, unknown sizes, weights."""
    a = uniform(N * 12).reshape(N, 12)
    resident = da.from_array(a, chunks=(20, 12))
    x = resident.map_blocks(np.copy, dtype="f8")
    with limited(share(x, 0, "50%")):
        assert plan_of(x, 0.9)
        for q in (0.5, [0.2, 0.8], [0.1, 0.5]):
            assert explain(x, q, axis=0).name != "tails"
        assert explain(resident, 0.9, axis=0).name != "tails"
        assert explain(x[a[:, 0] > 0.5], 0.9, axis=0).name == "tails"  # sizes are known
        assert explain(x[x[:, 0] > 0.5], 0.9, axis=0).name == "column"
        how: dict[str, Any] = {"weights": uniform(N), "method": "inverted_cdf"}
        assert "tails" not in quantile(x, 0.9, axis=0, **how).name
        labels = da.from_array(DAYS, chunks=20)
        assert groupby(x, labels, axis=0, groups=range(10)).explain(0.9).name != "tails"
    assert explain(x, 0.9, axis=0).name == "column"


# --- Sizes ----------------------------------------------------------------------------------------

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
