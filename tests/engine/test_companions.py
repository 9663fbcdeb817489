"""Loads, chunks and graphs of arrays with masks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import ChunksChangedError, median
from dask_gpuselect.engine.marks import marks_of
from dask_gpuselect.kernels.companions import Accompanied
from tests.data import normal, uniform
from tests.sources import changing

SHAPE, CHUNKS, OTHERS = (60, 50), (25, 20), (20, 50)


# --- Chunks ---------------------------------------------------------------------------------------


def test_sizes_that_are_not_known() -> None:
    a = normal(1000)
    x = da.from_array(a, chunks=70)
    some = x[x > 0]
    for where, message in (
        (x[:70] > 0, "data have 15 chunks of unknown .* where has 1"),
        (x[:140][x[:140] > 0] > 0, "data have 15 chunks of unknown .* where has 2 chunks of unkn"),
        (np.ones(1000, bool), "where is not a dask array"),
    ):
        with pytest.raises(ValueError, match=message):
            median(some, where=where)


@pytest.mark.parametrize("n", [1, 5])
def test_chunks_that_do_not_match_when_they_are_read(n: int) -> None:
    """One element of a mask of unknown size is not stretched."""
    x = da.arange(60, chunks=20)
    some, mask = x[x % 2 == 0], x[x % 20 < n] >= 0
    with pytest.raises(ValueError, match=rf"where has shape \({n},\), .* data has .* \(10,\)"):
        median(some, where=mask).compute(scheduler="sync")


def test_chunks_of_a_mask_that_are_not_what_their_array_says() -> None:
    mask = da.ones(60, chunks=20, dtype=bool)
    short = mask.map_blocks(lambda block: block[:-1], dtype=bool, meta=np.empty(0, bool))
    x = da.arange(60, chunks=20)
    with pytest.raises(ValueError, match=r"chunk \(\d,\) of where has shape \(19,\)"):
        median(x, where=short).compute(scheduler="sync")


def halves(values: Any, load: int) -> Any:
    return values / 2 if load == 2 else values


# Expressions of dask cannot compare chunks of sizes that are not known.
@pytest.mark.legacy
@pytest.mark.parametrize("is_mask", [False, True])
def test_what_changes_between_loads_is_named(is_mask: bool, tmp_path: Path) -> None:
    x = changing(halves, directory=tmp_path)
    if is_mask:
        still = da.ones(6000, chunks=1000).map_blocks(
            lambda _, block_id: uniform(1000) + block_id[0], dtype=float, meta=np.empty(0)
        )
        unknown = still.map_blocks(np.copy, chunks=((np.nan,) * 6,), meta=np.empty(0))
        answer = median(unknown, where=x > 0.3)
    else:
        # Not made of x: an expression of x may read it once more.
        ones = da.ones(6000, chunks=1000)
        unknown = ones.map_blocks(np.copy, chunks=((np.nan,) * 6,), meta=np.empty(0))
        answer = median(x, where=unknown > 0)
    with pytest.raises(ChunksChangedError, match=r"chunk \(3,\)"):
        answer.compute(scheduler="sync")


# --- Fingerprints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [True, False])
def test_bytes_between_long_doubles_have_no_part_in_fingerprints(*, ordered: bool) -> None:
    weights = np.arange(1.0, 9.0).astype("g")
    other = weights.copy()
    if weights.itemsize == 16:
        other.view(np.uint8).reshape(8, 16)[:, 10:] = 77
    assert (weights == other).all()
    x = np.arange(8.0)
    a, b = marks_of([Accompanied(x, weights=each) for each in (weights, other)], ordered=ordered)
    assert a == b


def test_companions_that_are_broadcast_are_sent_small() -> None:
    shape = (10, 200, 300)
    given = {
        "keeps": np.arange(10)[:, None, None] % 3 > 0,
        "weights": np.linspace(0, 1, 300),
        "labels": np.array(3),
    }
    chunk = Accompanied(
        np.broadcast_to(np.float32(1), shape)[:, :1],
        **{name: np.broadcast_to(array, shape)[:, :1] for name, array in given.items()},
    )
    sent = pickle.dumps(chunk)
    assert len(sent) < 4 * 3000 + 8 * 300 + 2000
    received = pickle.loads(sent)
    for name, array in chunk.companions.items():
        other = received.companions[name]
        assert other.strides == array.strides
        np.testing.assert_array_equal(other, array)
    np.testing.assert_array_equal(received.values, chunk.values)
    assert len({*marks_of([chunk, received], ordered=True)}) == 1
