"""Every kernel does what the reference does, on all adversarial data and dtypes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import array_api_strict
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.cuts import Brackets, Cuts, most_candidates
from dask_gpuselect.kernels import cpu, generic
from dask_gpuselect.strategies import pivot_count
from tests.data import FLOATS, INTEGER_DTYPES, INTEGERS, MISSING, hashed, normal

# Sorted chunks, sampled ones, and both sides of the change; runs of 512 that end evenly or not.
SIZES = (0, 1, 2, 511, 1000, cpu.SORT_AT_MOST, cpu.SORT_AT_MOST + 1, 40_001)

CASES: list[tuple[str, str]] = [
    *((name, dtype) for name in (*FLOATS, *MISSING) for dtype in ("f8", "f4")),
    *((name, dtype) for name in INTEGERS for dtype in INTEGER_DTYPES),
]


def make(name: str, dtype: str, n: int) -> NDArray[Any]:
    if name in INTEGERS:
        return INTEGERS[name](n, dtype)
    with np.errstate(over="ignore", under="ignore"):
        return (FLOATS | MISSING)[name](n).astype(dtype)


def valid(values: NDArray[Any]) -> NDArray[Any]:
    return np.sort(values[~np.isnan(values)] if values.dtype.kind == "f" else values)


def assert_cuts_are_exact(cuts: Cuts, values: NDArray[Any]) -> None:
    """Against the reference's measurement at the same pivots."""
    ordered = valid(values)
    assert cuts.pivots.dtype == values.dtype
    assert (cuts.pivots[1:] > cuts.pivots[:-1]).all()
    assert cuts.n_valid.tolist() == [len(ordered)]
    assert cuts.n_missing.tolist() == [len(values) - len(ordered)]
    assert cuts.sizes.tolist() == [len(cuts.pivots)]
    assert (len(cuts.pivots) > 0) == (len(ordered) > 0)
    below, upto, distance = generic.measure(values, cuts.pivots)
    np.testing.assert_array_equal(cuts.below, below)
    np.testing.assert_array_equal(cuts.upto, upto)
    inside = below - np.append(0, upto)[:-1]
    assert_distances(cuts.distance, distance, inside)


def assert_distances(found: NDArray[Any], reference: NDArray[Any], inside: NDArray[Any]) -> None:
    """Within the relative error that `Cuts` states, of both; unknown only where it may be."""
    known = np.isfinite(found) & np.isfinite(reference)
    with np.errstate(all="ignore"):
        error = np.abs(found - reference)
        allowed = 2 * (inside + 8) * 2.0**-53 * reference
    assert (error[known] <= allowed[known]).all()
    # The fast kernels may know more than the reference (differences beyond int64), never less.
    lost = np.isfinite(reference) & ~np.isfinite(found) & (inside > 0)
    lost[:1] = False
    assert not lost.any()


@pytest.mark.parametrize("kernel", [generic, cpu], ids=["generic", "cpu"])
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_cuts(kernel: ModuleType, name: str, dtype: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        for n in SIZES:
            values = make(name, dtype, n)
            assert_cuts_are_exact(kernel.cuts(values, pivot_count(n)), values)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_no_cell_is_heavy(name: str, dtype: str) -> None:
    """No open cell holds more than four times its share, whatever the sample saw."""
    for n in SIZES[1:]:
        values = make(name, dtype, n)
        cuts = cpu.cuts(values, pivot_count(n))
        n_valid = int(cuts.n_valid[0])
        inside = np.append(cuts.below, n_valid) - np.append(0, cuts.upto)
        assert inside.max() <= cpu.HEAVY * max(n_valid // pivot_count(n), 1)


def test_a_sample_that_misses_the_data_is_mended() -> None:
    """Ten thousand different elements in a place that no sample of NaN-ridden data sees."""
    values = np.full(2_000_000, np.nan)
    values[1_000_000:1_010_000] = normal(10_000)
    cuts = cpu.cuts(values, 1000)
    assert_cuts_are_exact(cuts, values)
    inside = np.append(cuts.below, 10_000) - np.append(0, cuts.upto)
    assert inside.max() <= cpu.HEAVY * 10


def brackets_of(values: NDArray[Any], n_ends: int) -> Brackets:
    """Ends among the data, and about a third of the cells wanted, the outer ones at times."""
    ordered = valid(values)
    places = (hashed(np.arange(n_ends)) * len(ordered)).astype(np.int64)
    ends = np.unique(ordered[places] if len(ordered) else values[:0])
    return Brackets(ends, hashed(np.arange(len(ends) + 1) + n_ends) < 0.34)


@pytest.mark.parametrize("n_ends", [0, 1, 6, cpu.FEW_ENDS, 100])
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_tally(name: str, dtype: str, n_ends: int) -> None:
    for n in (0, 1, 700, 5000):
        values = make(name, dtype, n)
        brackets = brackets_of(values, n_ends)
        for wanted in (brackets.wanted, ~brackets.wanted, np.ones_like(brackets.wanted)):
            brackets = Brackets(brackets.ends, wanted)
            expected = generic.tally(values, brackets, n)
            found = cpu.tally(values, brackets, n)
            assert expected is not None
            assert found is not None
            np.testing.assert_array_equal(found.below, expected.below)
            np.testing.assert_array_equal(found.upto, expected.upto)
            assert (found.n_valid, found.n_missing) == (expected.n_valid, expected.n_missing)
            assert found.candidates.dtype == values.dtype
            np.testing.assert_array_equal(np.sort(found.candidates), np.sort(expected.candidates))


@pytest.mark.parametrize("kernel", [generic, cpu], ids=["generic", "cpu"])
@pytest.mark.parametrize("n_ends", [4, 100])
def test_tally_refuses_more_candidates_than_there_can_be(kernel: ModuleType, n_ends: int) -> None:
    values = normal(5000)
    brackets = brackets_of(values, n_ends)
    held = len(generic.tally(values, brackets, 5000).candidates)  # type: ignore[union-attr]
    assert held > 0
    assert kernel.tally(values, brackets, held) is not None
    assert kernel.tally(values, brackets, held - 1) is None
    assert kernel.tally(values, brackets, 0) is None


@pytest.mark.parametrize("name", ["float64", "float32", "int8", "int64", "uint64", "uint8"])
def test_the_reference_needs_the_standard_only(name: str) -> None:
    """array_api_strict offers nothing beyond the array API standard."""
    values = (normal(1000) * 30).astype(name) if name != "uint64" else INTEGERS["ends"](1000, "u8")
    if name.startswith("float"):
        values[::50] = np.nan
    strict = array_api_strict.asarray(values)
    found, expected = generic.cuts(strict, 20), generic.cuts(values, 20)
    np.testing.assert_array_equal(found.pivots, expected.pivots)
    np.testing.assert_array_equal(found.below, expected.below)
    np.testing.assert_array_equal(found.upto, expected.upto)
    np.testing.assert_array_equal(found.distance, expected.distance)
    brackets = brackets_of(values, 5)
    tally, reference = (generic.tally(kind, brackets, 1000) for kind in (strict, values))
    assert tally is not None
    assert reference is not None
    np.testing.assert_array_equal(tally.candidates, reference.candidates)
    np.testing.assert_array_equal(tally.upto, reference.upto)


def layouts() -> dict[str, NDArray[Any]]:
    """The same elements in memory in several ways."""
    values = normal(9000).reshape(90, 100)
    readonly = values.copy()
    readonly.flags.writeable = False
    wide = np.empty((90, 200))
    wide[:, ::2] = values
    raw = np.empty(values.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(np.float64).reshape(values.shape)
    unaligned[...] = values
    return {
        "c": values,
        "fortran": np.asfortranarray(values),
        "strided": wide[:, ::2],
        "reversed": values[::-1, ::-1],
        "read-only": readonly,
        "unaligned": unaligned,
        "big-endian": values.astype(">f8"),
        "transposed 3-d": values.reshape(9, 10, 100).transpose(2, 0, 1),
    }


@pytest.mark.parametrize("layout", layouts())
def test_any_layout_in_memory(layout: str) -> None:
    chunk = layouts()[layout]
    cuts = kernels.cuts(chunk, chunk.dtype, 1)
    assert_cuts_are_exact(cuts, normal(9000))
    brackets = Brackets(np.array([-0.5, 0.5]), np.array([False, True, False]))
    tally = kernels.tally(chunk, chunk.dtype, brackets, most_candidates(cuts, brackets))
    assert tally is not None
    expected = np.sort(chunk[(chunk > -0.5) & (chunk < 0.5)])
    np.testing.assert_array_equal(np.sort(tally.candidates), expected)


@pytest.mark.parametrize(
    ("chunk", "missing"),
    [
        (np.array([True, False, True]), 0),
        (normal(100).astype(np.float16), 0),
        (np.array(["2020-01-01", "NaT", "1960-01-01"], "M8[ns]"), 1),
        (np.array([5, -3, 8], ">m8[s]"), 0),
        (np.array(7, "i2"), 0),
        (np.float32(2.5), 0),
    ],
)
def test_dtypes_without_kernels_of_their_own(chunk: Any, missing: int) -> None:
    cuts = kernels.cuts(chunk, chunk.dtype, 1)
    values = np.ravel(chunk)
    ordered = np.unique(values[~np.isnat(values)] if chunk.dtype.kind in "mM" else values)
    assert cuts.n_missing.tolist() == [missing]
    back = kernels.as_dtype(cuts.pivots, chunk.dtype)
    assert back.dtype == chunk.dtype.newbyteorder("=")
    assert np.isin(back, ordered).all()
    assert back[[0, -1]].tolist() == ordered[[0, -1]].tolist()


def test_a_chunk_of_another_dtype_than_declared() -> None:
    safe = kernels.cuts(np.arange(5, dtype=np.int32), np.dtype(np.float64), 1)
    assert safe.pivots.dtype == np.float64
    with pytest.raises(TypeError, match="a chunk has dtype float64, but its array says int64"):
        kernels.cuts(np.arange(5.0), np.dtype(np.int64), 1)


def test_chunks_that_are_no_arrays() -> None:
    with pytest.raises(TypeError, match="chunks of type list are not supported"):
        kernels.cuts([1.0, 2.0], np.dtype(np.float64), 1)
    with pytest.raises(TypeError, match="masked arrays are not supported"):
        kernels.cuts(np.ma.masked_array([1.0], [True]), np.dtype(np.float64), 1)


def test_pivots_do_not_follow_a_period() -> None:
    """A fixed stride of 64 would see one value of sixty-four; hashed places see them all."""
    values = np.tile(np.arange(64.0), 4096)
    assert cpu.cuts(values, pivot_count(len(values))).pivots.tolist() == list(range(64))


def test_kernels_are_compiled_once_for_read_only_and_writable_arrays() -> None:
    kernel = cpu._compiled(cpu._classify, np.dtype(np.float64))
    for layout in ("c", "read-only"):
        kernels.cuts(layouts()[layout], np.dtype(np.float64), 1)
    assert len(kernel.signatures) == 1  # type: ignore[attr-defined]
    assert kernel is cpu._compiled(cpu._classify, np.dtype(np.float64))


@pytest.mark.slow
def test_more_elements_than_32_bits_count() -> None:
    """Zeros take no memory until they are written, so this reads 4 GiB and holds next to none."""
    values = np.zeros(2**32 + 1000, np.uint8)
    values[-1] = 1
    cuts = cpu.cuts(values, 100)
    assert cuts.pivots[0] == 0
    assert cuts.upto[0] == 2**32 + 999
    assert cuts.n_valid.tolist() == [2**32 + 1000]
    brackets = Brackets(np.array([0], np.uint8), np.array([False, True]))
    tally = cpu.tally(values, brackets, 5)
    assert tally is not None
    assert tally.upto.tolist() == [2**32 + 999]
    assert tally.candidates.tolist() == [1]
