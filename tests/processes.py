"""Python in a fresh process, and functions in several threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[1]
T = TypeVar("T")


def python(
    *arguments: str | Path, cwd: Path = ROOT, is_silent: bool = False, **environment: str
) -> str:
    """Return what Python prints, with arguments and additions to the environment; fail if it
    fails, hangs, or writes to stderr although it has to be silent."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert not (is_silent and done.stderr), done.stderr
    return done.stdout


def in_threads(n: int, work: Callable[[int], T]) -> list[T]:
    """Call a function of 0, 1, ... in n threads at the same time; return the answers, in order, or
    raise what one of the calls raises."""
    start = threading.Barrier(n, timeout=300)

    def begin(i: int) -> T:
        start.wait()
        return work(i)

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(begin, range(n)))
