"""Counts of the values of many lanes say what looking at their elements would."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cpu import groups as compiled
from dask_gpuselect.kernels.reference import groups as reference
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_ends import Bounds, LaneEnds
from dask_gpuselect.maths.lane_value_counts import LaneValueCounts
from tests.data import FLOATS, INTEGERS, MISSING, make, uniform

DTYPES = ("i1", "u1", "i2", "u2", "f2")
N, N_LANES = 6000, 7


def lanes_of(dtype: str) -> list[NDArray[Any]]:
    """Tables with a row for each lane: of all kinds of data, and of every word."""
    names = (*FLOATS, *MISSING) if dtype == "f2" else INTEGERS
    found = [make(name, dtype, N) for name in names]
    found.append(np.arange(N).astype(f"u{np.dtype(dtype).itemsize}").view(dtype))
    if dtype == "f2":
        found.append(np.where(uniform(N) < 0.2, np.inf, found[0]).astype("f2"))
        found.append(np.full(N, -np.inf, "f2"))
    return [each[: N // N_LANES * N_LANES].reshape(N_LANES, -1) for each in found]


def three(n: NDArray[np.int64]) -> Any:
    lower = np.stack([(n - 1) // 4, (n - 1) // 2, n - 1])
    return lower, np.minimum(lower + 1, n - 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_lanes_have(dtype: str) -> None:
    kind = np.dtype(dtype)
    for table in lanes_of(dtype):
        chunks = np.array_split(table, 3, axis=1)
        counts = kernels.lane_value_counts(chunks, kind, (1,))
        found = counts.found(three)
        for i, lane in enumerate(table):
            ordered = np.sort(lane[lane == lane])
            assert (found.n_valid[i], found.n_missing[i]) == (
                len(ordered),
                lane.size - len(ordered),
            )
            if len(ordered):
                lower, upper = (each[:, 0] for each in three(np.array([len(ordered)])))
                np.testing.assert_array_equal(found.lower[i], ordered[lower])
                np.testing.assert_array_equal(found.upper[i], ordered[upper])


def assert_same_ends(found: LaneEnds, wanted: LaneEnds) -> None:
    for each in fields(LaneEnds):
        one, other = getattr(found, each.name), getattr(wanted, each.name)
        if each.name == "moments":
            assert [one.total.number(i) for i in range(len(one.n))] == [
                other.total.number(i) for i in range(len(one.n))
            ]
            np.testing.assert_array_equal(one.mean_and_std(), other.mean_and_std())
        elif each.name.startswith("beyond"):
            for name in ("n", "kept", "elements"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
        else:
            np.testing.assert_array_equal(one, other, each.name)
            assert one.dtype == other.dtype


@pytest.mark.few(3)
@pytest.mark.parametrize("most", [0, 3, 1000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ends(dtype: str, most: int) -> None:
    kind = np.dtype(dtype)
    for table in lanes_of(dtype):
        counts = kernels.lane_value_counts([table], kind, (1,))
        some = table[table == table].astype("f8")
        q = (
            np.quantile(some[np.isfinite(some)], [0.1, 0.9])
            if np.isfinite(some).any()
            else (0.0, 1.0)
        )
        for low, high in (q, (q[0] - 0.5, q[1] + 0.5), (np.nan, np.nan), (np.inf, -np.inf)):
            bounds = Bounds(*np.full((2, N_LANES), [[low], [high]]), selection_dtype(kind))
            wanted = kernels.lane_ends([table], kind, (1,), bounds, most)
            assert_same_ends(counts.ends(bounds, most), wanted)


@pytest.mark.parametrize("dtype", ["?", *DTYPES])
@pytest.mark.parametrize("n_groups", [1, 40])
def test_groups_are_counted(dtype: str, n_groups: int) -> None:
    kind = np.dtype(dtype)
    tables = lanes_of("u1") if dtype == "?" else lanes_of(dtype)
    codes = np.floor(uniform(N) * (n_groups + 1)).astype(np.int32) - 1
    for table in tables:
        values = table.ravel() if dtype != "?" else table.ravel() > 100
        own = codes[: values.size]
        keeps = uniform(values.size)[::-1] < 0.6
        chunks = [
            Accompanied(*parts)
            for parts in zip(
                np.array_split(values, 3),
                np.array_split(keeps, 3),
                [None] * 3,
                np.array_split(own, 3),
                strict=True,
            )
        ]
        counts = kernels.group_value_counts(chunks, kind, lambda labels: labels, n_groups)
        several = [
            kernels.group_value_counts([chunk], kind, lambda labels: labels, n_groups)
            for chunk in chunks
        ]
        for found in (counts, LaneValueCounts.merge(several)):
            start = 0
            for i in range(n_groups):
                some = values[keeps & (own == i)]
                wide = some[some == some].astype("f8") + 0.0
                right = np.unique(wide, return_counts=True)
                stop = start + int(found.sizes[i])
                np.testing.assert_array_equal(found.values[start:stop], right[0])
                np.testing.assert_array_equal(found.counts[start:stop], right[1])
                assert found.n_missing[i] == (some != some).sum()
                assert found.n_left_out[i] == (~keeps & (own == i)).sum()
                start = stop
            assert start == len(found.values)


def test_the_kernel_is_the_references() -> None:
    random = np.random.default_rng(0)
    for kind, n_words in ((np.uint8, 256), (np.uint16, 1 << 16)):
        parts = [
            (random.integers(0, n_words, n).astype(kind), random.integers(-1, 5, n).astype("i4"))
            for n in (0, 1, 1000)
        ]
        found, wanted = (each.value_counts(parts, 5, n_words) for each in (compiled, reference))
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype


def test_lanes_that_others_have_not() -> None:
    """Some of more groups: their places ascend."""
    lanes = kernels.lane_value_counts(
        [np.array([[3, 1, 3], [7, 7, 7]], "u1")], np.dtype("u1"), (1,)
    )
    found = lanes.spread(np.array([1, 3]), 5)
    assert found.n_valid.tolist() == [0, 3, 0, 3, 0]
    both = LaneValueCounts.merge([found, found])
    assert (both.values.tolist(), both.counts.tolist()) == ([1, 3, 7], [2, 4, 6])
    assert both.found(three).lower[[1, 3]].tolist() == [[1, 3, 3], [7, 7, 7]]
