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
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize
from dask.utils import format_bytes
from numpy.typing import NDArray

from dask_gpuselect import kernels, settings, threads
from dask_gpuselect.boxes import Rule
from dask_gpuselect.columns import Columns, Place, Tasks, side_by_side, slabs_agree
from dask_gpuselect.kernels.fingerprints import fingerprint
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
    order_statistics,
)
from dask_gpuselect.marks import InColumn, Seen, Slab, marks_of, pieces_of
from dask_gpuselect.passes import Plan, known_bytes
from dask_gpuselect.quiet import quiet
from dask_gpuselect.source import Key, is_in_memory, private_copy
from dask_gpuselect.strategies.default import (
    TALLIES_EVERY,
    Passes,
    pass_cost,
    plan_one_pass,
    plan_passes,
)
from dask_gpuselect.summary import Boxes

T = TypeVar("T")
AnswerColumn = Callable[[Sequence[Any]], Any]

COLUMN_LIMIT = "1 GiB"
"""Of the chunks that one task takes, unless the config value ``dask_gpuselect.column-limit`` says
otherwise (bytes, or a string such as ``"500 MB"``)."""


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
    advice : str
        What would take one load instead of several.
    """

    slabs: int = 1
    parts: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    passes: Passes = field(default=Passes((), 2), repr=False)
    advice: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        return f"{super().__str__()}{self.advice and '; '}{self.advice}"


LoadsInPasses = Callable[[int], int]
"""From the loads of quantiles in passes to those of what is asked."""

# Elements in whose time a task is run: of a column, 200 us at 10 ns each.
TASK = 20_000

# Measured of (3650, 150, 150) float32, with chunks that cost nothing to make.
LOOK = 0.75
LOOK_FOR_BOXES = 1.1

# What looking counts beside loading: what does not fit into memory is slow to load, as a rule.
LOOKS = 0.75

# So many times as many loads as there need be are taken, at most, if elements are looked at less.
MORE_LOADS = 2


def plan_lanes(
    x: da.Array,
    axes: tuple[int, ...],
    n_answers: int,
    loads_in_passes: LoadsInPasses = lambda n: n,
    look: float = LOOK,
) -> LanePlan:
    """The plan for so many answers for every lane.

    A column that is too large is cut into slabs that fit, of which each takes a load, or is taken
    in passes, or both. What a load costs is not known, so the plan is the one that comes nearest to
    the best of the others whatever it costs: in loads, of which it takes no more than twice the
    fewest, and in how often it looks at elements. Of data in memory, loads cost nothing. In a load
    of passes, to look at elements takes `look` times as long as all of a column does.

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
    least = math.inf  # loads that are known to be enough
    plans: list[tuple[int, float, LanePlan]] = []
    for slabs in _numbers_of_slabs(sum(chunks) * x.dtype.itemsize, n_lanes, widest, limit):
        n_some = n_lanes // widest * -(-widest // slabs)
        plan = _plan_slab(chunks, n_some, max(n_answers, 1), x.dtype, limit)
        if plan is not None:
            loads = loads_in_passes(plan.loads) if plan.name == "passes" else 1
            least = min(least, slabs * loads)
            found = replace(plan, slabs=slabs, loads=slabs * plan.loads)
            # Elements that are looked at, and tasks, which are one for each load of each chunk.
            looks = loads * look if plan.name == "passes" else 1.0
            looks += slabs * loads * TASK * len(chunks) / (sum(chunks) * n_lanes)
            plans.append((slabs * loads, looks, found))
        if slabs >= MORE_LOADS * least and not is_in_memory(x):
            break  # more slabs are more loads
    if not plans:
        raise ValueError(
            f"dask_gpuselect.column-limit is {format_bytes(column_limit())}, which is too little "
            f"for columns of {len(chunks)} chunks and {format_bytes(column_bytes)}"
        )
    *_, best = min(plans, key=itemgetter(1)) if is_in_memory(x) else _nearest_to_the_best(plans)
    return replace(best, advice=_advice(x, axes, int(column_bytes)))


def plan_boxes(x: da.Array, axes: tuple[int, ...], n_answers: int) -> LanePlan:
    """The plan for the quantiles of boxes, which take a load more in passes."""
    return plan_lanes(x, axes, n_answers, lambda loads: loads + 1, LOOK_FOR_BOXES)


def _nearest_to_the_best(plans: Sequence[tuple[int, float, T]]) -> tuple[int, float, T]:
    """Of plans with their loads and looks: the one that is slower than others by the least factor,
    be it that loads take all the time or none; of those, the one of fewer loads, then looks."""
    least = min(loads for loads, *_ in plans)
    some = [plan for plan in plans if plan[0] <= MORE_LOADS * least]
    looks = min(plan[1] for plan in some)

    def how_far(plan: tuple[int, float, T]) -> tuple[float, int, float]:
        return max(plan[0] / least, LOOKS * plan[1] / looks), plan[0], plan[1]

    return min(some, key=how_far)


def _numbers_of_slabs(lane_bytes: int, n_lanes: int, widest: int, limit: int) -> list[int]:
    """Into how many slabs to try to cut chunks: powers of two, each lane by itself, and as many as
    let a column fit."""
    some = {1 << i for i in range((widest - 1).bit_length())} | {widest}
    width = int(limit // (lane_bytes * (n_lanes // widest)))
    return sorted(some | ({-(-widest // width)} if width else set()))


def _advice(x: da.Array, axes: tuple[int, ...], column_bytes: int) -> str:
    """What would take one load."""
    if is_in_memory(x):
        return ""
    whole = ", ".join(f"{i}: {-1 if i in axes else repr('auto')}" for i in range(x.ndim))
    return (
        f"one load with a column-limit of {format_bytes(column_bytes)}, or of chunks that hold "
        f"whole lanes, as of rechunk({{{whole}}})"
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
    room, itemsize = limit // n_lanes, selection_dtype(dtype).itemsize

    def plan(parts: tuple[tuple[int, int], ...], one_pass: bool) -> tuple[float, LanePlan] | None:
        sizes = [sum(chunks[start:stop]) for start, stop in parts]
        passes = (plan_one_pass if one_pass else plan_passes)(sizes, n_answers, room, itemsize)
        if passes is None:
            return None
        loads, gathered = len(passes.widths) + 1, passes.gathered * n_lanes
        found = LanePlan("passes", loads, max(sizes) * row_bytes, gathered, 1, parts, passes)
        return pass_cost(sizes, n_lanes, itemsize, passes), found

    every = [tuple(_parts(chunks, (limit >> i) // row_bytes)) for i in range(PART_SIZES)]
    found = [each for parts in every if (each := plan(parts, one_pass=True))]
    if found:
        return min(found, key=itemgetter(0))[1]
    largest = plan(every[0], one_pass=False)
    return largest and largest[1]


PART_SIZES = 6  # of parts that are tried: the limit, half of it, a quarter, ...


def column_limit() -> int:
    """In bytes, from dask's config."""
    return settings.n_bytes("column-limit", COLUMN_LIMIT)


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
    shape = _Shape(x.ndim, axes, keepdims, is_scalar)

    def ask(x: da.Array, label: str, seen: bool) -> da.Array:
        return _ask(x, question, label, plan, axes, dtype, shape, seen=seen)

    return _each_slab(x, ask, label, plan, axes, shape, seen=seen)


def _each_slab(
    x: da.Array,
    ask: Callable[[da.Array, str, bool], da.Array],
    label: str,
    plan: LanePlan,
    axes: tuple[int, ...],
    shape: _Shape,
    *,
    seen: bool = False,
) -> da.Array:
    """The answer of ``ask(x, label, seen)``, or those about all slabs side by side."""
    sources = _sources(x, plan, axes)
    if plan.slabs == 1:
        return ask(sources[0], f"{label}-{plan.name}", seen)
    answers = [ask(source, f"{label}-slab-{plan.name}", True) for source in sources]
    axis = shape.labels.index(slab_axis(x, axes))
    place_of = _PlaceOf(x.numblocks, shape)
    label = f"{label}-slabs-{plan.name}"
    return side_by_side(answers, axis, label, place_of, seen=seen)


def _ask(
    x: da.Array,
    question: LaneQuestion,
    label: str,
    plan: LanePlan,
    axes: tuple[int, ...],
    dtype: np.dtype[Any],
    shape: _Shape,
    *,
    seen: bool,
) -> da.Array:
    label = f"{label}-seen" if seen else label
    meta = meta_from_array(x._meta, ndim=len(shape.labels), dtype=dtype)
    if plan.name == "passes":
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
    shape = _Shape(x.ndim, axes, keepdims, is_scalar=True)
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
    shape: _Shape,
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
    shape = _Shape(array.ndim, axes, keepdims, is_scalar)

    axis, pieces = _pieces(array, axes)
    joined = _Joined(shape.labels.index(axis), array.shape[axis])

    def answer(piece: Any, start: int) -> Any:
        found = shape.restore(answer_column([piece]), piece.shape)
        return found if len(pieces) == 1 else joined.put(found, start)

    return _in_threads(answer, array, axis, pieces)[0]


def boxes_now(
    array: Any, dtype: np.dtype[Any], question: BoxesQuestion, axes: tuple[int, ...]
) -> Boxes:
    """The same, of boxes."""

    def answer(piece: Any, start: int) -> Boxes:
        del start
        found: Boxes = _boxes_of_column(piece, dtype=dtype, question=question, axes=axes)
        return found

    axis, pieces = _pieces(array, axes)
    tables = _in_threads(answer, array, axis, pieces)
    return Boxes.concatenated(tables, _Shape(array.ndim, axes, False, True).labels.index(axis))


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


def _pieces(array: Any, axes: tuple[int, ...]) -> tuple[int, list[tuple[int, int]]]:
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


def _in_threads(
    answer: Callable[[Any, int], T], array: Any, axis: int, pieces: Sequence[tuple[int, int]]
) -> list[T]:
    """The answers for pieces of an array and where they start: of several, by several threads."""
    if len(pieces) == 1:
        return [answer(array, 0)]

    def answer_piece(piece: tuple[int, int]) -> T:
        return answer(array[(slice(None),) * axis + (slice(*piece),)], piece[0])

    return threads.each(answer_piece, pieces, _threads_for(array))


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


# --- What is read ---------------------------------------------------------------------------------


def _sources(x: da.Array, plan: LanePlan, axes: tuple[int, ...]) -> list[da.Array]:
    """What each slab is made of, or, of a plan without, what all is.

    A task that takes several chunks holds them until the last is there, and so reads them for
    itself: were they those of another question, along another axis perhaps, each would wait for the
    other's order. Questions about the same array along the same axes share them.
    """
    if plan.slabs > 1:
        return _slabs(x, axes, plan.slabs)
    if plan.name == "column":
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
class _PlaceOf:
    """From a block of the answer, and the number of a chunk in its column, to the chunk's place."""

    numblocks: tuple[int, ...]
    shape: _Shape

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
    shape: _Shape,
    seen: bool,
) -> Any:
    """One output block, from the chunks of its column: nested lists, where an axis has several."""
    given = list(_flat(column))
    chunks = pieces_of(given)
    found = shape.restore(answer(chunks), chunks[0].shape)
    return Seen(found, marks_of(given)) if seen else found


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
    *,
    seen: bool,
) -> da.Array:
    """Load by load: a report of each part, those of a column together, its brackets narrowed."""
    columns = Columns(x, axes, plan.parts)
    answered = partial(_answered, question=question, shape=shape, meta=meta)
    name = f"{label}-{tokenize(x.name, question, plan, shape)}"
    _pass_by_pass(columns, question, label, plan, name, answered, shape.place, seen=seen)
    return da.Array(columns.graph, name, shape.chunks(x, question.n_answers), meta=meta)


def _pass_by_pass(
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
    shape: _Shape,
    meta: Any,
) -> Any:
    found = order_statistics(kernels.merge_lane_tallies(parts), brackets)
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
    plan = plan_boxes(x, axes, question.n_answers)
    shape = _Shape(x.ndim, axes, keepdims=False, is_scalar=True)
    label = f"{label}-{plan.name}"
    ask = _boxes_in_passes if plan.name == "passes" else _boxes_in_columns
    seen = plan.slabs > 1
    axis = shape.labels.index(slab_axis(x, axes))
    sources = _sources(x, plan, axes)
    found = [ask(source, question, label, plan, axes, shape, seen=seen) for source in sources]
    if seen:
        found = slabs_agree(found, f"{label}-slabs", _PlaceOf(x.numblocks, shape))
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
    *,
    seen: bool,
) -> da.Array:
    """One task for each column of chunks."""
    boxes: da.Array = da.blockwise(
        partial(_boxes_of_column, dtype=x.dtype, question=question, axes=axes, seen=seen),
        shape.labels,
        x,
        tuple(range(x.ndim)),
        name=f"{label}-{tokenize(x.name, question, shape)}",
        concatenate=False,
        dtype=object,
        meta=np.empty((0,) * len(shape.labels), object),
    )
    return boxes


@quiet()
def _boxes_of_column(
    column: Any,
    *,
    dtype: np.dtype[Any],
    question: BoxesQuestion,
    axes: tuple[int, ...],
    seen: bool = False,
) -> Any:
    """The boxes of one output block, from the chunks of its column."""
    given = list(_flat(column))
    chunks = pieces_of(given)
    q, ends = kernels.lane_boxes(chunks, dtype, axes, question)
    boxes = _boxes(q, ends, chunks[0].shape, dtype, question, axes)
    return Seen(boxes, marks_of(given)) if seen else boxes


def _boxes_in_passes(
    x: da.Array,
    question: BoxesQuestion,
    label: str,
    plan: LanePlan,
    axes: tuple[int, ...],
    shape: _Shape,
    *,
    seen: bool,
) -> da.Array:
    """Quantiles pass by pass, and a load more for what lies at the ends."""
    columns = Columns(x, axes, plan.parts)
    token = tokenize(x.name, question, plan, shape)
    answered = partial(_quantiles, question=question)
    name = f"{label}-quartiles-{token}"
    quantiles = _pass_by_pass(columns, question, label, plan, name, answered, seen=True)
    rule = question.rule
    ends = columns.report(_ends, f"{label}-ends", plan.loads + 1, quantiles, rule=rule)
    ends = columns.merge(partial(LaneEnds.merge, most=rule.max_fliers), ends, ENDS_EVERY)
    finished = partial(_finished, dtype=x.dtype, question=question, axes=axes)
    name = f"{label}-{token}"
    columns.settle(finished, name, ends, quantiles, shape.place, seen=seen)
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
    found = order_statistics(kernels.merge_lane_tallies(parts), brackets)
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
