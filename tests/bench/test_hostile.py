"""`tests.hostile` in short: some of its cases, and that it notices what it is to notice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dask.array as da
import numpy as np
import pytest

import dask_gpuselect
from tests.hostile.__main__ import Summary, watch
from tests.hostile.around import Around
from tests.hostile.judge import Hostile, check_clean, drawn, failure_of, judge, signature
from tests.hostile.senseless import SENSELESS, options, refused
from tests.matrix.cases import Case
from tests.matrix.laws import Broken
from tests.matrix.questions import QUESTIONS

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

MANY, ALL = 200, 1500


def without_cluster(number: int) -> Hostile:
    """One would outlive the test, and has warnings of its own."""
    case = drawn(0, number)
    return replace(case, around=replace(case.around, is_distributed=False))


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[] if first < MANY else [pytest.mark.thorough])
        for first in range(0, ALL, 50)
    ],
)
def test_many_cases(first: int) -> None:
    for number in range(first, first + 50):
        case = without_cluster(number)
        if (error := failure_of(case)) is not None:
            pytest.fail(f"--seed 0 --case {number}: {signature(error, case)}\n{case}")


def test_some_cases() -> None:
    """Without compiling."""
    for number in range(ALL, ALL + 25):
        hostile = without_cluster(number)
        row = {**hostile.case.row, "kernels": "NumPy"}
        judge(replace(hostile, case=replace(hostile.case, row=row)))


@pytest.mark.parametrize(("name", "what"), SENSELESS)
def test_what_makes_no_sense_is_refused(name: str, what: str) -> None:
    """By an error that says so, of plain and of lazy arrays."""
    for is_lazy in (False, True):
        for value in options(name, what, is_lazy=is_lazy):
            refused(name, what, value, check_clean, is_lazy=is_lazy)


def test_what_makes_no_sense_and_is_answered() -> None:
    with pytest.raises(Broken, match="not refused: median: axis=0"):
        refused("median", "axis", 0, check_clean, is_lazy=True)


def test_the_same_case_again() -> None:
    assert repr(drawn(5, 17)) == repr(drawn(5, 17)) != repr(drawn(5, 18))


# --- That it notices what is wrong ----------------------------------------------------------------

ROW = {
    "question": "median", "slots": "all", "measure": "count", "missing": "nothing", "dtype": "f8",
    "shape": "map", "cuts": "odd", "companion cuts": "alike", "home": "tasks", "scheduler": "sync",
    "limits": "defaults", "parts": "64 MiB", "kernels": "NumPy",
}  # fmt: skip
CALM = Case(ROW, np.arange(24.0).reshape(4, 6)[:, ::-1].copy(), ((3, 1), (2, 0, 4)), {}, {})
median = dask_gpuselect.median


def loaded_once_more(x: Any, **how: Any) -> Any:
    return median(x, **how) + 0 * x.sum()


def at_the_call(x: Any, **how: Any) -> Any:
    x.sum().compute()
    return median(x, **how)


def misdeclared(x: Any, **how: Any) -> Any:
    found = median(x, **how)
    return da.Array(found.dask, found.name, found.chunks, dtype="f4")


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda x, **how: median(x, **how) + 1, "by definition: "),
        (lambda x, **how: median(x, **how).astype("f4"), "by definition: float32"),
        (loaded_once_more, "3 loads of values, and 2 are stated"),
        (at_the_call, "the call computes"),
        (misdeclared, "float32"),
        (lambda x, **how: median(x, **how) + (x.numblocks == (2, 3)), "by definition: "),
        (lambda x, **how: np.log(median(x, **how) - 100), "warning: RuntimeWarning: invalid value"),
    ],
)
def test_broken_laws(ask: Callable[..., Any], what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUESTIONS, "median", replace(QUESTIONS["median"], function=ask))  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=what):
        judge(Hostile(CALM, Around()))


# --- The processes --------------------------------------------------------------------------------

PROGRAM = """
import json, os, sys, time
for number in range(int(sys.argv[1]), 5):
    if number == 1:
        time.sleep(60)
    if number == 3:
        sys.exit("it crashed")
    print(json.dumps({"case": number, "name": "median", "home": "tasks", "spoiled": False,
                      "dtype": "f8"}), flush=True)
"""


def test_hangs_and_crashes(capfd: pytest.CaptureFixture[str]) -> None:
    """One is noted with what was printed, and the next case is judged."""
    summary = Summary(0)
    watch(lambda number: [sys.executable, "-c", PROGRAM, str(number)], summary, 0, 5, 60, limit=1.5)
    assert summary.n == 3
    assert summary.examples == {"hang": 1, "process ended: 1": 3}
    assert "it crashed" in capfd.readouterr().out
