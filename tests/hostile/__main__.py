"""Runs cases in a process that is ended if it hangs, and counts failures by their signature."""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import numpy as np

LIMIT = 150  # seconds of a case; compiling kernels on a busy machine is the most of it


# --- The process that works -----------------------------------------------------------------------


def work(seed: int, first: int, last: int) -> None:
    """Judge cases, and print a line of JSON for each."""
    from tests.hostile.judge import drawn, failure_of, signature

    np.set_printoptions(threshold=60, edgeitems=4)
    for number in range(first, last):
        faulthandler.dump_traceback_later(LIMIT - 5)
        case = drawn(seed, number)
        begin = time.monotonic()
        error = failure_of(case)
        report = {"case": number, "name": case.name, "spoiled": case.spoiled is not None}
        report |= {table: case.case.row[table] for table in ("home", "dtype")}
        report["seconds"] = round(time.monotonic() - begin, 3)
        if error is not None:
            report["signature"] = signature(error, case)
            trace = "".join(traceback.format_exception(error)[-12:])
            report["detail"] = f"{trace}\n{case!r}"
        print(json.dumps(report), flush=True)
    faulthandler.cancel_dump_traceback_later()


# --- The process that watches ---------------------------------------------------------------------


class Summary:
    """How many cases there were of what, and which failed."""

    def __init__(self, seed: int) -> None:
        self.seed, self.n, self.told = seed, 0, time.monotonic()
        self.functions: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.examples: dict[str, int] = {}

    def add(self, line: bytes) -> int:
        """Of a line that was printed: the number of its case."""
        report = json.loads(line)
        self.n += 1
        self.functions.update([report["name"]])
        self.kinds.update([report["home"], report["dtype"]])
        self.kinds["spoiled"] += report["spoiled"]
        if "signature" in report:
            self.failed(report["signature"], report["case"], report["detail"])
        if time.monotonic() - self.told > 300:
            self.told = time.monotonic()
            print(f"... {self.n} cases, {self.failures.total()} failures", flush=True)
        return int(report["case"])

    def failed(self, signature: str, case: int, detail: str) -> None:
        self.failures[signature] += 1
        if signature not in self.examples:
            self.examples[signature] = case
            again = f"--seed {self.seed} --case {case}"
            print(f"\n=== NEW {signature}\n--- {again}\n{detail}", flush=True)

    def tell(self) -> None:
        print(f"\n{self.n} cases\nby function: {dict(self.functions.most_common())}")
        print(f"by kind: {dict(self.kinds.most_common())}\nfailures:")
        for signature, count in self.failures.most_common():
            print(f"{count:6} {signature}  (--case {self.examples[signature]})")


def watch(
    program: Callable[[int], list[str]], summary: Summary, first: int, last: int, seconds: float,
    limit: float = LIMIT, grace: float = 0,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1 << 40)
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        return work(given.seed, *given.work)
    if given.case is None:
        last = given.first + given.cases
        again = [sys.executable, "-m", "tests.hostile", "--seed", str(given.seed), "--work"]
        summary = Summary(given.seed)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was found is told then too
        with suppress(KeyboardInterrupt):
            watch(
                lambda number: [*again, str(number), str(last)],
                summary, given.first, last, 60 * given.minutes,
            )  # fmt: skip
        return summary.tell()
    from tests.hostile.judge import drawn, judge

    case = drawn(given.seed, given.case)
    print(repr(case), flush=True)
    return judge(case)


if __name__ == "__main__":
    main()
