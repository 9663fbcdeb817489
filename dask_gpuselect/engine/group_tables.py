"""Order statistics by group of the rows of a table: two loads serve all columns.

::

    source ──copy──> cuts of each column ──> names of some groups, brackets of each column ─┐
       │                                 ──> those of other groups ─────────────────────────┤
       └────copy, waits for these──> tallies ──> answers about some groups ──┬──> names,    │
                                             ──> those about others ─────────┘    answers ──┘

Each chunk numbers its own groups, and tells their names. So labels of any kind are compared once
for each load of a chunk, however many columns and questions there are.

If the partial results may exceed `root-limit`, groups are divided among several aggregating tasks.
The name of a group alone determines its task, by the *class* of the name, because no chunk knows
the groups of the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import concatenate
from dask_gpuselect.engine import settings
from dask_gpuselect.engine.columns import Columns
from dask_gpuselect.engine.graphs import in_one_place, objects
from dask_gpuselect.engine.group_elements import Named
from dask_gpuselect.engine.group_loads import aggregated, divided, measured, together
from dask_gpuselect.engine.marks import KnownChunks, Slab
from dask_gpuselect.engine.questions import LaneQuestion
from dask_gpuselect.engine.source import DaskArray, blockwise
from dask_gpuselect.kernels import fingerprints
from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn, unpaired
from dask_gpuselect.maths.cuts import Arrays, Brackets, Cuts, IntArray
from dask_gpuselect.maths.ragged import CellTally, Wanted, bracket_slots
from dask_gpuselect.maths.sizes import pivot_share

if TYPE_CHECKING:
    from dask_gpuselect.engine.frames import KeyNames

# Bytes of partial results over the bytes of rows, at most: 32 bytes over 16, for one key and one
# column of eight bytes each, and one row a group.
REPORTED = 2
# Most partial results that are passed on: each class of each chunk takes a task for each load.
MOST_PARTIALS = 1 << 14
MOST_ROOTS = 64

NO_NAME = np.uint64(0x9E3779B97F4A7C15)  # hash of rows that belong to no group

ADVICE = "convert it to one dtype first, df.astype({key: ...})"


@dataclass(frozen=True, eq=False)
class Keyed(Arrays):
    """The groups of the rows of a chunk of a table, with its columns.

    Parameters
    ----------
    codes : ndarray of int32
        Number of the group of each row, -1 for none.
    names : KeyNames
        Names of the groups in the chunk, by their numbers.
    columns : tuple of arrays
        Empty if only the groups are of interest.
    """

    codes: NDArray[np.int32]
    names: KeyNames
    columns: tuple[Any, ...] = ()

    def in_order_of_class(self, n: int) -> tuple[Keyed, IntArray, list[int]]:
        """Renumber the groups of the rows by class.

        Also return the former positions of the names, and where each class begins and the last
        ends. One pass over the rows then serves all classes.
        """
        names = self.names
        if n == 1:
            return self, np.arange(len(names)), [0, len(names)]
        class_of = names.classes(n)
        order = np.argsort(class_of, kind="stable")
        ends = [0, *np.cumsum(np.bincount(class_of, minlength=n)).tolist()]
        numbers = np.full(len(names) + 1, -1, np.int32)  # the last is for rows without a group
        numbers[order] = np.arange(len(names))
        return replace(self, codes=numbers[self.codes], names=names.take(order)), order, ends

    def of_column(self, i: int, codes: NDArray[np.int32]) -> Accompanied:
        """Return a column whose elements are labelled with these group numbers."""
        return Accompanied(*unpaired(self.columns[i]), labels=codes)

    @property
    def mark(self) -> int:
        """The fingerprint of the rows, in any order.

        It depends on the names of groups, but not on their numbers, so that two loads can be
        compared.
        """
        hashes = np.append(self.names.hashes(), NO_NAME)
        return fingerprints.fingerprint_of_rows([hashes[self.codes], *self.columns])


def table(keys: DaskArray, columns: Sequence[DaskArray]) -> DaskArray:
    """Pack keys and columns in one dask array, which is loaded as a whole.

    Parameters
    ----------
    keys : dask array
        Groups of the rows; its chunks are `Keyed`.
    columns : sequence of dask arrays
        One-dimensional columns with the same chunks.
    """
    pairs = (each for column in (keys, *columns) for each in (column, (0,)))
    rows: DaskArray = blockwise(
        _rows,
        (0,),
        *pairs,
        name=f"rows-{tokenize(keys.name, [column.name for column in columns])}",
        align_arrays=False,
        dtype=object,
        meta=np.empty(0, object),
    )
    return rows


def _rows(keyed: Keyed, *columns: Any) -> Slab:
    rows = replace(keyed, columns=columns)
    return Slab(rows, rows.mark)


@dataclass(frozen=True, eq=False)
class Class(Named):
    """The groups of one class, with something about each of them.

    Parameters
    ----------
    first : ndarray of int64, or of int32 in a chunk
        First appearance of each group: numbers that ascend in that order, across all classes.
    has_groups : bool
        True if the part of the data has groups, of this class or another.
    """

    first: NDArray[Any]
    has_groups: bool = True

    @classmethod
    def of(cls, partials: Sequence[Self]) -> tuple[Self, list[IntArray]]:
        """Collect the groups in the partial results of chunks.

        Also return, for each chunk, the positions of its groups among all of them.

        Raises, while computing, a `TypeError` if the names of a chunk are missing from the union of
        all names. That happens for dtypes that pandas does not compare, such as bools with
        integers.
        """
        # A chunk without groups must not influence the dtype of all names.
        given = [part.names for part in partials if part.has_groups] or [partials[0].names]
        names: KeyNames = type(given[0]).union(given)
        places = [names.places(part.names) for part in partials]
        if any((each < 0).any() for each in places):
            raise TypeError(f"a key has different dtypes in different partitions: {ADVICE}")
        first = np.zeros(len(names), np.int64)
        for chunk in reversed(range(len(partials))):
            first[places[chunk]] = (chunk << 32) + partials[chunk].first.astype(np.int64)
        return cls(names, (), first), places


@dataclass(frozen=True)
class GroupedColumns:
    """A question about every group of each column of a table.

    Parameters
    ----------
    questions : tuple of LaneQuestion
        For each column a question about lanes, asked of each group; order statistics answer it.
    dtypes : tuple of dtype
        Dtypes of the columns.
    """

    questions: tuple[LaneQuestion, ...]
    dtypes: tuple[np.dtype[Any], ...]

    def cuts(self, rows: Keyed) -> tuple[Cuts, ...]:
        """Compute the cuts of each column."""
        codes, n_groups = rows.codes, len(rows.names)
        return tuple(
            kernels.group_cuts(
                [rows.of_column(i, codes)], own, n_groups, pivot_share(question.n_answers)
            )
            for i, (question, own) in enumerate(zip(self.questions, self.dtypes, strict=True))
        )

    def bracketed(self, partials: Sequence[Class], known: None) -> Class:
        """Collect all groups of a class, and find their brackets in each column."""
        groups, places = Class.of(partials)
        codes = [each.astype(np.int32) for each in places]
        brackets = []
        for i, question in enumerate(self.questions):
            cuts: list[Cuts] = [part.value[i] for part in partials]
            cuts = [replace(c, slots=p[c.slots]) for c, p in zip(cuts, codes, strict=True)]
            wanted = Wanted.of_ranks(question.order.lane_ranks)
            brackets.append(bracket_slots(cuts, len(groups.names), wanted))
        return replace(groups, value=tuple(brackets))

    def tally(self, column: ChunkColumn, known: tuple[Class, ...]) -> Any:
        """Compute the tally of each column in a chunk: a list of one for each class if several."""
        (rows,) = column.chunks
        rows, _, ends = rows.in_order_of_class(len(known))
        names = rows.names
        edges = [0, *itertools.accumulate(len(each.names) for each in known)]
        places = np.full(len(names) + 1, -1, np.int32)
        for one, edge, (start, stop) in zip(
            known, edges[:-1], itertools.pairwise(ends), strict=True
        ):
            at = one.names.places(names.take(np.arange(start, stop)))
            # The chunk's fingerprint shows a group that the first load did not have.
            places[start:stop] = np.where(at < 0, -1, at + edge)
        codes = places[rows.codes]
        columns = []
        for i, own in enumerate(self.dtypes):
            brackets = Brackets.merge([each.value[i].brackets for each in known])
            tally = kernels.group_tally([rows.of_column(i, codes)], own, brackets)
            columns.append([tally] if len(known) == 1 else tally.among(brackets, edges))
        return apart(list(zip(*columns, strict=True)))

    def answered(self, partials: Sequence[tuple[CellTally, ...]], known: Class) -> Class:
        """Return the groups of a class with answers ``(n_answers, n_groups)`` for each column."""
        answers = []
        for i, question in enumerate(self.questions):
            tallies = [part[i] for part in partials]
            wanted = Wanted.of_ranks(question.order.lane_ranks)
            elements = kernels.order_statistics_of_groups(tallies, known.value[i], wanted)
            answers.append(question.finished(elements))
        return replace(known, value=tuple(answers))


def apart(partials: list[Any]) -> Any:
    """Return partial results of several classes as `Columns.divide` expects them.

    A single one is returned without a list.
    """
    return partials if len(partials) > 1 else partials[0]


def classes_of(x: DaskArray) -> int:
    """Return the number of classes of groups of a `table`, each aggregated by a task of its own.

    The sizes of chunks and the number of groups are unknown. So each chunk counts as one of dask's
    configured chunk size, and each of its rows as a group.
    """
    reported = REPORTED * settings.chunk_bytes() * int(x.npartitions)
    wanted = -(-reported // max(settings.n_bytes("root-limit"), 1))
    return max(min(wanted, MOST_ROOTS, MOST_PARTIALS // int(x.npartitions)), 1)


def ask_table(x: DaskArray, question: GroupedColumns, label: str) -> DaskArray:
    """Answer a question about the groups of a `table` lazily, in two loads.

    The answer is an object: a `Named` with the results of `GroupedColumns.answered`.
    """
    n, columns = classes_of(x), _columns(x)
    measure = partial(_of_each_class, measure=question.cuts, among=Cuts.among)
    cuts = divided(measured(columns, measure, f"{label}-cuts", n=n), n)
    settle = partial(aggregated, columns, question.bracketed, label=f"{label}-bracket-each")
    brackets = [*map(settle, cuts)]
    known = together(columns, brackets, tuple, f"{label}-bracket")
    tallies = divided(measured(columns, question.tally, f"{label}-candidates", known), n)
    select = partial(aggregated, columns, question.answered, label=f"{label}-each")
    return _made([*map(select, tallies, brackets)], label)


def ask_counts(x: DaskArray, label: str) -> DaskArray:
    """Count lazily, in one load, the elements of each group that take part, in each column.

    The answer is an object: a `Named` with a count for each group of each column of the `table`.
    """
    n, columns = classes_of(x), _columns(x)
    measure = partial(_of_each_class, measure=_counted, among=_counts_among)
    counts = divided(measured(columns, measure, f"{label}-counts", n=n), n)
    count = partial(aggregated, columns, _all_counted, label=f"{label}-each")
    return _made([*map(count, counts)], label)


def _columns(x: DaskArray) -> Columns:
    """Return the graph about a table, a single column whose chunks are parts."""
    return Columns(x, (0,), [(i, i + 1) for i in range(x.npartitions)], ordered=False)


def _made(classes: list[DaskArray], label: str) -> DaskArray:
    """Combine the groups of all classes in one object."""
    made = in_one_place(classes, _together, label, (0,))
    return objects(made.dask, made.name, (1,))


def _of_each_class(
    column: ChunkColumn,
    known: None,
    *,
    n: int,
    measure: Callable[[Keyed], tuple[Any, ...]],
    among: Callable[[Any, Sequence[int]], list[Any]],
) -> Any:
    """Measure each class of groups in a chunk; the result is that of `apart`."""
    (rows,) = column.chunks
    rows, order, ends = rows.in_order_of_class(n)
    names, measured = rows.names, measure(rows)
    values = [measured]
    if n > 1:
        values = [*zip(*(among(column, ends) for column in measured), strict=True)]
    first = order.astype(np.int32)
    return apart(
        [
            Class(names.take(np.arange(start, stop)), value, first[start:stop], len(names) > 0)
            for (start, stop), value in zip(itertools.pairwise(ends), values, strict=True)
        ]
    )


def _counts_among(counts: IntArray, edges: Sequence[int]) -> list[IntArray]:
    return [counts[first:last] for first, last in itertools.pairwise(edges)]


def _together(each: Sequence[KnownChunks]) -> Named:
    """Combine the groups of all classes in their order, with their answers."""
    parts: list[Class] = [part.value for part in each]
    if len(parts) == 1:
        return parts[0]
    first = np.concatenate([part.first for part in parts])
    order = np.argsort(first)
    keyed: Keyed = type(parts[0].names).joined([part.names for part in parts], order)
    if len(keyed.names) < len(order):
        raise TypeError(f"the same key has different dtypes in different partitions: {ADVICE}")
    source = np.empty(len(order), np.int64)
    source[keyed.codes] = order
    columns = zip(*(part.value for part in parts), strict=True)
    return Named(keyed.names, tuple(concatenate(column, -1)[..., source] for column in columns))


def _counted(rows: Keyed) -> tuple[IntArray, ...]:
    codes, n_groups = rows.codes, len(rows.names)
    takes = (codes[column & (codes >= 0)] for column in rows.columns)
    return tuple(np.bincount(each, minlength=n_groups).astype(np.int64) for each in takes)


def _all_counted(partials: Sequence[Class], known: None) -> Class:
    groups, places = Class.of(partials)
    totals = [np.zeros(len(groups.names), np.int64) for _ in partials[0].value]
    for part, at in zip(partials, places, strict=True):
        for total, counts in zip(totals, part.value, strict=True):
            total[at] += counts
    return replace(groups, value=tuple(totals))
