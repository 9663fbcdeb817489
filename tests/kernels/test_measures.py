"""What strategies measure: every kernel module tells what the reference tells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.kernels.reference import measures
from dask_gpuselect.maths.keys import extreme_keys, key_at, to_keys
from dask_gpuselect.strategies.probes import (
    Draw,
    Drawn,
    Extent,
    KeyBins,
    LinearBins,
    Measure,
    Points,
    ProbeResult,
)
from dask_gpuselect.strategies.spaces import VALUE, Space, coordinates, element
from tests import backends
from tests.backends import CUPY, NUMPY, STRICT, each, kernel_module
from tests.data import cases_of, make


@dataclass(frozen=True)
class Kernel(backends.Kernel):
    """A kernel that measures, and numbers of elements where something changes."""

    sizes: tuple[int, ...] = (0, 1, 2, 1000)
    purpose = "measures"


REFERENCE = Kernel("reference", STRICT)
CPU = Kernel("cpu", NUMPY)
CUDA = Kernel("cuda", CUPY, (0, 1, 1000, 2**16 + 1))

each_kernel = each(REFERENCE, CPU, CUDA)

# Two dtypes of floats, and integers with and without a sign: each is compiled for itself. The first
# ones are compiled at once.
CASES = cases_of("f8", "u1", "f4", "i8")


def some_keys(values: NDArray[Any]) -> list[int]:
    """Of elements, of what lies between them, and of the ends."""
    least, largest = extreme_keys(values.dtype)
    keys = sorted(to_keys(values[values == values]).tolist()) or [least, largest]
    n = len(keys)
    between = [(keys[n // 3] + keys[n // 2]) // 2, (least + keys[0]) // 2]
    chosen = {*keys[:: max(n // 3, 1)], keys[-1], *between, least, largest}
    return sorted({key_at(key, values.dtype) for key in chosen})


def probes_of(values: NDArray[Any]) -> Iterator[Measure]:
    """Every kind of probe, about the values."""
    dtype, keys = values.dtype, some_keys(values)
    least, largest = extreme_keys(dtype)
    middle = keys[len(keys) // 2]
    spaces = [VALUE, Space("key", keys[1]), Space("log", float(element(keys[0], dtype)))]
    yield from map(Extent, spaces[:2])
    for space in (None, *spaces):
        yield Points((middle,), space)
        yield Points(tuple(keys), space)
    bits = 8 * dtype.itemsize
    yield KeyBins(0, bits - 8, 256)
    yield KeyBins(0, bits - 1, 2)
    yield KeyBins(middle, max(bits - 11, 0), 2048)
    yield KeyBins(middle, 0, 16)
    yield KeyBins(keys[1], max((largest - keys[1]).bit_length() - 4, 0), 10)
    yield from linear_bins(values, keys)
    for lo, hi in ((least - 1, largest + 1), (keys[0], keys[-1])):
        yield Draw(lo, hi, 100, 1)
    yield Draw(least - 1, largest + 1, 0, 2)


def linear_bins(values: NDArray[Any], keys: list[int]) -> Iterator[LinearBins]:
    finite = [key for key in keys if math.isfinite(float(element(key, values.dtype)))]
    for lo, hi in itertools.combinations(finite[:: max(len(finite) // 3, 1)], 2):
        start, end = (VALUE.coordinate(key, values.dtype) for key in (lo, hi))
        for n_bins in (7, 1024):
            width = end - start
            slope = n_bins / width if width > 0 else math.inf
            if 0 < slope < math.inf:
                yield LinearBins(lo, hi, start, slope, n_bins, values.dtype)


def assert_same(ours: ProbeResult, theirs: ProbeResult, values: NDArray[Any], probe: Any) -> None:
    """Integers are equal, and sums to the last digits of what is added."""
    assert type(ours) is type(theirs)
    for field in fields(theirs):
        mine, other = getattr(ours, field.name), getattr(theirs, field.name)
        if field.name in ("total", "low", "high"):
            keys = [None] if field.name == "total" else probe.keys
            for a, b, key in zip(np.ravel(mine), np.ravel(other), keys, strict=True):
                assert_near(a, b, size_of_sums(values, probe.space, key))
        elif isinstance(other, np.ndarray) and not isinstance(theirs, Drawn):
            assert mine.dtype == other.dtype == np.int64
            np.testing.assert_array_equal(mine, other)
        elif not isinstance(other, np.ndarray):
            assert mine == other, field.name


def size_of_sums(values: NDArray[Any], space: Space | None, key: int | None = None) -> float:
    """Of all that is added: coordinates, or distances from that of a key."""
    if space is None:
        return 0.0
    valid = values[values == values]
    with np.errstate(all="ignore"):
        at = coordinates(space, valid, to_keys(valid))
        if key is not None:
            at = np.abs(at) + abs(space.coordinate(key, values.dtype))
        return float(np.abs(at[np.isfinite(at)]).sum())


def assert_near(ours: float, theirs: float, size: float) -> None:
    """Or neither is a number. What overflows in one order of sums may not in another."""
    if math.isfinite(ours) and math.isfinite(theirs):
        assert abs(ours - theirs) <= 1e-12 * size
    else:
        assert math.isfinite(ours) == math.isfinite(theirs) or size > 1e307


@pytest.mark.few(2 * len(cases_of("f8", "u1")))
@pytest.mark.parametrize(("name", "dtype"), CASES, ids=[f"{n}-{d}" for n, d in CASES])
@each_kernel
def test_measures(kernel: Kernel, name: str, dtype: str) -> None:
    for n in kernel.sizes:
        values = make(name, dtype, n)
        given = kernel.backend.asarray(values)
        for probe in probes_of(values):
            ours = kernel.module.answer_probe(given, probe)
            theirs = measures.answer_probe(values, probe)
            assert_same(ours, theirs, values, probe)
            if isinstance(ours, Drawn):
                assert_drawn(ours, values, probe)


def assert_drawn(drawn: Drawn, values: NDArray[Any], probe: Any) -> None:
    """Elements inside the bracket, no more often than there are such, and about as many as there
    are places."""
    assert drawn.keys.dtype == np.uint64
    keys = to_keys(values[values == values])
    inside = np.array([key for key in keys.tolist() if probe.lo < key < probe.hi], np.uint64)
    distinct, counts = np.unique(drawn.keys, return_counts=True)
    available = dict(zip(*np.unique(inside, return_counts=True), strict=True))
    assert all(n <= available.get(key, 0) for key, n in zip(distinct, counts, strict=True))
    if len(inside) == len(values):
        assert len(drawn.keys) >= min(probe.size, len(values))


@each_kernel
def test_drawings_are_repeatable_and_spread(kernel: Kernel) -> None:
    """The same places for one turn, others for the next, from everywhere, and not in order."""
    values = np.arange(10_000.0)
    given = kernel.backend.asarray(values)
    least, largest = extreme_keys(values.dtype)

    def draw(turn: int) -> NDArray[np.uint64]:
        probe = Draw(least - 1, largest + 1, 500, turn)
        keys: NDArray[np.uint64] = kernel.module.answer_probe(given, probe).keys
        return keys

    first, again, other = draw(0), draw(0), draw(1)
    np.testing.assert_array_equal(np.sort(first), np.sort(again))
    assert len(np.intersect1d(first, other)) < 250
    quarters = np.searchsorted(to_keys(values[2500::2500]), first, side="right")
    assert np.bincount(quarters, minlength=4).min() > 60


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u1"])
@pytest.mark.parametrize("n", [0, 1, 2, 1023, 1024, 1025, 5000])
@each_kernel
def test_bitonic_sort(kernel: Kernel, n: int, dtype: str) -> None:
    values = make("whole range" if dtype in ("i8", "u1") else "infinite", dtype, n)
    before = values.copy()
    ours = kernel_module(kernel.name, "bitonic").bitonic_sorted(
        kernel.backend.asarray(values), 1024
    )
    result = ours.get() if kernel.backend is CUPY else np.asarray(ours)
    assert result.dtype == values.dtype
    np.testing.assert_array_equal(result, np.sort(values))
    np.testing.assert_array_equal(values, before)
