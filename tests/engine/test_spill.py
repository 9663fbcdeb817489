"""Files that wait on disk: who can read them, and what is left of them after any end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dask_gpuselect.engine.spill import Spilled, SpillFile, spill_file

pytestmark = [
    pytest.mark.any_dask,
    pytest.mark.skipif(os.name != "posix", reason="on Windows these files have names"),
]


def test_where_files_cannot_be_made_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems cannot: the file has a random name for a moment, and the same mode."""
    made: list[tuple[str, int]] = []
    real = os.open

    def noted(path: str, flags: int, mode: int = 0o777, **how: int) -> int:
        if flags & getattr(os, "O_TMPFILE", 0) == getattr(os, "O_TMPFILE", -1):
            raise IsADirectoryError(path)
        made.append((os.path.basename(path), mode))
        return real(path, flags, mode, **how)

    monkeypatch.setattr(os, "open", noted)
    mask = os.umask(0)
    try:
        file = SpillFile(str(tmp_path))
    finally:
        os.umask(mask)
    monkeypatch.undo()
    ((name, mode),) = made
    assert name.startswith("tmp")
    assert mode == 0o600
    assert list(tmp_path.iterdir()) == []
    values = np.arange(10.0)
    np.testing.assert_array_equal(file.write(values).read(), values)


def test_a_name_of_a_file_is_no_name_of_anything(tmp_path: Path) -> None:
    """What pieces are called, in the program, does not reach the disk."""
    name = "../../etc/passwd\0\n*"
    piece = spill_file(name, str(tmp_path)).write(np.arange(3))
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(piece.read(), np.arange(3))


# --- Writes and reads that fail, or do a part -----------------------------------------------------


@pytest.fixture(params=["at offsets", "by the position"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads and writes of a system that can name offsets, and of one that cannot."""
    if request.param == "by the position":
        monkeypatch.delattr(os, "pwrite")
        monkeypatch.delattr(os, "preadv")


pytestmark.append(pytest.mark.usefixtures("way"))
Write = Callable[[SpillFile, memoryview, int], int]


def with_room(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk hold so many bytes."""
    write: Write = SpillFile._write_some

    def some(file: SpillFile, data: memoryview, offset: int) -> int:
        if offset >= room:
            raise OSError(28, "No space left on device")
        return write(file, data[: room - offset], offset)

    monkeypatch.setattr(SpillFile, "_write_some", some)


def size(file: SpillFile) -> int:
    return os.fstat(file._file.fileno()).st_size


def test_errors_name_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> int:
        raise OSError(5, "Input/output error")

    file = SpillFile(str(tmp_path))
    piece = file.write(np.ones(3))
    monkeypatch.setattr(SpillFile, "_read_some", broken)
    monkeypatch.setattr(SpillFile, "_write_some", broken)
    for call in (piece.read, lambda: file.write(np.ones(3))):
        with pytest.raises(OSError, match="Input/output error") as caught:
            call()
        assert caught.value.__notes__ == [f"parts of the array wait on disk in {tmp_path}"]


def test_a_write_that_fails_leaves_no_part_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What did not fit as a whole gives its room back, and what fits is written in its place."""
    with_room(100, monkeypatch)
    file = SpillFile(str(tmp_path))
    first = file.write(np.arange(5.0))
    with pytest.raises(OSError, match="No space"):
        file.write(np.arange(90.0))
    assert size(file) == 40
    second = file.write(np.arange(6.0))
    assert second.offset == 40
    np.testing.assert_array_equal(first.read(), np.arange(5.0))
    np.testing.assert_array_equal(second.read(), np.arange(6.0))


def test_room_amid_others_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies behind a write that failed stays where it is, and smaller pieces fill the gap."""
    file = SpillFile(str(tmp_path))
    write: Write = SpillFile._write_some
    behind: list[Spilled] = []

    def fails(file: SpillFile, data: memoryview, offset: int) -> int:
        monkeypatch.setattr(SpillFile, "_write_some", write)
        behind.append(file.write(np.arange(4.0)))  # as another thread does meanwhile
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SpillFile, "_write_some", fails)
    with pytest.raises(OSError, match="No space"):
        file.write(np.arange(10.0))
    assert behind[0].offset == 80
    pieces = [file.write(np.full(n, n, float)) for n in (6, 4, 2)]
    assert [piece.offset for piece in pieces] == [0, 48, 112]
    np.testing.assert_array_equal(behind[0].read(), np.arange(4.0))
    for n, piece in zip((6, 4, 2), pieces, strict=True):
        np.testing.assert_array_equal(piece.read(), np.full(n, n))


def test_an_interrupt_gives_room_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    file = SpillFile(str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(SpillFile, "_write_some", interrupted)
        with pytest.raises(KeyboardInterrupt):
            file.write(np.ones(3))
    assert file.write(np.ones(2)).offset == 0


def test_short_writes_and_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than 2 GB a system writes a part."""
    write, read = SpillFile._write_some, SpillFile._read_some
    monkeypatch.setattr(SpillFile, "_write_some", lambda f, data, at: write(f, data[:5], at))
    monkeypatch.setattr(SpillFile, "_read_some", lambda f, data, at: read(f, data[:3], at))
    file = SpillFile(str(tmp_path))
    pieces = [file.write(np.arange(10.0) * i) for i in range(3)]
    for i, piece in enumerate(pieces):
        np.testing.assert_array_equal(piece.read(), np.arange(10.0) * i)
    file._file.truncate(100)
    with pytest.raises(OSError, match="is shorter than"):
        pieces[2].read()


def test_threads_write_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writes wait for each other, where offsets can be named; none writes over another."""
    n_threads = 4
    if hasattr(os, "pwrite"):
        barrier = threading.Barrier(n_threads, timeout=300)
        write: Write = SpillFile._write_some

        def together(file: SpillFile, data: memoryview, offset: int) -> int:
            barrier.wait()
            return write(file, data, offset)

        monkeypatch.setattr(SpillFile, "_write_some", together)
    file = SpillFile(str(tmp_path))
    with ThreadPoolExecutor(n_threads) as pool:
        pieces = list(pool.map(lambda i: file.write(np.full(1000 + i, i)), range(40)))
    assert size(file) == sum((1000 + i) * 8 for i in range(40))
    for i, piece in enumerate(pieces):
        np.testing.assert_array_equal(piece.read(), np.full(1000 + i, i))
