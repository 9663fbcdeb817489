"""Groups of all elements as rows of tables, so that one call answers about many groups.

A question about lanes is asked of the rows of such a table, so 100,000 groups take a few calls
instead of 100,000. A row is as long as the largest group of its table. Shorter groups are padded,
and a mask leaves the padding out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import concatenate, like, namespace, to_host
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.group_values import CountedGroups, rows
from dask_gpuselect.engine.groups import ForGroups, Grouping, LeftOut, PerGroup
from dask_gpuselect.engine.questions import Block, PassSteps
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import join, some_lanes

MOST = 1 << 18
"""Most elements of a table, unless a single group has more."""

SPARE = 1 << 16
"""Elements of padding that cost less than one more table.

A box plot of a small table takes 1.5 ms, and sorting this many elements 1 ms. In a table of many
elements, a quarter of them may be padding.
"""


@dataclass(frozen=True, eq=False)
class Batch:
    """A run of consecutive groups whose elements are the rows of a table.

    Parameters
    ----------
    groups : slice
        Numbers of the groups.
    parts : list of arrays or Accompanied, each of shape (n_groups, n)
        Parts of the table. A group's row is the concatenation of its rows in all parts.
    n_padded : ndarray of int64, shape (n_groups,)
        Number of elements of padding in each row.
    """

    groups: slice
    parts: list[Any]
    n_padded: IntArray

    def unpadded(self, found: Any) -> Any:
        """Remove the padding from a result that counts the elements left out."""
        if not (isinstance(found, LeftOut) and self.n_padded.any()):
            return found
        return found.less_left_out(self.n_padded)


def batches_of(chunks: Sequence[Accompanied], grouping: Grouping) -> Iterator[Batch]:
    """Yield all groups of some chunks in order, in at least one batch."""
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
    """Yield runs of consecutive groups that fill a table well, given the sizes of groups.

    There is at least one run.
    """
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
    """Return the places of the elements, sorted by group and place, and the size of each group.

    The places are on the device of the labels.
    """
    if grouping.windows is None:
        return kernels.places_in_groups(labels, grouping.number)
    places = grouping.places(np.asarray(to_host(labels)))
    sizes = np.array([len(each) for each in places], np.int64)
    return np.concatenate([np.empty(0, np.int64), *places]), sizes


class _Elements:
    """The concatenated elements of some chunks, with their masks, weights and labels."""

    def __init__(self, chunks: Sequence[Accompanied]) -> None:
        self._chunks = [_flat(chunk) for chunk in chunks]
        self.stops = np.cumsum([chunk.size for chunk in chunks])
        labels: list[Any] = [chunk.labels for chunk in chunks]
        if not kernels.is_on_device(labels[0]):
            labels = [np.asarray(to_host(each)) for each in labels]
        self.labels = concatenate([each.reshape(-1) for each in labels], 0)

    def pieces(self, places: Any) -> list[Any]:
        """Return the elements at ascending places as one row, split by chunk.

        Chunks without such elements are left out. If all are, there is one empty part.
        """
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
        """Return the elements at a table of places, without those that are not in `keeps`."""
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
    """Flatten a chunk and its companions other than labels."""
    arrays = {
        name: namespace(array).reshape(array, (-1,))
        for name, array in chunk.companions.items()
        if name != "labels"
    }
    return Accompanied(namespace(chunk.values).reshape(chunk.values, (-1,)), **arrays)


def _taken(chunk: Accompanied, places: Any) -> Accompanied:
    """Return the elements at some places, in an array of the shape of `places`."""
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
    """Return elements as the only row of a table."""
    return _plain(chunk[None])


def _plain(chunk: Accompanied) -> Any:
    """Return the bare elements if the chunk has no companions."""
    return chunk if chunk.companions else chunk.values


# --- The question ---------------------------------------------------------------------------------


class GroupsOfAll(CountedGroups):
    """A question about every group of all elements, answered by tables of groups."""

    def block(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        if self.grouping.n_groups and self._takes_runs(chunks):
            return self.of_groups(chunks, dtype, shape)
        return super().block(chunks, dtype, shape)

    def _takes_runs(self, chunks: Sequence[Any]) -> bool:
        """Return whether the elements of all groups may be sorted together, on their device."""
        takes = self.of_group.takes_runs and self.grouping.windows is None
        return takes and kernels.is_on_device(chunks[0])

    def of_groups(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        """Compute the answer about all runs together, or table by table."""
        ask = partial(self.of_group.block, dtype=dtype, shape=shape.of_rows)
        if self._takes_runs(chunks):
            runs = kernels.sorted_runs(chunks, dtype, self.grouping.number)
            if runs is not None:
                return ask([runs])
        each = batches_of(chunks, self.grouping)
        return self.joined([batch.unpadded(ask(batch.parts)) for batch in each], -1)

    def restored(self, found: Any, block: Block, shape: AnswerAxes) -> Any:
        return self.of_group.restored(found, rows(self.grouping.number), shape.of_rows)

    @property
    def steps(self) -> PassSteps:
        steps = self.of_group.steps
        return replace(
            steps,
            cuts=partial(self.measured, steps.cuts),
            tally=partial(self.measured, steps.tally),
        )

    def measured(
        self,
        measure: ForGroups,
        chunks: Sequence[Any],
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        known: Any,
        **arguments: Any,
    ) -> Any:
        """Compute the partial result about all groups, as if each group were a lane.

        `known` is what earlier loads have found of the groups.
        """
        assert callable(measure)
        found = []
        for batch in batches_of(chunks, self.grouping):
            groups = batch.groups
            own = None if known is None else some_lanes(known, groups)
            found.append(batch.unpadded(measure(batch.parts, dtype, (1,), own, **arguments)))
        return join(found)

    @staticmethod
    def merged(
        merge: ForGroups, partials: Sequence[Any], *known: PerGroup | None, **how: Any
    ) -> Any:
        """Merge partial results about all groups, which are those about the lanes of a table."""
        assert callable(merge)
        return merge(partials, *known, **how)

    @staticmethod
    def each(
        function: ForGroups, first: Sequence[Any], *others: PerGroup | None, **how: Any
    ) -> Any:
        """Apply a function to a result about all groups."""
        assert callable(function)
        return function(first, *others, **how)

    def finished_further(
        self,
        finish: Callable[..., Any],
        partials: Sequence[Any],
        known: Any,
        block: Block,
        dtype: np.dtype[Any],
        shape: AnswerAxes,
    ) -> Any:
        return finish(partials, known, rows(self.grouping.number), dtype, shape.of_rows)
