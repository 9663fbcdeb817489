"""Stages of a lazy answer about columns of chunks, and the loop that turns them into tasks.

::

    source ──copy──> partial results ──> merged ──> known ─┐   once or more
       └─────copy, waits for all that is known──> partial results ──> merged ──> answer

A stage is one load of every chunk: a `LaneLoad`, whose name begins that of the layer that measures.
Passes, tails, counts of values, and further loads are all lists of stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
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


def run(
    columns: Columns,
    stages: Sequence[LaneLoad],
    label: str,
    token: str,
    blocks: Blocks,
    known: Tasks | None = None,
) -> Tasks:
    """Make the tasks of all stages; the last one's make the answer.

    Parameters
    ----------
    label, token : str
        Prefix and end of the names of layers.
    blocks : Blocks
        Those of the answer.
    known : Tasks, optional
        What two loads before the first stage have found.
    """
    for load, stage in enumerate(stages, 1 if known is None else 3):
        partials = columns.measured(stage.measure, stage.name, load, known)
        partials = columns.merge(stage.merge, partials, stage.merge_every)
        is_last = stage is stages[-1]
        name = f"{label}-{token}" if is_last else f"{label}-known-{load}-{token}"
        ends = blocks if is_last else FOR_NEXT_LOAD
        known = columns.settle(stage.finish, name, partials, known, ends)
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


def stages_by_counts(x: DaskArray, request: LaneRequest, plan: LanePlan) -> list[LaneLoad]:
    """Count all values; questions about the same lanes or groups share the counts."""
    question, counts = request.question, request.question.loads.counts
    assert counts is not None  # the plan has checked that
    name = f"value-counts-{question.slots.at_most:.0f}"
    return [replace(counts, name=name, merge_every=TALLIES_EVERY)]


def stages_by_tails(x: DaskArray, request: LaneRequest, plan: LanePlan) -> list[LaneLoad]:
    """Keep the tails of every lane, and answer from the merged tails."""
    tails = request.question.loads.tails(sum(lane_sizes(x, request.shape.axes)))
    assert tails is not None  # the plan has checked that
    finish = partial(request.answered, last=tails)
    name, every = f"{request.label}-kept", plan.passes.merge_every
    return [replace(tails, finish=finish, name=name, merge_every=every)]


def stages_in_passes(x: DaskArray, request: LaneRequest, plan: LanePlan) -> list[LaneLoad]:
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
    return [*passes, last, *further_stages(x, request, plan)]


def further_stages(x: DaskArray, request: LaneRequest, plan: LanePlan) -> list[LaneLoad]:
    """Return the stage of the question's further load, if there is one."""
    further = request.question.loads.further
    return [replace(further, name=f"{request.label}-{further.name}")] if further else []
