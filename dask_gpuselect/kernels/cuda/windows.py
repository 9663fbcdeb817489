"""Moving windows of CuPy chunks: the host side of ``windows.cu`` and ``window_tiles.cu``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from dask_gpuselect.kernels.companions import Accompanied, values_of
from dask_gpuselect.kernels.cuda.launch import Array, launch, most_shared
from dask_gpuselect.kernels.cuda.source import KEEPS, PAD_AXES, Defined, answered, record
from dask_gpuselect.kernels.cuda.window_tiles import Tiling, tiling
from dask_gpuselect.kernels.reference import windows as reference
from dask_gpuselect.maths.keys import are_float64
from dask_gpuselect.maths.windows import (
    Frame,
    Shape,
    Sides,
    WindowOrder,
    ranks_by_count,
    strides_of,
)

PADDING = record("window_pads.cu", "Padding")
NO_NETWORK: Defined = (("PLACES", 0), ("LOWER", -1), ("UPPER", -1))
MOST_PLACES = 32  # elements that a thread sorts in registers


def padded(chunk: Any, sides: Sequence[Sides], fill: Any = None) -> Any:
    """Pad a chunk by what its windows reach, in one launch; see `reference.windows.padded`."""
    places = [each for side in sides for each in (side.before, side.behind)]
    if len(sides) > PAD_AXES or any(isinstance(each, np.ndarray) for each in places):
        return reference.padded(chunk, sides, fill)
    values, keeps = values_of(chunk), chunk.keeps if isinstance(chunk, Accompanied) else None
    axes = tuple(map(_Piecewise.of, sides, values.shape))
    if all(axis.size == axis.n and not (axis.low or axis.shift or axis.before) for axis in axes):
        return chunk
    shape, about = _padding(values.shape, axes)
    dtype, is_masked = np.dtype(values.dtype), keeps is not None
    if fill is None:
        is_masked |= any(any(side.outside) for side in sides)
    out = cupy.empty(shape, dtype)
    out_keeps = cupy.empty(shape, bool) if is_masked else None
    value = np.asarray(0 if fill is None else fill).astype(dtype)[()]
    mask = None if keeps is None else cupy.ascontiguousarray(keeps)
    given = (cupy.ascontiguousarray(values), mask, about, value, int(fill is not None))
    if out.size:
        launch(dtype, "window_pads", *given, out, out_keeps)
    return out if out_keeps is None else Accompanied(out, out_keeps)


class _Piecewise(NamedTuple):
    """Map the elements of a padded chunk to those of the chunk, along an axis.

    See ``window_pads.cu`` for the fields.
    """

    size: int
    low: int
    high: int
    shift: int
    before: int
    n: int
    first_before: int
    step_before: int
    first_behind: int
    step_behind: int

    @classmethod
    def of(cls, side: Sides, n: int) -> _Piecewise:
        """Describe the sides of a chunk of n elements."""
        start, stop, _ = side.needed.indices(side.n_before + n + side.n_behind)
        low = side.outside[0]
        high = low + stop - start
        ends = [_progression(side.before), _progression(side.behind)]
        before, behind = ((first - side.n_before, step) for first, step in ends)
        about = (start - low, side.n_before, n)
        return cls(high + side.outside[1], low, high, *about, *before, *behind)


def _progression(places: slice | None) -> tuple[int, int]:
    """Return the first of some places, and the step between them; a step of 0 repeats one place."""
    if places is None:
        return 0, 0
    is_one = places.stop == places.start + 1
    return places.start, 0 if is_one else places.step or 1


@lru_cache(maxsize=64)
def _padding(shape: Shape, axes: tuple[_Piecewise, ...]) -> tuple[Shape, Any]:
    """Return the shape of a padded chunk, and what the kernel takes."""
    made = np.zeros((), PADDING)
    sizes = tuple(axis.size for axis in axes)
    made["n_axes"], made["n_padded"] = len(shape), math.prod(sizes)
    columns = dict(zip(("sizes", *_Piecewise._fields[1:]), zip(*axes, strict=True), strict=True))
    for name, values in {**columns, "strides": strides_of(shape)}.items():
        made[name][: len(shape)] = values
    return sizes, made


def answer(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Array:
    """Answer a question for each window, on the chunk's device; see `reference.windows.answer`.

    The reference answers for integers beyond 2**53 between which the answers interpolate, and for
    distances of these and of float16. Scratch: a number for each window, and a copy of a chunk that
    is not contiguous.
    """
    if order.deviates and (order.dtype.itemsize < 4 or not are_float64(values_of(chunk))):
        return reference.answer(chunk, dtype, frame, order)
    shape = frame.shape(tuple(chunk.shape))
    n_windows, n = math.prod(shape), frame.n
    answers = cupy.empty((order.n_answers, n_windows), order.dtype)
    is_float = order.dtype.kind == "f"  # then windows of too few elements are answered by NaN
    n_valid = None if is_float else cupy.empty(n_windows, np.int32)
    may_be_wide = bool(order.mixes) and dtype.kind in "iu" and dtype.itemsize == 8
    flags = cupy.zeros(2, np.uint32) if may_be_wide else None
    values = cupy.ascontiguousarray(values_of(chunk).astype(dtype, copy=False))
    keeps = chunk.keeps if isinstance(chunk, Accompanied) else None
    device = cupy.cuda.Device().id
    mask = None if keeps is None else cupy.ascontiguousarray(keeps)
    numbers = (order.n_answers, order.mixes, order.skips_missing, max(order.least, 1))
    about = (*_ranks(device, n, order), *numbers, answers, n_valid, flags)
    made = (*answered(order), *(() if keeps is None else KEEPS))
    tiles = _tiles(values, frame, order)
    if tiles is None:
        made += _network(frame, order) if _is_small(values, frame, order) else NO_NETWORK
        made += (("DEVIATES", int(order.deviates)),)
        given = (values, mask, *_layout(device, values.shape, frame), n, n_windows)
        launch(dtype, "windows_answer", *given, *about, defined=made)
    else:
        how: dict[str, Any] = {"shared": tiles.shared, "defined": (*made, *tiles.defined)}
        launch(dtype, "window_tiles", values, mask, tiles.record, n, *about, **how)
    if flags is not None and flags.get()[1]:
        return reference.answer(chunk, dtype, frame, order)
    return order.finished(answers, n_valid).reshape(-1, *shape)


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


def _network(frame: Frame, order: WindowOrder) -> Defined:
    """Return the definitions of a network that sorts the elements of a window."""
    lower, upper = (
        (int(ranks[0, -1]) if order.n_answers == 1 and order.least <= frame.n else -1)
        for ranks in ranks_by_count(order, frame.n)[:2]
    )
    return (("PLACES", frame.n), ("LOWER", lower), ("UPPER", upper))


def _is_small(values: Array, frame: Frame, order: WindowOrder) -> bool:
    """Return whether a thread sorts the elements of a window in registers."""
    return frame.n <= MOST_PLACES and not order.deviates and values.size < 1 << 31


def _tiles(values: Array, frame: Frame, order: WindowOrder) -> Tiling | None:
    """Return the tiles of a chunk, if they are the best way."""
    if order.deviates or _is_small(values, frame, order):
        return None
    shared = most_shared(cupy.cuda.Device().id)
    return tiling(values.shape, frame, values.dtype.itemsize, shared)
