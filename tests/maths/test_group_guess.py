"""Brackets of groups by a sample."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_gpuselect.kernels.reference import groups as reference
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.group_cuts import GroupTally, lanes_at, located
from dask_gpuselect.maths.group_guess import guess_group_brackets, sample_size
from dask_gpuselect.maths.lane_cuts import RanksOfLanes
from tests.data import normal, uniform


def ranks_of(q: list[float]) -> RanksOfLanes:
    def ranks(n: IntArray) -> tuple[IntArray, IntArray]:
        lower = np.floor(np.multiply.outer(np.array(q), n - 1)).astype(np.int64)
        return lower, np.minimum(lower + 1, n - 1)

    return ranks


@settings(max_examples=150)
@given(st.data())
def test_a_sample_of_all_is_right(draw: st.DataObject) -> None:
    """Its brackets hold what is wanted, whatever the ties and the groups without elements."""
    n = draw.draw(st.integers(0, 200))
    values = np.array(draw.draw(st.lists(st.integers(0, 40), min_size=n, max_size=n)), "f8")
    n_groups = draw.draw(st.integers(1, 6))
    codes = np.array(
        draw.draw(st.lists(st.integers(-1, n_groups - 1), min_size=n, max_size=n)), np.int32
    )
    ranks = ranks_of(draw.draw(st.lists(st.floats(0, 1), min_size=1, max_size=3)))
    parts = [(values, codes)]
    ordered, n_valid, _ = reference.in_groups(parts, n_groups)
    brackets = guess_group_brackets(n_valid, ranks, lambda places: ordered[places])
    assert len(brackets.wanted) == len(brackets.ends) + n_groups
    tally = reference.tally(parts, brackets)
    counts = np.zeros((len(brackets.wanted), 2), np.int64)
    counts[tally.cells] = np.stack([tally.inside, tally.equal], axis=1)
    found = located(counts[:, 0], counts[:, 1], brackets)
    assert found is not None
    candidates = reference.sorted_in_groups(tally.candidates, tally.of_cells, len(counts))
    both = np.concatenate([candidates, brackets.ends])
    lanes = lanes_at(found, lambda places: both[places], brackets)
    wanted = reference.elements(parts, n_groups, ranks)
    has = n_valid > 0
    np.testing.assert_array_equal(lanes.lower[has], wanted.lower[has])
    np.testing.assert_array_equal(lanes.upper[has], wanted.upper[has])


def test_a_sample_is_enough() -> None:
    """Brackets of a tenth of all hold what is wanted of all, and little else."""
    n, n_groups, ranks = 200_000, 20, ranks_of([0.5])
    values, codes = normal(n), np.floor(uniform(n)[::-1] * n_groups).astype(np.int32)
    ordered, n_valid, _ = reference.in_groups([(values[::10], codes[::10])], n_groups)
    brackets = guess_group_brackets(n_valid, ranks, lambda places: ordered[places])
    tally = reference.tally([(values, codes)], brackets)
    assert len(tally.candidates) < sample_size(n, n_groups, 1)[1] < n
    counts = np.bincount(codes, minlength=n_groups)
    for group in range(n_groups):
        cells = np.flatnonzero(brackets.group_of_cell == group)
        inside, equal = (
            np.bincount(tally.cells, weights, minlength=len(brackets.wanted))[cells]
            for weights in (tally.inside, tally.equal)
        )
        before, middle = inside[0], (counts[group] - 1) // 2
        assert brackets.wanted[cells].tolist() == [False, True, False]
        assert before + equal[0] <= middle < before + equal[0] + inside[1]


def test_counts_that_changed_are_seen() -> None:
    """An element that is in another group than before is not taken for one of the next group."""
    values, codes = np.arange(8.0), np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32)
    ordered, n_valid, _ = reference.in_groups([(values, codes)], 2)
    brackets = guess_group_brackets(n_valid, ranks_of([0.5]), lambda places: ordered[places])
    codes[3] = 1

    def counts_of(tally: GroupTally) -> tuple[IntArray, IntArray]:
        found = np.zeros((2, len(brackets.wanted)), np.int64)
        found[:, tally.cells] = tally.inside, tally.equal
        return found[0], found[1]

    assert located(*counts_of(reference.tally([(values, codes)], brackets)), brackets) is None
