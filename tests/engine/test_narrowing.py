"""Cuts that are too many for one place: narrowed on the way, and nothing else is different."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.utils import key_split

from dask_gpuselect import describe_boxplot, explain, median, order_statistic, quantile, sort
from dask_gpuselect.engine import loads, narrowing, rounds
from dask_gpuselect.maths import sizes
from dask_gpuselect.robust import mad, trimmed_mean
from dask_gpuselect.strategies import Kelley, strategy_of
from tests.data import normal
from tests.limits import peak_of
from tests.matrix.laws import same_computed
from tests.sources import Source
from tests.spies import noted

pytestmark = pytest.mark.usefixtures("nothing_kept")

SIZE, N_CHUNKS = 6_000, 40
LIMIT = {"dask_gpuselect.root-limit": 0}  # as few pivots as the plan allows


@pytest.fixture(autouse=True)
def groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of four chunks."""
    monkeypatch.setattr(narrowing.graphs, "MERGE_EVERY", 4)


def lazy(n_chunks: int = N_CHUNKS, size: int = SIZE) -> da.Array:
    values = normal(n_chunks * size)
    values[::1000] = values[0]  # ties
    return da.from_array(values, chunks=size).map_blocks(np.negative, dtype="f8")


def is_narrowed(answer: Any) -> bool:
    several = answer if isinstance(answer, list) else [answer]
    keys = (key for each in several for key in each.__dask_graph__())
    return any(key_split(key).startswith("quantile-narrowing") for key in keys)


def measuring(peaks: dict[str, int], task: Callable[..., Any]) -> Callable[..., Any]:
    """A task that notes what comes to it, and all that it takes beside."""

    @wraps(task)
    def measured(parts: Any, *args: Any, **kwargs: Any) -> Any:
        peak = peak_of(task, parts, *args, **kwargs) + len(pickle.dumps(parts))
        peaks[task.__name__] = max(peaks.get(task.__name__, 0), peak)
        return task(parts, *args, **kwargs)

    return measured


def peaks_of(patch: pytest.MonkeyPatch, module: Any, *names: str) -> dict[str, int]:
    """What tasks of a module hold at most, from now on."""
    peaks: dict[str, int] = {}
    for name in names:
        patch.setattr(module, name, measuring(peaks, getattr(module, name)))
    return peaks


OF_400: dict[str, Callable[[Any], Any]] = {
    "quartiles": lambda x: quantile(x, [0.25, 0.5, 0.75]),
    "strategy": lambda x: order_statistic(
        x, [x.size // 8, 7 * x.size // 8], strategy=Kelley(iterations=1)
    ),
    "trimmed mean": lambda x: trimmed_mean(x, 0.1),
    "several arrays": lambda x: da.stack(median([x, abs(x)])),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_400)
def test_one_place_holds_no_more_than_the_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, ask = lazy(400, 20_000), OF_400[name]
    limit = 2_750_000
    with monkeypatch.context() as patch:
        peaks = peaks_of(patch, loads, "_find_brackets")
        plain = ask(x).compute(scheduler="sync")
    assert peaks["_find_brackets"] > 1.2 * limit
    brackets = peaks_of(monkeypatch, narrowing, "_bracket_if_any")
    answers = peaks_of(monkeypatch, loads, "_resolve")
    with dask.config.set({"dask_gpuselect.root-limit": limit}):
        answer = ask(x)
    np.testing.assert_array_equal(answer.compute(scheduler="sync"), plain)
    assert max(brackets["_bracket_if_any"], answers["_resolve"]) <= limit


@pytest.mark.slow
def test_no_task_of_the_tree_holds_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = {"_coarse", "_bracket_if_any", "_expected", "_cuts_of_candidates"}
    peaks = peaks_of(monkeypatch, narrowing, *tasks)
    x, q, limit = lazy(400), [0.25, 0.5, 0.75], 1_100_000
    with dask.config.set({"dask_gpuselect.root-limit": limit}):
        plan, answer = explain(x, q), quantile(x, q)
    assert plan.root_bytes <= limit
    right = quantile(x, q).compute(scheduler="sync")
    np.testing.assert_array_equal(answer.compute(scheduler="sync"), right)
    assert peaks.keys() == tasks
    assert max(peaks.values()) <= limit


def test_a_rank_that_is_a_tie_keeps_its_pivot() -> None:
    """The range around it has one value."""
    a = np.array([5, 2, 4, 1, 2, 0, 0, 0, 0, 3, 0, 3])
    with dask.config.set({"dask_gpuselect.root-limit": 3000}):
        result = sort(da.from_array(a, chunks=((1, 1, 10),))).compute(scheduler="sync")
    np.testing.assert_array_equal(result, np.sort(a))


HALVES = np.repeat([0.0, 1000.0], 20)  # the median is anywhere between them


@pytest.mark.parametrize("limit", [200_000, 400_000])
@pytest.mark.parametrize("centre", [0.0, HALVES])
def test_no_root_of_a_deviation_holds_more_than_the_limit(
    limit: int, centre: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the third load either, where the shells have a part of all elements."""
    x = lazy() + np.resize(centre, N_CHUNKS * SIZE)
    values = x.compute()
    with dask.config.set({"dask_gpuselect.root-limit": limit}):
        mad(x, scale=1.0).compute(scheduler="sync")  # imports of a first call do not count
        peaks = peaks_of(monkeypatch, loads, "_find_brackets", "_resolve", "_finish_third")
        answer, plan = mad(x, scale=1.0), explain(x, mad)
        (result,) = dask.compute(answer, scheduler="sync")
    assert result == np.median(abs(values - np.median(values)))
    assert peaks.keys() >= {"_resolve", "_finish_third"}
    assert max(peaks.values()) <= limit
    assert plan.gathered_bytes <= limit
    assert plan.reads == 3


@pytest.mark.legacy
@pytest.mark.parametrize("strategy", ["kelley", "radix", "quickselect"])
def test_results_of_a_strategy_fit_the_limit(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all of them would not, there are none: the default engine answers."""
    x, k = lazy(), [*range(0, N_CHUNKS * SIZE, N_CHUNKS * SIZE // 30)]
    limit = rounds._reply_bytes(x, len(k), strategy_of(strategy))
    ask, right = partial(order_statistic, k=k, strategy=strategy), np.sort(x.compute())[k]
    sizes = noted(monkeypatch, rounds, "_merge_results", lambda _, parts: len(pickle.dumps(parts)))
    for room, plan in ((limit - 1, "bracket"), (limit, strategy)):
        assert not sizes
        with dask.config.set({"dask_gpuselect.root-limit": room}):
            assert explain(x, ask).name == plan
            np.testing.assert_array_equal(ask(x).compute(scheduler="sync"), right)
    assert 0 < max(sizes) <= limit


def test_candidates_wait() -> None:
    """At the default limit there would be too many of 10,000 chunks of 1e8 elements."""
    x = da.zeros(10**12, chunks=10**8)
    plan = explain(x, [0.25, 0.5, 0.75])
    assert plan.gathered_bytes < 3e8
    with dask.config.set({"dask_gpuselect.root-limit": "1 PiB"}):
        plan = explain(x, [0.25, 0.5, 0.75])
    assert plan.gathered_bytes == 24 * 10**8 + 10**4 * (24 + 6 * 17) + 5 * 6 * 16  # six ends


NARROWED: dict[str, Callable[..., Any]] = {
    "mad": lambda x: mad(x),
    "weights": lambda x: quantile(x, [0.1, 0.5], weights=abs(x) + 1, method="linear"),
    "weighted box": lambda x: describe_boxplot(x, weights=abs(x) + 1),
    "box": lambda x: describe_boxplot(x, where=x < 9),
    "trimmed mean": lambda x: trimmed_mean(x, 0.1),
    "several arrays": lambda x: median([x, x[: 7 * SIZE] ** 2, 1 / (x + 1)]),
}


@pytest.mark.parametrize("name", NARROWED)
def test_what_is_narrowed_is_answered_as_ever(name: str) -> None:
    """In as many loads."""
    answers, sources = [], []
    for config in (LIMIT, {}):
        sources.append(source := Source((N_CHUNKS * SIZE,)))
        with dask.config.set(config):
            answers.append(NARROWED[name](-np.log(source.lazy(SIZE))))
    assert [is_narrowed(each) for each in answers] == [True, False]
    same_computed(*answers)
    narrowed, plain = (max(source.loads.values()) for source in sources)
    assert narrowed <= plain + (name == "mad")


# --- Loads ----------------------------------------------------------------------------------------


@pytest.mark.few(1)
def test_a_box_of_each_category_in_two_loads() -> None:
    source = Source((N_CHUNKS * SIZE,))
    with dask.config.set(LIMIT):
        x = source.lazy(SIZE)
        boxes = describe_boxplot([x[x < 0.5], x[x > 0.5]])
        assert is_narrowed(boxes)
        boxes.compute()
    assert set(source.loads.values()) == {2}


def test_there_are_few_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a task that waits for all chunks and for its own."""
    monkeypatch.setattr(sizes, "MOST_GROUPS", 3)
    x = lazy()
    with dask.config.set(LIMIT):
        answer = median(x)
    assert is_narrowed(answer)
    waits = "quantile-narrowing-expects"
    groups = [key for key in answer.__dask_graph__() if key_split(key) == waits]
    assert {place for _, place in groups} == {0, 1, 2}
    assert answer.compute(scheduler="sync") == median(x).compute(scheduler="sync")
