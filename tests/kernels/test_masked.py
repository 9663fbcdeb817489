"""Chunks with a mask: every kernel of all elements answers as of those that the mask keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import arrays, kernels
from dask_gpuselect.arrays import to_host
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.maths.cuts import Brackets, IntArray, Tally
from dask_gpuselect.maths.finish import are_gathered, order_statistics
from dask_gpuselect.maths.keys import selection_dtype
from tests.backends import Backend, kernel_module
from tests.data import hashed, normal
from tests.kernels.test_moments import numbers_of

SHAPE = (60, 70, 80)  # more than a GPU's kernels leave to the host
DTYPES = ("f8", "u1", "f4", "f2", "i4", "i8", "u2", "?")

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


class Masked(NamedTuple):
    """A chunk with a mask, the elements that the mask keeps and that are no NaN, ascending, and how
    many of the others there are."""

    chunk: Any
    x: NDArray[Any]
    n_missing: int
    n_left_out: int

    def check(self, tally: Tally | None, brackets: Brackets) -> NDArray[Any]:
        """Assert that a tally is right, and return its candidates, ascending."""
        assert tally is not None
        ends = brackets.ends
        np.testing.assert_array_equal(tally.below, np.searchsorted(self.x, ends, "left"))
        np.testing.assert_array_equal(tally.upto, np.searchsorted(self.x, ends, "right"))
        assert (tally.n_valid, tally.n_missing) == (len(self.x), self.n_missing)
        assert tally.n_left_out == self.n_left_out
        inside = brackets.wanted[np.searchsorted(ends, self.x)] & ~np.isin(self.x, ends)
        candidates = np.sort(tally.candidates.on_host())
        np.testing.assert_array_equal(candidates, self.x[inside])
        return candidates


def masked(backend: Backend, dtype: str, layout: str, rate: float | None) -> Masked:
    """Without a rate, there is neither a mask nor NaN."""
    values = elements(dtype)
    keeps = (hashed(np.arange(np.prod(SHAPE))) < (rate or 1.0)).reshape(SHAPE)
    if rate is None:
        values[values != values] = 50
        chunk = backend.asarray(values)
    else:
        of_values, of_keeps = LAYOUTS[layout]
        if layout == "broadcast":
            mask = backend.xp.broadcast_to(backend.asarray(keeps[0]), SHAPE)
        else:
            mask = of_keeps(backend.asarray(keeps))
        chunk = Accompanied(of_values(backend.asarray(values)), mask)
        values, keeps = of_values(values), of_keeps(keeps)
    x = values[keeps].astype(selection_dtype(np.dtype(dtype)))
    ordered = np.sort(x[x == x])
    return Masked(chunk, ordered, len(x) - len(ordered), values.size - len(x))


@pytest.mark.few(11)
@pytest.mark.parametrize("rate", [0.6, 0.0, 0.001, 1.0])
@pytest.mark.parametrize(
    ("dtype", "layout"),
    [*(("f8", layout) for layout in LAYOUTS), *((dtype, "alike") for dtype in DTYPES[1:])],
)
def test_both_loads(backend: Backend, dtype: str, layout: str, rate: float) -> None:
    of, kind = masked(backend, dtype, layout, rate), np.dtype(dtype)
    cuts = kernels.cuts(of.chunk, kind, 1)
    assert (cuts.n_valid.sum(), cuts.n_missing.sum()) == (len(of.x), of.n_missing)
    np.testing.assert_array_equal(cuts.below, np.searchsorted(of.x, cuts.pivots, "left"))
    np.testing.assert_array_equal(cuts.upto, np.searchsorted(of.x, cuts.pivots, "right"))
    ends = np.unique(np.array([40, 44, 52], selection_dtype(kind)))
    for n_ends in range(1, len(ends) + 1):
        brackets = Brackets(ends[:n_ends], np.arange(n_ends + 1) % 2 == 1)
        for tally in (kernels.tally, kernels.tally_in_place):
            of.check(tally(of.chunk, kind, brackets, of.chunk.size), brackets)
    near = of.x[:100]
    moments = kernels.moments(of.chunk, kind, near)
    assert numbers_of(moments) == numbers_of(kernels.moments(of.x, of.x.dtype, near))


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
    [*(("f8", wanted) for wanted in ALL_WANTED), *((each, "cells") for each in DTYPES[1:])],
)
def test_tally_and_sums(backend: Backend, dtype: str, rate: float | None, wanted: str) -> None:
    """In one read what the kernels find that count, and those that sum; and elements of ranks."""
    of, kind = masked(backend, dtype, "alike", rate), np.dtype(dtype)
    n = len(of.x) + of.n_missing
    ends = np.unique(np.array(ALL_WANTED[wanted][0], selection_dtype(kind)))
    brackets = Brackets(ends, np.isin(np.arange(len(ends) + 1), ALL_WANTED[wanted][1]))

    def ranks(size: int) -> IntArray:
        assert size == n
        return np.unique(np.array([0, n // 3, n // 2, n // 2 + 1, n - 1]))

    tally, sums = kernels.tally_and_sums(of.chunk, kind, brackets, n, ranks)
    assert numbers_of(sums) == numbers_of(kernels.moments(of.chunk, kind, ends))
    candidates = of.check(tally, brackets)
    assert tally is not None
    if not of.n_missing:  # then the ranks are those of the elements
        some = ranks(n)
        some = some[are_gathered(brackets, tally, some)]
        np.testing.assert_array_equal(order_statistics(brackets, tally, some), of.x[some])
    places = np.arange(0, len(candidates), 999)
    np.testing.assert_array_equal(tally.candidates.elements_at(places), candidates[places])
    if len(candidates):
        most = len(candidates) - 1
        nothing, again = kernels.tally_and_sums(of.chunk, kind, brackets, most, ranks)
        assert nothing is None
        assert numbers_of(again) == numbers_of(sums)


@pytest.mark.few(4)
@pytest.mark.parametrize("rate", [0.6, 0.001, 1.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_in_memory(backend: Backend, dtype: str, rate: float) -> None:
    of, kind = masked(backend, dtype, "alike", rate), np.dtype(dtype)

    def ranks(n: int) -> tuple[IntArray, IntArray]:
        middle = np.array([n // 2], np.int64)
        return middle, middle

    for brackets, tally in (
        kernels.pilot(of.chunk, kind, 2000, ranks),
        kernels.whole(of.chunk, kind, ranks),
    ):
        of.check(tally, brackets)
    if rate == 1:
        plain = kernel_module("reference", "sampling").pilot(of.x, 2000, ranks)
        Masked(of.x, of.x, 0, 0).check(plain[1], plain[0])
    sample = kernels.sample(of.chunk, kind, 0.1)
    ordered, share = kernels.sorted_sample(of.chunk, kind, 2000)
    ordered = to_host(ordered)
    ordered = ordered[ordered == ordered]  # NaN may be last
    for drawn, rate in ((sample, 0.1), (ordered, share)):
        assert np.isin(drawn, of.x).all()
        assert len(drawn) == pytest.approx(rate * len(of.x), abs=6 * len(of.x) ** 0.5 + 1)


@pytest.mark.parametrize("n", [0, 1, arrays.COLUMNS, 3 * arrays.COLUMNS + 5])
def test_masks_are_reduced_to_a_number(backend: Backend, n: int) -> None:
    host = np.arange(n) % 3 == 0
    for some in (host, ~host, host | True, host & False):
        mask = backend.asarray(some)
        assert arrays.n_true(mask) == np.count_nonzero(some)
        assert arrays.any_true(mask) is bool(some.any())
        assert arrays.all_true(mask) is bool(some.all())
