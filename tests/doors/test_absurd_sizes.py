"""Numbers that choose how much memory is taken are bounded by the data. See `test_senseless` for
those that are refused."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import median, quantile_bins, sort
from dask_gpuselect.arguments import MOST
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.groups import groupby
from dask_gpuselect.sorting.binning import MOST_BINS
from tests.data import normal

pytestmark = pytest.mark.any_dask


@pytest.mark.slow
def test_as_many_bins_as_are_allowed() -> None:
    x = da.ones(3000, chunks=1000)
    assert quantile_bins(x, MOST_BINS).shape == (MOST_BINS + 1,)


def test_points_and_labels_are_bounded_by_the_data() -> None:
    """A label is a name, and no place in a table; there are no more points than elements."""
    values = normal(3000)
    x = da.from_array(values, chunks=1000)
    assert len(ecdf(x, MOST).compute().points) == 3000
    labels = np.where(np.arange(3000) % 2, 10**18, -(10**18))
    for by in (labels, da.from_array(labels, chunks=1000)):
        result = groupby(x, by).median().compute()
        np.testing.assert_array_equal(result, [np.median(values[::2]), np.median(values[1::2])])
    np.testing.assert_array_equal(sort(x, chunks=10**18).compute(), np.sort(values))


@pytest.mark.parametrize("size", [0, 1, 10**30])
@pytest.mark.parametrize("name", ["column-limit", "cache-limit", "root-limit", "spill-limit"])
def test_absurd_limits_change_no_answer(name: str, size: int) -> None:
    values = normal(3000)
    x = da.from_array(values, chunks=300).map_blocks(np.copy)
    with dask.config.set({f"dask_gpuselect.{name}": size, "scheduler": "sync"}):
        assert median(x).compute() == np.median(values)
        medians = median(x.reshape(300, 10), axis=0).compute()
        np.testing.assert_array_equal(medians, np.median(values.reshape(300, 10), axis=0))
        np.testing.assert_array_equal(sort(x).compute(), np.sort(values))
