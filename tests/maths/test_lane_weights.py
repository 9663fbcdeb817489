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

from dask_gpuselect.maths import lane_weight_cuts
from dask_gpuselect.maths.cuts import ChunksChangedError
from dask_gpuselect.maths.exact_sums import DIGIT, LEAST, ExactSums, Wholes, needs
from dask_gpuselect.maths.lane_weight_cuts import (
    cuts_of_sorted,
    narrowed,
    tally_of_sorted,
)
from dask_gpuselect.maths.lane_weights import WantedQuantiles
from dask_gpuselect.maths.sorted_lanes import SortedLanes
from tests.data import uniform
from tests.oracle import rounded

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
    reached, passed = needs(weight, np.array([q, q]))
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
            assert need.minus(at).is_met[i] == meets(sum(row[:n]), sum(row), q, compare)


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


def test_changed_lanes_are_noticed() -> None:
    x, w = drawn(100)
    wanted = WantedQuantiles((0.5,), "inverted_cdf", FLOAT)
    lanes = SortedLanes.weighed(x, w)
    brackets = narrowed([cuts_of_sorted(lanes, None, 10)], None, wanted)
    x[2] += 10
    with pytest.raises(ChunksChangedError, match="other elements"):
        lane_weight_cuts.answers(tally_of_sorted(SortedLanes.weighed(x, w), brackets), brackets)
    x[2, 0] = np.nan
    changed = SortedLanes.weighed(x, w)
    with pytest.raises(ChunksChangedError, match="100 valid elements in the first read and 99"):
        lane_weight_cuts.answers(tally_of_sorted(changed, brackets), brackets)
    with pytest.raises(ChunksChangedError, match="100 valid"):
        narrowed([cuts_of_sorted(changed, brackets, 10)], brackets, wanted)
