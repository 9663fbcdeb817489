"""Numbers that choose how much memory is taken: an absurd one is refused at the call, or bounded by
the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import median, order_statistic, quantile_bins, sort
from dask_gpuselect.arguments import MOST
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.groups import groupby
from dask_gpuselect.neighbors import NearestNeighbors, kneighbors
from dask_gpuselect.robust import LeastTrimmedSquares
from dask_gpuselect.robust.regressor import MOST_STARTS
from dask_gpuselect.sorting.binning import MOST_BINS
from tests.data import normal
from tests.sources import Source

pytestmark = pytest.mark.any_dask

TABLE = normal(300).reshape(30, 10)
SIZES = [10**9, 10**18, 2**70]


def lazy() -> da.Array:
    """Must not be read."""
    return Source((3000,)).lazy(1000)


# What a number asks for, by what it is called. All raise at the call.
REFUSED: dict[str, tuple[Callable[[int], Any], str]] = {
    "n_bins": (lambda n: quantile_bins(lazy(), n), "n_bins must be at most"),
    "points": (lambda n: ecdf(lazy(), n), "points must be at most"),
    "n_starts": (
        lambda n: LeastTrimmedSquares(n_starts=n).fit(TABLE[:, 1:], TABLE[:, 0]),
        "n_starts must be at most",
    ),
    "k of neighbours": (lambda n: kneighbors(TABLE, TABLE[:2], n), "n_neighbors <= n_samples"),
    "n_neighbors": (
        lambda n: NearestNeighbors(n_neighbors=n).fit(TABLE).kneighbors(TABLE[:2]),
        "n_neighbors <= n_samples",
    ),
    "k": (lambda n: order_statistic(lazy(), n), "k"),
    "a negative k": (lambda n: order_statistic(lazy(), -n), "k"),
}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", REFUSED)
def test_absurd_numbers_are_refused_at_the_call(name: str, n: int) -> None:
    call, message = REFUSED[name]
    with pytest.raises((ValueError, IndexError), match=message):
        call(n)


@pytest.mark.parametrize("n", [10**9, 10**18])
def test_groups_without_end_are_refused_at_the_call(n: int) -> None:
    labels = da.arange(3000, chunks=1000)
    with pytest.raises(ValueError, match="the number of groups must be at most 16,777,216"):
        groupby(lazy(), labels, groups=range(n))


@pytest.mark.slow
def test_the_limits_themselves() -> None:
    with pytest.raises(ValueError, match="at most 16,777,216, not 16,777,217"):
        ecdf(lazy(), MOST + 1)
    assert quantile_bins(lazy(), MOST_BINS).shape == (MOST_BINS + 1,)
    with pytest.raises(ValueError, match="at most 1,048,576"):
        quantile_bins(lazy(), MOST_BINS + 1)
    with pytest.raises(ValueError, match=f"at most {MOST_STARTS:,}"):
        LeastTrimmedSquares(n_starts=MOST_STARTS + 1).fit(TABLE[:, 1:], TABLE[:, 0])


def test_points_and_labels_are_bounded_by_the_data() -> None:
    """A label is a name, and no place in a table; there are no more points than elements."""
    values = normal(3000)
    x = da.from_array(values, chunks=1000)
    assert len(ecdf(x, MOST).compute().points) == 3000
    labels = np.where(np.arange(3000) % 2, 10**18, -(10**18))
    for by in (labels, da.from_array(labels, chunks=1000)):
        found = groupby(x, by).median().compute()
        np.testing.assert_array_equal(found, [np.median(values[::2]), np.median(values[1::2])])
    whole = sort(x, chunks=10**18).compute()
    np.testing.assert_array_equal(whole, np.sort(values))


@pytest.mark.parametrize("size", [0, 1, 10**30])
@pytest.mark.parametrize("name", ["column-limit", "cache-limit", "root-limit", "spill-limit"])
def test_absurd_limits_change_no_answer(name: str, size: int) -> None:
    values = normal(3000)
    x = da.from_array(values, chunks=300).map_blocks(np.copy)
    with dask.config.set({f"dask_gpuselect.{name}": size}):
        assert median(x).compute(scheduler="sync") == np.median(values)
        table = x.reshape(300, 10)
        np.testing.assert_array_equal(
            median(table, axis=0).compute(scheduler="sync"),
            np.median(values.reshape(300, 10), axis=0),
        )
        np.testing.assert_array_equal(sort(x).compute(scheduler="sync"), np.sort(values))
