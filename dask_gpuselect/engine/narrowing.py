"""Cuts of very many chunks, narrowed before they come to one place.

The cuts of 10,000 chunks of 1e8 elements are gigabytes, and few of them matter: those around the
wanted ranks. Which these are is known only from all chunks together. So some of the pivots of every
chunk go ahead: they prove ranges of values, and then the cuts around these follow.

::

    cuts ──> groups ──some──> merge ──> ranges
                │                         │
                └──────────> kept <───────┘ ──> merge ──> bracket

A group holds the cuts of some chunks, as they are, on a worker. Where one look at some pivots does
not narrow the ranges enough, what is kept are the groups of the next look. The bracket is the one
that all pivots prove.

A task that keeps waits for all chunks and, apart from that, for its own: `dask.order` takes time in
proportion to the number of groups times that of chunks. So there are at most `sizes.MOST_GROUPS`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

from dask.base import tokenize

from dask_gpuselect.engine import graphs
from dask_gpuselect.engine.questions import Question
from dask_gpuselect.engine.reports import merge_cuts
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.cuts import Cuts
from dask_gpuselect.maths.envelope import Ranges, thinned
from dask_gpuselect.maths.sizes import Narrowing

LABEL = "quantile-narrowing"

Column = list[Cuts | None]


def narrowed(
    grids: Sequence[DaskArray],
    questions: Sequence[Question],
    narrowings: Sequence[Narrowing | None],
    *,
    are_groups: bool = False,
) -> DaskArray:
    """The cuts of some arrays around what is asked of each: a bundle for each group of chunks.

    Parameters
    ----------
    grids : sequence of dask arrays
        Of cuts, one for each array.
    questions : sequence of Question
    narrowings : sequence of Narrowing or None
        None where all pivots are wanted.
    are_groups : bool
        Whether the cuts of so many chunks are together already.
    """
    planned = [each for each in narrowings if each]
    groups = _grouped(grids, 0 if are_groups else max(each.groups for each in planned))
    n_groups = groups.npartitions
    rooms = [each and max(each.room // n_groups, 1) for each in narrowings]
    for _ in range(max(each.looks for each in planned)):
        name = f"{LABEL}-some-{tokenize(groups.name, rooms)}"
        some = graphs.each_chunk(_some_of_each, name, [groups], rooms=rooms)
        merge = partial(graphs.merge_columns, merge=merge_cuts)
        name = f"{LABEL}-ranges-{tokenize(some.name, questions)}"
        how: dict[str, Any] = {"questions": list(questions)}
        ranges = graphs.reduced(some, f"{LABEL}-merge", merge, _ranges_of_each, name, **how)
        name = f"{LABEL}-kept-{tokenize(groups.name, ranges.name)}"
        groups = graphs.each_chunk(_kept_of_each, name, [groups], [ranges])
    return groups


def _grouped(grids: Sequence[DaskArray], most: int) -> DaskArray:
    """The cuts of some chunks, for each of at most so many groups: a list for each array. 0 for
    as many groups as there are cuts."""
    alone = len(grids) == 1
    grid = grids[0] if alone else graphs.bundled(grids, LABEL)
    every = graphs.split_every(None, graphs.MERGE_EVERY)
    size = max(every, -(-grid.npartitions // most)) if most else 1
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
    """The cuts of a group at about so many pivots, evenly spaced in each chunk, with one of each
    at least."""
    step = max(-(-sum(len(cuts.pivots) for cuts in column if cuts is not None) // room), 1)
    return _merged([None if cuts is None else thinned(cuts, step) for cuts in column])


def _ranges_of_each(
    parts: list[list[Column]], questions: Sequence[Question]
) -> list[Ranges | None]:
    columns = graphs.merge_columns(parts, merge_cuts)
    return [
        question.ranges(cuts) if (cuts := next(iter(column), None)) is not None else None
        for column, question in zip(columns, questions, strict=True)
    ]


def _kept_of_each(group: list[Column], ranges: list[Ranges | None]) -> list[Column]:
    return [
        _merged([cuts if cuts is None or of is None else of.around(cuts) for cuts in column])
        for column, of in zip(group, ranges, strict=True)
    ]


def _merged(column: Column) -> Column:
    return [merge_cuts(column)] if column else []
