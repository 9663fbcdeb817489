"""Lanes of chunks on the host, with masks and weights or without, sorted in tiles in the cache.

Masked elements are sorted behind the others: in integer lanes they become the largest number, in
float lanes NaN; counts tell them from valid elements. So every dtype stays as it is, and no chunk
is copied. Weights are often one number for many elements, such as one for each row of a map: they
are expanded for one tile at a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import in_kind, to_host
from dask_gpuselect.kernels.companions import (
    Accompanied,
    ChunkColumn,
    each_array,
    unstretched,
    values_of,
)
from dask_gpuselect.kernels.compiling import until_compiled
from dask_gpuselect.kernels.cpu import few, long_lanes, narrow, row_networks, weighed_lanes
from dask_gpuselect.kernels.cpu.few import lay, tiles
from dask_gpuselect.kernels.cpu.lane_ends import ends_of_sorted
from dask_gpuselect.kernels.cpu.lane_nearest import pick_nearest
from dask_gpuselect.kernels.reference import at_once
from dask_gpuselect.kernels.reference.lane_passes import in_turn
from dask_gpuselect.kernels.reference.weighing import as_weights
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import LaneOrder, Lanes, RanksOfLanes, join
from dask_gpuselect.maths.lane_ends import Bounds, BoundsOf, LaneEnds
from dask_gpuselect.maths.sorted_lanes import SortedLanes, pick

Part = Any
"""An array of lanes ``(*lanes, n)``, with masks and weights if it has some."""

Put = Callable[[NDArray[Any], Any], None]

BLOCK = 1 << 9  # bytes of a lane that are masked at once, so that temporaries stay in the cache
FEW = 16  # lanes whose masks are counted at once: by parts, those of one take 10 ns an element
WEIGHED = 1 << 18  # elements that are sorted together with their weights


def parts_of(column: ChunkColumn) -> list[Part]:
    """Return the chunks as parts of lanes; see `reference.lanes.parts_of`.

    Chunks with companions may be of any kind. Dates stay dates, because NumPy sorts NaT to the end
    as it does NaN. Lanes are in one row if that needs no copy: tables of lanes are full then.
    """
    chunks, dtype, axes = column
    native = dtype.newbyteorder("=")
    wanted = native if dtype.kind in "Mm" else selection_dtype(dtype)

    def elements(values: Any) -> NDArray[Any]:
        values = np.asarray(to_host(values)).astype(native, copy=False)
        rows: NDArray[Any] = at_once.lanes_last(values.astype(wanted, copy=False), axes)
        return rows

    parts = [
        Accompanied(
            elements(chunk.values),
            None if chunk.keeps is None else _beside(chunk.keeps, axes),
            None if chunk.weights is None else _beside(weights_of(chunk), axes),
        )
        if isinstance(chunk, Accompanied)
        else elements(chunk)
        for chunk in chunks
    ]
    are_rows = all(map(_is_one_row, parts))
    return [each_array(part, _in_one_row) for part in parts] if are_rows else parts


def _is_one_row(part: Part) -> bool:
    """Return whether the axes of lanes become one without a copy."""
    arrays = [part.values, *part.companions.values()] if isinstance(part, Accompanied) else [part]
    return all(
        outer == size * inner
        for array in arrays
        for outer, inner, size in zip(
            array.strides[:-2], array.strides[1:-1], array.shape[1:-1], strict=True
        )
    )


def _in_one_row(array: NDArray[Any]) -> NDArray[Any]:
    """Merge the axes of lanes."""
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])


def _beside(companion: Any, axes: tuple[int, ...]) -> NDArray[Any]:
    """Return a companion on the host, still broadcast across lanes if it is so in the chunk."""
    strides = getattr(companion, "strides", None) or (1,) * companion.ndim
    few_ = companion[
        tuple(slice(None if step or axis in axes else 1) for axis, step in enumerate(strides))
    ]
    shape = (size for axis, size in enumerate(companion.shape) if axis not in axes)
    rows = at_once.lanes_last(np.asarray(to_host(few_)), axes)
    return np.broadcast_to(rows, (*shape, rows.shape[-1]))


def weights_of(chunk: Accompanied) -> NDArray[Any]:
    """Return the weights of a chunk on the host, checked; see `reference.weighing.weighed`.

    Those of float32 stay so, until they are laid in tables.
    """
    few_ = np.asarray(to_host(unstretched(chunk.weights)))  # no repetitions of a broadcast view
    is_narrow = few_.dtype == np.float32
    if few_.size and (is_narrow or chunk.keeps is not None):
        if few_.min() >= 0 and few_.max() < np.inf:
            return np.broadcast_to(few_ if is_narrow else as_weights(few_), chunk.shape)
        if chunk.keeps is not None:
            few_ = np.where(to_host(chunk.keeps), few_, few_.dtype.type(0))
    return np.broadcast_to(as_weights(few_), chunk.shape)


def lanes(parts: Sequence[NDArray[Any]], ranks: RanksOfLanes) -> Lanes:
    """Find the elements of some ranks in every lane; `parts` are as for `sorted_lanes`.

    Lanes are copied side by side into a tile that stays in the cache, and sorted there by NumPy's
    vectorised sort, which puts NaN and NaT last and releases the GIL. Three cases are faster
    otherwise: few ranks of long lanes are found by NumPy's partition, lanes of few elements are
    sorted side by side, and integers of one and two bytes by digits. Scratch: the tile.
    """
    n_answers = len(ranks(np.ones(1, np.int64))[0])
    if _is_selected(parts, n_answers):
        return join([long_lanes.select(rows, ranks) for rows in tiles(parts)])
    return join([pick(table, ranks) for table in sorted_lanes(parts, in_rows=False)])


def _is_selected(parts: Sequence[Part], n_answers: int) -> bool:
    """Return whether lanes are selected and not sorted; dates and narrow integers are sorted.

    Lanes side by side are sorted where networks do that: one rank of 365 float32 took 4.6 ns an
    element instead of 3.0, and of float32 with NaN 7.6 instead of 3.7.
    """
    dtype, n = parts[0].dtype, sum(part.shape[-1] for part in parts)
    is_usual = dtype.kind not in "Mm" and not narrow.is_narrow(dtype)
    if not (is_usual and long_lanes.is_selected_faster(n, n_answers)):
        return False
    is_beside = any(values_of(part).strides[-1] != dtype.itemsize for part in parts)
    n_lanes = math.prod(parts[0].shape[:-1])
    return not (is_beside and row_networks.are_faster(n, n_lanes, dtype))


def answer_lanes(column: ChunkColumn, question: LaneOrder) -> Any:
    """Answer a question for every lane, in kind; see `reference.lanes.answer_lanes`.

    Scratch as for `lanes`.
    """
    parts = parts_of(column)
    if isinstance(parts[0], Accompanied):
        tables = sorted_lanes(parts, in_rows=False)
        elements = join([_picked(table, question) for table in tables])
        return in_kind(question.lane_answer(elements), column.chunks[0].values)
    if few.is_few(parts):
        return few.answer_lanes(parts, question)
    return question.lane_answer(lanes(parts, question.lane_ranks))


def _picked(table: SortedLanes, question: Any) -> Lanes:
    """Find the elements that answer a question, by weight if the lanes have weights."""
    if table.weights is None:
        return pick(table, question.lane_ranks)
    return weighed_lanes.pick(table, question.wanted)


@until_compiled(at_once.lane_deviations)
def lane_deviations(
    column: ChunkColumn, median: Any, distances: LaneOrder, dtype: np.dtype[Any]
) -> tuple[Any, Any] | None:
    """Answer the median of every lane, and that of the distances from it, from lanes sorted once.

    See `reference.lanes.lane_deviations`. Scratch: as for `lanes`, and a tile of the dtype.
    """
    parts = parts_of(column)
    first = parts[0]
    if first.weights is not None if isinstance(first, Accompanied) else few.is_few(parts):
        return None
    if dtype.itemsize < 4 or _is_selected(parts, 4):  # then two selections take less
        return None
    elements, pairs = [], []
    for table in sorted_lanes(parts):
        elements.append(pick(table, median.lane_ranks))
        (centres,) = median.lane_values(elements[-1]).astype(dtype, copy=False)
        pairs.append(pick_nearest(table, centres, distances.lane_ranks))
    return median.lane_answer(join(elements)), distances.lane_answer(join(pairs))


def answers_and_ends(
    column: ChunkColumn, question: LaneOrder, bounds_of: BoundsOf, most: int
) -> tuple[NDArray[np.float64], LaneEnds]:
    """Answer a question for every lane, and collect the elements beyond bounds from the answers.

    Both results are on the host; chunks may be of any kind. `bounds_of` makes bounds from the
    answers. Collects at most `most` elements of each side of a lane. Lanes are sorted once.
    """
    answers = []

    def pieces() -> Iterator[LaneEnds]:
        for table in sorted_lanes(parts_of(column)):
            answers.append(question.lane_answer(_picked(table, question)).astype(np.float64))
            bounds = np.stack(bounds_of(answers[-1]))
            yield ends_of_sorted(table, bounds, most, are_whole=True)

    ends = LaneEnds.of_whole_lanes(pieces())
    return np.concatenate(answers, axis=1), ends


def lane_ends(parts: Sequence[Part], bounds: Bounds, most: int) -> LaneEnds:
    """Collect the elements beyond the bounds of every lane; see `reference.lanes.lane_ends`.

    Lanes are sorted, so that their ends are found by a search. Scratch: as for `lanes`, and the
    result.
    """

    def measure(table: SortedLanes, own: Bounds) -> LaneEnds:
        return ends_of_sorted(table, own.T, most)

    ends: LaneEnds = in_turn(measure, sorted_lanes(parts), bounds.T)
    return ends


def sorted_lanes(parts: Sequence[Part], *, in_rows: bool = True) -> Iterator[SortedLanes]:
    """Yield tables of sorted lanes; see `reference.lanes.sorted_lanes`. Scratch as for `lanes`.

    The elements of a lane are contiguous, unless `in_rows` is False.
    """
    if not isinstance(parts[0], Accompanied):
        if few.is_few(parts):
            return map(SortedLanes.of_rows, few.sorted_tiles(parts))
        return map(SortedLanes.of_rows, _sorted_tiles(parts, in_rows=in_rows))
    if parts[0].weights is None:
        return _masked(parts, _sorted_tiles(parts, put_masked, in_rows=in_rows))
    return _sorted_with_weights(parts)


def _sorted_tiles(
    parts: Sequence[Part], put: Put | None = None, *, in_rows: bool
) -> Iterator[NDArray[Any]]:
    """Yield `tiles` of sorted lanes: side by side where that is faster, else one by one."""
    n, n_lanes = sum(part.shape[-1] for part in parts), math.prod(parts[0].shape[:-1])
    if not row_networks.are_faster(n, n_lanes, parts[0].dtype):
        yield from map(sort_rows, tiles(parts, put))
        return
    memory = np.empty(0, parts[0].dtype)
    for table in tiles(parts, put, are_columns=True):
        row_networks.sort_columns(table)
        rows = table.T
        if in_rows:
            memory = memory if memory.size else np.empty_like(table).reshape(-1)
            rows = memory[: table.size].reshape(rows.shape)
            lay(rows, table.T)
        yield rows


def _masked(parts: Sequence[Any], tables: Iterator[NDArray[Any]]) -> Iterator[SortedLanes]:
    """Yield tables of sorted lanes with masks."""
    left_out = np.sum([left_out_of(part) for part in parts], axis=0)
    for rows in tables:
        yield SortedLanes.of_rows(rows, left_out[: len(rows)])
        left_out = left_out[len(rows) :]


def _sorted_with_weights(parts: Sequence[Any]) -> Iterator[SortedLanes]:
    """Yield tables of sorted lanes with weights; those that all lanes share are one row."""
    is_whole = any(part.weights.dtype.kind == "i" for part in parts)
    exact = np.dtype(np.int64 if is_whole else np.float64)
    weights = [
        part.weights.astype(exact, copy=False) if is_whole else part.weights for part in parts
    ]
    most = max(1, WEIGHED // max(sum(part.shape[-1] for part in parts), 1))
    n_each = [math.prod(unstretched(each).shape[:-1]) for each in weights]
    is_shared = weights[0].size > 0 and n_each.count(1) == len(weights)
    if is_shared:
        row = np.concatenate([each[(0,) * (each.ndim - 1)] for each in weights])
        tables_of_weights: Iterator[Any] = itertools.repeat(row.astype(exact, copy=False)[None])
    else:
        tables_of_weights = tiles(weights, most=most, dtype=exact)
    columns = [tiles([part.values for part in parts], most=most)]
    if any(part.keeps is not None for part in parts):
        keeps = [np.broadcast_to(part.keeps is None or part.keeps, part.shape) for part in parts]
        columns.append(tiles(keeps, most=most))
    every = zip(zip(*columns, strict=True), tables_of_weights, strict=not is_shared)
    for (values, *others), own in every:
        yield weighed_lanes.sorted_with_weights(values, own, *others)


def left_out_of(part: Accompanied) -> IntArray:
    """Count the masked elements of each lane."""
    n_left_out = np.full(part.shape[:-1], part.shape[-1] if part.keeps is not None else 0, np.int64)
    if part.keeps is not None and n_left_out.size <= FEW:
        n_left_out -= np.count_nonzero(part.keeps, axis=-1)
    elif part.keeps is not None:
        keeps = part.keeps.view(np.uint8)
        for start in range(0, part.shape[-1], 255):  # bytes hold such counts, and add up fastest
            n_left_out -= np.add.reduce(keeps[..., start : start + 255], axis=-1, dtype=np.uint8)
    return n_left_out.reshape(-1)


def put_masked(tile: NDArray[Any], part: Accompanied) -> None:
    """Write elements into a tile, and a value that sorts behind them for masked ones.

    It works without branches, in the layout that the chunk and the mask share, and in blocks that
    stay in the cache. That takes less than half of the time of a masked copy, which is slowest
    where the mask is random.
    """
    if part.keeps is None:
        lay(tile, part.values)
        return
    n, word = tile.shape[-1], f"i{tile.itemsize}"
    choose: Any = np.bitwise_or
    none = 0
    if tile.dtype.kind == "i":
        choose, none = np.maximum, np.iinfo(word).min
    elif tile.dtype.kind in "mM":
        choose, none = np.minimum, np.iinfo(word).max
    step = n if part.values.strides[-1] == tile.itemsize else BLOCK // tile.itemsize
    for start in range(0, n, max(step, 1)):
        some = part[..., start : start + step]
        keeps = unstretched(some.keeps)  # a mask of one map, or of times, is repeated
        flags = (keeps.view(np.int8) - np.int8(1)).astype(word)
        # `none` leaves an element as it is. Its complement makes the largest integer, NaT, or all
        # bits set, which is NaN or the largest unsigned integer.
        flags ^= none
        out = flags if flags.shape == some.shape else None
        chosen = choose(some.values.view(word), flags, out=out)
        lay(tile[..., start : start + step].view(word), chosen)


def sort_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Sort the rows in place, with NaN and NaT last."""
    if narrow.is_narrow(rows.dtype):
        narrow.sort_rows(rows)
    else:
        rows.sort(axis=-1)
    return rows


def deviations(chunk: NDArray[Any], centre: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the distances of elements from the centres of their lanes.

    See `reference.lanes.deviations`. Scratch: one copy of the chunk, which is the answer.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        distances: NDArray[Any] = chunk.astype(dtype, copy=False) - centre
    np.abs(distances, out=distances)
    np.copyto(distances, 0, where=~np.isfinite(centre))
    return distances
