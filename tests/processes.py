"""Python in a fresh process, and functions in several threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]


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
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert not (is_silent and done.stderr), done.stderr
    return done.stdout


def in_threads(n: int, work: Callable[[], object]) -> None:
    """Call a function in several threads at the same time, and raise what one of them raises."""
    start = threading.Barrier(n, timeout=60)

    def begin() -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(n) as pool:
        for call in [pool.submit(begin) for _ in range(n)]:
            call.result()
