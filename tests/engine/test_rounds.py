"""The graph of a strategy's rounds: loads, what is left to the default engine, and sources that
change."""

from __future__ import annotations

import math
import pickle
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dask_gpuselect import ChunksChangedError, order_statistic, quantile
from dask_gpuselect.engine import rounds
from dask_gpuselect.kernels.reference import measures
from dask_gpuselect.strategies import STRATEGIES, Bisection, Kelley, Strategy, strategy_of
from dask_gpuselect.strategies.known import Known, Reply
from tests.backends import Backend
from tests.data import FLOATS, hashed, normal, uniform
from tests.graphs import names_of
from tests.oracle import check
from tests.selecting import VARIANTS, find
from tests.sources import Source, changing

SHAPE, CHUNKS = (60, 50), (25, 20)
N_CHUNKS = 9

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
few_strategies = pytest.mark.parametrize("strategy", ["kelley", "radix", "randomized", "bucket"])


@pytest.fixture(autouse=True)
def _in_this_thread() -> Iterator[None]:
    with dask.config.set(scheduler="sync"):
        yield


def loads(source: Source) -> int:
    """Of every chunk the same."""
    assert len(source.loads) == N_CHUNKS
    (number,) = set(source.loads.values())
    return number


def most_loads(strategy: Strategy) -> int:
    """As `order_statistic` states, without the default engine's."""
    return strategy.rounds + (strategy.opening is None) + 1


# --------------------------------------------------------------------------------------------------
# Loads
# --------------------------------------------------------------------------------------------------

# In all: the extremes or a count, the rounds, and what is left; of 3,000 random numbers.
MOST = {
    "kelley": 9,
    "bisection": 22,
    "golden_section": 22,
    "brent_minimize": 22,
    "brent_root": 16,
    "radix": 10,
    "bucket": 6,
    "randomized": 6,
    "quickselect": 30,
    "sort_and_choose": 2,
    "bitonic_merge": 2,
}


@every_strategy
def test_loads(backend: Backend, strategy: str) -> None:
    """All ranks share them."""
    source = Source(SHAPE)
    x = backend.mapped(source.lazy(CHUNKS))
    k = [0, 1500, -1]
    answer = backend.to_numpy(order_statistic(x, k, strategy=strategy).compute())
    check(answer, np.sort(source.whole(), axis=None)[k])
    assert loads(source) <= min(MOST[strategy], most_loads(strategy_of(strategy)))


@every_strategy
def test_loads_of_one_rank_in_the_middle(strategy: str) -> None:
    source = Source(SHAPE)
    answer = order_statistic(source.lazy(CHUNKS), 1500, strategy=strategy).compute()
    assert answer == np.sort(source.whole(), axis=None)[1500]
    assert 2 <= loads(source) <= MOST[strategy]


class Same(Source):
    """A source all of whose elements are equal."""

    def values(self, index: Any) -> Any:
        return np.full_like(super().values(index), 0.25)


@every_strategy
def test_a_round_that_is_not_needed_reads_nothing(strategy: str) -> None:
    """Whether the opening is the strategy's own or counts for it, it has the extremes."""
    source = Same(SHAPE)
    answer = order_statistic(source.lazy(CHUNKS), [0, 7, 1500, -1], strategy=strategy).compute()
    assert (answer == 0.25).all()
    assert loads(source) == 1


@every_strategy
def test_the_extremes_take_one_load(strategy: str) -> None:
    source = Source(SHAPE)
    answer = order_statistic(source.lazy(CHUNKS), [0, -1], strategy=strategy).compute()
    assert answer.tolist() == [source.whole().min(), source.whole().max()]
    assert loads(source) == 1


def test_quantiles_share_the_loads() -> None:
    source = Source(SHAPE)
    q = [0.25, 0.5, 0.75]
    answer = quantile(source.lazy(CHUNKS), q, strategy="radix").compute()
    np.testing.assert_array_equal(answer, np.quantile(source.whole(), q))
    assert loads(source) <= MOST["radix"]


def test_persisted_chunks_are_read_in_place(backend: Backend) -> None:
    source = Source(SHAPE)
    x = backend.mapped(source.lazy(CHUNKS)).persist()
    answer = backend.to_numpy(order_statistic(x, 1500, strategy="kelley").compute())
    check(answer, np.sort(source.whole(), axis=None)[1500])
    assert loads(source) == 1


# --------------------------------------------------------------------------------------------------
# What is too much to gather
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def _gather_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "GATHERED", 0)
    monkeypatch.setattr(rounds, "ALWAYS_GATHERED", 20)


@pytest.mark.usefixtures("_gather_little")
@pytest.mark.parametrize("label", ["sort_and_choose", "bitonic_merge", "Kelley once"])
def test_what_is_too_much_is_found_by_the_default_engine(backend: Backend, label: str) -> None:
    """In two loads more, instead of that which gathers."""
    source = Source(SHAPE)
    x = backend.mapped(source.lazy(CHUNKS))
    k = [4, 1500, 2990]
    answer = backend.to_numpy(order_statistic(x, k, strategy=VARIANTS[label]).compute())
    check(answer, np.sort(source.whole(), axis=None)[k])
    assert loads(source) == most_loads(VARIANTS[label]) - 1 + 2


@pytest.mark.usefixtures("_gather_little")
def test_a_part_is_gathered_and_the_rest_found_otherwise() -> None:
    """Of ranks whose brackets are narrow, and others."""
    source = Source(SHAPE)
    k = [1, 2998, *range(1400, 1500, 10)]
    answer = order_statistic(source.lazy(CHUNKS), k, strategy=Kelley(iterations=3)).compute()
    check(answer, np.sort(source.whole(), axis=None)[k])
    assert loads(source) <= 1 + 3 + 1 + 2


@pytest.mark.usefixtures("_gather_little")
@every_strategy
@pytest.mark.slow
def test_every_strategy_with_little_room(strategy: str) -> None:
    for name in ("tied", "scales", "normal"):
        x = FLOATS[name](2000)
        k = [3, 999, 1000, 1990]
        answer = order_statistic(da.from_array(x, chunks=700), k, strategy=strategy).compute()
        check(answer, np.sort(x)[k])


def test_how_much_is_gathered() -> None:
    """So many elements for each rank, and not all of a large array."""
    n, n_chunks = 10**10, 10**4
    most = 4 * math.isqrt(n * n_chunks) + (1 << 16)
    for inside, is_gathered in ((n, False), (most + 1, False), (most, True), (1, True)):
        known = replace(Known.at_first(0, 0, n, np.dtype("f8")), inside=inside)
        progress = rounds.Progress(n, 0, (rounds.Wanted(known, (), None),))
        assert bool(progress.gathers(n_chunks)) == is_gathered


def test_each_chunk_gives_its_share_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    report = rounds.kernels.report

    def noted(chunk: Any, dtype: Any, probe: Any) -> Any:
        found = report(chunk, dtype, probe)
        if hasattr(found, "keys"):
            drawn.append((len(chunk), len(found.keys)))
        return found

    monkeypatch.setattr(rounds.kernels, "report", noted)
    x = da.from_array(normal(60_000), chunks=((50_000, 9_000, 1_000),))
    order_statistic(x, 30_000, strategy="randomized").compute()
    total = strategy_of("randomized").size  # type: ignore[attr-defined]
    first = dict(drawn[:3])
    assert first == {n: math.ceil(total * (n / 60_000)) for n in (50_000, 9_000, 1_000)}


def test_pivots_of_sorted_chunks() -> None:
    """Random, though each chunk's own are near each other."""
    source = da.from_array(np.arange(100_000.0), chunks=10_000)
    counts = []
    x = source.map_blocks(lambda block: counts.append(1) or block, dtype=float, meta=np.empty(0))
    assert order_statistic(x, 70_000, strategy="quickselect").compute() == 70_000
    assert len(counts) <= 10 * 30


# --------------------------------------------------------------------------------------------------
# Any chunks, any scheduler
# --------------------------------------------------------------------------------------------------


@few_strategies
@settings(max_examples=12)
@given(data=st.data())
def test_chunks_do_not_matter(strategy: str, data: st.DataObject) -> None:
    """Irregular ones, empty ones, and of unknown sizes."""
    n = data.draw(st.integers(1, 300))
    x = np.where(hashed(np.arange(n)) < 0.2, np.nan, np.round(normal(n), 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    sizes = tuple(np.diff([0, *cuts, n]).tolist())
    lazy = da.from_array(x, chunks=(sizes,))
    # Dask's own selection fails of one element beside empty chunks: it broadcasts such a dimension.
    if (n > 1 or len(sizes) == 1) and data.draw(st.booleans()):
        lazy = lazy[lazy != 0.1]
        x = x[x != 0.1]
    k = data.draw(st.lists(st.integers(0, len(x) - 1), max_size=4)) if len(x) else []
    answer = order_statistic(lazy, np.array(k, int), strategy=strategy).compute()
    check(answer, np.sort(x)[k])


@pytest.mark.few(7)
@every_strategy
def test_dimensions_and_empty_chunks(strategy: str) -> None:
    x = np.where(uniform(24 * 30) < 0.1, np.nan, normal(24 * 30)).reshape(4, 6, 30)
    lazy = da.from_array(x, chunks=((1, 0, 3), (6, 0), (7, 23)))
    k = [0, 5, 360, -1]
    answer = order_statistic(lazy, k, strategy=strategy).compute()
    check(answer, np.sort(x, axis=None)[k])


@few_strategies
def test_threads(strategy: str) -> None:
    source = Source(SHAPE)
    x = source.lazy(CHUNKS)
    with dask.config.set(scheduler="threads", num_workers=2):
        answer = order_statistic(x, [7, 1500], strategy=strategy).compute()
    check(answer, np.sort(source.whole(), axis=None)[[7, 1500]])


def test_on_a_cluster(worker_here: LocalCluster) -> None:
    source = Source(SHAPE)
    answers = [
        order_statistic(source.lazy(CHUNKS), 1500, strategy=strategy)
        for strategy in ("kelley", "radix", "sort_and_choose", "quickselect")
    ]
    with Client(worker_here, set_as_default=False) as client:
        found = client.gather(client.compute(answers))
    assert set(found) == {np.sort(source.whole(), axis=None)[1500]}


@few_strategies
def test_a_chunk_that_is_a_python_number(strategy: str) -> None:
    """As some reductions leave them."""
    x = da.from_delayed(dask.delayed(float)(3), shape=(), dtype=float)
    assert order_statistic(x, 0, strategy=strategy).compute() == 3


# --------------------------------------------------------------------------------------------------
# The graph
# --------------------------------------------------------------------------------------------------


def test_keys_are_deterministic() -> None:
    """Equal questions have one key; others differ by all that makes an answer differ."""
    x = Source(SHAPE).lazy(CHUNKS)
    one, same = (order_statistic(x, [3, 4], strategy=Kelley()) for _ in range(2))
    assert one.name == same.name
    assert set(dict(one.dask)) == set(dict(same.dask))
    others = [
        order_statistic(x, [3, 5], strategy="kelley"),
        order_statistic(x, [3, 4], strategy=Kelley(iterations=3)),
        order_statistic(x, [3, 4], strategy="bisection"),
        order_statistic(x, [3, 4]),
        order_statistic(x + 1, [3, 4], strategy="kelley"),
        quantile(x, [0.3, 0.4], strategy="kelley"),
    ]
    assert len({one.name, *(other.name for other in others)}) == 1 + len(others)


@pytest.mark.parametrize("label", VARIANTS)
def test_a_search_that_is_run_again_proposes_the_same(label: str) -> None:
    """As the graph of rounds does: every round runs the search from its beginning."""
    strategy = VARIANTS[label]
    for name, first, last in (("normal", 149, 150), ("scales", 7, 7), ("tied", 150, 150)):
        values = FLOATS[name](300)
        found = find(values, first, last, strategy, copies=False)
        assert replayed(values, first, last, strategy) == found.probes


def replayed(values: NDArray[Any], first: int, last: int, strategy: Strategy) -> list[Any]:
    known = Known.at_first(first, last, len(values), values.dtype)
    asked, report = [], None
    if strategy.opening is not None:
        asked.append(strategy.opening)
        report = measures.report(values, strategy.opening)
        known = known.told(strategy.opening, report)
    history: tuple[Reply, ...] = (Reply(known, report),)
    while (probe := rounds._next_probe(strategy, known, history)) and len(asked) < strategy.rounds:
        asked.append(probe)
        report = measures.report(values, probe)
        known = known.told(probe, report)
        history = (*history, Reply(known, report))
    return asked


def test_questions_share_the_opening() -> None:
    """Asked together, they count the array once."""
    source = Source(SHAPE)
    x = source.lazy(CHUNKS)
    dask.compute(*(order_statistic(x, k, strategy="kelley") for k in (0, -1)))
    assert loads(source) == 1


def test_layers_are_named_for_what_they_do() -> None:
    x = Source(SHAPE).lazy(CHUNKS)
    answer = order_statistic(x, 3, strategy=Kelley(iterations=2))
    names = {re.sub(r"-[0-9a-f]{32}.*", "", name) for name in names_of(answer)}
    assert {
        "order-statistic-kelley-opening",
        "order-statistic-kelley-round1",
        "order-statistic-kelley-round2",
        "order-statistic-kelley-candidates",
        "order-statistic-kelley",
    } <= names
    assert "order-statistic-kelley-round3" not in names


@pytest.mark.parametrize("dump", [pickle.dumps, cloudpickle.dumps])
def test_pickled_answers_compute(dump: Callable[[Any], bytes]) -> None:
    x = da.from_array(normal(1000), chunks=300)
    for strategy in ("kelley", "randomized"):
        answer = pickle.loads(dump(order_statistic(x, 500, strategy=strategy)))
        assert answer.compute() == np.sort(normal(1000))[500]


# --------------------------------------------------------------------------------------------------
# A source that changes
# --------------------------------------------------------------------------------------------------

CHANGED = ("kelley", "bisection", "radix", "bucket", "randomized", "sort_and_choose")
CHANGES: dict[str, Callable[[Any], Any]] = {
    "halved": lambda values: values / 2,
    "fewer": lambda values: values[3:],
    "none": lambda values: values[:0],
    "now nan": lambda values: np.where(np.arange(values.size) < 5, np.nan, values),
    "further up": lambda values: values + 10,
    "all the same": lambda values: np.full_like(values, 0.5),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("strategy", CHANGED)
def test_a_source_that_changes_gives_no_wrong_number(
    strategy: str, change: str, tmp_path: Path
) -> None:
    """At whichever load: an error, or a number that is right of what one load has read."""
    before = [hashed(np.arange(200) + 200 * i) for i in range(4)]
    after = [CHANGES[change](x) if i == 1 else x for i, x in enumerate(before)]
    rights = [np.sort(np.concatenate(chunks))[400] for chunks in (before, after)]
    errors = []
    for at in (2, 3, 4, 6):
        directory = tmp_path / str(at)
        directory.mkdir()

        def altered(values: Any, load: int, at: int = at) -> Any:
            return CHANGES[change](values) if load >= at else values

        x = changing(altered, directory=directory, chunk=1, n_chunks=4, size=200)
        try:
            found = order_statistic(x, 400, strategy=strategy).compute()
        except ChunksChangedError as error:
            errors.append(str(error))
        else:
            assert found in rights
    assert errors or strategy == "sort_and_choose"  # whose answer is that of its last load alone
    assert all("`.persist()` the array first" in error for error in errors)


@pytest.mark.parametrize("strategy", CHANGED)
def test_an_unseeded_source_never_gives_a_wrong_number(strategy: str) -> None:
    """Every load of ten chunks is drawn anew: an error, unless one load alone proves the answer,
    and that one is what it has read."""
    rng = np.random.default_rng(3)
    drawn: list[Any] = []

    def draw(block: Any, token: str) -> Any:
        del token  # an equal expression, of another strategy, would draw for this one
        drawn.append(rng.random(block.size))
        return drawn[-1]

    anew = partial(draw, token=uuid.uuid4().hex)
    x = da.zeros(2000, chunks=200).map_blocks(anew, dtype=np.float64, meta=np.empty(0))
    for k in (0, 700, 1000, 1999):
        drawn.clear()
        try:
            found = order_statistic(x, k, strategy=strategy).compute()
        except ChunksChangedError:
            continue
        whole = [np.sort(np.concatenate(drawn[i : i + 10])) for i in range(0, len(drawn), 10)]
        assert found in [ordered[k] for ordered in whole]


def test_ties_that_two_loads_show_are_counted_again(tmp_path: Path) -> None:
    """Copies of the answer that become something else between two loads."""
    ties = np.repeat([0.0, 1.0, 2.0], [300, 400, 300])
    fewer = np.repeat([0.0, 0.5, 1.0, 2.0], [300, 300, 100, 300])
    for at in range(2, 8):
        directory = tmp_path / str(at)
        directory.mkdir()
        x = changing(
            lambda _, load, at=at: ties if load < at else fewer,
            directory=directory,
            chunk=0,
            n_chunks=1,
        )
        try:
            found = order_statistic(x, 500, strategy=Bisection("value")).compute()
        except ChunksChangedError:
            continue
        n_loads = len(list(directory.iterdir()))
        assert found == np.sort(ties if n_loads < at else fewer)[500]
