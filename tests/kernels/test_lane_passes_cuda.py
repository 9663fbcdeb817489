"""Lanes that a device takes in parts."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.reference import lane_passes as reference
from dask_gpuselect.maths import lane_cuts
from dask_gpuselect.maths.cuts import ChunksChangedError, IntArray
from dask_gpuselect.maths.interpolation import result_dtype
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    LaneSizes,
    LaneTally,
    moved,
)
from dask_gpuselect.maths.ranks import METHODS
from dask_gpuselect.quantiles.questions import Quantiles
from tests.backends import kernel_module
from tests.data import FLOATS, INTEGERS, MISSING, make
from tests.kernels.reports import assert_same


def brackets_of(rows: NDArray[Any]) -> LaneBrackets:
    """Two brackets of each lane: one about its middle, and one of other lanes' elements, of one
    value in every third."""
    ordered = np.sort(rows, axis=1)
    n = rows.shape[1]
    low = np.stack([ordered[:, n // 4], np.roll(ordered[:, n // 2], 1)], axis=1)
    high = np.stack([ordered[:, n // 2 + n // 8], ordered[:, n - 1]], axis=1)
    low[::3, 0] = high[::3, 0]
    if rows.dtype.kind == "f":  # ends are elements, and never missing
        low[np.isnan(low)], high[np.isnan(high)] = 0, 0
    none = np.zeros((len(rows), 2), np.int64)
    return LaneBrackets(low, high, none, none, none[:, 0], none[:, 0])


def assert_cuts(found: LaneCuts, wanted: LaneCuts) -> None:
    assert_same(found, wanted, ("n_inside", "n_before", "n_valid", "n_missing"))
    assert_same(found, wanted, ("low", "high"), wanted.n_inside > 0)


def kinds_of(table: LaneCuts | LaneTally) -> set[type]:
    """The types of the columns."""
    return {type(column) for column in vars(table).values() if column is not None}


def in_order(tally: LaneTally) -> NDArray[Any]:
    """The candidates, those of each bracket ascending."""
    owner = np.repeat(np.arange(tally.n_inside.size), tally.n_inside.ravel())
    ordered: NDArray[Any] = tally.candidates[np.lexsort((tally.candidates, owner))]
    return ordered


def assert_tally(found: LaneTally, wanted: LaneTally) -> None:
    names = {name for name, column in vars(wanted).items() if column is not None}
    assert_same(found, wanted, names - {"candidates"})
    assert found.candidates.dtype == wanted.candidates.dtype
    np.testing.assert_array_equal(in_order(found), in_order(wanted))


def assert_brackets(found: LaneBrackets, wanted: LaneBrackets) -> None:
    names = [field.name for field in fields(LaneBrackets)[:-2]]  # these two are optional
    assert_same(found, wanted, names, wanted.n_valid > 0)


def test_parts_of_one_row_have_the_layout_of_the_others() -> None:
    """Parts are told with one layout: of three lanes, by shapes and strides."""
    rows_first, lanes_first = ((3, 5, 1), (1, 3, 0)), ((3, 5, 1), (5, 1, 0))
    one_row = ((3, 1, 1), (1, 0, 0))
    assert source.are_side_by_side([rows_first])
    assert source.are_side_by_side([one_row, rows_first])
    assert source.are_side_by_side([rows_first, one_row])
    assert not source.are_side_by_side([lanes_first])
    assert not source.are_side_by_side([one_row, lanes_first])
    assert not source.are_side_by_side([one_row, rows_first, lanes_first])
    assert not source.are_side_by_side([one_row, one_row])


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 7, 32, 33, 365, 1500, 3650, 12_000])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i2", "u4", "i8"])
def test_as_the_reference(dtype: str, n: int) -> None:
    import cupy

    kernels = kernel_module("cuda", "lane_passes")
    names = [*FLOATS, *MISSING] if dtype[0] == "f" else list(INTEGERS)
    for i, name in enumerate(names):
        n_lanes = (300 if n < 100 else 20) + i
        rows = make(name, dtype, n_lanes * n).reshape(n_lanes, n)
        rows = rows.astype(selection_dtype(rows.dtype))
        device = cupy.asarray(rows)
        third = n // 3
        rows_first = cupy.asfortranarray(device)
        layouts = [[device], [rows_first], [device[:, :third], device[:, third:]]]
        # Of one row a part's steps say nothing: as the first one, and among parts of two layouts.
        layouts.append([rows_first[:, :1], rows_first[:, 1:]])
        layouts.append(
            [rows_first[:, :1].copy(), device[:, 1 : third + 1], rows_first[:, third + 1 :]]
        )
        for brackets in (None, brackets_of(rows)):
            with np.errstate(invalid="ignore"):
                wanted = reference.cuts([rows], brackets, 9)
            for parts in layouts:
                found = kernels.cuts(parts, brackets, 9)
                assert {type(each) for each in vars(found).values() if each is not None} == {
                    cupy.ndarray
                }
                assert_cuts(moved(found, cupy.asnumpy), wanted)
                if brackets is not None:
                    tally = kernels.tally(parts, brackets)
                    assert {type(each) for each in vars(tally).values() if each is not None} == {
                        cupy.ndarray
                    }
                    assert_tally(moved(tally, cupy.asnumpy), reference.tally([rows], brackets))


@pytest.mark.gpu
@pytest.mark.parametrize("n_parts", [3, 70])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u1", "i4", "i8"])
def test_reports_together(dtype: str, n_parts: int) -> None:
    """As on the host, in two passes, of as many parts as a thread remembers and of more."""
    import cupy

    kernels = kernel_module("cuda", "lane_passes")
    n_lanes, n = 30, 6 * n_parts

    def ranks(n: IntArray) -> tuple[IntArray, IntArray]:
        return np.stack([n // 2, n // 3]), np.stack([n - 1 - (n - 1) // 2, n // 3 + n // 9])

    for name in ["normal", "tied", *MISSING] if dtype[0] == "f" else INTEGERS:
        rows = make(name, dtype, n_lanes * n).reshape(n_lanes, n)
        rows = rows.astype(selection_dtype(rows.dtype))
        rows[3::7] = rows[3::7, :1]
        parts = np.array_split(np.sort(rows, axis=1) if name == "tied" else rows, n_parts, axis=1)
        brackets, on_device = None, None
        for _ in range(2):
            cuts = [reference.cuts([part], brackets, 4) for part in parts]
            merged = lane_cuts.merge(cuts, 5)
            theirs = [moved(each, cupy.asarray) for each in cuts]
            assert_cuts(moved(lane_cuts.merge(theirs, 5, kernels.bracketed), cupy.asnumpy), merged)
            if brackets is None:
                brackets = lane_cuts.find_lane_brackets(cuts, ranks)
                on_device = kernels.find_lane_brackets(theirs, ranks)
                least, most = int(brackets.n_valid.min()), int(brackets.n_valid.max())
                assert replace(on_device.sizes, room=None) == LaneSizes(least, most, None)
                assert on_device.sizes.room is None or most < 4  # too many for so few cuts
            else:
                assert on_device is not None
                brackets = lane_cuts.narrow(cuts, brackets)
                on_device = lane_cuts.narrow(theirs, on_device, kernels.bracketed)
            assert_brackets(moved(on_device, cupy.asnumpy), brackets)
        assert brackets is not None
        assert on_device is not None
        on_device = moved(brackets, cupy.asarray)
        tallies = [reference.tally([part], brackets) for part in parts]
        wanted = lane_cuts.merge_tallies(tallies)
        tally = kernels.merge_tallies([moved(each, cupy.asarray) for each in tallies])
        assert_tally(moved(tally, cupy.asnumpy), wanted)
        found = kernels.order_statistics(tally, on_device)
        expected = lane_cuts.order_statistics(wanted, brackets)
        assert_same(moved(found, cupy.asnumpy), expected, where=wanted.n_valid > 0)
        changed = replace(on_device, n_valid=on_device.n_valid + 1)
        with pytest.raises(ChunksChangedError, match="a 1-D slice had"):
            kernels.order_statistics(tally, changed)
        changed = replace(on_device, upper=on_device.upper + n)
        if wanted.n_valid.any():
            with pytest.raises(ChunksChangedError, match="a 1-D slice has other elements"):
                kernels.order_statistics(tally, changed)


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["median", "linear", "lower", "averaged_inverted_cdf"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u1", "i4", "i8"])
def test_candidates_in_rows(dtype: str, method: str) -> None:
    """Where few elements can be inside, they are gathered in rows: the same answers, bit for bit,
    on the device and on the host, also with other parts that were gathered one after the other."""
    import cupy

    kernels = kernel_module("cuda", "lane_passes")
    n_lanes, n, n_parts = 20, 2400, 4
    kind, q = np.dtype(dtype), (0.5,) if method == "median" else (0.31,)
    of = result_dtype(kind, METHODS.get(method, METHODS["linear"]), weak_q=False)
    for skips_missing in (False, True):
        question = Quantiles(q, method, skips_missing, kind, of)
        for name in [*FLOATS, *MISSING] if dtype[0] == "f" else INTEGERS:
            rows = make(name, dtype, n_lanes * n).reshape(n_lanes, n)
            parts = np.array_split(rows, n_parts, axis=1)
            cuts = [reference.cuts([part], None, 200) for part in parts]
            wanted = lane_cuts.find_lane_brackets(cuts, question.lane_ranks)
            theirs = [kernels.cuts([cupy.asarray(part)], None, 200) for part in parts]
            brackets = kernels.find_lane_brackets(theirs, question.lane_ranks)
            assert_brackets(moved(brackets, cupy.asnumpy), wanted)
            told = [reference.tally([part], wanted) for part in parts]
            both = lane_cuts.merge_tallies(told)
            assert brackets.sizes.room is not None
            assert both.n_inside.max() <= brackets.sizes.room
            tallies = [kernels.tally([cupy.asarray(part)], brackets) for part in parts[:3]]
            assert {tally.candidates.ndim for tally in tallies} == {2}
            dense = replace(brackets, sizes=replace(brackets.sizes, room=None))
            tallies.append(kernels.tally([cupy.asarray(parts[3])], dense))
            tally = kernels.merge_tallies([kernels.merge_tallies(tallies[:2]), *tallies[2:]])
            found = kernels.order_statistics(tally, brackets)
            expected = lane_cuts.order_statistics(both, wanted)
            is_some = both.n_valid > 0
            assert_same(moved(found, cupy.asnumpy), expected, where=is_some)
            answers = kernels.answers(tally, brackets, question)
            if not is_some.all():
                assert answers is None
            elif answers is not None or dtype != "i8":
                host = question.lane_answer(expected)
                assert answers.dtype == host.dtype
                np.testing.assert_array_equal(answers.get(), host)
            # Where a chunk has changed, whatever is read stays inside the rows.
            other = replace(tally, n_valid=tally.n_valid + 1)
            for ask in (kernels.order_statistics, partial(kernels.answers, order=question)):
                if answers is not None or ask is kernels.order_statistics:
                    with pytest.raises(ChunksChangedError, match="a 1-D slice had"):
                        ask(other, brackets)
            wide = replace(brackets, low=brackets.low * 0, high=brackets.high * 0 + 100)
            if name == "normal":
                tally = kernels.merge_tallies([kernels.tally([cupy.asarray(rows)], wide)] * 2)
                with pytest.raises(ChunksChangedError):
                    kernels.order_statistics(tally, brackets)
