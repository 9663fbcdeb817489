"""Elements of groups, and lanes of groups: every kernel does what the reference does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.reference import groups as reference
from dask_gpuselect.kernels.reference import labels as reference_labels
from dask_gpuselect.maths.cuts import Brackets, IntArray
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.ragged import CellTally, bracket_slots
from dask_gpuselect.quantiles.questions import Quantiles
from tests.backends import CUPY, NUMPY, Backend, kernel_module
from tests.data import make, normal, uniform
from tests.kernels.reports import assert_same

DTYPES = ("f8", "f4", "i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1")
Parts = list[tuple[NDArray[Any], NDArray[np.int32]]]


def kernel_of(backend: Backend) -> Any:
    return kernel_module("cpu" if backend is NUMPY else "cuda", "groups")


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
    found = random.integers(-1 if n_groups > 1 else 0, n_groups, n)
    found[uniform(n) < 0.1] = -1
    if n_groups > 2:
        found[random.random(n) < 0.5] = n_groups - 2
    return found.astype(np.int32)


SIZES = ((3000, 0, 17, 9001), (0,), (1,), (40,))  # of chunks
NUMBERS = (50, 1, 2, 4000)


def parts_of(dtype: str, sizes: Sequence[int], n_groups: int) -> Parts:
    n = sum(sizes)
    ends = np.cumsum(sizes)[:-1]
    both = np.split(elements(dtype, n), ends), np.split(codes(n, n_groups), ends)
    return list(zip(*both, strict=True))


def three(n: IntArray) -> tuple[IntArray, IntArray]:
    lower = np.stack([(n - 1) // 4, (n - 1) // 2, n - 1])
    return lower, np.minimum(lower + 1, n - 1)


def of_kind(backend: Backend, parts: Parts) -> Any:
    return [tuple(map(backend.asarray, part)) for part in parts]


def assert_same_lanes(found: Lanes, wanted: Lanes) -> None:
    assert_same(found, wanted, ("n_valid", "n_missing"))
    assert_same(found, wanted, ("lower", "upper"), wanted.n_valid > 0)


def assert_same_tally(found: CellTally, wanted: CellTally) -> None:
    """Candidates in any order."""
    assert_same(found, wanted, ("cells", "inside", "equal"))
    orders = [np.lexsort((each.candidates, each.of_cells)) for each in (found, wanted)]
    for name in ("candidates", "of_cells"):
        of_both = getattr(found, name), getattr(wanted, name)
        assert of_both[0].dtype == of_both[1].dtype
        np.testing.assert_array_equal(of_both[0][orders[0]], of_both[1][orders[1]], err_msg=name)


def brackets_of(parts: Parts, n_groups: int) -> Brackets:
    """As few pivots in many parts leave them."""
    several = [
        reference.cuts([(a[i::9], b[i::9]) for a, b in parts], n_groups, 1) for i in range(9)
    ]
    return bracket_slots(several, n_groups, three).brackets


@pytest.mark.few(7)
@pytest.mark.parametrize("n_groups", NUMBERS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_in_groups(
    backend: Backend, dtype: str, sizes: tuple[int, ...], n_groups: int
) -> None:
    kernel = kernel_of(backend)
    parts = parts_of(dtype, sizes, n_groups)
    some = of_kind(backend, parts)
    for share in (1, 40):
        assert_same(kernel.cuts(some, n_groups, share), reference.cuts(parts, n_groups, share))
    brackets = brackets_of(parts, n_groups)
    assert_same_tally(kernel.tally(some, brackets), reference.tally(parts, brackets))
    wanted = reference.elements(parts, n_groups, three)
    assert_same_lanes(kernel.elements(some, n_groups, three), wanted)


def test_parts_that_are_strided(backend: Backend) -> None:
    ((values, of_groups),) = parts_of("f8", (5000,), 20)
    some = [(backend.asarray(values)[::3], backend.asarray(of_groups)[::3])]
    wanted = reference.cuts([(values[::3], of_groups[::3])], 20, 2)
    assert_same(kernel_of(backend).cuts(some, 20, 2), wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("n_groups", [1, 30, 200])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u8"])
def test_guesses(dtype: str, n_groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found by brackets of a sample, and where these fail."""
    from dask_gpuselect.kernels.cuda import groups as cuda
    from dask_gpuselect.maths import group_guess

    parts = parts_of(dtype, (400_000, 0, 800_000), n_groups)
    some = of_kind(CUPY, parts)
    wanted = kernel_module("cpu", "groups").elements(parts, n_groups, three)
    monkeypatch.setattr(cuda, "WORTH_GUESSING", 0)
    monkeypatch.setattr(cuda, "WORTH_OF_GROUP", 0)
    monkeypatch.setattr(cuda, "sample_size", lambda *_: (300_000, 290_000))
    guessed = cuda._by_guess(some, n_groups, three)
    assert guessed is not None
    assert_same_lanes(guessed, wanted)
    assert_same_lanes(cuda.elements(some, n_groups, three), wanted)
    if dtype[0] == "f":
        monkeypatch.setattr(group_guess, "WIDTH", -3)  # nothing but the wrong elements
        assert cuda._by_guess(some, n_groups, three) is None
        assert_same_lanes(cuda.elements(some, n_groups, three), wanted)
    if dtype != "i2":  # brackets of ties may need no room
        monkeypatch.setattr(cuda, "sample_size", lambda *_: (300_000, 10))  # no room
        assert cuda._by_guess(some, n_groups, three) is None


@pytest.mark.gpu
@pytest.mark.parametrize("n_groups", [40, 60_000])
@pytest.mark.parametrize("dtype", ["f4", "i8"])
def test_nearly_all_are_candidates(dtype: str, n_groups: int) -> None:
    """More than there is room for at first; tables in shared memory, and not."""
    parts = parts_of(dtype, (100_000, 150_000), n_groups)
    brackets = brackets_of([(a[:100], b[:100]) for a, b in parts], n_groups)
    every = replace(brackets, wanted=np.ones_like(brackets.wanted))
    found = kernel_module("cuda", "groups").tally(of_kind(CUPY, parts), every)
    assert_same_tally(found, kernel_module("cpu", "groups").tally(parts, every))


# --- Labels ---------------------------------------------------------------------------------------

LABELS: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {
    "numbers": (np.arange(5), np.array([3, 0, 4, 4, 9, -1, 2])),
    "in another order": (np.array([30, -7, 12]), np.array([12, 12, -7, 0, 30, 31])),
    "unsigned": (np.array([2**64 - 1, 5], np.uint64), np.array([5, 2**64 - 1, 0], np.uint64)),
    "negative names": (np.array([-1, 5]), np.array([5, 2**64 - 1, 0], np.uint64)),
    "far apart": (np.array([-(2**62), 2**62]), np.array([2**62, 0, -(2**62), 1])),
    "small": (np.array([200, 3], np.uint8), np.array([3, 200, 199, 255], np.uint8)),
    "beyond": (np.array([300, 3]), np.array([3, 44, 255], np.uint8)),
    "bools": (np.array([False, True]), np.array([True, False, True])),
    "floats": (np.array([1.0, 3.0]), np.array([3.0, np.nan, 1.0, 2.0])),
    "none": (np.array([1, 2]), np.array([], np.int64)),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels(backend: Backend, name: str) -> None:
    names, labels = LABELS[name]
    some = backend.asarray(np.tile(labels, (2, 1)))
    found = kernels.codes_among(some, names)
    wanted = reference_labels.codes_among(np.tile(labels, (2, 1)), names)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found if isinstance(found, np.ndarray) else found.get(), wanted)
    ours = kernels.distinct_labels(some)
    right = reference_labels.distinct(labels)
    assert isinstance(ours, np.ndarray)
    assert ours.dtype == right.dtype
    np.testing.assert_array_equal(ours, right)


# --- Lanes ----------------------------------------------------------------------------------------


def question(q: tuple[float, ...], dtype: str, *, skips: bool) -> Quantiles:
    answer = np.dtype(dtype if np.dtype(dtype).kind == "f" else "f8")
    return Quantiles(q, "linear", skips, np.dtype(dtype), answer)


def places_of(n: int) -> dict[str, list[IntArray]]:
    """Groups of about one size, of all sizes, one without elements; windows that overlap."""
    numbers = np.arange(n) * 7 % n
    skewed = np.sort(np.floor(9 * uniform(n) ** 4).astype(int))[np.argsort(uniform(n + 1)[:n])]
    return {
        "even": [np.flatnonzero(numbers % 12 == i) for i in range(12)],
        "many": [np.flatnonzero(np.arange(n) % 100 == i) for i in range(100)],
        "skewed": [np.flatnonzero(skewed == i) for i in (3, 0, 7, 8, 1, 99)],
        "windows": [np.arange(i, min(i + 9, n)) for i in range(0, n, 5)],
        "one": [np.arange(n)],
    }


def of_groups(chunks: Any, dtype: Any, axis: int, asked: Quantiles, places: Any) -> Any:
    return kernels.answer_group_lanes(chunks, dtype, (axis,), asked, partial(list, places))


def one_by_one(
    a: NDArray[Any], keeps: NDArray[np.bool_] | None, axis: int, asked: Quantiles, places: Any
) -> NDArray[Any]:
    """The lanes of one group after the other."""
    found = []
    for each in places:
        chunk = a.take(each, axis)
        chunk = chunk if keeps is None else Accompanied(chunk, keeps.take(each, axis))
        found.append(kernels.answer_lanes([chunk], a.dtype, (axis,), asked))
    return np.stack(found, axis=1)


# Of groups without elements.
no_warnings = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@no_warnings
@pytest.mark.gpu
@pytest.mark.parametrize("groups", ["even", "many", "skewed", "windows", "one"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i2", "u1", "i8"])
def test_lanes_of_groups(dtype: str, axis: int, groups: str) -> None:
    """As lanes of one group after the other, in a chunk and in several."""
    n = 730
    shape = [5, 37, 3]
    shape[axis] = n
    a = elements(dtype, int(np.prod(shape)))
    a = np.clip(a, -(2**50), 2**50).astype(dtype) if dtype == "i8" else a
    a = a.reshape(shape)
    places = places_of(n)[groups]
    for q, skips in (((0.5,), True), ((0.0, 0.3, 1.0), False)):
        asked = question(q, dtype, skips=skips)
        wanted = one_by_one(a, None, axis, asked, places)
        for cuts in ([], [100, 100, 411]):
            pieces = map(CUPY.asarray, np.split(a, cuts, axis))
            chunks = [Accompanied(each, labels=each) for each in pieces]
            found = of_groups(chunks, a.dtype, axis, asked, places)
            np.testing.assert_array_equal(found.get(), wanted)


@pytest.mark.gpu
def test_lanes_of_groups_that_no_kernel_takes() -> None:
    a, wide = np.arange(2.0 * 70_000).reshape(70_000, 2), np.array([[2**60 + 1], [2**60 + 3]])
    asked = question((0.5,), "f8", skips=False)
    for values, weights, places in (
        (a, None, [np.arange(70_000), np.arange(3)]),
        (a[:0], None, [np.arange(0)]),
        (wide, None, [np.arange(2)]),
        (a, a, [np.arange(5)]),
    ):
        x, w = (None if each is None else CUPY.asarray(each) for each in (values, weights))
        chunk = Accompanied(x, weights=w, labels=x)
        assert of_groups([chunk], values.dtype, 0, asked, places) is None


@no_warnings
@pytest.mark.gpu
@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u1", "i8"])
def test_masked_lanes_of_groups(dtype: str, skips: bool) -> None:
    """As lanes of one group after the other, or not at all: NaN among what takes part is told from
    what is left out by these."""
    shape = (100, 4, 9)
    a = elements(dtype, 3600).reshape(shape)
    plain = np.nan_to_num(a) if a.dtype.kind == "f" else a
    keeps = uniform(3600).reshape(shape) < 0.6
    keeps[:, 2, 3] = False
    groups = [np.arange(i, 100, 7) for i in range(7)] + [np.arange(0)]
    asked = question((0.2, 0.5), dtype, skips=skips)
    for values in (a, plain):
        for where, some in ((keeps, groups), (np.ones_like(keeps), groups[:-1])):
            x, y = map(CUPY.asarray, (values, where))
            chunks = [
                Accompanied(x[part], keeps=y[part], labels=x[part])
                for part in (slice(0, 30), slice(30, 100))
            ]
            found = of_groups(chunks, a.dtype, 0, asked, some)
            has_missing = values is a and dtype[0] == "f"
            is_taken = not has_missing or (skips and some is not groups)
            assert (found is not None) == (is_taken and dtype != "i8")
            if found is not None:
                wanted = one_by_one(values, where, 0, asked, some)
                np.testing.assert_array_equal(found.get(), wanted)
