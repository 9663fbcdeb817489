"""Quantiles along some axes: one for every lane, the elements that differ in these axes alone.

Nothing is rechunked, and the output has the input's other chunks.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import concatenate, namespace
from dask_gpuselect.engine import threads
from dask_gpuselect.engine.columns import Columns, Place, Tasks, side_by_side
from dask_gpuselect.engine.lane_plans import LanePlan, plan_lanes, slab_axis
from dask_gpuselect.engine.marks import InColumn, Seen, Slab, marks_of, pieces_of
from dask_gpuselect.engine.source import private_copy
from dask_gpuselect.kernels.fingerprints import fingerprint
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneCuts,
    LaneQuestion,
    LaneTally,
    RanksOfLanes,
    order_statistics,
)
from dask_gpuselect.maths.sizes import (
    TALLIES_EVERY,
)
from dask_gpuselect.quiet import quiet

T = TypeVar("T")
AnswerColumn = Callable[[Sequence[Any]], Any]

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
    seen: bool = False,
) -> da.Array:
    """The lazy answer to a question about every lane of a dask array.

    Parameters
    ----------
    axes : tuple of int
        The reduced ones, ascending; not all of them.
    keepdims, is_scalar : bool
        Whether reduced axes stay, with size 1; whether the axis of the answers is left out.
    seen : bool
        Whether each block is a `Seen`, for a caller who loads the array again.
    """
    plan = plan_lanes(x, axes, question.n_answers)
    shape = LaneShape(x.ndim, axes, keepdims, is_scalar)

    def ask(x: da.Array, label: str, seen: bool) -> da.Array:
        return _ask(x, question, label, plan, axes, dtype, shape, seen=seen)

    return _each_slab(x, ask, label, plan, axes, shape, seen=seen)


def _each_slab(
    x: da.Array,
    ask: Callable[[da.Array, str, bool], da.Array],
    label: str,
    plan: LanePlan,
    axes: tuple[int, ...],
    shape: LaneShape,
    *,
    seen: bool = False,
) -> da.Array:
    """The answer of ``ask(x, label, seen)``, or those about all slabs side by side."""
    found = sources(x, plan, axes)
    if plan.slabs == 1:
        return ask(found[0], f"{label}-{plan.name}", seen)
    answers = [ask(source, f"{label}-slab-{plan.name}", True) for source in found]
    axis = shape.labels.index(slab_axis(x, axes))
    place_of = PlaceOf(x.numblocks, shape)
    label = f"{label}-slabs-{plan.name}"
    return side_by_side(answers, axis, label, place_of, seen=seen)


def _ask(
    x: da.Array,
    question: LaneQuestion,
    label: str,
    plan: LanePlan,
    axes: tuple[int, ...],
    dtype: np.dtype[Any],
    shape: LaneShape,
    *,
    seen: bool,
) -> da.Array:
    label = f"{label}-seen" if seen else label
    meta = meta_from_array(x._meta, ndim=len(shape.labels), dtype=dtype)
    if plan.parts:
        return _in_passes(x, question, label, axes, plan, shape, meta, seen=seen)
    answer = partial(kernels.answer_lanes, dtype=x.dtype, axes=axes, question=question)
    name = f"{label}-{tokenize(x.name, question, shape)}"
    return _each_column(x, answer, name, question.n_answers, shape, meta, seen=seen)


def ask_columns(
    x: da.Array,
    answer: AnswerColumn,
    plan: LanePlan,
    label: str,
    axes: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    keepdims: bool,
) -> da.Array:
    """One answer for every lane of a dask array, by a function of the chunks of each column: one
    load, of each slab.

    Parameters
    ----------
    answer : callable
        Of all chunks of a column, to the answers ``(1, n_lanes)``, in kind. Deterministically
        tokenizable.
    plan : LanePlan
        Not of passes.
    label : str
        For the names of the layers.
    axes : tuple of int
        The reduced ones, ascending; not all of them.
    """
    shape = LaneShape(x.ndim, axes, keepdims, is_scalar=True)
    meta = meta_from_array(x._meta, ndim=len(shape.labels), dtype=dtype)

    def ask(x: da.Array, label: str, seen: bool) -> da.Array:
        name = f"{label}-{tokenize(x.name, answer, shape, seen)}"
        return _each_column(x, answer, name, 1, shape, meta, seen=seen)

    return _each_slab(x, ask, label, plan, axes, shape)


def _each_column(
    x: da.Array,
    answer: AnswerColumn,
    name: str,
    n_answers: int,
    shape: LaneShape,
    meta: Any,
    *,
    seen: bool = False,
) -> da.Array:
    result: da.Array = da.blockwise(
        partial(_answer_column, answer=answer, shape=shape, seen=seen),
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
    shape = LaneShape(array.ndim, axes, keepdims, is_scalar)

    axis, pieces = pieces_for(array, axes)
    joined = _Joined(shape.labels.index(axis), array.shape[axis])

    def answer(piece: Any, start: int) -> Any:
        found = shape.restore(answer_column([piece]), piece.shape)
        return found if len(pieces) == 1 else joined.put(found, start)

    return in_threads(answer, array, axis, pieces)[0]


class _Joined:
    """The answers for all pieces as one array, to which each thread writes what it has found: half
    the time of joining them afterwards, where lanes are so short that this counts."""

    def __init__(self, axis: int, size: int) -> None:
        self.axis, self.size = axis, size
        self.lock = threading.Lock()
        self.array: NDArray[Any] | None = None

    def put(self, answer: NDArray[Any], start: int) -> NDArray[Any]:
        """All answers, those for a piece among them."""
        before, (size, *behind) = answer.shape[: self.axis], answer.shape[self.axis :]
        with self.lock:
            if self.array is None:
                self.array = np.empty((*before, self.size, *behind), answer.dtype)
            array = self.array
        array[(slice(None),) * self.axis + (slice(start, start + size),)] = answer
        return array


def pieces_for(array: Any, axes: tuple[int, ...]) -> tuple[int, list[tuple[int, int]]]:
    """The axis along which an array is divided, and where: into several, of a large NumPy array."""
    axis = max(
        (axis for axis in range(array.ndim) if axis not in axes), key=lambda i: array.shape[i]
    )
    n, n_threads = array.shape[axis], _threads_for(array)
    if n_threads == 1:
        return axis, [(0, n)]
    worth = threads.WORTH["bytes of lanes"]
    n_pieces = min(array.nbytes // worth + 1, 4 * n_threads)
    # More where there are many answers: fresh memory for those of a piece takes longer than these.
    n_lanes = math.prod(size for i, size in enumerate(array.shape) if i not in axes)
    n_pieces = min(max(n_pieces, 8 * n_lanes // worth), n)
    return axis, [(n * i // n_pieces, n * (i + 1) // n_pieces) for i in range(n_pieces)]


def _threads_for(array: Any) -> int:
    return threads.threads_for(array, getattr(array, "nbytes", 0), "bytes of lanes")


def in_threads(
    answer: Callable[[Any, int], T], array: Any, axis: int, pieces: Sequence[tuple[int, int]]
) -> list[T]:
    """The answers for pieces of an array and where they start: of several, by several threads."""
    if len(pieces) == 1:
        return [answer(array, 0)]

    def answer_piece(piece: tuple[int, int]) -> T:
        return answer(array[(slice(None),) * axis + (slice(*piece),)], piece[0])

    return threads.each(answer_piece, pieces, _threads_for(array))


@dataclass(frozen=True)
class LaneShape:
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


# --- What is read ---------------------------------------------------------------------------------


def sources(x: da.Array, plan: LanePlan, axes: tuple[int, ...]) -> list[da.Array]:
    """What each slab is made of, or, of a plan without, what all is.

    A task that takes several chunks holds them until the last is there, and so reads them for
    itself: were they those of another question, along another axis perhaps, each would wait for the
    other's order. Questions about the same array along the same axes share them.
    """
    if plan.slabs > 1:
        return _slabs(x, axes, plan.slabs)
    if not plan.parts and any(x.numblocks[axis] > 1 for axis in axes):
        return [private_copy(x, f"columns of {x.name} along {axes}")]
    return [x]


def _slabs(x: da.Array, axes: tuple[int, ...], n: int) -> list[da.Array]:
    """Arrays of the first, second, ... of `n` slabs of every chunk. Each loads all of `x`."""
    axis = slab_axis(x, axes)
    slabs = []
    for i in range(n):
        sizes = tuple(size * (i + 1) // n - size * i // n for size in x.chunks[axis])
        source = private_copy(x, f"slab {i} of {n} of {x.name} along {axes}")
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
    piece = concatenate([chunk[index]], axis)  # a copy: a view would keep the chunk
    return Slab(piece, fingerprint(chunk))


@dataclass(frozen=True)
class PlaceOf:
    """From a block of the answer, and the number of a chunk in its column, to the chunk's place."""

    numblocks: tuple[int, ...]
    shape: LaneShape

    def __call__(self, block: tuple[int, ...]) -> InColumn:
        labels, ndim = self.shape.labels, self.shape.ndim
        kept = {label: i for label, i in zip(labels, block, strict=True) if label < ndim}
        place = tuple(kept.get(axis, 0) for axis in range(ndim))
        return InColumn(self.numblocks, self.shape.axes, place)


# --- One load -------------------------------------------------------------------------------------


@quiet()
def _answer_column(
    column: Any,
    *,
    answer: AnswerColumn,
    shape: LaneShape,
    seen: bool,
) -> Any:
    """One output block, from the chunks of its column: nested lists, where an axis has several."""
    given = list(flat(column))
    chunks = pieces_of(given)
    found = shape.restore(answer(chunks), chunks[0].shape)
    return Seen(found, marks_of(given)) if seen else found


def flat(nested: Any) -> Iterator[Any]:
    if isinstance(nested, list):
        for part in nested:
            yield from flat(part)
    else:
        yield nested


# --- Several passes -------------------------------------------------------------------------------


def _in_passes(
    x: da.Array,
    question: LaneQuestion,
    label: str,
    axes: tuple[int, ...],
    plan: LanePlan,
    shape: LaneShape,
    meta: Any,
    *,
    seen: bool,
) -> da.Array:
    """Load by load: a report of each part, those of a column together, its brackets narrowed."""
    columns = Columns(x, axes, plan.parts)
    answered = partial(_answered, question=question, shape=shape, meta=meta)
    name = f"{label}-{tokenize(x.name, question, plan, shape)}"
    pass_by_pass(columns, question, label, plan, name, answered, shape.place, seen=seen)
    return da.Array(columns.graph, name, shape.chunks(x, question.n_answers), meta=meta)


def pass_by_pass(
    columns: Columns,
    question: LaneQuestion,
    label: str,
    plan: LanePlan,
    name: str,
    answered: Callable[..., Any],
    place: Callable[[Place], tuple[int, ...]] = tuple,
    *,
    seen: bool,
) -> Tasks:
    """Tasks of that name for each column: ``answered(tallies, brackets, shape of a chunk)``, with
    the marks of its chunks if so `seen`."""
    token = tokenize(name)
    narrowed = partial(_narrowed, ranks=question.lane_ranks)
    brackets = None
    for load, m in enumerate(plan.passes.widths, 1):
        cuts = columns.report(kernels.lane_cuts, "quantile-lane-cuts", load, brackets, m=m)
        cuts = columns.merge(partial(kernels.merge_lane_cuts, m=m), cuts, plan.passes.merge_every)
        brackets = columns.settle(narrowed, f"{label}-bracket-{load}-{token}", cuts, brackets)
    load = plan.loads
    tallies = columns.report(kernels.lane_tally, f"{label}-candidates", load, brackets)
    tallies = columns.merge(kernels.merge_lane_tallies, tallies, TALLIES_EVERY)
    return columns.settle(answered, name, tallies, brackets, place, seen=seen)


def _narrowed(
    parts: list[LaneCuts],
    brackets: LaneBrackets | None,
    block: tuple[int, ...],
    *,
    ranks: RanksOfLanes,
) -> LaneBrackets:
    if brackets is None:
        return kernels.find_lane_brackets(parts, ranks)
    return kernels.narrow_lane_brackets(parts, brackets)


def _answered(
    parts: list[LaneTally],
    brackets: LaneBrackets,
    block: tuple[int, ...],
    *,
    question: LaneQuestion,
    shape: LaneShape,
    meta: Any,
) -> Any:
    found = order_statistics(kernels.merge_lane_tallies(parts), brackets)
    answer = shape.restore(question.lane_answer(found), block)
    return answer if isinstance(meta, np.ndarray) else np.asarray(answer, like=meta)
