"""Runs cases in a process that is ended if it hangs, and writes a line for each to a log.

python -m tests.faults --runs 1000 --seed 0 --log faults.log
python -m tests.faults --runs 100 --only processes
python -m tests.faults --runs 30 --only apart
python -m tests.faults --gpu --seconds 300 --log faults-gpu.log
python -m tests.faults --runs 30 --only processes --fault 'worker short of memory'
python -m tests.faults --seed 0 --case 17
python -m tests.faults --tell faults.log
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from tests.faults.watching import watch

LIMIT = 500  # seconds of a case, with a cluster to start on a busy machine
GRACE = 60  # seconds to end in: the last case, and the clusters


def work(
    seed: int, only: Sequence[str], faults: Sequence[str], seconds: float, first: int, last: int
) -> None:
    """Run cases, and print a line of JSON for each."""
    over = time.monotonic() + seconds
    from tests.faults.apart import prepare
    from tests.faults.cases import drawn
    from tests.faults.faults import GPUS
    from tests.faults.judge import report
    from tests.faults.lab import lab

    prepare(has_gpus=not set(GPUS).isdisjoint(only))
    with lab() as made:
        for number in range(first, last):
            if (left := over - time.monotonic()) <= 0:
                break
            faulthandler.dump_traceback_later(min(LIMIT, left + GRACE) - 5)
            print(json.dumps(report(drawn(seed, number, only, faults), made)), flush=True)
            if number == first + 50:
                gc.freeze()  # modules are imported, kernels compiled: collections need not see them
        faulthandler.cancel_dump_traceback_later()


class Log:
    """The lines of all cases."""

    def __init__(
        self, file: TextIO, seed: int, only: Sequence[str], faults: Sequence[str] = ()
    ) -> None:
        self.file, self.seed, self.only, self.faults = file, seed, only, faults

    def add(self, line: bytes) -> int:
        """Of a line that was printed: the number of its case."""
        record = json.loads(line)
        self.file.write(line.decode() + "\n")
        self.file.flush()
        if record["what"] not in ("right answer", "clear error"):
            about = {key: value for key, value in record.items() if key != "detail"}
            again = self.again(record["case"])
            print(f"\n=== {record['what']}: {again}\n{about}\n{record['detail']}", flush=True)
        return int(record["case"])

    def failed(self, what: str, number: int, detail: str) -> None:
        """A case without a line: its process hung or ended."""
        from tests.faults.cases import drawn

        case = asdict(drawn(self.seed, number, self.only, self.faults))
        verdict = {"what": what, "is_struck": True, "phase": "", "detail": detail[-3000:]}
        self.add(json.dumps({"case": number, **case, **verdict, "seconds": LIMIT}).encode())

    def again(self, number: int) -> str:
        only = f" --only {','.join(self.only)}" if self.only else ""
        faults = "".join(f" --fault '{name}'" for name in self.faults)
        return f"--seed {self.seed} --case {number}{only}{faults}"


COLUMNS = ("runs", "struck", "right", "clear", "wrong", "unclear", "hangs", "leaks")


def column_of(what: str) -> str:
    kinds = {"right answer": "right", "clear error": "clear", "wrong answer": "wrong"}
    kinds |= {"leak": "leaks", "hang": "hangs"}
    return kinds.get(what, "unclear")


def table(lines: Iterable[dict[str, Any]]) -> str:
    """What came of the cases, by fault."""
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in lines:
        for name in (record["fault"], "all"):
            rows[name].update(["runs", column_of(record["what"])])
            rows[name]["struck"] += record["is_struck"]
    total = rows.pop("all", Counter())
    written = [f"| fault | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, row in [*sorted(rows.items()), ("all", total)]:
        written.append(f"| {name} | {' | '.join(f'{row[each]:,}' for each in COLUMNS)} |")
    return "\n".join(written)


def tell(paths: Sequence[str]) -> int:
    """Print the table of some logs. How many cases failed."""
    lines = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    print(table(lines))
    for name in ("scheduler", "kind", "question"):
        counts = Counter(record.get(name, "read") for record in lines)
        print(f"\nby {name}: " + ", ".join(f"{key} {n:,}" for key, n in counts.most_common()))
    phases = {record["phase"] for record in lines if record["phase"] not in ("", "none")}
    print(f"\nkinds of tasks at which something happened: {len(phases)}")
    return sum(column_of(record["what"]) not in ("right", "clear") for record in lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, help="100, or as many as --seconds allow")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", default="faults.log")
    parser.add_argument("--seconds", type=float, help="and a minute at most")
    parser.add_argument("--only", default="", help="schedulers, with commas between them")
    parser.add_argument("--gpu", action="store_true", help="on dask-cuda, one worker a GPU")
    parser.add_argument("--fault", action="append", default=[], help="of these alone")
    parser.add_argument("--case", type=int, help="one case, of this number")
    parser.add_argument("--tell", nargs="+", metavar="LOG", help="the table of logs")
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    only = tuple(filter(None, given.only.split(",")))
    if given.gpu:
        from tests.faults.faults import GPUS

        only = GPUS
    if given.tell:
        return int(tell(given.tell) > 0)
    if given.work:
        work(given.seed, only, given.fault, given.seconds, *given.work)
        return 0
    if given.case is not None:
        work(given.seed, only, given.fault, LIMIT, given.case, given.case + 1)
        return 0
    seconds = given.seconds or 36_000
    last = given.first + (given.runs or (10**6 if given.seconds else 100))
    over = time.monotonic() + seconds
    again = [sys.executable, "-m", "tests.faults", "--seed", str(given.seed)]
    again += ["--only", ",".join(only), *(f"--fault={name}" for name in given.fault)]
    with open(given.log, "w") as file:
        log: Any = Log(file, given.seed, only, given.fault)
        watch(
            lambda number: [
                *again, f"--seconds={over - time.monotonic()}", "--work", str(number), str(last)
            ],
            log, given.first, last, seconds, LIMIT, GRACE,
        )  # fmt: skip
    return int(tell([given.log]) > 0)


if __name__ == "__main__":
    sys.exit(main())
