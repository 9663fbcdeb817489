"""Brackets of groups by a sample."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect.kernels.reference import groups as reference
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError
from dask_gpuselect.maths.group_guess import GatheredGroups, shares_of
from dask_gpuselect.maths.host_runs import in_slots
from dask_gpuselect.maths.ragged import Bracketed


def test_places_of_gathered_elements() -> None:
    """Places are those in the order of cells and values, with an end behind each cell."""
    counts = np.array(
        [[[5, 1], [2, 3], [4, 0]], [[0, 0], [0, 0], [0, 0]], [[1, 2], [3, 2], [1, 0]]]
    )
    wanted = np.array([[False, True, False], [True, True, True], [False, True, True]])
    about = GatheredGroups(counts, wanted)
    assert about.n_valid.tolist() == [15, 0, 9]
    # The places of the first end, two candidates, the second end, and so on.
    found = about.places(np.array([[5], [6], [7], [8], [10], [16], [17], [18], [23]]))
    assert found is not None
    assert found[:, 0].tolist() == [0, 1, 2, 3, 3, 6, 6, 7, 11]
    assert [about.places(np.array([[rank]])) for rank in (4, 11, 15)] == [None] * 3
    assert shares_of(lambda n: (n[None] // 4, n[None] // 2), 100).tolist() == [0.38]


def test_counts_that_changed_are_seen() -> None:
    """An element that is in another group than before is not taken for one of the next group."""
    values, codes = np.arange(8.0), np.array([0, 0, 0, 1, 1, 1, 1, 1], np.int32)
    brackets = Brackets(values[[1, 5]], np.tile([False, True], 2), n_ends=np.ones(2, np.int64))
    tally = reference.tally([(values, codes)], brackets)
    about = Bracketed(brackets, np.array([4, 4]), np.zeros(2, np.int64))
    with pytest.raises(ChunksChangedError, match="groups have other sizes"):
        in_slots(tally, about, reference.in_groups)
