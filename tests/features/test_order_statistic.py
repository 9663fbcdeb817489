"""`order_statistic`, and strategies by name, on arrays of all kinds: against a sort."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import order_statistic
from dask_gpuselect.engine.search import select_now
from dask_gpuselect.strategies import STRATEGIES, BitonicMerge
from tests.data import normal
from tests.selecting import VARIANTS

pytestmark = pytest.mark.usefixtures("in_this_thread")

ALL = (None, *STRATEGIES)
every_strategy = pytest.mark.parametrize("strategy", ALL)


@every_strategy
def test_zeros_have_no_sign(strategy: str | None) -> None:
    x = np.where(np.arange(100) % 2, 0.0, -0.0)
    for given in (x, da.from_array(x, chunks=30)):
        answer = np.asarray(order_statistic(given, [0, 50, 99], strategy=strategy))
        assert not np.signbit(answer).any()


@every_strategy
def test_nan_come_last(strategy: str | None) -> None:
    a = normal(3000)
    a[::7] = np.nan
    answer = order_statistic(a, [0, 1500, 2999], strategy=strategy)
    np.testing.assert_array_equal(answer, np.sort(a)[[0, 1500, 2999]])


@every_strategy
def test_no_element_and_none_wanted(strategy: str | None) -> None:
    for x in (np.empty(0), da.empty(0, chunks=1), np.full(3, np.nan)):
        answer = np.asarray(order_statistic(x, np.array([], int), strategy=strategy))
        assert (answer.shape, answer.dtype) == ((0,), np.dtype("f8"))


# --------------------------------------------------------------------------------------------------
# What a search in memory costs
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", VARIANTS)
def test_what_is_read_and_gathered(label: str) -> None:
    """A read a round at most, and one for what is gathered; never more than all elements."""
    x, rank = normal(5000), np.array([2500])
    trace = select_now(x, x.dtype, lambda n: (rank[rank < n],) * 2, VARIANTS[label])
    assert trace.elements[2500] == np.sort(x)[2500]
    assert trace.rounds <= VARIANTS[label].rounds
    assert trace.reads <= trace.rounds + 1
    assert trace.gathered <= 5000


# --------------------------------------------------------------------------------------------------
# Errors, and what a call does not do
# --------------------------------------------------------------------------------------------------


@every_strategy
def test_k_of_an_array_of_unknown_size(strategy: str | None) -> None:
    x = da.from_array(normal(100), chunks=30)
    x = x[x == x]
    with pytest.raises(
        ValueError, match="k must not be negative, not -1, .*: if .* type x.compute_c"
    ):
        order_statistic(x, [3, -1], strategy=strategy)
    beyond = order_statistic(x, [3, 100], strategy=strategy)
    with pytest.raises(IndexError, match="k=100 is out of range: there are 100 elements"):
        beyond.compute()
    assert order_statistic(x, 99, strategy=strategy).compute() == normal(100).max()


def test_sub_arrays_of_the_network() -> None:
    a = np.arange(1000.0)[::-1]
    assert order_statistic(a, 10, strategy=BitonicMerge(64)) == 10
