"""Kernels of sorted lanes and of what lies at their ends, with weights and without, beside the
mathematics, which reckons in integers."""

from __future__ import annotations

import importlib
import itertools
import re
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import nanquantile, quantile
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cpu import lane_ends as ends_by_kernels
from dask_gpuselect.kernels.cpu import weighed_lanes
from dask_gpuselect.maths import lane_ends, lane_weights
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.lane_ends import Bounds, LaneEnds
from dask_gpuselect.maths.lane_weights import METHODS, WantedQuantiles
from dask_gpuselect.maths.sorted_lanes import SortedLanes
from dask_gpuselect.maths.weights import NOT_FINITE
from dask_gpuselect.quiet import quiet
from tests.backends import CUPY

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


def numbers(found: Any) -> Any:
    return found.rounded() if isinstance(found, ExactSums) else found


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
                    found = weighed_lanes.pick(lanes, wanted)
                some = lanes.n_valid > 0
                np.testing.assert_array_equal(found.lower[some], expected.lower[some])
                np.testing.assert_array_equal(found.upper[some], expected.upper[some])


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
            low, high = middle - rng.random(LANES), middle + rng.random(LANES)
            low[0] = high[1] = np.nan
            about: Any = lanes, Bounds(low, high, lanes.values.dtype)
            for most in (0, 2):
                with quiet():
                    expected = lane_ends.ends_of_sorted(*about, most)
                    for are_whole in (False, True):
                        look = ends_by_kernels.ends_of_sorted
                        assert_same(look(*about, most, are_whole=are_whole), expected, most)


def assert_same(found: LaneEnds, expected: LaneEnds, most: int) -> None:
    for each in fields(LaneEnds):
        mine, theirs = (getattr(ends, each.name) for ends in (found, expected))
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


@pytest.mark.gpu
@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", ["f4", "i8", "f8", "f2", "u1"])
@pytest.mark.parametrize("method", METHODS[::-1])
def test_a_device_finds_what_integers_say(method: str, dtype: str) -> None:
    """Of lanes one behind the other and side by side, whose weights are their own or the same."""
    device = on_device()
    for (name, n), weights in itertools.product(
        [("normal", 33), ("few integers", 7), ("not finite", 400), ("huge", 1), ("eighths", 1290)],
        ["equal", "tenths", "small integers", "float64", "one heavy"],
    ):
        values, make = values_of(name, n, dtype), WEIGHTS[weights]
        assert make is not None
        own_each = make(n)
        own_each[:, 0] = 1  # so that something weighs
        for own in (own_each, np.broadcast_to(own_each[0], (LANES, n))):
            lanes = SortedLanes.weighed(values.copy(), own.copy())
            some = lanes.n_valid > 0
            ways = [
                (Q, sorted_by),
                (Q, sorted_together),
                (Q[3:], partial(reached, by_sorting=False)),
                ((0.5, 0.1, 1.0), partial(reached, by_sorting=False)),
                (Q, partial(reached, by_sorting=True)),
                (MANY, partial(reached, by_sorting=True)),
            ]
            for q, by in ways:
                if by is sorted_together and dtype == "i8":
                    continue  # their sums are those of floats
                wanted = WantedQuantiles(q, method, np.dtype("f8"))
                with quiet():
                    expected = lane_weights.pick(lanes, wanted)
                for axis in (1, 0):
                    arrays = values, own
                    if axis == 0:
                        arrays = np.ascontiguousarray(values.T), own.T
                    weights_ = broadcast_on_device(arrays[1])
                    chunk = Accompanied(CUPY.asarray(arrays[0]), None, weights_)
                    table = device.Weighed.of([chunk], (axis,))
                    assert table is not None
                    found = by(table, wanted)
                    for mine, right in (
                        (found.lower, expected.lower),
                        (found.upper, expected.upper),
                    ):
                        np.testing.assert_array_equal(mine.get()[some], right[some])
                    np.testing.assert_array_equal(found.n_valid.get(), lanes.n_valid)
                    np.testing.assert_array_equal(found.n_missing.get(), lanes.n_missing)


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "dtype"), [(17_000, "f4"), (21_000, "f8"), (17_000, "u1")])
@pytest.mark.parametrize("method", METHODS[::2])
def test_lanes_that_a_block_has_for_itself(method: str, n: int, dtype: str) -> None:
    """Also with many equal elements, and those that are far apart."""
    values, weights = np.empty((4, n)), rng.random((4, n))
    values[0], values[1], values[2] = (
        VALUES[name](n)[0] for name in ("normal", "few integers", "all magnitudes")
    )
    values[3] = np.where(rng.random(n) < 0.5, 7.0, rng.standard_normal(n))
    weights[:, ::9] = 0
    values = np.clip(values, 0, 255).astype(dtype) if dtype == "u1" else values.astype(dtype)
    lanes = SortedLanes.weighed(values.copy(), weights.copy())
    wanted = WantedQuantiles((0.7, 0.1, 0.5, 0.0, 1.0, 0.999), method, np.dtype("f8"))
    expected = lane_weights.pick(lanes, wanted)
    chunk = Accompanied(CUPY.asarray(values), None, CUPY.asarray(weights))
    found = reached(on_device().Weighed.of([chunk], (1,)), wanted, by_sorting=False)
    np.testing.assert_array_equal(found.lower.get(), expected.lower)


def sorted_by(table: Any, wanted: WantedQuantiles) -> Any:
    return on_device()._sorted(table, wanted)


def reached(table: Any, wanted: WantedQuantiles, *, by_sorting: bool) -> Any:
    """As few quantiles, or as many, for which the kernel sorts the lanes."""
    least = (1 if by_sorting else len(wanted.q) + 1,) * 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_device(), "MANY", least)
        patch.setattr(on_device(), "MANY_MEANS", least)
        lanes, is_plain = on_device()._reached(table, wanted)
    assert is_plain == ((lanes.n_valid > 0) & (lanes.n_missing == 0)).all()
    return lanes


def sorted_together(table: Any, wanted: WantedQuantiles) -> Any:
    """As lanes that exceed shared memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_device().source, "sort_kernel", lambda *_, **__: None)
        return on_device()._sorted(table, wanted)


def on_device() -> Any:
    return importlib.import_module("dask_gpuselect.kernels.cuda.weighed_lanes")


def broadcast_on_device(weights: NDArray[Any]) -> Any:
    """The weights, without the copies of a broadcast row."""
    steps = [slice(None if step else 1) for step in weights.strides]
    return CUPY.asarray(np.ascontiguousarray(weights[tuple(steps)]))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:All-NaN slice")
@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", ["f4", "u4"])
@pytest.mark.parametrize("method", METHODS)
def test_masked_lanes_are_answered_on_the_device(method: str, dtype: str) -> None:
    """Some lanes have no element, and some have NaN. Long ones are sorted for many quantiles."""
    lanes = importlib.import_module("dask_gpuselect.kernels.cuda.lanes")
    for n, (n_q, axis) in itertools.product((24, 300), ((2, 0), (20, 1), (3, 1))):
        values, keeps = values_of("normal", n, "f8"), rng.random((LANES, n)) < 0.7
        keeps[:2] = dtype != "f4"
        values = (values * 1e3 + 4e3).astype(dtype)
        if dtype == "f4":
            values[3:6, 2::5] = np.nan
            values[6] = np.nan
        else:
            values[:, ::3] = np.iinfo(dtype).max
        arrays = [each if axis else np.ascontiguousarray(each.T) for each in (values, keeps)]
        q, weights = np.linspace(0.05, 0.95, n_q), rng.random(n) + 0.1
        about: Any = {"axis": axis, "method": method}
        for ask in (quantile, nanquantile):
            with quiet():
                expected = ask(arrays[0], q, weights=weights, where=arrays[1], **about)
                there = [CUPY.asarray(each) for each in (*arrays, weights)]
                with pytest.MonkeyPatch.context() as patch:
                    patch.delattr(lanes.host, "answer_lanes")
                    found = ask(there[0], q, weights=there[2], where=there[1], **about)
            np.testing.assert_array_equal(found.get(), expected)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:All-NaN slice")
@pytest.mark.parametrize("n_q", [1, 40])
def test_lanes_without_weight_raise_on_a_device(n_q: int) -> None:
    """Also where lanes are sorted; but not lanes that a mask leaves out."""
    values, weights = CUPY.asarray(rng.random((50, LANES))), np.ones((50, LANES))
    weights[:, 3] = 0
    ask: Any = partial(quantile, values, np.linspace(0, 1, n_q), axis=0, method="inverted_cdf")
    with pytest.raises(ValueError, match=re.escape(NOT_FINITE)):
        ask(weights=CUPY.asarray(weights))
    with quiet():
        found = ask(weights=CUPY.asarray(weights), where=CUPY.asarray(weights > 0)).get()
    np.testing.assert_array_equal(np.isnan(found).any(axis=0), np.arange(LANES) == 3)
