"""Narrow the cuts of very many chunks before one task aggregates them.

The cuts of 10,000 chunks of 1e8 elements are gigabytes, but only those around the wanted ranks
matter. Which these are is known only from all chunks together. So the cuts are merged in a tree
that passes on few pivots, see `maths.coarse`, and the bracket is a little wider. The expected
counts of each chunk there are computed group by group:

::

    cuts ──> groups ──few──> merge ──> brackets
                │                         │
                └──────> expected <───────┘ ──> merge ──> both

A group has the cuts of some chunks, unmerged, on a worker.

The candidates of the second load may be too many as well. Then they wait, group by group, for a
narrower bracket, which the same kind of tree proves:

::

    candidates ──> groups ──few──> merge ──> narrower brackets
                     │                          │
                     └───────> narrower <───────┘

A task that selects cuts depends on all chunks and, separately, on its own. `dask.order` takes time
in proportion to the number of groups times the number of chunks. So there are at most
`sizes.MOST_GROUPS` groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dask_gpuselect.engine import graphs
from dask_gpuselect.engine.first_loads import FirstLoad
from dask_gpuselect.engine.partials import (
    Gathered,
    Proven,
    Resolved,
    sums_of,
)
from dask_gpuselect.engine.questions import Question, Summed
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.cached import tally_by
from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.coarse import cuts_of_tally, joined, merged_coarsely, narrower
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally, merge, merge_any
from dask_gpuselect.maths.envelope import Ranges
from dask_gpuselect.maths.expected import Expected
from dask_gpuselect.maths.sizes import COARSE_EVERY, IN_GROUP_EVERY, Narrowing

LABEL = "quantile-narrowing"


def cuts_in_groups(begun: Sequence[FirstLoad]) -> list[DaskArray]:
    """Collect the cuts of each of some arrays in groups of chunks, unmerged."""
    grids = [each.cuts for each in begun]
    size = 1
    if begun[0].order is None:  # else they are those of groups already
        most = max(each.narrowing.groups for each in begun if each.narrowing)
        size = graphs.size_of_groups(max(grid.npartitions for grid in grids), most)
    return graphs.grouped_together(grids, size, _some, LABEL)


def _some(parts: list[Cuts | None]) -> list[Cuts]:
    return [cuts for cuts in parts if cuts is not None]


# --- In a tree of merges that hand on few pivots --------------------------------------------------


def in_tree(groups: DaskArray, begun: FirstLoad) -> DaskArray:
    """Find the brackets and expected counts of a question, by a tree of merges.

    Cuts that are too many are merged coarsely, at some of their pivots. `groups` are those of
    `cuts_in_groups`.
    """
    most = None if begun.narrowing is None else begun.narrowing.coarse
    brackets = _from_few(groups, most, _bracket_if_any, "brackets", question=begun.question)
    return proven_by(groups, brackets, begun)


def _from_few(
    groups: DaskArray, most: int | None, finish: Callable[..., Any], finds: str, **about: Any
) -> DaskArray:
    """Merge the cuts of all groups coarsely, and return what ``finish(cuts, **about)`` finds."""
    how: dict[str, Any] = {"most": most, "every": IN_GROUP_EVERY}
    few = graphs.each_chunk(_coarse, f"{LABEL}-few", [groups], **how)
    return graphs.reduced(few, partial(_coarse, most=most), finish, f"{LABEL}-{finds}", **about)


def proven_by(groups: DaskArray, brackets: DaskArray, begun: FirstLoad) -> DaskArray:
    """Add the expected counts of all chunks to the brackets of a question."""
    n_chunks, label = begun.x.npartitions, f"{begun.label}-bracket"
    expected = graphs.each_chunk(
        _expected, f"{LABEL}-expects", [groups], [brackets], n_chunks=n_chunks
    )
    how = {"brackets": brackets, "numblocks": begun.x.numblocks, "turns": begun.turns}
    return graphs.reduced(expected, merge_any, _proven, label, **how)


def _coarse(
    parts: list[Cuts | None], *, most: int | None, every: int = COARSE_EVERY
) -> Cuts | None:
    """Merge the cuts of some chunks exactly, or at about `most` of their pivots."""
    some = _some(parts)
    return merged_coarsely(some, most, every) if some and most is not None else merge_any(some)


def _bracket_if_any(parts: list[Cuts | None], question: Question) -> Brackets | None:
    cuts = merge_any(parts)
    return None if cuts is None else question.bracket(cuts)


def _expected(group: list[Cuts], brackets: Brackets | None, *, n_chunks: int) -> Expected | None:
    cuts = merge_any(group)
    return None if brackets is None or cuts is None else Expected.of(cuts, brackets, n_chunks)


def _proven(
    parts: list[Expected | None],
    brackets: Brackets | None,
    numblocks: tuple[int, ...],
    turns: IntArray | None,
) -> Proven | None:
    expected = merge_any(parts)
    if brackets is None or expected is None:
        return None  # a pilot has the answer
    return Proven(brackets, expected if turns is None else expected.of_chunks(turns), numblocks)


# --- Candidates that wait -------------------------------------------------------------------------


def candidates_in_groups(loads: Sequence[DaskArray], most: int, label: str) -> list[DaskArray]:
    """Collect what loads of some arrays have gathered in about `most` groups of chunks.

    There the candidates wait.
    """
    largest = max(load.npartitions for load in loads)
    if len(loads) == 1 and largest <= most:
        return list(loads)
    size, label = graphs.size_of_groups(largest, most), f"{label}-candidates"
    return graphs.grouped_together(loads, size, Gathered.merge, label)


def narrowed_candidates(
    load: DaskArray, bracket: DaskArray, question: Question, narrowing: Narrowing, label: str
) -> tuple[DaskArray, DaskArray]:
    """Narrow what a load has gathered, and its brackets, before one task merges all.

    This is done where the candidates wait. `bracket` is a `Proven` of the second load, or a
    `Resolved` of the third.
    """
    narrower = partial(_narrower_bracket, question=question)
    left = partial(_narrower_tally, summed=question.measures.sums)
    return in_rounds(load, bracket, narrowing, label, _cuts_of_candidates, narrower, left)


def in_rounds(
    load: DaskArray,
    bracket: DaskArray,
    narrowing: Narrowing,
    label: str,
    few: Callable[..., Any],
    narrower: Callable[..., Any],
    left: Callable[..., Any],
) -> tuple[DaskArray, DaskArray]:
    """Narrow partial results and a bracket, where the partial results are.

    Parameters
    ----------
    few : callable
        ``(partial_result, bracket, most)``: cuts at about `most` of the candidates.
    narrower : callable
        ``(cuts, known)``: the narrower bracket.
    left : callable
        ``(partial_result, bracket, narrower)``: the partial result at the narrower bracket.
    """
    most, own = narrowing.coarse, f"{label}-candidates"
    merge = partial(_coarse, most=most)
    for _ in range(narrowing.rounds):
        how: dict[str, Any] = {"known": bracket, "by": narrower}
        cuts = graphs.each_chunk(few, f"{own}-few", [load], [bracket], most=most)
        narrow = graphs.reduced(cuts, merge, _applied, f"{label}-narrower", **how)
        both = [bracket, narrow]
        load = graphs.each_chunk(_applied, f"{own}-narrower", [load], both, by=left)
        bracket = narrow
    return load, bracket


def _applied(*given: Any, by: Callable[..., Any], **known: Any) -> Any:
    return by(*given, **known)


Known = Proven | Resolved


def _cuts_of_candidates(gathered: Gathered, known: Known, *, most: int) -> Cuts | None:
    if gathered.tally is None or known.brackets is None:
        return None  # a third load was not needed
    return cuts_of_tally(known.brackets, gathered.tally, most)


def _narrower_bracket(parts: list[Cuts | None], known: Known, question: Question) -> Known:
    cuts = merge_any(parts)
    return known if cuts is None else known.narrower(question, cuts)


def _narrower_tally(
    gathered: Gathered, known: Known, wanted: Known, *, summed: Summed | None
) -> Gathered:
    if gathered.tally is None or known.brackets is None or wanted.brackets is None:
        return gathered
    tally = tally_by(known.brackets, gathered.tally, wanted.brackets)
    if summed is None or summed(wanted.brackets) is None:  # all are summed already
        return replace(gathered, tally=tally)
    before = gathered.tally.candidates.on_host()
    sums = sums_of(before, wanted.brackets, before.dtype, summed)
    return replace(gathered, tally=tally, sums=merge_any([gathered.sums, sums]))


# --- Very many ranks ------------------------------------------------------------------------------

# A merge in a tree that hands on K pivots makes each bracket wider by one in K of the elements that
# the tree is about (see `coarse`). With P ranks in a tree, brackets hold P / K of all elements. So
# if there are more ranks than a small part of K, they are divided into stretches of neighbouring
# ranks, each with a tree of its own. That tree is about the elements between the first and the last
# rank of its stretch, so a bracket gets wider only by one in K of these.
#
#     groups ──few──> merge ──> where each stretch is
#        │                           │
#        └──few of each stretch <────┘ ──> merge, for each stretch ──> brackets of all
#
# Candidates wait in groups of chunks, unmerged. Each round of narrowing works as the second line:
# each group returns its cuts at some of the candidates of each stretch. So no task holds the cuts
# or candidates of all chunks, and one task for each group serves all stretches.

STRETCHES = "quantile-stretches"


def brackets_of_stretches(groups: DaskArray, question: Question, narrowing: Narrowing) -> DaskArray:
    """Find the brackets of all stretches of ranks, joined.

    Parameters
    ----------
    groups : dask array
        The groups of `cuts_in_groups` for one array.
    question : Question
    narrowing : Narrowing
    """
    parts, most = stretches_of(question, narrowing), narrowing.coarse
    rough = _from_few(groups, most, _brackets_of_stretches, "rough", parts=parts)
    few = graphs.each_chunk(_few_of_each, f"{STRETCHES}-few", [groups], [rough], most=most)
    arguments = [{"question": part} for part in parts]
    merge, label = partial(merged_coarsely, most=most), f"{STRETCHES}-brackets"
    return graphs.reduced_items(few, merge, _bracket_if_any, label, arguments, joined)


def stretches_of(question: Question, narrowing: Narrowing) -> list[Question]:
    """Split a question into one question for each stretch of ranks."""
    n = narrowing.stretches
    stretch = question.costs.stretch
    assert stretch is not None
    return [stretch(i, n) for i in range(n)]


def waiting(load: DaskArray, narrowing: Narrowing) -> DaskArray:
    """Sort the candidates of every chunk, and collect chunks in lists that wait for brackets."""
    few = load.npartitions <= narrowing.groups
    size = 1 if few else graphs.size_of_groups(load.npartitions, narrowing.groups)
    return graphs.grouped([load], size, _in_order, f"{STRETCHES}-waiting")


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
    counts = graphs.each_chunk(_counts_of, f"{STRETCHES}-counts", [waits])
    how: dict[str, Any] = {"together": together, "parts": parts}
    each = graphs.reduced(counts, Tally.merge, _by_counts, f"{STRETCHES}-cells", **how)
    for _ in range(narrowing.rounds):
        label, known = f"{STRETCHES}-candidates-few", [together, each]
        few = graphs.each_chunk(_few_candidates, label, [waits], known, most=narrowing.coarse)
        label, about = f"{STRETCHES}-narrower", _arguments_of_each(parts, each)
        each = graphs.reduced_items(few, merge, _narrower, label, about, list)
    left = graphs.each_chunk(_left, f"{STRETCHES}-left", [waits], [together, each])
    label, about = f"{STRETCHES}-found", _arguments_of_each(parts, each)
    return graphs.reduced_items(left, Tally.merge, _resolved, label, about, join)


def _arguments_of_each(parts: Sequence[Question], each: DaskArray) -> list[dict[str, Any]]:
    """Return the arguments for the last task of each stretch, which include all brackets."""
    return [{"question": part, "each": each, "i": i} for i, part in enumerate(parts)]


def _few_of_each(group: list[Cuts], rough: list[Brackets], *, most: int) -> list[Cuts]:
    return [
        merged_coarsely([own.around(cuts) for cuts in group], most, IN_GROUP_EVERY)
        for own in map(Ranges.around_all, rough)
    ]


def _brackets_of_stretches(cuts_of_groups: list[Cuts], parts: list[Question]) -> list[Brackets]:
    cuts = merge(cuts_of_groups)
    return [part.bracket(cuts) for part in parts]


def _in_order(parts: list[list[Gathered]]) -> list[Gathered]:
    return [_ordered(chunk) for chunk in itertools.chain(*parts)]


def _ordered(gathered: Gathered) -> Gathered:
    assert gathered.tally is not None
    tally = replace(gathered.tally, candidates=gathered.tally.candidates.ordered())
    return replace(gathered, tally=tally)


def _tallies(chunks: list[Gathered]) -> list[Tally]:
    return [chunk.tally for chunk in chunks if chunk.tally is not None]


def _counts_of(chunks: list[Gathered]) -> Tally:
    tallies = _tallies(chunks)
    none = Candidates(np.empty(0, tallies[0].candidates.dtype))
    return Tally.merge([replace(tally, candidates=none) for tally in tallies])


def _by_counts(tallies: list[Tally], together: Brackets, parts: list[Question]) -> list[Brackets]:
    """Narrow the joined brackets to those of each stretch, by the counts at every end."""
    whole = Tally.merge(tallies)
    counts = whole.below, whole.upto, whole.n_valid, whole.n_missing
    cuts = Cuts.of_chunk(together.ends, *counts)
    return [narrower(together, part.bracket(cuts)) for part in parts]


def _few_candidates(
    chunks: list[Gathered], together: Brackets, each: list[Brackets], *, most: int
) -> list[Cuts]:
    tallies = _of_stretches(chunks, together, each)
    return [cuts_of_tally(*pair, most) for pair in zip(each, tallies, strict=True)]


def _narrower(parts: list[Cuts], question: Question, each: list[Brackets], i: int) -> Brackets:
    return narrower(each[i], question.bracket(merge(parts)))


def _left(chunks: list[Gathered], together: Brackets, each: list[Brackets]) -> list[Tally]:
    return list(_of_stretches(chunks, together, each))


def _of_stretches(
    chunks: list[Gathered], together: Brackets, each: list[Brackets]
) -> Iterator[Tally]:
    """Yield the tally of some chunks together for each stretch.

    It follows from the tallies at the brackets of all stretches. All together are as large as all
    candidates.
    """
    tallies = _tallies(chunks)
    for own in each:
        yield Tally.merge([tally_by(together, tally, own) for tally in tallies])


def _resolved(parts: list[Tally], question: Question, each: list[Brackets], i: int) -> Any:
    return question.resolve(each[i], Tally.merge(parts))
