"""Groups of the rows of a table: order statistics of all columns in two loads that these share, and
what the groups are called with them.

::

    source ──copy──> cuts of each column ──> names of all groups, brackets of each column ─┐
       └────copy, waits for these──> tallies ──> names, and the answer about each column ──┘

A chunk numbers its groups by itself and says what it calls them. So labels of any kind, of any
number of columns, are compared once for each load of a chunk, whatever is asked of how many
columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.engine.columns import Columns
from dask_gpuselect.engine.graphs import objects
from dask_gpuselect.engine.group_elements import Named, codes_of_names
from dask_gpuselect.engine.marks import Slab
from dask_gpuselect.engine.questions import Block, LaneQuestion
from dask_gpuselect.engine.source import DaskArray, blockwise
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


class Names(Protocol):
    """What some groups are called, each once."""

    def __len__(self) -> int: ...

    def places(self, others: Self) -> IntArray:
        """Where others are among these, -1 for those that are not."""

    @classmethod
    def union(cls, parts: Sequence[Self]) -> Self:
        """Those of all parts, each once, in the order of answers."""

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
class Rows:
    """A chunk of a table: the groups of its rows, and columns of as many elements."""

    keyed: Keyed
    columns: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        return self.keyed.__sizeof__() + sum(int(column.nbytes) for column in self.columns)

    def of_column(self, i: int, codes: NDArray[np.int32]) -> Accompanied:
        """A column whose elements have these numbers of groups."""
        column = self.columns[i]
        keeps = column.keeps if isinstance(column, Accompanied) else None
        return Accompanied(values_of(column), keeps, labels=codes)

    @property
    def mark(self) -> int:
        """That by which two loads are known to have read the same."""
        whole = (self.keyed.codes, self.keyed.names.hashes(), *self.columns)
        return kernels.fingerprint(np.array(list(map(kernels.fingerprint, whole)), np.uint64))


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
    rows = Rows(keyed, columns)
    return Slab(rows, rows.mark)


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

    def cuts(
        self, chunks: Sequence[Rows], dtype: object, axes: tuple[int, ...], known: None
    ) -> Named:
        """Of each column in a chunk."""
        (rows,) = chunks
        codes, names = rows.keyed.codes, rows.keyed.names
        found = []
        for i, (question, own) in enumerate(zip(self.questions, self.dtypes, strict=True)):
            column, share = rows.of_column(i, codes), pivot_share(question.n_answers)
            found.append(kernels.group_cuts([column], own, ITSELF, len(names), share))
        return Named(names, tuple(found))

    def bracketed(self, reports: Sequence[Named], known: None, block: Block) -> Named:
        """All groups, and their brackets in each column."""
        names: Any = type(reports[0].names).union([report.names for report in reports])
        places = [names.places(report.names).astype(np.int32) for report in reports]
        brackets = []
        for i, question in enumerate(self.questions):
            cuts: list[GroupCuts] = [report.value[i] for report in reports]
            cuts = [replace(c, groups=p[c.groups]) for c, p in zip(cuts, places, strict=True)]
            brackets.append(find_group_brackets(cuts, len(names), question.order.lane_ranks))
        return Named(names, tuple(brackets))

    def tally(
        self, chunks: Sequence[Rows], dtype: object, axes: tuple[int, ...], known: Named
    ) -> tuple[GroupTally, ...]:
        """Of each column in a chunk."""
        (rows,) = chunks
        codes = numbered(rows.keyed, known.names)
        brackets: tuple[GroupBrackets, ...] = known.value
        return tuple(
            kernels.group_tally([rows.of_column(i, codes)], own, ITSELF, of_column)
            for i, (own, of_column) in enumerate(zip(self.dtypes, brackets, strict=True))
        )

    def answered(
        self, reports: Sequence[tuple[GroupTally, ...]], known: Named, block: Block
    ) -> Named:
        """All groups, and the answers ``(n_answers, n_groups)`` about each column."""
        answers = []
        for i, question in enumerate(self.questions):
            found = kernels.found_in_groups([report[i] for report in reports], known.value[i])
            answers.append(question.finished(found))
        return Named(known.names, tuple(answers))


def numbered(keyed: Keyed, names: Names) -> NDArray[np.int32]:
    """For each row of a chunk the number of its group among all. A group that an earlier load has
    not seen is none of them: the marks of the chunk tell."""
    places = np.append(names.places(keyed.names), -1).astype(np.int32)
    return places[keyed.codes]


def ask_table(x: DaskArray, question: GroupedColumns, label: str) -> DaskArray:
    """The lazy answer, an object: `GroupedColumns.answered`, by two loads of a `table`."""
    columns = _columns(x)
    token = tokenize(x.name, question)
    cuts = columns.report(question.cuts, f"{label}-cuts", 1, None)
    brackets = columns.settle(question.bracketed, f"{label}-bracket-{token}", cuts, None)
    tallies = columns.report(question.tally, f"{label}-candidates", 2, brackets)
    made = columns.settle(question.answered, f"{label}-{token}", tallies, brackets, seen=False)
    return objects(columns.graph, made.name, (1,))


def ask_counts(x: DaskArray, label: str) -> DaskArray:
    """How many elements of each group take part, in each column of a `table`, by one load: an
    object, `Named` with a count for each group of each column."""
    columns = _columns(x)
    counts = columns.report(_counted, f"{label}-counts", 1, None)
    made = columns.settle(_all_counted, f"{label}-{tokenize(x.name)}", counts, None, seen=False)
    return objects(columns.graph, made.name, (1,))


def _columns(x: DaskArray) -> Columns:
    """The only column of chunks, each by itself."""
    return Columns(x, (0,), [(i, i + 1) for i in range(x.npartitions)])


def _counted(chunks: Sequence[Rows], dtype: object, axes: tuple[int, ...], known: None) -> Named:
    (rows,) = chunks
    codes, names = rows.keyed.codes, rows.keyed.names
    counts = []
    for column in rows.columns:
        takes = codes[column & (codes >= 0)]
        counts.append(np.bincount(takes, minlength=len(names)).astype(np.int64))
    return Named(names, tuple(counts))


def _all_counted(reports: Sequence[Named], known: None, block: Block) -> Named:
    names: Any = type(reports[0].names).union([report.names for report in reports])
    totals = [np.zeros(len(names), np.int64) for _ in reports[0].value]
    for report in reports:
        places = names.places(report.names)
        for total, counts in zip(totals, report.value, strict=True):
            total[places] += counts
    return Named(names, tuple(totals))
