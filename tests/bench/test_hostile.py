"""`tests.hostile` in short: some of its cases, and that it notices what it is to notice."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dask.array as da
import numpy as np
import pytest

import dask_gpuselect
from tests.hostile.__main__ import Summary, watch
from tests.hostile.dice import Dice, Surroundings
from tests.hostile.doors import DOORS, Broken
from tests.hostile.judge import (
    Case,
    drawn,
    failure_of,
    judge,
    senseless,
    signature,
    spoilt_by,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

CASES = (0, *range(2, 34), *range(35, 60))  # the others have 50,000 elements
FIRST = 60
MANY, ALL = 150, 1500
A = np.arange(24.0).reshape(4, 6)[:, ::-1].copy()


def case_of(name: str, **arguments: Any) -> Case:
    chunks = ((3, 1), (2, 0, 4))
    calls = ((name, arguments),)
    return Case(A, calls, "lazy", "C", chunks, ((4,), (6,)), "counted", None, Surroundings())


SENSELESS = [
    (name, what) for name, door in DOORS.items() if door.spoils for what in ("data", *door.spoils)
]
MEDIAN: dict[str, Any] = {"axis": None, "keepdims": False}


def without_cluster(number: int) -> Case:
    """One would outlive the test, and has warnings of its own."""
    case = drawn(0, number)
    if case.surroundings.scheduler != "distributed":
        return case
    return replace(case, surroundings=replace(case.surroundings, scheduler="threads"))


@pytest.mark.few(7)
@pytest.mark.parametrize("number", CASES)
def test_some_cases(number: int) -> None:
    judge(without_cluster(number))


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[] if first < FIRST + MANY else [pytest.mark.thorough])
        for first in range(FIRST, FIRST + ALL, 50)
    ],
)
def test_many_cases(first: int) -> None:
    for number in range(first, first + 50):
        case = without_cluster(number)
        if (error := failure_of(case)) is not None:
            pytest.fail(f"--seed 0 --case {number}: {signature(error, case)}\n{case}")


@pytest.mark.parametrize(("name", "what"), SENSELESS)
def test_what_makes_no_sense_is_refused(name: str, what: str) -> None:
    """By an error that says so, of plain and of lazy arrays."""
    door, d = DOORS[name], Dice(3)
    shape = (7,) if door.ndim[1] == 1 else (4, 3)
    a = door.fit(d, np.arange(math.prod(shape), dtype="f8").reshape(shape))
    chunks = tuple(
        (n // 2, n - n // 2) if i < door.divided else (n,) for i, n in enumerate(a.shape)
    )
    failures = []
    for mode in ("plain", "lazy") if door.how == "either" else (door.how,):
        calls = ((name, door.draw(d, a)),)
        case = Case(a, calls, mode, "C", chunks, chunks, "memory", None, Surroundings())
        for value in senseless(name, what, mode, a.shape):
            spoilt = spoilt_by(case, what, value)
            if (error := failure_of(spoilt)) is not None:
                failures.append(f"{mode} {spoilt.spoiled}: {error!r}")
    assert not failures, "\n".join(failures)


def test_the_same_case_again() -> None:
    assert repr(drawn(5, 17)) == repr(drawn(5, 17)) != repr(drawn(5, 18))


# --- That it notices what is wrong ----------------------------------------------------------------


def loaded_once_more(x: Any, **how: Any) -> Any:
    return dask_gpuselect.median(x, **how) + 0 * x.sum()


def at_the_call(x: Any, **how: Any) -> Any:
    x.sum().compute()
    return dask_gpuselect.median(x, **how)


def misdeclared(x: Any, **how: Any) -> Any:
    found = dask_gpuselect.median(x, **how)
    return da.Array(found.dask, found.name, found.chunks, dtype="f4")


def by_chunk(x: Any, **how: Any) -> Any:
    found = dask_gpuselect.median(x, **how)
    return found + (x.numblocks == (2, 3)) if isinstance(x, da.Array) else found


def warning(x: Any, **how: Any) -> Any:
    return np.log(dask_gpuselect.median(x, **how) - 100).astype("f8")


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda x, **how: dask_gpuselect.median(x, **how) + 1, "oracle: other values"),
        (lambda x, **how: dask_gpuselect.median(x, **how).astype("f4"), "oracle: float32"),
        (lambda x, **how: dask_gpuselect.median(x, **how | {"keepdims": True}), r"oracle: float64"),
        (loaded_once_more, "3 loads, and 2 at most are documented"),
        (at_the_call, "computed at the call"),
        (misdeclared, "declared float32, and is float64"),
        (by_chunk, "oracle: other values"),
        (warning, "warning: RuntimeWarning: invalid value"),
    ],
)
def test_broken_laws(ask: Callable[..., Any], what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DOORS, "median", replace(DOORS["median"], ask=ask))  # type: ignore[attr-defined]
    with pytest.raises(Broken, match=what):
        judge(case_of("median", **MEDIAN))


def test_what_makes_no_sense_and_is_answered() -> None:
    with pytest.raises(Broken, match="not refused: median: axis=0"):
        judge(replace(case_of("median", axis=0), spoiled="axis=0"))
    judge(replace(case_of("median", axis=2), spoiled="axis=2"))


# --- The processes --------------------------------------------------------------------------------

PROGRAM = """
import json, os, sys, time
for number in range(int(sys.argv[1]), 5):
    if number == 1:
        time.sleep(60)
    if number == 3:
        sys.exit("it crashed")
    print(json.dumps({"case": number, "doors": ["median"], "mode": "lazy", "spoiled": "",
                      "dtype": "f8"}), flush=True)
"""


def test_hangs_and_crashes(capfd: pytest.CaptureFixture[str]) -> None:
    """One is noted with what was printed, and the next case is judged."""
    summary = Summary(0)
    watch(lambda number: [sys.executable, "-c", PROGRAM, str(number)], summary, 0, 5, 60, limit=3)
    assert summary.n == 3
    assert summary.examples == {"hang": 1, "process ended: 1": 3}
    assert "it crashed" in capfd.readouterr().out
