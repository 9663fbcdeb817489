"""The layout of an array in memory, in the form that ``elements.cuh`` reads."""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied, Several, kept, parts_of, values_of
from dask_gpuselect.kernels.cuda.launch import Array, launch, on_device
from dask_gpuselect.kernels.cuda.source import KEEPS, Defined
from dask_gpuselect.kernels.reference.at_once import quotients
from dask_gpuselect.maths.keys import selection_dtype

Elements = Any
"""A CuPy array, or one that is `Accompanied` by a mask of its own shape. Samples and tallies also
take `Several` of these."""
FEW = 1 << 14  # elements up to which copying them to the host is as fast


class Chunk(NamedTuple):
    """The layout of an array's elements for kernels, which read them in any order."""

    pointer: np.uint64
    size: int
    layout: Any  # on the device, for `place_of` of ``elements.cuh``; None if contiguous
    keeps: Any  # a mask in the order in which elements are read; None without a mask

    @classmethod
    def of(cls, chunk: Elements) -> Chunk:
        values = values_of(chunk)
        pointer = values.data.ptr
        itemsize = values.dtype.itemsize
        merged: list[list[int]] = []  # sizes and strides of dimensions, the widest first
        for axis in _by_width(values):
            size, stride = values.shape[axis], values.strides[axis]
            if size == 1:
                continue
            pointer += min(stride, 0) * (size - 1)
            stride = abs(stride) // itemsize
            if merged and merged[-1][1] == size * stride:
                merged[-1] = [merged[-1][0] * size, stride]
            else:
                merged.append([size, stride])
        keeps = None if chunk is values else _aligned_keeps(chunk, pointer)
        if not merged or (len(merged) == 1 and merged[0][1] == 1):
            return cls(np.uint64(pointer), values.size, None, keeps)
        sizes, strides = zip(*merged, strict=True)
        layout = cupy.asarray(np.array([len(merged), *sizes, *strides], np.int64))
        return cls(np.uint64(pointer), values.size, layout, keeps)


def _by_width(values: Array) -> list[int]:
    """Return the axes by their strides, the widest first.

    Broadcast axes come first of all: the others may still be one contiguous dimension.
    """
    widths = [abs(stride) or 1 << 62 for stride in values.strides]
    return sorted(range(values.ndim), key=lambda axis: widths[axis], reverse=True)


def _aligned_keeps(chunk: Accompanied, pointer: int) -> Array:
    """Return the mask of a chunk in the order in which its elements are read from a pointer on.

    The kernels load the mask of 16 bytes of elements together. It is copied if it has another order
    or is not aligned for that.
    """
    values, keeps = chunk.values, chunk.keeps
    assert keeps is not None
    ascending = tuple(slice(None, None, -1 if stride < 0 else 1) for stride in values.strides)
    keeps = cupy.ascontiguousarray(keeps[ascending].transpose(_by_width(values))).ravel()
    itemsize = values.dtype.itemsize
    head = -pointer % 16 // itemsize  # elements before the first 16 bytes
    off = (keeps.data.ptr + head) % (16 // itemsize)
    if not off:
        return keeps
    moved = cupy.empty(keeps.size + 16, np.bool_)[-head % 16 :][: keeps.size]
    moved[...] = keeps
    return moved


def layout_in_order(array: Array) -> Any:
    """Return where the elements of an array lie in C order, for `place_of` of ``elements.cuh``.

    None if they are contiguous. `Chunk.of` would order the elements by their strides.
    """
    if array.flags.c_contiguous:
        return None
    strides = (stride // array.itemsize for stride in array.strides)
    return on_device(np.array([array.ndim, *array.shape, *strides], np.int64))


def masked(chunk: Elements) -> Defined:
    """Return the definitions with which a kernel is compiled to read a chunk, or any of several."""
    return KEEPS if isinstance(parts_of(chunk)[0], Accompanied) else ()


def n_unmasked(chunk: Elements) -> int:
    """Count the unmasked elements of a chunk or of several. Reads the mask once."""
    n, counter = 0, None
    for part in parts_of(chunk):
        keeps = part.keeps if isinstance(part, Accompanied) else None
        if keeps is None:
            n += int(part.size)
            continue
        counter = cupy.zeros(1, np.uint64) if counter is None else counter
        launch(np.dtype(np.bool_), "kept_number", keeps.ravel(order="K"), keeps.size, counter)
    return n if counter is None else n + int(counter.get()[0])


def compressed(chunk: Elements) -> Array:
    """Return the unmasked elements: a copy if there is a mask."""
    return kept(chunk.values, chunk.keeps) if isinstance(chunk, Accompanied) else chunk


def as_selected(values: Array) -> Array:
    """Convert elements to the dtype that kernels return: a copy if they have another."""
    return values.astype(selection_dtype(values.dtype), copy=False)


def floating(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return a floating dtype that represents all elements of a dtype; None if there is none."""
    if dtype.kind == "f":
        return dtype.newbyteorder("=")
    sizes = {1: "f4", 2: "f4", 4: "f8"}
    return np.dtype(sizes[dtype.itemsize]) if dtype.itemsize in sizes else None


def on_host(chunk: Elements) -> NDArray[Any]:
    """Return the unmasked elements on the host, flat, in any order, in the dtype kernels return."""
    if isinstance(chunk, Several):
        return np.concatenate([on_host(part) for part in chunk.parts])
    host = values_of(chunk).get()
    is_masked = isinstance(chunk, Accompanied)
    host = host[chunk.keeps.get()] if is_masked else host.ravel(order="K")
    return np.ascontiguousarray(host.astype(selection_dtype(host.dtype), copy=False))


_widened = cupy.ElementwiseKernel(
    "float32 x",
    "float64 y",
    'asm("cvt.f64.f32 %0, %1;" : "=d"(y) : "f"(x))',
    "dask_gpuselect_widened",
)


EXACT = """
    __device__ float distance(float a, float b) {
        float difference;
        asm("sub.rn.f32 %0, %1, %2;" : "=f"(difference) : "f"(a), "f"(b));
        return __uint_as_float(__float_as_uint(difference) & 0x7fffffffu);
    }
    __device__ double distance(double a, double b) { return fabs(a - b); }
    __device__ float quotient(float a, float b) {
        float result;
        asm("div.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
        return result;
    }
    __device__ double quotient(double a, double b) { return a / b; }
"""
"""Operations on floats that keep subnormal float32, which CuPy itself takes for zeros."""


_distance = cupy.ElementwiseKernel(
    "T x, T centre",
    "T y",
    "y = isfinite(centre) ? distance(x, centre) : T(0)",
    "dask_gpuselect_distance",
    preamble=EXACT,
)
_quotient = cupy.ElementwiseKernel(
    "T x, T centre, T scale",
    "T y",
    "y = isfinite(centre) ? quotient(x, scale) : centre - centre",
    "dask_gpuselect_quotient",
    preamble=EXACT,
)


def distances_from(chunk: Array, centre: Any, dtype: np.dtype[Any]) -> Array:
    """Compute the distances of elements from a centre, in a floating dtype.

    The centre is a number, or an array that broadcasts; the distance from one that is not finite is
    0. CuPy itself takes denormal float32 for zeros.
    """
    # A number is an argument of the kernel: a copy takes 55 us.
    is_number = isinstance(centre, np.generic)
    centre = dtype.type(centre) if is_number else cupy.asarray(centre, dtype)
    if dtype.itemsize == 2:
        distances = cupy.abs(chunk.astype(dtype, copy=False) - centre)
        return cupy.where(cupy.isfinite(centre), distances, dtype.type(0))
    wide = as_float64(chunk) if dtype.itemsize == 8 else chunk.astype(dtype, copy=False)
    return _distance(wide, centre)


def quotients_from(distances: Array, centre: Array, scale: float) -> Array:
    """Divide distances by a scale, in their dtype; NaN where the centre is not finite."""
    if distances.dtype.itemsize == 2:
        return quotients(distances, centre, scale)
    return _quotient(distances, centre, distances.dtype.type(scale))


def as_float64(values: Array) -> Array:
    """Convert elements to float64; subnormal float32 stay exact, which CuPy would flush to zero."""
    return _widened(values) if values.dtype == np.float32 else values.astype(np.float64, copy=False)
