"""Stages of a lazy answer about columns of chunks, and the loop that turns them into tasks.

::

    source ──copy──> partial results ──> merged ──> known ─┐   once or more
       └─────copy, waits for all that is known──> partial results ──> merged ──> answer

A stage is one load of every chunk. Passes, tails, counts of values, groups of all elements, the
rows of tables, and further loads are all lists of stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from dask_gpuselect.arrays import in_kind
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.columns import FOR_NEXT_LOAD, Blocks, Columns, Tasks
from dask_gpuselect.engine.grid import lane_sizes
from dask_gpuselect.engine.lane_plans import LanePlan
from dask_gpuselect.engine.questions import Block, LaneLoad, LaneQuestion
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.sizes import TALLIES_EVERY

Reduce = Callable[[Columns, Tasks, Tasks | None], tuple[Tasks, Tasks | None]]
"""Type of a function that makes partial results fewer, and may narrow what is known."""


def unmerged(columns: Columns, partials: Tasks, known: Tasks | None) -> tuple[Tasks, Tasks | None]:
    """Leave partial results as they are."""
    del columns
    return partials, known


def merging(merge: Callable[..., Any], every: int) -> Reduce:
    """Return a function that merges the partial results of each column to at most `every`."""
    return lambda columns, partials, known: (columns.merge(merge, partials, every), known)


def dividing(n: int) -> Reduce:
    """Return a function that divides partial results, lists of `n` items, among `n` tasks."""
    return lambda columns, partials, known: (columns.divide(partials, n), known)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One load of every chunk, and how its partial results become what is known.

    Parameters
    ----------
    name : str
        Prefix of the name of the layer that measures.
    measure : callable
        ``(column, known, **arguments)``: the partial result of a part of a column.
    arguments : mapping
        Further arguments of `measure`.
    reduce : callable
        Makes partial results fewer.
    settle : callable
        ``(partials, known)``: what the next stage needs to know, or the answer. If several tasks
        settle each column, this may be a tuple of functions, one for each task.
    finds : str
        Part of the name of the layer that settles; empty for the last stage.
    join : callable, optional
        ``(results)``: join the results of `settle`, if several tasks may settle each column.
    caches : bool
        True if only the `cuts` of each partial result are merged, and the whole stays, as a cache
        for the next stage. `measure` then gets the `number` of the part.
    by_cache : callable, optional
        ``(cached, known)``: the partial result of a part from the cache of the stage before, or
        None if the part has to be loaded.
    """

    name: str
    measure: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    reduce: Reduce = unmerged
    settle: Callable[..., Any] | tuple[Callable[..., Any], ...]
    finds: str = ""
    join: Callable[..., Any] | None = None
    caches: bool = False
    by_cache: Callable[[Any, Any], Any] | None = None


def run(
    columns: Columns,
    stages: Sequence[Stage],
    label: str,
    token: str,
    blocks: Blocks,
) -> Tasks:
    """Make the tasks of all stages; the last one's make the answer.

    Parameters
    ----------
    label, token : str
        Prefix and end of the names of layers.
    blocks : Blocks
        Those of the answer.
    """
    known: Tasks | None = None  # by all tasks about a column
    own: Tasks | None = None  # by each of these tasks
    cached: Tasks | None = None
    for load, stage in enumerate(stages, 1):
        if stage.by_cache is not None and cached is not None and known is not None:
            measure = partial(stage.measure, **stage.arguments)
            partials = columns.measured_unless(stage.by_cache, measure, stage.name, cached, known)
        else:
            partials = columns.measured(
                stage.measure,
                stage.name,
                load,
                known,
                is_numbered=stage.caches,
                **stage.arguments,
            )
        if stage.caches:
            cached = partials
            partials = columns.each(attrgetter("cuts"), f"{stage.name}-cuts", cached)
        partials, about = stage.reduce(columns, partials, own if stage.join else known)
        is_last = load == len(stages)
        name = f"{label}-{token}" if is_last else f"{label}-{stage.finds}-{token}"
        ends = blocks if is_last else FOR_NEXT_LOAD
        if stage.join is None:
            own = known = columns.settle(stage.settle, name, partials, about, ends)
        else:
            each = f"{label}-{stage.finds or 'answer'}-each-{token}"
            own = columns.settle(stage.settle, each, partials, about)
            known = columns.gather(stage.join, name, own, ends)
    assert known is not None
    return known


# --- Stages of questions about lanes --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LaneRequest:
    """A question about every lane, with the form of the answer.

    Parameters
    ----------
    question : LaneQuestion
    label : str
        Prefix of the names of the layers.
    shape : AnswerAxes
        Axes of the answer. Not all axes of the data are reduced.
    dtype : dtype or None
        Dtype of the answer; None if each block of it is an object.
    marked : bool
        True if each block of the answer is a `KnownChunks`, for a caller that loads the array
        again.
    names : dask array, optional
        The labels of the groups, where their number is not known before.
    kind : array, optional
        Meta of the answer, for an array that is asked.
    """

    question: LaneQuestion
    label: str
    shape: AnswerAxes
    dtype: np.dtype[Any] | None
    marked: bool = False
    names: DaskArray | None = None
    kind: Any = None

    def answered(self, partials: Sequence[Any], known: Any, *, last: LaneLoad) -> Any:
        """Compute the answers from the last pass, or what a further load needs to know."""
        merged = last.merge(partials)
        made = None if self.question.loads.further else last.answers(merged, known)
        return self.resolved(last.finish([merged], known)) if made is None else made

    def resolved(self, order: Any) -> Any:
        """Compute the answers from order statistics, or what a further load needs to know."""
        further = self.question.loads.further
        return self.question.finished(order) if further is None else further.known(order)

    def made(self, answers: Any, block: Block) -> Any:
        """Return the block of the answer for a block of data of that shape."""
        made = self.question.blocks.restored(answers, block, self.shape)
        return made if self.kind.dtype.hasobject else in_kind(made, self.kind)


def stages_by_counts(x: DaskArray, request: LaneRequest, plan: LanePlan, token: str) -> list[Stage]:
    """Count all values; questions about the same lanes or groups share the counts."""
    question, counts = request.question, request.question.loads.counts
    assert counts is not None  # the plan has checked that
    return [_stage_of(counts, f"value-counts-{question.slots.at_most:.0f}", TALLIES_EVERY)]


def stages_by_tails(x: DaskArray, request: LaneRequest, plan: LanePlan, token: str) -> list[Stage]:
    """Keep the tails of every lane, and answer from the merged tails."""
    tails = request.question.loads.tails(sum(lane_sizes(x, request.shape.axes)))
    assert tails is not None  # the plan has checked that
    stage = _stage_of(tails, f"{request.label}-kept", plan.passes.merge_every)
    return [replace(stage, settle=partial(request.answered, last=tails))]


def stages_in_passes(x: DaskArray, request: LaneRequest, plan: LanePlan, token: str) -> list[Stage]:
    """Narrow the brackets of each column load by load; then make the question's further load."""
    loads = request.question.loads
    passes = [
        Stage(
            name="quantile-lane-cuts",
            measure=loads.narrow.measure,
            arguments={"m": m},
            reduce=merging(partial(loads.narrow.merge, m=m), plan.passes.merge_every),
            settle=loads.narrow.finish,
            finds=f"bracket-{load}",
        )
        for load, m in enumerate(plan.passes.widths, 1)
    ]
    last = _stage_of(loads.last, f"{request.label}-candidates", TALLIES_EVERY)
    last = replace(last, settle=partial(request.answered, last=loads.last), finds="order")
    return [*passes, last, *further_stages(request)]


def further_stages(request: LaneRequest) -> list[Stage]:
    """Return the stage of the question's further load, if there is one."""
    further = request.question.loads.further
    if further is None:
        return []
    return [_stage_of(further, f"{request.label}-{further.name}", further.merge_every)]


def _stage_of(load: LaneLoad, name: str, every: int) -> Stage:
    """Return the stage of a load, with at most `every` merged partial results of each column."""
    reduce = merging(load.merge, every)
    return Stage(name=name, measure=load.measure, reduce=reduce, settle=load.finish)
