"""Files that wait on disk: who can read them, and what is left of them after any end."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dask_gpuselect.engine.spill import SpillFile, spill_file

pytestmark = [
    pytest.mark.any_dask,
    pytest.mark.skipif(os.name != "posix", reason="on Windows these files have names"),
]

# A sort whose last task waits for the parent, while all that was written is still there.
SORTING = """
import os, sys, time
os.umask(0)  # nothing is left to the user's mask
import dask.array as da
from dask_gpuselect import sort
from dask_gpuselect.engine import spill

def waiting(self, array):
    print(*held(), flush=True)
    time.sleep(60)
def held():  # the regular files that this process has open for writing, in the directory
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            status = os.stat(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if path.startswith(sys.argv[1]):
            yield f"{status.st_mode:o},{status.st_nlink},{status.st_size}"
            assert not os.get_inheritable(int(descriptor))
spill.Spilled.read_into = waiting
x = da.arange(40_000, chunks=4000)[::-1].astype("f8")
sort(x, spill=sys.argv[1]).compute(scheduler="sync")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_files_are_unreadable_by_others_and_gone_after_a_kill(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with subprocess.Popen(
        [sys.executable, "-c", SORTING, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            files = [line.split(",") for line in process.stdout.readline().split()]
            assert files, "something waits on disk"
            for mode, n_names, size in files:
                assert stat.S_ISREG(int(mode, 8))
                assert stat.S_IMODE(int(mode, 8)) == 0o600
                assert int(n_names) == 0
                assert int(size) == 40_000 * 8
            assert list(tmp_path.iterdir()) == []  # while it runs
        finally:
            process.kill()  # -9
    assert list(tmp_path.iterdir()) == []


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
