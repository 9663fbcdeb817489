"""Graph of a reduction along some axes that loads its source several times.

::

    source ──copy──> result of each part ──merge──> brackets ─┐   once or more
       └─────copy, waits for all brackets──> result of each part ──merge──> answer

A column is the set of chunks from which one chunk of the answer is made. It is read in parts, each
of as many chunks as fit. Each line above is a layer with one task for each part, or one for each
column.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_gpuselect.arrays import in_kind
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.graphs import merge_tree, objects
from dask_gpuselect.engine.grid import Homes, column, columns
from dask_gpuselect.engine.marks import (
    NO_MARKS,
    InColumn,
    KnownChunks,
    begun_marks,
    check_same,
    ended,
    joined,
    pieces_of,
)
from dask_gpuselect.engine.questions import Block, LaneLoad, LaneQuestion
from dask_gpuselect.engine.reads import Reader, Reads, several_if_needed
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
    merged,
    nothing,
    private_copy,
)
from dask_gpuselect.kernels.companions import ChunkColumn
from dask_gpuselect.quiet import quietly

Place = tuple[int, ...]
"""Place of a column in the grid of chunks: 0 along the reduced axes."""


@dataclass(frozen=True)
class Tasks:
    """A layer of tasks about every column of chunks, by their keys."""

    name: str
    keys: dict[Place, list[Key]]


@dataclass(frozen=True, eq=False)
class LaneRequest:
    """A question about every lane, with the form of the answer.

    Parameters
    ----------
    question : LaneQuestion
    label : str
        Prefix of the names of the layers.
    shape : AnswerAxes
        Axes of the answer. Not all axes of the data are reduced.
    dtype : dtype or None
        Dtype of the answer; None if each block of it is an object.
    marked : bool
        True if each block of the answer is a `KnownChunks`, for a caller that loads the array
        again.
    names : dask array, optional
        The labels of the groups, where their number is not known before.
    kind : array, optional
        Meta of the answer, for an array that is asked.
    """

    question: LaneQuestion
    label: str
    shape: AnswerAxes
    dtype: np.dtype[Any] | None
    marked: bool = False
    names: DaskArray | None = None
    kind: Any = None

    def answered(self, partials: Sequence[Any], known: Any, *, last: LaneLoad) -> Any:
        """Compute the answers from the last pass, or what a further load needs to know."""
        merged = last.merge(partials)
        made = None if self.question.loads.further else last.answers(merged, known)
        return self.resolved(last.finish([merged], known)) if made is None else made

    def resolved(self, order: Any) -> Any:
        """Compute the answers from order statistics, or what a further load needs to know."""
        further = self.question.loads.further
        return self.question.finished(order) if further is None else further.known(order)

    def made(self, answers: Any, marks: Any, block: Block) -> Any:
        """Return the block of the answer for a block of data of that shape, with marks if asked."""
        made = self.question.blocks.restored(answers, block, self.shape)
        made = made if self.kind.dtype.hasobject else in_kind(made, self.kind)
        return KnownChunks(made, marks) if self.marked else made


class Columns:
    """A graph about the columns of chunks of `x`, which grows by a layer with each call.

    Parameters
    ----------
    x : dask array
    axes : tuple of int
        Axes along which columns extend.
    parts : sequence of (int, int)
        First chunk and end (exclusive) of each part of a column.
    homes : tuple, optional
        The parts of each column, if columns differ: in place of `parts`.
    is_copy : bool
        True if `x` consists of the tasks of a `first_load` already, so that no copy is needed.
    about : object
        What partial results depend on besides chunks and arguments. Deterministically tokenizable.
    ordered : bool
        True if the positions of elements in a chunk matter; see `marks_of`.
    """

    def __init__(
        self,
        x: DaskArray,
        axes: tuple[int, ...],
        parts: Sequence[tuple[int, int]],
        *,
        homes: Homes = (),
        is_copy: bool = False,
        about: Any = None,
        ordered: bool = True,
    ) -> None:
        self.x, self.axes, self.is_copy = x, axes, is_copy
        self.ordered, self.homes = ordered, homes
        self.graph = Graph({}, {})
        self.places = columns(x, axes)
        whole = tuple(tuple(range(start, stop)) for start, stop in parts)
        each = homes or (whole,) * len(self.places)
        self.parts = dict(zip(self.places, each, strict=True))
        self.token = tokenize(axes, homes or whole, about, ordered)

    def measured(
        self,
        measure: Callable[..., Any],
        name: str,
        load: int,
        brackets: Tasks | None,
        *,
        is_numbered: bool = False,
        **arguments: Any,
    ) -> Tasks:
        """Apply ``measure(column, brackets, **arguments)`` to each part of a column.

        This is done for every column, in a load of the source that waits for all brackets. If
        `is_numbered`, `measure` also gets the `number` of the part.
        """
        source = self._source(load, brackets)
        above = brackets.name if brackets else None
        name = f"{name}-{tokenize(source.name, self.token, above, arguments)}"
        how: dict[str, Any] = {"measure": measure, "ordered": self.ordered}
        function = quietly(partial(measure_marked, **how, is_numbered=is_numbered))
        tasks: dict[Key, Task] = {}
        keys: dict[Place, list[Key]] = {}
        for place in self.places:
            known = TaskRef(brackets.keys[place][0]) if brackets else None
            chunks = [TaskRef((source.name, *chunk)) for chunk in column(self.x, self.axes, place)]
            keys[place] = [(name, *place, number) for number in range(len(self.parts[place]))]
            for number, (key, part) in enumerate(zip(keys[place], self.parts[place], strict=True)):
                about = self.x.dtype, self.axes, known, number
                taken = List(*(chunks[i] for i in part))
                tasks[key] = Task(key, function, taken, *about, **arguments)
        self._add(name, tasks, source.name, above)
        return Tasks(name, keys)

    def measured_unless(
        self, is_done: Callable[[Any], bool], measure: Callable[..., Any], name: str, known: Tasks
    ) -> Tasks:
        """Apply `measure` as `measured` does; read nothing, and return None, if `known` is enough.

        `is_done` tells that. There is a single column.
        """
        (place,), (key,) = self.places, next(iter(known.keys.values()))
        function = partial(_measured_unless, is_done=is_done, read=self.reading(measure))
        calls = [(TaskRef(key), i) for i in range(len(self.parts[place]))]
        given, wants = [objects(self.graph, known.name, ())], partial(_is_wanted, is_done)
        made = self.read_if_needed(function, name, given, calls, wants)
        self.graph = made.dask
        return Tasks(made.name, {place: [(made.name, i) for _, i in calls]})

    def reading(self, measure: Callable[..., Any]) -> Callable[..., KnownChunks]:
        """Return a function of the chunks of a part, and of what is `known`, that measures them."""
        about = {"dtype": self.x.dtype, "axes": self.axes, "ordered": self.ordered}
        return partial(measure_marked, measure=measure, **about)

    def read_if_needed(
        self,
        function: Callable[..., Any],
        name: str,
        given: Sequence[DaskArray],
        calls: Iterable[tuple[Any, ...]],
        wants: Callable[..., bool] | None = None,
    ) -> DaskArray:
        """Make a task for each part of the only column, which may read its chunks.

        It calls ``function(readers, *call)``; see `several_if_needed`.
        """
        (place,) = self.places
        chunks = [*column(self.x, self.axes, place)]
        of_parts = ([chunks[number] for number in part] for part in self.parts[place])
        each = ((part, *call) for part, call in zip(of_parts, calls, strict=True))
        return several_if_needed(function, name, Reads(self.x), given, each, wants)

    def merge(self, function: Callable[..., Any], partials: Tasks, every: int) -> Tasks:
        """Merge the partial results of each column to at most `every`, by ``function(results)``."""
        function = partial(KnownChunks.merge, function)
        name = f"quantile-lane-merge-{tokenize(partials.name, function, every)}"
        tasks: dict[Key, Task] = {}
        keys = {}
        for place, parts in partials.keys.items():
            keys[place], merges = merge_tree(parts, every, function, name, *place)
            tasks |= merges
        if not tasks:
            return partials
        self._add(name, tasks, partials.name)
        return Tasks(name, keys)

    def settle(
        self,
        function: Callable[..., Any],
        name: str,
        partials: Tasks,
        brackets: Tasks | None,
        request: LaneRequest | None = None,
    ) -> Tasks:
        """Apply ``function(partials, brackets)`` to each column.

        The results are for the next load, unless a request has them made into blocks of the answer.

        Raises, while computing, a `ChunksChangedError` that names the chunk if this load has read
        other elements than the load of the brackets.
        """
        tasks, keys = {}, {}
        for place, parts in partials.keys.items():
            known = TaskRef(brackets.keys[place][0]) if brackets else None
            index = place if request is None else request.shape.answer_place(place)
            key, given = (name, *index), List(*map(TaskRef, parts))
            about = function, known, self.place_of(place), self.block(place), request
            tasks[key] = Task(key, Step("reduce", quietly(settled)), given, *about)
            keys[place] = [key]
        self._add(name, tasks, partials.name, brackets.name if brackets else None)
        return Tasks(name, keys)

    # --- If there is a single column ---

    def objects(self, made: Tasks) -> DaskArray:
        """Return the results of tasks as a dask array of objects."""
        (keys,) = made.keys.values()
        return objects(self.graph, made.name, (*(1,) * self.x.ndim, len(keys)))

    def known(self, known: DaskArray) -> Tasks:
        """Take a result, one object, as what the next load needs to know."""
        self.graph = Graph.merge(self.graph, known.dask)
        return Tasks(known.name, {self.places[0]: [(known.name,)]})

    def _source(self, load: int, brackets: Tasks | None) -> DaskArray:
        """Return the chunks for a load, which share no tasks with those of another load."""
        if brackets is None:
            source = self.x if self.is_copy else first_load(self.x, self.axes)
        else:
            ready = f"{brackets.name}-ready"
            all_known = (TaskRef(key) for (key,) in brackets.keys.values())
            wait = Task((ready,), nothing, *all_known)
            self._add(ready, {(ready,): wait}, brackets.name)
            seed = f"load {load} after {brackets.name}"
            source = private_copy(self.x, seed, after=ready)
        if not self.is_copy or brackets is not None:
            source = in_one_task_each(source, self.x)
        self.graph = Graph.merge(self.graph, source.dask)
        return source

    def place_of(self, place: Place) -> InColumn:
        """Return the places of the chunks of a column, by their numbers in its parts."""
        order = itertools.chain.from_iterable(self.parts[place] if self.homes else ())
        own = self.x.numblocks, self.axes, place
        if not self.ordered and 0 not in self.axes:  # the first axis was added for the only lane
            own = self.x.numblocks[1:], tuple(axis - 1 for axis in self.axes), place[1:]
        return InColumn(*own, tuple(order))

    def block(self, place: Place) -> Place:
        """Return the shape of the first chunk of a column."""
        return tuple(sizes[i] for sizes, i in zip(self.x.chunks, place, strict=True))

    def _add(self, name: str, tasks: dict[Key, Task], *above: str | None) -> None:
        self.graph = extended(self.graph, name, tasks, {other for other in above if other})


def first_load(x: DaskArray, axes: tuple[int, ...]) -> DaskArray:
    """Return the chunks of the first load of columns that are read in parts.

    Questions about the same array along the same axes share them.
    """
    return private_copy(x, f"load 1 of {x.name} along {axes}")


def measure_marked(
    chunks: Sequence[Any],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    known: KnownChunks | None,
    number: int = 0,
    *,
    measure: Callable[..., Any],
    ordered: bool,
    is_numbered: bool = False,
    **arguments: Any,
) -> KnownChunks:
    """Compute a partial result about some chunks, with possibly unfinished fingerprints."""
    if is_numbered:
        arguments["number"] = number
    brackets = None if known is None else known.value
    column = ChunkColumn(pieces_of(chunks), dtype, axes)
    value = measure(column, brackets, **arguments)
    return KnownChunks(value, begun_marks(chunks, ordered=ordered))


def _is_wanted(is_done: Callable[[Any], bool], known: KnownChunks) -> bool:
    return not is_done(known.value)


def _measured_unless(
    readers: Sequence[Reader],
    known: KnownChunks,
    number: int,
    *,
    is_done: Callable[[Any], bool],
    read: Callable[..., KnownChunks],
) -> KnownChunks:
    if is_done(known.value):
        return KnownChunks(None, NO_MARKS if number else known.marks)  # all marks together
    return read([reader() for reader in readers], known=known)


def settled(
    parts: list[KnownChunks],
    function: Callable[..., Any],
    known: KnownChunks | None,
    place_of: InColumn,
    block: Place = (),
    request: LaneRequest | None = None,
) -> Any:
    """Apply a function to the partial results of a column; see `Columns.settle`."""
    marks = ended(joined(part.marks for part in parts))
    if known is not None:
        check_same(known.marks, marks, place_of)
    brackets = None if known is None else known.value
    value = function([part.value for part in parts], brackets)
    return KnownChunks(value, marks) if request is None else request.made(value, marks, block)


def side_by_side(
    answers: Sequence[DaskArray],
    axis: int,
    label: str,
    place_of: Callable[[Place], InColumn],
    join: Callable[[Sequence[Any], int], Any],
    *,
    marked: bool,
) -> DaskArray:
    """Join the answers about all slabs of every chunk, if all have read the same chunks.

    The answers are `KnownChunks`. For code that copies graphs, the result counts as an answer, like
    that of passes: if it is used several times, the slabs are not loaded again.

    Parameters
    ----------
    axis : int
        Axis of the answers along which chunks are cut into slabs.
    label : str
        Prefix of the name of the layer.
    place_of : callable
        Function from the place of a block of the answers to the places of its chunks.
    join : callable
        Function from blocks and an axis to one block.
    marked : bool
        True if each joined block is a `KnownChunks` as well.
    """
    name = f"{label}-{tokenize([answer.name for answer in answers], marked)}"
    tasks = {}
    for place in itertools.product(*map(range, answers[0].numblocks)):
        some = List(*(TaskRef((answer.name, *place)) for answer in answers))
        key = (name, *place)
        tasks[key] = Task(
            key, Step("reduce", _side_by_side), some, axis, place_of(place), join, marked
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
    marked: bool,
) -> Any:
    first, *others = blocks
    for other in others:
        check_same(first.marks, other.marks, place_of)
    answer = join([block.value for block in blocks], axis)
    return KnownChunks(answer, first.marks) if marked else answer
