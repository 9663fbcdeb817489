"""The dask graph: two loads of a source with a bracket between them. The only module that builds
graphs.

::

    source ──copy──> cuts ──merge──> bracket ─┐
       │               └──────────────┐       │
       └────copy, waits for bracket──>candidates ──merge──> answer

Each line is a layer of one task a chunk or fewer. The cuts do not depend on what is asked, so
several questions about one array share them by key; each second load also takes the cuts of its
own chunk, and so proves on the spot that the chunk has not changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import dask.array as da
import numpy as np
from dask import config
from dask._task_spec import List, Task, TaskRef
from dask.array.utils import meta_from_array
from dask.base import get_name_from_key, tokenize
from dask.blockwise import blockwise
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer
from dask.layers import ArrayBlockIdDep

from dask_gpuselect import kernels
from dask_gpuselect.cuts import (
    Brackets,
    Cuts,
    IntArray,
    Tally,
    check_unchanged,
    find_brackets,
    most_candidates,
)
from dask_gpuselect.source import AnswerLayer, private_copy

MERGE_EVERY = 16  # parts a merge takes; dask's own 4 makes three times the tasks


class Question(Protocol):
    """What is asked of an array. Deterministically tokenizable, and picklable."""

    @property
    def share(self) -> int:
        """See `strategies.pivot_count`."""

    def ranks(self, n: int) -> tuple[IntArray, IntArray]:
        """The first and last rank of each wanted bracket, among `n` valid elements; none if `n` is
        0."""

    def answer(self, brackets: Brackets, tally: Tally) -> np.ndarray[Any, Any]:
        """The answer, of the promised shape and dtype, on the host."""


def ask(
    x: da.Array, question: Question, label: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> da.Array:
    """The lazy answer to a question about all elements of a dask array, in two loads.

    Parameters
    ----------
    x : dask array
        Chunks of any number and size, known or not, NumPy or CuPy.
    question : Question
        What to find.
    label : str
        For the names of the layers: ``<label>-bracket``, ``<label>-candidates``, ``<label>``.
    shape, dtype
        Of the answer, which has a single chunk of the kind of `x`'s.

    Returns
    -------
    dask array
        Nothing is computed yet.

    Notes
    -----
    Each chunk is loaded twice; data in memory is used in place. At the root, memory is 32 bytes a
    pivot, and an element a candidate: about sqrt(elements) of both for each chunk and quantile.
    """
    cuts = _cuts(x, question.share)
    bracket = _bracket(cuts, question, label)
    tally = _tally(x, cuts, bracket, label)
    return _answer(
        tally,
        bracket,
        question,
        label,
        shape,
        meta_from_array(x._meta, ndim=len(shape), dtype=dtype),
    )


def ask_now(values: Any, dtype: np.dtype[Any], question: Question) -> np.ndarray[Any, Any]:
    """The answer to a question about an array in memory, by the same steps without a graph."""
    cuts = kernels.cuts(values, dtype, question.share)
    brackets = _find_brackets([cuts], question)
    tally = _tally_chunk(values, brackets, cuts, (), dtype=dtype)
    return question.answer(brackets, tally)


# --- Load 1 -------------------------------------------------------------------------------------


def _cuts(x: da.Array, share: int) -> da.Array:
    """The cuts of every chunk: an array of one `Cuts` a chunk, in the chunks' own grid."""
    # A seed of its own for each array: were the copies of x and of x - median(x) the same, x would
    # stay in memory until its median is known.
    source = private_copy(x, f"load 1 of {x.name}")
    name = "quantile-cuts-" + tokenize(source.name, x.dtype, share)
    index = tuple(range(x.ndim))
    layer = blockwise(
        kernels.cuts,
        name,
        index,
        source.name,
        index,
        numblocks={source.name: x.numblocks},
        dtype=x.dtype,
        share=share,
    )
    return _grid(_extended(source.dask, name, layer, {source.name}), name, x)


def _bracket(cuts: da.Array, question: Question, label: str) -> da.Array:
    """One task: the brackets of all ranks that the question needs."""
    name = f"{label}-bracket-{tokenize(cuts.name, question)}"
    return _reduce(cuts, "quantile-cuts-merge", Cuts.merge, _find_brackets, name, question=question)


def _find_brackets(parts: list[Cuts], question: Question) -> Brackets:
    cuts = Cuts.merge(parts)
    return find_brackets(cuts, *question.ranks(int(cuts.n_valid.sum())))


# --- Load 2 -------------------------------------------------------------------------------------


def _tally(x: da.Array, cuts: da.Array, bracket: da.Array, label: str) -> da.Array:
    """The tally of every chunk at the brackets, checked against the chunk's own cuts."""
    source = private_copy(
        x, f"load 2 after {bracket.name}", after=(bracket.name,), after_layer=bracket.name
    )
    name = f"{label}-candidates-{tokenize(source.name, bracket.name)}"
    index = tuple(range(x.ndim))
    layer = blockwise(
        _tally_chunk,
        name,
        index,
        source.name,
        index,
        TaskRef((bracket.name,)),
        None,
        cuts.name,
        index,
        ArrayBlockIdDep(x.chunks),
        index,
        numblocks={source.name: x.numblocks, cuts.name: x.numblocks},
        dtype=x.dtype,
    )
    graph = HighLevelGraph.merge(source.dask, cuts.dask, bracket.dask)
    return _grid(_extended(graph, name, layer, {source.name, cuts.name, bracket.name}), name, x)


def _tally_chunk(
    chunk: Any, brackets: Brackets, cuts: Cuts, block: tuple[int, ...], *, dtype: np.dtype[Any]
) -> Tally:
    tally = kernels.tally(chunk, dtype, brackets, most_candidates(cuts, brackets))
    return check_unchanged(cuts, tally, brackets, chunk=str(tuple(map(int, block))))


def _answer(
    tally: da.Array,
    bracket: da.Array,
    question: Question,
    label: str,
    shape: tuple[int, ...],
    meta: Any,
) -> da.Array:
    name = f"{label}-{tokenize(tally.name, question, shape)}"
    key = (name, *(0 for _ in shape))
    arguments = {
        "brackets": TaskRef((bracket.name,)),
        "question": question,
        "shape": shape,
        "meta": meta,
    }
    graph = _reduce(
        tally, f"{label}-candidates-merge", Tally.merge, _finish, name, key, **arguments
    ).dask
    return da.Array(graph, name, tuple((size,) for size in shape), meta=meta)


def _finish(
    parts: list[Tally], brackets: Brackets, question: Question, shape: tuple[int, ...], meta: Any
) -> Any:
    answer = question.answer(brackets, Tally.merge(parts)).reshape(shape)
    if not isinstance(meta, np.ndarray):
        return np.asarray(answer, like=meta)
    return answer[()]  # a scalar where the shape is (), as from dask's own reductions


# --- Trees --------------------------------------------------------------------------------------


def _extended(
    graph: HighLevelGraph, name: str, layer: Layer, dependencies: set[str]
) -> HighLevelGraph:
    """The graph with one more layer."""
    layers = {**graph.layers, name: layer}
    return HighLevelGraph(layers, {**graph.dependencies, name: dependencies})


def _grid(graph: HighLevelGraph, name: str, x: da.Array) -> da.Array:
    """A dask array of one object for each chunk of `x`."""
    chunks = tuple((1,) * n for n in x.numblocks)
    return da.Array(graph, name, chunks, meta=np.empty((0,) * x.ndim, dtype=object))


def _reduce(
    grid: da.Array,
    merge_name: str,
    merge: Callable[[list[Any]], Any],
    finish: Callable[..., Any],
    name: str,
    key: tuple[Any, ...] | None = None,
    **arguments: Any,
) -> da.Array:
    """One task that finishes what a tree of merges makes of all objects of a grid, in the order of
    the chunks.

    Parameters
    ----------
    grid : dask array
        Of objects.
    merge_name : str
        Prefix of the layer of merges.
    merge, finish : callable
        ``list of objects -> object``, and ``list of objects, **arguments -> result``.
    name, key : str, tuple
        Of the last task and its layer; the key is ``(name,)`` unless given.
    **arguments
        For `finish`; task references become dependencies.
    """
    every = max(2, int(config.get("split_every", None) or MERGE_EVERY))
    merge_name = f"{merge_name}-{tokenize(grid.name, every)}"
    merges: dict[Any, Task] = {}
    parts: list[Any] = list(flatten(grid.__dask_keys__()))
    depth = 0
    while len(parts) > every:
        groups = [parts[i : i + every] for i in range(0, len(parts), every)]
        parts = [(merge_name, depth, i) for i in range(len(groups))]
        for merged, group in zip(parts, groups, strict=True):
            merges[merged] = Task(merged, merge, List(*map(TaskRef, group)))
        depth += 1

    graph, above = grid.dask, grid.name
    if merges:
        graph = _extended(graph, merge_name, MaterializedLayer(merges), {above})
        above = merge_name
    key = key or (name,)
    last = AnswerLayer({key: Task(key, finish, List(*map(TaskRef, parts)), **arguments)})
    references = [value for value in arguments.values() if isinstance(value, TaskRef)]
    others = {get_name_from_key(reference.key) for reference in references}
    graph = _extended(graph, name, last, {above} | others)
    return da.Array(graph, name, (), meta=np.empty((), dtype=object))
