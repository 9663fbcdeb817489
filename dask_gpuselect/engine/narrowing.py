"""Narrow the cuts of very many chunks before one task aggregates them.

The cuts of 10,000 chunks of 1e8 elements are gigabytes, but only those around the wanted ranks
matter. Which these are is known only from all chunks together. So a few pivots of every chunk are
merged first: they prove ranges of values, and then the cuts around these ranges follow.

::

    cuts ──> groups ──some──> merge ──> ranges
                │                         │
                └──────────> left <───────┘ ──> merge ──> bracket

A group has the cuts of some chunks, unmerged, on a worker. If one preview of some pivots does not
narrow the ranges enough, the cuts that are left are the groups of the next preview. The final
bracket is the one that all pivots prove.

If there are so many chunks that even the relevant pivots are too many, there are no previews. The
cuts are merged in a tree that passes on few pivots, see `maths.coarse`, and the bracket is a little
wider. The expected counts of each chunk there are computed group by group:

::

    cuts ──> groups ──few──> merge ──> brackets
                │                         │
                └──────> expected <───────┘ ──> merge ──> both

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
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_gpuselect.engine import graphs
from dask_gpuselect.engine.first_loads import FirstLoad
from dask_gpuselect.engine.partials import Gathered, Proven, Resolved, expected_of, of_chunks
from dask_gpuselect.engine.questions import Question
from dask_gpuselect.engine.source import DaskArray, TaskRef
from dask_gpuselect.maths.cached import tally_by
from dask_gpuselect.maths.candidates import HostCandidates
from dask_gpuselect.maths.coarse import cuts_of_tally, merged_coarsely, narrower
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, Tally, merge, merge_any
from dask_gpuselect.maths.envelope import Ranges, thinned
from dask_gpuselect.maths.expected import Expected
from dask_gpuselect.maths.sizes import COARSE_EVERY, IN_GROUP_EVERY, Narrowing
from dask_gpuselect.maths.slots import every, over_slots
from dask_gpuselect.maths.stretches import (
    cuts_of_counts,
    cuts_of_stretches,
    joined,
    tally_of_stretch,
)

LABEL = "quantile-narrowing"

Column = list[Cuts | None]


def narrowed(begun: Sequence[FirstLoad]) -> DaskArray:
    """Narrow the cuts of some arrays to those around the wanted ranks: a bundle a group of chunks.

    Without a `Narrowing` of its own, an array keeps all of them.
    """
    narrowings, questions = [each.narrowing for each in begun], [each.question for each in begun]
    planned = [each for each in narrowings if each]
    are_groups = begun[0].order is not None
    most = 0 if are_groups else max(each.groups for each in planned)
    groups = _grouped([each.cuts for each in begun], most)
    n_groups = groups.npartitions
    rooms = [
        max(each.room // n_groups, 1) if each and each.previews else None for each in narrowings
    ]
    for _ in range(max(each.previews for each in planned)):
        name = f"{LABEL}-some-{tokenize(groups.name, rooms)}"
        some = graphs.each_chunk(_some_of_each, name, [groups], rooms=rooms)
        merge_each = partial(graphs.merge_columns, merge=merge_any)
        name = f"{LABEL}-ranges-{tokenize(some.name, questions)}"
        how = some, f"{LABEL}-merge", merge_each, _of_each, name
        ranges = graphs.reduced(*how, questions=questions, find="ranges")
        name = f"{LABEL}-kept-{tokenize(groups.name, ranges.name)}"
        groups = graphs.each_chunk(_around_each, name, [groups], [ranges])
    return groups


def _grouped(grids: Sequence[DaskArray], most: int) -> DaskArray:
    """Collect the cuts of each array in at most `most` groups of chunks.

    With 0, each cuts is a group of its own.
    """
    alone = len(grids) == 1
    grid = grids[0] if alone else graphs.bundled(grids, LABEL)
    size = graphs.size_of_groups(grid.npartitions, most) if most else 1
    name = f"{LABEL}-groups-{tokenize(grid.name, size)}"
    return graphs.grouped(grid, size, _column if alone else _columns, name)


def _column(cuts: Column) -> list[Column]:
    return [cuts]


def _columns(bundles: list[list[Column]]) -> list[Column]:
    return [list(itertools.chain(*parts)) for parts in zip(*bundles, strict=True)]


def _some_of_each(group: list[Column], *, rooms: Sequence[int | None]) -> list[Column]:
    return [
        [] if room is None else _some(column, room)
        for column, room in zip(group, rooms, strict=True)
    ]


def _some(column: Column, room: int) -> Column:
    """Merge the cuts of a group at about `room` evenly spaced pivots, at least one a chunk."""
    n_pivots = sum(len(each.pivots) for cuts in column if cuts is not None for each in every(cuts))
    step = max(-(-n_pivots // room), 1)
    return _merged([None if cuts is None else thinned(cuts, step) for cuts in column])


def _of_each(
    parts: list[list[Column]], questions: Sequence[Question], *, find: str
) -> list[Any | None]:
    """Apply the method `find` of each question to the cuts of its array, if there are any."""
    columns = graphs.merge_columns(parts, merge_any)
    return [
        getattr(question, find)(cuts) if (cuts := next(iter(column), None)) is not None else None
        for column, question in zip(columns, questions, strict=True)
    ]


def _around_each(group: list[Column], ranges: list[Ranges | None]) -> list[Column]:
    return [
        _merged([cuts if cuts is None or of is None else _around(of, cuts) for cuts in column])
        for column, of in zip(group, ranges, strict=True)
    ]


_around = over_slots(Ranges.around)


def _merged(column: Column) -> Column:
    return [merge_any(column)] if column else []


# --- In a tree of merges that hand on few pivots --------------------------------------------------


def in_tree(groups: DaskArray, begun: Sequence[FirstLoad], label: str) -> list[DaskArray]:
    """Find the brackets and expected counts of each question, by a tree of merges.

    Cuts that are too many are merged coarsely, at some of their pivots. `groups` are those that
    `narrowed` makes.
    """
    narrowings, questions = [each.narrowing for each in begun], [each.question for each in begun]
    mosts = [None if each is None or each.previews else each.coarse for each in narrowings]
    merge_coarsely = partial(_coarse_of_each, mosts=mosts)
    few = graphs.each_chunk(
        _coarse_of_group, f"{LABEL}-few-{tokenize(groups.name, mosts)}", [groups], mosts=mosts
    )
    name = f"{LABEL}-brackets-{tokenize(few.name, questions)}"
    how = few, f"{LABEL}-few-merge", merge_coarsely, _of_each, name
    brackets = graphs.reduced(*how, questions=questions, find="bracket")
    return proven_by(groups, brackets, begun, label)


def proven_by(
    groups: DaskArray, ranges: DaskArray, begun: Sequence[FirstLoad], label: str
) -> list[DaskArray]:
    """Add the expected counts of its chunks to the brackets of each question.

    `ranges` is one list of the brackets of all questions.
    """
    token = tokenize(groups.name, ranges.name)
    n_chunks = [math.prod(each.grid) for each in begun]
    expected = graphs.each_chunk(
        _expected_of_each, f"{LABEL}-expects-{token}", [groups], [ranges], n_chunks=n_chunks
    )
    finishes = [
        graphs.Finish(
            _proven,
            f"{label}-bracket-{tokenize(token, i, each.grid, each.turns)}",
            {
                "ranges": TaskRef((ranges.name,)),
                "which": i,
                "numblocks": each.grid,
                "turns": each.turns,
            },
        )
        for i, each in enumerate(begun)
    ]
    return graphs.finished_together(expected, f"{LABEL}-expects-merge", merge, finishes)


def _coarse_of_group(
    group: list[Column], *, mosts: Sequence[int | None], every: int = IN_GROUP_EVERY
) -> list[Column]:
    return [_coarse(column, most, every) for column, most in zip(group, mosts, strict=True)]


def _coarse_of_each(parts: list[list[Column]], mosts: Sequence[int | None]) -> list[Column]:
    columns = [list(itertools.chain(*each)) for each in zip(*parts, strict=True)]
    return _coarse_of_group(columns, mosts=mosts, every=COARSE_EVERY)


def _coarse(column: Column, most: int | None, every: int) -> Column:
    """Merge cuts exactly, or at about `most` of their pivots."""
    some = [cuts for cuts in column if cuts is not None]
    if most is None or not some:
        return _merged(column)
    return [merged_coarsely(some, most, every)]


def _expected_of_each(
    group: list[Column], ranges: list[Brackets | None], *, n_chunks: Sequence[int]
) -> list[list[Expected]]:
    columns: list[list[Expected]] = []
    for column, brackets, n in zip(group, ranges, n_chunks, strict=True):
        cuts = merge_any(column)
        if brackets is None or cuts is None:
            columns.append([])
        else:
            columns.append([expected_of(cuts, brackets, n)])
    return columns


def _proven(
    parts: list[Expected],
    ranges: list[Brackets | None],
    which: int,
    numblocks: tuple[int, ...],
    turns: IntArray | None,
) -> Proven | None:
    brackets = ranges[which]
    if brackets is None:
        return None  # a pilot has the answer
    expected = merge(parts)
    if turns is not None:
        expected = of_chunks(expected, turns)
    return Proven(brackets, expected, numblocks)


# --- Candidates that wait -------------------------------------------------------------------------


def narrowed_candidates(
    load: DaskArray, bracket: DaskArray, question: Question, narrowing: Narrowing, label: str
) -> tuple[DaskArray, DaskArray]:
    """Narrow what a load has gathered, and its brackets, before one task merges all.

    This is done for groups of chunks, where the candidates are. `bracket` is a `Proven` of the
    second load, or a `Resolved` of the third.
    """
    size = graphs.size_of_groups(load.npartitions, narrowing.groups)
    if load.npartitions > narrowing.groups:
        name = f"{label}-candidates-groups-{tokenize(load.name, size)}"
        load = graphs.grouped(load, size, Gathered.merge, name)
    most = narrowing.coarse
    for _ in range(narrowing.rounds):
        token = tokenize(load.name, bracket.name, most)
        few = graphs.each_chunk(
            _cuts_of_candidates, f"{label}-candidates-few-{token}", [load], [bracket], most=most
        )
        merge = partial(_merged_coarsely, most=most)
        narrower = graphs.reduced(
            few,
            f"{label}-candidates-few-merge",
            merge,
            _narrower_bracket,
            f"{label}-narrower-{token}",
            known=TaskRef((bracket.name,)),
            question=question,
        )
        load = graphs.each_chunk(
            _narrower_tally, f"{label}-candidates-narrower-{token}", [load], [bracket, narrower]
        )
        bracket = narrower
    return load, bracket


Known = Proven | Resolved


def _cuts_of_candidates(gathered: Gathered, known: Known, *, most: int) -> Cuts | None:
    if gathered.tally is None or known.brackets is None:
        return None  # a third load was not needed
    return cuts_of_tally(known.brackets, gathered.tally, most)


def _merged_coarsely(parts: list[Cuts | None], *, most: int) -> Cuts | None:
    some = [cuts for cuts in parts if cuts is not None]
    return merged_coarsely(some, most) if some else None


def _narrower_bracket(parts: list[Cuts | None], known: Known, question: Question) -> Known:
    cuts = merge_any(parts)
    return known if cuts is None else known.narrower(question, cuts)


def _narrower_tally(gathered: Gathered, known: Known, wanted: Known) -> Gathered:
    if gathered.tally is None or known.brackets is None or wanted.brackets is None:
        return gathered
    tally = tally_by(known.brackets, gathered.tally, wanted.brackets)
    return replace(gathered, tally=tally)


# --- Very many ranks ------------------------------------------------------------------------------

# They are split into stretches that each have a tree of merges of their own; see `maths.stretches`.
#
#     groups ──few──> merge ──> where each stretch is
#        │                           │
#        └──few of each stretch <────┘ ──> merge, for each stretch ──> brackets of all
#
# Candidates wait in groups of chunks, unmerged. Each round of narrowing works as the second line:
# each group returns its cuts at some of the candidates of each stretch. So no task holds the cuts
# or candidates of all chunks, and one task for each group serves all stretches.

STRETCHES = "quantile-stretches"
MERGE = f"{STRETCHES}-merge"


def brackets_of_stretches(groups: DaskArray, question: Question, narrowing: Narrowing) -> DaskArray:
    """Find the brackets of all stretches of ranks, joined, as a list of one item.

    Parameters
    ----------
    groups : dask array
        The groups that `narrowed` makes for one array.
    question : Question
    narrowing : Narrowing
    """
    parts = stretches_of(question, narrowing)
    token = tokenize(groups.name, parts, narrowing)
    merge = partial(merged_coarsely, most=narrowing.coarse)
    rough = graphs.each_chunk(
        _few_of_all, f"{STRETCHES}-rough-{token}", [groups], most=narrowing.coarse
    )
    name = f"{STRETCHES}-ranges-{token}"
    ranges = graphs.reduced(rough, MERGE, merge, _ranges_of_stretches, name, parts=parts)
    few = graphs.each_chunk(
        _few_of_each, f"{STRETCHES}-few-{token}", [groups], [ranges], most=narrowing.coarse
    )
    arguments = [{"question": part} for part in parts]
    how = MERGE, merge, _bracket, f"{STRETCHES}-brackets-{token}"
    return graphs.reduced_items(few, *how, arguments, _joined)


def stretches_of(question: Question, narrowing: Narrowing) -> list[Question]:
    """Split a question into one question for each stretch of ranks."""
    n = narrowing.stretches
    return [question.stretch(i, n) for i in range(n)]


def waiting(load: DaskArray, narrowing: Narrowing) -> DaskArray:
    """Sort the candidates of every chunk, and collect chunks in lists that wait for brackets."""
    few = load.npartitions <= narrowing.groups
    size = 1 if few else graphs.size_of_groups(load.npartitions, narrowing.groups)
    name = f"{STRETCHES}-waiting-{tokenize(load.name, size)}"
    return graphs.grouped(load, size, _in_order, name)


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
    counts = graphs.each_chunk(_counts_of, f"{STRETCHES}-counts-{token}", [waits])
    each = graphs.reduced(
        counts,
        f"{STRETCHES}-counts-merge",
        Tally.merge,
        _by_counts,
        f"{STRETCHES}-cells-{token}",
        together=TaskRef((together.name,)),
        parts=parts,
    )
    for _ in range(narrowing.rounds):
        token = tokenize(waits.name, each.name, parts, narrowing)
        few = graphs.each_chunk(
            _few_candidates,
            f"{STRETCHES}-candidates-few-{token}",
            [waits],
            [together, each],
            most=narrowing.coarse,
        )
        arguments = _arguments_of_each(parts, each)
        name = f"{STRETCHES}-narrower-{token}"
        each = graphs.reduced_items(few, MERGE, merge, _narrower, name, arguments, list)
    token = tokenize(waits.name, each.name, parts)
    left = graphs.each_chunk(_left, f"{STRETCHES}-left-{token}", [waits], [together, each])
    arguments = _arguments_of_each(parts, each)
    name = f"{STRETCHES}-found-{token}"
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


def _ranges_of_stretches(cuts_of_groups: list[Cuts], parts: list[Question]) -> list[Ranges]:
    cuts = merge(cuts_of_groups)
    return [part.ranges(cuts) for part in parts]


def _bracket(parts: list[Cuts], question: Question) -> Brackets:
    return question.bracket(merge(parts))


def _joined(each: list[Brackets]) -> list[Brackets]:
    return [joined(each)]


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
    tallies = _tallies(chunks)
    return [tally_of_stretch(together, tallies, own) for own in each]


def _resolved(parts: list[Tally], question: Question, each: list[Brackets], i: int) -> Any:
    return question.resolve(each[i], Tally.merge(parts))
