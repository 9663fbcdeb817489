"""Have cases judged in a process that is ended if it hangs."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable
from typing import Any


def watch(
    program: Callable[[int], list[str]], summary: Any, first: int, last: int, seconds: float,
    limit: float = 150, grace: float = 0,
) -> None:  # fmt: skip
    """Have cases judged until the time is over, in a process that is replaced when it hangs.

    With seconds of grace, it is left to the process to end in time; what has not ended after them
    hangs.
    """
    over = time.monotonic() + seconds
    end = over + grace
    number = first
    while number < last and time.monotonic() < over:
        worker = subprocess.Popen(
            program(number), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
        )
        assert worker.stdout is not None
        rest, other, patience = b"", b"", limit
        try:
            while time.monotonic() < end:
                waits = min(patience, max(end - time.monotonic(), 0))
                if not select.select([worker.stdout], [], [], waits)[0]:
                    if waits < patience and not grace:
                        break
                    summary.failed("hang", number, (other + rest).decode(errors="replace")[-9000:])
                    number += 1
                    break
                if not (read := os.read(worker.stdout.fileno(), 1 << 16)):
                    if worker.wait() or (number < last and time.monotonic() < over):
                        text = (other + rest).decode(errors="replace")[-9000:]
                        summary.failed(f"process ended: {worker.returncode}", number, text)
                        number += 1
                    break
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    if line.startswith(b'{"case"'):
                        number, other = summary.add(line) + 1, b""
                    elif line.startswith(b"Timeout ("):  # what follows is where each thread is
                        patience, other = 5.0, other + line
                    else:
                        other += line + b"\n"
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()
