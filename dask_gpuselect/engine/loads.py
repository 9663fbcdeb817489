"""Graph of two loads of a source, with a bracket between them.

::

    source ──copy──> cuts ──merge──> bracket
       │                                │
       └────copy, waits for bracket──> candidates ──merge──> answer

Each line is a layer of one task a chunk or fewer. The cuts do not depend on the question, so
several questions about one array share them by key. The bracket comes with a table of what the cuts
imply for every chunk, so each second load proves on the spot that its chunk has not changed. A task
that waits for the bracket depends on no other result of load 1: when it also depended on its own
chunk's cuts, `dask.order` took time with the square of the number of chunks.

If there are so many chunks that their cuts are too much for one task, the cuts are narrowed on the
way there: see `narrowing`.

If all chunks are in memory, a pilot goes ahead: a sample guesses the brackets, and one read proves
them by counts. The tasks of the two loads then return immediately, and do work only if the guess
missed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_gpuselect import kernels
from dask_gpuselect.engine import graphs
from dask_gpuselect.engine.answers import Form
from dask_gpuselect.engine.counting import ask_counts, gathered_by_counts
from dask_gpuselect.engine.first_loads import FirstLoad, first_load_unless, first_loads
from dask_gpuselect.engine.keeping import MergeGathered, second_loads
from dask_gpuselect.engine.marks import InColumn, check_same, marks_of
from dask_gpuselect.engine.narrowing import (
    brackets_of_stretches,
    candidates_in_groups,
    cuts_in_groups,
    in_tree,
    narrowed_candidates,
    proven_by,
    waiting,
)
from dask_gpuselect.engine.partials import Gathered, Proven, Resolved, gathered, how_gathered
from dask_gpuselect.engine.plans import ElementPlan, choose, plan_each, plan_loads
from dask_gpuselect.engine.questions import ArrayQuestion, Question
from dask_gpuselect.engine.reads import Reads, each_if_needed
from dask_gpuselect.engine.resident import answer_resident
from dask_gpuselect.engine.source import (
    DaskArray,
    merged,
    nothing,
    private_copy,
)
from dask_gpuselect.maths.chunk_sample import ChunkOrder
from dask_gpuselect.maths.cuts import Cuts, IntArray, merge_any
from dask_gpuselect.maths.sizes import Narrowing

logger = logging.getLogger("dask_gpuselect")

Measured = Callable[[Any, np.dtype[Any]], Any]
"""Function from a chunk and a dtype to a partial result."""

Merged = Callable[[Sequence[Any]], Any]
"""Function that merges partial results."""


def ask_together(requests: Sequence[ArrayQuestion]) -> list[DaskArray]:
    """Answer questions about all elements of dask arrays lazily, in two loads or sometimes three.

    Arrays are loaded together if chunk i of each depends on the same chunks of what they share.
    Their common part is then loaded once for all of them, at most one chunk at a time. Other
    arrays, such as ``x[::-1]`` beside ``x``, have loads of their own, because no order of the
    chunks suits both.

    Parameters
    ----------
    requests : sequence of ArrayQuestion
        Questions of one kind.

    Notes
    -----
    Each chunk is loaded twice, or once if all values of all arrays can be counted (see `counting`).
    A third load follows if a question needs it. Data in memory are used in place, and read once
    plus a sample. With two loads, one task holds 24 bytes for each pivot and one element for each
    candidate: about sqrt(elements) of both for each chunk and quantile, unless the plan narrows
    them.
    """
    distinct = list({each.identity: each for each in requests}.values())
    answers: dict[Any, DaskArray] = {}
    plans = plan_each([each.x for each in distinct], [each.question for each in distinct])
    for places, planned in plans:
        choose(planned[0])
        names = sorted({distinct[i].x.name for i in places})
        among = tokenize(names) if len(names) > 1 else None
        group = [replace(distinct[i], among=among) for i in places]
        some = ASKS.get(planned[0].name, _ask_loads)(group, planned)
        answers |= zip((each.identity for each in group), some, strict=True)
    return [answers[each.identity] for each in requests]


def ask_once(
    x: DaskArray, measure: Measured, merge: Merged, answer: Callable[[Any], Any], label: str
) -> DaskArray:
    """Answer from one partial result of each chunk, lazily; see `asking.ask_once`."""
    source = private_copy(x, f"load 1 of {x.name}")
    # The function is one task of its own: as a literal it would be copied to every task.
    single = graphs.literals(f"{label}-measure", [measure], ())
    partials = graphs.each_chunk(_measured, f"{label}-reports", [source], [single], dtype=x.dtype)
    return graphs.reduced(partials, merge, _answer_once, label, merge=merge, answer=answer)


def _measured(chunk: Any, measure: Measured, *, dtype: np.dtype[Any]) -> Any:
    return measure(chunk, dtype)


def _answer_once(partials: list[Any], merge: Merged, answer: Callable[[Any], Any]) -> Any:
    return answer(merge(partials))


ByChunk = tuple[DaskArray, DaskArray, ChunkOrder | None, Narrowing | None]
"""Results of `by_chunk`."""


def by_chunk(x: DaskArray, question: Question, label: str) -> ByChunk:
    """Return the proven brackets of a question, and what is gathered of every chunk there.

    This takes one load if values are counted. Otherwise it takes two. A chunk takes one if the
    first load has cached enough of it.

    Returns
    -------
    brackets : dask array
        The brackets, as one object.
    tallies : dask array
        Objects, each a list of the `Gathered` of one chunk, or of the chunks of a group.
    order : ChunkOrder or None
        Order of the chunks in these lists; None if it is C order.
    narrowing : Narrowing or None
        Given if the candidates are too many for one task: then they ascend, in each chunk.
    """
    plan = choose(*plan_loads([x], [question]))
    request = ArrayQuestion(x, question, Form((), None, x._meta), label)
    if plan.name == "counts":
        return (*gathered_by_counts(request), None, None)
    begun = first_loads([request], [plan])
    (bracket,), (load,) = _second_loads(begun, is_apart=True)
    brackets = graphs.each_chunk(attrgetter("brackets"), f"{label}-ends", [bracket])
    if plan.narrowing is not None:
        load = waiting(load, plan.narrowing)
    return brackets, load, begun[0].order, plan.narrowing


def _ask_resident(
    requests: Sequence[ArrayQuestion], plans: Sequence[ElementPlan]
) -> list[DaskArray]:
    """Answer questions about chunks in the memory of one device, in one task each."""
    answers = []
    for each, plan in zip(requests, plans, strict=True):
        x, question, form = each.x, each.question, each.form
        label = f"{each.label}-{plan.name}"
        how = {"dtype": x.dtype, "question": question, "form": form, "share": plan.share}
        answer = graphs.in_one_place([x], answer_resident, label, form.key_index, **how)
        answers.append(form.lazy(answer))
    return answers


def _ask_loads(requests: Sequence[ArrayQuestion], plans: Sequence[ElementPlan]) -> list[DaskArray]:
    """Answer questions about arrays by two or three loads, which they make together."""
    return _answered(first_loads(requests, plans))


def answer_unless(request: ArrayQuestion, plan: ElementPlan, settled: DaskArray) -> DaskArray:
    """Answer a question by two loads, which read nothing if an earlier task has settled it.

    The result of that task is `Resolved`, or None. The question takes no third load.
    """
    return _answered([first_load_unless(request, plan, settled)])[0]


def _answered(begun: Sequence[FirstLoad]) -> list[DaskArray]:
    """Answer questions whose first loads are made, by the loads that follow."""
    brackets, loads = _second_loads(begun)
    waits = [each.rounds for each in begun if each.rounds]
    if waits:  # the candidates are too many for one task
        loads = candidates_in_groups(loads, max(each.groups for each in waits), begun[0].label)
    for i, each in enumerate(begun):
        if each.rounds:
            how = (each.question, each.rounds, each.label)
            loads[i], brackets[i] = narrowed_candidates(loads[i], brackets[i], *how)
    ends = zip(begun, _after_second(begun, brackets, loads), strict=True)
    made = (_after_third(each, end) if each.is_marked else end for each, end in ends)
    return [each.form.lazy(answer) for each, answer in zip(begun, made, strict=True)]


ASKS = {"resident": _ask_resident, "counts": ask_counts}
"""Functions that answer questions, by the name of the plan; `_ask_loads` answers all others."""


def _second_loads(
    begun: Sequence[FirstLoad], *, is_apart: bool = False
) -> tuple[list[DaskArray], list[DaskArray]]:
    """Make the brackets and the second loads of arrays that are loaded together.

    If `is_apart`, the candidates of the chunks stay unmerged.
    """
    merge: MergeGathered = list if is_apart else Gathered.merge
    brackets = _all_brackets(begun)
    keeping, groups = begun[0].plan.keeping, begun[0].groups
    if keeping is not None and groups is not None:
        return brackets, second_loads(keeping, groups, begun, brackets, merge)
    turn, is_alone, loads = None, len(begun) < 2, []
    if begun[0].among:
        turn = graphs.in_one_place(brackets, nothing, f"{begun[0].label}-turn")
    for each, bracket in zip(begun, brackets, strict=True):
        # Candidates that are never merged are resolved on the device where they are.
        stays = is_apart and each.narrowing is None
        how = how_gathered(each) | {"merge": merge, "stays": stays}
        if each.settled is None:
            loads.append(_load(each, bracket, turn, is_alone=is_alone, **how))
        else:
            loads.append(_load_unless(each, bracket, **how))
    return brackets, loads


# --- The brackets -------------------------------------------------------------------------------


def _all_brackets(begun: Sequence[FirstLoad]) -> list[DaskArray]:
    """Find the brackets of every question from the first loads of all chunks."""
    narrowings = [each.narrowing for each in begun]
    if not any(narrowings):
        finishes: list[graphs.Finish] = []
        for each in begun:
            about = {"question": each.question, "numblocks": each.x.numblocks, "turns": each.turns}
            finishes.append((_find_brackets, f"{each.label}-bracket", about, ()))
        return graphs.reduced_together([each.cuts for each in begun], merge_any, finishes)
    groups = cuts_in_groups(begun)
    if narrowings[0] is not None and narrowings[0].stretches > 1:  # and there is one array alone
        in_stretches = brackets_of_stretches(groups[0], begun[0].question, narrowings[0])
        return [proven_by(groups[0], in_stretches, begun[0])]
    return [in_tree(*each) for each in zip(groups, begun, strict=True)]


def _find_brackets(
    parts: list[Cuts | None],
    question: Question,
    numblocks: tuple[int, ...],
    turns: IntArray | None = None,
) -> Proven | None:
    cuts = merge_any(parts)
    if cuts is None:
        return None  # the answer is settled
    return Proven.by(cuts, question.bracket(cuts), numblocks, turns)


# --- Load 2 -------------------------------------------------------------------------------------


def _load(
    begun: FirstLoad, bracket: DaskArray, turn: DaskArray | None, **arguments: Any
) -> DaskArray:
    """Measure every chunk at the brackets, in a load that waits for them.

    If there are several arrays, it waits for the brackets of all of them: for a `turn`.
    """
    turn = bracket if turn is None else turn
    seed = f"load 2 after {turn.name}"
    source = private_copy(begun.x, seed, after=turn.name)
    if turn is not bracket:  # the copy's graph needs the layer of `turn`
        source = DaskArray(merged(source, turn), source.name, source.chunks, meta=source._meta)
    label = f"{begun.label}-candidates"
    return graphs.each_chunk(_gather, label, [source], [bracket], block_ids=True, **arguments)


def _load_unless(begun: FirstLoad, bracket: DaskArray, **how: Any) -> DaskArray:
    """Measure every chunk at the brackets, if the answer is not settled before."""
    label, instead = f"{begun.label}-candidates", how["merge"]([Gathered(None)])
    return each_if_needed(_gather, label, Reads(begun.x), [bracket], bool, instead, **how)


def _gather(
    chunk: Any, proven: Proven, place: tuple[int, ...], *, merge: MergeGathered, **how: Any
) -> Any:
    return merge([gathered(chunk, proven, place, **how)])


def _resolve(
    parts: list[Gathered],
    proven: Proven | None,
    settled: Resolved | None,
    question: Question,
    order: ChunkOrder | None,
    form: Form,
    label: str,
) -> Resolved:
    if settled is not None:
        return settled
    whole = Gathered.whole(parts, form.kind)
    if order is not None:
        message = "%s: %d of %d chunks are read twice, the others once"
        logger.debug(message, label, whole.n_again, order.n)
    assert proven is not None
    assert whole.tally is not None
    resolved = question.resolve(proven.brackets, whole.tally)
    marks = whole.marks if order is None or not len(whole.marks) else whole.marks[order.turns()]
    more = None if question.third is None else question.third.brackets(proven.brackets, resolved)
    return Resolved(resolved, whole.sums, more, marks)


def _after_second(
    begun: Sequence[FirstLoad], brackets: Sequence[DaskArray], loads: Sequence[DaskArray]
) -> list[DaskArray]:
    """Answer questions whose second load is the last, or resolve them as far as it can."""
    finishes: list[graphs.Finish] = []
    for each, bracket in zip(begun, brackets, strict=True):
        form, label = each.form, each.label
        arguments = {
            "proven": bracket,
            "settled": each.settled,
            "question": each.question,
            "order": each.order,
            "form": form,
            "label": label,
        }
        if not each.is_marked:
            finishes.append((_finish_second, label, arguments, form.key_index))
        else:
            finishes.append((_resolve, f"{label}-resolve", arguments, ()))
    return graphs.reduced_together(loads, Gathered.merge, finishes)


def _finish_second(parts: list[Gathered], question: Question, form: Form, **about: Any) -> Any:
    resolved = _resolve(parts, question=question, form=form, **about)
    return form.made(question.finish(resolved.answer, resolved.sums))


# --- A third load -------------------------------------------------------------------------------


def _after_third(begun: FirstLoad, resolved: DaskArray) -> DaskArray:
    """Answer a question by a third load, which reads nothing if there are no further brackets."""
    x, question, form = begun.x, begun.question, begun.form
    assert question.third is not None
    label = f"{begun.label}-{question.third.name}"
    about = label, begun.reads, [resolved], attrgetter("brackets"), Gathered(None)
    third = each_if_needed(_gather_more, *about, dtype=x.dtype)
    if begun.rounds and question.third.narrower is not None:
        (third,) = candidates_in_groups([third], begun.rounds.groups, label)
        third, resolved = narrowed_candidates(third, resolved, question, begun.rounds, label)
    how = {"resolved": resolved, "question": question, "numblocks": x.numblocks, "form": form}
    last = _finish_third, begun.label, form.key_index
    return graphs.reduced(third, Gathered.merge, *last, **how)


def _gather_more(
    chunk: Any, resolved: Resolved, place: tuple[int, ...], *, dtype: np.dtype[Any]
) -> Gathered:
    assert resolved.brackets is not None
    tally = kernels.tally(chunk, dtype, resolved.brackets, most=math.prod(chunk.shape))
    return Gathered(tally, None, marks_of([chunk], ordered=False))  # the last task compares them


def _finish_third(
    parts: list[Gathered],
    resolved: Resolved,
    question: Question,
    numblocks: tuple[int, ...],
    form: Form,
) -> Any:
    answer, last = resolved.answer, Gathered.merge(parts)
    if resolved.brackets is not None and last.tally is not None:
        check_same(resolved.marks, last.marks, InColumn.of_all(numblocks))
        assert question.third is not None
        answer = question.third.resolve(answer, resolved.brackets, last.tally)
    return form.made(question.finish(answer, resolved.sums))
