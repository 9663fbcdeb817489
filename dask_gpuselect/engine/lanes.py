"""Graph of a question about every lane along some axes.

Nothing is rechunked, and the answer has the chunks of the data along the axes that are not reduced.

::

    source ──copy──> partial results ──> merged ──> known ─┐   once or more
       └─────copy, waits for all that is known──> partial results ──> merged ──> answer

A stage is one load of every chunk: a `LaneLoad`, whose name begins that of the layer that measures.
Passes, tails, counts of values, and further loads are all lists of stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize

from dask_gpuselect.arrays import fitted
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.columns import Columns, LaneRequest, Tasks, first_load, side_by_side
from dask_gpuselect.engine.grid import lane_sizes, share_axis, slab_axis
from dask_gpuselect.engine.group_elements import GroupedElements, GroupsOfAll
from dask_gpuselect.engine.group_loads import loads_of_groups
from dask_gpuselect.engine.groups import GroupedLanes
from dask_gpuselect.engine.lane_plans import LanePlan, plan_lanes
from dask_gpuselect.engine.marks import InColumn, KnownChunks, Slab, marks_of, pieces_of
from dask_gpuselect.engine.moves import in_moved_tiles
from dask_gpuselect.engine.plans import as_one, choose
from dask_gpuselect.engine.questions import LaneLoad, LaneQuestion
from dask_gpuselect.engine.resident import answer_block
from dask_gpuselect.engine.scratch import Tile, in_tiles, joined_tiles, n_tiles
from dask_gpuselect.engine.source import DaskArray, Source, blockwise, map_blocks, private_copy
from dask_gpuselect.kernels import fingerprints
from dask_gpuselect.kernels.companions import copied
from dask_gpuselect.maths.sizes import TALLIES_EVERY
from dask_gpuselect.quiet import quiet


def ask_lanes(x: DaskArray, request: LaneRequest) -> DaskArray:
    """Answer a question about every lane of a dask array lazily."""
    question, shape, label, marked = request.question, request.shape, request.label, request.marked
    axes = shape.axes
    plan = plan_lanes(x, axes, question, is_one_lane=shape.is_one_lane, may_write=not marked)
    several = plan.name in ("passes", "groups")
    with as_one():
        composed = _composed(x, request) if several else None
    if composed is not None:
        return composed
    choose(plan)
    ask = partial(_ask, request=request, plan=plan)
    if plan.scratch is not None:
        tiles = TILES[plan.name](x, axes, plan.scratch)
        counts = [
            n_tiles(x.chunks[i], plan.scratch.tile[i]) if i < x.ndim else [1] for i in shape.labels
        ]
        answer = ask(tiles, label=f"{label}-{plan.name}", marked=False)
        form, tiled = question.blocks, f"{label}-tiles-{plan.name}"
        later = form.joined_later if plan.name == "scratch" else None
        chunks = shape.chunks(x, question.n_answers)
        return joined_tiles(answer, counts, chunks, tiled, later or form.joined)
    sources, axis = _sources(x, plan, axes, marked=marked)
    if len(sources) == 1:
        return ask(sources[0], label=f"{label}-{plan.name}", marked=marked)
    word = "slab" if plan.slabs > 1 else "share"
    answers = [ask(source, label=f"{label}-{word}-{plan.name}", marked=True) for source in sources]
    axis = shape.labels.index(axis)
    place_of = partial(_column_of, x=x, shape=shape)
    label = f"{label}-{word}s-{plan.name}"
    return side_by_side(answers, axis, label, place_of, question.blocks.joined, marked=marked)


def _composed(x: DaskArray, request: LaneRequest) -> DaskArray | None:
    question, shape = request.question, request.shape
    composed = question.composed
    if composed is None:
        return None
    grouped = question if isinstance(question, GroupedElements) else None
    wide = replace(shape, keepdims=True) if grouped is None else shape

    def ask(x: DaskArray, each: LaneQuestion, marked: bool) -> DaskArray:
        about = each if grouped is None else replace(grouped, of_group=each)
        own = replace(request, question=about, shape=wide, marked=marked, names=None)
        return ask_lanes(x, own)

    if grouped is not None:
        return composed(ask, x, request.label, None)
    answer = composed(ask, x, request.label, shape.axes)
    return answer if shape.keepdims else answer.squeeze(shape.axes)


def _ask(
    x: DaskArray, *, request: LaneRequest, plan: LanePlan, label: str, marked: bool
) -> DaskArray:
    """Answer a question about all of `x`, or about a slab of every chunk."""
    label = f"{label}-seen" if marked else label
    question, shape, names, dtype = request.question, request.shape, request.names, request.dtype
    meta = np.empty((0,) * len(shape.labels), dtype=object)
    if dtype is not None:
        meta = fitted(meta_from_array(x._meta, ndim=meta.ndim, dtype=dtype))
    if plan.name in STAGES:
        # Tasks contain the request, and so none of what it refers to may be lazy.
        own = replace(request, label=label, marked=marked, names=None, kind=meta)
        return _in_parts(x, own, plan)
    name = f"{label}-{tokenize(x.name, question, shape)}"
    about = {"question": question, "dtype": x.dtype, "shape": shape, "marked": marked}
    return blockwise(
        partial(_answer_column, **about, layer=name),
        shape.labels,
        x,
        tuple(range(x.ndim)),
        *([] if names is None else [names, (2 * x.ndim + 1,)]),  # a label that no axis uses
        name=name,
        new_axes=shape.new_axes(question.n_answers),
        concatenate=False,
        align_arrays=False,  # aligning would drop chunks without elements
        dtype=meta.dtype,
        meta=meta,
    )


# --- What is read ---------------------------------------------------------------------------------


def _sources(
    x: DaskArray, plan: LanePlan, axes: tuple[int, ...], *, marked: bool
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
        is_own = marked or not Source.of(x).is_in_memory
        return [_part(part, axis, i, n, is_own=is_own) for i, part in enumerate(each)], axis
    is_shared = plan.name == "tails"  # one load of every chunk for all shares
    if is_shared:
        source = first_load(x, axes)
    elif plan.parts or plan.homes or all(x.numblocks[axis] == 1 for axis in axes):
        return [x], axis
    else:
        source = private_copy(x, f"columns of {x.name} along {axes}")
    n = plan.shares
    if marked or (n == 1 and not is_shared):
        return [source], axis
    axis = share_axis(x, axes, n)
    return [_part(source, axis, i, n, is_own=False) for i in range(n)], axis


def _part(source: DaskArray, axis: int, i: int, n: int, *, is_own: bool) -> DaskArray:
    """Select part `i` of `n` of every chunk; `is_own` as of `_slab`."""
    sizes = tuple(size * (i + 1) // n - size * i // n for size in source.chunks[axis])
    return map_blocks(
        partial(_slab, axis=axis, i=i, n=n, is_own=is_own),
        source,
        name=f"quantile-{'slab' if is_own else 'share'}-{tokenize(source.name, axis, i, n)}",
        chunks=(*source.chunks[:axis], sizes, *source.chunks[axis + 1 :]),
        dtype=source.dtype,
        meta=source._meta,
    )


def _slab(chunk: Any, *, axis: int, i: int, n: int, is_own: bool) -> Slab:
    """Select part `i` of `n` of a chunk; `is_own` if the chunk is loaded for this part alone.

    Otherwise the tasks for all parts see the same chunk, so there is no fingerprint.
    """
    size = chunk.shape[axis]
    piece = chunk[(slice(None),) * axis + (slice(size * i // n, size * (i + 1) // n),)]
    if not is_own:
        return Slab(piece, 0)
    piece = copied(piece)  # a view would keep the chunk in memory
    return Slab(piece, fingerprints.begun_fingerprint(chunk))


def _column_of(block: tuple[int, ...], x: DaskArray, shape: AnswerAxes) -> InColumn:
    """Return the places of the chunks in the column of an answer's block, by its place."""
    positions = dict(zip(shape.labels, block, strict=True))
    place = tuple(positions.get(axis, 0) for axis in range(shape.ndim))
    return InColumn(x.numblocks, shape.axes, place)


# --- One load -------------------------------------------------------------------------------------


@quiet()
def _answer_column(
    column: Any,
    names: Any = None,
    *,
    question: LaneQuestion,
    dtype: np.dtype[Any],
    shape: AnswerAxes,
    marked: bool,
    layer: str,
) -> Any:
    """Compute one block of the answer from the chunks of its column, or its part about a tile.

    The chunks are in nested lists if several axes have more than one.
    """
    first, *others = _flat(column)
    given = [first.read() if isinstance(first, Tile) else first, *others]
    if names is not None:
        assert isinstance(question, GroupedLanes)
        question = question.of_so_many(len(names[0]))
    answer = answer_block(pieces_of(given), dtype, question, shape)
    if isinstance(first, Tile):
        return first.placed(answer, shape.labels, layer)
    return (
        KnownChunks(answer, marks_of(given, ordered=_is_by_place(question))) if marked else answer
    )


def _is_by_place(question: LaneQuestion) -> bool:
    """Return whether the answer depends on the positions of elements in a chunk."""
    return not isinstance(question, GroupsOfAll)


def _flat(nested: Any) -> Iterator[Any]:
    if isinstance(nested, list):
        for part in nested:
            yield from _flat(part)
    else:
        yield nested


# --- In parts -------------------------------------------------------------------------------------


def _in_parts(x: DaskArray, request: LaneRequest, plan: LanePlan) -> DaskArray:
    """Answer a question by stages that read each column in parts."""
    question, shape = request.question, request.shape
    token = tokenize(x.name, question, plan, shape)
    stages = STAGES[plan.name](x, request, plan)
    by_tails = plan.name == "tails"  # whose sources are copies already
    columns = Columns(
        x,
        shape.axes,
        plan.parts,
        homes=plan.homes,
        is_copy=by_tails,
        about=question if by_tails else question.slots.windows,
        ordered=_is_by_place(question),
    )
    known = loads_of_groups(columns, request, plan, token) if plan.name == "groups" else None
    made = _tasks_of(stages, columns, request, token, known)
    chunks = shape.chunks(x, question.n_answers)
    return DaskArray(columns.graph, made.name, chunks, meta=request.kind)


TILES = {"scratch": in_tiles, "p2p": in_moved_tiles}
"""The lanes in tiles, by each plan that writes columns to disk."""


def _tasks_of(
    stages: Sequence[LaneLoad],
    columns: Columns,
    request: LaneRequest,
    token: str,
    known: Tasks | None,
) -> Tasks:
    """Make the tasks of all stages; the last one's make the answer.

    Parameters
    ----------
    token : str
        End of the names of layers.
    known : Tasks or None
        What two loads before the first stage have found.
    """
    for load, stage in enumerate(stages, 1 if known is None else 3):
        if stage.is_done is None or known is None:
            partials = columns.measured(stage.measure, stage.name, load, known)
        else:
            how = stage.measure, stage.name, known
            partials = columns.measured_unless(stage.is_done, *how)
        partials = columns.merge(stage.merge, partials, stage.merge_every)
        if stage is stages[-1]:
            name = f"{request.label}-{token}"
            return columns.settle(stage.finish, name, partials, known, request)
        name = f"{request.label}-known-{load}-{token}"
        known = columns.settle(stage.finish, name, partials, known)
    assert known is not None
    return known


# --- Stages ---------------------------------------------------------------------------------------


def _stages_by_counts(x: DaskArray, request: LaneRequest, plan: LanePlan) -> list[LaneLoad]:
    """Count all values; questions about the same lanes or groups share the counts."""
    question, counts = request.question, request.question.loads.counts
    assert counts is not None  # the plan has checked that
    name = f"value-counts-{question.slots.at_most:.0f}"
    return [replace(counts, name=name, merge_every=TALLIES_EVERY)]


def _stages_by_tails(x: DaskArray, request: LaneRequest, plan: LanePlan) -> list[LaneLoad]:
    """Keep the tails of every lane, and answer from the merged tails."""
    tails = request.question.loads.tails(sum(lane_sizes(x, request.shape.axes)))
    assert tails is not None  # the plan has checked that
    finish = partial(request.answered, last=tails)
    name, every = f"{request.label}-kept", plan.passes.merge_every
    return [replace(tails, finish=finish, name=name, merge_every=every)]


def _stages_in_passes(x: DaskArray, request: LaneRequest, plan: LanePlan) -> list[LaneLoad]:
    """Narrow the brackets of each column load by load; then make the question's further load."""
    narrow, last = request.question.loads.narrow, request.question.loads.last
    passes = [
        replace(
            narrow,
            name=f"quantile-lane-cuts-{m}",
            measure=partial(narrow.measure, m=m),
            merge=partial(narrow.merge, m=m),
            merge_every=plan.passes.merge_every,
        )
        for m in plan.passes.widths
    ]
    finish, name = partial(request.answered, last=last), f"{request.label}-candidates"
    last = replace(last, finish=finish, name=name, merge_every=TALLIES_EVERY)
    return [*passes, last, *_further_stages(x, request, plan)]


def _further_stages(x: DaskArray, request: LaneRequest, plan: LanePlan) -> list[LaneLoad]:
    """Return the stage of the question's further load, if there is one."""
    further = request.question.loads.further
    return [replace(further, name=f"{request.label}-{further.name}")] if further else []


STAGES: dict[str, Callable[..., list[LaneLoad]]] = {
    "counts": _stages_by_counts,
    "groups": _further_stages,
    "tails": _stages_by_tails,
    "passes": _stages_in_passes,
}
"""The stages of each plan that reads a column in parts; of groups, those after two loads.

Other plans read whole columns.
"""
