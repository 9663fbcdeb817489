"""Cuts of elements that weigh, merged and thinned level by level: what they bound, and how little
they leave open."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.cached import tally_by
from dask_gpuselect.maths.coarse import cuts_of_tally, merged_coarsely
from dask_gpuselect.maths.cuts import Brackets, Cuts
from dask_gpuselect.maths.weight_boxes import bracket_from_weights, narrower_weighted_box
from dask_gpuselect.maths.weight_finish import InOrder
from dask_gpuselect.maths.weights import WeightedTally
from dask_gpuselect.quantiles.weighted import WeightedQuantiles
from tests.data import normal
from tests.kernels.test_weighing import WEIGHTS
from tests.maths.test_weights import (
    METHODS,
    Chunk,
    chunks_,
    cuts_of,
    tally_of,
)
from tests.oracle import weighted

FLOAT = np.dtype(np.float64)


def in_levels(parts: list[Cuts], every: int, most: int) -> Cuts:
    """The root of a tree of merges."""
    some: list[Cuts] = [
        merged_coarsely(parts[i : i + every], most) for i in range(0, len(parts), every)
    ]
    return some[0] if len(some) == 1 else in_levels(some, every, most)


levels = {"n_pivots": st.integers(1, 9), "every": st.integers(2, 4), "most": st.integers(2, 12)}


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
    mine, theirs = (order.at(values).integers(-34) for order in ends)
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.few(5)
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
        found = question.resolve(brackets, few)
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
