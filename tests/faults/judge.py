"""A case is run, and judged: the right answer, a clear error, or a failure."""

from __future__ import annotations

import re
import tempfile
import threading
import time
import traceback
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import dask
from distributed import Client

from tests.faults import killed
from tests.faults.cases import Case
from tests.faults.disk import Disk, failing
from tests.faults.faults import FAULTS, LOCAL, Killed, errors_of
from tests.faults.lab import Lab, left_here, left_in, threads_left, until_nothing
from tests.faults.places import CLUSTERS, KINDS, are_processes
from tests.faults.questions import QUESTIONS, Values, data_of
from tests.faults.store import Store
from tests.matrix.laws import is_same

RIGHT, CLEAR = "right answer", "clear error"


@dataclass(frozen=True)
class Verdict:
    """What came of a case.

    Parameters
    ----------
    what : str
        `RIGHT`, `CLEAR`, or how it failed: "wrong answer", "unclear error", "leak", "hang".
    is_struck : bool
        Whether the fault took place.
    phase : str
        At which task, where it is drawn by tasks.
    detail : str
    """

    what: str
    is_struck: bool
    phase: str = ""
    detail: str = ""

    @property
    def is_failure(self) -> bool:
        return self.what not in (RIGHT, CLEAR)


@cache
def calm(question: str, data: str) -> tuple[Values, Any]:
    """The data, and the right answer."""
    about = QUESTIONS[question]
    values = data_of(data, about.shape)
    return values, next(about.answers(values))


def store_of(case: Case, folder: Path) -> Store:
    values, _ = calm(case.question, case.data)
    chunks = QUESTIONS[case.question].chunks
    way = FAULTS[case.fault].way
    return Store(values, chunks, folder, way, case.chunk, case.load, case.is_again)


def config_of(case: Case, folder: Path) -> dict[str, Any]:
    spilled = folder / "spilled"
    spilled.mkdir(exist_ok=True)
    keep: dict[str, dict[str, Any]] = {
        "memory": {},
        "nothing": {"dask_gpuselect.cache-limit": 0},
        "disk": {"dask_gpuselect.cache-limit": 1, "dask_gpuselect.cache-spill": str(spilled)},
    }
    own = {"temporary-directory": str(spilled), "scheduler": scheduler_of(case)}
    own |= QUESTIONS[case.question].config
    return {**keep[case.keep], **own}


def scheduler_of(case: Case) -> Any:
    """What is known of the scheduler at the call: whether threads of this process answer, or the
    workers of a client. There is no client yet, and a function of its class says as much."""
    if case.scheduler in LOCAL:
        return case.scheduler
    moves = QUESTIONS[case.question].on_disk and are_processes(case.scheduler)
    return Client.get if moves else "processes"


def judge(case: Case, lab: Lab) -> Verdict:
    """Run a case."""
    lab.ready(case)
    threads = {thread.ident or 0 for thread in threading.enumerate()}
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        verdict = outcome(case, lab, folder)
        left_now = lambda: "; ".join(  # noqa: E731
            filter(None, [left_here(), left_in(folder / "spilled"), threads_left(threads)])
        )
        # What an earlier case has left is its own.
        news = lambda: "" if (now := left_now()) == lab.left else now  # noqa: E731
        left = until_nothing(news) or lab.left_on_workers(case.scheduler)
        lab.left = left or lab.left
    if left and not verdict.is_failure:
        return Verdict("leak", verdict.is_struck, verdict.phase, left)
    return verdict


def outcome(case: Case, lab: Lab, folder: Path) -> Verdict:
    question, fault = QUESTIONS[case.question], FAULTS[case.fault]
    store = store_of(case, folder)
    disk = Disk(case.fault, case.moment, store.values.nbytes)
    phase, error, computed = "", None, None
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(config_of(case, folder)))
        if fault.is_struck_at == "disk":
            stack.enter_context(failing(disk))
        collections = question.ask(KINDS[case.kind](store.lazy()))
        try:
            if case.fault == "killed while writing":
                computed = killed.answer(case, folder)
            else:
                computed, phase = lab.compute(case, collections, folder)
        except BaseException as caught:  # a cancelled task and Ctrl-C are among what is looked for
            error = caught
            phase = getattr(caught, "phase", "")
            if case.scheduler in CLUSTERS:
                phase = lab.strike.phase
    if fault.is_struck_at != "task":
        phase = ""
    struck = disk.is_struck or store.is_struck or phase not in ("", "none")
    struck = struck or isinstance(error, Killed)
    if error is None:
        return answered(case, store, computed, struck, phase)
    verdict = judged(case, error, struck, phase)
    again = getattr(error, "again", None)  # of the same client
    if again is not None and not is_same(again, calm(case.question, case.data)[1]):
        return Verdict("wrong answer", struck, phase, "when the same client asked again")
    if not verdict.is_failure and (fault.is_struck_at or case.number % 5 == 0):
        return asked_again(case, verdict, lab, folder)
    return verdict


def answered(case: Case, store: Store, results: Any, is_struck: bool, phase: str) -> Verdict:
    """Whether an answer is right, for one version of the array."""
    values, expected = calm(case.question, case.data)
    question, right = QUESTIONS[case.question], [expected]
    if (changed := store.changed()) is not None:
        right += question.answers(values, changed)
    if question.is_read_unchecked and (read := store.unchecked()) is not None:
        right.append(question.expected(read, values))
    if any(is_same(results, each) for each in right):
        return Verdict(RIGHT, is_struck, phase)
    return Verdict("wrong answer", is_struck, phase, f"{results}\n{expected}"[:2000])


def judged(case: Case, error: BaseException, is_struck: bool, phase: str) -> Verdict:
    """Whether an error is one that the fault may show by."""
    fault = FAULTS[case.fault]
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    trace = "".join(traceback.format_exception(error)[-14:])
    if isinstance(error, AssertionError) and "hang" in text:
        return Verdict("hang", is_struck, phase, trace)
    if not is_struck:
        return Verdict("error without a fault", is_struck, phase, trace)
    # NumPy's own word where dask itself reads a chunk that is none of numbers; or that of what
    # copies it to a device, before the package sees it.
    is_numpys = QUESTIONS[case.question].is_read_unchecked and "ufunc 'subtract'" in text
    is_copys = case.kind != "read" and case.fault == "another dtype" and "U5" in text
    if isinstance(error, errors_of(case.fault, case)) and (
        re.search(fault.says, text) or is_numpys or is_copys
    ):
        return Verdict(CLEAR, is_struck, phase, f"{type(error).__name__}: {text}"[:300])
    return Verdict("unclear error", is_struck, phase, trace)


def asked_again(case: Case, verdict: Verdict, lab: Lab, folder: Path) -> Verdict:
    """The verdict, if the same question without a fault is answered afterwards."""
    question = QUESTIONS[case.question]
    values, expected = calm(case.question, case.data)
    again = folder / "again"  # an error that is still told may hold files of the first folder
    again.mkdir()
    try:
        with dask.config.set(config_of(case, again)):
            store = Store(values, question.chunks, again)
            collections = question.ask(KINDS[case.kind](store.lazy()))
            results = lab.without_fault(case, collections)
    except Exception as error:
        trace = "".join(traceback.format_exception(error)[-14:])
        return Verdict("unclear error", verdict.is_struck, verdict.phase, f"asked again: {trace}")
    if is_same(results, expected):
        return verdict
    return Verdict("wrong answer", verdict.is_struck, verdict.phase, "when asked again")


def report(case: Case, lab: Lab) -> dict[str, Any]:
    """The case and its verdict, as a line of the log."""
    begin = time.monotonic()
    verdict = judge(case, lab)
    seconds = round(time.monotonic() - begin, 3)
    return {"case": case.number, **asdict(case), **asdict(verdict), "seconds": seconds}
