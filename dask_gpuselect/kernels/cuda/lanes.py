"""Quantiles of many lanes at once, each read one time. The host side of ``lanes.cu``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import cupy
import numpy as np

from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.chunk import as_float64
from dask_gpuselect.kernels.cuda.launch import Array, advised, launch, most_shared
from dask_gpuselect.kernels.cuda.moments import moments_of_rows
from dask_gpuselect.kernels.reference import lanes as reference
from dask_gpuselect.kernels.reference.lanes import deviations, lanes, parts_of, sorted_lanes
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.lane_cuts import LaneOrder, Lanes
from dask_gpuselect.maths.lane_ends import Bounds, LaneEnds

__all__ = [
    "answer_group_lanes",
    "answer_lanes",
    "answers_and_ends",
    "deviations",
    "lane_ends",
    "lanes",
    "parts_of",
    "sorted_lanes",
]

MOST_BLOCKS = (1 << 31) - 1  # of a grid


@advised
def answer_lanes(
    chunks: Sequence[Array], dtype: np.dtype[Any], axes: tuple[int, ...], question: LaneOrder
) -> Array:
    """The answers for every lane, on the chunks' device; see `reference.lanes.answer_lanes`.

    Notes
    -----
    Reads device memory once, whatever the layout. Lanes too long for shared memory (with that of
    compute capability 9.0, more than 57,344 elements, or 28,672 of 8 bytes) are read once for each
    byte of an element, and once more, for every six answers. Scratch: none, but for copies of
    chunks: if `axes` are not next to each other, if steps along the axes before, among or behind
    them are uneven, or if there are more than 64 chunks.

    The reference answers for empty chunks, for integers beyond 2**53 that are to be mixed, and for
    lanes of 2**31 elements and more.
    """
    if sum(chunk.size for chunk in chunks):
        own = [chunk.astype(dtype, copy=False) for chunk in chunks]
        answers = _answers(own, axes, question)
        if answers is not None:
            return answers
    return reference.answer_lanes(chunks, dtype, axes, question)


def _answers(chunks: Sequence[Array], axes: tuple[int, ...], question: LaneOrder) -> Array | None:
    """The answers for chunks that are not all empty; None if the kernels cannot give them."""
    parts = _parts(chunks, axes)
    dtype = np.dtype(chunks[0].dtype)
    n = sum(part.shape[1] for part in parts)
    stack = _stack(parts, n)
    if n >= 1 << 31:
        return None
    first_v = 0 if dtype.kind == "f" else n
    tables = _tables(question, first_v, n, cupy.cuda.Device().id)
    answers = cupy.empty((question.n_answers, int(stack["n_lanes"])), question.dtype)
    flags = cupy.zeros(2, np.uint32)
    _start(dtype, stack, _wanted(question, first_v, tables), answers, flags, question)
    return answers if _is_told(question, flags) else None


def _is_told(question: LaneOrder, flags: Array) -> bool:
    """Whether the answers are right, with warnings of lanes that have none."""
    all_missing, too_wide = flags.get().tolist()
    if not too_wide:
        question.tell_missing(is_empty=False, is_all_missing=bool(all_missing))
    return not too_wide


@advised
def answer_group_lanes(
    chunks: Sequence[Array],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    question: LaneOrder,
    places: Callable[[], Sequence[IntArray]],
) -> Array | None:
    """The answers for every group of every lane, on the chunks' device; see
    `reference.lanes.answer_group_lanes`.

    Notes
    -----
    A launch for all groups that have about as many elements. None where `answer_lanes` would not
    read lanes once, and for integers beyond 2**53 that are to be mixed.
    """
    if not sum(chunk.size for chunk in chunks):
        return None
    parts = _parts([chunk.astype(dtype, copy=False) for chunk in chunks], axes)
    dtype = np.dtype(parts[0].chunk.dtype)
    n = sum(part.shape[1] for part in parts)
    stack, rows = _stack(parts, n), places()
    sizes = np.array([len(each) for each in rows], np.int64)
    starts = _for_kernels(dtype, sizes, side_by_side=bool(stack["n_inner"] > 1))
    if starts is None or max(n, int(sizes.sum())) >= 1 << 31:
        return None
    answers = cupy.empty((question.n_answers, len(rows), int(stack["n_lanes"])), question.dtype)
    flags = cupy.zeros(2, np.uint32)
    tables = _tables(question, 0, int(sizes.max()), cupy.cuda.Device().id)
    wanted = _wanted(question, 0, tables)
    # Where each list begins, how many rows it has and its number; those of a kernel together.
    told = np.zeros((len(rows), 4), np.int32)
    told[:, 0], told[:, 1], told[:, 2] = np.cumsum(sizes) - sizes, sizes, np.arange(len(rows))
    order = np.concatenate([numbers for _, numbers in starts])
    words = told[order].ravel(), np.concatenate(rows).astype(np.int32)
    on_device, done = cupy.asarray(np.concatenate(words)), 0
    lists = np.zeros((), source.LISTS)
    lists["rows"] = on_device.data.ptr + told[order].nbytes
    lists["n_all"] = len(rows)
    for kernel, numbers in starts:
        lists["each"] = on_device.data.ptr + done * told[0].nbytes
        lists["n"] = len(numbers)
        done += len(numbers)
        arguments = *map(_as_bytes, (stack, wanted, lists)), answers, flags
        n_tiles = -(-int(stack["n_lanes"]) // kernel.lanes) * len(numbers)
        _launch(dtype, kernel, arguments, n_tiles, question, source.LISTED)
    if not _is_told(question, flags):
        return None
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        none, nothing = np.zeros(1, np.int64), np.zeros((1, question.n_answers), dtype)
        answers[:, empty] = cupy.asarray(question.lane_answer(Lanes(nothing, nothing, none, none)))[
            ..., None
        ]
    return answers


def _for_kernels(
    dtype: np.dtype[Any], sizes: IntArray, *, side_by_side: bool
) -> list[tuple[source.LaneKernel, IntArray]] | None:
    """The kernels for lanes of some sizes, and which of them each is for; None if some are too long
    for shared memory."""
    shared = most_shared(cupy.cuda.Device().id)
    found: dict[source.LaneKernel, list[int]] = {}
    for size in np.unique(sizes[sizes > 0]).tolist():
        kernel = source.lane_kernel(dtype, size, shared, side_by_side=side_by_side)
        if kernel is None:
            return None
        found.setdefault(kernel, []).append(size)
    return [
        (kernel, np.flatnonzero(np.isin(sizes, some))) for kernel, some in found.items()
    ] or None


@advised
def lane_ends(parts: Sequence[Array], bounds: Bounds, most: int) -> LaneEnds:
    """What is beyond the bounds of every lane; see `reference.lanes.lane_ends`. By CuPy: many
    reads."""
    return reference.lane_ends(parts, bounds, most, as_float64, moments_of_rows)


answers_and_ends = partial(reference.answers_and_ends, answer=answer_lanes, look=lane_ends)


def _start(
    dtype: np.dtype[Any],
    stack: Any,
    wanted: Any,
    answers: Array,
    flags: Array,
    question: LaneOrder,
) -> None:
    """Start the kernel for lanes of this length and layout; the one for long lanes several times,
    if there are many answers."""
    side_by_side = bool(stack["n_inner"] > 1)
    n = int(stack["n"])
    shared = most_shared(cupy.cuda.Device().id)
    in_vectors = not side_by_side and _is_in_vectors(stack, 16 // dtype.itemsize)
    kernel = source.lane_kernel(dtype, n, shared, side_by_side=side_by_side, in_vectors=in_vectors)
    starts: list[tuple[source.LaneKernel, tuple[Any, ...]]] = []
    if kernel is not None:
        starts.append((kernel, ()))
    else:
        for first in range(0, question.n_answers, source.MOST_ANSWERS):
            n_answers = min(question.n_answers - first, source.MOST_ANSWERS)
            kernel = source.long_lane_kernel(n_answers, side_by_side=side_by_side)
            starts.append((kernel, (np.int32(kernel.lanes), np.int32(first))))
    for kernel, how in starts:
        arguments = _as_bytes(stack), _as_bytes(wanted), *how, answers, flags
        _launch(dtype, kernel, arguments, -(-int(stack["n_lanes"]) // kernel.lanes), question)


def _launch(
    dtype: np.dtype[Any],
    kernel: source.LaneKernel,
    arguments: tuple[Any, ...],
    n_tiles: int,
    question: LaneOrder,
    more: source.Defined = (),
) -> None:
    """Start a kernel with a block for each tile: the device then balances their load."""
    answer = 8 * question.dtype.itemsize if question.mixes else 0
    blocks, defined = min(n_tiles, MOST_BLOCKS), (("ANSWER", answer), *more, *kernel.defined)
    launch(
        dtype, kernel.name, kernel.threads, arguments, kernel.shared, blocks=blocks, defined=defined
    )


def _as_bytes(record: Any) -> Any:
    """A record without its fields, which CuPy would look at one by one."""
    return record.reshape(1).view(f"V{record.itemsize}")[0]


def _is_in_vectors(stack: Any, size: int) -> bool:
    """Whether every lane is whole 16-byte vectors of so many elements."""
    part = stack["parts"][0]
    parts_fit = int(stack["n_parts"]) == 1 and int(part["row"]) == 1 and int(part["data"]) % 16 == 0
    return parts_fit and int(stack["n"]) % size == 0 and int(part["outer"]) % size == 0


class Part(NamedTuple):
    """A chunk seen as (outer, rows, inner), strides in elements."""

    chunk: Array
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]


def _parts(chunks: Sequence[Array], axes: tuple[int, ...]) -> list[Part]:
    ndim = chunks[0].ndim
    if not axes:  # every element is a lane
        chunks, axes, ndim = [chunk[..., None] for chunk in chunks], (ndim,), ndim + 1
    if axes[-1] - axes[0] >= len(axes):  # others lie between them
        kept = [axis for axis in range(ndim) if axis not in axes]
        chunks = [cupy.ascontiguousarray(chunk.transpose(*kept, *axes)) for chunk in chunks]
        axes = tuple(range(len(kept), ndim))
    if len(chunks) > source.MOST_PARTS:
        # Joined along the first of the axes: with the others of one chunk each, that is all of it.
        joined = [_as_rows(chunk, axes) for chunk in chunks]
        chunks, axes = [cupy.concatenate(joined, axis=1)], (1,)
    parts = [_part(chunk, axes) or _part(cupy.ascontiguousarray(chunk), axes) for chunk in chunks]
    return [part for part in parts if part is not None and part.shape[1]]


def _as_rows(chunk: Array, axes: tuple[int, ...]) -> Array:
    shape = chunk.shape
    outer, inner = math.prod(shape[: axes[0]]), math.prod(shape[axes[-1] + 1 :])
    return chunk.reshape(outer, math.prod(shape[axes[0] : axes[-1] + 1]), inner)


def _part(chunk: Array, axes: tuple[int, ...]) -> Part | None:
    """None if an axis of three would have uneven steps."""
    groups = (range(axes[0]), axes, range(axes[-1] + 1, chunk.ndim))
    even = [_even([(chunk.shape[i], chunk.strides[i]) for i in group]) for group in groups]
    if None in even:
        return None
    sizes, strides = zip(*even, strict=True)
    return Part(chunk, sizes, tuple(stride // chunk.itemsize for stride in strides))


def _even(dimensions: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Some dimensions as one: its size and stride."""
    dimensions = [(size, stride) for size, stride in dimensions if size != 1]
    for (_, wide), (size, stride) in zip(dimensions, dimensions[1:], strict=False):
        if wide != size * stride:
            return None
    return math.prod(size for size, _ in dimensions), dimensions[-1][1] if dimensions else 0


def _stack(parts: list[Part], n: int) -> Any:
    outer, _, inner = parts[0].shape
    stack = np.zeros((), source.STACK)
    stop = 0
    for told, part in zip(stack["parts"], parts, strict=False):
        stop += part.shape[1]
        told["data"], told["stop"] = part.chunk.data.ptr, stop
        told["outer"], told["row"], told["inner"] = part.strides
    stack["n_parts"], stack["n"], stack["n_inner"] = len(parts), n, inner
    stack["n_lanes"] = outer * inner
    stack["one"] = 1
    return stack


def _wanted(question: LaneOrder, first_v: int, tables: tuple[Array, Array]) -> Any:
    """What is wanted of lanes, by tables of `first_v` valid elements and more."""
    wanted = np.zeros((), source.WANTED)
    wanted["ranks"], wanted["weights"] = (table.data.ptr for table in tables)
    wanted["first_v"], wanted["n_answers"] = first_v, question.n_answers
    wanted["mixes"], wanted["skips_missing"] = question.mixes, question.skips_missing
    return wanted


# Of one size of lanes, again and again: a float's table has a row for every number that are valid.
@lru_cache(maxsize=16)
def _tables(question: LaneOrder, first_v: int, n: int, device: int) -> tuple[Array, Array]:
    """Ranks and weights of the answers, on the device; see Wanted of ``lanes.cuh``."""
    counts = np.arange(first_v, n + 1)
    wanted = question.wanted_of_lanes(np.maximum(counts, 1))
    shape = (question.n_answers, len(counts))
    lower, upper, weight = (np.broadcast_to(values, shape).T for values in wanted)
    ranks = np.stack([lower, upper], axis=-1)
    return cupy.array(ranks, np.int32, order="C"), cupy.array(weight, order="C")
