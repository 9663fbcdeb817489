"""Quantiles of many lanes without companions, each read one time. The host side of ``lanes.cu``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import MOST_STACKED, ChunkColumn, kept
from dask_gpuselect.kernels.cuda import groups, source
from dask_gpuselect.kernels.cuda.chunk import as_float64
from dask_gpuselect.kernels.cuda.lane_stack import LaneStack, numbers_of_rows, wanted_of
from dask_gpuselect.kernels.cuda.launch import MOST_BLOCKS, Array, filled, most_shared
from dask_gpuselect.kernels.cuda.moments import moments_of_rows
from dask_gpuselect.kernels.cuda.only_lane import answer_only_lane
from dask_gpuselect.kernels.reference import lanes as reference
from dask_gpuselect.kernels.reference.at_once import lanes_last
from dask_gpuselect.maths.cuts import IntArray, extremes_of
from dask_gpuselect.maths.lane_cuts import LaneOrder, Lanes, join, values_if_missing
from dask_gpuselect.maths.lane_ends import Bounds, LaneEnds, Outermost

LISTS = source.record("lanes.cu", "Lists")
TILE = 1 << 22  # elements whose ends are found together, each as about fifteen float64


def answer_lanes(column: ChunkColumn, question: LaneOrder) -> Array:
    """Answer a question for every lane, on the device; see `reference.lanes.answer_lanes`.

    Notes
    -----
    Reads device memory once, whatever the layout. Lanes too long for shared memory (with that of
    compute capability 9.0, more than 57,344 elements, or 28,672 of 8 bytes; side by side, 12,000
    and 6,000) are usually read two to four times for every six answers, and never more often than
    once for each byte of an element, and once more; or they are groups, see `WORTH_OF_GROUP`.

    Scratch: that of groups, or none, except copies of chunks: if `axes` are not next to each other,
    if steps along the axes before, among or behind them are uneven, or if there are more than 64
    chunks.

    The reference answers for empty chunks, for integers beyond 2**53 between which the answers
    interpolate, and for lanes of 2**31 elements and more.
    """
    if column.size:
        own = column.as_type()
        others = answers_of_groups if _are_groups(own, question) else _answers
        for answers_of in (answers_of_few, others):
            answers = answers_of(own, question)
            if answers is not None:
                return answers
    return reference.answer_lanes(column, question)


# Bytes of a lane, for each lane, from which on all blocks had better take one after the other. On
# an H100 medians of 4 lanes of 2^24 float32 took 10 ms by one block each and 0.9 so, of 32 of 2^21
# 5.1 by a block each, where each alone takes 0.12.
ALONE = 1 << 18
MOST_LISTED = 1 << 20  # ranks of lanes of any number of valid elements, of 16 bytes


def answers_of_few(
    column: ChunkColumn, question: LaneOrder, keeps: Array | None = None
) -> Array | None:
    """Answer a question for few long lanes of one chunk, lane by lane, each with the whole device.

    `keeps` is the mask of the elements that take part, if there is one. None if the lanes are not
    few and long, or if one of them cannot be answered this way.
    """
    (chunk, *others), _, axes = column
    n = math.prod(chunk.shape[axis] for axis in axes)
    n_lanes = chunk.size // max(n, 1)
    is_last = tuple(axes) == tuple(range(chunk.ndim - len(axes), chunk.ndim))
    if others or not (is_last and chunk.flags.c_contiguous and chunk.nbytes >= ALONE * n_lanes**2):
        return None
    answers = cupy.empty((question.n_answers, n_lanes), question.dtype)
    masks = [None] * n_lanes if keeps is None else keeps.reshape(n_lanes, n)
    for i, (lane, mask) in enumerate(zip(chunk.reshape(n_lanes, n), masks, strict=True)):
        some = lane if mask is None else kept(lane, mask)
        own = answer_only_lane(some, question) if some.size else None
        if own is None:
            return None
        answers[:, i] = own
    return answers


# Elements of a lane, times answers, from which on it is answered as a group, for each byte of an
# element. On an H200, nine quantiles of 64 lanes of 2^20 float32 took 2.6 ms so, and 8.6 otherwise;
# 99 of 1,024 of 2^16 12 and 27, of 32 of 2^21 6 and 149. Medians of two of 2^26, too large for
# `answers_of_few`, took 94 ms by one block each, and 3 so.
WORTH_OF_GROUP = 1 << 20
TOGETHER = 1 << 26  # elements of lanes that are groups at the same time, with 19 bytes of each


def _are_groups(column: ChunkColumn, question: LaneOrder) -> bool:
    """Return whether lanes had better be answered as groups."""
    worth = WORTH_OF_GROUP * max(column.dtype.itemsize, 4)
    return column.n * question.n_answers >= worth and column.may_be_rows


def answers_of_groups(
    column: ChunkColumn, question: LaneOrder, keeps: Sequence[Array] = ()
) -> Array:
    """Answer a question for lanes, each as a group, without the elements that masks leave out."""
    lanes = reference.parts_of(column), [lanes_last(mask, column.axes) for mask in keeps]
    n_lanes = math.prod(lanes[0][0].shape[:-1])  # parts without elements do not tell it
    parts, masks = ([each.reshape(n_lanes, each.shape[-1]) for each in some] for some in lanes)
    step, tables = max(TOGETHER // sum(part.shape[1] for part in parts), 1), []
    for i in range(0, len(parts[0]), step):
        rows = [part[i : i + step] for part in parts]
        numbers = [numbers_of_rows(part) for part in rows]
        for own, mask in zip(numbers, masks, strict=False):
            own[~mask[i : i + step]] = -1
        coded = [(part.ravel(), own.ravel()) for part, own in zip(rows, numbers, strict=True)]
        tables.append(groups.elements(coded, len(rows[0]), question.lane_ranks))
    return cupy.asarray(question.lane_answer(join(tables)))


def answers_of_masked(
    column: ChunkColumn, keeps: Sequence[Array], question: LaneOrder
) -> tuple[Array, bool] | None:
    """Answer a question for floating lanes side by side, without the elements that masks leave out.

    Also returns whether an element that is not left out is NaN, which counts as left out. None if
    chunks or masks would have to be copied, and for lanes that are not side by side.
    """
    chunks, _, axes = column
    are_dense = all(each.size and each.flags.c_contiguous for each in (*chunks, *keeps))
    is_adjacent = axes[-1:] and axes[-1] - axes[0] < len(axes)
    is_side_by_side = is_adjacent and math.prod(chunks[0].shape[axes[-1] + 1 :]) > 1
    if not (are_dense and is_side_by_side and len(chunks) <= MOST_STACKED) or _are_groups(
        column, question
    ):
        return None
    stack, flags = LaneStack.of(column), cupy.zeros(3, np.uint32)
    if stack.n >= 1 << 31:
        return None
    stack.record["parts"]["keeps"][: len(keeps)] = [each.data.ptr for each in keeps]
    stack.record["has_missing"] = flags.data.ptr + 2 * flags.itemsize
    answers, (*_, has_missing) = _answered(stack, column, keeps, flags, question)
    return answers, has_missing


def _answers(column: ChunkColumn, question: LaneOrder) -> Array | None:
    """Answer a question for chunks that are not all empty; None if the kernels cannot."""
    stack = LaneStack.of(column)
    dtype, n = stack.dtype, stack.n
    if n >= 1 << 31:
        return None
    flags = cupy.zeros(2, np.uint32)
    answers, (all_missing, too_wide) = _answered(stack, column, (), flags, question)
    if too_wide:
        return None
    if all_missing and (values := _values_if_missing(question, dtype)) is not None:
        chunks, _, axes = column
        n_valid = sum(cupy.count_nonzero(chunk == chunk, axis=axes) for chunk in chunks)
        answers = cupy.where(n_valid.ravel() == 0, values, answers)
    return answers


def _answered(
    stack: LaneStack,
    column: ChunkColumn,
    keeps: Sequence[Array],
    flags: Array,
    question: LaneOrder,
) -> tuple[Array, list[bool]]:
    """Answer a question for the lanes of a column, with masks if given; see `_read` for flags."""
    wanted, refs = wanted_of(question, *_numbers_of_valid(stack, column, keeps, question))
    answers = cupy.empty((question.n_answers, stack.n_lanes), question.dtype)
    for kernel, how in _kernels(stack, question):
        made = source.answered(question)
        stack.start(kernel, wanted, *how, answers, flags, defined=made)
    known = _read(question, flags)
    del refs  # which the kernels read until then
    return answers, known


def _numbers_of_valid(
    stack: LaneStack, column: ChunkColumn, keeps: Sequence[Array], question: LaneOrder
) -> tuple[int, int]:
    """Return bounds of the number of valid elements of a lane, between which ranks are listed.

    They are counted if the list would be long: for 99 quantiles of 2**22 elements it had 6 GiB.
    """
    if stack.dtype.kind != "f":
        return stack.n, stack.n
    if stack.n * question.n_answers < MOST_LISTED:
        return 0, stack.n
    chunks, _, axes = column
    valid = [chunk == chunk for chunk in chunks]
    valid = [mask & keep for mask, keep in zip(valid, keeps, strict=True)] if keeps else valid
    counts = sum(cupy.count_nonzero(mask, axis=axes) for mask in valid)
    return int(counts.min()), int(counts.max())


def _kernels(
    stack: LaneStack, question: LaneOrder
) -> list[tuple[source.LaneKernel, tuple[Any, ...]]]:
    """Choose the kernels for lanes of this length and layout, each with arguments of its own.

    The one for long lanes is started several times if there are many answers.
    """
    dtype, n_answers, is_side_by_side = stack.dtype, question.n_answers, stack.is_side_by_side
    has_long = n_answers <= source.MOST_ANSWERS and is_side_by_side
    is_long = has_long and stack.n * source.key_size(dtype) >= source.LONG_SIDE_BY_SIDE
    kernel = None if is_long else stack.kernel(n_answers=n_answers)
    if kernel is not None:
        return [(kernel, (np.zeros((), LISTS),))]
    starts: list[tuple[source.LaneKernel, tuple[Any, ...]]] = []
    shared = most_shared(cupy.cuda.Device().id)
    for first in range(0, n_answers, source.MOST_ANSWERS):
        n_some = min(n_answers - first, source.MOST_ANSWERS)
        kernel, room = source.long_lane_kernel(dtype, n_some, shared, side_by_side=is_side_by_side)
        starts.append((kernel, (kernel.lanes, first, room)))
    return starts


def _read(question: LaneOrder, flags: Array) -> list[bool]:
    """Return whether lanes have no valid element, with a warning, and whether the kernel failed.

    It fails for integers beyond 2**53 between which the answers interpolate. With masks, also
    returns whether an element that is not left out is NaN.
    """
    all_missing, too_wide, *others = map(bool, flags.get().tolist())
    if not too_wide:
        question.warn_missing(is_empty=False, is_all_missing=all_missing)
    return [all_missing, too_wide, *others]


def _values_if_missing(question: LaneOrder, dtype: np.dtype[Any]) -> Array | None:
    """Return the answers of a lane of nothing but NaN; None if they are NaN, as kernels write."""
    values = values_if_missing(question, dtype)
    return None if dtype.kind != "f" or np.isnan(values).all() else cupy.asarray(values)


def answer_group_lanes(
    column: ChunkColumn, question: LaneOrder, places: Callable[[], Sequence[IntArray]]
) -> Array | None:
    """Answer a question for every group of every lane, on the device.

    See `reference.lanes.answer_group_lanes`.

    Notes
    -----
    One launch for all groups of about the same size. None where `answer_lanes` would not read lanes
    once, and for integers beyond 2**53 between which the answers interpolate.
    """
    if not column.size:
        return None
    stack = LaneStack.of(column.as_type())
    dtype, rows = stack.dtype, places()
    sizes = np.array([len(each) for each in rows], np.int64)
    how = {"side_by_side": stack.is_side_by_side, "n_answers": question.n_answers}
    starts = _for_kernels(dtype, sizes, **how)
    if starts is None or max(stack.n, int(sizes.sum())) >= 1 << 31:
        return None
    n_tiles = [stack.n_tiles(kernel) * len(each) for kernel, each in starts]
    if max(n_tiles) > MOST_BLOCKS:
        return None
    answers = cupy.empty((question.n_answers, len(rows), stack.n_lanes), question.dtype)
    flags, made = cupy.zeros(2, np.uint32), (*source.answered(question), *source.LISTED)
    wanted, refs = wanted_of(question, 0, int(sizes.max()))
    # Start, number of rows and number of each list. The lists of a kernel are neighbours.
    table = np.zeros((len(rows), 4), np.int32)
    table[:, 0], table[:, 1], table[:, 2] = np.cumsum(sizes) - sizes, sizes, np.arange(len(rows))
    order = np.concatenate([numbers for _, numbers in starts])
    table = table[order]  # without empty lists
    words = table.ravel(), np.concatenate(rows).astype(np.int32)
    on_device, done = cupy.asarray(np.concatenate(words)), 0
    for (kernel, numbers), blocks in zip(starts, n_tiles, strict=True):
        at = on_device.data.ptr + done * table[0].nbytes
        of_rows = on_device.data.ptr + table.nbytes
        lists = filled(LISTS, rows=of_rows, each=at, n=len(numbers), n_all=len(rows))
        done += len(numbers)
        stack.start(kernel, wanted, lists, answers, flags, n_tiles=blocks, defined=made)
    all_missing, too_wide = _read(question, flags)
    del refs
    if too_wide or (all_missing and _values_if_missing(question, dtype) is not None):
        return None
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        none, nothing = np.zeros(1, np.int64), np.zeros((1, question.n_answers), dtype)
        answers[:, empty] = cupy.asarray(question.lane_answer(Lanes(nothing, nothing, none, none)))[
            ..., None
        ]
    return answers


def _for_kernels(
    dtype: np.dtype[Any], sizes: IntArray, **how: Any
) -> list[tuple[source.LaneKernel, IntArray]] | None:
    """Choose kernels for lanes of some sizes, with the lanes that each is for.

    None if some are too long for shared memory. See `source.lane_kernel` for other arguments.
    """
    shared = most_shared(cupy.cuda.Device().id)
    sizes_of: dict[source.LaneKernel, list[int]] = {}
    for size in np.unique(sizes[sizes > 0]).tolist():
        kernel = source.lane_kernel(dtype, size, shared, **how)
        if kernel is None:
            return None
        sizes_of.setdefault(kernel, []).append(size)
    return [
        (kernel, np.flatnonzero(np.isin(sizes, some))) for kernel, some in sizes_of.items()
    ] or None


def lane_ends(parts: Sequence[Array], bounds: Bounds, most: int) -> LaneEnds:
    """Collect the elements beyond the bounds of every lane; see `reference.lanes.lane_ends`.

    It uses CuPy's functions, and reads the lanes many times.
    """
    whole = cupy.concatenate(parts, -1) if len(parts) > 1 else parts[0]
    n_lanes, n = math.prod(whole.shape[:-1]), whole.shape[-1]
    rows, step = whole.reshape(n_lanes, n), max(1, TILE // max(n, 1))
    ends: LaneEnds = join(
        [
            _ends_of_rows(rows[i : i + step], bounds[:, i : i + step], most)
            for i in range(0, max(n_lanes, 1), step)
        ]
    )
    return ends


def _ends_of_rows(rows: Array, bounds: Bounds, most: int) -> LaneEnds:
    values, (low, high) = as_float64(rows), (cupy.asarray(bound)[:, None] for bound in bounds)
    is_valid, is_low, is_high = values == values, values < low, values > high
    counts = (mask.astype(np.int64).sum(axis=1).get() for mask in (is_valid, is_low, is_high))
    n, (n_valid, n_low, n_high) = rows.shape[1], counts
    dtype = np.dtype(rows.dtype)
    least, largest = extremes_of(dtype)
    # In float64, because CuPy flushes subnormal float32 to zero.
    exact = values if dtype.kind == "f" else rows

    def nearest(mask: Array, other: Any, find: Callable[..., Array]) -> NDArray[Any]:
        if n == 0:
            return np.full(len(n_valid), other)
        return np.asarray(find(cupy.where(mask, exact, other.item()), axis=1).get(), dtype)

    def beyond(mask: Array, count: IntArray, *, is_high: bool) -> Outermost:
        lane = np.repeat(np.arange(len(count)), count)
        return Outermost.of(count, lane, rows[mask].get(), most, is_high=is_high)

    return LaneEnds(
        n_valid,
        n - n_valid,
        np.zeros_like(n_valid),
        n_valid,
        nearest(is_valid, largest, cupy.min),
        nearest(is_valid, least, cupy.max),
        nearest(values >= low, largest, cupy.min),
        nearest(values <= high, least, cupy.max),
        beyond(is_low, n_low, is_high=False),
        beyond(is_high, n_high, is_high=True),
        moments_of_rows(rows),
    )
