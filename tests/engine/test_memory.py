"""Peak memory on sources many times larger, measured in processes of their own.

Each is forked from one that has imported everything, and has answered every question on a little
data: that takes as long as most of the questions (`tests/engine/warm.py`).

Measured twice: by the system, which sees whatever the process holds, but on some machines takes
pages back that have not been used for a while; and by tracemalloc, which knows each byte of every
array that NumPy makes, but not of those made in compiled code. The larger of both counts.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import resource
import sys
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import (  # noqa: F401 -- in questions
    describe_boxplot,
    median,
    order_statistic,
    quantile,
    sort,
)
from dask_gpuselect.neighbors import kneighbors  # noqa: F401
from dask_gpuselect.robust import LeastTrimmedSquares, fitting, mad  # noqa: F401
from dask_gpuselect.windows import rolling  # noqa: F401
from tests.backends import CUPY
from tests.data import hashed
from tests.sources import Index, Source

THREADS = 2
CHUNK = 4_000_000  # bytes
N_CHUNKS = 120
# Its processes know nothing of --expressions.
pytestmark = pytest.mark.legacy

WARM = "DASK_GPUSELECT_TESTS_WARM"


@pytest.fixture(autouse=True, scope="module")
def questions_of_this_run(request: pytest.FixtureRequest) -> None:
    """Tell the process that others are forked from what it has to answer before."""
    items = [item for item in request.session.items if item.path == Path(__file__)]
    names = {item.callspec.params.get("question") for item in items if hasattr(item, "callspec")}
    os.environ[WARM] = json.dumps(sorted(names - {None, "Fit(x)"}))  # which changes settings


def values_of(case: Any) -> Any:
    """The values of a case, marked or not."""
    return getattr(case, "values", case)


MEGABYTE = 1_000_000
# The root's work on 511 pivots of every chunk, at 210 bytes a pivot, is 13 MB; the graph, what the
# source needs to make a chunk, and what the allocator keeps were 8 MB and less.
SLACK = 24 * MEGABYTE


DISTANCES = hashed(np.arange(CHUNK // 8))


class Quick(Source):
    """In [0, 1) too, and made faster than by a hash of each element: a chunk has those of every
    other, each moved round a circle by a distance of the chunk's own."""

    def values(self, index: Index) -> NDArray[Any]:
        return self.circle(index)

    def circle(self, index: Index) -> NDArray[Any]:
        (rows,) = index
        assert isinstance(rows, slice)
        start, stop, _ = rows.indices(self.shape[0])
        moved: NDArray[Any] = DISTANCES[: stop - start] + hashed(np.array([start]))
        moved -= moved >= 1
        return moved


class Labels(Quick):
    """Numbers from 0 to 29."""

    def values(self, index: Index) -> NDArray[Any]:
        labels = self.circle(index)
        labels *= 30
        return np.floor(labels, out=labels)


def by_category(x: Any, n_boxes: int) -> Any:
    """The pattern of `examples/flights.py`: a file of data and one of their categories."""
    k = Labels(x.shape).lazy(x.chunks)
    return describe_boxplot({i: x[k == i] for i in range(n_boxes)}, max_fliers=100)


def peak() -> int:
    """Bytes that this process has held at most."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def function_of(question: str) -> Any:
    """Of the data and the number of elements in a chunk."""
    return eval(f"lambda x, n: {question}")


def answer_a_little(ask: Any, n_chunks: int = 8) -> None:
    """Compile kernels, on chunks that are too small to be noticed."""
    n = 30_000
    ask(Quick((n_chunks * n,)).lazy(n), n).compute()


def measured(question: str, traced: bool, keep_limit: int) -> tuple[int, list[int]]:
    """Bytes that answering takes at most, and the loads of the chunks; of a process just begun."""
    ask = function_of(question)
    config = {"dask_gpuselect.cache-limit": keep_limit}
    dask.config.set({"scheduler": "threads", "num_workers": THREADS, **config})
    answer_a_little(ask)
    gc.collect()
    before = peak()
    if traced:
        tracemalloc.start()
    n = CHUNK // 8
    source = Quick((N_CHUNKS * n,))
    ask(source.lazy(n), n).compute()
    grown = max(peak() - before, tracemalloc.get_traced_memory()[1])
    return grown, sorted(set(source.loads.values()))


def measure(
    question: str, *, traced: bool = True, keep_limit: int = 1 << 30
) -> tuple[int, list[int]]:
    """The same, in a process of its own. What is traced holds the notes of the tracing, too."""
    with ProcessPoolExecutor(1, mp_context=FORKED) as pool:
        return pool.submit(measured, question, traced, keep_limit).result()


FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tests.engine.warm"])


# A kernel says that it takes 0.8 MB of scratch, beside the candidates.
SLACK_ON_A_GPU = 2 * MEGABYTE


def measured_on_a_gpu(question: str) -> tuple[int, list[int]]:
    """Bytes of the device that answering takes at most, and the loads of the chunks."""
    import cupy

    pool, sizes = cupy.cuda.MemoryPool(), [0]

    def allocate(size: int) -> Any:
        memory = pool.malloc(size)
        sizes.append(pool.used_bytes())
        return memory

    cupy.cuda.set_allocator(allocate)
    # By default chunks stay on the device if they take a sixteenth of its memory.
    own = {"dask_gpuselect.cache-limit": CHUNK}
    n = CHUNK // 8
    source = Source((N_CHUNKS * n,))
    with dask.config.set({"scheduler": "threads", "num_workers": THREADS, **own}):
        function_of(question)(CUPY.mapped(source.lazy(n)), n).compute()
    return max(sizes), sorted(set(source.loads.values()))


def measure_on_a_gpu(question: str) -> tuple[int, list[int]]:
    """Measure in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measured_on_a_gpu, question).result()


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


# What is asked, and how often at most a chunk is loaded.
A_TENTH = [
    ("quantile(x, [0.25, 0.5, 0.75])", 2),
    ("abs(x - median(x)).max()", 3),
    slow("median(abs(x - median(x)))", 4),
    ("median(x[x > 0.5])", 2),
    ("median(x, where=x > 0.5)", 2),
    slow("describe_boxplot((x * 60_000).astype('u2'), nodata=[0, 7])", 1),
    slow("median(x.astype('f2'))", 1),
    slow("median(x.reshape(-1, 1000).T[::-1, ::2])", 2),
    slow("order_statistic(x, x.size // 2, strategy='sort_and_choose')", 3),  # not all at once
    ("describe_boxplot(x)", 2),
    slow("mad(x)", 2),
    slow("kneighbors(x.reshape(-1, 10), np.zeros((3, 10)), 5)[0]", 1),
    slow("describe_boxplot(x**-0.8)", 2),  # an eighth are fliers
    slow("describe_boxplot(x, whis=0)", 2),  # half of them
]


KEPT = [
    pytest.param(question, loads, keep_limit, marks=getattr(case, "marks", ()))
    for case in A_TENTH
    for question, loads in [values_of(case)]
    for keep_limit in ((0, 1 << 30) if loads == 2 and "where" not in question else (1 << 30,))
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("question", "loads", "keep_limit"), KEPT)
def test_a_tenth_of_the_data_is_enough(question: str, loads: int, keep_limit: int) -> None:
    """A thread may hold a chunk, and scratch of two; in second loads, too, which few chunks need if
    the first keeps something."""
    limit = THREADS * CHUNK * 3 + SLACK
    assert limit <= N_CHUNKS * CHUNK / 10
    grown, counted = measure(question, keep_limit=keep_limit)
    assert counted == [2] if keep_limit == 0 else max(counted) <= loads
    assert grown <= limit


class Fit:
    """Of the last of five columns by the others; as a question."""

    def __init__(self, x: Any) -> None:
        self.rows = x.reshape(-1, 5)

    def compute(self) -> None:
        # In this process, which is measured: few rows are more than a sample too, for all to be
        # compiled, and brackets are those of cuts, so that little is gathered.
        fitting.SAMPLED = min(1 << 16, self.rows.shape[0] // 2)
        fitting.GATHERED_BYTES = 0
        LeastTrimmedSquares(random_state=0, n_starts=50, n_best=2, max_iter=3, tol=0.5).fit(
            self.rows[:, :4], self.rows[:, 4]
        )


LIMIT = 12 * MEGABYTE
# By the size of chunks: what is compiled before is the plan that is measured.
LIMITED = (
    f"dask.config.set({{'dask_gpuselect.column-limit': n * {LIMIT * 8 // CHUNK}, "
    "'dask_gpuselect.scratch-directory': False}) and "
)


OF_COLUMNS = (THREADS + 2) * LIMIT + SLACK
"""Data are forty times the limit. Each thread may hold parts of that size, the partial results of a
column may take as much, and reading ahead again."""
COLUMNS = {
    "median(x.reshape(-1, 1000), axis=0)": 3,
    "quantile(x.reshape(-1, 1000), [0.25, 0.5, 0.75], axis=0)": 4,
    "describe_boxplot(x.reshape(-1, 1000), axis=0, whis=0, max_fliers=20)": 6,
    "quantile(x.reshape(-1, 1000), [0.001, 0.998], axis=0)": 1,
    "quantile(x.reshape(-1, 1000)[: 10 * (n // 1000)], 0.96, axis=0)": 1,
    # Sixty columns of two chunks each.
    "median(x.reshape(60, 1000, -1), axis=1)": 1,
    "median((x.reshape(60, 1000, -1) * 999).astype('u2'), axis=1, nodata=0)": 1,
}
SAMPLED = 48 * MEGABYTE  # sixteen times 65,536 rows of six numbers
MORE = [
    *((LIMITED + question, n, n, OF_COLUMNS) for question, n in COLUMNS.items()),
    # However many boxes, a thread holds a chunk of both files, and what the boxes select of it.
    # Beside that is the graph, of which a box in a chunk has 28 kB in both loads.
    *(
        (f"by_category(x, {n})", 1, 2, THREADS * CHUNK * 5 + SLACK + n * N_CHUNKS * 40_000)
        for n in (2, 3, 8, 30)
    ),
    # Two chunks and the one made of them for each thread, and as much again because dask loads
    # ahead of the pieces that it needs next. There are twice as many chunks, so twice the pivots.
    ("median(x.rechunk(n // 2 + 1))", 2, 2, THREADS * CHUNK * 6 + SLACK),
    # A thread holds a chunk, a copy with margins, the answers, and 3.2 MB of scratch. The neighbour
    # that was read for a margin waits for its own windows. Another one waits where the tree of the
    # maximum ends a branch, so 40, 44 and 50 MB were measured.
    ("rolling(x, 301).median().max()", 1, 1, THREADS * (CHUNK * 5 + 4 * MEGABYTE) + 4 * MEGABYTE),
    ("Fit(x)", 3, 99, THREADS * CHUNK * 3 + SLACK + SAMPLED),
    # Pieces on disk: of a chunk of the result, twice as large as those of the data, a thread holds
    # its pieces, which become the result, and scratch. For 29 splitters a chunk has 1,870 pivots.
    # Chunks of which the second read has cached enough are read twice.
    (
        "sort(x[: x.size // 2], chunks=2 * n, spill=True).max()", 2, 3,
        THREADS * 2 * CHUNK * 3 + N_CHUNKS // 2 * 1870 * 210 + SLACK,
    ),
]  # fmt: skip
"""What is asked, how often each chunk is read at least and at most, and the bytes that it takes."""


@pytest.mark.any_dask
@pytest.mark.slow
@pytest.mark.parametrize(("question", "least", "most", "limit"), MORE)
def test_a_part_of_the_data_is_enough(question: str, least: int, most: int, limit: int) -> None:
    # The limit of boxes does not count what may be cached: 42 MB for thirty boxes.
    is_boxes = "by_category" in question
    keep_limit = 4 * CHUNK if is_boxes else 1 << 30
    grown, counted = measure(question, traced=not is_boxes, keep_limit=keep_limit)
    assert least <= min(counted) <= max(counted) <= most
    assert grown <= limit < N_CHUNKS * CHUNK / 2


@pytest.mark.slow
def test_the_measurement_sees_data_that_is_held() -> None:
    """The same question, of an array that is kept, takes the whole array."""
    grown, counted = measure("median(x.persist())")
    assert counted == [1]
    assert grown >= N_CHUNKS * CHUNK


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("question", "most_loads"),
    [
        ("quantile(x, [0.25, 0.5, 0.75])", 2),
        ("abs(x - median(x)).max()", 3),
        ("median(x[x > 0.5])", 2),
        ("median(x, where=x > 0.5)", 2),
        slow("describe_boxplot((x * 60_000).astype('u2'), nodata=[0, 7])", 1),
        ("median(x.astype('f2'))", 1),
        ("median(x.reshape(-1, 1000).T[::-1, ::2])", 2),
    ],
)
def test_a_tenth_of_the_data_is_enough_on_a_gpu(question: str, most_loads: int) -> None:
    grown, counted = measure_on_a_gpu(question)
    assert 1 <= counted[-1] <= most_loads  # fewer where the first keeps what the second would ask
    assert CHUNK <= grown <= THREADS * CHUNK * 3 + SLACK_ON_A_GPU


@pytest.mark.gpu
def test_the_measurement_on_a_gpu_sees_data_that_is_held() -> None:
    grown, counted = measure_on_a_gpu("median(x.persist())")
    assert counted == [1]
    assert grown >= N_CHUNKS * CHUNK
