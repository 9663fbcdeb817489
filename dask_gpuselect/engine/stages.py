"""Stages of a lazy answer about columns of chunks, and the loop that turns them into tasks.

::

    source ──copy──> partial results ──> merged ──> known ─┐   once or more
       └─────copy, waits for all that is known──> partial results ──> merged ──> answer

A stage is one load of every chunk: a `LaneLoad`, whose name begins that of the layer that measures.
Passes, tails, counts of values, and further loads are all lists of stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dask_gpuselect.engine.columns import Columns, LaneRequest, Tasks
from dask_gpuselect.engine.grid import lane_sizes
from dask_gpuselect.engine.lane_plans import LanePlan
from dask_gpuselect.engine.questions import LaneLoad
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.sizes import TALLIES_EVERY


def run(
    columns: Columns,
    stages: Sequence[LaneLoad],
    request: LaneRequest,
    token: str,
    known: Tasks | None = None,
) -> Tasks:
    """Make the tasks of all stages; the last one's make the answer.

    Parameters
    ----------
    token : str
        End of the names of layers.
    known : Tasks, optional
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


# --- Stages of questions about lanes --------------------------------------------------------------


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
