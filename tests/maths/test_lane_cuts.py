"""What parts of many lanes prove together: brackets that hold, as narrow as is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect import ChunksChangedError
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    find_lane_brackets,
    merge,
    merge_tallies,
    narrow,
    order_statistics,
)
from dask_gpuselect.maths.sizes import most_inside
from dask_gpuselect.maths.sorted_lanes import SortedLanes, cuts_of_sorted, tally_of_sorted
from tests.data import FLOATS, MISSING
from tests.selecting import ranks_about

IntArray = NDArray[np.int64]
ranks = ranks_about([0.5, 0.0, 0.9, 1.0])


def divided(table: NDArray[Any], n_parts: int) -> list[SortedLanes]:
    """Parts of every lane, of uneven sizes, sorted."""
    stops = np.linspace(0, 1, n_parts + 1) ** 1.5 * table.shape[1]
    bounds = zip(stops[:-1].astype(int), stops[1:].astype(int), strict=True)
    parts = (np.sort(table[:, start:stop], axis=1) for start, stop in bounds)
    return [SortedLanes.of_rows(part) for part in parts if part.shape[1]]


def n_inside(brackets: LaneBrackets, ordered: NDArray[Any]) -> IntArray:
    """Elements strictly inside each bracket."""
    values = ordered[:, None]
    inside = (values > brackets.low[..., None]) & (values < brackets.high[..., None])
    return np.asarray(inside.sum(axis=2))


ALL: dict[str, Callable[[int], NDArray[np.float64]]] = {**FLOATS, **MISSING}


def mixed_lanes(n: int, dtype: str) -> NDArray[Any]:
    """A lane of every kind of data."""
    with np.errstate(over="ignore", under="ignore"):
        return np.stack([make(n) for make in ALL.values()]).astype(dtype)


# --- Brackets -------------------------------------------------------------------------------------


values = st.sampled_from([0, 1, 2, 3, 5, 8, 200, 255])


def test_all_ranks_are_known_of_parts_that_tell_all() -> None:
    """Then the bracket is the element."""
    table = mixed_lanes(100, "f8")
    parts = divided(table, 7)
    cuts = [cuts_of_sorted(part, None, 100) for part in parts]
    while len(cuts) > 3:
        cuts = [merge(cuts[i : i + 3], 100) for i in range(0, len(cuts), 3)]
    brackets = find_lane_brackets(cuts, ranks)
    some = brackets.n_valid > 0
    same = brackets.lower == brackets.upper
    np.testing.assert_array_equal(
        brackets.low[some & same.all(1)], brackets.high[some & same.all(1)]
    )
    ordered = np.sort(table, axis=1)
    assert n_inside(brackets, ordered).max() == 0
    tally = merge_tallies([tally_of_sorted(part, brackets) for part in parts])
    result = order_statistics(tally, brackets)
    for rank, actual in zip(ranks(brackets.n_valid), (result.lower, result.upper), strict=True):
        places = rank.T[some]
        np.testing.assert_array_equal(actual[some], np.take_along_axis(ordered[some], places, 1))


@given(
    lanes=st.lists(st.lists(values, min_size=30, max_size=30), min_size=1, max_size=3),
    n_parts=st.integers(1, 7),
    m=st.integers(2, 12),
    q=st.floats(0, 1),
)
def test_no_more_are_inside_than_is_said(
    lanes: list[list[int]], n_parts: int, m: int, q: float
) -> None:
    table = np.array(lanes, np.uint8)
    parts = divided(table, n_parts)
    cuts = [cuts_of_sorted(part, None, m) for part in parts]
    brackets = find_lane_brackets(cuts, ranks_about([q]))
    assert n_inside(brackets, np.sort(table, axis=1)).max() <= most_inside(30, m, 2)


# --- Data that changed ----------------------------------------------------------------------------


def test_other_elements_and_another_number_are_noticed() -> None:
    rows = np.sort(mixed_lanes(200, "f8")[:5], axis=1)
    lanes, others, fewer = map(SortedLanes.of_rows, (rows, rows * 0 + 5e9, rows[:, 1:]))
    brackets = find_lane_brackets([cuts_of_sorted(lanes, None, 5)], ranks)
    number = "a 1-D slice had 200 valid elements in the first read and 199 in a later one"
    with pytest.raises(ChunksChangedError, match=number):
        narrow([cuts_of_sorted(fewer, brackets, 5)], brackets)
    elements = "a 1-D slice has other elements than in the first"
    for changed, message in ((others, elements), (fewer, number)):
        with pytest.raises(ChunksChangedError, match=message):
            order_statistics(tally_of_sorted(changed, brackets), brackets)
