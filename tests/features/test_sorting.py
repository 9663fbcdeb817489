"""Sorted dask arrays: what goes where, the order, its loads, and pieces that wait on disk."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback
from numpy.typing import NDArray

from dask_gpuselect import argsort, digitize, sort, sort_by
from dask_gpuselect.engine import exchange
from dask_gpuselect.engine.spill import SpillFile, spill_file
from dask_gpuselect.kernels import ordering
from dask_gpuselect.sorting.graph import SplitterQuestion
from dask_gpuselect.sorting.radix_sort import radix_sort
from tests.backends import CUPY, NUMPY, Backend
from tests.data import hashed, normal, uniform
from tests.processes import in_threads
from tests.sources import Source
from tests.spies import collect

pytestmark = pytest.mark.usefixtures("in_this_thread")

# Irregular, with empty chunks at both ends and within, and one of one element.
UNEVEN = (0, 300, 1, 0, 0, 500, 200, 0)
N = sum(UNEVEN)


# --- What goes where ------------------------------------------------------------------------------


def test_ranks_beyond_32_bits() -> None:
    n = 3 << 40
    assert SplitterQuestion(3).starts(n).tolist() == [1 << 40, 2 << 40]
    assert SplitterQuestion(2, (n, n)).starts(2 * n).tolist() == [n]


# --- The order ------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [5, 33])
def test_elements_that_differ_in_their_last_bits(backend: Backend, together: int) -> None:
    """Keys and places do not fit into a word together; up to 32 equal beginnings are put in order
    by insertion, and more by NumPy."""
    n = 1500
    high = hashed(np.arange(n) // together) * 2.0 ** np.arange(n % 7, n % 7 + 1) * 1e300
    values = np.nextafter(high, 0).view("i8") + (hashed(np.arange(n)) * 5).astype("i8")
    values[0], values[1] = np.iinfo("i8").min + 1, np.iinfo("i8").max
    for each in (values, values.view("u8")):
        actual = dask.compute(*(ask(backend.lazy(each, 700)) for ask in (sort, argsort)))
        for ours, theirs in zip(
            actual, (np.sort(each), np.argsort(each, kind="stable")), strict=True
        ):
            np.testing.assert_array_equal(backend.to_numpy(ours), theirs, strict=True)


def test_arrays_in_order_are_copied() -> None:
    ascending = np.arange(5, dtype="u8")
    assert not np.shares_memory(sort(ascending), ascending)


def test_chunks_of_the_result() -> None:
    x = da.from_array(uniform(1000), chunks=(UNEVEN[:-2] + (199, 0),))
    assert sort(x).chunks == ((125,) * 8,)
    assert [block.compute().size for block in sort(x, chunks=300).blocks] == [300, 300, 300, 100]
    assert sort(x, chunks=300).chunks == ((300, 300, 300, 100),)
    assert sort(x, chunks=(1, 998, 1)).chunks == ((1, 998, 1),)
    assert sort(x, chunks="2 kiB").chunks == ((256, 256, 256, 232),)
    assert sort(x, chunks=-1).chunks == ((1000,),)
    assert sort(da.ones(0, chunks=1)).compute().shape == (0,)
    assert sort(da.ones(1, chunks=1)).compute().tolist() == [1]
    one_in_memory = da.from_array(np.broadcast_to(3.0, 9), chunks=4)
    assert sort(one_in_memory).compute().tolist() == [3] * 9


@pytest.mark.parametrize("spill", [False, True])
def test_chunks_of_unknown_sizes(spill: bool) -> None:
    x = da.from_array(normal(N), chunks=(UNEVEN,))
    result = sort(x[x > 0], spill=spill)
    blocks = dask.compute(*(result.blocks[i] for i in range(result.npartitions)))
    sizes = [len(block) for block in blocks]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("spill", [False, True])
def test_values_that_go_along(backend: Backend, spill: bool) -> None:
    keys = np.floor(uniform(N) * 50)
    order = np.argsort(keys, kind="stable")
    given = [np.arange(N, dtype="i2"), normal(2 * N).reshape(N, 1, 2), keys > 3]
    x = backend.lazy(keys, (UNEVEN,))
    lazies = [backend.lazy(each, (UNEVEN, *each.shape[1:])) for each in given]
    actual = dask.compute(*sort_by(x, *lazies, spill=spill, split_every=3))
    for ours, theirs in zip(actual, [keys, *given], strict=True):
        np.testing.assert_array_equal(backend.to_numpy(ours), theirs[order])
        assert ours.dtype == theirs.dtype


@pytest.mark.parametrize("spill", [False, True])
def test_strings_and_objects_go_along(spill: bool) -> None:
    words = np.array([f"{i:x}" for i in range(100)])
    keys = (np.arange(100) * 37) % 50
    for dtype in ("U4", "S4", "O", "i4,f8"):
        values = words.astype(dtype) if dtype[0] in "USO" else np.zeros(100, dtype)
        if dtype == "i4,f8":
            values["f0"] = np.arange(100)
        x, y = (da.from_array(each, chunks=30) for each in (keys, values))
        result = sort_by(x, y, spill=spill)[1].compute()
        assert result.tolist() == values[np.argsort(keys, kind="stable")].tolist()
        assert result.dtype == values.dtype


@pytest.mark.gpu
@pytest.mark.parametrize("spill", [False, True])
def test_keys_and_values_in_different_places(spill: bool) -> None:
    """On a device and on the host: each stays where it is."""
    keys, values = np.floor(uniform(N) * 50), np.arange(N)
    order = np.argsort(keys, kind="stable")
    for of_keys, of_values in ((CUPY, NUMPY), (NUMPY, CUPY)):
        x, y = of_keys.lazy(keys, (UNEVEN,)), of_values.lazy(values, (UNEVEN,))
        result = dask.compute(*sort_by(x, y, spill=spill, split_every=3))
        np.testing.assert_array_equal(of_keys.to_numpy(result[0]), keys[order])
        np.testing.assert_array_equal(of_values.to_numpy(result[1]), order)


@pytest.mark.parametrize("spill", [False, True])
def test_values_of_several_dtypes(spill: bool) -> None:
    """Chunks need not be what their array says, if all together are something."""
    key = da.from_array(np.array([3, 1, 2, 0]), chunks=2)
    numbers = da.from_array(np.arange(4.0), chunks=2)
    for first in (True, False):
        mixed = numbers.map_blocks(
            lambda block, first=first: block.astype("f4") if (block[0] == 0) == first else block,
            dtype="f8",
        )
        assert sort_by(key, mixed, spill=spill)[1].compute().tolist() == [3, 1, 2, 0]
    words = da.from_array(np.array(["a", "b", "c", "d"]), chunks=2)
    wide = words.map_blocks(lambda block: np.char.add(block, "x" * (3 if block[0] == "c" else 1)))
    result = sort_by(key, wide, spill=spill)[1].compute()
    assert result.tolist() == ["dxxx", "bx", "cxxx", "ax"]


# --- One chunk ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_marks", [0, 1, 8, 511, 512])
@pytest.mark.parametrize("off", [-300, 0, 1, 700])
def test_a_chunk_that_is_not_what_was_counted(backend: Backend, n_marks: int, off: int) -> None:
    """What is wrong is told, and nothing is written where there is no room."""
    values = np.where(uniform(5000) < 0.1, np.nan, np.floor(normal(5000) * 900))
    expected = np.sort(values)
    marks = expected[np.arange(1, n_marks + 1) * 4000 // (n_marks + 1)]
    below, upto = (expected.searchsorted(marks, side) for side in ("left", "right"))
    known = below + off, upto + off // 2
    for ends in (None, np.arange(0, 5001 + off, 50)):
        arguments = {"has_order": False, "known": known, "ends": ends}
        actual = ordering.dealt(backend.asarray(values), marks, values.dtype, **arguments)
        np.testing.assert_array_equal(actual.below, below)
        np.testing.assert_array_equal(actual.upto, upto)


# --- Through groups of chunks ---------------------------------------------------------------------

COUNTED: dict[str, tuple[Callable[[da.Array], Any], int]] = {
    "sort": (sort, 1),
    "argsort": (argsort, 1),
    "sort_by": (lambda x: sort_by(x, x)[1], 1),
    "radix_sort": (lambda x: radix_sort(x, bits=16), 2),
}


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.slow
def test_tasks_of_many_chunks(name: str) -> None:
    """Two for each chunk and group, which are about the root of the chunks in number; as many
    edges, and those of the rest, for each pass."""
    ask, n_passes = COUNTED[name]
    n = 441
    graph = dict(ask(da.zeros(4 * n, chunks=4, dtype="f4")).__dask_graph__())
    n_edges = sum(len(task.dependencies) for task in graph.values())
    assert len(graph) <= n_passes * n * (2 * 22 + 4) + 20 * n
    assert n_edges <= 2 * n_passes * n * (2 * 22 + 4) + 40 * n


@pytest.fixture
def grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "PAIRS", 0)


@pytest.mark.usefixtures("grouped")
@pytest.mark.parametrize("data", [np.arange(6400.0), normal(6400)], ids=["sorted", "normal"])
def test_no_task_of_a_group_holds_more_than_a_few_chunks(data: NDArray[Any]) -> None:
    """Of sorted data neighbours go to the same group, and are in different batches."""
    sizes = []

    def note(key: Any, result: Any, *_: Any) -> None:
        if "regrouped" in str(key):
            sizes.append(sum(len(piece[0]) for piece in result if piece is not None))

    with Callback(posttask=note):
        actual = sort(da.from_array(data, chunks=100)).compute()
    np.testing.assert_array_equal(actual, np.sort(data))
    assert sum(sizes) == 6400
    assert max(sizes) <= 200


@pytest.mark.usefixtures("grouped")
def test_what_goes_through_groups_is_written_twice(written: list[int], tmp_path: Path) -> None:
    x = da.from_array(normal(900), chunks=30)
    sort(x, spill=tmp_path).compute()
    assert sum(written) == 2 * x.nbytes
    collect()
    assert not [name for name in open_files() if str(tmp_path) in name]


# --- Loads and laziness ---------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2])
def test_loads_of_what_follows(backend: Backend, n: int) -> None:
    """Once, whether the key is asked for too or not."""
    key, value = Source((1000,)), Source((1000,), "i8")
    x, y = (backend.mapped(source.lazy(90)) for source in (key, value))
    with dask.config.set({"dask_gpuselect.cache-limit": 0}):  # or one task of a device sorts all
        dask.compute(sort_by(x, y)[-n:])
    assert set(key.loads.values()) == {3}
    assert set(value.loads.values()) == {1}


# --- On disk --------------------------------------------------------------------------------------


def open_files() -> list[str]:
    """The files without a name that this process holds open (Linux)."""
    results = []
    for fd in os.listdir("/proc/self/fd"):
        # Another thread may close a file between the two calls.
        with contextlib.suppress(FileNotFoundError):
            results.append(os.readlink(f"/proc/self/fd/{fd}"))
    return results


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="Linux tells of open files")
def test_pieces_wait_in_one_file_that_is_gone_afterwards(tmp_path: Path) -> None:
    observed: list[str] = []

    def note(block: NDArray[Any]) -> NDArray[Any]:
        observed.extend(name for name in open_files() if str(tmp_path) in name)
        return block

    values = normal(1000)
    x = da.from_array(values, chunks=100).map_blocks(np.copy)
    result = sort(x, spill=tmp_path).map_blocks(note, dtype=float, meta=np.empty(0))
    np.testing.assert_array_equal(result.compute(scheduler="threads"), np.sort(values))
    assert len(set(observed)) == 1
    assert not list(tmp_path.iterdir())
    collect()
    assert not [name for name in open_files() if str(tmp_path) in name]


def test_when_pieces_wait_on_disk(written: list[int]) -> None:
    values = uniform(1000)
    resident = da.from_array(values, chunks=100)
    lazy = resident.map_blocks(np.copy)
    for x, limit, nbytes in (
        (lazy, "8000 B", 0),
        (lazy, "7999 B", 8000),
        (lazy[lazy >= 0], "1 GiB", 8000),  # of unknown size
        (resident, "0 B", 0),  # in memory already
    ):
        with dask.config.set({"dask_gpuselect.spill-limit": limit}):
            sort(x).compute()
        assert sum(written) == nbytes
        written.clear()
    with dask.config.set({"dask_gpuselect.spill-limit": "12 kB"}):
        dask.compute(sort_by(lazy, lazy))
    assert sum(written) == 16_000


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        sort(da.ones(10, chunks=5), spill=tmp_path / "missing").compute()
    assert "wait on disk" in caught.value.__notes__[0]


def test_a_piece_is_sent_as_what_it_holds(tmp_path: Path) -> None:
    values = np.arange(12).reshape(3, 4)
    piece = SpillFile(str(tmp_path)).write(values[::2])
    sent = pickle.loads(pickle.dumps(piece))
    assert type(sent) is np.ndarray
    np.testing.assert_array_equal(sent, values[::2])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(piece[1:2])), values[2:3])
    assert piece[1:1].shape == (0, 4)


def test_a_file_is_found_whole_or_not_at_all(tmp_path: Path) -> None:
    """Threads that drop the last piece, and others that write the next, at the same time."""

    def write(_: int) -> None:
        for i in range(300):
            whole = np.empty(1)
            spill_file("same", str(tmp_path)).write(np.array([float(i)])).read_into(whole)
            assert whole[0] == i

    in_threads(4, write)


# --- What goes wrong ------------------------------------------------------------------------------


def test_sizes_that_show_while_computing() -> None:
    x = da.from_array(np.arange(10.0), chunks=5)
    with pytest.raises(
        ValueError, match="chunk . of the key has 5 elements, and that of a value has [23]"
    ):
        sort_by(x, x[x % 2 == 0])[1].compute()
    x._chunks = ((5, 4),)
    with pytest.raises(
        ValueError, match=r"chunk \(1,\) has shape \(5,\), but its array says \(4,\)"
    ):
        sort(x).compute()


# --- Bins -----------------------------------------------------------------------------------------


def test_bins_of_dates() -> None:
    days = np.array(["2020-01-01", "2020-06-01", "NaT", "2021-01-01"], "M8[D]")
    edges = np.array(["2020-01-01T12", "2020-12-31T12"], "M8[h]")
    assert digitize(da.from_array(days, chunks=2), edges).compute().tolist() == [0, 1, 2, 2]
    assert digitize(edges, days[:2]).tolist() == [1, 2]
    waits = np.array([3, 1, "NaT"], "m8[s]")
    assert digitize(waits, np.array([2000], "m8[ms]")).tolist() == [1, 0, 1]
    assert digitize(waits.astype("m8[ns]"), np.array([2], "m8[s]")).tolist() == [1, 0, 1]
    far, near = np.array(["3000-01-01"], "M8[s]"), np.array(["2020-01-01"], "M8[ns]")
    for x, edges in ((far, near), (near, far)):
        with pytest.raises(ValueError, match="one unit"):
            digitize(x, edges)
