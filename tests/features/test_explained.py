"""`explain` of every kind of question: the plan that runs, with its reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.utils import key_split

from dask_gpuselect import (
    argsort,
    describe_boxplot,
    digitize,
    explain,
    median,
    quantile,
    quantile_bins,
    sort,
)
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.engine import plans
from dask_gpuselect.engine.plans import Plan, as_one, choose, explained
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import iqr, mad, trimmed_mean
from dask_gpuselect.windows import median_filter, rolling
from tests.limits import limited
from tests.sources import Source

LABELS = np.arange(40) % 3


def by_group(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, **how: getattr(groupby(x, LABELS, axis=0), function.__name__)(**how)


def windows(x: Any) -> Any:
    return rolling(x, 5, axis=0).median()


Row = tuple[Callable[..., Any], dict[str, Any], str, int, int]

OF_ALL: tuple[Row, ...] = (
    (median, {}, "bracket", 2, 2),
    (iqr, {}, "bracket", 2, 2),
    (mad, {}, "bracket", 2, 3),
    (describe_boxplot, {}, "bracket", 2, 3),
    (trimmed_mean, {}, "bracket", 2, 2),
    (quantile_bins, {"n_bins": 7}, "bracket", 2, 2),
    (ecdf, {"points": 5}, "bracket", 2, 2),
    (ecdf, {"points": [0.0, 1.0]}, "once", 1, 1),
    (digitize, {"bins": [0.0, 1.0]}, "once", 1, 1),
    (windows, {}, "windows", 1, 1),
    (median_filter, {"size": 3}, "windows", 1, 1),
)
ALONG: tuple[Row, ...] = tuple(
    (function, how | {"axis": 0}, name, loads, loads)
    for function, how, in_passes in (
        (median, {}, 2),
        (iqr, {}, 2),
        (mad, {}, 4),
        (trimmed_mean, {}, 3),
        (describe_boxplot, {}, 3),
        (quantile_bins, {"n_bins": 2}, 2),
    )
    for name, loads in (("column", 1), ("passes", in_passes))
)


def named(row: Row) -> str:
    """Return the id of a test, the same in every process."""
    return f"{row[0].__name__} {row[1]} {row[2]}"


def check(x: Any, source: Source, row: Row, explained: Callable[..., Any] = explain) -> None:
    function, how, name, least, most = row
    plan = explained(x, function, **how)
    assert not source.loads
    assert (plan.name, plan.reads, plan._least_loads) == (name, most, least)
    answer = function(x, **how)
    assert any(name in key_split(key) for key in answer.__dask_graph__())
    dask.compute(answer)
    loads = set(source.loads.values())
    assert least <= min(loads) <= max(loads) <= most


@pytest.mark.parametrize("row", OF_ALL, ids=named)
@pytest.mark.usefixtures("nothing_kept")
def test_of_all_elements(row: Row) -> None:
    source = Source((4000,))
    check(source.lazy(500), source, row)


@pytest.mark.parametrize("row", ALONG, ids=named)
def test_along_an_axis(row: Row) -> None:
    source = Source((2000, 6))
    with limited("20 kB" if row[2] == "passes" else "1 GiB"):
        check(source.lazy((200, 6)), source, row)


@pytest.mark.parametrize("function", [sort, argsort])
@pytest.mark.parametrize("cached", [0, "1 GiB"])
def test_sorting(function: Callable[..., Any], cached: Any) -> None:
    source = Source((4000,))
    x = source.lazy(500)
    with dask.config.set({"dask_gpuselect.cache-limit": cached}):
        plan = explain(x, function)
        function(x).compute()
    assert (plan.name, plan.reads) == ("sort", 3)
    assert plan.waiting_bytes >= x.nbytes  # the pieces
    assert max(source.loads.values()) <= 3


@pytest.mark.parametrize("function", [median, mad, describe_boxplot])
def test_groups(function: Callable[..., Any]) -> None:
    """A method of groups explains functions as the function itself does."""
    source = Source((40, 6))
    x = source.lazy((40, 6))
    plan = groupby(x, LABELS, axis=0).explain(function)
    assert plan == explain(x, by_group(function))
    assert (plan.name, plan.reads, plan.n_chunks) == ("lanes", 1, 1)
    dask.compute(by_group(function)(x))
    assert set(source.loads.values()) == {1}


@pytest.mark.parametrize("function", [median, mad, describe_boxplot])
def test_groups_of_all_elements(function: Callable[..., Any]) -> None:
    source = Source((40_000,))
    x, labels = source.lazy(4000), np.arange(40_000) % 3
    with limited("40 kB"):
        groups = groupby(x, labels)
        plan = groups.explain(function)
        dask.compute(getattr(groups, function.__name__)())
    assert max(source.loads.values()) <= plan.reads


def test_numbers_and_the_function_have_one_plan() -> None:
    x = da.ones(4000, chunks=500)
    assert explain(x, [0.2, 0.5]) == explain(x, lambda x: quantile(x, [0.2, 0.5]))
    assert x.exact.explain(mad) == explain(x, mad)


@pytest.mark.parametrize("function", [mad, sort, describe_boxplot])
def test_no_graph_is_made(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dask_gpuselect.engine.graphs.each_chunk", None)
    monkeypatch.setattr("dask_gpuselect.engine.first_loads.first_loads", None)
    assert explain(da.ones(4000, chunks=500), function).n_chunks == 8


def test_calls_answer_after_an_explanation() -> None:
    """Also after one that fails."""
    x = da.arange(9, chunks=2)
    with pytest.raises(ValueError, match="n_bins must be at least 1"):
        explain(x, quantile_bins, n_bins=0)
    explain(x, mad)
    assert plans._take.get() is None
    assert median(x).compute() == 4


@pytest.mark.parametrize(
    ("q", "options", "message"),
    [
        (len, {}, "len has no plan of this package: pass a function that asks"),
        (0.5, {"n_bins": 3}, "explain takes n_bins only with a function: pass it as q"),
        (quantile, {}, "explain passes no quantiles to quantile: pass these instead"),
        (mad, {"n_bins": 3}, r"mad\(\) got an unexpected keyword argument 'n_bins'"),
    ],
)
def test_what_has_no_plan_is_refused(q: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        explain(da.ones(9, chunks=2), q, **options)


def test_plans_that_run_one_after_the_other() -> None:
    """Reads add up; of bytes, those on disk among them, the most are told."""
    first, second = Plan("passes", 2, 10, 5), Plan("scratch", 1, 7, 8, disk_bytes=99)
    plan = explained(lambda: _choose_both(first, second))
    assert plan is not None
    assert (plan.name, plan.loads, plan.task_bytes) == ("passes", 3, 10)
    assert (plan.gathered_bytes, plan.disk_bytes) == (8, 99)


def _choose_both(*some: Plan) -> None:
    with as_one():
        for each in some:
            choose(each)
