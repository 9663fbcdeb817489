"""Moving windows by the array API and NumPy: the reference, which unfolds few windows at a time.

Chunks are padded, so that no window reaches beyond their ends. Padding beyond the ends of the whole
array is masked if it has no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import Array, all_true, as_type, like, namespace, numpy_dtype, to_host
from dask_gpuselect.kernels.companions import Accompanied, unpaired, values_of
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.interpolation import interpolate
from dask_gpuselect.maths.keys import selection_dtype
from dask_gpuselect.maths.lane_cuts import Lanes
from dask_gpuselect.maths.ranks import MEDIAN
from dask_gpuselect.maths.windows import Corner, Frame, Piecewise, RowWindows, Shape, WindowOrder

TILE = 1 << 20  # elements of windows that are unfolded together


@dataclass(frozen=True, eq=False)
class Bordered(Accompanied):
    """A chunk that is padded as it is read, or as parts of it are taken.

    Parameters
    ----------
    padding : tuple of Piecewise
        What its elements stand for along each axis.
    fill : scalar, optional
        The value of what is outside; by default it is masked out.
    """

    padding: tuple[Piecewise, ...] = ()
    fill: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.padding)

    @property
    def outside(self) -> tuple[tuple[int, int], ...]:
        """Numbers of elements that stand for none, at both ends of each axis."""
        return tuple(axis.outside(0, axis.size) for axis in self.padding)

    @property
    def is_masked(self) -> bool:
        """True if some of its elements are left out."""
        return self.keeps is not None or (self.fill is None and any(map(any, self.outside)))

    def __getitem__(self, index: Any) -> Any:
        """Return a part by the slices of places, with its padding."""
        values, keeps, outside = self.values, self.keeps, []
        for axis, (part, own) in enumerate(zip(index, self.padding, strict=True)):
            pieces = own.within(part.start, part.stop)
            values = _joined(values, pieces, axis)
            keeps = None if keeps is None else _joined(keeps, pieces, axis)
            outside.append(own.outside(part.start, part.stop))
        chunk = values if keeps is None else Accompanied(values, keeps)
        return with_outside(chunk, outside, self.fill)


def _joined(array: Any, pieces: Sequence[Any], axis: int) -> Any:
    """Take elements along an axis that are before, inside and behind an array."""
    before, inner, behind = (array[(*(slice(None),) * axis, each)] for each in pieces)
    some = [each for each in (before, inner, behind) if each.shape[axis]]
    return np.concatenate(some, axis) if len(some) > 1 else [*some, inner][0]


def bordered(chunk: Any, padding: tuple[Piecewise, ...], fill: Any = None) -> Any:
    """Pad a chunk by what its windows reach, as it is read; see `padded`."""
    values, keeps = unpaired(chunk)
    return Bordered(values, keeps, padding=padding, fill=fill)


def padded(chunk: Any, padding: tuple[Piecewise, ...], fill: Any = None) -> Any:
    """Pad a chunk by what its windows reach: elements that stand for those beyond the ends, or one.

    Parameters
    ----------
    chunk : array or Accompanied
    padding : tuple of Piecewise
        What its elements stand for along each axis.
    fill : scalar, optional
        The value of what is outside; by default it is masked out.
    """
    return whole(bordered(chunk, padding, fill))


def whole(chunk: Any) -> Any:
    """Return a chunk with all of its padding."""
    is_bordered = isinstance(chunk, Bordered)
    return chunk[tuple(slice(0, n) for n in chunk.shape)] if is_bordered else chunk


def with_outside(chunk: Any, outside: Sequence[tuple[int, int]], fill: Any = None) -> Any:
    """Widen a chunk by elements beyond the ends, of one value or masked.

    `outside` says how many come before and behind it along each axis.
    """
    if not any(map(any, outside)):
        return chunk
    values, keeps = unpaired(chunk)
    dtype = numpy_dtype(values)
    value = np.zeros((), dtype)[()] if fill is None else np.asarray(fill).astype(dtype)[()]
    if fill is None or keeps is not None:
        inner = True if keeps is None else keeps
        keeps = _widened(values, inner, outside, fill is not None)
    widened = _widened(values, values, outside, value)
    return widened if keeps is None else Accompanied(widened, keeps)


def _widened(array: Any, values: Any, outside: Sequence[tuple[int, int]], value: Any) -> Any:
    """Put values, or one for all, in place of the elements of an array, and another around."""
    xp, sides = namespace(array), list(zip(array.shape, outside, strict=True))
    shape = tuple(n + sum(more) for n, more in sides)
    whole = xp.empty(shape, dtype=array.dtype if values is array else bool)
    for axis, (n, more) in enumerate(sides):  # each element is written about once
        along = (slice(None),) * axis
        whole[(*along, slice(more[0]))] = value
        whole[(*along, slice(more[0] + n, None))] = value
    whole[tuple(slice(more[0], more[0] + n) for n, more in sides)] = values
    return whole


def counts(
    is_missing: NDArray[np.bool_] | None,
    keeps: NDArray[np.bool_] | None,
    frame: Frame,
    shape: Shape,
) -> tuple[IntArray, IntArray]:
    """Count the valid and the missing elements of each window by their marks, if there are any.

    `shape` is that of the elements. One number stands for all windows where nothing is missing or
    left out.
    """
    if keeps is not None and is_missing is not None:
        is_missing = is_missing & keeps
    n_missing, n_kept = (
        np.broadcast_to(np.int64(n), 1) if marks is None else np.asarray(sums(marks, frame)).ravel()
        for n, marks in ((0, is_missing), (frame.n, keeps))
    )
    return n_kept if is_missing is None else n_kept - n_missing, n_missing


def valid_counts(chunk: Any, frame: Frame) -> Array:
    """Count the valid elements of each window, in kind, by one sum of marks."""
    values, keeps = unpaired(chunk)
    xp, is_bordered = namespace(values), isinstance(chunk, Bordered)
    if (is_missing := _missing(values)) is not None:
        keeps = ~is_missing if keeps is None else keeps & ~is_missing
    if keeps is None and is_bordered and chunk.is_masked:
        keeps = xp.ones(values.shape, dtype=bool)
    if keeps is None:
        return xp.full(frame.shape(tuple(chunk.shape)), frame.n, dtype=xp.int64)
    return sums(padded(keeps, chunk.padding, False) if is_bordered else keeps, frame)


def _missing(values: Array) -> Array | None:
    """Mark the elements that are NaN or NaT; return None if there are none."""
    if numpy_dtype(values).kind not in "fmM":
        return None
    is_missing = values != values  # noqa: PLR0124
    return is_missing if bool(namespace(values).any(is_missing)) else None


def sums(marks: Array, frame: Frame) -> Array:
    """Count the marks in each window."""
    xp = namespace(marks)
    total = as_type(marks, "int64")
    if frame.footprint is not None:
        every = sum(total[cut] for cut in _shifted(tuple(marks.shape), frame))
        return every + xp.zeros(frame.shape(tuple(marks.shape)), dtype=total.dtype)
    cumulated = xp.cumulative_sum if hasattr(xp, "cumulative_sum") else xp.cumsum
    for axis, (size, step) in enumerate(zip(frame.size, frame.step, strict=True)):
        if (size, step) == (1, 1):
            continue
        before = (slice(None),) * axis
        ends = cumulated(total, axis=axis)
        del total  # a task would take three of these, which are as large as float64
        n = max(marks.shape[axis] - size + 1, 0)
        total = xp.asarray(ends[(*before, slice(size - 1, size - 1 + n, step))], copy=True)
        total[(*before, slice(1, None))] -= ends[(*before, slice(step - 1, max(n - 1, 0), step))]
    return total


def _shifted(padded: tuple[int, ...], frame: Frame) -> list[tuple[slice, ...]]:
    """Return slices of the elements that are at each place of all windows."""
    shape = frame.shape(padded)
    return [
        tuple(
            slice(first, first + (n - 1) * step + 1, step)
            for first, n, step in zip(place, shape, frame.step, strict=True)
        )
        for place in frame.places().tolist()
    ]


def answer(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Array:
    """Answer a question for each window, ``(n_answers, *shape)``, in kind.

    Parameters
    ----------
    chunk : array or Accompanied
        A padded chunk.
    dtype : dtype
        The dtype of the dask array.
    frame : Frame
        The windows.
    order : WindowOrder
        The question for each window.
    """
    values = values_of(chunk)
    slabs = frame.slabs(tuple(chunk.shape), max(1, TILE // frame.n))
    return like(in_slabs(_answer_part, chunk, dtype, frame, order, slabs), values)


def answer_rows(
    values: Array, dtype: np.dtype[Any], windows: RowWindows, order: WindowOrder
) -> Array:
    """Answer windows of rows whose sizes differ, ``(n_answers, n_windows)``, in kind.

    Parameters
    ----------
    values : array
        The rows.
    dtype, order
        See `answer`.
    windows : RowWindows
    """
    n = max(windows.n, 1)
    host = np.append(to_host(values), np.zeros(1, dtype))  # what stands for no row
    frame = Frame((1, n), (1, 1))
    parts = []
    for start in range(0, len(windows.begins), max(1, TILE // n)):
        part = slice(start, start + max(1, TILE // n))
        places = windows.begins[part, None] + np.arange(n)
        is_in = places < windows.ends[part, None]
        rows = Accompanied(host[np.where(is_in, places, -1)], is_in)
        parts.append(_answer_part(rows, dtype, frame, order)[..., 0])
    none = np.empty((order.n_answers, 0), order.dtype)
    return like(np.concatenate(parts, axis=-1) if parts else order.finished(none, none[0]), values)


def in_slabs(
    answer_of: Callable[..., Any],
    chunk: Any,
    dtype: np.dtype[Any],
    frame: Frame,
    order: WindowOrder,
    slabs: Iterable[tuple[Corner, Corner]],
) -> Any:
    """Call a function with slabs of a chunk, as `Frame.slabs` has them, and join its answers."""
    padded, answers = tuple(chunk.shape), None
    for part, out in slabs:
        some = answer_of(_without_mask(chunk[part]), dtype, frame, order)
        if answers is None:
            if some.shape[1:] == frame.shape(padded):
                return some
            answers = np.empty((len(some), *frame.shape(padded)), some.dtype)
        answers[(slice(None), *out)] = some
    return answers


def _without_mask(chunk: Any) -> Any:
    """Drop the mask of a chunk if it is all True."""
    is_whole = isinstance(chunk, Accompanied) and chunk.keeps is not None and all_true(chunk.keeps)
    return chunk.values if is_whole else chunk


def _answer_part(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Any:
    """Answer the windows of a part of a chunk, unfolded."""
    shape = frame.shape(tuple(chunk.shape))
    values, keeps = unpaired(chunk)
    values, keeps = to_host(values), None if keeps is None else to_host(keeps)
    n_valid, n_missing = counts(_missing(values), keeps, frame, values.shape)
    rows = _unfolded(values, keeps, dtype, frame)
    if order.deviates:
        rows = deviations(rows, n_valid, order)
    rows.sort(axis=-1)
    lane_values = order.lane_values(lanes_of(rows, n_valid, n_missing, order))
    return order.finished(lane_values, n_valid).reshape(-1, *shape)


def _unfolded(values: Any, keeps: Any, dtype: np.dtype[Any], frame: Frame) -> Any:
    """Unfold the elements of windows, valid ones first, ``(n_windows, n)``."""
    values = values.astype(dtype.newbyteorder("="), copy=False)
    wide = selection_dtype(dtype)
    values = values.astype(wide, copy=False) if dtype.kind not in "bMm" else values.view(wide)
    cuts = _shifted(values.shape, frame)
    rows = np.stack([values[cut].reshape(-1) for cut in cuts], axis=-1)
    is_date = dtype.kind in "mM"
    left_out = rows == np.iinfo(wide).min if is_date else rows != rows  # noqa: PLR0124
    if keeps is not None:
        left_out = left_out | ~np.stack([keeps[cut].reshape(-1) for cut in cuts], axis=-1)
    if left_out.any():
        largest = np.inf if wide.kind == "f" else np.iinfo(wide).max
        rows[left_out] = largest
    return rows


def lanes_of(rows: Any, n_valid: IntArray, n_missing: IntArray, order: WindowOrder) -> Lanes:
    """Take the elements of the wanted ranks from sorted rows."""
    lower, upper = (
        np.broadcast_to(each, (order.n_answers, len(rows))).T
        for each in order.lane_ranks(np.maximum(n_valid, 1))
    )
    return Lanes(
        np.take_along_axis(rows, lower, axis=1),
        np.take_along_axis(rows, upper, axis=1),
        n_valid,
        n_missing,
    )


def deviations(rows: Any, n_valid: IntArray, order: WindowOrder) -> Any:
    """Compute the distances of elements from the median of their window, in the answer's dtype.

    They are infinite for elements that are left out.
    """
    rows = np.sort(rows, axis=-1)
    n = np.maximum(n_valid, 1)[:, None]
    lower, upper = (np.take_along_axis(rows, each, axis=1) for each in ((n - 1) // 2, n // 2))
    centre = interpolate(lower, upper, 0.5, MEDIAN, order.dtype)
    distances = np.abs(rows.astype(order.dtype) - centre)
    distances = np.where(np.arange(rows.shape[1]) < n, distances, np.inf)
    return np.where(np.isfinite(centre), distances, np.nan)
