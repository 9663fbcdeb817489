"""What was kept of groups tells what a second load would find, wherever it covers that."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect.kernels.reference import groups as reference
from dask_gpuselect.maths.cached import cell_tally_by
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.maths.ragged import CellTally

VALUES = st.integers(-4, 4)
N_GROUPS = 3


@st.composite
def brackets(draw: st.DrawFn) -> Brackets:
    """Any ends of each group, and any of the cells between."""
    found = []
    for _ in range(N_GROUPS):
        ends = sorted(draw(st.sets(VALUES, max_size=4)))
        wanted = draw(st.lists(st.booleans(), min_size=len(ends) + 1, max_size=len(ends) + 1))
        found.append(Brackets(np.array(ends, np.float64), np.array(wanted, np.bool_)))
    return Brackets.of_each(found)


def known(tally: CellTally, at: Brackets) -> list[Any]:
    """All that a tally says, candidates in an order of their own."""
    candidates = sorted(zip(tally.of_cells.tolist(), tally.candidates.tolist(), strict=True))
    return [tally.counts(len(at.wanted)).tolist(), candidates]


def part(data: st.DataObject) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    values = np.array(data.draw(st.lists(VALUES, min_size=1, max_size=30)), np.float64)
    values[data.draw(st.integers(0, len(values) - 1))] = np.nan
    codes = data.draw(
        st.lists(st.integers(-1, N_GROUPS - 1), min_size=len(values), max_size=len(values))
    )
    return values, np.array(codes, np.int32)


@given(data=st.data())
def test_what_covers_tells(data: st.DataObject) -> None:
    some = part(data)
    kept, wanted = data.draw(brackets()), data.draw(brackets())
    tally, among = reference.tally([some], kept), np.arange(N_GROUPS)
    found = cell_tally_by(kept, tally, wanted, among)
    if found is not None:
        assert known(found, wanted) == known(reference.tally([some], wanted), wanted)
    assert cell_tally_by(kept, tally, kept, among) is not None
