"""Brackets of groups by a sample."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect.kernels.reference import groups as reference
from dask_gpuselect.maths.cuts import ChunksChangedError
from dask_gpuselect.maths.group_guess import guess_group_brackets, sample_size
from dask_gpuselect.maths.ragged import Bracketed, order_statistics_of_slots
from tests.data import normal, uniform
from tests.selecting import ranks_about


def test_a_sample_is_enough() -> None:
    """Brackets of a tenth of all hold what is wanted of all, and little else."""
    n, n_groups, ranks = 200_000, 20, ranks_about([0.5])
    values, codes = normal(n), np.floor(uniform(n)[::-1] * n_groups).astype(np.int32)
    ordered, n_valid, _ = reference.in_groups([(values[::10], codes[::10])], n_groups)
    brackets = guess_group_brackets(n_valid, ranks, lambda places: ordered[places])
    tally = reference.tally([(values, codes)], brackets)
    assert len(tally.candidates) < sample_size(n, n_groups, 1)[1] < n
    counts = np.bincount(codes, minlength=n_groups)
    for group in range(n_groups):
        cells = np.flatnonzero(brackets.slot_of_cell == group)
        inside, equal = tally.counts(len(brackets.wanted))[cells].T
        before, middle = inside[0], (counts[group] - 1) // 2
        assert brackets.wanted[cells].tolist() == [False, True, False]
        assert before + equal[0] <= middle < before + equal[0] + inside[1]


def test_counts_that_changed_are_seen() -> None:
    """An element that is in another group than before is not taken for one of the next group."""
    values, codes = np.arange(8.0), np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32)
    ordered, n_valid, _ = reference.in_groups([(values, codes)], 2)
    brackets = guess_group_brackets(n_valid, ranks_about([0.5]), lambda places: ordered[places])
    codes[3] = 1
    tally = reference.tally([(values, codes)], brackets)
    whole = tally.in_one_order(len(brackets.wanted), reference.sorted_in_groups)
    about = Bracketed(brackets, n_valid, np.zeros(2, np.int64))
    with pytest.raises(ChunksChangedError, match="groups have other sizes"):
        order_statistics_of_slots(about, whole, ranks_about([0.5]))
