"""Groups of the rows of a table: order statistics of all columns in two loads that these share, and
what the groups are called with them.

::

    source ──copy──> cuts of each column ──> names of some groups, brackets of each column ─┐
       │                                 ──> those of other groups ─────────────────────────┤
       └────copy, waits for these──> tallies ──> answers about some groups ──┬──> names,    │
                                             ──> those about others ─────────┘    answers ──┘

A chunk numbers its groups by itself and says what it calls them. So labels of any kind, of any
number of columns, are compared once for each load of a chunk, whatever is asked of how many
columns.

Where reports may exceed `root-limit`, groups are divided among several roots. Which root a group
comes to is told by its name alone, its *class*, for no chunk knows the groups of the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import concatenate
from dask_gpuselect.engine import settings
from dask_gpuselect.engine.columns import Columns, Tasks
from dask_gpuselect.engine.graphs import objects
from dask_gpuselect.engine.group_values import Named, codes_of_names
from dask_gpuselect.engine.marks import Slab
from dask_gpuselect.engine.questions import Block, LaneQuestion
from dask_gpuselect.engine.source import DaskArray, blockwise
from dask_gpuselect.kernels import fingerprints
from dask_gpuselect.kernels.companions import Accompanied, values_of
from dask_gpuselect.maths.cuts import Arrays, IntArray
from dask_gpuselect.maths.group_cuts import (
    GroupBrackets,
    GroupCuts,
    GroupTally,
    find_group_brackets,
)
from dask_gpuselect.maths.sizes import pivot_share

ITSELF = codes_of_names(None)

# Reports take at most about so many times the bytes of the rows: of keys and columns of eight bytes
# and one row a group 32 bytes for each 16.
REPORTED = 2
# Reports that are handed on, at most: each is a task, for each class of each chunk and load.
MOST_REPORTS = 1 << 14
MOST_ROOTS = 64
# Rows for each group from which on a chunk is looked at once for all classes.
ROWS_OF_EACH = 64

NO_NAME = np.uint64(0x9E3779B97F4A7C15)  # the hash of rows that are in no group

ADVICE = "convert it to one dtype first, df.astype({key: ...})"


class Names(Protocol):
    """What some groups are called, each once."""

    def __len__(self) -> int: ...

    def places(self, others: Self) -> IntArray:
        """Where others are among these, -1 for those that are not."""

    @classmethod
    def union(cls, parts: Sequence[Self]) -> Self:
        """Those of all parts, each once, in the order of answers."""

    def take(self, places: IntArray) -> Self:
        """Those at some places."""

    def classes(self, n: int) -> NDArray[np.uint16]:
        """For each name its class, one of `n`: the same for equal names, in every chunk."""

    @classmethod
    def joined(cls, parts: Sequence[Self], order: IntArray) -> Keyed:
        """The names of all parts in the order of answers, and for each name its place among them.

        Parameters
        ----------
        parts : sequence of Names
            That have no name in common.
        order : ndarray of int64
            The places of the names, one part behind the other, in the order of appearance.
        """

    def hashes(self) -> NDArray[np.uint64]:
        """A number for each that tells it from others."""


@dataclass(frozen=True, eq=False)
class Keyed(Arrays):
    """The groups of the rows of a chunk.

    Parameters
    ----------
    codes : ndarray of int32
        For each row the number of its group, -1 for none.
    names : Names
        Of the groups in the chunk, by their numbers.
    """

    codes: NDArray[np.int32]
    names: Any


@dataclass(frozen=True, eq=False)
class KeyedRows:
    """A chunk of a table: the groups of its rows, and columns of as many elements."""

    keyed: Keyed
    columns: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        return self.keyed.__sizeof__() + sum(int(column.nbytes) for column in self.columns)

    def by_class(self, n: int) -> Iterator[tuple[IntArray, KeyedRows]]:
        """The rows whose groups are in each of `n` classes, one class at a time; and where the
        names of these groups are among all."""
        codes, names = self.keyed.codes, self.keyed.names
        if n == 1:
            yield np.arange(len(names)), self
            return
        class_of = names.classes(n)
        order, ends = _dealt(class_of, n)
        numbers = np.empty(len(names), np.int32)
        for start, stop in itertools.pairwise(ends):
            numbers[order[start:stop]] = np.arange(stop - start)
        # Rows without a group are behind those of the last class.
        rows, row_ends = _dealt(np.append(class_of, np.uint16(n))[codes], n)
        stretches = zip(itertools.pairwise(ends), itertools.pairwise(row_ends), strict=True)
        for of_names, of_rows in stretches:
            at, own = order[slice(*of_names)], rows[slice(*of_rows)]
            keyed = Keyed(numbers[codes[own]], names.take(at))
            yield at, KeyedRows(keyed, tuple(column[own] for column in self.columns))

    def are_many(self, n_groups: int) -> bool:
        """Whether there are so many rows that they are looked at once for all classes of so many
        groups. 1e8 rows of 10 keys take 6.3 s so, and 8.2 to 8.7 class by class."""
        return len(self.keyed.codes) >= ROWS_OF_EACH * n_groups

    def in_order_of_class(self, n: int) -> tuple[KeyedRows, IntArray, list[int]]:
        """The same rows, their groups numbered one class after the other; where the names of these
        were, and where classes begin, and the last ends."""
        codes, names = self.keyed.codes, self.keyed.names
        order, ends = _dealt(names.classes(n), n)
        numbers = np.full(len(names) + 1, -1, np.int32)  # the last of rows without a group
        numbers[order] = np.arange(len(names))
        return replace(self, keyed=Keyed(numbers[codes], names.take(order))), order, ends

    def of_column(self, i: int, codes: NDArray[np.int32]) -> Accompanied:
        """A column whose elements have these numbers of groups."""
        column = self.columns[i]
        keeps = column.keeps if isinstance(column, Accompanied) else None
        return Accompanied(values_of(column), keeps, labels=codes)

    @property
    def mark(self) -> int:
        """That by which two loads are known to have read the same rows, in any order: names count,
        and their numbers do not."""
        hashes = np.append(self.keyed.names.hashes(), NO_NAME)
        return fingerprints.fingerprint_of_rows([hashes[self.keyed.codes], *self.columns])


def _dealt(class_of: NDArray[np.uint16], n: int) -> tuple[IntArray, list[int]]:
    """The places of each of `n` classes, one class behind the other; and where classes begin, and
    the last ends."""
    counts = np.bincount(class_of, minlength=n)[:n]
    return np.argsort(class_of, kind="stable"), [0, *np.cumsum(counts).tolist()]


def table(keys: DaskArray, columns: Sequence[DaskArray]) -> DaskArray:
    """Columns whose rows are in groups as one array, which is loaded as a whole.

    Parameters
    ----------
    keys : dask array
        Its chunks are `Keyed`.
    columns : sequence of dask arrays
        One-dimensional, of the same chunks.
    """
    pairs = (each for column in (keys, *columns) for each in (column, (0,)))
    found: DaskArray = blockwise(
        _rows,
        (0,),
        *pairs,
        name=f"rows-{tokenize(keys.name, [column.name for column in columns])}",
        align_arrays=False,
        dtype=object,
        meta=np.empty(0, object),
    )
    return found


def _rows(keyed: Keyed, *columns: Any) -> Slab:
    rows = KeyedRows(keyed, columns)
    return Slab(rows, rows.mark)


@dataclass(frozen=True, eq=False)
class OfClass(Named):
    """What a chunk reports of the groups of a class.

    Parameters
    ----------
    at : ndarray of int32
        Where each name is among all of the chunk.
    n_names : int
        Of the chunk.
    """

    at: NDArray[np.int32]
    n_names: int

    def __sizeof__(self) -> int:
        return super().__sizeof__() + self.at.nbytes


@dataclass(frozen=True, eq=False)
class Class(Named):
    """What is known of the groups of a class.

    Parameters
    ----------
    first : ndarray of int64
        Ascending in the order in which groups appear, of all classes.
    """

    first: IntArray

    def __sizeof__(self) -> int:
        return super().__sizeof__() + self.first.nbytes

    @classmethod
    def of(cls, reports: Sequence[OfClass]) -> tuple[Class, list[IntArray]]:
        """The groups that some chunks report, nothing else known of them; and the places of each
        chunk's among them.

        Raises, while computing, a `TypeError` if the names of a chunk are not among those of all:
        so it is where pandas does not compare dtypes, as bools with integers.
        """
        # A chunk without groups has no say in what dtype the names of all have.
        given = [report.names for report in reports if report.n_names] or [reports[0].names]
        names: Any = type(given[0]).union(given)
        places = [names.places(report.names) for report in reports]
        if any((each < 0).any() for each in places):
            raise TypeError(f"a key has different dtypes in different partitions: {ADVICE}")
        first = np.zeros(len(names), np.int64)
        for chunk in reversed(range(len(reports))):
            first[places[chunk]] = (chunk << 32) + reports[chunk].at.astype(np.int64)
        return cls(names, (), first), places


@dataclass(frozen=True)
class GroupedColumns:
    """What is asked of every group of each column of a table.

    Parameters
    ----------
    questions : tuple of LaneQuestion
        For each column the one that is asked of a group as of a lane; order statistics answer it.
    dtypes : tuple of dtype
        Of the columns.
    """

    questions: tuple[LaneQuestion, ...]
    dtypes: tuple[np.dtype[Any], ...]

    def cuts(self, rows: KeyedRows) -> tuple[GroupCuts, ...]:
        """Of each column."""
        codes, n_groups = rows.keyed.codes, len(rows.keyed.names)
        return tuple(
            kernels.group_cuts(
                [rows.of_column(i, codes)], own, ITSELF, n_groups, pivot_share(question.n_answers)
            )
            for i, (question, own) in enumerate(zip(self.questions, self.dtypes, strict=True))
        )

    def bracketed(self, reports: Sequence[OfClass], known: None, block: Block) -> Class:
        """All groups of a class, and their brackets in each column."""
        found, places = Class.of(reports)
        codes = [each.astype(np.int32) for each in places]
        brackets = []
        for i, question in enumerate(self.questions):
            cuts: list[GroupCuts] = [report.value[i] for report in reports]
            cuts = [replace(c, groups=p[c.groups]) for c, p in zip(cuts, codes, strict=True)]
            ranks = question.order.lane_ranks
            brackets.append(find_group_brackets(cuts, len(found.names), ranks))
        return replace(found, value=tuple(brackets))

    def tally(
        self,
        chunks: Sequence[KeyedRows],
        dtype: object,
        axes: tuple[int, ...],
        known: tuple[Class, ...],
    ) -> Any:
        """Of each column in a chunk; those of each class, if there are several."""
        (rows,) = chunks
        if len(known) > 1 and rows.are_many(sum(len(each.names) for each in known)):
            return self._tally_at_once(rows, known)
        pairs = zip(rows.by_class(len(known)), known, strict=True)
        return apart([self._tally(own, one) for (_, own), one in pairs])

    def _tally_at_once(
        self, rows: KeyedRows, known: Sequence[Class]
    ) -> list[tuple[GroupTally, ...]]:
        """The tallies of all classes, by one look at each column."""
        rows, _, ends = rows.in_order_of_class(len(known))
        names = rows.keyed.names
        edges = [0, *itertools.accumulate(len(each.names) for each in known)]
        places = np.full(len(names) + 1, -1, np.int32)
        for one, edge, (start, stop) in zip(
            known, edges[:-1], itertools.pairwise(ends), strict=True
        ):
            found = one.names.places(names.take(np.arange(start, stop)))
            places[start:stop] = np.where(found < 0, -1, found + edge)
        codes = places[rows.keyed.codes]
        columns = []
        for i, own in enumerate(self.dtypes):
            brackets = GroupBrackets.merge([each.value[i] for each in known])
            tally = kernels.group_tally([rows.of_column(i, codes)], own, ITSELF, brackets)
            columns.append(tally.among(brackets, edges))
        return list(zip(*columns, strict=True))

    def _tally(self, rows: KeyedRows, known: Class) -> tuple[GroupTally, ...]:
        codes = numbered(rows.keyed, known.names)
        brackets: tuple[GroupBrackets, ...] = known.value
        return tuple(
            kernels.group_tally([rows.of_column(i, codes)], own, ITSELF, of_column)
            for i, (own, of_column) in enumerate(zip(self.dtypes, brackets, strict=True))
        )

    def answered(
        self, reports: Sequence[tuple[GroupTally, ...]], known: Class, block: Block
    ) -> Class:
        """All groups of a class, and the answers ``(n_answers, n_groups)`` about each column."""
        answers = []
        for i, question in enumerate(self.questions):
            found = kernels.found_in_groups([report[i] for report in reports], known.value[i])
            answers.append(question.finished(found))
        return replace(known, value=tuple(answers))


def numbered(keyed: Keyed, names: Names) -> NDArray[np.int32]:
    """For each row of a chunk the number of its group among all. A group that an earlier load has
    not seen is none of them: the marks of the chunk tell."""
    places = np.append(names.places(keyed.names), -1).astype(np.int32)
    return places[keyed.codes]


def apart(reports: list[Any]) -> Any:
    """Reports of several classes as `Columns.divide` takes them: a single one is no list."""
    return reports if len(reports) > 1 else reports[0]


def classes_of(x: DaskArray) -> int:
    """How many classes the groups of a `table` are in, each with a root of its own.

    Nobody knows how many rows a chunk has, or how many groups. So a chunk counts as one of the size
    that dask makes, and each row of it as a group.
    """
    reported = REPORTED * settings.chunk_bytes() * int(x.npartitions)
    wanted = -(-reported // max(settings.n_bytes("root-limit"), 1))
    return max(min(wanted, MOST_ROOTS, MOST_REPORTS // int(x.npartitions)), 1)


def ask_table(x: DaskArray, question: GroupedColumns, label: str) -> DaskArray:
    """The lazy answer, an object: names and `GroupedColumns.answered`, by two loads of a
    `table`."""
    columns, n = _columns(x), classes_of(x)
    token = tokenize(x.name, question, n)
    cuts = partial(_of_each_class, measure=question.cuts, among=GroupCuts.among)
    reports = columns.report(cuts, f"{label}-cuts", 1, None, n=n)
    brackets = _settled(columns, question.bracketed, f"{label}-bracket", token, reports, [None] * n)
    known = columns.gather(tuple, f"{label}-bracket-{token}", brackets)
    tallies = columns.report(question.tally, f"{label}-candidates", 2, known)
    found = _settled(columns, question.answered, f"{label}-groups", token, tallies, brackets)
    made = columns.gather(_together, f"{label}-{token}", found, seen=False)
    return objects(columns.graph, made.name, (1,))


def ask_counts(x: DaskArray, label: str) -> DaskArray:
    """How many elements of each group take part, in each column of a `table`, by one load: an
    object, `Named` with a count for each group of each column."""
    columns, n = _columns(x), classes_of(x)
    token = tokenize(x.name, n)
    counts = partial(_of_each_class, measure=_counted, among=_counts_among)
    reports = columns.report(counts, f"{label}-counts", 1, None, n=n)
    found = _settled(columns, _all_counted, f"{label}-groups", token, reports, [None] * n)
    made = columns.gather(_together, f"{label}-{token}", found, seen=False)
    return objects(columns.graph, made.name, (1,))


def _columns(x: DaskArray) -> Columns:
    """The only column of chunks, each by itself."""
    return Columns(x, (0,), [(i, i + 1) for i in range(x.npartitions)], ordered=False)


def _settled(
    columns: Columns,
    function: Callable[..., Class],
    label: str,
    token: str,
    reports: Tasks,
    known: Sequence[Tasks | None],
) -> list[Tasks]:
    """What is settled about each class, by what is known of it."""
    pairs = zip(columns.divide(reports, len(known)), known, strict=True)
    return [
        columns.settle(function, f"{label}-{i}-{token}", each, own)
        for i, (each, own) in enumerate(pairs)
    ]


def _of_each_class(
    chunks: Sequence[KeyedRows],
    dtype: object,
    axes: tuple[int, ...],
    known: None,
    *,
    n: int,
    measure: Callable[[KeyedRows], tuple[Any, ...]],
    among: Callable[[Any, Sequence[int]], list[Any]],
) -> Any:
    """What is measured of each class of groups in a chunk; see `apart`."""
    (rows,) = chunks
    n_names = len(rows.keyed.names)
    if n == 1 or not rows.are_many(n_names):
        each = [(own.keyed.names, measure(own), at) for at, own in rows.by_class(n)]
    else:
        rows, order, ends = rows.in_order_of_class(n)
        values = zip(*(among(column, ends) for column in measure(rows)), strict=True)
        each = [
            (rows.keyed.names.take(np.arange(start, stop)), value, order[start:stop])
            for (start, stop), value in zip(itertools.pairwise(ends), values, strict=True)
        ]
    return apart([OfClass(names, value, at.astype(np.int32), n_names) for names, value, at in each])


def _counts_among(counts: IntArray, edges: Sequence[int]) -> list[IntArray]:
    return [counts[first:last] for first, last in itertools.pairwise(edges)]


def _together(parts: Sequence[Class]) -> Named:
    """The groups of all classes in their order, and the answers about them."""
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


def _counted(rows: KeyedRows) -> tuple[IntArray, ...]:
    codes, n_groups = rows.keyed.codes, len(rows.keyed.names)
    takes = (codes[column & (codes >= 0)] for column in rows.columns)
    return tuple(np.bincount(each, minlength=n_groups).astype(np.int64) for each in takes)


def _all_counted(reports: Sequence[OfClass], known: None, block: Block) -> Class:
    found, places = Class.of(reports)
    totals = [np.zeros(len(found.names), np.int64) for _ in reports[0].value]
    for report, at in zip(reports, places, strict=True):
        for total, counts in zip(totals, report.value, strict=True):
            total[at] += counts
    return replace(found, value=tuple(totals))
