"""Brackets of groups by a sample."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect.kernels.reference import groups as reference
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError
from dask_gpuselect.maths.group_guess import GatheredGroups, sample_size, shares_of
from dask_gpuselect.maths.ragged import Bracketed, order_statistics_of_slots
from tests.selecting import ranks_about


def test_places_of_gathered_elements() -> None:
    """Places are those in the order of cells and values, with an end behind each cell."""
    counts = np.array(
        [[[5, 1], [2, 3], [4, 0]], [[0, 0], [0, 0], [0, 0]], [[1, 2], [3, 2], [1, 0]]]
    )
    wanted = np.array([[False, True, False], [True, True, True], [False, True, True]])
    about = GatheredGroups(counts, wanted)
    assert about.n_valid.tolist() == [15, 0, 9]
    # Ranks among all elements. The places are of the first end, two candidates, and the second end.
    for rank, place in (
        (5, 0),
        (6, 1),
        (7, 2),
        (8, 3),
        (10, 3),
        (16, 6),
        (17, 6),
        (18, 7),
        (23, 11),
    ):
        found = about.places(np.array([[rank, 15, rank]]))
        assert found is not None
        assert found[0, ::2].tolist() == [place, place]
    for rank in (4, 11, 15):
        assert about.places(np.array([[rank, 15, 16]])) is None


def test_shares_are_those_of_ranks() -> None:
    assert shares_of(lambda n: (n[None] // 4, n[None] // 2), 100).tolist() == [0.38]
    assert sample_size(1 << 28, 18, 1)[1] < 1 << 23


def test_counts_that_changed_are_seen() -> None:
    """An element that is in another group than before is not taken for one of the next group."""
    values, codes = np.arange(8.0), np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32)
    ordered, n_valid, _ = reference.in_groups([(values, codes)], 2)
    brackets = Brackets(ordered[[1, 5]], np.tile([False, True], 2), n_ends=np.ones(2, np.int64))
    codes[3] = 1
    tally = reference.tally([(values, codes)], brackets)
    whole = tally.in_one_order(len(brackets.wanted), reference.sorted_in_groups)
    about = Bracketed(brackets, n_valid, np.zeros(2, np.int64))
    with pytest.raises(ChunksChangedError, match="groups have other sizes"):
        order_statistics_of_slots(about, whole, ranks_about([0.5]))
