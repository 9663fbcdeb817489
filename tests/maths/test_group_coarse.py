"""Cuts of groups that are merged and thinned level by level, and candidates that wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect.kernels.reference import groups as reference
from dask_gpuselect.maths import coarse
from dask_gpuselect.maths.cached import cell_tally_by
from dask_gpuselect.maths.coarse import cuts_of_cells, merged_coarsely, narrower_slots
from dask_gpuselect.maths.cuts import Cuts
from dask_gpuselect.maths.ragged import (
    Bracketed,
    CellTally,
    bracket_slots,
    order_statistics_of_slots,
)
from tests.data import normal

Part = tuple[NDArray[Any], NDArray[np.int32]]
N_GROUPS = 4
Q = np.array([0.0, 0.3, 0.5, 1.0])


def ranks(n: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    lower = np.floor(Q[:, None] * (n - 1)).astype(np.int64)
    return lower, np.minimum(lower + 1, n - 1)


def in_groups(values: NDArray[Any], groups: NDArray[np.int32], n_groups: int) -> NDArray[Any]:
    return values[np.lexsort((values, groups))]


def levels(parts: list[Any], every: int, merge: Any) -> list[Any]:
    while len(parts) > 1:
        parts = [merge(parts[i : i + every]) for i in range(0, len(parts), every)]
    return parts


def asked(
    parts: Sequence[Part], n_groups: int, every: int, most: int, rounds: int
) -> tuple[Any, list[int]]:
    """What is found, and how many candidates there were before each round, and at last."""
    cuts: list[Any] = [reference.cuts([part], n_groups, 1) for part in parts]
    few = levels(cuts, every, lambda some: merged_coarsely(some, most))
    brackets = bracket_slots(few, n_groups, ranks)
    tallies = [reference.tally([part], brackets.brackets) for part in parts]
    lots = [CellTally.merge(tallies[i : i + every]) for i in range(0, len(parts), every)]
    held = [candidates(lots)]
    for _ in range(rounds):
        brackets, lots = narrowed(brackets, lots, every, most)
        held.append(candidates(lots))
    tally = CellTally.merge(lots).in_one_order(len(brackets.brackets.wanted), in_groups)
    return order_statistics_of_slots(brackets, tally, ranks), held


def narrowed(
    brackets: Bracketed, lots: list[CellTally], every: int, most: int
) -> tuple[Bracketed, list[CellTally]]:
    few: list[Cuts] = [cuts_of_cells(brackets.brackets, lot, most) for lot in lots]
    (merged,) = levels(few, every, lambda some: merged_coarsely(some, most))
    found = narrower_slots(brackets, merged, ranks)
    old, new = brackets.brackets, found.brackets
    left = [cell_tally_by(old, lot, new, np.arange(old.n_slots)) for lot in lots]
    return found, [lot for lot in left if lot is not None]


def candidates(lots: list[CellTally]) -> int:
    return sum(len(lot.candidates) for lot in lots)


def check(parts: Sequence[Part], n_groups: int, found: Any) -> None:
    values, codes = (np.concatenate(each) for each in zip(*parts, strict=True))
    for group in range(n_groups):
        own = values[codes == group]
        valid = np.sort(own[~np.isnan(own)])
        assert found.n_valid[group] == len(valid)
        assert found.n_missing[group] == len(own) - len(valid)
        if len(valid):
            lower, upper = ranks(np.array([len(valid)]))
            np.testing.assert_array_equal(found.lower[group], valid[lower[:, 0]] + 0.0)
            np.testing.assert_array_equal(found.upper[group], valid[upper[:, 0]] + 0.0)


some_values = st.integers(-4, 4).map(float) | st.floats() | st.just(np.nan)
some_parts = st.lists(
    st.lists(st.tuples(some_values, st.integers(-1, N_GROUPS - 1)), max_size=40).map(
        lambda pairs: (
            np.array([value for value, _ in pairs], np.float64),
            np.array([code for _, code in pairs], np.int32),
        )
    ),
    min_size=1,
    max_size=9,
)


@pytest.mark.few(1)
@given(parts=some_parts, every=st.integers(2, 4), most=st.integers(1, 40), rounds=st.integers(0, 3))
@pytest.mark.parametrize("least", [2, 16])
def test_the_answer_is_exact(
    parts: list[Part], every: int, most: int, rounds: int, least: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dask_gpuselect.maths.coarse.LEAST_OF_GROUP", least)
        found, held = asked(parts, N_GROUPS, every, most, rounds)
    check(parts, N_GROUPS, found)
    assert held == sorted(held, reverse=True)


def test_what_is_in_one_place_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    plain = coarse.coarsened

    def counting(cuts: Any, most: int) -> Any:
        held.append(len(cuts.pivots))
        return plain(cuts, most)

    monkeypatch.setattr("dask_gpuselect.maths.coarse.coarsened", counting)
    parts = [
        reference.cuts([(normal(900) + i, np.arange(900, dtype=np.int32) % 3)], 3, 1)
        for i in range(300)
    ]
    found = merged_coarsely(parts, 64)
    assert sum(held[-3:]) <= coarse.COARSE_EVERY * 64
    assert len(found.pivots) <= 64 + 3 * 2 * 20
    assert (np.unique(found.slots) == np.arange(3)).all()
    chunks = found.unpacked()
    assert (chunks.least_upto <= chunks.upto).all()
    assert chunks.n_valid.sum() == 300 * 900


def test_groups_that_only_lack_values() -> None:
    parts = [Cuts.of_missing(np.array([2, 0, 1]), np.dtype("f8")) for _ in range(40)]
    found = merged_coarsely(parts, 4)
    assert found.n_missing.sum() == 120
    assert len(found.slots) == 2
