"""Moving windows of CuPy chunks: the host side of their kernels."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.arrays import like, to_host
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cuda.launch import Array, launch, most_shared, to_share
from dask_gpuselect.kernels.cuda.source import KEEPS, answered
from dask_gpuselect.kernels.cuda.window_axes import WindowKernel
from dask_gpuselect.kernels.cuda.window_networks import networks
from dask_gpuselect.kernels.cuda.window_tiles import tiling
from dask_gpuselect.kernels.reference import windows as reference
from dask_gpuselect.kernels.reference.windows import Bordered
from dask_gpuselect.kernels.registry import backend_of
from dask_gpuselect.maths.keys import are_float64
from dask_gpuselect.maths.windows import Frame, Shape, Sides, WindowOrder, ranks_by_count

padded = reference.bordered


def valid_counts(chunk: Any, frame: Frame) -> Array:
    """Count the valid elements of each window; see `reference.windows.valid_counts`."""
    if not isinstance(chunk, Bordered):
        return reference.valid_counts(chunk, frame)
    is_valid = chunk.values == chunk.values  # noqa: PLR0124
    marks = is_valid & (True if chunk.keeps is None else chunk.keeps)
    return reference.sums(reference.padded(marks, chunk.sides, False), frame)


def answer(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Array:
    """Answer a question for each window, on the chunk's device; see `reference.windows.answer`.

    The host answers for windows that no block has room for, for integers beyond 2**53 between which
    the answers interpolate, and for distances of these and of float16. Scratch: a number for each
    window, and a copy of a chunk that is not contiguous.
    """
    if not isinstance(chunk, Bordered):
        chunk = padded(chunk, (Sides((0, 0)),) * chunk.ndim)
    values, keeps, is_masked = chunk.values, chunk.keeps, chunk.is_masked
    device = cupy.cuda.Device().id
    kernel, shape, tables = _way(chunk.padding, frame, order, dtype, is_masked, device)
    is_apart = order.deviates and (order.dtype.itemsize < 4 or not are_float64(values))
    if kernel is None or is_apart:
        return _on_host(chunk, dtype, frame, order)
    answers = cupy.empty((order.n_answers, math.prod(shape)), order.dtype)
    # Floats are NaN for windows of too few elements.
    may_lack = order.dtype.kind != "f" and (is_masked or order.least > frame.n)
    n_valid = cupy.empty(answers.shape[1], np.int32) if may_lack else None
    may_be_wide = bool(order.mixes) and dtype.kind in "iu" and dtype.itemsize == 8
    flags = cupy.zeros(2, np.uint32) if may_be_wide else None
    values = cupy.ascontiguousarray(values.astype(dtype, copy=False))
    mask = None if keeps is None else cupy.ascontiguousarray(keeps)
    fill = np.asarray(0 if chunk.fill is None else chunk.fill).astype(dtype)[()]
    about = (kernel.record, fill, int(chunk.fill is not None), frame.n, *tables)
    numbers = (order.n_answers, order.mixes, order.skips_missing, max(order.least, 1))
    deviates = ("DEVIATES", int(order.deviates))
    defined = (*answered(order), *(() if mask is None else KEEPS), deviates, *kernel.defined)
    how: dict[str, Any] = {
        "shared": kernel.shared,
        "n_threads": kernel.n_threads,
        "defined": defined,
    }
    launch(dtype, kernel.name, values, mask, *about, *numbers, answers, n_valid, flags, **how)
    if flags is not None and flags.get()[1]:
        return _on_host(chunk, dtype, frame, order)
    return order.finished(answers, n_valid).reshape(-1, *shape)


def _on_host(chunk: Bordered, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Array:
    """Answer windows by kernels of the host, whose time hardly grows with the windows."""
    keeps = None if chunk.keeps is None else to_host(chunk.keeps)
    kernels = backend_of("cpu").windows
    host = kernels.padded(Accompanied(to_host(chunk.values), keeps), chunk.sides, chunk.fill)
    return like(kernels.answer(host, dtype, frame, order), chunk.values)


@lru_cache(maxsize=64)  # what it does takes longer than small windows
def _way(
    padding: Any, frame: Frame, order: WindowOrder, dtype: Any, is_masked: bool, device: int
) -> tuple[WindowKernel | None, Shape, tuple[Array, Array]]:
    """Return the kernel for windows of a chunk, if there is one, and the shape of their answers.

    Return also the ranks and weights of windows of up to n elements, on a device.
    """
    kernel = networks(padding, frame, order, dtype, is_masked=is_masked)
    if kernel is None:
        kernel = tiling(padding, frame, dtype.itemsize, most_shared(device))
    lower, upper, weights = ranks_by_count(order, frame.n)
    tables = to_share((cupy.asarray(np.stack([lower, upper])), cupy.asarray(weights)))
    return kernel, frame.shape(tuple(axis.size for axis in padding)), tables
