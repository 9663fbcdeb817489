"""Moving windows of CuPy chunks: the host side of their kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.companions import Accompanied, values_of
from dask_gpuselect.kernels.cuda.launch import Array, launch, most_shared
from dask_gpuselect.kernels.cuda.source import KEEPS, PAD_AXES, answered, record
from dask_gpuselect.kernels.cuda.window_networks import Piecewise, fill_padding, networks
from dask_gpuselect.kernels.cuda.window_tiles import tiling
from dask_gpuselect.kernels.reference import windows as reference
from dask_gpuselect.maths.keys import are_float64
from dask_gpuselect.maths.windows import (
    Frame,
    Sides,
    WindowOrder,
    ranks_by_count,
    strides_of,
)

PADDING = record("window_pads.cu", "Padding")


@dataclass(frozen=True, eq=False)
class Bordered(Accompanied):
    """A chunk that is padded as it is read.

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
    def is_masked(self) -> bool:
        """True if some of its elements are left out."""
        is_open = any(axis.low or axis.high < axis.size for axis in self.padding)
        return self.keeps is not None or (self.fill is None and is_open)

    def given(self, dtype: np.dtype[Any]) -> tuple[Any, Any, Any]:
        """Return its elements, its mask, and the value of what is outside."""
        mask = None if self.keeps is None else cupy.ascontiguousarray(self.keeps)
        value = np.asarray(0 if self.fill is None else self.fill).astype(dtype)[()]
        values = self.values.astype(dtype, copy=False)
        return cupy.ascontiguousarray(values), mask, value


def padded(chunk: Any, sides: Sequence[Sides], fill: Any = None) -> Any:
    """Pad a chunk by what its windows reach, as it is read; see `reference.windows.padded`."""
    places = [each for side in sides for each in (side.before, side.behind)]
    if len(sides) > PAD_AXES or any(isinstance(each, np.ndarray) for each in places):
        return reference.padded(chunk, sides, fill)
    values, keeps = values_of(chunk), chunk.keeps if isinstance(chunk, Accompanied) else None
    return Bordered(values, keeps, padding=tuple(map(_piecewise, sides, values.shape)), fill=fill)


def _piecewise(side: Sides, n: int) -> Piecewise:
    """Describe the sides of a chunk of n elements along an axis."""
    start, stop, _ = side.needed.indices(side.n_before + n + side.n_behind)
    low = side.outside[0]
    high = low + stop - start
    ends = [_progression(side.before), _progression(side.behind)]
    before, behind = ((first - side.n_before, step) for first, step in ends)
    about = (start - low, side.n_before, n)
    return Piecewise(high + side.outside[1], low, high, *about, *before, *behind)


def _progression(places: slice | None) -> tuple[int, int]:
    """Return the first of some places, and the step between them; a step of 0 repeats one place."""
    if places is None:
        return 0, 0
    is_one = places.stop == places.start + 1
    return places.start, 0 if is_one else places.step or 1


def whole(chunk: Any) -> Any:
    """Return a chunk with its padding, which one launch makes."""
    if not isinstance(chunk, Bordered):
        return chunk
    if all(axis.is_plain for axis in chunk.padding):
        return chunk.values if chunk.keeps is None else Accompanied(chunk.values, chunk.keeps)
    dtype = np.dtype(chunk.values.dtype)
    values, mask, value = chunk.given(dtype)
    out = cupy.empty(chunk.shape, dtype)
    out_keeps = cupy.empty(chunk.shape, bool) if chunk.is_masked else None
    about = np.zeros((), PADDING)
    fill_padding(about, chunk.padding, strides_of(values.shape).tolist())
    fills = int(chunk.fill is not None)
    if out.size:
        launch(dtype, "window_pads", values, mask, about, value, fills, out, out_keeps)
    return out if out_keeps is None else Accompanied(out, out_keeps)


def valid_counts(chunk: Any, frame: Frame) -> Array:
    """Count the valid elements of each window; see `reference.windows.valid_counts`."""
    return reference.valid_counts(whole(chunk), frame)


def answer(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Array:
    """Answer a question for each window, on the chunk's device; see `reference.windows.answer`.

    The reference answers for integers beyond 2**53 between which the answers interpolate, and for
    distances of these and of float16. Scratch: a number for each window, and a copy of a chunk that
    is padded for large windows, or not contiguous.
    """
    if order.deviates and (order.dtype.itemsize < 4 or not are_float64(values_of(chunk))):
        return reference.answer(whole(chunk), dtype, frame, order)
    if not isinstance(chunk, Bordered):
        chunk = padded(chunk, (Sides((0, 0)),) * chunk.ndim)
    shape = frame.shape(chunk.shape)
    n_windows, n = math.prod(shape), frame.n
    answers = cupy.empty((order.n_answers, n_windows), order.dtype)
    # Floats are NaN for windows of too few elements.
    may_lack = order.dtype.kind != "f" and (chunk.is_masked or order.least > n)
    n_valid = cupy.empty(n_windows, np.int32) if may_lack else None
    may_be_wide = bool(order.mixes) and dtype.kind in "iu" and dtype.itemsize == 8
    flags = cupy.zeros(2, np.uint32) if may_be_wide else None
    device = cupy.cuda.Device().id
    tables, outs = _ranks(device, n, order), (answers, n_valid, flags)
    how = (order.mixes, order.skips_missing, max(order.least, 1))
    made = networks(chunk.padding, frame, order, dtype, is_masked=chunk.is_masked)
    if made is not None:
        values, mask, fill = chunk.given(dtype)
        given = (values, mask, made.record, fill, int(chunk.fill is not None))
        defined = (*answered(order), *(() if mask is None else KEEPS), *made.defined)
        launch(
            dtype,
            "window_networks",
            *given,
            *tables,
            *how,
            *outs,
            n_threads=made.n_tasks,
            defined=defined,
        )
    else:
        _answer_many(whole(chunk), dtype, frame, order, (*tables, order.n_answers, *how, *outs))
    if flags is not None and flags.get()[1]:
        return reference.answer(whole(chunk), dtype, frame, order)
    return order.finished(answers, n_valid).reshape(-1, *shape)


def _answer_many(
    chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder, about: tuple[Any, ...]
) -> None:
    """Answer windows of many elements of a padded chunk, or of distances; see `windows.cu`."""
    values = cupy.ascontiguousarray(values_of(chunk).astype(dtype, copy=False))
    keeps = chunk.keeps if isinstance(chunk, Accompanied) else None
    device = cupy.cuda.Device().id
    mask = None if keeps is None else cupy.ascontiguousarray(keeps)
    defined = (*answered(order), *(() if keeps is None else KEEPS))
    shared = most_shared(device)
    tiles = None if order.deviates else tiling(values.shape, frame, dtype.itemsize, shared)
    if tiles is None:
        defined += (("DEVIATES", int(order.deviates)),)
        n_windows = math.prod(frame.shape(values.shape))
        given = (values, mask, *_layout(device, values.shape, frame), frame.n, n_windows)
        launch(dtype, "windows_answer", *given, *about, defined=defined)
    else:
        how: dict[str, Any] = {"shared": tiles.shared, "defined": (*defined, *tiles.defined)}
        launch(dtype, "window_tiles", values, mask, tiles.record, frame.n, *about, **how)


@lru_cache(maxsize=32)  # copies to a device take longer than small windows
def _ranks(device: int, n: int, order: WindowOrder) -> tuple[Array, Array]:
    """Return the ranks and weights of windows of up to n elements, on a device."""
    del device
    lower, upper, weights = ranks_by_count(order, n)
    return cupy.asarray(np.stack([lower, upper])), cupy.asarray(weights)


@lru_cache(maxsize=32)
def _layout(device: int, padded: tuple[int, ...], frame: Frame) -> tuple[Array, Array]:
    """Return where windows begin, and the places of their elements from there, on a device."""
    del device
    shape, strides = frame.shape(padded), strides_of(padded)
    layout = np.array([len(shape), *shape, *(strides * frame.step)], np.int64)
    return cupy.asarray(layout), cupy.asarray(frame.places() @ strides)
