"""Loads, chunks and graphs of arrays with masks."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client

from dask_gpuselect import (
    ChunksChangedError,
    describe_boxplot,
    explain,
    kernels,
    median,
    quantile,
)
from dask_gpuselect.groups import groupby
from dask_gpuselect.kernels.companions import Accompanied, copied
from dask_gpuselect.robust import iqr, mad
from tests.backends import NUMPY, Backend
from tests.data import normal, uniform
from tests.sources import Source, changing

SHAPE, CHUNKS, OTHERS = (60, 50), (25, 20), (20, 50)
LIMIT = "dask_gpuselect.column-limit"
# A column of (60, 20) float64 has 9,600 bytes, and its mask 1,200.
PLANS = {"column": 2**30, "slabs": 6_000}

QUESTIONS: dict[str, Callable[..., Any]] = {
    "median": median,
    "quartiles": lambda x, **how: quantile(x, [0.25, 0.5, 0.75], **how),
    "iqr": iqr,
    "mad": mad,
    "boxes": describe_boxplot,
}


def sources() -> tuple[Source, Any, Source, Any]:
    """Data, and a mask of other chunks, which is made of another source."""
    data, other = Source(SHAPE), Source(SHAPE)
    return data, data.lazy(CHUNKS), other, other.lazy(OTHERS) > 0.5


def most(source: Source) -> int:
    return max(source.loads.values())


@pytest.mark.parametrize("name", QUESTIONS)
def test_two_loads_of_data_and_of_masks(backend: Backend, name: str) -> None:
    data, x, _, _ = sources()
    other = Source(SHAPE)
    found = QUESTIONS[name](backend.mapped(x), where=other.lazy(CHUNKS) > 0.5)
    assert not data.loads
    assert not other.loads
    found.compute()
    allowed = 2 + (name == "mad")  # which may look once more
    assert set(data.loads.values()) == set(other.loads.values())
    assert most(data) <= allowed


def test_a_mask_is_rechunked_and_the_data_are_not() -> None:
    """The part of a mask that several chunks need is read once for all of them."""
    data, x, other, where = sources()
    found = median(x, where=where)
    keys = str(dict(found.__dask_graph__()))
    assert keys.count("getitem") > 0
    found.compute()
    assert set(data.loads.values()) == {2}
    assert most(other) <= 2


@pytest.mark.parametrize("name", ["median", "quartiles", "boxes"])
@pytest.mark.usefixtures("nothing_kept")
def test_a_mask_of_the_data_themselves(backend: Backend, name: str) -> None:
    """Both are read by one private copy of their graph."""
    source = Source(SHAPE)
    x = backend.mapped(source.lazy(CHUNKS))
    QUESTIONS[name](x, where=x > 0.5).compute()
    assert set(source.loads.values()) == {2}
    source.counts.clear()
    QUESTIONS[name](x, axis=0, where=x > 0.1).compute()
    assert set(source.loads.values()) == {1}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["median", "quartiles", "iqr"])
def test_lanes_under_every_plan(backend: Backend, name: str, axis: int, plan: str) -> None:
    data, other = Source(SHAPE), Source(SHAPE)
    x, where = backend.mapped(data.lazy(CHUNKS)), other.lazy(CHUNKS) > 0.2
    keeps = other.whole() > 0.2
    with dask.config.set({LIMIT: PLANS[plan]}):
        found = QUESTIONS[name](x, axis=axis, where=where)
        told = str(explain(x, axis=axis, where=where))
    assert told.startswith("column: one load" if plan == "column" else "column: 2 loads")
    wanted = QUESTIONS[name](np.ma.array(data.whole(), mask=~keeps), axis=axis)
    np.testing.assert_array_equal(backend.to_numpy(found.compute()), np.ma.getdata(wanted))
    assert most(data) <= (1 if plan == "column" else 2)
    assert most(other) <= (1 if plan == "column" else 2)


def test_lanes_in_passes(backend: Backend) -> None:
    data, other = Source((40_000, 2)), Source((40_000, 2))
    x, where = backend.mapped(data.lazy((2000, 2))), other.lazy((2000, 2)) > 0.2
    kept = np.ma.array(data.whole(), mask=other.whole() <= 0.2)
    with dask.config.set({LIMIT: 150_000}):
        found = quantile(x, [0.2, 0.5], axis=0, where=where)
        assert str(explain(x, axis=0, where=where)).startswith("passes: 2 loads")
        wanted = quantile(kept, [0.2, 0.5], axis=0)
    np.testing.assert_array_equal(backend.to_numpy(found.compute()), np.ma.getdata(wanted))
    assert set(data.loads.values()) == set(other.loads.values()) == {2}


def test_what_is_persisted_is_read_in_place() -> None:
    source = Source(SHAPE)
    x = source.lazy(CHUNKS).persist(scheduler="sync")
    found = median(x, where=x > 0.5).compute()
    assert set(source.loads.values()) == {1}
    whole = source.whole()
    assert found == np.median(whole[whole > 0.5])


CHUNKINGS: list[Any] = [
    -1, 1000, (60, 7), (7, 50), (11, 13), (1, 50), (60, 1), ((30, 0, 30), 25), (25, 20), (59, 49)
]  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("axis", [None, 0])
def test_the_answer_is_the_same_under_any_chunking(axis: int | None) -> None:
    a = normal(3000).reshape(SHAPE).astype("f4")
    keeps = uniform(3000).reshape(SHAPE) > 0.3
    found = {
        quantile(
            da.from_array(a, chunks=chunks),
            [0.1, 0.37, 0.5],
            axis,
            where=da.from_array(keeps, chunks=others),
        )
        .compute()
        .tobytes()
        for chunks, others in zip(CHUNKINGS, CHUNKINGS[3:] + CHUNKINGS[:3], strict=True)
    }
    assert len(found) == 1


# --- Chunks ---------------------------------------------------------------------------------------


def test_sizes_that_are_not_known() -> None:
    a = normal(1000)
    x = da.from_array(a, chunks=70)
    some = x[x > 0]
    found = median(some, where=some < 1)
    assert found.compute() == np.median(a[(a > 0) & (a < 1)])
    assert median(some, nodata=a.max()).compute() == np.median(a[(a > 0) & (a < a.max())])
    for where, message in (
        (x[:70] > 0, "data have 15 chunks of unknown .* where has 1"),
        (x[:140][x[:140] > 0] > 0, "data have 15 chunks of unknown .* where has 2 chunks of unkn"),
        (np.ones(1000, bool), "where is no dask array"),
    ):
        with pytest.raises(ValueError, match=message):
            median(some, where=where)


@pytest.mark.parametrize("n", [1, 5])
def test_chunks_that_do_not_match_when_they_are_read(n: int) -> None:
    """One element of a mask of unknown size is not stretched."""
    x = da.arange(60, chunks=20)
    some, mask = x[x % 2 == 0], x[x % 20 < n] >= 0
    with pytest.raises(ValueError, match=rf"chunk of where has shape \({n},\), .* data \(10,\)"):
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
        found = median(unknown, where=x > 0.3)
    else:
        # Not made of x: an expression of x may read it once more.
        ones = da.ones(6000, chunks=1000)
        unknown = ones.map_blocks(np.copy, chunks=((np.nan,) * 6,), meta=np.empty(0))
        found = median(x, where=unknown > 0)
    with pytest.raises(ChunksChangedError, match=r"chunk \(3,\)"):
        found.compute(scheduler="sync")


# --- Graphs ---------------------------------------------------------------------------------------


def test_names_are_deterministic() -> None:
    x = da.from_array(normal(100), chunks=9)
    keeps = uniform(100) > 0.5
    assert median(x, where=keeps).name == median(x, where=keeps.copy()).name
    names = {
        median(x, **how).name
        for how in (
            {},
            {"where": keeps},
            {"where": ~keeps},
            {"nodata": 0.0},
            {"nodata": 1.0},
            {"nodata": [0.0, 1.0]},
            {"where": keeps, "nodata": 0.0},
        )
    }
    assert len(names) == 7


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("axis", [None, 0])
def test_a_call_computes_nothing(name: str, axis: int | None) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was computed")

    data, x, other, where = sources()
    with dask.config.set(scheduler=refuse):
        for how in ({"where": where}, {"nodata": 0.5}, {"where": x > 0}):
            QUESTIONS[name](x, axis=axis, **how)
        QUESTIONS[name](da.ma.masked_less(x, 0.5), axis=axis)
    assert not data.loads
    assert not other.loads


def test_on_a_cluster(cluster_here: Client) -> None:
    data, x, other, where = sources()
    kept = data.whole()[other.whole() > 0.5]
    assert median(x, where=where).compute() == np.median(kept)
    lanes = median(da.ma.masked_array(x, mask=~where), axis=1).compute()
    wanted = np.ma.median(np.ma.array(data.whole(), mask=other.whole() <= 0.5), axis=1)
    np.testing.assert_array_equal(lanes, wanted)


def test_a_mask_that_is_stretched_is_read_once_for_all() -> None:
    data, mask = Source((20, 3, 40, 40)), Source((20, 1, 40, 40))
    x, keeps = data.lazy((5, 1, 20, 20)), mask.lazy((5, 1, 20, 20)) > 0.4
    kept = np.where(np.broadcast_to(mask.whole() > 0.4, data.shape), data.whole(), np.nan)
    for axis, loads in ((0, 1), (None, 2), ((0, 2), 1)):
        data.counts.clear()
        mask.counts.clear()
        found = median(x, axis=axis, where=keeps).compute()
        np.testing.assert_array_equal(found, np.nanmedian(kept, axis=axis))
        assert set(data.loads.values()) == set(mask.loads.values()) == {loads}


def test_labels_that_are_broadcast_stay_small() -> None:
    """In copies, as slabs keep them, and in fingerprints, which tell them apart."""
    labels = np.arange(10)[:, None, None]
    chunk = Accompanied(
        np.zeros((10, 20, 30), np.float32), labels=np.broadcast_to(labels, (10, 20, 30))
    )
    copy = copied(chunk[:, :5])
    assert copy.labels.shape == (10, 5, 30)
    assert copy.labels.strides[1:] == (0, 0)
    np.testing.assert_array_equal(copy.labels[:, 2, 3], np.arange(10))
    other = replace(chunk, labels=np.broadcast_to(labels[::-1], (10, 20, 30)))
    assert kernels.fingerprint(chunk) != kernels.fingerprint(other)
    assert kernels.fingerprint(chunk) == kernels.fingerprint(copied(chunk))


SMALL = {
    "keeps": lambda day: day % 3 > 0,
    "weights": lambda day: np.where(day == 4, np.nan, day / 8),
    "labels": lambda day: day % 4,
    "words": lambda day: day.astype(str),
    "records": lambda day: np.array(list(zip(day, day / 8, strict=True)), "i2,f8"),
}


def in_another_memory(array: Any) -> dict[str, Any]:
    """The same values in C order, in Fortran's, in a longer array, and in one that is read-only."""
    wide = np.repeat(array, 2, axis=-1)
    fixed = array.copy()
    fixed.flags.writeable = False
    return {"C": np.array(array, order="C"), "F": np.array(array, order="F"), "fixed": fixed} | {
        "wide": wide[..., ::2],
        "backward": np.ascontiguousarray(array[::-1, ..., ::-1])[::-1, ..., ::-1],
    }


def assert_is_of_values(backend: Backend, name: str, axis: int | None, *, ordered: bool) -> None:
    """Companions of one value, and those with other values, are told apart; where they are in
    memory is not."""
    shape, companion = (4, 5, 6), name if name in {"keeps", "weights"} else "labels"
    size = 1 if axis is None else shape[axis]
    own = SMALL[name](np.arange(size) + 1).reshape([size if i == axis else 1 for i in range(3)])
    whole = np.broadcast_to(own, shape)
    values = backend.asarray(np.arange(120.0).reshape(shape))

    def mark(array: Any) -> int:
        chunk = Accompanied(values, **{companion: array})
        return kernels.fingerprint(chunk, ordered=ordered)

    view = backend.xp.broadcast_to(backend.asarray(np.ascontiguousarray(own)), shape)
    known = mark(view)
    for how, other in in_another_memory(whole).items():
        assert mark(backend.asarray(other)) == known, how
    sent = pickle.loads(pickle.dumps(Accompanied(values, **{companion: view})))
    assert kernels.fingerprint(sent, ordered=ordered) == known
    different = np.array(whole)
    different[1, 3, 3] = SMALL[name](np.arange(3) + 1)[2]
    assert mark(backend.asarray(different)) != known
    assert axis is None or mark(backend.asarray(np.roll(whole, 1, axis))) != known


@pytest.mark.parametrize("name", ["keeps", "weights", "labels"])
@pytest.mark.parametrize("axis", [0, 1, 2, None])
@pytest.mark.parametrize("ordered", [True, False])
def test_fingerprints_are_of_values_and_never_of_memory(
    backend: Backend, name: str, axis: int | None, *, ordered: bool
) -> None:
    """A worker that is sent a chunk has its companions elsewhere, and they may be no broadcast
    views any more."""
    assert_is_of_values(backend, name, axis, ordered=ordered)


@pytest.mark.parametrize("name", ["words", "records"])
@pytest.mark.parametrize("axis", [0, 1, 2, None])
@pytest.mark.parametrize("ordered", [True, False])
def test_fingerprints_of_labels_that_are_no_numbers(
    name: str, axis: int | None, *, ordered: bool
) -> None:
    assert_is_of_values(NUMPY, name, axis, ordered=ordered)


@pytest.mark.parametrize("ordered", [True, False])
def test_bytes_between_long_doubles_have_no_part_in_fingerprints(*, ordered: bool) -> None:
    weights = np.arange(1.0, 9.0).astype("g")
    other = weights.copy()
    if weights.itemsize == 16:
        other.view(np.uint8).reshape(8, 16)[:, 10:] = 77
    assert (weights == other).all()
    x = np.arange(8.0)
    a, b = (
        kernels.fingerprint(Accompanied(x, weights=each), ordered=ordered)
        for each in (weights, other)
    )
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
    found = pickle.loads(sent)
    for name, array in chunk.companions.items():
        other = found.companions[name]
        assert other.strides == array.strides
        np.testing.assert_array_equal(other, array)
    np.testing.assert_array_equal(found.values, chunk.values)


MAP, DAYS = np.arange(60)[None], np.arange(400)[:, None]
FEW = {
    "labels": lambda x: groupby(x, MAP % 3).median(),
    "where": lambda x: median(x, 0, where=DAYS % 3 > 0),
    "weights": lambda x: quantile(
        x, 0.5, 0, weights=np.broadcast_to(DAYS % 3, x.shape), method="inverted_cdf"
    ),
    "windows": lambda x: groupby(x, {0: range(0, 400, 2), 1: range(1, 400)}, 0).median(),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", FEW)
def test_broadcast_companions_cross_workers(cluster: Client, name: str) -> None:
    """Passes and groups load chunks several times, on either worker, and no chunk has changed."""
    values = np.random.default_rng(0).normal(size=(400, 60))
    x = da.from_array(values, chunks=(20, 20)).map_blocks(np.copy)
    with dask.config.set({LIMIT: "20 kB"}):
        answer = FEW[name](x)
    wanted = answer.compute(scheduler="sync")
    np.testing.assert_array_equal(cluster.compute(answer).result(timeout=60), wanted)
