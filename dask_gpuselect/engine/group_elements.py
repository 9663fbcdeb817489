"""Questions about groups of all elements: by counts of values, by tables, or by two loads.

A partial result is about the groups in a part of the data, as many chunks as one task takes. It has
their labels if these are not known before. A run is the set of elements of one group in one part.
`group_loads` has the two loads, and `lane_plans` chooses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import concatenate, in_kind, like, namespace, to_host
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.companions import concatenated
from dask_gpuselect.engine.groups import ForGroups, GroupedLanes, Grouping, PerGroup, Piece, taken
from dask_gpuselect.engine.questions import Block, LaneLoad, LaneLoads, of_merged
from dask_gpuselect.engine.resident import answer_block
from dask_gpuselect.kernels.companions import (
    Accompanied,
    ChunkColumn,
    each_array,
    values_of,
)
from dask_gpuselect.kernels.values import group_value_counts
from dask_gpuselect.maths import sizes, weights
from dask_gpuselect.maths.cuts import Arrays, Cuts, IntArray
from dask_gpuselect.maths.labels import Codes, Labels, codes_among, union
from dask_gpuselect.maths.lane_cuts import join, some_lanes
from dask_gpuselect.maths.ragged import CellTally, SlotRoom, Wanted, bracket_slots, pivot_counts
from dask_gpuselect.maths.sizes import pivot_share
from dask_gpuselect.maths.value_counts import ValueCounts

# With more groups nothing is cached: each group has a board, and 64 boards take 20 ms a part.
MOST_CACHED_GROUPS = 64


@dataclass(frozen=True, eq=False)
class Named(Arrays):
    """Something about each of several groups, with the labels of the groups.

    Parameters
    ----------
    names : ndarray, KeyNames or None
        Distinct labels, ascending if they are labels of elements. None if the groups are known
        before.
    value : object, or tuple of objects
    """

    names: Any
    value: Any


@dataclass(frozen=True, eq=False)
class GroupsOfAll(GroupedLanes):
    """A question about every group of all elements, answered by tables of groups.

    Counts of every value in each group may answer it, for dtypes of few values.
    """

    def names_in(self, chunks: Sequence[Accompanied]) -> Labels | None:
        """Return the labels in some chunks, or None if the groups are known before."""
        if not self.grouping.is_lazy:
            return None
        names = union([kernels.labels.distinct(chunk.labels) for chunk in chunks])
        if self.grouping.is_numbered:
            names = names[names >= 0]  # -1 is no group
        return names

    def n_groups_of(self, names: Labels | None) -> int:
        return self.grouping.number if names is None else len(names)

    @property
    def loads(self) -> LaneLoads:
        counts = self.of_group.loads.counts
        # Windows may share elements, so counts of elements by group do not work.
        if counts is not None and self.grouping.windows is None:
            finish = of_merged(self._merge_counts, partial(_finished, finish=counts.finish))
            counts = LaneLoad(self._count_values, self._merge_counts, finish)
            return replace(super().loads, counts=counts)
        return super().loads

    def _count_values(self, column: ChunkColumn, known: None) -> Named:
        names = self.names_in(column.chunks)
        # Codes may take more bytes than elements, so those of one chunk are there at a time.
        pieces = [column.chunks] if names is None else [[chunk] for chunk in column.chunks]
        about = column.dtype, self.n_groups_of(names)
        counts = [group_value_counts(coded(piece, names), *about) for piece in pieces]
        return Named(names, ValueCounts.merge(counts))

    def _merge_counts(self, partials: Sequence[Named]) -> Named:
        names, places = numbered_together(partials)
        values = [part.value for part in partials]
        if names is not None:
            pairs = zip(values, places, strict=True)
            values = [value.spread(at, len(names)) for value, at in pairs]
        return Named(names, ValueCounts.merge(values))

    def block(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        if self.grouping.n_groups and self._takes_runs(chunks):
            return self.of_groups(chunks, dtype, shape)
        return super().block(chunks, dtype, shape)

    def _takes_runs(self, chunks: Sequence[Any]) -> bool:
        """Return whether the elements of all groups may be sorted together, on their device."""
        takes = self.of_group.takes_runs and self.grouping.windows is None
        return takes and kernels.is_on_device(chunks[0])

    def fill_tables(self, chunks: Sequence[Accompanied], dtype: np.dtype[Any]) -> bool:
        """Return whether a device had better answer groups as rows of tables.

        They have to be short, and few tables have to hold them. Masks leave padding out, which
        needs floats, or weights.
        """
        n_groups, weights = self.grouping.number, chunks[0].weights
        n, n_answers = sum(chunk.size for chunk in chunks), n_groups * self.of_group.n_answers
        is_wide = dtype.kind != "f" and dtype.itemsize == 8
        if is_wide and (weights is None or self.of_group.further is not None):
            return False
        short = min(SHORT * n_answers, LONGEST * n_groups)
        if n > (short if weights is None else SHORT_WEIGHED * n_answers):
            return False
        codes = _labels_together(chunks)
        counts = namespace(codes).bincount(codes.astype(np.int32) + 1, minlength=n_groups + 1)
        most = 1 + n_answers // WORTH_OF_TABLE
        tables = stretches(to_host(counts).astype(np.int64)[1:], *LIMITS_THERE)
        return sum(1 for _ in itertools.islice(tables, most + 1)) <= most

    def of_groups(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        """Compute the answer about all runs together, or table by table."""
        if self._takes_runs(chunks) and not self.fill_tables(chunks, dtype):
            about = chunks, dtype, self.grouping.number, shape.of_rows
            answers = self.of_group.block_of_groups(*about)
            if answers is not None:
                return answers
        each = self.pieces(chunks, shape.axes)
        how = dtype, self.of_group, shape.of_rows
        answers = [piece.of_groups(answer_block(piece.parts, *how)) for piece in each]
        return self.blocks.joined(answers, -1)

    def _restored(self, answers: Any, block: Block, shape: AnswerAxes) -> Any:
        names = None
        if isinstance(answers, Named):
            names, answers = answers.names, answers.value
        # A table with one row a group, as far as answers depend on it.
        return self.of_group.blocks.restored(answers, (self.n_groups_of(names), 0), shape.of_rows)

    @property
    def further(self) -> LaneLoad | None:
        further = super().further
        if further is None or not self.of_group.takes_runs:
            return further
        return replace(further, measure=partial(further.measure, in_runs=True))

    def measured(
        self,
        measure: ForGroups,
        column: ChunkColumn,
        known: Any,
        *,
        in_runs: bool = False,
        **arguments: Any,
    ) -> Any:
        """Compute the partial result about all groups, `in_runs` if `measure` takes these."""
        chunks, dtype, _ = column
        in_runs &= chunks[0].weights is None  # the ends of weighted runs have no kernel
        if in_runs and self._takes_runs(chunks) and not self.fill_tables(chunks, dtype):
            assert callable(measure)
            runs = kernels.runs.sorted_runs(chunks, dtype, self.grouping.number)
            if runs is not None:
                return measure(column._replace(chunks=[runs]), known, **arguments)
        return super().measured(measure, column, known, **arguments)

    # Each group is a lane of a table.

    def pieces(self, chunks: Sequence[Any], axes: tuple[int, ...]) -> Iterator[Piece]:
        return batches_of(chunks, self.grouping)

    @staticmethod
    def part(known: Any, groups: slice) -> Any:
        return some_lanes(known, groups)

    @staticmethod
    def collected(partials: Sequence[Any]) -> Any:
        return join(partials)

    @staticmethod
    def each(function: ForGroups, first: Any, *others: PerGroup | None, **how: Any) -> Any:
        """Apply a function to results about all groups: those about the lanes of a table."""
        assert callable(function)
        return function(first, *others, **how)

    merged = each


def _finished(counts: Named, known: None, *, finish: Callable[..., Any]) -> Named:
    """Return the answers about all groups, from the counts of their values."""
    return Named(counts.names, finish([counts.value], known))


@dataclass(frozen=True, eq=False)
class GroupedElements(GroupsOfAll):
    """A question about every group of all elements that order statistics answer.

    It may have a further load.
    """

    @property
    def wanted(self) -> Wanted:
        """Order statistics that are wanted of each group."""
        wanted = self.of_group.wanted_of_group
        assert wanted is not None
        return wanted

    @property
    def keeps(self) -> bool:
        return self.grouping.is_lazy or self.grouping.number <= MOST_CACHED_GROUPS

    def root_bytes_of(self, parts: Sequence[int], itemsize: int) -> int:
        """Return the bytes that the brackets of all groups need in one task, for these parts.

        `parts` are their numbers of elements.
        """
        n_groups = self.slots.n
        share = pivot_share(self.of_group.n_answers)
        runs = np.maximum(np.array(parts) // n_groups, 1)
        pivots = np.minimum(pivot_counts(runs, share) * n_groups, np.array(parts))
        return int(pivots.sum()) * (self.pivot[1] + itemsize)

    @property
    def weighs(self) -> bool:
        wanted = self.of_group.wanted_of_group
        return wanted is not None and wanted.weighs

    @property
    def pivot(self) -> tuple[int, int]:
        """Bytes of a pivot as it comes, and of the work for it."""
        own = weights if self.weighs else sizes
        return own.PIVOT_BYTES, own.PIVOT_WORK

    def block(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        names = self.names_in(chunks)
        numbered, own = self.numbered(names), coded(chunks, names)
        is_by_ranks = self.of_group.further is None and self.of_group.by_order
        is_on_device = kernels.is_on_device(chunks[0])
        if not is_by_ranks or (is_on_device and numbered.fill_tables(own, dtype)):
            return numbered.of_groups(own, dtype, shape)
        elements = kernels.group_elements(
            own, dtype, numbered.grouping.number, self.of_group.order.lane_ranks
        )
        answers = self.finished(Named(names, elements))
        return in_kind(self._restored(answers, (), shape), values_of(chunks[0]))

    def edges(self, n_roots: int) -> tuple[int, ...] | None:
        """Return the group numbers that divide groups among several tasks; None for one task."""
        if n_roots < 2:
            return None
        n_groups = self.grouping.number
        return tuple(n_groups * i // n_roots for i in range(n_roots + 1))

    def cuts(self, column: ChunkColumn, known: None, *, edges: tuple[int, ...] | None) -> Any:
        """Compute the cuts of the runs in some chunks, split by `edges` if given."""
        chunks, dtype, _ = column
        names, share = self.names_in(chunks), pivot_share(self.of_group.n_answers)
        cuts = kernels.group_cuts(coded(chunks, names), dtype, self.n_groups_of(names), share)
        if edges is None:
            return Named(names, cuts)
        return [Named(None, own) for own in cuts.among(edges)]

    def bracketed(
        self, partials: Sequence[Named], known: None, *, room: SlotRoom | None = None
    ) -> Named:
        """Find the brackets of all groups; `room` is that of `bracket_slots`."""
        names, cuts = renumbered(partials)
        return Named(names, bracket_slots(cuts, self.n_groups_of(names), self.wanted, room))

    def tally(self, column: ChunkColumn, known: Named, *, edges: tuple[int, ...] | None) -> Any:
        """Compute the tally of some chunks, split by `edges` if given."""
        brackets, chunks = known.value.brackets, coded(column.chunks, known.names)
        tally = kernels.group_tally(chunks, column.dtype, brackets, sums=known.value.is_whole)
        return tally if edges is None else tally.among(brackets, edges)

    def order_statistics(self, tallies: Sequence[CellTally], known: Named) -> Named:
        """Select the order statistics of the groups that belong to one task."""
        elements = kernels.order_statistics_of_groups(tallies, known.value, self.wanted)
        return Named(known.names, elements)

    def numbered(self, names: Labels | None) -> GroupsOfAll:
        """Return the question about groups with these labels, which are now known."""
        n_groups = self.n_groups_of(names)
        return GroupsOfAll(self.of_group, replace(self.grouping, n_groups=n_groups))

    # A further load: its partial results are those of tables, with the labels that are known.

    @staticmethod
    def each(function: ForGroups, first: Any, *others: Any, **how: Any) -> Named:
        return Named(first.names, GroupsOfAll.each(function, first.value, *others, **how))

    @staticmethod
    def merged(function: ForGroups, first: Any, *others: Any, **how: Any) -> Any:
        assert callable(function)
        if not others:
            return function(first, **how)
        return GroupedElements.each(partial(function, first, **how), *others)

    @property
    def further(self) -> LaneLoad | None:
        further, wanted = super().further, self.of_group.wanted_of_group
        if further is None or wanted is None or wanted.is_done is None:
            return further
        return replace(further, is_done=partial(_is_done, wanted.is_done))

    def measured(
        self, measure: ForGroups, column: ChunkColumn, known: Named, **arguments: Any
    ) -> Any:
        some = column._replace(chunks=coded(column.chunks, known.names))
        return self.numbered(known.names).measured(measure, some, known.value, **arguments)


def _is_done(is_done: Callable[[Any], bool], known: Named) -> bool:
    return is_done(known.value)


def renumbered(partials: Sequence[Named]) -> tuple[Labels | None, list[Cuts]]:
    """Return the labels in several partial results, and their cuts with group numbers among these.

    If the groups were known before, there are no labels, and the cuts stay as they are.
    """
    names, places = numbered_together(partials)
    cuts = [part.value for part in partials]
    if names is None:
        return None, cuts
    return names, [replace(c, slots=p[c.slots]) for c, p in zip(cuts, places, strict=True)]


def coded(chunks: Sequence[Accompanied], names: Labels | None) -> Sequence[Accompanied]:
    """Replace the labels of chunks by the numbers of their groups."""
    if names is None:
        return chunks
    each = [kernels.labels.codes_among(chunk.labels, names) for chunk in chunks]
    return [
        replace(chunk, labels=like(codes, chunk.values) if isinstance(codes, np.ndarray) else codes)
        for chunk, codes in zip(chunks, each, strict=True)
    ]


def numbered_together(parts: Sequence[Named]) -> tuple[Labels | None, list[Codes]]:
    """Return the labels of all parts together, and the numbers of each part's groups among these.

    If the groups were known before, there are neither labels nor numbers.
    """
    if parts[0].names is None:
        return None, []
    names = union([part.names for part in parts])
    return names, [codes_among(part.names, names) for part in parts]


# --- Groups as rows of tables ---------------------------------------------------------------------

# A question about lanes is asked of the rows of such a table, so 100,000 groups take a few calls
# instead of 100,000. A row is as long as the largest group of its table. Shorter groups are padded,
# and a mask leaves the padding out.

MOST = 1 << 18
"""Most elements of a table, unless a single group has more."""

SPARE = 1 << 16
"""Elements of padding that cost less than one more table.

A box plot of a small table takes 1.5 ms, and sorting this many elements 1 ms. In a table of many
elements, a quarter of them may be padding.
"""

LIMITS_THERE = 1 << 26, 1 << 22, 4.0
"""Limits of tables on a device: most elements, cheap padding, and the largest share of padding.

See `MOST` and `SPARE`, which are for other tables.
"""

SHORT, SHORT_WEIGHED, LONGEST = 1 << 11, 1 << 14, 1 << 15
"""Most elements of a group on average, for each answer, for which tables are faster on a device.

The first two are without and with weights; without, a group may have `LONGEST` at most. Elsewhere
the host finds answers about sorted runs. 2**22 float32 in 3,000 groups on an H200, in ms: a box
plot 9, and 4 in tables; with weights 141 and 24; 99 quantiles 29 and 2, with weights 825 and 3.
2**26 in 300 groups: a box plot 10 and 213, with weights 117 and 197; 99 quantiles 8 and 62, with
weights 88 and 23.
"""

WORTH_OF_TABLE = 1000
"""Number of answers about runs that take as long as one more table, 3 ms."""


def batches_of(chunks: Sequence[Accompanied], grouping: Grouping) -> Iterator[Piece]:
    """Yield all groups of some chunks in order: runs of groups as the rows of tables, at least one.

    A group's row is the concatenation of its rows in all parts of its table.
    """
    flat = [_flat(chunk) for chunk in chunks]
    together = cache(partial(_together, flat))
    order, sizes = _order(_labels_together(chunks), grouping)
    stops, xp = np.cumsum(sizes), namespace(order)
    limits = LIMITS_THERE if kernels.is_on_device(flat[0]) else ()
    for first, last in stretches(sizes, *limits):
        n, groups = sizes[first:last], slice(first, last)
        starts = stops[first:last] - n
        if last - first == 1:
            places = order[starts[0] : stops[first]]
            yield Piece(groups, _in_pieces(flat, places), (1,))
            continue
        width = int(n.max(initial=0))
        column, n_padded = xp.arange(width), width - n
        starts_there, n_there = like(np.stack([starts, n])[:, :, None], order)
        places = xp.minimum(starts_there + column, max(len(order) - 1, 0))
        is_padded = bool(n_padded.any())
        keeps = column < n_there if is_padded else None
        table = _masked_table(together(), order[places] if len(order) else places, keeps)
        yield Piece(groups, [table], (1,), n_padded.copy if is_padded else None)


def stretches(
    sizes: IntArray, most: int = MOST, spare: int = SPARE, share: float = 0.25
) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive groups that fill a table well, given the sizes of groups.

    There is at least one run.
    """
    if not len(sizes):
        yield 0, 0
    start = 0
    while start < len(sizes):
        n, is_over = 256, np.zeros(0, np.bool_)
        while not is_over.any() and start + len(is_over) < len(sizes):
            own = sizes[start : start + n]
            room = np.maximum.accumulate(own) * np.arange(1, len(own) + 1)
            filled, n = np.cumsum(own), 2 * n
            is_over = (room > most) | (room - filled > np.maximum(spare, filled * share))
            is_over[0] = False
        stop = start + int(is_over.argmax() if is_over.any() else len(is_over))
        yield start, stop
        start = stop


def _order(labels: Any, grouping: Grouping) -> tuple[Any, IntArray]:
    """Return the places of the elements, sorted by group and place, and the size of each group.

    The places are on the device of the labels.
    """
    if grouping.windows is None:
        there: tuple[Any, IntArray] = kernels.groups.places_in_groups(labels, grouping.number)
        return there
    places = grouping.places(np.asarray(to_host(labels)))
    sizes = np.array([len(each) for each in places], np.int64)
    return np.concatenate([np.empty(0, np.int64), *places]), sizes


def _labels_together(chunks: Sequence[Accompanied]) -> Any:
    labels: list[Any] = [chunk.labels for chunk in chunks]
    if not kernels.is_on_device(labels[0]):
        labels = [np.asarray(to_host(each)) for each in labels]
    return concatenate([each.reshape(-1) for each in labels], 0)


def _in_pieces(chunks: Sequence[Any], places: Any) -> list[Any]:
    """Return the elements of flat chunks at ascending places as one row, split by chunk.

    Chunks without such elements are left out. If all are, there is one empty part.
    """
    stops, edges = np.cumsum([chunk.size for chunk in chunks]), np.array([len(places)])
    if len(chunks) > 1:
        edges = to_host(namespace(places).searchsorted(places, like(stops, places)))
    pieces, start = [], 0
    for chunk, size, stop in zip(chunks, stops, edges.tolist(), strict=True):
        if stop > start:
            own = places[start:stop] - (size - chunk.size)
            pieces.append(_plain(taken(chunk, own, 0)[None]))
        start = stop
    return pieces or [_plain(taken(chunks[0], places[:0], 0)[None])]


def _together(chunks: Sequence[Any]) -> Accompanied:
    whole = chunks[0] if len(chunks) == 1 else concatenated(chunks, 0)
    return whole if isinstance(whole, Accompanied) else Accompanied(whole)


def _masked_table(elements: Accompanied, places: Any, keeps: NDArray[np.bool_] | None) -> Any:
    """Return the elements at a table of places, without those that are not in `keeps`."""
    table = each_array(elements, partial(_table_of, places=places))
    if keeps is not None:
        mask = like(keeps, table.values)
        table = replace(table, keeps=mask if table.keeps is None else table.keeps & mask)
    return _plain(table)


def _flat(chunk: Accompanied) -> Any:
    """Flatten a chunk and its companions other than labels."""
    return each_array(replace(chunk, labels=None), lambda a: namespace(a).reshape(a, (-1,)))


def _table_of(array: Any, places: Any) -> Any:
    """Return the elements of an array at a table of places."""
    xp = namespace(array)
    elements = xp.take(array, like(places.reshape(-1), array), axis=0)
    return xp.reshape(elements, places.shape)


def _plain(chunk: Accompanied) -> Any:
    """Return the bare elements if the chunk has no companions."""
    return chunk if chunk.companions else chunk.values
