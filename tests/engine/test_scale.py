"""What a chunk costs does not grow with the number of chunks."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Iterator
from functools import partial
from statistics import fmean
from typing import Any
from unittest.mock import patch

import dask
import dask.array as da
import dask.order
import numpy as np
import pytest

from dask_gpuselect import argsort, describe_boxplot, median, nanquantile, order_statistic, sort
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.engine import keeping
from dask_gpuselect.maths import sizes
from dask_gpuselect.neighbors import kneighbors
from dask_gpuselect.robust import LeastTrimmedSquares, iqr, mad
from tests.data import normal
from tests.graphs import names_of
from tests.limits import configured

SIZE = 12  # elements of a chunk


@pytest.fixture(autouse=True)
def as_of_very_many_chunks() -> Iterator[None]:
    """As many groups of what is kept, whatever the number of chunks."""
    with patch.object(keeping, "GROUPS", 2):
        yield


def lazy(n_chunks: int) -> da.Array:
    values = normal(n_chunks * SIZE)
    return da.from_array(values, chunks=SIZE).map_blocks(np.negative, dtype="f8")


def table(n_chunks: int) -> da.Array:
    return lazy(n_chunks * 4).reshape(n_chunks * SIZE, 4).rechunk((SIZE, 4))


def in_passes(question: Callable[..., Any]) -> Callable[[int], Any]:
    def asked(n_chunks: int) -> Any:
        x = table(n_chunks)
        with configured(column_limit=x.nbytes // 3, scratch_directory=False):
            return question(x, axis=0).compute(scheduler="sync")

    return asked


def narrowed(n_chunks: int) -> Any:
    """With as many groups whatever the number of chunks, as there are of very many chunks."""
    with (
        dask.config.set({"dask_gpuselect.root-limit": 0}),
        patch.object(sizes, "MOST_GROUPS", 2),
    ):
        answer = median(lazy(n_chunks))
    assert "narrowing" in "".join(names_of(answer))
    return answer.compute(scheduler="sync")


def of_all(question: Callable[[da.Array], Any]) -> Callable[[int], Any]:
    """By one plan: chunks of unknown sizes are narrowed if they are more than a hundred."""

    def asked(n_chunks: int) -> Any:
        with configured(root_limit="1 PiB"):
            return dask.compute(question(lazy(n_chunks)), scheduler="sync")

    return asked


def fitted(n_chunks: int) -> Any:
    rows = table(n_chunks)
    with dask.config.set(scheduler="sync"):
        LeastTrimmedSquares(n_starts=20, n_best=2, random_state=0).fit(rows[:, :3], rows[:, 3])


QUESTIONS: dict[str, Callable[[int], Any]] = {
    **{f.__name__: of_all(f) for f in (median, describe_boxplot, mad, iqr, sort, argsort)},
    "less its median": of_all(lambda x: x - median(x)),
    "quantiles": of_all(lambda x: nanquantile(x, [0.1, 0.5, 0.9])),
    "unknown sizes": of_all(lambda x: median(x[x > 0])),
    "narrowed": narrowed,
    "in memory": of_all(lambda x: median(x.persist(scheduler="sync"))),
    "boxes": of_all(lambda x: describe_boxplot([x[x < 0], x[x > 0], x])),
    "ecdf": of_all(lambda x: ecdf(x, 5)),
    "a strategy": of_all(lambda x: order_statistic(x, 7, strategy="bisection")),
    "neighbours": lambda n: dask.compute(
        kneighbors(table(n), np.zeros((2, 4)), 3), scheduler="sync"
    ),
    "a robust fit": fitted,
    **{f"{f.__name__} in passes": in_passes(f) for f in (median, describe_boxplot, mad)},
}


def work_of_order(compute: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> float:
    """How many keys for each task are in the sets that `dask.order` makes: of the first tasks that
    a task comes from, and of the last ones that it leads to."""
    n_keys, n_tasks = 0, 0
    once_for_each_graph = dask.order.ndependencies

    def counted(keys: Collection[Any] = ()) -> frozenset[Any]:
        nonlocal n_keys
        n_keys += len(keys)
        return builtins.frozenset(keys)

    def counting(dependencies: Any, dependents: Any) -> Any:
        nonlocal n_tasks
        n_tasks += len(dependencies)
        return once_for_each_graph(dependencies, dependents)

    with monkeypatch.context() as patched:
        patched.setattr(dask.order, "frozenset", counted, raising=False)
        patched.setattr(dask.order, "ndependencies", counting)
        compute()
    assert n_tasks
    return n_keys / n_tasks


# Of expressions the order of hashes moves this work between 0.9 and 2.4 keys a task, at any size.
SEVERAL = {"narrowed": range(30, 46, 3), "ecdf": range(30, 46, 3)}


# Of expressions the readers of x wait for nothing, beside x.mean() too.
LEGACY = pytest.param("less its median", marks=pytest.mark.legacy)


@pytest.mark.few(2)
@pytest.mark.parametrize("question", [LEGACY, *(each for each in QUESTIONS if "less" not in each)])
def test_order_is_linear(
    question: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Three times the chunks are as much work for a task; three times as much where some task waits
    for all chunks and, apart from that, for its own."""
    ask, sizes = QUESTIONS[question], SEVERAL.get(question, [40])
    few, many = (
        fmean(work_of_order(partial(ask, times * n), monkeypatch) for n in sizes)
        for times in (1, 3)
    )
    # Three times as much would still be more.
    by_hashes = 2.5 if request.config.getoption("expressions") and few > 0.85 else 0
    assert many <= max(1.5 * few, by_hashes)


@pytest.mark.legacy
def test_the_test_sees_what_is_not_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(n_chunks: int) -> Any:
        x = lazy(n_chunks)
        own = x.map_blocks(np.sort)
        tied = da.map_blocks(np.add, own, own.sum(), dtype="f8")
        return tied.sum().compute(scheduler="sync", optimize_graph=False)

    def apart(n_chunks: int) -> Any:
        return lazy(n_chunks).sum().compute(scheduler="sync", optimize_graph=False)

    # It depends on the order of hashes: 900 chunks are 18 to 120 keys a task, and 1 of what is
    # linear.
    tied, linear = (work_of_order(partial(ask, 900), monkeypatch) for ask in (both, apart))
    assert tied > 5 * linear
