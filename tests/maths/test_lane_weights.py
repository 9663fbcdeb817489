"""Weighted quantiles of tables of lanes, against fractions: of whole lanes, and in parts."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect.maths.cuts import ChunksChangedError
from dask_gpuselect.maths.exact_sums import DIGIT, LEAST, ExactSums, Wholes, needs
from dask_gpuselect.maths.lane_cuts import join, lanes_between, merge_tallies
from dask_gpuselect.maths.lane_weights import WantedQuantiles, answers_of_tally, merge, narrowed
from dask_gpuselect.maths.sorted_lanes import SortedLanes, cuts_of_sorted, tally_of_sorted
from tests.data import uniform
from tests.oracle import rounded, weighted

LANES = 12
FLOAT = np.dtype(np.float64)
rng = np.random.default_rng(7)


def drawn(n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return rng.normal(size=(LANES, n)), uniform(LANES * n).reshape(LANES, n) + 1e-9


# --- Exact sums -----------------------------------------------------------------------------------

weights_ = st.floats(0, 1e300) | st.integers(0, 9).map(float) | st.just(0.1)


@given(st.lists(weights_, min_size=1, max_size=30), st.floats(0, 1), st.integers(0, 30))
def test_sums_are_exact(given: list[float], q: float, n: int) -> None:
    weights = np.array([given, given[::-1]])
    running = Wholes.of(weights).running()
    n = min(n, len(given))
    wholes = [[Fraction(w) for w in row] for row in weights.tolist()]
    at = running.at(np.array([n, n]))
    assert [fraction(at, i) for i in (0, 1)] == [sum(row[:n]) for row in wholes]
    weight = running.at(np.full(2, len(given)))
    reached, passed = needs(weight, np.array([q, q]), running.exponent // DIGIT)
    lane = np.repeat([0, 1], len(given))
    apart = ExactSums.of(lane, 2, weights.ravel(), weights.ravel())
    for squares in (Wholes.of(weights).squares(), apart):
        assert [fraction(squares, i) for i in (0, 1)] == [sum(w * w for w in row) for row in wholes]
    unit = LEAST // DIGIT
    integers = weight.integers(unit)
    assert integers.tolist() == [sum(row) / Fraction(2) ** (DIGIT * unit) for row in wholes]
    again = ExactSums.of_integers(integers, unit)
    for sums in (again, ExactSums.of(lane, 2, weights.ravel())):
        assert [fraction(sums, i) for i in (0, 1)] == [sum(row) for row in wholes]
    for i, row in enumerate(wholes):
        for need, compare in ((reached, operator.ge), (passed, operator.gt)):
            sums = [meets(sum(row[: j + 1]), sum(row), q, compare) for j in range(len(row))]
            assert running.reach(need)[i] == sums.index(True)
            assert (at - need).is_negative[i] != meets(sum(row[:n]), sum(row), q, compare)


def meets(part: Fraction | int, total: Fraction, q: float, compare: Callable[..., bool]) -> bool:
    """Whether a sum reaches a share, or exceeds it; there is nothing beyond the total."""
    share = rounded(Fraction(q) * total)
    return part >= total or (q < 1 and part > 0 and compare(rounded(Fraction(part)), share))


@pytest.mark.parametrize("numbers", [[[-5], [1 << 200]], [[1 << 99], [-(1 << 70), 3], [-1]]])
def test_tables_of_numbers_of_other_sizes_are_joined(numbers: list[list[int]]) -> None:
    joined = ExactSums.joined([ExactSums.of_integers(each, -2) for each in numbers])
    assert list(joined.integers(-2)) == sum(numbers, [])


def fraction(sums: ExactSums, i: int) -> Fraction:
    total = sum(int(digit) << DIGIT * j for j, digit in enumerate(sums.digits[:, i]))
    return Fraction(total) * Fraction(2) ** (DIGIT * sums.first)


# --- Lanes in parts -------------------------------------------------------------------------------


def parts_of(x: NDArray[Any], w: NDArray[Any], *cuts: int) -> list[SortedLanes]:
    ends = [0, *cuts, x.shape[1]]
    pairs = zip(ends[:-1], ends[1:], strict=True)
    return [SortedLanes.weighed(x[:, a:b], w[:, a:b]) for a, b in pairs]


def pieces(lanes: Any) -> list[Any]:
    """Some of the lanes, and the others."""
    return [lanes_between(lanes, *ends) for ends in ((0, 5), (5, LANES))]


def in_parts(parts: list[SortedLanes], wanted: WantedQuantiles, m: int) -> tuple[Any, Any]:
    """The answers by a pass of this width, and its tally; the tables in two pieces."""
    cuts = [join([cuts_of_sorted(each, None, m) for each in pieces(part)]) for part in parts]
    brackets = narrowed([merge(cuts[:2], m), *cuts[2:]], None, wanted)
    known = pieces(brackets)
    tallies = [join([*map(tally_of_sorted, pieces(part), known)]) for part in parts]
    tally = merge_tallies([merge_tallies(tallies[:2]), *tallies[2:]])
    return answers_of_tally(tally, brackets), tally


@pytest.mark.parametrize("few", [0, LANES])
def test_windows_are_not_gathered(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the weight on one element makes windows wide: what is inside is summed. The means are
    computed by pairs of floats, and by integers."""
    monkeypatch.setattr("dask_gpuselect.maths.weight_finish.FEW_WINDOWS", few)
    x, w = drawn(1000)
    w[:, 1] = w.sum(axis=1)
    wanted = WantedQuantiles((0.5,), "linear", FLOAT)
    result, tally = in_parts(parts_of(x, w, 400), wanted, 40)
    assert tally.n_inside.max() < 250
    assert not tally.product.is_zero.all()
    for lane in range(LANES):
        assert result.lower[lane, 0] == weighted(x[lane], w[lane], 0.5, "linear", FLOAT)


def test_changed_lanes_are_noticed() -> None:
    x, w = drawn(100)
    wanted = WantedQuantiles((0.5,), "inverted_cdf", FLOAT)
    brackets = narrowed([cuts_of_sorted(SortedLanes.weighed(x, w), None, 10)], None, wanted)
    x[2] += 10
    with pytest.raises(ChunksChangedError, match="other elements"):
        answers_of_tally(tally_of_sorted(SortedLanes.weighed(x, w), brackets), brackets)
    x[2, 0] = np.nan
    changed = SortedLanes.weighed(x, w)
    with pytest.raises(ChunksChangedError, match="100 valid elements in the first read and 99"):
        answers_of_tally(tally_of_sorted(changed, brackets), brackets)
    with pytest.raises(ChunksChangedError, match="100 valid"):
        narrowed([cuts_of_sorted(changed, brackets, 10)], brackets, wanted)
