"""A minute of the matrix: drawn cases, judged by definitions and by laws."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dask_gpuselect.strategies import STRATEGIES
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


def made_by_tasks(
    question: str, values: Any, chunks: Any, asked: dict[str, Any], **rows: str
) -> Case:
    """Make a case about all elements, with the first row of other tables."""
    row = {axis: options[0] for axis, options in tables_of(question).items()}
    row |= {"question": question, "slots": "all", "missing": "nothing", "home": "tasks"}
    row |= {"focus": "", "data": "", "dtype": values.dtype.str[1:]}
    return Case(row | {"floating-point errors": "raise"} | rows, values, chunks, asked, {})


@pytest.mark.any_dask
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_send_what_is_stated(strategy: str) -> None:
    for n in (12, 900):
        asked = {"k": [0, 1, n // 3, -2], "strategy": strategy}
        case = made_by_tasks("order_statistic", np.arange(float(n)), ((n // 12,) * 12,), asked)
        assert problem_of(case, "bytes") is None


@pytest.mark.any_dask
def test_boxes_send_the_sums_that_are_stated() -> None:
    values = np.resize(10.0 ** np.linspace(-300, 300, 24), 48)
    asked = {"whis": 1.5, "method": "linear", "nan_policy": "propagate", "autorange": False}
    case = made_by_tasks("describe_boxplot", values, ((6,) * 8,), asked | {"max_fliers": 5})
    assert problem_of(case, "bytes") is None


MANY = np.where(np.arange(100) % 10, np.arange(100.0), np.nan)
ROLLING = {"center": True, "min_periods": None, "boundary": None, "closed": "right", "step": 1}
TURNED = ROLLING | {"boundary": "wrap", "closed": "neither", "step": 3, "window": (3, 2)}
TURNED["statistic"] = "nanmedian"
RANKS = {"size": (1,), "marks": None, "mode": "reflect", "cval": 0, "origin": (0,), "rank": 0}
SPREAD = ROLLING | {"statistic": "iqr", "window": (2,), "boundary": "wrap", "closed": "left"}
SPREAD |= {"q": (0.25, 0.75), "scale": "normal", "method": "median_unbiased"}
COUNTED = ROLLING | {"statistic": "count", "window": (3,)}
ONE = ROLLING | {"statistic": "min", "window": (1,), "closed": "both"}
WINDOWS: dict[str, tuple[str, str, Any, dict[str, Any]]] = {
    # The window of the first column wraps around to the second, and no other column has one.
    "unread": ("changes named", "rolling quantile", np.arange(22).reshape(11, 2), TURNED),
    "infinite": ("memory", "rank_filter", np.tile([np.inf, -np.inf], 50), RANKS | {"nan": "omit"}),
    "spreads": ("memory", "rolling spread", MANY, SPREAD),
    "counts": ("memory", "rolling extremes", MANY, COUNTED),
    "left": ("memory", "rolling extremes", MANY, COUNTED | {"closed": "left", "window": (2,)}),
    # One element is needed, as `min_periods` is `window` by default, and there is one at least.
    "one": ("right", "rolling extremes", np.arange(30, dtype="i2"), ONE),
    "one asked": ("right", "rolling extremes", np.arange(30, dtype="i2"), ONE | {"min_periods": 1}),
}


@pytest.mark.any_dask
@pytest.mark.parametrize("finish", ["compute", "pickle"])
@pytest.mark.parametrize("name", WINDOWS)
def test_laws_of_windows_that_failed(name: str, finish: str) -> None:
    """Windows along all axes of an array that tasks make."""
    law, question, values, asked = WINDOWS[name]
    chunks = ((len(values) // 2,) * 2,) if values.ndim == 1 else ((len(values),), (1, 1))
    case = made_by_tasks(question, values, chunks, asked, finish=finish)
    assert LAWS[law].applies(case) or finish == "pickle"
    assert problem_of(case, law) is None
