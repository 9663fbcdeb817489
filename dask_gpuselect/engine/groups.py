"""Groups of the elements of every lane: a question about lanes is asked of each group in them.

A group is a subset of a lane. Labels travel with the chunks, as masks and weights do. A task takes
the elements of one group after the other from its chunks, and applies the question to them. So
chunks need not match groups, and each chunk is loaded as often as without groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.arrays import like, namespace, to_host, transposed
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.questions import (
    Block,
    BlockForm,
    Composed,
    LaneLoad,
    LaneLoads,
    LaneQuestion,
    LaneSlots,
)
from dask_gpuselect.engine.source import DaskArray, blockwise
from dask_gpuselect.kernels.companions import Accompanied, ChunkColumn, each_array, values_of
from dask_gpuselect.maths.atoms import Atoms
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.labels import Labels
from dask_gpuselect.maths.lane_cuts import LaneOrder, Lanes

GROUP_PASS_TIME = 1.4
"""Factor on the time that passes spend on elements, for groups.

Measured for seasons of (10957, 180, 360) float32.
"""

WINDOW_PASS_TIME = 0.7
"""Factor on that time for each window that contains an element.

366 five-day windows of (10957, 36, 72) take 1.5 s one by one, and 0.6 s where whole lanes are
known.
"""

STACKED, STACKED_THERE = 1 << 23, 1 << 28
"""Bytes of the elements of groups that are answered together, on the host and on a device.

One call for each group of 4,000 lanes of 30 float32 takes 0.3 ms longer, and copying them 0.05. On
a device a call takes 0.6 to 3 ms, and copying 256 MiB 0.2.
"""

PerGroup = tuple[Any, ...]
"""One object for each group."""

ForGroups = Callable[..., Any] | tuple[Callable[..., Any], ...]
"""A function of the elements of one group, or one function for each group."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """The assignment of the elements of every lane to groups.

    Parameters
    ----------
    codes : ndarray or dask array
        Aligned with the data, of size 1 along some axes. The number of each element's group, -1 for
        none. With windows, the element's position in the lane. If the groups are not known before,
        the element's label, unless `is_numbered`.
    n_groups : int, or NaN
        Number of groups. NaN if it is not known before.
    windows : tuple of ndarray of int64, optional
        Positions of the elements of each group, ascending. Groups may share elements.
    differs : bool
        True if elements at the same position of different lanes may have different labels.
    names : dask array, optional
        Labels of the groups, where they are not known before.
    is_numbered : bool
        True if `codes` are numbers of groups that are not known before.
    most : float
        Most groups that there can be, where they are not known before.
    sizes : tuple of int, optional
        Number of elements of each group in every lane, where it is known before.
    """

    codes: Any
    n_groups: float
    windows: tuple[IntArray, ...] | None = None
    differs: bool = False
    names: Any = None
    is_numbered: bool = False
    most: float = math.inf
    sizes: tuple[int, ...] | None = None

    @property
    def is_lazy(self) -> bool:
        """True if the groups are unknown until labels are read."""
        return math.isnan(self.n_groups)

    @property
    def number(self) -> int:
        """The number of groups, where it is known."""
        return int(self.n_groups)

    @property
    def at_most(self) -> float:
        """The largest possible number of groups."""
        return self.most if self.is_lazy else self.n_groups

    @property
    def numbered(self) -> Grouping:
        """The grouping with group numbers in place of labels, if the groups are not known before.

        To find the number of one label, all labels have to be loaded.
        """
        if not self.is_lazy or self.is_numbered:
            return self
        every = tuple(range(self.codes.ndim))
        codes: DaskArray = blockwise(
            _numbers_among,
            every,
            self.codes,
            every,
            self.names,
            (self.codes.ndim,),
            concatenate=False,
            align_arrays=False,
            dtype=np.int32,
            meta=np.empty((0,) * self.codes.ndim, np.int32),
        )
        return replace(self, codes=codes, is_numbered=True)

    def are_whole(self, labels: IntArray) -> bool:
        """Return whether these are positions in whole lanes, which windows can index."""
        n = len(labels)
        return n > 0 and n >= self.span and np.array_equal(labels, np.arange(n))

    @cached_property
    def span(self) -> int:
        """The number of elements of the shortest lane that all windows fit."""
        return max((int(window[-1]) + 1 for window in self.windows or () if len(window)), default=0)

    @cached_property
    def atoms(self) -> Atoms | None:
        """The windows as unions of atoms; None if there are no windows, or `Atoms.of` finds none.

        The tasks about all tiles share them: those of 365 windows take 10 ms.
        """
        return Atoms.of(self.windows, self.span) if self.windows else None

    def sizes_in(self, n: float) -> tuple[int, ...] | None:
        """Return the number of elements of each group in a lane of `n` elements.

        Return None if it is not known before, or differs between lanes.
        """
        codes = self.codes
        if self.is_lazy or self.differs or not isinstance(codes, np.ndarray) or not codes.size:
            return None
        if math.isnan(n) or n % codes.size:
            return None
        if self.windows is not None:
            return tuple(map(len, self.windows))
        counts = np.bincount(codes[codes >= 0], minlength=self.number)
        return tuple(count * (int(n) // codes.size) for count in counts.tolist())

    def places(self, labels: IntArray) -> list[IntArray]:
        """Return, for each group, the positions of its elements, given all elements' labels."""
        if self.windows is None and self.n_groups < np.iinfo(np.uint16).max:
            labels = labels.astype(np.uint16)  # sorted by counting; and -1 comes last
        elif self.windows is not None and self.are_whole(labels):
            return list(self.windows)
        order = np.argsort(labels, kind="stable")
        ordered = labels[order]
        if self.windows is None:
            stops = np.searchsorted(ordered, np.arange(self.number + 1))
            return [order[a:b] for a, b in zip(stops[:-1], stops[1:], strict=True)]
        positions = []
        for window in self.windows:
            if not len(ordered):
                positions.append(order)
                continue
            at = np.minimum(np.searchsorted(ordered, window), len(ordered) - 1)
            positions.append(np.sort(order[at[ordered[at] == window]]))
        return positions


def _numbers_among(labels: Any, names: list[Labels]) -> Any:
    return kernels.labels.codes_among(labels, names[0])


@dataclass(frozen=True, eq=False)
class Grouped:
    """An array whose elements are in groups, accepted in place of an array.

    Parameters
    ----------
    array : dask array, array or Accompanied
    grouping : Grouping
        Groups of its lanes along the reduced axes.
    """

    array: Any
    grouping: Grouping

    @property
    def ndim(self) -> int:
        return int(self.array.ndim)

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(self.array.shape)

    @property
    def dtype(self) -> Any:
        return self.array.dtype


def data_of(array: Any) -> Any:
    """Return the array of a `Grouped`, and any other array as it is."""
    return array.array if isinstance(array, Grouped) else array


@dataclass(frozen=True, eq=False)
class Piece:
    """The elements of one group in every lane; or of several groups of all elements, as lanes.

    Parameters
    ----------
    groups : slice
        Numbers of the groups.
    parts : list of arrays or Accompanied
        One part for each chunk that has such elements, or one empty part.
    axes : tuple of int
        Axes of the parts along which lanes extend: those of the chunks, or of a table.
    n_others : callable, optional
        Function that counts the elements in each lane that are masked and in none of the groups.
    """

    groups: slice
    parts: list[Any]
    axes: tuple[int, ...]
    n_others: Callable[[], IntArray] | None = None

    def of_groups(self, answer: Any) -> Any:
        """Correct a result about the parts to one about the groups alone.

        Results may count what masks leave out, but elements of no group must not count.
        """
        if self.n_others is None or not hasattr(answer, "less_left_out"):
            return answer
        return answer.less_left_out(self.n_others())


def _piece(
    chunks: Sequence[Any], places: Sequence[Sequence[IntArray]], group: int, axes: tuple[int, ...]
) -> Piece:
    """Return the elements of one group, from its places in each chunk."""
    pairs = [(chunk, of_chunk[group]) for chunk, of_chunk in zip(chunks, places, strict=True)]
    some = [pair for pair in pairs if len(pair[1])] or pairs[:1]
    return Piece(slice(group, group + 1), [taken(*pair, axes[0]) for pair in some], axes)


def _masked_piece(chunks: Sequence[Accompanied], axes: tuple[int, ...], group: int) -> Piece:
    """Return all elements of every chunk, with a mask that keeps the group."""
    parts, others = [], []
    for chunk in chunks:
        assert chunk.labels is not None
        is_other = chunk.labels != group
        keeps = ~is_other if chunk.keeps is None else chunk.keeps & ~is_other
        parts.append(replace(chunk, labels=None, keeps=keeps))
        others.append(is_other)

    def n_others() -> IntArray:
        counts = (namespace(mask).count_nonzero(mask, axis=axes) for mask in others)
        n: IntArray = sum(to_host(count).astype(np.int64) for count in counts)
        return n.reshape(-1)

    return Piece(slice(group, group + 1), parts, axes, n_others)


def _labels_of(chunk: Accompanied, axes: tuple[int, ...]) -> IntArray:
    """Return the labels of the elements of a lane, which are the same in all lanes."""
    index = tuple(slice(None) if axis in axes else slice(0, 1) for axis in range(chunk.ndim))
    assert chunk.labels is not None
    n = math.prod(chunk.shape[axis] for axis in axes)
    if not all(chunk.shape):
        return np.full(n, -1)
    labels: IntArray = np.asarray(to_host(chunk.labels[index])).reshape(n)
    return labels


def _flattened(chunk: Accompanied, axes: tuple[int, ...]) -> Any:
    """Merge all of `axes` of a chunk into the first of them; the others get size 1.

    Returns bare values if the chunk has no companions.
    """
    whole: Any = chunk if chunk.companions else chunk.values
    if len(axes) == 1:
        return whole
    others = tuple(axis for axis in range(chunk.ndim) if axis not in axes)
    before = sum(axis < axes[0] for axis in others)
    order = (*others[:before], *axes, *others[before:])
    n = math.prod(chunk.shape[axis] for axis in axes)
    shape = tuple(
        chunk.shape[axis] if axis not in axes else n if axis == axes[0] else 1
        for axis in range(chunk.ndim)
    )
    return each_array(
        whole, lambda array: namespace(array).reshape(transposed(array, order), shape)
    )


def taken(chunk: Any, places: Any, axis: int) -> Any:
    """Take some elements of every lane; this is a view if the host knows them to be contiguous."""
    n = len(places)
    is_known = isinstance(places, np.ndarray) and n > 0
    if is_known and places[-1] - places[0] == n - 1 and (np.diff(places) == 1).all():
        index = (slice(None),) * axis + (slice(int(places[0]), int(places[-1]) + 1),)
        return chunk[index]
    return each_array(chunk, lambda array: _of_places(array, places, axis))


def _of_places(array: Any, places: IntArray, axis: int) -> Any:
    if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
        # np.take copies such an array first. To take 1/12 of (365, 50, 800): 9.5 ms instead of 0.3.
        return array[(slice(None),) * axis + (places,)]
    return namespace(array).take(array, like(places, array), axis=axis)


def _alike(sizes: IntArray, most: Callable[[int], int]) -> Iterator[IntArray]:
    """Yield the numbers of groups of one size, at most so many together as `most` of it allows."""
    for size in np.unique(sizes).tolist():
        groups = np.flatnonzero(sizes == size)
        yield from np.split(groups, range(most(size), len(groups), most(size)))


def _stacked(
    chunks: Sequence[Any], places: Sequence[Sequence[IntArray]], axis: int, beside: int
) -> Any:
    """Copy groups of equal size, which extend along an axis, beside each other.

    `places` are those of each group in each chunk.
    """
    if isinstance(chunks[0], Accompanied):
        names = ("values", *chunks[0].companions)
        columns = {name: [getattr(chunk, name) for chunk in chunks] for name in names}
        arrays = {name: _stacked(each, places, axis, beside) for name, each in columns.items()}
        return replace(chunks[0], **arrays)
    sizes = np.array([[len(own) for own in of_chunk] for of_chunk in places])
    (n_groups,), n = sizes.shape[1:], int(sizes[:, 0].sum())
    # Element i of group k comes to row (i, k), whichever chunk it is from.
    rows = np.empty((n, n_groups), np.int64)
    before = np.cumsum([0, *(chunk.shape[axis] for chunk in chunks)])
    for k in range(n_groups):
        own = [of[k] + first for of, first in zip(places, before[:-1].tolist(), strict=True)]
        rows[:, k] = np.concatenate(own)
    taken = _of_rows(chunks, rows.ravel(), before, axis)
    shape = list(chunks[0].shape)
    shape[axis : axis + 1] = n, n_groups
    order = [i for i in range(len(shape)) if i != axis + 1]
    order.insert(order.index(beside + (beside > axis)), axis + 1)
    xp, split = namespace(taken), namespace(taken).reshape(taken, tuple(shape))
    shape = [n if i == axis else size for i, size in enumerate(chunks[0].shape)]
    shape[beside] *= n_groups
    return xp.reshape(transposed(split, tuple(order)), tuple(shape))


def _of_rows(chunks: Sequence[Any], rows: IntArray, before: IntArray, axis: int) -> Any:
    """Take rows of several chunks, counted over all of them, along an axis."""
    if len(chunks) == 1:
        return _of_places(chunks[0], rows, axis)
    shape = list(chunks[0].shape)
    shape[axis] = len(rows)
    whole = namespace(chunks[0]).empty(tuple(shape), dtype=chunks[0].dtype)
    chunk = before.searchsorted(rows, side="right") - 1
    for i in np.unique(chunk).tolist():
        here = np.flatnonzero(chunk == i)
        own = _of_places(chunks[i], rows[here] - before[i], axis)
        whole[(slice(None),) * axis + (like(here, whole),)] = own
    return whole


# --- The question ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GroupedLanes(LaneQuestion):
    """A question about every group in every lane.

    Parameters
    ----------
    of_group : LaneQuestion
        Question about one group, as if it were the whole lane.
    grouping : Grouping
    """

    of_group: LaneQuestion
    grouping: Grouping

    @property
    def order(self) -> LaneOrder:
        raise TypeError("groups have no common order: ask `of_group` about each of them")

    @property
    def n_answers(self) -> int:
        return self.of_group.n_answers

    def of_so_many(self, n_groups: int) -> GroupedLanes:
        """Return the question with the number of groups, which was not known before."""
        return replace(self, grouping=replace(self.grouping, n_groups=n_groups))

    @property
    def slots(self) -> LaneSlots:
        grouping = self.grouping
        windows = grouping.windows or ()
        of_element = max(sum(map(len, windows)) / max(grouping.span, 1), 1.0)
        # In whole lanes, each element is sorted once; in passes, once for each of its windows.
        is_plain = grouping.windows is None
        return LaneSlots(
            1 if grouping.is_lazy else max(grouping.number, 1),
            grouping.at_most,
            of_element,
            GROUP_PASS_TIME if is_plain else WINDOW_PASS_TIME * of_element,
            # The number of passes depends on the number of groups, which share the memory limit.
            not grouping.is_lazy,
            grouping.windows,
        )

    @property
    def composed(self) -> Composed | None:
        return self.of_group.composed

    def task_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return self.of_group.task_dtype(dtype)

    def block(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        if not self.grouping.n_groups:
            return self.of_no_groups(chunks, dtype, shape)
        answers = self._at_once(ChunkColumn(chunks, dtype, shape.axes))
        if answers is not None:
            return shape.restore_groups(answers, chunks[0].shape)
        return self.of_groups(chunks, dtype, shape)

    def of_groups(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        """Compute the answer by answering some groups of equal size together, as further lanes."""
        one = shape.of_one_group
        beside = next(i for i in range(shape.ndim) if i not in shape.axes)
        answers: dict[int, Any] = {}
        for groups, piece in self._batches(chunks, shape.axes, beside):
            answer = piece.of_groups(self.of_group.block(piece.parts, dtype, one))
            each = [answer]
            if len(groups) > 1:
                divided = self.of_group.blocks.divided
                each = [*divided(answer, len(groups), one.labels.index(beside))]
            answers |= zip(groups, each, strict=True)
        return self.together([answers[i] for i in range(len(answers))], shape)

    def _batches(
        self, chunks: Sequence[Any], axes: tuple[int, ...], beside: int
    ) -> Iterator[tuple[list[int], Piece]]:
        """Yield numbers of groups, and these groups beside each other, as further lanes."""
        values = values_of(chunks[0])
        is_on_device = kernels.is_on_device(values)
        limit = STACKED_THERE if is_on_device else STACKED
        if self.grouping.differs or not (is_on_device or isinstance(values, np.ndarray)):
            for piece in self.pieces(chunks, axes):
                yield [piece.groups.start], piece
            return
        places, flat = self._places_in(chunks, axes)
        row = flat[0].dtype.itemsize * math.prod(flat[0].shape) // max(flat[0].shape[axes[0]], 1)
        sizes = np.sum([[*map(len, of_chunk)] for of_chunk in places], axis=0)
        for groups in _alike(sizes, lambda size: max(-(-limit // max(row * size, 1)), 1)):
            numbers = groups.tolist()
            if len(numbers) == 1:
                yield numbers, _piece(flat, places, numbers[0], axes)
                continue
            own = [[of_chunk[i] for i in numbers] for of_chunk in places]
            parts = [_stacked(flat, own, axes[0], beside)]
            yield numbers, Piece(slice(numbers[0], numbers[-1] + 1), parts, axes)

    def of_no_groups(
        self, chunks: Sequence[Accompanied], dtype: np.dtype[Any], shape: AnswerAxes
    ) -> Any:
        """Return the empty answer if all labels are missing, with the right dtype.

        The dtype is that of the answer about no lanes.
        """
        first = chunks[0]
        none = tuple(slice(None if axis in shape.axes else 0) for axis in range(first.ndim))
        answer = self.of_group.block([first[none]], dtype, shape.of_one_group)
        sizes = shape.new_axes(self.n_answers) | {shape.ndim + 1 + shape.axes[0]: 0}
        whole = tuple(first.shape[i] if i < shape.ndim else sizes[i] for i in shape.labels)
        return answer.reshape(whole)

    def _at_once(self, column: ChunkColumn) -> Any | None:
        """Compute the answers ``(n_answers, n_groups, n_lanes)`` about all groups together.

        Return None where one group after the other is faster.
        """
        if self.grouping.differs:
            return None
        labels = [_labels_of(chunk, column.axes) for chunk in column.chunks]

        def places() -> list[IntArray]:
            return self.grouping.places(np.concatenate(labels))

        answers = self.of_group.answer_groups(column, places)
        if answers is not None:
            return answers
        elements = self._in_windows(column, np.concatenate(labels))
        if elements is None:
            return None
        answers = self.of_group.finished(elements)
        return answers.reshape(len(answers), self.grouping.number, -1)

    def _in_windows(self, column: ChunkColumn, places: IntArray) -> Lanes | None:
        """Select the order statistics of all windows together; None if one by one is faster."""
        chunks, dtype, axes = column
        is_plain = all(set(chunk.companions) == {"labels"} for chunk in chunks)
        is_by_order = self.of_group.by_order and self.of_group.further is None
        is_whole = self.grouping.are_whole(places) and 0 not in chunks[0].shape
        atoms = self.grouping.atoms if is_plain and is_by_order and is_whole else None
        if atoms is None:
            return None
        values = ChunkColumn([chunk.values for chunk in chunks], dtype, axes)
        ranks = self.of_group.order.lane_ranks
        found: Lanes | None = kernels.groups.window_lanes(values, atoms, ranks)
        return found

    @property
    def blocks(self) -> BlockForm:
        return replace(self.of_group.blocks, restored=self._restored)

    def finished(self, resolved: Any) -> Any:
        return self.each(self.of_group.finished, resolved)

    def _restored(self, answers: Any, block: Block, shape: AnswerAxes) -> Any:
        one, restored = shape.of_one_group, self.of_group.blocks.restored
        return self.together([restored(each, block, one) for each in answers], shape)

    def _of_each(self, *loads: LaneLoad) -> tuple[Any, Any, Any]:
        """Return the functions of a load about all groups, given one for all or one for each."""

        def of_each(name: str) -> ForGroups:
            functions = tuple(getattr(load, name) for load in loads)
            return functions if len(functions) > 1 else functions[0]

        return (
            partial(self.measured, of_each("measure")),
            partial(self.merged, of_each("merge")),
            partial(self.merged, of_each("finish")),
        )

    @property
    def loads(self) -> LaneLoads:
        loads = self.of_group.loads
        narrow, last = (LaneLoad(*self._of_each(each)) for each in (loads.narrow, loads.last))
        own: dict[str, Any] = {"tails": self._tails, "counts": None}
        return replace(loads, narrow=narrow, last=last, further=self.further, **own)

    @property
    def further(self) -> LaneLoad | None:
        further = self.of_group.further
        if further is None:
            return None
        known = partial(self.each, further.known)
        return LaneLoad(*self._of_each(further), known, "groups", 2, further.width)

    def _tails(self, n: int) -> LaneLoad | None:
        del n
        sizes, tails_of = self.grouping.sizes or (), self.of_group.loads.tails
        of_size = {size: tails_of(size) for size in set(sizes)}
        each = [tails for size in sizes if (tails := of_size[size]) is not None]
        if not each or len(each) < len(sizes):
            return None
        return LaneLoad(*self._of_each(*each), width=sum(tails.width for tails in each))

    def pieces(self, chunks: Sequence[Any], axes: tuple[int, ...]) -> Iterator[Piece]:
        """Yield the elements of one group after the other.

        Unless labels differ between lanes, the first of `axes` extends along the elements of a
        part, and the others have size 1.
        """
        grouping = self.grouping
        if grouping.differs:
            yield from (_masked_piece(chunks, axes, group) for group in range(grouping.number))
            return
        places, flat = self._places_in(chunks, axes)
        for group in range(len(places[0])):
            yield _piece(flat, places, group, axes)

    def _places_in(
        self, chunks: Sequence[Any], axes: tuple[int, ...]
    ) -> tuple[list[list[IntArray]], list[Any]]:
        """Return the places of each group in each chunk, and the chunks with one reduced axis."""
        places = [self.grouping.places(_labels_of(chunk, axes)) for chunk in chunks]
        return places, [_flattened(replace(chunk, labels=None), axes) for chunk in chunks]

    def measured(
        self, measure: ForGroups, column: ChunkColumn, known: Any, **arguments: Any
    ) -> Any:
        """Compute the partial result of each group, given the results of earlier loads."""
        partials = []
        for piece in self.pieces(column.chunks, column.axes):
            function = measure[piece.groups.start] if isinstance(measure, tuple) else measure
            own = None if known is None else self.part(known, piece.groups)
            parts = ChunkColumn(piece.parts, column.dtype, piece.axes)
            partials.append(piece.of_groups(function(parts, own, **arguments)))
        return self.collected(partials)

    @staticmethod
    def part(known: Any, groups: slice) -> Any:
        """Return what is known of the groups of a piece."""
        return known[groups.start]

    @staticmethod
    def collected(partials: Sequence[Any]) -> Any:
        """Return the partial result about all groups, from those of all pieces in order."""
        return tuple(partials)

    @staticmethod
    def merged(function: ForGroups, first: Any, *others: PerGroup | None, **how: Any) -> Any:
        """Apply ``function(partials, *others)`` to the partial results about each group."""
        each = [*map(list, zip(*first, strict=True))]
        return GroupedLanes.each(function, each, *others, **how)

    @staticmethod
    def each(function: ForGroups, first: Any, *others: PerGroup | None, **how: Any) -> Any:
        """Apply a function to the items about each group; None stands for None about each."""
        n = len(first)
        columns = (first, *((None,) * n if column is None else column for column in others))
        functions = function if isinstance(function, tuple) else (function,) * n
        each = zip(functions, *columns, strict=True)
        return tuple(own(*items, **how) for own, *items in each)

    def together(self, blocks: Sequence[Any], shape: AnswerAxes) -> Any:
        """Join the answers about each group along the axis of groups."""
        labels = shape.of_one_group.labels
        axis = labels.index(shape.ndim + 1 + shape.axes[0])
        joined = self.blocks.joined(blocks, axis)
        gone = {i for i, label in enumerate(labels) if label > shape.ndim and i != axis}
        if shape.is_one_lane:
            gone.add(labels.index(0))
        sizes = tuple(size for i, size in enumerate(joined.shape) if i not in gone)
        own = getattr(joined, "reshape", None)  # objects are in no namespace
        return namespace(joined).reshape(joined, sizes) if own is None else own(sizes)
