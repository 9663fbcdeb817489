"""What the elements of a sample at some places let expect of all, with ties and NaN."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect.kernels.reference.selection import valid_in
from dask_gpuselect.maths.boxes import ladder_of_sample, rungs_of


@pytest.mark.parametrize("n_missing", [0, 1, 700])
@pytest.mark.parametrize("size", [0, 1, 600, 5_000])
def test_places_follow_from_the_elements_that_are_no_nan(size: int, n_missing: int) -> None:
    ordered = np.append(np.arange(float(size)), np.full(n_missing, np.nan))
    found, n = valid_in(ordered, rungs_of)
    assert n == size
    wanted = np.concatenate([np.arange(size)[part] for part in rungs_of(size)])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("n_values", [1, 7, 900, 100_000])
def test_equal_elements_are_one_rung(n_values: int) -> None:
    size = 20_000
    sample = np.sort(np.random.default_rng(0).integers(0, n_values, size))
    taken, _ = valid_in(sample, rungs_of)
    expected, most_upto, known = ladder_of_sample(taken, size)
    np.testing.assert_array_equal(known.values, np.unique(taken))
    below = np.searchsorted(sample, known.values, "left")
    upto = np.searchsorted(sample, known.values, "right")
    assert (below <= known.most_below).all()
    assert (known.least_upto <= upto).all()
    # What holds of the sample is within what is expected, which ascends.
    assert (expected.least_upto <= known.least_upto).all()
    assert (known.most_below <= expected.most_below).all()
    assert (known.least_upto <= most_upto).all()
    for counts in (expected.least_upto, expected.most_below, most_upto):
        assert (np.diff(counts) >= 0).all()
