"""Groups of all elements as rows of tables, so that one call answers about many groups.

A question about lanes is asked of the rows of such a table, so 100,000 groups take a few calls
instead of 100,000. A row is as long as the largest group of its table. Shorter groups are padded,
and a mask leaves the padding out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.arrays import concatenate, like, namespace, to_host
from dask_gpuselect.engine.groups import Grouping, Piece
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.maths.cuts import IntArray

MOST = 1 << 18
"""Most elements of a table, unless a single group has more."""

SPARE = 1 << 16
"""Elements of padding that cost less than one more table.

A box plot of a small table takes 1.5 ms, and sorting this many elements 1 ms. In a table of many
elements, a quarter of them may be padding.
"""


def batches_of(chunks: Sequence[Accompanied], grouping: Grouping) -> Iterator[Piece]:
    """Yield all groups of some chunks in order: runs of groups as the rows of tables, at least one.

    A group's row is the concatenation of its rows in all parts of its table.
    """
    elements = _Elements(chunks)
    order, sizes = _order(elements.labels, grouping)
    stops = np.cumsum(sizes)
    for first, last in stretches(sizes):
        n, groups = sizes[first:last], slice(first, last)
        starts = stops[first:last] - n
        if last - first == 1:
            places = order[starts[0] : stops[first]]
            yield Piece(groups, elements.pieces(places))
            continue
        width = int(n.max(initial=0))
        column = np.arange(width)
        places = np.minimum(starts[:, None] + column, max(len(order) - 1, 0))
        n_padded = width - n
        is_padded = bool(n_padded.any())
        keeps = column < n[:, None] if is_padded else None
        table = elements.table(order[like(places, order)] if len(order) else places, keeps)
        yield Piece(groups, [table], n_padded.copy if is_padded else None)


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
        taken = xp.take(array, like(places.reshape(-1), array), axis=0)
        return xp.reshape(taken, places.shape)

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
