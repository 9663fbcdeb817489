"""Quantiles along some axes: one for every lane, the elements that differ in these axes alone.

Three plans, by the chunks:

- *lanes*: the reduced axes are in one chunk, so every chunk has all of its lanes: one load;
- *column*: the chunks of one output block, its column, fit `column_limit`, and one task takes them
  all: one load;
- *passes*: the column is larger. It is taken in parts that fit, several times: each pass narrows
  the bracket of every lane, and the last gathers what is inside. The number of passes is known
  before, from sizes alone: mostly two. Where a lane has so little room that passes would not
  converge, the lanes of each chunk are taken in slabs, one after the other.

Nothing is rechunked, and the output has the input's other chunks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import dask.array as da
import numpy as np
from dask import config
from dask.array.utils import meta_from_array
from dask.base import tokenize
from dask.utils import format_bytes, parse_bytes
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.boxes import Rule
from dask_gpuselect.columns import Columns, Place, Tasks
from dask_gpuselect.kernels.generic import concatenate, namespace
from dask_gpuselect.keys import selection_dtype
from dask_gpuselect.lane_boxes import BoxesQuestion, Fences, LaneEnds, LaneQuantiles
from dask_gpuselect.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    LaneQuestion,
    LaneTally,
    RanksOfLanes,
    check_unchanged,
    find_brackets,
    merge,
    merge_tallies,
    narrow,
    order_statistics,
)
from dask_gpuselect.passes import Plan, known_bytes, threads_for
from dask_gpuselect.source import Key, private_copy
from dask_gpuselect.strategies.default import TALLIES_EVERY, Passes, plan_passes
from dask_gpuselect.summary import Boxes

T = TypeVar("T")
AnswerColumn = Callable[[Sequence[Any]], Any]

COLUMN_LIMIT = "1 GiB"
"""Of the chunks that one task takes, unless the config value ``dask_gpuselect.column-limit`` says
otherwise (bytes, or a string such as ``"500 MB"``)."""


# Bytes that take a thread 15 ms; starting others takes less than one.
WORTH_THREADS = 1 << 23


# --- Which plan -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LanePlan(Plan):
    """The plan for a reduction along some axes.

    Parameters
    ----------
    slabs : int
        Each taken by itself: so many of every chunk.
    parts : tuple of (int, int)
        First and last chunk, exclusive, of each part of a column, in C order of the reduced axes.
    passes : Passes
        Those before the last.
    """

    slabs: int = 1
    parts: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    passes: Passes = field(default=Passes((), 2), repr=False)


def plan_lanes(x: da.Array, axes: tuple[int, ...], n_answers: int) -> LanePlan:
    """The plan for so many answers for every lane.

    Raises
    ------
    ValueError
        If the limit is too small for any.
    """
    chunks = _lane_sizes(x, axes)
    n_lanes = math.prod(max(x.chunks[axis], default=0) for axis in _kept(x, axes))
    column_bytes = sum(chunks) * n_lanes * x.dtype.itemsize
    if len(chunks) == 1:
        return LanePlan("lanes", 1, known_bytes(column_bytes), 0)
    limit = column_limit()
    if not column_bytes > limit:  # or not known
        return LanePlan("column", 1, known_bytes(column_bytes), 0)
    limit = max(limit, max(chunks) * n_lanes * x.dtype.itemsize)
    widest = max(x.chunks[slab_axis(x, axes)])
    for slabs in (*(1 << i for i in range((widest - 1).bit_length())), widest):
        width = -(-widest // slabs)
        n_some = n_lanes // widest * width
        plan = _plan_slab(chunks, n_some, max(n_answers, 1), x.dtype, limit)
        if plan is not None:
            return replace(plan, slabs=slabs, loads=slabs * plan.loads)
    raise ValueError(
        f"dask_gpuselect.column-limit is {format_bytes(column_limit())}, which is too little for "
        f"columns of {len(chunks)} chunks and {format_bytes(column_bytes)}"
    )


def slab_axis(x: da.Array, axes: tuple[int, ...]) -> int:
    """The axis along which chunks are divided."""
    return max(_kept(x, axes), key=lambda axis: max(x.chunks[axis]))


def _plan_slab(
    chunks: list[int], n_lanes: int, n_answers: int, dtype: np.dtype[Any], limit: int
) -> LanePlan | None:
    """The plan for a column of chunks with so many elements of each lane, if there is one."""
    row_bytes = n_lanes * dtype.itemsize
    if sum(chunks) * row_bytes <= limit:
        return LanePlan("column", 1, sum(chunks) * row_bytes, 0)
    parts = tuple(_parts(chunks, limit // row_bytes))
    sizes = [sum(chunks[start:stop]) for start, stop in parts]
    itemsize = selection_dtype(dtype).itemsize
    passes = plan_passes(sizes, n_answers, limit // n_lanes, itemsize)
    if passes is None:
        return None
    task_bytes = max(sizes) * row_bytes
    return LanePlan("passes", len(passes.widths) + 1, task_bytes, limit, 1, parts, passes)


def column_limit() -> int:
    """In bytes, from dask's config."""
    return int(parse_bytes(config.get("dask_gpuselect.column-limit", COLUMN_LIMIT)))


def _kept(x: da.Array, axes: tuple[int, ...]) -> list[int]:
    return [axis for axis in range(x.ndim) if axis not in axes]


def _lane_sizes(x: da.Array, axes: tuple[int, ...]) -> list[int]:
    """How many elements of a lane each chunk of a column has, in C order; NaN if not known."""
    return [math.prod(sizes) for sizes in itertools.product(*(x.chunks[axis] for axis in axes))]


def _parts(chunks: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Runs of chunks that have at most so many elements of a lane, or are one chunk; none is
    empty."""
    start, size = 0, 0
    for i, chunk in enumerate(chunks):
        if size and size + chunk > most:
            yield start, i
            start, size = i, 0
        size += chunk
    yield start, len(chunks)


# --- The graph ------------------------------------------------------------------------------------


def ask_lanes(
    x: da.Array,
    question: LaneQuestion,
    label: str,
    axes: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    keepdims: bool,
    is_scalar: bool,
) -> da.Array:
    """The lazy answer to a question about every lane of a dask array.

    Parameters
    ----------
    axes : tuple of int
        The reduced ones, ascending; not all of them.
    keepdims, is_scalar : bool
        Whether reduced axes stay, with size 1; whether the axis of the answers is left out.
    """
    plan = plan_lanes(x, axes, question.n_answers)
    shape = _Shape(x.ndim, axes, keepdims, is_scalar)
    if plan.slabs == 1:
        return _ask(x, question, f"{label}-{plan.name}", plan, axes, dtype, shape)
    axis = slab_axis(x, axes)
    answers = [
        _ask(slab, question, f"{label}-slab-{plan.name}", plan, axes, dtype, shape)
        for slab in _slabs(x, axis, plan.slabs)
    ]
    return _side_by_side(answers, shape.labels.index(axis), f"{label}-slabs-{plan.name}")


def _ask(
    x: da.Array,
    question: LaneQuestion,
    label: str,
    plan: LanePlan,
    axes: tuple[int, ...],
    dtype: np.dtype[Any],
    shape: _Shape,
) -> da.Array:
    meta = meta_from_array(x._meta, ndim=len(shape.labels), dtype=dtype)
    if plan.name == "passes":
        return _in_passes(x, question, label, axes, plan, shape, meta)
    answer = partial(kernels.answer_lanes, dtype=x.dtype, axes=axes, question=question)
    name = f"{label}-{tokenize(x.name, question, shape)}"
    return _each_column(x, answer, name, question.n_answers, shape, meta)


def ask_columns(
    x: da.Array,
    answer: AnswerColumn,
    name: str,
    axes: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    keepdims: bool,
) -> da.Array:
    """One answer for every lane of a dask array, by a function of the chunks of each column: one
    load.

    Parameters
    ----------
    answer : callable
        Of all chunks of a column, to the answers ``(1, n_lanes)``, in kind.
    name : str
        Of the layer.
    axes : tuple of int
        The reduced ones, ascending; not all of them.
    """
    shape = _Shape(x.ndim, axes, keepdims, is_scalar=True)
    meta = meta_from_array(x._meta, ndim=len(shape.labels), dtype=dtype)
    return _each_column(x, answer, name, 1, shape, meta)


def _each_column(
    x: da.Array, answer: AnswerColumn, name: str, n_answers: int, shape: _Shape, meta: Any
) -> da.Array:
    result: da.Array = da.blockwise(
        partial(_answer_column, answer=answer, shape=shape),
        shape.labels,
        x,
        tuple(range(x.ndim)),
        name=name,
        new_axes=shape.new_axes(n_answers),
        concatenate=False,
        dtype=meta.dtype,
        meta=meta,
    )
    return result


def ask_lanes_now(
    array: Any,
    dtype: np.dtype[Any],
    question: LaneQuestion,
    axes: tuple[int, ...],
    *,
    keepdims: bool,
    is_scalar: bool,
) -> Any:
    """The answer for an array in memory, in kind; of a large NumPy array by several threads."""

    def answer(chunks: Sequence[Any]) -> Any:
        return kernels.answer_lanes(chunks, dtype, axes, question)

    return ask_columns_now(array, answer, axes, keepdims=keepdims, is_scalar=is_scalar)


def ask_columns_now(
    array: Any,
    answer_column: AnswerColumn,
    axes: tuple[int, ...],
    *,
    keepdims: bool,
    is_scalar: bool = True,
) -> Any:
    """The same by a function of the array, or of parts of it that have other lanes."""
    shape = _Shape(array.ndim, axes, keepdims, is_scalar)

    def answer(piece: Any) -> Any:
        return shape.restore(answer_column([piece]), piece.shape)

    answers, axis = _in_threads(answer, array, axes)
    return np.concatenate(answers, shape.labels.index(axis)) if len(answers) > 1 else answers[0]


def boxes_now(
    array: Any, dtype: np.dtype[Any], question: BoxesQuestion, axes: tuple[int, ...]
) -> Boxes:
    """The same, of boxes."""

    def answer(piece: Any) -> Boxes:
        return _boxes_of_column(piece, dtype=dtype, question=question, axes=axes)

    tables, axis = _in_threads(answer, array, axes)
    return Boxes.concatenated(tables, _Shape(array.ndim, axes, False, True).labels.index(axis))


def _in_threads(
    answer: Callable[[Any], T], array: Any, axes: tuple[int, ...]
) -> tuple[list[T], int]:
    """The answers for pieces of an array, and the axis along which it was divided: several, by
    several threads, of a large NumPy array."""
    axis = max(
        (axis for axis in range(array.ndim) if axis not in axes), key=lambda i: array.shape[i]
    )
    n_threads = threads_for(array)
    if not n_threads or array.nbytes < WORTH_THREADS:
        return [answer(array)], axis
    n_pieces = min(array.nbytes // WORTH_THREADS + 1, 4 * n_threads, array.shape[axis])
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(answer, np.array_split(array, n_pieces, axis))), axis


@dataclass(frozen=True)
class _Shape:
    """Which axes an answer has.

    Parameters
    ----------
    ndim, axes
        The dimensions of the data, and those of them that are reduced.
    keepdims, is_scalar
        See `ask_lanes`.
    """

    ndim: int
    axes: tuple[int, ...]
    keepdims: bool
    is_scalar: bool

    @property
    def labels(self) -> tuple[int, ...]:
        """For each axis of the answer, the one of the data that it is, or from `ndim` on a number
        of its own: `ndim` for the axis of the answers."""
        labels = [] if self.is_scalar else [self.ndim]
        for axis in range(self.ndim):
            if axis not in self.axes:
                labels.append(axis)
            elif self.keepdims:
                labels.append(self.ndim + 1 + axis)
        return tuple(labels)

    def new_axes(self, n_answers: int) -> dict[int, int]:
        """The sizes of the axes that are not the data's."""
        new = (label for label in self.labels if label >= self.ndim)
        return {label: n_answers if label == self.ndim else 1 for label in new}

    def chunks(self, x: da.Array, n_answers: int) -> tuple[tuple[int, ...], ...]:
        """Of the answer about the chunks of `x`."""
        new = self.new_axes(n_answers)
        return tuple((new[label],) if label in new else x.chunks[label] for label in self.labels)

    def place(self, block: tuple[int, ...]) -> tuple[int, ...]:
        """Of the answer's block, in its grid, by that of the data's block."""
        return tuple(block[label] if label < self.ndim else 0 for label in self.labels)

    def restore(self, answer: np.ndarray[Any, Any], block: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The answers ``(n_answers, n_lanes)`` for a block of that shape, with these axes."""
        kept = [
            1 if axis in self.axes else size
            for axis, size in enumerate(block)
            if self.keepdims or axis not in self.axes
        ]
        answer = namespace(answer).reshape(answer, (answer.shape[0], *kept))
        return answer[0, ...] if self.is_scalar else answer


# --- In slabs -------------------------------------------------------------------------------------


def _slabs(x: da.Array, axis: int, n: int) -> list[da.Array]:
    """Arrays of the first, second, ... of `n` slabs of every chunk. Each loads all of `x`."""
    slabs = []
    for i in range(n):
        sizes = tuple(size * (i + 1) // n - size * i // n for size in x.chunks[axis])
        source = private_copy(x, f"slab {i} of {n} of {x.name} along {axis}")
        slab: da.Array = da.map_blocks(
            _slab,
            source,
            axis=axis,
            i=i,
            n=n,
            name=f"quantile-slab-{tokenize(source.name, axis, i, n)}",
            chunks=(*x.chunks[:axis], sizes, *x.chunks[axis + 1 :]),
            dtype=x.dtype,
            meta=x._meta,
        )
        slabs.append(slab)
    return slabs


def _slab(chunk: Any, *, axis: int, i: int, n: int) -> Any:
    size = chunk.shape[axis]
    index = (slice(None),) * axis + (slice(size * i // n, size * (i + 1) // n),)
    return concatenate([chunk[index]], axis)  # a copy: a view would keep the chunk


def _side_by_side(answers: list[da.Array], axis: int, label: str) -> da.Array:
    """The answers for all slabs of every chunk together."""
    sizes = tuple(map(sum, zip(*(answer.chunks[axis] for answer in answers), strict=True)))
    first = answers[0]
    result: da.Array = da.map_blocks(
        _concatenate,
        *answers,
        axis=axis,
        name=f"{label}-{tokenize([answer.name for answer in answers])}",
        chunks=(*first.chunks[:axis], sizes, *first.chunks[axis + 1 :]),
        dtype=first.dtype,
        meta=first._meta,
    )
    return result


def _concatenate(*blocks: Any, axis: int) -> Any:
    return concatenate(blocks, axis)


# --- One load -------------------------------------------------------------------------------------


def _answer_column(
    column: Any,
    *,
    answer: AnswerColumn,
    shape: _Shape,
) -> Any:
    """One output block, from the chunks of its column: nested lists, where an axis has several."""
    chunks = list(_flat(column))
    return shape.restore(answer(chunks), chunks[0].shape)


def _flat(nested: Any) -> Iterator[Any]:
    if isinstance(nested, list):
        for part in nested:
            yield from _flat(part)
    else:
        yield nested


# --- Several passes -------------------------------------------------------------------------------


def _in_passes(
    x: da.Array,
    question: LaneQuestion,
    label: str,
    axes: tuple[int, ...],
    plan: LanePlan,
    shape: _Shape,
    meta: Any,
) -> da.Array:
    """Load by load: a report of each part, those of a column together, its brackets narrowed."""
    columns = Columns(x, axes, plan.parts)
    answered = partial(_answered, question=question, shape=shape, meta=meta)
    name = f"{label}-{tokenize(x.name, question, plan, shape)}"
    _pass_by_pass(columns, question, label, plan, name, answered, shape.place)
    return da.Array(columns.graph, name, shape.chunks(x, question.n_answers), meta=meta)


def _pass_by_pass(
    columns: Columns,
    question: LaneQuestion,
    label: str,
    plan: LanePlan,
    name: str,
    answered: Callable[..., Any],
    place: Callable[[Place], tuple[int, ...]] = tuple,
) -> Tasks:
    """Tasks of that name for each column: ``answered(tallies, brackets, shape of a chunk)``."""
    token = tokenize(name)
    narrowed = partial(_narrowed, ranks=question.lane_ranks)
    brackets = None
    for load, m in enumerate(plan.passes.widths, 1):
        cuts = columns.report(kernels.lane_cuts, "quantile-lane-cuts", load, brackets, m=m)
        cuts = columns.merge(partial(merge, m=m), cuts, plan.passes.merge_every)
        brackets = columns.settle(narrowed, f"{label}-bracket-{load}-{token}", cuts, brackets)
    load = plan.loads
    tallies = columns.report(kernels.lane_tally, f"{label}-candidates", load, brackets)
    tallies = columns.merge(merge_tallies, tallies, TALLIES_EVERY)
    return columns.settle(answered, name, tallies, brackets, place)


def _narrowed(
    parts: list[LaneCuts],
    brackets: LaneBrackets | None,
    block: tuple[int, ...],
    *,
    ranks: RanksOfLanes,
) -> LaneBrackets:
    return find_brackets(parts, ranks) if brackets is None else narrow(parts, brackets)


def _answered(
    parts: list[LaneTally],
    brackets: LaneBrackets,
    block: tuple[int, ...],
    *,
    question: LaneQuestion,
    shape: _Shape,
    meta: Any,
) -> Any:
    found = order_statistics(merge_tallies(parts), brackets)
    answer = shape.restore(question.lane_answer(found), block)
    return answer if isinstance(meta, np.ndarray) else np.asarray(answer, like=meta)


# --- Boxes ----------------------------------------------------------------------------------------


def ask_boxes(
    x: da.Array, question: BoxesQuestion, label: str, axes: tuple[int, ...]
) -> tuple[list[da.Array], list[Key], tuple[int, ...]]:
    """A lazy box for every lane of a dask array: arrays of tables, the keys of these tables in
    order, and how many of them lie along each axis.

    In the loads that its quantiles take, and one more in passes.
    """
    plan = plan_lanes(x, axes, question.n_answers)
    shape = _Shape(x.ndim, axes, keepdims=False, is_scalar=True)
    label = f"{label}-{plan.name}"
    ask = _boxes_in_passes if plan.name == "passes" else _boxes_in_columns
    if plan.slabs == 1:
        pieces, axis = [x], 0
    else:
        axis = slab_axis(x, axes)
        pieces = _slabs(x, axis, plan.slabs)
        axis = shape.labels.index(axis)
    found = [ask(piece, question, label, plan, axes, shape) for piece in pieces]
    grid = tuple(x.numblocks[i] for i in shape.labels)
    # The slabs of a chunk come one after the other.
    keys = []
    finer = (*grid[:axis], grid[axis] * plan.slabs, *grid[axis + 1 :])
    for place in np.ndindex(*finer):
        block, slab = divmod(place[axis], plan.slabs)
        keys.append((found[slab].name, *place[:axis], block, *place[axis + 1 :]))
    return found, keys, finer


def _boxes_in_columns(
    x: da.Array,
    question: BoxesQuestion,
    label: str,
    plan: LanePlan,
    axes: tuple[int, ...],
    shape: _Shape,
) -> da.Array:
    """One task for each column of chunks."""
    boxes: da.Array = da.blockwise(
        partial(_boxes_of_column, dtype=x.dtype, question=question, axes=axes),
        shape.labels,
        x,
        tuple(range(x.ndim)),
        name=f"{label}-{tokenize(x.name, question, shape)}",
        concatenate=False,
        dtype=object,
        meta=np.empty((0,) * len(shape.labels), object),
    )
    return boxes


def _boxes_of_column(
    column: Any, *, dtype: np.dtype[Any], question: BoxesQuestion, axes: tuple[int, ...]
) -> Boxes:
    """The boxes of one output block, from the chunks of its column."""
    chunks = list(_flat(column))
    q, ends = kernels.lane_boxes(chunks, dtype, axes, question)
    return _boxes(q, ends, chunks[0].shape, dtype, question, axes)


def _boxes_in_passes(
    x: da.Array,
    question: BoxesQuestion,
    label: str,
    plan: LanePlan,
    axes: tuple[int, ...],
    shape: _Shape,
) -> da.Array:
    """Quantiles pass by pass, and a load more for what lies at the ends."""
    columns = Columns(x, axes, plan.parts)
    token = tokenize(x.name, question, plan, shape)
    answered = partial(_quantiles, question=question)
    name = f"{label}-quartiles-{token}"
    quantiles = _pass_by_pass(columns, question, label, plan, name, answered)
    rule = question.rule
    ends = columns.report(_ends, f"{label}-ends", plan.loads + 1, quantiles, rule=rule)
    ends = columns.merge(partial(LaneEnds.merge, most=rule.max_fliers), ends, ENDS_EVERY)
    finished = partial(_finished, dtype=x.dtype, question=question, axes=axes)
    name = f"{label}-{token}"
    columns.settle(finished, name, ends, quantiles, shape.place)
    chunks = shape.chunks(x, question.n_answers)
    return da.Array(columns.graph, name, chunks, meta=np.empty((0,) * len(chunks), object))


ENDS_EVERY = 2  # reports that are put together: sorting their fliers takes five times what they do


def _quantiles(
    parts: list[LaneTally],
    brackets: LaneBrackets,
    block: tuple[int, ...],
    *,
    question: BoxesQuestion,
) -> LaneQuantiles:
    del block
    found = order_statistics(merge_tallies(parts), brackets)
    q = question.lane_answer(found).astype(np.float64)
    return LaneQuantiles(q, found.n_valid, found.n_missing)


def _ends(
    chunks: Sequence[Any],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    known: LaneQuantiles,
    *,
    rule: Rule,
) -> LaneEnds:
    fences = Fences.of(known.q, rule, selection_dtype(dtype))
    return kernels.lane_ends(chunks, dtype, axes, fences, rule.max_fliers)


def _finished(
    parts: list[LaneEnds],
    known: LaneQuantiles,
    block: tuple[int, ...],
    *,
    dtype: np.dtype[Any],
    question: BoxesQuestion,
    axes: tuple[int, ...],
) -> Boxes:
    check_unchanged(parts, known)
    ends = LaneEnds.merge(parts, question.rule.max_fliers)
    return _boxes(known.q, ends, block, dtype, question, axes)


def _boxes(
    q: NDArray[np.float64],
    ends: LaneEnds,
    block: tuple[int, ...],
    dtype: np.dtype[Any],
    question: BoxesQuestion,
    axes: tuple[int, ...],
) -> Boxes:
    shape = tuple(size for axis, size in enumerate(block) if axis not in axes)
    boxes = Boxes.of_lanes(q, ends, shape, question.rule).in_dtype(dtype)
    return boxes.without_missing(omits_nan=question.omits_nan)
