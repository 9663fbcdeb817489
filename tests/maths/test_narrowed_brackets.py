"""Cuts that are narrowed prove what all of them prove."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.boxes import Rule, ranges_of_box
from dask_gpuselect.maths.sizes import (
    MOST_GROUPS,
    PIVOT_WORK,
    pivot_count,
    pivot_share,
    plan_narrowing,
)


def test_nothing_has_no_ranges() -> None:
    rule = Rule(1.5, autorange=True, max_fliers=9, method="linear")
    ranges = ranges_of_box(reference.cuts(np.full(3, np.nan), 2), rule)
    assert (ranges.n_ranges, len(ranges.lows)) == (0, 0)


# --- The plan -------------------------------------------------------------------------------------

GIB = 1 << 30


def test_few_quantiles_share_their_pivots() -> None:
    plans = [plan_narrowing(10**4, 10**8, n, 1, 8, GIB) for n in (1, 3, 8)]
    assert len({plan and plan.share for plan in plans}) == 1


def test_a_limit_that_is_too_low_is_passed_as_little_as_it_can_be() -> None:
    plan = plan_narrowing(100, 10**6, 2, 1, 8, 0)
    assert plan is not None
    assert plan.room == 100 * 2 * 4


@pytest.mark.parametrize(
    ("n_chunks", "size"),
    [(10**i, 10**j) for i in range(2, 7) for j in range(6, 9) if i + j <= 12],
)
@pytest.mark.parametrize("n_ranges", [1, 3, 7, 101, 1001])
def test_no_task_exceeds_the_limit(n_chunks: int, size: int, n_ranges: int) -> None:
    """Of up to 1e12 elements, whatever their chunks."""
    share = pivot_share(n_ranges)
    plan = plan_narrowing(n_chunks, size, n_ranges, share, 8, GIB, can_wait=True)
    if plan is None:
        assert PIVOT_WORK * n_chunks * pivot_count(size, share) <= GIB
        return
    assert plan.gathered <= plan.work <= GIB
    assert plan.waiting / min(plan.groups, n_chunks) <= GIB / 2
    assert plan.groups <= MOST_GROUPS
