"""A case in a process of its own, which is killed while it writes to the disk."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import dask

from tests.faults.apart import FORKED
from tests.faults.cases import Case
from tests.faults.disk import Disk, failing
from tests.faults.faults import Killed
from tests.faults.places import KINDS
from tests.faults.questions import QUESTIONS
from tests.spies import DEADLINE


def answer(case: Case, folder: Path) -> tuple[Any, ...]:
    """Return the answer of the process, if it lives long enough for one."""
    receiver, sender = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=compute, args=(case, folder, sender), daemon=True)
    process.start()
    sender.close()
    try:
        assert receiver.poll(DEADLINE), "hang: of the process"
        results: tuple[Any, ...] = receiver.recv()
        return results
    except EOFError:
        process.join(DEADLINE)
        if process.exitcode == -signal.SIGKILL:
            raise Killed("the process was killed while it wrote") from None
        raise
    finally:
        process.kill()
        process.join(DEADLINE)
        process.close()
        receiver.close()


def compute(case: Case, folder: Path, sender: Any) -> None:
    """Send what was asked, if the disk lets this process live."""
    from tests.faults.judge import config_of, store_of

    store = store_of(case, folder)
    disk = Disk(case.fault, case.moment, store.values.nbytes)
    with dask.config.set(config_of(case, folder)), failing(disk):
        collections = QUESTIONS[case.question].ask(KINDS[case.kind](store.lazy()))
        sender.send(dask.compute(*collections, scheduler=case.scheduler, num_workers=3))
