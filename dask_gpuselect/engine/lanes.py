"""Graph of a question about every lane along some axes.

Nothing is rechunked, and the answer has the chunks of the data along the axes that are not reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize

from dask_gpuselect.arrays import fitted, in_kind
from dask_gpuselect.engine.answers import AnswerAxes, block_in_kind
from dask_gpuselect.engine.columns import Columns, Place, Tasks, first_load, side_by_side
from dask_gpuselect.engine.group_elements import GroupedElements
from dask_gpuselect.engine.group_loads import in_two_loads, load_further
from dask_gpuselect.engine.groups import GroupedLanes
from dask_gpuselect.engine.marks import InColumn, KnownChunks, Slab, marks_of, pieces_of
from dask_gpuselect.engine.moves import in_moved_tiles
from dask_gpuselect.engine.plans import LanePlan, lane_sizes, plan_lanes, share_axis, slab_axis
from dask_gpuselect.engine.questions import FurtherLoad, LaneQuestion, PassSteps, Tails
from dask_gpuselect.engine.scratch import Tile, in_tiles, joined_tiles, n_tiles
from dask_gpuselect.engine.source import (
    DaskArray,
    Source,
    blockwise,
    map_blocks,
    private_copy,
)
from dask_gpuselect.kernels import fingerprints
from dask_gpuselect.kernels.companions import copied
from dask_gpuselect.maths.sizes import TALLIES_EVERY
from dask_gpuselect.quiet import quiet


def ask_lanes(
    x: DaskArray,
    question: LaneQuestion,
    label: str,
    shape: AnswerAxes,
    dtype: np.dtype[Any] | None,
    *,
    seen: bool = False,
    names: DaskArray | None = None,
) -> DaskArray:
    """Answer a question about every lane of a dask array lazily.

    Parameters
    ----------
    label : str
        Prefix of the names of the layers.
    shape : AnswerAxes
        Axes of the answer. Not all axes of the data are reduced.
    dtype : dtype or None
        Dtype of the answer; None if each block of it is an object.
    seen : bool
        True if each block of the answer is a `KnownChunks`, for a caller that loads the array
        again.
    names : dask array, optional
        The labels of the groups, where their number is not known before.
    """
    axes = shape.axes
    plan = plan_lanes(x, axes, question, is_one_lane=shape.is_one_lane, may_write=not seen)
    several = plan.name in ("passes", "groups")
    composed = _composed(x, question, label, shape, dtype) if several else None
    if composed is not None:
        return composed
    ask = partial(_ask, question=question, plan=plan, shape=shape, dtype=dtype, names=names)
    if plan.scratch is not None:
        tiles = TILES[plan.name](x, axes, plan.scratch)
        counts = [
            n_tiles(x.chunks[i], plan.scratch.tile[i]) if i < x.ndim else [1] for i in shape.labels
        ]
        found = ask(tiles, label=f"{label}-{plan.name}", seen=False)
        return joined_tiles(found, counts, f"{label}-tiles-{plan.name}", question.joined)
    sources, axis = _sources(x, plan, axes, seen=seen)
    if len(sources) == 1:
        return ask(sources[0], label=f"{label}-{plan.name}", seen=seen)
    word = "slab" if plan.slabs > 1 else "share"
    answers = [ask(source, label=f"{label}-{word}-{plan.name}", seen=True) for source in sources]
    axis = shape.labels.index(axis)
    place_of = PlaceOf(x.numblocks, shape)
    label = f"{label}-{word}s-{plan.name}"
    return side_by_side(answers, axis, label, place_of, question.joined, seen=seen)


def _composed(
    x: DaskArray,
    question: LaneQuestion,
    label: str,
    shape: AnswerAxes,
    dtype: np.dtype[Any] | None,
) -> DaskArray | None:
    if not isinstance(question, GroupedElements):
        return question.composed(x, label, shape)

    def ask(x: DaskArray, question: LaneQuestion, seen: bool) -> DaskArray:
        return ask_lanes(x, question, label, shape, dtype, seen=seen)

    return question.composed_by(ask, x, label)


def _ask(
    x: DaskArray,
    *,
    question: LaneQuestion,
    label: str,
    plan: LanePlan,
    shape: AnswerAxes,
    dtype: np.dtype[Any] | None,
    seen: bool,
    names: DaskArray | None,
) -> DaskArray:
    """Answer a question about all of `x`, or about a slab of every chunk."""
    label = f"{label}-seen" if seen else label
    meta = np.empty((0,) * len(shape.labels), dtype=object)
    if dtype is not None:
        meta = fitted(meta_from_array(x._meta, ndim=meta.ndim, dtype=dtype))
    if (in_parts := IN_PARTS.get(plan.name)) is not None:
        return in_parts(x, question, label, plan, shape, meta, seen=seen)
    result: DaskArray = blockwise(
        partial(_answer_column, question=question, dtype=x.dtype, shape=shape, seen=seen),
        shape.labels,
        x,
        tuple(range(x.ndim)),
        *([] if names is None else [names, (2 * x.ndim + 1,)]),  # a label that no axis uses
        name=f"{label}-{tokenize(x.name, question, shape)}",
        new_axes=shape.new_axes(question.n_answers),
        concatenate=False,
        align_arrays=False,  # aligning would drop chunks without elements
        dtype=meta.dtype,
        meta=meta,
    )
    return result


# --- What is read ---------------------------------------------------------------------------------


def _sources(
    x: DaskArray, plan: LanePlan, axes: tuple[int, ...], *, seen: bool
) -> tuple[list[DaskArray], int]:
    """Return the array for each slab or share, and the axis along which chunks are divided.

    A plan without slabs or shares has one array. A task that takes several chunks holds them until
    the last one arrives, so the chunks are loaded for it alone: if it shared them with another
    question, perhaps along another axis, each would wait for chunks in the other's order. Questions
    about the same array along the same axes share the load.
    """
    axis = slab_axis(x, axes)
    if plan.slabs > 1:
        n, about = plan.slabs, f"of {x.name} along {axes}"
        each = (private_copy(x, f"slab {i} of {n} {about}") for i in range(n))
        # Data in memory cannot change, and a view of them holds no further memory. But a caller who
        # loads them again compares fingerprints.
        cut = _share if Source.of(x).is_in_memory and not seen else _slab
        return [_part(source, cut, axis, i, n) for i, source in enumerate(each)], axis
    is_shared = plan.name == "tails"  # one load of every chunk for all shares
    if is_shared:
        source = first_load(x, axes)
    elif plan.parts or all(x.numblocks[axis] == 1 for axis in axes):
        return [x], axis
    else:
        source = private_copy(x, f"columns of {x.name} along {axes}")
    n = plan.shares
    if seen or (n == 1 and not is_shared):
        return [source], axis
    axis = share_axis(x, axes, n)
    return [_part(source, _share, axis, i, n) for i in range(n)], axis


def _part(source: DaskArray, cut: Callable[..., Slab], axis: int, i: int, n: int) -> DaskArray:
    """Select part `i` of `n` of every chunk."""
    sizes = tuple(size * (i + 1) // n - size * i // n for size in source.chunks[axis])
    part: DaskArray = map_blocks(
        cut,
        source,
        axis=axis,
        i=i,
        n=n,
        name=f"quantile{cut.__name__.replace('_', '-')}-{tokenize(source.name, cut, axis, i, n)}",
        chunks=(*source.chunks[:axis], sizes, *source.chunks[axis + 1 :]),
        dtype=source.dtype,
        meta=source._meta,
    )
    return part


def _slab(chunk: Any, *, axis: int, i: int, n: int) -> Slab:
    """Copy a part of a chunk that is loaded for this part alone."""
    piece = copied(_cut(chunk, axis, i, n))  # a view would keep the chunk in memory
    return Slab(piece, fingerprints.begun_fingerprint(chunk))


def _share(chunk: Any, *, axis: int, i: int, n: int) -> Slab:
    """Select a part of a chunk that is shared with tasks for the other parts.

    All of these see the same chunk, so there is no fingerprint.
    """
    return Slab(_cut(chunk, axis, i, n), 0)


def _cut(chunk: Any, axis: int, i: int, n: int) -> Any:
    size = chunk.shape[axis]
    return chunk[(slice(None),) * axis + (slice(size * i // n, size * (i + 1) // n),)]


@dataclass(frozen=True)
class PlaceOf:
    """Function from the place of an answer's block to the places of the chunks in its column."""

    numblocks: tuple[int, ...]
    shape: AnswerAxes

    def __call__(self, block: tuple[int, ...]) -> InColumn:
        labels, ndim = self.shape.labels, self.shape.ndim
        kept = {label: i for label, i in zip(labels, block, strict=True) if label < ndim}
        place = tuple(kept.get(axis, 0) for axis in range(ndim))
        return InColumn(self.numblocks, self.shape.axes, place)


# --- One load -------------------------------------------------------------------------------------


@quiet()
def _answer_column(
    column: Any,
    names: Any = None,
    *,
    question: LaneQuestion,
    dtype: np.dtype[Any],
    shape: AnswerAxes,
    seen: bool,
) -> Any:
    """Compute one block of the answer from the chunks of its column.

    The chunks are in nested lists if several axes have more than one.
    """
    given = [each.read() if isinstance(each, Tile) else each for each in _flat(column)]
    if names is not None:
        assert isinstance(question, GroupedLanes)
        question = question.of_so_many(len(names[0]))
    found = question.block(pieces_of(given), dtype, shape)
    return KnownChunks(found, marks_of(given, ordered=question.by_place)) if seen else found


def _flat(nested: Any) -> Iterator[Any]:
    if isinstance(nested, list):
        for part in nested:
            yield from _flat(part)
    else:
        yield nested


# --- One load, by counts --------------------------------------------------------------------------


def _by_counts(
    x: DaskArray,
    question: LaneQuestion,
    label: str,
    plan: LanePlan,
    shape: AnswerAxes,
    meta: Any,
    *,
    seen: bool,
) -> DaskArray:
    """Count all values in one load, part by part, and answer from the counts.

    Questions about the same lanes or groups share the counts.
    """
    columns = Columns(x, shape.axes, plan.parts, about=question.windows, ordered=question.by_place)
    name = f"{label}-{tokenize(x.name, question, plan, shape)}"
    about = f"value-counts-{question.lanes_counted:.0f}"
    partials = columns.measured(question.count_values, about, 1, None)
    partials = columns.merge(question.merge_value_counts, partials, TALLIES_EVERY)
    counted = partial(_counted, question=question, dtype=x.dtype, shape=shape, kind=meta)
    found = columns.settle(counted, name, partials, None, shape.answer_place, seen=seen)
    return columns.lazy(found, shape.chunks(x, question.n_answers), meta)


def _counted(
    partials: list[Any],
    brackets: None,
    block: tuple[int, ...],
    *,
    question: LaneQuestion,
    dtype: np.dtype[Any],
    shape: AnswerAxes,
    kind: Any,
) -> Any:
    found = question.counted(question.merge_value_counts(partials), block, dtype, shape)
    return block_in_kind(found, kind)


# --- One load, by tails ---------------------------------------------------------------------------


def _by_tails(
    x: DaskArray,
    question: LaneQuestion,
    label: str,
    plan: LanePlan,
    shape: AnswerAxes,
    meta: Any,
    *,
    seen: bool,
) -> DaskArray:
    """Keep the tails of every lane in one load, part by part, and answer from the merged tails."""
    columns = Columns(
        x, shape.axes, plan.parts, is_copy=True, about=question, ordered=question.by_place
    )
    tails = question.tails(sum(lane_sizes(x, shape.axes)))
    assert tails is not None  # the plan has checked that
    token = tokenize(x.name, question, plan, shape)
    partials = columns.measured(tails.measure, f"{label}-kept", plan.loads, None)
    partials = columns.merge(tails.merge, partials, plan.passes.merge_every)
    answered = partial(_answered_by_tails, question=question, tails=tails, shape=shape, kind=meta)
    found = columns.settle(
        answered, f"{label}-{token}", partials, None, shape.answer_place, seen=seen
    )
    return columns.lazy(found, shape.chunks(x, question.n_answers), meta)


def _answered_by_tails(
    partials: list[Any],
    brackets: None,
    block: tuple[int, ...],
    *,
    question: LaneQuestion,
    tails: Tails,
    shape: AnswerAxes,
    kind: Any,
) -> Any:
    del brackets
    found = tails.found(tails.merge(partials))
    return in_kind(question.restored(found, block, shape), kind)


# --- Several passes -------------------------------------------------------------------------------


def _in_passes(
    x: DaskArray,
    question: LaneQuestion,
    label: str,
    plan: LanePlan,
    shape: AnswerAxes,
    meta: Any,
    *,
    seen: bool,
) -> DaskArray:
    """Narrow the brackets of each column load by load; then make the question's further load."""
    columns = Columns(x, shape.axes, plan.parts, about=question.windows, ordered=question.by_place)
    token = tokenize(x.name, question, plan, shape)
    further = question.further
    steps = question.steps
    name = f"{label}-{token}"
    if further is None:
        answered = partial(_answered, question=question, steps=steps, shape=shape, kind=meta)
        found = _pass_by_pass(
            columns, steps, label, plan, name, answered, shape.answer_place, seen=seen
        )
    else:
        known = partial(_known, steps=steps, further=further)
        found = _pass_by_pass(
            columns, steps, label, plan, f"{label}-order-{token}", known, seen=True
        )
        how = plan.loads + 1, found, label, name, shape, meta
        found = load_further(columns, further, *how, seen=seen)
    return columns.lazy(found, shape.chunks(x, question.n_answers), meta)


def _pass_by_pass(
    columns: Columns,
    steps: PassSteps,
    label: str,
    plan: LanePlan,
    name: str,
    answered: Callable[..., Any],
    place: Callable[[Place], tuple[int, ...]] = tuple,
    *,
    seen: bool,
) -> Tasks:
    """Narrow brackets pass by pass, and finish each column.

    The last step is ``answered(tallies, brackets, block)``, where `block` is the shape of a chunk.
    If `seen`, its results have the fingerprints of their chunks.
    """
    token = tokenize(name)
    narrowed = partial(_narrowed, steps=steps)
    brackets = None
    for load, m in enumerate(plan.passes.widths, 1):
        cuts = columns.measured(steps.cuts, "quantile-lane-cuts", load, brackets, m=m)
        cuts = columns.merge(partial(steps.merge_cuts, m=m), cuts, plan.passes.merge_every)
        brackets = columns.settle(narrowed, f"{label}-bracket-{load}-{token}", cuts, brackets)
    load = plan.loads
    tallies = columns.measured(steps.tally, f"{label}-candidates", load, brackets)
    tallies = columns.merge(steps.merge_tallies, tallies, TALLIES_EVERY)
    return columns.settle(answered, name, tallies, brackets, place, seen=seen)


def _narrowed(parts: list[Any], brackets: Any, block: tuple[int, ...], *, steps: PassSteps) -> Any:
    del block
    return steps.narrowed(parts, brackets)


def _answered(
    tallies: list[Any],
    brackets: Any,
    block: tuple[int, ...],
    *,
    question: LaneQuestion,
    steps: PassSteps,
    shape: AnswerAxes,
    kind: Any,
) -> Any:
    partial_result = steps.merge_tallies(tallies)
    answers = steps.answers(partial_result, brackets)
    if answers is not None:
        return in_kind(shape.restore(answers, block), kind)
    found = steps.found(partial_result, brackets)
    return in_kind(question.restored(found, block, shape), kind)


def _found(tallies: list[Any], brackets: Any, steps: PassSteps) -> Any:
    return steps.found(steps.merge_tallies(tallies), brackets)


def _known(
    tallies: list[Any],
    brackets: Any,
    block: tuple[int, ...],
    *,
    steps: PassSteps,
    further: FurtherLoad,
) -> Any:
    """Return what a further load needs to know of the order statistics."""
    del block
    return further.known(_found(tallies, brackets, steps))


TILES = {"scratch": in_tiles, "p2p": in_moved_tiles}
"""The lanes in tiles, by each plan that writes columns to disk."""

InParts = Callable[..., DaskArray]
"""Type of a function that answers in parts.

It takes an array, a question, a label, a plan, the axes of the answer, its meta, and whether its
blocks are `KnownChunks` (`seen`).
"""

IN_PARTS: dict[str, InParts] = {
    "counts": _by_counts,
    "groups": in_two_loads,
    "tails": _by_tails,
    "passes": _in_passes,
}
"""The graph of each plan that reads a column in parts. Other plans read whole columns."""
