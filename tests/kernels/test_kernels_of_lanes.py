"""Ranks of lanes, of windows and of distances from a centre, and how kernels lay lanes out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn
from dask_gpuselect.kernels.cpu import (
    few,
    lane_nearest,
    lanes,
    long_lanes,
    row_networks,
    window_lanes,
)
from dask_gpuselect.maths.atoms import Atoms
from dask_gpuselect.maths.lane_cuts import join
from dask_gpuselect.maths.sorted_lanes import SortedLanes, pick
from tests.data import FLOATS, INTEGERS, MISSING
from tests.kernels.test_groups_kernels import assert_same_lanes
from tests.selecting import ranks_about

pytestmark = pytest.mark.any_dask  # of kernels alone

RANKS = ranks_about([0, 0.1, 0.5, 0.77, 1])


def table(name: str, dtype: str, n: int) -> NDArray[np.generic]:
    """Make lanes of one kind of data: as they come, ascending, and with neighbours exchanged."""
    make = INTEGERS.get(name)
    with np.errstate(over="ignore", under="ignore"):
        values = (FLOATS | MISSING)[name](8 * n) if make is None else make(8 * n, dtype)
        rows = values.astype(dtype).reshape(8, n)
    rows[3:5].sort(axis=1)
    rows[5] = np.sort(rows[5])[::-1]
    return rows


@np.errstate(over="ignore")
@pytest.mark.parametrize("n", [1, 17, 200])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u8"])
def test_nearest_elements_are_found_in_sorted_lanes(dtype: str, n: int) -> None:
    for name in FLOATS | MISSING if dtype[0] == "f" else INTEGERS:
        rows = table(name, dtype, n)
        whole = SortedLanes.of_rows(np.sort(rows, axis=1))
        centres = np.nan_to_num(rows[:, 0].astype("f4" if dtype == "f4" else "f8"), posinf=0)
        distances = SortedLanes.of_rows(np.sort(abs(rows - centres[:, None]), axis=1))
        assert_same_lanes(lane_nearest.pick_nearest(whole, centres, RANKS), pick(distances, RANKS))


@pytest.mark.parametrize(("n", "shape"), [(40, (3, 512)), (1100, (2, 256)), (513, (600,))])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "M8[s]"])
def test_lanes_lie_side_by_side_whatever_their_distance(
    dtype: str, n: int, shape: tuple[int, ...]
) -> None:
    values = np.random.default_rng(n).integers(0, 30_000, (n, *shape)).astype(dtype)
    wanted = np.moveaxis(values, 0, -1).reshape(-1, n)
    first = np.arange(n) % 3 > 0
    keeps = np.broadcast_to(np.expand_dims(first, tuple(range(1, values.ndim))), values.shape)
    every_second = np.repeat(values, 2, axis=-1)[..., ::2]
    for chunk in (values, every_second, np.asfortranarray(values)):
        for each in (chunk, Accompanied(chunk), Accompanied(chunk, keeps)):
            parts = lanes.parts_of(ChunkColumn([each, each[:30]], np.dtype(dtype), (0,)))
            put = None if each is chunk else lanes.put_masked
            whole = np.concatenate([table.copy() for table in few.tiles(parts, put, most=300)])
            assert whole.shape == (len(wanted), n + 30)
            taking_part = slice(None) if each is chunk or each.keeps is None else first
            np.testing.assert_array_equal(whole[:, :n][:, taking_part], wanted[:, taking_part])


def test_lanes_of_whole_chunks_are_in_one_row() -> None:
    """Tables of lanes are full then."""
    values = np.arange(24.0).reshape(2, 3, 4)
    for chunk, shape in ((values, (12, 2)), (values[:, :, :3], (3, 3, 2))):
        (part,) = lanes.parts_of(ChunkColumn([chunk], values.dtype, (0,)))
        assert (part.shape, np.shares_memory(part, values)) == (shape, True)


@np.errstate(over="ignore")
@pytest.mark.parametrize("n", [1, 17, 400])
@pytest.mark.parametrize("q", [[0.5], [0], [1, 0.77, 0.1, 0.11, 0]])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u8"])
def test_selected_lanes_have_the_ranks_of_sorted_lanes(dtype: str, q: list[float], n: int) -> None:
    """Those without valid elements have any."""
    ranks = ranks_about(q)
    for name in FLOATS | MISSING if dtype[0] == "f" else INTEGERS:
        rows = table(name, dtype, n)
        if name in MISSING:  # signalling NaN
            rows.view(f"u{rows.itemsize}")[np.isnan(rows)] -= (1 << np.finfo(dtype).nmant - 1) - 1
        whole = pick(SortedLanes.of_rows(np.sort(rows, axis=1)), ranks)
        assert_same_lanes(long_lanes.select(rows, ranks), whole)
        assert long_lanes.select(rows[:0], ranks).lower.shape == (0, len(q))


WINDOWS = {
    "few": [(0, 5), (2, 7), (6, 11)],
    "many": [(0, 30), (15, 45), (30, 60)],
    "of several sizes": [(0, 9), (3, 14), (0, 0), (5, 8), (20, 60)],
}


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize(("dtype", "name"), [("f4", "some nan"), ("f8", "tied"), ("u1", "few")])
def test_windows_have_the_ranks_of_sorted_elements(dtype: str, name: str, windows: str) -> None:
    ranks = ranks_about([0, 0.3, 1])
    rows = table(name, dtype, 60)
    each = [np.arange(*window) for window in WINDOWS[windows]]
    atoms = Atoms.of(each, 60)
    assert atoms is not None
    actual = window_lanes.window_lanes([rows[:, :25], rows[:, 25:]], atoms, ranks)
    whole = [pick(SortedLanes.of_rows(np.sort(rows[:, own], axis=1)), ranks) for own in each]
    assert actual is not None
    assert_same_lanes(actual, join(whole))


@pytest.mark.parametrize("n", range(1, 9))
def test_networks_sort(n: int) -> None:
    """All zeros and ones, so everything (Knuth's 0-1 principle); and find each rank alone."""
    rows = np.array(list(itertools.product([0, 1], repeat=n)), np.int8)
    wanted = np.sort(rows, axis=1).T
    for ranks in (tuple(range(n)), *((rank,) for rank in range(n))):
        result = few._exchanged(rows.T.copy(), few.exchanges(n, ranks))
        for rank in ranks:
            np.testing.assert_array_equal(result[rank], wanted[rank])


@pytest.mark.parametrize("n", [1027, 0, 1, 2, 65, 1023, 1024, 5000])
@pytest.mark.parametrize("dtype", ["u1", "i2", "i1", "u2", "f2", "f4", "i4", "f8", "u8"])
def test_counting_and_networks_sort(dtype: str, n: int) -> None:
    """Any bits, so that some floats are NaN, of both signs."""
    info = np.iinfo(dtype.replace("f", "i"))
    for low, high in ((info.min, info.max), (0, 2), (info.max, info.max), (info.min, info.min)):
        bits = np.random.default_rng(n).integers(low, high, (41, n), info.dtype, endpoint=True)
        rows = bits.view(dtype)
        wanted, columns = np.sort(rows, axis=1), rows.T.copy()
        row_networks.sort_columns(columns)
        lanes.sort_rows(rows)
        np.testing.assert_array_equal([rows, columns.T], [wanted, wanted])
