"""Sorting one-dimensional dask arrays by their exact quantiles.

::

    x ──two loads──> splitters ──> edges of each chunk ──merge──> table ─┐
    │                                                                   │
    └───────────copy, waits for the table──> split <────────────────────┘
                                               │ a piece for each chunk of the result
                                             merged

The splitters are the elements at the ranks where the chunks of the result begin, so chunks have the
requested sizes for any data. The second load gathers candidates for the splitters. They also say
how many elements of each chunk are before and up to each splitter. So a chunk is cut into its
pieces, ties included, as soon as it is loaded for the third time. Pieces are not sorted: each chunk
of the result is sorted once. If there are many chunks, pieces go through groups of them, see
`exchange.Stages`.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from dask.array.core import normalize_chunks
from dask.array.utils import meta_from_array
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect.arrays import as_dtype, in_kind, namespace, to_host
from dask_gpuselect.engine import settings
from dask_gpuselect.engine.answers import Form
from dask_gpuselect.engine.exchange import Stages, exchanged
from dask_gpuselect.engine.graphs import each_chunk, in_one_place, literals, reduced, reduced_items
from dask_gpuselect.engine.graphs import split_every as parts_merged
from dask_gpuselect.engine.loads import by_chunk
from dask_gpuselect.engine.narrowing import answers_of_stretches
from dask_gpuselect.engine.partials import Gathered
from dask_gpuselect.engine.plans import Plan, adjusted, choose, described, known_bytes
from dask_gpuselect.engine.questions import Costs, Question
from dask_gpuselect.engine.resident import fit_one_device
from dask_gpuselect.engine.source import (
    Alias,
    DaskArray,
    Graph,
    Source,
    Task,
    TaskRef,
    extended,
    private_copy,
)
from dask_gpuselect.engine.spill import Spilled, directory_of, spill_file
from dask_gpuselect.kernels import ordering, radix
from dask_gpuselect.kernels.ordering import Dealt
from dask_gpuselect.maths.chunk_sample import ChunkOrder
from dask_gpuselect.maths.cuts import ADVICE, Brackets, ChunksChangedError, Cuts, IntArray, Tally
from dask_gpuselect.maths.envelope import find_brackets
from dask_gpuselect.maths.finish import order_statistics
from dask_gpuselect.maths.partition import Division, Edges, Splitters, Table
from dask_gpuselect.maths.sizes import share_of_ranks

Chunks = int | str | tuple[int, ...] | tuple[tuple[int, ...], ...] | None
Spill = bool | str | os.PathLike[str] | None

PIECES_MERGED = 256  # by one task


@dataclass(frozen=True)
class SortPlan:
    """Plan of a sorted array; it is tokenized deterministically.

    Parameters
    ----------
    label : str
        Prefix of the names of the layers.
    dtype : dtype
        Dtype of the key in the result.
    wanted : SplitterQuestion
        Where the chunks of the result begin.
    stages : Stages
        How pieces get to the chunks of the result.
    has_places : bool
        True if pieces include the positions of their elements: because these are the result, or
        because they give the order of pieces of batches.
    wants_places : bool
        True if the positions alone are the result.
    spill : str, optional
        The directory where pieces wait, "" for dask's. Without one they wait in memory.
    split_every : int
        Number of pieces that one task takes at most.
    is_at_once : bool
        True if one task sorts all chunks of a key alone, which one device can hold.
    """

    label: str
    dtype: np.dtype[Any]
    wanted: SplitterQuestion
    stages: Stages
    has_places: bool
    wants_places: bool
    spill: str | None
    split_every: int
    is_at_once: bool

    @classmethod
    def of(
        cls,
        label: str,
        key: DaskArray,
        dtype: np.dtype[Any],
        payload: Sequence[DaskArray],
        chunks: Chunks,
        spill: Spill,
        split_every: int | None,
        *,
        wants_places: bool = False,
    ) -> SortPlan:
        """Make the plan for a key and other arrays, and check the arguments."""
        # dask's config value is meant for reductions, and pieces are joined by copying them.
        every = PIECES_MERGED if split_every is None else parts_merged(split_every, PIECES_MERGED)
        is_at_once = spill is None and fit_one_device([key, *payload])
        if spill is None:
            spill = _is_worth_spilling(key, payload)
        if isinstance(spill, bool):
            spill = "" if spill else None
        directory = None if spill is None else os.fspath(spill)
        wanted = _splitters(key, chunks)
        stages = Stages.of(key.npartitions, wanted.sizes or (1,) * wanted.n_chunks)
        has_places = wants_places or bool(payload and stages.n_batches)
        about = (has_places, wants_places, directory, every, is_at_once)
        return cls(label, dtype, wanted, stages, *about)


def _splitters(x: DaskArray, chunks: Chunks) -> SplitterQuestion:
    """Ask where the chunks of the result begin, or raise if they do not fit."""
    if math.isnan(x.size):
        if chunks is not None:
            raise ValueError(
                "chunks must not be given for an array of unknown size: type "
                "x.compute_chunk_sizes() first, or leave out chunks"
            )
        return SplitterQuestion(x.npartitions)
    if chunks is None:
        chunks = max(1, -(-x.size // x.npartitions))
    if isinstance(chunks, int) and chunks < 1 and chunks != -1:
        raise ValueError(f"chunks must be positive, or -1 for a single chunk, not {chunks}")
    (sizes,) = normalize_chunks(chunks, x.shape, dtype=x.dtype)
    return SplitterQuestion(len(sizes), tuple(map(int, sizes)))


def _is_worth_spilling(key: DaskArray, payload: Sequence[DaskArray]) -> bool:
    """Return whether pieces should wait on disk if the user does not say."""
    arrays = (key, *payload)
    if all(Source.of(x).is_in_memory for x in arrays):
        return False
    limit = settings.n_bytes("spill-limit")
    return not sum(x.nbytes for x in arrays) <= limit  # True for unknown sizes


# --- The table: what goes where -------------------------------------------------------------------


def _deal_of(x: DaskArray, plan: SortPlan) -> DaskArray:
    """Find where all chunks are cut, as one task, by two loads or one that counts all values.

    There is a number for each chunk and each splitter. So the numbers are gathered for some
    splitters at a time, and those of a batch of chunks are added up immediately.
    """
    label, question = plan.label, plan.wanted
    brackets, tallies, order, narrowing = by_chunk(x, question, label)
    if narrowing is None:
        about = {"brackets": brackets, "question": question, "form": Form((), None, x._meta)}
        name = f"{label}-splitters"
        splitters = reduced(tallies, _merge_gathered, _find_splitters, name, **about)
    else:
        splitters = answers_of_stretches(tallies, brackets, question, narrowing, Splitters.merge)
    places = _places_of(plan, x.npartitions)
    which = literals(f"{label}-which", [[numbers for numbers, _ in places]], ())
    edges = each_chunk(_edges, f"{label}-edges", [tallies], [brackets, splitters, which])
    how: dict[str, Any] = {"order": order, "stages": plan.stages}
    arguments = [{"some": some, "splitters": splitters, **how} for some in places]
    label = f"{label}-table"
    if len(places) == 1:
        return reduced(edges, _merge_edges, _make_only_deal, label, **arguments[0])
    return reduced_items(edges, Edges.merge, _make_deal, label, arguments, _joined_deals)


def _with_pieces(begun: Plan, arrays: Sequence[DaskArray], plan: SortPlan) -> Plan:
    """Add the load of the pieces, which wait in memory or on disk, to the plan of the splitters."""
    rows = sum(x.dtype.itemsize * math.prod(x.shape[1:]) for x in arrays) + 8 * plan.has_places
    task_bytes = known_bytes(
        rows * max([*arrays[0].chunks[0], *(plan.wanted.sizes or ())], default=0)
    )
    waiting = 0 if plan.spill is not None else known_bytes(rows * arrays[0].size)
    return described(
        replace(
            begun,
            name="sort",
            loads=begun.loads + 1,
            task_bytes=max(begun.task_bytes, task_bytes),
            waiting_bytes=max(begun.waiting_bytes, waiting),
            why="",
        ),
        arrays[0],
    )


SharedSplitters = tuple[IntArray, tuple[int, int]]
"""Splitters whose numbers for all chunks are gathered by one task, and the groups they divide.

Splitters are numbered: chunk 1 of the result begins at splitter 0. Groups are the first and the
last, exclusive; there are none if the splitters are the ends of groups.
"""

EDGES_WORK = 80
"""Approximate bytes that the task of some splitters holds for each of them and each chunk."""


def _places_of(plan: SortPlan, n_in: int) -> list[SharedSplitters]:
    """Divide the splitters among tasks, each of which fits `root-limit`."""
    steps, n_out = np.array(plan.stages.steps), plan.wanted.n_chunks
    places = [(steps[1:-1] - 1, (0, 0))]
    if not plan.stages.n_batches:
        return places
    most = max(settings.n_bytes("root-limit") // (EDGES_WORK * n_in), 1)
    first = 0
    while first < len(steps) - 1:
        last = max(int(np.searchsorted(steps, steps[first] + most, "right")) - 1, first + 1)
        own = np.arange(max(steps[first] - 1, 0), min(steps[last], n_out - 1))
        places.append((own, (first, last)))
        first = last
    return places


def _make_deal(
    parts: list[Edges],
    splitters: Splitters,
    some: SharedSplitters,
    order: ChunkOrder | None,
    stages: Stages,
) -> Table | list[list[Division]]:
    """Return where each chunk is cut at some splitters.

    For splitters that divide groups, return where every batch of chunks is cut.
    """
    edges, (numbers, (first, last)) = Edges.merge(parts), some
    edges = edges if order is None else edges.of_chunks(order.turns())
    table = Table.of(edges, splitters.some(numbers))
    if first == last:
        return table
    # Cut 0 of the table is where chunks begin, and cut j is at its splitter j - 1.
    before = max(stages.steps[first] - 1, 0)
    groups = itertools.pairwise(stages.steps[first : last + 1])
    return [
        [
            table.division(stages.batch(b), range(start - before, stop - before + 1))
            for b in range(stages.n_batches)
        ]
        for start, stop in groups
    ]


def _merge_edges(parts: list[list[Edges]]) -> list[Edges]:
    return [Edges.merge([edges for (edges,) in parts])]


def _make_only_deal(parts: list[list[Edges]], **about: Any) -> Table:
    """Return where each chunk is cut, without groups."""
    return _joined_deals([_make_deal(_merge_edges(parts), **about)])


def _joined_deals(parts: list[Any]) -> Table:
    """Add the divisions of all groups to the table."""
    table: Table
    table, *groups = parts
    return replace(table, groups=[*itertools.chain(*groups)])


def _merge_gathered(parts: list[list[Gathered]]) -> list[Gathered]:
    """Merge the partial results of several chunks."""
    return [Gathered.merge([*itertools.chain(*parts)])]


def _find_splitters(
    parts: list[list[Gathered]], brackets: Brackets, question: SplitterQuestion, form: Form
) -> Splitters:
    """Select the splitters among all candidates."""
    whole = Gathered.whole([*itertools.chain(*parts)], form.kind)
    assert whole.tally is not None
    return question.resolve(brackets, whole.tally)


def _edges(
    chunks: list[Gathered], brackets: Brackets, splitters: Splitters, which: list[IntArray]
) -> list[Edges]:
    """Return the edges of some chunks, for each of several selections of splitters."""
    tallies = [chunk.tally for chunk in chunks if chunk.tally is not None]
    edges = Edges.merge([Edges.of_chunk(brackets, tally, splitters) for tally in tallies])
    return [edges.some(some) for some in which]


# --- Load 3: pieces -------------------------------------------------------------------------------


def _split(
    chunk: Any, *values_table_place: Any, plan: SortPlan, file_name: str
) -> list[tuple[Any, ...] | None]:
    """Cut a chunk into pieces, one for each chunk of the result.

    A piece is a tuple of columns: the keys and the values beside them. It is None without elements.
    """
    values: Sequence[Any]
    table: Table
    *values, table, (place, *_) = values_table_place
    elements = ordering.words_of(chunk, plan.dtype)
    for value in values:
        if len(value) != len(elements):
            raise ValueError(
                f"chunk {place} of the key has {len(elements)} elements, and that of a value has "
                f"{len(value)}: they must have the same chunks"
            )
    division = table.division(int(place), range(len(plan.stages.steps)))
    has_order = bool(values) or plan.has_places
    name = f"chunk ({place},)"
    dealt = _in_pieces(elements, division, plan, name, has_order=has_order)
    columns = [dealt.keys, *_ordered(dealt, values)]
    if plan.has_places:
        columns.append(ordering.places(dealt, table.offsets[place]))
    n_pieces = len(plan.stages.steps) - 1
    is_one = not plan.stages.n_batches  # else the disk space of each group is freed with it
    names = [file_name] if is_one else [f"{file_name}-{g}" for g in range(n_pieces)]
    return _keep(columns, division.ends, plan, names)


def _regroup(
    pieces: list[tuple[Any, ...] | None],
    batch: int,
    group: int,
    deal: Table,
    plan: SortPlan,
    file_name: str,
) -> list[tuple[Any, ...] | None]:
    """Cut the elements that a batch of chunks has sent to a group into pieces for its chunks."""
    first, stop = plan.stages.steps[group : group + 2]
    joined = _join_pieces(pieces)
    if joined is None:
        return [None] * (stop - first)
    keys, *values = joined
    chunks = plan.stages.batch(batch)
    division = deal.groups[group][batch]
    every = len(deal.offsets)
    name = f"one of the chunks {', '.join(f'({i},)' for i in range(*chunks.indices(every)))}"
    dealt = _in_pieces(keys, division, plan, name, has_order=bool(values))
    columns = [dealt.keys, *_ordered(dealt, values)]
    return _keep(columns, division.ends, plan, [f"{file_name}-{group}-regrouped"])


def _in_pieces(
    values: Any, division: Division, plan: SortPlan, name: str, *, has_order: bool
) -> Dealt:
    """Return elements as keys, piece by piece.

    Raise if they are not those that the earlier loads have counted.
    """
    marks = as_dtype(division.values, plan.dtype)
    known = (division.below, division.upto)
    ends = division.ends if plan.spill is None else None
    about = values, marks, plan.dtype
    dealt: Dealt = ordering.dealt(*about, has_order=has_order, known=known, ends=ends)
    if len(values) == division.ends[-1] and np.array_equal([dealt.below, dealt.upto], known):
        return dealt
    raise ChunksChangedError(
        f"{name} had other elements in the last read than when it was counted. {ADVICE}"
    )


def _ordered(dealt: Dealt, values: Sequence[Any]) -> list[Any]:
    """Return columns in the order of the pieces."""
    return list(values) if dealt.order is None else [_taken(v, dealt.order) for v in values]


def _taken(rows: Any, order: Any) -> Any:
    """Take rows in an order, on their device: keys may be on a device and rows on the host."""
    return rows[in_kind(order, rows)]


def _keep(
    columns: Sequence[Any], ends: NDArray[np.int64], plan: SortPlan, names: Sequence[str]
) -> list[tuple[Any, ...] | None]:
    """Store columns in pieces, in memory or on disk, until the pieces are read.

    Pieces without elements are None. On disk there is one file for all pieces, or one for each, of
    these names. In memory pieces are copies, because a view would keep the whole column.
    """
    stops = list(itertools.pairwise(ends.tolist()))
    directory = None if plan.spill is None else directory_of(plan.spill)

    def of_column(column: Any) -> list[Any]:
        if isinstance(column, list):
            return column
        if directory is None or column.dtype.hasobject:
            return [column[a:b].copy() for a, b in stops]
        if len(names) == 1:
            whole = spill_file(names[0], directory).write(column)
            return [whole[a:b] for a, b in stops]
        return [
            spill_file(name, directory).write(column[a:b]) if a < b else None
            for name, (a, b) in zip(names, stops, strict=True)
        ]

    pieces = zip(*map(of_column, columns), strict=True)
    return [piece if a < b else None for piece, (a, b) in zip(pieces, stops, strict=True)]


# --- The exchange ---------------------------------------------------------------------------------


def sorted_columns(plan: SortPlan, key: DaskArray, payload: Sequence[DaskArray] = ()) -> DaskArray:
    """Return the chunks of the result, each a tuple of columns; of a key alone, the only column.

    Dask would fuse a task that takes the only column of a tuple, and order the tasks inside at each
    run.
    """
    with adjusted(partial(_with_pieces, arrays=(key, *payload), plan=plan)):
        deal = _deal_of(key, plan)
    turn = deal.name
    sources = [private_copy(x, f"load 3 after {turn}", after=turn) for x in (key, *payload)]
    grids = [x if x.ndim == 1 else _rows(x) for x in sources]
    token = tokenize(plan, *(x.name for x in sources))
    how: dict[str, Any] = {"block_ids": True, "plan": plan, "file_name": token}
    split = each_chunk(_split, f"{plan.label}-split", grids, [deal], **how)
    return exchanged(
        split,
        plan.stages,
        f"{plan.label}-merged-{token}" if payload else f"{plan.label}-{token}",
        f"{plan.label}-piece-{token}",
        _merge_pieces if payload else _merge_keys,
        _empties(plan, key, payload),
        plan,
        regroup=_regroup,
        join=_join_pieces,
        every=plan.split_every,
        deal=deal,
        plan=plan,
        file_name=token,
    )


def _rows(x: DaskArray) -> DaskArray:
    """Return the chunks of an array with one along all axes but the first, in a 1-D grid."""
    name = f"rows-{x.name}"
    keys = ((name, i) for i in range(x.numblocks[0]))
    layer = {key: Alias(key, (x.name, key[1], *[0] * (x.ndim - 1))) for key in keys}
    graph = extended(x.dask, name, layer, {x.name})
    return DaskArray(graph, name, x.chunks[:1], meta=np.empty(0, dtype=object))


def _empties(plan: SortPlan, key: DaskArray, payload: Sequence[DaskArray]) -> list[Any]:
    """Return the columns of a piece without elements."""
    keys = ordering.keys_of(key._meta, plan.dtype)[:0].copy()
    places = [ordering.stable_order(keys)] if plan.has_places else []
    rows = (
        namespace(value._meta).empty((0, *value.shape[1:]), dtype=value.dtype) for value in payload
    )
    return [keys, *rows, *places]


def _join_pieces(pieces: list[tuple[Any, ...] | None]) -> tuple[Any, ...] | None:
    """Concatenate pieces, column by column; None if there are none."""
    given = [piece for piece in pieces if piece is not None]
    if not given:
        return None
    return tuple(map(_join_column, zip(*given, strict=True)))


def _join_column(parts: Sequence[Any]) -> Any:
    """Concatenate the parts of a column, some of which may be on disk."""
    if not any(isinstance(part, Spilled) for part in parts):
        return radix.joined(list(parts))
    # Each part is read into its place: a list of all parts and their copy would take twice as much.
    dtype = np.result_type(*{part.dtype for part in parts})  # for strings, that of the longest
    whole = np.empty((sum(part.shape[0] for part in parts), *parts[0].shape[1:]), dtype)
    stop = 0
    for part in parts:
        start, stop = stop, stop + part.shape[0]
        if isinstance(part, Spilled) and part.dtype == dtype:
            part.read_into(whole[start:stop])
        else:
            whole[start:stop] = part.read() if isinstance(part, Spilled) else to_host(part)
    first = parts[0]
    return (first if isinstance(first, Spilled) else namespace(first)).asarray(whole)


def _merge_pieces(
    pieces: list[tuple[Any, ...] | None], empties: list[Any], plan: SortPlan
) -> tuple[Any, ...]:
    """Sort the pieces of a chunk of the result, and return its columns.

    These are the elements and the values beside them, or the positions if only these are wanted.
    """
    keys, *values = _join_pieces(pieces) or tuple(empties)
    if not values:
        ordering.sort(keys)
        return (ordering.elements_of(keys, plan.dtype),)
    if plan.stages.n_batches:  # then pieces come from chunks in any order
        by_place = ordering.stable_order(values[-1])
        order = by_place[ordering.stable_order(keys[by_place])]
    else:
        order = ordering.stable_order(keys)
    if plan.wants_places:
        return (values[0][order],)
    if plan.has_places:
        del values[-1]
    elements = ordering.elements_of(keys[order], plan.dtype)
    return elements, *(_taken(value, order) for value in values)


def _merge_keys(*about: Any) -> Any:
    """Sort the pieces of a chunk of the result, which has one column."""
    (only,) = _merge_pieces(*about)
    return only


def column(
    merged: DaskArray, plan: SortPlan, i: int, like: DaskArray, dtype: np.dtype[Any]
) -> DaskArray:
    """Return one of the columns as an array, with rows like those of `like`."""
    name = f"{plan.label}-{tokenize(merged.name, i)}"
    further = like.chunks[1:]
    layer = {}
    for j in range(plan.wanted.n_chunks):
        key = (name, j, *[0] * len(further))
        layer[key] = Task(key, operator.getitem, TaskRef((merged.name, j)), i)
    return _as_array(extended(merged.dask, name, layer, {merged.name}), name, plan, like, dtype)


def sorted_at_once(plan: SortPlan, key: DaskArray) -> DaskArray:
    """Return the chunks of the only column of the result, of a key that one device can hold."""
    n_bytes = known_bytes(key.nbytes)
    choose(described(Plan("resident", 1, n_bytes, n_bytes), key))
    whole = in_one_place([key], _sort_all, f"{plan.label}-resident", plan=plan)
    name = f"{plan.label}-{tokenize(whole.name)}"
    tasks = {
        (name, i): Task((name, i), _part, TaskRef((whole.name,)), i)
        for i in range(plan.wanted.n_chunks)
    }
    graph = extended(whole.dask, name, tasks, {whole.name})
    return DaskArray(graph, name, ((math.nan,) * len(tasks),), meta=key._meta)


def _sort_all(chunks: list[Any], plan: SortPlan) -> tuple[Any, list[int]]:
    """Sort all chunks; return the column of the result, and where its chunks begin and end."""
    keys = radix.joined([ordering.keys_of(chunk, plan.dtype) for chunk in chunks])
    n = len(keys)
    ends = [0, *plan.wanted.starts(n).tolist(), n]
    if plan.wants_places:
        return ordering.stable_order(keys), ends
    ordering.sort(keys)
    return ordering.elements_of(keys, plan.dtype), ends


def _part(whole: tuple[Any, list[int]], i: int) -> Any:
    """Return a chunk of the result: a copy, because a view would keep all chunks in memory."""
    column, ends = whole
    return column[ends[i] : ends[i + 1]].copy()


def sorted_keys(plan: SortPlan, key: DaskArray) -> DaskArray:
    """Return the only column of the result: the key, or the positions of its elements."""
    merged = (sorted_at_once if plan.is_at_once else sorted_columns)(plan, key)
    dtype = np.dtype(np.int64) if plan.wants_places else plan.dtype
    return _as_array(merged.dask, merged.name, plan, key, dtype)


def _as_array(
    graph: Graph, name: str, plan: SortPlan, like: DaskArray, dtype: np.dtype[Any]
) -> DaskArray:
    sizes: tuple[float, ...] = plan.wanted.sizes or (math.nan,) * plan.wanted.n_chunks
    meta = meta_from_array(like._meta, dtype=dtype)
    return DaskArray(graph, name, (sizes, *like.chunks[1:]), meta=meta)


# --- The question about the splitters -------------------------------------------------------------

MANY = 64


@dataclass(frozen=True)
class SplitterQuestion(Question):
    """The elements at which the chunks of the sorted array begin, as a question.

    Parameters
    ----------
    n_chunks : int
        Number of chunks of the sorted array.
    sizes : tuple of int, optional
        Sizes of the chunks, if the number of elements is known. Otherwise they differ by at most
        one.
    part : tuple of (int, int)
        Number of the stretch of starts that is asked for, and the number of stretches.
    """

    n_chunks: int
    sizes: tuple[int, ...] | None = None
    part: tuple[int, int] = (0, 1)

    def starts(self, n: int) -> IntArray:
        """Compute the first ranks of all chunks but the first, among n elements, for this part."""
        if self.sizes is None:
            starts = np.array([i * n // self.n_chunks for i in range(1, self.n_chunks)], np.int64)
        elif sum(self.sizes) != n:
            raise ValueError(
                f"the shape of the array says {sum(self.sizes)} elements, and its chunks have {n}: "
                "give the array the right chunks"
            )
        else:
            starts = np.cumsum(self.sizes[:-1], dtype=np.int64)
        i, n_parts = self.part
        return np.array_split(starts, n_parts)[i]

    @property
    def n_answers(self) -> int:
        return self.n_chunks - 1

    @property
    def costs(self) -> Costs:
        n = self.n_answers, share_of_ranks(self.n_chunks)
        return replace(Costs.of_ranks(*n), stretch=self._stretch)

    def bracket(self, cuts: Cuts) -> Brackets:
        ranks = self._ranks(cuts)
        return find_brackets(cuts, ranks, ranks)

    def _ranks(self, cuts: Cuts) -> IntArray:
        n_valid, n_missing = int(cuts.n_valid.sum()), int(cuts.n_missing.sum())
        starts = self.starts(n_valid + n_missing)
        return np.unique(starts[starts < n_valid])

    @property
    def n_ranges(self) -> int:
        return self.n_answers

    def _stretch(self, i: int, n: int) -> SplitterQuestion:
        return replace(self, part=(i, n))

    @property
    def keep(self) -> Callable[[Cuts], Brackets] | None:
        # If a quarter of n elements in random order has been read, the first load would cache about
        # 7 / sqrt(n) of them around each splitter.
        sizes = self.sizes
        are_few = sizes is None or MANY * self.n_chunks <= math.sqrt(sum(sizes))
        return self._keep if are_few else None

    def _keep(self, cuts: Cuts) -> Brackets:
        # These cuts have only about as many elements as the array.
        n, sizes = int(cuts.n_valid.sum()) + int(cuts.n_missing.sum()), self.sizes
        if sizes is None:
            return self.bracket(cuts)
        stops = [stop * n // max(sum(sizes), 1) for stop in itertools.accumulate(sizes)]
        return replace(self, sizes=tuple(np.diff(stops, prepend=0).tolist())).bracket(cuts)

    def resolve(self, brackets: Brackets, tally: Tally) -> Splitters:
        starts = self.starts(tally.n_valid + tally.n_missing)
        elements = order_statistics(brackets, tally, starts[starts < tally.n_valid])
        return Splitters(starts, elements)
