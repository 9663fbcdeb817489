"""Some cases of the campaign, and that it notices what is wrong."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dask_gpuselect import median
from dask_gpuselect.engine import boards
from tests.faults import judge as judging
from tests.faults import lab as places
from tests.faults.__main__ import Log, table
from tests.faults.cases import Case, drawn
from tests.faults.faults import FAULTS, GPUS
from tests.faults.judge import CLEAR, RIGHT, judge, report
from tests.faults.lab import Lab, lab
from tests.faults.places import CLUSTERS, KINDS, Place
from tests.faults.questions import QUESTIONS
from tests.faults.store import WAYS
from tests.faults.watching import watch

pytestmark = [pytest.mark.faults, pytest.mark.legacy, pytest.mark.any_dask]

LOCAL = ("sync", "threads")
SEED = 26


@pytest.fixture(scope="module")
def place() -> Iterator[Lab]:
    with lab() as made:
        yield made


def run(cases: list[Case], place: Lab) -> None:
    failures = [record for record in (report(case, place) for case in cases) if is_failure(record)]
    assert not failures, "\n".join(f"{record}\n{record['detail']}" for record in failures)


def is_failure(record: dict[str, Any]) -> bool:
    return record["what"] not in (RIGHT, CLEAR)


SOME = {LOCAL: 12, ("here",): 20, ("processes", "process-threads"): 6, ("apart",): 2}
"""Schedulers, and how many cases."""


@pytest.mark.slow
@pytest.mark.parametrize("only", SOME, ids=lambda only: only[0])
def test_some_cases(only: tuple[str, ...], place: Lab) -> None:
    run([drawn(SEED, number, only) for number in range(SOME[only])], place)


@pytest.mark.slow
@pytest.mark.parametrize("question", ["quantile", "sort_by on disk"])
def test_a_killed_worker(question: str, place: Lab) -> None:
    """What it had loaded or written is made again, whenever it is killed."""
    cases = (drawn(SEED, number, ("processes",), ["worker is killed"]) for number in range(2))
    run([replace(case, question=question, data="normal", retries=3) for case in cases], place)


@pytest.mark.parametrize("question", ["quantile, axis on disk", "sort on disk"])
def test_a_process_that_is_killed_while_it_writes(question: str, place: Lab) -> None:
    """It leaves nothing on the disk, and another process answers the same question."""
    case = replace(CALM, question=question, fault="killed while writing", keep="disk")
    verdict = judge(case, place)
    assert (verdict.what, verdict.is_struck) == (CLEAR, True)


@pytest.mark.gpu
@pytest.mark.slow
def test_some_cases_of_cupy_chunks(place: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster of threads, which needs neither dask-cuda nor a GPU."""
    monkeypatch.setitem(CLUSTERS, "gpus", Place(is_here=True, kinds=("made by cupy",)))
    possible = [name for name, fault in FAULTS.items() if "here" in fault.places]
    run([drawn(SEED, number, ("gpus",), possible) for number in range(12)], place)
    place.renew("gpus")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 100))
def test_more_cases(first: int, place: Lab) -> None:
    run([drawn(SEED + 1, number, LOCAL) for number in range(first, first + 100)], place)


# --- Cases ----------------------------------------------------------------------------------------


def test_every_fault_and_question_is_drawn() -> None:
    cases = [drawn(0, number) for number in range(3000)]
    cases += [drawn(0, number, ("processes", "apart")) for number in range(800)]
    cases += [drawn(0, number, GPUS) for number in range(100)]
    cases += [drawn(0, number, ("process-threads",)) for number in range(100)]
    assert {case.fault for case in cases} == FAULTS.keys()
    assert {case.kind for case in cases} == KINDS.keys()
    assert {case.question for case in cases} == QUESTIONS.keys()
    assert {fault.way for fault in FAULTS.values()} - {""} == WAYS.keys()
    assert all(case.scheduler in FAULTS[case.fault].places for case in cases)


# --- That it notices what is wrong ----------------------------------------------------------------

CALM = Case(
    0, 0, "median", "normal", "sync", "reader stalls", 0.5, False, 0, 3, 1, False, 0, "memory"
)
FAILS = replace(CALM, fault="reader fails", is_again=True)


def asked(monkeypatch: pytest.MonkeyPatch, ask: Callable[[Any], Any]) -> None:
    broken = replace(QUESTIONS["median"], ask=lambda x: (ask(x),))
    monkeypatch.setitem(QUESTIONS, "median", broken)


def test_what_is_right(place: Lab) -> None:
    assert judge(CALM, place).what == RIGHT
    verdict = judge(FAILS, place)
    assert (verdict.what, verdict.is_struck) == (CLEAR, True)
    assert verdict.detail == "OSError: the store cannot be reached"


def answers_and_then(more: int) -> Callable[[Any], Any]:
    """Answer wrongly from the second time on."""
    calls: list[int] = []

    def ask(x: Any) -> Any:
        calls.append(1)
        return median(x) + more * (len(calls) > 1)

    return ask


@pytest.mark.parametrize(
    ("ask", "case", "what", "detail"),
    [
        (lambda x: np.nextafter(median(x), 1), CALM, "wrong answer", ""),
        (
            lambda x: median(x).map_blocks(lambda block: [][1], dtype="f8"),
            replace(CALM, load=4), "error without a fault", "IndexError",
        ),
        (answers_and_then(1), FAILS, "wrong answer", "when asked again"),
    ],
)  # fmt: skip
def test_what_is_wrong(
    ask: Any, case: Case, what: str, detail: str, place: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer, an error, and the state that a fault has broken."""
    asked(monkeypatch, ask)
    verdict = judge(case, place)
    assert verdict.what == what
    assert detail in verdict.detail


def test_another_error_than_the_fault_may_show_by(
    place: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WAYS, "fails", lambda values: {}["missing"])
    verdict = judge(FAILS, place)
    assert verdict.what == "unclear error"
    assert "KeyError: 'missing'" in verdict.detail


def leaks(what: str, case: Case) -> Callable[..., Any]:
    """A leak of the case."""

    def outcome(_: Case, __: Lab, folder: Path) -> judging.Verdict:
        if what == "bytes taken":
            boards.room.take(8, 1e9)
        elif what == "files":
            (folder / "spilled").mkdir()
            (folder / "spilled" / "left").touch()
        else:
            threading.Thread(target=stop.wait, name="left over", daemon=True).start()
        return judging.Verdict(RIGHT, True)

    return outcome


stop = threading.Event()


@pytest.mark.gpu
def test_what_is_left_on_a_device(place: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    arrays: list[Any] = []

    def outcome(*_: Any) -> judging.Verdict:
        arrays.append(cupy.zeros(1000))
        return judging.Verdict(RIGHT, True)

    monkeypatch.setattr(judging, "outcome", outcome)
    monkeypatch.setattr(judging, "until_nothing", lambda left: places.until_nothing(left, 0.1))
    verdict = judge(CALM, place)
    assert (verdict.what, verdict.detail) == ("leak", "8192 bytes on the device")
    monkeypatch.setattr(judging, "outcome", lambda *_: judging.Verdict(RIGHT, True))
    assert judge(CALM, place).what == RIGHT  # what an earlier case has left is its own


@pytest.mark.few(1)
@pytest.mark.parametrize("what", ["bytes taken", "files", "threads"])
def test_what_is_left_behind(what: str, place: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    stop.clear()
    monkeypatch.setattr(judging, "outcome", leaks(what, CALM))
    monkeypatch.setattr(judging, "until_nothing", lambda left: places.until_nothing(left, 0.1))
    try:
        verdict = judge(CALM, place)
        assert verdict.what == "leak"
        assert what in verdict.detail
    finally:
        stop.set()
        boards.room.give_back(boards.room.taken)


@pytest.mark.parametrize(("sleeps", "grace", "whats"), [(0.4, 300, []), (300, 1, ["hang"])])
def test_a_campaign_ends_by_itself(sleeps: float, grace: float, whats: list[str]) -> None:
    """In time, or what runs then is said to hang."""
    failures: list[str] = []

    class Summary:
        def failed(self, what: str, *_: Any) -> None:
            failures.append(what)

    program = [sys.executable, "-c", f"import time; time.sleep({sleeps})"]
    watch(lambda _: program, Summary(), 0, 9, 0.3, grace=grace)  # type: ignore[arg-type]
    assert failures == whats


def test_hangs_and_ends_have_lines_in_the_log(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "log"
    with path.open("w") as file:
        Log(file, 3, LOCAL).failed("hang", 7, "where it was")
    (line,) = map(json.loads, path.read_text().splitlines())
    assert drawn(3, 7, LOCAL).fault == line["fault"]
    assert "=== hang: --seed 3 --case 7 --only sync,threads" in capsys.readouterr().out
    assert "| all | 1 | 1 | 0 | 0 | 0 | 0 | 1 | 0 |" in table([line])
