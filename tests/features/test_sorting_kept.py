"""Sorts of which the first load keeps much, or whose splitters are too many for one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import argsort, sort, sort_by
from dask_gpuselect.engine import boards, exchange, narrowing, plans
from dask_gpuselect.sorting import graph
from dask_gpuselect.sorting.graph import SplitterQuestion
from tests.data import normal
from tests.sources import Source
from tests.spies import collect, noted, wait_until

N, N_CHUNKS = 15_000, 60
OUT = N * N_CHUNKS // 6  # elements of a chunk of the result

SORTS: dict[str, Callable[[da.Array], Any]] = {
    "sort": lambda x: sort(x, chunks=OUT),
    "argsort": lambda x: argsort(x, chunks=OUT),
    "sort_by": lambda x: sort_by(x, da.arange(x.size, chunks=N), chunks=OUT)[1],
    "uneven chunks": lambda x: sort(x, chunks=((0, 10, OUT, 5 * OUT - 10),)),
    "pieces on disk": lambda x: sort(x, chunks=OUT, spill=True),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SORTS)
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_nearly_two_loads_of_mixed_data(name: str, scheduler: str) -> None:
    data = Source((N * N_CHUNKS,))
    with dask.config.set(scheduler=scheduler, num_workers=2):
        result = SORTS[name](data.lazy(N)).compute()
    # Threads that wait let some more chunks be read before there is a guess.
    assert sum(data.loads.values()) <= (2.15 if scheduler == "sync" else 2.3) * N_CHUNKS
    assert max(data.loads.values()) <= 3
    order = np.argsort(data.whole(), kind="stable")
    has_places = name in ("argsort", "sort_by")
    np.testing.assert_array_equal(result, order if has_places else data.whole()[order])


def test_nothing_is_held_behind() -> None:
    sort(Source((N * N_CHUNKS,)).lazy(N), chunks=OUT)[-1].compute()
    collect()
    wait_until(lambda: not (boards.room.taken or boards._boards))


# --- Splitters that are too many for one place ----------------------------------------------------


LIMITS = {"dask_gpuselect.root-limit": 0, "dask_gpuselect.cache-limit": 0}


def test_few_candidates_and_edges_come_to_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def n_candidates(_: Any, parts: Any, *args: Any, **told: Any) -> int:
        return sum(len(part.candidates) for part in parts)

    def n_edges(_: Any, parts: Any, *args: Any, **told: Any) -> int:
        return sum(part.left.size for part in parts)

    candidates = noted(monkeypatch, narrowing, "_resolved", n_candidates)
    edges = noted(monkeypatch, graph, "_make_deal", n_edges)
    monkeypatch.setattr(exchange, "PAIRS", 10)
    a = normal(3000)
    with dask.config.set(LIMITS):
        result = sort(da.from_array(a, chunks=100)).compute(scheduler="sync")
    np.testing.assert_array_equal(result, np.sort(a))
    assert max(candidates) <= 64
    assert max(edges) <= 30 * 8  # of a group of the result, of 30 * 29 in all


def test_no_task_holds_more_than_the_limit_at_1e12() -> None:
    x = da.zeros(10**12, chunks=10**8)
    question = SplitterQuestion(10**4, x.chunks[0])
    narrowing = plans.narrowing_of(x, question)
    assert narrowing is not None
    assert narrowing.work <= 1 << 30
    stages = exchange.Stages.of(10**4, x.chunks[0])
    plan = graph.SortPlan("sort", x.dtype, question, stages, False, False, None, 256, False)
    places = graph._places_of(plan, 10**4)
    assert max(len(numbers) for numbers, _ in places) * 10**4 * graph.EDGES_WORK <= 1 << 30
    groups = [own for _, own in places[1:]]
    assert [first for first, _ in groups[1:]] == [last for _, last in groups[:-1]]
    assert groups[-1][1] == len(stages.steps) - 1
