"""Cuts that are narrowed prove what all of them prove."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.boxes import Rule, bracket_from_cuts, ranges_of_box
from dask_gpuselect.maths.cuts import Brackets, Cuts
from dask_gpuselect.maths.envelope import Ranges, thinned
from dask_gpuselect.maths.expected import Expected
from dask_gpuselect.maths.sizes import (
    MOST_GROUPS,
    PIVOT_WORK,
    pivot_count,
    pivot_share,
    plan_narrowing,
)

FIELDS = ("n_valid", "n_missing", "most_candidates", "checked", "least", "most", "is_pivot")


def in_groups(
    chunks: Sequence[Cuts], size: int, steps: Sequence[int], ranges_of: Callable[[Cuts], Ranges]
) -> Cuts:
    """The cuts of all chunks after a look at every k-th pivot for each of `steps`."""
    groups = [list(chunks[i : i + size]) for i in range(0, len(chunks), size)]
    for step in steps:
        some = Cuts.merge([thinned(cuts, step) for group in groups for cuts in group])
        ranges = ranges_of(some)
        groups = [[Cuts.merge([ranges.around(cuts) for cuts in group])] for group in groups]
    return Cuts.merge([cuts for group in groups for cuts in group])


def assert_same(few: Cuts, every: Cuts, bracket: Callable[[Cuts], Brackets]) -> None:
    """The same brackets, and the same table of what each chunk is expected to hold there."""
    brackets, right = bracket(few), bracket(every)
    np.testing.assert_array_equal(brackets.ends, right.ends)
    np.testing.assert_array_equal(brackets.wanted, right.wanted)
    table, expected = Expected.of(few, brackets), Expected.of(every, right)
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(table, field), getattr(expected, field))


floats = st.floats(width=64) | st.sampled_from([0.0, -0.0, 1.0, 2.0, np.inf, -np.inf, np.nan])
integers = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)
some_chunks = st.one_of(
    *(
        st.lists(arrays(dtype, st.integers(0, 40), elements=elements), min_size=1, max_size=7)
        for dtype, elements in ((np.float64, floats), (np.int64, integers))
    )
)


@given(
    chunks=some_chunks,
    n_pivots=st.integers(1, 20),
    size=st.integers(1, 7),
    steps=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    whis=st.floats(0, 3) | st.tuples(st.floats(0, 1), st.floats(0, 1)),
    max_fliers=st.integers(0, 30),
    room=st.sampled_from([0, 5, 20, 1 << 14]),
)
def test_brackets_of_boxes(
    chunks: list[NDArray[Any]],
    n_pivots: int,
    size: int,
    steps: list[int],
    whis: float | tuple[float, float],
    max_fliers: int,
    room: int,
) -> None:
    """Whatever room there is about the fences."""
    cuts = [reference.cuts(chunk, n_pivots) for chunk in chunks]
    every = Cuts.merge(cuts)
    rule = Rule(whis, True, max_fliers, "linear")
    few = in_groups(cuts, size, steps, lambda some: ranges_of_box(some, rule))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dask_gpuselect.maths.boxes.ROOM", 0)
        patch.setattr("dask_gpuselect.maths.boxes.LEAST_ROOM", room)
        assert_same(few, every, lambda found: bracket_from_cuts(found, rule))
        spared, right = (bracket_from_cuts(found, rule).spared for found in (few, every))
    assert (spared is None) == (right is None)
    for mine, theirs in zip(spared or (), right or (), strict=True):
        np.testing.assert_array_equal(mine, theirs)


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
