"""Moving windows of CuPy chunks: the host side of their kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.arrays import like, to_host
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.cuda.launch import (
    Array,
    as_pointer,
    filled,
    most_shared,
    prepared,
    to_share,
)
from dask_gpuselect.kernels.cuda.source import KEEPS, answered, record
from dask_gpuselect.kernels.cuda.window_networks import networks
from dask_gpuselect.kernels.cuda.window_tiles import tiling
from dask_gpuselect.kernels.reference import windows as reference
from dask_gpuselect.kernels.reference.windows import Bordered
from dask_gpuselect.kernels.registry import backend_of
from dask_gpuselect.maths.keys import are_float64
from dask_gpuselect.maths.windows import Frame, WindowOrder, ranks_by_count, unpadded

padded, valid_counts = reference.bordered, reference.valid_counts


def answer(chunk: Any, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Array:
    """Answer a question for each window, on the chunk's device; see `reference.windows.answer`.

    The host answers for windows that no block has room for, for integers beyond 2**53 between which
    the answers interpolate, and for distances of these and of float16. Scratch: a number for each
    window, and a copy of a chunk that is not contiguous.
    """
    if not isinstance(chunk, Bordered):
        chunk = padded(chunk, unpadded(chunk.shape))
    values, keeps = chunk.values, chunk.keeps
    if order.deviates and (order.dtype.itemsize < 4 or not are_float64(values)):
        return _on_host(chunk, dtype, frame, order)
    lacks = chunk.is_masked, keeps is not None, chunk.fill
    way = _way(chunk.padding, frame, order, dtype, *lacks, cupy.cuda.Device().id)
    if way is None:
        return _on_host(chunk, dtype, frame, order)
    start, fixed, _ = way
    shape = frame.shape(tuple(axis.size for axis in chunk.padding))
    answers = cupy.empty((order.n_answers, *shape), order.dtype)
    # Windows of too few elements have no NaN as answers, and are counted instead.
    may_lack = order.dtype.kind != "f" and (chunk.is_masked or order.least > frame.n)
    n_valid = cupy.empty(shape, np.int32) if may_lack else None
    may_be_wide = order.mixes and dtype.kind in "iu" and dtype.itemsize == 8  # beyond 2**53
    flags = cupy.zeros(2, np.uint32) if may_be_wide else None
    values = cupy.ascontiguousarray(values, dtype)
    mask = as_pointer(None if keeps is None else cupy.ascontiguousarray(keeps))
    start((values, mask, *fixed, answers, as_pointer(n_valid), as_pointer(flags)))
    if flags is not None and flags.get()[1]:
        return _on_host(chunk, dtype, frame, order)
    return order.finished(answers, n_valid, is_scaled=order.deviates)


def _on_host(chunk: Bordered, dtype: np.dtype[Any], frame: Frame, order: WindowOrder) -> Array:
    """Answer windows by kernels of the host, whose time hardly grows with the windows."""
    keeps = None if chunk.keeps is None else to_host(chunk.keeps)
    kernels = backend_of("cpu").windows
    host = kernels.padded(Accompanied(to_host(chunk.values), keeps), chunk.padding, chunk.fill)
    return like(kernels.answer(host, dtype, frame, order), chunk.values)


@lru_cache(maxsize=64)  # what it does takes longer than small windows
def _way(
    padding: Any,
    frame: Frame,
    order: WindowOrder,
    dtype: np.dtype[Any],
    is_masked: bool,
    has_mask: bool,
    fill: Any,
    device: int,
) -> tuple[Callable[[tuple[Any, ...]], None], tuple[Any, ...], tuple[Array, ...]] | None:
    """Prepare the kernel for windows of chunks of one shape, if there is one.

    Returns a function that starts it with its arguments, those that are the same for all these
    chunks, and the arrays whose addresses they hold.
    """
    kernel = networks(padding, frame, order, dtype, is_masked=is_masked)
    if kernel is None:
        kernel = tiling(padding, frame, dtype.itemsize, most_shared(device))
    if kernel is None:
        return None
    name, windows, own, how = kernel
    deviates = ("DEVIATES", int(order.deviates))
    defined = (*answered(order), *(KEEPS if has_mask else ()), deviates, *own)
    start, taken = prepared(dtype, name, defined, **how)
    lower, upper, weights = ranks_by_count(order, frame.n)
    tables = to_share((cupy.asarray(np.stack([lower, upper])), cupy.asarray(weights)))
    outside = np.asarray(0 if fill is None else fill).astype(dtype).view(f"u{dtype.itemsize}")
    asked = filled(
        record(f"{name}.cu", "Asked"),
        **dict(zip(("ranks", "weights"), tables, strict=True)),
        **{"scale": order.scale, "fill": outside, "fills": fill is not None, "n": frame.n},
        **{"n_answers": order.n_answers, "mixes": order.mixes},
        **{"skips_missing": order.skips_missing, "least": max(order.least, 1)},
    )
    return start, taken((windows, asked), first=2), tables
