"""Weighted quantiles of tables of lanes, against fractions: of whole lanes, and in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.maths import lane_weight_cuts
from dask_gpuselect.maths.cuts import ChunksChangedError
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.lane_cuts import LaneBrackets, join, lanes_between, merge_tallies
from dask_gpuselect.maths.lane_weight_cuts import (
    cuts_of_sorted,
    merge,
    narrowed,
    tally_of_sorted,
)
from dask_gpuselect.maths.lane_weights import WantedQuantiles
from dask_gpuselect.maths.sorted_lanes import SortedLanes
from tests.data import uniform
from tests.oracle import weighted

LANES = 12
FLOAT = np.dtype(np.float64)
rng = np.random.default_rng(7)


def drawn(n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return rng.normal(size=(LANES, n)), uniform(LANES * n).reshape(LANES, n) + 1e-9


# --- Exact sums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [[[-5], [1 << 200]], [[1 << 99], [-(1 << 70), 3], [-1]]])
def test_tables_of_numbers_of_other_sizes_are_joined(numbers: list[list[int]]) -> None:
    joined = ExactSums.joined([ExactSums.of_integers(each, -2) for each in numbers])
    assert list(joined.integers(-2)) == sum(numbers, [])


# --- Lanes in parts -------------------------------------------------------------------------------


def parts_of(x: NDArray[Any], w: NDArray[Any], *cuts: int) -> list[SortedLanes]:
    ends = [0, *cuts, x.shape[1]]
    pairs = zip(ends[:-1], ends[1:], strict=True)
    return [SortedLanes.weighed(x[:, a:b], w[:, a:b]) for a, b in pairs]


def in_parts(
    parts: list[SortedLanes], wanted: WantedQuantiles, widths: tuple[int, ...]
) -> tuple[Any, Any]:
    """The answers by passes of these widths, and the last tally; the tables in two pieces."""
    pieces = (0, 5), (5, LANES)
    brackets: LaneBrackets | None = None
    for m in widths:
        cuts = [
            join(
                [
                    cuts_of_sorted(
                        lanes_between(part, *i), brackets and lanes_between(brackets, *i), m
                    )
                    for i in pieces
                ]
            )
            for part in parts
        ]
        brackets = narrowed([merge(cuts[:2], m), *cuts[2:]], brackets, wanted)
    assert brackets is not None
    tallies = [
        join(
            [tally_of_sorted(lanes_between(part, *i), lanes_between(brackets, *i)) for i in pieces]
        )
        for part in parts
    ]
    tally = merge_tallies([merge_tallies(tallies[:2]), *tallies[2:]])
    return lane_weight_cuts.answers(tally, brackets), tally


def test_windows_are_not_gathered() -> None:
    """Half of the weight on one element makes windows wide: what is inside is summed."""
    x, w = drawn(1000)
    w[:, 1] = w.sum(axis=1)
    wanted = WantedQuantiles((0.5,), "linear", FLOAT)
    found, tally = in_parts(parts_of(x, w, 400), wanted, (40,))
    assert tally.n_inside.max() < 250
    assert not tally.product.is_zero.all()
    for lane in range(LANES):
        assert found.lower[lane, 0] == weighted(x[lane], w[lane], 0.5, "linear", FLOAT)


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
