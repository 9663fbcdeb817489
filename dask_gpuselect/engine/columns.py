"""The graph of a reduction along some axes that loads its source several times.

::

    source ──copy──> report of each part ──merge──> brackets ─┐   once or more
       └─────copy, waits for all brackets──> report of each part ──merge──> answer

A column is all chunks that one chunk of the answer is made of. It is taken in parts, each of as
many chunks as fit, and each line is a layer with one task a part, or one a column.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_gpuselect.engine.graphs import merge_tree
from dask_gpuselect.engine.marks import (
    InColumn,
    KnownChunks,
    begun_marks,
    check_same,
    ended,
    joined,
    pieces_of,
)
from dask_gpuselect.engine.reads import Reads, task_if_needed
from dask_gpuselect.engine.source import (
    DaskArray,
    Graph,
    Key,
    List,
    Step,
    Task,
    TaskRef,
    extended,
    in_one_task_each,
    in_place,
    merged,
    nothing,
    private_copy,
)
from dask_gpuselect.quiet import quietly

logger = logging.getLogger("dask_gpuselect")

Place = tuple[int, ...]
"""Of a column of chunks in the grid of all chunks, 0 along the reduced axes."""


@dataclass(frozen=True)
class Tasks:
    """Tasks about every column of chunks: their keys."""

    name: str
    keys: dict[Place, list[Key]]


class Columns:
    """A graph about the columns of chunks of `x`, growing by a layer with each call.

    Parameters
    ----------
    x : dask array
    axes : tuple of int
        Along which columns go.
    parts : sequence of (int, int)
        First and last chunk, exclusive, of each part of a column.
    is_copy : bool
        Whether `x` is made of a `first_load` already, so that this takes no copy of it.
    about : object
        What reports depend on beside chunks and arguments. Deterministically tokenizable.
    ordered : bool
        Whether the places of elements in a chunk count; see `marks_of`.
    """

    def __init__(
        self,
        x: DaskArray,
        axes: tuple[int, ...],
        parts: Sequence[tuple[int, int]],
        *,
        is_copy: bool = False,
        about: Any = None,
        ordered: bool = True,
    ) -> None:
        self.x, self.axes, self.parts, self.is_copy = x, axes, parts, is_copy
        self.about, self.ordered = about, ordered
        self.graph = Graph({}, {})
        along = [range(1) if axis in axes else range(n) for axis, n in enumerate(x.numblocks)]
        self.places = list(itertools.product(*along))

    def report(
        self,
        measure: Callable[..., Any],
        name: str,
        load: int,
        brackets: Tasks | None,
        *,
        is_numbered: bool = False,
        **arguments: Any,
    ) -> Tasks:
        """``measure(chunks, dtype, axes, brackets, **arguments)`` for each part of each column: a
        load of the source, which waits for all brackets. If `is_numbered`, it is told the `number`
        of the part as well."""
        source = self._source(load, brackets)
        above = brackets.name if brackets else None
        token = tokenize(
            source.name, self.axes, self.parts, self.about, self.ordered, above, arguments
        )
        name = f"{name}-{token}"
        tasks, keys = {}, {}
        measure = partial(_measure_seen, measure=measure, ordered=self.ordered)
        for place in self.places:
            known = TaskRef(brackets.keys[place][0]) if brackets else None
            chunks = [TaskRef((source.name, *chunk)) for chunk in self._column(place)]
            keys[place] = [(name, *place, part) for part in range(len(self.parts))]
            for key, (start, stop) in zip(keys[place], self.parts, strict=True):
                part = List(*chunks[start:stop])
                number: dict[str, Any] = {"number": key[-1]} if is_numbered else {}
                told = (part, self.x.dtype, self.axes, known)
                tasks[key] = Task(key, quietly(measure), *told, **number, **arguments)
        self._add(name, tasks, source.name, above)
        return Tasks(name, keys)

    def report_unless(
        self,
        known_by: Callable[[Any, Any], Any],
        measure: Callable[..., Any],
        name: str,
        kept: Tasks,
        brackets: Tasks,
    ) -> Tasks:
        """For each part of each column ``known_by(kept, brackets)``, what an earlier load has kept
        of it; or ``measure(chunks, dtype, axes, brackets)`` where that is None: a load."""
        reads = Reads(self.x)
        tasks, keys = {}, {}
        read = partial(
            _measure_seen,
            dtype=self.x.dtype,
            axes=self.axes,
            measure=measure,
            ordered=self.ordered,
        )
        told = f"{name}: one of {len(self.places) * len(self.parts)} parts is read twice"
        function = partial(_known_or_read, known_by=known_by, measure=read, told=told)
        name = f"{name}-{tokenize(kept.name, brackets.name)}"
        for place in self.places:
            known = TaskRef(brackets.keys[place][0])
            of_chunks = [reads.of_places[chunk] for chunk in self._column(place)]
            keys[place] = [(name, *place, part) for part in range(len(self.parts))]
            each = zip(keys[place], self.parts, kept.keys[place], strict=True)
            for key, (start, stop), own in each:
                some = of_chunks[start:stop]
                tasks[key] = task_if_needed(key, function, some, TaskRef(own), known)
        held = in_place(self.x)
        graph = Graph.merge(self.graph, held)
        above = {kept.name, brackets.name, *held.layers}
        annotations = next(iter(reads.annotations), None)
        self.graph = extended(graph, name, tasks, above, annotations)
        return Tasks(name, keys)

    def merge(self, function: Callable[..., Any], reports: Tasks, every: int) -> Tasks:
        """At most `every` reports of each column, by ``function(reports)`` of so many."""
        function = partial(_merge_values, function)
        name = f"quantile-lane-merge-{tokenize(reports.name, function, every)}"
        tasks: dict[Key, Task] = {}
        keys = {}
        for place, parts in reports.keys.items():
            keys[place], merges = merge_tree(parts, every, function, name, *place)
            tasks |= merges
        if not tasks:
            return reports
        self._add(name, tasks, reports.name)
        return Tasks(name, keys)

    def lots(self, function: Callable[..., Any], reports: Tasks, most: int, every: int) -> Tasks:
        """``function(reports)`` of some neighbouring reports of each column, `every` or more at a
        time, so that there are at most so many lots."""
        function = partial(_merge_values, function)
        name = f"quantile-lots-{tokenize(reports.name, function, most, every)}"
        tasks: dict[Key, Task] = {}
        keys: dict[Place, list[Key]] = {}
        for place, parts in reports.keys.items():
            size = size_of_lots(len(parts), most, every)
            starts = range(0, len(parts), size)
            keys[place] = [(name, *place, i) for i in range(len(starts))]
            for key, start in zip(keys[place], starts, strict=True):
                some = List(*map(TaskRef, parts[start : start + size]))
                tasks[key] = Task(key, quietly(function), some)
        self._add(name, tasks, reports.name)
        return Tasks(name, keys)

    def each(
        self, function: Callable[..., Any], name: str, reports: Tasks, known: Sequence[Tasks]
    ) -> Tasks:
        """``function(report, *known)`` of each report, by what is settled about its column."""
        tasks: dict[Key, Task] = {}
        keys: dict[Place, list[Key]] = {}
        for place, parts in reports.keys.items():
            told = List(*(TaskRef(each.keys[place][0]) for each in known))
            keys[place] = [(name, *key[1:]) for key in parts]
            for key, part in zip(keys[place], parts, strict=True):
                tasks[key] = Task(key, quietly(_of_report), function, TaskRef(part), told)
        self._add(name, tasks, reports.name, *(each.name for each in known))
        return Tasks(name, keys)

    def divide(self, reports: Tasks, n: int) -> list[Tasks]:
        """The `n` items of each report, apart; the reports themselves if there are no items."""
        if n == 1:
            return [reports]
        found = []
        for i in range(n):
            name = f"{reports.name}-{i}"
            keys = {
                place: [(name, *key[1:]) for key in parts] for place, parts in reports.keys.items()
            }
            tasks = {
                (name, *key[1:]): Task((name, *key[1:]), _item, TaskRef(key), i)
                for parts in reports.keys.values()
                for key in parts
            }
            self._add(name, tasks, reports.name)
            found.append(Tasks(name, keys))
        return found

    def gather(
        self,
        function: Callable[..., Any],
        name: str,
        parts: Sequence[Tasks],
        to_index: Callable[[Place], tuple[int, ...]] = tuple,
        *,
        seen: bool = True,
    ) -> Tasks:
        """``function(values)`` of what is settled about each column in several tasks, which have
        seen the same chunks."""
        tasks, keys = {}, {}
        for place in self.places:
            key = (name, *to_index(place))
            given = List(*(TaskRef(each.keys[place][0]) for each in parts))
            tasks[key] = Task(key, Step("reduce", quietly(_gathered)), function, given, seen)
            keys[place] = [key]
        self._add(name, tasks, *(each.name for each in parts))
        return Tasks(name, keys)

    def settle(
        self,
        function: Callable[..., Any],
        name: str,
        reports: Tasks,
        brackets: Tasks | None,
        to_index: Callable[[Place], tuple[int, ...]] = tuple,
        *,
        seen: bool = True,
    ) -> Tasks:
        """``function(reports, brackets, shape of a chunk)`` for each column: with the marks of its
        chunks if so `seen`, as the next load needs it.

        Raises, while computing, a `ChunksChangedError` that names the chunk if this load has seen
        others than the one of the brackets.
        """
        tasks, keys = {}, {}
        for place, parts in reports.keys.items():
            known = TaskRef(brackets.keys[place][0]) if brackets else None
            block = tuple(sizes[i] for sizes, i in zip(self.x.chunks, place, strict=True))
            key = (name, *to_index(place))
            named = InColumn(self.x.numblocks, self.axes, place)
            given = List(*map(TaskRef, parts))
            told = (function, given, known, block, named, seen)
            tasks[key] = Task(key, Step("reduce", quietly(_settled)), *told)
            keys[place] = [key]
        self._add(name, tasks, reports.name, brackets.name if brackets else None)
        return Tasks(name, keys)

    def lazy(self, made: Tasks, chunks: Any, meta: Any) -> DaskArray:
        """The array whose blocks are these tasks, which are named as it is."""
        return DaskArray(self.graph, made.name, chunks, meta=meta)

    def _source(self, load: int, brackets: Tasks | None) -> DaskArray:
        """The chunks of a load. They share nothing with those of another."""
        if brackets is None:
            source = self.x if self.is_copy else first_load(self.x, self.axes)
        else:
            ready = f"{brackets.name}-ready"
            all_known = (TaskRef(key) for (key,) in brackets.keys.values())
            wait = Task((ready,), nothing, *all_known)
            self._add(ready, {(ready,): wait}, brackets.name)
            seed = f"load {load} after {brackets.name}"
            source = private_copy(self.x, seed, after=(ready,), after_layer=ready)
        if not self.is_copy or brackets is not None:
            source = in_one_task_each(source, self.x)
        self.graph = Graph.merge(self.graph, source.dask)
        return source

    def _column(self, place: Place) -> Iterator[Place]:
        """The chunks of a column, in C order."""
        return itertools.product(
            *(
                range(n) if axis in self.axes else (place[axis],)
                for axis, n in enumerate(self.x.numblocks)
            )
        )

    def _add(self, name: str, tasks: dict[Key, Task], *above: str | None) -> None:
        self.graph = extended(self.graph, name, tasks, {other for other in above if other})


def size_of_lots(n: int, most: int, every: int) -> int:
    """How many of `n` reports go to each lot of `Columns.lots`."""
    return max(every, -(-n // most))


def first_load(x: DaskArray, axes: tuple[int, ...]) -> DaskArray:
    """The chunks of the first load of columns that are taken in parts. Questions about the same
    array along the same axes share it."""
    return private_copy(x, f"load 1 of {x.name} along {axes}")


def _measure_seen(
    chunks: Sequence[Any],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    known: KnownChunks | None,
    *,
    measure: Callable[..., Any],
    ordered: bool,
    **arguments: Any,
) -> KnownChunks:
    """A report about some chunks, with their marks, for which it does not wait."""
    brackets = None if known is None else known.value
    report = measure(pieces_of(chunks), dtype, axes, brackets, **arguments)
    return KnownChunks(report, begun_marks(chunks, ordered=ordered))


def _known_or_read(
    read: Callable[[], Sequence[Any]],
    kept: KnownChunks,
    known: KnownChunks,
    *,
    known_by: Callable[[Any, Any], Any],
    measure: Callable[..., KnownChunks],
    told: str,
) -> KnownChunks:
    found = known_by(kept.value, known.value)
    if found is not None:
        return KnownChunks(found, kept.marks)
    logger.debug(told)
    return measure(read(), known=known)


def _merge_values(function: Callable[..., Any], parts: list[KnownChunks]) -> KnownChunks:
    return KnownChunks.merge(function, parts)


def _of_report(
    function: Callable[..., Any], report: KnownChunks, known: list[KnownChunks]
) -> KnownChunks:
    return KnownChunks(function(report.value, *(each.value for each in known)), report.marks)


def _item(report: KnownChunks, i: int) -> KnownChunks:
    return KnownChunks(report.value[i], report.marks)


def _gathered(function: Callable[..., Any], parts: list[KnownChunks], seen: bool) -> Any:
    value = function([part.value for part in parts])
    return KnownChunks(value, parts[0].marks) if seen else value


def _settled(
    function: Callable[..., Any],
    parts: list[KnownChunks],
    known: KnownChunks | None,
    block: tuple[int, ...],
    place_of: InColumn,
    seen: bool,
) -> Any:
    marks = ended(joined(part.marks for part in parts))
    if known is not None:
        check_same(known.marks, marks, place_of)
    brackets = None if known is None else known.value
    value = function([part.value for part in parts], brackets, block)
    return KnownChunks(value, marks) if seen else value


def side_by_side(
    answers: Sequence[DaskArray],
    axis: int,
    label: str,
    place_of: Callable[[Place], InColumn],
    join: Callable[[Sequence[Any], int], Any],
    *,
    seen: bool,
) -> DaskArray:
    """The answers for all slabs of every chunk together, each a `Seen`, if all have seen the same
    chunks.

    An answer to whoever copies graphs, like that of passes: what uses it several times does not
    load the slabs again.

    Parameters
    ----------
    axis : int
        Of the answers, along which chunks are cut.
    label : str
        For the name of the layer.
    place_of : callable
        From a block of the answers to the places of its chunks.
    join : callable
        Of blocks and an axis, to one block.
    seen : bool
        Whether each block is a `Seen` too.
    """
    name = f"{label}-{tokenize([answer.name for answer in answers], seen)}"
    tasks = {}
    for place in itertools.product(*map(range, answers[0].numblocks)):
        some = List(*(TaskRef((answer.name, *place)) for answer in answers))
        key = (name, *place)
        tasks[key] = Task(
            key, Step("reduce", _side_by_side), some, axis, place_of(place), join, seen
        )
    graph = extended(merged(*answers), name, tasks, {answer.name for answer in answers})
    sizes = tuple(map(sum, zip(*(answer.chunks[axis] for answer in answers), strict=True)))
    first = answers[0]
    chunks = (*first.chunks[:axis], sizes, *first.chunks[axis + 1 :])
    return DaskArray(graph, name, chunks, meta=first._meta)


def _side_by_side(
    blocks: list[KnownChunks],
    axis: int,
    place_of: InColumn,
    join: Callable[[Sequence[Any], int], Any],
    seen: bool,
) -> Any:
    first, *others = blocks
    for other in others:
        check_same(first.marks, other.marks, place_of)
    answer = join([block.value for block in blocks], axis)
    return KnownChunks(answer, first.marks) if seen else answer
