"""Time, memory, reads and tasks: of whole answers, and of the steps that they are made of.

Sizes are those of the claims in RESULTS.md; the environment variable ``BENCH_SHRINK`` divides
them. A load costs nothing where time is measured (a view of an array in memory), and makes its
chunk anew where memory is.
"""

from __future__ import annotations

from functools import cache, lru_cache

import dask.array as da
import numpy as np

from dask_gpuselect import kernels, median, quantile
from dask_gpuselect.kernels.registry import backend_for
from dask_gpuselect.maths.cuts import Cuts
from dask_gpuselect.maths.expected import Expected

from .common import (
    DISTRIBUTIONS,
    QUARTILES,
    THREADS,
    WATCHED,
    Seconds,
    Source,
    compute,
    count_candidates,
    even_cuts,
    find,
    in_memory,
    optimized,
    shrunk,
    some_q,
    unit,
)
from .peers import PEERS, Data

ELEMENTS = 100_000_000
CHUNKS = 10
DTYPES = ("float16", "float32", "float64", "int16", "int64")
MANY_Q = (1, 3, 1001)

# asv sets up again before each repetition: what takes long to make is kept.
values_of = lru_cache(maxsize=1)(in_memory)


@cache
def compile_kernels(dtype: str) -> None:
    """Have all kernels for a dtype compiled, so that no measurement includes it."""
    values = in_memory("normal", 40_000, dtype)
    for n_q in (1, 101):
        compute(quantile(Source.of(values, 2).lazy(), some_q(n_q)))


def chunk_count(n_chunks: int) -> int:
    """A number of chunks, fewer where they would be smaller than any that one would choose."""
    return min(n_chunks, max(1, shrunk(ELEMENTS) // 4096))


# --- Whole answers


class Peers(Seconds):
    """Quartiles of 1e8 float64 in 10 chunks, beside what else there is.

    asv measures one after the other. For ratios run ``compare.py``, which takes turns.
    """

    params = (list(PEERS), WATCHED)
    param_names = ("peer", "distribution")

    def setup(self, peer: str, distribution: str) -> None:
        compile_kernels("float64")
        self.data = Data.of(values_of(distribution, shrunk(ELEMENTS)), CHUNKS)
        self.q = np.array(QUARTILES)

    def time_quartiles(self, peer: str, distribution: str) -> None:
        PEERS[peer](self.data, self.q, THREADS)


class Dtypes(Seconds):
    """The same of other dtypes; float16 is compared as float32."""

    params = (DTYPES,)
    param_names = ("dtype",)

    def setup(self, dtype: str) -> None:
        compile_kernels(dtype)
        self.x = Source.of(values_of("normal", shrunk(ELEMENTS), dtype), CHUNKS).lazy()

    def time_quartiles(self, dtype: str) -> None:
        compute(quantile(self.x, QUARTILES))

    def time_sum(self, dtype: str) -> None:
        compute(self.x.sum())


class Shapes(Seconds):
    """How many quantiles, of how many chunks."""

    params = (MANY_Q, (1, 10, 100, 1000))
    param_names = ("n_q", "n_chunks")

    def setup(self, n_q: int, n_chunks: int) -> None:
        compile_kernels("float64")
        self.x = Source.of(values_of("normal", shrunk(ELEMENTS)), chunk_count(n_chunks)).lazy()
        self.q = some_q(n_q)

    def time_quantiles(self, n_q: int, n_chunks: int) -> None:
        compute(quantile(self.x, self.q))


class Loads:
    """Loads of a chunk, and tasks. The contract: 2, and 3 with the array itself."""

    params = (WATCHED, (1, 1001))
    param_names = ("distribution", "n_q")

    def setup(self, distribution: str, n_q: int) -> None:
        self.source = Source.generated(distribution, shrunk(ELEMENTS // 10), CHUNKS)
        self.x = self.source.lazy()
        self.q = some_q(n_q)

    @unit("reads")
    def track_loads(self, distribution: str, n_q: int) -> int:
        compute(quantile(self.x, self.q))
        return max(self.source.loads)

    @unit("reads")
    def track_loads_of_deviations(self, distribution: str, n_q: int) -> int:
        compute(abs(self.x - quantile(self.x, self.q)[0]).max())
        return max(self.source.loads)

    @unit("tasks")
    def track_num_tasks(self, distribution: str, n_q: int) -> int:
        return len(quantile(self.x, self.q).dask)

    @unit("tasks")
    def track_num_tasks_optimized(self, distribution: str, n_q: int) -> int:
        return len(optimized(quantile(self.x, self.q)).dask)


class Memory:
    """Peak memory of the process over an array that is never in memory as a whole.

    `peakmem_sum` is what to compare with: the interpreter, and a chunk for each thread.
    """

    timeout = 600
    params = (("normal", "outliers"), (10, 1000))
    param_names = ("distribution", "n_chunks")

    def setup(self, distribution: str, n_chunks: int) -> None:
        compile_kernels("float64")
        source = Source.generated(distribution, shrunk(ELEMENTS), chunk_count(n_chunks))
        self.x = source.lazy()

    def peakmem_sum(self, distribution: str, n_chunks: int) -> None:
        compute(self.x.sum())

    def peakmem_quartiles(self, distribution: str, n_chunks: int) -> None:
        compute(quantile(self.x, QUARTILES))

    def peakmem_1001_quantiles(self, distribution: str, n_chunks: int) -> None:
        compute(quantile(self.x, some_q(1001)))

    def peakmem_median_deviation(self, distribution: str, n_chunks: int) -> None:
        compute(median(abs(self.x - median(self.x))))


class ManyChunks(Seconds):
    """10,000 chunks of 1,000 elements: the overhead of graph, tasks and root."""

    params = (("quartiles", "sum"),)
    param_names = ("function",)

    def setup(self, function: str) -> None:
        compile_kernels("float64")
        n_chunks = shrunk(10_000)
        self.x = Source.of(values_of("normal", 1000 * n_chunks), n_chunks).lazy()
        self.lazy = self.call(function)

    def call(self, function: str) -> da.Array:
        lazy: da.Array = self.x.sum() if function == "sum" else quantile(self.x, QUARTILES)
        return lazy

    def time_build(self, function: str) -> None:
        self.call(function)

    def time_optimize(self, function: str) -> None:
        optimized(self.lazy)

    def time_compute(self, function: str) -> None:
        compute(self.lazy)

    @unit("tasks")
    def track_num_tasks(self, function: str) -> int:
        return len(self.lazy.dask)

    @unit("tasks")
    def track_num_tasks_optimized(self, function: str) -> int:
        return len(optimized(self.lazy).dask)


# --- Steps


class Chunk(Seconds):
    """The kernels on one chunk of 1e7 float64, on one thread; sorting it is the yardstick."""

    params = (WATCHED,)
    param_names = ("distribution",)

    def setup(self, distribution: str) -> None:
        compile_kernels("float64")
        self.values = values_of(distribution, shrunk(ELEMENTS // CHUNKS))
        cuts = kernels.cuts(self.values, self.values.dtype, 1)
        self.brackets = find(cuts, np.array(QUARTILES))
        self.most = int(Expected.of(cuts, self.brackets).most_candidates[0])

    def time_sum(self, distribution: str) -> None:
        self.values.sum()

    def time_sort(self, distribution: str) -> None:
        np.sort(self.values)

    def time_tally_of_3(self, distribution: str) -> None:
        backend_for(self.values).selection.tally(self.values, self.brackets, self.most)


class ChunkCuts(Seconds):
    """Load 1 at several numbers of pivots."""

    params = (WATCHED, (255, 1023, 4095, 16383))
    param_names = ("distribution", "n_pivots")

    def setup(self, distribution: str, n_pivots: int) -> None:
        compile_kernels("float64")
        self.values = values_of(distribution, shrunk(ELEMENTS // CHUNKS))

    def time_cuts(self, distribution: str, n_pivots: int) -> None:
        backend_for(self.values).selection.cuts(self.values, n_pivots)


@lru_cache(maxsize=1)
def many_cuts(n_chunks: int, size: int) -> Cuts:
    """The merged cuts of many chunks of normal data."""
    values = in_memory("normal", n_chunks * size).reshape(n_chunks, size)
    return Cuts.merge([kernels.cuts(chunk, chunk.dtype, 1) for chunk in values])


class Root(Seconds):
    """From all cuts to the brackets."""

    params = (((32, 200_000), (10_000, 1_000)), MANY_Q)
    param_names = ("chunks", "n_q")

    def setup(self, chunks: tuple[int, int], n_q: int) -> None:
        compile_kernels("float64")
        n_chunks, size = chunks
        self.cuts = many_cuts(shrunk(n_chunks), size)
        self.q = some_q(n_q)

    def time_find_brackets(self, chunks: tuple[int, int], n_q: int) -> None:
        find(self.cuts, self.q)


# --- Candidates


class Candidates:
    """Candidates of a quantile, in units of n/m: n elements, m evenly spaced pivots a chunk."""

    params = (list(DISTRIBUTIONS), (256,))
    param_names = ("distribution", "n_pivots")
    timeout = 600

    n_chunks = 32

    def setup(self, distribution: str, n_pivots: int) -> None:
        values = values_of(distribution, self.n_chunks * shrunk(200_000))
        self.cuts = even_cuts(values, self.n_chunks, n_pivots)
        self.ordered = np.sort(values)

    def candidates(self, q: float, n_pivots: int) -> float:
        brackets = find(self.cuts, np.array([q]))
        return count_candidates(self.ordered, brackets) * n_pivots / self.ordered.size

    @unit("n/m")
    def track_candidates(self, distribution: str, n_pivots: int) -> float:
        """Of the quartiles, on average."""
        each = [self.candidates(q, n_pivots) for q in QUARTILES]
        return sum(each) / len(each)
