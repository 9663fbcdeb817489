"""The mathematics of brackets, without dask and without compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.boxes import Rule, ranges_of_box
from dask_gpuselect.maths.coarse import merged_coarsely
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError, Cuts
from dask_gpuselect.maths.envelope import CellDistances, Envelope, find_brackets
from dask_gpuselect.maths.finish import order_statistics
from dask_gpuselect.maths.sizes import (
    MOST_GROUPS,
    PIVOT_WORK,
    pivot_count,
    pivot_share,
    plan_narrowing,
)
from tests.data import FLOATS, MISSING

QUANTILES = np.array([0.0, 0.001, 0.25, 0.5, 0.75, 1.0])


def cuts_of(chunks: Sequence[NDArray[Any]], n_pivots: int) -> Cuts:
    return Cuts.merge([reference.cuts(chunk, n_pivots) for chunk in chunks])


def with_distances(cuts: Cuts, use: bool) -> Cuts:
    return cuts if use else replace(cuts, distance=None, slack=None)


def ranks_of(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The two neighbours of some quantiles."""
    first = np.unique((QUANTILES * (n - 1)).astype(np.int64))
    return first, np.minimum(first + 1, n - 1)


def bounds(envelope: Envelope, cuts: Cuts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What distances prove of #{x <= y} at every distinct pivot y."""
    distances = CellDistances.of(cuts, envelope)
    positions = range(len(envelope.values))
    least = np.array([distances.least(y) for y in positions], np.int64)
    most = np.array([distances.most(y) for y in positions], np.int64)
    return least, most


def split(values: NDArray[Any], how: str) -> list[NDArray[Any]]:
    """Chunks in several orders and sizes, some of them empty."""
    chunks = {
        "as it comes": lambda: np.array_split(values, 7),
        "dealt": lambda: [values[i::5] for i in range(5)],
        "sorted": lambda: np.array_split(np.sort(values), 6),
        "irregular": lambda: np.split(values, [0, 3, 4, 4, len(values) // 3]),
        "one": lambda: [values],
    }
    return chunks[how]()


SPLITS = ("as it comes", "dealt", "sorted", "irregular", "one")


def holds(brackets: Brackets, value: Any) -> bool:
    """Whether a value is an end, or in a wanted cell."""
    cell = int(np.searchsorted(brackets.ends, value, side="left"))
    is_end = cell < len(brackets.ends) and brackets.ends[cell] == value
    return bool(is_end or brackets.wanted[cell])


@pytest.mark.parametrize("use_distances", [False, True])
@pytest.mark.parametrize("how", SPLITS)
@pytest.mark.parametrize("name", [*FLOATS, *MISSING])
def test_brackets_hold_the_order_statistics(name: str, how: str, use_distances: bool) -> None:
    values = (FLOATS | MISSING)[name](1500)
    ordered = np.sort(values[~np.isnan(values)])
    cuts = cuts_of(split(values, how), 12)
    assert cuts.n_valid.sum() == len(ordered)
    if len(ordered) == 0:
        return
    first, last = ranks_of(len(ordered))
    brackets = find_brackets(with_distances(cuts, use_distances), first, last)
    assert all(holds(brackets, ordered[k]) for k in [*first, *last])


# --- Distances --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("error", [-1, 0, 1])
def test_distances_prove_the_truth_whatever_the_rounding(name: str, error: int) -> None:
    """Sums that are off by all that `Cuts` allows still give bounds that hold, and never wider."""
    values = FLOATS[name](1500)
    cuts = cuts_of(split(values, "as it comes"), 12)
    envelope = Envelope.of(cuts)
    with np.errstate(invalid="ignore", over="ignore"):
        off = cuts.distance * (1 + error * (envelope.inside + 8) * 2.0**-53)
    least, most = bounds(envelope, replace(cuts, distance=off))
    true = np.searchsorted(np.sort(values), envelope.values, side="right")
    assert (envelope.lower <= least).all()
    assert (least <= true).all()
    assert (true <= most).all()
    assert (most <= envelope.upper).all()


@pytest.mark.parametrize(
    "name",
    [
        "normal",
        "outliers",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("lognormal", "offset", "trended")
        ),
    ],
)
@pytest.mark.slow
def test_candidates_are_few(name: str) -> None:
    """At most 1.1 n/m a quantile by counts alone in any order, and fewer with distances.

    At 32 chunks of 200,000 elements. Where a cell holds less than a hundred, chance moves the
    pivots, and the worst of a hundred quantiles has 1.14 n/m.
    """
    values = FLOATS[name](32 * 200_000)
    ordered = np.sort(values)
    orders = {
        "dealt": [values[i::32] for i in range(32)],
        "as it comes": np.array_split(values, 32),
        "sorted": np.array_split(ordered, 32),
    }
    for order, chunks in orders.items():
        for n_pivots in (64, 256):
            cuts = cuts_of(chunks, n_pivots)
            ranks = (np.linspace(0.03, 0.97, 21) * (len(values) - 1)).astype(np.int64)
            by_counts, by_distances = (
                np.array(
                    [
                        gathered(ordered, find_brackets(with_distances(cuts, use), k, k))
                        for k in ranks[:, None]
                    ]
                )
                for use in (False, True)
            )
            assert by_counts.max() <= 1.1 * len(values) / n_pivots
            assert (by_distances <= by_counts).all()
            if order != "sorted":  # where a bracket is one cell of one chunk, nothing narrows it
                assert np.median(by_distances / np.maximum(by_counts, 1)) < 0.97


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


def cuts_in_chunks(name: str, n_chunks: int, n_pivots: int) -> list[Cuts]:
    chunks = np.array_split((FLOATS | MISSING)[name](4000), n_chunks)
    return [reference.cuts(chunk, n_pivots) for chunk in chunks]


@pytest.mark.parametrize("name", ["normal", "tied", "outliers", "some nan"])
def test_a_tree_makes_brackets_little_wider(name: str) -> None:
    """By two in `most` for each of its levels and ends; and they hold the answer."""
    values, most = (FLOATS | MISSING)[name](4000), 200
    ordered = np.sort(values[values == values])
    cuts: list[Cuts] = cuts_in_chunks(name, 64, 20)
    levels = [cuts]
    while len(levels[-1]) > 1:
        parts = levels[-1]
        levels.append([merged_coarsely(parts[i : i + 4], most) for i in range(0, len(parts), 4)])
    for rank in (0, 400, 2000, len(ordered) - 1):
        k = np.array([rank])
        plain, coarse = (find_brackets(Cuts.merge(each), k, k) for each in (cuts, levels[-1]))
        room = 4 * len(levels) * len(ordered) / most
        assert gathered(ordered, coarse) <= gathered(ordered, plain) + room
        assert holds(coarse, ordered[rank])


def test_nothing_has_no_ranges() -> None:
    rule = Rule(1.5, autorange=True, max_fliers=9, method="linear")
    ranges = ranges_of_box(reference.cuts(np.full(3, np.nan), 2), rule)
    assert (ranges.n_ranges, len(ranges.lows)) == (0, 0)


# --- The plan -----------------------------------------------------------------------------------

GIB = 1 << 30


def test_few_quantiles_share_their_pivots() -> None:
    plans = [plan_narrowing(10**4, 10**8, n, 1, 8, GIB) for n in (1, 3, 8)]
    assert len({plan and plan.share for plan in plans}) == 1


def test_a_limit_that_is_too_low_is_passed_as_little_as_it_can_be() -> None:
    plan = plan_narrowing(100, 10**6, 2, 1, 8, 0)
    assert plan is not None
    assert plan.room == 100 * 2 * 4


@pytest.mark.parametrize(
    ("n_chunks", "size"),
    [(10**i, 10**j) for i in range(2, 7) for j in range(6, 9) if i + j <= 12],
)
@pytest.mark.parametrize("n_ranges", [1, 3, 7, 101, 1001])
def test_no_task_exceeds_the_limit(n_chunks: int, size: int, n_ranges: int) -> None:
    """Of up to 1e12 elements, whatever their chunks."""
    share = pivot_share(n_ranges)
    plan = plan_narrowing(n_chunks, size, n_ranges, share, 8, GIB, can_wait=True)
    if plan is None:
        assert PIVOT_WORK * n_chunks * pivot_count(size, share) <= GIB
        return
    assert plan.gathered <= plan.work <= GIB
    assert plan.waiting / min(plan.groups, n_chunks) <= GIB / 2
    assert plan.groups <= MOST_GROUPS
