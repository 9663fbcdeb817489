"""A minute of the matrix: drawn cases, judged by definitions and by laws."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.matrix import axes
from tests.matrix.campaign import PARTS, SEED, short_campaign
from tests.matrix.cases import Case, drawn, of_standard, script, tables_of
from tests.matrix.laws import LAWS, problem_of
from tests.matrix.planted import MISTAKES, PACKAGE, ROOT


@pytest.mark.any_dask  # the graphs are those of other tests
@pytest.mark.parametrize("part", range(PARTS))
def test_laws_hold(part: int) -> None:
    """A failure shows a script that fails by itself."""
    failures = [*short_campaign(part)]
    assert not failures, "\n\n".join(failure.script for failure in failures)


@pytest.mark.gpu
@pytest.mark.few(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_laws_hold_of_cupy_arrays(part: int) -> None:
    failures = [*short_campaign(part, device=True)]
    assert not failures, "\n\n".join(failure.script for failure in failures)


@pytest.mark.any_dask
def test_arrays_of_the_standard_are_answered_in_kind() -> None:
    for case in filter(None, map(of_standard, itertools.islice(drawn(SEED), 540))):
        assert problem_of(case, "right") is None, script(case, "right")


def test_mistakes_can_be_planted() -> None:
    """Each replaces a text that is there once."""
    for mistake in MISTAKES:
        text = (ROOT / PACKAGE / mistake.path).read_text()
        assert text.count(mistake.right) == 1, mistake.name


def _windows_of(question: str, values: Any, chunks: Any, asked: Any, **rows: str) -> Case:
    """Return a case of windows along all axes of an array that tasks make."""
    tables = tables_of(question)
    row = {name: options[0] for name, options in tables.items()} | {"question": question}
    row |= {"slots": "all", "missing": "nothing", "home": "tasks", "focus": "", "data": ""}
    return Case(row | rows, values, chunks, asked, {})


@pytest.mark.any_dask
@pytest.mark.parametrize("finish", ["compute", "pickle"])
def test_a_chunk_that_no_window_reaches_may_be_undeclared(finish: str) -> None:
    """The window of the first column wraps around to the second, and no other column has one."""
    values = np.arange(22, dtype="i2").reshape(11, 2)
    asked = {"statistic": "nanmedian", "window": (3, 2), "center": True, "min_periods": None}
    asked |= {"boundary": "wrap", "closed": "neither", "step": 3}
    case = _windows_of("rolling quantile", values, ((11,), (1, 1)), asked, finish=finish)
    assert problem_of(case, "changes named") is None


@pytest.mark.any_dask
def test_infinite_windows_are_watched_while_errors_raise() -> None:
    values = np.tile([np.inf, -np.inf], 50)
    asked = {"size": (1,), "marks": None, "mode": "reflect", "cval": 0, "origin": (0,)}
    asked |= {"nan": "propagate", "rank": 0}
    errors = {"floating-point errors": "raise"}
    case = _windows_of("rank_filter", values, ((50, 50),), asked, dtype="f8", **errors)
    assert LAWS["memory"].applies(case)
    assert problem_of(case, "memory") is None


@pytest.mark.any_dask
def test_spreads_of_windows_that_lack_elements_take_the_stated_memory() -> None:
    values = np.where(np.arange(100) % 10, np.arange(100.0), np.nan)
    asked = {"statistic": "iqr", "window": (2,), "center": True, "min_periods": None}
    asked |= {"boundary": "wrap", "closed": "left", "step": 1, "q": (0.25, 0.75)}
    asked |= {"scale": "normal", "method": "median_unbiased"}
    case = _windows_of("rolling spread", values, ((50, 50),), asked, dtype="f8")
    assert LAWS["memory"].applies(case)
    assert problem_of(case, "memory") is None


@pytest.mark.any_dask
@pytest.mark.parametrize("min_periods", [None, 1])
def test_windows_of_one_element_and_of_its_neighbour_keep_integers(min_periods: int | None) -> None:
    """They need one element, as `min_periods` is `window` by default, and have one at least."""
    asked = {"statistic": "min", "window": (1,), "center": True, "min_periods": min_periods}
    asked |= {"boundary": None, "closed": "both", "step": 1}
    values = np.arange(30, dtype="i2")
    case = _windows_of("rolling extremes", values, ((15, 15),), asked, dtype="i2")
    assert problem_of(case, "right") is None


@pytest.mark.any_dask
def test_counts_of_windows_take_the_stated_memory() -> None:
    asked = {"statistic": "count", "window": (3,), "center": True, "min_periods": None}
    asked |= {"boundary": None, "closed": "right", "step": 1}
    values = np.where(np.arange(100) % 10, np.arange(100.0), np.nan)
    case = _windows_of("rolling extremes", values, ((50, 50),), asked, dtype="f8")
    assert LAWS["memory"].applies(case)
    assert problem_of(case, "memory") is None


@pytest.mark.any_dask
@pytest.mark.parametrize("name", axes.SOURCES)
def test_sources_have_the_elements_and_the_chunks_of_a_case(name: str) -> None:
    """Some chunks have no element."""
    values, chunks = np.arange(8).reshape(4, 2), ((0, 1, 0, 3, 0), (2,))
    x = axes.SOURCES[name](values, chunks)
    assert x.chunks == chunks
    np.testing.assert_array_equal(x.compute(), values)
