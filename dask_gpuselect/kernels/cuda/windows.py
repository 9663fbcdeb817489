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
from dask_gpuselect.kernels.cuda.source import KEEPS, PAD_AXES, answered
from dask_gpuselect.kernels.cuda.window_axes import Piecewise, WindowKernel, piecewise
from dask_gpuselect.kernels.cuda.window_networks import networks
from dask_gpuselect.kernels.cuda.window_tiles import tiling
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


@dataclass(frozen=True, eq=False)
class Bordered(Accompanied):
    """A chunk that is padded as it is read.

    Parameters
    ----------
    sides : sequence of Sides
        What its windows reach, for each axis.
    padding : tuple of Piecewise
        What its elements stand for along each axis.
    fill : scalar, optional
        The value of what is outside; by default it is masked out.
    """

    sides: Sequence[Sides] = ()
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

    def whole(self) -> Any:
        """Return a copy with its padding."""
        chunk = self.values if self.keeps is None else Accompanied(self.values, self.keeps)
        return reference.padded(chunk, self.sides, self.fill)


def padded(chunk: Any, sides: Sequence[Sides], fill: Any = None) -> Any:
    """Pad a chunk by what its windows reach, as it is read; see `reference.windows.padded`."""
    places = [each for side in sides for each in (side.before, side.behind)]
    if len(sides) > PAD_AXES or any(isinstance(each, np.ndarray) for each in places):
        return reference.padded(chunk, sides, fill)
    values, keeps = values_of(chunk), chunk.keeps if isinstance(chunk, Accompanied) else None
    padding = tuple(map(piecewise, sides, values.shape))
    return Bordered(values, keeps, sides=sides, padding=padding, fill=fill)


def valid_counts(chunk: Any, frame: Frame) -> Array:
    """Count the valid elements of each window; see `reference.windows.valid_counts`."""
    whole = chunk.whole() if isinstance(chunk, Bordered) else chunk
    return reference.valid_counts(whole, frame)


def answer(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Array:
    """Answer a question for each window, on the chunk's device; see `reference.windows.answer`.

    The reference answers for integers beyond 2**53 between which the answers interpolate, and for
    distances of these and of float16. Scratch: a number for each window, and a copy of a chunk that
    is padded for large windows, or not contiguous.
    """
    if not isinstance(chunk, Bordered):
        chunk = padded(chunk, (Sides((0, 0)),) * chunk.ndim)
    if order.deviates and (order.dtype.itemsize < 4 or not are_float64(chunk.values)):
        return reference.answer(chunk.whole(), dtype, frame, order)
    device = cupy.cuda.Device().id
    kernel, shape, tables = _way(chunk.padding, frame, order, dtype, chunk.is_masked, device)
    answers = cupy.empty((order.n_answers, math.prod(shape)), order.dtype)
    # Floats are NaN for windows of too few elements.
    may_lack = order.dtype.kind != "f" and (chunk.is_masked or order.least > frame.n)
    n_valid = cupy.empty(answers.shape[1], np.int32) if may_lack else None
    may_be_wide = bool(order.mixes) and dtype.kind in "iu" and dtype.itemsize == 8
    flags = cupy.zeros(2, np.uint32) if may_be_wide else None
    if kernel.record is None:
        given = chunk.whole()
        about = (*_layout(device, chunk.shape, frame), answers.shape[1])
    else:
        given, fill = chunk, 0 if chunk.fill is None else chunk.fill
        about = (kernel.record, np.asarray(fill).astype(dtype)[()], int(chunk.fill is not None))
    values = cupy.ascontiguousarray(values_of(given).astype(dtype, copy=False))
    keeps = given.keeps if isinstance(given, Accompanied) else None
    mask = None if keeps is None else cupy.ascontiguousarray(keeps)
    numbers = (order.n_answers, order.mixes, order.skips_missing, max(order.least, 1))
    passed = (values, mask, *about, frame.n, *tables, *numbers, answers, n_valid, flags)
    deviates = ("DEVIATES", int(order.deviates))
    defined = (*answered(order), *(() if mask is None else KEEPS), deviates, *kernel.defined)
    how = {"shared": kernel.shared, "n_threads": kernel.n_threads}
    launch(dtype, kernel.name, *passed, **how, defined=defined)
    if flags is not None and flags.get()[1]:
        return reference.answer(chunk.whole(), dtype, frame, order)
    return order.finished(answers, n_valid).reshape(-1, *shape)


@lru_cache(maxsize=64)  # what it does takes longer than small windows
def _way(
    padding: tuple[Piecewise, ...],
    frame: Frame,
    order: WindowOrder,
    dtype: np.dtype[Any],
    is_masked: bool,
    device: int,
) -> tuple[WindowKernel, Shape, tuple[Array, Array]]:
    """Return the kernel for windows of a chunk, and the shape of their answers.

    Return also the ranks and weights of windows of up to n elements, on a device.
    """
    kernel = networks(padding, frame, order, dtype, is_masked=is_masked)
    if kernel is None:
        kernel = tiling(padding, frame, dtype.itemsize, most_shared(device))
    if kernel is None:
        kernel = WindowKernel("windows_answer", None, ())
    lower, upper, weights = ranks_by_count(order, frame.n)
    tables = cupy.asarray(np.stack([lower, upper])), cupy.asarray(weights)
    return kernel, frame.shape(tuple(axis.size for axis in padding)), tables


@lru_cache(maxsize=32)
def _layout(device: int, padded: tuple[int, ...], frame: Frame) -> tuple[Array, Array]:
    """Return where windows begin, and the places of their elements from there, on a device."""
    del device
    shape, strides = frame.shape(padded), strides_of(padded)
    layout = np.array([len(shape), *shape, *(strides * frame.step)], np.int64)
    return cupy.asarray(layout), cupy.asarray(frame.places() @ strides)
