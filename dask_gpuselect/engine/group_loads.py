"""Two loads that find order statistics of groups: of all elements, and of the rows of tables.

::

    source ──copy──> cuts of runs ──> brackets of some groups ──┐
       │                          ──> those of others ──────────┴──> all brackets
       └────copy, waits for these──> tallies ──> elements of some groups ──┬──> answer
                                             ──> those of others ──────────┘

If there are many groups, several tasks find their brackets, each for a range of groups, so that
none gathers more than `root-limit`. If few groups have too many cuts for that, the cuts are merged
in a tree, and candidates wait: see `narrowing`. If one task finds all brackets, the first load may
cache what the second would ask for.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from dask.core import flatten

from dask_gpuselect import kernels
from dask_gpuselect.engine import graphs
from dask_gpuselect.engine.boards import Cached, Limits, board
from dask_gpuselect.engine.columns import Columns, LaneRequest, Tasks, settled
from dask_gpuselect.engine.group_elements import (
    MOST_CACHED_GROUPS,
    GroupedElements,
    Named,
    coded,
    renumbered,
)
from dask_gpuselect.engine.keeping import FirstPartial, limits, room_for
from dask_gpuselect.engine.lane_plans import LanePlan, room_of_groups
from dask_gpuselect.engine.marks import KnownChunks
from dask_gpuselect.engine.narrowing import in_rounds
from dask_gpuselect.engine.reads import Reader
from dask_gpuselect.engine.source import DaskArray, TaskRef
from dask_gpuselect.kernels.companions import ChunkColumn
from dask_gpuselect.maths.cached import cell_tally_by
from dask_gpuselect.maths.coarse import cuts_of_cells, merged_coarsely, narrower_slots
from dask_gpuselect.maths.cuts import Brackets, Cuts
from dask_gpuselect.maths.labels import codes_among
from dask_gpuselect.maths.lane_cuts import join
from dask_gpuselect.maths.ragged import CellTally, SlotRoom, Wanted
from dask_gpuselect.maths.sizes import pivot_share

logger = logging.getLogger("dask_gpuselect")

# Number of parts of a group that are read before the first guess, if there are enough parts. A part
# is read again if the guess of any group is wrong. That happened among 18 groups when two parts
# made the first guess.
FIRST = 8
# With fewer elements of a group in a part, on average, nothing is cached: 60 groups of 2e5 elements
# took 2.5× the time of two loads that cost nothing, and 1.6× where a load took 50 ms.
# With weights a guess takes 1.2 ms for each group of a part, which is two loads of 12,000 elements.
LEAST_OF_GROUP, LEAST_WEIGHED = 1 << 12, 1 << 16


def loads_of_groups(columns: Columns, request: LaneRequest, plan: LanePlan, token: str) -> Tasks:
    """Find the order statistics of all groups; answer by them if no further load follows."""
    question: Any = request.question
    label, narrowing, cached, merge = request.label, plan.narrowing, None, None
    edges = question.edges(plan.n_roots)
    each = [question]
    if edges is not None:
        each = [question.of_so_many(last - first) for first, last in itertools.pairwise(edges)]
    n = len(each)
    room = room_of_groups(columns.x, question, len(plan.parts))
    if n > 1 and room is not None and max(np.diff(edges)) > room.slots:
        room = None  # for all of these tasks alike
    if plan.cached_bytes:
        first: Any = partial(first_of_groups, question=question)
        about: dict[str, Any] = {"limits": limits(), "board_name": f"group-reports-{token}"}
        about |= {"n_parts": len(plan.parts), "is_numbered": True, "room": room}
        cached = measured(columns, first, "group-reports", **about)
        cuts = graphs.each_chunk(_cuts_of, "group-cuts", [cached])
    else:
        cuts = measured(columns, question.cuts, "group-cuts", edges=edges)
    if narrowing is not None:
        merge = partial(_merged_cuts, most=narrowing.coarse)
        if n > 1:
            cuts = _in_lots(cuts, narrowing.lots, _merging(merge, n))
    name = f"{label}-bracket-each"
    brackets = [
        aggregated(columns, partial(own.bracketed, room=room), load, label=name, merge=merge)
        for own, load in zip(each, divided(cuts, n), strict=True)
    ]
    known = together(columns, brackets, _joined, f"{label}-bracket")
    name = f"{label}-candidates"
    if cached is None:
        load = measured(columns, question.tally, name, known, edges=edges)
    else:
        load = _second_of_groups(columns, cached, known, question.tally, name)
    if narrowing is not None:
        load = _in_lots(load, narrowing.groups, _merging(CellTally.merge, n))
    loads = [*zip(divided(load, n), brackets, strict=True)]
    if narrowing is not None:
        by = _few_of, partial(_narrower, wanted=question.wanted), _left
        loads = [in_rounds(*pair, narrowing, label, *by) for pair in loads]
    select = partial(aggregated, columns, question.order_statistics, label=f"{label}-order-each")
    orders = [select(*pair) for pair in loads]
    answer = partial(_answered, request=request)
    if question.further is None:
        return columns.known(together(columns, orders, answer, label, request))
    return columns.known(together(columns, orders, answer, f"{label}-order"))


def _joined(parts: Sequence[Named]) -> Named:
    """Join the results about the groups of several tasks, which are in order."""
    if len(parts) == 1:
        return parts[0]
    return Named(parts[0].names, join([part.value for part in parts]))


def _answered(parts: Sequence[Named], *, request: LaneRequest) -> Any:
    """Return the answer about all groups, or what a further load needs to know of them."""
    return request.resolved(_joined(parts))


# --- One load, aggregated by several tasks --------------------------------------------------------


def measured(
    columns: Columns,
    measure: Callable[..., Any],
    name: str,
    known: DaskArray | None = None,
    **arguments: Any,
) -> DaskArray:
    """Measure each part of the only column, in a first load or in one that waits for `known`."""
    load, brackets = (1, None) if known is None else (2, columns.known(known))
    return columns.objects(columns.measured(measure, name, load, brackets, **arguments))


def divided(load: DaskArray, n: int) -> list[DaskArray]:
    """Divide partial results that are lists of `n` items; return them unchanged if `n` is 1."""
    if n == 1:
        return [load]
    return [graphs.each_chunk(_item, f"quantile-divided-{i}", [load], i=i) for i in range(n)]


def _item(partials: KnownChunks, *, i: int) -> KnownChunks:
    return KnownChunks(partials.value[i], partials.marks)


def aggregated(
    columns: Columns,
    function: Callable[..., Any],
    load: DaskArray,
    known: DaskArray | None = None,
    *,
    label: str,
    merge: Callable[..., Any] | None = None,
) -> DaskArray:
    """Apply ``function(partials, known)`` to all partial results, in a tree of merges if given."""
    place_of = columns.place_of(columns.places[0])
    how: dict[str, Any] = {"function": function, "known": known, "place_of": place_of}
    if merge is None:
        return graphs.in_one_place([load], settled, label, **how)
    return graphs.reduced(load, _merging(merge), settled, label, **how)


def together(
    columns: Columns,
    parts: Sequence[DaskArray],
    join: Callable[..., Any],
    label: str,
    request: LaneRequest | None = None,
) -> DaskArray:
    """Apply ``join(values)`` to the results of several tasks, which have read the same chunks."""
    (place,) = columns.places
    index = () if request is None else request.shape.answer_place(place)
    how = {"join": join, "block": columns.block(place), "request": request}
    return graphs.in_one_place(parts, _together, label, index, **how)


def _together(
    parts: list[KnownChunks],
    join: Callable[..., Any],
    block: tuple[int, ...],
    request: LaneRequest | None,
) -> Any:
    value, marks = join([part.value for part in parts]), parts[0].marks
    return KnownChunks(value, marks) if request is None else request.made(value, marks, block)


def _merging(merge: Callable[..., Any], n: int = 1) -> Callable[..., Any]:
    """Return a function that merges partial results, or lists of `n` items one by one."""
    return partial(KnownChunks.merge, merge if n == 1 else partial(_each_root, merge=merge))


def _each_root(partials: Sequence[Sequence[Any]], *, merge: Callable[..., Any]) -> list[Any]:
    return [merge(list(items)) for items in zip(*partials, strict=True)]


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
    room: SlotRoom | None,
    limits: Limits,
    board_name: str,
) -> FirstPartial:
    """Measure the runs in a part, by its number, and cache what guesses ask for."""
    named = question.cuts(column, known, edges=None)
    names, cuts = named.names, named.value
    n_groups = int(np.count_nonzero(cuts.sizes))
    least = LEAST_WEIGHED if question.weighs else LEAST_OF_GROUP
    if n_groups > MOST_CACHED_GROUPS or cuts.n_valid.sum() < n_groups * least:
        return FirstPartial(named, None, None)
    wanted = question.wanted
    is_whole = wanted.asks_whole(n_groups, room)
    keep = partial(_bracket_of_group, wanted=wanted, is_whole=is_whole)
    board_name = f"{board_name}-{is_whole}"
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
    nothing = keep(cuts.of_chunks(np.arange(0)))
    slots = range(question.n_groups_of(names))
    brackets = Brackets.of_each([guessed.get(slot, nothing) for slot in slots])
    given = coded(column.chunks, names)
    tally = kernels.group_tally(given, column.dtype, brackets, sums=is_whole)
    if len(tally.candidates) > room_for(expected):
        return FirstPartial(named, None, boards)
    return FirstPartial(named, Cached.of(brackets, tally, limits), boards)


def _bracket_of_group(cuts: Cuts, *, wanted: Wanted, is_whole: bool) -> Brackets:
    """Return the brackets at which a group with these cuts is cached."""
    if is_whole:
        brackets: Brackets = wanted.whole.keep(cuts)
        return brackets
    return wanted.ranges(cuts, cuts.n_valid.sum(keepdims=True, dtype=np.int64))


def _cuts_of(first: KnownChunks) -> KnownChunks:
    return KnownChunks(first.value.cuts, first.marks)


def _second_of_groups(
    columns: Columns, cached: DaskArray, known: DaskArray, measure: Callable[..., Any], label: str
) -> DaskArray:
    """Tally each part by its cache, or load it if its cache does not cover the brackets."""
    calls = [(TaskRef(key), TaskRef((known.name,))) for key in flatten(cached.__dask_keys__())]
    read = columns.reading(partial(measure, edges=None))
    message = f"{label}: one of {len(calls)} parts is read twice"
    function = partial(_known_or_read, measure=read, message=message)
    return columns.read_if_needed(function, label, [cached, known], calls)


def _known_or_read(
    readers: Sequence[Reader],
    first: KnownChunks,
    known: KnownChunks,
    *,
    measure: Callable[..., KnownChunks],
    message: str,
) -> KnownChunks:
    cached, names, proven = first.value.cached, first.value.cuts.names, known.value
    # If the groups in a part seemed small, the cache has no sums.
    if cached is not None and (cached.tally.moments is not None or not proven.value.is_whole):
        among = None if names is None else codes_among(names, proven.names)
        tally = cell_tally_by(cached.brackets, cached.whole(), proven.value.brackets, among)
        if tally is not None:
            own = tally if proven.value.is_whole else tally.without_sums()
            return KnownChunks(own, first.marks)
    logger.debug(message)
    return measure([read() for read in readers], known=known)


# --- Narrowing of few large groups ----------------------------------------------------------------


def _in_lots(load: DaskArray, most: int, merge: Callable[..., Any]) -> DaskArray:
    """Merge the partial results of neighbouring parts, in about `most` lots."""
    size = graphs.size_of_groups(load.npartitions, most)
    return graphs.grouped([load], size, merge, "quantile-lots")


def _merged_cuts(partials: Sequence[Named], *, most: int) -> Named:
    names, cuts = renumbered(partials)
    return Named(names, merged_coarsely(cuts, most))


def _few_of(tally: KnownChunks, known: KnownChunks, *, most: int) -> Cuts:
    return cuts_of_cells(known.value.value.brackets, tally.value, most)


def _narrower(cuts: list[Cuts], known: KnownChunks, *, wanted: Wanted) -> KnownChunks:
    brackets = narrower_slots(known.value.value, cuts, wanted)
    return KnownChunks(Named(known.value.names, brackets), known.marks)


def _left(tally: KnownChunks, known: KnownChunks, narrower: KnownChunks) -> KnownChunks:
    old, new = (each.value.value.brackets for each in (known, narrower))
    return KnownChunks(cell_tally_by(old, tally.value, new), tally.marks)
