"""Cuts of elements that weigh, merged and thinned level by level: what they bound, and how little
they leave open."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.coarse import coarsened, cuts_of_tally
from dask_gpuselect.maths.cuts import Brackets, Cuts
from dask_gpuselect.maths.expected import Expected
from dask_gpuselect.maths.kept import tally_by
from dask_gpuselect.maths.weight_boxes import bracket_from_weights, narrower_weighted_box
from dask_gpuselect.maths.weight_brackets import WeightEnvelope, common_unit
from dask_gpuselect.maths.weight_finish import InOrder
from dask_gpuselect.maths.weights import CoarseWeightedCuts, WeightedTally
from dask_gpuselect.quantiles.weighted import WeightedQuantiles
from tests.data import make, normal
from tests.kernels.test_weighing import WEIGHTS, exactly
from tests.maths.test_coarse import in_levels
from tests.maths.test_weights import (
    METHODS,
    QUANTILES,
    Chunk,
    chunks_,
    cut_up,
    cuts_of,
    tally_of,
)
from tests.oracle import weighted

FLOAT = np.dtype(np.float64)
levels = {"n_pivots": st.integers(1, 9), "every": st.integers(2, 4), "most": st.integers(2, 12)}


@given(chunks=chunks_, **levels)
def test_bounds_hold(chunks: list[Chunk], n_pivots: int, every: int, most: int) -> None:
    """Of what the elements up to every pivot that is left weigh, and of what all do."""
    found = in_levels([cuts_of([chunk], n_pivots) for chunk in chunks], every, most)
    assert isinstance(found, CoarseWeightedCuts)
    envelope, unit = WeightEnvelope.of(found), Fraction(2) ** common_unit(found)
    values, weights = (np.concatenate(each) for each in zip(*chunks, strict=True))
    exact = np.array(exactly(weights), object)
    assert envelope.least * unit <= exact.sum() <= envelope.most * unit
    low, high = (square * unit**2 for square in envelope.squares)
    assert low <= (exact * exact).sum() <= high
    bounds = zip(
        envelope.lower.tolist(), envelope.upper.tolist(), envelope.ties.tolist(), strict=True
    )
    for value, (lower, upper, ties) in zip(envelope.counts.values, bounds, strict=True):
        assert lower * unit <= exact[values <= value].sum() <= upper * unit
        assert exact[values < value].sum() <= (upper - ties) * unit


@settings(max_examples=40)
@given(
    chunks=chunks_,
    q=st.lists(st.floats(0, 1) | st.sampled_from(QUANTILES), min_size=1, max_size=4),
    method=st.sampled_from(METHODS),
    rounds=st.integers(0, 3),
    **levels,
)
def test_the_answer_is_exact(
    chunks: list[Chunk],
    q: list[float],
    method: str,
    rounds: int,
    n_pivots: int,
    every: int,
    most: int,
) -> None:
    """By brackets of few pivots, and candidates that are narrowed where they are."""
    question = WeightedQuantiles(tuple(q), method, False, FLOAT, FLOAT)
    cuts: list[Cuts] = [cuts_of([chunk], n_pivots) for chunk in chunks]
    values, weights = (np.concatenate(each) for each in zip(*chunks, strict=True))
    with np.errstate(all="ignore"):
        brackets = question.bracket(in_levels(cuts, every, most))
        expected = Expected.merge([Expected.of(each, brackets, len(cuts)) for each in cuts])
        tallies = [tally_of([chunk], brackets) for chunk in chunks]
        for i, tally in enumerate(tallies):
            expected.check(i, tally, brackets, str(i))
        brackets, whole = narrowed(
            question, brackets, tallies, every=every, most=most, rounds=rounds
        )
        found = question.look(brackets, whole)
        right = np.array([weighted(values, weights, each, method, FLOAT) for each in q], FLOAT)
    np.testing.assert_array_equal(found, right)


def narrowed(
    question: Any,
    brackets: Brackets,
    tallies: list[WeightedTally],
    *,
    every: int,
    most: int,
    rounds: int,
) -> tuple[Brackets, WeightedTally]:
    """The brackets after some rounds, and the tally of all chunks there."""
    groups: list[Any] = [
        WeightedTally.merge(tallies[i : i + every]) for i in range(0, len(tallies), every)
    ]
    for _ in range(rounds):
        some = [cuts_of_tally(brackets, each, most) for each in groups]
        found = question.narrower(brackets, in_levels(some, every, most))
        groups = [tally_by(brackets, each, found) for each in groups]
        brackets = found
    return brackets, WeightedTally.merge(groups)


@given(
    chunks=chunks_,
    whis=st.floats(0, 3) | st.tuples(st.floats(0, 1), st.floats(0, 1)),
    method=st.sampled_from(METHODS),
    room=st.sampled_from([0, 5, 1 << 14]),
    **levels,
)
def test_what_a_box_needs_is_left(
    chunks: list[Chunk],
    whis: float | tuple[float, float],
    method: str,
    room: int,
    n_pivots: int,
    every: int,
    most: int,
) -> None:
    """The elements that its quantiles are made of, and the extremes."""
    rule = Rule(whis, True, 5, method)
    cuts = in_levels([cuts_of([chunk], n_pivots) for chunk in chunks], every, most)
    brackets = bracket_from_weights(cuts, rule, room)
    groups = [tally_of([chunk], brackets) for chunk in chunks]
    some: list[Cuts] = [cuts_of_tally(brackets, each, most) for each in groups]
    found = narrower_weighted_box(brackets, in_levels(some, every, most), rule)
    few = WeightedTally.merge([tally_by(brackets, each, found) for each in groups])
    whole = WeightedTally.merge(groups)
    assert len(few.candidates) <= len(whole.candidates)
    question = partial(WeightedQuantiles, rule.q, method, False, FLOAT, FLOAT)
    with np.errstate(all="ignore"):
        mine, theirs = (
            question()._found(each, tally) for each, tally in ((found, few), (brackets, whole))
        )
    np.testing.assert_array_equal(mine, theirs)
    ends = [InOrder.of(each, tally) for each, tally in ((found, few), (brackets, whole))]
    values = np.unique(np.concatenate([chunk[0] for chunk in chunks]))[[0, -1]]
    values = np.unique(values)
    mine, theirs = (order.at(values) for order in ends)
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.few(8)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [*WEIGHTS])
def test_brackets_are_narrow(name: str, method: str) -> None:
    """By what the chunks' own pivots leave open, and by two in `most` for each merge and end."""
    n_chunks, n_pivots, most, every = 64, 100, 500, 4
    weights = WEIGHTS[name](32_000)
    values = normal(len(weights))
    chunks = [(values[i::n_chunks], weights[i::n_chunks]) for i in range(n_chunks)]
    chunks = [(each[own > 0], as_kernels(own[own > 0])) for each, own in chunks]
    question = WeightedQuantiles((0.1, 0.5), method, False, FLOAT, FLOAT)
    cuts: list[Cuts] = [cuts_of([chunk], n_pivots) for chunk in chunks]
    plain, coarse = (
        question.bracket(each) for each in (merged(cuts), in_levels(cuts, every, most))
    )
    tallies = [tally_of([chunk], coarse) for chunk in chunks]
    whole = WeightedTally.merge(tallies)
    n = whole.n_valid
    n_plain = len(tally_of(merged_chunks(chunks), plain).candidates)
    n_ends = 2 * (1 + (method == "linear"))
    assert len(whole.candidates) <= n_plain + n * n_ends * 2 * 2 * 3 / most
    brackets, few = narrowed(question, coarse, tallies, every=every, most=most, rounds=2)
    assert len(few.candidates) <= max(len(whole.candidates) / 20, 64)
    with np.errstate(all="ignore"):
        found = question.look(brackets, few)
        right = [weighted(*merged_chunks(chunks)[0], q, method, FLOAT) for q in (0.1, 0.5)]
    np.testing.assert_array_equal(found, right)


def as_kernels(weights: NDArray[Any]) -> NDArray[Any]:
    """Weights of a dtype that kernels take."""
    return weights if weights.dtype == np.int64 else weights.astype(np.float64)


def merged(cuts: list[Cuts]) -> Cuts:
    return type(cuts[0]).merge(cuts)


def merged_chunks(chunks: list[Chunk]) -> list[Chunk]:
    values, weights = (np.concatenate(each) for each in zip(*chunks, strict=True))
    return [(values, weights)]


def test_few_pivots_are_left() -> None:
    values, weights = make("normal", "f8", 10_000), np.exp(3 * normal(10_000))
    cuts = cuts_of([(values, weights)], 5_000)
    found = coarsened(cuts, 100)
    assert 50 <= len(found.pivots) <= 100 + 2 * (14 + 62) + 2
    assert len(coarsened(cuts, 10**6).pivots) == len(cuts.pivots)


def test_chunks_without_elements() -> None:
    (none, some) = (
        cut_up(np.arange(5.0), np.ones(5), "irregular")[:1],
        [(np.arange(5.0), np.ones(5))],
    )
    assert not len(none[0][0])
    cuts: list[Cuts] = [cuts_of(none, 3), cuts_of(none, 3), cuts_of(some, 3)]
    found = in_levels(cuts, 2, 4)
    assert found.n_valid.sum() == 5
    empty: NDArray[Any] = in_levels(cuts[:2], 2, 4).pivots
    assert not len(empty)
