"""What goes wrong, as a table: where it can, and by which errors it may show."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from dask_gpuselect import ChunksChangedError

LOCAL = ("sync", "threads")
HERE = (*LOCAL, "here")
GPUS = ("gpus", "gpu-threads")
PROCESSES = ("processes", "process-threads", *GPUS)
ON_CLUSTERS = ("here", *PROCESSES)
EVERYWHERE = (*HERE, *PROCESSES)

CANCELLED = (CancelledError, asyncio.CancelledError)
TIMES_OUT = (TimeoutError, asyncio.TimeoutError)
ANYTHING = r"(?s).*"


def lost() -> tuple[type[BaseException], ...]:
    """What `distributed` raises if the scheduler is gone."""
    from distributed.comm import CommClosedError

    return (*CANCELLED, *TIMES_OUT, CommClosedError)


class Killed(RuntimeError):
    """The process that was asked does not live any more."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong.

    Parameters
    ----------
    places : tuple of str
        Schedulers with which it can.
    errors : tuple of types
        That may come of it. None: the answer has to be right.
    says : str
        What the error and its notes say, as a regular expression.
    way : str
        Of `store.WAYS`, if it is the store that fails.
    is_struck_at : str
        Otherwise by whom: "task" if it happens at a task of a number that is drawn, "disk" if at a
        byte that is written or read.
    mended_by_retries : bool
        Whether the answer has to be right if dask tries tasks again.
    """

    places: tuple[str, ...]
    errors: tuple[type[BaseException], ...] = ()
    says: str = ANYTHING
    way: str = ""
    is_struck_at: str = ""
    mended_by_retries: bool = False


ON_DISK = r"wait(s)? on disk in |are written to |is shorter than what"
CHANGED = r"chunk \(\d+,.*\)|one of the chunks|the array was changed"

FAULTS: dict[str, Fault] = {
    # The store.
    "reader fails": Fault(
        EVERYWHERE, (OSError,), "the store cannot be reached", "fails", mended_by_retries=True
    ),
    "reader lacks memory": Fault(
        EVERYWHERE,
        (MemoryError,),
        "no memory for what was read",
        "lacks memory",
        mended_by_retries=True,
    ),
    "reader stalls": Fault(EVERYWHERE, way="stalls"),
    "reader stalls for long": Fault(EVERYWHERE, way="stalls for long"),
    "other elements": Fault(EVERYWHERE, (ChunksChangedError,), CHANGED, "other elements"),
    "another element": Fault(EVERYWHERE, (ChunksChangedError,), CHANGED, "another element"),
    "a shorter chunk": Fault(EVERYWHERE, (ValueError,), r"chunk \(\d+,.*has shape", "shorter"),
    "a longer chunk": Fault(EVERYWHERE, (ValueError,), r"chunk \(\d+,.*has shape", "longer"),
    "an empty chunk": Fault(EVERYWHERE, (ValueError,), r"chunk \(\d+,.*has shape", "empty"),
    "another dtype": Fault(
        EVERYWHERE, (TypeError, ValueError), r"chunk \(\d+,.*(U5|str)", "another dtype"
    ),
    # The disk.
    "full disk": Fault(HERE, (OSError,), ON_DISK, is_struck_at="disk"),
    "read-only folder": Fault(HERE, (OSError,), ON_DISK, is_struck_at="disk"),
    "no descriptors": Fault(HERE, (OSError,), ON_DISK, is_struck_at="disk"),
    "failing reads of the disk": Fault(HERE, (OSError,), ON_DISK, is_struck_at="disk"),
    "truncated file": Fault(HERE, (OSError,), ON_DISK, is_struck_at="disk"),
    "killed while writing": Fault(LOCAL, (Killed,), "while it wrote", is_struck_at="disk"),
    "vanishing folder": Fault(HERE, (OSError,), ON_DISK, is_struck_at="task"),
    # The client.
    "Ctrl-C": Fault(LOCAL, (KeyboardInterrupt,), is_struck_at="task"),
    "cancelled": Fault(ON_CLUSTERS, CANCELLED, is_struck_at="task"),
    "timeout": Fault(ON_CLUSTERS, TIMES_OUT, is_struck_at="task"),
    "asyncio timeout": Fault(ON_CLUSTERS, TIMES_OUT, is_struck_at="task"),
    # Workers and scheduler.
    "worker closes": Fault(("here",), is_struck_at="task"),
    "connection is cut": Fault(("here",), is_struck_at="task"),
    "worker pauses": Fault(ON_CLUSTERS, is_struck_at="task"),
    "scheduler closes": Fault(("here",), is_struck_at="task"),
    "worker is killed": Fault(PROCESSES, is_struck_at="task"),
    "worker is stopped": Fault(PROCESSES, is_struck_at="task"),
    "worker restarts": Fault(PROCESSES, is_struck_at="task"),
    "all restart": Fault(PROCESSES, CANCELLED, is_struck_at="task"),
    "worker dies of a read": Fault(PROCESSES, way="dies"),
    "worker out of memory": Fault(("processes",), way="hoards"),
    "worker short of memory": Fault(("processes",), way="fills"),
    "scheduler restarts": Fault(("apart",), is_struck_at="task"),
}

ERRNO: Mapping[str, int] = {
    "full disk": errno.ENOSPC,
    "read-only folder": errno.EROFS,
    "no descriptors": errno.EMFILE,
    "failing reads of the disk": errno.EIO,
}


def errors_of(name: str, case: Any) -> tuple[type[BaseException], ...]:
    """By which errors a fault may show in a case."""
    from distributed.scheduler import KilledWorker

    fault = FAULTS[name]
    if name in ("scheduler closes", "scheduler restarts"):
        # One that closes loses its workers one after the other. If a task is moved from one to the
        # next, dask says that the task has killed them.
        return (*lost(), KilledWorker) if name == "scheduler closes" else lost()
    if name in ("worker dies of a read", "worker out of memory"):
        return (KilledWorker,) if case.is_again else ()
    if fault.mended_by_retries and case.retries and not case.is_again:
        return ()
    return fault.errors
