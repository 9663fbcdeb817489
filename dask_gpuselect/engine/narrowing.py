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
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dask.base import tokenize

from dask_gpuselect.engine import graphs
from dask_gpuselect.engine.first_loads import FirstLoad
from dask_gpuselect.engine.partials import Gathered, Proven, Resolved, expected_of, of_chunks
from dask_gpuselect.engine.questions import Question
from dask_gpuselect.engine.source import DaskArray, TaskRef
from dask_gpuselect.maths.cached import tally_by
from dask_gpuselect.maths.coarse import cuts_of_tally, merged_coarsely
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray, merge, merge_any
from dask_gpuselect.maths.envelope import Ranges, thinned
from dask_gpuselect.maths.expected import Expected
from dask_gpuselect.maths.sizes import COARSE_EVERY, IN_GROUP_EVERY, Narrowing
from dask_gpuselect.maths.slots import every, over_slots

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
        how = some, f"{LABEL}-merge", merge_each, _ranges_of_each, name
        ranges = graphs.reduced(*how, questions=questions)
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


def _ranges_of_each(
    parts: list[list[Column]], questions: Sequence[Question]
) -> list[Ranges | None]:
    columns = graphs.merge_columns(parts, merge_any)
    return [
        question.ranges(cuts) if (cuts := next(iter(column), None)) is not None else None
        for column, question in zip(columns, questions, strict=True)
    ]


def _around_each(group: list[Column], ranges: list[Ranges | None]) -> list[Column]:
    return [
        _merged([cuts if cuts is None or of is None else _around(of, cuts) for cuts in column])
        for column, of in zip(group, ranges, strict=True)
    ]


@over_slots
def _around(ranges: Ranges, cuts: Cuts) -> Cuts:
    return ranges.around(cuts)


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
    how = few, f"{LABEL}-few-merge", merge_coarsely, _brackets_of_each, name
    return proven_by(groups, graphs.reduced(*how, questions=questions), begun, label)


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


def _brackets_of_each(
    parts: list[list[Column]], questions: Sequence[Question]
) -> list[Brackets | None]:
    columns = graphs.merge_columns(parts, merge_any)
    return [
        question.bracket(cuts) if (cuts := next(iter(column), None)) is not None else None
        for column, question in zip(columns, questions, strict=True)
    ]


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
