"""Time, memory, reads and tasks of box plots, beside quartiles of the same arrays.

Sizes are those of the claims in RESULTS.md; ``BENCH_SHRINK`` divides them. As for quantiles, a load
costs nothing where time is measured, and makes its chunk anew where memory is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import dask
import dask.array as da
import numpy as np

from dask_gpuselect import describe_boxplot, quantile

from .common import (
    QUARTILES,
    THREADS,
    WATCHED,
    Seconds,
    Source,
    Values,
    compute,
    in_memory,
    optimized,
    shrunk,
    unit,
)
from .peers import Data
from .quantiles import CHUNKS, ELEMENTS, chunk_count, values_of

Arrays = Mapping[str, Any]
"""The same elements in each form."""

FORMS: Mapping[str, Callable[[Values, int], Any]] = {
    "lazy": lambda values, n_chunks: Data.of(values, n_chunks).x,
    "in memory": lambda values, n_chunks: Data.of(values, n_chunks, is_in_memory=True).x,
    "plain": lambda values, n_chunks: values,
}
"""From elements and a number of chunks to a dask array that is like a file, a dask array whose
chunks are there already, or no dask array at all."""


def forms_of(values: Values, n_chunks: int) -> Arrays:
    return {form: make(values, n_chunks) for form, make in FORMS.items()}


# --- Ourselves and what else there is


@dataclass(frozen=True)
class BoxPeer:
    """One way to an answer about one form of an array.

    Parameters
    ----------
    call : str
        How a user writes it.
    function : callable
        From the array to the answer, lazy if that is lazy.
    form : str
        A key of `FORMS`.
    is_box : bool
        Whether the answer is a box; otherwise it is the quartiles.
    """

    call: str
    function: Callable[[Any], Any]
    form: str
    is_box: bool

    def __call__(self, arrays: Arrays, threads: int) -> Any:
        """Build the graph if there is one, and compute."""
        array = arrays[self.form]
        if isinstance(array, da.Array):
            return compute(self.function(array), threads)
        with dask.config.set(num_workers=threads):  # for those that take more than one
            return self.function(array)


def quartiles(array: Any) -> Any:
    return quantile(array, QUARTILES)


def _boxplot_stats(values: Values) -> Any:
    from matplotlib.cbook import boxplot_stats

    return boxplot_stats(values)


def _ours(form: str, variable: str) -> Mapping[str, BoxPeer]:
    return {
        f"quartiles, {form}": BoxPeer(f"quantile({variable}, q)", quartiles, form, False),
        f"box, {form}": BoxPeer(f"describe_boxplot({variable})", describe_boxplot, form, True),
    }


OUR_BOXES: Mapping[str, BoxPeer] = {
    **_ours("lazy", "x"),
    **_ours("in memory", "x"),
    **_ours("plain", "a"),
}

OTHER_BOXES: Mapping[str, BoxPeer] = {
    "np.quantile": BoxPeer(
        "np.quantile(a, q)", lambda a: np.quantile(a, QUARTILES), "plain", False
    ),
    "matplotlib": BoxPeer("boxplot_stats(a)", _boxplot_stats, "plain", True),
}


def is_installed(peer: str) -> bool:
    return peer != "matplotlib" or find_spec("matplotlib") is not None


# --- Benchmarks


@cache
def compile_boxes(dtype: str) -> None:
    """Have all kernels for a dtype compiled: those for data in memory in chunks of a million too,
    from which on there is a pilot, and those that follow where it misses."""
    for distribution in ("normal", "clustered"):
        arrays = forms_of(in_memory(distribution, 1 << 21, dtype), 2)
        for peer in OUR_BOXES.values():
            peer(arrays, THREADS)


class Boxes(Seconds):
    """Boxes of 1e8 elements in 10 chunks, and quartiles, of each form of an array.

    asv measures one after the other. For ratios run ``compare.py --boxplot``, which takes turns.
    """

    params = (list(FORMS), ("float32", "float64"), ("normal", "clustered"))
    param_names = ("form", "dtype", "distribution")

    def setup(self, form: str, dtype: str, distribution: str) -> None:
        compile_boxes(dtype)
        self.arrays = forms_of(values_of(distribution, shrunk(ELEMENTS), dtype), CHUNKS)

    def time_box(self, form: str, dtype: str, distribution: str) -> None:
        OUR_BOXES[f"box, {form}"](self.arrays, THREADS)

    def time_quartiles(self, form: str, dtype: str, distribution: str) -> None:
        OUR_BOXES[f"quartiles, {form}"](self.arrays, THREADS)


class OtherBoxes(Seconds):
    """What else there is, on 1e8 float64 in memory."""

    params = (list(OTHER_BOXES), WATCHED)
    param_names = ("peer", "distribution")

    def setup(self, peer: str, distribution: str) -> None:
        if not is_installed(peer):
            raise NotImplementedError  # asv leaves it out
        self.arrays = {"plain": values_of(distribution, shrunk(ELEMENTS))}

    def time_answer(self, peer: str, distribution: str) -> None:
        OTHER_BOXES[peer](self.arrays, THREADS)


class BoxLoads:
    """Loads of a chunk, and tasks. The contract: 2, and 3 of clustered data; of data that is held,
    none but the one that brought it there."""

    params = ((*WATCHED, "clustered"),)
    param_names = ("distribution",)

    def setup(self, distribution: str) -> None:
        # Chunks of a million and more, so that there is a pilot where they are held.
        size = min(shrunk(2 * ELEMENTS), 2 * ELEMENTS // 10)
        self.source = Source.generated(distribution, size, CHUNKS)
        self.x = self.source.lazy()

    @unit("reads")
    def track_loads(self, distribution: str) -> int:
        compute(describe_boxplot(self.x))
        return max(self.source.loads)

    @unit("reads")
    def track_loads_of_held(self, distribution: str) -> int:
        persisted = self.x.persist(scheduler="threads", num_workers=THREADS)
        compute(describe_boxplot(persisted))
        return max(self.source.loads)

    @unit("tasks")
    def track_num_tasks(self, distribution: str) -> int:
        return len(describe_boxplot(self.x).__dask_graph__())

    @unit("tasks")
    def track_num_tasks_optimized(self, distribution: str) -> int:
        return len(optimized(describe_boxplot(self.x)).__dask_graph__())


class SharedLoads(Seconds):
    """Boxes of several arrays that are made of one: together, and one after the other."""

    params = ((1, 2, 5),)
    param_names = ("n_boxes",)

    def setup(self, n_boxes: int) -> None:
        compile_boxes("float64")
        values = values_of("normal", shrunk(ELEMENTS // 10))
        self.source = Source.of(values, CHUNKS)
        x = self.source.lazy()
        self.arrays = {f"x + {i}": x + i for i in range(n_boxes)}

    def time_together(self, n_boxes: int) -> None:
        compute(describe_boxplot(self.arrays))

    def time_apart(self, n_boxes: int) -> None:
        for array in self.arrays.values():
            compute(describe_boxplot(array))

    @unit("reads")
    def track_loads(self, n_boxes: int) -> int:
        """The contract: 2, however many there are, and a third for each whose fence needs it."""
        compute(describe_boxplot(self.arrays))
        return max(self.source.loads)

    @unit("tasks")
    def track_num_tasks(self, n_boxes: int) -> int:
        return len(describe_boxplot(self.arrays).__dask_graph__())


class BoxMemory:
    """Peak memory of the process over an array that is never in memory as a whole, beside that of
    sum and quartiles."""

    timeout = 600
    params = (("normal", "clustered"), (10, 1000))
    param_names = ("distribution", "n_chunks")

    def setup(self, distribution: str, n_chunks: int) -> None:
        # Of little: what `compile_boxes` takes would hide what is measured.
        compute(describe_boxplot(Source.generated("clustered", 40_000, 2).lazy()))
        source = Source.generated(distribution, shrunk(ELEMENTS), chunk_count(n_chunks))
        self.x = source.lazy()

    def peakmem_sum(self, distribution: str, n_chunks: int) -> None:
        compute(self.x.sum())

    def peakmem_quartiles(self, distribution: str, n_chunks: int) -> None:
        compute(quartiles(self.x))

    def peakmem_box(self, distribution: str, n_chunks: int) -> None:
        compute(describe_boxplot(self.x))


class BoxesOfManyChunks(Seconds):
    """10,000 chunks of 1,000 elements: the overhead of graph, tasks and root, beside quartiles."""

    params = (("box", "quartiles"),)
    param_names = ("function",)

    def setup(self, function: str) -> None:
        compile_boxes("float64")
        n_chunks = shrunk(10_000)
        self.x = Source.of(values_of("normal", 1000 * n_chunks), n_chunks).lazy()
        self.lazy = self.call(function)

    def call(self, function: str) -> Any:
        return describe_boxplot(self.x) if function == "box" else quartiles(self.x)

    def time_build(self, function: str) -> None:
        self.call(function)

    def time_optimize(self, function: str) -> None:
        optimized(self.lazy)

    def time_compute(self, function: str) -> None:
        compute(self.lazy)

    @unit("tasks")
    def track_num_tasks(self, function: str) -> int:
        return len(self.lazy.__dask_graph__())

    @unit("tasks")
    def track_num_tasks_optimized(self, function: str) -> int:
        return len(optimized(self.lazy).__dask_graph__())
