"""Graph that finds order statistics of groups of all elements in two loads.

::

    source ──copy──> cuts of runs ──> brackets of some groups ──┐
       │                          ──> those of others ──────────┴──> all brackets
       └────copy, waits for these──> tallies ──> elements of some groups ──┬──> answer
                                             ──> those of others ──────────┘

If there are many groups, several tasks find their brackets, each for a range of groups, so that
none gathers more than `root-limit`. If few groups have too many cuts for that, the cuts are merged
in a tree, and candidates wait: see `group_narrowing`. If one task finds all brackets, the first
load may cache what the second would ask for: see `group_keeping`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from dask.base import tokenize

from dask_gpuselect.arrays import in_kind
from dask_gpuselect.engine.answers import AnswerAxes, block_in_kind
from dask_gpuselect.engine.columns import Columns, Tasks
from dask_gpuselect.engine.group_elements import GroupedElements
from dask_gpuselect.engine.group_keeping import cell_tally_by_cache, first_of_groups
from dask_gpuselect.engine.group_narrowing import few_candidates, few_cuts
from dask_gpuselect.engine.group_values import Named
from dask_gpuselect.engine.keeping import FirstPartial, limits
from dask_gpuselect.engine.plans import LanePlan
from dask_gpuselect.engine.questions import Block, FurtherLoad
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.lane_cuts import join


def in_two_loads(
    x: DaskArray,
    question: GroupedElements,
    label: str,
    plan: LanePlan,
    shape: AnswerAxes,
    meta: Any,
    *,
    seen: bool,
) -> DaskArray:
    """Answer lazily, by two loads of the only column, and a further one if the question has it."""
    columns = Columns(x, shape.axes, plan.parts, ordered=question.by_place)
    edges = question.edges(plan.n_roots)
    token = tokenize(x.name, question, plan, shape)
    name = f"{label}-{token}"
    first = None
    if plan.cached_bytes:
        first = columns.measured(
            partial(first_of_groups, question=question),
            "group-reports",
            1,
            None,
            is_numbered=True,
            limits=limits(),
            board_name=f"group-reports-{token}",
            n_parts=len(plan.parts),
        )
        cuts = columns.each(_cuts_of, f"group-cuts-{token}", first, [])
    else:
        cuts = columns.measured(question.cuts, "group-cuts", 1, None, edges=edges)
    narrowing, n_roots = plan.narrowing, 1 if edges is None else len(edges) - 1
    if narrowing is None:
        cuts = columns.divide(cuts, n_roots)
    else:
        cuts = few_cuts(columns, cuts, narrowing, n_roots)
    bracketed = partial(question.bracketed, edges=edges)
    brackets = columns.settle(
        bracketed, f"{label}-bracket-each-{token}", cuts, None, is_numbered=True
    )
    every = columns.gather(_all_brackets, f"{label}-bracket-{token}", brackets)
    measure = partial(question.tally, edges=edges)
    if first is not None:
        load = cell_tally_by_cache, measure, f"{label}-candidates"
        tallies = columns.measured_unless(*load, first, every)
    else:
        tallies = columns.measured(question.tally, f"{label}-candidates", 2, every, edges=edges)
    if narrowing is None:
        tallies = columns.divide(tallies, n_roots)
    else:
        how = narrowing, n_roots, question.ranks, f"{label}-{token}"
        tallies, brackets = few_candidates(columns, tallies, brackets, *how)
    found = columns.settle(question.found, f"{label}-elements-{token}", tallies, brackets)
    further = question.further
    if further is None:
        answered = partial(_answered, question=question, shape=shape, kind=meta)
        made = columns.gather(answered, name, found, shape.answer_place, seen=seen)
    else:
        known = columns.gather(partial(_known, further=further), f"{label}-order-{token}", found)
        made = load_further(columns, further, 3, known, label, name, shape, meta, seen=seen)
    return columns.lazy(made, shape.chunks(x, question.n_answers), meta)


def load_further(
    columns: Columns,
    further: FurtherLoad,
    load: int,
    known: Tasks,
    label: str,
    name: str,
    shape: AnswerAxes,
    kind: Any,
    *,
    seen: bool,
) -> Tasks:
    """Make a further load of every column, numbered `load`, and answer from it by a layer."""
    partials = columns.measured(further.measure, f"{label}-{further.name}", load, known)
    partials = columns.merge(further.merge, partials, further.merge_every)
    about = {"dtype": columns.x.dtype, "shape": shape, "kind": kind}
    finish = partial(_finished_further, further=further, **about)
    return columns.settle(finish, name, partials, known, shape.answer_place, seen=seen)


def _cuts_of(first: FirstPartial) -> Named:
    found: Named = first.cuts
    return found


def _all_brackets(parts: Sequence[Named]) -> Named:
    if len(parts) == 1:
        return parts[0]
    return Named(None, join([part.value for part in parts]))


def _all_found(parts: Sequence[Named]) -> Named:
    return Named(parts[0].names, join([part.value for part in parts]))


def _answered(
    parts: Sequence[Named], *, question: GroupedElements, shape: AnswerAxes, kind: Any
) -> Any:
    return in_kind(question.restored(_all_found(parts), (), shape), kind)


def _finished_further(
    partials: list[Any], known: Any, block: Block, *, further: FurtherLoad, kind: Any, **about: Any
) -> Any:
    """Compute a block of the answer from the partial results of a further load, in kind."""
    return block_in_kind(further.finish(partials, known, block, **about), kind)


def _known(parts: Sequence[Named], *, further: FurtherLoad) -> Any:
    return further.known(_all_found(parts))
