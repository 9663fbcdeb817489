"""Every kernel does what the reference does, on all adversarial data and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.kernels.compiling import kernels_for, signature_of
from dask_gpuselect.kernels.cpu import cells, draws, spans
from dask_gpuselect.kernels.reference import selection as reference
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.rulers import Ruler, scales
from dask_gpuselect.maths.sizes import pivot_count
from tests import backends
from tests.backends import CUPY, NUMPY, Backend, each, param
from tests.data import INTEGER_DTYPES, cases_of, hashed, make, normal, valid


@dataclass(frozen=True)
class Kernel(backends.Kernel):
    """A kernel module, and what it is tested with.

    Parameters
    ----------
    sizes, tally_sizes : tuple of int
        Numbers of elements where something changes.
    takes_all : bool
        Whether it takes every dtype as it is, and not only those that elements are compared in.
    """

    sizes: tuple[int, ...]
    tally_sizes: tuple[int, ...] = (0, 1, 700, 5000)
    takes_all: bool = False

    def cuts(self, values: NDArray[Any], n_pivots: int) -> Cuts:
        cuts: Cuts = self.module.cuts(self.backend.asarray(values), n_pivots)
        return cuts

    def tally(self, values: NDArray[Any], brackets: Brackets, most: int) -> Tally | None:
        tally: Tally | None = self.module.tally(self.backend.asarray(values), brackets, most)
        return tally

    def tally_in_place(self, values: NDArray[Any], brackets: Brackets, most: int) -> Tally | None:
        return kernels.tally_in_place(self.backend.asarray(values), values.dtype, brackets, most)


# Sorted chunks, sampled ones, and both sides of the change; runs of 512 that end evenly or not.
SIZES = (0, 1, 2, 511, 1000, cells.SORT_AT_MOST, cells.SORT_AT_MOST + 1, 40_001)

# The same for CUDA, whose small chunks are copied to the host; counters of 16 bits, and warps,
# blocks and all blocks together that end evenly or not.
DEVICE_SIZES = (0, 1, 1000, 2**14, 2**14 + 1, 2**16 - 1, 2**16, 2**16 + 1, 300_001)

REFERENCE = Kernel("reference", NUMPY, SIZES)
CPU = Kernel("cpu", NUMPY, SIZES)
CUDA = Kernel(
    "cuda",
    CUPY,
    DEVICE_SIZES,
    tally_sizes=(0, 1, 700, 2**14 + 1, 70_000),
    takes_all=True,
)
# Where the CUDA kernels cannot do it, the reference does, on the device: large chunks only.
REFERENCE_ON_A_GPU = Kernel("reference", CUPY, (2**14 + 1, 40_001))

# CuPy's own functions take these for zeros; its chunks of float32 never come to the reference.
DENORMAL_TO_CUPY = {("denormal float32", "f4"), ("every binade", "f4")}

# The dtypes that are compiled at once come first.
CASES = cases_of("f8", "i8", "f4", *(each for each in INTEGER_DTYPES if each != "i8"))
AT_ONCE = len(cases_of("f8", "i8"))
CASES_OF_ALL = [*CASES, *cases_of("f2"), ("bools", "?")]


def each_case(*kernels: Kernel) -> Any:
    """Parametrise over kernels and all data that they take."""
    return pytest.mark.parametrize(
        ("kernel", "name", "dtype"),
        [
            param(kernel.backend, kernel, name, dtype, id=f"{kernel}-{name}-{dtype}")
            for kernel in kernels
            for name, dtype in (CASES_OF_ALL if kernel.takes_all else CASES)
            if kernel is not REFERENCE_ON_A_GPU or (name, dtype) not in DENORMAL_TO_CUPY
        ],
    )


def selected(values: NDArray[Any]) -> NDArray[Any]:
    """The elements, flat, of the dtype in which they are compared."""
    return values.ravel().astype(selection_dtype(values.dtype), copy=False)


def assert_cuts_are_exact(cuts: Cuts, values: NDArray[Any]) -> None:
    """Against searches of the sorted elements."""
    values = selected(values)
    ordered = valid(values)
    assert cuts.pivots.dtype == values.dtype
    assert (cuts.pivots[1:] > cuts.pivots[:-1]).all()
    assert cuts.n_valid.tolist() == [len(ordered)]
    assert cuts.n_missing.tolist() == [len(values) - len(ordered)]
    assert cuts.sizes.tolist() == [len(cuts.pivots)]
    assert (len(cuts.pivots) > 0) == (len(ordered) > 0)
    for side, counts in (("left", cuts.below), ("right", cuts.upto)):
        np.testing.assert_array_equal(counts, np.sort(ordered).searchsorted(cuts.pivots, side))


def assert_no_cell_is_heavy(cuts: Cuts, module: ModuleType, n_pivots: int) -> None:
    """No open cell holds more than `HEAVY` times its share, whatever the sample saw."""
    n_valid = int(cuts.n_valid[0])
    inside = np.append(cuts.below, n_valid) - np.append(0, cuts.upto)
    promised = min(n_pivots, getattr(module, "MOST_PIVOTS", n_pivots))
    assert inside.max() <= reference.HEAVY * max(n_valid // promised, 1)


@pytest.mark.few(2 * AT_ONCE)
@each_case(REFERENCE, CPU, CUDA, REFERENCE_ON_A_GPU)
def test_cuts(kernel: Kernel, name: str, dtype: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        for n in kernel.sizes:
            values = make(name, dtype, n)
            cuts = kernel.cuts(values, pivot_count(n))
            assert_cuts_are_exact(cuts, values)
            if n and kernel in (CPU, CUDA):
                assert_no_cell_is_heavy(cuts, kernel.module, pivot_count(n))


@each(CPU, CUDA)
@pytest.mark.parametrize("n_valid", [10_000, 1, 2, 3, 4, 5, 40])
def test_a_sample_that_misses_the_data_is_mended(kernel: Kernel, n_valid: int) -> None:
    """Ten thousand different elements in a place that no sample of NaN-ridden data sees; and
    however few they are, there is a pivot among them."""
    values = np.full(2_000_000, np.nan)
    step, start = (1, 1_000_000) if n_valid > 40 else (49_999, 12_345)
    values[np.arange(n_valid) * step + start] = normal(n_valid)
    cuts = kernel.cuts(values, 1000)
    assert_cuts_are_exact(cuts, values)
    assert_no_cell_is_heavy(cuts, kernel.module, 1000)


def brackets_of(values: NDArray[Any], n_ends: int) -> Brackets:
    """Ends among the data, and about a third of the cells wanted, the outer ones at times."""
    ordered = valid(values)
    places = (hashed(np.arange(n_ends)) * len(ordered)).astype(np.int64)
    ends = np.unique(ordered[places] if len(ordered) else values[:0])
    return Brackets(ends, hashed(np.arange(len(ends) + 1) + n_ends) < 0.34)


def assert_tally_is_right(
    actual: Tally | None, expected: Tally | None, dtype: np.dtype[Any]
) -> None:
    assert expected is not None
    assert actual is not None
    np.testing.assert_array_equal(actual.below, expected.below)
    np.testing.assert_array_equal(actual.upto, expected.upto)
    assert (actual.n_valid, actual.n_missing) == (expected.n_valid, expected.n_missing)
    assert actual.candidates.dtype == dtype
    np.testing.assert_array_equal(
        np.sort(actual.candidates.on_host()), np.sort(expected.candidates.on_host())
    )


@cache
def rulers_for(dtype: np.dtype[Any]) -> list[Ruler]:
    """Of even steps in value and in key, over narrow and wide ranges: near zero and across it."""
    if dtype.kind == "f":
        ranges = [(-2, 2), (0.5, 1e6), (-1e30, 1e30), (-1e-30, 1e-40), (1e-40, 1e30)]
        ranges += [(np.finfo(dtype).min, np.finfo(dtype).max)]  # no even steps
        # Several steps for each element: some bars are equal.
        ranges += [(9, 9 + 9 * np.finfo(dtype).eps), (1e9, 1e9 * (1 + 99 * np.finfo(dtype).eps))]
    else:
        info = np.iinfo(dtype)
        ranges = [(info.min, info.max), (info.min // 3, info.max // 2), (0, 9), (info.max - 99, 99)]
    rulers = []
    for ends in ranges:
        low, high = np.sort(np.array(ends, dtype))
        rulers += [scale.ruler() for scale in scales(low, high, dtype)]
    return rulers


@pytest.mark.few(1)
@each_case(CPU)
@pytest.mark.parametrize("n_ends", [5, 0, 60])  # of the most, a table tells which cells are reached
def test_tally_by_a_ruler(kernel: Kernel, name: str, dtype: str, n_ends: int) -> None:
    """Also where there is room for no more than the candidates, and their cells hold others."""
    n = cells.SORT_AT_MOST + 1
    values = selected(make(name, dtype, n))
    brackets = brackets_of(values, n_ends)
    for ruler in rulers_for(values.dtype):
        expected = reference.tally_by_ruler(values, ruler, brackets, n)
        assert expected is not None
        n_candidates = len(expected[0].candidates)
        for most in (n, n_candidates):
            actual = kernel.module.tally_by_ruler(values, ruler, brackets, most)
            assert_tally_is_right(actual[0], expected[0], values.dtype)
            np.testing.assert_array_equal(actual[1:], expected[1:])
        for module in (kernel.module, reference) if n_candidates else ():
            assert module.tally_by_ruler(values, ruler, brackets, n_candidates - 1) is None
    assert kernel.module.tally_by_ruler(values[:1000], ruler, brackets, n) is None


@pytest.mark.few(5)
@pytest.mark.parametrize("n_ends", [6, spans.FEW_ENDS, 100, 0, 1, 900])
@each_case(CPU, CUDA, REFERENCE_ON_A_GPU)
def test_tally(kernel: Kernel, name: str, dtype: str, n_ends: int) -> None:
    """No more candidates are gathered than there is room for."""
    for n in kernel.tally_sizes:
        values = make(name, dtype, n)
        compared = selected(values)
        brackets = brackets_of(compared, n_ends)
        for wanted in (brackets.wanted, ~brackets.wanted, np.ones_like(brackets.wanted)):
            brackets = Brackets(brackets.ends, wanted)
            expected = reference.tally(compared, brackets, n)
            assert expected is not None
            n_candidates = len(expected.candidates)
            for most in (n, n_candidates):
                for tally in (kernel.tally, kernel.tally_in_place):
                    assert_tally_is_right(tally(values, brackets, most), expected, compared.dtype)
            for most in {0, n_candidates - 1} if n_candidates else ():
                assert kernel.tally(values, brackets, most) is None
                assert reference.tally(compared, brackets, most) is None


def read_only(x: Any) -> Any:
    x = x.copy()
    x.flags.writeable = False
    return x


def unaligned(x: Any) -> Any:
    raw = np.empty(x.nbytes + 1, np.uint8)
    copy = raw[1:].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


VIEWS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda x: x,
    "read-only": read_only,
    "unaligned": unaligned,
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "Fortran": lambda x: x.copy(order="F"),
    "transposed": lambda x: x.transpose(2, 0, 1),
    "reversed": lambda x: x[::-1, ::-1, ::-1],
    "steps": lambda x: x.repeat(2, axis=0).repeat(3, axis=2)[::2, :, 1::3],
    "a part": lambda x: x[1:-1, 2:, 3:-4],
    "from the second on": lambda x: x.ravel()[1:],
    "zero strides": lambda x: np.broadcast_to(x[:, :1, :], x.shape),
    "one element, broadcast": lambda x: np.broadcast_to(x[7, 8, 9], x.shape),
    "overlapping": lambda x: np.lib.stride_tricks.sliding_window_view(x.ravel()[: x.size // 2], 2),
    "many dimensions": lambda x: x.reshape(2, -1, 9, 10, 4, 25).transpose(5, 2, 0, 4, 1, 3)[
        ::-1, :, :, ::-1
    ],
    "dimensions of one": lambda x: x[:, None, ::-1, :, None].transpose(4, 2, 0, 1, 3),
    "an element": lambda x: x[7, 8, 9],
    "nothing": lambda x: x[:, 5:5],
}

SCRATCH = 800_000  # bytes; the kernels say that they take 0.8 MB


@pytest.mark.parametrize(
    ("kind", "view", "dtype"),
    [
        *((NUMPY, view, "f8") for view in VIEWS),
        *(
            param(CUPY, CUPY, view, dtype)
            for view in [*VIEWS][:1] + [*VIEWS][4:]
            for dtype in ("?", *INTEGER_DTYPES, "f2", "f4", "f8")
        ),
    ],
)
def test_any_view(kind: Backend, view: str, dtype: str) -> None:
    """On a GPU it is read in place."""
    name = {"?": "bools", "f": "some nan"}.get(dtype[0], "whole range")
    n = 900_000 if kind is CUPY else 180_000
    plain = make(name, dtype, n).reshape(-1, 90, 100)
    if dtype == "u8":  # half of the data named so are crowded near the largest: gathered and split
        plain = make(name, "u4", n).reshape(plain.shape).astype("u8") << np.uint64(31)
    assert plain.nbytes > SCRATCH
    chunk = VIEWS[view](kind.asarray(plain))
    values = selected(np.asarray(VIEWS[view](plain)))
    values = values.astype(values.dtype.newbyteorder("="))
    allocations = CUPY.allocations if kind is CUPY else lambda: nullcontext([])
    with allocations() as sizes:
        cuts = kernels.cuts(chunk, chunk.dtype, 1)
    assert_cuts_are_exact(cuts, values)
    assert max(sizes, default=0) <= SCRATCH

    brackets = brackets_of(values, 6)
    expected = reference.tally(values, brackets, values.size)
    assert expected is not None
    with allocations() as sizes:
        tally = kernels.tally(chunk, chunk.dtype, brackets, len(expected.candidates))
    assert_tally_is_right(tally, expected, values.dtype)
    assert max(sizes, default=0) <= max(expected.candidates.on_host().nbytes, SCRATCH)

    with allocations() as sizes:
        drawn = kernels.sample(chunk, chunk.dtype, 0.001)
    assert drawn.dtype == values.dtype
    assert np.isin(drawn, values).all()
    assert max(sizes, default=0) <= SCRATCH


@pytest.mark.parametrize("n", [5, 20_000])
def test_a_chunk_of_another_dtype_than_declared(backend: Backend, n: int) -> None:
    safe = kernels.cuts(backend.asarray(np.arange(n, dtype=np.int32)), np.dtype(np.float64), 1)
    assert safe.pivots.dtype == np.float64
    assert safe.n_valid.tolist() == [n]
    with pytest.raises(TypeError, match="a chunk has dtype float64, but its array says int64"):
        kernels.cuts(backend.asarray(np.arange(float(n))), np.dtype(np.int64), 1)


def test_chunks_that_are_no_arrays() -> None:
    with pytest.raises(TypeError, match="is of type list, which is not supported"):
        kernels.cuts([1.0, 2.0], np.dtype(np.float64), 1)
    with pytest.raises(TypeError, match="masked arrays are not supported"):
        kernels.cuts(np.ma.masked_array([1.0], [True]), np.dtype(np.float64), 1)


@pytest.mark.slow
@each(CPU, CUDA)
def test_more_elements_than_32_bits_count(kernel: Kernel) -> None:
    """Zeros of NumPy take no memory until they are written: 4 GiB are read, and next to none held.
    A GPU holds them."""
    values = kernel.backend.xp.zeros(2**32 + 1000, np.uint8)
    values[-1] = 1
    cuts = kernel.module.cuts(values, 100)
    assert cuts.pivots[0] == 0
    assert cuts.upto[0] == 2**32 + 999
    assert cuts.n_valid.tolist() == [2**32 + 1000]
    brackets = Brackets(np.array([0], np.uint8), np.array([False, True]))
    tally = kernel.module.tally(values, brackets, 5)
    assert tally is not None
    assert tally.upto.tolist() == [2**32 + 999]
    assert tally.candidates.on_host().tolist() == [1]
    del values
    kernel.backend.free()


def test_a_cached_kernel_of_another_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Numba's cache has it where two processes compiled for two dtypes at once."""
    compile_ = numba.njit
    ((kernel, _),) = kernels_for(np.dtype("i1"), {"draws"})
    other = signature_of(kernel, np.dtype("i1"))

    def cached_wrongly(signature: Any, **options: Any) -> Any:
        return compile_(other if "cache" in options else signature)

    monkeypatch.setattr(numba, "njit", cached_wrongly)
    monkeypatch.setattr("dask_gpuselect.kernels.compiling._kernels", {})
    drawn = draws.sample(np.arange(100.0), 10)
    assert len(set(drawn)) == 10
