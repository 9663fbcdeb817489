"""Moving windows of CuPy chunks: the host side of ``windows.cu``."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.companions import Accompanied, values_of
from dask_gpuselect.kernels.cuda.launch import Array, launch
from dask_gpuselect.kernels.cuda.source import KEEPS, Defined, answered
from dask_gpuselect.kernels.reference import windows as reference
from dask_gpuselect.maths.keys import are_float64
from dask_gpuselect.maths.windows import Frame, WindowOrder, ranks_by_count, strides_of

MOST_PLACES = 32  # elements that a thread sorts in registers


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
    n_valid, flags = cupy.empty(n_windows, np.int32), cupy.zeros(2, np.uint32)
    values = cupy.ascontiguousarray(values_of(chunk).astype(dtype, copy=False))
    keeps = chunk.keeps if isinstance(chunk, Accompanied) else None
    layout, offsets, *tables = _tables(cupy.cuda.Device().id, values.shape, frame, order)
    mask = None if keeps is None else cupy.ascontiguousarray(keeps)
    given = (values, mask, layout, offsets, n, n_windows, *tables)
    numbers, out = (order.n_answers, order.mixes, order.skips_missing), (answers, n_valid, flags)
    made = _made_for(frame, order, has_keeps=keeps is not None)
    launch(dtype, "windows_answer", *given, *numbers, *out, defined=made)
    if order.mixes and dtype.kind in "iu" and dtype.itemsize == 8 and flags.get()[1]:
        return reference.answer(chunk, dtype, frame, order)
    return order.finished(answers, n_valid).reshape(-1, *shape)


@lru_cache(maxsize=32)  # copies to a device take longer than small windows
def _tables(
    device: int, padded: tuple[int, ...], frame: Frame, order: WindowOrder
) -> tuple[Array, ...]:
    """Return what windows of a shape are like, on a device: layout, offsets, ranks and weights."""
    del device
    shape, strides = frame.shape(padded), strides_of(padded)
    layout = np.array([len(shape), *shape, *(strides * frame.step)], np.int64)
    lower, upper, weights = ranks_by_count(order, frame.n)
    tables = (layout, frame.places() @ strides, np.stack([lower, upper]), weights)
    return tuple(map(cupy.asarray, tables))


def _made_for(frame: Frame, order: WindowOrder, *, has_keeps: bool) -> Defined:
    """Return the definitions with which the kernel is compiled."""
    is_small = frame.n <= MOST_PLACES and not order.deviates
    return (
        *answered(order),
        ("PLACES", frame.n if is_small else 0),
        ("DEVIATES", int(order.deviates)),
        *(KEEPS if has_keeps else ()),
    )
