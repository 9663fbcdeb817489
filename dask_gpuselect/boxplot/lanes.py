"""Box plots along some axes: one for every lane."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.boxplot.summary import Boxes
from dask_gpuselect.engine.columns import Columns, slabs_agree
from dask_gpuselect.engine.lane_plans import LanePlan, plan_lanes, slab_axis
from dask_gpuselect.engine.lanes import (
    LaneShape,
    PlaceOf,
    flat,
    in_threads,
    pass_by_pass,
    pieces_for,
    sources,
)
from dask_gpuselect.engine.marks import Seen, marks_of, pieces_of
from dask_gpuselect.engine.source import Key
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_boxes import BoxesQuestion, Fences, LaneEnds, LaneQuantiles
from dask_gpuselect.maths.lane_cuts import (
    LaneBrackets,
    LaneTally,
    check_unchanged,
    order_statistics,
)
from dask_gpuselect.quiet import quiet

# How long a load of passes looks at elements, of what a column looks at them: see
# `lane_plans.plan_lanes`.
LOOK = 1.1


def plan_boxes(x: da.Array, axes: tuple[int, ...], n_answers: int) -> LanePlan:
    """The plan for the quantiles of boxes, which take a load more in passes."""
    return plan_lanes(x, axes, n_answers, lambda loads: loads + 1, LOOK)


def boxes_now(
    array: Any, dtype: np.dtype[Any], question: BoxesQuestion, axes: tuple[int, ...]
) -> Boxes:
    """Boxes for every lane of an array in memory, by several threads."""

    def answer(piece: Any, start: int) -> Boxes:
        del start
        found: Boxes = _boxes_of_column(piece, dtype=dtype, question=question, axes=axes)
        return found

    axis, pieces = pieces_for(array, axes)
    tables = in_threads(answer, array, axis, pieces)
    return Boxes.concatenated(tables, LaneShape(array.ndim, axes, False, True).labels.index(axis))


def ask_boxes(
    x: da.Array, question: BoxesQuestion, label: str, axes: tuple[int, ...]
) -> tuple[list[da.Array], list[Key], tuple[int, ...]]:
    """A lazy box for every lane of a dask array: arrays of tables, the keys of these tables in
    order, and how many of them lie along each axis.

    In the loads that its quantiles take, and one more in passes.
    """
    plan = plan_boxes(x, axes, question.n_answers)
    shape = LaneShape(x.ndim, axes, keepdims=False, is_scalar=True)
    label = f"{label}-{plan.name}"
    ask = _boxes_in_passes if plan.parts else _boxes_in_columns
    seen = plan.slabs > 1
    axis = shape.labels.index(slab_axis(x, axes))
    found = [
        ask(source, question, label, plan, axes, shape, seen=seen)
        for source in sources(x, plan, axes)
    ]
    if seen:
        found = slabs_agree(found, f"{label}-slabs", PlaceOf(x.numblocks, shape))
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
    shape: LaneShape,
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
    given = list(flat(column))
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
    shape: LaneShape,
    *,
    seen: bool,
) -> da.Array:
    """Quantiles pass by pass, and a load more for what lies at the ends."""
    columns = Columns(x, axes, plan.parts)
    token = tokenize(x.name, question, plan, shape)
    answered = partial(_quantiles, question=question)
    name = f"{label}-quartiles-{token}"
    quantiles = pass_by_pass(columns, question, label, plan, name, answered, seen=True)
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
