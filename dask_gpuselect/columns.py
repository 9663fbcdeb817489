"""The graph of a reduction along some axes that loads its source several times.

::

    source ──copy──> report of each part ──merge──> brackets ─┐   once or more
       └─────copy, waits for all brackets──> report of each part ──merge──> answer

A column is all chunks that one chunk of the answer is made of. It is taken in parts, each of as
many chunks as fit, and each line is a layer with one task a part, or one a column.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
from dask._task_spec import List, Task, TaskRef
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph, Layer, MaterializedLayer

from dask_gpuselect.graphs import extended
from dask_gpuselect.source import AnswerLayer, Key, private_copy

Place = tuple[int, ...]
"""Of a column of chunks in the grid of all chunks, 0 along the reduced axes."""


@dataclass(frozen=True)
class Tasks:
    """Tasks about every column of chunks: their keys."""

    name: str
    keys: dict[Place, list[Key]]


class Columns:
    """A graph about the columns of chunks of `x`, growing by a layer with each call."""

    def __init__(
        self, x: da.Array, axes: tuple[int, ...], parts: Sequence[tuple[int, int]]
    ) -> None:
        self.x, self.axes, self.parts = x, axes, parts
        self.graph = HighLevelGraph({}, {})
        along = [range(1) if axis in axes else range(n) for axis, n in enumerate(x.numblocks)]
        self.places = list(itertools.product(*along))

    def report(
        self,
        measure: Callable[..., Any],
        name: str,
        load: int,
        brackets: Tasks | None,
        **arguments: Any,
    ) -> Tasks:
        """``measure(chunks, dtype, axes, brackets, **arguments)`` for each part of each column: a
        load of the source, which waits for all brackets."""
        source = self._source(load, brackets)
        above = brackets.name if brackets else None
        token = tokenize(source.name, self.axes, self.parts, above, arguments)
        name = f"{name}-{token}"
        tasks, keys = {}, {}
        for place in self.places:
            known = TaskRef(brackets.keys[place][0]) if brackets else None
            chunks = [TaskRef((source.name, *chunk)) for chunk in self._column(place)]
            keys[place] = [(name, *place, part) for part in range(len(self.parts))]
            for key, (start, stop) in zip(keys[place], self.parts, strict=True):
                part = List(*chunks[start:stop])
                tasks[key] = Task(key, measure, part, self.x.dtype, self.axes, known, **arguments)
        self._add(name, MaterializedLayer(tasks), source.name, above)
        return Tasks(name, keys)

    def merge(self, function: Callable[..., Any], reports: Tasks, every: int) -> Tasks:
        """At most `every` reports of each column, by ``function(reports)`` of so many."""
        while max(map(len, reports.keys.values())) > every:
            name = f"quantile-lane-merge-{tokenize(reports.name, function, every)}"
            tasks, keys = {}, {}
            for place, parts in reports.keys.items():
                starts = range(0, len(parts), every)
                keys[place] = [(name, *place, i) for i in range(len(starts))]
                for key, start in zip(keys[place], starts, strict=True):
                    some = map(TaskRef, parts[start : start + every])
                    tasks[key] = Task(key, function, List(*some))
            self._add(name, MaterializedLayer(tasks), reports.name)
            reports = Tasks(name, keys)
        return reports

    def settle(
        self,
        function: Callable[..., Any],
        name: str,
        reports: Tasks,
        brackets: Tasks | None,
        to_index: Callable[[Place], tuple[int, ...]] = tuple,
    ) -> Tasks:
        """``function(reports, brackets, shape of a chunk)`` for each column."""
        tasks, keys = {}, {}
        for place, parts in reports.keys.items():
            known = TaskRef(brackets.keys[place][0]) if brackets else None
            block = tuple(sizes[i] for sizes, i in zip(self.x.chunks, place, strict=True))
            key = (name, *to_index(place))
            tasks[key] = Task(key, function, List(*map(TaskRef, parts)), known, block)
            keys[place] = [key]
        self._add(name, AnswerLayer(tasks), reports.name, brackets.name if brackets else None)
        return Tasks(name, keys)

    def _source(self, load: int, brackets: Tasks | None) -> da.Array:
        """The chunks of a load. They share nothing with those of another."""
        if brackets is None:
            source = private_copy(self.x, f"load {load} of {self.x.name}")
        else:
            ready = f"{brackets.name}-ready"
            all_known = (TaskRef(key) for (key,) in brackets.keys.values())
            wait = Task((ready,), _nothing, *all_known)
            self._add(ready, MaterializedLayer({(ready,): wait}), brackets.name)
            seed = f"load {load} after {brackets.name}"
            source = private_copy(self.x, seed, after=(ready,), after_layer=ready)
        self.graph = HighLevelGraph.merge(self.graph, source.dask)
        return source

    def _column(self, place: Place) -> Iterator[Place]:
        """The chunks of a column, in C order."""
        return itertools.product(
            *(
                range(n) if axis in self.axes else (place[axis],)
                for axis, n in enumerate(self.x.numblocks)
            )
        )

    def _add(self, name: str, layer: Layer, *above: str | None) -> None:
        self.graph = extended(self.graph, name, layer, {other for other in above if other})


def _nothing(*_: Any) -> None:
    """What a task does that others wait for."""
