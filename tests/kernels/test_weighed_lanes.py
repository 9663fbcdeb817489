"""Kernels of sorted lanes and of what lies at their ends, with weights and without, beside the
mathematics, which reckons in integers."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.kernels.cpu import lane_ends as ends_by_kernels
from dask_gpuselect.kernels.cpu import weighed_lanes
from dask_gpuselect.maths import lane_ends, lane_weights
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.lane_ends import LaneEnds
from dask_gpuselect.maths.lane_weights import METHODS, WantedQuantiles
from dask_gpuselect.maths.sorted_lanes import SortedLanes
from dask_gpuselect.quiet import quiet

LANES = 12
Q = (0.5, 0.1, 1 / 3, 0.0, 1.0, 1e-300, 1 - 2.0**-53)
MANY = tuple(np.linspace(0, 1, 21))
rng = np.random.default_rng(49)

VALUES = {
    "normal": lambda n: rng.standard_normal((LANES, n)),
    "few integers": lambda n: rng.integers(-3, 4, (LANES, n)),
    "eighths": lambda n: rng.integers(-100, 100, (LANES, n)) / 8,
    "all magnitudes": lambda n: np.exp(20 * rng.standard_normal((LANES, n))),
    "close together": lambda n: rng.standard_normal((LANES, n)) * 1e-9 + 1e6,
    "tiny": lambda n: rng.standard_normal((LANES, n)) * 1e-310,
    "huge": lambda n: rng.standard_normal((LANES, n)) * 1e300,
    "not finite": lambda n: rng.choice([np.inf, -np.inf, np.nan, -0.0, 1.0], (LANES, n)),
    "beyond 2**53": lambda n: rng.integers(0, 9, (LANES, n)) + 2.0**53,
}
WEIGHTS = {
    "none": None,
    "equal": lambda n: np.ones((LANES, n)),
    "tenths": lambda n: np.full((LANES, n), 0.1),
    "small integers": lambda n: rng.integers(0, 4, (LANES, n)).astype("f8"),
    "float32": lambda n: rng.random((LANES, n), dtype="f4").astype("f8"),
    "float64": lambda n: rng.random((LANES, n)),
    "all magnitudes": lambda n: np.exp(30 * rng.standard_normal((LANES, n))),
    "tiny": lambda n: rng.random((LANES, n)) * 1e-310,
    "one heavy": lambda n: np.where(np.arange(n) == 1, 1e6, 0.1) * np.ones((LANES, 1)),
    "beyond 2**53": lambda n: rng.integers(0, 2**62, (LANES, n)) + 1,
}


def values_of(name: str, n: int, dtype: str) -> NDArray[Any]:
    values = np.asarray(VALUES[name](n))
    if dtype[0] != "f":
        limits = np.iinfo(dtype)
        values = np.clip(
            np.nan_to_num(values), max(limits.min, -(2.0**60)), min(limits.max, 2.0**60)
        )
    with quiet():
        return values.astype(dtype)


def drawn(values: str, weights: str, n: int, dtype: str) -> tuple[Any, ...]:
    """Values, weights and a mask."""
    make = WEIGHTS[weights]
    return values_of(values, n, dtype), make and make(n), rng.random((LANES, n)) < 0.8


def numbers(value: Any) -> Any:
    return value.rounded() if isinstance(value, ExactSums) else value


SIZES = [1, 2, 7, 33]
DTYPES = ["f8", "f4", "i8", "f4", "u1"]


@pytest.mark.few(1)
@pytest.mark.parametrize("method", METHODS[::-1])
@pytest.mark.parametrize("weights", [name for name in WEIGHTS if name != "none"])
def test_what_answers_is_what_integers_say(weights: str, method: str) -> None:
    for name, dtype in zip(VALUES, itertools.cycle(DTYPES)):
        for n in SIZES:
            lanes = SortedLanes.weighed(*drawn(name, weights, n, dtype))
            for answer in ("f8", "f4", "f2") if dtype == "f4" else ("f8",):
                wanted = WantedQuantiles(Q, method, np.dtype(answer))
                with quiet():
                    try:
                        expected = lane_weights.pick(lanes, wanted)
                    except ValueError as error:
                        with pytest.raises(ValueError, match=str(error)):
                            weighed_lanes.pick(lanes, wanted)
                        continue
                    actual = weighed_lanes.pick(lanes, wanted)
                some = lanes.n_valid > 0
                np.testing.assert_array_equal(actual.lower[some], expected.lower[some])
                np.testing.assert_array_equal(actual.upper[some], expected.upper[some])


@pytest.mark.few(1)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_ends_are_what_integers_say(weights: str) -> None:
    for name, dtype in zip(VALUES, itertools.cycle(DTYPES)):
        for n in SIZES:
            values, own, keeps = drawn(name, weights, n, dtype)
            lanes = (
                SortedLanes.of_rows(np.sort(values, axis=1))
                if own is None
                else SortedLanes.weighed(values, own, keeps)
            )
            middle = lanes.values[:, 0].astype("f8")
            bounds = middle + rng.random((2, LANES)) * [[-1], [1]]
            bounds[0, 0] = bounds[1, 1] = np.nan
            about: Any = lanes, bounds
            for most in (0, 2):
                with quiet():
                    expected = lane_ends.ends_of_sorted(*about, most)
                    for are_whole in (False, True):
                        kernel = ends_by_kernels.ends_of_sorted
                        assert_same(kernel(*about, most, are_whole=are_whole), expected, most)


def assert_same(actual: LaneEnds, expected: LaneEnds, most: int) -> None:
    for each in fields(LaneEnds):
        mine, theirs = (getattr(ends, each.name) for ends in (actual, expected))
        if each.name == "moments":
            np.testing.assert_array_equal(mine.mean_and_std(), theirs.mean_and_std())
        elif not each.name.startswith("beyond"):
            np.testing.assert_array_equal(numbers(mine), numbers(theirs))
        else:
            np.testing.assert_array_equal(numbers(mine.measure), numbers(theirs.measure))
            if theirs.weights is None:
                for one, other in zip(mine.repeated(most), theirs.repeated(most), strict=True):
                    np.testing.assert_array_equal(one, other)
                continue
            for column in ("sizes", "elements", "counts", "weights"):
                one, other = (numbers(getattr(side, column)) for side in (mine, theirs))
                np.testing.assert_array_equal(one, other)
