"""Elements of groups, and lanes of groups: every kernel does what the reference does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import to_host
from dask_gpuselect.kernels.cpu.cells import SORT_AT_MOST
from dask_gpuselect.kernels.reference import groups as reference
from dask_gpuselect.kernels.reference import selection
from dask_gpuselect.maths.cuts import Brackets, ChunksChangedError, Cuts
from dask_gpuselect.maths.group_guess import GatheredGroups, shares_of
from dask_gpuselect.maths.host_runs import in_slots
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.ragged import Bracketed, CellTally, Wanted, bracket_slots
from tests.backends import NUMPY, Backend, kernel_module
from tests.data import make, normal, uniform
from tests.kernels.test_kernels import assert_cuts_are_exact, assert_no_cell_is_heavy
from tests.selecting import ranks_about

DTYPES = ("f8", "f4", "i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1")
Parts = list[tuple[NDArray[Any], NDArray[np.int32]]]


def elements(dtype: str, n: int) -> NDArray[Any]:
    """With ties, the ends of the dtype, zeros of both signs, denormal numbers and NaN."""
    random = np.random.default_rng(n)
    if dtype[0] == "f":
        values, tiny = normal(n).astype(dtype), np.finfo(dtype).smallest_subnormal
        odd = np.array([0.0, -0.0, tiny, -tiny, np.inf, -np.inf, np.nan, 1.5], dtype)
    else:
        values, info = make("whole range", dtype, n), np.iinfo(dtype)
        odd = np.array([info.min, info.max, 0, 1, 3], dtype)
    return np.where(uniform(n) < 0.4, random.choice(odd, n), values)


def codes(n: int, n_groups: int) -> NDArray[np.int32]:
    """One in eight in no group; half of all in the last but one."""
    random = np.random.default_rng(n + 1)
    numbers = random.integers(-1 if n_groups > 1 else 0, n_groups, n)
    numbers[uniform(n) < 0.1] = -1
    if n_groups > 2:
        numbers[random.random(n) < 0.5] = n_groups - 2
    return numbers.astype(np.int32)


SIZES = ((3000, 0, 17, 19001), (0,), (1,), (40,))  # of chunks
NUMBERS = (50, 1, 2, 4000)
THREE = ranks_about([0.25, 0.5, 1])


def parts_of(dtype: str, sizes: Sequence[int], n_groups: int) -> Parts:
    n, ends = sum(sizes), np.cumsum(sizes)[:-1]
    both = np.split(elements(dtype, n), ends), np.split(codes(n, n_groups), ends)
    return list(zip(*both, strict=True))


def of_kind(backend: Backend, parts: Parts) -> Any:
    return [tuple(map(backend.asarray, part)) for part in parts]


def assert_same(actual: Any, expected: Any, names: Collection[str] = (), where: Any = ...) -> None:
    """Assert that all fields of two partial results are the same, or those of some names; of arrays
    what lies at some places."""
    for name in names or [field.name for field in fields(expected)]:
        mine, theirs = (np.asarray(getattr(each, name)) for each in (actual, expected))
        np.testing.assert_array_equal(mine[where], theirs[where], err_msg=name, strict=True)


def assert_similar(actual: Cuts, expected: Cuts, parts: Parts) -> None:
    """Exact at the extremes and at pivots near enough to each other, whatever the sample saw."""
    values, codes = map(np.concatenate, zip(*parts, strict=True))
    slots = np.unique(expected.slots)
    for (slot, mine), (_, theirs) in zip(actual.each(slots), expected.each(slots), strict=True):
        assert_cuts_are_exact(mine, values[codes == slot])
        assert_no_cell_is_heavy(mine, selection, len(theirs.pivots) or 1)
        assert_same(mine, theirs, ("pivots",), np.array([0, -1])[: len(theirs.pivots)])


def assert_same_lanes(actual: Lanes, expected: Lanes) -> None:
    assert_same(actual, expected, ("n_valid", "n_missing"))
    assert_same(actual, expected, ("lower", "upper"), expected.n_valid > 0)


def assert_same_tally(actual: CellTally, expected: CellTally) -> None:
    """Candidates in any order."""
    assert_same(actual, expected, ("cells", "inside", "equal"))
    orders = [np.lexsort((each.candidates, each.of_cells)) for each in (actual, expected)]
    for name in ("candidates", "of_cells"):
        mine, theirs = getattr(actual, name)[orders[0]], getattr(expected, name)[orders[1]]
        np.testing.assert_array_equal(mine, theirs, err_msg=name, strict=True)


def brackets_of(parts: Parts, n_groups: int, ranks: Any) -> Brackets:
    """As few pivots in many parts leave them."""
    several = [
        reference.cuts([(a[i::9], b[i::9]) for a, b in parts], n_groups, 1) for i in range(9)
    ]
    return bracket_slots(several, n_groups, Wanted.of_ranks(ranks)).brackets


@pytest.mark.few(7)
@pytest.mark.parametrize("n_groups", NUMBERS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_in_groups(
    backend: Backend, dtype: str, sizes: tuple[int, ...], n_groups: int
) -> None:
    kernel: Any = kernel_module("cpu" if backend is NUMPY else "cuda", "groups")
    parts = parts_of(dtype, sizes, n_groups)
    some = of_kind(backend, parts)
    for share in (1, 40):
        both = kernel.cuts(some, n_groups, share), reference.cuts(parts, n_groups, share)
        is_sorted = backend is not NUMPY or both[1].n_valid.max(initial=0) <= SORT_AT_MOST
        assert_same(*both) if is_sorted else assert_similar(*both, parts)
    for ranks in (THREE, ranks_about(np.linspace(0, 1, 60))):
        brackets = brackets_of(parts, n_groups, ranks)
        assert_same_tally(kernel.tally(some, brackets), reference.tally(parts, brackets))
    with pytest.MonkeyPatch.context() as patch:
        for ranks in (ranks_about([]), THREE, ranks_about([0.5]), THREE):
            wanted = reference.elements(parts, n_groups, ranks)
            assert_same_lanes(kernel.elements(some, n_groups, ranks), wanted)
            patch.setattr(kernel, "WORTH_GUESSING", -(1 << 40), raising=False)  # then by a guess
            patch.setattr(kernel, "_fits", lambda n: n <= 1 << 11, raising=False)  # of few at once


# --- Labels ---------------------------------------------------------------------------------------

I8, U8, WIDE = np.int64, np.uint64, 2**53
LABELS: dict[str, tuple[list[Any], Any, list[Any], Any]] = {
    "numbers": ([*range(5)], I8, [3, 0, 4, 4, 9, -1, 2], I8),
    "in another order": ([30, -7, 12], I8, [12, 12, -7, 0, 30, 31], I8),
    "unsigned": ([2**64 - 1, 5], U8, [5, 2**64 - 1, 0], U8),
    "unsigned, from far up": ([2**63, 2**64 - 1], U8, [2**64 - 1, 0, 2**63], U8),
    "negative names": ([-1, 5], I8, [5, 2**64 - 1, 0], U8),
    "names of half the range": ([2**63 + 5, 7], U8, [5, 7], U8),
    "names at the other end": ([-(2**63), 1], I8, [2**63, 1], U8),
    "far apart": ([-(2**62), 2**62], I8, [2**62, 0, -(2**62), 1], I8),
    "ends": ([-(2**63), 2**63 - 1], I8, [-(2**63), 2**63 - 1], I8),
    "at one end": ([-(2**63) + 1, -(2**63)], I8, [-(2**63), -(2**63) + 1], I8),
    "small": ([200, 3], np.uint8, [3, 200, 199, 255], np.uint8),
    "beyond": ([300, 3], I8, [3, 44, 255], np.uint8),
    "beyond both ends": ([-1, 0, 1, 256, 255], I8, [0, 255], np.uint8),
    "beyond with a sign": ([1000, 127, -128, -129], I8, [-128, 127, 0, -1], np.int8),
    "others alone": ([70_000, 70_001], I8, [1, 2], I8),
    "bools": ([False, True], None, [True, False, True], None),
    "numbers of bools": ([2, 1, 0], I8, [True, False], None),
    "floats": ([1.0, 3.0], None, [3.0, np.nan, 1.0, 2.0], None),
    "names that are floats": ([2.0**53, 7], None, [WIDE, WIDE + 1], I8),
    "labels that are floats": ([WIDE + 1, WIDE, 7], I8, [2.0**53, 7], None),
    "floats beyond": ([2.0**63, -1], None, [2**63 - 1, -1], I8),
    "floats beyond unsigned": ([2.0**64, 2.0**63, -1], None, [2**64 - 1, 2**63], U8),
    "no names": ([], I8, [3, 4, 5], I8),
    "none": ([1, 2], I8, [], I8),
}
"""Names and labels, each with a dtype."""


@pytest.mark.parametrize("name", LABELS)
def test_labels(backend: Backend, name: str) -> None:
    """Numbers are compared as numbers, also where one dtype cannot hold the other's."""
    names, of_names, labels, of_labels = LABELS[name]
    host = np.array(labels, of_labels)
    some = backend.asarray(np.tile(host, (2, 1)))
    codes = kernels.labels.codes_among(some, np.array(names, of_names))
    places = {label: i for i, label in enumerate(names)}
    assert to_host(codes).tolist() == [[places.get(label, -1) for label in labels]] * 2
    distinct = kernels.labels.distinct(some)
    assert isinstance(distinct, np.ndarray)
    np.testing.assert_array_equal(distinct, np.unique(host[host == host]), strict=True)


# --- Brackets by a sample ---


def test_places_of_gathered_elements() -> None:
    """Places are those in the order of cells and values, with an end behind each cell."""
    counts = np.array(
        [[[5, 1], [2, 3], [4, 0]], [[0, 0], [0, 0], [0, 0]], [[1, 2], [3, 2], [1, 0]]]
    )
    wanted = np.array([[False, True, False], [True, True, True], [False, True, True]])
    about = GatheredGroups(counts, wanted)
    assert about.n_valid.tolist() == [15, 0, 9]
    # The places of the first end, two candidates, the second end, and so on.
    found = about.places(np.array([[5], [6], [7], [8], [10], [16], [17], [18], [23]]))
    assert found is not None
    assert found[:, 0].tolist() == [0, 1, 2, 3, 3, 6, 6, 7, 11]
    assert [about.places(np.array([[rank]])) for rank in (4, 11, 15)] == [None] * 3
    assert shares_of(lambda n: (n[None] // 4, n[None] // 2), 100).tolist() == [0.38]


def test_counts_that_changed_are_seen() -> None:
    """An element that is in another group than before is not taken for one of the next group."""
    values, codes = np.arange(8.0), np.array([0, 0, 0, 1, 1, 1, 1, 1], np.int32)
    brackets = Brackets(values[[1, 5]], np.tile([False, True], 2), n_ends=np.ones(2, np.int64))
    tally = reference.tally([(values, codes)], brackets)
    about = Bracketed(brackets, np.array([4, 4]), np.zeros(2, np.int64))
    with pytest.raises(ChunksChangedError, match="groups have other sizes"):
        in_slots(tally, about, reference.in_groups)
