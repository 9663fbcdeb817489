"""Kernels of sorted lanes and of what lies at their ends, with weights and without, beside the
mathematics, which reckons in integers."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

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
rng = np.random.default_rng(49)

VALUES = {
    "normal": lambda n: rng.standard_normal((LANES, n)),
    "few integers": lambda n: rng.integers(-3, 4, (LANES, n)),
    "eighths": lambda n: rng.integers(-100, 100, (LANES, n)) / 8,
    "all magnitudes": lambda n: np.exp(20 * rng.standard_normal((LANES, n))),
    "descending but one": lambda n: np.where(
        np.arange(n) == 1, -1e30, 35 * (1 - 2.0**-52 * np.arange(n)) * np.ones((LANES, 1))
    ),
    "close together": lambda n: rng.standard_normal((LANES, n)) * 1e-9 + 1e6,
    "tiny": lambda n: rng.standard_normal((LANES, n)) * rng.choice([1e-310, 1e-115], (LANES, 1)),
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
    "tiny": lambda n: rng.random((LANES, n)) * rng.choice([1e-310, 1e-115], (LANES, 1)),
    "one heavy": lambda n: np.where(np.arange(n) == 1, 1e6, 0.1) * np.ones((LANES, 1)),
    "beyond 2**53": lambda n: rng.integers(0, 2**62, (LANES, n)) + 1,
}


def drawn(name: str, weights: str, n: int, dtype: str) -> tuple[Any, ...]:
    """Values, weights and a mask."""
    values, make = np.asarray(VALUES[name](n)), WEIGHTS[weights]
    if dtype[0] != "f":
        ends = np.clip([np.iinfo(dtype).min, np.iinfo(dtype).max], -(2.0**60), 2.0**60)
        values = np.clip(np.nan_to_num(values), *ends)
    with quiet():
        return values.astype(dtype), make and make(n), rng.random((LANES, n)) < 0.8


def numbers(value: Any) -> Any:
    return value.rounded() if isinstance(value, ExactSums) else value


SIZES = [1, 2, 7, 33]
DTYPES = ["f8", "u1", "i8", "f4", "f8", "f8", "f8", "f4", "f4", "i8"]  # of VALUES


@pytest.mark.few(1)
@pytest.mark.parametrize("method", METHODS[::-1])
@pytest.mark.parametrize("weights", [name for name in WEIGHTS if name != "none"])
def test_what_answers_is_what_integers_say(weights: str, method: str) -> None:
    for name, dtype in zip(VALUES, itertools.cycle(DTYPES)):
        for n in SIZES:
            given = drawn(name, weights, n, dtype)
            lanes = SortedLanes.weighed(*given)
            by_keys = weighed_lanes.sorted_with_weights(*given)
            np.testing.assert_equal(order_of(by_keys), order_of(lanes))
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
                answers = ((x.lower, x.upper) for x in (actual, expected))
                np.testing.assert_equal(*(np.stack(x)[:, lanes.n_valid > 0] for x in answers))


def order_of(lanes: SortedLanes) -> list[Any]:
    """Return the counts, the valid elements, and their weights, those of ties ascending."""
    is_valid = np.arange(lanes.values.shape[1]) < lanes.n_valid[:, None]
    values, own = (np.where(is_valid, x, 0) for x in (lanes.values, lanes.weights))
    own = np.take_along_axis(own, np.lexsort((own, values)), axis=1)
    return [lanes.n_valid, lanes.n_missing, lanes.n_left_out, values, own]


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
                        ends = kernel(*about, most, are_whole=are_whole)
                        np.testing.assert_equal(*(columns_of(x, most) for x in (ends, expected)))


def columns_of(ends: LaneEnds, most: int) -> list[Any]:
    columns = [ends.moments.mean_and_std()]
    for each in fields(LaneEnds):
        value = getattr(ends, each.name)
        if not each.name.startswith("beyond"):
            columns += [numbers(value)] if each.name != "moments" else []
        elif value.weights is None:
            columns += [value.measure, *value.repeated(most)]
        else:
            names = ("measure", "sizes", "elements", "counts", "weights")
            columns += [numbers(getattr(value, name)) for name in names]
    return columns
