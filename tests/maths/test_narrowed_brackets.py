"""Cuts that are narrowed prove what all of them prove."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.boxes import Rule, bracket_from_cuts, ranges_of_box
from dask_gpuselect.maths.coarse import merged_coarsely
from dask_gpuselect.maths.cuts import Cuts
from dask_gpuselect.maths.envelope import find_brackets, thinned
from dask_gpuselect.maths.sizes import (
    MOST_GROUPS,
    PIVOT_WORK,
    pivot_count,
    pivot_share,
    plan_narrowing,
)
from tests.data import FLOATS, MISSING
from tests.maths.test_cuts import gathered, holds


def cuts_of(name: str, n_chunks: int, n_pivots: int) -> list[Cuts]:
    chunks = np.array_split((FLOATS | MISSING)[name](4000), n_chunks)
    return [reference.cuts(chunk, n_pivots) for chunk in chunks]


@pytest.mark.parametrize("name", [*FLOATS, *MISSING])
def test_brackets_of_boxes(name: str) -> None:
    """By a look at every k-th pivot first, in groups: the brackets of all pivots."""
    rule = Rule(1.5, autorange=True, max_fliers=9, method="linear")
    cuts = cuts_of(name, 8, 20)
    right = bracket_from_cuts(Cuts.merge(cuts), rule)
    for steps in ((3,), (9, 2)):
        groups = [cuts[i : i + 3] for i in range(0, 8, 3)]
        for step in steps:
            some = Cuts.merge([thinned(each, step) for group in groups for each in group])
            ranges = ranges_of_box(some, rule)
            groups = [[Cuts.merge([ranges.around(each) for each in group])] for group in groups]
        found = bracket_from_cuts(Cuts.merge([cuts for (cuts,) in groups]), rule)
        np.testing.assert_array_equal(found.ends, right.ends)
        np.testing.assert_array_equal(found.wanted, right.wanted)


@pytest.mark.parametrize("name", ["normal", "tied", "outliers", "some nan"])
def test_a_tree_makes_brackets_little_wider(name: str) -> None:
    """By two in `most` for each of its levels and ends; and they hold the answer."""
    values, most = (FLOATS | MISSING)[name](4000), 200
    ordered = np.sort(values[values == values])
    cuts: list[Cuts] = cuts_of(name, 64, 20)
    levels = [cuts]
    while len(levels[-1]) > 1:
        parts = levels[-1]
        levels.append([merged_coarsely(parts[i : i + 4], most) for i in range(0, len(parts), 4)])
    for rank in (0, 400, 2000, len(ordered) - 1):
        k = np.array([rank])
        plain, coarse = (find_brackets(Cuts.merge(each), k, k) for each in (cuts, levels[-1]))
        room = 4 * len(levels) * len(ordered) / most
        assert gathered(ordered, coarse) <= gathered(ordered, plain) + room
        assert holds(coarse, ordered[rank])


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
