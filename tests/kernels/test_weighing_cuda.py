"""The CUDA kernels of elements that weigh: their text on the host, and all of it on a device."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.reference import weighing as reference
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.moments import TOTAL_DIGITS
from dask_gpuselect.maths.weight_guess import guess_share_brackets
from dask_gpuselect.maths.weights import POINT, SQUARE_ROUNDINGS
from tests.backends import CUPY, kernel_module
from tests.cuda_on_host import THREADS, compiled, pointer
from tests.data import normal, uniform

ONCE = (
    "const Word* values, const Held* weights, i64 n, const Value* ends, int n_ends, "
    "const unsigned char* wanted, const int* own_unit, u64* totals, Value* taken, "
    "Weight* their_weights, u64 room"
)
KERNELS = {
    "weigh_segments": "const Word* values, const Weight* weights, i64 n, const Value* ends, "
    "int n_ends, int unit, u64 mask, u64* totals",
    "weigh_taken": "const Word* values, const Weight* weights, i64 n, const Value* ends, "
    "int n_ends, const unsigned char* wanted, Value* taken, Weight* their_weights, u64 room, "
    "u64* n_taken",
}
WRAPPERS = []
for name, declared in KERNELS.items():
    passed = ", ".join(each.split()[-1].lstrip("*") for each in declared.split(","))
    call = f"run_block([=] {{ {name}({passed}); }});"
    WRAPPERS.append(f'extern "C" void run_{name}({declared}) {{ {call} }}')
# Of one warp: the threads of several would have to meet at the same number of barriers.
passed = ", ".join(each.split()[-1].lstrip("*") for each in ONCE.split(","))
call = f"run_block([=] {{ if (threadIdx.x < 32) weigh_once({passed}); }});"
WRAPPERS.append(f'extern "C" void run_weigh_once({ONCE}) {{ {call} }}')


def weights_of(kind: str, n: int) -> NDArray[Any]:
    if kind == "whole":
        return (uniform(n) * 2.0**45).astype(np.int64) + 2**53
    if kind == "of all magnitudes":
        return np.ldexp(1 + uniform(n), (uniform(n)[::-1] * 2000 - 1060).astype(int))
    return uniform(n) + 2.0**-1074


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("n_ends", [0, 1, 6])
@pytest.mark.parametrize("kind", ["plain", "of all magnitudes", "whole"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "i8", "u8"])
@pytest.mark.slow
def test_counts_and_weights(dtype: str, kind: str, n_ends: int, tmp_path: Path) -> None:
    n = 1000
    values = (100 + 20 * normal(n)).astype(dtype)
    weights = weights_of(kind, n)
    more = {"WHOLE": int(kind == "whole"), "NARROW": 0, "WEIGH_THREADS": THREADS}
    more["ONCE_THREADS"] = 32
    library = compiled(tmp_path, "weighing.cu", dtype, more, WRAPPERS)
    ends = np.sort(np.unique(values))[7 :: max(len(np.unique(values)) // 6, 1)][:n_ends].copy()
    wanted = np.arange(len(ends) + 1) % 2 == (len(ends) > 0)
    size, number = ctypes.c_int64(n), ctypes.c_int(len(ends))
    told = (pointer(values), pointer(weights), size, pointer(ends), number)

    def segments(unit: int, mask: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        totals = np.zeros((2, 2 * len(ends) + 1), np.int64)
        passed = ctypes.c_int(unit), ctypes.c_uint64(mask), pointer(totals)
        library.run_weigh_segments(*told, *passed)
        return totals[0], totals[1]

    expected = reference.tally(values, weights, Brackets(ends, wanted), n)
    assert expected is not None
    # Rounded down, in a unit of the chunk's own.
    unit, _ = reference.measured(weights)
    segment, _ = reference.places(values, ends)
    counts, sums = segments(unit, 2**64 - 1)
    n_segments = 2 * len(ends) + 1
    rounded = np.zeros(n_segments, np.int64)
    np.add.at(rounded, segment, reference.in_units(weights, unit))
    np.testing.assert_array_equal(counts, np.bincount(segment, minlength=n_segments))
    np.testing.assert_array_equal(sums, rounded)
    # Exactly, by so many digits at a time.
    exact = np.zeros(n_segments, object)
    for unit in range(-1088, 1024, 32):
        _, sums = segments(unit, 2**32 - 1)
        exact += sums.astype(object) * (1 << (unit + POINT))
    exact = np.cumsum(exact)
    assert exact[:-1:2].tolist() == expected.weight_below.tolist()
    assert exact[1::2].tolist() == expected.weight_upto.tolist()
    assert exact[-1] == expected.weight
    # What is in the wanted cells.
    room = int(counts[::2][wanted].sum())
    taken, their_weights = np.empty(room, dtype), np.empty(room, weights.dtype)
    found = np.zeros(1, np.uint64)
    places = (pointer(wanted), pointer(taken), pointer(their_weights))
    library.run_weigh_taken(*told, *places, ctypes.c_uint64(room), pointer(found))
    assert found == room == len(expected.weights)
    pairs = sorted(zip(taken.tolist(), their_weights.tolist(), strict=True))
    others = zip(expected.candidates.on_host().tolist(), expected.weights.tolist(), strict=True)
    assert pairs == sorted(others)


ODD = np.array([0, -0.0, 5e-324, 2.0**-149, 3 * 2.0**-149, 2.0**-126, 1e-30, 0.1, 1, 3e38])


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("unit", [-140, -53, 20])
@pytest.mark.parametrize("kind", ["f8", "f4", "i8"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.slow
def test_all_at_once(dtype: str, kind: str, unit: int, tmp_path: Path) -> None:
    n = 3000
    values = (100 + 20 * normal(n)).astype(dtype)
    if dtype != "i4":
        values[::70] = np.nan
    weights = (uniform(n) * 2.0**45).astype(np.int64) + 2**53
    if kind != "i8":
        weights = uniform(n).astype(kind)
        weights[5::7] = np.resize(ODD.astype(kind), len(weights[5::7]))
    else:
        weights[::11], unit = 0, 0
    more = {"WHOLE": int(kind == "i8"), "NARROW": int(kind == "f4"), "ONCE_THREADS": 32}
    library = compiled(tmp_path, "weighing.cu", dtype, {**more, "WEIGH_THREADS": 64}, WRAPPERS)
    ends = np.unique(values[weights > 0])[200:2000:300].copy()
    ends = ends[~np.isnan(ends)] if dtype != "i4" else np.unique(values)[7:60:9].copy()
    wanted = np.arange(len(ends) + 1) % 3 == 1
    chunk = Accompanied(values, None, weights)
    expected = reference.tally_in_place(chunk, values.dtype, Brackets(ends, wanted), n)
    assert expected is not None
    n_segments = 2 * len(ends) + 1
    totals = np.zeros(4 + n_segments * (5 + TOTAL_DIGITS), np.uint64)
    room = len(expected.weights)
    taken = np.empty(room, dtype)
    their_weights = np.empty(room, "i8" if kind == "i8" else "f8")
    own_unit = np.array([unit], np.int32)
    library.run_weigh_once(
        *(pointer(values), pointer(weights), ctypes.c_int64(n), pointer(ends)),
        *(ctypes.c_int(len(ends)), pointer(wanted), pointer(own_unit), pointer(totals)),
        *(pointer(taken), pointer(their_weights), ctypes.c_uint64(room)),
    )
    assert totals[:4].tolist() == [expected.n_missing, expected.n_idle, 0, room]
    found = totals[4:].reshape(n_segments, -1).astype(object)
    counts = np.cumsum(found[:, 0])
    sums = sum(found[:, 1 + i] << (unit + POINT + 32 * i) for i in range(4))
    sums = np.cumsum(sums + sum(found[:, 5 + i] << 32 * i for i in range(TOTAL_DIGITS)))
    assert counts[:-1:2].tolist() == expected.below.tolist()
    assert counts[1::2].tolist() == expected.upto.tolist()
    assert sums[:-1:2].tolist() == expected.weight_below.tolist()
    assert sums[1::2].tolist() == expected.weight_upto.tolist()
    assert sums[-1] == expected.weight
    pairs = sorted(zip(taken.tolist(), their_weights.tolist(), strict=True))
    others = zip(expected.candidates.on_host().tolist(), expected.weights.tolist(), strict=True)
    assert pairs == sorted(others)


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
