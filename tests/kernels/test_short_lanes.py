"""Lanes of few elements, and of integers of one and two bytes, are sorted in ways of their own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import describe_boxplot
from dask_gpuselect.kernels.cpu import few as cpu_few
from dask_gpuselect.kernels.cpu import lanes as cpu
from dask_gpuselect.kernels.cpu import narrow as cpu_narrow
from dask_gpuselect.maths.cuts import IntArray

DTYPES = ("f8", "f4", "i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1", "M8[s]", "m8[ms]")


def table(n_lanes: int, n: int, dtype: str, *, missing: float = 0.2) -> NDArray[Any]:
    """Lanes with ties, the ends of the dtype, and what may be missing; one of nothing else."""
    random = np.random.default_rng(n)
    kind = np.dtype(dtype).kind
    if kind in "iu":
        info = np.iinfo(dtype)
        values = random.integers(info.min, info.max, (n_lanes, n), dtype=dtype, endpoint=True)
        few = random.integers(0, 3, (n_lanes, n)).astype(dtype)
        ends = np.where(few, *np.array([info.min, info.max], dtype))
    elif kind == "f":
        values = random.standard_normal((n_lanes, n)).astype(dtype)
        few = np.round(values)
        ends = np.where(values > 0, np.inf, -np.inf).astype(dtype)
    else:
        values = random.integers(-99, 99, (n_lanes, n)).astype("i8").view(dtype)
        few = random.integers(0, 3, (n_lanes, n)).astype("i8").view(dtype)
        ends = np.full((n_lanes, n), np.iinfo(np.int64).max).view(dtype)
    pick = random.random((n_lanes, n))
    found = np.where(pick < 0.5, values, np.where(pick < 0.8, few, ends))
    if kind in "fMm":
        found[random.random((n_lanes, n)) < missing] = "NaT" if kind in "Mm" else np.nan
        found[0] = "NaT" if kind in "Mm" else np.nan
    return found


def three(n: IntArray) -> tuple[IntArray, IntArray]:
    lower = np.stack([(n - 1) // 4, (n - 1) // 2, n - 1])
    return lower, np.minimum(lower + 1, n - 1)


def test_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found in one tile is not overwritten by the next."""
    monkeypatch.setattr(cpu_few, "TILE", 1 << 10)
    for dtype in ("f8", "u1"):
        for n in (1, 2, 5):
            lanes = table(1000, n, dtype, missing=0.0)[1:-1]
            found = cpu.lanes([lanes], three)
            for mine, theirs in zip((found.lower, found.upper), three(np.array([n])), strict=True):
                np.testing.assert_array_equal(mine, np.sort(lanes, axis=1)[:, theirs[:, 0]])


@pytest.mark.parametrize("n", range(1, 9))
def test_networks_sort(n: int) -> None:
    """All zeros and ones, so everything (Knuth's 0-1 principle); and find each rank alone."""
    rows = np.array(list(itertools.product([0, 1], repeat=n)), np.int8)
    wanted = np.sort(rows, axis=1).T
    for ranks in (tuple(range(n)), *((rank,) for rank in range(n))):
        found = cpu_few._exchanged(rows.T.copy(), cpu_few.exchanges(n, ranks))
        for rank in ranks:
            np.testing.assert_array_equal(found[rank], wanted[rank])


@pytest.mark.parametrize("n", [0, 1, 2, 65, 1023, 1024, 1027, 5000])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2"])
def test_counting_sorts(dtype: str, n: int) -> None:
    info = np.iinfo(dtype)
    random = np.random.default_rng(n)
    for low, high in ((info.min, info.max), (0, 2), (info.max, info.max), (info.min, info.min)):
        rows = random.integers(low, high, (7, n), dtype=dtype, endpoint=True)
        wanted = np.sort(rows, axis=1)
        cpu_narrow.sort_rows(rows)
        np.testing.assert_array_equal(rows, wanted)


# --- Through the public functions -----------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", ["f8", "u1", "i2"])
@pytest.mark.parametrize("n", [1, 2, 3, 33])
def test_boxes(dtype: str, n: int) -> None:
    a = np.random.default_rng(n).integers(0, 100, (20, n)).astype(dtype)
    for lane, box in zip(a, describe_boxplot(a, 1), strict=True):
        alone = describe_boxplot(lane)[0]
        for name, value in alone.to_dict().items():
            if name != "label":
                np.testing.assert_array_equal(getattr(box, name), value, err_msg=name)
