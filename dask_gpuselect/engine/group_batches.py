"""Groups of all elements, many at once: the elements of each are a row of a table.

What is asked of lanes is asked of the rows of such a table, so a question about 100,000 groups
takes a few calls and not as many as there are groups. Rows are as long as the largest group of the
table; what is left of a row is padding, which a mask leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import concatenate, like, namespace, to_host
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.group_values import CountedGroups, rows
from dask_gpuselect.engine.groups import Grouping, LeftOut
from dask_gpuselect.engine.questions import Block, FurtherLoad, PassSteps
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.maths.cuts import IntArray

MOST = 1 << 18
"""Elements of a table, unless one group alone has more."""

SPARE = 1 << 16
"""Padding of a table that costs less than another table would: a box plot of a small one takes
1.5 ms, and sorting so many elements 1 ms. A table of many elements may have a quarter as many."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Some groups, the next to those before.

    Parameters
    ----------
    groups : slice
        Their numbers.
    parts : list of arrays or Accompanied, each of shape (n_groups, n)
        A row for each group, of all parts together.
    n_padded : ndarray of int64, shape (n_groups,)
        How many elements of each row are left out because they are none.
    """

    groups: slice
    parts: list[Any]
    n_padded: IntArray

    def unpadded(self, found: Any) -> Any:
        """What was found in the table, if it tells how many elements are left out: without the
        padding."""
        if not (isinstance(found, LeftOut) and self.n_padded.any()):
            return found
        return found.less_left_out(self.n_padded)


def batches_of(chunks: Sequence[Accompanied], grouping: Grouping) -> Iterator[Batch]:
    """All groups of some chunks, in order; at least one batch."""
    elements = _Elements(chunks)
    order, sizes = _order(elements.labels, grouping)
    stops = np.cumsum(sizes)
    for first, last in stretches(sizes):
        n, groups = sizes[first:last], slice(first, last)
        starts = stops[first:last] - n
        if last - first == 1:
            places = order[starts[0] : stops[first]]
            yield Batch(groups, elements.pieces(places), np.zeros(1, np.int64))
            continue
        width = int(n.max(initial=0))
        column = np.arange(width)
        places = np.minimum(starts[:, None] + column, max(len(order) - 1, 0))
        n_padded = width - n
        keeps = column < n[:, None] if n_padded.any() else None
        table = elements.table(order[like(places, order)] if len(order) else places, keeps)
        yield Batch(groups, [table], n_padded)


def stretches(sizes: IntArray) -> Iterator[tuple[int, int]]:
    """Groups that are next to each other and fill a table well, by their sizes; at least one
    stretch."""
    start, width, filled = 0, 0, 0
    for i, n in enumerate(sizes.tolist()):
        wider, fuller = max(width, n), filled + n
        room = wider * (i + 1 - start)
        if i > start and (room > MOST or room - fuller > max(SPARE, fuller // 4)):
            yield start, i
            start, wider, fuller = i, n, n
        width, filled = wider, fuller
    yield start, len(sizes)


def _order(labels: Any, grouping: Grouping) -> tuple[Any, IntArray]:
    """The places of the elements of each group, ascending, one group after the other, where the
    labels are; and how many each has."""
    if grouping.windows is None:
        return kernels.places_in_groups(labels, grouping.number)
    places = grouping.places(np.asarray(to_host(labels)))
    sizes = np.array([len(each) for each in places], np.int64)
    return np.concatenate([np.empty(0, np.int64), *places]), sizes


class _Elements:
    """The elements of some chunks, one chunk behind the other, and what goes with them."""

    def __init__(self, chunks: Sequence[Accompanied]) -> None:
        self._chunks = [_flat(chunk) for chunk in chunks]
        self.stops = np.cumsum([chunk.size for chunk in chunks])
        labels: list[Any] = [chunk.labels for chunk in chunks]
        if not kernels.is_on_device(labels[0]):
            labels = [np.asarray(to_host(each)) for each in labels]
        self.labels = concatenate([each.reshape(-1) for each in labels], 0)

    def pieces(self, places: Any) -> list[Any]:
        """Elements at ascending places as one row: of each chunk that has any, or of the first one
        none."""
        edges = np.array([len(places)])
        if len(self._chunks) > 1:
            edges = to_host(namespace(places).searchsorted(places, like(self.stops, places)))
        pieces, start = [], 0
        for chunk, size, stop in zip(self._chunks, self.stops, edges.tolist(), strict=True):
            if stop > start:
                own = places[start:stop] - (size - chunk.size)
                pieces.append(_row(_taken(chunk, own)))
            start = stop
        return pieces or [_row(_taken(self._chunks[0], places[:0]))]

    def table(self, places: Any, keeps: NDArray[np.bool_] | None) -> Any:
        """Elements at the places of a table, but for those that are not kept."""
        table = _taken(self._together, places)
        if keeps is not None:
            mask = like(keeps, table.values)
            table = replace(table, keeps=mask if table.keeps is None else table.keeps & mask)
        return _plain(table)

    @cached_property
    def _together(self) -> Accompanied:
        if len(self._chunks) == 1:
            return self._chunks[0]
        names = self._chunks[0].companions
        joined = {
            name: concatenate([chunk.companions[name] for chunk in self._chunks], 0)
            for name in names
        }
        return Accompanied(concatenate([chunk.values for chunk in self._chunks], 0), **joined)


def _flat(chunk: Accompanied) -> Accompanied:
    """One axis of elements, and of what goes with them but labels."""
    arrays = {
        name: namespace(array).reshape(array, (-1,))
        for name, array in chunk.companions.items()
        if name != "labels"
    }
    return Accompanied(namespace(chunk.values).reshape(chunk.values, (-1,)), **arrays)


def _taken(chunk: Accompanied, places: Any) -> Accompanied:
    """The elements at some places, in an array of their shape."""
    is_row = isinstance(places, np.ndarray) and places.ndim == 1 and len(places) > 0
    if is_row and places[-1] - places[0] == len(places) - 1:
        return chunk[int(places[0]) : int(places[-1]) + 1]

    def take(array: Any) -> Any:
        xp = namespace(array)
        found = xp.take(array, like(places.reshape(-1), array), axis=0)
        return xp.reshape(found, places.shape)

    if not math.prod(places.shape):
        places = places.reshape(-1)[:0].reshape(places.shape)
    arrays = {name: take(array) for name, array in chunk.companions.items()}
    return Accompanied(take(chunk.values), **arrays)


def _row(chunk: Accompanied) -> Any:
    """Elements as the only row of a table."""
    return _plain(chunk[None])


def _plain(chunk: Accompanied) -> Any:
    """Elements alone, if nothing goes with them."""
    return chunk if chunk.companions else chunk.values


# --- The question ---------------------------------------------------------------------------------


class GroupsOfAll(CountedGroups):
    """What is asked of every group of all elements."""

    def of_groups(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        """The answer, by those about tables of groups."""
        ask = partial(self.of_group.block, dtype=dtype, shape=shape.of_rows)
        each = batches_of(chunks, self.grouping)
        return self.joined([batch.unpadded(ask(batch.parts)) for batch in each], -1)

    def restored(self, found: Any, block: Block, shape: AnswerAxes) -> Any:
        return self.of_group.restored(found, rows(self.grouping.number), shape.of_rows)

    @property
    def steps(self) -> PassSteps:
        steps = self.of_group.steps
        return replace(
            steps,
            cuts=partial(self.measured_in_batches, steps, steps.cuts),
            tally=partial(self.measured_in_batches, steps, steps.tally),
        )

    @property
    def further(self) -> FurtherLoad | None:
        further = self.of_group.further
        return None if further is None else FurtherLoadOfAll(self, further)

    def measured_in_batches(
        self,
        how: PassSteps | FurtherLoad,
        measure: Callable[..., Any],
        chunks: Sequence[Any],
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        known: Any,
        **arguments: Any,
    ) -> Any:
        """The report about all groups, as of so many lanes, by what is known of them."""
        found = []
        for batch in batches_of(chunks, self.grouping):
            groups = batch.groups
            own = None if known is None else how.between(known, groups.start, groups.stop)
            found.append(batch.unpadded(measure(batch.parts, dtype, (1,), own, **arguments)))
        return found[0] if len(found) == 1 else how.join(found)


@dataclass(frozen=True, eq=False)
class FurtherLoadOfAll(FurtherLoad):
    """A further load of every group of all elements."""

    question: GroupsOfAll
    of_group: FurtherLoad

    name: ClassVar[str] = "groups"
    merge_every: ClassVar[int] = 2

    def known(self, found: Any) -> Any:
        return self.of_group.known(found)

    def measure(
        self, chunks: Sequence[Any], dtype: np.dtype[Any], axes: tuple[int, ...], known: Any
    ) -> Any:
        how = self.of_group, self.of_group.measure
        return self.question.measured_in_batches(*how, chunks, dtype, axes, known)

    def merge(self, reports: Sequence[Any]) -> Any:
        return self.of_group.merge(reports)

    def finish(
        self,
        reports: Sequence[Any],
        known: Any,
        block: Block,
        dtype: np.dtype[Any],
        shape: AnswerAxes,
    ) -> Any:
        every = rows(self.question.grouping.number)
        return self.of_group.finish(reports, known, every, dtype, shape.of_rows)
