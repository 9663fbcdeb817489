"""The mathematics of brackets, without dask and without compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.coarse import merged_coarsely
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError, Cuts
from dask_gpuselect.maths.envelope import Envelope, find_brackets
from dask_gpuselect.maths.finish import order_statistics
from dask_gpuselect.maths.sizes import (
    MOST_GROUPS,
    PIVOT_WORK,
    pivot_count,
    pivot_share,
    plan_narrowing,
)
from tests.data import FLOATS, MISSING


def cuts_of(chunks: Sequence[NDArray[Any]], n_pivots: int) -> Cuts:
    return Cuts.merge([reference.cuts(chunk, n_pivots) for chunk in chunks])


def holds(brackets: Brackets, value: Any) -> bool:
    """Whether a value is an end, or in a wanted cell."""
    cell = int(np.searchsorted(brackets.ends, value, side="left"))
    is_end = cell < len(brackets.ends) and brackets.ends[cell] == value
    return bool(is_end or brackets.wanted[cell])


# --- Bounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
def test_counts_prove_the_truth(name: str) -> None:
    values = FLOATS[name](1500)
    envelope = Envelope.of(cuts_of(np.array_split(values, 7), 12))
    true = np.searchsorted(np.sort(values), envelope.values, side="right")
    assert (envelope.lower <= true).all()
    assert (true <= envelope.upper).all()


def gathered(ordered: NDArray[Any], brackets: Brackets) -> int:
    """The number of candidates."""
    below = np.append(np.searchsorted(ordered, brackets.ends, side="left"), len(ordered))
    upto = np.append(0, np.searchsorted(ordered, brackets.ends, side="right"))
    return int((below - upto)[brackets.wanted].sum())


# --- Finish -----------------------------------------------------------------------------------


def test_a_rank_outside_its_bracket_is_an_error() -> None:
    brackets = Brackets(np.array([10.0, 20.0]), np.array([False, True, False]))
    tally = reference.tally(np.arange(100.0), brackets, 100)
    assert tally is not None
    assert order_statistics(brackets, tally, np.array([15])).tolist() == [15.0]
    with pytest.raises(ChunksChangedError, match="outside their brackets"):
        order_statistics(brackets, tally, np.array([15, 50]))


# --- Cuts that are narrowed -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in (*FLOATS, *MISSING) if name != "all nan"])
def test_a_tree_makes_brackets_little_wider(name: str) -> None:
    """By two in `most` for each of its levels and ends; and brackets hold the answer."""
    values, most = (FLOATS | MISSING)[name](4000), 200
    ordered = np.sort(values[values == values])
    cuts = [reference.cuts(chunk, 20) for chunk in np.array_split(values, 64)]
    levels = [cuts]
    while len(levels[-1]) > 1:
        parts = levels[-1]
        levels.append([merged_coarsely(parts[i : i + 4], most) for i in range(0, len(parts), 4)])
    for rank in {0, len(ordered) // 10, len(ordered) // 2, len(ordered) - 1}:
        k = np.array([rank])
        plain, coarse = (find_brackets(Cuts.merge(each), k, k) for each in (cuts, levels[-1]))
        room = 4 * len(levels) * len(ordered) / most
        assert gathered(ordered, coarse) <= gathered(ordered, plain) + room
        assert holds(plain, ordered[rank])
        assert holds(coarse, ordered[rank])


# --- The plan -----------------------------------------------------------------------------------

GIB = 1 << 30


def test_few_quantiles_share_their_pivots() -> None:
    plans = [plan_narrowing(10**4, 10**8, n, 1, 8, GIB) for n in (1, 3, 8)]
    assert len({plan and plan.share for plan in plans}) == 1


@pytest.mark.parametrize(
    ("n_chunks", "size"),
    [(10**i, 10**j) for i in range(2, 7) for j in range(6, 9) if i + j <= 12],
)
@pytest.mark.parametrize("n_ranges", [1, 3, 7, 101, 1001])
def test_no_task_exceeds_the_limit(n_chunks: int, size: int, n_ranges: int) -> None:
    """Of up to 1e12 elements, whatever their chunks."""
    share = pivot_share(n_ranges)
    plan = plan_narrowing(n_chunks, size, n_ranges, share, 8, GIB)
    if plan is None:
        assert PIVOT_WORK * n_chunks * pivot_count(size, share) <= GIB
        return
    assert plan.gathered <= plan.work <= GIB
    assert plan.waiting / min(plan.groups, n_chunks) <= GIB / 2
    assert plan.groups <= MOST_GROUPS
