"""What was kept of a chunk tells what a second load would find, wherever it covers that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_gpuselect import kernels
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.reference import groups
from dask_gpuselect.maths.cached import cell_tally_by, covers, tally_by
from dask_gpuselect.maths.cuts import Brackets, Tally
from dask_gpuselect.maths.weights import PRODUCT_UNIT, WEIGHT_UNIT

VALUES = st.integers(-6, 6)


@st.composite
def brackets(draw: st.DrawFn, dtype: str) -> Brackets:
    """Any ends, and any of the cells between."""
    extremes = st.sampled_from([-np.inf, np.inf]) if dtype == "f8" else VALUES
    ends = draw(st.lists(VALUES | extremes, unique=True, max_size=6))
    wanted = draw(st.lists(st.booleans(), min_size=len(ends) + 1, max_size=len(ends) + 1))
    return Brackets(np.array(sorted(ends), dtype), np.array(wanted, np.bool_))


def known(tally: Tally) -> list[Any]:
    """All that a tally says, candidates in an order of their own."""
    columns = [column.tolist() for column in tally.columns()]
    counts = [tally.below.tolist(), tally.upto.tolist(), tally.n_valid]
    sums = []
    if tally.weighs:
        exact = tally.weight_below, tally.weight_upto, tally.weight
        sums = [each.integers(WEIGHT_UNIT).tolist() for each in exact]
    return [sorted(zip(*columns, strict=True)), counts, sums]


@st.composite
def weighted_brackets(draw: st.DrawFn, dtype: str) -> Brackets:
    """Any brackets, and any of the other cells between ends are summed."""
    plain = draw(brackets(dtype))
    summed = np.array([draw(st.booleans()) for _ in plain.wanted], np.bool_) & ~plain.wanted
    summed[[0, -1]] = False
    return replace(plain, summed=summed)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", ["f8", "i4"])
@given(data=st.data())
def test_what_covers_tells_sums_of_products(data: st.DataObject, dtype: str) -> None:
    values = np.array(data.draw(st.lists(VALUES, min_size=1, max_size=30)), dtype)
    weights = np.array([2.0**-i + 1e30 * (i % 2) for i in range(len(values))])

    def tally(at: Brackets) -> Tally:
        tallied = kernels.tally(Accompanied(values, None, weights), values.dtype, at, len(values))
        assert tallied is not None
        return tallied

    cached, wanted = data.draw(weighted_brackets(dtype)), data.draw(weighted_brackets(dtype))
    tallied_before = tally(cached)
    if covers(cached, wanted, weighs=True):
        actual, expected = tally_by(cached, tallied_before, wanted), tally(wanted)
        assert known(actual) == known(expected)
        for mine, other in ((actual.products, expected.products), (actual.square, expected.square)):
            assert mine.integers(PRODUCT_UNIT).tolist() == other.integers(PRODUCT_UNIT).tolist()
    without = Brackets(cached.ends, cached.wanted)
    assert not covers(without, wanted, weighs=True)


def test_weights_of_ties_are_not_known_one_by_one() -> None:
    """An end is counted, and what equals it is no candidate: of weights only the sum is known."""
    cached = Brackets(np.array([0.0, 5.0, 10.0]), np.array([False, True, True, False]))
    wanted = Brackets(np.array([0.0, 10.0]), np.array([False, True, False]))
    assert covers(cached, wanted)
    assert not covers(cached, wanted, weighs=True)


def test_groups_of_which_too_little_is_known() -> None:
    few, every = (
        Brackets.of_each([Brackets(np.array([2.0]), np.array(cells))] * 2)
        for cells in ([False, True], [True, True])
    )
    part = np.arange(6.0), np.array([0, 1] * 3, np.int32)
    tally = groups.tally([part], few)
    assert cell_tally_by(few, tally, few, np.arange(2)) is not None
    assert cell_tally_by(few, tally, every, np.arange(2)) is None
