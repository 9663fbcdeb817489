"""Questions that share a source: what they hold at a time, and what their keys stand for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, convert_legacy_graph
from dask.base import tokenize
from dask.callbacks import Callback

from dask_gpuselect import (
    argsort,
    describe_boxplot,
    median,
    nanquantile,
    order_statistic,
    quantile,
    sort,
)
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.engine import pilot, threads
from dask_gpuselect.neighbors import kneighbors
from dask_gpuselect.robust import iqr, mad
from tests.data import normal
from tests.limits import configured
from tests.sources import Source

THREADS = 2
SIZE = 1000  # elements of a chunk
N_CHUNKS = 20


class Labels(Source):
    """Numbers from 0 to 29, in the order in which they stand."""

    def values(self, index: Any) -> Any:
        return np.floor(super().values(index) * 30)


def sources(n_chunks: int = N_CHUNKS) -> tuple[Source, Labels]:
    shape = (n_chunks * SIZE,)
    return Source(shape), Labels(shape)


class Held(Callback):
    """The bytes of arrays of numbers that dask keeps at most, in chunks."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks = 0.0

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker: Any) -> None:
        arrays = {
            id(value): value.nbytes
            for value in list(state["cache"].values())
            if isinstance(value, np.ndarray) and value.dtype != object
        }
        self.chunks = max(self.chunks, sum(arrays.values()) / (8 * SIZE))


SETS: dict[str, Callable[[Any, Any], Any]] = {
    **{
        f"{n} boxes": lambda x, k, n=n: describe_boxplot({i: x[k == i] for i in range(n)})
        for n in (2, 3, 8, 30)
    },
    "boxes and sums": lambda x, k: [
        describe_boxplot({i: x[k == i] for i in range(4)}),
        x[k == 2].std(),
        x.sum(),
    ],
    "boxes of sums": lambda x, k: describe_boxplot([x - k, x + k, x * k]),
    "backwards": lambda x, k: describe_boxplot([x - k, x[::-1], x[k > 15], k[::-1]]),
    "other chunks": lambda x, k: describe_boxplot([x, x[: x.size // 2], k]),
    "8 medians": lambda x, k: [median(x[k == i]) for i in range(8)],
    "8 calls of boxes": lambda x, k: [describe_boxplot(x[k == i]) for i in range(8)],
    "many of one": lambda x, k: [
        median(x),
        quantile(x, [0.1, 0.9]),
        describe_boxplot(x),
        mad(x),
        iqr(x),
        ecdf(x, 11),
        order_statistic(x, 7),
        x.max(),
    ],
    "of two files at once": lambda x, k: [
        median(x[::2] - k[::2]),
        quantile(x[1::2] * k[1::2], 0.1),
    ],
    "centred": lambda x, k: [(x - median(x)).std(), abs(x - median(x)).max()],
}
# Of expressions the readers of x wait for nothing, beside x.mean() too.
LEGACY = {"centred"}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "scheduler"),
    [
        *(
            pytest.param(name, "threads", marks=[pytest.mark.legacy] * (name in LEGACY))
            for name in SETS
        ),
        ("8 boxes", "sync"),
    ],
)
def test_no_more_than_a_chunk_of_each_source_is_held(name: str, scheduler: str) -> None:
    """For each thread: a chunk of both sources, and one that is made of them."""
    source, labels = sources()
    answers = SETS[name](source.lazy(SIZE), labels.lazy(SIZE))
    memory = Held()
    with memory, dask.config.set(scheduler=scheduler, num_workers=THREADS):
        dask.compute(answers)
    limit = 3 * (THREADS if scheduler == "threads" else 1)
    assert 0 < memory.chunks <= limit < N_CHUNKS / 2  # in the wrong order it is all of them


ALONG: dict[str, Callable[[Any], Any]] = {
    "axes": lambda m: [median(m, axis=0), quantile(m, 0.1, axis=1)],
    "boxes": lambda m: [describe_boxplot(m, axis=0), describe_boxplot(m, axis=1)],
    "transposed": lambda m: [median(m, axis=0), median(m.T, axis=0)],
    "transposed boxes": lambda m: describe_boxplot([m, m.T], axis=0),
    "deviations": lambda m: [mad(m, axis=0), iqr(m, axis=1)],
    "beside sums": lambda m: [median(m, axis=0), m.sum(axis=1), m.std()],
    "centred": lambda m: [(m - median(m, axis=0)).std(), median(m, axis=1)],
}


@pytest.mark.few(1)
@pytest.mark.parametrize("limit", ["1 GiB", 8 * 8 * SIZE])
@pytest.mark.parametrize("name", ALONG)
def test_no_more_than_a_column_is_held(name: str, limit: int | str) -> None:
    """For each thread: a column of 16 chunks, or what the limit says, and as much that is read
    ahead; of 256 in all."""
    n = 16
    m = Source((n * 40, n * 25)).lazy((40, 25))
    memory = Held()
    with configured(column_limit=limit, scratch_directory=False):
        answers = ALONG[name](m)
    with memory, dask.config.set(scheduler="threads", num_workers=THREADS):
        dask.compute(answers)
    assert memory.chunks <= 4 * n < n**2 / 2


def test_the_measurement_sees_chunks_that_are_held() -> None:
    m = Source((400, 250)).lazy((40, 25))
    with Held() as memory:
        dask.compute(m + m[::-1])
    assert memory.chunks > 25


# --- Keys -----------------------------------------------------------------------------------------

ONE = {
    **{f.__name__: f for f in (median, describe_boxplot, mad, iqr, sort, argsort)},
    "quantile": lambda x: quantile(x, [0.1, 0.5]),
    "nanquantile": lambda x: nanquantile(x, 0.3),
    "two boxes": lambda x: describe_boxplot([x, x * 2]),
    "other whiskers": lambda x: describe_boxplot([x, x * 2], whis=2.0),
    "ecdf": lambda x: ecdf(x, 11),
    "order statistic": lambda x: order_statistic(x, 5),
    "bisection": lambda x: order_statistic(x, 5, strategy="bisection"),
    "deviation": lambda x: median(abs(x - median(x))),
    "lanes": lambda x: median(x[:100].reshape(10, 10), axis=0),
}


@pytest.mark.parametrize("kind", ["file", "derived", "memory"])
@pytest.mark.slow
def test_a_key_always_stands_for_one_task(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is computed with it: a scheduler that still holds the one takes it for the other."""
    monkeypatch.setattr(pilot, "PILOT_WORTH", 1)
    lazy = Source((3000,)).lazy(500)
    makers = {"file": lazy, "derived": lazy * 2 + 1, "memory": da.from_array(normal(3000), 500)}
    x = makers[kind]
    known: dict[Any, tuple[str, tuple[str, ...]]] = {}
    some = ["median", "describe_boxplot", "two boxes", "other whiskers", "mad"]
    pairs = itertools.combinations(some, 2)
    sets = [*((name,) for name in ONE), *pairs, tuple(ONE)]
    for names in sets:
        optimised = dask.optimize(*(ONE[name](x) for name in names))
        for collection in optimised:
            graph = convert_legacy_graph(dict(collection.__dask_graph__()))
            for key, task in graph.items():
                if not isinstance(task, DataNode):
                    token, others = known.setdefault(key, (tokenize(task), names))
                    assert token == tokenize(task), f"{key} of {names} and of {others}"


# --- What keeps results by their keys -------------------------------------------------------------


class Keeping(Callback):
    """All results, used again wherever their keys are met: as `dask.cache.Cache` does."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[Any, Any] = {}

    def _start(self, dsk: Any) -> None:
        dsk.update({key: DataNode(key, self.kept[key]) for key in dsk.keys() & self.kept.keys()})

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker: Any) -> None:
        self.kept[key] = result


def test_a_cache_does_not_mix_plain_arrays_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it keep them."""
    monkeypatch.setitem(threads.WORTH, "elements", 1)
    monkeypatch.setitem(threads.WORTH, "products", 1)
    monkeypatch.setattr(pilot, "PILOT_WORTH", 100)
    a, b = normal(5000), normal(5000) * 3 + 1
    a_points, queries = a.reshape(-1, 5).copy(), b.reshape(-1, 5)[:3]
    with Keeping() as cache:
        for x in (a, b, -a):
            assert describe_boxplot(x)[0].med == np.median(x)
            assert mad(x, scale=1.0) == np.median(abs(x - np.median(x)))
            assert ecdf(x, 11).quantile(1.0) == x.max()
        before = kneighbors(a_points, queries, 3)
        a_points *= -3  # in place
        after = kneighbors(a_points, queries, 3)
        assert not cache.kept
    assert not np.array_equal(before[0], after[0])
    np.testing.assert_array_equal(after[0], kneighbors(a_points.copy(), queries, 3)[0])
