"""Data of one and two bytes: every value is counted, and the counts say what loads would."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn
from dask_gpuselect.kernels.cpu import ordering as cpu_ordering
from dask_gpuselect.kernels.cpu import selection as cpu_selection
from dask_gpuselect.kernels.cpu import word_counts
from dask_gpuselect.kernels.cuda.source import STATIC, tabulate_memory, words_memory
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.maths.value_counts import ValueCounts
from tests.backends import CUPY, NUMPY, Backend, Kernel, each
from tests.data import FLOATS, INTEGERS, MISSING, make
from tests.kernels.test_moments import numbers_of

COUNTABLE = ("u1", "f2", "?", "i1", "i2", "u2", ">i2", ">f2")
each_dtype = pytest.mark.parametrize(
    "dtype",
    ["u1", "f2", *(pytest.param(each, marks=pytest.mark.slow) for each in ("?", "i1", "i2"))],
)
SIZES = (0, 1, 15, 16_385, 100_003)  # in bytes 16 at a time, windows, blocks that end unevenly


def data(dtype: str, n: int) -> dict[str, NDArray[Any]]:
    if dtype == "?":
        return {"bools": np.arange(n) % 3 == 0}
    names = (*FLOATS, *MISSING) if "f" in dtype else INTEGERS
    native = {name: make(name, dtype.strip(">"), n) for name in names}
    words = np.arange(n).astype(f"u{np.dtype(dtype).itemsize}")  # all there are: NaN and -0.0 too
    native["every word"] = words.view(dtype.strip(">"))
    return {name: values.astype(dtype) for name, values in native.items()}


def expected(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    wide = values.astype(np.float64)
    pair: tuple[NDArray[Any], NDArray[Any]] = np.unique(
        wide[~np.isnan(wide)] + 0.0, return_counts=True
    )
    return pair


def assert_counts(counts: ValueCounts, values: NDArray[Any]) -> None:
    wanted = expected(values)
    for got, right in zip((counts.values.astype(np.float64), counts.counts), wanted, strict=True):
        np.testing.assert_array_equal(got, right)
    assert not np.signbit(counts.values[counts.values == 0]).any()
    assert counts.n_missing == int(np.isnan(values.astype(np.float64)).sum())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", COUNTABLE)
@each(Kernel("reference", NUMPY), Kernel("cpu", NUMPY), Kernel("cuda", CUPY))
def test_every_value_is_counted(kernel: Kernel, dtype: str, size: int) -> None:
    backend = kernel.backend
    if backend is CUPY and dtype.startswith(">"):
        pytest.skip("CuPy has no arrays of another byte order")
    count = partial(kernel.module.value_counts, dtype=np.dtype(dtype))
    for values in data(dtype, size).values():
        chunk = backend.asarray(values)
        assert_counts(count(chunk), values)
        assert_counts(count(chunk[::-2]), values[::-2])
        keeps = np.arange(size) % 7 < 3
        assert_counts(count(Accompanied(chunk, backend.asarray(keeps))), values[keeps])
        if size == 100_003:
            box, mask = (each[3:].reshape(100, 1000) for each in (values, keeps))
            there = (backend.asarray(each)[1:, 5:] for each in (box, mask))
            assert_counts(count(Accompanied(*there)), box[1:, 5:][mask[1:, 5:]])


def test_words_that_differ_in_their_upper_bits() -> None:
    """All words that there are, those of shifted bytes, and one alone; counted and sorted."""
    every = np.arange(70_000).astype(np.uint16)
    for words in (every, every << np.uint16(8), np.full(9, 40_000, np.uint16)):
        assert_counts(cpu_selection.value_counts(words, words.dtype), words)
        ordered = words[::-1].copy()
        cpu_ordering.sort(ordered)
        np.testing.assert_array_equal(ordered, np.sort(words))


def test_places_of_words() -> None:
    """Each has one of its own, and eight neighbours in the upper bits have as many lower ones."""
    words = np.arange(1 << 16)
    places = word_counts.place_of(words, len(words))
    np.testing.assert_array_equal(np.sort(places), words)
    for shift in range(8, 14):
        assert len(np.unique(places[:: 1 << shift] % 512)) == min(1 << 16 - shift, 512)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", COUNTABLE[:6])
def test_counts_say_what_loads_would(backend: Backend, dtype: str) -> None:
    """Cuts, the tally at any brackets, and sums, of a chunk, and of several together."""
    kind = np.dtype(dtype)
    for name, values in data(dtype, 5000).items():
        chunks = [backend.asarray(part) for part in np.array_split(values, 7)]
        counts = ValueCounts.merge([kernels.values.value_counts(chunk, kind) for chunk in chunks])
        assert_counts(counts, values)
        some = np.unique(counts.values[:: max(len(counts.values) // 5, 1)])
        ends = np.unique(np.append(some, some + some.dtype.type(1)))
        ends = ends[np.isfinite(ends)]
        brackets = Brackets(ends, np.arange(len(ends) + 1) % 2 == 0)
        whole = backend.asarray(values)
        right, tally = kernels.tally(whole, kind, brackets, most=5000), counts.tally(brackets)
        assert right is not None
        for field in ("below", "upto"):
            np.testing.assert_array_equal(getattr(tally, field), getattr(right, field), name)
        gathered = (np.sort(each.candidates.on_host()) for each in (tally, right))
        np.testing.assert_array_equal(*gathered, err_msg=name)
        assert (tally.n_valid, tally.n_missing) == (right.n_valid, right.n_missing)
        sums = (numbers_of(each) for each in (counts.moments(), kernels.moments(whole, kind, ends)))
        assert next(sums) == next(sums), name
        cuts = counts.cuts()
        # NumPy 2.4 does not always sort float16: of "every binade" a number came before some -inf.
        ordered = np.sort(values[~np.isnan(values)].astype(counts.values.dtype))
        np.testing.assert_array_equal(cuts.below, np.searchsorted(ordered, cuts.pivots))
        np.testing.assert_array_equal(cuts.upto, np.searchsorted(ordered, cuts.pivots, "right"))
        np.testing.assert_array_equal(np.repeat(counts.values, counts.counts), ordered)


def some_data(dtype: str, n_slots: int, n: int) -> list[NDArray[Any]]:
    """Of many slots the data of most words."""
    every = data(dtype, n)
    names = ("bools", "every word") if n_slots > 4 else every
    return [every[name] for name in names if name in every]


@each_dtype
@pytest.mark.parametrize("n_lanes", [3, 1, 300])
def test_lanes_are_counted_together(backend: Backend, n_lanes: int, dtype: str) -> None:
    """Side by side or one behind the other, with masks and without; few words in shared memory, and
    more than fit there."""
    n_lanes = min(n_lanes, 300 if np.dtype(dtype).itemsize == 1 else 20)
    for values in some_data(dtype, n_lanes, 2000 * n_lanes):
        table = values.reshape(2000, n_lanes)
        keeps = np.arange(table.size).reshape(table.shape) % 7 < 3
        chunk, mask = backend.asarray(table), backend.asarray(keeps)
        for given, axis in ((chunk, 0), (chunk.T, 1)):
            masked = Accompanied(given, mask if axis == 0 else mask.T)
            for lanes, takes in ((given, np.ones_like(keeps)), (masked, keeps)):
                column = ChunkColumn([lanes], np.dtype(dtype), (axis,))
                assert_counts_of_each(kernels.values.lane_value_counts(column), table.T, takes.T)


@each_dtype
@pytest.mark.parametrize("n_groups", [4, 1, 300])
def test_groups_are_counted(backend: Backend, n_groups: int, dtype: str) -> None:
    n_groups = min(n_groups, 300 if np.dtype(dtype).itemsize == 1 else 20)
    for values in some_data(dtype, n_groups, 9000):
        codes = (np.arange(9000) * 7919 % (n_groups + 1) - 1).astype("i4")
        keeps = np.arange(9000) % 7 < 3
        parts = [np.split(each, [0, 1, 3000]) for each in (values, keeps, codes)]
        chunks = [
            Accompanied(*map(backend.asarray, (a, k)), None, backend.asarray(c))
            for a, k, c in zip(*parts, strict=True)
        ]
        chunks[2] = replace(chunks[2], keeps=None)
        about = chunks, np.dtype(dtype), n_groups
        counts = kernels.values.group_value_counts(*about)
        keeps[1:3000] = True
        each = ([some[codes == i] for i in range(n_groups)] for some in (values, keeps))
        assert_counts_of_each(counts, *each)


def assert_counts_of_each(counts: ValueCounts, lanes: Any, keeps: Any) -> None:
    stops = np.cumsum(counts.sizes, dtype=np.int64)
    for i, (lane, takes) in enumerate(zip(lanes, keeps, strict=True)):
        own = slice(stops[i] - int(counts.sizes[i]), stops[i])
        wanted = expected(lane[takes])
        np.testing.assert_array_equal(counts.values[own].astype("f8"), wanted[0])
        np.testing.assert_array_equal(counts.counts[own], wanted[1])
        assert counts.n_missing[i] == np.isnan(lane[takes].astype("f8")).sum()
        assert counts.n_left_out[i] == (~takes).sum()


@pytest.mark.few(2)
@pytest.mark.parametrize("most", [3, 1 << 30, 1 << 46])
@pytest.mark.parametrize("dtype", ["i1", "u2", "i2", "f2"])
def test_sums_of_every_value_are_exact(dtype: str, most: int) -> None:
    """However often each of them occurs, and where no float64 holds the sums."""
    n_words = 1 << 8 * np.dtype(dtype).itemsize
    table = np.random.default_rng(most).integers(most // 2, most, n_words)
    counts = ValueCounts.of_words(table[None], np.dtype(dtype))
    moments, is_finite = counts.moments(), np.isfinite(counts.values)
    values = map(Fraction, counts.values[is_finite].tolist())
    pairs = list(zip(values, counts.counts[is_finite].tolist(), strict=True))
    assert moments.n == sum(count for _, count in pairs)
    total, square = (sums.integers(-2).item() for sums in (moments.total, moments.square))
    assert Fraction(total, 1 << 64) == sum(value * count for value, count in pairs)
    assert Fraction(square, 1 << 64) == sum(value**2 * count for value, count in pairs)


def test_tables_fit_into_shared_memory() -> None:
    for shared in (48 << 10, 64 << 10, 99 << 10, 227 << 10):
        for dtype in ("u1", "u2"):
            window, n_bytes = tabulate_memory(np.dtype(dtype), shared)
            assert n_bytes + STATIC <= shared
            assert (1 << 8 * np.dtype(dtype).itemsize) % window == 0
    for n_groups, n_words in ((1, 1), (18, 256), (226, 256), (1, 1 << 14)):
        memory, counts = words_memory(n_groups, n_words), 4 * (n_groups * n_words + 32)
        assert counts <= memory <= counts + 1023
