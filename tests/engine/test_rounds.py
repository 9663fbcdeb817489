"""The graph of a strategy's rounds: loads, what is left to the default engine, and sources that
change."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.utils import key_split

from dask_gpuselect import ChunksChangedError, explain, order_statistic, quantile
from dask_gpuselect.strategies import STRATEGIES, Strategy, strategy_of
from tests.backends import Backend
from tests.oracle import check
from tests.sources import Source

pytestmark = pytest.mark.usefixtures("in_this_thread")

SHAPE, CHUNKS = (60, 50), (25, 20)
N_CHUNKS = 9

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


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
def test_plan(strategy: str) -> None:
    """What is explained is what runs: also the two loads of the engine, for what is left."""
    source = Source(SHAPE)
    plan = explain(source.lazy(CHUNKS), [0, 0.5], strategy=strategy)
    assert plan.loads == most_loads(strategy_of(strategy)) + 2
    assert str(plan).startswith(f"{plan.name}: reads each chunk at most {plan.loads} times; ")
    assert f"1 to {plan.loads} × x.sum()" in plan.table()
    answer = quantile(source.lazy(CHUNKS), [0, 0.5], strategy=strategy)
    assert any(plan.name in key_split(key) for key in answer.__dask_graph__())
    assert not source.loads


@every_strategy
def test_loads(backend: Backend, strategy: str) -> None:
    """All ranks share them, and the extremes take one."""
    most = min(MOST[strategy], most_loads(strategy_of(strategy)))
    for k, n in (([0, 1500, -1], most), ([0, -1], 1)):
        source = Source(SHAPE)
        x = backend.mapped(source.lazy(CHUNKS))
        answer = backend.to_numpy(order_statistic(x, k, strategy=strategy).compute())
        check(answer, np.sort(source.whole(), axis=None)[k])
        assert loads(source) <= n


@pytest.mark.parametrize("sizes", [(8, 0), (0, 4, 0, 4, 0), (1,) * 8])
@pytest.mark.parametrize("strategy", ["kelley", "radix"])
def test_a_mask_that_chunks_share_is_loaded_once_a_round(
    strategy: str, sizes: tuple[int, ...]
) -> None:
    """Chunks without elements share the chunk beside them."""
    source, mask = Source((800,)), Source((800,))
    x, where = source.lazy((tuple(100 * n for n in sizes),)), mask.lazy((300, 500)) > 0.3
    answer = order_statistic(x, [0, 200, 9], strategy=strategy, where=where)
    expected = np.sort(source.whole()[mask.whole() > 0.3])[[0, 200, 9]]
    np.testing.assert_array_equal(answer.compute(), expected)
    (number,) = {*source.loads.values(), *mask.loads.values()}
    assert number > 1


# --------------------------------------------------------------------------------------------------
# What is too much to gather
# --------------------------------------------------------------------------------------------------


# --------------------------------------------------------------------------------------------------
# The graph
# --------------------------------------------------------------------------------------------------


def test_questions_share_the_opening() -> None:
    """Asked together, they count the array once."""
    source = Source(SHAPE)
    x = source.lazy(CHUNKS)
    dask.compute(*(order_statistic(x, k, strategy="kelley") for k in (0, -1)))
    assert loads(source) == 1


# --------------------------------------------------------------------------------------------------
# A source that changes
# --------------------------------------------------------------------------------------------------

CHANGED = (None, "kelley", "bisection", "radix", "bucket", "randomized", "sort_and_choose")


@pytest.mark.parametrize("strategy", CHANGED)
def test_an_unseeded_source_never_gives_a_wrong_number(strategy: str | None) -> None:
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
            result = order_statistic(x, k, strategy=strategy).compute()
        except ChunksChangedError:
            continue
        whole = [np.sort(np.concatenate(drawn[i : i + 10])) for i in range(0, len(drawn), 10)]
        assert result in [ordered[k] for ordered in whole]
