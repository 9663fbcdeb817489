"""Columns that do not fit: written to local disk as they are loaded, and read back in tiles."""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias
from dask.order import order

from dask_gpuselect import explain, median, quantile
from dask_gpuselect.engine import scratch, spill
from dask_gpuselect.engine.spill import SpillFile
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import mad
from tests.backends import CUPY
from tests.limits import configured, peak_of
from tests.sources import Source, lazily
from tests.spies import DEADLINE, noted

N, ROWS, COLUMNS = 120, 9, 7
WHOLE = N * ROWS * COLUMNS * 8
LIMIT = WHOLE // 20
IN_MEMORY = scratch.IN_MEMORY


@pytest.fixture(autouse=True)
def a_disk_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine has its temporary files on: a `tmpfs`, or a disk that is nearly full."""
    monkeypatch.setattr(scratch, "IN_MEMORY", set())
    monkeypatch.setattr(scratch, "free_bytes", lambda where: 1 << 40)


@contextmanager
def limited(to: int | str = LIMIT, **more: Any) -> Iterator[None]:
    with dask.config.set(scheduler="threads"), configured(column_limit=to, **more):
        yield


def asked(**about: Any) -> da.Array:
    """Ask for medians of columns that are written, of a source."""
    with limited():
        return median(Source((N, ROWS, COLUMNS), **about).lazy((1, ROWS, COLUMNS)), axis=0)


@pytest.fixture(params=["scratch", "p2p"])
def plan_name(request: pytest.FixtureRequest) -> str:
    """The plan of threads, or that of a cluster."""
    if request.param == "p2p":
        request.getfixturevalue("cluster_here")
    return str(request.param)


@contextmanager
def planned(plan_name: str, to: int | str = LIMIT, **more: Any) -> Iterator[None]:
    """Limit columns so that a plan is made."""
    on_a_cluster = {"scheduler": None, "dask_gpuselect.scratch-reads": 2}
    with limited(to, **more), dask.config.set(on_a_cluster if plan_name == "p2p" else {}):
        yield


# --- One load, whatever is asked ------------------------------------------------------------------

MASK = (np.arange(N)[:, None, None] % 5 > 0) & np.ones((1, ROWS, COLUMNS), bool)
ROUGH = np.arange(N * ROWS * COLUMNS).reshape(N, ROWS, COLUMNS) % 11 + 1.0
OF_EACH = np.arange(N * ROWS * COLUMNS).reshape(N, ROWS, COLUMNS) % 5


CHUNKS = {"maps": (1, ROWS, COLUMNS), "parts of maps": (5, 4, 3), "rows": (N, 1, 2)}


OF_TIME = np.arange(N)[:, None, None] + 1.0


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("chunks", ["maps", "parts of maps"])
@pytest.mark.parametrize(
    ("companions", "n_bytes"),
    [
        ({"where": ROUGH[0] > 3}, [ROWS * COLUMNS] * 2),
        ({"weights": OF_TIME[:, 0, 0]}, [N * 8, 9 * N * 8]),  # of each column
        ({"weights": ROUGH, "where": MASK}, [WHOLE * 9 // 8] * 2),
        ({"where": (ROUGH[0] > 3)[None] & (OF_TIME > 5)}, [WHOLE // 8] * 2),
        ({"where": ROUGH[0] > 3, "nodata": 7.0}, [WHOLE // 8] * 2),
    ],
)
def test_companions_are_written_once_and_told(
    companions: dict[str, Any], n_bytes: list[int], chunks: str, written: list[int]
) -> None:
    """A mask of a map not with each of the maps."""
    x = Source((N, ROWS, COLUMNS)).lazy(CHUNKS[chunks])
    how = {"axis": 0, "method": "inverted_cdf", **companions}
    with limited():
        plan = explain(x, 0.4, axis=0, **companions)
        result = quantile(x, 0.4, **how).compute()
    whole = WHOLE + n_bytes[chunks != "maps"]
    # Weights that float32 hold exactly take half of the bytes.
    half = (whole - WHOLE - WHOLE // 8 * ("where" in companions)) // 2 * ("weights" in companions)
    assert (plan.name, plan.disk_bytes, sum(written)) == ("scratch", whole, whole - half)
    with limited("1 GiB"):
        right = quantile(x, 0.4, **how).compute()
    np.testing.assert_array_equal(result, right)


def test_labels_of_each_element_are_told(written: list[int]) -> None:
    x = Source((N, ROWS, COLUMNS)).lazy((5, 4, 3))
    with limited():
        grouped = groupby(x, lazily(OF_EACH, 4), 0, groups=range(5))
        plan = grouped.explain()
        grouped.median().compute()
    assert sum(written) == plan.disk_bytes == WHOLE * 3 // 2  # numbers of groups in int32


def test_questions_together_share_what_is_written(written: list[int]) -> None:
    source = Source((N, ROWS, COLUMNS))
    x = source.lazy((1, 9, 7))
    with limited():
        dask.compute(median(x, axis=0), quantile(x, [0.1, 0.2, 0.3], axis=0), mad(x, 0))
    assert set(source.loads.values()) == {1}
    assert sum(written) == WHOLE


@pytest.mark.gpu
def test_chunks_of_a_device_come_back_to_it(plan_name: str) -> None:
    a = Source((N, ROWS, COLUMNS)).whole()
    x = da.from_array(a, chunks=(1, 9, 7)).map_blocks(CUPY.asarray, meta=CUPY.asarray(a[:0]))
    with planned(plan_name):
        assert explain(x, axis=0).name == plan_name
        result = median(x, axis=0)
        result = result.compute(scheduler="sync") if plan_name == "scratch" else result.compute()
    assert type(result) is type(CUPY.asarray(a[0]))
    np.testing.assert_array_equal(CUPY.to_numpy(result), np.median(a, axis=0))


# --- When, and how much ---------------------------------------------------------------------------


def maps(n: int = 1000) -> da.Array:
    return Source((n, 60, 80), "f4").lazy((1, 60, 80))


def test_the_plan_tells_of_the_disk(plan_name: str, tmp_path: Path) -> None:
    where = {"scratch_directory": str(tmp_path)} if plan_name == "scratch" else {}
    with planned(plan_name, "0.5 MB", **where):
        plan = explain(maps(), axis=0)
        masked = explain(maps(), axis=0, where=np.ones((60, 80), bool))
    assert (plan.name, plan.loads, plan.disk_bytes) == (plan_name, 1, 1000 * 60 * 80 * 4)
    assert masked.disk_bytes == plan.disk_bytes + 60 * 80
    assert plan.task_bytes <= 500_000
    place = {"scratch": f"on disk, in {tmp_path}", "p2p": "moved between workers, on their disks"}
    assert f"18.31 MiB {place[plan_name]}" in str(plan)
    assert "once, because passes would take 16" in plan.table()


def test_a_task_holds_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of no more bytes than the plan says."""
    tiles = noted(monkeypatch, scratch.Tile, "read", lambda tile, _: tile.nbytes)
    with limited("100 kB", scratch_limit="1 GB"):
        plan = explain(maps(), axis=0)
        median(maps(), axis=0).compute()
    assert max(tiles) <= plan.task_bytes <= 100_000
    assert sum(tiles) == plan.disk_bytes


def test_a_tile_has_room_for_the_answers() -> None:
    """Of many windows there are more answers than elements."""
    windows = {i: np.arange(max(i - 2, 0), i + 3) for i in range(998)}
    with limited("0.5 MB", scratch_limit="1 GB"):
        of_windows = groupby(maps(), windows, 0).explain()
        of_all = explain(maps(), axis=0)
    assert of_windows.name == of_all.name == "scratch"
    assert 8 * of_windows.scratch.task_bytes < of_all.scratch.task_bytes
    assert of_windows.task_bytes == 8 * len(windows) * 4_800  # a block of the answer


def test_tiles_are_freed_before_dask_copies_the_answer() -> None:
    """Two axes of tiles are joined by one copy, so an answer is in memory twice; it was 3 times."""
    with limited("0.5 MB", scratch_limit="1 GB"):
        lazy = quantile(maps(60), np.linspace(0, 1, 300), axis=0)
        assert peak_of(lazy.compute, scheduler="sync") < 2.5 * lazy.nbytes


def test_a_column_has_room_for_the_answers() -> None:
    """A task takes at most the limit for many windows, where all of them took 20 times as much."""
    windows = {i: np.arange(max(i - 2, 0), i + 3) for i in range(118)}
    x = maps(120)
    with limited("3 MB"):
        grouped = groupby(x, windows, 0)
        assert grouped.explain().name == "column"
        lazy = grouped.quantile(0.9)
        answer = lazy.compute(scheduler="sync")  # imports, and compiles kernels
        most = 4 * 3e6 + 3 * answer.nbytes  # 59 MB if a single task answers
        assert peak_of(lazy.compute, scheduler="sync", enough=most) < most
    np.testing.assert_array_equal(answer, groupby(x.compute(), windows, 0).quantile(0.9))


def test_a_setting_says_from_how_many_loads_on_columns_are_written() -> None:
    with limited("10 MB"):
        assert explain(maps(), axis=0).loads == 1
    with limited("10 MB", scratch_reads=3):
        assert explain(maps(), axis=0).loads == 2
    with (
        limited("10 MB", scratch_reads=0),
        pytest.raises(ValueError, match="integer of at least 1"),
    ):
        explain(maps(), axis=0)


@pytest.mark.parametrize(
    "setting", [{"scratch_directory": False}, {"scratch_limit": 0}, {"scratch_limit": "19 MB"}]
)
def test_where_a_disk_is_not_allowed_or_full_passes_are_taken(setting: dict[str, Any]) -> None:
    with limited("0.5 MB", **setting):
        assert explain(maps(), axis=0).name == "passes"
        if "scratch_limit" in setting:
            advice = "or set scratch-limit to 18.31 MiB, with as much room in "
            assert advice in str(explain(maps(), axis=0))
    with limited("0.5 MB", scratch_limit="20 MB"):
        assert explain(maps(), axis=0).name == "scratch"


def test_a_directory_that_does_not_exist_raises_at_the_call(tmp_path: Path) -> None:
    """Whether it is this package's setting or dask's, and only if something would be written."""
    (tmp_path / "file").touch()
    for where in (tmp_path / "no", tmp_path / "file"):
        message = re.escape(f"is '{where}', which is not a directory: create it, or set ")
        with (
            limited("0.5 MB", scratch_directory=str(where)),
            pytest.raises(ValueError, match=f"dask_gpuselect.scratch-directory {message}"),
        ):
            median(maps(), axis=0)
        with (
            limited("0.5 MB"),
            dask.config.set({"temporary-directory": str(where)}),
            pytest.raises(ValueError, match=f"^temporary-directory {message}"),
        ):
            median(maps(), axis=0)
        with limited("1 GB", scratch_directory=str(where)):
            assert explain(maps(), axis=0).name == "column"


def test_data_in_memory_are_not_written() -> None:
    x = da.from_array(Source((N, ROWS, COLUMNS)).whole(), chunks=(1, 9, 7))
    with limited():
        assert explain(x, axis=0).name == "passes"


def test_a_directory_in_memory_is_only_used_if_a_limit_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scratch, "IN_MEMORY", IN_MEMORY)
    mounts = f"disk / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n"
    real = Path.read_text
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda path, *args: mounts if str(path) == "/proc/mounts" else real(path, *args),
    )
    where = str(tmp_path / "job")
    (tmp_path / "job").mkdir()
    with limited("0.5 MB", scratch_directory=where):
        assert explain(maps(), axis=0).name == "passes"
    with limited("0.5 MB", scratch_directory=where, scratch_limit="1 GB"):
        assert explain(maps(), axis=0).name == "scratch"


# --- Schedulers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheduler", "plan"), [("sync", "scratch"), ("processes", "passes")])
def test_only_threads_of_one_process_write(scheduler: str, plan: str) -> None:
    with limited(), dask.config.set(scheduler=scheduler):
        assert explain(Source((N, ROWS, COLUMNS)).lazy((1, 9, 7)), axis=0).name == plan


@pytest.mark.slow
def test_other_processes_are_told(tmp_path: Path) -> None:
    """Nothing is sent to them in silence, as large as a column is."""
    log = tmp_path / "loads"
    lazy = asked(log=log)
    with pytest.raises(RuntimeError, match="create the client of dask.distributed before"):
        lazy.compute(scheduler="processes", num_workers=2)


def test_a_worker_tells(cluster_here: Any) -> None:
    lazy = asked()
    with pytest.raises(RuntimeError, match="scratch-directory to False"):
        cluster_here.compute(lazy).result()


# --- What is there, and is gone -------------------------------------------------------------------

# A computation that waits for the parent, while all that was written is still there.
WAITING = """
import os, sys, time
os.umask(0)  # nothing is left to the user's mask
import dask, numpy as np, dask.array as da
from dask_gpuselect import median, sort
from dask_gpuselect.engine import scratch, spill
def held():  # the files that this process has open, in the directory
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            status = os.stat(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if path.startswith(sys.argv[1]):
            yield f"{status.st_mode:o},{status.st_nlink},{status.st_size}"
            assert not os.get_inheritable(int(descriptor))
def waiting(*_):
    print(*held(), flush=True)
    time.sleep(60)
if sys.argv[2] == "sort":
    spill.Spilled.read_into = waiting
elif sys.argv[2] == "read":
    scratch.Tile.read = waiting
else:
    write, n = spill.SpillFile.write, iter(range(100))
    spill.SpillFile.write = lambda *args: waiting() if next(n) == 50 else write(*args)
dask.config.set({"dask_gpuselect.column-limit": 2000, "scheduler": "sync"})
dask.config.set({"dask_gpuselect.scratch-directory": sys.argv[1]})
dask.config.set({"dask_gpuselect.scratch-limit": "1 MB"})  # where it is a tmpfs, too
x = da.ones((100, 40), chunks=(1, 40)).map_blocks(np.copy)
(sort(x[:, 0], spill=sys.argv[1]) if sys.argv[2] == "sort" else median(x, axis=0)).compute()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.any_dask
@pytest.mark.parametrize(
    ("moment", "n_written"),
    [
        ("sort", 100),
        pytest.param("read", 4000, marks=pytest.mark.slow),
        pytest.param("write", 2000, marks=pytest.mark.slow),
    ],
)
def test_files_are_unreadable_by_others_and_gone_after_a_kill(
    tmp_path: Path, moment: str, n_written: int
) -> None:
    tmp_path.chmod(0o777)
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, str(tmp_path), moment], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            files = [line.split(",") for line in process.stdout.readline().split()]
            assert files, "something waits on disk"
            for mode, n_names, size in files:
                assert stat.S_ISREG(int(mode, 8))
                assert stat.S_IMODE(int(mode, 8)) == 0o600
                assert int(n_names) == 0
                assert int(size) == n_written * 8
            assert list(tmp_path.iterdir()) == []  # while it runs
        finally:
            process.kill()  # -9
    assert list(tmp_path.iterdir()) == []


# Chunks of which one never comes.
HANGING = """
import os, signal, sys, threading
import dask, numpy as np, dask.array as da
from dask_gpuselect import median
from dask_gpuselect.engine import spill
def hanging(chunk, block_id):
    if block_id[0] == 60:
        print(len(spill._files), flush=True)
        threading.Event().wait()
    return np.ones(chunk.shape)
dask.config.set({"dask_gpuselect.column-limit": 2000, "scheduler": "threads"})
dask.config.set({"dask_gpuselect.scratch-directory": sys.argv[1], "num_workers": 2})
dask.config.set({"dask_gpuselect.scratch-limit": "1 MB"})  # where it is a tmpfs, too
lazy = median(da.ones((100, 40), chunks=(1, 40)).map_blocks(hanging, dtype="f8"), axis=0)
signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes ignore it
try:
    lazy.compute()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)  # Python waits for dask's threads
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sends a signal")
@pytest.mark.any_dask
def test_a_reader_that_hangs_can_be_interrupted(tmp_path: Path) -> None:
    """By Ctrl-C, and with the process what waits on disk is gone."""
    with subprocess.Popen(
        [sys.executable, "-c", HANGING, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"DASK_ARRAY__QUERY_PLANNING": "False"},  # expressions lack `map_blocks`
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "1\n"
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=DEADLINE)[0] == "interrupted\n"
            assert list(tmp_path.iterdir()) == []
        finally:
            process.kill()


def test_a_column_gives_its_room_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """When it is answered, before the next is written, if one thread works."""

    # In a directory of its own: files of earlier tests that ended by an error stay until the
    # garbage is collected.
    where = str(tmp_path)

    def n_files(*_: Any) -> int:
        with spill._files_lock:
            return sum(directory == where for _, _, directory in spill._files)

    files = noted(monkeypatch, scratch.Tile, "read", n_files)
    x = Source((N, 12, 7)).lazy((1, 3, 7))  # four columns
    with limited(N * 3 * 7, scratch_directory=where), dask.config.set(scheduler="sync"):
        median(x, axis=0).compute()
    assert max(files) == 1
    assert n_files() == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_no_more_is_told(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: SpillFile, array: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(SpillFile, "write", full)
    lazy = asked()
    with pytest.raises(
        OSError, match=r"scratch-directory .* dask_gpuselect\.scratch-limit"
    ) as caught:
        lazy.compute()
    assert caught.value.errno == number


def test_the_first_chunk_says_that_a_disk_has_no_room_for_its_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disk that has filled up since the call, before the other chunks are loaded."""
    source = Source((N, ROWS, COLUMNS))
    with limited(), dask.config.set(scheduler="sync"):
        lazy = median(source.lazy((1, 9, 7)), axis=0)
        monkeypatch.setattr(scratch, "free_bytes", lambda where: WHOLE)
        lazy.compute()
        assert sum(source.loads.values()) == N
        monkeypatch.setattr(scratch, "free_bytes", lambda where: WHOLE - 1)
        message = r"No space left on device for 59\.06 kiB: .*scratch-directory .*scratch-limit"
        with pytest.raises(OSError, match=message):
            lazy.compute()
    assert sum(source.loads.values()) == N + 1


def test_memory_of_a_tile_is_used_again_if_no_view_of_it_is_left() -> None:
    unused: list[Any] = []
    first = scratch.empty_in(unused, (3, 4), np.dtype("f4"))
    place = first.ctypes.data
    views = [first[1:], first.reshape(-1).view("i4"), np.moveaxis(first, 0, -1)]
    del first
    while views:
        assert scratch.empty_in(unused, (3, 4), np.dtype("f4")).ctypes.data != place
        views.pop()
    smaller = scratch.empty_in(unused, (2, 5), np.dtype("f4"))
    assert smaller.ctypes.data == place
    del smaller
    assert scratch.empty_in(unused, (0, 7), np.dtype("M8[s]")).shape == (0, 7)
    larger = scratch.empty_in(unused, (4, 4), np.dtype("f8"))
    larger[...] = 1
    assert larger.sum() == 16


def test_what_is_lost_on_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    read = scratch.Tile.read

    def cut(tile: scratch.Tile) -> Any:
        tile.column.values.runs[0].first.file._file.truncate(1000)
        return read(tile)

    monkeypatch.setattr(scratch.Tile, "read", cut)
    lazy = asked()
    with pytest.raises(OSError, match="is shorter than"):
        lazy.compute()


# --- Tiles and graphs -----------------------------------------------------------------------------


def test_boxes_of_arrays_on_disk(tmp_path: Path) -> None:
    a = np.arange(4 * 5 * 6 * 3).reshape(4, 5, 6, 3)
    piece = SpillFile(str(tmp_path)).write(a)
    rng = np.random.default_rng(0)
    for _ in range(200):
        edges = [sorted(rng.integers(0, n + 1, 2)) for n in a.shape]
        box = tuple(slice(int(start), int(stop)) for start, stop in edges)
        out = np.empty([stop - start for start, stop in edges], a.dtype)
        starts, n = piece.runs(box)
        piece.file.read_runs_into(out, starts.tolist(), n)
        np.testing.assert_array_equal(out, a[box])


def test_boxes_where_the_system_has_no_preadv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "preadv", raising=False)
    test_boxes_of_arrays_on_disk(tmp_path)


def test_tasks_are_linear_in_chunks_and_tiles(plan_name: str) -> None:
    x = da.zeros((500, 64, 60), chunks=(1, 32, 60)).map_blocks(np.copy)
    with planned(plan_name, 500 * 60 * 8 * 4, scratch_limit="1 GB"):
        plan = explain(x, axis=0)
        lazy = median(x, axis=0)
    assert plan.name == plan_name
    n_tiles = 2 * -(-32 // plan.scratch.tile[1])
    graph = dict(lazy.__dask_optimize__(lazy.dask, lazy.__dask_keys__()))
    assert 16 <= n_tiles <= 64
    n_resolved = sum(isinstance(task, Alias) for task in graph.values())  # by dask, on a cluster
    # Barriers, joins, and what expressions add.
    assert len(graph) - n_resolved * (plan_name == "p2p") <= 2 * 1000 + 2 * n_tiles + 6
    order(graph)
