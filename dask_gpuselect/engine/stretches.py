"""Brackets of very many ranks, split into stretches that each have a tree of merges of their own.

::

    groups ──few──> merge ──> where each stretch is
       │                           │
       └──few of each stretch <────┘ ──> merge, for each stretch ──> brackets of all

Candidates wait in groups of chunks, unmerged. Each round of narrowing works as the second line:
each group returns its cuts at some of the candidates of each stretch. So no task holds the cuts or
candidates of all chunks, and one task for each group serves all stretches. See `maths.stretches`,
and `narrowing` for the groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_gpuselect.engine import graphs
from dask_gpuselect.engine.partials import Gathered
from dask_gpuselect.engine.questions import Question
from dask_gpuselect.engine.source import DaskArray, TaskRef
from dask_gpuselect.maths.candidates import HostCandidates
from dask_gpuselect.maths.coarse import merged_coarsely, narrower
from dask_gpuselect.maths.cuts import Brackets, Cuts, Tally, merge
from dask_gpuselect.maths.envelope import Ranges
from dask_gpuselect.maths.sizes import IN_GROUP_EVERY, Narrowing
from dask_gpuselect.maths.stretches import (
    cuts_of_counts,
    cuts_of_stretches,
    joined,
    tallies_of_stretches,
)

LABEL = "quantile-stretches"
MERGE = f"{LABEL}-merge"

Column = list[Cuts | None]


def brackets_of_stretches(groups: DaskArray, question: Question, narrowing: Narrowing) -> DaskArray:
    """Find the brackets of all stretches of ranks, joined, as a list of one item.

    Parameters
    ----------
    groups : dask array
        The groups that `narrowing.narrowed` makes for one array.
    question : Question
    narrowing : Narrowing
    """
    parts = stretches_of(question, narrowing)
    token = tokenize(groups.name, parts, narrowing)
    merge = partial(merged_coarsely, most=narrowing.coarse)
    rough = graphs.each_chunk(
        _few_of_all, f"{LABEL}-rough-{token}", [groups], most=narrowing.coarse
    )
    name = f"{LABEL}-ranges-{token}"
    ranges = graphs.reduced(rough, MERGE, merge, _ranges_of_each, name, parts=parts)
    few = graphs.each_chunk(
        _few_of_each, f"{LABEL}-few-{token}", [groups], [ranges], most=narrowing.coarse
    )
    arguments = [{"question": part} for part in parts]
    how = MERGE, merge, _bracket, f"{LABEL}-brackets-{token}"
    return graphs.reduced_items(few, *how, arguments, _joined)


def stretches_of(question: Question, narrowing: Narrowing) -> list[Question]:
    """Split a question into one question for each stretch of ranks."""
    n = narrowing.stretches
    return [question.stretch(i, n) for i in range(n)]


def waiting(load: DaskArray, narrowing: Narrowing) -> DaskArray:
    """Sort the candidates of every chunk, and collect chunks in lists that wait for brackets."""
    if load.npartitions <= narrowing.groups:
        return graphs.each_chunk(_in_order, f"{LABEL}-waiting-{tokenize(load.name)}", [load])
    size = graphs.size_of_groups(load.npartitions, narrowing.groups)
    name = f"{LABEL}-waiting-{tokenize(load.name, size)}"
    return graphs.grouped(load, size, _all_in_order, name)


def answers_of_stretches(
    waits: DaskArray,
    together: DaskArray,
    question: Question,
    narrowing: Narrowing,
    join: Callable[[list[Any]], Any],
) -> DaskArray:
    """Resolve each stretch of ranks, and combine the answers: ``join(answers)``.

    Parameters
    ----------
    waits : dask array
        The lists of `waiting`.
    together : dask array
        Joined brackets of all stretches.
    """
    parts = stretches_of(question, narrowing)
    merge = partial(merged_coarsely, most=narrowing.coarse)
    token = tokenize(waits.name, together.name, parts)
    counts = graphs.each_chunk(_counts_of, f"{LABEL}-counts-{token}", [waits])
    each = graphs.reduced(
        counts,
        f"{LABEL}-counts-merge",
        Tally.merge,
        _by_counts,
        f"{LABEL}-cells-{token}",
        together=TaskRef((together.name,)),
        parts=parts,
    )
    for _ in range(narrowing.rounds):
        token = tokenize(waits.name, each.name, parts, narrowing)
        few = graphs.each_chunk(
            _few_candidates,
            f"{LABEL}-candidates-few-{token}",
            [waits],
            [together, each],
            most=narrowing.coarse,
        )
        arguments = _arguments_of_each(parts, each)
        name = f"{LABEL}-narrower-{token}"
        each = graphs.reduced_items(few, MERGE, merge, _narrower, name, arguments, list)
    token = tokenize(waits.name, each.name, parts)
    left = graphs.each_chunk(_left, f"{LABEL}-left-{token}", [waits], [together, each])
    arguments = _arguments_of_each(parts, each)
    name = f"{LABEL}-found-{token}"
    return graphs.reduced_items(left, MERGE, Tally.merge, _resolved, name, arguments, join)


def _arguments_of_each(parts: Sequence[Question], each: DaskArray) -> list[dict[str, Any]]:
    """Return the arguments for the last task of each stretch, which include all brackets."""
    brackets = TaskRef((each.name,))
    return [{"question": part, "each": brackets, "i": i} for i, part in enumerate(parts)]


def _cuts_of(group: list[Column]) -> list[Cuts]:
    (column,) = group
    return [cuts for cuts in column if cuts is not None]


def _few_of_all(group: list[Column], *, most: int) -> Cuts:
    return merged_coarsely(_cuts_of(group), most, IN_GROUP_EVERY)


def _few_of_each(group: list[Column], ranges: list[Ranges], *, most: int) -> list[Cuts]:
    cuts = _cuts_of(group)
    return [
        merged_coarsely([own.hull.around(some) for some in cuts], most, IN_GROUP_EVERY)
        for own in ranges
    ]


def _ranges_of_each(cuts_of_groups: list[Cuts], parts: list[Question]) -> list[Ranges]:
    cuts = merge(cuts_of_groups)
    return [part.ranges(cuts) for part in parts]


def _bracket(parts: list[Cuts], question: Question) -> Brackets:
    return question.bracket(merge(parts))


def _joined(each: list[Brackets]) -> list[Brackets]:
    return [joined(each)]


def _in_order(chunks: list[Gathered]) -> list[Gathered]:
    return [_ordered(chunk) for chunk in chunks]


def _all_in_order(parts: list[list[Gathered]]) -> list[Gathered]:
    return _in_order([*itertools.chain(*parts)])


def _ordered(gathered: Gathered) -> Gathered:
    assert gathered.tally is not None
    tally = replace(gathered.tally, candidates=gathered.tally.candidates.ordered())
    return replace(gathered, tally=tally)


def _tallies(chunks: list[Gathered]) -> list[Tally]:
    return [chunk.tally for chunk in chunks if chunk.tally is not None]


def _counts_of(chunks: list[Gathered]) -> Tally:
    tallies = _tallies(chunks)
    none = HostCandidates(np.empty(0, tallies[0].candidates.dtype))
    return Tally.merge([replace(tally, candidates=none) for tally in tallies])


def _by_counts(tallies: list[Tally], together: Brackets, parts: list[Question]) -> list[Brackets]:
    """Narrow the joined brackets to those of each stretch, by the counts at every end."""
    cuts = cuts_of_counts(together, Tally.merge(tallies))
    return [narrower(together, part.bracket(cuts)) for part in parts]


def _few_candidates(
    chunks: list[Gathered], together: Brackets, each: list[Brackets], *, most: int
) -> list[Cuts]:
    return cuts_of_stretches(together, _tallies(chunks), each, most)


def _narrower(parts: list[Cuts], question: Question, each: list[Brackets], i: int) -> Brackets:
    return narrower(each[i], question.bracket(merge(parts)))


def _left(chunks: list[Gathered], together: Brackets, each: list[Brackets]) -> list[Tally]:
    return tallies_of_stretches(together, _tallies(chunks), each)


def _resolved(parts: list[Tally], question: Question, each: list[Brackets], i: int) -> Any:
    return question.resolve(each[i], Tally.merge(parts))
