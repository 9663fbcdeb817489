"""The CUDA kernels of elements that weigh."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.reference import weighing as reference
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.weight_guess import guess_share_brackets
from dask_gpuselect.maths.weights import SQUARE_ROUNDINGS
from tests.backends import CUPY, kernel_module
from tests.data import normal, uniform


def weights_of(kind: str, n: int) -> NDArray[Any]:
    if kind == "whole":
        return (uniform(n) * 2.0**45).astype(np.int64) + 2**53
    if kind == "of all magnitudes":
        return np.ldexp(1 + uniform(n), (uniform(n)[::-1] * 2000 - 1060).astype(int))
    return uniform(n) + 2.0**-1074


def one_heavy(n: int) -> NDArray[Any]:
    weights = uniform(n) + 0.1
    weights[n // 3] = n
    return weights


LARGE: dict[str, NDArray[Any]] = {
    "plain": uniform(200_000),
    "some idle": np.maximum(uniform(200_000) - 0.3, 0),
    "one heavy": one_heavy(200_000),
    "few heavy": np.where(uniform(200_000) < 1e-4, 1e6, 1e-3),
    "of all magnitudes": weights_of("of all magnitudes", 200_000),
    "whole": weights_of("whole", 200_000),
    "float32": uniform(200_000).astype(np.float32),
    "denormal": (uniform(200_000) * 1e-40).astype(np.float32),
}


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["mixed", "sorted", "tied"])
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1"])
def test_on_a_device(dtype: str, name: str, order: str) -> None:
    cuda, xp = kernel_module("cuda", "weighing"), CUPY.xp
    n, n_pivots = 200_000, 200
    values, given = (100 + 20 * normal(n)).astype(dtype), LARGE[name]
    if order == "sorted":
        values = np.sort(values)
    elif order == "tied":
        values[uniform(n) < 0.5] = 100
    told = Accompanied(xp.asarray(values), None, xp.asarray(given))
    expected_values, weights, _ = reference.weighed(Accompanied(values, None, given), values.dtype)
    elements, weighs, n_missing = cuda.weighed(told, values.dtype)
    assert n_missing == 0
    np.testing.assert_array_equal(xp.asnumpy(elements), expected_values)
    np.testing.assert_array_equal(xp.asnumpy(weighs), weights)
    values = expected_values

    cuts = cuda.cuts(elements, weighs, n_pivots)
    order_of = np.argsort(values, kind="stable")
    ordered = values[order_of]
    sums = np.append(0, np.cumsum(reference.in_units(weights[order_of], int(cuts.unit[0]))))
    for side, counts, weighed in (
        ("left", cuts.below, cuts.weight_below),
        ("right", cuts.upto, cuts.weight_upto),
    ):
        np.testing.assert_array_equal(counts, np.searchsorted(ordered, cuts.pivots, side))
        np.testing.assert_array_equal(weighed, sums[counts])
    assert (cuts.n_valid, cuts.weight) == (len(values), sums[-1])
    square = reference.measured(weights)[1]
    assert cuts.square[0] == pytest.approx(square, rel=(len(weights) + SQUARE_ROUNDINGS) * 2**-51)
    for total, before, after in (
        (len(values), cuts.upto, cuts.below),
        (sums[-1], cuts.weight_upto, cuts.weight_below),
    ):
        inside = np.append(after, total) - np.append(0, before)
        assert inside.max() <= 4 * (total // n_pivots + 1)

    for step, wanted in ((len(cuts.pivots) // 3 + 1, slice(1, None, 2)), (7, slice(2, 5))):
        ends = cuts.pivots[::step]
        is_wanted = np.zeros(len(ends) + 1, np.bool_)
        is_wanted[wanted] = True
        brackets = Brackets(ends, is_wanted)
        found = cuda.tally(elements, weighs, brackets, len(values))
        other = reference.tally(values, weights, brackets, len(values))
        assert other is not None
        for field in ("below", "upto", "weight_below", "weight_upto"):
            assert getattr(found, field).tolist() == getattr(other, field).tolist()
        assert (found.n_valid, found.weight) == (other.n_valid, other.weight)
        mine, theirs = (
            sorted(zip(each.candidates.on_host(), each.weights, strict=True))
            for each in (found, other)
        )
        assert mine == theirs
        if len(mine):
            assert cuda.tally(elements, weighs, brackets, len(mine) - 1) is None
        is_wanted[[0, -1]] = False
        sums_of_products = cuda.products(elements, weighs, ends, is_wanted)
        expected_products = reference.products(values, weights, ends, is_wanted)
        assert sums_of_products.tolist() == expected_products.tolist()


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*LARGE, "int32", "beyond 2**53", "float16", "largest"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "f2"])
def test_all_at_once_on_a_device(dtype: str, name: str) -> None:
    cuda, xp, n = kernel_module("cuda", "weighing"), CUPY.xp, 200_000
    values = (100 + 20 * normal(n)).astype(dtype)
    if values.dtype.kind == "f":
        values[::91] = np.nan
    weights = {
        "int32": lambda: np.floor(uniform(n) * 1000).astype(np.int32),
        "beyond 2**53": lambda: (uniform(n) * 2.0**62).astype(np.int64) | 1,
        "float16": lambda: uniform(n).astype(np.float16),
        "largest": lambda: np.where(uniform(n) < 0.5, 1.7e308, 5e-324),
    }.get(name, lambda: LARGE[name])()
    kind = selection_dtype(values.dtype)
    for keeps in (None, uniform(n)[::-1] < 0.7):
        host = Accompanied(values, keeps, weights)
        told = Accompanied(
            xp.asarray(values), None if keeps is None else xp.asarray(keeps), xp.asarray(weights)
        )
        for ends in ([], [100], [95, 100], [60, 80, 90, 100, 101, 120]):
            wanted = np.arange(len(ends) + 1) % 2 == (len(ends) > 1)
            brackets = Brackets(np.array(ends, kind), wanted)
            found = cuda.tally_in_place(told, values.dtype, brackets, n)
            other = reference.tally_in_place(host, values.dtype, brackets, n)
            assert other is not None
            for field in ("below", "upto", "weight_below", "weight_upto"):
                assert getattr(found, field).tolist() == getattr(other, field).tolist()
            for field in ("n_valid", "n_missing", "n_idle", "n_left_out", "weight"):
                assert getattr(found, field) == getattr(other, field)
            mine, theirs = (
                sorted(zip(each.candidates.on_host(), xp.asnumpy(each.weights), strict=True))
                for each in (found, other)
            )
            assert mine == theirs
            if len(mine):
                assert cuda.tally_in_place(told, values.dtype, brackets, len(mine) - 1) is None


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["plain", "some idle", "of all magnitudes", "whole", "float32"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "f2"])
def test_a_sample_in_stretches(dtype: str, name: str) -> None:
    """All elements as the sample: it says of each stretch what they say in order."""
    cuda, xp = kernel_module("cuda", "weighing"), CUPY.xp
    n = 5 * cuda.STRETCHES + 100
    values, weights = (100 + 20 * normal(n)).astype(dtype), LARGE[name][:n]
    if values.dtype.kind == "f":
        values[::91] = np.nan
    keeps = uniform(n)[::-1] < 0.7
    told = Accompanied(*(xp.asarray(each) for each in (values, keeps, weights)))
    found, rate = cuda.sorted_sample(told, values.dtype, n)
    assert rate == 1
    takes = keeps & (weights > 0) & ~np.isnan(values)
    ordered = np.sort(values[takes])
    stops = np.arange(1, cuda.STRETCHES + 1) * n // cuda.STRETCHES
    n_full = int(np.searchsorted(stops, takes.sum(), side="right"))
    np.testing.assert_array_equal(found.last[:n_full], ordered[stops[:n_full] - 1])
    if stops[n_full - 1] < takes.sum():
        assert found.last[n_full] == ordered[-1]
    assert not found.weights[n_full + 1 :].any()
    most = weights[takes].max()
    upto = np.cumsum(found.weights)
    scaled = weights[takes].astype(np.float64) / most
    np.testing.assert_allclose(upto[-1], scaled.sum(), rtol=1e-12)
    np.testing.assert_allclose(found.squares.sum(), np.square(scaled).sum(), rtol=1e-12)
    # Where elements are tied, which of them is in a stretch is left open.
    least = [scaled[values[takes] < each].sum() for each in found.last[:n_full]]
    largest = [scaled[values[takes] <= each].sum() for each in found.last[:n_full]]
    assert (upto[:n_full] >= np.array(least) * (1 - 1e-12)).all()
    assert (upto[:n_full] <= np.array(largest) * (1 + 1e-12)).all()


@pytest.mark.gpu
def test_a_sample_of_nothing() -> None:
    cuda, xp = kernel_module("cuda", "weighing"), CUPY.xp
    for values, weights in ((np.zeros(0), np.zeros(0)), (np.zeros(9), np.zeros(9))):
        told = Accompanied(xp.asarray(values), None, xp.asarray(weights))
        found, _ = cuda.sorted_sample(told, values.dtype, 5)
        brackets = guess_share_brackets(found, [0.5], [0.5])
        assert (len(brackets.ends), brackets.wanted.tolist()) == (0, [True])
