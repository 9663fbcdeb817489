"""Moving windows of CuPy chunks: the host side of ``windows.cu`` and ``window_tiles.cu``."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.companions import Accompanied, values_of
from dask_gpuselect.kernels.cuda.launch import Array, launch, most_shared
from dask_gpuselect.kernels.cuda.source import KEEPS, answered
from dask_gpuselect.kernels.cuda.window_tiles import Tiling, tiling
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
    about = (*tables, order.n_answers, order.mixes, order.skips_missing, answers, n_valid, flags)
    made = (*answered(order), *(() if keeps is None else KEEPS))
    tiles = _tiles(values, frame, order)
    if tiles is None:
        made += (("PLACES", _places(frame, order)), ("DEVIATES", int(order.deviates)))
        given = (values, mask, layout, offsets, n, n_windows)
        launch(dtype, "windows_answer", *given, *about, defined=made)
    else:
        how: dict[str, Any] = {"shared": tiles.shared, "defined": (*made, *tiles.defined)}
        launch(dtype, "window_tiles", values, mask, tiles.record, n, *about, **how)
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


def _places(frame: Frame, order: WindowOrder) -> int:
    """Return how many elements of a window a thread sorts in registers; 0 if it does not sort."""
    return frame.n if frame.n <= MOST_PLACES and not order.deviates else 0


def _tiles(values: Array, frame: Frame, order: WindowOrder) -> Tiling | None:
    """Return the tiles of a chunk, if they are the best way."""
    if order.deviates or frame.n <= MOST_PLACES:
        return None
    shared = most_shared(cupy.cuda.Device().id)
    return tiling(values.shape, frame, values.dtype.itemsize, shared)
