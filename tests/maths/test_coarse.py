"""Cuts that are merged and thinned level by level prove brackets all the same, and narrow ones."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths import coarse
from dask_gpuselect.maths.boxes import (
    Rule,
    bracket_fences,
    bracket_from_cuts,
    look,
    narrower_box,
)
from dask_gpuselect.maths.coarse import coarsened, cuts_of_tally, merged_coarsely, narrower
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally
from dask_gpuselect.maths.envelope import Envelope, find_brackets
from dask_gpuselect.maths.expected import Expected
from dask_gpuselect.maths.finish import order_statistics
from dask_gpuselect.maths.kept import tally_by
from tests.data import FLOATS, INTEGERS, make

floats = st.floats(width=64) | st.sampled_from([0.0, -0.0, 1.0, 2.0, np.inf, -np.inf, np.nan])
integers = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)
some_chunks = st.one_of(
    *(
        st.lists(arrays(dtype, st.integers(0, 40), elements=elements), min_size=1, max_size=9)
        for dtype, elements in ((np.float64, floats), (np.int64, integers))
    )
)


def valid(chunks: list[NDArray[Any]]) -> NDArray[Any]:
    """All elements in ascending order."""
    values = np.concatenate(chunks)
    return np.sort(values[values == values])


def tally_of(chunk: NDArray[Any], brackets: Brackets) -> Tally:
    found = reference.tally(chunk, brackets, len(chunk))
    assert found is not None
    return found


def in_levels(parts: list[Cuts], every: int, most: int) -> Cuts:
    """The root of a tree of merges."""
    some: list[Cuts] = [
        merged_coarsely(parts[i : i + every], most) for i in range(0, len(parts), every)
    ]
    return some[0] if len(some) == 1 else in_levels(some, every, most)


@given(
    chunks=some_chunks,
    n_pivots=st.integers(1, 20),
    every=st.integers(2, 4),
    most=st.integers(2, 12),
)
def test_bounds_hold(chunks: list[NDArray[Any]], n_pivots: int, every: int, most: int) -> None:
    """Of the elements below and up to every pivot that is left."""
    found = in_levels([reference.cuts(chunk, n_pivots) for chunk in chunks], every, most)
    values = valid(chunks)
    assert found.n_valid.sum() == len(values)
    assert found.n_missing.sum() == sum(map(len, chunks)) - len(values)
    below, upto = (np.searchsorted(values, found.pivots, side) for side in ("left", "right"))
    assert (below <= found.below).all()
    assert (found.least_upto <= upto).all()
    assert (upto <= found.upto).all()
    if len(found.pivots):
        envelope = Envelope.of(found)
        upto = np.searchsorted(values, envelope.values, "right")
        assert ((envelope.lower <= upto) & (upto <= envelope.upper)).all()


@given(
    chunks=some_chunks,
    n_pivots=st.integers(1, 20),
    every=st.integers(2, 4),
    most=st.integers(2, 12),
    q=st.lists(st.floats(0, 1), min_size=1, max_size=4),
    rounds=st.integers(0, 3),
)
def test_the_answer_is_exact(
    chunks: list[NDArray[Any]],
    n_pivots: int,
    every: int,
    most: int,
    q: list[float],
    rounds: int,
) -> None:
    """By brackets of few pivots, and candidates that are narrowed where they are."""
    cuts = [reference.cuts(chunk, n_pivots) for chunk in chunks]
    values = valid(chunks)
    if not len(values):
        return
    wanted = np.unique((np.array(q) * (len(values) - 1)).astype(np.int64))
    brackets = find_brackets(in_levels(cuts, every, most), wanted, wanted)
    expected = Expected.merge([Expected.of(each, brackets, len(cuts)) for each in cuts])
    tallies = [tally_of(chunk, brackets) for chunk in chunks]
    for i, tally in enumerate(tallies):
        expected.check(i, tally, brackets, str(i))
    groups = [Tally.merge(tallies[i : i + every]) for i in range(0, len(tallies), every)]
    n_candidates = sum(len(each.candidates) for each in groups)
    for _ in range(rounds):
        some: list[Cuts] = [cuts_of_tally(brackets, each, most) for each in groups]
        found = narrower(brackets, find_brackets(in_levels(some, every, most), wanted, wanted))
        groups = [tally_by(brackets, each, found) for each in groups]
        brackets = found
    whole = Tally.merge(groups)
    assert len(whole.candidates) <= n_candidates
    np.testing.assert_array_equal(order_statistics(brackets, whole, wanted), values[wanted])


@given(
    chunks=some_chunks,
    n_pivots=st.integers(1, 20),
    every=st.integers(2, 4),
    most=st.integers(2, 12),
    whis=st.floats(0, 3) | st.tuples(st.floats(0, 1), st.floats(0, 1)),
    max_fliers=st.integers(0, 30),
    room=st.sampled_from([0, 5, 1 << 14]),
)
def test_a_box_is_exact(
    chunks: list[NDArray[Any]],
    n_pivots: int,
    every: int,
    most: int,
    whis: float | tuple[float, float],
    max_fliers: int,
    room: int,
) -> None:
    """What was found at narrower brackets is what all candidates say."""
    rule = Rule(whis, True, max_fliers, "linear")
    cuts = in_levels([reference.cuts(chunk, n_pivots) for chunk in chunks], every, most)
    if not cuts.n_valid.any():
        return
    brackets = bracket_from_cuts(cuts, rule, room)
    tallies = [tally_of(chunk, brackets) for chunk in chunks]
    some: list[Cuts] = [cuts_of_tally(brackets, each, most) for each in tallies]
    found = narrower_box(brackets, in_levels(some, every, most), rule)
    few = Tally.merge([tally_by(brackets, each, found) for each in tallies])
    right = look(brackets, Tally.merge(tallies), rule)
    mine = look(found, few, rule)
    for field in fields(right):
        theirs = getattr(right, field.name)
        np.testing.assert_array_equal(getattr(mine, field.name), theirs, err_msg=field.name)
    more, others = (bracket_fences(brackets.spared, each) for each in (mine, right))
    assert (more is None) == (others is None)


@pytest.mark.few(11)
@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
def test_brackets_are_narrow(name: str) -> None:
    """By 1.09 of n / pivots, as of all cuts, and by one in `most` for each merge; ties or not."""
    values = make(name, "f8" if name in FLOATS else "i8", 64_000)
    n_pivots, most, every = 200, 500, 4
    chunks = [values[i::64] for i in range(64)]
    cuts: list[Cuts] = [reference.cuts(chunk, n_pivots) for chunk in chunks]
    n = len(valid(chunks))
    wanted = np.array([n // 10, n // 2, n - 1])
    brackets = find_brackets(in_levels(cuts, every, most), wanted, wanted)
    whole = Tally.merge([tally_of(chunk, brackets) for chunk in chunks])
    assert len(whole.candidates) <= len(wanted) * n * (1.5 / n_pivots + 2 * 3 / most)
    some = [cuts_of_tally(brackets, whole, most)]
    found = narrower(brackets, find_brackets(in_levels(some, every, most), wanted, wanted))
    few = tally_by(brackets, whole, found)
    assert len(few.candidates) <= max(len(whole.candidates) / (most / 8), 24)


def test_few_pivots_are_left() -> None:
    cuts = reference.cuts(np.random.default_rng(0).normal(size=10_000), 5_000)
    found = coarsened(cuts, 100)
    assert 100 <= len(found.pivots) <= 100 + 2 * 14 + 1
    assert len(coarsened(cuts, 10_000).pivots) == len(cuts.pivots)


def test_what_is_in_one_place_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    plain = coarse.coarsened

    def counting(cuts: Cuts, most: int) -> Any:
        held.append(len(cuts.pivots))
        return plain(cuts, most)

    monkeypatch.setattr(coarse, "coarsened", counting)
    parts = [reference.cuts(np.arange(i, 1000 + i), 30) for i in range(700)]
    merged_coarsely(parts, 64)
    assert max(held) <= coarse.COARSE_EVERY * 64
