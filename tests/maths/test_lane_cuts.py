"""What parts of many lanes prove together: brackets that hold, as narrow as is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect import ChunksChangedError
from dask_gpuselect.kernels.cpu import lane_passes as cpu_lane_passes
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    Lanes,
    LaneTally,
    cuts_of_sorted,
    even_ranks,
    find_lane_brackets,
    join,
    lanes_between,
    merge,
    merge_tallies,
    narrow,
    order_statistics,
    pick,
    tally_of_sorted,
)
from dask_gpuselect.maths.sizes import TALLIES_EVERY, most_inside, plan_passes
from tests.data import FLOATS, INTEGERS, MISSING

IntArray = NDArray[np.int64]
Q = np.array([0.5, 0.0, 0.9, 1.0])


def ranks(n: IntArray) -> tuple[IntArray, IntArray]:
    """The two ranks about each of `Q`."""
    lower = np.floor(Q[:, None] * (n - 1)).astype(np.int64)
    return lower, np.minimum(lower + 1, n - 1)


def divided(table: NDArray[Any], n_parts: int) -> list[NDArray[Any]]:
    """Parts of every lane, of uneven sizes, sorted."""
    stops = np.linspace(0, 1, n_parts + 1) ** 1.5 * table.shape[1]
    bounds = zip(stops[:-1].astype(int), stops[1:].astype(int), strict=True)
    parts = (np.sort(table[:, start:stop], axis=1) for start, stop in bounds)
    return [part for part in parts if part.shape[1]]


def in_passes(
    parts: Sequence[NDArray[Any]], widths: Sequence[int], merge_every: int = 100
) -> tuple[Lanes, list[LaneBrackets]]:
    """All passes, and the brackets after each."""
    found: list[LaneBrackets] = []
    brackets: LaneBrackets | None = None
    for m in widths:
        cuts = [cuts_of_sorted(part, brackets, m) for part in parts]
        while len(cuts) > merge_every:
            groups = [cuts[i : i + merge_every] for i in range(0, len(cuts), merge_every)]
            cuts = [merge(group, m) for group in groups]
        brackets = find_lane_brackets(cuts, ranks) if brackets is None else narrow(cuts, brackets)
        found.append(brackets)
    assert brackets is not None
    tally = merge_tallies([tally_of_sorted(part, brackets) for part in parts])
    return order_statistics(tally, brackets), found


def assert_holds(brackets: LaneBrackets, ordered: NDArray[Any]) -> None:
    """The true order statistics are in their brackets."""
    some = brackets.n_valid > 0
    for rank in (brackets.lower, brackets.upper):
        true = np.take_along_axis(ordered, rank, axis=1)[some]
        assert (brackets.low[some] <= true).all()
        assert (true <= brackets.high[some]).all()


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


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("merge_every", [2, 3, 100])
@pytest.mark.parametrize("widths", [(2,), (7,), (1000,), (9, 5), (5, 4, 4, 2)])
def test_passes(widths: tuple[int, ...], merge_every: int, dtype: str) -> None:
    table = mixed_lanes(500, dtype)
    ordered = np.sort(table, axis=1)
    whole = pick(ordered, ranks)
    found, brackets = in_passes(divided(table, 11), widths, merge_every)
    for bracket in brackets:
        assert_holds(bracket, ordered)
    some = whole.n_valid > 0
    np.testing.assert_array_equal(found.lower[some], whole.lower[some])
    np.testing.assert_array_equal(found.upper[some], whole.upper[some])
    np.testing.assert_array_equal(found.n_valid, whole.n_valid)
    np.testing.assert_array_equal(found.n_missing, np.isnan(table).sum(axis=1))


values = st.sampled_from([0, 1, 2, 3, 5, 8, 200, 255])


@given(
    lanes=st.lists(st.lists(values, min_size=30, max_size=30), min_size=1, max_size=3),
    n_parts=st.integers(1, 9),
    widths=st.lists(st.integers(2, 6), min_size=1, max_size=3),
    merge_every=st.integers(2, 4),
)
def test_integers(
    lanes: list[list[int]], n_parts: int, widths: list[int], merge_every: int
) -> None:
    table = np.array(lanes, np.uint8)
    whole = pick(np.sort(table, axis=1), ranks)
    found, brackets = in_passes(divided(table, n_parts), widths, merge_every)
    for bracket in brackets:
        assert_holds(bracket, np.sort(table, axis=1))
    np.testing.assert_array_equal(found.lower, whole.lower)
    np.testing.assert_array_equal(found.upper, whole.upper)


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[ns]"])
def test_dates(dtype: str) -> None:
    table = (mixed_lanes(300, "f8")[:3] * 1000).astype("i8").astype(dtype)
    table[1, ::3] = "NaT"
    table[2] = "NaT"
    whole = pick(np.sort(table, axis=1), ranks)
    found, _ = in_passes(divided(table, 5), (8, 4))
    np.testing.assert_array_equal(found.lower[:2], whole.lower[:2])
    np.testing.assert_array_equal(found.n_missing, [0, 100, 300])


def test_all_ranks_are_known_of_parts_that_tell_all() -> None:
    """Then the bracket is the element."""
    table = mixed_lanes(100, "f8")
    _, (brackets,) = in_passes(divided(table, 7), (100,), merge_every=3)
    some = brackets.n_valid > 0
    same = brackets.lower == brackets.upper
    np.testing.assert_array_equal(
        brackets.low[some & same.all(1)], brackets.high[some & same.all(1)]
    )
    assert n_inside(brackets, np.sort(table, axis=1)).max() == 0


def test_no_more_is_inside_than_planned() -> None:
    """After every pass of every plan, on data of every kind."""
    table = mixed_lanes(3000, "f8")
    ordered = np.sort(table, axis=1)
    n_plans = 0
    for n_parts in (3, 10, 40):
        parts = divided(table, n_parts)
        for room in (2000, 5000, 9000, 15_000):
            plan = plan_passes([part.shape[1] for part in parts], len(Q), room, 8)
            if plan is None:
                continue
            n_plans += 1
            found, brackets = in_passes(parts, plan.widths, plan.merge_every)
            gathered = n_inside(brackets[-1], ordered).sum(axis=1) * 8
            assert gathered.max() <= room
            np.testing.assert_array_equal(found.n_valid, (~np.isnan(table)).sum(axis=1))
    assert n_plans >= 8


def test_reports_have_the_planned_size() -> None:
    """Of the bytes for each lane, as many reports as come to one place take no more."""
    table = mixed_lanes(3000, "f8")
    for n_parts, room in ((3, 5000), (10, 9000), (40, 15_000)):
        parts = divided(table, n_parts)
        plan = plan_passes([part.shape[1] for part in parts], len(Q), room, 8)
        assert plan is not None
        brackets = None
        for m in plan.widths:
            cuts = [cuts_of_sorted(part, brackets, m) for part in parts]
            if len(parts) <= plan.merge_every:
                assert sum(bytes_of(part) for part in cuts) <= room * len(table)
            cuts = [merge(cuts, m)]
            brackets = (
                find_lane_brackets(cuts, ranks) if brackets is None else narrow(cuts, brackets)
            )
        assert brackets is not None
        tallies = [tally_of_sorted(part, brackets) for part in parts]
        while len(tallies) > TALLIES_EVERY:
            groups = range(0, len(tallies), TALLIES_EVERY)
            assert sum(bytes_of(part) for part in tallies[:TALLIES_EVERY]) <= room * len(table)
            tallies = [merge_tallies(tallies[i : i + TALLIES_EVERY]) for i in groups]
        assert sum(bytes_of(part) for part in tallies) <= room * len(table)


def bytes_of(report: LaneCuts | LaneTally) -> int:
    """Of its arrays, each once."""
    return sum({id(value): value.nbytes for value in vars(report).values()}.values())


def test_sizes_are_told_to_schedulers() -> None:
    cuts = cuts_of_sorted(mixed_lanes(300, "f8"), None, 100)
    assert cuts.low is cuts.high
    assert cuts.low.nbytes <= cuts.__sizeof__()


# --- Compiled -------------------------------------------------------------------------------------


def assert_equal(mine: Any, other: Any) -> None:
    """But for pivots of brackets with nothing inside, which mean nothing."""
    assert type(mine) is type(other)
    for name, value in vars(other).items():
        some = other.n_inside > 0 if name in ("low", "high") else ...
        np.testing.assert_array_equal(getattr(mine, name)[some], value[some], err_msg=name)


def in_order(tally: LaneTally) -> LaneTally:
    """With the candidates of each bracket ascending."""
    sizes = tally.n_inside.reshape(-1)
    bracket = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((tally.candidates, bracket))
    return replace(tally, candidates=tally.candidates[order])


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "i2", "u1"])
def test_compiled_as_in_the_reference(dtype: str) -> None:
    """Cuts, brackets, tallies, and what they make together, of parts of uneven sizes."""
    if dtype[0] == "f":
        table = mixed_lanes(700, dtype)
    else:
        table = np.stack([make(700, dtype) for make in INTEGERS.values()])
    for n_parts, widths in ((1, (2,)), (4, (9, 5)), (11, (30, 7)), (11, (1000,))):
        parts = divided(table, n_parts)
        brackets = None
        for m in widths:
            cuts = [cuts_of_sorted(part, brackets, m) for part in parts]
            for part, cut in zip(parts, cuts, strict=True):
                assert_equal(cpu_lane_passes.cuts_of_sorted(part, brackets, m), cut)
                own = cpu_lane_passes.cuts([part[:, ::-1]], brackets, m)
                assert_equal(own, cut)
            merged = merge(cuts, m)
            assert_equal(merge(cuts, m, cpu_lane_passes.bracketed), merged)
            for some in (cuts, [merged], [merged, *cuts]):
                if brackets is None:
                    wanted = find_lane_brackets(some, ranks)
                    found = find_lane_brackets(some, ranks, cpu_lane_passes.bracketed)
                elif some is cuts:
                    wanted = narrow(some, brackets)
                    found = narrow(some, brackets, cpu_lane_passes.bracketed)
                assert_holding(found, wanted)
            brackets = (
                find_lane_brackets(cuts, ranks) if brackets is None else narrow(cuts, brackets)
            )
        assert brackets is not None
        tallies = [tally_of_sorted(part, brackets) for part in parts]
        compiled = [cpu_lane_passes.tally_of_rows(part[:, ::-1].copy(), brackets) for part in parts]
        for one, other in zip(compiled, tallies, strict=True):
            assert_equal(in_order(one), other)
        assert_equal(
            in_order(cpu_lane_passes.merge_tallies(compiled)), in_order(merge_tallies(tallies))
        )


def assert_holding(found: LaneBrackets, wanted: LaneBrackets) -> None:
    """The same, but for lanes without a valid element, whose ends mean nothing."""
    some = wanted.n_valid > 0
    for name, value in vars(wanted).items():
        if name != "sizes":  # of devices
            np.testing.assert_array_equal(getattr(found, name)[some], value[some], err_msg=name)


@given(
    lanes=st.lists(st.lists(values, min_size=30, max_size=30), min_size=1, max_size=3),
    n_parts=st.integers(1, 7),
    m=st.integers(2, 12),
    q=st.floats(0, 1),
)
def test_no_more_are_inside_than_is_said(
    lanes: list[list[int]], n_parts: int, m: int, q: float
) -> None:
    def pairs(n: IntArray) -> tuple[IntArray, IntArray]:
        lower = np.floor(q * (n - 1)).astype(np.int64)
        return lower[None], np.minimum(lower + 1, n - 1)[None]

    table = np.array(lanes, np.uint8)
    parts = divided(table, n_parts)
    brackets = find_lane_brackets([cuts_of_sorted(part, None, m) for part in parts], pairs)
    assert n_inside(brackets, np.sort(table, axis=1)).max() <= most_inside(30, m, 2)


@given(
    lanes=st.lists(st.lists(values, min_size=20, max_size=20), min_size=1, max_size=3),
    n_parts=st.integers(1, 7),
    m=st.integers(2, 8),
)
def test_search_among_ties(lanes: list[list[int]], n_parts: int, m: int) -> None:
    parts = divided(np.array(lanes, np.uint8), n_parts)
    cuts = [cuts_of_sorted(part, None, m) for part in parts]
    assert_holding(
        find_lane_brackets(cuts, ranks, cpu_lane_passes.bracketed), find_lane_brackets(cuts, ranks)
    )


# --- Lanes side by side ---------------------------------------------------------------------------


def test_lanes_in_turn_are_as_all_at_once() -> None:
    rows = np.sort(mixed_lanes(200, "f8"), axis=1)
    brackets = find_lane_brackets([cuts_of_sorted(rows, None, 5)], ranks)
    halves = [(0, 7), (7, len(rows))]
    for measure in (
        lambda rows, brackets: cuts_of_sorted(rows, brackets, 9),
        tally_of_sorted,
        lambda rows, brackets: pick(rows, ranks),
    ):
        whole = measure(rows, brackets)
        joined = join([measure(rows[i:j], lanes_between(brackets, i, j)) for i, j in halves])
        assert type(joined) is type(whole)
        for name, value in vars(whole).items():
            np.testing.assert_array_equal(getattr(joined, name), value)
    assert join([cuts_of_sorted(rows, None, 9)] * 2).low is not None


def test_one_array_for_both_ends_stays_one() -> None:
    cuts = cuts_of_sorted(np.sort(mixed_lanes(50, "f8"), axis=1), None, 9)
    joined = join([cuts, cuts])
    assert joined.low is joined.high


@pytest.mark.parametrize(("n", "m"), [(10, 4), (4, 10), (1, 3), (0, 3), (7, 1)])
def test_even_ranks(n: int, m: int) -> None:
    found = even_ranks(np.array([n]), m)[0]
    assert len(found) == m
    assert found[0] == 0
    assert (np.diff(found) >= 0).all()
    if m > 1:
        assert found[-1] == max(n - 1, 0)
        assert np.diff(found).max(initial=0) <= max(1, -(-(n - 1) // (m - 1)))


# --- Data that changed ----------------------------------------------------------------------------


def test_other_elements_are_noticed() -> None:
    rows = np.sort(mixed_lanes(200, "f8")[:5], axis=1)
    brackets = find_lane_brackets([cuts_of_sorted(rows, None, 5)], ranks)
    with pytest.raises(ChunksChangedError, match="a lane has other elements than on the first"):
        order_statistics(tally_of_sorted(rows * 0 + 5e9, brackets), brackets)


def test_another_number_is_noticed() -> None:
    rows = np.sort(mixed_lanes(200, "f8")[:5], axis=1)
    brackets = find_lane_brackets([cuts_of_sorted(rows, None, 5)], ranks)
    message = "a lane held 200 valid elements on the first load and 199 on a later one"
    with pytest.raises(ChunksChangedError, match=message):
        narrow([cuts_of_sorted(rows[:, 1:], brackets, 5)], brackets)
    with pytest.raises(ChunksChangedError, match=message):
        order_statistics(tally_of_sorted(rows[:, 1:], brackets), brackets)


# --- Plans ----------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(1, 10_000), min_size=1, max_size=300),
    n_questions=st.integers(1, 20),
    room=st.integers(1, 10**6),
    itemsize=st.sampled_from([1, 2, 4, 8]),
)
def test_plans_are_short(sizes: list[int], n_questions: int, room: int, itemsize: int) -> None:
    """Each pass halves at least what is inside."""
    plan = plan_passes(sizes, n_questions, room, itemsize)
    if plan is not None:
        assert all(width >= 2 for width in plan.widths)
        assert 1 <= len(plan.widths) <= 1 + np.log2(sum(sizes) + 1)
        assert plan.merge_every >= 2


def test_more_room_takes_no_more_passes() -> None:
    sizes = [500] * 12
    plans = [plan_passes(sizes, 3, room, 4) for room in range(500, 30_000, 100)]
    passes = [np.inf if plan is None else len(plan.widths) for plan in plans]
    assert passes == sorted(passes, reverse=True)
    assert passes[0] == np.inf
    assert passes[-1] == 1


@pytest.mark.parametrize("dtype", ["f8", "i8", "M8[s]"])
def test_a_part_without_elements_changes_nothing(dtype: str) -> None:
    """As that of a group of which a part of the data has none."""
    rows = np.sort(np.arange(60).reshape(3, 20)[:, ::-1], axis=1).astype(dtype)
    some, none = cuts_of_sorted(rows, None, 5), cuts_of_sorted(rows[:, :0], None, 5)
    assert none.n_valid.tolist() == none.n_missing.tolist() == [0, 0, 0]
    lower, upper = (np.full((3, 1), rank) for rank in (9, 10))
    brackets = find_lane_brackets([none, some, none], lambda n: (lower.T, upper.T))
    tallies = [tally_of_sorted(part, brackets) for part in (rows[:, :0], rows)]
    found = order_statistics(merge_tallies(tallies), brackets)
    np.testing.assert_array_equal(found.lower, rows[:, [9]])
    np.testing.assert_array_equal(found.upper, rows[:, [10]])
