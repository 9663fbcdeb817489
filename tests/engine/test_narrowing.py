"""Cuts that are too many for one place: narrowed on the way, and nothing else is different."""

from __future__ import annotations

import pickle
import sys
import tracemalloc
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.utils import key_split
from distributed import Client

from dask_gpuselect import (
    ChunksChangedError,
    describe_boxplot,
    explain,
    median,
    nanquantile,
    order_statistic,
    quantile,
)
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.engine import loads, narrowing, pilot, plans
from dask_gpuselect.engine.reports import Gathered, Proven
from dask_gpuselect.maths import sizes
from dask_gpuselect.maths.cuts import Cuts
from dask_gpuselect.robust import mad
from tests.backends import Backend
from tests.data import normal
from tests.sources import Source, changing

pytestmark = pytest.mark.usefixtures("nothing_kept")

SIZE, N_CHUNKS = 20_000, 40
LIMIT = {"dask_gpuselect.root-limit": 0}  # as few pivots as the plan allows


def with_looks(*args: Any, **can: bool) -> sizes.Narrowing | None:
    """The plan of the lowest limit for which looks at some of the pivots are enough."""
    *of_chunks, _ = args
    plans = (sizes.plan_narrowing(*of_chunks, 2**i, **can) for i in range(60))
    return next((plan for plan in plans if plan is None or plan.looks), None)


@pytest.fixture(params=["looks", "tree"], autouse=True)
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How cuts are narrowed if the limit is low: with looks at some of them, or in a tree."""
    if request.param == "looks":
        monkeypatch.setattr(plans, "plan_narrowing", with_looks)
    return str(request.param)


@pytest.fixture(autouse=True)
def groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of four chunks."""
    monkeypatch.setattr(narrowing.graphs, "MERGE_EVERY", 4)


def lazy(n_chunks: int = N_CHUNKS) -> da.Array:
    values = normal(n_chunks * SIZE)
    values[::1000] = values[0]  # ties
    return da.from_array(values, chunks=SIZE).map_blocks(np.negative, dtype="f8")


def is_narrowed(answer: Any) -> bool:
    return any(key_split(key).startswith("quantile-narrowing") for key in answer.__dask_graph__())


QUESTIONS: dict[str, Callable[[da.Array], Any]] = {
    "median": median,
    "quartiles": lambda x: quantile(x, [0.25, 0.5, 0.75]),
    "extremes": lambda x: quantile(x, [0, 1], method="weibull"),
    "order statistics": lambda x: order_statistic(x, [3, -70_000, 12]),
    "with nan": lambda x: nanquantile(da.where(x > 1.5, np.nan, x), [0.1, 0.9]),
    "nan": lambda x: nanquantile(x * np.nan, [0.1, 0.9]),
    "infinite": lambda x: quantile(da.where(x > 0.1, np.inf, x), [0.1, 0.5, 0.9]),
    "integers": lambda x: quantile((x * 1e4).astype("i8"), [0.1, 0.5], method="nearest"),
    "few integers": lambda x: quantile((x * 2).astype("i4"), [0.1, 0.5], method="nearest"),
    "two axes": lambda x: median(x.reshape((N_CHUNKS * 4, SIZE // 4))),
    "unknown sizes": lambda x: quantile(x[x > 0], [0.1, 0.5]),
    "irregular": lambda x: median(x.rechunk(((5, 0, SIZE * 30, SIZE * 10 - 5),))),
    "box": describe_boxplot,
    "box of quantiles": lambda x: describe_boxplot(x, whis=(5, 95)),
    "boxes": lambda x: describe_boxplot([x[x < 0.3], x, x[x > 5]]),
    "ecdf": lambda x: ecdf(x, 5),
    "weights": lambda x: weighted(x, "inverted_cdf"),
    "weights, averaged": lambda x: weighted(x, "averaged_inverted_cdf"),
    "weights, linear": lambda x: weighted(x, "linear"),
    "box of weights": lambda x: describe_boxplot(x, weights=abs(x) * 1e3 % 5),
    "box of shares": lambda x: describe_boxplot(x, weights=abs(x) * 1e3 % 5, method="inverted_cdf"),
    "few weigh": lambda x: weighted(x, "inverted_cdf", at_least=4),
}


def weighted(x: da.Array, method: str, at_least: float = 0) -> da.Array:
    weights = da.where(x * 1e3 % 5 < at_least, 0, x * 1e3 % 5)
    return quantile(x, [0.0, 0.3, 0.5], weights=weights, method=method)


def numbers(answer: Any) -> list[Any]:
    """All numbers of an answer."""
    if hasattr(answer, "points"):
        return [answer.points, answer.below, answer.upto]
    if not hasattr(answer, "to_dict"):
        return [answer]
    columns = answer.to_dict().values()
    return [np.hstack(column) if column.dtype == object else column for column in columns]


@pytest.mark.few(2)
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_the_answer_is_the_same(question: str) -> None:
    ask, x = QUESTIONS[question], lazy()
    plain = ask(x)
    with dask.config.set(LIMIT):
        answer = ask(x)
    assert is_narrowed(answer)
    assert not is_narrowed(plain)
    (found,), (right,) = (dask.compute(each, scheduler="sync") for each in (answer, plain))
    for mine, theirs in zip(numbers(found), numbers(right), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def roots(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]) -> list[int]:
    """How many pivots prove each bracket."""
    seen: list[int] = []
    prove = Proven.by.__func__  # type: ignore[attr-defined]

    def proving(cls: Any, cuts: Cuts, *args: Any) -> Proven:
        seen.append(len(cuts.pivots))
        proven: Proven = prove(cls, cuts, *args)
        return proven

    by_few = narrowing._brackets_of_each

    def proving_by_few(parts: Any, questions: Any) -> Any:
        seen.extend(
            sum(len(cuts.pivots) for column in columns for cuts in column)
            for columns in zip(*parts, strict=True)
        )
        return by_few(parts, questions)

    with monkeypatch.context() as patch:
        patch.setattr(Proven, "by", classmethod(proving))
        patch.setattr(narrowing, "_brackets_of_each", proving_by_few)
        dask.compute(ask(), scheduler="sync")
    return seen


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("question", "n_roots"), [("median", 1), ("unknown sizes", 1), ("boxes", 3)]
)
def test_few_pivots_prove_the_bracket(
    question: str, n_roots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, x = QUESTIONS[question], lazy()
    every = roots(monkeypatch, lambda: ask(x))
    with dask.config.set(LIMIT):
        few = roots(monkeypatch, lambda: ask(x))
    assert len(few) == len(every) == n_roots
    assert sum(few) < sum(every) / 2


def test_the_plan_says_what_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    x = lazy()
    with dask.config.set(LIMIT):
        plan = explain(x, 0.5)
        (pivots,) = roots(monkeypatch, lambda: median(x))
    assert plan.loads == 2
    assert 40 * pivots <= plan.gathered_bytes < explain(x, 0.5).gathered_bytes / 2


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "question",
    [
        *("median", "extremes", "ecdf", "box", "box of quantiles", "weights", "weights, linear"),
        *("weights, averaged", "box of weights", "box of shares"),
    ],
)
def test_few_candidates_come_to_one_place(
    question: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    look = loads._look

    def looking(parts: list[Gathered], *args: Any, **told: Any) -> Any:
        seen.append(sum(len(part.tally.candidates) for part in parts if part.tally))
        return look(parts, *args, **told)

    monkeypatch.setattr(loads, "_look", looking)
    ask, x = QUESTIONS[question], lazy()
    plain = ask(x).compute(scheduler="sync")
    with dask.config.set(LIMIT):
        found = ask(x).compute(scheduler="sync")
    every, few = seen
    for mine, theirs in zip(numbers(found), numbers(plain), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert few < every / (3 if "box" in question else 10) if how == "tree" else few <= every


@pytest.mark.slow
def test_one_place_holds_no_more_than_the_limit(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes to each task there, and all that it takes beside."""
    peaks: dict[str, int] = {}

    def measured(task: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(task)
        def measuring(parts: list[Any], *args: Any, **kwargs: Any) -> Any:
            given = [part[0][0] if isinstance(part, list) else part for part in parts]
            tracemalloc.start()
            answer = task(parts, *args, **kwargs)
            peak = tracemalloc.get_traced_memory()[1] + sum(map(sys.getsizeof, given))
            tracemalloc.stop()
            peaks[task.__name__] = max(peaks.get(task.__name__, 0), peak)
            return answer

        return measuring

    x = lazy(400)
    limit = 4_000_000
    with monkeypatch.context() as patch:
        patch.setattr(loads, "_find_brackets", measured(loads._find_brackets))
        plain = quantile(x, [0.25, 0.5, 0.75]).compute(scheduler="sync")
    assert peaks.pop("_find_brackets") > 1.2 * limit
    monkeypatch.setattr(loads, "_find_brackets", measured(loads._find_brackets))
    monkeypatch.setattr(narrowing, "_ranges_of_each", measured(narrowing._ranges_of_each))
    with dask.config.set({"dask_gpuselect.root-limit": limit}):
        answer = quantile(x, [0.25, 0.5, 0.75])
    np.testing.assert_array_equal(answer.compute(scheduler="sync"), plain)
    assert peaks.keys() == {"_find_brackets", "_ranges_of_each"}
    assert max(peaks.values()) <= limit


@pytest.mark.slow
@pytest.mark.parametrize("how", ["tree"], indirect=True)
def test_no_task_of_the_tree_holds_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes to each task, and all that it takes beside."""
    peaks: dict[str, int] = {}

    def measured(task: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(task)
        def measuring(parts: Any, *args: Any, **kwargs: Any) -> Any:
            tracemalloc.start()
            answer = task(parts, *args, **kwargs)
            peak = tracemalloc.get_traced_memory()[1] + len(pickle.dumps(parts))
            tracemalloc.stop()
            peaks[task.__name__] = max(peaks.get(task.__name__, 0), peak)
            return answer

        return measuring

    tasks = {"_coarse_of_group", "_brackets_of_each", "_expected_of_each", "_cuts_of_candidates"}
    for name in tasks:
        monkeypatch.setattr(narrowing, name, measured(getattr(narrowing, name)))
    x, limit = lazy(400), 1_100_000
    with dask.config.set({"dask_gpuselect.root-limit": limit}):
        plan = explain(x, [0.25, 0.5, 0.75])
        answer = quantile(x, [0.25, 0.5, 0.75])
    assert plan.root_bytes <= limit
    right = quantile(x, [0.25, 0.5, 0.75]).compute(scheduler="sync")
    np.testing.assert_array_equal(answer.compute(scheduler="sync"), right)
    assert peaks.keys() == tasks
    assert max(peaks.values()) <= limit


def test_more_pivots_leave_fewer_candidates() -> None:
    """At the default limit there would be too many of 10,000 chunks of 1e8 elements."""
    x = da.zeros(10**12, chunks=10**8)
    plan = explain(x, [0.25, 0.5, 0.75])
    assert plan.gathered_bytes < 3e8
    with dask.config.set({"dask_gpuselect.root-limit": "1 PiB"}):
        assert explain(x, [0.25, 0.5, 0.75]).gathered_bytes == 40 * 10**4 * 10**4


def test_any_pivot_may_matter() -> None:
    """Of `mad`, which is answered as ever."""
    with dask.config.set(LIMIT):
        assert not is_narrowed(mad(lazy()))


def test_a_low_limit_does_not_narrow_what_a_pilot_has_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pilot, "PILOT_WORTH", 1)
    x = lazy().persist(scheduler="sync")
    with dask.config.set(LIMIT):
        answer = median(x)
    assert not is_narrowed(answer)
    assert answer.compute() == np.median(x.compute())


# --- Loads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_two_loads(backend: Backend, scheduler: str) -> None:
    source = Source((N_CHUNKS * SIZE,))
    with dask.config.set(LIMIT):
        x = backend.mapped(source.lazy(SIZE))
        answers = [quantile(x, [0.25, 0.5, 0.75]), median(x)]
        assert all(map(is_narrowed, answers))
        found = dask.compute(*answers, scheduler=scheduler)
    assert set(source.loads.values()) == {3}  # one of them is shared
    assert backend.to_numpy(found[0])[1] == backend.to_numpy(found[1])


@pytest.mark.few(1)
def test_a_box_of_each_category_in_two_loads() -> None:
    source = Source((N_CHUNKS * SIZE,))
    with dask.config.set(LIMIT):
        x = source.lazy(SIZE)
        boxes = describe_boxplot([x[x < 0.5], x[x > 0.5]])
        assert is_narrowed(boxes)
        boxes.compute()
    assert set(source.loads.values()) == {2}


def test_the_changed_chunk_is_named(tmp_path: Path) -> None:
    def second(values: Any, load: int) -> Any:
        return values / 2 if load == 2 else values

    x = changing(second, directory=tmp_path, size=SIZE, n_chunks=10)
    with dask.config.set(LIMIT):
        answer = median(x)
    assert is_narrowed(answer)
    with pytest.raises(ChunksChangedError, match=r"chunk \(3,\) (held|holds)"):
        answer.compute(scheduler="sync")


@pytest.mark.few(1)
def test_on_a_cluster(cluster_here: Client) -> None:
    x = lazy()
    with dask.config.set(LIMIT):
        answer = quantile(x, [0.1, 0.9])
    right = quantile(x, [0.1, 0.9]).compute(scheduler="sync")
    np.testing.assert_array_equal(cluster_here.compute(answer).result(), right)


def test_there_are_few_groups(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a task that waits for all chunks and for its own."""
    monkeypatch.setattr(sizes, "MOST_GROUPS", 3)
    x = lazy()
    with dask.config.set(LIMIT):
        answer = median(x)
    assert is_narrowed(answer)
    waits = {"looks": "quantile-narrowing-kept", "tree": "quantile-narrowing-expects"}[how]
    groups = [key for key in answer.__dask_graph__() if key_split(key) == waits]
    assert {place for _, place in groups} == {0, 1, 2}
    assert answer.compute(scheduler="sync") == median(x).compute(scheduler="sync")
