"""Moving windows of NumPy chunks, slab by slab, by the kernels of five modules.

`window_networks` and `window_floats` take windows of few elements, `window_columns` larger ones of
bytes along several axes, `window_blocks` others, and `window_rows` windows of rows whose sizes
differ. They find elements by their keys.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied, each_array, unpaired, values_of
from dask_gpuselect.kernels.compiling import kernel_of, until_compiled
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu import (
    window_blocks,
    window_columns,
    window_floats,
    window_networks,
    window_rows,
)
from dask_gpuselect.kernels.cpu.bits import keys_of, turn_into_words
from dask_gpuselect.kernels.cpu.window_floats import mix
from dask_gpuselect.kernels.reference import windows as reference
from dask_gpuselect.kernels.reference.windows import Bordered
from dask_gpuselect.maths.keys import are_float64, selection_dtype
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.windows import Frame, RowWindows, WindowOrder, ranks_by_count, unpadded

padded, valid_counts = reference.bordered, reference.valid_counts

SLAB = 1 << 21  # bytes of windows' elements that are answered together: they stay in the cache
ROWS = 1 << 17  # rows of windows that are answered together, because each has an address
ENDS = 1 << 13  # elements of windows at the ends that NumPy sorts
TURNED = 512  # bytes that are not written for a window if its axes are turned, and pay for that
MIXED = 32  # bytes of a window where answers are made of elements


@until_compiled(reference.answer)
def answer(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Any:
    """Answer a question for each window, in kind; see `reference.windows.answer`."""
    if order.deviates and (order.dtype.itemsize < 4 or not are_float64(values_of(chunk))):
        return reference.answer(reference.whole(chunk), dtype, frame, order)
    if not isinstance(chunk, Bordered):
        return _answer_part(chunk, dtype, frame, order)
    lacks = chunk.is_masked or any(map(any, chunk.outside))
    is_alone = _is_in_place(dtype, frame, order)  # then no slabs need to limit scratch
    if is_alone and not (lacks or order.deviates or _has_many_rows(chunk, frame)):
        answers = _answer_whole(chunk, dtype, frame, order)
        if answers is not None:
            return answers
    most = max(SLAB // max(dtype.itemsize, order.dtype.itemsize), frame.n)
    if len(frame.size) == 1:  # less memory than the answers take: more would be new, and cleared
        most = max(min(chunk.shape[0] // 4, most // 2), most // 4, 20 * frame.n)
    n_ends = 1 if order.deviates else sum(map(any, chunk.outside))
    is_long = math.prod(frame.shape(chunk.shape)) > most // (64 if order.deviates else 4)
    has_few_ends = chunk.is_masked and is_long and n_ends == 1
    slabs = frame.slabs(chunk.shape, most, chunk.outside if has_few_ends else None)
    return reference.in_slabs(_answer_end, chunk, dtype, frame, order, slabs)


def _answer_end(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Any:
    """Answer the windows of a slab, few at the ends by NumPy.

    The kernel of windows that lack elements takes seconds to compile.
    """
    n = math.prod(frame.shape(tuple(chunk.shape))) * frame.n
    is_by_numpy = isinstance(chunk, Accompanied) and n <= ENDS
    return (reference.answer if is_by_numpy else _answer_part)(chunk, dtype, frame, order)


def _answer_part(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Any:
    """Answer the windows of a chunk or of a slab that is padded."""
    chunk, frame = _without_gaps(chunk, frame)
    if _has_many_rows(chunk, frame):
        of_rows = frame._replace(size=frame.size[:-1], step=frame.step[:-1])
        slabs = of_rows.slabs(tuple(chunk.shape[:-1]), _rows_together(frame))
        return reference.in_slabs(_answer_part, chunk, dtype, frame, order, slabs)
    own = _as_float(dtype, order) if isinstance(chunk, Accompanied) else None
    if (axes := _turned(chunk, own or dtype, frame, order)) is not None:
        slabs = frame.slabs(tuple(chunk.shape), max(SLAB // dtype.itemsize, frame.n))
        of_slab = partial(_answer_turned, axes)
        return np.ascontiguousarray(reference.in_slabs(of_slab, chunk, dtype, frame, order, slabs))
    if (step := frame.step[-1]) > 1:  # a network for all of them takes less than others for some
        every = frame._replace(step=(*frame.step[:-1], 1))
        is_answered = _as_float(dtype, order) is not None or not (
            isinstance(chunk, Accompanied) or _has_missing(chunk, dtype)
        )
        if is_answered and _work(tuple(chunk.shape), dtype, every, order) < math.inf:
            n = frame.shape(tuple(chunk.shape))[-1]
            answers = _answer_part(chunk, dtype, every, order)[..., ::step]
            return np.ascontiguousarray(answers[..., :n])
    is_alone = _is_in_place(dtype, frame, order)
    answers = _answer_whole(chunk, dtype, frame, order) if is_alone else None
    if answers is None and not isinstance(chunk, Accompanied) and _is_plain_float(dtype, order):
        answers = _answer_floats(chunk, dtype, frame, order)
    if answers is not None:
        return answers
    is_plain = is_alone and (order.mixes == 0 or dtype.kind == "f")
    itemsize, n_bytes = dtype.itemsize if is_plain else MIXED, SLAB
    if isinstance(chunk, Accompanied):  # a mask is often of the ends alone: then few slabs have one
        itemsize = own.itemsize if own and frame.n <= window_networks.MOST else itemsize
        n_bytes = SLAB // (2 if itemsize == MIXED else 4)
    most = max(n_bytes // itemsize, math.ceil(16 * 2.5 ** len(frame.size)) * frame.n)
    slabs = frame.slabs(tuple(chunk.shape), max(1, most))
    return reference.in_slabs(_answer_slab, chunk, dtype, frame, order, slabs)


def _has_many_rows(chunk: Any, frame: Frame) -> bool:
    """Return whether the addresses of rows may take more memory than a slab."""
    return math.prod(frame.shape(tuple(chunk.shape))[:-1]) > _rows_together(frame)


def _rows_together(frame: Frame) -> int:
    """Return how many rows of answers take the addresses of `ROWS` rows, or 1 if more."""
    return max(ROWS // math.prod(frame.size[:-1]), 1)


def _without_gaps(chunk: Any, frame: Frame) -> tuple[Any, Frame]:
    """Leave out the elements between windows that are farther apart than their size."""
    for axis, (n, size, step) in enumerate(
        zip(frame.shape(tuple(chunk.shape)), frame.size, frame.step, strict=True)
    ):
        if step > size:
            places = (np.arange(n)[:, None] * step + np.arange(size)).reshape(-1)
            chunk = each_array(chunk, partial(np.take, indices=places, axis=axis))
    return chunk, frame._replace(step=tuple(map(min, frame.step, frame.size)))


def _work(shape: tuple[int, ...], dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> float:
    """Return the bytes that a network writes for each whole window; infinity if there is none."""
    made = window_networks.Network.fitting(shape, dtype.itemsize, frame, order, frame.n)
    return math.inf if made is None else made.n_results * dtype.itemsize


def _turned(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Any:
    """Return the order of axes in which a network answers windows along one of them, made last.

    Along the last axis, neighbouring windows share comparisons. Return None if axes may stay.
    """
    sides = [axis for axis, size in enumerate(frame.size) if size > 1]
    if len(sides) != 1 or sides[0] == len(frame.size) - 1:
        return None
    shape = tuple(chunk.shape)
    axes = (*(axis for axis in range(len(shape)) if axis != sides[0]), sides[0])
    turned = tuple(shape[axis] for axis in axes)
    saved = _work(shape, dtype, frame, order) - _work(turned, dtype, frame.moved(axes), order)
    return axes if saved >= TURNED else None


def _answer_turned(
    axes: tuple[int, ...], chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder
) -> Any:
    """Answer windows of a slab with its axes in another order."""
    turned = each_array(chunk, lambda array: np.ascontiguousarray(array.transpose(axes)))
    answers = _answer_part(turned, dtype, frame.moved(axes), order)
    return answers.transpose(0, *(1 + axis for axis in np.argsort(axes).tolist()))


def _is_in_place(dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> bool:
    """Return whether the answer of a whole window is one element that a kernel finds."""
    is_integer = dtype.kind in "biu"
    if order.n_answers != 1 or not (is_integer or _is_plain_float(dtype, order)):
        return False
    lower, upper, _ = ranks_by_count(order, frame.n)
    return (is_integer and order.mixes == 0) or bool(lower[0, -1] == upper[0, -1])


def _answer_whole(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Any:
    """Answer windows by a network that reads a chunk as it is.

    Return None if there is none, or if some element is missing or masked.
    """
    own = order.dtype if order.deviates else dtype  # distances are of that
    shape, padding = tuple(chunk.shape), None
    if isinstance(chunk, Bordered):
        chunk, padding = chunk.values, chunk.padding
    if isinstance(chunk, Accompanied) or (own.kind == "f" and own.itemsize < 4):
        return None
    network = window_networks.Network.fitting(shape, own.itemsize, frame, order, frame.n)
    if network is None or _has_missing(chunk, dtype):
        return None
    native = own.newbyteorder("=")
    compared = {"b": "u1", "m": "i8", "M": "i8"}.get(own.kind, native)
    words = np.ascontiguousarray(chunk.astype(native, copy=False)).view(compared)
    if order.deviates:
        chosen = window_networks.deviations(network, words, frame, order)
    else:
        padding = padding or unpadded(shape)
        chosen = window_networks.whole_elements(network, words, padding, frame, order)
    found = [_viewed(each, own) for each in chosen]
    is_element = len(found) == 1 and frame.n >= order.least and not order.deviates
    if is_element and (dtype.kind in "iu" or _is_plain_float(dtype, order)):
        answers = order.finished(found[0].astype(order.dtype, copy=False), None)
    else:
        counted = reference.counts(None, None, frame, shape)
        answers = _finished(found, counted, own, order, frame.n)
    return answers.reshape(-1, *frame.shape(shape))


def _answer_floats(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Any:
    """Answer windows by a network that heeds missing elements; return None if there is none.

    Elements that are left out become missing ones.
    """
    values, keeps = unpaired(chunk)
    has_missing, own = _has_missing(values, dtype), _as_float(dtype, order)
    if own is None or not (dtype.kind == "f" or keeps is not None):
        return None
    skips, needed = order.skips_missing, max(order.least, 1)
    if keeps is not None:
        if not skips and has_missing and needed < frame.n:
            return None  # for missing elements matter, and those that are left out do not
        values, skips = np.where(keeps, values, own.type(np.nan)), True
    needed = needed if skips else max(needed, frame.n)
    values = np.ascontiguousarray(values.astype(own, copy=False))
    lacks = has_missing or keeps is not None
    answers = window_floats.answers(values, frame, order, needed, may_lack=lacks)
    if answers is None:
        return None
    if order.dtype.kind == "f":
        answers = answers.astype(order.dtype, copy=False)
    return order.finished(answers, None).reshape(-1, *frame.shape(values.shape))


def _as_float(dtype: np.dtype[Any], order: WindowOrder) -> np.dtype[Any] | None:
    """Return the dtype of floats that hold all elements, and their means if these are asked.

    Return None if there is none, or if other kernels answer.
    """
    if order.deviates or dtype.kind not in "biuf" or (dtype.kind != "f" and dtype.itemsize == 8):
        return None
    if dtype.kind != "f":
        return np.dtype(np.float32 if dtype.itemsize < 4 and order.mixes < 2 else np.float64)
    if dtype.itemsize == 2 and order.dtype.itemsize == 2:
        return np.dtype(np.float32) if order.mixes < 2 else None
    return np.promote_types(dtype, order.dtype)


def _answer_slab(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Any:
    """Answer the windows of a slab, ``(n_answers, *shape)``."""
    shape, own = frame.shape(tuple(chunk.shape)), order.dtype if order.deviates else dtype
    answers = _answer_whole(chunk, own, frame, order)
    if answers is None:
        answers = _answer_floats(chunk, own, frame, order)
    if answers is not None:
        return answers
    keys, keeps, has_missing = _keys(chunk, own)
    last, words, shift = ~keys.dtype.type(0), keys.dtype, keys.dtype.type(0)
    # Then blocks mark windows of few elements by NaN, and nothing is counted.
    is_marked = _is_plain_float(own, order) and order.mixes < 2
    is_marked &= order.skips_missing or keeps is None
    is_missing = keys == last if has_missing else None
    marks = (None, None) if is_marked else (is_missing, keeps)
    counted = reference.counts(*marks, frame, keys.shape)
    if window_columns.takes(keys, frame):
        chosen = window_columns.elements(keys, keeps, frame, order)
    else:
        if keeps is not None:
            if own.kind in "biu" and words.itemsize < 8:  # the last one may be an element
                keys = keys.astype(f"u{2 * words.itemsize}")
            elif own.kind in "iu" and (keys == last).any(where=keeps):
                if not keys.all(where=keeps):  # the first one is an element, too
                    return reference.answer(chunk, dtype, frame, order)
                keys, shift = keys - words.type(1), words.type(1)
            keys, has_missing = np.where(keeps, keys, ~keys.dtype.type(0)), True
        least = order.least if order.skips_missing else max(order.least, frame.n)
        least = least if is_marked else 1
        chosen = window_blocks.elements(keys, has_missing, frame, order, least)
    found = _found([each.astype(words, copy=False) + shift for each in chosen], own, order)
    return _finished(found, counted, own, order, frame.n).reshape(-1, *shape)


@until_compiled(reference.answer_rows)
def answer_rows(
    values: NDArray[Any], dtype: np.dtype[Any], windows: RowWindows, order: WindowOrder
) -> Any:
    """Answer windows of rows, ``(n_answers, n_windows)``; see `reference.windows.answer_rows`."""
    if order.deviates:
        return reference.answer_rows(values, dtype, windows, order)
    keys, _, has_missing = _keys(values, dtype)
    n_missing = windows.sums(keys == ~keys.dtype.type(0) if has_missing else np.zeros(len(keys)))
    counted = (windows.ends - windows.begins - n_missing, n_missing)
    chosen = window_rows.elements(keys, windows, order, counted[0])
    found = _found(chosen, dtype, order)
    return _finished(found, counted, dtype, order, windows.n)


def _finished(
    found: list[NDArray[Any]],
    counted: tuple[NDArray[Any], NDArray[Any]],
    dtype: np.dtype[Any],
    order: WindowOrder,
    n: int,
) -> Any:
    """Answer windows of at most n elements by their order statistics."""
    lower, upper = found[0].T, found[-1].T
    if not _is_plain_float(dtype, order):
        return order.finished(order.lane_values(Lanes(lower, upper, *counted)), counted[0])
    counts, n_missing = counted
    if not order.skips_missing:
        counts = np.where(n_missing > 0, 0, counts)
    how = ranks_by_count(order, n)[2], order.mixes if len(found) > 1 else 0
    _to_answers(lower.T, upper.T, np.ascontiguousarray(counts), *how)
    return order.finished(lower.T, counted[0])


def _is_plain_float(dtype: np.dtype[Any], order: WindowOrder) -> bool:
    """Return whether answers are floats of the elements' dtype, which kernels write."""
    is_float = dtype.kind == "f" and dtype.itemsize >= 4 and not order.deviates
    return is_float and order.dtype == dtype.newbyteorder("=")


def _has_missing(values: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether there are NaN or NaT among values; the largest would be one."""
    return bool(dtype.kind in "fmM" and values.size and (most := values.max()) != most)


def _keys(chunk: Any, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.bool_] | None, bool]:
    """Return the keys of a chunk, with the last of NaN, its mask, and whether there are NaN."""
    values, keeps = unpaired(chunk)
    values = np.ascontiguousarray(values.astype(dtype.newbyteorder("="), copy=False))
    if dtype.kind in "bu":
        return values.view(f"u{dtype.itemsize}"), keeps, False
    keys, _, most = keys_of(values)
    return keys, keeps, dtype.kind != "i" and most == np.iinfo(keys.dtype).max


def _found(
    chosen: list[NDArray[Any]], dtype: np.dtype[Any], order: WindowOrder
) -> list[NDArray[Any]]:
    """Turn keys of elements, or words of distances, into what they stand for, in place."""
    for keys in chosen if dtype.kind not in "bu" and not order.deviates else ():
        turn_into_words(keys, dtype)
    return [_viewed(each, dtype) for each in chosen]


def _viewed(words: NDArray[Any], dtype: np.dtype[Any]) -> Any:
    """View words of elements in the dtype in which they are selected."""
    wide = selection_dtype(dtype)
    return words.view(wide if dtype.kind in "bmM" else dtype.newbyteorder("="))


@kernel_of("f8 f4")
def _to_answers(
    lower: t.Table, upper: t.Table, counts: t.Places, weights: t.RealRows, how: int
) -> None:
    """Turn two floats into an answer between them, in place; see `window_floats.mix`.

    Answers of no elements are NaN, if there are any.
    """
    for question in range(lower.shape[0]):
        out = lower[question]
        mix(out, upper[question], how, weights[question], counts)
        if counts.size == out.size:
            for i in range(out.size):
                out[i] = out[i] if counts[i] > 0 else lower.dtype.type(np.nan)
