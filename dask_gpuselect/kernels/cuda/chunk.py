"""Where the elements of an array lie: what ``elements.cuh`` is told."""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.keys import selection_dtype

Array = Any  # a CuPy array
FEW = 1 << 14  # elements up to which copying them to the host is as fast


class Chunk(NamedTuple):
    """Where the elements of an array lie, as the kernels are told; in any order."""

    pointer: np.uint64
    size: np.int64
    layout: Any  # on the device, for `place_of` of ``elements.cuh``; null if contiguous

    @classmethod
    def of(cls, values: Array) -> Chunk:
        pointer = values.data.ptr
        itemsize = values.dtype.itemsize
        dimensions: list[list[int]] = []  # size and stride, the widest first
        for size, stride in zip(values.shape, values.strides, strict=True):
            if size != 1:
                pointer += min(stride, 0) * (size - 1)
                dimensions.append([size, abs(stride) // itemsize])
        # Broadcast dimensions come first: the others may still be one.
        dimensions.sort(key=lambda d: d[1] or 1 << 62, reverse=True)
        merged: list[list[int]] = []
        for size, stride in dimensions:
            if merged and merged[-1][1] == size * stride:
                merged[-1] = [merged[-1][0] * size, stride]
            else:
                merged.append([size, stride])
        if not merged or (len(merged) == 1 and merged[0][1] == 1):
            return cls(np.uint64(pointer), np.int64(values.size), np.uint64(0))
        sizes, strides = zip(*merged, strict=True)
        layout = cupy.asarray(np.array([len(merged), *sizes, *strides], np.int64))
        return cls(np.uint64(pointer), np.int64(values.size), layout)


def as_selected(values: Array) -> Array:
    """The elements in the dtype that kernels hand out: a copy where they are of another."""
    return values.astype(selection_dtype(values.dtype), copy=False)


def on_host(values: Array) -> NDArray[Any]:
    """The elements on the host, flat, in any order, and in the dtype that kernels hand out."""
    host = values.get().ravel(order="K")
    return np.ascontiguousarray(host.astype(selection_dtype(host.dtype), copy=False))


_widened = cupy.ElementwiseKernel(
    "float32 x",
    "float64 y",
    'asm("cvt.f64.f32 %0, %1;" : "=d"(y) : "f"(x))',
    "dask_gpuselect_widened",
)


def as_float64(values: Array) -> Array:
    """Elements as float64: CuPy takes denormal float32 for zeros."""
    return _widened(values) if values.dtype == np.float32 else values.astype(np.float64, copy=False)
