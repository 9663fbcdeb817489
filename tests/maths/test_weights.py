"""The mathematics of weighted quantiles: brackets that hold, and exact answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.reference import weighing
from dask_gpuselect.maths import exact_sums
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError, Cuts, Tally
from dask_gpuselect.maths.exact_sums import DIGIT, ExactSums, needs, quotients
from dask_gpuselect.maths.expected import Expected
from dask_gpuselect.maths.host_runs import gathered
from dask_gpuselect.maths.ranks import ranks
from dask_gpuselect.maths.weight_brackets import find_weighted_brackets
from dask_gpuselect.maths.weight_finish import answers
from dask_gpuselect.maths.weights import POINT, WEIGHT_UNIT
from tests.data import normal, uniform
from tests.kernels.test_weighing import UNIT
from tests.oracle import nearest, rounded

Chunk = tuple[NDArray[Any], NDArray[Any]]
METHODS = ("inverted_cdf", "averaged_inverted_cdf", "linear")
FLOAT = np.dtype(np.float64)


def cuts_of(chunks: Sequence[Chunk], n_pivots: int) -> Cuts:
    return Cuts.merge([weighing.cuts(*chunk, n_pivots) for chunk in chunks])


def tally_of(chunks: Sequence[Chunk], brackets: Brackets) -> Tally:
    """As load 2 finds it, each chunk checked against what load 1 proves."""
    tallies = []
    for values, weights in chunks:
        chunk = Accompanied(values, None, weights)
        tallies.append(kernels.tally(chunk, values.dtype, brackets, len(values)))
    return Tally.merge(tallies)


# --- What is proven -------------------------------------------------------------------------------


def test_a_weight_that_left_its_bracket_is_noticed() -> None:
    values, weights = normal(3000), uniform(3000) + 1
    cuts = cuts_of([(values, weights)], 30)
    heavier = np.where(values < 0, 5 * weights, weights)
    for q, method in itertools.product((0.2, 0.7), ("inverted_cdf", "linear")):
        brackets = find_weighted_brackets(cuts, (q,), method)
        tally = tally_of([(values, heavier)], brackets)
        with pytest.raises(ChunksChangedError, match="wanted elements are outside their brackets"):
            answers(gathered(brackets, tally), np.arange(1), (q,), method, FLOAT)


def test_a_chunk_whose_weight_moves_to_a_pivot_is_named() -> None:
    """The weight below each end of a bracket stays as it is."""
    values, weights = np.arange(100.0), np.ones(100)
    cuts = cuts_of([(values, weights)], 10)
    brackets = find_weighted_brackets(cuts, (0.5,), "inverted_cdf")
    expected, (low, high) = Expected.of(cuts, brackets), brackets.ends.astype(int)
    expected.check(0, tally_of([(values, weights)], brackets), brackets, "(7,)")
    weights[low] += 0.5 * (high - low - 1)
    weights[low + 1 : high] /= 2
    with pytest.raises(ChunksChangedError, match=r"chunk \(7,\) had other weights"):
        expected.check(0, tally_of([(values, weights)], brackets), brackets, "(7,)")


def test_a_window_that_is_not_summed_is_noticed() -> None:
    values, weights = normal(1000), np.ones(1000)
    weights[5] = 600
    windows = find_weighted_brackets(cuts_of([(values, weights)], 40), (0.1,), "linear")
    assert np.any(windows.summed)
    unsummed = replace(windows, summed=np.zeros_like(windows.wanted))
    tally = tally_of([(values, weights)], unsummed)
    with pytest.raises(ChunksChangedError, match="outside their brackets"):
        answers(gathered(unsummed, tally), np.arange(1), (0.1,), "linear", FLOAT)


# --- Parts ----------------------------------------------------------------------------------------


def test_integers_beyond_2_to_the_53_stay_exact_beside_smaller_ones() -> None:
    brackets = Brackets(np.empty(0), np.ones(1, np.bool_))
    chunks = [(np.zeros(1), np.array([2**62 + 1])), (np.ones(1), np.array([3.0]))]
    merged = tally_of(chunks, brackets)
    assert merged.weights.tolist() == [2**62 + 1, 3]
    assert merged.weight.integers(WEIGHT_UNIT) == [(2**62 + 4) * UNIT]


def reached_and_passed(q: float, weight: int) -> tuple[int, int]:
    """The least whole sums that reach the share q of a weight, and that exceed it."""
    both = needs(ExactSums.of_integers([weight], 0), np.array([q]), 0)
    reached, passed = (sums.integers(0).item() for sums in both)
    return reached, passed


@given(st.floats(0, 1), st.integers(1, 2**70), st.integers(0, 60))
def test_shares_and_sums_are_compared_to_53_bits(q: float, weight: int, shift: int) -> None:
    weight <<= shift
    share = rounded(Fraction(q) * weight)
    reached, passed = reached_and_passed(q, weight)
    assert 1 <= reached <= passed <= weight
    if 0 < q < 1:
        assert rounded(Fraction(reached)) >= share or reached == weight
        assert rounded(Fraction(reached - 1)) < share or reached == 1
        assert rounded(Fraction(passed)) > share or passed == weight
        assert rounded(Fraction(passed - 1)) <= share


@given(st.floats(0, 1) | st.integers(0, 100).map(lambda n: n / 100), st.integers(1, 10**6))
def test_counts_are_reached_as_numpy_has_it(q: float, n: int) -> None:
    reached, passed = reached_and_passed(q, n)
    neighbours = ranks(n, q, "averaged_inverted_cdf")
    assert (neighbours.lower + 1, neighbours.upper + 1) == (reached, passed)


@given(st.integers(-(2**80), 2**80), st.integers(1, 2**60))
def test_quotients_are_rounded_once(numerator: int, denominator: int) -> None:
    for dtype in map(np.dtype, ("f8", "f4")):
        own = [nearest(Fraction(numerator, denominator), dtype)]
        assert quotients([numerator], [denominator], dtype) == own


def test_a_share_that_is_rounded_to_a_power_of_two() -> None:
    weight = 2**54 - 1  # of which half is 2**53, and the next float64 is 2**53 + 2
    assert reached_and_passed(0.5, weight) == (2**53, 2**53 + 2)


@pytest.mark.parametrize(
    "weights",
    [
        [],
        [0, 0],
        [1 << POINT, 3 << POINT - 60, 0],
        [(1 << 53) + 1 << POINT, (1 << 53) + 3 << POINT, 1 << POINT],  # halfway, to even
        [(1 << 80) + (1 << 14), 1 << 60],  # subnormal
        [(2**54 - 1) << POINT + 970, 1 << POINT + 1030],  # rounded to the largest, or beyond
        [1 << 14, 1 << 2 * POINT],
        [(1 << 120) + (1 << 67) + (1 << 14), (1 << 120) + (1 << 67)],  # halfway, and a bit
        [int(x) << POINT - 40 for x in np.random.default_rng(0).integers(0, 2**62, 50)],
    ],
)
def test_sums_of_weights_are_rounded_once(
    weights: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = []
    for weight in weights:
        try:
            expected.append(weight / (1 << POINT))
        except OverflowError:
            expected.append(math.inf)
    for few in (0, 64):  # by NumPy, and by Python's integers
        monkeypatch.setattr(exact_sums, "FEW", few)
        result = ExactSums.of_integers(weights, WEIGHT_UNIT).rounded()
        np.testing.assert_array_equal(result, np.array(expected, np.float64))
    assert DIGIT * WEIGHT_UNIT == -POINT
