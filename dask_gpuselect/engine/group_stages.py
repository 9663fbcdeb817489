"""Stages that find order statistics of groups of all elements in two loads.

::

    source ──copy──> cuts of runs ──> brackets of some groups ──┐
       │                          ──> those of others ──────────┴──> all brackets
       └────copy, waits for these──> tallies ──> elements of some groups ──┬──> answer
                                             ──> those of others ──────────┘

If there are many groups, several tasks find their brackets, each for a range of groups, so that
none gathers more than `root-limit`. If few groups have too many cuts for that, the cuts are merged
in a tree, and candidates wait. If one task finds all brackets, the first load may cache what the
second would ask for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_gpuselect import kernels
from dask_gpuselect.engine.boards import Cached, Limits, board
from dask_gpuselect.engine.columns import Columns, Tasks
from dask_gpuselect.engine.group_elements import (
    MOST_CACHED_GROUPS,
    GroupedElements,
    Named,
    codes_of_names,
    renumbered,
)
from dask_gpuselect.engine.keeping import FirstPartial, limits, room_for
from dask_gpuselect.engine.lane_plans import LanePlan
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.engine.stages import LaneRequest, Stage, dividing, further_stages
from dask_gpuselect.kernels.companions import ChunkColumn
from dask_gpuselect.maths.cached import cell_tally_by
from dask_gpuselect.maths.coarse import cuts_of_cells, merged_coarsely, narrower_slots
from dask_gpuselect.maths.cuts import Brackets, Cuts, IntArray
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.labels import codes_among
from dask_gpuselect.maths.lane_cuts import RanksOfLanes, join
from dask_gpuselect.maths.ragged import CellTally
from dask_gpuselect.maths.sizes import COARSE_EVERY, Narrowing, pivot_share

# Number of parts of a group that are read before the first guess, if there are enough parts. A part
# is read again if the guess of any group is wrong. That happened among 18 groups when two parts
# made the first guess.
FIRST = 8
# With fewer elements of a group in a part, on average, nothing is cached: 60 groups of 2e5 elements
# took 2.5× the time of two loads that cost nothing, and 1.6× where a load took 50 ms.
LEAST_OF_GROUP = 1 << 12


def stages_of_groups(x: DaskArray, request: LaneRequest, plan: LanePlan, token: str) -> list[Stage]:
    """Find the brackets of all groups, and their elements; then make the further load."""
    question: Any = request.question
    label, edges, narrowing = request.label, question.edges(plan.n_roots), plan.narrowing
    n_roots = 1 if edges is None else plan.n_roots
    reduce_cuts = reduce_tallies = dividing(n_roots)
    if narrowing is not None:
        how: dict[str, Any] = {"narrowing": narrowing, "n_roots": n_roots}
        reduce_cuts = partial(few_cuts, **how)
        reduce_tallies = partial(few_candidates, ranks=question.ranks, **how)
    first = Stage(
        name="group-cuts",
        measure=question.cuts,
        arguments={"edges": edges},
        reduce=reduce_cuts,
        settle=question.bracketed if edges is None else _bracketed_among(question, edges),
        finds="bracket",
        join=_joined,
    )
    second = Stage(
        name=f"{label}-candidates",
        measure=question.tally,
        arguments={"edges": edges},
        reduce=reduce_tallies,
        settle=question.order_statistics,
        finds="order",
        join=partial(_answered, request=request),
    )
    if plan.cached_bytes:
        about = {"limits": limits(), "board_name": f"group-reports-{token}"}
        first = replace(
            first,
            name="group-reports",
            measure=partial(first_of_groups, question=question),
            arguments={**about, "n_parts": len(plan.parts)},
            caches=True,
        )
        second = replace(second, by_cache=cell_tally_by_cache)
    return [first, second, *further_stages(request)]


def _bracketed_among(question: GroupedElements, edges: Sequence[int]) -> tuple[Any, ...]:
    """Return functions that find the brackets of the groups between two edges each."""
    sizes = (last - first for first, last in itertools.pairwise(edges))
    return tuple(partial(question.bracketed, n_groups=n) for n in sizes)


def _joined(parts: Sequence[Named]) -> Named:
    """Join the results about the groups of several tasks, which are in order."""
    if len(parts) == 1:
        return parts[0]
    return Named(parts[0].names, join([part.value for part in parts]))


def _answered(parts: Sequence[Named], *, request: LaneRequest) -> Any:
    """Return the answer about all groups, or what a further load needs to know of them."""
    return request.resolved(_joined(parts))


# --- Cache of the first load ----------------------------------------------------------------------

# Each group is treated as an array of its own, whose chunks are the parts: it has a board, and its
# elements are cached as those of an array. A part is not read again if its cache covers the
# brackets of all its groups.


def first_of_groups(
    column: ChunkColumn,
    known: None,
    *,
    number: int,
    question: GroupedElements,
    n_parts: int,
    limits: Limits,
    board_name: str,
) -> FirstPartial:
    """Measure the runs in a part, by its number, and cache what guesses ask for."""
    named = question.cuts(column, known, edges=None)
    names, cuts = named.names, named.value
    n_groups = np.count_nonzero(cuts.sizes)
    if n_groups > MOST_CACHED_GROUPS or cuts.n_valid.sum() < n_groups * LEAST_OF_GROUP:
        return FirstPartial(named, None, None)
    keep = partial(_bracket_of_group, ranks=question.ranks)
    first = max(min(FIRST, n_parts // FIRST), 2)
    how = keep, n_parts, pivot_share(question.of_group.n_answers), first, False
    boards: list[Any] = []
    guessed: dict[int, Brackets] = {}
    expected = 0.0
    for group, own in cuts.each(np.unique(cuts.slots[cuts.sizes > 0])):
        boards.append(board(f"{board_name}-{group if names is None else names[group]}", *how))
        guess = boards[-1].put(number, own)
        if guess.brackets is not None:
            guessed[group] = guess.brackets
            expected += guess.share * int(own.n_valid[0])
    if len(guessed) < len(boards) or not boards:
        return FirstPartial(named, None, boards)
    nothing = Brackets(cuts.pivots[:0], np.zeros(1, np.bool_))
    slots = range(question.n_groups_of(names))
    brackets = Brackets.of_each([guessed.get(slot, nothing) for slot in slots])
    about = column.chunks, column.dtype, codes_of_names(names)
    tally = kernels.group_tally(*about, brackets)
    if len(tally.candidates) > room_for(expected):
        return FirstPartial(named, None, boards)
    return FirstPartial(named, Cached.of(brackets, tally, limits), boards)


def _bracket_of_group(cuts: Cuts, ranks: RanksOfLanes) -> Brackets:
    """Return the brackets at which a group with these cuts is cached."""
    n = np.maximum(cuts.n_valid.sum(keepdims=True), 1)
    lower, upper = (np.asarray(each, np.int64).ravel() for each in ranks(n))
    return find_brackets(cuts, lower, upper)


def cell_tally_by_cache(first: FirstPartial, proven: Named) -> CellTally | None:
    """Return the tally of a part from its cache; None if the part has to be read."""
    cached, names = first.cached, first.cuts.names
    if cached is None:
        return None
    among: IntArray = np.arange(cached.brackets.n_slots)
    if names is not None:
        among = codes_among(names, proven.names).astype(np.int64)
    return cell_tally_by(cached.brackets, cached.whole(), proven.value.brackets, among)


# --- Narrowing of few large groups ----------------------------------------------------------------

# A lot is a set of neighbouring parts. Its candidates wait on its worker. See `maths.coarse`, and
# `narrowing` for elements without groups.


def few_cuts(
    columns: Columns, cuts: Tasks, known: None, *, narrowing: Narrowing, n_roots: int
) -> tuple[Tasks, None]:
    """Merge the cuts of all parts until they are few, for each aggregating task."""
    if n_roots == 1:
        merge: Callable[..., Any] = partial(_merged_cuts, most=narrowing.coarse)
        return columns.merge(merge, cuts, COARSE_EVERY), known
    merge = partial(merged_coarsely, most=narrowing.coarse)
    lots = columns.lots(partial(_each_root, merge=merge), cuts, narrowing.lots, COARSE_EVERY)
    return columns.merge(merge, columns.divide(lots, n_roots), COARSE_EVERY), known


def few_candidates(
    columns: Columns,
    tallies: Tasks,
    brackets: Tasks,
    *,
    narrowing: Narrowing,
    n_roots: int,
    ranks: RanksOfLanes,
) -> tuple[Tasks, Tasks]:
    """Narrow the tallies of lots of parts and their brackets, where the candidates are.

    Return both for every aggregating task.
    """
    merge = CellTally.merge if n_roots == 1 else partial(_each_root, merge=CellTally.merge)
    lots = columns.lots(merge, tallies, narrowing.groups, COARSE_EVERY)
    load, most = columns.divide(lots, n_roots), narrowing.coarse
    for _ in range(narrowing.rounds):
        few = columns.each(_few_of, "quantile-groups-few", load, [brackets], most=most)
        few = columns.merge(partial(merged_coarsely, most=most), few, COARSE_EVERY)
        name = f"quantile-groups-narrower-{tokenize(few.name, brackets.name)}"
        narrower = columns.settle(partial(_narrower, ranks=ranks), name, few, brackets)
        load = columns.each(_narrower_tally, "quantile-groups-left", load, [brackets, narrower])
        brackets = narrower
    return load, brackets


def _merged_cuts(partials: Sequence[Named], *, most: int) -> Named:
    names, cuts = renumbered(partials)
    return Named(names, merged_coarsely(cuts, most))


def _each_root(partials: Sequence[Sequence[Any]], *, merge: Callable[..., Any]) -> list[Any]:
    """Merge the items of some lists that belong to the same aggregating task."""
    return [merge(list(items)) for items in zip(*partials, strict=True)]


def _few_of(tally: CellTally, known: Named, *, most: int) -> Cuts:
    return cuts_of_cells(known.value.brackets, tally, most)


def _narrower(cuts: Sequence[Cuts], known: Named, *, ranks: RanksOfLanes) -> Named:
    return Named(known.names, narrower_slots(known.value, Cuts.merge(cuts), ranks))


def _narrower_tally(tally: CellTally, known: Named, narrower: Named) -> CellTally:
    old, new = known.value.brackets, narrower.value.brackets
    narrowed = cell_tally_by(old, tally, new, np.arange(old.n_slots))
    assert narrowed is not None
    return narrowed
