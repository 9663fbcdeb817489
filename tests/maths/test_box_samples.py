"""What the elements of a sample at some places let expect of all, with ties and NaN."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect.kernels.reference.selection import valid_in
from dask_gpuselect.maths.boxes import rungs_of


@pytest.mark.parametrize("n_missing", [0, 1, 700])
@pytest.mark.parametrize("size", [0, 1, 600, 5_000])
def test_places_follow_from_the_elements_that_are_no_nan(size: int, n_missing: int) -> None:
    ordered = np.append(np.arange(float(size)), np.full(n_missing, np.nan))
    found, n = valid_in(ordered, rungs_of)
    assert n == size
    wanted = np.concatenate([np.arange(size)[part] for part in rungs_of(size)])
    np.testing.assert_array_equal(found, wanted)
