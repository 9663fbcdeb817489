"""Chunks with a mask: every kernel of all elements answers as of those that the mask keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.maths.cuts import Brackets, IntArray
from dask_gpuselect.maths.finish import is_held, order_statistics
from dask_gpuselect.maths.keys import selection_dtype
from tests.backends import Backend
from tests.data import hashed, normal

SHAPE = (60, 70, 80)  # more than a GPU's kernels leave to the host
DTYPES = ("f4", "f8", "f2", "i4", "u1", "i8", "u2", "?")

Views = Callable[[Any], Any]
LAYOUTS: dict[str, tuple[Views, Views]] = {  # of the elements, and of the mask
    "alike": (lambda a: a, lambda a: a),
    "transposed": (lambda a: a.T, lambda a: a.T),
    "of different order": (lambda a: a, lambda a: a.T.copy().T),
    "backwards": (lambda a: a[::-1, :, ::-1], lambda a: a[::-1, :, ::-1]),
    "with steps": (lambda a: a[:, ::2], lambda a: a[:, ::2]),
    "cut off": (lambda a: a.ravel()[3:], lambda a: a.ravel()[3:].copy()),
    "broadcast": (lambda a: a, lambda a: np.broadcast_to(a[0], a.shape)),
}


def elements(dtype: str) -> NDArray[Any]:
    x = 50 + 20 * normal(int(np.prod(SHAPE)))
    values = (x > 50) if dtype == "?" else x.astype(dtype)
    if values.dtype.kind == "f":
        values[hashed(np.arange(x.size) + 5) < 0.02] = np.nan
    return values.reshape(SHAPE)


def masked(backend: Backend, dtype: str, layout: str, rate: float) -> tuple[Accompanied, Any]:
    """A chunk with a mask, and what is kept, ascending, without NaN."""
    values, keeps = elements(dtype), (hashed(np.arange(np.prod(SHAPE))) < rate).reshape(SHAPE)
    of_values, of_keeps = LAYOUTS[layout]
    if layout == "broadcast":
        mask = backend.xp.broadcast_to(backend.asarray(keeps[0]), SHAPE)
    else:
        mask = of_keeps(backend.asarray(keeps))
    chunk = Accompanied(of_values(backend.asarray(values)), mask)
    kept = of_values(values)[of_keeps(keeps)].astype(selection_dtype(np.dtype(dtype)))
    return chunk, np.sort(kept)


def valid(kept: NDArray[Any]) -> NDArray[Any]:
    return kept[~np.isnan(kept)] if kept.dtype.kind == "f" else kept


@pytest.mark.few(4)
@pytest.mark.parametrize("rate", [0.6, 0.0, 0.001, 1.0])
@pytest.mark.parametrize(
    ("dtype", "layout"),
    [*((dtype, "alike") for dtype in DTYPES), *(("f4", layout) for layout in LAYOUTS)],
)
def test_both_loads(backend: Backend, dtype: str, layout: str, rate: float) -> None:
    chunk, kept = masked(backend, dtype, layout, rate)
    x, kind = valid(kept), np.dtype(dtype)
    cuts = kernels.cuts(chunk, kind, 1)
    assert (cuts.n_valid.sum(), cuts.n_missing.sum()) == (len(x), len(kept) - len(x))
    np.testing.assert_array_equal(cuts.below, np.searchsorted(x, cuts.pivots, "left"))
    np.testing.assert_array_equal(cuts.upto, np.searchsorted(x, cuts.pivots, "right"))
    ends = np.unique(np.array([40, 44, 52], selection_dtype(kind)))
    for n_ends in range(1, len(ends) + 1):
        some = ends[:n_ends]
        wanted = np.arange(n_ends + 1) % 2 == 1
        for tally in (kernels.tally, kernels.tally_in_place):
            found = tally(chunk, kind, Brackets(some, wanted), chunk.size)
            assert found is not None
            np.testing.assert_array_equal(found.below, np.searchsorted(x, some, "left"))
            np.testing.assert_array_equal(found.upto, np.searchsorted(x, some, "right"))
            assert (found.n_valid, found.n_missing) == (len(x), len(kept) - len(x))
            assert found.n_left_out == chunk.size - len(kept)
            place = np.searchsorted(some, x)
            inside = wanted[place] & ~np.isin(x, some)
            np.testing.assert_array_equal(np.sort(found.candidates.on_host()), x[inside])


ALL_WANTED: dict[str, tuple[Sequence[float], Sequence[int]]] = {
    "cells": ([40, 44, 48, 52, 60], [0, 2, 5]),
    "an end alone": ([40, 44, 48, 52], [0, 4]),
    "ends": ([40, 44], []),
    "neighbours": ([40, 44, 52], [1, 2]),
    "six": ([30, 35, 40, 42, 44, 46, 48, 50, 52, 54, 56, 60], [0, 2, 4, 6, 8, 12]),
    "everything": ([], [0]),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("rate", [0.6, None])
@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [*(("f4", wanted) for wanted in ALL_WANTED), *((each, "cells") for each in DTYPES[1:])],
)
def test_tally_and_sums(backend: Backend, dtype: str, rate: float | None, wanted: str) -> None:
    """In one read what the kernels find that count, and those that sum; and elements of ranks."""
    kind = np.dtype(dtype)
    chunk, kept = masked(backend, dtype, "alike", rate or 1.0)
    if rate is None:  # neither a mask nor NaN
        values = elements(dtype)
        values[values != values] = 50
        chunk, kept = backend.asarray(values), np.sort(values.ravel()).astype(selection_dtype(kind))
    x = valid(kept)
    ends = np.unique(np.array(ALL_WANTED[wanted][0], selection_dtype(kind)))
    cells = np.isin(np.arange(len(ends) + 1), ALL_WANTED[wanted][1])
    brackets = Brackets(ends, cells)

    def ranks(n: int) -> IntArray:
        assert n == len(kept)
        return np.unique(np.array([0, n // 3, n // 2, n // 2 + 1, n - 1]))

    found, sums = kernels.tally_and_sums(chunk, kind, brackets, len(kept), ranks)
    alone = kernels.tally(chunk, kind, brackets, len(kept))
    assert sums == kernels.moments(chunk, ends, kind)
    assert found is not None
    assert alone is not None
    for name in ("below", "upto", "n_valid", "n_missing", "n_left_out"):
        np.testing.assert_array_equal(getattr(found, name), getattr(alone, name), err_msg=name)
    candidates = np.sort(found.candidates.on_host())
    np.testing.assert_array_equal(candidates, np.sort(alone.candidates.on_host()))
    if len(x) == len(kept):  # then the ranks are those of the elements
        asked = ranks(len(kept))
        asked = asked[is_held(brackets, found, asked)]
        np.testing.assert_array_equal(order_statistics(brackets, found, asked), x[asked])
    places = np.arange(0, len(candidates), 999)
    np.testing.assert_array_equal(found.candidates.elements_at(places), candidates[places])
    if len(candidates):
        most = len(candidates) - 1
        assert kernels.tally_and_sums(chunk, kind, brackets, most, ranks) == (None, sums)


@pytest.mark.parametrize("rate", [0.6, 0.001, 1.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_in_memory(backend: Backend, dtype: str, rate: float) -> None:
    chunk, kept = masked(backend, dtype, "alike", rate)
    x, kind = valid(kept), np.dtype(dtype)

    def ranks(n: int) -> tuple[IntArray, IntArray]:
        middle = np.array([n // 2], np.int64)
        return middle, middle

    for brackets, found in (
        kernels.pilot(chunk, kind, 2000, ranks),
        kernels.whole(chunk, kind, ranks),
    ):
        assert found is not None
        assert (found.n_valid, found.n_missing) == (len(x), len(kept) - len(x))
        assert found.n_left_out == chunk.size - len(kept)
        np.testing.assert_array_equal(found.below, np.searchsorted(x, brackets.ends, "left"))
        place = np.searchsorted(brackets.ends, x)
        inside = brackets.wanted[place] & ~np.isin(x, brackets.ends)
        np.testing.assert_array_equal(np.sort(found.candidates.on_host()), x[inside])
    sample = kernels.sample(chunk, kind, 0.1)
    ordered, share = kernels.sorted_sample(chunk, kind, 2000)
    ordered = backend.xp.asnumpy(ordered) if backend.name == "cupy" else ordered
    ordered = ordered[ordered == ordered]  # NaN may be last
    for drawn in (sample, ordered):
        assert np.isin(drawn, x).all()
    assert len(sample) == pytest.approx(0.1 * len(x), abs=6 * len(x) ** 0.5 + 1)
    assert len(ordered) == pytest.approx(share * len(x), abs=6 * len(x) ** 0.5 + 1)


@pytest.mark.parametrize("rate", [0.6, 0.0])
@pytest.mark.parametrize(
    ("dtype", "layout"),
    [*((dtype, "alike") for dtype in DTYPES), *(("f4", layout) for layout in LAYOUTS)],
)
def test_exact_sums(backend: Backend, dtype: str, layout: str, rate: float) -> None:
    chunk, kept = masked(backend, dtype, layout, rate)
    near = kept[:100]
    wanted = kernels.moments(valid(kept), near, kept.dtype)
    assert kernels.moments(chunk, near, np.dtype(dtype)) == wanted


def test_a_sample_of_a_mask_is_fair(backend: Backend) -> None:
    """Sorted elements, of which a mask keeps few at one end and all at the other."""
    n = 1 << 19
    x = np.arange(n, dtype=np.float32)
    keeps = hashed(np.arange(n)) < np.linspace(0.05, 1, n)
    kept = x[keeps]
    chunk = Accompanied(backend.asarray(x), backend.asarray(keeps))

    def ranks(size: int) -> tuple[IntArray, IntArray]:
        place = np.array([size // 4], np.int64)
        return place, place

    brackets, found = kernels.pilot(chunk, x.dtype, 4000, ranks)
    assert found is not None
    low, high = np.searchsorted(kept, brackets.ends)
    assert low < len(kept) // 4 < high
    assert high - low < len(kept) // 8
