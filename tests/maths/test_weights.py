"""The mathematics of weighted quantiles: brackets that hold, and exact answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.reference import weighing
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError
from dask_gpuselect.maths.expected import Expected
from dask_gpuselect.maths.ranks import ranks
from dask_gpuselect.maths.weight_brackets import (
    WeightEnvelope,
    common_unit,
    find_share_brackets,
    find_window_brackets,
)
from dask_gpuselect.maths.weight_finish import (
    InOrder,
    quotient,
    reached_and_passed,
    shares,
    window_means,
)
from dask_gpuselect.maths.weight_guess import WeightedSample, guess_share_brackets
from dask_gpuselect.maths.weights import (
    POINT,
    RunningSums,
    WeightedBrackets,
    WeightedCuts,
    WeightedTally,
    exact_products,
    exact_sums,
    exact_sums_of_runs,
    rounded_sums,
)
from tests.data import FLOATS, INTEGER_DTYPES, INTEGERS, make, normal, uniform
from tests.kernels.test_weighing import UNIT, WEIGHTS, exactly
from tests.oracle import halfway, nearest, rounded, weighted

Chunk = tuple[NDArray[Any], NDArray[Any]]
QUANTILES = (0.0, 5e-324, 0.001, 0.1, 0.25, 1 / 3, 0.5, 0.75, 1 - 2**-53, 1.0)
METHODS = ("inverted_cdf", "averaged_inverted_cdf", "linear")
FLOAT = np.dtype(np.float64)


def cuts_of(chunks: Sequence[Chunk], n_pivots: int) -> WeightedCuts:
    return WeightedCuts.merge([weighing.cuts(*chunk, n_pivots) for chunk in chunks])


def tally_of(chunks: Sequence[Chunk], brackets: Brackets) -> WeightedTally:
    """As load 2 finds it, each chunk checked against what load 1 proves."""
    found = []
    for values, weights in chunks:
        chunk = Accompanied(values, None, weights)
        found.append(kernels.tally(chunk, values.dtype, brackets, len(values)))
    return WeightedTally.merge(found)


def answers(
    chunks: Sequence[Chunk], q: Sequence[float], method: str, n_pivots: int, dtype: Any = FLOAT
) -> NDArray[Any]:
    cuts = cuts_of(chunks, n_pivots)
    if method == "linear":
        windows = find_window_brackets(cuts, q)
        return window_means(InOrder.of(windows, checked(chunks, cuts, windows)), q, dtype)
    with_next = method != "inverted_cdf"
    brackets = find_share_brackets(cuts, q, with_next=with_next)
    tally = checked(chunks, cuts, brackets)
    lower, upper = shares(InOrder.of(brackets, tally), q, with_next=with_next)
    assert (lower <= upper).all()
    differs = lower != upper
    pairs = zip(lower[differs].tolist(), upper[differs].tolist(), strict=True)
    mixed = [halfway(a, b) for a, b in pairs]
    found = lower.astype(dtype)
    found[differs] = mixed
    return found


def checked(chunks: Sequence[Chunk], cuts: WeightedCuts, brackets: Brackets) -> WeightedTally:
    """The tally of all chunks, if each is what the cuts say."""
    expected = Expected.of(cuts, brackets)
    for i, chunk in enumerate(chunks):
        expected.check(i, tally_of([chunk], brackets), brackets, str(i))
    return tally_of(chunks, brackets)


def check(
    chunks: Sequence[Chunk], q: Sequence[float], method: str, n_pivots: int, dtype: Any = FLOAT
) -> None:
    """Assert that the answers are those of fractions."""
    values, weights = (np.concatenate(each) for each in zip(*chunks, strict=True))
    with np.errstate(all="ignore"):
        found = answers(chunks, q, method, n_pivots, dtype)
        expected = np.array([weighted(values, weights, each, method, dtype) for each in q], dtype)
    np.testing.assert_array_equal(found, expected)


def cut_up(values: NDArray[Any], weights: NDArray[Any], how: str) -> list[Chunk]:
    """Elements of positive weight in chunks, some of them empty."""
    takes = weights > 0
    values, weights = values[takes], weights[takes]
    order = np.argsort(values if how == "sorted" else weights if how == "by weight" else values * 0)
    places = [0, 0, 3, 4, len(values) // 3, len(values) // 2]
    pieces = np.split(order, places if how == "irregular" else 5)
    return [(values[piece], weights[piece]) for piece in pieces if how != "one"] or [
        (values, weights)
    ]


SPLITS = ("as it comes", "sorted", "by weight", "irregular", "one")


def whole_multiple(n: int) -> int:
    return n - n % 5


# --- Answers are those of fractions ---------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", SPLITS)
@pytest.mark.parametrize("name", WEIGHTS)
def test_any_weights(name: str, how: str, method: str) -> None:
    weights = WEIGHTS[name](200)
    weights = weights[: whole_multiple(len(weights))]
    values = make("normal", "f8", 200)
    keep = np.flatnonzero(weights > 0)
    keep = keep[: whole_multiple(len(keep))]
    weights = np.asarray(weights[keep], weights.dtype if weights.dtype == np.int64 else np.float64)
    check(cut_up(values[keep], weights, how), QUANTILES, method, 9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", FLOATS)
def test_any_floats(name: str, method: str) -> None:
    values, weights = make(name, "f8", 150), WEIGHTS["lognormal"](150)
    for how in ("as it comes", "by weight"):
        with np.errstate(all="ignore"):
            check(cut_up(values, weights, how), QUANTILES, method, 7)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
@pytest.mark.parametrize("name", INTEGERS)
def test_any_integers(name: str, dtype: str, method: str) -> None:
    values = INTEGERS[name](150, dtype)
    if method == "averaged_inverted_cdf":
        values = values // 2**12 if np.dtype(dtype).itemsize == 8 else values
    check([(values[:50], uniform(50) + 1), (values[50:], uniform(100) + 1)], QUANTILES, method, 7)


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_windows_are_rounded_once(dtype: str) -> None:
    values = normal(400).astype(dtype).astype("f4")
    chunks = [(values[:150], uniform(150) + 0.01), (values[150:], uniform(250) + 0.01)]
    check(chunks, tuple(np.linspace(0, 1, 40)), "linear", 8, np.dtype(dtype))


few_values = st.sampled_from([0.0, -0.0, 1.0, 1 + 2**-52, 5e-324, 1e308, -1e308, np.inf, -np.inf])
few_weights = st.sampled_from([0.1, 1.0, 2.0, 3.0, 0.5, 5e-324, 1e-300, 1.7e308, 1 - 2**-53])
some_floats = few_values | st.floats(allow_nan=False)
some_weights = few_weights | st.floats(min_value=5e-324, max_value=1e308)
chunks_ = st.lists(
    st.integers(0, 30).flatmap(
        lambda n: st.tuples(
            arrays(np.float64, n, elements=some_floats),
            arrays(np.float64, n, elements=some_weights),
        )
    ),
    min_size=1,
    max_size=5,
).filter(lambda chunks: sum(len(values) for values, _ in chunks) > 0)


@given(
    chunks=chunks_,
    n_pivots=st.integers(1, 9),
    q=st.lists(st.floats(0, 1) | st.sampled_from(QUANTILES), min_size=1, max_size=4),
    method=st.sampled_from(METHODS),
)
def test_answers_for_any_elements_and_weights(
    chunks: list[Chunk], n_pivots: int, q: list[float], method: str
) -> None:
    check(chunks, q, method, n_pivots)


@given(chunks=chunks_, n_pivots=st.integers(1, 9))
def test_bounds_hold_at_every_pivot(chunks: list[Chunk], n_pivots: int) -> None:
    cuts = cuts_of(chunks, n_pivots)
    envelope = WeightEnvelope.of(cuts)
    values, weights = (np.concatenate(each) for each in zip(*chunks, strict=True))
    exact = np.array(exactly(weights), object)
    total = exact.sum()
    assert 0 < envelope.most < 2**62 + len(chunks)
    unit = Fraction(2) ** common_unit(cuts)
    assert envelope.least * unit <= total <= envelope.most * unit
    low, high = (square * unit**2 for square in envelope.squares)
    assert low <= (exact * exact).sum() <= high
    for value, lower, upper in zip(
        envelope.counts.values, envelope.lower, envelope.upper, strict=True
    ):
        upto = exact[values <= value].sum()
        assert int(lower) * unit <= upto <= int(upper) * unit


# --- Few candidates -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["equal", "uniform", "lognormal", "one heavy"])
@pytest.mark.parametrize("method", METHODS)
def test_candidates_are_few(name: str, method: str) -> None:
    n, n_chunks, n_pivots = 20_000, 8, 50
    values, weights = normal(n), WEIGHTS[name](n)
    chunks = [(values[i::n_chunks], weights[i::n_chunks]) for i in range(n_chunks)]
    cuts = cuts_of(chunks, n_pivots)
    brackets = (
        find_window_brackets(cuts, (0.3,))
        if method == "linear"
        else find_share_brackets(cuts, (0.3,), with_next=method != "inverted_cdf")
    )
    n_brackets = 1 + (method == "linear")
    assert len(tally_of(chunks, brackets).candidates) <= 2.2 * n_brackets * n / n_pivots


def test_one_weight_above_all_others_leaves_few_candidates() -> None:
    """The window is the difference of two sums that agree in their first 12 digits."""
    values, weights = normal(20_000), np.ones(20_000)
    weights[4000] = 1e12
    chunks = [(values[i::8], weights[i::8]) for i in range(8)]
    windows = find_window_brackets(cuts_of(chunks, 50), (0.25, 0.75))
    assert len(tally_of(chunks, windows).candidates) <= 4 * 2.2 * 20_000 / 50
    check(chunks, (0.25, 0.75), "linear", 50)


def test_ties_that_weigh_next_to_nothing_are_counted() -> None:
    light = np.repeat(np.arange(5.0), 2000) / 10
    heavy = np.linspace(-1, 1, 10_000)
    chunks = [(light, np.full(10_000, 1e-20)), (heavy, np.ones(10_000))]
    cuts = cuts_of(chunks, 20)
    brackets = find_share_brackets(cuts, (0.5, 0.6), with_next=False)
    assert len(tally_of(chunks, brackets).candidates) < 2500
    check(chunks, (0.5, 0.6), "inverted_cdf", 20)


def test_a_window_sums_what_is_between_its_ends() -> None:
    values, weights = normal(6000), np.ones(6000)
    weights[17] = 4000  # so the window has more than a third of all weight
    chunks = [(values[i::3], weights[i::3]) for i in range(3)]
    cuts = cuts_of(chunks, 60)
    brackets = find_window_brackets(cuts, (0.1, 0.2, 0.8))
    assert brackets.summed.any()
    assert not (brackets.summed & brackets.wanted).any()
    assert len(tally_of(chunks, brackets).candidates) < 2500
    check(chunks, (0.1, 0.2, 0.8), "linear", 60)


def test_very_many_quantiles() -> None:
    values, weights = normal(400), WEIGHTS["lognormal"](400)
    q = tuple(np.linspace(0, 1, 101))
    for method in METHODS:
        check([(values[i::4], weights[i::4]) for i in range(4)], q, method, 30)


# --- What is proven -------------------------------------------------------------------------------


def test_a_weight_that_left_its_bracket_is_noticed() -> None:
    values, weights = normal(3000), uniform(3000) + 1
    cuts = cuts_of([(values, weights)], 30)
    for q in (0.2, 0.7):
        brackets = find_share_brackets(cuts, (q,), with_next=False)
        heavier = np.where(values < 0, 5 * weights, weights)
        tally = tally_of([(values, heavier)], brackets)
        with pytest.raises(ChunksChangedError, match="the wanted weights left the brackets"):
            shares(InOrder.of(brackets, tally), (q,), with_next=False)
        windows = find_window_brackets(cuts, (q,))
        tally = tally_of([(values, heavier)], windows)
        with pytest.raises(ChunksChangedError, match="the wanted weights left the brackets"):
            window_means(InOrder.of(windows, tally), (q,), FLOAT)


def test_a_window_that_is_not_summed_is_noticed() -> None:
    values, weights = normal(1000), np.ones(1000)
    weights[5] = 600
    windows = find_window_brackets(cuts_of([(values, weights)], 40), (0.1,))
    assert windows.summed.any()
    unsummed = WeightedBrackets(windows.ends, windows.wanted, np.zeros_like(windows.summed))
    tally = tally_of([(values, weights)], unsummed)
    with pytest.raises(ChunksChangedError, match="left the brackets"):
        window_means(InOrder.of(unsummed, tally), (0.1,), FLOAT)


# --- Parts ----------------------------------------------------------------------------------------


def test_parts_of_a_tally_are_added_up() -> None:
    values, weights = normal(900), WEIGHTS["lognormal"](900)
    brackets = Brackets(np.array([-0.5, 0.5]), np.array([False, True, False]))
    parts = [tally_of([(values[i::3], weights[i::3])], brackets) for i in range(3)]
    merged = WeightedTally.merge([WeightedTally.merge(parts[:2]), parts[2]])
    exact = np.array(exactly(weights), object) * UNIT
    assert merged.weight == exact.sum()
    assert merged.weight_below.tolist() == [exact[values < end].sum() for end in brackets.ends]
    assert merged.n_valid == 900
    inside = (values > -0.5) & (values < 0.5)
    pairs = zip(merged.candidates.on_host().tolist(), merged.weights.tolist(), strict=True)
    assert sorted(pairs) == sorted(
        zip(values[inside].tolist(), weights[inside].tolist(), strict=True)
    )


def test_integers_beyond_2_to_the_53_stay_exact_beside_smaller_ones() -> None:
    brackets = Brackets(np.empty(0), np.ones(1, np.bool_))
    chunks = [(np.zeros(1), np.array([2**62 + 1])), (np.ones(1), np.array([3.0]))]
    merged = tally_of(chunks, brackets)
    assert merged.weights.tolist() == [2**62 + 1, 3]
    assert merged.weight == (2**62 + 4) * UNIT


@given(arrays(np.float64, 40, elements=some_weights), st.integers(1, 6))
def test_sums_of_groups_are_exact(weights: NDArray[np.float64], n_groups: int) -> None:
    values = weights[::-1] * np.where(np.arange(40) % 2, -1, 1)
    group = np.arange(40) % n_groups
    sums = exact_sums(weights, group, n_groups)
    products = exact_products(values, weights, group, n_groups)
    for i in range(n_groups):
        w, x = (exactly(each[group == i]) for each in (weights, values))
        assert sums[i] == sum(w) * UNIT
        assert products[i] == sum(a * b for a, b in zip(w, x, strict=True)) * UNIT**2


# In one unit all of the digits are a float64, or not; and scaled down the least would be lost.
RUNS = {
    "alike": uniform(1500).astype(np.float32).astype(np.float64),
    "float64": uniform(1500),
    "scaled down": np.tile([1e20, 3, 5e-324, 1e-300], 375),
    "whole": np.arange(2**62, 2**62 + 1500),
    "nothing": np.zeros(1500),
    "largest": np.full(1500, 1.7e308),
}


@pytest.mark.parametrize("n", [0, 1, 512, 1025, 1500])
@pytest.mark.parametrize("name", RUNS)
def test_sums_of_runs_and_within_them_are_exact(name: str, n: int) -> None:
    weights = RUNS[name][:n]
    whole = [int(each * UNIT) for each in exactly(weights)]
    sums = [sum(whole[i : i + 512]) for i in range(0, n, 512)]
    assert exact_sums_of_runs(weights, 512).tolist() == sums
    assert exact_sums(weights, np.arange(n) // 512, len(sums)).tolist() == sums
    assert list(RunningSums.of(weights, 7)) == [*accumulate(whole, initial=7)]


def test_a_bracket_of_few_stretches_has_two_ends() -> None:
    """Neighbouring stretches are tied by their values, not by being looked at twice."""
    last, share = np.arange(14.0), np.ones(14)
    brackets = guess_share_brackets(WeightedSample(last, share, share / 100), [0.5], [0.5])
    assert len(brackets.ends) == 2
    assert brackets.wanted.tolist() == [False, True, False]
    last[4:8] = 5
    brackets = guess_share_brackets(WeightedSample(last, share, share / 100), [0.5], [0.5])
    assert 5 in brackets.ends


def test_every_element_is_found_by_what_weighs_before_it() -> None:
    values, weights = np.sort(normal(1500)), WEIGHTS["every magnitude"](1500)
    everything = Brackets(np.empty(0), np.ones(1, np.bool_))
    order = InOrder.of(everything, tally_of([(values, weights)], everything))
    upto = [int(each) for each in accumulate(w * UNIT for w in exactly(weights))]
    some = [0, 1, 511, 512, 513, 1023, 1024, 1499]
    found = order.reaching([upto[i] for i in some])
    assert [each.value for each in found] == values[some].tolist()
    assert [each.upto for each in found] == [upto[i] for i in some]
    assert [each.before for each in found] == [0, *upto][:1] + [upto[i - 1] for i in some[1:]]
    behind = order.reaching([upto[i] + 1 for i in some[:-1]])
    assert [each.value for each in behind] == values[[i + 1 for i in some[:-1]]].tolist()


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
    found = ranks(n, q, "averaged_inverted_cdf")
    assert (found.lower + 1, found.upper + 1) == (reached, passed)


@given(st.integers(-(2**80), 2**80), st.integers(1, 2**60))
def test_quotients_are_rounded_once(numerator: int, denominator: int) -> None:
    for name in ("f8", "f4"):
        dtype = np.dtype(name)
        found = quotient(numerator, denominator, dtype)
        assert found == nearest(Fraction(numerator, denominator), dtype)


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
        [(1 << 80) + 1, 1 << 60],  # subnormal
        [(2**54 - 1) << POINT + 970, 1 << POINT + 1030],  # rounded to the largest, or beyond
        [1, 1 << 2 * POINT],
        [int(x) << POINT - 40 for x in np.random.default_rng(0).integers(0, 2**62, 50)],
    ],
)
def test_sums_of_weights_are_rounded_once(weights: list[int]) -> None:
    expected = []
    for weight in weights:
        try:
            expected.append(weight / (1 << POINT))
        except OverflowError:
            expected.append(math.inf)
    np.testing.assert_array_equal(rounded_sums(weights), np.array(expected, np.float64))
